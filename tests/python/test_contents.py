"""Values in the documents of captures, and the classes of integer tensors."""

import array
import math
import random
import types

import pytest
import triton.language as tl
from wavetune._captured.module import recreate
from wavetune._errors import PackError
from wavetune._runtime.contents import FORMATS, class_of
from wavetune._runtime.launch import Launch, specialised
from wavetune._runtime.values import TRITON_NAMES, decode, dtype_name, encode


@pytest.mark.parametrize("values, found", [
    ([], {"class": "constant", "value": 0}), ([7], {"class": "constant", "value": 7}),
    ([-3] * 40000, {"class": "constant", "value": -3}), (range(5), {"class": "ramp", "start": 0, "step": 1}),
    (range(90000, 0, -3), {"class": "ramp", "start": 90000, "step": -3}), ([0, 2, 1, 3], {"class": "permutation"}),
    (random.Random(1).sample(range(40000), 40000), {"class": "permutation"}),
    ([0, 0, 5, 9], {"class": "sorted", "low": 0, "high": 9}), ([0, 2, 2, 3, 1], {"class": "integers", "low": 0, "high": 3}),
    ([0, 1, 1, 3, 2, 5, 5, 7, 5], {"class": "integers", "low": 0, "high": 7}),
    ([*range(20000), 5, *range(20000)], {"class": "integers", "low": 0, "high": 19999}),
    ([*range(20000), 19999, *range(20000, 40000)], {"class": "sorted", "low": 0, "high": 39999})])
def test_integers_have_the_first_class_that_fits(values, found):
    assert class_of(array.array("q", values).tobytes(), "int64") == found
    assert class_of(array.array("i", values).tobytes(), "int32") == found


def test_every_integer_type_has_a_format():
    for dtype, code in FORMATS.items():
        top = 1 if dtype == "bool" else 2**(8 * array.array(code).itemsize - (1 if code.islower() else 0)) - 1
        assert class_of(array.array(code, [top, 0]).tobytes(), dtype) in (
            {"class": "ramp", "start": top, "step": -top}, {"class": "permutation"})


@pytest.mark.parametrize("value, text", [
    (None, None), (True, True), (5, 5), (2**63, {"integer": str(2**63)}), (0.5, 0.5), (math.inf, {"float": "inf"}),
    (-math.inf, {"float": "-inf"}), ("text", "text"), ((1, (2.5, None)), {"tuple": [1, {"tuple": [2.5, None]}]}),
    (tl.bfloat16, {"dtype": "bfloat16"}), (tl.float8e4nv, {"dtype": "float8_e4m3fn"}), (tl.int1, {"dtype": "bool"})])
def test_values_are_written_and_read(value, text):
    assert encode(value) == text and decode(text) == value and type(decode(text)) is type(value)
    inner = decode(encode(tl.constexpr(value)))
    assert type(inner) is tl.constexpr and inner.value == value


def test_nan_is_written_and_read():
    assert encode(math.nan) == {"float": "nan"} and math.isnan(decode({"float": "nan"}))


@pytest.mark.parametrize("value", [object(), b"bytes", 1j, {"a": 1}, (1, object()), "\ud800", "x" * 70000, len])
def test_other_values_have_no_form(value):
    with pytest.raises(ValueError):
        encode(value)


@pytest.mark.parametrize("text", [[], {}, {"a": 1, "b": 2}, {"float": "1"}, {"pickle": "x"}, {"dtype": 5}, {"tuple": 5},
                                  {"integer": "x"}])
def test_other_forms_are_no_values(text):
    with pytest.raises(ValueError):
        decode(text)


def test_every_type_of_tritons_has_torchs_name():
    for torch, own in TRITON_NAMES.items():
        assert dtype_name(tl.dtype(own)) == torch


def test_sentences_are_few_and_short():
    launch = Launch()
    for i in range(100):
        launch.refuse(f"{i} " + "x" * 1000)
        launch.refuse("0 " + "x" * 1000)
    assert len(launch.refused) <= 21 and max(map(len, launch.refused)) == 300


def test_integers_are_special_as_triton_has_them():
    classes = [specialised(n) for n in (1, 16, 17, 2**31, 2**63)]
    assert len({str(one) for one in classes}) == 5 and specialised(17) == specialised(18) != specialised(True)
    assert specialised(None) == ["NoneType", "None"] and specialised((1, 2.0)) == ["tuple", specialised(1), ["float"]]


def test_a_capture_that_is_no_document_is_refused(tmp_path):
    for nonsense in ({}, {"version": 1}, {"version": 1, "parts": []}, {"version": 1, "parts": [5]},
                     {"version": 1, "parts": [{"module": "a"}]}, types.MappingProxyType({})):
        with pytest.raises(PackError):
            recreate(nonsense, tmp_path)
