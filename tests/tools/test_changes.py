"""diff and changes: what changed is found, what is noise is not ranked."""
import json
import os
import re
import unittest

import support
from support import Case, Daemon, WEB

LATER = WEB.replace("300 main@web;handle@web;parse+next@web", "500 main@web;handle@web;parse+next@web").replace(
    "1796091000", "1796091060")


class Diff(Case):
    def setUp(self):
        super().setUp()
        self.a, self.b = self.make("a.pb.gz", WEB), self.make("b.pb.gz", LATER)

    def test_text(self):
        self.assertEqual(self.ok("diff", self.a, self.b), """\
# A: cpu 10.0 s, 1,000 samples; web1, 2026-12-01 02:10:00 to 02:11:00 UTC
# B: cpu 12.0 s, 1,200 samples; web1, 2026-12-01 02:11:00 to 02:12:00 UTC
# 2 of 5 functions changed
#
#     A        B    change       95 % interval   CPUs A   CPUs B  function
 30.00%   41.67%   +11.67%    +7.66 ..  +15.61%    0.050    0.083  next (web)
 50.00%   41.67%    -8.33%   -12.48 ..   -4.15%    0.083    0.083  copy (libc.so)
#
# Within the noise of sampling, without a rank:
 10.00%    8.33%    -1.67%    -4.14 ..   +0.74%    0.017    0.017  schedule ([kernel.kallsyms])
  9.00%    7.50%    -1.50%    -3.86 ..   +0.80%    0.015    0.015  scan (db)
  1.00%    0.83%    -0.17%    -1.08 ..   +0.66%    0.002    0.002  libx.so+0x1234 (libx.so)
""")

    def test_equal_runs_have_no_changes(self):
        text = self.ok("diff", self.a, self.a)
        self.assertIn("# 0 of 5 functions changed\n#\n# Within the noise", text)

    def test_noise_is_faint_on_a_terminal(self):
        s = support.Screen(self, [support.PROFCTL, "diff", self.a, self.b], width=110)
        s.wait(lambda t: "status 0" in t)
        lines = s.tmux("capture-pane", "-p", "-e").split("\n")
        self.assertFalse(any("\x1b[2m" in line for line in lines if "next (web)" in line))
        # The terminal tells a style where it begins: at the first of these lines.
        self.assertTrue(any("\x1b[2m" in line for line in lines if "schedule" in line))

    def test_absolute(self):
        text = self.ok("diff", "--absolute", self.a, self.b)
        self.assertIn("# 1 of 5 functions changed", text)
        row = next(line for line in text.split("\n") if line.endswith("next (web)")).split()
        self.assertEqual(row[:3], ["0.05", "0.08333", "+0.03333"])
        self.assertLess(float(row[3]), 0.0333)
        self.assertGreater(float(row[3]), 0)

    def test_by_unit(self):
        text = self.ok("diff", "--by", "unit", self.a, self.b)
        self.assertRegex(text, r"\n 60\.00%   66\.67%    \+6\.67%  .*  web\.service\n")
        self.refused(2, "diff", "--by", "nonsense", self.a, self.b)

    def test_flame_graph(self):
        self.ok("diff", "--flamegraph", "d.html", self.a, self.b)
        with open(self.path("d.html")) as f:
            self.assertTrue("valueBefore" in f.read())

    def test_ranges_of_stored_time(self):
        with open(self.a, "rb") as f:
            a = f.read()
        with open(self.b, "rb") as f:
            b = f.read()
        daemon = Daemon(self.path("sock"), {
            "/api/v1/profile": lambda path: (200, a if "since=1796083200" in path else b)})
        self.addCleanup(daemon.close)
        text = self.ok("diff", "2026-12-01..2026-12-01 01:00", "2026-12-01 02:00..2026-12-01 03:00", "--socket",
                       self.path("sock"))
        self.assertIn("# 2 of 5 functions changed", text)
        self.assertIn("until=1796086800.", daemon.asked[0][0])
        self.assertIn("since=1796090400.", daemon.asked[1][0])

    def test_what_cannot_be_compared(self):
        self.refused(2, "diff", self.a)
        self.assertIn("neither a file nor a range", self.refused(2, "diff", self.a, "/no/such"))
        self.refused(2, "diff", self.a, "03:00..02:00")
        empty = self.make("empty.pb.gz", "@ 1796091000 60\n")
        r = self.run_ctl("diff", self.a, empty)
        self.assertEqual((r.returncode, r.stdout), (1, ""))
        self.assertIn("nothing to compare with", r.stderr)


def window(minute, web_pid, web_build, hot):
    return ("@ %d 60\n" % (1796091000 + 60 * minute) +
            "web %d web.service %d main@web^%s;hot@web^%s\n" % (web_pid, hot, web_build, web_build) +
            "web %d web.service 500 main@web^%s;cold@web^%s\n" % (web_pid, web_build, web_build) +
            "db 20 db.service 400 main@db;scan@db\n" +
            "cron %d cron.service 10 main@cron\n" % (1000 + minute))


class Changes(Case):
    def test_an_upgrade_with_a_restart_is_found(self):
        for i in range(8):
            old = i < 4
            self.make("w%d.pb.gz" % i, window(i, 10 if old else 99, "aaaa" if old else "bbbb", 300 if old else 600))
        text = self.ok("changes", self.dir)
        self.assertEqual(re.findall(r"^2026.*$", text, re.M), [
            "2026-12-01 02:14:00 UTC  /usr/bin/web was replaced: build ID aaaa became bbbb",
            "2026-12-01 02:14:00 UTC  web.service was restarted"])
        # 300 of 1,210 before, 600 of 1,510 after; of the unit 300 of 800 and 600 of 1,100.
        self.assertRegex(text, r" 24\.79%   39\.74% .* hot \(web\)")
        self.assertRegex(text, r" 37\.50%   54\.55% .* hot \(web\)")
        self.assertNotIn("scan", text)
        self.assertNotIn("cron", text)

    def test_processes_that_come_and_go_are_no_restart(self):
        for i in range(8):
            self.make("w%d.pb.gz" % i, window(i, 10, "aaaa", 300))
        self.assertEqual(self.refused(0, "changes", self.dir),
                         "profctl: nothing was seen to be upgraded or restarted from 2026-12-01 02:10:00 to "
                         "02:18:00 UTC")

    def test_two_builds_at_once_are_no_upgrade(self):
        for i in range(8):
            self.make("w%d.pb.gz" % i, window(i, 10, "aaaa" if i % 2 else "bbbb", 300))
        self.assertIn("nothing was seen", self.refused(0, "changes", self.dir))

    def test_from_the_daemon(self):
        profiles, windows = {}, []
        for i in range(6):
            old = i < 3
            with open(self.make("w.pb.gz", window(i, 10 if old else 99, "aaaa", 300 if old else 600)), "rb") as f:
                profiles[i] = f.read()
            windows.append({"id": str(i), "start_ns": (1796091000 + 60 * i) * 10**9, "duration_ns": 60 * 10**9,
                            "samples": 1})

        def profile(path):
            since, until = (float(x) for x in re.search(r"since=([0-9.]+)&until=([0-9.]+)", path).groups())
            touched = [i for i in range(6) if 1796091000 + 60 * i < until and 1796091060 + 60 * i > since]
            return 200, profiles[touched[0]]

        daemon = Daemon(self.path("sock"), {"/api/v1/windows": (200, json.dumps(
            {"windows": windows, "gaps": [], "more": False}).encode()), "/api/v1/profile": profile})
        self.addCleanup(daemon.close)
        text = self.ok("changes", "--socket", self.path("sock"), "--since", "2026-11-01")
        self.assertIn("2026-12-01 02:13:00 UTC  web.service was restarted", text)
        self.assertIn("hot (web)", text)
        self.assertTrue(any("unit=web.service" in path for path, _ in daemon.asked))


if __name__ == "__main__":
    support.main()
