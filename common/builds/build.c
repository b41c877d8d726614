/* Builds: read strictly, and their variant chosen by a job's key. */
#include "common/builds/build.h"

#include "common/builds/function_record.h"
#include "common/kernel/kernel_case.h"

#define TEXT_MAX 200
#define CACHE_FILES_MAX 64
#define CACHE_FILE_NAME_MAX 200

#define GRID_MAX INT32_MAX

struct object {
  json_t *config, *grid;
  struct digest digest;
  json_t *metadata;
  struct launch_arguments arguments;
  struct launch_fills fills;
};
struct failure {
  json_t *config;
  char *error;
};
struct further { /* specialisation of a captured key */
  json_t *signature;
  RECORD_ARRAY(struct object, n_objects, objects);
};
struct variant {
  char *when;
  json_t *key, *of_key; /* "case" */
  json_t *signature, *constexprs;
  char *expected, *not_interpreted;
  RECORD_ARRAY(struct further, n_also, also);
  RECORD_ARRAY(struct object, n_objects, objects);
  RECORD_ARRAY(struct failure, n_failed, failed);
};
struct file {
  char *name;
  struct digest digest;
};
struct cache {
  char *folder;
  RECORD_ARRAY(struct file, n_files, files);
};
struct metadata {
  RECORD_ARRAY(struct file, n_files, files);
  json_t *cache;
};

static bool error_line_check(const char *text, struct error *error) {
  size_t length = strlen(text);
  return (length >= 1 && length <= BUILD_ERROR_MAX && !text[strcspn(text, "\r\n")]) ||
         error_set(error, "\"error\" must be one line of 1 to %d bytes", BUILD_ERROR_MAX);
}

/* Triton writes "__grp__…" itself, with the path of the cache in it. */
static bool cache_file_name_check(const char *name, struct error *error) {
  size_t length = strlen(name);
  bool is_good = length >= 1 && length <= CACHE_FILE_NAME_MAX && !string_equal(name, ".") &&
                 !string_equal(name, "..") && !string_starts(name, "__grp__");
  for (size_t i = 0; i < length; i++)
    is_good = is_good && (unsigned char)name[i] >= 0x20 && name[i] != 0x7f && name[i] != '/';
  return is_good || error_set(error,
                              "a file of a cache has a name of 1 to %d bytes, without '/' and "
                              "control characters, that does not begin with \"__grp__\"",
                              CACHE_FILE_NAME_MAX);
}

static bool folder_check(const char *folder, struct error *error) {
  return triton_folder_is_valid(folder, strlen(folder)) ||
         error_set(error, "\"folder\" must be %d characters of base32 (A to Z, 2 to 7)",
                   TRITON_FOLDER_LENGTH);
}

#define AT(member) offsetof(struct build, member)
#define LINE(name, offset, flags)                                                                  \
  {name, FIELD_TEXT, offset, FIELD_LINE | (flags), .least = 1, .most = TEXT_MAX}

static const struct field toolchain_fields[] = {
    LINE("triton", 0, FIELD_REQUIRED),
    LINE("torch", AT(torch) - AT(triton), 0),
    LINE("rocm", AT(rocm) - AT(triton), 0),
};
static const struct record toolchain_record = {
    NULL, toolchain_fields, ARRAY_LENGTH(toolchain_fields), AT(arch) - AT(triton)};

PRIVATE_RECORD(build, struct build, RECORD_FIELD(DIGEST, struct build, kernel, FIELD_REQUIRED),
               {"toolchain", FIELD_RECORD, AT(triton), FIELD_REQUIRED, .of = &toolchain_record},
               LINE("arch", AT(arch), FIELD_REQUIRED),
               RECORD_FIELD(INTEGER, struct build, warp_size, FIELD_REQUIRED, .least = 1,
                            .most = BUILD_WARP_SIZE_MAX),
               RECORD_FIELD(JSON, struct build, variants, FIELD_REQUIRED | FIELD_ARRAY),
               RECORD_FIELD(JSON, struct build, record, FIELD_OBJECT));

PRIVATE_RECORD(object, struct object,
               RECORD_FIELD(JSON, struct object, config, FIELD_REQUIRED | FIELD_OBJECT),
               RECORD_FIELD(DIGEST, struct object, digest, FIELD_REQUIRED),
               RECORD_FIELD(JSON, struct object, metadata, FIELD_OBJECT),
               RECORD_FIELD(JSON, struct object, grid, FIELD_ARRAY),
               RECORD_FIELD(CUSTOM, struct object, arguments, FIELD_ARRAY,
                            .most = LAUNCH_ARGUMENTS_MAX, .custom = &launch_arguments_custom),
               RECORD_FIELD(CUSTOM, struct object, fills, FIELD_ARRAY, .most = LAUNCH_FILLS_MAX,
                            .custom = &launch_fills_custom));

PRIVATE_RECORD(failure, struct failure,
               RECORD_FIELD(JSON, struct failure, config, FIELD_REQUIRED | FIELD_OBJECT),
               RECORD_FIELD(TEXT, struct failure, error, FIELD_REQUIRED,
                            .check = error_line_check));

PRIVATE_RECORD(further, struct further,
               RECORD_FIELD(JSON, struct further, signature, FIELD_REQUIRED | FIELD_OBJECT),
               {"objects", FIELD_RECORDS, offsetof(struct further, n_objects), FIELD_REQUIRED,
                .of = &object_record});

PRIVATE_RECORD(variant, struct variant, RECORD_FIELD(TEXT, struct variant, when),
               RECORD_FIELD(JSON, struct variant, key, FIELD_OBJECT),
               {"case", FIELD_JSON, offsetof(struct variant, of_key), FIELD_OBJECT},
               RECORD_FIELD(JSON, struct variant, signature, FIELD_OBJECT),
               RECORD_FIELD(JSON, struct variant, constexprs, FIELD_OBJECT),
               RECORD_FIELD(TEXT, struct variant, expected),
               RECORD_FIELD(TEXT, struct variant, not_interpreted, .check = error_line_check),
               {"also", FIELD_RECORDS, offsetof(struct variant, n_also), .most = BUILD_ALSO_MAX,
                .of = &further_record},
               {"objects", FIELD_RECORDS, offsetof(struct variant, n_objects),
                .of = &object_record},
               {"failed", FIELD_RECORDS, offsetof(struct variant, n_failed),
                .of = &failure_record});

PRIVATE_RECORD(file, struct file, RECORD_FIELD(TEXT, struct file, name),
               RECORD_FIELD(DIGEST, struct file, digest, FIELD_REQUIRED));

PRIVATE_RECORD(cache_file, struct file,
               RECORD_FIELD(TEXT, struct file, name, .check = cache_file_name_check),
               RECORD_FIELD(DIGEST, struct file, digest, FIELD_REQUIRED));

PRIVATE_RECORD(cache, struct cache,
               RECORD_FIELD(TEXT, struct cache, folder, FIELD_REQUIRED, .check = folder_check),
               {"files", FIELD_MAP, offsetof(struct cache, n_files), FIELD_REQUIRED,
                .most = CACHE_FILES_MAX, .of = &cache_file_record});

PRIVATE_RECORD(metadata, struct metadata,
               {"files", FIELD_MAP, offsetof(struct metadata, n_files), .of = &file_record},
               RECORD_FIELD(JSON, struct metadata, cache, FIELD_OBJECT));

static void variant_release(struct variant *variant) { record_release(&variant_record, variant); }
static void cache_release(struct cache *cache) { record_release(&cache_record, cache); }
static void metadata_release(struct metadata *metadata) {
  record_release(&metadata_record, metadata);
}

static void objects_add(struct build *build, const struct file *files, size_t n) {
  for (size_t i = 0; i < n; i++)
    *APPEND(build->objects, build->n_objects) = files[i].digest;
}

/* A config must have plain values and differ from the others of its variant, whose canonical texts
 * `seen` has. */
static bool config_check(const json_t *config, json_t *seen, const char *pointer,
                         struct error *error) {

  json_members (config, name, value) {
    if (json_is_object(value) || json_is_array(value))
      return error_at(error, POINTER_MEMBER(pointer, name),
                      "a value of a config must be a number, a string, true, false or null");
  }

  cleanup_free char *text = json_canonical(config);
  if (json_object_get(seen, text))
    return error_at(error, pointer, "the variant lists this config twice");
  json_put(seen, text, json_true());
  return true;
}

/* The files that Triton itself stores for an object in its cache. */
static bool cache_read(struct build *build, const json_t *json, struct error *error) {
  cleanup_by(cache_release) struct cache cache = {0};
  if (!record_read(&cache_record, json, "", &cache, error))
    return false;

  size_t n_metadata = 0;
  for (size_t i = 0; i < cache.n_files; i++) {
    const char *end = strrchr(cache.files[i].name, '.');
    n_metadata += end && end != cache.files[i].name && string_equal(end, ".json");
  }

  if (n_metadata != 1)
    return error_at(error, "/files", "exactly one file of a cache must be NAME.json; there are %zu",
                    n_metadata);

  objects_add(build, cache.files, cache.n_files);
  return true;
}

/* The metadata of an object. Members that are not named here are for the agent. */
static bool metadata_read(struct build *build, const json_t *json, struct error *error) {
  cleanup_by(metadata_release) struct metadata metadata = {0};
  if (!record_read_answer(&metadata_record, json, "", &metadata, error))
    return false;
  objects_add(build, metadata.files, metadata.n_files);
  return !metadata.cache || cache_read(build, metadata.cache, error) ||
         error_pointer_prefix(error, "/cache");
}

bool build_variant_kernel(const struct kernel *kernel, const json_t *variant,
                          struct kernel **ret_kernel, struct error *error) {
  *ret_kernel = NULL;
  return !kernel->is_captured ||
         kernel_of_case(kernel, json_object_get(variant, "case"), ret_kernel, error) ||
         error_pointer_prefix(error, "/case");
}

/* The key of a variant of a captured kernel and, unless it is of a head, the kernel with its case.
 */
static bool captured_variant_read(struct build *build, size_t index, const struct kernel *kernel,
                                  const struct variant *variant, bool is_head,
                                  struct kernel **ret_kernel, struct error *error) {
  if (variant->when)
    return error_at(error, "/when", "a variant of a captured kernel has a \"key\" in its place");
  if (!variant->key)
    return error_at(error, "/key", "a variant of a captured kernel must state its key");
  if (!key_parse(variant->key, KEY_NAMES(kernel), &build->keys[index], error))
    return error_pointer_prefix(error, "/key");
  if (is_head)
    return true;

  if (!variant->of_key)
    return error_at(error, "/case", "a variant of a captured kernel must state what is passed");
  if (!build_variant_kernel(kernel, json_array_get(build->variants, index), ret_kernel, error))
    return false;
  const struct kernel *of_key = *ret_kernel;
  for (size_t i = 0; i < of_key->n_arguments; i++) {
    const struct digest *blob = argument_blob(&of_key->arguments[i]);
    if (blob)
      objects_add(build, &(struct file){.digest = *blob}, 1);
  }

  struct digest expected;
  if (!variant->expected)
    return true;
  if (!digest_parse(variant->expected, &expected))
    return error_at(error, "/expected", "it must be \"sha256:\" and 64 hexadecimal digits");
  objects_add(build, &(struct file){.digest = expected}, 1);
  return true;
}

/* Whether no two variants of a captured kernel have the same key. */
static bool keys_differ(const struct build *build, struct error *error) {
  cleanup_json json_t *seen = json_object();
  for (size_t i = 0; i < build->n_variants; i++) {
    cleanup_json json_t *json = key_to_json(&build->keys[i]);
    cleanup_free char *text = json_canonical(json);
    if (json_object_get(seen, text))
      return error_at(error, POINTER_INDEX("/variants", i), "an earlier variant has the same key");
    json_put(seen, text, json_true());
  }
  return true;
}

/* Exactly the objects of captured kernels state a grid; they alone may state what they are passed
 * and what is filled. `of_key`: such a kernel, with the variant's case; else NULL. */
static bool object_launch_check(const struct build *build, const struct kernel *of_key,
                                const struct object *object, struct error *error) {
  const struct scope none = {0};
  if (!of_key && object->grid)
    return error_at(error, "/grid", "only an object of a captured kernel has a grid");
  if (!of_key && (object->arguments.all || object->fills.all))
    return error_at(error, object->fills.all ? "/fills" : "/arguments",
                    "only an object of a captured kernel has arguments and fills of its own");
  if (!of_key)
    return true;

  bool is_good = json_array_size(object->grid) == 3;
  json_elements (object->grid, i, extent)
    is_good = is_good && json_is_integer(extent) && json_integer_value(extent) >= 0 &&
              json_integer_value(extent) <= GRID_MAX;
  if (!is_good)
    return error_at(error, "/grid",
                    "an object of a captured kernel must have a grid: three integers from 0 to "
                    "2^31 - 1");

  size_t map = launch_arguments_tensormap(&object->arguments);
  if (map < object->arguments.n && !string_starts(build->arch, "sm_"))
    return error_at(error, POINTER_INDEX("/arguments", map),
                    "%s has no tensor maps: pass the descriptor's pointer, shape and strides",
                    build->arch);
  if (!launch_arguments_agree(of_key, &object->arguments, &none, error))
    return error_pointer_prefix(error, "/arguments");
  return launch_fills_agree(of_key, &object->fills, &none, error) ||
         error_pointer_prefix(error, "/fills");
}

/* An object's config, which its list does not have yet, and its blobs. `pointer`: of the list. */
static bool object_read(struct build *build, const struct object *object, json_t *seen,
                        const char *pointer, size_t index, struct error *error) {
  const struct file code = {.digest = object->digest};
  if (!config_check(object->config, seen, POINTER("%s/%zu/config", pointer, index), error))
    return false;
  objects_add(build, &code, 1);
  return !object->metadata || metadata_read(build, object->metadata, error) ||
         error_pointer_prefix(error, POINTER("%s/%zu/metadata", pointer, index));
}

static bool also_read(struct build *build, const struct variant *variant, struct error *error) {
  for (size_t i = 0; i < variant->n_also; i++) {
    const struct further *further = &variant->also[i];
    cleanup_json json_t *seen = json_object();
    const char *at = POINTER("/also/%zu/objects", i);
    if (!further->n_objects)
      return error_at(error, at, "a specialisation must have at least one object");
    for (size_t k = 0; k < further->n_objects; k++) {
      const struct object *object = &further->objects[k];
      if (object->grid || object->arguments.all || object->fills.all)
        return error_at(error, at,
                        "an object that is not measured has no grid, arguments and fills");
      if (!object_read(build, &further->objects[k], seen, at, k, error))
        return false;
    }
  }
  return true;
}

static bool variant_read(struct build *build, size_t index, const struct kernel *kernel,
                         bool is_head, struct error *error) {
  cleanup_by(variant_release) struct variant variant = {0};
  cleanup_kernel struct kernel *of_key = NULL;
  if (!record_read(&variant_record, json_array_get(build->variants, index), "", &variant, error))
    return false;
  if (kernel->is_captured) {
    if (!captured_variant_read(build, index, kernel, &variant, is_head, &of_key, error))
      return false;
  } else if (variant.key || variant.of_key || variant.expected || variant.not_interpreted ||
             variant.n_also) {
    return error_set(error, "only a variant of a captured kernel has \"key\", \"case\", "
                            "\"expected\", \"not_interpreted\" and \"also\"");
  } else if (!variant.when && index + 1 < build->n_variants) {
    return error_set(error,
                     "a variant without \"when\" is used always, so it must be the last one");
  }
  if (variant.when && (!expr_parse(variant.when, &build->whens[index], error) ||
                       !expr_bind(build->whens[index], KEY_NAMES(kernel), error)))
    return error_pointer_prefix(error, "/when");
  if (is_head)
    return true;

  if (!variant.n_objects)
    return error_at(error, "/objects", "a variant must have at least one object");

  cleanup_json json_t *seen = json_object();
  for (size_t i = 0; i < variant.n_objects; i++) {
    if (!object_read(build, &variant.objects[i], seen, "/objects", i, error))
      return false;
    if (!object_launch_check(build, of_key, &variant.objects[i], error))
      return error_pointer_prefix(error, POINTER_INDEX("/objects", i));
  }

  for (size_t i = 0; i < variant.n_failed; i++)
    if (!config_check(variant.failed[i].config, seen, POINTER("/failed/%zu/config", i), error))
      return false;

  return also_read(build, &variant, error);
}

static int compare_digests(const void *a, const void *b) {
  return memcmp(a, b, sizeof(struct digest));
}

static bool parse(const json_t *json, const struct kernel *kernel, bool is_head,
                  struct build **ret_build, struct error *error) {
  cleanup_build struct build *build = xcalloc(1, sizeof *build);
  build->json = json_deep_copy(json); /* JSON fields share its parts */
  if (!record_read(&build_record, build->json, "", build, error))
    return false;

  if (!digest_equal(&build->kernel, &kernel->hash)) {
    return error_at(error, "/kernel",
                    "the build is for another kernel than \"%s\", %s; pack this one again",
                    kernel->name, DIGEST_TEXT(&kernel->hash));
  }

  if (kernel->language == LANGUAGE_EXTERNAL)
    return error_at(error, "/kernel", "kernel \"%s\" is known by name only: it takes no builds",
                    kernel->name);
  if (kernel->language != LANGUAGE_TRITON)
    return error_at(error, "/kernel",
                    "kernel \"%s\" is in %s, which agents compile themselves: it takes no builds",
                    kernel->name, language_name(kernel->language));

  size_t n = 0, i;
  const json_t *variant;
  build->n_variants = json_array_size(build->variants);
  size_t most = kernel->is_captured ? BUILD_CASES_MAX : BUILD_VARIANTS_MAX;
  if (build->n_variants < 1 || build->n_variants > most)
    return error_at(error, "/variants", "a build has 1 to %zu variants", most);
  json_array_foreach (build->variants, i, variant) {
    size_t k;
    const json_t *further;
    n += json_array_size(json_object_get(variant, "objects")) +
         json_array_size(json_object_get(variant, "failed"));
    json_array_foreach (json_object_get(variant, "also"), k, further)
      n += json_array_size(json_object_get(further, "objects"));
  }

  if (n > BUILD_OBJECTS_MAX)
    return error_at(error, "/variants",
                    "a build has at most %d objects and failures; split it by arch or by configs",
                    BUILD_OBJECTS_MAX);

  build->whens = xcalloc(build->n_variants, sizeof *build->whens);
  build->keys = kernel->is_captured ? xcalloc(build->n_variants, sizeof *build->keys) : NULL;
  for (i = 0; i < build->n_variants; i++) {
    char at[JSON_POINTER_SIZE];
    if (!variant_read(build, i, kernel, is_head, error))
      return error_pointer_prefix(error, json_pointer_index(at, sizeof at, "/variants", i));
  }

  if (build->keys && !keys_differ(build, error))
    return false;

  /* Each digest once. */
  n = 0;
  if (build->n_objects)
    qsort(build->objects, build->n_objects, sizeof *build->objects, compare_digests);
  for (i = 0; i < build->n_objects; i++)
    if (!n || compare_digests(&build->objects[n - 1], &build->objects[i]) != 0)
      build->objects[n++] = build->objects[i];
  build->n_objects = n;

  struct function_record parsed;
  if (build->record && !function_record_parse(build->record, &parsed, error))
    return error_pointer_prefix(error, "/record");
  if (build->record) /* it was only checked: renderers parse the JSON again */
    function_record_release(&parsed);
  *ret_build = TAKE(build);
  return true;
}

bool build_parse(const json_t *json, const struct kernel *kernel, struct build **ret_build,
                 struct error *error) {
  if (!parse(json, kernel, false, ret_build, error))
    return false;
  (*ret_build)->digest = json_digest(json);
  return true;
}

json_t *build_head(const struct build *build) {
  json_t *head = json_copy(build->json), *variants = json_array();
  json_elements (build->variants, i, variant)
    json_push(variants, json_pack("{s:O*, s:O*}", "when", json_object_get(variant, "when"), "key",
                                  json_object_get(variant, "key")));
  ALWAYS(head && json_object_set_new(head, "variants", variants) == 0);
  json_object_del(head, "record");
  return head;
}

bool build_parse_head(const json_t *head, const struct digest *digest, const struct kernel *kernel,
                      struct build **ret_build, struct error *error) {
  if (!parse(head, kernel, true, ret_build, error))
    return false;
  (*ret_build)->digest = *digest;
  return true;
}

void build_free(struct build *build) {
  for (size_t i = 0; build->whens && i < build->n_variants; i++)
    if (build->whens[i])
      expr_free(build->whens[i]);
  for (size_t i = 0; build->keys && i < build->n_variants; i++)
    key_release(&build->keys[i]);
  free(build->keys);
  free(build->whens);
  free(build->objects);
  json_decref(build->json);
  record_release(&build_record, build);
  free(build);
}

static bool config_fits(const json_t *object_config, const json_t *config) {
  json_members (object_config, name, value) {
    if (!json_equal(value, json_object_get(config, name)))
      return false;
  }
  return true;
}

const json_t *build_specialisation(const struct build *build, size_t variant, size_t number) {
  const json_t *own = json_array_get(build->variants, variant);
  return number ? json_array_get(json_object_get(own, "also"), number - 1) : own;
}

const json_t *build_cache(const json_t *specialisation, const json_t *config) {
  json_elements (json_object_get(specialisation, "objects"), i, object) {
    if (config_fits(json_object_get(object, "config"), config))
      return json_object_get(json_object_get(object, "metadata"), "cache");
  }
  return NULL;
}

/* Both keys are of the kernel, so that their names are the same. */
static bool keys_are_equal(const struct key *a, const struct key *b) {
  bool is_equal = a->n == b->n;
  for (size_t i = 0; i < a->n && is_equal; i++)
    is_equal = value_equal(a->values[i], b->values[i]);
  return is_equal;
}

static bool case_find(const struct build *build, const struct key *key, size_t *ret_index,
                      struct error *error) {
  for (size_t i = 0; i < build->n_variants; i++) {
    if (keys_are_equal(&build->keys[i], key)) {
      *ret_index = i;
      return true;
    }
  }

  cleanup_free char *key_text = key_format_shell(key);
  return error_at(error, "/key", "no case of the build for %s is of this key; " BUILD_CAPTURE,
                  build->arch, key_text);
}

bool build_variant(const struct build *build, const struct key *key, size_t *ret_index,
                   struct error *error) {
  if (build->keys)
    return case_find(build, key, ret_index, error);

  for (size_t i = 0; i < build->n_variants; i++) {
    struct value when = value_bool(true);
    if (build->whens[i] && expr_last_slot(build->whens[i]) >= (int)key->n)
      return error_at(error, "/key", "the key has fewer members than the build's kernel");
    if (build->whens[i] && !expr_eval(build->whens[i], key->values, &when, error))
      return error_prefix(error, "\"when\" of variant %zu: ", i);
    if (value_is_true(when)) {
      *ret_index = i;
      return true;
    }
  }

  cleanup_free char *key_text = key_format_shell(key);
  return error_at(error, "/key",
                  "no variant of the build for %s covers this key; pack one with " BUILD_COMMANDS,
                  build->arch, build->arch, key_text);
}
