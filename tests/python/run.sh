#!/usr/bin/env bash
# Runs a pytest file of tests/python with the Triton of build/python; exits with 77 (skipped) where there is none.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=build/python/bin/python
"$python" -c 'import importlib.util as u; u.find_spec("pytest").name, u.find_spec("triton").name' 2>/dev/null || {
  why=$(cat build/python-env.reason 2>/dev/null || echo "tests/python-env.sh makes it where pip can reach a package index")
  echo "skipped: build/python has no Triton: $why"
  exit 77
}
PYTHONPATH=python exec "$python" -m pytest -q -p no:cacheprovider -o faulthandler_timeout=300 "$@"
