/* The `json` format: one file that any program can read, cache.json.
 *
 * {"environment": {…},
 *  "kernels": {"softmax/fused": {"entries": [{"config": {…}, "key": {…}}], "kernel": "sha256:…"}},
 *  "regime": "warm", "release": "sha256:…", "tag": "default"}, canonical; "regime" is there only
 * when it is warm. Kernels that share a name are NAME@ and the first 12 hex digits of their hash.
 *
 * A container start waits for it: texts are put together, not built as a tree, and a config's text
 * is written once. Read back, it is kernels known by their hashes: names and the release say where
 * the entries came from.
 *
 * Memory: what format.h says. Pure functions, any thread. */
#include "common/cache/format.h"

#include "common/cache/cache_text.h"

#define PIECE_SIZE ((size_t)64 << 10)

static void text_add_json(struct text *text, json_t *value) {
  cleanup_free char *canonical = json_canonical(value);
  text_add_string(text, canonical);
  json_decref(value);
}

struct member {
  const char *name;
  size_t position; /* in the kernel's key */
  char *text;      /* "NAME": with its quotes and escapes */
  size_t size;
};

static int members_compare(const void *a, const void *b) {
  return strcmp(((const struct member *)a)->name, ((const struct member *)b)->name);
}

/* What is the same for all entries of a kernel. */
struct frame {
  size_t n_members, n_configs;
  struct member *members; /* sorted by name */
  struct slice *slices;
  char **configs; /* {"config":{…},"key":{ */
};

static void frame_init(struct frame *frame, const struct release_kernel *kernel) {
  *frame = (struct frame){.n_members = kernel->n_key_names, .n_configs = kernel->n_configs};
  frame->members = xcalloc(frame->n_members + 1, sizeof *frame->members);
  frame->slices = xcalloc(frame->n_members + 1, sizeof *frame->slices);
  frame->configs = xcalloc(frame->n_configs + 1, sizeof *frame->configs);
  for (size_t i = 0; i < frame->n_members; i++) {
    cleanup_json json_t *name = json_string(kernel->key_names[i]);
    cleanup_free char *quoted = json_canonical(name);
    struct member *member = &frame->members[i];
    *member = (struct member){
        .name = kernel->key_names[i], .position = i, .text = xasprintf("%s:", quoted)};
    member->size = strlen(member->text);
  }
  qsort(frame->members, frame->n_members, sizeof *frame->members, members_compare);
  for (size_t i = 0; i < frame->n_configs; i++) {
    const struct release_config *config = &kernel->configs[i];
    frame->configs[i] =
        xasprintf("{\"config\":%.*s,\"key\":{", (int)config->text_size, config->text);
  }
}

static void frame_release(struct frame *frame) {
  for (size_t i = 0; i < frame->n_members; i++)
    free(frame->members[i].text);
  for (size_t i = 0; i < frame->n_configs; i++)
    free(frame->configs[i]);
  free(frame->members);
  free(frame->slices);
  free(frame->configs);
}

/* Hands on what was put together, and the room for it is used again. */
static void text_pass(struct text *text, struct cache_files *files) {
  cache_files_put(files, text->bytes, text->size);
  text->size = 0;
}

static void kernel_write(struct text *text, const struct release_kernel *kernel,
                         struct cache_files *files) {
  __attribute__((cleanup(frame_release))) struct frame frame;
  char digest[DIGEST_TEXT_SIZE];
  frame_init(&frame, kernel);
  text_add_string(text, "{\"entries\":[");
  for (size_t i = 0; i < kernel->n_winners; i++) {
    const struct release_winner *winner = &kernel->winners[i];
    if (i)
      text_add(text, ",", 1);
    text_add_string(text, frame.configs[winner->config]);
    winner_key_slices(winner, frame.slices, frame.n_members);
    for (size_t j = 0; j < frame.n_members; j++) {
      const struct member *member = &frame.members[j];
      if (j)
        text_add(text, ",", 1);
      text_add(text, member->text, member->size);
      text_add(text, frame.slices[member->position].bytes, frame.slices[member->position].size);
    }
    text_add(text, "}}", 2);
    if (text->size >= PIECE_SIZE)
      text_pass(text, files);
  }
  text_add_string(text, "],\"kernel\":\"");
  text_add_string(text, digest_format(&kernel->hash, digest));
  text_add(text, "\"}", 2);
}

/* The kernels under their names in the file, in its order. */
struct entry {
  char *name;
  const struct release_kernel *kernel;
};

static int entries_compare(const void *a, const void *b) {
  return strcmp(((const struct entry *)a)->name, ((const struct entry *)b)->name);
}

static struct entry *entries_make(const struct release *release) {
  struct entry *entries = xcalloc(release->n_kernels + 1, sizeof *entries);
  for (size_t i = 0; i < release->n_kernels; i++) {
    const struct release_kernel *kernel = &release->kernels[i];
    bool is_shared = (i && strcmp(kernel[-1].name, kernel->name) == 0) ||
                     (i + 1 < release->n_kernels && strcmp(kernel[1].name, kernel->name) == 0);
    char digest[DIGEST_TEXT_SIZE];
    entries[i].kernel = kernel;
    entries[i].name =
        is_shared ? xasprintf("%s@%.12s", kernel->name, digest_format(&kernel->hash, digest) + 7)
                  : xstrdup(kernel->name);
  }
  qsort(entries, release->n_kernels, sizeof *entries, entries_compare);
  return entries;
}

static bool render_release(const struct render_request *request, struct cache_files *ret,
                           struct error *error) {
  const struct release *release = request->release;
  cleanup_text struct text text = {0};
  char digest[DIGEST_TEXT_SIZE];
  (void)error;
  cache_files_begin(ret, "cache.json");
  text_add_string(&text, "{\"environment\":");
  text_add_json(&text, environment_to_json(&release->environment));
  text_add_string(&text, ",\"kernels\":{");
  struct entry *entries = entries_make(release);
  for (size_t i = 0; i < release->n_kernels; i++) {
    if (i)
      text_add(&text, ",", 1);
    text_add_json(&text, json_string(entries[i].name));
    text_add(&text, ":", 1);
    kernel_write(&text, entries[i].kernel, ret);
    free(entries[i].name);
  }
  free(entries);
  text_add_string(&text, release->regime == REGIME_WARM ? "},\"regime\":\"warm\",\"release\":\""
                                                        : "},\"release\":\"");
  text_add_string(&text, digest_format(&release->digest, digest));
  text_add_string(&text, "\",\"tag\":");
  text_add_json(&text, json_string(release->tag));
  text_add(&text, "}", 1);
  text_pass(&text, ret);
  return true;
}

/* A key or a config: members are scalars. */
static bool take_flat(const json_t *entry, const char *at, const char *name, json_t **ret,
                      struct error *error) {
  json_t *object = NULL, *value;
  const char *member;
  if (!json_get_object(entry, at, name, JSON_REQUIRED, &object, error))
    return false;
  char pointer[JSON_POINTER_SIZE], below[JSON_POINTER_SIZE];
  json_pointer_member(pointer, sizeof pointer, at, name);
  json_object_foreach (object, member, value) {
    struct value scalar;
    struct error why;
    if (!value_from_json(value, &scalar, &why))
      return error_at(error, json_pointer_member(below, sizeof below, pointer, member), "%s",
                      why.message);
  }
  *ret = json_incref(object);
  return true;
}

static bool read_entry(const json_t *json, const char *at, const char *source,
                       struct imported_entry *entry, struct error *error) {
  static const char *const members[] = {"config", "key", NULL};
  entry->provenance = json_pack("{s:o}", "source", imported_source(source));
  ALWAYS(entry->provenance != NULL);
  return json_only_members(json, at, members, error) &&
         take_flat(json, at, "key", &entry->key, error) &&
         take_flat(json, at, "config", &entry->config, error);
}

/* One decision for each key, and keys of one shape. */
static bool keys_are_distinct(const struct imported_kernel *kernel, const char *at,
                              struct error *error) {
  cleanup_json json_t *seen = json_object();
  char pointer[JSON_POINTER_SIZE];
  for (size_t i = 0; i < kernel->n_entries; i++) {
    const json_t *key = kernel->entries[i].key, *first = kernel->entries[0].key;
    const char *name;
    json_t *value;
    bool same = json_object_size(key) == json_object_size(first);
    json_object_foreach ((json_t *)key, name, value)
      same = same && json_object_get(first, name);
    json_pointer_index(pointer, sizeof pointer, at, i);
    if (!same)
      return error_at(error, pointer,
                      "the key has other members than that of the kernel's first entry");
    cleanup_free char *text = json_canonical(key);
    if (json_object_get(seen, text))
      return error_at(error, pointer, "the key %.200s stands there twice", text);
    ALWAYS(json_object_set_new(seen, text, json_true()) == 0);
  }
  return true;
}

static bool read_kernel(const json_t *json, const char *at, const char *source, json_t *seen,
                        struct imported *imported, struct error *error) {
  static const char *const members[] = {"entries", "kernel", NULL};
  json_t *entries = NULL, *entry;
  size_t i;
  struct imported_kernel *kernel = imported_add_kernel(imported);
  char below[JSON_POINTER_SIZE], pointer[JSON_POINTER_SIZE];
  if (!json_only_members(json, at, members, error) ||
      !json_get_digest(json, at, "kernel", JSON_REQUIRED, &kernel->hash, error) ||
      !json_get_array(json, at, "entries", JSON_REQUIRED, &entries, error))
    return false;
  json_pointer_member(below, sizeof below, at, "entries");
  char digest[DIGEST_TEXT_SIZE];
  if (json_object_get(seen, digest_format(&kernel->hash, digest)))
    return error_at(error, at, "the kernel stands there twice");
  ALWAYS(json_object_set_new(seen, digest, json_true()) == 0);
  json_array_foreach (entries, i, entry) {
    json_pointer_index(pointer, sizeof pointer, below, i);
    if (!read_entry(entry, pointer, source, imported_add_entry(kernel), error))
      return false;
  }
  return keys_are_distinct(kernel, below, error);
}

static bool read_file(const struct cache_file *file, struct imported *imported,
                      struct error *error) {
  static const char *const members[] = {"environment", "kernels", "regime", "release", "tag", NULL};
  cleanup_json json_t *json = NULL;
  json_t *environment = NULL, *kernels = NULL, *kernel;
  const char *tag = NULL, *name;
  struct digest release;
  enum regime regime;
  cleanup_environment struct environment parsed = {0};
  if (!json_parse(file->bytes, file->size, &json, error) ||
      !json_only_members(json, "", members, error) ||
      !json_get_object(json, "", "environment", JSON_REQUIRED, &environment, error) ||
      !json_get_object(json, "", "kernels", JSON_REQUIRED, &kernels, error) ||
      !json_get_digest(json, "", "release", JSON_REQUIRED, &release, error) ||
      !json_get_string(json, "", "tag", JSON_REQUIRED, &tag, error) ||
      !regime_get(json, "", &regime, error))
    return false;
  if (!environment_parse(environment, &parsed, error))
    return error_pointer_prefix(error, "/environment");
  imported->environment = json_incref(environment);
  cleanup_json json_t *seen = json_object(); /* kernels by hash */
  json_object_foreach (kernels, name, kernel) {
    char at[JSON_POINTER_SIZE];
    if (!read_kernel(kernel, json_pointer_member(at, sizeof at, "/kernels", name), file->path, seen,
                     imported, error))
      return false;
  }
  return true;
}

static bool read_files(const struct import_request *request, struct imported *ret,
                       struct error *error) {
  cleanup_imported struct imported imported = {0};
  if (request->kernel)
    return error_set(
        error,
        "cache.json says by their hashes which kernels its entries are of; leave --kernel away");
  if (request->files->n != 1)
    return error_set(error, "the json format is one file, cache.json, not %zu", request->files->n);
  const struct cache_file *file = &request->files->files[0];
  if (!read_file(file, &imported, error))
    return cache_file_refuse(file, error);
  *ret = imported;
  imported = (struct imported){0};
  return true;
}

const struct cache_format format_json = {
    .name = "json",
    .summary = "one file, cache.json, that any program can read",
    .render = render_release,
    .read = read_files,
};
