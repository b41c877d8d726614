#!/usr/bin/env bash
# Makes the plain manifests of deploy/kubernetes from the chart in deploy/helm/wavetune, so that there is one source.
#
#   deploy/kubernetes/generate.sh            writes them
#   deploy/kubernetes/generate.sh --check    ends with 1 where one differs from the chart
#
# Needs helm 3 in PATH.
set -euo pipefail
cd "$(dirname "$0")"
out=.
[ "${1:-}" != --check ] || { out=$(mktemp -d); trap 'rm -rf "$out"' EXIT; mkdir -p "$out/base" "$out/overlays/fleet"; }
render() { # FILE TEMPLATE [OPTION…]
  local file=$1 template=$2
  shift 2
  { echo "# Made by deploy/kubernetes/generate.sh from the chart; change that."
    helm template wavetune ../helm/wavetune --namespace wavetune --kube-version 1.36.0 --show-only "templates/$template" "$@" |
      sed -e '/^# Source: /d' -e '/^ *helm.sh\//d' -e '/^ *annotations:$/d' -e '/^ *$/d' -e '1{/^---$/d}'
  } >"$out/$file"
}
render base/server.yaml server.yaml
render base/migrate.yaml migrate.yaml
render overlays/fleet/agent.yaml agent.yaml --set agent.enabled=true
render overlays/fleet/gc.yaml gc.yaml --set gc.enabled=true
render overlays/fleet/backup.yaml backup.yaml --set backup.enabled=true
if [ "$out" != . ]; then
  for file in base/server.yaml base/migrate.yaml overlays/fleet/{agent,gc,backup}.yaml; do
    diff -u "$file" "$out/$file" || { echo "$file is not what the chart makes; run deploy/kubernetes/generate.sh" >&2; exit 1; }
  done
fi
