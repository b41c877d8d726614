"""Configs that pack leaves out because their loops carry too many registers: texts from Triton, and a kernel compiled for an
H200."""

import dataclasses
import json
import re

import pytest
from conftest import KERNELS, MATMUL, edit, read, run

pytest.importorskip("triton")
from triton.backends.compiler import GPUTarget  # noqa: E402
from wavetune._pack import compiling  # noqa: E402
from wavetune._pack.build import Request, make_plan, make_task  # noqa: E402
from wavetune._errors import PackError  # noqa: E402
from wavetune._pack.folder import load_kernel  # noqa: E402
from wavetune._pack.function import make_manifest  # noqa: E402
from wavetune._pack.importing import folder_files, new_folder  # noqa: E402
from wavetune._pack.registers import carried_too_much, registers_a_thread  # noqa: E402
from wavetune._pack.source import load_function  # noqa: E402
from wavetune._pack.target import make_target  # noqa: E402

H200, MI300X, RADEON = GPUTarget("cuda", 90, 32), GPUTarget("hip", "gfx942", 64), GPUTarget("hip", "gfx1100", 32)
GFX1250 = GPUTarget("hip", "gfx1250", 32)
MODULE = 'module attributes {{"ttg.num-ctas" = {ctas} : i32, "ttg.num-warps" = {warps} : i32}} {{\n  {loop}\n'
FOR = "%sums:3 = scf.for %i = %c0 to %k step %c1 iter_args(%a = %x, %b = %y, %c = %z) -> ({types})  : i32 {{"
ONE = "%sum = scf.for %i = %c0 to %k step %c1 iter_args(%a = %x) -> ({types}) {{"
WHILE = "%sums:2 = scf.while (%a = %x, %b = %y) : ({types}) -> ({types}) {{"


def carried(types, target=H200, warps=4, loop=FOR, ctas=1, more=""):
    return carried_too_much(MODULE.format(warps=warps, ctas=ctas, loop=loop.format(types=types)) + more, target)


@pytest.mark.parametrize("loop", [FOR, ONE, WHILE])
def test_an_accumulator_of_twice_a_threads_registers_is_refused_in_a_sentence(loop):
    sentence = carried("tensor<256x256xf32, #mma>", loop=loop)
    assert re.search("256 x 256 values, 512 registers .* 255.*--keep-spilling", sentence)


@pytest.mark.parametrize("types", [
    "tensor<256x256xf32, #mma>, tensor<256x64x!tt.ptr<f16>, #blocked>, i32", "i32, tensor<256x256xf32, #mma>, !ttg.async.token",
    "tensor<256x512xbf16>", "tensor<2x128x256xf32, #ttg.slice<{dim = 0, parent = #mma}>>, i32",
    "tensor<256xf32, #ttg.slice<{dim = 1, parent = #mma1}>>, tensor<256x256xf32, #mma>"])
def test_every_value_that_a_loop_carries_is_counted(types):
    assert carried(types)


@pytest.mark.parametrize("types", [
    "tensor<128x256xf32, #mma>",  # 256 registers of 255: spills a little, and may well win
    "tensor<256x256x!tt.ptr<f32>, #blocked>, i32", "tensor<256x256xi32, #blocked>", "tensor<256x256xf16, #mma>", "i32", "f32",
    "!ttg.memdesc<256x256xf32, #shared, #smem, mutable>"])
def test_kernels_that_spill_less_or_can_recompute_are_compiled(types):
    assert carried(types) is None


def test_more_warps_blocks_of_a_cluster_and_other_gpus_hold_more():
    tile = "tensor<256x256xf32, #mma>"
    assert carried(tile, warps=8) is None and carried(tile, ctas=2) is None and carried(tile, MI300X) is None
    assert re.search("1024 registers .* 512", carried(tile, MI300X, warps=1))


def test_a_text_without_warps_or_with_specialised_warps_is_not_judged():
    assert carried_too_much(FOR.format(types="tensor<256x256xf32>"), H200) is None
    assert carried("tensor<256x256xf32>", more="ttg.warp_specialize") is None


@pytest.mark.parametrize("target,warps,there_are", [
    (H200, 1, 255), (H200, 8, 255), (H200, 16, 128), (H200, 32, 64), (MI300X, 4, 512), (MI300X, 5, 256), (MI300X, 16, 128),
    (RADEON, 4, 256), (GFX1250, 4, 1024)])
def test_a_thread_has_its_share_of_the_register_file(target, warps, there_are):
    assert registers_a_thread(target, warps) == there_are


@pytest.fixture
def tiles(tmp_path):
    """A matrix product with a tile that fits, the default, and one that does not."""
    space = {"parameters": {"BLOCK_SIZE_M": [32, 256], "BLOCK_SIZE_N": [32, 256], "BLOCK_SIZE_K": [16], "GROUP_SIZE_M": [8],
                            "num_warps": [1]}, "roles": {"num_warps": "option"},
             "conditions": ["BLOCK_SIZE_M == BLOCK_SIZE_N"]}
    (tmp_path / "space.json").write_text(json.dumps(space))
    return tmp_path, ["pack", KERNELS / "matmul.py", "--space", tmp_path / "space.json", "--kernel", tmp_path / "kernel",
                      "--output", tmp_path / "build", "--key", "M=512,N=512,K=512", "--arch", "sm_90", *MATMUL]


def test_a_config_that_carries_too_much_is_listed_as_failed(tiles):
    place, command = tiles
    output, _ = run(*command)
    assert "1 objects, 1 failed" in output
    (variant,) = read(place / "build")["variants"]
    assert [o["config"]["BLOCK_SIZE_M"] for o in variant["objects"]] == [32]
    assert "256 x 256 values, 2048 registers" in variant["failed"][0]["error"]


def write_kernel(place):
    """The kernel folder, without compiling."""
    space, key = read(place, "space.json"), {"M": 512, "N": 512, "K": 512}
    decorated = load_function(KERNELS / "matmul.py", None, make_target("sm_90"))
    manifest, _, sources = make_manifest(decorated, "matmul", MATMUL[1], MATMUL[3], [key], set(space["parameters"]))
    with new_folder(place / "kernel", folder_files(manifest, "triton", space, sources)):
        pass


def plan_of(place, keep_spilling):
    return make_plan(Request(load_kernel(str(place / "kernel")), [{"M": 512, "N": 512, "K": 512}], "sm_90", 1, 60.0,
                             keep_spilling=keep_spilling))


def tasks_of(place, keep_spilling):
    plan = plan_of(place, keep_spilling)
    return [make_task(plan, plan.variants[0], config) for config in plan.configs[0]]


def test_the_default_and_requested_configs_are_still_compiled(tiles):
    place, command = tiles
    edit(place, "space.json", lambda space: space.update(
        default={"BLOCK_SIZE_M": 256, "BLOCK_SIZE_N": 256, "BLOCK_SIZE_K": 16, "GROUP_SIZE_M": 8, "num_warps": 1}))
    write_kernel(place)
    assert [task.may_spill for task in tasks_of(place, False)] == [False, True]
    assert [task.may_spill for task in tasks_of(place, True)] == [True, True]


def test_without_a_default_the_first_valid_config_is_still_compiled(tiles):
    place, command = tiles
    edit(place, "space.json", lambda space: space["parameters"].update(BLOCK_SIZE_M=[256, 32]))  # 256 x 32 is not valid
    write_kernel(place)
    assert [task.may_spill for task in tasks_of(place, False)] == [True, False]


def test_cached_objects_are_checked_too(tiles, monkeypatch):
    place, _ = tiles
    write_kernel(place)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(place / "cache"))
    plan = plan_of(place, True)
    monkeypatch.setattr(compiling, "carried_too_much", lambda ttgir, target: "too much" if "scf.for" in ttgir else None)
    may, may_not = (make_task(plan, plan.variants[0], plan.configs[0][0]) for _ in range(2))
    may_not = dataclasses.replace(may_not, may_spill=False)
    with pytest.raises(PackError, match="too much"):
        compiling.compile_task(may_not, plan.decorated.jit, plan.target, plan.backend)
    compiled, _ = compiling.compile_task(may, plan.decorated.jit, plan.target, plan.backend)
    assert "scf.for" in compiled.asm["ttgir"]
    with pytest.raises(PackError, match="too much"):
        compiling.compile_task(may_not, plan.decorated.jit, plan.target, plan.backend)
