"""A program records its launches, another process makes the same functions from these documents, and no failure disturbs the
program."""

import json
import os
import re
import subprocess
import sys

import pytest
import triton
from conftest import ROOT
from contract_server import ENVIRONMENT, TOKEN, Contract, document
from starting import environment
from test_code import key, signed  # noqa: F401
from wavetune._canonical import canonical

CAPTURING = ROOT / "tests/python/capturing"
CONFIGS = [{"BLOCK": block, "num_warps": warps, "num_ctas": 1, "num_stages": 3} for block in (64, 128, 256) for warps in (2, 4)]
IS_OF_3_3 = triton.__version__.startswith("3.3.")


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Triton's cache, of what the programs of this file compile again and again."""
    return tmp_path_factory.mktemp("cache")


def start(*names, cache, to=None, server=None, how="run", **variables):
    variables = {"WAVETUNE_CAPTURE": "source", **variables}
    if to is not None:
        variables["WAVETUNE_CAPTURE_TO"] = str(to)
    own = environment(cache, server, **variables)
    own["PYTHONPATH"] += f":{CAPTURING}"
    argv = [sys.executable, *(["-m", "wavetune", "run"] if how == "run" else []), str(CAPTURING / "launches.py"), *names]
    return subprocess.Popen(argv, env=own, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def end(started):
    out, err = started.communicate(timeout=300)
    assert started.returncode == 0 and err == "", out + err
    return json.loads(out.splitlines()[-1])


def program(*names, **more):
    return end(start(*names, **more))


def folder(path):
    """What the folder has: by kind, the documents."""
    found = {kind: [json.loads(file.read_text()) for file in sorted((path / kind).iterdir())] if (path / kind).exists() else []
             for kind in ("functions", "launches")}
    for file in path.rglob("*"):
        if file.suffix == ".json":
            assert file.read_text() == canonical(json.loads(file.read_text()))
            assert file.parent.name != "functions" or file.stem == json.loads(file.read_text())["closure"][7:]
    return found


def by_name(found):
    names = {function["closure"]: function["name"].partition(":")[2] for function in found["functions"]}
    result = {}
    for launch in found["launches"]:
        result.setdefault(names[launch["closure"]], []).append(launch)
    return result


@pytest.fixture(scope="module")
def recorded(cache, tmp_path_factory):
    """A program's launches of several functions: the folder, and what the program printed."""
    place = tmp_path_factory.mktemp("recorded") / "captures"
    names = ("mixed", "biased", "upside_down", "pair", "hooked", "odd_arguments", "tables", "raising", "slow")
    report = program(*names, cache=cache, to=place, WAVETUNE_ENVIRONMENT=json.dumps(ENVIRONMENT),
                     WAVETUNE_IMAGE="sha256:" + "1" * 64)
    return place, report


@pytest.fixture(scope="module")
def launches(recorded):
    return by_name(folder(recorded[0]))


def test_every_miss_is_recorded(recorded, launches):
    assert {name: len(found) for name, found in launches.items()} == {
        "mixed_kernel": 2, "upside_down": 1, "pair_kernel": 1, "hooked_kernel": 1, "calling_kernel": 12}
    counters = recorded[1]["counters"]
    assert (counters["captures"], counters["captures_lost"], counters["failures"]) == (17, 0, 0)
    print(f"{counters['capture_ms'] / 17:.2f} ms a miss, with those that wait for 60 ms")


def test_a_function_has_its_text_and_what_it_reads(recorded):
    (found,) = [one for one in folder(recorded[0])["functions"] if one["name"] == "package.kernels:mixed_kernel"]
    step = "add_three" if IS_OF_3_3 else "make_adder.<locals>.add_step"
    assert {(entry["module"], entry["name"]): entry.get("is", entry.get("value")) for entry in found["globals"]} == {
        ("package.helpers", "SCALE"): {"constexpr": 0.5}, ("package.kernels", "UNIT"): {"constexpr": 1},
        ("package.kernels", "add_three"): f"package.helpers:{step}", ("package.kernels", "exp"): "triton.language.math.exp",
        ("package.kernels", "half"): "package.helpers:half", ("package.kernels", "helpers"): "package.helpers",
        ("package.kernels", "helpers.WIDTH"): {"constexpr": 4}, ("package.kernels", "helpers.twice"): "package.helpers:twice",
        ("package.kernels", "tl"): "triton.language", ("package.kernels", "LOG2E"): 1.5}
    parts = {part["qualname"]: part for part in found["parts"]}
    assert found["parts"][0]["qualname"] == "mixed_kernel" and set(parts) == {"mixed_kernel", "half", "twice", step}
    lines = (CAPTURING / "package/kernels.py").read_text().splitlines(keepends=True)
    own = parts["mixed_kernel"]
    assert own["text"] == "".join(lines[own["line"] - 1:own["line"] - 1 + own["text"].count("\n")])
    assert own["text"].startswith("@triton.autotune(\n") and own["text"].endswith("x, mask=offsets < n)\n")
    assert own["do_not_specialize"] == ["n"] and own["annotations"]["TYPE"] == "constexpr"
    assert own["defaults"] == {"MODE": "plain", "DEPTH": {"constexpr": 4}, "pair": None, "SHIFT": 3.0}
    assert parts["twice"]["noinline"] is True and "noinline" not in parts["half"]
    if not IS_OF_3_3:
        assert parts[step]["free"] == [{"name": "STEP", "value": {"constexpr": 3}}]
        assert parts[step]["text"].startswith("    @triton.jit\n    def add_step(x):\n        # nested")
    assert found["autotune"] == {
        "key": ["n", "TYPE"], "reset_to_zero": ["y_ptr"], "restore_value": ["x_ptr"], "prunes": True, "use_cuda_graph": False,
        "hooks": {"pre": False, "post": False, "config_pre": False}, "warmup": None, "rep": None}
    assert found["heuristics"] == ["HAS_BIAS", "BLOCKS", "IS_EVEN"] and found["triton"] == triton.__version__
    assert found["version"] == 1 and len(found["source"]) == 71 and len(found["cache_key"]) >= 64


def test_a_launch_has_its_arguments_and_every_config(launches):
    (found,) = [one for one in launches["mixed_kernel"] if one["key_values"][0] == 256]
    dtypes = ["'torch.float16'", "'torch.float32'", "'torch.int32'"]
    assert (found["key"], found["key_names"]) == (["256", "'float32'", *dtypes], ["n", "TYPE"])
    assert found["key_values"] == [256, "float32"] and found["environment"] == ENVIRONMENT
    assert (found["version"], found["image"], found["refused"]) == (1, "sha256:" + "1" * 64, [])
    assert (found["options"], found["variables"]) == ({}, {})
    tensor = {"kind": "tensor", "range": True, "contents": None}
    assert found["arguments"] == [
        {**tensor, "name": "x_ptr", "dtype": "float16", "shape": [4, 256], "stride": [512, 1], "offset": 8, "elements": 1792,
         "alignment": 16, "storage": 0, "storage_bytes": 2064},
        {**tensor, "name": "y_ptr", "dtype": "float32", "shape": [256], "stride": [1], "offset": 0, "elements": 256,
         "alignment": 256, "storage": 1, "storage_bytes": 1024},
        {"name": "bias_ptr", "kind": "none", "value": None},
        {**tensor, "name": "lengths_ptr", "dtype": "int32", "shape": [5], "stride": [1], "offset": 0, "elements": 5,
         "alignment": 256, "storage": 2, "storage_bytes": 20, "contents": {"class": "ramp", "start": 0, "step": 64}},
        {"name": "n", "kind": "int", "value": 256}, {"name": "scale", "kind": "float", "value": 0.088},
        {"name": "flag", "kind": "bool", "value": True}, {"name": "TYPE", "kind": "dtype", "value": "float32"},
        {"name": "MODE", "kind": "constexpr", "value": "plain"},
        {"name": "DEPTH", "kind": "constexpr", "value": {"constexpr": 4}},
        {"name": "pair", "kind": "none", "value": None}, {"name": "SHIFT", "kind": "constexpr", "value": 3.0}]
    assert found["all"] == 6 and found["configs"] == [
        {"config": config, "grid": [256 // config["BLOCK"]] * 2 + [1],
         "constexprs": {"HAS_BIAS": False, "BLOCKS": 256 // config["BLOCK"], "IS_EVEN": True}} for config in CONFIGS]


def test_what_differs_between_two_launches_is_told(launches):
    (found,) = [one for one in launches["mixed_kernel"] if one["key_values"][0] == 512]
    (bias,) = [argument for argument in found["arguments"] if argument["name"] == "bias_ptr"]
    assert (bias["dtype"], bias["shape"]) == ("float16", [512]) and len(found["key"]) == 6
    assert all(config["constexprs"]["HAS_BIAS"] for config in found["configs"])


def test_options_and_variables_of_the_compiler_are_recorded(cache, tmp_path):
    program("with_options", cache=cache, to=tmp_path, TRITON_DEFAULT_FP_FUSION="0")
    (found,) = folder(tmp_path)["launches"]
    assert found["options"] == {"debug": True} and found["variables"] == {"TRITON_DEFAULT_FP_FUSION": "false"}


def test_configs_that_pruning_leaves_out_are_not_recorded(cache, tmp_path):
    program("small", cache=cache, to=tmp_path)
    (found,) = folder(tmp_path)["launches"]
    assert found["all"] == 6 and [one["config"] for one in found["configs"]] == CONFIGS[:2]


def test_heuristics_above_an_autotuner_are_arguments(launches):
    (found,) = launches["upside_down"]
    assert found["arguments"][-1] == {"name": "HAS_BIAS", "kind": "constexpr", "value": False}
    assert all(config["constexprs"] == {} for config in found["configs"])


def test_tuples_are_recorded_item_by_item(launches):
    (found,) = launches["pair_kernel"]
    (pair, n) = found["arguments"]
    assert (pair["name"], pair["kind"], n["value"]) == ("pair", "tuple", 100)
    assert (pair["items"][0]["storage_bytes"], pair["items"][1]) == (1024, {"kind": "float", "value": 2.5})


@pytest.fixture(scope="module")
def others(launches):
    """What was passed as `other`, and what was refused, by the size of the launch."""
    return {one["key_values"][0]: (next(a for a in one["arguments"] if a["name"] == "other"), one["refused"])
            for one in launches["calling_kernel"]}


def test_a_jit_function_is_recorded_with_its_text(others):
    argument, refused = others[1001]
    assert refused == [] and argument["kind"] == "function" and argument["document"]["name"] == "package.helpers:half"


def test_arguments_that_cannot_be_made_again_are_refused_with_what_would_help(others):
    refused = [others[n] for n in (1000, 1002, 1006)]
    assert [(argument["kind"], sentences) for argument, sentences in refused] == [("refused", [sentence]) for sentence in (
        "other is a callable (function), which a capture has no text of",
        "other is a types.SimpleNamespace, which Triton has no type for",
        "other is a descriptor of the host (types.SimpleNamespace): use triton.tools.tensor_descriptor's, or make it in the "
        "kernel (tl.make_tensor_descriptor)")]
    inner, sentences = others[1003]
    assert sentences == ["other[0] is a tensor in the host's memory: move it to the device"]
    assert [item["kind"] for item in inner["items"]] == ["refused", "none"]


def test_arguments_that_share_memory_have_one_storage(others):
    assert (others[1004][0]["storage"], others[1004][0]["offset"], others[1004][0]["alignment"]) == (0, 16, 32)


def test_a_tensor_that_is_reinterpreted_has_the_type_that_the_kernel_sees(others):
    assert (others[1005][0]["dtype"], others[1005][1]) == ("float8_e4m3fn", [])


def test_integers_are_told_by_their_class(others):
    assert [others[n][0]["contents"] for n in (2000, 2001, 2002)] == [
        {"class": "integers", "low": 3, "high": 9}, {"class": "permutation"}, {"class": "constant", "value": 1}]


def test_hooks_and_grids_that_fail_are_refused(launches, others):
    assert launches["hooked_kernel"][0]["refused"] == [
        "the pre_hook of hooked_kernel's configs calls x_ptr.add_, which agents cannot repeat: they fill arguments (zero_, "
        "fill_) and set a descriptor's block_shape; do the rest in the kernel"]
    assert len(others[96][1]) == 1 and others[96][1][0].startswith("its grid cannot be evaluated for the config {'BLOCK': 64")
    assert "KeyError: 'nothing here'" in others[96][1][0]


def test_autotuners_that_ask_for_more_are_refused(cache, tmp_path):
    program("refused_tuners", cache=cache, to=tmp_path)
    refused = {one["key_values"][0]: " and ".join(one["refused"]) for one in folder(tmp_path)["launches"]}
    assert refused[100].startswith("the pre_hook of plain_kernel's autotuner calls x_ptr.add_, which agents cannot repeat: ")
    assert refused[101].startswith("" if IS_OF_3_3 else "its configs have an ir_override")
    assert refused[102] == "a Between is between the autotuner and the function; only heuristics are known"
    assert refused[103] == refused[104] == ("its configs have members that are no numbers, bools or strings: choose those by a "
                                            "name or number")
    assert "a heuristic fails for the config {'BLOCK': 64" in refused[105] and "ValueError: never" in refused[105]
    assert refused[106] == "the heuristic of D gives a builtins.object"
    assert "ValueError: it has 4 extents" in refused[107]
    assert refused[108] == "nothing gives a value to D"


def test_launches_of_one_key_that_triton_compiles_other_code_for_are_recorded(cache, tmp_path):
    report = program("classed", "misaligned", cache=cache, to=tmp_path)
    found = {}
    for one in folder(tmp_path)["launches"]:
        x, n, _ = one["arguments"]
        found[n["value"], x["alignment"] >= 16] = one
    assert {place: one["further"] for place, one in found.items()} == {
        (128, True): False, (1, True): True, (100, True): True, (128, False): True}
    assert len({tuple(one["key"]) for one in found.values()}) == 1
    assert len({one["specialisation"] for one in found.values()}) == 4
    assert len({canonical(one["configs"]) for one in found.values()}) == 1
    counters = report["counters"]
    assert (counters["captures"], counters["captures_lost"], counters["failures"]) == (4, 0, 0)
    print(f"{counters['capture_ms'] / 4:.2f} ms each")


def test_what_heuristics_give_makes_another_specialisation(cache, tmp_path):
    report = program("even", cache=cache, to=tmp_path)
    found = {one["arguments"][1]["value"]: [config["constexprs"]["IS_EVEN"] for config in one["configs"]]
             for one in folder(tmp_path)["launches"]}
    assert found == {128: [True] * 4, 96: [True] * 2 + [False] * 2}
    assert report["counters"]["captures_lost"] == report["counters"]["failures"] == 0


def test_so_many_specialisations_of_a_key_are_recorded(cache, tmp_path):
    counters = program("few_specialisations", cache=cache, to=tmp_path)["counters"]
    assert len(folder(tmp_path)["launches"]) == counters["captures"] == 2 and counters["captures_lost"] >= 1


def test_an_autotuner_that_is_not_known_costs_a_recording_and_nothing_else(cache, tmp_path):
    counters = program("unknown_frames", cache=cache, to=tmp_path)["counters"]
    assert (counters["captures"], counters["failures"]) == (1, 0) and counters["captures_lost"] >= 1


@pytest.mark.parametrize("is_signed", [True, False])
def test_code_that_a_signed_release_lacks_is_recorded(cache, key, tmp_path, is_signed):  # noqa: F811
    """Where no code is taken, each start compiles, and nothing is recorded for a key that has a choice."""
    program("classed", cache=cache, to=tmp_path / "first")
    function, = folder(tmp_path / "first")["functions"]
    with Contract() as server:
        choice = function["closure"], "classed_kernel", ["3", "'torch.float32'"], {"BLOCK": 64, "num_warps": 4}
        server.document = document([choice])
        server.entry = signed(server.document) if is_signed else {}
        trusted = {"WAVETUNE_TRUSTED_KEYS": str(key)} if is_signed else {}
        report = program("classed", cache=tmp_path / "cache", to=tmp_path / "second", server=server, **trusted)
    counters = report["counters"]
    assert (report["benchmarked"], counters["hits"], counters["failures"], counters["captures_lost"]) == (0, 1, 0, 0)
    found = folder(tmp_path / "second")["launches"]
    assert sorted(one["arguments"][1]["value"] for one in found) == ([1, 100, 128] if is_signed else [])
    assert all(one["further"] and len(one["configs"]) == 4 for one in found)


def test_what_fails_in_a_recording_does_not_end_the_program(cache, tmp_path):
    report = program("broken", cache=cache, to=tmp_path, WAVETUNE_LOG=str(tmp_path / "log"))
    assert report["benchmarked"] == 10 and set(by_name(folder(tmp_path))) == {"pair_kernel"}
    counters = report["counters"]
    assert (counters["captures"], counters["captures_lost"], counters["failures"]) == (1, 3, 3)
    assert "capturing a launch failed, and the program goes on without" in (tmp_path / "log").read_text()


def test_configs_are_not_evaluated_for_long(others):
    assert others[80][1] == ["not all configs: its hooks, heuristics and grid were evaluated for 2 of 4 configs in 100 ms: make "
                             "them cheaper, or list fewer configs"]


def test_many_configs_have_more_time(cache, tmp_path):
    program("numerous", cache=cache, to=tmp_path)
    launch, = folder(tmp_path)["launches"]
    assert launch["refused"] == [] and len(launch["configs"]) == 416


def again(captures, place):
    """What a process that has nothing of the program makes of the functions."""
    own = environment("/nonexistent")
    done = subprocess.run([sys.executable, CAPTURING / "again.py", captures, place], env=own, capture_output=True, text=True,
                          timeout=600)
    assert done.returncode == 0 and done.stderr == "", done.stdout + done.stderr
    return json.loads(done.stdout)


def test_another_process_makes_functions_with_the_same_keys(recorded, tmp_path):
    found = again(recorded[0], tmp_path)
    assert found["imported"] == [] and len(found["keys"]) == 5
    for name, pair in found["keys"].items():
        assert pair[0] == pair[1], (name, pair)


def test_a_document_that_was_changed_makes_no_function(recorded, tmp_path):
    (path,) = [path for path in (recorded[0] / "functions").iterdir() if "mixed_kernel" in path.read_text()]
    (tmp_path / "functions").mkdir()

    def part(**members):
        return lambda document: document["parts"][0].update(members)

    def means(other):
        return lambda document: document["globals"][-1].update({"is": other})

    text = json.loads(path.read_text())["parts"][0]["text"]
    changes = [
        ("has the closure", part(text=text.replace("UNIT", "2"))),
        ("has the closure", lambda document: document["globals"][0].update(value={"constexpr": 1.5})),
        ("has another key in Triton's cache", lambda document: document.update(cache_key="0" * 64)),
        ("has another key", lambda document: document["parts"][0].update(line=document["parts"][0]["line"] + 100)),
        ("has version 2", lambda document: document.update(version=2)),
        ("is no name of a module", part(module="../evil")),
        ("not one function", part(text="import os\n" + text)),
        ("starts in line 0", part(line=0)),
        ("cannot be made again", part(text="def kernel(")),
        ("cannot be made again", lambda document: document.pop("parts")),
        ("cannot be made again", lambda document: document["globals"][0].update(value={"pickle": "x"})),
        ("another line", lambda document: document["parts"].append(
            {**document["parts"][0], "qualname": "second", "text": text.replace("UNIT", "2")})),
        ("which Triton", part(kind="Evil")),
        *((f"this Triton has no {other}", means(other))
          for other in ("triton.nothing", "triton.runtime.jit.inspect", "triton.runtime.jit.__builtins__"))]
    for number, (_, change) in enumerate(changes):
        document = json.loads(path.read_text())
        change(document)
        (tmp_path / "functions" / f"{number}.json").write_text(json.dumps(document))
    found = again(tmp_path, tmp_path / "modules")["keys"]
    for number, (why, _) in enumerate(changes):
        assert why in found[f"{number}.json"], (why, found[f"{number}.json"])
    assert not list(tmp_path.rglob("evil*")) and not list(tmp_path.parent.glob("evil*"))


def test_functions_that_are_named_are_recorded_without_an_autotuner(cache, tmp_path):
    report = program("plain", "mixed", cache=cache, to=tmp_path,
                     WAVETUNE_CAPTURE_FUNCTIONS="no:thing, package.kernels:*_kernel")
    found = by_name(folder(tmp_path))
    assert {name: len(one) for name, one in found.items()} == {"plain_kernel": 4, "mixed_kernel": 1}
    assert sorted(one["arguments"][1]["value"] for one in found["plain_kernel"]) == [1, 96, 100, 101]
    assert report["counters"]["captures_lost"] == 0
    (one,) = [one for one in found["plain_kernel"] if one["key_values"][0] == 100]
    assert (one["key"], one["key_names"], one["all"]) == (["100", "7", "128"], ["n", "D", "BLOCK"], 1)
    assert one["configs"] == [{"config": {"num_warps": 2}, "grid": [1, 1, 1], "constexprs": {}}]
    assert [argument["name"] for argument in one["arguments"]] == ["x_ptr", "n", "D", "BLOCK"]
    (function,) = [one for one in folder(tmp_path)["functions"] if one["name"].endswith("plain_kernel")]
    assert function["autotune"] is None and function["heuristics"] == []


def test_launches_are_recorded_without_a_gpu_as_the_documentation_says(cache, tmp_path):
    documented, = re.findall("```python\n(.*?)```", (ROOT / "docs/capture.md").read_text(), re.DOTALL)
    kernel = """
import triton
import triton.language as tl

@triton.autotune(configs=[triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})], key=["n"])
@triton.jit
def kernel(y_ptr, x_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n)
"""
    (tmp_path / "mine.py").write_text(kernel)
    (tmp_path / "program.py").write_text(documented)
    own = environment(cache, WAVETUNE_CAPTURE="source", WAVETUNE_CAPTURE_TO=str(tmp_path / "captures"), WAVETUNE_ON_MISS="first",
                      WAVETUNE_ENVIRONMENT=json.dumps({**ENVIRONMENT, "arch": "gfx942"}),
                      **{name: value for name, value in os.environ.items() if name == "TRITON_HIP_LLD_PATH"})  # conftest.py
    own["PYTHONPATH"] += f":{ROOT / 'tests/python'}"
    done = subprocess.run([sys.executable, "-m", "wavetune", "run", tmp_path / "program.py"], env=own, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (launch,) = folder(tmp_path / "captures")["launches"]
    assert (launch["environment"]["arch"], launch["key"][0], launch["refused"]) == ("gfx942", "4096", [])
    assert [one["dtype"] for one in launch["arguments"] if one["kind"] == "tensor"] == ["bfloat16"] * 2


@pytest.mark.one_triton
def test_a_pattern_that_meets_no_function_is_named(cache, tmp_path):
    log = tmp_path / "log"
    program("plain", cache=cache, to=tmp_path / "captures", WAVETUNE_LOG=str(log),
            WAVETUNE_CAPTURE_FUNCTIONS="plain_kernel, package.kernels:plain_*")
    (line,) = [line for line in log.read_text().splitlines() if "WAVETUNE_CAPTURE_FUNCTIONS" in line]
    assert "plain_kernel matches no function; names are MODULE:FUNCTION" in line


@pytest.mark.one_triton
@pytest.mark.parametrize("mode", ["off", "shapes", "", "everything"])
def test_no_text_is_recorded_unless_it_is_asked_for(cache, tmp_path, mode):
    log = tmp_path / "log"
    report = program("mixed", cache=cache, to=tmp_path / "captures", WAVETUNE_CAPTURE=mode, WAVETUNE_LOG=str(log))
    counters = report["counters"]
    assert not (tmp_path / "captures").exists() and counters["captures"] == counters["captures_lost"] == 0
    assert f"because WAVETUNE_CAPTURE is {mode if mode == 'off' else 'shapes'}: source (or raw)" in log.read_text()


@pytest.mark.one_triton
def test_bytes_are_recorded_only_in_raw(cache, tmp_path):
    program("tables", "mixed", cache=cache, to=tmp_path, WAVETUNE_CAPTURE="raw")
    contents = {}
    for launch in folder(tmp_path)["launches"]:
        contents.update({launch["key_values"][0]: argument["contents"] for argument in launch["arguments"]
                         if argument.get("contents")})
    assert (contents[256]["class"], contents[2002]["class"]) == ("ramp", "constant")
    assert contents[2000]["class"] == contents[2001]["class"] == "blob"
    blob = tmp_path / "blobs" / contents[2000]["digest"].partition(":")[2]
    assert blob.read_bytes() == b"".join(n.to_bytes(8, "little") for n in (5, 3, 9, 3))
    assert len(list((tmp_path / "blobs").iterdir())) == 2


@pytest.mark.one_triton
def test_contents_that_cannot_be_copied_are_unknown(cache, tmp_path):
    report = program("tables", cache=cache, to=tmp_path, NO_COPIES="1")
    assert all(argument.get("contents") is None for launch in folder(tmp_path)["launches"] for argument in launch["arguments"])
    assert report["counters"]["captures"] == 3


def test_nothing_is_recorded_while_a_stream_is_captured(cache, tmp_path):
    report = program("captured_stream", cache=cache, to=tmp_path, WAVETUNE_CAPTURE_FUNCTIONS="*")
    (found,) = folder(tmp_path)["launches"]
    assert found["key_values"][0] == 128 and (report["counters"]["captures"], report["counters"]["captures_lost"]) == (1, 1)


@pytest.mark.one_triton
def test_processes_share_a_folder(cache, tmp_path):
    for started in [start("mixed", "biased", "tables", "fork", cache=cache, to=tmp_path) for _ in range(3)]:
        end(started)
    found = by_name(folder(tmp_path))
    assert {name: len(one) for name, one in found.items()} == {"mixed_kernel": 3, "calling_kernel": 3}
    assert not [path for path in tmp_path.rglob("*") if path.name.startswith(".")]


def test_a_forked_child_records_its_own_launches(cache, tmp_path):
    report = program("fork", cache=cache, to=tmp_path)
    assert sorted(one["key_values"][0] for one in folder(tmp_path)["launches"]) == [128, 256]
    assert report["counters"]["captures"] == 1


def test_what_was_launched_last_is_written_at_the_end(cache, tmp_path):
    report = program("late", cache=cache, to=tmp_path)
    assert (report["counters"]["captures"], report["counters"]["captures_lost"]) == (1, 0)


def test_a_child_of_multiprocessing_records_its_own_launches(cache, tmp_path):
    program("late_child", cache=cache, to=tmp_path)
    assert [one["key_values"][0] for one in folder(tmp_path)["launches"]] == [256]


@pytest.mark.one_triton
def test_a_folder_that_cannot_be_written_is_logged_and_the_program_goes_on(cache, tmp_path):
    (tmp_path / "file").write_text("")
    report = program("mixed", "biased", cache=cache, to=tmp_path / "file", WAVETUNE_LOG=str(tmp_path / "log"))
    assert report["benchmarked"] == 12 and (report["counters"]["captures"], report["counters"]["captures_lost"]) == (0, 2)
    assert (tmp_path / "log").read_text().count("the folder of captures cannot be written: ") == 1


@pytest.mark.one_triton
def test_a_full_disk_leaves_no_halves(cache, tmp_path):
    program("mixed", "biased", cache=cache, to=tmp_path / "before")  # compiled: Triton needs no disk
    report = program("full_disk", "mixed", cache=cache, to=tmp_path / "captures")
    assert (report["counters"]["captures"], report["counters"]["captures_lost"], report["benchmarked"]) == (0, 1, 6)
    assert [path for path in (tmp_path / "captures").rglob("*") if path.is_file()] == []


@pytest.mark.one_triton
def test_keys_of_a_function_are_limited_in_a_process_and_in_the_folder(cache, tmp_path):
    report = program("few_keys", cache=cache, to=tmp_path)
    assert (report["counters"]["captures"], report["counters"]["captures_lost"]) == (3, 4)
    first = {path.name for path in (tmp_path / "launches").iterdir()}
    report = program("other_keys", cache=cache, to=tmp_path)
    assert {path.name for path in (tmp_path / "launches").iterdir()} == first and report["counters"]["captures_lost"] == 7


@pytest.mark.one_triton
def test_texts_of_a_function_are_limited(cache, tmp_path):
    report = program("long_texts", cache=cache, to=tmp_path, WAVETUNE_LOG=str(tmp_path / "log"))
    assert folder(tmp_path) == {"functions": [], "launches": []} and report["counters"]["captures_lost"] == 7
    assert (tmp_path / "log").read_text().count("package.kernels:pair_kernel is not captured: it and the functions") == 1


@pytest.mark.one_triton
def test_what_is_left_at_the_end_is_counted(cache, tmp_path):
    report = program("stuck", "many", cache=cache, to=tmp_path)
    assert report["counters"]["captures"] == 0 and report["counters"]["captures_lost"] >= 6


@pytest.fixture
def server():
    with Contract() as made:
        yield made


def accept(server, status=202):
    """The server takes captures, or answers them with another status."""
    bodies = []

    def trouble(handler):
        if handler.path != "/v1/captures":
            return False
        bodies.append((handler.headers.get("Authorization"), json.loads(server.requests[-1][2])))
        handler.answer(status, b"{}")
        return True

    server.trouble = trouble
    return bodies


@pytest.mark.one_triton
def test_documents_are_posted_too(server, cache, tmp_path):
    bodies = accept(server)
    report = program("mixed", "biased", cache=cache, to=tmp_path, server=server)
    assert {authorization for authorization, _ in bodies} == {f"Bearer {TOKEN}"}
    posted = {kind: sorted((one for _, body in bodies for one in body[kind]), key=canonical)
              for kind in ("functions", "launches")}
    assert posted == {kind: sorted(found, key=canonical) for kind, found in folder(tmp_path).items()}
    assert all(set(body) == {"functions", "launches"} for _, body in bodies) and report["counters"]["captures"] == 2


@pytest.mark.one_triton
@pytest.mark.parametrize("status", [404, 403])
def test_a_server_without_captures_is_left_alone(server, cache, status):
    bodies = accept(server, status)
    report = program("mixed", cache=cache, server=server)
    assert len(bodies) == 1 and (report["counters"]["failures"], report["counters"]["dropped"]) == (0, 2)


@pytest.mark.one_triton
def test_documents_that_the_server_refuses_are_dropped_alone(server, cache):
    bodies = accept(server)
    taken = server.trouble

    def trouble(handler):
        if handler.path == "/v1/captures" and b'"key":["3"' in server.requests[-1][2]:
            handler.answer(422, b'{"error": "no"}')
            return True
        return taken(handler)

    server.trouble = trouble
    report = program("many", cache=cache, server=server)
    assert sorted(one["key_values"] for _, body in bodies for one in body["launches"]) == [[1], [2], [4], [5], [6], [7]]
    assert sum(len(body["functions"]) for _, body in bodies) == 1
    assert report["counters"]["dropped"] == 1


@pytest.mark.one_triton
def test_texts_do_not_travel_unencrypted(cache, tmp_path):
    report = program("mixed", cache=cache, server="http://192.0.2.1:9", patience=0, WAVETUNE_LOG=str(tmp_path / "log"))
    assert report["benchmarked"] == 6 and report["counters"]["captures"] == 0
    assert "neither WAVETUNE_CAPTURE_TO nor a server to which a token goes encrypted" in (tmp_path / "log").read_text()


def closure_of(captures):
    return folder(captures)["functions"][0]["closure"]


def test_what_was_restored_is_not_recorded_and_what_a_policy_chose_is(server, cache, tmp_path):
    program("small", cache=cache, to=tmp_path / "first")
    key = folder(tmp_path / "first")["launches"][0]["key"]
    server.document = document([(closure_of(tmp_path / "first"), "mixed_kernel", key, CONFIGS[1])])
    report = program("small", cache=cache, to=tmp_path / "second", server=server)
    assert (report["counters"]["hits"], report["benchmarked"]) == (1, 0) and not (tmp_path / "second").exists()

    report = program("small", "pair", cache=cache, to=tmp_path / "third", server=server, WAVETUNE_ON_MISS="first",
                     WAVETUNE_RELEASE="none")
    assert report["benchmarked"] == 0
    assert {name: len(one[0]["configs"]) for name, one in by_name(folder(tmp_path / "third")).items()} == {
        "mixed_kernel": 2, "pair_kernel": 4}


def test_the_launch_that_imports_the_cache_manager_is_recorded_too(tmp_path):
    """The first compile of a process imports it, after the first autotuner has seen its first key."""
    program("pair", "upside_down", cache=tmp_path / "cache", to=tmp_path / "captures", how="manager", COMPILE_ALL="1",
            TRITON_CACHE_MANAGER="wavetune.triton:CacheManager")
    found = by_name(folder(tmp_path / "captures"))
    assert {name: len(one[0]["configs"]) for name, one in found.items()} == {"pair_kernel": 4, "upside_down": 2}
