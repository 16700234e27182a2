"""profd on a host that runs code of more objects than it may have descriptors: it answers, stores, accounts for every
sample, and says why some frames have no names; once the objects are gone, those of a new one have names again.

many_objects.py DESCRIPTORS OBJECTS"""
import os
import re
import signal
import sys
import tempfile

from limited import CONFIG, Limited, accounted
from harness import BUILD, LIFE, PROGRAMS, Profile, Work, check, of_pid, wait_until

DESCRIPTORS, OBJECTS = int(sys.argv[1]), int(sys.argv[2])
STORMS = os.path.join(BUILD, "tests", "storms")
OFTEN = CONFIG.replace("=99", "=997")
LATE = 300  # seconds, on a slow host


def copies(directory):
    """Copies of an object that differ in their build ID, as so many builds would."""
    with open(os.path.join(STORMS, "libstorm_object.so"), "rb") as f:
        data = f.read()
    at = re.search(rb"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0", data).end()
    for i in range(OBJECTS):
        with open(os.path.join(directory, f"libobject{i}.so"), "wb") as f:
            f.write(data[:at] + i.to_bytes(20, "big") + data[at + 20:])


def lacking(d):
    return [n for n in d.status()["notes"] if "have no names now" in n and "LimitNOFILE=" in n]


def is_named(d, pid, function):
    samples = [s for s in d.collect(2).samples if of_pid(pid)(s)]
    named = sum(s.values["samples"] for s in samples if function in s.stack)
    return named > sum(s.values["samples"] for s in samples) / 2


with tempfile.TemporaryDirectory(prefix="profd-objects-") as home, Limited(DESCRIPTORS, OFTEN) as d:
    os.chmod(home, 0o755)
    copies(home)
    with Work([os.path.join(STORMS, "storm_load"), "objects", home]):
        wait_until(lambda: lacking(d), LATE, "the status says what is lacking")
        print(f"ok: {lacking(d)[0]}; {d.status()['tracking']['objects']} objects are known")
        check("LimitNOFILE=" in d.profctl("status").stdout, "profctl status says what to do")
        n = len(d.windows())
        wait_until(lambda: len(d.windows()) >= n + 2, LATE, "windows are stored meanwhile")
        used = len(os.listdir(f"/proc/{d.process.pid}/fd"))
        check(DESCRIPTORS * 0.7 < used <= DESCRIPTORS, f"{used} of {DESCRIPTORS} descriptors are in use")
        wait_until(lambda: accounted(d), LATE, "all samples are accounted for")
    with Work([f"{PROGRAMS}/split31", LIFE]) as work:
        wait_until(lambda: is_named(d, work.pid, "hot_three"), LATE, "a new object has names")
        wait_until(lambda: not lacking(d), LATE, "nothing is lacking any more")
    check(d.stop(signal.SIGTERM) == 0, "it stops cleanly")
    for name in d.windows():
        with open(os.path.join(d.state, name), "rb") as f:
            Profile(f.read())
