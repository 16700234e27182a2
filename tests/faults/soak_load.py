"""What a busy host does to a profiler, in small: programs that come and go, objects that nobody has seen before,
readers of all kinds, reloads, and a worker that is killed. One step at a time."""
import http.server
import os
import pty
import random
import re
import select
import shutil
import signal
import socket
import subprocess
import threading
import time

from harness import LIFE, PROFCTL, PROGRAMS, Work

VERBS = ["status", "list", "report", "report --callers --timeline --stdio", "report --last 1min --stdio",
         "report --for 1s --stdio", "dump -f pprof -o OUT", "dump -f folded -o OUT", "dump -f speedscope -o OUT",
         "dump -f callgrind -o OUT", "dump --last 1min -f pprof -o STORED", "flamegraph -o OUT",
         "annotate hot_three --stdio", "diff STORED STORED", "changes", "doctor", "top --once",
         "record -o OUT -- /bin/true", "symbolize /bin/ls 1000", "push -1 -t HTTP/v1development/profiles -s HOME",
         "debuginfod -1 -s HTTP -d HOME/debug"]
OFFLINE = ("diff", "symbolize")
PATHS = ["/metrics", "/api/v1/status", "/api/v1/windows", "/api/v1/profile?seconds=1", "/debug/pprof/profile?seconds=1",
         "/nothing"]


class Receiver(http.server.BaseHTTPRequestHandler):
    """Takes what is pushed, and has no debug file."""

    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_GET(self):
        self.send_error(404)

    def log_message(self, *_):
        pass


class Load:
    def __init__(self, d, configs, before_kill, without=(), seed=1):
        """without: verbs that do not work here; before_kill: returns the workers, which may take its time."""
        self.d, self.configs, self.before_kill = d, configs, before_kill
        self.verbs = [v for v in VERBS if v.split()[0] not in without]
        self.random = random.Random(seed)
        self.home = os.path.join(d.dir, "load")
        os.makedirs(self.home)
        self.done, self.bad = {}, []
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        with open(f"{PROGRAMS}/split31", "rb") as f:
            self.program = f.read()
        self.note = re.search(rb"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0", self.program)
        self.verb = self.path = self.reload = self.made = 0
        self.work = self.busy = None
        self.over = threading.Event()

    def __enter__(self):
        self.work = Work([f"{PROGRAMS}/split31", LIFE])
        self.work.__enter__()
        self.busy = threading.Thread(target=self.pulse, daemon=True)
        self.busy.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.busy.join()
        self.work.stop()
        self.server.shutdown()

    def pulse(self):
        """A program that has a tenth of a CPU."""
        while not self.over.is_set():
            for sig, seconds in ((signal.SIGSTOP, .9), (signal.SIGCONT, .1)):
                os.kill(self.work.pid, sig)
                time.sleep(seconds)
        os.kill(self.work.pid, signal.SIGCONT)

    # -- the steps --

    def processes(self):
        for _ in range(15):
            subprocess.run(["/bin/true"], check=True)

    def objects(self):
        """Programs that differ in their build ID, as so many builds would; each has samples of its own."""
        for _ in range(3):
            path = os.path.join(self.home, f"object{self.made % 50}")
            if os.path.exists(path):
                os.unlink(path)
            at = self.note.end()
            with open(path, "wb") as f:
                f.write(self.program[:at] + self.made.to_bytes(20, "big") + self.program[at + 20:])
            os.chmod(path, 0o755)
            self.made += 1
            p = subprocess.Popen([path, LIFE], stdout=subprocess.DEVNULL)
            time.sleep(0.15)
            p.kill()
            p.wait()

    def ask(self):
        words = self.verbs[self.verb % len(self.verbs)]
        self.verb += 1
        for name, value in (("OUT", f"{self.home}/out"), ("STORED", f"{self.home}/stored.pb.gz"),
                            ("HTTP", f"http://127.0.0.1:{self.server.server_address[1]}"), ("HOME", self.home)):
            words = words.replace(name, value)
        words = words.split()
        if words[0] not in OFFLINE:
            words[1:1] = ["--socket", self.d.socket]
        elif not os.path.exists(f"{self.home}/stored.pb.gz") and words[0] == "diff":
            return
        r = subprocess.run([PROFCTL, *words], capture_output=True, timeout=300, check=False,
                           env={**os.environ, "PAGER": "cat"})
        said = r.stderr.decode("utf-8", "replace")
        if r.returncode != 0 and not (r.returncode == 1 and (said.startswith("profctl: ") or words[0] == "doctor")):
            self.bad.append(f"profctl {' '.join(words)} ended with {r.returncode}: {said[-600:]}")

    def screen(self):
        """`profctl top` on a terminal, for some frames."""
        pid, fd = pty.fork()
        if pid == 0:
            os.environ["TERM"] = "xterm"
            os.execv(PROFCTL, [PROFCTL, "top", "--socket", self.d.socket, "-d", "1s"])
        end = time.monotonic() + 3
        asked = False
        while True:
            if time.monotonic() > end and not asked:
                os.write(fd, b"q")
                asked, end = True, end + 60
            elif time.monotonic() > end:
                os.kill(pid, signal.SIGKILL)
                self.bad.append("profctl top does not end")
                break
            try:
                if select.select([fd], [], [], 0.2)[0] and not os.read(fd, 65536):
                    break
            except OSError:
                break
        os.waitpid(pid, 0)
        os.close(fd)

    def connect(self):
        s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        s.settimeout(120)
        s.connect(self.d.socket)
        return s

    def request(self):
        self.path += 1
        return f"GET {PATHS[self.path % len(PATHS)]} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode()

    def scrape(self):
        for path in PATHS:
            self.d.get(path, timeout=120)

    def slow(self):
        """Reads some hundred bytes at a time, and no more after a while."""
        with self.connect() as s:
            s.sendall(self.request())
            for _ in range(10):
                if not s.recv(300):
                    break
                time.sleep(0.1)

    def aborted(self):
        """Gone before the answer, within the request, or without one."""
        with self.connect() as s:
            s.sendall(self.request())
        with self.connect() as s:
            s.sendall(self.request()[:20])
        with self.connect():
            pass

    def reload_config(self):
        self.reload += 1
        with open(self.d.config, "w", encoding="utf-8") as f:
            f.write(self.configs[self.reload % len(self.configs)])
        self.d.process.send_signal(signal.SIGHUP)

    def kill_worker(self):
        for pid in self.before_kill():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    # -- all of them --

    def round(self, n, pause):
        """Each step once, the rarer ones now and then, in another order each time; a pause after each, which is what
        makes the load light."""
        steps = [self.processes, self.objects, self.ask, self.ask, self.ask, self.slow, self.aborted, self.scrape]
        if n % 3 == 2:
            steps += [self.screen, self.reload_config]
        if n % 4 == 3:
            steps.append(self.kill_worker)
        self.random.shuffle(steps)
        for step in steps:
            step()
            self.done[step.__name__] = self.done.get(step.__name__, 0) + 1
            time.sleep(pause)

    def clean(self):
        shutil.rmtree(self.home, ignore_errors=True)
