/* PUT and GET of channels, and noticing that another server moved one.
 *
 * Memory: rows live as long as the handler. Threads: database workers; channels_housekeep: the housekeeper. */
#include "common/log.h"
#include "server/core/housekeep.h"
#include "server/http/answers.h"
#include "server/http/channel_entry.h"
#include "server/http/page.h"
#include "server/http/routes.h"

/* Each further attempt means that somebody else moved the channel in between. */
#define MOVE_ATTEMPTS 16

static void etag_header(struct request *request, const struct channel_state *state) {
  char etag[CHANNEL_ETAG_SIZE];
  cleanup_free char *quoted = xasprintf("\"%s\"", channel_etag(state, etag));
  request_add_header(request, "ETag", quoted);
}

static void row_answer(struct request *request, const struct channel_row *row) {
  etag_header(request, &row->state);
  request_answer_json(request, 200, channel_row_to_json(row));
}

/* `row` is NULL when there is no entry yet. */
static void precondition_answer(struct request *request, const char *name, const struct channel_row *row) {
  struct error error;
  char etag[CHANNEL_ETAG_SIZE], digest[DIGEST_TEXT_SIZE];
  if (!row) {
    error_set(&error, "channel \"%s\" has no entry yet for this environment and tag, so If-Match cannot hold", name);
    request_problem_extra(request, 412, &error, json_pack("{s:n}", "etag"));
    return;
  }
  error_set(&error, "channel \"%s\" is at counter %lld, release %s: read it, and decide again", name,
            (long long)row->state.counter, digest_format(&row->state.release, digest));
  cleanup_free char *quoted = xasprintf("\"%s\"", channel_etag(&row->state, etag));
  etag_header(request, &row->state);
  request_problem_extra(request, 412, &error,
                        json_pack("{s:s, s:o}", "etag", quoted, "entry", channel_row_to_json(row)));
}

/* Reads, decides and moves once. False: somebody else moved it in between. */
static bool channel_put_once(struct worker *worker, struct request *request, const char *name,
                             const struct digest *release) {
  struct error error;
  bool known;
  char text[DIGEST_TEXT_SIZE];
  cleanup_channel_rows struct channel_rows before = {0}, after = {0};
  if (!channel_row_of_release(worker->db, name, release, &known, &before, &error)) {
    answer_failure(worker, request, &error);
    return true;
  }
  if (!known) {
    request_problem(request, 422, "/release", "there is no release %s; POST /v1/releases makes one",
                    digest_format(release, text));
    return true;
  }
  const struct channel_row *row = before.n ? before.all : NULL;
  const struct channel_state none = {0}, *state = row ? &row->state : &none;
  switch (
      channel_decide(state, release, request_header(request, "If-Match"), request_header(request, "If-None-Match"))) {
  case CHANNEL_KEEP:
    row_answer(request, row);
    return true;
  case CHANNEL_REFUSE:
    precondition_answer(request, name, row);
    return true;
  case CHANNEL_MOVE:
    break;
  }
  if (!channel_move(worker->db, name, state, release, request->token_name, &after, &error)) {
    answer_failure(worker, request, &error);
    return true;
  }
  if (!after.n)
    return false;
  response_memory_forget_channels(worker->server);
  row_answer(request, after.all);
  return true;
}

static void channel_put(struct worker *worker, struct request *request) {
  static const char *const members[] = {"release", NULL}, *const no_arguments[] = {NULL};
  const char *name = request->segments[0];
  struct error error;
  struct digest release;
  if (!request_query_only(request, no_arguments))
    return;
  if (!channel_name_check(name, &error) ||
      !channel_precondition_check(request_header(request, "If-Match"), request_header(request, "If-None-Match"),
                                  &error) ||
      !json_only_members(request->json, "", members, &error) ||
      !json_get_digest(request->json, "", "release", JSON_REQUIRED, &release, &error)) {
    request_refuse(request, 422, &error);
    return;
  }
  for (int attempt = 0; attempt < MOVE_ATTEMPTS; attempt++)
    if (channel_put_once(worker, request, name, &release))
      return;
  error_set(&error, "channel \"%s\" is being moved by others all the time; try again", name);
  request_unavailable(request, &error);
}

void route_channel_put(struct worker *worker, struct request **requests, size_t n) {
  for (size_t i = 0; i < n; i++)
    channel_put(worker, requests[i]);
}

#define X(member, hardware) #member,
static const char *const entry_arguments[] = {ENVIRONMENT_TEXTS(X) "compute_units", "tag", NULL};
#undef X

void route_channel_get(struct worker *worker, struct request **requests, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (request_query_only(requests[i], entry_arguments))
      channel_entry_answer(worker, requests[i], requests[i]->segments[0], NULL);
}

static void channel_list(struct worker *worker, struct request *request) {
  static const char *const arguments[] = {"limit", "after", NULL};
  int64_t limit, after, next;
  struct error error;
  cleanup_channel_rows struct channel_rows rows = {0};
  if (!request_query_only(request, arguments) || !page_by_id(request, 0, &limit, &after))
    return;
  if (!channel_rows_list(worker->db, after, limit, &rows, &next, &error)) {
    answer_failure(worker, request, &error);
    return;
  }
  json_t *items = json_array();
  for (size_t i = 0; i < rows.n; i++)
    ALWAYS(json_array_append_new(items, channel_row_to_json(&rows.all[i])) == 0);
  request_answer_json(request, 200, page_to_json(items, next));
}

void route_channel_list(struct worker *worker, struct request **requests, size_t n) {
  for (size_t i = 0; i < n; i++)
    channel_list(worker, requests[i]);
}

void channels_housekeep(struct worker *worker) {
  static int64_t known_moves = -1, next_ms;
  struct error error;
  int64_t moves, now = clock_monotonic_ms();
  if (now < next_ms)
    return;
  next_ms = now + server_options(worker->server)->poll_ms;
  if (!channel_moves(worker->db, &moves, &error)) {
    log_warning("channels: %s", error.message);
    return;
  }
  if (moves != known_moves)
    response_memory_forget_channels(worker->server);
  known_moves = moves;
}
