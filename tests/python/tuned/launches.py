"""A program that launches kernels of four signatures for real, where there is no GPU: with Triton's own launchers, which a
stand-in for the CUDA driver's library takes (libcuda.c). Triton from 3.3 to 3.6.

    launches.py    prints one line of JSON

$SOURCES: a folder for its kernels. $HOW: "ready": it begins when the launchers that were prepared for it are compiled;
"fork": the same, and then a child launches; "begun": it begins when as many compilers as $BEGUN run; "choices": it
launches the functions of ops.py, the second when what was prepared is compiled. $LATE: what TRITON_CACHE_DIR is set to
before the first launch, as vLLM does. $LAUNCHES: 0: it ends without a launch. $EXPECTED: how many launchers choices bring
(1).
"""
import json
import os
import sys
import time

import program
import triton
import triton.language as tl

KERNELS = []
for n in range(1, 5):
    names = ", ".join(f"x{i}" for i in range(n))
    text = f"def kernel_{n}({names}, n, BLOCK: tl.constexpr):\n    tl.store(x0 + tl.arange(0, BLOCK), n)\n"
    path = os.path.join(os.environ["SOURCES"], f"kernel_{n}.py")
    if not os.path.exists(path):
        with open(path, "w") as file:
            file.write(text)
    scope = {"tl": tl, "__name__": f"kernel_{n}"}
    exec(compile(text, path, "exec"), scope)
    KERNELS.append(triton.jit(scope[f"kernel_{n}"]))


def launch():
    for n, kernel in enumerate(KERNELS, 1):
        kernel[(1,)](*[program.Tensor()] * n, 16, BLOCK=64)


def launch_tuned():
    import ops
    ops.add_kernel[(1,)](program.Tensor(), program.Tensor(), 4096)
    if runtime() is not None and runtime().launchers._drivers:
        wait(int(os.environ.get("EXPECTED", "1")))
    ops.fill_kernel[(1,)](program.Tensor(), 4096)


def runtime():
    module = sys.modules.get("wavetune._runtime.program")
    return module.program() if module else None


def wait(n):
    """Until what was prepared for this program is as far as $HOW says; `n`: launchers that are at least prepared."""
    own, how, until = runtime().launchers, os.environ["HOW"], time.monotonic() + 60
    while time.monotonic() < until:
        jobs = list(own._worker.named.values())
        if how == "begun" and len(own._processes) == int(os.environ["BEGUN"]):
            return
        if how != "begun" and len(jobs) >= n and all(job.done.is_set() for job in jobs):
            return
        time.sleep(0.01)
    raise SystemExit("the launchers were not prepared")


def report(started):
    own = runtime()
    print(json.dumps({"seconds": round(time.perf_counter() - started, 3), "compiled": COMPILES.n,
                      "used": own.launchers.used if own else None}), flush=True)


if __name__ == "__main__":
    program.DRIVER.launcher_cls = triton.backends.backends["nvidia"].driver.__init__.__globals__["CudaLauncher"]
    program.standin.use(program.DRIVER)
    COMPILES = program.standin.Compiles()
    how = os.environ.get("HOW")
    if how not in (None, "choices"):
        wait(len(KERNELS))
    if "LATE" in os.environ:
        os.environ["TRITON_CACHE_DIR"] = os.environ["LATE"]
    if os.environ.get("LAUNCHES") == "0":
        raise SystemExit
    STARTED = time.perf_counter()
    child = os.fork() if how == "fork" else None
    if child:
        assert os.waitpid(child, 0)[1] == 0
    else:
        (launch_tuned if how == "choices" else launch)()
        report(STARTED)
        if child == 0:
            os._exit(0)
