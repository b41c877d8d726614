/* The `inductor` format: the NAME.best_config files of torch's Inductor
 * (torch/_inductor/runtime/autotune_cache.py), one for each generated kernel:
 * TORCHINDUCTOR_CACHE_DIR/XX/<64 hex digits>.best_config.
 *
 * The file's name is a hash of the kernel's generated text and of torch, and Inductor uses the file
 * only where configs_hash is that of its own candidates: no such file can be made from what was
 * tuned elsewhere. So this format only stores what Inductor wrote: all files of a
 * tree are the kernel "inductor" with the key {"file": the last two parts of the path,
 * "configs_hash"}. Its config is the kernel's parameters; the file's other members are provenance
 * ("time_taken_ms" is how long the tuning took, not the kernel), with the order of members, so that
 * export restores the bytes.
 *
 * Memory and threads: format.h. */
#include <ctype.h>

#include "common/cache/autotuner.h"
#include "common/cache/format.h"
#include "common/cache/text.h"

#define MEMBERS_MAX 64

static const char suffix[] = ".best_config";
/* What other back ends than Triton save with a config: any JSON. Provenance has it as a text. */
static const char nested[] = "extra_options";

/* Whether a member is provenance rather than a parameter. */
static bool is_other(const char *name) {
  static const char *const others[] = {"configs_hash", "found_by_coordesc", "time_taken_ms",
                                       "triton_cache_hash", nested};
  return name_is_in(name, others);
}

static bool is_word(const char *text, size_t size, const char *others) {
  for (size_t i = 0; i < size; i++)
    if (!isalnum((unsigned char)text[i]) && !strchr(others, text[i]))
      return false;
  return size > 0;
}

/* XX/<64 hex>.best_config, with XX letters and digits of a hash. */
static bool is_place(const char *place) {
  size_t folder = strcspn(place, "/");
  if (folder > 64 || place[folder] != '/' || !is_word(place, folder, "_-"))
    return false;
  const char *name = place + folder + 1;
  return strspn(name, "0123456789abcdef") == 64 && string_equal(name + 64, suffix);
}

/* The last two parts of a path. */
static const char *place_of(const char *path) {
  size_t n_slashes = 0;
  for (const char *at = path + strlen(path); at > path; at--)
    if (at[-1] == '/' && ++n_slashes == 2)
      return at;
  return path;
}

static bool winner_render(const struct release_kernel *kernel, const struct release_winner *winner,
                          struct cache_files *files, json_t *places, struct error *error) {
  const json_t *config = kernel->configs[winner->config].values,
               *provenance = kernel->provenance[winner->provenance];
  cleanup_json json_t *key = release_key_object(kernel, winner), *object = json_object();
  const char *place = json_text(key, "file");
  const char *members = json_text(provenance, "members");

  if (!place || !is_place(place))
    return error_set(error, "its key does not name a file of Inductor");
  if (!members)
    return error_set(error,
                     "its provenance does not have the members of the file that it came from");

  cleanup_free char *names = xstrdup(members);

  for (char *name = names, *next; name; name = next) {
    next = strchr(name, ',');
    if (next)
      *next++ = '\0';
    json_t *value = json_object_get(string_equal(name, "configs_hash") ? key
                                    : is_other(name)                   ? provenance
                                                                       : config,
                                    name);
    if (!value)
      return error_set(error, "neither its config nor its provenance has \"%.60s\"", name);
    if (!string_equal(name, nested)) {
      json_put(object, name, json_incref(value));
      continue;
    }
    const char *text = json_string_value(value);
    json_t *parsed = NULL;
    if (!text || !json_parse(text, strlen(text), &parsed, error))
      return error_set(error, "its provenance's \"%s\" is not the text of a JSON value", nested);
    json_put(object, name, parsed);
  }

  if (!set_add(places, place))
    return error_set(error, "another winner of the release makes %.160s", place);
  size_t size;
  char *bytes = python_json(object, 0, &size);
  cache_files_add(files, place, bytes, size);
  return true;
}

static bool inductor_render(const struct render_request *request, struct cache_files *ret,
                            struct error *error) {
  cleanup_json json_t *places = json_object();
  for (size_t i = 0; i < request->release->n_kernels; i++) {
    const struct release_kernel *kernel = &request->release->kernels[i];
    const struct kernel *manifest = NULL;
    struct error why;
    bool ok =
        request_manifest(request, kernel, &manifest, &why) &&
        (external_exports(manifest, "inductor") ||
         error_set(&why, "it did not come from Inductor, which names its files by its own hashes"));
    if (!ok)
      cache_files_skip(ret, kernel, NULL, why.message);
    for (size_t j = 0; ok && j < kernel->n_winners; j++)
      if (!winner_render(kernel, &kernel->winners[j], ret, places, &why))
        cache_files_skip(ret, kernel, &kernel->winners[j], why.message);
  }

  ret->folder_mode = 0777; /* Inductor writes what it generates there */
  cache_files_variable(ret, "TORCHINDUCTOR_CACHE_DIR", "", NULL);
  return cache_files_any(ret, "inductor", error);
}

static bool is_table(const char *path) { return string_ends(path, suffix); }

static bool inductor_read(const struct import_request *request, const struct cache_file *file,
                          struct imported *imported, struct error *error) {
  const char *place = place_of(file->path), *configs_hash = NULL;
  cleanup_json json_t *json = NULL;
  bool coordesc, is_new;
  int64_t number;

  (void)request;
  if (!is_place(place))
    return error_set(
        error, "it is not named FOLDER/<64 hexadecimal digits>%s, as Inductor names them", suffix);
  if (!json_can_hold(file->path))
    return error_set(error, "the path is not UTF-8");
  if (!json_parse(file->bytes, file->size, &json, error))
    return false;
  if (!json_is_object(json))
    return error_set(error, "a .best_config file must be an object");
  if (!json_get_string(json, "", "configs_hash", JSON_REQUIRED, &configs_hash, error) ||
      !json_get_integer(json, "", "num_warps", JSON_REQUIRED, 1, 64, &number, error) ||
      !json_get_integer(json, "", "num_stages", JSON_REQUIRED, 0, 64, &number, error) ||
      !json_get_bool(json, "", "found_by_coordesc", JSON_OPTIONAL, &coordesc, error))
    return false;
  if (json_object_size(json) > MEMBERS_MAX)
    return error_set(error, "the file has %zu members; at most %d are read", json_object_size(json),
                     MEMBERS_MAX);

  struct imported_kernel *kernel = imported_external(
      imported, external_manifest("inductor", json_pack("[s, s]", "file", "configs_hash"),
                                  "inductor", json_object()));
  struct imported_entry *entry = imported_entry_for(kernel, place, &is_new);
  if (!is_new)
    return error_set(error, "another file of the tree has this name in a folder of this name");

  cleanup_json json_t *names = config_names(json);
  cleanup_free char *order = json_texts_join(names, ",");
  entry->key = json_pack("{s:s, s:s}", "file", place, "configs_hash", configs_hash);
  entry->provenance = json_pack("{s:s, s:s}", "source", file->path, "members", order);

  entry->config = json_object();
  json_members (json, name, value) {
    const char *at = POINTER_MEMBER("", name);
    if (strlen(name) > 100 || !is_word(name, strlen(name), "_"))
      return error_at(error, at, "a member's name must have 1 to 100 letters, digits and _");
    if (string_equal(name, nested)) {
      cleanup_free char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
      json_put(entry->provenance, name, json_string(text));
      continue;
    }
    if (!scalar_check(value, at, error))
      return false;
    if (!string_equal(name, "configs_hash"))
      json_put(is_other(name) ? entry->provenance : entry->config, name, json_incref(value));
  }

  return true; /* the config is not empty: it has num_warps */
}

const struct cache_format format_inductor = {
    .name = "inductor",
    .summary = "the .best_config files of torch's Inductor, in TORCHINDUCTOR_CACHE_DIR",
    .render = inductor_render,
    .table = "NAME.best_config",
    .folder = "Inductor's cache folder (TORCHINDUCTOR_CACHE_DIR)",
    .is_table = is_table,
    .no_kernel = "Inductor's kernels are generated and are not registered",
    .file_size_max = (size_t)1 << 20,
    .read = inductor_read,
};
