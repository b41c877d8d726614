/* Launch specifications as JSON. */
#include "agent/compile/launch_spec.h"

/* Larger numbers make the message invalid; smaller ones that a target cannot run give an outcome.
 */
#define THREADS_MAX (1 << 20)
#define CLUSTER_MAX 16

static bool resources_read(const json_t *value, void *to, struct error *error) {
  return code_resources_from_json(value, to, error);
}
static json_t *resources_write(const void *at) { return code_resources_to_json(at); }

static const struct field_custom resources = {.read = resources_read, .write = resources_write};

static const struct field fields[] = {
    RECORD_FIELD(TEXT, struct launch_spec, entry, FIELD_OMITTED, .most = INT32_MAX),
    RECORD_FIELD(CUSTOM, struct launch_spec, arguments, FIELD_OMITTED | FIELD_ARRAY,
                 .most = LAUNCH_ARGUMENTS_MAX, .custom = &launch_arguments_custom),
    RECORD_FIELD(CUSTOM, struct launch_spec, fills, FIELD_OMITTED | FIELD_ARRAY,
                 .most = LAUNCH_FILLS_MAX, .custom = &launch_fills_custom),
    {"scratch", FIELD_INTEGER, offsetof(struct launch_spec, n_scratch), .least = 0,
     .most = LAUNCH_SCRATCH_MAX},
    RECORD_FIELD(INTEGER, struct launch_spec, threads, .least = 0, .most = THREADS_MAX),
    RECORD_FIELD(INTEGER, struct launch_spec, shared_bytes, .least = 0, .most = INT32_MAX),
    RECORD_FIELD(INTEGER, struct launch_spec, cluster, .least = 1, .most = CLUSTER_MAX),
    RECORD_FIELD(NUMBERS, struct launch_spec, grid, FIELD_OMITTED, .least = 3, .most = 3,
                 .least_number = 0, .most_number = INT32_MAX),
    RECORD_FIELD(BOOL, struct launch_spec, cooperative, FIELD_OMITTED),
    RECORD_FIELD(CUSTOM, struct launch_spec, resources, FIELD_OBJECT, .custom = &resources),
};
static const struct record launch_spec_record = RECORD(NULL, struct launch_spec, fields);

struct launch_spec launch_spec_default(void) {
  return (struct launch_spec){.cluster = 1, .resources = code_resources_unknown};
}

json_t *launch_spec_to_json(const struct launch_spec *spec) {
  return record_write(&launch_spec_record, spec);
}

bool launch_spec_from_json(const json_t *json, struct launch_spec *ret, struct error *error) {
  *ret = launch_spec_default();
  if (record_read(&launch_spec_record, json, "", ret, error))
    return true;
  launch_spec_release(ret);
  return false;
}

struct launch_spec launch_spec_copy(const struct launch_spec *spec) {
  cleanup_json json_t *json = launch_spec_to_json(spec);
  struct launch_spec copy;
  struct error error;
  ALWAYS(launch_spec_from_json(json, &copy, &error));
  return copy;
}

void launch_spec_release(struct launch_spec *spec) {
  record_release(&launch_spec_record, spec);
  *spec = launch_spec_default();
}

static bool spec_read(const json_t *value, void *to, struct error *error) {
  return launch_spec_from_json(value, to, error);
}
static json_t *spec_write(const void *at) { return launch_spec_to_json(at); }
static void spec_release(void *at) { launch_spec_release(at); }

const struct field_custom launch_spec_custom = {
    .read = spec_read, .write = spec_write, .release = spec_release};
