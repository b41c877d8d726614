/* Requests of the agent, their answers, and their bodies. */
#include "agent/run/server_client.h"

#define RETRY_AFTER_MAX_S 300
#define ANSWER_MAX ((size_t)16 << 20) /* parsed, it may take twenty times as much memory */
/* so that an agent does not spend all its time on replacing its token */
#define ROTATE_LEAST_MS 500

void server_answer_release(struct server_answer *answer) {
  json_decref(answer->json);
  answer->json = NULL;
}

static enum error_kind kind_of(int status, const json_t *problem) {
  const char *name = json_text(problem, "kind");
  enum error_kind kind;
  if (!name || !error_kind_of_name(name, &kind))
    kind = error_kind_of_http(status);
  if (kind == ERROR_FORBIDDEN && json_object_get(problem, "lease"))
    kind = ERROR_MISSING;
  return kind == ERROR_MISSING && !json_object_get(problem, "detail") ? ERROR_UNAVAILABLE : kind;
}

enum error_kind server_error_kind(const struct http_response *response) {
  cleanup_json json_t *problem = NULL;
  struct error ignored;
  if (response->size && !json_parse(response->body, response->size, &problem, &ignored))
    problem = NULL;
  return kind_of(response->status, problem);
}

struct server_answer server_answer_read(const char *method, const char *path,
                                        const struct http_response *response) {
  struct server_answer answer = {.retry_after_s = response->retry_after_s};
  bool is_success = response->status >= 200 && response->status < 300;
  bool is_json =
      !response->size || json_parse(response->body, response->size, &answer.json, &answer.error);
  if (!is_json)
    answer.json = NULL;
  if (is_success && !is_json) {
    error_prefix(&answer.error, "the server's answer to %s %s is ", method, path);
    error_become(&answer.error, ERROR_UNAVAILABLE);
    return answer;
  }

  answer.is_ok = is_success;
  if (answer.is_ok)
    return answer;

  enum error_kind kind = kind_of(response->status, answer.json);
  const char *detail = json_text(answer.json, "detail");
  const char *pointer = json_text(answer.json, "pointer");
  bool is_redirect = response->status >= 300 && response->status < 400;

  error_of_at(&answer.error, kind, pointer && pointer[0] == '/' ? pointer : "",
              "the server answered %d to %s %s: %s", response->status, method, path,
              detail        ? detail
              : is_redirect ? "redirects are not followed, so give the URL that it leads to"
                            : "it gave no reason");
  http_error_name_request(response, &answer.error);

  return answer;
}

struct server_answer server_ask(struct http_client *client, const char *method, const char *path,
                                const json_t *body, int64_t timeout_ms) {
  struct server_answer answer = {0};
  cleanup_free char *text = body ? json_canonical(body) : NULL;
  struct http_request request = {.method = method,
                                 .path = path,
                                 .body = text,
                                 .body_size = text ? strlen(text) : 0,
                                 .timeout_ms = timeout_ms,
                                 .response_max = ANSWER_MAX,
                                 .is_idempotent = true};
  cleanup_http_response struct http_response response = {0};
  if (http_send(client, &request, &response, &answer.error))
    answer = server_answer_read(method, path, &response);
  return answer;
}

struct backoff backoff_new(int64_t least_ms, int64_t most_ms) {
  char random[17];
  random_hex(random, 8);
  return (struct backoff){.least_ms = least_ms,
                          .most_ms = most_ms,
                          .base_ms = least_ms,
                          .rng = rng_seeded(strtoull(random, NULL, 16))};
}

int64_t backoff_next_ms(struct backoff *backoff, int64_t retry_after_s) {
  int64_t half_ms = backoff->base_ms / 2;
  int64_t wait_ms = half_ms + (int64_t)rng_below(&backoff->rng, (uint64_t)half_ms + 1);
  int64_t doubled_ms = backoff->base_ms * 2;
  backoff->base_ms = doubled_ms < backoff->most_ms ? doubled_ms : backoff->most_ms;
  int64_t requested_s = retry_after_s < RETRY_AFTER_MAX_S ? retry_after_s : RETRY_AFTER_MAX_S;
  return requested_s * 1000 + wait_ms;
}

void backoff_reset(struct backoff *backoff) { backoff->base_ms = backoff->least_ms; }

static bool answer_read(const struct record *record, const json_t *json, void *answer,
                        struct error *error) {
  if (record_read_answer(record, json, "", answer, error))
    return true;
  record_release(record, answer);
  return false;
}

static void rotation_settle(int64_t *rotate_in_ms) {
  if (*rotate_in_ms != FIELD_NONE && *rotate_in_ms < ROTATE_LEAST_MS)
    *rotate_in_ms = ROTATE_LEAST_MS;
}

bool enrolment_answer_read(const json_t *json, struct enrolment_answer *ret, struct error *error) {
  record_init(&agent_answer_record, ret);
  ret->heartbeat_every_ms = HEARTBEAT_MS_DEFAULT;
  ret->reclaimed = 0;
  if (!answer_read(&agent_answer_record, json, ret, error))
    return false;
  rotation_settle(&ret->rotate_in_ms);
  return true;
}

bool agent_token_answer_read(const json_t *json, struct agent_token_answer *ret,
                             struct error *error) {
  record_init(&agent_token_answer_record, ret);
  if (!answer_read(&agent_token_answer_record, json, ret, error))
    return false;
  rotation_settle(&ret->rotate_in_ms);
  return true;
}

bool heartbeat_answer_read(const json_t *json, struct heartbeat_answer *ret, struct error *error) {
  *ret = (struct heartbeat_answer){.heartbeat_every_ms = HEARTBEAT_MS_DEFAULT};
  return answer_read(&heartbeat_answer_record, json, ret, error);
}

void enrolment_answer_release(struct enrolment_answer *answer) {
  record_release(&agent_answer_record, answer);
}

void agent_token_answer_release(struct agent_token_answer *answer) {
  record_release(&agent_token_answer_record, answer);
}

bool renewed_read(const json_t *json, struct renewed *ret, struct error *error) {
  struct renewed renewed = {0};
  json_t *configs = NULL; /* absent where nothing was given away */
  if (!json_get_integer(json, "", "expires_in_ms", JSON_REQUIRED, 1, TASK_LEASE_MS_MAX,
                        &renewed.expires_in_ms, error) ||
      !json_get_array(json, "", "configs", JSON_OPTIONAL, &configs, error))
    return false;

  renewed.is_limited = configs != NULL;
  if (configs && !config_ranges_from_json(configs, &renewed.configs, error))
    return error_pointer_prefix(error, "/configs");
  *ret = renewed;
  return true;
}

json_t *text_to_json(const char *text) {
  size_t size = strlen(text);
  if (size > MEASUREMENT_DETAIL_MAX) {
    size = MEASUREMENT_DETAIL_MAX;
    while (size > 0 && ((unsigned char)text[size] & 0xc0) == 0x80) /* not within a character */
      size--;
  }

  json_t *json = json_stringn(text, size);
  if (json)
    return json;

  cleanup_free char *copy = xstrndup(text, size);
  for (char *at = copy; *at; at++)
    if ((unsigned char)*at >= 0x80)
      *at = '?';
  return json_string(copy);
}

static void key_note(json_t *conditions, const char *member, bool is_verified,
                     const struct digest *key) {
  json_object_del(conditions, member);
  if (is_verified)
    json_put(conditions, member, json_digest_text(key));
}

json_t *measurement_to_json(const struct lease *lease, const struct measurement *measurement,
                            const struct digest *object) {
  struct measurement posted = *measurement; /* borrows */
  cleanup_json json_t *detail = measurement->detail ? text_to_json(measurement->detail) : NULL;
  cleanup_json json_t *conditions = NULL;
  if (measurement->conditions || lease->is_signed) {
    /* The worker may run untrusted code: the keys are those that were verified here. */
    conditions =
        measurement->conditions ? json_copy((json_t *)measurement->conditions) : json_object();
    key_note(conditions, "kernel_key", lease->is_signed, &lease->kernel_key);
    key_note(conditions, "build_key", lease->is_signed && lease->has_build, &lease->build_key);
  }

  posted.conditions = conditions;
  posted.detail = (char *)json_string_value(detail);
  posted.process = lease->process;
  posted.round = lease->round;
  posted.regime = lease->regime;
  if (object)
    posted.object = *object;
  return record_write(&measurement_record, &posted);
}
