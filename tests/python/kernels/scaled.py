"""A kernel as a deployment imports it: configs that depend on the GPU, and parameters of every kind that the JIT hashes."""
import triton
import triton.language as tl


def configs():
    warps = 8 if triton.runtime.driver.active.get_current_target().backend == "hip" else 16
    return [triton.Config({"BLOCK": 256}), triton.Config({"BLOCK": 512}, num_warps=warps, num_stages=1)]


@triton.autotune(configs=configs(), key=["n"])
@triton.jit
def scale_kernel(x_ptr, y_ptr, n, stride, flag, factor, MODE: tl.constexpr, BLOCK: tl.constexpr, bias_ptr=None,
                 WIDTH: tl.constexpr = 3, TYPE: tl.constexpr = tl.float32, DEPTH: tl.constexpr = tl.constexpr(5)):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets * stride, mask=offsets < n).to(TYPE) * factor + WIDTH
    tl.store(y_ptr + offsets, x + n if flag else x + DEPTH, mask=offsets < n)
