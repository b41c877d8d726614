"""The kernels in HIP compile without a GPU: for AMD's with clang, and for NVIDIA's with NVRTC if that is installed.

The compiled text is that of agents: the prelude, then the kernel's source, with the config's definitions.
"""

import concurrent.futures
import json
import os
import random
import re
import shutil
import subprocess
import sys

import pytest

import harness

sys.path.insert(0, str(harness.SOURCE / "python"))
from wavetune._pack.expressions import Expression  # noqa: E402

PRELUDE = (harness.SOURCE / "agent/compile/prelude.hip").read_text()
AGENT = harness.BUILD / "wavetune-agent"
AMD = ("gfx942", "gfx90a")
SAMPLE = 4  # configs of a space beside its default
TEST_KERNELS = harness.SOURCE / "tests/data/kernels"
# For each folder: a key with aligned rows and whole tiles, and one without.
KEYS = {
    "vector_add": ({"n": 1 << 20}, {"n": 1000003}),
    "softmax": ({"rows": 512, "columns": 4096}, {"rows": 7, "columns": 777}),
    "layernorm": ({"rows": 512, "columns": 4096}, {"rows": 7, "columns": 777}),
    "matmul": ({"M": 1024, "N": 1024, "K": 1024}, {"M": 97, "N": 129, "K": 65}),
    "noop": ({"n": 1},),
    "gpu_quick": ({"n": 4096},),
}

needs_clang = pytest.mark.skipif(not shutil.which("clang-19"), reason="clang-19 is not installed")


class Version:
    """A version in HIP of a kernel's folder."""

    def __init__(self, folder, name):
        self.folder, self.name = folder, name
        document = json.loads((folder / "kernel.json").read_text())
        self.manifest = {**document, **document["versions"][name]}
        self.space = json.loads((folder / self.manifest.get("space", "space.json")).read_text())
        self.keys = KEYS[folder.name]

    @property
    def place(self):
        return f"{self.folder}:{self.name}"

    def configs(self, key, arch):
        """All valid configs."""
        text = ",".join(f"{name}={value}" for name, value in key.items())
        out = harness.wavetune(None, "space", "expand", self.place, "--key", text, "--arch", arch, "--json").stdout
        return [json.loads(line)["config"] for line in out.splitlines()]

    def sample(self, key, arch):
        configs = self.configs(key, arch)
        default = self.space["default"]
        assert default in configs
        return [default, *random.Random(arch).sample(configs, min(SAMPLE, len(configs)))]

    def evaluate(self, text, key, config, arch):
        facts = {"arch": arch, "gpu_name": "", "cus": 304, "warp_size": 64, "occupancy": 1}
        return Expression(str(text)).evaluate({**key, **config, **facts})

    def definitions(self, key, config, arch):
        values = {**config, **{name: self.evaluate(text, key, config, arch)
                               for name, text in self.manifest.get("defines", {}).items()}}
        return [f"-D{name}={int(value) if isinstance(value, bool) else value}" for name, value in values.items()]

    def text(self):
        return f'{PRELUDE}\n#include "{self.manifest["sources"][0]}"\n'


def versions():
    folders = [*sorted(harness.KERNELS.iterdir()), TEST_KERNELS / "gpu_quick"]
    for folder in folders:
        if (folder / "kernel.json").exists():
            for name, version in json.loads((folder / "kernel.json").read_text())["versions"].items():
                if version["language"] == "hip":
                    yield Version(folder, name)


each_version = pytest.mark.parametrize("version", list(versions()), ids=lambda v: f"{v.folder.name}-{v.name}")


def in_parallel(function, items):
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(function, items))


def compile_amd(version, key, config, arch, folder):
    """The code object's path; one that does not compile fails the test."""
    number = len(list(folder.iterdir()))
    source = folder / f"{number}-{arch}-{abs(hash(str((key, config))))}.hip"
    source.write_text(version.text())
    target = source.with_suffix(".co")
    done = subprocess.run(
        ["clang-19", "-x", "hip", "-std=c++17", "--cuda-device-only", "-nogpulib", "-nogpuinc", "--no-gpu-bundle-output",
         "-fuse-cuid=none", "-mcode-object-version=5", "-O3", "-Werror", f"--offload-arch={arch}", "-iquote",
         str(version.folder), *version.definitions(key, config, arch), "-o", str(target), str(source)],
        capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, (version.place, arch, key, config, done.stderr[:2000])
    return target


def note(target, name):
    out = subprocess.run(["llvm-readelf-19", "--notes", str(target)], capture_output=True, text=True, check=True).stdout
    return int(re.search(rf"\.{name}:\s+(\d+)", out)[1])


def instructions(target):
    out = subprocess.run(["llvm-objdump-19", "-d", str(target)], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"^\s+([a-z][a-z0-9_]+)", out, re.M))


@needs_clang
@each_version
def test_the_default_and_a_sample_compile_for_amd_without_spills_of_the_default(version, tmp_path):
    points = {}  # by the text that is compiled: definitions that do not depend on the key are the same for both keys
    for arch in AMD:
        for key in version.keys:
            for config in version.sample(key, arch):
                points.setdefault((arch, *version.definitions(key, config, arch)), (key, arch, config))

    def check(point):
        key, arch, config = point
        target = compile_amd(version, key, config, arch, tmp_path)
        assert note(target, "wavefront_size") == 64
        if config == version.space["default"]:
            assert note(target, "vgpr_spill_count") == 0 and note(target, "private_segment_fixed_size") == 0, point

    in_parallel(check, points.values())


@each_version
def test_every_config_of_the_space_fits_a_workgroup(version):
    """What a static look would prune must not be in the space at all."""
    for key in version.keys:
        for arch in (*AMD, "sm_90"):
            for config in version.configs(key, arch):
                threads = 1
                for extent in version.manifest["launch"]["block"]:
                    threads *= version.evaluate(extent, key, config, arch)
                shared = version.evaluate(version.manifest["launch"].get("shared_bytes", 0), key, config, arch)
                assert 1 <= threads <= 1024 and 0 <= shared <= 65536, (arch, key, config)


@needs_clang
@pytest.mark.parametrize("name,mfma", [("hip", "v_mfma_f32_32x32x2_f32"), ("hip_fp16", "v_mfma_f32_32x32x8_f16")])
def test_the_matrix_product_by_matrix_cores_accesses_memory_and_lds_widely(name, mfma, tmp_path):
    version = Version(harness.KERNELS / "matmul", name)
    config = {**version.space["default"], "MATRIX": "mfma", "INSTRUCTION": 32, "BLOCK_N": 128, "WAVES_N": 1,
              "STAGES": 2, "GROUP_M": 8}
    assert config in version.configs(version.keys[0], "gfx942")
    found = instructions(compile_amd(version, version.keys[0], config, "gfx942", tmp_path))
    assert mfma in found
    accesses = {i for i in found if i.startswith(("global_load", "global_store", "ds_read", "ds_write"))}
    assert accesses and all(re.search(r"x2|x4|b64|b128", i) for i in accesses), accesses


@needs_clang
def test_the_bad_configs_compile_except_the_one_that_must_fail(tmp_path):
    folder = TEST_KERNELS / "gpu_misbehaving"
    KEYS.setdefault(folder.name, ({"n": 1000},))
    version = Version(folder, "hip")
    for config in version.configs({"n": 1000}, "gfx942"):
        if config["MODE"] != "no_compile":
            compile_amd(version, {"n": 1000}, config, "gfx942", tmp_path)
        else:
            with pytest.raises(AssertionError, match="does not compile"):
                compile_amd(version, {"n": 1000}, config, "gfx942", tmp_path)


def nvrtc():
    """The path of NVRTC, as the agent finds it; a machine without one skips."""
    folders = ["", "/usr/local/cuda/lib64/"]
    names = [os.environ["WAVETUNE_NVRTC"]] if "WAVETUNE_NVRTC" in os.environ else [
        f"{folder}libnvrtc.so.{major}" for folder in folders for major in (13, 12)]
    done = subprocess.run([AGENT, "rtc", "find", "nvrtc", *names], capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip("NVRTC of CUDA 12 or 13 is not installed here ($WAVETUNE_NVRTC may name it)")
    return done.stdout.splitlines()[0]


@each_version
def test_the_default_and_a_sample_compile_for_nvidia(version, tmp_path):
    library = nvrtc()
    files = [path.name for path in version.folder.iterdir() if path.is_file()]
    points = [(key, config) for key in version.keys for config in version.sample(key, "sm_90")]

    def check(numbered):
        number, (key, config) = numbered
        source, target = tmp_path / f"{number}.hip", tmp_path / f"{number}.cubin"
        source.write_text(version.text())
        done = subprocess.run(
            [AGENT, "rtc", "compile", "nvrtc", library, str(version.folder), str(source), str(target), *files, "--",
             "--std=c++17", "--gpu-architecture=sm_90", *version.definitions(key, config, "sm_90")],
            capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, (version.place, key, config, done.stderr[:2000])
        assert target.read_bytes()[:4] == b"\x7fELF"

    in_parallel(check, enumerate(points))
