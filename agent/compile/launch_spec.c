/* Launch specifications as JSON. A spec owns its strings; any thread. */
#include "agent/compile/launch_spec.h"

#include "common/kernel/kernel.h"

/* what a target can run is decided later: that is an outcome, this a wrong message */
#define THREADS_MAX (1 << 20)
#define SHARED_BYTES_MAX INT32_MAX
#define CLUSTER_MAX 16

struct launch_spec launch_spec_default(void) {
  return (struct launch_spec){.cluster = 1, .resources = code_resources_unknown};
}

static json_t *arguments_to_json(const struct launch_spec *spec) {
  json_t *arguments = json_array();
  for (size_t i = 0; i < spec->n_arguments; i++)
    ALWAYS(json_array_append_new(arguments, json_string(spec->arguments[i])) == 0);
  return arguments;
}

static void integer_add(json_t *json, const char *name, int64_t value, int64_t usual) {
  if (value != usual)
    json_object_set_new(json, name, json_integer(value));
}

json_t *launch_spec_to_json(const struct launch_spec *spec) {
  json_t *json = json_object();
  cleanup_json json_t *resources = code_resources_to_json(&spec->resources);
  if (spec->entry)
    ALWAYS(json_object_set_new(json, "entry", json_string(spec->entry)) == 0);
  if (spec->arguments)
    json_object_set_new(json, "arguments", arguments_to_json(spec));
  integer_add(json, "scratch", spec->n_scratch, 0);
  integer_add(json, "threads", spec->threads, 0);
  integer_add(json, "shared_bytes", spec->shared_bytes, 0);
  integer_add(json, "cluster", spec->cluster, 1);
  if (spec->cooperative)
    json_object_set_new(json, "cooperative", json_true());
  if (json_object_size(resources))
    json_object_set(json, "resources", resources);
  return json;
}

static bool arguments_read(const json_t *json, struct launch_spec *spec, struct error *error) {
  json_t *arguments = NULL, *item;
  size_t i;
  if (!json_get_array(json, "", "arguments", JSON_OPTIONAL, &arguments, error))
    return false;
  if (!arguments)
    return true;
  if (json_array_size(arguments) > KERNEL_ARGUMENTS_MAX)
    return error_at(error, "/arguments", "at most %d arguments can be passed",
                    KERNEL_ARGUMENTS_MAX);
  spec->arguments = xcalloc(KERNEL_ARGUMENTS_MAX, sizeof *spec->arguments);
  json_array_foreach (arguments, i, item) {
    if (!json_is_string(item))
      return error_at(error, "/arguments", "\"arguments\" must be the names of manifest arguments");
    spec->arguments[spec->n_arguments++] = xstrdup(json_string_value(item));
  }
  return true;
}

static bool spec_read(const json_t *json, struct launch_spec *spec, struct error *error) {
  static const char *const members[] = {"entry",   "arguments",    "scratch",
                                        "threads", "shared_bytes", "cooperative",
                                        "cluster", "resources",    NULL};
  const char *entry = NULL;
  json_t *resources = NULL;
  if (!json_only_members(json, "", members, error) ||
      !json_get_string(json, "", "entry", JSON_OPTIONAL, &entry, error) ||
      !arguments_read(json, spec, error) ||
      !json_get_integer(json, "", "scratch", JSON_OPTIONAL, 0, LAUNCH_SCRATCH_MAX, &spec->n_scratch,
                        error) ||
      !json_get_integer(json, "", "threads", JSON_OPTIONAL, 0, THREADS_MAX, &spec->threads,
                        error) ||
      !json_get_integer(json, "", "shared_bytes", JSON_OPTIONAL, 0, SHARED_BYTES_MAX,
                        &spec->shared_bytes, error) ||
      !json_get_integer(json, "", "cluster", JSON_OPTIONAL, 1, CLUSTER_MAX, &spec->cluster,
                        error) ||
      !json_get_bool(json, "", "cooperative", JSON_OPTIONAL, &spec->cooperative, error) ||
      !json_get_object(json, "", "resources", JSON_OPTIONAL, &resources, error))
    return false;
  if (resources && !code_resources_from_json(resources, &spec->resources, error))
    return error_pointer_prefix(error, "/resources");
  spec->entry = entry ? xstrdup(entry) : NULL;
  return true;
}

bool launch_spec_from_json(const json_t *json, struct launch_spec *ret, struct error *error) {
  struct launch_spec spec = launch_spec_default();
  if (!spec_read(json, &spec, error)) {
    launch_spec_release(&spec);
    return false;
  }
  *ret = spec;
  return true;
}

void launch_spec_release(struct launch_spec *spec) {
  free(spec->entry);
  for (size_t i = 0; i < spec->n_arguments; i++)
    free(spec->arguments[i]);
  free(spec->arguments);
  *spec = launch_spec_default();
}
