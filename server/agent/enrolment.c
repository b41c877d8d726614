/* Reading and storing enrolments. Memory and threads: as the header says. */
#include "server/agent/enrolment.h"

#include "server/agent/agents.h"
#include "server/agent/enrolment.sql.h"
#include "server/cache/environments.h"
#include "server/db/db_record.h"
#include "server/records.h"

void enrolment_release(struct enrolment *enrolment) {
  struct enrolment_device *devices = enrolment->devices.all;
  for (size_t i = 0; i < enrolment->devices.n; i++)
    environment_release(&devices[i].environment);
  record_release(&enrolment_record, enrolment);
}

static bool device_check(struct enrolment *enrolment, size_t i, struct error *error) {
  struct enrolment_device *devices = enrolment->devices.all, *device = &devices[i];
  if (!environment_parse(device->environment_json, &device->environment, error) ||
      !environment_is_full(&device->environment, error))
    return error_pointer_prefix(error, "/environment");
  device->environment_digest = environment_digest(&device->environment);

  for (size_t other = 0; other < i; other++)
    if (strcmp(devices[other].device, device->device) == 0)
      return error_set(error, "device \"%.60s\" is listed twice", device->device);
  return true;
}

static bool enrolment_read(const json_t *json, struct enrolment *enrolment, struct error *error) {
  char at[JSON_POINTER_SIZE];
  if (!record_read(&enrolment_record, json, "", enrolment, error))
    return false;

  if (enrolment->agent && !agent_id_is_valid(enrolment->agent))
    return error_at(
        error, "/agent",
        "\"agent\" must be the 32 hexadecimal digits of an earlier enrolment; leave it out for "
        "a new one");
  for (size_t i = 0; i < enrolment->trusted_keys.n; i++) {
    struct digest id;
    if (!digest_parse(enrolment->trusted_keys.all[i], &id))
      return error_at(error, json_pointer_index(at, sizeof at, "/trusted_keys", i),
                      "a trusted key is named by its id, \"sha256:\" and 64 hexadecimal digits");
  }
  for (size_t i = 0; i < enrolment->devices.n; i++)
    if (!device_check(enrolment, i, error))
      return error_pointer_prefix(error, json_pointer_index(at, sizeof at, "/devices", i));
  return true;
}

bool enrolment_parse(const json_t *json, struct enrolment *ret, struct error *error) {
  struct enrolment enrolment;
  record_init(&enrolment_record, &enrolment);
  if (enrolment_read(json, &enrolment, error)) {
    *ret = enrolment;
    return true;
  }
  enrolment_release(&enrolment);
  return false;
}

static const struct field terms_fields[] = {
    {"is_live", FIELD_BOOL, offsetof(struct enrolment_terms, is_live)},
    {"uses_left", FIELD_INTEGER, offsetof(struct enrolment_terms, uses_left)},
    {"token_name", FIELD_TEXT, offsetof(struct enrolment_terms, name)},
    {"agent_name", FIELD_TEXT, offsetof(struct enrolment_terms, agent_name)},
    {"environment", FIELD_JSON, offsetof(struct enrolment_terms, environment)},
};
static const struct record terms_record = RECORD(NULL, struct enrolment_terms, terms_fields);

void enrolment_terms_release(struct enrolment_terms *terms) {
  record_release(&terms_record, terms);
}

bool enrolment_terms_lock(struct db *db, int64_t token, struct enrolment_terms *ret,
                          struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_integer(&parameters, "token", token);
  if (!db_run(db, &sql_enrolment_terms_lock, &parameters, &rows, error))
    return false;
  ALWAYS(db_count(rows) == 1); /* tokens are never removed */
  db_read(rows, 0, &terms_record, ret);
  return true;
}

bool enrolment_use(struct db *db, int64_t token, struct error *error) {
  cleanup_parameters struct db_parameters parameters = {0};
  bind_integer(&parameters, "token", token);
  return db_run(db, &sql_enrolment_use, &parameters, NULL, error);
}

bool enrolment_known(struct db *db, int64_t token, const char *boot, char **ret_agent,
                     struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_integer(&parameters, "token", token);
  bind_text(&parameters, "boot", boot);
  if (!db_run(db, &sql_enrolment_known, &parameters, &rows, error))
    return false;
  *ret_agent = db_count(rows) ? xstrdup(db_get(rows, 0, "id")) : NULL;
  return true;
}

static const struct field before_fields[] = {
    {"agent_is_live", FIELD_BOOL, offsetof(struct agent_before, is_live)},
    {"name", FIELD_TEXT, offsetof(struct agent_before, name)},
    {"machine", FIELD_TEXT, offsetof(struct agent_before, machine)},
    {"last_seen", FIELD_TIME, offsetof(struct agent_before, last_seen)},
    {"token_id", FIELD_ID, offsetof(struct agent_before, owner)},
    {"is_enrol", FIELD_BOOL, offsetof(struct agent_before, owner_is_enrol)},
    {"is_of_certificate", FIELD_BOOL, offsetof(struct agent_before, is_of_certificate)},
    {"terms", FIELD_RECORD, offsetof(struct agent_before, terms), .of = &terms_record},
};
static const struct record before_record = RECORD(NULL, struct agent_before, before_fields);

void agent_before_release(struct agent_before *before) { record_release(&before_record, before); }

bool agent_before_lock(struct db *db, const char *agent, int64_t live_ms, struct agent_before *ret,
                       struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_text(&parameters, "agent", agent);
  bind_integer(&parameters, "live_ms", live_ms);
  if (!db_run(db, &sql_agent_before_lock, &parameters, &rows, error))
    return false;

  *ret = (struct agent_before){0};
  if (db_count(rows))
    db_read(rows, 0, &before_record, ret);
  ret->is_known = db_count(rows) > 0;
  return true;
}

bool agent_enrol(struct db *db, const char *agent, const struct enrolment *enrolment, int64_t token,
                 char **ret_boot_before, struct error *error) {
  size_t n = enrolment->devices.n;
  cleanup_free const struct environment **environments = xcalloc(n, sizeof(struct environment *));
  for (size_t i = 0; i < n; i++)
    environments[i] = &enrolment_device(enrolment, i)->environment;

  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0}, devices = {0};
  bind_text(&parameters, "id", agent);
  bind_integer(&parameters, "token", token);
  bind_record(&parameters, &enrolment_record, enrolment);
  bind_text(&devices, "agent", agent);
  bind_records(&devices, &enrolment_device_record, enrolment->devices.all, n);
  if (!environments_store(db, environments, n, error) ||
      !db_run(db, &sql_agent_enrol, &parameters, &rows, error) ||
      !db_run(db, &sql_agent_devices, &devices, NULL, error))
    return false;
  *ret_boot_before = xstrdup(db_get(rows, 0, "boot_before"));
  return true;
}

bool agent_note_refused(struct db *db, const char *agent, const char *machine, const char *name,
                        struct error *error) {
  cleanup_parameters struct db_parameters parameters = {0};
  bind_text(&parameters, "agent", agent);
  bind_text(&parameters, "machine", machine);
  bind_text(&parameters, "name", name);
  return db_run(db, &sql_agent_note_refused, &parameters, NULL, error);
}

bool agent_token_make(struct db *db, const char *agent, int64_t replaces, int64_t life_ms,
                      const struct author *author, char ret_token[TOKEN_TEXT_SIZE],
                      struct error *error) {
  cleanup_parameters struct db_parameters parameters = {0};
  bind_text(&parameters, "agent", agent);
  bind_integer(&parameters, "replaces", replaces);
  bind_author(&parameters, author);
  if (!db_run(db, &sql_agent_tokens_end, &parameters, NULL, error))
    return false;

  char random[9];
  random_hex(random, 4);
  cleanup_free char *name = xasprintf("agent-%s-%s", agent, random);
  struct token_request request;
  token_request_init(&request);
  request.name = name;
  request.role = "agent";
  request.expires_in_ms = life_ms ? life_ms : FIELD_NONE;
  request.agent = agent;
  request.replaces = replaces ? replaces : FIELD_NONE;
  return tokens_insert(db, &request, author, ret_token, error) ||
         error_become(error, error->kind == ERROR_CONFLICT ? ERROR_INTERNAL
                                                           : error->kind); /* the name is random */
}

bool agent_token_rotate_in(struct db *db, int64_t token, int64_t *ret_ms, struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_integer(&parameters, "token", token);
  if (!db_run(db, &sql_agent_token_rotate_in, &parameters, &rows, error))
    return false;
  *ret_ms = db_count(rows) ? db_get_integer(rows, 0, "ms") : -1;
  return true;
}
