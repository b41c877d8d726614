/* Paths of triton-dejavu's caches, and what it restores. Pure functions, any thread; results are the caller's. */
#include "common/cache/dejavu.h"

#define PART_MAX 200

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
  if (sscanf(layout, "dejavu_0.%2d%n", &minor, &end) != 1 || layout[end] || minor < 5 || layout[9] < '0' ||
      layout[9] > '9')
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
  return json_can_hold(part) && size > 0 && size <= PART_MAX && strcmp(part, ".") != 0 && strcmp(part, "..") != 0;
}

bool dejavu_hash_is_valid(const char *text) { return strlen(text) == 64 && !text[strspn(text, "0123456789abcdef")]; }

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
  return take(part, "triton_", &path->triton) || take(part, "torch_", &path->torch) || take(part, "gpu_", &path->gpu);
}

static bool take_hash(const char *part, struct dejavu_path *path) {
  if (strlen(part) < 64 || !dejavu_hash_is_valid(part + strlen(part) - 64))
    return false;
#define X(hash)                                                                                                        \
  if (take(part, #hash "-", &path->hash))                                                                              \
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

static bool layout_is_known(const char *layout, bool *ret_torch, bool *ret_features, struct error *error) {
  return dejavu_layout_has(layout, ret_torch, ret_features) ||
         error_set(error, "the layout %.60s is not known; dejavu_0.5, dejavu_0.6 and dejavu_0.7 are", layout);
}

static bool path_is_whole(const struct dejavu_path *path, struct error *error) {
  bool has_torch, has_features;
  if (!layout_is_known(path->layout, &has_torch, &has_features, error))
    return false;
  if (!path->runtime || !path->triton || !path->gpu || !path->function || !path->autotune_config ||
      !path->code_version || !path->kernel_configs || !path->tag || has_torch != (path->torch != NULL) ||
      has_features != (path->tune_features != NULL))
    return error_set(error,
                     "a path of %s has %striton_, rocm_ or cuda_, gpu_, the function, autotune_config-, code_version-, "
                     "%skernel_configs- and the tag; one of them is missing or one too many",
                     path->layout, has_torch ? "torch_, " : "", has_features ? "tune_features-, " : "");
  return true;
}

const char *dejavu_path_begin(const char *text) {
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
  return size > 65 && path->function[size - 65] == '-' && dejavu_hash_is_valid(path->function + size - 64);
}

static bool part_refuse(const struct dejavu_path *path, const char *part, struct error *error) {
  bool has_torch, has_features;
  if (path->layout && !layout_is_known(path->layout, &has_torch, &has_features, error))
    return false;
  if (has_one_hash(path))
    return error_set(
        error, "a cache of triton-dejavu 0.5.0 or 0.5.1, whose folder has one hash of everything, so that it is not "
               "known what it is of; import what a newer triton-dejavu writes");
  return error_set(error, "the folder \"%.100s\" has no place in a path of triton-dejavu", part);
}

bool dejavu_path_parse(const char *text, struct dejavu_path *ret, struct error *error) {
  cleanup_dejavu_path struct dejavu_path path = {0};
  const char *at = dejavu_path_begin(text);
  if (!at)
    return error_set(error, "no folder like dejavu_0.7 is in the path, whose folders say what a cache.json is of");
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
  const char *const parts[] = {
      path->runtime, path->triton,          path->gpu,          path->function,      path->tag,
      path->torch,   path->autotune_config, path->code_version, path->tune_features, path->kernel_configs};
  for (size_t i = 0; i < ARRAY_LENGTH(parts); i++) {
    if (parts[i] && (!part_is_safe(parts[i]) || (i > 5 && !dejavu_hash_is_valid(parts[i]))))
      return error_set(error, "\"%.100s\" cannot be a part of a path", parts[i]);
  }
  ALWAYS(dejavu_layout_has(path->layout, &has_torch, &has_features));
  cleanup_free char *storage =
      has_torch ? xasprintf("%s/%s/torch_%s/triton_%s/gpu_%s", path->layout, path->runtime, path->torch, path->triton,
                            path->gpu)
                : xasprintf("%s/triton_%s/%s/gpu_%s", path->layout, path->triton, path->runtime, path->gpu);
  if (has_features)
    *ret_text = xasprintf("%s/%s/autotune_config-%s/code_version-%s/tune_features-%s/kernel_configs-%s/%s/cache.json",
                          storage, path->function, path->autotune_config, path->code_version, path->tune_features,
                          path->kernel_configs, path->tag);
  else
    *ret_text = xasprintf("%s/%s/autotune_config-%s/kernel_configs-%s/code_version-%s/%s/cache.json", storage,
                          path->function, path->autotune_config, path->kernel_configs, path->code_version, path->tag);
  return true;
}

char *dejavu_signature_function(const char *signature) {
  const char *colon = strchr(signature, ':');
  size_t size = strlen(signature);
  if (!string_starts(signature, "JITFunction(") || !colon || strchr(colon + 1, ':') || signature[size - 1] != ')')
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
  static const char *const words[] = {"y", "yes", "t", "true", "on", "1", "n", "no", "f", "false", "off", "0"};
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
    return error_set(error, "%.60s is the text '%.40s', which dejavu reads as a number or a boolean", name, text);
  return true;
}

static bool restores_member(const char *name, const json_t *value, struct error *error) {
  bool is_integer = json_is_integer(value), is_boolean = json_is_boolean(value);
  if (strcmp(name, "num_warps") == 0 || strcmp(name, "num_stages") == 0 || strcmp(name, "num_ctas") == 0)
    return is_integer || error_set(error, "%s must be an integer", name);
  if (strcmp(name, "maxnreg") == 0)
    return is_integer || json_is_null(value) || error_set(error, "maxnreg must be an integer or None");
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
  return error_set(error, "%.60s is %s, which dejavu reads as a text", name, json_is_null(value) ? "None" : "a float");
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
bool dejavu_restores_element(const char *element, size_t size, bool ignore_dtypes, struct error *error) {
  bool has_single = false, has_double = false;
  int cut = size < 80 ? (int)size : 80;
  for (size_t i = 0; i < size; i++) {
    unsigned char c = (unsigned char)element[i];
    has_single |= c == '\'';
    has_double |= c == '"';
    if (c == ',' && i + 1 < size && element[i + 1] == ' ')
      return error_set(error, "'%.*s' has \", \" in it, where dejavu splits keys", cut, element);
    if (c < 0x20 || c >= 0x7f || c == '\\')
      return error_set(error, "'%.*s' has characters that Python escapes, which dejavu does not undo", cut, element);
  }
  if (has_single && has_double)
    return error_set(error, "'%.*s' has both kinds of quotes, which Python escapes and dejavu does not undo", cut,
                     element);
  if (ignore_dtypes && memmem(element, size, "torch.", 6))
    return error_set(error, "'%.*s' is taken for a dtype, and the function ignores those", cut, element);
  return true;
}
