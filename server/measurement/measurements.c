/* Judging and storing posts of results, and reading measurements. */
#include "server/measurement/measurements.h"

#include <math.h>

#include "common/base/numbers.h"
#include "server/db/db_record.h"
#include "server/measurement/measurement.sql.h"
#include "server/records.h"

static const struct field results_fields[] = {
    RECORD_FIELD(INTEGER, struct results, epoch, FIELD_REQUIRED, .least = 1, .most = INT64_MAX),
    RECORD_FIELD(RECORDS, struct results, measurements, FIELD_REQUIRED,
                 .most = RESULTS_MEASUREMENTS_MAX, .of = &measurement_record),
    RECORD_FIELD(BOOL, struct results, done, FIELD_NOT_NULL,
                 .about = "no more of the lease will be measured"),
    RECORD_FIELD(INTEGER, struct results, opening_us, FIELD_NOT_NULL, .most = OPENING_US_MAX,
                 .about = "device time for opening the kernel so far in this epoch"),
};
const struct record results_record = RECORD("ResultsRequest", struct results, results_fields);

/* Equal bodies have equal digests. The samples are hashed as they are in memory: writing them as
 * text would cost more than the rest of a post. This must not change, because agents repeat posts
 * that failed before an upgrade of the server. */
static struct digest body_digest(const json_t *json, const struct measurement *measurement) {
  const struct numbers *samples = &measurement->samples_us, *baselines = &measurement->baseline_us;
  cleanup_json json_t *rest = json_copy((json_t *)json);
  json_object_del(rest, "samples_us");
  json_object_del(rest, "baseline_us");
  cleanup_free char *text = json_dumps(rest, JSON_COMPACT | JSON_SORT_KEYS);
  ALWAYS(text != NULL);

  struct digest_stream *stream = digest_stream_new();
  digest_stream_add(stream, text, strlen(text) + 1);
  digest_stream_add(stream, samples->all, samples->n * sizeof *samples->all);
  digest_stream_add(stream, baselines->all, baselines->n * sizeof *baselines->all);
  return digest_stream_finish(stream);
}

bool results_parse(const json_t *json, struct results *ret, struct error *error) {
  cleanup_results struct results results;
  record_init(&results_record, &results);
  results.opening_us = 0;
  if (!record_read(&results_record, json, "", &results, error))
    return false;

  size_t n = results.measurements.n;
  if (n == 0 && !results.done)
    return error_at(error, "/measurements",
                    "there are no measurements; post 1 to %d, or none with \"done\"",
                    RESULTS_MEASUREMENTS_MAX);

  cleanup_free uint64_t *seqs = xcalloc(n + 1, sizeof *seqs);
  results.posted = xcalloc(n + 1, sizeof *results.posted);
  for (size_t i = 0; i < n; i++) {
    const struct measurement *measurement = RESULTS_MEASUREMENT(&results, i);
    struct posted *posted = &results.posted[i];
    char at[JSON_POINTER_SIZE];
    if (!measurement_agrees(measurement, json_pointer_index(at, sizeof at, "/measurements", i),
                            error))
      return false;

    posted->body =
        body_digest(json_array_get(json_object_get(json, "measurements"), i), measurement);
    posted->ratio = NAN;
    if (measurement->samples_us.n)
      posted->ratio = verdict_paired_ratio(measurement->samples_us.all,
                                           measurement->baseline_us.all, measurement->samples_us.n);
    if (measurement->baseline_failed)
      posted->baseline_failure = BASELINE_FAILED;
    else if (measurement->outcome != OUTCOME_CORRECT && measurement->detail &&
             string_starts(measurement->detail, "baseline: "))
      posted->baseline_failure = BASELINE_FAILED_BY_DETAIL;
    seqs[i] = (uint64_t)measurement->seq;
  }

  qsort(seqs, n, sizeof *seqs, compare_ordinals);
  for (size_t i = 1; i < n; i++)
    if (seqs[i] == seqs[i - 1])
      return error_at(error, "/measurements",
                      "seq %lld occurs twice; it is unique in a lease's epoch", (long long)seqs[i]);

  *ret = results;
  record_init(&results_record, &results);
  return true;
}

void results_release(struct results *results) {
  free(results->posted);
  results->posted = NULL;
  record_release(&results_record, results);
}

const struct measurement *results_baseline_failure(const struct results *results,
                                                   int64_t baseline) {
  for (size_t i = 0; i < results->measurements.n; i++) {
    const struct measurement *measurement = RESULTS_MEASUREMENT(results, i);
    if (results->posted[i].baseline_failure != BASELINE_WORKED && measurement->config == baseline)
      return measurement;
  }

  return NULL;
}

bool results_baseline_disagrees(const struct results *results, int64_t baseline,
                                struct error *ret_reason) {
  struct agreement_summary summary = {0};
  for (size_t i = 0; i < results->measurements.n; i++) {
    const struct measurement *measurement = RESULTS_MEASUREMENT(results, i);
    if (results->posted[i].baseline_failure != BASELINE_WORKED && measurement->config == baseline) {
      agreement_facts_add(&summary.of_default, measurement->conditions);
      summary.example = measurement->detail;
    }
  }
  return agreement_refuses(&summary, ret_reason);
}

static const struct known_measurement *known_find(const struct known_measurement *known,
                                                  size_t n_known, int64_t seq) {
  for (size_t i = 0; i < n_known; i++)
    if (known[i].seq == seq)
      return &known[i];
  return NULL;
}

/* Refuses a measurement that is not of the lease. Any lease may report that the baseline failed; a
 * lease that is not held any more may mean an earlier one. */
static bool is_leased(const struct measurement *measurement, enum baseline_failure failure,
                      const struct lease *lease, bool is_late, const char *at,
                      struct error *error) {
  bool is_baseline =
      measurement->config == lease->baseline || (failure == BASELINE_FAILED && is_late);
  if (failure == BASELINE_FAILED && !is_baseline)
    return error_at(error, at,
                    "\"baseline_failed\" of config %lld; the job's baseline is config %lld",
                    (long long)measurement->config, (long long)lease->baseline);

  if ((int)measurement->regime >= 0 && measurement->regime != lease->regime) {
    error_at(error, "/regime", "config %lld was measured %s, but its job is %s; nothing was stored",
             (long long)measurement->config, regime_name(measurement->regime),
             regime_name(lease->regime));
    return error_pointer_prefix(error, at);
  }

  if ((measurement->process == FIELD_NONE || measurement->process == lease->process) &&
      (measurement->round == FIELD_NONE || measurement->round == lease->round) &&
      ((is_baseline && failure != BASELINE_WORKED) ||
       config_ranges_contain(&lease->configs, (uint64_t)measurement->config)))
    return true;
  return error_at(error, at,
                  "config %lld, process %lld, round %lld is not this lease's; nothing was stored",
                  (long long)measurement->config,
                  (long long)(measurement->process < 0 ? 0 : measurement->process),
                  (long long)(measurement->round < 0 ? 0 : measurement->round));
}

/* Whether the post is refused. A contradiction anywhere in it is reported rather than a measurement
 * that is not of the lease. */
static bool is_refused(const struct results *results, const struct lease *lease,
                       const struct known_measurement *known, size_t n_known,
                       struct judgement *judgement) {
  size_t n = results->measurements.n;
  bool is_late = lease->state != LEASE_HELD || lease->epoch != results->epoch;
  char at[JSON_POINTER_SIZE];
  for (size_t i = 0; i < n; i++) {
    int64_t seq = RESULTS_MEASUREMENT(results, i)->seq;
    const struct known_measurement *stored = known_find(known, n_known, seq);
    if (stored && !digest_equal(&stored->body, &results->posted[i].body)) {
      judgement->verdict = POST_CONFLICT;
      error_of_at(&judgement->refusal, ERROR_CONFLICT,
                  json_pointer_index(at, sizeof at, "/measurements", i),
                  "seq %lld of this lease and epoch is known with another body; nothing was stored",
                  (long long)seq);
      return true;
    }
  }

  for (size_t i = 0; i < n; i++)
    if (!is_leased(RESULTS_MEASUREMENT(results, i), results->posted[i].baseline_failure, lease,
                   is_late, json_pointer_index(at, sizeof at, "/measurements", i),
                   &judgement->refusal)) {
      judgement->verdict = POST_OUTSIDE;
      return true;
    }
  return false;
}

/* Sets what the accepted measurements change: the remaining configs of the lease, the device time
 * and the outcomes. */
static void measurements_count(const struct results *results, const struct lease *lease,
                               struct judgement *judgement) {
  struct measure_change *change = &judgement->change;
  cleanup_free uint64_t *configs = xcalloc(judgement->n_fresh + 1, sizeof *configs);
  size_t n = 0;
  for (size_t i = 0; i < judgement->n_fresh; i++) {
    const struct measurement *measurement = RESULTS_MEASUREMENT(results, judgement->fresh[i]);
    double ratio = results->posted[judgement->fresh[i]].ratio;
    bool counts = judgement->verdict == POST_TAKEN &&
                  config_ranges_contain(&lease->remaining, (uint64_t)measurement->config);
    for (size_t k = 0; counts && k < i;
         k++) /* of several measurements of a config the first counts */
      counts = RESULTS_MEASUREMENT(results, judgement->fresh[k])->config != measurement->config;
    judgement->is_late[i] = !counts;
    judgement->n_late += !counts;
    if (!counts)
      continue;

    configs[n++] = (uint64_t)measurement->config;
    change->outcomes[measurement->outcome]++;
    change->device_us += measurement->device_us == FIELD_NONE ? 0 : measurement->device_us;
    if (measurement->outcome == OUTCOME_CORRECT && !measurement_left_early(measurement) &&
        !(ratio >= judgement->best_ratio))
      judgement->best_ratio = ratio;
  }

  qsort(configs, n, sizeof *configs, compare_ordinals);
  for (size_t i = 0; i < n; i++)
    config_ranges_add(&change->less, configs[i]);
  change->fruitless_less = n ? LEASE_FRUITFUL : 0;
}

struct judgement results_judge(const struct results *results, int64_t id, const struct lease *lease,
                               const struct known_measurement *known, size_t n_known) {
  struct judgement judgement = {.best_ratio = NAN};
  size_t n = results->measurements.n;
  if (!lease) {
    judgement.verdict = POST_UNKNOWN;
    error_of(&judgement.refusal, ERROR_MISSING, "there is no lease %lld", (long long)id);
    return judgement;
  }

  if (results->epoch > lease->epoch) {
    judgement.verdict = POST_NEVER;
    return judgement;
  }

  if (is_refused(results, lease, known, n_known, &judgement))
    return judgement;

  bool is_taken = lease->state == LEASE_HELD && lease->epoch == results->epoch;
  judgement.verdict = is_taken ? POST_TAKEN : POST_LATE;
  judgement.fresh = xcalloc(n + 1, sizeof *judgement.fresh);
  judgement.is_late = xcalloc(n + 1, sizeof *judgement.is_late);
  for (size_t i = 0; i < n; i++) {
    const struct known_measurement *stored =
        known_find(known, n_known, RESULTS_MEASUREMENT(results, i)->seq);
    if (!stored)
      judgement.fresh[judgement.n_fresh++] = i;
    judgement.is_refused |= !is_taken && (!stored || stored->refused);
  }
  measurements_count(results, lease, &judgement);

  struct measure_change *change = &judgement.change;
  change->lease = id;
  change->from = change->to = lease->state;
  change->posts = 1;
  if (is_taken) {
    /* A repeated post states the same opening time, so it adds nothing. */
    change->opening_us = results->opening_us > lease->epoch_opening_us
                             ? results->opening_us - lease->epoch_opening_us
                             : 0;
    change->to = lease_state_after(&lease->remaining, &change->less,
                                   results->done ? LEASE_OPEN : LEASE_HELD);
  }

  judgement.is_change =
      judgement.n_fresh > 0 || (is_taken && (results->done || change->opening_us > 0));
  return judgement;
}

bool post_ends_lease(const struct judgement *judgement) {
  return judgement->verdict == POST_TAKEN && judgement->is_change &&
         judgement->change.to != LEASE_HELD;
}

void judgement_release(struct judgement *judgement) {
  config_ranges_release(&judgement->change.less);
  free(judgement->fresh);
  free(judgement->is_late);
  *judgement = (struct judgement){0};
}

static const struct field known_fields[] = {
    RECORD_FIELD(INTEGER, struct known_measurement, seq),
    RECORD_FIELD_AS("body_digest", DIGEST, struct known_measurement, body),
    RECORD_FIELD(BOOL, struct known_measurement, refused),
};
static const struct record known_record = RECORD(NULL, struct known_measurement, known_fields);

bool results_known(struct db *db, int64_t job, int64_t lease, const struct results *results,
                   struct known_measurement **ret, size_t *ret_n, struct error *error) {
  size_t n = results->measurements.n;
  cleanup_free int64_t *seqs = xcalloc(n + 1, sizeof *seqs);
  for (size_t i = 0; i < n; i++)
    seqs[i] = RESULTS_MEASUREMENT(results, i)->seq;
  *ret = db_list(db, &sql_results_known, &known_record, ret_n, error, BIND_ALL("seq", seqs, n),
                 BIND("job", job), BIND("lease", lease), BIND("epoch", results->epoch));
  return *ret != NULL;
}

/* What is stored beside a measurement. */
struct stored_beside {
  struct digest body_digest;
  double ratio;
  bool late;
};
static const struct field beside_fields[] = {
    RECORD_FIELD(DIGEST, struct stored_beside, body_digest),
    RECORD_FIELD(NUMBER, struct stored_beside, ratio),
    RECORD_FIELD(BOOL, struct stored_beside, late),
};
static const struct record beside_record = RECORD(NULL, struct stored_beside, beside_fields);

static bool measurements_insert(struct db *db, const struct lease *lease,
                                const struct results *results, const struct judgement *judgement,
                                struct error *error) {
  /* Rows borrow from the results; those without samples have empty lists. */
  double nothing[1];
  const struct numbers none = {0, nothing};
  size_t n = judgement->n_fresh;
  cleanup_free struct measurement *rows = xcalloc(n + 1, sizeof *rows);
  cleanup_free struct stored_beside *beside = xcalloc(n + 1, sizeof *beside);
  bool has_objects = false;
  for (size_t i = 0; i < n; i++) {
    const struct posted *posted = &results->posted[judgement->fresh[i]];
    struct measurement *row = &rows[i];
    *row = *RESULTS_MEASUREMENT(results, judgement->fresh[i]);
    row->process = lease->process;
    row->round = lease->round;
    row->regime = lease->regime;
    if (!row->samples_us.all)
      row->samples_us = none;
    if (!row->baseline_us.all)
      row->baseline_us = none;
    has_objects |= !digest_is_none(&row->object);
    beside[i] = (struct stored_beside){posted->body, posted->ratio, judgement->is_late[i]};
  }

  cleanup_parameters struct db_parameters parameters = {0};
  bind_records(&parameters, &measurement_record, rows, n);
  bind_records(&parameters, &beside_record, beside, n);
  /* The database does not store the holders of older epochs. */
  bool is_current = results->epoch == lease->epoch;
  bool is_late = judgement->verdict == POST_LATE;
  bind_values(&parameters, BIND("job", lease->job), BIND("lease", judgement->change.lease),
              BIND("epoch", results->epoch), BIND("stage", stage_name(lease->stage)),
              BIND("agent", is_current ? lease->agent : NULL),
              BIND("device", is_current ? lease->device : NULL), BIND("refused", is_late));
  if (!has_objects)
    return db_send(db, &sql_results_insert, &parameters, (int64_t)n, error);

  /* Measurements of finals state the code object that was timed, which is stored with the id of the
   * measurement. */
  cleanup_rows struct db_rows *inserted = NULL;
  if (!db_run(db, &sql_results_insert, &parameters, &inserted, error))
    return false;

  size_t n_timed = 0;
  cleanup_free int64_t *ids = xcalloc(n, sizeof *ids);
  cleanup_free struct digest *objects = xcalloc(n, sizeof *objects);
  for (int row = 0; row < db_count(inserted); row++)
    for (size_t i = 0; i < n; i++)
      if (rows[i].seq == db_get_integer(inserted, row, "seq") && !digest_is_none(&rows[i].object)) {
        ids[n_timed] = db_get_integer(inserted, row, "id");
        objects[n_timed++] = rows[i].object;
      }
  return db_execute(db, &sql_results_objects, error, BIND("job", lease->job),
                    BIND_ALL("measurement", ids, n_timed), BIND_ALL("object", objects, n_timed));
}

bool results_store(struct db *db, const struct lease *lease, const struct results *results,
                   const struct judgement *judgement, struct drift_note *note,
                   struct error *error) {
  if (judgement->n_fresh && !measurements_insert(db, lease, results, judgement, error))
    return false;
  if (judgement->is_change && !measure_change_state(db, &judgement->change, 1, error))
    return false;
  if (post_ends_lease(judgement) &&
      !drift_note(db, lease->job, judgement->change.lease, results->epoch, note, error))
    return false;

  cleanup_parameters struct db_parameters parameters = {0};
  if (judgement->best_ratio < (isnan(lease->best_ratio) ? INFINITY : lease->best_ratio)) {
    bind_values(&parameters, BIND("job", lease->job), BIND("ratio", judgement->best_ratio));
    return db_send(db, &sql_results_best, &parameters, DB_ANY_ROWS, error);
  }

  if (judgement->verdict == POST_LATE && judgement->n_fresh) {
    bind_values(&parameters, BIND("job", lease->job), BIND("lease", judgement->change.lease),
                BIND("epoch", results->epoch), BIND("current_epoch", lease->epoch),
                BIND("measurements", judgement->n_fresh));
    return db_send(db, &sql_results_late, &parameters, 1, error);
  }

  return true;
}

/* A stored measurement, an item of GET /v1/jobs/{id}/measurements. */
struct stored_measurement {
  int64_t id, lease, epoch;
  char *agent, *device, *at;
  enum stage stage;
  struct measurement measurement;
  bool late, quarantined;
};
static const struct field stored_fields[] = {
    RECORD_FIELD(ID, struct stored_measurement, id, FIELD_ANSWER),
    RECORD_FIELD(ID, struct stored_measurement, lease, FIELD_ANSWER, .column = "lease_id"),
    RECORD_FIELD(INTEGER, struct stored_measurement, epoch, FIELD_ANSWER),
    RECORD_FIELD(TEXT, struct stored_measurement, agent, FIELD_ANSWER),
    RECORD_FIELD(TEXT, struct stored_measurement, device, FIELD_ANSWER),
    RECORD_FIELD(ENUM, struct stored_measurement, stage, FIELD_ANSWER, .names = stage_names,
                 .sql_type = "stage"),
    MEASUREMENT_FIELDS(offsetof(struct stored_measurement, measurement), FIELD_ANSWER),
    RECORD_FIELD_AS("object", DIGEST, struct stored_measurement, measurement.object, FIELD_ANSWER),
    RECORD_FIELD(BOOL, struct stored_measurement, late, FIELD_ANSWER),
    RECORD_FIELD(BOOL, struct stored_measurement, quarantined, FIELD_ANSWER),
    RECORD_FIELD(TIME, struct stored_measurement, at, FIELD_ANSWER),
};
const struct record stored_measurement_record =
    RECORD("Measurement", struct stored_measurement, stored_fields);
