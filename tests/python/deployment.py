"""A program as it is deployed, where there is no GPU: `scaled.scale_kernel` called with stand-ins for tensors under a driver
that knows its target. Triton is the real one.

    deployment.py ARCH run|warmup N…     prints what it compiled, and the counts of a benchmark that measures nothing
"""
import json
import sys
import types

import triton
from triton.backends.compiler import GPUTarget

TARGETS = {"gfx942": GPUTarget("hip", "gfx942", 64), "sm_90": GPUTarget("cuda", 90, 32)}


class Dtype:
    def __str__(self):
        return "torch.float16"


class Tensor:
    dtype = Dtype()

    def data_ptr(self):
        return 0

    def ptr_range(self):
        return 4096


class Driver:
    def __init__(self, target, seen):
        self.target, self.seen = target, seen

    def get_current_target(self):
        return self.target

    def get_current_device(self):
        return 0

    def get_current_stream(self, device):
        return 0

    def get_benchmarker(self):
        def bench(kernel_call, quantiles):
            self.seen["benchmarked"] += 1
            return [float(self.seen["benchmarked"])] * 3

        return bench


def report_compiles(seen):
    """Counts by Triton's own listener; before 3.4 it has none, so that the back ends' last stage and all calls are counted."""
    if hasattr(triton, "knobs"):
        def listener(*, cache_hit, **_):
            seen["from_cache" if cache_hit else "compiled"] += 1

        triton.knobs.compilation.listener = listener
        return

    def counted(function, member, step):
        def call(*arguments, **more):
            seen[member] += step
            return function(*arguments, **more)
        return call

    for backend, last in (("amd", "make_hsaco"), ("nvidia", "make_cubin")):
        compiler = triton.backends.backends[backend].compiler
        call = counted(counted(getattr(compiler, last), "compiled", 1), "from_cache", -1)
        setattr(compiler, last, staticmethod(call) if isinstance(vars(compiler)[last], staticmethod) else call)
    triton.compiler.compile = counted(triton.compiler.compile, "from_cache", 1)


def main(arch, how, sizes):
    torch = types.ModuleType("torch")
    torch.Tensor = Tensor
    sys.modules.setdefault("torch", torch)
    seen = {"benchmarked": 0, "from_cache": 0, "compiled": 0, "best": []}
    triton.runtime.driver.set_active(Driver(TARGETS[arch], seen))

    report_compiles(seen)
    from scaled import scale_kernel
    for n in sizes:
        arguments = (Tensor(), Tensor(), n, 1, True, 0.25, "DOUBLE-S")
        if how == "warmup":
            scale_kernel.warmup(*arguments, grid=(1,))
        else:
            scale_kernel.run(*arguments, grid=(1,), warmup=True)
            seen["best"].append(str(scale_kernel.best_config))
    return seen


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2], [int(n) for n in sys.argv[3:]])))
