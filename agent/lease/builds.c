/* Objects of a build for the configs of a lease. */
#include "agent/lease/builds.h"

#include "agent/compile/compile.h"
#include "agent/measure/launch.h"
#include "common/base/file.h"
#include "common/base/numbers.h"
#include "common/builds/build.h"
#include "common/kernel/kernel_case.h"

#define BLOB_MAX ((size_t)64 << 20)

void lease_object_release(struct lease_object *object) {
  free(object->path);
  launch_spec_release(&object->launch);
  free(object->detail);
  *object = (struct lease_object){0};
}

/* One config's entry in a variant, and the part of its object that does not depend on the key. */
struct entry {
  const json_t *json; /* in "objects" or "failed" */
  bool is_read;
  struct lease_object object; /* is_read only */
};

struct variant {
  const json_t *json;     /* NULL: no key has needed it yet */
  json_t *by_config;      /* canonical text of a config → index of its entry */
  struct kernel *of_case; /* of a captured kernel, with this variant's case; else NULL */
  size_t n;
  struct entry *entries;
};

struct build_code {
  char *folder;
  struct build *build;
  const struct kernel *kernel;
  char *arch;
  struct source_reader reader;
  int64_t warp_size;
  struct variant *variants; /* one for each variant of the build */
};

static bool bytes_have_digest(const char *bytes, size_t size, const struct digest *digest) {
  struct digest found = digest_of(bytes, size);
  return digest_equal(&found, digest);
}

/* Gets a blob's bytes from the folder, else from the reader, and stores them in the folder. */
static bool blob_prepare(const struct build_code *code, const struct source *source,
                         char **ret_path, char **ret_bytes, size_t *ret_size, struct error *error) {
  char text[DIGEST_TEXT_SIZE];
  struct error ignored;
  cleanup_free char *bytes = NULL, *stale = NULL;
  size_t size;
  digest_format(&source->digest, text);
  cleanup_free char *path = xasprintf("%s/blob-%s.co", code->folder, text + strlen("sha256:"));
  if (file_read(path, BLOB_MAX, &stale, &size, &ignored) &&
      bytes_have_digest(stale, size, &source->digest)) {
    object_touch(path);
    bytes = TAKE(stale);
  } else if (!code->reader.read(code->reader.context, source, &bytes, &size, error)) {
    return false;
  } else if (!bytes_have_digest(bytes, size, &source->digest)) {
    return error_set(error, "%s is not the blob %s that the build names; push the build again",
                     source->path, text);
  } else if (!folder_make(code->folder, 0700, error) ||
             !file_write_unsynced(path, bytes, size, 0600, error)) {
    return false;
  }

  *ret_path = TAKE(path);
  *ret_bytes = TAKE(bytes);
  *ret_size = size;
  return true;
}

/* The kernel whose arguments the variant's code takes. */
static const struct kernel *variant_kernel(const struct build_code *code,
                                           const struct variant *variant) {
  return variant->of_case ? variant->of_case : code->kernel;
}

static const json_t *compiled_in(const struct variant *variant, const struct argument *argument) {
  return json_object_get(json_object_get(variant->json, "constexprs"), argument->name);
}

/* Whether the code is right for a scalar's value with this key and config, where the value was
 * compiled in, or is passed in fewer bits than the manifest states. The variant's `when` need not
 * exclude such values. */
static bool scalar_agrees(const struct variant *variant, const struct argument *argument,
                          const struct scope *scope, struct error *error) {
  const json_t *constant = compiled_in(variant, argument);
  const char *type = json_text(json_object_get(variant->json, "signature"), argument->name);
  enum dtype dtype = argument->dtype;
  bool is_narrower = !constant && build_type_parse(type, &dtype) && dtype != argument->dtype;
  struct value value;
  if (!constant && !is_narrower)
    return true;
  if (!scalar_evaluate(argument, scope, &value, error))
    return false;
  if (!constant) /* a float is never passed in fewer bits */
    return (value.type == VALUE_INT && dtype_holds(dtype, value.integer)) ||
           error_set(error,
                     "its code takes \"%s\" as %s, which cannot hold %lld; pack the kernel again "
                     "for this key",
                     argument->name, type, (long long)value.integer);

  double number = value.type == VALUE_INT ? (double)value.integer : value.real;
  bool is_equal = json_is_boolean(constant) ? json_is_true(constant) == (number != 0)
                  : json_is_integer(constant) && value.type == VALUE_INT
                      ? json_integer_value(constant) == value.integer
                      : json_is_number(constant) && json_number_value(constant) == number;
  if (is_equal)
    return true;

  cleanup_free char *text = json_dumps(constant, JSON_ENCODE_ANY),
                    *here = value_format(value, false);
  return error_set(
      error,
      "its code was compiled with \"%s\" being %.40s, which is %s here; pack the kernel again",
      argument->name, text, here);
}

static bool scalars_agree(const struct build_code *code, const struct build_request *request,
                          const struct variant *variant, uint64_t config, struct error *error) {
  const struct kernel *kernel = variant_kernel(code, variant);
  struct space_facts facts = {request->key, request->gpu_name, request->arch};
  struct scope scope = {0};
  if (!facts_scope_add(&facts, &scope, error) ||
      !space_scope_add(request->space, config, &scope, error))
    return false;

  array_foreach (argument, kernel->arguments, kernel->n_arguments) {
    if (!argument->is_buffer && !scalar_agrees(variant, argument, &scope, error))
      return false;
  }
  return true;
}

/* Reads how an object is launched. A launch must pass the arguments that the code takes: with
 * fewer, the kernel would read memory after them. False: the object cannot be used, *error says
 * why. */
static bool object_launch_read(const struct build_code *code, const struct variant *variant,
                               const json_t *entry, const char *bytes, size_t size,
                               struct launch_spec *spec, struct error *error) {
  cleanup_code_object struct code_object *object = NULL;
  const struct kernel *kernel = variant_kernel(code, variant);
  const struct code_kernel *compiled;
  cleanup_build_launch struct build_launch launch = {0};
  if (!build_launch_read(entry, code->warp_size, &launch, error) ||
      !code_object_parse(bytes, size, &object, error) ||
      !build_code_is_for(object, code->arch, error) ||
      !code_object_kernel(object, launch.name, &compiled, error) ||
      !build_code_agrees(kernel, variant->json, &launch, compiled, error))
    return false;

  _Static_assert(BUILD_SCRATCH_MAX <= LAUNCH_SCRATCH_MAX,
                 "a launch has room for a build's scratch pointers");
  spec->entry = xstrdup(launch.name);
  spec->threads = launch.warps * launch.warp_size;
  spec->shared_bytes = launch.shared_bytes;
  spec->n_scratch = launch.n_scratch;
  spec->cluster = launch.clusters;
  if (launch.has_grid) {
    spec->grid = (struct numbers){3, xcalloc(3, sizeof *spec->grid.all)};
    for (size_t i = 0; i < 3; i++)
      spec->grid.all[i] = (double)launch.grid[i];
  }
  spec->cooperative = launch.is_cooperative;
  spec->resources = compiled->resources;
  spec->arguments = launch.arguments;
  spec->fills = launch.fills;
  launch = (struct build_launch){0};
  if (spec->arguments.all)
    return true;

  /* Not stated: those that were not compiled in. */
  spec->arguments.all = xcalloc(kernel->n_arguments + 1, sizeof *spec->arguments.all);
  array_foreach (argument, kernel->arguments, kernel->n_arguments)
    if (!compiled_in(variant, argument))
      spec->arguments.all[spec->arguments.n++] = launch_argument_named(argument->name);
  return true;
}

static void object_fail(struct lease_object *object, char *taken_detail) {
  free(object->detail);
  object->is_ok = false;
  object->outcome = OUTCOME_COMPILE;
  object->detail = taken_detail;
}

static void object_cannot_be_used(struct lease_object *object, const struct error *reason) {
  object_fail(object, xasprintf("the build's object cannot be used: %s", reason->message));
}

/* False when the blob cannot be read; every other failure is an outcome of the config. */
static bool entry_read(const struct build_code *code, const struct variant *variant,
                       struct entry *entry, const char *config, struct error *error) {
  cleanup_free char *name = xasprintf("the object of config %s", config), *bytes = NULL;
  const char *failure = json_text(entry->json, "error");
  struct lease_object *object = &entry->object;
  struct source source = {.path = name};
  struct error reason;
  size_t size;
  if (failure) {
    object_fail(object, xstrdup(failure));
    return entry->is_read = true;
  }

  if (!json_get_digest(entry->json, "", "digest", JSON_REQUIRED, &source.digest, error) ||
      !blob_prepare(code, &source, &object->path, &bytes, &size, error))
    return false;

  object->digest = source.digest;
  object->launch = launch_spec_default();
  object->is_ok =
      object_launch_read(code, variant, entry->json, bytes, size, &object->launch, &reason);
  if (!object->is_ok)
    object_cannot_be_used(object, &reason);
  return entry->is_read = true;
}

static struct lease_object object_copy(const struct lease_object *object) {
  struct lease_object copy = *object;
  copy.path = object->path ? xstrdup(object->path) : NULL;
  copy.detail = object->detail ? xstrdup(object->detail) : NULL;
  copy.launch = object->is_ok ? launch_spec_copy(&object->launch) : launch_spec_default();
  return copy;
}

static bool object_prepare(const struct build_code *code, struct variant *variant,
                           const struct build_request *request, uint64_t config,
                           struct lease_object *object, struct error *error) {
  cleanup_json json_t *values = space_config_to_json(request->space, config);
  cleanup_free char *text = json_canonical(values);
  const json_t *index = json_object_get(variant->by_config, text);
  struct error reason;
  if (!index) {
    object_fail(
        object,
        xasprintf("the build has no object of %s: pack the kernel again with this config", text));
    return true;
  }

  struct entry *entry = &variant->entries[json_integer_value(index)];
  if (!entry->is_read && !entry_read(code, variant, entry, text, error))
    return false;

  *object = object_copy(&entry->object);
  if (object->path && !scalars_agree(code, request, variant, config, &reason))
    object_cannot_be_used(object, &reason);
  return true;
}

/* Finds the variant for the key and lists its entries. */
static bool variant_open(struct build_code *code, const struct key *key,
                         struct variant **ret_variant, struct error *error) {
  static const char *const members[] = {"failed", "objects"};
  size_t index, k;
  const json_t *entry;
  if (!build_variant(code->build, key, &index, error))
    return false;

  struct variant *variant = *ret_variant = &code->variants[index];
  if (variant->json)
    return true;

  const json_t *json = json_array_get(json_object_get(code->build->json, "variants"), index);
  if (!build_variant_kernel(code->kernel, json, &variant->of_case, error))
    return false;
  if (!build_signature_agrees(variant_kernel(code, variant), json, error)) {
    cleanup_kernel_free(&variant->of_case);
    variant->of_case = NULL;
    return error_prefix(error, "the build's variant for this key cannot be used: ");
  }

  variant->json = json;
  variant->by_config = json_object();
  list_foreach (member, members) {
    json_array_foreach (json_object_get(json, *member), k, entry) {
      cleanup_free char *text = json_canonical(json_object_get(entry, "config"));
      json_t *at = json_integer((json_int_t)variant->n);
      *APPEND(variant->entries, variant->n) = (struct entry){.json = entry};
      json_put(variant->by_config, text, at);
    }
  }
  return true;
}

bool build_code_new(const char *folder, const json_t *json, const struct kernel *kernel,
                    const char *arch, const struct source_reader *reader,
                    struct build_code **ret_code, struct error *error) {
  cleanup_build struct build *build = NULL;
  if (!build_parse(json, kernel, &build, error))
    return false;
  if (!string_equal(build->arch, arch))
    return error_set(error, "the build is for %s and this device is %s; pack the kernel for it",
                     build->arch, arch);

  struct build_code *code = xcalloc(1, sizeof *code);
  *code = (struct build_code){
      .folder = xstrdup(folder),
      .kernel = kernel,
      .arch = xstrdup(arch),
      .reader = *reader,
      .warp_size = json_integer_value(json_object_get(build->json, "warp_size")),
      .variants = xcalloc(build->n_variants, sizeof *code->variants),
  };
  code->build = TAKE(build);
  *ret_code = code;
  return true;
}

void build_code_free(struct build_code *code) {
  array_foreach (variant, code->variants, code->build->n_variants) {
    array_foreach (entry, variant->entries, variant->n)
      lease_object_release(&entry->object);
    free(variant->entries);
    json_decref(variant->by_config);
    cleanup_kernel_free(&variant->of_case);
  }

  free(code->variants);
  build_free(code->build);
  free(code->folder);
  free(code->arch);
  free(code);
}

/* Gets the bytes that the variant's case passes. */
static bool case_prepare(const struct build_code *code, const struct variant *variant,
                         struct build_objects *objects, struct error *error) {
  const struct kernel *kernel = variant->of_case;
  if (!kernel)
    return true;

  objects->of_key = json_incref(json_object_get(variant->json, "case"));
  objects->blobs = xcalloc(kernel->n_arguments, sizeof *objects->blobs);
  array_foreach (argument, kernel->arguments, kernel->n_arguments) {
    struct case_blob *blob = &objects->blobs[objects->n_blobs];
    cleanup_free char *name = xasprintf("the contents of \"%s\"", argument->name), *bytes = NULL;
    size_t size;
    if (!argument_blob(argument))
      continue;
    struct source source = {.path = name, .digest = *argument_blob(argument)};
    blob->digest = source.digest;
    if (!blob_prepare(code, &source, &blob->path, &bytes, &size, error))
      return false;
    objects->n_blobs++;
    if (!argument_blob_check(argument, size, error))
      return false;
  }

  const json_t *expected = json_object_get(variant->json, "expected");
  cleanup_free char *bytes = NULL;
  size_t size;
  struct source source = {.path = (char[]){"the expected values"}};
  if (!expected)
    return true;
  ALWAYS(digest_parse(json_string_value(expected), &source.digest));
  objects->expected.digest = source.digest;
  return blob_prepare(code, &source, &objects->expected.path, &bytes, &size, error);
}

bool build_code_objects(struct build_code *code, const struct build_request *request,
                        struct build_objects **ret_objects, struct error *error) {
  struct variant *variant;
  if (!variant_open(code, request->key, &variant, error))
    return false;

  cleanup_free uint64_t *configs = xmemdup(request->configs, request->n * sizeof *configs);
  qsort(configs, request->n, sizeof *configs, compare_ordinals);
  struct build_objects *objects = xcalloc(1, sizeof *objects);
  objects->all = xcalloc(request->n + 1, sizeof *objects->all);
  if (!case_prepare(code, variant, objects, error)) {
    build_objects_free(objects);
    return false;
  }

  for (size_t i = 0; i < request->n; i++) {
    if (i && configs[i] == configs[i - 1])
      continue;
    struct config_object *next = &objects->all[objects->n++];
    next->config = configs[i];
    if (!object_prepare(code, variant, request, configs[i], &next->object, error)) {
      build_objects_free(objects);
      return false;
    }
  }

  *ret_objects = objects;
  return true;
}

bool build_objects_prepare(const char *folder, const json_t *json,
                           const struct build_request *request, const struct source_reader *reader,
                           struct build_objects **ret_objects, struct error *error) {
  cleanup_build_code struct build_code *code = NULL;
  return build_code_new(folder, json, request->kernel, request->arch, reader, &code, error) &&
         build_code_objects(code, request, ret_objects, error);
}

void build_objects_free(struct build_objects *objects) {
  array_foreach (config, objects->all, objects->n)
    lease_object_release(&config->object);
  array_foreach (blob, objects->blobs, objects->n_blobs)
    free(blob->path);
  free(objects->blobs);
  free(objects->expected.path);
  json_decref(objects->of_key);
  free(objects->all);
  free(objects);
}

const struct lease_object *build_objects_find(const struct build_objects *objects,
                                              uint64_t config) {
  const struct config_object *found =
      bsearch(&config, objects->all, objects->n, sizeof *found, compare_ordinals);
  ALWAYS(found != NULL);
  return &found->object;
}

bool build_folder_read(const char *folder, json_t **ret_json, struct error *error) {
  cleanup_free char *path = xasprintf("%s/build.json", folder);
  return json_parse_file(path, BUILD_SIZE_MAX, ret_json, error);
}

bool build_folder_blob(void *context, const struct source *source, char **ret_bytes,
                       size_t *ret_size, struct error *error) {
  char text[DIGEST_TEXT_SIZE];
  digest_format(&source->digest, text);
  cleanup_free char *path =
      xasprintf("%s/objects/%s", (const char *)context, text + strlen("sha256:"));
  return file_read(path, BLOB_MAX, ret_bytes, ret_size, error);
}
