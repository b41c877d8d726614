"""Calls of a @triton.jit function without a kernel folder: what the census and tests of packages compile."""

from wavetune._errors import PackError
from wavetune._pack import constants
from wavetune._pack.calls import Tensor, heuristic_values
from wavetune._pack.compiling import Task
from wavetune._pack.options import option_names


def call_task(decorated, backend, call, config):
    """The compile of a call with one of its decorator's configs (a triton.Config, or None where there is no autotuner)."""
    chosen = {} if config is None else config.all_kwargs()
    given = {**call, **heuristic_values(decorated, call, chosen)}
    names, options = {p.name for p in decorated.jit.params}, option_names(backend)
    given.update({name: value for name, value in chosen.items() if name in names})
    return Task(given, {n: v for n, v in chosen.items() if n in options and v is not None})


def to_json(value):
    """Of a value of a call."""
    value = getattr(value, "value", value)  # of a tl.constexpr
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (tuple, list)):
        return {"tuple": [to_json(element) for element in value]}
    if type(value).__name__ == "dtype" and str(getattr(value, "name", "")):
        import triton.language as tl
        for name in constants._TYPES:
            if getattr(tl, name, None) == value:
                return {"dtype": name}
    raise PackError(f"a constexpr is {value!r}; kernel folders keep numbers, texts, None, dtypes "
                    "of triton.language and tuples")


def manifest_members(decorated, call, access):
    """(arguments, defines, constants): the call as members of a manifest. `access`: of the buffers that are written.
    constants: what expressions cannot say (floats, dtypes, tuples)."""
    arguments, defines, constants = [], {}, {}
    for parameter in decorated.jit.params:
        name = parameter.name
        if name not in call:
            continue
        value = call[name]
        if isinstance(value, Tensor):
            arguments.append({"name": name, "dtype": value.type, "shape": [str(extent) for extent in value.shape or (1, )],
                              "access": access.get(name, "read")})
        elif value is None:
            defines[name] = "None"
        elif parameter.is_constexpr and isinstance(value, (bool, int, str)):
            defines[name] = repr(value)
        elif parameter.is_constexpr:
            constants[name] = value
        elif isinstance(value, bool):
            arguments.append({"name": name, "dtype": "bool", "value": str(int(value))})
        elif isinstance(value, int):
            arguments.append({"name": name, "dtype": "int64", "value": str(value)})
        else:
            raise PackError(f"{decorated.place}: argument {name} of {decorated.jit.__name__} is "
                            f"{value!r}, which manifests cannot state; annotate it with tl.constexpr")
    return arguments, defines, constants
