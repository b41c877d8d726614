/* The agent's own token, which it gets when it enrols with an enrolment token and replaces before
 * it ends.
 *
 * STATE/token holds it in a line. While it is being replaced there are two lines, the new one
 * first: the server lets the old one end only when the new one was used, and both are on the disk
 * before that. So it does not matter where the process dies. STATE/boot is the boot nonce of an
 * enrolment that was not answered yet: with the same nonce it costs no second use. Threads: the
 * main one, and the keeper, which is the same. Memory: the agent owns the texts. */
#include "agent/run/agent.h"
#include "agent/run/answers.h"
#include "common/base/file.h"
#include "common/base/log.h"

#define TOKEN_FILE_MAX 1024
#define BACKOFF_LEAST_MS 500
#define BACKOFF_MOST_MS 10000

/* What every client sends from now on; NULL: what the options say. */
static void clients_set(struct agent *agent, const char *token) {
  if (!token)
    token = option_text(agent->options, "token");
  http_client_set_token(agent->keeper_client, token);
  http_client_set_token(agent->poster_client, token);
  for (size_t i = 0; i < agent->n_threads; i++)
    http_client_set_token(agent->threads[i].client, token);
}

static bool state_write(struct agent *agent, const char *name, const char *text,
                        struct error *error) {
  cleanup_free char *path = xasprintf("%s/%s", agent->state, name);
  return file_write_atomically(path, text, strlen(text), 0600, error);
}

static bool tokens_write(struct agent *agent, const char *token, const char *before,
                         struct error *error) {
  cleanup_free char *text = xasprintf("%s\n%s%s", token, before ? before : "", before ? "\n" : "");
  return state_write(agent, "token", text, error);
}

static void tokens_set(struct agent *agent, const char *token, const char *before) {
  char *was = agent->own_token, *was_before = agent->own_token_before;
  agent->own_token = token ? xstrdup(token) : NULL;
  agent->own_token_before = before ? xstrdup(before) : NULL;
  free(was);
  free(was_before);
}

bool own_token_begin(struct agent *agent, const char *token, struct error *error) {
  if (!tokens_write(agent, token, NULL, error))
    return false;
  tokens_set(agent, token, NULL);
  clients_set(agent, token);
  return true;
}

bool own_token_replace(struct agent *agent, const char *token, struct error *error) {
  if (!tokens_write(agent, token, agent->own_token, error))
    return false;
  tokens_set(agent, token, agent->own_token);
  clients_set(agent, token);
  return true;
}

void own_token_worked(struct agent *agent) {
  struct error error;
  if (!agent->own_token_before)
    return;
  if (!tokens_write(agent, agent->own_token, NULL, &error)) {
    log_warning("agent: its former token stays in %s/token: %s", agent->state, error.message);
    return; /* it comes again */
  }
  tokens_set(agent, agent->own_token, NULL);
  log_info("agent: its new token works");
}

bool own_token_fall_back(struct agent *agent) {
  struct error error;
  if (!agent->own_token_before)
    return false;
  log_warning("agent: the server does not know its new token; it goes on with the former one");
  if (!tokens_write(agent, agent->own_token_before, NULL, &error))
    log_warning("agent: %s", error.message);
  tokens_set(agent, agent->own_token_before, NULL);
  clients_set(agent, agent->own_token);
  return true;
}

static void tokens_read(struct agent *agent) {
  struct error ignored;
  size_t size;
  cleanup_free char *path = xasprintf("%s/token", agent->state), *text = NULL;
  if (!file_read(path, TOKEN_FILE_MAX, &text, &size, &ignored))
    return;
  char *end = strchr(text, '\n'), *second = end ? end + 1 : NULL;
  if (!end)
    return;
  *end = '\0';
  end = strchr(second, '\n');
  if (end)
    *end = '\0';
  if (token_is_plain(text))
    tokens_set(agent, text, end && token_is_plain(second) ? second : NULL);
}

/* Asks for something that every agent may read. False: why not, by its kind. */
static bool token_try(struct agent *agent, const char *token, int64_t *ret_retry_after_s,
                      struct error *error) {
  clients_set(agent, token);
  cleanup_server_answer struct server_answer answer =
      server_ask(agent->keeper_client, "GET", "/v1/kernels?limit=1", NULL, REQUEST_MS);
  *ret_retry_after_s = answer.retry_after_s;
  if (!answer.is_ok)
    *error = answer.error;
  if (answer_is_for_later(&answer))
    log_warning("agent: its token cannot be tried yet: %s", answer.error.message);
  return answer.is_ok;
}

/* One try; false: again later. */
static bool choose_once(struct agent *agent, int64_t *ret_retry_after_s) {
  struct error error;
  while (agent->own_token) {
    bool is_ok = token_try(agent, agent->own_token, ret_retry_after_s, &error);
    if (!is_ok && error_is_retryable(error.kind))
      return false;
    if (is_ok || error.kind != ERROR_UNAUTHENTICATED) {
      own_token_worked(agent);
      return true;
    }

    if (own_token_fall_back(agent))
      continue;
    log_warning("agent: the token in %s/token has ended; it enrols as a new agent", agent->state);
    tokens_set(agent, NULL, NULL);
    free(TAKE(agent->id));
  }

  bool is_ok = token_try(agent, NULL, ret_retry_after_s, &error);
  agent->is_newcomer = !is_ok && error.kind == ERROR_FORBIDDEN;
  return is_ok || !error_is_retryable(error.kind);
}

void own_token_choose(struct agent *agent) {
  struct backoff backoff = backoff_new(BACKOFF_LEAST_MS, BACKOFF_MOST_MS);
  int64_t retry_after_s = 0;
  tokens_read(agent);
  if (!agent->own_token && spool_is_empty(agent->spool))
    return;
  while (!agent_is_stopping(agent) && !choose_once(agent, &retry_after_s))
    agent_wait(agent, backoff_next_ms(&backoff, retry_after_s), NULL);
}

void boot_keep(struct agent *agent) {
  struct error error;
  size_t size;
  cleanup_free char *path = xasprintf("%s/boot", agent->state), *text = NULL;
  if (agent->own_token)
    return;
  if (file_read(path, sizeof agent->boot, &text, &size, &error) && size == sizeof agent->boot &&
      strspn(text, "0123456789abcdef") == size - 1 && text[size - 1] == '\n') {
    memcpy(agent->boot, text, size - 1);
    return;
  }
  cleanup_free char *line = xasprintf("%s\n", agent->boot);
  if (!state_write(agent, "boot", line, &error))
    log_warning("agent: an enrolment whose answer is lost would be another agent: %s",
                error.message);
}

void boot_forget(struct agent *agent) {
  cleanup_free char *path = xasprintf("%s/boot", agent->state);
  unlink(path);
}
