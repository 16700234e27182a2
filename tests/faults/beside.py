"""A profd whose worker is run in another way: without its sandbox, in which nothing but it can work, and with an
environment, under another program, or both."""
import os
import shutil

from harness import BUILD, PROFD

WORKER = os.path.join(BUILD, "symbolizer", "profd-worker")


def place(directory, *how):
    """A copy of profd, which finds a worker beside it that is run by the words of `how` (env's). The path of the copy."""
    program = os.path.join(directory, "profd")
    shutil.copy(PROFD, program)
    if not how:
        shutil.copy(WORKER, os.path.join(directory, "profd-worker"))
        return program
    shutil.copy(os.path.join(BUILD, "tests", "faults", "run_worker"), os.path.join(directory, "profd-worker"))
    run = os.path.join(directory, "run-worker")
    with open(run, "w", encoding="utf-8") as f:
        f.write(f"#!/bin/sh\nexec /usr/bin/env {' '.join(how)} {WORKER} \"$1\" plain\n")
    os.chmod(run, 0o755)
    return program
