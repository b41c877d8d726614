#!/usr/bin/env bash
# Makes virtual environments with a Triton, NumPy and pytest, for the tests of python/: build/python, whose Triton the bridge packs
# with, and one for each other Triton that programs start tuned with, build/triton-VERSION; and build/reuse, with the checker of
# licences for tests/lint.sh (Debian 12's knows no REUSE.toml).
#
#   tests/python-env.sh            build/python, those of the versions that CI runs, build/reuse; nothing to do where they are there
#   tests/python-env.sh 3.4.0 …    build/triton-3.4.0 …
#
# Takes the packages from wherever pip is set up to take them. Where that fails, says so in a sentence and ends well: the tests
# that need the environment are then skipped, with that sentence (build/python-env.reason, build/triton-VERSION.reason), and
# everything else is not.
set -euo pipefail
cd "$(dirname "$0")/.."
# Debian's Python where it is one: of its own packages, and a third faster than one built without profiles.
PYTHON3=$(PATH=/usr/bin:$PATH command -v python3)
TRITON=3.6.0
OTHERS="3.3.1 3.9.0"
PYTEST=8.4.2
REUSE=6.2.0

is_complete() { # FOLDER VERSION
  [ -x "$1/bin/python" ] && "$1/bin/python" - "$2" "$PYTEST" 2>/dev/null <<'PYTHON'
import sys
from importlib.metadata import version
sys.exit((version("triton"), version("pytest")) != tuple(sys.argv[1:]) or not version("numpy"))
PYTHON
}

make_one() { # FOLDER VERSION REASON
  local folder=$1 version=$2 reason=$3 log=$1-env.log why
  rm -f "$reason"
  is_complete "$folder" "$version" && return
  if ! [ -x "$folder/bin/pip" ] && ! "$PYTHON3" -m venv --clear "$folder" >"$log" 2>&1; then
    why="python3 -m venv does not work here (apt-get install python3-venv; $log)"
  elif ! "$folder/bin/python" -m pip install --quiet --disable-pip-version-check "triton==$version" "pytest==$PYTEST" numpy \
    >>"$log" 2>&1; then
    why="pip cannot install triton $version for this Python ($log)"
  elif is_complete "$folder" "$version"; then
    # Triton's key is a digest of its files, which each program of the tests makes: without symbols these have a third of the bytes.
    find "$folder" -name libtriton.so -exec strip --strip-unneeded {} +
    return
  else
    why="triton $version was installed and cannot be found ($log)"
  fi
  rm -rf "$folder" # half of it would look like all of it to the tests
  echo "$why" >"$reason"
  echo "tests/python-env.sh: $why; the tests that need it will be skipped" >&2
}

make_reuse() {
  rm -f build/reuse.reason
  [ "$(cat build/reuse/made-of 2>/dev/null)" = "$REUSE" ] && return
  if "$PYTHON3" -m venv --clear build/reuse >build/reuse-env.log 2>&1 &&
    build/reuse/bin/python -m pip install --quiet --disable-pip-version-check "reuse==$REUSE" >>build/reuse-env.log 2>&1; then
    echo "$REUSE" >build/reuse/made-of
  else
    rm -rf build/reuse
    echo "pip cannot install reuse $REUSE (build/reuse-env.log)" >build/reuse.reason
    echo "tests/python-env.sh: $(cat build/reuse.reason); licences will not be checked" >&2
  fi
}

mkdir -p build
if [ $# -eq 0 ]; then
  make_reuse
  make_one build/python "$TRITON" build/python-env.reason
  # shellcheck disable=SC2086
  set -- $OTHERS
fi
for version in "$@"; do
  make_one "build/triton-$version" "$version" "build/triton-$version.reason"
done
