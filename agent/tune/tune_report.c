/* The reports of `tune`: tables, lines of JSON, and the file of --samples. */
#include "agent/tune/campaign.h"

#include <errno.h>

#include "common/verdict/report.h"

/* The number of configs with each outcome, and in rising order the configs with each outcome but
 * "correct": {"correct": 90, "runtime": 2} and {"runtime": [3, 15]} (new references). */
static void outcomes_to_json(const struct key_tuning *key, json_t **ret_outcomes,
                             json_t **ret_failed) {
  json_t *outcomes = *ret_outcomes = json_object(), *failed = *ret_failed = json_object();
  for (size_t i = 0; i < OUTCOME_COUNT; i++) {
    const char *name = outcome_name((enum outcome)i);
    json_t *configs = json_array();
    array_foreach (config_at, key->configs, key->n)
      if (config_at->is_measured && config_at->outcome == i)
        json_push(configs, json_integer((json_int_t)config_at->config));

    size_t n = json_array_size(configs);
    if (n)
      json_put(outcomes, name, json_integer((json_int_t)n));
    if (n && i != OUTCOME_CORRECT)
      json_object_set(failed, name, configs);
    json_decref(configs);
  }
}

/* The number of configs of each class, where the kernel has no reference; NULL: it has one. */
static json_t *agreements_to_json(const struct key_tuning *key) {
  json_t *json = NULL;
  array_foreach (config, key->configs, key->n) {
    const char *class = agreement_class(&config->agreement);
    if (string_equal(class, agreement_name(AGREEMENT_NONE)))
      continue;
    json = json ? json : json_object();
    json_put(json, class, json_integer(json_integer_value(json_object_get(json, class)) + 1));
  }
  return json;
}

/* Facts about code: their members in JSON, and how they are printed. */
static const struct {
  const char *name;
  size_t offset;
  const char *format;
} code_facts[] = {
    {"vgprs", offsetof(struct key_code, vgprs), "%lld registers"},
    {"spills", offsetof(struct key_code, spills), ", %lld spills"},
    {"lds_bytes", offsetof(struct key_code, lds_bytes), ", %lld bytes of LDS"},
    {"occupancy", offsetof(struct key_code, occupancy), ", %lld workgroups to a compute unit"},
};

static int64_t code_fact(const struct key_code *code, size_t i) {
  return *(const int64_t *)((const char *)code + code_facts[i].offset);
}

/* The winner's code; NULL when nothing is known of it. */
static const struct key_code *winner_code(const struct key_tuning *key) {
  array_foreach (code, key->codes, key->n_codes)
    if (code->config == key->verdict.winner)
      return code->vgprs == FIELD_NONE ? NULL : code;
  return NULL;
}

static void line_print(const json_t *json) {
  cleanup_free char *text = json_canonical(json);
  puts(text);
  fflush(stdout);
}

void tune_report_json(const struct campaign *campaign, const struct key_tuning *key) {
  const struct kernel_folder *folder = campaign->folder;
  json_t *examples = json_object(), *seconds = json_object(), *outcomes, *failed;
  json_int_t measured = 0;
  array_foreach (config, key->configs, key->n)
    measured += config->is_measured;

  /* json_object_set_new leaves out a text that is not UTF-8, here and below. */
  for (size_t i = 0; i < OUTCOME_COUNT; i++)
    if (key->examples[i])
      json_object_set_new(examples, outcome_name((enum outcome)i), json_string(key->examples[i]));
  for (size_t i = 0; i < STAGE_COUNT; i++)
    json_put(seconds, stage_name((enum stage)i), json_real(key->seconds[i]));
  outcomes_to_json(key, &outcomes, &failed);
  cleanup_json json_t *answer = json_pack(
      "{s:o, s:s, s:o, s:o, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:f, s:f, "
      "s:o*}",
      "kernel", json_digest_text(&folder->kernel->hash), "name", folder->kernel->name, "key",
      key_to_json(&key->key), "environment", environment_to_json(&campaign->device->environment),
      "device", campaign->device->name, "regime", regime_name(campaign->terms.regime), "version",
      WAVETUNE_VERSION, "configs", (json_int_t)key->n, "measured", measured, "unmeasured",
      (json_int_t)key->n - measured, "finalists", (json_int_t)key->n_finalists, "baseline",
      (json_int_t)key->baseline, "outcomes", outcomes, "failed", failed, "examples", examples,
      "seconds", seconds, "device_seconds", (double)key->device_us * 1e-6, "opening_seconds",
      (double)key->opening_us * 1e-6, "agreement", agreements_to_json(key));
  ALWAYS(answer != NULL);

  if (key->is_decided) {
    const struct key_code *code = winner_code(key);
    uint64_t config = key->verdict.winner;
    json_t *winner = json_pack("{s:I, s:o}", "config", (json_int_t)config, "config_values",
                               space_config_to_json(folder->space, config));
    for (size_t i = 0; code && i < ARRAY_LENGTH(code_facts); i++)
      if (code_fact(code, i) != FIELD_NONE)
        json_put(winner, code_facts[i].name, json_integer(code_fact(code, i)));
    const struct key_config *found = key_tuning_find(key, config);
    if (found)
      agreement_write(winner, &found->agreement);
    json_put(answer, "verdict", verdict_to_json(&key->verdict));
    json_put(answer, "winner", winner);
  } else {
    json_object_set_new(answer, "error", json_string(key->failure));
  }
  line_print(answer);
}

void tune_report_text(const struct campaign *campaign, const struct key_tuning *key) {
  cleanup_json json_t *outcomes = NULL, *failed = NULL, *verdict = verdict_to_json(&key->verdict);
  outcomes_to_json(key, &outcomes, &failed);
  const struct key_code *code = winner_code(key);
  const struct key_config *winner = key_tuning_find(key, key->verdict.winner);
  bool is_cut = campaign->terms.is_search && key->is_spent; /* it had fewer trials than planned */
  struct report report = {
      .kernel = campaign->folder->kernel,
      .key = &key->key,
      .space = campaign->folder->space,
      .gpu_name = campaign->device->environment.gpu,
      .arch = campaign->device->environment.arch,
      .baseline = key->baseline,
      .counts = {.configs = is_cut ? campaign->terms.trials : key->n,
                 .is_search = campaign->terms.is_search,
                 .outcomes = outcomes,
                 .budget_ended = key->is_spent,
                 .budget_seconds = (double)campaign->terms.budget_us * 1e-6,
                 .spent_seconds = (double)key->device_us * 1e-6,
                 .opening_seconds = (double)key->opening_us * 1e-6},
      .verdict = verdict,
      .agreement = winner ? agreement_class(&winner->agreement) : NULL,
  };
  report_print(&report, stdout);

  if (code) {
    printf("its code            ");
    for (size_t i = 0; i < ARRAY_LENGTH(code_facts); i++)
      if (code_fact(code, i) != FIELD_NONE)
        printf(code_facts[i].format, (long long)code_fact(code, i));
    putchar('\n');
  }

  for (size_t i = 0; i < OUTCOME_COUNT; i++)
    if (key->examples[i])
      printf("%-19s e.g. %s\n", outcome_name((enum outcome)i), key->examples[i]);
  if (campaign->n > 1)
    putchar('\n');
  fflush(stdout);
}

void tune_report_campaign(const struct campaign *campaign, double seconds, bool is_json) {
  size_t failed = 0;
  int64_t processes = 0; /* of the key with the most */
  array_foreach (key, campaign->keys, campaign->n) {
    failed += !key->is_decided;
    processes = key->n_processes > processes ? key->n_processes : processes;
  }

  if (!is_json) {
    printf("%zu of %zu keys have a winner, after %.1f s\n", campaign->n - failed, campaign->n,
           seconds);
    return;
  }

  cleanup_json json_t *line =
      json_pack("{s:{s:I, s:I, s:f, s:I, s:o}}", "campaign", "keys", (json_int_t)campaign->n,
                "failed", (json_int_t)failed, "seconds", seconds, "processes",
                (json_int_t)processes, "spent", executor_spent_to_json(&campaign->executor->spent));
  ALWAYS(line != NULL);
  line_print(line);
}

/* Each line is flushed, so that the file has all measurements if the command is killed. */
struct samples_file {
  char *path;
  FILE *out;
};

bool samples_file_new(const char *path, struct samples_file **ret_file, struct error *error) {
  FILE *out = fopen(path, "we");
  if (!out)
    return error_set(error, "cannot write %s: %s; name another file with --samples", path,
                     strerror(errno));
  struct samples_file *file = xcalloc(1, sizeof *file);
  *file = (struct samples_file){xstrdup(path), out};
  *ret_file = file;
  return true;
}

void samples_file_free(struct samples_file *file) {
  fclose(file->out);
  free(file->path);
  free(file);
}

bool samples_file_add(struct samples_file *file, const char *device, const struct lease *lease,
                      const struct measurement *measurement, struct error *error) {
  /* All members of a measurement; null for those that it lacks. */
  struct measurement whole = *measurement; /* borrows */
  double none[1];
  if (!whole.samples_us.all)
    whole.samples_us = whole.baseline_us = (struct numbers){0, none};
  whole.process = lease->process;
  whole.round = lease->round;
  whole.regime = lease->regime;
  cleanup_json json_t *line = record_write(&measurement_record, &whole);
  array_foreach (field, measurement_record.fields, measurement_record.n)
    if (!json_object_get(line, field->name))
      json_put(line, field->name, json_null());
  json_object_del(line, "seq");

  json_t *more =
      json_pack("{s:o, s:o, s:o, s:s, s:I, s:s, s:I}", "kernel",
                json_digest_text(&lease->kernel->hash), "key", key_to_json(&lease->key),
                "config_values", space_config_to_json(lease->space, (uint64_t)measurement->config),
                "stage", stage_name(lease->stage), "seed", (json_int_t)lease->seed, "device",
                device, "baseline", (json_int_t)lease->baseline);
  ALWAYS(more && json_object_update_new(line, more) == 0);

  json_canonical_write(file->out, line);
  putc('\n', file->out);
  return (fflush(file->out) == 0 && !ferror(file->out)) ||
         error_set(error, "cannot write %s: %s; make room, or leave --samples out", file->path,
                   strerror(errno));
}
