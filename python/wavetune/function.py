"""Whether a function and a manifest go together, and the manifest of a function that has none yet."""

from pathlib import Path
from typing import Any, Mapping

from .canonical import digest_bytes, read_bytes
from .decorator import state_restored
from .errors import PackError
from .keys import Key
from .signature import FACTS, Names, parse_grid, parse_signature, translate
from .source import Decorated, Heuristic


def parameter_names(jit: Any) -> list[str]:
    return [parameter.name for parameter in jit.params]


def check_function(jit: Any, manifest: Mapping[str, Any], config_names: set[str]) -> None:
    """Every parameter must get a value from exactly one place, and arguments must stand in the function's order."""
    names = parameter_names(jit)
    arguments = [argument.get("name") for argument in manifest["arguments"]]
    defines = set(manifest.get("defines", {}))
    for name in arguments:
        if name not in names:
            raise PackError(f"{manifest['entry']} has no parameter {name}; arguments are named as the function names "
                            f"them: {', '.join(names)}")
    if arguments != [name for name in names if name in arguments]:
        raise PackError(f"the arguments must stand in the order of the function: {', '.join(names)}")
    for name in sorted(defines - set(names)):
        raise PackError(f"{manifest['entry']} has no parameter {name}, which the defines name")
    for parameter in jit.params:
        given = [place for place, known in (("the arguments", name_in(parameter, arguments)),
                                            ("the defines", parameter.name in defines),
                                            ("the space", parameter.name in config_names)) if known]
        if len(given) > 1:
            raise PackError(f"parameter {parameter.name} gets a value from {' and from '.join(given)}; leave one")
        if parameter.is_constexpr and "the arguments" in given:
            raise PackError(f"parameter {parameter.name} is a constexpr, so it is no argument; put it into the defines")
        if not given and not (parameter.has_default and (parameter.is_constexpr or parameter.default is None)):
            place = "the space or the defines" if parameter.is_constexpr else "the arguments"
            raise PackError(f"parameter {parameter.name} of {manifest['entry']} gets no value; put it into {place}")
        if given and not parameter.is_constexpr and "the arguments" not in given:
            raise PackError(f"parameter {parameter.name} is no constexpr of {manifest['entry']}, so {given[0]} cannot "
                            "give it a value; annotate it with tl.constexpr or make it an argument")


def name_in(parameter: Any, names: list[str]) -> bool:
    return parameter.name in names


def key_names(decorated: Decorated, keys: list[Key]) -> list[str]:
    """The decorator's key names, then what else --key gives; the first key's order."""
    tuned = list(decorated.autotuner.keys) if decorated.autotuner is not None else []
    for name in tuned:
        if name not in keys[0]:
            raise PackError(f"the autotune decorator's key has {name}; give it with --key, like {name}=4096")
    return [*tuned, *(name for name in keys[0] if name not in tuned)]


def _heuristic(name: str, heuristic: Heuristic, names: Names, path: Path) -> str:
    lambda_ = heuristic.tree
    if lambda_ is None or len(lambda_.args.args) != 1:
        raise PackError(f"{path}: the heuristic of {name} is no lambda in the decorator; say what it is with "
                        f"--signature '{name}=constexpr(EXPRESSION)'")
    return translate(lambda_.body, names, f"the heuristic of {name}")


def make_manifest(decorated: Decorated, name: str, signature_text: str, grid_text: str, keys: list[Key],
                  config_names: set[str]) -> dict[str, Any]:
    """The manifest of a function, from --signature and --grid, its decorators and its text."""
    jit, signature = decorated.jit, parse_signature(signature_text)
    members = key_names(decorated, keys)
    parameters = {parameter.name: parameter for parameter in jit.params}
    for given in [*signature.arguments, *signature.defines]:
        if given not in parameters:
            raise PackError(f"--signature: {jit.__name__} has no parameter {given}; it has {', '.join(parameters)}")
    for parameter in jit.params:
        own = parameter.name
        if own in signature.arguments or own in signature.defines or own in config_names or own not in members:
            continue
        if parameter.is_constexpr:
            signature.defines[own] = own
        else:
            signature.arguments[own] = {"name": own, "dtype": "int64", "value": own}
    values = {n: str(a["value"]) for n, a in signature.arguments.items() if "value" in a}
    names = Names(frozenset({*members, *config_names, *FACTS}), {**signature.defines, **values}, decorated.constants)
    for own, heuristic in decorated.heuristics.items():
        if own not in signature.defines:
            signature.defines[own] = _heuristic(own, heuristic, names, decorated.path)
    for parameter in jit.params:
        own = parameter.name
        known = own in signature.arguments or own in signature.defines or own in config_names
        if not known and not parameter.has_default:
            kind = f"{own}=constexpr(EXPRESSION)" if parameter.is_constexpr else f"{own}=*fp16[EXTENT] or {own}=i64(…)"
            raise PackError(f"--signature does not say what {own} is: write {kind}")
    state_restored(decorated, signature.arguments)
    for argument in signature.arguments.values():
        if "shape" in argument and argument["access"] is None:
            argument["access"] = "read"
    if not any(a.get("access") in ("write", "readwrite") for a in signature.arguments.values()):
        raise PackError("--signature names no buffer that is written: put :write behind its extents")
    manifest: dict[str, Any] = {
        "name": name, "language": "triton", "entry": jit.__name__,
        "sources": [{"path": decorated.path.name, "digest": digest_bytes(read_bytes(decorated.path))}],
        "key": members,
        "arguments": [signature.arguments[p] for p in parameters if p in signature.arguments],
        "launch": {"grid": parse_grid(grid_text, names)}}
    if signature.defines:
        manifest["defines"] = signature.defines
    return manifest
