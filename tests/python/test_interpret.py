"""What Triton's interpreter computes for a captured launch is what the kernel's text says, in every type; and a sentence
where it cannot be had."""

import json
import math
import subprocess
import sys
import types
from pathlib import Path

import forks
import pytest
from conftest import ROOT, TRITON

np = pytest.importorskip("numpy", reason="NumPy is not installed: tests/python-env.sh installs it")
sys.path.insert(0, str(ROOT / "tests/python/capturing"))
import interpreted  # noqa: E402
from triton._C.libtriton import ir  # noqa: E402
from wavetune._captured import calling, interpret, sample, scaling, storages  # noqa: E402
from wavetune._captured.documents import Config  # noqa: E402
from wavetune._captured.floats import (  # noqa: E402
    FLOAT8, bfloat16_of, bfloat16_widened, float8_of, float8_widened)
from wavetune._captured.inputs import STORED, Contents  # noqa: E402
from wavetune._runtime.closure import closure  # noqa: E402
from wavetune._runtime.texts import function_document  # noqa: E402


@pytest.fixture(autouse=True)
def interpreter(monkeypatch):
    monkeypatch.setattr(interpret, "subprocess", types.SimpleNamespace(run=forks.run, TimeoutExpired=subprocess.TimeoutExpired))


class Trial:
    """A launch of one of the kernels. `buffers`: {name: (dtype, elements, fill, is written)}, in the kernel's order."""

    def __init__(self, name, buffers, grid, config, blob=None, **scalars):
        jit = getattr(interpreted, name)
        self.document = function_document(jit, closure(jit), None, [], None)
        self.buffers, self.blob, self.precisions = buffers, blob, ("ieee",)
        arguments = [{"name": name, "kind": "tensor", "dtype": own[0]} for name, own in buffers.items()]
        arguments += [{"name": name, "kind": type(value).__name__, "value": value} for name, value in scalars.items()]
        self.launch = types.SimpleNamespace(arguments=arguments, configs=[])
        self.add(config, grid)
        self.manifest = {"arguments": [{"name": one["name"], "dtype": one.get("dtype", "int64"),
                                        "kind": "buffer" if one["kind"] == "tensor" else "scalar"} for one in arguments]}
        self.case = {"arguments": {**{name: {"elements": n, "fill": fill, "access": "readwrite" if written else "read"}
                                      for name, (_, n, fill, written) in buffers.items()},
                                   **{name: {"value": value} for name, value in scalars.items()}}}

    def add(self, config, grid, **constexprs):
        self.launch.configs.append(Config(config, grid, constexprs))

    def run(self):
        return interpret.expected_of(self.document, self.launch, self.manifest, self.case, lambda digest: self.blob,
                                     self.precisions, list(self.launch.configs[0].config))

    def input(self, name, scale=1):
        """What the agent fills the buffer with, as numbers."""
        dtype, n, fill, _ = self.buffers[name]
        own = Contents(dtype, fill, list(self.buffers).index(name), n, sample.SEED, None, scale)
        return widened(dtype, own.at(np.arange(n)))

    def values(self, name, scale=1):
        """(indices, values) of a buffer that was written. `scale`: that must be found."""
        found = self.run()
        assert isinstance(found, interpret.Expected), found
        assert found.scale == scale
        head, _, rest = found.blob.partition(b"\n")
        for buffer in json.loads(head)["buffers"]:
            runs = np.frombuffer(rest, "<i8", 2 * buffer["runs"]).reshape(-1, 2)
            values = np.frombuffer(rest[runs.nbytes:], STORED[buffer["dtype"]], buffer["values"])
            rest = rest[runs.nbytes + values.nbytes:]
            if buffer["argument"] == name:
                return np.concatenate([np.arange(start, start + n) for start, n in runs]), widened(buffer["dtype"], values)
        raise AssertionError(head)


def numbers_of_each(by_element, *blocks):
    """[(config, indices, values)] of a kernel that draws 1000 random numbers."""
    grid = lambda block: [-(-1000 // (block if by_element else 4 * block)), 1, 1]  # noqa: E731
    trial = Trial("drawn", {"y_ptr": ("float32", 1000, "zeros", True)}, grid(blocks[0]),
                  {"BLOCK": blocks[0], "BY_ELEMENT": by_element}, n=1000)
    for block in blocks[1:]:
        trial.add({"BLOCK": block, "BY_ELEMENT": by_element}, grid(block))
    found = trial.run()
    assert isinstance(found, interpret.Expected), found
    head, _, rest = found.blob.partition(b"\n")
    head, numbers = json.loads(head), []
    assert head["version"] == (2 if "configs" in head else 1)
    for one in head.get("configs", [head]):
        (buffer,) = one["buffers"]
        runs = np.frombuffer(rest, "<i8", 2 * buffer["runs"]).reshape(-1, 2)
        values = np.frombuffer(rest[runs.nbytes:], "float32", buffer["values"])
        rest = rest[runs.nbytes + values.nbytes:]
        numbers.append((one.get("config"), np.concatenate([np.arange(start, start + n) for start, n in runs]), values))
    assert not rest
    return numbers


def test_each_config_has_values_where_it_draws_its_own_random_numbers():
    found = numbers_of_each(False, 64, 128, 32)
    assert [config for config, _, _ in found] == [{"BLOCK": block, "BY_ELEMENT": False} for block in (64, 128, 32)]
    assert all(index.size == 1000 and len(set(values.tolist())) > 990 for _, index, values in found)
    first, second, third = (values for _, _, values in found)
    assert (first[:64] == second[:64]).all() and (first[64:128] != second[64:128]).all()
    assert (first[:32] == third[:32]).all() and (first[32:64] != third[32:64]).all()


def test_what_is_drawn_for_each_element_is_the_same_with_every_config():
    ((config, index, _),) = numbers_of_each(True, 64, 128)
    assert config is None and index.size > 700


def widened(dtype, stored):
    if dtype == "bfloat16":
        return bfloat16_widened(stored)
    return float8_widened(dtype, stored) if dtype in FLOAT8 else stored


def rounded(dtype, values):
    if dtype == "bfloat16":
        return bfloat16_widened(bfloat16_of(values))
    return float8_widened(dtype, float8_of(dtype, values)) if dtype in FLOAT8 else values.astype(STORED[dtype])


def rows(mode, dtype="float32", n=100, **more):
    return Trial("rows", {"x_ptr": (dtype, 40 * n, "normal", False), "y_ptr": (dtype, 40 * n, "zeros", True)}, [40, 1, 1],
                 {"MODE": mode, "BLOCK": 128, "num_warps": 4}, n=n, scale=0.75, **more)


@pytest.mark.parametrize("mode, function", [
    ("softmax", lambda x: np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)), ("scaled", lambda x: x * 0.75),
    ("tanh", np.tanh), ("named", np.tanh), ("typed", lambda x: x - 2), ("loop", lambda x: x + 3)])
def test_a_sample_of_programs_is_executed(mode, function):
    trial = rows(mode)
    index, values = trial.values("y_ptr")
    wanted = function(trial.input("x_ptr").astype(np.float64).reshape(40, 100)).reshape(-1)
    assert {0, 39} <= set((index // 100).tolist()) and len(set((index // 100).tolist())) == sample.PROGRAMS_MAX
    assert np.allclose(values, wanted[index], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [name for name in STORED if "float" in name and name != "float8e4b15"])
def test_every_float_is_computed_as_the_program_rounds_it(dtype):
    trial = rows("scaled", dtype)
    index, values = trial.values("y_ptr")
    wide = rounded("float32", trial.input("x_ptr").astype(np.float32) * np.float32(2) * np.float32(0.75) * np.float32(0.5))
    assert (values == rounded(dtype, wide)[index]).all(), dtype


@pytest.mark.parametrize("dtype, tolerance", [("bfloat16", 2.0**-8), ("float16", 2.0**-10), ("float8_e5m2", 0.13)])
def test_products_of_narrow_floats_are_products(dtype, tolerance):
    """bfloat16 given to Triton's interpreter as it is gave values of 1e10."""
    m, n, k = 64, 96, 160
    trial = Trial("product", {"a_ptr": (dtype, m * k, "normal", False), "b_ptr": (dtype, k * n, "normal", False),
                              "c_ptr": (dtype, m * n, "normal", True)}, [2, 3, 1],
                  {"BLOCK": 32, "BLOCKS": dtype == "float16" and TRITON < (3, 9)}, M=m, N=n, K=k)
    index, values = trial.values("c_ptr")
    wanted = (trial.input("a_ptr").astype(np.float64).reshape(m, k) @ trial.input("b_ptr").astype(np.float64).reshape(k, n))
    assert index.size == m * n  # all six programs
    assert np.abs(values - wanted.reshape(-1)).max() <= tolerance * np.abs(wanted).max()


@pytest.mark.parametrize("stated, allowed, is_tf32", [
    ("tf32", ("ieee", "tf32"), True), (None, ("tf32", "ieee"), True), (None, ("ieee", "bf16x6"), False), ("ieee", ("tf32", "ieee"), False),
    ("tf32x3", ("tf32", "tf32x3"), False), ("bf16x6", ("ieee", "bf16x6"), False)])
def test_dots_have_the_precision_that_the_program_or_its_target_states(stated, allowed, is_tf32):
    if stated == "bf16x6" and not hasattr(ir.INPUT_PRECISION, "BF16x6"):
        pytest.skip("Triton 3.3 has no bf16x6")
    n = 32
    trial = Trial("product", {name: ("float32", n * n, "normal", name == "c_ptr") for name in ("a_ptr", "b_ptr", "c_ptr")},
                  [1, 1, 1], {"BLOCK": n, "BLOCKS": False, "PRECISION": stated}, M=n, N=n, K=n)
    trial.precisions = allowed
    _, values = trial.values("c_ptr")
    a, b = (trial.input(name).reshape(n, n) for name in ("a_ptr", "b_ptr"))
    if is_tf32:
        a, b = ((one.view(np.uint32) & np.uint32(0xffffe000)).view(np.float32) for one in (a, b))
    wanted = a.astype(np.float64) @ b.astype(np.float64)
    assert np.abs(values - wanted.reshape(-1)).max() < 1e-5


def test_what_heuristics_give_is_in_the_place_of_a_configs_value():
    """As Triton has it: those of torchao's int4 product give BLOCK_N, which its configs state, too."""
    trial = rows("scaled")
    trial.launch.configs.clear()
    trial.add({"MODE": "tanh", "BLOCK": 16}, [40, 1, 1], MODE="scaled", BLOCK=128)
    index, values = trial.values("y_ptr")
    assert np.allclose(values, trial.input("x_ptr")[index] * 0.75, rtol=1e-5, atol=1e-6) and index.size == 1200
    launch = types.SimpleNamespace(arguments=[], options={})
    task = calling.task_of(interpreted.rows, launch, trial.launch.configs[0], False)
    assert (task.call["MODE"], task.call["BLOCK"]) == ("scaled", 128)


def test_words_between_tensors_are_operators_of_elements():
    trial = Trial("logic", {"x_ptr": ("float32", 256, "normal", False), "y_ptr": ("float32", 256, "zeros", True)},
                  [1, 1, 1], {"BLOCK": 16, "FLAG": True}, n=9)
    index, values = trial.values("y_ptr")
    row, column = np.divmod(np.arange(256), 16)
    assert (index == np.flatnonzero((row != 0) & (column != 1))).all()
    assert (values == np.where((row < 9) & (column < 8), trial.input("x_ptr"), 5)[index]).all()


def test_arithmetic_in_bfloat16_rounds_after_each_operation():
    trial = Trial("narrow", {"x_ptr": ("bfloat16", 256, "normal", False), "y_ptr": ("bfloat16", 256, "zeros", True)},
                  [4, 1, 1], {"BLOCK": 64})
    index, values = trial.values("y_ptr")
    x = bfloat16_widened(bfloat16_of(trial.input("x_ptr")) + np.uint16(1))
    assert (values == rounded("bfloat16", rounded("bfloat16", x * x) + x)[index]).all()


@pytest.mark.parametrize("mode, part", [
    ("counter", "atomic operations"), ("greatest", "atomic operations"), ("exchange", "atomic operations"),
    ("compare", "atomic operations"), ("outside", "writes y_ptr["), ("added", "writes y_ptr["),
    ("reading", "reads what another one writes to y_ptr"),
    ("same", "write to the same elements"), ("assembly", "inline_asm"), ("input", "writes to x_ptr, which the compiled code"),
    ("long", "takes too long in the interpreter"), ("libdevice", "libdevice.j0"), ("nothing", "writes anything")])
def test_what_cannot_be_had_has_a_reason(mode, part):
    trial = Trial("wrong", {"x_ptr": ("float32", 512, "normal", False), "y_ptr": ("float32", 512, "normal", True),
                            "z_ptr": ("float32", 1, "normal", False)}, [8, 1, 1],
                  {"MODE": mode, "BLOCK": 64}, n=512)
    found = trial.run()
    assert isinstance(found, str) and part in found and "\n" not in found, found


def added(trial, folder):
    """(variant, notes, by its number why it is wrong) of the build with the trial's launch alone."""
    kernel = types.SimpleNamespace(function=types.SimpleNamespace(document=trial.document), manifest=trial.manifest,
                                   configs=[{}])
    variant = {"key": {"n": 512}, "case": trial.case}
    return variant, *interpret.add_values(kernel, [(trial.launch, variant)], folder, lambda digest: None, 1)


@pytest.mark.parametrize("fill, is_exact", [("zeros", True), ({"ramp": [0, 1]}, True), ({"integers": [0, 3]}, False)])
def test_reads_outside_of_a_buffer_get_inputs_there(tmp_path, fill, is_exact):
    """Unless contents that only their class was recorded of may be the reason."""
    trial = Trial("wrong", {"x_ptr": ("float32", 512, "normal", False), "y_ptr": ("float32", 512, "normal", True),
                            "z_ptr": ("int32", 4, fill, False)}, [8, 1, 1], {"MODE": "behind", "BLOCK": 64}, n=512)
    found = trial.run()
    if not is_exact:
        assert found == "a program reads x_ptr[575], which has 512 elements"
        return
    assert found.around == {"x_ptr": (0, 16384)}
    variant, (note,), _ = added(trial, tmp_path)
    assert note.startswith('{"n":512}: it reads outside of x_ptr'), note
    again = variant["case"]["arguments"]
    assert (again["x_ptr"]["after"], "after" in again["y_ptr"]) == (16384, False)
    trial.case = {"arguments": again}
    index, values = trial.values("y_ptr")
    x = Contents("float32", "normal", 0, 512 + 16384, sample.SEED, None, 1, 0, 16384)
    assert index.size == 512 and (values == x.at(index + 512)).all()


@pytest.mark.parametrize("mode, fill", [("outside", "zeros"), ("added", "zeros"), ("outside", {"integers": [0, 3]})])
def test_a_launch_that_writes_outside_of_a_tensor_is_refused(tmp_path, mode, fill):
    """FlagGems' layer norm backward writes as many sums as a row has elements to one of the last dimension."""
    trial = Trial("wrong", {"x_ptr": ("float32", 512, "normal", False), "y_ptr": ("float32", 512, "normal", True),
                            "z_ptr": ("int32", 4, fill, False)}, [8, 1, 1], {"MODE": mode, "BLOCK": 64}, n=512)
    variant, _, wrong = added(trial, tmp_path)
    if fill == "zeros":
        assert wrong == {0: "it writes y_ptr[575], and what it was passed has 512 elements: mend the kernel or its grid, or pass "
                            "a larger y_ptr"} and "not_interpreted" not in variant
    else:  # made-up integers may be the reason
        assert wrong == {} and variant["not_interpreted"] == "a program writes y_ptr[575], which has 512 elements"


@pytest.mark.one_triton
def test_what_is_read_before_a_buffer_keeps_its_alignment_and_moves_aliases():
    assert storages.padded((1, 0), 2) == (32768, 0) and storages.padded((0, 40000), 4) == (0, 81920)
    case = {"x": {"elements": 4, "before": 8}, "y": {"elements": 4, "alias": "x"}, "z": {"elements": 4}}
    assert storages.widen(case, {"x": (64, 0)}) == {"x": {"elements": 4, "before": 72}, "y": {"elements": 4, "alias": "x", "before": 64},
                                                    "z": {"elements": 4}}


@pytest.mark.one_triton
def test_contents_that_are_not_here_are_said(tmp_path):
    blob = {"blob": "sha256:" + "0" * 64}
    trial = Trial("rows", {"x_ptr": ("float32", 4, blob, False), "y_ptr": ("float32", 4, "zeros", True)}, [1, 1, 1],
                  {"MODE": "scaled", "BLOCK": 4}, n=4, scale=1.0)
    assert "not on this builder" in trial.run()
    trial.blob = str(tmp_path / "blob")
    Path(trial.blob).write_bytes(np.array([1, 2, 3, 4], np.float32).tobytes())
    assert trial.values("y_ptr")[1].tolist() == [1, 2, 3, 4]


@pytest.mark.one_triton
def test_a_process_that_ends_or_hangs_is_a_reason(monkeypatch):
    monkeypatch.setattr(interpret, "subprocess", subprocess)
    monkeypatch.setattr(interpret, "TIMEOUT_S", 0.01)
    assert "took more than 0.01 s" in rows("scaled").run()
    monkeypatch.setattr(interpret, "TIMEOUT_S", 60)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert "ended with the status 1" in rows("scaled").run()


@pytest.mark.one_triton
def test_a_builder_without_numpy_says_so(tmp_path, monkeypatch):
    (tmp_path / "numpy.py").write_text("raise ImportError\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert "has no NumPy" in rows("scaled").run()


def delta(dtype, factor, steps=24):
    n = 3 * steps * 16
    return Trial("delta", {"k_ptr": (dtype, n, "normal", False), "v_ptr": (dtype, n, "normal", False),
                           "y_ptr": (dtype, n, "normal", True)}, [3, 1, 1], {"SIZE": 16}, T=steps, factor=factor)


@pytest.mark.one_triton
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("factor, scale", [(1 / 16, 1), (1.0, 1 / 16), (16.0, 1 / 256)])
def test_a_recurrence_that_diverges_gets_smaller_inputs(dtype, factor, scale):
    trial = delta(dtype, factor)
    index, values = trial.values("y_ptr", scale)
    wanted = np.zeros((3, 24, 16))
    k, v = (trial.input(name, scale).astype(np.float64).reshape(3, 24, 16) for name in ("k_ptr", "v_ptr"))
    for program in range(3):
        h = np.zeros((16, 16))
        for step in range(24):
            own = k[program, step] * factor
            wanted[program, step] = v[program, step] - own @ h
            h += np.outer(own, wanted[program, step])
    assert index.size == wanted.size and np.abs(values - wanted.reshape(-1)).max() < 0.01 * np.abs(wanted).max()


@pytest.mark.one_triton
def test_a_kernel_that_diverges_with_every_input_has_no_values():
    found = delta("float32", 1e6).run()
    assert found == "its values overflow or grow with inputs of 1, of 1/16 and of 1/256"


@pytest.mark.one_triton
@pytest.mark.parametrize("mode, scale", [("log", 1), ("less", 1), ("masked", 1), ("powers", 1), ("exp", 1 / 16),
                                         ("both", 1 / 16)])
def test_only_what_the_size_of_inputs_makes_large_is_scaled(mode, scale):
    trial = Trial("sized", {"x_ptr": ("float32", 4096, "normal", False), "y_ptr": ("float32", 4096, "zeros", True)},
                  [4, 1, 1], {"MODE": mode, "BLOCK": 1024})
    index, values = trial.values("y_ptr", scale)
    is_finite = np.isfinite(values)
    assert index.size == 4096 and (np.abs(values[is_finite]).max() > 1e9) == (mode in ("masked", "powers"))
    assert is_finite.all() == (mode in ("masked", "powers", "exp")) and is_finite.sum() > 1000
    assert len(json.loads(trial.run().blob.partition(b"\n")[0])["programs"]) == 4


def split(largest, dtype, splits, is_atomic=True):
    """C = A B with integers up to `largest`: 32 x 64 sums of 1024 products."""
    integers = {"integers": [-largest, largest]}
    return Trial("split", {"a_ptr": ("int8", 32 * 1024, integers, False), "b_ptr": ("int8", 1024 * 64, integers, False),
                           "s_ptr": ("float32", 64, "normal", False), "c_ptr": (dtype, 32 * 64, "zeros", True)},
                 [1, 2, splits], {"ATOMIC": is_atomic, "SPLITS": splits, "BLOCK": 32}, M=32, N=64, K=1024)


def adding(mode):
    return Trial("adding", {"x_ptr": ("float32", 256, "normal", False), "y_ptr": ("float16", 256, "zeros", True),
                            "z_ptr": ("float16", 256, "zeros", True)}, [4, 1, 1], {"MODE": mode, "BLOCK": 64})


ATOMICS = "it uses atomic operations, whose result depends on all programs"


@pytest.mark.parametrize("largest, dtype, splits, scale", [
    (3, "float16", 4, 1), (31, "float16", 4, 1 / 16), (127, "float16", 4, 1 / 256), (12, "float16", 1, 1),
    (12, "float16", 16, 1 / 16), (127, "bfloat16", 4, 1), (127, "float32", 4, 1)])
def test_a_sum_of_all_programs_fits_its_type_with_the_scale_that_is_found(tmp_path, largest, dtype, splits, scale):
    """gemlite's products of 8-bit integers, in parts of K, overflowed 16 bits in one run and not in the next."""
    variant, notes, wrong = added(split(largest, dtype, splits), tmp_path)
    if variant["not_interpreted"].endswith("atomic_add does not support bf16"):
        pytest.skip("this Triton adds no bfloat16 atomically")
    assert (variant["not_interpreted"], variant["case"].get("scale", 1), notes, wrong) == (ATOMICS, scale, [], {})
    assert "expected" not in variant and not list(tmp_path.iterdir())


@pytest.mark.parametrize("dtype, scale", [("float16", 1 / 16), ("bfloat16", 1), ("float32", 1)])
def test_a_value_fits_its_type_with_the_scale_that_is_found(dtype, scale):
    index, values = split(127, dtype, 1, False).values("c_ptr", scale)
    assert index.size == 32 * 64 and np.isfinite(values).all()


@pytest.mark.parametrize("mode, scale", [("once", 1), ("masked", 1), ("again", 1 / 16), ("lanes", 1 / 16), ("scalar", 1 / 16),
                                         ("old", 1 / 16)])
def test_atomic_additions_of_a_program_are_made(mode, scale):
    found = adding(mode).run()
    assert (found.scale, found.blob, found.reason) == (scale, b"", ATOMICS)


def written(*values):
    return {"y": (np.arange(len(values)), np.array(values, float))}


@pytest.mark.one_triton
@pytest.mark.parametrize("larger, smaller, is_stable", [
    ([1e9, 2], [1e9 / 16**4, 2], True), ([1e9, 2], [1e9 / 16**5, 2], False), ([1, 2], [1e-30, 2], True),
    ([700, 2], [1e-3, 2], False),
    ([math.nan, -math.inf], [math.nan, -math.inf, 7], True), ([math.inf, 2], [-math.inf, 2], False),
    ([math.nan, 2], [2, 2], False), ([2, 2], [2, math.nan], True), ([1e30, 1e9], [1e30, 1e9 / 16**5], False),
    ([2, 2], [2], False)])
def test_values_that_shrink_as_powers_of_the_inputs_are_stable(larger, smaller, is_stable):
    assert scaling.is_stable(written(*larger), written(*smaller)) == is_stable


@pytest.mark.one_triton
def test_the_case_of_a_variant_states_the_scale(tmp_path):
    trials = [delta("float32", 1.0), delta("float32", 1 / 16), delta("float32", 1e6)]
    kernel = types.SimpleNamespace(function=types.SimpleNamespace(document=trials[0].document), manifest=trials[0].manifest,
                                   configs=[{}])
    variants = [(trial.launch, {"case": trial.case}) for trial in trials]
    interpret.add_values(kernel, variants, tmp_path, lambda digest: None, 2)
    scaled, plain, without = (variant for _, variant in variants)
    assert scaled["case"]["scale"] == 1 / 16 and "scale" not in plain["case"] and "scale" not in without["case"]
    assert all((tmp_path / one["expected"].removeprefix("sha256:")).is_file() for one in (scaled, plain))
    assert "expected" not in without and "overflow" in without["not_interpreted"]


def test_the_same_launch_gives_the_same_bytes():
    assert rows("softmax").run() == rows("softmax").run()


@pytest.mark.one_triton
@pytest.mark.parametrize("grid", [(1, 1, 1), (5, 1, 1), (3, 2, 2), (2**20, 2**20, 2**20)])
def test_corners_of_the_grid_come_first_and_each_program_once(grid):
    found = [program for program, _ in zip(sample.programs(grid), range(100))]
    assert len(set(found)) == len(found) == min(100, math.prod(grid))
    assert all(all(0 <= at < extent for at, extent in zip(program, grid)) for program in found)
    corners = math.prod(min(extent, 2) for extent in grid)
    assert all(at in (0, extent - 1) for program in found[:corners] for at, extent in zip(program, grid))


@pytest.mark.one_triton
def test_values_that_are_too_many_are_thinned():
    index = np.concatenate([np.arange(start, start + 7) for start in range(0, 90000, 9)])
    for own in (index, np.arange(100000)):
        runs, kept, values = sample._thinned(own, np.zeros(own.size, np.float32), 50000)
        assert runs.nbytes + values.nbytes <= 50000 and values.size == kept.size == runs[:, 1].sum() >= 2000
        assert np.isin(kept, own).all() and (np.diff(kept) > 0).all()
