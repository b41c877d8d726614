"""Answers questions with the readers' own code: read_tables.py vllm|sglang < QUESTIONS; both are JSON, the last line is the answers.

A question is [function, arguments]; null is what a reader answers where it has no table and takes its default.
"""
import json
import sys

import mi300x


def vllm():
    mi300x.for_vllm()
    mi300x.for_torch()
    from vllm.lora.ops.triton_ops.utils import get_lora_op_configs
    from vllm.model_executor.layers.fused_moe.fused_moe import get_moe_configs, try_get_optimal_moe_config
    from vllm.model_executor.layers.mamba.ops.mamba_ssm import get_ssm_configs, try_get_optimal_ssm_config
    return {one.__name__: one for one in (get_lora_op_configs, get_moe_configs, try_get_optimal_moe_config, get_ssm_configs,
                                          try_get_optimal_ssm_config)}


def sglang():
    """Its arguments are the default ones of a server: the readers ask whether inference is to be deterministic."""
    from sglang.srt.layers.moe.moe_runner.triton_utils.fused_moe_triton_config import (
        get_moe_configs, try_get_optimal_moe_config)
    from sglang.srt.runtime_context import get_context
    from sglang.srt.server_args import ServerArgs
    get_context().set_server_args(ServerArgs(model_path="none", device="cpu"))
    mi300x.for_torch()
    return {"get_moe_configs": get_moe_configs, "try_get_optimal_moe_config": try_get_optimal_moe_config}


functions = {"vllm": vllm, "sglang": sglang}[sys.argv[1]]()
answers = [functions[name](*arguments) for name, arguments in json.load(sys.stdin)]
print()
print(json.dumps(answers))
