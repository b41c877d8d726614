"""Kernels packed with the real Triton for gfx942 on a CPU: a build agrees with its code objects."""

import hashlib
import json
import os
import re
import shutil
import subprocess

import pytest
from conftest import ADD, KERNELS, MATMUL, ROOT, SOFTMAX, TRITON, TRITON_VERSION, edit, program, read, refusal, run
from wavetune._pack.folder import load_kernel

KEY = "M=4096,N=4096,K=4096"
SIZES = {"i32": 4, "fp32": 4, "i64": 8}


@pytest.fixture(scope="session")
def packed(tmp_path_factory):
    """10 configs of a matrix product for one key: (kernel folder, build folder). Of the space's 104 configs those of two tile
    sizes; all of them would take a minute."""
    folder = tmp_path_factory.mktemp("matmul")
    space = read(KERNELS, "matmul.space.json")
    space["parameters"] |= {"BLOCK_SIZE_M": [16, 64], "BLOCK_SIZE_N": [32], "BLOCK_SIZE_K": [32]}
    space["default"] |= {"BLOCK_SIZE_N": 32}
    (folder / "space.json").write_text(json.dumps(space))
    run("pack", KERNELS / "matmul.py", "--space", folder / "space.json", "--kernel", folder / "kernel",
        "--output", folder / "build", "--key", KEY, *MATMUL)
    return folder / "kernel", folder / "build"


def notes(path):
    """(arguments as (offset, size, kind), the other members) of the kernel that a code object's notes describe."""
    if not shutil.which("llvm-readelf-19"):
        pytest.skip("llvm-readelf-19 is not installed: apt-get install llvm-19")
    text = subprocess.run(["llvm-readelf-19", "--notes", path], capture_output=True, text=True, check=True).stdout
    block = re.search(r"\.args:(.*?)(?=\n {4}\.\w)", text, re.DOTALL)[1]
    arguments = [(int(offset), int(size), kind) for offset, size, kind in re.findall(
        r"\.offset:\s+(\d+)\s+\.size:\s+(\d+)\s+\.value_kind:\s+(\w+)", block)]
    members = dict(re.findall(r"\n {4}\.(\w+):\s+(\S+)", text))
    return arguments, members, text


def layout(kernel, signature, scratch):
    """Offsets and sizes of the passed arguments by natural alignment, in the manifest's order, then scratch pointers."""
    expected, at = [], 0
    names = [argument["name"] for argument in read(kernel, "kernel.json")["arguments"]]
    for kind in [*(signature[name] for name in names if name in signature), *["*"] * scratch]:
        size = 8 if kind.startswith("*") else SIZES[kind]
        at = -(-at // size) * size
        expected.append((at, size, "global_buffer" if kind.startswith("*") else "by_value"))
        at += size
    return expected


def test_every_config_of_the_space_is_packed(packed):
    (variant,) = read(packed[1])["variants"]
    assert len(variant["objects"]) == 10 and "failed" not in variant
    assert len({json.dumps(o["config"], sort_keys=True) for o in variant["objects"]}) == 10


def test_the_variant_is_the_jits_specialisation(packed):
    (variant,) = read(packed[1])["variants"]
    assert variant["signature"] == {"a_ptr": "*fp16", "b_ptr": "*fp16", "c_ptr": "*fp16", "M": "i32", "N": "i32",
                                    "K": "i32", "stride_am": "i32", "stride_bk": "i32", "stride_cm": "i32"}
    assert variant["constexprs"] == {"stride_ak": 1, "stride_bn": 1, "stride_cn": 1}
    assert "M % 16 == 0" in variant["when"]
    assert ("M * K * 2 <= 2147483647" in variant["when"]) == (TRITON >= (3, 6))


def test_every_code_object_is_for_the_arch_and_takes_what_the_build_says(packed):
    build = read(packed[1])
    (variant,) = build["variants"]
    assert (build["arch"], build["warp_size"]) == ("gfx942", 64)
    for packed_object in variant["objects"]:
        metadata = packed_object["metadata"]
        arguments, members, text = notes(packed[1] / "objects" / packed_object["digest"][7:])
        target = "amdgcn-amd-amdhsa--gfx942" if TRITON < (3, 9) else "amdgpu9.42-amd-amdhsa-unknown-gfx942"
        assert re.search(rf"amdhsa.target:\s+'?{target}'?\n", text)
        assert members["symbol"] == metadata["name"] + ".kd" and members["name"] == "matmul_kernel"
        assert int(members["max_flat_workgroup_size"]) == metadata["num_warps"] * metadata["warp_size"]
        assert arguments == layout(packed[0], variant["signature"], metadata["scratch"])
        scratch = 2 if TRITON >= (3, 5) else 1
        assert (metadata["scratch"], metadata["num_ctas"], metadata["launch_cooperative_grid"]) == (scratch, 1, False)
        assert metadata["num_warps"] == packed_object["config"]["num_warps"]


def test_the_c_reader_states_what_the_assembly_and_tritons_metadata_state(packed):
    objects = packed[1] / "objects"
    for packed_object in read(packed[1])["variants"][0]["objects"][::2]:
        metadata = packed_object["metadata"]
        done = subprocess.run([program("wavetune"), "kernel", "check", "--json", objects / packed_object["digest"][7:]],
                              capture_output=True, text=True)
        (found,) = json.loads(done.stdout)
        stated = (objects / metadata["files"]["amdgcn"][7:]).read_text().split("amdhsa.kernels:")[1]
        for member, name in (("vgprs", "vgpr_count"), ("agprs", "agpr_count"), ("sgprs", "sgpr_count"),
                             ("vgpr_spills", "vgpr_spill_count"), ("sgpr_spills", "sgpr_spill_count"),
                             ("lds_bytes", "group_segment_fixed_size"), ("scratch_bytes", "private_segment_fixed_size"),
                             ("kernarg_bytes", "kernarg_segment_size"), ("wavefront_size", "wavefront_size"),
                             ("workgroup_max", "max_flat_workgroup_size")):
            assert found["resources"][member] == int(re.search(rf"\.{name}:\s+(\d+)", stated)[1]), member
        arguments = re.findall(r"\.offset:\s+(\d+)\s+\.size:\s+(\d+)\s+\.value_kind:\s+(\w+)", stated)
        assert [(str(a["offset"]), str(a["size"]), a["kind"]) for a in found["arguments"]] == arguments
        kept = json.loads((objects / metadata["cache"]["files"]["matmul_kernel.json"][7:]).read_text())
        assert found["target"] == kept["target"]["arch"] and kept["triton_version"] == TRITON_VERSION
        assert {name: metadata[name] for name in ("shared", "num_warps", "num_ctas", "warp_size")} == {
            "shared": kept["shared"], "num_warps": kept["num_warps"], "num_ctas": 1, "warp_size": 64}
        assert found["resources"]["workgroup_max"] == 64 * kept["num_warps"] and kept["shared"] > 0


def test_the_folder_holds_what_the_build_names_under_its_digest_and_nothing_else(packed):
    build = read(packed[1])
    named = {digest[7:] for variant in build["variants"] for o in variant["objects"]
             for digest in (o["digest"], *o["metadata"]["files"].values(), *o["metadata"]["cache"]["files"].values())}
    assert set(os.listdir(packed[1] / "objects")) == named
    for name in named:
        assert hashlib.sha256((packed[1] / "objects" / name).read_bytes()).hexdigest() == name
    assert sorted(os.listdir(packed[1])) == ["build.json", "objects"]


def test_objects_and_texts_hold_no_path_of_this_machine(packed):
    for path in (packed[1] / "objects").iterdir():
        data = path.read_bytes()
        assert str(KERNELS).encode() not in data and str(packed[0]).encode() not in data and b".py" not in data


def test_the_texts_are_the_ttgir_and_the_assembly_of_the_object(packed):
    files = read(packed[1])["variants"][0]["objects"][0]["metadata"]["files"]
    assert sorted(files) == ["amdgcn", "ttgir"]
    assert "ttg.target" in (packed[1] / "objects" / files["ttgir"][7:]).read_text()
    assert "v_mfma_f32_16x16" in (packed[1] / "objects" / files["amdgcn"][7:]).read_text()


def test_the_object_is_the_one_that_tritons_jit_compiles(packed, tmp_path, monkeypatch):
    script = f"""
import sys, types, hashlib
from pathlib import Path
from triton.backends.compiler import GPUTarget
from wavetune._pack.source import load_function
torch = types.ModuleType("torch")
class Tensor:
    dtype = "float16"
    def data_ptr(self): return 0
    def ptr_range(self): return 2 * 4096 * 4096
torch.Tensor, torch.float16 = Tensor, "float16"
sys.modules["torch"] = torch
jit = load_function(Path({str(KERNELS / "matmul.py")!r}), None, GPUTarget("hip", "gfx942", 64)).jit
t = Tensor()
kernel = jit.run(t, t, t, 4096, 4096, 4096, 4096, 1, 4096, 1, 4096, 1, grid=(1,), warmup=True, BLOCK_SIZE_M=64,
                 BLOCK_SIZE_N=32, BLOCK_SIZE_K=32, GROUP_SIZE_M=8, ACTIVATION="leaky_relu", num_warps=4,
                 matrix_instr_nonkdim=16, waves_per_eu=2)
print(hashlib.sha256(kernel.asm["hsaco"]).hexdigest())
"""
    import sys
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path), "TRITON_DISABLE_LINE_INFO": "1"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    wanted = {"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 32, "GROUP_SIZE_M": 8, "num_warps": 4,
              "matrix_instr_nonkdim": 16, "waves_per_eu": 2}
    (own,) = [o for o in read(packed[1])["variants"][0]["objects"] if o["config"] == wanted]
    assert own["digest"] == "sha256:" + done.stdout.strip()


def test_a_key_that_no_variant_covers_is_reported(packed):
    out, _ = run("keys", packed[0], "--key", "M=4096,N=4096,K=1000", "--key", "M=64,N=16,K=4096", "--build", packed[1],
                 "--json", status=1)
    assert [entry["variant"] for entry in json.loads(out)] == [0, None] or \
        [(e["key"]["K"], e["variant"]) for e in json.loads(out)] == [(4096, 0), (1000, None)]
    out, _ = run("keys", packed[0], "--key", "M=4096,N=4096,K=1000", "--build", packed[1], status=1)
    assert "none: pack it" in out
    run("keys", packed[0], "--key", KEY, "--build", packed[1])


def test_the_kernels_hash_is_the_one_of_the_c_programs(packed):
    done = subprocess.run([program("wavetune"), "kernel", "hash", packed[0]], capture_output=True, text=True)
    assert read(packed[1])["kernel"] in done.stdout, done.stderr


@pytest.mark.one_triton
def test_a_captured_kernels_hash_is_the_one_of_the_c_programs_with_a_reference_and_without(tmp_path):
    folder = shutil.copytree(ROOT / "tests/data/kernels/gpu_captured", tmp_path / "kernel")
    hashes = set()
    for document in (read(folder, "kernel.json"), {k: v for k, v in read(folder, "kernel.json").items() if k != "reference"}):
        (folder / "kernel.json").write_text(json.dumps(document))
        done = subprocess.run([program("wavetune"), "kernel", "hash", folder], capture_output=True, text=True)
        assert load_kernel(str(folder)).hash == done.stdout.split()[-1], done.stderr
        hashes.add(done.stdout)
    assert len(hashes) == 1


def test_wavetune_kernel_check_finds_every_object_whole_and_its_arguments_as_the_manifest_has_them(packed):
    done = subprocess.run([program("wavetune"), "kernel", "check", "--json", "--kernel", packed[0], packed[1]],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)


def pack_add(folder, output, *more, **environment):
    run("pack", folder, "--output", output, "--key", "n=98432", *more, **environment)
    return read(output)


def test_two_runs_give_equal_bytes_whatever_the_shell_the_folder_and_the_processes(add_folder, tmp_path):
    pack_add(add_folder, tmp_path / "one", "--key", "n=7", "--processes", "1")
    shutil.copytree(add_folder, tmp_path / "elsewhere")
    pack_add(tmp_path / "elsewhere", tmp_path / "two", "--key", "n=7", "--processes", "3", AMDGCN_USE_BUFFER_OPS="0",
             TRITON_DEFAULT_FP_FUSION="0")
    assert (tmp_path / "one/build.json").read_bytes() == (tmp_path / "two/build.json").read_bytes()
    assert sorted(os.listdir(tmp_path / "one/objects")) == sorted(os.listdir(tmp_path / "two/objects"))


@pytest.mark.one_triton
def test_keys_given_in_another_order_give_the_same_build(add_folder, tmp_path):
    edit(add_folder, "space.json", lambda s: s["parameters"].update(BLOCK_SIZE=[1024]))
    run("pack", add_folder, "--output", tmp_path / "one", "--key", "n=7", "--key", "n=64")
    run("pack", add_folder, "--output", tmp_path / "two", "--key", "n=64", "--key", "n=7", "--key", "n=128")
    assert (tmp_path / "one/build.json").read_bytes() == (tmp_path / "two/build.json").read_bytes()


def test_a_parameter_of_the_environment_is_set_in_the_compiling_process(add_folder, tmp_path):
    build = pack_add(add_folder, tmp_path / "build")
    uses = {}
    for o in build["variants"][0]["objects"]:
        text = (tmp_path / "build/objects" / o["metadata"]["files"]["amdgcn"][7:]).read_text()
        uses.setdefault(o["config"]["AMDGCN_USE_BUFFER_OPS"], set()).add("buffer_load" in text)
    assert uses == {True: {True}, False: {False}}


def test_a_config_that_does_not_compile_is_listed_and_stops_nothing(add_folder, tmp_path):
    edit(add_folder, "space.json", lambda s: s["parameters"].update(BLOCK_SIZE=[1000, 1024], num_warps=[3, 4]))
    (variant,) = pack_add(add_folder, tmp_path / "build")["variants"]
    assert {o["config"]["BLOCK_SIZE"] for o in variant["objects"]} == {1024}
    errors = {(f["config"]["BLOCK_SIZE"], f["config"]["num_warps"]): f["error"] for f in variant["failed"]}
    assert errors[(1000, 4)] == ("CompilationError: at 3:33: offsets = pid * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE): "
                                 "arange's range must be a power of 2")
    assert "num_warps must be a power of 2" in errors[(1024, 3)]
    assert all("\n" not in error and len(error) <= 300 for error in errors.values())


def test_a_kernel_without_a_config_that_compiles_gives_no_build(add_folder, tmp_path):
    edit(add_folder, "space.json", lambda s: s["parameters"].update(BLOCK_SIZE=[1000], num_warps=[4]))
    assert "no config compiles for the key n=98432" in refusal(
        "pack", add_folder, "--output", tmp_path / "build", "--key", "n=98432", status=1)
    assert not (tmp_path / "build").exists() and os.listdir(tmp_path) == ["add"]


@pytest.mark.one_triton
def test_conditions_may_read_the_key_and_the_arch(add_folder, tmp_path):
    edit(add_folder, "space.json", lambda s: s.update(conditions=["BLOCK_SIZE <= n", "arch == 'gfx942'",
                                                                  "AMDGCN_USE_BUFFER_OPS", "'MI300' in gpu_name"]))
    build = pack_add(add_folder, tmp_path / "build", "--key", "n=256", "--gpu-name", "AMD Instinct MI300X")
    assert [len(v["objects"]) for v in build["variants"]] == [8]
    assert "exclude every config" in refusal("pack", add_folder, "-o", tmp_path / "b", "--key", "n=98432")


def test_the_softmax_of_the_tutorial_takes_its_width_from_the_key(tmp_path):
    run("pack", KERNELS / "softmax.py", "--space", KERNELS / "softmax.space.json", "--kernel", tmp_path / "kernel",
        "--output", tmp_path / "build", "--key", "n_rows=4096,n_cols=781", "--key", "n_rows=4096,n_cols=1024", *SOFTMAX)
    first, second = read(tmp_path / "build")["variants"]
    assert first["constexprs"] == second["constexprs"] == {"BLOCK_SIZE": 1024}
    assert "next_pow2(n_cols) == 1024" in first["when"] and "n_cols % 16 != 0" in second["when"]
    assert len(first["objects"]) == 4 and "n_cols" in first["signature"] and "num_stages" not in first["signature"]
    version = read(tmp_path / "kernel", "kernel.json")["versions"]["triton"]
    assert version["defines"] == {"BLOCK_SIZE": "next_pow2(n_cols)"}
    assert version["launch"] == {"grid": ["min(cus * occupancy, n_rows)"]}


def test_a_file_under_dejavus_decorator_is_packed_with_its_record(tmp_path):
    run("pack", KERNELS / "dejavu_add.py", "--kernel", tmp_path / "kernel", "-o", tmp_path / "build", "--key",
        "n_elements=98432", *ADD)
    (variant,) = read(tmp_path / "build")["variants"]
    assert len(variant["objects"]) == 7
    record = read(tmp_path / "build")["record"]
    assert record["autotune"]["decorator"] == "triton_dejavu" and record["key_names"] == ["n_elements"]
    assert record["dejavu"]["search_parameters"].startswith(
        "autotuner params: warmup 25 rep 50 cuda_graphs False quantiles (0.5, 0.2, 0.8) ")
    assert record["kernel"] == read(tmp_path / "build")["kernel"] and record["dejavu"]["rep"] == 50


def test_a_file_is_packed_for_nvidia_with_that_gpus_configs(tmp_path):
    run("pack", KERNELS / "matmul.py", "--kernel", tmp_path / "kernel", "-o", tmp_path / "build", "--key", KEY,
        "--arch", "sm_90", *MATMUL)
    build = read(tmp_path / "build")
    (variant,) = build["variants"]
    (packed_object,) = variant["objects"]
    assert (build["arch"], build["warp_size"]) == ("sm_90", 32) and "2147483647 and M * N" not in variant["when"]
    assert sorted(packed_object["metadata"]["files"]) == ["ptx", "ttgir"]
    assert (tmp_path / "build/objects" / packed_object["digest"][7:]).read_bytes()[:4] == b"\x7fELF"


def test_amd_options_of_a_space_do_nothing_on_nvidia(add_folder, tmp_path):
    build = pack_add(add_folder, tmp_path / "build", "--arch", "sm_90")
    digests = {}
    for o in build["variants"][0]["objects"]:
        config = {n: v for n, v in o["config"].items() if n not in ("waves_per_eu", "AMDGCN_USE_BUFFER_OPS")}
        digests.setdefault(json.dumps(config, sort_keys=True), set()).add(o["digest"])
    assert len(digests) == 3 and all(len(same) == 1 for same in digests.values())


@pytest.mark.one_triton
def test_the_toolchain_has_the_versions_of_the_deployment(add_folder, tmp_path):
    edit(add_folder, "space.json", lambda s: s.update(conditions=["BLOCK_SIZE == 256 and num_warps == 4"]))
    build = pack_add(add_folder, tmp_path / "build", "--torch", "2.9.0", "--rocm", "6.4.1")
    assert build["toolchain"] == {"triton": TRITON_VERSION, "torch": "2.9.0", "rocm": "6.4.1"}


def test_a_parameter_with_a_default_of_none_is_compiled_in(add_folder, tmp_path):
    source = (add_folder / "vector_add.py").read_text()
    (add_folder / "vector_add.py").write_text(source.replace(
        "n_elements, BLOCK_SIZE: tl.constexpr", "n_elements, BLOCK_SIZE: tl.constexpr, bias_ptr=None, K: tl.constexpr=3"))
    edit(add_folder, "space.json", lambda s: s.update(conditions=["BLOCK_SIZE == 256 and num_warps == 4"]))
    (variant,) = pack_add(add_folder, tmp_path / "build")["variants"]
    assert variant["constexprs"] == {"bias_ptr": None} and "bias_ptr" not in variant["signature"]


@pytest.mark.skipif(TRITON < (3, 4), reason="Triton 3.3 has no make_tensor_descriptor")
def test_descriptors_that_the_kernel_makes_itself_are_packed(tmp_path):
    (tmp_path / "f.py").write_text("""import triton, triton.language as tl
@triton.autotune(configs=[triton.Config({"B": 32})], key=["M", "N"])
@triton.jit
def double(x_ptr, y_ptr, M, N, B: tl.constexpr):
    x = tl.make_tensor_descriptor(x_ptr, shape=[M, N], strides=[N, 1], block_shape=[B, B])
    y = tl.make_tensor_descriptor(y_ptr, shape=[M, N], strides=[N, 1], block_shape=[B, B])
    y.store([0, 0], x.load([0, 0]) * 2)
""")
    call = ("pack", tmp_path / "f.py", "--kernel", tmp_path / "k", "-o", tmp_path / "b", "--key", "M=64,N=64", "--grid", "1",
            "--signature", "x_ptr=*fp16[M,N], y_ptr=*fp16[M,N]:write")
    run(*call)
    assert len(read(tmp_path / "b")["variants"][0]["objects"]) == 1
    assert "scratch memory" in refusal(*call, "--arch", "sm_90", status=1)


def test_a_triton_that_pack_does_not_know_is_refused_with_the_line_to_change(monkeypatch):
    import triton

    from wavetune._errors import PackError
    from wavetune._pack.target import triton_version
    for version_ in ("3.2.0", "3.10.0", "4.0.0", "main"):
        monkeypatch.setattr(triton, "__version__", version_)
        with pytest.raises(PackError, match=f"Triton {version_} is installed.*SUPPORTED in .*target.py"):
            triton_version()
