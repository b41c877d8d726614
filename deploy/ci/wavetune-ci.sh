#!/bin/sh
# SPDX-FileCopyrightText: 2026 the wavetune authors
# SPDX-License-Identifier: MIT
# What a CI job does with wavetune: submits jobs, waits for them, publishes the winners, and leaves a table in Markdown: in
# GitHub's summary of the job, as a comment, and in a file. Without a secret: its tokens are the CI system's (docs/ci.md).
#
#   wavetune-ci.sh run      all of this; the exit codes are those of wavetune (docs/exit-codes.md)
#   wavetune-ci.sh token    prints a token of the CI system
#
#   WAVETUNE_URL               the server
#   WAVETUNE_AUDIENCE          the audience that the server requires (default: WAVETUNE_URL)
#   WAVETUNE_CI_JOBS           what to tune: each line has the arguments of one `wavetune submit`, separated by blanks,
#                              without quotes; or in the file WAVETUNE_CI_JOBS_FILE
#   WAVETUNE_CI_TIMEOUT        seconds to wait for all jobs together (default 3600); the jobs go on
#   WAVETUNE_CI_CHANNEL        publish to this channel, once every job has a winner (default: nothing is published)
#   WAVETUNE_CI_PUBLISH        further arguments of `wavetune publish`, such as: --environment @environment.json --tag nightly
#   WAVETUNE_CI_REPORT         the file for the table (default wavetune.md)
#   WAVETUNE_CI_COMMENT_TOKEN  a token that may comment on the pull or merge request (default: no comment)
#   WAVETUNE_CI_PROGRAM        the program (default: wavetune)
# shellcheck disable=SC2016,SC2089,SC2090 # backquotes are Markdown's; the shell of the token's command reads its quotes
set -fu
self=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
program=${WAVETUNE_CI_PROGRAM:-wavetune}
report=${WAVETUNE_CI_REPORT:-wavetune.md}
curl='curl --silent --show-error --fail --max-time 30'

say() { printf 'wavetune-ci: %s\n' "$*" >&2; }

# A header is read from stdin, so that no other user sees it among the arguments.
token() {
  if [ -n "${ACTIONS_ID_TOKEN_REQUEST_URL:-}" ]; then
    printf 'Authorization: bearer %s\n' "${ACTIONS_ID_TOKEN_REQUEST_TOKEN:-}" |
      $curl -H @- -G --data-urlencode "audience=${WAVETUNE_AUDIENCE:-${WAVETUNE_URL:-}}" "$ACTIONS_ID_TOKEN_REQUEST_URL" |
      sed -n 's/.*"value" *: *"\([A-Za-z0-9._-]*\)".*/\1/p' | grep . ||
      { say "GitHub gave no token"; return 3; }
  elif [ -n "${WAVETUNE_ID_TOKEN:-}" ]; then
    printf '%s\n' "$WAVETUNE_ID_TOKEN"
  elif [ -n "${GITHUB_ACTIONS:-}" ]; then
    say "GitHub gives this job no token: pull requests from forks get none; other jobs need \"permissions: id-token: write\""
    return 2
  else
    say "there is no token of the CI system: a job of GitLab needs id_tokens with WAVETUNE_ID_TOKEN"
    return 2
  fi
}

# Keeps the worst of two exit codes: what went wrong, before a job without a winner (1), before a job that has not ended (9).
status=0
note() {
  case $status:$1 in
    *:0) ;;
    0:* | 9:*) status=$1 ;;
    1:9 | *:1) ;;
    1:*) status=$1 ;;
  esac
}

# Calls `$1 ARGUMENT…` for each line of the file $2.
each_line() {
  while read -r line || [ -n "$line" ]; do
    case $line in '' | '#'*) continue ;; esac
    # shellcheck disable=SC2086
    "$1" $line
  done <"$2"
}

submit() {
  if "$program" submit "$@" >>"$work/jobs" </dev/null; then
    printf '%s\n' "$line" >>"$work/submitted"
  else
    note $?
    printf '%s\n' "$line" >>"$work/refused"
  fi
}

# A job that was submitted before is the same one; this follows it.
await() {
  left=$((until - $(date +%s)))
  [ "$left" -ge 1 ] || left=1
  "$program" submit "$@" --wait --timeout "$left" </dev/null
  note $?
}

publish() {
  # shellcheck disable=SC2086
  if "$program" publish --jobs "$work/jobs" --channel "$WAVETUNE_CI_CHANNEL" ${WAVETUNE_CI_PUBLISH:-} >"$work/published"; then
    release=$(sed -n 's/^release  *\(sha256:[0-9a-f]*\).*/\1/p' "$work/published")
  else
    note $?
  fi
  cat "$work/published"
}

# The report in Markdown.
write_report() {
  case $status in
    0) echo "### wavetune: every job has a winner" ;;
    1) echo "### wavetune: a job has no winner" ;;
    9) echo "### wavetune: jobs had not ended after ${WAVETUNE_CI_TIMEOUT:-3600} s" ;;
    *) echo "### wavetune: failed (exit code $status; the job's log says why)" ;;
  esac
  echo
  cat "$work/table"
  if [ -s "$work/refused" ]; then
    printf '\nNot submitted; the log of this job says why:\n\n'
    sed 's/`/'\''/g; s/.*/- `wavetune submit &`/' "$work/refused"
  fi
  if [ -n "$release" ]; then
    printf '\nPublished `%s` to the channel `%s`.\n' "$release" "$WAVETUNE_CI_CHANNEL"
  elif [ -n "${WAVETUNE_CI_CHANNEL:-}" ]; then
    printf '\nNothing was published to the channel `%s`.\n' "$WAVETUNE_CI_CHANNEL"
  fi
}

json_string() {
  sed 's/\\/\\\\/g; s/"/\\"/g; s/	/ /g' "$1" | awk 'BEGIN { printf "\"" } { printf "%s\\n", $0 } END { printf "\"" }'
}

# A comment is at most 65,536 characters on GitHub. A failure is said, and does not fail the job.
comment() {
  head -n 200 "$report" >"$work/comment"
  case ${GITHUB_REF:-} in
    refs/pull/*/merge)
      number=${GITHUB_REF#refs/pull/}
      printf '{"body": %s}' "$(json_string "$work/comment")" >"$work/body"
      printf 'Authorization: Bearer %s\n' "$WAVETUNE_CI_COMMENT_TOKEN" |
        $curl -o /dev/null -H @- -H 'Content-Type: application/json' --data-binary "@$work/body" \
          "${GITHUB_API_URL:-https://api.github.com}/repos/$GITHUB_REPOSITORY/issues/${number%/merge}/comments" ||
        say "the comment was not accepted"
      return ;;
  esac
  [ -n "${CI_MERGE_REQUEST_IID:-}" ] || return 0
  printf 'PRIVATE-TOKEN: %s\n' "$WAVETUNE_CI_COMMENT_TOKEN" |
    $curl -o /dev/null -H @- --data-urlencode "body@$work/comment" \
      "$CI_API_V4_URL/projects/$CI_PROJECT_ID/merge_requests/$CI_MERGE_REQUEST_IID/notes" || say "the comment was not accepted"
}

run() {
  work=$(mktemp -d) release=
  trap 'rm -rf "$work"' EXIT
  trap 'exit 130' INT TERM
  if [ -z "${WAVETUNE_URL:-}" ]; then
    say "WAVETUNE_URL is not set: name the server"
    return 2
  fi
  if [ -z "${WAVETUNE_TOKEN:-}${WAVETUNE_TOKEN_COMMAND:-}" ]; then
    token >/dev/null || return $?
    WAVETUNE_TOKEN_COMMAND="sh '$self' token"
    export WAVETUNE_TOKEN_COMMAND
    unset WAVETUNE_TOKEN # an empty one of the CI system is none
  fi

  if [ -n "${WAVETUNE_CI_JOBS_FILE:-}" ]; then
    cat "$WAVETUNE_CI_JOBS_FILE" >"$work/lines" || return 2
  else
    printf '%s\n' "${WAVETUNE_CI_JOBS:-}" >"$work/lines"
  fi
  touch "$work/jobs" "$work/submitted" "$work/refused" "$work/table"
  until=$(($(date +%s) + ${WAVETUNE_CI_TIMEOUT:-3600}))
  each_line submit "$work/lines"
  if ! [ -s "$work/submitted" ] && ! [ -s "$work/refused" ]; then
    say "there is nothing to submit: WAVETUNE_CI_JOBS has no line"
    return 2
  fi

  each_line await "$work/submitted"
  if [ -s "$work/jobs" ]; then
    "$program" report --jobs "$work/jobs" -o markdown >"$work/table"
    note $?
  fi
  [ "$status" -ne 0 ] || [ -z "${WAVETUNE_CI_CHANNEL:-}" ] || publish

  write_report >"$report"
  [ -z "${GITHUB_STEP_SUMMARY:-}" ] || cat "$report" >>"$GITHUB_STEP_SUMMARY"
  [ -z "${GITHUB_OUTPUT:-}" ] || printf 'release=%s\nreport=%s\n' "$release" "$report" >>"$GITHUB_OUTPUT"
  [ -z "${WAVETUNE_CI_COMMENT_TOKEN:-}" ] || comment
  return "$status"
}

case ${1:-} in
  run | token) "$1" ;;
  *) echo "usage: $0 run|token" >&2 && exit 2 ;;
esac
