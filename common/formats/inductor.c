/* The `inductor` format: the NAME.best_config files of torch's Inductor
 * (torch/_inductor/runtime/autotune_cache.py), one for each generated kernel:
 * TORCHINDUCTOR_CACHE_DIR/XX/<64 hex digits>.best_config.
 *
 * The file's name is a hash of the kernel's generated text and of torch, and Inductor uses the file
 * only where configs_hash is that of its own candidates: nothing of it can be made from what was
 * tuned elsewhere. So this format carries what Inductor wrote, and nothing else: all files of a
 * tree are the kernel "inductor" with the key {"file": the last two parts of the path,
 * "configs_hash"}. Its config is the kernel's parameters; what else the file says is provenance
 * ("time_taken_ms" is how long the tuning took, not the kernel), with the order of members, so that
 * the bytes come back.
 *
 * Memory: what format.h says. Threads: any; pure functions. */
#include <ctype.h>

#include "common/cache/format.h"
#include "common/cache/python_text.h"

#define FILE_SIZE_MAX ((size_t)1 << 20)
#define MEMBERS_MAX 64

static const char suffix[] = ".best_config";

/* Members that are not the config's. */
static const char *const other_members[] = {"configs_hash", "found_by_coordesc", "time_taken_ms",
                                            "triton_cache_hash"};

static bool is_other(const char *name) {
  for (size_t i = 0; i < ARRAY_LENGTH(other_members); i++) {
    if (strcmp(name, other_members[i]) == 0)
      return true;
  }
  return false;
}

static bool has_suffix(const char *path) {
  size_t length = strlen(path);
  return length > strlen(suffix) && strcmp(path + length - strlen(suffix), suffix) == 0;
}

/* XX/<64 hex>.best_config: letters and digits of a hash. */
static bool is_place(const char *place) {
  size_t folder = strcspn(place, "/");
  if (folder < 1 || folder > 64 || place[folder] != '/')
    return false;
  for (size_t i = 0; i < folder; i++) {
    if (!isalnum((unsigned char)place[i]) && place[i] != '_' && place[i] != '-')
      return false;
  }
  const char *name = place + folder + 1;
  return strspn(name, "0123456789abcdef") == 64 && strcmp(name + 64, suffix) == 0;
}

/* The last two parts of a path. */
static const char *place_of(const char *path) {
  size_t n_slashes = 0;
  for (const char *at = path + strlen(path); at > path; at--) {
    if (at[-1] == '/' && ++n_slashes == 2)
      return at;
  }
  return path;
}

static bool render_winner(const struct release_kernel *kernel, const struct release_winner *winner,
                          struct cache_files *files, json_t *places, struct error *error) {
  const json_t *config = kernel->configs[winner->config].values,
               *provenance = kernel->provenance[winner->provenance];
  cleanup_json json_t *key = release_key_object(kernel, winner), *object = json_object();
  const char *place = json_string_value(json_object_get(key, "file"));
  const char *members = json_string_value(json_object_get(provenance, "members"));
  if (!place || !is_place(place))
    return error_set(error, "its key names no file of Inductor");
  if (!members)
    return error_set(error,
                     "its provenance does not have the members of the file that it came from");
  cleanup_free char *names = xstrdup(members);
  for (char *name = names, *next; name; name = next) {
    next = strchr(name, ',');
    if (next)
      *next++ = '\0';
    json_t *value = json_object_get(strcmp(name, "configs_hash") == 0 ? key
                                    : is_other(name)                  ? provenance
                                                                      : config,
                                    name);
    if (!value)
      return error_set(error, "neither its config nor its provenance has \"%.60s\"", name);
    ALWAYS(json_object_set(object, name, value) == 0);
  }
  if (json_object_get(places, place))
    return error_set(error, "another winner of the release makes %.160s", place);
  ALWAYS(json_object_set_new(places, place, json_true()) == 0);
  size_t size;
  char *bytes = python_json(object, 0, &size);
  cache_files_add(files, place, bytes, size);
  return true;
}

/* False: it has none of Inductor's files; the error says why. */
static bool is_inductor(const struct render_request *request, const struct release_kernel *kernel,
                        struct error *error) {
  const struct cache_source *source = request->source;
  const struct kernel *manifest = NULL;
  if (source->kernel && !source->kernel(source->context, &kernel->hash, &manifest, error))
    return false;
  return (manifest && manifest->language == LANGUAGE_EXTERNAL &&
          json_object_get(json_object_get(manifest->json, "exports"), "inductor")) ||
         error_set(error, "it did not come from Inductor, which names its files by its own hashes");
}

static void render_kernel(const struct release_kernel *kernel, struct cache_files *files,
                          json_t *places) {
  for (size_t i = 0; i < kernel->n_winners; i++) {
    const struct release_winner *winner = &kernel->winners[i];
    struct error reason;
    if (render_winner(kernel, winner, files, places, &reason))
      continue;
    cleanup_free char *key = xstrndup(winner->key, winner->key_size);
    cache_files_skip(files, kernel->name, key, "%s", reason.message);
  }
}

static bool render_release(const struct render_request *request, struct cache_files *ret,
                           struct error *error) {
  cleanup_cache_files struct cache_files files = {0};
  cleanup_json json_t *places = json_object();
  for (size_t i = 0; i < request->release->n_kernels; i++) {
    const struct release_kernel *kernel = &request->release->kernels[i];
    struct error reason;
    if (is_inductor(request, kernel, &reason))
      render_kernel(kernel, &files, places);
    else
      cache_files_skip(&files, kernel->name, NULL, "%s", reason.message);
  }
  ALWAYS(files.n || files.n_skipped);
  if (!files.n)
    return error_set(error,
                     "no winner of the release can stand among Inductor's files; \"%.60s\": %.300s",
                     files.skipped[0].name, files.skipped[0].reason);
  files.folder_mode = 0777; /* Inductor writes what it generates there */
  cache_files_variable(&files, "TORCHINDUCTOR_CACHE_DIR", "", NULL);
  *ret = files;
  files = (struct cache_files){0};
  return true;
}

static bool is_member_name(const char *name) {
  size_t length = strlen(name);
  for (size_t i = 0; i < length; i++) {
    if (!isalnum((unsigned char)name[i]) && name[i] != '_')
      return false;
  }
  return length >= 1 && length <= 100;
}

/* The members by what they are: the entry's config, or its provenance, with the names of all in the
 * file's order. */
static bool take_members(const json_t *json, struct imported_entry *entry, struct error *error) {
  char at[JSON_POINTER_SIZE];
  const char *name;
  json_t *value;
  cleanup_free char *names = NULL;
  if (json_object_size(json) > MEMBERS_MAX)
    return error_set(error, "the file has %zu members; at most %d are read", json_object_size(json),
                     MEMBERS_MAX);
  json_object_foreach ((json_t *)json, name, value) {
    struct value scalar;
    struct error why;
    json_pointer_member(at, sizeof at, "", name);
    if (!is_member_name(name))
      return error_at(error, at, "a member's name must have 1 to 100 letters, digits and _");
    if (!value_from_json(value, &scalar, &why))
      return error_at(error, at, "%s", why.message);
    if (strcmp(name, "configs_hash") != 0)
      ALWAYS(json_object_set(is_other(name) ? entry->provenance : entry->config, name, value) == 0);
    char *longer = xasprintf("%s%s%s", names ? names : "", names ? "," : "", name);
    free(names);
    names = longer;
  }
  ALWAYS(json_object_set_new(entry->provenance, "members", json_string(names)) == 0);
  return json_object_size(entry->config) > 0 ||
         error_set(error, "the file has no member of a config");
}

static bool read_file(const struct cache_file *file, struct imported_entry *entry,
                      struct error *error) {
  cleanup_json json_t *json = NULL;
  const char *place = place_of(file->path), *configs_hash = NULL;
  bool coordesc;
  int64_t number;
  if (!is_place(place))
    return error_set(
        error, "it is not named FOLDER/<64 hexadecimal digits>%s, as Inductor names them", suffix);
  if (file->size > FILE_SIZE_MAX)
    return error_set(error, "it has %zu bytes; at most %zu are read", file->size, FILE_SIZE_MAX);
  if (!json_parse(file->bytes, file->size, &json, error))
    return false;
  if (!json_is_object(json))
    return error_set(error, "a .best_config file must be an object");
  if (!json_get_string(json, "", "configs_hash", JSON_REQUIRED, &configs_hash, error) ||
      !json_get_integer(json, "", "num_warps", JSON_REQUIRED, 1, 64, &number, error) ||
      !json_get_integer(json, "", "num_stages", JSON_REQUIRED, 0, 64, &number, error) ||
      !json_get_bool(json, "", "found_by_coordesc", JSON_OPTIONAL, &coordesc, error))
    return false;
  entry->key = json_pack("{s:s, s:s}", "file", place, "configs_hash", configs_hash);
  entry->provenance = json_pack("{s:s}", "source", file->path);
  entry->config = json_object();
  if (!entry->provenance)
    return error_set(error, "the path is not UTF-8");
  ALWAYS(entry->key && entry->config);
  return take_members(json, entry, error);
}

static bool read_files(const struct import_request *request, struct imported *ret,
                       struct error *error) {
  cleanup_imported struct imported imported = {.environment = json_object()};
  cleanup_json json_t *places = json_object();
  if (request->kernel)
    return error_set(
        error, "Inductor's kernels are generated and are not registered; leave --kernel away");
  struct imported_kernel *kernel = imported_add_kernel(&imported);
  kernel->manifest = json_pack("{s:s, s:s, s:[s, s], s:{s:{}}}", "name", "inductor", "language",
                               "external", "key", "file", "configs_hash", "exports", "inductor");
  ALWAYS(kernel->manifest != NULL);
  for (size_t i = 0; i < request->files->n; i++) {
    const struct cache_file *file = &request->files->files[i];
    const char *place = place_of(file->path);
    if (!has_suffix(file->path))
      continue; /* generated code, compiled graphs */
    if (!read_file(file, imported_add_entry(kernel), error))
      return cache_file_refuse(file, error);
    if (json_object_get(places, place))
      return error_set(error,
                       "%.200s: another file of the tree has this name in a folder of this name",
                       file->path);
    ALWAYS(json_object_set_new(places, place, json_true()) == 0);
  }
  if (!kernel->n_entries)
    return error_set(
        error,
        "none of the %zu files is a NAME%s; name Inductor's cache folder (TORCHINDUCTOR_CACHE_DIR)",
        request->files->n, suffix);
  *ret = imported;
  imported = (struct imported){0};
  return true;
}

const struct cache_format format_inductor = {
    .name = "inductor",
    .summary = "the .best_config files of torch's Inductor, in TORCHINDUCTOR_CACHE_DIR",
    .render = render_release,
    .read = read_files,
};
