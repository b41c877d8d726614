"""Which kernels a row of a table is of: the entries of kernels/tables say by "exports" how the key
of a kernel becomes the table's name and row, and by "from" whose function it is.
"""

from __future__ import annotations

import functools
import glob
import json
import os
import re
from typing import Any, Iterator, Mapping

from .._canonical import Named
from .log import quietly

FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tables")
_NO_MEMBERS = ("config", "prefer", "switches")  # of exports: they are of no row
_DISTINGUISH = ("dtype", "block_shape", "per_channel_quant")  # none where exports lack them


@functools.lru_cache(maxsize=None)
def _documents() -> list[Named]:
    found = []
    for path in sorted(glob.glob(os.path.join(FOLDER, "*", "kernel.json"))):
        with quietly(f"reading {path}"), open(path, encoding="utf-8") as file:
            found.append(json.load(file))
    return found


def items(kind: str, module: str, row: Named, launch: Named, arch: str | None) -> Iterator[Named]:
    """Items of a report of demand for a row of a table that the module looked up. `launch`: what is
    known of the launch beside it."""
    is_rocm = (arch or "").startswith("gfx")
    for document in _documents():
        for name, version in document["versions"].items():
            whole = {**document, **version}
            exports = whole.get("exports", {}).get(kind)
            origin = version.get("from", {}).get("module", "")
            if exports is None or origin.split(".")[0] != module.split(".")[0] or \
                    name.endswith("_rocm") != is_rocm and _twin(name) in document["versions"] or \
                    not _is_for(document, version, arch or ""):
                continue
            for key in _keys(whole["key"], exports, row, launch):
                yield {"kernel": f"{document['name']}/{name}", "key": key, "misses": 1}


def _twin(name: str) -> str:
    """The version with a space for the other vendor's GPUs."""
    return name[:-len("_rocm")] if name.endswith("_rocm") else f"{name}_rocm"


def _is_for(document: Named, version: Named, arch: str) -> bool:
    """MI300's 8-bit floats are others than those of all later GPUs."""
    own = version.get("arguments", {})
    stated = document["arguments"] if isinstance(own, dict) else own
    changed = own if isinstance(own, dict) else {}  # a version may change some by their names
    dtypes = [{**one, **(changed.get(one["name"], one) or {})}["dtype"] for one in stated]
    floats = [dtype for dtype in dtypes if dtype.startswith("float8")]
    is_fnuz = any(dtype.endswith("fnuz") for dtype in floats)
    return not floats or is_fnuz == arch.startswith("gfx94")


def _is_expression(stated: Any) -> bool:
    return isinstance(stated, str) and not re.fullmatch(r"[\w.-]+", stated)


def _keys(names: list[str], exports: Mapping[str, Any], row: Named,
          launch: Named) -> Iterator[Named]:
    """The keys of the kernel that are this row; none where they do not follow."""
    if any(row.get(member) and member not in exports for member in _DISTINGUISH):
        return
    key: Named = {}
    for member, stated in exports.items():
        value = row.get(member)
        if stated in names:
            key[stated] = value
        elif member not in _NO_MEMBERS and stated != value and not _is_expression(stated):
            return
    known = {**launch, **key}
    missing = [name for name in names if name not in known]
    if missing in ([], ["gemm"]):  # one table may be for both products of experts
        for gemm in ("up", "down")[:len(missing) + 1]:
            yield {name: known.get(name, gemm) for name in names}
