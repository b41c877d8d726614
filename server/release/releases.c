/* Making releases: POST /v1/releases.
 *
 * Memory: requests, candidates and plans live as long as the handler. Threads: database workers. */
#include <math.h>

#include "common/base/log.h"
#include "server/audit/audit.h"
#include "server/cache/cache_rules.h"
#include "server/cache/fetches.h"
#include "server/channel/channels.h"
#include "server/db/db_record.h"
#include "server/http/request.h"
#include "server/records.h"
#include "server/release/overrides.h"
#include "server/release/release.sql.h"
#include "server/release/release_make.h"
#include "server/release/releases.h"

/* The result for a (kernel, key). */
struct release_item {
  const char *name;
  struct digest kernel;
  const json_t *key;
  int64_t job; /* for a kept config, the job whose winner did not replace it */
  const char *origin, *agreement, *reason;
};
#define RECORD_OF struct release_item
static const struct field item_fields[] = {
    MEMBER(TEXT, name),
    MEMBER(DIGEST, kernel, FIELD_REQUIRED),
    MEMBER(JSON, key, .schema = SCHEMA("Key")),
    MEMBER(ID, job),
    MEMBER(TEXT, origin, FIELD_OMITTED,
           .schema = "{\"type\": \"string\", \"enum\": [\"tuned\", \"pinned\", \"imported\"]}",
           .about = "of what is included"),
    MEMBER(TEXT, agreement, FIELD_OMITTED, .schema = SCHEMA("AgreementClass")),
    MEMBER(TEXT, reason, FIELD_OMITTED,
           .about = "of what is kept or skipped, or takes the winner's place"),
};
const struct record release_item_record = ANSWER("ReleaseItem", item_fields);
#undef RECORD_OF

/* The channel whose release is replaced, and the entity tag of its entry: a move of the channel
 * with this If-Match replaces exactly the release that was compared. */
struct release_replaced {
  const char *channel;
  double min_gain;
  const char *etag; /* with quotes; NULL: the channel has no entry yet */
};
#define RECORD_OF struct release_replaced
static const struct field replaced_fields[] = {
    MEMBER(TEXT, channel, FIELD_NOT_NULL),
    MEMBER(NUMBER, min_gain, FIELD_NOT_NULL),
    MEMBER(TEXT, etag),
};
static const struct record replaced_record = ANSWER(NULL, replaced_fields);
#undef RECORD_OF

struct release_answer {
  struct digest release;
  const char *bytes;
  int64_t winners;
  struct records included, kept, skipped; /* of struct release_item */
  struct release_replaced replaces;
};
#define RECORD_OF struct release_answer
static const struct field answer_fields[] = {
    MEMBER(DIGEST, release, FIELD_NOT_NULL),
    MEMBER(TEXT, bytes, FIELD_NOT_NULL),
    MEMBER(INTEGER, winners, FIELD_NOT_NULL),
    MEMBER(RECORDS, included, FIELD_NOT_NULL, .of = &release_item_record),
    MEMBER(RECORDS, kept, FIELD_NOT_NULL, .of = &release_item_record),
    MEMBER(RECORDS, skipped, FIELD_NOT_NULL, .of = &release_item_record),
    MEMBER(RECORD, replaces, .of = &replaced_record),
};
const struct record release_answer_record = ANSWER("ReleaseAnswer", answer_fields);
#undef RECORD_OF

static int64_t job_or_none(int64_t job) { return job ? job : FIELD_NONE; }

/* The answer with the plan's items: the winners that are kept for a reason, the other included
 * ones, and what is skipped. */
static json_t *answer_write(struct release_answer *answer, const struct release_plan *plan) {
  size_t size = sizeof(struct release_item), n_included = 0, n_kept = 0;
  cleanup_free struct release_item *included = xcalloc(plan->n_included + 1, size);
  cleanup_free struct release_item *kept = xcalloc(plan->n_included + 1, size);
  cleanup_free struct release_item *skipped = xcalloc(plan->n_skipped + 1, size);
  for (size_t i = 0; i < plan->n_included; i++) {
    const struct release_included *one = &plan->included[i];
    const struct release_candidate *candidate = one->candidate;
    struct agreement_facts facts =
        one->kept ? agreement_read(one->kept->provenance) : candidate->facts;
    const char *class = agreement_class(&facts);
    bool is_kept = one->kept_reason != NULL, is_known = strcmp(class, "none") != 0;
    struct release_item *item = is_kept ? &kept[n_kept++] : &included[n_included++];
    *item = (struct release_item){.name = candidate->name,
                                  .kernel = candidate->place.kernel,
                                  .key = candidate->key,
                                  .job = one->pin ? FIELD_NONE : job_or_none(candidate->job),
                                  .origin = is_kept ? NULL : release_origin(one),
                                  .agreement = is_known && (!one->pin || one->kept) ? class : NULL,
                                  .reason = is_kept    ? one->kept_reason
                                            : one->pin ? one->pin->standing
                                                       : candidate->substituted};
  }

  for (size_t i = 0; i < plan->n_skipped; i++) {
    const struct release_skipped *one = &plan->skipped[i];
    skipped[i] = (struct release_item){.name = one->name,
                                       .kernel = one->kernel,
                                       .key = one->key,
                                       .job = job_or_none(one->job),
                                       .reason = one->reason};
  }

  answer->included = (struct records){n_included, included};
  answer->kept = (struct records){n_kept, kept};
  answer->skipped = (struct records){plan->n_skipped, skipped};
  return record_write(&release_answer_record, answer);
}

/* Finds the environment that the request means, among those of jobs or imports with its tag. If
 * that fails, answers the request and returns false. */
static bool environment_choose(struct worker *worker, struct request *request,
                               const struct release_request *wanted, struct environment *ret,
                               struct error *error) {
  cleanup_rows struct db_rows *rows =
      db_query(worker->db, &sql_release_environments, error, BIND("tag", wanted->tag),
               BIND("regime", regime_name(wanted->regime)));
  if (!rows)
    return false;

  size_t n = (size_t)db_count(rows), index = 0;
  cleanup_free struct environment *known = xcalloc(n + 1, sizeof *known);
  cleanup_free const struct environment **there = xcalloc(n + 1, sizeof(struct environment *));
  for (size_t i = 0; i < n; i++) {
    cleanup_json json_t *identity = db_get_json(rows, (int)i, "identity");
    ALWAYS(environment_parse(identity, &known[i], error));
    there[i] = &known[i];
  }

  json_t *extra = NULL;
  cleanup_free char *sentence = NULL, *asked = environment_format(&wanted->environment);
  enum cache_match match = cache_lookup(&wanted->environment, there, n, &index);
  switch (match) {
  case CACHE_MATCH_ONE:
    *ret = known[index];
    known[index] = (struct environment){0};
    break;
  case CACHE_MATCH_NONE:
    extra = json_pack("{s:o}", "nearest", cache_nearest(&wanted->environment, there, n, &sentence));
    error_at(
        error, "/environment", "no job with tag \"%.50s\" and regime %s was tuned for %.150s; %s",
        wanted->tag, regime_name(wanted->regime), asked,
        sentence ? sentence : "there is none of this tag and regime at all: submit jobs first");
    break;
  case CACHE_MATCH_SEVERAL:
    extra = json_pack("{s:o}", "environments", cache_fitting(&wanted->environment, there, n));
    error_at(error, "/environment",
             "several environments with jobs of tag \"%.50s\" fit; state the members in which they "
             "differ (\"environments\" lists them)",
             wanted->tag);
    break;
  }

  if (match != CACHE_MATCH_ONE)
    request->extra = extra;
  for (size_t i = 0; i < n; i++)
    environment_release(&known[i]);
  return match == CACHE_MATCH_ONE;
}

/* Reads what the request's channel serves for the environment and tag, and its state (counter 0: it
 * has no entry there). */
static bool served_load(struct db *db, const struct release_request *request,
                        const struct environment *environment, struct release_served *ret_served,
                        struct channel_state *ret_state, struct error *error) {
  struct digest environment_id = environment_digest(environment);
  cleanup_rows struct db_rows *rows =
      db_query(db, &sql_release_served, error, BIND("channel", request->replaces.channel),
               BIND("tag", request->tag), BIND("regime", regime_name(request->regime)),
               BIND("environment_digest", &environment_id));
  if (!rows)
    return false;
  if (!db_count(rows))
    return true;

  size_t size;
  cleanup_free uint8_t *bytes = db_get_bytes(rows, 0, "bytes", &size);
  cleanup_free char *text = xstrndup((const char *)bytes, size);
  const struct digest served = db_get_digest(rows, 0, "release");
  struct release *release;
  struct error unread;
  if (release_take(&text, size, &served, &release, &unread))
    release_served_init(ret_served, release);
  else /* An older wavetune made it and no client can read it any more, so nothing of it is kept. */
    log_warning("publish: the release that channel %s serves is not compared with: %s",
                request->replaces.channel, unread.message);
  *ret_state = (struct channel_state){db_get_integer(rows, 0, "counter"), served,
                                      db_get_integer(rows, 0, "signings")};
  return true;
}

/* Reads the spaces that planning needs. */
static bool spaces_load(struct db *db, const struct release_request *request,
                        const struct release_served *served, struct release_candidates *candidates,
                        struct error *error) {
  cleanup_free struct digest *digests = xcalloc(candidates->n + 1, sizeof *digests);
  size_t n = 0;
  for (size_t i = 0; i < candidates->n; i++)
    if (release_needs_space(request, served, &candidates->all[i]))
      digests[n++] = candidates->all[i].space;
  if (!n)
    return true;

  cleanup_rows struct db_rows *rows =
      db_query(db, &sql_release_spaces, error, BIND_ALL("digests", digests, n));
  if (!rows)
    return false;

  candidates->spaces = xcalloc((size_t)db_count(rows) + 1, sizeof(struct space *));
  for (int row = 0; row < db_count(rows); row++) {
    struct digest digest = db_get_digest(rows, row, "digest");
    cleanup_json json_t *json = db_get_json(rows, row, "space");
    if (!space_parse(json, &candidates->spaces[row], error)) {
      error_prefix(error, "a stored space cannot be read: ");
      return error_become(error, ERROR_DAMAGED);
    }
    candidates->n_spaces++;
    for (size_t i = 0; i < candidates->n; i++)
      if (digest_equal(&candidates->all[i].space, &digest))
        candidates->all[i].points = candidates->spaces[row];
  }

  return true;
}

/* Reads every job of the environment and tag whose kernel the request names, with its winner; every
 * such import; and the spaces that planning needs. */
static bool candidates_load(struct db *db, const struct release_request *request,
                            const struct environment *environment,
                            const struct release_served *served, struct release_candidates *ret,
                            struct error *error) {
  struct digest environment_id = environment_digest(environment);
  cleanup_rows struct db_rows *jobs = NULL, *imports = NULL;
  const struct digest *kernels = request->kernel_texts.n ? request->kernels : NULL;
  if (!(jobs = db_query(db, &sql_release_candidates, error,
                        BIND("environment_digest", &environment_id), BIND("tag", request->tag),
                        BIND("regime", regime_name(request->regime)),
                        BIND_ALL("kernels", kernels, request->kernel_texts.n))) ||
      !(imports = db_query(db, &sql_release_imports, error,
                           BIND("environment_digest", &environment_id), BIND("tag", request->tag),
                           BIND_ALL("kernels", kernels, request->kernel_texts.n))))
    return false;

  size_t n_jobs = (size_t)db_count(jobs), n = n_jobs + (size_t)db_count(imports);
  cleanup_release_candidates struct release_candidates candidates = {
      .all = xcalloc(n + 1, sizeof *candidates.all)};
  while (candidates.n < n_jobs) {
    int row = (int)candidates.n;
    struct release_candidate *job = &candidates.all[candidates.n++];
    db_read(jobs, row, &release_candidate_record, job);
    job->place.key_text = json_canonical(job->key);

    /* Seconds with three digits, so that thousands of winners share a few hundred provenances:
     * every start of a container reads all of them. */
    int64_t device_us = db_get_integer(jobs, row, "device_us");
    if (device_us) { /* 0: there is no winner, or the time was not reported */
      char text[32];
      snprintf(text, sizeof text, "%.3g", (double)device_us / 1e6);
      ALWAYS(json_object_set_new(job->provenance, "spent_device_seconds",
                                 json_real(strtod(text, NULL))) == 0);
    }
    if (job->has_winner && !release_candidate_read_verdict(job, error)) {
      error_prefix(error, "the verdict stored for job %lld cannot be read: ", (long long)job->job);
      return error_become(error, ERROR_DAMAGED);
    }
  }

  while (candidates.n < n) {
    int row = (int)(candidates.n - n_jobs);
    struct release_candidate *import = &candidates.all[candidates.n++];
    db_read(imports, row, &release_candidate_record, import);
    import->place.key_text = json_canonical(import->key);
    import->outcome = VERDICT_SAME;
    ALWAYS(json_object_set_new(import->provenance, "origin", json_string("imported")) == 0);
    ALWAYS(json_object_set_new(import->provenance, "format",
                               json_string(db_get(imports, row, "format"))) == 0);

    cleanup_json json_t *ms = db_get_json(imports, row, "ms");
    for (; import->n_ms < json_array_size(ms) && import->n_ms < RELEASE_MS_MAX; import->n_ms++)
      import->ms[import->n_ms] = json_number_value(json_array_get(ms, import->n_ms));
  }

  if (!spaces_load(db, request, served, &candidates, error))
    return false;

  *ret = candidates;
  candidates = (struct release_candidates){0};
  return true;
}

/* Stores which keys of captured kernels a release has, by which captures know that they are
 * served. */
static bool captures_store(struct db *db, const struct release *release, struct error *error) {
  cleanup_free struct digest *kernels = xcalloc(release->n_winners + 1, sizeof *kernels);
  cleanup_free struct digest *keys = xcalloc(release->n_winners + 1, sizeof *keys);
  size_t n = 0;
  for (size_t k = 0; k < release->n_kernels; k++)
    for (size_t w = 0; w < release->kernels[k].n_winners; w++, n++) {
      const struct release_kernel *kernel = &release->kernels[k];
      cleanup_json json_t *json = release_key_object(kernel, &kernel->winners[w]);
      cleanup_key struct key key = {0};
      ALWAYS(key_parse(json, NULL, 0, &key, error));
      kernels[n] = kernel->hash;
      keys[n] = key_digest(&key);
    }
  return db_execute(db, &sql_release_captures_store, error, BIND("release", &release->digest),
                    BIND_ALL("kernel", kernels, n), BIND_ALL("key_digest", keys, n));
}

/* Stores a release unless it is stored already. */
static bool release_store(struct db *db, const struct release *release, const struct author *author,
                          bool *ret_is_new, struct error *error) {
  struct digest environment_id = environment_digest(&release->environment);
  cleanup_json json_t *environment = environment_to_json(&release->environment);
  cleanup_rows struct db_rows *rows = NULL;

  bool ok = db_begin(db, error) &&
            (rows = db_query(
                 db, &sql_release_store, error, BIND("digest", &release->digest),
                 BIND("environment_digest", &environment_id),
                 parameter_taken("environment", json_canonical(environment)),
                 BIND("tag", release->tag), BIND("regime", regime_name(release->regime)),
                 BIND("winners", (int64_t)release->n_winners),
                 parameter_bytes("bytes", release->bytes, release->size), BIND_AUTHOR(author)));
  *ret_is_new = ok && db_affected(rows) == 1;
  if (*ret_is_new)
    ok = captures_store(db, release, error) &&
         audit_note_digest(db, author, AUDIT_RELEASE, &release->digest,
                           json_pack("{s:s, s:s, s:I}", "tag", release->tag, "regime",
                                     regime_name(release->regime), "winners",
                                     (json_int_t)release->n_winners),
                           error);
  return db_end(db, ok, error);
}

void release_made_release(struct release_made *made) {
  release_free(made->release);
  json_decref(made->answer);
  *made = (struct release_made){0};
}

/* Whether the plan includes all keys that the request requires; otherwise fills the answer that
 * lists those that are missing. */
static bool required_check(const struct release_request *request,
                           const struct release_candidates *candidates,
                           const struct release_plan *plan, struct release_made *ret) {
  struct release_skipped *missing;
  size_t n;
  release_missing(request, candidates, plan, &missing, &n);
  cleanup_free struct release_item *items = xcalloc(n + 1, sizeof *items);
  json_t *list = json_array();
  for (size_t i = 0; i < n; i++) {
    items[i] = (struct release_item){.name = missing[i].name,
                                     .kernel = missing[i].kernel,
                                     .key = missing[i].key,
                                     .job = job_or_none(missing[i].job),
                                     .reason = missing[i].reason};
    json_push(list, record_write(&release_item_record, &items[i]));
    free(missing[i].reason);
  }
  free(missing);

  if (n)
    *ret = (struct release_made){.answer = json_pack("{s:o}", "lacking", list)};
  else
    json_decref(list);
  return n == 0;
}

bool release_make(struct worker *worker, const struct release_request *request,
                  const struct environment *environment, const struct author *author,
                  struct release_made *ret, struct error *error) {
  struct channel_state state = {0};
  cleanup_overrides struct overrides overrides = {0};
  struct release_request with_overrides = *request;
  const struct release_request *wanted = &with_overrides;
  with_overrides.overrides = &overrides;
  if (!overrides_load(worker->db, environment, wanted->tag, &overrides, error))
    return false;

  cleanup_release_served struct release_served served = {0};
  cleanup_release_candidates struct release_candidates candidates = {0};
  if ((wanted->replaces.channel &&
       !served_load(worker->db, wanted, environment, &served, &state, error)) ||
      !candidates_load(worker->db, wanted, environment, &served, &candidates, error))
    return false;

  cleanup_release_plan struct release_plan plan = {0};
  release_plan(wanted, environment, &served, &candidates, &plan);
  if (!required_check(wanted, &candidates, &plan, ret))
    return true;
  if (!plan.n_included) {
    struct release_answer nothing = {0};
    cleanup_json json_t *json = answer_write(&nothing, &plan);
    *ret = (struct release_made){
        .answer = json_pack("{s:O}", "skipped", json_object_get(json, "skipped"))};
    return true;
  }

  bool is_new;
  cleanup_release struct release *release = NULL;
  if (!release_from_plan(&plan, environment, wanted->tag, wanted->regime, &release, error) ||
      !release_store(worker->db, release, author, &is_new, error))
    return false;

  fetches_made(server_fetches(worker->server), &release->digest);

  char etag[CHANNEL_ETAG_SIZE];
  cleanup_free char *quoted =
      state.counter ? xasprintf("\"%s\"", channel_etag(&state, etag)) : NULL;
  const char *channel = wanted->replaces.channel;
  struct release_answer answer = {
      .release = release->digest,
      .bytes = release->bytes,
      .winners = (int64_t)release->n_winners,
      .replaces = {channel, channel ? wanted->replaces.min_gain : NAN, quoted}};
  *ret = (struct release_made){.is_new = is_new, .answer = answer_write(&answer, &plan)};
  ret->release = TAKE(release);
  return true;
}

bool route_release_post(struct worker *worker, struct request *request, struct error *error) {
  cleanup_release_request struct release_request wanted = {0};
  cleanup_environment struct environment environment = {0};
  cleanup_release_made struct release_made made = {0};
  if (!release_request_parse(request->json, &wanted, error) ||
      !environment_choose(worker, request, &wanted, &environment, error) ||
      !release_make(worker, &wanted, &environment, request_author(request), &made, error))
    return false;
  if (made.release)
    return request_answer_json(request, made.is_new ? 201 : 200, TAKE(made.answer));

  if (json_object_get(made.answer, "lacking"))
    error_of(error, ERROR_CONFLICT,
             "%zu required keys have no winner that can be released; \"lacking\" says which",
             json_array_size(json_object_get(made.answer, "lacking")));
  else
    error_set(error,
              "nothing can be released for this environment, tag and regime; \"skipped\" says why");
  request->extra = TAKE(made.answer);
  return false;
}
