#!/bin/bash
# Changes decisions in a copy of the tree, one at a time, and expects the named test to fail.
#
#   tests/mutants.sh               # all; 8 minutes of two busy cores with a warm ccache
#   tests/mutants.sh lease channel # those whose names begin with these words
#
# By hand, not in CI. A change is (name, file, text, other text, test); the text must occur once in
# the file, or the run ends: adapt the change. A test is NAME of unit/test_NAME.c, or FILE::NAME of
# system/test_FILE.py. First all tests run without a change. The copy is of HEAD.
set -eu
cd "$(dirname "$0")/.."
source=$PWD scratch=$(mktemp -d)
tree=$scratch/tree
trap 'git -C "$source" worktree remove --force "$tree"; rm -rf "$scratch"' EXIT

names=() files=() froms=() tos=() tests=()
mutant() { # name file from to test
  local wanted=$#
  [ "$wanted" -eq 5 ] || { echo "mutants: $1 has $wanted arguments" >&2; exit 2; }
  for prefix in "${prefixes[@]:-}"; do
    [[ $1 == "$prefix"* ]] || continue
    names+=("$1") files+=("$2") froms+=("$3") tos+=("$4") tests+=("$5")
    break
  done
}
prefixes=("$@")

# Leases
mutant lease-renewal server/measure/lease_losses.sql $'AND due_at < now()\n      AND expires_at < now()' \
  'AND due_at < now()' renewals::test_results_of_a_renewed_lease_count
mutant lease-renewal-agent server/measure/lease_losses.sql $'AND due_at < now()\n      AND expires_at < now()' \
  'AND due_at < now()' renewals::test_an_agent_renews_the_lease_of_a_config_that_outlasts_it
mutant lease-held-renewed agent/run/held.c $'if (held)\n    expiry_set(held' $'if (!held)\n    expiry_set(held' agent_held
mutant lease-spent-no-budget server/measure/lease_routes.c 'TASK_CAUSE_SPENT && lease->has_budget' \
  'TASK_CAUSE_SPENT' campaigns::test_a_lease_without_a_budget_has_none_to_spend
mutant lease-spent-final server/measure/lease_routes.c ' && lease->stage != STAGE_FINAL' '' \
  campaigns::test_a_final_whose_time_is_spent_is_leased_again
mutant lease-search-warm server/job/jobs.sql 'AND j.likely <> :likely' 'AND j.likely = :likely' \
  campaigns::test_searches_of_one_post_begin_with_the_winners_of_those_that_are_done_before_them
mutant lease-innocent server/measure/lease_routes.c ' || handback->cause == TASK_CAUSE_YIELDED' '' \
  signed_kernels::test_releasing_a_lease_that_is_not_signed_does_not_count_against_the_job
mutant lease-old-reasons common/task/task_cause.c 'string_starts(reason, old_reasons[cause])' \
  'string_equal(reason, old_reasons[cause])' \
  signed_kernels::test_releasing_a_lease_that_is_not_signed_does_not_count_against_the_job
mutant lease-fruitless server/measure/lease_losses.c 'is_over = fruitless >= LEASE_FRUITLESS_MAX' \
  'is_over = fruitless > LEASE_FRUITLESS_MAX' \
  signed_kernels::test_releasing_a_lease_that_is_not_signed_does_not_count_against_the_job
mutant lease-failed-device server/measure/lease_routes.c 'handback->cause != TASK_CAUSE_DEVICE' \
  'handback->cause == TASK_CAUSE_DEVICE' \
  poison::test_a_device_that_fails_blames_the_last_config_that_its_worker_did_not_survive
mutant lease-avoids server/measure/measure.sql $'\n          AND NOT o.avoid_agents @> ARRAY[a.id]' '' \
  leases::test_a_config_lost_twice_by_one_agent_goes_to_another_one_alone
mutant lease-runs server/measure/measure.sql 'may_measure(d.runs, j.regime)' 'true' \
  regimes::test_a_device_gets_only_leases_of_regimes_that_it_states
mutant lease-runs-split server/measure/lease_moves.sql $'\n      AND may_measure(d.runs, j.regime)' '' \
  campaigns::test_a_lease_is_not_split_for_a_device_that_does_not_measure_in_its_regime
mutant lease-selective server/lease/lease.sql ' OR NOT d.runs @> :all_runs::text[]' '' \
  regimes::test_a_device_that_may_not_have_a_lease_takes_no_wake_up_from_one_that_may
mutant lease-unreadable server/measure/lease_routes.c 'handback->cause == TASK_CAUSE_UNREADABLE' 'false' \
  leases::test_a_lease_that_agents_cannot_read_waits_for_one_that_can
mutant lease-share-held server/lease/fair_share.c 'a->owner->used_us + a->owner->held * a->owner->lease_us' \
  'a->owner->used_us' server_fair_share
mutant lease-size server/measurement/lease_plan.c 'size < share ? size : share' 'size < share ? share : size' server_lease_plan
mutant lease-reopened server/lease/lease_state.c '[LEASE_DONE] = {[LEASE_OPEN] = true, ' '[LEASE_DONE] = {' \
  server_lease_state
mutant lease-loss-counts server/poison/poison_rule.c 'loss->same > loss->others' 'loss->same >= loss->others' \
  server_poison_rule

# Measurements
mutant measurement-refused-again server/measurement/measurements.c '(!stored || stored->refused)' '!stored' server_results
mutant measurement-regime-other server/measurement/measurements.c 'measurement->regime != lease->regime' 'false' server_results
mutant measurement-regime-absent server/measurement/measurements.c 'row->regime = lease->regime' 'row->regime = REGIME_COLD' \
  regimes::test_a_measurement_has_its_jobs_regime_stated_or_not_and_no_other
mutant measurement-first-counts server/measurement/measurements.c \
  'counts = RESULTS_MEASUREMENT(results, judgement->fresh[k])->config != measurement->config' 'counts = true' server_results
mutant measurement-left-early server/measurement/measurements.c ' && !measurement_left_early(measurement)' '' server_results
mutant measurement-done server/measurement/measurements.c 'results->done ? LEASE_OPEN : LEASE_HELD' \
  'results->done ? LEASE_HELD : LEASE_OPEN' server_results
mutant measurement-epoch server/measurement/measurements.c 'lease->state == LEASE_HELD && lease->epoch == results->epoch' \
  'lease->state == LEASE_HELD' server_results
mutant measurement-drift server/measurement/drift.c 'n_slower == DRIFT_LEASES' 'n_slower > 0' server_drift

# Verdicts
mutant verdict-tie common/verdict/verdict.c 'return a->spills < b->spills' 'return a->spills > b->spills' verdict
mutant verdict-equivalent common/verdict/verdict.c 'estimate.upper <= VERDICT_EQUIVALENCE' \
  'estimate.ratio <= VERDICT_EQUIVALENCE' verdict
mutant verdict-settled common/verdict/verdict.c ' && verdict->regret_bound <= VERDICT_REGRET' '' verdict
mutant verdict-same common/verdict/verdict.c 'gain.lower >= 1 / VERDICT_EQUIVALENCE && ' '' verdict
mutant verdict-replaces common/verdict/verdict.c 'if (upper >= 1)' 'if (upper >= 1.02)' verdict
mutant verdict-gain common/verdict/verdict.c 'ratio > 1 - min_gain' 'ratio > 1' verdict
mutant verdict-budget common/verdict/budget.c 'left_us(budget) / processes' 'left_us(budget) / (processes > 0)' budget

# Releases
mutant release-ambiguous server/release/release_make.c 'if (candidate->outcome == VERDICT_AMBIGUOUS)' 'if (false)' \
  server_release_make
mutant release-quarantined server/release/release_make.c 'if (candidate->quarantined)' 'if (false)' server_release_make
mutant release-spaces server/release/release_make.c $'if (!digest_equal(&one->space, &other->space))\n    return true' \
  $'if (!digest_equal(&one->space, &other->space))\n    return false' server_release_make
mutant release-regime-written common/cache/release.c 'if (regime_member(builder->regime))' \
  'if (builder->regime == REGIME_WARM)' release_build
mutant release-regime-read common/cache/release_read.c 'if (!regime_member(release->regime))' 'if (false)' release

# Channels
mutant channel-replay cli/fetch_verify.c 'entry->counter < counter ||' 'entry->counter + 1 < counter ||' \
  fetch::test_an_older_entry_is_a_replay_and_so_is_another_release_with_the_same_counter
mutant channel-expired cli/fetch_verify.c 'entry->expires_s > time(NULL)' 'entry->expires_s > 0' \
  fetch::test_an_expired_entry_is_refused
mutant channel-publisher server/channel/channel_routes.c 'if (!entry->signatures.n)' 'if (entry->signatures.n)' \
  signing::test_a_server_may_accept_only_what_its_publishers_signed
mutant channel-race server/channel/channel.sql 'AND c.counter = :from_counter AND' 'AND' \
  signing::test_of_moves_to_one_counter_exactly_one_wins

# $1: file, $2: text, $3: other text
change() {
  python3 - "$@" <<'PYTHON'
import sys
path, text, other = sys.argv[1:]
content = open(path).read()
if content.count(text) != 1:
    sys.exit(f"mutants: {text!r} occurs {content.count(text)} times in {path}, not once")
open(path, "w").write(content.replace(text, other))
PYTHON
}

targets() { # of tests
  for test in "$@"; do
    [[ $test == *::* ]] && echo wavetune-server wavetune-agent wavetune || echo "test_$test"
  done | tr ' ' '\n' | sort -u
}

build() { # targets
  nice -n 5 cmake --build "$tree/build/dev" -j2 --target "$@"
}

run() { # tests: all in one go
  local system=() test
  for test in "$@"; do
    if [[ $test == *::* ]]; then
      system+=("$tree/tests/system/test_${test%%::*}.py::${test##*::}")
    else
      nice -n 5 timeout 600 "$tree/build/dev/tests/test_$test" || return 1
    fi
  done
  [ ${#system[@]} -eq 0 ] ||
    WAVETUNE_BUILD=$tree/build/dev nice -n 5 timeout 1200 python3 -m pytest -q -x "${system[@]}"
}

git worktree add -q --detach "$tree" HEAD
for i in "${!names[@]}"; do # before anything is built
  cp "$tree/${files[i]}" "$scratch/before"
  change "$tree/${files[i]}" "${froms[i]}" "${tos[i]}"
  cp "$scratch/before" "$tree/${files[i]}"
done

export CMAKE_C_COMPILER_LAUNCHER=${CMAKE_C_COMPILER_LAUNCHER-$(command -v ccache || true)}
export CCACHE_BASEDIR=$tree CCACHE_NOHASHDIR=1 # so that the folder's name does not matter
mapfile -t different < <(printf '%s\n' "${tests[@]}" | sort -u)
(cd "$tree" && cmake --preset dev) >"$scratch/log" 2>&1 && build $(targets "${tests[@]}") >>"$scratch/log" 2>&1 &&
  run "${different[@]}" >>"$scratch/log" 2>&1 ||
  { tail -30 "$scratch/log" >&2; echo "mutants: the tests fail without a change" >&2; exit 2; }

survived=0
printf '%-28s %-8s %8s  %s\n' mutant result seconds test
for i in "${!names[@]}"; do
  file=$tree/${files[i]} began=$SECONDS result=survived
  cp "$file" "$scratch/before"
  change "$file" "${froms[i]}" "${tos[i]}"
  build $(targets "${tests[i]}") >"$scratch/log" 2>&1 ||
    { tail -30 "$scratch/log" >&2; echo "mutants: ${names[i]} does not compile" >&2; exit 2; }
  run "${tests[i]}" >"$scratch/log" 2>&1 || result=killed
  [ $result = killed ] || survived=$((survived + 1))
  printf '%-28s %-8s %8d  %s\n' "${names[i]}" $result $((SECONDS - began)) "${tests[i]}"
  cp "$scratch/before" "$file"
done
echo "${#names[@]} mutants, $survived survived"
[ $survived -eq 0 ]
