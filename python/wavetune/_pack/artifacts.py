"""Where Triton's JIT looks for a compiled kernel in TRITON_CACHE_DIR, and the metadata file that it
wants to find there.

The folder is a hash as triton/runtime/cache.py makes it (get_cache_key; the same since 3.3).
Deployments leave line information on, pack turns it off so that objects hold no path: the
instructions are the same, so the folder is the deployment's. AMD's options hold the path of the
installed Triton, which is hashed before 3.9.
"""

import base64
import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Mapping

from .._canonical import Fields
from .._errors import PackError
from .target import hashes_library_paths, triton_version

_LINE_INFO = "TRITON_DISABLE_LINE_INFO"


@dataclass(frozen=True)
class Image:
    """What the folders depend on beside the kernel, as an image's identity.json has it."""

    folder: str | None  # of its triton package
    backend_hash: str | None  # before 3.5 it has the version of the linker in it
    variables: Mapping[str, str]


@dataclass(frozen=True)
class Entry:
    """`name`: what its files are called before the extension."""

    folder: str
    name: str
    metadata: bytes


def _key_module() -> Any:
    import triton.runtime.cache as cache  # type: ignore[import-untyped]
    if hasattr(cache, "triton_key"):
        return cache
    import triton.compiler.compiler as compiler  # before 3.5
    return compiler


def installed_key() -> str:
    """triton_key(): slow (it hashes libtriton.so), and kept by Triton."""
    return str(_key_module().triton_key())


def set_installed_key(key: str) -> None:
    """Spares this process the hash, which another process with the same installation has made."""
    _key_module().triton_key = lambda: key


def installed_folder() -> str:
    import triton
    return os.path.dirname(os.path.abspath(triton.__file__))


def set_variables() -> dict[str, str]:
    """Those set of the variables that Triton hashes, as it prints their values."""
    from triton._C.libtriton import get_cache_invalidating_env_vars
    return dict(get_cache_invalidating_env_vars())


def image_of(identity: Any, place: str) -> Image:
    """The image to pack for; one with another Triton would look elsewhere."""
    own = identity.get("triton") if isinstance(identity, dict) else None
    if not isinstance(own, dict) or not isinstance(own.get("key"), str):
        raise PackError(f"{place} does not say which Triton the image has; make it inside the "
                        "image with `python3 -m wavetune identity`")
    if own["key"] != installed_key():
        raise PackError(f"{place} is of an image with another build of Triton "
                        f"({own.get('version')}) than the one that packs; pack with the image's "
                        "own, or without --image: then its caches compile what they run")
    variables = identity.get("variables")
    return Image(own.get("folder"), own.get("backend_hash"),
                 variables if isinstance(variables, dict) else {})


def _moved(path: str, image: Image | None) -> str:
    """A path inside the installed Triton as the image has it."""
    own = installed_folder() + os.sep
    if image is None or not image.folder or not path.startswith(own):
        return path
    return os.path.join(image.folder, path[len(own):])


def _base32(digest: bytes) -> str:
    return base64.b32encode(digest).decode().rstrip("=")


def _key(source: Any, options: Fields, target: Any, image: Image | None
         ) -> tuple[bytes, dict[str, str], Any] | None:
    """(digest of the folder's name, variables, libraries); None: the image sets other variables."""
    from triton.compiler import make_backend
    variables = set_variables()
    variables.pop(_LINE_INFO, None)
    if image is not None:
        if {n: v for n, v in image.variables.items() if n != _LINE_INFO} != variables:
            return None
        variables = dict(image.variables)
    backend = make_backend(target)
    parsed = backend.parse_options(dict(options))
    libraries = tuple((name, _moved(path, image)) for name, path in parsed.extern_libs)
    # that of NVIDIA hashes the files
    if target.backend == "hip" and hashes_library_paths(triton_version()):
        object.__setattr__(parsed, "extern_libs", libraries)
    back = backend.hash()
    if image is not None and image.backend_hash and str(target.arch) in image.backend_hash:
        back = image.backend_hash
    key = f"{installed_key()}-{source.hash()}-{back}-{parsed.hash()}-{sorted(variables.items())}"
    return hashlib.sha256(key.encode()).digest(), variables, libraries


def _stem(source: Any) -> str:
    return str(source.name)[:150]


def cache_place(source: Any, options: Fields, target: Any) -> tuple[str, str]:
    """The folder of what would be compiled, and what its files are called before the extension."""
    found = _key(source, options, target, None)
    assert found is not None
    return _base32(found[0]), _stem(source)


def cache_entry(compiled: Any, options: Fields, target: Any,
                image: Image | None) -> Entry | None:
    """None where the image sets other variables than those that the object was compiled with."""
    from triton.runtime.cache import get_cache_manager
    found = _key(compiled.src, options, target, image)
    if found is None:
        return None
    digest, variables, libraries = found
    name = _stem(compiled.src)
    kept = json.loads(Path(get_cache_manager(compiled.hash).get_file(f"{name}.json")).read_text())
    kept.pop(_LINE_INFO, None)
    kept.update(variables, hash=digest.hex())
    if "extern_libs" in kept:
        kept["extern_libs"] = [list(library) for library in libraries]
    return Entry(_base32(digest), name, json.dumps(kept).encode())
