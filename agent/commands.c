/* How commands end, and the options of measuring. */
#include "agent/commands.h"

#include <math.h>

#include "common/base/log.h"
#include "common/program/sandbox.h"

#define COMPILE_WINDOW 128 /* enough for the compilers of many processors */
/* Then the worker is replaced: what kernels leave in a process must not pile up. */
#define CONFIGS_PER_WORKER 4096

int command_failed(const char *command, enum exit_code code, const struct error *error) {
  bool has_pointer = error->pointer[0] != '\0';
  if (log_format_now() == LOG_FORMAT_JSON) {
    log_error("agent: %s: %s pointer=%s", command, error->message,
              has_pointer ? error->pointer : NULL);
    return code;
  }

  fprintf(stderr, "wavetune-agent %s: %s%s%s%s\n", command, error->message,
          has_pointer ? " (at " : "", error->pointer, has_pointer ? ")" : "");
  return code;
}

bool device_is_gpu(const struct device_seen *device) {
  return !string_equal(device->backend, "cpu");
}

bool custody_make(const struct options *options, struct spawner *spawner, enum log_level level,
                  struct cgroups **ret_cgroups, struct error *error) {
  const char *name = option_text(options, "worker-user");
  struct custody custody = {0};
  struct error reason;
  if (name && !custody_set_user(&custody, name, error))
    return error_prefix(error, "--worker-user: ");

  uint64_t machine_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
  uint64_t given_bytes = (uint64_t)option_integer(options, "worker-memory-mb") << 20;
  struct cgroup_limits limits = {.memory_bytes_max = given_bytes ? given_bytes : machine_bytes / 2,
                                 .tasks_max = option_integer(options, "worker-pids")};
  *ret_cgroups = NULL;
  if (cgroups_new(&limits, ret_cgroups, &reason))
    log_write(level,
              "agent: each worker and compiler has a cgroup of its own, with at most %llu MiB and "
              "%lld processes and threads",
              (unsigned long long)(limits.memory_bytes_max >> 20), (long long)limits.tasks_max);
  else
    log_write(level,
              "agent: workers and compilers have no cgroups of their own, which would bound their "
              "memory and processes: %s",
              reason.message);
  custody.cgroups = *ret_cgroups;
  spawner_set_custody(spawner, &custody);

  return true;
}

bool pool_make(const struct options *options, const char *cache, const struct custody *custody,
               struct compile_pool **ret_pool, struct error *error) {
  const char *wanted = option_text(options, "require-sandbox");
  const char *given = getenv(SANDBOX_VARIABLE);
  enum sandbox_level level = SANDBOX_NONE, allowed = SANDBOX_LANDLOCK;
  if (wanted && !sandbox_level_parse(wanted, &level))
    return error_set(error, "--require-sandbox must be none, seccomp or landlock, not \"%.40s\"",
                     wanted);
  if (given && !sandbox_level_parse(given, &allowed))
    return error_set(error, SANDBOX_VARIABLE " must be none, seccomp or landlock, not \"%.40s\"",
                     given);
  if (given && allowed < level)
    return error_set(error, "--require-sandbox=%s: " SANDBOX_VARIABLE "=%s disables it; unset that",
                     wanted, given);
  if (given && allowed < SANDBOX_LANDLOCK)
    log_warning("agent: " SANDBOX_VARIABLE
                "=%s: kernels and compilers are less confined than by default; never use "
                "it where others may submit kernels",
                given);
  if (sandbox_level() < level)
    return error_set(
        error,
        "--require-sandbox=%s: on this Linux kernels and compilers are confined by: %s; they could "
        "read this machine's files; boot Linux 5.13 or later with lsm=…,landlock or require less",
        wanted, sandbox_kind());
  if (!compile_pool_new(cache, (unsigned)option_integer(options, "compilers"), ret_pool, error))
    return false;

  compile_pool_set_custody(*ret_pool, custody);
  return true;
}

struct executor executor_make(const struct options *options, struct spawner *spawner,
                              struct compile_pool *pool, const struct device_seen *device,
                              const char *faults) {
  return (struct executor){
      .spawner = spawner,
      .pool = pool,
      .device = device->name,
      .gpu_name = device->environment.gpu,
      .arch = device->environment.arch,
      .compute_units = device->environment.compute_units,
      .is_gpu = device_is_gpu(device),
      .compiles_first = !device_is_gpu(device),
      .limits = {.open_ms = option_integer(options, "open-timeout") * 1000,
                 .config_ms = option_integer(options, "config-timeout") * 1000},
      .screen = {2, option_integer(options, "screen-rounds"), 0.05, 0.02},
      .halving = {4, 24, 0.04, 0.01},
      .final = {12, option_integer(options, "final-rounds"), INFINITY, 0.003},
      .compile_window = COMPILE_WINDOW,
      .configs_per_worker = CONFIGS_PER_WORKER,
      .faults = string_equal(device->backend, "hip") ? faults : NULL,
      .current = WORKER_CONFIG_NONE,
  };
}

/* $VARIABLE/NAME, else ~/HOME_PART/NAME, else /tmp/NAME-UID. */
static char *user_folder(const char *variable, const char *home_part, const char *name) {
  const char *base = getenv(variable), *home = getenv("HOME");
  if (base && base[0] == '/')
    return xasprintf("%s/%s", base, name);
  if (home && home[0] == '/')
    return xasprintf("%s/%s/%s", home, home_part, name);
  return xasprintf("/tmp/%s-%u", name, (unsigned)getuid());
}

char *state_folder_default(void) {
  const char *given = getenv("STATE_DIRECTORY"); /* systemd's StateDirectory= */
  if (given && given[0] == '/' && !strchr(given, ':'))
    return xstrdup(given);
  if (geteuid() == 0)
    return xstrdup("/var/lib/wavetune-agent");
  return user_folder("XDG_STATE_HOME", ".local/state", "wavetune-agent");
}

char *cache_folder_default(void) { return user_folder("XDG_CACHE_HOME", ".cache", "wavetune"); }
