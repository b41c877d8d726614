"""What hooks do to a launch: a config's pre_hook(arguments), which Triton calls before every launch
with that config, and an autotuner's pre_hook(arguments, reset_only) and post_hook(arguments,
exception), around each launch that it measures.

They are called with stand-ins of tensors, which tell what is known without their data. zero_() and
fill_() of an argument and a descriptor's block_shape are recorded; whatever else a hook does is
what the launch is refused for, also where the hook catches the exception.

No tensor of the program changes: operations of torch on other tensors that a hook reaches end
before they begin (TorchDispatchMode), and a hook whose text names a jit function is not called. Its
own Python runs once more for each config, as Triton may call it too.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import sys
import types
from typing import Any, Callable, Iterator, NamedTuple

from .._canonical import Named
from .closure import jit_function
from .values import encode

DEPTH_MAX = 3
_ASKED = {"shape", "dtype", "device", "ndim", "layout", "is_cuda", "requires_grad", "itemsize",
          "nbytes", "size", "stride", "numel", "nelement", "dim", "element_size", "is_contiguous",
          "is_floating_point", "is_complex", "storage_offset", "get_device"}
_OPERATORS = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or",
              "xor", "lshift", "rshift")
_COMPUTED = ("bool", "int", "float", "index", "iter", "getitem", "setitem", "contains", "eq", "ne",
             "lt", "le", "gt", "ge", "neg", "abs", "invert", "array", *_OPERATORS,
             *(kind + name for name in _OPERATORS for kind in "ri"))


def is_descriptor(value) -> bool:
    """Whether it is a TensorDescriptor of the host (triton.tools.tensor_descriptor)."""
    return any(kind.__name__ == "TensorDescriptor" and kind.__module__.startswith("triton.")
               for kind in type(value).__mro__)


def is_tensor(value) -> bool:
    return hasattr(value, "data_ptr") and hasattr(value, "dtype")


class Refused(Exception):
    """A launch cannot be repeated elsewhere; the text says why, and what would help."""


class Stopped(Exception):
    """A hook did what no agent repeats."""


class _Recording:
    """Of the hook that runs. `may_copy`: it may copy a tensor, and copy that back."""

    def __init__(self) -> None:
        self.begin(False)

    def begin(self, may_copy: bool) -> None:
        self.fills: Named = {}
        self.why: str | None = None
        self.may_copy = may_copy

    def stop(self, what: str):
        self.why = self.why or what
        raise Stopped(what)


class _Own(NamedTuple):
    recording: _Recording
    name: str
    tensor: Any
    is_copy: bool  # one that the hook made


class StandIn:
    """Of a tensor."""

    def __init__(self, recording: _Recording, name: str, tensor, is_copy: bool = False):
        self.__dict__["_own"] = _Own(recording, name, tensor, is_copy)

    @property
    def __class__(self):
        return type(self._own.tensor)  # for isinstance()

    @property
    def data(self) -> StandIn:
        return self

    def detach(self) -> StandIn:
        return self

    def clone(self) -> StandIn:
        recording, name, tensor, _ = self._own
        if not recording.may_copy:
            recording.stop(f"calls {name}.clone")
        return StandIn(recording, name, tensor, True)

    def copy_(self, other, *_, **__) -> StandIn:
        recording, name, tensor, is_copy = self._own
        is_undone = type(other) is StandIn and other._own.is_copy and other._own.tensor is tensor
        if not recording.may_copy or not is_undone or is_copy:
            recording.stop(f"calls {name}.copy_")
        return self

    def fill_(self, value) -> StandIn:
        recording, name, _, is_copy = self._own
        if is_copy:
            recording.stop(f"fills a copy of {name}")
        if not isinstance(value, (bool, int, float)):
            recording.stop(f"calls {name}.fill_ with a {type(value).__name__}")
        recording.fills[name] = value
        return self

    def zero_(self) -> StandIn:
        return self.fill_(0)

    def __len__(self) -> int:
        return int(self._own.tensor.shape[0])

    def __getattr__(self, attribute: str):
        recording, name, tensor, _ = self._own
        found = getattr(tensor, attribute)  # which may raise AttributeError, as in the program
        if attribute in _ASKED:
            return found
        if callable(found) and not isinstance(found, type):
            return lambda *_, **__: recording.stop(f"calls {name}.{attribute}")
        return recording.stop(f"reads {name}.{attribute}")

    def __setattr__(self, attribute: str, _) -> None:
        self._own.recording.stop(f"sets {self._own.name}.{attribute}")

    @classmethod
    def __torch_function__(cls, function, _, args=(), kwargs=None):
        own = next(one._own for one in (*args, *(kwargs or {}).values()) if type(one) is StandIn)
        what = getattr(function, "__name__", "a function")
        return own.recording.stop(f"calls torch's {what} with {own.name}")

    __hash__ = object.__hash__


def _computed(method: str) -> Callable[..., Any]:
    def call(own: StandIn, *_):
        return own._own.recording.stop(f"computes with {own._own.name} ({method})")
    return call


for _name in _COMPUTED:
    setattr(StandIn, f"__{_name}__", _computed(f"__{_name}__"))


@functools.lru_cache(None)
def _stopping(mode: type) -> type:
    """A mode of torch's dispatcher in which no operation is executed."""
    class Stopping(mode):
        def __init__(self, recording: _Recording):
            super().__init__()
            self.recording = recording

        def __torch_dispatch__(self, function, *_, **__):
            self.recording.stop(f"calls torch's {function} with tensors that are no arguments")

    return Stopping


def _without_torch(recording: _Recording):
    mode = getattr(sys.modules.get("torch.utils._python_dispatch"), "TorchDispatchMode", None)
    return _stopping(mode)(recording) if mode is not None else contextlib.nullcontext()


def _named(function, depth: int = 0) -> Iterator[Any]:
    """Values that a hook's text names, and so do functions of its package that it names."""
    function = getattr(function, "func", function)  # of functools.partial
    function = getattr(function, "__func__", function)
    if not isinstance(function, types.FunctionType):
        return
    found = [function.__globals__.get(name) for name in function.__code__.co_names]
    found += [vars(module).get(name) for module in found  # a module's __getattr__ may import
              if isinstance(module, types.ModuleType) for name in function.__code__.co_names]
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # not bound yet
            found.append(cell.cell_contents)
    package = function.__module__.partition(".")[0]
    for value in found:
        yield value
        if depth < DEPTH_MAX and isinstance(value, types.FunctionType) and \
                value.__module__.partition(".")[0] == package:
            yield from _named(value, depth + 1)


def _launched(hook) -> str | None:
    """The name of a jit function that the hook may launch."""
    found = (jit_function(value) for value in _named(hook))
    return next((str(one.__name__) for one in found if hasattr(one, "run")), None)


class Effects:
    """Those of one launch's hooks. `initial`: what the autotuner's pre_hook fills, by argument."""

    def __init__(self, tuner, jit, given: Named, configs):
        self.tuner = tuner
        self.of = getattr(jit, "__name__", "the function")
        self.initial: Named | None = None
        self.recording = _Recording()
        self.has_tuner_hooks = any(getattr(tuner, f"user_defined_{kind}_hook", False)
                                   for kind in ("pre", "post"))
        self.has_hooks = self.has_tuner_hooks or any(
            getattr(config, "pre_hook", None) is not None for config in configs)
        self._launches: dict[int, str | None] = {}  # by the id of a hook
        self._descriptors = {name: value for name, value in given.items() if is_descriptor(value)}
        self._stand_ins = {name: self._stand_in(name, value) for name, value in given.items()
                           if self.has_hooks and name not in self._descriptors}

    def _stand_in(self, name: str, value):
        if is_tensor(value):
            return StandIn(self.recording, name, value)
        if type(value) in (tuple, list):
            return type(value)(self._stand_in(f"{name}[{i}]", one) for i, one in enumerate(value))
        return value

    def of_config(self, config, keywords: Named) -> tuple[Named, dict[str, list[int]], Named]:
        """(fills by argument, block shapes by descriptor after the hook, descriptors as the launch
        has them). `keywords`: the config's members, and more. Raises Refused."""
        if not self.has_hooks:
            return {}, {}, {}
        copies, fills, blocks = self._copies(), {}, {}
        arguments = {**keywords, **self._stand_ins, **copies}
        hook = getattr(config, "pre_hook", None)
        if hook is not None:
            fills = self._called(f"pre_hook of {self.of}'s configs", hook, False, dict(arguments))
        if self.has_tuner_hooks:
            self._call_tuner(arguments)
        for name, own in copies.items():
            for part, value in vars(own).items():
                before = getattr(self._descriptors[name], part, None)
                if part == "base":
                    is_kept = type(value) is StandIn and value._own.tensor is before
                else:
                    is_kept = value == (list(before) if type(value) is list else before)
                if part == "block_shape" and all(type(n) is int for n in value):
                    if hook is not None:  # what an earlier launch left in it may be the same
                        blocks[name] = list(value)
                elif not is_kept:
                    raise Refused(f"the pre_hook of {self.of}'s configs sets {name}.{part}, which "
                                  "agents cannot repeat: set its block_shape alone")
            own.base = self._descriptors[name].base
        return fills, blocks, copies

    def _copies(self) -> Named:
        """Descriptors that may be changed; lists that they share are shared."""
        made, lists = {}, {}
        for name, value in self._descriptors.items():
            own = made[name] = copy.copy(value)
            for part in ("shape", "strides", "block_shape"):
                before = getattr(value, part)
                setattr(own, part, lists.setdefault(id(before), list(before)))
            own.base = self._stand_in(name, value.base)
        return made

    def _called(self, whose: str, hook, may_copy: bool, *args, **kwargs) -> Named:
        """What the hook fills."""
        self.recording.begin(may_copy)
        if id(hook) not in self._launches:
            self._launches[id(hook)] = _launched(hook)
        why = None
        if self._launches[id(hook)] is not None:
            why = f"names {self._launches[id(hook)]}, which it may launch"
        else:
            try:
                with _without_torch(self.recording):
                    hook(*args, **kwargs)
            except Exception as error:
                why = f"fails: {type(error).__name__}: {error}"
        why = self.recording.why or why
        if why is not None:
            raise Refused(f"the {whose} {why}, which agents cannot repeat: they fill arguments "
                          "(zero_, fill_) and set a descriptor's block_shape; do the rest in the "
                          "kernel")
        return self.recording.fills

    def _call_tuner(self, arguments: Named) -> None:
        """Calls the autotuner's hooks around one launch. They must do the same for all configs."""
        tuner, after = self.tuner, {}
        kept = getattr(tuner, "restore_copies", None)
        whose = f"pre_hook of {self.of}'s autotuner"
        try:
            initial = self._called(whose, tuner.pre_hook, True, arguments, reset_only=False)
            if getattr(tuner, "user_defined_post_hook", False):
                whose = f"post_hook of {self.of}'s autotuner"
                after = self._called(whose, tuner.post_hook, True, arguments, exception=None)
        finally:
            if kept is not None:
                tuner.restore_copies = kept
        if after:
            raise Refused(f"the {whose} fills {', '.join(after)} after each launch that it "
                          "measures: copy back what was there, or fill it in a pre_hook")
        if self.initial not in (None, initial):
            raise Refused(f"the {whose} does not do the same for all configs: use a config's")
        self.initial = initial


def are_alike(one, other) -> bool:
    """Whether two hooks do the same, as far as their text and constants tell."""
    if one is other:
        return True
    code = getattr(one, "__code__", None)
    if code is None or code != getattr(other, "__code__", None) or \
            one.__globals__ is not other.__globals__:
        return False
    try:
        return bool(_made_with(one) == _made_with(other))
    except ValueError:
        return False


def _made_with(hook):
    """Raises ValueError where it is more than constants."""
    cells = [cell.cell_contents for cell in hook.__closure__ or ()]
    named = list((hook.__kwdefaults__ or {}).items())
    return encode([cells, list(hook.__defaults__ or ()), named])
