"""Descriptors of the host are recorded, compiled as the program's own JIT does, and builds state what a launch is passed."""

import copy
import json
import re
import types

import pytest
import standin
import triton
from conftest import TRITON, read
from conftest import run as wavetune
from contract_server import ENVIRONMENT, Contract, document
from test_capture import by_name, program
from test_capture import folder as captured

from wavetune._captured import fills
from wavetune._captured.check import check_build
from wavetune._captured.descriptors import elements_of, kind_of
from wavetune._captured.documents import launch_of, tensors_of
from wavetune._errors import PackError
from wavetune._runtime.launch import Launch, arguments_of, configs_of, name_of

if TRITON < (3, 4):
    pytest.skip("Triton 3.3 has no descriptors of the host", allow_module_level=True)
from triton.tools.tensor_descriptor import TensorDescriptor  # noqa: E402

WIDTHS = {"u32": 4, "u64": 8, "i32": 4, "i64": 8, "i1": 1}


@pytest.fixture(scope="module", params=["sm_90", "gfx942"])
def built(request, tmp_path_factory):
    """(folder, architecture, the launch's document, the variant)"""
    place = tmp_path_factory.mktemp("described")
    program("described", cache=place / "cache", to=place / "captures",
            WAVETUNE_ENVIRONMENT=json.dumps({**ENVIRONMENT, "arch": request.param, "triton": triton.__version__}))
    out, _ = wavetune("build", place / "captures", "--output", place / "built", "--arch", request.param, "--json")
    assert json.loads(out)["refused"] == []
    (folder,) = (one for one in (place / "built").iterdir() if one.is_dir())
    (launch,) = by_name(captured(place / "captures"))["matmul_kernel"]
    (variant,) = read(folder / "build")["variants"]
    return folder, request.param, launch, variant


def test_a_descriptor_is_recorded_with_the_block_shape_of_each_config(built):
    _, _, launch, _ = built
    a, b, c, scale = launch["arguments"][:4]
    assert (a["shape"], a["strides"], a["block_shape"], a["padding"]) == ([128, 64], [64, 1], [1, 1], "zero")
    assert (a["base"]["dtype"], a["base"]["elements"], b["shape"], c["shape"]) == ("float16", 8192, [64, 32], [128, 32])
    assert scale["kind"] == "tensor" and launch["refused"] == []
    assert launch["key"] == ["128", "32", "64", "'torch.float32'"], "Triton's key has no type of a descriptor"
    assert [one["block_shapes"]["a_desc"] for one in launch["configs"]] == [[64, 32], [64, 64], [128, 64]]
    assert [one["grid"][0] for one in launch["configs"]] == [2, 2, 1]


def parameters(folder, arch, stored):
    """(name, bytes) of what the compiled code is passed; the tensor map's 128 bytes are aligned."""
    texts = stored["metadata"]["files"]
    if arch == "sm_90":
        text = (folder / "build/objects" / texts["ptx"][7:]).read_text()
        found = re.findall(r"\.param (?:\.align 64 \.b8 \w+\[(\d+)\]|\.(u\d+)[^\n]*param_)", text)
        return [int(size) if size else WIDTHS[kind] for size, kind in found]
    head = re.search(r"tt\.func public [^\n]*", (folder / "build/objects" / texts["ttgir"][7:]).read_text())[0]
    return [8 if pointer else WIDTHS[kind] for pointer, kind in re.findall(r"%[\w.]+: (?:(!tt\.ptr)|(i\d+))", head)]


def size_of(element):
    if isinstance(element, str):
        return 8 if element.endswith(("ptr", "desc")) else 4
    ((kind, _),) = element.items()
    return 128 if kind == "tensormap" else WIDTHS[kind]


def test_an_object_states_what_the_compiled_code_is_passed(built):
    folder, arch, _, variant = built
    for one in variant["objects"]:
        sizes = [size_of(element) for element in one["arguments"]]
        passed = parameters(folder, arch, one)
        assert passed[:len(sizes)] == sizes and set(passed[len(sizes):]) <= {8}, "behind them are pointers to scratch memory"
    first = variant["objects"][0]["arguments"]
    shape = [{"i32": 128}, {"i32": 64}, {"i64": 64}, {"i64": 1}]
    if arch == "sm_90":
        assert first[:5] == [{"tensormap": {"base": "a_desc", "type": 6, "shape": [128, 64], "strides": [128], "box": [64, 32],
                                            "swizzle": 2, "fill": 0}}, *shape]
    else:
        flags = [{"i1": 0}] * (2 if TRITON >= (3, 9) else 1)
        assert first[:9 + len(flags)] == ["a_desc", {"i64": 128}, {"i64": 64}, {"i64": 64}, {"i64": 1}, *flags, *shape]
    assert first[-4:] == ["scale_ptr", "M", "N", "K"]
    assert variant["signature"]["a_desc"] == "tensordesc<fp16[64, 32]>" and len(variant["objects"]) == 3


def test_a_descriptors_tensor_is_a_buffer_of_its_name(built):
    folder, _, _, variant = built
    assert {one["name"]: one["dtype"] for one in read(folder, "kernel.json")["arguments"] if one["kind"] == "buffer"} == {
        "a_desc": "float16", "b_desc": "float16", "c_desc": "float16", "scale_ptr": "float32"}
    case = variant["case"]["arguments"]
    assert [case[f"{name}_desc"]["access"] for name in "abc"] == ["read", "read", "readwrite"]
    assert (case["c_desc"]["elements"], case["c_desc"]["row"]) == (4096, 32)


def test_the_code_is_what_the_programs_own_jit_compiles(built):
    folder, arch, _, variant = built
    if arch == "sm_90":  # the program's driver
        folders = {one["metadata"]["cache"]["folder"] for one in variant["objects"]}
        assert len(folders & {one.name for one in (folder.parents[1] / "cache").iterdir()}) == 1


def test_the_interpreter_makes_descriptors_of_the_host(built):
    folder, _, _, variant = built
    head = (folder / "build/objects" / variant["expected"][7:]).read_bytes().partition(b"\n")[0]
    assert json.loads(head)["buffers"][0]["argument"] == "c_desc"


def test_a_restored_config_sets_its_block_shape(built, tmp_path):
    launch = built[2]
    with Contract() as server:
        server.document = document([(launch["closure"], "matmul_kernel", launch["key"], launch["configs"][1]["config"])])
        report = program("described", cache=tmp_path, server=server)
    assert (report["counters"]["hits"], report["counters"]["failures"], report["benchmarked"]) == (1, 0, 0)
    assert report["seen"] == {"block_shape": [64, 64]}


def test_kernels_with_descriptors_are_compiled_ahead(built, tmp_path):
    launch = built[2]
    chosen = [(launch["closure"], "matmul_kernel", [m, *launch["key"][1:]], one["config"])
              for m, one in zip(("128", "256"), launch["configs"])]
    with Contract() as server:
        server.document = document(chosen)
        for name in ("first", "second"):
            program("described_twice", cache=tmp_path / name, server=server, WAVETUNE_IMAGE="sha256:" + "1" * 64,
                    WAVETUNE_LOG=str(tmp_path / f"{name}.log"))
            server.wait_for(lambda: server.lists)
        (text,) = server.lists.values()
    assert {kind for one in json.loads(text)["kernels"] for name, kind in json.loads(one)["signature"] if name == "a_desc"} == {
        "tensordesc<fp16[64, 32]>", "tensordesc<fp16[64, 64]>"}
    assert "kernels: 1 were compiled ahead, 1 of them used" in (tmp_path / "second.log").read_text()


def test_forged_arguments_are_refused(built):
    folder, arch, _, variant = built
    build = read(folder / "build")
    plan = {"head": {name: value for name, value in build.items() if name != "variants"}, "objects": []}
    for one in variant["objects"]:
        forms = [[{"tensormap": {name: value for name, value in element["tensormap"].items() if name not in ("type", "box", "swizzle")}}
                  if isinstance(element, dict) and "tensormap" in element else element for element in one["arguments"]]]
        cache = one["metadata"]["cache"]
        (stem,) = {name.rsplit(".", 1)[0] for name in cache["files"]}
        plan["objects"].append({"key": variant["key"], "config": one["config"], "is_first": True, "grid": one["grid"], "fills": [],
                                "folder": cache["folder"], "stem": stem, "signature": variant["signature"],
                                "constexprs": variant["constexprs"], "arguments": forms})
    check_build(build, plan)
    for change in (lambda own: own["arguments"].__setitem__(1, {"i32": 129}), lambda own: own["arguments"].pop(),
                   lambda own: own["arguments"].__setitem__(-1, "N"), lambda own: own.pop("arguments")):
        forged = copy.deepcopy(build)
        change(forged["variants"][0]["objects"][0])
        with pytest.raises(ValueError, match="not given: other arguments"):
            check_build(forged, plan)
    # Code of further specialisations is not launched.
    plan["objects"] += [{**one, "is_first": False} for one in plan["objects"]]
    own = build["variants"][0]
    own["also"] = [{"signature": own["signature"], "objects": [
        {name: value for name, value in one.items() if name not in ("grid", "arguments")} for one in own["objects"]]}]
    check_build(build, plan)
    own["also"][0]["objects"][0]["arguments"] = []
    with pytest.raises(ValueError, match="not given: other fills or arguments"):
        check_build(build, plan)


@triton.jit
def described(x_desc, n):
    pass


def descriptor(block=(8, 16), tensor=None, **more):
    tensor = tensor or standin.Tensor("float16", 64, 64)
    return TensorDescriptor(tensor, list(tensor.shape), list(tensor.stride()), list(block), **more)


def recorded(value, *hooks):
    launch = Launch()
    given = {"x_desc": value, "n": 64}
    configs = [triton.Config({}, num_warps=2 ** i, pre_hook=hook) for i, hook in enumerate(hooks or (None,))]
    keywords = {"grid": lambda meta: (triton.cdiv(meta["n"], meta["x_desc"].block_shape[0]),)}
    found = configs_of(launch, types.SimpleNamespace(fn=described), described, given, keywords, configs)
    return found, arguments_of(launch, described, given, set(), False), launch


def test_the_grid_sees_the_block_shape_that_the_hook_sets():
    own = descriptor()
    found, _, _ = recorded(own, lambda nargs: setattr(nargs["x_desc"], "block_shape", [32, 16]),
                           lambda nargs: nargs["x_desc"].block_shape.__setitem__(0, 4))
    assert [(one["block_shapes"], one["grid"][0]) for one in found] == [({"x_desc": [32, 16]}, 2), ({"x_desc": [4, 16]}, 16)]
    assert own.block_shape == [8, 16], "the program's own stays as it is"


def test_a_launch_has_the_same_name_whatever_an_earlier_one_left_in_a_descriptor():
    def hook(nargs):
        nargs["x_desc"].block_shape = [32, 16]

    names = set()
    for block in ((1, 1), (32, 16)):
        own = descriptor(block)
        names.add(name_of((), described, {"x_desc": own, "n": 64}, recorded(own, hook)[0]))
    without = {name_of((), described, {"x_desc": own, "n": 64}) for own in (descriptor((8, 16)), descriptor((16, 16)))}
    assert len(names) == 1 and len(without) == 2


@pytest.mark.parametrize("hook, what", [
    (lambda nargs: setattr(nargs["x_desc"], "shape", [1, 1]), "sets x_desc.shape"),
    (lambda nargs: setattr(nargs["x_desc"], "padding", "nan"), "sets x_desc.padding"),
    (lambda nargs: setattr(nargs["x_desc"], "base", None), "sets x_desc.base"),
    (lambda nargs: setattr(nargs["x_desc"], "block_shape", [nargs["n"] / 2, 16]), "sets x_desc.block_shape"),
    (lambda nargs: nargs["x_desc"].base.data_ptr(), "calls x_desc.data_ptr")])
def test_a_hook_sets_the_block_shape_of_a_descriptor_alone(hook, what):
    assert what in recorded(descriptor(), hook)[2].refused[0]


def test_a_hook_fills_the_tensor_of_a_descriptor():
    found, arguments, _ = recorded(descriptor(), lambda nargs: nargs["x_desc"].base.zero_())
    assert found[0]["fills"] == {"x_desc": 0}
    launch = types.SimpleNamespace(arguments=arguments)
    assert fills.fills_of(launch, types.SimpleNamespace(fills={"x_desc": 0})) == [["x_desc", 8192, 0]]


def test_a_descriptor_that_reaches_further_than_its_tensor_makes_a_buffer_so_large():
    storage = standin.Storage(2 * 64 * 64)
    own = descriptor(tensor=standin.Tensor("float16", 4, 64, storage=storage))
    own.shape = [64, 64]
    (tensor,) = tensors_of(types.SimpleNamespace(arguments=recorded(own)[1]))
    assert (tensor["name"], tensor["elements"], tensor["storage_bytes"]) == ("x_desc", 4096, 8192)


class Layout(TensorDescriptor):
    """As Gluon's, which has a layout of its own."""


Layout.__name__, Layout.__module__ = "TensorDescriptor", "triton.experimental.gluon.nvidia.hopper"


@pytest.mark.parametrize("value, why", [
    (lambda: Layout(standin.Tensor("float16", 64, 64), [64, 64], [64, 1], [8, 16]),
     "x_desc is a descriptor of the host (triton.experimental.gluon.nvidia.hopper.TensorDescriptor)"),
    (lambda: descriptor(tensor=standin.Tensor("float16", 64, 64, device="cpu")), "x_desc.base is a tensor in the host's memory")])
def test_descriptors_that_no_build_states_are_refused(value, why):
    assert recorded(value())[2].refused[0].startswith(why)


@pytest.mark.parametrize("change", [{"base": {"kind": "int", "value": 1}}, {"shape": []}, {"shape": [0, 1]}, {"strides": [1]},
                                    {"block_shape": [64, "a"]}, {"padding": "ones"}])
def test_a_garbled_descriptor_is_refused_by_its_place(built, change):
    document = copy.deepcopy(built[2])
    document["arguments"][0].update(change)
    with pytest.raises(PackError, match="/arguments/0"):
        launch_of(document, "x.json")
    document = copy.deepcopy(built[2])
    document["configs"][0]["block_shapes"] = {"a_desc": [0]}
    with pytest.raises(PackError, match='"block_shapes"'):
        launch_of(document, "x.json")


def test_a_launcher_that_is_not_known_is_a_reason(built, monkeypatch):
    monkeypatch.delattr("triton.backends.amd.driver.make_tensordesc_arg")
    with pytest.raises(PackError, match="how this Triton passes descriptors"):
        elements_of(built[2]["arguments"][0], None, "hip")


def test_signatures_differ_in_block_shapes_alone():
    assert kind_of({"x": "tensordesc<fp16[64, 32]>", "n": "i32"}) == kind_of({"x": "tensordesc<fp16[8, 32]>", "n": "i32"})
    assert kind_of({"x": "tensordesc<fp16[64, 32]>"}) != kind_of({"x": "tensordesc<bf16[64, 32]>"})
