"""A captured kernel: the manifest, space and cases that captured launches of one function make
(docs/capture.md).

Its manifest states names and dtypes and no numbers, so that it stays the same kernel for new keys,
whose numbers are cases. Launches that differ in a dtype, or in which arguments are None, are of
different kernels.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from dataclasses import dataclass
from typing import Any, Iterable, Mapping, Sequence

from .._canonical import Fields, Json, canonical, digest, digest_bytes
from .._errors import PackError
from .._pack.entries import SOURCE, kernel_text
from .._pack.options import is_compile_variable
from .._pack.signature import DTYPES, EXACT_MAX, INTEGERS
from . import fills, storages
from .documents import Config, Function, Launch, number, tensors_of, value_of

# Variables that name another target, or code from a place of the program's machine.
_UNMATCHED = ("TRITON_OVERRIDE_ARCH", "TRITON_KERNEL_OVERRIDE", "TRITON_DEFAULT_BACKEND")
PRUNED = "the program does not consider it for this key"
_SHORT = {name: short for short, name in DTYPES.items()}
_SCALARS = {"int": "int64", "float": "float32", "bool": "bool"}


class Refused(PackError):
    """A launch that no build can repeat; the text says why, and what would help."""


@dataclass(frozen=True)
class CapturedKernel:
    """`launches`: one of each key; `configs`: of all launches, each with every name; `also`: by the
    path of a launch, further ones of its key, of which code is made."""

    function: Function
    launches: tuple[Launch, ...]
    manifest: Fields
    configs: tuple[Json, ...]
    source: str
    also: Mapping[str, Sequence[Launch]]

    def further(self, first: Launch) -> Sequence[Launch]:
        return self.also.get(first.path, ())

    @property
    def all_launches(self) -> list[Launch]:
        return [one for first in self.launches for one in (first, *self.further(first))]

    @property
    def folder(self) -> str:
        return self.manifest["name"].replace("/", ".")

    @property
    def hash(self) -> str:
        return digest(self.manifest)


def _class_of(launch: Launch, constexprs: set[str]) -> tuple[tuple[str, str], ...]:
    """What a manifest states of the launch: dtypes of buffers and scalars."""
    found = []
    for argument in launch.arguments:
        name, kind = argument["name"], argument["kind"]
        if name in constexprs:
            continue
        if kind in ("tensor", "descriptor"):
            found.append((name, f"*{argument.get('base', argument)['dtype']}"))
        elif kind == "none" or kind in _SCALARS and not argument.get("constexpr"):
            found.append((name, _SCALARS.get(kind, kind)))
    return tuple(found)


def why_not_compiled(launch: Launch) -> str | None:
    """A sentence where the launch's code cannot be made."""
    if launch.refused:
        return launch.refused[0]
    for name, value in launch.variables.items():
        if not is_compile_variable(name) or name in _UNMATCHED or "/" in value:
            return (f"the program's Triton compiles with {name}={value[:100]}, which a builder "
                    "does not set: capture it without")
    for argument in launch.arguments:
        name, kind = argument["name"], argument["kind"]
        if kind == "refused":
            return f"argument {name} is {argument['why']}"
        if kind == "tuple":
            return f"argument {name} is a tuple, which a build has no place for"
    return None


def why_refused(launch: Launch) -> str | None:
    """A sentence where the launch cannot be repeated by an agent."""
    why = why_not_compiled(launch)
    if why is not None:
        return why
    for argument in tensors_of(launch):
        if argument["dtype"] not in _SHORT:
            return (f"argument {argument['name']} is a tensor of {argument['dtype']}, which no "
                    "dtype of a manifest is")
    for name, value in launch.key.items():
        if not name.isidentifier():
            return f"the autotuner's key has the name {name}"
    return storages.why_refused(launch) or fills.why_refused(launch)


def why_not_filled(launch: Launch, steering: set[str]) -> str | None:
    """A sentence where contents that decide what is accessed (steering.py) were not recorded."""
    for argument in tensors_of(launch):
        name, contents = argument["name"], argument["contents"]
        if name not in steering or argument["dtype"] not in INTEGERS:
            continue
        if contents is None:
            return (f"what is in {name} ({argument['dtype']}) steers what the kernel accesses, and "
                    "was not recorded; capture it with WAVETUNE_CAPTURE=raw")
        if any(type(value) is int and abs(value) > EXACT_MAX for value in contents.values()):
            return (f"{name}, which steers what the kernel accesses, holds integers beyond 2^53, "
                    "which no fill has")
    return None


def with_all_names(configs: Iterable[Fields]) -> list[Json]:
    """Each config once, with the names of all of them: a space's configs have the same names."""
    configs = list(configs)
    names = dict.fromkeys(name for config in configs for name in config)
    wholes = ({name: config.get(name) for name in names} for config in configs)
    return list({canonical(one): one for one in wholes}.values())


def _name(function: Function, own: Sequence[tuple[str, str]], key_names: Sequence[str]) -> str:
    """module.function/dtypes-digest: another one for other dtypes, or names of the key."""
    dtypes = sorted({_SHORT.get(kind[1:], "x") for _, kind in own if kind.startswith("*")})
    tail = hashlib.sha256(repr((own, list(key_names))).encode()).hexdigest()[:8]
    text = function.name.replace(":", ".").replace("<locals>.", "")
    return f"{text[-80:].lstrip('.')}/{'-'.join([*dtypes, tail])}"


def _manifest(function: Function, own: Sequence[tuple[str, str]], key_names: Sequence[str],
              source: str) -> Json:
    arguments = [{"name": name, "dtype": kind.removeprefix("*"),
                  "kind": "buffer" if kind[0] == "*" else "scalar"}
                 for name, kind in own if kind != "none"]
    return {
        "name": _name(function, own, key_names), "language": "triton", "entry": function.entry,
        "key": list(key_names), "cases": "build", "arguments": arguments,
        "sources": [{"path": SOURCE, "digest": digest_bytes(source.encode())}]
    }


def by_key(launches: Sequence[Launch], constexprs: set[str]
           ) -> tuple[list[Launch], dict[str, list[Launch]], list[tuple[Launch, str]]]:
    """Launches as (those that jobs measure, further ones of their keys by path, refused ones and
    why). The program uses one config for a key: the launch that it recorded first is measured."""
    firsts: dict[Any, Launch] = {}
    also: dict[str, list[Launch]] = {}
    left: list[tuple[Launch, str]] = []
    for launch in sorted(launches, key=lambda one: one.is_further):
        why, own = why_refused(launch), (launch.texts, canonical(dict(launch.key)))
        place = *own, _class_of(launch, constexprs)
        first = firsts.get(own if launch.is_further else place)
        if first is not None and why_not_compiled(launch) is None:
            also[first.path].append(launch)
        elif why is not None:
            left.append((launch, why))
        else:
            firsts.setdefault(own, launch)
            firsts[place] = launch
            also[launch.path] = []
    return [one for one in launches if one.path in also], also, left


def kernels_of(function: Function, launches: Iterable[Launch], also: Mapping[str, Sequence[Launch]],
               constexprs: set[str]) -> list[CapturedKernel]:
    """The kernels that the launches of one function are of; `also`: what by_key() says."""
    classes: dict[Any, list[Launch]] = defaultdict(list)
    for launch in launches:
        classes[_class_of(launch, constexprs), tuple(launch.key)].append(launch)
    source = kernel_text(function.document)
    return [CapturedKernel(function, tuple(members), _manifest(function, own, key_names, source),
                           tuple(with_all_names(config.config for launch in members
                                        for config in launch.configs)), source, also)
            for (own, key_names), members in sorted(classes.items(), key=repr)]


def case_of(kernel: CapturedKernel, launch: Launch, written: set[str],
            is_rounded: bool) -> Json:
    """The member "case" of a variant; `written`: buffers that the compiled code may write to."""
    autotune = kernel.function.autotune or {}
    # which Triton calls in the place of reset_to_zero
    has_hook = (autotune.get("hooks") or {}).get("pre")
    zeroed = [] if has_hook else autotune.get("reset_to_zero") or []
    initial = {**dict.fromkeys(zeroed, "zeros"), **fills.initial_of(launch.document)}
    names = {stated["name"] for stated in kernel.manifest["arguments"]}
    arguments = storages.buffers_of([one for one in tensors_of(launch) if one["name"] in names],
                                    initial, written,
                                    len({one.grid for one in launch.configs}) > 1)
    for stated in kernel.manifest["arguments"]:
        if stated["kind"] == "scalar":
            value = value_of(launch.argument(stated["name"]))
            arguments[stated["name"]] = {"value": number(value)}
    return {"arguments": arguments, **({"precision": "tf32"} if is_rounded else {})}


def space_of(kernel: CapturedKernel, constexprs: set[str]) -> Json:
    """The program's configs as a list; the default is the first config of the first launch."""
    names = list(kernel.configs[0])
    for config in kernel.configs:
        for name, value in config.items():
            if isinstance(value, float):
                raise Refused(f"a config has {name} = {value!r}; a value of a space is an integer, "
                              "a text, true, false or null")
    roles = {name: "option" for name in names if name not in constexprs}
    return {"configs": list(kernel.configs), "roles": roles, "default": kernel.configs[0]}


def failures(build: Fields) -> dict[str, int]:
    """How many configs do not compile, and how many the program itself left out."""
    failed = [one["error"] for variant in build["variants"] for one in variant.get("failed", [])]
    n_pruned = failed.count(PRUNED)
    return {"failed": len(failed) - n_pruned, "pruned": n_pruned}


def left_out(kernel: CapturedKernel, launch: Launch) -> list[Fields]:
    """Configs of the space that the program does not consider for this launch."""
    own = {canonical(whole(kernel, one)) for one in launch.configs}
    return [config for config in kernel.configs if canonical(config) not in own]


def whole(kernel: CapturedKernel, one: Config) -> Json:
    """A config of a launch with all names of the space."""
    return {name: one.config.get(name) for name in kernel.configs[0]}
