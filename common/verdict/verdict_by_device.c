/* The ratios of a final on each device alone. Pure functions. */
#include "common/verdict/verdict.h"

#include <math.h>

#include "common/verdict/verdict_interval.h"

/* of Student's t where the rounds alone are known: there are about as many */
#define ROUNDS_DF 60

/* A row before its interval is known. */
struct part {
  struct device_ratio row;
  struct distance distance;
  size_t n_rounds; /* the least of its processes */
};

/* The turn of `to` in the process and on the device of a sample; NULL: there is none. */
static const struct turn *turn_beside(const struct turn *turns, size_t n, uint64_t to,
                                      const struct verdict_sample *sample) {
  for (size_t i = 0; i < n; i++) {
    const struct verdict_sample *other = turns[i].sample;
    if (other->config == to && other->process == sample->process && other->device == sample->device)
      return &turns[i];
  }
  return NULL;
}

/* All rows, by rising config, then in the order in which its processes ran on the devices. Returns
 * how many. */
static size_t parts_find(const struct turn *turns, size_t n, uint64_t to, struct part *ret) {
  cleanup_free struct verdict_sample *shared = xcalloc(n, sizeof *shared);
  size_t n_parts = 0;

  for (size_t first = 0, end; first < n; first = end) {
    for (end = first + 1; end < n && turns[end].sample->config == turns[first].sample->config;)
      end++;

    for (size_t i = first; i < end; i++) {
      int64_t device = turns[i].sample->device;
      struct part part = {.n_rounds = SIZE_MAX};
      bool is_first_of_device = true;
      for (size_t j = first; j < i; j++)
        is_first_of_device &= turns[j].sample->device != device;
      for (size_t j = i; j < end && is_first_of_device; j++) {
        const struct turn *turn = &turns[j], *other = turn_beside(turns, n, to, turn->sample);
        if (turn->sample->device != device || !other)
          continue;
        size_t n_rounds = turn->sample->n < other->sample->n ? turn->sample->n : other->sample->n;
        part.n_rounds = n_rounds < part.n_rounds ? n_rounds : part.n_rounds;
        shared[part.distance.n] = *turn->sample;
        turns_compare(turn, other, &part.distance);
      }
      if (part.distance.n == 0)
        continue;

      part.row =
          (struct device_ratio){.device = device,
                                .config = turns[first].sample->config,
                                .n_processes = part.distance.n,
                                .ratio = exp(part.distance.mean),
                                .median_us = samples_median_us(shared, part.distance.n, false)};
      ret[n_parts++] = part;
    }
  }

  return n_parts;
}

static bool is_pooled(const struct part *part, uint64_t to) {
  return part->row.config != to && part->distance.n > 1 &&
         fabs(part->distance.mean) <= log(SPREAD_NEAR);
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

static int rows_compare(const void *a, const void *b) {
  const struct device_ratio *left = a, *right = b;
  if (left->device != right->device)
    return left->device < right->device ? -1 : 1;
  return (left->config > right->config) - (left->config < right->config);
}

bool verdict_by_device(const struct verdict_sample *samples, size_t n, uint64_t to,
                       struct device_ratios *ret, struct error *error) {
  cleanup_free struct verdict_sample *sorted = NULL;
  if (!samples_sort(samples, n, &sorted, &n, error))
    return false;

  cleanup_free struct turn *turns = xcalloc(n, sizeof *turns);
  cleanup_free struct part *parts = xcalloc(n, sizeof *parts); /* no more rows than turns */
  for (size_t i = 0; i < n; i++)
    turns[i] = turn_make(&sorted[i]);

  struct device_ratios ratios = {.n = parts_find(turns, n, to, parts)};
  ratios.rows = xcalloc(ratios.n, sizeof *ratios.rows);

  /* Pool verdict_interval.h's s0^2. The rows of one device share the noise of `to` in its
   * processes, those of two devices nothing. */
  double squares = 0, own_df = 0, df = 0;
  for (size_t i = 0; i < ratios.n; i++) {
    size_t n_of_device = 0;
    if (!is_pooled(&parts[i], to))
      continue;
    for (size_t j = 0; j < ratios.n; j++)
      n_of_device += parts[j].row.device == parts[i].row.device && is_pooled(&parts[j], to);
    double df_of_row = (double)(parts[i].distance.n - 1);
    squares += parts[i].distance.squares;
    own_df += df_of_row;
    df += df_of_row / (1 + ((double)n_of_device - 1) / 4); /* as in spread_pool */
  }

  ratios.knows_processes = df >= 1;

  for (size_t i = 0; i < ratios.n; i++) {
    struct part *part = &parts[i];
    /* distance_interval adds a row's own degrees of freedom. */
    double others_df = floor(df - (is_pooled(part, to) ? (double)(part->distance.n - 1) : 0));
    struct spread spread = {0};
    if (others_df >= 1)
      spread = (struct spread){squares / own_df,
                               others_df < SPREAD_DF_MAX ? (size_t)others_df : SPREAD_DF_MAX};
    interval_set(part, &spread);
    if (part->row.config == to)
      part->row.lower = part->row.upper = 1;
    ratios.rows[i] = part->row;
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
  for (const struct device_ratio *row = rows; row < rows + n && ratios->knows_processes; row++)
    if (row->upper < 1 / VERDICT_EQUIVALENCE && (!found || row->ratio < found->ratio))
      found = row;
  return found;
}
