/* The CPU back end: facts from /proc and /sys, buffers between canaries and guard pages, shared
 * objects, a monotonic clock around calls.
 *
 * Threads: a launch runs in the caller's. */
#include "agent/device/device.h"

#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/utsname.h>
#include <time.h>

#include "agent/compile/compile.h"
#include "common/base/numbers.h"
#include "common/node/environment.h"

#define LLC_BYTES_GUESS ((size_t)32 << 20)
#define CANARY 0xC5
#define CACHE_LINE 64
#define DISPLACE_BYTES_MAX ((size_t)1 << 30)
#define CALIBRATION_INTERVALS 21
#define EMPTY_SHARE_MAX 0.9 /* of an interval: more than that is not overhead */

struct cpu_device {
  struct device base;
  size_t page;
  struct device_buffer *displacement; /* allocated when first needed */
  double empty_ns;                    /* of two readings of the clock; -1: not measured yet */
};

/* mapping: guard page | canary page | the buffer, then canary bytes to the page's end and a page
 * more | guard page */
struct cpu_buffer {
  struct device_buffer base;
  unsigned char *mapping;
  size_t mapping_size;
  struct {
    unsigned char *start;
    size_t size;
  } canaries[2]; /* bytes before and after the buffer that no kernel may write */
};

struct device_module {
  void *object;
  void (*launch)(void **arguments);
};

/* The first "NAME : VALUE" of /proc/cpuinfo, of processor `cpu` or a later one; NULL when there is
 * none. */
static char *cpuinfo_value(const char *name, int cpu) {
  cleanup_file FILE *file = fopen("/proc/cpuinfo", "re");
  char line[4096];
  int processor = 0;

  while (file && fgets(line, sizeof line, file)) {
    char *value = line, *found = strsep(&value, ":");
    if (!value)
      continue;
    for (char *end = found + strlen(found); end > found && strchr(" \t", end[-1]);)
      *--end = '\0';
    value += strspn(value, " ");
    value[strcspn(value, "\n")] = '\0';
    if (string_equal(found, "processor"))
      processor = atoi(value);
    if (processor >= cpu && string_equal(found, name) && *value)
      return xstrndup(value, 200);
  }

  return NULL;
}

/* Reads the rest of the first line that begins with `name`, from a file in /sys or /proc. */
static bool line_read(const char *path, const char *name, char *line, int size) {
  cleanup_file FILE *file = fopen(path, "re");
  while (file && fgets(line, size, file)) {
    if (!string_starts(line, name))
      continue;
    line[strcspn(line, "\n")] = '\0';
    memmove(line, line + strlen(name), strlen(line + strlen(name)) + 1);
    return true;
  }
  return false;
}

/* Prefers sysfs, which states the cache that one core reaches: where there are several last-level
 * caches, sysconf states their sum. */
static void caches_read(struct cpu_facts *facts) {
  static const char *const members[] = {"type", "level", "size"};
  int level_max = 0;

  for (int index = 0; index < 16; index++) {
    char path[96], texts[3][32];
    size_t n_known = 0;
    for (; n_known < ARRAY_LENGTH(members); n_known++) {
      snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/%s", index,
               members[n_known]);
      if (!line_read(path, "", texts[n_known], sizeof texts[n_known]))
        break;
    }
    if (n_known < ARRAY_LENGTH(members) || string_equal(texts[0], "Instruction"))
      continue;

    char *unit;
    unsigned long long count = strtoull(texts[2], &unit, 10);
    size_t bytes = (size_t)count << (*unit == 'K' ? 10 : *unit == 'M' ? 20 : *unit == 'G' ? 30 : 0);
    int level = atoi(texts[1]);
    if (level == 2)
      facts->l2_bytes = bytes;
    if (level > level_max && bytes) {
      level_max = level;
      facts->llc_bytes = bytes;
    }
  }

  if (facts->llc_bytes == 0) {
    long l3 = sysconf(_SC_LEVEL3_CACHE_SIZE), l2 = sysconf(_SC_LEVEL2_CACHE_SIZE);
    facts->llc_bytes = l3 > 0 ? (size_t)l3 : l2 > 0 ? (size_t)l2 : LLC_BYTES_GUESS;
  }
}

void cpu_facts_read(struct cpu_facts *ret_facts) {
  struct utsname name;
  ALWAYS(uname(&name) == 0);
  char *model = cpuinfo_value("model name", 0);
  if (!model)
    model = cpuinfo_value("Model", 0);
  long cpus = sysconf(_SC_NPROCESSORS_ONLN), pages = sysconf(_SC_PHYS_PAGES),
       page = sysconf(_SC_PAGESIZE);
  *ret_facts = (struct cpu_facts){
      .model = model ? model : xstrdup(name.machine),
      .machine = xstrdup(name.machine),
      .cpus = cpus > 0 ? cpus : 1,
      .memory_bytes = pages > 0 ? (int64_t)pages * page : 0,
  };
  caches_read(ret_facts);
}

void cpu_facts_release(struct cpu_facts *facts) {
  free(facts->model);
  free(facts->machine);
}

size_t cpu_memory_available(void) {
  char line[4096];
  size_t free_bytes = 0, limit = 0; /* 0: not known; a limit of "max" is read as 0 */

  if (line_read("/proc/meminfo", "MemAvailable:", line, sizeof line))
    free_bytes = (size_t)strtoull(line, NULL, 10) << 10;
  if (line_read("/proc/self/cgroup", "0::", line, sizeof line)) {
    cleanup_free char *path = xasprintf("/sys/fs/cgroup%s/memory.max", line);
    if (line_read(path, "", line, sizeof line))
      limit = (size_t)strtoull(line, NULL, 10);
  }
  return limit && (!free_bytes || limit <= free_bytes) ? limit : free_bytes;
}

double cpu_clock_mhz(void) {
  int cpu = sched_getcpu();
  char path[96], text[32];
  snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/cpufreq/scaling_cur_freq",
           cpu < 0 ? 0 : cpu);
  if (line_read(path, "", text, sizeof text) && atof(text) > 0)
    return atof(text) / 1000;
  cleanup_free char *mhz = cpuinfo_value("cpu MHz", cpu < 0 ? 0 : cpu);
  return mhz && atof(mhz) > 0 ? atof(mhz) : 0;
}

static bool cpu_probe(json_t **ret_devices, struct error *error) {
  cleanup_cpu_facts struct cpu_facts facts = {0};
  cleanup_environment struct environment environment = {0};

  cpu_facts_read(&facts);
  if (!compiler_identity(&environment.cpu, error))
    return false;

  environment.gpu = xstrdup(facts.model);
  environment.arch = xstrdup(facts.machine);
  environment.partition = xstrdup("");
  environment.compute_units = facts.cpus;
  *ret_devices = json_pack(
      "[{s:s, s:s, s:s, s:o, s:{s:I, s:I, s:I, s:I}}]", "backend", "cpu", "device", "cpu0", "name",
      facts.model, "environment", environment_to_json(&environment), "facts", "cpus",
      (json_int_t)facts.cpus, "l2_bytes", (json_int_t)facts.l2_bytes, "llc_bytes",
      (json_int_t)facts.llc_bytes, "memory_bytes", (json_int_t)facts.memory_bytes);
  if (!*ret_devices)
    return error_set(error, "the CPU's model name is not UTF-8");
  return true;
}

static bool cpu_open(const char *name, struct device **ret_device, struct error *error) {
  if (!string_equal(name, "cpu0"))
    return error_set(error, "no device %s: the CPU back end has one device, cpu0", name);

  cleanup_cpu_facts struct cpu_facts facts = {0};
  cpu_facts_read(&facts);
  struct cpu_device *device = xcalloc(1, sizeof *device);
  device->base.ops = &cpu_ops;
  device->base.gpu_name = TAKE(facts.model);
  device->base.arch = TAKE(facts.machine);
  device->base.compute_units = facts.cpus;
  device->base.warp_size = 1;
  device->base.displacement_bytes = device_displacement(
      facts.llc_bytes < DISPLACE_BYTES_MAX / 2 ? 2 * facts.llc_bytes : DISPLACE_BYTES_MAX);
  device->empty_ns = -1;
  device->base.memory_bytes = cpu_memory_available();
  device->page = (size_t)sysconf(_SC_PAGESIZE);
  *ret_device = &device->base;
  return true;
}

static void cpu_buffer_free(struct device *device, struct device_buffer *base) {
  (void)device;
  struct cpu_buffer *buffer = (struct cpu_buffer *)base;
  munmap(buffer->mapping, buffer->mapping_size);
  free(buffer);
}

static void cpu_close(struct device *base) {
  struct cpu_device *device = (struct cpu_device *)base;
  if (device->displacement)
    cpu_buffer_free(base, device->displacement);
  free(base->gpu_name);
  free(base->arch);
  free(device);
}

static bool cpu_buffer_new(struct device *base, size_t size, struct device_buffer **ret_buffer,
                           struct error *error) {
  size_t page = ((struct cpu_device *)base)->page, padded, mapping_size;

  if (__builtin_add_overflow(size, page - 1, &padded) ||
      __builtin_add_overflow(padded / page * page, 4 * page, &mapping_size))
    return error_set(error, "a buffer of %zu bytes is too large", size);
  unsigned char *mapping =
      mmap(NULL, mapping_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED ||
      mprotect(mapping + page, mapping_size - 2 * page, PROT_READ | PROT_WRITE) < 0) {
    int reason = errno;
    if (mapping != MAP_FAILED)
      munmap(mapping, mapping_size);
    return error_set(error, "cannot allocate %zu bytes on the device: %s", size, strerror(reason));
  }

  unsigned char *start = mapping + 2 * page, *end = start + size;
  struct cpu_buffer *buffer = xmalloc(sizeof *buffer);
  *buffer = (struct cpu_buffer){
      {start, size},
      mapping,
      mapping_size,
      {{mapping + page, page}, {end, (size_t)(mapping + mapping_size - page - end)}}};
  for (int i = 0; i < 2; i++)
    memset(buffer->canaries[i].start, CANARY, buffer->canaries[i].size);
  *ret_buffer = &buffer->base;
  return true;
}

static bool cpu_buffer_intact(struct device *device, struct device_buffer *base,
                              struct error *error) {
  const struct cpu_buffer *buffer = (const struct cpu_buffer *)base;
  bool intact = true;
  (void)device;

  for (int i = 0; i < 2; i++) {
    unsigned char *end = buffer->canaries[i].start + buffer->canaries[i].size;
    for (unsigned char *at = buffer->canaries[i].start; at < end; at++) {
      if (*at == CANARY)
        continue;
      if (intact)
        intact = error_set(error, "a byte outside of the buffer was written, at offset %td of %zu",
                           at - (unsigned char *)base->address, base->size);
      *at = CANARY;
    }
  }

  return intact;
}

static bool cpu_copy(struct device *device, void *to, const void *from, size_t size,
                     struct error *error) {
  (void)device, (void)error;
  memcpy(to, from, size);
  return true;
}

static void words_fill(void *to, uint32_t word, size_t size) {
  uint32_t *words = to;
  size_t count = size / sizeof word;
  for (size_t i = 0; i < count; i++)
    words[i] = word;
  memcpy(words + count, &word, size % sizeof word);
}

static bool cpu_fill(struct device *device, void *to, uint32_t word, size_t size,
                     struct error *error) {
  (void)device, (void)error;
  words_fill(to, word, size);
  return true;
}

static void *cpu_host_buffer_new(struct device *device, size_t size) {
  (void)device;
  return host_memory_new(size);
}

static void cpu_host_buffer_free(struct device *device, void *buffer) {
  (void)device;
  free(buffer);
}

static bool cpu_module_load(struct device *device, const char *object, const char *entry,
                            struct device_module **ret_module, struct error *error) {
  (void)device;
  void *handle = dlopen(object, RTLD_NOW | RTLD_LOCAL);
  if (!handle)
    return error_set(error, "cannot load %s: %s", entry, dlerror());

  void *launch = dlsym(handle, "wavetune_launch");
  if (!launch) {
    dlclose(handle);
    return error_set(error, "cannot load %s: its object has no wavetune_launch; compile it again",
                     entry);
  }

  struct device_module *module = xmalloc(sizeof *module);
  module->object = handle;
  memcpy(&module->launch, &launch, sizeof launch);
  *ret_module = module;
  return true;
}

static void cpu_module_unload(struct device *device, struct device_module *module) {
  (void)device;
  dlclose(module->object);
  free(module);
}

static void call(const struct device_launch *launch) {
  array_foreach (fill, launch->fills, launch->n_fills)
    words_fill(*fill->pointer, fill->word, fill->size);
  launch->module->launch(launch->arguments);
}

static bool cpu_launch(struct device *device, const struct device_launch *launch,
                       struct error *error) {
  (void)device, (void)error;
  call(launch);
  return true;
}

/* synchronize() has nothing to wait for; a processor that executes this passes its sentinel. */
static bool cpu_succeed(struct device *device, struct error *error) {
  (void)device, (void)error;
  return true;
}

static inline int64_t clock_raw_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC_RAW, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* A duration is above zero, also where the clock did not advance. */
static double interval_us(const struct cpu_device *device, int64_t start) {
  int64_t ns = clock_raw_ns() - start;
  double left = (double)(ns > 0 ? ns : 1), empty = device->empty_ns;
  return (left - (empty < EMPTY_SHARE_MAX * left ? empty : EMPTY_SHARE_MAX * left)) / 1000;
}

static bool cpu_time(struct device *base, struct device_timing *timings, size_t n,
                     struct error *error) {
  struct cpu_device *device = (struct cpu_device *)base;
  if (device->empty_ns < 0) {
    double ns[CALIBRATION_INTERVALS];
    list_foreach (interval, ns) {
      int64_t start = clock_raw_ns();
      *interval = (double)(clock_raw_ns() - start);
    }
    device->empty_ns = median_of(ns, ARRAY_LENGTH(ns));
  }

  array_foreach (timing, timings, n) {
    struct device_rotation *rotation = timing->rotation;
    if (rotation->displace) {
      if (!device->displacement &&
          !cpu_buffer_new(base, base->displacement_bytes, &device->displacement, error))
        return false;
      volatile unsigned char *bytes = device->displacement->address;
      for (size_t i = 0; i < device->displacement->size; i += CACHE_LINE)
        bytes[i]++;
    }

    bool restores = rotation_restores(rotation);
    double us = 0;
    int64_t start = clock_raw_ns();
    for (unsigned k = 0; k < timing->calls; k++) {
      rotation_step(rotation);
      if (restores)
        start = clock_raw_ns();
      call(&timing->launch);
      if (!restores)
        continue;
      us += interval_us(device, start);
      /* Restored after the call: by the copy's next turn it has left the caches. */
      array_foreach (operand, rotation->operands, rotation->n_operands)
        if (operand->pristine)
          memcpy((char *)*operand->pointer - operand->offset, operand->pristine, operand->size);
    }
    timing->us = (restores ? us : interval_us(device, start)) / timing->calls;
  }

  return true;
}

static double cpu_device_clock_mhz(struct device *device) {
  (void)device;
  return cpu_clock_mhz();
}

static json_t *cpu_conditions(struct device *device) {
  double mhz = cpu_clock_mhz();
  double empty_ns = ((struct cpu_device *)device)->empty_ns;
  json_t *conditions = json_object();
  if (mhz > 0)
    json_put(conditions, "clock_mhz", json_real(mhz));
  if (empty_ns > 0)
    json_put(conditions, "overhead_us", json_real(empty_ns / 1000));
  return conditions;
}

const struct device_ops cpu_ops = {
    .backend = "cpu",
    .timer = "clock_monotonic_raw",
    .probe = cpu_probe,
    .open = cpu_open,
    .close = cpu_close,
    .buffer_new = cpu_buffer_new,
    .buffer_free = cpu_buffer_free,
    .buffer_intact = cpu_buffer_intact,
    .upload = cpu_copy,
    .download = cpu_copy,
    .copy = cpu_copy,
    .fill = cpu_fill,
    .host_buffer_new = cpu_host_buffer_new,
    .host_buffer_free = cpu_host_buffer_free,
    .module_load = cpu_module_load,
    .module_unload = cpu_module_unload,
    .launch = cpu_launch,
    .synchronize = cpu_succeed,
    .sentinel = cpu_succeed,
    .time = cpu_time,
    .is_host = true,
    .is_synchronous = true,
    .clock_mhz = cpu_device_clock_mhz,
    .conditions = cpu_conditions,
};
