"""Triton's cache manager over HTTP: TRITON_CACHE_MANAGER=wavetune.triton:CacheManager. Importing it
also gives autotuners their choices (_runtime/restore.py).

The local folder comes first, and stays one that plain Triton reads. What it lacks is asked for, a
kernel's files in one request, and taken only
- with the digests of a choices document that a trusted key vouches for ($WAVETUNE_TRUSTED_KEYS), or
- with $WAVETUNE_SHARED_CODE=1, from a namespace that the operator opened to containers of one image
  under one token.
Shared objects (.so) are neither asked for nor sent: they run in the host's process.
"""

from __future__ import annotations

from triton.runtime.cache import FileCacheManager

from .entry import is_on


class CacheManager(FileCacheManager):
    """Triton makes one for each kernel that it compiles or looks up."""

    def __init__(self, key, override=False, dump=False):
        super().__init__(key, override=override, dump=dump)
        self._remote = None
        if not (override or dump):
            self._remote = _remote(self)

    def get_file(self, filename):
        if self._remote is not None:
            self._remote.need(filename, False)
        path = super().get_file(filename)
        if path is None and self._remote is not None:
            return self._remote.get_file(filename)
        return path

    def get_group(self, filename):
        if self._remote is not None:
            self._remote.need(filename, True)
        group = super().get_group(filename)
        if not group and self._remote is not None:
            return self._remote.get_group(filename) or group
        return group

    def put(self, data, filename, binary=True):
        path = super().put(data, filename, binary)
        if self._remote is not None:
            self._remote.put(data, filename)
        return path

    def put_group(self, filename, group):
        path = super().put_group(filename, group)
        if self._remote is not None:
            self._remote.put_group(filename, group)
        return path


def _remote(manager):
    """What asks the server for a folder's files; None where code is neither taken nor given."""
    if not is_on():
        return None
    from ._runtime.log import quietly
    with quietly("code from the server"):
        from ._runtime.program import start
        program = start()
        if program is not None and program.takes_code():
            from ._runtime.code import Folder
            return Folder(program, manager.key, manager.cache_dir)
    return None


if is_on():
    from ._runtime.program import start
    start()  # which raises nothing
