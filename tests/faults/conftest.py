"""The fixtures of tests/system."""

import pathlib
import sys

sys.path[:0] = [str(pathlib.Path(__file__).parent), str(pathlib.Path(__file__).resolve().parents[1] / "system")]
from hands import hands, kernel, submit  # noqa: E402, F401
import importlib.util  # noqa: E402

spec = importlib.util.spec_from_file_location("system_conftest", pathlib.Path(__file__).resolve().parents[1] / "system/conftest.py")
system = importlib.util.module_from_spec(spec)
spec.loader.exec_module(system)
postgres, database, start = system.postgres, system.database, system.start
