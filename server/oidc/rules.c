/* Reads the file of --oidc by tables of fields, checks what they cannot, and applies the rules. */
#include "server/oidc/rules.h"

#include "common/base/file.h"
#include "server/http/router.h"
#include "server/token/tokens.h"

#define FILE_MAX ((size_t)1 << 20)
#define CLAIMS_MAX 16
#define RULES_MAX 256
#define URL_MAX 500
#define REFRESH_S 600
#define PAUSE_S 30
#define KEEP_S (24 * 60 * 60)

/* Ids that GitHub and GitLab never give to another repository, project, owner or group. */
static const char *const id_claims[] = {"repository_id", "project_id", "repository_owner_id",
                                        "namespace_id"};

#define RECORD_OF struct oidc_claim
static const struct field claim_fields[] = {
    MEMBER(TEXT, name, FIELD_LINE, .least = 1, .most = 64),
    MEMBER(TEXT, value, FIELD_REQUIRED | FIELD_LINE, .least = 1, .most = 500),
};
#undef RECORD_OF
static const struct record claim_record = RECORD(NULL, struct oidc_claim, claim_fields);

#define RECORD_OF struct oidc_rule
static const struct field rule_fields[] = {
    MEMBER_AS("claims", MAP, n_claims, FIELD_REQUIRED, .least = 1, .most = CLAIMS_MAX,
              .of = &claim_record),
    MEMBER(TEXT, role, FIELD_REQUIRED),
    MEMBER(TEXTS, channels, .most = 64),
};
#undef RECORD_OF
static const struct record rule_record = RECORD(NULL, struct oidc_rule, rule_fields);

#define FIELD(type, member, ...) RECORD_FIELD(type, struct oidc_issuer, member, __VA_ARGS__)
#define SECONDS(name, member)                                                                      \
  RECORD_FIELD_AS(name, INTEGER, struct oidc_issuer, member, .least = 1, .most = 30 * 24 * 60 * 60)
static const struct field issuer_fields[] = {
    FIELD(TEXT, issuer, FIELD_REQUIRED | FIELD_LINE, .most = URL_MAX),
    FIELD(TEXT, name, FIELD_REQUIRED),
    FIELD(TEXT, audience, FIELD_REQUIRED | FIELD_LINE, .least = 1, .most = 200),
    FIELD(TEXT, jwks_url, FIELD_LINE, .most = URL_MAX),
    FIELD(TEXT, ca),
    SECONDS("refresh_seconds", refresh_s),
    SECONDS("pause_seconds", pause_s),
    SECONDS("keep_seconds", keep_s),
    RECORD_FIELD_AS("rules", RECORDS, struct oidc_issuer, n_rules, FIELD_REQUIRED, .least = 1,
                    .most = RULES_MAX, .of = &rule_record),
};
#undef FIELD
#undef SECONDS
static const struct record issuer_record = RECORD(NULL, struct oidc_issuer, issuer_fields);

bool oidc_url_is_good(const char *url) {
  static const char *const here[] = {"http://127.0.0.1", "http://localhost", "http://[::1]"};
  if (string_starts(url, "https://"))
    return url[8] && url[8] != '/';
  for (size_t i = 0; i < ARRAY_LENGTH(here); i++) {
    const char *rest = url + strlen(here[i]);
    if (string_starts(url, here[i]) && (!*rest || *rest == ':' || *rest == '/'))
      return true;
  }
  return false;
}

static bool rule_check(const struct oidc_rule *rule, struct error *error) {
  bool has_id = false;
  unsigned roles;
  for (size_t i = 0; i < rule->n_claims; i++)
    for (size_t k = 0; k < ARRAY_LENGTH(id_claims); k++)
      has_id |=
          string_equal(rule->claims[i].name, id_claims[k]) && !strchr(rule->claims[i].value, '*');

  if (!has_id)
    return error_at(error, "/claims",
                    "the rule names no id: add the repository_id (GitHub) or project_id (GitLab), "
                    "or that of the owner (repository_owner_id, namespace_id), because names can "
                    "pass to others");
  if (!roles_parse(rule->role, &roles, error))
    return false;
  if (roles & (TOKEN_AGENT | TOKEN_ENROL | TOKEN_ADMIN))
    return error_at(error, "/role",
                    "a rule cannot give the role %s: make a token for that (wavetune-server token "
                    "make)",
                    rule->role);
  return token_channels_check(&rule->channels, roles, error);
}

static bool issuer_check(const struct oidc_issuer *issuer, struct error *error) {
  size_t length = strspn(issuer->name, "abcdefghijklmnopqrstuvwxyz0123456789-");
  if (!oidc_url_is_good(issuer->issuer))
    return error_at(error, "/issuer", "an issuer's URL begins with https://");
  if (issuer->jwks_url && !oidc_url_is_good(issuer->jwks_url))
    return error_at(error, "/jwks_url", "the URL of keys begins with https://");
  if (length < 1 || length > 16 || issuer->name[length])
    return error_at(error, "/name", "an issuer's name is 1 to 16 of a-z, 0-9 and \"-\"");
  if (issuer->ca && access(issuer->ca, R_OK) < 0)
    return error_at(error, "/ca", "cannot read %.300s", issuer->ca);

  for (size_t i = 0; i < issuer->n_rules; i++) {
    char at[JSON_POINTER_SIZE];
    if (!rule_check(&issuer->rules[i], error))
      return error_pointer_prefix(error, json_pointer_index(at, sizeof at, "/rules", i));
  }
  return true;
}

bool oidc_issuers_parse(const json_t *json, struct oidc_issuers *ret, struct error *error) {
  size_t n = json_array_size(json);
  *ret = (struct oidc_issuers){0};
  if (!json_is_array(json) || n < 1 || n > OIDC_ISSUERS_MAX)
    return error_set(error, "it must be a JSON array of 1 to %d issuers", OIDC_ISSUERS_MAX);

  ret->all = xcalloc(n, sizeof *ret->all);
  for (; ret->n < n; ret->n++) {
    struct oidc_issuer *issuer = &ret->all[ret->n];
    char at[JSON_POINTER_SIZE];
    record_init(&issuer_record, issuer);
    issuer->refresh_s = REFRESH_S;
    issuer->pause_s = PAUSE_S;
    issuer->keep_s = KEEP_S;

    json_pointer_index(at, sizeof at, "", ret->n);
    if (!record_read(&issuer_record, json_array_get(json, ret->n), at, issuer, error)) {
      record_release(&issuer_record, issuer);
      return false;
    }
    for (size_t i = 0; i < ret->n; i++)
      if (string_equal(ret->all[i].issuer, issuer->issuer) ||
          string_equal(ret->all[i].name, issuer->name)) {
        record_release(&issuer_record, issuer);
        return error_at(error, at, "two issuers have the same URL or the same name");
      }
    if (!issuer_check(issuer, error)) {
      record_release(&issuer_record, issuer);
      return error_pointer_prefix(error, at);
    }
  }

  return true;
}

bool oidc_issuers_read(const char *path, struct oidc_issuers *ret, struct error *error) {
  cleanup_json json_t *json = NULL;
  *ret = (struct oidc_issuers){0};
  if (!json_parse_file(path, FILE_MAX, &json, error))
    return false;
  if (oidc_issuers_parse(json, ret, error))
    return true;

  struct error wrong = *error;
  return error_set(error, "%s%s%s: %s", path, *wrong.pointer ? " at " : "", wrong.pointer,
                   wrong.message);
}

void oidc_issuers_release(struct oidc_issuers *issuers) {
  for (size_t i = 0; i < issuers->n; i++)
    record_release(&issuer_record, &issuers->all[i]);
  free(issuers->all);
  *issuers = (struct oidc_issuers){0};
}

const struct oidc_issuer *oidc_issuer_find(const struct oidc_issuers *issuers, const char *url) {
  for (size_t i = 0; url && i < issuers->n; i++)
    if (strcmp(issuers->all[i].issuer, url) == 0)
      return &issuers->all[i];
  return NULL;
}

/* The text of a claim: of a string, or of an integer in decimal. NULL: it is something else. The
 * caller's. */
static char *claim_text(const json_t *claims, const char *name) {
  const json_t *value = json_object_get(claims, name);
  if (json_is_integer(value))
    return xasprintf("%" JSON_INTEGER_FORMAT, json_integer_value(value));
  return json_is_string(value) ? xstrdup(json_string_value(value)) : NULL;
}

static bool claim_holds(const struct oidc_claim *claim, const json_t *claims) {
  cleanup_free char *text = claim_text(claims, claim->name);
  size_t length = strlen(claim->value);
  if (!text)
    return false;
  return claim->value[length - 1] == '*' ? strncmp(text, claim->value, length - 1) == 0
                                         : strcmp(text, claim->value) == 0;
}

const struct oidc_rule *oidc_rule_find(const struct oidc_issuer *issuer, const json_t *claims) {
  for (size_t i = 0; i < issuer->n_rules; i++) {
    const struct oidc_rule *rule = &issuer->rules[i];
    size_t n = 0;
    while (n < rule->n_claims && claim_holds(&rule->claims[n], claims))
      n++;
    if (n == rule->n_claims)
      return rule;
  }
  return NULL;
}

char *oidc_claims_seen(const struct oidc_issuer *issuer, const json_t *claims) {
  cleanup_json json_t *names = json_object(); /* each once */
  char *seen = xstrdup("");
  for (size_t i = 0; i < issuer->n_rules; i++)
    for (size_t k = 0; k < issuer->rules[i].n_claims; k++)
      json_put(names, issuer->rules[i].claims[k].name, json_true());

  const char *name;
  json_t *unused;
  json_object_foreach (names, name, unused) {
    cleanup_free char *text = claim_text(claims, name), *before = seen;
    const char *comma = *before ? ", " : "";
    seen = text ? xasprintf("%s%s%s \"%.100s\"", before, comma, name, text)
                : xasprintf("%s%sno %s", before, comma, name);
  }
  return seen;
}

/* Appends `text` with all but these characters percent-encoded. */
static void name_append(char *name, size_t size, const char *text) {
  static const char plain[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._/:+";
  size_t used = strlen(name);
  for (; *text && used + 4 < size; text++)
    used += (size_t)(strchr(plain, *text)
                         ? snprintf(name + used, size - used, "%c", *text)
                         : snprintf(name + used, size - used, "%%%02X", (unsigned char)*text));
}

void oidc_name(const struct oidc_issuer *issuer, const json_t *claims,
               char ret_name[TOKEN_NAME_SIZE]) {
  static const char *const subjects[] = {"repository", "project_path", "sub"};
  char name[2048]; /* a token has at most 8 KiB; what is longer is cut and gets a digest */
  cleanup_free char *subject = NULL, *ref = claim_text(claims, "ref");
  for (size_t i = 0; i < ARRAY_LENGTH(subjects) && !subject; i++)
    subject = claim_text(claims, subjects[i]);

  snprintf(name, sizeof name, "%s:", issuer->name);
  name_append(name, sizeof name, subject && *subject ? subject : "unknown");
  if (ref) {
    size_t used = strlen(name);
    snprintf(name + used, sizeof name - used, "@");
    name_append(name, sizeof name, ref);
  }

  if (strlen(name) < TOKEN_NAME_SIZE) {
    memcpy(ret_name, name, strlen(name) + 1);
    return;
  }
  char digest[DIGEST_TEXT_SIZE];
  cleanup_free char *whole = xasprintf("%s\n%s", subject ? subject : "", ref ? ref : "");
  struct digest of_whole = digest_of(whole, strlen(whole));
  digest_format(&of_whole, digest);
  snprintf(ret_name, TOKEN_NAME_SIZE, "%.*s~%.16s", TOKEN_NAME_SIZE - 18, name, digest + 7);
}

struct digest oidc_identity_digest(const struct oidc_issuer *issuer, const struct oidc_rule *rule,
                                   const char *name) {
  cleanup_json json_t *channels = json_array();
  for (size_t i = 0; i < rule->channels.n; i++)
    json_push(channels, json_string(rule->channels.all[i]));
  cleanup_free char *listed = json_canonical(channels),
                    *text = xasprintf("wavetune identity\n%s\n%s\n%s\n%s", issuer->issuer, name,
                                      rule->role, listed);
  return digest_of(text, strlen(text));
}
