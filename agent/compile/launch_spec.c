/* Launch specifications as JSON. Memory and threads: see the header. */
#include "agent/compile/launch_spec.h"

#include "common/kernel/kernel.h"

/* Larger numbers make the message invalid. Smaller ones that a target cannot run are an outcome. */
#define THREADS_MAX (1 << 20)
#define CLUSTER_MAX 16

static bool resources_read(const json_t *value, void *to, struct error *error) {
  return code_resources_from_json(value, to, error);
}
static json_t *resources_write(const void *at) { return code_resources_to_json(at); }

static const struct field_custom resources = {.read = resources_read, .write = resources_write};

#define AT(member) offsetof(struct launch_spec, member)
static const struct field fields[] = {
    {"entry", FIELD_TEXT, AT(entry), FIELD_OMITTED, .most = INT32_MAX},
    {"arguments", FIELD_TEXTS, AT(n_arguments), FIELD_OMITTED, .most = KERNEL_ARGUMENTS_MAX},
    {"scratch", FIELD_INTEGER, AT(n_scratch), .least = 0, .most = LAUNCH_SCRATCH_MAX},
    {"threads", FIELD_INTEGER, AT(threads), .least = 0, .most = THREADS_MAX},
    {"shared_bytes", FIELD_INTEGER, AT(shared_bytes), .least = 0, .most = INT32_MAX},
    {"cluster", FIELD_INTEGER, AT(cluster), .least = 1, .most = CLUSTER_MAX},
    {"cooperative", FIELD_BOOL, AT(cooperative), FIELD_OMITTED},
    {"resources", FIELD_CUSTOM, AT(resources), FIELD_OBJECT, .custom = &resources},
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
