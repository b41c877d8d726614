/* Imported tables and the identities of images: storing and reading them, and their routes. */
#include "server/import/imports.h"

#include "common/base/log.h"
#include "common/cache/identity.h"
#include "server/audit/audit.h"
#include "server/db/db_record.h"
#include "server/http/request.h"
#include "server/import/import.sql.h"
#include "server/kernel/kernels.h"
#include "server/records.h"

/* Rows of one statement: at most a second of work, far below the time limit of statements. */
#define ROWS_AT_ONCE 10000

struct import_counts {
  int64_t added, changed, known;
};

struct import_item {
  struct digest kernel;
  char *name, *tag, *format, *imported_by, *imported_at;
  int64_t id, imported_by_id;
  json_t *key, *environment, *config, *provenance;
  struct numbers ms;
};
#define RECORD_OF struct import_item
static const struct field item_fields[] = {
    MEMBER_AS("import", ID, id, .column = "id"),
    MEMBER(DIGEST, kernel),
    MEMBER(TEXT, name),
    MEMBER(JSON, key, .schema = SCHEMA("Key")),
    MEMBER(JSON, environment, .schema = SCHEMA("Environment")),
    MEMBER(TEXT, tag),
    MEMBER(JSON, config, .schema = SCHEMA("Flat")),
    MEMBER(NUMBERS, ms),
    MEMBER(JSON, provenance, .schema = SCHEMA("Flat")),
    MEMBER(TEXT, format),
    MEMBER(TEXT, imported_by),
    MEMBER(ID, imported_by_id, .schema = SCHEMA_BY_ID),
    MEMBER(TIME, imported_at),
};
const struct record import_item_record = ANSWER("ImportItem", item_fields);
#undef RECORD_OF

/* Stores the kernels whose manifests are in the post. */
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

  if (hashes.n == 0)
    return true;
  return db_execute(db, &sql_import_kernels, error, parameter_array("hash", &hashes),
                    parameter_array("name", &names), parameter_array("manifest", &manifests),
                    BIND_AUTHOR(author));
}

/* Stores the post in the caller's transaction. A row replaces the one of the same kernel, key,
 * environment and tag, unless they are equal. */
static bool all_store(struct db *db, const struct import_post *post, const struct author *author,
                      struct import_counts *ret_counts, struct error *error) {
  struct digest digest = environment_digest(&post->environment);
  cleanup_json json_t *environment = environment_to_json(&post->environment);
  struct import_counts counts = {.known = (int64_t)post->n_rows};
  if (!kernels_store(db, post, author, error))
    return false;

  for (size_t first = 0; first < post->n_rows; first += ROWS_AT_ONCE) {
    size_t left = post->n_rows - first;
    cleanup_rows struct db_rows *rows =
        db_query(db, &sql_imports_store, error,
                 BIND_RECORDS(&import_row_record, post->rows + first,
                              left < ROWS_AT_ONCE ? left : ROWS_AT_ONCE),
                 BIND("environment_digest", &digest),
                 parameter_taken("environment", json_canonical(environment)),
                 BIND("tag", post->tag), BIND("format", post->format), BIND_AUTHOR(author));
    if (!rows)
      return false;
    counts.added += db_get_integer(rows, 0, "added");
    counts.changed += db_get_integer(rows, 0, "changed");
  }

  counts.known -= counts.added + counts.changed;
  *ret_counts = counts;
  if (!counts.added && !counts.changed)
    return true;
  json_t *detail =
      json_pack("{s:O, s:s, s:I, s:I}", "environment", environment, "tag", post->tag, "added",
                (json_int_t)counts.added, "changed", (json_int_t)counts.changed);
  return audit_note(db, author, AUDIT_IMPORT, post->format, detail, error);
}

/* Reads the kernels that the post names by hash. */
static bool kernels_find(struct worker *worker, struct import_post *import, struct error *error) {
  size_t n = import->kernels.n;
  cleanup_free struct digest *hashes = xcalloc(n, sizeof *hashes);
  cleanup_free json_t **manifests = xcalloc(n, sizeof(json_t *));
  for (size_t i = 0; i < n; i++)
    hashes[i] = import_kernel_at(import, i)->hash;
  if (!kernels_load(worker->db, hashes, n, manifests, error))
    return false;

  bool are_known = true;
  for (size_t i = 0; i < n; i++) {
    struct import_kernel *kernel = import_kernel_at(import, i);
    cleanup_json json_t *manifest = manifests[i];
    if (!are_known || kernel->kernel)
      continue;

    /* A stored manifest was checked when it was registered. */
    are_known = manifest && kernel_parse(manifest, &kernel->kernel, error);
    if (manifest && !are_known)
      log_error("import: a stored manifest is not valid any more: %s", error->message);
    if (!are_known) {
      char at[JSON_POINTER_SIZE], text[DIGEST_TEXT_SIZE];
      snprintf(at, sizeof at, "/kernels/%zu/kernel", i);
      error_at(error, at,
               "kernel %s is not registered; POST /v1/kernels first (wavetune kernel push)",
               digest_format(&kernel->hash, text));
    }
  }
  return are_known;
}

struct answer_kernel {
  struct digest hash;
  const char *name;
  int64_t entries;
};
#define RECORD_OF struct answer_kernel
static const struct field answer_kernel_fields[] = {
    MEMBER_AS("kernel", DIGEST, hash),
    MEMBER(TEXT, name),
    MEMBER(INTEGER, entries),
};
static const struct record answer_kernel_record = ANSWER(NULL, answer_kernel_fields);
#undef RECORD_OF

struct import_answer {
  struct records kernels;
  json_t *environment, *missing;
  const char *tag;
  struct import_counts counts;
};
#define RECORD_OF struct import_answer
static const struct field answer_fields[] = {
    MEMBER(RECORDS, kernels, .of = &answer_kernel_record),
    MEMBER(JSON, environment, .schema = SCHEMA("Environment")),
    MEMBER(JSON, missing, .schema = "{\"type\": \"array\", \"items\": {\"type\": \"string\"}}",
           .about = "members of a full environment that this one lacks"),
    MEMBER(TEXT, tag),
    MEMBER_AS("added", INTEGER, counts.added),
    MEMBER_AS("changed", INTEGER, counts.changed),
    MEMBER_AS("known", INTEGER, counts.known),
};
const struct record import_answer_record = ANSWER("ImportAnswer", answer_fields);
#undef RECORD_OF

static json_t *answer_make(const struct import_post *import, const struct import_counts *counts) {
  size_t n = import->kernels.n;
  cleanup_free struct answer_kernel *kernels = xcalloc(n, sizeof *kernels);
  for (size_t i = 0; i < n; i++) {
    const struct import_kernel *kernel = import_kernel_at(import, i);
    kernels[i] =
        (struct answer_kernel){kernel->hash, kernel->kernel->name, (int64_t)kernel->entries.n};
  }

  cleanup_json json_t *environment = environment_to_json(&import->environment),
                      *missing = environment_missing(&import->environment);
  const struct import_answer answer = {{n, kernels}, environment, missing, import->tag, *counts};
  return record_write(&import_answer_record, &answer);
}

bool route_import_post(struct worker *worker, struct request *request, struct error *error) {
  cleanup_import_post struct import_post import = {0};
  struct import_counts counts = {0};

  if (!import_post_parse(request->json, &import, error) || !kernels_find(worker, &import, error))
    return false;

  struct db *db = worker->db;
  if (!import_post_read(&import, error) || !db_begin(db, error) ||
      !db_end(db, all_store(db, &import, request_author(request), &counts, error), error))
    return false;

  if (counts.added || counts.changed)
    log_info("import: format=%s added=%lld changed=%lld known=%lld", import.format,
             (long long)counts.added, (long long)counts.changed, (long long)counts.known);
  return request_answer_json(request, counts.added ? 201 : 200, answer_make(&import, &counts));
}

bool route_import_list(struct worker *worker, struct request *request, struct error *error) {
  static const struct list list = {.statement = &sql_imports_list, .record = &import_item_record};
  const char *hash = request_query(request, "kernel");
  struct digest kernel;
  if (hash && !digest_parse(hash, &kernel))
    return error_set(error, "\"kernel\" is not \"sha256:\" and 64 lower-case hexadecimal digits");

  return answer_page_by(worker, request, &list, error, BIND("kernel", hash ? &kernel : NULL),
                        BIND("format", request_query(request, "format")),
                        BIND("tag", request_query(request, "tag")));
}

/* Stores an identity unless it is stored already. `text` is canonical JSON and has this digest. */
static bool image_store(struct db *db, const struct digest *digest, const char *text,
                        const struct author *author, bool *ret_is_new, struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  bool ok =
      db_begin(db, error) && (rows = db_query(db, &sql_image_insert, error, BIND("digest", digest),
                                              BIND("identity", text), BIND_AUTHOR(author)));
  *ret_is_new = ok && db_affected(rows) == 1;
  ok = ok && (!*ret_is_new || audit_note_digest(db, author, AUDIT_PUT_IMAGE, digest, NULL, error));
  return db_end(db, ok, error);
}

bool image_load(struct db *db, const struct digest *digest, char **ret_text, struct error *error) {
  cleanup_rows struct db_rows *rows =
      db_query(db, &sql_image_select, error, BIND("digest", digest));
  if (!rows)
    return false;
  *ret_text = db_count(rows) ? xstrdup(db_get(rows, 0, "identity")) : NULL;
  return true;
}

static bool digest_of_path(struct request *request, struct digest *ret_digest,
                           struct error *error) {
  if (digest_parse(request->segments[0], ret_digest))
    return true;
  return error_of(error, ERROR_MISSING, "there is no image \"%.80s\"", request->segments[0]);
}

bool route_image_put(struct worker *worker, struct request *request, struct error *error) {
  cleanup_identity struct identity *identity = NULL;
  struct digest digest;
  char text[DIGEST_TEXT_SIZE];
  bool is_new;

  if (!digest_of_path(request, &digest, error) || !identity_parse(request->json, &identity, error))
    return false;

  cleanup_free char *canonical = json_canonical(request->json);
  struct digest actual = digest_of(canonical, strlen(canonical));
  if (!digest_equal(&actual, &digest))
    return error_set(error, "the identity's digest is %s, not the path's %s",
                     digest_format(&actual, text), request->segments[0]);

  if (!image_store(worker->db, &digest, canonical, request_author(request), &is_new, error))
    return false;
  return request_answer_json(request, is_new ? 201 : 200,
                             json_pack("{s:o}", "image", json_digest_text(&digest)));
}

bool route_image_get(struct worker *worker, struct request *request, struct error *error) {
  struct digest digest;
  char *text;

  if (!digest_of_path(request, &digest, error) || !image_load(worker->db, &digest, &text, error))
    return false;
  if (!text)
    return error_of(error, ERROR_MISSING, "there is no image %s", request->segments[0]);
  return request_answer_cached(request, RESPONSE_IMMUTABLE, "application/json", text, strlen(text),
                               request->segments[0], NULL);
}
