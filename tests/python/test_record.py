"""The records for caches of other tools have the values that those tools compute."""

import base64
import hashlib
import os

import pytest
import triton
from conftest import CONFIG_END, KERNELS, TRITON
from triton.backends.compiler import GPUTarget

from wavetune._pack.artifacts import installed_key
from wavetune._pack.record import config_objects, dejavu_hashes, dejavu_param_text, make_record
from wavetune._pack.source import load_function
from wavetune._pack.target import make_backend

AMD = GPUTarget("hip", "gfx942", 64)
DEFAULT = {"warmup": 25, "rep": 100, "use_cuda_graph": False, "quantiles": None, "use_bo": False,
           "use_random_search": False, "search_max_search_t": 180}
ADD = '''def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: "tl.constexpr"):
    pid = tl.program_id(axis=0)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    for i in range(0, 4):
        tl.store(out_ptr + offs, tl.load(x_ptr + offs) + tl.load(y_ptr + offs), mask=offs < n)
'''
TAIL_OF_3_2 = ("num_ctas: 1, num_stages: 2, num_buffers_warp_spec: 0, num_consumer_groups: 0, reg_dec_producer: 0, "
               "reg_inc_consumer: 0, maxnreg: None")


def test_the_hashes_of_dejavu_are_those_that_it_computed_under_triton_3_3():
    configs = [f"BLOCK: {b}, waves_per_eu: {w}, num_warps: {nw}, {TAIL_OF_3_2}"
               for b in (256, 1024) for w in (0, 2) for nw in (4, 8)]
    assert dejavu_hashes(DEFAULT, None, "@triton_dejavu.autotune(key=['n'])\n@triton.jit\n" + ADD, ["n"], configs) == {
        "autotune_config": "215d0c7082adf7c6c8ae2a767088f42b44e6432715b0c6760f5f8e5d4e8371ff",
        "code_version": "6910b92168ab0eb978d7ff08573e78c43278762d991bd4ba3c5f4c57d64dd86b",
        "tune_features": "1b16b1df538ba12dc3f97edbb85caa7050d46c148134290feba80f8236c83db9",
        "kernel_configs": "85ba4f14605a90c584d892271725e07e43ff70626ca0b6b4a000f9c2de4beba5"}


def record(path, configs=(), module=None, arguments=()):
    decorated = load_function(path, None, AMD, module)
    manifest = {"name": "add/triton", "key": ["n"], "arguments": list(arguments)}
    backend = make_backend(AMD)
    return make_record(decorated, "sha256:0", manifest, config_objects(decorated, list(configs), backend), backend)


@pytest.mark.skipif(not (3, 4) <= TRITON < (3, 9), reason="other versions print configs otherwise")
def test_the_hashes_are_those_of_a_cache_that_dejavu_wrote_under_triton_3_6(tmp_path):
    path = tmp_path / "dkern.py"
    path.write_text("""import triton, triton.language as tl, triton_dejavu
@triton_dejavu.autotune(key=['n'], configs=[triton.Config({'BLOCK':b},num_warps=w,num_stages=1) for b in (256,1024,4096) for w in (2,4,8)])
@triton.jit
def add_kernel(x_ptr, y_ptr, o_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = offs < n
    tl.store(o_ptr + offs, tl.load(x_ptr + offs, mask=m) + tl.load(y_ptr + offs, mask=m), mask=m)
""")
    made = record(path)
    assert made["function"]["signature"] == "JITFunction(dkern:add_kernel)"
    assert made["configs"][4] == "BLOCK: 1024, num_warps: 4, num_ctas: 1, num_stages: 1, maxnreg: None"
    assert {name: made["dejavu"][name] for name in ("autotune_config", "code_version", "tune_features",
                                                    "kernel_configs")} == {
        "autotune_config": "215d0c7082adf7c6c8ae2a767088f42b44e6432715b0c6760f5f8e5d4e8371ff",
        "code_version": "cd58f8a64ff41f0d9a5c54af0c523f151196bd939e8bd04c44bdd95f6f9e6e5c",
        "tune_features": "1b16b1df538ba12dc3f97edbb85caa7050d46c148134290feba80f8236c83db9",
        "kernel_configs": "2ad9769d4a5a1f1bd33fd2b694f8e4c926efcf11422a6e352b5c7b558f482b68"}


def test_parameters_of_a_search_and_quantiles_are_in_the_hashed_text():
    assert dejavu_param_text({**DEFAULT, "quantiles": (0.5, 0.2, 0.8), "use_random_search": True}, 50) == (
        "autotuner params: warmup 25 rep 100 cuda_graphs False quantiles (0.5, 0.2, 0.8) use_bo False use_random True "
        "max_search_n 50 max_search_t 180")


def test_how_many_configs_a_search_tries_is_recorded(tmp_path):
    path = tmp_path / "searched.py"
    path.write_text(f"""import triton, triton.language as tl, triton_dejavu
@triton_dejavu.autotune(key=['n'], use_random_search=True, search_max_share=0.5,
                        config_space=triton_dejavu.ConfigSpace({{'BLOCK': [2 ** i for i in range(200)]}}))
@triton.jit
{ADD}""")
    made = record(path)
    assert made["autotune"]["search_max_n"] == 100 and "max_search_n 100" in made["dejavu"]["search_parameters"]


@pytest.mark.skipif(TRITON < (3, 4), reason="Triton before 3.4 keeps no results of autotuning")
def test_the_folder_of_tritons_own_autotune_cache_follows_from_the_record(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    path = KERNELS / "matmul.py"
    decorated = load_function(path, None, AMD)
    buffers = [{"name": name, "dtype": "float16", "shape": ["M"]} for name in "abc"]
    made = make_record(decorated, "", {"name": "", "key": [], "arguments": buffers}, decorated.autotuner.configs, make_backend(AMD))
    key = (4096, 4096, 4096, *made["argument_dtypes"])
    decorated.autotuner.check_disk_cache(key, decorated.autotuner.configs, lambda: _tuned(decorated.autotuner))
    environment = triton._C.libtriton.get_cache_invalidating_env_vars()
    text = "-".join([made["triton"]["key"], made["triton"]["backend_hash"], made["function"]["cache_key"],
                     str(sorted(environment.items())), str(key), *made["configs"]])
    folder = base64.b32encode(hashlib.sha256(text.encode()).digest()).decode().strip("=")
    assert os.listdir(tmp_path / folder) == ["matmul_kernel.autotune.json"]


def _tuned(autotuner):
    """What the autotuner's own bench leaves behind."""
    autotuner.configs_timings = {config: [1.0, 1.0, 1.0] for config in autotuner.configs}
    autotuner.cache[(4096, 4096, 4096, *["torch.float16"] * 3)] = autotuner.configs[0]


def test_a_function_under_no_decorator_is_recorded_with_the_configs_of_its_space():
    made = record(KERNELS / "vector_add.py", [{"BLOCK_SIZE": 256, "num_warps": 4, "waves_per_eu": 2}], "package.module")
    assert made["autotune"] is None and "dejavu" not in made
    assert made["configs"] == [f"BLOCK_SIZE: 256, waves_per_eu: 2, num_warps: 4, num_ctas: 1, num_stages: 2{CONFIG_END}"]
    assert made["function"]["signature"] == "JITFunction(package.module:add_kernel)"


def test_where_the_values_of_the_decorators_key_come_from_is_recorded(tmp_path):
    path = tmp_path / "keyed.py"
    path.write_text(f"""import triton, triton.language as tl
@triton.autotune(key=['n', 'rows', 'BLOCK'], configs=[])
@triton.jit
{ADD.replace("n, BLOCK", "n, rows, BLOCK")}""")
    scalars = [{"name": "n", "dtype": "int64", "value": "N"}, {"name": "rows", "dtype": "int64", "value": "2 * N"}]
    made = record(path, arguments=scalars)
    assert made["key_names"] == ["n", "rows", "BLOCK"] and made["tuning_key"] == ["N", "2 * N", "BLOCK"]
    assert made["name"] == "add/triton"


@pytest.mark.parametrize("arguments, wanted", [
    ("configs=[triton.Config({'BLOCK': 1})]", (False, False)),
    ("configs=[triton.Config({'BLOCK': 1}, pre_hook=print)]", (True, False)),
    ("configs=[], prune_configs_by={'early_config_prune': lambda c, n, **k: c}", (False, True)),
    ("configs=[], prune_configs_by={'perf_model': print, 'top_k': 1}", (False, True))])
def test_reasons_why_triton_does_not_use_a_file_are_recorded(tmp_path, arguments, wanted):
    path = tmp_path / "keyed.py"
    path.write_text(f"import triton, triton.language as tl\n@triton.autotune(key=['n'], {arguments})\n@triton.jit\n{ADD}")
    autotune = record(path)["autotune"]
    assert (autotune["pre_hooks"], autotune["prunes"]) == wanted


@pytest.mark.parametrize("name", ["key", "backend_hash", "version"])
def test_facts_that_only_the_installed_triton_has_are_recorded(name):
    made = record(KERNELS / "vector_add.py", [{"BLOCK_SIZE": 256}])["triton"][name]
    assert made and made == {"key": installed_key(), "backend_hash": make_backend(AMD).hash(),
                             "version": triton.__version__}[name]
