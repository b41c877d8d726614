"""Only those statements of a file are executed that the kernel needs; a missing value is reported."""

import subprocess
import sys

import pytest
import triton
from conftest import KERNELS
from triton.backends.compiler import GPUTarget

from wavetune._errors import PackError
from wavetune._pack.source import load_function

AMD, NVIDIA = GPUTarget("hip", "gfx942", 64), GPUTarget("cuda", 90, 32)
HEAD = "import triton\nimport triton.language as tl\n"


def load(tmp_path, text, function=None, target=AMD):
    path = tmp_path / "kernel.py"
    path.write_text(text)
    return load_function(path, function, target)


@pytest.mark.parametrize("name", ["vector_add", "softmax", "matmul", "dejavu_add"])
def test_a_file_that_cannot_be_imported_here_is_read(name):
    done = subprocess.run([sys.executable, "-c", f"import {name}"], cwd=KERNELS, capture_output=True, text=True)
    assert done.returncode == 1 and "torch" in done.stderr
    assert isinstance(load_function(KERNELS / f"{name}.py", None, AMD).jit, triton.runtime.JITFunction)


def test_configs_that_depend_on_the_gpu_are_those_of_the_target():
    amd = load_function(KERNELS / "matmul.py", "matmul_kernel", AMD).autotuner
    nvidia = load_function(KERNELS / "matmul.py", None, NVIDIA).autotuner
    assert [config.num_warps for config in amd.configs] == [8, 8]
    assert [config.num_warps for config in nvidia.configs] == [4]
    assert amd.keys == ["M", "N", "K"]


def test_the_configs_of_a_dejavu_space_come_in_its_order():
    configs = load_function(KERNELS / "dejavu_add.py", None, AMD).autotuner.configs
    assert [(c.kwargs["BLOCK_SIZE"], c.kwargs["UNUSED"], c.num_warps, c.num_stages) for c in configs] == [
        (128, 0, 4, 1), (256, 0, 4, 1), (256, 1, 4, 1), (256, 1, 8, 1), (512, 0, 4, 1), (512, 1, 4, 1), (512, 1, 8, 1)]


def test_cache_key_and_line_are_those_of_an_import(tmp_path, monkeypatch):
    text = HEAD + ("SCALE = tl.constexpr(3)\n\n@triton.jit\ndef helper(x):\n    return x * SCALE\n\nother = 1\n\n"
                   "@triton.autotune(configs=[triton.Config({'B': 16})], key=[])\n@triton.jit\n"
                   "def kernel(x_ptr, B: tl.constexpr):\n    tl.store(x_ptr, helper(B))\n")
    read = load(tmp_path, text).jit
    monkeypatch.syspath_prepend(tmp_path)
    import kernel
    real = kernel.kernel.fn
    assert read.cache_key == real.cache_key
    assert (read.starting_line_number, str(read), read.src) == (real.starting_line_number, str(real), real.src)


def test_nothing_is_executed_that_the_kernel_does_not_need(tmp_path):
    marker = tmp_path / "executed"
    text = HEAD + f"""
import torch, numpy as np
open({str(marker)!r}, "w")
x = torch.rand(98432)
sizes = [2 ** i for i in range(5)]

@triton.jit
def kernel(x_ptr, B: tl.constexpr):
    x = tl.arange(0, B)
    tl.store(x_ptr + x, x)

@triton.testing.perf_report(triton.testing.Benchmark(x_names=["size"]))
def benchmark(size):
    kernel[(1,)](x, 16)

benchmark.run()
"""
    assert load(tmp_path, text).jit.arg_names == ["x_ptr", "B"]
    assert not marker.exists()


def test_statements_that_change_what_the_decorator_reads_are_executed(tmp_path):
    text = HEAD + """
configs = []
for block in (16, 32):
    configs.append(triton.Config({"B": block}))
if len(configs) == 2:
    configs += [triton.Config({"B": 64})]
table = {}
table["B"] = 128
configs.append(triton.Config(table))

@triton.autotune(configs=configs, key=["n"])
@triton.jit
def kernel(x_ptr, n, B: tl.constexpr):
    tl.store(x_ptr, n + B)
"""
    assert [config.kwargs["B"] for config in load(tmp_path, text).autotuner.configs] == [16, 32, 64, 128]


def test_annotations_may_be_texts(tmp_path):
    text = "from __future__ import annotations\n" + HEAD + "@triton.jit\ndef kernel(x_ptr, B: tl.constexpr):\n    pass\n"
    assert [p.is_constexpr for p in load(tmp_path, text).jit.params] == [False, True]


def test_torch_version_says_which_kind_of_gpu_is_packed_for(tmp_path):
    text = HEAD + """
import torch.version
import torch as th
STAGES = 1 if th.version.hip is not None else 3

@triton.autotune(configs=[triton.Config({}, num_stages=STAGES)], key=[])
@triton.jit
def kernel(x_ptr):
    pass
"""
    assert load(tmp_path, text, target=AMD).autotuner.configs[0].num_stages == 1
    assert load(tmp_path, text, target=NVIDIA).autotuner.configs[0].num_stages == 3


@pytest.mark.parametrize("text, reason", [
    ("def f(:", "is not Python"),
    ("x = 1", "no function under @triton.jit"),
    (HEAD + "@triton.jit\ndef a(x): pass\n@triton.jit\ndef b(x): pass\n", "several kernels.* a, b"),
    (HEAD + "import torch\nN = torch.cuda.memory_allocated() + 1\n@triton.autotune([triton.Config({'B': N})], [])\n"
     "@triton.jit\ndef k(x, B: tl.constexpr): pass\n",
     r"kernel.py:4: .* torch.cuda.memory_allocated\(…\) is needed .* torch, "
     r".*driver.active.get_current_target\(\) .*--arch$"),
    (HEAD + "import torch\nif torch.backends.cuda.is_built():\n    N = 1\n@triton.autotune([triton.Config({'B': N})], [])\n"
     "@triton.jit\ndef k(x, B: tl.constexpr): pass\n", r"torch.backends.cuda.is_built\(…\) is needed"),
    (HEAD + "from fla.utils import more\n@triton.autotune([triton.Config({'B': 1})], [], **more)\n@triton.jit\n"
     "def k(x, B: tl.constexpr): pass\n",
     r"kernel.py:6: .* fla.utils.more.\w+\(…\) is needed .* fla.utils, "),
    (HEAD + "from . import flags\n@triton.autotune([triton.Config({'B': flags.B + 1})], [])\n@triton.jit\n"
     "def k(x, B: tl.constexpr): pass\n", r" \.flags.B is needed .* \., "),
    (HEAD + "import a.b as c\nN = int(c.N)\n@triton.autotune([triton.Config({'B': N})], [])\n@triton.jit\n"
     "def k(x, B: tl.constexpr): pass\n", r" a.b.N is needed .* execute a, "),
    (HEAD + "N = int(triton.runtime.driver.active.utils.sms)\n@triton.autotune([triton.Config({'B': N})], [])\n@triton.jit\n"
     "def k(x, B: tl.constexpr): pass\n", r"driver.active.utils.sms is needed .* GPU .* --arch$"),
    (HEAD + "from other import helper\n@triton.jit\ndef k(x):\n    tl.store(x, helper(1))\n",
     "helper.*<other.helper>"),
    (HEAD + "from .other import helper\n@triton.jit\ndef k(x):\n    tl.store(x, helper(1))\n", "<.other.helper>"),
    (HEAD + "from other import *\n@triton.jit\ndef k(x):\n    pass\nk = k\n", None),
    (HEAD + "N = undefined\n@triton.autotune([triton.Config({'B': N})], [])\n@triton.jit\n"
     "def k(x, B: tl.constexpr): pass\n", "kernel.py:3 .* NameError"),
    (HEAD + "def mine(f): return 3\n@mine\n@triton.jit\ndef k(x): pass\n", "decorator .* int"),
    (HEAD + "from triton_dejavu import nothing\n@nothing\n@triton.jit\ndef k(x): pass\n",
     "nothing.*triton_dejavu"),
    (HEAD + "import triton_dejavu as d\n@d.autotune(key=[], configs=[], config_space=d.ConfigSpace({}))\n@triton.jit\n"
     "def k(x): pass\n", "configs or config_space"),
])
def test_unreadable_sources_are_reported(tmp_path, text, reason):
    if reason is None:
        assert load(tmp_path, text).jit.arg_names == ["x"]
        return
    with pytest.raises(PackError, match=reason):
        load(tmp_path, text)


def test_an_absent_function_is_reported_with_the_present_ones(tmp_path):
    with pytest.raises(PackError, match="function g .*has f"):
        load(tmp_path, HEAD + "@triton.jit\ndef f(x): pass\n", "g")


def test_an_absent_file_is_reported(tmp_path):
    with pytest.raises(PackError, match="cannot read .*missing.py: No such file"):
        load_function(tmp_path / "missing.py", None, AMD)
