"""Which torch and triton this Python has: importing them loads drivers, for seconds."""

import importlib.util
import platform
import re
from pathlib import Path


def _assigned(module: str, file: str, name: str) -> str | None:
    """The text that a file of an installed package assigns to a name at its top level."""
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder) / file
        if path.is_file():
            found = re.search(rf"^{name}(?:\s*:[^=\n]*)?\s*=\s*['\"]([^'\"]+)['\"]",
                              path.read_text(), re.MULTILINE)
            return found[1] if found else None
    return None


def describe() -> dict[str, str | None]:
    """Versions as the packages print them; torch_hip, torch_cuda: what torch is built for."""
    return {"python": platform.python_version(),
            "triton": _assigned("triton", "__init__.py", "__version__"),
            "torch": _assigned("torch", "version.py", "__version__"),
            "torch_hip": _assigned("torch", "version.py", "hip"),
            "torch_cuda": _assigned("torch", "version.py", "cuda")}
