"""What hooks do to a launch: a config's pre_hook(arguments), which Triton calls before every launch
with that config, and an autotuner's pre_hook(arguments, reset_only) and post_hook(arguments,
exception), around each launch that it measures.

They are called with stand-ins: of tensors, which tell what is known without their data, and of
descriptors, whose base is such a stand-in. zero_() and fill_() of an argument and a descriptor's
block_shape are recorded; whatever else a hook does is what the launch is refused for, also where
the hook catches the exception.

No tensor of the program changes: operations of torch on tensors that a hook reaches by itself (a
closure, a global) end before they begin (TorchDispatchMode), and a hook whose text names a jit
function is not called. Its own Python runs once more for each config; Triton calls hooks any number
of times, so they can bear that.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import sys
import types
from typing import Any, Callable, Iterator, Mapping

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


def is_descriptor(value: Any) -> bool:
    """Whether it is a TensorDescriptor of the host (triton.tools.tensor_descriptor)."""
    return any(kind.__name__ == "TensorDescriptor" and kind.__module__.startswith("triton.")
               for kind in type(value).__mro__)


class Stopped(Exception):
    """A hook did what no agent repeats."""


class _Recording:
    """Of the hook that runs. `why`: what it did that cannot be recorded; `may_copy`: it may copy a
    tensor, and copy that back."""

    def __init__(self) -> None:
        self.begin(False)

    def begin(self, may_copy: bool) -> None:
        self.fills: dict[str, Any] = {}
        self.why: str | None = None
        self.may_copy = may_copy

    def stop(self, what: str) -> Any:
        self.why = self.why or what
        raise Stopped(what)


class StandIn:
    """Of a tensor. `is_copy`: it is one that the hook made."""

    def __init__(self, recording: _Recording, name: str, tensor: Any, is_copy: bool = False):
        self.__dict__["_own"] = recording, name, tensor, is_copy

    @property
    def __class__(self) -> Any:  # type: ignore[override]
        return type(self._own[2])  # for isinstance()

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

    def copy_(self, other: Any, *_: Any, **__: Any) -> StandIn:
        recording, name, tensor, is_copy = self._own
        is_undone = type(other) is StandIn and other._own[3] and other._own[2] is tensor
        if not recording.may_copy or not is_undone or is_copy:
            recording.stop(f"calls {name}.copy_")
        return self

    def fill_(self, value: Any) -> StandIn:
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
        return int(self._own[2].shape[0])

    def __getattr__(self, attribute: str) -> Any:
        recording, name, tensor, _ = self._own
        found = getattr(tensor, attribute)  # which may raise AttributeError, as in the program
        if attribute in _ASKED:
            return found
        if callable(found) and not isinstance(found, type):
            return lambda *_, **__: recording.stop(f"calls {name}.{attribute}")
        return recording.stop(f"reads {name}.{attribute}")

    def __setattr__(self, attribute: str, _: Any) -> None:
        self._own[0].stop(f"sets {self._own[1]}.{attribute}")

    @classmethod
    def __torch_function__(cls, function: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
        own = next(one for one in (*args, *(kwargs or {}).values()) if type(one) is StandIn)
        what = getattr(function, "__name__", "a function")
        return own._own[0].stop(f"calls torch's {what} with {own._own[1]}")

    __hash__ = object.__hash__


def _computed(method: str) -> Callable[..., Any]:
    def call(own: StandIn, *_: Any) -> Any:
        return own._own[0].stop(f"computes with {own._own[1]} ({method})")
    return call


for _name in _COMPUTED:
    setattr(StandIn, f"__{_name}__", _computed(f"__{_name}__"))


@functools.lru_cache(None)
def _stopping(mode: type) -> type:
    """A mode of torch's dispatcher in which no operation is executed."""
    class Stopping(mode):  # type: ignore[misc, valid-type]
        def __init__(self, recording: _Recording):
            super().__init__()
            self.recording = recording

        def __torch_dispatch__(self, function: Any, *_: Any, **__: Any) -> Any:
            self.recording.stop(f"calls torch's {function} with tensors that are no arguments")

    return Stopping


def _without_torch(recording: _Recording) -> Any:
    mode = getattr(sys.modules.get("torch.utils._python_dispatch"), "TorchDispatchMode", None)
    return _stopping(mode)(recording) if mode is not None else contextlib.nullcontext()


def _named(function: Any, depth: int = 0) -> Iterator[Any]:
    """Values that a hook's text names, and those that functions of its package name which it
    names."""
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


def _launched(hook: Any) -> str | None:
    """The name of a jit function that the hook may launch."""
    found = (jit_function(value) for value in _named(hook))
    return next((str(one.__name__) for one in found if hasattr(one, "run")), None)


class Effects:
    """Those of one launch's hooks. `given`: its arguments by name; `refuse`: is told why what a
    hook does cannot be repeated. `initial`: what the autotuner's pre_hook fills, by argument."""

    def __init__(self, tuner: Any, jit: Any, given: Mapping[str, Any], configs: Any,
                 refuse: Callable[[str], None]):
        self.tuner, self.refuse = tuner, refuse
        self.of = getattr(jit, "__name__", "the function")
        self.initial: dict[str, Any] | None = None
        self.recording = _Recording()
        self.has_tuner_hooks = any(getattr(tuner, f"user_defined_{kind}_hook", False)
                                   for kind in ("pre", "post"))
        self.has_hooks = self.has_tuner_hooks or any(
            getattr(config, "pre_hook", None) is not None for config in configs)
        self._launches: dict[int, str | None] = {}  # by the id of a hook
        self._descriptors, self._stand_ins = {}, {}  # type: dict[str, Any], dict[str, Any]
        for name, value in given.items() if self.has_hooks else ():
            if is_descriptor(value):
                self._descriptors[name] = value
            else:
                self._stand_ins[name] = self._stand_in(name, value)

    def _stand_in(self, name: str, value: Any) -> Any:
        if hasattr(value, "data_ptr") and hasattr(value, "dtype"):
            return StandIn(self.recording, name, value)
        if type(value) in (tuple, list):
            return type(value)(self._stand_in(f"{name}[{i}]", one) for i, one in enumerate(value))
        return value

    def of_config(self, config: Any, keywords: Mapping[str, Any]
                  ) -> tuple[dict[str, Any], dict[str, list[int]], dict[str, Any]] | None:
        """(fills by argument, block shapes by descriptor after the hook, descriptors as the launch
        has them); None where the launch is refused. `keywords`: the config's members, and more."""
        if not self.has_hooks:
            return {}, {}, {}
        copies = self._copies()
        arguments = {**keywords, **self._stand_ins, **copies}
        hook = getattr(config, "pre_hook", None)
        fills: dict[str, Any] | None = {}
        if hook is not None:
            fills = self._called(f"pre_hook of {self.of}'s configs", hook, False, dict(arguments))
        if fills is None or self.has_tuner_hooks and not self._call_tuner(arguments):
            return None

        blocks = {}
        for name, own in copies.items():
            for part, value in vars(own).items():
                before = getattr(self._descriptors[name], part, None)
                if part == "base":
                    is_kept = type(value) is StandIn and value._own[2] is before
                elif type(value) is list:
                    is_kept = value == list(before)
                else:
                    is_kept = value == before
                if part == "block_shape" and all(type(n) is int for n in value):
                    if hook is not None:  # what an earlier launch left in it may be the same
                        blocks[name] = list(value)
                elif not is_kept:
                    self.refuse(f"the pre_hook of {self.of}'s configs sets {name}.{part}, which "
                                "agents cannot repeat: set its block_shape alone")
                    return None
            own.base = self._descriptors[name].base
        return fills, blocks, copies

    def _copies(self) -> dict[str, Any]:
        """Descriptors that may be changed; lists that they share are shared."""
        made, lists = {}, {}  # type: dict[str, Any], dict[int, list[Any]]
        for name, value in self._descriptors.items():
            own = made[name] = copy.copy(value)
            for part in ("shape", "strides", "block_shape"):
                before = getattr(value, part)
                setattr(own, part, lists.setdefault(id(before), list(before)))
            own.base = self._stand_in(name, value.base)
        return made

    def _called(self, whose: str, hook: Any, may_copy: bool, *args: Any, **kwargs: Any
                ) -> dict[str, Any] | None:
        """What the hook fills; None where the launch is refused."""
        self.recording.begin(may_copy)
        if id(hook) not in self._launches:
            self._launches[id(hook)] = _launched(hook)
        if self._launches[id(hook)] is not None:
            self.recording.why = f"names {self._launches[id(hook)]}, which it may launch"
        else:
            try:
                with _without_torch(self.recording):
                    hook(*args, **kwargs)
            except Exception as error:
                self.recording.why = self.recording.why or f"fails: {type(error).__name__}: {error}"
        if self.recording.why is None:
            return self.recording.fills
        self.refuse(f"the {whose} {self.recording.why}, which agents cannot repeat: they fill "
                    "arguments (zero_, fill_) and set a descriptor's block_shape; do the rest in "
                    "the kernel")
        return None

    def _call_tuner(self, arguments: dict[str, Any]) -> bool:
        """Calls the autotuner's hooks around one launch. They must do the same for all configs."""
        kept = getattr(self.tuner, "restore_copies", None)
        whose, after = f"pre_hook of {self.of}'s autotuner", {}  # type: str, dict[str, Any] | None
        initial = self._called(whose, self.tuner.pre_hook, True, arguments, reset_only=False)
        if initial is not None and getattr(self.tuner, "user_defined_post_hook", False):
            whose = f"post_hook of {self.of}'s autotuner"
            after = self._called(whose, self.tuner.post_hook, True, arguments, exception=None)
        if kept is not None:
            self.tuner.restore_copies = kept
        if initial is None or after is None:
            return False
        if after:
            self.refuse(f"the {whose} fills {', '.join(after)} after each launch that it measures: "
                        "copy back what was there, or fill it in a pre_hook")
        elif self.initial not in (None, initial):
            self.refuse(f"the {whose} does not do the same for all configs: use a config's")
        else:
            self.initial = initial
        return self.initial is initial


def are_alike(one: Any, other: Any) -> bool:
    """Whether two hooks do the same, as far as their text and the constants that they were made
    with tell."""
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


def _made_with(hook: Any) -> Any:
    """Raises ValueError where it is more than constants."""
    cells = [cell.cell_contents for cell in hook.__closure__ or ()]
    named = list((hook.__kwdefaults__ or {}).items())
    return encode([cells, list(hook.__defaults__ or ()), named])
