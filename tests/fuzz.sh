#!/usr/bin/env bash
# Searches with the fuzz targets, one after the other. Installs missing Debian packages by name.
#
#   tests/fuzz.sh                       every target for 60 s
#   tests/fuzz.sh 600 agent_worker      a target for 600 s
#
# A search goes on from build/fuzz/found/TARGET, where its inputs are kept from run to run, and begins with the corpus and the
# regressions in the tree. Prints a line for each target; the exit status is 1 if an input broke one: it is in build/fuzz/found, and
# belongs into tests/fuzz/regressions/TARGET with the fix.
set -euo pipefail
cd "$(dirname "$0")/.."
. deploy/packages.sh

seconds=${1:-60}
targets=("${@:2}")
if [ ${#targets[@]} -eq 0 ]; then
  for source in tests/fuzz/fuzz_*.c; do
    name=${source#tests/fuzz/fuzz_}
    targets+=("${name%.c}")
  done
fi

# shellcheck disable=SC2086
packages_install $PACKAGES_BUILD $PACKAGES_FUZZ
found=build/fuzz/found
mkdir -p $found
cmake --preset fuzz >$found/configure.log
nice cmake --build --preset fuzz --target "${targets[@]/#/fuzz_}" >$found/build.log

status=0
printf '%-20s %10s %12s %8s %8s\n' target inputs 'inputs/s' edges corpus
for target in "${targets[@]}"; do
  mkdir -p "$found/$target" "tests/fuzz/corpus/$target"
  seeds=("tests/fuzz/corpus/$target")
  [ -d "tests/fuzz/regressions/$target" ] && seeds+=("tests/fuzz/regressions/$target")
  log=$found/$target.log
  if ! nice -n 15 build/fuzz/tests/fuzz_"$target" "$found/$target" "${seeds[@]}" -max_total_time="$seconds" -max_len=16384 -timeout=20 \
    -rss_limit_mb=2048 -print_final_stats=1 -artifact_prefix="$found/$target-" >"$log" 2>&1; then
    status=1
    echo "$target: broken by an input; see $log" >&2
  fi
  last=$(grep -E '^#[0-9]+.*cov: ' "$log" | tail -1) || true
  number() { sed -n "s/.*$1[^0-9]*\([0-9]\+\).*/\1/p" <<<"$2" | tail -1; }
  printf '%-20s %10s %12s %8s %8s\n' "$target" "$(number 'executed_units:' "$(cat "$log")")" \
    "$(number 'average_exec_per_sec:' "$(cat "$log")")" "$(number ' cov:' "$last")" "$(number ' corp:' "$last")"
done
exit $status
