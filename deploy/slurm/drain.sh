#!/bin/sh
# Drains the agents of the nodes that `scontrol update state=drain` drained, and lets those work again whose node was resumed. Run
# it every minute, by a timer or cron, on a host with Slurm's commands; agents are named after their nodes (tune.sbatch, --name).
#
#   WAVETUNE_URL, WAVETUNE_TOKEN   the server, and a token of the role operator
#
# Agents that an operator drained for another reason stay so.
set -eu
agents=$(wavetune agents --json)
sinfo --noheader --Node --format '%N %T' | sort -u | AGENTS=$agents python3 -c '
import json, os, sys
drained = {node for node, state in (line.split() for line in sys.stdin) if state.rstrip("*").startswith("drain")}
for agent in json.loads(os.environ["AGENTS"]):
    ours = (agent.get("drain_reason") or "").startswith("slurm:")
    if agent["name"] in drained and agent["state"] == "live":
        print("drain", agent["agent"])
    elif agent["name"] not in drained and ours:
        print("resume", agent["agent"])
' | while read -r what agent; do
  if [ "$what" = drain ]; then
    wavetune agents drain "$agent" --reason "slurm: the node is drained"
  else
    wavetune agents resume "$agent"
  fi
done
