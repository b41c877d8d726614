/* Reading tables that were tuned elsewhere (tables.h). Without a kernel, the tables of a kind are
 * those of an external kernel whose key has the members' own names. Provenance: "source", the path,
 * "order", the config's members where they are not in the usual order, and "triton", the
 * "triton_version" in the table.
 *
 * A table that wavetune wrote is for the environment in the wavetune-tables.json above it, which
 * names the file: a table's own name does not state the partition.
 *
 * Memory and threads: format.h. */
#include "common/cache/autotuner.h"
#include "common/formats/table_exports.h"

struct reading {
  const struct table_kind *kind;
  const char *path, *triton;    /* of the file; "triton_version" or NULL */
  struct table_mapping mapping; /* kernel NULL: of an external kernel */
  struct imported_kernel *kernel;
  json_t *row;
};

static void reading_release(struct reading *reading) {
  table_mapping_release(&reading->mapping);
  json_decref(reading->row);
}

static struct imported_kernel *external_kernel(const struct table_kind *kind,
                                               struct imported *imported) {
  json_t *exports = json_object(), *key = json_array();
  for (size_t i = 0; i < kind->n_members; i++) {
    json_put(exports, kind->members[i].name, json_string(kind->members[i].name));
    json_push(key, json_string(kind->members[i].name));
  }
  return imported_external(imported, external_manifest(kind->kernel, key, kind->name, exports));
}

static char *order_of(const json_t *config) {
  cleanup_json json_t *names = config_names(config);
  return json_texts_join(names, ",");
}

static bool config_read(const struct reading *reading, const json_t *config, struct error *error) {
  const struct table_mapping *mapping = &reading->mapping;
  json_t *key = NULL;
  struct imported_entry *entry;

  if (!table_config_check(reading->kind, config, error))
    return false;
  if (!mapping->kernel)
    key = json_copy(reading->row);
  else if (!table_key_of_row(mapping, reading->row, &key, error))
    return false;
  if (!imported_entry_add(reading->kernel, key, &entry, error))
    return false;
  entry->provenance =
      json_pack("{s:o, s:s*}", "source", imported_source(reading->path), "triton", reading->triton);

  /* The config of a release is sorted by name; rendering puts the usual members first. */
  cleanup_free char *canonical = json_canonical(config);
  cleanup_json json_t *sorted = json_loads(canonical, 0, NULL);
  cleanup_json json_t *usual = table_config_ordered(sorted);
  cleanup_free char *order = order_of(config), *usual_order = order_of(usual);
  if (!string_equal(order, usual_order))
    json_put(entry->provenance, "order", json_string(order));
  if (!mapping->kernel) {
    entry->config = TAKE(sorted);
    return true;
  }
  return table_config_map(mapping, config, false, &entry->config, error);
}

/* Reads the rows of `json`, whose names are values of `member`. */
static bool rows_read(const struct reading *reading, const json_t *json,
                      const struct table_member *member, struct error *error) {
  bool is_last = member + 1 == reading->kind->members + reading->kind->n_members;
  if (!json_is_object(json))
    return error_set(error, "must be an object of rows");

  json_members (json, name, value) {
    const char *at = POINTER_MEMBER("", name);
    bool is_bound = member->value == TABLE_BOUND;
    if (table_row_number(member, name) < 0)
      return is_bound
                 ? error_at(error, at,
                            "a row must be M_LEQ_ or M_GEQ_ and a number, small_M, medium_M, "
                            "large_M or any")
                 : error_at(error, at, "a row must be a number %s, 1 to 999999999", member->name);
    json_put(reading->row, member->name,
             is_bound ? json_string(name) : json_integer(strtoll(name, NULL, 10)));
    if (!(is_last ? config_read(reading, value, error)
                  : rows_read(reading, value, member + 1, error)))
      return error_pointer_prefix(error, at);
  }
  return true;
}

/* The environment that a wavetune-tables.json of the import states for the file; *ret stays NULL
 * when none names the file. */
static bool environment_beside(const struct import_request *request, const char *path, json_t **ret,
                               struct error *error) {
  for (size_t i = 0; i < request->files->n && !*ret; i++) {
    const struct cache_file *file = &request->files->files[i];
    size_t size = (size_t)(path_name(file->path) - file->path);
    cleanup_json json_t *json = NULL;
    if (!string_equal(file->path + size, TABLES_FILE) || strncmp(path, file->path, size) != 0)
      continue;
    if (!json_parse(file->bytes, file->size, &json, error))
      return error_prefix(error, TABLES_FILE " above it is ");
    if (json_object_get(json_object_get(json, "files"), path + size))
      *ret = json_incref(json_object_get(json, "environment"));
  }
  return true;
}

static bool environment_of(const struct import_request *request, const char *path,
                           struct table_place *place, json_t **ret, struct error *error) {
  if (!environment_beside(request, path, ret, error))
    return false;
  if (!*ret && place->device)
    text_replace(place->device, "_", ' ');
  if (!*ret)
    *ret = json_pack("{s:s*, s:s*, s:s*}", "gpu", place->device, "triton", place->triton, "arch",
                     place->arch);
  return true;
}

bool tables_read(const struct table_family *family, const struct import_request *request,
                 const struct cache_file *file, struct imported *imported, struct error *error) {
  cleanup_by(reading_release) struct reading reading = {.path = file->path};
  cleanup_table_place struct table_place place = {0};
  cleanup_json json_t *json = NULL;
  cleanup_free char *stated = NULL;
  json_t *environment = NULL;
  const char *triton = NULL;

  if (!table_path_parse(family, file->path, &reading.kind, &reading.row, &place, error))
    return false;
  const struct table_kind *kind = reading.kind;
  if ((request->kernel && !table_mapping_read(kind, request->kernel, &reading.mapping, error)) ||
      !json_parse(file->bytes, file->size, &json, error))
    return false;
  if (!json_is_object(json))
    return error_set(error, "the document must be an object");

  /* vLLM reads a table under any Triton, and those that it ships were made with several: what one
   * states is provenance. */
  if (kind->may_state_triton) {
    if (!json_get_string(json, "", "triton_version", JSON_OPTIONAL, &triton, error))
      return false;
    reading.triton = stated = triton ? xstrdup(triton) : NULL;
    json_object_del(json, "triton_version");
  }

  if (!environment_of(request, file->path, &place, &environment, error) ||
      !imported_set_environment(imported, environment, error))
    return false;
  reading.kernel =
      request->kernel ? imported_kernel_for(imported, "") : external_kernel(kind, imported);
  if (request->kernel)
    reading.kernel->hash = request->kernel->hash;

  return rows_read(&reading, json, table_first_row(kind), error);
}
