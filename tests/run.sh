#!/usr/bin/env bash
# Builds wavetune and runs every test. Idempotent; installs missing Debian packages by name.
#
#   tests/run.sh                 the presets release and asan, at the same time; in release only what asan does not repeat
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

# The environments of other tests are downloaded while the programs are built. Tests write no bytecode, as some change a module
# within a second; what system tests import is compiled once.
environments() {
  tests/python-env.sh
  tests/browser-env.sh
  tests/manifests.sh --install
  PATH=/usr/bin:$PATH python3 -m compileall -q tests/system
}
mkdir -p build
environments >build/environments.log 2>&1 &
environments=$!

# Whether the tests with the label `repeated` run in the other preset.
is_repeated() {
  [ "$1" != asan ] && [[ " ${presets[*]} " == *" asan "* ]]
}

# Says what a step printed only when it failed.
quietly() {
  local log=$1
  shift
  "$@" >"$log" 2>&1 || { tail -100 "$log"; echo "failed: $*"; exit 1; }
}

# The tests of a preset. Twice as many at once as there are CPUs: a system test spends half of its time in waiting.
test_one() { # PRESET ARGUMENT…
  local preset=$1 folder=build/$1 status=0 start=$SECONDS
  shift
  ctest --test-dir "$folder" --output-on-failure -j$((2 * $(nproc))) --output-junit results/ctest.xml "$@" 2>&1 |
    tee "$folder/ctest.log" | sed -u "s/^/$preset: /" || status=${PIPESTATUS[0]}
  echo "$status" >"$folder/results/ctest.status"
  echo "== $preset: tested in $((SECONDS - start)) s"
}

for preset in "${presets[@]}"; do
  folder=build/$preset start=$SECONDS
  mkdir -p "$folder"
  rm -rf "$folder/results" # of the run before; configuring makes the folder
  echo "== $preset: configure and build"
  quietly "$folder/configure.log" cmake --preset "$preset"
  target=all
  ! is_repeated "$preset" || target=unrepeated
  quietly "$folder/build.log" cmake --build --preset "$preset" --target "$target"
  echo "== $preset: built in $((SECONDS - start)) s"
done
wait "$environments" || { cat build/environments.log; exit 1; }
cat build/environments.log

# All presets at once: the waiting of one is time for the other.
for preset in "${presets[@]}"; do
  only=()
  ! is_repeated "$preset" || only=(-LE repeated)
  test_one "$preset" "${only[@]}" "$@" &
done
wait
tests/summary.py "${presets[@]/#/build/}"
