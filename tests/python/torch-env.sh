#!/usr/bin/env bash
# Makes virtual environments with a torch, for the tests of what Inductor and Helion share: build/torch-VERSION. They take 6 GB
# each, so CI has none, and these tests are skipped there.
#
#   tests/python/torch-env.sh 2.9.1 2.15.0      the last one also gets Helion
set -euo pipefail
cd "$(dirname "$0")/../.."
HELION=1.5.1
[ $# -gt 0 ] || { sed -n '2,/^set/{/^#/p}' "$0"; exit 2; }
for version in "$@"; do
  folder=build/torch-$version
  "$folder/bin/python" -c 'import torch' 2>/dev/null && continue
  python3 -m venv --clear "$folder"
  packages=("torch==$version" numpy setuptools)
  [ "$version" = "${*: -1}" ] && packages+=("helion==$HELION")
  "$folder/bin/python" -m pip install --quiet --disable-pip-version-check "${packages[@]}"
done
