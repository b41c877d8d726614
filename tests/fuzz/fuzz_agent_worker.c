/* What a worker sends during a race, as bytes that arrive in pieces. The first byte is the size of
 * the pieces, the second the stage (lowest bit) and the resources that the object states. The
 * supervisor reports each config at most once, and a server accepts each measurement that it
 * reports. */
#include "agent/lease/lease_execution.h"
#include "agent/run/server_client.h"
#include "agent/worker/worker_client.h"
#include "tests/fuzz/fuzz.h"

#define CONFIGS 4
#define PIECE_STEP 37 /* so that pieces end anywhere */

static const uint64_t configs[CONFIGS] = {0, 3, 64, INT64_MAX - 1};

struct handed {
  size_t n, n_baseline;
  unsigned seen[CONFIGS];
};

static bool measured(void *context, const struct lease *lease,
                     const struct measurement *measurement, const struct lease_object *object) {
  struct handed *handed = context;
  (void)object;
  struct error error = {0};
  cleanup_json json_t *json = measurement_to_json(lease, measurement, NULL);
  json_object_set_new(json, "seq", json_integer((json_int_t)++handed->n));
  cleanup_json json_t *body =
      json_pack("{s:I, s:[O]}", "epoch", (json_int_t)lease->epoch, "measurements", json);
  if (!results_taken(body, &error))
    die("no server accepts what is reported: %s: %s", error.pointer, error.message);
  handed->n_baseline += measurement->baseline_failed;

  for (size_t i = 0; i < CONFIGS && !measurement->baseline_failed; i++)
    if ((uint64_t)measurement->config == configs[i])
      ALWAYS(handed->seen[i]++ == 0);

  return true;
}

static bool stopped(void *context) {
  (void)context;
  return false;
}

/* Handles the whole answers. True: more bytes are needed; false: the race is over or the worker
 * failed. */
static bool answers_take(struct execution *execution, const struct race_batch *batch,
                         struct worker_answers *answers, struct race_result *result) {
  for (;;) {
    cleanup_json json_t *answer = NULL;
    struct error error = {0};
    bool is_over;
    switch (worker_answers_next(answers, &answer, &error)) {
    case WORKER_LINE_MISSING:
      return true;
    case WORKER_LINE_WRONG:
      ALWAYS(error.message[0]);
      return false;
    case WORKER_LINE_WHOLE:
      break;
    }
    enum step step = batch_answer(execution, batch, answer, result, &is_over);
    ALWAYS(step != STEP_FAILED || execution->error->message[0]);
    if (step == STEP_ON && is_over && batch_finish(execution, batch, result) == STEP_ON)
      for (size_t i = 0; i < batch->n; i++)
        ALWAYS(batch->configs[i]->is_settled);
    if (step != STEP_ON || is_over)
      return false;
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  if (size < 2)
    return 0;
  static char id[] = "lease", job[] = "job", name[] = "kernel";
  struct handed handed = {0};
  struct error error = {0};
  struct kernel kernel = {.name = name};
  struct lease lease = {.id = id, .job = job, .epoch = 1, .kernel = &kernel};
  struct executor executor = {.device = "cpu0"};
  struct lease_hooks hooks = {.context = &handed, .measured = measured, .stopped = stopped};
  struct execution execution = {
      .executor = &executor, .lease = &lease, .hooks = &hooks, .error = &error};
  struct lease_object object = {.is_ok = true, .launch = launch_spec_default()};
  struct lease_config leased[CONFIGS] = {0}, *order[CONFIGS];
  int64_t claimed =
      bytes[1] & 2 ? (int64_t)1 << 40 : bytes[1]; /* the most that code objects may state */
  object.launch.resources = (struct code_resources){claimed, claimed, claimed, claimed, claimed};

  for (size_t i = 0; i < CONFIGS; i++) {
    leased[i] = (struct lease_config){.ordinal = configs[i], .object = &object};
    order[i] = &leased[i];
  }

  execution.baseline = (struct lease_config){.ordinal = 3, .object = &object};
  lease.stage = bytes[1] & 1 ? STAGE_FINAL : STAGE_SCREEN;

  struct race_batch batch = {
      .n = CONFIGS, .configs = order, .is_final = lease.stage == STAGE_FINAL};
  struct race_result result = {.event = WORKER_ANSWER};
  struct worker_answers answers = {0};
  worker_answers_expect(&answers, CONFIGS + 1);
  size_t piece = 1 + (size_t)bytes[0] * PIECE_STEP;
  for (size_t at = 2, n; at < size; at += n) {
    n = size - at < piece ? size - at : piece;
    memcpy(worker_answers_room(&answers, n), bytes + at, n);
    answers.size += n;
    if (!answers_take(&execution, &batch, &answers, &result))
      break;
  }

  ALWAYS(handed.n_baseline <= 1 && execution.spent_us >= 0);
  for (size_t i = 0; i < CONFIGS; i++)
    json_decref(leased[i].answer);

  worker_answers_release(&answers);
  return 0;
}
