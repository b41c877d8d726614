/* Tokens: reading requests for them, their table, and the routes of /v1/tokens. */
#include "server/token/tokens.h"

#include <fnmatch.h>
#include <time.h>

#include "common/base/log.h"
#include "common/base/time.h"
#include "common/node/environment.h"
#include "server/audit/audit.h"
#include "server/db/db_record.h"
#include "server/http/request.h"
#include "server/http/router.h"
#include "server/http/tls.h"
#include "server/http/tokens.h"
#include "server/records.h"
#include "server/token/tokens.sql.h"

#define CHANNELS_MAX 64
#define LETTERS_AND_DIGITS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

bool token_name_is_good(const char *name) {
  size_t length = strspn(name, LETTERS_AND_DIGITS "._-");
  return length >= 1 && length <= 64 && !name[length];
}

#define RECORD_OF struct token_request
static const struct field request_fields[] = {
    MEMBER(TEXT, name, FIELD_REQUIRED,
           .schema = "{\"type\": \"string\", \"pattern\": \"^[A-Za-z0-9._-]{1,64}$\"}"),
    MEMBER(TEXT, role, FIELD_REQUIRED, .schema = SCHEMA_ROLE),
    MEMBER(TEXT, expires, FIELD_NO_COLUMN,
           .about = "how long it is valid, such as 7d or 12h, or until when"),
    MEMBER(INTEGER, uses, .least = 1, .most = TOKEN_USES_MAX),
    MEMBER(TEXT, agent_name, .least = 1, .most = 200),
    MEMBER(JSON, environment, .schema = SCHEMA_ENVIRONMENT),
    MEMBER(TEXT, certificate, FIELD_NOT_NULL,
           .schema = "{\"type\": \"string\", \"pattern\": \"^(URI|DNS|CN):[ -~]{1,250}$\"}",
           .about =
               "the name of a client certificate to use instead of a token, for the role agent; no "
               "token is made"),
    MEMBER(TEXTS, channels, .most = CHANNELS_MAX,
           .schema =
               "{\"type\": \"array\", \"maxItems\": 64,"
               " \"items\": {\"type\": \"string\", \"pattern\": \"^[a-z0-9._*?[\\\\]!-]{1,64}$\"}}",
           .about =
               "the channels that the token may move, by name or pattern; required for the role "
               "publisher, and only allowed there"),
    MEMBER(INTEGER, expires_in_ms, FIELD_NO_JSON),
    MEMBER(TEXT, agent, FIELD_NO_JSON),
    MEMBER(ID, replaces, FIELD_NO_JSON),
};
#undef RECORD_OF
const struct record token_request_record =
    RECORD("TokenRequest", struct token_request, request_fields);

void token_request_init(struct token_request *request) {
  record_init(&token_request_record, request);
}
void token_request_release(struct token_request *request) {
  record_release(&token_request_record, request);
}

/* Milliseconds from now of "7d", or of a time in the future. */
static bool expires_parse(const char *text, int64_t *ret_ms, struct error *error) {
  int64_t us, ms = 0;
  struct timespec now;
  if (!duration_parse(text, &ms) && time_parse(text, &us)) {
    ALWAYS(clock_gettime(CLOCK_REALTIME, &now) == 0);
    ms = us / 1000 - ((int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000);
  }

  if (ms <= 0 || ms > DURATION_MS_MAX)
    return error_at(error, "/expires",
                    "\"%.64s\" is not a future time; write how long the token is valid, like 90s, "
                    "30m, 12h or 7d, or until when, like 2026-01-31T12:00:00Z",
                    text);

  *ret_ms = ms;
  return true;
}

/* A publisher may move the channels that its token names, and no others. */
bool token_channels_check(const struct texts *channels, unsigned roles, struct error *error) {
  bool is_publisher = (roles & TOKEN_PUBLISHER) != 0;
  if (is_publisher != (channels->n > 0))
    return error_at(error, "/channels",
                    is_publisher
                        ? "a publisher's token needs the channels that it may move, such as "
                          "\"stable\" or \"test-*\""
                        : "channels are for tokens of the role publisher");

  for (size_t i = 0; i < channels->n; i++) {
    char at[JSON_POINTER_SIZE];
    const char *text = channels->all[i];
    size_t length = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789._-*?[]!");
    if (length < 1 || length > 64 || text[length])
      return error_at(error, json_pointer_index(at, sizeof at, "/channels", i),
                      "a channel's name, or a pattern of names, is 1 to 64 of a-z, 0-9, \".\", "
                      "\"_\", \"-\", and \"*\", \"?\", \"[…]\"");
  }

  return true;
}

bool token_request_parse(const json_t *json, struct token_request *ret, struct error *error) {
  cleanup_environment struct environment environment = {0};
  unsigned roles;
  token_request_init(ret);
  if (!record_read(&token_request_record, json, "", ret, error))
    return false;

  if (ret->channels.n == 0) { /* an empty list names no channels, as an absent one */
    free(ret->channels.all);
    ret->channels.all = NULL;
  }

  if (!token_name_is_good(ret->name))
    return error_at(error, "/name",
                    "a token's name is 1 to 64 of A-Z, a-z, 0-9, \".\", \"_\" and \"-\"");
  if (!roles_parse(ret->role, &roles, error) || !token_channels_check(&ret->channels, roles, error))
    return false;
  if (roles != TOKEN_ENROL && (ret->uses != FIELD_NONE || ret->agent_name || ret->environment))
    return error_at(error, "/role",
                    "uses, an agent's name and an environment are for tokens of the role enrol");

  /* Only for agents: a browser sends its certificate with every request, even of foreign pages. */
  if (ret->certificate && roles != TOKEN_AGENT)
    return error_at(error, "/certificate",
                    "a client certificate can only replace a token of the role agent");
  if (ret->certificate && !tls_name_is_good(ret->certificate))
    return error_at(error, "/certificate",
                    "\"%.64s\" is no name of a client certificate; write it like "
                    "URI:spiffe://example/agent/node-17, DNS:node-17.example or CN:node-17, with 1 "
                    "to 250 printable characters after the colon",
                    ret->certificate);
  if (ret->environment && !environment_parse(ret->environment, &environment, error))
    return error_pointer_prefix(error, "/environment");
  if (ret->expires && !expires_parse(ret->expires, &ret->expires_in_ms, error))
    return false;

  if (roles == TOKEN_ENROL && ret->uses == FIELD_NONE)
    ret->uses = 1;
  return true;
}

bool tokens_insert(struct db *db, const struct token_request *request, const struct author *author,
                   char ret_token[TOKEN_TEXT_SIZE], struct error *error) {
  char token[TOKEN_TEXT_SIZE] = "wt_";
  random_hex(token + 3, 32);
  struct digest digest = request->certificate ? tls_name_digest(request->certificate)
                                              : digest_of(token, strlen(token));

  cleanup_rows struct db_rows *rows = NULL;
  if (!db_execute(db, &sql_tokens_end_expired, error, BIND("name", request->name)) ||
      (request->certificate &&
       !db_execute(db, &sql_tokens_free_digest, error, BIND("digest", &digest))) ||
      !(rows = db_query(db, &sql_tokens_make, error, BIND_RECORD(&token_request_record, request),
                        BIND("digest", &digest), BIND_AUTHOR(author))))
    return false;

  if (db_affected(rows) == 0 && request->certificate)
    return error_of_at(error, ERROR_CONFLICT, "/name",
                       "there is a token \"%s\" already, or another one for the certificate "
                       "\"%s\"; revoke that one first",
                       request->name, request->certificate);
  if (db_affected(rows) == 0)
    return error_of_at(error, ERROR_CONFLICT, "/name",
                       "there is a token \"%s\" already; revoke it or take another name",
                       request->name);

  snprintf(ret_token, TOKEN_TEXT_SIZE, "%s", request->certificate ? "" : token);
  return true;
}

bool tokens_make(struct db *db, const struct token_request *request, const struct author *author,
                 char ret_token[TOKEN_TEXT_SIZE], struct error *error) {
  if (!db_begin(db, error))
    return false;
  if (!tokens_insert(db, request, author, ret_token, error)) {
    db_rollback(db);
    return false;
  }

  json_t *channels = request->channels.n ? json_array() : NULL;
  for (size_t i = 0; i < request->channels.n; i++)
    json_push(channels, json_string(request->channels.all[i]));
  json_t *detail =
      json_pack("{s:s, s:o*, s:s*, s:s*}", "role", request->role, "channels", channels,
                "certificate", request->certificate, "agent_name", request->agent_name);
  ALWAYS(detail != NULL);
  if (request->expires_in_ms != FIELD_NONE)
    json_put(detail, "expires_in_ms", json_integer((json_int_t)request->expires_in_ms));
  if (request->uses != FIELD_NONE)
    json_put(detail, "uses", json_integer((json_int_t)request->uses));
  return db_end(db, audit_note(db, author, AUDIT_MAKE_TOKEN, request->name, detail, error), error);
}

bool token_moves_channel(struct db *db, int64_t token, const char *channel, bool *ret_may,
                         char **ret_patterns, struct error *error) {
  cleanup_rows struct db_rows *rows =
      db_query(db, &sql_token_channels, error, BIND("token", token));
  if (!rows)
    return false;

  char *patterns = xstrdup("");
  *ret_may = false;
  for (int row = 0; row < db_count(rows); row++) {
    const char *pattern = db_get(rows, row, "pattern");
    *ret_may |= fnmatch(pattern, channel, 0) == 0;
    char *longer = xasprintf("%s%s%s", patterns, row ? "," : "", pattern);
    free(patterns);
    patterns = longer;
  }

  *ret_patterns = patterns;
  return true;
}

bool tokens_revoke(struct db *db, const char *name, bool may_be_last_admin,
                   const struct author *author, struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  bool is_good = db_begin(db, error) &&
                 (rows = db_query(db, &sql_tokens_revoke, error, BIND("name", name),
                                  parameter_bool("may_be_last_admin", may_be_last_admin),
                                  BIND_AUTHOR(author)));
  bool is_revoked = is_good && db_count(rows) && db_get_bool(rows, 0, "is_revoked");
  if (is_good && !is_revoked && db_count(rows) && db_get_bool(rows, 0, "is_last_admin"))
    is_good = error_of(error, ERROR_CONFLICT,
                       "\"%.64s\" is the last admin token: without one no token can be made over "
                       "HTTP; make another first, or use \"wavetune-server token revoke\"",
                       name);
  else if (is_good && !is_revoked) /* perhaps because another request has just revoked it */
    is_good = error_of(error, ERROR_MISSING, "there is no live token \"%.64s\"", name);

  is_good = is_good && audit_note(db, author, AUDIT_REVOKE_TOKEN, name, NULL, error);
  return db_end(db, is_good, error);
}

struct token {
  int64_t id, uses_left, made_by_id, revoked_by_id;
  char *name, *role, *created_at, *revoked_at, *expires_at, *agent, *agent_name, *certificate,
      *made_by, *revoked_by, *issuer;
  json_t *environment;
  struct texts channels;
};
#define RECORD_OF struct token
static const struct field token_fields[] = {
    MEMBER(ID, id, FIELD_NOT_NULL),
    MEMBER(TEXT, name, FIELD_NOT_NULL),
    MEMBER(TEXT, role, FIELD_NOT_NULL, .schema = SCHEMA_ROLE),
    MEMBER(TIME, created_at, FIELD_NOT_NULL),
    MEMBER(TIME, revoked_at),
    MEMBER(TIME, expires_at),
    MEMBER(TEXT, agent),
    MEMBER(INTEGER, uses_left),
    MEMBER(TEXT, agent_name),
    MEMBER(JSON, environment, .schema = SCHEMA_ENVIRONMENT),
    MEMBER(TEXTS, channels),
    MEMBER(TEXT, certificate),
    MEMBER(TEXT, issuer,
           .about = "of an identity: the provider whose tokens are for it (serve --oidc)"),
    MEMBER(TEXT, made_by, .schema = SCHEMA_BY),
    MEMBER(ID, made_by_id, .schema = SCHEMA_BY_ID),
    MEMBER(TEXT, revoked_by, .schema = SCHEMA_BY),
    MEMBER(ID, revoked_by_id, .schema = SCHEMA_BY_ID),
};
const struct record token_record = ANSWER("Token", token_fields);
#undef RECORD_OF

bool tokens_list(struct db *db, json_t **ret_items, struct error *error) {
  cleanup_rows struct db_rows *rows =
      db_query(db, &sql_tokens_list, error, BIND("after", 0), BIND("limit", INT32_MAX));
  if (!rows)
    return false;

  *ret_items = db_rows_to_json(rows, &token_record);
  return true;
}

struct token_answer {
  const char *token, *name, *role, *certificate;
};
#define RECORD_OF struct token_answer
static const struct field answer_fields[] = {
    MEMBER(TEXT, token, FIELD_OMITTED),
    MEMBER(TEXT, name, FIELD_NOT_NULL),
    MEMBER(TEXT, role, FIELD_NOT_NULL, .schema = SCHEMA_ROLE),
    MEMBER(TEXT, certificate, FIELD_OMITTED),
};
const struct record token_answer_record = ANSWER("TokenAnswer", answer_fields);
#undef RECORD_OF

/* Makes a change valid on this server before the answer is sent; other servers see it within
 * seconds. */
static void refresh(struct worker *worker) {
  struct error error;
  if (!tokens_refresh(worker, &error))
    log_warning("tokens: %s", error.message);
}

bool route_token_post(struct worker *worker, struct request *request, struct error *error) {
  cleanup_token_request struct token_request wanted = {0};
  char token[TOKEN_TEXT_SIZE];

  if (!token_request_parse(request->json, &wanted, error) ||
      !tokens_make(worker->db, &wanted, request_author(request), token, error))
    return false;

  log_info("token: %s made %s with the role %s%s%s", request->token_name, wanted.name, wanted.role,
           wanted.certificate ? " for the certificate " : "",
           wanted.certificate ? wanted.certificate : "");
  refresh(worker);
  struct token_answer answer = {wanted.certificate ? NULL : token, wanted.name, wanted.role,
                                wanted.certificate};
  return request_answer_json(request, 201, record_write(&token_answer_record, &answer));
}

bool route_token_list(struct worker *worker, struct request *request, struct error *error) {
  static const struct list list = {.statement = &sql_tokens_list, .record = &token_record};
  return answer_page_by(worker, request, &list, error);
}

struct own_token {
  char *name, *role, *expires_at;
  struct texts channels;
  json_t *operations;
};
#define RECORD_OF struct own_token
static const struct field own_fields[] = {
    MEMBER(TEXT, name, FIELD_NOT_NULL),
    MEMBER(TEXT, role, FIELD_NOT_NULL, .schema = SCHEMA_ROLE),
    MEMBER(TIME, expires_at),
    MEMBER(TEXTS, channels,
           .about = "patterns of the channels that it may move; null: not limited to some"),
    MEMBER(JSON, operations, FIELD_NOT_NULL | FIELD_NO_COLUMN,
           .schema = "{\"type\": \"array\", \"items\": {\"type\": \"string\"}}",
           .about = "the operations of /openapi.json that its roles may call"),
};
const struct record own_token_record = ANSWER("OwnToken", own_fields);
#undef RECORD_OF

/* What a user interface offers: it has no copy of the table of roles. */
bool route_token_own(struct worker *worker, struct request *request, struct error *error) {
  cleanup_rows struct db_rows *rows =
      db_query(worker->db, &sql_token_own, error, BIND("token", request->token_id));
  if (!rows)
    return false;

  if (!db_count(rows))
    return error_of(error, ERROR_MISSING, "the token is not in the database any more");

  json_t *operations = json_array();
  for (int id = 0; id < ROUTE_COUNT; id++) {
    const struct route *route = route_of((enum route_id)id);
    if (roles_may(request->roles, route->roles))
      json_push(operations, json_string(route->name));
  }

  json_t *own = db_row_to_json(rows, &own_token_record, NULL);
  json_put(own, "operations", operations);
  json_put(own, "name", json_string(request->token_name)); /* with that of a signed-in user */
  return request_answer_json(request, 200, own);
}

bool route_token_delete(struct worker *worker, struct request *request, struct error *error) {
  if (!tokens_revoke(worker->db, request->segments[0], false, request_author(request), error))
    return false;
  log_info("token: %s revoked %s", request->token_name, request->segments[0]);
  refresh(worker);
  return request_answer_empty(request, 204);
}
