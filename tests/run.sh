#!/usr/bin/env bash
# Builds wavetune and runs every test. Idempotent; installs missing Debian packages by name.
#
#   tests/run.sh                 the presets release and asan, one after the other; in release only what asan does not repeat
#                                (unit tests, system tests and faults run once, with sanitizers), and only what that needs is built
#   tests/run.sh dev             every test of one preset (dev, release, asan, tsan)
#   tests/run.sh dev -R unit     further arguments go to ctest
#
# Ends with what was skipped and why, what failed, the minutes of each suite, the ten slowest tests, and the line
# `N passed, N failed, N skipped` over every single test (tests/summary.py); the exit status is 0 if none failed.
set -euo pipefail
cd "$(dirname "$0")/.."
. deploy/packages.sh

presets=()
while [ $# -gt 0 ] && [[ $1 != -* ]]; do
  presets+=("$1")
  shift
done
[ ${#presets[@]} -gt 0 ] || presets=(release asan)

# shellcheck disable=SC2086
packages_install $PACKAGES_BUILD $PACKAGES_RUN $PACKAGES_TEST
if [[ " ${presets[*]} " == *" tsan "* ]]; then
  # shellcheck disable=SC2086
  packages_install $PACKAGES_FUZZ
fi

tests/python-env.sh
tests/browser-env.sh
tests/manifests.sh --install

# Tests write no bytecode, as some change a module within a second; what they only import is compiled once.
for python in /usr/bin/python3 build/python/bin/python; do
  [ ! -x "$python" ] || "$python" -m compileall -q python tests/python tests/system
done

# Says what a step printed only when it failed.
quietly() {
  local log=$1
  shift
  "$@" >"$log" 2>&1 || { tail -100 "$log"; echo "failed: $*"; exit 1; }
}

folders=()
for preset in "${presets[@]}"; do
  folder=build/$preset
  folders+=("$folder")
  mkdir -p "$folder"
  rm -rf "$folder/results" # of the run before; configuring makes the folder
  start=$SECONDS
  echo "== $preset: configure and build"
  quietly "$folder/configure.log" cmake --preset "$preset"
  only=() target=all
  if [ "$preset" != asan ] && [[ " ${presets[*]} " == *" asan "* ]]; then
    only=(-LE repeated) target=unrepeated
  fi
  quietly "$folder/build.log" cmake --build --preset "$preset" --target "$target"
  built=$SECONDS
  echo "== $preset: tests"
  # Twice as many at once as there are CPUs: a system test spends half of its time in waiting.
  status=0
  ctest --test-dir "$folder" --output-on-failure -j$((2 * $(nproc))) --output-junit results/ctest.xml "${only[@]}" "$@" 2>&1 |
    tee "$folder/ctest.log" || status=${PIPESTATUS[0]}
  echo "$status" >"$folder/results/ctest.status"
  echo "== $preset: built in $((built - start)) s, tested in $((SECONDS - built)) s"
done
tests/summary.py "${folders[@]}"
