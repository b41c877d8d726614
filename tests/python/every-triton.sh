#!/usr/bin/env bash
# Runs the tests of packs, exports and programs that start tuned with every Triton that they are meant for, and prints a table.
# "export" is tests/system/test_triton_deployment.py, by the system's Python; it needs the programs of build/dev.
#
#   tests/python/every-triton.sh              all seven; makes their environments (tests/python-env.sh)
#   tests/python/every-triton.sh 3.4.0 3.9.0  these
#
# Exits with 1 when a test failed or an environment could not be made.
set -euo pipefail
cd "$(dirname "$0")/../.."
VERSIONS="3.3.1 3.4.0 3.5.1 3.6.0 3.7.1 3.8.0 3.9.0"
TESTS="$(cat tests/python/by_triton.txt) trouble package export"
# shellcheck disable=SC2086
[ $# -gt 0 ] || set -- $VERSIONS
tests/python-env.sh "$@"

status=0
table=""
for version in "$@"; do
  python=build/triton-$version/bin/python
  for name in $TESTS; do
    if [ ! -x "$python" ]; then
      found="not run: $(cat "build/triton-$version.reason")"
      status=1
    else
      runner=$python file=tests/python/test_$name.py
      [ "$name" != export ] || runner=/usr/bin/python3 file=tests/system/test_triton_deployment.py
      found=$(WAVETUNE_TRITONS=$version PYTHONPATH=python PYTHONDONTWRITEBYTECODE=1 "$runner" -m pytest -q -p no:cacheprovider \
        -o faulthandler_timeout=300 "$file" 2>&1 | tee "build/triton-$version-$name.log" | tail -1) || status=1
    fi
    table+="$(printf '%-8s %-8s %s' "$version" "$name" "$found")"$'\n'
    printf '%-8s %-8s %s\n' "$version" "$name" "$found" >&2
  done
done
printf '%s' "$table"
exit $status
