/* How often the verdict is wrong, over jobs whose truth is known (bench/simulated_jobs.h): A/A
 * jobs, the coverage of its intervals, gains that are found, bounds of the regret, and what the
 * choice of the finalists loses. Each share has its 95 % interval (Wilson). docs/measurement.md
 * contains its output.
 *
 *   bench_verdict [JOBS]     for each row; default 2,000, which take a minute of one core
 *
 * Memory: ends with the process. Threads: one for each processor; each takes rows in turn. */
#include <pthread.h>
#include <stdatomic.h>

#include "bench/simulated_jobs.h"
#include "common/campaign/campaign.h"

struct row {
  const char *what;
  struct simulated job;
  struct simulated_counts counts;
};

#define ROUNDS .rounds_min = 12, .rounds_max = 36
#define THREE .processes_min = 3, .processes_max = 3
#define FIVE .processes_min = 5, .processes_max = 5
#define AS_RUN .processes_min = 3, .processes_max = 6
#define NAMES(n, size, round_noise)                                                                \
  .n_configs = (n), .effect = (size), .noise = (round_noise), ROUNDS
#define RIVALS(n) .n_configs = (n), .effect = 0.005, .noise = 0.02, ROUNDS
/* A baseline, a config that takes 0.9 of its time, and seven that take `gain` more than that
 * config. */
#define AHEAD(gain, size)                                                                          \
  .n_configs = 9, .ratios = {1, 0.9, [2 ... 8] = 0.9 * (1 + (gain))}, .effect = (size),            \
  .noise = 0.02, ROUNDS
/* A baseline and seven configs that take 0.9 to 0.93 of its time. */
#define NEIGHBOURS                                                                                 \
  .n_configs = 8, .ratios = {1, 0.9, 0.905, 0.91, 0.915, 0.92, 0.925, 0.93}, .noise = 0.02, ROUNDS

static struct row rows[] = {
    {"A/A 5 names, effect 0 %, noise 2 %", {NAMES(5, 0, 0.02), THREE}, {0}},
    {"A/A 5 names, effect 0.5 %, noise 0.5 %", {NAMES(5, 0.005, 0.005), THREE}, {0}},
    {"A/A 5 names, effect 2 %, noise 2 %", {NAMES(5, 0.02, 0.02), THREE}, {0}},
    {"A/A 5 names, effect 5 %, noise 5 %", {NAMES(5, 0.05, 0.05), THREE}, {0}},
    {"A/A 16 names, effect 0.5 %, noise 0.5 %", {NAMES(16, 0.005, 0.005), THREE}, {0}},
    {"A/A 16 names, effect 5 %, noise 5 %", {NAMES(16, 0.05, 0.05), THREE}, {0}},
    {"A/A 5 names, effect 0.5 %, as run", {NAMES(5, 0.005, 0.005), AS_RUN}, {0}},
    {"A/A 5 names, effect 5 %, as run", {NAMES(5, 0.05, 0.05), AS_RUN}, {0}},
    {"A/A 5 names, bands of 1 %, as run",
     {NAMES(5, 0.005, 0.005), .effects = EFFECTS_BANDS, AS_RUN},
     {0}},
    {"A/A 5 names, unlike 0.5 %, as run",
     {NAMES(5, 0.005, 0.005), .effects = EFFECTS_UNLIKE, AS_RUN},
     {0}},
    {"A/A 5 names, unlike 5 %, as run",
     {NAMES(5, 0.05, 0.05), .effects = EFFECTS_UNLIKE, AS_RUN},
     {0}},
    {"A/A 5 names, loud baseline, as run",
     {NAMES(5, 0.005, 0.005), .effects = EFFECTS_LOUD, AS_RUN},
     {0}},
    {"pair, effect 0.5 %, 3 processes", {NAMES(2, 0.005, 0.02), THREE}, {0}},
    {"pair, effect 5 %, 3 processes", {NAMES(2, 0.05, 0.02), THREE}, {0}},
    {"pair, effect 5 %, 5 processes", {NAMES(2, 0.05, 0.02), FIVE}, {0}},
    {"gain 5 % of 1 rival", {RIVALS(2), .ratios = {1, 0.95}, THREE}, {0}},
    {"gain 5 % of 1 rival, as run", {RIVALS(2), .ratios = {1, 0.95}, AS_RUN}, {0}},
    {"gain 5 % of 7 rivals", {RIVALS(8), .ratios = {1, 0.95}, THREE}, {0}},
    {"gain 5 % of 7 rivals, as run", {RIVALS(8), .ratios = {1, 0.95}, AS_RUN}, {0}},
    {"gain 5 % of 7 rivals, effect 0.2 %",
     {.n_configs = 8, .effect = 0.002, .noise = 0.02, ROUNDS, .ratios = {1, 0.95}, THREE},
     {0}},
    {"gain 3 % of 7 rivals, as run", {RIVALS(8), .ratios = {1, 0.97}, AS_RUN}, {0}},
    {"gain 2 % of 7 rivals, as run", {RIVALS(8), .ratios = {1, 0.98}, AS_RUN}, {0}},
    {"gain 5 % of 7 rivals, effect 5 %, as run",
     {.n_configs = 8, .effect = 0.05, .noise = 0.02, ROUNDS, .ratios = {1, 0.95}, AS_RUN},
     {0}},
    {"2.1 % ahead of 14 rivals, effect 2 %, as run",
     {.n_configs = 16,
      .effect = 0.02,
      .noise = 0.01,
      ROUNDS,
      .ratios = {1, 0.9, [2 ... 15] = 0.9 * 1.021},
      AS_RUN},
     {0}},
    {"1 % ahead of 7, effect 0.5 %, as run", {AHEAD(0.01, 0.005), AS_RUN}, {0}},
    {"1 % ahead of 7, effect 2 %, as run", {AHEAD(0.01, 0.02), AS_RUN}, {0}},
    {"2.1 % ahead of 1, effect 1 %, as run",
     {.n_configs = 3,
      .ratios = {1, 0.9, 0.9 * 1.021},
      .effect = 0.01,
      .noise = 0.02,
      ROUNDS,
      AS_RUN},
     {0}},
    {"2.1 % ahead of 7, effect 0.5 %, as run", {AHEAD(0.021, 0.005), AS_RUN}, {0}},
    {"2.1 % ahead of 7, effect 1 %, as run", {AHEAD(0.021, 0.01), AS_RUN}, {0}},
    {"3 % ahead of 7, effect 1 %, as run", {AHEAD(0.03, 0.01), AS_RUN}, {0}},
    {"neighbours, effect 0.5 %", {NEIGHBOURS, .effect = 0.005, THREE}, {0}},
    {"neighbours, effect 2 %", {NEIGHBOURS, .effect = 0.02, THREE}, {0}},
    {"neighbours, effect 5 %", {NEIGHBOURS, .effect = 0.05, THREE}, {0}},
    {"neighbours, unlike 2 %", {NEIGHBOURS, .effect = 0.02, .effects = EFFECTS_UNLIKE, THREE}, {0}},
};

static size_t n_jobs = 2000;
static atomic_size_t next_row;

static void *rows_run(void *unused) {
  (void)unused;
  for (size_t at; (at = atomic_fetch_add(&next_row, 1)) < ARRAY_LENGTH(rows);)
    for (size_t i = 0; i < n_jobs; i++)
      simulated_run(&rows[at].job, (uint64_t)at << 32 | i, &rows[at].counts);
  return NULL;
}

static void share_print(size_t hits, size_t n) {
  double lower, upper;
  if (!n) {
    printf("  %-24s", "     -");
    return;
  }
  wilson_interval(hits, n, &lower, &upper);
  printf("  %6.2f (%5.2f to %6.2f)", 100 * (double)hits / (double)n, 100 * lower, 100 * upper);
}

static void rows_print(void) {
  printf("%zu jobs a row; shares in percent with their 95 %% "
         "intervals\n\n%-46s%-26s%-26s%-26s%-26s%-26s%-26s%-26s%-26s%s\n",
         n_jobs, "job", "  FASTER", "  replaces (2 %)", "  AMBIGUOUS", "  against baseline covers",
         "  pairs covered", "  2 % slower in the set", "  sets with such a one",
         "  regret above its bound", "  processes");
  for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
    const struct simulated_counts *counts = &rows[i].counts;
    printf("%-46s", rows[i].what);
    share_print(counts->outcomes[VERDICT_FASTER], counts->n);
    share_print(counts->replaced, counts->n);
    share_print(counts->outcomes[VERDICT_AMBIGUOUS], counts->n);
    share_print(counts->covered_baseline, counts->n);
    share_print(counts->covered_pairs, counts->pairs);
    share_print(counts->slower_equivalents, counts->slower);
    share_print(counts->sets_with_slower, counts->n);
    share_print(counts->below_regret, counts->n);
    printf("  %.2f\n", (double)counts->processes / (double)counts->n);
  }
}

#define SCREENED 108
#define SCREEN_ROUNDS 16

/* The true distance of one of SCREENED configs to the best. */
enum landscape { LANDSCAPE_PEAK, LANDSCAPE_USUAL, LANDSCAPE_FLAT };
static double distance_drawn(enum landscape landscape, struct rng *rng) {
  double u = rng_unit(rng);
  return landscape == LANDSCAPE_PEAK    ? 0.03 + 0.7 * u
         : landscape == LANDSCAPE_USUAL ? log1p(u * u)
                                        : 0.1 * u;
}

/* How much slower the best chosen finalist is than the best config, after one screen in one
 * process. */
static double screen_loss(enum landscape landscape, double effect, double noise, struct rng *rng,
                          size_t *ret_chosen) {
  double truth[SCREENED], loss = INFINITY;
  struct campaign_candidate candidates[SCREENED];
  uint64_t chosen[FINALISTS_MAX];
  for (size_t c = 0; c < SCREENED; c++) {
    truth[c] = c == 0 ? 0 : distance_drawn(landscape, rng);
    double shift = effect * simulated_normal(rng);
    double error = 1.2533 * noise / sqrt(SCREEN_ROUNDS) * simulated_normal(rng);
    candidates[c] =
        (struct campaign_candidate){.config = c, .ratio = exp(truth[c] + shift + error)};
  }
  *ret_chosen = finalists_choose(candidates, SCREENED, NULL, 0, FINALISTS_MAX, chosen);
  for (size_t i = 0; i < *ret_chosen; i++)
    loss = fmin(loss, truth[chosen[i]]);
  return loss;
}

static void screens_print(void) {
  static const char *const names[] = {"the best 3 % ahead", "usual", "all within 10 %"};
  static const double effects[] = {0.005, 0.01, 0.02};
  struct rng rng = rng_seeded(1);
  printf("\nScreens of %d configs, %d rounds of 2 %% noise; what lies within %.2f of the least "
         "ratio goes "
         "on, at most %d\n\n%-42s%-26s%-26s%s\n",
         SCREENED, SCREEN_ROUNDS, FINALISTS_SPAN, FINALISTS_MAX, "screen", "  keeps the best",
         "  or one within 0.5 %", "  goes on");
  for (size_t landscape = 0; landscape < ARRAY_LENGTH(names); landscape++)
    for (size_t i = 0; i < ARRAY_LENGTH(effects); i++) {
      size_t kept = 0, good = 0, chosen, sum = 0;
      for (size_t job = 0; job < n_jobs; job++) {
        double loss = screen_loss((enum landscape)landscape, effects[i], 0.02, &rng, &chosen);
        kept += loss == 0;
        good += loss <= 0.005;
        sum += chosen;
      }
      printf("%-20s effect %-15g", names[landscape], effects[i]);
      share_print(kept, n_jobs);
      share_print(good, n_jobs);
      printf("  %.1f\n", (double)sum / (double)n_jobs);
    }
}

int main(int argc, char **argv) {
  long n_threads = sysconf(_SC_NPROCESSORS_ONLN);
  n_jobs = argc > 1 ? strtoul(argv[1], NULL, 10) : n_jobs;
  if (argc > 2 || n_jobs == 0) {
    fprintf(stderr, "usage: bench_verdict [JOBS]\n");
    return 2;
  }

  pthread_t threads[64];
  size_t n = n_threads < 1 ? 1 : n_threads > 64 ? 64 : (size_t)n_threads;
  for (size_t i = 0; i < n; i++)
    ALWAYS(pthread_create(&threads[i], NULL, rows_run, NULL) == 0);
  for (size_t i = 0; i < n; i++)
    ALWAYS(pthread_join(threads[i], NULL) == 0);
  rows_print();
  screens_print();
  return 0;
}
