/* Statements of environments. Memory and threads: as the header says. */
#include "server/cache/environments.h"

#include "server/cache/environments.sql.h"
#include "server/db/db_record.h"
#include "server/db/values.h"
#include "server/records.h"

/* As it is stored; `identity` is canonical JSON. */
struct stored_environment {
  struct digest digest, hardware_digest;
  char *identity;
};
static const struct field stored_fields[] = {
    {"digest", FIELD_DIGEST, offsetof(struct stored_environment, digest)},
    {"hardware_digest", FIELD_DIGEST, offsetof(struct stored_environment, hardware_digest)},
    {"identity", FIELD_TEXT, offsetof(struct stored_environment, identity)},
};
static const struct record stored_record = RECORD(NULL, struct stored_environment, stored_fields);

bool environments_store(struct db *db, const struct environment *const *environments, size_t n,
                        struct error *error) {
  struct stored_environment *stored = xcalloc(n, sizeof *stored);
  for (size_t i = 0; i < n; i++) {
    cleanup_json json_t *json = environment_to_json(environments[i]);
    stored[i] = (struct stored_environment){environment_digest(environments[i]),
                                            environment_hardware_digest(environments[i]),
                                            json_canonical(json)};
  }

  cleanup_parameters struct db_parameters parameters = {0};
  bind_records(&parameters, &stored_record, stored, n);
  db_records_free(&stored_record, stored, n);
  return db_run(db, &sql_environments_store, &parameters, NULL, error);
}

static const struct field known_fields[] = {
    {"digest", FIELD_DIGEST, offsetof(struct known_environment, digest)},
    {"hardware_digest", FIELD_DIGEST, offsetof(struct known_environment, hardware_digest)},
    {"agents", FIELD_INTEGER, offsetof(struct known_environment, agents)},
    {"devices", FIELD_INTEGER, offsetof(struct known_environment, devices)},
    {"wants_signatures", FIELD_BOOL, offsetof(struct known_environment, wants_signatures)},
    {"agent", FIELD_TEXT, offsetof(struct known_environment, agent)},
    {"agent_name", FIELD_TEXT, offsetof(struct known_environment, agent_name)},
};
static const struct record known_record = RECORD(NULL, struct known_environment, known_fields);

bool environments_known(struct db *db, int64_t live_ms, struct known_environments *ret,
                        struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_integer(&parameters, "live_ms", live_ms);
  if (!db_run(db, &sql_environments_known, &parameters, &rows, error))
    return false;

  struct known_environments known;
  known.all = db_read_all(rows, &known_record, &known.n);
  for (size_t i = 0; i < known.n; i++) {
    struct error bad;
    cleanup_json json_t *identity = db_get_json(rows, (int)i, "identity");
    ALWAYS(environment_parse(identity, &known.all[i].environment,
                             &bad)); /* it was when it was stored */
  }
  *ret = known;
  return true;
}

struct environment_item {
  json_t *environment;
  struct digest digest;
  int64_t agents;
  char *last_seen;
};
static const struct field item_fields[] = {
    {"environment", FIELD_JSON, offsetof(struct environment_item, environment),
     FIELD_ANSWER | FIELD_NOT_NULL, .schema = SCHEMA_ENVIRONMENT},
    {"digest", FIELD_DIGEST, offsetof(struct environment_item, digest),
     FIELD_ANSWER | FIELD_NOT_NULL},
    {"agents", FIELD_INTEGER, offsetof(struct environment_item, agents),
     FIELD_ANSWER | FIELD_NOT_NULL},
    {"last_seen", FIELD_TIME, offsetof(struct environment_item, last_seen), FIELD_ANSWER},
};
const struct record environment_item_record =
    RECORD("EnvironmentItem", struct environment_item, item_fields);

bool environments_list(struct db *db, int64_t live_ms, int64_t after, int64_t limit,
                       json_t **ret_items, int64_t *ret_next, struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_integer(&parameters, "live_ms", live_ms);
  bind_integer(&parameters, "after", after);
  bind_integer(&parameters, "limit", limit);
  if (!db_run(db, &sql_environments_list, &parameters, &rows, error))
    return false;

  *ret_items = db_rows_to_json(rows, &environment_item_record);
  *ret_next = db_count(rows) == limit ? db_get_integer(rows, db_count(rows) - 1, "id") : 0;
  return true;
}
