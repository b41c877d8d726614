"""A stand-in for triton_dejavu, which needs a GPU when it is imported, while a file is read.

Arguments, defaults and the order of configs are those of triton-dejavu 0.7.5 (autotuner.py,
config_space), because hashes of its cache paths are made from them.
"""

import itertools
import types
import warnings
from typing import Any, Callable, Sequence

from .._canonical import Json
from .._errors import PackError

SEARCH_MIN = 50  # _TRITON_DEJAVU_MIN_SEARCH_SAMPLES


class ConfigSpace:
    """The product of lists of kwargs and of configuration arguments, filtered by conditions."""

    def __init__(self, kwargs_with_lists: dict[str, Sequence[Any]],
                 kwarg_conditions: Sequence[Callable[[Json], bool]] | None = None,
                 conditions: Sequence[Callable[[Any], bool]] | None = None, pre_hook: Any = None,
                 **configuration_args: Sequence[Any]):
        self.kwargs, self.pre_hook = kwargs_with_lists, pre_hook
        self.kwarg_conditions, self.conditions = kwarg_conditions or [], conditions or []
        self.configuration_args = configuration_args

    def generate(self) -> tuple[list[Any], int]:
        """The configs in dejavu's order, and how many points the conditions excluded."""
        import triton
        default = triton.Config({})
        names = [name for name in dir(default)
                 if name[:2] != "__" and name not in ("kwargs", "pre_hook", "all_kwargs")]
        for name in set(self.configuration_args) - set(names):
            warnings.warn(f"this triton has no configuration argument {name}; triton-dejavu leaves "
                          "it out too")
        lists = [self.configuration_args.get(name, [getattr(default, name)]) for name in names]
        configs, excluded = [], 0
        for values in itertools.product(*self.kwargs.values()):
            kwargs = dict(zip(self.kwargs, values))
            if not all(condition(kwargs) for condition in self.kwarg_conditions):
                excluded += 1
                continue
            for arguments in itertools.product(*lists):
                config = triton.Config(kwargs, pre_hook=self.pre_hook,
                                       **dict(zip(names, arguments)))
                if all(condition(config) for condition in self.conditions):
                    configs.append(config)
                else:
                    excluded += 1
        return configs, excluded


class Autotuner:
    """What the decorator makes of a function: the function and all arguments."""

    def __init__(self, fn: Any, arguments: Json):
        self.fn, self.arguments = fn, arguments
        self.keys: list[str] = list(arguments["key"])
        self.configs, self.excluded = self._configs()

    def _configs(self) -> tuple[list[Any], int]:
        import triton
        configs, space = self.arguments["configs"], self.arguments["config_space"]
        if configs is not None and space is not None:
            raise PackError("triton_dejavu.autotune takes configs or config_space, not both")
        if space is not None:
            return space.generate()
        return (configs or [triton.Config({}, num_warps=4, num_stages=2)]), 0

    def search_max_n(self) -> int | None:
        """How many configs a search would try at the most; None when all are measured."""
        a = self.arguments
        if not a["use_bo"] and not a["use_random_search"]:
            return None
        n = int(max(SEARCH_MIN, a["search_max_share"] * len(self.configs)))
        return min(n + (self.excluded if a["use_bo"] else 0), len(self.configs))


def autotune(key: Sequence[str], configs: Any = None, prune_configs_by: Any = None,
             reset_to_zero: Any = None, restore_value: Any = None, pre_hook: Any = None,
             post_hook: Any = None, warmup: int = 25, rep: int = 100, use_cuda_graph: bool = False,
             config_space: ConfigSpace | None = None, fallback_heuristic: Any = None,
             informed_fallback: Any = None, prepare_informed_fallback: Any = None,
             use_bo: bool = False, use_random_search: bool = False, search_max_search_t: int = 180,
             search_max_share: float = 1.0, search_max_repeat: int = 1, quantiles: Any = None,
             metadata_key: Any = None, custom_data_storage: Any = None,
             ignore_dtypes: bool = False) -> Callable[[Any], Autotuner]:
    arguments = dict(locals())
    return lambda fn: Autotuner(fn, arguments)


def make_module() -> types.ModuleType:
    """What `import triton_dejavu` gives to a file that is read."""
    module = types.ModuleType("triton_dejavu")
    module.autotune, module.ConfigSpace = autotune, ConfigSpace  # type: ignore[attr-defined]
    module.jitcache = lambda *args, **kwargs: lambda fn: fn  # type: ignore[attr-defined]
    return module
