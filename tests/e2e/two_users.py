"""Two users with busy processes; one asks a real daemon for everything there is: their own samples, live and stored,
and not a byte of the other's."""
import gzip
import os
import shutil

from harness import LIFE, PROGRAMS, Daemon, Profile, UnixConnection, Work, check, wait_until

CONFIG = "[Sampling]\nFrequency=199\nEvents=cycles\n[Store]\nWindow=5s\n[Limits]\nCpu=50%\n"
MINE, THEIRS = 64001, 64002


def start(d, name, uid):
    program = shutil.copy(f"{PROGRAMS}/split31", os.path.join(d.dir, name))
    os.chmod(program, 0o755)
    return Work([program, LIFE], user=uid, group=uid, extra_groups=[], cwd="/")


def get_as(d, uid, path):
    """The whole answer, asked for by a process of that user."""
    r, w = os.pipe()
    if os.fork() == 0:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        c = UnixConnection(d.socket, 120)
        c.request("GET", path)
        answer = c.getresponse()
        with os.fdopen(w, "wb") as out:
            out.write(str(answer.status).encode() + b"\n" + repr(answer.getheaders()).encode() + b"\n\n" + answer.read())
        os._exit(0)
    os.close(w)
    with os.fdopen(r, "rb") as f:
        all_of_it = f.read()
    os.wait()
    status, rest = all_of_it.split(b"\n", 1)
    return int(status), rest.split(b"\n\n", 1)[1].lstrip(b"\n"), rest


def plain(body):
    return gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body


with Daemon(CONFIG) as d:
    with start(d, "prog_mine", MINE), start(d, "prog_theirs", THEIRS) as theirs:
        wait_until(lambda: len(d.windows()) >= 2, 120, "two windows are stored")
        window = d.windows()[-1].replace(".pb.gz", "")
        check(b"prog_theirs" in plain(d.get("/api/v1/profile?last=1h")[1]), "root sees the other user's process")
        for path in ("/healthz", "/metrics", "/api/v1/status", "/debug/pprof/", "/api/v1/windows", "/api/v1/profile?last=1h",
                     "/api/v1/windows/" + window, "/api/v1/profile?last=1h&comm=prog_theirs",
                     f"/api/v1/profile?last=1h&pid={theirs.pid}", f"/api/v1/profile?seconds=1&pid={theirs.pid}",
                     f"/api/v1/profile?seconds=1&follow={theirs.pid}", "/api/v1/profile?seconds=1",
                     "/debug/pprof/profile?seconds=1&labels=all"):
            status, body, whole = get_as(d, MINE, path)
            check(b"theirs" not in whole and b"theirs" not in plain(body) and str(THEIRS).encode() not in plain(body),
                  f"nothing of the other user in {path} ({status})")
        for path in ("/api/v1/profile?last=1h", "/api/v1/profile?seconds=2"):
            status, body, _ = get_as(d, MINE, path)
            check(status == 200 and b"prog_mine" in plain(body) and Profile(body).count() > 10, f"their own samples in {path}")
