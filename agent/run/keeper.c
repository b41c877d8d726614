/* The keeper: enrols the agent, sends heartbeats, replaces its token, and renews its leases.
 *
 * An agent that enrols with an enrolment token is issued a token of its own, which it replaces
 * before that expires. STATE/token holds it in one line. While it is being replaced there are two
 * lines, the new token first: the server ends the old token only after the first use of the new
 * one, and both are on the disk before that use. So the process may die at any point. STATE/boot
 * holds the boot nonce of an enrolment that has not been answered yet: enrolling again with the
 * same nonce is not a second use of the enrolment token. Threads: one, the keeper's. Memory: the
 * agent owns the texts. */
#include "agent/run/keeper.h"

#include "agent/run/yield.h"
#include "common/base/file.h"
#include "common/base/log.h"

#define RENEW_MOST_MS 5000
#define RENEW_LEAST_MS 500
#define LOOK_MS 1000
#define MACHINE_ID_MAX 4096
#define TOKEN_FILE_MAX 1024
#define BACKOFF_LEAST_MS 500
#define BACKOFF_MOST_MS 10000

struct keeper {
  struct agent *agent;
  int64_t every_ms;                                /* between heartbeats */
  int64_t heartbeat_ms, enrol_ms, rotate_again_ms; /* when next; the last two: after a failure */
  bool is_draining;
  struct backoff backoff;
  struct rng rng;
};

static bool state_write(struct agent *agent, const char *name, const char *text,
                        struct error *error) {
  cleanup_free char *path = xasprintf("%s/%s", agent->state, name);
  return file_write_atomically(path, text, strlen(text), 0600, error);
}

/* Sets the token that every client sends from now on; NULL: that of the options. */
static void clients_set(struct agent *agent, const char *token) {
  if (!token)
    token = option_text(agent->options, "token");
  http_client_set_token(agent->keeper_client, token);
  http_client_set_token(agent->poster_client, token);
  array_foreach (thread, agent->threads, agent->n_threads)
    http_client_set_token(thread->client, token);
}

static void tokens_set(struct agent *agent, const char *token, const char *before) {
  char *was = agent->own_token, *was_before = agent->own_token_before;
  agent->own_token = token ? xstrdup(token) : NULL;
  agent->own_token_before = before ? xstrdup(before) : NULL;
  free(was);
  free(was_before);
}

/* Writes the tokens to the disk and makes all clients send `token`; `before` (NULL: none) is the
 * one that it replaces. False: nothing changed. */
static bool tokens_keep(struct agent *agent, const char *token, const char *before,
                        struct error *error) {
  cleanup_free char *text = xasprintf("%s\n%s%s", token, before ? before : "", before ? "\n" : "");
  if (!state_write(agent, "token", text, error))
    return false;
  tokens_set(agent, token, before);
  clients_set(agent, agent->own_token);
  return true;
}

/* Forgets the former token: the server has accepted the present one. */
static void token_worked(struct agent *agent) {
  struct error error;
  if (!agent->own_token_before)
    return;
  if (tokens_keep(agent, agent->own_token, NULL, &error))
    log_info("agent: its new token works");
  else /* it is tried again after the next heartbeat */
    log_warning("agent: its former token is still in %s/token: %s", agent->state, error.message);
}

/* Returns to the former token, because the server does not accept the present one. False: there is
 * no former one. */
static bool token_fall_back(struct agent *agent) {
  struct error error;
  if (!agent->own_token_before)
    return false;

  log_warning("agent: the server does not accept its new token; it continues with the former one");
  if (!tokens_keep(agent, agent->own_token_before, NULL, &error)) {
    log_warning("agent: %s", error.message);
    tokens_set(agent, agent->own_token_before, NULL);
    clients_set(agent, agent->own_token);
  }
  return true;
}

/* Tries a token with a request that every agent may send. False: *error says why it failed. */
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

/* Tries the agent's tokens, then that of the options. False: try again later. */
static bool choose_once(struct agent *agent, int64_t *ret_retry_after_s) {
  struct error error;
  while (agent->own_token) {
    bool is_ok = token_try(agent, agent->own_token, ret_retry_after_s, &error);
    if (!is_ok && error_is_retryable(error.kind))
      return false;
    if (is_ok || error.kind != ERROR_UNAUTHENTICATED) {
      token_worked(agent);
      return true;
    }
    if (token_fall_back(agent))
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
  struct error ignored;
  size_t size;
  cleanup_free char *path = xasprintf("%s/token", agent->state), *text = NULL;
  if (file_read(path, TOKEN_FILE_MAX, &text, &size, &ignored)) {
    /* A line without its end was not written completely. */
    char *rest = text, *token = strsep(&rest, "\n"), *before = rest ? strsep(&rest, "\n") : NULL;
    if (before && token_is_plain(token))
      tokens_set(agent, token, rest && token_is_plain(before) ? before : NULL);
  }

  if (!agent->own_token && spool_is_empty(agent->spool))
    return;

  while (!agent_is_stopping(agent) && !choose_once(agent, &retry_after_s))
    agent_back_off(agent, &backoff, retry_after_s);
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
    log_warning("agent: if the answer to its enrolment is lost, it will enrol as another agent: %s",
                error.message);
}

/* A digest of the machine's id and the host's name, or of the name alone where there is no id, as
 * in many containers. */
static char *machine_digest(void) {
  struct error ignored;
  char host[256] = "", text[DIGEST_TEXT_SIZE];
  cleanup_free char *id = NULL;
  size_t size;
  if (gethostname(host, sizeof host - 1) < 0)
    host[0] = '\0';
  bool has_id = file_read("/etc/machine-id", MACHINE_ID_MAX, &id, &size, &ignored);
  cleanup_free char *both =
      xasprintf("%.*s\n%s", has_id ? (int)strcspn(id, "\n") : 0, has_id ? id : "", host);
  struct digest digest = digest_of(both, strlen(both));
  return xstrdup(digest_format(&digest, text));
}

static json_t *enrol_body(struct agent *agent) {
  /* An agent with a token of its own, or without any token but with a certificate, is identified by
   * it. */
  bool is_known = agent->own_token || !option_text(agent->options, "token");
  struct enrolment_device *devices = xcalloc(agent->n_threads, sizeof *devices);
  struct enrolment enrolment = {.agent = is_known ? NULL : agent_id(agent),
                                .boot = xstrdup(agent->boot),
                                .name = xstrdup(agent->name),
                                .version = xstrdup(WAVETUNE_VERSION),
                                .machine = machine_digest(),
                                .devices = {agent->n_threads, devices}};

  for (size_t i = 0; i < agent->n_threads; i++) {
    const struct device_seen *device = agent->threads[i].device;
    json_t *facts = json_object_get(device->json, "facts"), *run;
    size_t k;
    devices[i].device = xstrdup(device->name);
    devices[i].backend = xstrdup(device->backend);
    devices[i].environment_json = environment_to_json(&device->environment);
    devices[i].facts = facts ? json_incref(facts) : json_object();
    devices[i].runs.all = xcalloc(json_array_size(device->runs), sizeof(char *));
    json_array_foreach (device->runs, k, run)
      devices[i].runs.all[devices[i].runs.n++] = xstrdup(json_string_value(run));
  }

  if (agent->trusted.n)
    enrolment.trusted_keys.all = xcalloc(agent->trusted.n, sizeof(char *));
  array_foreach (key, agent->trusted.all, agent->trusted.n) {
    char text[DIGEST_TEXT_SIZE];
    enrolment.trusted_keys.all[enrolment.trusted_keys.n++] = xstrdup(digest_format(&key->id, text));
  }

  json_t *body = record_write(&enrolment_record, &enrolment);
  record_release(&enrolment_record, &enrolment);
  return body;
}

static void id_keep(struct agent *agent, const char *id) {
  struct error error;
  cleanup_free char *line = xasprintf("%s\n", id);
  pthread_mutex_lock(&agent->mutex);
  bool is_new = !string_equal(agent->id, id);
  if (is_new) {
    free(agent->id);
    agent->id = xstrdup(id);
  }

  pthread_mutex_unlock(&agent->mutex);
  if (is_new && !state_write(agent, "agent", line, &error))
    log_error("agent: the next run will enrol as another agent: %s", error.message);
}

static void rotation_plan(struct agent *agent, int64_t rotate_in_ms) {
  agent->rotate_at_ms = rotate_in_ms == FIELD_NONE ? 0 : clock_monotonic_ms() + rotate_in_ms;
}

/* Turns an answer that is invalid into an error after which the request is sent again. */
static void answer_refuse(struct server_answer *answer, const char *what) {
  answer->is_ok = false;
  error_become(&answer->error, ERROR_UNAVAILABLE);
  error_prefix(&answer->error, "the server's answer to %s is invalid: ", what);
}

/* Tries once to enrol. */
static struct server_answer enrol_ask(struct agent *agent, struct enrolment_answer *ret_enrolment) {
  cleanup_json json_t *body = enrol_body(agent);
  struct server_answer answer =
      server_ask(agent->keeper_client, "POST", "/v1/agents", body, REQUEST_MS);
  if (answer_is(&answer, ERROR_INVALID) && agent->trusted.n &&
      string_equal(json_text(answer.json, "pointer"), "/trusted_keys"))
    error_prefix(
        &answer.error,
        "the server does not store signatures of kernels, so that an agent with --trusted-key gets "
        "no work; upgrade the server: ");
  if (answer.is_ok && !enrolment_answer_read(answer.json, ret_enrolment, &answer.error))
    answer_refuse(&answer, "POST /v1/agents");
  if (!answer.is_ok)
    return answer;

  if (ret_enrolment->token && !tokens_keep(agent, ret_enrolment->token, NULL, &answer.error)) {
    answer.is_ok = false; /* enrolling again with the same boot nonce returns the same agent */
    error_become(&answer.error, ERROR_UNAVAILABLE);
    error_prefix(&answer.error, "cannot keep the agent's token: ");
    return answer;
  }

  rotation_plan(agent, ret_enrolment->rotate_in_ms);
  id_keep(agent, ret_enrolment->agent);
  cleanup_free char *boot = xasprintf("%s/boot", agent->state);
  unlink(boot);
  log_info("agent: enrolled agent=%s name=%s devices=%zu reclaimed=%lld", ret_enrolment->agent,
           agent->name, agent->n_threads, (long long)ret_enrolment->reclaimed);
  return answer;
}

bool agent_enrol(struct agent *agent, int *ret_code) {
  struct backoff backoff = backoff_new(BACKOFF_LEAST_MS, BACKOFF_MOST_MS);
  while (!agent_is_stopping(agent)) {
    cleanup_enrolment_answer struct enrolment_answer enrolment = {0};
    cleanup_server_answer struct server_answer answer = enrol_ask(agent, &enrolment);
    if (answer.is_ok)
      return true;
    if (!answer_is_for_later(&answer)) {
      log_error("agent: %s", answer.error.message);
      *ret_code = (int)error_exit_code(answer.error.kind);
      return false;
    }
    log_warning("agent: cannot enrol yet: %s", answer.error.message);
    agent_back_off(agent, &backoff, answer.retry_after_s);
  }

  *ret_code = EXIT_OK;
  return false;
}

static bool flag_take(struct agent *agent, bool *flag) {
  HOLD(&agent->mutex);
  bool was_set = *flag;
  *flag = false;
  return was_set;
}

static void enrol_again(struct keeper *keeper, int64_t now_ms) {
  struct agent *agent = keeper->agent;
  if (!agent_flag(agent, &agent->must_enrol) || now_ms < keeper->enrol_ms)
    return;

  cleanup_enrolment_answer struct enrolment_answer enrolment = {0};
  cleanup_server_answer struct server_answer answer = enrol_ask(agent, &enrolment);
  if (answer.is_ok) {
    (void)flag_take(agent, &agent->must_enrol);
    keeper->every_ms = enrolment.heartbeat_every_ms;
    backoff_reset(&keeper->backoff);
    return;
  }

  log_warning("agent: cannot enrol again yet: %s", answer.error.message);
  keeper->enrol_ms = now_ms + backoff_next_ms(&keeper->backoff, answer.retry_after_s);
}

/* Replaces the token when it is due. The next heartbeat is the first use of the new one. */
static void token_rotate(struct keeper *keeper, int64_t now_ms) {
  struct agent *agent = keeper->agent;
  if (!agent->rotate_at_ms || now_ms < agent->rotate_at_ms || now_ms < keeper->rotate_again_ms)
    return;

  cleanup_free char *id = agent_id(agent), *path = xasprintf("/v1/agents/%s/token", id);
  cleanup_json json_t *body = json_object();
  cleanup_server_answer struct server_answer answer =
      server_ask(agent->keeper_client, "POST", path, body, RENEW_MOST_MS);
  cleanup_agent_token_answer struct agent_token_answer new_token = {0};
  if (answer.is_ok && !agent_token_answer_read(answer.json, &new_token, &answer.error))
    answer_refuse(&answer, path);

  if (answer.is_ok && tokens_keep(agent, new_token.token, agent->own_token, &answer.error)) {
    rotation_plan(agent, new_token.rotate_in_ms);
    keeper->heartbeat_ms = now_ms;
    backoff_reset(&keeper->backoff);
    return;
  }

  log_warning("agent: its token was not replaced yet: %s", answer.error.message);
  keeper->rotate_again_ms = now_ms + backoff_next_ms(&keeper->backoff, answer.retry_after_s);
}

static void heartbeat_send(struct keeper *keeper) {
  struct agent *agent = keeper->agent;
  cleanup_free char *id = agent_id(agent), *path = xasprintf("/v1/agents/%s/heartbeat", id);
  struct heartbeat stated = {.boot = xstrdup(agent->boot)};
  yield_state(agent, &stated);
  cleanup_json json_t *body = record_write(&heartbeat_request_record, &stated);
  record_release(&heartbeat_request_record, &stated);
  cleanup_server_answer struct server_answer answer =
      server_ask(agent->keeper_client, "POST", path, body, RENEW_MOST_MS);
  struct heartbeat_answer heartbeat;
  if (answer.is_ok && !heartbeat_answer_read(answer.json, &heartbeat, &answer.error))
    answer_refuse(&answer, path);

  if (answer.is_ok) {
    token_worked(agent);
    keeper->every_ms = heartbeat.heartbeat_every_ms;
    if (heartbeat.is_draining != keeper->is_draining)
      log_info("agent: %s",
               heartbeat.is_draining ? "drained: it gets no more leases" : "no longer drained");
    keeper->is_draining = heartbeat.is_draining;
  } else if (answer_is(&answer, ERROR_MISSING)) {
    agent_signal(agent, &agent->must_enrol);
  } else if (!answer_is(&answer, ERROR_UNAUTHENTICATED) || !agent->own_token ||
             agent_is_stopping(agent)) {
    log_warning("agent: no heartbeat: %s", answer.error.message);
  } else if (token_fall_back(agent)) {
    keeper->heartbeat_ms = agent->rotate_at_ms = clock_monotonic_ms();
  } else {
    log_error(
        "agent: its own token has ended; this process exits, and the next one enrols anew: %s",
        answer.error.message);
    agent->code = (int)error_exit_code(answer.error.kind);
    agent_stop(agent);
  }
}

static void lease_renew(struct agent *agent, const struct held_due *due) {
  int64_t timeout_ms = due->left_ms / 3;
  timeout_ms = timeout_ms < RENEW_LEAST_MS  ? RENEW_LEAST_MS
               : timeout_ms > RENEW_MOST_MS ? RENEW_MOST_MS
                                            : timeout_ms;

  cleanup_free char *path = xasprintf("/v1/leases/%s/renew", due->lease);
  cleanup_json json_t *body =
      json_pack("{s:I, s:o}", "epoch", (json_int_t)due->epoch, "config",
                due->config == UINT64_MAX ? json_null() : json_integer((json_int_t)due->config));
  int64_t requested_ms = held_clock_ms();
  cleanup_server_answer struct server_answer answer =
      server_ask(agent->keeper_client, "POST", path, body, timeout_ms);
  struct renewed renewed;
  if (answer.is_ok && !renewed_read(answer.json, &renewed, &answer.error))
    answer_refuse(&answer, path);

  if (answer.is_ok) {
    held_renewed(agent->held, due->lease, due->epoch, requested_ms, renewed.expires_in_ms);
    if (renewed.is_limited)
      held_limit(agent->held, due->lease, due->epoch, &renewed.configs);
  } else if (answer_is(&answer, ERROR_CONFLICT) || answer_is(&answer, ERROR_MISSING)) {
    log_warning("lease: lost lease=%s epoch=%lld: %s", due->lease, (long long)due->epoch,
                answer.error.message);
    held_lose(agent->held, due->lease, due->epoch);
  } else {
    log_warning("lease: not renewed, it expires in %lld ms: lease=%s: %s", (long long)due->left_ms,
                due->lease, answer.error.message);
  }
}

void agent_keep(struct agent *agent) {
  char random[17];
  random_hex(random, 8);
  struct keeper keeper = {
      .agent = agent,
      .every_ms = HEARTBEAT_MS_DEFAULT,
      .backoff = backoff_new(BACKOFF_LEAST_MS, BACKOFF_MOST_MS),
      .rng = rng_seeded(strtoull(random, NULL, 16)),
  };

  while (!agent_flag(agent, &agent->is_posted)) {
    int64_t now_ms = clock_monotonic_ms(), wait_ms;
    struct held_due due;
    enrol_again(&keeper, now_ms);
    if (flag_take(agent, &agent->must_beat) || now_ms >= keeper.heartbeat_ms) {
      /* Heartbeats of a fleet spread out: each waits 90 to 110 % of the server's interval. */
      double spread = 0.9 + 0.2 * rng_unit(&keeper.rng);
      keeper.heartbeat_ms = now_ms + (int64_t)((double)keeper.every_ms * spread);
      heartbeat_send(&keeper);
    }

    token_rotate(&keeper, now_ms);
    /* One a turn: a server that is slow, or requests renewals very often, delays nothing else. */
    if (held_next_due(agent->held, &due, &wait_ms))
      lease_renew(agent, &due);
    else
      agent_wait(agent, wait_ms < LOOK_MS ? wait_ms : LOOK_MS, &agent->must_renew);
  }
}

void agent_say_end(struct agent *agent) {
  cleanup_free char *id = agent_id(agent), *path = xasprintf("/v1/agents/%s/end", id);
  cleanup_json json_t *body = json_pack("{s:s}", "boot", agent->boot);
  cleanup_server_answer struct server_answer answer =
      server_ask(agent->keeper_client, "POST", path, body, RENEW_MOST_MS);
  if (answer.is_ok)
    log_info("agent: ended");
  else
    log_warning("agent: it ends, and the server did not hear of it: %s", answer.error.message);
}
