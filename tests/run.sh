#!/usr/bin/env bash
# Builds wavetune and runs every test. Idempotent; installs missing Debian packages by name.
#
#   tests/run.sh                 the presets dev and asan, one after the other
#   tests/run.sh dev             one preset (dev, release, asan, tsan)
#   tests/run.sh dev -R unit     further arguments go to ctest
#
# Ends with the line `N passed, N failed` over everything that ran; the exit status says the same.
set -euo pipefail
cd "$(dirname "$0")/.."
. deploy/packages.sh

presets=()
while [ $# -gt 0 ] && [[ $1 != -* ]]; do
  presets+=("$1")
  shift
done
[ ${#presets[@]} -gt 0 ] || presets=(dev asan)

# shellcheck disable=SC2086
packages_install $PACKAGES_BUILD $PACKAGES_RUN $PACKAGES_TEST
if [[ " ${presets[*]} " == *" tsan "* ]]; then
  # shellcheck disable=SC2086
  packages_install $PACKAGES_FUZZ
fi

tests/python-env.sh

# Says what a step printed only when it failed.
quietly() {
  local log=$1
  shift
  "$@" >"$log" 2>&1 || { tail -100 "$log"; echo "failed: $*"; exit 1; }
}

passed=0 failed=0
for preset in "${presets[@]}"; do
  folder=build/$preset
  mkdir -p "$folder"
  echo "== $preset: configure and build"
  quietly "$folder/configure.log" cmake --preset "$preset"
  quietly "$folder/build.log" cmake --build --preset "$preset"
  echo "== $preset: tests"
  # Three at once, on two CPUs too: a system test spends half of its time in waiting.
  ctest --test-dir "$folder" --output-on-failure -j3 "$@" 2>&1 | tee "$folder/ctest.log" || true
  p=$(grep -cE '^ *[0-9]+/[0-9]+ Test .* Passed ' "$folder/ctest.log" || true)
  f=$(grep -cE '^ *[0-9]+/[0-9]+ Test .*(\*\*\*[^S]|Not Run)' "$folder/ctest.log" || true)
  passed=$((passed + p)) failed=$((failed + f))
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
