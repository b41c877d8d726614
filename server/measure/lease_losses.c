/* Leases that were lost, and configs that are given up. */
#include "common/base/log.h"
#include "server/counters.h"
#include "server/db/db_record.h"
#include "server/job/jobs.h"
#include "server/lease/lease.h"
#include "server/lease/lease_front.h"
#include "server/lease/lease_losses.sql.h"
#include "server/lease/shares.h"
#include "server/measure/grants.h"
#include "server/poison/poison.h"
#include "server/server.h"

#define EXPIRE_PACE_MS 500
/* How much longer a grant may take until it is committed than a lease lasts, and a lease that is
 * due may be locked. What takes longer is found by a search of all held leases. */
#define DUE_MARGIN_MS 10000
#define SURVEY_PACE_MS 500 /* leases that other servers opened */
#define SWEEP_PACE_MS                                                                              \
  5000 /* jobs that should have moved on, poison, unwanted leases, all held ones */
#define COUNT_PACE_MS 5000  /* leases, for /metrics */
#define ENDED_PACE_MS 60000 /* leases of jobs that have ended */
#define SWEEP_REST 20       /* times as long as it took */
#define SWEEP_MOST_MS 60000
#define PAGE 500

static const struct field loss_fields[] = {
    RECORD_FIELD(INTEGER, struct lease_loss, id),
    RECORD_FIELD(INTEGER, struct lease_loss, job_id),
    RECORD_FIELD(INTEGER, struct lease_loss, owner_id),
    RECORD_FIELD(INTEGER, struct lease_loss, epoch),
    RECORD_FIELD(INTEGER, struct lease_loss, fruitless),
    RECORD_FIELD(INTEGER, struct lease_loss, uncharged_us),
    RECORD_FIELD(INTEGER, struct lease_loss, config),
    RECORD_FIELD(TEXT, struct lease_loss, agent),
    RECORD_FIELD(TEXT, struct lease_loss, device),
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

void lease_losses_release(struct lease_losses *losses) {
  db_records_free(&loss_record, losses->all, losses->n);
  *losses = (struct lease_losses){0};
}
#define cleanup_losses __attribute__((cleanup(lease_losses_release)))

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

  cleanup_parameters struct db_parameters parameters = {0};
  bind_integer(&parameters, "lease", id);
  bind_text(&parameters, "agents", agents);
  if (config_ranges_count(&lease.remaining) == 1)
    return db_run(db, &sql_lease_avoid, &parameters, NULL, error);

  cleanup_config_ranges struct config_ranges one = {0};
  config_ranges_add(&one, (uint64_t)config);
  bind_ranges(&parameters, "config", &one);
  cleanup_rows struct db_rows *rows = NULL;
  struct lease_change change = {.lease = id, .from = LEASE_OPEN, .to = LEASE_OPEN, .less = one};
  if (!lease_change_state(db, &change, 1, error) ||
      !db_run(db, &sql_lease_set_apart, &parameters, &rows, error))
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

/* Opens the held leases that the statement finds and locks, counts their losses, and applies the
 * poison rule to them. */
static bool leases_lose(struct worker *worker, const struct statement *statement,
                        const struct db_parameters *parameters, struct lease_losses *ret,
                        struct error *error) {
  struct db *db = worker->db;
  cleanup_rows struct db_rows *rows = NULL, *facts = NULL;
  if (!db_run(db, statement, parameters, &rows, error))
    return false;

  cleanup_losses struct lease_losses losses = {0};
  losses.all = db_read_all(rows, &loss_record, &losses.n);
  if (losses.n == 0) {
    *ret = (struct lease_losses){0};
    return true;
  }

  cleanup_free struct lease_change *changes = xcalloc(losses.n, sizeof *changes);
  cleanup_free int *row_of = xcalloc(losses.n, sizeof *row_of); /* -1: without facts */
  for (size_t i = 0; i < losses.n; i++) {
    row_of[i] = -1;
    changes[i] =
        (struct lease_change){.lease = losses.all[i].id, .from = LEASE_HELD, .to = LEASE_OPEN};
  }

  cleanup_parameters struct db_parameters note = {0}, of_facts = {0};
  bind_records(&note, &loss_record, losses.all, losses.n);
  bind_records(&of_facts, &loss_record, losses.all, losses.n);
  bind_integer(&of_facts, "live_ms", agent_live_ms(server_options(worker->server)));
  if (!lease_change_state(db, changes, losses.n, error) ||
      !db_run(db, &sql_leases_note_losses, &note, NULL, error) ||
      !db_run(db, &sql_lease_loss_facts, &of_facts, &facts, error))
    return false;

  for (int row = 0; row < db_count(facts); row++)
    row_of[db_get_integer(facts, row, "n") - 1] = row;
  for (size_t i = 0; i < losses.n; i++)
    if (!loss_judge(db, &losses.all[i], row_of[i] < 0 ? NULL : facts, row_of[i], error))
      return false;

  *ret = losses;
  losses = (struct lease_losses){0};
  return true;
}

bool leases_expire(struct worker *worker, int64_t limit, struct lease_losses *ret,
                   struct error *error) {
  cleanup_parameters struct db_parameters parameters = {0};
  bind_integer(&parameters, "limit", limit);
  return leases_lose(worker, &sql_leases_expire, &parameters, ret, error);
}

bool leases_expire_due(struct worker *worker, int64_t since_ms, int64_t limit,
                       struct lease_losses *ret, struct error *error) {
  cleanup_parameters struct db_parameters parameters = {0};
  bind_integer(&parameters, "since_ms", since_ms);
  bind_integer(&parameters, "limit", limit);
  return leases_lose(worker, &sql_leases_expire_due, &parameters, ret, error);
}

bool leases_reclaim(struct worker *worker, const char *agent, struct lease_losses *ret,
                    struct error *error) {
  cleanup_parameters struct db_parameters parameters = {0};
  bind_text(&parameters, "agent", agent);
  return leases_lose(worker, &sql_leases_reclaim, &parameters, ret, error);
}

void leases_settle_losses(struct worker *worker, const struct lease_losses *losses) {
  cleanup_free int64_t *jobs = xcalloc(losses->n + 1, sizeof *jobs);
  for (size_t i = 0; i < losses->n; i++) {
    const struct lease_loss *loss = &losses->all[i];
    log_info("lease: lost lease=%lld epoch=%lld agent=%s device=%s config=%lld",
             (long long)loss->id, (long long)loss->epoch, loss->agent, loss->device,
             (long long)(loss->config == FIELD_NONE ? -1 : loss->config));
    jobs[i] = loss->job_id;
    shares_charge(loss->owner_id, loss->uncharged_us, 1);
    leases_announce(worker, &loss->hardware_digest, 1);
    job_announce(worker, loss->job_id);
  }

  if (losses->n)
    jobs_advance(worker, jobs, losses->n);
}

/* Whether agents have had one lease time to renew their leases since this server connected to the
 * database, and since the last pause of this server or of the database that was long enough for
 * renewals to fail. */
static bool renewals_had_time(struct worker *worker, int64_t lease_ms) {
  struct lease_clock *clock = &worker->lease_clock;
  int64_t now_ms = clock_monotonic_ms();
  if (clock->looked_ms && now_ms - clock->looked_ms > EXPIRE_PACE_MS + lease_ms / 2) {
    clock->resumed_ms = now_ms;
    clock->due_since_ms = 0;
    log_warning("leases: the server or the database stood still for %lld ms; no lease expires for "
                "one lease time",
                (long long)(now_ms - clock->looked_ms));
  }

  clock->looked_ms = now_ms;
  return (!clock->resumed_ms || now_ms - clock->resumed_ms >= lease_ms) &&
         now_ms - db_connected_since_ms(worker->db) >= lease_ms;
}

/* Leases expire by the database's clock, which may be stepped: forward all would expire at once,
 * and back those of agents that died would last longer by the step. So after a step none expires
 * for one lease time, and after one back none lasts longer than that. */
static bool clock_check(struct worker *worker, int64_t lease_ms, struct error *error) {
  struct lease_clock *clock = &worker->lease_clock;
  cleanup_rows struct db_rows *rows = NULL;
  int64_t before_ms = clock_monotonic_ms();
  if (!db_run(worker->db, &sql_leases_clock, NULL, &rows, error))
    return false;

  int64_t now_ms = clock_monotonic_ms(), database_ms = db_get_integer(rows, 0, "now_ms");
  int64_t least_ms = database_ms - now_ms, most_ms = database_ms - before_ms;
  int64_t forward_ms = least_ms - clock->ahead_most_ms, back_ms = clock->ahead_least_ms - most_ms;
  bool is_stepped = clock->has_ahead && (forward_ms > lease_ms / 2 || back_ms > lease_ms / 2);
  clock->has_ahead = true;
  clock->ahead_least_ms = least_ms;
  clock->ahead_most_ms = most_ms;
  if (!is_stepped)
    return true;

  clock->resumed_ms = now_ms;
  clock->due_since_ms = 0;
  clock->must_shorten = back_ms > 0;
  log_warning("leases: the database's clock was stepped %s by %lld ms; no lease expires for one "
              "lease time",
              back_ms > 0 ? "back" : "forward", (long long)(back_ms > 0 ? back_ms : forward_ms));
  return true;
}

static bool leases_shorten(struct db *db, int64_t lease_ms, struct error *error) {
  cleanup_parameters struct db_parameters parameters = {0};
  bind_integer(&parameters, "lease_ms", lease_ms);
  return db_run(db, &sql_leases_shorten, &parameters, NULL, error);
}

/* Defers those of a page of leases that were due since then and were renewed. */
static bool due_defer(struct worker *worker, int64_t since_ms, bool *ret_more,
                      struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_integer(&parameters, "since_ms", since_ms);
  bind_integer(&parameters, "limit", PAGE);
  if (!db_run(worker->db, &sql_leases_defer, &parameters, &rows, error))
    return false;
  *ret_more = db_count(rows) == PAGE;
  return true;
}

/* Expires one page of those that were due since then (0: of all held leases). Agents must not lose
 * their leases because a server or a database was unavailable. */
static bool expire_page(struct worker *worker, int64_t since_ms, bool *ret_searched, bool *ret_more,
                        struct error *error) {
  cleanup_losses struct lease_losses losses = {0};
  *ret_searched = *ret_more = false;

  /* The transaction takes now() before this server reads its clock and the database's, so that a
   * pause of the database, and a step of its clock, are noticed. */
  struct lease_clock *clock = &worker->lease_clock;
  int64_t lease_ms = server_options(worker->server)->lease_ms;
  if (!db_begin_now(worker->db, error))
    return false;
  bool is_good = clock_check(worker, lease_ms, error), must_shorten = clock->must_shorten;
  if (is_good && must_shorten)
    is_good = leases_shorten(worker->db, lease_ms, error);
  if (!is_good || !renewals_had_time(worker, lease_ms) || must_shorten) {
    is_good = db_end(worker->db, is_good, error);
    if (is_good)
      clock->must_shorten = false;
    return is_good;
  }

  is_good = since_ms ? leases_expire_due(worker, since_ms, PAGE, &losses, error)
                     : leases_expire(worker, PAGE, &losses, error);
  if (!db_end(worker->db, is_good, error))
    return false;

  *ret_searched = true;
  counter_add(COUNTER_leases_lost, losses.n);
  leases_settle_losses(worker, &losses);
  *ret_more = losses.n == PAGE;
  return true;
}

/* When a sweep that began then runs again. With a forgotten transaction a sweep passes over many
 * dead rows: it rests in proportion, within a limit. */
static int64_t next_ms(int64_t began_ms, int64_t pace_ms, int64_t most_ms) {
  int64_t rest_ms = SWEEP_REST * (clock_monotonic_ms() - began_ms);
  if (rest_ms > most_ms)
    rest_ms = most_ms;
  return began_ms + (rest_ms > pace_ms ? rest_ms : pace_ms);
}

/* Expires leases. Those that are due are looked for at each call, from where the last search ended.
 * All held ones are looked for in proportion to what that takes, which is long where many rows are
 * dead: a lease may be due earlier than it was granted, after a step of the clock. */
static bool leases_expire_all(struct worker *worker, struct error *error) {
  struct lease_clock *clock = &worker->lease_clock;
  int64_t began_ms = clock_monotonic_ms();
  int64_t since_ms = began_ms >= clock->expire_all_ms ? 0 : clock->due_since_ms;
  bool ok = true, more = true, is_searched = true, may_defer = true;
  clock->expire_ms = began_ms + EXPIRE_PACE_MS;

  while (ok && more)
    ok = expire_page(worker, since_ms, &is_searched, &more, error);
  if (ok && !is_searched)
    return true;
  while (ok && may_defer)
    ok = due_defer(worker, since_ms, &may_defer, error);

  /* Also after a failure: where a search of all takes too long, those that are due are found. */
  if (!since_ms)
    clock->expire_all_ms = next_ms(began_ms, SWEEP_PACE_MS, SWEEP_MOST_MS);
  int64_t mark_ms = began_ms + clock->ahead_least_ms - DUE_MARGIN_MS;
  if (ok) {
    clock->due_since_ms = mark_ms;
    return true;
  }

  /* No search of all has succeeded yet: the next ones look for what is due from a lease time ago.
   */
  if (!clock->due_since_ms && clock->has_ahead)
    clock->due_since_ms = mark_ms - server_options(worker->server)->lease_ms;
  clock->expire_ms = next_ms(began_ms, EXPIRE_PACE_MS, SWEEP_PACE_MS);
  return false;
}

/* Gives up leases that avoid all agents which could measure them. Each is given up in its own
 * transaction: no transaction waits for a lease while it holds a job's row. */
static bool unwanted_give_up(struct worker *worker, struct error *error) {
  static const char detail[] =
      "poisoned: every agent that could measure it lost a lease while measuring it";
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_integer(&parameters, "live_ms", agent_live_ms(server_options(worker->server)));
  bind_integer(&parameters, "limit", PAGE);
  if (!db_run(worker->db, &sql_leases_unwanted, &parameters, &rows, error))
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

void leases_housekeep(struct worker *worker) {
  struct lease_clock *clock = &worker->lease_clock;
  int64_t began_ms = clock_monotonic_ms();
  struct error error;
  bool ok = began_ms < clock->expire_ms || leases_expire_all(worker, &error);

  began_ms = clock_monotonic_ms();
  if (ok && began_ms >= clock->survey_ms) {
    ok = lease_fronts_survey(worker->db, &error);
    clock->survey_ms = next_ms(began_ms, SURVEY_PACE_MS, SWEEP_MOST_MS);
  }

  began_ms = clock_monotonic_ms();
  if (ok && began_ms >= clock->sweep_ms) {
    ok = unwanted_give_up(worker, &error) && poison_judge_losses(worker, &error) &&
         jobs_poison(worker, &error);
    jobs_advance(worker, NULL, 0);
    clock->sweep_ms = next_ms(began_ms, SWEEP_PACE_MS, SWEEP_MOST_MS);
  }

  began_ms = clock_monotonic_ms();
  if (ok && began_ms >= clock->count_ms) {
    ok = leases_count(worker, &error);
    clock->count_ms = next_ms(began_ms, COUNT_PACE_MS, SWEEP_MOST_MS);
  }

  began_ms = clock_monotonic_ms();
  if (ok && began_ms >= clock->end_ms) {
    ok = leases_cancel_ended(worker->db, NULL, 0, &error);
    clock->end_ms = began_ms + ENDED_PACE_MS;
  }
  if (!ok)
    log_warning("leases: %s", error.message);
}
