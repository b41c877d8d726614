/* SQL of channels. Memory and threads: as the header says. */
#include "server/store/channels.h"

#include "server/store/values.h"

void channel_rows_release(struct channel_rows *rows) {
  for (size_t i = 0; i < rows->n; i++) {
    free(rows->all[i].name);
    environment_release(&rows->all[i].environment);
    free(rows->all[i].tag);
    free(rows->all[i].updated_at);
  }
  free(rows->all);
  *rows = (struct channel_rows){0};
}

#define CHANNEL_COLUMNS                                                                                                \
  "c.id, c.name, r.environment, c.tag, c.counter, c.release, " SQL_TIME("c.updated_at") " AS updated_at"

/* At most `limit` rows. */
static struct channel_rows rows_read(const struct db_rows *rows, int64_t limit) {
  struct channel_rows read = {.all = xcalloc((size_t)db_count(rows) + 1, sizeof *read.all)};
  for (int row = 0; row < db_count(rows) && row < limit; row++) {
    struct channel_row *channel = &read.all[read.n++];
    cleanup_json json_t *environment = db_get_json(rows, row, "environment");
    struct error bad;
    *channel = (struct channel_row){
        .id = db_get_integer(rows, row, "id"),
        .name = xstrdup(db_get(rows, row, "name")),
        .tag = xstrdup(db_get(rows, row, "tag")),
        .state = {db_get_integer(rows, row, "counter"), db_get_digest(rows, row, "release")},
        .updated_at = xstrdup(db_get(rows, row, "updated_at")),
    };
    ALWAYS(environment_parse(environment, &channel->environment, &bad));
  }
  return read;
}

static const struct statement channel_rows_statement = {
    "channel_rows", "SELECT " CHANNEL_COLUMNS " FROM channels c JOIN releases r ON r.digest = c.release"
                    " WHERE c.name = $1 AND c.tag = $2 ORDER BY c.id"};

bool channel_rows_load(struct db *db, const char *name, const char *tag, struct channel_rows *ret,
                       struct error *error) {
  struct db_parameters parameters = {0};
  db_text(&parameters, name);
  db_text(&parameters, tag);
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
  *ret = rows_read(rows, limit);
  *ret_next = db_count(rows) > limit ? ret->all[limit - 1].id : 0;
  return true;
}

static const struct statement channel_of_release_statement = {
    "channel_of_release",
    "SELECT c.id, c.name, r.environment, r.tag, c.counter, c.release, " SQL_TIME(
        "c.updated_at") " AS updated_at"
                        " FROM releases r LEFT JOIN channels c"
                        "  ON c.name = $1 AND c.tag = r.tag AND c.environment_digest = r.environment_digest"
                        " WHERE r.digest = $2::bytea"};

bool channel_row_of_release(struct db *db, const char *name, const struct digest *release, bool *ret_known,
                            struct channel_rows *ret, struct error *error) {
  struct db_parameters parameters = {0};
  db_text(&parameters, name);
  db_digest(&parameters, release);
  cleanup_rows struct db_rows *rows = NULL;
  if (!db_run(db, &channel_of_release_statement, &parameters, &rows, error))
    return false;
  *ret_known = db_count(rows) > 0;
  *ret = rows_read(rows, *ret_known && !db_is_null(rows, 0, "id") ? 1 : 0);
  return true;
}

/* $3 is the counter that the row must have, 0 for none. A counter never comes back, so it alone tells the state. */
static const struct statement channel_move_statement = {
    "channel_move",
    "WITH target AS (SELECT digest, environment_digest, environment, tag FROM releases WHERE digest = $2::bytea),"
    " created AS (INSERT INTO channels (name, environment_digest, tag, release, counter)"
    "  SELECT $1, environment_digest, tag, digest, 1 FROM target WHERE $3::bigint = 0"
    "  ON CONFLICT (name, tag, environment_digest) DO NOTHING RETURNING *),"
    " moved AS (UPDATE channels c SET release = t.digest, counter = c.counter + 1, updated_at = now() FROM target t"
    "  WHERE c.name = $1 AND c.tag = t.tag AND c.environment_digest = t.environment_digest AND c.counter = $3::bigint"
    "  RETURNING c.*),"
    " c AS (SELECT * FROM created UNION ALL SELECT * FROM moved),"
    " entry AS (INSERT INTO channel_entries (name, environment_digest, tag, counter, release, moved_by, moved_at)"
    "  SELECT name, environment_digest, tag, counter, release, $4, updated_at FROM c)"
    " SELECT " CHANNEL_COLUMNS " FROM c JOIN target r ON true"};

bool channel_move(struct db *db, const char *name, const struct channel_state *from, const struct digest *release,
                  const char *moved_by, struct channel_rows *ret, struct error *error) {
  struct db_parameters parameters = {0};
  db_text(&parameters, name);
  db_digest(&parameters, release);
  db_integer(&parameters, from->counter);
  db_text(&parameters, moved_by);
  cleanup_rows struct db_rows *rows = NULL;
  if (!db_run(db, &channel_move_statement, &parameters, &rows, error))
    return false;
  *ret = rows_read(rows, 1);
  return true;
}

static const struct statement channel_moves_statement = {
    "channel_moves", "SELECT COALESCE(sum(counter), 0)::bigint AS moves FROM channels"};

bool channel_moves(struct db *db, int64_t *ret_moves, struct error *error) {
  struct db_parameters parameters = {0};
  cleanup_rows struct db_rows *rows = NULL;
  if (!db_run(db, &channel_moves_statement, &parameters, &rows, error))
    return false;
  *ret_moves = db_get_integer(rows, 0, "moves");
  return true;
}
