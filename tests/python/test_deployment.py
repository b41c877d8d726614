"""What pack and identity record is what an unmodified Triton looks for: seen by its own listeners, with no GPU."""

import base64
import hashlib
import json
import os
import pathlib
import subprocess
import sys

import pytest
from conftest import CONFIG_END, KERNELS, ROOT, TRITON, read, run

from wavetune._pack.artifacts import image_of
from wavetune._errors import PackError
from wavetune._pack.options import is_compile_variable

SIGNATURE = ["--signature", "x_ptr=*fp16[n], y_ptr=*fp16[n]:write, stride=i64(1), flag=i1(1), factor=fp32(1), "
             "MODE=constexpr('DOUBLE-S')", "--grid", "lambda META: (triton.cdiv(n, META['BLOCK']), )"]
HERE = pathlib.Path(__file__).resolve().parent


@pytest.fixture(scope="session", params=["gfx942", "sm_90"])
def packed(request, tmp_path_factory):
    """(arch, build folder, identity of an image that imports the same file)."""
    folder = tmp_path_factory.mktemp("scaled")
    run("pack", KERNELS / "scaled.py", "--kernel", folder / "scale", "--output", folder / "build", "--key", "n=4096", "--key",
        "n=1000", "--arch", request.param, *SIGNATURE)
    run("identity", "--arch", request.param, "--gpu", "AMD Instinct MI300X", "--output", folder / "identity.json",
        "--function", f"{folder / 'scale'}=scaled:scale_kernel", PYTHONPATH=f"{ROOT / 'python'}:{KERNELS}")
    return request.param, folder / "build", read(folder, "identity.json")


def lay_out(build, root):
    """Triton's cache as a deployment downloads it: every object at the place that the build names."""
    for variant in read(build)["variants"]:
        for packed_object in variant["objects"]:
            cache = packed_object["metadata"]["cache"]
            folder = root / cache["folder"]
            folder.mkdir(parents=True)
            for name, digest in cache["files"].items():
                (folder / name).write_bytes((build / "objects" / digest[7:]).read_bytes())
            group = next(name for name in cache["files"] if name.endswith(".json"))
            (folder / f"__grp__{group}").write_text(json.dumps(
                {"child_paths": {name: str(folder / name) for name in cache["files"]}}))


def put_winner(identity, n, config, root):
    """Triton's autotune file with one config, at the place that follows from the identity."""
    (record,) = identity["functions"]
    key = (n, "torch.float16", "torch.float16")
    text = "-".join([identity["triton"]["key"], identity["triton"]["backend_hash"], record["function"]["cache_key"],
                     str(sorted(identity["variables"].items())), str(key), *record["configs"]])
    folder = root / base64.b32encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
    folder.mkdir(parents=True)
    (folder / f"{record['function']['name']}.autotune.json").write_text(json.dumps(
        {"key": key, "configs_timings": [[config, [0.5, 0.4, 0.6]]]}))


def deploy(arch, root, how, *sizes, **environment):
    own = {name: value for name, value in os.environ.items() if not is_compile_variable(name)}
    own["PYTHONWARNINGS"] = "ignore"
    own.update(PYTHONPATH=str(KERNELS), PYTHONDONTWRITEBYTECODE="1", TRITON_CACHE_DIR=str(root), **environment)
    done = subprocess.run([sys.executable, HERE / "deployment.py", arch, how, *map(str, sizes)], env=own,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_jit_finds_every_packed_object_in_its_cache_and_compiles_nothing(packed, tmp_path):
    arch, build, _ = packed
    lay_out(build, tmp_path)
    before = sorted(path for path in tmp_path.rglob("*"))
    seen = deploy(arch, tmp_path, "warmup", 4096, 1000, 2048)
    assert (seen["from_cache"], seen["compiled"]) == (4, 0)  # 2048 is specialised as 4096 is
    assert sorted(path for path in tmp_path.rglob("*")) == before


@pytest.mark.skipif(TRITON < (3, 4), reason="Triton before 3.4 keeps no results of autotuning")
@pytest.mark.parametrize("packed", ["sm_90"], indirect=True)  # tests/system/test_triton_deployment.py has gfx942
def test_an_exported_winner_runs_without_benchmarking_and_without_compiling(packed, tmp_path):
    arch, build, identity = packed
    lay_out(build, tmp_path)
    for n in (4096, 1000):
        put_winner(identity, n, {"kwargs": {"BLOCK": 512}, "num_warps": 16, "num_stages": 1}, tmp_path)
    assert deploy(arch, tmp_path, "run", 4096, 1000, TRITON_CACHE_AUTOTUNING="1") == {
        "benchmarked": 0, "from_cache": 2, "compiled": 0,
        "best": [f"BLOCK: 512, num_warps: 16, num_ctas: 1, num_stages: 1{CONFIG_END}"] * 2}


@pytest.mark.skipif(TRITON < (3, 4), reason="Triton before 3.4 keeps no results of autotuning")
@pytest.mark.parametrize("packed", ["gfx942"], indirect=True)
def test_a_key_or_an_environment_that_was_not_exported_is_tuned_as_without_a_cache(packed, tmp_path):
    arch, build, identity = packed
    lay_out(build, tmp_path)
    put_winner(identity, 4096, {"kwargs": {"BLOCK": 512}, "num_warps": 8, "num_stages": 1}, tmp_path)
    seen = deploy(arch, tmp_path, "run", 2048, TRITON_CACHE_AUTOTUNING="1")
    assert (seen["benchmarked"], seen["from_cache"], seen["compiled"]) == (2, 1, 0)
    seen = deploy(arch, tmp_path, "run", 4096, TRITON_CACHE_AUTOTUNING="1", TRITON_F32_DEFAULT="ieee")
    assert (seen["benchmarked"], seen["from_cache"], seen["compiled"]) == (2, 0, 1)


@pytest.mark.parametrize("packed", ["gfx942"], indirect=True)
def test_the_metadata_file_is_the_one_that_the_jit_writes(packed, tmp_path):
    arch, build, _ = packed
    lay_out(build, tmp_path / "ours")
    deploy(arch, tmp_path / "theirs", "run", 4096)
    (theirs,) = (tmp_path / "theirs").glob("*/scale_kernel.json")
    ours = tmp_path / "ours" / theirs.parent.name / theirs.name
    assert json.loads(ours.read_text()) == json.loads(theirs.read_text())


def test_the_identity_is_the_one_that_triton_reports(packed):
    arch, build, identity = packed
    (record,) = identity["functions"]
    own = read(build)["record"]
    assert record == {**own, "argument_dtypes": ["torch.float16"] * 2} and own["tuning_key"] == ["n"]
    assert identity["triton"].items() >= own["triton"].items() and identity["variables"] == {}
    assert (identity["version"], identity["gpu"], identity["moe_device_name"]) == (
        1, "AMD Instinct MI300X", "AMD_Instinct_MI300X")
    assert identity["torch"] is identity["devices"] is identity["tunableop"] is identity["dejavu"] is None


def pack_for(identity, tmp_path):
    """The metadata of the one object that is packed for an image."""
    tmp_path.mkdir(exist_ok=True)
    (tmp_path / "identity.json").write_text(json.dumps(identity))
    run("pack", KERNELS / "scaled.py", "--kernel", tmp_path / "scale", "--output", tmp_path / "build", "--key", "n=4096",
        "--image", tmp_path / "identity.json", *SIGNATURE)
    return read(tmp_path / "build")["variants"][0]["objects"][0]


@pytest.mark.parametrize("packed", ["gfx942"], indirect=True)
def test_the_location_of_triton_in_the_image_enters_the_folder_on_amd_before_3_9(packed, tmp_path):
    _, build, identity = packed
    own = read(build)["variants"][0]["objects"][0]
    image = {**identity, "triton": {**identity["triton"], "folder": "/opt/image/triton"}}
    moved = pack_for(image, tmp_path / "moved")
    assert moved["digest"] == own["digest"]
    assert (moved["metadata"]["cache"]["folder"] == own["metadata"]["cache"]["folder"]) == (TRITON >= (3, 9))
    moved = pack_for({**image, "variables": {"TRITON_DISABLE_LINE_INFO": "true"}}, tmp_path)
    cache = moved["metadata"]["cache"]
    assert moved["digest"] == own["digest"] and cache["folder"] != own["metadata"]["cache"]["folder"]
    kept = json.loads((tmp_path / "build/objects" / cache["files"]["scale_kernel.json"][7:]).read_text())
    assert kept["extern_libs"][0] == ["ocml", "/opt/image/triton/backends/amd/lib/ocml.bc"]
    assert kept["TRITON_DISABLE_LINE_INFO"] == "true"


@pytest.mark.parametrize("packed", ["gfx942"], indirect=True)
def test_an_image_with_other_variables_does_not_use_the_objects(packed, tmp_path):
    assert "cache" not in pack_for({**packed[2], "variables": {"AMDGCN_USE_BUFFER_OPS": "false"}}, tmp_path)["metadata"]


@pytest.mark.parametrize("triton, reason", [
    ({"key": "3.6.0+rocm", "version": "3.6.0+rocm"}, r"\(3.6.0\+rocm\)"),
    (None, "which Triton"), ({"version": "3.6.0"}, "which Triton")])
def test_an_image_with_another_triton_is_refused(triton, reason):
    with pytest.raises(PackError, match=reason):
        image_of({"version": 1, "triton": triton}, "identity.json")
