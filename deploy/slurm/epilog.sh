#!/bin/sh
# SPDX-FileCopyrightText: 2026 the wavetune authors
# SPDX-License-Identifier: MIT
# Epilog= of a cluster whose idle nodes tune: after the last job of the node its agent may work again, once the devices have been
# free for --free-seconds. prolog.sh is its other half.
busy=${WAVETUNE_BUSY_FILE:-/run/wavetune-busy}

(
  flock 9
  rm -f "$busy.jobs/$SLURM_JOB_ID"
  rmdir "$busy.jobs" 2>/dev/null && rm -f "$busy"
) 9>"$busy.lock"
exit 0
