"""Whether a build is the one that was planned (plan.py): text of a capture was executed in the
process that made it, and nothing is signed or pushed that names what was not given.

Not checked, because only a compile gives them: the bytes of the code, and what the metadata and
the case say of it. They are of the folders, whose names are hashes of the text that was executed.
"""

from __future__ import annotations

from typing import Any, Mapping

from .._canonical import Fields, canonical
from .descriptors import without_compiled

_MEMBERS = {"kernel", "toolchain", "arch", "warp_size", "record", "variants"}


def _given(is_it: bool, what: str) -> None:
    if not is_it:
        raise ValueError(f"it builds what it was not given: {what}")


def _check_objects(objects: Any, planned: Mapping[str, list[Fields]],
                   is_first: bool) -> None:
    """`planned`: by config; of a key's further launches, each config may have several."""
    seen = set()
    for one in objects:
        text = canonical(one["config"])
        _given(text in planned and text not in seen, "another config")
        seen.add(text)
        if is_first:  # it is launched
            _given(one["grid"] == planned[text][0]["grid"], "another grid")
            _given(one.get("fills", []) == planned[text][0]["fills"], "other fills")
            _given(without_compiled(one.get("arguments")) in planned[text][0].get("arguments", ()),
                   "other arguments")
        else:
            _given("fills" not in one and "arguments" not in one, "other fills or arguments")
        cache = one["metadata"]["cache"]
        files = {tuple(name.rsplit(".", 1)): digest for name, digest in cache["files"].items()}
        stems = {stem for stem, _ in files}
        _given(any((plan.get("folder"), {plan.get("stem")}) == (cache["folder"], stems)
                   for plan in planned[text]), "another folder of Triton's cache")
        _given(one["digest"] in files.values() and any(ending == "json" for _, ending in files),
               "a folder without the object")


def _check_signature(specialisation: Fields, planned: Any) -> None:
    _given(any("signature" in one and one["signature"] == specialisation["signature"]
               for one in planned), "another signature")


def _by_config(objects: Any) -> dict[str, list[Fields]]:
    found: dict[str, list[Fields]] = {}
    for one in objects:
        found.setdefault(canonical(one["config"]), []).append(one)
    return found


def check_build(build: Fields, plan: Fields) -> None:
    """Raises ValueError, KeyError, TypeError or AttributeError where it is not the plan's."""
    _given(set(build) == _MEMBERS, "another member")
    for name, value in plan["head"].items():
        _given(canonical(build[name]) == canonical(value), f"another {name}")
    first, further = ({}, {})  # type: dict[str, list[Any]], dict[str, list[Any]]
    for one in plan["objects"]:
        (first if one["is_first"] else further).setdefault(canonical(one["key"]), []).append(one)
    seen = set()
    for variant in build["variants"]:
        key = canonical(variant["key"])
        _given(key in first and key not in seen, "another variant")
        seen.add(key)
        _check_signature(variant, first[key])
        _given(any(variant["constexprs"].items() <= one.get("constexprs", {}).items()
                   for one in first[key]), "other constants")
        _check_objects(variant["objects"], _by_config(first[key]), True)
        for also in variant.get("also", ()):
            _check_signature(also, further.get(key, ()))
            _check_objects(also["objects"], _by_config(further.get(key, ())), False)


def named_files(build: Any) -> set[str]:
    """The digests that a build names: of its objects and of the files beside them."""
    found = set()
    waiting = [build]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            waiting.extend(one.values())
        elif isinstance(one, list):
            waiting.extend(one)
        elif isinstance(one, str) and one.startswith("sha256:"):
            found.add(one)
    return found
