"""Storms over one profd: does it keep to Cpu= and Memory=, does it say what it did, are its totals right?

    storms.py [--seconds N] [--csv FILE] [--rate HZ] [--cpu SHARE] [--memory BYTES] [STORM...]

Storms: processes (started as fast as the host can), objects (2,000 distinct ones, mapped and run), stacks (no two
equal), container (namespaces and a root of its own, in which processes are started). Each lasts for N seconds; then
it is calm for as long, and until the rate is as asked again. Beside them a program of known CPU time runs all along."""
import argparse
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
from harness import BUILD, LIFE, PROGRAMS, Daemon, Work, check, cpu_seconds, of_pid  # noqa: E402
from watch import CPUS, Watch  # noqa: E402

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--seconds", type=int, default=15)
parser.add_argument("--csv")
parser.add_argument("--rate", type=int, default=199)
parser.add_argument("--cpu", type=float, default=2.0, help="percent of all CPUs")
parser.add_argument("--memory", default="256M")
parser.add_argument("--objects", type=int, default=2000)
parser.add_argument("storms", nargs="*", default=["processes", "objects", "stacks", "container"])
args = parser.parse_args()

HERE = os.path.join(BUILD, "tests", "storms")
LOAD, NOTHING, OBJECT = (os.path.join(HERE, n) for n in ("storm_load", "storm_nothing", "libstorm_object.so"))
START = 62   # seconds: what a start may use is used, or gone
PROMISE = 10  # seconds over the limit at most
# What a look from outside cannot place better: a span of five seconds at either end may be over for a second of it.
SLACK = 2 * 5 + 1.5
WORK = tempfile.mkdtemp(prefix="profd-storm-")


def copies(directory, n):
    """n copies of an object that differ in their build ID, as n builds would."""
    with open(OBJECT, "rb") as f:
        data = f.read()
    note = re.search(rb"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0", data)
    for i in range(n):
        with open(os.path.join(directory, f"libstorm{i}.so"), "wb") as f:
            f.write(data[:note.end()] + i.to_bytes(20, "big") + data[note.end() + 20:])


def command(storm):
    if storm == "processes":
        return [LOAD, "processes", NOTHING]
    if storm == "stacks":
        return [LOAD, "stacks"]
    if storm == "objects":
        directory = os.path.join(WORK, "objects")
        if not os.path.isdir(directory):
            os.makedirs(directory)
            copies(directory, args.objects)
        return [LOAD, "objects", directory]
    if storm == "container":
        script = (f"mount -t tmpfs none {WORK}/root && cp {NOTHING} {LOAD}_static {WORK}/root && "
                  f"exec chroot {WORK}/root /storm_load_static processes /storm_nothing")
        os.makedirs(f"{WORK}/root", exist_ok=True)
        return ["unshare", "--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child", "sh", "-c", script]
    sys.exit(f"storms: there is no storm {storm}")


class Storm:
    def __init__(self, storm, n):
        self.outs = [tempfile.TemporaryFile(mode="w+", dir=WORK) for _ in range(n)]
        self.processes = [subprocess.Popen(command(storm), stdout=o) for o in self.outs]

    def check(self, storm):
        for p in self.processes:
            check(p.poll() is None, f"{storm}: the storm goes on")

    def stop(self):
        """How many were made a second."""
        made = 0
        for p, o in zip(self.processes, self.outs):
            p.kill()  # unshare does not listen to less
            p.wait()
            o.seek(0)
            numbers = [int(x) for x in o.read().split() if x.isdigit()]
            made += numbers[-1] if numbers else 0
        return made


def storm_once(d, watch, storm, known):
    """One storm, and the calm after it."""
    watch.phase = storm
    before, taken = len(watch.rows), time.monotonic()
    s = Storm(storm, CPUS if storm != "container" else 1)
    cpu, begin = cpu_seconds(known.pid), time.monotonic()
    profile = d.collect(args.seconds)
    used, collected = cpu_seconds(known.pid) - cpu, time.monotonic() - begin
    s.check(storm)
    made = s.stop()
    took = time.monotonic() - taken
    print(f"{storm}: {made} in {took:.0f} s, {made / took:.0f} a second")
    watch.phase = "calm"
    time.sleep(args.seconds)
    until = time.monotonic() + 300
    while d.status()["frequency_hz"] != args.rate and time.monotonic() < until:
        time.sleep(1)
    if d.status()["frequency_hz"] != args.rate:
        print(d.logged())
        check(False, f"{storm}: the rate is restored")
    rows = watch.rows[before:]
    lowest = min(r["reached_hz"] for r in rows)
    most = max(watch.memory(r) for r in rows)
    judge_totals(profile, known.pid, used, collected)
    print(f"{storm}: lowest rate {lowest} Hz, memory {most / 2**20:.1f} MiB, names waited {sum(r['names_wait'] for r in rows)} s, "
          f"following {sum(r['following_waits'] for r in rows)} s")
    return lowest


def judge_totals(profile, pid, used, took):
    """The weights of the samples of a process against its CPU time, whatever the rate was."""
    rows = [s for s in profile.samples if of_pid(pid)(s)]
    weight = sum(s.values["cpu"] for s in rows) / 1e9
    spread = math.sqrt(sum(s.values["cpu"] ** 2 / s.values["samples"] for s in rows)) / 1e9
    lost = profile.lost() * max(s.values["cpu"] / s.values["samples"] for s in rows) / 1e9
    # The process has one thread, and the two clocks of this test ran for longer than the collection.
    least = used - max(took - profile.duration_ns / 1e9, 0)
    margin = 0.03 * used + 3.9 * spread
    check(least - margin - lost <= weight <= used + margin,
          f"the weights of process {pid} are {weight:.2f} s, its CPU time says {least:.2f} to {used:.2f} (± {margin:.2f}, "
          f"lost at most {lost:.2f})")


def judge(d, watch, lowest, first, last):
    over = watch.spans_over(args.cpu / 100 * 1.05, since=START)
    for a, b, share in over:
        print(f"over {args.cpu} % from {a:.0f} to {b:.0f} s, {share * 100:.2f} % at most")
    check(all(b - a <= PROMISE + SLACK for a, b, _ in over), f"never over Cpu= for longer than {PROMISE} s")
    memory = last["cost"]["memory_limit_bytes"]
    most = max(watch.memory(r) for r in watch.rows)
    check(most <= memory, f"Memory= is kept to: {most / 2**20:.1f} of {memory / 2**20:.0f} MiB")
    if min(lowest) < args.rate:
        check("sampling at" in d.logged() and "lowered to keep to Cpu=" in d.logged(), "a lowered rate is in the log")
    lost = sum(x["samples"] for x in last["losses"] if x["cause"] != "missed")
    check(last["samples_taken"] == last["samples_delivered"] + lost + last["samples_waiting"],
          f"all samples are accounted for: {last['samples_taken']} taken, {lost} lost")
    for cause in last["losses"]:
        if cause["samples"]:
            print(f"lost: {cause['cause']}: {cause['samples']} of {last['samples_taken'] - first['samples_taken']}")


def main():
    config = (f"[Sampling]\nFrequency={args.rate}\nEvents=cycles\n[Limits]\nCpu={args.cpu}%\nMemory={args.memory}\n")
    with Daemon(config) as d, Work([f"{PROGRAMS}/split31", LIFE]) as known:
        watch = Watch(d, args.csv)
        watch.start()
        try:
            time.sleep(START)
            first = d.status()
            lowest = [storm_once(d, watch, storm, known) for storm in args.storms]
            last = d.status()
        finally:
            watch.stop()
            print(d.logged())
        judge(d, watch, lowest, first, last)


try:
    main()
finally:
    shutil.rmtree(WORK, ignore_errors=True)
