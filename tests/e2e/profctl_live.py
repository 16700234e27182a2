"""profctl against a real daemon: every command that reads samples, and `record` with the daemon that runs and with
one of its own."""
import glob
import os
import re
import signal
import shutil
import subprocess
import tempfile

from harness import LIFE, PROFCTL, PROGRAMS, Daemon, Profile, Work, check, has, interval, wait_until

SPLIT = f"{PROGRAMS}/split31"
RATE = 499


def run(*args, **kw):
    return subprocess.run(args, text=True, capture_output=True, check=False, **kw)


def samples_of(text, function):
    """The samples column of a function in the report; 0 when it is not there."""
    m = re.search(rf"^ *\S+% +\S+% +\S+% +([\d,]+) .* {function}(?: \(inlined\))?$", text, re.M)
    return int(m.group(1).replace(",", "")) if m else 0


def record(*args):
    """profctl record; its output, before which is what the command itself says."""
    return run(PROFCTL, "record", *args)


def reading_commands(d, pid):
    # status, list
    check(f"rate: {RATE} Hz a CPU" in d.profctl("status").stdout, "status shows the rate")
    wait_until(lambda: len(d.windows()) >= 2, 120, "two windows are stored")
    text = d.profctl("list").stdout
    check(re.search(r"\n\d+ windows, [\d,]+ samples, [\d,]+ lost", text), f"list shows the windows: {text[-200:]}")

    # The same selection from the daemon, from its files, and by `go tool pprof`: equal counts.
    stored = os.path.join(d.dir, "stored.pb.gz")
    d.profctl("dump", "-o", stored, "--last", "1h", "--pid", pid)
    text = d.profctl("report", "--last", "1h", "--pid", pid).stdout
    from_files = run(PROFCTL, "report", "--pid", pid, stored).stdout
    three, one = samples_of(from_files, "hot_three"), samples_of(from_files, "hot_one")
    check(three > 0 and one > 0, f"the stored profile has both functions ({three}, {one})")
    check(samples_of(text, "hot_three") >= three, "the daemon has what the file has, or more by now")
    share = three / (three + one)
    check(abs(share - 0.75) <= interval(0.75, three + one) + 0.01, f"3/4 of them in hot_three: {share:.4f}")
    if shutil.which("go"):
        top = run("go", "tool", "pprof", "-top", "-sample_index=samples", "-nodecount=10000", stored,
                  env=dict(os.environ, HOME=d.dir, PPROF_TMPDIR=d.dir)).stdout
        m = re.search(r"^ *(\d+) .* hot_three$", top, re.M)
        check(m and int(m.group(1)) == three, "go tool pprof counts the same")

    # live
    text = d.profctl("report", "--for", "4s", "--pid", pid).stdout
    check(samples_of(text, "hot_three") > samples_of(text, "hot_one") > 0, "a live report has both functions")
    text = d.profctl("report", "--for", "2s", "--pid", pid, "--callers").stdout
    check(re.search(r"hot_three\n +\d+\.\d+%  from ", text), "callers are known")
    check("hot_three" in d.profctl("top", "--once", "--delay", "2s", "--pid", pid).stdout, "top --once shows it")
    text = d.profctl("top", "--once", "--delay", "2s", "--by", "process", "--lines", "1000").stdout
    check(re.search(r"split31 +" + pid, text), "top --once --by process shows it")
    text = d.profctl("annotate", "hot_three", "--last", "1h", "--pid", pid).stdout
    shares = [float(s) for s in re.findall(r"^ *(\d+\.\d+)% +[0-9a-f]+:  ", text, re.M)]
    check(abs(sum(shares) - 100) < 1, f"annotate gives all its samples to instructions ({sum(shares):.2f} %)")
    check("split31.c" in text, "and knows its source")
    page = os.path.join(d.dir, "x.html")
    d.profctl("flamegraph", "-o", page, "--last", "1h")
    with open(page, encoding="utf-8") as f:
        check("hot_three" in f.read(), "the flame graph has it")
    check("hot_three" in d.profctl("report", "--timeline", "--sort", "symbol", "--pid", pid).stdout, "the timeline too")
    text = d.profctl("diff", stored, stored).stdout
    check("# 0 of" in text, "a profile does not differ from itself")
    text = d.profctl("doctor").stdout
    check("complete stacks" in text, "doctor looks at the profile")
    check("profd has all that it needs" in text, "and at the daemon's capabilities")
    r = d.profctl("report", "--comm", "no-such-process", "--last", "1h")
    check(not r.stdout and "no samples of process no-such-process" in r.stderr and "stored is 20" in r.stderr,
          "no samples: said, with the range that has some")
    r = d.profctl("report", "--event", "no-such-event", "--last", "1h")
    check(not r.stdout and "no samples of event no-such-event" in r.stderr, f"an event that was not sampled: {r.stderr}")
    r = d.profctl("report", "--event", "no-such-event", "--for", "1s", check_status=False)
    check(r.returncode == 1 and "this event is not sampled" in r.stderr, f"and one that is not: {r.stderr}")
    with open("/proc/sys/kernel/pid_max", encoding="utf-8") as f:
        never = int(f.read())  # process IDs are below it
    r = d.profctl("report", "--pid", str(never), "--for", "1s")
    check(not r.stdout and f"no process {never} runs now" in r.stderr, f"a process that is not there: {r.stderr}")

    # `top` on a terminal
    tmux = ["tmux", "-S", os.path.join(d.dir, "tmux")]
    if shutil.which("tmux"):
        env = dict(os.environ, LC_ALL="C.UTF-8", TERM="xterm-256color")
        env.pop("TMUX", None)
        run(*tmux, "-f", "/dev/null", "new-session", "-d", "-x", "120", "-y", "30",
            f"{PROFCTL} top --socket {d.socket} --pid {pid} --delay 500ms; echo status $?; cat", env=env)
        screen = lambda: run(*tmux, "capture-pane", "-p", env=env).stdout
        wait_until(lambda: "hot_three" in screen() and "CPUs busy" in screen(), 120, "top shows the function")
        run(*tmux, "send-keys", "p", env=env)
        wait_until(lambda: re.search(r"split31 +" + pid, screen()), 120, "top shows the process")
        run(*tmux, "send-keys", "q", env=env)
        wait_until(lambda: "status 0" in screen(), 120, "top ends")
        run(*tmux, "kill-server", env=env)


def recording(d):
    # record with the daemon that runs: what a process tree used, from its first instruction.
    out = os.path.join(d.dir, "rec.pb.gz")
    r = record("--socket", d.socket, "-o", out, "--", "sh", "-c", f"{SPLIT} 4; exit 5")
    check(r.returncode == 5, f"record passes the status on ({r.returncode}: {r.stderr})")
    three = samples_of(r.stdout, "hot_three")
    check(three > 0, "its report names the function")
    with open(out, "rb") as f:
        p = Profile(f.read())
    for function in ("hot_three", "hot_one"):
        expected = RATE * float(re.search(rf"^truth {function} (\S+)$", r.stdout, re.M).group(1))
        got = p.count(has(function))
        margin = 0.05 * expected + 3.9 * expected**0.5
        check(expected - margin - p.lost() <= got <= expected + margin,
              f"{got} samples of {function}, the CPU time that it measured says {expected:.0f}")
    check(samples_of(run(PROFCTL, "report", out).stdout, "hot_three") == three, "the file has what was printed")
    r = record("--socket", d.socket, "--", "/no/such/command")
    check(r.returncode == 127 and "cannot run /no/such/command" in r.stderr, "a command that is not there is said")
    r = record("--socket", d.socket, "--", "/etc/passwd")
    check(r.returncode == 126 and "cannot run /etc/passwd" in r.stderr, "a command that cannot be run is said")
    # What was recorded outlives a wrong name of an event, and a rate that is not this profd's is said.
    os.unlink(out)
    r = record("--socket", d.socket, "-o", out, "-e", "nonsense", "-F", "100", "--", SPLIT, "2")
    check(r.returncode == 1 and "has no event nonsense" in r.stderr and "a rate of its own" in r.stderr, r.stderr)
    check(samples_of(r.stdout, "hot_three") > 0, "the report is of what there is")
    check(samples_of(run(PROFCTL, "report", out).stdout, "hot_three") > 0, "the file is kept")
    r = record("--socket", d.socket, "--", "sh", "-c", "kill -TERM $$")
    check(r.returncode == 128 + signal.SIGTERM, "a signal's status is passed on")


with Daemon(f"[Sampling]\nFrequency={RATE}\nEvents=cycles\n[Limits]\nCpu=50%\n[Store]\nWindow=5s\n") as d:
    with Work([SPLIT, LIFE]) as work:
        reading_commands(d, str(work.pid))
    recording(d)

# record with a profd of its own. (Where one runs for this host, that one is used: the same must come out.)
left = set(glob.glob("/tmp/profctl-*"))
r = record("--", SPLIT, "3")
check(r.returncode == 0, f"record works alone ({r.stderr})")
three, one = samples_of(r.stdout, "hot_three"), samples_of(r.stdout, "hot_one")
check(three > one > 0, f"both functions are named ({three}, {one})")
# (exec: a shell that is about to fork can keep an interrupt from the child that it makes.)
p = subprocess.Popen([PROFCTL, "record", "--", "sh", "-c", "echo ready; exec sleep 7200"], stdout=subprocess.PIPE,
                     stderr=subprocess.PIPE, text=True, start_new_session=True)
check(p.stdout.readline() == "ready\n", "the command runs")
os.killpg(p.pid, signal.SIGINT)
output, errors = p.communicate(timeout=240)
check(p.returncode == 128 + signal.SIGINT, f"an interrupt ends the command, and is passed on ({p.returncode} {errors})")
check(set(glob.glob("/tmp/profctl-*")) <= left, "nothing is left of the profd that was started")

# Who is not root is told what to do.
with tempfile.TemporaryDirectory() as home:
    os.chmod(home, 0o755)
    r = run("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", PROFCTL, "record", "--", "true", cwd=home)
    if os.path.exists("/run/profd/profd.sock"):
        print("skipped: a profd runs on this host, so none is to be started")
    elif "Permission denied" in r.stderr:
        print("skipped: the build directory cannot be read by other users")
    else:
        check(r.returncode == 1 and "needs root: use sudo" in r.stderr, f"without root: {r.stderr}")
