"""Kernels of a package: what they need of its other modules is read, and nothing of it is imported."""
import json
import subprocess
import sys

import pytest
import triton
from conftest import ROOT, TRITON, read, refusal, run
from recorded_calls import call_task, manifest_members, to_json
from triton.backends.compiler import GPUTarget

from wavetune._pack.calls import Tensor, heuristic_values, pruned
from wavetune._pack.constants import from_json, parse_constant
from wavetune._errors import PackError
from wavetune._pack.signature import parse_signature
from wavetune._pack.source import load_function, module_name
from wavetune._pack.stubs import make_packaging
from wavetune._pack.target import make_backend

AMD, NVIDIA = GPUTarget("hip", "gfx942", 64), GPUTarget("cuda", 90, 32)
HEAD = "import triton\nimport triton.language as tl\n"
PACKAGE = {
    "flash/__init__.py": "raise RuntimeError('nobody imports the package')\n",
    "flash/utils/__init__.py": "from .env import IS_NEW, WIDTH\nfrom flash.utils.hardware import IS_AMD, IS_HOPPER, has_shared\n",
    "flash/utils/env.py": """
import os
import torch
from packaging import version as v
import triton
IS_NEW = v.parse(triton.__version__) >= v.parse("3.3.0rc1") and v.parse(torch.__version__) >= v.parse("2.4")
WIDTH = 64
torch.cuda.set_device(0)
os.environ["FLASH"] = "touched"
""",
    "flash/utils/hardware.py": """
import torch
from functools import cache
import triton

@cache
def platform():
    try:
        return triton.runtime.driver.active.get_current_target().backend
    except Exception:
        return "cpu"

IS_AMD = platform() == "hip"
IS_HOPPER = not IS_AMD and torch.cuda.get_device_capability()[0] == 9

def sizes():
    try:
        return [triton.runtime.driver.active.utils.get_device_properties(i)["max_shared_mem"]
                for i in range(torch.cuda.device_count())]
    except Exception:
        return [-1]

def has_shared(n):
    return sizes()[0] >= n

def processors():
    try:
        return triton.runtime.driver.active.utils.get_device_properties(0)["multiprocessor_count"]
    except Exception:
        return 1
""",
    "flash/ops/op.py": HEAD + """
from ..utils import IS_AMD

@triton.jit
def inner(x):
    return x + 1

if IS_AMD:
    @triton.jit
    def exp(x):
        return tl.exp(inner(x))
else:
    @triton.jit
    def exp(x):
        return tl.exp(x)
""",
    "flash/ops/all.py": "from .op import *\n",
    "flash/ops/kernel.py": HEAD + """
import transformers
from flash.ops import op as own
from flash.ops.all import exp
from flash.utils import IS_AMD, IS_HOPPER, IS_NEW, WIDTH, has_shared
from flash.layers import Layer

def prune(configs, named, **more):
    return [c for c in configs if c.kwargs["B"] <= named["n"] and more["USE_G"]] or configs[:1]

@triton.heuristics({"USE_G": lambda args: args["g"] is not None, "EVEN": lambda args: divides(args["n"], 8)})
@triton.autotune(
    configs=[triton.Config({"B": b}, num_warps=w) for b in ([16, 32] if has_shared(65536) else [16]) for w in ([2] if IS_AMD else [4])],
    key=["n", "USE_G"], prune_configs_by={"early_config_prune": prune}, restore_value=["y"])
@triton.jit
def kernel(x, g, y, scale, n, eps: tl.constexpr, TYPE: tl.constexpr, SHAPE: tl.constexpr, USE_G: tl.constexpr, EVEN: tl.constexpr,
           B: tl.constexpr):
    offsets = tl.program_id(0) * B + tl.arange(0, B)
    value = exp(tl.load(x + offsets, mask=offsets < n).to(TYPE)) * scale + eps + SHAPE[1]
    if USE_G:
        value += own.inner(tl.load(g + offsets, mask=offsets < n).to(tl.float32))
    tl.store(y + offsets, value, mask=offsets < n)

def divides(n, by):
    return n % by == 0

layer = Layer()
""",
}
SIGNATURE = ("x=*bf16[n], y=*fp32[n], g=None, scale=fp32(2), eps=constexpr(1e-5), TYPE=constexpr(tl.float32), "
             "SHAPE=constexpr((4, 2))")


@pytest.fixture
def root(tmp_path):
    for name, text in PACKAGE.items():
        path = tmp_path / "site" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "site"


def load(root, name="kernel", target=AMD, file="flash/ops/kernel.py", torch="2.9.0"):
    return load_function(root / file, name, target, None, root, torch)


def test_flags_and_helpers_of_other_modules_are_those_of_the_target(root, monkeypatch):
    monkeypatch.delenv("FLASH", raising=False)
    amd, nvidia = load(root), load(root, target=NVIDIA)
    assert [(c.kwargs["B"], c.num_warps) for c in amd.autotuner.configs] == [(16, 2), (32, 2)]
    assert [(c.kwargs["B"], c.num_warps) for c in nvidia.autotuner.configs] == [(16, 4), (32, 4)]
    assert amd.jit.__module__ == "flash.ops.kernel"
    helper = amd.jit.fn.__globals__["exp"]
    assert helper.__module__ == "flash.ops.op" and "inner(x)" in helper.src and "inner" not in nvidia.jit.fn.__globals__["exp"].src
    import os
    assert "FLASH" not in os.environ  # a statement that nothing needed
    assert set(amd.files) == {"flash/ops/kernel.py", "flash/ops/op.py", "flash/ops/all.py", "flash/utils/__init__.py",
                              "flash/utils/hardware.py"}


def test_cache_keys_are_those_of_an_import(root):
    for name, text in (("flash/__init__.py", ""), ("flash/layers.py", "class Layer: pass\n"), ("transformers.py", ""),
                       ("torch.py", "__version__ = '2.9.0'\nclass cuda:\n  set_device = print\n  device_count = lambda: 1\n")):
        (root / name).write_text(text)
    script = ("import triton\nfrom triton.backends.compiler import GPUTarget\nfrom wavetune._pack.stubs import Driver\n"
              "triton.runtime.driver.set_active(Driver(GPUTarget('hip', 'gfx942', 64)))\n"
              "from flash.ops.kernel import kernel\nfrom wavetune._runtime.closure import closure\n"
              "jit = kernel.fn.fn\nprint(jit.cache_key, closure(jit), str(jit))")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env={
        "PYTHONPATH": f"{ROOT / 'python'}:{root}", "PATH": "/usr/bin", "HOME": "/nonexistent", "TRITON_CACHE_DIR": str(root)})
    assert done.returncode == 0, done.stderr
    from wavetune._runtime.closure import closure
    jit = load(root).jit
    assert [jit.cache_key, closure(jit), str(jit)] == done.stdout.split("\n")[-2].split()


def test_heuristics_and_pruning_are_evaluated_with_the_call(root):
    decorated = load(root)
    call = {"x": Tensor("bfloat16", (20,)), "g": None, "y": Tensor("float32", (20,)), "scale": 0.5, "n": 20}
    assert heuristic_values(decorated, call, {}) == {"USE_G": False, "EVEN": False}
    assert heuristic_values(decorated, {**call, "g": Tensor("float32", (20,)), "n": 64}, {}) == {"USE_G": True, "EVEN": True}
    assert [c.kwargs["B"] for c in pruned(decorated, {**call, "g": call["x"]}, decorated.autotuner.configs)] == [16]
    assert [c.kwargs["B"] for c in pruned(decorated, {**call, "g": call["x"], "n": 64}, decorated.autotuner.configs)] == [16, 32]
    with pytest.raises(PackError, match=r"kernel.py:14: the heuristic of USE_G of kernel cannot be evaluated .*KeyError: 'g'"):
        heuristic_values(decorated, {"n": 4}, {})


def test_a_call_is_stated_as_members_of_a_manifest(root):
    import triton.language as tl
    decorated = load(root)
    call = {"x": Tensor("bfloat16", (4, 5)), "g": None, "y": Tensor("float32", ()), "n": 20, "eps": 1e-5, "TYPE": tl.float32,
            "SHAPE": (4, 2), "EVEN": True}
    arguments, defines, constants = manifest_members(decorated, call, {"y": "readwrite"})
    assert arguments == [{"name": "x", "dtype": "bfloat16", "shape": ["4", "5"], "access": "read"},
                         {"name": "y", "dtype": "float32", "shape": ["1"], "access": "readwrite"},
                         {"name": "n", "dtype": "int64", "value": "20"}]
    assert defines == {"g": "None", "EVEN": "True"} and constants == {"eps": 1e-5, "TYPE": tl.float32, "SHAPE": (4, 2)}
    with pytest.raises(PackError, match="argument scale of kernel is 0.5"):
        manifest_members(decorated, {"scale": 0.5}, {})


@pytest.mark.skipif(TRITON < (3, 4), reason="Triton 3.3 takes no element of a constexpr tuple")
def test_a_kernel_of_a_package_is_packed_and_its_folder_packs_again(root, tmp_path):
    call = ("pack", root / "flash/ops/kernel.py:kernel", "--package-root", root, "--kernel", tmp_path / "k", "-o", tmp_path / "b",
            "--key", "n=64", "--signature", SIGNATURE, "--grid", "lambda META: (triton.cdiv(n, META['B']), )", "--torch", "2.9.0")
    out, err = run(*call)
    assert err == "" and "1 objects, 1 left out by prune_configs_by when n == 64" in out  # USE_G is False
    build = read(tmp_path / "b")
    (variant,) = build["variants"]
    assert variant["constexprs"]["g"] is None and variant["signature"] == {
        "x": "*bf16", "y": "*fp32", "scale": "fp32", "n": "i32"}
    version = read(tmp_path / "k", "kernel.json")["versions"]["triton"]
    assert version["sources"][0] == "flash/ops/kernel.py" and version["sources"][-1] == "constexprs.json"
    assert version["defines"] == {"g": "None", "USE_G": "None != None"}  # EVEN calls a function, so it is evaluated
    assert json.loads((tmp_path / "k/constexprs.json").read_text()) == {
        "eps": 1e-5, "TYPE": {"dtype": "float32"}, "SHAPE": {"tuple": [4, 2]}}
    argument = {a["name"]: a for a in read(tmp_path / "k", "kernel.json")["arguments"]}
    assert argument["y"]["access"] == "readwrite"  # restore_value
    assert build["record"]["function"]["module"] == "flash.ops.kernel" and build["record"]["key_names"] == ["n", "USE_G"]
    assert build["record"]["tuning_key"] == ["n", "None != None"]
    run("pack", tmp_path / "k", "-o", tmp_path / "again", "--key", "n=64", "--torch", "2.9.0")
    assert (tmp_path / "again/build.json").read_bytes() == (tmp_path / "b/build.json").read_bytes()


@pytest.mark.parametrize("text, reason", [
    ("from flash.utils.hardware import processors\nN = processors()\n", "the device's multiprocessor_count is needed"),
    ("from flash.missing import N\n", r"flash.missing.N is needed .* does not execute flash.missing, .*--package-root"),
    ("from flash.broken import N\n", r"the value of flash.broken.N is needed .*/broken.py:1 cannot be executed .* ZeroDivisionError"),
    ("from flash.utils.env import IS_NEW\nN = 1 if IS_NEW else 2\n", "--torch VERSION states it")])
def test_what_cannot_be_known_is_refused_with_its_place(root, text, reason):
    (root / "flash/broken.py").write_text("N = 1 // 0\n")
    (root / "flash/k.py").write_text(HEAD + text + "@triton.autotune([triton.Config({'B': N + 1})], [])\n@triton.jit\n"
                                     "def k(x, B: tl.constexpr): pass\n")
    with pytest.raises(PackError, match=reason):
        load(root, "k", file="flash/k.py", torch=None)


def test_a_helper_that_is_not_known_is_named(root, tmp_path):
    (root / "flash/k.py").write_text(HEAD + "from elsewhere import f\nfrom flash import broken as b\n@triton.jit\ndef k(x):\n"
                                     "    tl.store(x, f(1))\n@triton.jit\ndef m(x):\n    tl.store(x, b.f(1))\n")
    (root / "flash/broken.py").write_text("f = 1 // 0\n")
    with pytest.raises(PackError, match="the kernel reads f, which is <elsewhere.f>.*--package-root"):
        load(root, "k", file="flash/k.py")
    with pytest.raises(PackError, match="broken.py:1 .*ZeroDivisionError"):
        load(root, "m", file="flash/k.py")
    with pytest.raises(PackError, match="is not below the package root"):
        module_name(tmp_path / "k.py", root)


def test_tuples_that_are_passed_are_refused(root, tmp_path):
    assert "agents pass single values: annotate scale" in refusal(
        "pack", root / "flash/ops/kernel.py", "--package-root", root, "--kernel", tmp_path / "k", "-o", tmp_path / "b", "--key", "n=64",
        "--grid", "1", "--signature", SIGNATURE.replace("scale=fp32(2)", "scale=tuple(1)"))


def test_floats_that_are_passed_are_refused_with_what_to_write():
    with pytest.raises(PackError, match=r"is a float that is passed.* like scale=fp32\(1\)"):
        parse_signature("x=*bf16[4]:write, scale=fp32(0.125)")


@pytest.mark.parametrize("text, json_", [
    ("1e-5", 1e-5), ("-2.5", -2.5), ("tl.bfloat16", {"dtype": "bfloat16"}), ("triton.language.int8", {"dtype": "int8"}),
    ("(1, None, 'a', (tl.float16, ))", {"tuple": [1, None, "a", {"tuple": [{"dtype": "float16"}]}]}), ("torch.float16", None),
    ("n * 2", None), ("(1", None)])
def test_constants_are_read_and_kept(text, json_):
    assert parse_constant(text) == json_
    if json_ is not None:
        assert to_json(from_json(json_, "")) == json_


def test_constants_that_are_none_are_refused():
    for json_ in ({"tuple": 3}, {"dtype": "float7"}, {"a": 1, "b": 2}, [1]):
        with pytest.raises(PackError, match="place: a constexpr is"):
            from_json(json_, "place")
    with pytest.raises(PackError, match="a constexpr is <object"):
        to_json(object())


def test_versions_are_compared_as_packaging_does():
    parse = make_packaging().version.parse
    ordered = ["2.9.0rc1", "2.9", "2.10.0a0", "2.10.0+git1", "3.0.0.post1", "v4"]
    assert sorted(reversed(ordered), key=parse) == ordered
    assert parse("3.4.0") == parse("3.4") and parse("3.4") >= parse("3.4.0") and hash(parse("3.4.0")) == hash(parse("3.4"))
    assert not parse("3.4") == "3.4" and parse("3.5") > parse("3.4") <= parse("3.4") and str(parse("3.4")) == "3.4"
    assert (parse("3.4").major, parse("3.4").minor, parse("3.4").micro) == (3, 4, 0)


@pytest.mark.skipif(TRITON < (3, 4), reason="Triton 3.3 takes no element of a constexpr tuple")
def test_calls_with_floats_tuples_and_dtypes_compile(root, tmp_path, monkeypatch):
    import triton.language as tl

    from wavetune._pack.build import compile_tasks
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "objects").mkdir()
    decorated, backend = load(root), make_backend(AMD)
    call = {"x": Tensor("bfloat16", (20,)), "g": Tensor("float8_e4m3fnuz", (20,)), "y": Tensor("float32", (20,)), "scale": 0.5, "n": 20,
            "eps": 1e-5, "TYPE": tl.float32, "SHAPE": (4, 2)}
    tasks = [call_task(decorated, backend, call, config) for config in decorated.autotuner.configs]
    results = compile_tasks([*tasks, tasks[0]], decorated.jit, AMD, backend, tmp_path / "objects", 2)
    assert len({result.get("digest", str(result)) for result in results}) == 2, results
    assert "error" not in results[0] and results[0] == results[2]
    (result,) = compile_tasks([call_task(decorated, backend, {**call, "g": None, "B": 16}, None)], decorated.jit, AMD, backend,
                              tmp_path / "objects")
    assert "digest" in result and triton.runtime.driver.active.get_current_target() == AMD
