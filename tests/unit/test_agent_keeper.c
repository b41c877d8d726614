/* The keeper: what becomes of what the server answers to renewals. */
#include "agent_trial.h"

static void *keep(void *context) {
  agent_keep(context);
  return NULL;
}

/* Keeps until the server was asked `n` times: a heartbeat, then the renewal of a lease that is
 * due. */
static void keep_for(struct trial *trial, size_t n) {
  static _Atomic uint64_t current = 17;
  pthread_t keeper;
  trial->agent.id = xstrdup("ab");
  held_add(trial->agent.held, &(struct held_grant){.lease = "91",
                                                   .epoch = 3,
                                                   .requested_ms = held_clock_ms() - 1000001,
                                                   .expires_in_ms = 3600000,
                                                   .renew_every_ms = 1000000,
                                                   .current = &current});
  pthread_create(&keeper, NULL, keep, &trial->agent);
  for (int i = 0; i < 20000 && trial->server.n_answered < n; i++)
    usleep(10000);
  agent_signal(&trial->agent, &trial->agent.is_posted);
  agent_signal(&trial->agent, &trial->agent.must_renew);
  pthread_join(keeper, NULL);
  free(trial->agent.id);
  cr_assert_eq(trial->server.n, n);
  cr_expect_str_eq(trial->server.lines[1], "POST /v1/leases/91/renew");
  cr_expect_eq(json_integer_value(json_object_get(trial->server.bodies[1], "config")), 17);
}

static const struct scripted heartbeat = {200,
                                          "{\"draining\": false, \"heartbeat_every_ms\": 600000}"};

Test(agent_keeper, a_lease_keeps_the_configs_in_its_renewal) {
  struct trial trial;
  const struct scripted script[] = {heartbeat,
                                    {200, "{\"expires_in_ms\": 3600000, \"configs\": [[0, 24]]}"}};
  trial_init(&trial, script, ARRAY_LENGTH(script));
  keep_for(&trial, 2);
  cr_expect(held_is_alive(trial.agent.held, "91", 3));
  cr_expect(held_has(trial.agent.held, "91", 3, 23));
  cr_expect_not(held_has(trial.agent.held, "91", 3, 24));
  trial_release(&trial);
}

Test(agent_keeper, a_renewal_without_valid_configs_limits_nothing) {
  static const char *const answers[] = {"{\"expires_in_ms\": 3600000}",
                                        "{\"expires_in_ms\": 3600000, \"configs\": 7}",
                                        "{\"expires_in_ms\": 3600000, \"configs\": [[0, -1]]}"};
  for (size_t i = 0; i < ARRAY_LENGTH(answers); i++) {
    struct trial trial;
    const struct scripted script[] = {heartbeat, {200, answers[i]}};
    trial_init(&trial, script, ARRAY_LENGTH(script));
    keep_for(&trial, 2);
    cr_expect(held_is_alive(trial.agent.held, "91", 3));
    cr_expect(held_has(trial.agent.held, "91", 3, 24), "%s", answers[i]);
    trial_release(&trial);
  }
}

Test(agent_keeper, a_lease_that_the_server_does_not_renew_is_lost) {
  struct trial trial;
  const struct scripted script[] = {heartbeat,
                                    {409, "{\"detail\": \"another holds it\", \"epoch\": 4}"}};
  trial_init(&trial, script, ARRAY_LENGTH(script));
  keep_for(&trial, 2);
  cr_expect_not(held_is_alive(trial.agent.held, "91", 3));
  trial_release(&trial);
}

Test(agent_keeper, an_answer_decides_whether_a_lease_is_lost) {
  static const struct {
    struct scripted answer;
    bool is_lost;
  } cases[] = {
      {{302, ""}, false},
      {{401, "{\"detail\": \"x\"}"}, false},
      {{403, "{\"detail\": \"x\"}"}, false},
      {{403, "{\"detail\": \"x\", \"lease\": \"91\"}"}, true},
      {{404, "{\"detail\": \"x\"}"}, true},
      {{404, "<html>"}, false},
      {{408, "{\"detail\": \"x\"}"}, false},
      {{409, "{\"detail\": \"x\"}"}, true},
      {{422, "{\"detail\": \"x\"}"}, false},
      {{429, "{\"detail\": \"x\"}"}, false},
      {{500, "{\"detail\": \"x\"}"}, false},
      {{503, "{\"detail\": \"x\"}"}, false},
      {{503, "{\"detail\": \"x\", \"kind\": \"of tomorrow\"}"}, false},
  };
  for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
    struct trial trial;
    const struct scripted script[] = {heartbeat, cases[i].answer};
    trial_init(&trial, script, ARRAY_LENGTH(script));
    keep_for(&trial, 2);
    cr_expect_neq(held_is_alive(trial.agent.held, "91", 3), cases[i].is_lost, "%d %s",
                  cases[i].answer.status, cases[i].answer.body);
    trial_release(&trial);
  }
}

Test(agent_keeper, the_kind_decides_before_the_status_whether_a_lease_is_lost) {
  static const char *const bodies[] = {"{\"detail\": \"x\", \"kind\": \"conflict\"}",
                                       "{\"detail\": \"x\", \"kind\": \"missing\"}"};
  for (size_t i = 0; i < ARRAY_LENGTH(bodies); i++) {
    struct trial trial;
    const struct scripted script[] = {heartbeat, {500, bodies[i]}};
    trial_init(&trial, script, ARRAY_LENGTH(script));
    keep_for(&trial, 2);
    cr_expect_not(held_is_alive(trial.agent.held, "91", 3), "%s", bodies[i]);
    trial_release(&trial);
  }
}

/* With a token of its own, which is not known any more at 401 alone. */
Test(agent_keeper, an_answer_to_a_heartbeat_ends_the_agent_or_lets_it_enrol_again) {
  static const struct {
    struct scripted answer;
    bool ends, enrols;
  } cases[] = {
      {{200, "{}"}, false, false},
      {{302, ""}, false, false},
      {{401, "{\"detail\": \"x\"}"}, true, false},
      {{401, "<html>"}, true, false},
      {{403, "{\"detail\": \"x\"}"}, false, false},
      {{404, "{\"detail\": \"x\"}"}, false, true},
      {{404, "<html>"}, false, false},
      {{409, "{\"detail\": \"x\"}"}, false, false},
      {{422, "{\"detail\": \"x\"}"}, false, false},
      {{429, "{\"detail\": \"x\"}"}, false, false},
      {{503, "{\"detail\": \"x\"}"}, false, false},
  };
  for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
    struct trial trial;
    pthread_t keeper;
    trial_init(&trial, &cases[i].answer, 1);
    trial.agent.id = xstrdup("ab");
    trial.agent.name = (char *)"n";
    trial.agent.own_token = (char *)"t";
    size_t n = cases[i].enrols ? 2 : 1;
    pthread_create(&keeper, NULL, keep, &trial.agent);
    for (int k = 0; k < 20000 && trial.server.n_answered < n; k++)
      usleep(10000);
    if (cases[i].ends)
      agent_wait(&trial.agent, 10000, NULL);
    agent_signal(&trial.agent, &trial.agent.is_posted);
    agent_signal(&trial.agent, &trial.agent.must_renew);
    pthread_join(keeper, NULL);
    cr_expect_eq(trial.server.n, n, "%d: %zu", cases[i].answer.status, trial.server.n);
    cr_expect_str_eq(trial.server.lines[0], "POST /v1/agents/ab/heartbeat");
    if (cases[i].enrols)
      cr_expect_str_eq(trial.server.lines[1], "POST /v1/agents");
    cr_expect_eq(agent_is_stopping(&trial.agent), cases[i].ends, "%d", cases[i].answer.status);
    cr_expect_eq(trial.agent.code, cases[i].ends ? EXIT_REFUSED : EXIT_OK);
    free(trial.agent.id);
    trial_release(&trial);
  }
}
