/* A HIP runtime without a GPU, for tests of what the agent does around one: leases, builds,
 * sentinels, faults. The device's memory is the process's, a launch is a call here. Kernels are
 * known by name, what code the module holds is not looked at: fake_add(float *y, const float *x,
 * int64_t n), y = x + 1, the width of whose block says how it goes wrong (enum behaviour),
 * add_one of examples/add_one.py, the same with an int32_t n, which goes right and takes a
 * thousandth longer for each workgroup, the fingerprint of agent/compile/helper_kernels.h, wrong
 * where $FAKE_HIP_FORGETS is set, and the instruction flush, which does nothing. Fills and copies
 * of BULK_BYTES do nothing either: they are there to displace caches, which this has not.
 * fake_hip.h says what tests may ask of it. While the file that $FAKE_HIP_BROKEN names is there,
 * the GPU fills memory with nothing. Where $FAKE_HIP_WAITS is set, who waits for the stream waits
 * as long as the device would be busy, and each of grid_y adds a tenth of a percent to a launch:
 * GPUs that take time and no core, for bench/gpus.py.
 *
 * Memory: handles are the caller's until they are given back. Threads: one. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "agent/device/fingerprint.h"
#include "tests/fake_hip/fake_hip.h"
#include "tests/hip_shim/hip_shim.h"

#define ALIGNMENT 4096
#define BULK_BYTES ((size_t)5 << 20)
#define GPUS_MAX 10
#define LOG_MAX (64 << 10)
#define MEMORY_BYTES ((size_t)1 << 30)
#define ILLEGAL_ADDRESS 700
#define LAUNCH_FAILURE 719
#define OUT_OF_MEMORY 2

enum behaviour {
  GOOD = 64,
  WRONG = 128,
  FAULT = 192, /* every later call of the process fails, as with CUDA */
  HANG = 256,
  BEYOND_END = 320,
  ABORT = 384, /* as ROCm ends a process whose kernel faulted */
  BREAK = 448, /* a fault after which no process can use the GPU */
  RESET = 576, /* the GPU is reset after its code was unloaded: a fault that is none of the next
                  kernel's */
  CHANGE_INPUT = 640,
  REFUSE = 704, /* the second fingerprint after it is refused, once */
};

static int fault;         /* of this process; 0: none */
static bool is_in_flight; /* a launch that nobody has waited for since */
static bool is_reset_due;
static int refused_in; /* the so manieth fingerprint from now on; 0: none */

static char calls[LOG_MAX + 1];
static size_t n_calls;
static double clock_us;           /* of events, where $FAKE_HIP_LAUNCH_US is set */
static struct timespec idle_from; /* where $FAKE_HIP_WAITS is set */
static const char *const functions[] = {"fake_add", "wavetune_instruction_flush",
                                        "wavetune_fingerprint", "add_one"};
enum { FAKE_ADD, INSTRUCTION_FLUSH, FINGERPRINT, ADD_ONE }; /* handles are addresses in it */

static bool is_before(struct timespec a, struct timespec b) {
  return a.tv_sec < b.tv_sec || (a.tv_sec == b.tv_sec && a.tv_nsec < b.tv_nsec);
}

static void busy_add(double us) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  if (is_before(idle_from, now))
    idle_from = now;
  idle_from.tv_nsec += (long)(us * 1000);
  idle_from.tv_sec += idle_from.tv_nsec / 1000000000;
  idle_from.tv_nsec %= 1000000000;
}

static void call_note(char letter, double us) {
  const char *slow = getenv("FAKE_HIP_SLOW");
  if (slow && strchr(slow, letter))
    usleep(2000);
  clock_us += us;
  if (us > 0 && getenv("FAKE_HIP_WAITS"))
    busy_add(us);
  if (n_calls < LOG_MAX)
    calls[n_calls++] = letter;
}

const char *fake_hip_log(void) {
  calls[n_calls] = '\0';
  return calls;
}

void fake_hip_log_clear(void) { n_calls = 0; }

int hipInit(unsigned flags) {
  (void)flags;
  return 0;
}

int hipRuntimeGetVersion(int *version) {
  *version = 60443484;
  return 0;
}

const char *hipGetErrorName(int code) {
  return code == ILLEGAL_ADDRESS ? "hipErrorIllegalAddress" : "hipError";
}
const char *hipGetErrorString(int code) {
  return code == ILLEGAL_ADDRESS ? "an illegal memory access was encountered"
                                 : "unspecified launch failure";
}

/* $FAKE_HIP_COUNT GPUs are there; all but the first $FAKE_HIP_USABLE (1) cannot be looked at. Shown
 * are those that are in $HIP_VISIBLE_DEVICES, in its order, as numbers or as ids ("GPU-2"); it ends
 * with an item that is neither. What is named twice is shown once. With $FAKE_HIP_DEAF all are. */
static int gpus_show(int *ret_shown) {
  const char *counted = getenv("FAKE_HIP_COUNT"), *list = getenv("HIP_VISIBLE_DEVICES");
  int n = counted ? atoi(counted) : 1, n_shown = 0;
  n = n < GPUS_MAX ? n : GPUS_MAX;
  bool is_shown[GPUS_MAX] = {false}, has_list = list && *list && !getenv("FAKE_HIP_DEAF");
  for (int i = 0; !has_list && i < n; i++)
    ret_shown[n_shown++] = i;
  while (has_list && *list) {
    size_t length = strcspn(list, ",");
    const char *digits = strncmp(list, "GPU-", 4) == 0 ? list + 4 : list;
    int gpu = length == (size_t)(digits - list) + 1 && *digits >= '0' ? *digits - '0' : n;
    if (gpu >= n)
      break;
    if (!is_shown[gpu])
      ret_shown[n_shown++] = gpu;
    is_shown[gpu] = true;
    list += length + (list[length] == ',');
  }
  return n_shown;
}

/* Which GPU of all is meant; -1: none. */
static int gpu_of(int device) {
  int shown[GPUS_MAX], n = gpus_show(shown);
  return device >= 0 && device < n ? shown[device] : -1;
}

static bool is_usable(int device) {
  const char *usable = getenv("FAKE_HIP_USABLE");
  int gpu = gpu_of(device);
  return gpu >= 0 && gpu < (usable ? atoi(usable) : 1);
}

int hipGetDeviceCount(int *count) {
  int shown[GPUS_MAX];
  *count = gpus_show(shown);
  return 0;
}

int hipDeviceGet(int *device, int ordinal) {
  *device = ordinal;
  return is_usable(ordinal) ? 0 : hipErrorInvalidDevice;
}

int hipDeviceGetName(char *name, int size, int device) {
  (void)device;
  snprintf(name, (size_t)size, "A fake GPU");
  return 0;
}

int hipDeviceTotalMem(size_t *bytes, int device) {
  (void)device;
  *bytes = MEMORY_BYTES;
  return 0;
}

int hipDeviceGetAttribute(int *value, int attribute, int device) {
  static const struct {
    int attribute, value;
  } known[] = {{63, 304}, {87, 64}, {56, 1024}, {74, 65536}, {19, 4 << 20}, {5, 2100000}};
  (void)device;
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    if (known[i].attribute == attribute) {
      *value = known[i].value;
      return 0;
    }
  }
  return hipErrorInvalidValue;
}

int hipDeviceGetPCIBusId(char *id, int size, int device) {
  snprintf(id, (size_t)size, "ffff:ff:1f.%d", gpu_of(device));
  return 0;
}

/* Appends which GPU it is, and how many are shown, to the file $FAKE_HIP_TAKEN. */
int hipSetDevice(int device) {
  const char *path = getenv("FAKE_HIP_TAKEN");
  int shown[GPUS_MAX];
  FILE *file = path ? fopen(path, "a") : NULL;
  if (file) {
    fprintf(file, "%d of %d\n", gpu_of(device), gpus_show(shown));
    fclose(file);
  }
  return is_usable(device) ? fault : hipErrorInvalidDevice;
}

int hipMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
  *free_bytes = *total_bytes = MEMORY_BYTES;
  return fault;
}

int hipMalloc(void **address, size_t size) {
  return fault ? fault : posix_memalign(address, ALIGNMENT, size) ? hipErrorInvalidValue : 0;
}

int hipFree(void *address) {
  free(address);
  return fault;
}

int hipHostMalloc(void **address, size_t size, unsigned flags) {
  (void)flags;
  return hipMalloc(address, size);
}

int hipHostFree(void *address) { return hipFree(address); }

static int copy(char letter, void *to, const void *from, size_t size) {
  call_note(letter, (double)size / FAKE_HIP_BYTES_PER_US);
  if (!fault && size < BULK_BYTES)
    memcpy(to, from, size);
  return fault;
}

int hipMemcpyHtoDAsync(void *to, const void *from, size_t size, void *stream) {
  (void)stream;
  return copy('U', to, from, size);
}

int hipMemcpyDtoHAsync(void *to, void *from, size_t size, void *stream) {
  (void)stream;
  return copy('H', to, from, size);
}

int hipMemcpyDtoDAsync(void *to, void *from, size_t size, void *stream) {
  (void)stream;
  return copy('C', to, from, size);
}

static bool is_broken(void) {
  const char *path = getenv("FAKE_HIP_BROKEN");
  return path && access(path, F_OK) == 0;
}

int hipMemsetD8Async(void *to, unsigned char value, size_t count, void *stream) {
  (void)stream;
  if (!fault && !is_broken())
    memset(to, value, count);
  return fault;
}

int hipMemsetD32Async(void *to, int value, size_t count, void *stream) {
  (void)stream;
  call_note(4 * count >= 1 << 20 ? 'D' : 'w', (double)count * 4 / FAKE_HIP_BYTES_PER_US);
  if (fault || is_broken() || count == 0 || 4 * count >= BULK_BYTES)
    return fault;
  memcpy(to, &value, 4);
  for (size_t done = 4, bytes; done < 4 * count; done += bytes) {
    bytes = done < 4 * count - done ? done : 4 * count - done;
    memcpy((char *)to + done, to, bytes);
  }
  return fault;
}

int hipStreamCreateWithFlags(void **stream, unsigned flags) {
  (void)flags;
  *stream = &fault;
  return fault;
}

/* After a fault this may never end, where $FAKE_HIP_STUCK is set. */
int hipStreamDestroy(void *stream) {
  (void)stream;
  while (fault && getenv("FAKE_HIP_STUCK"))
    sleep(1);
  return fault;
}

int hipStreamSynchronize(void *stream) {
  (void)stream;
  call_note('W', 0);
  if (idle_from.tv_sec)
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &idle_from, NULL);
  is_in_flight = false;
  return fault;
}

int hipEventCreateWithFlags(void **event, unsigned flags) {
  (void)flags;
  call_note('N', 0);
  *event = calloc(1, sizeof(struct timespec));
  return fault;
}

int hipEventDestroy(void *event) {
  free(event);
  return fault;
}

int hipEventRecord(void *event, void *stream) {
  struct timespec *stamp = event;
  (void)stream;
  clock_gettime(CLOCK_MONOTONIC, stamp);
  if (getenv("FAKE_HIP_LAUNCH_US"))
    *stamp = (struct timespec){(time_t)(clock_us / 1e6),
                               (long)((clock_us - 1e6 * (double)(time_t)(clock_us / 1e6)) * 1e3)};
  call_note('E', FAKE_HIP_EVENT_US);
  return fault;
}

int hipEventElapsedTime(float *ms, void *start, void *end) {
  const struct timespec *from = start, *to = end;
  *ms = (float)(to->tv_sec - from->tv_sec) * 1e3f + (float)(to->tv_nsec - from->tv_nsec) * 1e-6f;
  return fault;
}

int hipModuleLoadData(void **module, const void *image) {
  *module = &fault;
  return fault ? fault : memcmp(image, "\177ELF", 4) == 0 ? 0 : hipErrorInvalidValue;
}

/* Code that is taken away while it runs is no error of the runtime's, but a fault of the GPU's. */
int hipModuleUnload(void *module) {
  (void)module;
  if (is_in_flight)
    fault = ILLEGAL_ADDRESS;
  else if (is_reset_due)
    fault = LAUNCH_FAILURE;
  return fault;
}

int hipModuleGetFunction(void **function, void *module, const char *name) {
  (void)module;
  for (size_t i = 0; i < sizeof functions / sizeof *functions && !fault; i++) {
    *function = (void *)&functions[i];
    if (strcmp(name, functions[i]) == 0)
      return 0;
  }
  return fault ? fault : hipErrorSharedObjectSymbolNotFound;
}

static void break_device(void) {
  const char *path = getenv("FAKE_HIP_BROKEN");
  FILE *file = path ? fopen(path, "w") : NULL;
  if (file)
    fclose(file);
}

static int fake_add(float *y, float *x, int64_t n, unsigned block) {
  for (int64_t i = 0; i < n; i++)
    y[i] = x[i] + (block == WRONG ? 2 : 1);
  switch (block) {
  case RESET:
    is_reset_due = true;
    break;
  case BREAK:
    break_device();
    fault = LAUNCH_FAILURE;
    break;
  case FAULT:
    fault = ILLEGAL_ADDRESS;
    break;
  case HANG:
    for (;;)
      sleep(1);
  case BEYOND_END:
    y[n] = 1;
    break;
  case CHANGE_INPUT:
    x[n - 1] = 7;
    break;
  case REFUSE:
    refused_in = 2;
    break;
  case ABORT:
    abort();
  default:
    break;
  }
  return 0;
}

/* All of it is the first workgroup's. */
static int fingerprint(void **arguments, unsigned groups) {
  const unsigned char *bytes;
  uint64_t size;
  struct fingerprint *parts;
  memcpy(&bytes, arguments[0], sizeof bytes);
  memcpy(&size, arguments[1], sizeof size);
  memcpy(&parts, arguments[2], sizeof parts);
  call_note('P', 0);
  if (refused_in && --refused_in == 0)
    return OUT_OF_MEMORY;
  memset(parts, 0, groups * sizeof *parts);
  parts[0] = fingerprint_part(bytes, size, 0);
  if (getenv("FAKE_HIP_FORGETS"))
    parts[0].sum = 0;
  return 0;
}

int hipModuleLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                          unsigned block_x, unsigned block_y, unsigned block_z,
                          unsigned shared_bytes, void *stream, void **arguments, void **extra) {
  int64_t n;
  float *y, *x;
  (void)grid_z, (void)block_y, (void)block_z, (void)shared_bytes, (void)stream;
  (void)extra;
  if (fault || grid_x == 0 || block_x > 1024)
    return fault ? fault : hipErrorInvalidValue;
  is_in_flight = true;
  if (function == &functions[INSTRUCTION_FLUSH]) {
    call_note('F', FAKE_HIP_FLUSH_US);
    return 0;
  }
  if (function == &functions[FINGERPRINT])
    return fingerprint(arguments, grid_x);
  const char *launch_us = getenv("FAKE_HIP_LAUNCH_US");
  bool is_one = function == &functions[ADD_ONE];
  double slower = is_one ? 1 + grid_x * 1e-3 : getenv("FAKE_HIP_WAITS") ? 1 + grid_y * 1e-3 : 1;
  call_note('L', launch_us ? atof(launch_us) * slower : 0);
  memcpy(&y, arguments[0], sizeof y);
  memcpy(&x, arguments[1], sizeof x);
  if (is_one) {
    int32_t narrow;
    memcpy(&narrow, arguments[2], sizeof narrow);
    return fake_add(y, x, narrow, GOOD);
  }
  memcpy(&n, arguments[2], sizeof n);
  return fake_add(y, x, n, block_x);
}

int hipModuleLaunchCooperativeKernel(void *function, unsigned grid_x, unsigned grid_y,
                                     unsigned grid_z, unsigned block_x, unsigned block_y,
                                     unsigned block_z, unsigned shared_bytes, void *stream,
                                     void **arguments) {
  return hipModuleLaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z,
                               shared_bytes, stream, arguments, NULL);
}
