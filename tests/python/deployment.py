"""A program as it is deployed, where there is no GPU: `scaled.scale_kernel` called with stand-ins for tensors under a driver
that knows its target. Triton is the real one.

    deployment.py ARCH run|warmup N…     prints what it compiled, and the counts of a benchmark that measures nothing
"""
import json
import sys

import standin
import triton


def count_from_cache(seen):
    """Calls of the compiler; of these, those that compiled nothing came from the cache."""
    compile_ = triton.compiler.compile

    def counted(*arguments, **more):
        seen["from_cache"] += 1
        return compile_(*arguments, **more)

    triton.compiler.compile = counted


def main(arch, how, sizes):
    seen, driver = {"from_cache": 0, "best": []}, standin.Driver(arch, first_wins=True)
    standin.use(driver)
    compiles = standin.Compiles()
    count_from_cache(seen)
    from scaled import scale_kernel
    for n in sizes:
        arguments = (standin.Tensor(), standin.Tensor(), n, 1, True, 0.25, "DOUBLE-S")
        if how == "warmup":
            scale_kernel.warmup(*arguments, grid=(1,))
        else:
            scale_kernel.run(*arguments, grid=(1,), warmup=True)
            seen["best"].append(str(scale_kernel.best_config))
    return {**seen, "from_cache": seen["from_cache"] - compiles.n, "compiled": compiles.n, "benchmarked": driver.benchmarked}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2], [int(n) for n in sys.argv[3:]])))
