#!/bin/sh
# Brings the newest cache of tuned configs to this container, tells the tools where it is, and becomes the container's
# program: ENTRYPOINT ["wavetune-entrypoint"], with the program as CMD. docs/deployments.md says what the variables mean.
#
#   WAVETUNE_URL, WAVETUNE_TOKEN   the server, and a token of the role reader; WAVETUNE_TOKEN_FILE: the token's file, which
#                                  keeps it out of the program's environment
#   WAVETUNE_FORMATS               what to render, separated by spaces (triton)
#   WAVETUNE_TO                    a writable place of this container's own (/var/cache/wavetune)
#   WAVETUNE_BUDGET_MS             how long the start may be held up (2000)
#   WAVETUNE_INSECURE_HTTP         1: fetch sends the token over http:// to another host, too
#   and what else `wavetune fetch` reads: WAVETUNE_TRUSTED_KEYS, WAVETUNE_CHANNEL, WAVETUNE_TAG, WAVETUNE_ENVIRONMENT, …
#
# Whatever happens here, the program starts: without a cache it tunes as if this were not there. What fetch ended with is in
# WAVETUNE_FETCH_STATUS (docs/exit-codes.md).

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
  # fetch keeps to its budget by itself; a file system that hangs does not let it.
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

# A text that is no shell would end this script: it is tried first in a shell of its own.
if (eval "$variables") >/dev/null 2>&1; then
  eval "$variables"
fi
if [ "$WAVETUNE_FETCH_STATUS" -ne 0 ]; then
  echo "wavetune-entrypoint: fetch ended with $WAVETUNE_FETCH_STATUS; starting all the same" >&2
fi

exec "$@"
