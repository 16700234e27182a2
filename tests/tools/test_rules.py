"""The alerts for Prometheus: sound, of metrics that there are, each fires when it should and only then."""
import os
import re
import shutil
import subprocess
import sys

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
RULES = os.path.join(TOP, "packaging", "prometheus")


def read(*path):
    with open(os.path.join(TOP, *path), encoding="utf-8") as f:
        return f.read()


there = {f"profd_{m}" for m in re.findall(r'metric(?:_head)?\(out, "(\w+)"', read("daemon", "status.c"))}
used = set(re.findall(r"\bprofd_\w+", read("packaging", "prometheus", "profd.rules.yml")))
if not used or used - there:
    sys.exit(f"FAILED: alerts on metrics that there are not: {used - there}")
documented = set(re.findall(r"\bprofd_\w+", read("docs", "operations.md")))
if used - documented:
    sys.exit(f"FAILED: alerts that operations.md does not have: {used - documented}")
operations = read("docs", "operations.md")
alerts = set(re.findall(r"- alert: (\w+)", read("packaging", "prometheus", "profd.rules.yml")))
if alerts != set(re.findall(r"^\| `(Profd\w+)` \|", operations, re.M)):
    sys.exit("FAILED: operations.md and the rules have different alerts")
if not shutil.which("promtool"):
    print("skipped: needs promtool (Debian: prometheus)")
    sys.exit(77)
for arguments in ("check", "rules", "profd.rules.yml"), ("test", "rules", "profd.rules.test.yml"):
    subprocess.run(["promtool", *arguments], cwd=RULES, check=True)
