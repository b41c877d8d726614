/* What happens to leases as they are granted: tails that idle devices take over, and configs that are likely to win. Memory and
 * threads: as leases.h says. */
#include "common/base/log.h"
#include "common/base/numbers.h"
#include "server/counters.h"
#include "server/job/job_campaign.h"
#include "server/lease/leases.h"

static bool tails_take(struct worker *worker, struct lease_wish *const *wishes, size_t n, size_t *ret_split,
                       struct error *error) {
  if (!db_begin(worker->db, error))
    return false;
  if (leases_split(worker->db, wishes, n, ret_split, error) &&
      (*ret_split == 0 || leases_grant(worker->db, wishes, n, server_options(worker->server)->lease_ms, error)))
    return db_commit(worker->db, error);
  db_rollback(worker->db);
  return false;
}

void leases_take_tails(struct worker *worker, struct lease_wish *const *wishes, size_t n) {
  cleanup_free struct lease_wish *again = xcalloc(n + 1, sizeof *again);
  cleanup_free struct lease_wish **hungry = xcalloc(n + 1, sizeof *hungry);
  cleanup_free struct lease_wish **theirs = xcalloc(n + 1, sizeof *theirs);
  struct error error;
  size_t n_hungry = 0, n_split = 0;
  for (size_t i = 0; i < n; i++) {
    if (wishes[i]->lease || !wishes[i]->device_known || wishes[i]->drain_reason)
      continue;
    again[n_hungry] = (struct lease_wish){
        .agent = wishes[i]->agent, .device = wishes[i]->device, .nonce = wishes[i]->nonce, .token = wishes[i]->token};
    hungry[n_hungry] = &again[n_hungry];
    theirs[n_hungry++] = wishes[i];
  }
  if (n_hungry == 0)
    return;
  bool ok = tails_take(worker, hungry, n_hungry, &n_split, &error);
  if (!ok)
    log_warning("leases: cannot split: %s", error.message);
  for (size_t i = 0; i < n_hungry; i++) {
    if (ok && n_split > 0) {
      struct lease_wish before = *theirs[i];
      *theirs[i] = *hungry[i];
      *hungry[i] = before;
    }
    lease_wish_release(hungry[i]);
  }
  if (ok && n_split > 0) {
    counter_add(COUNTER_leases_split, n_split);
    log_info("lease: split leases=%zu for devices=%zu", n_split, n_hungry);
  }
}

/* The jobs that start now; a search was told when it was submitted. */
static bool is_starting(const struct lease_job *job) { return job->state == JOB_QUEUED && !job->is_search; }

static bool kernel_find(const struct digest *kernels, size_t n, const struct digest *kernel, size_t *ret) {
  for (size_t i = 0; i < n; i++)
    if (digest_equal(&kernels[i], kernel)) {
      *ret = i;
      return true;
    }
  return false;
}

static bool wish_has_all(const struct lease_wish *wish, const struct config_ranges *configs) {
  for (size_t i = 0; i < configs->n; i++)
    for (uint64_t k = 0; k < configs->ranges[i].count; k++)
      if (!config_ranges_hold(&wish->configs, configs->ranges[i].first + k))
        return false;
  return true;
}

/* Likely configs that are not open do not hold, or another device measures them already. */
static bool likely_gather(struct worker *worker, const struct lease_job *job, struct lease_wish *wish,
                          struct error *error) {
  uint64_t sorted[WARM_STARTS_MAX];
  cleanup_config_ranges struct config_ranges wanted = {0}, remaining = {0};
  bool gained;
  memcpy(sorted, job->likely, job->n_likely * sizeof *sorted);
  qsort(sorted, job->n_likely, sizeof *sorted, compare_ordinals);
  for (size_t i = 0; i < job->n_likely; i++)
    config_ranges_add(&wanted, sorted[i]);
  if (wish_has_all(wish, &wanted))
    return true;
  if (!lease_gather(worker->db, wish->lease, wish->epoch, &wanted, &gained, &remaining, error))
    return false;
  if (gained) {
    config_ranges_release(&wish->configs);
    wish->configs = remaining;
    remaining = (struct config_ranges){0};
  }
  return true;
}

static bool likely_of_job(struct worker *worker, struct lease_job *job, const struct past_winners *winners,
                          struct lease_wish *first, struct error *error) {
  cleanup_json json_t *key_json = NULL, *space_json = NULL;
  cleanup_space struct space *space = NULL;
  cleanup_key struct key key = {0};
  if (winners->n == 0)
    return true;
  if (!json_parse(job->key, strlen(job->key), &key_json, error) || !key_parse(key_json, NULL, 0, &key, error) ||
      !json_parse(job->space, strlen(job->space), &space_json, error) || !space_parse(space_json, &space, error))
    return false;
  job->n_likely = job_warm_starts(space, &key, &job->environment_digest, winners, job->likely);
  return job->n_likely == 0 || (job_set_likely(worker->db, job->id, job->likely, job->n_likely, error) &&
                                likely_gather(worker, job, first, error));
}

static struct lease_wish *first_of(struct lease_wish *const *wishes, size_t n, int64_t job) {
  for (size_t i = 0; i < n; i++)
    if (wishes[i]->lease && wishes[i]->job == job)
      return wishes[i];
  die("a job without a lease");
}

void leases_choose_likely(struct worker *worker, struct lease_wish *const *wishes, size_t n, struct lease_job *jobs,
                          size_t n_jobs) {
  cleanup_free struct digest *kernels = xcalloc(n_jobs + 1, sizeof *kernels);
  cleanup_free struct past_winners *winners = xcalloc(n_jobs + 1, sizeof *winners);
  struct error error;
  size_t n_kernels = 0, kernel;
  for (size_t i = 0; i < n_jobs; i++)
    if (is_starting(&jobs[i]) && !kernel_find(kernels, n_kernels, &jobs[i].kernel_hash, &kernel))
      kernels[n_kernels++] = jobs[i].kernel_hash;
  bool ok = n_kernels == 0 || winners_past(worker->db, kernels, n_kernels, winners, &error);
  for (size_t i = 0; ok && i < n_jobs; i++)
    if (is_starting(&jobs[i]) && kernel_find(kernels, n_kernels, &jobs[i].kernel_hash, &kernel))
      ok = likely_of_job(worker, &jobs[i], &winners[kernel], first_of(wishes, n, jobs[i].id), &error);
  if (!ok)
    log_warning("leases: cannot tell likely configs: %s", error.message);
  for (size_t i = 0; i < n_kernels; i++)
    past_winners_release(&winners[i]);
}
