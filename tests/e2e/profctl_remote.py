"""profctl --host: a profd on TCP with TLS, reached with a token or a client certificate, and refused without."""
import os
import shutil
import socket
import subprocess
import tempfile

from harness import PROFCTL, Daemon, check, skip, wait_until

if not shutil.which("certtool"):
    skip("certtool is not installed (Debian: gnutls-bin)")


def certtool(*args):
    subprocess.run(["certtool", *args], check=True, capture_output=True)


def certificate(directory, name, template, ca=None):
    """A key and a certificate, self-signed or of the authority `ca`; their paths without the ending."""
    base = os.path.join(directory, name)
    with open(base + ".tmpl", "w", encoding="utf-8") as f:
        f.write(f"cn = {name}\nexpiration_days = 1\n{template}")
    certtool("--generate-privkey", "--key-type=ecdsa", "--outfile", base + ".key")
    how = ["--generate-certificate", "--load-ca-certificate", ca + ".pem", "--load-ca-privkey", ca + ".key"] if ca \
        else ["--generate-self-signed"]
    certtool(*how, "--load-privkey", base + ".key", "--template", base + ".tmpl", "--outfile", base + ".pem")
    return base


with tempfile.TemporaryDirectory() as keys:
    authority = certificate(keys, "authority", "ca\ncert_signing_key\n")
    server = certificate(keys, "server", "dns_name = localhost\nip_address = 127.0.0.1\ntls_www_server\n", authority)
    client = certificate(keys, "client", "tls_www_client\n", authority)
    token, wrong = os.path.join(keys, "token"), os.path.join(keys, "wrong")
    with open(token, "w", encoding="utf-8") as f:
        f.write("0123456789abcdef0123456789abcdef\n")
    with open(wrong, "w", encoding="utf-8") as f:
        f.write("fedcba9876543210fedcba9876543210\n")
    os.chmod(token, 0o600)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]

    with Daemon(f"[Sampling]\nEvents=cycles\n[Store]\nWindow=5s\n[Api]\nListen=127.0.0.1:{port}\n"
                f"TlsCertificate={server}.pem\nTlsKey={server}.key\nTokenFile={token}\nClientCa={authority}.pem\n") as d:
        def ctl(*args):
            return subprocess.run([PROFCTL, args[0], "--host", f"https://localhost:{port}", *args[1:]], text=True,
                                  capture_output=True, check=False)

        known = ["--ca", authority + ".pem"]
        wait_until(lambda: len(d.windows()) >= 1, 60, "a window is stored")
        r = ctl("status", *known, "--token-file", token)
        check(r.returncode == 0 and "events: cycles" in r.stdout, f"a token is let in ({r.stderr.strip()})")
        r = ctl("report", *known, "--token-file", token, "--last", "1h", "-n", "1")
        check(r.returncode == 0 and r.stdout.startswith("# cpu: "), "and sees the profile")
        r = ctl("status", *known, "--cert", client + ".pem", "--key", client + ".key")
        check(r.returncode == 0 and "events: cycles" in r.stdout, f"a client certificate is let in ({r.stderr.strip()})")
        r = ctl("status", *known)
        check(r.returncode == 1 and r.stdout == "" and "--token-file or --cert" in r.stderr,
              f"nobody else: {r.stderr.strip()}")
        r = ctl("status", *known, "--token-file", wrong)
        check(r.returncode == 1 and r.stdout == "" and "--token-file or --cert" in r.stderr,
              f"nor with a wrong token: {r.stderr.strip()}")
        r = ctl("status", "--token-file", token)
        check(r.returncode == 1 and r.stdout == "" and "certificate" in r.stderr,
              f"a server that nobody vouches for is not trusted: {r.stderr.strip()}")
