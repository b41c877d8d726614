/* Releases in the database. Memory and threads: as the header says. */
#include "server/release/releases.h"

#include "common/base/log.h"
#include "server/db/db_record.h"
#include "server/db/values.h"
#include "server/records.h"
#include "server/release/release.sql.h"

void release_environments_release(struct release_environments *environments) {
  for (size_t i = 0; i < environments->n; i++)
    environment_release(&environments->all[i]);
  free(environments->all);
  *environments = (struct release_environments){0};
}

bool release_environments_load(struct db *db, const char *tag, enum regime regime,
                               struct release_environments *ret, struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_text(&parameters, "tag", tag);
  bind_text(&parameters, "regime", regime_name(regime));
  if (!db_run(db, &sql_release_environments, &parameters, &rows, error))
    return false;

  struct release_environments environments = {
      .all = xcalloc((size_t)db_count(rows) + 1, sizeof *environments.all)};
  for (int row = 0; row < db_count(rows); row++) {
    cleanup_json json_t *identity = db_get_json(rows, row, "identity");
    struct error bad;
    ALWAYS(environment_parse(identity, &environments.all[environments.n++], &bad));
  }
  *ret = environments;
  return true;
}

bool release_served_load(struct db *db, const struct release_request *request,
                         const struct environment *environment, struct release_served *ret_served,
                         struct channel_state *ret_state, struct error *error) {
  struct digest environment_id = environment_digest(environment);
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_text(&parameters, "channel", request->replaces.channel);
  bind_text(&parameters, "tag", request->tag);
  bind_text(&parameters, "regime", regime_name(request->regime));
  bind_digest(&parameters, "environment_digest", &environment_id);
  if (!db_run(db, &sql_release_served, &parameters, &rows, error))
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
  else /* an older wavetune's: nobody can fetch it any more, so it is not to be kept and must not
          stand in the way */
    log_warning("publish: the release that channel %s serves is not compared with: %s",
                request->replaces.channel, unread.message);
  *ret_state = (struct channel_state){db_get_integer(rows, 0, "counter"), served,
                                      db_get_integer(rows, 0, "signings")};
  return true;
}

/* Jobs and imports of the environment, tag and kernels; of jobs, also of the regime. */
static bool candidates_run(struct db *db, const struct statement *statement,
                           const struct release_request *request,
                           const struct environment *environment, struct db_rows **ret_rows,
                           struct error *error) {
  struct digest environment_id = environment_digest(environment);
  cleanup_parameters struct db_parameters parameters = {0};
  bind_digest(&parameters, "environment_digest", &environment_id);
  bind_text(&parameters, "tag", request->tag);
  bind_taken(&parameters, "regime", xstrdup(regime_name(request->regime)), true);
  if (request->kernels.n)
    bind_digests(&parameters, "kernels", request->kernels.all, request->kernels.n);
  else
    bind_text(&parameters, "kernels", NULL);
  return db_run(db, statement, &parameters, ret_rows, error);
}

/* Seconds with three digits: thousands of winners then share a few hundred provenances, where each
 * of them would have one of its own, which every start of a container reads. */
static double seconds_round(int64_t us) {
  char text[32];
  snprintf(text, sizeof text, "%.3g", (double)us / 1e6);
  return strtod(text, NULL);
}

static bool job_read(const struct db_rows *rows, int row, struct release_candidate *job,
                     struct error *error) {
  db_read(rows, row, &release_candidate_record, job);
  job->key_text = json_canonical(job->key);

  int64_t device_us =
      db_get_integer(rows, row, "device_us"); /* 0: no winner, or nothing reported it */
  if (device_us)
    ALWAYS(json_object_set_new(job->provenance, "spent_device_seconds",
                               json_real(seconds_round(device_us))) == 0);

  if (!job->has_winner || release_candidate_read_verdict(job, error))
    return true;
  error_prefix(error, "the verdict stored for job %lld cannot be read: ", (long long)job->job);
  return error_become(error, ERROR_DAMAGED);
}

static void import_read(const struct db_rows *rows, int row, struct release_candidate *import) {
  db_read(rows, row, &release_candidate_record, import);
  import->key_text = json_canonical(import->key);
  import->outcome = VERDICT_SAME;
  ALWAYS(json_object_set_new(import->provenance, "origin", json_string("imported")) == 0);
  ALWAYS(json_object_set_new(import->provenance, "format",
                             json_string(db_get(rows, row, "format"))) == 0);

  cleanup_json json_t *ms = db_get_json(rows, row, "ms");
  for (; import->n_ms < json_array_size(ms) && import->n_ms < RELEASE_MS_MAX; import->n_ms++)
    import->ms[import->n_ms] = json_number_value(json_array_get(ms, import->n_ms));
}

static bool spaces_read(const struct db_rows *rows, const struct release_request *request,
                        const struct release_served *served, struct release_candidates *candidates,
                        struct error *error) {
  candidates->spaces = xcalloc((size_t)db_count(rows) + 1, sizeof(struct space *));
  for (int row = 0; row < db_count(rows); row++) {
    struct digest digest = db_get_digest(rows, row, "digest");
    cleanup_json json_t *json = db_get_json(rows, row, "space");
    if (!space_parse(json, &candidates->spaces[row], error)) {
      error_prefix(error, "a stored space cannot be read: ");
      return error_become(error, ERROR_DAMAGED);
    }
    candidates->n_spaces++;

    for (size_t i = 0; i < candidates->n; i++) {
      struct release_candidate *candidate = &candidates->all[i];
      if (digest_equal(&candidate->space, &digest) &&
          release_needs_space(request, served, candidate))
        candidate->points = candidates->spaces[row];
    }
  }
  return true;
}

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

  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_digests(&parameters, "digests", digests, n);
  return db_run(db, &sql_release_spaces, &parameters, &rows, error) &&
         spaces_read(rows, request, served, candidates, error);
}

bool release_candidates_load(struct db *db, const struct release_request *request,
                             const struct environment *environment,
                             const struct release_served *served, struct release_candidates *ret,
                             struct error *error) {
  cleanup_rows struct db_rows *jobs = NULL, *imports = NULL;
  if (!candidates_run(db, &sql_release_candidates, request, environment, &jobs, error) ||
      !candidates_run(db, &sql_release_imports, request, environment, &imports, error))
    return false;

  size_t n = (size_t)db_count(jobs) + (size_t)db_count(imports);
  cleanup_release_candidates struct release_candidates candidates = {
      .all = xcalloc(n + 1, sizeof *candidates.all)};
  for (int row = 0; row < db_count(jobs); row++)
    if (!job_read(jobs, row, &candidates.all[candidates.n++], error))
      return false;
  for (int row = 0; row < db_count(imports); row++)
    import_read(imports, row, &candidates.all[candidates.n++]);

  if (!spaces_load(db, request, served, &candidates, error))
    return false;
  *ret = candidates;
  candidates = (struct release_candidates){0};
  return true;
}

bool release_store(struct db *db, const struct release *release, const struct author *author,
                   bool *ret_is_new, struct error *error) {
  struct digest environment_id = environment_digest(&release->environment);
  cleanup_json json_t *environment = environment_to_json(&release->environment);
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_digest(&parameters, "digest", &release->digest);
  bind_digest(&parameters, "environment_digest", &environment_id);
  bind_taken(&parameters, "environment", json_canonical(environment), false);
  bind_text(&parameters, "tag", release->tag);
  bind_text(&parameters, "regime", regime_name(release->regime));
  bind_integer(&parameters, "winners", (int64_t)release->n_winners);
  bind_bytes(&parameters, "bytes", release->bytes, release->size);
  bind_author(&parameters, author);

  if (!db_begin(db, error))
    return false;
  bool ok = db_run(db, &sql_release_store, &parameters, &rows, error);
  bool is_new = ok && db_affected(rows) == 1;
  if (is_new)
    ok = audit_note_digest(db, author, AUDIT_RELEASE, &release->digest,
                           json_pack("{s:s, s:s, s:I}", "tag", release->tag, "regime",
                                     regime_name(release->regime), "winners",
                                     (json_int_t)release->n_winners),
                           error);
  if (!db_end(db, ok, error))
    return false;

  *ret_is_new = is_new;
  return true;
}

bool release_load(struct db *db, const struct digest *digest, char **ret_bytes, size_t *ret_size,
                  struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_digest(&parameters, "digest", digest);
  if (!db_run(db, &sql_release_load, &parameters, &rows, error))
    return false;

  *ret_bytes = NULL;
  *ret_size = 0;
  if (db_count(rows)) {
    cleanup_free uint8_t *bytes = db_get_bytes(rows, 0, "bytes", ret_size);
    *ret_bytes = xstrndup((const char *)bytes, *ret_size);
  }
  return true;
}

struct listed_release {
  struct digest release;
  json_t *environment;
  char *tag;
  enum regime regime;
  int64_t winners;
  char *created_at, *made_by;
  int64_t made_by_id;
};
#define AT(member) offsetof(struct listed_release, member)
static const struct field listed_fields[] = {
    {"release", FIELD_DIGEST, AT(release), FIELD_ANSWER | FIELD_NOT_NULL, "digest"},
    {"environment", FIELD_JSON, AT(environment), FIELD_ANSWER | FIELD_NOT_NULL,
     .schema = "{\"$ref\": \"#/components/schemas/Environment\"}"},
    {"tag", FIELD_TEXT, AT(tag), FIELD_ANSWER | FIELD_NOT_NULL},
    {"regime", FIELD_ENUM, AT(regime), FIELD_ANSWER | FIELD_NOT_NULL, .names = regime_names},
    {"winners", FIELD_INTEGER, AT(winners), FIELD_ANSWER | FIELD_NOT_NULL},
    {"created_at", FIELD_TIME, AT(created_at), FIELD_ANSWER | FIELD_NOT_NULL},
    {"made_by", FIELD_TEXT, AT(made_by), FIELD_ANSWER | FIELD_NOT_NULL,
     .schema = "{\"$ref\": \"#/components/schemas/By\"}"},
    {"made_by_id", FIELD_ID, AT(made_by_id), FIELD_ANSWER | FIELD_NOT_NULL, .schema = SCHEMA_BY_ID},
};
#undef AT
const struct record listed_release_record =
    RECORD("ListedRelease", struct listed_release, listed_fields);

bool releases_list(struct db *db, int64_t before, int64_t limit, json_t **ret_items,
                   int64_t *ret_next, struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_integer(&parameters, "before", before);
  bind_integer(&parameters, "limit", limit);
  if (!db_run(db, &sql_releases_list, &parameters, &rows, error))
    return false;

  db_page_to_json(rows, &listed_release_record, limit, ret_items, ret_next);
  return true;
}
