"""report and top in a terminal: scripted keys, literal screens."""
import json
import os

import support
from support import Case, Daemon, PROFCTL, Screen, WEB
from test_annotate import Program
from test_profctl import STATUS

HEAD = """\
cpu: 10.0 s in 1,000 samples at 99 Hz, 3 lost
web1, 2026-12-01 02:10:00 to 02:11:00 UTC
"""
TABLE_KEYS = "Enter callers, callees  a annotate  / filter  s self  c children  n name  i inlined  h help  q quit"
EDGE_KEYS = "Enter its callers, callees  a annotate  Esc back  h help  q quit"


class Browser(Case):
    def setUp(self):
        super().setUp()
        self.web = self.make("web.pb.gz", WEB)

    def start(self, *args, **size):
        return Screen(self, [PROFCTL, "report", *args, self.web], **size)

    def test_table_and_edges(self):
        s = self.start(height=20)
        table = HEAD + """\
   self      ±  children    samples  process  object             symbol
 30.00%  2.84%    30.00%        300  db       libc.so            copy
 30.00%  2.84%    30.00%        300  web      web                next (inlined)
 20.00%  2.48%    20.00%        200  web      libc.so            copy
 10.00%  1.86%    10.00%        100  web      [kernel.kallsyms]  schedule
  9.00%  1.78%    39.00%         90  db       db                 scan
  1.00%  0.64%     1.00%         10  sh       libx.so            libx.so+0x1234
  0.00%  0.19%    60.00%          0  web      web                main
  0.00%  0.19%    50.00%          0  web      web                handle
  0.00%  0.19%    39.00%          0  db       db                 main
  0.00%  0.19%    30.00%          0  web      web                parse
  0.00%  0.19%    10.00%          0  web      web                idle
  0.00%  0.19%     1.00%          0  sh       sh                 main
""" + "\n" * 4 + TABLE_KEYS + "\n"
        s.wait(table)
        s.keys("Down", "Down", "Enter")
        s.wait(HEAD + """\
    all  of this
 20.00%  100.00%  from handle (web)
 20.00%           copy (libc.so)
""" + "\n" * 14 + EDGE_KEYS + "\n")
        # The caller's own callers and callees, in all processes.
        s.keys("Up", "Enter")
        s.wait(HEAD + """\
    all  of this
 50.00%  100.00%  from main (web)
 50.00%           handle (web)
 30.00%   60.00%    to parse (web)
 20.00%   40.00%    to copy (libc.so)
""" + "\n" * 12 + EDGE_KEYS + "\n")
        s.keys("Escape")
        s.wait(lambda t: "from handle (web)" in t)
        s.keys("BSpace")
        s.wait(table)
        s.keys("q")
        s.wait(lambda t: "status 0" in t)

    def test_a_terminal_without_a_cursor_gets_plain_text(self):
        for term in ["dumb", "no-such-terminal"]:
            s = Screen(self, ["TERM=" + term, PROFCTL, "report", self.web], name=term)
            s.wait(lambda t: "# cpu: 10.0 s" in t and "schedule" in t and "status 0" in t)

    def test_filter_sort_and_inlines(self):
        s = self.start(height=16)
        s.wait(lambda t: "schedule" in t)
        s.keys("/", "c", "o", "p", "y")
        s.wait(lambda t: t.endswith("show lines with: copy_\n"))
        s.keys("Enter")
        s.wait(HEAD.rstrip("\n") + """; lines with "copy"
   self      ±  children    samples  process  object             symbol
 30.00%  2.84%    30.00%        300  db       libc.so            copy
 20.00%  2.48%    20.00%        200  web      libc.so            copy
""" + "\n" * 10 + TABLE_KEYS + "\n")
        s.keys("Escape", "c")
        s.wait(lambda t: t.split("\n")[3].endswith("web      web                main"))
        s.keys("n")
        s.wait(lambda t: t.split("\n")[3].endswith("db       libc.so            copy"))
        s.keys("s", "i")
        s.wait(lambda t: "(inlined)" not in t and t.split("\n")[4].endswith("parse"))

    def test_help_resize_and_movement(self):
        s = self.start(height=10)
        s.wait(lambda t: "schedule" in t and "main" not in t)
        s.keys("End")
        s.wait(lambda t: t.split("\n")[8].endswith("sh       sh                 main"))
        s.keys("h")
        s.wait(lambda t: "Enter                        callers and callees of the line" in t
               or "profctl report" in t)
        s.resize(100, 30)
        s.wait(lambda t: "Any key goes back." in t)
        s.keys("x")
        s.wait(lambda t: "copy" in t and "sh       sh                 main" in t)
        s.resize(40, 8)
        s.wait(lambda t: max(map(len, t.split("\n"))) <= 40 and t.count("\n") == 8 and "…" in t)
        s.keys("q")
        s.wait(lambda t: "status 0" in t)


class Annotate(Program):
    def setUp(self):
        super().setUp()
        self.hot = next(a for a in self.code if self.chain(a)[0] == ("mix", 6))
        self.file = self.profile(self.sample(self.hot, 70))

    def test_from_the_browser_and_alone(self):
        s = Screen(self, [PROFCTL, "report", self.file], width=90, height=30)
        s.wait(lambda t: "mix (inlined)" in t)
        s.keys("a")
        s.wait(lambda t: t.startswith("mix: 700.0 ms, 100.00% of all, 70 samples\n") and t.count("of all, 70") == 1 and "return x * 2654435761u;" in t
               and "n colder" in t)
        s.keys("q", "n", "Home")
        s.wait(lambda t: "annotate  / filter" in t)
        s.keys("a")  # main, the first by name
        s.wait(lambda t: "main was never running itself, only what it calls" in t)
        s.keys("q")
        s.wait(lambda t: "status 0" in t)
        s = Screen(self, [PROFCTL, "annotate", "work", self.file], width=90, height=12, name="second")
        s.wait(lambda t: "100.00%              6          return x" in t)
        s.keys("n")
        s.wait(lambda t: "%x:" % self.hot in t)
        s.keys("q")
        s.wait(lambda t: "status 0" in t)


class Top(Case):
    def setUp(self):
        super().setUp()
        with open(self.make("web.pb.gz", WEB), "rb") as f:
            self.profile = f.read()
        with open(self.make("later.pb.gz", WEB.replace("next", "later")), "rb") as f:
            self.later = f.read()
        self.answers = {"/api/v1/status": (200, json.dumps(STATUS).encode()),
                        "/api/v1/profile": (200, self.profile)}
        self.daemon = Daemon(self.path("sock"), self.answers)
        self.addCleanup(self.daemon.close)

    def start(self, **size):
        return Screen(self, [PROFCTL, "top", "--delay", "100ms", "--socket", self.path("sock")], **size)

    def test_screen(self):
        s = self.start(width=110, height=12)
        s.wait("""\
profctl top: web1 02:11:00, by function, every 100.0 ms
cpu: 10.0 s in 1,000 samples at 99 Hz, 3 lost; 0.17 of 8 CPUs busy
profd: 0.12% CPU, 60.0 MiB; 431 processes
   self      ±  children    samples  object             symbol
 50.00%  3.09%    50.00%        500  libc.so            copy
 30.00%  2.84%    30.00%        300  web                next (inlined)
 10.00%  1.86%    10.00%        100  [kernel.kallsyms]  schedule
  9.00%  1.78%    39.00%         90  db                 scan
  1.00%  0.64%     1.00%         10  libx.so            libx.so+0x1234
  0.00%  0.19%    60.00%          0  web                main
  0.00%  0.19%    50.00%          0  web                handle
f function  p process  u unit  o object  s self  c children  / filter  Space pause  h help  q quit
""")
        s.keys("p")
        s.wait(lambda t: t.split("\n")[3:7] == [
            "   self      ±    samples  process  pid",
            " 60.00%  3.03%        600  web       10",
            " 39.00%  3.02%        390  db        20",
            "  1.00%  0.64%         10  sh        30"])
        s.keys("u")
        s.wait(lambda t: " 60.00%  3.03%        600  web.service" in t)
        s.keys("f", "/", "sche", "Enter")
        s.wait(lambda t: "lines with \"sche\"" in t and "schedule" in t and "copy" not in t)
        s.keys("Escape")
        s.wait(lambda t: "copy" in t)
        s.keys("q")
        s.wait(lambda t: "status 0" in t)

    def test_help_resize_and_an_interrupt(self):
        s = self.start(width=60, height=8)
        s.wait(lambda t: t.count("\n") == 8 and max(map(len, t.split("\n"))) <= 60 and "…" in t and "copy" in t)
        s.keys("h")
        s.wait(lambda t: "Each line: the share of samples" in t)
        s.resize(110, 30)
        s.wait(lambda t: "Any key goes back." in t)
        s.keys("x")
        s.wait(lambda t: "libx.so+0x1234" in t and t.count("\n") == 30)
        s.keys("C-c")
        s.wait(lambda t: "status 0" in t)

    def test_pause_stops_the_collections(self):
        s = self.start()
        s.wait(lambda t: "next" in t)
        s.keys("Space")
        s.wait(lambda t: ", paused" in t)
        before = None
        while before != len(self.daemon.asked):  # one may be under way
            before = len(self.daemon.asked)
            s.wait(lambda t, start=support.time.monotonic(): support.time.monotonic() > start + 0.5)
        self.answers["/api/v1/profile"] = (200, self.later)
        s.keys("Space")
        s.wait(lambda t: "later" in t and "paused" not in t)

    def test_a_daemon_that_goes_is_said(self):
        s = self.start()
        s.wait(lambda t: "copy" in t)
        self.answers["/api/v1/profile"] = (503, b"profd is stopping\n")
        s.wait(lambda t: "profd is stopping" in t and "status 1" in t)


if __name__ == "__main__":
    support.main()
