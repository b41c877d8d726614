/* wavetune simulate: replays search strategies over stored measurements, beside what random draws
 * would find. Nothing is measured. Memory: each function frees what it makes. Threads: one. */
#include "inspect/simulate.h"

#include <math.h>

#include "common/program/cli.h"
#include "common/program/table.h"
#include "common/space/key.h"

#define COUNTS_MAX 64

/* How far one strategy is from the best after so many trials. */
struct replayed {
  double mean[COUNTS_MAX], worst[COUNTS_MAX]; /* regret over the seeds */
};

struct simulation {
  size_t n_strategies;
  enum search_strategy strategies[SEARCH_STRATEGY_COUNT];
  uint64_t trials, seed; /* trials 0: as many as there are configs */
  int64_t repeat;
  size_t n_counts; /* 1, 2, 4, … and the number of trials */
  uint64_t counts[COUNTS_MAX];
};

/* What a config counts for: one that failed is as slow as the slowest that did not, so that a mean
 * exists. */
static double ratio_of(const struct landscape *landscape, size_t place) {
  double ratio = landscape->configs[place].ratio;
  return ratio == INFINITY ? landscape->worst : ratio;
}

static double regret_of(const struct landscape *landscape, double ratio) {
  return ratio / landscape->configs[landscape->best].ratio - 1;
}

static int doubles_compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* The expectation of random search in closed form: the least of t of n ratios drawn without
 * replacement. With ratios in rising order, none of the first i is drawn with probability C(n - i,
 * t) / C(n, t). */
static double random_expected(const struct landscape *landscape, uint64_t t) {
  cleanup_free double *ratios = xcalloc(landscape->n, sizeof *ratios);
  double expected = 0, none_before = 1;
  for (size_t i = 0; i < landscape->n; i++)
    ratios[i] = ratio_of(landscape, i);
  qsort(ratios, landscape->n, sizeof *ratios, doubles_compare);
  for (size_t i = 0; i < landscape->n; i++) {
    double left = (double)(landscape->n - i), none = none_before * fmax(left - (double)t, 0) / left;
    expected += ratios[i] * (none_before - none);
    none_before = none;
  }
  return regret_of(landscape, expected);
}

static void counts_fill(struct simulation *simulation, uint64_t trials) {
  simulation->n_counts = 0;
  for (uint64_t count = 1; count < trials; count *= 2)
    simulation->counts[simulation->n_counts++] = count;
  simulation->counts[simulation->n_counts++] = trials;
}

/* One search to its end: regrets[i] after counts[i] trials. */
static bool search_replay(const struct simulation *simulation, const struct landscape *landscape,
                          enum search_strategy strategy, uint64_t seed, double *regrets,
                          struct error *error) {
  cleanup_search struct search *search = NULL;
  struct search_options options = {
      .strategy = strategy, .seed = seed, .trials = simulation->counts[simulation->n_counts - 1]};
  if (!search_new(landscape->space, NULL, &options, &search, error))
    return false;
  uint64_t batch[SEARCH_BATCH_MAX], trial = 0;
  size_t at = 0;
  double least = landscape->worst;
  for (size_t n; (n = search_ask(search, batch)) > 0;) {
    for (size_t i = 0; i < n; i++) {
      search_tell(search, batch[i], landscape->configs[batch[i]].ratio);
      least = fmin(least, ratio_of(landscape, batch[i]));
      if (++trial == simulation->counts[at])
        regrets[at++] = regret_of(landscape, least);
    }
  }
  ALWAYS(at == simulation->n_counts);
  return true;
}

static bool strategy_replay(const struct simulation *simulation, const struct landscape *landscape,
                            enum search_strategy strategy, struct replayed *ret,
                            struct error *error) {
  *ret = (struct replayed){0};
  for (int64_t i = 0; i < simulation->repeat; i++) {
    double regrets[COUNTS_MAX];
    if (!search_replay(simulation, landscape, strategy, simulation->seed + (uint64_t)i, regrets,
                       error))
      return false;
    for (size_t j = 0; j < simulation->n_counts; j++) {
      ret->mean[j] += regrets[j] / (double)simulation->repeat;
      ret->worst[j] = fmax(ret->worst[j], regrets[j]);
    }
  }
  return true;
}

static void landscape_print(const struct simulation *simulation, const struct landscape *landscape,
                            const struct replayed *replayed) {
  cleanup_free char *key = json_dumps(landscape->key, JSON_COMPACT);
  cleanup_free char *best = space_config_format(landscape->space, landscape->best);
  printf("%s %s: %zu configs, %zu of them failed\nexhaustive best: %s at %.4f of the baseline's "
         "time\n\n",
         landscape->kernel, key, landscape->n, landscape->n_failed, best,
         landscape->configs[landscape->best].ratio);
  struct table_column columns[2 + 2 * SEARCH_STRATEGY_COUNT] = {{"trials", true},
                                                                {"random expects", true}};
  size_t n_columns = 2;
  for (size_t i = 0; i < simulation->n_strategies; i++) {
    columns[n_columns++] =
        (struct table_column){search_strategy_name(simulation->strategies[i]), true};
    columns[n_columns++] = (struct table_column){"worst", true};
  }
  cleanup_table struct table *table = table_new(columns, n_columns);
  for (size_t i = 0; i < simulation->n_counts; i++) {
    table_cell(table, "%llu", (unsigned long long)simulation->counts[i]);
    table_cell(table, "%.2f %%", 100 * random_expected(landscape, simulation->counts[i]));
    for (size_t j = 0; j < simulation->n_strategies; j++) {
      table_cell(table, "%.2f %%", 100 * replayed[j].mean[i]);
      table_cell(table, "%.2f %%", 100 * replayed[j].worst[i]);
    }
  }
  table_print(table, stdout);
}

static json_t *reals_of(const double *numbers, size_t n) {
  json_t *array = json_array();
  for (size_t i = 0; i < n; i++)
    json_array_append_new(array, json_real(numbers[i]));
  return array;
}

static json_t *landscape_to_json(const struct simulation *simulation,
                                 const struct landscape *landscape,
                                 const struct replayed *replayed) {
  const struct measured_config *best = &landscape->configs[landscape->best];
  json_t *counts = json_array(), *expected = json_array(), *strategies = json_object();
  for (size_t i = 0; i < simulation->n_counts; i++) {
    json_array_append_new(counts, json_integer((json_int_t)simulation->counts[i]));
    json_array_append_new(expected, json_real(random_expected(landscape, simulation->counts[i])));
  }
  for (size_t i = 0; i < simulation->n_strategies; i++)
    json_object_set_new(strategies, search_strategy_name(simulation->strategies[i]),
                        json_pack("{s:o, s:o}", "mean",
                                  reals_of(replayed[i].mean, simulation->n_counts), "worst",
                                  reals_of(replayed[i].worst, simulation->n_counts)));
  return json_pack("{s:s, s:O, s:I, s:I, s:{s:I, s:O, s:f}, s:o, s:o, s:o}", "kernel",
                   landscape->kernel, "key", landscape->key, "configs", (json_int_t)landscape->n,
                   "failed", (json_int_t)landscape->n_failed, "best", "config",
                   (json_int_t)best->config, "config_values", best->values, "ratio", best->ratio,
                   "trials", counts, "random_expected", expected, "strategies", strategies);
}

static bool simulate(struct simulation *simulation, const struct landscapes *landscapes,
                     json_t *ret_keys, struct error *error) {
  for (size_t i = 0; i < landscapes->n; i++) {
    const struct landscape *landscape = &landscapes->all[i];
    struct replayed replayed[SEARCH_STRATEGY_COUNT];
    bool takes_all = simulation->trials == 0 || simulation->trials > landscape->n;
    counts_fill(simulation, takes_all ? landscape->n : simulation->trials);
    for (size_t j = 0; j < simulation->n_strategies; j++)
      if (!strategy_replay(simulation, landscape, simulation->strategies[j], &replayed[j], error))
        return false;
    if (ret_keys) {
      json_array_append_new(ret_keys, landscape_to_json(simulation, landscape, replayed));
    } else {
      if (i > 0)
        putchar('\n');
      landscape_print(simulation, landscape, replayed);
    }
  }
  return true;
}

static int job_refused(const char *id, struct error *error) {
  error_prefix(error, "the server's job %s is not one this program understands: ", id);
  return cli_fail(EXIT_REFUSED, error);
}

/* The measurements that a server has of a job; late ones moved nothing and count for nothing. */
static int job_read(struct http_client *client, const char *id, struct landscapes *landscapes) {
  cleanup_free char *escaped = http_escape(id);
  cleanup_free char *path = xasprintf("/v1/jobs/%s", escaped);
  cleanup_free char *rows_path = xasprintf("/v1/jobs/%s/measurements", escaped);
  cleanup_json json_t *job = NULL, *rows = NULL;
  cleanup_space struct space *space = NULL;
  struct error error;
  int code = cli_call(client, "GET", path, NULL, &job);
  if (code == EXIT_OK)
    code = cli_list(client, rows_path, &rows);
  if (code != EXIT_OK)
    return code;
  json_t *key = NULL;
  bool is_good = json_get_object(job, "", "key", JSON_REQUIRED, &key, &error) &&
                 space_parse(json_object_get(job, "space"), &space, &error);
  if (!is_good)
    return job_refused(id, &error);
  struct landscape *landscape = landscapes_get(landscapes, cli_member(job, "name"), key);
  landscape->baseline = json_integer_value(json_object_get(job, "baseline"));
  size_t index;
  json_t *row;
  json_array_foreach (rows, index, row) {
    int64_t config;
    if (json_is_true(json_object_get(row, "late")) ||
        json_is_true(json_object_get(row, "quarantined")))
      continue;
    if (!json_get_integer(row, "", "config", JSON_REQUIRED, 0, (int64_t)space->raw_count - 1,
                          &config, &error))
      return job_refused(id, &error);
    cleanup_json json_t *values = space_config_to_json(space, (uint64_t)config);
    if (!landscape_add(landscape, (uint64_t)config, values, row, &error))
      return job_refused(id, &error);
  }
  if (landscape->n > 0)
    return EXIT_OK;
  error_set(&error, "nothing of job %s was measured yet; `wavetune show %s` says how far it is", id,
            id);
  return cli_fail(EXIT_FAILED, &error);
}

/* --strategy: one, or all of them. */
static bool strategies_read(const struct options *options, struct simulation *simulation,
                            struct error *error) {
  const char *name = option_text(options, "strategy");
  simulation->n_strategies = 1;
  if (name)
    return search_strategy_parse(name, &simulation->strategies[0]) ||
           error_set(error, "--strategy must be random, descent or evolution, not \"%.64s\"", name);
  simulation->n_strategies = SEARCH_STRATEGY_COUNT;
  for (size_t i = 0; i < SEARCH_STRATEGY_COUNT; i++)
    simulation->strategies[i] = (enum search_strategy)i;
  return true;
}

static int landscapes_load(const struct options *options, struct landscapes *landscapes) {
  char *const *arguments;
  struct error error;
  const char *job = option_text(options, "job");
  size_t n = options_arguments(options, &arguments);
  if (n + (job != NULL) != 1) {
    error_set(
        &error,
        "name one file that `wavetune-agent tune --samples FILE` wrote, or --job and a job's id");
    return cli_fail(EXIT_USAGE, &error);
  }
  if (!job)
    return landscapes_read(arguments[0], landscapes, &error) ? EXIT_OK
                                                             : cli_fail(EXIT_USAGE, &error);
  cleanup_http_client struct http_client *client = cli_connect(options);
  return client ? job_read(client, job, landscapes) : EXIT_USAGE;
}

static int command_simulate(struct options *options) {
  struct simulation simulation = {.seed = (uint64_t)option_integer(options, "seed"),
                                  .repeat = option_integer(options, "repeat"),
                                  .trials = (uint64_t)option_integer(options, "trials")};
  cleanup_landscapes struct landscapes landscapes = {0};
  cleanup_json json_t *keys = option_flag(options, "json") ? json_array() : NULL;
  struct error error;
  if (!strategies_read(options, &simulation, &error))
    return cli_fail(EXIT_USAGE, &error);
  int code = landscapes_load(options, &landscapes);
  if (code != EXIT_OK)
    return code;
  if (!landscapes_finish(&landscapes, &error) || !simulate(&simulation, &landscapes, keys, &error))
    return cli_fail(EXIT_FAILED, &error);
  if (keys) {
    cleanup_json json_t *answer =
        json_pack("{s:I, s:I, s:O}", "repeat", (json_int_t)simulation.repeat, "seed",
                  (json_int_t)simulation.seed, "keys", keys);
    cli_print_json(answer);
  }
  return EXIT_OK;
}

static const struct option_spec simulate_options[] = {
    {.name = "job",
     .type = OPTION_TEXT,
     .argument = "ID",
     .flag_only = true,
     .help = "replay what the server has of a job, instead of a file"},
    {.name = "strategy",
     .type = OPTION_TEXT,
     .argument = "NAME",
     .flag_only = true,
     .help = "random, descent or evolution; default all of them"},
    {.name = "trials",
     .type = OPTION_INTEGER,
     .argument = "N",
     .default_text = "0",
     .min = 0,
     .max = SEARCH_TRIALS_MAX,
     .flag_only = true,
     .help = "configs that a search may measure; 0: as many as there are"},
    {.name = "repeat",
     .type = OPTION_INTEGER,
     .argument = "N",
     .default_text = "50",
     .min = 1,
     .max = 100000,
     .flag_only = true,
     .help = "searches of each strategy, each with a seed of its own"},
    {.name = "seed",
     .type = OPTION_INTEGER,
     .argument = "N",
     .default_text = "1",
     .min = 0,
     .max = INT64_MAX,
     .flag_only = true,
     .help = "of the first search"},
    SERVER_OPTIONS,
};

const struct command_spec spec_simulate = {
    .name = "simulate",
    .arguments = "FILE | --job ID",
    .summary = "replay search strategies over stored measurements",
    .description = "Replays how random search, coordinate descent and evolution would have gone "
                   "over configs that were measured "
                   "already: how much slower than the best of all the best that they found is, "
                   "after 1, 2, 4, … trials. FILE is "
                   "what "
                   "`wavetune-agent tune --samples FILE` wrote. \"random expects\" is what drawing "
                   "configs at random comes to on "
                   "the average, computed and not sampled; a strategy must be below it. A config "
                   "that failed counts as the "
                   "slowest "
                   "that did not; one that was not measured is not there.",
    .options = simulate_options,
    .n_options = ARRAY_LENGTH(simulate_options),
    .run = command_simulate,
};
