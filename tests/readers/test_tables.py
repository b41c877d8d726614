"""vLLM and SGLang find, with their own code, tables in $WAVETUNE_TABLES that they otherwise read from a path in their package; the
wheel is loaded by their own loaders of plug-ins."""

import hashlib
import importlib.util
import json
import pathlib

import harness
import pytest
from conftest import ENVIRONMENT, ROOT, fetch, read
from harness import wavetune

if importlib.util.find_spec("vllm") is None or importlib.util.find_spec("sglang") is None:
    pytest.skip("vllm and sglang are not installed", allow_module_level=True)

DEVICE = "device_name=AMD_Instinct_MI300X"
BLOCKS = {"vllm": "[128,128]", "sglang": "[128, 128]"}
PLACES = {"vllm": "model_executor/layers/quantization/utils/configs", "sglang": "kernels/ops/gemm/configs"}
SHIPPED = (7168, 2304)  # of DeepSeek-V3 at 8 GPUs: both have a table for an MI300X; and one that neither has
MISSING = (1280, 8192)  # Llama-3-70B's qkv at 8 GPUs


def w8a8(package, n, k):
    return f"N={n},K={k},{DEVICE},dtype=fp8_w8a8,block_shape={BLOCKS[package]}.json"


def config(m, warps=4):
    return {"BLOCK_SIZE_M": m, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 128, "GROUP_SIZE_M": 4, "num_warps": warps, "num_stages": 2}


def as_read(answer):
    return {int(m): row for m, row in answer.items()}


def write(folder, tables, environment=ENVIRONMENT):
    folder.mkdir(parents=True)
    for name, rows in tables.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps(rows))
    (folder / "wavetune-tables.json").write_text(json.dumps({"environment": environment, "switches": {}}))


def variables(folder, **more):
    """`import torch`, which is another way in, does nothing."""
    return {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "WAVETUNE_TABLES": str(folder), "WAVETUNE_ENVIRONMENT": json.dumps(ENVIRONMENT),
            **more}


@pytest.mark.parametrize("late", ["", "1"])
@pytest.mark.parametrize("package", BLOCKS)
def test_our_rows_of_a_table_of_block_scaled_fp8_come_over_those_of_the_package(package, late, tmp_path):
    place = pathlib.Path(importlib.util.find_spec(package).origin).parent / PLACES[package]
    own = as_read(json.loads((place / w8a8(package, *SHIPPED)).read_text()))
    write(tmp_path / f"{package}-w8a8", {w8a8(package, *SHIPPED): {"64": config(16), "3000": config(32, 8)},
                                         w8a8(package, *MISSING): {"1": config(16), "4096": config(256, 8)}})
    questions = [["get_w8a8_block_fp8_configs", [*shape, 128, 128]] for shape in (SHIPPED, MISSING)] + \
        [["launch_w8a8", [m, *MISSING]] for m in (5, 3000)] + [["launch_w8a8", [64, *SHIPPED]]]
    merged, ours, *launched = read(package, questions, variables(tmp_path, TEST_LATE_PLUGINS=late))
    assert as_read(merged) == {**own, 64: config(16), 3000: config(32, 8)} and list(map(int, merged)) == sorted(map(int, merged))
    assert as_read(ours) == {1: config(16), 4096: config(256, 8)}
    for one, wanted in zip(launched, (config(16), config(256, 8), config(16))):
        assert wanted.items() <= one.items()
    without, none, *_ = read(package, questions[:2], {})
    assert as_read(without) == own and none is None


def test_sglang_looks_nothing_up_while_torch_compile_traces_with_us_or_without(tmp_path):
    write(tmp_path / "sglang-w8a8", {w8a8("sglang", *MISSING): {"1": config(16)}})
    asks = [[name, [*MISSING, 128, 128]] for name in ("compiled_w8a8", "get_w8a8_block_fp8_configs")]
    assert read("sglang", asks, variables(tmp_path)) == [[1, True], {"1": config(16)}]


def test_tables_of_experts_and_of_mambas_state_update_are_merged_row_by_row(tmp_path):
    import triton
    name = f"E=8,N=14336,{DEVICE}.json"
    write(tmp_path / "vllm-moe", {name: {"5000": config(16)},
                                  f"headdim=64,dstate=128,{DEVICE},cache_dtype=float16.json": {
                                      "7": {"BLOCK_SIZE_M": 16, "num_warps": 1}}})
    version = "configs/triton_" + triton.__version__.replace(".", "_")
    write(tmp_path / "sglang-moe", {f"{version}/{name}": {"5000": config(16)}, f"{version}/E=8,N=384,{DEVICE}.json": {
        "1": config(64)}})
    moe, ssm = ["get_moe_configs", [8, 14336, None]], ["get_ssm_configs", [64, 128, "bfloat16"]]
    weights = [8, 28672, 4096], [8, 4096, 14336]
    asks = [moe, ssm, ["try_get_optimal_moe_config", [*weights, 2, None, 4999]],
            ["try_get_optimal_ssm_config", [64, 128, 1, 7, "float16", False]]]
    own, ours = read("vllm", asks, {}), read("vllm", asks, variables(tmp_path))
    assert as_read(ours[0]) == {**as_read(own[0]), 5000: config(16)} and len(own[0]) > 1
    assert as_read(ours[1]) == {**as_read(own[1]), 7: {"BLOCK_SIZE_M": 16, "num_warps": 1}}
    assert ours[2] == config(16) and ours[3] == [16, 1]
    other = ["get_moe_configs", [8, 384, None]]
    (merged, alone), (shipped, none) = (read("sglang", [moe, other], one) for one in (variables(tmp_path), {}))
    assert as_read(merged) == {**as_read(shipped or {}), 5000: config(16)}
    assert as_read(alone) == {1: config(64)} and none is None


@pytest.mark.parametrize("package, variable", [("vllm", "VLLM_BATCH_INVARIANT"), ("sglang", "TEST_DETERMINISTIC")])
def test_a_server_whose_results_must_not_depend_on_the_batch_gets_no_table(package, variable, tmp_path):
    import triton
    version = "" if package == "vllm" else f"configs/triton_{triton.__version__.replace('.', '_')}/"
    write(tmp_path / f"{package}-moe", {f"{version}E=8,N=384,{DEVICE}.json": {"1": config(64)}})
    ask = [["get_moe_configs", [8, 384, None]]]
    assert read(package, ask, variables(tmp_path)) == [{"1": config(64)}]
    assert read(package, ask, variables(tmp_path, **{variable: "1"})) == [None]


@pytest.mark.parametrize("package", BLOCKS)
def test_tables_of_another_gpu_are_not_given_to_the_package(package, tmp_path):
    write(tmp_path / f"{package}-w8a8", {w8a8(package, *MISSING): {"1": config(16)}}, {**ENVIRONMENT, "gpu": "AMD Instinct MI325X"})
    log = tmp_path / "log"
    assert read(package, [["get_w8a8_block_fp8_configs", [*MISSING, 128, 128]]], variables(tmp_path, WAVETUNE_LOG=str(log))) == [None]
    assert log.read_text().count("they were measured on gpu AMD Instinct MI325X, which is AMD Instinct MI300X here") == 1


@pytest.mark.parametrize("package", BLOCKS)
def test_what_fetch_brings_reaches_the_package(server, package, tmp_path):
    table = {"1": config(16), "4096": config(256, 8)}
    (tmp_path / w8a8(package, *MISSING)).write_text(json.dumps(table))
    wavetune(server, "import", f"{package}-w8a8", tmp_path, "--environment", json.dumps(ENVIRONMENT), "--tag", package)
    wavetune(server, "publish", "--environment", json.dumps(ENVIRONMENT), "--tag", package, "--channel", package)
    printed = fetch(server, tmp_path / "to", f"{package}-w8a8", channel=package, tag=package)
    assert pathlib.Path(printed["WAVETUNE_TABLES"]).name == f"{package}-w8a8"
    (found,) = read(package, [["get_w8a8_block_fp8_configs", [*MISSING, 128, 128]]], {**variables(tmp_path), **printed})
    assert found == table


@pytest.mark.parametrize("package", BLOCKS)
def test_rows_that_the_package_lacks_become_demand(server, package, tmp_path):
    source = b'extern "C" __global__ void f(float *c, long long m, long long n, long long k) {}'
    digest = "sha256:" + hashlib.sha256(source).hexdigest()
    assert server.request("PUT", f"/v1/blobs/{digest}", source).status in (200, 201)
    arguments = [{"name": "c", "dtype": "float32", "shape": ["M", "N"], "access": "write"},
                 *({"name": name.lower(), "dtype": "int64", "value": name} for name in ("M", "N", "K"))]
    answer = server.request("POST", "/v1/kernels", {
        "name": f"block_fp8/{package}_fnuz", "language": "hip", "entry": "f", "sources": [{"path": "f.hip", "digest": digest}],
        "launch": {"grid": ["1"], "block": ["64"]}, "key": ["M", "N", "K"], "arguments": arguments})
    assert answer.status == 201, answer
    own = {"WAVETUNE_URL": server.url, "WAVETUNE_TOKEN": harness.make_token(server.database, f"of-{package}", "demand"), "PATIENT_S": "60",
           "WAVETUNE_ENVIRONMENT": json.dumps(ENVIRONMENT), "PYTHONPATH": str(ROOT / "tests/python/tuned/patient")}
    read(package, [["launch_w8a8", [m, *shape]] for shape in (MISSING, SHIPPED) for m in (5, 4, 100)], own)
    wanted = [one for one in server.get("/v1/demand")["items"] if one["name"] == f"block_fp8/{package}_fnuz"]
    assert sorted((one["key"]["M"], one["key"]["N"], one["key"]["K"], one["misses"]) for one in wanted) == [
        (m, *MISSING, 1) for m in (4, 128)]
