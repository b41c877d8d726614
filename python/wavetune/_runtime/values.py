"""Values as the documents of captures write them: JSON, and back.

    5, 0.5, true, null, "text"      as they are
    {"float": "inf"}                also "-inf" and "nan"
    {"integer": "18446744073709551615"}   what does not fit into 64 signed bits
    {"dtype": "bfloat16"}           one of Triton's types, by torch's name for it where it has one
    {"torch": "float32"}            one of torch's types
    {"enum": ["Kind.A", VALUE]}     a member of an enumeration that prints otherwise than its value
    {"constexpr": VALUE}            a triton.language.constexpr
    {"tuple": [VALUE, …]}           a tuple or list
"""

from __future__ import annotations

import enum
import math

TORCH_NAMES = {
    "int1": "bool", "fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "fp64": "float64",
    "fp8e4nv": "float8_e4m3fn", "fp8e5": "float8_e5m2", "fp8e4b8": "float8_e4m3fnuz",
    "fp8e5b16": "float8_e5m2fnuz"
}
TRITON_NAMES = {torch: triton for triton, torch in TORCH_NAMES.items()}
TEXT_MAX = 65536


def is_triton(value, name: str) -> bool:
    """Whether the value is an instance of Triton's class of that name."""
    kind = type(value)
    return kind.__name__ == name and str(getattr(kind, "__module__", "")).startswith("triton.")


def dtype_name(dtype) -> str:
    """torch's name of a type of torch or of Triton: "bfloat16"."""
    text = str(dtype)
    text = text[len("torch."):] if text.startswith("torch.") else text
    return TORCH_NAMES.get(text, text)


def is_torch_dtype(value) -> bool:
    return type(value).__name__ == "dtype" and type(value).__module__ == "torch"


class TorchDtype:
    """One of torch's types, where there is no torch: compiled code has its name only."""

    def __init__(self, name: str):
        self.name = name

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __eq__(self, other) -> bool:
        return isinstance(other, TorchDtype) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)


def _member(path: str, value):
    """A member of an enumeration that prints and compares as it, also as its text or number."""
    own, _, name = path.rpartition(".")
    if not own.isidentifier() or not name.isidentifier() or name.startswith("_"):
        raise ValueError(f"{path[:100]} is no member of an enumeration")
    kind = type(value) if type(value) in (str, int, float) else None
    return enum.Enum(own, {name: value}, type=kind)[name]


def encode(value):
    """The value as JSON; ValueError with what it is, where it has no such form."""
    if is_triton(value, "constexpr"):
        return {"constexpr": encode(value.value)}
    if is_triton(value, "dtype"):
        return {"dtype": dtype_name(value)}
    if is_torch_dtype(value):
        return {"torch": dtype_name(value)}
    if isinstance(value, enum.Enum) and str(value) != str(value.value):
        return {"enum": [f"{type(value).__name__}.{value.name}", encode(value.value)]}
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        number = int(value)
        return number if -2**63 <= number < 2**63 else {"integer": str(number)}
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"float": str(float(value))}
    if isinstance(value, str) and len(value) <= TEXT_MAX:
        try:
            value.encode()
        except UnicodeError:
            raise ValueError("a string that is no text") from None
        return str(value)
    if type(value) in (tuple, list):
        return {"tuple": [encode(part) for part in value]}
    raise ValueError(f"a {type(value).__module__}.{type(value).__qualname__}")


def decode(value):
    """What `encode` wrote; ValueError where it is none of its forms."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, dict) and len(value) == 1:
        (kind, inner), = value.items()
        if kind == "tuple" and isinstance(inner, list):
            return tuple(map(decode, inner))
        if kind == "enum" and isinstance(inner, list) and len(inner) == 2 and isinstance(
                inner[0], str):
            return _member(inner[0], decode(inner[1]))
        if kind == "constexpr":
            from triton.language import constexpr
            return constexpr(decode(inner))
        if isinstance(inner, str):
            if kind == "float" and inner in ("inf", "-inf", "nan"):
                return float(inner)
            if kind == "integer":
                return int(inner)
            if kind == "torch":
                return TorchDtype(inner)
            if kind == "dtype":
                from triton.language import dtype
                return dtype(TRITON_NAMES.get(inner, inner))
    raise ValueError(f"{str(value)[:100]} is no value of a capture")
