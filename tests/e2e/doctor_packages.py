"""profctl doctor names the package, in its version, that has the debug symbols of what is sampled most, as dpkg says."""
import os
import re
import shutil
import subprocess

from harness import Daemon, Work, check, skip, wait_until


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def package_of(path):
    """Its name and version, by dpkg."""
    for known in (path, path.removeprefix("/usr")):  # where /bin is a link into /usr dpkg knows either
        r = subprocess.run(["dpkg", "--search", known], capture_output=True, text=True, check=False)
        if r.returncode == 0:
            name = r.stdout.split(":")[0]
            return name, run("dpkg-query", "--show", "--showformat=${Version}", name)
    return skip(f"{path} is of no package here")


def without_names(path):
    return ".symtab" not in run("readelf", "--section-headers", "--wide", path)


def another_build(path, directory):
    """The same program with another build ID, as an upgrade leaves it in running processes."""
    build_id = bytes.fromhex(re.search(r"Build ID: ([0-9a-f]+)", run("readelf", "--notes", path)).group(1))
    with open(path, "rb") as f:
        data = f.read()
    check(data.count(build_id) == 1, "the build ID is there once")
    other = os.path.join(directory, os.path.basename(path))
    with open(other, "wb") as f:
        f.write(data.replace(build_id, bytes(255 - b for b in build_id)))
    os.chmod(other, 0o755)
    return other


if not shutil.which("dpkg-query"):
    skip("there is no dpkg")
gzip, perl = (os.path.realpath(shutil.which(name) or skip(f"there is no {name}")) for name in ("gzip", "perl"))
for program in (gzip, perl):
    if not without_names(program):
        skip(f"{program} has its symbols here")

CONFIG = "[Sampling]\nFrequency=99\nEvents=cycles\n[Store]\nWindow=5s\n[Limits]\nCpu=50%%\n[Symbols]\nDebugDirectories=%s\n"
d = Daemon()
nothing = os.path.join(d.dir, "nothing")
os.mkdir(nothing)
with open(d.config, "w", encoding="utf-8") as config:
    config.write(CONFIG % nothing)
with d, Work(["sh", "-c", f"echo ready; exec {gzip} -c </dev/zero >/dev/null"]), \
        Work(["unshare", "--mount", "--propagation", "private", "sh", "-c",
              f"mount --bind {another_build(perl, d.dir)} {perl} && echo ready && exec {perl} -e '1 while 1'"]):
    def line_of(path):
        for line in d.profctl("doctor").stdout.splitlines():
            if f" in {path}, " in line:
                return line
        return None

    name, version = package_of(gzip)
    line = wait_until(lambda: line_of(gzip), 300, f"doctor speaks of {gzip}")
    check(f": install {name}-dbgsym={version}, the debug symbols of package {name} " in line, line)
    name, version = package_of(perl)
    line = wait_until(lambda: line_of(perl), 300, f"doctor speaks of {perl}")
    check(f": it is not the file that package {name} {version} has here: " in line and f"{name}-dbgsym in its version" in line,
          line)
