"""wavetune occupancy and wavetune utilization: their tables, documents and refusals."""

import json
import os
import re
import shutil
import subprocess

import pytest
from harness import BUILD, DATA, SOURCE

MATMUL = DATA / "codeobjects/matmul_gfx942.hsaco"
CUBIN = SOURCE / "tests/data/codeobjects/resources_sm_90.cubin"
TRITON = SOURCE / "build/python/bin/python"  # tests/python-env.sh makes it


def call(*arguments, code=0):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("WAVETUNE_")}
    done = subprocess.run([str(a) for a in (BUILD / "wavetune", *arguments)], capture_output=True, text=True, timeout=600,
                          stdin=subprocess.DEVNULL, env={**clean, "HOME": "/nonexistent"})
    assert done.returncode == code, done.stdout + done.stderr
    return done


def answer(*arguments, code=0):
    return json.loads(call(*arguments, "--json", code=code).stdout)


def refused(*arguments):
    done = call(*arguments, code=2)
    assert done.stdout == "" and done.stderr.count("\n") == 1
    return done.stderr


def advice(document):
    return " | ".join(finding["sentence"] for finding in document["advice"])


# Occupancy

@pytest.mark.parametrize("vgprs, waves, more", [(64, 8, None), (72, 7, 64), (168, 3, 128), (169, 2, 168), (512, 1, 256)])
def test_occupancy_by_registers_and_where_the_next_wave_is(vgprs, waves, more):
    document = answer("occupancy", "--arch", "gfx942", "--vgprs", vgprs, "--warps", 4)
    assert document["waves_per_eu"] == document["waves_per_eu_by_registers"] == waves
    assert document["vgprs_for_more"] == more
    assert document["limit"] == ("registers" if more else "waves")


def test_waves_per_eu_is_advised_only_a_few_registers_above_a_boundary():
    near = answer("occupancy", "--arch", "gfx942", "--vgprs", 170, "--warps", 4)
    far = answer("occupancy", "--arch", "gfx942", "--vgprs", 200, "--warps", 4)
    by_lds = answer("occupancy", "--arch", "gfx942", "--vgprs", 64, "--lds", 65536, "--warps", 4)
    assert "waves_per_eu=3 is worth a try: 170 registers" in advice(near)
    assert "waves_per_eu=3 does not help" in advice(far) and "200 are 32 above" in advice(far)
    assert "waves_per_eu does not help: LDS" in advice(by_lds)
    assert all(finding["source"] for document in (near, far, by_lds) for finding in document["advice"])


def test_occupancy_as_text():
    assert call("occupancy", "--arch", "gfx942", "--vgprs", 168, "--lds", 16384, "--threads", 256).stdout.splitlines()[:4] == [
        "gfx942",
        "  256 threads (4 waves), 168 registers, 16384 bytes of LDS",
        "  3 workgroups per CU, 3 of 8 waves per EU",
        "  limited by registers: those of 3 waves per EU fit",
    ]
    assert "limited by LDS: " in call("occupancy", "--arch", "gfx942", "--lds", 32768, "--warps", 4).stdout
    assert "limited by the slots" in call("occupancy", "--arch", "gfx90a", "--warps", 4).stdout


def test_occupancy_of_nvidia_is_in_warps_and_multiprocessors():
    text = call("occupancy", "--arch", "sm_90", "--vgprs", 33, "--warps", 4).stdout
    assert "12 blocks per multiprocessor, 12 of 16 warps per quarter" in text and "waves" not in text
    assert answer("occupancy", "--arch", "sm_90", "--vgprs", 33, "--warps", 4)["vgprs_for_more"] == 32


def test_blocks_of_lds_are_named_where_they_count():
    assert "a compute unit holds 4 workgroups" in advice(
        answer("occupancy", "--arch", "gfx942", "--lds", 13107, "--warps", 4))
    assert answer("occupancy", "--arch", "gfx942", "--lds", 8192, "--warps", 4)["advice"] == []


def test_occupancy_of_a_code_object():
    document = answer("occupancy", MATMUL, "--shared", 8192)
    assert document["arch"] == "gfx942" and document["kernel"] == "matmul_kernel"
    assert document["resources"]["vgprs"] == 72 and document["resources"]["agprs"] == 16
    assert document["workgroup"] == {"threads": 256, "waves": 4, "vgprs": 72, "lds_bytes": 8192}
    assert document["waves_per_eu"] == 7 and document["workgroups_by_lds"] == 8
    assert re.search(r"256 threads \(4 waves\), .*, 72 registers", call("occupancy", MATMUL).stdout)
    assert answer("occupancy", MATMUL, "--warps", 8)["workgroup"]["threads"] == 512
    assert answer("occupancy", MATMUL, "--shared", 65537, code=1)["fits"] is False


def test_occupancy_of_a_cubin():
    document = answer("occupancy", CUBIN, "--kernel", "reversed")
    assert document["workgroup"] == {"threads": 256, "waves": 8, "vgprs": 14, "lds_bytes": 1024}
    assert "256 bytes per thread" in advice(answer("occupancy", CUBIN, "--kernel", "on_stack", "--warps", 4))


SPILLING = """
extern "C" __attribute__((global, amdgpu_flat_work_group_size(64, 256), amdgpu_waves_per_eu(8, 8))) void k(volatile int *p) {
  int a[200];
  _Pragma("unroll") for (int i = 0; i < 200; i++) a[i] = p[i];
  _Pragma("unroll") for (int i = 0; i < 200; i++) p[400 - i] = a[i];
}
"""


@pytest.mark.skipif(not (shutil.which("clang-19") and shutil.which("ld.lld-19")),
                    reason="clang-19 or lld-19 is not installed (tests/run.sh brings them)")
def test_spills_cause_a_warning(tmp_path):
    source, code = tmp_path / "k.hip", tmp_path / "k.co"
    source.write_text(SPILLING)
    subprocess.run(["clang-19", "-x", "hip", "--cuda-device-only", "--offload-arch=gfx942", "-nogpulib", "-nogpuinc", "-O3",
                    "--no-gpu-bundle-output", source, "-o", code], check=True, timeout=600, capture_output=True)
    document = answer("occupancy", code)
    assert document["resources"]["vgpr_spills"] > 0
    assert f"{document['resources']['vgpr_spills']} registers are spilled" in advice(document)


def test_a_workgroup_that_cannot_run_exits_with_1():
    arguments = ("occupancy", "--arch", "gfx942", "--lds", 81920, "--warps", 4)
    assert "needs 81920 bytes of LDS" in call(*arguments, code=1).stdout
    document = answer(*arguments, code=1)
    assert document["fits"] is False and document["reason"].startswith("needs 81920 bytes")
    assert answer(*("occupancy", "--arch", "gfx950", "--lds", 81920, "--warps", 4))["workgroups_per_cu"] == 2


def test_occupancy_names_missing_and_superfluous_options(tmp_path):
    text = tmp_path / "text"
    text.write_text("no code object at all")
    assert "code object, or give --arch" in refused("occupancy")
    assert "the size of a workgroup: --warps or --threads" in refused("occupancy", "--arch", "gfx942")
    assert "not both" in refused("occupancy", "--arch", "gfx942", "--warps", 4, "--threads", 256)
    assert "known are gfx90a, gfx942, gfx950, sm_80, sm_90" in refused("occupancy", "--arch", "gfx900", "--warps", 4)
    assert "one code object" in refused("occupancy", CUBIN, CUBIN)
    assert "--arch, --vgprs and --lds" in refused("occupancy", CUBIN, "--vgprs", 4)
    assert "not both" in refused("occupancy", CUBIN, "--kernel", "scale", "--warps", 4, "--threads", 4)
    assert "belong to" in refused("occupancy", "--arch", "gfx942", "--warps", 4, "--shared", 4)
    assert "dynamic, on_stack, reversed, scale" in refused("occupancy", CUBIN)
    assert 'has no kernel "scaled"' in refused("occupancy", CUBIN, "--kernel", "scaled")
    assert "how many threads scale" in refused("occupancy", CUBIN, "--kernel", "scale")
    assert "text: not a code object" in refused("occupancy", text)
    assert "absent" in refused("occupancy", tmp_path / "absent")


SWEEP = """
import re
from triton._C.libtriton import llvm
llvm.init_targets()
source = ['target triple = "amdgcn-amd-amdhsa"', 'attributes #0 = { "amdgpu-flat-work-group-size"="256,256" }']
for n in range(24, 257, 4):
    for count in {n - 1, n, n + 1} - {257}:
        source.append(f'define amdgpu_kernel void @k{count}(ptr addrspace(1) %p) #0 {{ '
                      f'call void asm sideeffect "", "~{{v{count - 1}}}"() store i32 1, ptr addrspace(1) %p ret void }}')
assembly = llvm.translate_to_asm("\\n".join(source), "amdgcn-amd-amdhsa", "gfx950", "", [], False, False)
for count, occupancy in re.findall(r"; TotalNumVgprs: (\\d+).*?; Occupancy: (\\d+)", assembly, re.S):
    print(count, occupancy)
"""


@pytest.mark.skipif(not TRITON.exists(), reason="no Python environment with Triton, whose LLVM knows gfx950 "
                                                "(tests/python-env.sh makes it)")
def test_occupancy_on_gfx950_agrees_with_the_llvm_in_triton():
    done = subprocess.run([TRITON, "-c", SWEEP], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    output = dict(map(int, line.split()) for line in done.stdout.splitlines())
    assert len(output) > 100
    boundaries = [n for n in sorted(output) if output.get(n + 1, output[n]) != output[n]]
    assert boundaries == [64, 72, 80, 96, 128, 168]
    for vgprs in {n + d for n in boundaries for d in (0, 1)}:
        document = answer("occupancy", "--arch", "gfx950", "--vgprs", vgprs, "--warps", 4)
        assert document["waves_per_eu"] == output[vgprs], vgprs


# Utilization

def test_utilization_of_the_guides_tiles_on_an_mi300x():
    document = answer("utilization", "--output", "4096,4096", "--gpu", "MI300X", "--tile", "256,256", "--tile", "128,128",
                      "--tile", "64,64", "--tile", "128,64")
    assert document["compute_units"] == 304
    assert [row["workgroups"] for row in document["grids"]] == [256, 1024, 4096, 2048]
    assert [round(100 * row["used"], 1) for row in document["grids"]] == [84.2, 84.2, 96.2, 96.2]


def test_utilization_as_text():
    lines = call("utilization", "--output", "4096,4096", "--tile", "128,128", "--tile", "64,64", "--cus", 304).stdout.splitlines()
    assert lines[0].split() == ["TILE", "WORKGROUPS", "ROUNDS", "OF", "USED"]
    assert lines[1].split() == ["128,128", "1024", "3.37", "4", "84.2", "%"]
    assert lines[2].split() == ["64,64", "4096", "13.47", "14", "96.2", "%"]


def test_utilization_of_a_grid_by_its_number_and_of_more_workgroups_at_once():
    document = answer("utilization", "--grid", 1216, "--cus", 304, "--occupancy", 4)
    assert document["grids"] == [{"tile": None, "workgroups": 1216, "rounds": 1.0, "used": 1.0}]


def test_tiles_that_do_not_divide_the_output_cover_it():
    document = answer("utilization", "--output", "1000,1000", "--tile", "128,256", "--cus", 16)
    assert document["grids"][0]["workgroups"] == 8 * 4


@pytest.mark.parametrize("gpu, units", [
    ("MI250X", 104), ("MI300A", 228), ("AMD Instinct MI300X", 304), ("mi308x", 80), ("MI325X", 304), ("AMD MI350X", 256),
    ("MI355X", 256), ("NVIDIA A100", 108), ("NVIDIA H100 SXM", 132), ("H100 PCIe", 114), ("h200", 132)])
def test_the_compute_units_of_a_gpu_are_known_by_its_name(gpu, units):
    assert answer("utilization", "--grid", 4096, "--gpu", gpu)["compute_units"] == units


def test_small_grids_are_advised_smaller_tiles_or_split_k():
    text = advice(answer("utilization", "--output", "512,512", "--tile", "64,64", "--gpu", "MI300X"))
    assert text.startswith("tile 64,64: 64 workgroups; ") and "smaller tiles" in text and "split-K by 16" in text
    assert advice(answer("utilization", "--grid", 1024, "--gpu", "MI300X")) == ""
    assert advice(answer("utilization", "--grid", 64, "--gpu", "H200")) == ""
    assert "split-K" not in advice(answer("utilization", "--output", "512", "--tile", "64", "--gpu", "MI300X"))


def test_block_k_is_compared_with_512_contiguous_bytes():
    arguments = ("utilization", "--output", "8192,8192", "--gpu", "MI300X", "--dtype", "float16")
    text = advice(answer(*arguments, "--tile", "64,64,32"))
    assert text.startswith("tile 64,64,32: BLOCK_K 32 is 64 contiguous bytes") and "512" in text and text.endswith(" BLOCK_K 256")
    assert answer(*arguments, "--tile", "64,64,256")["advice"] == []
    assert answer(*arguments, "--tile", "64,64")["advice"] == []


def test_an_elementwise_kernel_is_advised_16_to_32_kib_in_flight():
    arguments = ("utilization", "--output", 1 << 24, "--gpu", "MI300X", "--dtype", "float32")
    assert "4 KiB of loads are in flight" in advice(answer(*arguments, "--tile", 1024))
    assert answer(*arguments, "--tile", 1024, "--inputs", 2, "--occupancy", 2)["advice"] == []
    assert answer(*arguments, "--tile", 8192)["advice"] == []
    assert "64 KiB of loads are in flight" in advice(answer(*arguments, "--tile", 8192, "--inputs", 2))


def test_every_advice_has_its_source():
    document = answer("utilization", "--output", "512", "--tile", "64", "--cus", 304, "--dtype", "float64")
    assert len(document["advice"]) == 2
    assert all(re.search(r"AMD, MI300X workload optimization guide", finding["source"]) for finding in document["advice"])


def test_utilization_names_missing_and_wrong_options():
    grid, gpu = ("--grid", 8), ("--cus", 8)
    assert "--gpu NAME or --cus N" in refused("utilization", *grid)
    assert "--gpu NAME or --cus N" in refused("utilization", *grid, *gpu, "--gpu", "MI300X")
    assert "--output with one --tile" in refused("utilization", *gpu)
    assert "or --grid" in refused("utilization", *gpu, *grid, "--output", "8,8", "--tile", "1,1")
    assert "or --grid" in refused("utilization", *gpu, "--output", "8,8")
    assert "or --grid" in refused("utilization", *gpu, *grid, "--tile", "8,8")
    assert 'did you mean "MI300X"' in refused("utilization", *grid, "--gpu", "MI301X")
    assert "--dtype \"float17\"" in refused("utilization", *grid, *gpu, "--dtype", "float17")
    for output in ("", "0", "-1", "8,", ",8", "8,8,8", "x", "8x", "2147483648", "99999999999999999999"):
        assert "--output" in refused("utilization", *gpu, "--output", output, "--tile", "8"), output
    for tile in ("8", "8,8,8,8", "8,0", "8, 8"):
        assert "--tile" in refused("utilization", *gpu, "--output", "8,8", "--tile", tile), tile
    assert "--tile" in refused("utilization", *gpu, "--output", "8", "--tile", "8,8")
