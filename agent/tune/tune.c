/* `tune`: one key or a campaign of many on one device of this machine, without a server: screens,
 * finals, verdicts; then, on request, the winner once more under ROCm's profiler.
 *
 * Memory: a tuning owns its results until the command ends. Threads: the supervisor's working
 * thread. */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <poll.h>

#include "agent/commands.h"
#include "agent/compile/launch_source.h"
#include "agent/compile/sources.h"
#include "agent/tune/campaign.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "common/program/command.h"
#include "common/regime/regime.h"
#include "common/verdict/budget.h"

#define MARGIN_ROUNDS 20       /* before a config leaves --exhaustive by its margin */
#define MARGIN_PERCENT_MAX 100 /* a config beyond it leaves after one round: RACE_FAR */
#define BUDGET_SECONDS_MAX 1e6
#define LINES_READ ((size_t)65536)
#define LINES_POLL_MS 100 /* between looks at whether to stop */
#define PROFILE_NEEDS_KEY "--profile runs the winner of one key: give one with --key"
#define PROFILE_MS ((int64_t)600 * 1000)

#define TUNING_MAGIC 0x54554e45u
struct tuning {
  uint32_t magic;
  const struct options *options;
  struct supervisor *supervisor;
  struct devices devices;
  char *state, *faults; /* folders: of compiled objects; of a debug agent's output */
  struct kernel_folder *folder;
  char *build_place;       /* the build's folder; NULL: none */
  json_t *build;           /* of a triton kernel; NULL else */
  struct cgroups *cgroups; /* NULL: workers have no cgroups of their own */
  struct compile_pool *pool;
  struct executor executor;
  struct campaign campaign;
  bool is_many; /* keys are from a file: one that cannot be tuned does not end the others */
  size_t n_failed;
};

/* Releases what is of one kernel; device and workers stay. */
static void kernel_release(struct tuning *tuning) {
  struct campaign *campaign = &tuning->campaign;
  array_foreach (key, campaign->keys, campaign->n)
    key_tuning_release(key);
  free(campaign->keys);
  free(campaign->sources);
  DISCARD(campaign->build, build_code_free);
  *campaign = (struct campaign){
      .terms = campaign->terms, .samples = campaign->samples, .device = campaign->device};

  json_decref(TAKE(tuning->build));
  free(TAKE(tuning->build_place));
  DISCARD(tuning->folder, kernel_folder_free);
}

static void tuning_release(struct tuning *tuning) {
  executor_drop_workers(&tuning->executor);
  kernel_release(tuning);
  DISCARD(tuning->campaign.samples, samples_file_free);
  DISCARD(tuning->pool, compile_pool_free);
  DISCARD(tuning->cgroups, cgroups_free);

  free(tuning->state);
  free(tuning->faults);
  devices_release(&tuning->devices);
}

static bool file_of_folder(void *context, const struct source *source, char **ret_bytes,
                           size_t *ret_size, struct error *error) {
  const struct kernel_folder *folder = context;
  array_foreach (file, folder->files, folder->n_files) {
    if (string_equal(file->path, source->path)) {
      *ret_bytes = xmemdup(file->bytes, file->size);
      *ret_size = file->size;
      return true;
    }
  }
  return error_set(error, "the kernel's folder has no file %s", source->path);
}

/* The device that was named, else the first on which the kernel's language runs. */
static bool device_choose(struct tuning *tuning, struct error *error) {
  const char *name = option_text(tuning->options, "device");
  const struct kernel *kernel = tuning->folder->kernel;
  const struct device_seen **device = &tuning->campaign.device;
  struct error reason;
  if (!devices_find(&tuning->devices, name, device, error))
    return false;

  for (size_t i = 1; !language_fits(kernel->language, device_is_gpu(*device), &reason); i++) {
    if (name || i >= tuning->devices.n) {
      cleanup_free char *absent = devices_absent(&tuning->devices);
      return error_set(error, "%s cannot be tuned on %s: %s%s%s", kernel->name, (*device)->name,
                       reason.message, absent[0] ? "; " : "", absent);
    }
    *device = &tuning->devices.seen[i];
  }

  return true;
}

static bool build_choose(struct tuning *tuning, struct error *error) {
  const char *folder = tuning->build_place;
  const struct kernel *kernel = tuning->folder->kernel;
  bool is_needed = kernel->language == LANGUAGE_TRITON;
  if (kernel->is_captured && !folder)
    return error_set(error,
                     "%s was captured: give the folder that `python3 -m wavetune build` wrote for "
                     "it with --build",
                     kernel->name);
  if (is_needed && !folder)
    return error_set(error,
                     "%s is compiled ahead of time: pack it for this key with `python3 -m wavetune "
                     "pack` and give the folder that this writes with --build",
                     kernel->name);
  if (!is_needed && folder)
    return error_set(error, "%s is in %s, which is compiled here: leave out --build", kernel->name,
                     language_name(kernel->language));

  return !folder || build_folder_read(folder, &tuning->build, error);
}

static bool terms_read(const struct options *options, struct campaign_terms *terms,
                       struct error *error) {
  const char *budget = option_text(options, "budget"), *search = option_text(options, "search");
  *terms = (struct campaign_terms){
      .processes = option_integer(options, "processes"),
      .finalists = (size_t)option_integer(options, "finalists"),
      .seed = option_integer(options, "seed"),
      .is_exhaustive = option_integer(options, "exhaustive") > 0,
      .is_search = search != NULL,
      .trials = (uint64_t)option_integer(options, "trials"),
  };

  if (!regime_parse(option_text(options, "regime"), &terms->regime, error))
    return error_prefix(error, "--regime: ");

  if (budget) {
    char *end;
    double seconds = strtod(budget, &end);
    if (end == budget || *end || !(seconds >= BUDGET_LEAST_US * 1e-6) ||
        seconds > BUDGET_SECONDS_MAX)
      return error_set(error,
                       "--budget must be a number of seconds from %g, which any final takes, to "
                       "%g, not \"%.40s\"",
                       BUDGET_LEAST_US * 1e-6, BUDGET_SECONDS_MAX, budget);
    terms->budget_us = (int64_t)ceil(seconds * 1e6);
  }

  if (search && !search_strategy_parse(search, &terms->strategy))
    return error_set(error, "--search must be random, descent or evolution, not \"%.40s\"", search);

  const struct {
    bool is_wrong;
    const char *reason;
  } pairs[] = {
      {!terms->is_exhaustive && option_integer(options, "margin"),
       "--margin drops configs from --exhaustive: give both, or neither"},
      {terms->is_exhaustive && (search || budget),
       "--exhaustive measures every config to the end: leave out --search and --budget"},
      {search && option_integer(options, "only") >= 0,
       "--only measures one config: leave out --search"},
      {option_text(options, "profile") &&
           (option_text(options, "keys") || !option_text(options, "key")),
       PROFILE_NEEDS_KEY},
  };

  list_foreach (pair, pairs)
    if (pair->is_wrong)
      return error_set(error, "%s", pair->reason);
  return true;
}

/* Lists the keys' configs. Keys that cannot be tuned are failures of a campaign; a single one is
 * refused. */
static bool keys_list(struct tuning *tuning, struct error *error) {
  struct campaign *campaign = &tuning->campaign;
  const struct campaign_terms *terms = &campaign->terms;
  const struct space *space = tuning->folder->space;
  char digest[DIGEST_TEXT_SIZE];
  digest_format(&tuning->folder->kernel->hash, digest);

  array_foreach (key, campaign->keys, campaign->n) {
    struct space_facts facts = campaign_space_facts(campaign, key);
    cleanup_json json_t *json = key_to_json(&key->key);
    cleanup_free char *text = json_canonical(json);
    key->job = xasprintf("%s %s", digest, text);

    bool ok = terms->is_search ? key_tuning_find_baseline(key, space, &facts, error)
                               : key_tuning_list(key, space, &facts,
                                                 option_integer(tuning->options, "only"), error);
    if (ok && terms->is_exhaustive && key->n > CAMPAIGN_EXHAUSTIVE_MAX)
      ok = error_set(error,
                     "%zu configs of the space are valid, and --exhaustive measures at most %u; "
                     "narrow the space with conditions",
                     key->n, CAMPAIGN_EXHAUSTIVE_MAX);
    if (!ok && !tuning->is_many)
      return false;
    if (!ok)
      key->failure = xstrdup(error->message);
  }

  return true;
}

/* Makes the keys those of the campaign. */
static bool keys_take(struct tuning *tuning, struct key_list *keys, struct error *error) {
  struct campaign *campaign = &tuning->campaign;
  const struct kernel_folder *folder = tuning->folder;
  if (keys->n && !kernel_accepts(folder->kernel, &keys->keys[0], folder->space, error))
    return false;
  array_foreach (key, keys->keys, keys->n)
    *APPEND(campaign->keys, campaign->n) = (struct key_tuning){.key = *key};
  keys->n = 0;
  return true;
}

/* Reads the keys of --key and of the file of --keys. */
static bool keys_read(struct tuning *tuning, struct error *error) {
  const char *text = option_text(tuning->options, "key"),
             *file = option_text(tuning->options, "keys");
  const struct kernel *kernel = tuning->folder->kernel;
  cleanup_key_list struct key_list keys = {0};
  if (!text && !file)
    return kernel->is_captured || /* those of its build */
           error_set(error, "give the key with --key: %s=…; or several with --keys FILE",
                     kernel->n_key_names ? kernel->key_names[0] : "");
  if (text && !key_list_add(&keys, text, KEY_NAMES(kernel), error))
    return false;
  if (file && !key_list_read(&keys, file, KEY_NAMES(kernel), error))
    return false;
  tuning->is_many = file || keys.n > 1;
  if (tuning->is_many && option_text(tuning->options, "profile"))
    return error_set(error, PROFILE_NEEDS_KEY);
  return keys_take(tuning, &keys, error);
}

/* Without --key and --keys a captured kernel is tuned for all keys of its build. */
static bool captured_keys_read(struct tuning *tuning, struct error *error) {
  const struct kernel *kernel = tuning->folder->kernel;
  cleanup_key_list struct key_list keys = {0};
  if (tuning->campaign.n)
    return true;

  tuning->is_many = true;
  json_elements (json_object_get(tuning->build, "variants"), i, variant)
    if (!key_list_add_json(&keys, json_object_get(variant, "key"), KEY_NAMES(kernel), error))
      return error_prefix(error, "variant %zu of the build: ", i);
  if (!keys_take(tuning, &keys, error))
    return false;
  return tuning->campaign.n || error_set(error, "the build has no variants");
}

/* Reads and checks the options and the files that they name. */
static bool tuning_read(struct tuning *tuning, struct error *error) {
  char *const *places;
  const char *samples = option_text(tuning->options, "samples"),
             *build = option_text(tuning->options, "build");
  if (options_arguments(tuning->options, &places) != 1)
    return error_set(
        error, "name one kernel folder: wavetune-agent tune kernels/softmax --key rows=4096,…");
  if (!kernel_folder_load(places[0], &tuning->folder, error) ||
      !kernel_folder_take_space(tuning->folder, option_text(tuning->options, "space"), error))
    return false;

  tuning->build_place = build ? xstrdup(build) : NULL;
  tuning->campaign.folder = tuning->folder;
  return terms_read(tuning->options, &tuning->campaign.terms, error) && keys_read(tuning, error) &&
         build_choose(tuning, error) && captured_keys_read(tuning, error) &&
         device_choose(tuning, error) && keys_list(tuning, error) &&
         (!samples || samples_file_new(samples, &tuning->campaign.samples, error));
}

/* Starts what compiles and the workers, which open the device while kernels are read. */
static bool device_open(struct tuning *tuning, struct error *error) {
  const struct options *options = tuning->options;
  const char *given = option_text(options, "state");
  struct campaign *campaign = &tuning->campaign;
  struct spawner *spawner = tuning->supervisor->spawner;
  tuning->state = given ? xstrdup(given) : cache_folder_default();
  cleanup_free char *objects = xasprintf("%s/objects", tuning->state);
  if (!folder_make_private(tuning->state, error) ||
      !pool_make(options, objects, spawner_custody(spawner), &tuning->pool, error))
    return false;

  tuning->faults = xasprintf("%s/faults", tuning->state);
  tuning->executor =
      executor_make(options, spawner, tuning->pool, campaign->device, tuning->faults);
  bool is_exhaustive = campaign->terms.is_exhaustive;
  if (is_exhaustive) {
    int64_t rounds = option_integer(options, "exhaustive"),
            percent = option_integer(options, "margin");
    tuning->executor.final =
        (struct race_terms){.rounds_min = rounds < MARGIN_ROUNDS ? rounds : MARGIN_ROUNDS,
                            .rounds_max = rounds,
                            .margin = percent ? (double)percent / 100 : INFINITY};
  }

  size_t workers = (size_t)campaign->terms.processes + !is_exhaustive;
  executor_start_workers(&tuning->executor,
                         workers < EXECUTOR_WORKERS ? workers : EXECUTOR_WORKERS);

  return true;
}

/* Gets the kernel's sources and the code of its build. */
static bool kernel_prepare(struct tuning *tuning, struct error *error) {
  struct campaign *campaign = &tuning->campaign;
  const struct kernel *kernel = tuning->folder->kernel;
  struct source_reader reader = {file_of_folder, tuning->folder},
                       build_reader = {build_folder_blob, tuning->build_place};
  cleanup_free char *objects = xasprintf("%s/objects", tuning->state),
                    *kernels = xasprintf("%s/kernels", tuning->state);
  campaign->executor = &tuning->executor;
  return sources_prepare(kernels, kernel, &reader, &campaign->sources, error) &&
         (!tuning->build ||
          build_code_new(objects, tuning->build, kernel, campaign->device->environment.arch,
                         &build_reader, &campaign->build, error));
}

static void key_ended(const struct campaign *campaign, const struct key_tuning *key,
                      void *context) {
  struct tuning *tuning = context;
  MAGIC_CHECK(tuning, TUNING_MAGIC);
  if (option_flag(tuning->options, "json"))
    tune_report_json(campaign, key);
  else if (key->is_decided)
    tune_report_text(campaign, key);
  if (key->is_decided)
    return;

  tuning->n_failed++;
  if (campaign->is_broken && string_equal(key->failure, campaign->trouble.message))
    return; /* the command ends with this error */
  cleanup_free char *text = key_format(&key->key);
  struct error error;
  error_set(&error, "%s", key->failure);
  if (tuning->is_many)
    (void)error_prefix(&error, "%s: ", text);
  (void)command_failed("tune", EXIT_FAILED, &error);
}

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

/* The command line that profiles the winner. The profiler starts a program without other open
 * files, so it cannot start a worker and starts this program's `tune --only CONFIG`. Sources: ROCm
 * documentation, "Using rocprofv3" and "rocprof command reference". */
static bool profile_words(const struct tuning *tuning, const char *folder, struct settings *words,
                          struct error *error) {
  static const char *const flags[] = {
      "--kernel-trace", "--stats", "--output-format", "csv", "-d", NULL};
  static const char *const kept[] = {"key",   "space",  "build",      "regime",
                                     "state", "python", "worker-user"};
  const struct options *options = tuning->options;
  cleanup_free char *profiler = NULL;
  char program[PATH_MAX];
  char *const *places;
  if (profiler_find("rocprofv3", &profiler)) {
    settings_add(words, TAKE(profiler));
    settings_copy(words, flags);
    settings_print(words, "%s", folder);
    settings_print(words, "--");
  } else if (profiler_find("rocprof", &profiler)) {
    settings_add(words, TAKE(profiler));
    settings_print(words, "--stats");
    settings_print(words, "-o");
    settings_print(words, "%s/profile.csv", folder);
  } else {
    return error_set(
        error,
        "there is no rocprofv3 and no rocprof in $PATH or /opt/rocm/bin; install rocprofiler-sdk");
  }

  ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
  if (length < 0)
    return error_set(error, "cannot read /proc/self/exe: %s", strerror(errno));

  ALWAYS(options_arguments(options, &places) == 1);
  settings_print(words, "%.*s", (int)length, program);
  settings_print(words, "tune");
  settings_print(words, "%s", places[0]);
  settings_print(words, "--device=%s", tuning->campaign.device->name);
  settings_print(words, "--only=%llu", (unsigned long long)tuning->campaign.keys[0].verdict.winner);
  settings_print(words, "--screen-rounds=1");
  settings_print(words, "--final-rounds=1");
  settings_print(words, "--seed=%lld", (long long)option_integer(options, "seed"));

  list_foreach (option, kept)
    if (option_text(options, *option))
      settings_print(words, "--%s=%s", *option, option_text(options, *option));
  settings_add(words, NULL);
  return true;
}

/* Runs the winner once more under the profiler. */
static bool winner_profile(const struct tuning *tuning, const char *folder, struct error *error) {
  const struct custody *custody = spawner_custody(tuning->supervisor->spawner);
  cleanup_settings struct settings words = {0}, environment = {0};
  if (!profile_words(tuning, folder, &words, error))
    return false;
  if (!folder_make(folder, 0755, error) || !custody_give(custody, folder, error))
    return false;

  cleanup_free char *path = realpath(folder, NULL);
  if (!path)
    return error_set(error, "cannot use %s: %s", folder, strerror(errno));

  /* The folder in which the profiler in the workers may write, and this process's environment. */
  settings_print(&environment, "WAVETUNE_WORKER_WRITES=%s", path);
  settings_copy(&environment, (const char *const *)environ);
  settings_add(&environment, NULL);

  /* The profiler and the agent in it run as this user; its part in workers runs as theirs. */
  const struct custody bounds = {.cgroups = custody->cgroups};
  struct command command = {
      .arguments = words.texts,
      .environment = environment.texts,
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
  if (!result.succeeded)
    return error_set(error, "%s did not profile config %llu: %.400s", words.texts[0],
                     (unsigned long long)tuning->campaign.keys[0].verdict.winner,
                     result.timed_out ? "it did not end in time" : output);
  if (log_format_now() == LOG_FORMAT_JSON)
    log_info("tune: the winner's profile is in folder=%s", folder);
  else
    fprintf(stderr, "the winner's profile is in %s\n", folder);

  return true;
}

/* Measures and reports the kernel that was read. */
static bool kernel_run(struct tuning *tuning, struct error *error) {
  struct campaign *campaign = &tuning->campaign;
  int64_t began_ns = clock_monotonic_ns();
  campaign->supervisor = tuning->supervisor;
  campaign->ended = key_ended;
  campaign->context = tuning;
  if (!kernel_prepare(tuning, error))
    return false;

  bool ran = campaign_run(campaign, error);
  if (tuning->is_many)
    tune_report_campaign(campaign, (double)(clock_monotonic_ns() - began_ns) * 1e-9,
                         option_flag(tuning->options, "json"));
  return ran;
}

/* Reads what a line of --stdin names: {"folder", "build", "keys"}. */
static bool line_read(struct tuning *tuning, const char *line, struct error *error) {
  cleanup_json json_t *json = NULL;
  cleanup_key_list struct key_list list = {0};
  if (!json_parse(line, strlen(line), &json, error))
    return false;
  const char *folder = json_text(json, "folder"), *build = json_text(json, "build");
  const json_t *keys = json_object_get(json, "keys");
  if (!folder || !json_is_array(keys) || !json_array_size(keys))
    return error_set(error, "a line of --stdin has \"folder\", \"build\" and \"keys\"");
  if (!kernel_folder_load(folder, &tuning->folder, error))
    return false;

  tuning->build_place = build ? xstrdup(build) : NULL;
  tuning->campaign.folder = tuning->folder;
  tuning->is_many = true;
  const struct kernel *kernel = tuning->folder->kernel;
  json_elements (keys, i, key)
    if (!key_list_add_json(&list, key, KEY_NAMES(kernel), error))
      return error_prefix(error, "key %zu: ", i);

  return keys_take(tuning, &list, error) &&
         language_fits(kernel->language, device_is_gpu(tuning->campaign.device), error) &&
         build_choose(tuning, error) && keys_list(tuning, error);
}

/* Tunes what a line names. A line that cannot be tuned has a line {"error"} of output. False: the
 * device cannot be used any more. */
static bool line_tune(struct tuning *tuning, const char *line) {
  struct error error;
  bool ran = line_read(tuning, line, &error) && kernel_run(tuning, &error),
       goes_on = ran || !tuning->campaign.is_broken;
  if (!ran) {
    cleanup_json json_t *json = json_pack("{s:s}", "error", error.message);
    cleanup_free char *text = json ? json_canonical(json) : xstrdup("{\"error\":\"\"}");
    puts(text);
    fflush(stdout);
  }
  kernel_release(tuning);
  return goes_on;
}

/* --stdin: kernels come as lines, until the input ends; the device stays open between them. */
static int lines_run(struct tuning *tuning) {
  cleanup_free char *text = NULL;
  size_t n = 0, capacity = 0;
  static const char *const unheeded[] = {"key", "keys", "space", "build", "samples"};
  char *const *places;
  struct error error;
  bool is_refused = options_arguments(tuning->options, &places) > 0;
  if (is_refused)
    error_set(&error, "--stdin tunes what its lines name: leave out \"%s\"", places[0]);
  for (size_t i = 0; i < ARRAY_LENGTH(unheeded) && !is_refused; i++) {
    is_refused = option_text(tuning->options, unheeded[i]);
    if (is_refused)
      error_set(&error, "--stdin tunes what its lines name: leave out --%s", unheeded[i]);
  }
  if (is_refused || !terms_read(tuning->options, &tuning->campaign.terms, &error) ||
      !devices_find(&tuning->devices, option_text(tuning->options, "device"),
                    &tuning->campaign.device, &error))
    return command_failed("tune", EXIT_USAGE, &error);
  if (!device_open(tuning, &error))
    return command_failed("tune", EXIT_FAILED, &error);

  while (!supervisor_stopped(tuning->supervisor)) {
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    if (poll(&input, 1, LINES_POLL_MS) <= 0)
      continue;
    while (capacity < n + LINES_READ + 1)
      GROW(text, capacity, capacity);
    ssize_t size = read(STDIN_FILENO, text + n, LINES_READ);
    if (size <= 0) { /* the last line need not end with a newline */
      bool ran = n == 0 || line_tune(tuning, text);
      return ran && !tuning->n_failed ? EXIT_OK : EXIT_FAILED;
    }

    n += (size_t)size;
    text[n] = '\0';
    char *line = text;
    for (char *end; (end = strchr(line, '\n')); line = end + 1) {
      *end = '\0';
      if (!line_tune(tuning, line))
        return EXIT_FAILED;
    }
    n -= (size_t)(line - text);
    memmove(text, line, n);
  }
  return EXIT_FAILED;
}

static int tune_work(struct supervisor *supervisor, void *context) {
  struct error error;
  struct tuning tuning = {.magic = TUNING_MAGIC, .options = context, .supervisor = supervisor};
  int code = EXIT_OK;
  if (!custody_make(tuning.options, supervisor->spawner, LOG_LEVEL_DEBUG, &tuning.cgroups, &error))
    code = command_failed("tune", EXIT_USAGE, &error);
  else if (!devices_query(supervisor->spawner, option_text(tuning.options, "python"),
                          &tuning.devices, &error))
    code = command_failed("tune", EXIT_FAILED, &error);
  else if (option_flag(tuning.options, "stdin"))
    code = lines_run(&tuning);
  else if (!tuning_read(&tuning, &error))
    code = command_failed("tune", EXIT_USAGE, &error);
  else if (!device_open(&tuning, &error) || !kernel_run(&tuning, &error) ||
           (option_text(tuning.options, "profile") && !tuning.n_failed &&
            !winner_profile(&tuning, option_text(tuning.options, "profile"), &error)))
    code = command_failed("tune", EXIT_FAILED, &error);
  else
    code = tuning.n_failed ? EXIT_FAILED : EXIT_OK;
  tuning_release(&tuning);

  return code;
}

static int tune_run(struct options *options) {
  struct supervisor supervisor = {.work = tune_work, .context = options};
  return supervise(&supervisor);
}

_Static_assert(FINALISTS_MAX == 16 && FINAL_PROCESSES == 3,
               "the defaults of --finalists and --processes");

static const struct option_spec tune_options[] = {
    OPTION_PYTHON,
    {"key", OPTION_TEXT, "NAME=VALUE,…|JSON",
     .help = "the key to tune for, e.g. rows=4096,columns=1024, or several: ranges and lists in "
             "'rows=1..4096*2,columns=512,1024' give all combinations",
     .flag_only = true},
    {"keys", OPTION_TEXT, "FILE|-",
     .help = "the keys of a campaign, on each line what --key takes; # begins a comment",
     .flag_only = true},
    {"space", OPTION_TEXT, "FILE", .help = "a space, as JSON, in place of the kernel folder's",
     .flag_only = true},
    {"json", OPTION_FLAG,
     .help = "print one JSON object per key, each on a line, instead of tables"},
    {"device", OPTION_TEXT, "NAME",
     .help = "the device, as probe names it; default: the first that fits"},
    {"build", OPTION_TEXT, "FOLDER",
     .help =
         "for a triton kernel: the folder that `python3 -m wavetune pack` wrote; without --key and "
         "--keys a captured kernel is tuned for all keys of the build",
     .flag_only = true},
    {"stdin", OPTION_FLAG,
     .help = "tune what lines of standard input name, {\"folder\", \"build\", \"keys\": [{…}]}, in "
             "their "
             "order until it ends; in place of DIR, --key, --keys, --space and --build, for "
             "programs that start "
             "this one",
     .flag_only = true},
    {"budget", OPTION_TEXT, "SECONDS",
     .help =
         "device time for each key, its finals included: opening the kernel, loading, checking and "
         "timing configs, not compiling; once a config was measured, the smallest final is "
         "measured "
         "even beyond it; default: no bound",
     .flag_only = true},
    {"search", OPTION_TEXT, "STRATEGY",
     .help = "search the space by random, descent or evolution instead of measuring all of it",
     .flag_only = true},
    {"trials", OPTION_INTEGER, "N", "200", 1, SEARCH_TRIALS_MAX, "configs that --search measures",
     true},
    {"exhaustive", OPTION_INTEGER, "ROUNDS", "0", 0, 100000,
     "measure every config in every process for this number of rounds; no config leaves early",
     true},
    {"margin", OPTION_INTEGER, "PERCENT", "0", 0, MARGIN_PERCENT_MAX,
     "with --exhaustive: drop a config once it is slower than the best by more than this, beyond 3 "
     "standard errors; 0: keep all",
     true},
    {"samples", OPTION_TEXT, "FILE",
     .help = "write every measurement to this file, one JSON object per line", .flag_only = true},
    {"finalists", OPTION_INTEGER, "N", "16", 1, 1024,
     "greatest number of configs that go from the screen to the finals"},
    {"only", OPTION_INTEGER, "CONFIG", "-1", -1, INT64_MAX,
     "measure only this config, beside the default", true},
    {"profile", OPTION_TEXT, "FOLDER",
     .help = "at the end, run the winner once under rocprof, which writes to this folder",
     .flag_only = true},
    {"processes", OPTION_INTEGER, "N", "3", VERDICT_PROCESSES_MIN, 1000,
     "least number of fresh processes that measure the finalists"},
    {"regime", OPTION_TEXT, REGIME_ALTERNATIVES, REGIME_IMPLIED_NAME, 0, 0,
     "whether kernels find their data in memory (cold) or in the caches (warm)"},
    {"seed", OPTION_INTEGER, "N", "1", 0, INT32_MAX,
     "seed of the input data, of the order of trials and of --search"},
    {"state", OPTION_TEXT, "FOLDER",
     .help = "the folder of compiled objects; default: ~/.cache/wavetune"},
    MEASURE_OPTIONS,
};

const struct command_spec tune_command = {
    .name = "tune",
    .arguments = "DIR[:VERSION]",
    .summary = "tune a kernel on this machine, without a server",
    .description = "Every config of the kernel's space is compiled, checked against the reference "
                   "and raced in pairs with the default; those that cannot win leave. The rest go "
                   "to finals in fresh processes, which decide the winner, the configs that are as "
                   "good, and how much faster another finalist could still be. If that remains "
                   "open, they are measured in more processes.\nSeveral keys share "
                   "processes, and each begins with the winners of its nearest neighbours. A key "
                   "that fails does not end the others; the exit code is 1 then.",
    .options = tune_options,
    .n_options = ARRAY_LENGTH(tune_options),
    .run = tune_run,
    .awaits_signals = true,
};
