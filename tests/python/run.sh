#!/usr/bin/env bash
# Runs a pytest file of tests/python with the Triton of build/python, or of build/triton-$TEST_TRITON where that is set. Exits with
# 77 (skipped) where there is none, and where the whole file is skipped.
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=build/python reason=build/python-env.reason
[ -z "${TEST_TRITON:-}" ] || folder=build/triton-$TEST_TRITON reason=build/triton-$TEST_TRITON.reason
"$folder/bin/python" -c 'import importlib.util as u; u.find_spec("pytest").name, u.find_spec("triton").name' 2>/dev/null || {
  echo "skipped: $folder has no Triton: $(cat "$reason" 2>/dev/null || echo "tests/python-env.sh makes it where pip can reach a package index")"
  exit 77
}
# Tests start hundreds of processes, which write no bytecode ($PYTHONDONTWRITEBYTECODE): it is half of what their imports cost.
"$folder/bin/python" -m compileall -q python/wavetune tests/python
status=0
PYTHONPATH=python "$folder/bin/python" -m pytest -q -p no:cacheprovider -o faulthandler_timeout=300 "$@" || status=$?
[ $status -ne 5 ] || status=77
exit $status
