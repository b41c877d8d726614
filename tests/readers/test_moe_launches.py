"""What vLLM's and SGLang's own launchers pass to fused_moe_kernel, of tensors without storage, is what the entry states
(kernels/tables/fused_moe): extents, scalars, constexprs and grid."""

import ast
import functools
import importlib.util
import itertools
import json
import math
import pathlib
import types
import typing

import pytest
from conftest import ROOT

if importlib.util.find_spec("vllm") is None or importlib.util.find_spec("sglang") is None:
    pytest.skip("vllm and sglang are not installed", allow_module_level=True)

import torch
import triton
import triton.language as tl
from wavetune._pack.expressions import expression
from wavetune._pack.folder import find_version

FOLDER = ROOT / "kernels/tables/fused_moe"
VERSIONS = list(json.loads((FOLDER / "kernel.json").read_text())["versions"])
SHAPES = ((8, 1792, 4096, 2), (256, 256, 7168, 8), (128, 192, 2048, 8))
UNSTATED = {"USE_TD", "FUSE_SWIGLU", "A_OUTPUT_SLICES", "A_OUTPUT_SLICE_K", "A_OUTPUT_SLICE_WIDTH"}  # at their defaults


def empty(*shape, dtype=torch.float32):
    return torch.empty(*shape, dtype=dtype, device="meta")


class Kernel:
    """In the function's place: keeps what it is launched with."""

    def __init__(self, names):
        self.names = names

    def __getitem__(self, grid):
        def launch(*values, **named):
            self.grid, self.passed = grid, {**dict(zip(self.names, values)), **named}

        return launch


@functools.cache
def texts_of(module, name):
    """The code of a function of the module, and the kernel's parameters."""
    site = pathlib.Path(importlib.util.find_spec(module.partition(".")[0]).origin).parents[1]
    path = site / f"{module.replace('.', '/')}.py"
    functions = {n.name: n for n in ast.parse(path.read_text()).body if isinstance(n, ast.FunctionDef)}
    text = f"from __future__ import annotations\n{ast.unparse(functions[name])}"
    return compile(text, str(path), "exec"), [a.arg for a in functions["fused_moe_kernel"].args.args]


def launcher(module, name, arch, scale):
    """The package's function with the kernel in the place of Triton's, and what it asks of the platform answered."""
    code, parameters = texts_of(module, name)
    kernel = Kernel(parameters)

    def swaps(block_m, block_n):
        return arch == "sm_90" and block_m < 64 and block_n >= 64

    scope = {
        "torch": torch, "triton": types.SimpleNamespace(cdiv=triton.cdiv), "tl": tl, "fused_moe_kernel": kernel, "padding_size": 0,
        **vars(typing), "enable_swap_ab": swaps, "should_enable_swap_ab": swaps, "resolve_moe_use_td": lambda: False,
        "warn_if_moe_use_td_ineffective": lambda *a, **k: None, "is_arch_support_pdl": lambda: False, "_is_cuda": "gfx" not in arch,
        "sglang_per_token_group_quant_fp8": lambda a, block: (a, scale), "per_token_group_quant_fp8": lambda a, block: (a, scale)}
    exec(code, scope)
    return kernel, scope[name]


def launched(version, own, key, config, arch):
    """The kernel after a launch of the key's tensors."""
    is_vllm, is_block = version.startswith("vllm"), version.partition("_")[2] in ("fp8", "fp8_fnuz", "fp8_rocm")
    e, top_k, m, is_up, size = key["E"], key["top_k"], key["M"], key["gemm"] == "up", config["BLOCK_SIZE_M"]
    rows, n, k = (m, 2 * key["N"], key["K"]) if is_up else (m * top_k, key["K"], key["N"])
    dtypes = {a["name"]: getattr(torch, a["dtype"]) for a in own["arguments"] if "shape" in a}
    a, b = empty(rows, k, dtype=dtypes["a_ptr"]), empty(e, n, k, dtype=dtypes["b_ptr"])
    c = empty(m, top_k, n, dtype=torch.bfloat16)
    if version == "vllm_bf16_rocm" and 2 * k % 512 == 0:  # VLLM_ROCM_MOE_PADDING
        b = empty(e, n, k + 128, dtype=b.dtype)[..., :-128]
    a_scale, b_scale = {"fp8_tensor": (empty(1), empty(e)), "int8_w8a16": (None, empty(e, n))}.get(
        version.partition("_")[2], (None, None))
    if is_block:
        a_scale, b_scale = empty(rows, math.ceil(k / 128)), empty(e, math.ceil(n / 128), math.ceil(k / 128))
    ids = m * top_k
    padded = min(ids * size, ids + (e if is_vllm else e + 1) * (size - 1))
    is_naive = is_vllm and ids * 4 <= e
    sorted_ids = None if is_naive else empty(padded if is_vllm else (padded + 3) // 4 * 4, dtype=torch.int32)
    blocks = ids if is_naive else math.ceil(sorted_ids.numel() / size)
    routed = sorted_ids, empty(blocks, dtype=torch.int32), empty(1, dtype=torch.int32)
    how = {"compute_type": tl.bfloat16, "use_fp8_w8a8": "fp8" in version, "use_int8_w8a8": False, "use_int8_w8a16": "int8" in version,
           "use_int4_w4a16": False, "per_channel_quant": False, "block_shape": [128, 128] if is_block else None}
    weights, last = empty(m, top_k), (not is_up, top_k if is_up else 1, dict(config))
    name = "invoke_fused_moe_triton_kernel" if is_vllm else "invoke_fused_moe_kernel"
    kernel, launch = launcher(own["from"]["module"], name, arch, a_scale)
    if is_vllm:
        launch(a, b, c, a_scale, b_scale, weights, *routed, *last, **how)
    else:
        launch(a, b, None, c, a_scale, b_scale, None, weights, empty(m, top_k), *routed, *last, **how,
               router_topk=1 if is_up else top_k)
    return kernel


@pytest.mark.parametrize("version", VERSIONS)
def test_a_launch_passes_what_the_entry_states(version):
    _, document, _ = find_version(f"{FOLDER}:{version}")
    own = {**document, **document["versions"][version]}
    arch = "gfx942" if "fnuz" in version else "gfx950" if "rocm" in version else "sm_90"
    for shape, m, gemm, block in itertools.product(SHAPES, (1, 4, 7, 64, 4096), ("up", "down"), (16, 64, 256)):
        key = {**dict(zip(("E", "N", "K", "top_k"), shape)), "M": m, "gemm": gemm}
        if key["N"] % 128 and "scale_ptr" in str(own["arguments"]):
            continue  # vLLM refuses such a model
        config = {"BLOCK_SIZE_M": block, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 128, "GROUP_SIZE_M": 1, "num_warps": 4,
                  "num_stages": 2}
        kernel, scope = launched(version, own, key, config, arch), {**key, **config, "arch": arch, "gpu_name": ""}

        def value(text):
            return expression(text).evaluate(scope)

        stated = {a["name"]: value(a["value"]) for a in own["arguments"] if "value" in a}
        stated.update({name: value(text) for name, text in own["defines"].items()})
        assert {name: kernel.passed[name] for name in stated} == stated, (key, config)
        buffers = {a["name"]: (getattr(torch, a["dtype"]), math.prod(map(value, a["shape"]))) for a in own["arguments"]
                   if "shape" in a}
        for name, (dtype, elements) in buffers.items():
            tensor = kernel.passed[name]
            if tensor is None:
                assert name == "sorted_token_ids_ptr" and stated["naive_block_assignment"]
            else:
                assert (tensor.dtype, tensor.stride(0) * tensor.size(0)) == (dtype, elements), (name, key, config)
        assert [*kernel.grid(config)] == [value(text) for text in own["launch"]["grid"]]
        known = {*stated, *buffers, *own["constexprs"], *config}
        assert set(kernel.passed) - known <= UNSTATED
