"""Which integers steer a kernel, found in the TTIR that Triton makes of real ones (_captured/steering.py)."""

import importlib.util
import pathlib

import pytest

triton = pytest.importorskip("triton")
from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402
from wavetune._captured.steering import steering_arguments  # noqa: E402

PLACE = pathlib.Path(__file__).parent / "steered/kernels.py"
SPEC = importlib.util.spec_from_file_location("steered_kernels", PLACE)
KERNELS = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(KERNELS)
NAMES = ["unpack", "multiply", "gather", "rows", "masked", "branch", "called", "carried", "stored",
         "largest", "locked", "counted"]


def ttir(name, **types):
    function = getattr(KERNELS, name)
    signature = {}
    for parameter in function.params:
        is_integer = parameter.name.partition("_")[0] in ("steer", "data", "room")
        signature[parameter.name] = "constexpr" if parameter.is_constexpr else \
            "i32" if not parameter.name.endswith("_ptr") else "*i32" if is_integer else \
            "*fp16" if name == "multiply" and parameter.name == "x_ptr" else "*fp32"
    source = ASTSource(function, signature, {"BLOCK": 16})
    return triton.compile(source, target=GPUTarget("hip", "gfx942", 64)).asm["ttir"], \
        [one for one, kind in signature.items() if kind != "constexpr"]


@pytest.mark.parametrize("name", NAMES)
def test_integers_that_reach_an_address_a_bound_or_a_branch_steer(name, tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    text, names = ttir(name)
    found = dict(zip(names, steering_arguments(text), strict=True))
    integers = {one: steers for one, steers in found.items()
                if one.startswith(("steer_", "data_", "room_"))}
    assert integers == {one: one.startswith(("steer_", "room_")) for one in integers}


def test_a_module_with_jumps_is_not_understood_and_steers():
    text = """module {
  tt.func public @k(%a_ptr: !tt.ptr<i32>) {
    cf.br ^bb1
  ^bb1:
    tt.return
  }
}"""
    assert steering_arguments(text) == [True]
