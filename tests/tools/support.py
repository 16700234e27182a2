"""What the tests of profctl share: sample profiles, a stand-in for the daemon's socket, a terminal."""
import http.server
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

PROFCTL = os.environ["PROFCTL"]
SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
MAKE_PROFILE = os.environ["MAKE_PROFILE"]

WEB = """\
# host: web1
# rate.reached: 99 Hz
# samples.taken: 1000
# lost.map_full: 3
@ 1796091000 60
web 10 web.service 300 main@web;handle@web;parse+next@web
web 10 web.service 200 main@web;handle@web;copy@libc.so
web 10 web.service 100 main@web;idle@web;schedule@[kernel.kallsyms]
db 20 db.service 300 main@db;scan@db;copy@libc.so
db 20 db.service 90 main@db;scan@db;scan@db
sh 30 - 10 main@sh;?@libx.so
misses db 20 5000 main@db;scan@db
"""


class Case(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="profctl-test-")
        self.addCleanup(shutil.rmtree, self.dir)
        self.env = dict(os.environ, TZ="UTC", LC_ALL="C.UTF-8")
        self.env.pop("COLUMNS", None)

    def path(self, name):
        return os.path.join(self.dir, name)

    def make(self, name, text):
        path = self.path(name)
        subprocess.run([MAKE_PROFILE, path], input=text, text=True, check=True)
        return path

    def run_ctl(self, *args, env=None, stdin=None):
        return subprocess.run([PROFCTL, *args], text=True, capture_output=True, cwd=self.dir,
                              env=env or self.env, input=stdin, timeout=240)

    def ok(self, *args, **kw):
        r = self.run_ctl(*args, **kw)
        self.assertEqual((r.returncode, r.stderr), (0, ""))
        return r.stdout

    def refused(self, status, *args, **kw):
        """One line on stderr, nothing on stdout; the line."""
        r = self.run_ctl(*args, **kw)
        self.assertEqual((r.returncode, r.stdout), (status, ""), r.stderr)
        self.assertEqual(r.stderr.count("\n"), 1, r.stderr)
        return r.stderr.rstrip("\n")


class Daemon:
    """Answers GET requests on a Unix socket from a table: path without query -> (status, body), or a function
    of the whole path that returns one."""

    def __init__(self, path, answers):
        self.path, self.answers, self.asked = path, answers, []
        daemon = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                daemon.asked.append((self.path, self.headers.get("Authorization")))
                answer = daemon.answers.get(self.path.split("?")[0], (404, b"no such thing\n"))
                status, body = answer(self.path) if callable(answer) else answer
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def address_string(self):
                return "peer"

            def log_message(self, *args):
                pass

        class Server(http.server.ThreadingHTTPServer):
            address_family = socket.AF_UNIX

            def server_bind(self):
                self.socket.bind(path)
                self.server_address = path
                self.server_name, self.server_port = "unix", 0

            def handle_error(self, request, client_address):
                pass  # a client that went away

            def get_request(self):
                request, _ = self.socket.accept()
                return request, ("peer", 0)

        self.server = Server(path, Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class Screen:
    """A program in a terminal of a fixed size: tmux with a server of its own."""

    def __init__(self, case, command, width=100, height=24, name="tmux"):
        self.socket = case.path(name)
        self.case = case
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", str(width), "-y", str(height),
                  "-e", "TZ=UTC", "-e", "LC_ALL=C.UTF-8", " ".join(command) + "; echo status $?; cat")
        case.addCleanup(self.tmux, "kill-server", check=False)
        self.tmux("set-option", "-g", "escape-time", "0")

    def tmux(self, *args, check=True):
        env = dict(os.environ, LC_ALL="C.UTF-8", TERM="xterm-256color")
        env.pop("TMUX", None)
        return subprocess.run(["tmux", "-S", self.socket, *args], check=check, text=True, capture_output=True,
                              env=env).stdout

    def keys(self, *keys):
        self.tmux("send-keys", *keys)

    def resize(self, width, height):
        self.tmux("resize-window", "-x", str(width), "-y", str(height))

    def text(self):
        lines = [line.rstrip() for line in self.tmux("capture-pane", "-p").split("\n")]
        while lines and not lines[-1]:
            lines.pop()
        return "\n".join(lines) + "\n"

    def wait(self, wanted, timeout=120):
        """Until the screen is `wanted` (a text, or a function that says so); fails with the last screen."""
        test = wanted if callable(wanted) else lambda text: text == wanted
        deadline = time.monotonic() + timeout
        while True:
            text = self.text()
            if test(text):
                return text
            if time.monotonic() > deadline:
                if callable(wanted):
                    self.case.fail("the screen stays:\n" + text)
                self.case.assertEqual(text, wanted)
            time.sleep(0.02)


def main():
    if len(sys.argv) == 1:
        sys.argv.append("-v")
    unittest.main(module="__main__")
