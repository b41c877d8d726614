/* The rules of --sign-in, and the user that a trusted proxy states for a request. */
#include "server/http/sign_in.h"

#include <fnmatch.h>
#include <openssl/crypto.h>
#include <strings.h>

#include "common/base/digest.h"
#include "common/base/file.h"
#include "server/http/head.h"
#include "server/http/http_private.h"
#include "server/http/request.h"
#include "server/http/request_private.h"
#include "server/http/tokens.h"

#define SECRET_LENGTH_MIN 16
#define SECRET_SIZE_MAX 4096
#define PAGE_HEADER "X-Wavetune"

struct rule {
  bool is_group;
  char *name; /* a pattern for fnmatch */
  char token[TOKEN_NAME_SIZE];
};
struct sign_in {
  char *user_header, *groups_header;
  struct digest secret; /* of it */
  size_t n;
  struct rule rules[];
};

void sign_in_free(struct sign_in *rules) {
  for (size_t i = 0; rules && i < rules->n; i++)
    free(rules->rules[i].name);
  if (rules) {
    free(rules->user_header);
    free(rules->groups_header);
  }
  free(rules);
}

static bool rule_parse(const char *text, struct rule *ret, struct error *error) {
  const char *equals = strrchr(text, '=');
  bool is_group = string_starts(text, "group:"), is_user = string_starts(text, "user:");
  const char *name = text + (is_group ? strlen("group:") : strlen("user:"));
  if ((!is_group && !is_user) || !equals || equals <= name || !equals[1] ||
      strlen(equals + 1) >= sizeof ret->token)
    return error_set(error,
                     "--sign-in \"%.100s\" is not user:NAME=TOKEN or group:NAME=TOKEN: the name, "
                     "or a pattern like *@example.com, and the name of the token to act as",
                     text);

  ret->is_group = is_group;
  ret->name = xstrndup(name, (size_t)(equals - name));
  snprintf(ret->token, sizeof ret->token, "%s", equals + 1);
  return true;
}

static bool secret_read(const char *path, struct digest *ret, struct error *error) {
  cleanup_free char *text = NULL;
  size_t size;
  if (!file_read(path, SECRET_SIZE_MAX, &text, &size, error))
    return error_prefix(error, "--sign-in-secret: ");

  while (size && strchr("\r\n", text[size - 1]))
    size--;
  bool is_good = size >= SECRET_LENGTH_MIN;
  for (size_t i = 0; i < size && is_good; i++)
    is_good = text[i] > ' ' && text[i] < 0x7f;
  *ret = digest_of(text, size);
  OPENSSL_cleanse(text, size);
  return is_good || error_set(error,
                              "--sign-in-secret: %s must have one line of at least %d printable "
                              "characters without blanks, such as \"openssl rand -hex 32\" writes",
                              path, SECRET_LENGTH_MIN);
}

bool sign_in_new(const struct server_options *options, struct sign_in **ret_rules,
                 struct error *error) {
  *ret_rules = NULL;
  if (options->n_sign_in == 0)
    return true;
  if (!options->n_trusted_proxies || !options->sign_in_secret)
    return error_set(error, "--sign-in needs --trusted-proxy, which states who is signed in, and "
                            "--sign-in-secret, a file with what that proxy sends as "
                            "X-Wavetune-Proxy");

  const char *headers[] = {options->sign_in_user_header, options->sign_in_groups_header};
  for (size_t i = 0; i < ARRAY_LENGTH(headers); i++)
    if (!field_name_is_valid(headers[i]))
      return error_set(error, "\"%.60s\" is no name of a header", headers[i]);

  struct sign_in *rules = xcalloc(1, sizeof *rules + options->n_sign_in * sizeof *rules->rules);
  rules->user_header = xstrdup(headers[0]);
  rules->groups_header = xstrdup(headers[1]);
  bool is_good = secret_read(options->sign_in_secret, &rules->secret, error);
  for (; is_good && rules->n < options->n_sign_in; rules->n += is_good)
    is_good = rule_parse(options->sign_in[rules->n], &rules->rules[rules->n], error);
  if (!is_good)
    sign_in_free(TAKE(rules));
  *ret_rules = rules;
  return is_good;
}

const char *sign_in_user_header(const struct sign_in *rules) { return rules->user_header; }
const char *sign_in_groups_header(const struct sign_in *rules) { return rules->groups_header; }

bool sign_in_is_stated(const struct connection *connection) {
  return connection->http->sign_in && connection->is_proxy &&
         connection->headers[HEADER_FORWARDED_USER];
}

/* Digests are compared, so that the time it takes reveals nothing about the secret. */
static bool secret_is_right(const struct sign_in *rules, const char *secret) {
  struct digest digest = digest_of(secret ? secret : "", secret ? strlen(secret) : 0);
  return CRYPTO_memcmp(digest.bytes, rules->secret.bytes, DIGEST_SIZE) == 0;
}

static bool user_is_good(const char *user) {
  const char *c = user;
  while (*c > ' ' && *c < 0x7f)
    c++;
  return c > user && !*c;
}

/* Whether one of the names in a list "a, b" fits. A name may have blanks within. */
static bool group_fits(const char *pattern, const char *list) {
  cleanup_free char *names = xstrdup(list);
  char *state;
  for (char *name = strtok_r(names, ",", &state); name; name = strtok_r(NULL, ",", &state)) {
    name += strspn(name, " \t");
    size_t size = strlen(name);
    while (size > 0 && (name[size - 1] == ' ' || name[size - 1] == '\t'))
      name[--size] = '\0';
    if (size > 0 && fnmatch(pattern, name, 0) == 0)
      return true;
  }

  return false;
}

static const struct rule *rule_find(const struct sign_in *rules, const char *user,
                                    const char *groups) {
  for (size_t i = 0; i < rules->n; i++) {
    const struct rule *rule = &rules->rules[i];
    if (rule->is_group ? groups && group_fits(rule->name, groups)
                       : fnmatch(rule->name, user, 0) == 0)
      return rule;
  }

  return NULL;
}

bool sign_in_find(const struct connection *connection, struct auth_token *ret_token,
                  struct error *error) {
  const struct sign_in *rules = connection->http->sign_in;
  const char *user = connection->headers[HEADER_FORWARDED_USER];
  if (!secret_is_right(rules, connection->headers[HEADER_PROXY_SECRET]))
    return error_set(error, "the proxy in front states a user without the right secret: let it "
                            "send the contents of --sign-in-secret as X-Wavetune-Proxy");
  if (!user_is_good(user))
    return error_set(error, "the proxy in front states a user whose name is empty, or has other "
                            "characters than printable ASCII without blanks");

  const struct rule *rule = rule_find(rules, user, connection->headers[HEADER_FORWARDED_GROUPS]);
  if (!rule)
    return error_set(
        error,
        "you are signed in as \"%.100s\", and no rule lets you use this server: an operator "
        "adds one with serve --sign-in",
        user);

  enum auth_answer answer = auth_find_name(connection->http->auth, rule->token, ret_token);
  if (answer == AUTH_LOOK_UP)
    return error_of(error, ERROR_UNAVAILABLE,
                    "you are signed in as \"%.100s\", but the server, which has just started, has "
                    "not read its tokens from the database yet; try again",
                    user);
  if (answer != AUTH_KNOWN)
    return error_set(error,
                     "you are signed in as \"%.100s\", but there is no live token \"%s\" to act "
                     "as: an admin makes it with \"wavetune token make %s --role ROLE\"",
                     user, rule->token, rule->token);
  if (ret_token->roles & (TOKEN_AGENT | TOKEN_ENROL))
    return error_set(
        error,
        "you are signed in as \"%.100s\", but \"%s\" is a token of agents, which cannot be "
        "used in a browser: name another one with serve --sign-in",
        user, rule->token);

  bool is_shared = rule->is_group || strpbrk(rule->name, "*?[\\") != NULL;
  for (size_t i = 0; i < rules->n; i++)
    is_shared |= &rules->rules[i] != rule && string_equal(rules->rules[i].token, rule->token);
  char name[TOKEN_NAME_SIZE];
  int length = snprintf(name, sizeof name, "%s:%s", rule->token, user);
  if (!is_shared)
    return true;
  if (length >= (int)sizeof name)
    return error_set(error,
                     "the name of the signed-in user is too long: with that of the token \"%s\" "
                     "it may have %d characters",
                     rule->token, TOKEN_NAME_SIZE - 2);
  memcpy(ret_token->name, name, sizeof name);
  return true;
}

/* Whether an origin like "https://tuning.example:8443" has this host. */
static bool origin_is_host(const char *origin, const char *host) {
  const char *at = strstr(origin, "://");
  return at && host && strcasecmp(at + strlen("://"), host) == 0;
}

bool sign_in_may_write(const struct connection *connection, struct error *error) {
  const char *site = connection->headers[HEADER_FETCH_SITE],
             *origin = connection->headers[HEADER_ORIGIN];
  if (!connection->headers[HEADER_PAGE])
    return error_set(error, "a request that may change something, of a user whom the proxy signed "
                            "in, needs the header \"" PAGE_HEADER ": page\"");
  /* Browsers from 2023 on state how the page that makes the request is related to this server;
   * a proxy may change Host, so it is compared only where that is not stated. */
  if (site ? strcasecmp(site, "same-origin") != 0
           : origin && !origin_is_host(origin, connection->headers[HEADER_HOST]))
    return error_set(error, "another page made this request; only the page of this server may");
  return true;
}

/* What the page asks before it shows a form for a token. It is answered 200 to everyone, because a
 * browser reports other answers to its user as faults; 503 while the tokens were not read yet. */
void route_sign_in_get(struct server *server, struct request *request) {
  const struct connection *connection = request_private_of(request)->connection;
  struct auth_token token;
  struct error error;
  (void)server;
  if (!request_query_only(request, NULL))
    return;

  bool is_stated = sign_in_is_stated(connection);
  bool is_known = is_stated && sign_in_find(connection, &token, &error);
  if (is_stated && !is_known && error.kind == ERROR_UNAVAILABLE) {
    request_problem(request, MHD_HTTP_SERVICE_UNAVAILABLE, "%s", error.message);
    return;
  }
  request_answer_json(request, 200,
                      json_pack("{s:s?, s:s?}", "user", is_known ? token.name : NULL, "problem",
                                is_stated && !is_known ? error.message : NULL));
}
