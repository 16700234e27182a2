"""Inlined functions and source lines of the running kernel, from a vmlinux that is made here: with the kernel's build ID,
and functions where the kernel has those of their names, all moved by one number. One of another build, or with
functions in another order, is not used, and that is said once."""
import collections
import os
import re
import subprocess

from harness import LIFE, PROGRAMS, Daemon, Profile, Work, check, skip, wait_until

CONFIG = "[Sampling]\nFrequency=499\nEvents=cycles\n[Store]\nWindow=5s\n[Limits]\nCpu=100%%\n[Symbols]\nDebugDirectories=%s\n"
SLIDE = 0x5000000
LANDMARKS = ["schedule", "do_exit"]


def build_id():
    """By the layout of ELF notes: name size, description size, type, name, description."""
    with open("/sys/kernel/notes", "rb") as f:
        data = f.read()
    at = 0
    while at + 12 <= len(data):
        name, size, kind = (int.from_bytes(data[at + 4 * i:at + 4 * i + 4], "little") for i in range(3))
        start = at + 12 + (name + 3) // 4 * 4
        if kind == 3 and data[at + 12:at + 16] == b"GNU\0":
            return data[start:start + size].hex()
        at = start + (size + 3) // 4 * 4
    return None


def kallsyms():
    """Address and length of each function whose name stands once and can be that of a function in C."""
    with open("/proc/kallsyms", encoding="ascii") as f:
        rows = sorted((int(a, 16), kind, name) for a, kind, name, *_ in map(str.split, f))
    times = collections.Counter(name for _, _, name in rows)
    starts = sorted({a for a, _, _ in rows})
    end = dict(zip(starts, starts[1:]))
    return {name: (a, end.get(a, a) - a) for a, kind, name in rows
            if kind in "tT" and times[name] == 1 and re.fullmatch(r"[A-Za-z_]\w*", name)}


def make_vmlinux(path, functions, identity, shift=0):
    source = os.path.join(d.dir, "made_kernel.c")
    arguments = []
    unit = 1 if os.uname().machine == "x86_64" else 4
    with open(source, "w", encoding="ascii") as f:
        for name in functions:
            address, size = symbols[name]
            moved = shift if name == LANDMARKS[1] else 0
            f.write(f"__attribute__((always_inline)) static inline void inlined_in_{name}(void)\n"
                    f'{{\n        __asm__ volatile(".rept {max(size // unit - 1, 1)}; nop; .endr");\n}}\n'
                    f'__attribute__((section("at_{name}"))) void {name}(void)\n{{\n        inlined_in_{name}();\n}}\n')
            arguments.append(f"-Wl,--section-start=at_{name}={address - SLIDE + moved:#x}")
    subprocess.run(["cc", "-g", "-O2", "-fno-builtin", "-fno-stack-protector", "-fcf-protection=none", "-fno-asynchronous-unwind-tables",
                    "-fno-pie", "-no-pie", "-nostdlib", "-static", "-w", "-Wl,-e,0", f"-Wl,--build-id=0x{identity}",
                    *arguments, "-o", path + ".new", source], check=True)
    os.rename(path + ".new", path)


def windows_after(seen):
    for name in [w for w in d.windows() if w not in seen]:
        try:
            with open(os.path.join(d.state, name), "rb") as f:
                yield name, Profile(f.read())
        except FileNotFoundError:
            pass


if not build_id():
    skip("this kernel has no build ID")
symbols = kallsyms()
if any(name not in symbols or symbols[name][0] == 0 for name in LANDMARKS):
    skip("this kernel shows no symbols")
if os.uname().machine != "x86_64":
    skip("the made kernel is for x86-64")
with Daemon() as d:
    directory = os.path.join(d.dir, "debug")
    os.makedirs(os.path.join(directory, "boot"))
    vmlinux = os.path.join(directory, "boot", f"vmlinux-{os.uname().release}")
    make_vmlinux(vmlinux, LANDMARKS, "00" * 20)
    with open(d.config, "w", encoding="utf-8") as f:
        f.write(CONFIG % directory)
    d.stop()
    d.start()
    with Work([f"{PROGRAMS}/syscalls", LIFE]) as work:
        wait_until(lambda: "is not of the running kernel's build" in d.logged(), 120, "a vmlinux of another build is refused")

        def hottest():
            for _, p in windows_after(()):
                leaves = collections.Counter()
                for s in p.samples:
                    if s.labels.get("pid") == work.pid and s.stack and symbols.get(s.stack[0], (0, 0))[1] > 32:
                        leaves[s.stack[0]] += s.values["samples"]
                if leaves and leaves.most_common(1)[0][1] >= 50:
                    return leaves.most_common(1)[0][0]
            return None

        hot = wait_until(hottest, 300, "a kernel function is sampled by its symbol")
        print(f"ok: the kernel's functions are named by symbols; {hot} is hot")

        make_vmlinux(vmlinux, LANDMARKS, build_id(), shift=0x1000)
        wait_until(lambda: "in another order than the kernel" in d.logged(), 120, "one with shuffled functions is refused")
        print("ok: one with shuffled functions is refused")

        make_vmlinux(vmlinux, [*LANDMARKS, *({hot} - set(LANDMARKS))], build_id())
        seen = set(d.windows())

        def with_lines():
            for name, p in windows_after(seen):
                frames = inlined = 0
                for s in p.samples:
                    for i, function in enumerate(s.stack):
                        if function == hot:
                            frames += s.values["samples"]
                            inlined += (i > 0 and s.stack[i - 1] == f"inlined_in_{hot}") * s.values["samples"]
                if inlined >= 50:
                    return frames, inlined, p
            return None

        frames, inlined, p = wait_until(with_lines, 300, "a window with the kernel's source lines")
        check(inlined > 0.9 * frames, f"what is inlined into {hot} is shown: {inlined} of {frames} samples")
        check(p.files[hot].endswith("made_kernel.c"), f"with its source file: {p.files[hot]}")
        log = d.logged()
        check(log.count("is not of the running kernel's build") == 1 and log.count("in another order") == 1,
              "each file that is not used was said once")
