"""No sample is lost over kill -9, SIGTERM and upgrades: what the next daemon makes of the maps, events and
journals that systemd's descriptor store, or a directory of pins, kept for it.

The store is played by this test, as sd_notify(3) and sd_listen_fds(3) describe it; tests/systemd has the real
one. The load is known: programs that work all the time, each on a CPU of its own."""
import math
import os
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "faults"))
from harness import LIFE, PROFD, PROGRAMS, Work, check, has, of_pid, skip, wait_until  # noqa: E402
from injector import FILE, KERNEL, KILL, OPEN, WRITE, Injector  # noqa: E402
from kept import KeptDaemon, cpu_ns  # noqa: E402

RATE = 499
SECONDS = int(os.environ.get("PROFD_TAKEOVER_SECONDS", "20"))
EVERY = 3
CONFIG = f"[Sampling]\nFrequency={RATE}\nEvents=cycles\n%s[Store]\nWindow=8s\n[Limits]\nCpu=50%%\n"
OTHER_VERSION = os.path.join(os.environ["PROFD_BUILD"], "tests", "e2e", "profd_other_abi")


def kept(pins=None):
    return KeptDaemon(CONFIG % (f"Pin={pins}\n" if pins else ""), pins)


def compare(profiles, work, used_ns, seconds, what):
    """The samples of each program against its CPU time: within half a percent, ticks that never came (they
    are counted) and chance aside. Chance: a tick falls on the program or on who has its CPU in between; with
    the CPU to itself there is none."""
    missed = sum(p.ledger("lost.missed") for p in profiles)
    lost = sum(p.lost() for p in profiles) - missed
    for w, ns in zip(work, used_ns):
        expected = ns / 1e9 * RATE
        got = sum(p.count(of_pid(w.pid)) for p in profiles)
        share = min(1, ns / 1e9 / seconds)
        chance = 3.89 * math.sqrt(RATE * seconds * share * (1 - share))
        print(f"   {what}: {got} samples of {w.pid}, its CPU time says {expected:.1f} ({(got / expected - 1) * 100:+.2f} %, "
              f"{share:.1%} of a CPU); lost {lost}, missed {missed}")
        check(-0.005 * expected - chance - 3 <= got + lost + missed - expected and
              got - expected <= 0.005 * expected + chance + 3,
              f"{what}: samples of the load are there")
    total, taken = sum(p.count() for p in profiles), sum(p.ledger("samples.taken") for p in profiles)
    print(f"   {what}: {total} delivered + {lost} lost of {taken} taken, in {len(profiles)} windows")
    check(abs(total + lost - taken) <= 0.005 * taken + 3, f"{what}: delivered and lost are what the kernel half took")


def on_cpu(cpu):
    return [f"taskset", "-c", str(cpu), f"{PROGRAMS}/split31", LIFE]


def two_loads():
    cpus = sorted(os.sched_getaffinity(0))
    return Work(on_cpu(cpus[0])), Work(on_cpu(cpus[-1]))


def end(work):
    """Ends programs; the CPU time they used in all their life."""
    used = []
    for w in work:
        os.kill(w.pid, signal.SIGSTOP)
        wait_until(lambda w=w: open(f"/proc/{w.pid}/stat", encoding="utf-8").read().rsplit(")", 1)[1].split()[0] == "T",
                   60, "the load stops")
        used.append(cpu_ns(w.pid))
    return used


def kills(d, name):
    """Killed every few seconds, now and then ended in good order."""
    with d:
        begin = time.monotonic()
        one, other = two_loads()
        with one, other:
            work, n = [one, other], 0
            while time.monotonic() - begin < SECONDS:
                time.sleep(EVERY)
                if n % 5 == 3:
                    check(d.stop(signal.SIGTERM) == 0, f"{name}: ended in good order")
                else:
                    d.kill()
                d.start()
                n += 1
            used, seconds = end(work), time.monotonic() - begin
        check(d.stop(signal.SIGTERM) == 0, f"{name}: the last one ends in good order")
        stored = d.stored()
        compare(stored, work, used, seconds, f"{name}, {n} times")
        pids = [w.pid for w in work]
        named = sum(p.count(lambda s: s.labels.get("pid") in pids and has("hot_three")(s) and has("_start")(s))
                    for p in stored)
        total = sum(p.count(of_pid(w.pid)) for w in work for p in stored)
        check(named > 0.4 * total, f"{name}: stacks are whole and named ({named} of {total} are in hot_three)")


def answers(d):
    try:
        return d.get("/api/v1/status", timeout=20)[0] == 200
    except OSError:
        return False


def killed_midway(d, kinds, name):
    """Each new daemon is killed on its way up, in place of another call each time, until one has none left to be
    killed in place of: what the first one had is there or counted, however far those after it came."""
    with d, Injector(PROFD, kinds, action=KILL) as faults:
        one, other = two_loads()
        with one, other:
            time.sleep(3)
            d.kill()
            n = 0
            while True:
                fired = faults.fired
                faults.allow(1)
                d.launch(faults.environment())
                wait_until(lambda: d.process.poll() is not None or answers(d), 120, "profd starts or is killed")
                faults.allow(0)
                if faults.fired == fired:
                    break
                check(d.process.wait(120) == -signal.SIGKILL, f"killed: {' '.join(faults.newest())}")
                d.process, n = None, n + 1
            time.sleep(3)
            used = end([one, other])
        check(d.stop(signal.SIGTERM) == 0, f"{name}: the last one ends in good order")
        check(n > 20, f"{name}: killed at {n} places")
        stored = d.stored()
        delivered, taken = sum(p.count() for p in stored), sum(p.ledger("samples.taken") for p in stored)
        missed = sum(p.ledger("lost.missed") for p in stored)
        lost = sum(p.lost() for p in stored) - missed
        print(f"   {name}, killed at {n} places: {delivered} delivered + {lost} lost of {taken} taken")
        check(abs(delivered + lost - taken) <= 0.005 * taken + 3, f"{name}: delivered and lost are what was taken")
        got = sum(p.count(of_pid(w.pid)) for p in stored for w in (one, other))
        expected = sum(used) / 1e9 * RATE
        check(got + lost + missed >= 0.995 * expected - 3.89 * math.sqrt(expected),
              f"{name}: delivered {got} of the load and lost {lost}, its CPU time says {expected:.0f}")


def upgrade(d, names):
    """From a version whose maps cannot be read: lost, and counted."""
    with d:
        begin = time.monotonic()
        d.kill()
        d.binary = OTHER_VERSION
        d.start()
        one, other = two_loads()
        with one, other:
            work = [one, other]
            time.sleep(6)
            d.kill()
            d.binary = PROFD
            d.start()
            lost = {loss["cause"]: loss["samples"] for loss in d.status()["losses"]}["upgrade"]
            metric = f'profd_samples_lost_total{{cause="upgrade"}} {lost}'
            check(lost > 0 and metric in d.get("/metrics")[1].decode(), f"{lost} samples of another version are counted")
            check("cannot be read" in d.logged(), "and said")
            check(not any(name.startswith("profd-999-") for name in names(d)), "nothing of it is kept")
            time.sleep(2)
            used, seconds = end(work), time.monotonic() - begin
        d.stop(signal.SIGTERM)
        stored = d.stored()
        check(lost in [p.ledger("lost.upgrade") for p in stored], "in the ledger too")
        missed = sum(p.ledger("lost.missed") for p in stored)
        got = sum(p.count(of_pid(w.pid)) for p in stored for w in work)
        expected = sum(used) / 1e9 * RATE
        check(got + lost + missed >= 0.995 * expected - 3.89 * math.sqrt(expected),
              f"delivered {got} and lost {lost}, CPU time says {expected:.0f}")


def full_journal():
    """More different samples in a window than a journal holds: the rest is lost by a kill, and counted."""
    config = "[Sampling]\nFrequency=2000\nEvents=cycles\n[Store]\nWindow=5min\n[Limits]\nCpu=100%\nMemory=64M\n"
    with KeptDaemon(config) as d:
        def counted():
            with Work([f"{PROGRAMS}/storm", LIFE, "400"]):
                time.sleep(12)
                d.kill()
                d.start()
            s = d.status()
            losses = {loss["cause"]: loss["samples"] for loss in s["losses"]}
            told = s["samples_delivered"] + s["samples_waiting"] + sum(losses.values()) - losses["missed"]
            check(abs(told - s["samples_taken"]) <= 0.005 * told, f"taken {s['samples_taken']} = delivered + lost + waiting {told}")
            return losses["restart"]

        lost = wait_until(counted, 300, "a journal is full")
        check(f'profd_samples_lost_total{{cause="restart"}} {lost}' in d.get("/metrics")[1].decode(),
              f"{lost} samples that found no room in the journal are counted")
        d.stop(signal.SIGTERM)
        stored = d.stored()
        check(sum(p.ledger("lost.restart") for p in stored) >= lost, "in the ledger too")
        total, taken = sum(p.count() for p in stored), sum(p.ledger("samples.taken") for p in stored)
        gone = sum(p.lost() - p.ledger("lost.missed") for p in stored)
        check(abs(total + gone - taken) <= 0.005 * taken + 3, f"delivered {total} and lost {gone} of {taken} taken")


def refused():
    """Pins in a directory that others can write to are nobody's."""
    with tempfile.TemporaryDirectory(prefix="profd-pins-", dir="/sys/fs/bpf") as pins:
        for owner, mode, directory, why in ((0, 0o755, pins, "mode 0700"), (64001, 0o700, pins, "must be root's"),
                                            (0, 0o700, "/tmp", "BPF file system")):
            os.chmod(pins, mode)
            os.chown(pins, owner, -1)
            with tempfile.TemporaryDirectory() as state:
                conf = os.path.join(state, "conf")
                with open(conf, "w", encoding="utf-8") as f:
                    f.write(f"[Sampling]\nPin={directory}\n")
                r = subprocess.run([PROFD, "--config", conf, "--state-dir", state, "--socket", f"{state}/sock"],
                                   capture_output=True, text=True, check=False, timeout=120)
                check(r.returncode == 1 and why in r.stderr, f"refused: {r.stderr.strip()}")


def locked():
    """Pins of a daemon that runs are not taken from it."""
    pins = f"/sys/fs/bpf/profd-locked-{os.getpid()}"
    with kept(pins) as d, tempfile.TemporaryDirectory() as state:
        r = subprocess.run([PROFD, "--config", d.config, "--state-dir", state, "--socket", f"{state}/sock"],
                           capture_output=True, text=True, check=False, timeout=120)
        check(r.returncode == 1 and "another profd runs" in r.stderr, f"refused: {r.stderr.strip()}")
        check(d.is_up(), "the one that runs goes on")


if subprocess.run(["mountpoint", "-q", "/sys/fs/bpf"], check=False).returncode != 0:
    skip("no BPF file system is mounted on /sys/fs/bpf")
refused()
locked()
kills(kept(), "in the store")
kills(kept(f"/sys/fs/bpf/profd-test-{os.getpid()}"), "by pins")
killed_midway(kept(), KERNEL | OPEN, "in the store")
killed_midway(kept(f"/sys/fs/bpf/profd-killed-{os.getpid()}"), KERNEL | WRITE | FILE, "by pins")
upgrade(kept(), lambda d: d.fdstore.names())
upgrade(kept(f"/sys/fs/bpf/profd-upgrade-{os.getpid()}"), lambda d: os.listdir(d.pins))
full_journal()
