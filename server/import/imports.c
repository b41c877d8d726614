/* SQL of imports and images. Memory and threads: as the header says. */
#include "server/import/imports.h"

#include "server/db/values.h"

/* Rows of one statement: a second's work at most, far below the statement's time limit. */
#define ROWS_AT_ONCE 10000

/* In the order of their hashes, so that two imports of the same kernels cannot deadlock. */
static const struct statement kernels_statement = {
    "import_kernels", "INSERT INTO kernels (hash, name, language, manifest, made_by, made_by_id)"
                      " SELECT DISTINCT ON (hash) hash, name, 'external', manifest::json, $4, $5::bigint"
                      " FROM unnest($1::bytea[], $2::text[], $3::text[]) AS k(hash, name, manifest)"
                      " WHERE NOT EXISTS (SELECT FROM kernels known WHERE known.hash = k.hash)"
                      " ORDER BY hash ON CONFLICT (hash) DO NOTHING"};

static bool kernels_store(struct db *db, const struct import_post *post, const struct author *author,
                          struct error *error) {
  struct db_array hashes, names, manifests;
  db_array_init(&hashes);
  db_array_init(&names);
  db_array_init(&manifests);
  for (size_t i = 0; i < post->n_kernels; i++) {
    const struct import_kernel *kernel = &post->kernels[i];
    if (!kernel->is_new)
      continue;
    cleanup_free char *manifest = json_dumps(kernel->kernel->json, JSON_COMPACT | JSON_ENSURE_ASCII);
    ALWAYS(manifest != NULL);
    db_array_digest(&hashes, &kernel->hash);
    db_array_text(&names, kernel->kernel->name);
    db_array_text(&manifests, manifest);
  }
  struct db_parameters parameters = {0};
  db_text(&parameters, db_array_finish(&hashes));
  db_text(&parameters, db_array_finish(&names));
  db_text(&parameters, db_array_finish(&manifests));
  db_author(&parameters, author);
  bool ok = hashes.n == 0 || db_run(db, &kernels_statement, &parameters, NULL, error);
  db_array_release(&hashes);
  db_array_release(&names);
  db_array_release(&manifests);
  return ok;
}

static const struct statement store_statement = {
    "imports_store",
    "WITH stored AS (INSERT INTO imports AS i (kernel, key_digest, key, environment_digest, environment, tag, config, "
    "ms,"
    "  provenance, format, imported_by, imported_by_id)"
    "  SELECT kernel, key_digest, key::json, $6::bytea, $7::json, $8, config::json, ms::double precision[],"
    "   provenance::json, $9, $10, $12::bigint FROM unnest($1::bytea[], $2::bytea[], $3::text[], $4::text[], "
    "$5::text[], "
    "$11::text[])"
    "   WITH ORDINALITY AS r(kernel, key_digest, key, config, ms, provenance, n) ORDER BY n"
    "  ON CONFLICT (kernel, key_digest, environment_digest, tag) DO UPDATE SET key = excluded.key,"
    "   config = excluded.config, ms = excluded.ms, provenance = excluded.provenance, format = excluded.format,"
    "   imported_by = excluded.imported_by, imported_by_id = excluded.imported_by_id, imported_at = now()"
    "   WHERE (i.config::text, i.ms, i.provenance::text, i.format)"
    "    IS DISTINCT FROM (excluded.config::text, excluded.ms, excluded.provenance::text, excluded.format)"
    "  RETURNING i.xmax = 0 AS is_new)"
    " SELECT count(*) FILTER (WHERE is_new) AS added, count(*) FILTER (WHERE NOT is_new) AS changed FROM stored"};

/* {0.2031,0.201,0.208} */
static void ms_format(const struct import_row *row, char *text, size_t size) {
  char number[FLOAT_TEXT_SIZE];
  size_t used = (size_t)snprintf(text, size, "{");
  for (size_t i = 0; i < row->n_ms; i++)
    used += (size_t)snprintf(text + used, size - used, "%s%s", i ? "," : "", float_format(row->ms[i], number));
  snprintf(text + used, size - used, "}");
}

enum { KERNEL, KEY_DIGEST, KEY, CONFIG, MS, PROVENANCE, COLUMNS };

static void row_add(struct db_array *columns, const struct import_row *row) {
  char ms[IMPORT_MS_MAX * FLOAT_TEXT_SIZE + 3];
  ms_format(row, ms, sizeof ms);
  db_array_digest(&columns[KERNEL], &row->kernel);
  db_array_digest(&columns[KEY_DIGEST], &row->key_digest);
  db_array_text(&columns[KEY], row->key);
  db_array_text(&columns[CONFIG], row->config);
  db_array_text(&columns[MS], ms);
  db_array_text(&columns[PROVENANCE], row->provenance);
}

static bool rows_store(struct db *db, const struct import_post *post, size_t first, size_t n,
                       const struct author *author, struct import_counts *counts, struct error *error) {
  struct digest digest = environment_digest(&post->environment);
  cleanup_json json_t *environment = environment_to_json(&post->environment);
  cleanup_free char *environment_text = json_canonical(environment);
  struct db_array columns[COLUMNS];
  struct db_parameters parameters = {0};
  cleanup_rows struct db_rows *rows = NULL;
  for (size_t i = 0; i < COLUMNS; i++)
    db_array_init(&columns[i]);
  for (size_t i = 0; i < n; i++)
    row_add(columns, &post->rows[first + i]);
  for (size_t i = 0; i < PROVENANCE; i++)
    db_text(&parameters, db_array_finish(&columns[i]));
  db_digest(&parameters, &digest);
  db_text(&parameters, environment_text);
  db_text(&parameters, post->tag);
  db_text(&parameters, post->format);
  db_text(&parameters, author->name);
  db_text(&parameters, db_array_finish(&columns[PROVENANCE]));
  db_author_id(&parameters, author);
  bool ok = db_run(db, &store_statement, &parameters, &rows, error);
  for (size_t i = 0; i < COLUMNS; i++)
    db_array_release(&columns[i]);
  if (!ok)
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
    ok = rows_store(db, post, first, left < ROWS_AT_ONCE ? left : ROWS_AT_ONCE, author, counts, error);
  }
  if (!ok || (!counts->added && !counts->changed))
    return ok;
  json_t *detail = json_pack("{s:o, s:s, s:I, s:I}", "environment", environment_to_json(&post->environment), "tag",
                             post->tag, "added", (json_int_t)counts->added, "changed", (json_int_t)counts->changed);
  return audit_note(db, author, AUDIT_IMPORT, post->format, detail, error);
}

bool imports_store(struct db *db, const struct import_post *post, const struct author *author,
                   struct import_counts *ret_counts, struct error *error) {
  struct import_counts counts = {0};
  if (!db_begin(db, error))
    return false;
  if (!all_store(db, post, author, &counts, error)) {
    db_rollback(db);
    return false;
  }
  if (!db_commit(db, error))
    return false;
  *ret_counts = counts;
  return true;
}

static const struct statement list_statement = {
    "imports_list",
    "SELECT i.id, jsonb_build_object('import', i.id::text, 'kernel', 'sha256:' || encode(i.kernel, 'hex'),"
    "  'name', k.name, 'tag', i.tag, 'format', i.format, " SQL_BY(
        "i", "imported_by") ", 'imported_at',"
                            "  " SQL_TIME("i.imported_at") ") AS item, i.key, i.environment, i.config, to_json(i.ms) "
                                                           "AS ms, i.provenance"
                                                           " FROM imports i JOIN kernels k ON k.hash = i.kernel"
                                                           " WHERE i.id > $1::bigint AND ($3::bytea IS NULL OR "
                                                           "i.kernel = $3) AND ($4::text IS "
                                                           "NULL OR i.format = $4)"
                                                           "  AND ($5::text IS NULL OR i.tag = $5) ORDER BY i.id LIMIT "
                                                           "$2::bigint + 1"};

bool imports_list(struct db *db, const struct imports_filter *filter, json_t **ret_items, int64_t *ret_next,
                  struct error *error) {
  static const char *const texts[] = {"key", "environment", "config", "ms", "provenance"};
  struct db_parameters parameters = {0};
  cleanup_rows struct db_rows *rows = NULL;
  db_integer(&parameters, filter->after);
  db_integer(&parameters, filter->limit);
  if (filter->kernel)
    db_digest(&parameters, filter->kernel);
  else
    db_text(&parameters, NULL);
  db_text(&parameters, filter->format);
  db_text(&parameters, filter->tag);
  if (!db_run(db, &list_statement, &parameters, &rows, error))
    return false;
  int n = db_count(rows) > filter->limit ? (int)filter->limit : db_count(rows);
  *ret_items = json_array();
  for (int row = 0; row < n; row++) {
    json_t *item = db_get_json(rows, row, "item");
    for (size_t i = 0; i < ARRAY_LENGTH(texts); i++)
      ALWAYS(json_object_set_new(item, texts[i], db_get_json(rows, row, texts[i])) == 0);
    ALWAYS(json_array_append_new(*ret_items, item) == 0);
  }
  *ret_next = db_count(rows) > filter->limit ? db_get_integer(rows, n - 1, "id") : 0;
  return true;
}

bool image_store(struct db *db, const struct digest *digest, const char *text, const struct author *author,
                 bool *ret_is_new, struct error *error) {
  static const struct statement insert = {
      "image_insert", "INSERT INTO images (digest, identity, put_by, put_by_id)"
                      " VALUES ($1::bytea, $2::json, $3, $4::bigint) ON CONFLICT (digest) DO NOTHING"};
  struct db_parameters parameters = {0};
  cleanup_rows struct db_rows *rows = NULL;
  db_digest(&parameters, digest);
  db_text(&parameters, text);
  db_author(&parameters, author);
  if (!db_begin(db, error))
    return false;
  bool ok = db_run(db, &insert, &parameters, &rows, error);
  *ret_is_new = ok && db_affected(rows) == 1;
  ok = ok && (!*ret_is_new || audit_note_digest(db, author, AUDIT_PUT_IMAGE, digest, NULL, error));
  return db_end(db, ok, error);
}

bool image_load(struct db *db, const struct digest *digest, char **ret_text, struct error *error) {
  static const struct statement select = {"image_select", "SELECT identity FROM images WHERE digest = $1::bytea"};
  struct db_parameters parameters = {0};
  cleanup_rows struct db_rows *rows = NULL;
  db_digest(&parameters, digest);
  if (!db_run(db, &select, &parameters, &rows, error))
    return false;
  *ret_text = db_count(rows) ? xstrdup(db_get(rows, 0, "identity")) : NULL;
  return true;
}
