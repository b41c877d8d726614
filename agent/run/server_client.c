/* Requests of the agent and their answers. Owns nothing; one thread to a client. */
#include "agent/run/server_client.h"

#define RETRY_AFTER_MAX_S 300
#define ANSWER_MAX ((size_t)16 << 20) /* as JSON in memory it may take twenty times as much */

void server_answer_release(struct server_answer *answer) {
  json_decref(answer->json);
  answer->json = NULL;
}

static enum error_kind kind_of(int status, const json_t *problem) {
  const char *name = json_string_value(json_object_get(problem, "kind"));
  enum error_kind kind;
  if (!name || !error_kind_of_name(name, &kind))
    kind = error_kind_of_http(status);
  /* A lease that was not granted to us is as good as none. */
  if (kind == ERROR_FORBIDDEN && json_object_get(problem, "lease"))
    kind = ERROR_MISSING;
  /* A proxy's, whose server is away: ours says what it did not find. */
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
  const char *detail = json_string_value(json_object_get(answer.json, "detail"));
  const char *pointer = json_string_value(json_object_get(answer.json, "pointer"));
  bool is_redirect = response->status >= 300 && response->status < 400;

  error_of_at(&answer.error, kind, pointer && pointer[0] == '/' ? pointer : "",
              "the server answered %d to %s %s: %s", response->status, method, path,
              detail        ? detail
              : is_redirect ? "redirects are not followed, so give the URL that it leads to"
                            : "it did not say why");
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
                                 .response_max = ANSWER_MAX};
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
  int64_t asked_s = retry_after_s < RETRY_AFTER_MAX_S ? retry_after_s : RETRY_AFTER_MAX_S;
  return asked_s * 1000 + wait_ms;
}

void backoff_reset(struct backoff *backoff) { backoff->base_ms = backoff->least_ms; }
