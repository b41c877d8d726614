/* The finalists of each device alone. Pure functions; any thread. */
#include "common/verdict/verdict_by_device.h"

#include <math.h>

#include "common/verdict/verdict_turn.h"

#define NORMAL_Z 1.96 /* normal values lie within it but for 5 % */

/* The turns of one config, by rising process; borrowed. */
struct config_turns {
  const struct turn *all;
  size_t n;
};

static const struct turn *turn_beside(const struct config_turns *turns, const struct verdict_sample *sample) {
  for (size_t i = 0; i < turns->n; i++)
    if (turns->all[i].sample->process == sample->process && turns->all[i].sample->device == sample->device)
      return &turns->all[i];
  return NULL;
}

static double median_us(const struct verdict_sample *const *samples, size_t n) {
  size_t count = 0, at = 0;
  for (size_t i = 0; i < n; i++)
    count += samples[i]->n;
  cleanup_free double *times = xcalloc(count, sizeof *times);
  for (size_t i = 0; i < n; at += samples[i++]->n)
    memcpy(times + at, samples[i]->samples_us, samples[i]->n * sizeof *times);
  return median_of(times, count);
}

/* False where the device measured the config in no process with `to`. */
static bool row_of(const struct config_turns *turns, const struct config_turns *to, int64_t device,
                   struct device_ratio *ret) {
  cleanup_free const struct verdict_sample **shared = xcalloc(turns->n, sizeof *shared);
  struct distance distance = {0};
  for (size_t i = 0; i < turns->n; i++) {
    const struct turn *turn = &turns->all[i], *other = turn_beside(to, turn->sample);
    if (turn->sample->device != device || !other)
      continue;
    shared[distance.n] = turn->sample;
    turns_compare(turn, other, &distance);
  }
  if (distance.n == 0)
    return false;
  double n = (double)distance.n, half = NORMAL_Z * sqrt(distance.rounds / (n * n) + distance.resolution / n);
  bool is_itself = turns->all == to->all;
  *ret = (struct device_ratio){.device = device,
                               .config = turns->all[0].sample->config,
                               .n_processes = distance.n,
                               .ratio = exp(distance.mean),
                               .lower = is_itself ? 1 : exp(distance.mean - half),
                               .upper = is_itself ? 1 : exp(distance.mean + half),
                               .median_us = median_us(shared, distance.n)};
  return true;
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

bool verdict_by_device(const struct verdict_sample *samples, size_t n, uint64_t to, struct device_ratio **ret_rows,
                       size_t *ret_n, struct error *error) {
  cleanup_free struct verdict_sample *sorted = NULL;
  if (!samples_sort(samples, n, &sorted, &n, error))
    return false;
  cleanup_free struct turn *turns = xcalloc(n, sizeof *turns);
  for (size_t i = 0; i < n; i++)
    turns[i] = turn_make(&sorted[i]);
  struct config_turns reference = config_turns_find(turns, n, to), config;
  struct device_ratio *rows = xcalloc(n, sizeof *rows); /* no more rows than turns */
  size_t n_rows = 0;
  for (size_t first = 0; first < n; first += config.n) {
    config = config_turns_at(turns, n, first);
    for (size_t i = 0; i < config.n; i++)
      if (is_first_of_its_device(&config, i) &&
          row_of(&config, &reference, config.all[i].sample->device, &rows[n_rows]))
        n_rows++;
  }
  for (size_t i = 0; i < n; i++)
    turn_release(&turns[i]);
  qsort(rows, n_rows, sizeof *rows, rows_compare);
  *ret_rows = rows;
  *ret_n = n_rows;
  return true;
}

bool device_disagrees(const struct device_ratio *row) { return row->upper < 1 / VERDICT_EQUIVALENCE; }
