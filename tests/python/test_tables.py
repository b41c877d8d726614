"""vLLM, SGLang and AITER find the tables of $WAVETUNE_TABLES in the place where they look one up; what is missing is reported.

The packages are stand-ins with the files, names and look-ups of vLLM 0.33.0, SGLang 0.5.23 and AITER, and plug-ins are loaded by
the installed wheel's entry points, as the packages' own loaders do (tests/readers has the packages themselves).
"""

import json
import os
import subprocess
import sys
import zipfile

import pytest
import triton
from conftest import ROOT, TUNED
from contract_server import Contract
from starting import environment, python

pytestmark = pytest.mark.one_triton
pytest.importorskip("tomllib")

GPU = {"gpu": "AMD Instinct MI300X", "arch": "gfx942", "compute_units": 304, "partition": "SPX/NPS1"}
HERE = {"rocm": "6.4.1", "triton": triton.__version__, **GPU}
LOADER = """
from importlib.metadata import entry_points
import logging
logging.basicConfig(filename={log!r}, level="INFO")
def load():
    for point in entry_points(group={group!r}):
        point.load()()
"""
FP8_UTILS = """
import functools, json, logging, os
logger = logging.getLogger(__name__)
def DEVICE_FUNCTION():
    return DEVICE
@functools.lru_cache
def get_w8a8_block_fp8_configs(N, K, block_n, block_k):
    name = f"N={N},K={K},device_name=AMD_Instinct_MI300X,dtype=fp8_w8a8,block_shape=[{block_n},SPACE{block_k}].json"
    path = os.path.join(os.path.dirname(os.path.realpath(__file__)), "configs", name)
    if os.path.exists(path):
        with open(path) as f:
            return {int(key): val for key, val in json.load(f).items()}
    logger.warning("Using default W8A8 Block FP8 kernel config. Performance might be sub-optimal! Config file not found at %s", path)
    return None
def LAUNCH(A, B, As, Bs, block_size, output_dtype=None):
    configs = get_w8a8_block_fp8_configs(*B.shape, block_size[0], block_size[1])
    return configs and configs[min(configs.keys(), key=lambda x: abs(x - A.shape[0]))]
"""


def fp8_utils(function, device, space, launch):
    text = FP8_UTILS.replace("DEVICE_FUNCTION", function).replace("DEVICE", repr(device))
    return text.replace("SPACE", space).replace("LAUNCH", launch)


VLLM = {
    "plugins/__init__.py": LOADER, "__init__.py": "", "model_executor/layers/fused_moe/__init__.py": "",
    "envs.py": "import os\nVLLM_BATCH_INVARIANT = os.environ.get('VLLM_BATCH_INVARIANT') == '1'\n",
    "model_executor/layers/quantization/utils/fp8_utils.py": fp8_utils(
        "get_device_name_as_file_name", "AMD_Instinct_MI300X", "", "w8a8_triton_block_scaled_mm"),
    "model_executor/layers/fused_moe/fused_moe.py": """
import functools, json, os
from vllm import envs
def get_config_file_name(E, N, dtype, block_shape=None):
    block = "" if not block_shape or not all(block_shape) else f",block_shape={block_shape}".replace(" ", "")
    return f"E={E},N={N},device_name=AMD_Instinct_MI300X{',dtype=' + dtype if dtype else ''}{block}.json"
@functools.lru_cache
def get_moe_configs(E, N, dtype, block_n=None, block_k=None):
    if envs.VLLM_BATCH_INVARIANT:
        return None
    path = os.path.join(os.path.dirname(__file__), "configs", get_config_file_name(E, N, dtype, [block_n, block_k]))
    return {int(key): val for key, val in json.load(open(path)).items()} if os.path.exists(path) else None
def try_get_optimal_moe_config(w1_shape, w2_shape, top_k, dtype, M, block_shape=None):
    E, _, N = w2_shape
    block_n, block_k = block_shape or (0, 0)
    configs = get_moe_configs(E, N * 2 if dtype == "int4_w4a16" else N, dtype, block_n, block_k)
    return configs and configs[min(configs.keys(), key=lambda x: abs(x - M))]
""",
    "model_executor/layers/mamba/ops/mamba_ssm.py": """
import functools
def get_device_name_as_file_name():
    return "AMD_Instinct_MI300X"
def get_ssm_config_file_name(headdim, dstate, cache_dtype, device_name):
    return f"headdim={headdim},dstate={dstate},device_name={device_name},cache_dtype={cache_dtype}.json"
@functools.cache
def get_ssm_configs(headdim, dstate, cache_dtype):
    return None
@functools.cache
def _try_get_optimal_ssm_config_cached(headdim, dstate, batch, nheads, cache_dtype, is_blackwell):
    configs = get_ssm_configs(headdim, dstate, cache_dtype)
    return configs and configs[min(configs, key=lambda x: abs(x - batch * nheads))]
def try_get_optimal_ssm_config(headdim, dstate, batch, nheads, cache_dtype, is_blackwell):
    return _try_get_optimal_ssm_config_cached(headdim, dstate, batch, nheads, cache_dtype, is_blackwell)
def selective_state_update(state, x, dt, A, B, C, D, dt_bias, z=None):
    _, nheads, dim, dstate = state.shape
    return try_get_optimal_ssm_config(dim, dstate, x.shape[0], nheads, str(state.dtype).replace("torch.", ""), False)
"""}
SGLANG = {
    "srt/plugins/__init__.py": LOADER, "__init__.py": "",
    "kernels/ops/gemm/fp8_kernel.py": fp8_utils("get_device_name", "AMD Instinct MI300X", " ", "w8a8_block_fp8_matmul_triton"),
    "srt/layers/quantization/fp8_utils.py": "from sglang.kernels.ops.gemm.fp8_kernel import w8a8_block_fp8_matmul_triton\n",
    "srt/layers/moe/moe_runner/triton_utils/fused_moe_triton_config.py": """
import functools
import triton
def get_config_file_name(E, N, dtype, block_shape=None, per_channel_quant=False, down_moe=False):
    block = "" if not block_shape or not all(block_shape) else f",block_shape={block_shape}"
    return f"E={E},N={N},device_name=AMD_Instinct_MI300X{',dtype=' + dtype if dtype else ''}{block}{'_down' if down_moe else ''}.json"
@functools.lru_cache
def get_moe_configs(E, N, dtype, block_n=0, block_k=0, per_channel_quant=False, down_moe=False):
    return get_moe_configs(E, N, dtype, block_n, block_k, per_channel_quant=per_channel_quant, down_moe=False) if down_moe else None
def try_get_optimal_moe_config(w1_shape, w2_shape, top_k, dtype, M, is_marlin=False, block_shape=None, per_channel_quant=False,
                               return_down_config=False):
    E, _, N = w2_shape
    block_n, block_k = block_shape or (0, 0)
    configs = get_moe_configs(E, N, dtype, block_n, block_k, per_channel_quant=per_channel_quant, down_moe=False)
    return configs and configs[min(configs.keys(), key=lambda x: abs(x - M))]
"""}
AITER = {"__init__.py": "", "ops/triton/utils/gemm_config_utils.py": """
def get_gemm_config(config_name, M, N=None, K=None, bounds=None):
    return {"BLOCK_SIZE_M": 1}, (N, K) == (4096, 512)
""", "ops/triton/gemm.py": "from aiter.ops.triton.utils.gemm_config_utils import get_gemm_config\n"}
W8A8 = "N={},K={},device_name=AMD_Instinct_MI300X,dtype=fp8_w8a8,block_shape=[128,128].json"
HEAD = """import json, sys, types
def tensor(*shape):
    return types.SimpleNamespace(shape=shape, numel=lambda: shape[0] * shape[1])
"""
FP8 = "vllm.model_executor.layers.quantization.utils.fp8_utils"
MOE = "vllm.model_executor.layers.fused_moe.fused_moe"
SSM = "vllm.model_executor.layers.mamba.ops.mamba_ssm"
SGLANG_FP8 = "sglang.kernels.ops.gemm.fp8_kernel"
SGLANG_MOE = "sglang.srt.layers.moe.moe_runner.triton_utils.fused_moe_triton_config"


def row(m, **more):
    return {"BLOCK_SIZE_M": m, "BLOCK_SIZE_N": 128, "BLOCK_SIZE_K": 128, "GROUP_SIZE_M": 1, **more}


def write(path, document):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(document if isinstance(document, str) else json.dumps(document))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel that a release has, installed: its modules and its entry points."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, ROOT / "deploy/wheel.py", folder], check=True)
    (made,) = folder.glob("*.whl")
    zipfile.ZipFile(made).extractall(folder / "site")
    return folder / "site"


class World:
    """Packages, tables and what a program in them answers."""

    def __init__(self, wheel, tmp_path):
        self.wheel, self.tmp, self.site, self.tables = wheel, tmp_path, tmp_path / "site", tmp_path / "tables"
        self.log = tmp_path / "log"
        self.tables.mkdir(parents=True)
        for name, group, files in (("vllm", "vllm.general_plugins", VLLM), ("sglang", "sglang.srt.plugins", SGLANG),
                                   ("aiter", "", AITER)):
            for path, text in files.items():
                own = text if text is not LOADER else text.format(log=str(tmp_path / f"{name}.log"), group=group)
                write(self.site / name / path, own)

    def export(self, format_, files, environment=HERE, **more):
        """What `wavetune fetch --format F --to TABLES` writes."""
        for name, document in files.items():
            write(self.tables / format_ / name, document)
        write(self.tables / format_ / "wavetune-tables.json", {"environment": environment, **more})

    def ask(self, text, server=None, package="vllm", **variables):
        """Runs a program that calls the package's loader; returns the documents that it prints."""
        loader = {"vllm": "vllm.plugins", "sglang": "sglang.srt.plugins"}[package]
        own = {"WAVETUNE_TABLES": str(self.tables), "WAVETUNE_LOG": str(self.log), **variables}
        own = {"WAVETUNE_ENVIRONMENT": json.dumps(HERE), **own}
        path = os.pathsep.join(map(str, (self.wheel, self.site, *([TUNED / "patient"] if server is not None else []))))
        text = f"{HEAD}import {loader} as plugins\nplugins.load()\n{text}"
        return python("-c", text, cache=self.tmp / "cache", server=server, **{"PYTHONPATH": path, **own})

    def said(self, word):
        """Lines of wavetune's log that have the word."""
        return [line for line in self.log.read_text().splitlines() if word in line] if self.log.exists() else []


@pytest.fixture
def world(wheel, tmp_path):
    return World(wheel, tmp_path)


def of_w8a8(n=7168, k=2048, module=FP8):
    return f"import {module} as m\nprint(json.dumps(m.get_w8a8_block_fp8_configs({n}, {k}, 128, 128)))"


def test_vllm_gets_our_rows_over_those_of_its_own_table(world):
    package = world.site / "vllm/model_executor/layers/quantization/utils/configs"
    write(package / W8A8.format(7168, 2048), {"1": row(16), "64": row(64)})
    write(package / W8A8.format(4096, 512), {"8": row(8)})
    world.export("vllm-w8a8", {W8A8.format(7168, 2048): {"64": row(32, num_warps=8), "16": row(16)},
                               W8A8.format(1280, 8192): {"16": row(128), "triton_version": "3.6.0"}})
    assert world.ask(of_w8a8()) == [{"1": row(16), "16": row(16), "64": row(32, num_warps=8)}]
    assert world.ask(of_w8a8(4096, 512)) == [{"8": row(8)}] and world.ask(of_w8a8(1280, 8192)) == [{"16": row(128)}]
    assert not world.said("failed") and len(world.said("2 rows of WAVETUNE_TABLES, 1 of the program's own")) == 1
    log = (world.tmp / "vllm.log").read_text()
    assert "not found" not in log, "vLLM does not say that a table is missing which it got from us"
    assert world.ask(of_w8a8(1, 1)) == [None] and "not found" in (world.tmp / "vllm.log").read_text()


def test_modules_that_were_imported_before_the_loader_ran_get_tables_too(world):
    world.export("vllm-w8a8", {W8A8.format(7168, 2048): {"16": row(16)}})
    world.export("sglang-w8a8", {W8A8.format(7168, 2048).replace("[128,", "[128, "): {"16": row(32)}})
    (world.site / "sglang/layer.py").write_text(f"import {FP8}\nfrom {SGLANG_FP8} import get_w8a8_block_fp8_configs\n")
    early = world.site / "vllm/plugins/__init__.py"
    early.write_text("import sglang.layer\n" + early.read_text())
    assert world.ask(of_w8a8() + f"\n{of_w8a8(module='sglang.layer')}") == [{"16": row(16)}, {"16": row(32)}]


def test_tables_of_experts_and_of_mamba_are_found_by_their_own_names(world):
    moe, quantised = "E=8,N=3584,device_name=AMD_Instinct_MI300X{}.json", ",dtype=fp8_w8a8,block_shape=[128,128]"
    ssm = "headdim=64,dstate=128,device_name=AMD_Instinct_MI300X,cache_dtype=float16.json"
    world.export("vllm-moe", {moe.format(""): {"2": row(16)}, moe.format(quantised): {"2": row(64)},
                              ssm: {"24": {"BLOCK_SIZE_M": 8, "num_warps": 2}}})
    text = f"""import {MOE} as moe, {SSM} as ssm
print(json.dumps([moe.get_moe_configs(8, 3584, None, 0, 0), moe.get_moe_configs(8, 3584, "fp8_w8a8", 128, 128),
    moe.try_get_optimal_moe_config((8, 7168, 4096), (8, 4096, 3584), 2, None, 5), ssm.get_ssm_configs(64, 128, "bfloat16"),
    ssm.try_get_optimal_ssm_config(64, 128, 2, 24, "float16", False), ssm.get_ssm_configs(64, 64, "float16")]))"""
    mamba = {"BLOCK_SIZE_M": 8, "num_warps": 2}
    assert world.ask(text) == [[{"2": row(16)}, {"2": row(64)}, row(16), {"24": mamba}, mamba, None]]
    # A batch-invariant vLLM takes no table, because a row of a batch is then computed alike in each batch.
    assert world.ask(text, VLLM_BATCH_INVARIANT="1")[0][:3] == [None, None, None]


def test_sglang_gets_tables_by_its_own_names_and_for_its_triton(world):
    version = "configs/triton_" + triton.__version__.replace(".", "_")
    moe = "E=8,N=3584,device_name=AMD_Instinct_MI300X.json"
    w8a8 = W8A8.format(7168, 2048).replace("[128,", "[128, ")
    world.export("sglang-w8a8", {w8a8: {"16": row(32), "64": row(32, BLOCK_SIZE_K=64)}})
    world.export("sglang-moe", {f"{version}/{moe}": {"4": row(16)},
                                "configs/triton_3_1_0/" + moe.replace("3584", "1792"): {"4": row(16)}})
    text = f"""import {SGLANG_FP8} as fp8, {SGLANG_MOE} as moe
print(json.dumps([fp8.get_w8a8_block_fp8_configs(7168, 2048, 128, 128), moe.get_moe_configs(8, 3584, None),
    moe.get_moe_configs(8, 3584, None, 0, 0, per_channel_quant=False, down_moe=True), moe.get_moe_configs(8, 1792, None)]))"""
    assert world.ask(text, package="sglang") == [[{"16": row(32)}, {"4": row(16)}, {"4": row(16)}, None]]
    assert len(world.said("the rows [64] are not used, because BLOCK_SIZE_K is below 128")) == 1


@pytest.mark.parametrize("other, words", [
    ({"gpu": "AMD Instinct MI325X"}, "measured on gpu AMD Instinct MI325X, which is AMD Instinct MI300X here"),
    ({"arch": "gfx950"}, "measured on arch gfx950, which is gfx942 here"),
    ({"compute_units": 38}, "measured on compute_units 38, which is 304 here"),
    ({"partition": "CPX/NPS4"}, "measured on partition CPX/NPS4, which is SPX/NPS1 here")])
def test_tables_of_another_gpu_or_partition_are_not_used(world, other, words):
    tables = {W8A8.format(7168, 2048): {"16": row(16)}, W8A8.format(1280, 8192): {"16": row(16)}}
    world.export("vllm-w8a8", tables, {**HERE, **other})
    assert world.ask(of_w8a8() + "\n" + of_w8a8(1280, 8192)) == [None, None]
    (line,) = world.said("are not used")
    assert words in line


def test_a_table_of_a_whole_gpu_is_not_for_a_part_of_one(world):
    world.export("vllm-w8a8", {W8A8.format(7168, 2048): {"16": row(16)}}, {"gpu": "AMD Instinct MI300X OAM", "arch": "gfx942"})
    assert world.ask(of_w8a8()) == [{"16": row(16)}]
    part = json.dumps({**HERE, "partition": "CPX/NPS4", "compute_units": 38})
    assert world.ask(of_w8a8(), WAVETUNE_ENVIRONMENT=part) == [None]
    assert world.said("they are for a whole GPU, and the partition here is CPX/NPS4")
    for member, words in (("partition", "the partition here is not known"), ("arch", "measured on arch gfx942, which is not known here")):
        unknown = {name: value for name, value in HERE.items() if name != member}
        assert world.ask(of_w8a8(), WAVETUNE_ENVIRONMENT=json.dumps(unknown)) == [None] and world.said(words)


def test_a_switch_that_is_not_as_it_was_is_named(world):
    world.export("vllm-w8a8", {W8A8.format(7168, 2048): {"16": row(16)}},
                 switches={"VLLM_ROCM_USE_AITER": None, "VLLM_USE_DEEP_GEMM": "1", "HIP_FORCE_DEV_KERNARG": "1", "SGLANG_USE_AITER": "1",
                           "VLLM_BATCH_INVARIANT": None})
    assert world.ask(f"import {FP8}, {MOE}", VLLM_ROCM_USE_AITER="1", HIP_FORCE_DEV_KERNARG="1", VLLM_BATCH_INVARIANT="0") == []
    aiter, gemm = world.said("the program may read others")
    assert "VLLM_ROCM_USE_AITER is not set, and it is 1 here" in aiter and "VLLM_USE_DEEP_GEMM is 1, and it is not set" in gemm


@pytest.mark.parametrize("body, words", [
    ("{", "is not used: Expecting"), ("[]", "no JSON object"), ('{"x": {}}', "'x' is no row"), ('{"1": 2}', "'1' is no row"),
    ('{"1": {"BLOCK_SIZE_M": 0}}', "row 1: BLOCK_SIZE_M is no positive integer"), ("[" * 100000, "is not used: "),
    (json.dumps({"1": row(16, num_warps=[4])}), "row 1: num_warps is no integer, boolean, text or null")])
def test_a_garbled_table_is_left_alone(world, body, words):
    world.export("vllm-w8a8", {W8A8.format(7168, 2048): body})
    assert world.ask(of_w8a8()) == [None]
    (line,) = world.said("is not used")
    assert words in line and W8A8.format(7168, 2048) in line


def test_tables_whose_origin_cannot_be_read_are_left_alone_and_those_without_one_are_known_by_name(world):
    world.export("vllm-w8a8", {W8A8.format(7168, 2048): {"16": row(16)}})
    stated = world.tables / "vllm-w8a8/wavetune-tables.json"
    stated.write_text('{"environment": 3}')
    assert world.ask(of_w8a8()) == [None] and len(world.said("wavetune-tables.json cannot be read")) == 1
    stated.unlink()
    assert world.ask(of_w8a8(), WAVETUNE_TABLES=f"{world.tables}:{world.tmp / 'none'}") == [{"16": row(16)}]
    assert world.said("has no wavetune-tables.json") and world.said("none is no folder")


def test_the_first_folder_that_has_a_row_gives_it(world):
    world.export("vllm-w8a8", {W8A8.format(7168, 2048): {"16": row(16), "32": row(32)}})
    write(world.tmp / "first" / W8A8.format(7168, 2048), {"16": row(256)})
    folders = f"{world.tmp / 'first'}:{world.tables / 'vllm-w8a8'}"
    assert world.ask(of_w8a8(), WAVETUNE_TABLES=folders) == [{"16": row(256), "32": row(32)}]
    assert world.ask(of_w8a8(), WAVETUNE_TABLES=str(world.tables / "vllm-moe")) == [None]


def test_another_release_of_a_package_is_left_alone_and_said(world):
    (world.site / (FP8.replace(".", "/") + ".py")).write_text("def get_configs(): pass\n")
    os.remove(world.site / (SSM.replace(".", "/") + ".py"))
    world.ask(f"import {FP8}")
    (function, module) = world.said("left alone")
    assert f"this vllm has no {SSM}" in module + function
    assert f"{FP8} has no get_w8a8_block_fp8_configs" in module + function


def test_without_the_variables_nothing_is_touched(world):
    text = f"import {FP8} as m\nprint(json.dumps([hasattr(m.get_w8a8_block_fp8_configs, 'is_of_wavetune'), sorted(" \
        "name for name in sys.modules if name.startswith('wavetune'))]))"
    assert world.ask(text, WAVETUNE_TABLES="") == [[False, ["wavetune", "wavetune.entry"]]]
    text = f"import {FP8} as m, triton.runtime.autotuner as tuner\nprint(json.dumps([hasattr(one, 'is_of_wavetune') for one in (" \
        "m.get_w8a8_block_fp8_configs, m.w8a8_triton_block_scaled_mm, tuner.Autotuner.__init__)]))"
    assert world.ask(text) == [[True, False, False]], "without a server no launch is watched, and autotuners are left alone"


# AITER

def test_aiter_takes_our_row_for_the_range_of_m(world):
    name = "gfx942-GEMM-A8W8_BLOCKSCALE-N=7168-K=2048.json"
    world.export("aiter-triton", {f"gemm/{name}": {"M_LEQ_8": row(8, cache_modifier=None), "M_LEQ_64": row(64), "M_GEQ_4096": row(256),
                                         "any": row(1)}})
    ask = "[m.get_gemm_config('GEMM-A8W8_BLOCKSCALE', M, 7168, 2048) for M in (1, 9, 65, 8192)]"
    text = f"""import aiter.ops.triton.gemm as m
print(json.dumps([*{ask}, m.get_gemm_config('GEMM-A8W8_BLOCKSCALE', M=1, N=7168, K=2048, bounds=[1]),
    m.get_gemm_config('GEMM-A8W8_BLOCKSCALE', 1)]))"""
    own = [{"BLOCK_SIZE_M": 1}, False]
    assert world.ask(text) == [[[row(8, cache_modifier=None), True], [row(64), True], own, [row(256), True], own, own]]


# Misses

@pytest.fixture
def server():
    with Contract() as made:
        yield made


def items(server):
    return [(one["kernel"], one["key"]) for report in server.missed for one in report.get("items", ())]


def test_a_table_that_nobody_has_is_reported_once_for_each_power_of_two(world, server):
    text = f"""import {FP8} as m
for M in (1, 1, 3, 4, 5, 5, 100, 4096):
    m.w8a8_triton_block_scaled_mm(tensor(M, 2048), tensor(7168, 2048), None, None, [128, 128])"""
    world.ask(text, server)
    assert items(server) == [("block_fp8/vllm_fnuz", {"M": m, "N": 7168, "K": 2048}) for m in (1, 4, 128, 4096)]
    assert server.missed[0]["environment"] == HERE


def test_a_release_of_the_package_that_launches_elsewhere_gets_tables_and_reports_none(world, server):
    path = world.site / (FP8.replace(".", "/") + ".py")
    path.write_text(path.read_text().replace("def w8a8_triton_block_scaled_mm", "def w8a8_mm"))
    world.export("vllm-w8a8", {W8A8.format(7168, 2048): {"16": row(16)}})
    assert world.ask(of_w8a8(), server) == [{"16": row(16)}] and items(server) == []
    assert len(world.said("w8a8_block_fp8_matmul: misses of its tables are not reported")) == 1


def test_a_row_that_is_far_from_m_is_reported_and_a_near_one_is_not(world, server):
    world.export("vllm-w8a8", {W8A8.format(7168, 2048): {"1": row(16), "64": row(64)}})
    text = f"""import {FP8} as m
for M in (2, 8, 32, 100, 256):
    m.w8a8_triton_block_scaled_mm(tensor(M, 2048), tensor(7168, 2048), None, None, [128, 128])"""
    world.ask(text, server)
    assert [key["M"] for _, key in items(server)] == [8, 256]


def test_tables_of_experts_and_of_mamba_are_reported_with_what_their_kernels_keys_have_beside(world, server):
    text = f"""import {MOE} as moe, {SSM} as ssm
moe.try_get_optimal_moe_config((8, 7168, 4096), (8, 4096, 3584), 2, "fp8_w8a8", 33, block_shape=[128, 128])
moe.try_get_optimal_moe_config((8, 7168, 4096), (8, 4096, 3584), 2, "int8_w8a8", 33)
state = types.SimpleNamespace(shape=(64, 24, 64, 128), dtype="torch.bfloat16")
for batch in (3, 4):
    ssm.selective_state_update(state, tensor(batch, 24, 64), None, None, tensor(batch, 8, 128), None, None, None)"""
    world.ask(text, server)
    experts = {"E": 8, "N": 3584, "K": 4096, "top_k": 2, "M": 32}
    mamba = {"headdim": 64, "dstate": 128, "nheads": 24, "ngroups": 8, "batch": 4}
    assert items(server) == [("fused_moe/vllm_fp8_fnuz", {**experts, "gemm": "up"}),
                             ("fused_moe/vllm_fp8_fnuz", {**experts, "gemm": "down"}), ("selective_state_update/vllm", mamba)]
    assert len(world.said("reported for no kernel that is known")) == 1


@pytest.mark.parametrize("arch, dtype, kernel", [("sm_90", '"fp8_w8a8"', "vllm_fp8"), ("gfx950", '"fp8_w8a8"', "vllm_fp8_rocm"),
                                                 ("gfx950", None, "vllm_bf16_rocm"), ("sm_90", None, "vllm_bf16")])
def test_a_row_is_reported_for_the_kernel_of_the_gpus_vendor_and_floats(world, server, arch, dtype, kernel):
    text = f"""import {MOE} as moe
moe.try_get_optimal_moe_config((8, 7168, 4096), (8, 4096, 3584), 2, {dtype}, 32, block_shape={[128, 128] if dtype else None})"""
    world.ask(text, server, WAVETUNE_ENVIRONMENT=json.dumps({**HERE, "arch": arch}))
    assert {name for name, _ in items(server)} == {f"fused_moe/{kernel}"}


def test_a_program_that_takes_no_table_reports_none(world, server):
    text = f"""import {MOE} as moe
moe.try_get_optimal_moe_config((8, 7168, 4096), (8, 4096, 3584), 2, "fp8_w8a8", 32, block_shape=[128, 128])"""
    world.ask(text, server, VLLM_BATCH_INVARIANT="1")
    assert items(server) == []


def test_sglang_and_aiter_report_what_they_lack(world, server):
    text = f"""import {SGLANG_FP8} as fp8, aiter.ops.triton.gemm as gemm
for M in (4, 4):
    fp8.w8a8_block_fp8_matmul_triton(tensor(M, 2048), tensor(7168, 2048), None, None, [128, 128])
for M in (2, 3, 70, 9000):
    gemm.get_gemm_config("GEMM-A8W8_BLOCKSCALE", M, 7168, 2048)
gemm.get_gemm_config("GEMM-A8W8_BLOCKSCALE", 2, 4096, 512)"""
    world.ask(text, server, package="sglang")
    assert items(server) == [("block_fp8/sglang_fnuz", {"M": 4, "N": 7168, "K": 2048}), *(
        ("aiter_gemm/a8w8_blockscale_fnuz", {"M": m, "N": 7168, "K": 2048}) for m in (4, 128))]
