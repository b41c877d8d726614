"""The space that an autotune decorator states: its configs as a list, with their roles."""

from typing import Any

from .._canonical import Json
from .._errors import PackError
from .expressions import Value
from .options import FOREIGN
from .source import Decorated

_FIXED = ("num_ctas", "maxnreg", "num_buffers_warp_spec", "num_consumer_groups", "reg_dec_producer",
          "reg_inc_consumer")  # stated only when a config sets them


def _value(value: Any, name: str, index: int) -> Value:
    value = getattr(value, "value", value)  # of a tl.constexpr
    if value is not None and not isinstance(value, (bool, int, str)):
        raise PackError(f"config {index} has {name} = {value!r}; a value of a config is an "
                        "integer, a text, True, False or None")
    return value


def _config(config: Any, index: int, decorated: Decorated) -> dict[str, Value]:
    of = f"{decorated.place}: config {index} of {decorated.jit.__name__}"
    if getattr(config, "pre_hook", None) is not None:
        raise PackError(f"{of} has a pre_hook, which runs before each launch and which agents "
                        "cannot call: where the kernel is right without it, state the configs with "
                        "--space FILE")
    if getattr(config, "ir_override", None):
        raise PackError(f"{of} has an ir_override, and pack compiles the function: state the "
                        "configs with --space FILE")
    values = {name: _value(value, name, index) for name, value in config.kwargs.items()}
    values["num_warps"], values["num_stages"] = config.num_warps, config.num_stages
    default = type(config)({})
    for name in _FIXED:
        if getattr(config, name, None) != getattr(default, name, None):
            values[name] = getattr(config, name)
    return values


def decorator_configs(decorated: Decorated,
                      backend: Any) -> tuple[list[dict[str, Value]], dict[str, str]]:
    """The decorator's configs as points of a space, in its order, and the roles of their names."""
    if decorated.autotuner is None:
        raise PackError(f"{decorated.path}: {decorated.jit.__name__} is under no autotune "
                        "decorator; give its configs with --space FILE")
    configs = [_config(config, i, decorated)
               for i, config in enumerate(decorated.autotuner.configs)]
    names = list(dict.fromkeys(name for config in configs for name in config))
    constexprs = {p.name for p in decorated.jit.params if p.is_constexpr}
    options = vars(backend.parse_options({}))
    roles = {}
    for name in names:
        if name in constexprs:
            continue
        if name not in options and name not in FOREIGN:
            raise PackError(f"configs set {name}, which is neither a constexpr of "
                            f"{decorated.jit.__name__} nor an option of this Triton")
        roles[name] = "option"
    for index, config in enumerate(configs):
        for name in names:
            if name not in config and name not in options:
                raise PackError(f"config {index} does not set {name}, which other configs do")
            config.setdefault(name, options.get(name))
    return [{name: config[name] for name in names} for config in configs], roles


def decorator_space(decorated: Decorated, backend: Any) -> Json:
    """{"configs", "roles", "default"} of the decorator; the first config is the default."""
    configs, roles = decorator_configs(decorated, backend)
    distinct = [config for i, config in enumerate(configs) if config not in configs[:i]]
    return {"configs": distinct, "roles": roles, "default": distinct[0]}
