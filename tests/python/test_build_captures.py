"""Kernels and builds are made of recorded launches: the code that the program's own JIT compiles, and a sentence for each launch of
which none can be made."""

import array
import json
import os
import shutil
import subprocess
import sys
import time
import types

import pytest
import triton
from conftest import ROOT, read
from conftest import run as wavetune
from contract_server import ENVIRONMENT
from starting import environment
from test_capture import program
from test_restore import FAILING

from wavetune._captured import storages
from wavetune._captured.access import is_rounded, written_arguments
from wavetune._captured.build import PRUNED, failures
from wavetune._captured.confined import Progress
from wavetune._captured.documents import launch_of
from wavetune._cli import built_line
from wavetune._errors import PackError

NAMES = ("mixed", "biased", "upside_down", "tables", "hooked", "odd_arguments")
ARCH = "sm_90"  # the driver of the programs has it, so that their own caches can be compared


def until(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """(captures, the program's Triton cache, what was built, the report)"""
    place = tmp_path_factory.mktemp("world")
    program(*NAMES, cache=place / "cache", to=place / "captures",
            WAVETUNE_ENVIRONMENT=json.dumps({**ENVIRONMENT, "arch": ARCH, "triton": triton.__version__}))
    out, _ = wavetune("build", place / "captures", "--output", place / "built", "--json")
    return place / "captures", place / "cache", place / "built", json.loads(out)


def kernels(world, function):
    return [place for place in sorted(world[2].iterdir()) if place.name.startswith(f"package.kernels.{function}.")]


def variant(place):
    own, = read(place / "build")["variants"]
    return own


def test_a_kernel_is_made_for_each_set_of_dtypes_and_nones(world):
    found = [read(place, "kernel.json") for place in kernels(world, "mixed_kernel")]
    passed = [[argument["name"] for argument in one["arguments"]] for one in found]
    assert sorted(map(len, passed)) == [6, 7] and all(one["cases"] == "build" for one in found)
    assert {name for names in passed for name in names} - {"bias_ptr"} == set(min(passed, key=len))
    assert all(one["key"] == ["n", "TYPE"] for one in found)


def test_the_code_is_what_the_programs_own_jit_compiles(world):
    """Triton's cache of the program has each winner under the folder that the build names for it."""
    own = {place.name for place in world[1].iterdir()}
    for place in sorted(world[2].iterdir()):
        if place.is_dir():
            folders = {one["metadata"]["cache"]["folder"] for one in variant(place)["objects"]}
            assert len(folders & own) == 1, place.name


def test_a_case_states_the_numbers_of_the_key(world):
    place, = [one for one in kernels(world, "mixed_kernel") if "bias_ptr" in (one / "kernel.json").read_text()]
    own = variant(place)
    assert own["key"] == {"n": 512, "TYPE": "float32"} and "when" not in own
    assert own["case"]["arguments"] == {
        "x_ptr": {"elements": 3 * 1024 + 512, "before": 8, "access": "read", "fill": "normal"},
        "y_ptr": {"elements": 512, "access": "readwrite", "fill": "zeros", "row": 1},  # reset_to_zero
        "bias_ptr": {"elements": 512, "access": "read", "fill": "normal"},
        "lengths_ptr": {"elements": 5, "access": "read", "fill": {"ramp": [0, 64]}},
        "n": {"value": 512}, "scale": {"value": 0.088}, "flag": {"value": True}}
    assert {tuple(one["grid"]) for one in own["objects"]} == {(8, 8, 1), (4, 4, 1), (2, 2, 1)}
    assert own["constexprs"]["MODE"] == "plain" and "BLOCK" not in own["constexprs"]


def test_a_config_that_a_program_lists_twice_is_built_once(world):
    documents = map(json.loads, (path.read_text() for path in (world[0] / "launches").iterdir()))
    document = next(one for one in documents if len(one["configs"]) > 1)
    stated = launch_of({**document, "configs": document["configs"] + document["configs"][:1]}, "launch").configs
    assert stated == launch_of(document, "launch").configs


def test_constants_of_every_kind_are_made_again(tmp_path):
    program("constants", cache=tmp_path / "cache", to=tmp_path / "captures",
            WAVETUNE_ENVIRONMENT=json.dumps({**ENVIRONMENT, "arch": ARCH, "triton": triton.__version__}))
    out, _ = wavetune("build", tmp_path / "captures", "--output", tmp_path / "built", "--json")
    assert json.loads(out)["refused"] == []
    place, = [one for one in (tmp_path / "built").iterdir() if one.is_dir()]
    own = variant(place)
    assert own["key"] == {"n": 33, "limit": "inf", "kind": "Kind.ONE", "out_dtype": "bfloat16", "sizes": "(4, 8)",
                          "act": "package.kernels:squared"}
    assert own["case"]["arguments"]["limit"] == {"value": "inf"} and own["constexprs"]["least"] == "-inf"
    folders = {one["metadata"]["cache"]["folder"] for one in own["objects"]}
    assert len(folders & {one.name for one in (tmp_path / "cache").iterdir()}) == 1, "the code of the program's own JIT"
    values = (place / "build/objects" / own["expected"][7:]).read_bytes().partition(b"\n")[2]
    assert array.array("f", values[16:28]).tolist() == [2 + 8 + 1, 2 + 8 + 1 + 1, 2 + 8 + 1 + 4], "half of twice the square"


def test_views_of_one_storage_share_a_buffer(tmp_path):
    program("parts", cache=tmp_path / "cache", to=tmp_path / "captures",
            WAVETUNE_ENVIRONMENT=json.dumps({**ENVIRONMENT, "arch": ARCH, "triton": triton.__version__}))
    wavetune("build", tmp_path / "captures", "--output", tmp_path / "built")
    place, = [one for one in (tmp_path / "built").iterdir() if one.is_dir()]
    own = variant(place)
    written = {"elements": 256, "access": "readwrite", "fill": "normal"}
    assert {name: one for name, one in own["case"]["arguments"].items() if name != "n"} == {
        "q_ptr": {**written, "after": 552}, "k_ptr": {**written, "before": 256, "alias": "q_ptr"},
        "o_ptr": {**written, "before": 520, "alias": "q_ptr"}}
    values = (place / "build/objects" / own["expected"][7:]).read_bytes()
    head, _, rest = values.partition(b"\n")
    assert json.loads(head)["buffers"] == [{"argument": "q_ptr", "dtype": "float32", "runs": 1, "values": 257}]
    assert array.array("q", rest[:16]).tolist() == [519, 257] and array.array("f", rest[16:20])[0] == 7


@pytest.mark.parametrize("shape, stride, row", [
    ([4, 8, 16], [128, 16, 1], 128), ([64], [1], 1), ([4, 8], [16, 1], 0), ([8, 4], [1, 8], 0), ([1, 8], [8, 1], 0), ([], [], 0)])
def test_outputs_that_may_be_partial_sums_state_their_rows(shape, stride, row):
    elements = 1 + sum((n - 1) * step for n, step in zip(shape, stride))
    one = {"name": "x", "dtype": "float32", "shape": shape, "stride": stride, "offset": 0, "elements": elements, "alignment": 256,
           "storage": 0, "storage_bytes": 4 * elements, "contents": None}
    assert storages.buffers_of([one], set(), {"x"}, True)["x"].get("row", 0) == row
    assert "row" not in storages.buffers_of([one], set(), {"x"})["x"] and "row" not in storages.buffers_of([one], set(), set(), True)["x"]


@pytest.mark.parametrize("change, why, window", [
    ({}, None, (8, 292)), ({"storage_bytes": 2**33}, None, (8, 2**24)), ({"offset": 2**28, "alignment": 256}, None, (2**24, 0)),
    ({"offset": 9, "alignment": 64}, None, (16, 291)), ({"stride": [-1]}, "a negative stride", None)])
def test_a_buffer_is_the_storage_or_what_is_near_the_view(change, why, window):
    one = {"name": "x", "kind": "tensor", "dtype": "float32", "stride": [1], "offset": 8, "elements": 100, "alignment": 32, "storage": 0,
           "storage_bytes": 1600, "contents": None, **change}
    launch = types.SimpleNamespace(arguments=[one])
    assert (storages.why_refused(launch) or "").endswith(why or "")
    if window:
        stated = storages.buffers_of([one], set(), {"x"})["x"]
        assert (stated.get("before", 0), stated.get("after", 0), stated["access"]) == (*window, "readwrite")


@pytest.mark.parametrize("offset, dtype, contents, is_refused", [
    (50, "float32", None, False), (50, "int32", None, True), (100, "int32", None, False),
    (50, "float32", {"class": "ramp", "start": 0, "step": 1}, True)])
def test_tensors_that_overlap_share_a_buffer_or_are_refused(offset, dtype, contents, is_refused):
    one = {"name": "x", "kind": "tensor", "dtype": "float32", "stride": [1], "offset": 0, "elements": 100, "alignment": 256, "storage": 0,
           "storage_bytes": 1600, "contents": None}
    other = {**one, "name": "y", "offset": offset, "dtype": dtype, "contents": contents}
    why = storages.why_refused(types.SimpleNamespace(arguments=[one, other]))
    assert (why is not None and "arguments x and y overlap in memory" in why) == is_refused


def test_integers_are_filled_by_what_they_were(world):
    cases = [variant(place)["case"]["arguments"] for place in kernels(world, "calling_kernel")]
    fills = {repr(case["other"]["fill"]) for case in cases if "other" in case}  # else it is a jit function
    assert fills == {"{'integers': [3, 9]}", "{'permutation': 4}", "{'constant': 1}", "'normal'"}


def test_what_cannot_be_built_is_refused_with_what_would_help(world):
    why = {(one["function"].partition(":")[2], one["why"]) for one in world[3]["refused"]}
    for function, part in (("hooked_kernel", "pre_hook"), ("calling_kernel", "callable"), ("calling_kernel", "host's memory")):
        assert any(name == function and part in sentence for name, sentence in why), (function, part, why)


def test_the_report_lists_what_was_built(world):
    assert {one["folder"] for one in world[3]["built"]} == {str(place) for place in world[2].iterdir() if place.is_dir()}
    assert json.loads((world[2] / "report.json").read_text())["built"] == world[3]["built"]


def test_equal_captures_give_equal_bytes(world, tmp_path):
    out, err = wavetune("build", world[0], "--output", tmp_path / "again", "--processes", 1)
    for place in sorted(world[2].iterdir()):
        if place.is_dir():
            for name in ("kernel.json", "space.json", "kernel.py", "build/build.json"):
                assert (tmp_path / "again" / place.name / name).read_bytes() == (place / name).read_bytes(), (place, name)
    # What it prints: each function as it begins, and a line for each kernel.
    begun = [line for line in err.splitlines() if line.startswith("wavetune build: package.kernels:mixed_kernel for sm_90, ")]
    assert "launches" in begun[0] and "(function 1 of " in err
    assert " objects\n" in out and "failed" not in out and "pruned" not in out


def test_what_the_program_prunes_is_no_failure():
    failed = [{"config": {}, "error": PRUNED}] * 16 + [{"config": {}, "error": "out of registers"}]
    found = failures({"variants": [{"failed": failed}, {}]})
    assert found == {"failed": 1, "pruned": 16}
    one = {"folder": "out/f", "keys": [{}, {}], "objects": 32}
    assert built_line({**one, **found}) == "out/f: 2 keys, 32 objects, 1 failed, 16 pruned by the program"
    assert built_line({**one, "failed": 0, "pruned": 0}) == "out/f: 2 keys, 32 objects"


def test_a_build_tells_how_far_it_is(tmp_path, capsys):
    path, told = tmp_path / "progress", []
    with Progress("package:f for sm_90, 2 launches", path, line_s=0.01):
        for text in ("many", "7 of", "3 20"):  # what a stranger's text wrote is no number
            (tmp_path / "part").write_text(text)
            os.replace(tmp_path / "part", path)
        until(lambda: told.append(capsys.readouterr().err) or "configs" in told[-1])
    lines = "".join(told).splitlines()
    assert lines[0] == "wavetune build: package:f for sm_90, 2 launches"
    assert lines[-1].startswith("wavetune build: package:f for sm_90, 2 launches: 3 of 20 configs compiled, ")


def test_a_garbled_document_is_refused_by_its_place(world, tmp_path):
    captures = tmp_path / "captures"
    shutil.copytree(world[0], captures)
    launch = sorted((captures / "launches").iterdir())[0]
    document = json.loads(launch.read_text())
    for change, part in (({"version": 2}, '"version"'), ({"key_values": [1, 2, 3, 4]}, '"key_values"'),
                         ({"arguments": [{"name": "1x", "kind": "int", "value": 1}]}, '"name"'),
                         ({"arguments": [{"name": "x", "kind": "what"}]}, '"kind"'),
                         ({"configs": [{"config": {}, "grid": [-1]}], "refused": []}, '"grid"')):
        launch.write_text(json.dumps({**document, **change}))
        _, err = wavetune("build", captures, "--output", tmp_path / "out", status=2)
        assert str(launch) in err and part in err, err


def test_a_folder_without_captures_and_a_text_that_was_changed(world, tmp_path):
    _, err = wavetune("build", tmp_path, "--output", tmp_path / "out", status=2)
    assert "WAVETUNE_CAPTURE_TO" in err
    captures = tmp_path / "captures"
    shutil.copytree(world[0], captures)
    for path in (captures / "functions").iterdir():
        document = json.loads(path.read_text())
        document["parts"][0]["text"] = document["parts"][0]["text"].replace("tl.store", "tl.load", 1)
        path.write_text(json.dumps(document))
    out, _ = wavetune("build", captures, "--output", tmp_path / "out", "--json", status=1)
    assert all("closure" in one["why"] or "hook" in one["why"] for one in json.loads(out)["refused"]
               if "calling" not in one["function"])


@pytest.fixture(scope="module")
def classed(tmp_path_factory):
    """A key that was launched with several specialisations: (captures, the program's Triton cache, what was built, the report)"""
    place = tmp_path_factory.mktemp("classed")
    program("classed", "misaligned", "even", cache=place / "cache", to=place / "captures",
            WAVETUNE_ENVIRONMENT=json.dumps({**ENVIRONMENT, "arch": ARCH, "triton": triton.__version__}))
    out, _ = wavetune("build", place / "captures", "--output", place / "built", "--json")
    return place / "captures", place / "cache", place / "built", json.loads(out)


def test_code_is_made_for_each_specialisation_of_a_key(classed):
    report = sorted(classed[3]["built"], key=lambda one: one["name"])
    assert classed[3]["refused"] == [] and [len(one["launches"]) for one in report] == [4, 2]
    own = variant(kernels(classed, "classed_kernel")[0])
    assert own["case"]["arguments"]["n"] == {"value": 128}, "the launch that was first is what jobs measure"
    assert [len(one["objects"]) for one in (own, *own["also"])] == [4] * 4 and report[0]["objects"] == 16
    assert [set(one) for one in own["also"]] == [{"signature", "objects"}] * 3
    assert [sorted(one["signature"]) for one in own["also"] if "n" not in one["signature"]] == [["kind", "x_ptr"]], \
        "1 is compiled in"
    won, = [one["config"] for one in own["objects"] if (classed[1] / one["metadata"]["cache"]["folder"]).exists()]
    folders = {one["metadata"]["cache"]["folder"] for code in (own, *own["also"]) for one in code["objects"]
               if one["config"] == won}
    assert len(folders) == 4 and all((classed[1] / folder).is_dir() for folder in folders)
    names = {path.name for path in (kernels(classed, "classed_kernel")[0] / "build/objects").iterdir()}
    assert {one["digest"][7:] for code in own["also"] for one in code["objects"]} <= names


def test_code_that_a_variant_has_is_not_made_twice(classed):
    """The heuristic gives both launches the same for blocks of 32."""
    own = variant(kernels(classed, "even_kernel")[0])
    also, = own["also"]
    assert [one["config"]["BLOCK"] for one in own["objects"]] == [32, 32, 64, 64]
    assert [one["config"]["BLOCK"] for one in also["objects"]] == [64, 64]


def test_a_further_specialisation_is_measured_where_the_first_cannot_be(classed, tmp_path):
    captures = tmp_path / "captures"
    shutil.copytree(classed[0], captures)
    for path in list((captures / "launches").iterdir()):
        document = json.loads(path.read_text())
        if not document["further"]:
            document["refused"] = ["it has a hook"]
        elif document["arguments"][1]["value"] == 100:
            document["configs"] = [{**one, "config": {**one["config"], "BLOCK": 512}} for one in document["configs"]]
            path = path.rename(captures / "launches" / "z.json")
        path.write_text(json.dumps(document))
    out, _ = wavetune("build", captures, "--output", tmp_path / "out", "--json")
    report = json.loads(out)
    own = variant(*(tmp_path / "out").glob("package.kernels.classed_kernel.*"))
    assert own["case"]["arguments"]["n"]["value"] in (1, 128) and len(own["also"]) == 1
    assert sorted(one["why"] for one in report["refused"]) == [
        "it has a hook", "it has a hook", "its code cannot be made: it has no config of the key's first launch"]


def test_two_images_with_one_key_are_one_variant(classed, tmp_path):
    captures = tmp_path / "captures"
    shutil.copytree(classed[0], captures)
    for path in list((captures / "launches").iterdir()):
        document = json.loads(path.read_text())
        if not document["further"]:
            (captures / "launches" / f"{path.stem[:-1]}.json").write_text(json.dumps({**document, "image": "another"}))
        else:
            path.unlink()
    out, _ = wavetune("build", captures, "--output", tmp_path / "out", "--json")
    report = json.loads(out)
    assert [len(built["launches"]) for built in report["built"]] == [2, 2] and report["refused"] == []
    assert not any("also" in variant(place) for place in (tmp_path / "out").iterdir() if place.is_dir())


TTIR = """module {
  tt.func public @k(%x: !tt.ptr<f32>, %y: !tt.ptr<f32>, %n: i32, %z: !tt.ptr<i32>) attributes {noinline = false} {
    %0 = tt.splat %x : !tt.ptr<f32> -> tensor<8x!tt.ptr<f32>>
    %1 = tt.splat %y : !tt.ptr<f32> -> tensor<8x!tt.ptr<f32>>
    %2:2 = scf.for %i = %c0 to %n step %c1 iter_args(%a = %0, %b = %1) -> (tensor<8x!tt.ptr<f32>>, tensor<8x!tt.ptr<f32>>)  : i32 {
      %v = tt.load %a : tensor<8x!tt.ptr<f32>>
      BODY
      scf.yield %a, %b : tensor<8x!tt.ptr<f32>>, tensor<8x!tt.ptr<f32>>
    }
    tt.return
  }
  tt.func private @callee(%p: !tt.ptr<i32>) attributes {noinline = true} {
    %0 = tt.atomic_rmw add, acq_rel, gpu, %p, %c1, %true : (!tt.ptr<i32>, i32, i1) -> i32
    tt.return
  }
}"""


@pytest.mark.parametrize("body, written", [
    ("tt.store %b, %v : tensor<8x!tt.ptr<f32>>", [False, True, False, False]),
    ("tt.call @callee(%z) : (!tt.ptr<i32>) -> ()", [False, False, False, True]),
    ("%w = tt.something %a : tensor<8x!tt.ptr<f32>> -> f32", [True, False, False, False]),  # not known: it may write
    ("%w = tt.addptr %a, %o : tensor<8x!tt.ptr<f32>>, tensor<8xi32>", [False] * 4),
    ("cf.br ^bb1", [True] * 4)])
def test_written_buffers_are_found_in_ttir(body, written):
    assert written_arguments(TTIR.replace("BODY", body)) == written


def test_dots_that_round_are_found_in_ttir():
    assert is_rounded("%c = tt.dot %a, %b, %c, inputPrecision = tf32 : tensor<16x16xf32>")
    assert is_rounded("inputPrecision = bf16x3") and not is_rounded("%c = tt.dot %a, %b, %c : tensor<16x16xf32>")


@pytest.mark.parametrize("unknown, fill", [("packed_ptr", {"integers": [-2**31, 2**31 - 1]}), ("index_ptr", None)])
def test_contents_that_were_not_recorded_are_made_up_unless_they_steer(tmp_path, unknown, fill):
    program("steered", cache=tmp_path / "cache", to=tmp_path / "captures",
            WAVETUNE_ENVIRONMENT=json.dumps({**ENVIRONMENT, "arch": ARCH}))
    path, = (tmp_path / "captures" / "launches").iterdir()
    document = json.loads(path.read_text())
    for argument in document["arguments"]:
        if argument["name"] == unknown:
            argument["contents"] = None
    path.write_text(json.dumps(document))
    out, _ = wavetune("build", tmp_path / "captures", "--output", tmp_path / "out", "--json",
                      status=0 if fill else 1)
    built, refused = json.loads(out)["built"], json.loads(out)["refused"]
    if fill is None:
        assert not built and "what is in index_ptr (int32) steers" in refused[0]["why"]
    else:
        place, = (one for one in (tmp_path / "out").iterdir() if one.is_dir())
        assert not refused and variant(place)["case"]["arguments"][unknown]["fill"] == fill


@pytest.mark.parametrize("contents, fill", [
    ({"class": "constant", "value": 2**60}, {"constant": 2**53}), ({"class": "integers", "low": -2**63, "high": 5}, {"integers": [-2**53, 5]}),
    ({"class": "constant", "value": True}, {"constant": True}),
    ({"class": "integers", "low": False, "high": True}, {"integers": [0, 1]})])
def test_integers_beyond_those_of_fills_are_the_last_of_these(contents, fill):
    """What an output holds before the launch may be anything."""
    found = storages.fill_of({"dtype": "int64", "contents": contents, "elements": 4})
    assert found == fill and repr(found) == repr(fill)
    assert storages.fill_of({"dtype": "bool", "contents": {"class": "integers", "low": 0, "high": 204}, "elements": 4}) == \
        {"integers": [0, 1]}


@pytest.mark.parametrize("text", ["%p = tt.int_to_ptr %i : i64 -> !tt.ptr<f32>", "%p = tt.load %q : !tt.ptr<!tt.ptr<f32>>"])
def test_pointers_of_unknown_origin_are_refused(text):
    with pytest.raises(PackError, match="not known before it runs"):
        written_arguments(TTIR.replace("BODY", text))


def test_the_writes_of_a_real_kernel_are_found(world):
    place = kernels(world, "upside_down")[0]
    assert variant(place)["case"]["arguments"]["x_ptr"]["access"] == "readwrite"


@pytest.mark.parametrize("most, sizes", [(1000, [512, 256]), (1, [])])
def test_a_launch_is_built_where_its_first_config_does_not_compile(tmp_path, most, sizes):
    (tmp_path / "mine.py").write_text(FAILING.replace("((8, 1000), (9, 4096), (9, 256), (10, 1))", f"((8, {most}),)"))
    own = environment(tmp_path / "cache", WAVETUNE_CAPTURE="source", WAVETUNE_CAPTURE_TO=str(tmp_path / "captures"),
                      WAVETUNE_ON_MISS="first", WAVETUNE_ENVIRONMENT=json.dumps({**ENVIRONMENT, "arch": ARCH}))
    own["PYTHONPATH"] += f":{ROOT / 'tests/python'}"
    done = subprocess.run([sys.executable, "-m", "wavetune", "run", tmp_path / "mine.py"], env=own, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    out, _ = wavetune("build", tmp_path / "captures", "--output", tmp_path / "out", "--json", status=0 if sizes else 1)
    report = json.loads(out)
    if not sizes:
        (one,) = report["refused"]
        assert one["why"].startswith("none of the program's configs compiles; the first: ")
        return
    (one,) = report["built"]
    assert (one["objects"], one["failed"], one["pruned"]) == (2, 2, 0)
    assert [found["config"]["BLOCK"] for found in read(tmp_path / "out" / one["folder"] / "build")["variants"][0]["objects"]] == sizes
