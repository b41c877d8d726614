"""Functions whose configs a program takes from a table: an entry says what is their key and which configs they have, for a function
of an installed package, which is not imported, as for a captured launch of it."""

import json
import subprocess
import sys

import pytest
import triton
from conftest import ROOT, edit, program, read, refusal, run
from contract_server import ENVIRONMENT
from starting import environment
from test_build_leases import build as leased
from test_build_leases import server  # noqa: F401
from test_real_server import harness  # noqa: F401
from wavetune._captured.check import check_packed

ARCH = "sm_90"
# Laid out like vLLM: Triton is imported by a module that looks for a GPU.
PACKAGE = {
    "__init__.py": "", "layers/__init__.py": "", "layers/ops/__init__.py": "raise ImportError('a package that needs a GPU')\n",
    "platforms/__init__.py": """
import os

def __getattr__(name):
    return int(os.environ["FAKE_GPUS"])
""",
    "triton_utils/importing.py": """
from vllm.platforms import current_platform

HAS_TRITON = current_platform == 1

class Placeholder:
    jit = staticmethod(lambda function: function)
""",
    "triton_utils/__init__.py": """
from typing import TYPE_CHECKING

from vllm.triton_utils.importing import HAS_TRITON, Placeholder

if TYPE_CHECKING or HAS_TRITON:
    import triton
    import triton.language as tl
else:
    triton = tl = Placeholder()
""",
    "layers/helpers.py": """
from vllm.triton_utils import tl, triton

WIDTH = tl.constexpr(3)

@triton.jit
def scaled(x):
    return x * WIDTH
""",
    "layers/table_add.py": """
import torch
from vllm import not_there
from vllm.layers.helpers import scaled
from vllm.platforms import current_platform
from vllm.triton_utils import tl, triton

if current_platform.is_xpu():
    import vllm.xpu

@triton.jit
def _table_add(x_ptr, y_ptr, n, group, stride, TYPE: tl.constexpr, EVEN: tl.constexpr, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    x = tl.load(x_ptr + offsets * stride, mask=None if EVEN else offsets < n)
    tl.store(y_ptr + offsets, scaled(x.to(TYPE)) + group, mask=None if EVEN else offsets < n)
""",
}
ENTRY = {
    "name": "table_add", "key": ["n"],
    "arguments": [{"name": "x_ptr", "dtype": "float32", "shape": ["n"], "access": "read"},
                  {"name": "y_ptr", "dtype": "float32", "shape": ["n"], "access": "write"},
                  *({"name": name, "dtype": "int64", "value": value} for name, value in (("n", "n"), ("group", 128), ("stride", 1)))],
    "reference": {"source": "reference.c", "outputs": {"y_ptr": "table_add_at"}},
    "launch": {"grid": ["ceil_div(n, BLOCK_SIZE)"]}, "defines": {"EVEN": "n % BLOCK_SIZE == 0"},
    "versions": {"vllm": {
        "language": "triton", "entry": "_table_add", "from": {"module": "vllm.layers.table_add"}, "arguments": {"x_ptr": {"dtype": "float16"}},
        "constexprs": {"TYPE": {"dtype": "float32"}}, "space": "add.space.json",
        "captured": {"key": {"n": "n"}, "when": "group == 128 and x_ptr_extent_0 == n"}}}}
SPACE = {"parameters": {"BLOCK_SIZE": [64, 128], "num_warps": [2, 4]}, "roles": {"num_warps": "option"},
         "conditions": ["BLOCK_SIZE == 64 or num_warps == 4"], "default": {"BLOCK_SIZE": 64, "num_warps": 2}}


def write(folder, files):
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    return folder


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A folder with site/ and tables/table_add/, and what pack made there: kernel/, build/."""
    place = tmp_path_factory.mktemp("entries")
    write(place / "site/vllm", PACKAGE)
    write(place / "tables/table_add", {"kernel.json": ENTRY, "add.space.json": SPACE,
                                       "reference.c": "double table_add_at(void);\n"})
    out, err = run("pack", place / "tables/table_add:vllm", "--package-root", place / "site", "--kernel", place / "kernel",
                   "--key", "n=1000", "--key", "n=4096", "--arch", ARCH, "-o", place / "build")
    assert err == "", err
    return place


def pack(world, *more, place="tables/table_add:vllm"):
    return "pack", world / place, "--key", "n=1000", "-o", world / "none", "--arch", ARCH, *more


def test_a_function_of_a_package_becomes_a_kernel_folder_with_a_build(world):
    version = read(world / "kernel", "kernel.json")["versions"]["vllm"]
    assert version["sources"] == ["kernel.py", "constexprs.json"] and not {"from", "captured", "constexprs"} & set(version)
    text = (world / "kernel/kernel.py").read_text()
    assert text.startswith("# vllm.layers.table_add:_table_add\n@triton.jit\ndef _table_add(x_ptr")
    assert "# vllm.layers.helpers:scaled\n@triton.jit\n" in text and text.endswith('# vllm.layers.helpers: WIDTH = {"constexpr":3}\n')
    build = read(world / "build")
    assert [len(one["objects"]) for one in build["variants"]] == [3, 3] and build["variants"][0]["signature"]["group"] == "i32"
    assert all(one["constexprs"]["stride"] == 1 for one in build["variants"])


def test_the_c_programs_read_the_folder_and_describe_the_entry(world):
    wavetune, agent = program("wavetune"), program("wavetune-agent")
    said = subprocess.run([wavetune, "kernel", "hash", world / "kernel"], capture_output=True, text=True)
    assert said.stdout.strip() == read(world / "build")["kernel"], said.stderr
    place = str(world / "tables/table_add")
    counted = subprocess.run([wavetune, "space", "count", f"{place}:vllm", "--key", "n=64"], capture_output=True, text=True)
    assert counted.stdout == "3 of 4 configs are valid\n", counted.stderr
    checked = subprocess.run([wavetune, "kernel", "check", place], capture_output=True, text=True)
    assert checked.returncode == 0 and "entry table_add/vllm for _table_add of vllm.layers.table_add" in checked.stdout, checked
    for command in ([wavetune, "kernel", "push", place], [agent, "tune", place, "--key", "n=64"]):
        refused = subprocess.run(command, capture_output=True, text=True)
        assert refused.returncode == 2 and f"its function is in vllm.layers.table_add: make its kernel folder with " \
            f"`python3 -m wavetune pack {place} --package-root SITE-PACKAGES" in refused.stderr, refused


@pytest.mark.parametrize("more, why", [
    ((), "--kernel is missing: .*table_add:vllm is an entry for _table_add of vllm.layers.table_add"),
    (("--kernel", "k"), "--package-root is missing: .* the folder of installed packages"),
    (("--kernel", "k", "--package-root", ROOT), "has no vllm.layers.table_add with a function _table_add"),
    (("--kernel", "k", "--signature", "x"), "--signature is for a file")])
def test_what_an_entry_needs_is_said(world, more, why):
    import re
    assert re.search(why, refusal(*pack(world, *more)))


def test_an_entry_is_no_kernel_folder_for_keys(world):
    assert "`python3 -m wavetune pack" in refusal("keys", world / "tables/table_add", "--key", "n=64")


def test_a_moved_module_is_found_and_another_space_is_taken(world, tmp_path):
    write(tmp_path, {f"site/vllm/{name}": text for name, text in PACKAGE.items() if name != "layers/table_add.py"})
    write(tmp_path, {"site/vllm/kernels/table_add.py": PACKAGE["layers/table_add.py"],
                     "space.json": {"configs": [{"BLOCK_SIZE": 32, "num_warps": 1}], "roles": SPACE["roles"]}})
    out, _ = run("pack", world / "tables/table_add:vllm", "--package-root", tmp_path / "site", "--kernel", tmp_path / "kernel",
                 "--key", "n=1000", "--arch", ARCH, "-o", tmp_path / "build", "--space", tmp_path / "space.json")
    assert out.startswith("1 objects when") and "# vllm.kernels.table_add:_table_add" in (tmp_path / "kernel/kernel.py").read_text()


def test_what_heuristics_give_must_be_stated(world, tmp_path):
    text = PACKAGE["layers/table_add.py"].replace("@triton.jit", '@triton.heuristics({"EVEN": lambda args: True})\n@triton.jit')
    write(tmp_path, {f"site/vllm/{name}": own for name, own in {**PACKAGE, "layers/table_add.py": text}.items()})
    entry = json.loads(json.dumps(ENTRY))
    del entry["defines"]
    write(tmp_path / "tables", {"kernel.json": entry, "add.space.json": SPACE, "reference.c": "double table_add_at(void);\n"})
    assert "gives EVEN by heuristics: state them as defines" in refusal(
        *pack(tmp_path, "--package-root", tmp_path / "site", "--kernel", tmp_path / "k", place="tables"))


# Captured launches.

def capture(folder, *launches, server=None):
    """A program that imports the package launches the function: (n, stride, BLOCK_SIZE, num_warps) each."""
    site = write(folder / "site/vllm", {**PACKAGE, "layers/ops/__init__.py": "", "platforms/__init__.py": """
class _Platform(int):
    def is_xpu(self):
        return False

current_platform = _Platform(1)
""", "__init__.py": "not_there = None\n"}).parent
    (folder / "program.py").write_text(f"""
import sys, types
sys.path[:0] = [{str(ROOT / "tests/python")!r}, {str(site)!r}]
import standin
standin.use(standin.Driver("sm_90"))
sys.modules.setdefault("torch", types.ModuleType("torch"))
import triton.language as tl
from vllm.layers.table_add import _table_add
for n, stride, block, warps in {list(launches)!r}:
    x, y = standin.Tensor("float16", n, stride=(stride,)), standin.Tensor("float32", n)
    _table_add.run(x, y, n, 128, stride, tl.float32, n % block == 0, BLOCK_SIZE=block, num_warps=warps, grid=(-(-n // block),),
                   warmup=True)
""")
    own = environment(folder / "cache", server, WAVETUNE_CAPTURE="source", WAVETUNE_CAPTURE_TO=str(folder / "captures"),
                      WAVETUNE_CAPTURE_FUNCTIONS="vllm.*", **({"WAVETUNE_TOKEN": server.container} if server else {}),
                      WAVETUNE_ENVIRONMENT=json.dumps({**ENVIRONMENT, "arch": ARCH, "triton": triton.__version__}))
    done = subprocess.run([sys.executable, "-m", "wavetune", "run", folder / "program.py"], env=own, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "captures"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    return capture(tmp_path_factory.mktemp("recorded"), (1000, 1, 64, 2))


def build(captures, to, *more, status=0):
    out, err = run("build", captures, "-o", to, "--json", *more, status=status)
    return json.loads(out), err


def test_captured_launches_make_the_same_kernel_as_the_package(world, tmp_path):
    captures = capture(tmp_path, (1000, 1, 64, 2), (4096, 1, 128, 4))
    report, _ = build(captures, tmp_path / "built", "--entries", world / "tables")
    one, = report["built"]
    packed = read(world / "build")
    assert report["refused"] == [] and one["kernel"] == packed["kernel"] and one["keys"] == [{"n": 4096}, {"n": 1000}]
    made = read(tmp_path / "built/table_add.vllm/build")
    assert [one["objects"] for one in made["variants"]] == [one["objects"] for one in packed["variants"]]
    own = {path.name for path in (tmp_path / "cache").iterdir()}
    folders = {one["metadata"]["cache"]["folder"] for variant in made["variants"] for one in variant["objects"]}
    assert len(folders & own) == 2, "the code of the program's own JIT"
    for name in ("kernel.json", "kernel.py", "constexprs.json", "add.space.json", "reference.c"):
        assert (tmp_path / "built/table_add.vllm" / name).read_text() == (world / "kernel" / name).read_text()
    assert sorted(place["key"]["n"] for place in one["of"].values()) == [1000, 4096]
    assert all(place["space"] == SPACE for place in one["of"].values())


def test_a_launch_without_an_entry_makes_no_kernel_of_one_config(recorded, tmp_path):
    report, err = build(recorded, tmp_path / "built", status=1)
    (refused,) = report["refused"]
    assert report["built"] == [] and "no autotuner and no entry say which configs it could have: BLOCK_SIZE, num_warps look" \
        in refused["why"] and "`wavetune captures space`" in refused["why"] and refused["why"] in err


def test_a_launch_that_an_entry_states_otherwise_says_what_differs(world, tmp_path):
    captures = capture(tmp_path, (1000, 2, 64, 2), (4096, 1, 64, 2))
    report, _ = build(captures, tmp_path / "built", "--entries", world / "tables/table_add")
    (refused,), (one,) = report["refused"], report["built"]
    assert one["keys"] == [{"n": 4096}]
    assert "table_add:vllm: stride is 2 in the launch, and 1 by the entry" in refused["why"]


def test_a_leased_launch_gets_a_job_of_the_entrys_key_and_space(world, harness, server, tmp_path):  # noqa: F811
    capture(tmp_path, (1000, 1, 64, 2), (4096, 2, 64, 2), server=server)
    assert leased(server, "--arch", ARCH, "--entries", world / "tables") | {"seconds": 0} == {
        "built": 1, "refused": 1, "stale": 0, "seconds": 0}
    author = harness.make_token(server.database, "author", "submitter")
    answer = server.request("POST", "/v1/captures/tune", {"name": "vllm.layers.table_add:_table_add"}, token=author)
    made, refused = sorted(answer.json["items"], key=lambda one: one["state"])
    assert (made["key"], made["state"], made["kernel"]) == ({"n": 1000}, "queued", read(world / "build")["kernel"])
    assert server.get(f"/v1/jobs/{made['job']}")["space"] == SPACE
    assert refused["state"] == "refused" and "stride is 2 in the launch, and 1 by the entry" in refused["why"]
    item, = [one for one in server.items("/v1/captures") if one["name"].endswith("_table_add")]
    harness.wavetune(server, "captures", "space", item["id"], "--to", tmp_path / "own")
    assert read(tmp_path / "own", "kernel.json")["versions"]["vllm"]["from"] == {"module": "vllm.layers.table_add"}


def test_shapes_of_a_tables_function_are_recorded_up_to_a_number(tmp_path):
    captures = capture(tmp_path, *[(16 * n, 1, 64, 2) for n in (*range(1, 41), 41, 60)])
    launches = map(json.loads, (path.read_text() for path in (captures / "launches").iterdir()))
    sizes = sorted(one["key_values"][one["key_names"].index("n")] for one in launches)
    assert sizes == [16 * n for n in (*range(1, 34), 36)], "32 values, then of 512 to 1023 one that is even and one that is not"


@pytest.mark.parametrize("space, why", [
    ({"parameters": {"BLOCK_SIZE": [48], "num_warps": [4]}}, "no config compiles for the key n=1000"),
    ({**SPACE, "conditions": ["BLOCK_SIZE > 1000"]}, "the conditions of the space exclude every config")])
def test_an_entry_of_which_no_config_compiles_is_a_reason(recorded, tmp_path, space, why):
    folder = write(tmp_path / "tables", {"kernel.json": ENTRY, "add.space.json": {"roles": SPACE["roles"], **space},
                                         "reference.c": "double table_add_at(void);\n"})
    report, _ = build(recorded, tmp_path / "built", "--entries", folder, status=1)
    assert report["built"] == [] and why in report["refused"][0]["why"], report


@pytest.mark.parametrize("change, why", [
    (lambda build: build.update(more=1), "another member"), (lambda build: build.update(arch="gfx90a"), "another arch"),
    (lambda build: build["variants"].pop(), "another variant"), (lambda build: build["variants"][0].pop("when"), "another when"),
    (lambda build: build["variants"][0]["signature"].update(x="*fp16"), "another signature"),
    (lambda build: build["variants"][0].update(constexprs={}), "another constexprs"),
    (lambda build: build["variants"][0].update(also=[]), "a captured variant"),
    (lambda build: build["variants"][0]["objects"][0].update(config={"BLOCK": 2}), "another config"),
    (lambda build: build["variants"][0]["objects"][0]["metadata"]["cache"].update(folder="other"), "another folder")])
def test_a_build_of_an_entry_that_is_not_the_planned_one_is_refused(change, why):
    head = {"kernel": "sha256:1", "toolchain": {}, "arch": "gfx942", "warp_size": 64, "record": {}}
    variant = {"when": "n != 1", "signature": {"x": "*fp32"}, "constexprs": {"stride": 1}}
    plan = {"head": head, "variants": [{**variant, "objects": [{"config": {"BLOCK": 1}, "folder": "ABC", "stem": "f"}]}]}
    files = {"f.json": "sha256:2", "f.hsaco": "sha256:3"}
    made = json.loads(json.dumps({**head, "variants": [{**variant, "objects": [
        {"config": {"BLOCK": 1}, "digest": "sha256:3", "metadata": {"cache": {"folder": "ABC", "files": files}}}]}]}))
    check_packed(made, plan)
    change(made)
    with pytest.raises(ValueError, match=why):
        check_packed(made, plan)


def test_an_entry_that_was_made_of_a_launch_is_built_with_its_own_config(recorded, tmp_path):
    space = [program("wavetune"), "captures", "space", "vllm.layers.table_add:_table_add", "--captures", recorded, "--to"]
    said = subprocess.run([*space, tmp_path / "own"], capture_output=True, text=True)
    assert said.returncode == 0 and "state the values of space.json" in said.stdout, said.stderr
    assert json.loads((tmp_path / "own/space.json").read_text()) == {
        "parameters": {"num_warps": [2], "BLOCK_SIZE": [64]}, "roles": {"num_warps": "option"},
        "default": {"num_warps": 2, "BLOCK_SIZE": 64}}
    made = read(tmp_path / "own", "kernel.json")
    assert (made["name"], made["key"], made["defines"]) == ("table_add", ["n", "group"], {"EVEN": "False"})
    assert made["versions"]["vllm"]["constexprs"] == {"TYPE": {"dtype": "float32"}}
    assert [one["shape"] for one in made["arguments"][:2]] == [["n"], ["n"]]
    again = subprocess.run([*space, tmp_path / "own"], capture_output=True, text=True)
    assert again.returncode == 2 and "kernel.json is there; name another folder with --to" in again.stderr
    edit(tmp_path / "own", "space.json", lambda space: space["parameters"].update(BLOCK_SIZE=[64, 128, 256]))
    report, _ = build(recorded, tmp_path / "built", "--entries", tmp_path / "own")
    assert [(one["objects"], one["keys"]) for one in report["built"]] == [(3, [{"n": 1000, "group": 128}])]
    for which, why in ((["other:f", "--captures", recorded, "--to", tmp_path / "x"], "no launch of other:f was recorded"),
                       (["other:f", "--captures", recorded], "name the entry's folder with --to")):
        said = subprocess.run([program("wavetune"), "captures", "space", *which], capture_output=True, text=True)
        assert said.returncode and why in said.stderr, said


@pytest.mark.parametrize("change, why", [
    (lambda version: version.pop("from"), '"sources" is missing'),
    (lambda version: version.update({"from": {}}), 'states its function as "entry"'),
    (lambda version: version.update(sources=["a.py"]), 'has both "from" and "sources"')])
def test_what_is_wrong_with_an_entry_is_refused(world, tmp_path, change, why):
    folder = write(tmp_path / "tables", {"kernel.json": ENTRY, "add.space.json": SPACE, "reference.c": ""})
    edit(folder, "kernel.json", lambda document: change(document["versions"]["vllm"]))
    assert why in refusal(*pack(tmp_path, *(("--kernel", "k", "--package-root", world / "site") if "missing" not in why else ()),
                                place="tables"))
