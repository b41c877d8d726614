/* Channels in the database. Memory and threads: as the header says. */
#include "server/channel/channel.sql.h"
#include "server/channel/channels.h"
#include "server/db/db_record.h"

void channel_rows_release(struct channel_rows *rows) {
  for (size_t i = 0; i < rows->n; i++)
    channel_entry_release(&rows->all[i].entry);
  free(rows->all);
  *rows = (struct channel_rows){0};
}

/* At most `limit` rows. *ret_next (which may be NULL) is the id of the last one when there are
 * more, else 0. */
static struct channel_rows rows_read(const struct db_rows *rows, int64_t limit, int64_t *ret_next) {
  struct channel_rows read = {.all = xcalloc((size_t)db_count(rows) + 1, sizeof *read.all)};
  for (int row = 0; row < db_count(rows) && row < limit; row++) {
    struct channel_row *channel = &read.all[read.n++];
    db_read(rows, row, &channel_entry_record, &channel->entry);
    channel->id = db_get_integer(rows, row, "id");
    channel->signings = db_get_integer(rows, row, "signings");
  }
  if (ret_next)
    *ret_next = db_count(rows) > limit ? read.all[limit - 1].id : 0;
  return read;
}

bool channel_rows_load(struct db *db, const char *name, const char *tag, enum regime regime,
                       struct channel_rows *ret, struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_text(&parameters, "name", name);
  bind_text(&parameters, "tag", tag);
  bind_text(&parameters, "regime", regime_name(regime));
  if (!db_run(db, &sql_channel_rows, &parameters, &rows, error))
    return false;

  *ret = rows_read(rows, INT64_MAX, NULL);
  return true;
}

bool channel_rows_list(struct db *db, int64_t after, int64_t limit, struct channel_rows *ret,
                       int64_t *ret_next, struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_integer(&parameters, "after", after);
  bind_integer(&parameters, "limit", limit);
  if (!db_run(db, &sql_channels_list, &parameters, &rows, error))
    return false;

  *ret = rows_read(rows, limit, ret_next);
  return true;
}

bool channel_row_of_release(struct db *db, const char *name, const struct digest *release,
                            struct channel_rows *ret, struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_text(&parameters, "name", name);
  bind_digest(&parameters, "release", release);
  if (!db_run(db, &sql_channel_of_release, &parameters, &rows, error))
    return false;

  *ret = rows_read(rows, 1, NULL);
  return true;
}

bool channel_entries_list(struct db *db, const struct channel_row *row, int64_t before,
                          int64_t limit, struct channel_rows *ret, int64_t *ret_next,
                          struct error *error) {
  const struct channel_entry *entry = &row->entry;
  struct digest environment = environment_digest(&entry->environment);
  cleanup_json json_t *environment_json = environment_to_json(&entry->environment);
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_text(&parameters, "name", entry->channel);
  bind_text(&parameters, "tag", entry->tag);
  bind_text(&parameters, "regime", regime_name(entry->regime));
  bind_digest(&parameters, "environment_digest", &environment);
  bind_json(&parameters, "environment", environment_json);
  bind_integer(&parameters, "before", before);
  bind_integer(&parameters, "limit", limit);
  if (!db_run(db, &sql_channel_entries_list, &parameters, &rows, error))
    return false;

  *ret = rows_read(rows, limit, ret_next);
  return true;
}

bool channel_move(struct db *db, const char *name, const struct channel_state *from,
                  const struct channel_move *move, const struct author *author,
                  struct channel_rows *ret, struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_channel_rows struct channel_rows moved = {0};
  cleanup_parameters struct db_parameters parameters = {0};
  bind_text(&parameters, "name", name);
  bind_record(&parameters, &channel_move_record, move);
  bind_integer(&parameters, "from_counter", from->counter);
  bind_integer(&parameters, "from_signings", from->signings);
  bind_author(&parameters, author);

  if (!db_begin(db, error))
    return false;
  bool ok = db_run(db, &sql_channel_move, &parameters, &rows, error);
  if (ok)
    moved = rows_read(rows, 1, NULL);
  if (moved.n) {
    const struct channel_entry *entry = &moved.all->entry;
    json_t *detail = json_pack(
        "{s:o, s:I, s:s, s:s, s:o}", "release", json_digest_text(&move->release), "counter",
        (json_int_t)entry->counter, "tag", entry->tag, "regime", regime_name(entry->regime),
        "environment", environment_to_json(&entry->environment));
    ok = audit_note(db, author, AUDIT_MOVE, name, detail, error);
  }
  if (!db_end(db, ok, error))
    return false;

  *ret = moved;
  moved = (struct channel_rows){0};
  return true;
}

bool channel_signature_add(struct db *db, const struct channel_row *row,
                           const struct channel_signature *signature, const struct author *author,
                           bool *ret_done, struct error *error) {
  const struct channel_entry *entry = &row->entry;
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_integer(&parameters, "id", row->id);
  bind_integer(&parameters, "counter", entry->counter);
  bind_integer(&parameters, "signings", row->signings);
  bind_digest(&parameters, "key", &signature->key);
  bind_text(&parameters, "signature", signature->text);
  bind_author(&parameters, author);

  if (!db_begin(db, error))
    return false;
  bool ok = db_run(db, &sql_channel_signature_add, &parameters, &rows, error);
  bool is_done = ok && db_count(rows) > 0;
  if (is_done)
    ok = audit_note(db, author, AUDIT_SIGN, entry->channel,
                    json_pack("{s:I, s:s, s:s, s:o}", "counter", (json_int_t)entry->counter, "tag",
                              entry->tag, "regime", regime_name(entry->regime), "key",
                              json_digest_text(&signature->key)),
                    error);
  if (!db_end(db, ok, error))
    return false;

  *ret_done = is_done;
  return true;
}

bool lookups_state(struct db *db, int64_t *ret_state, struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  if (!db_run(db, &sql_lookups_state, NULL, &rows, error))
    return false;
  *ret_state = db_get_integer(rows, 0, "state");
  return true;
}
