"""The builder's inputs are the agent's, byte for byte: python/wavetune/_captured/inputs.py and agent/measure/reference.c."""

import json
import subprocess

import pytest
from conftest import program

np = pytest.importorskip("numpy", reason="NumPy is not installed: tests/python-env.sh installs it")
from wavetune._captured.floats import FLOAT8, bfloat16_widened, float8_of, float8_widened  # noqa: E402
from wavetune._captured.inputs import PERIOD, STORED, Contents  # noqa: E402

DIGEST = "sha256:" + "0" * 64
BLOB = bytes(range(251)) * 8
FLOATS = [name for name in STORED if "float" in name]
INTEGERS = [name for name in STORED if name not in FLOATS and name != "bool"]


def around_of(buffers):
    """[(dtype, fill, elements, before, after)]: how many of the elements are around the view."""
    return [(*one, 0, 0)[:5] for one in buffers]


def agents(tmp_path, buffers, seed, scale):
    """The bytes of [(dtype, fill, elements)] as the agent makes them."""
    manifest = {"name": "a/b", "language": "triton", "entry": "f", "key": ["n"], "cases": "build",
                "sources": [{"path": "f.py", "digest": DIGEST}],
                "arguments": [{"name": f"a{i}", "dtype": dtype, "kind": "buffer"} for i, (dtype, *_) in enumerate(buffers)]}
    case = {"arguments": {f"a{i}": {"elements": n - sum(around), "access": "read", "fill": fill, "before": around[0], "after": around[1]}
                          for i, (_, fill, n, *around) in enumerate(around_of(buffers))}}
    if scale != 1:
        case["scale"] = scale
    for name, document in (("kernel", manifest), ("case", case)):
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    (tmp_path / "blob").write_bytes(BLOB)
    return subprocess.run([program("tests/inputs"), tmp_path / "kernel.json", tmp_path / "case.json", str(seed),
                           tmp_path / "blob"], capture_output=True, check=True).stdout


def compare(tmp_path, buffers, seed=7, scale=1):
    for i in range(0, len(buffers), 60):  # a kernel has at most 64 arguments
        compare_some(tmp_path, buffers[i:i + 60], seed, scale)


def compare_some(tmp_path, buffers, seed, scale):
    found, end = agents(tmp_path, buffers, seed, scale), 0
    for i, (dtype, fill, n, *around) in enumerate(around_of(buffers)):
        own = Contents(dtype, fill, i, n, seed, lambda digest: BLOB[:(n - sum(around)) * np.dtype(STORED[dtype]).itemsize],
                       before=around[0], after=around[1]).scaled(scale)
        theirs = np.frombuffer(found, STORED[dtype], n, end)
        end += theirs.nbytes
        mine = np.concatenate([own.at(np.arange(start, min(start + 1000003, n))) for start in range(0, n, 1000003)])
        assert mine.dtype == theirs.dtype, (dtype, fill)
        differ = np.flatnonzero(mine.view(np.uint8) != theirs.view(np.uint8))
        at = differ[:5] // mine.itemsize
        assert differ.size == 0, (dtype, fill, at, mine[at], theirs[at])
    assert end == len(found)


@pytest.mark.parametrize("seed", [1, 2**64 - 3])
def test_deviates_and_uniform_numbers_of_every_type(tmp_path, seed):
    fills = ["normal", "uniform", {"uniform": [-0.9, 0.8]}, "zeros", "index", {"ramp": [-1, 0.001]}, {"constant": 0.3}]
    compare(tmp_path, [(dtype, fill, n) for dtype in FLOATS for fill in fills for n in (1, 1001)], seed)


@pytest.mark.parametrize("scale", [1 / 16, 1 / 256, 0.3])
def test_deviates_of_a_scale(tmp_path, scale):
    compare(tmp_path, [(dtype, fill, n) for dtype in FLOATS for fill in ("normal", "uniform", {"constant": 2})
                       for n in (1, 70001)], scale=scale)


def test_integers_of_every_type(tmp_path):
    fills = ["zeros", "index", {"integers": [0, 100]}, {"sorted": [3, 90]}, {"ramp": [7, 3]}, {"permutation": 100},
             {"constant": 3}]
    buffers = [(dtype, fill, n) for dtype in INTEGERS for fill in fills for n in (1, 70001)]
    compare(tmp_path, [*buffers, ("int64", {"integers": [-2**53, 2**53]}, 1000), ("int64", {"sorted": [-2**53, 2**53]}, 1000),
                       ("int32", {"integers": [-2**31, 2**31 - 1]}, 1000), ("bool", {"integers": [0, 1]}, 1000),
                       ("bool", "index", 9),
             ("bool", {"constant": True}, 9), ("int8", {"ramp": [-120, 5]}, 99), ("uint64", {"ramp": [5, 2**46]}, 99),
             ("int16", {"blob": DIGEST}, 999), ("bfloat16", {"blob": DIGEST}, 1000), ("float64", {"blob": DIGEST}, 251)])


def test_several_blocks_and_periods(tmp_path):
    compare(tmp_path, [("bfloat16", "normal", 200000), ("float64", "normal", 65537), ("float8_e4m3fn", "normal", 70000),
                       ("float16", "uniform", 70000), ("int32", {"permutation": 70000}, 200000),
                       ("int32", {"sorted": [-5, 10**6]}, 131073)])
    compare(tmp_path, [("float8_e5m2", "normal", PERIOD + 70000), ("int8", {"integers": [-7, 7]}, PERIOD + 5)])


def test_elements_around_a_view(tmp_path):
    fills = ["zeros", {"integers": [0, 100]}, {"sorted": [3, 90]}, {"ramp": [7, 3]}, {"permutation": 100}, {"constant": 3}]
    compare(tmp_path, [("int32", fill, n, before, after) for fill in fills for n in (1001, 70001)
                       for before, after in ((0, 1), (1, 0), (300, 600), (1000, 0))])
    compare(tmp_path, [("uint8", {"ramp": [1, 1]}, 300, 5, 20), ("int16", {"blob": DIGEST}, 999, 9, 90),
                       ("bfloat16", "normal", 200000, 70000, 5), ("bfloat16", "normal", PERIOD + 70000, 70000, PERIOD - 1)])


def test_floats_are_widened_and_rounded_back():
    every = np.arange(65536, dtype=np.uint16)
    wide = bfloat16_widened(every)
    from wavetune._captured.floats import bfloat16_of
    assert (bfloat16_of(wide)[~np.isnan(wide)] == every[~np.isnan(wide)]).all()
    for dtype, own in FLOAT8.items():
        codes = np.arange(256, dtype=np.uint8)
        values = float8_widened(dtype, codes)
        is_number = ~np.isnan(values) & (own.has_negative_zero | (codes != 0x80))
        is_last = (dtype == "float8e4b15") & ((codes & 0x7f) == 0x7f)  # what its encoder never makes
        assert (float8_of(dtype, values)[is_number & ~is_last] == codes[is_number & ~is_last]).all(), dtype
        assert float8_of(dtype, [1e30, -1e30]).tolist() == [own.largest, own.largest | 0x80]
