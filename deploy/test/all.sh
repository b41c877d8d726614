#!/usr/bin/env bash
# Runs the tests of deployments that can run on this machine, one after the other, and prints a table of them.
#
#   deploy/test/all.sh [SCRIPT…]      default: every test of this folder, the shortest first
#
# Needs: what each of them needs (SCRIPT --help); where that is not there, it is skipped, with the reason. As root on Debian 12
# with Debian's mirror, 10 GB of disk, Go and a build in build/dev all of them run.
# Takes: an hour on two quiet cores, the first time half an hour more.
#
# Their output is in build/deploy-test/NAME.log. Ends with 1 if one failed or none ran. Not in CI.
set -euo pipefail
cd "$(dirname "$0")/../.."
. deploy/test/checks.sh
help_asked "$@"
if [ $# -eq 0 ]; then
  set -- deploy/test/{replica,backup,kubernetes,upgrade,slurm,cgroup,walk,packages,images,wheel,client}.sh
fi
logs=build/deploy-test
mkdir -p "$logs"

table=() passed=0 failed=0
for script; do
  name=$(basename "$script" .sh)
  echo "== $name: $(sed -n 's/^# Takes: //p' "$script")"
  start=$SECONDS status=0
  bash "$script" >"$logs/$name.log" 2>&1 || status=$?
  last=$(tail -n 1 "$logs/$name.log")
  case $status in
  0) result=passed why=$last passed=$((passed + 1)) ;;
  77) result=skipped why=${last#skipped: } ;;
  *) result=failed why="$last ($logs/$name.log)" failed=$((failed + 1)) ;;
  esac
  table+=("$(printf '%-12s %-8s %6d  %s' "$name" $result $((SECONDS - start)) "$why")")
done
printf '%-12s %-8s %6s  %s\n' test result s "last line, or why"
printf '%s\n' "${table[@]}"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
