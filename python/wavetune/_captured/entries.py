"""Captured launches of functions whose configs a program takes from a table, not from an autotuner.

With an entry (_pack/entries.py) the launch's arguments give the key, its config members are
dropped, and what is built is the entry's kernel with its space. Without one, a launch whose
arguments look like config members is refused: a job of the one config that it had would tune
nothing.
"""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Sequence

from .._canonical import Fields, Json, canonical
from .._errors import PackError
from .._pack.artifacts import cache_place
from .._pack.build import Plan, Request, build_variants, head_of_plan, make_plan, make_task
from .._pack.build import write_build
from .._pack.compiling import compile_all, source_of
from .._pack.constants import from_json
from .._pack.entries import Entry, kernel_in, kernel_text
from .._pack.expressions import ExpressionError, expression
from .._pack.source import Decorated
from .._runtime.values import decode
from .confined import Terms, build_confined
from .documents import Function, Launch, value_of
from .kernel import why_not_compiled
from .module import recreate
from .plan import Toolchain, refusals

OPTIONS = {"num_warps", "num_stages", "num_ctas", "waves_per_eu", "matrix_instr_nonkdim", "kpack"}


class Unmatched(PackError):
    """Why a launch is not one of an entry."""


def _scope(launch: Launch) -> Json:
    """What expressions read of a launch: values by name, arch, and of a tensor x its x_dtype and
    x_extent_0, x_extent_1, …"""
    scope: Json = {"arch": launch.arch, **(launch.configs[0].config if launch.configs else {})}
    for argument in launch.arguments:
        name, kind = argument["name"], argument["kind"]
        if kind == "tensor":
            scope[f"{name}_dtype"] = argument["dtype"]
            scope.update({f"{name}_extent_{i}": n for i, n in enumerate(argument["shape"])})
        elif kind == "dtype":
            scope[name] = argument["value"]
        elif kind == "none":
            scope[name] = None
        elif kind in ("int", "float", "bool", "string", "constexpr"):
            value = decode(argument["value"])
            scope[name] = getattr(value, "value", value)
    return scope


def _evaluated(text: Any, scope: Fields, what: str) -> Any:
    try:
        return expression(str(text)).evaluate(scope)
    except ExpressionError as error:
        why = str(error).partition("; known are")[0]  # some hundred names
        raise Unmatched(f"{what}: {why}") from None


def key_of(entry: Entry, launch: Launch) -> Json:
    """The entry's key for the launch; Unmatched where the launch is none of the entry's: a buffer
    of another dtype, a scalar or a constexpr that the entry states otherwise."""
    scope, manifest = _scope(launch), {**entry.document, **entry.own}
    captured, arguments = entry.own.get("captured", {}), {a["name"]: a for a in launch.arguments}
    places = captured.get("key", {})
    key = {name: _evaluated(places.get(name, name), scope, f"{name} of the key")
           for name in manifest["key"]}
    if "when" in captured and not _evaluated(captured["when"], scope, '"when"'):
        raise Unmatched(f"its condition does not hold: {captured['when']}")
    members = {name: scope[name] for name in entry.members if name in scope}
    known = {**key, "arch": launch.arch, **members}

    stated: Json = dict(manifest.get("defines", {}))
    for argument in manifest["arguments"]:
        name, own = argument["name"], arguments.get(argument["name"], {})
        if "value" in argument:
            stated[name] = argument["value"]
        elif own.get("kind") == "none" and argument["access"] == "read":
            continue  # what the function does not read then, as its constexprs say
        elif own.get("kind") != "tensor" or own["dtype"] != argument["dtype"]:
            found = own.get("dtype") or own.get("kind", "not there")
            raise Unmatched(f"{name} is {found} in the launch, and {argument['dtype']} by the "
                            "entry")
    for name, text in stated.items():
        if isinstance(scope.get(name), float) or not expression(str(text)).names <= set(known):
            continue  # no expression is one, or it follows from the config
        value = _evaluated(text, known, name)
        if name not in scope or scope[name] != value:
            raise Unmatched(f"{name} is {scope.get(name)!r} in the launch, and {value!r} by the "
                            "entry")
    for name, constant in entry.constants.items():
        own = arguments.get(name)
        value = getattr(value_of(own), "value", value_of(own)) if own else None
        if value != from_json(constant, entry.place):
            raise Unmatched(f"{name} is {value!r} in the launch, and {canonical(constant)} by the "
                            "entry")
    return key


def config_members(launch: Launch) -> list[str]:
    """Those arguments that look like members of a config: whole numbers that are compiled in and
    are written in capitals; with these, what the launch states of Triton's options."""
    stated = launch.document["configs"][0]["config"] if launch.document["configs"] else {}
    found = [one["name"] for one in launch.arguments
             if one["kind"] == "constexpr" and type(decode(one["value"])) is int and
             one["name"].isupper() and len(one["name"]) > 1]
    return [*found, *sorted(OPTIONS.intersection(stated))] if found else []


def why_no_space(function: Function, launch: Launch, near: str = "") -> str | None:
    """A sentence where nothing says which configs a launch could have. `near`: why no entry
    fits."""
    members = config_members(launch) if function.autotune is None else []
    if not members:
        return None
    return (f"no autotuner and no entry say which configs it could have{near}: "
            f"{', '.join(members)} look like members of a config; `wavetune captures space` "
            "writes an entry to edit, which builders take with --entries")


@dataclass(frozen=True)
class _Group:
    """Launches of one entry, with the key of each."""

    entry: Entry
    launches: list[Launch]
    keys: list[Json]


def _grouped(function: Function, launches: Sequence[Launch], entries: Sequence[Entry]
             ) -> tuple[list[Launch], list[_Group], list[tuple[Launch, str]]]:
    """(launches that are built as they are, those of entries, those of neither and why)"""
    module = function.name.partition(":")[0]
    mine = [one for one in entries
            if function.autotune is None and one.is_of(module, function.entry)]
    plain, left = [], []
    groups: dict[str, _Group] = {}
    for launch in launches:
        near = ""
        why = why_not_compiled(launch) if mine else None
        for entry in mine if why is None else ():
            try:
                key = key_of(entry, launch)
            except Unmatched as error:
                near += f" (not {entry.place}: {error})" if len(near) < 300 else ""
                continue
            group = groups.setdefault(entry.place, _Group(entry, [], []))
            group.launches.append(launch)
            group.keys.append(key)
            break
        else:
            why = why or why_no_space(function, launch, near)
            if why is None:
                plain.append(launch)
            else:
                left.append((launch, why))
    return plain, list(groups.values()), left


def build_launches(function: Function, launches: Sequence[Launch], arch: str, output: Path,
                   terms: Terms, blobs: Path | None = None,
                   which: str = "") -> tuple[list[Json], list[Json]]:
    """build_confined() of each launch as what it is; what is built of an entry states "of": by
    launch, its key and its space."""
    plain, groups, left = _grouped(function, launches, terms.entries)
    built: list[Json] = []
    refused = [one for launch, why in left for one in refusals(function.name, [launch], why)]
    if plain:
        built, more = build_confined(function, plain, arch, output, terms, blobs, which)
        refused += more
    for group in groups:
        found, more = build_confined(function, group.launches, arch, output, terms, None, which,
                                     (group.entry, group.keys))
        refused += more
        for one in found:
            own = dict(zip((launch.path for launch in group.launches), group.keys))
            built.append({**one, "of": {place: {"key": own[place], "space": group.entry.space}
                                        for place in one["launches"]}})
    return built, refused


# In the confined processes.

def _plan(function: Function, entry: Entry, keys: list[Json], toolchain: Toolchain,
          request: Fields, scratch: Path) -> tuple[Plan, dict[str, bytes]]:
    """The plan of the entry's kernel with the captured function, and the files of its folder."""
    modules = scratch / "modules"
    modules.mkdir()
    jit = recreate(function.document, modules)
    decorated = Decorated(jit, None, {}, Path(entry.place), 1, {})
    files = entry.folder(kernel_text(function.document))
    kernel = kernel_in(entry, files, decorated, scratch)
    os.environ["TRITON_CACHE_DIR"] = str(scratch / "cache")
    distinct = list({canonical(key): key for key in keys}.values())
    return make_plan(Request(kernel, distinct, toolchain.arch, request["processes"],
                             request["timeout_s"], toolchain=dict(toolchain.stated),
                             torch=toolchain.stated.get("torch"))), files


def plan_entry(function: Function, entry: Entry, keys: list[Json], toolchain: Toolchain,
               request: Fields, scratch: Path) -> Json:
    """As plan.plan_function(), for check.check_packed()."""
    try:
        plan, files = _plan(function, entry, keys, toolchain, request, scratch)
    except PackError:  # as building says
        return {}
    tasks = [(variant, config) for variant, own in zip(plan.variants, plan.configs)
             for config in own]

    def planned(number: int) -> Json:
        task = make_task(plan, *tasks[number])
        source, options = source_of(task, plan.decorated.jit)
        folder, stem = cache_place(source, options, plan.target)
        return {"config": tasks[number][1], "folder": folder, "stem": stem}

    results = compile_all([{} for _ in tasks], planned, request["processes"], request["timeout_s"])
    objects: dict[int, list[Json]] = defaultdict(list)
    for (variant, config), result in zip(tasks, results):
        objects[id(variant)].append({"config": config, **result})
    kernel = plan.request.kernel
    return {kernel.manifest["name"].replace("/", "."): {
        "name": kernel.manifest["name"], "head": head_of_plan(plan),
        "files": {name: data.decode() for name, data in files.items()},
        "keys": [key for variant in plan.variants for key in variant.keys],
        "variants": [{"when": one.when, "signature": one.signature, "constexprs": one.constexprs,
                      "objects": objects[id(one)]} for one in plan.variants]}}


def build_entry(function: Function, launches: Sequence[Launch], entry: Entry, keys: list[Json],
                toolchain: Toolchain, request: Fields, output: Path,
                step: Callable[[int, int], None]) -> Json:
    """As build.build_function()."""
    try:
        plan, files = _plan(function, entry, keys, toolchain, request, Path.cwd())
        made = output / plan.request.kernel.manifest["name"].replace("/", ".")
        (made / "build" / "objects").mkdir(parents=True)
        build = {**head_of_plan(plan), "variants": build_variants(plan, made / "build", step)}
        write_build(build, made / "build")
    except PackError as error:
        return {"built": [], "refused": refusals(function.name, launches, str(error))}
    for name, data in files.items():
        (made / name).write_bytes(data)
    return {"built": [{"folder": str(made), "notes": [],
                       "launches": [one.path for one in launches]}], "refused": []}
