/* What a server answers to an agent: a status, a newline, the body. Each answer is refused with a
 * sentence, or has what the agent relies on: ids that can be parts of paths, tokens that can be
 * sent, times that can be added to a clock, configs that are in the space. */
#include "agent/run/held.h"
#include "agent/run/server_client.h"
#include "tests/fuzz/fuzz.h"

#define YEARS_MS (INT64_C(1) << 54)

static bool is_of(const char *text, const char *characters, size_t most) {
  size_t length = strlen(text);
  return length >= 1 && length <= most && strspn(text, characters) == length;
}

static bool rotation_is_sane(int64_t in_ms) {
  return in_ms == FIELD_NONE || (in_ms > 0 && in_ms < YEARS_MS);
}

static void enrolment_check(const json_t *json) {
  cleanup_enrolment_answer struct enrolment_answer enrolment = {0};
  cleanup_agent_token_answer struct agent_token_answer new_token = {0};
  struct heartbeat_answer heartbeat;
  struct error error = {0};

  if (enrolment_answer_read(json, &enrolment, &error))
    ALWAYS(is_of(enrolment.agent, "0123456789abcdef", 64) &&
           (!enrolment.token || token_is_plain(enrolment.token)) &&
           rotation_is_sane(enrolment.rotate_in_ms) && enrolment.heartbeat_every_ms >= 1);
  else
    check_refusal(&error);

  if (agent_token_answer_read(json, &new_token, &error))
    ALWAYS(token_is_plain(new_token.token) && rotation_is_sane(new_token.rotate_in_ms));
  else
    check_refusal(&error);
  if (heartbeat_answer_read(json, &heartbeat, &error))
    ALWAYS(heartbeat.heartbeat_every_ms >= 1 && heartbeat.heartbeat_every_ms < YEARS_MS);
  else
    check_refusal(&error);
}

/* Applies a renewal to a table of leases. */
static void renewal_check(const json_t *json) {
  struct error error = {0};
  struct renewed renewed;
  struct task_grant terms = {0};
  struct held_due due;
  int64_t wait_ms, requested_ms = held_clock_ms();

  if (!record_read_answer(&task_grant_record, json, "", &terms, &error)) {
    check_refusal(&error);
    record_release(&task_grant_record, &terms);
    terms = (struct task_grant){xstrdup("l"), 1, NULL, TASK_LEASE_MS_MAX, 1};
  }
  ALWAYS(!strchr(terms.lease, '/') && terms.lease[0] != '.');

  struct held_table *table = held_table_new();
  held_add(table, &(struct held_grant){terms.lease, terms.epoch, requested_ms, terms.expires_in_ms,
                                       terms.renew_every_ms, NULL});
  if (renewed_read(json, &renewed, &error)) {
    held_renewed(table, terms.lease, terms.epoch, requested_ms, renewed.expires_in_ms);
    if (renewed.is_limited)
      held_limit(table, terms.lease, terms.epoch, &renewed.configs);
  } else {
    check_refusal(&error);
  }

  /* Whatever the answer, the lease is not due again at once. */
  if (held_next_due(table, &due, &wait_ms) && held_clock_ms() == requested_ms)
    ALWAYS(!held_next_due(table, &due, &wait_ms));
  held_table_free(table);
  record_release(&task_grant_record, &terms);
}

static void lease_check(json_t *json, bool is_gpu) {
  struct lease lease;
  struct error error = {0};
  if (!lease_read(json, is_gpu, &lease, &error)) {
    check_refusal(&error);
    return;
  }

  ALWAYS(config_ranges_count(&lease.configs) <= LEASE_CONFIGS_MAX &&
         lease.baseline < lease.space->raw_count);
  for (size_t i = 0; i < lease.configs.n; i++) {
    struct config_range range = lease.configs.ranges[i];
    ALWAYS(range.count >= 1 && range.first < lease.space->raw_count &&
           range.count <= lease.space->raw_count - range.first);
  }

  ALWAYS(lease.n_warm_starts <= LEASE_CONFIGS_MAX && lease.best_ratio >= 0 && lease.device_us >= 0);
  ALWAYS((lease.kernel->language != LANGUAGE_C) == is_gpu);
  lease_release(&lease);
}

/* The input cannot know the kernel's hash. */
static void hash_set(json_t *json) {
  cleanup_kernel struct kernel *kernel = NULL;
  struct error ignored;
  if (json_is_object(json_object_get(json, "manifest")) &&
      kernel_parse(json_object_get(json, "manifest"), &kernel, &ignored))
    ALWAYS(json_object_set_new(json, "kernel", json_digest_text(&kernel->hash)) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  const uint8_t *newline = memchr(bytes, '\n', size);
  if (!newline)
    return 0;

  cleanup_free char *status = xstrndup((const char *)bytes, (size_t)(newline - bytes));
  size_t body_size = size - (size_t)(newline + 1 - bytes);
  cleanup_free char *body = xstrndup((const char *)newline + 1, body_size);
  struct http_response response = {.status = atoi(status) % 1000, .body = body, .size = body_size};
  cleanup_server_answer struct server_answer answer =
      server_answer_read("POST", "/v1/leases", &response);
  if (!answer.is_ok)
    check_refusal(&answer.error);
  enrolment_check(answer.json);
  renewal_check(answer.json);
  hash_set(answer.json);
  lease_check(answer.json, false);
  lease_check(answer.json, true);
  return 0;
}
