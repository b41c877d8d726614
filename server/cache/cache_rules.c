/* Resolving an environment by rules that grow wider. Pure functions. */
#include "server/cache/cache_rules.h"

#include "server/records.h"

#define SCHEMA_ENVIRONMENT "{\"$ref\": \"#/components/schemas/Environment\"}"

static const struct field request_fields[] = {
    {"asked", FIELD_JSON, offsetof(struct compatibility_text, asked), FIELD_REQUIRED,
     .schema = SCHEMA_ENVIRONMENT},
    {"served", FIELD_JSON, offsetof(struct compatibility_text, served), FIELD_REQUIRED,
     .schema = SCHEMA_ENVIRONMENT},
    {"reason", FIELD_TEXT, offsetof(struct compatibility_text, reason), FIELD_NOT_NULL,
     .most = COMPATIBILITY_REASON_MAX},
};
const struct record compatibility_request_record =
    RECORD("CompatibilityRequest", struct compatibility_text, request_fields);

void compatibility_release(struct compatibility *compatibility) {
  environment_release(&compatibility->asked);
  environment_release(&compatibility->served);
  free(compatibility->reason);
}

/* Both sides state the same members, or serving would drop what was asked for. */
static bool sides_check(const struct compatibility *it, struct error *error) {
  bool any = false, differ = false;
#define X(member, hardware)                                                                        \
  if ((it->asked.member != NULL) != (it->served.member != NULL))                                   \
    return error_at(error, "/served", "\"%s\" must stand in both \"asked\" and \"served\"",        \
                    #member);                                                                      \
  any = any || it->asked.member != NULL;                                                           \
  differ = differ || (it->asked.member && strcmp(it->asked.member, it->served.member) != 0);
  ENVIRONMENT_TEXTS(X)
#undef X
  const struct environment *const sides[] = {&it->asked, &it->served};
  for (size_t i = 0; i < ARRAY_LENGTH(sides); i++)
    if (sides[i]->arch || sides[i]->partition || sides[i]->compute_units)
      return error_at(error, i ? "/served" : "/asked",
                      "arch, compute_units and partition cannot be declared compatible: a config "
                      "of another GPU is "
                      "never served");
  if (!any)
    return error_at(error, "/asked", "state the members that may differ, such as rocm");
  return differ || error_at(error, "/served",
                            "the same members with the same values as \"asked\" say nothing");
}

bool compatibility_check(const struct compatibility_text *text, struct compatibility *ret,
                         struct error *error) {
  cleanup_compatibility struct compatibility checked = {
      .reason = xstrdup(text->reason ? text->reason : "")};
  if (!environment_parse(text->asked, &checked.asked, error))
    return error_pointer_prefix(error, "/asked");
  if (!environment_parse(text->served, &checked.served, error))
    return error_pointer_prefix(error, "/served");
  if (!sides_check(&checked, error))
    return false;
  *ret = checked;
  checked = (struct compatibility){0};
  return true;
}

bool compatibility_parse(const json_t *json, struct compatibility *ret, struct error *error) {
  struct compatibility_text text = {0};
  bool ok = record_read(&compatibility_request_record, json, "", &text, error) &&
            compatibility_check(&text, ret, error);
  record_release(&compatibility_request_record, &text);
  return ok;
}

static bool equal_but_rocm(const struct environment *a, const struct environment *b) {
  struct environment one = *a, other = *b;
  one.rocm = other.rocm = NULL;
  return environment_fits(&one, &other) && environment_fits(&other, &one);
}

/* The newest that has just the members which were asked for; else the newest of all that fit, when
 * they differ in nothing but ROCm: which of others is meant would be a guess. */
static bool minor_resolve(const struct environment *asked, const struct environment *const *there,
                          size_t n, size_t *ret_index) {
  size_t newest = n, newest_equal = n;
  bool is_one = true;
  for (size_t i = 0; i < n; i++) {
    if (!cache_rule_serves(CACHE_RULE_MINOR, asked, there[i]))
      continue;
    if (equal_but_rocm(asked, there[i]) &&
        (newest_equal == n || strverscmp(there[i]->rocm, there[newest_equal]->rocm) > 0))
      newest_equal = i;
    is_one = is_one && (newest == n || equal_but_rocm(there[newest], there[i]));
    if (newest == n || strverscmp(there[i]->rocm, there[newest]->rocm) > 0)
      newest = i;
  }
  *ret_index = newest_equal < n ? newest_equal : newest;
  return newest_equal < n || (newest < n && is_one);
}

/* What was asked for with the members that the declaration replaces; borrowed. */
static struct environment declared_replace(const struct environment *asked,
                                           const struct compatibility *declared) {
  struct environment replaced = *asked;
#define X(member, hardware)                                                                        \
  if (declared->served.member)                                                                     \
    replaced.member = declared->served.member;
  ENVIRONMENT_TEXTS(X)
#undef X
  return replaced;
}

static size_t stated_count(const struct environment *environment) {
  size_t n = environment->compute_units != 0;
#define X(member, hardware) n += environment->member != NULL;
  ENVIRONMENT_TEXTS(X)
#undef X
  return n;
}

/* The one that states most of what was asked for; of two that state as much, neither. */
static bool unstated_resolve(const struct environment *asked,
                             const struct environment *const *there, size_t n, size_t *ret_index) {
  size_t most = 0;
  bool is_one = false;
  for (size_t i = 0; i < n; i++) {
    size_t stated =
        cache_rule_serves(CACHE_RULE_UNSTATED, asked, there[i]) ? stated_count(there[i]) : 0;
    if (!stated || stated < most)
      continue;
    is_one = stated > most;
    most = stated;
    *ret_index = i;
  }
  return is_one;
}

enum cache_match cache_resolve(const struct environment *asked,
                               const struct environment *const *there, size_t n,
                               enum cache_rule widest, const struct compatibility *declared,
                               size_t n_declared, struct cache_resolved *ret) {
  *ret = (struct cache_resolved){.rule = CACHE_RULE_EXACT};
  enum cache_match exact = cache_lookup(asked, there, n, &ret->index);
  if (exact != CACHE_MATCH_NONE)
    return exact;
  ret->rule = CACHE_RULE_MINOR;
  if (widest >= CACHE_RULE_MINOR && minor_resolve(asked, there, n, &ret->index))
    return CACHE_MATCH_ONE;
  ret->rule = CACHE_RULE_COMPATIBLE;
  for (size_t i = 0; widest >= CACHE_RULE_COMPATIBLE && i < n_declared; i++) {
    if (!environment_fits(&declared[i].asked, asked))
      continue;
    struct environment replaced = declared_replace(asked, &declared[i]);
    ret->compatibility = &declared[i];
    if (cache_lookup(&replaced, there, n, &ret->index) == CACHE_MATCH_ONE)
      return CACHE_MATCH_ONE;
  }
  ret->rule = CACHE_RULE_UNSTATED;
  ret->compatibility = NULL;
  return widest >= CACHE_RULE_UNSTATED && unstated_resolve(asked, there, n, &ret->index)
             ? CACHE_MATCH_ONE
             : CACHE_MATCH_NONE;
}

struct cache_match_answer {
  enum cache_rule rule;
  json_t *differs;
  int64_t compatibility;
  const char *reason;
};
static const struct field match_fields[] = {
    {"rule", FIELD_ENUM, offsetof(struct cache_match_answer, rule), FIELD_ANSWER,
     .names = cache_rule_names},
    {"differs", FIELD_JSON, offsetof(struct cache_match_answer, differs), FIELD_ANSWER,
     .schema = "{\"type\": \"object\"}"},
    {"compatibility", FIELD_INTEGER, offsetof(struct cache_match_answer, compatibility),
     FIELD_ANSWER | FIELD_OMITTED},
    {"reason", FIELD_TEXT, offsetof(struct cache_match_answer, reason),
     FIELD_ANSWER | FIELD_OMITTED},
};
const struct record cache_match_record =
    RECORD("CacheMatch", struct cache_match_answer, match_fields);

json_t *cache_match_to_json(const struct environment *asked, const struct environment *served,
                            const struct cache_resolved *resolved) {
  cleanup_json json_t *differences = environment_differences(asked, served, false),
                      *differs = json_object();
  const char *member;
  json_t *pair;
  json_object_foreach (differences, member, pair)
    ALWAYS(json_object_set_new(differs, member,
                               json_pack("{s:O, s:O}", "asked", json_object_get(pair, "job"),
                                         "served", json_object_get(pair, "agent"))) == 0);

  const struct compatibility *declared = resolved->compatibility;
  const struct cache_match_answer answer = {.rule = resolved->rule,
                                            .differs = differs,
                                            .compatibility = declared ? declared->id : FIELD_NONE,
                                            .reason = declared ? declared->reason : NULL};
  return record_write(&cache_match_record, &answer);
}

char *cache_match_header(const struct environment *asked, const struct environment *served,
                         const struct cache_resolved *resolved) {
  cleanup_json json_t *differences = environment_differences(asked, served, false);
  char *header = NULL;
  size_t size;
  const char *member, *separator = "; ";
  json_t *pair;
  FILE *out = open_memstream(&header, &size);
  ALWAYS(out != NULL);
  fputs(cache_rule_name(resolved->rule), out);
  json_object_foreach (differences, member, pair) {
    const char *text = json_string_value(json_object_get(pair, "agent"));
    fprintf(out, text ? "%s%s=%s" : "%s%s", separator, member, text);
    separator = ", ";
  }
  ALWAYS(fclose(out) == 0);
  return header;
}
