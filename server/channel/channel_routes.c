/* PUT and GET of channels, added signatures, the history, and noticing changes by other servers.
 *
 * Memory: rows live as long as the handler. Threads: database workers; channels_housekeep: the
 * housekeeper. */
#include "common/base/log.h"
#include "server/audit/audit.h"
#include "server/cache/entries.h"
#include "server/channel/channel.sql.h"
#include "server/channel/channels.h"
#include "server/counters.h"
#include "server/db/db_record.h"
#include "server/http/request.h"
#include "server/server.h"
#include "server/token/tokens.h"

/* How often a move or a signature is tried while other clients change the channel. */
#define CHANNEL_ATTEMPTS 16

/* Rows */

/* The row of a channel for a release's environment, tag and regime; its counter is 0 where there is
 * no entry yet. No row: there is no such release. */
static bool row_of_release(struct db *db, const char *name, const struct digest *release,
                           struct channel_rows *ret, struct error *error) {
  return channel_rows_read(
      db_query(db, &sql_channel_of_release, error, BIND("name", name), BIND("release", release)),
      ret);
}

/* Moves the row of the release's environment, tag and regime from exactly `from` to the release,
 * and writes the history with expiry and signatures. No row in *ret: its state was another by then.
 */
static bool channel_move(struct db *db, const char *name, const struct author *author,
                         const struct channel_state *from, const struct channel_move *move,
                         struct channel_rows *ret, struct error *error) {
  bool ok = db_begin(db, error) &&
            channel_rows_read(db_query(db, &sql_channel_move, error, BIND("name", name),
                                       BIND_RECORD(&channel_move_record, move),
                                       BIND("from_counter", from->counter),
                                       BIND("from_signings", from->signings), BIND_AUTHOR(author)),
                              ret);
  if (ok && ret->n) {
    const struct channel_entry *entry = &ret->all->entry;
    json_t *detail = json_pack(
        "{s:o, s:I, s:s, s:s, s:o}", "release", json_digest_text(&move->release), "counter",
        (json_int_t)entry->counter, "tag", entry->tag, "regime", regime_name(entry->regime),
        "environment", environment_to_json(&entry->environment));
    ok = audit_note(db, author, AUDIT_MOVE, name, detail, error);
  }

  return db_end(db, ok, error);
}

/* Adds a signature if the row still has this state. *ret_done: whether it had. */
static bool signature_add(struct db *db, const struct channel_row *row,
                          const struct channel_signature *signature, const struct author *author,
                          bool *ret_done, struct error *error) {
  const struct channel_entry *entry = &row->entry;
  cleanup_rows struct db_rows *rows = NULL;

  bool ok = db_begin(db, error) &&
            (rows = db_query(db, &sql_channel_signature_add, error, BIND("id", row->id),
                             BIND("counter", entry->counter), BIND("signings", row->signings),
                             BIND("key", &signature->key), BIND("signature", signature->text),
                             BIND_AUTHOR(author)));
  *ret_done = ok && db_count(rows) > 0;
  if (*ret_done)
    ok = audit_note(db, author, AUDIT_SIGN, entry->channel,
                    json_pack("{s:I, s:s, s:s, s:o}", "counter", (json_int_t)entry->counter, "tag",
                              entry->tag, "regime", regime_name(entry->regime), "key",
                              json_digest_text(&signature->key)),
                    error);
  return db_end(db, ok, error);
}

/* Moving and signing */

static char *etag_quoted(const struct channel_row *row) {
  char etag[CHANNEL_ETAG_SIZE];
  struct channel_state state = channel_row_state(row);
  return xasprintf("\"%s\"", channel_etag(&state, etag));
}

static void row_answer(struct request *request, const struct channel_row *row) {
  cleanup_free char *etag = etag_quoted(row);
  request_add_header(request, "ETag", etag);
  request_answer_json(request, 200, channel_entry_to_answer(&row->entry));
}

/* Is 412 with the present entry; the row's counter is 0 when there is none. Returns false. */
static bool row_is_stale(struct request *request, const struct channel_row *row,
                         struct error *error) {
  char digest[DIGEST_TEXT_SIZE];
  if (!row->entry.counter) {
    request->extra = json_pack("{s:n}", "etag");
    return error_of(
        error, ERROR_PRECONDITION,
        "channel \"%s\" has no entry yet for this environment, tag and regime: there is "
        "nothing for If-Match to match, and its first counter is 1",
        row->entry.channel);
  }

  cleanup_free char *etag = etag_quoted(row);
  request_add_header(request, "ETag", etag);
  request->extra =
      json_pack("{s:s, s:o}", "etag", etag, "entry", channel_entry_to_answer(&row->entry));
  return error_of(error, ERROR_PRECONDITION,
                  "channel \"%s\" is at counter %lld, release %s: read it, and decide again",
                  row->entry.channel, (long long)row->entry.counter,
                  digest_format(&row->entry.release, digest));
}

static void contended_answer(struct request *request, const char *name) {
  answer_refusal(request, ERROR_UNAVAILABLE, "",
                 "other requests keep changing channel \"%s\"; try again", name);
}

/* Whether the operator's keys (--publisher-key) allow the entry; without any all are allowed.
 * Otherwise answers 403. */
static bool publisher_is_trusted(struct request *request, const struct channel_entry *entry,
                                 struct error *error) {
  const struct trusted_keys *keys = server_publisher_keys(request->server);
  if (!keys->n)
    return true;

  if (!entry->signatures.n)
    error_set(error,
              "this server accepts only entries that a publisher signed, and this one is not "
              "signed; move channel \"%s\" with --sign-key",
              entry->channel);
  else if (channel_entry_verify(entry, keys, error))
    return true;
  else
    error_prefix(error, "this server accepts only entries that a publisher signed, and ");

  error_become(error, ERROR_FORBIDDEN);
  return false;
}

bool channel_may_be_moved(struct worker *worker, struct request *request, const char *channel,
                          struct error *error) {
  cleanup_free char *patterns = NULL;
  bool may = false;
  if (request->roles & TOKEN_ADMIN)
    return true;

  if (!token_moves_channel(worker->db, request->token_id, channel, &may, &patterns, error))
    return false;
  if (!may) {
    metrics_note_refusal(REFUSED_CHANNEL);
    return error_of(error, ERROR_FORBIDDEN,
                    "the token \"%s\" may move the channels %.500s, and not \"%s\"",
                    request->token_name, patterns, channel);
  }
  return true;
}

/* Reads, decides and moves once. *ret_done: it has answered; else the channel was changed in
 * between. */
static bool channel_put_once(struct worker *worker, struct request *request, const char *name,
                             const struct channel_move *move,
                             const struct channel_condition *condition, bool *ret_done,
                             struct error *error) {
  char text[DIGEST_TEXT_SIZE];
  cleanup_channel_rows struct channel_rows before = {0}, after = {0};
  if (!row_of_release(worker->db, name, &move->release, &before, error))
    return false;
  if (!before.n)
    return error_at(error, "/release", "there is no release %s; POST /v1/releases makes one",
                    digest_format(&move->release, text));

  const struct channel_row *row = before.all;
  const struct channel_state state = channel_row_state(row);
  struct channel_entry wanted = row->entry; /* as the move would make it; borrows its texts */
  wanted.release = move->release;
  wanted.counter = move->counter;
  wanted.expires_s = move->expires_s;
  wanted.signatures = move->signatures;
  if (!publisher_is_trusted(request, &wanted, error))
    return false;

  *ret_done = true;
  switch (
      channel_decide(&state, &row->entry, move, condition->if_match, condition->if_none_match)) {
  case CHANNEL_KEEP:
    row_answer(request, row);
    return true;
  case CHANNEL_REFUSE:
    return row_is_stale(request, row, error);
  case CHANNEL_MOVE:
    break;
  }

  if (!channel_move(worker->db, name, request_author(request), &state, move, &after, error)) {
    *ret_done = false;
    return error->kind == ERROR_REFERENCE; /* the release was collected in between */
  }

  *ret_done = after.n;
  if (!after.n)
    return true;

  response_cache_forget_channels(worker->server);
  row_answer(request, after.all);
  return true;
}

bool channel_put(struct worker *worker, struct request *request, const char *name,
                 const struct channel_move *move, const struct channel_condition *condition,
                 struct error *error) {
  if (!channel_name_check(name, error) ||
      !channel_precondition_check(condition->if_match, condition->if_none_match, error) ||
      !channel_may_be_moved(worker, request, name, error))
    return false;

  bool is_done = false;
  for (int attempt = 0; !is_done && attempt < CHANNEL_ATTEMPTS; attempt++)
    if (!channel_put_once(worker, request, name, move, condition, &is_done, error))
      return false;

  if (!is_done)
    contended_answer(request, name);
  return true;
}

bool route_channel_put(struct worker *worker, struct request *request, struct error *error) {
  struct channel_move move;
  const struct channel_condition condition = {request_header(request, "If-Match"),
                                              request_header(request, "If-None-Match")};
  if (!channel_name_check(request->segments[0], error) ||
      !channel_precondition_check(condition.if_match, condition.if_none_match, error) ||
      !channel_move_parse(request->json, &move, error))
    return false;
  return channel_put(worker, request, request->segments[0], &move, &condition, error);
}

bool channel_promote(struct worker *worker, const char *name, const struct digest *release,
                     const char *etag, const struct author *author, bool *ret_moved,
                     struct error *error) {
  cleanup_channel_rows struct channel_rows before = {0}, after = {0};
  const struct channel_move move = {.release = *release};
  *ret_moved = false;
  if (!row_of_release(worker->db, name, release, &before, error))
    return false;
  if (!before.n)
    return true;

  struct channel_state state = channel_row_state(before.all);
  if (channel_decide(&state, &before.all->entry, &move, etag, etag ? NULL : "*") != CHANNEL_MOVE)
    return true;
  if (!channel_move(worker->db, name, author, &state, &move, &after, error))
    return error->kind == ERROR_REFERENCE; /* the release was collected in between */
  *ret_moved = after.n > 0;
  if (*ret_moved)
    response_cache_forget_channels(worker->server);
  return true;
}

/* Reads, decides and adds once. *ret_done: it has answered; else the channel was changed, by
 * another request or by this call: try again. */
static bool signature_post_once(struct worker *worker, struct request *request,
                                const struct channel_signing *signing, bool *ret_done,
                                struct error *error) {
  const char *name = request->segments[0];
  struct digest wanted = environment_digest(&signing->environment);
  cleanup_channel_rows struct channel_rows rows = {0};
  if (!channel_rows_of_tag(worker->db, name, signing->tag, signing->regime, &rows, error))
    return false;

  const struct channel_row *row = NULL;
  for (size_t i = 0; !row && i < rows.n; i++) {
    struct digest there = environment_digest(&rows.all[i].entry.environment);
    if (digest_equal(&there, &wanted))
      row = &rows.all[i];
  }

  if (!row)
    return error_of(
        error, ERROR_MISSING,
        "channel \"%s\" has no entry for this environment, tag and regime; state all its members",
        name);

  *ret_done = true;
  switch (channel_signing_decide(&row->entry, signing)) {
  case SIGNING_KEEP:
    row_answer(request, row);
    return true;
  case SIGNING_STALE:
    return row_is_stale(request, row, error);
  case SIGNING_FULL:
    return error_at(error, "/signature",
                    "the entry has %d signatures by other keys, which is the limit",
                    CHANNEL_SIGNATURES_MAX);
  case SIGNING_ADD:
    break;
  }

  struct channel_entry entry = row->entry;
  entry.signatures = (struct channel_signatures){1, {signing->signature}};
  bool is_added;
  if (!publisher_is_trusted(request, &entry, error) ||
      !signature_add(worker->db, row, &signing->signature, request_author(request), &is_added,
                     error))
    return false;

  if (is_added)
    response_cache_forget_channels(worker->server);
  *ret_done = false;
  return true; /* after adding, the next attempt answers with the entry that has the signature */
}

bool route_channel_signature_post(struct worker *worker, struct request *request,
                                  struct error *error) {
  cleanup_channel_signing struct channel_signing signing = {0};
  if (!channel_name_check(request->segments[0], error) ||
      !channel_signing_parse(request->json, &signing, error) ||
      !channel_may_be_moved(worker, request, request->segments[0], error))
    return false;

  bool is_done = false;
  for (int attempt = 0; !is_done && attempt < CHANNEL_ATTEMPTS; attempt++)
    if (!signature_post_once(worker, request, &signing, &is_done, error))
      return false;

  if (!is_done)
    contended_answer(request, request->segments[0]);
  return true;
}

/* Reading */

/* With ?release=, the entry that a move to this release would replace. The caller decides about
 * that move with it, so it is never cached. */
bool route_channel_get(struct worker *worker, struct request *request, struct error *error) {
  static const char *const arguments[] = {"release", NULL}; /* besides it, none is of use */
  const char *name = request->segments[0], *digest = request_query(request, "release");
  struct digest release;
  cleanup_channel_lookup struct channel_lookup lookup = {0};
  if (!digest) {
    const struct channel_row *row =
        channel_row_look_up(worker, request, name, CACHE_RULE_EXACT, &lookup, error);
    if (!row)
      return false;
    char etag[CHANNEL_ETAG_SIZE];
    struct channel_state state = channel_row_state(row);
    entry_answer_cached(request, channel_entry_to_answer(&row->entry), channel_etag(&state, etag),
                        NULL);
    return true;
  }

  if (!query_check_only(request, arguments, error) || !channel_name_check(name, error) ||
      (!digest_parse(digest, &release) &&
       !error_set(error, "release=%.80s is no digest, sha256:…", digest)) ||
      !row_of_release(worker->db, name, &release, &lookup.rows, error))
    return false;
  if (!lookup.rows.n)
    return error_set(error, "there is no release %s; POST /v1/releases makes one", digest);
  if (!lookup.rows.all->entry.counter)
    return error_of(
        error, ERROR_MISSING,
        "channel \"%s\" has no entry yet for that release's environment, tag and regime", name);
  row_answer(request, lookup.rows.all);
  return true;
}

static json_t *entry_item(const void *entry) { return channel_entry_to_answer(entry); }

bool route_channel_list(struct worker *worker, struct request *request, struct error *error) {
  static const struct list list = {
      .statement = &sql_channels_list, .record = &channel_entry_record, .write = entry_item};
  return answer_page_by(worker, request, &list, error);
}

bool route_channel_entries(struct worker *worker, struct request *request, struct error *error) {
  static const struct list list = {.statement = &sql_channel_entries_list,
                                   .record = &channel_entry_record,
                                   .write = entry_item,
                                   .is_newest_first = true};
  cleanup_channel_lookup struct channel_lookup lookup = {0};
  const struct channel_row *row =
      channel_row_look_up(worker, request, request->segments[0], CACHE_RULE_EXACT, &lookup, error);
  if (!row)
    return false;

  const struct channel_entry *entry = &row->entry;
  struct digest environment = environment_digest(&entry->environment);
  cleanup_json json_t *json = environment_to_json(&entry->environment);
  return answer_page_by(worker, request, &list, error, BIND("name", entry->channel),
                        BIND("tag", entry->tag), BIND("regime", regime_name(entry->regime)),
                        BIND("environment_digest", &environment), BIND("environment", json));
}

void channels_housekeep(struct worker *worker) {
  static int64_t known, next_ms;
  struct error error;
  int64_t now = clock_monotonic_ms();
  if (now < next_ms)
    return;

  next_ms = now + server_options(worker->server)->poll_ms;
  cleanup_rows struct db_rows *rows = db_query(worker->db, &sql_lookups_state, &error);
  if (!rows) {
    log_warning("channels: %s", error.message);
    return;
  }

  int64_t state = db_get_integer(rows, 0, "state");
  if (state != known)
    response_cache_forget_channels(worker->server);
  known = state;
}
