"""tests/gpu/run.sh with an emulated GPU and without one. The real agent probes, with the fake HIP runtime; shell scripts replace
the programs that need a GPU."""

import json
import os
import subprocess

import pytest
from harness import BUILD, SOURCE

FAKE_HIP = BUILD / "tests/fake_hip/libfake_hip.so"
RUN = SOURCE / "tests/gpu/run.sh"
NOTE = "Nothing here is a claim of time"
pytestmark = pytest.mark.skipif(not FAKE_HIP.exists(), reason="the fake HIP runtime was not built")

OUTCOMES = {"wrong": "correctness", "fault": "runtime", "hang": "timeout", "no_compile": "compile", "beyond_end": "correctness",
            "before_begin": "runtime", "unwritten": "correctness", "too_much_lds": "constraints",
            "too_many_threads": "constraints", "one_wrong": "correctness"}


def tuned(modes, failed):
    """What `tune --json` prints where each config came out so."""
    outcomes = {}
    for config, mode in enumerate(modes):
        outcomes.setdefault(failed.get(mode, "correct"), []).append(config)
    return {"name": "stand-in", "key": {"n": 1000}, "device": "hip0", "configs": len(modes), "baseline": 0, "examples": {},
            "failed": {name: configs for name, configs in outcomes.items() if name != "correct"},
            "outcomes": {name: len(configs) for name, configs in outcomes.items()},
            "winner": {"config_values": {"MODE": "good"}}, "verdict": {"baseline_ratio": 0.5, "baseline_us": 2.0, "finalists": []}}


@pytest.fixture
def machine(tmp_path):
    """machine.run(…) runs run.sh; machine.called has the arguments of the replaced programs."""

    class Machine:
        out = tmp_path / "out"
        probe = f"exec {BUILD}/wavetune-agent probe"
        skips = ["no device cuda0: the CUDA driver is not installed", "a fault on an AMD GPU ends the process without words"]

        def program(self, path, lines):
            file = tmp_path / "build" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f'#!/bin/sh\n{lines}\n')
            file.chmod(0o755)

        def run(self, *arguments, hip=FAKE_HIP):
            folder = SOURCE / "tests/data/kernels/gpu_misbehaving"
            space = json.loads((folder / "space.json").read_text())["parameters"]
            modes = space["MODE"] * len(space["TURN"])
            (tmp_path / "misbehaving.json").write_text(json.dumps(tuned(modes, OUTCOMES)))
            (tmp_path / "quick.json").write_text(json.dumps(tuned(["good", "good"], {})))
            self.program("wavetune-agent", f'''echo "$@" displacing $WAVETUNE_DISPLACEMENT_BYTES >>{tmp_path}/called
                case "$*" in
                probe) {self.probe};;
                *misbehaving*) cat {tmp_path}/misbehaving.json;;
                *) cat {tmp_path}/quick.json;;
                esac''')
            reports = "\n".join(f"echo '[SKIP] device_gpu::x: {words}'" for words in self.skips)
            self.program("tests/test_agent_device_gpu", f'''echo device $WAVETUNE_ARCH $WAVETUNE_HIP_LIBRARY >>{tmp_path}/called
                {reports}
                echo '[====] Synthesis: Tested: 25 | Passing: 25 | Failing: 0 | Crashing: 0' ''')
            clean = {k: v for k, v in os.environ.items() if not k.startswith(("WAVETUNE_", "ROCM_"))}
            done = subprocess.run([RUN, *arguments], capture_output=True, text=True, timeout=600, stdin=subprocess.DEVNULL, env={
                **clean, "OUT": str(self.out), "WAVETUNE_BUILD": str(tmp_path / "build"), "WAVETUNE_HIP_LIBRARY": str(hip),
                "WAVETUNE_ARCH": "gfx942", "WAVETUNE_KFD_TOPOLOGY": str(tmp_path / "none"),
                "CUDA_VISIBLE_DEVICES": ""})
            called = tmp_path / "called"
            self.called = called.read_text().splitlines() if called.exists() else []
            return done

    return Machine()


def test_an_emulated_gpu_runs_the_parts_without_timing_and_that_is_recorded(machine):
    done = machine.run("--emulated")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "== device\n" in done.stdout and "== isolation\n" in done.stdout and done.stdout.count("== ") == 2
    assert "24 configs" in done.stdout and "each as expected" in done.stdout

    # The note that times are not valid is at the begin, at the end, in the log, in a file and in every document.
    *_, note, last = done.stdout.splitlines()
    assert NOTE in note and last == "6 passed, 0 failed" and done.stdout.count(NOTE) == 2
    assert NOTE in (machine.out / "log.txt").read_text() and NOTE in (machine.out / "EMULATED.txt").read_text()
    for name in ("isolation-hip0", "after-isolation-hip0"):
        assert NOTE in json.loads((machine.out / f"{name}.json").read_text())["note"]
    assert "as fast as" not in done.stdout and " s)" not in done.stdout and " in " not in done.stdout.split("started")[1]

    # Only HIP, over the given runtime and no shim, with enough time and fewer samples.
    assert not [line for line in machine.called if "cuda" in line or "hip_shim" in line]
    assert f"device gfx942 {FAKE_HIP}" in machine.called
    assert [line for line in machine.called if "gpu_misbehaving" in line and "--config-timeout 120" in line
            and "n=1000" in line and "displacing 1048576" in line]


def test_a_test_that_skips_for_another_reason_is_a_failure_there_too(machine):
    machine.skips = ["no device hip0: the HIP runtime finds no GPU"]
    done = machine.run("--emulated", "device")
    assert done.returncode == 1 and "NOT OK  device" in done.stdout and "1 skipped" in done.stdout


@pytest.mark.parametrize("part", ["tune", "overhead", "multi", "deployment", "triton"])
def test_parts_that_claim_time_are_refused(machine, part):
    done = machine.run("--emulated", "device", part)
    assert done.returncode == 1 and done.stdout.startswith(f"{part} is no part for an emulated GPU")
    assert machine.called == [] and not machine.out.joinpath("EMULATED.txt").exists()


def test_a_missing_hip_device_is_reported(machine):
    done = machine.run("--emulated", hip="/nonexistent/libamdhip64.so")
    assert done.returncode == 1
    assert "no HIP device" in done.stdout
    assert "hip: " in done.stdout and "/nonexistent/libamdhip64.so" in done.stdout


def test_with_hip_and_without_cuda_only_the_hip_device_is_tested(machine):
    done = machine.run("device", "isolation")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 passed, 0 failed" in done.stdout and NOTE not in done.stdout
    assert "2.00 times as fast as the default" in done.stdout
    assert [line for line in machine.called if "gpu_misbehaving" in line and "--config-timeout 4" in line and "n=100000" in line]


def test_with_cuda_hip_is_tested_over_the_shim(machine):
    machine.skips = []
    shim = machine.out.parent / "build/tests/hip_shim/libamdhip64.so"
    machine.program("tests/hip_shim/libamdhip64.so", "")
    found = [{"device": f"{backend}0", "backend": backend, "name": "NVIDIA H200", "environment": {"arch": "sm_90"}}
             for backend in ("cuda", "hip")]
    (machine.out.parent / "probe.json").write_text(json.dumps({"devices": found, "absent": []}))
    machine.probe = f"cat {machine.out.parent}/probe.json"
    done = machine.run("device", "isolation")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 GPUs of sm_90" in done.stdout and "10 passed, 0 failed" in done.stdout
    assert f"device sm_90 {shim}" in machine.called
    for device in ("cuda0", "hip0"):
        assert [line for line in machine.called if "gpu_misbehaving" in line and f"--device {device}" in line]
