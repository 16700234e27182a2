"""profctl push against a receiver that decodes OTLP by itself and misbehaves: every sample of every window arrives
once, whatever the receiver does in between."""
import collections
import gzip
import http.server
import os
import shutil
import signal
import struct
import subprocess
import tempfile
import threading
import time

from harness import LIFE, PROFCTL, PROGRAMS, Daemon, Profile, check, fields, packed, wait_until

CONFIG = ("[Sampling]\nFrequency=199\nEvents=cycles\n"
          "[Store]\nWindow=5s\nMerge=10s 20s\nMergeAfter=%s 24h\n[Limits]\nCpu=50%%\n")
NAMES = {"pid": "process.pid", "comm": "process.executable.name", "uid": "process.user.id", "user": "process.owner",
         "unit": "systemd.unit", "pod": "k8s.pod.uid", "thread_id": "thread.id", "thread_name": "thread.name",
         "container_id": "container.id"}


def any_value(value):
    number, v = next(fields(value))
    return v.decode() if number == 1 else v


def attributes_of(resource):
    out = {}
    for number, value in fields(resource):
        if number == 1:
            pair = dict(fields(value))
            out[pair[1].decode()] = any_value(pair[2])
    return out


class Tables:
    """A ProfilesDictionary, by opentelemetry-proto 1.10.0."""

    def __init__(self, data):
        self.table = collections.defaultdict(list)
        for number, value in fields(data):
            self.table[number].append(value)
        self.strings = [s.decode() for s in self.table[5]]
        for t in range(1, 8):
            check_quiet(self.table[t] and self.table[t][0] == b"", f"entry 0 of table {t} is the empty one")
        check_quiet(len(set(self.table[6])) == len(self.table[6]), "no attribute is there twice")

    def attribute(self, i):
        f = dict(fields(self.table[6][i]))
        return self.strings[f[1]], any_value(f[2])

    def function(self, i):
        return self.strings[dict(fields(self.table[3][i])).get(1, 0)]

    def frames(self, location):
        lines = [dict(fields(v)) for n, v in fields(self.table[2][location]) if n == 3]
        return [self.function(line.get(1, 0)) for line in lines]

    def stack(self, i):
        ids = [k for n, v in fields(self.table[7][i]) if n == 1 for k in packed(v)]
        return tuple(name for k in ids for name in self.frames(k))


def check_quiet(condition, what):
    if not condition:
        raise AssertionError(what)


class Receiver(http.server.ThreadingHTTPServer):
    """Keeps, for each profile ID, the sums of its samples: what arrives twice counts once."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.profiles, self.requests, self.tokens = {}, 0, set()
        self.behave = lambda size: (200, {}, b"")
        threading.Thread(target=self.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server_port}/v1development/profiles"
        self.wrong = None

    def take(self, data):
        message = list(fields(data))
        tables = Tables(next(v for n, v in message if n == 2))
        for n, resource_profiles in message:
            if n != 1:
                continue
            parts = list(fields(resource_profiles))
            resource = attributes_of(next(v for k, v in parts if k == 1))
            check_quiet(resource["host.name"] == os.uname().nodename, "host.name")
            for k, scope in parts:
                if k != 2:
                    continue
                for m, profile in fields(scope):
                    if m == 2:
                        self.take_profile(tables, resource, list(fields(profile)))

    def take_profile(self, tables, resource, profile):
        first = {n: v for n, v in reversed(profile)}
        kind = tables.strings[dict(fields(first[1]))[1]]
        sums = collections.Counter()
        for n, value in profile:
            if n != 2:
                continue
            s = dict(fields(value))
            labels = dict(tables.attribute(i) for i in packed(s.get(2, b"")))
            if "container.id" in resource:
                labels["container.id"] = resource["container.id"]
            sums[kind, tables.stack(s.get(1, 0)), tuple(sorted(labels.items()))] += packed(s[4])[0]
        check_quiet(len(first[7]) == 16, "a profile has an ID")
        self.profiles[first[7]] = sums

    def total(self):
        out = collections.Counter()
        for sums in self.profiles.values():
            out.update(sums)
        return out


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        server = self.server
        server.requests += 1
        server.tokens.add(self.headers.get("Authorization"))
        try:
            check_quiet(self.path == "/v1development/profiles", self.path)
            check_quiet(self.headers["Content-Type"] == "application/x-protobuf", "the content's type")
            data = gzip.decompress(body)
            status, headers, answer = server.behave(len(data))
            if status == 200:
                server.take(data)
        except Exception as e:  # said by the test: a thread's own failure would be lost
            server.wrong = repr(e)
            raise
        try:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)
        except OSError:  # a sender that was killed
            pass

    def log_message(self, *_):
        pass


def stored(d, up_to):
    """The sums of the stored windows up to one, by the reader of pprof."""
    out = collections.Counter()
    for name in d.windows():
        if name.removesuffix(".pb.gz") > up_to:
            continue
        with open(os.path.join(d.state, name), "rb") as f:
            for s in Profile(f.read()).samples:
                labels = tuple(sorted((NAMES[k], v) for k, v in s.labels.items()))
                for kind, value in s.values.items():
                    if value:
                        out[kind, tuple(s.stack), labels] += value
    return out


def push(d, *args, start=False):
    command = [PROFCTL, "push", "--socket", d.socket, "--to", receiver.url, "--state", state, "--from", "@1", *args]
    if start:
        return subprocess.Popen(command, stderr=subprocess.DEVNULL)
    return subprocess.run([*command, "--once"], capture_output=True, text=True, check=False)


def cursor(key):
    with open(os.path.join(state, "cursor"), encoding="utf-8") as f:
        return dict(line.rstrip("\n").split("=", 1) for line in f)[key]


def equal(d, what):
    """What arrived is what is stored. A merge may come between the two looks: then once more."""
    for _ in range(5):
        r = push(d)
        check_quiet(r.returncode == 0, r.stderr)
        got, expected = receiver.total(), stored(d, cursor("after"))
        if +got == +expected:
            break
    check(receiver.wrong is None, f"the receiver understands what comes ({receiver.wrong})")
    samples = sum(v for k, v in expected.items() if k[0] == "samples")
    check(+got == +expected, f"{what}: {len(expected)} sums of {samples} samples are equal "
                             f"({sum((got - expected).values())} too many, {sum((expected - got).values())} missing)")


def more_windows(d):
    n = len(d.windows())
    wait_until(lambda: len(d.windows()) > n, 120, "one more window is stored")


def take_all(size):
    return 200, {}, b""


directory = tempfile.mkdtemp(prefix="profd-push-")
state = os.path.join(directory, "state")
work = subprocess.Popen([f"{PROGRAMS}/split31", LIFE], stdout=subprocess.DEVNULL)
try:
    receiver = Receiver()
    with Daemon(CONFIG % "1h") as d:
        more_windows(d)
        more_windows(d)
        receiver.behave = lambda size: (503, {"Retry-After": "1"}, b"")
        r = push(d)
        check(r.returncode == 1 and "503" in r.stderr, f"a receiver that is down: {r.stderr.splitlines()[0]}")
        check(cursor("windows") == "0" and not receiver.profiles, "nothing counts as sent")

        receiver.behave = lambda size: (200, {}, b"") if size < 60000 else (413, {}, b"")
        token = os.path.join(directory, "headers")
        with open(token, "w", encoding="utf-8") as f:
            f.write("Authorization: Bearer of-the-fleet\n")
        check(push(d, "--header-file", token).returncode == 0, "a receiver that takes small requests only")
        check("Bearer of-the-fleet" in str(receiver.tokens), "the token is shown")
        receiver.behave = take_all
        equal(d, "windows in parts")

        # killed when the receiver has it and the sender does not know: it comes again, by the same IDs
        more_windows(d)

        def kill_sender(size):
            sender.kill()
            return 200, {}, b""

        before, sent = receiver.requests, cursor("windows")
        receiver.behave = kill_sender
        sender = push(d, start=True)
        sender.wait(60)
        check(receiver.requests > before and cursor("windows") == sent, "killed with a window on its way")
        receiver.behave = take_all
        equal(d, "after a kill")

        # a sender that runs on by itself, through a restart of profd
        sender = push(d, start=True)
        d.stop(signal.SIGTERM)
        d.start()
        n = int(cursor("windows"))
        wait_until(lambda: int(cursor("windows")) > n, 120, "the sender goes on after a restart of profd")
        sender.kill()
        sender.wait()
        equal(d, "after a restart")

        # what the receiver calls wrong is counted, and not sent for ever
        more_windows(d)
        receiver.behave = lambda size: (400, {}, b"")
        r = push(d)
        check(r.returncode == 0 and int(cursor("refused")) >= 1, f"refused: {r.stderr.splitlines()[0]}")
        refused = cursor("refused")
        more_windows(d)
        # partial_success {rejected_profiles: 2, error_message: "no room"}
        receiver.behave = lambda size: (200, {}, b"\x0a\x0b\x08\x02\x12\x07no room")
        r = push(d)
        check("no room" in r.stderr and int(cursor("rejected")) >= 2, f"rejected: {r.stderr.splitlines()[0]}")
        check(cursor("refused") == refused, "that is no refusal")

    # Windows merged while the sender was away: of one that it has sent a part of, the other part comes.
    shutil.rmtree(state)
    receiver = Receiver()
    with Daemon(CONFIG % "1s") as d:

        def overlap():
            return b'"overlaps":true' in d.get(f"/api/v1/windows?after={cursor('after')}")[1].replace(b" ", b"")

        found = False
        for _ in range(10):  # a sender that was as far as the end of a merged window has none
            more_windows(d)
            equal(d, "as far as it is")
            end = time.monotonic() + 30
            while not found and time.monotonic() < end:
                found = overlap()
                time.sleep(0.1)
            if found:
                break
        check(found, "a window was merged with a part of what was sent")
        equal(d, "the rest of a merged window")

    # A state directory that is damaged
    with open(os.path.join(state, "cursor"), "w", encoding="utf-8") as f:
        f.write("nonsense\n")
    r = subprocess.run([PROFCTL, "push", "--socket", "/nonexistent", "--to", receiver.url, "--state", state],
                       capture_output=True, text=True, check=False)
    check(r.returncode == 1 and "damaged" in r.stderr, f"{r.stderr.strip()}")
finally:
    work.kill()
    work.wait()
    shutil.rmtree(directory, ignore_errors=True)
