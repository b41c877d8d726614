/* Leases that come back. Memory and threads: as the header says. */
#include "server/lease/leases.h"

#include "common/base/log.h"
#include "server/agent/agents.h"
#include "server/counters.h"
#include "server/housekeep.h"
#include "server/job/jobs.h"
#include "server/lease/poison.h"

#define EXPIRE_PACE_MS 500
#define SWEEP_PACE_MS 5000  /* jobs that should have moved on, leases that nobody may take */
#define ENDED_PACE_MS 60000 /* leases of jobs that have ended */
#define PAGE 500

static bool loss_judge(struct worker *worker, const struct lease_loss *loss, struct error *error) {
  bool given_up;
  if (loss->config < 0)
    return lease_check_fruitless(worker, loss->lease, loss->fruitless, &given_up, error);
  struct poison_facts facts = {loss->losses, loss->devices, loss->other_agents};
  char detail[256];
  switch (poison_decide(&facts)) {
  case POISON_AGAIN:
    return lease_check_fruitless(worker, loss->lease, loss->fruitless, &given_up, error);
  case POISON_APART:
    return lease_set_apart(worker->db, loss->lease, loss->config, loss->agents, error);
  case POISON_GIVE_UP:
    snprintf(detail, sizeof detail, "poisoned: %lld leases were lost while it was being measured, on %lld device(s)",
             (long long)loss->losses, (long long)loss->devices);
    return lease_give_up(worker->db, loss->lease, loss->config, detail, error);
  }
  die("no such poison step");
}

bool leases_judge_losses(struct worker *worker, const struct lease_losses *losses, struct error *error) {
  for (size_t i = 0; i < losses->n; i++)
    if (!loss_judge(worker, &losses->all[i], error))
      return false;
  return true;
}

void leases_settle_losses(struct worker *worker, const struct lease_losses *losses) {
  cleanup_free int64_t *jobs = xcalloc(losses->n + 1, sizeof *jobs);
  for (size_t i = 0; i < losses->n; i++) {
    const struct lease_loss *loss = &losses->all[i];
    log_info("lease: lost lease=%lld epoch=%lld agent=%s device=%s config=%lld", (long long)loss->lease,
             (long long)loss->epoch, loss->agent, loss->device, (long long)loss->config);
    jobs[i] = loss->job;
    leases_announce(worker, &loss->hardware_digest, 1);
    job_announce(worker, loss->job);
  }
  if (losses->n)
    jobs_advance(worker, jobs, losses->n);
}

bool lease_check_fruitless(struct worker *worker, int64_t lease, int64_t fruitless, bool *ret_given_up,
                           struct error *error) {
  *ret_given_up = fruitless >= LEASE_FRUITLESS_MAX;
  if (!*ret_given_up)
    return true;
  char detail[128];
  snprintf(detail, sizeof detail, "given up: leased %lld times in a row without a result", (long long)fruitless);
  return lease_give_up(worker->db, lease, -1, detail, error);
}

/* Whether agents had a lease time to renew since the database was connected to, and since this server or the database stood
 * still for so long that their renewals may not have got through. */
static bool renewals_had_time(const struct worker *worker, int64_t lease_ms) {
  static _Thread_local int64_t looked_ms = INT64_MAX, resumed_ms = INT64_MIN / 2;
  int64_t now_ms = clock_monotonic_ms();
  if (now_ms - looked_ms > EXPIRE_PACE_MS + lease_ms / 2) {
    resumed_ms = now_ms;
    log_warning("leases: stood still for %lld ms; none expires for a lease time", (long long)(now_ms - looked_ms));
  }
  looked_ms = now_ms;
  return now_ms - resumed_ms >= lease_ms && now_ms - db_connected_since_ms(worker->db) >= lease_ms;
}

/* One page. A server or a database that was away must not cost the agents their leases. */
static bool expire_page(struct worker *worker, bool *ret_more, struct error *error) {
  const struct server_options *options = server_options(worker->server);
  struct lease_losses losses = {0};
  *ret_more = false;
  if (!db_begin(worker->db, error))
    return false;
  if (!renewals_had_time(worker, options->lease_ms)) {
    db_rollback(worker->db);
    return true;
  }
  bool ok = leases_expire(worker->db, PAGE, agent_live_ms(options), &losses, error) &&
            leases_judge_losses(worker, &losses, error);
  if (!ok)
    db_rollback(worker->db);
  ok = ok && db_commit(worker->db, error);
  if (ok) {
    counter_add(COUNTER_leases_lost, losses.n);
    leases_settle_losses(worker, &losses);
    *ret_more = losses.n == PAGE;
  }
  lease_losses_release(&losses);
  return ok;
}

static bool unwanted_give_up(struct worker *worker, struct error *error) {
  cleanup_free int64_t *leases = NULL;
  cleanup_free int64_t *jobs = NULL;
  size_t n;
  if (!leases_unwanted(worker->db, agent_live_ms(server_options(worker->server)), PAGE, &leases, &jobs, &n, error))
    return false;
  for (size_t i = 0; i < n; i++)
    if (!lease_give_up(worker->db, leases[i], -1,
                       "poisoned: every agent that could measure it lost leases while it did", error))
      return false;
  if (n)
    jobs_advance(worker, jobs, n);
  return true;
}

static bool is_due(int64_t *last_ms, int64_t pace_ms, int64_t now_ms) {
  if (now_ms - *last_ms < pace_ms)
    return false;
  *last_ms = now_ms;
  return true;
}

void leases_housekeep(struct worker *worker) {
  static _Thread_local int64_t expired_ms = INT64_MIN / 2, swept_ms = INT64_MIN / 2, ended_ms = INT64_MIN / 2;
  int64_t now_ms = clock_monotonic_ms();
  struct error error;
  bool ok = true, more = is_due(&expired_ms, EXPIRE_PACE_MS, now_ms);
  while (ok && more)
    ok = expire_page(worker, &more, &error);
  if (ok && is_due(&swept_ms, SWEEP_PACE_MS, now_ms)) {
    ok = unwanted_give_up(worker, &error);
    jobs_advance(worker, NULL, 0);
  }
  if (ok && is_due(&ended_ms, ENDED_PACE_MS, now_ms))
    ok = leases_cancel_ended(worker->db, NULL, 0, &error);
  if (!ok)
    log_warning("leases: %s", error.message);
}
