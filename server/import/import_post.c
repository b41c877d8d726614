/* Reading the body of POST /v1/imports. Memory and threads: as the header says. */
#include "server/import/import_post.h"

#include <math.h>

#include "common/cache/format.h"

void import_post_release(struct import_post *post) {
  environment_release(&post->environment);
  for (size_t i = 0; i < post->n_kernels; i++)
    if (post->kernels[i].kernel)
      kernel_free(post->kernels[i].kernel);
  free(post->kernels);
  for (size_t i = 0; i < post->n_rows; i++) {
    free(post->rows[i].key);
    free(post->rows[i].config);
    free(post->rows[i].provenance);
  }
  free(post->rows);
  *post = (struct import_post){0};
}

/* A manifest, which must be external, or the hash of a registered kernel. */
static bool kernel_name_read(const json_t *json, const char *at, struct import_kernel *kernel, struct error *error) {
  char manifest_at[JSON_POINTER_SIZE];
  json_t *manifest = NULL;
  if (!json_get_object(json, at, "manifest", JSON_NOT_NULL, &manifest, error))
    return false;
  if (!manifest)
    return json_get_digest(json, at, "kernel", JSON_REQUIRED, &kernel->hash, error);
  json_pointer_member(manifest_at, sizeof manifest_at, at, "manifest");
  if (json_object_get(json, "kernel"))
    return error_at(error, at, "\"kernel\" and \"manifest\" name the kernel twice; keep one of them");
  if (!kernel_parse(manifest, &kernel->kernel, error))
    return error_pointer_prefix(error, manifest_at);
  kernel->hash = kernel->kernel->hash;
  kernel->is_new = true;
  return kernel->kernel->language == LANGUAGE_EXTERNAL ||
         error_at(error, manifest_at,
                  "an import brings kernels that are known by name only (\"external\"); register \"%s\" by POST "
                  "/v1/kernels and name it by its hash",
                  kernel->kernel->name);
}

static bool kernels_read(const json_t *kernels, struct import_post *post, struct error *error) {
  static const char *const members[] = {"kernel", "manifest", "entries", NULL};
  size_t n = json_array_size(kernels), total = 0;
  if (n == 0)
    return error_at(error, "/kernels", "\"kernels\" is empty; an import brings at least one kernel");
  post->kernels = xcalloc(n, sizeof *post->kernels);
  for (size_t i = 0; i < n; i++) {
    struct import_kernel *kernel = &post->kernels[post->n_kernels++];
    const json_t *json = json_array_get(kernels, i);
    char at[JSON_POINTER_SIZE], entries_at[JSON_POINTER_SIZE];
    json_t *entries;
    json_pointer_index(at, sizeof at, "/kernels", i);
    if (!json_only_members(json, at, members, error) || !kernel_name_read(json, at, kernel, error) ||
        !json_get_array(json, at, "entries", JSON_REQUIRED, &entries, error))
      return false;
    json_pointer_member(entries_at, sizeof entries_at, at, "entries");
    if (json_array_size(entries) == 0)
      return error_at(error, entries_at, "\"entries\" is empty; leave the kernel out");
    kernel->entries = entries;
    kernel->n_entries = json_array_size(entries);
    total += kernel->n_entries;
    if (total > IMPORT_ENTRIES_MAX)
      return error_at(error, entries_at, "more than %d entries; import them in parts", IMPORT_ENTRIES_MAX);
  }
  return true;
}

static bool head_read(const json_t *json, struct import_post *post, struct error *error) {
  static const char *const members[] = {"format", "environment", "tag", "kernels", NULL};
  json_t *environment, *kernels;
  const struct cache_format *format;
  post->tag = "default";
  if (!json_only_members(json, "", members, error) ||
      !json_get_string(json, "", "format", JSON_REQUIRED, &post->format, error) ||
      !json_get_object(json, "", "environment", JSON_REQUIRED, &environment, error) ||
      !json_get_string(json, "", "tag", JSON_NOT_NULL, &post->tag, error) ||
      !json_get_array(json, "", "kernels", JSON_REQUIRED, &kernels, error))
    return false;
  if (!cache_format_find(post->format, &format, error))
    return error_pointer_prefix(error, "/format");
  if (!environment_parse(environment, &post->environment, error))
    return error_pointer_prefix(error, "/environment");
  if (!*post->tag || strlen(post->tag) > IMPORT_TAG_MAX)
    return error_at(error, "/tag", "a tag has 1 to %d bytes", IMPORT_TAG_MAX);
  return kernels_read(kernels, post, error);
}

bool import_post_parse(const json_t *json, struct import_post *ret, struct error *error) {
  cleanup_import_post struct import_post post = {0};
  if (!head_read(json, &post, error))
    return false;
  *ret = post;
  post = (struct import_post){0};
  return true;
}

/* An object of plain values, as it will stand in releases. */
static bool flat_read(const json_t *object, const char *at, char **ret_text, struct error *error) {
  const char *name;
  json_t *value;
  if (json_object_size(object) > IMPORT_MEMBERS_MAX)
    return error_at(error, at, "more than %d members", IMPORT_MEMBERS_MAX);
  json_object_foreach ((json_t *)object, name, value) {
    char value_at[JSON_POINTER_SIZE];
    if (json_is_object(value) || json_is_array(value))
      return error_at(error, json_pointer_member(value_at, sizeof value_at, at, name),
                      "\"%.64s\" must be a string, a number, true, false or null", name);
  }
  cleanup_free char *text = json_canonical(object);
  if (strlen(text) > IMPORT_TEXT_MAX)
    return error_at(error, at, "%zu bytes; at most %d are allowed", strlen(text), IMPORT_TEXT_MAX);
  *ret_text = TAKE(text);
  return true;
}

static bool ms_read(const json_t *array, const char *at, struct import_row *row, struct error *error) {
  size_t n = json_array_size(array);
  if (n != 0 && n != 1 && n != IMPORT_MS_MAX)
    return error_at(error, at, "%zu milliseconds; there are none, the median, or the median and two quantiles", n);
  for (size_t i = 0; i < n; i++) {
    char number_at[JSON_POINTER_SIZE];
    double ms = json_number_value(json_array_get(array, i));
    if (!isfinite(ms) || ms <= 0)
      return error_at(error, json_pointer_index(number_at, sizeof number_at, at, i), "milliseconds are above 0");
    row->ms[row->n_ms++] = ms;
  }
  return true;
}

static bool config_read(const json_t *config, const char *at, struct import_row *row, struct error *error) {
  if (json_object_size(config) == 0)
    return error_at(error, at, "the config is empty; leave the entry out");
  return flat_read(config, at, &row->config, error);
}

/* What a release adds itself would be said twice. */
static bool provenance_read(const json_t *provenance, const char *at, struct import_row *row, struct error *error) {
  static const char *const added[] = {"origin", "format", "build", "kernel_key", "build_key"};
  for (size_t i = 0; i < ARRAY_LENGTH(added); i++) {
    char member_at[JSON_POINTER_SIZE];
    if (json_object_get(provenance, added[i]))
      return error_at(error, json_pointer_member(member_at, sizeof member_at, at, added[i]),
                      "\"%s\" is not the table's to say; name the member otherwise", added[i]);
  }
  return flat_read(provenance, at, &row->provenance, error);
}

static bool entry_read(const json_t *json, const char *at, const struct import_kernel *kernel, struct import_row *row,
                       struct error *error) {
  static const char *const members[] = {"key", "config", "ms", "provenance", NULL};
  char member_at[JSON_POINTER_SIZE];
  json_t *key_json, *config, *ms = NULL, *provenance = NULL;
  cleanup_key struct key key = {0};
  cleanup_json json_t *none = json_object();
  if (!json_only_members(json, at, members, error) ||
      !json_get_object(json, at, "key", JSON_REQUIRED, &key_json, error) ||
      !json_get_object(json, at, "config", JSON_REQUIRED, &config, error) ||
      !json_get_array(json, at, "ms", JSON_NOT_NULL, &ms, error) ||
      !json_get_object(json, at, "provenance", JSON_NOT_NULL, &provenance, error))
    return false;
  if (!key_parse(key_json, (const char *const *)kernel->kernel->key_names, kernel->kernel->n_key_names, &key, error))
    return error_pointer_prefix(error, json_pointer_member(member_at, sizeof member_at, at, "key"));
  row->key = key_to_text(&key);
  row->key_digest = key_digest(&key);
  return config_read(config, json_pointer_member(member_at, sizeof member_at, at, "config"), row, error) &&
         ms_read(ms, json_pointer_member(member_at, sizeof member_at, at, "ms"), row, error) &&
         provenance_read(provenance ? provenance : none,
                         json_pointer_member(member_at, sizeof member_at, at, "provenance"), row, error);
}

static void entry_pointer(size_t kernel, size_t entry, char at[JSON_POINTER_SIZE]) {
  snprintf(at, JSON_POINTER_SIZE, "/kernels/%zu/entries/%zu", kernel, entry);
}

static int rows_compare(const void *a, const void *b) {
  const struct import_row *left = a, *right = b;
  int order = memcmp(left->kernel.bytes, right->kernel.bytes, DIGEST_SIZE);
  return order ? order : memcmp(left->key_digest.bytes, right->key_digest.bytes, DIGEST_SIZE);
}

static bool rows_are_distinct(const struct import_post *post, struct error *error) {
  for (size_t i = 1; i < post->n_rows; i++) {
    const struct import_row *one = &post->rows[i - 1], *other = &post->rows[i];
    char at[JSON_POINTER_SIZE];
    if (rows_compare(one, other) != 0)
      continue;
    bool is_first = one->kernel_index < other->kernel_index ||
                    (one->kernel_index == other->kernel_index && one->entry_index < other->entry_index);
    const struct import_row *first = is_first ? one : other, *second = is_first ? other : one;
    entry_pointer(second->kernel_index, second->entry_index, at);
    return error_at(error, at, "entry %zu of kernel %zu has this key too; keep one of the two", first->entry_index,
                    first->kernel_index);
  }
  return true;
}

bool import_post_read(struct import_post *post, struct error *error) {
  size_t total = 0;
  for (size_t i = 0; i < post->n_kernels; i++)
    total += post->kernels[i].n_entries;
  post->rows = xcalloc(total, sizeof *post->rows);
  for (size_t i = 0; i < post->n_kernels; i++) {
    const struct import_kernel *kernel = &post->kernels[i];
    for (size_t j = 0; j < kernel->n_entries; j++) {
      struct import_row *row = &post->rows[post->n_rows++];
      char at[JSON_POINTER_SIZE];
      entry_pointer(i, j, at);
      row->kernel = kernel->hash;
      row->kernel_index = i;
      row->entry_index = j;
      if (!entry_read(json_array_get(kernel->entries, j), at, kernel, row, error))
        return false;
    }
  }
  qsort(post->rows, post->n_rows, sizeof *post->rows, rows_compare);
  return rows_are_distinct(post, error);
}
