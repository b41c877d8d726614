/* The finalists of each device alone. Pure functions; any thread. */
#include "common/verdict/verdict_by_device.h"

#include <math.h>

#include "common/verdict/verdict_turn.h"

/* of Student's t where the rounds alone are known: there are about as many */
#define ROUNDS_DF 60

/* The turns of one config, by rising process; borrowed. */
struct config_turns {
  const struct turn *all;
  size_t n;
};

static const struct turn *turn_beside(const struct config_turns *turns,
                                      const struct verdict_sample *sample) {
  for (size_t i = 0; i < turns->n; i++)
    if (turns->all[i].sample->process == sample->process &&
        turns->all[i].sample->device == sample->device)
      return &turns->all[i];
  return NULL;
}

/* A row that is still without its interval. */
struct part {
  struct device_ratio row;
  struct distance distance;
  size_t n_rounds; /* the least of its processes */
};

/* False where the device measured the config in no process with `to`. */
static bool part_of(const struct config_turns *turns, const struct config_turns *to, int64_t device,
                    struct part *ret) {
  cleanup_free const struct verdict_sample **shared = xcalloc(turns->n, sizeof *shared);
  struct part part = {.n_rounds = SIZE_MAX};
  for (size_t i = 0; i < turns->n; i++) {
    const struct turn *turn = &turns->all[i], *other = turn_beside(to, turn->sample);
    if (turn->sample->device != device || !other)
      continue;
    size_t n_rounds = turn->sample->n < other->sample->n ? turn->sample->n : other->sample->n;
    part.n_rounds = n_rounds < part.n_rounds ? n_rounds : part.n_rounds;
    shared[part.distance.n] = turn->sample;
    turns_compare(turn, other, &part.distance);
  }
  if (part.distance.n == 0)
    return false;
  part.row = (struct device_ratio){.device = device,
                                   .config = turns->all[0].sample->config,
                                   .n_processes = part.distance.n,
                                   .ratio = exp(part.distance.mean),
                                   .median_us = samples_median_us(shared, part.distance.n, false)};
  *ret = part;
  return true;
}

/* What processes of one device do to distances to `to`: verdict_interval.h's s0^2, and the degrees
 * of freedom behind it. */
struct pool {
  double squares, own_df; /* sums over the pooled rows */
  double df;              /* of these rows, as far as they are independent of one another */
};

static bool is_pooled(const struct part *part, uint64_t to) {
  return part->row.config != to && part->distance.n > 1 &&
         fabs(part->distance.mean) <= log(SPREAD_NEAR);
}

/* The rows of one device share the noise of `to` in its processes, those of two devices nothing. */
static struct pool pool_make(const struct part *parts, size_t n, uint64_t to) {
  struct pool pool = {0};
  for (size_t i = 0; i < n; i++) {
    size_t of_device = 0;
    if (!is_pooled(&parts[i], to))
      continue;
    for (size_t j = 0; j < n; j++)
      of_device += parts[j].row.device == parts[i].row.device && is_pooled(&parts[j], to);
    double own_df = (double)(parts[i].distance.n - 1);
    pool.squares += parts[i].distance.squares;
    pool.own_df += own_df;
    pool.df += own_df / (1 + ((double)of_device - 1) / 4); /* as in spread_pool */
  }
  return pool;
}

/* The pool for one row, whose own degrees of freedom distance_interval adds. */
static struct spread spread_for(const struct pool *pool, const struct part *part, uint64_t to) {
  double df = floor(pool->df - (is_pooled(part, to) ? (double)(part->distance.n - 1) : 0));
  if (df < 1)
    return (struct spread){0};
  return (struct spread){pool->squares / pool->own_df,
                         df < SPREAD_DF_MAX ? (size_t)df : SPREAD_DF_MAX};
}

static void interval_set(struct part *part, const struct spread *spread) {
  const struct distance *distance = &part->distance;
  struct interval interval;
  if (distance_df(distance, spread) > 0) {
    interval = distance_interval(distance, spread, VERDICT_ERROR);
  } else { /* one process, and nothing is known of what others would shift */
    double half = student_quantile(ROUNDS_DF, VERDICT_ERROR / 2) *
                  sqrt(distance->rounds + distance->resolution);
    interval = (struct interval){distance->mean - half, distance->mean + half};
  }
  part->row.lower = exp(interval.lower);
  part->row.upper = part->n_rounds < DEVICE_ROUNDS_MIN ? INFINITY : exp(interval.upper);
}

/* Where the turns of the config of turn `first` end. */
static struct config_turns config_turns_at(const struct turn *turns, size_t n, size_t first) {
  size_t end = first + 1;
  while (end < n && turns[end].sample->config == turns[first].sample->config)
    end++;
  return (struct config_turns){&turns[first], end - first};
}

static struct config_turns config_turns_find(const struct turn *turns, size_t n, uint64_t config) {
  for (size_t i = 0; i < n; i++)
    if (turns[i].sample->config == config)
      return config_turns_at(turns, n, i);
  return (struct config_turns){0};
}

static bool is_first_of_its_device(const struct config_turns *turns, size_t at) {
  for (size_t i = 0; i < at; i++)
    if (turns->all[i].sample->device == turns->all[at].sample->device)
      return false;
  return true;
}

static int rows_compare(const void *a, const void *b) {
  const struct device_ratio *left = a, *right = b;
  if (left->device != right->device)
    return left->device < right->device ? -1 : 1;
  return (left->config > right->config) - (left->config < right->config);
}

/* All rows, in the order of the configs; returns how many. */
static size_t parts_find(const struct turn *turns, size_t n, uint64_t to, struct part *ret) {
  struct config_turns reference = config_turns_find(turns, n, to), config;
  size_t n_parts = 0;
  for (size_t first = 0; first < n; first += config.n) {
    config = config_turns_at(turns, n, first);
    for (size_t i = 0; i < config.n; i++)
      if (is_first_of_its_device(&config, i) &&
          part_of(&config, &reference, config.all[i].sample->device, &ret[n_parts]))
        n_parts++;
  }
  return n_parts;
}

bool verdict_by_device(const struct verdict_sample *samples, size_t n, uint64_t to,
                       struct device_ratios *ret, struct error *error) {
  cleanup_free struct verdict_sample *sorted = NULL;
  if (!samples_sort(samples, n, &sorted, &n, error))
    return false;
  cleanup_free struct turn *turns = xcalloc(n, sizeof *turns);
  for (size_t i = 0; i < n; i++)
    turns[i] = turn_make(&sorted[i]);
  cleanup_free struct part *parts = xcalloc(n, sizeof *parts); /* no more rows than turns */
  struct device_ratios ratios = {.n = parts_find(turns, n, to, parts)};
  struct pool pool = pool_make(parts, ratios.n, to);
  ratios.knows_processes = pool.df >= 1;
  ratios.rows = xcalloc(ratios.n, sizeof *ratios.rows);
  for (size_t i = 0; i < ratios.n; i++) {
    struct spread spread = spread_for(&pool, &parts[i], to);
    interval_set(&parts[i], &spread);
    if (parts[i].row.config == to)
      parts[i].row.lower = parts[i].row.upper = 1;
    ratios.rows[i] = parts[i].row;
  }
  qsort(ratios.rows, ratios.n, sizeof *ratios.rows, rows_compare);
  for (size_t i = 0; i < n; i++)
    turn_release(&turns[i]);
  *ret = ratios;
  return true;
}

void device_ratios_release(struct device_ratios *ratios) {
  free(ratios->rows);
  *ratios = (struct device_ratios){0};
}

const struct device_ratio *device_preference(const struct device_ratios *ratios,
                                             const struct device_ratio *rows, size_t n) {
  const struct device_ratio *found = NULL;
  if (!ratios->knows_processes)
    return NULL;
  for (const struct device_ratio *row = rows; row < rows + n; row++)
    if (row->upper < 1 / VERDICT_EQUIVALENCE && (!found || row->ratio < found->ratio))
      found = row;
  return found;
}
