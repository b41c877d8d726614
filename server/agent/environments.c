/* SQL of environments, agents and devices. Memory and threads: as the header says. */
#include "server/agent/environments.h"

#include "server/db/values.h"

/* What counts as an agent, and as a device of it, that could take work. $1 is live_ms. */
#define SQL_LIVE "(a.last_seen > now() - $1::bigint * interval '1 ms' AND a.drain_reason IS NULL)"
#define SQL_WORKS "(" SQL_LIVE " AND d.drain_reason IS NULL)"

static const struct statement environments_store_statement = {
    "environments_store", "INSERT INTO environments (digest, hardware_digest, identity)"
                          " SELECT digest, hardware_digest, identity::json"
                          " FROM unnest($1::bytea[], $2::bytea[], $3::text[]) AS e(digest, hardware_digest, identity)"
                          " WHERE NOT EXISTS (SELECT FROM environments known WHERE known.digest = e.digest)"
                          " ORDER BY digest ON CONFLICT (digest) DO NOTHING"};

bool environments_store(struct db *db, const struct environment *const *environments, size_t n, struct error *error) {
  struct db_array digests, hardware, identities;
  db_array_init(&digests);
  db_array_init(&hardware);
  db_array_init(&identities);
  for (size_t i = 0; i < n; i++) {
    struct digest digest = environment_digest(environments[i]);
    struct digest hardware_digest = environment_hardware_digest(environments[i]);
    cleanup_json json_t *json = environment_to_json(environments[i]);
    cleanup_free char *text = json_canonical(json);
    db_array_digest(&digests, &digest);
    db_array_digest(&hardware, &hardware_digest);
    db_array_text(&identities, text);
  }
  struct db_parameters parameters = {0};
  db_text(&parameters, db_array_finish(&digests));
  db_text(&parameters, db_array_finish(&hardware));
  db_text(&parameters, db_array_finish(&identities));
  cleanup_rows struct db_rows *rows = NULL;
  bool ok = db_run(db, &environments_store_statement, &parameters, &rows, error);
  db_array_release(&digests);
  db_array_release(&hardware);
  db_array_release(&identities);
  return ok;
}

static const struct statement environments_known_statement = {
    "environments_known",
    "SELECT e.digest, e.hardware_digest, e.identity, count(DISTINCT a.id) FILTER (WHERE " SQL_WORKS ") AS agents,"
    "  count(*) FILTER (WHERE " SQL_WORKS ") AS devices,"
    "  count(*) FILTER (WHERE " SQL_WORKS " AND a.trusted_keys IS NOT NULL) > 0 AS wants_signatures,"
    "  (array_agg(a.id ORDER BY " SQL_WORKS " DESC, a.id))[1] AS agent,"
    "  (array_agg(a.name ORDER BY " SQL_WORKS " DESC, a.id))[1] AS agent_name"
    " FROM devices d JOIN agents a ON a.id = d.agent JOIN environments e ON e.id = d.environment_id"
    " GROUP BY e.id ORDER BY e.id"};

bool environments_known(struct db *db, int64_t live_ms, struct known_environments *ret, struct error *error) {
  struct db_parameters parameters = {0};
  db_integer(&parameters, live_ms);
  cleanup_rows struct db_rows *rows = NULL;
  if (!db_run(db, &environments_known_statement, &parameters, &rows, error))
    return false;
  struct known_environments known = {.all = xcalloc((size_t)db_count(rows) + 1, sizeof *known.all)};
  for (int row = 0; row < db_count(rows); row++) {
    struct known_environment *environment = &known.all[known.n++];
    cleanup_json json_t *identity = db_get_json(rows, row, "identity");
    struct error bad;
    ALWAYS(environment_parse(identity, &environment->environment, &bad));
    environment->digest = db_get_digest(rows, row, "digest");
    environment->hardware_digest = db_get_digest(rows, row, "hardware_digest");
    environment->agents = db_get_integer(rows, row, "agents");
    environment->devices = db_get_integer(rows, row, "devices");
    environment->wants_signatures = db_get_bool(rows, row, "wants_signatures");
    environment->agent = xstrdup(db_get(rows, row, "agent"));
    environment->agent_name = xstrdup(db_get(rows, row, "agent_name"));
  }
  *ret = known;
  return true;
}

static const struct statement environments_list_statement = {
    "environments_list",
    "SELECT e.id, json_build_object('environment', e.identity, 'digest', 'sha256:' || encode(e.digest, 'hex'),"
    "  'agents', count(DISTINCT a.id) FILTER (WHERE " SQL_WORKS
    "), 'last_seen', " SQL_TIME("max(a.last_seen)") ") AS item"
                                                    " FROM environments e LEFT JOIN devices d ON d.environment_id = "
                                                    "e.id LEFT JOIN agents a ON a.id = d.agent"
                                                    " WHERE e.id > $2 GROUP BY e.id ORDER BY e.id LIMIT $3"};

bool environments_list(struct db *db, int64_t live_ms, int64_t after, int64_t limit, json_t **ret_items,
                       int64_t *ret_next, struct error *error) {
  struct db_parameters parameters = {0};
  db_integer(&parameters, live_ms);
  db_integer(&parameters, after);
  db_integer(&parameters, limit);
  cleanup_rows struct db_rows *rows = NULL;
  if (!db_run(db, &environments_list_statement, &parameters, &rows, error))
    return false;
  *ret_items = db_get_json_rows(rows, "item");
  *ret_next = db_count(rows) == limit ? db_get_integer(rows, db_count(rows) - 1, "id") : 0;
  return true;
}

static const struct statement agent_enrol_statement = {
    "agent_enrol",
    "WITH before AS MATERIALIZED (SELECT boot FROM agents WHERE id = $1 FOR UPDATE),"
    " stored AS (INSERT INTO agents (id, boot, name, version, machine, token_id, trusted_keys)"
    "  VALUES ($1, $2, $3, $4, $5, NULLIF($6::bigint, 0), $7::bytea[])"
    "  ON CONFLICT (id) DO UPDATE SET boot = excluded.boot, name = excluded.name, version = excluded.version,"
    "  machine = excluded.machine, trusted_keys = excluded.trusted_keys, token_id = COALESCE(excluded.token_id, "
    "agents.token_id), last_seen = now())"
    " SELECT COALESCE((SELECT boot FROM before), '') AS boot_before"};

static const struct statement agent_devices_statement = {
    "agent_devices",
    "WITH device AS MATERIALIZED (SELECT i.device, i.backend, i.facts::json AS facts, e.id AS environment_id"
    "  FROM unnest($2::text[], $3::text[], $4::bytea[], $5::text[]) AS i(device, backend, environment, facts)"
    "  JOIN environments e ON e.digest = i.environment),"
    " gone AS (DELETE FROM devices WHERE agent = $1 AND device <> ALL ($2::text[]))"
    " INSERT INTO devices (agent, device, backend, environment_id, facts)"
    " SELECT $1, device, backend, environment_id, facts FROM device"
    " ON CONFLICT (agent, device) DO UPDATE SET backend = excluded.backend, environment_id = excluded.environment_id,"
    " facts = excluded.facts"};

static bool devices_store(struct db *db, const struct agent_row *agent, struct error *error) {
  struct db_array devices, backends, environments, facts;
  db_array_init(&devices);
  db_array_init(&backends);
  db_array_init(&environments);
  db_array_init(&facts);
  for (size_t i = 0; i < agent->n_devices; i++) {
    struct digest digest = environment_digest(agent->devices[i].environment);
    db_array_text(&devices, agent->devices[i].device);
    db_array_text(&backends, agent->devices[i].backend);
    db_array_digest(&environments, &digest);
    db_array_text(&facts, agent->devices[i].facts);
  }
  struct db_parameters parameters = {0};
  db_text(&parameters, agent->id);
  db_text(&parameters, db_array_finish(&devices));
  db_text(&parameters, db_array_finish(&backends));
  db_text(&parameters, db_array_finish(&environments));
  db_text(&parameters, db_array_finish(&facts));
  cleanup_rows struct db_rows *rows = NULL;
  bool ok = db_run(db, &agent_devices_statement, &parameters, &rows, error);
  db_array_release(&devices);
  db_array_release(&backends);
  db_array_release(&environments);
  db_array_release(&facts);
  return ok;
}

bool agent_enrol(struct db *db, const struct agent_row *agent, char **ret_boot_before, struct error *error) {
  cleanup_free const struct environment **environments = xcalloc(agent->n_devices + 1, sizeof(struct environment *));
  for (size_t i = 0; i < agent->n_devices; i++)
    environments[i] = agent->devices[i].environment;
  struct db_parameters parameters = {0};
  db_text(&parameters, agent->id);
  db_text(&parameters, agent->boot);
  db_text(&parameters, agent->name);
  db_text(&parameters, agent->version);
  db_text(&parameters, agent->machine);
  db_integer(&parameters, agent->token);
  struct db_array keys;
  db_array_init(&keys);
  for (size_t i = 0; i < agent->n_trusted_keys; i++)
    db_array_digest(&keys, &agent->trusted_keys[i]);
  const char *keys_text = db_array_finish(&keys);
  db_text(&parameters, agent->n_trusted_keys ? keys_text : NULL);
  cleanup_rows struct db_rows *rows = NULL;
  bool ok = environments_store(db, environments, agent->n_devices, error) &&
            db_run(db, &agent_enrol_statement, &parameters, &rows, error) && devices_store(db, agent, error);
  db_array_release(&keys);
  if (ok)
    *ret_boot_before = xstrdup(db_get(rows, 0, "boot_before"));
  return ok;
}

static const struct statement agent_drain_statement = {
    "agent_drain", "UPDATE agents SET drain_reason = $2, refused_at = NULL,"
                   "  drained_by = CASE WHEN $2::text IS NOT NULL THEN $3 END,"
                   "  drained_by_id = CASE WHEN $2::text IS NOT NULL THEN $4::bigint END WHERE id = $1"};

bool agent_set_drain(struct db *db, const char *agent, const char *reason, const struct author *author, bool *ret_known,
                     struct error *error) {
  struct db_parameters parameters = {0};
  db_text(&parameters, agent);
  db_text(&parameters, reason);
  db_author(&parameters, author);
  cleanup_rows struct db_rows *rows = NULL;
  if (!db_begin(db, error))
    return false;
  bool ok = db_run(db, &agent_drain_statement, &parameters, &rows, error);
  *ret_known = ok && db_affected(rows) > 0;
  if (*ret_known)
    ok = audit_note(db, author, reason ? AUDIT_DRAIN : AUDIT_RESUME, agent, json_pack("{s:s*}", "reason", reason),
                    error);
  return db_end(db, ok, error);
}

static const struct statement agents_list_statement = {
    "agents_list",
    "SELECT a.id, json_build_object('agent', a.id, 'name', a.name, 'version', a.version,"
    "  'state', CASE WHEN a.drain_reason IS NOT NULL THEN 'draining' WHEN " SQL_LIVE " THEN 'live' ELSE 'lost' END,"
    "  'drain_reason', a.drain_reason, " SQL_BY(
        "a", "drained_by") ","
                           "  'trusted_keys', (SELECT json_agg('sha256:' || encode(k, 'hex')) FROM "
                           "unnest(a.trusted_keys) k),"
                           "  'devices', (SELECT COALESCE(json_agg(json_build_object("
                           "   'device', d.device, 'backend', d.backend, 'environment', e.identity, 'facts', d.facts,"
                           "   'drain_reason', d.drain_reason, " SQL_BY(
                               "d", "drained_by") ") ORDER BY d.device), '[]')"
                                                  "   FROM devices d JOIN environments e ON e.id = d.environment_id "
                                                  "WHERE d.agent = a.id),"
                                                  "  'refused', CASE WHEN a.refused_at > now() - interval '1 day' THEN "
                                                  "json_build_object("
                                                  "   'at', " SQL_TIME(
                                                      "a.refused_at") ", 'machine', a.refused_machine, 'name', "
                                                                      "a.refused_name) END,"
                                                                      "  'last_seen', " SQL_TIME(
                                                                          "a.last_seen") ") AS item"
                                                                                         " FROM agents a WHERE a.id > "
                                                                                         "$2 ORDER BY a.id LIMIT $3"};

bool agents_list(struct db *db, int64_t live_ms, const char *after, int64_t limit, json_t **ret_items, char **ret_next,
                 struct error *error) {
  struct db_parameters parameters = {0};
  db_integer(&parameters, live_ms);
  db_text(&parameters, after);
  db_integer(&parameters, limit);
  cleanup_rows struct db_rows *rows = NULL;
  if (!db_run(db, &agents_list_statement, &parameters, &rows, error))
    return false;
  *ret_items = db_get_json_rows(rows, "item");
  *ret_next = db_count(rows) == limit ? xstrdup(db_get(rows, db_count(rows) - 1, "id")) : NULL;
  return true;
}

static const struct statement agents_seen_statement = {
    "agents_seen", "UPDATE agents a SET last_seen = GREATEST(a.last_seen, now() - s.age_ms * interval '1 ms')"
                   " FROM unnest($1::text[], $2::bigint[]) AS s(id, age_ms) WHERE a.id = s.id"};

bool agents_seen(struct db *db, const char *const *agents, const int64_t *ages_ms, size_t n, struct error *error) {
  struct db_array ids, ages;
  db_array_init(&ids);
  db_array_init(&ages);
  for (size_t i = 0; i < n; i++) {
    db_array_text(&ids, agents[i]);
    db_array_integer(&ages, ages_ms[i]);
  }
  struct db_parameters parameters = {0};
  db_text(&parameters, db_array_finish(&ids));
  db_text(&parameters, db_array_finish(&ages));
  cleanup_rows struct db_rows *rows = NULL;
  bool ok = db_run(db, &agents_seen_statement, &parameters, &rows, error);
  db_array_release(&ids);
  db_array_release(&ages);
  return ok;
}

bool agents_live(struct db *db, int64_t live_ms, int64_t *ret_n, struct error *error) {
  static const struct statement statement = {
      "agents_live", "SELECT count(*) AS n FROM agents WHERE last_seen > now() - $1::bigint * interval '1 ms'"};
  struct db_parameters parameters = {0};
  db_integer(&parameters, live_ms);
  cleanup_rows struct db_rows *rows = NULL;
  if (!db_run(db, &statement, &parameters, &rows, error))
    return false;
  *ret_n = db_get_integer(rows, 0, "n");
  return true;
}

#define SQL_BRIEF                                                                                                      \
  "SELECT a.id, a.boot, a.drain_reason IS NOT NULL AS is_draining, a.token_id, t.role = 'enrol' OR t.certificate IS "  \
  "NOT NULL AS has_token"                                                                                              \
  " FROM agents a LEFT JOIN tokens t ON t.id = a.token_id"
static const struct statement agents_brief_statement = {"agents_brief", SQL_BRIEF " WHERE a.id = ANY ($1::text[])"};
static const struct statement agents_brief_draining_statement = {"agents_brief_draining",
                                                                 SQL_BRIEF " WHERE a.drain_reason IS NOT NULL"};

static void brief_read(const struct db_rows *rows, struct agent_brief **ret_agents, size_t *ret_n) {
  struct agent_brief *agents = xcalloc((size_t)db_count(rows) + 1, sizeof *agents);
  for (int row = 0; row < db_count(rows); row++)
    agents[row] = (struct agent_brief){xstrdup(db_get(rows, row, "id")),
                                       xstrdup(db_get(rows, row, "boot")),
                                       db_get_bool(rows, row, "is_draining"),
                                       {db_get_integer(rows, row, "token_id"), db_get_bool(rows, row, "has_token")}};
  *ret_agents = agents;
  *ret_n = (size_t)db_count(rows);
}

bool agents_brief(struct db *db, const char *const *ids, size_t n, struct agent_brief **ret_agents, size_t *ret_n,
                  struct error *error) {
  struct db_array array;
  db_array_init(&array);
  for (size_t i = 0; i < n; i++)
    db_array_text(&array, ids[i]);
  struct db_parameters parameters = {0};
  db_text(&parameters, db_array_finish(&array));
  cleanup_rows struct db_rows *rows = NULL;
  bool ok = db_run(db, &agents_brief_statement, &parameters, &rows, error);
  db_array_release(&array);
  if (ok)
    brief_read(rows, ret_agents, ret_n);
  return ok;
}

bool agents_brief_draining(struct db *db, struct agent_brief **ret_agents, size_t *ret_n, struct error *error) {
  struct db_parameters parameters = {0};
  cleanup_rows struct db_rows *rows = NULL;
  if (!db_run(db, &agents_brief_draining_statement, &parameters, &rows, error))
    return false;
  brief_read(rows, ret_agents, ret_n);
  return true;
}

void agents_brief_free(struct agent_brief *agents, size_t n) {
  for (size_t i = 0; i < n; i++) {
    free(agents[i].id);
    free(agents[i].boot);
  }
  free(agents);
}
