#!/usr/bin/env python3
"""A process that runs modules of packages, one step each, forward and backward: the layers of flash-linear-attention in each of
their modes, what Liger-Kernel and cut-cross-entropy autotune.

    bench/census_model.py FOLDER SECONDS      takes cases that no other process has taken (a file in FOLDER each), until that
                                              much time has passed, and prints a line of JSON for each

With $CENSUS_AMD the flags of flash-linear-attention are those of an AMD GPU. What a module needs beyond its size is in OPTIONS.
A case that fails says why, and the next is run; after a fault of the GPU, which every later call of a process reports, the process
ends.
"""

import inspect
import json
import os
import pathlib
import sys
import time

import torch

OPTIONS = {"LogLinearMamba2": {"num_heads": 64}, "BasedLinearAttention": {"hidden_size": 1024},
           "ReBasedLinearAttention": {"hidden_size": 1024}, "RWKV7Attention": {"num_hidden_layers": 4}}
MODES = ("chunk", "fused_chunk", "fused_recurrent", "recurrent", "parallel")
BATCH, LENGTH = 2, 512


def layers():
    from fla import layers as found
    for name in sorted(dir(found)):
        kind = getattr(found, name)
        if inspect.isclass(kind) and issubclass(kind, torch.nn.Module):
            parameters = inspect.signature(kind.__init__).parameters
            yield f"fla {name}", lambda kind=kind: layer(kind, {})
            mode = parameters["mode"].default if "mode" in parameters else None
            for other in MODES if mode else ():
                if other != mode:
                    yield f"fla {name} {other}", lambda kind=kind, other=other: layer(kind, {"mode": other})
            yield f"fla {name} decoding", lambda kind=kind: decoding(kind)
            yield f"fla {name} lengths", lambda kind=kind: layer(kind, {}, of_lengths=True)


def make(kind, more):
    parameters = inspect.signature(kind.__init__).parameters
    stated = {**({"layer_idx": 0} if "layer_idx" in parameters else {}), **OPTIONS.get(kind.__name__, {}), **more}
    return kind(**stated).cuda().bfloat16()


def width(model):
    return getattr(model, "hidden_size", None) or getattr(model, "d_model", None) or 2048


def layer(kind, more, of_lengths=False):
    """`of_lengths`: several sequences in one."""
    torch.manual_seed(0)
    model = make(kind, more)
    x = torch.randn(1 if of_lengths else BATCH, LENGTH, width(model), device="cuda", dtype=torch.bfloat16, requires_grad=True)
    extra = {"cu_seqlens": torch.tensor([0, 100, 230, LENGTH], device="cuda", dtype=torch.int32)} if of_lengths else {}
    output = model(x, **extra)
    backward(output)


def decoding(kind):
    """A prompt, and one token after it, as inference has them."""
    from fla.models.utils import Cache
    torch.manual_seed(0)
    model = make(kind, {}).eval()
    x = torch.randn(BATCH, 65, width(model), device="cuda", dtype=torch.bfloat16)
    with torch.no_grad():
        state = model(x[:, :64], past_key_values=Cache(), use_cache=True)[2]
        model(x[:, 64:], past_key_values=state, use_cache=True)


def backward(output):
    output = output[0] if isinstance(output, tuple) else output
    output.float().square().mean().backward()


def tensor(*shape, dtype=torch.bfloat16, grad=True):
    return torch.randn(*shape, device="cuda", dtype=dtype, requires_grad=grad)


def liger_dyt():
    from liger_kernel.ops.dyt import LigerDyTFunction
    backward(LigerDyTFunction.apply(tensor(2, 512, 2048), tensor(1), tensor(2048), tensor(2048)))


def liger_mlp():
    from liger_kernel.ops.mlp import LigerMLPFunction
    wanted = list(inspect.signature(LigerMLPFunction.forward).parameters)[1:]
    given = {"input": tensor(2, 512, 1024), "gate_weight": tensor(2048, 1024), "up_weight": tensor(2048, 1024),
             "down_weight": tensor(1024, 2048)}
    backward(LigerMLPFunction.apply(*(given[name] for name in wanted if name in given)))


def liger_experts():
    from liger_kernel.ops.fused_moe import LigerFusedMoEFunction
    experts, hidden, inner, tokens = 8, 512, 1024, 1024
    index = torch.randint(0, experts, (tokens, 2), device="cuda", dtype=torch.int32)
    weights = torch.softmax(torch.randn(tokens, 2, device="cuda"), -1).to(torch.bfloat16).requires_grad_()
    backward(LigerFusedMoEFunction.apply(tensor(tokens, hidden), tensor(experts, 2 * inner, hidden),
                                         tensor(experts, hidden, inner), index, weights))


def liger_int2():
    from liger_kernel.ops.experimental.mm_int8int2 import matmul
    matmul(torch.randint(-3, 3, (512, 1024), device="cuda", dtype=torch.int8),
           torch.randint(0, 200, (256, 512), device="cuda", dtype=torch.uint8))


def entropy():
    from cut_cross_entropy import linear_cross_entropy
    targets = torch.randint(0, 8192, (1024,), device="cuda")
    linear_cross_entropy(tensor(1024, 512), tensor(8192, 512), targets).backward()


def import_as_amd():
    """While flash-linear-attention is imported, Triton's driver states an AMD GPU, by which the package sets its flags, and with
    them texts and configs. What is launched is compiled for the GPU that is there."""
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver
    own = driver.active.get_current_target
    driver.active.get_current_target = lambda: GPUTarget("hip", "gfx942", 64)
    import fla.layers
    import fla.utils
    driver.active.get_current_target = own
    assert fla.utils.IS_AMD and not fla.utils.IS_NVIDIA


def cases():
    """The small packages first: the layers of flash-linear-attention take all the time there is."""
    for function in (liger_dyt, liger_mlp, liger_experts, liger_int2):
        yield f"liger {function.__name__[6:]}", function
    yield "cce linear_cross_entropy", entropy
    yield from layers()


def main(folder, seconds):
    until = time.monotonic() + float(seconds)
    if os.environ.get("WAVETUNE_CAPTURE_TO"):
        import wavetune.auto  # noqa: F401
    if os.environ.get("CENSUS_AMD"):
        import_as_amd()
    for name, run in cases():
        if time.monotonic() > until:
            return
        try:
            os.close(os.open(pathlib.Path(folder) / name.replace(" ", "-"), os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            continue
        started, why = time.perf_counter(), None
        try:
            run()
            torch.cuda.synchronize()
        except Exception as error:
            why = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        print(json.dumps({"case": name, "seconds": round(time.perf_counter() - started, 2), "why": why}), flush=True)
        if why and ("illegal memory access" in why or "CUDA error" in why or "unspecified launch" in why):
            return


main(*sys.argv[1:])
