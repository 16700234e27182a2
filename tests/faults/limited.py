"""A profd with few descriptors."""
import resource
import subprocess

import injector  # noqa: F401  (finds the harness)
from harness import PROFD, Daemon, wait_until

CONFIG = "[Sampling]\nFrequency=99\nEvents=cycles\n[Limits]\nCpu=50%\n[Store]\nWindow=5s\n"


def accounted(d):
    s = d.status()
    lost = sum(l["samples"] for l in s["losses"] if l["cause"] != "missed")
    return s["samples_taken"] == s["samples_delivered"] + lost + s["samples_waiting"]


class Limited(Daemon):
    def __init__(self, descriptors, config=CONFIG):
        super().__init__(config)
        self.descriptors = descriptors

    def start(self):
        with open(self.log, "a", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [PROFD, "--config", self.config, "--state-dir", self.state, "--socket", self.socket], stderr=log,
                stdout=log, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (self.descriptors,) * 2))
        wait_until(self.is_up, 120, f"profd starts with {self.descriptors} descriptors")
