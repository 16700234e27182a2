"""profctl on files and on a stand-in for the daemon: exit statuses, messages, golden text."""
import json
import os
import re
import shutil
import socket
import threading
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

    def test_help_of_a_command(self):
        self.assertEqual(self.ok("help", "report"), self.ok("report", "--help"))
        self.assertEqual(self.ok("help"), self.ok("--help"))
        self.refused(2, "help", "nonsense")

    def test_man_pages_and_completion_know_the_options_of_each_command(self):
        with open(os.path.join(support.SOURCE, "packaging/completions/profctl")) as f:
            completion = f.read()
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
        self.assertIn("perhaps 'flamegraph'", self.refused(2, "flame"))
        for verb in VERBS:
            self.assertIn("--help", self.refused(2, verb, "--no-such-option"))
        self.assertEqual(self.refused(2, "report", "--last", "x"),
                         "profctl report: 'x' is not a valid time for --last; see: profctl report --help")
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
        self.assertIn("not a pprof file", self.refused(1, "report", self.path("junk")))
        os.mkdir(self.path("empty"))
        self.assertIn("no profile (*.pb.gz)", self.refused(1, "report", self.path("empty")))


class Mishaps(Case):
    """Wrong input and things in the way: what is said, the status, and that nothing is lost."""

    def setUp(self):
        super().setUp()
        self.web = self.make("web.pb.gz", WEB)

    def file(self, name, data=b""):
        with open(self.path(name), "wb") as f:
            f.write(data)
        return self.path(name)

    def test_a_source_is_one(self):
        for verb in ["report"], ["dump"], ["flamegraph"], ["annotate", "main"], ["list"], ["changes"]:
            for option in ["--socket", "/run/x"], ["--host", "https://x"]:
                self.assertIn("give one of them", self.refused(2, *verb, *option, self.web))
        self.assertIn("goes with no file as " + self.web, self.refused(2, "report", "--for", "1s", self.web))

    def test_habits_from_other_profilers(self):
        for args, said in ((["record", "-p", "1"], "profctl report --for 10s --pid N"), (["record", "--pid=1"], "--pid N"),
                           (["record", "-a", "sleep", "1"], "--for 10s;"), (["record", "-g", "--", "ls"], "always recorded"),
                           (["report", "-i", self.web], "profctl report FILE"), (["record", "--call-graph=dwarf", "ls"], "always"),
                           (["list", "--inputs"], "no option --inputs;")):
            self.assertIn(said, self.refused(2, *args))

    def test_times(self):
        def said(*args):
            return self.refused(2, "report", *args, self.web)
        self.assertIn("'5min' is not a valid time for --since: write '5min ago', or --last '5min'", said("--since", "5min"))
        self.assertIn("'' is not a valid time for --since;", said("--since", ""))
        self.assertIn("begin in the future", said("--since", "tomorrow"))
        self.assertIn("is not before --until", said("--since", "10:00", "--until", "09:00"))
        self.assertIn("'0s' is not a valid time for --for: out of range", said("--for", "0s"))
        for form in "-5min", "5 min ago", "today", "yesterday", "@1796137745", "2026-12-01", "2026-12-01T02:10Z":
            self.assertEqual(self.run_ctl("report", "--since", form, "--until", "2030-01-01", self.web).returncode, 0)
        self.assertIn("whose begin is before its end", self.refused(2, "diff", "10:00..09:00", self.web))

    def test_files_that_are_no_profile(self):
        with open(self.web, "rb") as f:
            whole = f.read()
        for name, data, said in (("empty", b"", "it is empty"), ("perf.data", b"PERFILE2" + bytes(96), "perf report"),
                                 ("ls", b"\x7fELF" + bytes(96), "profctl record"),
                                 ("page", b"<!DOCTYPE html>", "a page for a browser"),
                                 ("text", b"hello, world", "it is not a pprof file, or is damaged"),
                                 ("cut.pb.gz", whole[:-20], "cut short")):
            for verb in "report", "dump", "flamegraph", "list":
                line = self.refused(1, verb, self.file(name, data))
                self.assertTrue(line.startswith("profctl: cannot read %s: " % self.path(name)) and said in line, line)
        self.assertIn(self.path("none"), self.refused(1, "report", self.web, self.path("none")))
        self.assertIn("no FUNCTION given", self.refused(2, "annotate", self.web))

    def test_a_file_that_is_there_outlives_what_fails(self):
        old = {e: self.file("old" + e, b"precious") for e in (".folded", ".html", ".pb.gz")}
        for args in (["dump", "-o", old[".folded"], self.path("none")],
                     ["dump", "-o", old[".folded"], self.file("junk", b"junk")],
                     ["dump", "-o", old[".folded"], "--event", "nonsense", self.web],
                     ["flamegraph", "-o", old[".html"], self.path("none")],
                     ["diff", "--flamegraph", old[".html"], self.web, self.path("junk")],
                     ["record", "-o", old[".pb.gz"], "--socket", self.path("none"), "--", "true"]):
            self.assertEqual(self.run_ctl(*args).returncode, 1, args)
        self.assertIn("no samples", self.refused(0, "dump", "-o", old[".folded"], "--pid", "7", self.web))
        for path in old.values():
            with open(path, "rb") as f:
                self.assertEqual(f.read(), b"precious", path)
        self.assertEqual([n for n in os.listdir(self.dir) if n.endswith(".tmp")], [])

    def test_what_cannot_be_written_is_said_before_the_work(self):
        # No daemon is there: what is said is the file, not the daemon.
        nowhere = self.path("none/out")
        for args in (["dump", "-o", nowhere + ".folded"], ["flamegraph", "-o", nowhere + ".html"],
                     ["diff", "--flamegraph", nowhere + ".html", self.web, self.web],
                     ["record", "-o", nowhere + ".pb.gz", "--", "touch", self.path("ran")]):
            self.assertIn("cannot write %s" % nowhere, self.refused(1, *args))
        self.assertFalse(os.path.exists(self.path("ran")))
        self.assertIn("cannot write : No such file", self.refused(1, "flamegraph", "-o", "", self.web))
        os.mkdir(self.path("d.folded"))
        self.assertIn("Is a directory", self.refused(1, "dump", "-o", self.path("d.folded"), self.web))

    def test_a_full_device(self):
        with open("/dev/full", "wb") as full:
            for args in (["report", self.web], ["dump", "-f", "folded", self.web], ["flamegraph", self.web],
                         ["list", self.web], ["diff", self.web, self.web], ["--help"], ["report", "--help"], ["--version"]):
                r = support.subprocess.run([support.PROFCTL, *args], stdout=full, stderr=support.subprocess.PIPE, text=True)
                self.assertEqual((r.returncode, r.stderr), (
                    1, "profctl: cannot write to the standard output: No space left on device\n"), args)
        self.assertEqual(self.refused(1, "dump", "-f", "folded", "-o", "/dev/full", self.web),
                         "profctl: cannot write /dev/full: No space left on device")

    def test_a_reader_that_goes_is_no_failure(self):
        for args in ["report", self.web], ["dump", "-f", "folded", self.web], ["--help"]:
            read, write = os.pipe()
            os.close(read)
            r = support.subprocess.run([support.PROFCTL, *args], stdout=write, stderr=support.subprocess.PIPE, text=True)
            os.close(write)
            self.assertEqual((r.returncode, r.stderr), (0, ""), args)

    def test_a_file_keeps_its_mode_and_a_link_its_target(self):
        target = self.file("target.folded")
        os.chmod(target, 0o600)
        os.symlink(target, self.path("link.folded"))
        self.ok("dump", "-o", self.path("link.folded"), self.web)
        self.assertTrue(os.path.islink(self.path("link.folded")))
        self.assertEqual(os.stat(target).st_mode & 0o777, 0o600)
        self.assertGreater(os.stat(target).st_size, 100)

    def test_standard_streams(self):
        folded = self.ok("dump", "-f", "folded", self.web)
        self.assertEqual(self.ok("dump", "-f", "folded", "-o", "-", self.web), folded)
        # /dev/stdout may be a file that others go on writing to: nothing takes its place.
        before = os.lstat("/dev/stdout").st_ino
        with open(self.path("log"), "w+") as log:
            log.write("before\n")
            log.flush()
            r = support.subprocess.run([support.PROFCTL, "dump", "-f", "folded", "-o", "/dev/stdout", self.web], stdout=log)
            self.assertEqual(r.returncode, 0)
            log.seek(0)
            self.assertEqual(log.read(), "before\n" + folded)
        self.assertEqual(os.lstat("/dev/stdout").st_ino, before)
        with open(self.web, "rb") as f:
            r = support.subprocess.run([support.PROFCTL, "report", "-"], stdin=f, capture_output=True, text=True, env=self.env)
        self.assertEqual(r.stdout, self.ok("report", self.web))

    def test_a_page_is_no_image(self):
        for ending in ".svg", ".png", ".folded", ".pb.gz":
            self.assertIn("HTML", self.refused(2, "flamegraph", "-o", self.path("x" + ending), self.web))
            self.assertFalse(os.path.exists(self.path("x" + ending)))

    def test_processes_that_are_not(self):
        self.assertEqual(self.refused(1, "symbolize", "4194305", "0"), "profctl: there is no process 4194305")
        status = {"/api/v1/status": (200, json.dumps(STATUS).encode())}
        daemon = Daemon(self.path("s"), status)
        self.addCleanup(daemon.close)
        self.assertIn("no samples of pid 4194305",
                      self.refused(0, "report", "--socket", self.path("s"), "--pid", "4194305"))

    def test_no_samples_says_what_this_user_sees(self):
        restricted = json.dumps({"version": "0.1.0", "restricted": True, "note": "n"}).encode()
        daemon = Daemon(self.path("s"), {"/api/v1/status": (200, restricted)})
        self.addCleanup(daemon.close)
        line = self.refused(0, "report", "--socket", self.path("s"), "--pid", "1")
        self.assertIn("no samples of pid 1 from ", line)
        self.assertTrue(line.endswith("; you see the samples of your own processes: use sudo, or join the group profd, to "
                                      "see all"), line)
        line = self.refused(0, "report", "--socket", self.path("s"), "--until", "2026-12-01 02:10")
        self.assertIn("no samples until 2026-12-01 02:10:00 UTC; ", line)

    def test_a_host_that_is_not_there(self):
        line = self.refused(1, "report", "--host", "https://localhost:1")
        self.assertIn("cannot read from https://localhost:1: ", line)
        self.assertTrue(line.endswith("; does profd run there, with Listen= in its configuration?"), line)

    def test_a_host_that_is_asked_in_the_wrong_way(self):
        server = socket.create_server(("localhost", 0))
        self.addCleanup(server.close)

        def close_each():
            try:
                while True:
                    connection = server.accept()[0]
                    connection.recv(65536)
                    connection.close()
            except OSError:
                pass  # the end of the test
        threading.Thread(target=close_each, daemon=True).start()
        at = "localhost:%d" % server.getsockname()[1]
        self.assertTrue(self.refused(1, "status", "--host", "http://" + at).endswith("over TCP is https://"))
        self.assertTrue(self.refused(1, "status", "--host", at, "--ca", "/none").endswith("look at the file of --ca"))

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

    def test_the_object_with_most_samples_comes_first(self):
        # pprof tools take the first mapping for the program. The library is in more frames here.
        path = self.make("main.pb.gz", "prog 1 - 90 start@libc.so;start2@libc.so;main@prog;hot@prog\n"
                                       "prog 1 - 10 start@libc.so;start2@libc.so;main@prog;sort@libc.so;sort2@libc.so\n")
        if not shutil.which("go"):
            self.skipTest("needs go")
        env = dict(self.env, HOME=self.dir, PPROF_TMPDIR=self.dir)
        text = support.subprocess.run(["go", "tool", "pprof", "-top", path], env=env, capture_output=True, text=True).stdout
        self.assertEqual(text.splitlines()[0], "File: prog")

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
        self.assertIn("not a profile", self.refused(1, "report", "--socket", self.socket))

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
