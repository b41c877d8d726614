/* Follows jobs to their end, for submit --wait, retry --wait and campaign revalidate.
 *
 * One job is followed by its events; several are counted by one request for all of them. A server
 * that does not answer is asked again until --patience ends.
 *
 * Memory: answers are the caller's. Threads: one. */
#include "cli/cli.h"
#include "common/program/terminal.h"

#define FOLLOW_WAIT_S 10
#define TRY_AGAIN_US 500000
#define COUNT_EVERY_US 1000000
#define COUNT_JOBS_MAX 10000 /* in one request */
#define REPORT_EVERY_MS 60000
#define FAILURES_SHOWN 50

struct follow {
  struct http_client *client;
  struct progress progress;
  int64_t patience_ms, answered_ms;
  int64_t until_ms; /* clock_monotonic_ms, 0: no limit */
};

static bool is_over(const struct follow *follow) {
  return follow->until_ms && clock_monotonic_ms() >= follow->until_ms;
}

/* A request that outlasts a restart of the server: tries again until no answer came for
 * patience_ms, which ends the program. False: --timeout has ended. */
static bool follow_call(struct follow *follow, const char *method, const char *path,
                        const json_t *body, json_t **ret_answer) {
  for (bool is_away = false;; is_away = true) {
    struct error error;
    if (http_json(follow->client, method, path, body, 0, ret_answer, &error)) {
      follow->answered_ms = clock_monotonic_ms();
      return true;
    }

    int64_t left_ms = follow->answered_ms + follow->patience_ms - clock_monotonic_ms();
    if (!is_away)
      progress_end(&follow->progress);
    if (error_exit_code(error.kind) != EXIT_UNREACHABLE || left_ms <= 0)
      cli_failed(&error);
    if (is_over(follow))
      return false;
    if (!is_away)
      fprintf(stderr, "wavetune: %s; trying again for %lld s\n", error.message,
              (long long)(left_ms + 999) / 1000);
    usleep(TRY_AGAIN_US);
  }
}

static bool is_final(const char *state) {
  return string_equal(state, "done") || string_equal(state, "failed") ||
         string_equal(state, "cancelled");
}

/* Follows one job to its end. *ret_job is its final summary. False: --timeout has ended. */
static bool job_follow(struct http_client *client, const struct options *options, const char *job,
                       int64_t until_ms, json_t **ret_job) {
  cleanup_free char *job_path = xasprintf("/v1/jobs/%s", job), *after = xstrdup("0"), *name = NULL;
  struct follow follow = {.client = client,
                          .patience_ms = option_integer(options, "patience") * 1000,
                          .answered_ms = clock_monotonic_ms(),
                          .until_ms = until_ms};

  for (;;) {
    cleanup_json json_t *summary = NULL, *events = NULL;
    if (!follow_call(&follow, "GET", job_path, NULL, &summary))
      return false;

    if (!name) {
      name = xstrdup(cli_member(summary, "name"));
      follow.progress = progress_start(stderr, name, (uint64_t)cli_integer(summary, "configs"));
    }
    progress_show(&follow.progress, (uint64_t)cli_integer(summary, "measured"),
                  cli_member(summary, "stage"));
    if (is_final(cli_member(summary, "state"))) {
      progress_end(&follow.progress);
      *ret_job = TAKE(summary);
      return true;
    }
    if (is_over(&follow)) {
      progress_end(&follow.progress);
      return false;
    }

    /* Waits for an event; a progress bar needs the count of measurements more often. */
    int64_t wait_s = follow.progress.out ? 1 : FOLLOW_WAIT_S;
    if (until_ms && until_ms - clock_monotonic_ms() < wait_s * 1000)
      wait_s = 1;
    cleanup_free char *path =
        xasprintf("/v1/jobs/%s/events?after=%s&wait=%lld", job, after, (long long)wait_s);
    if (!follow_call(&follow, "GET", path, NULL, &events))
      return false;
    const char *next = json_text(events, "next");
    if (next) {
      free(after);
      after = http_escape(next);
    }
  }
}

/* Jobs that are followed together. */
struct crowd {
  struct follow follow;
  size_t n;
  json_t *open;  /* ids of those that have not ended, as far as is known */
  json_t *ended; /* by their ids: true */
  int64_t ended_configs;
  int64_t begun_ms, reported_ms;
  size_t n_ended_at_start;
  double share_at_start; /* of all configs; < 0: not known */
};

static void crowd_release(struct crowd *crowd) {
  progress_end(&crowd->follow.progress);
  json_decref(crowd->open);
  json_decref(crowd->ended);
}

/* "1 h 32 min", "4 min", "20 s" */
static char *duration_text(double seconds) {
  long long s = (long long)(seconds + 0.5);
  return s >= 3600 ? xasprintf("%lld h %lld min", s / 3600, s % 3600 / 60)
         : s >= 60 ? xasprintf("%lld min", (s + 30) / 60)
                   : xasprintf("%lld s", s);
}

/* Shows how many jobs have ended, the rate, and the time to go. `share`: of all configs. */
static void crowd_show(struct crowd *crowd, double share) {
  int64_t now_ms = clock_monotonic_ms();
  size_t n_ended = json_object_size(crowd->ended);
  double minutes = (double)(now_ms - crowd->begun_ms) / 60000;
  if (crowd->share_at_start < 0) {
    crowd->share_at_start = share;
    crowd->n_ended_at_start = n_ended;
  }

  double gained = share - crowd->share_at_start;
  cleanup_free char *rate = NULL, *to_go = NULL, *note = NULL;
  if (n_ended > crowd->n_ended_at_start && minutes > 0)
    rate = xasprintf("%.3g jobs a minute", (double)(n_ended - crowd->n_ended_at_start) / minutes);
  if (gained > 0 && share < 1)
    to_go = duration_text((1 - share) / gained * minutes * 60);
  note = xasprintf("%s%s%s%s%s", rate ? rate : "", rate && to_go ? ", " : "", to_go ? "about " : "",
                   to_go ? to_go : "", to_go ? " to go" : "");
  progress_show(&crowd->follow.progress, n_ended, note);
  if (crowd->follow.progress.out || now_ms - crowd->reported_ms < REPORT_EVERY_MS)
    return;
  crowd->reported_ms = now_ms;
  fprintf(stderr, "wavetune: %zu of %zu jobs have ended%s%s\n", n_ended, crowd->n,
          *note ? "; " : "", note);
}

/* Asks what became of the open jobs. False: --timeout has ended. */
static bool crowd_count(struct crowd *crowd) {
  int64_t measured = 0, configs = 0, newly_ended = 0;
  json_t *still = json_array();
  for (size_t start = 0; start < json_array_size(crowd->open); start += COUNT_JOBS_MAX) {
    cleanup_json json_t *ids = json_array(), *body = json_pack("{s:O}", "jobs", ids),
                        *answer = NULL;
    for (size_t i = start; i < start + COUNT_JOBS_MAX && i < json_array_size(crowd->open); i++)
      json_array_append(ids, json_array_get(crowd->open, i));
    if (!follow_call(&crowd->follow, "POST", "/v1/jobs/progress", body, &answer)) {
      json_decref(still);
      return false;
    }

    json_elements (json_object_get(answer, "ended"), index, one) {
      json_put(crowd->ended, cli_member(one, "job"), json_true());
      newly_ended += cli_integer(one, "configs");
    }
    json_elements (ids, index, id)
      if (!json_object_get(crowd->ended, json_string_value(id)))
        json_array_append(still, id);
    measured += cli_integer(answer, "measured");
    configs += cli_integer(answer, "configs");
  }

  json_decref(crowd->open);
  crowd->open = still;
  double all = (double)(configs + crowd->ended_configs);
  crowd_show(crowd, all > 0 ? (double)(measured + crowd->ended_configs) / all : 0);
  crowd->ended_configs += newly_ended;
  return true;
}

/* Names the jobs without a winner. */
static void failures_print(const json_t *failures, size_t n) {
  if (n < 2 || json_array_size(failures) == 0)
    return;

  fprintf(stderr, "wavetune: %zu of %zu jobs have no winner:\n", json_array_size(failures), n);
  json_elements (failures, index, job) {
    cleanup_free char *key = cli_compact(job, "key");
    const char *reason = cli_member(job, "reason");
    if (index == FAILURES_SHOWN) {
      fprintf(stderr, "  and %zu more\n", json_array_size(failures) - index);
      break;
    }
    fprintf(stderr, "  job %s  %s %s: %s%s%s\n", cli_member(job, "job"), cli_member(job, "name"),
            key, cli_member(job, "state"), *reason ? ": " : "", reason);
  }
  fprintf(stderr, "wavetune: `wavetune retry` tries failed and cancelled jobs again\n");
}

no_return static void timeout_report(const struct options *options, size_t n_open, size_t n) {
  cli_refuse(EXIT_TIMEOUT,
             "%zu of %zu job%s had not ended after %lld s; %s on: `wavetune jobs` lists "
             "and `wavetune cancel` ends them",
             n_open, n, n == 1 ? "" : "s", (long long)option_integer(options, "timeout"),
             n_open == 1 ? "it goes" : "they go");
}

/* Prints a job that has ended, or with --json keeps it; a job without a winner is kept in
 * `failures`, too. */
static void job_report(struct http_client *client, json_t *job, json_t *finished,
                       json_t *failures) {
  if (!json_is_object(json_object_get(job, "winner")))
    json_array_append(failures, job);
  if (finished)
    json_array_append(finished, job);
  else
    job_print(client, job);
}

/* Prints the jobs in their order, each as soon as it and those before it have ended. False:
 * --timeout has ended. */
static bool crowd_await(struct crowd *crowd, const json_t *answers, const char *member,
                        json_t *finished, json_t *failures) {
  for (size_t next = 0; next < crowd->n;) {
    if (!crowd_count(crowd))
      return false;

    for (; next < crowd->n; next++) {
      const char *id = cli_member(json_array_get(answers, next), member);
      if (!json_object_get(crowd->ended, id))
        break;
      cleanup_free char *path = cli_path("/v1/jobs/", id, "");
      cleanup_json json_t *job = NULL;
      if (!follow_call(&crowd->follow, "GET", path, NULL, &job))
        return false;
      progress_end(&crowd->follow.progress);
      job_report(crowd->follow.client, job, finished, failures);
    }
    fflush(stdout);
    if (next < crowd->n && is_over(&crowd->follow))
      return false;
    if (next < crowd->n)
      usleep(COUNT_EVERY_US);
  }
  return true;
}

int64_t jobs_until_ms(const struct options *options) {
  int64_t timeout_s = option_integer(options, "timeout");
  return timeout_s ? clock_monotonic_ms() + timeout_s * 1000 : 0;
}

/* Follows the jobs to their ends, and reports each to job_report. False: --timeout has ended, when
 * *ret_open jobs had not. */
static bool all_follow(struct http_client *client, const struct options *options,
                       const json_t *answers, const char *member, int64_t until_ms,
                       json_t *finished, json_t *failures, size_t *ret_open) {
  int64_t now_ms = clock_monotonic_ms();
  size_t n = json_array_size(answers);
  *ret_open = 1;

  if (n == 1) {
    cleanup_json json_t *job = NULL;
    if (!job_follow(client, options, cli_member(json_array_get(answers, 0), member), until_ms,
                    &job))
      return false;
    job_report(client, job, finished, failures);
  } else if (n > 1) {
    cleanup_by(crowd_release) struct crowd crowd = {
        .follow = {.client = client,
                   .patience_ms = option_integer(options, "patience") * 1000,
                   .answered_ms = now_ms,
                   .until_ms = until_ms,
                   .progress = progress_start(stderr, "jobs", n)},
        .n = n,
        .open = json_array(),
        .ended = json_object(),
        .begun_ms = now_ms,
        .reported_ms = now_ms,
        .share_at_start = -1};
    json_elements (answers, index, answer)
      json_array_append(crowd.open, json_object_get(answer, member));
    bool is_done = crowd_await(&crowd, answers, member, finished, failures);
    *ret_open = json_array_size(crowd.open);
    return is_done;
  }
  return true;
}

void jobs_gather(struct http_client *client, const struct options *options, const json_t *answers,
                 const char *member, int64_t until_ms, json_t *jobs) {
  cleanup_json json_t *failures = json_array();
  size_t n_open;
  if (!all_follow(client, options, answers, member, until_ms, jobs, failures, &n_open))
    timeout_report(options, n_open, json_array_size(answers));
}

int jobs_await(struct http_client *client, const struct options *options, const json_t *answers,
               const char *member) {
  size_t n = json_array_size(answers), n_open;
  cleanup_json json_t *finished = option_flag(options, "json") ? json_array() : NULL,
                      *failures = json_array();
  bool is_done = all_follow(client, options, answers, member, jobs_until_ms(options), finished,
                            failures, &n_open);

  if (finished)
    cli_print_json(finished);
  failures_print(failures, n);
  if (!is_done)
    timeout_report(options, n_open, n);
  return json_array_size(failures) ? EXIT_FAILED : EXIT_OK;
}
