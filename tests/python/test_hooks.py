"""What hooks of configs and autotuners do is recorded, built and repeated; what no agent can repeat is refused by name."""

import array
import json
import types

import pytest
import standin
import triton
import triton.language as tl
from conftest import read
from conftest import run as wavetune
from contract_server import ENVIRONMENT, Contract, document
from test_capture import by_name, program
from test_capture import folder as captured

from wavetune._captured import fills, storages
from wavetune._captured.documents import Config, launch_of
from wavetune._errors import PackError
from wavetune._runtime import effects, keys, restore
from wavetune._runtime.launch import Launch, configs_of


@triton.jit
def added(c_ptr, bias_ptr, n, SPLIT: tl.constexpr):
    tl.atomic_add(c_ptr + tl.arange(0, 16), 1.0)


def init_to_zero(*names):
    """As mamba-ssm has it, and gemlite for one name."""
    return lambda nargs: [nargs[name].zero_() for name in names if nargs[name] is not None]


def of_hooks(*hooks, pre=None, post=None, **given):
    """(the configs as a launch states them, its Launch) of one whose configs have these hooks."""
    configs = [triton.Config({"SPLIT": 2 ** i}, pre_hook=hook) for i, hook in enumerate(hooks)]
    tuner = types.SimpleNamespace(fn=added, pre_hook=pre, post_hook=post, user_defined_pre_hook=pre is not None,
                                  user_defined_post_hook=post is not None)
    launch = Launch()
    given = {"c_ptr": standin.Tensor("float32", 4, 16), "bias_ptr": None, "n": 64, **given}
    found = configs_of(launch, tuner, added, given, {"grid": lambda meta: (meta["SPLIT"],)}, configs)
    return found, launch


def by_split(nargs):
    if nargs["SPLIT"] > 1:
        nargs["c_ptr"].fill_(-0.5)


@pytest.mark.parametrize("hook, expected", [
    (init_to_zero("c_ptr", "bias_ptr"), [{"c_ptr": 0}] * 2), (by_split, [{}, {"c_ptr": -0.5}]),
    (lambda nargs: nargs["c_ptr"].fill_(float("inf")), [{"c_ptr": {"float": "inf"}}] * 2),
    (lambda nargs: nargs["c_ptr"].fill_(1).data.detach().zero_(), [{"c_ptr": 0}] * 2),
    (lambda nargs: nargs["c_ptr"].zero_() if nargs["c_ptr"].numel() == nargs["n"] and nargs["c_ptr"].is_contiguous else 1 / 0,
     [{"c_ptr": 0}] * 2),
    (lambda nargs: [one.zero_() for one in nargs.values() if isinstance(one, standin.Tensor)], [{"c_ptr": 0}] * 2),
    (lambda nargs: nargs.update(c_ptr=None), [{}] * 2)])
def test_fills_of_each_config_are_recorded(hook, expected):
    c = standin.Tensor("float32", 4, 16)
    c.is_contiguous = c.numel = lambda: 64
    c.zero_ = c.fill_ = None  # those of the program's tensor are not called
    found, launch = of_hooks(hook, hook, c_ptr=c)
    assert launch.refused == [] and [one.get("fills", {}) for one in found] == expected
    assert [one["grid"] for one in found] == [[1, 1, 1], [2, 1, 1]]


def swallowing(nargs):
    try:
        nargs["c_ptr"].add_(1)
    except Exception:
        pass


def launching(nargs):
    added[(1,)](nargs["c_ptr"], None, 4, 1)


def through_another(nargs):
    launching(nargs)


OPERATORS = [lambda c: c + 1, lambda c: 2 * c, lambda c: c[0], lambda c: -c, lambda c: c == 1, lambda c: bool(c), lambda c: list(c),
             lambda c: c.__setitem__(0, 1), lambda c: float(c)]


@pytest.mark.parametrize("hook, what", [
    (swallowing, "calls c_ptr.add_"), (lambda nargs: nargs["c_ptr"].copy_(nargs["c_ptr"]), "calls c_ptr.copy_"),
    (lambda nargs: nargs["c_ptr"].clone(), "calls c_ptr.clone"), (lambda nargs: nargs["c_ptr"].data_ptr(), "calls c_ptr.data_ptr"),
    (lambda nargs: nargs["c_ptr"].storage, "reads c_ptr.storage"), (lambda nargs: setattr(nargs["c_ptr"], "x", 1), "sets c_ptr.x"),
    (lambda nargs: nargs["c_ptr"].fill_("a"), "calls c_ptr.fill_ with a str"),
    (lambda nargs: nargs["none"], "fails: KeyError: 'none'"), (lambda nargs: nargs["c_ptr"].foo, "fails: AttributeError"),
    (launching, "names added, which it may launch"), (through_another, "names added, which it may launch"),
    *[(lambda nargs, do=do: do(nargs["c_ptr"]), "computes with c_ptr (__") for do in OPERATORS]])
def test_what_agents_cannot_repeat_is_refused_by_name(hook, what):
    c = standin.Tensor("float32", 16)
    c.add_ = lambda *_: 1 / 0
    _, launch = of_hooks(hook, c_ptr=c)
    (why,) = launch.refused
    assert why.startswith(f"the pre_hook of added's configs {what}") and "which agents cannot repeat: they fill arguments" in why


def test_modules_that_a_hook_names_import_nothing(monkeypatch):
    """Those of some packages import what their members need, which may be missing here."""
    def missing(name):
        raise ImportError(f"{name} needs another package")

    module = types.ModuleType("lazy")
    module.__getattr__ = missing
    monkeypatch.setitem(globals(), "lazy", module)
    found, launch = of_hooks(lambda nargs: nargs["c_ptr"].zero_() if lazy else lazy.kernel)  # noqa: F821
    assert launch.refused == [] and [one["fills"] for one in found] == [{"c_ptr": 0}]


def test_equal_configs_must_have_hooks_that_do_the_same():
    configs = [triton.Config({"SPLIT": 1}, pre_hook=hook) for hook in (init_to_zero("c_ptr"), init_to_zero("c_ptr"), None)]
    for own, is_refused in ((configs[:2], False), (configs, True)):
        launch = Launch()
        configs_of(launch, types.SimpleNamespace(fn=added), added, {"c_ptr": standin.Tensor("float32", 16)}, {"grid": (1,)}, own)
        assert bool(launch.refused) == is_refused and (not is_refused or "their pre_hooks do not do the same" in launch.refused[0])


def test_hooks_are_alike_where_their_text_and_constants_are():
    one = init_to_zero("c_ptr")
    assert effects.are_alike(one, init_to_zero("c_ptr")) and effects.are_alike(None, None)
    for other in (init_to_zero("bias_ptr"), None, by_split, init_to_zero(object())):
        assert not effects.are_alike(one, other)
    assert not effects.are_alike(init_to_zero(object()), init_to_zero(object()))
    pruned = [triton.Config({"SPLIT": 2}, pre_hook=init_to_zero("c_ptr")) for _ in range(2)]
    assert keys.fitting(pruned, {"SPLIT": 2}) is pruned[0]
    pruned[1].pre_hook = by_split
    assert keys.fitting(pruned, {"SPLIT": 2}) is None


COPIES = {}


def keeping(nargs, reset_only=False):
    nargs["c_ptr"].fill_(2)
    if not reset_only:
        COPIES["c_ptr"] = nargs["c_ptr"].clone()


def undoing(nargs, exception):
    nargs["c_ptr"].copy_(COPIES.pop("c_ptr"))


def test_what_a_tuners_hooks_fill_is_initial_content():
    found, launch = of_hooks(None, init_to_zero("c_ptr"), pre=keeping, post=undoing)
    assert launch.refused == [] and launch.initial == {"c_ptr": 2} and COPIES == {}
    assert [one.get("fills") for one in found] == [None, {"c_ptr": 0}]


@pytest.mark.parametrize("pre, post, why", [
    (lambda nargs, reset_only: nargs["c_ptr"].add_(1), None, "the pre_hook of added's autotuner calls c_ptr.add_"),
    (lambda nargs, reset_only: nargs["c_ptr"].clone().zero_(), None, "the pre_hook of added's autotuner fills a copy of c_ptr"),
    (lambda nargs, reset_only: nargs["c_ptr"].fill_(nargs["SPLIT"]), None, "does not do the same for all configs"),
    (lambda nargs, reset_only: None, lambda nargs, exception: nargs["c_ptr"].zero_(), "fills c_ptr after each launch"),
    (lambda nargs, reset_only: None, lambda nargs, exception: nargs["c_ptr"].copy_(nargs["c_ptr"]),
     "the post_hook of added's autotuner calls c_ptr.copy_")])
def test_what_a_tuners_hooks_may_not_do(pre, post, why):
    c = standin.Tensor("float32", 16)
    c.add_ = lambda *_: 1 / 0
    _, launch = of_hooks(None, None, pre=pre, post=post, c_ptr=c)
    assert any(why in sentence for sentence in launch.refused), launch.refused


def test_tensors_of_torch_that_a_hook_reaches_do_not_change():
    torch = pytest.importorskip("torch")
    real, c = torch.ones(4), torch.ones(16)
    for hook, what in ((lambda nargs: real.zero_(), "calls torch's aten.zero_"), (lambda nargs: real.copy_(nargs["c_ptr"]), "calls "),
                       (lambda nargs: torch.zero_(nargs["c_ptr"]), "calls torch's zero_ with c_ptr"),
                       (lambda nargs: torch.zeros(4), "calls torch's aten.zeros"), (lambda nargs: real.sum().item(), "calls torch's"),
                       (lambda nargs: nargs["c_ptr"].add_(1), "calls c_ptr.add_")):
        _, launch = of_hooks(hook, c_ptr=c)
        assert f"the pre_hook of added's configs {what}" in launch.refused[0], launch.refused
    found, launch = of_hooks(lambda nargs: torch.nn.init.zeros_(nargs["c_ptr"]) if isinstance(nargs["c_ptr"], torch.Tensor) else None,
                             c_ptr=c)
    assert found[0]["fills"] == {"c_ptr": 0} and launch.refused == []
    assert real.tolist() == [1] * 4 and c.tolist() == [1] * 16


ARCHES = ("sm_90", "gfx942")


@pytest.fixture(scope="module", params=ARCHES)
def built(request, tmp_path_factory):
    """(the launches' documents by function, their variants, the report)"""
    place = tmp_path_factory.mktemp("hooked")
    program("hooked_split", "hooked_sum", cache=place / "cache", to=place / "captures",
            WAVETUNE_ENVIRONMENT=json.dumps({**ENVIRONMENT, "arch": request.param, "triton": triton.__version__}))
    out, _ = wavetune("build", place / "captures", "--output", place / "built", "--json")
    variants = {}
    for folder in (place / "built").iterdir():
        if folder.is_dir():
            (variants[folder.name.split(".")[2]],) = read(folder / "build")["variants"]
    return place, by_name(captured(place / "captures")), variants, json.loads(out)


def test_builds_state_the_fills_of_each_config(built):
    _, launches, variants, report = built
    assert report["refused"] == []
    (split,) = launches["split_kernel"]
    assert [one.get("fills") for one in split["configs"]] == [None, {"y_ptr": 0}, {"y_ptr": 0}]
    objects = variants["split_kernel"]["objects"]
    assert [one["config"]["SPLIT"] for one in objects] == [1, 2, 4]
    assert [one.get("fills") for one in objects] == [None, [["y_ptr", 256, 0]], [["y_ptr", 256, 0]]]
    assert variants["split_kernel"]["case"]["arguments"]["y_ptr"]["fill"] == "normal"
    own = variants["sum_kernel"]
    assert {json.dumps(one["fills"]) for one in own["objects"]} == {'[["y_ptr", 256, %d]]' % 0x3f000000}
    assert [own["case"]["arguments"][name]["fill"] for name in ("x_ptr", "y_ptr")] == [{"constant": 1}, "normal"]


def test_the_interpreter_begins_with_what_the_first_config_fills(built):
    own = built[2]["sum_kernel"]
    (folder,) = (built[0] / "built").glob("*sum_kernel*")
    head, _, rest = (folder / "build/objects" / own["expected"][7:]).read_bytes().partition(b"\n")
    assert json.loads(head)["buffers"] == [{"argument": "y_ptr", "dtype": "float32", "runs": 1, "values": 64}]
    assert array.array("f", rest[16:]).tolist() == [1.5] * 64


def captured_launch(*tensors, **fills):
    """A launch as documents.py reads it, whose config fills these arguments."""
    arguments = tuple({"name": name, "kind": "tensor", "dtype": dtype, "shape": shape, "stride": stride, "offset": offset, "storage": 0,
                       "elements": 1 + sum((n - 1) * step for n, step in zip(shape, stride))} for name, dtype, shape, stride, offset
                      in tensors)
    return types.SimpleNamespace(arguments=arguments, configs=[Config({}, (1, 1, 1), {}, fills)], document={})


@pytest.mark.parametrize("dtype, value, word", [
    ("float32", 0, 0), ("float32", -0.5, 0xbf000000), ("float16", 1, 0x3c003c00), ("bfloat16", 1.00390625, 0x3f803f80),
    ("bfloat16", {"float": "nan"}, 0x7fc07fc0), ("float16", 1e6, 0x7c007c00), ("float64", 0, 0), ("int8", -1, 0xffffffff),
    ("int16", 3, 0x00030003), ("int64", -1, 0xffffffff), ("int32", 7.9, 7), ("bool", 3, 0x01010101), ("float8_e4m3fn", 0.0, 0),
    ("float64", 1, "fills elements of float64 with 1, which no 32 bits repeat"), ("int64", 1, "which no 32 bits repeat"),
    ("float8_e5m2", 1, "fills elements of float8_e5m2 with 1"), ("int32", {"float": "inf"}, "fills elements of int32 with inf")])
def test_a_fill_is_a_word_that_is_repeated(dtype, value, word):
    launch = captured_launch(("x", dtype, [4, 4], [4, 1], 0), x=value)
    if isinstance(word, int):
        assert fills.fills_of(launch, launch.configs[0]) == [["x", 16 * storages.SIZES[dtype], word]]
        assert fills.why_refused(launch) is None
    else:
        assert word in fills.why_refused(launch)


@pytest.mark.parametrize("tensors, filled, why", [
    ([("x", "float32", [4, 4], [8, 1], 0)], {"x": 0}, "fills x, which is not contiguous"),
    ([("x", "float32", [3, 3], [2, 2], 0)], {"x": 0}, "fills x, which is not contiguous"),
    ([("x", "float32", [4, 4], [1, 4], 0)], {"x": 0}, None),
    ([("x", "float16", [3], [1], 0)], {"x": 0}, "fills x, which has 6 bytes, no multiple of 4"),
    ([("x", "float32", [4], [1], 0)], {"y": 0}, "fills y, which is no argument"),
    ([("x", "float32", [4], [1], 0), ("y", "float32", [4], [1], 2)], {"x": 0, "y": 1}, "fills x and y, which overlap"),
    ([("x", "float32", [4], [1], 0), ("y", "float32", [4], [1], 2)], {"x": 1, "y": 1}, None),
    ([("x", "float32", [4], [1], 0), ("y", "float32", [4], [1], 4)], {"x": 0, "y": 1}, None),
    ([(f"x{i}", "float32", [4], [1], 0) for i in range(17)], {f"x{i}": 0 for i in range(17)}, "fills 17 arguments")])
def test_fills_that_no_build_states_are_refused(tensors, filled, why):
    found = fills.why_refused(captured_launch(*tensors, **filled))
    assert found is None if why is None else why in found


def test_a_tuners_fill_is_a_number_of_a_case():
    launch = captured_launch(("x", "float32", [4], [1], 0))
    launch.document = {"initial": {"x": {"float": "inf"}}}
    assert fills.why_refused(launch) == "the pre_hook of its autotuner fills x with inf"


@pytest.mark.parametrize("change", [lambda one: one["configs"][1].update(fills={"y_ptr": "a"}),
                                    lambda one: one["configs"][1].update(fills=[1]), lambda one: one.update(initial={"y_ptr": {}})])
def test_fills_that_are_no_numbers_are_refused_by_their_place(built, change):
    document = json.loads(json.dumps(built[1]["split_kernel"][0]))
    change(document)
    with pytest.raises(PackError, match='has a value that is no number'):
        launch_of(document, "launches/x.json")


def test_restored_configs_are_the_programs_own_with_their_hooks(built, tmp_path):
    launches = built[1]
    chosen = [(one["closure"], name, one["key"], one["configs"][1]["config"]) for name in ("split_kernel", "sum_kernel")
              for one in launches[name]]
    with Contract() as server:
        server.document = document(chosen)
        report = program("hooked_split", "hooked_sum", cache=tmp_path, server=server)
    assert (report["counters"]["hits"], report["counters"]["unfit"], report["counters"]["failures"], report["benchmarked"]) == (2, 0, 0, 0)
    assert report["seen"] == {"split": {"SPLIT": 2, "BLOCK": 32}, "is_zeroed": True}


def test_a_config_that_does_not_run_is_not_taken_again_whatever_makes_its_hook():
    one, other = (triton.Config({"SPLIT": 2}, pre_hook=init_to_zero("c_ptr")) for _ in range(2))
    assert restore.is_among(one, [other])
    assert not restore.is_among(triton.Config({"SPLIT": 2}), [other])
