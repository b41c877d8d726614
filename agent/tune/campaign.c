/* The stages of a campaign. Memory and threads: the header. */
#include "agent/tune/campaign.h"

#include "agent/tune/tune_report.h"
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

/* Ends */

/* Nothing more can be measured for any key. */
static void campaign_break(struct campaign *campaign, const struct error *error) {
  if (!campaign->is_broken)
    campaign->trouble = *error;
  campaign->is_broken = true;
}

/* Tells of the keys that have ended, as far as none before them is open. */
static void keys_tell(struct campaign *campaign) {
  progress_end(&campaign->progress);
  for (; campaign->n_told < campaign->n && campaign->keys[campaign->n_told].is_ended;
       campaign->n_told++)
    campaign->ended(campaign, &campaign->keys[campaign->n_told], campaign->context);
}

/* Leases */

static bool campaign_measured(void *context, const struct lease *lease,
                              const struct measurement *measurement,
                              const struct lease_object *object) {
  struct campaign *campaign = context;
  (void)object;
  MAGIC_CHECK(campaign, CAMPAIGN_MAGIC);
  struct key_tuning *key = &campaign->keys[campaign->current];
  struct error error;
  if (campaign->samples &&
      !samples_file_add(campaign->samples, campaign->device->name, lease, measurement, &error)) {
    campaign_break(campaign, &error);
    return false;
  }
  if (!key_tuning_take(key, lease, measurement))
    return false;
  cleanup_free char *note = campaign->n > 1
                                ? xasprintf("key %zu of %zu", campaign->current + 1, campaign->n)
                                : xstrdup("");
  progress_show(&campaign->progress, ++campaign->done, note);
  return true;
}

static bool campaign_stopped(void *context) {
  const struct campaign *campaign = context;
  MAGIC_CHECK(campaign, CAMPAIGN_MAGIC);
  return supervisor_stopped(campaign->supervisor);
}

/* What is measured, and in which stage. */
struct piece {
  enum stage stage;
  int64_t process;
  size_t n;
  const uint64_t *configs; /* in the order in which they should be tried */
  size_t n_likely;         /* the first of them, to be tried before the others */
  double best_ratio;       /* 0: none known */
  int64_t device_us;       /* 0: no bound */
};

static struct config_ranges ranges_of(const uint64_t *configs, size_t n) {
  struct config_ranges ranges = {0};
  cleanup_free uint64_t *sorted = xcalloc(n, sizeof *sorted);
  for (size_t i = 0; i < n; i++)
    sorted[i] = configs[i];
  qsort(sorted, n, sizeof *sorted, compare_ordinals);
  for (size_t i = 0; i < n; i++)
    config_ranges_add(&ranges, sorted[i]);
  return ranges;
}

static void lease_ended(struct campaign *campaign, struct key_tuning *key, enum lease_end end,
                        struct error *error) {
  if (campaign->is_broken || end == LEASE_DONE || end == LEASE_SPENT)
    return;
  if (end == LEASE_STOPPED && campaign_stopped(campaign)) {
    error_set(error, "stopped before the end; nothing was decided");
    campaign_break(campaign, error);
    return;
  }
  if (campaign->executor->is_suspect)
    campaign_break(campaign, error);
  else
    key_tuning_fail(key, error);
}

/* Measures a piece of a key. False: the key, or the campaign, has come to its end with it. */
static bool piece_run(struct campaign *campaign, struct key_tuning *key,
                      const struct piece *piece) {
  static char nothing[] = "";
  cleanup_config_ranges struct config_ranges configs = ranges_of(piece->configs, piece->n);
  cleanup_free uint64_t *likely = xmemdup(piece->configs, piece->n * sizeof *piece->configs);
  struct lease lease = {
      .id = nothing,
      .job = key->job,
      .kernel = campaign->folder->kernel,
      .sources = campaign->sources,
      .key = key->key,
      .space = campaign->folder->space,
      .configs = configs,
      .baseline = key->baseline,
      .stage = piece->stage,
      .process = piece->process,
      .seed = (uint64_t)(campaign->terms.seed + piece->process),
      .regime = (char *)campaign->terms.regime,
      .n_warm_starts = piece->n_likely,
      .warm_starts = likely,
      .best_ratio = piece->best_ratio,
      .device_us = piece->device_us,
      .budget_us = piece->device_us,
      .objects = key->objects,
  };
  struct lease_hooks hooks = {
      .context = campaign, .measured = campaign_measured, .stopped = campaign_stopped};
  struct error error;
  int64_t began_ns = clock_monotonic_ns();
  campaign->current = (size_t)(key - campaign->keys);
  key->n_leases++;
  enum lease_end end = lease_execute(campaign->executor, &lease, &hooks, &error);
  key_tuning_opened(key, piece->stage, campaign->executor->opening_us);
  key->seconds[piece->stage] += (double)(clock_monotonic_ns() - began_ns) * 1e-9;
  if (key->baseline_failure && !campaign->is_broken) {
    error_set(&error, "nothing can be compared: %s", key->baseline_failure);
    key_tuning_fail(key, &error);
  } else {
    lease_ended(campaign, key, end, &error);
  }
  key->is_spent = key->is_spent || end == LEASE_SPENT;
  return !campaign->is_broken && !key->is_ended;
}

/* Whether the budget leaves the key's screen and halving device time; *ret_us is what a lease may
 * spend, 0: no bound. */
static bool screen_left(const struct campaign *campaign, const struct key_tuning *key,
                        int64_t *ret_us) {
  struct budget budget = key_tuning_budget(key, &campaign->terms);
  int64_t left_us = budget_screen_left_us(&budget, campaign->terms.processes);
  *ret_us = left_us == BUDGET_UNBOUNDED ? 0 : left_us;
  return left_us > 0;
}

static bool piece_screen(struct campaign *campaign, struct key_tuning *key, const uint64_t *configs,
                         size_t n, size_t n_likely) {
  const struct key_config *best = key_tuning_best(key);
  struct piece piece = {
      .stage = STAGE_SCREEN,
      .n = n,
      .configs = configs,
      .n_likely = n_likely,
      .best_ratio = best ? best->ratio : 0,
  };
  if (!screen_left(campaign, key, &piece.device_us))
    key->is_spent = true;
  return !key->is_spent && piece_run(campaign, key, &piece) && !key->is_spent;
}

/* Gets the objects of all the key's configs that are listed, and of the baseline, where they come
 * from a build. */
static bool objects_prepare(struct campaign *campaign, struct key_tuning *key) {
  cleanup_free uint64_t *configs = xcalloc(key->n + 1, sizeof *configs);
  size_t n = 0;
  struct error error;
  if (!campaign->build)
    return true;
  for (size_t i = key->sorted_from; i < key->n; i++)
    configs[n++] = key->configs[i].config;
  configs[n++] = key->baseline;
  struct build_request request = {
      .kernel = campaign->folder->kernel,
      .key = &key->key,
      .space = campaign->folder->space,
      .gpu_name = campaign->device->environment.gpu,
      .arch = campaign->device->environment.arch,
      .n = n,
      .configs = configs,
  };
  if (key->objects)
    build_objects_free(key->objects);
  key->objects = NULL;
  if (build_code_objects(campaign->build, &request, &key->objects, &error))
    return true;
  key_tuning_fail(key, &error);
  return false;
}

/* Screens */

static bool is_among(const uint64_t *configs, size_t n, uint64_t config) {
  for (size_t i = 0; i < n; i++)
    if (configs[i] == config)
      return true;
  return false;
}

static size_t warm_starts_of(const struct campaign *campaign, const struct key_tuning *key,
                             uint64_t ret[WARM_STARTS_MAX]) {
  return key_tuning_warm_starts(key, campaign->keys, (size_t)(key - campaign->keys), ret);
}

static void screen_whole(struct campaign *campaign, struct key_tuning *key) {
  uint64_t warm_starts[WARM_STARTS_MAX];
  size_t n_warm_starts = warm_starts_of(campaign, key, warm_starts), n = 0, first = 0;
  cleanup_free uint64_t *order = xcalloc(key->n, sizeof *order);
  for (size_t i = 0; i < n_warm_starts; i++)
    if (key_tuning_find(key, warm_starts[i]))
      order[n++] = warm_starts[i];
  first = n;
  for (size_t i = 0; i < key->n; i++)
    if (!is_among(order, first, key->configs[i].config))
      order[n++] = key->configs[i].config;
  for (size_t at = 0; at < n; at += PIECE_CONFIGS) {
    size_t size = n - at < PIECE_CONFIGS ? n - at : PIECE_CONFIGS;
    if (!piece_screen(campaign, key, order + at, size, at == 0 ? first : 0))
      return;
  }
}

static bool search_begin(const struct campaign *campaign, struct key_tuning *key,
                         struct search **ret_search) {
  struct space_facts facts = campaign_space_facts(campaign, key);
  uint64_t warm_starts[WARM_STARTS_MAX];
  size_t n = warm_starts_of(campaign, key, warm_starts);
  struct error error;
  if (key_tuning_search(key, campaign->folder->space, &facts, &campaign->terms, warm_starts, n,
                        ret_search, &error))
    return true;
  key_tuning_fail(key, &error);
  return false;
}

static void screen_search(struct campaign *campaign, struct key_tuning *key) {
  cleanup_search struct search *search = NULL;
  uint64_t batch[SEARCH_BATCH_MAX];
  size_t n;
  bool goes_on = search_begin(campaign, key, &search);
  while (goes_on && (n = search_ask(search, batch)) > 0) {
    key_tuning_add(key, batch, n);
    goes_on = objects_prepare(campaign, key) && piece_screen(campaign, key, batch, n, n);
    key_tuning_tell(key, search, batch, n);
  }
  key_tuning_all_added(key);
  if (!key->is_ended)
    (void)objects_prepare(campaign, key);
}

static size_t screen_size(const struct campaign *campaign, const struct key_tuning *key) {
  return campaign->terms.is_search ? (size_t)campaign->terms.trials : key->n;
}

/* Halving */

/* From the screen to what the final measures, by a halving where the campaign wants one. */
static void screened(struct campaign *campaign, struct key_tuning *key) {
  cleanup_campaign_step struct campaign_step step = {0};
  key_tuning_next(key, &campaign->terms, STAGE_SCREEN, &step);
  if (step.kind == CAMPAIGN_HALVING) {
    struct piece piece = {.stage = STAGE_HALVING, .n = step.n_configs, .configs = step.configs};
    (void)screen_left(campaign, key,
                      &piece.device_us); /* there is some: the campaign would not halve without */
    if (!piece_run(campaign, key, &piece))
      return;
    campaign_step_release(&step);
    key_tuning_next(key, &campaign->terms, STAGE_HALVING, &step);
  }
  key_tuning_apply(key, &step);
  key->n_finalists = key->n_racing;
}

/* Finals */

/* Every config is a finalist. */
static void finalists_all(struct key_tuning *key) {
  key->racing = xcalloc(key->n + 1, sizeof *key->racing);
  for (size_t i = 0; i < key->n; i++)
    key->racing[key->n_racing++] = key->configs[i].config;
  key->n_finalists = key->n_racing;
}

/* Measures the finalists that are left in one more process; shares what is left of the budget with
 * the processes to come. */
static void final(struct campaign *campaign, struct key_tuning *key, int64_t process,
                  int64_t processes) {
  struct budget budget = key_tuning_budget(key, &campaign->terms);
  size_t n = 0;
  for (size_t i = 0; i < key->n_racing; i++)
    if (!key_tuning_dropped_out(key, key->racing[i]))
      key->racing[n++] = key->racing[i];
  key->n_racing = n;
  if (n == 0)
    return;
  struct piece piece = {.stage = STAGE_FINAL, .process = process, .n = n, .configs = key->racing};
  piece.device_us = budget.total_us ? budget_process_us(&budget, processes - process) : 0;
  key->n_processes++;
  (void)piece_run(campaign, key, &piece);
}

/* The campaign */

static void stage_begin(struct campaign *campaign, const char *what, uint64_t total) {
  campaign->done = 0;
  campaign->progress = progress_start(stderr, what, total);
}

static bool key_goes_on(const struct campaign *campaign, const struct key_tuning *key) {
  return !campaign->is_broken && !key->is_ended;
}

static void screens(struct campaign *campaign) {
  uint64_t total = 0;
  for (size_t i = 0; i < campaign->n; i++)
    total += campaign->keys[i].is_ended ? 0 : screen_size(campaign, &campaign->keys[i]);
  stage_begin(campaign, "screen", total);
  for (size_t i = 0; i < campaign->n; i++) {
    struct key_tuning *key = &campaign->keys[i];
    if (!key_goes_on(campaign, key))
      continue;
    if (campaign->terms.is_search)
      screen_search(campaign, key);
    else
      screen_whole(campaign, key);
  }
  keys_tell(campaign);
}

static void halvings(struct campaign *campaign) {
  stage_begin(campaign, "halving", 0);
  for (size_t i = 0; i < campaign->n; i++)
    if (key_goes_on(campaign, &campaign->keys[i]))
      screened(campaign, &campaign->keys[i]);
  keys_tell(campaign);
}

/* The finals' processes from `from` up to `until`: each measures all keys that go on. */
static void finals(struct campaign *campaign, int64_t from, int64_t until) {
  uint64_t total = 0;
  for (size_t i = 0; i < campaign->n; i++)
    total += campaign->keys[i].is_ended ? 0 : campaign->keys[i].n_racing * (uint64_t)(until - from);
  stage_begin(campaign, "final", total);
  for (int64_t process = from; process < until; process++)
    for (size_t i = 0; i < campaign->n; i++)
      if (key_goes_on(campaign, &campaign->keys[i]))
        final(campaign, &campaign->keys[i], process, until);
  keys_tell(campaign);
}

/* Decides what can be decided; true when a key needs one more process. */
static bool decisions(struct campaign *campaign) {
  bool is_open = false;
  for (size_t i = 0; i < campaign->n && !campaign->is_broken; i++) {
    struct key_tuning *key = &campaign->keys[i];
    cleanup_campaign_step struct campaign_step step = {0};
    if (key->is_ended)
      continue;
    key_tuning_next(key, &campaign->terms, STAGE_FINAL, &step);
    key_tuning_apply(key, &step);
    is_open = is_open || !key->is_ended;
  }
  keys_tell(campaign);
  return is_open;
}

bool campaign_run(struct campaign *campaign, struct error *error) {
  campaign->magic = CAMPAIGN_MAGIC;
  for (size_t i = 0; i < campaign->n; i++) {
    struct key_tuning *key = &campaign->keys[i];
    key->is_ended = key->failure != NULL;
    if (!key->is_ended && !campaign->terms.is_search)
      (void)objects_prepare(campaign, key);
  }
  if (!campaign->terms.is_exhaustive) {
    screens(campaign);
    halvings(campaign);
  }
  for (size_t i = 0; i < campaign->n && campaign->terms.is_exhaustive; i++)
    if (key_goes_on(campaign, &campaign->keys[i]))
      finalists_all(&campaign->keys[i]);
  int64_t process = campaign->terms.processes;
  finals(campaign, 0, process);
  while (decisions(campaign)) {
    finals(campaign, process, process + 1);
    process++;
  }
  if (!campaign->is_broken)
    return true;
  for (size_t i = 0; i < campaign->n; i++)
    if (!campaign->keys[i].is_ended)
      key_tuning_fail(&campaign->keys[i], &campaign->trouble);
  keys_tell(campaign);
  *error = campaign->trouble;
  return false;
}

int64_t campaign_processes(const struct campaign *campaign) {
  int64_t most = 0;
  for (size_t i = 0; i < campaign->n; i++)
    if (campaign->keys[i].n_processes > most)
      most = campaign->keys[i].n_processes;
  return most;
}
