"""profd with few descriptors on a host with more programs than those: it answers, stores and accounts for every
sample all the time, or says at once that the limit is too low to start with."""
import os
import resource
import shutil
import signal
import subprocess
import tempfile

from limited import CONFIG, Limited, accounted
from harness import LIFE, PROFD, PROGRAMS, Daemon, Profile, check, wait_until

PROGRAM_COUNT = 260


def start_programs(home):
    """Different files, so that each is an object of its own; at the least priority, so that profd has a CPU."""
    programs = []
    for i in range(PROGRAM_COUNT):
        path = os.path.join(home, f"program{i}")
        shutil.copy(f"{PROGRAMS}/split31", path)
        programs.append(subprocess.Popen(["nice", "-n", "19", path, LIFE], stdout=subprocess.DEVNULL))
    return programs


def run(descriptors, home):
    with Limited(descriptors) as d:
        programs = start_programs(home)
        try:
            n = len(d.windows())
            wait_until(lambda: d.status()["tracking"]["processes"] >= PROGRAM_COUNT, 120, "all programs are known")
            wait_until(lambda: len(d.windows()) >= n + 2, 120, "windows are stored meanwhile")
            used = len(os.listdir(f"/proc/{d.process.pid}/fd"))
            check(used <= descriptors, f"{used} of {descriptors} descriptors are in use")
            check(accounted(d), "all samples are accounted for")
        finally:
            for p in programs:
                p.kill()
            for p in programs:
                p.wait()
        check(d.stop(signal.SIGTERM) == 0, "it stops cleanly")
        for name in d.windows():
            with open(os.path.join(d.state, name), "rb") as f:
                Profile(f.read())


with tempfile.TemporaryDirectory(prefix="profd-programs-") as directory:
    os.chmod(directory, 0o755)
    for limit in (64, 256):
        run(limit, directory)

# too few to start with: one line, and the end
with Daemon(CONFIG) as refused:
    r = subprocess.run([PROFD, "--config", refused.config, "--state-dir", refused.state, "--socket", refused.socket],
                       capture_output=True, text=True, timeout=120, check=False,
                       preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (12, 12)))
    check(r.returncode == 1 and "LimitNOFILE=" in r.stderr, f"12 descriptors: refused with a reason: {r.stderr!r}")
