/* Finds the environment that the stated members mean, exactly or by wider rules, and the nearest
 * one when there is none. Pure functions. */
#include "server/cache/cache_rules.h"

#include <errno.h>

bool environment_from_texts(const char *(*get)(const void *context, const char *name),
                            const void *context, struct environment *ret, struct error *error) {
  cleanup_json json_t *members = json_object();
  const char *text;
#define X(member, hardware)                                                                        \
  text = get(context, #member);                                                                    \
  if (text)                                                                                        \
    json_put(members, #member, json_string(text));
  ENVIRONMENT_TEXTS(X)
#undef X

  text = get(context, "compute_units");
  if (text) {
    char *end;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno)
      return error_set(error, "compute_units=%.32s is not a whole number", text);
    json_put(members, "compute_units", json_integer(number));
  }

  return environment_parse(members, ret, error);
}

static bool environments_equal(const struct environment *a, const struct environment *b) {
  return environment_fits(a, b) && environment_fits(b, a);
}

enum cache_match cache_lookup(const struct environment *asked,
                              const struct environment *const *there, size_t n, size_t *ret_index) {
  size_t n_fitting = 0, last = 0;
  for (size_t i = 0; i < n; i++) {
    if (!environment_fits(asked, there[i]))
      continue;
    if (environments_equal(asked, there[i])) {
      *ret_index = i;
      return CACHE_MATCH_ONE;
    }
    n_fitting++;
    last = i;
  }

  if (n_fitting == 1)
    *ret_index = last;
  return n_fitting == 1 ? CACHE_MATCH_ONE : n_fitting ? CACHE_MATCH_SEVERAL : CACHE_MATCH_NONE;
}

json_t *cache_fitting(const struct environment *asked, const struct environment *const *there,
                      size_t n) {
  json_t *fitting = json_array();
  for (size_t i = 0; i < n; i++)
    if (environment_fits(asked, there[i]))
      json_push(fitting, environment_to_json(there[i]));
  return fitting;
}

static void value_write(FILE *out, const json_t *value) {
  if (json_is_string(value))
    fprintf(out, "%s", *json_string_value(value) ? json_string_value(value) : "\"\"");
  else if (json_is_integer(value))
    fprintf(out, "%lld", (long long)json_integer_value(value));
  else
    fputs("nothing", out);
}

json_t *cache_nearest(const struct environment *asked, const struct environment *const *there,
                      size_t n, char **ret_sentence) {
  size_t nearest = 0, fewest = SIZE_MAX, fewest_hardware = SIZE_MAX;
  *ret_sentence = NULL;
  if (n == 0)
    return json_null();

  for (size_t i = 0; i < n; i++) {
    cleanup_json json_t *all = environment_differences(asked, there[i], false);
    cleanup_json json_t *hardware = environment_differences(asked, there[i], true);
    size_t n_all = json_object_size(all), n_hardware = json_object_size(hardware);
    if (n_all < fewest || (n_all == fewest && n_hardware < fewest_hardware)) {
      nearest = i;
      fewest = n_all;
      fewest_hardware = n_hardware;
    }
  }

  cleanup_json json_t *differences = environment_differences(asked, there[nearest], false);
  cleanup_free char *name = environment_format(there[nearest]);
  json_t *named = json_object(), *pair;
  const char *member, *separator = ", which differs in ";
  size_t size;
  FILE *out = open_memstream(ret_sentence, &size);
  ALWAYS(out != NULL);
  fprintf(out, "the nearest is %s", name);
  json_object_foreach (differences, member, pair) {
    json_t *wanted = json_object_get(pair, "job"), *found = json_object_get(pair, "agent");
    fprintf(out, "%s%s (asked ", separator, member);
    value_write(out, wanted);
    fputs(", there ", out);
    value_write(out, found);
    fputc(')', out);
    separator = ", ";
    json_put(named, member, json_pack("{s:O, s:O}", "asked", wanted, "there", found));
  }

  ALWAYS(fclose(out) == 0);
  return json_pack("{s:o, s:o}", "environment", environment_to_json(there[nearest]), "differences",
                   named);
}

static bool equal_but_rocm(const struct environment *a, const struct environment *b) {
  struct environment one = *a, other = *b;
  one.rocm = other.rocm = NULL;
  return environments_equal(&one, &other);
}

/* Finds the newest that has exactly the requested members; otherwise the newest of all that fit, if
 * they differ only in ROCm: a choice among others would be a guess. */
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

/* Finds the one that states most of the requested members; none where two state as many. */
static bool unstated_resolve(const struct environment *asked,
                             const struct environment *const *there, size_t n, size_t *ret_index) {
  size_t most = 0;
  bool is_one = false;
  for (size_t i = 0; i < n; i++) {
    if (!cache_rule_serves(CACHE_RULE_UNSTATED, asked, there[i]))
      continue;
    size_t stated = there[i]->compute_units != 0;
#define X(member, hardware) stated += there[i]->member != NULL;
    ENVIRONMENT_TEXTS(X)
#undef X
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
                               enum cache_rule widest, const struct compatibilities *declared,
                               struct cache_resolved *ret) {
  *ret = (struct cache_resolved){.rule = CACHE_RULE_EXACT};
  enum cache_match exact = cache_lookup(asked, there, n, &ret->index);
  if (exact != CACHE_MATCH_NONE)
    return exact;

  ret->rule = CACHE_RULE_MINOR;
  if (widest >= CACHE_RULE_MINOR && minor_resolve(asked, there, n, &ret->index))
    return CACHE_MATCH_ONE;

  ret->rule = CACHE_RULE_COMPATIBLE;
  for (size_t i = 0; widest >= CACHE_RULE_COMPATIBLE && i < declared->n; i++) {
    const struct compatibility *compatibility = &declared->all[i];
    if (!environment_fits(&compatibility->asked, asked))
      continue;
    struct environment replaced = *asked; /* borrows the members that the declaration replaces */
#define X(member, hardware)                                                                        \
  if (compatibility->served.member)                                                                \
    replaced.member = compatibility->served.member;
    ENVIRONMENT_TEXTS(X)
#undef X
    ret->compatibility = compatibility;
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
#define RECORD_OF struct cache_match_answer
static const struct field match_fields[] = {
    MEMBER(ENUM, rule, .names = cache_rule_names),
    MEMBER(JSON, differs, .schema = "{\"type\": \"object\"}"),
    MEMBER(INTEGER, compatibility, FIELD_OMITTED),
    MEMBER(TEXT, reason, FIELD_OMITTED),
};
const struct record cache_match_record = ANSWER("CacheMatch", match_fields);
#undef RECORD_OF

json_t *cache_match_to_json(const struct environment *asked, const struct environment *served,
                            const struct cache_resolved *resolved) {
  cleanup_json json_t *differences = environment_differences(asked, served, false),
                      *differs = json_object();
  const char *member;
  json_t *pair;
  json_object_foreach (differences, member, pair)
    json_put(differs, member,
             json_pack("{s:O, s:O}", "asked", json_object_get(pair, "job"), "served",
                       json_object_get(pair, "agent")));

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
