/* The counters of /metrics (http/metrics.c), in one table.
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
  COUNTER(queue_shed, "wavetune_queue_shed_total", "Requests refused because the queue was full") \
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

#endif
