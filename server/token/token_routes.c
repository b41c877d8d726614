/* Making, listing and revoking tokens.
 *
 * Memory: what a handler makes lives as long as it runs. Threads: database workers. */
#include "common/base/log.h"
#include "server/http/answers.h"
#include "server/http/page.h"
#include "server/http/routes.h"
#include "server/http/tokens.h"
#include "server/records.h"
#include "server/token/tokens.h"

struct token_answer {
  const char *token, *name, *role, *certificate;
};
static const struct field answer_fields[] = {
    {"token", FIELD_TEXT, offsetof(struct token_answer, token), FIELD_ANSWER | FIELD_OMITTED},
    {"name", FIELD_TEXT, offsetof(struct token_answer, name), FIELD_ANSWER | FIELD_NOT_NULL},
    {"role", FIELD_TEXT, offsetof(struct token_answer, role), FIELD_ANSWER | FIELD_NOT_NULL,
     .schema = SCHEMA_ROLE},
    {"certificate", FIELD_TEXT, offsetof(struct token_answer, certificate),
     FIELD_ANSWER | FIELD_OMITTED},
};
const struct record token_answer_record = RECORD("TokenAnswer", struct token_answer, answer_fields);

/* What changed must hold on this server when the answer is read; the others see it within
 * seconds. */
static void refresh(struct worker *worker) {
  struct error error;
  if (!tokens_refresh(worker, &error))
    log_warning("tokens: %s", error.message);
}

void route_token_post(struct worker *worker, struct request *request) {
  cleanup_token_request struct token_request asked = {0};
  char token[TOKEN_TEXT_SIZE];
  struct error error;
  if (!token_request_parse(request->json, &asked, &error) ||
      !tokens_make(worker->db, &asked, request_author(request), token, &error)) {
    answer_failure(request, &error);
    return;
  }

  log_info("token: %s made %s with the role %s%s%s", request->token_name, asked.name, asked.role,
           asked.certificate ? " for the certificate " : "",
           asked.certificate ? asked.certificate : "");
  refresh(worker);
  struct token_answer answer = {asked.certificate ? NULL : token, asked.name, asked.role,
                                asked.certificate};
  request_answer_json(request, 201, record_write(&token_answer_record, &answer));
}

void route_token_list(struct worker *worker, struct request *request) {
  static const char *const known[] = {"limit", "after", NULL};
  struct error error;
  int64_t limit, after, next;
  json_t *items;
  if (!request_query_only(request, known) || !page_by_id(request, 0, &limit, &after))
    return;
  if (tokens_list(worker->db, after, limit, &items, &next, &error))
    request_answer_json(request, 200, page_to_json(items, next));
  else
    answer_failure(request, &error);
}

void route_token_delete(struct worker *worker, struct request *request) {
  struct error error;
  if (!tokens_revoke(worker->db, request->segments[0], false, request_author(request), &error)) {
    answer_failure(request, &error);
    return;
  }
  log_info("token: %s revoked %s", request->token_name, request->segments[0]);
  refresh(worker);
  request_answer_empty(request, 204);
}
