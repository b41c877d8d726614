"""Shared by the benchmarks of tuning: kernels with their keys, folders with the space that is compared, builds, campaigns.

A campaign is one run of `wavetune-agent tune --keys`, whose JSON lines are read as they are. Programs are those of
$WAVETUNE_BUILD, else of build/release or build/dev.
"""

import json
import math
import os
import pathlib
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]

# 108 configs: what Triton's own matrix product tutorial varies, over all of these values.
MATMUL_SPACE = {
    "parameters": {"BLOCK_M": [64, 128, 256], "BLOCK_N": [64, 128, 256], "BLOCK_K": [32, 64], "GROUP_M": [8],
                   "num_warps": [4, 8], "num_stages": [2, 3, 4]},
    "roles": {"num_warps": "option", "num_stages": "option"},
    "default": {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": 8, "num_warps": 4, "num_stages": 2},
}
# 84 configs of an NVIDIA GPU: the folder's own, with deeper pipelines.
SOFTMAX_SPACE = {
    "parameters": {"BLOCK": [128, 256, 512, 1024, 2048, 4096], "num_warps": [1, 2, 4, 8], "num_stages": [1, 2, 3, 4]},
    "roles": {"num_warps": "option", "num_stages": "option"},
    "conditions": ["BLOCK >= 64 * num_warps"],
    "default": {"BLOCK": 1024, "num_warps": 4, "num_stages": 1},
}
MATMUL_NAMED = [(4096, 4096, 4096), (1024, 1024, 8192), (16, 4096, 4096)]
MATMUL_KEYS = MATMUL_NAMED + [
    (16, 8192, 8192), (16, 14336, 4096), (16, 4096, 14336), (32, 4096, 4096), (32, 8192, 8192), (64, 4096, 4096),
    (64, 14336, 4096), (64, 8192, 1024), (128, 4096, 4096), (128, 4096, 14336), (128, 8192, 8192), (256, 4096, 4096),
    (256, 8192, 2048), (256, 14336, 4096), (512, 4096, 4096), (512, 512, 8192), (512, 2048, 2048), (1024, 1024, 1024),
    (1024, 4096, 4096), (1024, 8192, 1024), (1024, 4096, 14336), (2048, 2048, 2048), (2048, 4096, 4096),
    (2048, 8192, 2048), (2048, 512, 8192), (4096, 4096, 1024), (4096, 1024, 4096), (4096, 6144, 4096), (3072, 3072, 3072)]
ATTENTION_KEYS = [(heads, sequence, head_dim) for heads, sequences in (
    (16, (1024, 4096, 512, 2048)), (32, (1024, 2048, 512, 4096)), (48, (1024, 2048)), (64, (512, 1024, 2048)), (96, (512, 1024)),
    (128, (512,))) for sequence in sequences for head_dim in (64, 128)]
SOFTMAX_KEYS = [(rows, columns) for columns, many in (
    (4096, (4096, 256, 512, 1024, 2048)), (1024, (8192, 1024, 2048, 4096)), (8192, (1024, 128, 256, 512)), (512, (16384, 4096)),
    (16384, (64, 128, 256, 512, 2048)), (32768, (128, 32, 64)), (2048, (512, 1024, 2048)), (256, (8192, 16384)), (65536, (16,)),
    (768, (4096,)), (5120, (2048,)), (12288, (1024,))) for rows in many]
C_KEYS = [(64, 1024), (256, 512), (32, 4096), (512, 256), (128, 1024), (16, 8192), (1024, 128), (64, 2048)]


class Kernel:
    """A kernel folder's version with the keys of a campaign. `space` replaces the folder's own where given."""

    def __init__(self, place, version, names, keys, space=None):
        self.place, self.version, self.names, self.space = ROOT / "kernels" / place, version, names, space
        self.keys = [dict(zip(names, key)) for key in keys]
        self.name = f"{place}:{version}"

    def folder(self, scratch):
        """DIR:VERSION of a copy that has the space."""
        copy = pathlib.Path(scratch, self.name.replace(":", "-"))
        if not copy.exists():
            shutil.copytree(self.place, copy)
            if self.space:
                manifest = json.loads((copy / "kernel.json").read_text())
                (copy / manifest["versions"][self.version]["space"]).write_text(json.dumps(self.space))
        return f"{copy}:{self.version}"

    def ordinal(self, values):
        """The number of a config: its mixed-radix position, the last parameter fastest."""
        manifest = json.loads((self.place / "kernel.json").read_text())
        space = self.space or json.loads((self.place / manifest["versions"][self.version]["space"]).read_text())
        ordinal = 0
        for name, choices in space["parameters"].items():
            ordinal = ordinal * len(choices) + choices.index(values[name])
        return ordinal


TRITON = [Kernel("matmul", "triton", ["M", "N", "K"], MATMUL_KEYS, MATMUL_SPACE),
          Kernel("attention", "triton", ["heads", "sequence", "head_dim"], ATTENTION_KEYS),
          Kernel("softmax", "triton_online", ["rows", "columns"], SOFTMAX_KEYS, SOFTMAX_SPACE)]
CPU = [Kernel("softmax", "online", ["rows", "columns"], C_KEYS)]


def key_text(key):
    return ",".join(f"{name}={value}" for name, value in key.items())


def visible_gpu(index):
    """CUDA_VISIBLE_DEVICES of a process that is to see one of the GPUs that this one sees."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return visible.split(",")[index] if visible else str(index)


def on_cores(cores, command):
    """The command on some cores, in the notation of `taskset`; on all if None."""
    return ["taskset", "-c", cores, *command] if cores else command


def program(name):
    for folder in (os.environ.get("WAVETUNE_BUILD"), ROOT / "build/release", ROOT / "build/dev"):
        if folder and os.access(pathlib.Path(folder, name), os.X_OK):
            return str(pathlib.Path(folder, name))
    sys.exit(f"{name} is not built: build it, or name the folder with WAVETUNE_BUILD=…")


def pack(kernel, scratch, arch, keys=None, cores=None, options=()):
    """The folder of a build with every variant that the keys need, and the seconds that packing took."""
    output = pathlib.Path(scratch, f"build-{kernel.name.replace(':', '-')}-{len(os.listdir(scratch))}")
    lines = pathlib.Path(f"{output}.keys")
    lines.write_text("".join(json.dumps(key) + "\n" for key in keys or kernel.keys))
    begin = time.monotonic()
    subprocess.run(on_cores(cores, [sys.executable, "-m", "wavetune", "pack", kernel.folder(scratch), "--keys", lines, "--arch",
                                    arch, "--output", output, *options]), check=True, stdout=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": str(ROOT / "python")})
    return output, time.monotonic() - begin


class Campaign:
    """The results of one run of `tune --keys`: `lines` in the order of the keys, the wall seconds of the whole process."""

    def __init__(self, lines, seconds):
        self.lines, self.seconds = lines[:-1], seconds
        self.summary = lines[-1]["campaign"]

    def winner(self, index):
        return self.lines[index]["winner"]["config_values"]


def tune(kernel, scratch, build=None, device=None, keys=None, options=(), cores=None):
    keys = keys or kernel.keys
    listed = pathlib.Path(scratch, f"keys-{os.getpid()}-{time.monotonic_ns()}")
    listed.write_text("".join(json.dumps(key) + "\n" for key in keys))
    command = [program("wavetune-agent"), "tune", kernel.folder(scratch), "--keys", listed, "--json",
               "--state", pathlib.Path(scratch, f"state-{device or 'first'}")]
    command += ["--build", build] if build else []
    command += ["--device", device] if device else []
    begin = time.monotonic()
    done = subprocess.run(on_cores(cores, command + list(options)), stdout=subprocess.PIPE, text=True, check=False)
    seconds = time.monotonic() - begin
    listed.unlink()
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    if len(lines) != len(keys) + 1:
        sys.exit(f"tune of {kernel.name} ended with status {done.returncode} after {len(lines)} of {len(keys)} keys")
    return Campaign(lines, seconds)


class Oracle:
    """Every config of every key in several processes: ratios to the best by the config's ordinal."""

    def __init__(self, campaign):
        self.of_key = []
        for line in campaign.lines:
            finalists = line.get("verdict", {}).get("finalists", [])
            least = min((f["ratio"] for f in finalists), default=math.nan)
            self.of_key.append({f["config"]: f["ratio"] / least for f in finalists})
        self.samples = [line.get("verdict", {}).get("samples", 0) for line in campaign.lines]

    def regret(self, index, config):
        """How much slower than the best a config is, 0.01 for 1 %; infinite where it did not work."""
        return self.of_key[index].get(config, math.inf) - 1


def oracle(kernel, scratch, build=None, device=None, keys=None, rounds=100, processes=5):
    """In `processes` processes of `rounds` rounds; a config that is surely a fifth slower than the best leaves early."""
    return Oracle(tune(kernel, scratch, build, device, keys,
                       ["--exhaustive", str(rounds), "--processes", str(processes), "--margin", "20"]))


def geometric_mean(values):
    return math.exp(sum(math.log(value) for value in values) / len(values))


def wilson(k, n, z=1.96):
    """The interval of a share (Wilson, 1927)."""
    if n == 0:
        return 0.0, 1.0
    centre, spread = k / n + z * z / (2 * n), z * math.sqrt(k / n * (1 - k / n) / n + z * z / (4 * n * n))
    return max(0.0, (centre - spread) / (1 + z * z / n)), min(1.0, (centre + spread) / (1 + z * z / n))
