/* Reading kernels, builds, environments and earlier winners for the jobs of one post. Memory and
 * threads: catalog.h. */
#include "server/job/catalog.h"

#include "common/base/log.h"
#include "server/db/db_record.h"
#include "server/job/catalog.sql.h"
#include "server/measurement/lease_plan.h"

#define PACE_JOBS 16

/* Earlier winners */

static const struct field past_fields[] = {
    RECORD_FIELD_AS("environment", DIGEST, struct past_winner, environment_digest),
    RECORD_FIELDS(JSON, struct past_winner, key, config_values),
};
static const struct record past_record = RECORD(NULL, struct past_winner, past_fields);

void past_winners_release(struct past_winners *winners) {
  db_records_free(&past_record, winners->all, winners->n);
  *winners = (struct past_winners){0};
}

bool winners_past(struct db *db, const struct digest *kernels, size_t n,
                  struct past_winners *ret_winners, struct error *error) {
  cleanup_rows struct db_rows *rows =
      db_query(db, &sql_winners_past, error, BIND_ALL("kernel", kernels, n),
               BIND("limit", PAST_WINNERS_MAX));
  if (!rows)
    return false;

  for (size_t i = 0; i < n; i++)
    ret_winners[i] = (struct past_winners){0};
  for (int row = 0; row < db_count(rows); row++) {
    struct past_winners *winners = &ret_winners[db_get_integer(rows, row, "n") - 1];
    if (!winners->all)
      winners->all = xcalloc(PAST_WINNERS_MAX, sizeof *winners->all);
    db_read(rows, row, &past_record, &winners->all[winners->n++]);
  }

  return true;
}

size_t job_warm_starts(const struct space *space, const struct key *key,
                       const struct digest *environment_digest, const struct past_winners *winners,
                       uint64_t ret[WARM_STARTS_MAX]) {
  cleanup_free struct key *keys = xcalloc(winners->n + 1, sizeof *keys);
  cleanup_free struct known_winner *known = xcalloc(winners->n + 1, sizeof *known);
  size_t n = 0;
  for (size_t i = 0; i < winners->n; i++) {
    const struct past_winner *past = &winners->all[i];
    struct error error; /* values of another space, or a key that this version cannot read */
    if (!space_config_from_json(space, past->config_values, &known[n].config, &error) ||
        !key_parse(past->key, NULL, 0, &keys[n], &error))
      continue;
    known[n].key = &keys[n];
    known[n].is_elsewhere = !digest_equal(&past->environment_digest, environment_digest);
    n++;
  }

  size_t n_chosen = warm_starts_choose(key, known, n, ret);
  for (size_t i = 0; i < n; i++)
    key_release(&keys[i]);
  return n_chosen;
}

char *job_warm_starts_text(const uint64_t *ordinals, size_t n) {
  struct db_array array;
  db_array_init(&array);
  for (size_t i = 0; i < n; i++)
    db_array_integer(&array, (int64_t)ordinals[i]);
  db_array_finish(&array);
  return array.text;
}

bool job_set_warm_starts(struct db *db, int64_t job, const uint64_t *warm_starts, size_t n,
                         struct error *error) {
  return db_execute(db, &sql_job_set_likely, error, BIND("job", job),
                    parameter_taken("likely", job_warm_starts_text(warm_starts, n)));
}

/* The catalog */

void catalog_release(struct catalog *catalog) {
  for (size_t i = 0; i < catalog->n; i++) {
    if (catalog->kernels[i].kernel)
      kernel_free(catalog->kernels[i].kernel);
    for (size_t b = 0; b < catalog->kernels[i].builds.n; b++)
      build_free(catalog->kernels[i].builds.builds[b]);
    free(catalog->kernels[i].builds.builds);
    past_winners_release(&catalog->kernels[i].winners);
  }

  free(catalog->kernels);
  known_environments_release(&catalog->environments);
  *catalog = (struct catalog){0};
}

struct catalog_kernel *catalog_find(struct catalog *catalog, const struct digest *hash) {
  for (size_t i = 0; i < catalog->n; i++)
    if (digest_equal(&catalog->kernels[i].hash, hash))
      return &catalog->kernels[i];
  return NULL;
}

bool catalog_load(struct worker *worker, const struct digest *kernels, size_t n,
                  struct catalog *ret, struct error *error) {
  cleanup_catalog struct catalog catalog = {0};
  cleanup_free struct digest *hashes = xcalloc(n + 1, sizeof *hashes);
  for (size_t i = 0; i < n; i++) {
    if (catalog_find(&catalog, &kernels[i]))
      continue;
    GROW(catalog.kernels, catalog.n, catalog.capacity);
    hashes[catalog.n] = kernels[i];
    catalog.kernels[catalog.n++] =
        (struct catalog_kernel){.hash = kernels[i], .config_us = CONFIG_US_DEFAULT};
  }

  cleanup_rows struct db_rows *manifests =
      db_query(worker->db, &sql_job_kernels_load, error, BIND_ALL("kernel", hashes, catalog.n));
  if (!manifests)
    return false;

  cleanup_rows struct db_rows *paces =
      db_query(worker->db, &sql_kernels_pace, error, BIND_ALL("kernel", hashes, catalog.n),
               BIND("limit", PACE_JOBS));
  if (!paces || !environments_known(worker->db, agent_live_ms(server_options(worker->server)),
                                    &catalog.environments, error))
    return false;

  for (int row = 0; row < db_count(manifests); row++) {
    cleanup_json json_t *manifest = db_get_json(manifests, row, "manifest");
    struct error bad; /* it was valid when another version stored it */
    if (!kernel_parse(manifest, &catalog.kernels[db_get_integer(manifests, row, "n") - 1].kernel,
                      &bad))
      log_error("kernel: a stored manifest is not valid any more: %s", bad.message);
  }

  for (int row = 0; row < db_count(paces); row++)
    if (db_get_integer(paces, row, "config_us") > 0)
      catalog.kernels[db_get_integer(paces, row, "n") - 1].config_us =
          db_get_integer(paces, row, "config_us");

  *ret = catalog;
  catalog = (struct catalog){0};
  return true;
}

bool catalog_load_builds(struct worker *worker, struct catalog_kernel *entry, struct error *error) {
  if (entry->has_builds)
    return true;

  cleanup_rows struct db_rows *rows =
      db_query(worker->db, &sql_job_builds_load, error, BIND("kernel", &entry->hash));
  if (!rows)
    return false;

  entry->has_builds = true;
  entry->builds =
      (struct match_builds){.builds = xcalloc((size_t)db_count(rows) + 1, sizeof(struct build *)),
                            .required = true,
                            .is_captured = entry->kernel->is_captured};
  for (int row = 0; row < db_count(rows); row++) {
    cleanup_json json_t *head = db_get_json(rows, row, "head");
    struct digest digest = db_get_digest(rows, row, "digest");
    struct error bad;
    if (build_parse_head(head, &digest, entry->kernel, &entry->builds.builds[entry->builds.n],
                         &bad))
      entry->builds.n++;
    else
      log_error("kernel: a stored build is not valid any more: %s", bad.message);
  }

  return true;
}
