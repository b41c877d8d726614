/* Enrolling and the choice of a token: what an agent does after each answer. */
#include "agent_trial.h"

static const struct scripted enrolled = {200, "{\"agent\": \"ab\"}"};

/* The options of a run. */
static struct options *options_of_token(void) {
  static const struct option_spec specs[] = {
      {.name = "token", .type = OPTION_TEXT, .argument = "TOKEN", .help = "x"}};
  static const struct command_spec command = {
      .name = "run", .arguments = "", .options = specs, .n_options = 1};
  char *arguments[] = {(char *)"--token=wt_options", NULL};
  struct options *options;
  options_parse("wavetune-agent", &command, 1, arguments, &options);
  return options;
}

/* Enrols with this first answer; the next is good. */
static void expect_enrolment(int status, const char *body, size_t n_requests) {
  struct trial trial;
  const struct scripted script[] = {{status, body}, enrolled};
  int code = EXIT_OK;
  trial_init(&trial, script, ARRAY_LENGTH(script));
  trial.agent.name = (char *)"n";
  trial.agent.own_token = (char *)"t";
  bool is_enrolled = agent_enrol(&trial.agent, &code);
  bool is_refused = n_requests == 1 && status != 200;
  cr_expect_eq(trial.server.n, n_requests, "%d %s: %zu", status, body, trial.server.n);
  cr_expect_neq(is_enrolled, is_refused, "%d %s", status, body);
  cr_expect_eq(code, is_refused ? EXIT_REFUSED : EXIT_OK, "%d %s", status, body);
  free(trial.agent.id);
  trial_release(&trial);
}

Test(agent_enrol, a_status_decides_whether_it_is_tried_again) {
  static const int refused[] = {400, 401, 403, 404, 405, 409, 410, 412, 413, 414, 422, 431};
  static const int later[] = {302, 408, 429, 500, 502, 503, 504};
  for (size_t i = 0; i < ARRAY_LENGTH(refused); i++)
    expect_enrolment(refused[i], "{\"detail\": \"x\"}", 1);
  for (size_t i = 0; i < ARRAY_LENGTH(later); i++)
    expect_enrolment(later[i], "{\"detail\": \"x\"}", 2);
  expect_enrolment(200, enrolled.body, 1);
  expect_enrolment(200, "<html>", 2);
  expect_enrolment(200, "{\"agent\": 7}", 2);
  expect_enrolment(404, "<html>", 2);
}

Test(agent_enrol, a_kind_decides_it_before_the_status) {
  expect_enrolment(503, "{\"detail\": \"x\", \"kind\": \"forbidden\"}", 1);
  expect_enrolment(422, "{\"detail\": \"x\", \"kind\": \"rate\"}", 2);
  expect_enrolment(422, "{\"detail\": \"x\", \"kind\": \"deadline\"}", 2);
  expect_enrolment(422, "{\"detail\": \"x\", \"kind\": \"of tomorrow\"}", 1);
}

/* Chooses with these lines in STATE/token, and with the option --token. */
struct choice {
  const char *tokens;
  size_t n_script;
  struct scripted script[3];
  size_t n_requests;
  const char *own_token; /* afterwards; NULL: it enrols anew, */
  bool is_newcomer;      /* and before it posts what is left */
};

static void expect_choice(const struct choice *choice) {
  struct trial trial;
  struct error error;
  trial_init(&trial, choice->script, choice->n_script);
  struct options *options = options_of_token();
  trial.agent.options = options;
  cleanup_free char *path = xasprintf("%s/token", trial.agent.state);
  cr_assert(file_write_atomically(path, choice->tokens, strlen(choice->tokens), 0600, &error), "%s",
            error.message);

  own_token_choose(&trial.agent);

  const char *own_token = trial.agent.own_token ? trial.agent.own_token : "none";
  int status = choice->script[0].status;
  cr_expect_eq(trial.server.n, choice->n_requests, "%d: %zu", status, trial.server.n);
  cr_expect_str_eq(own_token, choice->own_token ? choice->own_token : "none", "%d: %s", status,
                   own_token);
  cr_expect_eq(trial.agent.is_newcomer, choice->is_newcomer, "%d", status);
  free(trial.agent.own_token);
  free(trial.agent.own_token_before);
  options_free(options);
  trial_release(&trial);
}

Test(agent_enrol, an_answer_decides_which_token_is_used) {
  static const char no[] = "{\"detail\": \"x\"}";
  static const struct choice choices[] = {
      {"wt_new\n", 1, {{200, "{}"}}, 1, "wt_new", false},
      {"wt_new\n", 1, {{403, no}}, 1, "wt_new", false},
      {"wt_new\n", 1, {{404, no}}, 1, "wt_new", false},
      {"wt_new\n", 1, {{422, no}}, 1, "wt_new", false},
      {"wt_new\n", 2, {{503, no}, {200, "{}"}}, 2, "wt_new", false},
      {"wt_new\n", 2, {{404, "<html>"}, {200, "{}"}}, 2, "wt_new", false},
      {"wt_new\n", 2, {{401, no}, {200, "{}"}}, 2, NULL, false},
      {"wt_new\n", 2, {{401, no}, {403, no}}, 2, NULL, true},
      {"wt_new\n", 2, {{401, no}, {401, no}}, 2, NULL, false},
      {"wt_new\n", 3, {{401, no}, {429, no}, {403, no}}, 3, NULL, true},
      {"wt_new\nwt_former\n", 1, {{200, "{}"}}, 1, "wt_new", false},
      {"wt_new\nwt_former\n", 2, {{401, no}, {200, "{}"}}, 2, "wt_former", false},
      {"wt_new\nwt_former\n", 3, {{401, no}, {401, no}, {403, no}}, 3, NULL, true},
  };
  for (size_t i = 0; i < ARRAY_LENGTH(choices); i++)
    expect_choice(&choices[i]);
}
