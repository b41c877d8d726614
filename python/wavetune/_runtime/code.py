"""Compiled code from the server, for one folder of Triton's cache; and to it.

A read names the release whose choices state the folder's files; without one the server has only
what containers of the namespace stored. Before it is stored, names, digests where a release states
them, and the kernel's metadata are checked: a file that Triton cannot read would end the program.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
from typing import Any, Callable, Iterable, Iterator, Mapping

from .._canonical import digest_bytes
from . import counters
from .log import log, quietly
from .sender import path_of
from .wire import GARBLED, Bad

GROUP_FILES_MAX = 64
_KEY = re.compile(r"[A-Za-z0-9_\-=]{16,128}")
_AUTOTUNE = ".autotune.json"
_METADATA = {
    "hash": str, "name": str, "shared": int, "num_warps": int, "num_ctas": int, "num_stages": int,
    "target": dict
}
_CONFIG = {
    "kwargs", "num_warps", "num_stages", "num_ctas", "maxnreg", "pre_hook", "ir_override",
    "minRegAutoWS", "maxRegAutoWS", "num_buffers_warp_spec", "num_consumer_groups",
    "reg_dec_producer", "reg_inc_consumer"
}


def folder_name(hexdigits: str) -> str:
    """That of a folder of Triton's cache."""
    return base64.b32encode(bytes.fromhex(hexdigits)).decode().rstrip("=")


def check_name(name) -> str:
    """A name that is safe to store, of a file that no process executes. Raises Bad."""
    if not isinstance(name, str) or not 0 < len(name) <= 255 or not name.isprintable() or \
            not {"/", "\\"}.isdisjoint(name) or ".." in name or \
            name.startswith((".", "__grp__", "tmp.")):
        raise Bad(f"{str(name)[:80]!r} is no name of a file of code")
    endings = name.lower().split(".")[1:]
    if not {"so", "dll", "dylib", "pyd", "py", "pyc", "pth"}.isdisjoint(endings):
        raise Bad(f"{name[:80]} would run in the host's process")
    return name


def pack(files: Mapping[str, bytes]) -> bytes:
    """The body of a group: a line of JSON with names and sizes, then the bytes in that order."""
    head = json.dumps([[name, len(data)] for name, data in files.items()], separators=(",", ":"))
    return b"".join([head.encode(), b"\n", *files.values()])


def unpack(body: bytes) -> dict[str, bytes]:
    """The files of a group's body. Raises Bad."""
    head, newline, rest = body.partition(b"\n")
    try:
        listed = json.loads(head) if newline else None
    except (ValueError, RecursionError):
        listed = None
    if not isinstance(listed, list) or not 0 < len(listed) <= GROUP_FILES_MAX:
        raise Bad("the group has no list of its files")
    files = {}
    for one in listed:
        if not isinstance(one, list) or len(one) != 2 or type(one[1]) is not int or \
                not 0 <= one[1] <= len(rest):
            raise Bad("the group's list and its bytes do not agree")
        if check_name(one[0]) in files:
            raise Bad(f"the group has {one[0][:80]} twice")
        files[one[0]], rest = rest[:one[1]], rest[one[1]:]
    if rest:
        raise Bad("the group's list and its bytes do not agree")
    return files


def _read(paths: Iterable[tuple[str, str]]) -> dict[str, bytes]:
    """Files on this machine, by the names that they are to have."""
    files = {}
    for name, path in paths:
        check_name(name)
        with open(path, "rb") as file:
            files[name] = file.read()
    return files


@contextlib.contextmanager
def _reading(what: str) -> Iterator[None]:
    try:
        yield
    except GARBLED as error:
        raise Bad(f"{what} not what Triton writes ({type(error).__name__}: {str(error)[:80]})"
                  ) from None


def check_metadata(data: bytes, key: str) -> None:
    """That Triton can read the kernel's metadata, whose hash names this folder."""
    with _reading("the kernel's metadata are"):
        found = json.loads(data)
        for name, kind in _METADATA.items():
            if not isinstance(found[name], kind) or isinstance(found[name], bool):
                raise ValueError(name)
        if set(found["target"]) != {"arch", "backend", "warp_size"} or \
                not all(name.isidentifier() for name in found):
            raise ValueError("target")
        folder = folder_name(found["hash"])
    if folder != key:
        raise Bad("the kernel's metadata are of another folder")


def check_autotune(data: bytes) -> None:
    """That Triton can make the configs of the file, and that none replaces code."""
    with _reading("the file of autotuning is"):
        timings = json.loads(data)["configs_timings"]
        if not timings:
            raise ValueError("no config")
        for config, timing in timings:
            is_known = isinstance(config["kwargs"], dict) and set(config) <= _CONFIG
            if not is_known or config.get("ir_override") is not None or \
                    config.get("pre_hook") is not None or \
                    not all(isinstance(ms, (int, float)) for ms in timing):
                raise ValueError("a config")


def code_path(program, folder: str, *names: str, release: str | None = None) -> str:
    """Where a folder's files are read (`release`: that states them) and stored."""
    stated = {} if release is None else {"release": release}
    return path_of("v1", "remote", "triton", folder, *names, image=program.settings.image(),
                   **stated)


class Folder:
    """Nothing is raised by what has no "_"."""

    def __init__(self, program, key: str, cache_dir: str):
        self.program, self.key, self.cache_dir = program, key, cache_dir
        self.is_named = bool(_KEY.fullmatch(key))

    def need(self, name: str, is_group: bool) -> None:
        """The program looks up a file or group, which it may have."""
        with quietly("what a start needs"):
            if self._gives():
                self.program.start.need(self.key, name, is_group)

    def get_file(self, name: str) -> str | None:
        return self._got(name, self._get_file)

    def get_group(self, name: str) -> dict[str, str] | None:
        return self._got(name, self._get_group)

    def _got(self, name: str, get: Callable[[str], Any]):
        with quietly("code from the server"):
            try:
                return get(name)
            except Bad as why:
                counters.refused += 1
                log(f"{name} of {self.key} is not used: {why}")
            except OSError as error:  # a full folder: Triton will compile
                log(f"{name} of {self.key} cannot be stored: {error}")
        return None

    def put(self, data, name: str) -> None:
        """A file of autotuning; files of kernels go as a group."""
        with quietly("a file to send"):
            if not name.endswith(_AUTOTUNE) or not self._gives():
                return
            body = data if isinstance(data, bytes) else str(data).encode()
            if any(0.0 in timing for _, timing in json.loads(body)["configs_timings"]):
                return  # not measured: the config was chosen
            self.program.sender.file(code_path(self.program, self.key, name), body)

    def put_group(self, name: str, group: Mapping[str, str]) -> None:
        # A group that has a shared object is not sent.
        with quietly("a group to send"), contextlib.suppress(Bad):
            if self._gives():
                path = code_path(self.program, self.key, "group", check_name(name))
                self.program.sender.file(path, pack(_read(group.items())))

    def _gives(self) -> bool:
        return self.is_named and self.program.gives_code() and self.program.sender is not None

    def _ask(self, *names: str, release: str | None = None) -> bytes | None:
        path = code_path(self.program, self.key, *names, release=release)
        answer = self.program.start.take(path) or self.program.wire.request("GET", path)
        if answer is not None and answer.status == 403:
            self.program.is_code_refused = True  # it will not change while the program runs
        return answer.body if answer is not None and answer.status == 200 else None

    def _get_file(self, name: str) -> str | None:
        if not self.is_named or not name.endswith(_AUTOTUNE) or not self.program.gives_code():
            return None
        data = self._ask(check_name(name))
        if data is None:
            return None
        check_autotune(data)
        return self._store(name, data)

    def _get_group(self, name: str) -> dict[str, str] | None:
        if not self.is_named or not name.endswith(".json") or self.program.is_code_refused:
            return None
        check_name(name)
        stated = self.program.choices.code(self.key)
        if stated is None and not self.program.gives_code():
            return None
        if stated is not None and stated.place is not None:
            place = os.path.join(stated.place, self.key)
            files = _read((member, os.path.join(place, member)) for member in stated.digests)
        else:
            body = self._ask("group", name, release=stated.release if stated is not None else None)
            if body is None:
                return None
            files = unpack(body)
        self._check(name, files, stated.digests if stated is not None else None)
        group = {member: self._store(member, data) for member, data in files.items()}
        # The form that FileCacheManager writes and plain Triton reads: names to local paths.
        self._store(f"__grp__{name}", json.dumps({"child_paths": group}).encode())
        counters.groups += 1
        return group

    def _check(self, name: str, files: Mapping[str, bytes], digests) -> None:
        if name not in files or len(files) < 2:
            raise Bad("the group has no metadata, or nothing else")
        for member, data in files.items():
            if not member.startswith(name[:-len("json")]):
                raise Bad(f"{member[:80]} is not of this kernel")
            if digests is not None and digests.get(member) != digest_bytes(data):
                raise Bad(f"{member[:80]} has another digest than the release states")
        if digests is not None and set(digests) != set(files):
            raise Bad("the group lacks files that the release states")
        binaries = [data for member, data in files.items()
                    if member.endswith((".hsaco", ".cubin", ".spv"))]
        if not binaries or not all(binaries):
            raise Bad("the group has no compiled code")
        check_metadata(files[name], self.key)

    def _store(self, name: str, data: bytes) -> str:
        """Stores a file whole or not at all, also beside processes that do the same."""
        path = os.path.join(self.cache_dir, name)
        beside = os.path.join(self.cache_dir,
                              f"tmp.wavetune.{os.getpid()}.{id(self):x}.{counters.requests}")
        try:
            with open(beside, "wb") as file:
                file.write(data)
            os.replace(beside, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(beside)
            raise
        return path
