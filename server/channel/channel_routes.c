/* PUT and GET of channels, their history, and noticing what another server changed.
 *
 * Memory: rows live as long as the handler. Threads: database workers; channels_housekeep: the housekeeper. */
#include "common/base/log.h"
#include "server/channel/channel_entry.h"
#include "server/housekeep.h"
#include "server/http/answers.h"
#include "server/http/page.h"
#include "server/http/routes.h"

/* What the move would make of the row; borrows its texts. */
static struct channel_entry entry_after(const struct channel_row *row, const struct channel_move *move) {
  struct channel_entry entry = row->entry;
  entry.release = move->release;
  entry.counter = move->counter;
  entry.expires_s = move->expires_s;
  entry.n_signatures = move->n_signatures;
  memcpy(entry.signatures, move->signatures, sizeof entry.signatures);
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
    request_problem(request, 422, "/release", "there is no release %s; POST /v1/releases makes one",
                    digest_format(&move->release, text));
    return true;
  }
  const struct channel_row *row = before.all;
  const struct channel_state state = channel_row_state(row);
  const struct channel_entry wanted = entry_after(row, move);
  if (!channel_publisher_is_trusted(request, &wanted))
    return true;
  switch (channel_decide(&state, &row->entry, move, request_header(request, "If-Match"),
                         request_header(request, "If-None-Match"))) {
  case CHANNEL_KEEP:
    channel_row_answer(request, row);
    return true;
  case CHANNEL_REFUSE:
    channel_elsewhere_answer(request, row);
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
  channel_row_answer(request, after.all);
  return true;
}

static const char *const no_arguments[] = {NULL};

void route_channel_put(struct worker *worker, struct request *request) {
  const char *name = request->segments[0];
  struct error error;
  struct channel_move move;
  if (!request_query_only(request, no_arguments))
    return;
  if (!channel_name_check(name, &error) ||
      !channel_precondition_check(request_header(request, "If-Match"), request_header(request, "If-None-Match"),
                                  &error) ||
      !channel_move_parse(request->json, &move, &error)) {
    request_refuse(request, 422, &error);
    return;
  }
  if (!channel_is_publishers(worker, request, name))
    return;
  for (int attempt = 0; attempt < CHANNEL_ATTEMPTS; attempt++)
    if (channel_put_once(worker, request, name, &move))
      return;
  channel_contended_answer(request, name);
}

#define X(member, hardware) #member,
static const char *const entry_arguments[] = {ENVIRONMENT_TEXTS(X) "compute_units", "tag", "regime", NULL};
static const char *const history_arguments[] = {
    ENVIRONMENT_TEXTS(X) "compute_units", "tag", "regime", "limit", "after", NULL};
#undef X

/* The entry that a move to this release would follow: read for that move, so never from memory. */
static void entry_of_release_answer(struct worker *worker, struct request *request, const char *digest) {
  static const char *const arguments[] = {"release", NULL};
  struct error error;
  struct digest release;
  cleanup_channel_rows struct channel_rows rows = {0};
  if (!request_query_only(request, arguments))
    return;
  if (!channel_name_check(request->segments[0], &error) ||
      (!digest_parse(digest, &release) && !error_set(&error, "release=%.80s is no digest, sha256:…", digest)))
    request_refuse(request, 422, &error);
  else if (!channel_row_of_release(worker->db, request->segments[0], &release, &rows, &error))
    answer_failure(request, &error);
  else if (!rows.n)
    request_problem(request, 422, "", "there is no release %s; POST /v1/releases makes one", digest);
  else if (!rows.all->entry.counter)
    request_problem(request, 404, "", "channel \"%s\" has no entry yet for that release's environment, tag and regime",
                    request->segments[0]);
  else
    channel_row_answer(request, rows.all);
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
    ALWAYS(json_array_append_new(items, channel_row_to_json(&rows->all[i])) == 0);
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
  if (!request_query_only(request, history_arguments) || !page_by_id(request, INT64_MAX, &limit, &before))
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
