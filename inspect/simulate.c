/* wavetune simulate: replays search strategies over stored measurements, and compares them with the
 * expectation of random draws. Nothing is measured. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>

#include "common/base/error.h"
#include "common/base/numbers.h"
#include "common/program/cli.h"
#include "common/program/terminal.h"
#include "common/search/search.h"
#include "common/verdict/verdict.h"
#include "inspect/findings.h"
#include "inspect/inspect.h"

#define COUNTS_MAX 64
#define LINE_MAX_BYTES ((size_t)16 << 20)

struct measured_config {
  uint64_t config; /* its ordinal where it was measured */
  json_t *values;
  bool has_failed; /* in one of its measurements */
  size_t n;
  double *ratios; /* of each correct measurement */
  double ratio;   /* their median; INFINITY when it has failed */
};

/* The measurements of one (kernel, key). The space is the list of the configs that were measured,
 * in the order of their ordinals. */
struct landscape {
  char *kernel;
  json_t *key;
  size_t n;
  struct measured_config *configs;
  json_t *places; /* of configs: {"17": 0} while rows are added */
  int64_t baseline;
  size_t n_failed;
  size_t best;         /* place of the config with the least ratio */
  double worst;        /* greatest ratio of one that did not fail */
  struct space *space; /* its ordinals are places */
};

struct landscapes {
  size_t n;
  struct landscape *all;
  json_t *places; /* by kernel and key */
};

static void landscapes_release(struct landscapes *landscapes) {
  for (size_t i = 0; i < landscapes->n; i++) {
    struct landscape *landscape = &landscapes->all[i];
    for (size_t j = 0; j < landscape->n; j++) {
      json_decref(landscape->configs[j].values);
      free(landscape->configs[j].ratios);
    }
    free(landscape->kernel);
    free(landscape->configs);
    json_decref(landscape->key);
    json_decref(landscape->places);
    space_free(landscape->space);
  }

  free(landscapes->all);
  json_decref(landscapes->places);
}

/* The place of `name` in places; a new name gets the next one. */
static size_t place_of(json_t **places, const char *name) {
  if (!*places)
    *places = json_object();
  const json_t *known = json_object_get(*places, name);
  if (known)
    return (size_t)json_integer_value(known);
  size_t place = json_object_size(*places);
  json_put(*places, name, json_integer((json_int_t)place));
  return place;
}

/* The landscape of a (kernel, key), which is made when it is new. */
static struct landscape *landscapes_get(struct landscapes *landscapes, const char *kernel,
                                        const json_t *key) {
  cleanup_free char *key_text = json_canonical(key);
  cleanup_free char *name = xasprintf("%s %s", kernel, key_text);
  size_t place = place_of(&landscapes->places, name);
  if (place == landscapes->n) {
    *APPEND(landscapes->all, landscapes->n) = (struct landscape){
        .kernel = xstrdup(kernel), .key = json_incref((json_t *)key), .baseline = -1};
  }
  return &landscapes->all[place];
}

static bool times_read(const json_t *row, const char *name, size_t *ret_n, double **ret_times,
                       struct error *error) {
  json_t *array;
  if (!json_get_array(row, "", name, JSON_REQUIRED, &array, error))
    return false;

  cleanup_free double *times = xcalloc(json_array_size(array), sizeof *times);
  json_elements (array, i, element) {
    times[i] = json_number_value(element);
    if (!(times[i] >= VERDICT_US_MIN && times[i] <= VERDICT_US_MAX))
      return error_set(error, "element %zu of \"%s\" is not a time in microseconds", i, name);
  }

  *ret_n = json_array_size(array);
  *ret_times = TAKE(times);
  return true;
}

/* Adds one measurement: a row of --samples or of a job, both of which have "outcome", "samples_us"
 * and "baseline_us". */
static bool landscape_add(struct landscape *landscape, uint64_t config, const json_t *values,
                          const json_t *row, struct error *error) {
  enum outcome outcome;
  const char *outcome_text;
  if (!json_get_string(row, "", "outcome", JSON_REQUIRED, &outcome_text, error))
    return false;
  if (!outcome_parse(outcome_text, &outcome))
    return error_set(error, "\"%s\" is not an outcome", NAME_CUT(outcome_text));

  double ratio = INFINITY;
  if (outcome == OUTCOME_CORRECT) {
    cleanup_free double *samples = NULL, *baselines = NULL;
    size_t n, n_baselines;
    if (!times_read(row, "samples_us", &n, &samples, error) ||
        !times_read(row, "baseline_us", &n_baselines, &baselines, error))
      return false;
    if (n != n_baselines)
      return error_set(error, "%zu samples_us and %zu baseline_us do not form pairs", n,
                       n_baselines);
    if (n == 0)
      return true; /* the config was not measured */
    ratio = verdict_paired_ratio(samples, baselines, n);
  }

  cleanup_free char *name = xasprintf("%" PRIu64, config);
  size_t place = place_of(&landscape->places, name);
  if (place == landscape->n) {
    *APPEND(landscape->configs, landscape->n) =
        (struct measured_config){.config = config, .values = json_incref((json_t *)values)};
  }

  struct measured_config *measured = &landscape->configs[place];
  if (!json_equal(measured->values, values))
    return error_set(error,
                     "config %s has other values than before: these are measurements of several "
                     "spaces; keep those of one",
                     name);

  if (outcome == OUTCOME_CORRECT)
    *APPEND(measured->ratios, measured->n) = ratio;

  measured->has_failed |= outcome != OUTCOME_CORRECT;
  return true;
}

static bool line_add(struct landscapes *landscapes, const char *line, size_t length,
                     struct error *error) {
  cleanup_json json_t *row = NULL;
  const char *kernel;
  json_t *key, *values;
  int64_t config, baseline = -1;
  if (!json_parse(line, length, &row, error))
    return false;
  if (!json_is_object(row))
    return error_set(error, "this is not a JSON object");
  if (!json_get_string(row, "", "kernel", JSON_REQUIRED, &kernel, error) ||
      !json_get_object(row, "", "key", JSON_REQUIRED, &key, error) ||
      !json_get_integer(row, "", "config", JSON_REQUIRED, 0, INT64_MAX, &config, error) ||
      !json_get_object(row, "", "config_values", JSON_REQUIRED, &values, error) ||
      !json_get_integer(row, "", "baseline", JSON_OPTIONAL, 0, INT64_MAX, &baseline, error))
    return false;

  struct landscape *landscape = landscapes_get(landscapes, kernel, key);
  landscape->baseline = baseline;
  return landscape_add(landscape, (uint64_t)config, values, row, error);
}

static bool landscapes_read(const char *path, struct landscapes *landscapes, struct error *error) {
  cleanup_file FILE *file = fopen(path, "re");
  if (!file)
    return error_set(error, "%s cannot be read: %s", path, strerror(errno));

  cleanup_free char *line = NULL;
  size_t size = 0;
  ssize_t length;
  for (size_t number = 1; (length = getline(&line, &size, file)) >= 0; number++) {
    bool is_blank = strspn(line, " \t\r\n") == (size_t)length;
    if (is_blank)
      continue;
    bool is_added = (size_t)length <= LINE_MAX_BYTES
                        ? line_add(landscapes, line, (size_t)length, error)
                        : error_set(error, "the line is longer than %zu MiB", LINE_MAX_BYTES >> 20);
    if (!is_added) {
      error_prefix(error, "%s:%zu: ", path, number);
      size_t used = strlen(error->message);
      snprintf(
          error->message + used, sizeof error->message - used,
          "; each line must be a measurement as `wavetune-agent tune --samples FILE` writes it");
      return false;
    }
  }

  if (ferror(file))
    return error_set(error, "%s cannot be read: %s", path, strerror(errno));
  return landscapes->n > 0 ||
         error_set(error, "%s is empty; `wavetune-agent tune --samples FILE` writes measurements",
                   path);
}

/* Sorts the configs and makes their space, after all rows were added. */
static bool landscape_finish(struct landscape *landscape, struct error *error) {
  /* The ordinal is the first member of a config. */
  qsort(landscape->configs, landscape->n, sizeof *landscape->configs, compare_ordinals);
  cleanup_json json_t *json = json_pack("{s:[]}", "configs");
  double least = INFINITY;

  for (size_t i = 0; i < landscape->n; i++) {
    struct measured_config *measured = &landscape->configs[i];
    measured->ratio = measured->has_failed ? INFINITY : median_of(measured->ratios, measured->n);
    landscape->n_failed += measured->has_failed;
    if (!measured->has_failed)
      landscape->worst = fmax(landscape->worst, measured->ratio);
    if (measured->ratio < least) {
      least = measured->ratio;
      landscape->best = i;
    }
    json_array_append(json_object_get(json, "configs"), measured->values);
    if ((int64_t)measured->config == landscape->baseline)
      json_object_set(json, "default", measured->values);
  }

  if (least == INFINITY)
    return error_set(error, "no config was measured correctly, so that there is nothing to find");
  return space_parse(json, &landscape->space, error);
}

/* How far one strategy is from the best after each number of trials in simulation.counts. */
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

/* A config's ratio. One that failed counts as the slowest that did not, so that a mean exists. */
static double ratio_of(const struct landscape *landscape, size_t place) {
  double ratio = landscape->configs[place].ratio;
  return ratio == INFINITY ? landscape->worst : ratio;
}

static double regret_of(const struct landscape *landscape, double ratio) {
  return ratio / landscape->configs[landscape->best].ratio - 1;
}

/* The expectation of random search in closed form: the least of t of n ratios drawn without
 * replacement. With ratios in rising order, none of the first i is drawn with probability C(n - i,
 * t) / C(n, t). */
static double random_expected(const struct landscape *landscape, uint64_t t) {
  cleanup_free double *ratios = xcalloc(landscape->n, sizeof *ratios);
  double expected = 0, none_before = 1;
  for (size_t i = 0; i < landscape->n; i++)
    ratios[i] = ratio_of(landscape, i);
  qsort(ratios, landscape->n, sizeof *ratios, compare_doubles);

  for (size_t i = 0; i < landscape->n; i++) {
    double left = (double)(landscape->n - i), none = none_before * fmax(left - (double)t, 0) / left;
    expected += ratios[i] * (none_before - none);
    none_before = none;
  }

  return regret_of(landscape, expected);
}

/* Replays one strategy with each seed. */
static bool strategy_replay(const struct simulation *simulation, const struct landscape *landscape,
                            enum search_strategy strategy, struct replayed *ret,
                            struct error *error) {
  /* As in a job. Random draws have none, so that they meet their expectation. */
  bool begins_with_default = landscape->space->has_default && strategy != SEARCH_RANDOM;
  *ret = (struct replayed){0};
  for (int64_t i = 0; i < simulation->repeat; i++) {
    cleanup_search struct search *search = NULL;
    struct search_options options = {.strategy = strategy,
                                     .seed = simulation->seed + (uint64_t)i,
                                     .trials = simulation->counts[simulation->n_counts - 1],
                                     .n_likely = begins_with_default ? 1 : 0,
                                     .likely = &landscape->space->default_ordinal};
    if (!search_new(landscape->space, NULL, &options, &search, error))
      return false;

    uint64_t batch[SEARCH_BATCH_MAX], trial = 0;
    size_t at = 0;
    double least = landscape->worst;
    for (size_t n; (n = search_ask(search, batch)) > 0;) {
      for (size_t j = 0; j < n; j++) {
        search_tell(search, batch[j], landscape->configs[batch[j]].ratio);
        least = fmin(least, ratio_of(landscape, batch[j]));
        if (++trial < simulation->counts[at])
          continue;
        double regret = regret_of(landscape, least);
        ret->mean[at] += regret / (double)simulation->repeat;
        ret->worst[at] = fmax(ret->worst[at], regret);
        at++;
      }
    }
    ALWAYS(at == simulation->n_counts);
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

static json_t *landscape_to_json(const struct simulation *simulation,
                                 const struct landscape *landscape,
                                 const struct replayed *replayed) {
  const struct measured_config *best = &landscape->configs[landscape->best];
  json_t *counts = json_array(), *expected = json_array(), *strategies = json_object();
  for (size_t i = 0; i < simulation->n_counts; i++) {
    json_push(counts, json_integer((json_int_t)simulation->counts[i]));
    json_push(expected, json_real(random_expected(landscape, simulation->counts[i])));
  }

  for (size_t i = 0; i < simulation->n_strategies; i++)
    json_put(strategies, search_strategy_name(simulation->strategies[i]),
             json_pack("{s:o, s:o}", "mean", json_numbers(replayed[i].mean, simulation->n_counts),
                       "worst", json_numbers(replayed[i].worst, simulation->n_counts)));

  return json_pack("{s:s, s:O, s:I, s:I, s:{s:I, s:O, s:f}, s:o, s:o, s:o}", "kernel",
                   landscape->kernel, "key", landscape->key, "configs", (json_int_t)landscape->n,
                   "failed", (json_int_t)landscape->n_failed, "best", "config",
                   (json_int_t)best->config, "config_values", best->values, "ratio", best->ratio,
                   "trials", counts, "random_expected", expected, "strategies", strategies);
}

static bool simulate(struct simulation *simulation, struct landscapes *landscapes, json_t *ret_keys,
                     struct error *error) {
  for (size_t i = 0; i < landscapes->n; i++) {
    struct landscape *landscape = &landscapes->all[i];
    cleanup_free char *key = json_canonical(landscape->key);
    if (!landscape_finish(landscape, error))
      return error_prefix(error, "%s %s: ", landscape->kernel, key);
  }

  for (size_t i = 0; i < landscapes->n; i++) {
    const struct landscape *landscape = &landscapes->all[i];
    struct replayed replayed[SEARCH_STRATEGY_COUNT];
    uint64_t trials = landscape->n;
    if (simulation->trials && simulation->trials < trials)
      trials = simulation->trials;
    simulation->n_counts = 0;
    for (uint64_t count = 1; count < trials; count *= 2)
      simulation->counts[simulation->n_counts++] = count;
    simulation->counts[simulation->n_counts++] = trials;

    for (size_t j = 0; j < simulation->n_strategies; j++)
      if (!strategy_replay(simulation, landscape, simulation->strategies[j], &replayed[j], error))
        return false;
    if (ret_keys) {
      json_push(ret_keys, landscape_to_json(simulation, landscape, replayed));
    } else {
      if (i > 0)
        putchar('\n');
      landscape_print(simulation, landscape, replayed);
    }
  }

  return true;
}

static bool job_rows_add(struct landscapes *landscapes, const json_t *job, const json_t *rows,
                         struct error *error) {
  cleanup_space struct space *space = NULL;
  json_t *key = NULL;
  if (!json_get_object(job, "", "key", JSON_REQUIRED, &key, error) ||
      !space_parse(json_object_get(job, "space"), &space, error))
    return false;

  struct landscape *landscape = landscapes_get(landscapes, cli_member(job, "name"), key);
  landscape->baseline = cli_integer(job, "baseline");
  json_elements (rows, index, row) {
    int64_t config;
    /* The job does not count these either. */
    if (json_flag(row, "late") || json_flag(row, "quarantined"))
      continue;
    if (!json_get_integer(row, "", "config", JSON_REQUIRED, 0, (int64_t)space->raw_count - 1,
                          &config, error))
      return false;
    cleanup_json json_t *values = space_config_to_json(space, (uint64_t)config);
    if (!landscape_add(landscape, (uint64_t)config, values, row, error))
      return false;
  }

  return true;
}

/* Reads the measurements of a job from the server. */
static void job_read(struct http_client *client, const char *id, struct landscapes *landscapes) {
  cleanup_free char *escaped = http_escape(id);
  cleanup_free char *path = xasprintf("/v1/jobs/%s", escaped);
  cleanup_free char *rows_path = xasprintf("/v1/jobs/%s/measurements", escaped);
  cleanup_json json_t *job = cli_get(client, path), *rows = cli_list(client, rows_path);
  struct error error;
  if (!job_rows_add(landscapes, job, rows, &error)) {
    cli_fail_in(EXIT_REFUSED, &error,
                "the server's job %s is not one this program understands: ", id);
  }

  if (!landscapes->all[0].n)
    cli_refuse(EXIT_FAILED,
               "no config of job %s was measured yet; `wavetune show %s` prints its state", id, id);
}

static void landscapes_load(const struct options *options, struct landscapes *landscapes) {
  char *const *arguments;
  struct error error;
  const char *job = option_text(options, "job");
  size_t n = options_arguments(options, &arguments);
  if (n + (job != NULL) != 1)
    cli_refuse(
        EXIT_USAGE,
        "name one file that `wavetune-agent tune --samples FILE` wrote, or --job and a job's id");

  if (job) {
    cleanup_http_client struct http_client *client = cli_connect(options);
    job_read(client, job, landscapes);
  } else if (!landscapes_read(arguments[0], landscapes, &error)) {
    cli_fail(EXIT_USAGE, &error);
  }
}

static int command_simulate(struct options *options) {
  struct simulation simulation = {.seed = (uint64_t)option_integer(options, "seed"),
                                  .repeat = option_integer(options, "repeat"),
                                  .trials = (uint64_t)option_integer(options, "trials")};
  cleanup_by(landscapes_release) struct landscapes landscapes = {0};
  cleanup_json json_t *keys = option_flag(options, "json") ? json_array() : NULL;
  struct error error;
  const char *strategy = option_text(options, "strategy");
  if (strategy && !search_strategy_parse(strategy, &simulation.strategies[0]))
    cli_refuse(EXIT_USAGE, "--strategy must be random, descent or evolution, not \"%.64s\"",
               strategy);

  simulation.n_strategies = strategy ? 1 : SEARCH_STRATEGY_COUNT;
  for (size_t i = 0; !strategy && i < SEARCH_STRATEGY_COUNT; i++)
    simulation.strategies[i] = (enum search_strategy)i;

  landscapes_load(options, &landscapes);
  if (!simulate(&simulation, &landscapes, keys, &error))
    cli_fail(EXIT_FAILED, &error);
  if (keys) {
    cleanup_json json_t *answer =
        json_pack("{s:I, s:I, s:O}", "repeat", (json_int_t)simulation.repeat, "seed",
                  (json_int_t)simulation.seed, "keys", keys);
    cli_print_json(answer);
  }

  return EXIT_OK;
}

static const struct option_spec simulate_options[] = {
    CLI_TEXT("job", "ID", "replay the measurements of a job on the server, instead of a file"),
    CLI_TEXT("strategy", "NAME", "random, descent or evolution; default: all of them"),
    CLI_INTEGER("trials", "N", "0", 0, SEARCH_TRIALS_MAX,
                "configs that a search may measure; 0: as many as there are"),
    CLI_INTEGER("repeat", "N", "50", 1, 100000,
                "searches of each strategy, each with its own seed"),
    CLI_INTEGER("seed", "N", "1", 0, INT64_MAX, "seed of the first search"),
    SERVER_OPTIONS,
};

CLI_COMMAND(
    simulate, "simulate", "FILE | --job ID", simulate_options,
    "replay search strategies over stored measurements",
    .description =
        "Replays random search, coordinate descent and evolution over configs that were measured "
        "before, and prints how much slower their best config is than the best of all, after 1, 2, "
        "4, … trials. `wavetune-agent tune --samples FILE` writes FILE. \"random expects\" is the "
        "mean of random draws, computed and not sampled; a strategy must be below it. Descent and "
        "evolution begin with the default, as in a job. A config that failed counts as the slowest "
        "that did not; one that was not measured is left out.");
