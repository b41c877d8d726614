/* Finding what dejavu's paths are made of: records of images and builds, and manifests of imported tables.
 *
 * Memory and threads: dejavu_function.h. */
#include "common/cache/dejavu_function.h"

#include "common/cache/config_text.h"
#include "common/cache/text_buffer.h"

void dejavu_function_release(struct dejavu_function *function) {
  dejavu_path_release(&function->path);
  function_record_release(&function->packed);
  free(function->signature);
  json_decref(function->keys);
  json_decref(function->timings);
  json_decref(function->configs);
  json_decref(function->order);
}

static char *xstrdup_or_null(const char *text) { return text ? xstrdup(text) : NULL; }

bool dejavu_storage_find(const struct render_request *request, struct dejavu_path *storage, struct error *error) {
  const struct identity *identity = request->identity;
  const struct environment *environment = &request->release->environment;
  storage->torch = xstrdup_or_null(identity && identity->torch ? identity->torch : environment->torch);
  if (identity && identity->dejavu_layout) {
    storage->layout = xstrdup(identity->dejavu_layout);
    storage->triton = xstrdup(identity->dejavu_triton);
    storage->runtime = xstrdup(identity->dejavu_runtime);
    storage->gpu = xstrdup(identity->dejavu_gpu);
  } else {
    const char *version = environment->rocm ? environment->rocm : environment->cuda;
    if (!environment->triton || !environment->gpu || !version)
      return error_set(error,
                       "the environment of the release states no %s, which is in dejavu's paths; give the "
                       "image's identity",
                       !environment->triton ? "triton"
                       : !version           ? "rocm or cuda"
                                            : "gpu");
    storage->triton = xstrdup(environment->triton);
    storage->runtime = xasprintf("%s_%s", environment->rocm ? "rocm" : "cuda", version);
    storage->gpu = xstrdup(environment->gpu);
  }
  for (char *c = storage->gpu; *c; c++)
    *c = *c == ' ' || *c == '/' ? '_' : *c;
  return true;
}

/* Sets the hash from what it is made of, or checks that it is made of that. */
static bool hash_take(char **hash, const char *stated, const char *computed, const char *name, struct error *error) {
  if (stated && computed && strcmp(stated, computed) != 0)
    return error_set(error, "the record's %s is not the hash of what the record has of it", name);
  if (!stated && !computed)
    return error_set(error, "the record has no %s", name);
  *hash = xstrdup(stated ? stated : computed);
  return true;
}

static bool take_hashes(struct dejavu_function *function, struct error *error) {
  const struct function_record *record = function->record;
  const json_t *dejavu = record->dejavu;
  char p[DEJAVU_HASH_SIZE], c[DEJAVU_HASH_SIZE], k[DEJAVU_HASH_SIZE], g[DEJAVU_HASH_SIZE];
  const char *parameters = json_string_value(json_object_get(dejavu, "search_parameters"));
  struct text configs = {0};
  text_add(&configs, "|", 1);
  for (size_t i = 0; i < record->n_configs; i++) {
    text_add_string(&configs, record->configs[i]);
    text_add(&configs, "|", 1);
  }
  dejavu_hash(configs.bytes, configs.size, g);
  text_release(&configs);
#define STATED(name) json_string_value(json_object_get(dejavu, #name))
  return hash_take(&function->path.autotune_config, STATED(autotune_config),
                   parameters ? dejavu_hash(parameters, strlen(parameters), p) : NULL, "autotune_config", error) &&
         hash_take(&function->path.code_version, STATED(code_version),
                   record->source_sha256 ? dejavu_hash(record->source_sha256, strlen(record->source_sha256), c) : NULL,
                   "code_version", error) &&
         hash_take(&function->path.tune_features, STATED(tune_features), dejavu_names_hash(function->keys, k),
                   "tune_features", error) &&
         hash_take(&function->path.kernel_configs, STATED(kernel_configs), record->n_configs ? g : NULL,
                   "kernel_configs", error);
#undef STATED
}

/* Which of the decorator's configs a winner's is, whatever it leaves at its default: by what they have in common. */
static void take_configs(struct dejavu_function *function, const char *triton) {
  struct error why;
  function->configs = json_object();
  for (size_t i = 0; i < function->record->n_configs; i++) {
    cleanup_json json_t *config = NULL;
    if (!config_text_parse(function->record->configs[i], &config, &why))
      continue; /* it cannot be told from others, and no winner is it */
    cleanup_free char *normal = config_text_normal(config, triton);
    if (json_is_null(json_object_get(config, "ir_override")))
      json_object_del(config, "ir_override"); /* dejavu would hand it to the kernel */
    cleanup_free char *text = config_text_format(config);
    if (!json_object_get(function->configs, normal))
      json_object_set_new(function->configs, normal, json_string(text));
  }
}

static bool same_minor(const char *a, const char *b) {
  int major[2], minor[2];
  return sscanf(a, "%4d.%4d", &major[0], &minor[0]) == 2 && sscanf(b, "%4d.%4d", &major[1], &minor[1]) == 2 &&
         major[0] == major[1] && minor[0] == minor[1];
}

static json_t *timings_of(const json_t *object, const char *rep, const char *warmup, const char *graphs) {
  json_t *rep_ms = json_object_get(object, rep), *warmup_ms = json_object_get(object, warmup);
  return json_pack("{s:o, s:o, s:b}", "rep_t_ms",
                   json_is_number(rep_ms) ? json_incref(rep_ms) : json_integer(DEJAVU_REP_MS), "warmup_t_ms",
                   json_is_number(warmup_ms) ? json_incref(warmup_ms) : json_integer(DEJAVU_WARMUP_MS), "cuda_graphs",
                   json_is_true(json_object_get(object, graphs)));
}

/* The two versions of Triton print configs in another way, and the hash of them is in the path. */
static bool function_from_record(const struct dejavu_path *storage, const struct function_record *record,
                                 struct dejavu_function *function, struct error *error) {
  const char *triton = storage->triton, *layout = json_string_value(json_object_get(record->dejavu, "layout"));
  if (!record->dejavu)
    return error_set(error, "the function %.100s is not decorated with triton_dejavu.autotune", record->function);
  if (record->triton_version && !same_minor(record->triton_version, triton))
    return error_set(error, "the function was recorded with Triton %.40s and the paths are those of %.40s",
                     record->triton_version, triton);
  function->record = record;
  function->path.layout = xstrdup(layout ? layout : "dejavu_0.7");
  function->signature = record->signature ? xstrdup(record->signature)
                                          : xasprintf("JITFunction(%s:%s)",
                                                      record->module ? record->module : "__main__", record->function);
  function->path.function = dejavu_signature_function(function->signature);
  if (!function->path.function)
    return error_set(error, "the record's signature %.100s is not JITFunction(module:function)", function->signature);
  function->keys = json_array();
  for (size_t i = 0; i < record->n_key_names; i++)
    json_array_append_new(function->keys, json_string(record->key_names[i]));
  function->timings = timings_of(record->dejavu, "rep", "warmup", "use_cuda_graph");
  function->evaluated = (int64_t)record->n_configs;
  function->ignore_dtypes = json_is_true(json_object_get(record->dejavu, "ignore_dtypes"));
  function->all_three = json_array_size(json_object_get(record->dejavu, "quantiles")) == RELEASE_MS_MAX;
  take_configs(function, triton);
  return take_hashes(function, error);
}

/* Whether the order of members is that of a Config which this Triton prints. */
static bool order_is_of(const json_t *order, const char *triton) {
  static const char *const fields[] = {"num_buffers_warp_spec", "num_consumer_groups", "reg_dec_producer",
                                       "reg_inc_consumer", "maxnreg"};
  for (size_t i = 0; i < ARRAY_LENGTH(fields); i++) {
    struct value standard;
    bool is_there = false;
    size_t j;
    json_t *name;
    json_array_foreach (order, j, name)
      is_there = is_there || string_equal(json_string_value(name), fields[i]);
    if (is_there != config_field(fields[i], triton, &standard))
      return false;
  }
  return true;
}

static bool function_from_exports(const struct dejavu_path *storage, const json_t *exports,
                                  struct dejavu_function *function, struct error *error) {
  const char *layout = NULL, *name = NULL, *signature = NULL, *at = "/exports/dejavu";
  json_t *order = NULL, *timings = NULL, *keys = NULL;
  if (!json_get_string(exports, at, "layout", JSON_REQUIRED, &layout, error) ||
      !json_get_string(exports, at, "function", JSON_REQUIRED, &name, error) ||
      !json_get_string(exports, at, "signature", JSON_REQUIRED, &signature, error) ||
      !json_get_array(exports, at, "config", JSON_REQUIRED, &order, error) ||
      !json_get_array(exports, at, "keys", JSON_OPTIONAL, &keys, error) ||
      !json_get_object(exports, at, "timings_data", JSON_OPTIONAL, &timings, error))
    return false;
  size_t i;
  json_t *key;
  json_array_foreach (keys, i, key) {
    if (!json_is_string(key))
      return error_at(error, "/exports/dejavu/keys", "the names must be strings");
  }
  if (!order_is_of(order, storage->triton))
    return error_set(error, "its configs were printed by another Triton than %.40s, and a hash of them is in the path",
                     storage->triton);
  function->path.layout = xstrdup(layout);
  function->path.function = xstrdup(name);
  function->signature = xstrdup(signature);
#define X(hash) function->path.hash = xstrdup_or_null(json_string_value(json_object_get(exports, #hash)));
  DEJAVU_HASHES(X)
#undef X
  function->keys = keys ? json_incref(keys) : json_null();
  function->timings = timings_of(timings, "rep_t_ms", "warmup_t_ms", "cuda_graphs");
  function->order = json_incref(order);
  function->all_three = true;
  return true;
}

/* A kernel's manifest, where the source has any. */
static bool manifest_take(const struct cache_source *source, const struct release_kernel *kernel,
                          struct dejavu_function *function, struct error *error) {
  return function->manifest || !source->kernel ||
         source->kernel(source->context, &kernel->hash, &function->manifest, error);
}

/* The record of the first build that one of the kernel's winners was measured with, when it has one. */
static bool packed_record(const struct cache_source *source, const struct release_kernel *kernel,
                          struct dejavu_function *function, bool *ret_found, struct error *error) {
  for (size_t i = 0; i < kernel->n_provenance && source->build && source->kernel; i++) {
    const char *text = json_string_value(json_object_get(kernel->provenance[i], "build"));
    const struct build *build = NULL;
    struct digest digest;
    if (!text || !digest_parse(text, &digest))
      continue;
    if (!manifest_take(source, kernel, function, error) ||
        !source->build(source->context, function->manifest, &digest, &build, error))
      return false;
    if (build->record) {
      *ret_found = true;
      return function_record_parse(build->record, &function->packed, error);
    }
  }
  return true;
}

static bool function_take(const struct render_request *request, const struct dejavu_path *storage,
                          const struct release_kernel *kernel, struct dejavu_function *function, struct error *error) {
  const struct cache_source *source = request->source;
  const struct function_record *record = identity_function(request->identity, &kernel->hash, kernel->name, NULL);
  bool is_packed = false;
  if (!record) {
    if (!packed_record(source, kernel, function, &is_packed, error))
      return false;
    if (is_packed)
      record = identity_function(request->identity, &kernel->hash, kernel->name, &function->packed);
    record = !record && is_packed ? &function->packed : record;
  }
  if (record)
    return function_from_record(storage, record, function, error) &&
           (record->n_dtypes || manifest_take(source, kernel, function, error)) &&
           (record->n_dtypes || function->manifest || function->ignore_dtypes ||
            error_set(error, "the record has no dtypes of its arguments, and the manifest is not to be had here"));
  if (!manifest_take(source, kernel, function, error))
    return false;
  const struct kernel *manifest = function->manifest;
  const json_t *exports = manifest ? json_object_get(json_object_get(manifest->json, "exports"), "dejavu") : NULL;
  if (manifest && manifest->language == LANGUAGE_EXTERNAL && exports)
    return function_from_exports(storage, exports, function, error);
  return error_set(error,
                   "neither the image nor a build has a record of its function, whose hashes are in dejavu's paths; "
                   "take one with `python3 -m wavetune identity`");
}

static bool function_fits_storage(const struct dejavu_path *storage, const char *tag, struct dejavu_function *function,
                                  struct error *error) {
  struct dejavu_path *path = &function->path;
  bool has_torch, has_features;
  if (storage->layout && strcmp(storage->layout, path->layout) != 0)
    return error_set(error, "the table is of %.40s, and the image reads %.40s, which hashes in another way",
                     path->layout, storage->layout);
  if (!dejavu_layout_has(path->layout, &has_torch, &has_features))
    return error_set(error, "the layout %.40s is not known", path->layout);
  if (has_torch && !storage->torch)
    return error_set(error, "the environment states no torch, which is in the paths of %.40s", path->layout);
  path->torch = has_torch ? xstrdup(storage->torch) : NULL;
  path->triton = xstrdup(storage->triton);
  path->runtime = xstrdup(storage->runtime);
  path->gpu = xstrdup(storage->gpu);
  path->tag = xstrdup(tag);
  return true;
}

bool dejavu_function_find(const struct render_request *request, const struct dejavu_path *storage,
                          const struct release_kernel *kernel, struct dejavu_function *ret, struct error *error) {
  return function_take(request, storage, kernel, ret, error) &&
         function_fits_storage(storage, request->release->tag, ret, error);
}
