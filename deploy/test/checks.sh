# What the tests of this folder share. Sourced, not run.
# shellcheck shell=bash
#
#   check WHAT COMMAND…   runs the command, and prints "ok WHAT", or "NOT OK WHAT" and the end of its output
#   wait_until SECONDS COMMAND…
#   programs_build LOG    the release build's programs, with the packages that they need
#   checks_end            prints "N passed, N failed (S s)"; false if one failed or there was none
#
# A function as COMMAND may hold several commands; its last one decides.

checks_passed=0 checks_failed=0

check() {
  local what=$1
  shift
  local output
  if output=$("$@" 2>&1); then
    echo "ok $what"
    checks_passed=$((checks_passed + 1))
  else
    echo "NOT OK $what"
    tail -20 <<<"$output" | sed 's/^/   | /'
    checks_failed=$((checks_failed + 1))
  fi
}

checks_end() {
  echo "$checks_passed passed, $checks_failed failed ($SECONDS s)"
  [ "$checks_failed" -eq 0 ] && [ "$checks_passed" -gt 0 ]
}

# Waits until the command succeeds, at most SECONDS.
wait_until() {
  local end=$((SECONDS + $1))
  shift
  until "$@" >/dev/null 2>&1; do
    [ $SECONDS -lt $end ] || return 1
    sleep 0.2
  done
}

programs_build() {
  # shellcheck disable=SC2086
  packages_install $PACKAGES_BUILD $PACKAGES_RUN
  mkdir -p build
  { cmake --preset release && cmake --build --preset release --target wavetune wavetune-agent wavetune-server; } >"$1" ||
    { tail -50 "$1"; exit 1; }
}
