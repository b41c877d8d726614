"""What a kernel is called with, from the text of --signature and --grid, as members of a manifest
(common/kernel/kernel.h).

    --signature 'a_ptr=*fp16[M,K], c_ptr=*fp16[M,N]:write, M=i64, stride_am=i64(K),
                 ACTIVATION=constexpr("")'

    NAME=*DTYPE[EXTENT,…]          a buffer that is read (readwrite where the autotune decorator
                                   resets or restores it); :write or :readwrite when it is written
    NAME=*DTYPE[EXTENT,…]:read:F   with a fill: normal, uniform, zeros, index, uniform(0,1),
                                   integers(0,9)
    NAME=TYPE                      a scalar with the value of the key's member of that name
    NAME=TYPE(EXPRESSION)          a scalar: an expression over the key
    NAME=constexpr(EXPRESSION)     compiled in: an expression over the key and the config, or a
                                   float, a dtype (tl.float32) or a tuple
    NAME=None                      compiled in: a pointer or a number that is not given

Parameters that the key names are scalars (i64) without being listed; those that configs set are not
listed at all.
"""

import ast
import re
from dataclasses import dataclass, field
from typing import Any, Mapping

from .._canonical import Fields, Json
from .._errors import PackError
from .constants import parse_constant
from .expressions import Expression, parse_expression

DTYPES = {
    "i1": "bool", "i8": "int8", "u8": "uint8", "i16": "int16", "u16": "uint16", "i32": "int32",
    "u32": "uint32", "i64": "int64", "u64": "uint64", "fp16": "float16", "bf16": "bfloat16",
    "fp32": "float32", "fp64": "float64", "fp8e4nv": "float8_e4m3fn", "fp8e5": "float8_e5m2",
    "fp8e4b8": "float8_e4m3fnuz", "fp8e5b16": "float8_e5m2fnuz", "fp8e4b15": "float8e4b15"
}
# Of an element, by torch's name.
BYTES = {name: max(int(re.findall(r"\d+", short)[0]) // 8, 1) for short, name in DTYPES.items()}
EXACT_MAX = 2**53  # a fill's integers are doubles in C
# What a fill's integers are between: all that a type has, as packed data has them.
INTEGERS = {"bool": (0, 1)}
for _bits in (8, 16, 32, 64):
    INTEGERS[f"int{_bits}"] = max(-2**(_bits - 1), -EXACT_MAX), min(2**(_bits - 1) - 1, EXACT_MAX)
    INTEGERS[f"uint{_bits}"] = 0, min(2**_bits - 1, EXACT_MAX)
FACTS = ("gpu_name", "arch", "cus", "occupancy", "warp_size")
_CALLS = {"cdiv": "ceil_div", "next_power_of_2": "next_pow2"}


@dataclass
class Signature:
    # members of manifest arguments, by name
    arguments: dict[str, Json] = field(default_factory=dict)
    defines: dict[str, str] = field(default_factory=dict)
    constants: Json = field(default_factory=dict)  # JSON of constants.py

    @property
    def names(self) -> list[str]:
        return [*self.arguments, *self.defines, *self.constants]


def _split(text: str) -> list[str]:
    """At the commas that stand in no bracket and no quotes."""
    parts, depth, start, quote = [], 0, 0, ""
    for i, c in enumerate(text):
        if quote:
            quote = "" if c == quote else quote
        elif c in "'\"":
            quote = c
        elif c in "[(":
            depth += 1
        elif c in "])":
            depth -= 1
        elif c == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    return [part.strip() for part in [*parts, text[start:]] if part.strip()]


def _dtype(name: str, item: str) -> str:
    if name not in DTYPES:
        raise PackError(f'--signature: "{item}" has the type {name}; known are {", ".join(DTYPES)}')
    return DTYPES[name]


def _fill(text: str, item: str) -> Any:
    if text in ("normal", "uniform", "zeros", "index"):
        return text
    match = re.fullmatch(r"(uniform|integers)\(\s*([-+.\deE]+)\s*,\s*([-+.\deE]+)\s*\)", text)
    if not match:
        raise PackError(f'--signature: "{item}" has the fill {text}; known are normal, uniform, '
                        "zeros, index, uniform(LOW,HIGH) and integers(LOW,HIGH)")
    number = int if match[1] == "integers" else float
    try:
        return {match[1]: [number(match[2]), number(match[3])]}
    except ValueError:
        raise PackError(f'--signature: "{item}" has a fill whose ends are no numbers') from None


def _buffer(name: str, rest: str, item: str) -> Json:
    match = re.fullmatch(r"\*(\w+)\s*\[(.+)\]\s*(?::\s*(\w+)\s*)?(?::\s*(.+?)\s*)?", rest)
    if not match:
        raise PackError(f'--signature: "{item}" is not NAME=*DTYPE[EXTENT,…]:ACCESS:FILL')
    access = match[3]  # None: what the decorator implies, else read
    if access not in (None, "read", "write", "readwrite"):
        raise PackError(f'--signature: "{item}" has the access {access}; it is read, write or '
                        "readwrite")
    argument = {
        "name": name, "dtype": _dtype(match[1], item),
        "shape": [Expression(e).text for e in _split(match[2])], "access": access
    }
    if match[4]:
        argument["fill"] = _fill(match[4], item)
    return argument


def parse_signature(text: str) -> Signature:
    signature = Signature()
    for item in _split(text):
        name, equals, rest = (part.strip() for part in item.partition("="))
        if not equals or not name.isidentifier():
            raise PackError(f'--signature: "{item}" is not NAME=TYPE')
        if name in signature.names:
            raise PackError(f"--signature: {name} stands there twice")
        if rest.startswith("*"):
            signature.arguments[name] = _buffer(name, rest, item)
            continue
        if rest == "None":
            signature.defines[name] = "None"
            continue
        match = re.fullmatch(r"(\w+)\s*(?:\((.*)\))?", rest, re.DOTALL)
        if not match or (match[1] == "constexpr" and match[2] is None):
            raise PackError(f'--signature: "{item}" is not NAME=TYPE, NAME=TYPE(EXPRESSION) or '
                            "NAME=constexpr(EXPRESSION)")
        if match[1] == "constexpr":
            constant = parse_constant(match[2])
            if isinstance(constant, (float, dict)):
                signature.constants[name] = constant
            else:
                signature.defines[name] = Expression(match[2]).text
        elif match[1] == "tuple":
            raise PackError(f'--signature: "{item}" is a tuple that is passed, and agents pass '
                            f"single values: annotate {name} with tl.constexpr, and write "
                            "constexpr((…))")
        elif match[2] is not None and isinstance(parse_constant(match[2]), float):
            raise PackError(f'--signature: "{item}" is a float that is passed, and manifests state '
                            f"whole numbers: write another one, like {name}={match[1]}(1), which "
                            "compiles to the same code and is what agents measure with")
        else:
            value = Expression(match[2]).text if match[2] is not None else name
            signature.arguments[name] = {"name": name, "dtype": _dtype(match[1], item),
                                         "value": value}
    return signature


@dataclass(frozen=True)
class Names:
    """The names that a launch expression may read, and a manifest's expressions of `values`."""

    plain: frozenset[str]  # key members, parameters of the space, facts: as they are
    values: Mapping[str, str]  # scalars of the call: their expressions
    constants: Fields  # of the module
    buffers: frozenset[str] = frozenset()  # which are not None

    def resolve(self, name: str, what: str) -> ast.expr:
        if name in self.plain:
            return ast.Name(name)
        if name in self.values:
            return Expression(self.values[name]).tree
        if name in self.constants:
            return ast.Constant(self.constants[name])
        raise PackError(f"{what} reads {name}, which is neither in the key "
                        f"{{{', '.join(sorted(self.plain))}}} nor a scalar argument")


def translate(node: ast.expr, names: Names, what: str) -> str:
    """A Python expression of a launch (`triton.cdiv(M, META['BLOCK_M'])`) as one of a manifest."""

    class Translate(ast.NodeTransformer):
        def visit_Compare(self, compare: ast.Compare) -> ast.AST:
            """`x is None` has an answer for a buffer, and is `==` for what else may be None."""
            if len(compare.ops) == 1 and isinstance(compare.ops[0], (ast.Is, ast.IsNot)):
                left, right = compare.left, compare.comparators[0]
                is_equal = isinstance(compare.ops[0], ast.Is)
                name = left.slice.value if isinstance(left, ast.Subscript) and \
                    isinstance(left.slice, ast.Constant) else \
                    getattr(left, "id", None)
                other = right.value if isinstance(right, ast.Constant) else ...
                if other is None and name in names.buffers:
                    return ast.Constant(not is_equal)
                if other is None or isinstance(other, bool):
                    return ast.Compare(self.visit(left), [ast.Eq() if is_equal else ast.NotEq()],
                                       [right])
            return self.generic_visit(compare)

        def visit_Subscript(self, subscript: ast.Subscript) -> ast.AST:
            if isinstance(subscript.slice, ast.Constant) and isinstance(subscript.value, ast.Name):
                return names.resolve(str(subscript.slice.value), what)
            return self.visit_Attribute(subscript)

        def visit_Name(self, name: ast.Name) -> ast.AST:
            return names.resolve(name.id, what)

        def visit_Attribute(self, node: ast.expr) -> ast.AST:
            raise PackError(f"{what} reads {ast.unparse(node)}; expressions know names only, like "
                            "the key's")

        def visit_Call(self, call: ast.Call) -> ast.AST:
            function = call.func
            name = function.attr if isinstance(function, ast.Attribute) else getattr(
                function, "id", "")
            return ast.Call(ast.Name(_CALLS.get(name, name)), [self.visit(a) for a in call.args],
                            call.keywords)

    return Expression(ast.unparse(ast.fix_missing_locations(Translate().visit(node)))).text


def parse_grid(text: str, names: Names) -> list[str]:
    """"lambda META: (triton.cdiv(M, META['BLOCK_M']), 1)", a tuple, or one expression."""
    tree = parse_expression(text)
    if isinstance(tree, ast.Lambda):
        tree = tree.body
    elements = tree.elts if isinstance(tree, (ast.Tuple, ast.List)) else [tree]
    if not 1 <= len(elements) <= 3:
        raise PackError("--grid has 1 to 3 dimensions")
    return [translate(element, names, "--grid") for element in elements]
