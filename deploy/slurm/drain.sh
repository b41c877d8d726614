#!/bin/sh
# SPDX-FileCopyrightText: 2026 the wavetune authors
# SPDX-License-Identifier: MIT
# Drains the agents of the nodes that `scontrol update state=drain` drained, and lets those work again whose node was resumed. Run
# it every minute, by a timer or cron, on a host with Slurm's commands; agents are named after their nodes (tune.sbatch, --name).
#
#   WAVETUNE_URL, WAVETUNE_TOKEN   the server, and a token of the role operator
#
# Agents that an operator drained for another reason stay so.
set -eu
# In a file: the listing of a large fleet is too long for an argument. What fails ends the script here, before anything is resumed.
agents=$(mktemp)
trap 'rm -f "$agents"' EXIT
wavetune agents --json >"$agents"
nodes=$(sinfo --noheader --Node --format '%N %T')
[ -n "$nodes" ] || { echo "sinfo lists no node" >&2; exit 1; }
printf '%s\n' "$nodes" | sort -u | python3 -c '
import json, sys
states = dict(line.split() for line in sys.stdin)
drained = {node for node, state in states.items() if state.rstrip("*").startswith("drain")}
for agent in json.load(open(sys.argv[1])):
    ours = (agent.get("drain_reason") or "").startswith("slurm:")
    if agent["name"] in drained and agent["state"] == "live":
        print("drain", agent["agent"])
    elif agent["name"] in states and agent["name"] not in drained and ours:
        print("resume", agent["agent"])
' "$agents" | while read -r what agent; do
  if [ "$what" = drain ]; then
    wavetune agents drain "$agent" --reason "slurm: the node is drained"
  else
    wavetune agents resume "$agent"
  fi
done
