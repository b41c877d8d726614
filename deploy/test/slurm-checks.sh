# The checks of deploy/test/slurm.sh, which sources this when Slurm and a server run. shellcheck shell=bash
# shellcheck disable=SC2154

# A kernel whose campaign takes seconds: 40 keys.
cp -r tests/data/kernels/quick "$W/kernel"
echo '{"parameters": {"REPEAT": [1, 8, 64], "TURN": [0, 1]}, "default": {"REPEAT": 64, "TURN": 0}}' >"$W/kernel/space.json"
wavetune kernel push "$W/kernel" >/dev/null

agents() { wavetune agents --json | jq -r '.[] | select(.state == "live") | .name' | sort | xargs; }
agents_are() { [ "$(agents)" = "$*" ]; }
submit() { # FIRST LAST RUN: one job a key
  seq "$1" "$2" | sed 's/.*/{"n": &}/' >"$W/keys.jsonl"
  wavetune submit "$W/kernel" --keys "$W/keys.jsonl" --run "$3" >/dev/null
}
metric() { curl -sf -H "Authorization: Bearer $WAVETUNE_TOKEN" "$WAVETUNE_URL/metrics" | awk -v name="$1" '$1 == name { print $2 }'; }
metric_is() { [ "$(metric "$1")" = "$2" ]; }
at_least() { [ "$(metric "$1")" -ge "$2" ]; }
job_is() { # ID STATE
  [ "$(squeue -h -j "$1" -o %T 2>/dev/null)" = "$2" ]
}
is_gone() { [ -z "$(squeue -h -j "$1" -o %T 2>/dev/null | grep -v COMPLETING)" ]; }
start_now() { # with more time: a slow machine would meet the limit again
  scontrol update jobid="$1" StartTime=now TimeLimit=10
}
all_done() { metric_is 'wavetune_leases{state="held"}' 0 && [ "$(metric wavetune_jobs_done_total)" = "$1" ]; }
tune() { sbatch --parsable --output="$W/job-%j.out" --export="ALL,WAVETUNE_STATE=$W/agents,WAVETUNE_IDLE_EXIT=${IDLE:-60}" "$@" deploy/slurm/tune.sbatch; }
visible() { # VARIABLE VALUE: each running agent's
  local pid
  for pid in $(pgrep -f '^[^ ]*wavetune-agent run --state '"$W/agents"); do
    tr '\0' '\n' <"/proc/$pid/environ" | grep -qx "$1=$2" || return 1
  done
}

# A job of two nodes meets its time limit in the middle of a campaign. Slurm rounds the limit to a minute and TERM is early.
job=$(tune --nodes=2 --gres=gpu:1 --exclusive=user --time=1 --signal=B:TERM@40)
check "an agent on each node of the allocation" wait_until 60 agents_are n1 n2
check "it sees the GPUs that the job got: ROCR_VISIBLE_DEVICES" visible ROCR_VISIBLE_DEVICES 0
check "and CUDA_VISIBLE_DEVICES" visible CUDA_VISIBLE_DEVICES 0
submit 1001 1160 limit
check "they tune" wait_until 30 at_least wavetune_jobs_done_total 1
check "at the time limit's signal the leases are handed back" wait_until 90 grep -q 'the agents ended' "$W/job-$job.out"
check "none is held, and none was lost" bash -c "$(declare -f metric metric_is wait_until); wait_until 10 metric_is 'wavetune_leases{state=\"held\"}' 0 && metric_is wavetune_leases_lost_total 0"
before=$(metric wavetune_jobs_done_total)
check "in the middle of the campaign ($before of 160 jobs were done)" [ "$before" -lt 160 ]
check "the job is queued again" wait_until 60 job_is "$job" PENDING
wait_until 150 start_now "$job" >/dev/null 2>&1 || true
check "a requeued job goes on" wait_until 300 all_done 160
check "with the same agents" bash -c "[ \$(wavetune agents --all --json | jq 'length') = 2 ]"
check "no lease was lost" metric_is wavetune_leases_lost_total 0
scancel "$job"
check "scancel ends it" wait_until 60 is_gone "$job"

# A job is cut off without a signal: what its agents had measured is posted by the next job's.
job=$(tune --nodes=1 --nodelist=n1 --gres=gpu:2 --time=10)
wait_until 60 agents_are n1 || true
check "two GPUs of the node" visible ROCR_VISIBLE_DEVICES 0,1
submit 2001 2020 cut
wait_until 60 at_least wavetune_jobs_done_total 162 || true
pkill -KILL -f "^[^ ]*wavetune-agent run --state $W/agents" || true
scancel --signal=KILL --full "$job" || true
check "a job that is killed ends" wait_until 60 is_gone "$job"
cut=$(metric wavetune_jobs_done_total)
check "in the middle of a campaign" [ "$cut" -lt 180 ]
job=$(IDLE=5 tune --nodes=1 --nodelist=n1 --gres=gpu:1 --time=10)
check "the next job on the node completes it" wait_until 300 all_done 180
check "and ends when no work is left" wait_until 60 is_gone "$job"
left() { find "$W/agents" -name 'refused.jsonl' -size +0 | grep -q .; }
check "no result was refused" bash -c "$(declare -f left); W=$W; ! left"
check "no job failed" metric_is wavetune_jobs_failed_total 0

# Idle nodes tune, and yield to jobs.
wait_until 30 nodes_idle || true
wavetune-agent run --state "$W/idle" --name n2 --busy-file "$W/busy/n2" --free-seconds 1 >"$W/idle.log" 2>&1 &
idle=$!
pids+=($idle)
check "an idle node's agent works" wait_until 30 agents_are n2
lost=$(metric wavetune_leases_lost_total)
submit 3001 3040 idle
workers() { pgrep -P "$idle" -f '^[^ ]*wavetune-agent worker' >/dev/null; }
check "it measures" wait_until 30 workers
check "a Slurm job finds nothing of it running" srun --nodelist=n2 --ntasks=1 sh -c "! pgrep -P $idle -f '^[^ ]*wavetune-agent worker'"
check "it measures again when the node has been free" wait_until 30 workers
srun --nodelist=n2 --ntasks=1 sleep 4 &
holder=$!
yielded() { wavetune agents --json | jq -e '.[] | select(.name == "n2") | .devices[] | select(.yielded_since != null)' >/dev/null; }
check "the list of agents says why it waits" wait_until 30 yielded
srun --nodelist=n2 --ntasks=1 true
check "another job's end does not wake it while one runs" [ -e "$W/busy/n2" ]
wait $holder
check "after the last job it works" wait_until 300 all_done 220
check "no lease was lost to jobs" metric_is wavetune_leases_lost_total "$lost"
check "and no node was drained by its prolog" nodes_idle

# Drained nodes.
is_state() { wavetune agents --json | jq -e '.[] | select(.name == "'"$1"'" and .state == "'"$2"'")' >/dev/null; }
scontrol update nodename=n2 state=drain reason=repair
check "scontrol drains a node: its agent drains" bash -c "deploy/slurm/drain.sh"
check "it has the state" wait_until 20 is_state n2 draining
check "that of the other node does not" bash -c "[ \$(wavetune agents --all --json | jq '[.[] | select(.drain_reason != null)] | length') = 1 ]"
scontrol update nodename=n2 state=resume
wait_until 20 nodes_idle || true
check "and is resumed with the node" deploy/slurm/drain.sh
check "it is live again" wait_until 20 is_state n2 live
