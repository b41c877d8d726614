/* A measurement of one config: a worker reports it, a supervisor spools and posts it, and the
 * server stores it, all with the table of fields below. docs/architecture.md lists what a new
 * member needs.
 *
 * Memory: a measurement that was read owns what its members point to (measurement_release); one
 * that is only written may borrow it. Threads: any, one at a time for each measurement. */
#ifndef WAVETUNE_COMMON_MEASUREMENT_MEASUREMENT_H
#define WAVETUNE_COMMON_MEASUREMENT_MEASUREMENT_H

#include "common/node/environment.h"
#include "common/record/record.h"
#include "common/regime/regime.h"
#include "common/verdict/verdict.h"

#define MEASUREMENT_SAMPLES_MAX 10000
#define MEASUREMENT_DETAIL_MAX 16384    /* bytes */
#define MEASUREMENT_NAME_MAX 64         /* bytes of a timer, a reason for the end */
#define MEASUREMENT_CONDITIONS_MAX 4096 /* bytes of their canonical JSON */
#define MEASUREMENT_COMPILE_MS_MAX INT64_C(1000000000000)
#define MEASUREMENT_DEVICE_US_MAX INT64_C(1000000000000000)
#define MEASUREMENT_REGISTERS_MAX 1000000
#define OPENING_US_MAX INT64_C(1000000000000000) /* device time to open a kernel, in an epoch */

/* Absent members are as in common/record/record.h. */
struct measurement {
  int64_t seq;            /* unique in a lease's epoch */
  int64_t config;         /* ordinal in the job's space */
  int64_t process, round; /* absent: the lease's */
  enum outcome outcome;
  char *detail;                           /* why it is not correct */
  char *timer;                            /* how it was timed */
  enum regime regime;                     /* absent: the job's */
  struct numbers samples_us, baseline_us; /* in pairs */
  double clock_mhz, temperature_c;        /* of the GPU, when its sampling ended */
  int64_t compile_ms, device_us; /* time of its compilation; device time of the measurement */
  int64_t vgprs, agprs, spills;  /* of its code */
  int64_t lds_bytes, occupancy;  /* of a workgroup; workgroups that a compute unit holds */
  char *end;                     /* why sampling ended (agent/measure/race.h) */
  json_t *conditions;            /* of the device and the machine (agent/device/device.h) */
  bool baseline_failed;          /* the config is the job's baseline, so nothing can be measured */
  struct digest object;          /* of the code that was timed, a blob; only if it is correct */
};

/* The fields that have a column of the table `measurements`, of a struct measurement at the offset
 * `base` in an object. All of them have `flags`. */
/* clang-format off */
#define MEASUREMENT_FIELD(base, type, member, ...) \
  {#member, FIELD_##type, (base) + offsetof(struct measurement, member), __VA_ARGS__}
#define MEASUREMENT_FIELDS(base, flags) \
  MEASUREMENT_FIELD(base, INTEGER, seq, (flags) | FIELD_REQUIRED, .least = 1, .most = INT64_MAX), \
  MEASUREMENT_FIELD(base, INTEGER, config, (flags) | FIELD_REQUIRED, .most = INT64_MAX - 1), \
  MEASUREMENT_FIELD(base, INTEGER, process, (flags) | FIELD_NOT_NULL, .most = INT32_MAX), \
  MEASUREMENT_FIELD(base, INTEGER, round, (flags) | FIELD_NOT_NULL, .most = INT32_MAX), \
  MEASUREMENT_FIELD(base, ENUM, outcome, (flags) | FIELD_REQUIRED, .names = outcome_names, \
                    .sql_type = "outcome"), \
  MEASUREMENT_FIELD(base, TEXT, detail, (flags), .most = MEASUREMENT_DETAIL_MAX), \
  MEASUREMENT_FIELD(base, TEXT, timer, (flags), .most = MEASUREMENT_NAME_MAX), \
  MEASUREMENT_FIELD(base, ENUM, regime, (flags), .names = regime_names, \
                    .schema = SCHEMA("Regime")), \
  MEASUREMENT_FIELD(base, NUMBERS, samples_us, (flags) | FIELD_NOT_NULL, \
                    .most = MEASUREMENT_SAMPLES_MAX, \
                    .least_number = VERDICT_US_MIN, .most_number = VERDICT_US_MAX), \
  MEASUREMENT_FIELD(base, NUMBERS, baseline_us, (flags) | FIELD_NOT_NULL, \
                    .most = MEASUREMENT_SAMPLES_MAX, \
                    .least_number = VERDICT_US_MIN, .most_number = VERDICT_US_MAX), \
  MEASUREMENT_FIELD(base, NUMBER, clock_mhz, (flags), .most_number = 1e6), \
  MEASUREMENT_FIELD(base, NUMBER, temperature_c, (flags), \
                    .least_number = -100, .most_number = 1e3), \
  MEASUREMENT_FIELD(base, INTEGER, compile_ms, (flags), .most = MEASUREMENT_COMPILE_MS_MAX), \
  MEASUREMENT_FIELD(base, INTEGER, device_us, (flags), .most = MEASUREMENT_DEVICE_US_MAX), \
  MEASUREMENT_FIELD(base, INTEGER, vgprs, (flags), .most = MEASUREMENT_REGISTERS_MAX), \
  MEASUREMENT_FIELD(base, INTEGER, agprs, (flags), .most = MEASUREMENT_REGISTERS_MAX), \
  MEASUREMENT_FIELD(base, INTEGER, spills, (flags), .most = INT32_MAX), \
  MEASUREMENT_FIELD(base, INTEGER, lds_bytes, (flags), .most = INT32_MAX), \
  MEASUREMENT_FIELD(base, INTEGER, occupancy, (flags), .most = INT32_MAX), \
  MEASUREMENT_FIELD(base, TEXT, end, (flags), .most = MEASUREMENT_NAME_MAX), \
  MEASUREMENT_FIELD(base, JSON, conditions, (flags), .most = MEASUREMENT_CONDITIONS_MAX, \
                    .schema = "{\"type\": \"object\"}")
/* clang-format on */

/* In the requests of agents. */
extern const struct record measurement_record;

void measurement_init(struct measurement *measurement); /* everything is absent */
void measurement_release(struct measurement *measurement);

/* Whether valid members are consistent: samples are paired, a correct measurement has some, … */
must_check bool measurement_agrees(const struct measurement *measurement, const char *pointer,
                                   struct error *error);
/* Reads a measurement strictly, and checks that its members agree. Members that JSON lacks stay as
 * they are. On failure release it. */
must_check bool measurement_read(const json_t *json, const char *pointer,
                                 struct measurement *measurement, struct error *error);

/* Makes integers and numbers outside of their limits absent. They come from code objects and
 * sensors, and a server would refuse the whole measurement. */
void measurement_trim(struct measurement *measurement);

/* Whether it left its race before the race was decided: its few rounds show that it cannot win, but
 * do not give its ratio. */
bool measurement_left_early(const struct measurement *measurement);

#endif
