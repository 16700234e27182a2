"""A stripped program runs, and is named only after its debug file has come: from a debuginfod server, by profctl
debuginfod, then from a package. Without a restart of either, and whatever other servers do."""
import http.server
import os
import re
import shutil
import subprocess
import threading

from harness import PROFCTL, Daemon, Profile, Work, check, of_pid, wait_until

CONFIG = ("[Sampling]\nFrequency=199\nEvents=cycles\n[Store]\nWindow=5s\n[Limits]\nCpu=50%%\n"
          "[Symbols]\nDebugDirectories=%s %s\n")
SOURCE = """#include <stdio.h>
static volatile unsigned long sink;
__attribute__((always_inline)) static inline void the_inlined_one(unsigned long n)
{
        for (unsigned long i = 0; i < n; i++)
                sink += i * i;
}
__attribute__((noinline)) static void the_outer_one(void)
{
        the_inlined_one(1000000);
}
int main(void)
{
        puts("ready");
        fflush(stdout);
        for (;;)
                the_outer_one();
}
"""


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


def build(directory, name, salt):
    """A stripped program, its debug file, its build ID."""
    source, full = os.path.join(directory, "outer.c"), os.path.join(directory, name + ".full")
    stripped, debug = os.path.join(directory, name), os.path.join(directory, name + ".debug")
    with open(source, "w", encoding="utf-8") as f:
        f.write(SOURCE + f"int salt_{salt};\n")
    subprocess.run(["cc", "-O2", "-g", "-Wl,--build-id", "-o", full, source], check=True)
    subprocess.run(["objcopy", "--only-keep-debug", full, debug], check=True)
    subprocess.run(["strip", "-o", stripped, full], check=True)
    notes = subprocess.run(["readelf", "-n", full], capture_output=True, text=True, check=True).stdout
    os.remove(full)  # nothing else may name it
    with open(debug, "rb") as f:
        return stripped, f.read(), re.search(r"Build ID: ([0-9a-f]+)", notes).group(1)


def newest():
    windows = d.windows()
    if not windows:
        return None
    try:
        with open(os.path.join(d.state, windows[-1]), "rb") as f:
            return windows[-1], Profile(f.read())
    except FileNotFoundError:
        return None


def window_of(pid, seen=()):
    """A window, not one of those seen, with enough samples of the process."""
    found = newest()
    if found and found[0] not in seen and found[1].count(of_pid(pid)) >= 50:
        return found
    return None


def wait_for_names(pid, what):
    """Windows until one has the whole inline chain for nearly all samples."""
    def named():
        found = window_of(pid)
        if not found:
            return None
        p = found[1]
        n = sum(s.values["samples"] for s in p.samples if s.labels.get("pid") == pid
                and ("the_inlined_one", "the_outer_one") in zip(s.stack, s.stack[1:]))
        return n > 0.9 * p.count(of_pid(pid)) and p.files["the_outer_one"].endswith("outer.c")
    wait_until(named, 300, what)
    print(f"ok: {what}")


def fetch(*args):
    r = subprocess.run([PROFCTL, "debuginfod", "--socket", d.socket, "--cache", cache, "--once", *args],
                       capture_output=True, text=True, check=False, env=env, timeout=300)
    print(r.stdout + r.stderr, end="")
    return r


def forget():
    shutil.rmtree(os.path.join(cache, ".missing"))


def cached(build_id):
    return os.path.exists(os.path.join(cache, ".build-id", build_id[:2], build_id[2:] + ".debug"))


env = {k: v for k, v in os.environ.items() if k not in ("DEBUGINFOD_URLS", "http_proxy", "https_proxy")}
with Daemon() as d:
    cache, packages = os.path.join(d.dir, "fetched"), os.path.join(d.dir, "packages")
    os.mkdir(packages)
    with open(d.config, "w", encoding="utf-8") as f:
        f.write(CONFIG % (packages, cache))
    d.stop()
    d.start()
    first, first_debug, first_id = build(d.dir, "first", 1)
    second, second_debug, second_id = build(d.dir, "second", 2)
    with Work([first]) as one, Work([second]) as two:
        name, p = wait_until(lambda: window_of(one.pid) and window_of(two.pid), 300, "a window with both programs")
        check(not any("the_outer_one" in s.stack for s in p.samples), "stripped programs have no names of functions")

        def wrong(handler, build_id):
            """What servers do that are broken or hostile, each for one of the build IDs."""
            if build_id == first_id:
                handler.send(200, second_debug)
            elif build_id == second_id:
                handler.send(200, b"<html>it works</html>" * 1000)
            else:
                handler.send(404)

        server = Server(wrong)
        r = fetch("--server", server.url)
        check(r.returncode == 0 and "has another build ID" in r.stderr and "is no ELF file" in r.stderr
              and "2 refused" in r.stderr, "another file's debug information and garbage are refused, and said")
        asked = len(server.asked)
        check(asked == len(set(server.asked)) and first_id in server.asked, "each build ID is asked for once")
        fetch("--server", server.url)
        check(first_id not in server.asked[asked:], "and not again on the same day")

        forget()

        def endless(handler, build_id):
            handler.send_response(200)
            handler.end_headers()
            while build_id in (first_id, second_id):
                handler.wfile.write(b"\\0" * 65536)

        r = fetch("--server", Server(endless).url, "--max-size", "8M")
        check("is larger than --max-size" in r.stderr and not cached(first_id), "an answer without an end is given up")
        forget()
        r = fetch("--server", Server(lambda h, _: h.send(302, b"", [("Location", "file:///etc/passwd")])).url)
        check(r.returncode == 1 and not cached(first_id), "a server cannot have a local file read")
        r = fetch("--server", "http://127.0.0.1:1")
        check(r.returncode == 1 and r.stderr.count("http://127.0.0.1:1: ") == 1,
              "a server that cannot be reached is said once")
        r = fetch("--server", Server(lambda h, _: h.send(503)).url)
        check(r.returncode == 1 and "503" in r.stderr, "so is one that is out of order")
        check("unavailable" not in r.stderr and os.listdir(os.path.join(cache, ".missing")) == [],
              "neither is taken for a server that has no such file")

        good = Server(lambda h, i: h.send(200, first_debug) if i == first_id else h.send(404))
        env["DEBUGINFOD_URLS"] = f"ima:enforcing http://127.0.0.1:1 {good.url}/"
        fetch()
        check(cached(first_id) and not cached(second_id), "the variable names servers, which are asked in turn")
        wait_for_names(one.pid, "the program is named, with inlined functions and lines, while it runs on")
        name, p = window_of(two.pid) or wait_until(lambda: window_of(two.pid), 300, "a window")
        check(not any(s.labels.get("pid") == two.pid and "the_outer_one" in s.stack for s in p.samples),
              "the other one is not")

        place = os.path.join(packages, ".build-id", second_id[:2])
        os.makedirs(place)
        with open(os.path.join(place, "new"), "wb") as f:
            f.write(second_debug)
        os.rename(os.path.join(place, "new"), os.path.join(place, second_id[2:] + ".debug"))
        wait_for_names(two.pid, "a package that is installed names the other one")

        # Files in use do not make room for others.
        size = os.stat(os.path.join(cache, ".build-id", first_id[:2], first_id[2:] + ".debug")).st_blocks * 512
        third, third_debug, third_id = build(d.dir, "third", 3)
        with Work([third]) as three:
            wait_until(lambda: window_of(three.pid), 300, "a window with the third program")
            full = Server(lambda h, i: h.send(200, third_debug) if i == third_id else h.send(404))
            r = fetch("--server", full.url, "--max-size", str(size + 1))
            check("is full of files that are in use" in r.stderr and cached(first_id) and not cached(third_id),
                  "a full cache keeps what is in use, and says that it is full")
