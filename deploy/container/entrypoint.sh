#!/bin/sh
# SPDX-FileCopyrightText: 2026 the wavetune authors
# SPDX-License-Identifier: MIT
# Fetches the newest cache of tuned configs, sets the variables by which tools find it, and executes the container's program:
# ENTRYPOINT ["wavetune-entrypoint"], with the program as CMD. docs/deployments.md explains the variables.
#
#   WAVETUNE_URL, WAVETUNE_TOKEN   the server, and a token of the role reader; WAVETUNE_TOKEN_FILE: the token's file, which
#                                  keeps it out of the program's environment
#   WAVETUNE_FORMATS               the formats to render, separated by spaces (triton)
#   WAVETUNE_TO                    a writable folder of this container (/var/cache/wavetune)
#   WAVETUNE_BUDGET_MS             how long the fetch may delay the start (2000)
#   WAVETUNE_INSECURE_HTTP         1: fetch sends the token over http:// to another host, too
#   and the other variables of `wavetune fetch`: WAVETUNE_TRUSTED_KEYS, WAVETUNE_CHANNEL, WAVETUNE_TAG, WAVETUNE_ENVIRONMENT, …
#
# The program starts even if all of this fails: without a cache it tunes as it would without wavetune. WAVETUNE_FETCH_STATUS
# has the exit code of fetch (docs/exit-codes.md).

wavetune_fetch() {
  budget=${WAVETUNE_BUDGET_MS:-2000}
  case $budget in *[!0-9]* | ???????*) budget=2000 ;; esac
  set --
  set -f # formats are words, not patterns
  for format in ${WAVETUNE_FORMATS:-triton}; do
    set -- "$@" --format "$format"
  done
  set +f
  set -- wavetune fetch --to "${WAVETUNE_TO:-/var/cache/wavetune}" --budget-ms "$budget" --print-env "$@"
  # fetch keeps its budget by itself, except when a file system hangs.
  if command -v timeout >/dev/null 2>&1; then
    set -- timeout -k 1 "$((budget / 1000 + 2))" "$@"
  fi
  if [ -n "${WAVETUNE_TOKEN_FILE:-}" ] && token=$(cat "$WAVETUNE_TOKEN_FILE"); then
    WAVETUNE_TOKEN=$token "$@"
  else
    "$@"
  fi
}

variables=$(wavetune_fetch)
WAVETUNE_FETCH_STATUS=$?
export WAVETUNE_FETCH_STATUS

# A text with a syntax error would end this script: evaluate it in a subshell first.
if (eval "$variables") >/dev/null 2>&1; then
  eval "$variables"
fi
if [ "$WAVETUNE_FETCH_STATUS" -ne 0 ]; then
  echo "wavetune-entrypoint: fetch ended with $WAVETUNE_FETCH_STATUS; starting the program anyway" >&2
fi

exec "$@"
