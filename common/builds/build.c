/* Reading a build strictly, and choosing its variant by a job's key.
 *
 * Memory: a build owns everything. Threads: any; read-only after build_parse. */
#include "common/builds/build.h"

#include "common/builds/function_record.h"
#include "common/builds/triton_folder.h"
#include "common/kernel/kernel_parse.h"

#define TEXT_MAX 200
#define CACHE_FILES_MAX 64
#define CACHE_FILE_NAME_MAX 200

static bool string_ends(const char *text, const char *end) {
  size_t length = strlen(text), end_length = strlen(end);
  return length > end_length && strcmp(text + length - end_length, end) == 0;
}

static bool text_is_plain(const char *text) {
  size_t length = strlen(text);
  for (size_t i = 0; i < length; i++) {
    if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
      return false;
  }
  return length >= 1 && length <= TEXT_MAX;
}

/* A short text without control characters; *ret_text is left as it was when the member is absent
 * and may be. */
static bool take_text(const json_t *object, const char *pointer, const char *name,
                      enum json_presence presence, char **ret_text, struct error *error) {
  const char *text = NULL;
  if (!json_get_string(object, pointer, name, presence, &text, error))
    return false;
  if (!text)
    return true;
  char at[JSON_POINTER_SIZE];
  if (!text_is_plain(text))
    return error_at(error, json_pointer_member(at, sizeof at, pointer, name),
                    "\"%s\" must have 1 to %d bytes and no control characters", name, TEXT_MAX);
  *ret_text = xstrdup(text);
  return true;
}

static bool parse_toolchain(struct build *build, const json_t *json, struct error *error) {
  static const char *const members[] = {"triton", "torch", "rocm", NULL};
  json_t *toolchain = NULL;
  int64_t warp_size;
  return json_get_object(json, "", "toolchain", JSON_REQUIRED, &toolchain, error) &&
         json_only_members(toolchain, "/toolchain", members, error) &&
         take_text(toolchain, "/toolchain", "triton", JSON_REQUIRED, &build->triton, error) &&
         take_text(toolchain, "/toolchain", "torch", JSON_OPTIONAL, &build->torch, error) &&
         take_text(toolchain, "/toolchain", "rocm", JSON_OPTIONAL, &build->rocm, error) &&
         take_text(json, "", "arch", JSON_REQUIRED, &build->arch, error) &&
         json_get_integer(json, "", "warp_size", JSON_REQUIRED, 1, 1024, &warp_size, error);
}

static bool parse_when(struct build *build, const json_t *variant, const char *pointer,
                       const struct kernel *kernel, size_t index, struct error *error) {
  const char *when = NULL;
  char at[JSON_POINTER_SIZE];
  if (!json_get_string(variant, pointer, "when", JSON_OPTIONAL, &when, error))
    return false;
  if (!when)
    return index + 1 == build->n_variants ||
           error_at(error, pointer,
                    "a variant without \"when\" is used always, so it must be the last one");
  if (!expr_parse(when, &build->whens[index], error) ||
      !expr_bind(build->whens[index], (const char *const *)kernel->key_names, kernel->n_key_names,
                 error))
    return error_pointer_prefix(error, json_pointer_member(at, sizeof at, pointer, "when"));
  return true;
}

/* What a parsed variant adds to: the objects of the build, and its own configs. */
struct reading {
  struct build *build;
  size_t capacity;
  json_t *seen; /* canonical texts of the variant's configs */
};

static void object_add(struct reading *reading, const struct digest *digest) {
  struct build *build = reading->build;
  GROW(build->objects, build->n_objects, reading->capacity);
  build->objects[build->n_objects++] = *digest;
}

/* The "config" of an object or of a failure, which no other of the variant has. */
static bool parse_config(struct reading *reading, const json_t *object, const char *pointer,
                         struct error *error) {
  json_t *config = NULL, *value;
  const char *name;
  char config_at[JSON_POINTER_SIZE], at[JSON_POINTER_SIZE];
  if (!json_get_object(object, pointer, "config", JSON_REQUIRED, &config, error))
    return false;
  json_pointer_member(config_at, sizeof config_at, pointer, "config");
  json_object_foreach (config, name, value) {
    if (json_is_object(value) || json_is_array(value))
      return error_at(error, json_pointer_member(at, sizeof at, config_at, name),
                      "a value of a config must be a number, a string, true, false or null");
  }
  cleanup_free char *text = json_canonical(config);
  if (json_object_get(reading->seen, text))
    return error_at(error, config_at, "the variant lists this config twice");
  ALWAYS(json_object_set_new(reading->seen, text, json_true()) == 0);
  return true;
}

/* The texts that are kept beside an object. */
static bool parse_files(struct reading *reading, const json_t *metadata, const char *pointer,
                        struct error *error) {
  json_t *files = NULL, *value;
  const char *name;
  char at[JSON_POINTER_SIZE];
  if (!json_get_object(metadata, pointer, "files", JSON_OPTIONAL, &files, error))
    return false;
  json_pointer_member(at, sizeof at, pointer, "files");
  json_object_foreach (files, name, value) {
    struct digest digest;
    if (!json_get_digest(files, at, name, JSON_REQUIRED, &digest, error))
      return false;
    object_add(reading, &digest);
  }
  return true;
}

/* A name of a file in Triton's cache; "__grp__…" is written by who knows where the cache will
 * stand. */
static bool is_cache_file_name(const char *name) {
  size_t length = strlen(name);
  for (size_t i = 0; i < length; i++) {
    if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f || name[i] == '/')
      return false;
  }
  return length >= 1 && length <= CACHE_FILE_NAME_MAX && strcmp(name, ".") != 0 &&
         strcmp(name, "..") != 0 && !string_starts(name, "__grp__");
}

static bool parse_cache_files(struct reading *reading, const json_t *files, const char *pointer,
                              struct error *error) {
  char at[JSON_POINTER_SIZE];
  const char *name;
  json_t *value;
  size_t n_metadata = 0;
  json_object_foreach ((json_t *)files, name, value) {
    struct digest digest;
    if (!is_cache_file_name(name))
      return error_at(error, json_pointer_member(at, sizeof at, pointer, name),
                      "a file of a cache has a name of 1 to %d bytes, without '/' and control "
                      "characters, that does not "
                      "begin with \"__grp__\"",
                      CACHE_FILE_NAME_MAX);
    if (!json_get_digest(files, pointer, name, JSON_REQUIRED, &digest, error))
      return false;
    object_add(reading, &digest);
    n_metadata += string_ends(name, ".json");
  }
  if (json_object_size(files) > CACHE_FILES_MAX)
    return error_at(error, pointer, "the cache of an object has at most %d files", CACHE_FILES_MAX);
  return n_metadata == 1 ||
         error_at(error, pointer, "one file of a cache, and no other, is NAME.json; here are %zu",
                  n_metadata);
}

/* What Triton keeps of the object in its own cache. */
static bool parse_cache(struct reading *reading, const json_t *metadata, const char *pointer,
                        struct error *error) {
  static const char *const members[] = {"folder", "files", NULL};
  json_t *cache = NULL, *files = NULL;
  const char *folder = NULL;
  char cache_at[JSON_POINTER_SIZE], at[JSON_POINTER_SIZE];
  if (!json_get_object(metadata, pointer, "cache", JSON_OPTIONAL, &cache, error))
    return false;
  if (!cache)
    return true;
  json_pointer_member(cache_at, sizeof cache_at, pointer, "cache");
  if (!json_only_members(cache, cache_at, members, error) ||
      !json_get_string(cache, cache_at, "folder", JSON_REQUIRED, &folder, error) ||
      !json_get_object(cache, cache_at, "files", JSON_REQUIRED, &files, error))
    return false;
  if (!triton_folder_is_valid(folder, strlen(folder)))
    return error_at(error, json_pointer_member(at, sizeof at, cache_at, "folder"),
                    "\"folder\" must be %d characters of base32 (A to Z, 2 to 7)",
                    TRITON_FOLDER_LENGTH);
  return parse_cache_files(reading, files, json_pointer_member(at, sizeof at, cache_at, "files"),
                           error);
}

static bool parse_object(struct reading *reading, const json_t *object, const char *pointer,
                         struct error *error) {
  static const char *const members[] = {"config", "digest", "metadata", NULL};
  json_t *metadata = NULL;
  struct digest digest;
  char at[JSON_POINTER_SIZE];
  if (!json_only_members(object, pointer, members, error) ||
      !parse_config(reading, object, pointer, error) ||
      !json_get_object(object, pointer, "metadata", JSON_OPTIONAL, &metadata, error) ||
      !json_get_digest(object, pointer, "digest", JSON_REQUIRED, &digest, error))
    return false;
  object_add(reading, &digest);
  json_pointer_member(at, sizeof at, pointer, "metadata");
  return !metadata ||
         (parse_files(reading, metadata, at, error) && parse_cache(reading, metadata, at, error));
}

static bool parse_failure(struct reading *reading, const json_t *failure, const char *pointer,
                          struct error *error) {
  static const char *const members[] = {"config", "error", NULL};
  const char *why = NULL;
  char at[JSON_POINTER_SIZE];
  if (!json_only_members(failure, pointer, members, error) ||
      !parse_config(reading, failure, pointer, error) ||
      !json_get_string(failure, pointer, "error", JSON_REQUIRED, &why, error))
    return false;
  size_t length = strlen(why);
  if (length < 1 || length > BUILD_ERROR_MAX || why[strcspn(why, "\r\n")])
    return error_at(error, json_pointer_member(at, sizeof at, pointer, "error"),
                    "\"error\" must be one line of 1 to %d bytes", BUILD_ERROR_MAX);
  return true;
}

static bool parse_each(struct reading *reading, const json_t *array, const char *pointer,
                       bool (*parse)(struct reading *reading, const json_t *element,
                                     const char *pointer, struct error *error),
                       struct error *error) {
  char at[JSON_POINTER_SIZE];
  size_t i;
  const json_t *element;
  json_array_foreach (array, i, element) {
    if (!parse(reading, element, json_pointer_index(at, sizeof at, pointer, i), error))
      return false;
  }
  return true;
}

/* The number of objects over all variants was checked before. */
static bool parse_code(struct reading *reading, const json_t *variant, const char *pointer,
                       struct error *error) {
  json_t *signature = NULL, *constexprs = NULL, *objects = NULL, *failed = NULL;
  char objects_at[JSON_POINTER_SIZE], failed_at[JSON_POINTER_SIZE];
  if (!json_get_object(variant, pointer, "signature", JSON_OPTIONAL, &signature, error) ||
      !json_get_object(variant, pointer, "constexprs", JSON_OPTIONAL, &constexprs, error) ||
      !json_get_array(variant, pointer, "objects", JSON_REQUIRED, &objects, error) ||
      !json_get_array(variant, pointer, "failed", JSON_OPTIONAL, &failed, error))
    return false;
  json_pointer_member(objects_at, sizeof objects_at, pointer, "objects");
  json_pointer_member(failed_at, sizeof failed_at, pointer, "failed");
  if (!json_array_size(objects))
    return error_at(error, objects_at, "a variant must have at least one object");
  cleanup_json json_t *seen = json_object();
  ALWAYS(seen != NULL);
  reading->seen = seen;
  return parse_each(reading, objects, objects_at, parse_object, error) &&
         parse_each(reading, failed, failed_at, parse_failure, error);
}

static int compare_digests(const void *a, const void *b) {
  return memcmp(a, b, sizeof(struct digest));
}

/* Sorts the digests and leaves each once. */
static void objects_make_distinct(struct build *build) {
  if (build->n_objects)
    qsort(build->objects, build->n_objects, sizeof *build->objects, compare_digests);
  size_t n = 0;
  for (size_t i = 0; i < build->n_objects; i++) {
    if (!n || compare_digests(&build->objects[n - 1], &build->objects[i]) != 0)
      build->objects[n++] = build->objects[i];
  }
  build->n_objects = n;
}

static bool check_counts(const json_t *variants, struct error *error) {
  const json_t *variant;
  size_t i, n = 0;
  if (json_array_size(variants) < 1 || json_array_size(variants) > BUILD_VARIANTS_MAX)
    return error_at(error, "/variants", "a build has 1 to %d variants", BUILD_VARIANTS_MAX);
  json_array_foreach (variants, i, variant) {
    n += json_array_size(json_object_get(variant, "objects")) +
         json_array_size(json_object_get(variant, "failed"));
  }
  if (n > BUILD_OBJECTS_MAX)
    return error_at(error, "/variants",
                    "a build has at most %d objects and failures; split it by arch or by configs",
                    BUILD_OBJECTS_MAX);
  return true;
}

static bool parse_variants(struct build *build, const json_t *json, const struct kernel *kernel,
                           bool is_head, struct error *error) {
  static const char *const members[] = {"when",    "signature", "constexprs",
                                        "objects", "failed",    NULL};
  json_t *variants = NULL, *variant;
  struct reading reading = {.build = build};
  size_t i;
  if (!json_get_array(json, "", "variants", JSON_REQUIRED, &variants, error) ||
      !check_counts(variants, error))
    return false;
  build->n_variants = json_array_size(variants);
  build->whens = xcalloc(build->n_variants, sizeof *build->whens);
  json_array_foreach (variants, i, variant) {
    char at[JSON_POINTER_SIZE];
    json_pointer_index(at, sizeof at, "/variants", i);
    if (!json_only_members(variant, at, members, error) ||
        !parse_when(build, variant, at, kernel, i, error) ||
        (!is_head && !parse_code(&reading, variant, at, error)))
      return false;
  }
  objects_make_distinct(build);
  return true;
}

/* Read here and dropped: what is kept is the JSON, which who renders reads again. */
static bool check_record(const json_t *json, struct error *error) {
  json_t *record = NULL;
  struct function_record parsed;
  if (!json_get_object(json, "", "record", JSON_OPTIONAL, &record, error))
    return false;
  if (!record)
    return true;
  if (!function_record_parse(record, &parsed, error))
    return error_pointer_prefix(error, "/record");
  function_record_release(&parsed);
  return true;
}

static bool parse(const json_t *json, const struct kernel *kernel, bool is_head,
                  struct build **ret_build, struct error *error) {
  static const char *const members[] = {"kernel",   "toolchain", "arch", "warp_size",
                                        "variants", "record",    NULL};
  cleanup_build struct build *build = xcalloc(1, sizeof *build);
  if (!json_only_members(json, "", members, error) ||
      !json_get_digest(json, "", "kernel", JSON_REQUIRED, &build->kernel, error))
    return false;
  if (!digest_equal(&build->kernel, &kernel->hash)) {
    char text[DIGEST_TEXT_SIZE];
    return error_at(error, "/kernel",
                    "the build is for another kernel than \"%s\", %s; pack this one again",
                    kernel->name, digest_format(&kernel->hash, text));
  }
  if (kernel->language == LANGUAGE_EXTERNAL)
    return error_at(error, "/kernel", "kernel \"%s\" is known by name only: it takes no builds",
                    kernel->name);
  if (kernel->language != LANGUAGE_TRITON)
    return error_at(error, "/kernel",
                    "kernel \"%s\" is in %s, which agents compile themselves: it takes no builds",
                    kernel->name, language_name(kernel->language));
  if (!parse_toolchain(build, json, error) ||
      !parse_variants(build, json, kernel, is_head, error) || !check_record(json, error))
    return false;
  build->json = json_deep_copy(json);
  ALWAYS(build->json != NULL);
  build->record = json_object_get(build->json, "record");
  if (json_is_null(build->record))
    build->record = NULL;
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
  json_t *head = json_copy(build->json), *variants = json_array(), *variant;
  size_t i;
  json_array_foreach (json_object_get(build->json, "variants"), i, variant) {
    json_t *when = json_object_get(variant, "when"), *kept = json_object();
    ALWAYS(!when || json_object_set(kept, "when", when) == 0);
    ALWAYS(json_array_append_new(variants, kept) == 0);
  }
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
  free(build->triton);
  free(build->torch);
  free(build->rocm);
  free(build->arch);
  for (size_t i = 0; build->whens && i < build->n_variants; i++) {
    if (build->whens[i])
      expr_free(build->whens[i]);
  }
  free(build->whens);
  free(build->objects);
  json_decref(build->json);
  free(build);
}

static bool config_fits(const json_t *object_config, const json_t *config) {
  const char *name;
  json_t *value;
  json_object_foreach ((json_t *)object_config, name, value) {
    if (!json_equal(value, json_object_get(config, name)))
      return false;
  }
  return true;
}

const json_t *build_cache(const struct build *build, size_t variant, const json_t *config) {
  const json_t *objects =
      json_object_get(json_array_get(json_object_get(build->json, "variants"), variant), "objects");
  const json_t *object;
  size_t i;
  json_array_foreach (objects, i, object) {
    if (config_fits(json_object_get(object, "config"), config))
      return json_object_get(json_object_get(object, "metadata"), "cache");
  }
  return NULL;
}

bool build_variant(const struct build *build, const struct key *key, size_t *ret_index,
                   struct error *error) {
  for (size_t i = 0; i < build->n_variants; i++) {
    struct value holds = value_bool(true);
    if (build->whens[i] && expr_last_slot(build->whens[i]) >= (int)key->n)
      return error_at(error, "/key", "the key has fewer members than the build's kernel");
    if (build->whens[i] && !expr_eval(build->whens[i], key->values, &holds, error))
      return error_prefix(error, "\"when\" of variant %zu: ", i);
    if (value_is_true(holds)) {
      *ret_index = i;
      return true;
    }
  }
  cleanup_free char *key_text = key_format_shell(key);
  return error_at(error, "/key",
                  "no variant of the build for %s covers this key; pack one with " BUILD_COMMANDS,
                  build->arch, build->arch, key_text);
}
