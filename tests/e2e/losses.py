"""Each counter of what was lost, or cut, moves when its cause is made, and says the same in the status, in /metrics and
in the ledgers of the stored windows; what was taken is delivered, lost or waiting, whatever the cause."""
import errno
import http.client
import os
import resource
import shutil
import signal
import subprocess
import sys
import time

from harness import LIFE, PROGRAMS, Daemon, Profile, Work, check, wait_until

CUT = {"hurried": "samples_deferred_hurried", "not_deferred": "samples_not_deferred"}
NOT_TAKEN = {"missed"}  # ticks that never became samples


def config(frequency, events="cpu-clock", memory="64M", window="5s"):
    return (f"[Sampling]\nFrequency={frequency}\nEvents={events}\n[Store]\nWindow={window}\n"
            f"[Limits]\nCpu=100%\nMemory={memory}\n")


def metrics(d):
    out = {}
    for line in d.get("/metrics")[1].decode().splitlines():
        if not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            out[name] = float(value)
    return out


def losses_of(status):
    return {loss["cause"]: loss["samples"] for loss in status["losses"]}


class Held:
    """A daemon that does not get to run, and does not drain: by the hand of the test, as on a host that hangs."""

    def __init__(self, pid):
        self.pid = pid

    def __enter__(self):
        os.kill(self.pid, signal.SIGSTOP)

    def __exit__(self, *_):
        os.kill(self.pid, signal.SIGCONT)


def lost(d, cause):
    return losses_of(d.status()).get(cause, 0)


def check_places(d, moved, windows_lost=False):
    """The three places agree; losses go on meanwhile, so bounds. A window that was lost took its ledger with it."""
    before, m, after = d.status(), metrics(d), d.status()
    for cause, n in losses_of(before).items():
        value = m[f'profd_samples_lost_total{{cause="{cause}"}}']
        check(n <= value <= losses_of(after)[cause], f"/metrics has {value:.0f} lost by {cause}, as the status")
    for cause in moved:
        check(losses_of(after)[cause] > 0, f"{cause} moved: {losses_of(after)[cause]}")
    told = before["samples_delivered"] + before["samples_waiting"] + sum(
        n for cause, n in losses_of(before).items() if cause not in NOT_TAKEN)
    check(told == before["samples_taken"],
          f"taken {before['samples_taken']} = delivered + lost + waiting {told}")
    d.stop()
    windows = []
    for name in d.windows():
        with open(os.path.join(d.state, name), "rb") as f:
            windows.append(Profile(f.read()))
    for cause, n in losses_of(after).items():
        if windows_lost and cause not in moved:
            continue
        ledger = sum(p.ledger(f"lost.{cause}") for p in windows)
        check(ledger >= n, f"the ledgers have {ledger} lost by {cause}, the status had {n} before the end")
    return windows


def hold_until_lost(d, seconds, cause):
    """Nobody drains for so long, until something is lost by the cause; then the places agree on it."""
    def hold():
        with Held(d.process.pid):
            time.sleep(seconds)
        return d.is_up() and lost(d, cause) > 0

    wait_until(hold, 300, cause)
    check_places(d, [cause])


def full_rows():
    """Rows for a few seconds at 20 Hz, and hundreds of processes while nobody drains."""
    with Daemon(config(20, memory="32M")) as d, Work([f"{PROGRAMS}/storm", LIFE, "400", "5"]), \
            Work([f"{PROGRAMS}/storm", LIFE, "400", "5"]):
        wait_until(lambda: d.status()["samples_delivered"] > 20, 120, "samples come")
        hold_until_lost(d, 60, "counts_full")


def full_stacks():
    """A new stack in each sample while nobody drains."""
    with Daemon(config(2000)) as d, Work([f"{PROGRAMS}/distinct", LIFE]), Work([f"{PROGRAMS}/distinct", LIFE]):
        wait_until(lambda: d.status()["samples_delivered"] > 1000, 120, "samples come")
        hold_until_lost(d, 10, "stacks_full")


def cut_stacks():
    """New programs while nobody drains fill the ring of deferred samples, and nobody reads the kernel's records; and
    while the worker stands still no unwind table comes."""
    with Daemon(config(999)) as d:
        programs = []
        for i in range(4):
            path = os.path.join(d.dir, f"work{i}")
            shutil.copy(f"{PROGRAMS}/deep_gcc", path)
            programs.append(path)

        def hold():
            with Held(d.process.pid), Work([f"{PROGRAMS}/storm", LIFE, "400", "5"]):
                time.sleep(8)
            d.is_up()
            return metrics(d)["profd_samples_not_deferred_total"] > 0

        wait_until(hold, 300, "not_deferred")
        print("ok: not_deferred moved")

        def stop_workers():
            found = subprocess.run(["pgrep", "-P", str(d.process.pid), "profd-worker"], capture_output=True, text=True,
                                   check=False).stdout.split()
            for pid in found:
                try:
                    os.kill(int(pid), signal.SIGSTOP)
                except ProcessLookupError:
                    pass

        # A copy is another object, whose table has to be made.
        def hurry():
            with Work([programs[0], LIFE]):
                until = time.monotonic() + 5
                while time.monotonic() < until:
                    stop_workers()
                    time.sleep(0.02)
            os.utime(programs[0])
            return metrics(d)["profd_samples_deferred_hurried_total"] > 0

        wait_until(hurry, 300, "hurried")
        print("ok: hurried moved")
        m, status = metrics(d), d.status()
        windows = check_places(d, [])
        for ledger, name in CUT.items():
            n = sum(p.ledger(f"samples.{ledger}") for p in windows)
            check(n >= m[f"profd_{name}_total"], f"the ledgers have {n} {ledger}, /metrics {m[f'profd_{name}_total']:.0f}")
        n = sum(p.ledger("records.lost") for p in windows)
        check(n >= status["tracking"]["records_lost"], f"and {n} records lost, the status {status['tracking']['records_lost']}")


def missed_ticks():
    """A tick that comes while a program of another event runs is left out by the kernel (bpf_prog_active)."""
    with Daemon(config(9000, "cpu-clock page-faults", "128M")) as d, Work([f"{PROGRAMS}/syscalls", LIFE]), \
            Work([f"{PROGRAMS}/syscalls", LIFE]):
        wait_until(lambda: lost(d, "missed") > 100, 300, "missed")
        check_places(d, ["missed"])


def fill(path):
    with open(path, "wb", buffering=0) as f:
        try:
            while f.write(bytes(4096)):
                pass
        except OSError as e:
            check(e.errno == errno.ENOSPC, "the file system is full")


def full_store():
    """The file system of the store has no room."""
    with Daemon(config(199)) as d:
        d.stop()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", d.state], check=True)
        try:
            fill(os.path.join(d.state, "ballast"))
            d.start()
            with Work([f"{PROGRAMS}/split31", LIFE]):
                wait_until(lambda: lost(d, "store") > 0, 300, "store")
                os.remove(os.path.join(d.state, "ballast"))
                wait_until(d.windows, 300, "a window is stored when there is room again")
                check_places(d, ["store"], windows_lost=True)
        finally:
            d.stop()
            subprocess.run(["umount", "--lazy", d.state], check=True)


def has_lost(d, cause):
    """Asked of a daemon without memory, which may have none for an answer."""
    try:
        return lost(d, cause) > 0
    except (OSError, ValueError, http.client.HTTPException):
        check(d.process.poll() is None, "profd goes on without memory for an answer")
        return False


def no_memory():
    """The kernel gives the daemon no more memory: for rows, nor for samples that wait for a table."""
    with Daemon(config(2000, memory="256M", window="5min")) as d, Work([f"{PROGRAMS}/distinct", LIFE]):
        wait_until(lambda: d.status()["samples_delivered"] > 1000, 120, "samples come")
        with open(f"/proc/{d.process.pid}/status", encoding="utf-8") as f:
            data = next(int(line.split()[1]) for line in f if line.startswith("VmData")) * 1024
        old = resource.prlimit(d.process.pid, resource.RLIMIT_DATA, (data, resource.RLIM_INFINITY))
        wait_until(lambda: has_lost(d, "no_memory"), 300, "no_memory")
        with Work([f"{PROGRAMS}/storm", LIFE, "400", "5"]):
            wait_until(lambda: has_lost(d, "deferred"), 300, "deferred")
        resource.prlimit(d.process.pid, resource.RLIMIT_DATA, old)
        check_places(d, ["no_memory", "deferred"])


CAUSES = {f.__name__: f for f in (full_rows, full_stacks, cut_stacks, missed_ticks, full_store, no_memory)}
for name in sys.argv[1:] or CAUSES:
    print(f"-- {name}")
    CAUSES[name]()
