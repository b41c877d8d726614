/* The tree of triton-dejavu's caches: its paths, what dejavu restores of it, and reading one
 * cache.json or all of a tree.
 *
 * Every file is checked whole: its place, its types, that it belongs into its folder, and that no
 * key is there twice. Memory: results are the caller's; nothing is kept of what was refused.
 * Threads: pure functions. */
#include <math.h>

#include "common/cache/config_text.h"
#include "common/cache/python_text.h"
#include "common/formats/dejavu.h"
#include "common/kernel/kernel_parse.h"

#define PART_MAX 200
#define NAME_PREFIX "dejavu/"
#define KERNEL_NAME_MAX 128

void dejavu_path_release(struct dejavu_path *path) {
  char *const parts[] = {path->layout,
                         path->triton,
                         path->torch,
                         path->runtime,
                         path->gpu,
#define X(hash) path->hash,
                         DEJAVU_HASHES(X)
#undef X
                             path->function,
                         path->tag};
  for (size_t i = 0; i < ARRAY_LENGTH(parts); i++)
    free(parts[i]);
  *path = (struct dejavu_path){0};
}

bool dejavu_layout_has(const char *layout, bool *ret_torch, bool *ret_tune_features) {
  int minor, end = 0;
  if (sscanf(layout, "dejavu_0.%2d%n", &minor, &end) != 1 || layout[end] || minor < 5 ||
      layout[9] < '0' || layout[9] > '9')
    return false;
  *ret_torch = minor < 7;
  *ret_tune_features = minor > 5;
  return true;
}

static bool part_is_safe(const char *part) {
  size_t size = strlen(part);
  for (const char *c = part; *c; c++) {
    if ((unsigned char)*c < 0x20 || *c == 0x7f || *c == '/')
      return false;
  }
  return json_can_hold(part) && size > 0 && size <= PART_MAX && strcmp(part, ".") != 0 &&
         strcmp(part, "..") != 0;
}

static bool dejavu_hash_is_valid(const char *text) {
  return strlen(text) == 64 && !text[strspn(text, "0123456789abcdef")];
}

/* Takes what stands behind `prefix`, once. */
static bool take(const char *part, const char *prefix, char **ret) {
  if (*ret || !string_starts(part, prefix) || !part[strlen(prefix)])
    return false;
  *ret = xstrdup(part + strlen(prefix));
  return true;
}

static bool take_storage_part(const char *part, struct dejavu_path *path) {
  if (!path->runtime && (string_starts(part, "rocm_") || string_starts(part, "cuda_")) && part[5]) {
    path->runtime = xstrdup(part);
    return true;
  }
  return take(part, "triton_", &path->triton) || take(part, "torch_", &path->torch) ||
         take(part, "gpu_", &path->gpu);
}

static bool take_hash(const char *part, struct dejavu_path *path) {
  if (strlen(part) < 64 || !dejavu_hash_is_valid(part + strlen(part) - 64))
    return false;
#define X(hash)                                                                                    \
  if (take(part, #hash "-", &path->hash))                                                          \
    return strlen(path->hash) == 64;
  DEJAVU_HASHES(X)
#undef X
  return false;
}

/* The parts in their order: the layout, those of the storage, the function, hashes, the tag. */
static bool take_part(const char *part, struct dejavu_path *path) {
  if (!part_is_safe(part) || path->tag)
    return false;
  if (!path->layout) {
    path->layout = xstrdup(part);
    return true;
  }
  if (!path->function) {
    if (path->gpu) {
      path->function = xstrdup(part);
      return true;
    }
    return take_storage_part(part, path);
  }
  if (take_hash(part, path))
    return true;
  path->tag = path->autotune_config ? xstrdup(part) : NULL;
  return path->tag;
}

static bool layout_is_known(const char *layout, bool *ret_torch, bool *ret_features,
                            struct error *error) {
  return dejavu_layout_has(layout, ret_torch, ret_features) ||
         error_set(error,
                   "the layout %.60s is not known; dejavu_0.5, dejavu_0.6 and dejavu_0.7 are",
                   layout);
}

static bool path_is_whole(const struct dejavu_path *path, struct error *error) {
  bool has_torch, has_features;
  if (!layout_is_known(path->layout, &has_torch, &has_features, error))
    return false;
  if (!path->runtime || !path->triton || !path->gpu || !path->function || !path->autotune_config ||
      !path->code_version || !path->kernel_configs || !path->tag ||
      has_torch != (path->torch != NULL) || has_features != (path->tune_features != NULL))
    return error_set(error,
                     "a path of %s has %striton_, rocm_ or cuda_, gpu_, the function, "
                     "autotune_config-, code_version-, "
                     "%skernel_configs- and the tag; one of them is missing or one too many",
                     path->layout, has_torch ? "torch_, " : "",
                     has_features ? "tune_features-, " : "");
  return true;
}

/* Where in a path the layout's folder begins; NULL when no folder is one. */
static const char *dejavu_path_begin(const char *text) {
  const char *similar = NULL;
  for (const char *at = text;; at++) {
    size_t size = strcspn(at, "/");
    cleanup_free char *part = xstrndup(at, size);
    bool has_torch, has_features;
    if (dejavu_layout_has(part, &has_torch, &has_features))
      return at;
    if (!similar && string_starts(part, "dejavu_") && part[7] >= '0' && part[7] <= '9')
      similar = at;
    at += size;
    if (!*at)
      return similar;
  }
}

/* "add_kernel-<64 digits>" where hashes should follow: versions 0.5.0 and 0.5.1 wrote so. */
static bool has_one_hash(const struct dejavu_path *path) {
  size_t size = path->function && !path->autotune_config ? strlen(path->function) : 0;
  return size > 65 && path->function[size - 65] == '-' &&
         dejavu_hash_is_valid(path->function + size - 64);
}

static bool part_refuse(const struct dejavu_path *path, const char *part, struct error *error) {
  bool has_torch, has_features;
  if (path->layout && !layout_is_known(path->layout, &has_torch, &has_features, error))
    return false;
  if (has_one_hash(path))
    return error_set(error, "a cache of triton-dejavu 0.5.0 or 0.5.1, whose folder has one hash of "
                            "everything, so that it is not "
                            "known what it is of; import what a newer triton-dejavu writes");
  return error_set(error, "the folder \"%.100s\" has no place in a path of triton-dejavu", part);
}

/* From the parts of a path from the layout's folder on; what stands before that says nothing. */
static bool dejavu_path_parse(const char *text, struct dejavu_path *ret, struct error *error) {
  cleanup_dejavu_path struct dejavu_path path = {0};
  const char *at = dejavu_path_begin(text);
  if (!at)
    return error_set(
        error,
        "no folder like dejavu_0.7 is in the path, whose folders say what a cache.json is of");
  for (const char *slash; (slash = strchr(at, '/')); at = slash + 1) {
    cleanup_free char *part = xstrndup(at, (size_t)(slash - at));
    if (!take_part(part, &path))
      return part_refuse(&path, part, error);
  }
  if (strcmp(at, "cache.json") != 0)
    return error_set(error, "the file is not called cache.json");
  if (!path_is_whole(&path, error))
    return false;
  *ret = path;
  path = (struct dejavu_path){0};
  return true;
}

bool dejavu_path_format(const struct dejavu_path *path, char **ret_text, struct error *error) {
  bool has_torch, has_features;
  if (!path_is_whole(path, error))
    return false;
  const char *const parts[] = {path->runtime,         path->triton,       path->gpu,
                               path->function,        path->tag,          path->torch,
                               path->autotune_config, path->code_version, path->tune_features,
                               path->kernel_configs};
  for (size_t i = 0; i < ARRAY_LENGTH(parts); i++) {
    if (parts[i] && (!part_is_safe(parts[i]) || (i > 5 && !dejavu_hash_is_valid(parts[i]))))
      return error_set(error, "\"%.100s\" cannot be a part of a path", parts[i]);
  }
  ALWAYS(dejavu_layout_has(path->layout, &has_torch, &has_features));
  cleanup_free char *storage = has_torch
                                   ? xasprintf("%s/%s/torch_%s/triton_%s/gpu_%s", path->layout,
                                               path->runtime, path->torch, path->triton, path->gpu)
                                   : xasprintf("%s/triton_%s/%s/gpu_%s", path->layout, path->triton,
                                               path->runtime, path->gpu);
  if (has_features)
    *ret_text = xasprintf(
        "%s/%s/autotune_config-%s/code_version-%s/tune_features-%s/kernel_configs-%s/%s/cache.json",
        storage, path->function, path->autotune_config, path->code_version, path->tune_features,
        path->kernel_configs, path->tag);
  else
    *ret_text = xasprintf(
        "%s/%s/autotune_config-%s/kernel_configs-%s/code_version-%s/%s/cache.json", storage,
        path->function, path->autotune_config, path->kernel_configs, path->code_version, path->tag);
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

char *dejavu_hash(const char *text, size_t size, char hash[DEJAVU_HASH_SIZE]) {
  struct digest digest = digest_of(text, size);
  char formatted[DIGEST_TEXT_SIZE];
  memcpy(hash, digest_format(&digest, formatted) + 7, DEJAVU_HASH_SIZE);
  return hash;
}

char *dejavu_names_hash(const json_t *names, char hash[DEJAVU_HASH_SIZE]) {
  size_t i;
  json_t *name;
  struct digest_stream *stream = digest_stream_new();
  char formatted[DIGEST_TEXT_SIZE];
  json_array_foreach (names, i, name) {
    digest_stream_add(stream, "|", i ? 1 : 0);
    digest_stream_add(stream, json_string_value(name), json_string_length(name));
  }
  struct digest digest = digest_stream_finish(stream);
  memcpy(hash, digest_format(&digest, formatted) + 7, DEJAVU_HASH_SIZE);
  return hash;
}

/* Python's int() takes signs, white space around and single underscores within. */
static bool reads_as_integer(const char *text) {
  text += strspn(text, " \t\n\v\f\r");
  text += *text == '+' || *text == '-' ? 1 : 0;
  bool has_digit = false, after_digit = false;
  for (; (*text >= '0' && *text <= '9') || (*text == '_' && after_digit); text++) {
    after_digit = *text != '_';
    has_digit = true;
  }
  return has_digit && after_digit && !text[strspn(text, " \t\n\v\f\r")];
}

/* distutils' strtobool, without regard to case. */
static bool reads_as_boolean(const char *text) {
  static const char *const words[] = {"y", "yes", "t", "true",  "on",  "1",
                                      "n", "no",  "f", "false", "off", "0"};
  for (size_t i = 0; i < ARRAY_LENGTH(words); i++) {
    if (strcasecmp(text, words[i]) == 0)
      return true;
  }
  return false;
}

static bool restores_string(const char *name, const char *text, struct error *error) {
  if (strstr(text, ", ") || strstr(text, ": "))
    return error_set(error, "%.60s has \", \" or \": \" in its text", name);
  if (reads_as_integer(text) || reads_as_boolean(text))
    return error_set(error,
                     "%.60s is the text '%.40s', which dejavu reads as a number or a boolean", name,
                     text);
  return true;
}

static bool restores_member(const char *name, const json_t *value, struct error *error) {
  bool is_integer = json_is_integer(value), is_boolean = json_is_boolean(value);
  if (strcmp(name, "num_warps") == 0 || strcmp(name, "num_stages") == 0 ||
      strcmp(name, "num_ctas") == 0)
    return is_integer || error_set(error, "%s must be an integer", name);
  if (strcmp(name, "maxnreg") == 0)
    return is_integer || json_is_null(value) ||
           error_set(error, "maxnreg must be an integer or None");
  if (strcmp(name, "enable_warp_specialization") == 0)
    return is_boolean || error_set(error, "%s must be a boolean", name);
  if (strcmp(name, "enable_persistent") == 0)
    return json_is_false(value) || error_set(error, "dejavu does not restore enable_persistent");
  if (strcmp(name, "ir_override") == 0)
    return json_is_null(value) || error_set(error, "dejavu does not restore ir_override");
  if (strcmp(name, "pre_hook") == 0 || strstr(name, ", ") || strstr(name, ": ") || !name[0])
    return error_set(error, "\"%.60s\" is no name of a parameter for dejavu", name);
  if (is_integer || is_boolean)
    return true;
  if (json_is_string(value))
    return restores_string(name, json_string_value(value), error);
  return error_set(error, "%.60s is %s, which dejavu reads as a text", name,
                   json_is_null(value) ? "None" : "a float");
}

bool dejavu_restores_config(const json_t *config, struct error *error) {
  const char *name;
  json_t *value;
  json_object_foreach ((json_t *)config, name, value) {
    if (!restores_member(name, value, error))
      return false;
  }
  return json_object_size(config) > 0 || error_set(error, "it has no members");
}

/* Its reader splits at ", " and strips one quote from either end, without undoing escapes. */
bool dejavu_restores_element(const char *element, size_t size, bool ignore_dtypes,
                             struct error *error) {
  bool has_single = false, has_double = false;
  int cut = size < 80 ? (int)size : 80;
  for (size_t i = 0; i < size; i++) {
    unsigned char c = (unsigned char)element[i];
    has_single |= c == '\'';
    has_double |= c == '"';
    if (c == ',' && i + 1 < size && element[i + 1] == ' ')
      return error_set(error, "'%.*s' has \", \" in it, where dejavu splits keys", cut, element);
    if (c < 0x20 || c >= 0x7f || c == '\\')
      return error_set(error,
                       "'%.*s' has characters that Python escapes, which dejavu does not undo", cut,
                       element);
  }
  if (has_single && has_double)
    return error_set(
        error, "'%.*s' has both kinds of quotes, which Python escapes and dejavu does not undo",
        cut, element);
  if (ignore_dtypes && memmem(element, size, "torch.", 6))
    return error_set(error, "'%.*s' is taken for a dtype, and the function ignores those", cut,
                     element);
  return true;
}

bool dejavu_storage_find(const struct render_request *request, struct dejavu_path *storage,
                         struct error *error) {
  const struct identity *identity = request->identity;
  const struct environment *environment = &request->release->environment;
  const char *torch = identity && identity->torch ? identity->torch : environment->torch;
  storage->torch = torch ? xstrdup(torch) : NULL;
  if (identity && identity->dejavu_layout) {
    storage->layout = xstrdup(identity->dejavu_layout);
    storage->triton = xstrdup(identity->dejavu_triton);
    storage->runtime = xstrdup(identity->dejavu_runtime);
    storage->gpu = xstrdup(identity->dejavu_gpu);
  } else {
    const char *version = environment->rocm ? environment->rocm : environment->cuda;
    if (!environment->triton || !environment->gpu || !version)
      return error_set(
          error,
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

/* Reading */

struct reading {
  const struct kernel *kernel; /* to map to, or NULL */
  struct imported imported;
  json_t *kernels; /* canonical manifest: index */
  json_t *seen;    /* "<index> <canonical key>": path of the file */
};

/* One file. */
struct table {
  const char *path; /* from dejavu_… on */
  struct dejavu_path parts;
  json_t *json, *keys, *cache, *timings,
      *timings_data; /* the last may be NULL, and keys when null */
  const char *signature;
  json_t *provenance; /* what its entries have in common */
  json_t *order;      /* names of the first config's members */
  size_t kernels[KEY_MEMBERS_MAX +
                 1]; /* 1 + the index of the kernel of entries with so many elements; 0: none yet */
};

static void reading_release(struct reading *reading) {
  imported_release(&reading->imported);
  json_decref(reading->kernels);
  json_decref(reading->seen);
}

static void table_release(struct table *table) {
  dejavu_path_release(&table->parts);
  json_decref(table->json);
  json_decref(table->provenance);
  json_decref(table->order);
}

static bool check_keys(const struct table *table, struct error *error) {
  size_t i;
  json_t *key;
  char at[JSON_POINTER_SIZE], hash[DEJAVU_HASH_SIZE];
  if (json_array_size(table->keys) > KEY_MEMBERS_MAX)
    return error_at(error, "/keys", "more than %d names", KEY_MEMBERS_MAX);
  json_array_foreach (table->keys, i, key) {
    if (!json_string_length(key) || json_string_length(key) > IDENTIFIER_MAX)
      return error_at(error, json_pointer_index(at, sizeof at, "/keys", i),
                      "a name must be a string of 1 to %d bytes", IDENTIFIER_MAX);
  }
  if (table->keys && table->parts.tune_features &&
      strcmp(dejavu_names_hash(table->keys, hash), table->parts.tune_features) != 0)
    return error_at(error, "/keys",
                    "the folder tune_features-%.12s… is of other names: theirs is %.12s…",
                    table->parts.tune_features, hash);
  return true;
}

static bool check_timings_data(const struct table *table, struct error *error) {
  static const char *const members[] = {"labels", "rep_t_ms", "warmup_t_ms", "cuda_graphs", NULL};
  const char *at = "/timings_data";
  json_t *labels = NULL;
  double ms = 0;
  bool graphs;
  if (!table->timings_data)
    return true;
  if (!json_only_members(table->timings_data, at, members, error) ||
      !json_get_array(table->timings_data, at, "labels", JSON_REQUIRED, &labels, error) ||
      !json_get_number(table->timings_data, at, "rep_t_ms", JSON_REQUIRED, &ms, error) ||
      !json_get_number(table->timings_data, at, "warmup_t_ms", JSON_REQUIRED, &ms, error) ||
      !json_get_bool(table->timings_data, at, "cuda_graphs", JSON_REQUIRED, &graphs, error))
    return false;
  static const char *const known[] = {"ms", "min_ms", "max_ms"};
  bool is_known = json_array_size(labels) == 1 || json_array_size(labels) == ARRAY_LENGTH(known);
  for (size_t i = 0; is_known && i < json_array_size(labels); i++)
    is_known = string_equal(json_string_value(json_array_get(labels, i)), known[i]);
  return is_known || error_at(error, "/timings_data/labels",
                              "the labels must be [\"ms\"], or that with \"min_ms\" and "
                              "\"max_ms\"");
}

static bool check_signature(const struct table *table, struct error *error) {
  cleanup_free char *function = dejavu_signature_function(table->signature);
  return string_equal(function, table->parts.function) ||
         error_at(error, "/signature",
                  "\"%.200s\" is not JITFunction(module:%.100s), as the folder has it",
                  table->signature, table->parts.function);
}

static bool table_read(const struct cache_file *file, struct table *table, struct error *error) {
  double total = 0;
  int64_t evaluated = 0;
  if (!dejavu_path_parse(file->path, &table->parts, error))
    return false;
  table->path = dejavu_path_begin(file->path);
  if (!json_parse(file->bytes, file->size, &table->json, error))
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
                     table->parts.layout + strlen("dejavu_"));
  if (!json_get_array(json, "", "keys", JSON_OPTIONAL, &table->keys, error) ||
      !json_get_object(json, "", "timings", JSON_REQUIRED, &table->timings, error) ||
      !json_get_object(json, "", "timings_data", JSON_OPTIONAL, &table->timings_data, error))
    return false;
  if (total < 0)
    return error_at(error, "/total_bench_time_s", "a time must not be negative");
  table->provenance = json_object();
  json_object_set_new(table->provenance, "evaluated_configs", json_integer(evaluated));
  json_object_set_new(table->provenance, "source", imported_source(table->path));
  json_object_set(table->provenance, "total_bench_time_s",
                  json_object_get(json, "total_bench_time_s"));
  return check_signature(table, error) && check_keys(table, error) &&
         check_timings_data(table, error);
}

/* The path has '_' for ' ' and '/' of the device's name; names with '/' are rare. */
static json_t *environment_of(const struct dejavu_path *path) {
  cleanup_free char *gpu = xstrdup(path->gpu);
  for (char *c = gpu; *c; c++)
    *c = *c == '_' ? ' ' : *c;
  json_t *environment = json_object();
  cleanup_free char *platform = xstrndup(path->runtime, 4);
  json_object_set_new(environment, platform, json_string(path->runtime + 5));
  if (path->torch)
    json_object_set_new(environment, "torch", json_string(path->torch));
  json_object_set_new(environment, "triton", json_string(path->triton));
  json_object_set_new(environment, "gpu", json_string(gpu));
  return environment;
}

static bool environment_take(struct reading *reading, const struct table *table,
                             struct error *error) {
  cleanup_json json_t *json = environment_of(&table->parts);
  cleanup_environment struct environment environment = {0};
  if (!environment_parse(json, &environment, error))
    return false;
  if (!reading->imported.environment) {
    reading->imported.environment = TAKE(json);
    return true;
  }
  cleanup_free char *before = json_canonical(reading->imported.environment),
                    *now = json_canonical(json);
  return strcmp(before, now) == 0 ||
         error_set(
             error,
             "it is of the environment %s, a file before it of %s; import them one after the other",
             now, before);
}

/* A name that expressions may read, for a member of the key that the file calls `name`. */
static char *member_name(const json_t *names, const char *name, size_t index) {
  cleanup_free char *text = NULL;
  if (name && identifier_is_valid(name) && strlen(name) < IDENTIFIER_MAX - 8)
    text = xasprintf("%s%s", name, name_is_reserved(name) ? "_" : "");
  else
    text = xasprintf("key_%zu", index);
  for (size_t i = 0; i < json_array_size(names); i++) {
    if (strcmp(json_string_value(json_array_get(names, i)), text) != 0)
      continue;
    char *longer = xasprintf("%s_", text);
    free(text);
    text = longer;
    i = (size_t)-1;
  }
  return TAKE(text);
}

static json_t *member_names(const struct table *table, size_t n) {
  json_t *names = json_array();
  size_t n_keys = json_array_size(table->keys);
  for (size_t i = 0; i < n; i++) {
    char dtype[32];
    snprintf(dtype, sizeof dtype, "dtype_%zu", i - n_keys);
    const char *wanted = i < n_keys    ? json_string_value(json_array_get(table->keys, i))
                         : table->keys ? dtype
                                       : NULL;
    cleanup_free char *name = member_name(names, wanted, i);
    json_array_append_new(names, json_string(name));
  }
  return names;
}

static json_t *exports_of(const struct table *table) {
  json_t *exports = json_object();
  json_object_set_new(exports, "layout", json_string(table->parts.layout));
  json_object_set_new(exports, "function", json_string(table->parts.function));
  json_object_set_new(exports, "signature", json_string(table->signature));
#define X(hash)                                                                                    \
  if (table->parts.hash)                                                                           \
    json_object_set_new(exports, #hash, json_string(table->parts.hash));
  DEJAVU_HASHES(X)
#undef X
  json_object_set_new(exports, "keys", table->keys ? json_deep_copy(table->keys) : json_null());
  json_object_set(exports, "config", table->order);
  json_t *data = table->timings_data
                     ? json_deep_copy(table->timings_data)
                     : json_pack("{s:i, s:i, s:b}", "rep_t_ms", DEJAVU_REP_MS, "warmup_t_ms",
                                 DEJAVU_WARMUP_MS, "cuda_graphs", false);
  json_object_del(data, "labels"); /* those follow from the timings */
  json_object_set_new(exports, "timings_data", data);
  return exports;
}

static json_t *manifest_of(const struct table *table, size_t n) {
  cleanup_free char *name = xasprintf(
      NAME_PREFIX "%.*s", KERNEL_NAME_MAX - (int)strlen(NAME_PREFIX), table->parts.function);
  for (char *c = name; *c; c++) {
    bool is_plain =
        (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9');
    *c = is_plain || strchr("._/-", *c) ? *c : '_';
  }
  json_t *manifest = json_object(), *exports = json_object();
  json_object_set_new(exports, "dejavu", exports_of(table));
  json_object_set_new(manifest, "name", json_string(name));
  json_object_set_new(manifest, "language", json_string("external"));
  json_object_set_new(manifest, "key", member_names(table, n));
  json_object_set_new(manifest, "exports", exports);
  return manifest;
}

/* The kernel that entries with n elements are of. */
static size_t kernel_find(struct reading *reading, struct table *table, size_t n) {
  if (table->kernels[n])
    return table->kernels[n] - 1;
  if (reading->kernel) {
    if (!reading->imported.n_kernels)
      imported_add_kernel(&reading->imported)->hash = reading->kernel->hash;
    table->kernels[n] = 1;
    return 0;
  }
  cleanup_json json_t *manifest = manifest_of(table, n);
  cleanup_free char *text = json_canonical(manifest);
  const json_t *known = json_object_get(reading->kernels, text);
  size_t index = known ? (size_t)json_integer_value(known) : reading->imported.n_kernels;
  if (!known) {
    imported_add_kernel(&reading->imported)->manifest = TAKE(manifest);
    json_object_set_new(reading->kernels, text, json_integer((json_int_t)index));
  }
  table->kernels[n] = index + 1;
  return index;
}

/* Of a registered kernel, whose key has the names of the table's. */
static bool mapped_key(const struct kernel *kernel, const struct table *table, char **elements,
                       json_t **ret, struct error *error) {
  size_t n_keys = json_array_size(table->keys);
  cleanup_json json_t *key = json_object();
  for (size_t i = 0; i < n_keys; i++)
    json_object_set_new(key, json_string_value(json_array_get(table->keys, i)),
                        value_to_json(python_value(elements[i])));
  bool fits = json_object_size(key) == kernel->n_key_names && n_keys == kernel->n_key_names;
  for (size_t i = 0; i < kernel->n_key_names; i++)
    fits = fits && json_object_get(key, kernel->key_names[i]);
  if (!fits) {
    cleanup_free char *names = table->keys ? json_canonical(table->keys) : xstrdup("null");
    return error_at(error, "/keys", "the table's keys %.300s are not the key of kernel %s", names,
                    kernel->name);
  }
  *ret = TAKE(key);
  return true;
}

/* The config as a point of a space: without the fields that Config adds. */
static json_t *mapped_config(const json_t *config, const char *triton) {
  json_t *mapped = json_object(), *value;
  const char *name;
  json_object_foreach ((json_t *)config, name, value) {
    struct value standard;
    cleanup_json json_t *standard_json =
        config_field(name, triton, &standard) ? value_to_json(standard) : NULL;
    bool is_tuned = strcmp(name, "num_warps") == 0 || strcmp(name, "num_stages") == 0;
    if (is_tuned || !json_equal(value, standard_json))
      json_object_set(mapped, name, value);
  }
  return mapped;
}

static json_t *names_of(const json_t *config) {
  const char *name;
  json_t *value, *names = json_array();
  json_object_foreach ((json_t *)config, name, value)
    json_array_append_new(names, json_string(name));
  return names;
}

static bool take_timing(const struct table *table, const char *key, const char *at,
                        struct imported_entry *entry, struct error *error) {
  json_t *timing = json_object_get(table->timings, key);
  if (!timing)
    return true;
  size_t n = json_array_size(timing),
         n_labels = json_array_size(json_object_get(table->timings_data, "labels"));
  if ((n != 1 && n != RELEASE_MS_MAX) || (n_labels && n != n_labels))
    return error_at(error, at, "a timing must be a list of 1 or %d numbers, one for each label",
                    RELEASE_MS_MAX);
  for (size_t i = 0; i < n; i++) {
    const json_t *ms = json_array_get(timing, i);
    if (!json_is_number(ms) || !(json_number_value(ms) > 0))
      return error_at(error, at, "a timing must be a number of milliseconds above 0");
    entry->ms[i] = json_number_value(ms);
  }
  entry->n_ms = n;
  return true;
}

struct elements {
  size_t n;
  char **all;
};

static void elements_release(struct elements *elements) {
  strings_free(elements->all, elements->n);
}

static bool take_key(const struct reading *reading, const struct table *table,
                     const struct elements *elements, const json_t *manifest, json_t **ret,
                     struct error *error) {
  if (elements->n < json_array_size(table->keys))
    return error_set(error, "the key has %zu elements and \"keys\" %zu names", elements->n,
                     json_array_size(table->keys));
  if (reading->kernel)
    return mapped_key(reading->kernel, table, elements->all, ret, error);
  const json_t *names = json_object_get(manifest, "key");
  json_t *key = json_object();
  for (size_t i = 0; i < elements->n; i++)
    json_object_set_new(key, json_string_value(json_array_get(names, i)),
                        value_to_json(python_value(elements->all[i])));
  *ret = key;
  return true;
}

/* Two keys of one table, or of two files of it, must not be the same. */
static bool key_is_new(struct reading *reading, size_t kernel, const json_t *key,
                       const struct table *table, struct error *error) {
  cleanup_free char *canonical = json_canonical(key);
  cleanup_free char *text = xasprintf("%zu %s", kernel, canonical);
  const char *before = json_string_value(json_object_get(reading->seen, text));
  if (before)
    return error_set(error, "the key %.200s is there twice%s%.250s", canonical,
                     strcmp(before, table->path) == 0 ? "" : ": also in ",
                     strcmp(before, table->path) == 0 ? "" : before);
  json_object_set_new(reading->seen, text, imported_source(table->path));
  return true;
}

static bool take_entry(struct reading *reading, struct table *table, const char *key,
                       const json_t *text, struct error *error) {
  __attribute__((cleanup(elements_release))) struct elements elements = {0};
  cleanup_json json_t *config = NULL;
  if (!python_string_tuple_parse(key, KEY_MEMBERS_MAX, &elements.all, &elements.n, error))
    return false;
  if (!json_is_string(text))
    return error_set(error, "a config must be a string");
  if (!config_text_parse(json_string_value(text), &config, error))
    return false;
  cleanup_json json_t *order = names_of(config);
  size_t index = kernel_find(reading, table, elements.n);
  struct imported_kernel *kernel = &reading->imported.kernels[index];
  struct imported_entry *entry = imported_add_entry(kernel);
  entry->config =
      reading->kernel ? mapped_config(config, table->parts.triton) : json_incref(config);
  if (reading->kernel || json_equal(order, table->order)) {
    entry->provenance = json_incref(table->provenance);
  } else {
    entry->provenance = json_copy(table->provenance);
    json_object_set(entry->provenance, "config", (json_t *)text);
  }
  char at[JSON_POINTER_SIZE];
  return take_key(reading, table, &elements, kernel->manifest, &entry->key, error) &&
         key_is_new(reading, index, entry->key, table, error) &&
         take_timing(table, key, json_pointer_member(at, sizeof at, "/timings", key), entry, error);
}

/* The order that most tables have throughout; which one it is must not depend on the order of
 * entries. Texts that are no configs are refused with their entries. */
static void order_find(struct table *table) {
  cleanup_free char *least = NULL;
  const char *key;
  json_t *text;
  json_object_foreach (table->cache, key, text) {
    cleanup_json json_t *config = NULL;
    struct error ignored;
    if (!json_is_string(text) || !config_text_parse(json_string_value(text), &config, &ignored))
      continue;
    cleanup_json json_t *order = names_of(config);
    cleanup_free char *names = json_canonical(order);
    if (least && strcmp(least, names) <= 0)
      continue;
    free(least);
    least = TAKE(names);
    json_decref(table->order);
    table->order = json_incref(order);
  }
}

static bool file_take(struct reading *reading, const struct cache_file *file, struct error *error) {
  __attribute__((cleanup(table_release))) struct table table = {0};
  const char *key;
  json_t *text;
  char at[JSON_POINTER_SIZE];
  if (!table_read(file, &table, error) || !environment_take(reading, &table, error))
    return false;
  order_find(&table);
  json_object_foreach (table.cache, key, text) {
    struct error why = {0};
    if (!take_entry(reading, &table, key, text, &why))
      return error_at(
          error, why.pointer[0] ? why.pointer : json_pointer_member(at, sizeof at, "/cache", key),
          "%s", why.message);
  }
  json_object_foreach (table.timings, key, text) {
    if (!json_object_get(table.cache, key))
      return error_at(error, json_pointer_member(at, sizeof at, "/timings", key),
                      "\"cache\" has no such key");
  }
  return true;
}

static bool is_cache_json(const char *path) {
  const char *slash = strrchr(path, '/');
  return strcmp(slash ? slash + 1 : path, "cache.json") == 0;
}

bool dejavu_read(const struct import_request *request, struct imported *ret, struct error *error) {
  __attribute__((cleanup(reading_release))) struct reading reading = {
      .kernel = request->kernel, .kernels = json_object(), .seen = json_object()};
  size_t n_files = 0, n_entries = 0;
  for (size_t i = 0; i < request->files->n; i++) {
    const struct cache_file *file = &request->files->files[i];
    if (!is_cache_json(file->path))
      continue;
    n_files++;
    if (!file_take(&reading, file, error))
      return cache_file_refuse(file, error);
  }
  for (size_t i = 0; i < reading.imported.n_kernels; i++)
    n_entries += reading.imported.kernels[i].n_entries;
  if (!n_entries)
    return error_set(error, n_files ? "no cache.json there holds an entry"
                                    : "there is no file cache.json");
  *ret = reading.imported;
  reading.imported = (struct imported){0};
  return true;
}
