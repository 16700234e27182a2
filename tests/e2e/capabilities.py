"""Each capability of the unit is there for something that is lost without it: profd runs as nobody with all of them
but one, and what should be lost is looked for. (CAP_SYS_ADMIN is for Debian's kernels at perf_event_paranoid=3 and
tested there, in tests/kernels.)"""
import os
import shutil
import subprocess
import tempfile
from contextlib import ExitStack

import harness
from harness import LIFE, PROFD, PROGRAMS, Daemon, Work, check, skip, wait_until

CAPS = ["bpf", "perfmon", "sys_ptrace", "syslog", "dac_read_search", "checkpoint_restore"]
ALL = {"samples", "names in a private directory", "names of a deleted file", "names of the kernel"}

if os.geteuid() != 0:
    skip("needs root: capabilities")
with open("/proc/sys/kernel/perf_event_paranoid", encoding="utf-8") as f:
    if int(f.read()) > 2:
        skip("kernel.perf_event_paranoid is above 2: CAP_PERFMON alone is refused here")


class Confined(Daemon):
    def __init__(self, caps):
        super().__init__("[Sampling]\nFrequency=199\nEvents=cycles\n")
        self.caps = caps
        for d in (self.dir, self.state):
            os.chown(d, 65534, 65534)
        # the programs and the log must be within reach of nobody
        for path in (PROFD, os.path.join(harness.BUILD, "symbolizer", "profd-worker")):
            shutil.copy(path, self.dir)

    def try_start(self):
        caps = ",".join(f"+{c}" for c in self.caps)
        with open(self.log, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", f"--bounding-set=-all,{caps}",
                 f"--inh-caps=-all,{caps}", f"--ambient-caps=-all,{caps}", os.path.join(self.dir, "profd"), "--config",
                 self.config, "--state-dir", self.state, "--socket", self.socket], stderr=log, stdout=log, cwd="/")

        def up_or_ended():
            if self.process.poll() is not None:
                return "ended"
            try:
                return self.get("/api/v1/status", timeout=5)[0] == 200 and "up"
            except OSError:
                return None

        return wait_until(up_or_ended, 120, "profd starts or refuses to") == "up"

    start = try_start


def observe(caps):
    """What a profd with these capabilities can do."""
    seen = set()
    with Confined(caps) as d:
        if d.process.poll() is not None:
            check("CAP_" in d.logged(), f"it says what it lacks: {d.logged().strip().splitlines()[0][:120]}")
            d.process = None
            return seen
        seen.add("samples")
        for _ in range(20 if caps == CAPS else 2):  # what is not lost comes at once, or later on a busy host
            p = d.collect(3)
            if any(n == "hot_three" for s in p.samples if s.labels["pid"] == hidden.pid for n in s.stack):
                seen.add("names in a private directory")
            if any(n == "hot_three" for s in p.samples if s.labels["pid"] == deleted.pid for n in s.stack):
                seen.add("names of a deleted file")
            if d.status()["symbols"]["kernel_names"]:
                seen.add("names of the kernel")
            if seen == ALL:
                break
        d.stop()
    return seen


with tempfile.TemporaryDirectory(prefix="profd-private-") as private, ExitStack() as works:  # mode 0700
    shutil.copy(f"{PROGRAMS}/split31", f"{private}/hidden")
    shutil.copy(f"{PROGRAMS}/split31", f"{private}/deleted")
    hidden = works.enter_context(Work([f"{private}/hidden", LIFE]))
    deleted = works.enter_context(Work([f"{private}/deleted", LIFE]))
    os.unlink(f"{private}/deleted")

    whole = observe(CAPS)
    check(whole == ALL, f"with all of them nothing is lost: {sorted(whole)}")
    for cap in CAPS:
        without = observe([c for c in CAPS if c != cap])
        check(without != whole, f"without CAP_{cap.upper()} is lost: {sorted(whole - without)}")
