"""Whose a sample is: unit, container, user, process and thread name, from a cgroup made for the purpose; and JIT code
by its perf map, in the process's own pid and mount namespace."""
import os
import shutil
import subprocess

from harness import LIFE, PROGRAMS, Daemon, check, of_pid, skip, wait_until

ID = "3f" * 32

with open("/proc/mounts", encoding="utf-8") as f:
    v2 = [line.split()[1] for line in f if line.split()[2] == "cgroup2"]
if not v2:
    skip("no cgroup2 hierarchy is mounted")

outer = os.path.join(v2[0], "profdtest.slice")
group = os.path.join(outer, f"docker-{ID}.scope")
work = []


def start(command, ready="ready\n", **how):
    w = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **how)
    work.append(w)
    while ready and w.stdout.readline() not in (ready, ""):
        pass
    return w


try:
    os.makedirs(group, exist_ok=True)
    with Daemon("[Sampling]\nFrequency=199\nEvents=cycles\nThreads=yes\n") as d:
        contained = start(["sh", "-c", f"echo 0 >{group}/cgroup.procs; exec setpriv --reuid=65534 --regid=65534 "
                                       f"--clear-groups {PROGRAMS}/split31 {LIFE}"])
        threads = start([f"{PROGRAMS}/threads", LIFE])
        p = d.collect(4)
        # (samples of before its exec, which waited for unwind tables, are still root's)
        mine = [s for s in p.samples if of_pid(contained.pid)(s) and s.labels["comm"] == "split31"]
        check(len(mine) > 0, "samples of the contained process")
        labels = mine[0].labels
        check(labels["container_id"] == ID, f"container: {labels.get('container_id')}")
        check(labels["unit"] == f"docker-{ID}.scope", f"unit: {labels.get('unit')}")
        check(labels["uid"] == 65534 and labels["user"] == "nobody", f"user: {labels.get('user')}")
        ids = {s.labels["thread_id"] for s in p.samples if of_pid(threads.pid)(s)}
        check(len(ids) > 1 and all(os.path.exists(f"/proc/{threads.pid}/task/{i}") for i in ids),
              f"threads: {sorted(ids)}")
        report = d.profctl("report", "--stdio", "--for", "2s", "--unit", f"docker-{ID}.scope").stdout
        check("hot_three" in report and "[kernel" not in report.split("hot_three")[0].split("symbol")[-1],
              "a report of one unit")
        status = d.profctl("report", "--stdio", "--for", "2s", "--container", ID[:12]).stdout
        check("hot_three" in status, "a report of one container, by the beginning of its ID")

        node = shutil.which("node")
        if not node:
            print("skipped in part: no node to make JIT code")
        else:
            script = "function hotJs(n){let s=0;for(let i=0;i<n;i++)s=(s*31+i)%1000003;return s}" \
                     f"console.log('ready');const e=Date.now()+1000*{LIFE};let x=0;while(Date.now()<e)x+=hotJs(1e6);"
            jit = start(["unshare", "--pid", "--mount-proc", "--fork", "--kill-child", node, "--perf-basic-prof", "-e",
                         script], cwd=d.dir)

            def named():
                q = d.collect(2)
                return [s for s in q.samples if any("hotJs" in n for n in s.stack)]

            samples = wait_until(named, 120, "JIT code is named by the perf map of its own pid namespace")
            check(any(s.stack[-1] == "_start" for s in samples), "and its stack goes on through node to _start")
finally:
    for w in work:
        w.kill()
        w.wait()
    for path in (group, outer):
        try:
            wait_until(lambda p=path: not open(f"{p}/cgroup.procs", encoding="utf-8").read(), 60, "the cgroup is empty")
            os.rmdir(path)
        except OSError:
            pass
