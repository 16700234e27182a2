"""Stripped programs, each with its debug information in another of the places where distributions put it: in the
profile of one daemon, which comes when all of them run and some have lost their files, each has its names."""
import contextlib
import os

from harness import Daemon, Work, check, wait_until
from stripped import Program, run, share, wait_for_names, window_of

CONFIG = "[Sampling]\nFrequency=199\nEvents=cycles\n[Store]\nWindow=5s\n[Limits]\nCpu=50%%\n" \
         "[Symbols]\nDebugDirectories=%s\n"


def linked(name):
    """Without a build ID, so that the checksum in the link alone decides."""
    program = Program(d.dir, name, build_id=False)
    run("objcopy", "--add-gnu-debuglink=" + program.debug, program.path)
    return program


def move(path, to):
    os.makedirs(os.path.dirname(to), exist_ok=True)
    os.rename(path, to)


def other_at(path):
    """Another program, which has all its names, in the place of one that runs."""
    full = Program(d.dir, "other").full
    move(full, path)


def in_other_namespace(program, mounts, *commands):
    """Runs with file systems of its own on these directories, filled by the commands."""
    script = " && ".join([f"mount -t tmpfs none {m}" for m in mounts] + list(commands) + [f"exec {program}"])
    return Work(["unshare", "--mount", "--propagation", "private", "sh", "-c", script])


def by_build_id():
    program = Program(d.dir, "by_build_id")
    move(program.debug, program.id_path(packages))
    return Work([program.path])


def by_link():
    return Work([linked("by_link").path])


def by_link_below_the_debug_directory():
    program = linked("by_link_below")
    move(program.debug, packages + program.debug)
    return Work([program.path])


def in_its_own_namespace():
    """The host has another program and another debug file under the same names."""
    program, inside = linked("in_namespace"), os.path.join(d.dir, "inside")
    place, debug = os.path.join(inside, "program"), os.path.join(inside, ".debug", "in_namespace.debug")
    other_at(place)
    move(Program(d.dir, "other").debug, debug)
    return in_other_namespace(place, [inside], f"mkdir {inside}/.debug", f"cp {program.path} {place}",
                              f"cp {program.debug} {debug}")


def stripped_debug_file_in_its_own_namespace():
    """A debug file with a symbol table only, in the process's own root, before the full one of the host's."""
    program = Program(d.dir, "poor_in_namespace")
    poor, own = program.debug + ".poor", program.id_path(packages)
    run("strip", "--strip-debug", "-o", poor, program.full)
    move(program.debug, own)
    return in_other_namespace(program.path, [packages], f"mkdir -p {os.path.dirname(own)}", f"cp {poor} {own}")


def deleted():
    program = linked("deleted")
    later.append(lambda: os.remove(program.path))
    return Work([program.path])


def replaced():
    program = Program(d.dir, "replaced")
    move(program.debug, program.id_path(packages))
    later.append(lambda: other_at(program.path))
    return Work([program.path])


def wrong_checksum():
    program = linked("wrong_checksum")
    with open(program.debug, "ab") as f:
        f.write(b"x")
    return Work([program.path])


def wrong_build_id():
    program, other = Program(d.dir, "wrong_build_id"), Program(d.dir, "other")
    move(other.debug, program.id_path(packages))
    return Work([program.path])


def minidebuginfo():
    """As Fedora's packages have it: a symbol table as xz, in a section."""
    program = Program(d.dir, "minidebuginfo", outer="the_one_without_a_file")
    mini = program.path + ".mini"
    run("objcopy", "--strip-debug", program.full, mini)
    run("xz", mini)
    run("objcopy", "--add-section", f".gnu_debugdata={mini}.xz", program.path)
    return Work([program.path])


WHOLE = (by_build_id, by_link, by_link_below_the_debug_directory, in_its_own_namespace,
         stripped_debug_file_in_its_own_namespace, deleted, replaced)
FEW = 10  # samples of one in a window are enough: there are many at work, and others beside them
later = []  # what happens to the files once all run

d = Daemon()
packages = os.path.join(d.dir, "packages")
os.mkdir(packages)
with open(d.config, "w", encoding="utf-8") as f:
    f.write(CONFIG % packages)
with contextlib.ExitStack() as stack:
    pids = {how: stack.enter_context(how()).pid for how in (*WHOLE, wrong_checksum, wrong_build_id, minidebuginfo)}
    for change in later:
        change()
    for name in os.listdir(d.dir):
        if name.endswith((".full", ".mini")):
            os.remove(os.path.join(d.dir, name))
    stack.enter_context(d)
    for how in WHOLE:
        wait_for_names(d, pids[how], "debug information is found: " + how.__name__, FEW)
    for how in (wrong_checksum, wrong_build_id):
        _, p = wait_until(lambda how=how: window_of(d, pids[how], FEW), 300, "a window of " + how.__name__)
        check(share(p, pids[how], "the_outer_one") == 0, f"another file's is not believed: {how.__name__}")
        offset = how.__name__ + "+0x"
        check(any(name.startswith(offset) for s in p.samples if s.labels.get("pid") == pids[how] for name in s.stack),
              "its frames are offsets in the object")

    def has_functions():
        found = window_of(d, pids[minidebuginfo], FEW)
        return found and share(found[1], pids[minidebuginfo], "the_one_without_a_file") > 0.9 and found[1]
    p = wait_until(has_functions, 300, "MiniDebugInfo names functions")
    check(share(p, pids[minidebuginfo], "the_inlined_one") == 0, "and no inlined ones, which it does not know")
