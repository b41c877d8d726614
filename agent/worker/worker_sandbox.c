/* The rules of a worker's sandbox. Threads: the worker's first one. */
#include <glob.h>
#include <libgen.h>
#include <signal.h>
#include <sys/resource.h>

#include "agent/worker/worker_process.h"

#define FILE_BYTES_MAX ((uint64_t)4 << 30)  /* an object in memory is a file too */
#define ADDRESSES_SPARE ((uint64_t)1 << 30) /* beyond the machine's memory */

static const char *const host_places[] = {
    "/usr", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache", "/dev/urandom",
    /* The machine's state, for conditions. */
    "/sys", "/proc/cpuinfo", "/proc/meminfo", "/proc/self/cgroup",
    "/proc/sys/kernel/numa_balancing",
#ifdef WAVETUNE_SANITIZED
    "/proc", /* where the sanitizers look up this process's memory */
#endif
};
/* /proc: drivers' versions and this process. Landlock denies access to
 * other processes' secrets. */
static const char *const gpu_places[] = {
    "/proc",       "/bin",           "/etc/nvidia",        "/etc/localtime",
    "/opt/rocm*",  "/opt/amdgpu*",   "/usr/local/cuda*",   "/etc/amd",
    "/run/nvidia", "/run/nvidia-*/", "/etc/alternatives*", "/run/udev/data"};
static const char *const gpu_devices[] = {"/dev/kfd", "/dev/dri", "/dev/nvidia*", "/dev/shm"};
/* CUDA does not start where it cannot name its threads, in /proc/self/task. */
static const char *const gpu_writable[] = {"/proc/self"};
static const char *const gpu_folder_variables[] = {
    "WAVETUNE_TOOLCHAIN", "LD_LIBRARY_PATH", "WAVETUNE_KFD_TOPOLOGY", "ROCM_PATH", "CUDA_HOME"};
static const char *const gpu_file_variables[] = {"WAVETUNE_HIP_LIBRARY", "HSA_TOOLS_LIB",
                                                 "LD_PRELOAD"};

#define PLACES_MAX 256

struct places {
  size_t n;
  char *paths[PLACES_MAX + 1]; /* NULL behind the last one */
};

static void places_release(struct places *places) {
  array_foreach (path, places->paths, places->n)
    free(*path);
}
#define cleanup_places __attribute__((cleanup(places_release)))

static void place_add(struct places *places, const char *path) {
  if (places->n < PLACES_MAX)
    places->paths[places->n++] = xstrdup(path);
}

static void places_add(struct places *places, const char *const *patterns, size_t n) {
  array_foreach (pattern, patterns, n) {
    glob_t found;
    if (glob(*pattern, 0, NULL, &found) == 0) {
      array_foreach (path, found.gl_pathv, found.gl_pathc)
        place_add(places, *path);
    }
    globfree(&found);
  }
}

/* Adds the absolute paths in a colon-separated list; for files, their folders. */
static void places_add_variable(struct places *places, const char *variable, bool are_files) {
  const char *value = getenv(variable);
  cleanup_free char *copy = xstrdup(value ? value : "");
  char *rest = copy;
  for (char *item; (item = strsep(&rest, ":"));) {
    if (*item == '/')
      place_add(places, are_files ? dirname(item) : item);
  }
}

static void limit_set(int resource, uint64_t value) {
  struct rlimit limit;
  if (getrlimit(resource, &limit) == 0 && limit.rlim_max > value)
    setrlimit(resource, &(struct rlimit){value, value});
}

#ifdef WAVETUNE_SANITIZED
static bool is_confined;

/* The leak checker calls this at exit: it would start a process that traces this one. */
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void) { return is_confined; }
#endif

static bool entered(int reason, struct error *error) {
  return reason == 0 || error_set(error, "a worker cannot be confined: %s", strerror(reason));
}

bool worker_confine_files(bool is_host, struct sandbox **ret_sandbox, struct error *error) {
  cleanup_places struct places readable = {0}, devices = {0}, writable = {0};
  cleanup_sandbox struct sandbox *sandbox = NULL;

  places_add(&readable, host_places, ARRAY_LENGTH(host_places));
  if (!is_host) {
    places_add(&readable, gpu_places, ARRAY_LENGTH(gpu_places));
    list_foreach (variable, gpu_folder_variables)
      places_add_variable(&readable, *variable, false);
    list_foreach (variable, gpu_file_variables)
      places_add_variable(&readable, *variable, true);
    places_add(&writable, gpu_writable, ARRAY_LENGTH(gpu_writable));
    places_add(&devices, gpu_devices, ARRAY_LENGTH(gpu_devices));
  }

  places_add_variable(&writable, WORKER_WRITES, false);
  struct sandbox_rules rules = {.readable = (const char *const *)readable.paths,
                                .writable = (const char *const *)writable.paths,
                                .devices = (const char *const *)devices.paths,
                                .is_alone = true};
  if (!sandbox_new(&rules, &sandbox, error))
    return false;

  capabilities_drop();
  signal(SIGXFSZ, SIG_IGN);
  limit_set(RLIMIT_CORE, 0);
  limit_set(RLIMIT_FSIZE, FILE_BYTES_MAX);
#ifndef WAVETUNE_SANITIZED

  /* GPU runtimes, and sanitizers, reserve more addresses than any machine has memory. */
  if (is_host)
    limit_set(RLIMIT_AS, (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) +
                             ADDRESSES_SPARE);
#endif
  if (!entered(sandbox_enter_files(sandbox), error))
    return false;
  *ret_sandbox = TAKE(sandbox);
  return true;
}

bool worker_confine_calls(struct sandbox *taken, struct error *error) {
  cleanup_sandbox struct sandbox *sandbox = taken;
#ifdef WAVETUNE_SANITIZED
  is_confined = true;
#endif
  process_hide(); /* from other workers, where nothing else denies them access */
  return entered(sandbox_enter_calls(sandbox), error);
}
