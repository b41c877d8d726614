/* Samples on a GPU: intervals between events, given to the stream one after the other and read
 * once.
 *
 * An event is stamped when the device gets to it. A device that is faster than its host waits for
 * it between the first event of an interval and the kernel, and would have that wait measured too.
 * So the host must have given a sample completely before the device gets to its first event: it
 * stays ahead. What the device surely still has to do is accounted for (busy_until_ns: a lower
 * bound, from the time of the giving, what preparations were measured to last, and most of what the
 * same module's fastest call took). Where that is less than the host needs for the next sample, the
 * device is given a head start that will do for the rest of the batch too: copies to the host,
 * which take their time without putting other data into the caches. A batch of kernels that last
 * longer than their launches needs one.
 *
 * An interval holds more than the calls: stamping takes time too. What an interval without calls
 * lasts after the same preparations is measured once for each kind of preparation and taken off: T
 * - t, as hipBLASLt reports (ROCm/hipBLASLt #789). What is left is as fine as the stamps: NVIDIA
 * states a resolution of about 0.5 us for cuEventElapsedTime, AMD of about 1 us for
 * hipEventElapsedTime; samples of many calls divide that.
 *
 * Memory: see gpu_device.h. Threads: one thread to a device. */
#include "agent/device/gpu_device.h"

#include "agent/compile/helper_kernels.h"
#include "common/base/numbers.h"

#define EVENT_PAIRS_MAX 4096 /* in flight at most: then the device is waited for */
#define EVENT_PAIRS_STEP 64
/* How long a host takes to give the device a call, one with events of its own and a restoring copy,
 * and the events of a sample; each with room for slow hosts. */
#define CALL_HOST_US 4
#define RESTORED_CALL_HOST_US 12
#define EVENTS_HOST_US 4
#define RESERVE_US 15 /* that the device is kept ahead beyond that */
/* over more calls than that the device falls behind by itself, or never will */
#define HEAD_START_US_MAX 400
#define HEAD_START_BYTES ((size_t)5 << 20) /* of one copy: 100 us over a PCIe 5 link */
#define HEAD_START_COPIES_MAX 16
#define HEAD_START_UNIT ((size_t)64 << 10)
#define LEAST_SHARE 0.8 /* of the fastest that was measured: the next may be faster */
#define CALIBRATION_SAMPLES 21
#define CALIBRATION_PREPARATIONS 5
#define CALIBRATION_WARM_UP_NS 3000000 /* an idle GPU stamps slowly too */
#define EMPTY_SHARE_MAX 0.9            /* of an interval: more than that is not overhead */
#define FLUSH_WAVE 64

struct interval {
  struct device_timing *owner;
  double empty_us;
};

/* How long the device surely is busy still. */
static double lead_us(const struct gpu_device *device) {
  return (double)(device->busy_until_ns - clock_monotonic_ns()) / 1000;
}

/* The device has at least `us` more to do than it had. It may have begun as soon as the first of
 * that was given. */
static void busy_add(struct gpu_device *device, int64_t given_ns, double us) {
  if (device->busy_until_ns < given_ns)
    device->busy_until_ns = given_ns;
  device->busy_until_ns += (int64_t)(us * 1000);
}

static bool head_start_copy(struct gpu_device *device, size_t bytes, struct error *error) {
  const struct gpu_api *api = device->api;
  int code = api->download(device->head_start_host, device->head_start, bytes, device->stream);
  return gpu_check(api, code, error, "copying from the GPU");
}

/* A copy is another engine's work, and what comes directly after it may wait for that engine to say
 * so: the fill brings the stream back to where kernels run. */
static bool head_start_give(struct gpu_device *device, double us, struct error *error) {
  double bytes_per_us = (double)HEAD_START_BYTES / device->head_start_us;
  size_t left = ((size_t)(us * bytes_per_us) / HEAD_START_UNIT + 1) * HEAD_START_UNIT;
  int64_t given_ns = clock_monotonic_ns();
  for (size_t i = 0, bytes; left && i < HEAD_START_COPIES_MAX; i++, left -= bytes) {
    bytes = left < HEAD_START_BYTES ? left : HEAD_START_BYTES;
    if (!head_start_copy(device, bytes, error))
      return false;
  }
  busy_add(device, given_ns, us);
  return gpu_fill_words(device, device->head_start, 0, 1, error);
}

bool gpu_displace(struct device *base, struct error *error) {
  struct gpu_device *device = (struct gpu_device *)base;
  if (!device->displacement &&
      !gpu_memory_new(device, base->displacement_bytes, &device->displacement, error))
    return false;
  return gpu_fill_words(device, device->displacement, ++device->displacement_value,
                        base->displacement_bytes / sizeof(uint32_t), error);
}

bool gpu_instruction_flush_set(struct device *base, const char *object, struct error *error) {
  struct gpu_device *device = (struct gpu_device *)base;
  return device->instruction_flush ||
         gpu_module_load(base, object, INSTRUCTION_FLUSH_ENTRY, &device->instruction_flush, error);
}

static bool instructions_flush(struct gpu_device *device, struct error *error) {
  if (!device->instruction_flush)
    return error_set(
        error,
        "instruction caches are to be flushed, and the device was not given the kernel that does");
  uint32_t groups = (uint32_t)device->base.compute_units * INSTRUCTION_FLUSH_GROUPS_PER_CU;
  void *no_arguments[] = {NULL};
  struct device_launch launch = {device->instruction_flush,
                                 {.grid = {groups, 1, 1}, .block = {FLUSH_WAVE, 1, 1}},
                                 no_arguments};
  return gpu_launch(&device->base, &launch, error);
}

static int kind_of(const struct device_rotation *rotation) {
  return (rotation->displace ? PREPARE_DISPLACE : 0) |
         (rotation->flush_instructions ? PREPARE_FLUSH : 0);
}

static bool prepare(struct gpu_device *device, int kind, struct error *error) {
  int64_t given_ns = clock_monotonic_ns();
  if (((kind & PREPARE_DISPLACE) && !gpu_displace(&device->base, error)) ||
      ((kind & PREPARE_FLUSH) && !instructions_flush(device, error)))
    return false;
  busy_add(device, given_ns, device->kinds[kind].preparation_us);
  return true;
}

static bool event_record(struct gpu_device *device, size_t pair, int end, struct error *error) {
  int code = device->api->event_record(device->events[pair][end], device->stream);
  return gpu_check(device->api, code, error, "recording an event");
}

static bool event_elapsed(struct gpu_device *device, size_t pair, double *ret_us,
                          struct error *error) {
  float ms = 0;
  int code = device->api->event_elapsed(&ms, device->events[pair][0], device->events[pair][1]);
  if (!gpu_check(device->api, code, error, "reading the time between two events"))
    return false;
  *ret_us = (double)ms * 1000;
  return true;
}

static bool event_pair_new(struct gpu_device *device, struct error *error) {
  const struct gpu_api *api = device->api;
  void **pair = device->events[device->n_event_pairs];
  if (!gpu_check(api, api->event_new(&pair[0]), error, "making an event"))
    return false;
  if (!gpu_check(api, api->event_new(&pair[1]), error, "making an event")) {
    api->event_free(pair[0]);
    return false;
  }
  device->n_event_pairs++;
  return true;
}

/* Event pairs up to number `needed`, or as many as there can be. */
static bool event_pairs_reserve(struct gpu_device *device, size_t needed, struct error *error) {
  if (!device->events) {
    device->events = xcalloc(EVENT_PAIRS_MAX, sizeof *device->events);
    device->intervals = xcalloc(EVENT_PAIRS_MAX, sizeof *device->intervals);
  }
  needed = (needed + EVENT_PAIRS_STEP - 1) / EVENT_PAIRS_STEP * EVENT_PAIRS_STEP;
  needed = needed < EVENT_PAIRS_MAX ? needed : EVENT_PAIRS_MAX;
  while (device->n_event_pairs < needed)
    if (!event_pair_new(device, error))
      return false;
  return true;
}

static bool head_start_new(struct gpu_device *device, struct error *error) {
  const struct gpu_api *api = device->api;
  return (device->head_start ||
          gpu_memory_new(device, HEAD_START_BYTES, &device->head_start, error)) &&
         (device->head_start_host ||
          gpu_check(api, api->host_memory_new(&device->head_start_host, HEAD_START_BYTES), error,
                    "allocating memory that the GPU can copy to"));
}

/* Reads the first n intervals, sorted. */
static bool intervals_sort(struct gpu_device *device, size_t n, double *ret_us,
                           struct error *error) {
  if (!gpu_synchronize(&device->base, error))
    return false;
  for (size_t i = 0; i < n; i++)
    if (!event_elapsed(device, i, &ret_us[i], error))
      return false;
  qsort(ret_us, n, sizeof *ret_us, compare_doubles);
  return true;
}

/* The least time that a full copy of a head start takes. */
static bool head_start_measure(struct gpu_device *device, double *ret_us, struct error *error) {
  double us[CALIBRATION_PREPARATIONS];
  for (size_t i = 0; i < ARRAY_LENGTH(us); i++)
    if (!head_start_copy(device, HEAD_START_BYTES, error) || !event_record(device, i, 0, error) ||
        !head_start_copy(device, HEAD_START_BYTES, error) || !event_record(device, i, 1, error))
      return false;
  if (!intervals_sort(device, ARRAY_LENGTH(us), us, error))
    return false;
  *ret_us = us[0] > 1 ? LEAST_SHARE * us[0] : 1;
  return true;
}

/* The least time that the preparations of a kind take. */
static bool preparation_measure(struct gpu_device *device, int kind, double *ret_us,
                                struct error *error) {
  double us[CALIBRATION_PREPARATIONS];
  for (size_t i = 0; i < ARRAY_LENGTH(us); i++)
    if (!head_start_give(device, RESERVE_US + EVENTS_HOST_US + CALL_HOST_US, error) ||
        !event_record(device, i, 0, error) || !prepare(device, kind, error) ||
        !event_record(device, i, 1, error))
      return false;
  if (!intervals_sort(device, ARRAY_LENGTH(us), us, error))
    return false;
  *ret_us = LEAST_SHARE * us[0];
  return true;
}

static bool empty_measure(struct gpu_device *device, int kind, double *ret_us,
                          struct error *error) {
  double us[CALIBRATION_SAMPLES];
  for (size_t i = 0; i < ARRAY_LENGTH(us); i++)
    if (!head_start_give(device, RESERVE_US + EVENTS_HOST_US, error) ||
        !prepare(device, kind, error) || !event_record(device, i, 0, error) ||
        !event_record(device, i, 1, error))
      return false;
  if (!intervals_sort(device, ARRAY_LENGTH(us), us, error))
    return false;
  *ret_us = us[ARRAY_LENGTH(us) / 2];
  return true;
}

static bool calibration_warm_up(struct gpu_device *device, struct error *error) {
  int64_t end = clock_monotonic_ns() + CALIBRATION_WARM_UP_NS;
  do {
    if (!gpu_fill_words(device, device->head_start, 0, HEAD_START_BYTES / sizeof(uint32_t),
                        error) ||
        !gpu_synchronize(&device->base, error))
      return false;
  } while (clock_monotonic_ns() < end);
  return true;
}

/* Learns what samples with these preparations need and cost, once for each kind. */
static bool kind_calibrate(struct gpu_device *device, int kind, struct error *error) {
  double empty_us, preparation_us = 0;
  if (device->kinds[kind].is_calibrated)
    return true;
  if (!head_start_new(device, error) || !event_pairs_reserve(device, CALIBRATION_SAMPLES, error) ||
      !calibration_warm_up(device, error))
    return false;
  if (device->head_start_us == 0 && !head_start_measure(device, &device->head_start_us, error))
    return false;
  if (kind && !preparation_measure(device, kind, &preparation_us, error))
    return false;
  device->kinds[kind].preparation_us = preparation_us;
  if (!empty_measure(device, kind, &empty_us, error))
    return false;
  device->kinds[kind].empty_us = empty_us;
  device->kinds[kind].is_calibrated = true;
  return true;
}

/* Adds up the first n intervals in the timings that they belong to. */
static bool intervals_collect(struct gpu_device *device, size_t n, struct error *error) {
  if (!gpu_synchronize(&device->base, error))
    return false;
  for (size_t i = 0; i < n; i++) {
    const struct interval *interval = &device->intervals[i];
    double us;
    if (!event_elapsed(device, i, &us, error))
      return false;
    double overhead_us =
        interval->empty_us < EMPTY_SHARE_MAX * us ? interval->empty_us : EMPTY_SHARE_MAX * us;
    interval->owner->us += us - overhead_us;
  }
  return true;
}

/* Restores what the call changed, after the call: by the copy's next turn it has left the
 * caches. */
static bool rotation_restore(struct device *device, const struct device_rotation *rotation,
                             struct error *error) {
  for (size_t i = 0; i < rotation->n_operands; i++) {
    const struct device_operand *operand = &rotation->operands[i];
    if (operand->pristine &&
        !gpu_copy(device, *operand->pointer, operand->pristine, operand->size, error))
      return false;
  }
  return true;
}

/* Gives `calls` calls between the events of a pair to the stream. */
static bool interval_enqueue(struct gpu_device *device, size_t pair, struct device_timing *timing,
                             unsigned calls, struct error *error) {
  struct interval *interval = &device->intervals[pair];
  *interval = (struct interval){timing, device->kinds[kind_of(timing->rotation)].empty_us};
  int64_t given_ns = clock_monotonic_ns();
  if (!event_record(device, pair, 0, error))
    return false;
  for (unsigned k = 0; k < calls; k++) {
    rotation_step(timing->rotation);
    if (!gpu_launch(&device->base, &timing->launch, error))
      return false;
  }
  busy_add(device, given_ns, LEAST_SHARE * timing->launch.module->least_us * calls);
  return event_record(device, pair, 1, error);
}

static double host_us_of(const struct device_timing *timing, unsigned calls) {
  return rotation_restores(timing->rotation) ? (double)calls * RESTORED_CALL_HOST_US
                                             : EVENTS_HOST_US + (double)calls * CALL_HOST_US;
}

/* How far ahead the device has to be kept for the host to give it all of n samples, of the first
 * `calls` calls, without the device ever catching up. */
static double lead_wanted(const struct gpu_device *device, const struct device_timing *timings,
                          size_t n, unsigned calls) {
  double behind_us = 0, wanted_us = 0;
  for (size_t t = 0; t < n && wanted_us < HEAD_START_US_MAX;
       t++, calls = t < n ? timings[t].calls : 0) {
    behind_us +=
        host_us_of(&timings[t], calls) - device->kinds[kind_of(timings[t].rotation)].preparation_us;
    wanted_us = behind_us > wanted_us ? behind_us : wanted_us;
    behind_us -= LEAST_SHARE * timings[t].launch.module->least_us * calls;
  }
  return RESERVE_US + (wanted_us < HEAD_START_US_MAX ? wanted_us : HEAD_START_US_MAX);
}

/* Gives all work of the first of n samples to the stream: one interval around its calls, or one
 * around each where calls are restored between them. *in_flight counts the intervals. */
static bool sample_enqueue(struct gpu_device *device, struct device_timing *timings, size_t n,
                           size_t *in_flight, struct error *error) {
  struct device_timing *timing = &timings[0];
  bool restores = rotation_restores(timing->rotation);
  unsigned calls = restores ? 1 : timing->calls;
  int kind = kind_of(timing->rotation);
  for (unsigned done = 0; done < timing->calls; done += calls) {
    double prepared_us = done == 0 ? device->kinds[kind].preparation_us : 0;
    double host_us = RESERVE_US + host_us_of(timing, calls) - prepared_us;
    if (*in_flight == EVENT_PAIRS_MAX) {
      if (!intervals_collect(device, *in_flight, error))
        return false;
      *in_flight = 0;
    }
    /* First: making events takes a host as long as giving some samples. */
    if (!event_pairs_reserve(device, *in_flight + 1, error))
      return false;
    bool is_behind = lead_us(device) < (host_us < HEAD_START_US_MAX ? host_us : HEAD_START_US_MAX);
    if ((is_behind && host_us > 0 &&
         !head_start_give(device, lead_wanted(device, timings, n, timing->calls - done), error)) ||
        (done == 0 && !prepare(device, kind, error)) ||
        !interval_enqueue(device, (*in_flight)++, timing, calls, error) ||
        (restores && !rotation_restore(&device->base, timing->rotation, error)))
      return false;
  }
  return true;
}

bool gpu_time(struct device *base, struct device_timing *timings, size_t n, struct error *error) {
  struct gpu_device *device = (struct gpu_device *)base;
  size_t in_flight = 0;
  for (size_t t = 0; t < n; t++)
    if (!kind_calibrate(device, kind_of(timings[t].rotation), error))
      return false;
  for (size_t t = 0; t < n; t++) {
    timings[t].us = 0;
    if (!sample_enqueue(device, &timings[t], n - t, &in_flight, error))
      return false;
  }
  if (!intervals_collect(device, in_flight, error))
    return false;
  for (size_t t = 0; t < n; t++) {
    struct device_timing *timing = &timings[t];
    struct device_module *module = timing->launch.module;
    /* Events that lie closer together than they can tell still are a duration above zero. */
    timing->us = (timing->us > 0 ? timing->us : 0.001) / timing->calls;
    if (module->least_us == 0 || timing->us < module->least_us)
      module->least_us = timing->us;
    device->overhead_us = device->kinds[kind_of(timing->rotation)].empty_us;
  }
  return true;
}

void gpu_timing_release(struct gpu_device *device) {
  const struct gpu_api *api = device->api;
  for (size_t i = 0; i < device->n_event_pairs; i++) {
    api->event_free(device->events[i][0]);
    api->event_free(device->events[i][1]);
  }
  free(device->events);
  free(device->intervals);
  if (device->displacement)
    api->memory_free(device->displacement);
  if (device->head_start)
    api->memory_free(device->head_start);
  if (device->head_start_host)
    api->host_memory_free(device->head_start_host);
  if (device->instruction_flush)
    gpu_module_unload(&device->base, device->instruction_flush);
}
