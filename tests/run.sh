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

[ -d ../shared/data ] || echo "note: ../shared/data is absent; tests that read it are skipped and say so" >&2

passed=0 failed=0
for preset in "${presets[@]}"; do
  echo "== $preset: configure and build"
  cmake --preset "$preset" >"build-$preset.log" 2>&1 || { cat "build-$preset.log"; exit 1; }
  rm -f "build-$preset.log"
  cmake --build --preset "$preset" 2>&1 | grep -vE '^\[[0-9]+/[0-9]+\] (Building|Linking|Re-checking)' || true
  cmake --build --preset "$preset" >/dev/null
  echo "== $preset: tests"
  log="build/$preset/ctest.log"
  ctest --test-dir "build/$preset" --output-on-failure -j2 "$@" 2>&1 | tee "$log" || true
  p=$(grep -cE '^ *[0-9]+/[0-9]+ Test .* Passed ' "$log" || true)
  f=$(grep -cE '^ *[0-9]+/[0-9]+ Test .*(\*\*\*|Failed|Not Run|Timeout)' "$log" || true)
  passed=$((passed + p)) failed=$((failed + f))
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
