"""Triton's interpreter, made to compute what a GPU does: in a process that has TRITON_INTERPRET=1,
before kernels are defined.

The interpreter takes tensors of torch, and bfloat16 and 8-bit floats for integers of their bits.
Here memory is memory.py, and values of these types are held as float32 and rounded to nearest
wherever the program makes one of them. Atomic additions of floats are made, as if the program were
alone. What else depends on the order of programs, and what has no meaning without a GPU, ends the
interpretation. Threads: one.
"""

from __future__ import annotations

import ast
import inspect
import math
import re
import textwrap
import types
from typing import Any, Callable, Sequence

import numpy as np

from .._canonical import Json
from .._pack.signature import DTYPES
from .._runtime.values import TRITON_NAMES
from .floats import FLOAT8, bfloat16_of, bfloat16_widened, float8_of, float8_widened
from .memory import Memory, NotInterpreted

ATOMICS = "it uses atomic operations, whose result depends on all programs"
_FLOAT8 = {short: name for short, name in DTYPES.items() if name in FLOAT8}
_NAMES = {**TRITON_NAMES, **{name: short for short, name in _FLOAT8.items()}}
_WIDENED = {"bf16", *_FLOAT8}
_MEMBERS = ("TensorHandle", "InterpreterBuilder", "InterpretedFunction", "ASTTransformer",
            "interpreter_builder", "_get_np_dtype", "_patch_lang", "_patch_builtin")
_LIBDEVICE: dict[str, Callable[..., Any]] = {
    **{name: getattr(np, name) for name in (
        "exp exp2 expm1 log log2 log10 log1p sin cos tan tanh sinh cosh sqrt cbrt floor ceil trunc "
        "rint abs fabs fmod").split()},
    **{f"a{name}": getattr(np, f"arc{name}")
       for name in ("sin", "cos", "tan", "tan2", "sinh", "cosh", "tanh")},
    **{f"fast_{name}f": getattr(np, name)
       for name in ("exp", "log", "log2", "sin", "cos", "tanh", "divide")},
    "fast_powf": np.power, "pow": np.power, "div_rn": np.divide, "nearbyint": np.rint,
    "rsqrt": lambda x: 1 / np.sqrt(x), "fma": lambda x, y, z: x * y + z,
    "round": lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x),
    "erf": np.vectorize(math.erf, otypes=[np.float64]), "sigmoid": lambda x: 1 / (1 + np.exp(-x))
}


def _to_memory(kind: str, values: Any) -> Any:
    """Values of Triton's type `kind` as memory has them."""
    if kind == "bf16":
        return bfloat16_of(values)
    return float8_of(_FLOAT8[kind], values) if kind in _FLOAT8 else values


def _from_memory(kind: str, elements: Any) -> Any:
    if kind == "bf16":
        return bfloat16_widened(elements)
    return float8_widened(_FLOAT8[kind], elements) if kind in _FLOAT8 else elements


def _memory_type(kind: str, own: Any) -> Any:
    return np.dtype(np.uint16) if kind == "bf16" else np.dtype(np.uint8) if kind in _FLOAT8 else own


def _to_tf32(values: Any) -> Any:
    """32-bit floats as units of tf32 read them: the lower 13 bits are left out."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return (bits & np.uint32(0xffffe000)).view(np.float32).reshape(np.shape(values))


def _call(name: str, arguments: list[Any], node: ast.AST) -> ast.AST:
    return ast.copy_location(ast.Call(ast.Name(name, ast.Load()), arguments, []), node)


class _Logic(ast.NodeTransformer):
    """As compiled code has it: `and`, `or` and `not` of tensors are elementwise, and types and
    numbers that a function is called with are constexprs, which have a value."""

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        is_read = node.attr == "value" and isinstance(node.ctx, ast.Load)
        return _call("_wavetune_value", [node.value], node) if is_read else node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        none = ast.arguments([], [], None, [], [], None, [])
        values = [ast.Lambda(none, value) for value in node.values]
        name = "_wavetune_and" if isinstance(node.op, ast.And) else "_wavetune_or"
        return _call(name, values, node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        is_not = isinstance(node.op, ast.Not)
        return _call("_wavetune_not", [node.operand], node) if is_not else node


class Emulator:
    """Replaces parts of triton.runtime.interpreter, for the rest of the process. `work_max`: an
    operation counts 1, and 1 more for each 4,096 elements that it makes. `precisions`: that dots
    may have on the target. `has_atomics`: what was written is not what the launch computes."""

    def __init__(self, memory: Memory, work_max: int, precisions: Sequence[str] = ("ieee",)):
        from triton.runtime import interpreter
        import triton.language as tl
        lost = [name for name in _MEMBERS if not hasattr(interpreter, name)]
        if lost:
            raise NotInterpreted(f"the interpreter of this Triton has no {', '.join(lost)}; see "
                                 "_captured/emulator.py")
        self.interpreter, self.tl, self.memory = interpreter, tl, memory
        self.builder, self.np_dtype = interpreter.interpreter_builder, interpreter._get_np_dtype
        self.work, self.work_max = 0, work_max
        self.has_atomics = False
        self.has_drawn = False  # as far as is known
        # they are frozen
        object.__setattr__(self.builder.options, "allowed_dot_input_precisions", tuple(precisions))
        self._rewritten: dict[Any, Any] = {}
        self._types()
        self._operations()
        self._functions()

    def count(self, elements: int) -> None:
        self.work += 1 + (elements >> 12)
        if self.work > self.work_max:
            raise NotInterpreted("a program takes too long in the interpreter")

    def _types(self) -> None:
        """Values of the widened types are float32 everywhere."""
        def np_dtype(kind: Any) -> Any:
            element = kind.element_ty if isinstance(kind, self.tl.block_type) else kind
            is_widened = getattr(element, "name", None) in _WIDENED
            return np.dtype(np.float32) if is_widened else self.np_dtype(kind)

        def made(handle: Any, data: Any, dtype: Any, *more: Any, **named: Any) -> None:
            own(handle, data, dtype, *more, **named)
            data = np.asarray(handle.data)
            self.count(data.size)
            kind = getattr(dtype, "name", "")
            if kind in _WIDENED and data.dtype.kind == "f":
                handle.data = _from_memory(kind, _to_memory(kind, data))

        own = self.interpreter.TensorHandle.__init__
        self.interpreter.TensorHandle.__init__ = made
        self.interpreter._get_np_dtype = np_dtype
        if hasattr(self.interpreter, "_validate_np_data_size"):
            fits = self.interpreter._validate_np_data_size
            self.interpreter._validate_np_data_size = lambda data, kind: (getattr(
                kind, "name", "") in _WIDENED or fits(data, kind))

    def _operations(self) -> None:
        """Methods of the builder; what they are passed is Triton's matter."""
        handle, np_dtype = self.interpreter.TensorHandle, self.interpreter._get_np_dtype

        def packed(dtype: Any, values: Any) -> Any:
            """Values as memory has them."""
            return _to_memory(dtype.name, values).astype(_memory_type(dtype.name, np_dtype(dtype)))

        def mask_of(mask, shape):
            return np.broadcast_to(
                np.asarray(mask if isinstance(mask, np.ndarray) else mask.data, bool), shape)

        def load(builder, pointers, mask, other, *_, **__):
            dtype, shape = pointers.get_element_ty(), pointers.data.shape
            missing = np.zeros(shape, np_dtype(dtype)) if other is None else \
                np.broadcast_to(other.data, shape)
            found = self.memory.load(pointers.data, mask_of(mask, shape), packed(dtype, missing))
            return handle(_from_memory(dtype.name, found), dtype)

        def store(builder, pointers, value, mask, *_, **__):
            values = np.broadcast_to(np.asarray(value.data), pointers.data.shape)
            self.memory.store(pointers.data, mask_of(mask, values.shape),
                              packed(pointers.get_element_ty(), values))

        def atomic(builder, operation, pointers, value, mask, *_, **__):
            """Adds all lanes of an element, rounded once; each gets what was there before."""
            if operation.name != "FADD":
                raise NotInterpreted(ATOMICS)
            self.has_atomics = True
            dtype, own = pointers.get_element_ty(), mask_of(mask, pointers.data.shape)
            before = load(builder, pointers, own, None)
            _, first, number = np.unique(pointers.data[own], return_index=True, return_inverse=True)
            sums = before.data[own][first].astype(np.float64)
            np.add.at(sums, number, np.broadcast_to(np.asarray(value.data), own.shape)[own])
            after = np.array(before.data)
            after[own] = sums[number]
            self.memory.store(pointers.data, own, packed(dtype, after), is_sum=True)
            return before

        def cast(builder, source, target):
            return handle(np.asarray(source.data).astype(np_dtype(target)), target.scalar)

        def convert(builder, source, target, rounding=None):
            if rounding is not None and "RTNE" not in str(rounding):
                raise NotInterpreted(f"a program rounds by {rounding}")
            return cast(builder, source, target)

        def bitcast(builder, source, target):
            bits = np.ascontiguousarray(
                _to_memory(getattr(source.dtype, "name", ""), source.data))
            if bits.dtype == bool:
                bits = bits.view(np.uint8)
            own = target.scalar
            kind = getattr(own, "name", "")
            found = bits.view(_memory_type(kind, np_dtype(own))).reshape(bits.shape)
            return handle(_from_memory(kind, found), own)

        def dot(builder, a, b, d, precision=None, *_, **__):
            self.count((a.data.size * b.data.shape[-1]) >> 6)
            kind = d.data.dtype
            is_integer = kind.kind in "iu"
            exact = np.float64 if is_integer or kind.itemsize == 8 else np.float32
            is_tf32 = str(precision).endswith("TF32")
            product = np.matmul(*(_to_tf32(one.data) if is_tf32 and one.dtype.scalar.name == "fp32"
                                  else one.data.astype(exact) for one in (a, b)))
            total = (product.astype(kind) if is_integer else product) + d.data
            return handle(total.astype(kind) if kind == np.float16 else total, d.dtype.scalar)

        def upper_half(builder, a, b):
            self.has_drawn = True
            return multiply(builder, a, b)

        def refuse(what: str) -> Callable[..., Any]:
            def refused(*_: Any, **__: Any) -> Any:
                raise NotInterpreted(what)
            return refused

        def extern(builder, library, path, symbol, arguments, kind, *_, **__):
            name = re.sub("^(__nv_|__ocml_)|_f(32|64)$", "", symbol)
            function = _LIBDEVICE.get(name) or _LIBDEVICE.get(name.removesuffix("f"))
            if function is None:
                raise NotInterpreted(f"a program calls {symbol}, which the interpreter has not")
            data = function(*(one.data for one in arguments))
            return handle(np.asarray(data).astype(np_dtype(kind)), kind.scalar)

        own = self.interpreter.InterpreterBuilder
        multiply = own.create_umulhi
        for name, function in {
                "create_masked_load": load, "create_masked_store": store, "cast_impl": cast,
                "create_fp_to_fp": convert, "create_bitcast": bitcast, "create_umulhi": upper_half,
                "create_int_to_ptr": bitcast, "create_ptr_to_int": bitcast, "create_dot": dot,
                "create_fabs": lambda builder, one: handle(np.abs(one.data), one.dtype.scalar),
                "create_extern_elementwise": extern, "create_atomic_cas": refuse(ATOMICS),
                "create_atomic_rmw": atomic,
                "create_dot_scaled": refuse("a program multiplies with block scales"),
                "create_print": lambda *_, **__: None
        }.items():
            setattr(own, name, function)

    def _functions(self) -> None:
        """Functions mean the same wherever they were taken from."""
        interpreter, tl = self.interpreter, self.tl
        visible = types.FunctionType((lambda: None).__code__, {"tl": tl, "core": tl.core})
        interpreter._patch_lang(visible)
        tl.range = tl.core.range = self._range
        to_ir = tl.dtype.to_ir  # which knows no fnuz types before 3.9
        tl.dtype.to_ir = lambda kind, builder: kind if kind.name in _FLOAT8 else to_ir(
            kind, builder)
        # NumPy 2.4 takes no array of one element for a number.
        tl.tensor.__index__ = lambda tensor: int(np.asarray(tensor.handle.data).reshape(-1)[0])
        from triton.language.extra import libdevice
        for name, value in list(vars(libdevice).items()):
            if isinstance(value, types.FunctionType):
                setattr(libdevice, name, self._device_function(name))
        self.libdevice = libdevice
        interpreter.InterpretedFunction.__call__ = \
            lambda function, *arguments, **named: self.rewritten(function.fn)(*arguments, **named)

    def _logic(self) -> dict[str, Callable[..., Any]]:
        """What _Logic calls, as CodeGenerator.visit_BoolOp has it."""
        def combined(is_and: bool) -> Callable[..., Any]:
            def call(*values: Callable[[], Any]) -> Any:
                found, value = None, None
                for evaluate in values:
                    value = evaluate()
                    if not isinstance(value, self.tl.tensor):
                        if bool(value) != is_and:
                            return value
                        continue
                    own = value if value.dtype.is_int1() else value != 0
                    found = own if found is None else found & own if is_and else found | own
                return value if found is None else found
            return call

        plain = (self.tl.dtype, bool, int, float)
        return {
            "_wavetune_value": lambda value: value if isinstance(value, plain) else value.value,
            "_wavetune_and": combined(True), "_wavetune_or": combined(False),
            "_wavetune_not": lambda value: value == 0 if isinstance(value, self.tl.tensor) else
            not value
        }

    def _range(self, first: Any, end: Any = None, step: Any = 1, **_: Any) -> Any:
        """The numbers of a loop, which are scalars as in compiled code, and not Python's."""
        bounds = (0, first, step) if end is None else (first, end, step)
        return map(self.argument, range(*(int(getattr(one, "value", one)) for one in bounds)))

    def _device_function(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **_: Any) -> Any:
            function = _LIBDEVICE.get(name)
            if function is None:
                raise NotInterpreted(f"a program calls libdevice.{name}, which the interpreter has "
                                     "not")
            first = max((one for one in arguments if hasattr(one, "handle")),
                        key=lambda one: one.handle.data.size)
            data = np.asarray(function(*(one.handle.data if hasattr(one, "handle") else one
                                         for one in arguments)))
            kind = first.handle.dtype
            return self.tl.tensor(self.interpreter.TensorHandle(
                data.astype(self.interpreter._get_np_dtype(kind)), kind), first.type)
        # what captured functions know it by
        call.__module__, call.__name__ = "triton.language.extra.libdevice", name
        return call

    def _meaning(self, value: Any) -> Any:
        """What a global of a function means to the interpreter: builtins are bound to it."""
        if isinstance(value, types.FunctionType) and self.tl.core.is_builtin(value):
            holder = types.SimpleNamespace(value=value)
            scope = getattr(self.interpreter, "_LangPatchScope", None)
            self.interpreter._patch_builtin(holder, self.builder, *([scope()] if scope else []))
            return holder.value
        if str(getattr(value, "__module__", "")).endswith(".libdevice") and callable(value):
            return getattr(self.libdevice, value.__name__, value)
        return value

    def rewritten(self, fn: Any) -> Any:
        """As the interpreter executes it. Its defaults and annotations were evaluated before."""
        if fn in self._rewritten:
            return self._rewritten[fn]
        lines, first = inspect.getsourcelines(fn)
        tree = ast.parse(textwrap.dedent("".join(lines)))
        node = tree.body[0]
        if not isinstance(node, ast.FunctionDef):
            raise NotInterpreted(f"the text of {fn.__name__} is not one function")
        ast.increment_lineno(tree, first - 1)
        node.decorator_list, node.returns, own = [], None, node.args
        for argument in [*own.posonlyargs, *own.args, *own.kwonlyargs]:
            argument.annotation = None
        own.defaults = [ast.copy_location(ast.Constant(None), one) for one in own.defaults]
        own.kw_defaults = [one and ast.copy_location(ast.Constant(None), one)
                           for one in own.kw_defaults]
        tree = ast.fix_missing_locations(self.interpreter.ASTTransformer().visit(
            _Logic().visit(tree)))
        scope = {
            name: value for name, value in vars(self.interpreter).items()
            if not name.startswith("__")
        }
        scope.update({
            "range": self._range, **self._logic(),
            **{name: self._meaning(value) for name, value in fn.__globals__.items()}
        })
        for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or ()):
            scope[name] = self._meaning(cell.cell_contents)
        exec(compile(tree, inspect.getfile(fn), "exec"), scope)
        made = scope[node.name]
        made.__defaults__, made.__kwdefaults__ = fn.__defaults__, fn.__kwdefaults__
        self._rewritten[fn] = made
        return made

    def argument(self, value: Any) -> Any:
        """A value that is passed when the kernel runs, as a scalar of its type."""
        tl = self.tl
        if isinstance(value, bool):
            kind = tl.int1
        elif isinstance(value, int):
            kind = tl.int32 if -2**31 <= value < 2**31 else tl.int64 if value < 2**63 else tl.uint64
        elif isinstance(value, float):
            kind = tl.float32
        else:
            return value
        data = np.array([value], self.np_dtype(kind))
        return tl.tensor(self.interpreter.TensorHandle(data, kind), kind)

    def pointer(self, number: int, dtype: str, element: int) -> Any:
        """A pointer to an element of the buffer `number`, whose type torch calls `dtype`."""
        dtype = self.tl.pointer_type(self.tl.dtype(_NAMES.get(dtype, dtype)))
        address = np.array([self.memory.address(number, element)], np.uint64)
        return self.tl.tensor(self.interpreter.TensorHandle(address, dtype), dtype)

    def descriptor(self, stated: Any, base: Any, block_shape: Sequence[int]) -> Any:
        """A descriptor of the host, as the interpreter makes one of a program's."""
        constexpr = self.tl.constexpr
        semantic = getattr(self.interpreter, "interpreter_semantic", None)
        if semantic is None:
            raise NotInterpreted("the interpreter of this Triton has no descriptors of the host")
        padding = {} if stated["padding"] == "zero" else {"padding_option": stated["padding"]}
        strides = [*map(self.argument, stated["strides"][:-1]), constexpr(1)]
        return semantic.make_tensor_descriptor(
            base=base, shape=list(map(self.argument, stated["shape"])), strides=strides,
            block_shape=list(map(constexpr, block_shape)), **padding)

    def run(self, fn: Any, arguments: Json, grid: tuple[int, int, int],
            program: tuple[int, int, int]) -> None:
        self.builder.set_grid_dim(*grid)
        self.builder.set_grid_idx(*program)
        with np.errstate(all="ignore"):
            self.rewritten(fn)(**arguments)
