/* SQL that stores and changes jobs. Memory and threads: as the header says. */
#include "server/job/job_store.h"

#include "common/campaign/campaign.h"
#include "server/cache/environments.h"
#include "server/counters.h"
#include "server/db/db_record.h"
#include "server/db/values.h"
#include "server/job/jobs.sql.h"
#include "server/job/submit.sql.h"
#include "server/lease/lease_insert.h"

#define JOB_ID_SIZE 24

bool job_kernels_load(struct db *db, const struct digest *hashes, size_t n, char **ret_manifests,
                      struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_digests(&parameters, "kernel", hashes, n);
  if (!db_run(db, &sql_job_kernels_load, &parameters, &rows, error))
    return false;

  for (size_t i = 0; i < n; i++)
    ret_manifests[i] = NULL;
  for (int row = 0; row < db_count(rows); row++)
    ret_manifests[db_get_integer(rows, row, "n") - 1] = xstrdup(db_get(rows, row, "manifest"));
  return true;
}

static const struct field row_fields[] = {
    {"kernel", FIELD_DIGEST, offsetof(struct job_row, kernel)},
    {"key_digest", FIELD_DIGEST, offsetof(struct job_row, key_digest)},
    {"space_digest", FIELD_DIGEST, offsetof(struct job_row, space_digest)},
    {"environment", FIELD_DIGEST, offsetof(struct job_row, environment_digest)},
    {"tag", FIELD_TEXT, offsetof(struct job_row, tag)},
    {"run", FIELD_TEXT, offsetof(struct job_row, run)},
    {"regime", FIELD_ENUM, offsetof(struct job_row, regime), .names = regime_names},
    {"purpose", FIELD_ENUM, offsetof(struct job_row, purpose), .names = job_purpose_names},
    {"is_plain", FIELD_BOOL, offsetof(struct job_row, is_plain)},
    {"key", FIELD_TEXT, offsetof(struct job_row, key)},
    {"priority", FIELD_INTEGER, offsetof(struct job_row, priority)},
    {"budget_ms", FIELD_INTEGER, offsetof(struct job_row, budget_ms)},
    {"build", FIELD_DIGEST, offsetof(struct job_row, build)},
    {"device_class", FIELD_DIGEST, offsetof(struct job_row, device_class)},
    {"seed", FIELD_INTEGER, offsetof(struct job_row, seed)},
    {"baseline", FIELD_INTEGER, offsetof(struct job_row, plan.baseline)},
    {"baseline_from", FIELD_ENUM, offsetof(struct job_row, known.baseline_from),
     .names = baseline_from_names},
    {"default_config", FIELD_INTEGER, offsetof(struct job_row, default_config)},
    {"configs", FIELD_INTEGER, offsetof(struct job_row, known.configs)},
    {"config_us", FIELD_INTEGER, offsetof(struct job_row, sizing.config_us)},
    {"search", FIELD_RECORD, offsetof(struct job_row, search), .of = &job_search_record},
    {"final_devices", FIELD_INTEGER, offsetof(struct job_row, final_devices)},
};
static const struct record row_record = RECORD(NULL, struct job_row, row_fields);

static const struct field known_fields[] = {
    {"id", FIELD_INTEGER, offsetof(struct job_known, id)},
    {"priority", FIELD_INTEGER, offsetof(struct job_known, priority)},
    {"configs", FIELD_INTEGER, offsetof(struct job_known, configs)},
    {"state", FIELD_ENUM, offsetof(struct job_known, state), .names = job_state_names},
    {"baseline_from", FIELD_ENUM, offsetof(struct job_known, baseline_from),
     .names = baseline_from_names},
    {"created", FIELD_BOOL, offsetof(struct job_known, created)},
};
static const struct record known_record = RECORD(NULL, struct job_known, known_fields);

void bind_jobs(struct db_parameters *parameters, struct job_row *const *jobs, size_t n) {
  cleanup_free struct job_row *rows = xcalloc(n + 1, sizeof *rows);
  for (size_t i = 0; i < n; i++)
    rows[i] = *jobs[i];
  bind_records(parameters, &row_record, rows, n);
}

static void known_read(const struct db_rows *rows, struct job_row *const *jobs) {
  for (int row = 0; row < db_count(rows); row++)
    db_read(rows, row, &known_record, &jobs[db_get_integer(rows, row, "n") - 1]->known);
}

bool jobs_find(struct db *db, struct job_row *const *jobs, size_t n, struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_jobs(&parameters, jobs, n);
  if (!db_run(db, &sql_jobs_find, &parameters, &rows, error))
    return false;

  known_read(rows, jobs);
  return true;
}

struct space_row {
  struct digest digest;
  const char *space;
};
static const struct field space_fields[] = {
    {"digest", FIELD_DIGEST, offsetof(struct space_row, digest)},
    {"space", FIELD_TEXT, offsetof(struct space_row, space)},
};
static const struct record space_record = RECORD(NULL, struct space_row, space_fields);

/* A campaign's jobs share one, mostly their neighbour's. */
static bool spaces_store(struct db *db, struct job_row *const *jobs, size_t n,
                         struct error *error) {
  cleanup_free struct space_row *spaces = xcalloc(n + 1, sizeof *spaces);
  size_t n_spaces = 0;
  for (size_t i = 0; i < n; i++) {
    size_t same = n_spaces;
    while (same-- > 0 && !digest_equal(&spaces[same].digest, &jobs[i]->space_digest))
      ;
    if (same == SIZE_MAX)
      spaces[n_spaces++] = (struct space_row){jobs[i]->space_digest, jobs[i]->space};
  }

  cleanup_parameters struct db_parameters parameters = {0};
  bind_records(&parameters, &space_record, spaces, n_spaces);
  return db_run(db, &sql_spaces_store, &parameters, NULL, error);
}

/* {17,3} */
static char *ordinals_format(const uint64_t *ordinals, size_t n) {
  struct db_array array;
  db_array_init(&array);
  for (size_t i = 0; i < n; i++)
    db_array_integer(&array, (int64_t)ordinals[i]);
  db_array_finish(&array);
  return array.text;
}

static bool rows_insert(struct db *db, struct job_row *const *jobs, size_t n,
                        const struct author *author, struct error *error) {
  struct db_array likely;
  db_array_init(&likely);
  for (size_t i = 0; i < n; i++) {
    cleanup_free char *ordinals = ordinals_format(jobs[i]->likely, jobs[i]->n_likely);
    db_array_text(&likely, ordinals);
  }

  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_jobs(&parameters, jobs, n);
  bind_array(&parameters, "likely", &likely);
  bind_author(&parameters, author);
  if (!db_run(db, &sql_jobs_insert, &parameters, &rows, error))
    return false;

  ALWAYS((size_t)db_count(rows) == n);
  known_read(rows, jobs);
  return true;
}

static bool first_leases_insert(struct db *db, struct job_row *const *jobs, size_t n,
                                struct error *error) {
  size_t n_leases = 0, used = 0;
  for (size_t i = 0; i < n; i++)
    n_leases += jobs[i]->known.created ? jobs[i]->plan.n : 0;

  cleanup_free struct lease_first *leases = xcalloc(n_leases + 1, sizeof *leases);
  for (size_t i = 0; i < n; i++)
    for (size_t l = 0; jobs[i]->known.created && l < jobs[i]->plan.n; l++) {
      const struct config_ranges *configs = &jobs[i]->plan.leases[l];
      leases[used++] = (struct lease_first){jobs[i]->known.id, *configs, lease_is_large(configs)};
    }
  return leases_insert_first(db, leases, n_leases, error);
}

/* A job that another transaction stored meanwhile was asked for, and nothing was written. */
static bool jobs_note(struct db *db, struct job_row *const *jobs, size_t n,
                      const struct author *author, struct error *error) {
  cleanup_free struct audit_row *notes = xcalloc(n + 1, sizeof *notes);
  cleanup_json json_t *kept = json_array();
  cleanup_free char *ids = xcalloc(n + 1, JOB_ID_SIZE);
  size_t n_notes = 0;
  for (size_t i = 0; i < n; i++) {
    const struct job_row *job = jobs[i];
    if (!job->known.created && job->plan.n)
      continue;

    char *id = &ids[n_notes * JOB_ID_SIZE];
    snprintf(id, JOB_ID_SIZE, "%lld", (long long)job->known.id);
    json_t *detail = json_pack("{s:I}", "priority", (json_int_t)job->priority);
    ALWAYS(json_array_append_new(kept, detail) == 0);
    enum audit_action action = AUDIT_RAISE;
    if (job->known.created) {
      action = job->purpose == PURPOSE_REVALIDATE ? AUDIT_REVALIDATE : AUDIT_SUBMIT;
      json_object_set_new(detail, "kernel", json_digest_text(&job->kernel));
      json_object_set_new(detail, "tag", json_string(job->tag));
    }
    notes[n_notes++] = (struct audit_row){author, action, id, detail};
  }
  return audit_add(db, notes, n_notes, error);
}

bool jobs_insert(struct db *db, struct job_row *const *jobs, size_t n, const struct author *author,
                 struct error *error) {
  cleanup_free const struct environment **environments =
      xcalloc(n + 1, sizeof(struct environment *));
  for (size_t i = 0; i < n; i++)
    environments[i] = jobs[i]->environment;
  return spaces_store(db, jobs, n, error) && environments_store(db, environments, n, error) &&
         rows_insert(db, jobs, n, author, error) && first_leases_insert(db, jobs, n, error) &&
         jobs_note(db, jobs, n, author, error);
}

bool job_change_state(struct db *db, const struct job_change *change, size_t *ret_changed,
                      struct error *error) {
  ALWAYS(job_state_may_change(change->from, change->to));
  ALWAYS(change->to_stage == (change->from == change->to));
  static const struct author nobody;
  cleanup_json json_t *nothing = json_object();
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_integers(&parameters, "jobs", change->jobs, change->n);
  bind_text(&parameters, "from_state", job_state_name(change->from));
  bind_text(&parameters, "from_stage", change->at_stage ? stage_name(change->stage) : NULL);
  bind_integer(&parameters, "from_round", change->round);
  bind_text(&parameters, "to_state", job_state_name(change->to));
  bind_text(&parameters, "to_stage", change->to_stage ? stage_name(change->next_stage) : NULL);
  if (change->to_stage)
    bind_integer(&parameters, "to_round", change->next_round);
  else
    bind_text(&parameters, "to_round", NULL);
  bind_text(&parameters, "reason", change->reason);
  bind_json(&parameters, "detail", change->detail ? change->detail : nothing);
  bind_author(&parameters, change->author ? change->author : &nobody);
  if (!db_run(db, &sql_job_change_state, &parameters, &rows, error))
    return false;

  *ret_changed = (size_t)db_count(rows);
  if (change->to == JOB_DONE)
    counter_add(COUNTER_jobs_done, *ret_changed);
  if (change->to == JOB_FAILED)
    counter_add(COUNTER_jobs_failed, *ret_changed);
  return true;
}

static const struct field brief_fields[] = {
    {"id", FIELD_INTEGER, offsetof(struct job_brief, id)},
    {"state", FIELD_ENUM, offsetof(struct job_brief, state), .names = job_state_names},
    {"stage", FIELD_ENUM, offsetof(struct job_brief, stage), .names = stage_names},
    {"round", FIELD_INTEGER, offsetof(struct job_brief, round)},
    {"baseline", FIELD_INTEGER, offsetof(struct job_brief, baseline)},
    {"seed", FIELD_INTEGER, offsetof(struct job_brief, seed)},
    {"default_config", FIELD_INTEGER, offsetof(struct job_brief, default_config)},
    {"search", FIELD_RECORD, offsetof(struct job_brief, search), .of = &job_search_record},
    {"final_devices", FIELD_INTEGER, offsetof(struct job_brief, final_devices)},
    {"config_us", FIELD_INTEGER, offsetof(struct job_brief, config_us)},
    {"devices", FIELD_INTEGER, offsetof(struct job_brief, devices)},
    {"is_cut", FIELD_BOOL, offsetof(struct job_brief, is_cut)},
    {"hardware_digest", FIELD_DIGEST, offsetof(struct job_brief, hardware_digest)},
};
static const struct record brief_record = RECORD(NULL, struct job_brief, brief_fields);

bool jobs_ready(struct db *db, const int64_t *jobs, size_t n, int64_t live_ms, int64_t limit,
                struct job_brief **ret_ready, size_t *ret_n, struct error *error) {
  cleanup_rows struct db_rows *found = NULL;
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters all = {0}, parameters = {0};
  if (jobs) {
    bind_integers(&parameters, "jobs", jobs, n);
  } else {
    bind_integer(&all, "limit", limit);
    if (!db_run(db, &sql_jobs_ready_all, &all, &found, error))
      return false;
    bind_text(&parameters, "jobs", db_get(found, 0, "jobs"));
  }

  bind_integer(&parameters, "limit", limit);
  bind_integer(&parameters, "live_ms", live_ms);
  if (!db_run(db, &sql_jobs_ready, &parameters, &rows, error))
    return false;

  *ret_ready = db_read_all(rows, &brief_record, ret_n);
  for (size_t i = 0; i < *ret_n; i++) {
    struct job_brief *brief = &(*ret_ready)[i];
    brief->has_default = (int64_t)brief->default_config != FIELD_NONE;
    brief->search.wanted = brief->search.trials != FIELD_NONE;
    brief->budget = db_get_budget(rows, (int)i);
    brief->is_spent =
        brief->is_cut ||
        budget_screen_left_us(&brief->budget, final_processes(brief->final_devices)) == 0;
  }
  return true;
}

bool job_store_winner(struct db *db, int64_t job, uint64_t config, const json_t *config_values,
                      const json_t *verdict, struct error *error) {
  cleanup_parameters struct db_parameters parameters = {0};
  bind_integer(&parameters, "job", job);
  bind_integer(&parameters, "config", (int64_t)config);
  bind_json(&parameters, "config_values", config_values);
  bind_taken(&parameters, "verdict", json_canonical(verdict), false);
  return db_run(db, &sql_job_store_winner, &parameters, NULL, error);
}

bool job_set_likely(struct db *db, int64_t job, const uint64_t *likely, size_t n,
                    struct error *error) {
  cleanup_parameters struct db_parameters parameters = {0};
  bind_integer(&parameters, "job", job);
  bind_taken(&parameters, "likely", ordinals_format(likely, n), false);
  return db_run(db, &sql_job_set_likely, &parameters, NULL, error);
}

bool job_space(struct db *db, int64_t job, char **ret_space, struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_integer(&parameters, "job", job);
  if (!db_run(db, &sql_job_space, &parameters, &rows, error))
    return false;

  ALWAYS(db_count(rows) == 1);
  *ret_space = xstrdup(db_get(rows, 0, "space"));
  return true;
}

static const struct field search_input_fields[] = {
    {"space", FIELD_JSON, offsetof(struct job_search_input, space)},
    {"key", FIELD_JSON, offsetof(struct job_search_input, key)},
    {"environment", FIELD_JSON, offsetof(struct job_search_input, environment)},
    {"likely", FIELD_TEXT, offsetof(struct job_search_input, likely_text)},
};
static const struct record search_input_record =
    RECORD(NULL, struct job_search_input, search_input_fields);

bool job_search_input(struct db *db, int64_t job, struct job_search_input *ret,
                      struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_integer(&parameters, "job", job);
  if (!db_run(db, &sql_job_search_input, &parameters, &rows, error))
    return false;

  ALWAYS(db_count(rows) == 1);
  db_read(rows, 0, &search_input_record, ret);
  ret->n_likely = ordinals_parse(ret->likely_text, ret->likely, WARM_STARTS_MAX);
  return true;
}

void job_search_input_release(struct job_search_input *input) {
  record_release(&search_input_record, input);
}
