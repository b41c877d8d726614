"""The specialisation that pack chooses is the one of Triton's own JIT, and `when` is true exactly for its keys."""

import itertools
import sys
import types

import pytest
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget

from wavetune._errors import PackError
from wavetune._pack.expressions import expression
from wavetune._pack.specialise import BYTES, TYPES, define_values, specialise, variants_of
from wavetune._pack.stubs import Driver
from wavetune._pack.target import triton_version, uses_buffer_ops

AMD, NVIDIA = GPUTarget("hip", "gfx942", 64), GPUTarget("cuda", 90, 32)


@triton.jit
def plain(a_ptr, b_ptr, M, stride, eps, flag, BLOCK: tl.constexpr):
    pass


@triton.jit(do_not_specialize=["M"], do_not_specialize_on_alignment=["a_ptr", "stride"])
def unspecialised(a_ptr, b_ptr, M, stride, eps, flag, BLOCK: tl.constexpr):
    pass


@triton.jit
def annotated(a_ptr, b_ptr: "tl.const", M: tl.int64, stride: tl.int32, eps: tl.float32, flag, BLOCK: tl.constexpr):
    pass


class Tensor:
    """The members of a torch tensor that Triton's JIT uses."""

    def __init__(self, dtype, size):
        self.dtype, self.size = dtype, size

    def data_ptr(self):
        return 4096

    def ptr_range(self):
        return self.size


ARGUMENTS = [{"name": "a_ptr", "dtype": "float16", "shape": ["M", "4"], "access": "read"},
             {"name": "b_ptr", "dtype": "uint8", "shape": ["stride"], "access": "write"},
             {"name": "M", "dtype": "int64", "value": "M"}, {"name": "stride", "dtype": "int64", "value": "stride"},
             {"name": "eps", "dtype": "float32", "value": "1"}, {"name": "flag", "dtype": "bool", "value": "M > 3"}]


def own(function, key, target):
    uses_range = target.backend == "hip" and uses_buffer_ops(triton_version(), {})
    return specialise(function, {"arguments": ARGUMENTS}, [{}], key, uses_range)


def tritons(function, key, target, monkeypatch):
    """(signature, constexprs, attributes) as JITFunction.run computes them, with nothing launched."""
    fake = types.ModuleType("torch")
    fake.Tensor = Tensor
    monkeypatch.setitem(sys.modules, "torch", fake)
    triton.runtime.driver.set_active(Driver(target))
    *_, backend, binder = function.create_binder()
    _, specialization, _ = binder(Tensor("float16", key["M"] * 8), Tensor("uint8", key["stride"]), key["M"],
                                  key["stride"], 1.0, key["M"] > 3, BLOCK=64)
    bound = dict(zip(function.arg_names, specialization))
    assert bound.pop("BLOCK")[0] == "constexpr"
    return ({name: kind for name, (kind, _) in bound.items() if kind != "constexpr"},
            {name: value for name, (kind, value) in bound.items() if kind == "constexpr"},
            {name: backend.parse_attr(value) for name, (_, value) in bound.items() if isinstance(value, str) and value})


@pytest.mark.parametrize("target", [AMD, NVIDIA], ids=["gfx942", "sm_90"])
@pytest.mark.parametrize("function", [plain, unspecialised, annotated], ids=lambda f: f.__name__)
def test_the_specialisation_is_the_one_of_tritons_jit(function, target, monkeypatch):
    values = (1, 2, 15, 16, 4096, 2**28, 2**28 - 1, 2**31 - 1, 2**31, 2**31 + 1, 2**33)
    for m, stride in itertools.product(values, values):
        if function is annotated and stride >= 2**31:
            continue
        key = {"M": m, "stride": stride}
        signature, constexprs, attributes = tritons(function, key, target, monkeypatch)
        mine = own(function, key, target)
        backend = triton.compiler.make_backend(target)
        assert mine.signature == signature, key
        assert mine.constexprs == constexprs, key
        assert {n: backend.parse_attr(a) for n, a in mine.attributes.items()} == attributes, key


def test_a_negative_integer_is_specialised_as_well():
    mine = specialise(plain, {"arguments": [*ARGUMENTS[:3], {"name": "stride", "dtype": "int64", "value": "-s"},
                                            *ARGUMENTS[4:]]}, [{}], {"M": 16, "stride": 1, "s": 2**40}, True)
    assert mine.signature["stride"] == "i64" and mine.attributes["stride"] == "D"
    assert expression(mine.when).evaluate({"M": 16, "stride": 2, "s": 2**40}) is True


@pytest.mark.parametrize("target", [AMD, NVIDIA], ids=["gfx942", "sm_90"])
def test_when_holds_for_exactly_the_keys_of_the_same_specialisation(target):
    values = (1, 2, 15, 16, 48, 4096, 2**28 - 1, 2**28, 2**31 - 1, 2**31, 2**33)
    keys = [{"M": m, "stride": s} for m, s in itertools.product(values, values)]
    mine = [own(plain, key, target) for key in keys]
    for one in mine:
        for key, other in zip(keys, mine):
            same = (one.signature, one.constexprs, one.attributes) == (other.signature, other.constexprs,
                                                                       other.attributes)
            assert expression(one.when).evaluate(key) == same, (one.when, key)


@pytest.mark.parametrize("dtype", TYPES)
def test_a_type_of_a_manifest_is_named_and_measured_as_triton_does(dtype):
    assert TYPES[dtype] == triton._utils.canonicalize_dtype(dtype)
    name = {"i": "int", "u": "uint"}.get(TYPES[dtype][0], TYPES[dtype][:2]) + TYPES[dtype].lstrip("iufpb")
    bits = 1 if dtype == "bool" else tl.dtype(name).primitive_bitwidth
    assert BYTES[dtype] * 8 == max(bits, 8)


def test_keys_of_one_specialisation_share_a_variant_and_the_most_special_comes_first():
    keys = [{"M": 7, "stride": 7}, {"M": 4096, "stride": 1}, {"M": 4096, "stride": 64}, {"M": 64, "stride": 16},
            {"M": 1024, "stride": 1}]
    variants = variants_of(plain, {"arguments": ARGUMENTS}, [{}], keys, True)
    assert [v.keys for v in variants] == [[keys[1], keys[4]], [keys[2], keys[3]], [keys[0]]]
    assert variants == variants_of(plain, {"arguments": ARGUMENTS}, [{}], keys, True)


DEFINED = {"arguments": ARGUMENTS[:2] + ARGUMENTS[3:], "defines": {"EVEN": "M % BLOCK == 0", "WIDTH": "next_pow2(M)"}}


@triton.jit
def with_defines(a_ptr, b_ptr, stride, eps, flag, EVEN: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    pass


def test_constexprs_of_the_key_are_equalities_for_every_config():
    configs = [{"BLOCK": block} for block in (32, 64, 128)]
    key = {"M": 64, "stride": 16}
    variant = specialise(with_defines, DEFINED, configs, key, True)
    assert variant.constexprs == {"WIDTH": 64}
    for text in ("(M % 32 == 0) == True", "(M % 64 == 0) == True", "(M % 128 == 0) == False", "next_pow2(M) == 64"):
        assert text in variant.when
    assert expression(variant.when).evaluate(key) is True
    assert expression(variant.when).evaluate({"M": 128, "stride": 16}) is False
    assert expression(variant.when).evaluate({"M": 33, "stride": 16}) is False


def test_a_scalar_of_the_config_is_specialised_for_every_config():
    arguments = [*ARGUMENTS[:3], {"name": "stride", "dtype": "int64", "value": "M * BLOCK"}, *ARGUMENTS[4:]]
    configs = [{"BLOCK": block, "num_warps": warps} for block in (16, 32) for warps in (4, 8)]
    variant = specialise(plain, {"arguments": arguments}, configs, {"M": 3, "stride": 2}, True)
    assert variant.signature["stride"] == "i32" and variant.attributes["stride"] == "D"
    assert variant.when.count("M * 16") == variant.when.count("M * 32") == 2, variant.when
    assert expression(variant.when).evaluate({"M": 5, "stride": 2}) is True
    odd = specialise(plain, {"arguments": arguments}, [{"BLOCK": 16}, {"BLOCK": 1}], {"M": 3, "stride": 2}, True)
    assert "stride" not in odd.attributes and expression(odd.when).evaluate({"M": 16, "stride": 2}) is False


@pytest.mark.parametrize("change, reason", [
    ({"value": "M // BLOCK"}, "stride is 1 for some configs only"), ({"value": "M * BLOCK ** 30"}, "stride needs 64 bits for some"),
    ({"dtype": "int32", "value": "M * BLOCK ** 30"}, "stride is int32 .*; make it int64")])
def test_a_scalar_that_changes_the_signature_with_the_config_is_refused(change, reason):
    arguments = [*ARGUMENTS[:3], {**ARGUMENTS[3], **change}, *ARGUMENTS[4:]]
    with pytest.raises(PackError, match=reason):
        specialise(plain, {"arguments": arguments}, [{"BLOCK": 1}, {"BLOCK": 4}], {"M": 5, "stride": 2}, True)


def test_a_buffer_with_segments_is_small_in_all_of_them():
    arguments = [{**ARGUMENTS[0], "shape": ["M", "BLOCK"], "segments": "BLOCK"}, *ARGUMENTS[1:]]
    configs = [{"BLOCK": 4}, {"BLOCK": 8}]
    key = {"M": 3, "stride": 2}
    variant = specialise(plain, {"arguments": arguments}, configs, key, True)
    assert "S" in variant.attributes["a_ptr"] and "M * 4 * 2 <= 2147483647" in variant.when
    with pytest.raises(PackError, match="a_ptr has more than 2.31 - 1 bytes for some configs only"):
        specialise(plain, {"arguments": arguments}, configs, {**key, "M": 2**27}, True)


def test_defines_may_read_the_device():
    defined = {**DEFINED, "defines": {"EVEN": "arch == 'sm_90'", "WIDTH": "M if 'sm_' in arch else BLOCK"}}
    facts = {"arch": "sm_90", "gpu_name": ""}
    variant = specialise(with_defines, defined, [{"BLOCK": 64}], {"M": 64, "stride": 16}, True, False, facts)
    assert "== 64" in variant.when and "arch" not in variant.when
    assert define_values(defined, {"M": 64, "BLOCK": 4, **facts}) == {"EVEN": True, "WIDTH": 64}


def test_an_integer_beyond_int32_in_an_int32_argument_is_refused():
    arguments = [dict(a, dtype="int32") if a["name"] == "stride" else a for a in ARGUMENTS]
    with pytest.raises(PackError, match="argument stride is int32 .* 2147483648"):
        specialise(plain, {"arguments": arguments}, [{}], {"M": 1, "stride": 2**31}, True)


@pytest.mark.parametrize("index, change, reason", [
    (4, {"dtype": "float64"}, "float as fp32"),
    (2, {"dtype": "int8"}, "integer as i32 or i64"),
    (2, {"value": "'text'"}, "value .* 'text'"),
    (2, {"value": "X + 1"}, "name X "),
    (0, {"shape": ["M", "scale"]}, "scale is a float"),
])
def test_an_argument_that_the_jit_would_pass_otherwise_is_refused(index, change, reason):
    arguments = [dict(a, **change) if i == index else a for i, a in enumerate(ARGUMENTS)]
    with pytest.raises(PackError, match=reason):
        specialise(plain, {"arguments": arguments}, [{}], {"M": 1, "stride": 2, "scale": 0.5}, True)


def test_an_argument_narrower_than_its_annotation_is_refused():
    arguments = [dict(a, dtype="int32") if a["name"] == "M" else a for a in ARGUMENTS]
    with pytest.raises(PackError, match="argument M is int32 .*i64"):
        specialise(annotated, {"arguments": arguments}, [{}], {"M": 1, "stride": 2}, True)


def test_a_condition_that_grows_beyond_an_expression_is_refused():
    configs = [{"BLOCK": block} for block in range(1, 400)]
    with pytest.raises(PackError, match="longer than 4096 bytes"):
        specialise(with_defines, DEFINED, configs, {"M": 64, "stride": 16}, True)


def test_buffers_are_special_where_the_version_and_the_environment_say_so():
    assert uses_buffer_ops((3, 6), {}) and not uses_buffer_ops((3, 5), {})
    assert uses_buffer_ops((3, 5), {"AMDGCN_USE_BUFFER_OPS": True})
    assert not uses_buffer_ops((3, 6), {"AMDGCN_USE_BUFFER_OPS": "0"})
    variant = specialise(plain, {"arguments": ARGUMENTS}, [{}], {"M": 16, "stride": 16}, False)
    assert variant.attributes["a_ptr"] == "D" and "M * 4 * 2" not in variant.when
