/* Making releases and reading them, as they are and rendered.
 *
 * Memory: requests, candidates and plans live as long as the handler. Threads: database workers. */
#include "common/cache/format.h"
#include "server/cache/cache_lookup.h"
#include "server/cache/cache_source.h"
#include "server/cache/fetches.h"
#include "server/http/answers.h"
#include "server/http/page.h"
#include "server/http/routes.h"
#include "server/import/imports.h"
#include "server/release/releases.h"
#include "server/server_private.h"

static void object_set(json_t *object, const char *name, json_t *value) {
  ALWAYS(json_object_set_new(object, name, value) == 0);
}

static json_t *job_text(int64_t job) {
  char text[24];
  snprintf(text, sizeof text, "%lld", (long long)job);
  return job ? json_string(text) : json_null();
}

static json_t *named(const char *name, const struct digest *kernel, const json_t *key, int64_t job) {
  json_t *object = json_object();
  object_set(object, "name", name ? json_string(name) : json_null());
  object_set(object, "kernel", json_digest_text(kernel));
  object_set(object, "key", key ? json_deep_copy(key) : json_null());
  object_set(object, "job", job_text(job));
  return object;
}

static json_t *included_to_json(const struct release_plan *plan) {
  json_t *array = json_array();
  for (size_t i = 0; i < plan->n_included; i++) {
    const struct release_included *included = &plan->included[i];
    const struct release_candidate *candidate = included->candidate;
    if (included->kept_reason)
      continue;
    bool pinned = included->pin != NULL;
    json_t *object = named(candidate->name, &candidate->kernel, candidate->key, pinned ? 0 : candidate->job);
    object_set(object, "origin", json_string(release_origin(included)));
    ALWAYS(json_array_append_new(array, object) == 0);
  }
  return array;
}

/* `job` is the one whose winner did not take the place. */
static json_t *kept_to_json(const struct release_plan *plan) {
  json_t *array = json_array();
  for (size_t i = 0; i < plan->n_included; i++) {
    const struct release_included *included = &plan->included[i];
    if (!included->kept_reason)
      continue;
    json_t *object = named(included->candidate->name, &included->candidate->kernel, included->candidate->key,
                           included->candidate->job);
    object_set(object, "reason", json_string(included->kept_reason));
    ALWAYS(json_array_append_new(array, object) == 0);
  }
  return array;
}

/* The channel whose release is replaced, with the entity tag that it had: who moves it with If-Match replaces what was
 * compared. */
static json_t *replaces_to_json(const struct release_request *wanted, const struct channel_state *state) {
  char etag[CHANNEL_ETAG_SIZE];
  if (!wanted->channel)
    return json_null();
  cleanup_free char *quoted = state->counter ? xasprintf("\"%s\"", channel_etag(state, etag)) : NULL;
  json_t *replaces =
      json_pack("{s:s, s:f, s:s?}", "channel", wanted->channel, "min_gain", wanted->min_gain, "etag", quoted);
  ALWAYS(replaces != NULL);
  return replaces;
}

static json_t *skipped_to_json(const struct release_plan *plan) {
  json_t *array = json_array();
  for (size_t i = 0; i < plan->n_skipped; i++) {
    const struct release_skipped *skipped = &plan->skipped[i];
    json_t *object = named(skipped->name, &skipped->kernel, skipped->key, skipped->job);
    object_set(object, "reason", json_string(skipped->reason));
    ALWAYS(json_array_append_new(array, object) == 0);
  }
  return array;
}

/* Which environment the request means; answers 422 and returns false when that is not one. */
static bool environment_choose(struct request *request, const struct release_request *wanted,
                               const struct release_environments *known, struct environment *ret) {
  struct error error;
  size_t index = 0;
  cleanup_free char *sentence = NULL, *asked = environment_format(&wanted->environment);
  cleanup_free const struct environment **there = xcalloc(known->n + 1, sizeof(struct environment *));
  json_t *extra;
  for (size_t i = 0; i < known->n; i++)
    there[i] = &known->all[i];
  switch (cache_lookup(&wanted->environment, there, known->n, &index)) {
  case CACHE_MATCH_ONE:
    *ret = environment_copy(there[index]);
    return true;
  case CACHE_MATCH_NONE:
    extra = json_pack("{s:o}", "nearest", cache_nearest(&wanted->environment, there, known->n, &sentence));
    error_at(&error, "/environment", "no job with tag \"%.50s\" and regime %s was tuned for %.150s; %s", wanted->tag,
             regime_name(wanted->regime), asked,
             sentence ? sentence : "there is none of this tag and regime at all: submit jobs first");
    break;
  case CACHE_MATCH_SEVERAL:
    extra = json_pack("{s:o}", "environments", cache_fitting(&wanted->environment, there, known->n));
    error_at(&error, "/environment",
             "several environments with jobs of tag \"%.50s\" fit; state the members in which they differ "
             "(\"environments\" lists them)",
             wanted->tag);
    break;
  }
  request_problem_extra(request, 422, &error, extra);
  return false;
}

/* Takes over `replaces`. */
static void plan_answer(struct worker *worker, struct request *request, const struct release_plan *plan,
                        const struct environment *environment, const struct release_request *wanted, json_t *replaces) {
  cleanup_json json_t *replaced = replaces;
  struct error error;
  bool is_new;
  cleanup_release struct release *release = NULL;
  if (!plan->n_included) {
    error_set(&error, "nothing can be released for this environment, tag and regime; \"skipped\" says why");
    request_problem_extra(request, 422, &error, json_pack("{s:o}", "skipped", skipped_to_json(plan)));
    return;
  }
  if (!release_from_plan(plan, environment, wanted->tag, wanted->regime, &release, &error) ||
      !release_store(worker->db, release, request_author(request), &is_new, &error)) {
    answer_failure(request, &error);
    return;
  }
  fetches_note(&release->digest); /* made again, an old one is as good as new */
  json_t *answer = json_object();
  object_set(answer, "release", json_digest_text(&release->digest));
  object_set(answer, "bytes", json_stringn(release->bytes, release->size));
  object_set(answer, "winners", json_integer((json_int_t)release->n_winners));
  object_set(answer, "included", included_to_json(plan));
  object_set(answer, "kept", kept_to_json(plan));
  object_set(answer, "skipped", skipped_to_json(plan));
  object_set(answer, "replaces", TAKE(replaced));
  request_answer_json(request, is_new ? 201 : 200, answer);
}

void route_release_post(struct worker *worker, struct request *request) {
  static const char *const no_arguments[] = {NULL};
  struct error error;
  cleanup_release_request struct release_request wanted = {0};
  cleanup_release_environments struct release_environments known = {0};
  cleanup_release_served struct release_served served = {0};
  cleanup_release_candidates struct release_candidates candidates = {0};
  cleanup_release_plan struct release_plan plan = {0};
  struct channel_state state = {0};
  cleanup_environment struct environment environment = {0};
  if (!request_query_only(request, no_arguments))
    return;
  if (!release_request_parse(request->json, &wanted, &error)) {
    request_refuse(request, 422, &error);
    return;
  }
  if (!release_environments_load(worker->db, wanted.tag, wanted.regime, &known, &error)) {
    answer_failure(request, &error);
    return;
  }
  if (!environment_choose(request, &wanted, &known, &environment))
    return;
  if ((wanted.channel && !release_served_load(worker->db, &wanted, &environment, &served, &state, &error)) ||
      !release_candidates_load(worker->db, &wanted, &environment, &served, &candidates, &error)) {
    answer_failure(request, &error);
    return;
  }
  release_plan(&wanted, &environment, &served, &candidates, &plan);
  plan_answer(worker, request, &plan, &environment, &wanted, replaces_to_json(&wanted, &state));
}

/* The bytes of the release that the path names; answers and returns NULL when there is none. */
static char *release_of_path(struct worker *worker, struct request *request, const char *const *arguments,
                             struct digest *ret_digest, size_t *ret_size) {
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
    request_problem(request, 404, "", "there is no release %.100s; GET /v1/releases lists all", request->segments[0]);
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
  fetches_note(&digest);
  request_answer_remembered(request, MEMORY_IMMUTABLE, "application/json", bytes, size, digest_format(&digest, etag),
                            NULL);
}

/* The identity that ?identity= names, NULL without it; answers and returns false when there is none. */
static bool identity_of_query(struct worker *worker, struct request *request, struct identity **ret_identity) {
  const char *asked = request_query(request, "identity");
  cleanup_free char *text = NULL;
  cleanup_json json_t *json = NULL;
  struct digest digest;
  struct error error;
  if (!asked)
    return true;
  if (!digest_parse(asked, &digest)) {
    request_problem(request, 422, "", "identity=%.80s is no digest, sha256:…", asked);
    return false;
  }
  if (!image_load(worker->db, &digest, &text, &error)) {
    answer_failure(request, &error);
    return false;
  }
  if (!text) {
    request_problem(request, 404, "", "there is no image %s; PUT /v1/images/{digest} keeps its identity", asked);
    return false;
  }
  /* It was parsed before it was kept; what a later version does not read any more is for the operator. */
  if (!json_parse(text, strlen(text), &json, &error) || !identity_parse(json, ret_identity, &error)) {
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

/* One file as it is, several as a tar. What lacks winners may be complete another day, so it is not kept. */
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
    request_refuse(request, 404, &error);
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
  fetches_note(&digest);
  const struct render_request wanted = {.release = release, .source = &source, .identity = identity};
  bool ok = format->render(&wanted, &files, &error);
  if (store.has_failed) {
    answer_failure(request, &store.failure);
  } else if (!ok) {
    error.pointer[0] = 0; /* it would point into a body, and there is none */
    request_refuse(request, 422, &error);
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
