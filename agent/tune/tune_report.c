/* The answers of `tune`. Memory and threads: the header. */
#include "agent/tune/tune_report.h"

#include <errno.h>

#include "common/verdict/report.h"

static json_t *outcomes_to_json(const struct key_tuning *key) {
  int64_t counts[OUTCOME_COUNT] = {0};
  json_t *outcomes = json_object();
  for (size_t i = 0; i < key->n; i++)
    counts[key->configs[i].outcome] += key->configs[i].is_measured;
  for (size_t i = 0; i < OUTCOME_COUNT; i++) {
    if (counts[i])
      json_object_set_new(outcomes, outcome_name((enum outcome)i), json_integer(counts[i]));
  }
  return outcomes;
}

/* {"runtime": [3, 15]}: the configs that are not correct, in rising order. */
static json_t *failed_to_json(const struct key_tuning *key) {
  json_t *failed = json_object();
  for (size_t i = 0; i < key->n; i++) {
    const struct key_config *config = &key->configs[i];
    if (!config->is_measured || config->outcome == OUTCOME_CORRECT)
      continue;
    const char *name = outcome_name(config->outcome);
    if (!json_object_get(failed, name))
      json_object_set_new(failed, name, json_array());
    json_array_append_new(json_object_get(failed, name), json_integer((json_int_t)config->config));
  }
  return failed;
}

static json_t *examples_to_json(const struct key_tuning *key) {
  json_t *examples = json_object();
  for (size_t i = 0; i < OUTCOME_COUNT; i++) {
    if (key->examples[i])
      json_object_set_new(examples, outcome_name((enum outcome)i), json_string(key->examples[i]));
  }
  return examples;
}

static json_t *seconds_to_json(const struct key_tuning *key) {
  json_t *seconds = json_object();
  for (size_t i = 0; i < STAGE_COUNT; i++)
    json_object_set_new(seconds, stage_name((enum stage)i), json_real(key->seconds[i]));
  return seconds;
}

/* The winner's code: {"vgprs": 112, "spills": 0, "lds_bytes": 8192, "occupancy": 2}, known members
 * only; NULL when nothing is known. */
static json_t *code_to_json(const struct key_tuning *key) {
  const struct key_code *code = NULL;
  for (size_t i = 0; i < key->n_codes && !code; i++)
    code = key->codes[i].config == key->verdict.winner ? &key->codes[i] : NULL;
  if (!code || code->vgprs == FIELD_NONE)
    return NULL;
  json_t *json = json_object();
  json_object_set_new(json, "vgprs", json_integer(code->vgprs));
  json_object_set_new(json, "spills", json_integer(code->spills));
  if (code->lds_bytes != FIELD_NONE)
    json_object_set_new(json, "lds_bytes", json_integer(code->lds_bytes));
  if (code->occupancy != FIELD_NONE)
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

static void verdict_add(json_t *answer, const struct campaign *campaign,
                        const struct key_tuning *key) {
  uint64_t winner = key->verdict.winner;
  json_t *object = json_pack("{s:I, s:o}", "config", (json_int_t)winner, "config_values",
                             space_config_to_json(campaign->folder->space, winner));
  cleanup_json json_t *code = code_to_json(key);
  if (code)
    json_object_update(object, code);
  json_object_set_new(answer, "verdict", verdict_to_json(&key->verdict));
  json_object_set_new(answer, "winner", object);
}

static json_int_t measured_count(const struct key_tuning *key) {
  json_int_t n = 0;
  for (size_t i = 0; i < key->n; i++)
    n += key->configs[i].is_measured;
  return n;
}

static void line_print(const json_t *json) {
  cleanup_free char *text = json_canonical(json);
  puts(text);
  fflush(stdout);
}

void tune_report_json(const struct campaign *campaign, const struct key_tuning *key) {
  const struct kernel_folder *folder = campaign->folder;
  json_int_t measured = measured_count(key);
  cleanup_json json_t *answer = json_pack(
      "{s:o, s:s, s:o, s:o, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:f, s:f}",
      "kernel", json_digest_text(&folder->kernel->hash), "name", folder->kernel->name, "key",
      key_to_json(&key->key), "environment", environment_to_json(&campaign->device->environment),
      "device", campaign->device->name, "regime", campaign->terms.regime, "version",
      WAVETUNE_VERSION, "configs", (json_int_t)key->n, "measured", measured, "unmeasured",
      (json_int_t)key->n - measured, "finalists", (json_int_t)key->n_finalists, "baseline",
      (json_int_t)key->baseline, "outcomes", outcomes_to_json(key), "failed", failed_to_json(key),
      "examples", examples_to_json(key), "seconds", seconds_to_json(key), "device_seconds",
      (double)key->device_us * 1e-6, "opening_seconds", (double)key->opening_us * 1e-6);
  ALWAYS(answer != NULL);
  if (key->is_decided)
    verdict_add(answer, campaign, key);
  else
    json_object_set_new(answer, "error", json_string(key->failure));
  line_print(answer);
}

void tune_report_text(const struct campaign *campaign, const struct key_tuning *key) {
  cleanup_json json_t *outcomes = outcomes_to_json(key), *verdict = verdict_to_json(&key->verdict);
  cleanup_json json_t *code = code_to_json(key);
  bool is_cut = campaign->terms.is_search && key->is_spent; /* it asked for fewer than it was to */
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
  };
  report_print(&report, stdout);
  if (code)
    code_print(code);
  for (size_t i = 0; i < OUTCOME_COUNT; i++) {
    if (key->examples[i])
      printf("%-19s e.g. %s\n", outcome_name((enum outcome)i), key->examples[i]);
  }
  if (campaign->n > 1)
    putchar('\n');
  fflush(stdout);
}

void tune_report_campaign(const struct campaign *campaign, double seconds, bool is_json) {
  size_t failed = 0;
  for (size_t i = 0; i < campaign->n; i++)
    failed += !campaign->keys[i].is_decided;
  if (!is_json) {
    printf("%zu of %zu keys have a winner, after %.1f s\n", campaign->n - failed, campaign->n,
           seconds);
    return;
  }
  cleanup_json json_t *line = json_pack(
      "{s:{s:I, s:I, s:f, s:I, s:o}}", "campaign", "keys", (json_int_t)campaign->n, "failed",
      (json_int_t)failed, "seconds", seconds, "processes", (json_int_t)campaign_processes(campaign),
      "spent", executor_spent_to_json(&campaign->executor->spent));
  ALWAYS(line != NULL);
  line_print(line);
}

/* Samples. Each line is flushed: what was measured is on the disk when the command is killed. */

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

/* A measurement with all its members: null where it has none. */
static json_t *measurement_write(const struct lease *lease, const struct measurement *measurement) {
  struct measurement whole = *measurement; /* borrows what that one points to */
  double none[1];
  if (!whole.samples_us.all)
    whole.samples_us = whole.baseline_us = (struct numbers){0, none};
  whole.process = lease->process;
  whole.round = lease->round;
  whole.regime = lease->regime;
  json_t *json = record_write(&measurement_record, &whole);
  for (size_t i = 0; i < measurement_record.n; i++)
    if (!json_object_get(json, measurement_record.fields[i].name))
      json_object_set_new(json, measurement_record.fields[i].name, json_null());
  json_object_del(json, "seq");
  return json;
}

bool samples_file_add(struct samples_file *file, const char *device, const struct lease *lease,
                      const struct measurement *measurement, struct error *error) {
  cleanup_json json_t *line = measurement_write(lease, measurement);
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
