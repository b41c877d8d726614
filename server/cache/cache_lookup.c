/* Finding the one environment that is meant, and saying what is nearest when there is none. Pure
 * functions. */
#include "server/cache/cache_lookup.h"

#include <errno.h>

static bool compute_units_read(const char *text, json_t *members, struct error *error) {
  char *end;
  errno = 0;
  long long number = strtoll(text, &end, 10);
  if (*text < '0' || *text > '9' || *end || errno)
    return error_set(error, "compute_units=%.32s is not a whole number", text);
  ALWAYS(json_object_set_new(members, "compute_units", json_integer(number)) == 0);
  return true;
}

bool environment_from_texts(const char *(*get)(const void *context, const char *name),
                            const void *context, struct environment *ret, struct error *error) {
  cleanup_json json_t *members = json_object();
  const char *text;
#define X(member, hardware)                                                                        \
  text = get(context, #member);                                                                    \
  if (text)                                                                                        \
    ALWAYS(json_object_set_new(members, #member, json_string(text)) == 0);
  ENVIRONMENT_TEXTS(X)
#undef X
  text = get(context, "compute_units");
  return (!text || compute_units_read(text, members, error)) &&
         environment_parse(members, ret, error);
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
      ALWAYS(json_array_append_new(fitting, environment_to_json(there[i])) == 0);
  return fitting;
}

static size_t nearest_index(const struct environment *asked, const struct environment *const *there,
                            size_t n) {
  size_t nearest = 0, fewest = SIZE_MAX, fewest_hardware = SIZE_MAX;
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
  return nearest;
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
  *ret_sentence = NULL;
  if (n == 0)
    return json_null();
  const struct environment *nearest = there[nearest_index(asked, there, n)];
  cleanup_json json_t *differences = environment_differences(asked, nearest, false);
  cleanup_free char *name = environment_format(nearest);
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
    ALWAYS(json_object_set_new(named, member,
                               json_pack("{s:O, s:O}", "asked", wanted, "there", found)) == 0);
  }
  ALWAYS(fclose(out) == 0);
  return json_pack("{s:o, s:o}", "environment", environment_to_json(nearest), "differences", named);
}
