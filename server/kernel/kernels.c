/* Kernels and builds in the database. Memory and threads: as the header says. */
#include "server/kernel/kernels.h"

#include "server/db/db_record.h"
#include "server/db/values.h"
#include "server/kernel/kernel.sql.h"
#include "server/records.h"

#define SCHEMA_SIGNATURES                                                                          \
  "{\"type\": \"array\", \"items\": {\"$ref\": \"#/components/schemas/CodeSignature\"}}"
#define SCHEMA_MANIFEST "{\"$ref\": \"#/components/schemas/Manifest\"}"

/* A kernel or a build, of which each of the answers below has a part. */
struct stored_code {
  struct digest digest; /* the kernel's hash, or the build's digest */
  char *name, *language, *arch, *created_at, *made_by;
  int64_t variants, made_by_id;
  json_t *manifest, *toolchain, *signatures;
};

static const struct field kernel_fields[] = {
    {"kernel", FIELD_DIGEST, offsetof(struct stored_code, digest), FIELD_ANSWER, .column = "hash"},
    {"manifest", FIELD_JSON, offsetof(struct stored_code, manifest), FIELD_ANSWER,
     .schema = SCHEMA_MANIFEST},
    {"created_at", FIELD_TIME, offsetof(struct stored_code, created_at), FIELD_ANSWER},
    {"made_by", FIELD_TEXT, offsetof(struct stored_code, made_by), FIELD_ANSWER},
    {"made_by_id", FIELD_ID, offsetof(struct stored_code, made_by_id), FIELD_ANSWER,
     .schema = SCHEMA_BY_ID},
    {"signatures", FIELD_JSON, offsetof(struct stored_code, signatures), FIELD_ANSWER,
     .schema = SCHEMA_SIGNATURES},
};
const struct record kernel_record = RECORD("Kernel", struct stored_code, kernel_fields);

static const struct field kernel_item_fields[] = {
    {"kernel", FIELD_DIGEST, offsetof(struct stored_code, digest), FIELD_ANSWER, .column = "hash"},
    {"name", FIELD_TEXT, offsetof(struct stored_code, name), FIELD_ANSWER},
    {"language", FIELD_TEXT, offsetof(struct stored_code, language), FIELD_ANSWER},
    {"created_at", FIELD_TIME, offsetof(struct stored_code, created_at), FIELD_ANSWER},
    {"made_by", FIELD_TEXT, offsetof(struct stored_code, made_by), FIELD_ANSWER},
    {"made_by_id", FIELD_ID, offsetof(struct stored_code, made_by_id), FIELD_ANSWER,
     .schema = SCHEMA_BY_ID},
    {"signatures", FIELD_JSON, offsetof(struct stored_code, signatures), FIELD_ANSWER,
     .schema = SCHEMA_SIGNATURES},
};
const struct record kernel_item_record =
    RECORD("KernelItem", struct stored_code, kernel_item_fields);

static const struct field build_item_fields[] = {
    {"build", FIELD_DIGEST, offsetof(struct stored_code, digest), FIELD_ANSWER, .column = "digest"},
    {"toolchain", FIELD_JSON, offsetof(struct stored_code, toolchain), FIELD_ANSWER,
     .schema = "{\"type\": \"object\"}"},
    {"arch", FIELD_TEXT, offsetof(struct stored_code, arch), FIELD_ANSWER},
    {"variants", FIELD_INTEGER, offsetof(struct stored_code, variants), FIELD_ANSWER},
    {"created_at", FIELD_TIME, offsetof(struct stored_code, created_at), FIELD_ANSWER},
    {"made_by", FIELD_TEXT, offsetof(struct stored_code, made_by), FIELD_ANSWER},
    {"made_by_id", FIELD_ID, offsetof(struct stored_code, made_by_id), FIELD_ANSWER,
     .schema = SCHEMA_BY_ID},
    {"signatures", FIELD_JSON, offsetof(struct stored_code, signatures), FIELD_ANSWER,
     .schema = SCHEMA_SIGNATURES},
};
const struct record build_item_record = RECORD("BuildItem", struct stored_code, build_item_fields);

struct digest *kernel_files(const struct kernel *kernel, size_t *ret_n) {
  struct digest *digests = xcalloc(kernel->n_sources + 1, sizeof *digests);
  size_t n = 0;
  for (size_t i = 0; i <= kernel->n_sources; i++) {
    const struct source *source =
        i < kernel->n_sources ? &kernel->sources[i] : &kernel->reference.source;
    bool is_known = !source->path;
    for (size_t j = 0; j < n; j++)
      is_known |= digest_equal(&digests[j], &source->digest);
    if (!is_known)
      digests[n++] = source->digest;
  }
  *ret_n = n;
  return digests;
}

/* Inserts a kernel or a build with its files and notes it, in one transaction; nothing when it is
 * there. */
static bool code_store(struct db *db, const struct statement *insert,
                       const struct db_parameters *parameters, const struct audit_row *note,
                       bool *ret_is_new, struct error *error) {
  if (!db_begin(db, error))
    return false;

  cleanup_rows struct db_rows *rows = NULL;
  bool ok = db_run(db, insert, parameters, &rows, error);
  *ret_is_new = ok && db_get_integer(rows, 0, "made") == 1;
  if (*ret_is_new)
    ok = audit_add(db, note, 1, error);
  return db_end(db, ok, error);
}

bool kernel_store(struct db *db, const struct kernel *kernel, const struct author *author,
                  bool *ret_is_new, struct error *error) {
  size_t n;
  cleanup_free struct digest *files = kernel_files(kernel, &n);
  char *manifest = json_dumps(kernel->json, JSON_COMPACT | JSON_ENSURE_ASCII);
  ALWAYS(manifest != NULL);
  cleanup_parameters struct db_parameters parameters = {0};
  bind_digest(&parameters, "hash", &kernel->hash);
  bind_text(&parameters, "name", kernel->name);
  bind_text(&parameters, "language", language_name(kernel->language));
  bind_taken(&parameters, "manifest", manifest, false);
  bind_digests(&parameters, "files", files, n);
  bind_author(&parameters, author);

  char hash[DIGEST_TEXT_SIZE];
  cleanup_json json_t *detail = json_pack("{s:s}", "name", kernel->name);
  const struct audit_row note = {author, AUDIT_REGISTER, digest_format(&kernel->hash, hash),
                                 detail};
  return code_store(db, &sql_kernel_insert, &parameters, &note, ret_is_new, error);
}

bool build_store(struct db *db, const struct build *build, const struct author *author,
                 bool *ret_is_new, struct error *error) {
  cleanup_json json_t *head = build_head(build);
  cleanup_parameters struct db_parameters parameters = {0};
  bind_digest(&parameters, "digest", &build->digest);
  bind_digest(&parameters, "kernel", &build->kernel);
  bind_text(&parameters, "arch", build->arch);
  bind_text(&parameters, "triton", build->triton);
  bind_text(&parameters, "torch", build->torch);
  bind_text(&parameters, "rocm", build->rocm);
  bind_integer(&parameters, "variants", (int64_t)build->n_variants);
  bind_taken(&parameters, "build", json_canonical(build->json), false);
  bind_taken(&parameters, "head", json_canonical(head), false);
  bind_digests(&parameters, "files", build->objects, build->n_objects);
  bind_author(&parameters, author);

  char digest[DIGEST_TEXT_SIZE];
  cleanup_json json_t *detail =
      json_pack("{s:o, s:s}", "kernel", json_digest_text(&build->kernel), "arch", build->arch);
  const struct audit_row note = {author, AUDIT_PUT_BUILD, digest_format(&build->digest, digest),
                                 detail};
  return code_store(db, &sql_build_insert, &parameters, &note, ret_is_new, error);
}

bool kernel_load(struct db *db, const struct digest *hash, json_t **ret_manifest,
                 struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_digest(&parameters, "hash", hash);
  if (!db_run(db, &sql_kernel_manifest, &parameters, &rows, error))
    return false;
  *ret_manifest = db_count(rows) ? db_get_json(rows, 0, "manifest") : NULL;
  return true;
}

bool kernels_load(struct db *db, const struct digest *hashes, size_t n, json_t **ret_manifests,
                  struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_digests(&parameters, "hashes", hashes, n);
  if (!db_run(db, &sql_kernels_manifests, &parameters, &rows, error))
    return false;
  for (size_t i = 0; i < n; i++)
    ret_manifests[i] =
        db_is_null(rows, (int)i, "manifest") ? NULL : db_get_json(rows, (int)i, "manifest");
  return true;
}

bool kernel_read(struct db *db, const struct digest *hash, json_t **ret_answer,
                 struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_digest(&parameters, "hash", hash);
  if (!db_run(db, &sql_kernel_select, &parameters, &rows, error))
    return false;

  cleanup_json json_t *answers = db_rows_to_json(rows, &kernel_record);
  *ret_answer = json_incref(json_array_get(answers, 0));
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

bool build_load(struct db *db, const struct digest *kernel, const struct digest *digest,
                char **ret_text, struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_digest(&parameters, "kernel", kernel);
  bind_digest(&parameters, "digest", digest);
  if (!db_run(db, &sql_build_select, &parameters, &rows, error))
    return false;
  *ret_text = db_count(rows) ? build_text(rows, digest) : NULL;
  return true;
}

bool kernels_list(struct db *db, const char *name, int64_t after, int64_t limit, json_t **ret_items,
                  int64_t *ret_next, struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_text(&parameters, "name", name);
  bind_integer(&parameters, "after", after);
  bind_integer(&parameters, "limit", limit);
  if (!db_run(db, &sql_kernels_list, &parameters, &rows, error))
    return false;
  db_page_to_json(rows, &kernel_item_record, limit, ret_items, ret_next);
  return true;
}

bool builds_list(struct db *db, const struct digest *kernel, int64_t after, int64_t limit,
                 json_t **ret_items, int64_t *ret_next, struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_digest(&parameters, "kernel", kernel);
  bind_integer(&parameters, "after", after);
  bind_integer(&parameters, "limit", limit);
  if (!db_run(db, &sql_builds_list, &parameters, &rows, error))
    return false;
  db_page_to_json(rows, &build_item_record, limit, ret_items, ret_next);
  return true;
}
