#!/usr/bin/env bash
# Validates every manifest of deploy/kubernetes against the schemas of Kubernetes, strictly: unknown members are errors. The
# files in base/ and overlays/ are what the chart renders (deploy/kubernetes/generate.sh).
#
#   tests/manifests.sh --install    makes build/kubernetes, a virtual environment with kubernetes-validate, which has the schemas
#   tests/manifests.sh              validates; exits with 77 (skipped) without that
set -euo pipefail
cd "$(dirname "$0")/.."
PACKAGES="kubernetes-validate==1.36.0"
folder=build/kubernetes log=build/kubernetes-env.log

if [ "${1:-}" = --install ]; then
  mkdir -p build
  [ "$(cat "$folder/made-of" 2>/dev/null)" = "$PACKAGES" ] && exit 0
  # shellcheck disable=SC2086
  if python3 -m venv --clear "$folder" >"$log" 2>&1 &&
    "$folder/bin/python" -m pip install --quiet --disable-pip-version-check $PACKAGES >>"$log" 2>&1; then
    echo "$PACKAGES" >"$folder/made-of"
  else
    rm -rf "$folder"
    echo "tests/manifests.sh: pip cannot install $PACKAGES ($log); the manifests will not be validated" >&2
  fi
  exit 0
fi

[ -x "$folder/bin/kubernetes-validate" ] || { echo "skipped: $folder is not there: tests/manifests.sh --install makes it"; exit 77; }
mapfile -t files < <(find deploy/kubernetes -name '*.yaml' ! -name kustomization.yaml | sort)
[ ${#files[@]} -ge 7 ] || { echo "tests/manifests.sh: found ${#files[@]} manifests in deploy/kubernetes" >&2; exit 1; }

# A validator that accepts everything would show nothing: it must refuse a wrong member first.
wrong=$(mktemp)
trap 'rm -f "$wrong"' EXIT
sed 's/^  replicas: /  replica: /' deploy/kubernetes/base/server.yaml >"$wrong"
if "$folder/bin/kubernetes-validate" --strict "$wrong" >/dev/null 2>&1; then
  echo "tests/manifests.sh: kubernetes-validate accepted spec.replica" >&2
  exit 1
fi
"$folder/bin/kubernetes-validate" --strict "${files[@]}"
echo "${#files[@]} files are valid"
