/* What the tests of executing leases share: a lease of a kernel made from C text, executed, and
 * what it yielded. The program is its own worker.
 *
 * Each test makes one trial, runs it and frees it. */
#ifndef WAVETUNE_TESTS_LEASE_TRIAL_H
#define WAVETUNE_TESTS_LEASE_TRIAL_H

#include <math.h>

#include "agent/lease/lease_execute.h"
#include "agent/worker/supervise.h"
#include "agent_fixture.h"
#include "common/base/log.h"

/* What the worker's process runs; a test may name something else. */
#ifndef TRIAL_WORKER
#define TRIAL_WORKER worker_main
#endif

/* The supervisor starts /proc/self/exe with "worker". */
__attribute__((constructor)) static void be_a_worker(int argc, char **argv) {
  if (argc == 2 && string_equal(argv[1], "worker"))
    exit(TRIAL_WORKER());
}

#define SCREEN_ROUNDS 4
#define HALVING_ROUNDS 5
#define FINAL_ROUNDS 7
#define MEASURED_MAX 128

struct measured {
  uint64_t config;
  enum outcome outcome;
  char detail[400];
  size_t n;
  bool has_timer, has_conditions;
  char end[16];
  int64_t vgprs;
  char object[256];
};

/* A lease and what it yielded. */
struct trial {
  struct custody custody; /* of its workers */
  struct fixture fixture;
  struct executor executor;
  struct lease lease;
  size_t stop_after; /* measurements; 0: never */
  size_t refuse_after;
  bool stop_at_work;   /* as soon as a config is running */
  size_t stop_at_poll; /* at this number of polls; 0: never */
  size_t n_polls;
  bool (*is_ours)(void *context, uint64_t config);
  int leases;              /* how often it is executed */
  const char *const *jobs; /* the job of each; NULL: always the same */
  size_t n_started;        /* workers that are started first */
  size_t n;
  struct measured measured[MEASURED_MAX];
  uint64_t seen_at_work; /* a bit to each config */
  enum lease_end end;
  struct error error;
};

static inline bool trial_measured(void *context, const struct lease *lease,
                                  const struct measurement *measurement,
                                  const struct lease_object *object) {
  struct trial *trial = context;
  (void)lease;
  cr_assert_lt(trial->n, MEASURED_MAX);
  struct measured *measured = &trial->measured[trial->n++];
  *measured = (struct measured){.config = (uint64_t)measurement->config,
                                .outcome = measurement->outcome,
                                .n = measurement->samples_us.n,
                                .has_timer = measurement->timer != NULL,
                                .has_conditions = measurement->conditions != NULL,
                                .vgprs = measurement->vgprs};
  snprintf(measured->object, sizeof measured->object, "%s",
           object && object->is_ok ? object->path : "");
  snprintf(measured->detail, sizeof measured->detail, "%s",
           measurement->detail ? measurement->detail : "");
  snprintf(measured->end, sizeof measured->end, "%s", measurement->end ? measurement->end : "");
  for (size_t i = 0; i < measurement->samples_us.n; i++)
    cr_expect(measurement->samples_us.all[i] > 0 && measurement->baseline_us.all[i] > 0);
  return trial->refuse_after == 0 || trial->n < trial->refuse_after;
}

static inline bool trial_stopped(void *context) {
  struct trial *trial = context;
  uint64_t current = atomic_load(&trial->executor.current);
  if (current < 64)
    trial->seen_at_work |= UINT64_C(1) << current;
  if (trial->stop_at_poll && ++trial->n_polls >= trial->stop_at_poll)
    return true;
  if (trial->stop_at_work && current != WORKER_CONFIG_NONE)
    return true;
  return trial->stop_after && trial->n >= trial->stop_after;
}

static inline int trial_work(struct supervisor *supervisor, void *context) {
  struct trial *trial = context;
  struct lease_hooks hooks = {.context = trial,
                              .measured = trial_measured,
                              .stopped = trial_stopped,
                              .is_ours = trial->is_ours};
  trial->executor.spawner = supervisor->spawner;
  spawner_set_custody(supervisor->spawner, &trial->custody);
  executor_start_workers(&trial->executor, trial->n_started);
  for (int i = 0; i < trial->leases; i++) {
    if (trial->jobs)
      trial->lease.job = (char *)trial->jobs[i];
    trial->end = lease_execute(&trial->executor, &trial->lease, &hooks, &trial->error);
  }
  executor_drop_workers(&trial->executor);
  return 0;
}

/* A kernel with one parameter MODE of `modes` values 0, 1, …; `body` is C with MODE, y, x and n,
 * called before the right result is written. */
static inline struct trial trial_new(const char *body, int modes, enum stage stage) {
  setenv("WAVETUNE_LOG", "error", 0);
  struct trial trial = {.leases = 1};
  cleanup_free char *source =
      xasprintf("#include <stdint.h>\n#include <stdlib.h>\n#include <stdio.h>\n"
                "#include <unistd.h>\n#include <signal.h>\n#include <string.h>\n#include "
                "<sys/mman.h>\nstatic long calls;\n"
                "void f(float *y, const float *x, int64_t n) {\n  calls++;\n  %s\n"
                "  for (int64_t i = 0; i < n; i++) y[i] = x[i] + 1;\n}\n",
                body);
  cleanup_free char *values = xstrdup("0");
  for (int i = 1; i < modes; i++) {
    cleanup_free char *shorter = values;
    values = xasprintf("%s, %d", shorter, i);
  }
  cleanup_free char *space = xasprintf("{\"parameters\": {\"MODE\": [%s]}}", values);
  trial.fixture = fixture_new(source, (struct fixture_options){.space = space});
  trial.executor = (struct executor){
      .pool = trial.fixture.pool,
      .device = "cpu0",
      .gpu_name = "a CPU",
      .arch = "x86_64",
      .compiles_first = true,
      .limits = {.open_ms = 30000, .config_ms = 20000},
      .screen = {2, SCREEN_ROUNDS, INFINITY, 0},
      .halving = {2, HALVING_ROUNDS, INFINITY, 0},
      .final = {FINAL_ROUNDS + 1, FINAL_ROUNDS, INFINITY, 0},
      .compile_window = 2,
      .configs_per_worker = 100,
      .current = WORKER_CONFIG_NONE,
  };
  static char nothing[] = "";
  trial.lease = (struct lease){
      .id = nothing,
      .job = nothing,
      .kernel = trial.fixture.kernel,
      .sources = trial.fixture.folder,
      .key = trial.fixture.key,
      .space = trial.fixture.space,
      .stage = stage,
      .seed = 7,
      .regime = REGIME_WARM,
  };
  for (int i = 0; i < modes; i++)
    config_ranges_add(&trial.lease.configs, (uint64_t)i);
  return trial;
}

/* The file that $WAVETUNE_TEST_FILE names to kernels, which keep state in it beyond their process.
 */
static inline char *test_file(const struct trial *trial) {
  char *path = xasprintf("%s/trace", trial->fixture.folder);
  setenv("WAVETUNE_TEST_FILE", path, 1);
  setenv("WAVETUNE_WORKER_WRITES", trial->fixture.folder, 1);
  return path;
}

static inline void trial_run(struct trial *trial) {
  struct supervisor supervisor = {.work = trial_work, .context = trial};
  cr_assert_eq(supervise(&supervisor), 0);
}

static inline void trial_free(struct trial *trial) {
  config_ranges_release(&trial->lease.configs);
  fixture_free(&trial->fixture);
}

static inline const struct measured *measured_of(const struct trial *trial, uint64_t config) {
  const struct measured *found = NULL;
  for (size_t i = 0; i < trial->n; i++) {
    if (trial->measured[i].config == config) {
      cr_expect_null(found, "config %d was measured twice", (int)config);
      found = &trial->measured[i];
    }
  }
  cr_assert_not_null(found, "config %d was not measured", (int)config);
  return found;
}

/* Rounds in which the clock was low are left out. */
static inline void expect_correct(const struct trial *trial, uint64_t config, size_t rounds) {
  const struct measured *measured = measured_of(trial, config);
  cr_expect_eq(measured->outcome, OUTCOME_CORRECT, "config %d: %s", (int)config, measured->detail);
  cr_expect(measured->n >= 1 && measured->n <= rounds, "config %d: %zu samples", (int)config,
            measured->n);
  cr_expect(measured->has_timer);
}

static inline void expect_outcome(const struct trial *trial, uint64_t config, enum outcome outcome,
                                  const char *detail) {
  const struct measured *measured = measured_of(trial, config);
  cr_expect_eq(measured->outcome, outcome, "config %d is %s", (int)config,
               outcome_name(measured->outcome));
  cr_expect_not_null(strstr(measured->detail, detail), "config %d: %s", (int)config,
                     measured->detail);
  cr_expect_eq(measured->n, 0);
}

/* Appends the process's id to the file that $WAVETUNE_TEST_FILE names. */
#define NOTE_PID                                                                                   \
  "if (calls == 1) { FILE *file = fopen(getenv(\"WAVETUNE_TEST_FILE\"), \"a\"); fprintf(file, "    \
  "\"%d\\n\", "                                                                                    \
  "(int)getpid()); "                                                                               \
  "fclose(file); }"

static inline size_t count_processes(const char *path) {
  cleanup_file FILE *file = fopen(path, "r");
  cr_assert_not_null(file);
  int pid, pids[64];
  size_t n = 0;
  while (fscanf(file, "%d%*[^\n]", &pid) >= 1) {
    bool is_known = false;
    for (size_t i = 0; i < n; i++)
      is_known = is_known || pids[i] == pid;
    if (!is_known)
      pids[n++] = pid;
    cr_assert_lt(n, 64);
  }
  return n;
}

/* Gives the trial's lease objects as a build's: those of the compile pool, each with so many
 * spills, or with none of them where spills[i] is -1. */
static inline struct build_objects objects_of(struct trial *trial, const int64_t *spills,
                                              size_t n) {
  struct build_objects objects = {.n = n, .all = xcalloc(n, sizeof *objects.all)};
  for (size_t i = 0; i < n; i++) {
    struct lease_object *object = &objects.all[i].object;
    objects.all[i].config = i;
    object->is_ok = spills[i] >= 0;
    object->launch = launch_spec_default();
    object->launch.resources.vgprs = 100 + (int64_t)i;
    object->launch.resources.vgpr_spills = spills[i];
    object->launch.resources.sgpr_spills = 0;
    if (object->is_ok)
      object->path = fixture_object(&trial->fixture, i, false),
      object->digest = fixture_digest(object->path);
    else
      object->detail = xstrdup("was not packed");
    object->outcome = OUTCOME_COMPILE;
  }
  return objects;
}

static inline void objects_free(struct build_objects *objects) {
  for (size_t i = 0; i < objects->n; i++)
    lease_object_release(&objects->all[i].object);
  free(objects->all);
}

#endif
