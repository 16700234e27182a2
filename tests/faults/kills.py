"""profd, or its worker, killed in place of each call that matters, once at each: while it starts, loads, takes up what
the one before it left, spawns the worker, makes the first table and the first names, drains, writes windows and sums,
stops. The next one goes on: what is stored stays whole, and no sample is unaccounted for.

kills.py daemon|calls|worker SECONDS [FILE]: daemon: in place of bpf(), perf_event_open(), threads, processes and what
changes files; calls: also of what opens, reads and writes; worker: in place of its allocations, of which each of its
stages has some. Ends when it was killed at all of them, or after so long (0: never)."""
import os
import signal
import subprocess
import sys
import time

from injector import ALLOC, BUILD, FILE, KERNEL, KILL, MANY, OPEN, READ, THREAD, WRITE, Injector
from beside import WORKER, place
from harness import LIFE, PROFD, PROGRAMS, Daemon, Profile, Work, check, has, of_pid, skip, wait_until
from kept import KeptDaemon
from limited import accounted

CONFIG = "[Sampling]\nFrequency=199\nEvents=cycles\n%s[Limits]\nCpu=50%%\n[Store]\nWindow=5s\n"
CAUSES = ("restart", "counts_full", "stacks_full", "busy", "nested", "store", "memory")
LATE = 300  # seconds, on a slow host
STOP_AFTER = 12  # seconds without a kill: only the end is left, which has calls of its own
FULL_EVERY = 20  # kills: then one is left alone, so that windows come to be


def ended(deadline):
    return deadline is not None and time.monotonic() > deadline


class Killed(KeptDaemon):
    def __init__(self, faults, pins):
        super().__init__(CONFIG % f"Pin={pins}\n", pins)
        self.faults = faults

    def __enter__(self):
        return self

    def start(self):
        with open(self.log, "a", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [PROFD, "--config", self.config, "--state-dir", self.state, "--socket", self.socket], stderr=log,
                stdout=log, env=self.faults.environment())

    def life(self, deadline):
        """One, to its kill; without one it is stopped in the end."""
        self.start()
        begin, asked = time.monotonic(), False
        while self.process.poll() is None:
            if not asked and (time.monotonic() - begin > STOP_AFTER or ended(deadline)):
                self.process.send_signal(signal.SIGTERM)
                asked = True
            if time.monotonic() - begin > LATE:
                print(self.logged()[-2000:])
                check(False, "profd is killed or stops")
            time.sleep(0.02)
        status = self.process.returncode
        self.process = None
        if status not in (0, -signal.SIGKILL):
            print(self.logged()[-2000:])
            check(False, f"profd ended with {status}")

    def whole_life(self):
        self.faults.allow(0)
        n = len(self.windows())
        self.start()
        wait_until(self.is_up, LATE, "profd starts after kills")
        wait_until(lambda: len(self.windows()) > n, LATE, "a window is stored")
        check(self.status()["store"]["bad_files"] == 0, "what is stored is whole")
        wait_until(lambda: accounted(self), LATE, "all samples are accounted for")
        check(not [f for f in os.listdir(self.state) if f.endswith(".tmp")], "nothing half written is left")
        check(self.stop() == 0, "it stops cleanly")


def orphans():
    """Workers of this build that have outlived their profd."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
                parent = f.read().rsplit(")", 1)[1].split()[1]
            if parent == "1" and os.readlink(f"/proc/{pid}/exe") == WORKER:
                found.append(pid)
        except OSError:
            pass
    return found


def kill_daemon(kinds, deadline, keep):
    if subprocess.run(["mountpoint", "-q", "/sys/fs/bpf"], check=False).returncode != 0:
        skip("no BPF file system is mounted on /sys/fs/bpf")
    pins = f"/sys/fs/bpf/profd-kills-{os.getpid()}"
    with Injector(PROFD, kinds, action=KILL, keep=keep) as faults, Killed(faults, pins) as d, \
            Work([f"{PROGRAMS}/split31", LIFE]) as work:
        lives, before = 0, -1
        while not ended(deadline) and faults.fired != before:
            before = faults.fired
            faults.allow(1)
            d.life(deadline)
            for line in faults.newest():
                print(f"  killed at {line}", flush=True)
            lives += 1
            if lives % FULL_EVERY == 0:
                d.whole_life()
        d.whole_life()
        profiles = d.stored()
        taken = sum(p.ledger("samples.taken") for p in profiles)
        lost = sum(p.lost() - p.ledger("lost.missed") for p in profiles)
        total = sum(p.count() for p in profiles)
        causes = {c: sum(p.ledger("lost." + c) for p in profiles) for c in CAUSES}
        print(f"lost by {causes}")
        check(abs(total + lost - taken) <= 0.005 * taken + 3,
              f"{total} samples stored and {lost} lost of {taken} taken, in {len(profiles)} windows")
        check(sum(p.count(of_pid(work.pid)) for p in profiles) > 0, "the load's are among them")
        wait_until(lambda: not orphans(), LATE, "no worker outlives its profd")
        print(f"killed at {faults.fired} of {faults.sites} sites in {lives} lives")


class WithWorker(Daemon):
    """Its worker is one in which calls fail."""

    def __init__(self, faults):
        super().__init__(CONFIG % "")
        environment = faults.environment()
        self.program = place(self.dir, *(f"{k}={environment[k]}" for k in
                                         ("LD_PRELOAD", "FAULT_CONTROL", "FAULT_PROGRAM")))

    def start(self):
        with open(self.log, "a", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [self.program, "--config", self.config, "--state-dir", self.state, "--socket", self.socket],
                stderr=log, stdout=log)
        wait_until(self.is_up, LATE, "profd starts")


def kill_worker(deadline, keep):
    # a gap, so that no request meets more than one kill: three are held against its file
    with Injector(WORKER, ALLOC, action=KILL, gap_ms=1000, keep=keep) as faults, WithWorker(faults) as d:
        quiet, n = 0, 0
        while not ended(deadline) and quiet < 20:
            before = faults.fired
            faults.allow(MANY)
            # the cache of names and tables would leave it little to do
            subprocess.run(["rm", "-rf", os.path.join(d.state, "names")], check=True)
            with Work([f"{PROGRAMS}/{('split31', 'distinct', 'storm')[n % 3]}", LIFE]):
                d.profctl("top", "--once", "-d", "1s", check_status=False)
            n += 1
            quiet = quiet + 1 if faults.fired == before else 0
            check(d.process.poll() is None, f"{faults.fired} kills: profd goes on")
        faults.allow(0)
        fired, status = faults.fired, d.status()
        check(fired == 0 or status["symbols"]["worker_restarts"] > 0, f"the worker was killed {fired} times, started "
              f"again {status['symbols']['worker_restarts']} times")
        check(status["symbols"]["bad_objects"] == 0, f"no file is blamed for it: {status['symbols']}")
        with Work([f"{PROGRAMS}/split31", LIFE]) as work:
            def named():
                p = d.collect(2)
                return p.count(lambda s: of_pid(work.pid)(s) and has("hot_three")(s)) > 0
            wait_until(named, LATE, "there are names when it is left alone")
        wait_until(lambda: accounted(d), LATE, "all samples are accounted for")
        check(d.stop() == 0, "it stops cleanly")
        for name in d.windows():
            with open(os.path.join(d.state, name), "rb") as f:
                Profile(f.read())
        for line in faults.newest():
            print(f"  killed at {line}")
        print(f"killed at {fired} of {faults.sites} sites of the worker")


if __name__ == "__main__":
    who, seconds = sys.argv[1], float(sys.argv[2])
    until, kept_in = time.monotonic() + seconds if seconds else None, sys.argv[3] if len(sys.argv) > 3 else None
    if who == "worker":
        kill_worker(until, kept_in)
    else:
        kill_daemon(KERNEL | THREAD | FILE | (OPEN | READ | WRITE if who == "calls" else 0), until, kept_in)
