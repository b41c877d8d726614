/* Reading the entries of channels. Memory and threads: entries.h. */
#include "server/cache/entries.h"

#include <inttypes.h>

#include "server/cache/cache.sql.h"
#include "server/db/db_record.h"

char *channel_etag(const struct channel_state *state, char text[CHANNEL_ETAG_SIZE]) {
  char digest[DIGEST_TEXT_SIZE];
  digest_format(&state->release, digest);
  snprintf(text, CHANNEL_ETAG_SIZE, "%" PRId64 ".%" PRId64 "-%s", state->counter, state->signings,
           digest + strlen("sha256:"));
  return text;
}

#define RECORD_OF struct channel_row
static const struct field row_fields[] = {
    MEMBER(INTEGER, id),
    MEMBER(RECORD, entry, .of = &channel_entry_record),
    MEMBER(INTEGER, signings),
};
#undef RECORD_OF
static const struct record row_record = RECORD(NULL, struct channel_row, row_fields);

void channel_rows_release(struct channel_rows *rows) {
  db_records_free(&row_record, rows->all, rows->n);
  *rows = (struct channel_rows){0};
}

struct channel_state channel_row_state(const struct channel_row *row) {
  return (struct channel_state){row->entry.counter, row->entry.release, row->signings};
}

bool channel_rows_read(struct db_rows *rows, struct channel_rows *ret) {
  cleanup_rows struct db_rows *own = rows;
  if (own)
    ret->all = db_read_all(own, &row_record, &ret->n);
  return own != NULL;
}

bool channel_rows_of_tag(struct db *db, const char *name, const char *tag, enum regime regime,
                         struct channel_rows *ret, struct error *error) {
  return channel_rows_read(db_query(db, &sql_channel_rows, error, BIND("name", name),
                                    BIND("tag", tag), BIND("regime", regime_name(regime))),
                           ret);
}

void channel_lookup_release(struct channel_lookup *lookup) {
  environment_release(&lookup->asked);
  channel_rows_release(&lookup->rows);
  compatibilities_release(&lookup->declared);
}

static const char *query_get(const void *request, const char *name) {
  return request_query(request, name);
}

const struct channel_row *channel_row_look_up(struct worker *worker, struct request *request,
                                              const char *channel, enum cache_rule widest,
                                              struct channel_lookup *lookup, struct error *error) {
  const char *tag = request_query(request, "tag"), *regime = request_query(request, "regime");
  enum regime wanted = REGIME_IMPLIED;
  tag = tag ? tag : "default";
  if (!channel_name_check(channel, error) || (regime && !regime_parse(regime, &wanted, error)) ||
      !environment_from_texts(query_get, request, &lookup->asked, error)) {
    error->pointer[0] = 0; /* a pointer into the body, which this request does not have */
    return NULL;
  }

  if (!channel_rows_of_tag(worker->db, channel, tag, wanted, &lookup->rows, error) ||
      (widest == CACHE_RULE_COMPATIBLE &&
       !compatibilities_load(worker->db, &lookup->declared, error)))
    return NULL;

  size_t n = lookup->rows.n;
  json_t *extra = NULL;
  cleanup_free char *sentence = NULL, *asked = environment_format(&lookup->asked);
  cleanup_free const struct environment **there = xcalloc(n + 1, sizeof(struct environment *));
  for (size_t i = 0; i < n; i++)
    there[i] = &lookup->rows.all[i].entry.environment;
  switch (cache_resolve(&lookup->asked, there, n, widest, &lookup->declared, &lookup->resolved)) {
  case CACHE_MATCH_ONE:
    return &lookup->rows.all[lookup->resolved.index];
  case CACHE_MATCH_NONE:
    lookup->is_none = true;
    extra = json_pack("{s:o}", "nearest", cache_nearest(&lookup->asked, there, n, &sentence));
    if (sentence)
      error_of(error, ERROR_MISSING,
               "channel \"%s\" has no entry for %.150s with tag \"%.50s\" and regime %s; %s",
               channel, asked, tag, regime_name(wanted), sentence);
    else
      error_of(error, ERROR_MISSING,
               "channel \"%s\" has no entry with tag \"%.100s\" and regime %s; GET /v1/channels "
               "lists all",
               channel, tag, regime_name(wanted));
    if (!lookup->may_be_none)
      request_add_header(request, "Wavetune-Match", "none");
    break;
  case CACHE_MATCH_SEVERAL:
    extra = json_pack("{s:o}", "environments", cache_fitting(&lookup->asked, there, n));
    error_set(error,
              "channel \"%s\" has entries for %zu environments that fit; state the members in "
              "which they differ (\"environments\" lists them)",
              channel, json_array_size(json_object_get(extra, "environments")));
    break;
  }

  if (lookup->is_none && lookup->may_be_none)
    json_decref(extra);
  else
    request->extra = extra;
  return NULL;
}

void entry_answer_cached(struct request *request, json_t *entry, const char *etag,
                         const char *match) {
  cleanup_json json_t *owned = entry;
  char *text = json_dumps(owned, JSON_COMPACT);
  ALWAYS(text != NULL);
  request_answer_cached(request, RESPONSE_OF_CHANNELS, "application/json", text, strlen(text), etag,
                        match);
}

bool served_entry_find(struct worker *worker, struct request *request, bool may_be_none,
                       struct served_entry *ret, struct error *error) {
  const char *channel = request_query(request, "channel"), *match = request_query(request, "match");
  enum cache_rule widest = CACHE_RULE_UNSTATED;
  cleanup_channel_lookup struct channel_lookup lookup = {.may_be_none = may_be_none};
  if (match && !cache_rule_parse(match, &widest))
    return error_set(error, "match=%.32s is unknown: it must be " CACHE_RULES, match);

  const struct channel_row *row =
      channel_row_look_up(worker, request, channel ? channel : "stable", widest, &lookup, error);
  if (!row && !(may_be_none && lookup.is_none))
    return false;

  *ret = (struct served_entry){0};
  if (row) {
    const struct channel_entry *entry = &row->entry;
    struct channel_state state = channel_row_state(row);
    ret->answer = channel_entry_to_answer(entry);
    json_put(ret->answer, "match",
             cache_match_to_json(&lookup.asked, &entry->environment, &lookup.resolved));
    ret->match = cache_match_header(&lookup.asked, &entry->environment, &lookup.resolved);
    ret->fetch = (struct fetch){.release = entry->release, .rule = lookup.resolved.rule};
    snprintf(ret->fetch.channel, sizeof ret->fetch.channel, "%s", entry->channel);
    channel_etag(&state, ret->etag);
  }

  if (!row)
    ret->why = xstrdup(error->message);
  return true;
}

void served_entry_release(struct served_entry *served) {
  json_decref(served->answer);
  free(served->match);
  free(served->why);
}

bool route_cache_get(struct worker *worker, struct request *request, struct error *error) {
  cleanup_served_entry struct served_entry served = {0};
  if (!served_entry_find(worker, request, false, &served, error))
    return false;

  served.fetch.kind = FETCH_ENTRY;
  fetches_note(request, &served.fetch);
  entry_answer_cached(request, TAKE(served.answer), served.etag, served.match);
  return true;
}
