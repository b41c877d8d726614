# What the tests of this folder share. Sourced, not run.
# shellcheck shell=bash
#
#   help_asked "$@"       prints the script's first lines and ends it, where --help was given
#   needs WHAT…           ends with 77 and the reason where this machine lacks one of: root, debian (12), disk:GB and memory:GB that are
#                         free, a program
#   check WHAT COMMAND…   runs the command, and prints "ok WHAT", or "NOT OK WHAT" and the end of its output
#   wait_until SECONDS COMMAND…
#   programs_build LOG    the release build's programs, with the packages that they need
#   checks_end            prints "N passed, N failed (S s)"; false if one failed or there was none
#
# A function as COMMAND may hold several commands; its last one decides.

checks_passed=0 checks_failed=0

help_asked() {
  case ${1:-} in
  -h | --help)
    sed -n '2,/^[^#]/s/^# \{0,1\}//p' "deploy/test/${0##*/}"
    exit 0
    ;;
  esac
}

needs() {
  local what lacks=''
  for what; do
    case $what in
    root) [ "$(id -u)" -eq 0 ] || lacks="it needs root" ;;
    debian) grep -qs '^VERSION_ID="12"' /etc/os-release || lacks="it needs Debian 12" ;;
    disk:*) [ "$(df --output=avail -BG . | tail -n 1 | tr -dc 0-9)" -ge "${what#*:}" ] || lacks="it needs ${what#*:} GB of disk" ;;
    memory:*)
      awk -v gb="${what#*:}" '/^MemAvailable/ { exit !($2 >= gb * 1000000) }' /proc/meminfo || lacks="it needs ${what#*:} GB of memory"
      ;;
    /*) [ -x "$what" ] || lacks="there is no $what: build it first" ;;
    *) command -v "$what" >/dev/null || lacks="there is no program $what" ;;
    esac
    [ -z "$lacks" ] || { echo "skipped: $lacks" >&2; exit 77; }
  done
}

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
