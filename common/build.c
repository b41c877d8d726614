/* Reading a build strictly, and choosing its variant by a job's key.
 *
 * Memory: a build owns everything. Threads: any; read-only after build_parse. */
#include "common/build.h"
#include "common/kernel_parse.h"

#define TEXT_MAX 200

static bool text_is_plain(const char *text) {
  size_t length = strlen(text);
  for (size_t i = 0; i < length; i++) {
    if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
      return false;
  }
  return length >= 1 && length <= TEXT_MAX;
}

/* A short text without control characters; *ret_text is left as it was when the member is absent and may be. */
static bool take_text(const json_t *object, const char *pointer, const char *name, enum json_presence presence,
                      char **ret_text, struct error *error) {
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

static bool parse_toolchain(struct build *build, const json_t *json, const struct kernel *kernel, struct error *error) {
  static const char *const members[] = {"triton", "torch", "rocm", NULL};
  json_t *toolchain = NULL;
  enum json_presence triton = kernel->language == LANGUAGE_TRITON ? JSON_REQUIRED : JSON_OPTIONAL;
  int64_t warp_size;
  return json_get_object(json, "", "toolchain", JSON_REQUIRED, &toolchain, error) &&
         json_only_members(toolchain, "/toolchain", members, error) &&
         take_text(toolchain, "/toolchain", "triton", triton, &build->triton, error) &&
         take_text(toolchain, "/toolchain", "torch", JSON_OPTIONAL, &build->torch, error) &&
         take_text(toolchain, "/toolchain", "rocm", JSON_OPTIONAL, &build->rocm, error) &&
         take_text(json, "", "arch", JSON_REQUIRED, &build->arch, error) &&
         json_get_integer(json, "", "warp_size", JSON_REQUIRED, 1, 1024, &warp_size, error);
}

static bool parse_when(struct build *build, const json_t *variant, const char *pointer, const struct kernel *kernel,
                       size_t index, struct error *error) {
  const char *when = NULL;
  char at[JSON_POINTER_SIZE];
  if (!json_get_string(variant, pointer, "when", JSON_OPTIONAL, &when, error))
    return false;
  if (!when)
    return index + 1 == build->n_variants ||
           error_at(error, pointer, "a variant without \"when\" is used always, so it must be the last one");
  if (!expr_parse(when, &build->whens[index], error) ||
      !expr_bind(build->whens[index], (const char *const *)kernel->key_names, kernel->n_key_names, error))
    return error_pointer_prefix(error, json_pointer_member(at, sizeof at, pointer, "when"));
  return true;
}

static bool parse_object(struct build *build, const json_t *object, const char *pointer, json_t *seen,
                         struct error *error) {
  static const char *const members[] = {"config", "digest", "metadata", NULL};
  json_t *config = NULL, *metadata = NULL, *value;
  const char *name;
  char config_at[JSON_POINTER_SIZE], at[JSON_POINTER_SIZE];
  if (!json_only_members(object, pointer, members, error) ||
      !json_get_object(object, pointer, "config", JSON_REQUIRED, &config, error) ||
      !json_get_object(object, pointer, "metadata", JSON_OPTIONAL, &metadata, error) ||
      !json_get_digest(object, pointer, "digest", JSON_REQUIRED, &build->objects[build->n_objects], error))
    return false;
  json_pointer_member(config_at, sizeof config_at, pointer, "config");
  json_object_foreach (config, name, value) {
    if (json_is_object(value) || json_is_array(value))
      return error_at(error, json_pointer_member(at, sizeof at, config_at, name),
                      "a value of a config must be a number, a string, true, false or null");
  }
  cleanup_free char *text = json_canonical(config);
  if (json_object_get(seen, text))
    return error_at(error, config_at, "the variant has two objects for this config");
  ALWAYS(json_object_set_new(seen, text, json_true()) == 0);
  build->n_objects++;
  return true;
}

/* `objects` has room: the number over all variants was checked before. */
static bool parse_variant(struct build *build, const json_t *variant, const char *pointer, const struct kernel *kernel,
                          size_t index, struct error *error) {
  static const char *const members[] = {"when", "signature", "constexprs", "objects", NULL};
  json_t *signature = NULL, *constexprs = NULL, *objects = NULL, *object;
  char objects_at[JSON_POINTER_SIZE], at[JSON_POINTER_SIZE];
  if (!json_only_members(variant, pointer, members, error) ||
      !json_get_object(variant, pointer, "signature", JSON_OPTIONAL, &signature, error) ||
      !json_get_object(variant, pointer, "constexprs", JSON_OPTIONAL, &constexprs, error) ||
      !json_get_array(variant, pointer, "objects", JSON_REQUIRED, &objects, error) ||
      !parse_when(build, variant, pointer, kernel, index, error))
    return false;
  json_pointer_member(objects_at, sizeof objects_at, pointer, "objects");
  if (!json_array_size(objects))
    return error_at(error, objects_at, "a variant must have at least one object");
  cleanup_json json_t *seen = json_object();
  ALWAYS(seen != NULL);
  size_t i;
  json_array_foreach (objects, i, object) {
    if (!parse_object(build, object, json_pointer_index(at, sizeof at, objects_at, i), seen, error))
      return false;
  }
  return true;
}

static int compare_digests(const void *a, const void *b) { return memcmp(a, b, sizeof(struct digest)); }

/* Sorts the digests and leaves each once. */
static void objects_make_distinct(struct build *build) {
  qsort(build->objects, build->n_objects, sizeof *build->objects, compare_digests);
  size_t n = 0;
  for (size_t i = 0; i < build->n_objects; i++) {
    if (!n || compare_digests(&build->objects[n - 1], &build->objects[i]) != 0)
      build->objects[n++] = build->objects[i];
  }
  build->n_objects = n;
}

static bool parse_variants(struct build *build, const json_t *json, const struct kernel *kernel, struct error *error) {
  json_t *variants = NULL, *variant;
  size_t i, n_objects = 0;
  if (!json_get_array(json, "", "variants", JSON_REQUIRED, &variants, error))
    return false;
  if (json_array_size(variants) < 1 || json_array_size(variants) > BUILD_VARIANTS_MAX)
    return error_at(error, "/variants", "a build has 1 to %d variants", BUILD_VARIANTS_MAX);
  json_array_foreach (variants, i, variant) {
    n_objects += json_array_size(json_object_get(variant, "objects"));
  }
  if (n_objects > BUILD_OBJECTS_MAX)
    return error_at(error, "/variants", "a build has at most %d objects; split it by arch or by configs",
                    BUILD_OBJECTS_MAX);
  build->n_variants = json_array_size(variants);
  build->whens = xcalloc(build->n_variants, sizeof *build->whens);
  build->objects = xcalloc(n_objects, sizeof *build->objects);
  json_array_foreach (variants, i, variant) {
    char at[JSON_POINTER_SIZE];
    if (!parse_variant(build, variant, json_pointer_index(at, sizeof at, "/variants", i), kernel, i, error))
      return false;
  }
  objects_make_distinct(build);
  return true;
}

bool build_parse(const json_t *json, const struct kernel *kernel, struct build **ret_build, struct error *error) {
  static const char *const members[] = {"kernel", "toolchain", "arch", "warp_size", "variants", NULL};
  cleanup_build struct build *build = xcalloc(1, sizeof *build);
  if (!json_only_members(json, "", members, error) ||
      !json_get_digest(json, "", "kernel", JSON_REQUIRED, &build->kernel, error))
    return false;
  if (!digest_equal(&build->kernel, &kernel->hash)) {
    char text[DIGEST_TEXT_SIZE];
    return error_at(error, "/kernel", "the build is for another kernel than \"%s\", %s", kernel->name,
                    digest_format(&kernel->hash, text));
  }
  if (kernel->language == LANGUAGE_C)
    return error_at(error, "/kernel", "kernel \"%s\" is in c, which agents compile themselves: it takes no builds",
                    kernel->name);
  if (!parse_toolchain(build, json, kernel, error) || !parse_variants(build, json, kernel, error))
    return false;
  build->json = json_deep_copy(json);
  ALWAYS(build->json != NULL);
  build->digest = json_digest(json);
  *ret_build = TAKE(build);
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

bool build_variant(const struct build *build, const struct key *key, size_t *ret_index, struct error *error) {
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
  cleanup_free char *key_text = key_format(key);
  return error_at(error, "/key",
                  "no variant of the build for %s holds for the key %s; pack the kernel for this key and push the "
                  "build again",
                  build->arch, key_text);
}
