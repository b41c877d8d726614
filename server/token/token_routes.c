/* Making, listing and revoking tokens. Database workers. */
#include "common/base/log.h"
#include "server/http/answers.h"
#include "server/http/page.h"
#include "server/http/response.h"
#include "server/http/routes.h"
#include "server/http/tokens.h"
#include "server/token/token_request.h"
#include "server/token/token_store.h"

/* What changed must hold on this server when the answer is read; the others see it within seconds. */
static void refresh(struct worker *worker) {
  struct error error;
  if (!tokens_refresh(worker, &error))
    log_warning("tokens: %s", error.message);
}

void route_token_post(struct worker *worker, struct request *request) {
  struct token_request asked = {0};
  char token[TOKEN_TEXT_SIZE];
  struct error error;
  bool is_new;
  if (!token_request_parse(request->json, &asked, &error)) {
    request_refuse(request, MHD_HTTP_UNPROCESSABLE_CONTENT, &error);
    return;
  }
  struct token_terms *terms = &asked.terms;
  terms->certificate_digest = &asked.digest;
  if (!tokens_make(worker->db, terms, request_author(request), token, &is_new, &error)) {
    answer_failure(request, &error);
  } else if (!is_new) {
    token_request_taken(&asked, &error);
    request_refuse(request, MHD_HTTP_CONFLICT, &error);
  } else {
    log_info("token: %s made %s with the role %s%s%s", request->token_name, terms->name, terms->role,
             asked.certificate ? " for the certificate " : "", asked.certificate ? asked.certificate : "");
    refresh(worker);
    request_answer_json(request, MHD_HTTP_CREATED,
                        json_pack("{s:s*, s:s, s:s, s:s*}", "token", asked.certificate ? NULL : token, "name",
                                  terms->name, "role", terms->role, "certificate", asked.certificate));
  }
  free(terms->environment);
}

void route_token_list(struct worker *worker, struct request *request) {
  static const char *const known[] = {"limit", "after", NULL};
  struct error error;
  int64_t limit, after;
  json_t *items, *next;
  if (!request_query_only(request, known) || !page_by_id(request, 0, &limit, &after))
    return;
  if (!tokens_list(worker->db, after, limit, &items, &next, &error))
    answer_failure(request, &error);
  else
    request_answer_json(request, MHD_HTTP_OK, json_pack("{s:o, s:o}", "items", items, "next", next));
}

void route_token_delete(struct worker *worker, struct request *request) {
  struct error error;
  enum token_revocation revocation;
  if (!tokens_revoke(worker->db, request->segments[0], false, request_author(request), &revocation, &error)) {
    answer_failure(request, &error);
  } else if (revocation == TOKEN_LAST_ADMIN) {
    request_problem(
        request, MHD_HTTP_CONFLICT, "",
        "\"%.64s\" is the last admin token: without one no token can be made over HTTP; make another first, or "
        "use \"wavetune-server token revoke\"",
        request->segments[0]);
  } else if (revocation == TOKEN_UNKNOWN) {
    request_problem(request, MHD_HTTP_NOT_FOUND, "", "there is no live token \"%.64s\"", request->segments[0]);
  } else {
    log_info("token: %s revoked %s", request->token_name, request->segments[0]);
    refresh(worker);
    request_answer_empty(request, MHD_HTTP_NO_CONTENT);
  }
}
