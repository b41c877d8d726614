/* Making releases and reading them, as they are and rendered.
 *
 * Memory: requests, candidates and plans live as long as the handler. Threads: database workers. */
#include <math.h>

#include "common/cache/format.h"
#include "common/record/record.h"
#include "server/cache/cache_lookup.h"
#include "server/cache/cache_source.h"
#include "server/cache/fetches.h"
#include "server/http/answers.h"
#include "server/http/page.h"
#include "server/http/routes.h"
#include "server/import/imports.h"
#include "server/release/releases.h"
#include "server/server_private.h"

/* What became of a (kernel, key). */
struct release_item {
  const char *name;
  struct digest kernel;
  const json_t *key;
  int64_t job; /* of what is kept: the one whose winner did not take the place */
  const char *origin, *reason;
};
#define AT(member) offsetof(struct release_item, member)
static const struct field item_fields[] = {
    {"name", FIELD_TEXT, AT(name), FIELD_ANSWER},
    {"kernel", FIELD_DIGEST, AT(kernel), FIELD_ANSWER | FIELD_REQUIRED},
    {"key", FIELD_JSON, AT(key), FIELD_ANSWER,
     .schema = "{\"$ref\": \"#/components/schemas/Key\"}"},
    {"job", FIELD_ID, AT(job), FIELD_ANSWER},
    {"origin", FIELD_TEXT, AT(origin), FIELD_ANSWER | FIELD_OMITTED,
     .schema = "{\"type\": \"string\", \"enum\": [\"tuned\", \"pinned\", \"imported\"]}",
     .about = "of what is included"},
    {"reason", FIELD_TEXT, AT(reason), FIELD_ANSWER | FIELD_OMITTED,
     .about = "of what is kept or skipped"},
};
#undef AT
const struct record release_item_record = RECORD("ReleaseItem", struct release_item, item_fields);

/* The channel whose release is replaced, with the entity tag that it had: moving it with If-Match
 * replaces what was compared. */
struct release_replaced {
  const char *channel;
  double min_gain;
  const char *etag; /* quoted; NULL: it has no entry yet */
};
static const struct field replaced_fields[] = {
    {"channel", FIELD_TEXT, offsetof(struct release_replaced, channel),
     FIELD_ANSWER | FIELD_NOT_NULL},
    {"min_gain", FIELD_NUMBER, offsetof(struct release_replaced, min_gain),
     FIELD_ANSWER | FIELD_NOT_NULL},
    {"etag", FIELD_TEXT, offsetof(struct release_replaced, etag), FIELD_ANSWER},
};
static const struct record replaced_record = RECORD(NULL, struct release_replaced, replaced_fields);

struct release_answer {
  struct digest release;
  const char *bytes;
  int64_t winners;
  struct records included, kept, skipped; /* of struct release_item */
  struct release_replaced replaces;
};
#define AT(member) offsetof(struct release_answer, member)
static const struct field answer_fields[] = {
    {"release", FIELD_DIGEST, AT(release), FIELD_ANSWER | FIELD_NOT_NULL},
    {"bytes", FIELD_TEXT, AT(bytes), FIELD_ANSWER | FIELD_NOT_NULL},
    {"winners", FIELD_INTEGER, AT(winners), FIELD_ANSWER | FIELD_NOT_NULL},
    {"included", FIELD_RECORDS, AT(included), FIELD_ANSWER | FIELD_NOT_NULL,
     .of = &release_item_record},
    {"kept", FIELD_RECORDS, AT(kept), FIELD_ANSWER | FIELD_NOT_NULL, .of = &release_item_record},
    {"skipped", FIELD_RECORDS, AT(skipped), FIELD_ANSWER | FIELD_NOT_NULL,
     .of = &release_item_record},
    {"replaces", FIELD_RECORD, AT(replaces), FIELD_ANSWER, .of = &replaced_record},
};
#undef AT
const struct record release_answer_record =
    RECORD("ReleaseAnswer", struct release_answer, answer_fields);

static int64_t job_or_none(int64_t job) { return job ? job : FIELD_NONE; }

/* Those that are kept for a reason, or the others; borrows of the plan. */
static struct records included_items(const struct release_plan *plan, bool is_kept) {
  struct release_item *items = xcalloc(plan->n_included + 1, sizeof *items);
  size_t n = 0;
  for (size_t i = 0; i < plan->n_included; i++) {
    const struct release_included *included = &plan->included[i];
    const struct release_candidate *candidate = included->candidate;
    if ((included->kept_reason != NULL) != is_kept)
      continue;
    items[n++] =
        (struct release_item){.name = candidate->name,
                              .kernel = candidate->kernel,
                              .key = candidate->key,
                              .job = included->pin ? FIELD_NONE : job_or_none(candidate->job),
                              .origin = is_kept ? NULL : release_origin(included),
                              .reason = included->kept_reason};
  }
  return (struct records){n, items};
}

static struct records skipped_items(const struct release_plan *plan) {
  struct release_item *items = xcalloc(plan->n_skipped + 1, sizeof *items);
  for (size_t i = 0; i < plan->n_skipped; i++) {
    const struct release_skipped *skipped = &plan->skipped[i];
    items[i] = (struct release_item){.name = skipped->name,
                                     .kernel = skipped->kernel,
                                     .key = skipped->key,
                                     .job = job_or_none(skipped->job),
                                     .reason = skipped->reason};
  }
  return (struct records){plan->n_skipped, items};
}

/* Which environment the request means; answers 422 and returns false when that is not one. */
static bool environment_choose(struct request *request, const struct release_request *wanted,
                               const struct release_environments *known, struct environment *ret) {
  struct error error;
  size_t index = 0;
  cleanup_free char *sentence = NULL, *asked = environment_format(&wanted->environment);
  cleanup_free const struct environment **there =
      xcalloc(known->n + 1, sizeof(struct environment *));
  json_t *extra;
  for (size_t i = 0; i < known->n; i++)
    there[i] = &known->all[i];
  switch (cache_lookup(&wanted->environment, there, known->n, &index)) {
  case CACHE_MATCH_ONE:
    *ret = environment_copy(there[index]);
    return true;
  case CACHE_MATCH_NONE:
    extra = json_pack("{s:o}", "nearest",
                      cache_nearest(&wanted->environment, there, known->n, &sentence));
    error_at(
        &error, "/environment", "no job with tag \"%.50s\" and regime %s was tuned for %.150s; %s",
        wanted->tag, regime_name(wanted->regime), asked,
        sentence ? sentence : "there is none of this tag and regime at all: submit jobs first");
    break;
  case CACHE_MATCH_SEVERAL:
    extra =
        json_pack("{s:o}", "environments", cache_fitting(&wanted->environment, there, known->n));
    error_at(&error, "/environment",
             "several environments with jobs of tag \"%.50s\" fit; state the members in which they "
             "differ "
             "(\"environments\" lists them)",
             wanted->tag);
    break;
  }
  answer_failure_extra(request, &error, extra);
  return false;
}

/* 422: nothing can be released. */
static void nothing_answer(struct request *request, const struct release_plan *plan) {
  struct error error;
  struct release_answer answer = {.skipped = skipped_items(plan)};
  cleanup_json json_t *json = record_write(&release_answer_record, &answer);
  error_set(&error,
            "nothing can be released for this environment, tag and regime; \"skipped\" says why");
  answer_failure_extra(request, &error,
                       json_pack("{s:O}", "skipped", json_object_get(json, "skipped")));
  free(answer.skipped.all);
}

/* `state`: of the channel whose release was replaced. */
static void release_answer(struct request *request, const struct release *release, bool is_new,
                           const struct release_plan *plan, const struct release_request *wanted,
                           const struct channel_state *state) {
  char etag[CHANNEL_ETAG_SIZE];
  cleanup_free char *quoted =
      state->counter ? xasprintf("\"%s\"", channel_etag(state, etag)) : NULL;
  const char *channel = wanted->replaces.channel;
  struct release_answer answer = {
      .release = release->digest,
      .bytes = release->bytes,
      .winners = (int64_t)release->n_winners,
      .included = included_items(plan, false),
      .kept = included_items(plan, true),
      .skipped = skipped_items(plan),
      .replaces = {.channel = channel,
                   .min_gain = channel ? wanted->replaces.min_gain : NAN,
                   .etag = quoted}};

  request_answer_json(request, is_new ? 201 : 200, record_write(&release_answer_record, &answer));
  free(answer.included.all);
  free(answer.kept.all);
  free(answer.skipped.all);
}

void route_release_post(struct worker *worker, struct request *request) {
  static const char *const no_arguments[] = {NULL};
  struct error error;
  cleanup_release_request struct release_request wanted = {0};
  if (!request_query_only(request, no_arguments))
    return;
  if (!release_request_parse(request->json, &wanted, &error)) {
    answer_failure(request, &error);
    return;
  }

  cleanup_release_environments struct release_environments known = {0};
  cleanup_environment struct environment environment = {0};
  if (!release_environments_load(worker->db, wanted.tag, wanted.regime, &known, &error)) {
    answer_failure(request, &error);
    return;
  }
  if (!environment_choose(request, &wanted, &known, &environment))
    return;

  struct channel_state state = {0};
  cleanup_release_served struct release_served served = {0};
  cleanup_release_candidates struct release_candidates candidates = {0};
  if ((wanted.replaces.channel &&
       !release_served_load(worker->db, &wanted, &environment, &served, &state, &error)) ||
      !release_candidates_load(worker->db, &wanted, &environment, &served, &candidates, &error)) {
    answer_failure(request, &error);
    return;
  }

  cleanup_release_plan struct release_plan plan = {0};
  release_plan(&wanted, &environment, &served, &candidates, &plan);
  if (!plan.n_included) {
    nothing_answer(request, &plan);
    return;
  }

  bool is_new;
  cleanup_release struct release *release = NULL;
  if (!release_from_plan(&plan, &environment, wanted.tag, wanted.regime, &release, &error) ||
      !release_store(worker->db, release, request_author(request), &is_new, &error)) {
    answer_failure(request, &error);
    return;
  }
  fetches_note(worker->server, &release->digest); /* made again, an old one is as good as new */
  release_answer(request, release, is_new, &plan, &wanted, &state);
}

/* The bytes of the release that the path names; answers and returns NULL when there is none. */
static char *release_of_path(struct worker *worker, struct request *request,
                             const char *const *arguments, struct digest *ret_digest,
                             size_t *ret_size) {
  struct error error;
  char *bytes = NULL;
  if (!request_query_only(request, arguments))
    return NULL;
  if (digest_parse(request->segments[0], ret_digest) &&
      !release_load(worker->db, ret_digest, &bytes, ret_size, &error)) {
    answer_failure(request, &error);
    return NULL;
  }
  if (!bytes)
    answer_refusal(request, ERROR_MISSING, "",
                   "there is no release %.100s; GET /v1/releases lists all", request->segments[0]);
  return bytes;
}

void route_release_get(struct worker *worker, struct request *request) {
  static const char *const no_arguments[] = {NULL};
  struct digest digest;
  char etag[DIGEST_TEXT_SIZE];
  size_t size;
  char *bytes = release_of_path(worker, request, no_arguments, &digest, &size);
  if (!bytes)
    return;
  fetches_note(worker->server, &digest);
  request_answer_remembered(request, MEMORY_IMMUTABLE, "application/json", bytes, size,
                            digest_format(&digest, etag), NULL);
}

/* The identity that ?identity= names, NULL without it; answers and returns false when there is
 * none. */
static bool identity_of_query(struct worker *worker, struct request *request,
                              struct identity **ret_identity) {
  const char *asked = request_query(request, "identity");
  cleanup_free char *text = NULL;
  cleanup_json json_t *json = NULL;
  struct digest digest;
  struct error error;
  if (!asked)
    return true;
  if (!digest_parse(asked, &digest)) {
    answer_refusal(request, ERROR_INVALID, "", "identity=%.80s is no digest, sha256:…", asked);
    return false;
  }
  if (!image_load(worker->db, &digest, &text, &error)) {
    answer_failure(request, &error);
    return false;
  }
  if (!text) {
    answer_refusal(request, ERROR_MISSING, "",
                   "there is no image %s; PUT /v1/images/{digest} keeps its identity", asked);
    return false;
  }
  /* It was parsed before it was kept; what a later version does not read any more is for the
   * operator. */
  if (!json_parse(text, strlen(text), &json, &error) ||
      !identity_parse(json, ret_identity, &error)) {
    error_prefix(&error, "the stored image %s: ", asked);
    error_become(&error, ERROR_DAMAGED);
    answer_failure(request, &error);
    return false;
  }
  return true;
}

static bool path_ends(const char *path, const char *suffix) {
  size_t length = strlen(path), end = strlen(suffix);
  return length >= end && strcmp(path + length - end, suffix) == 0;
}

/* One file as it is, several as a tar. What lacks winners may be complete another day, so it is not
 * kept. */
static void files_answer(struct request *request, struct cache_files *files) {
  char etag[DIGEST_TEXT_SIZE];
  struct cache_file *only = files->n == 1 ? &files->files[0] : NULL;
  const char *type = !only                            ? "application/x-tar"
                     : path_ends(only->path, ".json") ? "application/json"
                                                      : "text/plain; charset=utf-8";
  size_t size = only ? only->size : 0;
  cleanup_free char *bytes = only ? TAKE(only->bytes) : cache_files_tar(files, &size);
  struct digest digest = digest_of(bytes, size);
  digest_format(&digest, etag);
  if (!files->n_skipped) {
    request_answer_remembered(request, MEMORY_IMMUTABLE, type, TAKE(bytes), size, etag, NULL);
    return;
  }
  char skipped[24];
  snprintf(skipped, sizeof skipped, "%zu", files->n_skipped);
  request_add_header(request, "Wavetune-Skipped", skipped);
  request_answer_entity(request, type, TAKE(bytes), size, etag, false);
}

void route_release_export(struct worker *worker, struct request *request) {
  static const char *const arguments[] = {"identity", NULL};
  struct error error;
  struct digest digest;
  size_t size;
  const struct cache_format *format;
  cleanup_free char *bytes = release_of_path(worker, request, arguments, &digest, &size);
  cleanup_release struct release *release = NULL;
  cleanup_identity struct identity *identity = NULL;
  cleanup_cache_files struct cache_files files = {0};
  cleanup_cache_store struct cache_store store = {.db = worker->db, .blobs = worker->server->blobs};
  const struct cache_source source = cache_store_source(&store);
  if (!bytes)
    return;
  if (!cache_format_find(request->segments[1], &format, &error)) {
    error_become(&error, ERROR_MISSING);
    answer_failure(request, &error);
    return;
  }
  if (!identity_of_query(worker, request, &identity))
    return;
  if (!release_take(&bytes, size, &digest, &release, &error)) {
    error_prefix(&error, "the stored release %s: ", request->segments[0]);
    error_become(&error, ERROR_DAMAGED);
    answer_failure(request, &error);
    return;
  }
  fetches_note(worker->server, &digest);
  const struct render_request wanted = {
      .release = release, .source = &source, .identity = identity};
  bool ok = format->render(&wanted, &files, &error);
  if (store.has_failed) {
    answer_failure(request, &store.failure);
  } else if (!ok) {
    error.pointer[0] = 0; /* it would point into a body, and there is none */
    answer_failure(request, &error);
  } else {
    files_answer(request, &files);
  }
}

void route_release_list(struct worker *worker, struct request *request) {
  static const char *const arguments[] = {"limit", "after", NULL};
  int64_t limit, before, next;
  struct error error;
  json_t *items;
  if (!request_query_only(request, arguments) || !page_by_id(request, INT64_MAX, &limit, &before))
    return;
  if (releases_list(worker->db, before, limit, &items, &next, &error))
    request_answer_json(request, 200, page_to_json(items, next));
  else
    answer_failure(request, &error);
}
