"""profctl on files and on a stand-in for the daemon: exit statuses, messages, golden text."""
import json
import os
import re
import shutil
import unittest

import support
from support import Case, Daemon, WEB

VERBS = re.findall(r"^  (\w+) ", support.subprocess.run([support.PROFCTL, "--help"], text=True,
                                                       capture_output=True).stdout, re.M)

STATUS = {
    "version": "0.1.0", "host": "web1", "kernel": "6.1.0 x86_64", "start_ns": 1796000000000000000, "cpus": 8,
    "requested_hz": 99, "frequency_hz": 49,
    "events": [
        {"name": "cycles", "sampled": "cpu-clock", "why": "no hardware counters", "requested_hz": 99,
         "frequency_hz": 49, "cpus": 8},
        {"name": "cache-misses", "sampled": None, "why": "no hardware counters", "requested_hz": 99,
         "frequency_hz": 0, "cpus": 0}],
    "samples_taken": 1234567, "samples_delivered": 1234560,
    "losses": [{"cause": "map_full", "samples": 7, "meaning": "the stack map was full"},
               {"cause": "other", "samples": 0, "meaning": "never"}],
    "cost": {"cpu_share": 0.00123, "cpu_limit": 0.01, "daemon_cpu_seconds": 1.25, "worker_cpu_seconds": 0.5,
             "kernel_cpu_seconds": 3, "memory_bytes": 62914560, "memory_limit_bytes": 268435456,
             "resident_bytes": 20971520, "worker_resident_bytes": 10485760, "map_bytes": 31457280},
    "tracking": {"processes": 431, "objects": 1200, "unwind_tables": 900},
    "symbols": {"bad_objects": 2},
    "store": {"directory": "/var/lib/profd", "windows": 1440, "bytes": 7340032,
              "oldest_ns": 1796004600000000000, "newest_ns": 1796091000000000000, "bad_files": 1,
              "error": "disk full"},
    "notes": ["kernel names are hidden"],
}

WINDOWS = {
    "windows": [
        {"id": "20261201T021000Z_60", "start_ns": 1796091000000000000, "duration_ns": 60000000000,
         "size": 123456, "samples": 5940, "lost": 0},
        {"id": "20261201T022000Z_60", "start_ns": 1796091600000000000, "duration_ns": 60000000000,
         "size": 1234, "samples": 100, "lost": 12}],
    "gaps": [{"start_ns": 1796091060000000000, "end_ns": 1796091600000000000, "reason": "stopped"}],
    "more": False,
}


class Usage(Case):
    def test_help_fits_a_screen(self):
        self.assertGreaterEqual(len(VERBS), 5)
        for verb in [None, *VERBS]:
            text = self.ok(*([verb] if verb else []), "--help")
            self.assertLessEqual(text.count("\n"), 24, text)
            self.assertLessEqual(max(map(len, text.split("\n"))), 80, text)

    def complete(self, script, *words):
        """What bash offers for the last word; bash-completion's own functions are stood in for."""
        stand_in = """
_init_completion() { cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}
                     words=("${COMP_WORDS[@]}") cword=$COMP_CWORD; }
compopt() { :; }
"""
        call = "\nCOMP_WORDS=(%s) COMP_CWORD=%d; _profctl; printf '%%s\\n' \"${COMPREPLY[@]}\"" % (
            " ".join(words), len(words) - 1)
        return support.subprocess.run(["bash", "-c", stand_in + script + call], text=True,
                                      capture_output=True).stdout.split()

    def test_help_of_a_command(self):
        self.assertEqual(self.ok("help", "report"), self.ok("report", "--help"))
        self.assertEqual(self.ok("help"), self.ok("--help"))
        self.refused(2, "help", "nonsense")

    def test_man_pages_and_completion_know_the_options_of_each_command(self):
        with open(os.path.join(support.SOURCE, "packaging/completions/profctl")) as f:
            completion = f.read()
        self.assertEqual(self.complete(completion, "profctl", "re"), ["record", "report"])
        self.assertEqual(self.complete(completion, "profctl", "report", "--c"),
                         ["--callers", "--callees", "--ca", "--cert", "--comm", "--container"])
        self.assertEqual(self.complete(completion, "profctl", "dump", "--format", "p"), ["pprof", "perf-script"])
        self.assertEqual(self.complete(completion, "profctl", "report", "--sort", "unit,sy"), ["unit,symbol"])
        self.assertEqual(support.subprocess.run(["bash", "-n"], input=completion, text=True).returncode, 0)
        for verb in VERBS:
            own = re.findall(r"^  (?:-\w,|   ) (--[\w-]+)", self.ok(verb, "--help"), re.M)
            completed = re.search(r"^\t%s\) own=\"(.*)\" ;;$" % verb, completion, re.M).group(1).split()
            self.assertEqual([o for o in completed if o.startswith("--")][:-1 if verb in ("symbolize", "record") else None],
                             own)
            with open(os.path.join(support.SOURCE, "docs/man/profctl-%s.1.scd" % verb)) as f:
                page = f.read()
            self.assertEqual([o for o in own if "*%s*" % o not in page], [], verb)
        with open(os.path.join(support.SOURCE, "docs/man/profctl.1.scd")) as f:
            page = f.read()
        self.assertEqual([v for v in VERBS if "*%s*\n" % v not in page], [])

    def test_wrong_usage_is_status_2(self):
        self.refused(2)
        self.refused(2, "nonsense")
        for verb in VERBS:
            self.assertIn("--help", self.refused(2, verb, "--no-such-option"))
        self.assertEqual(self.refused(2, "report", "--last", "x"),
                         "profctl report: x is no time for --last; see: profctl report --help")
        self.refused(2, "report", "--last")
        self.refused(2, "report", "--for", "10s", "--last", "5min")
        self.refused(2, "report", "--since", "02:10", "--until", "02:10")
        self.refused(2, "report", "--since", "tomorrow")
        self.refused(2, "report", "--kernel-only", "--user-only")
        self.refused(2, "report", "--pid", "x")
        self.refused(2, "report", "--sort", "nonsense")
        self.refused(2, "status", "too-many")

    def test_failures_are_status_1_and_say_what_to_do(self):
        missing = self.path("none.sock")
        self.assertEqual(self.refused(1, "status", "--socket", missing),
                         "profctl: no profd is running: cannot connect to " + missing +
                         " (No such file or directory); start it with 'systemctl start profd', or as root "
                         "with 'profd'")
        self.assertIn("No such file", self.refused(1, "report", "/no/such/file"))
        with open(self.path("junk"), "w") as f:
            f.write("junk")
        self.assertIn("no pprof file", self.refused(1, "report", self.path("junk")))
        os.mkdir(self.path("empty"))
        self.assertIn("no profile (*.pb.gz)", self.refused(1, "report", self.path("empty")))


class Report(Case):
    def setUp(self):
        super().setUp()
        self.web = self.make("web.pb.gz", WEB)

    def test_table(self):
        self.assertEqual(self.ok("report", self.web), """\
# cpu: 10.0 s in 1,000 samples at 99 Hz, 3 lost
# web1, 2026-12-01 02:10:00 to 02:11:00 UTC
#
#  self      ±  children    samples  process  object             symbol
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
""")

    def test_callers_and_callees_are_of_the_row_s_process(self):
        self.assertEqual(self.ok("report", "--callers", "--callees", "-n", "3", "--sort",
                                 "process,object,symbol,children", self.web), """\
# cpu: 10.0 s in 1,000 samples at 99 Hz, 3 lost
# web1, 2026-12-01 02:10:00 to 02:11:00 UTC
#
#  self      ±  children    samples  process  object  symbol
  0.00%  0.19%    60.00%          0  web      web     main
       83.33%  to handle (web)
       16.67%  to idle (web)
  0.00%  0.19%    50.00%          0  web      web     handle
      100.00%  from main (web)
       60.00%  to parse (web)
       40.00%  to copy (libc.so)
  9.00%  1.78%    39.00%         90  db       db      scan
      100.00%  from main (db)
       23.08%  from scan (db)
       76.92%  to copy (libc.so)
       23.08%  to scan (db)
# 9 more
""")

    def test_other_keys(self):
        self.assertEqual(self.ok("report", "--sort", "unit", self.web).split("\n")[3:], [
            "#  self      ±    samples  unit",
            " 60.00%  3.03%        600  web.service",
            " 39.00%  3.02%        390  db.service",
            "  1.00%  0.64%         10  -", ""])
        self.assertEqual(self.ok("report", "--sort", "pid,process", self.web).split("\n")[4],
                         " 60.00%  3.03%        600  web       10")

    def test_no_inline(self):
        text = self.ok("report", "--no-inline", self.web)
        self.assertNotIn("next", text)
        self.assertIn(" 30.00%  2.84%    30.00%        300  web      web                parse\n", text)

    def test_selection(self):
        self.assertIn("# cpu: 3.9 s in 390 samples", self.ok("report", "--unit", "db", self.web))
        self.assertIn("# cpu: 6.0 s in 600 samples", self.ok("report", "--pid", "10", self.web))
        self.assertIn("# cpu: 1.0 s in 100 samples", self.ok("report", "--kernel-only", self.web))
        self.assertIn("# cache-misses: 5,000 at 99 Hz", self.ok("report", "--event", "cache-misses", self.web))
        self.assertEqual(self.refused(1, "report", "--event", "nonsense", self.web),
                         "profctl: the profile has no event nonsense; it has samples, cpu, cache-misses")

    def test_nothing_selected_is_no_failure(self):
        self.assertIn("no samples of pid 7", self.refused(0, "report", "--pid", "7", self.web))
        self.assertIn("from 2026-12-01 02:11:00 to 02:12:00 UTC",
                      self.refused(0, "report", "--since", "2026-12-01 02:11", "--until", "2026-12-01 02:12",
                                   self.web))

    def test_files_are_merged_by_range(self):
        later = self.make("later.pb.gz", WEB.replace("1796091000", "1796091060"))
        self.assertIn("in 2,000 samples", self.ok("report", self.web, later))
        self.assertIn("in 2,000 samples", self.ok("report", self.dir))
        text = self.ok("report", "--since", "2026-12-01 02:11", "--until", "2026-12-01 02:12", self.dir)
        self.assertIn("in 1,000 samples", text)
        self.assertIn("02:11:00 to 02:12:00", text)

    def test_rates_that_differ(self):
        for i, rate in enumerate(["99 Hz", "9 Hz (lowered)", "12 Hz"]):
            self.make("r%d.pb.gz" % i, WEB.replace("99 Hz", rate))
        os.unlink(self.web)
        self.assertIn("# cpu: 30.0 s in 3,000 samples at 9 to 99 Hz, 9 lost\n", self.ok("report", self.dir))
        self.assertIn(" at 9 Hz (lowered), 3 lost\n", self.ok("report", self.path("r1.pb.gz")))

    def test_names_cannot_command_the_terminal(self):
        evil = self.make("evil.pb.gz", "a 1 - 5 ma\x1b[31min\x07@b\x1b]0;x@c\n".replace(";x@c", "x"))
        text = self.ok("report", evil)
        self.assertNotIn("\x1b", text)
        self.assertIn("ma?[31min?", text)

    def test_time_is_in_the_local_zone(self):
        text = self.ok("report", self.web, env=dict(self.env, TZ="Europe/Berlin"))
        self.assertIn("2026-12-01 03:10:00 to 03:11:00 CET", text)


class Dump(Case):
    def setUp(self):
        super().setUp()
        self.web = self.make("web.pb.gz", WEB)

    def test_the_ending_chooses_the_format(self):
        begins = {"x.folded": b"db;", "x.speedscope.json": b"{", "x.json": b"{", "x.callgrind": b"", "x.pb.gz": b"\x1f\x8b",
                  "x.perf": b""}
        for name, begin in begins.items():
            self.assertEqual(self.ok("dump", "-o", name, self.web), "")
            with open(self.path(name), "rb") as f:
                self.assertTrue(f.read().startswith(begin) and f.tell() > 100, name)
        self.assertIn("names no format", self.refused(2, "dump", "-o", "x.unknown", self.web))
        self.refused(2, "dump", "--format", "nonsense", self.web)
        self.assertIn("cannot write", self.refused(1, "dump", "-o", "no/such/x.folded", self.web))
        self.assertEqual(sorted(os.listdir(self.dir)), sorted([*begins, "web.pb.gz"]))

    def test_selection_and_event(self):
        self.assertEqual(self.ok("dump", "--format", "folded", "--event", "samples", "--comm", "db", self.web),
                         "db;main;scan;copy 300\ndb;main;scan;scan 90\n")
        self.assertEqual(self.ok("dump", "--format", "folded", "--comm", "sh", self.web),
                         "sh;main;libx.so+0x1234 100000000\n")
        self.ok("dump", "-o", "y.pb.gz", "--unit", "web", self.web)
        self.assertIn("# cpu: 6.0 s in 600 samples", self.ok("report", "y.pb.gz"))

    def test_go_reads_what_is_written_and_counts_the_same(self):
        if not shutil.which("go"):
            self.skipTest("go is not installed (Debian: golang-go)")
        self.ok("dump", "-o", "x.pb.gz", self.web)
        text = support.subprocess.run(["go", "tool", "pprof", "-top", "-sample_index=samples", "-nodecount=1000",
                                       "x.pb.gz"], cwd=self.dir, text=True, capture_output=True,
                                      env=dict(self.env, HOME=self.dir)).stdout
        theirs = {m[2].replace(" (inline)", ""): (int(m[0]), int(m[1])) for m in
                  re.findall(r"^ *(\d+) +\S+% +\S+% +(\d+) +\S+%  (.*)$", text, re.M)}
        ours = {}
        for line in self.ok("report", "--sort", "object,symbol", "--event", "samples", self.web).split("\n")[4:-1]:
            share, _, children, samples, _, name = line.replace(" (inlined)", "").split(None, 5)
            old = ours.get(name, (0, 0))
            ours[name] = (old[0] + int(samples), old[1] + round(float(children[:-1]) * 10))
        self.assertEqual({k: v for k, v in ours.items() if "+0x" not in k},
                         {k: v for k, v in theirs.items() if "0x" not in k and "[" not in k})

    def test_flame_graph(self):
        self.ok("flamegraph", "-o", "x.html", "--title", "A <title>", self.web)
        with open(self.path("x.html")) as f:
            text = f.read()
        self.assertTrue("A \\u003ctitle>" in text and "<title>A" not in text)
        self.assertTrue("schedule" in text)
        self.assertEqual(re.findall(r"(?:src|href)=", text), [])

    def test_report_timeline(self):
        self.make("later.pb.gz", WEB.replace("1796091000", "1796091060").replace("300 main@web", "900 main@web"))
        self.make("last.pb.gz", WEB.replace("1796091000", "1796091180"))
        self.assertEqual(self.ok("report", "--timeline", "--sort", "process", self.dir), """\
# cpu: 36.0 s in 3,600 samples at 99 Hz, 9 lost
# web1, 2026-12-01 02:10:00 to 02:14:00 UTC
#   all    most  02:10:00 to 02:14:00
# 2026-12-01 02:10:00 to 02:14:00 UTC; a column is 60.0 s; each line is scaled to its own most; '.': no data
 66.67%  75.00% |\u2586\u2588.\u2586| web
 32.50%  39.00% |\u2588\u2585.\u2588| db
  0.83%   1.00% |\u2588\u2585.\u2588| sh
""")

    def test_list_of_files(self):
        self.assertEqual(self.ok("list", self.web).split("\n")[1][:60],
                         "2026-12-01 02:10:00 UTC        60.0 s        1,000         3")


class FromDaemon(Case):
    def setUp(self):
        super().setUp()
        with open(self.make("web.pb.gz", WEB), "rb") as f:
            self.profile = f.read()
        self.socket = self.path("sock")
        self.answers = {
            "/api/v1/status": (200, json.dumps(STATUS).encode()),
            "/api/v1/windows": (200, json.dumps(WINDOWS).encode()),
            "/api/v1/profile": (200, self.profile),
        }
        self.daemon = Daemon(self.socket, self.answers)
        self.addCleanup(self.daemon.close)

    def test_status(self):
        text = self.ok("status", "--socket", self.socket)
        self.assertEqual(re.sub(r"for .*", "for a while", text), """\
       profd: 0.1.0 on web1, Linux 6.1.0 x86_64, 8 CPUs
       since: 2026-11-30 00:53:20, for a while
        rate: 49 Hz a CPU; 99 Hz asked, lowered to keep to its budget
      events: cycles as cpu-clock on 8 CPUs: no hardware counters
              cache-misses is off: no hardware counters
     samples: 1,234,567 taken, 1,234,560 delivered
        lost: 7 by map_full: the stack map was full
         CPU: 0.123 % of all CPUs; at most 1 %; in all 3.0 s kernel part, 1.2 s daemon, 0.5 s symbolizer
      memory: 60.0 MiB; at most 256.0 MiB (daemon 20.0 MiB, symbolizer 10.0 MiB, kernel maps 30.0 MiB)
      tracks: 431 processes, 1,200 objects, 900 unwind tables; 2 objects could not be read
      stored: 1,440 windows, 7.0 MiB, 2026-11-30 02:10:00 to 2026-12-01 02:10:00 UTC in /var/lib/profd
              1 file there is damaged or not profd's, and left alone
              trouble: disk full
        note: kernel names are hidden
""")
        self.assertEqual(json.loads(self.ok("status", "--json", "--socket", self.socket)), STATUS)

    def test_list(self):
        self.assertEqual(self.ok("list", "--socket", self.socket), """\
start                          length      samples      lost        size
2026-12-01 02:10:00 UTC        60.0 s        5,940         0   120.6 KiB
2026-12-01 02:11:00 UTC    9 min 00 s  no data: stopped
2026-12-01 02:20:00 UTC        60.0 s          100        12     1.2 KiB
2 windows, 6,040 samples, 12 lost, 121.8 KiB
""")

    def test_list_turns_pages(self):
        first = dict(WINDOWS, windows=WINDOWS["windows"][:1], more=True)
        second = dict(WINDOWS, windows=WINDOWS["windows"][1:], gaps=[])
        self.answers["/api/v1/windows"] = lambda path: (200, json.dumps(
            second if "after=20261201T021000Z_60" in path else first).encode())
        self.assertIn("2 windows, 6,040 samples", self.ok("list", "--socket", self.socket))

    def test_a_range_is_asked_for(self):
        self.assertIn("in 1,000 samples", self.ok(
            "report", "--socket", self.socket, "--since", "2026-11-01 02:10", "--until", "2026-11-01 02:15",
            "--unit", "a b", "--pid", "10"))
        path = self.daemon.asked[-1][0]
        self.assertIn("since=1793499000.000000000&until=1793499300.000000000", path)
        self.assertIn("pid=10", path)
        self.assertIn("unit=a%20b", path)

    def test_a_collection_is_asked_for(self):
        self.ok("report", "--socket", self.socket, "--for", "10s", "--event", "cpu")
        self.assertIn("seconds=10.000", self.daemon.asked[-1][0])

    def test_nothing_stored_names_what_is(self):
        self.answers["/api/v1/profile"] = (404, b"nothing\n")
        self.assertIn("stored is 2026-11-30 02:10:00 to 2026-12-01 02:10:00 UTC",
                      self.refused(0, "report", "--socket", self.socket, "--unit", "x"))

    def test_refusals_are_passed_on(self):
        self.answers["/api/v1/profile"] = (403, b"not yours\nmore\n")
        self.assertEqual(self.refused(1, "report", "--socket", self.socket),
                         "profctl: profd at %s: not yours" % self.socket)
        self.answers["/api/v1/profile"] = (200, b"no profile")
        self.assertIn("no profile", self.refused(1, "report", "--socket", self.socket))

    def test_top_once(self):
        text = self.ok("top", "--once", "--socket", self.socket, "-n", "2", "--delay", "500ms")
        self.assertEqual(text, """\
profctl top: web1 02:11:00, by function, every 500.0 ms
cpu: 10.0 s in 1,000 samples at 99 Hz, 3 lost; 0.17 of 8 CPUs busy
profd: 0.12% CPU, 60.0 MiB; 431 processes

   self      ±  children    samples  object             symbol
 50.00%  3.09%    50.00%        500  libc.so            copy
 30.00%  2.84%    30.00%        300  web                next (inlined)
""")
        self.assertIn("  web       10\n", self.ok("top", "--once", "--by", "process", "--socket", self.socket))

    def test_token(self):
        with open(self.path("token"), "w") as f:
            f.write("secret\n")
        self.ok("status", "--socket", self.socket, "--token-file", self.path("token"))
        self.assertEqual(self.daemon.asked[-1][1], "Bearer secret")
        self.assertIn("cannot read the token",
                      self.refused(1, "status", "--socket", self.socket, "--token-file", "/none"))


if __name__ == "__main__":
    support.main()
