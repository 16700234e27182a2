"""annotate and symbolize on a program made here; instructions as objdump has them, names as addr2line has them."""
import os
import re
import subprocess
import time

import support
from support import Case, MAKE_PROFILE

SOURCE = """\
#include <unistd.h>

static inline __attribute__((always_inline)) unsigned mix(unsigned x)
{
	x ^= x >> 7;
	return x * 2654435761u;
}

__attribute__((noinline)) unsigned work(unsigned n)
{
	unsigned sum = 0;
	for (unsigned i = 0; i < n; i++)
		sum += mix(i) ^ n;
	return sum;
}

int main(int argc, char **argv)
{
	unsigned r = work(argc);
	if (argc > 1) {
		write(1, "x", 1);
		pause();
	}
	return r == 7;
}
"""


class Program(Case):
    def setUp(self):
        super().setUp()
        self.source = self.path("prog.c")
        self.program = self.path("prog")
        with open(self.source, "w") as f:
            f.write(SOURCE)
        subprocess.run(["gcc", "-g", "-O2", "-Wno-unused-result", "-o", self.program, self.source], check=True)
        notes = subprocess.run(["readelf", "-n", self.program], text=True, capture_output=True).stdout
        self.build_id = re.search(r"Build ID: ([0-9a-f]+)", notes).group(1)
        text = subprocess.run(["objdump", "-d", "--no-show-raw-insn", self.program], text=True,
                              capture_output=True).stdout
        body = re.search(r"<work>:\n(.*?)\n\n", text, re.S).group(1)
        self.code = {int(a, 16): (op, args.split()[0] if args else "") for a, op, args in
                     re.findall(r"^ *([0-9a-f]+):\t(\S+)[ \t]*([^\n]*)$", body, re.M)}

    def chain(self, address):
        """addr2line's chain, innermost first: [(function, line)]."""
        text = subprocess.run(["addr2line", "-fie", self.program, hex(address)], text=True,
                              capture_output=True).stdout.split("\n")
        return [(text[i], int(text[i + 1].rsplit(":", 1)[1].split()[0])) for i in range(0, len(text) - 1, 2)]

    def sample(self, address, n):
        frames = "+".join("%s:%d" % f for f in reversed(self.chain(address)))
        return "prog 1 - %d main:18@%s;%s#%x@%s^%s\n" % (n, self.program, frames, address, self.program,
                                                         self.build_id)

    def profile(self, text):
        path = self.path("p.pb.gz")
        subprocess.run([MAKE_PROFILE, path, self.source], input=text, text=True, check=True)
        return path


class Annotate(Program):
    def setUp(self):
        super().setUp()
        inlined = [a for a in self.code if len(self.chain(a)) == 2 and self.chain(a)[0] == ("mix", 6)]
        own = [a for a in self.code if len(self.chain(a)) == 1 and self.chain(a)[0][1] in (12, 13)]
        self.inlined, self.own = inlined[0], own[-1]
        self.file = self.profile(self.sample(self.inlined, 70) + self.sample(self.own, 30) +
                                 "prog 1 - 100 other@" + self.program + "\n")

    def test_instructions_and_their_shares(self):
        text = self.ok("annotate", "work", self.file)
        shown = {int(a, 16): (share, op, args) for share, a, op, args in
                 re.findall(r"^ *(\d+\.\d\d%)? +([0-9a-f]+):  (\S+) *(\S*)", text, re.M)}
        self.assertEqual(sorted(shown), sorted(self.code))
        self.assertEqual(shown[self.inlined][0], "70.00%")
        self.assertEqual(shown[self.own][0], "30.00%")
        self.assertEqual(sum(1 for s in shown.values() if s[0]), 2)
        for a, (op, args) in self.code.items():
            # AT&T in both; they differ in size suffixes, and in how they write numbers.
            self.assertEqual(shown[a][1].rstrip("qlwb")[:3], op.rstrip("qlwb")[:3], hex(a))
        self.assertIn("work: 1.0 s, 50.00% of all, 100 samples\n", text)

    def test_inlined_code_is_under_its_own_name(self):
        text = self.ok("annotate", "work", self.file)
        before = text[:text.index("%8x:" % self.inlined)].rstrip().split("\n")
        heading = [line for line in before if "prog.c:" in line][-1]
        self.assertEqual(heading.strip(), "mix (inlined)  prog.c:6")

    def test_source_lines(self):
        text = self.ok("annotate", "work", "--no-asm", self.file)
        line = dict(self.chain(self.own))["work"]
        outer = self.chain(self.inlined)[1][1]
        shares = {line: [30, 30]}
        shares.setdefault(outer, [0, 0])[1] += 70
        own = text[text.index("work  " + self.source):text.index("mix (inlined)")]
        for number, (self_share, all_share) in shares.items():
            want = ("%6.2f%%" % self_share if self_share else " " * 7) + " %6.2f%% %6d  " % (all_share, number)
            self.assertIn(want, own)
        self.assertIn(" 70.00%              6          return x * 2654435761u;\n", text)
        self.assertNotIn("Disassembly", text)

    def test_another_event_beside(self):
        misses = self.sample(self.own, 400).replace("prog 1 - 400", "misses prog 1 400")
        misses += self.sample(self.inlined, 100).replace("prog 1 - 100", "misses prog 1 100")
        file = self.profile(self.sample(self.inlined, 70) + self.sample(self.own, 30) + misses)
        text = self.ok("annotate", "work", file)
        self.assertIn("work: 1.0 s, 100.00% of all, 100 samples; other: cache-misses, 500\n", text)
        self.assertIn(" 30.00%%  80.00%% %8x:" % self.own, text)
        self.assertRegex(text, r" 70\.00% +20\.00% +6          return x")
        alone = self.ok("annotate", "work", "--event", "cache-misses", file)
        self.assertIn("work: 500, 100.00% of all cache-misses\n", alone)
        self.assertNotIn("other", alone)

    def test_source_elsewhere(self):
        os.mkdir(self.path("src"))
        os.rename(self.source, self.path("src/prog.c"))
        self.assertIn("--source DIR", self.ok("annotate", "work", "--no-asm", self.file))
        self.assertIn("return x * 2654435761u;", self.ok("annotate", "work", "--source", self.path("src"), self.file))

    def test_another_build_is_refused(self):
        other = self.path("other")
        os.rename(self.program, other)
        self.assertIn("the object is not here", self.ok("annotate", "work", self.file))
        self.assertIn("xor", self.ok("annotate", "work", "--object", other, self.file))
        subprocess.run(["gcc", "-g", "-O1", "-Wno-unused-result", "-o", self.program, self.source], check=True)
        self.assertIn("of another build", self.ok("annotate", "work", self.file))

    def test_which_function(self):
        self.assertIn("no function 'nonsense'", self.refused(1, "annotate", "nonsense", self.file))
        self.assertIn("several functions", self.refused(1, "annotate", "o", self.file))
        self.assertIn("never running itself", self.refused(0, "annotate", "main", self.file))
        self.assertIn("work: 1.0 s", self.ok("annotate", "wor", self.file))
        # The function that was inlined: its part of the one that holds it.
        text = self.ok("annotate", "mix", "--no-source", self.file)
        self.assertIn("mix: 700.0 ms, 35.00% of all, 70 samples\n", text)
        self.assertIn("100.00%%%9x:" % self.inlined, text)
        self.assertNotIn("%8x:" % self.own, text)


class Symbolize(Program):
    def test_a_file_as_addr2line_has_it(self):
        addresses = ["%x" % a for a in sorted(self.code)]
        want = subprocess.run(["addr2line", "-fipCe", self.program, *addresses, "0"], text=True,
                              capture_output=True).stdout
        want = re.sub(r" \(discriminator \d+\)", "", want)
        self.assertEqual(self.ok("symbolize", self.program, *addresses, "0"), want)
        self.assertEqual(self.ok("symbolize", self.program, stdin="\n".join(["0x" + a for a in addresses] + ["0"])),
                         want)

    def test_a_process_as_it_sees_its_addresses(self):
        p = subprocess.Popen([self.program, "x"], stdout=subprocess.PIPE)
        try:
            self.assertEqual(p.stdout.read(1), b"x")
            with open("/proc/%d/maps" % p.pid) as f:
                start, offset = next((int(m.split("-")[0], 16), int(m.split()[2], 16)) for m in f
                                     if self.program in m and "r-xp" in m)
            address = sorted(self.code)[0]
            chain = self.chain(address)
            # The code segment's file offset and address are the same in this program.
            os.unlink(self.program)
            text = self.ok("symbolize", "-a", str(p.pid), hex(address - offset + start), "1")
        finally:
            p.kill()
            p.wait()
        self.assertEqual(text.split("\n")[0], "0x%016x: work at %s:%d" %
                         (address - offset + start, self.source, chain[0][1]))
        self.assertEqual(text.split("\n")[1], "0x%016x: ?? ??:0" % 1)

    def test_lines_are_answered_as_they_come(self):
        p = subprocess.Popen([support.PROFCTL, "symbolize", self.program], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, text=True)
        try:
            for _ in range(2):
                p.stdin.write("%x\n" % sorted(self.code)[0])
                p.stdin.flush()
                self.assertEqual(p.stdout.readline(), "work at %s:%d\n" %
                                 (self.source, self.chain(sorted(self.code)[0])[0][1]))
        finally:
            p.stdin.close()
            p.wait()
            p.stdout.close()

    def test_what_is_no_object(self):
        self.assertIn("it is not an ELF object", self.refused(1, "symbolize", self.source, "1"))
        self.assertIn("there is no process 4194304", self.refused(1, "symbolize", "4194304", "1"))
        self.assertIn("not an address", self.refused(2, "symbolize", self.program, "xyz"))
        self.assertIn("not an address", self.refused(1, "symbolize", self.program, stdin="12\nxyz\n"))


if __name__ == "__main__":
    support.main()
