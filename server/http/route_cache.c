/* GET /v1/cache and GET /v1/channels/{name}: from stated environment members to one channel entry.
 *
 * Memory: rows live as long as the handler. Threads: database workers. */
#include "server/core/cache_lookup.h"
#include "server/http/answers.h"
#include "server/http/channel_entry.h"
#include "server/http/routes.h"

json_t *channel_row_to_json(const struct channel_row *row) {
  json_t *entry =
      json_pack("{s:s, s:o, s:s, s:I, s:o, s:s}", "channel", row->name, "environment",
                environment_to_json(&row->environment), "tag", row->tag, "counter", (json_int_t)row->state.counter,
                "release", json_digest_text(&row->state.release), "updated_at", row->updated_at);
  ALWAYS(entry != NULL);
  return entry;
}

static const char *query_get(const void *request, const char *name) { return request_query(request, name); }

static void entry_answer(struct request *request, const struct channel_row *row, const char *match) {
  char etag[CHANNEL_ETAG_SIZE];
  cleanup_json json_t *entry = channel_row_to_json(row);
  char *text = json_dumps(entry, JSON_COMPACT);
  ALWAYS(text != NULL);
  request_answer_remembered(request, MEMORY_CHANNELS, "application/json", text, strlen(text),
                            channel_etag(&row->state, etag), match);
}

static void none_answer(struct request *request, const char *channel, const char *tag, const struct environment *asked,
                        const struct environment *const *there, size_t n) {
  struct error error;
  cleanup_free char *sentence = NULL, *wanted = environment_format(asked);
  json_t *nearest = cache_nearest(asked, there, n, &sentence);
  if (sentence)
    error_set(&error, "channel \"%s\" has no entry for %.150s with tag \"%.50s\"; %s", channel, wanted, tag, sentence);
  else
    error_set(&error, "channel \"%s\" has no entry with tag \"%.100s\"; GET /v1/channels lists all", channel, tag);
  request_problem_extra(request, 404, &error, json_pack("{s:o}", "nearest", nearest));
}

static void several_answer(struct request *request, const char *channel, json_t *fitting) {
  struct error error;
  error_set(&error,
            "channel \"%s\" has entries for %zu environments that fit; state the members in which they differ "
            "(\"environments\" lists them)",
            channel, json_array_size(fitting));
  request_problem_extra(request, 422, &error, json_pack("{s:o}", "environments", fitting));
}

static void rows_answer(struct request *request, const char *channel, const char *tag, const struct environment *asked,
                        const struct channel_rows *rows, const char *match) {
  size_t index = 0;
  cleanup_free const struct environment **there = xcalloc(rows->n + 1, sizeof(struct environment *));
  for (size_t i = 0; i < rows->n; i++)
    there[i] = &rows->all[i].environment;
  switch (cache_lookup(asked, there, rows->n, &index)) {
  case CACHE_MATCH_ONE:
    entry_answer(request, &rows->all[index], match);
    break;
  case CACHE_MATCH_NONE:
    none_answer(request, channel, tag, asked, there, rows->n);
    break;
  case CACHE_MATCH_SEVERAL:
    several_answer(request, channel, cache_fitting(asked, there, rows->n));
    break;
  }
}

void channel_entry_answer(struct worker *worker, struct request *request, const char *channel, const char *match) {
  struct error error;
  const char *tag = request_query(request, "tag");
  __attribute__((cleanup(environment_release))) struct environment asked = {0};
  cleanup_channel_rows struct channel_rows rows = {0};
  if (!tag)
    tag = "default";
  if (!channel_name_check(channel, &error) || !environment_from_texts(query_get, request, &asked, &error)) {
    error.pointer[0] = 0; /* it would point into a body, and there is none */
    request_refuse(request, 422, &error);
  } else if (!channel_rows_load(worker->db, channel, tag, &rows, &error)) {
    answer_failure(worker, request, &error);
  } else {
    rows_answer(request, channel, tag, &asked, &rows, match);
  }
}

#define X(member, hardware) #member,
static const char *const cache_arguments[] = {ENVIRONMENT_TEXTS(X) "compute_units", "tag", "channel", NULL};
#undef X

void route_cache_get(struct worker *worker, struct request **requests, size_t n) {
  for (size_t i = 0; i < n; i++) {
    const char *channel = request_query(requests[i], "channel");
    if (request_query_only(requests[i], cache_arguments))
      channel_entry_answer(worker, requests[i], channel ? channel : "stable", "exact");
  }
}
