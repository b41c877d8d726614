/* The stages of a campaign. */
#include "agent/tune/campaign.h"

#include "common/base/log.h"
#include "common/base/numbers.h"
#include "common/verdict/budget.h"

#define PIECE_CONFIGS 1024 /* of a screen that are compiled and raced as one lease */

struct space_facts campaign_space_facts(const struct campaign *campaign,
                                        const struct key_tuning *key) {
  return (struct space_facts){
      .key = &key->key,
      .gpu_name = campaign->device->environment.gpu,
      .arch = campaign->device->environment.arch,
  };
}

/* Ends the campaign early: nothing more can be measured for any key. */
static void campaign_break(struct campaign *campaign, const struct error *error) {
  if (!campaign->is_broken)
    campaign->trouble = *error;
  campaign->is_broken = true;
}

/* Reports the keys that have ended, up to the first one that has not. */
static void keys_report(struct campaign *campaign) {
  progress_end(&campaign->progress);
  for (; campaign->n_ended < campaign->n && campaign->keys[campaign->n_ended].is_ended;
       campaign->n_ended++)
    campaign->ended(campaign, &campaign->keys[campaign->n_ended], campaign->context);
}

static bool campaign_measured(void *context, const struct lease *lease,
                              const struct measurement *measurement,
                              const struct lease_object *object) {
  struct campaign *campaign = context;
  char note[64] = "";
  struct error error;
  (void)object;
  MAGIC_CHECK(campaign, CAMPAIGN_MAGIC);
  if (campaign->samples &&
      !samples_file_add(campaign->samples, campaign->device->name, lease, measurement, &error)) {
    campaign_break(campaign, &error);
    return false;
  }

  if (!key_tuning_take(&campaign->keys[campaign->current], lease, measurement))
    return false;
  if (campaign->n > 1)
    snprintf(note, sizeof note, "key %zu of %zu", campaign->current + 1, campaign->n);
  progress_show(&campaign->progress, ++campaign->done, note);

  return true;
}

static bool campaign_stopped(void *context) {
  const struct campaign *campaign = context;
  MAGIC_CHECK(campaign, CAMPAIGN_MAGIC);
  return supervisor_stopped(campaign->supervisor);
}

/* Configs that are measured as one lease. */
struct piece {
  enum stage stage;
  int64_t process;
  size_t n;
  const uint64_t *configs; /* in the order in which they are tried */
  size_t n_warm_starts;    /* how many of the first ones are warm-start configs */
  double best_ratio;       /* 0: none known */
  int64_t device_us;       /* 0: no bound */
};

/* Gets the objects of the key's listed configs and of the baseline, if there is a build. */
static bool objects_prepare(struct campaign *campaign, struct key_tuning *key) {
  struct error error;
  if (!campaign->build)
    return true;

  cleanup_free uint64_t *configs = xcalloc(key->n + 1, sizeof *configs);
  struct build_request request = {
      .kernel = campaign->folder->kernel,
      .key = &key->key,
      .space = campaign->folder->space,
      .gpu_name = campaign->device->environment.gpu,
      .arch = campaign->device->environment.arch,
      .configs = configs,
  };

  for (size_t i = key->sorted_from; i < key->n; i++)
    configs[request.n++] = key->configs[i].config;
  configs[request.n++] = key->baseline;

  DISCARD(key->objects, build_objects_free);
  if (build_code_objects(campaign->build, &request, &key->objects, &error))
    return true;

  key_tuning_fail(key, &error);
  return false;
}

/* Takes another baseline where the old one does not run, and says so. */
static bool baseline_move(const struct campaign *campaign, struct key_tuning *key,
                          const struct space_facts *facts) {
  const struct space *space = campaign->folder->space;
  cleanup_free char *before = space_config_format(space, key->baseline),
                    *reason = xstrdup(key->baseline_failure);
  if (!key_tuning_move_baseline(key, space, facts))
    return false;
  cleanup_free char *now = space_config_format(space, key->baseline);
  log_warning("tune: the config %s does not run here (%s): configs are compared with %s", before,
              reason, now);
  return true;
}

/* Measures a piece of a key. False: the key, or the campaign, has ended. */
static bool piece_run(struct campaign *campaign, struct key_tuning *key,
                      const struct piece *piece) {
  static char nothing[] = "";
  cleanup_config_ranges struct config_ranges configs = {0};
  cleanup_free uint64_t *sorted = xmemdup(piece->configs, piece->n * sizeof *sorted);
  qsort(sorted, piece->n, sizeof *sorted, compare_ordinals);
  array_foreach (config, sorted, piece->n)
    config_ranges_add(&configs, *config);

  struct lease lease = {
      .id = nothing,
      .job = key->job,
      .kernel = campaign->folder->kernel,
      .sources = campaign->sources,
      .key = key->key,
      .space = campaign->folder->space,
      .configs = configs,
      .stage = piece->stage,
      .process = piece->process,
      .seed = (uint64_t)(campaign->terms.seed + piece->process),
      .regime = campaign->terms.regime,
      .n_warm_starts = piece->n_warm_starts,
      .warm_starts = (uint64_t *)piece->configs,
      .best_ratio = piece->best_ratio,
      .device_us = piece->device_us,
      .budget_us = piece->device_us,
  };
  struct lease_hooks hooks = {
      .context = campaign, .measured = campaign_measured, .stopped = campaign_stopped};

  struct space_facts facts = campaign_space_facts(campaign, key);
  struct error error;
  enum lease_end end;
  do {
    int64_t began_ns = clock_monotonic_ns();
    lease.baseline = key->baseline;
    lease.objects = key->objects;
    campaign->current = (size_t)(key - campaign->keys);
    key->n_leases++;
    end = lease_execute(campaign->executor, &lease, &hooks, &error);
    key_tuning_opened(key, piece->stage, campaign->executor->opening_us);
    key->seconds[piece->stage] += (double)(clock_monotonic_ns() - began_ns) * 1e-9;
    key->is_spent = key->is_spent || end == LEASE_SPENT;
    if (campaign->is_broken)
      return false;
  } while (key->baseline_failure && piece->stage == STAGE_SCREEN && !campaign_stopped(campaign) &&
           baseline_move(campaign, key, &facts) && objects_prepare(campaign, key));
  if (key->is_ended)
    return false;

  bool is_stopped = end == LEASE_STOPPED && campaign_stopped(campaign);
  if (key->baseline_failure) {
    struct agreement_summary agreement = key_tuning_agreement(key);
    if (!agreement_refuses(&agreement, &error))
      error_set(&error, "nothing can be compared: %s", key->baseline_failure);
    key_tuning_fail(key, &error);
  } else if (is_stopped) {
    error_set(&error, "stopped before the end; nothing was decided");
    campaign_break(campaign, &error);
  } else if (end != LEASE_DONE && end != LEASE_SPENT && campaign->executor->is_suspect) {
    campaign_break(campaign, &error);
  } else if (end != LEASE_DONE && end != LEASE_SPENT) {
    key_tuning_fail(key, &error);
  }

  return !campaign->is_broken && !key->is_ended;
}

/* Whether the budget has device time left for the key's screen and halving; *ret_us is the time
 * that a lease may spend (0: no bound). */
static bool screen_left(const struct campaign *campaign, const struct key_tuning *key,
                        int64_t *ret_us) {
  struct budget budget = key_tuning_budget(key, &campaign->terms);
  int64_t left_us = budget_screen_left_us(&budget, campaign->terms.processes);
  *ret_us = left_us == BUDGET_UNBOUNDED ? 0 : left_us;
  return left_us > 0;
}

static bool piece_screen(struct campaign *campaign, struct key_tuning *key, const uint64_t *configs,
                         size_t n, size_t n_warm_starts) {
  const struct key_config *best = key_tuning_best(key);
  struct piece piece = {
      .stage = STAGE_SCREEN,
      .n = n,
      .configs = configs,
      .n_warm_starts = n_warm_starts,
      .best_ratio = best ? best->ratio : 0,
  };
  if (!screen_left(campaign, key, &piece.device_us))
    key->is_spent = true;
  return !key->is_spent && piece_run(campaign, key, &piece) && !key->is_spent;
}

static size_t warm_starts_of(const struct campaign *campaign, const struct key_tuning *key,
                             uint64_t ret[WARM_STARTS_MAX]) {
  return key_tuning_warm_starts(key, campaign->keys, (size_t)(key - campaign->keys), ret);
}

static void screen_whole(struct campaign *campaign, struct key_tuning *key) {
  uint64_t warm_starts[WARM_STARTS_MAX];
  size_t n_found = warm_starts_of(campaign, key, warm_starts), n_warm_starts = 0;
  cleanup_free uint64_t *order = xcalloc(key->n, sizeof *order);
  array_foreach (warm_start, warm_starts, n_found)
    if (key_tuning_find(key, *warm_start))
      order[n_warm_starts++] = *warm_start;

  size_t n = n_warm_starts;
  array_foreach (config, key->configs, key->n) {
    bool is_warm_start = false;
    for (size_t k = 0; k < n_warm_starts && !is_warm_start; k++)
      is_warm_start = order[k] == config->config;
    if (!is_warm_start)
      order[n++] = config->config;
  }

  bool goes_on = true;
  for (size_t at = 0; at < n && goes_on; at += PIECE_CONFIGS)
    goes_on =
        piece_screen(campaign, key, order + at, n - at < PIECE_CONFIGS ? n - at : PIECE_CONFIGS,
                     at == 0 ? n_warm_starts : 0);
}

static void screen_search(struct campaign *campaign, struct key_tuning *key) {
  cleanup_search struct search *search = NULL;
  struct space_facts facts = campaign_space_facts(campaign, key);
  const struct space *space = campaign->folder->space;
  uint64_t warm_starts[WARM_STARTS_MAX], first[SEARCH_FIRST_MAX], batch[SEARCH_BATCH_MAX];
  size_t n = warm_starts_of(campaign, key, warm_starts);
  struct search_options options =
      key_tuning_search(key, space, &campaign->terms, warm_starts, n, first);
  struct error error;
  bool goes_on = search_new(space, &facts, &options, &search, &error);
  if (!goes_on)
    key_tuning_fail(key, &error);

  while (goes_on && (n = search_ask(search, batch)) > 0) {
    key_tuning_add(key, batch, n);
    goes_on = objects_prepare(campaign, key) && piece_screen(campaign, key, batch, n, n);
    key_tuning_tell(key, search, batch, n);
  }

  key_tuning_all_added(key);
  if (!key->is_ended)
    (void)objects_prepare(campaign, key);
}

/* Decides after the screen what the final measures, with a halving where the campaign needs one. */
static void halve(struct campaign *campaign, struct key_tuning *key) {
  cleanup_campaign_step struct campaign_step step = {0};
  key_tuning_next(key, &campaign->terms, STAGE_SCREEN, &step);
  if (step.kind == CAMPAIGN_HALVING) {
    struct piece piece = {.stage = STAGE_HALVING, .n = step.n_configs, .configs = step.configs};
    /* Device time is left: otherwise the campaign would not halve. */
    (void)screen_left(campaign, key, &piece.device_us);
    if (!piece_run(campaign, key, &piece))
      return;
    campaign_step_release(&step);
    key_tuning_next(key, &campaign->terms, STAGE_HALVING, &step);
  }

  key_tuning_apply(key, &step);
  key->n_finalists = key->n_racing;
}

/* Measures the remaining finalists in one more process, which shares the rest of the budget with
 * later processes. */
static void final(struct campaign *campaign, struct key_tuning *key, int64_t process,
                  int64_t processes) {
  struct budget budget = key_tuning_budget(key, &campaign->terms);
  size_t n = 0;
  array_foreach (config, key->racing, key->n_racing)
    if (!key_tuning_dropped_out(key, *config))
      key->racing[n++] = *config;
  key->n_racing = n;
  if (n == 0)
    return;

  struct piece piece = {.stage = STAGE_FINAL, .process = process, .n = n, .configs = key->racing};
  piece.device_us = budget.total_us ? budget_process_us(&budget, processes - process) : 0;
  key->n_processes++;
  (void)piece_run(campaign, key, &piece);
}

/* The next key after `key` (NULL: the first one) that has not ended; NULL: there is none. */
static struct key_tuning *key_next(const struct campaign *campaign, struct key_tuning *key) {
  struct key_tuning *end = campaign->keys + campaign->n;
  key = key ? key + 1 : campaign->keys;
  while (key < end && key->is_ended)
    key++;
  return campaign->is_broken || key >= end ? NULL : key;
}

static void stage_begin(struct campaign *campaign, const char *what, uint64_t total) {
  campaign->done = 0;
  campaign->progress = progress_start(stderr, what, total);
}

/* Runs the finals' processes from `from` to before `until`. Each measures all keys that have not
 * ended. */
static void finals(struct campaign *campaign, int64_t from, int64_t until) {
  struct key_tuning *key = NULL;
  uint64_t total = 0;
  while ((key = key_next(campaign, key)))
    total += key->n_racing * (uint64_t)(until - from);
  stage_begin(campaign, "final", total);

  for (int64_t process = from; process < until; process++)
    while ((key = key_next(campaign, key)))
      final(campaign, key, process, until);
  keys_report(campaign);
}

/* Decides the keys that can be decided; true when one needs another process. */
static bool decide(struct campaign *campaign) {
  struct key_tuning *key = NULL;
  bool is_open = false;
  while ((key = key_next(campaign, key))) {
    cleanup_campaign_step struct campaign_step step = {0};
    key_tuning_next(key, &campaign->terms, STAGE_FINAL, &step);
    key_tuning_apply(key, &step);
    is_open = is_open || !key->is_ended;
  }

  keys_report(campaign);
  return is_open;
}

bool campaign_run(struct campaign *campaign, struct error *error) {
  const struct campaign_terms *terms = &campaign->terms;
  struct key_tuning *key = NULL;
  uint64_t total = 0;
  campaign->magic = CAMPAIGN_MAGIC;

  array_foreach (tuned, campaign->keys, campaign->n)
    tuned->is_ended = tuned->failure != NULL;
  while (!terms->is_search && (key = key_next(campaign, key)))
    (void)objects_prepare(campaign, key);

  if (terms->is_exhaustive) {
    while ((key = key_next(campaign, key))) { /* every config is a finalist */
      key->racing = xcalloc(key->n + 1, sizeof *key->racing);
      for (size_t i = 0; i < key->n; i++)
        key->racing[i] = key->configs[i].config;
      key->n_finalists = key->n_racing = key->n;
    }
  } else {
    while ((key = key_next(campaign, key)))
      total += terms->is_search ? terms->trials : key->n;
    stage_begin(campaign, "screen", total);
    while ((key = key_next(campaign, key)))
      (terms->is_search ? screen_search : screen_whole)(campaign, key);
    keys_report(campaign);

    stage_begin(campaign, "halving", 0);
    while ((key = key_next(campaign, key)))
      halve(campaign, key);
    keys_report(campaign);
  }

  int64_t process = terms->processes;
  finals(campaign, 0, process);
  for (; decide(campaign); process++)
    finals(campaign, process, process + 1);
  if (!campaign->is_broken)
    return true;

  array_foreach (tuned, campaign->keys, campaign->n)
    if (!tuned->is_ended)
      key_tuning_fail(tuned, &campaign->trouble);
  keys_report(campaign);
  *error = campaign->trouble;

  return false;
}
