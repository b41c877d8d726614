"""The tables of $WAVETUNE_TABLES, which plugins.py gives to vLLM, SGLang and AITER: files named as
these programs name theirs, in the named folders or in one below them for each format, as `wavetune
fetch` writes them. Where folders have one table, rows of the first one named are used.

wavetune-tables.json beside the tables states the environment that they were measured in, and the
switches of the program under which it reads them. Tables of another GPU, arch, number of compute
units or partition are not used.
"""

from __future__ import annotations

import json
import os
import re
from typing import Any, Callable, Mapping, Sequence

from .._canonical import Named
from .log import log

STATED = "wavetune-tables.json"
FORMATS = ("vllm-w8a8", "vllm-moe", "sglang-w8a8", "sglang-moe", "aiter-triton")
BYTES_MAX = 4 << 20
_NUMBER = re.compile(r"[1-9][0-9]{0,8}")
_BUCKET = re.compile(r"any|M_(?:LEQ|GEQ)_[1-9][0-9]{0,8}")
_OFF: dict[Any, None] = dict.fromkeys((None, "", "0", "false", "False"))  # null: not set, or 0
_HARDWARE = ("gpu", "arch", "compute_units", "partition")
Rows = dict[Any, Named]  # configs, by M or by AITER's name for a range of it


class Folder:
    """`why`: why its tables are not used; "": they are; None: that was not asked yet."""

    def __init__(self, path: str):
        self.path, self.why = path, None
        self.environment: Named = {}
        self.switches: Named = {}
        try:
            stated = _read(os.path.join(path, STATED))
            self.environment, self.switches = (_object(stated.get(name, {}))
                                               for name in ("environment", "switches"))
        except FileNotFoundError:
            log(f"{path} has no {STATED}: what its tables were measured on is known by their names "
                f"alone")
        except (OSError, ValueError) as error:
            self.why = f"{STATED} cannot be read: {error}"
            log(f"the tables of {path} are not used: {self.why}")

    def note_switches(self, variables: Mapping[str, str]) -> None:
        """Says which switches are not as they were."""
        for name, stated in self.switches.items():
            here = variables.get(name)
            if _OFF.get(here, here) != _OFF.get(stated, stated):
                was, is_ = ("not set" if one is None else one for one in (stated, here))
                log(f"the tables of {self.path} are read where {name} is {was}, and it is {is_} "
                    f"here: the program may read others")

    def refuses(self, environment: Callable[[], Named]) -> bool:
        """Whether its tables are not for this process."""
        if self.why is None:
            self.why = differs(self.environment, environment()) if self.environment else ""
            if self.why:
                log(f"the tables of {self.path} are not used: {self.why}")
        return bool(self.why)


class Tables:
    """`environment`: of this process, which is known when a GPU is in use."""

    def __init__(self, paths: Sequence[str], environment: Callable[[], Named],
                 variables: Mapping[str, str]):
        self.environment = environment
        self.folders: dict[str, list[Folder]] = {name: [] for name in FORMATS}
        for path in paths:
            own = os.path.basename(os.path.normpath(path))
            below = [name for name in FORMATS if os.path.isdir(os.path.join(path, name))]
            if not os.path.isdir(path):
                log(f"WAVETUNE_TABLES: {path} is no folder")
            for name in below:
                self._add(os.path.join(path, name), [name])
            if not below and os.path.isdir(path):
                self._add(path, [own] if own in FORMATS else FORMATS)
        for folder in dict.fromkeys(one for all_ in self.folders.values() for one in all_):
            folder.note_switches(variables)

    def _add(self, path: str, formats: Sequence[str]) -> None:
        folder = Folder(path)
        for name in formats:
            self.folders[name].append(folder)

    def rows(self, format_: str, name: str, needed: Sequence[str],
             pattern: re.Pattern[str] = _NUMBER) -> Rows:
        """The rows of the table; {}: no folder has it."""
        found: Rows = {}
        for folder in reversed(self.folders[format_]):
            path = os.path.join(folder.path, name)
            if not os.path.isfile(path) or folder.refuses(self.environment):
                continue
            try:
                found.update(check(_read(path), needed, pattern))
            except (OSError, ValueError) as error:
                log(f"{path} is not used: {error}")
        return found

    def buckets(self, name: str, needed: Sequence[str]) -> Rows:
        """Those of a table of AITER, by M_LEQ_8, M_GEQ_8192, any."""
        return self.rows("aiter-triton", name, needed, _BUCKET)


def check(document: Named, needed: Sequence[str], pattern: re.Pattern[str]) -> Rows:
    """Rows by M, or by text where the pattern is of texts. Raises ValueError."""
    rows: Rows = {}
    for name, config in document.items():
        if name == "triton_version":
            continue  # vLLM's tuner notes it
        if not pattern.fullmatch(name) or not isinstance(config, dict):
            raise ValueError(f"{name[:40]!r} is no row")
        for member in needed:
            if type(config.get(member)) is not int or config[member] < 1:
                raise ValueError(f"row {name}: {member} is no positive integer")
        for member, value in config.items():
            if not isinstance(value, (bool, int, str, type(None))):
                raise ValueError(f"row {name}: {member[:40]} is no integer, boolean, text or null")
        rows[int(name) if pattern is _NUMBER else name] = config
    return rows


def bucket(rows: Rows, m: int) -> Named | None:
    """The row that AITER takes for M, but for `any`, with which it counts a shape as not tuned."""
    most = sorted(int(name[6:]) for name in rows if name.startswith("M_LEQ_"))
    least = sorted((int(name[6:]) for name in rows if name.startswith("M_GEQ_")), reverse=True)
    for number in most:
        if m <= number:
            return rows[f"M_LEQ_{number}"]
    return next((rows[f"M_GEQ_{number}"] for number in least if m >= number), None)


def differs(stated: Named, here: Named) -> str:
    """Why tables measured in the one environment are not for the other; "": they are. As the server
    decides (common/node/environment.h), of the hardware alone."""
    for name in _HARDWARE:
        one, other = stated.get(name), here.get(name)
        if name in stated and (_model(one) != _model(other) if name == "gpu" else one != other):
            has = "is not known here" if other is None else f"is {other} here"
            return f"they were measured on {name} {one}, which {has}"
    partition = here.get("partition")
    is_whole = partition is not None and (partition == "" or partition.split("/")[0] == "SPX")
    if not is_whole and "partition" not in stated and "compute_units" not in stated:
        return f"they are for a whole GPU, and the partition here is {partition or 'not known'}"
    return ""


def _model(name: Any) -> str:
    """A GPU's name without the form of its module, which some of its drivers state."""
    return re.sub(r" (OAM|VF)$", "", str(name).replace("_", " ")).casefold()


def _read(path: str) -> Named:
    """Raises OSError or ValueError."""
    with open(path, "rb") as file:
        body = file.read(BYTES_MAX + 1)
    if len(body) > BYTES_MAX:
        raise ValueError(f"it is larger than {BYTES_MAX >> 20} MiB")
    try:
        return _object(json.loads(body))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _object(value: Any) -> Named:
    if not isinstance(value, dict):
        raise ValueError("it has no JSON object where one is wanted")
    return value
