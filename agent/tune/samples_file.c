/* Measurements as lines of JSON. Each line is flushed: what was measured is on the disk when the command is killed.
 * Memory and threads: the header. */
#include "agent/tune/samples_file.h"

#include <errno.h>

struct samples_file {
  char *path;
  FILE *out;
};

bool samples_file_new(const char *path, struct samples_file **ret_file, struct error *error) {
  FILE *out = fopen(path, "we");
  if (!out)
    return error_set(error, "cannot write %s: %s; name another file with --samples", path, strerror(errno));
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

static json_t *times_to_json(const double *times_us, size_t n) {
  json_t *json = json_array();
  for (size_t i = 0; i < n; i++)
    ALWAYS(json_array_append_new(json, json_real(times_us[i])) == 0);
  return json;
}

static json_t *known(int64_t value) { return value == CODE_UNKNOWN ? json_null() : json_integer(value); }

bool samples_file_add(struct samples_file *file, const char *device, const struct lease *lease,
                      const struct measurement *measurement, struct error *error) {
  const struct code_resources *resources = &measurement->resources;
  bool has_code = resources->vgprs != CODE_UNKNOWN;
  cleanup_json json_t *line = json_pack(
      "{s:o, s:o, s:I, s:o, s:s, s:I, s:I, s:s, s:s, s:s?, s:s, s:I, s:o, s:o, s:s?, s:I, s:O?, s:o, s:o, s:o, s:s?}",
      "kernel", json_digest_text(&lease->kernel->hash), "key", key_to_json(&lease->key), "config",
      (json_int_t)measurement->config, "config_values", space_config_to_json(lease->space, measurement->config),
      "stage", stage_name(lease->stage), "process", (json_int_t)lease->process, "seed", (json_int_t)lease->seed,
      "device", device, "outcome", outcome_name(measurement->outcome), "timer", measurement->timer, "regime",
      lease->regime, "baseline", (json_int_t)lease->baseline, "samples_us",
      times_to_json(measurement->samples_us, measurement->n), "baseline_us",
      times_to_json(measurement->baseline_us, measurement->n), "end", measurement->end, "device_us",
      (json_int_t)measurement->device_us, "conditions", measurement->conditions, "spills",
      has_code ? json_integer(code_resources_spills(resources)) : json_null(), "lds_bytes", known(resources->lds_bytes),
      "vgprs", known(resources->vgprs), "detail", measurement->detail);
  ALWAYS(line != NULL);
  json_canonical_write(file->out, line);
  putc('\n', file->out);
  return (fflush(file->out) == 0 && !ferror(file->out)) ||
         error_set(error, "cannot write %s: %s; make room, or leave --samples out", file->path, strerror(errno));
}
