"""A program of many small kernels, compiled for gfx942 where there is no GPU: each is launched once, with stand-ins for tensors,
under a driver that knows its target. Triton and its compiler are the real ones, of any version from 3.3 to 3.9.

    many_kernels.py FOLDER KERNELS [wait]

Imports kernels.py of FOLDER, which `write` makes, and prints a line of JSON: the milliseconds of each first launch, the CPU time
of all, how many were compiled, and what wavetune counted. wait: prints "ready" first and goes on when its stdin says so.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

ADDITION = '''
@triton.jit
def kernel_{i}(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(y_ptr + offsets, x + y * {i}.0, mask=mask)
'''
SOFTMAX = '''
@triton.jit
def kernel_{i}(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * n + offsets, mask=offsets < n, other=-float("inf")).to(tl.float32)
    e = tl.exp(x * {i}.0 - tl.max(x * {i}.0, axis=0))
    tl.store(y_ptr + tl.program_id(0) * n + offsets, (e / tl.sum(e, axis=0)).to(tl.float16), mask=offsets < n)
'''
PRODUCT = '''
@triton.jit
def kernel_{i}(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * 64 + tl.arange(0, 64)
    columns, inner = tl.arange(0, 64), tl.arange(0, 32)
    sums = tl.zeros((64, 64), dtype=tl.float32)
    for k in range(0, n, 32):
        a = tl.load(x_ptr + rows[:, None] * n + (k + inner)[None, :], mask=(k + inner)[None, :] < n, other=0.0)
        b = tl.load(x_ptr + (k + inner)[:, None] * n + columns[None, :], mask=(k + inner)[:, None] < n, other=0.0)
        sums += tl.dot(a, b)
    tl.store(y_ptr + rows[:, None] * n + columns[None, :], (sums * {i}.0).to(tl.float16), mask=rows[:, None] < n)
'''
KINDS = {"additions": [ADDITION], "mixed": [ADDITION, SOFTMAX, PRODUCT]}


def write(folder, n, kind="additions"):
    """A module of `n` kernels, which differ in a constant: additions, or mixed with softmaxes and matrix products."""
    sources = KINDS[kind]
    text = "import triton\nimport triton.language as tl\n\n" + "\n".join(sources[i % len(sources)].format(i=i) for i in range(n))
    (pathlib.Path(folder) / "kernels.py").write_text(text)


ROOT = pathlib.Path(__file__).resolve().parents[1]
IMAGE = "sha256:" + "1" * 64
REDIS = {"TRITON_CACHE_MANAGER": "triton.runtime.cache:RemoteCacheManager",
         "TRITON_REMOTE_CACHE_BACKEND": "triton.runtime.cache:RedisRemoteCacheBackend", "TRITON_REDIS_HOST": "127.0.0.1"}
# A program that waits until the server has all that it found, and for a slow server.
PATIENT = {"PYTHONPATH": f"{ROOT}/python:{ROOT}/tests/python/tuned/patient", "PATIENT_S": "60"}


def python(version, *modules):
    """The Python that has this Triton. Where there is none, exits with a sentence."""
    path = ROOT / "build" / ("python" if version == "3.6.0" else f"triton-{version}") / "bin/python"
    for module in ("triton", *modules):
        if not path.exists() or subprocess.run([path, "-c", f"import {module}"], capture_output=True).returncode != 0:
            sys.exit(f"{path} has no {module}: tests/python-env.sh {version}; {path} -m pip install {module}")
    return path


def remote(port, token):
    """The variables of a program that takes from and gives to the namespace of `token` and IMAGE."""
    return {"TRITON_CACHE_MANAGER": "wavetune.triton:CacheManager", "WAVETUNE_URL": f"http://127.0.0.1:{port}",
            "WAVETUNE_TOKEN": token, "WAVETUNE_IMAGE": IMAGE, "WAVETUNE_SHARED_CODE": "1"}


def start(version, folder, n, cache, variables=None, wait=False):
    """Starts the program."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("TRITON_", "WAVETUNE_"))}
    own.update({"TRITON_CACHE_DIR": str(cache), "PYTHONPATH": str(ROOT / "python"), "PYTHONWARNINGS": "ignore",
                "TRITON_HIP_LLD_PATH": shutil.which("ld.lld-19") or "/opt/rocm/llvm/bin/ld.lld", **(variables or {})})  # 3.3.1 has none
    return subprocess.Popen([python(version), __file__, folder, str(n), *(["wait"] if wait else [])], env=own,
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def finish(process):
    """What the program printed."""
    out, _ = process.communicate("\n", timeout=600)
    assert process.returncode == 0, out
    return json.loads(out.splitlines()[-1])


def main(folder, n, wait):
    sys.path[:0] = [folder, str(ROOT / "tests/python")]
    import standin
    standin.use(standin.Driver("gfx942"))
    compiles = standin.Compiles()
    import kernels
    if wait:
        print("ready", flush=True)
        sys.stdin.readline()
    times, before = [], sum(os.times()[:4])
    for i in range(n):
        began = time.perf_counter()
        getattr(kernels, f"kernel_{i}").warmup(standin.Tensor(), standin.Tensor(), 4096, BLOCK=1024, grid=(4,))
        times.append((time.perf_counter() - began) * 1e3)
    used = sum(os.times()[:4]) - before
    counters = sys.modules.get("wavetune._runtime.counters")
    print(json.dumps({"ms": times, "cpu_ms": used * 1e3, "compiled": compiles.n,
                      "counters": counters.snapshot() if counters else None}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3:] == ["wait"])
