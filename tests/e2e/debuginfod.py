"""A stripped program runs, and is named only after its debug file has come: from a debuginfod server, by profctl
debuginfod, then from a package. Without a restart of either, and whatever other servers do."""
import http.server
import os
import re
import shutil
import subprocess
import threading

from harness import PROFCTL, Daemon, Work, check, wait_until
from stripped import Program, wait_for_names, window_of

CONFIG = ("[Sampling]\nFrequency=199\nEvents=cycles\n[Store]\nWindow=5s\n[Limits]\nCpu=50%%\n"
          "[Symbols]\nDebugDirectories=%s %s\n")


class Server(http.server.ThreadingHTTPServer):
    def __init__(self, answer):
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer, self.asked = answer, []
        threading.Thread(target=self.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server_port}"


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        m = re.fullmatch(r"/buildid/([0-9a-f]+)/debuginfo", self.path)
        self.server.asked.append(m.group(1) if m else self.path)
        try:
            self.server.answer(self, m.group(1) if m else "")
        except (BrokenPipeError, ConnectionResetError):
            pass

    def log_message(self, *_):
        pass

    def send(self, status, body=b"", headers=()):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def fetch(*args):
    r = subprocess.run([PROFCTL, "debuginfod", "--socket", d.socket, "--cache", cache, "--once", *args],
                       capture_output=True, text=True, check=False, env=env, timeout=300)
    print(r.stdout + r.stderr, end="")
    return r


def stripped(name):
    program = Program(d.dir, name)
    os.remove(program.full)  # nothing else may name it
    return program


def read(path):
    with open(path, "rb") as f:
        return f.read()


def forget():
    shutil.rmtree(os.path.join(cache, ".missing"))


def cached(program):
    return os.path.exists(program.id_path(cache))


env = {k: v for k, v in os.environ.items() if k not in ("DEBUGINFOD_URLS", "http_proxy", "https_proxy")}
with Daemon() as d:
    cache, packages = os.path.join(d.dir, "fetched"), os.path.join(d.dir, "packages")
    os.mkdir(packages)
    with open(d.config, "w", encoding="utf-8") as f:
        f.write(CONFIG % (packages, cache))
    d.stop()
    d.start()
    first = stripped("first")
    second = stripped("second")
    with Work([first.path]) as one, Work([second.path]) as two:
        name, p = wait_until(lambda: window_of(d, one.pid) and window_of(d, two.pid), 300, "a window with both programs")
        check(not any("the_outer_one" in s.stack for s in p.samples), "stripped programs have no names of functions")

        def wrong(handler, build_id):
            """What servers do that are broken or hostile, each for one of the build IDs."""
            if build_id == first.id:
                handler.send(200, read(second.debug))
            elif build_id == second.id:
                handler.send(200, b"<html>it works</html>" * 1000)
            else:
                handler.send(404)

        server = Server(wrong)
        r = fetch("--server", server.url)
        check(r.returncode == 0 and "has another build ID" in r.stderr and "is not an ELF file" in r.stderr
              and "2 refused" in r.stderr, "another file's debug information and garbage are refused, and said")
        asked = len(server.asked)
        check(asked == len(set(server.asked)) and first.id in server.asked, "each build ID is asked for once")
        fetch("--server", server.url)
        check(first.id not in server.asked[asked:], "and not again on the same day")

        forget()

        def endless(handler, build_id):
            handler.send_response(200)
            handler.end_headers()
            while build_id in (first.id, second.id):
                handler.wfile.write(b"\\0" * 65536)

        r = fetch("--server", Server(endless).url, "--max-size", "8M")
        check("is larger than --max-size" in r.stderr and not cached(first), "an answer without an end is given up")
        forget()
        r = fetch("--server", Server(lambda h, _: h.send(302, b"", [("Location", "file:///etc/passwd")])).url)
        check(r.returncode == 1 and not cached(first), "a server cannot have a local file read")
        r = fetch("--server", "http://127.0.0.1:1")
        check(r.returncode == 1 and r.stderr.count("http://127.0.0.1:1: ") == 1,
              "a server that cannot be reached is said once")
        r = fetch("--server", Server(lambda h, _: h.send(503)).url)
        check(r.returncode == 1 and "503" in r.stderr, "so is one that is out of order")
        check("unavailable" not in r.stderr and os.listdir(os.path.join(cache, ".missing")) == [],
              "neither is taken for a server that has no such file")

        good = Server(lambda h, i: h.send(200, read(first.debug)) if i == first.id else h.send(404))
        env["DEBUGINFOD_URLS"] = f"ima:enforcing http://127.0.0.1:1 {good.url}/"
        fetch()
        check(cached(first) and not cached(second), "the variable names servers, which are asked in turn")
        wait_for_names(d, one.pid, "the program is named, with inlined functions and lines, while it runs on")
        name, p = window_of(d, two.pid) or wait_until(lambda: window_of(d, two.pid), 300, "a window")
        check(not any(s.labels.get("pid") == two.pid and "the_outer_one" in s.stack for s in p.samples),
              "the other one is not")

        os.makedirs(os.path.dirname(second.id_path(packages)))
        os.rename(second.debug, second.id_path(packages))
        wait_for_names(d, two.pid, "a package that is installed names the other one")

        # Files in use do not make room for others.
        size = os.stat(first.id_path(cache)).st_blocks * 512
        third = stripped("third")
        with Work([third.path]) as three:
            wait_until(lambda: window_of(d, three.pid), 300, "a window with the third program")
            full = Server(lambda h, i: h.send(200, read(third.debug)) if i == third.id else h.send(404))
            r = fetch("--server", full.url, "--max-size", str(size + 1))
            check("is full of files that are in use" in r.stderr and cached(first) and not cached(third),
                  "a full cache keeps what is in use, and says that it is full")
