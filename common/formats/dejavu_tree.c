/* The tree of triton-dejavu's caches: its paths, what dejavu restores of it, and reading it.
 *
 * Every file is checked whole: its place, its types, that it belongs in its folder, and that no key
 * occurs twice. Memory and threads: dejavu.h. */
#include <ctype.h>

#include "common/cache/autotuner.h"
#include "common/cache/text.h"
#include "common/formats/dejavu.h"
#include "common/kernel/kernel.h"

#define PART_MAX 200
#define NAME_PREFIX "dejavu/"
#define KERNEL_NAME_MAX 128

const char *const dejavu_part_names[DEJAVU_PARTS] = {
    "layout",          "triton",       "torch",         "runtime",        "gpu", "function",
    "autotune_config", "code_version", "tune_features", "kernel_configs", "tag"};

/* Prefixes of folders' names, before the part. */
static const char *const prefixes[DEJAVU_PARTS] = {[DEJAVU_LAYOUT] = "",
                                                   [DEJAVU_TRITON] = "triton_",
                                                   [DEJAVU_TORCH] = "torch_",
                                                   [DEJAVU_RUNTIME] = "",
                                                   [DEJAVU_GPU] = "gpu_",
                                                   [DEJAVU_FUNCTION] = "",
                                                   [DEJAVU_AUTOTUNE_CONFIG] = "autotune_config-",
                                                   [DEJAVU_CODE_VERSION] = "code_version-",
                                                   [DEJAVU_TUNE_FEATURES] = "tune_features-",
                                                   [DEJAVU_KERNEL_CONFIGS] = "kernel_configs-",
                                                   [DEJAVU_TAG] = ""};

void dejavu_path_release(struct dejavu_path *path) {
  for (size_t i = 0; i < DEJAVU_PARTS; i++)
    free(path->parts[i]);
  *path = (struct dejavu_path){0};
}

/* NULL: the layout is not known. */
static const enum dejavu_part *layout_parts(const char *layout) {
  static const enum dejavu_part of_5[] = {DEJAVU_LAYOUT,
                                          DEJAVU_RUNTIME,
                                          DEJAVU_TORCH,
                                          DEJAVU_TRITON,
                                          DEJAVU_GPU,
                                          DEJAVU_FUNCTION,
                                          DEJAVU_AUTOTUNE_CONFIG,
                                          DEJAVU_KERNEL_CONFIGS,
                                          DEJAVU_CODE_VERSION,
                                          DEJAVU_TAG,
                                          DEJAVU_PARTS};
  static const enum dejavu_part of_6[] = {
      DEJAVU_LAYOUT,          DEJAVU_RUNTIME,      DEJAVU_TORCH,
      DEJAVU_TRITON,          DEJAVU_GPU,          DEJAVU_FUNCTION,
      DEJAVU_AUTOTUNE_CONFIG, DEJAVU_CODE_VERSION, DEJAVU_TUNE_FEATURES,
      DEJAVU_KERNEL_CONFIGS,  DEJAVU_TAG,          DEJAVU_PARTS};
  static const enum dejavu_part of_7[] = {
      DEJAVU_LAYOUT,       DEJAVU_TRITON,        DEJAVU_RUNTIME,
      DEJAVU_GPU,          DEJAVU_FUNCTION,      DEJAVU_AUTOTUNE_CONFIG,
      DEJAVU_CODE_VERSION, DEJAVU_TUNE_FEATURES, DEJAVU_KERNEL_CONFIGS,
      DEJAVU_TAG,          DEJAVU_PARTS};
  int minor, end = 0;

  if (sscanf(layout, "dejavu_0.%2d%n", &minor, &end) != 1 || layout[end] || minor < 5 ||
      layout[9] < '0' || layout[9] > '9')
    return NULL;
  return minor == 5 ? of_5 : minor == 6 ? of_6 : of_7;
}

bool dejavu_layout_parts(const char *layout, const enum dejavu_part **ret_parts,
                         struct error *error) {
  *ret_parts = layout_parts(layout);
  return *ret_parts ||
         error_set(error,
                   "the layout %.60s is not known; dejavu_0.5, dejavu_0.6 and dejavu_0.7 are",
                   layout);
}

bool dejavu_layout_has(const enum dejavu_part *parts, enum dejavu_part part) {
  while (*parts != DEJAVU_PARTS && *parts != part)
    parts++;
  return *parts == part;
}

static bool part_is_safe(const char *part) {
  size_t size = strlen(part);
  for (const char *c = part; *c; c++)
    if ((unsigned char)*c < 0x20 || *c == 0x7f || *c == '/')
      return false;
  return json_can_hold(part) && size > 0 && size <= PART_MAX && !string_equal(part, ".") &&
         !string_equal(part, "..");
}

static bool hash_is_valid(const char *text) {
  return strlen(text) == 64 && !text[strspn(text, "0123456789abcdef")];
}

/* Takes a folder's name. The parts are in this order: the layout, those of the storage, the
 * function, hashes, the tag. */
static bool part_take(const char *name, struct dejavu_path *path) {
  char **parts = path->parts;
  if (!part_is_safe(name) || parts[DEJAVU_TAG])
    return false;

  enum dejavu_part part = DEJAVU_PARTS;
  if (!parts[DEJAVU_LAYOUT]) {
    part = DEJAVU_LAYOUT;
  } else if (!parts[DEJAVU_FUNCTION] && parts[DEJAVU_GPU]) {
    part = DEJAVU_FUNCTION;
  } else if (!parts[DEJAVU_FUNCTION] && !parts[DEJAVU_RUNTIME] && strlen(name) > 5 &&
             (string_starts(name, "rocm_") || string_starts(name, "cuda_"))) {
    part = DEJAVU_RUNTIME;
  } else {
    bool is_hash = parts[DEJAVU_FUNCTION] != NULL;
    for (enum dejavu_part i = DEJAVU_TRITON; i < DEJAVU_TAG; i++) {
      if (parts[i] || !prefixes[i][0] || dejavu_part_is_hash(i) != is_hash ||
          !string_starts(name, prefixes[i]))
        continue;
      const char *rest = name + strlen(prefixes[i]);
      if (is_hash ? hash_is_valid(rest) : *rest)
        part = i;
    }
    if (part == DEJAVU_PARTS && parts[DEJAVU_AUTOTUNE_CONFIG])
      part = DEJAVU_TAG;
  }

  if (part == DEJAVU_PARTS)
    return false;

  parts[part] = xstrdup(name + strlen(prefixes[part]));
  return true;
}

/* Checks that the path has exactly the parts of its layout. */
static bool path_check(const struct dejavu_path *path, const enum dejavu_part **ret_parts,
                       struct error *error) {
  if (!dejavu_layout_parts(path->parts[DEJAVU_LAYOUT], ret_parts, error))
    return false;

  bool is_whole = true;
  for (enum dejavu_part i = 0; i < DEJAVU_PARTS; i++)
    is_whole = is_whole && dejavu_layout_has(*ret_parts, i) == (path->parts[i] != NULL);
  if (is_whole)
    return true;

  cleanup_json json_t *names = json_array();
  for (const enum dejavu_part *part = *ret_parts; *part != DEJAVU_PARTS; part++)
    json_push(names, json_string(dejavu_part_names[*part]));
  cleanup_free char *list = json_texts_join(names, ", ");
  return error_set(error, "a path has the parts %s; one is missing, or there is one too many",
                   list);
}

/* The place in a path where the layout's folder begins, or a folder that is named like one; NULL
 * when there is neither. */
static const char *path_begin(const char *text) {
  const char *similar = NULL;
  for (const char *at = text;; at++) {
    size_t size = strcspn(at, "/");
    cleanup_free char *part = xstrndup(at, size);
    if (layout_parts(part))
      return at;
    if (!similar && string_starts(part, "dejavu_") && part[7] >= '0' && part[7] <= '9')
      similar = at;
    at += size;
    if (!*at)
      return similar;
  }
}

/* Parses a path from the layout's folder on. */
static bool path_parse(const char *text, struct dejavu_path *ret, struct error *error) {
  cleanup_dejavu_path struct dejavu_path path = {0};
  const enum dejavu_part *parts;
  const char *at = text;

  for (const char *slash; (slash = strchr(at, '/')); at = slash + 1) {
    cleanup_free char *name = xstrndup(at, (size_t)(slash - at));
    if (part_take(name, &path))
      continue;

    const char *layout = path.parts[DEJAVU_LAYOUT], *function = path.parts[DEJAVU_FUNCTION];
    if (layout && !dejavu_layout_parts(layout, &parts, error))
      return false;
    /* Versions 0.5.0 and 0.5.1 wrote "add_kernel-<64 digits>" where hashes should follow. */
    size_t size = function && !path.parts[DEJAVU_AUTOTUNE_CONFIG] ? strlen(function) : 0;
    if (size > 65 && function[size - 65] == '-' && hash_is_valid(function + size - 64))
      return error_set(error,
                       "a cache of triton-dejavu 0.5.0 or 0.5.1, whose folder has one hash of "
                       "everything, so that it is not "
                       "known what it is of; import what a newer triton-dejavu writes");
    return error_set(error, "the folder \"%.100s\" cannot be in a path of triton-dejavu", name);
  }

  if (!path.parts[DEJAVU_LAYOUT])
    return error_set(error, "the file is in no folder of triton-dejavu");
  if (!path_check(&path, &parts, error))
    return false;

  *ret = path;
  path = (struct dejavu_path){0};
  return true;
}

bool dejavu_path_format(const struct dejavu_path *path, char **ret_text, struct error *error) {
  const enum dejavu_part *part;
  if (!path_check(path, &part, error))
    return false;

  cleanup_free char *text = xstrdup("");

  for (; *part != DEJAVU_PARTS; part++) {
    const char *name = path->parts[*part];
    if (!part_is_safe(name) || (dejavu_part_is_hash(*part) && !hash_is_valid(name)))
      return error_set(error, "\"%.100s\" cannot be a part of a path", name);
    text_append(&text, "%s%s/", prefixes[*part], name);
  }

  *ret_text = xasprintf("%scache.json", text);
  return true;
}

char *dejavu_signature_function(const char *signature) {
  const char *colon = strchr(signature, ':');
  size_t size = strlen(signature);
  if (!string_starts(signature, "JITFunction(") || !colon || strchr(colon + 1, ':') ||
      signature[size - 1] != ')')
    return NULL;
  return xstrndup(colon + 1, (size_t)(signature + size - 1 - (colon + 1)));
}

char *dejavu_hash(const char *text, char hash[DEJAVU_HASH_SIZE]) {
  struct digest digest = digest_of(text, strlen(text));
  memcpy(hash, DIGEST_TEXT(&digest) + strlen("sha256:"), DEJAVU_HASH_SIZE);
  return hash;
}

char *dejavu_names_hash(const json_t *names, char hash[DEJAVU_HASH_SIZE]) {
  cleanup_free char *joined = json_texts_join(names, "|");
  return dejavu_hash(joined, hash);
}

json_t *dejavu_timings_data(const json_t *object, const char *rep, const char *warmup,
                            const char *graphs) {
  json_t *rep_ms = json_object_get(object, rep), *warmup_ms = json_object_get(object, warmup);
  return json_pack("{s:o, s:o, s:b}", "rep_t_ms",
                   json_is_number(rep_ms) ? json_incref(rep_ms) : json_integer(100), "warmup_t_ms",
                   json_is_number(warmup_ms) ? json_incref(warmup_ms) : json_integer(25),
                   "cuda_graphs", json_flag(object, graphs));
}

/* What dejavu restores */

/* Whether Python's int() takes the text: signs, white space around and single underscores within.
 */
static bool reads_as_integer(const char *text) {
  text += strspn(text, " \t\n\v\f\r");
  text += *text == '+' || *text == '-';
  bool after_digit = false;
  for (; (*text >= '0' && *text <= '9') || (*text == '_' && after_digit); text++)
    after_digit = *text != '_';
  return after_digit && !text[strspn(text, " \t\n\v\f\r")];
}

/* Whether distutils' strtobool takes the text. */
static bool reads_as_boolean(const char *text) {
  static const char *const words[] = {"y", "yes", "t", "true",  "on",  "1",
                                      "n", "no",  "f", "false", "off", "0"};
  for (size_t i = 0; i < ARRAY_LENGTH(words); i++)
    if (strcasecmp(text, words[i]) == 0)
      return true;
  return false;
}

static bool restores_member(const char *name, const json_t *value, struct error *error) {
  static const char *const integers[] = {"num_warps", "num_stages", "num_ctas"};
  bool is_integer = json_is_integer(value), is_boolean = json_is_boolean(value);

  if (name_is_in(name, integers))
    return is_integer || error_set(error, "%s must be an integer", name);
  if (string_equal(name, "maxnreg"))
    return is_integer || json_is_null(value) ||
           error_set(error, "maxnreg must be an integer or None");
  if (string_equal(name, "enable_warp_specialization"))
    return is_boolean || error_set(error, "%s must be a boolean", name);
  if (string_equal(name, "enable_persistent"))
    return json_is_false(value) || error_set(error, "dejavu does not restore enable_persistent");
  if (string_equal(name, "ir_override"))
    return json_is_null(value) || error_set(error, "dejavu does not restore ir_override");
  if (string_equal(name, "pre_hook") || strstr(name, ", ") || strstr(name, ": ") || !name[0])
    return error_set(error, "\"%.60s\" is not a name of a parameter for dejavu", name);
  if (is_integer || is_boolean)
    return true;

  const char *text = json_string_value(value);
  if (!text)
    return error_set(error, "%.60s is %s, which dejavu reads as a text", name,
                     json_is_null(value) ? "None" : "a float");
  if (strstr(text, ", ") || strstr(text, ": "))
    return error_set(error, "%.60s has \", \" or \": \" in its text", name);
  if (reads_as_integer(text) || reads_as_boolean(text))
    return error_set(error,
                     "%.60s is the text '%.40s', which dejavu reads as a number or a boolean", name,
                     text);
  return true;
}

bool dejavu_restores_config(const json_t *config, struct error *error) {
  bool ok = json_object_size(config) > 0 || error_set(error, "it has no members");
  json_members (config, name, value)
    ok = ok && restores_member(name, value, error);
  return ok || error_prefix(error, "dejavu would not restore the config: ");
}

/* Dejavu splits a key at ", " and strips one quote from either end, without undoing escapes. */
bool dejavu_restores_element(const char *element, size_t size, bool ignore_dtypes,
                             struct error *error) {
  const char *why = NULL;
  if (memchr(element, '\'', size) && memchr(element, '"', size))
    why = "has both kinds of quotes, which Python escapes and dejavu does not undo";
  if (ignore_dtypes && memmem(element, size, "torch.", 6))
    why = "is taken for a dtype, and the function ignores those";
  if (memmem(element, size, ", ", 2))
    why = "has \", \" in it, where dejavu splits keys";

  for (size_t i = 0; i < size; i++)
    if ((unsigned char)element[i] < 0x20 || (unsigned char)element[i] >= 0x7f || element[i] == '\\')
      why = "has characters that Python escapes, which dejavu does not undo";

  return !why || error_set(error, "dejavu would not restore the key: '%.*s' %s",
                           size < 80 ? (int)size : 80, element, why);
}

/* Reading */

/* One file. */
struct table {
  const struct kernel *registered; /* to map it to, or NULL */
  struct imported *imported;
  struct dejavu_path path;
  json_t *json, *keys, *cache, *timings; /* keys is NULL when null */
  json_t *timings_data;                  /* or NULL */
  const char *signature;
  json_t *provenance; /* what its entries have in common */
  json_t *order;      /* the names of a config's members */
  /* 1 + the index of the kernel of entries with so many elements; 0: none yet. */
  size_t kernels[KEY_MEMBERS_MAX + 1];
};

static void table_release(struct table *table) {
  dejavu_path_release(&table->path);
  json_decref(table->json);
  json_decref(table->provenance);
  json_decref(table->order);
}

static bool keys_check(const struct table *table, struct error *error) {
  char hash[DEJAVU_HASH_SIZE];
  const char *features = table->path.parts[DEJAVU_TUNE_FEATURES];
  if (json_array_size(table->keys) > KEY_MEMBERS_MAX)
    return error_at(error, "/keys", "more than %d names", KEY_MEMBERS_MAX);

  json_elements (table->keys, i, key)
    if (!json_string_length(key) || json_string_length(key) > IDENTIFIER_MAX)
      return error_at(error, POINTER_INDEX("/keys", i), "a name must be a string of 1 to %d bytes",
                      IDENTIFIER_MAX);

  if (table->keys && features && !string_equal(dejavu_names_hash(table->keys, hash), features))
    return error_at(error, "/keys",
                    "the folder tune_features-%.12s… is of other names: theirs is %.12s…", features,
                    hash);
  return true;
}

static bool timings_data_check(const json_t *data, struct error *error) {
  static const char *const members[] = {"labels", "rep_t_ms", "warmup_t_ms", "cuda_graphs", NULL};
  static const char *const known[] = {"ms", "min_ms", "max_ms"};
  const char *at = "/timings_data";
  json_t *labels = NULL;
  double ms = 0;
  bool graphs;

  if (!json_only_members(data, at, members, error) ||
      !json_get_array(data, at, "labels", JSON_REQUIRED, &labels, error) ||
      !json_get_number(data, at, "rep_t_ms", JSON_REQUIRED, &ms, error) ||
      !json_get_number(data, at, "warmup_t_ms", JSON_REQUIRED, &ms, error) ||
      !json_get_bool(data, at, "cuda_graphs", JSON_REQUIRED, &graphs, error))
    return false;

  size_t n = json_array_size(labels);
  bool is_known = n == 1 || n == ARRAY_LENGTH(known);
  for (size_t i = 0; is_known && i < n; i++)
    is_known = string_equal(json_string_value(json_array_get(labels, i)), known[i]);
  return is_known || error_at(error, "/timings_data/labels",
                              "the labels must be [\"ms\"], or that with \"min_ms\" and "
                              "\"max_ms\"");
}

static bool table_read(const struct cache_file *file, struct table *table, struct error *error) {
  double total = 0;
  int64_t evaluated = 0;
  const char *path = path_begin(file->path);
  char *const *parts = table->path.parts;

  if (!path)
    return error_set(
        error,
        "the path has no folder like dejavu_0.7, and its folders identify what a cache.json is of");
  if (!path_parse(path, &table->path, error) ||
      !json_parse(file->bytes, file->size, &table->json, error))
    return false;

  const json_t *json = table->json;
  if (!json_is_object(json))
    return error_set(error, "the document must be an object");
  if (!json_get_string(json, "", "signature", JSON_REQUIRED, &table->signature, error) ||
      !json_get_number(json, "", "total_bench_time_s", JSON_REQUIRED, &total, error) ||
      !json_get_integer(json, "", "evaluated_configs", JSON_REQUIRED, 0, INT32_MAX, &evaluated,
                        error) ||
      !json_get_object(json, "", "cache", JSON_REQUIRED, &table->cache, error))
    return false;
  if (!json_object_get(json, "keys"))
    return error_set(error,
                     "a cache of triton-dejavu %.20s without \"keys\", as versions before 0.5.4 "
                     "wrote it: what the members "
                     "of its keys are is not known; import what a newer triton-dejavu writes",
                     parts[DEJAVU_LAYOUT] + strlen("dejavu_"));
  if (!json_get_array(json, "", "keys", JSON_OPTIONAL, &table->keys, error) ||
      !json_get_object(json, "", "timings", JSON_REQUIRED, &table->timings, error) ||
      !json_get_object(json, "", "timings_data", JSON_OPTIONAL, &table->timings_data, error))
    return false;
  if (total < 0)
    return error_at(error, "/total_bench_time_s", "a time must not be negative");

  cleanup_free char *function = dejavu_signature_function(table->signature);
  if (!string_equal(function, parts[DEJAVU_FUNCTION]))
    return error_at(error, "/signature",
                    "\"%.200s\" is not JITFunction(module:%.100s), as the folder has it",
                    table->signature, parts[DEJAVU_FUNCTION]);

  table->provenance = json_pack("{s:I, s:o, s:O}", "evaluated_configs", (json_int_t)evaluated,
                                "source", imported_source(path), "total_bench_time_s",
                                json_object_get(json, "total_bench_time_s"));
  return keys_check(table, error) &&
         (!table->timings_data || timings_data_check(table->timings_data, error));
}

/* Folders have '_' for ' ' and '/' of the device's name; names with '/' are rare. */
static json_t *environment_of(const struct dejavu_path *path) {
  char *const *parts = path->parts;
  const char *runtime = parts[DEJAVU_RUNTIME];
  cleanup_free char *gpu = text_replace(xstrdup(parts[DEJAVU_GPU]), "_", ' '),
                    *platform = xstrndup(runtime, strlen("rocm"));
  json_t *environment = json_pack("{s:s, s:s, s:s}", platform, runtime + strlen("rocm_"), "triton",
                                  parts[DEJAVU_TRITON], "gpu", gpu);
  ALWAYS(environment != NULL);

  if (parts[DEJAVU_TORCH])
    json_put(environment, "torch", json_string(parts[DEJAVU_TORCH]));
  return environment;
}

/* A new name that expressions may read, for a member of the key that the file calls `name`. */
static char *member_name(const json_t *names, const char *name, size_t index) {
  cleanup_free char *text = name && identifier_is_valid(name) && strlen(name) < IDENTIFIER_MAX - 8
                                ? xasprintf("%s%s", name, name_is_reserved(name) ? "_" : "")
                                : xasprintf("key_%zu", index);

  for (size_t i = 0; i < json_array_size(names); i++) {
    if (!string_equal(json_string_value(json_array_get(names, i)), text))
      continue;
    text_append(&text, "_");
    i = (size_t)-1;
  }

  return TAKE(text);
}

/* The manifest of the kernel that entries with n elements are of. */
static json_t *manifest_of(const struct table *table, size_t n) {
  char *const *parts = table->path.parts;
  cleanup_free char *name = xasprintf(
      NAME_PREFIX "%.*s", KERNEL_NAME_MAX - (int)strlen(NAME_PREFIX), parts[DEJAVU_FUNCTION]);
  for (char *c = name; *c; c++)
    *c = isalnum((unsigned char)*c) || strchr("._/-", *c) ? *c : '_';

  json_t *names = json_array();
  size_t n_keys = json_array_size(table->keys);
  for (size_t i = 0; i < n; i++) {
    cleanup_free char *dtype = xasprintf("dtype_%zu", i - n_keys);
    const char *wanted = i < n_keys    ? json_string_value(json_array_get(table->keys, i))
                         : table->keys ? dtype
                                       : NULL;
    cleanup_free char *member = member_name(names, wanted, i);
    json_push(names, json_string(member));
  }

  json_t *exports =
      json_pack("{s:s, s:O?, s:O, s:o}", "signature", table->signature, "keys", table->keys,
                "config", table->order, "timings_data",
                dejavu_timings_data(table->timings_data, "rep_t_ms", "warmup_t_ms", "cuda_graphs"));
  ALWAYS(exports != NULL);

  for (enum dejavu_part i = 0; i < DEJAVU_PARTS; i++)
    if (parts[i] && (i == DEJAVU_LAYOUT || i == DEJAVU_FUNCTION || dejavu_part_is_hash(i)))
      json_put(exports, dejavu_part_names[i], json_string(parts[i]));
  return external_manifest(name, names, "dejavu", exports);
}

/* The kernel that entries with n elements are of. */
static struct imported_kernel *kernel_find(struct table *table, size_t n) {
  struct imported *imported = table->imported;
  if (!table->kernels[n]) {
    struct imported_kernel *kernel;
    if (table->registered) {
      kernel = imported_kernel_for(imported, "");
      kernel->hash = table->registered->hash;
    } else {
      kernel = imported_external(imported, manifest_of(table, n));
    }
    table->kernels[n] = 1 + (size_t)(kernel - imported->kernels);
  }

  return &imported->kernels[table->kernels[n] - 1];
}

/* The elements under the names of the external kernel's key; of a registered kernel, whose key has
 * the names of the table's, without dtypes. */
static bool key_make(const struct table *table, const struct imported_kernel *kernel,
                     char **elements, size_t n, json_t **ret, struct error *error) {
  const struct kernel *registered = table->registered;
  size_t n_keys = json_array_size(table->keys);
  if (n < n_keys)
    return error_set(error, "the key has %zu elements and \"keys\" %zu names", n, n_keys);

  const json_t *names = registered ? table->keys : json_object_get(kernel->manifest, "key");
  cleanup_json json_t *key = json_object();
  for (size_t i = 0; i < json_array_size(names); i++)
    json_put(key, json_string_value(json_array_get(names, i)),
             value_to_json(python_value(elements[i])));

  if (registered) {
    bool fits =
        json_object_size(key) == registered->n_key_names && n_keys == registered->n_key_names;
    for (size_t i = 0; i < registered->n_key_names; i++)
      fits = fits && json_object_get(key, registered->key_names[i]);
    if (!fits) {
      cleanup_free char *text = table->keys ? json_canonical(table->keys) : xstrdup("null");
      return error_at(error, "/keys", "the table's keys %.300s are not the key of kernel %s", text,
                      registered->name);
    }
  }

  *ret = TAKE(key);
  return true;
}

/* The config as a point of a space: without the fields that Config adds. */
static json_t *mapped_config(const json_t *config, const char *triton) {
  static const char *const tuned[] = {"num_warps", "num_stages"};
  json_t *mapped = json_object();

  json_members (config, name, value) {
    struct value standard;
    cleanup_json json_t *standard_json =
        config_field(name, triton, &standard) ? value_to_json(standard) : NULL;
    if (name_is_in(name, tuned) || !json_equal(value, standard_json))
      json_object_set(mapped, name, value);
  }

  return mapped;
}

static bool timing_read(const struct table *table, const char *key, struct imported_entry *entry,
                        struct error *error) {
  const json_t *timing = json_object_get(table->timings, key);
  size_t n = json_array_size(timing),
         n_labels = json_array_size(json_object_get(table->timings_data, "labels"));
  if (!timing)
    return true;
  const char *at = POINTER_MEMBER("/timings", key);
  if ((n != 1 && n != RELEASE_MS_MAX) || (n_labels && n != n_labels))
    return error_at(error, at, "a timing must be a list of 1 or %d numbers, one for each label",
                    RELEASE_MS_MAX);

  for (size_t i = 0; i < n; i++) {
    entry->ms[i] = json_number_value(json_array_get(timing, i));
    if (!(entry->ms[i] > 0))
      return error_at(error, at, "a timing must be a number of milliseconds above 0");
  }

  entry->n_ms = n;
  return true;
}

static bool entry_read(struct table *table, const char *key_text, const json_t *text,
                       struct error *error) {
  cleanup_strings struct strings elements = {0};
  cleanup_json json_t *config = NULL;
  struct imported_entry *entry;
  json_t *key;

  if (!python_string_tuple_parse(key_text, KEY_MEMBERS_MAX, &elements, error))
    return false;
  if (!json_is_string(text))
    return error_set(error, "a config must be a string");
  if (!config_text_parse(json_string_value(text), &config, error))
    return false;

  struct imported_kernel *kernel = kernel_find(table, elements.n);
  if (!key_make(table, kernel, elements.all, elements.n, &key, error) ||
      !imported_entry_add(kernel, key, &entry, error))
    return false;
  cleanup_json json_t *order = config_names(config);
  if (table->registered || json_equal(order, table->order)) {
    entry->provenance = json_incref(table->provenance);
  } else {
    entry->provenance = json_copy(table->provenance);
    json_object_set(entry->provenance, "config", (json_t *)text);
  }

  entry->config = table->registered ? mapped_config(config, table->path.parts[DEJAVU_TRITON])
                                    : json_incref(config);
  return timing_read(table, key_text, entry, error);
}

/* Finds the least order of members among the table's configs. Most tables have a single order; of
 * several, the choice must not depend on the order of entries. Texts that are not configs are
 * refused with their entries. */
static void order_find(struct table *table) {
  cleanup_free char *least = NULL;

  json_members (table->cache, key, text) {
    cleanup_json json_t *config = NULL;
    struct error ignored;
    if (!json_is_string(text) || !config_text_parse(json_string_value(text), &config, &ignored))
      continue;
    cleanup_json json_t *order = config_names(config);
    cleanup_free char *names = json_canonical(order);
    if (least && strcmp(least, names) <= 0)
      continue;
    free(least);
    least = TAKE(names);
    json_decref(table->order);
    table->order = TAKE(order);
  }
}

bool dejavu_read(const struct import_request *request, const struct cache_file *file,
                 struct imported *imported, struct error *error) {
  cleanup_by(table_release) struct table table = {.registered = request->kernel,
                                                  .imported = imported};
  if (!table_read(file, &table, error) ||
      !imported_set_environment(imported, environment_of(&table.path), error))
    return false;

  order_find(&table);

  json_members (table.cache, key, value)
    if (!entry_read(&table, key, value, error))
      return error->pointer[0] ? false : error_pointer_prefix(error, POINTER_MEMBER("/cache", key));

  json_members (table.timings, key, value)
    if (!json_object_get(table.cache, key))
      return error_at(error, POINTER_MEMBER("/timings", key), "\"cache\" has no such key");
  return true;
}
