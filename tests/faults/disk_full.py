"""The file system of the store, its sums and the cache of names is full, from any byte on: profd goes on and says why
nothing is stored, counts what is lost, harms nothing that is stored, and stores again once there is room."""
import errno
import os
import signal
import subprocess
import sys

import injector  # noqa: F401  (finds the harness)
from limited import accounted
from harness import LIFE, PROGRAMS, Daemon, Profile, Work, check, skip, wait_until

CONFIG = ("[Sampling]\nFrequency=199\nEvents=cycles\n[Limits]\nCpu=50%\n"
          "[Store]\nWindow=5s\nMerge=10s 60s\nMergeAfter=5s 30s\n")
PINS = f"/sys/fs/bpf/profd-full-{os.getpid()}"
LATE = 300  # seconds, on a slow host
BALLAST = [".ballast", ".inodes"]
# Bytes left: none; one block; some of what a window, its sums and a merge take.
ROOM = [0, 4096, 12288, 65536]


def fill(d, room):
    """Leaves so many bytes, now."""
    with open(os.path.join(d.state, BALLAST[0]), "ab", buffering=0) as f:
        s = os.statvfs(d.state)
        free = s.f_bavail * s.f_frsize - room
        while free > 0:
            try:
                free -= f.write(bytes(min(free, 1 << 20)))
            except OSError as e:  # profd has written meanwhile
                check(e.errno == errno.ENOSPC, "the file system is full")
                break


def fill_inodes(d):
    directory = os.path.join(d.state, BALLAST[1])
    os.makedirs(directory, exist_ok=True)
    try:
        for i in range(len(os.listdir(directory)), 1 << 20):
            with open(os.path.join(directory, str(i)), "wb"):
                pass
    except OSError as e:
        assert e.errno == errno.ENOSPC


def make_room(d):
    subprocess.run(["rm", "-rf", *(os.path.join(d.state, b) for b in BALLAST)], check=True)


def lost(status):
    return sum(l["samples"] for l in status["losses"] if l["cause"] == "store")


def check_stored(d):
    """Each file is whole; how many samples they hold."""
    total = 0
    for name in d.windows():
        try:
            with open(os.path.join(d.state, name), "rb") as f:
                total += Profile(f.read()).count()
        except FileNotFoundError:
            pass  # merged meanwhile
    if d.process and d.status()["store"]["bad_files"]:
        print(d.profctl("list").stdout)
        check(False, "what is stored is whole")
    return total


def is_said(d):
    error = d.status()["store"]["error"]
    return error and os.strerror(errno.ENOSPC) in error and "make room" in error


def full(d, what, fill_up):
    before, n = lost(d.status()), len(d.windows())

    def lose():
        fill_up()  # again and again: the cache of names gives way to windows
        return lost(d.status()) > before

    wait_until(lose, LATE, f"{what}: lost samples are counted")
    check(is_said(d), f"{what}: the status says why: {d.status()['store']['error']}")
    check("make room" in d.profctl("status").stdout, f"{what}: profctl says what to do")
    check_stored(d)
    make_room(d)
    have = set(d.windows())
    wait_until(lambda: set(d.windows()) - have and not d.status()["store"]["error"], LATE,
               f"{what}: with room again, windows are stored")
    wait_until(lambda: accounted(d), LATE, f"{what}: all samples are accounted for")
    wait_until(lambda: not [f for f in os.listdir(d.state) if f.endswith(".tmp")], LATE, f"{what}: nothing half written")
    print(f"ok: {what}: {lost(d.status()) - before} samples lost, {n} windows before, {len(d.windows())} now")


def main():
    if subprocess.run(["mountpoint", "-q", "/sys/fs/bpf"], check=False).returncode != 0:
        skip("no BPF file system is mounted on /sys/fs/bpf")
    with Daemon(CONFIG) as d, Work([f"{PROGRAMS}/split31", LIFE]):
        d.stop()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m,nr_inodes=500", "tmpfs", d.state],
                          check=False).returncode != 0:
            skip("no file system can be mounted here")
        try:
            d.start()
            wait_until(lambda: len(d.windows()) >= 2, LATE, "windows are stored")
            for room in ROOM:
                full(d, f"{room} bytes left", lambda room=room: fill(d, room))
            full(d, "no inode left", lambda: fill_inodes(d))
            status = d.status()
            check(d.stop(signal.SIGTERM) == 0, "it stops cleanly")
            stored = check_stored(d)
            check(stored + lost(status) >= 0.99 * status["samples_taken"],
                  f"{stored} samples stored and {lost(status)} lost of {status['samples_taken']} taken")

            # started, killed and stopped with no room at all, not even for what the next one would take up
            with open(d.config, "w", encoding="utf-8") as f:
                f.write(CONFIG.replace("[Limits]", f"Pin={PINS}\n[Limits]"))
            for how in (signal.SIGKILL, signal.SIGTERM):
                fill(d, 0)
                d.start()
                wait_until(lambda: fill(d, 0) or is_said(d), LATE, "a start without room says so")
                wait_until(lambda: lost(d.status()) > 0, LATE, "lost samples are counted")
                status = d.stop(how)
            check(status == 0, "it stops cleanly without room")
            check("cannot keep state" in d.logged() and "sampling goes on in" not in d.logged(),
                  "it says that nothing is kept")
            check(check_stored(d) >= stored, "what was stored before is still there")
            make_room(d)
            n = len(d.windows())
            d.start()
            wait_until(lambda: len(d.windows()) > n, LATE, "a start with room again stores")
        finally:
            d.stop()
            subprocess.run(["umount", "--lazy", d.state], check=True)
            subprocess.run(["rm", "-rf", PINS], check=False)


if __name__ == "__main__":
    sys.exit(main())
