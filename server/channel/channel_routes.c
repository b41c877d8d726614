/* PUT and GET of channels, signatures that are added, history, and noticing what another server
 * changed.
 *
 * Memory: rows live as long as the handler. Threads: database workers; channels_housekeep: the
 * housekeeper. */
#include "common/base/log.h"
#include "server/channel/channel_entry.h"
#include "server/housekeep.h"
#include "server/http/answers.h"
#include "server/http/page.h"
#include "server/http/routes.h"
#include "server/token/tokens.h"

/* How often a move or a signature is tried anew, each time because somebody else moved the channel
 * in between. */
#define CHANNEL_ATTEMPTS 16

static const char *const no_arguments[] = {NULL};

static void row_answer(struct request *request, const struct channel_row *row) {
  char etag[CHANNEL_ETAG_SIZE];
  struct channel_state state = channel_row_state(row);
  cleanup_free char *quoted = xasprintf("\"%s\"", channel_etag(&state, etag));
  request_add_header(request, "ETag", quoted);
  request_answer_json(request, 200, channel_entry_to_answer(&row->entry));
}

/* 412 with the entry that is there; the row's counter is 0 when there is none. */
static void elsewhere_answer(struct request *request, const struct channel_row *row) {
  struct error error;
  char etag[CHANNEL_ETAG_SIZE], digest[DIGEST_TEXT_SIZE];
  if (!row->entry.counter) {
    error_of(&error, ERROR_PRECONDITION,
             "channel \"%s\" has no entry yet for this environment, tag and regime: there is "
             "nothing for If-Match to "
             "match, and its first counter is 1",
             row->entry.channel);
    answer_failure_extra(request, &error, json_pack("{s:n}", "etag"));
    return;
  }

  struct channel_state state = channel_row_state(row);
  error_of(&error, ERROR_PRECONDITION,
           "channel \"%s\" is at counter %lld, release %s: read it, and decide again",
           row->entry.channel, (long long)row->entry.counter,
           digest_format(&row->entry.release, digest));
  cleanup_free char *quoted = xasprintf("\"%s\"", channel_etag(&state, etag));
  request_add_header(request, "ETag", quoted);
  answer_failure_extra(
      request, &error,
      json_pack("{s:s, s:o}", "etag", quoted, "entry", channel_entry_to_answer(&row->entry)));
}

static void contended_answer(struct request *request, const char *name) {
  answer_refusal(request, ERROR_UNAVAILABLE, "",
                 "channel \"%s\" is being moved by others all the time; try again", name);
}

/* Whether the operator's keys (--publisher-key) allow the entry; without any all are allowed.
 * Otherwise answers 403. */
static bool publisher_is_trusted(struct request *request, const struct channel_entry *entry) {
  struct error error;
  const struct trusted_keys *keys = server_publisher_keys(request->server);
  if (!keys->n)
    return true;
  if (!entry->signatures.n)
    error_set(&error,
              "this server takes only what a publisher signed, and this is not signed; move "
              "channel \"%s\" with "
              "--sign-key",
              entry->channel);
  else if (channel_entry_verify(entry, keys, &error))
    return true;
  else
    error_prefix(&error, "this server takes only what a publisher signed, and ");
  error_become(&error, ERROR_FORBIDDEN);
  answer_failure(request, &error);
  return false;
}

/* Whether the token may move this channel: a publisher's names it, an admin's need not. Otherwise
 * answers 403. */
static bool channel_is_publishers(struct worker *worker, struct request *request,
                                  const char *channel) {
  struct error error;
  cleanup_free char *patterns = NULL;
  bool may = false;
  if (request->roles & TOKEN_ADMIN)
    return true;
  if (!token_moves_channel(worker->db, request->token_id, channel, &may, &patterns, &error))
    answer_failure(request, &error);
  else if (!may)
    answer_refusal(request, ERROR_FORBIDDEN, "",
                   "the token \"%s\" publishes the channels %.500s, and \"%s\" is none of them",
                   request->token_name, patterns, channel);
  return may;
}

/* What the move would make of the row; borrows its texts. */
static struct channel_entry entry_after(const struct channel_row *row,
                                        const struct channel_move *move) {
  struct channel_entry entry = row->entry;
  entry.release = move->release;
  entry.counter = move->counter;
  entry.expires_s = move->expires_s;
  entry.signatures = move->signatures;
  return entry;
}

/* Reads, decides and moves once. False: it was changed in between. */
static bool channel_put_once(struct worker *worker, struct request *request, const char *name,
                             const struct channel_move *move) {
  struct error error;
  char text[DIGEST_TEXT_SIZE];
  cleanup_channel_rows struct channel_rows before = {0}, after = {0};

  if (!channel_row_of_release(worker->db, name, &move->release, &before, &error)) {
    answer_failure(request, &error);
    return true;
  }
  if (!before.n) {
    answer_refusal(request, ERROR_INVALID, "/release",
                   "there is no release %s; POST /v1/releases makes one",
                   digest_format(&move->release, text));
    return true;
  }

  const struct channel_row *row = before.all;
  const struct channel_state state = channel_row_state(row);
  const struct channel_entry wanted = entry_after(row, move);
  const char *if_match = request_header(request, "If-Match");
  const char *if_none_match = request_header(request, "If-None-Match");
  if (!publisher_is_trusted(request, &wanted))
    return true;
  switch (channel_decide(&state, &row->entry, move, if_match, if_none_match)) {
  case CHANNEL_KEEP:
    row_answer(request, row);
    return true;
  case CHANNEL_REFUSE:
    elsewhere_answer(request, row);
    return true;
  case CHANNEL_MOVE:
    break;
  }

  if (!channel_move(worker->db, name, &state, move, request_author(request), &after, &error)) {
    if (error.kind == ERROR_REFERENCE) /* the release was collected in between */
      return false;
    answer_failure(request, &error);
    return true;
  }
  if (!after.n)
    return false;

  response_memory_forget_channels(worker->server);
  row_answer(request, after.all);
  return true;
}

void route_channel_put(struct worker *worker, struct request *request) {
  const char *name = request->segments[0];
  struct error error;
  struct channel_move move;
  if (!request_query_only(request, no_arguments))
    return;

  if (!channel_name_check(name, &error) ||
      !channel_precondition_check(request_header(request, "If-Match"),
                                  request_header(request, "If-None-Match"), &error) ||
      !channel_move_parse(request->json, &move, &error)) {
    answer_failure(request, &error);
    return;
  }
  if (!channel_is_publishers(worker, request, name))
    return;

  for (int attempt = 0; attempt < CHANNEL_ATTEMPTS; attempt++)
    if (channel_put_once(worker, request, name, &move))
      return;
  contended_answer(request, name);
}

static const struct channel_row *row_of_environment(const struct channel_rows *rows,
                                                    const struct environment *environment) {
  struct digest wanted = environment_digest(environment);
  for (size_t i = 0; i < rows->n; i++) {
    struct digest there = environment_digest(&rows->all[i].entry.environment);
    if (digest_equal(&there, &wanted))
      return &rows->all[i];
  }
  return NULL;
}

/* Whether the entry's signature may be added as it stands: a server that knows the publishers
 * verifies it first. */
static bool signing_is_trusted(struct request *request, const struct channel_row *row,
                               const struct channel_signing *signing) {
  struct channel_entry entry = row->entry;
  entry.signatures = (struct channel_signatures){1, {signing->signature}};
  return publisher_is_trusted(request, &entry);
}

/* Reads, decides and adds once. False: somebody else moved it in between. */
static bool signature_post_once(struct worker *worker, struct request *request, const char *name,
                                const struct channel_signing *signing) {
  struct error error;
  bool is_done;
  cleanup_channel_rows struct channel_rows rows = {0};
  if (!channel_rows_load(worker->db, name, signing->tag, signing->regime, &rows, &error)) {
    answer_failure(request, &error);
    return true;
  }

  const struct channel_row *row = row_of_environment(&rows, &signing->environment);
  if (!row) {
    answer_refusal(
        request, ERROR_MISSING, "",
        "channel \"%s\" has no entry for this environment, tag and regime; state all its members",
        name);
    return true;
  }
  switch (channel_signing_decide(&row->entry, signing)) {
  case SIGNING_KEEP:
    row_answer(request, row);
    return true;
  case SIGNING_ELSEWHERE:
    elsewhere_answer(request, row);
    return true;
  case SIGNING_FULL:
    answer_refusal(request, ERROR_INVALID, "/signature",
                   "the entry has %d signatures by other keys, and no more fit",
                   CHANNEL_SIGNATURES_MAX);
    return true;
  case SIGNING_ADD:
    break;
  }

  if (!signing_is_trusted(request, row, signing))
    return true;
  if (!channel_signature_add(worker->db, row, &signing->signature, request_author(request),
                             &is_done, &error)) {
    answer_failure(request, &error);
    return true;
  }
  if (is_done)
    response_memory_forget_channels(worker->server);
  return false; /* read it again: it says now that the signature is there */
}

void route_channel_signature_post(struct worker *worker, struct request *request) {
  const char *name = request->segments[0];
  struct error error;
  bool is_answered = false;
  cleanup_channel_signing struct channel_signing signing = {0};
  if (!request_query_only(request, no_arguments))
    return;

  if (!channel_name_check(name, &error) ||
      !channel_signing_parse(request->json, &signing, &error)) {
    answer_failure(request, &error);
    return;
  }
  if (!channel_is_publishers(worker, request, name))
    return;

  for (int attempt = 0; attempt < CHANNEL_ATTEMPTS && !is_answered; attempt++)
    is_answered = signature_post_once(worker, request, name, &signing);
  if (!is_answered)
    contended_answer(request, name);
}

#define X(member, hardware) #member,
static const char *const entry_arguments[] = {ENVIRONMENT_TEXTS(X) "compute_units", "tag", "regime",
                                              NULL};
static const char *const history_arguments[] = {
    ENVIRONMENT_TEXTS(X) "compute_units", "tag", "regime", "limit", "after", NULL};
#undef X

/* The entry that a move to this release would follow: read for that move, so never from memory. */
static void entry_of_release_answer(struct worker *worker, struct request *request,
                                    const char *digest) {
  static const char *const arguments[] = {"release", NULL};
  struct error error;
  struct digest release;
  cleanup_channel_rows struct channel_rows rows = {0};
  if (!request_query_only(request, arguments))
    return;
  if (!channel_name_check(request->segments[0], &error) ||
      (!digest_parse(digest, &release) &&
       !error_set(&error, "release=%.80s is no digest, sha256:…", digest)))
    answer_failure(request, &error);
  else if (!channel_row_of_release(worker->db, request->segments[0], &release, &rows, &error))
    answer_failure(request, &error);
  else if (!rows.n)
    answer_refusal(request, ERROR_INVALID, "",
                   "there is no release %s; POST /v1/releases makes one", digest);
  else if (!rows.all->entry.counter)
    answer_refusal(request, ERROR_MISSING, "",
                   "channel \"%s\" has no entry yet for that release's environment, tag and regime",
                   request->segments[0]);
  else
    row_answer(request, rows.all);
}

void route_channel_get(struct worker *worker, struct request *request) {
  const char *release = request_query(request, "release");
  if (release)
    entry_of_release_answer(worker, request, release);
  else if (request_query_only(request, entry_arguments))
    channel_entry_answer(worker, request, request->segments[0]);
}

static void rows_answer(struct request *request, const struct channel_rows *rows, int64_t next) {
  json_t *items = json_array();
  for (size_t i = 0; i < rows->n; i++)
    ALWAYS(json_array_append_new(items, channel_entry_to_answer(&rows->all[i].entry)) == 0);
  request_answer_json(request, 200, page_to_json(items, next));
}

void route_channel_list(struct worker *worker, struct request *request) {
  static const char *const arguments[] = {"limit", "after", NULL};
  int64_t limit, after, next;
  struct error error;
  cleanup_channel_rows struct channel_rows rows = {0};
  if (!request_query_only(request, arguments) || !page_by_id(request, 0, &limit, &after))
    return;
  if (!channel_rows_list(worker->db, after, limit, &rows, &next, &error))
    answer_failure(request, &error);
  else
    rows_answer(request, &rows, next);
}

void route_channel_entries(struct worker *worker, struct request *request) {
  int64_t limit, before, next;
  struct error error;
  cleanup_channel_rows struct channel_rows rows = {0}, entries = {0};
  if (!request_query_only(request, history_arguments) ||
      !page_by_id(request, INT64_MAX, &limit, &before))
    return;
  const struct channel_row *row = channel_row_find(worker, request, request->segments[0], &rows);
  if (!row)
    return;
  if (!channel_entries_list(worker->db, row, before, limit, &entries, &next, &error))
    answer_failure(request, &error);
  else
    rows_answer(request, &entries, next);
}

void channels_housekeep(struct worker *worker) {
  static int64_t known, next_ms;
  struct error error;
  int64_t state, now = clock_monotonic_ms();
  if (now < next_ms)
    return;
  next_ms = now + server_options(worker->server)->poll_ms;
  if (!lookups_state(worker->db, &state, &error)) {
    log_warning("channels: %s", error.message);
    return;
  }
  if (state != known)
    response_memory_forget_channels(worker->server);
  known = state;
}
