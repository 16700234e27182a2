"""/metrics as Prometheus reads it: promtool finds nothing wrong, and the numbers are those of the status."""
import re
import shutil
import subprocess

from harness import Daemon, check, skip

if not shutil.which("promtool"):
    skip("needs promtool (Debian: prometheus)")

with Daemon("[Sampling]\nFrequency=99\nEvents=cycles\n[Store]\nWindow=5s\n[Limits]\nCpu=100%\n") as d:
    d.collect(2)
    before = d.status()
    status, body = d.get("/metrics")
    after = d.status()
    check(status == 200, "/metrics is answered")
    text = body.decode()
    r = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    check(r.returncode == 0 and not r.stdout + r.stderr, f"promtool check metrics: {r.stdout}{r.stderr}")
    values = dict(re.findall(r"^(profd_\w+(?:\{.*?\})?) (\S+)$", text, re.M))

    def lies_between(metric, low, high):
        check(low <= float(values[metric]) <= high, f"{metric} {values[metric]} is in {low}..{high}")

    lies_between("profd_samples_taken_total", before["samples_taken"], after["samples_taken"])
    lies_between("profd_samples_delivered_total", before["samples_delivered"], after["samples_delivered"])
    lies_between("profd_frequency_hertz", 99, 99)
    for loss in after["losses"]:
        metric = f'profd_samples_lost_total{{cause="{loss["cause"]}"}}'
        check(float(values[metric]) <= loss["samples"], f"{metric}")
    cpu = sum(float(values[f'profd_cpu_seconds_total{{part="{p}"}}']) for p in ("daemon", "worker", "kernel"))
    check(0 < cpu < 60, f"profd says what it costs: {cpu:.3f} s")
