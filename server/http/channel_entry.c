/* From stated environment members to one channel entry, and the entry as JSON.
 *
 * Memory: rows live as long as the handler. Threads: database workers. */
#include "server/http/channel_entry.h"

#include "server/core/cache_lookup.h"
#include "server/http/answers.h"

json_t *channel_row_to_json(const struct channel_row *row) {
  json_t *entry = channel_entry_to_json(&row->entry, true);
  ALWAYS(json_object_set_new(entry, "updated_at", json_string(row->updated_at)) == 0);
  if (row->moved_by)
    ALWAYS(json_object_set_new(entry, "moved_by", json_string(row->moved_by)) == 0);
  return entry;
}

void channel_row_answer(struct request *request, const struct channel_row *row) {
  char etag[CHANNEL_ETAG_SIZE];
  struct channel_state state = channel_row_state(row);
  cleanup_free char *quoted = xasprintf("\"%s\"", channel_etag(&state, etag));
  request_add_header(request, "ETag", quoted);
  request_answer_json(request, 200, channel_row_to_json(row));
}

void channel_elsewhere_answer(struct request *request, const struct channel_row *row) {
  struct error error;
  char etag[CHANNEL_ETAG_SIZE], digest[DIGEST_TEXT_SIZE];
  if (!row->entry.counter) {
    error_set(
        &error,
        "channel \"%s\" has no entry yet for this environment and tag: there is nothing for If-Match to match, and "
        "its first counter is 1",
        row->entry.channel);
    request_problem_extra(request, 412, &error, json_pack("{s:n}", "etag"));
    return;
  }
  struct channel_state state = channel_row_state(row);
  error_set(&error, "channel \"%s\" is at counter %lld, release %s: read it, and decide again", row->entry.channel,
            (long long)row->entry.counter, digest_format(&row->entry.release, digest));
  cleanup_free char *quoted = xasprintf("\"%s\"", channel_etag(&state, etag));
  request_add_header(request, "ETag", quoted);
  request_problem_extra(request, 412, &error,
                        json_pack("{s:s, s:o}", "etag", quoted, "entry", channel_row_to_json(row)));
}

void channel_contended_answer(struct request *request, const char *name) {
  struct error error;
  error_set(&error, "channel \"%s\" is being moved by others all the time; try again", name);
  request_unavailable(request, &error);
}

bool channel_publisher_is_trusted(struct request *request, const struct channel_entry *entry) {
  struct error error;
  const struct trusted_keys *keys = server_publisher_keys(request->server);
  if (!keys->n)
    return true;
  if (!entry->n_signatures)
    error_set(&error,
              "this server takes only what a publisher signed, and this is not signed; move channel \"%s\" with "
              "--sign-key",
              entry->channel);
  else if (channel_entry_verify(entry, keys, &error))
    return true;
  else
    error_prefix(&error, "this server takes only what a publisher signed, and ");
  request_refuse(request, 403, &error);
  return false;
}

static const char *query_get(const void *request, const char *name) { return request_query(request, name); }

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

static const struct channel_row *row_choose(struct request *request, const char *channel, const char *tag,
                                            const struct environment *asked, const struct channel_rows *rows) {
  size_t index = 0;
  cleanup_free const struct environment **there = xcalloc(rows->n + 1, sizeof(struct environment *));
  for (size_t i = 0; i < rows->n; i++)
    there[i] = &rows->all[i].entry.environment;
  switch (cache_lookup(asked, there, rows->n, &index)) {
  case CACHE_MATCH_ONE:
    return &rows->all[index];
  case CACHE_MATCH_NONE:
    none_answer(request, channel, tag, asked, there, rows->n);
    break;
  case CACHE_MATCH_SEVERAL:
    several_answer(request, channel, cache_fitting(asked, there, rows->n));
    break;
  }
  return NULL;
}

const struct channel_row *channel_row_find(struct worker *worker, struct request *request, const char *channel,
                                           struct channel_rows *ret_rows) {
  struct error error;
  const char *tag = request_query(request, "tag");
  cleanup_environment struct environment asked = {0};
  if (!tag)
    tag = "default";
  if (!channel_name_check(channel, &error) || !environment_from_texts(query_get, request, &asked, &error)) {
    error.pointer[0] = 0; /* it would point into a body, and there is none */
    request_refuse(request, 422, &error);
    return NULL;
  }
  if (!channel_rows_load(worker->db, channel, tag, ret_rows, &error)) {
    answer_failure(worker, request, &error);
    return NULL;
  }
  return row_choose(request, channel, tag, &asked, ret_rows);
}

void channel_entry_answer(struct worker *worker, struct request *request, const char *channel, const char *match) {
  char etag[CHANNEL_ETAG_SIZE];
  cleanup_channel_rows struct channel_rows rows = {0};
  const struct channel_row *row = channel_row_find(worker, request, channel, &rows);
  if (!row)
    return;
  struct channel_state state = channel_row_state(row);
  cleanup_json json_t *entry = channel_row_to_json(row);
  char *text = json_dumps(entry, JSON_COMPACT);
  ALWAYS(text != NULL);
  request_answer_remembered(request, MEMORY_CHANNELS, "application/json", text, strlen(text),
                            channel_etag(&state, etag), match);
}
