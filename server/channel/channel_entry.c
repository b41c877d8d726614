/* From stated environment members to one channel entry, which is answered.
 *
 * Memory: rows live as long as the handler. Threads: database workers. */
#include "server/channel/channel_entry.h"

#include "server/cache/cache_lookup.h"
#include "server/cache/compatibilities.h"
#include "server/http/answers.h"
#include "server/http/routes.h"

static const char *query_get(const void *request, const char *name) {
  return request_query(request, name);
}

/* What a query means, and what there is. */
struct question {
  const char *channel, *tag;
  enum regime regime;
  struct environment asked;
  struct channel_rows rows;
};

static void none_answer(struct request *request, const struct question *question,
                        const struct environment *const *there) {
  struct error error;
  const char *regime = regime_name(question->regime);
  cleanup_free char *sentence = NULL, *wanted = environment_format(&question->asked);
  json_t *nearest = cache_nearest(&question->asked, there, question->rows.n, &sentence);
  if (sentence)
    error_of(&error, ERROR_MISSING,
             "channel \"%s\" has no entry for %.150s with tag \"%.50s\" and regime %s; %s",
             question->channel, wanted, question->tag, regime, sentence);
  else
    error_of(
        &error, ERROR_MISSING,
        "channel \"%s\" has no entry with tag \"%.100s\" and regime %s; GET /v1/channels lists all",
        question->channel, question->tag, regime);
  request_add_header(request, "Wavetune-Match", "none");
  answer_failure_extra(request, &error, json_pack("{s:o}", "nearest", nearest));
}

static void several_answer(struct request *request, const char *channel, json_t *fitting) {
  struct error error;
  error_set(&error,
            "channel \"%s\" has entries for %zu environments that fit; state the members in which "
            "they differ "
            "(\"environments\" lists them)",
            channel, json_array_size(fitting));
  answer_failure_extra(request, &error, json_pack("{s:o}", "environments", fitting));
}

static void question_release(struct question *question) {
  environment_release(&question->asked);
  channel_rows_release(&question->rows);
}
#define cleanup_question __attribute__((cleanup(question_release)))

/* Answers and returns false when it cannot be read. */
static bool question_read(struct worker *worker, struct request *request, const char *channel,
                          struct question *ret) {
  struct error error;
  const char *tag = request_query(request, "tag"), *regime = request_query(request, "regime");
  *ret = (struct question){.channel = channel, .tag = tag ? tag : "default"};

  if (!channel_name_check(channel, &error) ||
      (regime && !regime_parse(regime, &ret->regime, &error)) ||
      !environment_from_texts(query_get, request, &ret->asked, &error)) {
    error.pointer[0] = 0; /* it would point into a body, and there is none */
    answer_failure(request, &error);
    return false;
  }
  if (!channel_rows_load(worker->db, channel, ret->tag, ret->regime, &ret->rows, &error)) {
    answer_failure(request, &error);
    return false;
  }
  return true;
}

/* The row that is meant by the rules up to `widest`; NULL when it was answered that there is
 * none. */
static const struct channel_row *row_choose(struct request *request,
                                            const struct question *question, enum cache_rule widest,
                                            const struct compatibilities *declared,
                                            struct cache_resolved *ret_resolved) {
  size_t n = question->rows.n;
  cleanup_free const struct environment **there = xcalloc(n + 1, sizeof(struct environment *));
  for (size_t i = 0; i < n; i++)
    there[i] = &question->rows.all[i].entry.environment;
  switch (
      cache_resolve(&question->asked, there, n, widest, declared->all, declared->n, ret_resolved)) {
  case CACHE_MATCH_ONE:
    return &question->rows.all[ret_resolved->index];
  case CACHE_MATCH_NONE:
    none_answer(request, question, there);
    break;
  case CACHE_MATCH_SEVERAL:
    several_answer(request, question->channel, cache_fitting(&question->asked, there, n));
    break;
  }
  return NULL;
}

const struct channel_row *channel_row_find(struct worker *worker, struct request *request,
                                           const char *channel, struct channel_rows *ret_rows) {
  static const struct compatibilities none = {0};
  struct cache_resolved resolved;
  cleanup_question struct question question = {0};
  if (!question_read(worker, request, channel, &question))
    return NULL;
  const struct channel_row *row =
      row_choose(request, &question, CACHE_RULE_EXACT, &none, &resolved);
  *ret_rows = question.rows;
  question.rows = (struct channel_rows){0};
  return row;
}

/* Remembered until a channel moves or a compatibility is declared. Takes over `match` (NULL:
 * none). */
static void remembered_answer(struct request *request, const struct channel_row *row, json_t *match,
                              const char *header) {
  char etag[CHANNEL_ETAG_SIZE];
  struct channel_state state = channel_row_state(row);
  cleanup_json json_t *entry = channel_entry_to_answer(&row->entry);
  if (match)
    ALWAYS(json_object_set_new(entry, "match", match) == 0);
  char *text = json_dumps(entry, JSON_COMPACT);
  ALWAYS(text != NULL);
  request_answer_remembered(request, MEMORY_CHANNELS, "application/json", text, strlen(text),
                            channel_etag(&state, etag), header);
}

void channel_entry_answer(struct worker *worker, struct request *request, const char *channel) {
  cleanup_channel_rows struct channel_rows rows = {0};
  const struct channel_row *row = channel_row_find(worker, request, channel, &rows);
  if (row)
    remembered_answer(request, row, NULL, NULL);
}

/* By the rules of server/cache/cache_rules.h up to `widest`; says which one fired, in the header
 * Wavetune-Match and in "match". */
static void cache_answer(struct worker *worker, struct request *request, const char *channel,
                         enum cache_rule widest) {
  struct error error;
  struct cache_resolved resolved;
  cleanup_question struct question question = {0};
  cleanup_compatibilities struct compatibilities declared = {0};

  if (!question_read(worker, request, channel, &question))
    return;
  if (widest == CACHE_RULE_COMPATIBLE && !compatibilities_load(worker->db, &declared, &error)) {
    answer_failure(request, &error);
    return;
  }

  const struct channel_row *row = row_choose(request, &question, widest, &declared, &resolved);
  if (!row)
    return;
  const struct environment *served = &row->entry.environment;
  cleanup_free char *header = cache_match_header(&question.asked, served, &resolved);
  remembered_answer(request, row, cache_match_to_json(&question.asked, served, &resolved), header);
}

/* GET /v1/cache: what a starting container asks. */

#define X(member, hardware) #member,
static const char *const cache_arguments[] = {
    ENVIRONMENT_TEXTS(X) "compute_units", "tag", "regime", "channel", "match", NULL};
#undef X

void route_cache_get(struct worker *worker, struct request *request) {
  const char *channel = request_query(request, "channel"), *match = request_query(request, "match");
  enum cache_rule widest = CACHE_RULE_UNSTATED;
  if (!request_query_only(request, cache_arguments))
    return;

  if (match && !cache_rule_parse(match, &widest))
    answer_refusal(request, ERROR_INVALID, "", "match=%.32s is unknown: it must be " CACHE_RULES,
                   match);
  else
    cache_answer(worker, request, channel ? channel : "stable", widest);
}
