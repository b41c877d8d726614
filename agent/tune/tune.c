/* `tune`: one key or a campaign of many on one device of this machine, without a server: screens,
 * finals, verdicts.
 *
 * Memory: a tuning owns what it learns until the command ends. Threads: the supervisor's working
 * thread. */
#include <math.h>

#include "agent/compile/sources.h"
#include "agent/lease/lease.h"
#include "agent/commands.h"
#include "agent/tune/campaign.h"
#include "agent/tune/profile.h"
#include "agent/tune/tune_report.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "common/verdict/budget.h"

#define MARGIN_ROUNDS 20       /* before anyone leaves --exhaustive by its margin */
#define MARGIN_PERCENT_MAX 100 /* who is beyond that leaves after one round: RACE_FAR */
#define BUDGET_SECONDS_MAX 1e6
#define KEYS_MAX 100000
#define KEYS_FILE_MAX ((size_t)64 << 20)

#define TUNING_MAGIC 0x54554e45u
struct tuning {
  uint32_t magic;
  const struct options *options;
  struct supervisor *supervisor;
  struct devices devices;
  struct kernel_folder *folder;
  char *faults;            /* folder of what a debug agent says */
  json_t *build;           /* of a triton kernel; NULL else */
  struct cgroups *cgroups; /* NULL: workers have none of their own */
  struct compile_pool *pool;
  struct executor executor;
  struct campaign campaign;
  bool is_many; /* keys come from a file: one that cannot be tuned does not end the others */
  size_t n_failed;
};

static void tuning_release(struct tuning *tuning) {
  struct campaign *campaign = &tuning->campaign;
  executor_drop_workers(&tuning->executor);
  for (size_t i = 0; i < campaign->n; i++)
    key_tuning_release(&campaign->keys[i]);
  free(campaign->keys);
  free(campaign->sources);
  if (campaign->samples)
    samples_file_free(campaign->samples);
  if (campaign->build)
    build_code_free(campaign->build);
  if (tuning->pool)
    compile_pool_free(tuning->pool);
  if (tuning->cgroups)
    cgroups_free(tuning->cgroups);
  json_decref(tuning->build);
  free(tuning->faults);
  if (tuning->folder)
    kernel_folder_free(tuning->folder);
  devices_release(&tuning->devices);
}

/* Reading */

static bool file_of_folder(void *context, const struct source *source, char **ret_bytes,
                           size_t *ret_size, struct error *error) {
  const struct kernel_folder *folder = context;
  for (size_t i = 0; i < folder->n_files; i++) {
    const struct kernel_file *file = &folder->files[i];
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
  enum language language = tuning->folder->kernel->language;
  const struct device_seen **device = &tuning->campaign.device;
  struct error reason;
  if (!devices_find(&tuning->devices, name, device, error))
    return false;
  bool fits = language_fits(language, device_is_gpu(*device), &reason);
  for (size_t i = 1; !name && !fits && i < tuning->devices.n; i++) {
    *device = &tuning->devices.seen[i];
    fits = language_fits(language, device_is_gpu(*device), &reason);
  }
  cleanup_free char *absent = devices_absent(&tuning->devices);
  return fits || error_set(error, "%s cannot be tuned on %s: %s%s%s", tuning->folder->kernel->name,
                           (*device)->name, reason.message, absent[0] ? "; " : "", absent);
}

static bool build_choose(struct tuning *tuning, struct error *error) {
  const char *folder = option_text(tuning->options, "build");
  const struct kernel *kernel = tuning->folder->kernel;
  bool is_needed = kernel->language == LANGUAGE_TRITON;
  if (is_needed && !folder)
    return error_set(error,
                     "%s is compiled ahead of time: pack it for this key with `python3 -m wavetune "
                     "pack` and give "
                     "the folder that this writes with --build",
                     kernel->name);
  if (!is_needed && folder)
    return error_set(error, "%s is in %s, which is compiled here: it takes no --build",
                     kernel->name, language_name(kernel->language));
  return !folder || build_folder_read(folder, &tuning->build, error);
}

static bool budget_read(const struct options *options, int64_t *ret_us, struct error *error) {
  const char *text = option_text(options, "budget");
  char *end;
  if (!text)
    return true;
  double seconds = strtod(text, &end);
  if (end == text || *end || !(seconds >= BUDGET_LEAST_US * 1e-6) || seconds > BUDGET_SECONDS_MAX)
    return error_set(
        error,
        "--budget must be a number of seconds from %g, which any final takes, to %g, not \"%.40s\"",
        BUDGET_LEAST_US * 1e-6, BUDGET_SECONDS_MAX, text);
  *ret_us = (int64_t)ceil(seconds * 1e6);
  return true;
}

static bool search_read(const struct options *options, struct campaign_terms *terms,
                        struct error *error) {
  const char *name = option_text(options, "search");
  terms->is_search = name != NULL;
  terms->trials = (uint64_t)option_integer(options, "trials");
  return !name || search_strategy_parse(name, &terms->strategy) ||
         error_set(error, "--search must be random, descent or evolution, not \"%.40s\"", name);
}

static bool terms_read(const struct options *options, struct campaign_terms *terms,
                       struct error *error) {
  *terms = (struct campaign_terms){
      .processes = option_integer(options, "processes"),
      .finalists = (size_t)option_integer(options, "finalists"),
      .seed = option_integer(options, "seed"),
      .regime = option_text(options, "regime"),
      .is_exhaustive = option_integer(options, "exhaustive") > 0,
  };
  if (!string_equal(terms->regime, "cold") && !string_equal(terms->regime, "warm"))
    return error_set(error, "--regime must be cold or warm, not \"%.40s\"", terms->regime);
  if (!budget_read(options, &terms->budget_us, error) || !search_read(options, terms, error))
    return false;
  if (!terms->is_exhaustive && option_integer(options, "margin"))
    return error_set(error, "--margin says who leaves --exhaustive: give both, or neither");
  if (terms->is_exhaustive && (terms->is_search || terms->budget_us))
    return error_set(
        error,
        "--exhaustive measures every config to the end: it takes neither --search nor --budget");
  if (terms->is_search && option_integer(options, "only") >= 0)
    return error_set(error, "--only measures one config: it takes no --search");
  return !option_text(options, "profile") || !option_text(options, "keys") ||
         error_set(error,
                   "--profile runs the winner of one key: give that with --key, without --keys");
}

static char *job_text(const struct kernel *kernel, const struct key *key) {
  char digest[DIGEST_TEXT_SIZE];
  cleanup_json json_t *json = key_to_json(key);
  cleanup_free char *text = json_canonical(json);
  return xasprintf("%s %s", digest_format(&kernel->hash, digest), text);
}

static bool key_list(const struct tuning *tuning, struct key_tuning *key, struct error *error) {
  const struct campaign *campaign = &tuning->campaign;
  const struct space *space = tuning->folder->space;
  struct space_facts facts = campaign_space_facts(campaign, key);
  if (campaign->terms.is_search)
    return key_tuning_find_baseline(key, space, &facts, error);
  if (!key_tuning_list(key, space, &facts, option_integer(tuning->options, "only"), error))
    return false;
  return !campaign->terms.is_exhaustive || key->n <= CAMPAIGN_EXHAUSTIVE_MAX ||
         error_set(error,
                   "%zu points of the space hold, and --exhaustive measures at most %u; narrow the "
                   "space with "
                   "conditions",
                   key->n, CAMPAIGN_EXHAUSTIVE_MAX);
}

/* Keys that cannot be tuned are failures of a campaign; a single one is refused. */
static bool keys_list(struct tuning *tuning, struct error *error) {
  struct campaign *campaign = &tuning->campaign;
  for (size_t i = 0; i < campaign->n; i++) {
    struct key_tuning *key = &campaign->keys[i];
    key->job = job_text(tuning->folder->kernel, &key->key);
    if (key_list(tuning, key, error))
      continue;
    if (!tuning->is_many)
      return false;
    key->failure = xstrdup(error->message);
  }
  return true;
}

/* The keys of --key, and of the file of --keys: one on each line, NAME=VALUE,… as --key takes it or
 * a JSON object; `#` begins a comment. */
struct reading {
  const struct kernel_folder *folder;
  size_t n, capacity;
  struct key *keys;
  json_t *seen; /* digests of the keys so far, with the numbers of their lines; 0: of --key */
};

static bool key_parse_line(const char *text, const struct kernel *kernel, struct key *ret,
                           struct error *error) {
  const char *const *names = (const char *const *)kernel->key_names;
  cleanup_json json_t *json = NULL;
  if (*text != '{')
    return key_parse_text(text, names, kernel->n_key_names, ret, error);
  return json_parse(text, strlen(text), &json, error) &&
         key_parse(json, names, kernel->n_key_names, ret, error);
}

static bool key_is_new(struct reading *reading, const struct key *key, size_t line,
                       struct error *error) {
  char text[DIGEST_TEXT_SIZE];
  struct digest digest = key_digest(key);
  const json_t *before = json_object_get(reading->seen, digest_format(&digest, text));
  if (!before) {
    ALWAYS(json_object_set_new(reading->seen, text, json_integer((json_int_t)line)) == 0);
    return true;
  }
  json_int_t number = json_integer_value(before);
  return number ? error_set(error, "this key stands in line %lld already; leave one out",
                            (long long)number)
                : error_set(error, "this key is that of --key; leave one out");
}

static bool key_add(struct reading *reading, const char *text, size_t line, struct error *error) {
  const struct kernel_folder *folder = reading->folder;
  cleanup_key struct key key = {0};
  if (!key_parse_line(text, folder->kernel, &key, error) ||
      !kernel_accepts(folder->kernel, &key, folder->space, error) ||
      !key_is_new(reading, &key, line, error))
    return false;
  if (reading->n == KEYS_MAX)
    return error_set(error, "more than %d keys; split the file", KEYS_MAX);
  GROW(reading->keys, reading->n, reading->capacity);
  reading->keys[reading->n++] = key;
  key = (struct key){0};
  return true;
}

/* The line without its comment and the blanks around it. A `#` within quotes is no comment. */
static char *line_trim(char *line) {
  char quote = '\0';
  for (char *at = line; *at; at++) {
    if (quote)
      quote = *at == quote ? '\0' : quote;
    else if (*at == '\'' || *at == '"')
      quote = *at;
    else if (*at == '#')
      *at-- = '\0';
  }
  line += strspn(line, " \t\r");
  size_t length = strlen(line);
  while (length > 0 && strchr(" \t\r", line[length - 1]))
    line[--length] = '\0';
  return line;
}

static bool file_add(struct reading *reading, const char *file, struct error *error) {
  cleanup_free char *text = NULL;
  size_t size, number = 0, n = reading->n;
  if (!file_read(file, KEYS_FILE_MAX, &text, &size, error))
    return false;
  char *rest = text;
  for (char *line; (line = strsep(&rest, "\n"));) {
    number++;
    line = line_trim(line);
    if (*line && !key_add(reading, line, number, error))
      return error_prefix(error, "%s:%zu: ", file, number);
  }
  return reading->n > n ||
         error_set(error, "%s holds no key; write one a line, e.g. %s=…", file,
                   reading->folder->kernel->n_key_names ? reading->folder->kernel->key_names[0]
                                                        : "");
}

/* Errors of the file name it and the line: no key of this kernel, the same key twice, no key at
 * all, too many. */
static bool keys_parse(const char *text, const char *file, struct reading *reading,
                       struct error *error) {
  reading->seen = json_object();
  bool ok =
      (!text || key_add(reading, text, 0, error)) && (!file || file_add(reading, file, error));
  json_decref(reading->seen);
  if (ok)
    return true;
  for (size_t i = 0; i < reading->n; i++)
    key_release(&reading->keys[i]);
  free(reading->keys);
  return false;
}

static bool keys_read(struct tuning *tuning, struct error *error) {
  const char *key = option_text(tuning->options, "key"),
             *file = option_text(tuning->options, "keys");
  const struct kernel *kernel = tuning->folder->kernel;
  struct campaign *campaign = &tuning->campaign;
  struct reading reading = {.folder = tuning->folder};
  if (!key && !file)
    return error_set(error, "give the key with --key: %s=…; or several with --keys FILE",
                     kernel->n_key_names ? kernel->key_names[0] : "");
  if (!keys_parse(key, file, &reading, error))
    return false;
  tuning->is_many = file != NULL;
  campaign->n = reading.n;
  campaign->keys = xcalloc(reading.n, sizeof *campaign->keys);
  for (size_t i = 0; i < reading.n; i++)
    campaign->keys[i].key = reading.keys[i];
  free(reading.keys);
  return true;
}

/* Everything that the user may have got wrong. */
static bool tuning_read(struct tuning *tuning, struct error *error) {
  char *const *places;
  size_t n_places = options_arguments(tuning->options, &places);
  const char *samples = option_text(tuning->options, "samples");
  if (n_places != 1)
    return error_set(
        error,
        "give one folder of a kernel: wavetune-agent tune kernels/softmax --key rows=4096,…");
  if (!kernel_folder_load(places[0], &tuning->folder, error))
    return false;
  tuning->campaign.folder = tuning->folder;
  return terms_read(tuning->options, &tuning->campaign.terms, error) && keys_read(tuning, error) &&
         build_choose(tuning, error) && device_choose(tuning, error) && keys_list(tuning, error) &&
         (!samples || samples_file_new(samples, &tuning->campaign.samples, error));
}

/* Work */

static bool build_open(struct tuning *tuning, const char *folder, struct error *error) {
  struct source_reader reader = {build_folder_blob, (void *)option_text(tuning->options, "build")};
  return build_code_new(folder, tuning->build, tuning->folder->kernel,
                        tuning->campaign.device->environment.arch, &reader, &tuning->campaign.build,
                        error);
}

static void executor_prepare(struct tuning *tuning) {
  const struct campaign_terms *terms = &tuning->campaign.terms;
  size_t workers = (size_t)terms->processes + !terms->is_exhaustive;
  int64_t rounds = option_integer(tuning->options, "exhaustive");
  tuning->executor = executor_make(tuning->options, tuning->supervisor->spawner, tuning->pool,
                                   tuning->campaign.device, tuning->faults);
  int64_t percent = option_integer(tuning->options, "margin");
  if (terms->is_exhaustive)
    tuning->executor.final =
        (struct race_terms){.rounds_min = rounds < MARGIN_ROUNDS ? rounds : MARGIN_ROUNDS,
                            .rounds_max = rounds,
                            .margin = percent ? (double)percent / 100 : INFINITY};
  tuning->campaign.executor = &tuning->executor;
  executor_start_workers(&tuning->executor,
                         workers < EXECUTOR_WORKERS ? workers : EXECUTOR_WORKERS);
}

static bool tuning_prepare(struct tuning *tuning, struct error *error) {
  const char *given = option_text(tuning->options, "state");
  cleanup_free char *state = given ? xstrdup(given) : cache_folder_default();
  cleanup_free char *objects = xasprintf("%s/objects", state),
                    *kernels = xasprintf("%s/kernels", state);
  struct source_reader reader = {file_of_folder, tuning->folder};
  if (!folder_make_private(state, error) ||
      !sources_prepare(kernels, tuning->folder->kernel, &reader, &tuning->campaign.sources,
                       error) ||
      !pool_make(tuning->options, objects, spawner_custody(tuning->supervisor->spawner),
                 &tuning->pool, error) ||
      (tuning->build && !build_open(tuning, objects, error)))
    return false;
  tuning->faults = xasprintf("%s/faults", state);
  executor_prepare(tuning);
  return true;
}

static void failure_print(const struct tuning *tuning, const struct key_tuning *key) {
  cleanup_free char *text = key_format(&key->key);
  struct error error;
  error_set(&error, "%s", key->failure);
  if (tuning->is_many)
    (void)error_prefix(&error, "%s: ", text);
  (void)command_failed("tune", EXIT_FAILED, &error);
}

static void key_ended(const struct campaign *campaign, const struct key_tuning *key,
                      void *context) {
  struct tuning *tuning = context;
  MAGIC_CHECK(tuning, TUNING_MAGIC);
  bool is_told = campaign->is_broken && string_equal(key->failure, campaign->trouble.message);
  if (option_flag(tuning->options, "json"))
    tune_report_json(campaign, key);
  else if (key->is_decided)
    tune_report_text(campaign, key);
  if (key->is_decided)
    return;
  tuning->n_failed++;
  if (!is_told)
    failure_print(tuning, key);
}

static bool profile(const struct tuning *tuning, struct error *error) {
  const char *folder = option_text(tuning->options, "profile");
  const struct campaign *campaign = &tuning->campaign;
  if (!folder || tuning->n_failed)
    return true;
  if (!profile_config(tuning->options, spawner_custody(tuning->supervisor->spawner),
                      campaign->device->name, campaign->keys[0].verdict.winner, folder, error))
    return false;
  if (log_format_now() == LOG_FORMAT_JSON)
    log_info("tune: the winner's profile is in folder=%s", folder);
  else
    fprintf(stderr, "the winner's profile is in %s\n", folder);
  return true;
}

static int tuning_run(struct tuning *tuning) {
  struct campaign *campaign = &tuning->campaign;
  struct error error;
  int64_t began_ns = clock_monotonic_ns();
  campaign->supervisor = tuning->supervisor;
  campaign->ended = key_ended;
  campaign->context = tuning;
  if (!tuning_prepare(tuning, &error))
    return command_failed("tune", EXIT_FAILED, &error);
  bool ran = campaign_run(campaign, &error);
  if (tuning->is_many)
    tune_report_campaign(campaign, (double)(clock_monotonic_ns() - began_ns) * 1e-9,
                         option_flag(tuning->options, "json"));
  if (!ran || !profile(tuning, &error))
    return command_failed("tune", EXIT_FAILED, &error);
  return tuning->n_failed ? EXIT_FAILED : EXIT_OK;
}

static int tune_work(struct supervisor *supervisor, void *context) {
  struct error error;
  struct tuning tuning = {.magic = TUNING_MAGIC, .options = context, .supervisor = supervisor};
  int code = EXIT_OK;
  if (!custody_make(tuning.options, supervisor->spawner, LOG_LEVEL_DEBUG, &tuning.cgroups, &error))
    code = command_failed("tune", EXIT_USAGE, &error);
  else if (!devices_ask(supervisor->spawner, option_text(tuning.options, "python"), &tuning.devices,
                        &error))
    code = command_failed("tune", EXIT_FAILED, &error);
  else if (!tuning_read(&tuning, &error))
    code = command_failed("tune", EXIT_USAGE, &error);
  else
    code = tuning_run(&tuning);
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
    {"key", OPTION_TEXT, "NAME=VALUE,…", NULL, 0, 0,
     "what to tune for, e.g. rows=4096,columns=1024", true},
    {"keys", OPTION_TEXT, "FILE", NULL, 0, 0, "a campaign: a key on each line, # begins a comment",
     true},
    {"json", OPTION_FLAG, NULL, NULL, 0, 0,
     "print one JSON object a key, one a line, instead of tables", false},
    {"device", OPTION_TEXT, "NAME", NULL, 0, 0,
     "the device, as probe names it; default: the first that fits", false},
    {"build", OPTION_TEXT, "FOLDER", NULL, 0, 0,
     "of a triton kernel: what `python3 -m wavetune pack` wrote", true},
    {"budget", OPTION_TEXT, "SECONDS", NULL, 0, 0,
     "of device time for each key, its finals included: opening the kernel, loading, checking and "
     "timing configs, not "
     "compiling; once a config was measured, the smallest final is too, even beyond it; default: "
     "no bound",
     true},
    {"search", OPTION_TEXT, "STRATEGY", NULL, 0, 0,
     "random, descent or evolution: looks for good configs instead of measuring the whole space",
     true},
    {"trials", OPTION_INTEGER, "N", "200", 1, SEARCH_TRIALS_MAX, "configs that --search measures",
     true},
    {"exhaustive", OPTION_INTEGER, "ROUNDS", "0", 0, 100000,
     "measure every config in every process for so many rounds; none leaves", true},
    {"margin", OPTION_INTEGER, "PERCENT", "0", 0, MARGIN_PERCENT_MAX,
     "with --exhaustive: drop a config once it is slower than the best by more than this, beyond 3 "
     "standard errors; "
     "0: keep all",
     true},
    {"samples", OPTION_TEXT, "FILE", NULL, 0, 0,
     "write every measurement there, one JSON object a line", true},
    {"finalists", OPTION_INTEGER, "N", "16", 1, 1024,
     "configs that go from the screen to the finals, at most", false},
    {"only", OPTION_INTEGER, "CONFIG", "-1", -1, INT64_MAX,
     "measure this config alone, beside the default", true},
    {"profile", OPTION_TEXT, "FOLDER", NULL, 0, 0,
     "then run the winner once under rocprof, which writes there", true},
    {"processes", OPTION_INTEGER, "N", "3", VERDICT_PROCESSES_MIN, 1000,
     "fresh processes in which the finalists are measured, at least", false},
    {"regime", OPTION_TEXT, "cold|warm", "cold", 0, 0,
     "whether data come from memory or from the caches", false},
    {"seed", OPTION_INTEGER, "N", "1", 0, INT32_MAX,
     "of the input data, of the order of trials and of --search", false},
    {"state", OPTION_TEXT, "FOLDER", NULL, 0, 0,
     "where compiled objects are kept; default: ~/.cache/wavetune", false},
    MEASURE_OPTIONS,
};

const struct command_spec tune_command = {
    .name = "tune",
    .arguments = "DIR[:VERSION]",
    .summary = "tune a kernel on this machine, without a server",
    .description = "Every config of the kernel's space is compiled, checked against the reference "
                   "and raced in pairs "
                   "with the default; those that cannot win leave. The rest go to finals in fresh "
                   "processes, which "
                   "decide the winner, the configs that are as good, and how much faster another "
                   "finalist could still be. Where "
                   "that stays open, they are measured in more processes.\nWith --keys the keys "
                   "share processes, and "
                   "each begins with what won for its nearest neighbours. A key that fails does "
                   "not end the others; "
                   "the exit code is 1 then.",
    .options = tune_options,
    .n_options = ARRAY_LENGTH(tune_options),
    .run = tune_run,
};
