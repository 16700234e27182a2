"""What a process holds, over time: memory, descriptors, threads, and BPF objects by their descriptors."""
import os
import statistics
import threading
import time

KIB, MIB = 1 << 10, 1 << 20
BPF = ("bpf-map", "bpf-prog", "bpf_link", "[perf_event]")


def children(pid):
    found = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", encoding="utf-8") as f:
                found += [int(p) for p in f.read().split()]
    except OSError:
        pass
    return found


def held(pid):
    """None: it has ended meanwhile."""
    out = {"rss": 0, "pss": 0, "bpf": 0}
    try:
        with open(f"/proc/{pid}/smaps_rollup", encoding="utf-8") as f:
            for line in f:
                for key in ("Rss", "Pss"):
                    if line.startswith(key + ":"):
                        out[key.lower()] = int(line.split()[1]) * KIB
        fds = os.listdir(f"/proc/{pid}/fd")
        out["fds"], out["threads"] = len(fds), len(os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return None
    for fd in fds:
        try:
            out["bpf"] += any(kind in os.readlink(f"/proc/{pid}/fd/{fd}") for kind in BPF)
        except OSError:
            pass
    return out


# How much more at the end is still steady: (times, and so much on top). Descriptors go up and down with the programs
# of the host: an object of the past keeps one for minutes, and some hundred of them until it is worth a new book.
MARGINS = {"rss": (1.15, 16 * MIB), "pss": (1.15, 16 * MIB), "fds": (1.5, 768), "threads": (1, 4), "bpf": (1, 2)}


class Figures(threading.Thread):
    """Of the daemon, and of its largest worker."""

    def __init__(self, pid, seconds, csv=None):
        super().__init__(daemon=True)
        self.pid, self.seconds, self.begin = pid, seconds, time.monotonic()
        self.rows, self.over = [], threading.Event()
        self.csv = open(csv, "w", encoding="utf-8") if csv else None

    def run(self):
        while not self.over.wait(max(1, self.seconds / 720)):
            workers = [h for h in map(held, children(self.pid)) if h]
            for who, h in (("daemon", held(self.pid)), ("worker", max(workers, key=lambda w: w["rss"], default=None))):
                if h:
                    self.rows.append({"t": time.monotonic() - self.begin, "who": who, **h})
                    if self.csv:
                        print(",".join(str(v) for v in self.rows[-1].values()), file=self.csv, flush=True)

    def stop(self):
        self.over.set()
        self.join()

    def median(self, who, what, begin, end):
        values = [r[what] for r in self.rows
                  if r["who"] == who and begin * self.seconds <= r["t"] <= end * self.seconds]
        return statistics.median(values) if values else None

    def judge(self, without=()):
        """What grew, but for what is named: the second half, and its end, against the end of the first quarter."""
        grown = []
        for who in ("daemon", "worker"):
            for what, (times, more) in MARGINS.items():
                first, half, last = (self.median(who, what, *span) for span in ((.15, .25), (.5, 1), (.9, 1)))
                if first is None or half is None:
                    continue
                last = half if last is None else last
                unit = MIB if what in ("rss", "pss") else 1
                line = (f"{who}: {what} {first / unit:.1f} at the end of the first quarter, {half / unit:.1f} in the "
                        f"second half, {last / unit:.1f} at its end")
                print(line, flush=True)
                if max(half, last) > first * times + more and what not in without:
                    grown.append(line)
        return grown
