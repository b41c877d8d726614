#!/usr/bin/env bash
# Runs the manifests and the chart on a real Kubernetes control plane with fake nodes: install, upgrade, roll back, drain, wrong
# values, PodSecurity, quotas of GPUs. Pods do not run: kwok says that they do, and the migration is completed that way, too.
#
#   deploy/test/kubernetes.sh
#
# Needs: go, with its modules (etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubectl, kwok and helm are built from
# them); 9 GB of disk for Go's caches; 2.5 GiB of memory; the Debian packages openssl and curl, which it installs.
# Takes: a minute, the first time ten more.
#
# The programs stay in $WORK/bin (default build/kubernetes-test) for the next run. It listens on 127.0.0.1 only. Not in CI.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=deploy/packages.sh
. deploy/packages.sh
. deploy/test/checks.sh
help_asked "$@"
work=$(realpath -m "${WORK:-build/kubernetes-test}")
needs memory:3
[ -x "$work/bin/kubectl" ] || needs go disk:9
packages_install openssl curl
mkdir -p "$work/bin"
V=1.36.3

build_programs() {
  export GOFLAGS=-buildvcs=false
  local source flags program
  mkdir -p "$work/kube" "$work/etcd"
  if [ ! -x "$work/bin/kubectl" ]; then
    cd "$work/kube"
    printf 'module example.test/kube\ngo 1.24\n' >go.mod
    go mod download "k8s.io/kubernetes@v$V"
    source=$(go env GOMODCACHE)/k8s.io/kubernetes@v$V
    # Its go.mod replaces the staging modules by folders that the published module lacks; the same versions are published.
    {
      echo module example.test/kube
      echo "go $(awk '/^go /{print $2}' "$source/go.mod")"
      echo "require k8s.io/kubernetes v$V"
      awk '$2=="=>" && $3 ~ /staging/ {print $1}' "$source/go.mod" | while read -r module; do
        echo "replace $module => $module v0.${V#1.}"
      done
    } >go.mod
    flags="-s -w -X k8s.io/component-base/version.gitVersion=v$V -X k8s.io/component-base/version.gitMajor=1"
    flags+=" -X k8s.io/component-base/version.gitMinor=36"
    for program in kube-controller-manager kube-apiserver kube-scheduler kubectl; do
      nice go build -mod=mod -p 2 -ldflags "$flags" -o "$work/bin/$program" "k8s.io/kubernetes/cmd/$program"
    done
  fi
  if [ ! -x "$work/bin/etcd" ]; then
    cd "$work/etcd"
    printf 'module example.test/etcd\ngo 1.24\nrequire go.etcd.io/etcd/server/v3 v3.6.4\n' >go.mod
    nice go build -mod=mod -ldflags '-s -w' -o "$work/bin/etcd" go.etcd.io/etcd/server/v3
  fi
  [ -x "$work/bin/kwok" ] || GOBIN=$work/bin nice go install sigs.k8s.io/kwok/cmd/kwok@v0.8.0
  [ -x "$work/bin/helm" ] || GOBIN=$work/bin nice go install helm.sh/helm/v3/cmd/helm@v3.18.6
}
(build_programs)
export PATH=$work/bin:$PATH

D=$(mktemp -d)
pids=()
finish() {
  local pid
  # Servers wait for their watches to end, and etcd for its clients; nothing of them is needed.
  for pid in "${pids[@]}"; do kill -KILL "$pid" 2>/dev/null || true; done
  wait 2>/dev/null || true
  rm -rf "$D"
}
trap finish EXIT
refused() { # SENTENCE COMMAND…: it fails, and says so
  local sentence=$1
  shift
  ! "$@" >"$D/refused.log" 2>&1 && grep -q -- "$sentence" "$D/refused.log" || { cat "$D/refused.log"; return 1; }
}
start() { # NAME COMMAND…
  local name=$1
  shift
  "$@" >"$D/$name.log" 2>&1 &
  pids+=($!)
}

# The control plane.
export KUBECONFIG=$D/kubeconfig HELM_CACHE_HOME=$D/helm HELM_CONFIG_HOME=$D/helm HELM_DATA_HOME=$D/helm
openssl genrsa -out "$D/sa.key" 2048 2>/dev/null
openssl rsa -in "$D/sa.key" -pubout -out "$D/sa.pub" 2>/dev/null
token=$(openssl rand -hex 16)
echo "$token,admin,admin,\"system:masters\"" >"$D/tokens.csv"
start etcd etcd --data-dir "$D/etcd" --listen-client-urls http://127.0.0.1:23790 --advertise-client-urls http://127.0.0.1:23790 \
  --listen-peer-urls http://127.0.0.1:23800 --initial-advertise-peer-urls http://127.0.0.1:23800 \
  --initial-cluster default=http://127.0.0.1:23800 --unsafe-no-fsync --log-level error
start apiserver kube-apiserver --etcd-servers http://127.0.0.1:23790 --bind-address 127.0.0.1 --advertise-address 127.0.0.1 \
  --secure-port 16443 --cert-dir "$D/certs" --token-auth-file "$D/tokens.csv" --authorization-mode RBAC \
  --service-cluster-ip-range 127.16.0.0/16 --service-account-issuer https://127.0.0.1:16443 \
  --service-account-signing-key-file "$D/sa.key" --service-account-key-file "$D/sa.pub" \
  --enable-admission-plugins ServiceAccount,PodSecurity,NodeRestriction --endpoint-reconciler-type none
wait_until 60 curl -skf -H "Authorization: Bearer $token" https://127.0.0.1:16443/readyz -o /dev/null ||
  { tail -5 "$D"/*.log; echo "the API server did not start" >&2; exit 1; }
kubectl config set-cluster test --server https://127.0.0.1:16443 --certificate-authority "$D/certs/apiserver.crt" >/dev/null
kubectl config set-credentials admin --token "$token" >/dev/null
kubectl config set-context test --cluster test --user admin >/dev/null
kubectl config use-context test >/dev/null
start controllers kube-controller-manager --kubeconfig "$KUBECONFIG" --bind-address 127.0.0.1 --secure-port 16257 --leader-elect=false \
  --service-account-private-key-file "$D/sa.key" --root-ca-file "$D/certs/apiserver.crt" --cert-dir "$D/kcm"
start scheduler kube-scheduler --kubeconfig "$KUBECONFIG" --bind-address 127.0.0.1 --secure-port 16259 --leader-elect=false --cert-dir "$D/ks"
stages=$(go env GOMODCACHE)/sigs.k8s.io/kwok@v0.8.0/kustomize/stage
start kwok kwok --kubeconfig "$KUBECONFIG" --manage-all-nodes=true --cidr 127.17.0.0/16 --node-ip 127.0.0.1 \
  --config "$stages/node/fast/node-initialize.yaml" --config "$stages/node/heartbeat/node-heartbeat.yaml" \
  --config "$stages/pod/fast/pod-ready.yaml" --config "$stages/pod/fast/pod-complete.yaml" --config "$stages/pod/fast/pod-delete.yaml"
for i in 1 2 3; do
  kubectl apply -f - >/dev/null <<END
{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n$i", "labels": {"kubernetes.io/hostname": "n$i"},
  "annotations": {"kwok.x-k8s.io/node": "fake"}},
 "status": {"allocatable": {"cpu": "64", "memory": "512Gi", "pods": "110", "amd.com/gpu": "8"},
            "capacity": {"cpu": "64", "memory": "512Gi", "pods": "110", "amd.com/gpu": "8"}}}
END
done

# shellcheck source=/dev/null
. deploy/test/kubernetes-checks.sh

checks_end
