/* What the summary of the fleet concludes: the state of a device, rates, and the time until all
 * open jobs are done. Without a database and without a clock.
 *
 * Memory: plain values; names are borrowed. Threads: any. */
#ifndef WAVETUNE_SERVER_FLEET_FLEET_RULES_H
#define WAVETUNE_SERVER_FLEET_FLEET_RULES_H

#include "common/base/time.h"

/* In the order of precedence: a device has the first of these that fits. */
#define DEVICE_STATES(STATE)                                                                       \
  STATE(ENDED, "ended")         /* its agent ended in order */                                     \
  STATE(LOST, "lost")           /* its agent sends no heartbeats */                                \
  STATE(YIELDED, "yielded")     /* its agent left it to other programs for now */                  \
  STATE(DRIFTED, "drifted")     /* it was drained because it drifted from its history */           \
  STATE(DRAINED, "drained")     /* an operator drained it or its agent */                          \
  STATE(MEASURING, "measuring") /* it holds a lease */                                             \
  STATE(IDLE, "idle")
enum device_state {
#define X(id, name) DEVICE_##id,
  DEVICE_STATES(X)
#undef X
      DEVICE_STATE_COUNT
};
extern const char *const device_state_names[]; /* ended by NULL */

struct device_facts {
  bool is_ended, is_lost, is_yielded, has_drifted, is_drained, has_lease;
};
enum device_state device_state_of(const struct device_facts *facts);
/* Whether a device in this state takes leases. */
bool device_state_takes_work(enum device_state state);

/* Totals at a time; they grow. */
struct fleet_sample {
  int64_t at_ms; /* since 1970, by the database's clock */
  double device_us, measurements, jobs;
  double measuring_ms; /* of all devices together: how long they held leases */
};
#define RATE_OVER_MS (600 * 1000)
#define SAMPLE_EVERY_MS (10 * 1000)
#define SAMPLES_MAX (RATE_OVER_MS / SAMPLE_EVERY_MS + 2)
/* The samples of the last RATE_OVER_MS, the oldest first. */
struct fleet_samples {
  size_t n;
  struct fleet_sample all[SAMPLES_MAX];
};
/* Adds a sample, unless there is one of the last SAMPLE_EVERY_MS, and drops old ones. When the
 * clock was stepped back, the samples begin anew. */
void fleet_samples_add(struct fleet_samples *samples, const struct fleet_sample *sample);

/* What happened since the oldest sample. */
struct fleet_rate {
  double over_s, measurements, jobs, device_seconds;
  double utilisation; /* device seconds in each second of a live device; NaN: there is none. The
                         caller of fleet_rate_of sets it */
  double pace; /* device seconds of one measuring device in a second; NaN: nothing was measured */
};
struct fleet_rate fleet_rate_of(const struct fleet_samples *samples,
                                const struct fleet_sample *now);

/* The open jobs of one owner, among those of the same hardware and priority. */
struct queue_load {
  double weight, left_us;
};
/* How much device time the hardware will have given to all of them when it has given `ahead_us` to
 * one with this weight: meanwhile every other owner that has jobs left gets as much for its weight
 * (server/lease/fair_share.h; what owners used before is left out). */
double shared_us(const struct queue_load *queues, size_t n, double weight, double ahead_us);

/* The open jobs for one kind of hardware, and its devices that take leases. */
struct hardware_load {
  double left_us; /* device time that the jobs will take */
  int64_t jobs;
  int64_t unknown; /* of these, jobs of kernels of which no job is done */
  int64_t devices;
};
#define BASIS_SIZE 400
struct to_go {
  double seconds;         /* NaN: not known, or nothing is open */
  char basis[BASIS_SIZE]; /* for people */
};
/* The time until the hardware that needs longest has done its jobs. Jobs for hardware without
 * devices are left out, and `basis` says so. */
void to_go_estimate(const struct hardware_load *loads, size_t n, const struct fleet_rate *rate,
                    struct to_go *ret);
/* The seconds in which `devices` use up this device time at the rate's pace; NaN: not known. */
double to_go_seconds(double device_us, int64_t devices, const struct fleet_rate *rate);

#endif
