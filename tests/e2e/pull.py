"""go tool pprof takes a live profile of this host over HTTP, and counts each function as profctl does."""
import os
import re
import shutil
import socket
import subprocess

from harness import LIFE, PROFCTL, PROGRAMS, Daemon, Work, check, go_top, skip

TOKEN = "of-the-fleet-0123456789"

if not shutil.which("go"):
    skip("needs go (Debian: golang-go)")
if not shutil.which("certtool"):
    skip("needs certtool (Debian: gnutls-bin)")

with socket.socket() as s:
    s.bind(("127.0.0.1", 0))
    port = s.getsockname()[1]

d = Daemon()
with open(os.path.join(d.dir, "server.tmpl"), "w", encoding="utf-8") as f:
    f.write("cn=localhost\ndns_name=localhost\nca\ntls_www_server\nsigning_key\ncert_signing_key\nexpiration_days=10\n")
with open(os.path.join(d.dir, "token"), "w", encoding="utf-8") as f:
    f.write(TOKEN + "\n")
for how in (["--generate-privkey", "--key-type=ecdsa", "--outfile", "server.key"],
            ["--generate-self-signed", "--load-privkey", "server.key", "--template", "server.tmpl", "--outfile",
             "server.pem"]):
    subprocess.run(["certtool", *how], cwd=d.dir, check=True, capture_output=True)
with open(d.config, "w", encoding="utf-8") as f:
    f.write(f"[Sampling]\nFrequency=199\nEvents=cycles\n[Limits]\nCpu=50%\n[Api]\nListen=127.0.0.1:{port}\n"
            f"TlsCertificate={d.dir}/server.pem\nTlsKey={d.dir}/server.key\nTokenFile={d.dir}/token\n")

with d, Work([f"{PROGRAMS}/split31", LIFE]):
    env = {**os.environ, "HOME": d.dir, "SSL_CERT_FILE": f"{d.dir}/server.pem", "PPROF_TMPDIR": d.dir}
    raw = os.path.join(d.dir, "pulled.pb.gz")
    url = f"https://x:{TOKEN}@localhost:{port}/debug/pprof/profile?seconds=5"
    r = subprocess.run(["go", "tool", "pprof", "-proto", "-symbolize=none", "-output", raw, url], env=env,
                       capture_output=True, text=True, check=False)
    check(r.returncode == 0 and os.path.getsize(raw) > 0, f"go tool pprof pulls from a running profd {r.stderr[-300:]}")

    theirs = {name: own for name, (own, _) in go_top(raw, d.dir, "-symbolize=none").items()}
    total = sum(theirs.values())
    check(total > 100 and any("hot_three" in n for n in theirs), f"it sees {total} samples of {len(theirs)} functions")

    # the same file as profctl counts it: each function's own samples
    folded = subprocess.run([PROFCTL, "dump", "--event", "samples", "-f", "folded", raw], capture_output=True, text=True,
                            check=True).stdout
    mine = {}
    for line in folded.splitlines():
        stack, n = line.rsplit(" ", 1)
        leaf = re.sub(r"_\[[a-z]\]$", "", stack.split(";")[-1])  # flame graphs' marks of the kernel and of inlining
        mine[leaf] = mine.get(leaf, 0) + int(n)
    wrong = {f: (n, mine.get(f)) for f, n in theirs.items() if n and mine.get(f) != n}
    check(not wrong, f"profctl counts each of {len(theirs)} functions the same {wrong}")
