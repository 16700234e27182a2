"""What the end-to-end tests share: a real profd on this kernel, in directories of its own, and readers of what it
writes that share no code with it."""
import gzip
import http.client
import json
import math
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

SKIP = 77  # what meson takes as "skipped"
BUILD = os.environ["PROFD_BUILD"]
PROFD = os.path.join(BUILD, "daemon", "profd")
PROFCTL = os.path.join(BUILD, "tools", "profctl")
PROGRAMS = os.path.join(BUILD, "tests", "programs")


def skip(why):
    print(f"skipped: {why}")
    sys.exit(SKIP)


def check(condition, what):
    if not condition:
        print(f"FAILED: {what}")
        sys.exit(1)
    print(f"ok: {what}")


def wait_until(condition, seconds, what):
    """Polls, so that no test depends on how fast the machine is; fails when it has not come about at all."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.05)
    print(f"FAILED: {what} did not happen within {seconds} s")
    sys.exit(1)


LIFE = "7200"  # seconds that a workload would live; it is killed when the test is through with it


class Work:
    """A program at work, from its "ready" to the end of the block; what is started before does not count."""

    def __init__(self, command, **how):
        self.command, self.how = command, how

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, text=True, **self.how)
        self.pid = self.process.pid
        for line in self.process.stdout:
            if line == "ready\n":
                return self
        self.stop()
        print(f"FAILED: {self.command} does not get ready: it ended with {self.process.returncode}")
        sys.exit(1)

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        self.process.kill()
        self.process.wait()


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Daemon:
    """A profd with its own state directory, socket and configuration; stopped and removed at the end."""

    def __init__(self, config="", state=None, args=()):
        if os.geteuid() != 0:
            skip("needs root: perf events of the whole host")
        self.dir = tempfile.mkdtemp(prefix="profd-e2e-")
        os.chmod(self.dir, 0o755)
        self.state = state or os.path.join(self.dir, "state")
        os.makedirs(self.state, exist_ok=True)
        self.socket = os.path.join(self.dir, "sock")
        self.config = os.path.join(self.dir, "profd.conf")
        with open(self.config, "w", encoding="utf-8") as f:
            f.write(config)
        self.log = os.path.join(self.dir, "log")
        self.args = list(args)
        self.process = None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()
        if os.environ.get("PROFD_KEEP"):
            print(f"kept: {self.dir}")
        else:
            shutil.rmtree(self.dir, ignore_errors=True)

    def start(self):
        with open(self.log, "a", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [PROFD, "--config", self.config, "--state-dir", self.state, "--socket", self.socket, *self.args],
                stderr=log, stdout=log)
        wait_until(self.is_up, 120, "profd starts")

    def is_up(self):
        if self.process.poll() is not None:
            print(self.logged())
            print(f"FAILED: profd ended with {self.process.returncode}")
            sys.exit(1)
        try:
            return self.get("/api/v1/status", timeout=5)[0] == 200
        except OSError:
            return False

    def stop(self, how=signal.SIGTERM):
        """Returns the exit status."""
        if not self.process:
            return None
        if self.process.poll() is None:
            self.process.send_signal(how)
        try:
            status = self.process.wait(120)
        except subprocess.TimeoutExpired:
            self.process.kill()
            print(self.logged())
            print("FAILED: profd does not stop")
            sys.exit(1)
        self.process = None
        return status

    def logged(self):
        with open(self.log, encoding="utf-8", errors="replace") as f:
            return f.read()

    def get(self, path, timeout=60):
        c = UnixConnection(self.socket, timeout)
        try:
            c.request("GET", path)
            r = c.getresponse()
            return r.status, r.read()
        finally:
            c.close()

    def status(self):
        return json.loads(self.get("/api/v1/status")[1])

    def collect(self, seconds, query=""):
        """A live profile of the next seconds."""
        status, body = self.get(f"/api/v1/profile?seconds={seconds}{query}", timeout=seconds + 120)
        check(status == 200, f"a collection of {seconds} s is answered ({status} {body[:200] if status != 200 else ''})")
        return Profile(body)

    def windows(self):
        return sorted(f for f in os.listdir(self.state) if f.endswith(".pb.gz"))

    def profctl(self, *args, check_status=True):
        r = subprocess.run([PROFCTL, args[0], "--socket", self.socket, *args[1:]], capture_output=True, text=True,
                           check=False)
        if check_status and r.returncode != 0:
            print(r.stdout, r.stderr)
            print(f"FAILED: profctl {' '.join(args)} ended with {r.returncode}")
            sys.exit(1)
        return r


# -- an independent reader of pprof, straight from profile.proto --


def fields(data):
    """(field number, value) of a protobuf message; value is an int or bytes."""
    i, n = 0, len(data)

    def varint():
        nonlocal i
        value = shift = 0
        while True:
            b = data[i]
            i += 1
            value |= (b & 127) << shift
            shift += 7
            if b < 128:
                return value

    while i < n:
        tag = varint()
        wire = tag & 7
        if wire == 0:
            yield tag >> 3, varint()
        elif wire == 2:
            size = varint()
            yield tag >> 3, data[i:i + size]
            i += size
        elif wire == 1:
            yield tag >> 3, int.from_bytes(data[i:i + 8], "little")
            i += 8
        else:
            yield tag >> 3, int.from_bytes(data[i:i + 4], "little")
            i += 4


def packed(value):
    if isinstance(value, int):
        return [value]
    out, i = [], 0
    while i < len(value):
        v = shift = 0
        while True:
            b = value[i]
            i += 1
            v |= (b & 127) << shift
            shift += 7
            if b < 128:
                break
        out.append(v)
    return out


class Sample:
    def __init__(self, stack, values, labels):
        self.stack = stack    # function names, leaf first, inlined ones included
        self.values = values  # sample type -> value
        self.labels = labels


class Profile:
    def __init__(self, data):
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
        strings, types, samples, locations, functions, mappings, comments = [], [], [], {}, {}, {}, []
        self.duration_ns = 0
        for number, value in fields(data):
            if number == 6:
                strings.append(value.decode("utf-8", "replace"))
            elif number == 1:
                types.append(dict(fields(value)))
            elif number == 2:
                samples.append(list(fields(value)))
            elif number == 3:
                m = dict(fields(value))
                mappings[m[1]] = m
            elif number == 4:
                location = list(fields(value))
                locations[dict(location)[1]] = location
            elif number == 5:
                f = dict(fields(value))
                functions[f[1]] = f
            elif number == 10:
                self.duration_ns = value
            elif number == 13:
                comments += packed(value)
        self.types = [strings[t.get(1, 0)] for t in types]
        self.comments = [strings[c] for c in comments]
        self.mappings = [strings[m.get(5, 0)] for m in mappings.values()]
        names = {i: strings[f.get(2, 0)] for i, f in functions.items()}
        self.files = {strings[f.get(2, 0)]: strings[f.get(4, 0)] for f in functions.values()}
        chains = {}
        for i, location in locations.items():
            lines = [dict(fields(v)) for n, v in location if n == 4]
            chains[i] = [names[line[1]] for line in lines]
        self.samples = []
        for sample in samples:
            ids = [i for n, v in sample if n == 1 for i in packed(v)]
            values = [i for n, v in sample if n == 2 for i in packed(v)]
            labels = {}
            for n, v in sample:
                if n == 3:
                    label = dict(fields(v))
                    labels[strings[label[1]]] = strings[label[2]] if 2 in label else label.get(3, 0)
            self.samples.append(Sample([name for i in ids for name in chains[i]], dict(zip(self.types, values)),
                                       labels))

    def ledger(self, key):
        """The number behind "key: " in the comments."""
        for comment in self.comments:
            if comment.startswith(key + ": "):
                return int(comment.split(": ")[1])
        return 0

    def lost(self):
        return sum(int(c.split(": ")[1]) for c in self.comments if c.startswith("lost."))

    def count(self, where=lambda s: True):
        return sum(s.values["samples"] for s in self.samples if where(s))


def go_top(path, home, *options):
    """Own and cumulative samples of each function, as `go tool pprof` counts them in a file."""
    top = subprocess.run(["go", "tool", "pprof", "-top", *options, "-sample_index=samples", "-nodecount=100000",
                          "-nodefraction=0", path], capture_output=True, text=True, check=True,
                         env={**os.environ, "HOME": home})
    counts = {}
    for line in top.stdout.splitlines():
        m = re.match(r"\s*(\d+)\s+\S+%\s+\S+%\s+(\d+)\s+\S+%\s+(.*)", line)
        if m:
            name = re.sub(r" \((partial-)?inline\)$", "", m.group(3))
            counts[name] = (counts.get(name, (0, 0))[0] + int(m.group(1)), int(m.group(2)))
    return counts


def of_pid(pid):
    return lambda s: s.labels.get("pid") == pid


def has(function):
    return lambda s: any(name == function for name in s.stack)


def interval(share, n, z=3.89):
    """Half width of the binomial interval; z = 3.89 is wrong by chance once in 10,000 runs."""
    return z * math.sqrt(share * (1 - share) / n) if n else 1.0


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
        after = f.read().rsplit(")", 1)[1].split()
    return (int(after[11]) + int(after[12])) / os.sysconf("SC_CLK_TCK")


def busy_seconds():
    """CPU time of all CPUs that was not idle, in seconds since boot."""
    with open("/proc/stat", encoding="utf-8") as f:
        t = [int(x) for x in f.readline().split()[1:9]]
    return (sum(t) - t[3] - t[4]) / os.sysconf("SC_CLK_TCK")
