"""The closure of a jit function changes with what its behaviour depends on, and with nothing else."""

import importlib.util
import itertools
import linecache
import subprocess
import sys

import pytest
import triton
from conftest import KERNELS, ROOT

from wavetune._runtime.closure import closure
from wavetune._runtime.texts import function_document

HEAD = "import triton\nimport triton.language as tl\n"
HELPER = "@triton.jit\ndef scale(x):\n    return x * 2\n"
KERNEL = """FACTOR = tl.constexpr(3)

@triton.jit
def kernel(x_ptr, n, BLOCK: tl.constexpr, TYPE: tl.constexpr = tl.float32):
    # a comment inside is text
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = scale(tl.load(x_ptr + offsets, mask=offsets < n)).to(TYPE) * FACTOR + tl.cdiv(n, BLOCK)
    tl.store(x_ptr + offsets, x, mask=offsets < n)
"""
OF_THE_EXAMPLE = "sha256:b0cfe9ecdbd67965c4c1cc8418d917ded1a72a097109a98b8b2d39e712bc776e"
_numbers = itertools.count()


@pytest.fixture
def load(tmp_path):
    """Imports a text as a module of its own; returns its closure, or that of another name. `of` gets the constants of its
    document."""
    def importing(text, name="kernel", folder=tmp_path, of=None, **members):
        folder.mkdir(exist_ok=True)
        module_name = f"closure_{next(_numbers)}"
        path = folder / f"{module_name}.py"
        path.write_text(text)
        spec = importlib.util.spec_from_file_location(module_name, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[module_name] = module
        vars(module).update(members)
        spec.loader.exec_module(module)
        jit = getattr(module, name)
        if of is not None:
            document = function_document(jit, closure(jit), None, [], None)
            of += [(one["name"], one["value"]) for one in document["globals"] if "value" in one]
        return closure(jit)

    return importing


def test_the_place_line_numbers_and_text_outside_do_not_matter(load, tmp_path):
    own = load(HEAD + HELPER + KERNEL)
    assert own.startswith("sha256:") and len(own) == 71
    assert load(HEAD + "# a comment\n\n\nUNUSED = 5\n" + HELPER + "\n\n# another\n" + KERNEL + "\n# last\n") == own
    assert load(HEAD + KERNEL + HELPER, folder=tmp_path / "elsewhere") == own
    assert load(HEAD + "if True:\n" + "".join(f"    {line}\n" for line in (HELPER + KERNEL).splitlines())) == own


def test_it_is_the_same_in_every_triton_and_python(load):
    assert load(HEAD + HELPER + KERNEL) == OF_THE_EXAMPLE


@pytest.mark.parametrize("old, new", [
    ("x * 2", "x * 4"),                               # the text of a callee
    ("tl.constexpr(3)", "tl.constexpr(4)"),           # a constexpr that it reads
    ("= tl.float32", "= tl.float16"),                 # a default value
    ("offsets < n)\n", "offsets <= n)\n"),            # its own text
    ("a comment inside", "another comment inside"),
    ("def kernel", "def kernel2")])
def test_what_the_function_depends_on_matters(load, old, new):
    text = HEAD + HELPER + KERNEL
    assert load(text.replace(old, new), "kernel2" if new == "def kernel2" else "kernel") != load(text)


def test_the_value_of_a_default_matters_and_not_its_name(load):
    text = HEAD + "DEPTH = 3\n@triton.jit\ndef kernel(x, N: tl.constexpr = DEPTH):\n    tl.store(x, N)\n"
    assert load(text.replace("DEPTH = 3", "DEPTH = 4")) != load(text)
    assert load(text + "DEPTH = 4\n") == load(text)  # it was 3 when the function was defined


def test_decorators_do_not_matter(load):
    text = HEAD + HELPER + KERNEL
    tuned = text.replace("\n@triton.jit\ndef kernel", "\n@triton.autotune([triton.Config({'BLOCK': 64})], ['n'], rep=5)\n"
                         "@triton.heuristics({'TYPE': lambda _: tl.float32})\n@triton.jit\ndef kernel")
    assert load(tuned) == load(text)


def test_constants_and_functions_of_modules_are_followed(load, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    text = HEAD + ("import closure_ops as ops\n@triton.jit\ndef kernel(x):\n"
                   "    tl.store(x, ops.twice(ops.WIDTH) + ops.missing)\n")

    def with_module(body):
        (tmp_path / "closure_ops.py").write_text(HEAD + body)
        sys.modules.pop("closure_ops", None)
        importlib.invalidate_caches()
        for compiled in tmp_path.glob("__pycache__/closure_ops*"):
            compiled.unlink()
        linecache.clearcache()
        return load(text)

    ops = "WIDTH = tl.constexpr(8)\nOTHER = 1\n@triton.jit\ndef twice(x):\n    return x * 2\n"
    own = with_module(ops)
    assert with_module("# moved\n" + ops.replace("OTHER = 1", "OTHER = 2")) == own
    assert with_module(ops.replace("(8)", "(9)")) != own
    assert with_module(ops.replace("x * 2", "x * 3")) != own


def test_members_that_are_none_are_constants(load, tmp_path, monkeypatch):
    """torch.version.hip is one: without it the function could not be made again."""
    monkeypatch.syspath_prepend(tmp_path)
    found = []
    (tmp_path / "closure_none.py").write_text("OTHER = 1\nNONE = None\n")
    load(HEAD + "import closure_none\n@triton.jit\ndef kernel(x):\n    if tl.constexpr(closure_none.NONE is not None):\n"
         "        tl.store(x, closure_none.NEVER)\n", of=found)
    assert ("closure_none.NONE", None) in found and "closure_none.NEVER" not in dict(found)


def test_functions_that_call_each_other_have_closures(load):
    text = HEAD + ("@triton.jit\ndef a(x):\n    return b(x)\n@triton.jit\ndef b(x):\n    return a(x) + 1\n"
                   "@triton.jit\ndef kernel(x):\n    return a(x)\n")
    assert load(text) != load(text.replace("+ 1", "+ 2"))


def test_nonlocals_come_before_globals(load):
    text = HEAD + ("WIDTH = 1\ndef make():\n    WIDTH = 2\n    @triton.jit\n    def inner(x):\n        tl.store(x, WIDTH)\n"
                   "    return inner\nkernel = make()\n")
    assert load(text.replace("WIDTH = 1", "WIDTH = 5")) == load(text)
    assert load(text.replace("WIDTH = 2", "WIDTH = 5")) != load(text)


def test_names_that_the_function_binds_are_its_own(load):
    text = HEAD + ("n = 5\nx = 7\n@triton.jit\ndef kernel(p, n):\n    x = n + 1\n    for i in range(3):\n        x += i\n"
                   "    tl.store(p, x)\n")
    assert load(text.replace("n = 5\nx = 7", "n = 6\nx = 8")) == load(text)


def test_what_is_no_jit_function_has_none():
    assert closure(None) is None and closure(print) is None and closure(triton) is None and closure(object()) is None
    exec_only = type("Function", (), {})()
    exec_only.fn = eval("lambda: 0")
    assert closure(exec_only) is None  # a function without text


def test_a_packed_build_and_the_program_have_the_same_closure():
    if sys.version_info < (3, 10):
        pytest.skip("pack needs Python 3.10")
    from triton.backends.compiler import GPUTarget

    from wavetune._pack.record import function_members
    from wavetune._pack.source import load_function
    program = ("import sys; sys.path[:0] = [%r, %r]\n"
               "import triton\nfrom triton.backends.compiler import GPUTarget\nfrom wavetune._pack.stubs import Driver\n"
               "triton.runtime.driver.set_active(Driver(GPUTarget('hip', 'gfx942', 64)))\n"
               "import scaled\nfrom wavetune._runtime.closure import closure\nprint(closure(scaled.scale_kernel))"
               % (str(KERNELS), str(ROOT / "python")))
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()
    decorated = load_function(KERNELS / "scaled.py", None, GPUTarget("hip", "gfx942", 64), None)
    assert function_members(decorated.jit)["closure"] == printed
