/* The server's jobs and the keys of `tune` get the same decisions, because both use
 * common/campaign/. They may differ in the input that they give it: here the same measurements go
 * through the server's adapter (server/job/jobs.h, from rows as its statements select them) and
 * through `tune`'s (agent/tune/key_tuning.h, as they come from an agent), those of campaigns that a
 * server decided (tests/data/campaign/) and those of a thousand that a seeded generator made up. */
#include <criterion/criterion.h>
#include <math.h>

#include "agent/tune/key_tuning.h"
#include "common/base/file.h"
#include "common/base/numbers.h"
#include "server/job/jobs.h"
#include "server/job/submit.h"

TestSuite(campaigns, .timeout = 300);

/* An accepted measurement. */
struct row {
  uint64_t config;
  enum stage stage;
  int64_t round, process, lease, device;
  enum outcome outcome;
  const char *end, *detail; /* NULL: none */
  double ratio;
  size_t n;
  double *samples_us, *baseline_us;
  int64_t vgprs, spills, lds_bytes; /* CODE_UNKNOWN */
  int64_t device_us;
};

/* A campaign that takes both paths. */
struct story {
  struct space *space;
  struct key_tuning tuning; /* tune's */
  struct campaign_terms terms;
  struct job_brief job; /* the server's */
  size_t n, capacity;
  struct row *rows;
};

static void story_release(struct story *story) {
  for (size_t i = 0; i < story->n; i++) {
    free(story->rows[i].samples_us);
    free(story->rows[i].baseline_us);
  }
  free(story->rows);
  key_tuning_release(&story->tuning);
  space_free(story->space);
}

static struct space_facts facts_of(const struct story *story) {
  return (struct space_facts){.key = &story->tuning.key};
}

/* Takes over the key. A space that is searched is not listed. */
static struct story story_new(const json_t *space, struct key key, struct job_search search,
                              uint64_t seed) {
  struct story story = {.tuning.key = key};
  struct error error;
  cr_assert(space_parse(space, &story.space, &error), "%s", error.message);
  struct space_facts facts = facts_of(&story);
  bool ok = search.wanted ? key_tuning_find_baseline(&story.tuning, story.space, &facts, &error)
                          : key_tuning_list(&story.tuning, story.space, &facts, -1, &error);
  cr_assert(ok, "%s", error.message);
  story.terms = (struct campaign_terms){
      .processes = FINAL_PROCESSES,
      .finalists = FINALISTS_MAX,
      .seed = (int64_t)seed,
      .is_search = search.wanted,
      .strategy = search.strategy,
      .trials = (uint64_t)search.trials,
  };
  story.job = (struct job_brief){
      .baseline = story.tuning.baseline,
      .seed = seed,
      .has_default = story.space->has_default,
      .default_config = story.space->default_ordinal,
      .search = search,
      .final_devices = 1,
  };
  return story;
}

/* The row becomes the story's, and `tune` takes it as a measurement. */
static void row_add(struct story *story, const struct row *row) {
  GROW(story->rows, story->n, story->capacity);
  story->rows[story->n++] = *row;
  struct lease lease = {.space = story->space, .stage = row->stage, .process = row->process};
  struct measurement measurement;
  measurement_init(&measurement);
  measurement.config = (int64_t)row->config;
  measurement.outcome = row->outcome;
  measurement.detail = (char *)(uintptr_t)(row->detail ? row->detail : "because");
  measurement.end = (char *)(uintptr_t)row->end;
  measurement.samples_us = (struct numbers){row->n, row->samples_us};
  measurement.baseline_us = (struct numbers){row->n, row->baseline_us};
  measurement.device_us = row->device_us;
  measurement.vgprs = row->vgprs;
  measurement.spills = row->spills;
  measurement.lds_bytes = row->lds_bytes;
  story->tuning.n_leases = row->lease;
  cr_assert(key_tuning_take(&story->tuning, &lease, &measurement));
}

/* What the server's statements select */

static int by_ratio(const void *a, const void *b) {
  const struct campaign_candidate *left = a, *right = b;
  if (left->ratio != right->ratio)
    return left->ratio < right->ratio ? -1 : 1;
  return (left->config > right->config) - (left->config < right->config);
}

/* As measurements_screen: of those that stayed in their race and of those that left it the
 * HALVING_MAX with the least ratios each, and the baseline and the default. */
static void screen_select(const struct story *story, enum stage stage, struct screen_summary *ret) {
  cleanup_free struct campaign_candidate *all = xcalloc(story->n + 1, sizeof *all);
  size_t n = 0, n_stayed = 0, n_left = 0;
  *ret = (struct screen_summary){0};
  for (size_t i = 0; i < story->n; i++) {
    const struct row *row = &story->rows[i];
    if (row->stage != stage)
      continue;
    ret->outcomes[row->outcome]++;
    bool left_early =
        row->end && (string_equal(row->end, "far") || string_equal(row->end, "behind"));
    if (row->outcome == OUTCOME_CORRECT)
      all[n++] = (struct campaign_candidate){row->config, row->ratio, left_early, row->lease};
  }
  qsort(all, n, sizeof *all, by_ratio);
  for (size_t i = 0; i < n; i++) {
    size_t *rank = all[i].left_early ? &n_left : &n_stayed;
    bool is_always = all[i].config == story->job.baseline ||
                     (story->job.has_default && all[i].config == story->job.default_config);
    if ((*rank)++ < HALVING_MAX || is_always)
      ret->candidates[ret->n++] = all[i];
  }
}

static struct final_summary final_select(const struct story *story) {
  struct final_summary summary = {0, xcalloc(story->n + 1, sizeof *summary.measurements)};
  for (size_t i = 0; i < story->n; i++) {
    const struct row *row = &story->rows[i];
    if (row->stage != STAGE_FINAL)
      continue;
    summary.measurements[summary.n++] = (struct final_measurement){
        row->outcome,
        {
            .config = row->config,
            .process = row->process,
            .n = row->n,
            .samples_us = row->samples_us,
            .baseline_us = row->baseline_us,
            .spills = row->spills == CODE_UNKNOWN ? 0 : row->spills,
            .lds_bytes = row->lds_bytes == CODE_UNKNOWN ? 0 : row->lds_bytes,
            .vgprs = row->vgprs == CODE_UNKNOWN ? 0 : row->vgprs,
            .device = row->device,
        }};
  }
  return summary;
}

/* The two paths */

static struct campaign_step server_next(struct story *story, enum stage stage, int64_t round) {
  struct screen_summary screen, halving;
  struct final_summary final = final_select(story);
  struct campaign_facts facts;
  struct campaign_step step;
  screen_select(story, STAGE_SCREEN, &screen);
  screen_select(story, STAGE_HALVING, &halving);
  story->job.stage = stage;
  story->job.round = round;
  job_facts(&story->job, &screen, &halving, &final, &facts);
  campaign_next(&facts, &step);
  free(final.measurements);
  return step;
}

static struct campaign_step tune_next(struct story *story, enum stage stage, int64_t round) {
  struct campaign_step step;
  if (stage == STAGE_FINAL)
    story->tuning.n_processes = FINAL_PROCESSES + round;
  key_tuning_next(&story->tuning, &story->terms, stage, &step);
  return step;
}

/* All but the sentence of a failure, which advises different things in the two cases. */
static char *step_text(const struct campaign_step *step) {
  static const char *const kinds[] = {"halving", "final", "done", "failed"};
  cleanup_json json_t *configs = json_array();
  for (size_t i = 0; i < step->n_configs; i++)
    ALWAYS(json_array_append_new(configs, json_integer((json_int_t)step->configs[i])) == 0);
  cleanup_json json_t *json =
      json_pack("{s:s, s:O, s:I, s:I}", "step", kinds[step->kind], "configs", configs, "first",
                (json_int_t)step->first_process, "processes", (json_int_t)step->n_processes);
  ALWAYS(json != NULL);
  if (step->has_verdict)
    ALWAYS(json_object_set_new(json, "verdict", verdict_to_json(&step->verdict)) == 0);
  return json_canonical(json);
}

/* Both paths' step, which is the same one; the caller's. */
static struct campaign_step both_next(struct story *story, enum stage stage, int64_t round,
                                      const char *name) {
  struct campaign_step step = server_next(story, stage, round);
  cleanup_campaign_step struct campaign_step other = tune_next(story, stage, round);
  cleanup_free char *left = step_text(&step), *right = step_text(&other);
  cr_assert_str_eq(left, right, "%s, after %s %lld:\nserver %s\ntune   %s", name, stage_name(stage),
                   (long long)round, left, right);
  return step;
}

static int by_config(const void *a, const void *b) {
  const struct search_result *left = a, *right = b;
  return (left->config > right->config) - (left->config < right->config);
}

/* The configs that the search of both wants in a round; `search` is tune's. */
static size_t both_ask(struct story *story, struct search *search, const uint64_t *warm_starts,
                       size_t n_warm_starts, int64_t round, const char *name,
                       uint64_t ret_batch[SEARCH_BATCH_MAX]) {
  cleanup_free struct search_result *results = xcalloc(story->n + 1, sizeof *results);
  struct space_facts facts = facts_of(story);
  uint64_t asked[SEARCH_BATCH_MAX];
  struct error error;
  size_t n;
  for (size_t i = 0; i < story->n; i++) /* as measurements_search: correct ones have a ratio */
    results[i] = (struct search_result){
        story->rows[i].config,
        story->rows[i].outcome == OUTCOME_CORRECT ? story->rows[i].ratio : INFINITY};
  qsort(results, story->n, sizeof *results, by_config);
  story->job.round = round - 1;
  const struct job_search_input input = {story->space, facts,       n_warm_starts,
                                         story->n,     warm_starts, results};
  cr_assert(job_search_round(&story->job, &input, ret_batch, &n, &error), "%s", error.message);
  cr_assert_eq(search_ask(search, asked), n, "%s, round %lld", name, (long long)round);
  cr_assert_arr_eq(asked, ret_batch, n * sizeof *asked, "%s, round %lld", name, (long long)round);
  key_tuning_add(&story->tuning, asked, n);
  return n;
}

/* Recorded campaigns */

#define RECORDED SOURCE_FOLDER "/tests/data/campaign/"

static json_t *recorded_read(const char *name) {
  cleanup_free char *path = xasprintf(RECORDED "%s.json", name), *text = NULL;
  size_t size;
  json_t *json;
  struct error error;
  cr_assert(file_read(path, 1 << 22, &text, &size, &error), "%s", error.message);
  cr_assert(json_parse(text, size, &json, &error), "%s: %s", path, error.message);
  return json;
}

static struct key key_read(const json_t *json) {
  struct key key;
  struct error error;
  cr_assert(key_parse(json, NULL, 0, &key, &error), "%s", error.message);
  return key;
}

static enum stage stage_of(const json_t *json) {
  size_t stage;
  cr_assert(name_find(stage_names, STAGE_COUNT, json_string_value(json_object_get(json, "stage")),
                      &stage));
  return (enum stage)stage;
}

static int64_t integer_of(const json_t *json, const char *member, int64_t otherwise) {
  const json_t *value = json_object_get(json, member);
  return value ? json_integer_value(value) : otherwise;
}

static double *times_of(const json_t *json, const char *member, size_t *ret_n) {
  const json_t *array = json_object_get(json, member);
  *ret_n = json_array_size(array);
  double *times = xcalloc(*ret_n + 1, sizeof *times);
  for (size_t i = 0; i < *ret_n; i++)
    times[i] = json_number_value(json_array_get(array, i));
  return times;
}

static struct row row_read(const json_t *json) {
  struct row row = {
      .config = (uint64_t)integer_of(json, "config", 0),
      .round = integer_of(json, "round", 0),
      .process = integer_of(json, "process", 0),
      .lease = integer_of(json, "lease", 0),
      .device = integer_of(json, "device", 0),
      .end = json_string_value(json_object_get(json, "end")),
      .detail = json_string_value(json_object_get(json, "detail")),
      .ratio = json_number_value(json_object_get(json, "ratio")),
      .vgprs = integer_of(json, "vgprs", CODE_UNKNOWN),
      .spills = integer_of(json, "spills", CODE_UNKNOWN),
      .lds_bytes = integer_of(json, "lds_bytes", CODE_UNKNOWN),
  };
  row.stage = stage_of(json);
  cr_assert(outcome_parse(json_string_value(json_object_get(json, "outcome")), &row.outcome));
  row.samples_us = times_of(json, "samples_us", &row.n);
  row.baseline_us = times_of(json, "baseline_us", &row.n);
  return row;
}

static struct story recorded_story(const json_t *json) {
  const json_t *search = json_object_get(json, "search");
  struct job_search wanted = {.wanted = json_is_object(search)};
  if (wanted.wanted) {
    cr_assert(search_strategy_parse(json_string_value(json_object_get(search, "strategy")),
                                    &wanted.strategy));
    wanted.trials = integer_of(search, "trials", 0);
  }
  struct story story =
      story_new(json_object_get(json, "space"), key_read(json_object_get(json, "key")), wanted,
                (uint64_t)integer_of(json, "seed", 0));
  cr_assert_eq(story.tuning.baseline, (uint64_t)integer_of(json, "baseline", -1));
  return story;
}

/* Adds the rows of a round of a stage; the number of them. */
static size_t recorded_add(struct story *story, const json_t *recorded, enum stage stage,
                           int64_t round) {
  const json_t *rows = json_object_get(recorded, "measurements"), *json;
  size_t at, n = 0;
  json_array_foreach (rows, at, json) {
    struct row row = row_read(json);
    if (row.stage == stage && row.round == round) {
      row_add(story, &row);
      n++;
    } else {
      free(row.samples_us);
      free(row.baseline_us);
    }
  }
  return n;
}

/* What was recorded of the step: its event, or how the job ended. */
static void expect_recorded(const struct campaign_step *step, const json_t *recorded,
                            const json_t *event, const char *name) {
  const json_t *winner = json_object_get(recorded, "winner");
  if (!event) {
    bool is_done = string_equal(json_string_value(json_object_get(recorded, "state")), "done");
    cr_assert_eq(step->kind, is_done ? CAMPAIGN_DONE : CAMPAIGN_FAILED, "%s", name);
    if (!is_done) {
      cr_assert_str_eq(step->reason.message,
                       json_string_value(json_object_get(recorded, "reason")));
      return;
    }
    cleanup_json json_t *verdict = verdict_to_json(&step->verdict);
    cleanup_free char *left = json_canonical(verdict),
                      *right = json_canonical(json_object_get(winner, "verdict"));
    cr_assert_str_eq(left, right, "%s", name);
    cr_assert_eq(step->verdict.winner, (uint64_t)integer_of(winner, "config", -1));
    return;
  }
  const char *stage = json_string_value(json_object_get(event, "stage"));
  const json_t *configs = json_object_get(event, "configs");
  cr_assert_eq(step->kind, string_equal(stage, "halving") ? CAMPAIGN_HALVING : CAMPAIGN_FINAL,
               "%s: %s", name, stage);
  cr_assert_eq(step->n_processes, integer_of(event, "processes", -1), "%s: %s", name, stage);
  cr_assert_eq(step->n_configs, json_array_size(configs), "%s: %s", name, stage);
  for (size_t i = 0; i < step->n_configs; i++)
    cr_assert_eq(step->configs[i], (uint64_t)json_integer_value(json_array_get(configs, i)),
                 "%s: %s", name, stage);
}

/* The warm starts of both, from the winners of the campaigns before; they are those that were
 * recorded. */
static size_t recorded_warm_starts(struct story *story, const json_t *recorded,
                                   const char *const *before, size_t n_before,
                                   uint64_t ret[WARM_STARTS_MAX]) {
  static const struct digest here = {{1}};
  const json_t *likely = json_object_get(recorded, "likely");
  cleanup_free struct past_winner *past = xcalloc(n_before + 1, sizeof *past);
  cleanup_free struct key_tuning *tunings = xcalloc(n_before + 1, sizeof *tunings);
  uint64_t others[WARM_STARTS_MAX];
  for (size_t i = 0; i < n_before; i++) { /* the server's are newest first */
    cleanup_json json_t *json = recorded_read(before[i]);
    const json_t *winner = json_object_get(json, "winner");
    past[n_before - 1 - i] =
        (struct past_winner){here, json_incref(json_object_get(json, "key")),
                             json_incref(json_object_get(winner, "config_values"))};
    struct key_tuning *tuning = &tunings[i];
    tuning->key = key_read(json_object_get(json, "key"));
    uint64_t config = (uint64_t)integer_of(winner, "config", 0);
    key_tuning_add(tuning, &config, 1);
    key_tuning_find(tuning, config)->is_screened = true;
  }
  struct past_winners winners = {n_before, past};
  size_t n = job_warm_starts(story->space, &story->tuning.key, &here, &winners, ret);
  cr_assert_eq(key_tuning_warm_starts(&story->tuning, tunings, n_before, others), n);
  cr_assert_arr_eq(others, ret, n * sizeof *others);
  cr_assert_eq(n, json_array_size(likely));
  for (size_t i = 0; i < n; i++)
    cr_assert_eq(ret[i], (uint64_t)json_integer_value(json_array_get(likely, i)));
  for (size_t i = 0; i < n_before; i++) {
    json_decref(past[i].key);
    json_decref(past[i].config_values);
    key_tuning_release(&tunings[i]);
  }
  return n;
}

static const json_t *event_of(const json_t *recorded, size_t at) {
  return json_array_get(json_object_get(recorded, "stages"), at);
}

/* The screen of a search, round by round: each round must have measured the configs that were
 * wanted. Returns the events that it had. */
static size_t recorded_search(struct story *story, const json_t *recorded,
                              const uint64_t *warm_starts, size_t n_warm_starts, const char *name) {
  cleanup_search struct search *search = NULL;
  struct space_facts facts = facts_of(story);
  uint64_t starts[SEARCH_FIRST_MAX], batch[SEARCH_BATCH_MAX];
  struct error error;
  size_t n, rounds = 0;
  struct search_options options = key_tuning_search(&story->tuning, story->space, &story->terms,
                                                    warm_starts, n_warm_starts, starts);
  cr_assert(search_new(story->space, &facts, &options, &search, &error), "%s", error.message);
  while ((n = both_ask(story, search, warm_starts, n_warm_starts, (int64_t)rounds, name, batch)) >
         0) {
    size_t first = story->n;
    cr_assert_eq(recorded_add(story, recorded, STAGE_SCREEN, (int64_t)rounds), n, "%s, round %zu",
                 name, rounds);
    for (size_t i = 0; i < n; i++) {
      bool was_measured = false;
      for (size_t k = first; k < story->n; k++)
        was_measured = was_measured || story->rows[k].config == batch[i];
      cr_assert(was_measured, "%s, round %zu: config %llu was not measured", name, rounds,
                (unsigned long long)batch[i]);
    }
    key_tuning_tell(&story->tuning, search, batch, n);
    rounds++;
  }
  key_tuning_all_added(&story->tuning);
  return rounds - 1; /* the first one is the screen's begin, which is no event */
}

static void replay(const char *name, const char *const *before, size_t n_before) {
  cleanup_json json_t *recorded = recorded_read(name);
  struct story story = recorded_story(recorded);
  uint64_t warm_starts[WARM_STARTS_MAX];
  size_t n_warm_starts = recorded_warm_starts(&story, recorded, before, n_before, warm_starts),
         at = 0;
  if (story.job.search.wanted)
    at = recorded_search(&story, recorded, warm_starts, n_warm_starts, name);
  else
    cr_assert_gt(recorded_add(&story, recorded, STAGE_SCREEN, 0), 0);

  enum stage stage = STAGE_SCREEN;
  int64_t round = 0;
  for (bool is_over = false; !is_over; at++) {
    cleanup_campaign_step struct campaign_step step = both_next(&story, stage, round, name);
    const json_t *event = event_of(recorded, at);
    expect_recorded(&step, recorded, event, name);
    is_over = !event;
    if (is_over)
      break;
    stage = stage_of(event);
    round = integer_of(event, "round", -1);
    cr_assert_gt(recorded_add(&story, recorded, stage, round), 0);
  }
  story_release(&story);
}

Test(campaigns, of_a_softmax_are_decided_as_the_server_decided_them) { replay("softmax", NULL, 0); }

Test(campaigns, that_begin_with_the_winner_of_another_key_are_decided_as_the_server_decided_them) {
  replay("softmax_warm", (const char *const[]){"softmax"}, 1);
}

Test(campaigns, that_search_step_by_step_are_decided_as_the_server_decided_them) {
  replay("softmax_search", (const char *const[]){"softmax", "softmax_warm"}, 2);
}

Test(campaigns, that_search_by_evolution_are_decided_as_the_server_decided_them) {
  replay("matmul_search", NULL, 0);
}

Test(campaigns, of_a_layernorm_are_decided_as_the_server_decided_them) {
  replay("layernorm", NULL, 0);
}

Test(campaigns, with_a_halving_are_decided_as_the_server_decided_them) {
  replay("vector_add", NULL, 0);
}

Test(campaigns, of_configs_that_do_the_same_are_decided_as_the_server_decided_them) {
  replay("alike", NULL, 0);
}

Test(campaigns, of_configs_that_fail_are_decided_as_the_server_decided_them) {
  replay("misbehaving", NULL, 0);
}

/* Only the server has winners of other environments and spaces. */
Test(campaigns, of_a_job_begin_with_winners_that_its_space_has_those_of_its_environment_first) {
  static const struct digest here = {{1}}, elsewhere = {{2}};
  static const struct {
    const char *key, *values;
    const struct digest *environment;
  } all[] = {
      {"{\"M\": 64}", "{\"A\": 16}", &here},  /* no value of the space */
      {"{\"M\": 64}", "{\"B\": 2}", &here},   /* of another space */
      {"{\"M\": [64]}", "{\"A\": 4}", &here}, /* no key */
      {"{\"M\": 64}", "{\"A\": 8}", &elsewhere},
      {"{\"M\": 32}", "{\"A\": 4}", &elsewhere}, /* another key */
      {"{\"M\": 4096}", "{\"A\": 2}", &here},
  };
  struct past_winner past[ARRAY_LENGTH(all)];
  struct error error;
  for (size_t i = 0; i < ARRAY_LENGTH(all); i++) {
    past[i].environment_digest = *all[i].environment;
    cr_assert(json_parse(all[i].key, strlen(all[i].key), &past[i].key, &error));
    cr_assert(json_parse(all[i].values, strlen(all[i].values), &past[i].config_values, &error));
  }
  struct past_winners winners = {ARRAY_LENGTH(all), past};
  cleanup_json json_t *json = json_pack("{s:{s:[i,i,i,i]}}", "parameters", "A", 1, 2, 4, 8);
  cleanup_json json_t *key_json = json_pack("{s:i}", "M", 64);
  cleanup_key struct key key = key_read(key_json);
  cleanup_space struct space *space = NULL;
  uint64_t found[WARM_STARTS_MAX];
  cr_assert(space_parse(json, &space, &error));
  cr_assert_eq(job_warm_starts(space, &key, &here, &winners, found), 2);
  cr_expect_eq(found[0], 1);
  cr_expect_eq(found[1], 3);
  for (size_t i = 0; i < ARRAY_LENGTH(all); i++) {
    json_decref(past[i].key);
    json_decref(past[i].config_values);
  }
}

/* Generated campaigns */

#define GENERATED 1000
#define ROUNDS_MAX 16
#define WINNERS_MAX 24

/* How often each event happened, to check that all parts of the rules were tested. */
struct seen {
  size_t halvings, empty_halvings, searches, cut, budgets, added, undecided, done, failed,
      failed_finals, warm;
};

struct generator {
  struct rng rng;
  double noise, effect, p_fail, p_fail_final, p_left, p_close;
  size_t lease_size;
};

static bool chance(struct generator *generator, double p) { return rng_unit(&generator->rng) < p; }

static double spread(struct generator *generator, double width) {
  return exp(width * (rng_unit(&generator->rng) + rng_unit(&generator->rng) - 1));
}

/* The config's true time divided by the baseline's. */
static double truth_of(const struct generator *generator, uint64_t config) {
  struct rng rng = rng_seeded(config * 7919 + (uint64_t)(generator->noise * 1e9));
  double u = rng_unit(&rng);
  return u < generator->p_close ? 0.5 + 0.02 * u : 0.5 + u * u;
}

static void measure(struct story *story, struct generator *generator, uint64_t config,
                    struct row row) {
  bool is_final = row.stage == STAGE_FINAL;
  row.config = config;
  row.device = 1;
  row.device_us = 500 + (int64_t)rng_below(&generator->rng, 1000);
  row.vgprs = chance(generator, 0.5) ? (int64_t)rng_below(&generator->rng, 256) : CODE_UNKNOWN;
  row.spills = row.vgprs == CODE_UNKNOWN ? CODE_UNKNOWN : (int64_t)rng_below(&generator->rng, 3);
  row.lds_bytes =
      row.vgprs == CODE_UNKNOWN ? CODE_UNKNOWN : (int64_t)rng_below(&generator->rng, 65536);
  row.outcome = OUTCOME_CORRECT;
  if (chance(generator, is_final ? generator->p_fail_final : generator->p_fail)) {
    row.outcome = (enum outcome)(1 + rng_below(&generator->rng, OUTCOME_COUNT - 1));
  } else {
    double ratio = truth_of(generator, config) * spread(generator, generator->effect);
    row.n = 6 + rng_below(&generator->rng, ROUNDS_MAX - 6);
    row.samples_us = xcalloc(row.n, sizeof *row.samples_us);
    row.baseline_us = xcalloc(row.n, sizeof *row.baseline_us);
    for (size_t i = 0; i < row.n; i++) {
      row.baseline_us[i] = 100 * spread(generator, generator->noise);
      row.samples_us[i] = ratio * row.baseline_us[i] * spread(generator, generator->noise);
    }
    bool left_early = !is_final && chance(generator, generator->p_left);
    row.end = left_early ? chance(generator, 0.5) ? "far" : "behind" : "rounds";
    row.ratio = verdict_paired_ratio(row.samples_us, row.baseline_us,
                                     row.n); /* as results_parse has it stored */
  }
  /* The sums over the leases of a job. */
  struct budget *budget = &story->job.budget;
  budget->spent_us += row.device_us;
  budget->final_us += is_final ? row.device_us : 0;
  budget->measured++;
  row_add(story, &row);
}

/* A lease opens the kernel, which is spent on both. */
static void lease_open(struct story *story, struct generator *generator, enum stage stage) {
  struct budget *budget = &story->job.budget;
  int64_t opening_us = chance(generator, 0.7) ? (int64_t)rng_below(&generator->rng, 4000) : 0;
  budget->spent_us += opening_us;
  budget->opening_us += opening_us;
  budget->openings += opening_us > 0;
  budget->final_us += stage == STAGE_FINAL ? opening_us : 0;
  key_tuning_opened(&story->tuning, stage, opening_us);
}

/* Measures the configs in one lease after the other; the budget may end a screen before its end. */
static void screen(struct story *story, struct generator *generator, const uint64_t *configs,
                   size_t n, int64_t round, bool is_cut) {
  static int64_t n_leases;
  for (size_t i = 0; i < n; i++) {
    if (i % generator->lease_size == 0) {
      n_leases++;
      lease_open(story, generator, STAGE_SCREEN);
    }
    if (is_cut && i > n / 2)
      return;
    measure(story, generator, configs[i],
            (struct row){.stage = STAGE_SCREEN, .round = round, .lease = n_leases});
  }
}

/* Winners of other keys, through both adapters. */
static size_t winners_make(struct story *story, struct generator *generator,
                           uint64_t ret[WARM_STARTS_MAX]) {
  static const struct digest here = {{1}};
  size_t n = rng_below(&generator->rng, WINNERS_MAX + 1);
  struct past_winner past[WINNERS_MAX];
  struct key_tuning *before = xcalloc(n + 1, sizeof *before);
  uint64_t others[WARM_STARTS_MAX];
  for (size_t i = 0; i < n; i++) {
    json_t *key = json_pack("{s:i, s:s}", "M", 1 << rng_below(&generator->rng, 12), "t",
                            chance(generator, 0.5) ? "f16" : "f32");
    uint64_t config = rng_below(&generator->rng, story->space->raw_count);
    before[i].key = key_read(key);
    key_tuning_add(&before[i], &config, 1);
    key_tuning_find(&before[i], config)->is_screened = true;
    past[n - 1 - i] = (struct past_winner){here, key, space_config_to_json(story->space, config)};
  }
  struct past_winners winners = {n, past};
  size_t n_warm = job_warm_starts(story->space, &story->tuning.key, &here, &winners, ret);
  cr_assert_eq(key_tuning_warm_starts(&story->tuning, before, n, others), n_warm);
  cr_assert_arr_eq(others, ret, n_warm * sizeof *others);
  for (size_t i = 0; i < n; i++) {
    json_decref(past[i].key);
    json_decref(past[i].config_values);
    key_tuning_release(&before[i]);
  }
  free(before);
  return n_warm;
}

static void search_make(struct story *story, struct generator *generator, const char *name) {
  cleanup_search struct search *search = NULL;
  struct space_facts facts = facts_of(story);
  uint64_t warm_starts[WARM_STARTS_MAX], starts[SEARCH_FIRST_MAX], batch[SEARCH_BATCH_MAX];
  size_t n_warm_starts = winners_make(story, generator, warm_starts), n;
  struct error error;
  struct search_options options = key_tuning_search(&story->tuning, story->space, &story->terms,
                                                    warm_starts, n_warm_starts, starts);
  cr_assert(search_new(story->space, &facts, &options, &search, &error), "%s", error.message);
  for (int64_t round = 0;
       (n = both_ask(story, search, warm_starts, n_warm_starts, round, name, batch)) > 0; round++) {
    screen(story, generator, batch, n, round, false);
    key_tuning_tell(&story->tuning, search, batch, n);
  }
  key_tuning_all_added(&story->tuning);
}

static void screen_make(struct story *story, struct generator *generator, struct seen *seen) {
  bool is_cut = chance(generator, 0.1);
  uint64_t warm_starts[WARM_STARTS_MAX];
  cleanup_free uint64_t *configs = xcalloc(story->tuning.n, sizeof *configs);
  for (size_t i = 0; i < story->tuning.n; i++)
    configs[i] = story->tuning.configs[i].config;
  seen->warm += winners_make(story, generator, warm_starts) > 0;
  screen(story, generator, configs, story->tuning.n, 0, is_cut);
  if (!is_cut)
    return;
  story->job.is_spent = true;    /* jobs_ready: a lease was cancelled */
  story->tuning.is_spent = true; /* piece_run: a lease was spent */
  seen->cut++;
}

static struct story generated_story(struct generator *generator, struct seen *seen) {
  bool has_default = chance(generator, 0.7), is_search = chance(generator, 0.25);
  size_t n_a = is_search ? 40 : 2 + rng_below(&generator->rng, 12),
         n_b = is_search ? 16 : 1 + rng_below(&generator->rng, 24);
  json_t *a = json_array(), *b = json_array();
  for (size_t i = 0; i < n_a; i++)
    json_array_append_new(a, json_integer((json_int_t)i));
  for (size_t i = 0; i < n_b; i++)
    json_array_append_new(b, json_integer((json_int_t)i));
  cleanup_json json_t *space = json_pack("{s:{s:o, s:o}}", "parameters", "A", a, "B", b);
  if (has_default)
    json_object_set_new(space, "default",
                        json_pack("{s:i, s:i}", "A", (int)rng_below(&generator->rng, n_a), "B",
                                  (int)rng_below(&generator->rng, n_b)));
  cleanup_json json_t *key =
      json_pack("{s:i, s:s}", "M", 1 << rng_below(&generator->rng, 12), "t", "f16");
  struct job_search search = {
      .wanted = is_search,
      .strategy = (enum search_strategy)rng_below(&generator->rng, SEARCH_STRATEGY_COUNT),
      .trials = 10 + (int64_t)rng_below(&generator->rng, 120)};
  struct story story = story_new(space, key_read(key), search, rng_next(&generator->rng) >> 11);
  if (chance(generator, 0.3)) {
    story.terms.budget_us = story.job.budget.total_us =
        20000 + (int64_t)rng_below(&generator->rng, 400000);
    seen->budgets++;
  }
  seen->searches += is_search;
  return story;
}

static void processes_measure(struct story *story, struct generator *generator,
                              const struct campaign_step *step, enum stage stage, int64_t round,
                              struct seen *seen) {
  bool is_empty = stage == STAGE_HALVING && chance(generator, 0.1);
  bool is_gappy = stage == STAGE_FINAL && chance(generator, 0.1);
  seen->empty_halvings += is_empty;
  for (int64_t process = step->first_process; process < step->first_process + step->n_processes;
       process++) {
    lease_open(story, generator, stage);
    if (stage == STAGE_FINAL)
      story->job.budget.final_processes++;
    for (size_t i = 0; i < step->n_configs && !is_empty; i++)
      if (!is_gappy || chance(generator, 0.4)) /* some were not measured in each process */
        measure(
            story, generator, step->configs[i],
            (struct row){
                .stage = stage, .round = round, .process = process, .lease = 1000000 + process});
  }
}

static void generate(uint64_t seed, struct seen *seen) {
  static const double p_fail[] = {0, 0.05, 0.5, 1};
  static const size_t lease_sizes[] = {4, 8, 64, 4096};
  char name[40];
  snprintf(name, sizeof name, "campaign %llu", (unsigned long long)seed);
  struct generator generator = {.rng = rng_seeded(seed)};
  generator.noise = 0.001 + 0.02 * rng_unit(&generator.rng);
  generator.effect = chance(&generator, 0.5) ? 0.001 : 0.05;
  generator.p_fail = p_fail[rng_below(&generator.rng, chance(&generator, 0.1) ? 4 : 2)];
  generator.p_fail_final = chance(&generator, 0.05) ? 0.7 : 0.005;
  generator.p_left = rng_unit(&generator.rng) * 0.8;
  generator.p_close = 0.2 + 0.8 * rng_unit(&generator.rng);
  generator.lease_size = lease_sizes[rng_below(&generator.rng, 4)];
  struct story story = generated_story(&generator, seen);
  if (story.job.search.wanted)
    search_make(&story, &generator, name);
  else
    screen_make(&story, &generator, seen);

  enum stage stage = STAGE_SCREEN;
  int64_t round = 0;
  for (;;) {
    cleanup_campaign_step struct campaign_step step = both_next(&story, stage, round, name);
    seen->done += step.kind == CAMPAIGN_DONE;
    seen->failed += step.kind == CAMPAIGN_FAILED;
    seen->failed_finals += step.kind == CAMPAIGN_FAILED && stage == STAGE_FINAL;
    if (step.kind == CAMPAIGN_DONE || step.kind == CAMPAIGN_FAILED)
      break;
    enum stage next = step.kind == CAMPAIGN_HALVING ? STAGE_HALVING : STAGE_FINAL;
    seen->halvings += next == STAGE_HALVING;
    seen->added += stage == STAGE_FINAL;
    seen->undecided += stage == STAGE_FINAL && !step.has_verdict;
    round = stage == next ? round + 1 : 0; /* race_begin */
    stage = next;
    processes_measure(&story, &generator, &step, stage, round, seen);
  }
  story_release(&story);
}

Test(campaigns, a_thousand_that_were_generated_are_decided_alike) {
  struct seen seen = {0};
  for (uint64_t seed = 1; seed <= GENERATED; seed++)
    generate(seed, &seen);
  cr_log_info("halvings %zu (%zu empty), searches %zu, cut %zu, budgets %zu, added %zu (%zu "
              "undecided), done %zu, failed %zu "
              "(%zu in the final), with warm starts %zu",
              seen.halvings, seen.empty_halvings, seen.searches, seen.cut, seen.budgets, seen.added,
              seen.undecided, seen.done, seen.failed, seen.failed_finals, seen.warm);
  cr_expect_gt(seen.halvings, 50);
  cr_expect_gt(seen.empty_halvings, 5);
  cr_expect_gt(seen.searches, 100);
  cr_expect_gt(seen.cut, 20);
  cr_expect_gt(seen.budgets, 100);
  cr_expect_gt(seen.added, 100);
  cr_expect_gt(seen.undecided, 10);
  cr_expect_gt(seen.failed_finals, 5);
  cr_expect_gt(seen.failed, seen.failed_finals);
  cr_expect_gt(seen.warm, 100);
  cr_expect_eq(seen.done + seen.failed, GENERATED);
}
