/* What the database has of jobs that are submitted, and storing them. Memory and threads:
 * submit.h. */
#include "common/base/log.h"
#include "server/db/db_record.h"
#include "server/http/limits.h"
#include "server/job/jobs.h"
#include "server/job/submit.h"
#include "server/job/submit.sql.h"
#include "server/lease/shares.sql.h"
#include "server/measurement/leases.h"

/* Finding */

#define REQUESTED(type, member, ...)                                                               \
  RECORD_FIELD_AS(#member, type, struct submission, request.member, __VA_ARGS__)
static const struct field row_fields[] = {
    REQUESTED(DIGEST, kernel),
    RECORD_FIELDS(DIGEST, struct submission, key_digest, space_digest, build, device_class),
    REQUESTED(TEXT, tag),
    REQUESTED(TEXT, run),
    REQUESTED(ENUM, regime, .names = regime_names),
    REQUESTED(ENUM, purpose, .names = job_purpose_names),
    RECORD_FIELD(BOOL, struct submission, is_plain),
    RECORD_FIELD_AS("key", TEXT, struct submission, key_text, .sql_type = "json"),
    REQUESTED(INTEGER, priority),
    REQUESTED(INTEGER, budget_ms, FIELD_ZERO_NULL, "budget_device_ms"),
    RECORD_FIELDS(INTEGER, struct submission, seed, default_config),
    RECORD_FIELD_AS("baseline", INTEGER, struct submission, plan.baseline),
    RECORD_FIELD_AS("baseline_from", ENUM, struct submission, known.baseline_from,
                    .names = baseline_from_names),
    RECORD_FIELD_AS("configs", INTEGER, struct submission, known.configs),
    RECORD_FIELD_AS("config_us", INTEGER, struct submission, sizing.config_us),
    REQUESTED(RECORD, search, .of = &job_search_record),
    REQUESTED(RECORD, finals, .of = &job_finals_record),
    RECORD_FIELD(INTEGER, struct submission, retry_of, FIELD_ZERO_NULL),
};
#undef REQUESTED
static const struct record row_record = RECORD(NULL, struct submission, row_fields);

static const struct field known_fields[] = {
    RECORD_FIELDS(INTEGER, struct job_known, id, priority, configs),
    RECORD_FIELD(ENUM, struct job_known, state, .names = job_state_names),
    RECORD_FIELD(ENUM, struct job_known, baseline_from, .names = baseline_from_names),
    RECORD_FIELD(BOOL, struct job_known, created),
};
static const struct record known_record = RECORD(NULL, struct job_known, known_fields);

static const struct field space_fields[] = {
    RECORD_FIELD_AS("digest", DIGEST, struct submission, space_digest),
    RECORD_FIELD_AS("space", TEXT, struct submission, space_text),
};
static const struct record space_record = RECORD(NULL, struct submission, space_fields);

static const struct field incumbent_fields[] = {
    RECORD_FIELD(JSON, struct job_incumbent, config),
    RECORD_FIELD_AS("baseline_from", ENUM, struct job_incumbent, from,
                    .names = baseline_from_names),
};
static const struct record incumbent_record = RECORD(NULL, struct job_incumbent, incumbent_fields);

/* Binds the columns of `n` rows as arrays, except `likely`. */
static void bind_jobs(struct db_parameters *parameters, struct submission *const *jobs, size_t n) {
  struct db_array environments;
  db_array_init(&environments);
  for (size_t i = 0; i < n; i++)
    db_array_digest(&environments, &jobs[i]->environment_digest);
  bind_each(parameters, &row_record, (const void *const *)jobs, n);
  bind_array(parameters, "environment", &environments);
}

static void known_read(const struct db_rows *rows, struct submission *const *jobs) {
  for (int row = 0; row < db_count(rows); row++)
    db_read(rows, row, &known_record, &jobs[db_get_integer(rows, row, "n") - 1]->known);
}

/* Fills the incumbents of new jobs: the values that won the newest done job of the same kernel,
 * key, environment, tag and regime, and those that were imported for them, the newer first. Imports
 * have no regime. An import's environment may have fewer members than the job's; an equal
 * environment is preferred to one that only fits. */
static bool incumbents_find(struct db *db, struct submission *const *jobs, size_t n,
                            struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  struct db_array identities;
  db_array_init(&identities);
  for (size_t i = 0; i < n; i++) {
    cleanup_json json_t *environment = environment_to_json(&jobs[i]->environment);
    cleanup_free char *identity = json_canonical(environment);
    db_array_text(&identities, identity);
  }

  bind_jobs(&parameters, jobs, n);
  bind_array(&parameters, "identity", &identities);
  if (!db_run(db, &sql_jobs_incumbents, &parameters, &rows, error))
    return false;

  for (int row = 0; row < db_count(rows); row++) {
    struct submission *job = jobs[db_get_integer(rows, row, "n") - 1];
    ALWAYS(job->n_incumbents < JOB_INCUMBENTS_MAX);
    db_read(rows, row, &incumbent_record, &job->incumbents[job->n_incumbents++]);
  }

  return true;
}

/* Fills what the ledger of poison has of new jobs. */
static bool poison_look_up(struct db *db, struct submission *const *jobs, size_t n,
                           struct error *error) {
  cleanup_free struct poison_place *places = xcalloc(n + 1, sizeof *places);
  cleanup_free struct poison_hits *hits = xcalloc(n + 1, sizeof *hits);
  for (size_t i = 0; i < n; i++)
    places[i] = (struct poison_place){jobs[i]->request.kernel, jobs[i]->build,
                                      jobs[i]->device_class, &jobs[i]->key, jobs[i]->space};
  if (!poison_find(db, places, n, hits, error))
    return false;
  for (size_t i = 0; i < n; i++) {
    poison_hits_release(&jobs[i]->poison);
    jobs[i]->poison = hits[i];
  }
  return true;
}

bool jobs_find(struct db *db, struct submission *const *jobs, size_t n, struct error *error) {
  cleanup_rows struct db_rows *rows = NULL, *quickest = NULL;
  cleanup_parameters struct db_parameters parameters = {0}, limited = {0};
  bind_jobs(&parameters, jobs, n);
  if (!db_run(db, &sql_jobs_find, &parameters, &rows, error))
    return false;

  known_read(rows, jobs);
  for (size_t i = 0; i < n; i++)
    if (jobs[i]->known.id == jobs[i]->retry_of) /* it steps aside when the jobs are stored */
      jobs[i]->known = (struct job_known){0};

  cleanup_free struct submission **added = xcalloc(n + 1, sizeof *added);
  cleanup_free struct submission **budgeted = xcalloc(n + 1, sizeof *budgeted);
  size_t n_added = 0, n_budgeted = 0;
  for (size_t i = 0; i < n; i++)
    if (!jobs[i]->known.id) {
      added[n_added++] = jobs[i];
      if (jobs[i]->request.budget_ms > 0)
        budgeted[n_budgeted++] = jobs[i];
    }
  if (n_added &&
      (!incumbents_find(db, added, n_added, error) || !poison_look_up(db, added, n_added, error)))
    return false;
  if (!n_budgeted)
    return true;

  bind_jobs(&limited, budgeted, n_budgeted);
  if (!db_run(db, &sql_jobs_quickest, &limited, &quickest, error))
    return false;

  for (int row = 0; row < db_count(quickest); row++)
    budgeted[db_get_integer(quickest, row, "n") - 1]->quickest_us =
        db_get_integer(quickest, row, "us");
  return true;
}

/* Storing */

/* Makes one row of the rows of jobs that are tried again, if there are several: it is one act on
 * many. Returns how many rows remain; `kept` owns their details. */
static size_t retries_merge(struct audit_row *notes, size_t n, json_t *kept) {
  size_t n_retries = 0, n_kept = 0;
  for (size_t i = 0; i < n; i++)
    n_retries += notes[i].action == AUDIT_RETRY;
  if (n_retries < 2)
    return n;

  const struct author *author = notes[0].author;
  json_t *as = json_array(), *of = json_array();
  json_push(kept, json_pack("{s:I, s:o, s:o}", "jobs", (json_int_t)n_retries, "of", of, "as", as));
  for (size_t i = 0; i < n; i++)
    if (notes[i].action == AUDIT_RETRY) {
      json_push(as, json_string(notes[i].object));
      json_array_append(of, json_object_get(notes[i].detail, "of"));
    } else {
      notes[n_kept++] = notes[i];
    }
  notes[n_kept++] = (struct audit_row){author, AUDIT_RETRY, "jobs",
                                       json_array_get(kept, json_array_size(kept) - 1)};
  return n_kept;
}

/* Notes new jobs and raised priorities in the audit log, but not a job that another transaction
 * stored meanwhile. */
static bool jobs_note(struct db *db, struct submission *const *jobs, size_t n,
                      const struct author *author, struct error *error) {
  cleanup_free struct audit_row *notes = xcalloc(n + 1, sizeof *notes);
  cleanup_json json_t *kept = json_array();
  size_t n_notes = 0;
  for (size_t i = 0; i < n; i++) {
    const struct submission *job = jobs[i];
    if (!job->known.created && job->plan.n)
      continue;

    json_t *id = json_sprintf("%lld", (long long)job->known.id);
    json_push(kept, id);
    json_t *detail = json_pack("{s:I}", "priority", (json_int_t)job->request.priority);
    json_push(kept, detail);
    enum audit_action action = AUDIT_RAISE;
    if (job->known.created) {
      action = job->retry_of                                ? AUDIT_RETRY
               : job->request.purpose == PURPOSE_REVALIDATE ? AUDIT_REVALIDATE
                                                            : AUDIT_SUBMIT;
      if (job->retry_of)
        json_put(detail, "of", json_sprintf("%lld", (long long)job->retry_of));
      json_put(detail, "kernel", json_digest_text(&job->request.kernel));
      json_put(detail, "tag", json_string(job->request.tag));
    }
    notes[n_notes++] = (struct audit_row){author, action, json_string_value(id), detail};
  }

  return audit_add(db, notes, retries_merge(notes, n_notes, kept), error);
}

/* Gives up what the ledger has of the jobs that were created. */
static bool poison_skip(struct db *db, struct submission *const *jobs, size_t n,
                        struct error *error) {
  static const struct poison_round first = {STAGE_SCREEN, 0};
  size_t given_up;
  for (size_t i = 0; i < n; i++)
    if (jobs[i]->known.created &&
        !poison_give_up(db, jobs[i]->known.id, &first, &jobs[i]->poison, &given_up, error))
      return false;
  return true;
}

/* Gives the jobs that are tried again another run, so that new ones can have their identity. A job
 * that another transaction retried meanwhile is not changed: its successor is then known. */
static bool jobs_step_aside(struct db *db, struct submission *const *jobs, size_t n,
                            struct error *error) {
  cleanup_free int64_t *retried = xcalloc(n + 1, sizeof *retried);
  size_t n_retried = 0;
  for (size_t i = 0; i < n; i++)
    if (jobs[i]->retry_of)
      retried[n_retried++] = jobs[i]->retry_of;
  return n_retried == 0 ||
         db_execute(db, &sql_jobs_step_aside, error, BIND_ALL("jobs", retried, n_retried));
}

/* Stores spaces, environments, jobs, their first leases and the notes, in the caller's
 * transaction. */
static bool jobs_insert(struct db *db, struct submission *const *jobs, size_t n,
                        const struct author *author, struct error *error) {
  cleanup_free const struct environment **environments =
      xcalloc(n + 1, sizeof(struct environment *));
  cleanup_free const void **spaces = xcalloc(n + 1, sizeof *spaces);
  size_t n_spaces = 0, n_leases = 0;
  struct db_array warm_starts;
  db_array_init(&warm_starts);
  for (size_t i = 0; i < n; i++) {
    environments[i] = &jobs[i]->environment;
    if (i == 0 || !digest_equal(&jobs[i - 1]->space_digest, &jobs[i]->space_digest))
      spaces[n_spaces++] = jobs[i]; /* most jobs of a campaign have the same space */
    cleanup_free char *ordinals =
        job_warm_starts_text(jobs[i]->warm_starts, jobs[i]->n_warm_starts);
    db_array_text(&warm_starts, ordinals);
    n_leases += jobs[i]->plan.n;
  }

  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters of_owner = {0}, of_spaces = {0}, parameters = {0};
  bind_text(&of_owner, "author", author->name);
  bind_each(&of_spaces, &space_record, spaces, n_spaces);
  bind_jobs(&parameters, jobs, n);
  bind_array(&parameters, "likely", &warm_starts);
  bind_author(&parameters, author);
  if (!db_send(db, &sql_owners_add, &of_owner, DB_ANY_ROWS, error) ||
      !db_run(db, &sql_spaces_store, &of_spaces, NULL, error) ||
      !environments_store(db, environments, n, error) || !jobs_step_aside(db, jobs, n, error) ||
      !db_run(db, &sql_jobs_insert, &parameters, &rows, error))
    return false;

  ALWAYS((size_t)db_count(rows) == n);
  known_read(rows, jobs);

  cleanup_free struct new_lease *leases = xcalloc(n_leases + 1, sizeof *leases);
  n_leases = 0;
  for (size_t i = 0; i < n; i++)
    for (size_t l = 0; jobs[i]->known.created && l < jobs[i]->plan.n; l++) {
      const struct config_ranges *configs = &jobs[i]->plan.leases[l];
      leases[n_leases++] =
          (struct new_lease){jobs[i]->known.id, 0, *configs, lease_is_large(configs)};
    }

  return leases_insert(db, STAGE_SCREEN, 0, leases, n_leases, error) &&
         poison_skip(db, jobs, n, error) && jobs_note(db, jobs, n, author, error);
}

/* In the transaction that stored the jobs. */
static bool open_jobs_check(struct worker *worker, struct submission *const *jobs, size_t n,
                            const struct author *author, struct error *error) {
  bool any_created = false;
  for (size_t i = 0; i < n; i++)
    any_created = any_created || jobs[i]->known.created;
  if (!any_created || !limit_of(worker->server, author, LIMIT_OPEN_JOBS))
    return true;

  cleanup_rows struct db_rows *rows =
      db_query(worker->db, &sql_jobs_open_of, error, BIND("token", author->token));
  return rows &&
         limit_check(worker->server, author, LIMIT_OPEN_JOBS, db_get_integer(rows, 0, "n"), error);
}

struct storing {
  struct worker *worker;
  struct submission *const *jobs;
  size_t n;
  const struct author *author;
};

static bool store(struct db *db, void *context, struct error *error) {
  const struct storing *storing = context;
  return jobs_insert(db, storing->jobs, storing->n, storing->author, error) &&
         open_jobs_check(storing->worker, storing->jobs, storing->n, storing->author, error);
}

bool submissions_store(struct worker *worker, struct submission *const *jobs, size_t n,
                       const struct author *author, struct error *error) {
  struct storing storing = {worker, jobs, n, author};
  if (n && !db_transaction(worker->db, DB_ATTEMPTS, store, &storing, error))
    return false;

  cleanup_free int64_t *raised = xcalloc(n + 1, sizeof *raised);
  size_t n_raised = 0;
  for (size_t i = 0; i < n; i++) {
    const struct submission *job = jobs[i];
    if (!job->known.created) {
      raised[n_raised++] = job->known.id;
      continue;
    }
    leases_announce(worker, &job->device_class, job->plan.n);
    log_info("job: queued job=%lld configs=%lld leases=%zu", (long long)job->known.id,
             (long long)job->known.configs, job->plan.n);
  }

  return jobs_raise_leases(worker->db, raised, n_raised, error);
}
