"""Kernels whose configs have hooks, as packages have them."""
import triton
import triton.language as tl


def init_to_zero(name):
    """As gemlite has it."""
    return lambda nargs: nargs[name].zero_()


def pruned(configs, nargs, **kwargs):
    """Makes other configs, each with a hook of its own."""
    for config in configs:
        split = config.kwargs["SPLIT"]
        yield triton.Config({"SPLIT": split, "BLOCK": 64 // split}, num_warps=config.num_warps,
                            pre_hook=init_to_zero("y_ptr") if split > 1 else None)


@triton.autotune(configs=[triton.Config({"SPLIT": split}, num_warps=2) for split in (1, 2, 4)], key=["n"],
                 prune_configs_by={"early_config_prune": lambda *args, **kwargs: list(pruned(*args, **kwargs))})
@triton.jit
def split_kernel(x_ptr, y_ptr, n, SPLIT: tl.constexpr, BLOCK: tl.constexpr):
    """The sum of x, in the first element of y."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.sum(tl.load(x_ptr + at, mask=at < n))
    if SPLIT > 1:
        tl.atomic_add(y_ptr, total)
    else:
        tl.store(y_ptr, total)


def half(nargs):
    nargs["y_ptr"].fill_(0.5)


def whole(nargs, reset_only=False):
    nargs["x_ptr"].fill_(1)


@triton.autotune(configs=[triton.Config({"BLOCK": block}, pre_hook=half) for block in (64, 128)], key=["n"], pre_hook=whole,
                 reset_to_zero=["y_ptr"])
@triton.jit
def sum_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """Triton calls the autotuner's pre_hook in the place of what reset_to_zero asks for."""
    at = tl.arange(0, BLOCK)
    y = tl.load(y_ptr + at, mask=at < n) + tl.load(x_ptr + at, mask=at < n)
    tl.store(y_ptr + at, y, mask=at < n)


def blocks(nargs):
    """As Triton's tutorials have it."""
    nargs["a_desc"].block_shape = [nargs["BLOCK_M"], nargs["BLOCK_K"]]
    nargs["b_desc"].block_shape = [nargs["BLOCK_K"], 32]
    nargs["c_desc"].block_shape = [nargs["BLOCK_M"], 32]


@triton.autotune(configs=[triton.Config({"BLOCK_M": m, "BLOCK_K": k}, num_warps=4, pre_hook=blocks)
                          for m, k in ((64, 32), (64, 64), (128, 64))], key=["M", "N", "K"])
@triton.jit
def matmul_kernel(a_desc, b_desc, c_desc, scale_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr):
    """Of N = 32."""
    row = tl.program_id(0) * BLOCK_M
    total = tl.zeros((BLOCK_M, 32), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        total = tl.dot(a_desc.load([row, k]), b_desc.load([k, 0]), total)
    c_desc.store([row, 0], (total * tl.load(scale_ptr)).to(tl.float16))
