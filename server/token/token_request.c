/* Reading requests for tokens. Memory and threads: as the header says. */
#include "server/token/tokens.h"

#include <time.h>

#include "common/base/time.h"
#include "common/node/environment.h"
#include "server/http/router.h"
#include "server/http/tls.h"
#include "server/records.h"

#define CHANNELS_MAX 64

/* "7d", or a time in the future; how long that is. */
static bool expires_parse(const char *text, int64_t *ret_ms, struct error *error) {
  int64_t us, ms = 0;
  struct timespec now;
  if (!duration_parse(text, &ms) && time_parse(text, &us)) {
    ALWAYS(clock_gettime(CLOCK_REALTIME, &now) == 0);
    ms = us / 1000 - ((int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000);
  }
  if (ms <= 0 || ms > DURATION_MS_MAX)
    return error_at(error, "/expires",
                    "\"%.64s\" is no time to come; write how long the token is good for, like 90s, "
                    "30m, 12h or 7d, or "
                    "until when, like 2026-01-31T12:00:00Z",
                    text);
  *ret_ms = ms;
  return true;
}

static const struct field request_fields[] = {
    {"name", FIELD_TEXT, offsetof(struct token_request, name), FIELD_REQUIRED,
     .schema = "{\"type\": \"string\", \"pattern\": \"^[A-Za-z0-9._-]{1,64}$\"}"},
    {"role", FIELD_TEXT, offsetof(struct token_request, role), FIELD_REQUIRED,
     .schema = SCHEMA_ROLE},
    {"expires", FIELD_TEXT, offsetof(struct token_request, expires), FIELD_NO_COLUMN,
     .about = "how long it is good for, such as 7d or 12h, or until when"},
    {"uses", FIELD_INTEGER, offsetof(struct token_request, uses), .least = 1,
     .most = TOKEN_USES_MAX},
    {"agent_name", FIELD_TEXT, offsetof(struct token_request, agent_name), .least = 1, .most = 200},
    {"environment", FIELD_JSON, offsetof(struct token_request, environment),
     .schema = SCHEMA_ENVIRONMENT},
    {"certificate", FIELD_TEXT, offsetof(struct token_request, certificate), FIELD_NOT_NULL,
     .schema = "{\"type\": \"string\", \"pattern\": \"^(URI|DNS|CN):[ -~]{1,250}$\"}",
     .about = "the name of the client certificate that stands for a token of the role agent; no "
              "token is made then"},
    {"channels", FIELD_TEXTS, offsetof(struct token_request, channels), .most = CHANNELS_MAX,
     .schema = "{\"type\": \"array\", \"maxItems\": 64,"
               " \"items\": {\"type\": \"string\", \"pattern\": \"^[a-z0-9._*?[\\\\]!-]{1,64}$\"}}",
     .about = "of the role publisher, which needs them: names of channels, or patterns of names"},
    {"expires_in_ms", FIELD_INTEGER, offsetof(struct token_request, expires_in_ms), FIELD_NO_JSON},
    {"agent", FIELD_TEXT, offsetof(struct token_request, agent), FIELD_NO_JSON},
    {"replaces", FIELD_ID, offsetof(struct token_request, replaces), FIELD_NO_JSON},
};
const struct record token_request_record =
    RECORD("TokenRequest", struct token_request, request_fields);

void token_request_init(struct token_request *request) {
  record_init(&token_request_record, request);
}
void token_request_release(struct token_request *request) {
  record_release(&token_request_record, request);
}

/* A publisher moves the channels that its token names, and no others. */
static bool channels_check(const struct texts *channels, unsigned roles, struct error *error) {
  bool is_publisher = (roles & TOKEN_PUBLISHER) != 0;
  if (is_publisher != (channels->n > 0))
    return error_at(error, "/channels",
                    is_publisher ? "a publisher's token names the channels that it moves, such as "
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

/* Of the role agent alone: a browser sends a certificate with whatever request a page makes it
 * send. */
static bool certificate_check(const char *name, unsigned roles, struct error *error) {
  if (roles != TOKEN_AGENT)
    return error_at(error, "/certificate",
                    "a client certificate stands for a token of the role agent, and no other");
  if (!tls_name_is_good(name))
    return error_at(
        error, "/certificate",
        "\"%.64s\" is no name of a client certificate; write it like "
        "URI:spiffe://example/agent/node-17, "
        "DNS:node-17.example or CN:node-17, with 1 to 250 printable characters behind the colon",
        name);
  return true;
}

bool token_request_parse(const json_t *json, struct token_request *ret, struct error *error) {
  cleanup_environment struct environment environment = {0};
  unsigned roles;
  token_request_init(ret);
  if (!record_read(&token_request_record, json, "", ret, error))
    return false;

  if (!token_name_is_good(ret->name))
    return error_at(error, "/name",
                    "a token's name is 1 to 64 of A-Z, a-z, 0-9, \".\", \"_\" and \"-\"");
  if (!roles_parse(ret->role, &roles, error) || !channels_check(&ret->channels, roles, error))
    return false;
  if (roles != TOKEN_ENROL && (ret->uses != FIELD_NONE || ret->agent_name || ret->environment))
    return error_at(error, "/role",
                    "uses, an agent's name and an environment are for tokens of the role enrol");
  if (ret->certificate && !certificate_check(ret->certificate, roles, error))
    return false;
  if (ret->environment && !environment_parse(ret->environment, &environment, error))
    return error_pointer_prefix(error, "/environment");

  if (ret->expires && !expires_parse(ret->expires, &ret->expires_in_ms, error))
    return false;
  if (roles == TOKEN_ENROL && ret->uses == FIELD_NONE)
    ret->uses = 1;
  return true;
}
