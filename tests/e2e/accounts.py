"""What the daemon measures against what is known from elsewhere: a program's own account of its functions, the
kernel's account of each process, the rate and the busy time of the whole host."""
import os
import time

from harness import (LIFE, PROGRAMS, Daemon, Work, busy_seconds, check, cpu_seconds, has, interval, of_pid)

RATE = 499
SECONDS = 20
SPLIT = [f"{PROGRAMS}/split31", LIFE]

with Daemon(f"[Sampling]\nFrequency={RATE}\nEvents=cycles\n[Limits]\nCpu=50%\n[Store]\nWindow=60s\n") as d, \
        Work(SPLIT) as one_work, Work(SPLIT) as other_work:
    work = [one_work, other_work]
    # The first samples of a program wait for its unwind table: not what is measured here.
    d.collect(1)

    before, busy, start = [cpu_seconds(w.pid) for w in work], busy_seconds(), time.monotonic()
    p = d.collect(SECONDS)
    used, busy, took = [cpu_seconds(w.pid) for w in work], busy_seconds() - busy, time.monotonic() - start
    took_inside = p.duration_ns / 1e9
    scale = took_inside / took  # the two clocks of this test stop a little later than the collection

    def margin(samples):
        """2 %, more where a busy host answered so late that the clocks ran on for long, and what chance does."""
        return (0.02 + (1 - scale) / 4) * samples + 3.9 * samples**0.5

    # 1. a 3:1 split, within the binomial interval
    three = sum(p.count(lambda s, w=w: of_pid(w.pid)(s) and has("hot_three")(s)) for w in work)
    one = sum(p.count(lambda s, w=w: of_pid(w.pid)(s) and has("hot_one")(s)) for w in work)
    share = three / (three + one)
    # (ticks that did not come, because the host under this one took the CPU away, are counted)
    missing = p.lost()
    expected = RATE * sum(u - b for u, b in zip(used, before)) * scale
    check(three + one > 0.95 * expected - margin(expected) - missing,
          f"the two functions have the program's samples ({three + one} of {expected:.0f})")
    check(abs(share - 0.75) <= interval(0.75, three + one) + 0.005,
          f"hot_three has 3/4 of the samples: {share:.4f} of {three + one}")

    # 2. each process against its own CPU time
    for w, b, u in zip(work, before, used):
        expected = (u - b) * scale * RATE
        got = p.count(of_pid(w.pid))
        check(expected - margin(expected) - missing <= got <= expected + margin(expected),
              f"process {w.pid}: {got} samples, its CPU time says {expected:.0f}")

    # 3. the whole host: samples and losses against rate and busy time. Interrupt time is busy time in which a
    # sample is taken of whatever was interrupted, idle included, so the margin is the interrupts' too.
    total, lost = p.count(), p.lost()
    expected = busy * scale * RATE
    check(abs(total + lost - expected) <= margin(expected),
          f"{total} samples + {lost} lost, rate and busy time say {expected:.0f}")
    check(p.ledger("samples.taken") <= total + lost + 0.02 * expected, "all that was taken was delivered or counted")

    whole = p.count(lambda s: of_pid(work[0].pid)(s) and "_start" in s.stack)
    check(whole >= 0.98 * p.count(of_pid(work[0].pid)), f"stacks reach _start ({whole})")
    for w in work:
        w.stop()

    # 4. what was taken and neither delivered nor lost waits for the next drain, a second away on a quiet host
    def unaccounted():
        s = d.status()
        lost = sum(l["samples"] for l in s["losses"] if l["cause"] != "missed")
        check(s["samples_taken"] == s["samples_delivered"] + lost + s["samples_waiting"], "all samples are accounted for")
        return s["samples_waiting"]

    until = time.monotonic() + 60
    few = 2 * RATE * os.cpu_count()
    while (waiting := unaccounted()) > few and time.monotonic() < until:
        time.sleep(0.2)
    check(waiting <= few, f"few samples wait ({waiting})")
