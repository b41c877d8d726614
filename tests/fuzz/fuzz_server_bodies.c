/* Untrusted bodies of jobs, enrolments, imports, captures, channels, results and found configs:
 * each is refused with a sentence and a pointer, or what was read has the ranges that the SQL
 * relies on. */
#include "server/agent/agents.h"
#include "server/capture/captures.h"
#include "server/channel/channels.h"
#include "server/import/imports.h"
#include "server/job/job_request.h"
#include "server/measurement/measurements.h"
#include "server/remote/values.h"
#include "tests/fuzz/fuzz.h"

static void check_results(const json_t *json) {
  struct results results;
  struct error error = {0};
  if (!results_parse(json, &results, &error)) {
    check_refusal(&error);
    return;
  }

  ALWAYS(results.measurements.n <= RESULTS_MEASUREMENTS_MAX && results.epoch >= 1);
  for (size_t i = 0; i < results.measurements.n; i++) {
    const struct measurement *measurement = RESULTS_MEASUREMENT(&results, i);
    ALWAYS(measurement->seq >= 1 && measurement->config >= 0 && measurement->config < INT64_MAX);
    ALWAYS(measurement->samples_us.n == measurement->baseline_us.n);
    ALWAYS(measurement->outcome != OUTCOME_CORRECT || results.posted[i].ratio > 0);
    ALWAYS(measurement->outcome == OUTCOME_CORRECT || digest_is_none(&measurement->object));
    cleanup_free char *conditions =
        measurement->conditions ? json_canonical(measurement->conditions) : NULL;
    ALWAYS(!conditions || strlen(conditions) <= MEASUREMENT_CONDITIONS_MAX);
  }

  results_release(&results);
}

static void check_job(const json_t *json) {
  struct job_request request;
  struct error error = {0};
  if (!job_request_parse(json, &request, &error)) {
    check_refusal(&error);
    return;
  }
  ALWAYS(*request.tag && request.budget_ms >= 0 && request.priority >= -1000 &&
         request.priority <= 1000);
  job_request_release(&request);
}

static void check_enrolment(const json_t *json) {
  cleanup_enrolment struct enrolment enrolment = {0};
  struct error error = {0};
  if (!enrolment_parse(json, &enrolment, &error)) {
    check_refusal(&error);
    return;
  }
  ALWAYS(enrolment.devices.n >= 1 &&
         environment_is_full(&enrolment_device(&enrolment, 0)->environment, &error));
}

static void check_import(const json_t *json) {
  cleanup_import_post struct import_post post = {0};
  struct error error = {0};
  if (!import_post_parse(json, &post, &error)) {
    check_refusal(&error);
    return;
  }

  for (size_t i = 0; i < post.kernels.n; i++)
    if (!import_kernel_at(&post, i)->kernel)
      return; /* its key is only in the database */

  if (!import_post_read(&post, &error)) {
    check_refusal(&error);
    return;
  }

  ALWAYS(post.n_rows >= 1 && post.n_rows <= IMPORT_ENTRIES_MAX);
  for (size_t i = 0; i < post.n_rows; i++) {
    const struct import_row *row = &post.rows[i];
    ALWAYS(row->key[0] == '{' && row->config[0] == '{' && row->provenance[0] == '{');
    ALWAYS(row->ms[0] == '{');
    ALWAYS(i == 0 || memcmp(&row[-1].kernel, &row->kernel, sizeof row->kernel) < 0 ||
           memcmp(&row[-1].key_digest, &row->key_digest, sizeof row->key_digest) < 0);
  }
}

static void check_captures(const json_t *json) {
  cleanup_capture_report struct capture_report report = {0};
  struct error error = {0};
  if (!capture_report_parse(json, &report, &error)) {
    check_refusal(&error);
    return;
  }
  ALWAYS(report.n_functions <= CAPTURE_FUNCTIONS_MAX && report.n_launches <= CAPTURE_LAUNCHES_MAX);
  for (size_t i = 0; i < report.n_launches; i++)
    ALWAYS(report.launches[i].key[0] == '{' && !digest_is_none(&report.launches[i].digest));
}

static void check_channel_bodies(const json_t *json) {
  struct channel_move move;
  cleanup_channel_signing struct channel_signing signing = {0};
  struct error error = {0};

  if (!channel_move_parse(json, &move, &error))
    check_refusal(&error);
  else
    ALWAYS(move.signatures.n <= CHANNEL_SIGNATURES_MAX &&
           (move.counter >= 1 || !move.signatures.n));

  if (!channel_signing_parse(json, &signing, &error))
    check_refusal(&error);
  else
    ALWAYS(signing.counter >= 1 && signature_is_well_formed(signing.signature.text));
}

/* What was read and written again has the same bytes to sign. */
static void check_channel_entry(const json_t *json) {
  cleanup_channel_entry struct channel_entry entry = {0}, again = {0};
  struct error error = {0};
  size_t size, size_again;

  if (!channel_entry_parse(json, &entry, &error)) {
    check_refusal(&error);
    return;
  }

  cleanup_json json_t *written = channel_entry_to_json(&entry, true);
  ALWAYS(channel_entry_parse(written, &again, &error));
  cleanup_free char *bytes = channel_entry_signed_bytes(&entry, &size),
                    *bytes_again = channel_entry_signed_bytes(&again, &size_again);
  ALWAYS(size == size_again && memcmp(bytes, bytes_again, size) == 0 &&
         again.signatures.n == entry.signatures.n);
}

/* Whoever takes a value passes its members on to a compiler. */
static void check_found(const json_t *json) {
  struct error error = {0};
  const char *name;
  json_t *value;
  if (!remote_inductor_check(json, &error)) {
    check_refusal(&error);
  } else {
    json_object_foreach ((json_t *)json, name, value)
      ALWAYS(!json_is_array(value) && !json_is_object(value) && !json_is_real(value));
    ALWAYS(!json_object_get(json, "ir_override") && !json_object_get(json, "extra_options"));
  }

  if (!remote_helion_check(json, &error)) {
    check_refusal(&error);
  } else {
    const char *config = json_string_value(json_object_get(json, "config"));
    cleanup_json json_t *inner = json_loads(config, 0, NULL);
    ALWAYS(json_is_object(inner) && !json_object_get(inner, "advanced_controls_file"));
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  cleanup_json json_t *json = NULL;
  struct error error;

  if (!json_parse((const char *)bytes, size, &json, &error))
    return 0;
  check_results(json);
  check_job(json);
  check_enrolment(json);
  check_import(json);
  check_captures(json);
  check_channel_bodies(json);
  check_channel_entry(json);
  check_found(json);
  return 0;
}
