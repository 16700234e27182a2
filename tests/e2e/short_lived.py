"""500 processes a second that live 2 to 20 ms: known, and named, although they are gone by the drain."""
import subprocess
import time

from harness import PROGRAMS, Daemon, check, has

with Daemon("[Sampling]\nFrequency=499\nEvents=cycles\n[Limits]\nCpu=50%\n") as d:
    work = subprocess.Popen([f"{PROGRAMS}/storm", "16"], stdout=subprocess.PIPE, text=True)
    while work.stdout.readline() != "ready\n":
        pass
    d.collect(2)
    p = d.collect(10)
    work.wait()
    storm = [s for s in p.samples if s.labels.get("comm") == "storm"]
    # In user space, past the dynamic linker and before the C library's exit: what the program's own code does.
    # A sample in exec or exit has no stack to name it by; these are counted apart.
    no_stack = ("[in exec]", "[exited]")
    own = [s for s in storm if not any(n in s.stack for n in no_stack) and
           any(n in s.stack for n in ("storm_hot", "child", "main")) or
           any(n.startswith("storm+0x") for n in s.stack)]
    total = sum(s.values["samples"] for s in own)
    named = sum(s.values["samples"] for s in own if has("storm_hot")(s) or has("main")(s))
    everything = sum(s.values["samples"] for s in storm)
    pids = len({s.labels["pid"] for s in storm})
    check(pids > 500, f"samples of many processes: {pids}")
    check(total > 1000, f"{total} samples of the storm's own code, of {everything} of its processes")
    check(named >= 0.99 * total, f"named in {named} of {total} samples")
    hot = sum(s.values["samples"] for s in storm if has("storm_hot")(s))
    unknown = sum(s.values["samples"] for s in storm if any(n.startswith("[truncated") for n in s.stack))
    check(hot >= 0.5 * everything, f"the hot function has {hot} of all {everything} samples")
    check(unknown <= 0.02 * everything, f"{unknown} stacks are not whole, of {everything}")
