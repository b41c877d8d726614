"""The entry of fused mixtures of experts (kernels/tables/fused_moe): every version is whole, and the launches that vLLM's and
SGLang's own code makes of tensors are its kernels with the right keys."""

import json
import subprocess
import types

import pytest
from conftest import ROOT, program

from wavetune._captured.entries import Unmatched, key_of
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
    """What the projects' launchers pass for the first multiplication of contiguous tensors, by their shapes and strides."""
    e, n, k, top_k, m = (key[name] for name in ("E", "N", "K", "top_k", "M"))
    config = config or CONFIG
    shapes = {"a_ptr": [m, k], "b_ptr": [e, 2 * n, k], "c_ptr": [m, top_k, 2 * n]}
    scales = {"a_scale_ptr": [m, k // 128], "b_scale_ptr": [e, 2 * n // 128, k // 128]} if block else {}
    stride_bn = k + padded
    rows, size = m * top_k, config["BLOCK_SIZE_M"]
    if project == "vllm":
        ids = min(rows * size, rows + e * (size - 1)) if rows < e else rows + e * (size - 1)
        is_naive = rows * 4 <= e
        values = {"EM": rows * size if is_naive else min(ids, rows * size) if m < size else ids, "SPLIT_K": 1, "HAS_BIAS": False,
                  "SWAP_AB": False, "USE_TD": False, "naive_block_assignment": is_naive, "stride_bbe": 0, "stride_bbn": 0}
        nothing = ["b_bias_ptr"] + is_naive * ["sorted_token_ids_ptr"]
    else:
        ids = rows * size if rows < e + 1 else rows + (e + 1) * (size - 1)
        ids = (ids + 3) // 4 * 4
        values = {"EM": ids, "even_Ks": k % config["BLOCK_SIZE_K"] == 0, "c_sorted": False, "swap_ab": False, "ROUTER_TOPK": 1,
                  "FUSE_ADD_TO_OUTPUT": False, "MASK_OUTPUT": False, "FUSE_SUM_ALL_REDUCE": False, "FUSE_SWIGLU": False,
                  "stride_bias_e": 0, "stride_bias_n": 0}
        nothing = ["a_desc", "b_desc", "bias_ptr", "add_mask_ptr"]
    values |= {"N": 2 * n, "K": k, "num_valid_tokens": rows, "stride_am": k, "stride_ak": 1, "stride_be": 2 * n * stride_bn,
               "stride_bk": 1, "stride_bn": stride_bn, "stride_cm": 2 * n, "stride_cn": 1,
               "stride_asm": k // 128 if block else 0, "stride_ask": int(block),
               "stride_bse": 2 * n // 128 * (k // 128) if block else 0,
               "stride_bsk": int(block), "stride_bsn": k // 128 if block else 0, "group_n": 128 * block, "group_k": 128 * block,
               "MUL_ROUTED_WEIGHT": False, "top_k": top_k, "use_fp8_w8a8": block, "use_int8_w8a8": False, "use_int8_w8a16": False,
               "per_channel_quant": False, **{name: value for name, value in config.items() if name.isupper()}, **more}
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
@pytest.mark.parametrize("block_m", [64, 256])
def test_a_launch_of_the_first_multiplication_makes_its_key(version, launch, m, block_m):
    key = {**KEY, "M": m}
    made = launch_of(version.partition("_")[0], key, config={**CONFIG, "BLOCK_SIZE_M": block_m}, **launch)
    assert key_of(load_entry(f"{FOLDER}:{version}"), made) == {**key, "gemm": "up"}


@pytest.mark.parametrize("launch, why", [
    ({"dtype": FP8 + "uz"}, "a_ptr is float8_e4m3fnuz in the launch"), ({"dtype": FP8, "arch": "gfx950"}, "condition"),
    ({"dtype": FP8, "top_k": 1, "MUL_ROUTED_WEIGHT": True}, "condition"), ({"dtype": FP8, "group_n": 64}, "condition"),
    ({"dtype": FP8, "padded": 256}, "stride_be is "), (BF16, "condition")])
def test_a_launch_of_another_version_or_of_the_second_multiplication_makes_none(launch, why):
    with pytest.raises(Unmatched, match=why):
        key_of(load_entry(f"{FOLDER}:vllm_fp8"), launch_of("vllm", KEY, **launch))
