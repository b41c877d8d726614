#!/usr/bin/env bash
# Runs deploy/slurm on a real Slurm (slurmctld, two slurmd, munge) with a real server and PostgreSQL: a job at its time limit, a
# requeue, a job that is cut off, idle nodes that yield to jobs, drained nodes. The nodes have no GPU: agents tune on the CPU, in
# allocations of made-up GPUs.
#
#   deploy/test/slurm.sh [BUILD]      default: build/dev
#
# Needs: root; Debian; its packages slurmctld slurmd slurm-client munge postgresql procps jq, which it installs; BUILD.
# Takes: three to eight minutes, because Slurm's time limits are minutes.
#
# It listens on 127.0.0.1 only (ports 16817, 16821, 16822 and a free one). Not in CI.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=deploy/packages.sh
. deploy/packages.sh
. deploy/test/checks.sh
help_asked "$@"
build=$(realpath -m "${1:-build/dev}")
needs root "$build/wavetune-agent"
PACKAGES="slurmctld slurmd slurm-client munge postgresql procps jq"
# shellcheck disable=SC2086
packages_install $PACKAGES
source=$PWD
export PATH=$build:$PATH
export WAVETUNE_SHARE_DEVICE=1 # the cluster's nodes are one machine

W=$(mktemp -d /tmp/wavetune-slurm.XXXXXX)
database=$(mktemp -d /var/lib/wavetune-slurm.XXXXXX)
pids=()
finish() {
  local pid file
  scancel --state=RUNNING --user=root >/dev/null 2>&1 || true
  sleep 1
  for file in "$W"/run/*.pid "$W"/munge/munged.pid; do [ -e "$file" ] && pids+=("$(cat "$file")"); done
  for pid in "${pids[@]}"; do kill -TERM "$pid" 2>/dev/null || true; done
  sleep 2
  for pid in "${pids[@]}"; do kill -KILL "$pid" 2>/dev/null || true; done
  [ -n "${KEEP:-}" ] || rm -rf "$W" "$database"
}
trap finish EXIT

# The server.
chown postgres "$database"
: >"$W/server.out"
wavetune-server dev --folder "$database" --port 0 --lease-ms 10000 --heartbeat-ms 500 >"$W/server.out" 2>"$W/server.log" &
pids+=($!)
wait_until 60 grep -q '^token ' "$W/server.out" || { cat "$W/server.log"; exit 1; }
WAVETUNE_URL=$(sed -n 's/^url //p' "$W/server.out")
WAVETUNE_TOKEN=$(sed -n 's/^token //p' "$W/server.out")
export WAVETUNE_URL WAVETUNE_TOKEN

# Slurm: made-up GPUs are devices, as it asks for.
mkdir -p "$W"/{spool-n1,spool-n2,state,log,munge,run,busy}
dd if=/dev/urandom of="$W/munge/munge.key" bs=1 count=1024 2>/dev/null
chmod 755 "$W"
chmod 700 "$W/munge"
chmod 400 "$W/munge/munge.key"
chmod 711 "$W/run"
munged --key-file="$W/munge/munge.key" --socket="$W/run/munge.sock" --pid-file="$W/munge/munged.pid" \
  --log-file="$W/munge/munged.log" --seed-file="$W/munge/munged.seed" --num-threads=2 2>/dev/null
for i in 0 1; do mknod -m 666 "$W/gpu$i" c 1 3; done
for part in prolog epilog; do
  printf '#!/bin/sh\nexport WAVETUNE_BUSY_FILE=%s/busy/$SLURMD_NODENAME\nexec %s/deploy/slurm/%s.sh\n' "$W" "$source" $part >"$W/$part.sh"
  chmod +x "$W/$part.sh"
done
cat >"$W/slurm.conf" <<END
ClusterName=wt
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort=16817
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$W/run/munge.sock
CredType=cred/munge
StateSaveLocation=$W/state
SlurmdSpoolDir=$W/spool-%n
SlurmctldPidFile=$W/run/slurmctld.pid
SlurmdPidFile=$W/run/slurmd-%n.pid
SlurmctldLogFile=$W/log/slurmctld.log
SlurmdLogFile=$W/log/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
MailProg=/bin/true
ReturnToService=2
SchedulerType=sched/backfill
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
JobCompType=jobcomp/none
GresTypes=gpu
Prolog=$W/prolog.sh
Epilog=$W/epilog.sh
PrologFlags=Alloc
KillWait=5
SlurmdParameters=config_overrides
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
NodeName=n1 NodeHostname=localhost NodeAddr=127.0.0.1 Port=16821 CPUs=4 RealMemory=2000 Gres=gpu:mi300x:2 State=UNKNOWN
NodeName=n2 NodeHostname=localhost NodeAddr=127.0.0.1 Port=16822 CPUs=4 RealMemory=2000 Gres=gpu:mi300x:2 State=UNKNOWN
PartitionName=debug Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
END
echo "NodeName=n[1-2] Name=gpu Type=mi300x File=$W/gpu[0-1]" >"$W/gres.conf"
export SLURM_CONF=$W/slurm.conf
slurmctld -c -i -f "$SLURM_CONF"
for n in n1 n2; do slurmd -f "$SLURM_CONF" -N $n; done
nodes_idle() { [ "$(sinfo -h -N -o %T | sort -u)" = idle ]; }
wait_until 60 nodes_idle || { tail -5 "$W"/log/*; echo "Slurm did not start" >&2; exit 1; }

# shellcheck source=/dev/null
. deploy/test/slurm-checks.sh

checks_end
