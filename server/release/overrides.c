/* Adding, listing and removing overrides.
 *
 * Memory: what a handler makes lives as long as it runs. Threads: database workers. */
#include "server/release/overrides.h"

#include "common/base/log.h"
#include "server/audit/audit.h"
#include "server/db/db_record.h"
#include "server/http/request.h"
#include "server/records.h"
#include "server/release/override.sql.h"

#define OVERRIDES_MAX 10000

bool overrides_load(struct db *db, const struct environment *environment, const char *tag,
                    struct overrides *ret, struct error *error) {
  cleanup_rows struct db_rows *rows = db_query(db, &sql_overrides_load, error, BIND("tag", tag));
  if (!rows)
    return false;

  *ret = (struct overrides){.all = xcalloc((size_t)db_count(rows) + 1, sizeof *ret->all)};
  for (int row = 0; row < db_count(rows); row++) {
    struct override *it = &ret->all[ret->n];
    int64_t until_us, last_ms;
    struct error bad;
    cleanup_json json_t *json =
        json_pack("{s:s, s:s, s:o, s:o, s:s*, s:o, s:s}", "kind", db_get(rows, row, "kind"),
                  "kernel", db_get(rows, row, "kernel"), "key", db_get_json(rows, row, "key"),
                  "environment", db_get_json(rows, row, "environment"), "tag",
                  db_is_null(rows, row, "tag") ? NULL : db_get(rows, row, "tag"), "config",
                  db_get_json(rows, row, "config"), "reason", db_get(rows, row, "reason"));
    if (!override_parse(json, it, &until_us, &last_ms, &bad)) {
      log_error("release: override %s is no longer valid: %s", db_get(rows, row, "id"),
                bad.message);
      continue;
    }
    it->id = db_get_integer(rows, row, "id");
    it->made_by = xstrdup(db_get(rows, row, "made_by"));
    ret->n++;
  }

  overrides_select(ret, environment, tag);
  return true;
}

/* The texts of the column `name`, borrowed from the rows. */
static const char **names_of(const struct db_rows *rows) {
  const char **names = xcalloc((size_t)db_count(rows) + 1, sizeof *names);
  for (int row = 0; row < db_count(rows); row++)
    names[row] = db_get(rows, row, "name");
  return names;
}

/* Refuses an override that would change nothing: of a kernel, or of a known kernel's
 * parameter, that the server does not know. A kernel without jobs and imports may have any
 * parameters. */
static bool override_names_something(struct db *db, const struct override *wanted,
                                     struct error *error) {
  static const char anyway[] = "; to state it nevertheless, send \"unknown\": true (--unknown)";
  cleanup_rows struct db_rows *rows = NULL;
  struct digest digest;
  const char *name;
  json_t *value;
  const struct digest *hash = digest_parse(wanted->kernel, &digest) ? &digest : NULL;
  cleanup_rows struct db_rows *subject = db_query(
      db, &sql_override_subject, error, BIND("kernel", wanted->kernel), BIND("digest", hash));
  if (!subject)
    return false;

  if (!db_get_bool(subject, 0, "is_known")) {
    if (!(rows = db_query(db, &sql_override_kernel_names, error)))
      return false;
    cleanup_free const char **names = names_of(rows);
    error_at(error, "/kernel", "no kernel \"%.200s\" is known%s", wanted->kernel, anyway);
    error_suggest(error, wanted->kernel, names, (size_t)db_count(rows));
    return false;
  }

  if (!(rows = db_query(db, &sql_override_parameters, error, BIND("kernel", wanted->kernel),
                        BIND("digest", hash))))
    return false;
  cleanup_free const char **names = names_of(rows);
  size_t n = (size_t)db_count(rows);
  json_object_foreach (wanted->config, name, value) {
    size_t i = 0;
    while (i < n && !string_equal(name, names[i]))
      i++;
    if (n == 0 || i < n)
      continue;
    char at[JSON_POINTER_SIZE];
    error_at(error, json_pointer_member(at, sizeof at, "/config", name),
             "no space of \"%.200s\" has a parameter \"%.64s\"%s", wanted->kernel, name, anyway);
    error_suggest(error, name, names, n);
    return false;
  }
  return true;
}

/* Stores an override, with its row of the audit log. *ret_rows has no row: there are too many. */
static bool override_add(struct db *db, const struct override *wanted, int64_t until_us,
                         int64_t last_ms, const struct author *author, struct db_rows **ret_rows,
                         struct error *error) {
  cleanup_json json_t *environment = environment_to_json(&wanted->environment);
  cleanup_rows struct db_rows *rows = NULL;
  bool ok =
      db_begin(db, error) &&
      (rows = db_query(
           db, &sql_override_add, error, BIND("kind", override_kind_names[wanted->kind]),
           BIND("kernel", wanted->kernel), BIND("key", wanted->key_text),
           parameter_taken("environment", json_canonical(environment)), BIND("tag", wanted->tag),
           parameter_taken("config", json_canonical(wanted->config)),
           BIND("reason", wanted->reason), BIND("until_us", until_us), BIND("last_ms", last_ms),
           BIND("most", OVERRIDES_MAX), BIND_AUTHOR(author)));
  if (ok && db_count(rows))
    ok = audit_note(db, author, AUDIT_OVERRIDE, db_get(rows, 0, "id"),
                    json_pack("{s:s, s:s, s:O*, s:O, s:s*, s:O, s:s, s:s*}", "kind",
                              override_kind_names[wanted->kind], "kernel", wanted->kernel, "key",
                              wanted->key, "environment", environment, "tag", wanted->tag, "config",
                              wanted->config, "reason", wanted->reason, "until", wanted->until),
                    error);
  if (!db_end(db, ok, error))
    return false;
  *ret_rows = TAKE(rows);
  return true;
}

bool route_override_post(struct worker *worker, struct request *request, struct error *error) {
  cleanup_override struct override wanted = {0};
  cleanup_rows struct db_rows *rows = NULL;
  int64_t until_us, last_ms;
  record_init(&override_request_record, &wanted);
  if (!override_parse(request->json, &wanted, &until_us, &last_ms, error) ||
      (!wanted.unknown && !override_names_something(worker->db, &wanted, error)) ||
      !override_add(worker->db, &wanted, until_us, last_ms, request_author(request), &rows, error))
    return false;
  if (!db_count(rows))
    return error_of(error, ERROR_CONFLICT,
                    "there are %d overrides; remove those that are not needed any more",
                    OVERRIDES_MAX);

  log_info("release: override id=%s kind=%s kernel=%s by=%s", db_get(rows, 0, "id"),
           override_kind_names[wanted.kind], wanted.kernel, request->token_name);
  return request_answer_json(
      request, db_get_bool(rows, 0, "created") ? 201 : 200,
      json_pack("{s:s, s:s?}", "id", db_get(rows, 0, "id"), "until",
                db_is_null(rows, 0, "until") ? NULL : db_get(rows, 0, "until")));
}

struct override_item {
  int64_t id, made_by_id;
  enum override_kind kind;
  json_t *key, *environment, *config;
  char *kernel, *tag, *reason, *until, *made_by, *made_at;
  bool ended;
};
#define RECORD_OF struct override_item
static const struct field item_fields[] = {
    MEMBER(ID, id),
    MEMBER(ENUM, kind, .names = override_kind_names),
    MEMBER(TEXT, kernel),
    MEMBER(JSON, key, .schema = SCHEMA("Key")),
    MEMBER(JSON, environment, .schema = SCHEMA_ENVIRONMENT),
    MEMBER(TEXT, tag),
    MEMBER(JSON, config, .schema = SCHEMA("Config")),
    MEMBER(TEXT, reason),
    MEMBER(TIME, until),
    MEMBER(BOOL, ended, .about = "its time is over"),
    MEMBER(TEXT, made_by),
    MEMBER(ID, made_by_id, .schema = SCHEMA_BY_ID),
    MEMBER(TIME, made_at),
};
const struct record override_item_record = ANSWER("OverrideItem", item_fields);
#undef RECORD_OF

bool route_override_list(struct worker *worker, struct request *request, struct error *error) {
  static const struct list list = {.statement = &sql_overrides_list,
                                   .record = &override_item_record};
  return answer_page_by(worker, request, &list, error);
}

bool route_override_delete(struct worker *worker, struct request *request, struct error *error) {
  static const struct removal removal = {"override", "/v1/overrides", &sql_override_remove,
                                         AUDIT_END_OVERRIDE};
  return answer_removal(worker, request, &removal, error);
}
