"""Two users with busy processes, and root with one; a user asks a real daemon for everything there is, by HTTP and by
profctl: their own samples, live and stored, and not a byte of the others'."""
import gzip
import os
import shutil
import subprocess

from harness import LIFE, PROFCTL, PROGRAMS, Daemon, Profile, UnixConnection, Work, check, wait_until

CONFIG = "[Sampling]\nFrequency=199\nEvents=cycles\n[Store]\nWindow=5s\n[Limits]\nCpu=50%\n"
MINE, THEIRS = 64001, 64002
OTHERS = b"prog_theirs", b"prog_root"


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


def is_mine(*texts):
    return not any(other in text for other in OTHERS for text in texts)


def profctl_as(d, uid, *args):
    """What profctl, run by that user, prints; it is copied to where that user may run it."""
    program = os.path.join(d.dir, "profctl")
    if not os.path.exists(program):
        shutil.copy(PROFCTL, program)
        os.chmod(program, 0o755)
    r = subprocess.run([program, args[0], "--socket", d.socket, *args[1:]], capture_output=True, check=False, user=uid,
                       group=uid, extra_groups=[], cwd="/", timeout=120, stdin=subprocess.DEVNULL)
    return r.returncode, r.stdout, r.stderr


with Daemon(CONFIG) as d:
    with start(d, "prog_mine", MINE), start(d, "prog_theirs", THEIRS) as theirs, start(d, "prog_root", 0) as roots:
        wait_until(lambda: len(d.windows()) >= 2, 120, "two windows are stored")
        window = d.windows()[-1].replace(".pb.gz", "")
        everything = plain(d.get("/api/v1/profile?last=1h")[1])
        check(b"prog_theirs" in everything and b"prog_root" in everything, "root sees all of them")
        for path in ("/healthz", "/metrics", "/api/v1/status", "/debug/pprof/", "/api/v1/windows", "/api/v1/profile?last=1h",
                     "/api/v1/windows/" + window, "/api/v1/profile?last=1h&comm=prog_theirs",
                     f"/api/v1/profile?last=1h&pid={theirs.pid}", f"/api/v1/profile?seconds=1&pid={theirs.pid}",
                     f"/api/v1/profile?seconds=1&follow={theirs.pid}", "/api/v1/profile?seconds=1",
                     "/debug/pprof/profile?seconds=1&labels=all", "/api/v1/profile?last=1h&user=root",
                     "/api/v1/profile?last=1h&labels=comm", f"/api/v1/profile?last=1h&pid={roots.pid}",
                     f"/api/v1/profile?seconds=1&follow={roots.pid}", "/api/v1/profile?last=1h&side=kernel",
                     "/api/v1/profile?last=1h&max_samples=1", "/api/v1/profile?since=1&until=2", "/api/v1/profile",
                     "/api/v1/windows?after=" + window, "/api/v1/windows?after=x", "/api/v1/windows/x", "/none"):
            status, body, whole = get_as(d, MINE, path)
            # what was asked for comes back in refusals: that is the asker's own
            check(status > 0 and is_mine(whole.replace(path.encode(), b""), plain(body)),
                  f"nothing of the others in {path} ({status})")
            if body[:2] == b"\x1f\x8b":
                check(all(s.labels.get("uid", MINE) == MINE for s in Profile(body).samples), "and no other user's number")
            if "pid=" in path or "follow=" in path or "=root" in path or "=prog" in path:
                check(status != 200 or Profile(body).count() == 0, f"and no samples at all in {path}")
        for path in ("/metrics", "/api/v1/windows/" + window):
            check(get_as(d, MINE, path)[0] == 403, f"{path} is refused")
        last = "--last", "1h"
        for args in (("report", *last), ("report", *last, "--callers"), ("report", *last, "--sort", "process"),
                     ("report", *last, "--sort", "user"), ("report", *last, "--sort", "unit"), ("report", *last, "--sort", "object"),
                     ("report", *last, "--timeline"), ("report", "--for", "1s"), ("flamegraph", *last), ("list",),
                     ("list", "--json"), ("status",), ("status", "--json"), ("changes", "--since", "-1h"),
                     ("top", "--once", "--delay", "1s", "--by", "process"), ("diff", "20s ago..10s ago", "10s ago..now"),
                     *(("dump", *last, "--format", f) for f in ("pprof", "folded", "perf-script", "speedscope", "callgrind",
                                                               "json"))):
            status, out, err = profctl_as(d, MINE, *args)
            check(is_mine(plain(out), err), f"nothing of the others in profctl {' '.join(args)} ({status})")
            if args[0] in ("dump", "flamegraph"):
                check(status == 0 and b"hot_three" in plain(out), "and their own functions")
        status, out, _ = profctl_as(d, MINE, "report", *last, "--sort", "process")
        check(status == 0 and b"prog_mine" in out, "and their own process by profctl")
        for path in ("/api/v1/profile?last=1h", "/api/v1/profile?seconds=2", "/api/v1/profile?last=1h&labels=comm"):
            status, body, _ = get_as(d, MINE, path)
            check(status == 200 and b"prog_mine" in plain(body) and Profile(body).count() > 10, f"their own samples in {path}")

        # In a container: root of a user namespace, with the socket bind-mounted into a mount namespace of its own. To
        # profd that is still the user who made it.
        inside = ["unshare", "--user", "--map-root-user", "--mount", "--propagation", "private", "sh", "-euc",
                  'test "$(id -u)" = 0; mount -t tmpfs tmpfs /mnt; : >/mnt/sock; mount --bind "$1" /mnt/sock; shift;'
                  ' program=$1; verb=$2; shift 2; exec "$program" "$verb" --socket /mnt/sock "$@"', "sh", d.socket,
                  os.path.join(d.dir, "profctl")]
        r = subprocess.run(["unshare", "--user", "--map-root-user", "--mount", "true"], user=MINE, group=MINE,
                           extra_groups=[], check=False, capture_output=True)
        if r.returncode != 0:
            print(f"not tried: users may not make user namespaces here: {r.stderr.decode().strip()}")
        else:
            for args in (("report", *last), ("report", *last, "--sort", "user"), ("dump", *last, "--format", "folded"),
                         ("status", "--json"), ("list", "--json"), ("top", "--once", "--delay", "1s", "--by", "process")):
                r = subprocess.run([*inside, *args], user=MINE, group=MINE, extra_groups=[], check=False, timeout=120,
                                   capture_output=True, cwd="/", stdin=subprocess.DEVNULL)
                check(is_mine(r.stdout, r.stderr), f"nothing of the others in a container's profctl {' '.join(args)}")
                if args[0] == "dump":
                    check(r.returncode == 0 and b"hot_three" in r.stdout, f"and its own functions {r.stderr.decode()}")
