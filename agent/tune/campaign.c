/* The stages of a campaign. Memory and threads: the header. */
#include "agent/tune/campaign.h"

#include <math.h>

#include "common/verdict/budget.h"
#include "common/verdict/finalists.h"

#define PIECE_CONFIGS 1024 /* of a screen that are compiled and raced as one lease */
#define LIKELY_MAX 8       /* winners of other keys that a screen begins with */
#define HALVING_MAX 64

struct space_facts campaign_facts(const struct campaign *campaign, const struct key_tuning *key) {
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
  for (; campaign->n_told < campaign->n && campaign->keys[campaign->n_told].is_ended; campaign->n_told++)
    campaign->ended(campaign, &campaign->keys[campaign->n_told], campaign->context);
}

/* Leases */

static bool campaign_measured(void *context, const struct lease *lease, const struct measurement *measurement) {
  struct campaign *campaign = context;
  MAGIC_CHECK(campaign, CAMPAIGN_MAGIC);
  struct key_tuning *key = &campaign->keys[campaign->current];
  struct error error;
  if (campaign->samples && !samples_file_add(campaign->samples, campaign->device->name, lease, measurement, &error)) {
    campaign_break(campaign, &error);
    return false;
  }
  if (!key_tuning_take(key, lease, measurement))
    return false;
  cleanup_free char *note =
      campaign->n > 1 ? xasprintf("key %zu of %zu", campaign->current + 1, campaign->n) : xstrdup("");
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

static int by_ordinal(const void *a, const void *b) {
  const uint64_t *left = a, *right = b;
  return *left < *right ? -1 : *left > *right;
}

static struct config_ranges ranges_of(const uint64_t *configs, size_t n) {
  struct config_ranges ranges = {0};
  cleanup_free uint64_t *sorted = xcalloc(n, sizeof *sorted);
  for (size_t i = 0; i < n; i++)
    sorted[i] = configs[i];
  qsort(sorted, n, sizeof *sorted, by_ordinal);
  for (size_t i = 0; i < n; i++)
    config_ranges_add(&ranges, sorted[i]);
  return ranges;
}

static void lease_ended(struct campaign *campaign, struct key_tuning *key, enum lease_end end, struct error *error) {
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
static bool piece_run(struct campaign *campaign, struct key_tuning *key, const struct piece *piece) {
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
      .n_likely = piece->n_likely,
      .likely = likely,
      .best_ratio = piece->best_ratio,
      .device_us = piece->device_us,
      .budget_us = piece->device_us,
      .objects = key->objects,
  };
  struct lease_hooks hooks = {.context = campaign, .measured = campaign_measured, .stopped = campaign_stopped};
  struct error error;
  int64_t began_ns = clock_monotonic_ns();
  campaign->current = (size_t)(key - campaign->keys);
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

static struct budget budget_of(const struct campaign *campaign, const struct key_tuning *key) {
  return (struct budget){
      .total_us = campaign->terms.budget_us,
      .spent_us = key->device_us,
      .opening_us = key->opening_us,
      .openings = key->openings,
      .measured = key->n_measurements,
      .final_us = key->final_us,
      .final_processes = key->n_processes,
  };
}

/* Whether the budget leaves the key's screen and halving device time; *ret_us is what a lease may spend, 0: no bound. */
static bool screen_left(const struct campaign *campaign, const struct key_tuning *key, int64_t *ret_us) {
  struct budget budget = budget_of(campaign, key);
  int64_t left_us = budget_screen_left_us(&budget, campaign->terms.processes);
  *ret_us = left_us == BUDGET_UNBOUNDED ? 0 : left_us;
  return left_us > 0;
}

static bool piece_screen(struct campaign *campaign, struct key_tuning *key, const uint64_t *configs, size_t n,
                         size_t n_likely) {
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

/* Gets the objects of all the key's configs that are listed, and of the baseline, where they come from a build. */
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

struct neighbour {
  double distance;
  uint64_t best;
};

static int by_distance(const void *a, const void *b) {
  const struct neighbour *left = a, *right = b;
  return left->distance < right->distance ? -1 : left->distance > right->distance;
}

static bool is_among(const uint64_t *configs, size_t n, uint64_t config) {
  for (size_t i = 0; i < n; i++)
    if (configs[i] == config)
      return true;
  return false;
}

/* The best configs of the keys before, nearest keys first, each once. `ret` has room for LIKELY_MAX. */
static size_t likely_of(const struct campaign *campaign, const struct key_tuning *key, uint64_t *ret) {
  size_t n_before = (size_t)(key - campaign->keys), n_neighbours = 0, n = 0;
  cleanup_free struct neighbour *neighbours = xcalloc(n_before + 1, sizeof *neighbours);
  for (size_t i = 0; i < n_before; i++) {
    const struct key_config *best = key_tuning_best(&campaign->keys[i]);
    if (best)
      neighbours[n_neighbours++] = (struct neighbour){key_distance(&campaign->keys[i].key, &key->key), best->config};
  }
  qsort(neighbours, n_neighbours, sizeof *neighbours, by_distance);
  for (size_t i = 0; i < n_neighbours && n < LIKELY_MAX; i++)
    if (!is_among(ret, n, neighbours[i].best))
      ret[n++] = neighbours[i].best;
  return n;
}

static void screen_whole(struct campaign *campaign, struct key_tuning *key) {
  uint64_t likely[LIKELY_MAX];
  size_t n_likely = likely_of(campaign, key, likely), n = 0, first = 0;
  cleanup_free uint64_t *order = xcalloc(key->n, sizeof *order);
  for (size_t i = 0; i < n_likely; i++)
    if (key_tuning_find(key, likely[i]))
      order[n++] = likely[i];
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

static void search_tell_batch(struct search *search, const struct key_tuning *key, const uint64_t *batch, size_t n) {
  for (size_t i = 0; i < n; i++) {
    const struct key_config *config = key_tuning_find(key, batch[i]);
    bool is_correct = config->is_measured && config->outcome == OUTCOME_CORRECT;
    search_tell(search, batch[i], is_correct ? config->ratio : INFINITY);
  }
}

static bool search_begin(const struct campaign *campaign, struct key_tuning *key, struct search **ret_search) {
  const struct campaign_terms *terms = &campaign->terms;
  struct space_facts facts = campaign_facts(campaign, key);
  uint64_t likely[LIKELY_MAX + 1] = {key->baseline};
  struct search_options options = {
      .strategy = terms->strategy,
      .seed = (uint64_t)terms->seed,
      .trials = terms->trials,
      .n_likely = 1 + likely_of(campaign, key, likely + 1),
      .likely = likely,
  };
  struct error error;
  if (search_new(campaign->folder->space, &facts, &options, ret_search, &error))
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
    search_tell_batch(search, key, batch, n);
  }
  key_tuning_all_added(key);
  if (!key->is_ended)
    (void)objects_prepare(campaign, key);
}

static size_t screen_size(const struct campaign *campaign, const struct key_tuning *key) {
  return campaign->terms.is_search ? (size_t)campaign->terms.trials : key->n;
}

/* Halving */

/* When more than a final takes could still win, the best of them race once more; the others are left out. */
static void halve(struct campaign *campaign, struct key_tuning *key) {
  cleanup_free uint64_t *configs = xcalloc(key->n + 1, sizeof *configs);
  size_t finalists = campaign->terms.finalists, n = key_tuning_choose(key, key->n, configs);
  struct piece piece = {.stage = STAGE_HALVING};
  if (n <= finalists || !screen_left(campaign, key, &piece.device_us))
    return;
  n = key_tuning_choose(key, finalists > HALVING_MAX ? finalists : HALVING_MAX, configs);
  for (size_t i = 0; i < key->n; i++)
    key->configs[i].is_behind = !is_among(configs, n, key->configs[i].config);
  piece.n = n;
  piece.configs = configs;
  (void)piece_run(campaign, key, &piece);
}

/* Finals */

static void budget_is_spent(const struct campaign *campaign, struct key_tuning *key) {
  struct error error;
  size_t n = 0;
  for (size_t i = 0; i < key->n; i++)
    n += key->configs[i].is_measured;
  error_set(&error,
            "its budget of %g device-seconds was spent before any config was measured correctly: %zu of %zu were "
            "measured, and opening the kernel took %.3g; give more with --budget",
            (double)campaign->terms.budget_us * 1e-6, n, key->n, (double)key->opening_us * 1e-6);
  key_tuning_fail(key, &error);
}

static void nothing_is_correct(const struct campaign *campaign, struct key_tuning *key) {
  const char *example = key->examples[OUTCOME_CORRECTNESS];
  struct error error;
  for (size_t i = 0; i < OUTCOME_COUNT && !example; i++)
    example = key->examples[i];
  if (!example && key->is_spent) {
    budget_is_spent(campaign, key);
    return;
  }
  error_set(&error, "no config of the space is correct%s%s", example ? "; " : "", example ? example : "");
  key_tuning_fail(key, &error);
}

static void finalists_set(const struct campaign *campaign, struct key_tuning *key) {
  struct budget budget = budget_of(campaign, key);
  size_t most = campaign->terms.finalists < 2 ? 2 : campaign->terms.finalists; /* the best and the baseline */
  most = budget_finalists(&budget, campaign->terms.processes, most);
  if (campaign->terms.is_exhaustive)
    most = key->n;
  key->finalists = xcalloc(most, sizeof *key->finalists);
  if (campaign->terms.is_exhaustive)
    for (size_t i = 0; i < key->n; i++)
      key->finalists[key->n_finalists++] = key->configs[i].config;
  else
    key->n_finalists = key_tuning_choose(key, most, key->finalists);
  if (key->n_finalists == 0)
    nothing_is_correct(campaign, key);
}

/* Measures the finalists that are left in one more process; shares what is left of the budget with the processes to
 * come. */
static void final(struct campaign *campaign, struct key_tuning *key, int64_t process, int64_t processes) {
  cleanup_free uint64_t *configs = xcalloc(key->n_finalists, sizeof *configs);
  struct piece piece = {.stage = STAGE_FINAL, .process = process, .configs = configs};
  struct budget budget = budget_of(campaign, key);
  for (size_t i = 0; i < key->n_finalists; i++)
    if (!key_tuning_failed_config(key, key->finalists[i]))
      configs[piece.n++] = key->finalists[i];
  if (piece.n == 0)
    return;
  piece.device_us = budget.total_us ? budget_process_us(&budget, processes - process) : 0;
  key->n_processes++;
  (void)piece_run(campaign, key, &piece);
}

static void decide(const struct campaign *campaign, struct key_tuning *key) {
  struct error error;
  if (!key_tuning_decide(key, (uint64_t)campaign->terms.seed, &error))
    key_tuning_fail(key, &error);
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
      halve(campaign, &campaign->keys[i]);
  keys_tell(campaign);
}

/* The finals' processes from `from` up to `until`: each measures all keys that go on. */
static void finals(struct campaign *campaign, int64_t from, int64_t until) {
  uint64_t total = 0;
  for (size_t i = 0; i < campaign->n; i++)
    total += campaign->keys[i].is_ended ? 0 : campaign->keys[i].n_finalists * (uint64_t)(until - from);
  stage_begin(campaign, "final", total);
  for (int64_t process = from; process < until; process++)
    for (size_t i = 0; i < campaign->n; i++)
      if (key_goes_on(campaign, &campaign->keys[i]))
        final(campaign, &campaign->keys[i], process, until);
  keys_tell(campaign);
}

/* Decides what can be decided; true when a key needs one more process. */
static bool decisions(struct campaign *campaign, bool is_last) {
  bool is_open = false;
  for (size_t i = 0; i < campaign->n && !campaign->is_broken; i++) {
    struct key_tuning *key = &campaign->keys[i];
    struct budget budget = budget_of(campaign, key);
    if (key->is_ended)
      continue;
    decide(campaign, key);
    key->is_ended = key->is_ended || is_last || verdict_is_settled(&key->verdict) || !budget_pays_process(&budget);
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
  for (size_t i = 0; i < campaign->n; i++)
    if (key_goes_on(campaign, &campaign->keys[i]))
      finalists_set(campaign, &campaign->keys[i]);
  int64_t process = campaign->terms.processes;
  finals(campaign, 0, process);
  while (decisions(campaign, campaign->terms.is_exhaustive || process >= CAMPAIGN_PROCESSES_MAX)) {
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
