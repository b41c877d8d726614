/* SQL of kernels and builds. */
#include "server/kernel/kernels.h"

#include "server/db/values.h"
#include "server/kernel/code_signatures.h"

#define SQL_ORIGIN(row)                                                                                                \
  "json_build_object('created_at', " SQL_TIME(row ".created_at") ", " SQL_BY(row, "made_by") ") AS origin"

static void digests_parameter(struct db_parameters *parameters, struct db_array *array, const struct digest *digests,
                              size_t n) {
  db_array_init(array);
  for (size_t i = 0; i < n; i++)
    db_array_digest(array, &digests[i]);
  db_text(parameters, db_array_finish(array));
}

/* Runs `insert` and, when it made a row, `files` for what it refers to, and notes it, in one transaction. */
static bool insert_with_files(struct db *db, const struct statement *insert, const struct db_parameters *values,
                              const struct statement *files, const struct db_parameters *file_values,
                              const struct audit_row *note, bool *ret_is_new, struct error *error) {
  if (!db_begin(db, error))
    return false;
  cleanup_rows struct db_rows *rows = NULL;
  bool is_good = db_run(db, insert, values, &rows, error);
  *ret_is_new = is_good && db_affected(rows) == 1;
  if (is_good && *ret_is_new)
    is_good = db_run(db, files, file_values, NULL, error) && audit_add(db, note, 1, error);
  return db_end(db, is_good, error);
}

struct digest *kernel_files(const struct kernel *kernel, size_t *ret_n) {
  struct digest *digests = xcalloc(kernel->n_sources + 1, sizeof *digests);
  size_t n = 0;
  for (size_t i = 0; i <= kernel->n_sources; i++) {
    const struct source *source = i < kernel->n_sources ? &kernel->sources[i] : &kernel->reference;
    bool is_known = !source->path;
    for (size_t j = 0; j < n; j++)
      is_known |= digest_equal(&digests[j], &source->digest);
    if (!is_known)
      digests[n++] = source->digest;
  }
  *ret_n = n;
  return digests;
}

bool kernel_store(struct db *db, const struct kernel *kernel, const struct author *author, bool *ret_is_new,
                  struct error *error) {
  static const struct statement insert = {"kernel_insert",
                                          "INSERT INTO kernels (hash, name, language, manifest, made_by, made_by_id)"
                                          " VALUES ($1::bytea, $2, $3, $4::json, $5, $6::bigint) "
                                          "ON CONFLICT (hash) DO NOTHING"};
  static const struct statement files = {
      "kernel_files_insert", "INSERT INTO kernel_files (kernel, digest) SELECT $1::bytea, unnest($2::bytea[])"};
  size_t n;
  struct db_array array;
  struct db_parameters values = {0}, file_values = {0};
  cleanup_free struct digest *digests = kernel_files(kernel, &n);
  cleanup_free char *manifest = json_dumps(kernel->json, JSON_COMPACT | JSON_ENSURE_ASCII);
  ALWAYS(manifest != NULL);
  db_digest(&values, &kernel->hash);
  db_text(&values, kernel->name);
  db_text(&values, language_name(kernel->language));
  db_text(&values, manifest);
  db_author(&values, author);
  db_digest(&file_values, &kernel->hash);
  digests_parameter(&file_values, &array, digests, n);
  char hash[DIGEST_TEXT_SIZE];
  cleanup_json json_t *detail = json_pack("{s:s}", "name", kernel->name);
  const struct audit_row note = {author, AUDIT_REGISTER, digest_format(&kernel->hash, hash), detail};
  bool is_good = insert_with_files(db, &insert, &values, &files, &file_values, &note, ret_is_new, error);
  db_array_release(&array);
  return is_good;
}

bool build_store(struct db *db, const struct build *build, const struct author *author, bool *ret_is_new,
                 struct error *error) {
  static const struct statement insert = {
      "build_insert", "INSERT INTO builds (digest, kernel, arch, triton, torch, rocm, variants, "
                      "build, head, made_by, made_by_id) VALUES ($1::bytea, $2::bytea, $3, $4, $5, $6, $7::integer, "
                      "$8::json, $9::json, $10, $11::bigint) ON CONFLICT (digest) DO NOTHING"};
  static const struct statement files = {
      "build_files_insert", "INSERT INTO build_files (build, digest) SELECT $1::bytea, unnest($2::bytea[])"};
  struct db_array array;
  struct db_parameters values = {0}, file_values = {0};
  cleanup_json json_t *head = build_head(build);
  cleanup_free char *text = json_canonical(build->json), *head_text = json_canonical(head);
  db_digest(&values, &build->digest);
  db_digest(&values, &build->kernel);
  db_text(&values, build->arch);
  db_text(&values, build->triton);
  db_text(&values, build->torch);
  db_text(&values, build->rocm);
  db_integer(&values, (int64_t)build->n_variants);
  db_text(&values, text);
  db_text(&values, head_text);
  db_author(&values, author);
  db_digest(&file_values, &build->digest);
  digests_parameter(&file_values, &array, build->objects, build->n_objects);
  char digest[DIGEST_TEXT_SIZE];
  cleanup_json json_t *detail =
      json_pack("{s:o, s:s}", "kernel", json_digest_text(&build->kernel), "arch", build->arch);
  const struct audit_row note = {author, AUDIT_PUT_BUILD, digest_format(&build->digest, digest), detail};
  bool is_good = insert_with_files(db, &insert, &values, &files, &file_values, &note, ret_is_new, error);
  db_array_release(&array);
  return is_good;
}

bool kernel_load(struct db *db, const struct digest *hash, json_t **ret_manifest, json_t **ret_origin,
                 struct error *error) {
  static const struct statement select = {"kernel_select",
                                          "SELECT manifest, " SQL_ORIGIN("k") " FROM kernels k WHERE hash = $1::bytea"};
  cleanup_rows struct db_rows *rows = NULL;
  struct db_parameters parameters = {0};
  db_digest(&parameters, hash);
  if (!db_run(db, &select, &parameters, &rows, error))
    return false;
  *ret_manifest = db_count(rows) ? db_get_json(rows, 0, "manifest") : NULL;
  if (ret_origin)
    *ret_origin = db_count(rows) ? db_get_json(rows, 0, "origin") : NULL;
  return true;
}

/* Before migration 0005 the text was not the canonical one that the digest covers. */
static char *build_text(const struct db_rows *rows, const struct digest *digest) {
  const char *text = db_get(rows, 0, "build");
  struct digest actual = digest_of(text, strlen(text));
  if (digest_equal(&actual, digest))
    return xstrdup(text);
  cleanup_json json_t *build = db_get_json(rows, 0, "build");
  return json_canonical(build);
}

bool build_load(struct db *db, const struct digest *kernel, const struct digest *digest, char **ret_text,
                struct error *error) {
  static const struct statement select = {"build_select",
                                          "SELECT build FROM builds WHERE kernel = $1::bytea AND digest = $2::bytea"};
  cleanup_rows struct db_rows *rows = NULL;
  struct db_parameters parameters = {0};
  db_digest(&parameters, kernel);
  db_digest(&parameters, digest);
  if (!db_run(db, &select, &parameters, &rows, error))
    return false;
  *ret_text = db_count(rows) ? build_text(rows, digest) : NULL;
  return true;
}

/* The first `limit` rows become items through `item`; one more row says that there are more. */
static void page_make(const struct db_rows *rows, int64_t limit, json_t *(*item)(const struct db_rows *, int),
                      json_t **ret_items, json_t **ret_next) {
  int n = db_count(rows) > limit ? (int)limit : db_count(rows);
  *ret_items = json_array();
  for (int row = 0; row < n; row++)
    json_array_append_new(*ret_items, item(rows, row));
  *ret_next = db_count(rows) > limit ? json_string(db_get(rows, n - 1, "id")) : json_null();
}

static json_t *digest_item(const struct db_rows *rows, int row, const char *column) {
  struct digest digest = db_get_digest(rows, row, column);
  return json_digest_text(&digest);
}

static json_t *origin_add(json_t *item, const struct db_rows *rows, int row) {
  cleanup_json json_t *origin = db_get_json(rows, row, "origin");
  ALWAYS(item != NULL && json_object_update(item, origin) == 0);
  return item;
}

static json_t *kernel_item(const struct db_rows *rows, int row) {
  json_t *item =
      json_pack("{s:o, s:s, s:s, s:o}", "kernel", digest_item(rows, row, "hash"), "name", db_get(rows, row, "name"),
                "language", db_get(rows, row, "language"), "signatures", db_get_json(rows, row, "signatures"));
  return origin_add(item, rows, row);
}

bool kernels_list(struct db *db, const char *name, int64_t after, int64_t limit, json_t **ret_items, json_t **ret_next,
                  struct error *error) {
  static const struct statement list = {
      "kernels_list",
      "SELECT id, hash, name, language, " SQL_ORIGIN("k") ", " SQL_SIGNATURES(
          "k.hash") " AS signatures FROM kernels k "
                    "WHERE ($1::text IS NULL OR name = $1) AND id > $2::bigint ORDER BY id LIMIT $3::bigint + 1"};
  cleanup_rows struct db_rows *rows = NULL;
  struct db_parameters parameters = {0};
  db_text(&parameters, name);
  db_integer(&parameters, after);
  db_integer(&parameters, limit);
  if (!db_run(db, &list, &parameters, &rows, error))
    return false;
  page_make(rows, limit, kernel_item, ret_items, ret_next);
  return true;
}

static json_t *build_item(const struct db_rows *rows, int row) {
  json_t *toolchain = db_get_json(rows, row, "toolchain");
  json_t *item =
      json_pack("{s:o, s:o, s:s, s:I, s:o}", "build", digest_item(rows, row, "digest"), "toolchain", toolchain, "arch",
                db_get(rows, row, "arch"), "variants", (json_int_t)db_get_integer(rows, row, "variants"), "signatures",
                db_get_json(rows, row, "signatures"));
  return origin_add(item, rows, row);
}

bool builds_list(struct db *db, const struct digest *kernel, int64_t after, int64_t limit, json_t **ret_items,
                 json_t **ret_next, struct error *error) {
  static const struct statement list = {
      "builds_list",
      "SELECT id, digest, head -> 'toolchain' AS toolchain, arch, variants, " SQL_ORIGIN("b") ", " SQL_SIGNATURES(
          "b.digest") " AS signatures FROM builds b WHERE kernel = $1::bytea AND id > $2::bigint "
                      "ORDER BY id LIMIT $3::bigint + 1"};
  cleanup_rows struct db_rows *rows = NULL;
  struct db_parameters parameters = {0};
  db_digest(&parameters, kernel);
  db_integer(&parameters, after);
  db_integer(&parameters, limit);
  if (!db_run(db, &list, &parameters, &rows, error))
    return false;
  page_make(rows, limit, build_item, ret_items, ret_next);
  return true;
}
