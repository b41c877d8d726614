/* The transitions of a job's state. */
#include <criterion/criterion.h>

#include "server/job/jobs.h"

TestSuite(job_state);

Test(job_state, a_job_ends_once) {
  for (int from = 0; from < JOB_STATE_COUNT; from++)
    for (int to = 0; to < JOB_STATE_COUNT; to++)
      if (job_state_is_final((enum job_state)from))
        cr_expect_not(job_state_may_change((enum job_state)from, (enum job_state)to), "%d to %d",
                      from, to);
}

Test(job_state, done_failed_and_cancelled_are_final) {
  cr_expect(job_state_is_final(JOB_DONE));
  cr_expect(job_state_is_final(JOB_FAILED));
  cr_expect(job_state_is_final(JOB_CANCELLED));
  cr_expect_not(job_state_is_final(JOB_QUEUED));
  cr_expect_not(job_state_is_final(JOB_RUNNING));
}

Test(job_state, only_a_running_job_can_be_done) {
  cr_expect(job_state_may_change(JOB_RUNNING, JOB_DONE));
  cr_expect_not(job_state_may_change(JOB_QUEUED, JOB_DONE));
}

Test(job_state, a_running_job_is_never_queued_again) {
  cr_expect(job_state_may_change(JOB_QUEUED, JOB_RUNNING));
  cr_expect_not(job_state_may_change(JOB_RUNNING, JOB_QUEUED));
}

Test(job_state, only_a_running_job_may_stay_in_its_state_for_another_stage) {
  for (int state = 0; state < JOB_STATE_COUNT; state++)
    cr_expect_eq(job_state_may_change((enum job_state)state, (enum job_state)state),
                 state == JOB_RUNNING, "%d", state);
}

Test(job_state, names_read_back_and_others_are_refused) {
  enum job_state state;
  enum outcome outcome;
  for (int i = 0; i < JOB_STATE_COUNT; i++)
    cr_expect(job_state_parse(job_state_names[i], &state) && (int)state == i);
  for (int i = 0; i < OUTCOME_COUNT; i++)
    cr_expect(outcome_parse(outcome_name((enum outcome)i), &outcome) && (int)outcome == i);
  cr_expect_not(job_state_parse("Done", &state));
  cr_expect_not(outcome_parse("ok", &outcome));
}
