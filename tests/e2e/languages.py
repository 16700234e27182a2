"""Release builds of Rust as people make them (debug = true, debug = "line-tables-only") and a stripped Go program are
named with their inlined functions, files and lines."""
import os
import shutil
import subprocess

from harness import Daemon, Work, check, of_pid, skip, wait_until

RUST = """use std::io::Write;

pub struct Mixer(u64);

impl Mixer {
    #[inline(always)]
    fn inlined_step(&mut self, n: u64) {
        for i in 0..n {
            let v = unsafe { std::ptr::read_volatile(&self.0) };
            self.0 = v.wrapping_mul(31).wrapping_add(i);
        }
    }

    #[inline(never)]
    fn outer_step(&mut self) {
        self.inlined_step(1_000_000);
    }
}

fn main() {
    println!("ready");
    std::io::stdout().flush().unwrap();
    let mut m = Mixer(1);
    loop {
        m.outer_step();
    }
}
"""
GO = """package main

import "fmt"

type mixer struct{ v uint64 }

func mix(v, i uint64) uint64 { return v*31 + i }

//go:noinline
func (m *mixer) outerStep() {
	for i := uint64(0); i < 1000000; i++ {
		m.v = mix(m.v, i)
	}
}

func main() {
	fmt.Println("ready")
	m := mixer{1}
	for {
		m.outerStep()
	}
}
"""


def run(*argv, **how):
    return subprocess.run(argv, capture_output=True, text=True, check=False, **how)


def rust(d, name, *flags):
    """The program's path; None when this compiler has no such flag."""
    source, out = os.path.join(d.dir, "mixer.rs"), os.path.join(d.dir, name)
    with open(source, "w", encoding="utf-8") as f:
        f.write(RUST)
    r = run("rustc", "-C", "opt-level=3", *flags, source, "-o", out)
    if r.returncode != 0 and "incorrect value" in r.stderr:
        return None
    check(r.returncode == 0, f"rustc {' '.join(flags)} {r.stderr}")
    return out


def go(d):
    source, out = os.path.join(d.dir, "mixer.go"), os.path.join(d.dir, "mixer-go")
    with open(source, "w", encoding="utf-8") as f:
        f.write(GO)
    r = run("go", "build", "-ldflags=-s -w", "-o", out, source,
            env={**os.environ, "GOCACHE": os.path.join(d.dir, "cache"), "GO111MODULE": "off", "CGO_ENABLED": "0"})
    check(r.returncode == 0, f"go build {r.stderr}")
    return out


def check_names(d, program, inner, outer, source):
    """Nearly all samples are in the function, a share of them in what is inlined into it (the rest is its loop)."""
    with Work([program]) as w:
        def enough():
            p = d.collect(3)
            return p if p.count(of_pid(w.pid)) >= 100 else None
        p = wait_until(enough, 300, "a hundred samples of the program")
        n = p.count(of_pid(w.pid))
        whole = p.count(lambda s: of_pid(w.pid)(s) and any(outer in name for name in s.stack))
        pairs = p.count(lambda s: of_pid(w.pid)(s) and any(inner in a and outer in b
                                                          for a, b in zip(s.stack, s.stack[1:])))
        check(whole >= 0.9 * n, f"{whole} of {n} samples have {outer}")
        check(pairs >= 0.1 * n, f"{pairs} of {n} have {inner} inlined into it")
        files = {f for name, f in p.files.items() if outer in name}
        check(files and all(f.endswith(source) for f in files), f"its file: {files}")


if not shutil.which("rustc") or not shutil.which("go"):
    skip("rustc or go is not installed")

with Daemon("[Sampling]\nFrequency=199\nEvents=cycles\n[Limits]\nCpu=50%\n") as daemon:
    check_names(daemon, rust(daemon, "mixer-full", "-C", "debuginfo=2"), "inlined_step", "outer_step", "mixer.rs")
    lines_only = rust(daemon, "mixer-lines", "-C", "debuginfo=line-tables-only") or \
        rust(daemon, "mixer-lines", "-C", "debuginfo=1")  # before Rust 1.71
    check_names(daemon, lines_only, "inlined_step", "outer_step", "mixer.rs")
    check_names(daemon, go(daemon), "main.mix", "main.(*mixer).outerStep", "mixer.go")
