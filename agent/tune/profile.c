/* The profiler's command line and its run. Memory and threads: see the header. */
#include "agent/tune/profile.h"

#include <errno.h>
#include <limits.h>

#include "common/base/file.h"
#include "common/program/command.h"

#define PROFILE_MS ((int64_t)600 * 1000)
#define WORDS_MAX 32

/* A command line: texts that it owns, NULL behind the last one. */
struct words {
  size_t n;
  char *texts[WORDS_MAX + 1];
};

static void words_release(struct words *words) {
  for (size_t i = 0; i < words->n; i++)
    free(words->texts[i]);
}

static void words_take(struct words *words, char *text) {
  ALWAYS(words->n < WORDS_MAX);
  words->texts[words->n++] = text;
}

static void words_add(struct words *words, const char *text) { words_take(words, xstrdup(text)); }

static bool profiler_find(const char *name, char **ret_path) {
  struct error ignored;
  cleanup_free char *usual = xasprintf("/opt/rocm/bin/%s", name);
  if (program_find(name, ret_path, &ignored))
    return true;
  if (access(usual, X_OK) < 0)
    return false;
  *ret_path = TAKE(usual);
  return true;
}

/* The profiler up to where the profiled program's own words begin. */
static bool profiler_arguments(const char *folder, struct words *arguments, struct error *error) {
  cleanup_free char *path = NULL;
  if (profiler_find("rocprofv3", &path)) {
    const char *const words[] = {path, "--kernel-trace", "--stats", "--output-format", "csv",
                                 "-d", folder,           "--"};
    for (size_t i = 0; i < ARRAY_LENGTH(words); i++)
      words_add(arguments, words[i]);
    return true;
  }
  if (!profiler_find("rocprof", &path))
    return error_set(
        error,
        "there is no rocprofv3 and no rocprof in $PATH or /opt/rocm/bin; install rocprofiler-sdk");
  words_add(arguments, path);
  words_add(arguments, "--stats");
  words_add(arguments, "-o");
  words_take(arguments, xasprintf("%s/profile.csv", folder));
  return true;
}

static bool tune_arguments(const struct options *options, const char *device, uint64_t config,
                           struct words *arguments, struct error *error) {
  static const char *const kept[] = {"key", "build", "regime", "state", "python", "worker-user"};
  char program[PATH_MAX];
  char *const *places;
  ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
  if (length < 0)
    return error_set(error, "cannot read /proc/self/exe: %s", strerror(errno));
  program[length] = '\0';
  ALWAYS(options_arguments(options, &places) == 1);
  words_add(arguments, program);
  words_add(arguments, "tune");
  words_add(arguments, places[0]);
  words_take(arguments, xasprintf("--device=%s", device));
  words_take(arguments, xasprintf("--only=%llu", (unsigned long long)config));
  words_add(arguments, "--screen-rounds=1");
  words_add(arguments, "--final-rounds=1");
  words_take(arguments, xasprintf("--seed=%lld", (long long)option_integer(options, "seed")));
  for (size_t i = 0; i < ARRAY_LENGTH(kept); i++) {
    if (option_text(options, kept[i]))
      words_take(arguments, xasprintf("--%s=%s", kept[i], option_text(options, kept[i])));
  }
  return true;
}

/* This process's own, and first the folder in which workers may write what the profiler in them has
 * seen. The array is the caller's, what it points to is borrowed. */
static char **environment_make(char *writes) {
  size_t n = 0;
  while (environ[n])
    n++;
  char **environment = xcalloc(n + 2, sizeof *environment);
  environment[0] = writes;
  memcpy(environment + 1, environ, n * sizeof *environ);
  return environment;
}

bool profile_config(const struct options *options, const struct custody *custody,
                    const char *device, uint64_t config, const char *folder, struct error *error) {
  /* The profiler and the agent in it are this user's; what the profiler has in their workers is the
   * workers'. */
  const struct custody bounds = {.cgroups = custody->cgroups};
  __attribute__((cleanup(words_release))) struct words arguments = {0};
  if (!profiler_arguments(folder, &arguments, error) ||
      !tune_arguments(options, device, config, &arguments, error) ||
      !folder_make(folder, 0755, error) || !custody_give(custody, folder, error))
    return false;
  cleanup_free char *path = realpath(folder, NULL);
  if (!path)
    return error_set(error, "cannot use %s: %s", folder, strerror(errno));
  cleanup_free char *writes = xasprintf("WAVETUNE_WORKER_WRITES=%s", path);
  cleanup_free char **environment = environment_make(writes);
  struct command command = {
      .arguments = arguments.texts,
      .environment = environment,
      .timeout_ms = PROFILE_MS,
      .cpu_seconds_max = UINT64_MAX,
      .memory_bytes_max = UINT64_MAX, /* GPU runtimes reserve more addresses than there is memory */
      .file_bytes_max = UINT64_MAX,
      .output_max = 4096,
      .custody = &bounds,
      .stop_fd = -1};
  struct command_result result;
  if (!command_run(&command, &result, error))
    return false;
  cleanup_free char *output = result.output;
  if (result.succeeded)
    return true;
  return error_set(error, "%s did not profile config %llu: %.400s", arguments.texts[0],
                   (unsigned long long)config,
                   result.timed_out ? "it did not end in time" : output);
}
