/* SQL of measurements. Memory and threads: as the header says. */
#include "server/measurement/measurements.h"

#include <math.h>
#include <pthread.h>

#include "server/db/db_record.h"
#include "server/db/values.h"
#include "server/measurement/measurement.sql.h"
#include "server/records.h"

static const struct field lease_fields[] = {
    {"job_id", FIELD_INTEGER, offsetof(struct posted_lease, job)},
    {"round", FIELD_INTEGER, offsetof(struct posted_lease, round)},
    {"process", FIELD_INTEGER, offsetof(struct posted_lease, process)},
    {"epoch", FIELD_INTEGER, offsetof(struct posted_lease, epoch)},
    {"epoch_opening_us", FIELD_INTEGER, offsetof(struct posted_lease, epoch_opening_us)},
    {"fruitless", FIELD_INTEGER, offsetof(struct posted_lease, fruitless)},
    {"posts", FIELD_INTEGER, offsetof(struct posted_lease, posts)},
    {"stage", FIELD_ENUM, offsetof(struct posted_lease, stage), .names = stage_names},
    {"state", FIELD_ENUM, offsetof(struct posted_lease, state), .names = lease_state_names},
    {"agent", FIELD_TEXT, offsetof(struct posted_lease, agent)},
    {"device", FIELD_TEXT, offsetof(struct posted_lease, device)},
    {"configs", FIELD_RANGES, offsetof(struct posted_lease, configs)},
    {"remaining", FIELD_RANGES, offsetof(struct posted_lease, remaining)},
    {"baseline", FIELD_INTEGER, offsetof(struct posted_lease, baseline)},
    {"best_ratio", FIELD_NUMBER, offsetof(struct posted_lease, best_ratio)},
    {"has_budget", FIELD_BOOL, offsetof(struct posted_lease, has_budget)},
    {"hardware_digest", FIELD_DIGEST, offsetof(struct posted_lease, hardware_digest)},
};
static const struct record lease_record = RECORD(NULL, struct posted_lease, lease_fields);

bool posted_lease_lock(struct db *db, int64_t id, struct posted_lease *ret, bool *ret_known,
                       struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_integer(&parameters, "lease", id);
  if (!db_run(db, &sql_results_lock, &parameters, &rows, error))
    return false;
  *ret_known = db_count(rows) == 1;
  if (*ret_known)
    db_read(rows, 0, &lease_record, ret);
  else
    record_init(&lease_record, ret);
  return true;
}

void posted_lease_init(struct posted_lease *lease) { record_init(&lease_record, lease); }
void posted_lease_release(struct posted_lease *lease) { record_release(&lease_record, lease); }

static const struct field known_fields[] = {
    {"seq", FIELD_INTEGER, offsetof(struct known_measurement, seq)},
    {"body_digest", FIELD_DIGEST, offsetof(struct known_measurement, body)},
};
static const struct record known_record = RECORD(NULL, struct known_measurement, known_fields);

bool results_known(struct db *db, int64_t lease, const struct results *results,
                   struct known_measurement **ret, size_t *ret_n, struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  struct db_array seqs;
  db_array_init(&seqs);
  for (size_t i = 0; i < results->measurements.n; i++)
    db_array_integer(&seqs, RESULTS_MEASUREMENT(results, i)->seq);
  bind_array(&parameters, "seq", &seqs);
  bind_integer(&parameters, "lease", lease);
  bind_integer(&parameters, "epoch", results->epoch);
  if (!db_run(db, &sql_results_known, &parameters, &rows, error))
    return false;
  *ret = db_read_all(rows, &known_record, ret_n);
  return true;
}

static struct statement insert_statement;
static void insert_statement_make(void) {
  insert_statement = statement_of_record(&sql_results_insert, &measurement_record);
}

/* The code that was timed is kept for finals only; then it is named by the measurement. */
static bool has_objects(const struct results *results) {
  bool is_any = false;
  for (size_t i = 0; !is_any && i < results->measurements.n; i++)
    is_any = !digest_is_none(&RESULTS_MEASUREMENT(results, i)->object);
  return is_any;
}

static bool objects_insert(struct db *db, const struct posted_lease *lease,
                           const struct results *results, const struct db_rows *inserted,
                           struct error *error) {
  cleanup_parameters struct db_parameters parameters = {0};
  struct db_array ids, objects;
  db_array_init(&ids);
  db_array_init(&objects);
  for (int row = 0; row < db_count(inserted); row++)
    for (size_t i = 0; i < results->measurements.n; i++) {
      const struct measurement *measurement = RESULTS_MEASUREMENT(results, i);
      if (digest_is_none(&measurement->object) ||
          measurement->seq != db_get_integer(inserted, row, "seq"))
        continue;
      db_array_integer(&ids, db_get_integer(inserted, row, "id"));
      db_array_digest(&objects, &measurement->object);
    }
  size_t n = ids.n;
  bind_integer(&parameters, "job", lease->job);
  bind_array(&parameters, "measurement", &ids);
  bind_array(&parameters, "object", &objects);
  return n == 0 || db_run(db, &sql_results_objects, &parameters, NULL, error);
}

static bool measurements_insert(struct db *db, const struct posted_lease *lease,
                                const struct results *results, const struct judgement *judgement,
                                struct error *error) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, insert_statement_make);

  /* Rows borrow what the results own; without samples they have empty lists. */
  double nothing[1];
  const struct numbers none = {0, nothing};
  cleanup_free struct measurement *rows = xcalloc(judgement->n_fresh + 1, sizeof *rows);
  cleanup_parameters struct db_parameters parameters = {0};
  struct db_array bodies, ratios, lates;
  db_array_init(&bodies);
  db_array_init(&ratios);
  db_array_init(&lates);
  for (size_t i = 0; i < judgement->n_fresh; i++) {
    const struct posted *posted = &results->posted[judgement->fresh[i]];
    char ratio[FLOAT_TEXT_SIZE];
    rows[i] = *RESULTS_MEASUREMENT(results, judgement->fresh[i]);
    rows[i].process = lease->process;
    rows[i].round = lease->round;
    if (!rows[i].regime)
      rows[i].regime = (char *)"cold";
    if (!rows[i].samples_us.all)
      rows[i].samples_us = none;
    if (!rows[i].baseline_us.all)
      rows[i].baseline_us = none;
    db_array_digest(&bodies, &posted->body);
    db_array_text(&ratios, isnan(posted->ratio) ? NULL : float_format(posted->ratio, ratio));
    db_array_bool(&lates, judgement->is_late[i]);
  }

  bool is_of_now = results->epoch == lease->epoch; /* who held it before is not known any more */
  bind_records(&parameters, &measurement_record, rows, judgement->n_fresh);
  bind_array(&parameters, "body_digest", &bodies);
  bind_array(&parameters, "ratio", &ratios);
  bind_array(&parameters, "late", &lates);
  bind_integer(&parameters, "job", lease->job);
  bind_integer(&parameters, "lease", judgement->change.lease);
  bind_integer(&parameters, "epoch", results->epoch);
  bind_text(&parameters, "stage", stage_name(lease->stage));
  bind_text(&parameters, "agent", is_of_now ? lease->agent : NULL);
  bind_text(&parameters, "device", is_of_now ? lease->device : NULL);
  if (!has_objects(results))
    return db_send(db, &insert_statement, &parameters, (int64_t)judgement->n_fresh, error);

  cleanup_rows struct db_rows *inserted = NULL;
  return db_run(db, &insert_statement, &parameters, &inserted, error) &&
         objects_insert(db, lease, results, inserted, error);
}

static bool best_lower(struct db *db, int64_t job, double ratio, struct error *error) {
  cleanup_parameters struct db_parameters parameters = {0};
  bind_integer(&parameters, "job", job);
  bind_number(&parameters, "ratio", ratio);
  return db_send(db, &sql_results_best, &parameters, DB_ANY_ROWS, error);
}

static bool late_note(struct db *db, const struct posted_lease *lease,
                      const struct results *results, const struct judgement *judgement,
                      struct error *error) {
  cleanup_parameters struct db_parameters parameters = {0};
  bind_integer(&parameters, "job", lease->job);
  bind_integer(&parameters, "lease", judgement->change.lease);
  bind_integer(&parameters, "epoch", results->epoch);
  bind_integer(&parameters, "current_epoch", lease->epoch);
  bind_integer(&parameters, "measurements", (int64_t)judgement->n_fresh);
  return db_send(db, &sql_results_late, &parameters, 1, error);
}

bool results_store(struct db *db, const struct posted_lease *lease, const struct results *results,
                   const struct judgement *judgement, struct drift_note *note,
                   struct error *error) {
  if (judgement->n_fresh && !measurements_insert(db, lease, results, judgement, error))
    return false;
  if (judgement->is_change && !lease_change_state(db, &judgement->change, 1, error))
    return false;
  if (post_ends_lease(judgement) &&
      !drift_note(db, judgement->change.lease, results->epoch, note, error))
    return false;

  if (judgement->best_ratio < (isnan(lease->best_ratio) ? INFINITY : lease->best_ratio))
    return best_lower(db, lease->job, judgement->best_ratio, error);
  if (judgement->verdict == POST_LATE && judgement->n_fresh)
    return late_note(db, lease, results, judgement, error);
  return true;
}

/* A measurement as it is read again. */
struct stored_measurement {
  int64_t id, lease, epoch;
  char *agent, *device, *at;
  enum stage stage;
  struct measurement measurement;
  bool late, quarantined;
};
#define STORED(member) offsetof(struct stored_measurement, member)
static const struct field stored_fields[] = {
    {"id", FIELD_ID, STORED(id), FIELD_ANSWER},
    {"lease", FIELD_ID, STORED(lease), FIELD_ANSWER, .column = "lease_id"},
    {"epoch", FIELD_INTEGER, STORED(epoch), FIELD_ANSWER},
    {"agent", FIELD_TEXT, STORED(agent), FIELD_ANSWER},
    {"device", FIELD_TEXT, STORED(device), FIELD_ANSWER},
    {"stage", FIELD_ENUM, STORED(stage), FIELD_ANSWER, .names = stage_names, .sql_type = "stage"},
    MEASUREMENT_FIELDS(STORED(measurement), FIELD_ANSWER),
    {"object", FIELD_DIGEST, STORED(measurement.object), FIELD_ANSWER},
    {"late", FIELD_BOOL, STORED(late), FIELD_ANSWER},
    {"quarantined", FIELD_BOOL, STORED(quarantined), FIELD_ANSWER},
    {"at", FIELD_TIME, STORED(at), FIELD_ANSWER},
};
const struct record stored_measurement_record =
    RECORD("Measurement", struct stored_measurement, stored_fields);

bool job_measurements_list(struct db *db, int64_t job, int64_t after, int64_t limit,
                           json_t **ret_items, int64_t *ret_next, bool *ret_known,
                           struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_integer(&parameters, "job", job);
  bind_integer(&parameters, "after", after);
  bind_integer(&parameters, "limit", limit);
  if (!db_run(db, &sql_job_measurements_list, &parameters, &rows, error))
    return false;

  *ret_known = db_count(rows) > 0;
  *ret_next = 0;
  if (!*ret_known || db_is_null(rows, 0, "id")) { /* a job without measurements is one row */
    *ret_items = json_array();
    return true;
  }
  int64_t n_page = db_get_integer(rows, 0, "n"); /* before it was cut */
  if (n_page == limit || n_page > db_count(rows))
    *ret_next = db_get_integer(rows, db_count(rows) - 1, "id");
  *ret_items = db_rows_to_json(rows, &stored_measurement_record);
  return true;
}

struct ranked {
  int64_t config, lease;
  double ratio;
  bool left_early;
};
static const struct field ranked_fields[] = {
    {"config", FIELD_INTEGER, offsetof(struct ranked, config)},
    {"lease_id", FIELD_INTEGER, offsetof(struct ranked, lease)},
    {"ratio", FIELD_NUMBER, offsetof(struct ranked, ratio)},
    {"left_early", FIELD_BOOL, offsetof(struct ranked, left_early)},
};
static const struct record ranked_record = RECORD(NULL, struct ranked, ranked_fields);

bool measurements_screen(struct db *db, int64_t job, enum stage stage,
                         const uint64_t always[FINALISTS_ALWAYS], struct screen_summary *ret,
                         struct error *error) {
  cleanup_rows struct db_rows *ranked = NULL;
  cleanup_rows struct db_rows *outcomes = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  cleanup_parameters struct db_parameters by_outcome = {0};
  _Static_assert(FINALISTS_ALWAYS == 2, "measurements_screen_ranked has two such parameters");
  bind_integer(&parameters, "job", job);
  bind_text(&parameters, "stage", stage_name(stage));
  bind_integer(&parameters, "most", HALVING_MAX);
  bind_integer(&parameters, "always_0", (int64_t)always[0]);
  bind_integer(&parameters, "always_1", (int64_t)always[1]);
  bind_integer(&by_outcome, "job", job);
  bind_text(&by_outcome, "stage", stage_name(stage));
  if (!db_run(db, &sql_measurements_screen_ranked, &parameters, &ranked, error) ||
      !db_run(db, &sql_measurements_screen_outcomes, &by_outcome, &outcomes, error))
    return false;

  *ret = (struct screen_summary){0};
  for (int row = 0; row < db_count(ranked); row++) {
    struct ranked one;
    db_read(ranked, row, &ranked_record, &one);
    ret->candidates[row] = (struct campaign_candidate){.config = (uint64_t)one.config,
                                                       .ratio = one.ratio,
                                                       .left_early = one.left_early,
                                                       .lease = one.lease};
  }
  ret->n = (size_t)db_count(ranked);
  for (int row = 0; row < db_count(outcomes); row++) {
    enum outcome outcome;
    ALWAYS(outcome_parse(db_get(outcomes, row, "outcome"), &outcome));
    ret->outcomes[outcome] = db_get_integer(outcomes, row, "n");
    if (!ret->example && !db_is_null(outcomes, row, "example"))
      ret->example = xstrdup(db_get(outcomes, row, "example"));
  }
  return true;
}

void screen_summary_release(struct screen_summary *summary) { free(summary->example); }

bool measurements_search(struct db *db, int64_t job, struct search_told **ret_told, size_t *ret_n,
                         struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_integer(&parameters, "job", job);
  if (!db_run(db, &sql_measurements_search, &parameters, &rows, error))
    return false;
  *ret_n = (size_t)db_count(rows);
  *ret_told = xcalloc(*ret_n + 1, sizeof **ret_told);
  for (int row = 0; row < db_count(rows); row++)
    (*ret_told)[row] = (struct search_told){
        (uint64_t)db_get_integer(rows, row, "config"),
        db_is_null(rows, row, "ratio") ? INFINITY : db_get_double(rows, row, "ratio")};
  return true;
}

struct final_row {
  int64_t config, process, vgprs, spills, lds_bytes, device;
  enum outcome outcome;
  struct numbers samples_us, baseline_us;
};
static const struct field final_fields[] = {
    {"config", FIELD_INTEGER, offsetof(struct final_row, config)},
    {"process", FIELD_INTEGER, offsetof(struct final_row, process)},
    {"vgprs", FIELD_INTEGER, offsetof(struct final_row, vgprs)},
    {"spills", FIELD_INTEGER, offsetof(struct final_row, spills)},
    {"lds_bytes", FIELD_INTEGER, offsetof(struct final_row, lds_bytes)},
    {"device", FIELD_INTEGER, offsetof(struct final_row, device)},
    {"outcome", FIELD_ENUM, offsetof(struct final_row, outcome), .names = outcome_names},
    {"samples_us", FIELD_NUMBERS, offsetof(struct final_row, samples_us)},
    {"baseline_us", FIELD_NUMBERS, offsetof(struct final_row, baseline_us)},
};
static const struct record final_record = RECORD(NULL, struct final_row, final_fields);

static int64_t known(int64_t value) { return value == FIELD_NONE ? 0 : value; }

bool measurements_final(struct db *db, int64_t job, struct final_summary *ret,
                        struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_integer(&parameters, "job", job);
  if (!db_run(db, &sql_measurements_final, &parameters, &rows, error))
    return false;

  size_t n;
  cleanup_free struct final_row *all = db_read_all(rows, &final_record, &n);
  struct final_summary summary = {n, xcalloc(n + 1, sizeof *summary.measurements)};
  for (size_t i = 0; i < n; i++) {
    struct final_row *row = &all[i];
    ALWAYS(row->samples_us.n == row->baseline_us.n);
    summary.measurements[i] =
        (struct final_measurement){.outcome = row->outcome,
                                   .sample = {.config = (uint64_t)row->config,
                                              .process = row->process,
                                              .n = row->samples_us.n,
                                              .samples_us = TAKE(row->samples_us.all),
                                              .baseline_us = TAKE(row->baseline_us.all),
                                              .device = row->device,
                                              .vgprs = known(row->vgprs),
                                              .spills = known(row->spills),
                                              .lds_bytes = known(row->lds_bytes)}};
  }
  *ret = summary;
  return true;
}

void final_summary_release(struct final_summary *summary) {
  for (size_t i = 0; i < summary->n; i++) {
    free((double *)summary->measurements[i].sample.samples_us);
    free((double *)summary->measurements[i].sample.baseline_us);
  }
  free(summary->measurements);
  *summary = (struct final_summary){0};
}
