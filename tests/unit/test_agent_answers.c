/* Which answers of a server an agent accepts, and measurements as a server accepts them. */
#include "agent/run/server_client.h"

#include <criterion/criterion.h>

static json_t *json_of(const char *text) {
  json_t *json = NULL;
  struct error error;
  cr_assert(json_parse(text, strlen(text), &json, &error), "%s", error.message);
  return json;
}

Test(agent_answers, an_enrolment_has_the_agents_id_token_and_intervals) {
  cleanup_json json_t *json =
      json_of("{\"agent\": \"ab12\", \"token\": \"wt_x\", \"rotate_in_ms\": 60000, "
              "\"heartbeat_every_ms\": 700, \"reclaimed\": 2}");
  cleanup_enrolment_answer struct enrolment_answer enrolment;
  struct error error;
  cr_assert(enrolment_answer_read(json, &enrolment, &error), "%s", error.message);
  cr_expect_str_eq(enrolment.agent, "ab12");
  cr_expect_str_eq(enrolment.token, "wt_x");
  cr_expect_eq(enrolment.rotate_in_ms, 60000);
  cr_expect_eq(enrolment.heartbeat_every_ms, 700);
  cr_expect_eq(enrolment.reclaimed, 2);
}

Test(agent_answers, missing_members_have_defaults) {
  cleanup_json json_t *json = json_of("{\"agent\": \"ab12\", \"rotate_in_ms\": null}");
  cleanup_enrolment_answer struct enrolment_answer enrolment;
  struct heartbeat_answer heartbeat;
  struct error error;
  cr_assert(enrolment_answer_read(json, &enrolment, &error), "%s", error.message);
  cr_expect_null(enrolment.token);
  cr_expect_eq(enrolment.rotate_in_ms, FIELD_NONE);
  cr_expect_eq(enrolment.heartbeat_every_ms, HEARTBEAT_MS_DEFAULT);
  cleanup_json json_t *nothing = json_object();
  cr_assert(heartbeat_answer_read(nothing, &heartbeat, &error), "%s", error.message);
  cr_expect_not(heartbeat.is_draining);
  cr_expect_eq(heartbeat.heartbeat_every_ms, HEARTBEAT_MS_DEFAULT);
  cr_expect_not(heartbeat_answer_read(NULL, &heartbeat, &error));
}

Test(agent_answers, a_token_that_is_due_at_once_is_replaced_in_a_moment) {
  static const char *const answers[] = {"{\"token\": \"t\", \"rotate_in_ms\": 0}",
                                        "{\"token\": \"t\", \"rotate_in_ms\": -5}"};
  for (size_t i = 0; i < ARRAY_LENGTH(answers); i++) {
    cleanup_json json_t *json = json_of(answers[i]);
    cleanup_agent_token_answer struct agent_token_answer new_token;
    struct error error;
    cr_assert(agent_token_answer_read(json, &new_token, &error), "%s", error.message);
    cr_expect_eq(new_token.rotate_in_ms, 500);
  }
}

Test(agent_answers, invalid_values_are_refused_with_their_pointer) {
  static const struct {
    const char *text, *pointer;
  } enrolments[] = {{"[]", ""},
                    {"{}", "/agent"},
                    {"{\"agent\": 7}", "/agent"},
                    {"{\"agent\": \"../ab\"}", "/agent"},
                    {"{\"agent\": \"AB\"}", "/agent"},
                    {"{\"agent\": \"ab\", \"token\": \"a b\"}", "/token"},
                    {"{\"agent\": \"ab\", \"token\": \"\"}", "/token"},
                    {"{\"agent\": \"ab\", \"rotate_in_ms\": 9223372036854775807}", "/rotate_in_ms"},
                    {"{\"agent\": \"ab\", \"heartbeat_every_ms\": 0}", "/heartbeat_every_ms"},
                    {"{\"agent\": \"ab\", \"reclaimed\": -1}", "/reclaimed"}};
  struct error error;
  for (size_t i = 0; i < ARRAY_LENGTH(enrolments); i++) {
    cleanup_enrolment_answer struct enrolment_answer enrolment;
    cleanup_json json_t *json = json_of(enrolments[i].text);
    cr_expect_not(enrolment_answer_read(json, &enrolment, &error), "%s", enrolments[i].text);
    cr_expect_str_eq(error.pointer, enrolments[i].pointer);
  }
  static const char *const renewals[] = {"{}", "{\"expires_in_ms\": 9223372036854775807}",
                                         "{\"expires_in_ms\": 0}",
                                         "{\"expires_in_ms\": 1, \"configs\": 7}",
                                         "{\"expires_in_ms\": 1, \"configs\": [[5, 1], [0, 1]]}"};
  for (size_t i = 0; i < ARRAY_LENGTH(renewals); i++) {
    struct renewed renewed;
    cleanup_json json_t *json = json_of(renewals[i]);
    cr_expect_not(renewed_read(json, &renewed, &error), "%s", renewals[i]);
  }
  struct agent_token_answer new_token;
  struct heartbeat_answer heartbeat;
  cleanup_json json_t *json = json_of("{\"draining\": 1}");
  cr_expect_not(agent_token_answer_read(json, &new_token, &error));
  cr_expect_str_eq(error.pointer, "/token");
  cr_expect_not(heartbeat_answer_read(json, &heartbeat, &error));
  cr_expect_str_eq(error.pointer, "/draining");
}

Test(agent_answers, whatever_a_server_sends_is_ok_or_an_error_with_a_sentence) {
  static char html[] = "<html>", list[] = "[1]",
              pointer[] = "{\"detail\": \"no\", \"pointer\": \"nowhere\"}", none[] = "";
  static const struct {
    int status;
    char *body;
    enum error_kind kind;
    const char *sentence;
  } answers[] = {
      {200, html, ERROR_UNAVAILABLE, "the server's answer to POST /v1/x is not a JSON document"},
      {302, html, ERROR_UNAVAILABLE,
       "the server answered 302 to POST /v1/x: redirects are not followed"},
      {404, html, ERROR_UNAVAILABLE, "the server answered 404 to POST /v1/x: it gave no reason"},
      {404, pointer, ERROR_MISSING, "the server answered 404 to POST /v1/x: no"},
      {418, list, ERROR_INVALID, "it gave no reason"},
      {0, none, ERROR_UNAVAILABLE, "it gave no reason"},
      {999, none, ERROR_INTERNAL, "it gave no reason"},
  };
  for (size_t i = 0; i < ARRAY_LENGTH(answers); i++) {
    struct http_response response = {
        .status = answers[i].status, .body = answers[i].body, .size = strlen(answers[i].body)};
    cleanup_server_answer struct server_answer answer =
        server_answer_read("POST", "/v1/x", &response);
    cr_expect(answer_is(&answer, answers[i].kind), "%zu", i);
    cr_expect_not_null(strstr(answer.error.message, answers[i].sentence), "%s",
                       answer.error.message);
    cr_expect_str_eq(answer.error.pointer, "");
  }
}

static struct server_answer answer_of(int status, const char *body) {
  struct http_response response = {.status = status, .body = (char *)body, .size = strlen(body)};
  return server_answer_read("POST", "/v1/x", &response);
}

/* Older servers and proxies send no kind. */
Test(agent_answers, without_a_kind_the_status_decides) {
  for (int status = 100; status < 600; status++) {
    cleanup_server_answer struct server_answer answer = answer_of(status, "{\"detail\": \"x\"}");
    bool is_ok = status / 100 == 2;
    bool is_for_later = !is_ok && (status / 100 != 4 || status == 408 || status == 429);
    cr_expect_eq(answer.is_ok, is_ok, "%d", status);
    cr_expect_eq(answer_is_for_later(&answer), is_for_later, "%d", status);
    cr_expect_eq(answer_is(&answer, ERROR_UNAUTHENTICATED), status == 401, "%d", status);
    cr_expect_eq(answer_is(&answer, ERROR_FORBIDDEN), status == 403, "%d", status);
    cr_expect_eq(answer_is(&answer, ERROR_MISSING), status == 404, "%d", status);
    cr_expect_eq(answer_is(&answer, ERROR_CONFLICT), status == 409, "%d", status);
  }
}

Test(agent_answers, the_kind_in_a_problem_document_decides) {
  for (enum error_kind kind = 0; kind <= ERROR_INTERNAL; kind++) {
    cleanup_free char *body =
        xasprintf("{\"detail\": \"x\", \"kind\": \"%s\"}", error_kind_name(kind));
    const struct http_response response = {.status = 418, .body = body, .size = strlen(body)};
    cleanup_server_answer struct server_answer answer = answer_of(418, body);
    cr_expect(answer_is(&answer, kind), "%s", body);
    cr_expect_eq(server_error_kind(&response), kind, "%s", body);
  }
  cleanup_server_answer struct server_answer success = answer_of(200, "{\"kind\": \"missing\"}");
  cr_expect(success.is_ok, "what is not refused has no kind of error");
}

Test(agent_answers, an_unknown_kind_is_that_of_the_status) {
  static const char *const bodies[] = {"{\"detail\": \"x\", \"kind\": \"Status\"}",
                                       "{\"detail\": \"x\", \"kind\": 7}", "{\"detail\": \"x\"}"};
  for (size_t i = 0; i < ARRAY_LENGTH(bodies); i++) {
    cleanup_server_answer struct server_answer answer = answer_of(409, bodies[i]);
    cr_expect(answer_is(&answer, ERROR_CONFLICT), "%s", bodies[i]);
  }
  const struct http_response page = {.status = 502, .body = (char *)"<html>", .size = 6},
                             none = {.status = 404};
  cr_expect_eq(server_error_kind(&page), ERROR_UNAVAILABLE);
  cr_expect_eq(server_error_kind(&none), ERROR_UNAVAILABLE);
}

Test(agent_answers, another_agents_lease_is_missing_and_a_proxys_404_means_away) {
  static const struct {
    int status;
    const char *body;
    enum error_kind kind;
  } answers[] = {
      {403, "{\"detail\": \"x\"}", ERROR_FORBIDDEN},
      {403, "{\"detail\": \"x\", \"lease\": \"91\"}", ERROR_MISSING},
      {403, "{\"detail\": \"x\", \"lease\": \"91\", \"kind\": \"forbidden\"}", ERROR_MISSING},
      {401, "{\"detail\": \"x\", \"lease\": \"91\"}", ERROR_UNAUTHENTICATED},
      {404, "{\"detail\": \"x\", \"kind\": \"missing\"}", ERROR_MISSING},
      {404, "{\"kind\": \"missing\"}", ERROR_UNAVAILABLE},
      {404, "", ERROR_UNAVAILABLE},
      {404, "[]", ERROR_UNAVAILABLE},
      {403, "{\"lease\": \"91\"}", ERROR_UNAVAILABLE},
  };
  for (size_t i = 0; i < ARRAY_LENGTH(answers); i++) {
    cleanup_server_answer struct server_answer answer =
        answer_of(answers[i].status, answers[i].body);
    cr_expect(answer_is(&answer, answers[i].kind), "%zu: %d", i, (int)answer.error.kind);
  }
}

Test(agent_answers, texts_of_any_length_and_encoding_are_posted_as_far_as_a_server_accepts_them) {
  cleanup_free char *text = xcalloc(1, 2 * MEASUREMENT_DETAIL_MAX);
  for (size_t i = 0; i + 1 < MEASUREMENT_DETAIL_MAX + 100; i += 2)
    memcpy(text + 1 + i, "ä", 2);
  text[0] = 'x';
  cleanup_json json_t *cut = text_to_json(text);
  cr_expect_eq(json_string_length(cut), MEASUREMENT_DETAIL_MAX - 1u, "no half of a letter");
  text[1] = '\xff';
  cleanup_json json_t *plain = text_to_json(text);
  cr_expect_eq(json_string_length(plain), MEASUREMENT_DETAIL_MAX - 1u);
  cr_expect_eq(strncmp(json_string_value(plain), "x???", 4), 0);
}

Test(agent_answers, values_of_a_code_object_beyond_the_servers_limits_are_left_out) {
  struct lease lease = {.regime = REGIME_COLD};
  struct measurement measurement;
  measurement_init(&measurement);
  measurement.config = 3;
  measurement.outcome = OUTCOME_COMPILE;
  measurement.vgprs = (INT64_C(1) << 32) - 1;
  measurement.spills = (INT64_C(1) << 32) - 1;
  measurement.agprs = 12;
  measurement.occupancy = CODE_UNKNOWN;
  measurement.clock_mhz = 1e9;
  measurement_trim(&measurement);
  cleanup_json json_t *json = measurement_to_json(&lease, &measurement, NULL);
  cr_expect_null(json_object_get(json, "vgprs"));
  cr_expect_null(json_object_get(json, "spills"));
  cr_expect_null(json_object_get(json, "occupancy"));
  cr_expect_null(json_object_get(json, "clock_mhz"));
  cr_expect_eq(json_integer_value(json_object_get(json, "agprs")), 12);
}
