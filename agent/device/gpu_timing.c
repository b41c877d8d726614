/* Samples on a GPU: intervals between events, enqueued one after the other and read once.
 *
 * An event is stamped when the device reaches it. A device that is faster than its host waits for
 * the host between the first event of an interval and the kernel, and that wait would be measured.
 * So the host must have enqueued a whole sample before the device reaches the sample's first event.
 * busy_until_ns is a lower bound of how long the device is busy. It is computed from the time of
 * enqueueing, the measured time of preparations, and a share of the module's fastest call. Where it
 * is less than the host needs for the next sample, the device gets a head start that suffices for
 * the rest of the batch too: copies to the host, which take time without changing the caches. A
 * batch of kernels that take longer than their launches needs one head start.
 *
 * An interval contains more than the calls: stamping takes time too. The interval of a sample
 * without calls is measured once for each kind of preparation and subtracted: T - t, as hipBLASLt
 * reports (ROCm/hipBLASLt #789). What is left is as fine as the stamps: NVIDIA states a resolution
 * of about 0.5 us for cuEventElapsedTime, AMD of about 1 us for hipEventElapsedTime; samples of
 * many calls divide that.
 *
 * Memory: see gpu.h. Threads: one thread to a device. */
#include "agent/device/gpu.h"

#include "agent/compile/helper_kernels.h"
#include "common/base/numbers.h"

#define EVENT_DEFAULT 0      /* of both runtimes */
#define EVENT_PAIRS_MAX 4096 /* enqueued at most: then the host waits for the device */
#define EVENT_PAIRS_STEP 64
/* How long a host takes to enqueue a call, a call with events of its own and a restoring copy, and
 * the events of a sample; and for a fill and a tensor map before a call; each with a margin for
 * slow hosts. */
#define CALL_HOST_US 4
#define FILL_HOST_US 4
#define TENSORMAP_HOST_US 1
#define RESTORED_CALL_HOST_US 12
#define EVENTS_HOST_US 4
#define RESERVE_US 15 /* how much longer than that the device is kept busy */
/* A longer one has no effect: after so many calls the host is ahead of the device, or never will
 * be. */
#define HEAD_START_US_MAX 400
#define HEAD_START_BYTES ((size_t)5 << 20) /* of one copy: 100 us over a PCIe 5 link */
#define HEAD_START_COPIES_MAX 16
#define HEAD_START_UNIT ((size_t)64 << 10)
#define LEAST_SHARE 0.8 /* of the fastest time that was measured: the next may be faster */
#define CALIBRATION_SAMPLES 21
#define CALIBRATION_PREPARATIONS 5
#define CALIBRATION_WARM_UP_NS 3000000 /* an idle GPU stamps slowly too */
#define EMPTY_SHARE_MAX 0.9            /* of an interval: more than that is not overhead */
#define FLUSH_WAVE 64

struct interval {
  struct device_timing *owner;
  double empty_us;
};

/* Adds `us` of work to the device. It may have begun when the first part was enqueued, at
 * given_ns. */
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

/* Copies run on another engine, and a kernel directly after one may wait for that engine's signal:
 * the fill, which is a kernel, waits instead. */
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

bool gpu_instruction_flush_set(struct device *base, const char *object, struct error *error) {
  struct gpu_device *device = (struct gpu_device *)base;
  return device->instruction_flush ||
         gpu_module_load(base, object, INSTRUCTION_FLUSH_ENTRY, &device->instruction_flush, error);
}

static int kind_of(const struct device_rotation *rotation) {
  return (rotation->displace ? PREPARE_DISPLACE : 0) |
         (rotation->flush_instructions ? PREPARE_FLUSH : 0);
}

static bool prepare(struct gpu_device *device, int kind, struct error *error) {
  int64_t given_ns = clock_monotonic_ns();
  if (kind & PREPARE_DISPLACE) {
    size_t bytes = device->base.displacement_bytes;
    if ((!device->displacement && !gpu_memory_new(device, bytes, &device->displacement, error)) ||
        !gpu_fill_words(device, device->displacement, ++device->displacement_value,
                        bytes / sizeof(uint32_t), error))
      return false;
  }

  if (kind & PREPARE_FLUSH) {
    if (!device->instruction_flush)
      return error_set(error, "the kernel that flushes instruction caches was not loaded");
    uint32_t groups = (uint32_t)device->base.compute_units * INSTRUCTION_FLUSH_GROUPS_PER_CU;
    struct device_launch launch = {device->instruction_flush,
                                   {.grid = {groups, 1, 1}, .block = {FLUSH_WAVE, 1, 1}},
                                   (void *[]){NULL}};
    if (!gpu_launch(&device->base, &launch, error))
      return false;
  }

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
  *ret_us = (double)ms * 1000;
  return gpu_check(device->api, code, error, "reading the time between two events");
}

/* Makes at least `needed` event pairs, or as many as there can be. */
static bool event_pairs_reserve(struct gpu_device *device, size_t needed, struct error *error) {
  const struct gpu_api *api = device->api;
  if (!device->events) {
    device->events = xcalloc(EVENT_PAIRS_MAX, sizeof *device->events);
    device->intervals = xcalloc(EVENT_PAIRS_MAX, sizeof *device->intervals);
  }

  needed = (needed + EVENT_PAIRS_STEP - 1) / EVENT_PAIRS_STEP * EVENT_PAIRS_STEP;
  needed = needed < EVENT_PAIRS_MAX ? needed : EVENT_PAIRS_MAX;

  for (; device->n_event_pairs < needed; device->n_event_pairs++) {
    void **pair = device->events[device->n_event_pairs];
    if (!gpu_check(api, api->event_new(&pair[0], EVENT_DEFAULT), error, "making an event"))
      return false;
    if (!gpu_check(api, api->event_new(&pair[1], EVENT_DEFAULT), error, "making an event")) {
      api->event_free(pair[0]);
      return false;
    }
  }

  return true;
}

/* Waits, and reads the first n intervals in rising order. */
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

/* Measures the preparations of a kind and the overhead of its samples, once. */
static bool kind_calibrate(struct gpu_device *device, int kind, struct error *error) {
  const struct gpu_api *api = device->api;
  double us[CALIBRATION_SAMPLES];

  if (device->kinds[kind].is_calibrated)
    return true;
  if ((!device->head_start &&
       !gpu_memory_new(device, HEAD_START_BYTES, &device->head_start, error)) ||
      (!device->head_start_host &&
       !gpu_check(api, api->host_memory_new(&device->head_start_host, HEAD_START_BYTES, 0), error,
                  "allocating memory that the GPU can copy to")) ||
      !event_pairs_reserve(device, CALIBRATION_SAMPLES, error))
    return false;

  int64_t end_ns = clock_monotonic_ns() + CALIBRATION_WARM_UP_NS;
  do {
    if (!gpu_fill_words(device, device->head_start, 0, HEAD_START_BYTES / sizeof(uint32_t),
                        error) ||
        !gpu_synchronize(&device->base, error))
      return false;
  } while (clock_monotonic_ns() < end_ns);

  /* The least time of a copy of a head start. */
  if (device->head_start_us == 0) {
    for (size_t i = 0; i < CALIBRATION_PREPARATIONS; i++)
      if (!head_start_copy(device, HEAD_START_BYTES, error) || !event_record(device, i, 0, error) ||
          !head_start_copy(device, HEAD_START_BYTES, error) || !event_record(device, i, 1, error))
        return false;
    if (!intervals_sort(device, CALIBRATION_PREPARATIONS, us, error))
      return false;
    device->head_start_us = us[0] > 1 ? LEAST_SHARE * us[0] : 1;
  }

  /* The least time of the preparations. */
  if (kind) {
    for (size_t i = 0; i < CALIBRATION_PREPARATIONS; i++)
      if (!head_start_give(device, RESERVE_US + EVENTS_HOST_US + CALL_HOST_US, error) ||
          !event_record(device, i, 0, error) || !prepare(device, kind, error) ||
          !event_record(device, i, 1, error))
        return false;
    if (!intervals_sort(device, CALIBRATION_PREPARATIONS, us, error))
      return false;
    device->kinds[kind].preparation_us = LEAST_SHARE * us[0];
  }

  /* The median interval without calls. */
  for (size_t i = 0; i < CALIBRATION_SAMPLES; i++)
    if (!head_start_give(device, RESERVE_US + EVENTS_HOST_US, error) ||
        !prepare(device, kind, error) || !event_record(device, i, 0, error) ||
        !event_record(device, i, 1, error))
      return false;
  if (!intervals_sort(device, CALIBRATION_SAMPLES, us, error))
    return false;
  device->kinds[kind].empty_us = us[CALIBRATION_SAMPLES / 2];
  device->kinds[kind].is_calibrated = true;
  return true;
}

/* Waits, and adds the first n intervals to the timings that they belong to. */
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

static double host_us_of(const struct device_timing *timing, unsigned calls) {
  double before_us = (double)timing->launch.n_fills * FILL_HOST_US +
                     (double)timing->launch.n_tensormaps * TENSORMAP_HOST_US;
  return rotation_restores(timing->rotation)
             ? (double)calls * (before_us + RESTORED_CALL_HOST_US)
             : EVENTS_HOST_US + (double)calls * (before_us + CALL_HOST_US);
}

/* The head start with which the host can enqueue all of n samples, of the first `calls` calls,
 * before the device reaches them. */
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

/* One interval: `calls` calls between the events of a pair. */
static bool interval_enqueue(struct gpu_device *device, size_t pair, struct device_timing *timing,
                             unsigned calls, struct error *error) {
  int64_t given_ns = clock_monotonic_ns();
  device->intervals[pair] =
      (struct interval){timing, device->kinds[kind_of(timing->rotation)].empty_us};
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

/* Enqueues all work of the first of n samples: one interval around its calls, or one around each
 * where calls are restored between them. *in_flight counts the intervals. */
static bool sample_enqueue(struct gpu_device *device, struct device_timing *timings, size_t n,
                           size_t *in_flight, struct error *error) {
  struct device_timing *timing = &timings[0];
  const struct device_rotation *rotation = timing->rotation;
  bool restores = rotation_restores(rotation);
  unsigned calls = restores ? 1 : timing->calls;
  int kind = kind_of(rotation);

  for (unsigned done = 0; done < timing->calls; done += calls) {
    if (*in_flight == EVENT_PAIRS_MAX) {
      if (!intervals_collect(device, *in_flight, error))
        return false;
      *in_flight = 0;
    }
    /* Before the clock is read: making events takes as long as enqueueing some samples. */
    if (!event_pairs_reserve(device, *in_flight + 1, error))
      return false;

    double host_us = RESERVE_US + host_us_of(timing, calls) -
                     (done == 0 ? device->kinds[kind].preparation_us : 0);
    double lead_us = (double)(device->busy_until_ns - clock_monotonic_ns()) / 1000;
    bool is_behind = lead_us < (host_us < HEAD_START_US_MAX ? host_us : HEAD_START_US_MAX);
    if ((is_behind && host_us > 0 &&
         !head_start_give(device, lead_wanted(device, timings, n, timing->calls - done), error)) ||
        (done == 0 && !prepare(device, kind, error)) ||
        !interval_enqueue(device, (*in_flight)++, timing, calls, error))
      return false;

    /* Restored after the call: by the copy's next turn it has left the caches. */
    for (size_t i = 0; restores && i < rotation->n_operands; i++) {
      const struct device_operand *operand = &rotation->operands[i];
      if (operand->pristine && !gpu_copy(&device->base, (char *)*operand->pointer - operand->offset,
                                         operand->pristine, operand->size, error))
        return false;
    }
  }

  return true;
}

bool gpu_time(struct device *base, struct device_timing *timings, size_t n, struct error *error) {
  struct gpu_device *device = (struct gpu_device *)base;
  size_t in_flight = 0;

  array_foreach (timing, timings, n)
    if (!kind_calibrate(device, kind_of(timing->rotation), error))
      return false;

  for (size_t t = 0; t < n; t++) {
    timings[t].us = 0;
    if (!sample_enqueue(device, &timings[t], n - t, &in_flight, error))
      return false;
  }

  if (!intervals_collect(device, in_flight, error))
    return false;

  array_foreach (timing, timings, n) {
    struct device_module *module = timing->launch.module;
    /* The interval of events that are closer than their resolution may be 0, which is no duration.
     */
    timing->us = (timing->us > 0 ? timing->us : 0.001) / timing->calls;
    if (module->least_us == 0 || timing->us < module->least_us)
      module->least_us = timing->us;
    device->overhead_us = device->kinds[kind_of(timing->rotation)].empty_us;
  }
  return true;
}

void gpu_timing_release(struct gpu_device *device) {
  const struct gpu_api *api = device->api;
  array_foreach (pair, device->events, device->n_event_pairs) {
    api->event_free((*pair)[0]);
    api->event_free((*pair)[1]);
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
