/* Environments: reading, comparing and digesting what a measurement holds for.
 *
 * Memory: an environment owns its strings. Threads: any, one to a value that is written. */
#include "common/node/environment.h"

#include "common/record/record.h"

#define TEXT_MAX 200
#define COMPUTE_UNITS_MAX 1000000

static const char *const member_names[] = {
#define X(member, hardware) #member,
    ENVIRONMENT_TEXTS(X)
#undef X
        "compute_units",
    NULL};

static bool text_read(const json_t *json, const char *name, char **ret, struct error *error) {
  char at[JSON_POINTER_SIZE];
  const char *text = NULL;
  if (!json_get_string(json, "", name, JSON_NOT_NULL, &text, error))
    return false;
  if (!text)
    return true;
  size_t length = strlen(text);
  bool may_be_empty = strcmp(name, "partition") == 0; /* what has no partitions states "" */
  json_pointer_member(at, sizeof at, "", name);
  if (length == 0 && !may_be_empty)
    return error_at(error, at, "\"%s\" is empty; leave it out where it is not known", name);
  if (length > TEXT_MAX)
    return error_at(error, at, "\"%s\" has %zu bytes; at most %d are allowed", name, length,
                    TEXT_MAX);
  for (const char *c = text; *c; c++)
    if ((unsigned char)*c < 0x20 || *c == 0x7f)
      return error_at(error, at,
                      "\"%s\" holds a control character at byte %zu; state printable text", name,
                      (size_t)(c - text));
  *ret = xstrdup(text);
  return true;
}

static size_t platforms_count(const struct environment *environment) {
  return (size_t)(environment->rocm != NULL) + (environment->cuda != NULL) +
         (environment->cpu != NULL);
}

bool environment_parse(const json_t *json, struct environment *ret, struct error *error) {
  cleanup_environment struct environment environment = {0};
  if (!json_only_members(json, "", member_names, error))
    return false;
#define X(member, hardware)                                                                        \
  if (!text_read(json, #member, &environment.member, error))                                       \
    return false;
  ENVIRONMENT_TEXTS(X)
#undef X
  if (!json_get_integer(json, "", "compute_units", JSON_NOT_NULL, 1, COMPUTE_UNITS_MAX,
                        &environment.compute_units, error))
    return false;
  if (platforms_count(&environment) > 1)
    return error_set(error, "an environment has one platform: state one of rocm, cuda and cpu");
  *ret = environment;
  environment = (struct environment){0};
  return true;
}

void environment_release(struct environment *environment) {
#define X(member, hardware) free(environment->member);
  ENVIRONMENT_TEXTS(X)
#undef X
  *environment = (struct environment){0};
}

struct environment environment_copy(const struct environment *environment) {
  struct environment copy = *environment;
#define X(member, hardware) copy.member = environment->member ? xstrdup(environment->member) : NULL;
  ENVIRONMENT_TEXTS(X)
#undef X
  return copy;
}

bool environment_is_full(const struct environment *environment, struct error *error) {
  if (platforms_count(environment) != 1)
    return error_set(
        error, "a full environment states exactly one of rocm, cuda and cpu; this one states %zu",
        platforms_count(environment));
  const char *missing = !environment->gpu             ? "gpu"
                        : !environment->arch          ? "arch"
                        : !environment->compute_units ? "compute_units"
                        : !environment->partition     ? "partition"
                                                      : NULL;
  if (missing) {
    char at[JSON_POINTER_SIZE];
    return error_at(error, json_pointer_member(at, sizeof at, "", missing),
                    "a full environment states \"%s\"; this one does not", missing);
  }
  return true;
}

json_t *environment_missing(const struct environment *environment) {
  json_t *missing = json_array();
  const struct {
    const char *name;
    bool is_there;
  } members[] = {{"platform", platforms_count(environment) > 0},
                 {"gpu", environment->gpu},
                 {"arch", environment->arch},
                 {"compute_units", environment->compute_units > 0},
                 {"partition", environment->partition}};
  for (size_t i = 0; i < ARRAY_LENGTH(members); i++)
    if (!members[i].is_there)
      ALWAYS(json_array_append_new(missing, json_string(members[i].name)) == 0);
  return missing;
}

static void text_set(json_t *object, const char *name, const char *text) {
  if (text)
    ALWAYS(json_object_set_new(object, name, json_string(text)) == 0);
}

static void compute_units_set(json_t *object, int64_t compute_units) {
  if (compute_units)
    ALWAYS(json_object_set_new(object, "compute_units", json_integer(compute_units)) == 0);
}

static json_t *stated_members(const struct environment *environment, bool hardware_only) {
  json_t *object = json_object();
#define X(member, hardware)                                                                        \
  if ((hardware) || !hardware_only)                                                                \
    text_set(object, #member, environment->member);
  ENVIRONMENT_TEXTS(X)
#undef X
  compute_units_set(object, environment->compute_units);
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
  FILE *out = open_memstream(&text, &size);
  ALWAYS(out != NULL);
  const char *separator = "";
#define X(member, hardware)                                                                        \
  if (environment->member && *environment->member) {                                               \
    fprintf(out, "%s" #member " %s", separator, environment->member);                              \
    separator = ", ";                                                                              \
  }
  ENVIRONMENT_TEXTS(X)
#undef X
  if (environment->compute_units) {
    fprintf(out, "%s%lld compute units", separator, (long long)environment->compute_units);
    separator = ", ";
  }
  if (!*separator)
    fputs("any environment", out);
  ALWAYS(fclose(out) == 0);
  return text;
}

bool environment_fits(const struct environment *partial, const struct environment *full) {
#define X(member, hardware)                                                                        \
  if (partial->member && !string_equal(partial->member, full->member))                             \
    return false;
  ENVIRONMENT_TEXTS(X)
#undef X
  return !partial->compute_units || partial->compute_units == full->compute_units;
}

bool environment_names_gpu(const struct environment *environment) {
  return environment->gpu && (environment->arch || strpbrk(environment->gpu, "0123456789"));
}

bool environment_covers(const struct environment *served, const struct environment *asked) {
  bool says_which_part = served->partition || served->compute_units;
  bool is_whole =
      asked->partition && (!*asked->partition || string_equal(asked->partition, "SPX") ||
                           string_starts(asked->partition, "SPX/"));

  return environment_names_gpu(served) && environment_fits(served, asked) &&
         (says_which_part || is_whole);
}

/* Takes both references; "agent" is null where the agent states nothing. */
static void difference_set(json_t *differences, const char *name, json_t *job, json_t *agent) {
  json_t *pair = json_object();
  ALWAYS(json_object_set_new(pair, "job", job) == 0);
  ALWAYS(json_object_set_new(pair, "agent", agent) == 0);
  ALWAYS(json_object_set_new(differences, name, pair) == 0);
}

json_t *environment_differences(const struct environment *partial, const struct environment *full,
                                bool hardware_only) {
  json_t *differences = json_object();
#define X(member, hardware)                                                                        \
  if (((hardware) || !hardware_only) && partial->member &&                                         \
      !string_equal(partial->member, full->member))                                                \
    difference_set(differences, #member, json_string(partial->member),                             \
                   full->member ? json_string(full->member) : json_null());
  ENVIRONMENT_TEXTS(X)
#undef X
  if (partial->compute_units && partial->compute_units != full->compute_units)
    difference_set(differences, "compute_units", json_integer(partial->compute_units),
                   full->compute_units ? json_integer(full->compute_units) : json_null());
  return differences;
}

/* "6.4" of "6.4.1": how many bytes of it; 0 when it does not begin with both. */
static size_t minor_length(const char *version) {
  size_t major = strspn(version, "0123456789");
  size_t minor = major && version[major] == '.' ? strspn(version + major + 1, "0123456789") : 0;
  return minor ? major + 1 + minor : 0;
}

bool version_minors_equal(const char *a, const char *b) {
  size_t length = minor_length(a);
  return length && length == minor_length(b) && memcmp(a, b, length) == 0;
}

const char *const regime_names[] = {"cold", "warm", NULL};

const char *regime_name(enum regime regime) { return regime_names[regime]; }

bool regime_parse(const char *name, enum regime *ret, struct error *error) {
  for (size_t i = 0; regime_names[i]; i++)
    if (strcmp(name, regime_names[i]) == 0) {
      *ret = (enum regime)i;
      return true;
    }
  return error_set(error, "the regime must be cold or warm, not \"%.40s\"", name);
}

bool regime_get(const json_t *json, const char *pointer, enum regime *ret, struct error *error) {
  char at[JSON_POINTER_SIZE];
  const char *name = regime_names[REGIME_COLD];
  if (!json_get_string(json, pointer, "regime", JSON_NOT_NULL, &name, error))
    return false;
  return regime_parse(name, ret, error) ||
         error_pointer_prefix(error, json_pointer_member(at, sizeof at, pointer, "regime"));
}

static bool field_read(const json_t *value, void *to, struct error *error) {
  return environment_parse(value, to, error);
}
static json_t *field_write(const void *at) { return environment_to_json(at); }
static void field_release(void *at) { environment_release(at); }
const struct field_custom environment_field = {
    .schema = "{\"$ref\": \"#/components/schemas/Environment\"}",
    .read = field_read,
    .write = field_write,
    .release = field_release};
