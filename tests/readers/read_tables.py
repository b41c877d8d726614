"""Answers questions with the readers' own code: read_tables.py vllm|sglang < QUESTIONS; both are JSON, the last line is the answers.

A question is [function, arguments]; null is what a reader answers where it has no table and takes its default. Plug-ins are loaded by
the packages' own loaders, before what looks tables up is imported, or with $TEST_LATE_PLUGINS after.
"""
import json
import os
import sys

import mi300x

IS_LATE = bool(os.environ.get("TEST_LATE_PLUGINS"))


def launched(module, function, kernel):
    """What the block-scaled GEMM gives its kernel for (M, N, K), instead of launching it."""
    import torch

    class Kernel:
        def __getitem__(self, grid):
            return lambda *args, **config: found.append(config)

    def launch(m, n, k):
        found.clear()
        setattr(module, kernel, Kernel())
        tensors = [torch.zeros(shape, dtype=dtype) for dtype, shape in (
            (torch.float8_e4m3fnuz, (m, k)), (torch.float8_e4m3fnuz, (n, k)), (torch.float32, (m, -(-k // 128))),
            (torch.float32, (-(-n // 128), -(-k // 128))))]
        getattr(module, function)(*tensors, [128, 128], torch.bfloat16)
        return found[0]

    found = []
    return launch



def compiled(function):
    """How many graphs torch.compile has made of a program that calls the function, and whether its answer there is None."""
    import torch
    graphs = []

    def program(x, *arguments):
        return x if function(*arguments) is None else -x

    def call(*arguments):
        kept, torch.cuda.is_available = torch.cuda.is_available, lambda: False  # it would save the GPU's random state
        traced = torch.compile(program, backend=lambda graph, _: graphs.append(graph) or graph, fullgraph=True)
        is_none = bool(traced(torch.ones(1), *arguments) > 0)
        torch.cuda.is_available = kept
        return len(graphs), is_none

    return call


def vllm():
    mi300x.for_vllm()
    mi300x.for_torch()
    from vllm.plugins import load_general_plugins
    if not IS_LATE:
        load_general_plugins()
    from vllm.lora.ops.triton_ops import utils as lora
    from vllm.model_executor.layers.fused_moe import fused_moe as moe
    from vllm.model_executor.layers.mamba.ops import mamba_ssm as ssm
    from vllm.model_executor.layers.quantization.utils import fp8_utils as fp8
    load_general_plugins()
    return {"launch_w8a8": launched(fp8, "w8a8_triton_block_scaled_mm", "_w8a8_triton_block_scaled_mm"),
            **{name: getattr(module, name) for module, name in (
                (lora, "get_lora_op_configs"), (moe, "get_moe_configs"), (moe, "try_get_optimal_moe_config"),
                (ssm, "get_ssm_configs"), (ssm, "try_get_optimal_ssm_config"), (fp8, "get_w8a8_block_fp8_configs"))}}


def sglang():
    """Its arguments are the default ones of a server: the readers ask whether inference is to be deterministic."""
    from sglang.srt.plugins import load_plugins
    if not IS_LATE:
        load_plugins()
    from sglang.kernels.ops.gemm import fp8_kernel as fp8
    from sglang.srt.layers.moe.moe_runner.triton_utils import fused_moe_triton_config as moe
    from sglang.srt.runtime_context import get_context
    from sglang.srt.server_args import ServerArgs
    own = ServerArgs(model_path="none", device="cpu")
    own.enable_deterministic_inference = bool(os.environ.get("TEST_DETERMINISTIC"))
    get_context().set_server_args(own)
    mi300x.for_torch()
    load_plugins()
    return {"launch_w8a8": launched(fp8, "w8a8_block_fp8_matmul_triton", "_w8a8_block_fp8_matmul"),
            "compiled_w8a8": compiled(fp8.get_w8a8_block_fp8_configs),
            "get_w8a8_block_fp8_configs": fp8.get_w8a8_block_fp8_configs, "get_moe_configs": moe.get_moe_configs,
            "try_get_optimal_moe_config": moe.try_get_optimal_moe_config}


functions = {"vllm": vllm, "sglang": sglang}[sys.argv[1]]()
answers = [functions[name](*arguments) for name, arguments in json.load(sys.stdin)]
print()
print(json.dumps(answers))
