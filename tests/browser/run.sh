#!/usr/bin/env bash
# Runs a program of tests/browser with build/browser: a pytest file, or a script. Exits with 77 (skipped) where there is no
# browser or no playwright.
#
#   tests/browser/run.sh tests/browser/test_page.py -k keyboard
#   tests/browser/run.sh tests/browser/screenshots.py
set -euo pipefail
cd "$(dirname "$0")/../.."
python=build/browser/bin/python
skip() {
  echo "skipped: $1"
  exit 77
}
[ -x "$python" ] || skip "$(cat build/browser-env.reason 2>/dev/null || echo "build/browser is not there: tests/browser-env.sh makes it")"
command -v chromium >/dev/null || skip "there is no chromium: apt-get install chromium"
case $(basename "$1") in
test_*) exec "$python" -m pytest -q -p no:cacheprovider -o faulthandler_timeout=300 "$@" ;;
*) exec "$python" "$@" ;;
esac
