"""Where the programs `wavetune` and `wavetune-agent` are, which this package runs."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from ._errors import PackError

FOLDER = Path(__file__).resolve().parent / "bin"  # of a wheel that carries them


def path_of(name: str) -> str:
    """A program in $WAVETUNE_BUILD, else in this package, else in $PATH. Raises PackError."""
    for folder in (os.environ.get("WAVETUNE_BUILD"), str(FOLDER), os.environ.get("PATH")):
        found = shutil.which(name, path=folder) if folder else None
        if found is not None:
            return os.path.abspath(found)
    raise PackError(f"{name} is neither in {FOLDER} nor in $PATH: install the wheel of a release "
                    "for this platform, which carries it, or build it from the source and name "
                    "its folder with WAVETUNE_BUILD", 1)
