#!/usr/bin/env bash
# Makes build/browser, a virtual environment with playwright, pytest and axe-core, for the tests of the web page. The browser
# is Debian's chromium (deploy/packages.sh). Where pip cannot install them, says so and ends well: those tests are then
# skipped, with that sentence (build/browser-env.reason).
set -euo pipefail
cd "$(dirname "$0")/.."
# Debian's Python where it is one: of its own packages, and a third faster than one built without profiles.
PYTHON3=$(PATH=/usr/bin:$PATH command -v python3)
PACKAGES="playwright==1.55.0 pytest==8.4.2 axe-playwright-python==0.1.6 pillow==11.3.0"
folder=build/browser log=build/browser-env.log reason=build/browser-env.reason

mkdir -p build
rm -f "$reason"
[ "$(cat "$folder/made-of" 2>/dev/null)" = "$PACKAGES" ] && exit 0
# shellcheck disable=SC2086
if ! "$PYTHON3" -m venv --clear "$folder" >"$log" 2>&1; then
  why="python3 -m venv does not work here (apt-get install python3-venv; $log)"
elif ! "$folder/bin/python" -m pip install --quiet --disable-pip-version-check $PACKAGES >>"$log" 2>&1; then
  why="pip cannot install playwright for this Python ($log)"
else
  echo "$PACKAGES" >"$folder/made-of"
  exit 0
fi
rm -rf "$folder"
echo "$why" >"$reason"
echo "tests/browser-env.sh: $why; the tests of the web page will be skipped" >&2
