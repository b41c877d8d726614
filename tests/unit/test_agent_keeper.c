/* The keeper: what becomes of what the server answers to renewals. */
#include "agent_trial.h"

static void *keep(void *context) {
  agent_keep(context);
  return NULL;
}

/* Keeps until the server was asked `n` times: a heartbeat, then the renewal of a lease that is due. */
static void keep_for(struct trial *trial, size_t n) {
  static _Atomic uint64_t current = 17;
  pthread_t keeper;
  trial->agent.id = xstrdup("ab");
  held_add(trial->agent.held, &(struct held_grant){.lease = "91",
                                                   .epoch = 3,
                                                   .asked_ms = held_clock_ms() - 1000001,
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

static const struct scripted heartbeat = {200, "{\"draining\": false, \"heartbeat_every_ms\": 600000}"};

Test(agent_keeper, a_lease_keeps_the_configs_that_its_renewal_says) {
  struct trial trial;
  const struct scripted script[] = {heartbeat, {200, "{\"expires_in_ms\": 3600000, \"configs\": [[0, 24]]}"}};
  trial_init(&trial, script, ARRAY_LENGTH(script));
  keep_for(&trial, 2);
  cr_expect(held_is_alive(trial.agent.held, "91", 3));
  cr_expect(held_has(trial.agent.held, "91", 3, 23));
  cr_expect_not(held_has(trial.agent.held, "91", 3, 24));
  trial_release(&trial);
}

Test(agent_keeper, a_lease_keeps_all_configs_where_the_server_says_nothing_of_them_or_nonsense) {
  static const char *const answers[] = {"{\"expires_in_ms\": 3600000}", "{\"expires_in_ms\": 3600000, \"configs\": 7}",
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
  const struct scripted script[] = {heartbeat, {409, "{\"detail\": \"another holds it\", \"epoch\": 4}"}};
  trial_init(&trial, script, ARRAY_LENGTH(script));
  keep_for(&trial, 2);
  cr_expect_not(held_is_alive(trial.agent.held, "91", 3));
  trial_release(&trial);
}
