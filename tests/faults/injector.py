"""The driver's side of libinject.so: see control.h, whose layout this is."""
import mmap
import os
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
from harness import BUILD  # noqa: E402

ALLOC, WRITE, OPEN, READ, KERNEL, THREAD, FILE = (1 << i for i in range(7))
KIND_NAMES = {ALLOC: "alloc", WRITE: "write", OPEN: "open", READ: "read", KERNEL: "kernel", THREAD: "thread",
              FILE: "file"}
FAIL, KILL = 0, 1
FRAMES, SITES, NAME = 6, 16384, 24
HEAD, FRAME = "=6IQ", f"=Q{NAME}s"
SITE_SIZE = 16 + FRAMES * (8 + NAME)
SIZE = 32 + SITES * SITE_SIZE
MANY = 1 << 30


class Injector:
    """Which calls of `program` fail; what failed once stays so over all runs. `keep` names a file that knows what
    failed, for a test that goes on where the one before ended."""

    def __init__(self, program, kinds, action=FAIL, gap_ms=0, keep=None):
        self.keep = keep
        if keep:
            self.path = keep
            fd = os.open(keep, os.O_RDWR | os.O_CREAT, 0o600)
        else:
            fd, self.path = tempfile.mkstemp(prefix="profd-faults-")
        os.ftruncate(fd, SIZE)
        self.map = mmap.mmap(fd, SIZE)
        os.close(fd)
        self.program = program
        self.set(0, kinds)
        self.set(1, action)
        self.set(3, gap_ms)
        self.reported = set(self.all_fired())

    def all_fired(self):
        for i in range(SITES):
            site, _, fired = struct.unpack_from("=QII", self.map, 32 + i * SITE_SIZE)
            if fired:
                yield site

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.map.close()
        if not self.keep:
            os.unlink(self.path)

    def set(self, field, value):
        struct.pack_into("=I", self.map, field * 4, value)

    def allow(self, n):
        self.set(2, n)

    def head(self):
        return struct.unpack_from(HEAD, self.map, 0)

    @property
    def sites(self):
        return self.head()[4]

    @property
    def fired(self):
        return self.head()[5]

    def environment(self):
        return {**os.environ, "LD_PRELOAD": os.path.join(BUILD, "tests", "faults", "libinject.so"),
                "FAULT_CONTROL": self.path, "FAULT_PROGRAM": os.path.basename(self.program)}

    def newest(self):
        """What has failed since this was asked last, in words."""
        out = []
        for i in range(SITES):
            at = 32 + i * SITE_SIZE
            site, kind, fired = struct.unpack_from("=QII", self.map, at)
            if not fired or site in self.reported:
                continue
            self.reported.add(site)
            frames = [struct.unpack_from(FRAME, self.map, at + 16 + f * (8 + NAME)) for f in range(FRAMES)]
            out.append(f"{KIND_NAMES[kind]}: {' < '.join(self.words(frames))}")
        return out

    def words(self, frames):
        own = [hex(offset - 1) for offset, name in frames if offset and not name.rstrip(b"\0")]
        names = iter(subprocess.run(["addr2line", "-sfe", self.program, *own], capture_output=True, text=True,
                                    check=False).stdout.split("\n") if own else [])
        for offset, name in frames:
            if not offset:
                break
            name = name.rstrip(b"\0").decode()
            yield f"{next(names, '?')} ({next(names, '?')})" if not name else f"{name}+{offset:#x}"
