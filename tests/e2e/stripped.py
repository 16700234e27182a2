"""Programs whose names are in other files: how they are made, and how their windows are read."""
import os
import re
import subprocess

from harness import Profile, check, of_pid, wait_until

SOURCE = """#include <stdio.h>
static volatile unsigned long sink;
__attribute__((always_inline)) static inline void the_inlined_one(unsigned long n)
{
        for (unsigned long i = 0; i < n; i++)
                sink += i * i;
}
__attribute__((noinline)) static void the_outer_one(void)
{
        the_inlined_one(1000000);
}
int main(void)
{
        puts("ready");
        fflush(stdout);
        for (;;)
                the_outer_one();
}
"""


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


class Program:
    """A stripped program at `path`, its debug file at `debug`, its build ID. No two are alike. `full` has all, and
    must be removed where it could help."""

    def __init__(self, directory, name, build_id=True, outer="the_outer_one"):
        self.path, self.full, self.debug = (os.path.join(directory, name + end) for end in ("", ".full", ".debug"))
        source = os.path.join(directory, "outer.c")
        with open(source, "w", encoding="utf-8") as f:
            f.write(SOURCE.replace("the_outer_one", outer) + f"int salt_{name};\n")
        run("cc", "-O2", "-g", "-Wl,--build-id" if build_id else "-Wl,--build-id=none", "-o", self.full, source)
        run("objcopy", "--only-keep-debug", self.full, self.debug)
        run("strip", "-o", self.path, self.full)
        found = re.search(r"Build ID: ([0-9a-f]+)", run("readelf", "-n", self.full))
        check(bool(found) == build_id, f"{name} {'has a' if build_id else 'has no'} build ID")
        self.id = found.group(1) if found else ""

    def id_path(self, root):
        """Where a package has its debug file, below a directory of them."""
        return os.path.join(root, ".build-id", self.id[:2], self.id[2:] + ".debug")


def newest(d):
    windows = d.windows()
    if not windows:
        return None
    try:
        with open(os.path.join(d.state, windows[-1]), "rb") as f:
            return windows[-1], Profile(f.read())
    except FileNotFoundError:
        return None


def window_of(d, pid, least=50):
    """The newest window, if it has enough samples of the process."""
    found = newest(d)
    if found and found[1].count(of_pid(pid)) >= least:
        return found
    return None


def share(profile, pid, *names):
    """Of a process's samples, those that have these names from the leaf on or somewhere above, one after another."""
    def has(stack):
        return any(tuple(stack[i:i + len(names)]) == names for i in range(len(stack)))
    return profile.count(lambda s: s.labels.get("pid") == pid and has(s.stack)) / profile.count(of_pid(pid))


def wait_for_names(d, pid, what, least=50):
    """Windows until one has the whole inline chain for nearly all samples."""
    def named():
        found = window_of(d, pid, least)
        return found and share(found[1], pid, "the_inlined_one", "the_outer_one") > 0.9 and \
            found[1].files["the_outer_one"].endswith("outer.c")
    wait_until(named, 300, what)
    print(f"ok: {what}")
