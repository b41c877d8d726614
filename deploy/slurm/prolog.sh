#!/bin/sh
# SPDX-FileCopyrightText: 2026 the wavetune authors
# SPDX-License-Identifier: MIT
# Prolog= of a cluster whose idle nodes tune: makes the agent of this node (systemd unit, `wavetune-agent run --busy-file
# /run/wavetune-busy`) give its devices back. Any job makes all devices of the node busy: what
# runs beside a measurement changes it. epilog.sh is its other half. Slurm drains a node whose prolog fails, so this never does.
#
#   slurm.conf:  Prolog=/etc/slurm/wavetune-prolog.sh  Epilog=/etc/slurm/wavetune-epilog.sh  PrologFlags=Alloc
busy=${WAVETUNE_BUSY_FILE:-/run/wavetune-busy}

(
  flock 9
  mkdir -p "$busy.jobs" && : >"$busy.jobs/$SLURM_JOB_ID" && echo "slurm job $SLURM_JOB_ID" >"$busy"
) 9>"$busy.lock"

# The agent looks ten times a second, and kills its workers and compilers.
sleep 1
exit 0
