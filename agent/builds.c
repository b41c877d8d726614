/* Objects of a build for the configs of a lease. Memory: build_objects own what they hold. Threads: any. */
#include "agent/builds.h"

#include "agent/compile/objects.h"
#include "common/file.h"

#define BLOB_MAX ((size_t)64 << 20)
#define WARPS_MAX 1024

void lease_object_release(struct lease_object *object) {
  free(object->path);
  launch_spec_release(&object->launch);
  free(object->detail);
  *object = (struct lease_object){0};
}

/* What is prepared, and what for. */
struct preparing {
  const char *folder;
  const struct build_request *request;
  const struct source_reader *reader;
  const json_t *variant;
  json_t *by_config; /* canonical text of a config → its entry in "objects" or "failed" */
  int64_t warp_size;
};

/* Blobs */

static bool bytes_have_digest(const char *bytes, size_t size, const struct digest *digest) {
  struct digest found = digest_of(bytes, size);
  return digest_equal(&found, digest);
}

/* Gets a blob's bytes from the folder, else from the reader; it lies in the folder then. */
static bool blob_prepare(const struct preparing *preparing, const struct source *source, char **ret_path,
                         char **ret_bytes, size_t *ret_size, struct error *error) {
  char text[DIGEST_TEXT_SIZE];
  struct error ignored;
  cleanup_free char *bytes = NULL, *stale = NULL;
  size_t size;
  digest_format(&source->digest, text);
  cleanup_free char *path = xasprintf("%s/blob-%s.co", preparing->folder, text + strlen("sha256:"));
  if (file_read(path, BLOB_MAX, &stale, &size, &ignored) && bytes_have_digest(stale, size, &source->digest)) {
    object_touch(path);
    bytes = TAKE(stale);
  } else if (!preparing->reader->read(preparing->reader->context, source, &bytes, &size, error)) {
    return false;
  } else if (!bytes_have_digest(bytes, size, &source->digest)) {
    return error_set(error, "%s is not the blob %s that the build names; push the build again", source->path, text);
  } else if (!folder_make(preparing->folder, 0700, error) || !file_write_atomically(path, bytes, size, 0600, error)) {
    return false;
  }
  *ret_path = TAKE(path);
  *ret_bytes = TAKE(bytes);
  *ret_size = size;
  return true;
}

/* How an object is launched */

static bool is_compiled_in(const struct preparing *preparing, const struct argument *argument) {
  return json_object_get(json_object_get(preparing->variant, "constexprs"), argument->name) != NULL;
}

static void arguments_pass(const struct preparing *preparing, struct launch_spec *spec) {
  const struct kernel *kernel = preparing->request->kernel;
  spec->arguments = xcalloc(kernel->n_arguments ? kernel->n_arguments : 1, sizeof *spec->arguments);
  for (size_t i = 0; i < kernel->n_arguments; i++) {
    if (!is_compiled_in(preparing, &kernel->arguments[i]))
      spec->arguments[spec->n_arguments++] = xstrdup(kernel->arguments[i].name);
  }
}

static bool metadata_read(const struct preparing *preparing, const json_t *metadata, struct launch_spec *spec,
                          struct error *error) {
  const char *name = NULL;
  int64_t warps = 0, warp_size = preparing->warp_size, global_scratch = 0, profile_scratch = 0;
  if (!json_get_string(metadata, "/metadata", "name", JSON_REQUIRED, &name, error) ||
      !json_get_integer(metadata, "/metadata", "num_warps", JSON_REQUIRED, 1, WARPS_MAX, &warps, error) ||
      !json_get_integer(metadata, "/metadata", "warp_size", JSON_OPTIONAL, 1, 1024, &warp_size, error) ||
      !json_get_integer(metadata, "/metadata", "shared", JSON_OPTIONAL, 0, INT32_MAX, &spec->shared_bytes, error) ||
      !json_get_integer(metadata, "/metadata", "scratch", JSON_OPTIONAL, 0, LAUNCH_SCRATCH_MAX, &spec->n_scratch,
                        error) ||
      !json_get_integer(metadata, "/metadata", "num_ctas", JSON_OPTIONAL, 1, 16, &spec->cluster, error) ||
      !json_get_bool(metadata, "/metadata", "launch_cooperative_grid", JSON_OPTIONAL, &spec->cooperative, error) ||
      !json_get_integer(metadata, "/metadata", "global_scratch_size", JSON_OPTIONAL, 0, INT64_MAX, &global_scratch,
                        error) ||
      !json_get_integer(metadata, "/metadata", "profile_scratch_size", JSON_OPTIONAL, 0, INT64_MAX, &profile_scratch,
                        error))
    return false;
  if (global_scratch || profile_scratch)
    return error_set(error, "it needs scratch memory in every launch, which this agent does not give");
  spec->entry = xstrdup(name);
  spec->threads = warps * warp_size;
  return true;
}

/* What a launch passes must be what the code takes: a kernel that is given fewer or other arguments reads what lies
 * behind them. A bool's size differs between versions of Triton. */
static bool arguments_agree(const struct preparing *preparing, const struct launch_spec *spec,
                            const struct code_kernel *code, struct error *error) {
  const struct kernel *kernel = preparing->request->kernel;
  size_t n_taken = 0, n_passed = spec->n_arguments + (size_t)spec->n_scratch, at = 0;
  const struct code_argument *taken[KERNEL_ARGUMENTS_MAX + LAUNCH_SCRATCH_MAX];
  for (size_t i = 0; i < code->n_arguments; i++) {
    if (code->arguments[i].is_hidden)
      continue;
    if (n_taken < ARRAY_LENGTH(taken))
      taken[n_taken] = &code->arguments[i];
    n_taken++;
  }
  if (n_taken != n_passed)
    return error_set(error, "its code takes %zu arguments and a launch passes %zu; pack the kernel again", n_taken,
                     n_passed);
  for (size_t i = 0; i < kernel->n_arguments; i++) {
    const struct argument *argument = &kernel->arguments[i];
    if (is_compiled_in(preparing, argument))
      continue;
    int64_t size = argument->is_buffer ? 8 : (int64_t)dtype_size(argument->dtype), expected = taken[at++]->size;
    /* Triton passes an integer in 32 bits where the variant's `when` says that it fits: the low half of the storage. */
    bool is_narrowed = expected == 4 && (argument->dtype == DTYPE_INT64 || argument->dtype == DTYPE_UINT64);
    if (size != expected && argument->dtype != DTYPE_BOOL && !(is_narrowed && !argument->is_buffer))
      return error_set(error,
                       "its code takes argument \"%s\" with %lld bytes and the manifest passes %lld; pack the "
                       "kernel again",
                       argument->name, (long long)expected, (long long)size);
  }
  return true;
}

/* False: the object cannot be used, and the error says why. */
static bool object_understand(const struct preparing *preparing, const json_t *entry, const char *bytes, size_t size,
                              struct launch_spec *spec, struct error *error) {
  cleanup_code_object struct code_object *code = NULL;
  const struct code_kernel *kernel;
  if (!metadata_read(preparing, json_object_get(entry, "metadata"), spec, error) ||
      !code_object_parse(bytes, size, &code, error) || !code_object_kernel(code, spec->entry, &kernel, error))
    return false;
  spec->resources = kernel->resources;
  arguments_pass(preparing, spec);
  return arguments_agree(preparing, spec, kernel, error);
}

/* Configs */

static bool object_fail(struct lease_object *object, char *taken_detail) {
  object->outcome = OUTCOME_COMPILE;
  object->detail = taken_detail;
  return true;
}

/* False when the blob cannot be had; everything else is an outcome of the config. */
static bool object_prepare(const struct preparing *preparing, uint64_t config, struct lease_object *object,
                           struct error *error) {
  cleanup_json json_t *values = space_config_to_json(preparing->request->space, config);
  cleanup_free char *text = json_canonical(values), *name = xasprintf("the object of config %s", text), *bytes = NULL;
  const json_t *entry = json_object_get(preparing->by_config, text);
  const char *failure = json_string_value(json_object_get(entry, "error"));
  struct source source = {.path = name};
  struct error reason;
  size_t size;
  if (!entry)
    return object_fail(object,
                       xasprintf("the build has no object of %s: pack the kernel again with this config", text));
  if (failure)
    return object_fail(object, xstrdup(failure));
  if (!json_get_digest(entry, "", "digest", JSON_REQUIRED, &source.digest, error) ||
      !blob_prepare(preparing, &source, &object->path, &bytes, &size, error))
    return false;
  object->launch = launch_spec_default();
  object->is_ok = object_understand(preparing, entry, bytes, size, &object->launch, &reason);
  return object->is_ok || object_fail(object, xasprintf("the build's object cannot be used: %s", reason.message));
}

static void entries_index(const json_t *entries, json_t *by_config) {
  size_t i;
  json_t *entry;
  json_array_foreach (entries, i, entry) {
    cleanup_free char *text = json_canonical(json_object_get(entry, "config"));
    ALWAYS(json_object_set(by_config, text, entry) == 0);
  }
}

/* What the variant says it passes must be what the manifest has. */
static bool signature_agrees(const struct preparing *preparing, struct error *error) {
  const json_t *signature = json_object_get(preparing->variant, "signature");
  const struct kernel *kernel = preparing->request->kernel;
  size_t n_passed = 0;
  for (size_t i = 0; signature && i < kernel->n_arguments; i++) {
    const struct argument *argument = &kernel->arguments[i];
    if (is_compiled_in(preparing, argument))
      continue;
    n_passed++;
    if (!json_object_get(signature, argument->name))
      return error_set(error, "the build's variant for this key does not take argument \"%s\" of %s; pack it again",
                       argument->name, kernel->name);
  }
  return !signature || n_passed == json_object_size(signature) ||
         error_set(error,
                   "the build's variant for this key takes %zu arguments and the manifest of %s has %zu; pack it "
                   "again",
                   json_object_size(signature), kernel->name, n_passed);
}

static int by_config(const void *a, const void *b) {
  const struct config_object *left = a, *right = b;
  return (left->config > right->config) - (left->config < right->config);
}

static bool configs_prepare(const struct preparing *preparing, struct build_objects *objects, struct error *error) {
  const struct build_request *request = preparing->request;
  objects->all = xcalloc(request->n ? request->n : 1, sizeof *objects->all);
  for (size_t i = 0; i < request->n; i++)
    objects->all[i].config = request->configs[i];
  qsort(objects->all, request->n, sizeof *objects->all, by_config);
  for (size_t i = 0; i < request->n; i++) {
    uint64_t config = objects->all[i].config;
    if (objects->n && objects->all[objects->n - 1].config == config)
      continue;
    struct config_object *next = &objects->all[objects->n++];
    *next = (struct config_object){.config = config};
    if (!object_prepare(preparing, config, &next->object, error))
      return false;
  }
  return true;
}

bool build_objects_prepare(const char *folder, const json_t *json, const struct build_request *request,
                           const struct source_reader *reader, struct build_objects **ret_objects,
                           struct error *error) {
  cleanup_build struct build *build = NULL;
  cleanup_json json_t *index = json_object();
  size_t variant;
  if (!build_parse(json, request->kernel, &build, error) || !build_variant(build, request->key, &variant, error))
    return false;
  if (!string_equal(build->arch, request->arch))
    return error_set(error, "the build is for %s and this device is %s; pack the kernel for it", build->arch,
                     request->arch);
  struct preparing preparing = {
      .folder = folder,
      .request = request,
      .reader = reader,
      .variant = json_array_get(json_object_get(build->json, "variants"), variant),
      .by_config = index,
      .warp_size = json_integer_value(json_object_get(build->json, "warp_size")),
  };
  entries_index(json_object_get(preparing.variant, "failed"), index);
  entries_index(json_object_get(preparing.variant, "objects"), index);
  struct build_objects *objects = xcalloc(1, sizeof *objects);
  if (!signature_agrees(&preparing, error) || !configs_prepare(&preparing, objects, error)) {
    build_objects_free(objects);
    return false;
  }
  *ret_objects = objects;
  return true;
}

void build_objects_free(struct build_objects *objects) {
  for (size_t i = 0; i < objects->n; i++)
    lease_object_release(&objects->all[i].object);
  free(objects->all);
  free(objects);
}

const struct lease_object *build_objects_find(const struct build_objects *objects, uint64_t config) {
  struct config_object wanted = {.config = config};
  const struct config_object *found = bsearch(&wanted, objects->all, objects->n, sizeof wanted, by_config);
  ALWAYS(found != NULL);
  return &found->object;
}

bool build_folder_read(const char *folder, json_t **ret_json, struct error *error) {
  cleanup_free char *path = xasprintf("%s/build.json", folder);
  return json_parse_file(path, BUILD_SIZE_MAX, ret_json, error);
}

bool build_folder_blob(void *context, const struct source *source, char **ret_bytes, size_t *ret_size,
                       struct error *error) {
  char text[DIGEST_TEXT_SIZE];
  digest_format(&source->digest, text);
  cleanup_free char *path = xasprintf("%s/objects/%s", (const char *)context, text + strlen("sha256:"));
  return file_read(path, BLOB_MAX, ret_bytes, ret_size, error);
}
