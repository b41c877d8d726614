/* `tune`: the whole campaign on one device of this machine, without a server: screen, finals, verdict, report.
 *
 * Memory: a tuning owns what it learns until the command ends. Threads: the supervisor's working thread. */
#include <inttypes.h>

#include "agent/builds.h"
#include "agent/commands.h"
#include "agent/lease_read.h"
#include "agent/measure_options.h"
#include "agent/profile.h"
#include "agent/sources.h"
#include "agent/supervise.h"
#include "common/file.h"
#include "common/finalists.h"
#include "common/kernel_folder.h"
#include "common/log.h"
#include "common/progress.h"
#include "common/report.h"
#include "common/verdict.h"

#define PIECE_CONFIGS 256
#define CONFIGS_MAX 1000000u

struct tuned {
  uint64_t config;
  enum outcome outcome;
  double ratio; /* of the screen, correct only */
};

/* The code of a finalist, as its last measurement told it. */
struct tuned_code {
  uint64_t config;
  struct code_resources resources;
  int64_t occupancy;
};

#define TUNING_MAGIC 0x54554e45u
struct tuning {
  uint32_t magic;
  const struct options *options;
  struct supervisor *supervisor;
  struct devices devices;
  const struct device_seen *device;
  struct kernel_folder *folder;
  char *sources;
  char *faults; /* folder of what a debug agent says */
  struct key key;
  uint64_t baseline, winner;
  json_t *build; /* of a triton kernel; NULL else */
  struct build_objects *objects;
  struct compile_pool *pool;
  struct executor executor;
  size_t n, capacity;
  struct tuned *tuned; /* the whole space in rising order */
  size_t n_samples, samples_capacity;
  struct verdict_sample *samples; /* of the finals; they own their arrays */
  size_t n_codes, codes_capacity;
  struct tuned_code *codes;                  /* of the finals */
  char *examples[OUTCOME_COUNT];             /* why the first config with this outcome has it */
  char *baseline_failure, *finalist_failure; /* of the first that failed; NULL else */
  struct progress progress;
  uint64_t done;
};

static void tuning_release(struct tuning *tuning) {
  executor_drop_workers(&tuning->executor);
  if (tuning->pool)
    compile_pool_free(tuning->pool);
  for (size_t i = 0; i < tuning->n_samples; i++) {
    free((double *)tuning->samples[i].samples_us);
    free((double *)tuning->samples[i].baseline_us);
  }
  free(tuning->samples);
  free(tuning->codes);
  free(tuning->tuned);
  if (tuning->objects)
    build_objects_free(tuning->objects);
  json_decref(tuning->build);
  for (size_t i = 0; i < OUTCOME_COUNT; i++)
    free(tuning->examples[i]);
  free(tuning->baseline_failure);
  free(tuning->finalist_failure);
  free(tuning->sources);
  free(tuning->faults);
  key_release(&tuning->key);
  if (tuning->folder)
    kernel_folder_free(tuning->folder);
  devices_release(&tuning->devices);
}

static struct space_facts facts_of(const struct tuning *tuning) {
  return (struct space_facts){
      .key = &tuning->key,
      .gpu_name = tuning->device->environment.gpu,
      .arch = tuning->device->environment.arch,
  };
}

/* With --only: that one config, beside the baseline. */
static bool space_narrow(struct tuning *tuning, struct error *error) {
  int64_t only = option_integer(tuning->options, "only");
  for (size_t i = 0; i < tuning->n && only >= 0; i++) {
    if (tuning->tuned[i].config != (uint64_t)only)
      continue;
    tuning->tuned[0].config = (uint64_t)only;
    tuning->n = 1;
    return true;
  }
  return only < 0 ||
         error_set(error, "config %lld of --only is no point of the space that holds for this key", (long long)only);
}

/* Lists the configs that hold, and chooses the baseline: the default, else the first. */
static bool space_list(struct tuning *tuning, struct error *error) {
  const struct space *space = tuning->folder->space;
  struct space_facts facts = facts_of(tuning);
  cleanup_space_iterator struct space_iterator *iterator = NULL;
  if (!space_iterator_new(space, &facts, SPACE_STEP_LIMIT_DEFAULT, &iterator, error))
    return false;
  enum space_step step;
  uint64_t config;
  bool has_baseline = !space->has_default;
  while ((step = space_iterator_next(iterator, &config, error)) == SPACE_POINT) {
    if (tuning->n == CONFIGS_MAX)
      return error_set(error, "more than %u points of the space hold; narrow it with conditions", CONFIGS_MAX);
    GROW(tuning->tuned, tuning->n, tuning->capacity);
    tuning->tuned[tuning->n++] = (struct tuned){.config = config};
    has_baseline = has_baseline || config == space->default_ordinal;
  }
  if (step == SPACE_ERROR)
    return false;
  if (tuning->n == 0)
    return error_set(error, "no point of the space fulfils its conditions for this key; loosen a condition or add "
                            "values");
  if (!has_baseline)
    return error_at(error, "/default",
                    "the default config is excluded by a condition for this key; every measurement "
                    "is compared with it, so choose one that holds");
  tuning->baseline = space->has_default ? space->default_ordinal : tuning->tuned[0].config;
  return space_narrow(tuning, error);
}

static bool file_of_folder(void *context, const struct source *source, char **ret_bytes, size_t *ret_size,
                           struct error *error) {
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
  struct error reason;
  if (!devices_find(&tuning->devices, name, &tuning->device, error))
    return false;
  bool fits = language_fits(language, device_is_gpu(tuning->device), &reason);
  for (size_t i = 1; !name && !fits && i < tuning->devices.n; i++) {
    tuning->device = &tuning->devices.seen[i];
    fits = language_fits(language, device_is_gpu(tuning->device), &reason);
  }
  cleanup_free char *absent = devices_absent(&tuning->devices);
  return fits || error_set(error, "%s cannot be tuned on %s: %s%s%s", tuning->folder->kernel->name,
                           tuning->device->name, reason.message, absent[0] ? "; " : "", absent);
}

static bool build_choose(struct tuning *tuning, struct error *error) {
  const char *folder = option_text(tuning->options, "build");
  const struct kernel *kernel = tuning->folder->kernel;
  bool is_needed = kernel->language == LANGUAGE_TRITON;
  if (is_needed && !folder)
    return error_set(error,
                     "%s is compiled ahead of time: pack it for this key with `python3 -m wavetune pack` and give "
                     "the folder that this writes with --build",
                     kernel->name);
  if (!is_needed && folder)
    return error_set(error, "%s is in %s, which is compiled here: it takes no --build", kernel->name,
                     language_name(kernel->language));
  return !folder || build_folder_read(folder, &tuning->build, error);
}

/* Everything that the user may have got wrong. */
static bool tuning_read(struct tuning *tuning, struct error *error) {
  char *const *places;
  size_t n_places = options_arguments(tuning->options, &places);
  const char *key = option_text(tuning->options, "key");
  const char *regime = option_text(tuning->options, "regime");
  if (n_places != 1)
    return error_set(error, "give one folder of a kernel: wavetune-agent tune kernels/softmax --key rows=4096,…");
  if (!kernel_folder_load(places[0], &tuning->folder, error))
    return false;
  const struct kernel *kernel = tuning->folder->kernel;
  if (!key)
    return error_set(error, "give the key with --key: %s=…", kernel->n_key_names ? kernel->key_names[0] : "");
  if (!string_equal(regime, "cold") && !string_equal(regime, "warm"))
    return error_set(error, "--regime must be cold or warm, not \"%.40s\"", regime);
  return key_parse_text(key, (const char *const *)kernel->key_names, kernel->n_key_names, &tuning->key, error) &&
         kernel_accepts(kernel, &tuning->key, tuning->folder->space, error) && build_choose(tuning, error) &&
         device_choose(tuning, error) && space_list(tuning, error);
}

static bool build_prepare(struct tuning *tuning, const char *folder, struct error *error) {
  struct source_reader reader = {build_folder_blob, (void *)option_text(tuning->options, "build")};
  cleanup_free uint64_t *configs = xcalloc(tuning->n + 1, sizeof *configs);
  for (size_t i = 0; i < tuning->n; i++)
    configs[i] = tuning->tuned[i].config;
  configs[tuning->n] = tuning->baseline; /* --only leaves it out of what is tuned */
  struct build_request request = {
      .kernel = tuning->folder->kernel,
      .key = &tuning->key,
      .space = tuning->folder->space,
      .gpu_name = tuning->device->environment.gpu,
      .arch = tuning->device->environment.arch,
      .n = tuning->n + 1,
      .configs = configs,
  };
  return build_objects_prepare(folder, tuning->build, &request, &reader, &tuning->objects, error);
}

static bool tuning_prepare(struct tuning *tuning, struct error *error) {
  const char *given = option_text(tuning->options, "state");
  cleanup_free char *state = given ? xstrdup(given) : cache_folder_default();
  cleanup_free char *objects = xasprintf("%s/objects", state), *kernels = xasprintf("%s/kernels", state);
  struct source_reader reader = {file_of_folder, tuning->folder};
  if (!folder_make_private(state, error) ||
      !sources_prepare(kernels, tuning->folder->kernel, &reader, &tuning->sources, error) ||
      !pool_make(tuning->options, objects, &tuning->pool, error) ||
      (tuning->build && !build_prepare(tuning, objects, error)))
    return false;
  tuning->faults = xasprintf("%s/faults", state);
  tuning->executor =
      executor_make(tuning->options, tuning->supervisor->spawner, tuning->pool, tuning->device, tuning->faults);
  return true;
}

static struct tuned *tuned_find(struct tuning *tuning, uint64_t config) {
  size_t low = 0, high = tuning->n;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (tuning->tuned[middle].config < config)
      low = middle + 1;
    else
      high = middle;
  }
  ALWAYS(low < tuning->n && tuning->tuned[low].config == config);
  return &tuning->tuned[low];
}

static void sample_add(struct tuning *tuning, int64_t process, const struct measurement *measurement) {
  size_t size = measurement->n * sizeof(double);
  const struct code_resources *resources = &measurement->resources;
  GROW(tuning->samples, tuning->n_samples, tuning->samples_capacity);
  GROW(tuning->codes, tuning->n_codes, tuning->codes_capacity);
  tuning->codes[tuning->n_codes++] = (struct tuned_code){measurement->config, *resources, measurement->occupancy};
  tuning->samples[tuning->n_samples++] = (struct verdict_sample){
      .config = measurement->config,
      .process = process,
      .n = measurement->n,
      .samples_us = xmemdup(measurement->samples_us, size),
      .baseline_us = xmemdup(measurement->baseline_us, size),
      .spills = code_resources_spills(resources),
      .lds_bytes = resources->lds_bytes > 0 ? resources->lds_bytes : 0,
      .vgprs = resources->vgprs > 0 ? resources->vgprs : 0,
  };
}

static bool tuning_measured(void *context, const struct lease *lease, const struct measurement *measurement) {
  struct tuning *tuning = context;
  MAGIC_CHECK(tuning, TUNING_MAGIC);
  bool is_correct = measurement->outcome == OUTCOME_CORRECT;
  if (!is_correct && measurement->config == lease->baseline && string_starts(measurement->detail, "baseline: ")) {
    tuning->baseline_failure = xstrdup(measurement->detail);
    return false;
  }
  struct tuned *tuned = tuned_find(tuning, measurement->config);
  if (is_correct && lease->stage == STAGE_FINAL)
    sample_add(tuning, lease->process, measurement);
  else if (is_correct)
    tuned->ratio = verdict_paired_ratio(measurement->samples_us, measurement->baseline_us, measurement->n);
  if (!is_correct || lease->stage == STAGE_SCREEN) /* what failed in one process of the finals has failed */
    tuned->outcome = measurement->outcome;
  char **example = &tuning->examples[measurement->outcome];
  if (!is_correct && !*example) {
    cleanup_free char *values = space_config_format(lease->space, measurement->config);
    *example = xasprintf("%s: %s", values, measurement->detail);
  }
  if (!is_correct && lease->stage == STAGE_FINAL && !tuning->finalist_failure)
    tuning->finalist_failure = xstrdup(measurement->detail);
  progress_show(&tuning->progress, ++tuning->done, "");
  return true;
}

static bool tuning_stopped(void *context) {
  const struct tuning *tuning = context;
  MAGIC_CHECK(tuning, TUNING_MAGIC);
  return supervisor_stopped(tuning->supervisor);
}

/* Executes a lease over `configs`, which it takes; false when the tuning cannot go on. */
static bool piece_execute(struct tuning *tuning, struct config_ranges configs, enum stage stage, int64_t process,
                          struct error *error) {
  static char nothing[] = "";
  struct lease lease = {
      .id = nothing,
      .job = nothing,
      .kernel = tuning->folder->kernel,
      .sources = tuning->sources,
      .key = tuning->key,
      .space = tuning->folder->space,
      .configs = configs,
      .baseline = tuning->baseline,
      .stage = stage,
      .process = process,
      .seed = (uint64_t)(option_integer(tuning->options, "seed") + process),
      .regime = (char *)option_text(tuning->options, "regime"),
      .objects = tuning->objects,
  };
  struct lease_hooks hooks = {.context = tuning, .measured = tuning_measured, .stopped = tuning_stopped};
  enum lease_end end = lease_execute(&tuning->executor, &lease, &hooks, error);
  config_ranges_release(&configs);
  if (tuning->baseline_failure)
    return error_set(error, "nothing can be compared: %s", tuning->baseline_failure);
  if (end == LEASE_STOPPED)
    return error_set(error, "stopped before the end; nothing was decided");
  return end == LEASE_DONE;
}

static bool screen(struct tuning *tuning, struct error *error) {
  bool ok = true;
  tuning->progress = progress_start(stderr, "screen", tuning->n);
  for (size_t at = 0; at < tuning->n && ok;) {
    struct config_ranges configs = {0};
    for (size_t i = 0; i < PIECE_CONFIGS && at < tuning->n; i++)
      config_ranges_add(&configs, tuning->tuned[at++].config);
    ok = piece_execute(tuning, configs, STAGE_SCREEN, 0, error);
  }
  progress_end(&tuning->progress);
  return ok;
}

static size_t finalists_of(const struct tuning *tuning, uint64_t *finalists, size_t most) {
  cleanup_free double *ratios = xcalloc(tuning->n, sizeof *ratios);
  cleanup_free uint64_t *configs = xcalloc(tuning->n, sizeof *configs);
  size_t n = 0;
  for (size_t i = 0; i < tuning->n; i++) {
    if (tuning->tuned[i].outcome == OUTCOME_CORRECT) {
      ratios[n] = tuning->tuned[i].ratio;
      configs[n++] = tuning->tuned[i].config;
    }
  }
  return finalists_choose(ratios, configs, n, NULL, 0, most, finalists);
}

static bool finals(struct tuning *tuning, struct error *error) {
  int64_t processes = option_integer(tuning->options, "processes");
  size_t most = (size_t)option_integer(tuning->options, "finalists");
  cleanup_free uint64_t *finalists = xcalloc(most, sizeof *finalists);
  size_t n = finalists_of(tuning, finalists, most);
  bool ok = true;
  if (n == 0)
    return error_set(error, "no config of the space is correct%s%s", tuning->examples[OUTCOME_CORRECTNESS] ? "; " : "",
                     tuning->examples[OUTCOME_CORRECTNESS] ? tuning->examples[OUTCOME_CORRECTNESS] : "");
  tuning->done = 0;
  tuning->progress = progress_start(stderr, "final", n * (uint64_t)processes);
  for (int64_t process = 0; process < processes && ok; process++) {
    struct config_ranges configs = {0};
    for (size_t i = 0; i < n; i++)
      config_ranges_add(&configs, finalists[i]);
    ok = piece_execute(tuning, configs, STAGE_FINAL, process, error);
  }
  progress_end(&tuning->progress);
  return ok;
}

static json_t *outcomes_to_json(const struct tuning *tuning) {
  int64_t counts[OUTCOME_COUNT] = {0};
  json_t *outcomes = json_object();
  for (size_t i = 0; i < tuning->n; i++)
    counts[tuning->tuned[i].outcome]++;
  for (size_t i = 0; i < OUTCOME_COUNT; i++) {
    if (counts[i])
      json_object_set_new(outcomes, outcome_name((enum outcome)i), json_integer(counts[i]));
  }
  return outcomes;
}

/* {"runtime": [3, 15]}: the configs that are not correct, in rising order. */
static json_t *failed_to_json(const struct tuning *tuning) {
  json_t *failed = json_object();
  for (size_t i = 0; i < tuning->n; i++) {
    if (tuning->tuned[i].outcome == OUTCOME_CORRECT)
      continue;
    const char *name = outcome_name(tuning->tuned[i].outcome);
    if (!json_object_get(failed, name))
      json_object_set_new(failed, name, json_array());
    json_array_append_new(json_object_get(failed, name), json_integer((json_int_t)tuning->tuned[i].config));
  }
  return failed;
}

static json_t *examples_to_json(const struct tuning *tuning) {
  json_t *examples = json_object();
  for (size_t i = 0; i < OUTCOME_COUNT; i++) {
    if (tuning->examples[i])
      json_object_set_new(examples, outcome_name((enum outcome)i), json_string(tuning->examples[i]));
  }
  return examples;
}

/* The winner's code: {"vgprs": 112, "spills": 0, "lds_bytes": 8192, "occupancy": 2}, known members only; NULL when
 * nothing is known. */
static json_t *code_to_json(const struct tuning *tuning, uint64_t winner) {
  const struct tuned_code *code = NULL;
  for (size_t i = 0; i < tuning->n_codes && !code; i++)
    code = tuning->codes[i].config == winner ? &tuning->codes[i] : NULL;
  if (!code || code->resources.vgprs == CODE_UNKNOWN)
    return NULL;
  json_t *json = json_object();
  json_object_set_new(json, "vgprs", json_integer(code->resources.vgprs));
  json_object_set_new(json, "spills", json_integer(code_resources_spills(&code->resources)));
  if (code->resources.lds_bytes != CODE_UNKNOWN)
    json_object_set_new(json, "lds_bytes", json_integer(code->resources.lds_bytes));
  if (code->occupancy != CODE_UNKNOWN)
    json_object_set_new(json, "occupancy", json_integer(code->occupancy));
  return json;
}

static void code_print(const json_t *code) {
  static const struct {
    const char *name, *format;
  } parts[] = {{"vgprs", "%lld registers"},
               {"spills", ", %lld spills"},
               {"lds_bytes", ", %lld bytes of LDS"},
               {"occupancy", ", %lld workgroups to a compute unit"}};
  printf("its code            ");
  for (size_t i = 0; i < ARRAY_LENGTH(parts); i++) {
    const json_t *value = json_object_get(code, parts[i].name);
    if (value)
      printf(parts[i].format, (long long)json_integer_value(value));
  }
  putchar('\n');
}

static void json_report(const struct tuning *tuning, const json_t *outcomes, const json_t *verdict) {
  const struct kernel_folder *folder = tuning->folder;
  uint64_t winner = (uint64_t)json_integer_value(json_object_get(verdict, "winner"));
  cleanup_json json_t *answer =
      json_pack("{s:o, s:s, s:o, s:o, s:s, s:s, s:s, s:I, s:I, s:O, s:o, s:o, s:O, s:{s:I, s:o}}", "kernel",
                json_digest_text(&folder->kernel->hash), "name", folder->kernel->name, "key", key_to_json(&tuning->key),
                "environment", environment_to_json(&tuning->device->environment), "device", tuning->device->name,
                "regime", option_text(tuning->options, "regime"), "version", WAVETUNE_VERSION, "configs",
                (json_int_t)tuning->n, "baseline", (json_int_t)tuning->baseline, "outcomes", outcomes, "failed",
                failed_to_json(tuning), "examples", examples_to_json(tuning), "verdict", verdict, "winner", "config",
                (json_int_t)winner, "config_values", space_config_to_json(folder->space, winner));
  cleanup_json json_t *code = code_to_json(tuning, winner);
  if (code)
    json_object_update(json_object_get(answer, "winner"), code);
  cleanup_free char *text = json_canonical(answer);
  puts(text);
}

static void text_report(const struct tuning *tuning, const json_t *outcomes, const json_t *verdict) {
  struct report report = {
      .kernel = tuning->folder->kernel,
      .key = &tuning->key,
      .space = tuning->folder->space,
      .gpu_name = tuning->device->environment.gpu,
      .arch = tuning->device->environment.arch,
      .baseline = tuning->baseline,
      .outcomes = outcomes,
      .verdict = verdict,
  };
  cleanup_json json_t *code = code_to_json(tuning, (uint64_t)json_integer_value(json_object_get(verdict, "winner")));
  report_print(&report, stdout);
  if (code)
    code_print(code);
  for (size_t i = 0; i < OUTCOME_COUNT; i++) {
    if (tuning->examples[i])
      printf("%-19s e.g. %s\n", outcome_name((enum outcome)i), tuning->examples[i]);
  }
}

/* The samples of configs that failed in no process, in front. */
static size_t samples_sift(struct tuning *tuning) {
  size_t n = 0;
  for (size_t i = 0; i < tuning->n_samples; i++) {
    struct verdict_sample sample = tuning->samples[i];
    if (tuned_find(tuning, sample.config)->outcome != OUTCOME_CORRECT)
      continue;
    tuning->samples[i] = tuning->samples[n];
    tuning->samples[n++] = sample;
  }
  return n;
}

static bool decide(struct tuning *tuning, struct error *error) {
  cleanup_verdict struct verdict verdict = {0};
  size_t n = samples_sift(tuning);
  if (n == 0)
    return error_set(error, "every finalist failed when it was measured again in a fresh process; one of them: %s",
                     tuning->finalist_failure);
  if (!verdict_decide(tuning->samples, n, tuning->baseline, (uint64_t)option_integer(tuning->options, "seed"), &verdict,
                      error))
    return false;
  cleanup_json json_t *json = verdict_to_json(&verdict), *outcomes = outcomes_to_json(tuning);
  if (option_flag(tuning->options, "json"))
    json_report(tuning, outcomes, json);
  else
    text_report(tuning, outcomes, json);
  tuning->winner = (uint64_t)json_integer_value(json_object_get(json, "winner"));
  return true;
}

static bool profile(const struct tuning *tuning, struct error *error) {
  const char *folder = option_text(tuning->options, "profile");
  if (!folder)
    return true;
  if (!profile_config(tuning->options, tuning->device->name, tuning->winner, folder, error))
    return false;
  fprintf(stderr, "the winner's profile is in %s\n", folder);
  return true;
}

static int tune_work(struct supervisor *supervisor, void *context) {
  struct error error;
  struct tuning tuning = {.magic = TUNING_MAGIC, .options = context, .supervisor = supervisor};
  int code = EXIT_OK;
  if (!devices_ask(supervisor->spawner, option_text(tuning.options, "python"), &tuning.devices, &error))
    code = command_failed("tune", EXIT_FAILED, &error);
  else if (!tuning_read(&tuning, &error))
    code = command_failed("tune", EXIT_USAGE, &error);
  else if (!tuning_prepare(&tuning, &error) || !screen(&tuning, &error) || !finals(&tuning, &error) ||
           !decide(&tuning, &error) || !profile(&tuning, &error))
    code = command_failed("tune", EXIT_FAILED, &error);
  tuning_release(&tuning);
  return code;
}

static int tune_run(struct options *options) {
  struct supervisor supervisor = {.work = tune_work, .context = options};
  return supervise(&supervisor);
}

static const struct option_spec tune_options[] = {
    OPTION_PYTHON,
    {"key", OPTION_TEXT, "NAME=VALUE,…", NULL, 0, 0, "what to tune for, e.g. rows=4096,columns=1024", true},
    {"json", OPTION_FLAG, NULL, NULL, 0, 0, "print one JSON object instead of a table", false},
    {"device", OPTION_TEXT, "NAME", NULL, 0, 0, "the device, as probe names it; default: the first that fits", false},
    {"build", OPTION_TEXT, "FOLDER", NULL, 0, 0, "of a triton kernel: what `python3 -m wavetune pack` wrote", true},
    {"finalists", OPTION_INTEGER, "N", "8", 1, 1024, "configs that go from the screen to the finals", false},
    {"only", OPTION_INTEGER, "CONFIG", "-1", -1, INT64_MAX, "measure this config alone, beside the default", true},
    {"profile", OPTION_TEXT, "FOLDER", NULL, 0, 0, "then run the winner once under rocprof, which writes there", true},
    {"processes", OPTION_INTEGER, "N", "3", VERDICT_PROCESSES_MIN, 1000,
     "fresh processes in which the finalists are measured", false},
    {"regime", OPTION_TEXT, "cold|warm", "cold", 0, 0, "whether data come from memory or from the caches", false},
    {"seed", OPTION_INTEGER, "N", "1", 0, INT32_MAX, "of the input data and of the order of trials", false},
    {"state", OPTION_TEXT, "FOLDER", NULL, 0, 0, "where compiled objects are kept; default: ~/.cache/wavetune", false},
    MEASURE_OPTIONS,
};

const struct command_spec tune_command = {
    .name = "tune",
    .arguments = "DIR[:VERSION]",
    .summary = "tune a kernel on this machine, without a server",
    .description = "Every config of the kernel's space is compiled, checked against the reference and timed in pairs "
                   "with the default. The fastest go to finals in fresh processes, which decide the winner, the "
                   "configs that are as good, and how much faster another could still be.",
    .options = tune_options,
    .n_options = ARRAY_LENGTH(tune_options),
    .run = tune_run,
};
