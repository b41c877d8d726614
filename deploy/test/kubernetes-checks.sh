# The checks of deploy/test/kubernetes.sh, which sources this when its control plane runs. shellcheck shell=bash
# shellcheck disable=SC2154
chart=deploy/helm/wavetune

ready() { # NAMESPACE KIND/NAME N: so many of its pods are ready
  [ "$(kubectl -n "$1" get "$2" -o jsonpath='{.status.readyReplicas}{.status.numberReady}')" = "$3" ]
}
image_is() { # NAMESPACE IMAGE: every server pod that is not being deleted runs it
  [ "$(kubectl -n "$1" get pods -l app.kubernetes.io/component=server -o json | python3 -c '
import json, sys
pods = [p for p in json.load(sys.stdin)["items"] if "deletionTimestamp" not in p["metadata"]]
print(*sorted({c["image"] for p in pods for c in p["spec"]["containers"]}))')" = "$2" ]
}
agents_are() { # NAMESPACE NODE…
  local namespace=$1
  shift
  [ "$(kubectl -n "$namespace" get pods -l app.kubernetes.io/component=agent --field-selector status.phase=Running \
    -o jsonpath='{range .items[*]}{.spec.nodeName}{"\n"}{end}' | sort | xargs)" = "$*" ]
}
secrets() { # NAMESPACE
  local name
  kubectl -n "$1" create secret generic wavetune-database --from-literal=conninfo='host=db dbname=wavetune'
  for name in enrolment operator; do kubectl -n "$1" create secret generic wavetune-$name --from-literal=token=t; done
}

mounts_authority() { # every pod that connects to the database, the server's other files, and a rule that lets it fetch keys
  helm template w $chart --namespace w --kube-version 1.36.0 --set secrets.databaseCa=db-ca,secrets.files=more,backup.enabled=true \
    --set-json 'networkPolicy.egress=[{"ports": [{"port": 443, "protocol": "TCP"}]}]' >"$D/authority.yaml"
  [ "$(grep -c PGSSLROOTCERT "$D/authority.yaml") $(grep -c 'secretName: db-ca' "$D/authority.yaml")" = "3 3" ] &&
    [ "$(grep -c 'mountPath: /etc/wavetune/database' "$D/authority.yaml") $(grep -c 'mountPath: /etc/wavetune/files' "$D/authority.yaml")" = "3 1" ] &&
    grep -q 'port: 443' "$D/authority.yaml"
}

# Plain manifests.
check "the manifests are what the chart makes" deploy/kubernetes/generate.sh --check
check "the database's authority and further files are mounted where they are needed" mounts_authority
check "kustomize: the overlay of a fleet builds" bash -c "kubectl kustomize deploy/kubernetes/overlays/fleet >'$D/fleet.yaml'"
kubectl create namespace inference >/dev/null
check "the namespace is applied first" kubectl apply -f deploy/kubernetes/base/namespace.yaml
check "a server-side dry run accepts the overlay strictly" kubectl apply --dry-run=server --validate=strict -f "$D/fleet.yaml"
check "and the vLLM example" kubectl apply --dry-run=server --validate=strict -f deploy/kubernetes/examples/vllm.yaml
sed 's/^  replicas: /  replica: /' "$D/fleet.yaml" >"$D/wrong.yaml"
check "a wrong member is refused" refused 'unknown field "spec.replica"' kubectl apply --dry-run=server --validate=strict -f "$D/wrong.yaml"
secrets wavetune >/dev/null
check "kustomize: install" bash -c "kubectl apply -f '$D/fleet.yaml' 2>&1 | tee '$D/apply.log'"
check "PodSecurity restricted has no warning for any part" bash -c "! grep 'would violate' '$D/apply.log'"
check "the migration completes" wait_until 60 kubectl -n wavetune wait --for=condition=complete job/wavetune-migrate --timeout=1s
check "two servers are ready" wait_until 60 ready wavetune deployment/wavetune-server 2
check "no node tunes before it has the label" agents_are wavetune
kubectl label node n1 n2 wavetune/tuning=true >/dev/null
check "a window opens: an agent on each labelled node" wait_until 60 agents_are wavetune n1 n2
kubectl -n wavetune apply -f - >/dev/null <<'END'
{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "job"}, "spec": {"nodeSelector": {"kubernetes.io/hostname": "n1"},
 "securityContext": {"runAsNonRoot": true, "runAsUser": 1, "seccompProfile": {"type": "RuntimeDefault"}},
 "containers": [{"name": "c", "image": "x", "resources": {"limits": {"amd.com/gpu": 1}},
                 "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}}]}}
END
pending() { kubectl -n wavetune get pod job -o jsonpath='{.status.conditions[?(@.type=="PodScheduled")].message}' | grep -q 'Insufficient amd.com/gpu'; }
check "nothing else gets a GPU of a node that tunes" wait_until 30 pending
kubectl label node n1 wavetune/tuning- >/dev/null
check "a window closes: its agent ends" wait_until 60 agents_are wavetune n2
running() { [ "$(kubectl -n wavetune get pod job -o jsonpath='{.status.phase}')" = Running ]; }
check "and the waiting pod gets the GPU" wait_until 60 running
for part in gc backup; do
  kubectl -n wavetune create job --from=cronjob/wavetune-$part $part-now >/dev/null
done
check "gc: a job made from it completes" wait_until 60 kubectl -n wavetune wait --for=condition=complete job/gc-now --timeout=1s
check "backup: without its claim it waits" wait_until 30 bash -c \
  "kubectl -n wavetune get pods -l app.kubernetes.io/component=backup -o jsonpath='{.items[*].status.conditions[*].message}' | grep -q wavetune-backup"

# Draining nodes: the budget keeps one server.
kubectl -n wavetune patch deployment wavetune-server --type merge -p '{"spec": {"template": {"spec": {"nodeSelector": {"servers": "yes"}}}}}' >/dev/null
kubectl label node n2 n3 servers=yes >/dev/null
check "the servers are on two nodes" wait_until 60 bash -c \
  "kubectl -n wavetune rollout status deployment/wavetune-server --timeout=1s && [ \$(kubectl -n wavetune get pods -l app.kubernetes.io/component=server -o jsonpath='{range .items[*]}{.spec.nodeName}{\"\\n\"}{end}' | sort -u | wc -l) = 2 ]"
drain() { kubectl drain "$1" --ignore-daemonsets --delete-emptydir-data --force --timeout="$2"; }
kubectl label node n2 servers- >/dev/null
check "a node with one of the servers drains" drain n2 30s
kubectl cordon n3 >/dev/null
check "the node of the last server does not" refused 'disruption budget' drain n3 5s
kubectl uncordon n2 n3 >/dev/null
kubectl label node n2 servers=yes >/dev/null
check "and does once the other is back" bash -c "$(declare -f wait_until ready drain); wait_until 60 ready wavetune deployment/wavetune-server 2 && drain n3 60s"
kubectl uncordon n3 >/dev/null
kubectl delete namespace wavetune --wait=false >/dev/null

# The chart, in a namespace of its own.
kubectl create namespace tuning >/dev/null
kubectl label namespace tuning pod-security.kubernetes.io/enforce=restricted >/dev/null
secrets tuning >/dev/null
on() { helm "$1" wt $chart --namespace tuning --wait --timeout 90s "${@:2}"; }
check "helm lint" helm lint --strict $chart
for wrong in server.replicas=0 server.port=80 agent.gpus=-1 images.server=none server.replica=2 gc.keepDays=0 gc.schedule=daily secrets.tls=A_B; do
  check "helm: $wrong is refused" refused "values don't meet the specifications" on install --set $wrong
done
check "helm: nothing is left of them" refused 'release: not found' helm status wt --namespace tuning
check "helm: install" on install --set agent.enabled=true,gc.enabled=true,backup.enabled=true,images.server=wavetune-server:1
check "helm: the migration ran before the servers" bash -c "kubectl -n tuning get job/wt-migrate deployment/wt-server -o json | python3 -c '
import json, sys
job, servers = json.load(sys.stdin)[\"items\"]
sys.exit(not job[\"status\"][\"completionTime\"] <= servers[\"metadata\"][\"creationTimestamp\"])'"
check "helm: agents run on the labelled node" wait_until 60 agents_are tuning n2
check "helm: an upgrade rolls the servers" on upgrade --reuse-values --set images.server=wavetune-server:2
check "helm: they run the new image" wait_until 30 image_is tuning wavetune-server:2
check "helm: an upgrade to wrong values is refused" refused "values don't meet the specifications" on upgrade --reuse-values --set server.replicas=0
check "helm: roll back" helm rollback wt 1 --namespace tuning --wait --timeout 90s
check "helm: they run the old image" wait_until 30 image_is tuning wavetune-server:1
check "helm: TLS, probes by https" bash -c "helm template wt $chart --kube-version 1.36.0 --namespace tuning --set secrets.tls=tls,agent.enabled=true,gc.enabled=true >'$D/tls.yaml' &&
  grep -q 'scheme: HTTPS' '$D/tls.yaml' && grep -q 'value: https://wt-server' '$D/tls.yaml' && ! grep -q INSECURE '$D/tls.yaml' &&
  kubectl apply --dry-run=server --validate=strict -f <(sed 's/name: wt-/name: tls-/' '$D/tls.yaml')"
check "helm: state on the node is refused by PodSecurity restricted" bash -c "$(declare -f wait_until); helm upgrade wt $chart --namespace tuning --reuse-values --set agent.stateHostPath=/var/lib/wavetune-agent &&
  wait_until 60 bash -c \"kubectl -n tuning get events --field-selector reason=FailedCreate | grep -q 'violates PodSecurity.*hostPath'\""
check "helm: uninstall" helm uninstall wt --namespace tuning --wait --timeout 90s
