"""500 processes a second that live 2 to 20 ms: known, and named, although they are gone by the drain."""
from harness import LIFE, PROGRAMS, Daemon, Work, check, has

with Daemon("[Sampling]\nFrequency=499\nEvents=cycles\n[Limits]\nCpu=50%\n") as d:
    with Work([f"{PROGRAMS}/storm", LIFE]):
        # profd has just started: everything on this host is new to it at once, which is not what is measured here
        for _ in range(10):
            p = d.collect(1)
            if p.ledger("samples.hurried") + p.ledger("samples.not_deferred") == 0:
                break
        p = d.collect(10)
    # its children are started from /proc/self/exe, which the kernel names them by
    storm = [s for s in p.samples if s.labels.get("comm") in ("storm", "exe")]
    # What is not the dynamic linker's or the kernel's at exec and exit, which have no stack to name anything by: the
    # program's own code, named or not, and every stack that is not whole.
    def is_own(sample):
        return any(n in ("storm_hot", "child", "main") or n.startswith(("storm+0x", "exe+0x", "[truncated"))
                   for n in sample.stack)

    own = [s for s in storm if is_own(s)]
    total = sum(s.values["samples"] for s in own)
    named = sum(s.values["samples"] for s in own if has("storm_hot")(s) or has("main")(s))
    pids = len({s.labels["pid"] for s in storm})
    check(pids > 100, f"samples of many processes: {pids}")
    check(total > 200, f"{total} samples of the storm's own code")
    print("ledger:", [c for c in p.comments if c.startswith(("samples.", "stacks.", "records."))])
    # A host that keeps the daemon from its work makes it give up on samples, which it counts: believed for a third.
    given_up = min(p.ledger("samples.hurried") + p.ledger("samples.not_deferred"), total / 3)
    check(named >= 0.99 * total - given_up, f"named in {named} of {total} samples, {given_up} given up")
