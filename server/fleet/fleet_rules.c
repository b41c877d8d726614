/* States, rates, time to go. Memory and threads: fleet_rules.h. */
#include "server/fleet/fleet_rules.h"

#include <inttypes.h>
#include <math.h>

const char *const device_state_names[] = {
#define X(id, name) name,
    DEVICE_STATES(X)
#undef X
        NULL};

enum device_state device_state_of(const struct device_facts *facts) {
  return facts->is_ended      ? DEVICE_ENDED
         : facts->is_lost     ? DEVICE_LOST
         : facts->is_yielded  ? DEVICE_YIELDED
         : facts->has_drifted ? DEVICE_DRIFTED
         : facts->is_drained  ? DEVICE_DRAINED
         : facts->has_lease   ? DEVICE_MEASURING
                              : DEVICE_IDLE;
}

bool device_state_takes_work(enum device_state state) {
  return state == DEVICE_MEASURING || state == DEVICE_IDLE;
}

void fleet_samples_add(struct fleet_samples *samples, const struct fleet_sample *sample) {
  const struct fleet_sample *newest = samples->n ? &samples->all[samples->n - 1] : NULL;
  if (newest && sample->at_ms < newest->at_ms)
    samples->n = 0;
  else if (newest && sample->at_ms - newest->at_ms < SAMPLE_EVERY_MS)
    return;

  size_t n_old = 0;
  while (n_old < samples->n && (samples->n - n_old == SAMPLES_MAX ||
                                sample->at_ms - samples->all[n_old].at_ms > RATE_OVER_MS))
    n_old++;
  samples->n -= n_old;
  memmove(samples->all, samples->all + n_old, samples->n * sizeof *samples->all);
  samples->all[samples->n++] = *sample;
}

struct fleet_rate fleet_rate_of(const struct fleet_samples *samples,
                                const struct fleet_sample *now) {
  const struct fleet_sample *since = samples->n ? &samples->all[0] : now;
  double measuring_ms = now->measuring_ms - since->measuring_ms;
  struct fleet_rate rate = {
      .over_s = fmax(0, (double)(now->at_ms - since->at_ms) / 1e3),
      .measurements = fmax(0, now->measurements - since->measurements),
      .jobs = fmax(0, now->jobs - since->jobs),
      .device_seconds = fmax(0, (now->device_us - since->device_us) / 1e6),
  };
  rate.pace = rate.device_seconds > 0 && measuring_ms > 0
                  ? rate.device_seconds / (measuring_ms / 1e3)
                  : (double)NAN;
  return rate;
}

double shared_us(const struct queue_load *queues, size_t n, double weight, double ahead_us) {
  double us = 0;
  for (size_t i = 0; i < n; i++)
    us += fmin(queues[i].left_us, queues[i].weight * (ahead_us / weight));
  return us;
}

double to_go_seconds(double device_us, int64_t devices, const struct fleet_rate *rate) {
  return devices > 0 ? device_us / 1e6 / ((double)devices * rate->pace) : (double)NAN;
}

void to_go_estimate(const struct hardware_load *loads, size_t n, const struct fleet_rate *rate,
                    struct to_go *ret) {
  struct hardware_load served = {0};
  int64_t unserved = 0;
  double seconds = 0;
  char span[SPAN_TEXT_SIZE], over[SPAN_TEXT_SIZE];
  *ret = (struct to_go){.seconds = (double)NAN};

  for (size_t i = 0; i < n; i++) {
    if (loads[i].devices == 0) {
      unserved += loads[i].jobs;
      continue;
    }
    served.left_us += loads[i].left_us;
    served.jobs += loads[i].jobs;
    served.unknown += loads[i].unknown;
    served.devices += loads[i].devices;
    seconds = fmax(seconds, to_go_seconds(loads[i].left_us, loads[i].devices, rate));
  }

  cleanup_free char *unserved_text =
      unserved ? xasprintf("%" PRId64 " jobs wait for hardware of which no device takes leases",
                           unserved)
               : xstrdup("");
  if (served.jobs == 0) {
    snprintf(ret->basis, sizeof ret->basis, "%s.", unserved ? unserved_text : "No job is open");
    return;
  }

  span_format(rate->over_s, over);
  if (isnan(rate->pace)) {
    snprintf(ret->basis, sizeof ret->basis,
             "Not known yet: no device time was reported in the last %s.%s%s%s", over,
             unserved ? " " : "", unserved_text, unserved ? "." : "");
    return;
  }

  cleanup_free char *unknown_text =
      served.unknown
          ? xasprintf(" (%" PRId64 " are of kernels that were never tuned)", served.unknown)
          : xstrdup("");
  ret->seconds = seconds;
  snprintf(ret->basis, sizeof ret->basis,
           "%" PRId64 " jobs%s need about %s of device time, as done jobs took for their configs; "
           "%" PRId64 " devices take leases, and one that measures reports %.2f s of device time a "
           "second (last %s).%s%s%s",
           served.jobs, unknown_text, span_format(served.left_us / 1e6, span), served.devices,
           rate->pace, over, unserved ? " " : "", unserved_text,
           unserved ? " and are not counted." : "");
}
