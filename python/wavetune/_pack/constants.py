"""Constexprs that expressions cannot say: floats, dtypes, tuples. A kernel folder keeps them in
constexprs.json, one of its sources, so that its hash covers them: {"eps": 1e-05, "DTYPE": {"dtype":
"float32"}, "SHAPE": {"tuple": [4, null]}}.
"""

import ast
from typing import Any

from .._errors import PackError

FILE = "constexprs.json"
_TYPES = ("int1", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
          "float16", "bfloat16", "float32", "float64", "float8e4nv", "float8e4b8", "float8e5",
          "float8e5b16", "float8e4b15")


def parse_constant(text: str) -> Any:
    """The JSON of a text of Python's (1e-5, tl.float32, (4, None)), or None."""
    def read(node: ast.expr) -> Any:
        if isinstance(node, ast.Constant) and (node.value is None or
                                               isinstance(node.value, (bool, int, float, str))):
            return node.value
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and \
                isinstance(node.operand, ast.Constant) and \
                type(node.operand.value) in (int, float):
            return -node.operand.value
        if isinstance(node, ast.Tuple):
            return {"tuple": [read(element) for element in node.elts]}
        if isinstance(node, ast.Attribute) and node.attr in _TYPES and ast.unparse(
                node.value) in ("tl", "triton.language"):
            return {"dtype": node.attr}
        raise ValueError

    try:
        return read(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError):
        return None


def from_json(json: Any, place: str) -> Any:
    if json is None or isinstance(json, (bool, int, float, str)):
        return json
    if isinstance(json, dict) and len(json) == 1:
        (kind, value), = json.items()
        if kind == "tuple" and isinstance(value, list):
            return tuple(from_json(element, place) for element in value)
        if kind == "dtype" and value in _TYPES:
            import triton.language as tl
            return getattr(tl, value)
    raise PackError(f'{place}: a constexpr is a number, a text, null, {{"dtype": NAME}} or '
                    '{"tuple": […]}')
