/* Imports and images in the database. Memory and threads: as the header says. */
#include "server/import/imports.h"

#include "server/db/db_record.h"
#include "server/db/values.h"
#include "server/import/import.sql.h"
#include "server/records.h"

/* Rows of one statement: a second's work at most, far below the statement's time limit. */
#define ROWS_AT_ONCE 10000

struct import_item {
  struct digest kernel;
  char *name, *tag, *format, *imported_by, *imported_at;
  int64_t id, imported_by_id;
  json_t *key, *environment, *config, *provenance;
  struct numbers ms;
};
static const struct field item_fields[] = {
    {"import", FIELD_ID, offsetof(struct import_item, id), FIELD_ANSWER, .column = "id"},
    {"kernel", FIELD_DIGEST, offsetof(struct import_item, kernel), FIELD_ANSWER},
    {"name", FIELD_TEXT, offsetof(struct import_item, name), FIELD_ANSWER},
    {"key", FIELD_JSON, offsetof(struct import_item, key), FIELD_ANSWER,
     .schema = "{\"$ref\": \"#/components/schemas/Key\"}"},
    {"environment", FIELD_JSON, offsetof(struct import_item, environment), FIELD_ANSWER,
     .schema = "{\"$ref\": \"#/components/schemas/Environment\"}"},
    {"tag", FIELD_TEXT, offsetof(struct import_item, tag), FIELD_ANSWER},
    {"config", FIELD_JSON, offsetof(struct import_item, config), FIELD_ANSWER,
     .schema = "{\"$ref\": \"#/components/schemas/Flat\"}"},
    {"ms", FIELD_NUMBERS, offsetof(struct import_item, ms), FIELD_ANSWER},
    {"provenance", FIELD_JSON, offsetof(struct import_item, provenance), FIELD_ANSWER,
     .schema = "{\"$ref\": \"#/components/schemas/Flat\"}"},
    {"format", FIELD_TEXT, offsetof(struct import_item, format), FIELD_ANSWER},
    {"imported_by", FIELD_TEXT, offsetof(struct import_item, imported_by), FIELD_ANSWER},
    {"imported_by_id", FIELD_ID, offsetof(struct import_item, imported_by_id), FIELD_ANSWER,
     .schema = SCHEMA_BY_ID},
    {"imported_at", FIELD_TIME, offsetof(struct import_item, imported_at), FIELD_ANSWER},
};
const struct record import_item_record = RECORD("ImportItem", struct import_item, item_fields);

static bool kernels_store(struct db *db, const struct import_post *post,
                          const struct author *author, struct error *error) {
  struct db_array hashes, names, manifests;
  db_array_init(&hashes);
  db_array_init(&names);
  db_array_init(&manifests);
  for (size_t i = 0; i < post->kernels.n; i++) {
    const struct import_kernel *kernel = import_kernel_at(post, i);
    if (!kernel->manifest)
      continue;
    cleanup_free char *manifest =
        json_dumps(kernel->kernel->json, JSON_COMPACT | JSON_ENSURE_ASCII);
    ALWAYS(manifest != NULL);
    db_array_digest(&hashes, &kernel->hash);
    db_array_text(&names, kernel->kernel->name);
    db_array_text(&manifests, manifest);
  }

  bool has_any = hashes.n > 0;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_array(&parameters, "hash", &hashes);
  bind_array(&parameters, "name", &names);
  bind_array(&parameters, "manifest", &manifests);
  bind_author(&parameters, author);
  return !has_any || db_run(db, &sql_import_kernels, &parameters, NULL, error);
}

static bool rows_store(struct db *db, const struct import_post *post, size_t first, size_t n,
                       const struct author *author, struct import_counts *counts,
                       struct error *error) {
  struct digest digest = environment_digest(&post->environment);
  cleanup_json json_t *environment = environment_to_json(&post->environment);
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_records(&parameters, &import_row_record, post->rows + first, n);
  bind_digest(&parameters, "environment_digest", &digest);
  bind_taken(&parameters, "environment", json_canonical(environment), false);
  bind_text(&parameters, "tag", post->tag);
  bind_text(&parameters, "format", post->format);
  bind_author(&parameters, author);
  if (!db_run(db, &sql_imports_store, &parameters, &rows, error))
    return false;

  int64_t added = db_get_integer(rows, 0, "added"), changed = db_get_integer(rows, 0, "changed");
  counts->added += added;
  counts->changed += changed;
  counts->known += (int64_t)n - added - changed;
  return true;
}

static bool all_store(struct db *db, const struct import_post *post, const struct author *author,
                      struct import_counts *counts, struct error *error) {
  bool ok = kernels_store(db, post, author, error);
  for (size_t first = 0; ok && first < post->n_rows; first += ROWS_AT_ONCE) {
    size_t left = post->n_rows - first;
    ok = rows_store(db, post, first, left < ROWS_AT_ONCE ? left : ROWS_AT_ONCE, author, counts,
                    error);
  }
  if (!ok || (!counts->added && !counts->changed))
    return ok;

  json_t *detail = json_pack("{s:o, s:s, s:I, s:I}", "environment",
                             environment_to_json(&post->environment), "tag", post->tag, "added",
                             (json_int_t)counts->added, "changed", (json_int_t)counts->changed);
  return audit_note(db, author, AUDIT_IMPORT, post->format, detail, error);
}

bool imports_store(struct db *db, const struct import_post *post, const struct author *author,
                   struct import_counts *ret_counts, struct error *error) {
  struct import_counts counts = {0};
  if (!db_begin(db, error) || !db_end(db, all_store(db, post, author, &counts, error), error))
    return false;
  *ret_counts = counts;
  return true;
}

bool imports_list(struct db *db, const struct imports_filter *filter, json_t **ret_items,
                  int64_t *ret_next, struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_digest(&parameters, "kernel", filter->kernel);
  bind_text(&parameters, "format", filter->format);
  bind_text(&parameters, "tag", filter->tag);
  bind_integer(&parameters, "after", filter->after);
  bind_integer(&parameters, "limit", filter->limit);
  if (!db_run(db, &sql_imports_list, &parameters, &rows, error))
    return false;
  db_page_to_json(rows, &import_item_record, filter->limit, ret_items, ret_next);
  return true;
}

bool image_store(struct db *db, const struct digest *digest, const char *text,
                 const struct author *author, bool *ret_is_new, struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_digest(&parameters, "digest", digest);
  bind_text(&parameters, "identity", text);
  bind_author(&parameters, author);
  if (!db_begin(db, error))
    return false;

  bool ok = db_run(db, &sql_image_insert, &parameters, &rows, error);
  *ret_is_new = ok && db_affected(rows) == 1;
  ok = ok && (!*ret_is_new || audit_note_digest(db, author, AUDIT_PUT_IMAGE, digest, NULL, error));
  return db_end(db, ok, error);
}

bool image_load(struct db *db, const struct digest *digest, char **ret_text, struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_digest(&parameters, "digest", digest);
  if (!db_run(db, &sql_image_select, &parameters, &rows, error))
    return false;
  *ret_text = db_count(rows) ? xstrdup(db_get(rows, 0, "identity")) : NULL;
  return true;
}
