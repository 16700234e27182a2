"""SIGTERM loses nothing, SIGKILL at most the current window where nothing is kept (see takeover.py); stored files stay as they are; go tool pprof reads
them and agrees with profctl."""
import hashlib
import os
import shutil
import signal

from harness import LIFE, PROGRAMS, Daemon, Profile, Work, check, go_top, has, of_pid, wait_until

CONFIG = "[Sampling]\nFrequency=199\nEvents=cycles\n[Store]\nWindow=5s\n[Limits]\nCpu=50%\n"


def hashes(d):
    out = {}
    for name in d.windows():
        with open(os.path.join(d.state, name), "rb") as f:
            out[name] = hashlib.sha256(f.read()).hexdigest()
    return out


def read(d, name):
    with open(os.path.join(d.state, name), "rb") as f:
        return Profile(f.read())


with Daemon(CONFIG) as d, Work([f"{PROGRAMS}/split31", LIFE]) as work:
    wait_until(lambda: len(d.windows()) >= 2, 120, "two windows are stored")

    # SIGTERM: the current window is written too
    before = len(d.windows())
    taken = d.status()["samples_taken"]
    check(d.stop(signal.SIGTERM) == 0, "SIGTERM: exit status 0")
    stored = [read(d, n) for n in d.windows()]
    total = sum(p.count() for p in stored)
    check(len(stored) > before, "the last window was written")
    check(total >= 0.99 * taken, f"all samples taken are stored: {total} of {taken} and more")
    known = hashes(d)

    # SIGKILL, again and again, at any moment of a write: what is stored stays
    for _ in range(5):
        d.start()
        n = len(d.windows())
        wait_until(lambda n=n: len(d.windows()) > n, 120, "a window is stored after a restart")
        d.stop(signal.SIGKILL)
        now = hashes(d)
        check(all(now.get(k) == v for k, v in known.items()), f"{len(known)} stored windows are untouched")
        for name in now:
            read(d, name)
        known = now
    work.stop()

    # an independent reader agrees on every function
    if not shutil.which("go"):
        print("skipped in part: no go tool to compare with (Debian: golang-go)")
    else:
        name = max(d.windows(), key=lambda n: os.path.getsize(os.path.join(d.state, n)))
        path = os.path.join(d.state, name)
        theirs = go_top(path, d.dir)
        p = read(d, name)
        mine = {}
        for s in p.samples:
            for fn in set(s.stack):
                mine[fn] = mine.get(fn, 0) + s.values["samples"]
        check(len(theirs) > 5, f"go tool pprof reads a stored window: {len(theirs)} functions")
        hot = [f for f in ("hot_three", "hot_one", "main") if f in mine]
        check(hot and all(theirs[f][1] == mine[f] for f in hot), f"and counts the same: {[mine[f] for f in hot]}")
