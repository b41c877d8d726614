/* SQL of channels. Memory and threads: as the header says. */
#include "server/channel/channel_store.h"

#include "server/db/values.h"

void channel_rows_release(struct channel_rows *rows) {
  for (size_t i = 0; i < rows->n; i++) {
    channel_entry_release(&rows->all[i].entry);
    free(rows->all[i].updated_at);
    free(rows->all[i].moved_by);
  }
  free(rows->all);
  *rows = (struct channel_rows){0};
}

/* clang-format off */
/* Expiry and signatures of the entry that row `c` has now. */
#define OF_THE_ENTRY(table) table ".name = c.name AND " table ".tag = c.tag AND " table ".regime = c.regime" \
  " AND " table ".environment_digest = c.environment_digest AND " table ".counter = c.counter"
#define EXPIRES(column) "extract(epoch FROM " column ")::bigint"
#define SIGNATURES \
  "(SELECT json_build_object('signatures', COALESCE(json_agg(json_build_object(" \
  "   'key', 'sha256:' || encode(s.key, 'hex'), 'signature', s.signature) ORDER BY s.key), '[]'))" \
  " FROM channel_signatures s WHERE " OF_THE_ENTRY("s") ") AS signatures"
#define CHANNEL_COLUMNS \
  "c.id, c.name, r.environment, c.tag, c.regime, c.counter, c.release, c.signings, " \
  SQL_TIME("c.updated_at") " AS updated_at, NULL AS moved_by, NULL AS moved_by_id," \
  " (SELECT " EXPIRES("e.expires_at") " FROM channel_entries e WHERE " OF_THE_ENTRY("e") ") AS expires, " SIGNATURES
#define HISTORY_COLUMNS \
  "c.counter AS id, c.name, $6::json AS environment, c.tag, c.regime, c.counter, c.release, 0 AS signings, " \
  SQL_TIME("c.moved_at") " AS updated_at, c.moved_by, c.moved_by_id, " EXPIRES("c.expires_at") " AS expires, " SIGNATURES
/* clang-format on */

static struct channel_row row_read(const struct db_rows *rows, int row) {
  cleanup_json json_t *environment = db_get_json(rows, row, "environment"),
                      *signatures = db_get_json(rows, row, "signatures");
  struct error bad;
  struct channel_row channel = {
      .id = db_get_integer(rows, row, "id"),
      .entry = {.channel = xstrdup(db_get(rows, row, "name")),
                .tag = xstrdup(db_get(rows, row, "tag")),
                .counter = db_get_integer(rows, row, "counter"),
                .expires_s = db_get_integer(rows, row, "expires")},
      .signings = db_get_integer(rows, row, "signings"),
      .updated_at = xstrdup(db_get(rows, row, "updated_at")),
      .moved_by = db_is_null(rows, row, "moved_by") ? NULL : xstrdup(db_get(rows, row, "moved_by")),
      .moved_by_id = db_get_integer(rows, row, "moved_by_id"),
  };
  if (channel.entry.counter)
    channel.entry.release = db_get_digest(rows, row, "release");
  ALWAYS(regime_parse(db_get(rows, row, "regime"), &channel.entry.regime, &bad) &&
         environment_parse(environment, &channel.entry.environment, &bad) &&
         channel_signatures_parse(signatures, channel.entry.signatures, &channel.entry.n_signatures, &bad));
  return channel;
}

/* At most `limit` rows. */
static struct channel_rows rows_read(const struct db_rows *rows, int64_t limit) {
  struct channel_rows read = {.all = xcalloc((size_t)db_count(rows) + 1, sizeof *read.all)};
  for (int row = 0; row < db_count(rows) && row < limit; row++)
    read.all[read.n++] = row_read(rows, row);
  return read;
}

static struct channel_rows page_read(const struct db_rows *rows, int64_t limit, int64_t *ret_next) {
  struct channel_rows read = rows_read(rows, limit);
  *ret_next = db_count(rows) > limit ? read.all[limit - 1].id : 0;
  return read;
}

static const struct statement channel_rows_statement = {
    "channel_rows", "SELECT " CHANNEL_COLUMNS " FROM channels c JOIN releases r ON r.digest = c.release"
                    " WHERE c.name = $1 AND c.tag = $2 AND c.regime = $3 ORDER BY c.id"};

bool channel_rows_load(struct db *db, const char *name, const char *tag, enum regime regime, struct channel_rows *ret,
                       struct error *error) {
  struct db_parameters parameters = {0};
  db_text(&parameters, name);
  db_text(&parameters, tag);
  db_text(&parameters, regime_name(regime));
  cleanup_rows struct db_rows *rows = NULL;
  if (!db_run(db, &channel_rows_statement, &parameters, &rows, error))
    return false;
  *ret = rows_read(rows, INT64_MAX);
  return true;
}

static const struct statement channels_list_statement = {
    "channels_list", "SELECT " CHANNEL_COLUMNS " FROM channels c JOIN releases r ON r.digest = c.release"
                     " WHERE c.id > $1 ORDER BY c.id LIMIT $2"};

bool channel_rows_list(struct db *db, int64_t after, int64_t limit, struct channel_rows *ret, int64_t *ret_next,
                       struct error *error) {
  struct db_parameters parameters = {0};
  db_integer(&parameters, after);
  db_integer(&parameters, limit + 1);
  cleanup_rows struct db_rows *rows = NULL;
  if (!db_run(db, &channels_list_statement, &parameters, &rows, error))
    return false;
  *ret = page_read(rows, limit, ret_next);
  return true;
}

static const struct statement channel_of_release_statement = {
    "channel_of_release",
    "SELECT " CHANNEL_COLUMNS " FROM releases r CROSS JOIN LATERAL (SELECT c.id, $1::text AS name,"
    "  r.environment_digest, r.tag, r.regime, COALESCE(c.counter, 0) AS counter, c.release,"
    "  COALESCE(c.signings, 0) AS signings, c.updated_at"
    "  FROM (SELECT) one LEFT JOIN channels c"
    "   ON c.name = $1 AND c.tag = r.tag AND c.regime = r.regime AND c.environment_digest = r.environment_digest) c"
    " WHERE r.digest = $2::bytea"};

bool channel_row_of_release(struct db *db, const char *name, const struct digest *release, struct channel_rows *ret,
                            struct error *error) {
  struct db_parameters parameters = {0};
  db_text(&parameters, name);
  db_digest(&parameters, release);
  cleanup_rows struct db_rows *rows = NULL;
  if (!db_run(db, &channel_of_release_statement, &parameters, &rows, error))
    return false;
  *ret = rows_read(rows, 1);
  return true;
}

static const struct statement channel_entries_statement = {
    "channel_entries_list", "SELECT " HISTORY_COLUMNS " FROM channel_entries c"
                            " WHERE c.name = $1 AND c.tag = $2 AND c.environment_digest = $3::bytea AND c.counter < $4"
                            "  AND c.regime = $7 ORDER BY c.counter DESC LIMIT $5"};

bool channel_entries_list(struct db *db, const struct channel_row *row, int64_t before, int64_t limit,
                          struct channel_rows *ret, int64_t *ret_next, struct error *error) {
  struct digest environment = environment_digest(&row->entry.environment);
  cleanup_json json_t *json = environment_to_json(&row->entry.environment);
  cleanup_free char *text = json_canonical(json);
  struct db_parameters parameters = {0};
  db_text(&parameters, row->entry.channel);
  db_text(&parameters, row->entry.tag);
  db_digest(&parameters, &environment);
  db_integer(&parameters, before);
  db_integer(&parameters, limit + 1);
  db_text(&parameters, text);
  db_text(&parameters, regime_name(row->entry.regime));
  cleanup_rows struct db_rows *rows = NULL;
  if (!db_run(db, &channel_entries_statement, &parameters, &rows, error))
    return false;
  *ret = page_read(rows, limit, ret_next);
  return true;
}

/* $3 is the counter that the row must have, 0 for none. A counter never comes back, so it and the signings tell the
 * state. What this statement inserts it cannot read: expiry and signatures are answered as they were given. */
static const struct statement channel_move_statement = {
    "channel_move",
    "WITH target AS (SELECT digest, environment_digest, environment, tag, regime FROM releases WHERE digest = "
    "$2::bytea),"
    " created AS (INSERT INTO channels (name, environment_digest, tag, regime, release, counter)"
    "  SELECT $1, environment_digest, tag, regime, digest, 1 FROM target WHERE $3::bigint = 0"
    "  ON CONFLICT (name, tag, regime, environment_digest) DO NOTHING RETURNING *),"
    " moved AS (UPDATE channels c SET release = t.digest, counter = c.counter + 1, updated_at = now() FROM target t"
    "  WHERE c.name = $1 AND c.tag = t.tag AND c.regime = t.regime AND c.environment_digest = t.environment_digest"
    "  AND c.counter = $3::bigint AND c.signings = $4::bigint RETURNING c.*),"
    " c AS (SELECT * FROM created UNION ALL SELECT * FROM moved),"
    " entry AS (INSERT INTO channel_entries (name, environment_digest, tag, regime, counter, release, moved_by,"
    "   moved_by_id, moved_at, expires_at)"
    "  SELECT name, environment_digest, tag, regime, counter, release, $5, $8::bigint, updated_at, "
    "to_timestamp($6::bigint) FROM "
    "c),"
    " signed AS (INSERT INTO channel_signatures (name, environment_digest, tag, regime, counter, key, signature,"
    "   added_by, added_by_id) SELECT name, environment_digest, tag, regime, counter,"
    "   decode(substr(s->>'key', 8), 'hex'), s->>'signature', $5, $8::bigint"
    "  FROM c, json_array_elements($7::json->'signatures') s)"
    " SELECT c.id, c.name, r.environment, c.tag, c.regime, c.counter, c.release, c.signings, " SQL_TIME(
        "c.updated_at") " AS updated_at, NULL AS moved_by, NULL AS moved_by_id, $6::bigint AS expires, $7::json AS "
                        "signatures FROM c JOIN "
                        "target r ON true"};

bool channel_move(struct db *db, const char *name, const struct channel_state *from, const struct channel_move *move,
                  const struct author *author, struct channel_rows *ret, struct error *error) {
  cleanup_json json_t *signatures =
      json_pack("{s:o}", "signatures", channel_signatures_to_json(move->signatures, move->n_signatures));
  cleanup_free char *signatures_text = json_dumps(signatures, JSON_COMPACT);
  struct db_parameters parameters = {0};
  db_text(&parameters, name);
  db_digest(&parameters, &move->release);
  db_integer(&parameters, from->counter);
  db_integer(&parameters, from->signings);
  db_text(&parameters, author->name);
  if (move->expires_s)
    db_integer(&parameters, move->expires_s);
  else
    db_text(&parameters, NULL);
  db_text(&parameters, signatures_text);
  db_author_id(&parameters, author);
  cleanup_rows struct db_rows *rows = NULL;
  if (!db_begin(db, error))
    return false;
  bool ok = db_run(db, &channel_move_statement, &parameters, &rows, error);
  if (ok && db_count(rows)) {
    json_t *detail = json_pack("{s:o, s:I, s:s, s:s, s:o}", "release", json_digest_text(&move->release), "counter",
                               (json_int_t)db_get_integer(rows, 0, "counter"), "tag", db_get(rows, 0, "tag"), "regime",
                               db_get(rows, 0, "regime"), "environment", db_get_json(rows, 0, "environment"));
    ok = audit_note(db, author, AUDIT_MOVE, name, detail, error);
  }
  if (!db_end(db, ok, error))
    return false;
  *ret = rows_read(rows, 1);
  return true;
}

static const struct statement channel_signature_statement = {
    "channel_signature_add",
    "WITH c AS (UPDATE channels SET signings = signings + 1 WHERE id = $1 AND counter = $2 AND signings = $3"
    "  RETURNING *),"
    " added AS (INSERT INTO channel_signatures (name, environment_digest, tag, regime, counter, key, signature,"
    "   added_by, added_by_id) SELECT name, environment_digest, tag, regime, counter, $4::bytea, $5, $6, $7::bigint"
    "   FROM c"
    "  ON CONFLICT (name, tag, regime, environment_digest, counter, key) DO UPDATE"
    "  SET signature = excluded.signature, added_by = excluded.added_by,"
    "  added_by_id = excluded.added_by_id, added_at = excluded.added_at)"
    " SELECT id FROM c"};

bool channel_signature_add(struct db *db, const struct channel_row *row, const struct channel_signature *signature,
                           const struct author *author, bool *ret_done, struct error *error) {
  struct db_parameters parameters = {0};
  db_integer(&parameters, row->id);
  db_integer(&parameters, row->entry.counter);
  db_integer(&parameters, row->signings);
  db_digest(&parameters, &signature->key);
  db_text(&parameters, signature->text);
  db_author(&parameters, author);
  cleanup_rows struct db_rows *rows = NULL;
  if (!db_begin(db, error))
    return false;
  bool ok = db_run(db, &channel_signature_statement, &parameters, &rows, error);
  *ret_done = ok && db_count(rows) > 0;
  if (*ret_done)
    ok = audit_note(db, author, AUDIT_SIGN, row->entry.channel,
                    json_pack("{s:I, s:s, s:s, s:o}", "counter", (json_int_t)row->entry.counter, "tag", row->entry.tag,
                              "regime", regime_name(row->entry.regime), "key", json_digest_text(&signature->key)),
                    error);
  return db_end(db, ok, error);
}

static const struct statement lookups_state_statement = {
    "lookups_state", "SELECT hashtextextended(concat_ws(' ', (SELECT sum(counter + signings) FROM channels),"
                     "  (SELECT string_agg(id || ':' || xmin, ' ' ORDER BY id) FROM compatibilities)), 0) AS state"};

bool lookups_state(struct db *db, int64_t *ret_state, struct error *error) {
  struct db_parameters parameters = {0};
  cleanup_rows struct db_rows *rows = NULL;
  if (!db_run(db, &lookups_state_statement, &parameters, &rows, error))
    return false;
  *ret_state = db_get_integer(rows, 0, "state");
  return true;
}
