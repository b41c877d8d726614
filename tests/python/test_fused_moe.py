"""The entry of fused mixtures of experts (kernels/tables/fused_moe): every version is whole, and the launches that vLLM's and
SGLang's own code makes of tensors are its kernels with the right keys."""

import ctypes
import json
import subprocess
import types

import numpy as np
import pytest
from conftest import ROOT, program

from wavetune._captured.entries import Unmatched, key_of
from wavetune._captured.floats import bfloat16_of, bfloat16_widened, float8_widened
from wavetune._pack.entries import load_entry
from wavetune._pack.folder import check_fills, check_segments
from wavetune._pack.spaces import parse_space

FOLDER = ROOT / "kernels/tables/fused_moe"
VERSIONS = list(json.loads((FOLDER / "kernel.json").read_text())["versions"])
KEY = {"E": 8, "N": 1792, "K": 4096, "top_k": 2, "M": 64}
CONFIG = {"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 128, "BLOCK_SIZE_K": 128, "GROUP_SIZE_M": 32, "num_warps": 4, "num_stages": 3}

pytestmark = pytest.mark.one_triton


@pytest.mark.parametrize("version", VERSIONS)
def test_a_version_is_whole(version):
    entry = load_entry(f"{FOLDER}:{version}")
    manifest = {**entry.document, **entry.own}
    check_fills(manifest["arguments"])
    check_segments(types.SimpleNamespace(manifest=manifest, space=parse_space(entry.space, version)))
    arch = "gfx942" if "fnuz" in version or "rocm" in version else "sm_90"
    for m, gemm in ((1, "up"), (4096, "down")):
        key = ",".join(f"{name}={value}" for name, value in {**KEY, "M": m, "gemm": gemm}.items())
        done = subprocess.run([program("wavetune"), "space", "count", f"{FOLDER}:{version}", "--key", key, "--arch", arch],
                              capture_output=True, text=True)
        assert done.returncode == 0 and int(done.stdout.split()[0]) > 100, done.stdout + done.stderr


def launch_of(project, key, dtype, *, arch="sm_90", padded=0, block=True, config=None, **more):
    """What the projects' launchers pass of contiguous tensors, by their shapes and strides."""
    e, top_k, m, is_up = key["E"], key["top_k"], key["M"], key["gemm"] == "up"
    a_rows, n, k = (m, 2 * key["N"], key["K"]) if is_up else (m * top_k, key["K"], key["N"])
    config = config or CONFIG
    shapes = {"a_ptr": [a_rows, k], "b_ptr": [e, n, k], "c_ptr": [m, top_k, n]}
    scales = {"a_scale_ptr": [a_rows, k // 128], "b_scale_ptr": [e, n // 128, k // 128]} if block else {}
    stride_bn = k + padded
    rows, size = m * top_k, config["BLOCK_SIZE_M"]
    if project == "vllm":
        ids = min(rows * size, rows + e * (size - 1)) if rows < e else rows + e * (size - 1)
        is_naive = rows * 4 <= e
        em = rows * size if is_naive else min(ids, rows * size) if a_rows < size else ids
        values = {"EM": em, "SPLIT_K": 1, "HAS_BIAS": False,
                  "SWAP_AB": False, "USE_TD": False, "naive_block_assignment": is_naive, "stride_bbe": 0, "stride_bbn": 0}
        nothing = ["b_bias_ptr"] + is_naive * ["sorted_token_ids_ptr"] + is_up * ["topk_weights_ptr"]
    else:
        ids = rows * size if rows < e + 1 else rows + (e + 1) * (size - 1)
        ids = (ids + 3) // 4 * 4
        values = {"EM": ids, "even_Ks": k % config["BLOCK_SIZE_K"] == 0, "c_sorted": False, "swap_ab": False,
                  "ROUTER_TOPK": 1 if is_up else top_k,
                  "FUSE_ADD_TO_OUTPUT": False, "MASK_OUTPUT": False, "FUSE_SUM_ALL_REDUCE": False, "FUSE_SWIGLU": False,
                  "stride_bias_e": 0, "stride_bias_n": 0}
        nothing = ["a_desc", "b_desc", "bias_ptr", "add_mask_ptr"]
    values |= {"N": n, "K": k, "num_valid_tokens": rows, "stride_am": k, "stride_ak": 1, "stride_be": n * stride_bn,
               "stride_bk": 1, "stride_bn": stride_bn, "stride_cm": n, "stride_cn": 1,
               "stride_asm": k // 128 if block else 0, "stride_ask": int(block),
               "stride_bse": n // 128 * (k // 128) if block else 0,
               "stride_bsk": int(block), "stride_bsn": k // 128 if block else 0, "group_n": 128 * block, "group_k": 128 * block,
               "MUL_ROUTED_WEIGHT": not is_up, "top_k": top_k if is_up else 1, "use_fp8_w8a8": block, "use_int8_w8a8": False,
               "use_int8_w8a16": False, "per_channel_quant": False,
               **{name: value for name, value in config.items() if name.isupper()}, **more}
    tensors = {name: (shape, "bfloat16" if name == "c_ptr" else dtype) for name, shape in shapes.items()}
    tensors |= {name: (shape, "float32") for name, shape in {**scales, "topk_weights_ptr": [m, top_k]}.items()}
    tensors |= {name: ([9], "int32") for name in ("sorted_token_ids_ptr", "expert_ids_ptr", "num_tokens_post_padded_ptr")}
    nothing += [] if block else ["a_scale_ptr", "b_scale_ptr"]
    arguments = [{"name": name, "kind": "tensor", "shape": shape, "dtype": own} for name, (shape, own) in tensors.items()
                 if name not in nothing]
    arguments += [{"name": name, "kind": "none"} for name in nothing]
    arguments += [{"name": name, "kind": "constexpr", "value": value} for name, value in values.items()]
    arguments.append({"name": "compute_type", "kind": "constexpr", "value": {"dtype": "bfloat16"}})
    return types.SimpleNamespace(arguments=arguments, arch=arch, configs=[types.SimpleNamespace(config=config)])


FP8, BF16 = "float8_e4m3fn", {"dtype": "bfloat16", "block": False}


@pytest.mark.parametrize("version, launch", [
    ("vllm_fp8", {"dtype": FP8}), ("vllm_fp8_rocm", {"dtype": FP8, "arch": "gfx950"}),
    ("vllm_fp8_fnuz", {"dtype": FP8 + "uz", "arch": "gfx942"}), ("vllm_bf16", BF16),
    ("vllm_bf16_rocm", {**BF16, "arch": "gfx942", "padded": 128}), ("sglang_fp8", {"dtype": FP8}), ("sglang_bf16", BF16),
    ("sglang_fp8_fnuz", {"dtype": FP8 + "uz", "arch": "gfx942"})])
@pytest.mark.parametrize("m", [1, 2, 64, 4096])
@pytest.mark.parametrize("gemm", ["up", "down"])
@pytest.mark.parametrize("block_m", [64, 256])
def test_a_launch_makes_its_key(version, launch, m, gemm, block_m):
    key = {**KEY, "M": m, "gemm": gemm}
    made = launch_of(version.partition("_")[0], key, config={**CONFIG, "BLOCK_SIZE_M": block_m}, **launch)
    assert key_of(load_entry(f"{FOLDER}:{version}"), made) == key


@pytest.mark.parametrize("launch, why", [
    ({"dtype": FP8 + "uz"}, "a_ptr is float8_e4m3fnuz in the launch"), ({"dtype": FP8, "arch": "gfx950"}, "condition"),
    ({"dtype": FP8, "MUL_ROUTED_WEIGHT": True}, "MUL_ROUTED_WEIGHT is True"), ({"dtype": FP8, "group_n": 64}, "condition"),
    ({"dtype": FP8, "padded": 256}, "stride_be is "), (BF16, "condition")])
def test_a_launch_of_another_version_makes_none(launch, why):
    with pytest.raises(Unmatched, match=why):
        key_of(load_entry(f"{FOLDER}:vllm_fp8"), launch_of("vllm", {**KEY, "gemm": "up"}, **launch))


def test_a_launch_of_one_expert_a_token_does_not_tell_which_multiplication_it_is():
    for version, gemm, why in (("vllm_fp8", "up", "topk_weights_ptr_extent_1 is not known"), ("vllm_fp8", "down", "condition"),
                               ("sglang_fp8", "up", "condition")):
        with pytest.raises(Unmatched, match=why):
            key_of(load_entry(f"{FOLDER}:{version}"), launch_of(version[:-4], {**KEY, "top_k": 1, "gemm": gemm}, FP8))


ROUTES = [(0, 2), (2, 1), (0, 1), (2, 0)]  # the experts of each of four tokens
SCALES = {"fp8": (128, 128), "fp8_fnuz": (128, 128), "tensor": (0, 0), "bf16": (0, 0), "int8": (0, 0)}


@pytest.mark.parametrize("kind", SCALES)
@pytest.mark.parametrize("is_up", [True, False])
def test_the_reference_is_the_row_times_the_matrix_of_its_expert(tmp_path, kind, is_up):
    draw, block, (group_n, group_k) = np.random.default_rng(1), 4, SCALES[kind]
    e, n, k, rows = 3, 140, 200, 4 if is_up else 8
    is_fp8 = kind in ("fp8", "fp8_fnuz", "tensor")
    dtype = "float8_e4m3fnuz" if kind == "fp8_fnuz" else "float8_e4m3fn"

    def operand(*shape, is_int8=False):
        """As memory has it, and as doubles."""
        if is_int8:
            codes = draw.integers(-127, 128, shape, np.int8)
            return codes, codes.astype(float)
        if is_fp8:
            codes = draw.integers(0, 0x78, shape, np.uint8) | draw.choice(np.array([0, 0x80], np.uint8), shape) | 1
            return codes, float8_widened(dtype, codes).astype(float)
        codes = bfloat16_of(draw.standard_normal(shape))
        return codes, bfloat16_widened(codes).astype(float)

    a, wide_a = operand(rows, k)
    b, wide_b = operand(e, n, k, is_int8=kind == "int8")
    weights = draw.random(8, np.float32)
    a_scale, b_scale = draw.random((rows, 2), np.float32), draw.random((e, 2, 2), np.float32)
    if group_k:
        wide_a = wide_a * a_scale.repeat(128, 1)[:, :k]
        wide_b = wide_b * b_scale.repeat(128, 1)[:, :n].repeat(128, 2)[:, :, :k]
    elif kind == "tensor":
        a_scale, b_scale = a_scale[:1, :1].copy(), b_scale[:, 0, 0].copy()
        wide_a, wide_b = wide_a * a_scale, wide_b * b_scale[:, None, None]
    elif kind == "int8":
        b_scale = draw.random((e, n), np.float32)
        wide_b = wide_b * b_scale[:, :, None]

    experts = np.array(ROUTES).flatten()
    groups = [np.flatnonzero(experts == expert) for expert in range(e)]
    ids = np.concatenate([np.pad(one, (0, -len(one) % block), constant_values=8) for one in groups]).astype(np.int32)
    of_blocks = np.concatenate([[i] * -(-len(one) // block) for i, one in enumerate(groups)]).astype(np.int32)
    scales = [a_scale, b_scale] if is_fp8 else [b_scale] if kind == "int8" else []
    buffers = [a, b, np.zeros(1), *scales, weights, ids, of_blocks, np.array([len(ids)], np.int32)]
    scalars = [n, k, 0, 8, k, 1, n * k, 1, k, *[0] * 9]

    top_k = 2 if is_up else 1
    macros = {"top_k": top_k, "MUL_ROUTED_WEIGHT": int(not is_up), "group_n": group_n, "group_k": group_k, "BLOCK_SIZE_M": block}
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", *(f"-D{name}={value}" for name, value in macros.items()),
                    "-o", tmp_path / "reference.so", FOLDER / "reference.c"], check=True)
    name = {"tensor": "fp8"}.get(kind, kind)
    element = getattr(ctypes.CDLL(str(tmp_path / "reference.so")), f"fused_moe_{name}_at")
    element.restype = ctypes.c_double
    arguments = [*(ctypes.c_void_p(one.ctypes.data) for one in buffers), *map(ctypes.c_int32, scalars)]
    found = [element(ctypes.c_int64(i), *arguments) for i in range(8 * n)]
    expected = [wide_b[experts[row]] @ wide_a[row // top_k] * (1 if is_up else weights[row]) for row in range(8)]
    assert np.allclose(found, np.array(expected).flatten(), rtol=1e-6, atol=1e-6)
