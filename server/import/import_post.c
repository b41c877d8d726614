/* Reads the body of POST /v1/imports. */
#include "server/import/imports.h"

#include "common/cache/format.h"
#include "server/records.h"

#define RECORD_OF struct import_entry
static const struct field entry_fields[] = {
    MEMBER(JSON, key, FIELD_REQUIRED | FIELD_OBJECT, .schema = SCHEMA("Key")),
    MEMBER(JSON, config, FIELD_REQUIRED | FIELD_OBJECT, .schema = SCHEMA("Flat")),
    MEMBER(NUMBERS, ms, FIELD_NOT_NULL, .most = IMPORT_MS_MAX,
           .schema = "{\"type\": \"array\", \"maxItems\": 3, \"items\": {\"type\": \"number\", "
                     "\"exclusiveMinimum\": 0}}",
           .about = "none, the median, or the median and the 20th and 80th percentile"),
    MEMBER(JSON, provenance, FIELD_NOT_NULL | FIELD_OBJECT, .schema = SCHEMA("Flat")),
};
#undef RECORD_OF
const struct record import_entry_record =
    RECORD("ImportedEntry", struct import_entry, entry_fields);

#define RECORD_OF struct import_kernel
static const struct field kernel_fields[] = {
    MEMBER(JSON, manifest, FIELD_NOT_NULL, .schema = SCHEMA("Manifest")),
    MEMBER_AS("kernel", DIGEST, hash, FIELD_NOT_NULL),
    MEMBER(RECORDS, entries, FIELD_REQUIRED, .least = 1, .most = IMPORT_ENTRIES_MAX,
           .of = &import_entry_record),
};
#undef RECORD_OF
static const struct record import_kernel_record = RECORD(NULL, struct import_kernel, kernel_fields);

#define RECORD_OF struct import_post
static const struct field post_fields[] = {
    MEMBER(TEXT, format, FIELD_REQUIRED),
    MEMBER_AS("environment", JSON, environment_json, FIELD_REQUIRED,
              .schema = SCHEMA("Environment")),
    MEMBER(TEXT, tag, FIELD_NOT_NULL, .least = 1, .most = IMPORT_TAG_MAX),
    MEMBER(RECORDS, kernels, FIELD_REQUIRED, .least = 1, .of = &import_kernel_record),
};
#undef RECORD_OF
const struct record import_post_record = RECORD("ImportRequest", struct import_post, post_fields);

#define RECORD_OF struct import_row
static const struct field row_fields[] = {
    MEMBER(DIGEST, kernel), MEMBER(DIGEST, key_digest), MEMBER(TEXT, key),
    MEMBER(TEXT, config),   MEMBER(TEXT, provenance),   MEMBER(TEXT, ms),
};
#undef RECORD_OF
const struct record import_row_record = RECORD(NULL, struct import_row, row_fields);

void import_post_release(struct import_post *post) {
  environment_release(&post->environment);
  for (size_t i = 0; i < post->kernels.n; i++) {
    struct import_kernel *kernel = import_kernel_at(post, i);
    if (kernel->kernel)
      kernel_free(kernel->kernel);
  }

  for (size_t i = 0; i < post->n_rows; i++)
    record_release(&import_row_record, &post->rows[i]);
  free(post->rows);
  record_release(&import_post_record, post);
}

/* Reads which kernel the entries are for: a manifest, which must be external, or the hash of a
 * registered kernel. */
static bool kernel_name_read(struct import_kernel *kernel, const char *at, struct error *error) {
  char manifest_at[JSON_POINTER_SIZE], kernel_at[JSON_POINTER_SIZE];
  json_pointer_member(manifest_at, sizeof manifest_at, at, "manifest");
  json_pointer_member(kernel_at, sizeof kernel_at, at, "kernel");
  bool has_hash = !digest_is_none(&kernel->hash);
  if (!kernel->manifest)
    return has_hash || error_at(error, kernel_at, "member \"kernel\" is missing");
  if (has_hash)
    return error_at(error, at,
                    "\"kernel\" and \"manifest\" name the kernel twice; keep one of them");

  if (!kernel_parse(kernel->manifest, &kernel->kernel, error))
    return error_pointer_prefix(error, manifest_at);

  kernel->hash = kernel->kernel->hash;
  return kernel->kernel->language == LANGUAGE_EXTERNAL ||
         error_at(error, manifest_at,
                  "an import registers only \"external\" kernels; register "
                  "\"%s\" by POST /v1/kernels and name it by its hash",
                  kernel->kernel->name);
}

bool import_post_parse(const json_t *json, struct import_post *ret, struct error *error) {
  cleanup_import_post struct import_post post = {.tag = xstrdup("default")};
  const struct cache_format *format;
  if (!record_read(&import_post_record, json, "", &post, error))
    return false;
  if (!cache_format_find(post.format, &format, error))
    return error_pointer_prefix(error, "/format");
  if (!environment_parse(post.environment_json, &post.environment, error))
    return error_pointer_prefix(error, "/environment");

  size_t total = 0;
  for (size_t i = 0; i < post.kernels.n; i++) {
    struct import_kernel *kernel = import_kernel_at(&post, i);
    char at[JSON_POINTER_SIZE], entries_at[JSON_POINTER_SIZE];
    json_pointer_index(at, sizeof at, "/kernels", i);
    if (!kernel_name_read(kernel, at, error))
      return false;
    total += kernel->entries.n;
    if (total > IMPORT_ENTRIES_MAX)
      return error_at(error, json_pointer_member(entries_at, sizeof entries_at, at, "entries"),
                      "more than %d entries; import them in parts", IMPORT_ENTRIES_MAX);
  }

  *ret = post;
  post = (struct import_post){0};
  return true;
}

/* The canonical text of an object whose members are plain values: releases can have no others. */
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

/* {0.2031,0.201,0.208} */
static bool ms_read(const struct numbers *ms, const char *at, char **ret_text,
                    struct error *error) {
  if (ms->n != 0 && ms->n != 1 && ms->n != IMPORT_MS_MAX)
    return error_at(error, at,
                    "%zu milliseconds; state none, the median, or the median and two quantiles",
                    ms->n);

  char text[IMPORT_MS_MAX * FLOAT_TEXT_SIZE + 3], number[FLOAT_TEXT_SIZE];
  size_t used = (size_t)snprintf(text, sizeof text, "{");
  for (size_t i = 0; i < ms->n; i++) {
    char number_at[JSON_POINTER_SIZE];
    if (!(ms->all[i] > 0))
      return error_at(error, json_pointer_index(number_at, sizeof number_at, at, i),
                      "it must be above 0 ms");
    used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", i ? "," : "",
                             float_format(ms->all[i], number));
  }
  snprintf(text + used, sizeof text - used, "}");
  *ret_text = xstrdup(text);
  return true;
}

static bool entry_read(const struct import_entry *entry, const char *at,
                       const struct kernel *kernel, struct import_row *row, struct error *error) {
  static const char *const added[] = {"origin", "format", "build", "kernel_key", "build_key"};
  char member_at[JSON_POINTER_SIZE], provenance_at[JSON_POINTER_SIZE];
  cleanup_key struct key key = {0};
  json_pointer_member(member_at, sizeof member_at, at, "key");
  if (!key_parse(entry->key, (const char *const *)kernel->key_names, kernel->n_key_names, &key,
                 error))
    return error_pointer_prefix(error, member_at);
  row->key = key_to_text(&key);
  row->key_digest = key_digest(&key);

  json_pointer_member(member_at, sizeof member_at, at, "config");
  if (json_object_size(entry->config) == 0)
    return error_at(error, member_at, "the config is empty; leave the entry out");
  if (!flat_read(entry->config, member_at, &row->config, error) ||
      !ms_read(&entry->ms, json_pointer_member(member_at, sizeof member_at, at, "ms"), &row->ms,
               error))
    return false;

  json_pointer_member(provenance_at, sizeof provenance_at, at, "provenance");
  for (size_t i = 0; i < ARRAY_LENGTH(added); i++)
    if (json_object_get(entry->provenance, added[i]))
      return error_at(error,
                      json_pointer_member(member_at, sizeof member_at, provenance_at, added[i]),
                      "releases add \"%s\" themselves; give the member another name", added[i]);
  if (entry->provenance)
    return flat_read(entry->provenance, provenance_at, &row->provenance, error);
  row->provenance = xstrdup("{}");
  return true;
}

/* By (kernel, key_digest); equal rows in the order of the post. */
static int rows_compare(const void *a, const void *b) {
  const struct import_row *left = a, *right = b;
  int order = memcmp(&left->kernel, &right->kernel, sizeof left->kernel);
  if (!order)
    order = memcmp(&left->key_digest, &right->key_digest, sizeof left->key_digest);
  if (!order)
    order = (left->kernel_index > right->kernel_index) - (left->kernel_index < right->kernel_index);
  return order
             ? order
             : (left->entry_index > right->entry_index) - (left->entry_index < right->entry_index);
}

bool import_post_read(struct import_post *post, struct error *error) {
  char at[JSON_POINTER_SIZE];
  size_t total = 0;
  for (size_t i = 0; i < post->kernels.n; i++)
    total += import_kernel_at(post, i)->entries.n;

  post->rows = xcalloc(total, sizeof *post->rows);
  for (size_t i = 0; i < post->kernels.n; i++) {
    const struct import_kernel *kernel = import_kernel_at(post, i);
    const struct import_entry *entries = kernel->entries.all;
    for (size_t j = 0; j < kernel->entries.n; j++) {
      struct import_row *row = &post->rows[post->n_rows++];
      row->kernel = kernel->hash;
      row->kernel_index = i;
      row->entry_index = j;
      snprintf(at, sizeof at, "/kernels/%zu/entries/%zu", i, j);
      if (!entry_read(&entries[j], at, kernel->kernel, row, error))
        return false;
    }
  }

  qsort(post->rows, post->n_rows, sizeof *post->rows, rows_compare);
  for (size_t i = 1; i < post->n_rows; i++) {
    const struct import_row *first = &post->rows[i - 1], *second = &post->rows[i];
    if (!digest_equal(&first->kernel, &second->kernel) ||
        !digest_equal(&first->key_digest, &second->key_digest))
      continue;
    snprintf(at, sizeof at, "/kernels/%zu/entries/%zu", second->kernel_index, second->entry_index);
    return error_at(error, at, "entry %zu of kernel %zu has this key too; keep one of the two",
                    first->entry_index, first->kernel_index);
  }

  return true;
}
