/* Loads a GPU runtime, and starts it for all GPUs, to probe them, or for the one that this process
 * opens.
 *
 * A runtime starts every GPU that it sees, and a worker needs one of them. With the others hidden
 * by the runtime's own variable it starts sooner (in 0.18 s instead of 0.98 on a host of four
 * H200s) and cannot reach them. The variables: CUDA's programming guide,
 * "CUDA environment variables"; ROCm's documentation, "GPU isolation techniques".
 *
 * Memory: static; a process remembers for which GPUs it started a runtime. Threads: one. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>

#include "agent/device/gpu.h"

#define NUMBER_NONE (-1)
#define STAT_MAX 512
#define NAME_MAX_LENGTH 64
#define ANCESTORS_MAX 64
#define ARGUMENTS_MAX 256
/* PROC_PID_INIT_INO in Linux' include/linux/proc_ns.h */
#define FIRST_PID_NAMESPACE "pid:[4026531836]"

void gpu_facts_release(struct gpu_facts *facts) {
  environment_release(&facts->environment);
  free(facts->pci);
  json_decref(facts->facts);
  *facts = (struct gpu_facts){0};
}

bool gpu_check(const struct gpu_api *api, int code, struct error *error, const char *what) {
  const char *name, *words;
  if (code == 0)
    return true;
  api->error_words(code, &name, &words);
  return error_set(error, "%s failed: %s (%s, %d)", what,
                   words ? words : "an error that the runtime does not describe",
                   name ? name : "unnamed", code);
}

bool gpu_library_load(const char *what, const char *variable, const char *const *names,
                      const struct gpu_symbol *symbols, size_t n_symbols, struct error *error) {
  const char *named = variable ? getenv(variable) : NULL;
  names = named && *named ? (const char *const[]){named, NULL} : names;
  cleanup_free char *reason = NULL;
  void *library = NULL;
  size_t i;

  for (i = 0; names[i] && !(library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL)); i++) {
    const char *words = dlerror();
    if (!reason)
      reason = xstrdup(words);
  }

  if (!library)
    return error_set(error, "the %s is not installed or cannot be loaded: %s", what, reason);

  array_foreach (symbol_at, symbols, n_symbols) {
    void *symbol = dlsym(library, symbol_at->name);
    if (!symbol && !symbol_at->is_optional)
      return error_set(error,
                       "%s has no %s: it is too old or not a GPU runtime; install another version",
                       names[i], symbol_at->name);
    memcpy(symbol_at->function, &symbol, sizeof symbol);
  }

  return true;
}

static bool sees_all; /* a runtime of this process was started for all GPUs */

/* The runtime that was started for one GPU, and that GPU's number in a process that sees all; NULL:
 * none was. */
static const struct gpu_api *hiding;
static int number_seen;

/* Item `number` of a list. NULL where the list is shorter, or where runtimes may count differently:
 * with GPUs that are named twice, spaces, or ids among numbers. */
static char *item_find(const char *list, int number) {
  cleanup_free char *items = xstrdup(list), *all = xasprintf(",%s,", list);
  bool are_numbers = strspn(list, "0123456789,") == strlen(list);
  char *rest = items, *item;

  while ((item = strsep(&rest, ","))) {
    cleanup_free char *between = xasprintf(",%s,", item);
    bool is_clear = are_numbers ? *item && (item[0] != '0' || !item[1])
                                : string_starts(item, "GPU-") && !strchr(item, ' ');
    bool is_first = strstr(all, between) == all + (item - items);
    if (!is_clear || !is_first)
      return NULL;
    if (number-- == 0)
      return xstrdup(item);
  }

  return NULL;
}

bool gpu_start(const struct gpu_api *api, struct error *error) {
  if (hiding)
    return error_set(error, "this process was started for %s%d and sees no other GPU",
                     hiding->ops->backend, number_seen);
  if (!api->load(error))
    return false;
  sees_all = true;
  return true;
}

bool gpu_start_for(const struct gpu_api *api, const char *name, int *ret_ordinal,
                   struct error *error) {
  const char *digits = name + strlen(api->ops->backend);
  size_t length = strspn(digits, "0123456789");
  int n = 0, number = length < 1 || length > 4 || digits[length] ? NUMBER_NONE : atoi(digits);

  /* A variable that is set is changed only where it is certain that it lists that GPU. */
  if (!sees_all && !hiding && number != NUMBER_NONE) {
    const char *list = NULL;
    for (size_t i = 0; !list && api->visible_variables[i]; i++)
      list = getenv(api->visible_variables[i]);
    cleanup_free char *item = list ? item_find(list, number) : xasprintf("%d", number);
    if (item && setenv(api->visible_variables[0], item, 1) == 0) {
      hiding = api;
      number_seen = number;
    }
  }

  if (hiding && (hiding != api || number != number_seen))
    return error_set(error, "no device %s: this process was started for %s%d and sees no other GPU",
                     name, hiding->ops->backend, number_seen);
  if (!api->load(error) || !gpu_check(api, api->device_count(&n), error, "counting the GPUs"))
    return error_prefix(error, "no device %s: ", name);

  sees_all = !hiding;

  /* If the variable has no effect, all GPUs are visible and keep their numbers. */
  if (hiding && n == 1)
    number = 0;
  else if (number == NUMBER_NONE || number >= n)
    return error_set(error, "no device %s: the %s sees %d GPU%s, counted from 0", name,
                     api->library, n, n == 1 ? "" : "s");

  *ret_ordinal = number;
  return true;
}

struct process {
  char name[NAME_MAX_LENGTH];
  int parent, session;
};

/* False when there is no such process. The name is in brackets and may contain brackets. */
static bool process_read(int64_t pid, struct process *ret) {
  char path[64], line[STAT_MAX];
  snprintf(path, sizeof path, "/proc/%lld/stat", (long long)pid);
  cleanup_file FILE *file = fopen(path, "re");
  if (!file || !fgets(line, sizeof line, file))
    return false;

  char *begin = strchr(line, '('), *end = strrchr(line, ')');
  if (!begin || !end || end - begin >= NAME_MAX_LENGTH ||
      sscanf(end + 1, " %*c %d %*d %d", &ret->parent, &ret->session) != 2)
    return false;
  *end = '\0';
  snprintf(ret->name, sizeof ret->name, "%s", begin + 1);
  return true;
}

/* Names are no criterion: a process chooses its own. What workers start cannot leave their session
 * (common/program/sandbox.c). Where the agent is the first process of a container, and so an
 * ancestor of all, other programs have sessions of their own. */
bool gpu_process_is_own(int64_t pid) {
  struct process own, process;
  if (pid == getpid())
    return true;
  if (!process_read(getpid(), &own) || !process_read(pid, &process) ||
      process.session != own.session)
    return false;
  for (int i = 0; i < ANCESTORS_MAX && process.parent > 0; i++) {
    if (process.parent == own.parent)
      return true;
    if (!process_read(process.parent, &process))
      return false;
  }
  return false;
}

bool gpu_process_is_other(int64_t pid) {
  bool has_ended = kill((pid_t)pid, 0) != 0 && errno == ESRCH;
  return !has_ended && !gpu_process_is_own(pid);
}

bool gpu_processes_are_named(struct error *error) {
  char link[64] = "";
  const char *expected = getenv("WAVETUNE_PID_NAMESPACE");
  ssize_t length = readlink("/proc/self/ns/pid", link, sizeof link - 1);
  if (!expected || !*expected)
    expected = FIRST_PID_NAMESPACE;
  return (length > 0 && string_equal(link, expected)) ||
         error_set(error, "this container has process ids of its own, so that other processes "
                          "cannot be told from the agent's: start it with --pid=host (Kubernetes: "
                          "hostPID: true), or use --busy-file instead");
}

struct device_user gpu_process_user(int64_t pid) {
  struct process process;
  struct device_user user = {.pid = pid};
  if (pid && process_read(pid, &process))
    snprintf(user.name, sizeof user.name, "%.31s", process.name);
  for (char *at = user.name; *at; at++)
    if ((unsigned char)*at < 0x20 || (unsigned char)*at >= 0x7f)
      *at = '?';
  return user;
}

/* The beginning of a process's arguments; 0: it has none, or has ended. */
static size_t arguments_read(int64_t pid, char arguments[ARGUMENTS_MAX]) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%lld/cmdline", (long long)pid);
  cleanup_file FILE *file = fopen(path, "re");
  return file ? fread(arguments, 1, ARGUMENTS_MAX, file) : 0;
}

size_t gpu_process_siblings(void) {
  char own_arguments[ARGUMENTS_MAX], arguments[ARGUMENTS_MAX];
  size_t own_length = arguments_read(getpid(), own_arguments), n = 0;
  DIR *entries = opendir("/proc");
  struct dirent *entry;
  struct process process;

  while (entries && (entry = readdir(entries))) {
    int64_t pid = atoll(entry->d_name); /* 0 for other names */
    n += pid > 0 && pid != getpid() && process_read(pid, &process) && process.parent == getppid() &&
         arguments_read(pid, arguments) == own_length &&
         memcmp(arguments, own_arguments, own_length) == 0;
  }

  if (entries)
    closedir(entries);
  return n;
}

size_t gpu_processes_others(size_t n, size_t n_own, size_t n_siblings) {
  size_t ours = n_own ? n_own : 1 + n_siblings;
  return n > ours ? n - ours : 0;
}

void gpu_processes_set(json_t *conditions, size_t n, size_t n_own) {
  size_t others = gpu_processes_others(n, n_own, n_own ? 0 : gpu_process_siblings());
  json_put(conditions, "processes", json_integer((json_int_t)others));
}

void gpu_fact_set(json_t *facts, const char *name, int64_t value) {
  if (value > 0)
    json_put(facts, name, json_integer(value));
}
