/* Reading, comparing and digesting environments. */
#include "common/node/environment.h"

#include "common/record/record.h"

#define TEXT_MAX 200
#define COMPUTE_UNITS_MAX 1000000

/* The texts, then compute_units. The partition of a GPU that cannot be partitioned is "". */
static const struct field fields[] = {
#define X(member, hardware)                                                                        \
  RECORD_FIELD(TEXT, struct environment, member, FIELD_NOT_NULL | FIELD_LINE,                      \
               .least = offsetof(struct environment, member) !=                                    \
                        offsetof(struct environment, partition),                                   \
               .most = TEXT_MAX),
    ENVIRONMENT_TEXTS(X)
#undef X
        RECORD_FIELD(INTEGER, struct environment, compute_units, FIELD_NOT_NULL, .least = 1,
                     .most = COMPUTE_UNITS_MAX),
};
static const struct record record = RECORD(NULL, struct environment, fields);
#define TEXTS (ARRAY_LENGTH(fields) - 1)

static const bool is_hardware[TEXTS] = {
#define X(member, hardware) hardware,
    ENVIRONMENT_TEXTS(X)
#undef X
};

static char *text_at(const struct environment *environment, size_t i) {
  return *(char *const *)field_at(&fields[i], environment);
}

static size_t platforms_count(const struct environment *environment) {
  return (size_t)(environment->rocm != NULL) + (environment->cuda != NULL) +
         (environment->cpu != NULL);
}

bool environment_parse(const json_t *json, struct environment *ret, struct error *error) {
  cleanup_environment struct environment environment = {0};
  if (!record_read(&record, json, "", &environment, error))
    return false;
  if (platforms_count(&environment) > 1)
    return error_set(error, "an environment has one platform: state one of rocm, cuda and cpu");

  *ret = environment;
  environment = (struct environment){0};
  return true;
}

void environment_release(struct environment *environment) {
  for (size_t i = 0; i < TEXTS; i++)
    free(text_at(environment, i));
  *environment = (struct environment){0};
}

struct environment environment_copy(const struct environment *environment) {
  struct environment copy = *environment;
  for (size_t i = 0; i < TEXTS; i++)
    if (text_at(environment, i))
      *(char **)field_at(&fields[i], &copy) = xstrdup(text_at(environment, i));
  return copy;
}

bool environment_is_full(const struct environment *environment, struct error *error) {
  size_t platforms = platforms_count(environment);
  if (platforms != 1)
    return error_set(
        error, "a full environment states exactly one of rocm, cuda and cpu; this one states %zu",
        platforms);

  cleanup_json json_t *missing = environment_missing(environment);
  const char *name = json_string_value(json_array_get(missing, 0));
  return !name || error_at(error, POINTER_MEMBER("", name),
                           "a full environment states \"%s\"; this one does not", name);
}

json_t *environment_missing(const struct environment *environment) {
  const struct {
    const char *name;
    bool is_stated;
  } members[] = {{"rocm or cuda", platforms_count(environment) > 0},
                 {"gpu", environment->gpu},
                 {"arch", environment->arch},
                 {"compute_units", environment->compute_units > 0},
                 {"partition", environment->partition}};
  json_t *missing = json_array();

  for (size_t i = 0; i < ARRAY_LENGTH(members); i++)
    if (!members[i].is_stated)
      json_push(missing, json_string(members[i].name));
  return missing;
}

static json_t *stated_members(const struct environment *environment, bool hardware_only) {
  json_t *object = json_object();
  for (size_t i = 0; i < TEXTS; i++)
    if (text_at(environment, i) && (is_hardware[i] || !hardware_only))
      json_put(object, fields[i].name, json_string(text_at(environment, i)));
  if (environment->compute_units)
    json_put(object, "compute_units", json_integer(environment->compute_units));
  return object;
}

json_t *environment_to_json(const struct environment *environment) {
  return stated_members(environment, false);
}

struct digest environment_digest(const struct environment *environment) {
  cleanup_json json_t *object = stated_members(environment, false);
  return json_digest(object);
}

struct digest environment_hardware_digest(const struct environment *environment) {
  cleanup_json json_t *object = stated_members(environment, true);
  return json_digest(object);
}

char *environment_format(const struct environment *environment) {
  char *text = NULL;
  size_t size = 0;
  const char *separator = "";
  FILE *out = open_memstream(&text, &size);
  ALWAYS(out != NULL);

  for (size_t i = 0; i < TEXTS; i++) {
    const char *member = text_at(environment, i);
    if (!member || !*member)
      continue;
    fprintf(out, "%s%s %s", separator, fields[i].name, member);
    separator = ", ";
  }

  if (environment->compute_units)
    fprintf(out, "%s%lld compute units", separator, (long long)environment->compute_units);
  else if (!*separator)
    fputs("any environment", out);
  ALWAYS(fclose(out) == 0);
  return text;
}

/* Whether `partial` states the text and `full` does not state the same. */
static bool text_differs(const struct environment *partial, const struct environment *full,
                         size_t i) {
  return text_at(partial, i) && !string_equal(text_at(partial, i), text_at(full, i));
}

bool environment_fits(const struct environment *partial, const struct environment *full) {
  for (size_t i = 0; i < TEXTS; i++)
    if (text_differs(partial, full, i))
      return false;
  return !partial->compute_units || partial->compute_units == full->compute_units;
}

bool environment_names_gpu(const struct environment *environment) {
  return environment->gpu && (environment->arch || strpbrk(environment->gpu, "0123456789"));
}

bool environment_can_use(const struct environment *served, const struct environment *requested) {
  const char *partition = requested->partition;
  bool states_part = served->partition || served->compute_units;
  bool is_whole = partition && (!*partition || string_equal(partition, "SPX") ||
                                string_starts(partition, "SPX/"));

  return environment_names_gpu(served) && environment_fits(served, requested) &&
         (states_part || is_whole);
}

json_t *environment_differences(const struct environment *partial, const struct environment *full,
                                bool hardware_only) {
  json_t *differences = json_object();
  for (size_t i = 0; i < TEXTS; i++)
    if (text_differs(partial, full, i) && (is_hardware[i] || !hardware_only))
      json_put(differences, fields[i].name,
               json_pack("{s:s, s:s?}", "job", text_at(partial, i), "agent", text_at(full, i)));
  if (partial->compute_units && partial->compute_units != full->compute_units)
    json_put(differences, "compute_units",
             json_pack("{s:I, s:o}", "job", (json_int_t)partial->compute_units, "agent",
                       full->compute_units ? json_integer(full->compute_units) : json_null()));
  return differences;
}

/* The length of "6.4" in "6.4.1"; 0 when the text does not begin with major and minor. */
static size_t minor_length(const char *version) {
  size_t major = strspn(version, "0123456789");
  size_t minor = major && version[major] == '.' ? strspn(version + major + 1, "0123456789") : 0;
  return minor ? major + 1 + minor : 0;
}

bool version_minors_equal(const char *a, const char *b) {
  size_t length = minor_length(a);
  return length && length == minor_length(b) && memcmp(a, b, length) == 0;
}

static bool custom_read(const json_t *value, void *to, struct error *error) {
  return environment_parse(value, to, error);
}
static json_t *custom_write(const void *at) { return environment_to_json(at); }
static void custom_release(void *at) { environment_release(at); }
const struct field_custom environment_field = {.schema = SCHEMA("Environment"),
                                               .read = custom_read,
                                               .write = custom_write,
                                               .release = custom_release};
