/* Posting the spool: what the server gets, in which order, and where refused records are stored. */
#include "agent_trial.h"

static void append(struct trial *trial, const char *lease, const char *member, json_t *taken) {
  uint64_t number;
  struct error error;
  cleanup_json json_t *record =
      json_pack("{s:s, s:i, s:o}", "lease", lease, "epoch", 3, member, taken);
  cr_assert(spool_append(trial->agent.spool, record, &number, &error), "%s", error.message);
}

static void append_caused(struct trial *trial, const char *lease, const char *reason,
                          const char *cause) {
  uint64_t number;
  struct error error;
  cleanup_json json_t *record = json_pack("{s:s, s:i, s:s, s:s}", "lease", lease, "epoch", 3,
                                          "release", reason, "cause", cause);
  cr_assert(spool_append(trial->agent.spool, record, &number, &error), "%s", error.message);
}

static void measured(struct trial *trial, const char *lease, int config) {
  append(trial, lease, "measurement",
         json_pack("{s:i, s:s}", "config", config, "outcome", "compile"));
}

/* A record with the time of opening the kernel so far. */
static void append_opened(struct trial *trial, const char *member, json_t *taken, int opening_us) {
  uint64_t number;
  struct error error;
  cleanup_json json_t *record = json_pack("{s:s, s:i, s:o, s:i}", "lease", "91", "epoch", 3, member,
                                          taken, "opening_us", opening_us);
  cr_assert(spool_append(trial->agent.spool, record, &number, &error), "%s", error.message);
}

static void measured_opened(struct trial *trial, int config, int opening_us) {
  append_opened(trial, "measurement",
                json_pack("{s:i, s:s}", "config", config, "outcome", "compile"), opening_us);
}

/* -1: the request has none. */
static int opening_us_of(const struct trial *trial, size_t index) {
  const json_t *opening_us = json_object_get(trial->server.bodies[index], "opening_us");
  return opening_us ? (int)json_integer_value(opening_us) : -1;
}

static void held(struct trial *trial, const char *lease) {
  static _Atomic uint64_t current = UINT64_MAX;
  held_add(trial->agent.held, &(struct held_grant){.lease = lease,
                                                   .epoch = 3,
                                                   .requested_ms = held_clock_ms(),
                                                   .expires_in_ms = 3600000,
                                                   .renew_every_ms = 1000000,
                                                   .current = &current});
}

/* The request's line, and its measurements as "seq:config …". */
static void expect_request(const struct trial *trial, size_t index, const char *line,
                           const char *measurements) {
  cr_assert_lt(index, trial->server.n, "request %zu was not made", index);
  cleanup_free char *seen = xstrdup("");
  size_t i;
  json_t *item;
  json_array_foreach (json_object_get(trial->server.bodies[index], "measurements"), i, item) {
    cleanup_free char *shorter = seen;
    seen = xasprintf("%s%s%d:%d", shorter, i ? " " : "",
                     (int)json_integer_value(json_object_get(item, "seq")),
                     (int)json_integer_value(json_object_get(item, "config")));
  }
  cr_expect_str_eq(trial->server.lines[index], line);
  cr_expect_str_eq(seen, measurements);
  cr_expect_eq(json_integer_value(json_object_get(trial->server.bodies[index], "epoch")), 3);
}

static bool request_is_done(const struct trial *trial, size_t index) {
  return json_is_true(json_object_get(trial->server.bodies[index], "done"));
}

static char *refused_text(const struct trial *trial) {
  cleanup_free char *path = xasprintf("%s/refused.jsonl", trial->agent.state);
  char *text = NULL;
  size_t size;
  struct error error;
  return file_read(path, 1 << 20, &text, &size, &error) ? text : xstrdup("");
}

Test(agent_poster, posts_a_lease_in_one_request_with_record_numbers_as_seq) {
  struct trial trial;
  trial_init(&trial, NULL, 0);
  held(&trial, "91");
  measured(&trial, "91", 40);
  measured(&trial, "91", 41);
  append(&trial, "91", "done", json_true());
  agent_post_left(&trial.agent);
  cr_expect_eq(trial.server.n, 1);
  expect_request(&trial, 0, "POST /v1/leases/91/results", "1:40 2:41");
  cr_expect(request_is_done(&trial, 0));
  cr_expect(spool_is_empty(trial.agent.spool));
  cr_expect_not(held_is_alive(trial.agent.held, "91", 3), "the server has all of it");
  trial_release(&trial);
}

Test(agent_poster, posts_measurements_without_an_end_and_keeps_the_lease) {
  struct trial trial;
  trial_init(&trial, NULL, 0);
  held(&trial, "91");
  measured(&trial, "91", 40);
  agent_post_left(&trial.agent);
  cr_expect_not(request_is_done(&trial, 0));
  cr_expect(held_is_alive(trial.agent.held, "91", 3));
  trial_release(&trial);
}

Test(agent_poster, sorts_records_of_several_devices_by_lease) {
  struct trial trial;
  trial_init(&trial, NULL, 0);
  measured(&trial, "91", 1);
  measured(&trial, "92", 2);
  measured(&trial, "91", 3);
  append(&trial, "92", "done", json_true());
  measured(&trial, "91", 4);
  agent_post_left(&trial.agent);
  cr_expect_eq(trial.server.n, 2);
  expect_request(&trial, 0, "POST /v1/leases/91/results", "1:1 3:3 5:4");
  expect_request(&trial, 1, "POST /v1/leases/92/results", "2:2");
  cr_expect(request_is_done(&trial, 1));
  trial_release(&trial);
}

Test(agent_poster, ends_a_lease_without_measurements) {
  struct trial trial;
  trial_init(&trial, NULL, 0);
  append(&trial, "91", "done", json_true());
  agent_post_left(&trial.agent);
  expect_request(&trial, 0, "POST /v1/leases/91/results", "");
  cr_expect(request_is_done(&trial, 0));
  trial_release(&trial);
}

Test(agent_poster, releases_a_lease_after_its_measurements) {
  static const struct scripted script[] = {{200, "{}"}, {409, "{\"epoch\": 4}"}};
  struct trial trial;
  trial_init(&trial, script, 2);
  held(&trial, "91");
  measured(&trial, "91", 40);
  append_caused(&trial, "91", "the agent ends", "stopped");
  agent_post_left(&trial.agent);
  cr_expect_eq(trial.server.n, 2);
  expect_request(&trial, 0, "POST /v1/leases/91/results", "1:40");
  cr_expect_str_eq(json_string_value(json_object_get(trial.server.bodies[1], "cause")), "stopped");
  cr_expect_str_eq(trial.server.lines[1], "POST /v1/leases/91/release");
  cr_expect_str_eq(json_string_value(json_object_get(trial.server.bodies[1], "reason")),
                   "the agent ends");
  cr_expect(spool_is_empty(trial.agent.spool), "that it was not ours any more does not matter");
  cr_expect_not(held_is_alive(trial.agent.held, "91", 3));
  trial_release(&trial);
}

Test(agent_poster, posts_the_opening_time_with_results_and_releases) {
  struct trial trial;
  trial_init(&trial, NULL, 0);
  measured_opened(&trial, 40, 500);
  measured_opened(&trial, 41, 700); /* it was opened again */
  agent_post_left(&trial.agent);
  append_opened(&trial, "release", json_string("the agent ends"), 900);
  agent_post_left(&trial.agent);
  append_opened(&trial, "done", json_true(), 20);
  agent_post_left(&trial.agent);
  measured(&trial, "92", 1); /* of a lease in which nothing was opened, or an older agent's */
  append(&trial, "92", "release", json_string("the agent ends"));
  agent_post_left(&trial.agent);
  cr_assert_eq(trial.server.n, 5);
  expect_request(&trial, 0, "POST /v1/leases/91/results", "1:40 2:41");
  static const int expected[] = {700, 900, 20, -1, -1};
  for (size_t i = 0; i < ARRAY_LENGTH(expected); i++)
    cr_expect_eq(opening_us_of(&trial, i), expected[i], "request %zu: %d", i,
                 opening_us_of(&trial, i));
  trial_release(&trial);
}

Test(agent_poster, posts_the_opening_time_when_a_measurement_is_refused) {
  static const struct scripted script[] = {{422, "{\"detail\": \"bad\"}"},
                                           {422, "{\"detail\": \"bad\"}"}};
  struct trial trial;
  trial_init(&trial, script, 2);
  measured_opened(&trial, 40, 500);
  measured_opened(&trial, 41, 500);
  append_opened(&trial, "done", json_true(), 700);
  agent_post_left(&trial.agent);
  cr_assert_eq(trial.server.n, 3);
  static const int expected[] = {700, 500, 700};
  for (size_t i = 0; i < ARRAY_LENGTH(expected); i++)
    cr_expect_eq(opening_us_of(&trial, i), expected[i], "request %zu: %d", i,
                 opening_us_of(&trial, i));
  trial_release(&trial);
}

Test(agent_poster, posts_again_after_a_busy_server) {
  static const struct scripted script[] = {
      {503, "{\"detail\": \"busy\"}"}, {401, "{}"}, {200, "not json"}};
  struct trial trial;
  trial_init(&trial, script, 3);
  measured(&trial, "91", 40);
  append(&trial, "91", "release", json_string("x"));
  agent_post_left(&trial.agent);
  cr_assert_eq(trial.server.n, 5);
  for (size_t i = 0; i < 4; i++)
    expect_request(&trial, i, "POST /v1/leases/91/results", "1:40");
  cr_expect(spool_is_empty(trial.agent.spool));
  trial_release(&trial);
}

Test(agent_poster, takes_a_late_result_for_delivered_and_the_lease_for_lost) {
  static const struct scripted script[] = {{409, "{\"detail\": \"late\", \"epoch\": 4}"}};
  struct trial trial;
  trial_init(&trial, script, 1);
  held(&trial, "91");
  measured(&trial, "91", 40);
  measured(&trial, "91", 41);
  agent_post_left(&trial.agent);
  cr_expect_eq(trial.server.n, 1);
  cr_expect(spool_is_empty(trial.agent.spool));
  cr_expect_not(held_is_alive(trial.agent.held, "91", 3));
  trial_release(&trial);
}

Test(agent_poster, stores_a_measurement_that_is_refused_for_good_in_a_file) {
  static const struct scripted script[] = {{422, "{\"detail\": \"bad\"}"},
                                           {422, "{\"detail\": \"bad\"}"}};
  struct trial trial;
  trial_init(&trial, script, 2);
  measured(&trial, "91", 40);
  measured(&trial, "91", 41);
  measured(&trial, "91", 42);
  append(&trial, "91", "done", json_true());
  agent_post_left(&trial.agent);
  cr_assert_eq(trial.server.n, 3);
  expect_request(&trial, 0, "POST /v1/leases/91/results", "1:40 2:41 3:42");
  expect_request(&trial, 1, "POST /v1/leases/91/results", "1:40");
  cr_expect_not(request_is_done(&trial, 1));
  expect_request(&trial, 2, "POST /v1/leases/91/results", "2:41 3:42");
  cr_expect(request_is_done(&trial, 2));
  cleanup_free char *refused = refused_text(&trial);
  cr_expect_not_null(strstr(refused, "\"config\":40"));
  cr_expect_null(strstr(refused, "\"config\":41"));
  cr_expect(spool_is_empty(trial.agent.spool));
  trial_release(&trial);
}

Test(agent_poster, ends_the_lease_also_when_its_last_measurement_is_refused) {
  static const struct scripted script[] = {{409, "{\"detail\": \"another body\"}"}, {422, "{}"}};
  struct trial trial;
  trial_init(&trial, script, 2);
  measured(&trial, "91", 40);
  append(&trial, "91", "done", json_true());
  agent_post_left(&trial.agent);
  cr_assert_eq(trial.server.n, 2);
  expect_request(&trial, 1, "POST /v1/leases/91/results", "");
  cr_expect(request_is_done(&trial, 1));
  cleanup_free char *refused = refused_text(&trial);
  cr_expect_not_null(strstr(refused, "another body"));
  cr_expect(spool_is_empty(trial.agent.spool));
  trial_release(&trial);
}

Test(agent_poster, stores_all_results_of_a_lease_that_does_not_exist_in_a_file) {
  static const struct scripted script[] = {{404, "{\"detail\": \"no such lease\"}"}};
  struct trial trial;
  trial_init(&trial, script, 1);
  measured(&trial, "91", 40);
  measured(&trial, "91", 41);
  agent_post_left(&trial.agent);
  cr_expect_eq(trial.server.n, 1);
  cleanup_free char *refused = refused_text(&trial);
  cr_expect_not_null(strstr(refused, "\"config\":40"));
  cr_expect_not_null(strstr(refused, "\"config\":41"));
  cr_expect(spool_is_empty(trial.agent.spool));
  trial_release(&trial);
}

Test(agent_poster, stores_all_results_of_a_lease_of_another_identity_in_a_file) {
  static const struct scripted script[] = {
      {403, "{\"detail\": \"it was not granted to you\", \"lease\": \"91\"}"},
      {403, "{\"detail\": \"it was not granted to you\", \"lease\": \"91\"}"}};
  struct trial trial;
  trial_init(&trial, script, 2);
  measured(&trial, "91", 40);
  append(&trial, "91", "release", json_string("the agent ends"));
  agent_post_left(&trial.agent);
  cr_expect_eq(trial.server.n, 2);
  cleanup_free char *refused = refused_text(&trial);
  cr_expect_not_null(strstr(refused, "\"config\":40"));
  cr_expect(spool_is_empty(trial.agent.spool));
  trial_release(&trial);
}

Test(agent_poster, posts_again_after_a_proxys_404) {
  static const struct scripted script[] = {
      {404, "<html>default backend - 404</html>"}, {404, ""}, {404, "\"no\""}};
  struct trial trial;
  trial_init(&trial, script, 3);
  measured(&trial, "91", 40);
  agent_post_left(&trial.agent);
  cr_expect_eq(trial.server.n, 4);
  expect_request(&trial, 3, "POST /v1/leases/91/results", "1:40");
  cleanup_free char *refused = refused_text(&trial);
  cr_expect_str_eq(refused, "");
  trial_release(&trial);
}

/* What happens to one measurement when the first answer is this, and the next are 200. */
struct fate {
  struct scripted answer;
  size_t n_requests;  /* 2: it is posted again */
  bool is_kept_aside; /* in refused.jsonl */
  bool loses_its_lease;
};

static void expect_fates(const struct fate *fates, size_t n) {
  for (size_t i = 0; i < n; i++) {
    struct trial trial;
    const struct scripted *answer = &fates[i].answer;
    trial_init(&trial, answer, 1);
    held(&trial, "91");
    measured(&trial, "91", 40);
    agent_post_left(&trial.agent);
    cleanup_free char *refused = refused_text(&trial);
    cr_expect_eq(trial.server.n, fates[i].n_requests, "%d %s: %zu", answer->status, answer->body,
                 trial.server.n);
    cr_expect_eq(refused[0] != '\0', fates[i].is_kept_aside, "%d %s", answer->status, answer->body);
    cr_expect_neq(held_is_alive(trial.agent.held, "91", 3), fates[i].loses_its_lease, "%d %s",
                  answer->status, answer->body);
    cr_expect(spool_is_empty(trial.agent.spool));
    trial_release(&trial);
  }
}

Test(agent_poster, the_status_decides_whether_a_measurement_is_posted_again) {
  static const struct fate fates[] = {
      {{200, "{}"}, 1, false, false},
      {{302, "{}"}, 2, false, false},
      {{400, "{\"detail\": \"x\"}"}, 1, true, false},
      {{401, "{\"detail\": \"x\"}"}, 2, false, false},
      {{403, "{\"detail\": \"x\"}"}, 2, false, false},
      {{403, "{\"detail\": \"x\", \"lease\": \"91\"}"}, 1, true, false},
      {{404, "{\"detail\": \"x\"}"}, 1, true, false},
      {{404, "{}"}, 2, false, false},
      {{408, "{\"detail\": \"x\"}"}, 2, false, false},
      {{409, "{\"detail\": \"x\"}"}, 1, true, false},
      {{409, "{\"detail\": \"x\", \"epoch\": null}"}, 1, false, true},
      {{410, "{\"detail\": \"x\"}"}, 1, true, false},
      {{412, "{\"detail\": \"x\"}"}, 1, true, false},
      {{413, "{\"detail\": \"x\"}"}, 1, true, false},
      {{422, "{\"detail\": \"x\"}"}, 1, true, false},
      {{429, "{\"detail\": \"x\"}"}, 2, false, false},
      {{500, "{\"detail\": \"x\"}"}, 2, false, false},
      {{503, "{\"detail\": \"x\"}"}, 2, false, false},
      {{504, "<html>"}, 2, false, false},
  };
  expect_fates(fates, ARRAY_LENGTH(fates));
}

Test(agent_poster, a_kind_decides_it_before_the_status) {
  static const struct fate fates[] = {
      {{500, "{\"detail\": \"x\", \"kind\": \"invalid\"}"}, 1, true, false},
      {{500, "{\"detail\": \"x\", \"kind\": \"conflict\", \"epoch\": 4}"}, 1, false, true},
      {{422, "{\"detail\": \"x\", \"kind\": \"forbidden\"}"}, 2, false, false},
      {{422, "{\"detail\": \"x\", \"kind\": \"contention\"}"}, 2, false, false},
      {{422, "{\"detail\": \"x\", \"kind\": \"damaged\"}"}, 2, false, false},
      {{422, "{\"detail\": \"x\", \"kind\": \"of tomorrow\"}"}, 1, true, false},
  };
  expect_fates(fates, ARRAY_LENGTH(fates));
}

/* Results wait, three times, for a server that may accept their code later; then they are posted
 * without it. */
Test(agent_poster, an_answer_decides_how_often_code_is_uploaded) {
  static const struct {
    struct scripted answer;
    size_t n_puts;
    bool has_code;
  } cases[] = {
      {{200, "{}"}, 1, true},  {{201, "{}"}, 1, true},  {{302, ""}, 3, false},
      {{403, "{}"}, 3, false}, {{404, "{}"}, 3, false}, {{404, "{\"detail\": \"x\"}"}, 1, false},
      {{409, "{}"}, 1, false}, {{413, "{}"}, 1, false}, {{422, "{}"}, 1, false},
      {{429, "{}"}, 3, false}, {{500, "{}"}, 3, false},
  };
  for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
    struct trial trial;
    struct error error;
    uint64_t number;
    char digest[DIGEST_TEXT_SIZE];
    const struct scripted answer = cases[i].answer, script[] = {answer, answer, answer};
    trial_init(&trial, script, cases[i].n_puts);
    trial.agent.stored = json_object();
    cleanup_free char *path = xasprintf("%s/code", trial.agent.state);
    cr_assert(file_write_atomically(path, "{}", 2, 0600, &error), "%s", error.message);
    struct digest of_code = digest_of("{}", 2);
    cleanup_json json_t *record = json_pack(
        "{s:s, s:i, s:{s:i, s:s, s:s}, s:s}", "lease", "91", "epoch", 3, "measurement", "config",
        40, "outcome", "correct", "object", digest_format(&of_code, digest), "object_path", path);
    cr_assert(spool_append(trial.agent.spool, record, &number, &error), "%s", error.message);

    agent_post_left(&trial.agent);

    cleanup_free char *put = xasprintf("PUT /v1/blobs/%s", digest);
    cr_assert_eq(trial.server.n, cases[i].n_puts + 1, "%d: %zu", answer.status, trial.server.n);
    for (size_t k = 0; k < cases[i].n_puts; k++)
      cr_expect_str_eq(trial.server.lines[k], put);
    expect_request(&trial, cases[i].n_puts, "POST /v1/leases/91/results", "1:40");
    json_t *posted =
        json_array_get(json_object_get(trial.server.bodies[cases[i].n_puts], "measurements"), 0);
    cr_expect_eq(json_object_get(posted, "object") != NULL, cases[i].has_code, "%d", answer.status);
    json_decref(trial.agent.stored);
    trial_release(&trial);
  }
}

Test(agent_poster, leaves_the_spool_when_the_agent_stops) {
  struct trial trial;
  trial_init(&trial, NULL, 0);
  measured(&trial, "91", 40);
  trial.agent.stopping = true;
  agent_post_left(&trial.agent);
  cr_expect_eq(trial.server.n, 0);
  cr_expect_not(spool_is_empty(trial.agent.spool));
  trial_release(&trial);
}

Test(agent_poster, waits_longer_after_each_failure_and_as_long_as_the_server_requests) {
  struct backoff backoff = backoff_new(100, 400);
  int64_t bounds_ms[][2] = {{50, 100}, {100, 200}, {200, 400}, {200, 400}};
  for (size_t i = 0; i < ARRAY_LENGTH(bounds_ms); i++) {
    int64_t wait_ms = backoff_next_ms(&backoff, 0);
    cr_expect(wait_ms >= bounds_ms[i][0] && wait_ms <= bounds_ms[i][1], "%d", (int)wait_ms);
  }
  cr_expect_geq(backoff_next_ms(&backoff, 7), 7000);
  cr_expect_leq(backoff_next_ms(&backoff, 1000000), 301000, "an absurd Retry-After is cut");
  backoff_reset(&backoff);
  cr_expect_leq(backoff_next_ms(&backoff, 0), 100);
}
