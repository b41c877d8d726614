/* SQL of releases. Memory and threads: as the header says. */
#include "server/release/releases.h"

#include "common/base/log.h"
#include "server/db/values.h"

void release_environments_release(struct release_environments *environments) {
  for (size_t i = 0; i < environments->n; i++)
    environment_release(&environments->all[i]);
  free(environments->all);
  *environments = (struct release_environments){0};
}

/* Those that were tuned for: a job that waits or was cancelled, perhaps for an environment that nobody has, must not make
 * a partial environment ambiguous. */
static const struct statement release_environments_statement = {
    "release_environments",
    /* From one environment to the next by the index: a table may have been imported a million times over. */
    "WITH RECURSIVE imported AS ((SELECT environment_digest, environment, id FROM imports WHERE tag = $1"
    "   ORDER BY environment_digest LIMIT 1) UNION ALL SELECT next.* FROM imported CROSS JOIN LATERAL"
    "  (SELECT environment_digest, environment, id FROM imports WHERE tag = $1"
    "    AND environment_digest > imported.environment_digest ORDER BY environment_digest LIMIT 1) next)"
    " SELECT identity FROM (SELECT DISTINCT ON (digest) digest, identity, later, id FROM ("
    "  SELECT digest, identity, false AS later, id FROM environments WHERE id IN"
    "   (SELECT environment_id FROM jobs WHERE tag = $1 AND regime = $2 AND state IN ('done', 'failed'))"
    "  UNION ALL SELECT environment_digest, environment, true, id FROM imported) every"
    " ORDER BY digest, later, id) one ORDER BY later, id"};

bool release_environments_load(struct db *db, const char *tag, enum regime regime, struct release_environments *ret,
                               struct error *error) {
  struct db_parameters parameters = {0};
  db_text(&parameters, tag);
  db_text(&parameters, regime_name(regime));
  cleanup_rows struct db_rows *rows = NULL;
  if (!db_run(db, &release_environments_statement, &parameters, &rows, error))
    return false;
  struct release_environments environments = {.all = xcalloc((size_t)db_count(rows) + 1, sizeof *environments.all)};
  for (int row = 0; row < db_count(rows); row++) {
    cleanup_json json_t *identity = db_get_json(rows, row, "identity");
    struct error bad;
    ALWAYS(environment_parse(identity, &environments.all[environments.n++], &bad));
  }
  *ret = environments;
  return true;
}

/* The keys by which agents let the winner through, where all that measured it in the final asked for a signature; nothing is
 * looked up of what nobody signed. */
#define SQL_MEASURED_KEY(member, signed_sql)                                                                           \
  "CASE WHEN EXISTS (SELECT FROM code_signatures c WHERE c.digest = " signed_sql ") THEN"                              \
  " (SELECT CASE WHEN bool_and(m.conditions ->> '" member "' IS NOT NULL) THEN"                                        \
  "   string_agg(DISTINCT m.conditions ->> '" member "', ' ') END FROM measurements m WHERE m.job_id = w.job_id"       \
  "   AND m.stage = 'final' AND m.config = w.config AND NOT m.late) END"

static const struct statement release_candidates_statement = {
    "release_candidates",
    "SELECT j.id, k.name, k.id AS kernel_order, k.manifest -> 'key' AS key_names, j.kernel, j.key, j.space_digest,"
    "  j.state, j.reason, j.build, k.language = 'c' AS is_self_timed,"
    "  COALESCE((extract(epoch FROM j.finished_at) * 1000000)::bigint, 0) AS finished_us, w.config, w.config_values,"
    "  (SELECT sum(device_us + opening_us) FROM leases WHERE job_id = w.job_id)::bigint AS device_us,"
    "  " SQL_MEASURED_KEY("kernel_key", "j.kernel") " AS kernel_key, " SQL_MEASURED_KEY(
        "build_key",
        "j.build") " AS build_key,"
                   "  j.baseline, w.verdict, w.flagged ->> 'job' AS flagged_by, w.flagged ->> 'ratio' AS "
                   "flagged_ratio, w.quarantined"
                   " FROM jobs j JOIN kernels k ON k.hash = j.kernel LEFT JOIN winners w ON w.job_id = j.id"
                   " WHERE j.environment_id = (SELECT id FROM environments WHERE digest = $1::bytea) AND j.tag = $2"
                   "  AND ($3::bytea[] IS NULL OR j.kernel = ANY ($3::bytea[])) AND j.regime = $4"};

/* Seconds with three digits: thousands of winners then share a few hundred provenances, where each of them would have one
 * of its own, which every start of a container reads. */
static double seconds_round(int64_t us) {
  char text[32];
  snprintf(text, sizeof text, "%.3g", (double)us / 1e6);
  return strtod(text, NULL);
}

static json_t *tuned_provenance(const struct db_rows *rows, int row) {
  json_t *provenance = json_pack("{s:s}", "origin", "tuned");
  int64_t device_us = db_get_integer(rows, row, "device_us"); /* 0: no winner, or nothing reported it */
  if (device_us)
    ALWAYS(json_object_set_new(provenance, "spent_device_seconds", json_real(seconds_round(device_us))) == 0);
  if (!db_is_null(rows, row, "build")) {
    struct digest build = db_get_digest(rows, row, "build");
    ALWAYS(json_object_set_new(provenance, "build", json_digest_text(&build)) == 0);
  }
  static const char *const keys[] = {"kernel_key", "build_key"};
  for (size_t i = 0; i < ARRAY_LENGTH(keys); i++)
    if (!db_is_null(rows, row, keys[i]))
      ALWAYS(json_object_set_new(provenance, keys[i], json_string(db_get(rows, row, keys[i]))) == 0);
  return provenance;
}

static bool candidate_read(const struct db_rows *rows, int row, struct release_candidate *candidate,
                           struct error *error) {
  *candidate = (struct release_candidate){
      .job = db_get_integer(rows, row, "id"),
      .name = xstrdup(db_get(rows, row, "name")),
      .kernel = db_get_digest(rows, row, "kernel"),
      .kernel_order = db_get_integer(rows, row, "kernel_order"),
      .is_self_timed = db_get_bool(rows, row, "is_self_timed"),
      .key_names = db_get_json(rows, row, "key_names"),
      .key = db_get_json(rows, row, "key"),
      .space = db_get_digest(rows, row, "space_digest"),
      .state = xstrdup(db_get(rows, row, "state")),
      .reason = db_is_null(rows, row, "reason") ? NULL : xstrdup(db_get(rows, row, "reason")),
      .finished_us = db_get_integer(rows, row, "finished_us"),
      .has_winner = !db_is_null(rows, row, "config"),
  };
  candidate->key_text = json_canonical(candidate->key);
  candidate->provenance = tuned_provenance(rows, row);
  if (!candidate->has_winner)
    return true;
  candidate->ordinal = (uint64_t)db_get_integer(rows, row, "config");
  candidate->baseline = (uint64_t)db_get_integer(rows, row, "baseline");
  candidate->config = db_get_json(rows, row, "config_values");
  candidate->flagged_by = db_get_integer(rows, row, "flagged_by");
  candidate->flagged_ratio = db_get_double(rows, row, "flagged_ratio");
  candidate->quarantined = db_is_null(rows, row, "quarantined") ? NULL : xstrdup(db_get(rows, row, "quarantined"));
  cleanup_json json_t *verdict = db_get_json(rows, row, "verdict");
  if (release_candidate_read_verdict(candidate, verdict, error))
    return true;
  error_prefix(error, "the verdict stored for job %lld cannot be read: ", (long long)candidate->job);
  return error_become(error, ERROR_DAMAGED);
}

static const struct statement release_spaces_statement = {
    "release_spaces", "SELECT digest, space FROM spaces WHERE digest = ANY ($1::bytea[])"};

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
    for (size_t i = 0; i < candidates->n; i++)
      if (digest_equal(&candidates->all[i].space, &digest) && release_needs_space(request, served, &candidates->all[i]))
        candidates->all[i].points = candidates->spaces[row];
  }
  return true;
}

static bool spaces_load(struct db *db, const struct release_request *request, const struct release_served *served,
                        struct release_candidates *candidates, struct error *error) {
  struct db_array digests;
  db_array_init(&digests);
  for (size_t i = 0; i < candidates->n; i++)
    if (release_needs_space(request, served, &candidates->all[i]))
      db_array_digest(&digests, &candidates->all[i].space);
  struct db_parameters parameters = {0};
  db_text(&parameters, db_array_finish(&digests));
  cleanup_rows struct db_rows *rows = NULL;
  bool ok = digests.n == 0 || (db_run(db, &release_spaces_statement, &parameters, &rows, error) &&
                               spaces_read(rows, request, served, candidates, error));
  db_array_release(&digests);
  return ok;
}

static const struct statement release_served_statement = {
    "release_served",
    "SELECT c.counter, c.release, c.signings, r.bytes FROM channels c JOIN releases r ON r.digest = c.release"
    " WHERE c.name = $1 AND c.tag = $2 AND c.environment_digest = $3::bytea AND c.regime = $4"};

bool release_served_load(struct db *db, const struct release_request *request, const struct environment *environment,
                         struct release_served *ret_served, struct channel_state *ret_state, struct error *error) {
  struct digest digest = environment_digest(environment);
  struct db_parameters parameters = {0};
  db_text(&parameters, request->channel);
  db_text(&parameters, request->tag);
  db_digest(&parameters, &digest);
  db_text(&parameters, regime_name(request->regime));
  cleanup_rows struct db_rows *rows = NULL;
  if (!db_run(db, &release_served_statement, &parameters, &rows, error))
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
  else /* an older wavetune's: what nobody can fetch any more is not to be kept, and must not stand in the way */
    log_warning("publish: the release that channel %s serves is not compared with: %s", request->channel,
                unread.message);
  *ret_state = (struct channel_state){db_get_integer(rows, 0, "counter"), served, db_get_integer(rows, 0, "signings")};
  return true;
}

static const struct statement release_imports_statement = {
    "release_imports",
    "SELECT k.name, k.id AS kernel_order, k.language = 'external' AS is_external, k.manifest -> 'key' AS key_names,"
    "  i.kernel, i.key, i.config, to_json(i.ms) AS ms, i.provenance, i.format,"
    "  (extract(epoch FROM i.imported_at) * 1000000)::bigint AS imported_us"
    " FROM imports i JOIN kernels k ON k.hash = i.kernel"
    " WHERE i.environment_digest = $1::bytea AND i.tag = $2 AND ($3::bytea[] IS NULL OR i.kernel = ANY ($3::bytea[]))"};

static struct release_candidate import_read(const struct db_rows *rows, int row) {
  struct release_candidate import = {
      .name = xstrdup(db_get(rows, row, "name")),
      .kernel = db_get_digest(rows, row, "kernel"),
      .is_external = db_get_bool(rows, row, "is_external"),
      .kernel_order = db_get_integer(rows, row, "kernel_order"),
      .key_names = db_get_json(rows, row, "key_names"),
      .key = db_get_json(rows, row, "key"),
      .state = xstrdup("done"),
      .finished_us = db_get_integer(rows, row, "imported_us"),
      .has_winner = true,
      .outcome = VERDICT_SAME,
      .config = db_get_json(rows, row, "config"),
      .provenance = db_get_json(rows, row, "provenance"),
  };
  import.key_text = json_canonical(import.key);
  ALWAYS(json_object_set_new(import.provenance, "origin", json_string("imported")) == 0);
  ALWAYS(json_object_set_new(import.provenance, "format", json_string(db_get(rows, row, "format"))) == 0);
  cleanup_json json_t *ms = db_get_json(rows, row, "ms");
  for (; import.n_ms < json_array_size(ms) && import.n_ms < RELEASE_MS_MAX; import.n_ms++)
    import.ms[import.n_ms] = json_number_value(json_array_get(ms, import.n_ms));
  return import;
}

/* The rows of a statement over environment, tag, kernels and, of jobs, the regime: what was imported has none. */
static bool candidates_run(struct db *db, const struct statement *statement, const struct release_request *request,
                           const struct digest *environment, struct db_rows **ret_rows, struct error *error) {
  struct db_array kernels;
  db_array_init(&kernels);
  for (size_t i = 0; i < request->n_kernels; i++)
    db_array_digest(&kernels, &request->kernels[i]);
  const char *kernels_text = db_array_finish(&kernels);
  struct db_parameters parameters = {0};
  db_digest(&parameters, environment);
  db_text(&parameters, request->tag);
  db_text(&parameters, request->n_kernels ? kernels_text : NULL);
  if (statement == &release_candidates_statement)
    db_text(&parameters, regime_name(request->regime));
  bool ok = db_run(db, statement, &parameters, ret_rows, error);
  db_array_release(&kernels);
  return ok;
}

bool release_candidates_load(struct db *db, const struct release_request *request,
                             const struct environment *environment, const struct release_served *served,
                             struct release_candidates *ret, struct error *error) {
  struct digest digest = environment_digest(environment);
  cleanup_rows struct db_rows *jobs = NULL, *imports = NULL;
  if (!candidates_run(db, &release_candidates_statement, request, &digest, &jobs, error) ||
      !candidates_run(db, &release_imports_statement, request, &digest, &imports, error))
    return false;
  cleanup_release_candidates struct release_candidates candidates = {
      .all = xcalloc((size_t)(db_count(jobs) + db_count(imports)) + 1, sizeof *candidates.all)};
  for (int row = 0; row < db_count(jobs); row++)
    if (!candidate_read(jobs, row, &candidates.all[candidates.n++], error))
      return false;
  for (int row = 0; row < db_count(imports); row++)
    candidates.all[candidates.n++] = import_read(imports, row);
  if (!spaces_load(db, request, served, &candidates, error))
    return false;
  *ret = candidates;
  candidates = (struct release_candidates){0};
  return true;
}

static const struct statement release_store_statement = {
    "release_store", "INSERT INTO releases (digest, environment_digest, environment, tag, winners, bytes, regime,"
                     "  made_by, made_by_id)"
                     " VALUES ($1::bytea, $2::bytea, $3::json, $4, $5::integer, $6::bytea, $7, $8, $9::bigint)"
                     " ON CONFLICT (digest) DO NOTHING"};

bool release_store(struct db *db, const struct release *release, const struct author *author, bool *ret_is_new,
                   struct error *error) {
  struct digest environment = environment_digest(&release->environment);
  cleanup_json json_t *json = environment_to_json(&release->environment);
  cleanup_free char *text = json_canonical(json);
  struct db_parameters parameters = {0};
  db_digest(&parameters, &release->digest);
  db_digest(&parameters, &environment);
  db_text(&parameters, text);
  db_text(&parameters, release->tag);
  db_integer(&parameters, (int64_t)release->n_winners);
  db_bytes(&parameters, release->bytes, release->size);
  db_text(&parameters, regime_name(release->regime));
  db_author(&parameters, author);
  cleanup_rows struct db_rows *rows = NULL;
  if (!db_begin(db, error))
    return false;
  bool ok = db_run(db, &release_store_statement, &parameters, &rows, error);
  *ret_is_new = ok && db_affected(rows) == 1;
  if (*ret_is_new)
    ok = audit_note_digest(db, author, AUDIT_RELEASE, &release->digest,
                           json_pack("{s:s, s:s, s:I}", "tag", release->tag, "regime", regime_name(release->regime),
                                     "winners", (json_int_t)release->n_winners),
                           error);
  return db_end(db, ok, error);
}

static const struct statement release_load_statement = {"release_load",
                                                        "SELECT bytes FROM releases WHERE digest = $1::bytea"};

bool release_load(struct db *db, const struct digest *digest, char **ret_bytes, size_t *ret_size, struct error *error) {
  struct db_parameters parameters = {0};
  db_digest(&parameters, digest);
  cleanup_rows struct db_rows *rows = NULL;
  if (!db_run(db, &release_load_statement, &parameters, &rows, error))
    return false;
  *ret_bytes = NULL;
  *ret_size = 0;
  if (db_count(rows)) {
    cleanup_free uint8_t *bytes = db_get_bytes(rows, 0, "bytes", ret_size);
    *ret_bytes = xstrndup((const char *)bytes, *ret_size);
  }
  return true;
}

static const struct statement releases_list_statement = {
    "releases_list", "SELECT id, json_build_object('release', 'sha256:' || encode(digest, 'hex'), 'environment', "
                     "environment, 'tag', tag, 'regime', regime,"
                     "  'winners', winners, 'created_at', " SQL_TIME("created_at") ", " SQL_BY(
                         "r", "made_by") ") AS item"
                                         " FROM releases r WHERE id < $1 ORDER BY id DESC LIMIT $2"};

bool releases_list(struct db *db, int64_t before, int64_t limit, json_t **ret_items, int64_t *ret_next,
                   struct error *error) {
  struct db_parameters parameters = {0};
  db_integer(&parameters, before);
  db_integer(&parameters, limit + 1);
  cleanup_rows struct db_rows *rows = NULL;
  if (!db_run(db, &releases_list_statement, &parameters, &rows, error))
    return false;
  *ret_items = db_get_json_rows(rows, "item");
  *ret_next = 0;
  if (db_count(rows) > limit) {
    ALWAYS(json_array_remove(*ret_items, (size_t)limit) == 0);
    *ret_next = db_get_integer(rows, (int)limit - 1, "id");
  }
  return true;
}
