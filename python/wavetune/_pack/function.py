"""Whether a function and a manifest go together, and the manifest of a function that has none."""

import json
from typing import Any, Collection

from .._canonical import Fields, Json, digest_bytes, read_bytes
from .._errors import PackError
from .constants import FILE
from .decorator import state_restored
from .keys import Key
from .signature import FACTS, Names, Signature, parse_grid, parse_signature, translate
from .source import Decorated, Heuristic


def check_function(jit: Any, manifest: Fields, config_names: set[str],
                   constants: Collection[str] = (), heuristics: Collection[str] = ()) -> None:
    """Every parameter gets a value from exactly one place; arguments are in the function's order.
    `constants`: those of constexprs.json; `heuristics`: what they give where nothing else does."""
    names, entry = [parameter.name for parameter in jit.params], manifest["entry"]
    arguments = [argument.get("name") for argument in manifest["arguments"]]
    defines = manifest.get("defines", {})
    for name in arguments:
        if name not in names:
            raise PackError(f"{entry} has no parameter {name}; arguments are named as "
                            f"the function names them: {', '.join(names)}")
    if arguments != [name for name in names if name in arguments]:
        raise PackError("the arguments must stand in the order of the function: "
                        f"{', '.join(names)}")
    for name in sorted(set(defines) - set(names)):
        raise PackError(f"{entry} has no parameter {name}, which the defines name")
    places = {"the arguments": arguments, "the defines": defines, "the space": config_names,
              "constexprs.json": constants}
    for parameter in jit.params:
        name, is_constexpr = parameter.name, parameter.is_constexpr
        given = [place for place, known in places.items() if name in known]
        if not given and name in heuristics:
            continue
        if len(given) > 1:
            raise PackError(f"parameter {name} gets a value from {' and from '.join(given)}; leave "
                            "one")
        if is_constexpr and "the arguments" in given:
            raise PackError(f"parameter {name} is a constexpr, so it is no argument; put it into "
                            "the defines")
        if not given and not (parameter.has_default and
                              (is_constexpr or parameter.default is None)):
            place = "the space or the defines" if is_constexpr else "the arguments"
            raise PackError(f"parameter {name} of {entry} gets no value; put it into {place}")
        is_none = str(defines.get(name)) == "None"
        if given and not is_constexpr and "the arguments" not in given and not is_none:
            raise PackError(f"parameter {name} is no constexpr of {entry}, so {given[0]} cannot "
                            "give it a value; annotate it with tl.constexpr or make it an argument")


def key_names(decorated: Decorated, keys: list[Key], signature: Signature) -> list[str]:
    """The decorator's key names, then what else --key gives, but for what follows from these."""
    tuned = list(decorated.autotuner.keys) if decorated.autotuner is not None else []
    given = {*signature.defines, *signature.constants, *decorated.heuristics,
             *(name for name, own in signature.arguments.items()
               if own.get("value", name) != name or "shape" in own)}
    tuned = [name for name in tuned if name in keys[0] or name not in given]
    for name in tuned:
        if name not in keys[0]:
            raise PackError(f"the autotune decorator's key has {name}; give it with --key, like "
                            f"{name}=4096")
    return [*tuned, *(name for name in keys[0] if name not in tuned)]


def _heuristic(name: str, heuristic: Heuristic, names: Names) -> str | None:
    """The heuristic as an expression; None where it is evaluated for each key instead."""
    tree = heuristic.tree
    if tree is None or len(tree.args.args) != 1:
        return None
    try:
        return translate(tree.body, names, f"the heuristic of {name}")
    except PackError:
        return None


def sources_of(decorated: Decorated, constants: Fields) -> dict[str, bytes]:
    """The kernel's files: the function's first, then those of its package, then constexprs.json."""
    files = sorted(decorated.files.items(), key=lambda item: (item[1] != decorated.path, item[0]))
    found = {name: read_bytes(path) for name, path in files}
    if constants:
        found[FILE] = f"{json.dumps(constants, indent=2)}\n".encode()
    return found


def make_manifest(
        decorated: Decorated, name: str, signature_text: str, grid_text: str, keys: list[Key],
        config_names: set[str]) -> tuple[Json, Json, dict[str, bytes]]:
    """(the manifest of a function, from --signature and --grid, its decorators and its text; the
    JSON of the constants that expressions cannot say; the files of its sources by path)"""
    jit, signature = decorated.jit, parse_signature(signature_text)
    members = key_names(decorated, keys, signature)
    parameters = {parameter.name: parameter for parameter in jit.params}
    for given in signature.names:
        if given not in parameters:
            raise PackError(f"--signature: {jit.__name__} has no parameter {given}; it has "
                            f"{', '.join(parameters)}")
    for own, parameter in parameters.items():
        if own not in members or own in {*signature.names, *config_names}:
            continue
        if parameter.is_constexpr:
            signature.defines[own] = own
        else:
            signature.arguments[own] = {"name": own, "dtype": "int64", "value": own}
    values = {n: str(a["value"]) for n, a in signature.arguments.items() if "value" in a}
    buffers = frozenset(name for name, own in signature.arguments.items() if "shape" in own)
    names = Names(frozenset({*members, *config_names, *FACTS}), {**signature.defines, **values},
                  decorated.constants, buffers)
    for own, heuristic in decorated.heuristics.items():
        text = None if own in {*signature.defines, *signature.constants} else \
            _heuristic(own, heuristic, names)
        if text is not None:
            signature.defines[own] = text
    known = {*signature.names, *config_names, *decorated.heuristics}
    for own, parameter in parameters.items():
        if own not in known and not parameter.has_default:
            kind = f"{own}=constexpr(EXPRESSION)" if parameter.is_constexpr else \
                f"{own}=*fp16[EXTENT], {own}=i64(…) or {own}=None"
            raise PackError(f"--signature does not say what {own} is: write {kind}")
    state_restored(decorated, signature.arguments)
    for argument in signature.arguments.values():
        if "shape" in argument and argument["access"] is None:
            argument["access"] = "read"
    if not any(a.get("access") in ("write", "readwrite") for a in signature.arguments.values()):
        raise PackError("--signature names no buffer that is written: put :write behind its "
                        "extents")
    sources = sources_of(decorated, signature.constants)
    manifest: Json = {
        "name": name, "language": "triton", "entry": jit.__name__,
        "sources": [{"path": path, "digest": digest_bytes(data)} for path, data in sources.items()],
        "key": members,
        "arguments": [signature.arguments[p] for p in parameters if p in signature.arguments],
        "launch": {"grid": parse_grid(grid_text, names)}}
    if signature.defines:
        manifest["defines"] = signature.defines
    return manifest, signature.constants, sources
