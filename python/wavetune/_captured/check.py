"""Whether a build is the one that was planned (plan.py): text of a capture was executed in the
process that made it, and nothing is signed or pushed that names what was not given.

Not checked, because only a compile gives them: the bytes of the code, and what the metadata and the
case say of it. They are of the folders, whose names are hashes of the text that was executed.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Mapping

from .._canonical import Fields, canonical
from .descriptors import without_compiled

_MEMBERS = {"kernel", "toolchain", "arch", "warp_size", "record", "variants"}


def given(is_it: bool, what: str) -> None:
    if not is_it:
        raise ValueError(f"it builds what it was not given: {what}")


def _check_objects(objects: Any, planned: Mapping[str, list[Fields]], is_first: bool) -> None:
    """`planned`: by config; of a key's further launches, each config may have several."""
    seen = set()
    for one in objects:
        text = canonical(one["config"])
        given(text in planned and text not in seen, "another config")
        seen.add(text)
        if is_first:  # it is launched
            given(one["grid"] == planned[text][0]["grid"], "another grid")
            given(one.get("fills", []) == planned[text][0]["fills"], "other fills")
            given(without_compiled(one.get("arguments")) in planned[text][0].get("arguments", ()),
                   "other arguments")
        else:
            given("fills" not in one and "arguments" not in one, "other fills or arguments")
        cache = one["metadata"]["cache"]
        files = {tuple(name.rsplit(".", 1)): digest for name, digest in cache["files"].items()}
        stems = {stem for stem, _ in files}
        given(any((plan.get("folder"), {plan.get("stem")}) == (cache["folder"], stems)
                  for plan in planned[text]), "another folder of Triton's cache")
        given(one["digest"] in files.values() and any(ending == "json" for _, ending in files),
              "a folder without the object")


def _check_signature(specialisation: Fields, planned: Any) -> None:
    given(specialisation["signature"] in (one["signature"] for one in planned
                                          if "signature" in one), "another signature")


def _by(member: str, objects: Any) -> dict[str, list[Fields]]:
    found: dict[str, list[Fields]] = defaultdict(list)
    for one in objects:
        found[canonical(one[member])].append(one)
    return found


def check_build(build: Fields, plan: Fields) -> None:
    """Raises ValueError, KeyError, TypeError or AttributeError where it is not the plan's."""
    given(set(build) == _MEMBERS, "another member")
    for name, value in plan["head"].items():
        given(canonical(build[name]) == canonical(value), f"another {name}")
    firsts = _by("key", (one for one in plan["objects"] if one["is_first"]))
    further = _by("key", (one for one in plan["objects"] if not one["is_first"]))
    for variant in build["variants"]:
        key = canonical(variant["key"])
        given(key in firsts, "another variant")
        planned = firsts.pop(key)
        _check_signature(variant, planned)
        given(any(variant["constexprs"].items() <= one.get("constexprs", {}).items()
                  for one in planned), "other constants")
        _check_objects(variant["objects"], _by("config", planned), True)
        for also in variant.get("also", ()):
            _check_signature(also, further[key])
            _check_objects(also["objects"], _by("config", further[key]), False)


def check_packed(build: Fields, plan: Fields) -> None:
    """The same of a build of an entry (entries.py), whose variants are for any key."""
    given(set(build) == _MEMBERS, "another member")
    for name, value in plan["head"].items():
        given(canonical(build[name]) == canonical(value), f"another {name}")
    given(len(build["variants"]) == len(plan["variants"]), "another variant")
    for variant, planned in zip(build["variants"], plan["variants"]):
        for name in ("when", "signature", "constexprs"):
            given(variant.get(name, "" if name == "when" else None) == planned[name],
                  f"another {name}")
        given("also" not in variant and "case" not in variant, "a captured variant")
        _check_objects(variant["objects"], _by("config", planned["objects"]), False)


def named_files(value: Any) -> set[str]:
    """The digests that a build names: of its objects and of the files beside them."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return set().union(*map(named_files, value))
    return {value} if isinstance(value, str) and value.startswith("sha256:") else set()
