/* Reading and judging posts. Memory and threads: as the header says. */
#include "server/measurement/results.h"

#include <math.h>

static const struct field fields[] = {
    {"epoch", FIELD_INTEGER, offsetof(struct results, epoch), FIELD_REQUIRED, .least = 1,
     .most = INT64_MAX},
    {"measurements", FIELD_RECORDS, offsetof(struct results, measurements), FIELD_REQUIRED,
     .most = RESULTS_MEASUREMENTS_MAX, .of = &measurement_record},
    {"done", FIELD_BOOL, offsetof(struct results, done), FIELD_NOT_NULL,
     .about = "nothing more will be measured of it"},
    {"opening_us", FIELD_INTEGER, offsetof(struct results, opening_us), FIELD_NOT_NULL,
     .most = OPENING_US_MAX,
     .about = "of the device, for opening the kernel, so far in this epoch"},
};
const struct record results_record = RECORD("ResultsRequest", struct results, fields);

void results_release(struct results *results) {
  free(results->posted);
  results->posted = NULL;
  record_release(&results_record, results);
}

/* Equal bodies have equal digests. The samples go in as they lie in memory: writing them as text
 * would cost more than all the rest of a post. Agents keep what they could not post through
 * upgrades of the server: this must not change. */
static struct digest body_digest(const json_t *json, const struct measurement *measurement) {
  const struct numbers *samples = &measurement->samples_us, *baselines = &measurement->baseline_us;
  cleanup_json json_t *rest = json_copy((json_t *)json);
  json_object_del(rest, "samples_us");
  json_object_del(rest, "baseline_us");
  cleanup_free char *text = json_dumps(rest, JSON_COMPACT | JSON_SORT_KEYS);
  ALWAYS(text != NULL);

  struct digest_stream *stream = digest_stream_new();
  digest_stream_add(stream, text, strlen(text) + 1);
  digest_stream_add(stream, samples->all, samples->n * sizeof *samples->all);
  digest_stream_add(stream, baselines->all, baselines->n * sizeof *baselines->all);
  return digest_stream_finish(stream);
}

static struct posted posted_of(const json_t *json, const struct measurement *measurement) {
  struct posted posted = {.ratio = NAN, .body = body_digest(json, measurement)};
  if (measurement->samples_us.n)
    posted.ratio = verdict_paired_ratio(measurement->samples_us.all, measurement->baseline_us.all,
                                        measurement->samples_us.n);
  if (measurement->baseline_failed)
    posted.baseline_failure = BASELINE_FAILED;
  else if (measurement->outcome != OUTCOME_CORRECT && measurement->detail &&
           string_starts(measurement->detail, "baseline: "))
    posted.baseline_failure = BASELINE_FAILED_BY_DETAIL;
  return posted;
}

static int by_seq(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

static bool seqs_are_distinct(const struct results *results, struct error *error) {
  size_t n = results->measurements.n;
  cleanup_free int64_t *seqs = xcalloc(n + 1, sizeof *seqs);
  for (size_t i = 0; i < n; i++)
    seqs[i] = RESULTS_MEASUREMENT(results, i)->seq;
  qsort(seqs, n, sizeof *seqs, by_seq);
  for (size_t i = 1; i < n; i++)
    if (seqs[i] == seqs[i - 1])
      return error_at(error, "/measurements",
                      "seq %lld occurs twice; it is unique in a lease's epoch", (long long)seqs[i]);
  return true;
}

bool results_parse(const json_t *json, struct results *ret, struct error *error) {
  cleanup_results struct results results;
  record_init(&results_record, &results);
  results.opening_us = 0;
  if (!record_read(&results_record, json, "", &results, error))
    return false;

  size_t n = results.measurements.n;
  if (n == 0 && !results.done)
    return error_at(error, "/measurements",
                    "there are no measurements; post 1 to %d, or none with \"done\"",
                    RESULTS_MEASUREMENTS_MAX);
  results.posted = xcalloc(n + 1, sizeof *results.posted);
  for (size_t i = 0; i < n; i++) {
    const struct measurement *measurement = RESULTS_MEASUREMENT(&results, i);
    char at[JSON_POINTER_SIZE];
    if (!measurement_agrees(measurement, json_pointer_index(at, sizeof at, "/measurements", i),
                            error))
      return false;
    results.posted[i] =
        posted_of(json_array_get(json_object_get(json, "measurements"), i), measurement);
  }
  if (!seqs_are_distinct(&results, error))
    return false;

  *ret = results;
  record_init(&results_record, &results);
  return true;
}

const char *results_baseline_failure(const struct results *results, int64_t baseline) {
  for (size_t i = 0; i < results->measurements.n; i++) {
    const struct measurement *measurement = RESULTS_MEASUREMENT(results, i);
    if (results->posted[i].baseline_failure != BASELINE_WORKED && measurement->config == baseline)
      return measurement->detail;
  }
  return NULL;
}

static const struct known_measurement *known_find(const struct known_measurement *known,
                                                  size_t n_known, int64_t seq) {
  for (size_t i = 0; i < n_known; i++)
    if (known[i].seq == seq)
      return &known[i];
  return NULL;
}

/* Whether a measurement is not one that was leased. The baseline's failure may be told by any
 * lease. */
static bool is_outside(const struct measurement *measurement, enum baseline_failure failure,
                       const struct posted_lease *lease) {
  bool is_baseline = measurement->config == lease->baseline;
  bool is_leased = config_ranges_hold(&lease->configs, (uint64_t)measurement->config);
  if ((measurement->process != FIELD_NONE && measurement->process != lease->process) ||
      (measurement->round != FIELD_NONE && measurement->round != lease->round))
    return true;
  if (failure == BASELINE_FAILED)
    return !is_baseline;
  return !is_leased && !(failure == BASELINE_FAILED_BY_DETAIL && is_baseline);
}

static struct error outside_error(const struct measurement *measurement,
                                  enum baseline_failure failure, const struct posted_lease *lease,
                                  const char *at) {
  struct error error;
  if (failure == BASELINE_FAILED && measurement->config != lease->baseline)
    error_at(&error, at, "\"baseline_failed\" of config %lld; the job's baseline is config %lld",
             (long long)measurement->config, (long long)lease->baseline);
  else
    error_at(&error, at,
             "config %lld, process %lld, round %lld is not this lease's; nothing was stored",
             (long long)measurement->config,
             (long long)(measurement->process < 0 ? 0 : measurement->process),
             (long long)(measurement->round < 0 ? 0 : measurement->round));
  return error;
}

/* Finds why a post is refused: a contradiction anywhere in it goes before a measurement that is not
 * the lease's. */
static bool is_refused(const struct results *results, const struct posted_lease *lease,
                       const struct known_measurement *known, size_t n_known,
                       struct judgement *judgement) {
  size_t n = results->measurements.n;
  char at[JSON_POINTER_SIZE];
  for (size_t i = 0; i < n; i++) {
    int64_t seq = RESULTS_MEASUREMENT(results, i)->seq;
    const struct known_measurement *stored = known_find(known, n_known, seq);
    if (!stored || digest_equal(&stored->body, &results->posted[i].body))
      continue;
    judgement->verdict = POST_CONFLICT;
    error_at(&judgement->refusal, json_pointer_index(at, sizeof at, "/measurements", i),
             "seq %lld of this lease and epoch is known with another body; nothing was stored",
             (long long)seq);
    judgement->refusal.kind = ERROR_CONFLICT;
    return true;
  }

  for (size_t i = 0; i < n; i++) {
    const struct measurement *measurement = RESULTS_MEASUREMENT(results, i);
    enum baseline_failure failure = results->posted[i].baseline_failure;
    if (!is_outside(measurement, failure, lease))
      continue;
    judgement->verdict = POST_OUTSIDE;
    judgement->refusal = outside_error(measurement, failure, lease,
                                       json_pointer_index(at, sizeof at, "/measurements", i));
    return true;
  }
  return false;
}

static int by_config(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

/* What the measurements that count change: the rest of the lease, what it took, its outcomes. */
static void measurements_count(const struct results *results, const struct posted_lease *lease,
                               struct judgement *judgement) {
  struct lease_change *change = &judgement->change;
  cleanup_free uint64_t *configs = xcalloc(judgement->n_fresh + 1, sizeof *configs);
  size_t n = 0;
  for (size_t i = 0; i < judgement->n_fresh; i++) {
    const struct measurement *measurement = RESULTS_MEASUREMENT(results, judgement->fresh[i]);
    double ratio = results->posted[judgement->fresh[i]].ratio;
    bool counts = judgement->verdict == POST_TAKEN &&
                  config_ranges_hold(&lease->remaining, (uint64_t)measurement->config);
    for (size_t k = 0; counts && k < i; k++) /* the first of a config counts */
      counts = RESULTS_MEASUREMENT(results, judgement->fresh[k])->config != measurement->config;
    judgement->is_late[i] = !counts;
    judgement->n_late += !counts;
    if (!counts)
      continue;

    configs[n++] = (uint64_t)measurement->config;
    change->outcomes[measurement->outcome]++;
    change->device_us += measurement->device_us == FIELD_NONE ? 0 : measurement->device_us;
    if (measurement->outcome == OUTCOME_CORRECT && !measurement_left_early(measurement) &&
        !(ratio >= judgement->best_ratio))
      judgement->best_ratio = ratio;
  }

  qsort(configs, n, sizeof *configs, by_config);
  for (size_t i = 0; i < n; i++)
    config_ranges_add(&change->less, configs[i]);
  change->fruitless_less = n ? LEASE_FRUITFUL : 0;
}

struct judgement results_judge(const struct results *results, int64_t id,
                               const struct posted_lease *lease,
                               const struct known_measurement *known, size_t n_known) {
  struct judgement judgement = {.best_ratio = NAN};
  size_t n = results->measurements.n;
  if (!lease) {
    judgement.verdict = POST_UNKNOWN;
    error_of(&judgement.refusal, ERROR_MISSING, "there is no lease %lld", (long long)id);
    return judgement;
  }
  if (results->epoch > lease->epoch) {
    judgement.verdict = POST_NEVER;
    return judgement;
  }
  if (is_refused(results, lease, known, n_known, &judgement))
    return judgement;

  bool is_taken = lease->state == LEASE_HELD && lease->epoch == results->epoch;
  judgement.verdict = is_taken ? POST_TAKEN : POST_LATE;
  judgement.fresh = xcalloc(n + 1, sizeof *judgement.fresh);
  judgement.is_late = xcalloc(n + 1, sizeof *judgement.is_late);
  for (size_t i = 0; i < n; i++)
    if (!known_find(known, n_known, RESULTS_MEASUREMENT(results, i)->seq))
      judgement.fresh[judgement.n_fresh++] = i;
  measurements_count(results, lease, &judgement);

  /* A repeated post says the same of opening the kernel, and adds nothing. */
  struct lease_change *change = &judgement.change;
  change->lease = id;
  change->from = change->to = lease->state;
  change->posts = 1;
  if (is_taken) {
    change->opening_us = results->opening_us > lease->epoch_opening_us
                             ? results->opening_us - lease->epoch_opening_us
                             : 0;
    change->to = lease_state_after(&lease->remaining, &change->less,
                                   results->done ? LEASE_OPEN : LEASE_HELD);
  }
  judgement.is_change =
      judgement.n_fresh > 0 || (is_taken && (results->done || change->opening_us > 0));
  return judgement;
}

bool post_ends_lease(const struct judgement *judgement) {
  return judgement->verdict == POST_TAKEN && judgement->is_change &&
         judgement->change.to != LEASE_HELD;
}

void judgement_release(struct judgement *judgement) {
  config_ranges_release(&judgement->change.less);
  free(judgement->fresh);
  free(judgement->is_late);
  *judgement = (struct judgement){0};
}
