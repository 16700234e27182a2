"""profd and profctl while single calls fail that hardly ever do: memory, descriptors, writes, reads, bpf(), threads.
Each site fails once. profd goes on, or ends with status 1 and a line that says why; profctl does its work or ends
so; neither crashes, and what is stored stays whole.

faults.py PHASE SECONDS [FILE]: a phase ends when all its sites have failed, or after so long (0: never). FILE keeps
which sites have failed, so that a phase can be run in pieces."""
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

import injector
from injector import ALLOC, FILE, KERNEL, KILL, MANY, OPEN, READ, THREAD, WRITE, Injector
from harness import LIFE, PROFCTL, PROFD, PROGRAMS, Daemon, Profile, Work, wait_until

CONFIG = ("[Sampling]\nFrequency=199\nEvents=cycles\n[Limits]\nCpu=50%\n"
          "[Store]\nWindow=5s\nMerge=10s 60s\nMergeAfter=5s 30s\n")
EVERYTHING = ALLOC | WRITE | OPEN | READ | KERNEL | THREAD | FILE


# Libraries that do not check all of their own memory, which nobody above them can mend: (library, why).
UNCHECKED = [
    ("libjson-c.so", "json-c before 0.17 does not check its copy of a member's name"),
    ("api_find_group", "glibc asserts that it has memory to find a group by"),
]


# libmicrohttpd ends the program when the eventfd it tells its own thread by cannot be written to, which an eventfd does
# not do; it says so in these words.
PANIC = re.compile(r"^Fatal error in GNU libmicrohttpd \S+: Failed to signal .* via inter-thread communication channel",
                   re.MULTILINE)


def crash_of_library(status, what, said=""):
    """The failed call is one below which a library is known to crash."""
    if status == -signal.SIGABRT and PANIC.search(said):
        return any(re.match(r"write: libmicrohttpd\.so", line) for line in what)
    return status in (-signal.SIGSEGV, -signal.SIGABRT, 127) and any(
        re.search(rf"^(alloc|open|read): ((libc|libnss|ld-linux)\S* < )*{re.escape(name)}", line)
        for line in what for name, _ in UNCHECKED)


class Faulty(Daemon):
    """A profd some of whose calls fail. It may end by itself, but only as an operator would want it."""

    def __init__(self, faults, config=CONFIG, **how):
        super().__init__(config, **how)
        self.faults, self.bad, self.known = faults, 0, set()

    def __enter__(self):
        return self

    def start(self):
        self.logged_before = len(self.logged()) if os.path.exists(self.log) else 0
        with open(self.log, "a", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [PROFD, "--config", self.config, "--state-dir", self.state, "--socket", self.socket],
                stderr=log, stdout=log, env=self.faults.environment())

    def answers(self):
        try:
            return self.get("/api/v1/status", timeout=20)[0] == 200
        except OSError:
            return False

    def wait_up(self):
        """True: it is up; False: it has ended."""
        wait_until(lambda: self.process.poll() is not None or self.answers(), 120, "profd starts or says why not")
        return self.process.poll() is None

    def stacks(self):
        """Where its threads are: to tell a hang by."""
        return subprocess.run(["eu-stack", "-p", str(self.process.pid)], capture_output=True, text=True,
                              check=False).stdout

    def up_again(self):
        """When nothing fails any more it answers; 1: after a start, since it had ended."""
        end = time.monotonic() + 120
        while self.process.poll() is None and not self.answers():
            if time.monotonic() > end:
                self.complain(f"profd does not answer when nothing fails any more; its threads:\n{self.stacks()}")
                self.process.kill()
                self.process.wait()
        if self.process.poll() is None:
            return 0
        self.end()
        self.start()
        if not self.wait_up():
            self.complain("profd does not start")
        return 1

    def said(self):
        return self.logged()[self.logged_before:]

    def complain(self, what, failed=None):
        self.bad += 1
        print(f"FAILED: {what}; what failed:")
        for line in failed or self.faults.newest():
            print(f"    {line}")
        print("  it said:")
        print("    " + "\n    ".join(self.said().splitlines()[-12:]), flush=True)

    def end(self):
        """Stops it if it has not stopped, and judges how it ended."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            status = "never"
        self.process = None
        what = self.faults.newest()
        mute = any("log_line" in line for line in what)
        if status == 1 and not mute and not re.search(r"^\S.*: .", self.said(), re.MULTILINE):
            self.complain("profd ended with status 1 and did not say why", what)
        elif crash_of_library(status, what, self.said()):
            print(f"  {status}, the library's own: {' '.join(what)}")
        elif status not in (0, 1):
            self.complain(f"profd ended with {status}", what)
        else:
            for line in what:
                print(f"  {status}: {line}")
        return status

    def check_store(self):
        """Every file in the store reads as a profile, by a reader of its own."""
        for name in self.windows():
            path = os.path.join(self.state, name)
            try:
                with open(path, "rb") as f:
                    known = f.read()
                Profile(known)
            except FileNotFoundError:
                continue  # merged meanwhile
            except Exception as e:  # whatever is wrong with it
                self.complain(f"{name} in the store cannot be read: {e}")


def ended(deadline):
    return deadline is not None and time.monotonic() > deadline


def phase_start(deadline, keep):
    """One failure a run, from the first instruction to the end."""
    with Injector(PROFD, EVERYTHING, keep=keep) as faults, Faulty(faults) as d:
        while not ended(deadline):
            before = faults.fired
            faults.allow(1)
            d.start()
            d.wait_up()
            d.end()
            if faults.fired == before:
                break
        d.check_store()
        print(f"{faults.fired} of {faults.sites} sites failed while profd starts and stops")
        return d.bad


READERS = ["status", "report --last 1min", "list", "dump --last 1min -f folded", "report --for 1s --stdio"]


def phase_run(deadline, keep):
    """profd is up and busy; every site fails once, some milliseconds apart."""
    with Injector(PROFD, EVERYTHING, gap_ms=100, keep=keep) as faults, Faulty(faults) as d, \
            Work([f"{PROGRAMS}/storm", LIFE]), Work([f"{PROGRAMS}/split31", LIFE]):
        quiet, restarts = 0, 0
        deadline = deadline or time.monotonic() + 3600
        d.start()
        if not d.wait_up():
            d.complain("profd does not start")
        while not ended(deadline) and quiet < 10:
            before = faults.fired
            faults.allow(MANY)
            for verb in READERS:
                try:
                    subprocess.run([PROFCTL, *verb.split(), "--socket", d.socket], capture_output=True, timeout=120,
                                   check=False)
                except subprocess.TimeoutExpired:
                    d.complain(f"profctl {verb} is not answered; its threads:\n{d.stacks()}")
            faults.allow(0)
            restarts += d.up_again()
            d.check_store()
            quiet = quiet + 1 if faults.fired == before else 0
        s = d.status()
        lost = sum(l["samples"] for l in s["losses"] if l["cause"] != "missed")
        if s["samples_taken"] != s["samples_delivered"] + lost + s["samples_waiting"]:
            d.complain(f"samples are not accounted for: {s}")
        n = len(d.windows())
        d.end()
        d.check_store()
        print(f"{faults.fired} of {faults.sites} sites failed while profd runs; {restarts} times it ended and was "
              f"started again; {n} windows; losses {[l for l in s['losses'] if l['samples']]}")
        return d.bad


def leftovers(d):
    return [n for n in os.listdir(d.state) if n.endswith(".tmp")]


def phase_kill(deadline, keep):
    """profd is killed in place of each call that changes the store, once at each. What was stored stays."""
    with Injector(PROFD, FILE, action=KILL, keep=keep) as faults, Faulty(faults) as d, Work([f"{PROGRAMS}/split31", LIFE]):
        while not ended(deadline):
            before = faults.fired
            d.start()
            if not d.wait_up():
                d.complain("profd does not start after a kill")
            wait_until(lambda: not leftovers(d), 60, "what a kill left half written is removed")
            if d.status()["store"]["bad_files"]:
                d.complain(f"bad files in the store: {d.profctl('list').stdout}")
            faults.allow(1)
            until = time.monotonic() + 30
            while d.process.poll() is None and time.monotonic() < until and not ended(deadline):
                time.sleep(0.05)
            faults.allow(0)
            if d.process.poll() == -signal.SIGKILL:
                d.process = None
                print(*(f"  killed at {line}" for line in faults.newest()), sep="\n")
            else:
                d.end()
            d.check_store()
            if faults.fired == before:
                break
        d.start()
        d.wait_up()
        s = d.status()["store"]
        if s["bad_files"]:
            d.complain(f"bad files in the store: {d.profctl('list').stdout}")
        d.end()
        d.check_store()
        print(f"killed at {faults.fired} of {faults.sites} sites; {s['windows']} windows are whole")
        return d.bad


VERBS = ["status", "list", "report", "report --callers --timeline", "dump -f pprof -o OUT", "dump -f folded -o OUT",
         "dump -f speedscope -o OUT", "dump -f callgrind -o OUT", "flamegraph -o OUT", "annotate hot_three",
         "diff STORED STORED", "changes", "doctor", "report STORED"]


def profctl_once(d, faults, words):
    """One run of profctl with at most one failure: 1 when it ended as it must not."""
    faults.allow(1)
    before = faults.fired
    try:
        r = subprocess.run([PROFCTL, *words], capture_output=True, timeout=120, check=False,
                           env={**faults.environment(), "PAGER": "cat"})
        status, said = r.returncode, r.stderr.decode("utf-8", "replace")
    except subprocess.TimeoutExpired:
        status, said = "never", ""
    faults.allow(0)
    if faults.fired == before:
        return 0, False
    what = faults.newest()
    # an option that is not known would be status 2: a mistake of this test
    if crash_of_library(status, what):
        print(f"  {status}, the library's own: {words[0]}: {' '.join(what)}")
        return 0, True
    if status not in (0, 1) or (status == 1 and not said.startswith("profctl: ")):
        print(f"FAILED: profctl {' '.join(words)} ended with {status} and said {said[-600:]!r}; what failed:")
        print("    " + "\n    ".join(what), flush=True)
        return 1, True
    print(f"  {status}: {words[0]}: {' '.join(what)}")
    return 0, True


def phase_profctl(deadline, keep):
    bad = 0
    with Daemon(CONFIG) as d, Work([f"{PROGRAMS}/split31", LIFE]), \
            Injector(PROFCTL, EVERYTHING, keep=keep) as faults, tempfile.TemporaryDirectory() as home:
        wait_until(lambda: len(d.windows()) >= 2, 120, "two windows are stored")
        stored = os.path.join(home, "stored.pb.gz")
        subprocess.run(["cp", os.path.join(d.state, d.windows()[0]), stored], check=True)
        left = []
        for verb in VERBS:
            words = [w.replace("STORED", stored).replace(
                "OUT", os.path.join(home, "out")) for w in verb.split()]
            if "STORED" not in verb:
                words[1:1] = ["--socket", d.socket]
            left.append(words)
        while left and not ended(deadline):
            for words in list(left):
                failed, fired = profctl_once(d, faults, words)
                bad += failed
                if not fired:
                    left.remove(words)
                if ended(deadline):
                    break
        print(f"{faults.fired} of {faults.sites} sites failed in profctl")
    return bad


PHASES = {"start": phase_start, "run": phase_run, "kill": phase_kill, "profctl": phase_profctl}

if __name__ == "__main__":
    phase, seconds = PHASES[sys.argv[1]], float(sys.argv[2])
    failures = phase(time.monotonic() + seconds if seconds else None, sys.argv[3] if len(sys.argv) > 3 else None)
    if failures:
        print(f"FAILED: {failures} times")
        sys.exit(1)
