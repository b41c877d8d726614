"""Expressions: the safe subset of Python that common/space/expr.h describes, by its syntax tree.

Values are int (64-bit, every operation checked), bool, str and None. Nothing of Python is called
but what stands here. What the C programs refuse is refused here too; the texts of errors differ.
"""

import ast
import operator
import re
from functools import lru_cache, partial, reduce
from typing import Any, Callable, Mapping

from .._errors import PackError

Value = None | bool | int | str
Scope = Mapping[str, Value]
Evaluate = Callable[[Scope], Any]
INT_MIN, INT_MAX = -(2**63), 2**63 - 1
TEXT_MAX = 4096


class ExpressionError(PackError):
    """An expression that cannot be read or has no value."""


def _integer(value: Any) -> int:
    if not isinstance(value, int):
        raise ExpressionError(f"{value!r} is no integer")
    return int(value)


def _checked(value: int) -> int:
    if not INT_MIN <= value <= INT_MAX:
        raise ExpressionError("the result is wider than 64 bits")
    return value


def _arithmetic(operation: Callable[[int, int], int], left: Any, right: Any) -> int:
    return _checked(operation(_integer(left), _integer(right)))


def _divide(operation: Callable[[int, int], int], left: Any, right: Any) -> int:
    if _integer(right) == 0:
        raise ExpressionError("division by zero")
    return _arithmetic(operation, left, right)


def _power(left: Any, right: Any) -> int:
    base, exponent = _integer(left), _integer(right)
    if exponent < 0:
        raise ExpressionError("a negative exponent makes no integer")
    if abs(base) > 1 and exponent > 64:
        raise ExpressionError("the result is wider than 64 bits")
    return _checked(base ** (exponent if abs(base) > 1 else exponent % 2 + 2 * (exponent > 1)))


def _order(operation: Callable[[Any, Any], bool], left: Any, right: Any) -> bool:
    if any(isinstance(left, kind) and isinstance(right, kind) for kind in (int, str)):
        return operation(left, right)
    raise ExpressionError(f"{left!r} and {right!r} have no order")


def _extreme(choose: Callable[[Any, Any], bool], *values: Any) -> Value:
    return reduce(lambda a, b: b if _order(choose, b, a) else a, values)


def _is_in(value: Any, contents: Any) -> bool:
    if isinstance(contents, list) or isinstance(contents, str) and isinstance(value, str):
        return value in contents
    raise ExpressionError(f"{value!r} cannot be looked for in {contents!r}")


def _positive(value: Any) -> int:
    if _integer(value) < 1:
        raise ExpressionError("next_pow2 and log2 want a number of at least 1")
    return value


_UNARY: dict[type, Callable[[Any], Value]] = {
    ast.Not: operator.not_,
    ast.USub: lambda value: _checked(-_integer(value)),
    ast.UAdd: _integer,
}
_BINARY: dict[type, Callable[[Any, Any], Value]] = {
    ast.Add: partial(_arithmetic, operator.add),
    ast.Sub: partial(_arithmetic, operator.sub),
    ast.Mult: partial(_arithmetic, operator.mul),
    ast.FloorDiv: partial(_divide, operator.floordiv),
    ast.Mod: partial(_divide, operator.mod),
    ast.Pow: _power,
}
_COMPARE: dict[type, Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: partial(_order, operator.lt),
    ast.LtE: partial(_order, operator.le),
    ast.Gt: partial(_order, operator.gt),
    ast.GtE: partial(_order, operator.ge),
    ast.In: _is_in,
    ast.NotIn: lambda a, b: not _is_in(a, b),
}
_CALLS: dict[str, tuple[int, int, Callable[..., Value]]] = {
    "min": (1, 16, partial(_extreme, operator.lt)),
    "max": (1, 16, partial(_extreme, operator.gt)),
    "abs": (1, 1, lambda v: _checked(abs(_integer(v)))),
    "ceil_div": (2, 2, lambda a, b: _checked(-_divide(lambda x, y: -x // y, a, b))),
    "next_pow2": (1, 1, lambda v: _checked(1 << (_positive(v) - 1).bit_length())),
    "log2": (1, 1, lambda v: _positive(v).bit_length() - 1),
}


def _is_one_text(literal: str) -> bool:
    """One quoted text, neither prefixed nor several that Python would join."""
    return bool(re.fullmatch(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""", literal, re.DOTALL))


class _Reader:
    """Makes a function of a scope of a syntax tree; refuses what is not of the language."""

    def __init__(self, text: str, lambda_name: str | None):
        self.text, self.lambda_name = text, lambda_name
        self.names: set[str] = set()

    def refuse(self, node: ast.AST, what: str) -> ExpressionError:
        return ExpressionError(f'column {getattr(node, "col_offset", 0) + 1} of "{self.text}": '
                               f'{what}')

    def name(self, node: ast.AST, name: str) -> Evaluate:
        self.names.add(name)

        def read(scope: Scope) -> Value:
            if name not in scope:
                raise self.refuse(node, f"the name {name} is not known here; known are "
                                        f"{', '.join(sorted(scope))}")
            if isinstance(scope[name], float):
                raise self.refuse(node, f"{name} is a float, which expressions do not calculate "
                                        "with")
            return scope[name]

        return read

    def read(self, node: ast.AST) -> Evaluate:
        kind = type(node).__name__
        method = getattr(self, "read_" + kind, None)
        if method is None:
            raise self.refuse(node, f"{kind} is not part of the language of expressions")
        return method(node)

    def read_Constant(self, node: ast.Constant) -> Evaluate:
        value = node.value
        if value is not None and not isinstance(value, (bool, int, str)):
            raise self.refuse(node, f"{value!r} is neither an integer nor a text")
        literal = ast.get_source_segment(self.text, node) or ""
        if isinstance(value, str) and not _is_one_text(literal):
            raise self.refuse(node, "a text has no prefix and is not written in pieces")
        if type(value) is int and not re.fullmatch(r"0[xX][0-9a-fA-F_]+|[0-9_]+", literal):
            raise self.refuse(node, "an integer is decimal or begins with 0x")
        if isinstance(value, int) and value > INT_MAX:
            raise self.refuse(node, f"{value} is wider than 64 bits")
        return lambda scope: value

    def read_Name(self, node: ast.Name) -> Evaluate:
        if node.id == self.lambda_name:
            raise self.refuse(node, f"{node.id} is the lambda's argument: read its members")
        return self.name(node, node.id)

    def read_Subscript(self, node: ast.Subscript) -> Evaluate:
        target = node.value
        if isinstance(target, ast.Attribute) and target.attr == "kwargs":
            target = target.value
        member = getattr(node.slice, "value", None)
        return self.member(node, target, member if isinstance(member, str) else None)

    def member(self, node: ast.AST, of: ast.AST, name: str | None) -> Evaluate:
        is_lambdas = self.lambda_name and isinstance(of, ast.Name) and of.id == self.lambda_name
        if not is_lambdas or name is None:
            raise self.refuse(node, "only the lambda's argument has members")
        return self.name(node, name)

    def read_Attribute(self, node: ast.Attribute) -> Evaluate:
        return self.member(node, node.value, node.attr)

    def read_BoolOp(self, node: ast.BoolOp) -> Evaluate:
        values, stops = [self.read(v) for v in node.values], isinstance(node.op, ast.Or)

        def evaluate(scope: Scope) -> Value:
            for value in values:
                result = value(scope)
                if bool(result) == stops:
                    break
            return result

        return evaluate

    def read_UnaryOp(self, node: ast.UnaryOp) -> Evaluate:
        # -9223372036854775808 is a value although its magnitude is none.
        if isinstance(node.op, ast.USub) and isinstance(
                node.operand, ast.Constant) and node.operand.value == 2**63:
            return lambda scope: INT_MIN
        value = self.read(node.operand)
        operation = _UNARY.get(type(node.op))
        if operation is None:
            raise self.refuse(node, "~ is not part of the language of expressions")
        return lambda scope: operation(value(scope))

    def read_BinOp(self, node: ast.BinOp) -> Evaluate:
        operation = _BINARY.get(type(node.op))
        if operation is None:
            hint = "; / makes floats, // does not" if isinstance(node.op, ast.Div) else ""
            raise self.refuse(node, f"{type(node.op).__name__} is not part of the language of "
                                    f"expressions{hint}")
        left, right = self.read(node.left), self.read(node.right)
        return lambda scope: operation(left(scope), right(scope))

    def read_IfExp(self, node: ast.IfExp) -> Evaluate:
        test, yes, no = self.read(node.test), self.read(node.body), self.read(node.orelse)
        return lambda scope: yes(scope) if test(scope) else no(scope)

    def read_contents(self, node: ast.AST) -> Evaluate:
        if isinstance(node, (ast.Tuple, ast.List)):
            elements = [self.read(e) for e in node.elts]
            return lambda scope: [e(scope) for e in elements]
        return self.read(node)

    def read_Compare(self, node: ast.Compare) -> Evaluate:
        first = self.read(node.left)
        links = []
        for op, right in zip(node.ops, node.comparators):
            is_in = isinstance(op, (ast.In, ast.NotIn))
            if isinstance(right, (ast.Tuple, ast.List)) and right is not node.comparators[-1]:
                raise self.refuse(right, "a tuple stands on the right of in, and nothing is "
                                         "compared with it")
            if isinstance(op, (ast.Is, ast.IsNot)):
                raise self.refuse(node, "is and is not are not part of the language of expressions")
            links.append((_COMPARE[type(op)], self.read_contents(right) if is_in else
                          self.read(right)))

        def evaluate(scope: Scope) -> Value:
            left = first(scope)
            for holds, right in links:
                value = right(scope)
                if not holds(left, value):
                    return False
                left = value
            return True

        return evaluate

    def read_Call(self, node: ast.Call) -> Evaluate:
        name = node.func.id if isinstance(node.func, ast.Name) else None
        if name not in _CALLS or node.keywords:
            raise self.refuse(node, f"only {', '.join(_CALLS)} can be called")
        least, most, function = _CALLS[name]
        if not least <= len(node.args) <= most:
            raise self.refuse(node, f"{name} takes "
                                    f"{least if least == most else f'{least} to {most}'} values")
        values = [self.read(v) for v in node.args]
        return lambda scope: function(*[v(scope) for v in values])


class Expression:
    """An expression read once and evaluated often. `names`: what it reads."""

    def __init__(self, text: str):
        self.text = text.strip()
        if len(self.text.encode()) > TEXT_MAX:
            raise ExpressionError(f'an expression has at most {TEXT_MAX} bytes: '
                                  f'"{self.text[:60]}…"')
        self.tree, argument = parse_expression(self.text), None
        if isinstance(self.tree, ast.Lambda):
            argument = ast.unparse(self.tree.args)
            if not argument.isidentifier():
                raise ExpressionError(f'"{self.text}": a lambda has one plain argument')
            self.tree = self.tree.body
        reader = _Reader(self.text, argument)
        self._evaluate = reader.read(self.tree)
        self.names = frozenset(reader.names)

    def evaluate(self, scope: Scope) -> Value:
        try:
            return self._evaluate(scope)
        except ExpressionError as error:
            if self.text in str(error):
                raise
            raise ExpressionError(f'"{self.text}": {error}') from None


def parse_expression(text: str) -> ast.expr:
    """The syntax tree of one expression; whatever Python itself refuses is an ExpressionError."""
    try:
        return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ExpressionError(
            f'"{text}" is no expression: {getattr(error, "msg", error)}') from None


_kept = lru_cache(maxsize=4096)(Expression)


def expression(text: Any) -> Expression:
    return _kept(str(text))


def substitute(text: str, values: Scope) -> str:
    """The expression's text with some names replaced by their values."""

    class Replace(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.AST:
            return ast.Constant(values[node.id]) if node.id in values else node

        def visit_Subscript(self, node: ast.Subscript) -> ast.AST:  # lambda members
            name = node.slice.value if isinstance(node.slice, ast.Constant) else None
            return ast.Constant(values[name]) if name in values else ast.Name(name)

        def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
            return ast.Constant(values[node.attr]) if node.attr in values else ast.Name(node.attr)

        def visit_Call(self, node: ast.Call) -> ast.AST:  # whose function is no name of these
            node.args = [self.visit(a) for a in node.args]
            return node

    return ast.unparse(ast.fix_missing_locations(Replace().visit(Expression(text).tree)))


def grouped(text: str) -> str:
    """The text so that an operator can follow it."""
    return text if re.fullmatch(r"[A-Za-z_]\w*|\d+|\w+\([^()]*\)", text) else f"({text})"
