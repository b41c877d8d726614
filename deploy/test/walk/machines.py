"""The machines of the walk: one base tree under an overlay for each, booted by systemd-nspawn on one bridge. All of it is in a
network and a mount namespace that walk.sh made: what is mounted here, and the bridge, end with them."""

import os
import pathlib
import shutil
import subprocess
import time

NAMES = ("admin", "db", "server1", "server2", "tuning", "node1", "node2", "monitor", "app1")
NETWORK = "192.0.2."
DOMAIN = "example.internal"
BRIDGE = "walk"
BOOT_SECONDS = 300
# The hierarchies in which systemd has its units. Machines that began in one cgroup would have one cgroup for units of one name.
CGROUPS = [path for path in map(pathlib.Path, ("/sys/fs/cgroup", "/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified"))
           if (path / "cgroup.procs").exists()]


def run(*command, **options):
    return subprocess.run(command, check=True, **options)


def mount_over(text, path, work):
    """This namespace's own content of a file of this machine."""
    file = work / path.strip("/").replace("/", "-")
    file.write_text(text)
    run("mount", "--bind", file, path)


def cgroups_of(name):
    return [path / f"wavetune-walk-{os.getpid()}-{name}" for path in CGROUPS]


class Machines:
    def __init__(self, work):
        self.work, self.base, self.processes = work, work / "base", {}
        self.ssh = work / "ssh"
        self.addresses = {name: f"{NETWORK}{10 + i}" for i, name in enumerate(NAMES)}

    def prepare(self):
        """A bridge, the names of all machines, and a key with which `admin` and this machine are root on each of them."""
        shutil.rmtree(self.work / "machines", ignore_errors=True)
        shutil.rmtree(self.ssh, ignore_errors=True)
        self.ssh.mkdir()
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.ssh / "key")
        keys = (self.base / "etc/ssh/ssh_host_ed25519_key.pub").read_text()
        config = ("Host *\n  User root\n  IdentityFile %s\n  UserKnownHostsFile %s\n  StrictHostKeyChecking yes\n"
                  "  LogLevel ERROR\n  ConnectTimeout 10\n")
        names = [f"{address} {name}.{DOMAIN} {name}" for name, address in self.addresses.items()]
        self.hosts = "\n".join(["127.0.0.1 localhost", *names, ""])
        (self.ssh / "known_hosts").write_text(f"*.{DOMAIN},{','.join(NAMES)} {keys}")
        run("mount", "--make-rprivate", "/")
        mount_over(self.hosts, "/etc/hosts", self.work)
        mount_over(config % (self.ssh / "key", self.ssh / "known_hosts"), "/etc/ssh/ssh_config", self.work)
        self.client_config = config % ("/root/.ssh/key", "/root/.ssh/known_hosts")
        run("ip", "link", "set", "lo", "up")
        run("ip", "link", "add", BRIDGE, "type", "bridge")
        run("ip", "address", "add", f"{NETWORK}1/24", "dev", BRIDGE)
        run("ip", "link", "set", BRIDGE, "up")

    def start(self, name):
        folder = self.work / "machines" / name
        for part in ("upper", "scratch", "tree"):
            (folder / part).mkdir(parents=True)
        run("mount", "-t", "overlay", "-o", f"lowerdir={self.base},upperdir={folder}/upper,workdir={folder}/scratch", name,
            folder / "tree")
        tree = folder / "tree"
        (tree / "etc/hosts").write_text(self.hosts)
        (tree / "etc/hostname").write_text(name + "\n")
        (tree / "etc/machine-id").write_text(os.urandom(16).hex() + "\n")
        (tree / "etc/systemd/network/10-host0.network").write_text(
            f"[Match]\nName=host0\n[Network]\nAddress={self.addresses[name]}/24\nLinkLocalAddressing=no\n")
        wants = tree / "etc/systemd/system/multi-user.target.wants"
        (wants / "systemd-networkd.service").symlink_to("/lib/systemd/system/systemd-networkd.service")
        (tree / "root/.ssh").mkdir(mode=0o700, exist_ok=True)
        shutil.copy(self.ssh / "key.pub", tree / "root/.ssh/authorized_keys")
        if name == "admin":
            for file in ("key", "known_hosts"):
                shutil.copy(self.ssh / file, tree / "root/.ssh")
            (tree / "root/.ssh/config").write_text(self.client_config)
        cgroups = cgroups_of(name)
        for cgroup in cgroups:
            cgroup.mkdir()
        enter = " ".join(f"echo $$ >{cgroup}/cgroup.procs;" for cgroup in cgroups)
        with open(folder / "console.txt", "wb") as console:
            self.processes[name] = subprocess.Popen(
                ["sh", "-c", enter + ' exec "$@"', "sh", "systemd-nspawn", "-q", "-D", tree, "--register=no", "--keep-unit",
                 f"--machine={name}", "--resolv-conf=off", f"--network-bridge={BRIDGE}", "-b"],
                stdin=subprocess.DEVNULL, stdout=console, stderr=console)

    def start_all(self):
        for name in NAMES:
            self.start(name)
        end = time.monotonic() + BOOT_SECONDS
        for name in NAMES:
            while self.run_in(name, "systemctl is-system-running --wait || true").returncode != 0:
                assert time.monotonic() < end and self.processes[name].poll() is None, f"{name} did not boot: see its console.txt"
                time.sleep(1)

    def run_in(self, name, script, timeout=900):
        """Runs bash with the script as root, in the machine, or for `build` in this tree."""
        if name == "build":
            command = ["bash", "-eu", "-o", "pipefail", "-c", script]
            return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  timeout=timeout)
        # From a file, because a command of the script might read standard input.
        command = ["ssh", name, "cat >/tmp/block && exec bash -eu -o pipefail /tmp/block </dev/null"]
        return subprocess.run(command, input=script, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout)

    def stop_all(self):
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for cgroup in (cgroup for name in self.processes for cgroup in cgroups_of(name)):
            for path in sorted(cgroup.rglob("*/"), reverse=True):
                path.rmdir()
            cgroup.rmdir()
