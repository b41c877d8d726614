"""A program as people have it, where there is no GPU: it launches kernels with stand-ins for tensors under a driver that knows
its target. Triton, its compiler and its autotuner are the real ones, of any version from 3.3 to 3.9.

    program.py [fork] N…     prints one line of JSON: the configs that it used, and what Triton did for them

The benchmark measures nothing: each of its times is less than the one before, so that the last config wins. With
$COMPILE_ALL it compiles what it would measure, as a GPU's does.
"""
import json
import os
import sys
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import standin  # noqa: E402
from standin import Driver, Tensor  # noqa: E402

DRIVER = Driver()


def launch(sizes):
    import ops
    used = []
    for n in sizes:
        for kernel, arguments in ((ops.add_kernel, (Tensor(), Tensor(), n)), (ops.fill_kernel, (Tensor(), n))):
            kernel.run(*arguments, grid=(1,), warmup=True)
            config = kernel.best_config
            used.append([config.kwargs["BLOCK"], config.num_warps])
    return used


def report(used):
    counters = sys.modules.get("wavetune._runtime.counters")
    print(json.dumps({"used": used, "benchmarked": DRIVER.benchmarked, "compiled": COMPILES.n,
                      "seconds": round(time.perf_counter() - STARTED, 3),
                      "counters": counters.snapshot() if counters else None}), flush=True)


if __name__ == "__main__":
    standin.use(DRIVER)
    COMPILES = standin.Compiles()
    how = sys.argv[1] if not sys.argv[1].isdigit() else ""
    sizes = [int(text) for text in sys.argv[1:] if text.isdigit()]
    STARTED = time.perf_counter()
    if how == "fork":  # the child launches what the parent launched, and another size
        report(launch(sizes[:1]))
        child = os.fork()
        if child == 0:
            DRIVER.benchmarked, COMPILES.names = 0, []
            report(launch(sizes))
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    else:
        report(launch(sizes))
