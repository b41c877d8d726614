"""What a function's decorators make of a call whose arguments are known.

A call maps parameters to values: Tensor for pointers, None, int, float, bool, str, dtypes of
triton.language, tuples of these; it lacks what heuristics and configs give. Pure functions, but for
what the package's own heuristics and pruning do.
"""

import inspect
import math
from dataclasses import dataclass
from typing import Any, Callable

from .._canonical import Fields, Json
from .._errors import PackError, one_line
from .source import Decorated
from .stubs import DTYPES, Dtype, refusing

Call = Fields


@dataclass(frozen=True)
class Tensor:
    """What Triton's JIT, heuristics and pruning ask of a tensor. `type`: as torch names it;
    `is_small`: whether 32 bits reach all of it."""

    type: str
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] | None = None  # None: row-major
    alignment: int = 16
    is_small: bool = True

    @property
    def dtype(self) -> Dtype:
        return DTYPES[self.type]

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def size(self, dimension: int | None = None) -> Any:
        return self.shape if dimension is None else self.shape[dimension]

    def stride(self, dimension: int | None = None) -> Any:
        strides = self.strides or tuple(
            math.prod(self.shape[i + 1:]) for i in range(len(self.shape)))
        return strides if dimension is None else strides[dimension]

    def numel(self) -> int:
        return math.prod(self.shape)

    def element_size(self) -> int:
        return self.dtype.itemsize

    def is_contiguous(self) -> bool:
        return self.strides is None or self.stride() == Tensor(self.type, self.shape).stride()

    def data_ptr(self) -> int:
        return 0 if self.alignment >= 16 else self.alignment

    def ptr_range(self) -> int:
        return 0 if self.is_small else 2**31


def _asked(decorated: Decorated, what: str, function: Callable[..., Any], *args: Any,
           **named: Any) -> Any:
    """What a function of the package answers; whatever goes wrong in it is a refusal."""
    place = f"{decorated.place}: {what} of {decorated.jit.__name__} cannot be evaluated"
    try:
        with refusing(f"{place}: "):
            return function(*args, **named)
    except PackError:
        raise
    except Exception as error:
        raise PackError(f"{place} for these arguments: {one_line(error)}") from None


def heuristic_values(decorated: Decorated, call: Call, config: Fields) -> Json:
    """What the heuristics give: each sees the call and what those before it gave."""
    values: Json = {}
    for name, heuristic in decorated.heuristics.items():
        if name in call:  # stated
            continue
        seen = {**_defaults(decorated), **call, **(config if heuristic.sees_config else {}),
                **values}
        values[name] = _asked(decorated, f"the heuristic of {name}", heuristic.function, seen)
    return values


def _defaults(decorated: Decorated) -> Json:
    return {p.name: getattr(p.default, "value", p.default) for p in decorated.jit.params
            if p.has_default}


def pruning_of(decorated: Decorated) -> tuple[Any, Any, Any]:
    """(early_config_prune, perf_model, top_k) of the decorator; None where it has none."""
    tuner = decorated.autotuner
    if decorated.is_dejavu:
        stated = tuner.arguments["prune_configs_by"] or {}
        return stated.get("early_config_prune"), stated.get("perf_model"), stated.get("top_k", 1.0)
    if tuner is None:
        return None, None, None
    return tuner.early_config_prune, tuner.perf_model, tuner.configs_top_k


def prunes(decorated: Decorated) -> bool:
    early, model, _ = pruning_of(decorated)
    return early is not None or model is not None


def pruned(decorated: Decorated, call: Call, configs: list[Any]) -> list[Any]:
    """The configs that the decorator's pruning leaves for the call, as Autotuner.prune_configs."""
    early, model, top_k = pruning_of(decorated)
    named = {**_defaults(decorated), **call}
    if any(not heuristic.sees_config for heuristic in decorated.heuristics.values()):
        named.update({name: value
                      for name, value in heuristic_values(decorated, call, {}).items()
                      if not decorated.heuristics[name].sees_config})
    left = list(configs)
    if early is not None:
        takes = inspect.signature(early).parameters
        others = list(takes)[2:]
        if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in takes.values()):
            others = [name for name in named if name not in list(takes)[:2]]
        left = list(_asked(decorated, "early_config_prune", early, left, named,
                           **{name: named[name] for name in others if name in named}))
        if not left:
            raise PackError(f"{decorated.place}: early_config_prune of {decorated.jit.__name__} "
                            "leaves no config for these arguments, so that the program itself "
                            "cannot launch it")
    if model is not None:
        is_share = isinstance(top_k, float) and top_k <= 1.0
        n = max(1, int(len(left) * top_k)) if is_share else int(top_k)
        if len(left) > n:
            left = sorted(left, key=lambda config: _asked(
                decorated, "perf_model", model, **{**named, **config.all_kwargs()}))[:n]
    return left
