/* The `json` format: one file that any program can read, cache.json.
 *
 * {"environment": {…},
 *  "kernels": {"softmax/fused": {"entries": [{"config": {…}, "key": {…}}], "kernel": "sha256:…"}},
 *  "regime": "warm", "release": "sha256:…", "tag": "default"}, canonical; "regime" is there unless
 * it is the implied one. Kernels that share a name are NAME@ and the first 12 hex digits of their
 * hash.
 *
 * A container's start waits for it: texts are concatenated, not built as a tree, and a config's
 * text is written once. An import knows kernels by their hashes; names and the release only
 * state where the entries came from.
 *
 * Memory and threads: format.h. */
#include "common/cache/format.h"
#include "common/cache/text.h"

#define PIECE_SIZE ((size_t)64 << 10)

/* A text and the name by which canonical JSON sorts it. */
struct named {
  const char *name;
  size_t index; /* in the release */
  char *text;
};

static int named_compare(const void *a, const void *b) {
  return strcmp(((const struct named *)a)->name, ((const struct named *)b)->name);
}

/* Takes over `value`. */
static void add_json(struct text *text, json_t *value) {
  cleanup_json json_t *owned = value;
  cleanup_free char *canonical = json_canonical(owned);
  text_add_string(text, canonical);
}

/* Writes the text so far and reuses its memory. */
static void text_flush(struct text *text, struct cache_files *files) {
  cache_files_put(files, text->bytes, text->size);
  text->size = 0;
}

static void kernel_write(struct text *text, const struct release_kernel *kernel,
                         struct cache_files *files) {
  size_t n = kernel->n_key_names;
  cleanup_free struct named *members = xcalloc(n + 1, sizeof *members);
  cleanup_free struct slice *slices = xcalloc(n + 1, sizeof *slices);
  for (size_t i = 0; i < n; i++) {
    cleanup_json json_t *name = json_string(kernel->key_names[i]);
    cleanup_free char *quoted = json_canonical(name);
    members[i] = (struct named){kernel->key_names[i], i, xasprintf("%s:", quoted)};
  }

  qsort(members, n, sizeof *members, named_compare);

  text_add_string(text, "{\"entries\":[");

  for (size_t i = 0; i < kernel->n_winners; i++) {
    const struct release_winner *winner = &kernel->winners[i];
    const struct release_config *config = &kernel->configs[winner->config];
    text_add_string(text, i ? ",{\"config\":" : "{\"config\":");
    text_add(text, config->text, config->text_size);
    text_add_string(text, ",\"key\":{");
    winner_key_slices(winner, slices, n);
    for (size_t j = 0; j < n; j++) {
      const struct slice *slice = &slices[members[j].index];
      text_add_string(text, j ? "," : "");
      text_add_string(text, members[j].text);
      text_add(text, slice->bytes, slice->size);
    }
    text_add_string(text, "}}");
    if (text->size >= PIECE_SIZE)
      text_flush(text, files);
  }

  text_add_string(text, "],\"kernel\":\"");
  text_add_string(text, DIGEST_TEXT(&kernel->hash));
  text_add_string(text, "\"}");

  for (size_t i = 0; i < n; i++)
    free(members[i].text);
}

static bool json_render(const struct render_request *request, struct cache_files *ret,
                        struct error *error) {
  const struct release *release = request->release;
  const struct release_kernel *kernels = release->kernels;
  size_t n = release->n_kernels;
  cleanup_text struct text text = {0};
  cleanup_free struct named *entries = xcalloc(n + 1, sizeof *entries);
  char digest[DIGEST_TEXT_SIZE];
  (void)error;

  for (size_t i = 0; i < n; i++) {
    const char *name = kernels[i].name;
    bool is_shared = (i && string_equal(kernels[i - 1].name, name)) ||
                     (i + 1 < n && string_equal(kernels[i + 1].name, name));
    char *own = is_shared ? xasprintf("%s@%.12s", name,
                                      digest_format(&kernels[i].hash, digest) + strlen("sha256:"))
                          : xstrdup(name);
    entries[i] = (struct named){own, i, own};
  }

  qsort(entries, n, sizeof *entries, named_compare);

  cache_files_begin(ret, "cache.json");
  text_add_string(&text, "{\"environment\":");
  add_json(&text, environment_to_json(&release->environment));
  text_add_string(&text, ",\"kernels\":{");

  for (size_t i = 0; i < n; i++) {
    text_add_string(&text, i ? "," : "");
    add_json(&text, json_string(entries[i].name));
    text_add_string(&text, ":");
    kernel_write(&text, &kernels[entries[i].index], ret);
    free(entries[i].text);
  }

  text_add_string(&text, "}");
  if (regime_member(release->regime)) {
    text_add_string(&text, ",\"regime\":");
    add_json(&text, json_string(regime_member(release->regime)));
  }
  text_add_string(&text, ",\"release\":\"");
  text_add_string(&text, digest_format(&release->digest, digest));
  text_add_string(&text, "\",\"tag\":");
  add_json(&text, json_string(release->tag));
  text_add_string(&text, "}");
  text_flush(&text, ret);
  return true;
}

/* A key or a config: members are scalars. A new reference. */
static bool flat_read(const json_t *entry, const char *at, const char *name, json_t **ret,
                      struct error *error) {
  json_t *object = NULL;
  if (!json_get_object(entry, at, name, JSON_REQUIRED, &object, error))
    return false;
  const char *pointer = POINTER_MEMBER(at, name);

  json_members (object, member, value)
    if (!scalar_check(value, POINTER_MEMBER(pointer, member), error))
      return false;

  *ret = json_incref(object);
  return true;
}

static bool entry_read(const json_t *json, const char *at, const char *source,
                       struct imported_kernel *kernel, struct error *error) {
  static const char *const members[] = {"config", "key", NULL};
  cleanup_json json_t *key = NULL, *config = NULL;
  struct imported_entry *entry;

  if (!json_only_members(json, at, members, error) || !flat_read(json, at, "key", &key, error) ||
      !flat_read(json, at, "config", &config, error))
    return false;

  const json_t *first = kernel->n_entries ? kernel->entries[0].key : key;
  bool same = json_object_size(key) == json_object_size(first);
  json_members (key, name, value)
    same = same && json_object_get(first, name);
  if (!same)
    return error_at(error, at, "the key has other members than that of the kernel's first entry");
  if (!imported_entry_add(kernel, TAKE(key), &entry, error))
    return error_pointer_prefix(error, at);
  entry->config = TAKE(config);
  entry->provenance = json_pack("{s:o}", "source", imported_source(source));
  return true;
}

static bool json_read(const struct import_request *request, const struct cache_file *file,
                      struct imported *imported, struct error *error) {
  static const char *const members[] = {"environment", "kernels", "regime", "release", "tag", NULL},
                           *const kernel_members[] = {"entries", "kernel", NULL};
  cleanup_json json_t *json = NULL;
  json_t *environment = NULL, *kernels = NULL, *entries = NULL;
  const char *tag = NULL;
  struct digest digest;
  enum regime regime;

  if (request->files->n != 1)
    return error_set(error, "the json format is one file, cache.json, not %zu", request->files->n);
  if (!json_parse(file->bytes, file->size, &json, error) ||
      !json_only_members(json, "", members, error) ||
      !json_get_object(json, "", "environment", JSON_REQUIRED, &environment, error) ||
      !json_get_object(json, "", "kernels", JSON_REQUIRED, &kernels, error) ||
      !json_get_digest(json, "", "release", JSON_REQUIRED, &digest, error) ||
      !json_get_string(json, "", "tag", JSON_REQUIRED, &tag, error) ||
      !regime_get(json, "", &regime, error))
    return false;
  if (!imported_set_environment(imported, json_incref(environment), error))
    return error_pointer_prefix(error, "/environment");

  json_members (kernels, name, kernel_json) {
    char at[JSON_POINTER_SIZE];
    json_pointer_member(at, sizeof at, "/kernels", name);
    const char *in = POINTER_MEMBER(at, "entries");
    if (!json_only_members(kernel_json, at, kernel_members, error) ||
        !json_get_digest(kernel_json, at, "kernel", JSON_REQUIRED, &digest, error) ||
        !json_get_array(kernel_json, at, "entries", JSON_REQUIRED, &entries, error))
      return false;
    size_t n_before = imported->n_kernels;
    struct imported_kernel *kernel = imported_kernel_for(imported, DIGEST_TEXT(&digest));
    if (imported->n_kernels == n_before)
      return error_at(error, at, "the kernel occurs twice");
    kernel->hash = digest;
    for (size_t i = 0; i < json_array_size(entries); i++) {
      json_pointer_index(at, sizeof at, in, i);
      if (!entry_read(json_array_get(entries, i), at, file->path, kernel, error))
        return false;
    }
  }

  return true;
}

const struct cache_format format_json = {
    .name = "json",
    .summary = "one file, cache.json, that any program can read",
    .render = json_render,
    .table = "cache.json",
    .may_be_empty = true,
    .no_kernel = "cache.json has the hashes of the kernels of its entries",
    .read = json_read,
};
