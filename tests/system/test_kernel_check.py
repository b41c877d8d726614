"""wavetune kernel check of code objects (compared with the output of llvm-readelf), TTGIR, kernel folders and builds; and
wavetune show --asm and --ttgir of winners whose builds and measurements are written by hand."""

import json
import os
import re
import shutil
import subprocess
import textwrap

import harness
import pytest
from harness import FakeServer, wavetune
from test_builds import MI300X, canonical, finish, hash_of, job_of, sha
from test_faults import Hand

TRITON_MATMUL = harness.DATA / "codeobjects/matmul_gfx942.hsaco"
CUBIN = harness.SOURCE / "tests/data/codeobjects/resources_sm_90.cubin"
TTGIR = harness.SOURCE / "tests/data/ttgir/transposed_sum.ttgir"
KERNELS = harness.KERNELS
MEMBERS = {"vgprs": ".vgpr_count", "agprs": ".agpr_count", "sgprs": ".sgpr_count", "vgpr_spills": ".vgpr_spill_count",
           "sgpr_spills": ".sgpr_spill_count", "lds_bytes": ".group_segment_fixed_size",
           "scratch_bytes": ".private_segment_fixed_size", "kernarg_bytes": ".kernarg_segment_size",
           "wavefront_size": ".wavefront_size", "workgroup_max": ".max_flat_workgroup_size"}
SOURCE = """
#define KERNEL(n) extern "C" __attribute__((global, amdgpu_flat_work_group_size(n, n))) void
#define LANE (__builtin_amdgcn_workgroup_id_x() * 64 + __builtin_amdgcn_workitem_id_x())
KERNEL(64) strided(const float *x, float *y, int n, long stride) {
  float sum = 0;
  #pragma unroll 1
  for (int i = 0; i < n; i++) sum += x[i * stride + LANE];
  y[LANE] = sum;
}
KERNEL(256) in_lds(float *y, char c, double d) {
  __attribute__((shared)) static float tile[1024];
  tile[__builtin_amdgcn_workitem_id_x()] = (float)d + c;
  __builtin_amdgcn_s_barrier();
  y[LANE] = tile[1023 - __builtin_amdgcn_workitem_id_x()] + __builtin_amdgcn_workgroup_size_x();
}
KERNEL(64) on_stack(const int *x, float *y, int n) {
  float table[64];
  for (int i = 0; i < 64; i++) table[i] = i * n;
  y[LANE] = table[x[LANE] & 63];
}
"""


def check(*arguments, code=0, environment=None):
    done = wavetune(None, "kernel", "check", *arguments, check=False, environment=environment)
    assert done.returncode == code, (arguments, done)
    return done


def answers(*arguments, code=0, environment=None):
    return json.loads(check(*arguments, "--json", code=code, environment=environment).stdout)


def sentences(answer, severity):
    return [f["sentence"] for f in answer["findings"] if f["severity"] == severity]


def readelf_notes(path):
    """What llvm-readelf prints of each kernel: (its members, its arguments), values as text."""
    tool = shutil.which("llvm-readelf-19")
    if not tool:
        pytest.skip("llvm-readelf-19 is not here")
    text = subprocess.run([tool, "--notes", path], capture_output=True, text=True, check=True).stdout
    kernels, arguments = [], None
    for line in text[text.index("amdhsa.kernels:"):].splitlines()[1:]:
        match = re.match(r"( *)(- )?(\.[a-z_]+): *(.*)", line)
        if not match:
            break
        depth, begins, name, value = len(match[1]), match[2], match[3], match[4].strip("'")
        if depth == 2 and begins:
            kernels.append(({}, []))
        if name == ".args":
            arguments = kernels[-1][1]
        elif depth >= 6:
            if begins:
                arguments.append({})
            arguments[-1][name] = value
        else:
            kernels[-1][0][name] = value
    return kernels


def as_printed(value):
    return {True: "true", False: "false"}.get(value, value) if isinstance(value, bool) else str(value)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """A code object of three kernels."""
    clang = shutil.which("clang-19")
    if not clang or not shutil.which("llvm-objdump-19"):
        pytest.skip("clang-19 and llvm-objdump-19 are not here")
    folder = tmp_path_factory.mktemp("compiled")
    (folder / "k.hip").write_text(SOURCE)
    subprocess.run([clang, "-x", "hip", "--cuda-device-only", "--offload-arch=gfx942", "-nogpulib", "-nogpuinc", "-O3",
                    "--no-gpu-bundle-output", "-fuse-cuid=none", folder / "k.hip", "-o", folder / "k.co"], check=True,
                   capture_output=True)
    return folder / "k.co"


def assert_like_readelf(path):
    expected = readelf_notes(path)
    found = answers(path)
    assert len(found) == len(expected) >= 1
    printed = check(path).stdout
    for answer, (members, arguments) in zip(found, expected):
        assert answer["kernel"] == members[".name"]
        assert {name: as_printed(value) for name, value in answer["notes"].items() if name != ".args"} == members
        assert [{n: as_printed(v) for n, v in a.items()} for a in answer["notes"].get(".args", [])] == arguments
        for member, name in MEMBERS.items():
            if name in members:
                assert str(answer["resources"][member]) == members[name], (answer["kernel"], member)
        assert [(a["offset"], a["size"], a["kind"]) for a in answer["arguments"]] == [
            (int(a[".offset"]), int(a[".size"]), a[".value_kind"]) for a in arguments]
        part = printed[printed.index(f"kernel {members['.name']}\n"):]
        for name, value in members.items():
            assert re.search(rf"^  {re.escape(name)}: +{re.escape(value)}$", part, re.M), (name, value)
        for i, argument in enumerate(arguments):
            row = re.search(rf"^  {i} +(\d+) +(\d+)  (\S+)(.*)$", part, re.M)
            assert row.groups()[:3] == (argument[".offset"], argument[".size"], argument[".value_kind"])
            for name in set(argument) - {".offset", ".size", ".value_kind"}:
                assert f"{name}: {argument[name]}" in row[4]


# Code objects

def test_a_code_object_of_triton_is_described_as_by_llvm_readelf():
    assert_like_readelf(TRITON_MATMUL)


def test_compiled_code_objects_are_described_as_by_llvm_readelf(compiled):
    assert_like_readelf(compiled)
    assert {a["kernel"] for a in answers(compiled)} == {"strided", "in_lds", "on_stack"}


def test_a_code_object_has_its_occupancy_and_the_review_of_its_instructions(compiled):
    by_name = {answer["kernel"]: answer for answer in answers(compiled)}
    assert by_name["strided"]["occupancy"] == {"threads": 64, "workgroups_per_cu": 32, "waves_per_eu": 8.0, "limit": "waves"}
    loop, = by_name["strided"]["instructions"]["loops"]
    assert loop["hot"] and loop["global_loads"] == {"4": 1} and loop["depth"] == 1
    warnings = [f["sentence"] for f in by_name["strided"]["instructions"]["findings"] if f["severity"] == "warning"]
    assert len(warnings) == 1 and "1 of 1 global loads" in warnings[0]
    assert by_name["in_lds"]["instructions"]["barriers"] >= 1 and by_name["in_lds"]["resources"]["lds_bytes"] == 4096
    assert any("scratch" in f["sentence"] for f in by_name["on_stack"]["instructions"]["findings"])
    printed = check(compiled).stdout
    assert "occupancy: 8 waves per EU (32 workgroups of 64 threads per CU), limited by waves" in printed
    assert "loop at +0x" in printed and "  warning: the hot loop" in printed


def test_occupancy_is_for_the_requested_workgroup(compiled):
    by_name = {answer["kernel"]: answer for answer in answers(compiled, "--shared", "16384")}
    assert by_name["strided"]["occupancy"]["limit"] == "lds" and by_name["strided"]["occupancy"]["workgroups_per_cu"] == 4
    refused = {a["kernel"]: sentences(a, "refused") for a in answers(compiled, "--warps", "4", code=1)}
    assert refused["in_lds"] == [] and ["at most 64 threads" in s for s in refused["strided"]] == [True]
    assert "needs 69632 bytes of LDS" in check(compiled, "--shared", "65536", code=1).stdout


def test_without_a_disassembler_the_rest_is_printed(compiled):
    done = check(compiled, environment={"WAVETUNE_OBJDUMP": "/nonexistent"})
    assert done.stdout.count("not reviewed: WAVETUNE_OBJDUMP") == 3
    assert all(a["instructions"] is None for a in answers(compiled, environment={"WAVETUNE_OBJDUMP": "/nonexistent"}))


def test_a_cubin_is_described_with_wavetunes_own_names():
    printed = check(CUBIN, "--warps", "4").stdout
    assert "CUDA cubin for sm_90" in printed and "  scratch_bytes                 256\n" in printed
    assert "only AMD's instructions" in printed and "16 workgroups of 128 threads per CU" in printed
    assert "give --warps" in check(CUBIN).stdout
    assert answers(CUBIN)[0]["notes"] is None


def test_a_damaged_code_object_and_other_files_are_refused(tmp_path):
    (tmp_path / "cut.co").write_bytes(CUBIN.read_bytes()[:300])
    (tmp_path / "text").write_text("hello")
    answer, = answers(tmp_path / "cut.co", code=1)
    assert answer["refused"] and answer["what"] == "code object" and len(sentences(answer, "refused")) == 1
    assert "refused: " in check(tmp_path / "text", code=1).stdout
    several = answers(CUBIN, tmp_path / "text", code=1)
    assert [a["refused"] for a in several].count(True) == 1 and len(several) > 2
    for arguments, word in (((), "a code object"), ((tmp_path / "none",), "there is no"), (("--warps", "x"), "integer")):
        done = check(*arguments, code=2)
        assert word in done.stderr and done.stdout == "" and done.stderr.count("\n") == 1


def test_a_code_object_without_a_metadata_version_is_printed(tmp_path):
    path = tmp_path / "code.hsaco"
    path.write_bytes(TRITON_MATMUL.read_bytes().replace(b"amdhsa.version", b"amdhsa.versiom"))
    assert "amdhsa.version: not stated\n" in check(path, environment={"WAVETUNE_OBJDUMP": "/bin/false"}).stdout


# TTGIR

def test_a_code_object_without_kernels_is_refused(tmp_path):
    clang = shutil.which("clang-19")
    if not clang:
        pytest.skip("clang-19 is not here")
    (tmp_path / "n.hip").write_text('__attribute__((device)) int nothing;\n')
    subprocess.run([clang, "-x", "hip", "--cuda-device-only", "--offload-arch=gfx942", "-nogpulib", "-nogpuinc",
                    "--no-gpu-bundle-output", tmp_path / "n.hip", "-o", tmp_path / "n.co"], check=True)
    answer, = answers(tmp_path / "n.co", code=1)
    assert ["no kernel" in s for s in sentences(answer, "refused")] == [True]


def test_a_name_that_json_cannot_hold_is_refused(tmp_path):
    place = os.fsdecode(bytes(tmp_path / "x") + b"\xff.ttgir")
    shutil.copy(TTGIR, place)
    assert "no UTF-8" in check(place, "--json", code=2).stderr


@pytest.mark.parametrize("columns", (50, 80, 120))
def test_a_wrapped_ttgir_module_is_reviewed_as_the_module(tmp_path, columns):
    """As terminals and guides print it: lines are broken at spaces, with and without an indent."""
    wrapped = [part for line in TTGIR.read_text().splitlines()
               for part in textwrap.wrap(line, columns, subsequent_indent="" if columns == 80 else "  ", break_long_words=False,
                                         break_on_hyphens=False)]
    assert len(wrapped) > len(TTGIR.read_text().splitlines())
    (tmp_path / "wrapped.ttgir").write_text("\n".join(wrapped) + "\n")
    (one,), (other,) = answers(TTGIR), answers(tmp_path / "wrapped.ttgir")
    for review in (one["review"], other["review"]):
        for convert in review["conversions"]:
            convert.pop("line")
    assert other["review"] == one["review"]


def test_a_ttgir_module_is_reviewed():
    printed = check(TTGIR).stdout
    assert "  num-warps        4\n" in printed and "through LDS 1 (0), may be 0 (0)" in printed and "hint: 1 transposes" in printed
    answer, = answers(TTGIR)
    assert answer["what"] == "ttgir" and answer["review"]["in_loops"]["transposes"] == 1 and not answer["refused"]


def test_a_module_that_is_cut_off_is_refused(tmp_path):
    (tmp_path / "cut.ttgir").write_text(TTGIR.read_text()[:3000])
    assert "cut off" in check(tmp_path / "cut.ttgir", code=1).stdout


def test_lines_of_a_module_are_reviewed_without_it(tmp_path):
    (tmp_path / "part.ttgir").write_text(
        "%1 = ttg.convert_layout %0 : tensor<64x64xf16, #blocked> -> tensor<64x64xf16, #shared>\n"
        "%2 = ttg.convert_layout %1 : tensor<64x64xf16, #shared> -> tensor<64x64xf16, #mma>\n}\n")
    answer, = answers(tmp_path / "part.ttgir")
    assert answer["what"] == "ttgir" and answer["review"]["all"]["lds_trips"] == 1 and not answer["refused"]
    assert answer["review"]["all"]["conversions"] == {"lds": 0, "to_lds": 1, "from_lds": 1, "may": 0, "registers": 0}


def test_a_disassembly_is_reviewed(tmp_path):
    shutil.copy(harness.SOURCE / "tests/fuzz/corpus/review/loops.s", tmp_path)
    f, *_ = answers(tmp_path / "loops.s")
    assert (f["what"], f["kernel"]) == ("disassembly", "f") and f["instructions"]["findings"]
    assert "loops.s: disassembly\nkernel f\n" in check(tmp_path / "loops.s").stdout


def test_an_unknown_file_is_refused_with_the_kinds_that_are_known(tmp_path):
    (tmp_path / "notes.txt").write_text("Two trips through LDS.\n")
    answer, = answers(tmp_path / "notes.txt", code=1)
    output, = sentences(answer, "refused")
    for word in ("ELF", "TTGIR module", "lines of one", "disassembly"):
        assert word in output


# Kernel folders

def test_every_kernel_of_the_tree_passes(tmp_path):
    for manifest in KERNELS.glob("*/kernel.json"):
        for version in json.loads(manifest.read_text())["versions"]:
            assert check(f"{manifest.parent}:{version}").stdout.startswith(f"{manifest.parent}:{version}: kernel ")


def test_a_kernel_folder_has_its_valid_configs_for_a_key_counted():
    place = f"{KERNELS}/softmax:online"
    counted = json.loads(wavetune(None, "space", "count", place, "--key", "rows=512,columns=1024", "--arch", "gfx942",
                                  "--json").stdout)
    answer, = answers(place, "--key", "rows=512,columns=1024")
    assert (answer["configs"], answer["raw"]) == (counted["configs"], counted["raw"]) and answer["kernel"].startswith("sha256:")
    assert "configs before conditions" in check(place).stdout
    assert "--key rows=1" in check(place, "--key", "rows=1", code=2).stderr
    several, = answers(place, "--key", "rows=512,columns=64,1024")
    assert [(one["key"]["columns"], one["configs"] > 0) for one in several["keys"]] == [(64, True), (1024, True)]
    assert several["keys"][1]["configs"] == answer["configs"] and "configs" not in several


def test_a_kernel_folder_is_checked_with_the_space_of_a_file(tmp_path):
    folder, space = harness.small_kernel(tmp_path / "k"), tmp_path / "other.json"
    space.write_text(json.dumps({"parameters": {"REPEAT": [1, 2, 3], "TURN": [0]}, "conditions": ["REPEAT < n"]}))
    answer, = answers(folder, "--space", space, "--key", "n=3")
    assert (answer["raw"], answer["configs"]) == (3, 2)
    assert "other.json" in check(folder, "--space", tmp_path / "absent/other.json", code=2).stderr


def test_a_wrong_kernel_folder_is_refused_with_the_place(tmp_path):
    folder = harness.small_kernel(tmp_path / "k")
    manifest = json.loads((folder / "kernel.json").read_text())
    (folder / "space.json").write_text(json.dumps({"parameters": {"REPEAT": [1]}, "conditions": ["REPEAT < nothing"]}))
    assert "/space/conditions/0" in sentences(answers(folder, code=1)[0], "refused")[0]
    (folder / "space.json").write_text(json.dumps({"parameters": {"REPEAT": [1, 8], "TURN": [0]}, "conditions": ["n < REPEAT"],
                                                   "default": {"REPEAT": 1, "TURN": 0}}))
    assert ["for n=9" in s for s in sentences(answers(folder, "--key", "n=9", code=1)[0], "refused")] == [True]
    assert "default config" in sentences(answers(folder, "--key", "n=5")[0], "warning")[0]
    (folder / "space.json").write_text(json.dumps({"parameters": {"REPEAT": [1], "TURN": [0]}, "conditions": ["n // TURN == 1"]}))
    assert "zero" in sentences(answers(folder, "--key", "n=9", code=1)[0], "refused")[0]
    (folder / "kernel.json").write_text(json.dumps({**manifest, "color": "red"}))
    assert "color" in sentences(answers(folder, code=1)[0], "refused")[0]
    (folder / "kernel.json").unlink()
    assert "kernel.json" in check(folder, code=1).stdout
    assert "there is no" in check(tmp_path / "none:v", code=2).stderr


@pytest.fixture
def matmul(tmp_path):
    """A triton kernel with a space that gets many hints from AMD's guide."""
    place = tmp_path / "matmul"
    place.mkdir()
    (place / "matmul.py").write_text("import triton\n\n\ndef matmul(c):\n    x = tl.arange(0, BLOCK)\n")
    (place / "space.json").write_text(json.dumps({
        "parameters": {"BLOCK": [48, 64], "num_warps": [4, 32], "num_stages": [0, 1], "kpack": [1]},
        "roles": {"num_warps": "option", "num_stages": "option", "kpack": "option"}}))
    (place / "kernel.json").write_text(json.dumps({
        "name": "matmul", "key": ["n"],
        "arguments": [{"name": "c", "dtype": "float32", "shape": ["n"], "access": "write"},
                      {"name": "n", "dtype": "int32", "value": "n"}],
        "versions": {"triton": {"language": "triton", "entry": "matmul", "sources": ["matmul.py"],
                                "launch": {"grid": ["ceil_div(n, BLOCK)"]}}}}))
    return place


def test_values_that_cannot_run_are_refused_and_others_hinted_with_their_source(matmul):
    answer, = answers(matmul, "--triton", "3.6.0", code=1)
    assert answer["kind"] == "gemm"
    refused = "\n".join(sentences(answer, "refused"))
    assert "num_stages = 0" in refused and "num_warps = 32" in refused and "BLOCK = 48" in refused
    assert any(s.startswith("num_stages: ") and "one GEMM" in s for s in sentences(answer, "hint"))
    assert all(f["source"] for f in answer["findings"])
    assert any("since 3.2" in s for s in sentences(answers(matmul, code=1)[0], "hint"))
    fused, = answers(matmul, "--kind", "fused", "--triton", "3.1.0", "--arch", "gfx90a", code=1)
    assert fused["kind"] == "fused" and not any("num_stages" in s for s in sentences(fused, "refused"))
    printed = check(matmul, "--kind", "fused", code=1).stdout
    assert "  kind: fused\n" in printed and "[AMD, MI300X workload optimization guide" in printed
    assert "--kind is gemm" in check(matmul, "--kind", "conv", code=2).stderr
    assert "--triton is" in check(matmul, "--triton", "new", code=2).stderr


# Builds

def pack(place, kernel, code, signature=None, blobs=(), **metadata):
    """A build of `kernel` with one config, whose code is `code`; `blobs` are what `metadata` names beside it."""
    (place / "objects").mkdir(parents=True)

    def blob(data):
        (place / "objects" / sha(data)[7:]).write_bytes(data)
        return sha(data)

    for data in blobs:
        blob(data)
    build = {"kernel": kernel, "toolchain": {"triton": "3.6.0"}, "arch": "gfx942", "warp_size": 64, "variants": [
        {"when": "n % 16 == 0", "signature": signature or {"c": "*fp32", "n": "i32"}, "constexprs": {},
         "objects": [{"config": {"BLOCK": 64, "num_warps": 1, "num_stages": 1, "kpack": 1}, "digest": blob(code),
                      "metadata": {"name": "matmul", "num_warps": 1, "shared": 0, "scratch": 2,
                                   "files": {"ttgir": blob(TTGIR.read_bytes())}, **metadata}}]}]}
    (place / "build.json").write_bytes(canonical(build))
    return place


@pytest.fixture(scope="module")
def code(tmp_path_factory):
    """Code with the parameters of the kernel of `matmul`: a pointer, an int, two scratch pointers."""
    clang = shutil.which("clang-19")
    if not clang:
        pytest.skip("clang-19 is not here")
    folder = tmp_path_factory.mktemp("code")
    (folder / "k.hip").write_text('extern "C" __attribute__((global, amdgpu_flat_work_group_size(64, 64))) void matmul('
                                  "float *c, int n, char *g, char *p) { c[n] = 1; }\n")
    subprocess.run([clang, "-x", "hip", "--cuda-device-only", "--offload-arch=gfx942", "-nogpulib", "-nogpuinc", "-O3",
                    "--no-gpu-bundle-output", "-fuse-cuid=none", folder / "k.hip", "-o", folder / "k.co"], check=True)
    return (folder / "k.co").read_bytes()


def test_a_whole_build_passes_and_is_summed_up(matmul, code, tmp_path):
    build = pack(tmp_path / "b", hash_of(matmul), code)
    answer, = answers(build)
    item, = answer["objects"]
    assert item["refused"] is None and item["waves_per_eu"] == 8.0 and item["resources"]["kernarg_bytes"] >= 32
    assert answer["build"] == sha((build / "build.json").read_bytes()) and answer["findings"] == []
    assert "1 objects (1 distinct) in 1 variants, 0 configs failed to compile, 1 texts" in check(build).stdout


def test_a_build_is_compared_with_its_kernel(matmul, code, tmp_path):
    build = pack(tmp_path / "b", hash_of(matmul), code)
    answer, = answers(build, "--kernel", matmul, code=1)
    assert answer["objects"][0]["refused"] is None, "the object has the arguments of the manifest"
    assert any("num_stages = 0" in s for s in sentences(answer, "refused")), "its space has configs that Triton 3.6.0 refuses"
    answer, = answers(build, "--kernel", matmul, "--key", "n=64", code=1)
    assert any(s.startswith("4 configs cannot run") and "BLOCK=48 num_warps=32" in s for s in sentences(answer, "refused"))
    wrong, = answers(pack(tmp_path / "w", hash_of(matmul), code, {"c": "*fp32", "n": "i64"}), "--kernel", matmul, code=1)
    assert 'argument "n" takes 4 bytes' in wrong["objects"][0]["refused"]
    other, = answers(pack(tmp_path / "o", "sha256:" + "0" * 64, code), "--kernel", matmul, code=1)
    assert "another kernel" in sentences(other, "refused")[0]
    assert "kernel.json" in check(build, "--kernel", tmp_path, code=2).stderr
    assert "--key m=1" in check(build, "--kernel", matmul, "--key", "m=1", code=2).stderr
    assert "--kind is" in check(build, "--kernel", matmul, "--kind", "x", code=2).stderr


def test_missing_damaged_and_impossible_objects_of_a_build_are_refused(matmul, code, tmp_path):
    build = pack(tmp_path / "b", hash_of(matmul), code, num_warps=2)
    assert "launched with 128 threads" in check(build, code=1).stdout
    build = pack(tmp_path / "l", hash_of(matmul), code, shared=70000)
    assert "needs 70000 bytes of LDS" in check(build, code=1).stdout
    assert "  shared         70000 to 70000\n" in check(build, code=1).stdout
    assert answers(build, code=1)[0]["objects"][0]["shared"] == 70000
    for file in (build / "objects").iterdir():
        file.write_bytes(b"x")
    assert len(sentences(answers(build, code=1)[0], "refused")) == 2, "the object and its text"
    shutil.rmtree(build / "objects")
    assert "No such file" in check(build, code=1).stdout
    (build / "build.json").write_text("{")
    answer, = answers(build, code=1)
    assert answer["what"] == "build" and "build.json" in sentences(answer, "refused")[0]


# The winner's code

@pytest.fixture
def done_job(server, matmul, code, tmp_path):
    """A job with a winner, whose space has the configs of its build."""
    def make(**metadata):
        (matmul / "space.json").write_text(json.dumps({"parameters": {"BLOCK": [64], "num_warps": [1], "num_stages": [1],
                                                                      "kpack": [1]}, "roles": {"num_warps": "option"}}))
        build = pack(tmp_path / "build", hash_of(matmul), code, **metadata)
        wavetune(server, "kernel", "push", matmul, "--build", build)
        answer = server.request("POST", "/v1/jobs", {
            "kernel": hash_of(matmul), "key": {"n": 64}, "space": json.loads((matmul / "space.json").read_text()),
            "environment": MI300X})
        assert answer.status == 201, answer
        finish(Hand(server, environment=MI300X))
        return answer.json["job"]
    return make


def test_show_prints_the_winners_ttgir_and_its_review(server, done_job):
    job = done_job()
    assert wavetune(server, "show", job, "--ttgir").stdout == TTGIR.read_text()
    answer = json.loads(wavetune(server, "show", job, "--ttgir", "--json").stdout)
    assert answer["text"] == TTGIR.read_text() and answer["review"]["num_warps"] == 4 and not answer["disassembled"]
    assert answer["digest"] == sha(TTGIR.read_bytes()) and answer["config_values"]["BLOCK"] == 64


def test_show_disassembles_the_winners_object_where_the_build_keeps_no_assembly(server, done_job):
    job = done_job()
    if not shutil.which("llvm-objdump-19"):
        pytest.skip("llvm-objdump-19 is not here")
    shown = wavetune(server, "show", job, "--asm").stdout
    assert "<matmul>:" in shown and "s_endpgm" in shown
    answer = json.loads(wavetune(server, "show", job, "--asm", "--json").stdout)
    assert answer["disassembled"] and answer["review"]["matmul"]["global_stores"] == {"4": 1}
    refused = wavetune(server, "show", job, "--asm", check=False, environment={"WAVETUNE_OBJDUMP": "/nonexistent"})
    assert refused.returncode == 1 and "no program" in refused.stderr


def test_show_prints_the_assembly_that_the_build_keeps(server, done_job):
    text = b"\t.text\n\x1b[2J s_endpgm"
    job = done_job(blobs=[text], files={"amdgcn": sha(text)})
    assert wavetune(server, "show", job, "--asm").stdout == "\t.text\n?[2J s_endpgm\n"
    assert json.loads(wavetune(server, "show", job, "--asm", "--json").stdout)["review"] is None
    none = wavetune(server, "show", job, "--ttgir", check=False)
    assert none.returncode == 1 and "keeps no TTGIR" in none.stderr


def test_a_text_that_is_no_utf8_is_no_json(server, done_job):
    job = done_job(blobs=[b"\xff"], files={"amdgcn": sha(b"\xff")})
    done = wavetune(server, "show", job, "--asm", "--json", check=False)
    assert done.returncode == 1 and "no UTF-8" in done.stderr and done.stdout == ""


def test_show_disassembles_the_object_that_an_agent_stored(server, matmul, code):
    manifest = json.loads((matmul / "kernel.json").read_text())
    manifest["versions"] = {"hip": {"language": "hip", "entry": "matmul", "sources": ["matmul.py"],
                                    "launch": {"grid": ["n"], "block": [64]}}}
    (matmul / "kernel.json").write_text(json.dumps(manifest))
    (matmul / "space.json").write_text(json.dumps({"parameters": {"BLOCK": [64, 128]}}))
    wavetune(server, "kernel", "push", matmul)
    job = server.request("POST", "/v1/jobs", {"kernel": hash_of(matmul), "key": {"n": 64}, "environment": MI300X,
                                              "space": {"parameters": {"BLOCK": [64, 128]}}}).json["job"]
    waiting = wavetune(server, "show", job, "--asm", check=False)
    assert waiting.returncode == 1 and "has no winner" in waiting.stderr
    assert server.request("PUT", f"/v1/blobs/{sha(code)}", code).status == 201
    finish(Hand(server, environment=MI300X), object=sha(code))
    refused = wavetune(server, "show", job, "--ttgir", check=False)
    assert refused.returncode == 1 and "only kernels in triton" in refused.stderr
    if shutil.which("llvm-objdump-19"):
        assert "<matmul>:" in wavetune(server, "show", job, "--asm").stdout


def test_show_reports_when_no_agent_stored_the_code(server, matmul):
    manifest = json.loads((matmul / "kernel.json").read_text())
    manifest["versions"] = {"hip": {"language": "hip", "entry": "matmul", "sources": ["matmul.py"],
                                    "launch": {"grid": ["n"], "block": [64]}}}
    (matmul / "kernel.json").write_text(json.dumps(manifest))
    wavetune(server, "kernel", "push", matmul)
    job = server.request("POST", "/v1/jobs", {"kernel": hash_of(matmul), "key": {"n": 64}, "environment": MI300X,
                                              "space": {"parameters": {"BLOCK": [64, 128]}}}).json["job"]
    finish(Hand(server, environment=MI300X))
    done = wavetune(server, "show", job, "--asm", check=False)
    assert done.returncode == 1 and "no agent stored" in done.stderr


def test_show_refuses_bytes_that_do_not_match_their_digest(tmp_path):
    job = {"job": "1", "kernel": "sha256:" + "0" * 64, "state": "done", "build": None,
           "winner": {"config": 3, "config_values": {}, "resources": [{"config": 3, "object": "sha256:" + "1" * 64}]}}

    def shown(answers, **changes):
        def answer(method, path):
            return (200, {**job, **changes}) if path == "/v1/jobs/1" else answers
        with FakeServer(answer) as fake:
            return wavetune(fake, "show", "1", "--asm", check=False)

    assert "sent other bytes" in shown((200, b"evil")).stderr
    assert shown((404, {"detail": "gone"})).returncode == 4
    assert shown((503, {"detail": "later"})).returncode == 3
    named = {**job["winner"], "resources": [{"config": 3, "object": "x"}]}
    assert "not a digest" in shown((200, b""), winner=named).stderr
    text = b"hello"
    named = {**job["winner"], "resources": [{"config": 3, "object": sha(text)}]}
    assert "no compiled GPU code" in shown((200, text), winner=named).stderr
    strange = shown((200, {"manifest": {}}), build="sha256:" + "2" * 64)
    assert strange.returncode == 4 and "understands" in strange.stderr


def test_show_reports_when_a_build_does_not_have_the_winners_config(matmul, code, tmp_path):
    kernel = hash_of(matmul)
    build = json.loads((pack(tmp_path / "b", kernel, code) / "build.json").read_text())
    manifest = json.loads(wavetune(None, "kernel", "hash", matmul, "--manifest", "--json").stdout)["manifest"]
    job = {"job": "1", "kernel": kernel, "state": "done", "build": sha(canonical(build)), "key": {"n": 64},
           "winner": {"config": 0, "config_values": {"BLOCK": 48, "num_warps": 1, "num_stages": 1, "kpack": 1}}}

    def shown(**changes):
        def answer(method, path):
            if path == "/v1/jobs/1":
                return 200, {**job, **changes}
            return (200, build) if "/builds/" in path else (200, {"manifest": manifest})
        with FakeServer(answer) as fake:
            return wavetune(fake, "show", "1", "--ttgir", check=False)

    assert shown().returncode == 1 and "no object for" in shown().stderr
    assert "no variant" in shown(key={"n": 7}).stderr
