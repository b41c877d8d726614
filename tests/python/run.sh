#!/usr/bin/env bash
# Runs a pytest file of tests/python with the Triton of build/python; exits with 77 (skipped) where there is none.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=build/python/bin/python
"$python" -c 'import pytest, triton' 2>/dev/null || {
  echo "skipped: build/python has no Triton; tests/python-env.sh makes it where pip can reach a package index"
  exit 77
}
PYTHONPATH=python exec "$python" -m pytest -q -p no:cacheprovider -o faulthandler_timeout=300 "$@"
