/* Leases that were lost, and configs that are given up. */
#include "common/base/log.h"
#include "server/counters.h"
#include "server/db/db_record.h"
#include "server/job/jobs.h"
#include "server/lease/lease_front.h"
#include "server/lease/lease_kind.h"
#include "server/lease/shares.h"
#include "server/measure/grants.h"
#include "server/measure/lease_losses.sql.h"
#include "server/measurement/leases.h"
#include "server/poison/poison.h"
#include "server/server.h"

#define PAGE 500

/* A lease that was lost: its holder let it expire or was restarted. */
struct lease_loss {
  int64_t id, job_id, owner_id, epoch, fruitless;
  int64_t uncharged_us; /* how long it was held, less what its owner was charged for; may be < 0 */
  int64_t config;       /* the one that was being measured; FIELD_NONE: not known */
  char *agent, *device;
  struct digest hardware_digest;
};
static const struct field loss_fields[] = {
    RECORD_FIELDS(INTEGER, struct lease_loss, id, job_id, owner_id, epoch, fruitless, uncharged_us,
                  config),
    RECORD_FIELDS(TEXT, struct lease_loss, agent, device),
    RECORD_FIELD(DIGEST, struct lease_loss, hardware_digest),
};
static const struct record loss_record = RECORD(NULL, struct lease_loss, loss_fields);

enum poison_step poison_decide(const struct poison_facts *facts) {
  if (facts->losses < 2)
    return POISON_AGAIN;
  if (facts->devices >= 2 || facts->other_agents == 0)
    return POISON_GIVE_UP;
  return POISON_SEPARATE;
}

/* Gives up an open lease that was granted too often without a result. */
static bool fruitless_give_up(struct db *db, int64_t lease, int64_t fruitless,
                              struct error *error) {
  cleanup_lease struct lease locked = {0};
  bool is_known;
  if (!lease_lock(db, lease, &locked, &is_known, error))
    return false;

  const char *reason = locked.handed_back;
  cleanup_free char *detail =
      locked.handed_back_times >= fruitless
          ? xasprintf("given up: %s", reason)
          : xasprintf("given up: leased %lld times in a row without a result%s%s",
                      (long long)fruitless, reason ? "; it was handed back last because " : "",
                      reason ? reason : "");
  const struct given_up given = {.lease = lease, .config = -1, .detail = detail};
  return lease_give_up(db, &given, error);
}

void lease_settle_open(struct worker *worker, int64_t lease, int64_t job, int64_t fruitless,
                       const struct digest *hardware_digest) {
  struct error error;
  bool is_over = fruitless >= LEASE_FRUITLESS_MAX;
  bool is_given_up =
      is_over && db_begin(worker->db, &error) &&
      db_end(worker->db, fruitless_give_up(worker->db, lease, fruitless, &error), &error);
  if (is_over && !is_given_up)
    log_warning("lease: cannot give up lease=%lld: %s", (long long)lease, error.message);

  if (is_given_up)
    jobs_advance(worker, &job, 1);
  else
    leases_announce(worker, hardware_digest, 1);
  job_announce(worker, job);
}

/* Moves a config of an open lease to a new lease, which is not granted to `agents` (an array
 * literal). */
static bool config_separate(struct db *db, int64_t id, int64_t config, const char *agents,
                            struct error *error) {
  cleanup_lease struct lease lease = {0};
  bool is_known;
  if (!lease_lock(db, id, &lease, &is_known, error))
    return false;
  if (!is_known || lease.state != LEASE_OPEN ||
      !config_ranges_contain(&lease.remaining, (uint64_t)config))
    return true;

  if (config_ranges_count(&lease.remaining) == 1)
    return db_execute(db, &sql_lease_avoid, error, BIND("lease", id), BIND("agents", agents));

  cleanup_config_ranges struct config_ranges one = {0};
  config_ranges_add(&one, (uint64_t)config);
  struct measure_change change = {.lease = id, .from = LEASE_OPEN, .to = LEASE_OPEN, .less = one};
  if (!measure_change_state(db, &change, 1, error))
    return false;

  cleanup_rows struct db_rows *rows = db_query(db, &sql_lease_set_apart, error, BIND("lease", id),
                                               BIND("agents", agents), BIND("config", &one));
  if (!rows)
    return false;
  lease_fronts_move_back(db, rows);
  return true;
}

/* Applies the poison rule to a lost lease, which is open again. `facts` has a row about its config,
 * or is NULL. */
static bool loss_judge(struct db *db, const struct lease_loss *loss, const struct db_rows *facts,
                       int row, struct error *error) {
  enum poison_step step = POISON_AGAIN;
  struct poison_facts known = {0};
  if (facts) {
    known = (struct poison_facts){db_get_integer(facts, row, "losses"),
                                  db_get_integer(facts, row, "devices"),
                                  db_get_integer(facts, row, "other_agents")};
    step = poison_decide(&known);
  }

  char detail[256];
  const struct given_up given = {
      .lease = loss->id, .config = loss->config, .was_run = true, .detail = detail};
  switch (step) {
  case POISON_AGAIN:
    return loss->fruitless < LEASE_FRUITLESS_MAX ||
           fruitless_give_up(db, loss->id, loss->fruitless, error);
  case POISON_SEPARATE:
    return config_separate(db, loss->id, loss->config, db_get(facts, row, "agents"), error);
  case POISON_GIVE_UP:
    snprintf(detail, sizeof detail,
             "poisoned: %lld leases were lost while it was being measured, on %lld device(s)",
             (long long)known.losses, (long long)known.devices);
    return lease_give_up(db, &given, error);
  }
  die("no such poison step");
}

/* Opens them, notes the losses and judges each. */
static bool losses_store(struct worker *worker, const struct lease_loss *losses, size_t n,
                         struct error *error) {
  struct db *db = worker->db;
  cleanup_rows struct db_rows *facts = NULL;
  cleanup_free struct measure_change *changes = xcalloc(n, sizeof *changes);
  cleanup_free int *row_of = xcalloc(n, sizeof *row_of); /* -1: without facts */
  for (size_t i = 0; i < n; i++) {
    row_of[i] = -1;
    changes[i] = (struct measure_change){losses[i].id, LEASE_HELD, LEASE_OPEN};
  }

  cleanup_parameters struct db_parameters note = {0}, of_facts = {0};
  bind_records(&note, &loss_record, losses, n);
  bind_records(&of_facts, &loss_record, losses, n);
  bind_integer(&of_facts, "live_ms", agent_live_ms(server_options(worker->server)));
  if (!measure_change_state(db, changes, n, error) ||
      !db_run(db, &sql_leases_note_losses, &note, NULL, error) ||
      !db_run(db, &sql_lease_loss_facts, &of_facts, &facts, error))
    return false;

  for (int row = 0; row < db_count(facts); row++)
    row_of[db_get_integer(facts, row, "n") - 1] = row;
  for (size_t i = 0; i < n; i++)
    if (!loss_judge(db, &losses[i], row_of[i] < 0 ? NULL : facts, row_of[i], error))
      return false;
  return true;
}

bool measure_lost(struct worker *worker, const struct db_rows *gone, struct error *error) {
  size_t n;
  struct lease_loss *losses = db_read_all(gone, &loss_record, &n);
  bool ok = losses_store(worker, losses, n, error);
  db_records_free(&loss_record, losses, n);
  return ok;
}

void measure_settle_lost(struct worker *worker, const struct db_rows *gone) {
  size_t n;
  struct lease_loss *losses = db_read_all(gone, &loss_record, &n);
  cleanup_free int64_t *jobs = xcalloc(n, sizeof *jobs);
  for (size_t i = 0; i < n; i++) {
    const struct lease_loss *loss = &losses[i];
    log_info("lease: lost lease=%lld epoch=%lld agent=%s device=%s config=%lld",
             (long long)loss->id, (long long)loss->epoch, loss->agent, loss->device,
             (long long)(loss->config == FIELD_NONE ? -1 : loss->config));
    jobs[i] = loss->job_id;
    shares_charge(worker->db, loss->owner_id, loss->uncharged_us, 1);
    leases_announce(worker, &loss->hardware_digest, 1);
    job_announce(worker, loss->job_id);
  }
  db_records_free(&loss_record, losses, n);
  jobs_advance(worker, jobs, n);
}

/* Gives up leases that avoid all agents which could measure them. Each is given up in its own
 * transaction: no transaction waits for a lease while it holds a job's row. */
static bool unwanted_give_up(struct worker *worker, struct error *error) {
  static const char detail[] =
      "poisoned: every agent that could measure it lost a lease while measuring it";
  cleanup_rows struct db_rows *rows =
      db_query(worker->db, &sql_leases_unwanted, error,
               BIND("live_ms", agent_live_ms(server_options(worker->server))), BIND("limit", PAGE));
  if (!rows)
    return false;

  for (int row = 0; row < db_count(rows); row++) {
    int64_t job = db_get_integer(rows, row, "job_id");
    const struct given_up given = {
        .lease = db_get_integer(rows, row, "id"), .config = -1, .was_run = true, .detail = detail};
    if (!db_begin(worker->db, error) ||
        !db_end(worker->db, lease_give_up(worker->db, &given, error), error))
      return false;
    jobs_advance(worker, &job, 1);
  }
  return true;
}

bool leases_sweep(struct worker *worker, struct error *error) {
  bool ok = unwanted_give_up(worker, error) && poison_judge_losses(worker, error) &&
            jobs_poison(worker, error);
  jobs_advance(worker, NULL, 0);
  return ok;
}
