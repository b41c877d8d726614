#!/usr/bin/env bash
# Makes build/python: a virtual environment with the Triton that the tests of python/ compile with, and pytest.
#
#   tests/python-env.sh        nothing to do where it is there already
#
# Takes the packages from wherever pip is set up to take them. Where that fails, says so in a sentence and ends well:
# the tests of python/ are then skipped, with that sentence (build/python-env.reason), and everything else is not.
set -euo pipefail
cd "$(dirname "$0")/.."
TRITON=3.6.0
PYTEST=8.4.2
folder=build/python
reason=build/python-env.reason

is_complete() {
  [ -x "$folder/bin/python" ] && "$folder/bin/python" - "$TRITON" "$PYTEST" 2>/dev/null <<'PYTHON'
import sys
from importlib.metadata import version
sys.exit((version("triton"), version("pytest")) != tuple(sys.argv[1:]))
PYTHON
}

give_up() {
  rm -rf "$folder" # half of it would look like all of it to the tests
  echo "$1" >"$reason"
  echo "tests/python-env.sh: $1; the tests of python/ will be skipped" >&2
  exit 0
}

mkdir -p build
rm -f "$reason"
is_complete && exit 0
log=build/python-env.log
[ -x "$folder/bin/pip" ] || python3 -m venv --clear "$folder" >"$log" 2>&1 ||
  give_up "python3 -m venv does not work here (apt-get install python3-venv; $log)"
"$folder/bin/python" -m pip install --quiet --disable-pip-version-check "triton==$TRITON" "pytest==$PYTEST" \
  >>"$log" 2>&1 || give_up "pip cannot install triton $TRITON for this Python ($log)"
is_complete || give_up "triton $TRITON was installed and cannot be found ($log)"
