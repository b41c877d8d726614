/* The queue of the database workers, with threads in place of workers. */
#include "server/http/request_private.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <sys/resource.h>
#include <time.h>

#define PATIENCE_S 20
#define FALL_ASLEEP_MS 200

struct worker_trial {
  struct queue *queue;
  pthread_t thread;
  struct request_private *taken[QUEUE_TOKENS_MAX];
  size_t n;
};

static void take(struct worker_trial *worker) {
  bool for_tokens;
  uint64_t generation;
  worker->n = queue_take(worker->queue, worker->taken, &for_tokens, &generation);
}

static void *take_once(void *context) {
  take(context);
  return NULL;
}

static struct worker_trial *worker_start(struct queue *queue) {
  struct worker_trial *worker = xcalloc(1, sizeof *worker);
  worker->queue = queue;
  cr_assert_eq(pthread_create(&worker->thread, NULL, take_once, worker), 0);
  return worker;
}

/* What the worker took; NULL: nothing within PATIENCE_S. */
static struct request_private *worker_join(struct worker_trial *worker) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += PATIENCE_S;
  bool has_ended = pthread_timedjoin_np(worker->thread, NULL, &until) == 0;
  struct request_private *taken = has_ended && worker->n == 1 ? worker->taken[0] : NULL;
  if (has_ended)
    free(worker);
  return taken;
}

static struct request_private *take_added(struct queue *queue, struct request_private *request) {
  struct worker_trial worker = {.queue = queue};
  cr_assert_eq(queue_add(queue, request, false), QUEUE_ADDED);
  take(&worker);
  return worker.n == 1 ? worker.taken[0] : NULL;
}

/* The worker that parks a request may be busy with the next one for long. Workers that began to
 * wait when nothing was parked, and so without a time-out, must take it when it is due. */
Test(queue, what_is_parked_while_the_other_workers_wait_is_run_in_time) {
  struct queue *queue = queue_new(10, 60000);
  struct request_private first = {0}, second = {0};
  cr_assert_eq(take_added(queue, &first), &first);
  cr_assert_eq(take_added(queue, &second), &second);
  struct worker_trial *workers[] = {worker_start(queue), worker_start(queue)};
  /* A worker that starts late finds the parked requests at once, and the test passes. */
  nanosleep(&(struct timespec){.tv_nsec = FALL_ASLEEP_MS * 1000000}, NULL);

  int64_t now_ms = clock_monotonic_ms();
  cr_assert(queue_park(queue, &first, "key", false, now_ms + 50, 0));
  cr_assert(queue_park(queue, &second, "key", false, now_ms + 500, 0));

  const struct request_private *got = worker_join(workers[0]), *other = worker_join(workers[1]);
  cr_expect((got == &first && other == &second) || (got == &second && other == &first));
  cr_expect(first.request.deadline_passed && second.request.deadline_passed);
  cr_expect(!queue_state(queue).parked && !queue_state(queue).queued);
  queue_stop(queue);
  queue_free(queue);
}

/* The number of the token whose request is taken next. */
static int64_t token_taken(struct queue *queue, bool *ret_for_tokens) {
  struct worker_trial worker = {.queue = queue};
  uint64_t generation;
  worker.n = queue_take(queue, worker.taken, ret_for_tokens, &generation);
  cr_assert_eq(worker.n, 1);
  return worker.taken[0]->request.token_id;
}

struct sleeper {
  struct queue *queue;
  sem_t *has_taken;
  pthread_t thread;
  long sleeps;
};

static void *take_and_count(void *context) {
  struct sleeper *sleeper = context;
  struct worker_trial worker = {.queue = sleeper->queue};
  struct rusage before, after;
  getrusage(RUSAGE_THREAD, &before);
  take(&worker);
  getrusage(RUSAGE_THREAD, &after);
  sleeper->sleeps = after.ru_nvcsw - before.ru_nvcsw;
  sem_post(sleeper->has_taken);
  return NULL;
}

/* Else each further worker would wake an idle server's CPU fifty times a second. */
Test(queue, one_of_the_idle_workers_looks_after_what_is_parked) {
  struct queue *queue = queue_new(10, 60000);
  struct request_private parked = {0};
  struct sleeper sleepers[8] = {0};
  size_t n_often = 0;
  sem_t has_taken;
  sem_init(&has_taken, 0, 0);
  cr_assert_eq(take_added(queue, &parked), &parked);
  for (size_t i = 0; i < ARRAY_LENGTH(sleepers); i++) {
    sleepers[i] = (struct sleeper){.queue = queue, .has_taken = &has_taken};
    cr_assert_eq(pthread_create(&sleepers[i].thread, NULL, take_and_count, &sleepers[i]), 0);
  }
  cr_assert(queue_park(queue, &parked, "key", false, clock_monotonic_ms() + 2000, 0));

  sem_wait(&has_taken); /* the parked request, when it is due */
  queue_stop(queue);
  for (size_t i = 0; i < ARRAY_LENGTH(sleepers); i++) {
    pthread_join(sleepers[i].thread, NULL);
    n_often += sleepers[i].sleeps > 8;
  }
  cr_expect_leq(n_often, 2, "%zu workers slept often", n_often);
  queue_free(queue);
}

/* Few workers, whose connections are warm, do the work of a quiet server. */
Test(queue, the_worker_that_began_to_wait_last_is_woken_first) {
  struct queue *queue = queue_new(10, 60000);
  struct request_private requests[3] = {0};
  struct worker_trial *workers[3];
  for (size_t i = 0; i < ARRAY_LENGTH(workers); i++) {
    workers[i] = worker_start(queue);
    while (queue_state(queue).idle <= i)
      sched_yield();
  }
  for (size_t i = ARRAY_LENGTH(workers); i-- > 0;) {
    cr_assert_eq(queue_add(queue, &requests[i], false), QUEUE_ADDED);
    cr_expect_eq(worker_join(workers[i]), &requests[i]);
  }
  queue_stop(queue);
  queue_free(queue);
}

Test(queue, tokens_are_served_in_turn) {
  static const int64_t added[] = {1, 1, 1, 1, 2, 1 + 1024, 2, 1},
                       taken[] = {1, 2, 1025, 1, 2, 1, 1, 1};
  struct queue *queue = queue_new(100, 60000);
  struct request_private requests[ARRAY_LENGTH(added)] = {0};
  bool for_tokens;
  for (size_t i = 0; i < ARRAY_LENGTH(added); i++) {
    requests[i].request.token_id = added[i];
    cr_assert_eq(queue_add(queue, &requests[i], false), QUEUE_ADDED);
  }
  for (size_t i = 0; i < ARRAY_LENGTH(taken); i++)
    cr_expect_eq(token_taken(queue, &for_tokens), taken[i], "%zu", i);
  cr_expect_eq(queue_state(queue).queued, 0);
  queue_stop(queue);
  queue_free(queue);
}

Test(queue, agents_and_operators_have_several_requests_in_a_turn) {
  static const int64_t taken[] = {1, 2, 2, 2, 2, 1, 2, 2, 1, 1, 1, 1};
  struct queue *queue = queue_new(100, 60000);
  struct request_private requests[12] = {0};
  bool for_tokens;
  for (size_t i = 0; i < ARRAY_LENGTH(requests); i++) {
    bool is_agent = i % 2;
    requests[i].request.token_id = is_agent ? 2 : 1;
    requests[i].request.roles = is_agent ? TOKEN_AGENT : TOKEN_READER;
    cr_assert_eq(queue_add(queue, &requests[i], false), QUEUE_ADDED);
  }
  for (size_t i = 0; i < ARRAY_LENGTH(taken); i++)
    cr_expect_eq(token_taken(queue, &for_tokens), taken[i], "%zu", i);
  queue_stop(queue);
  queue_free(queue);
}

Test(queue, requests_of_one_token_are_served_in_their_order) {
  struct queue *queue = queue_new(100, 60000);
  struct request_private requests[5] = {0};
  struct worker_trial worker = {.queue = queue};
  for (size_t i = 0; i < ARRAY_LENGTH(requests); i++)
    cr_assert_eq(queue_add(queue, &requests[i], false), QUEUE_ADDED);
  for (size_t i = 0; i < ARRAY_LENGTH(requests); i++) {
    take(&worker);
    cr_expect_eq(worker.taken[0], &requests[i]);
  }
  queue_stop(queue);
  queue_free(queue);
}

Test(queue, a_look_up_of_a_token_waits_for_older_requests_only) {
  struct queue *queue = queue_new(100, 60000);
  struct request_private requests[4] = {0};
  bool for_tokens;
  for (size_t i = 0; i < ARRAY_LENGTH(requests); i++) {
    requests[i].request.token_id = (int64_t)i + 1;
    cr_assert_eq(queue_add(queue, &requests[i], i == 1), QUEUE_ADDED);
  }
  for (size_t i = 0; i < ARRAY_LENGTH(requests); i++) {
    cr_expect_eq(token_taken(queue, &for_tokens), (int64_t)i + 1);
    cr_expect_eq(for_tokens, i == 1);
  }
  queue_stop(queue);
  queue_free(queue);
}
