"""wavetune-agent env check, set and reset over a folder in place of / and with shell scripts in place of amd-smi and rocm-smi:
no AMD GPU is used."""

import json
import os
import subprocess

import pytest
from harness import BUILD

GPU = "sys/devices/pci0000:c0/0000:c1:00.0"
LEVEL = f"{GPU}/power_dpm_force_performance_level"
GOVERNOR = "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"
BALANCING = "proc/sys/kernel/numa_balancing"


@pytest.fixture
def node(tmp_path):
    """A node with an MI300X; node.tool writes a program, node.env runs `wavetune-agent env …`."""

    class Node:
        root = tmp_path / "root"

        def put(self, path, text):
            file = self.root / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text + "\n")

        def get(self, path):
            return (self.root / path).read_text().strip()

        def tool(self, name, lines):
            (tmp_path / "bin").mkdir(exist_ok=True)
            program = tmp_path / "bin" / name
            program.write_text(f"#!/bin/sh\n{lines}\n")
            program.chmod(0o700)

        def env(self, *words):
            return subprocess.run([BUILD / "wavetune-agent", "env", *words, "--root", self.root]
                                  + (["--state", tmp_path / "state"] if words[0] != "check" else []),
                                  capture_output=True, text=True, timeout=600,
                                  env={"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path)} | hidden)

        def states(self):
            settings = json.loads(self.env("check", "--json").stdout)["settings"]
            return {setting["setting"]: setting["state"] for setting in settings}

    hidden = {name: value for name, value in os.environ.items() if name.endswith("SAN_OPTIONS")}
    made = Node()
    made.put(f"{GPU}/vendor", "0x1002")
    made.put(f"{GPU}/device", "0x74a1")
    made.put(LEVEL, "auto")
    made.put(GOVERNOR, "powersave")
    made.put(BALANCING, "1")
    card = made.root / "sys/class/drm/card1"
    card.mkdir(parents=True)
    (card / "device").symlink_to(made.root / GPU)
    return made


def test_a_refused_setting_ends_nothing_and_is_reported(node):
    node.tool("rocm-smi", "echo 'GPU[0] : set_perf_determinism, Permission denied'; exit 1")
    done = node.env("set")
    assert done.returncode == 1
    assert done.stdout == "export HIP_FORCE_DEV_KERNARG=1\n"  # for eval
    rows = {line.split()[0]: line for line in done.stderr.splitlines()}
    assert "refused" in rows["perf_determinism"] and "Permission denied" in rows["perf_determinism"]
    assert rows["numa_balancing"].split()[1] == rows["cpu_governor"].split()[1] == "set"
    assert (node.get(BALANCING), node.get(GOVERNOR)) == ("0", "performance")
    assert node.env("check").returncode == 1

    back = node.env("reset")
    assert back.returncode == 0, back.stderr
    assert (node.get(BALANCING), node.get(GOVERNOR)) == ("1", "powersave")


def test_amd_smi_alone_is_enough(node):
    node.tool("amd-smi", f'echo "$@" >>{node.root}/log\necho perf_determinism >{node.root}/{LEVEL}')
    assert node.env("set").returncode == 0
    assert node.get("log") == "set --gpu 0000:c1:00.0 --perf-determinism 1900"
    assert node.states()["perf_determinism"] == "good"


def test_a_gpu_without_clock_determinism_is_no_error(node):
    node.tool("amd-smi", "echo 'PERFDETERMINISM: [AMDSMI_STATUS_NOT_SUPPORTED] Unable to set'")
    assert node.states()["perf_determinism"] == "differs"
    done = node.env("set")
    assert done.returncode == 0, done.stderr
    assert "not supported" in done.stderr
    assert node.states()["perf_determinism"] == "unsupported"
