"""profd for a while under a mixed load (soak_load.py): it leaks nothing, holds no more at the end than before, and
accounts for every sample.

soak.py [--minutes N] [--under nothing|sanitizer|valgrind] [--pause SECONDS] [--csv FILE]

sanitizer: profd and its worker of a build with AddressSanitizer report leaks; the worker runs without its sandbox then,
in which no sanitizer can. valgrind: the same with an ordinary build. nothing: memory, descriptors, threads and BPF
objects are watched. The load is light: more --pause makes it lighter."""
import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import injector  # noqa: F401  (finds the harness)
from harness import BUILD, PROFD, Daemon, Profile, check, skip, wait_until
from beside import place
from soak_figures import Figures, children
from soak_load import Load

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--minutes", type=float, default=1.5)
parser.add_argument("--under", choices=["nothing", "sanitizer", "valgrind"], default="nothing")
parser.add_argument("--pause", type=float, default=1, help="seconds after each step of the load")
parser.add_argument("--csv")
args = parser.parse_args()

CONFIG = ("[Sampling]\nFrequency={rate}\nEvents=cycles page-faults\n[Limits]\nCpu={cpu}%\nMemory=256M\n"
          "[Store]\nWindow=5s\nMerge=15s 60s\nMergeAfter=20s 60s\nMaxAge=3min\nMaxSize=2M\n")
CONFIGS = [CONFIG.format(rate=49, cpu=30), CONFIG.format(rate=99, cpu=20)]
LEAKS = os.path.join(BUILD, "tests", "faults", "libleaks.so")
SANITIZER = {"ASAN_OPTIONS": "detect_leaks=1:quarantine_size_mb=8:exitcode=99",
             "UBSAN_OPTIONS": "halt_on_error=1:exitcode=99:print_stacktrace=1"}
VALGRIND = ["valgrind", "-q", "--leak-check=full", "--show-leak-kinds=definite,indirect",
            "--errors-for-leak-kinds=definite,indirect", "--num-callers=20"]
# What both programs say when something is wrong; bpf() itself is given unions that are only partly used.
WRONG = re.compile(r"AddressSanitizer|LeakSanitizer|runtime error:|leaks: found|Invalid (read|write|free)|"
                   r"Mismatched free|uninitialised value|(definitely|indirectly) lost: [1-9]|are definitely lost|"
                   r"assertion|stack smashing")


class Soaked(Daemon):
    """A profd in a directory of its own, in which the worker can be another program."""

    def __init__(self):
        super().__init__(CONFIGS[0])
        self.environment, self.before = dict(os.environ), []
        how = []
        if args.under == "sanitizer":
            self.environment |= SANITIZER
            how = [f"{k}={v}" for k, v in SANITIZER.items()] + [f"LD_PRELOAD={LEAKS}"]
        elif args.under == "valgrind":
            self.before = VALGRIND
            how = ["PATH=/usr/bin", *VALGRIND]
        self.program = place(self.dir, *how)

    def start(self):
        with open(self.log, "a", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [*self.before, self.program, "--config", self.config, "--state-dir", self.state, "--socket",
                 self.socket], stderr=log, stdout=log, env=self.environment)
        wait_until(self.is_up, 300, "profd starts")

    def workers(self):
        """Those that could be asked for leaks have answered."""
        found = children(self.process.pid)
        if args.under == "sanitizer":
            for pid in found:
                n = self.logged().count("leaks: ")
                if not caught(pid, signal.SIGUSR1):
                    continue
                os.kill(pid, signal.SIGUSR1)
                wait_until(lambda n=n, pid=pid: self.logged().count("leaks: ") > n or not os.path.exists(f"/proc/{pid}"),
                           300, "the worker looks for leaks")
        elif args.under == "valgrind":
            for pid in found:
                r = subprocess.run(["vgdb", f"--pid={pid}", "leak_check", "full", "definite"], capture_output=True,
                                   text=True, timeout=300, check=False)
                with open(self.log, "a", encoding="utf-8") as f:
                    f.write(f"worker {pid} under valgrind: {r.stdout}{r.stderr}")
        return found

    def accounted(self):
        s = self.status()
        lost = sum(l["samples"] for l in s["losses"] if l["cause"] != "missed")
        return s["samples_taken"] == s["samples_delivered"] + lost + s["samples_waiting"]


def caught(pid, sig):
    """The worker has got as far as to wait for it: it blocks the signal then. A shell on the way to it does not."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8") as f:
            blocked = re.search(r"^SigBlk:\s*(\w+)", f.read(), re.MULTILINE)
        return bool(int(blocked.group(1), 16) >> (sig - 1) & 1)
    except (OSError, AttributeError):
        return False


def check_that_leaks_are_found():
    """Otherwise their absence would say nothing."""
    r = subprocess.run([PROFD, "--check-config", "--config", "/dev/null"], capture_output=True, text=True, check=False,
                       timeout=120, env={**os.environ, **SANITIZER, "LD_PRELOAD": LEAKS, "LEAK_ON_PURPOSE": "1"})
    check(r.returncode == 99 and "4711 byte(s)" in r.stderr, f"a leak on purpose is found ({r.returncode})")


def main():
    os.nice(10)
    if args.under == "sanitizer":
        check_that_leaks_are_found()
    if args.under == "valgrind" and not (shutil.which("valgrind") and shutil.which("vgdb")):
        skip("needs valgrind")
    seconds = args.minutes * 60
    # (symbolize has a worker of its own, in its sandbox)
    without = ["symbolize"] if args.under == "sanitizer" else []
    with Soaked() as d, Load(d, CONFIGS, d.workers, without) as load:
        figures = Figures(d.process.pid, seconds, args.csv)
        figures.start()
        n, end = 0, time.monotonic() + seconds
        while time.monotonic() < end:
            load.round(n, args.pause)
            n += 1
            check(d.process.poll() is None, f"round {n}: profd runs")
        figures.stop()
        d.workers()
        wait_until(d.accounted, 120, "all samples are accounted for")
        s = d.status()
        for name in d.windows():
            try:
                with open(os.path.join(d.state, name), "rb") as f:
                    Profile(f.read())
            except FileNotFoundError:
                pass  # merged or deleted meanwhile
        status = d.stop(signal.SIGTERM)
        said = d.logged()
        wrong = [line for line in said.splitlines() if WRONG.search(line)]
        if wrong or status != 0:
            print(said[-20000:])
        check(status == 0, f"profd stops cleanly ({status})")
        check(not wrong, f"nothing is wrong with its memory: {wrong[:3]}")
        check(not load.bad, f"readers are served: {load.bad[:3]}")
        check(s["store"]["bad_files"] == 0 and s["store"]["windows"] > 0, "what is stored is whole")
        print(f"{args.minutes} minutes under {args.under}: {load.done}; {s['samples_taken']} samples, of which lost "
              f"{ {l['cause']: l['samples'] for l in s['losses'] if l['samples']} }; {said.count('leaks: none')} looks "
              f"for leaks in workers; {s['store']['windows']} windows, {s['store']['bytes'] / 2**20:.1f} MiB")
        # a sanitizer's memory is its own; in the first ten minutes objects are new, take memory and a descriptor each
        grown = figures.judge(without=("rss", "pss", "fds") if args.minutes < 40 else
                              ("rss", "pss") if args.under != "nothing" else ())
        check(not grown, f"what it holds is steady: {grown}")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
