/* Reading requests for tokens. Memory and threads: as the header says. */
#include "server/token/token_request.h"

#include <errno.h>
#include <time.h>

#include "common/base/time_text.h"
#include "common/node/environment.h"
#include "server/http/router.h"
#include "server/http/tls.h"

#define CHANNELS_MAX 64
#define EXPIRES_MS_MAX (INT64_C(36500) * 24 * 3600 * 1000)

bool duration_parse(const char *text, int64_t *ret_ms) {
  static const struct {
    char unit;
    int64_t ms;
  } units[] = {{'s', 1000}, {'m', 60 * 1000}, {'h', 3600 * 1000}, {'d', 24 * 3600 * 1000}};
  char *end;
  int64_t ms = 0;
  errno = 0;
  long long number = strtoll(text, &end, 10);
  for (size_t i = 0; i < ARRAY_LENGTH(units) && *text >= '0' && *text <= '9' && !errno; i++)
    if (end[0] == units[i].unit && !end[1] && number <= EXPIRES_MS_MAX / units[i].ms)
      ms = number * units[i].ms;
  *ret_ms = ms;
  return ms > 0;
}

/* "7d", or a time in the future; how long that is. */
static bool expires_parse(const char *text, int64_t *ret_ms, struct error *error) {
  int64_t us, ms = 0;
  struct error ignored;
  struct timespec now;
  if (!duration_parse(text, &ms) && time_parse(text, &us, &ignored)) {
    ALWAYS(clock_gettime(CLOCK_REALTIME, &now) == 0);
    ms = us / 1000 - ((int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000);
  }
  if (ms <= 0 || ms > EXPIRES_MS_MAX)
    return error_at(error, "/expires",
                    "\"%.64s\" is no time to come; write how long the token is good for, like 90s, 30m, 12h or 7d, or "
                    "until when, like 2026-01-31T12:00:00Z",
                    text);
  *ret_ms = ms;
  return true;
}

/* A publisher moves the channels that its token names, and no others. */
static bool channels_check(const json_t *channels, unsigned roles, struct error *error) {
  bool is_publisher = (roles & TOKEN_PUBLISHER) != 0;
  size_t n = json_array_size(channels);
  if (is_publisher != (n > 0))
    return error_at(error, "/channels",
                    is_publisher
                        ? "a publisher's token names the channels that it moves, such as \"stable\" or \"test-*\""
                        : "channels are for tokens of the role publisher");
  if (n > CHANNELS_MAX)
    return error_at(error, "/channels", "%zu channels; a token names at most %d", n, CHANNELS_MAX);
  for (size_t i = 0; i < n; i++) {
    char at[JSON_POINTER_SIZE];
    const char *text = json_string_value(json_array_get(channels, i));
    size_t length = text ? strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789._-*?[]!") : 0;
    if (length < 1 || length > 64 || text[length])
      return error_at(error, json_pointer_index(at, sizeof at, "/channels", i),
                      "a channel's name, or a pattern of names, is 1 to 64 of a-z, 0-9, \".\", "
                      "\"_\", \"-\", and \"*\", \"?\", \"[…]\"");
  }
  return true;
}

/* Of the role agent alone: a browser sends a certificate with whatever request a page makes it send. */
static bool certificate_check(const char *name, unsigned roles, struct error *error) {
  if (roles != TOKEN_AGENT)
    return error_at(error, "/certificate", "a client certificate stands for a token of the role agent, and no other");
  if (!tls_name_is_good(name))
    return error_at(error, "/certificate",
                    "\"%.64s\" is no name of a client certificate; write it like URI:spiffe://example/agent/node-17, "
                    "DNS:node-17.example or CN:node-17, with 1 to 250 printable characters behind the colon",
                    name);
  return true;
}

void token_request_taken(const struct token_request *request, struct error *ret_error) {
  if (request->certificate)
    error_at(ret_error, "/name",
             "there is a token \"%s\" already, or another one that stands for \"%s\"; revoke that one first",
             request->terms.name, request->certificate);
  else
    error_at(ret_error, "/name", "there is a token \"%s\" already; revoke it or take another name",
             request->terms.name);
}

bool token_request_parse(const json_t *json, struct token_request *ret, struct error *error) {
  static const char *const members[] = {"name",        "role",        "expires",  "uses", "agent_name",
                                        "environment", "certificate", "channels", NULL};
  const char *certificate = NULL;
  struct token_terms terms = {0};
  unsigned roles;
  const char *expires = NULL;
  json_t *environment_json = NULL, *channels = NULL;
  cleanup_environment struct environment environment = {0};
  if (!json_only_members(json, "", members, error) ||
      !json_get_string(json, "", "name", JSON_REQUIRED, &terms.name, error) ||
      !json_get_string(json, "", "role", JSON_REQUIRED, &terms.role, error) ||
      !json_get_string(json, "", "expires", JSON_OPTIONAL, &expires, error) ||
      !json_get_integer(json, "", "uses", JSON_OPTIONAL, 1, TOKEN_USES_MAX, &terms.uses, error) ||
      !json_get_string(json, "", "agent_name", JSON_OPTIONAL, &terms.agent_name, error) ||
      !json_get_string(json, "", "certificate", JSON_NOT_NULL, &certificate, error) ||
      !json_get_object(json, "", "environment", JSON_OPTIONAL, &environment_json, error) ||
      !json_get_array(json, "", "channels", JSON_OPTIONAL, &channels, error))
    return false;
  if (!token_name_is_good(terms.name))
    return error_at(error, "/name", "a token's name is 1 to 64 of A-Z, a-z, 0-9, \".\", \"_\" and \"-\"");
  if (!roles_parse(terms.role, &roles, error) || !channels_check(channels, roles, error))
    return false;
  if (roles != TOKEN_ENROL && (terms.uses || terms.agent_name || environment_json))
    return error_at(error, "/role", "uses, an agent's name and an environment are for tokens of the role enrol");
  if (certificate && !certificate_check(certificate, roles, error))
    return false;
  if (terms.agent_name && (!*terms.agent_name || strlen(terms.agent_name) > 200))
    return error_at(error, "/agent_name", "\"agent_name\" has %zu bytes; it must have 1 to 200",
                    strlen(terms.agent_name));
  if (environment_json && !environment_parse(environment_json, &environment, error))
    return error_pointer_prefix(error, "/environment");
  if (expires && !expires_parse(expires, &terms.expires_in_ms, error))
    return false;
  if (roles == TOKEN_ENROL && !terms.uses)
    terms.uses = 1;
  if (environment_json)
    terms.environment = json_canonical(environment_json);
  terms.channels = channels;
  terms.certificate = certificate;
  *ret = (struct token_request){.terms = terms, .certificate = certificate};
  if (certificate)
    ret->digest = tls_name_digest(certificate);
  return true;
}
