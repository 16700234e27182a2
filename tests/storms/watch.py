"""A profd under watch: what it uses over time, told from outside (/proc, the kernel's account of BPF maps)
save for what only it can tell (its programs' run time, rates, losses)."""
import csv
import glob
import os
import threading
import time

TICK = os.sysconf("SC_CLK_TCK")
CPUS = os.cpu_count()


def read(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            return f.read()
    except OSError:
        return ""


def cpu_of(pid):
    """Seconds of the process and of the children that it has waited for."""
    after = read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return sum(int(x) for x in after[11:15]) / TICK if after else 0


def pss_of(pid):
    for line in read(f"/proc/{pid}/smaps_rollup").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def map_bytes_of(pid):
    """Of all BPF maps that the process has open, each once: maps in maps included, by what the kernel says of them."""
    maps = {}
    for info in glob.glob(f"/proc/{pid}/fdinfo/*"):
        fields = dict(line.split(":\t", 1) for line in read(info).splitlines() if ":\t" in line)
        if "map_type" in fields and "memlock" in fields:
            maps[fields["map_id"]] = int(fields["memlock"])
    return sum(maps.values())


def host_cpu():
    """Seconds that all CPUs were busy, and that there were."""
    numbers = [int(x) / TICK for x in read("/proc/stat").split("\n", 1)[0].split()[1:9]]
    return sum(numbers) - numbers[3] - numbers[4], sum(numbers)


def workers_of(pid):
    return [int(p) for p in read(f"/proc/{pid}/task/{pid}/children").split()]


class Watch(threading.Thread):
    def __init__(self, daemon, path=None, every=1):
        super().__init__(daemon=True)
        self.profd, self.path, self.every = daemon, path, every
        self.rows, self.phase = [], "start"
        self.losses = {}
        self.start_time = time.monotonic()
        self.stopped = threading.Event()

    def look(self):
        pid = self.profd.process.pid
        status = self.profd.status()
        cost = status["cost"]
        workers = workers_of(pid)
        # Maps in maps (the shards of the unwind tables) are open nowhere: the daemon's own count has them.
        open_maps = map_bytes_of(pid)
        self.losses = {x["cause"]: x["samples"] for x in status["losses"]}
        busy, all_of_it = host_cpu()
        return {"seconds": round(time.monotonic() - self.start_time, 3), "phase": self.phase,
                "daemon_cpu": cpu_of(pid), "worker_cpu": sum(cpu_of(w) for w in workers),
                "kernel_cpu": cost["kernel_cpu_seconds"],
                "daemon_pss": pss_of(pid), "worker_pss": sum(pss_of(w) for w in workers),
                "map_bytes": max(open_maps, cost["map_bytes"]),
                "asked_hz": status["requested_hz"], "reached_hz": status["frequency_hz"],
                "cpus": CPUS, "cpu_limit": cost["cpu_limit"] * 100, "memory_limit": cost["memory_limit_bytes"],
                "names_wait": int(cost["names_wait"]), "following_waits": int(cost["following_waits"]),
                "host_busy": busy, "host_cpu": all_of_it,
                "exceeded": int(any("more than Cpu=" in n for n in status["notes"])),
                "taken": status["samples_taken"],
                **{"lost_" + k: v for k, v in self.losses.items()}}

    def run(self):
        while not self.stopped.wait(self.every - time.monotonic() % self.every):
            try:
                self.rows.append(self.look())
            except (OSError, ValueError, KeyError, AttributeError):
                if self.stopped.is_set():
                    return

    def stop(self):
        self.stopped.set()
        self.join()
        if self.path:
            with open(self.path, "w", newline="", encoding="utf-8") as f:
                w = csv.DictWriter(f, fieldnames=list(self.rows[-1]))
                w.writeheader()
                w.writerows(self.rows)

    def share(self, a, b):
        """Of all CPUs, between two rows."""
        used = sum(max(0.0, b[k] - a[k]) for k in ("daemon_cpu", "worker_cpu", "kernel_cpu"))
        return used / ((b["seconds"] - a["seconds"]) * CPUS)

    def spans_over(self, limit, width=5.0, since=0.0):
        """Stretches over the limit, in spans of `width` seconds that follow on each other: (begin, end, share)."""
        spans, previous = [], None
        for row in self.rows:
            if row["seconds"] < since:
                continue
            if previous is None:
                previous = row
            elif row["seconds"] - previous["seconds"] >= width:
                share = self.share(previous, row)
                if share > limit:
                    if spans and spans[-1][1] == previous["seconds"]:
                        spans[-1] = (spans[-1][0], row["seconds"], max(spans[-1][2], share))
                    else:
                        spans.append((previous["seconds"], row["seconds"], share))
                previous = row
        return spans

    def memory(self, row):
        return row["daemon_pss"] + row["worker_pss"] + row["map_bytes"]
