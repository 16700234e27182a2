"""SIGHUP: a profd that runs takes up new limits, of the store too, and keeps what it has when the new file is wrong."""
import os
import signal

from harness import LIFE, PROGRAMS, Daemon, Work, check, wait_until

CONFIG = "[Sampling]\nFrequency={hz}\nEvents=cpu-clock\n[Limits]\nCpu={cpu}%\n[Store]\nWindow=5s\nMaxAge={age}\n"


def reload(d, **values):
    with open(d.config, "w", encoding="utf-8") as f:
        f.write(CONFIG.format(**values))
    d.process.send_signal(signal.SIGHUP)


with Daemon(CONFIG.format(hz=49, cpu=50, age="1d")) as d, Work([f"{PROGRAMS}/split31", LIFE]):
    wait_until(lambda: len(d.windows()) >= 5, 300, "windows are stored")
    check(d.status()["requested_hz"] == 49, "49 Hz at first")
    first = d.windows()[0]

    reload(d, hz=97, cpu=40, age="1d")
    wait_until(lambda: d.status()["requested_hz"] == 97, 60, "the new rate is in force")
    check(abs(d.status()["cost"]["cpu_limit"] - 0.4) < 0.001, "and the new Cpu=")
    check(first in d.windows(), "the windows are all there")

    with open(d.config, "w", encoding="utf-8") as f:
        f.write("[Sampling]\nFrequency=none\n")
    d.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "Frequency" in d.logged() and "none" in d.logged(), 60, "what is wrong is said")
    check(d.status()["requested_hz"] == 97 and os.path.exists(os.path.join(d.state, first)), "what was in force stays")

    reload(d, hz=97, cpu=40, age="15s")
    wait_until(lambda: first not in d.windows() and len(d.windows()) < 5, 300, "the new MaxAge= is kept to")
    check(d.windows(), "windows are stored all along")
    check(d.stop() == 0, "profd ends in good order")
