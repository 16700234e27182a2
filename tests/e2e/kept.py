"""A profd that something is kept for: systemd's descriptor store played as sd_notify(3) and sd_listen_fds(3)
describe it, or pins."""
import array
import fcntl
import os
import shutil
import socket
import subprocess
import tempfile
import threading

from harness import PROFD, Daemon, Profile, wait_until


class FdStore:
    """What systemd does with FDSTORE=1 and FDSTOREREMOVE=1."""

    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix="profd-fdstore-")
        self.path = os.path.join(self.dir, "notify")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        self.kept = []  # (name, fd)
        self.lock = threading.Lock()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        size = array.array("i").itemsize
        while True:
            try:
                data, ancillary, _, _ = self.socket.recvmsg(8192, socket.CMSG_SPACE(16 * size))
            except OSError:
                return
            fds = array.array("i")
            for level, kind, content in ancillary:
                if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                    fds.frombytes(content[:len(content) - len(content) % size])
            message = dict(line.split("=", 1) for line in data.decode().splitlines() if "=" in line)
            with self.lock:
                if message.get("FDSTORE") == "1":
                    self.kept += [(message["FDNAME"], fd) for fd in fds]
                elif message.get("FDSTOREREMOVE") == "1":
                    for name, fd in self.kept:
                        if name == message["FDNAME"]:
                            os.close(fd)
                    self.kept = [k for k in self.kept if k[0] != message["FDNAME"]]
                if message.get("SYNC"):
                    self.synced.set()

    def settle(self):
        """Everything that was sent is taken in."""
        self.synced = threading.Event()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
            s.sendto(b"SYNC=1", self.path)
        self.synced.wait(60)

    def names(self):
        self.settle()
        return sorted(name for name, _ in self.kept)

    def forget(self):
        """As at `systemctl stop`."""
        self.settle()
        with self.lock:
            for _, fd in self.kept:
                os.close(fd)
            self.kept = []

    def close(self):
        self.socket.close()
        for _, fd in self.kept:
            os.close(fd)
        shutil.rmtree(self.dir)


class KeptDaemon(Daemon):
    """A daemon that something is kept for: in a store, or by pins in a directory."""

    def __init__(self, config, pins=None):
        self.pins, self.fdstore, self.binary = pins, None if pins else FdStore(), PROFD
        super().__init__(config)

    def start(self):
        self.launch()
        wait_until(self.is_up, 120, "profd starts")

    def launch(self, environment=None):
        """Starts it, and does not wait."""
        env, command, pre = dict(environment or os.environ), [self.binary], None
        if self.fdstore:
            self.fdstore.settle()
            kept = list(self.fdstore.kept)
            env["NOTIFY_SOCKET"] = self.fdstore.path
            if kept:
                env |= {"LISTEN_FDS": str(len(kept)), "LISTEN_FDNAMES": ":".join(name for name, _ in kept)}
            command = ["/bin/sh", "-c", 'LISTEN_PID=$$ exec "$@"', "sh", self.binary]

            def pre():
                high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3 + len(kept)) for _, fd in kept]
                for i, fd in enumerate(high):
                    os.dup2(fd, 3 + i)
        with open(self.log, "a", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [*command, "--config", self.config, "--state-dir", self.state, "--socket", self.socket],
                stderr=log, stdout=log, env=env, close_fds=not self.fdstore, preexec_fn=pre)

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process = None

    def __exit__(self, *how):
        super().__exit__(*how)
        if self.fdstore:
            self.fdstore.close()
        elif os.path.isdir(self.pins):
            shutil.rmtree(self.pins)

    def stored(self):
        out = []
        for name in self.windows():
            with open(os.path.join(self.state, name), "rb") as f:
                out.append(Profile(f.read()))
        return out


def cpu_ns(pid):
    with open(f"/proc/{pid}/schedstat", encoding="utf-8") as f:
        return int(f.read().split()[0])
