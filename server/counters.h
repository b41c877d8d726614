/* The counters of /metrics (http/metrics.c): those of this process in one table, and in another
 * what programs count and report.
 *
 * Threads: any. */
#ifndef WAVETUNE_SERVER_COUNTERS_H
#define WAVETUNE_SERVER_COUNTERS_H

#include "common/base/base.h"

/* COUNTER(id, Prometheus' name, help) */
/* clang-format off */
#define COUNTERS(COUNTER) \
  COUNTER(requests, "wavetune_http_requests_total", "Requests answered") \
  COUNTER(request_lines_left_out, "wavetune_log_request_lines_left_out_total", \
          "Lines that --log-requests errors left out because there were too many") \
  COUNTER(responses_cached, "wavetune_http_responses_from_memory_total", \
          "Responses served by the event threads from memory") \
  COUNTER(slow_turns, "wavetune_http_slow_turns_total", \
          "Turns of an event thread of over a second, in which its connections waited") \
  COUNTER(fetches_left_out, "wavetune_fetches_left_out_total", \
          "Requests for releases that no row of fetches counts: too many different ones at once") \
  COUNTER(flights_waited, "wavetune_http_waits_for_answer_total", \
          "Requests that waited while another one made the answer that is then cached") \
  COUNTER(queue_shed, "wavetune_queue_shed_total", "Requests refused because the queue was full") \
  COUNTER(queue_late, "wavetune_queue_late_total", \
          "Requests refused because no database worker was free for half of their time") \
  COUNTER(bodies_refused, "wavetune_bodies_refused_total", \
          "Requests refused because of the memory that their bodies take") \
  COUNTER(reports_refused, "wavetune_reports_refused_total", \
          "Reports (demand, counters, captures) refused because their token posts too many a " \
          "minute") \
  COUNTER(oidc_tokens, "wavetune_oidc_tokens_total", \
          "Tokens of identity providers (--oidc) that were verified and accepted") \
  COUNTER(oidc_fetches, "wavetune_oidc_fetches_total", \
          "Attempts to fetch the keys of an identity provider") \
  COUNTER(oidc_fetches_failed, "wavetune_oidc_fetches_failed_total", "Those that failed") \
  COUNTER(choices_rendered, "wavetune_choices_rendered_total", \
          "Releases whose choices were rendered") \
  COUNTER(leases_granted, "wavetune_leases_granted_total", "Leases granted") \
  COUNTER(leases_split, "wavetune_leases_split_total", \
          "Splits of held leases, whose last configs went to an idle device") \
  COUNTER(leases_renewed, "wavetune_leases_renewed_total", "Lease renewals committed") \
  COUNTER(leases_lost, "wavetune_leases_lost_total", "Leases that expired") \
  COUNTER(leases_done, "wavetune_leases_done_total", "Leases with no configs left") \
  COUNTER(leases_reopened, "wavetune_leases_reopened_total", \
          "Leases that became open again: lost, handed back, partly done, quarantined") \
  COUNTER(leases_cancelled, "wavetune_leases_cancelled_total", "Leases cancelled") \
  COUNTER(measurements_accepted, "wavetune_measurements_accepted_total", "Measurements stored") \
  COUNTER(measurements_known, "wavetune_measurements_known_total", \
          "Measurements that were stored already") \
  COUNTER(measurements_late, "wavetune_measurements_late_total", \
          "Measurements stored as evidence after their lease ended") \
  COUNTER(jobs_submitted, "wavetune_jobs_submitted_total", "Jobs created") \
  COUNTER(jobs_known, "wavetune_jobs_known_total", "Submissions of a job that existed already") \
  COUNTER(jobs_done, "wavetune_jobs_done_total", "Jobs done") \
  COUNTER(jobs_failed, "wavetune_jobs_failed_total", "Jobs failed") \
  COUNTER(poisoned, "wavetune_poisoned_total", \
          "Configs, objects and kernels that were entered into the ledger of poison") \
  COUNTER(devices_drained, "wavetune_devices_drained_total", \
          "Devices drained because they drifted from their history") \
  COUNTER(measurements_quarantined, "wavetune_measurements_quarantined_total", \
          "Measurements quarantined because their device drifted") \
  COUNTER(winners_quarantined, "wavetune_winners_quarantined_total", \
          "Winners decided from quarantined measurements") \
  COUNTER(winners_flagged, "wavetune_winners_flagged_total", \
          "Winners that a later job measured slower than the default")
/* clang-format on */
enum counter {
#define X(id, ...) COUNTER_##id,
  COUNTERS(X)
#undef X
      COUNTER_COUNT
};
void counter_add(enum counter counter, uint64_t n);

/* REFUSAL(id, reason in /metrics): why a request was refused for its token, with 401 or 403, or
 * with 503 (busy). */
#define TOKEN_REFUSALS(REFUSAL)                                                                    \
  REFUSAL(MISSING, "missing")                                                                      \
  REFUSAL(UNKNOWN, "unknown") /* or revoked */                                                     \
  REFUSAL(EXPIRED, "expired")                                                                      \
  REFUSAL(PROVIDER, "provider") /* of an identity provider, and not valid or without a rule */     \
  REFUSAL(BUSY, "busy")         /* not looked up: too many unknown ones are tried */               \
  REFUSAL(ROLE, "role")                                                                            \
  REFUSAL(IDENTITY, "identity")   /* --require-enrolment */                                        \
  REFUSAL(AGENT, "agent")         /* it may not act as that agent, or not use that lease */        \
  REFUSAL(ENROLMENT, "enrolment") /* an enrolment token beyond its uses, names, environment */     \
  REFUSAL(CHANNEL, "channel")     /* it may not move that channel */
enum token_refusal {
#define X(id, reason) REFUSED_##id,
  TOKEN_REFUSALS(X)
#undef X
      TOKEN_REFUSAL_COUNT
};
void metrics_note_refusal(enum token_refusal refusal);
void metrics_label_write(FILE *out, const char *value); /* a label's value, quoted */

/* COUNTER(id, Prometheus' name, help): what programs that start tuned report (POST /v1/counters),
 * by tag. */
/* clang-format off */
#define PROGRAM_COUNTERS(COUNTER) \
  COUNTER(hits, "wavetune_program_choice_hits_total", \
          "Keys for which programs found a choice, by tag (empty: a tag without a channel)") \
  COUNTER(misses, "wavetune_program_choice_misses_total", \
          "Keys for which programs found no choice") \
  COUNTER(unfit, "wavetune_program_choice_unfit_total", \
          "Choices that programs left because none or several of their own configs fit") \
  COUNTER(failures, "wavetune_program_failures_total", \
          "Requests of programs without an answer, and errors inside the wheel") \
  COUNTER(saved_seconds, "wavetune_program_saved_seconds_total", \
          "What tuning the keys with a choice took, as far as choices state it")
/* clang-format on */
enum program_counter {
#define X(id, ...) PROGRAM_##id,
  PROGRAM_COUNTERS(X)
#undef X
      PROGRAM_COUNTER_COUNT
};

#define PROGRAM_TAGS_MAX 64  /* that have counters; all further ones share those of "" */
#define PROGRAM_TAG_MAX 200u /* bytes of a tag */
/* Whether the tag has counters; "default" always has. */
must_check bool program_tag_is_counted(const char *tag);
/* Adds a report. A tag without counters gets them while there are fewer than PROGRAM_TAGS_MAX, so
 * pass "" for tags that clients may have invented. */
void program_counters_add(const char *tag, const double counts[PROGRAM_COUNTER_COUNT]);

#endif
