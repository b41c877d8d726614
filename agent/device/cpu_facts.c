/* What the kernel's files tell of this machine's CPUs. Memory: facts own their strings. Threads:
 * any. */
#include "agent/device/cpu.h"

#include <sched.h>
#include <sys/utsname.h>

#define LLC_BYTES_GUESS ((size_t)32 << 20)

/* The first "NAME : VALUE" of /proc/cpuinfo, of processor `cpu` or later; NULL when there is
 * none. */
static char *cpuinfo_value(const char *name, int cpu) {
  cleanup_file FILE *file = fopen("/proc/cpuinfo", "re");
  char line[4096];
  int processor = 0;
  while (file && fgets(line, sizeof line, file)) {
    char *colon = strchr(line, ':');
    if (!colon)
      continue;
    size_t name_length = strcspn(line, "\t:");
    while (name_length && line[name_length - 1] == ' ')
      name_length--;
    char *value = colon + 1 + strspn(colon + 1, " ");
    value[strcspn(value, "\n")] = '\0';
    if (name_length == 9 && strncmp(line, "processor", 9) == 0)
      processor = atoi(value);
    if (processor >= cpu && name_length == strlen(name) && strncmp(line, name, name_length) == 0 &&
        *value)
      return xstrndup(value, 200);
  }
  return NULL;
}

/* One line of a file under /sys, or false. */
static bool line_read(const char *path, char *line, int size) {
  cleanup_file FILE *file = fopen(path, "re");
  if (!file || !fgets(line, size, file))
    return false;
  line[strcspn(line, "\n")] = '\0';
  return true;
}

/* sysfs tells the cache that one core reaches; on a CPU with several last-level caches getconf
 * tells their sum. */
static void caches_read(struct cpu_facts *facts) {
  int level_max = 0;
  for (int index = 0; index < 16; index++) {
    char path[96], type[32], level_text[16], size_text[32];
    const char *members[] = {"type", "level", "size"};
    char *texts[] = {type, level_text, size_text};
    int sizes[] = {sizeof type, sizeof level_text, sizeof size_text};
    bool known = true;
    for (size_t i = 0; i < ARRAY_LENGTH(members) && known; i++) {
      snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/%s", index,
               members[i]);
      known = line_read(path, texts[i], sizes[i]);
    }
    if (!known || string_equal(type, "Instruction"))
      continue;
    char *unit;
    unsigned long long count = strtoull(size_text, &unit, 10);
    size_t bytes = (size_t)count << (*unit == 'K' ? 10 : *unit == 'M' ? 20 : *unit == 'G' ? 30 : 0);
    int level = atoi(level_text);
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
  struct cpu_facts facts = {0};
  struct utsname name;
  ALWAYS(uname(&name) == 0);
  facts.machine = xstrdup(name.machine);
  facts.model = cpuinfo_value("model name", 0);
  if (!facts.model)
    facts.model = cpuinfo_value("Model", 0);
  if (!facts.model)
    facts.model = xstrdup(name.machine);
  long cpus = sysconf(_SC_NPROCESSORS_ONLN), pages = sysconf(_SC_PHYS_PAGES),
       page = sysconf(_SC_PAGESIZE);
  facts.cpus = cpus > 0 ? cpus : 1;
  facts.memory_bytes = pages > 0 ? (int64_t)pages * page : 0;
  caches_read(&facts);
  *ret_facts = facts;
}

void cpu_facts_release(struct cpu_facts *facts) {
  free(facts->model);
  free(facts->machine);
}

/* What follows NAME in a file of lines like "MemAvailable:   123 kB". */
static bool line_find(const char *path, const char *name, char *line, int size) {
  cleanup_file FILE *file = fopen(path, "re");
  while (file && fgets(line, size, file)) {
    line[strcspn(line, "\n")] = '\0';
    if (string_starts(line, name)) {
      memmove(line, line + strlen(name), strlen(line + strlen(name)) + 1);
      return true;
    }
  }
  return false;
}

size_t cpu_memory_free(void) {
  char line[4096];
  size_t free_bytes = 0, limit;
  if (line_find("/proc/meminfo", "MemAvailable:", line, sizeof line))
    free_bytes = (size_t)strtoull(line, NULL, 10) << 10;
  if (!line_find("/proc/self/cgroup", "0::", line, sizeof line))
    return free_bytes;
  cleanup_free char *path = xasprintf("/sys/fs/cgroup%s/memory.max", line);
  if (!line_read(path, line, sizeof line) ||
      (limit = (size_t)strtoull(line, NULL, 10)) == 0) /* "max": none */
    return free_bytes;
  return free_bytes && free_bytes < limit ? free_bytes : limit;
}

double cpu_clock_mhz(void) {
  int cpu = sched_getcpu();
  char path[96], text[32];
  snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/cpufreq/scaling_cur_freq",
           cpu < 0 ? 0 : cpu);
  if (line_read(path, text, sizeof text) && atof(text) > 0)
    return atof(text) / 1000;
  cleanup_free char *mhz = cpuinfo_value("cpu MHz", cpu < 0 ? 0 : cpu);
  return mhz && atof(mhz) > 0 ? atof(mhz) : 0;
}
