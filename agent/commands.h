/* The commands of wavetune-agent, each of which returns its exit code, and what `run` and `tune`
 * share: the options of measuring, and the default folders.
 *
 * Threads: the first one, before others are started. */
#ifndef WAVETUNE_AGENT_COMMANDS_H
#define WAVETUNE_AGENT_COMMANDS_H

#include "agent/lease/lease_execute.h"
#include "agent/worker/devices.h"
#include "common/base/log.h"
#include "common/program/options.h"

extern const struct command_spec run_command, tune_command, probe_command, env_command,
    env_check_command, env_set_command, env_reset_command;

/* Prints the error of a failed command; returns `code`. */
int command_failed(const char *command, enum exit_code code, const struct error *error);

/* clang-format off */
#define MEASURE_OPTIONS \
  {"screen-rounds", OPTION_INTEGER, "N", "16", 1, 10000, \
   "greatest number of samples of a config in the screen"}, \
  {"final-rounds", OPTION_INTEGER, "N", "60", 1, 10000, \
   "greatest number of samples of a finalist in each process"}, \
  {"config-timeout", OPTION_INTEGER, "SECONDS", "30", 1, 86400, \
   "limit for loading, for checking and for each turn of timing a config"}, \
  {"open-timeout", OPTION_INTEGER, "SECONDS", "60", 1, 86400, \
   "limit for opening a device and its buffers"}, \
  {"compilers", OPTION_INTEGER, "N", "0", 0, 256, \
   "compilers that run at once; 0: one to each CPU"}, \
  {"require-sandbox", OPTION_TEXT, "LEVEL", \
   .help = "refuse to start unless kernels and compilers are confined by LEVEL: none, seccomp, " \
           "landlock"}, \
  {"worker-memory-mb", OPTION_INTEGER, "MIB", "0", 0, 1 << 30, \
   "memory limit of each worker and compiler, where the agent may make cgroups; 0: half of " \
   "the machine's memory"}, \
  {"worker-pids", OPTION_INTEGER, "N", "1024", 16, 1 << 22, \
   "limit of the processes and threads of each, where the agent may make cgroups"}, \
  {"worker-user", OPTION_TEXT, "NAME", \
   .help = "an agent that is root runs kernels and compilers as this user"}, \
  OPTION_LOG_FORMAT
/* clang-format on */

/* Whether the device is a GPU, not the CPU of this machine. */
bool device_is_gpu(const struct device_seen *device);

/* Sets the user of workers (--worker-user) and their cgroups, where these can be made; before any
 * worker is started. Logs at `level` whether they have cgroups. *ret_cgroups (NULL: none) must
 * outlive the spawner and the pool. */
must_check bool custody_make(const struct options *options, struct spawner *spawner,
                             enum log_level level, struct cgroups **ret_cgroups,
                             struct error *error);

/* Makes the compile pool, which stores its objects in the folder `cache`; `custody` (NULL: none) is
 * borrowed. */
must_check bool pool_make(const struct options *options, const char *cache,
                          const struct custody *custody, struct compile_pool **ret_pool,
                          struct error *error);

/* `faults` is the folder for a debug agent's output on configs that kill their worker (hip only).
 */
struct executor executor_make(const struct options *options, struct spawner *spawner,
                              struct compile_pool *pool, const struct device_seen *device,
                              const char *faults);

/* The folder of the agent's state, and the folder of `tune` for what can be made again. Owned by
 * the caller. */
char *state_folder_default(void);
char *cache_folder_default(void);

#endif
