"""A perf.data file with one user-space sample for each of some addresses of an object, so that `perf script` names
what the other tools are asked for.

The layout is that of tools/perf/Documentation/perf.data-file-format.txt and of the records in
include/uapi/linux/perf_event.h. perf looks for inlined functions only in stacks that it unwinds itself, so each
sample has registers and a stack, of zeros, which ends the unwinding after the one frame."""

import os
import struct

IP, TID, TIME, CALLCHAIN, REGS_USER, STACK_USER = 1, 2, 4, 1 << 5, 1 << 12, 1 << 13
COMM, SAMPLE, MMAP2 = 3, 9, 10
MISC_USER = 2
CONTEXT_USER = (1 << 64) - 512
X86_REGISTERS = 0xff0fff  # all but ds, es, fs and gs
N_REGISTERS, SP, PC = 20, 7, 8
BASE = 0x7f0000000000
STACK = 64
ATTR_SIZE = 96  # PERF_ATTR_SIZE_VER3, the first with registers and stack


def record(kind, body):
    return struct.pack('<IHH', kind, MISC_USER, 8 + len(body)) + body


def padded(text):
    return text.encode().ljust(len(text) // 8 * 8 + 8, b'\0')


def sample(pc, time):
    registers = [0] * N_REGISTERS
    registers[PC], registers[SP] = pc, 0x7ffe00000000
    return record(SAMPLE, struct.pack('<QIIQQQ', pc, 1, 1, time, 1, CONTEXT_USER) +
                  struct.pack(f'<{1 + N_REGISTERS}Q', 2, *registers) +
                  struct.pack(f'<Q{STACK}xQ', STACK, STACK))


def write(path, obj, offsets):
    """`offsets` are places in the file `obj`, mapped whole."""
    size = (os.path.getsize(obj) + 4095) // 4096 * 4096
    attr = struct.pack('<IIQQQQQIIQQQQII', 1, ATTR_SIZE, 0, 1000000,
                       IP | TID | TIME | CALLCHAIN | REGS_USER | STACK_USER, 0, 0, 0, 0, 0, 0, 0, X86_REGISTERS,
                       STACK, 0) + struct.pack('<QQ', 0, 0)
    data = [record(COMM, struct.pack('<II', 1, 1) + padded('bench')),
            record(MMAP2, struct.pack('<IIQQQIIQQII', 1, 1, BASE, max(size, max(offsets) + 4096), 0, 0, 0, 0, 0, 5, 2) +
                   padded(obj))]
    data += [sample(BASE + offset, 1000 + i) for i, offset in enumerate(offsets)]
    body = b''.join(data)
    head = 104
    with open(path, 'wb') as f:
        f.write(b'PERFILE2' + struct.pack('<12Q', head, len(attr), head, len(attr), head + len(attr), len(body),
                                          0, 0, 0, 0, 0, 0))
        f.write(attr)
        f.write(body)
