"""Whether the samples of a process are in the store: as many as its CPU time says."""
import glob
import math
import os
import sys

from harness import Profile, of_pid

RATE = 99
pid, used, seconds = int(sys.argv[1]), int(sys.argv[2]) / 1e9, float(sys.argv[3])
profiles = []
for path in glob.glob("/var/lib/profd/*.pb.gz"):
    with open(path, "rb") as f:
        profiles.append(Profile(f.read()))
with_it = [p for p in profiles if p.count(of_pid(pid))]
got = sum(p.count(of_pid(pid)) for p in with_it)
missed = sum(p.ledger("lost.missed") for p in with_it)
lost = sum(p.lost() for p in with_it) - missed
expected = used * RATE
# A tick falls on the load or on who has its CPU in between: chance, none with a CPU to itself.
share = min(1, used / seconds)
margin = 0.005 * expected + 3.89 * math.sqrt(RATE * seconds * share * (1 - share)) + 10
ok = expected - margin - missed <= got + lost and got <= expected + margin
print(f"{'ok' if ok else 'FAILED'}: {got} samples of the load and {lost} lost, {missed} ticks missed; "
      f"its CPU time says {expected:.1f}")
sys.exit(0 if ok else 1)
