/* Reading a release: one pass over its bytes, which must be the canonical ones.
 *
 * Winners, which are many, are checked where they stand. Environment, configs and provenance, which are few, are made
 * values. Memory: the release owns its bytes and what it points to. Threads: any. */
#include "common/cache/release.h"
#include "common/cache/release_scan.h"
#include "common/cache/text_buffer.h"

#define KNOWN_CONFIGS 4096

/* The values of a config that was read before; borrowed from the release. */
struct known_config {
  const char *text; /* NULL: none */
  size_t size;
  json_t *values;
};

struct reader {
  struct scan scan;
  struct release *release;
  struct error *error;
  struct known_config *known; /* KNOWN_CONFIGS, by the hash of their text, the last of each */
};

static bool expect(struct reader *reader, const char *literal, const char *pointer) {
  char expected[64];
  if (scan_literal(&reader->scan, literal))
    return true;
  snprintf(expected, sizeof expected, "'%s'", literal);
  return scan_refuse(&reader->scan, pointer, expected, reader->error);
}

/* ',' goes on, `close` ends the array. */
static bool array_goes_on(struct reader *reader, char close, const char *pointer, bool *ret_goes_on) {
  if (scan_character(&reader->scan, ',')) {
    *ret_goes_on = true;
    return true;
  }
  char expected[] = "',' or '?'";
  expected[8] = close;
  if (!scan_character(&reader->scan, close))
    return scan_refuse(&reader->scan, pointer, expected, reader->error);
  *ret_goes_on = false;
  return true;
}

/* NULL, with a sentence, for anything else and for an empty one. */
static char *text_read(struct reader *reader, const char *pointer) {
  struct scalar scalar;
  if (!scan_string(&reader->scan, &scalar)) {
    scan_refuse(&reader->scan, pointer, "a string", reader->error);
    return NULL;
  }
  if (scalar.size == 0) {
    error_at(reader->error, pointer, "the text is empty; a release names what it holds");
    return NULL;
  }
  return scalar_text(&scalar);
}

static bool digest_read(struct reader *reader, const char *pointer, struct digest *ret) {
  struct scalar scalar;
  char text[DIGEST_TEXT_SIZE];
  const char *begin = reader->scan.at;
  if (scan_string(&reader->scan, &scalar) && scalar.size == sizeof text - 1) {
    memcpy(text, scalar.text, scalar.size);
    text[scalar.size] = '\0';
    if (digest_parse(text, ret))
      return true;
  }
  reader->scan.at = begin;
  return scan_refuse(&reader->scan, pointer, "\"sha256:\" and 64 lower-case hexadecimal digits in quotes",
                     reader->error);
}

/* What was read from `text` must be written as it stood there. */
static bool span_is_canonical(struct reader *reader, const json_t *json, const char *text, size_t size,
                              const char *pointer) {
  cleanup_free char *canonical = json_canonical(json);
  size_t at = 0;
  while (at < size && canonical[at] && canonical[at] == text[at])
    at++;
  if (at == size && !canonical[at])
    return true;
  reader->scan.at = text + at;
  return scan_refuse(&reader->scan, pointer, "another text of the same meaning", reader->error);
}

static bool object_read(struct reader *reader, const char *pointer, json_t **ret) {
  cleanup_json json_t *json = NULL;
  const char *text;
  size_t size;
  if (*reader->scan.at != '{' || !scan_span(&reader->scan, &text, &size))
    return scan_refuse(&reader->scan, pointer, "an object", reader->error);
  if (!json_parse(text, size, &json, reader->error)) {
    error_prefix(reader->error, "the object at byte %zu: ", (size_t)(text - reader->scan.begin));
    return error_pointer_prefix(reader->error, pointer);
  }
  if (!span_is_canonical(reader, json, text, size, pointer))
    return false;
  *ret = TAKE(json);
  return true;
}

static bool is_sorted(const struct scalar *before, const struct scalar *after) {
  int order = memcmp(before->text, after->text, before->size < after->size ? before->size : after->size);
  return order < 0 || (order == 0 && before->size < after->size);
}

/* An object of scalars without any value made twice: names in their order, each there once. NULL, and nothing taken, where
 * it is not as json_canonical writes it, or that is not to be seen here (names with escapes). */
static json_t *flat_object_scan(struct scan *scan) {
  cleanup_json json_t *object = json_object();
  struct scan ahead = *scan;
  struct scalar former = {0}, name, value;
  if (!scan_character(&ahead, '{'))
    return NULL;
  for (bool goes_on = !scan_character(&ahead, '}'); goes_on;) {
    if (!scan_string(&ahead, &name) || !name.is_plain || (former.text && !is_sorted(&former, &name)) ||
        !scan_character(&ahead, ':') || !scan_scalar(&ahead, &value))
      return NULL;
    ALWAYS(json_object_setn_new_nocheck(object, name.text, name.size, scalar_to_json(&value)) == 0);
    former = name;
    goes_on = scan_character(&ahead, ',');
    if (!goes_on && !scan_character(&ahead, '}'))
      return NULL;
  }
  *scan = ahead;
  return TAKE(object);
}

static bool flat_object_read(struct reader *reader, const char *pointer, json_t **ret) {
  cleanup_json json_t *json = NULL;
  const char *name;
  json_t *value;
  *ret = flat_object_scan(&reader->scan);
  if (*ret)
    return true;
  if (!object_read(reader, pointer, &json))
    return false;
  json_object_foreach (json, name, value)
    if (json_is_object(value) || json_is_array(value)) {
      char at[JSON_POINTER_SIZE];
      return error_at(reader->error, json_pointer_member(at, sizeof at, pointer, name),
                      "\"%.64s\" must be null, a boolean, a number or a string", name);
    }
  *ret = TAKE(json);
  return true;
}

static bool environment_read(struct reader *reader) {
  cleanup_json json_t *json = NULL, *again = NULL;
  if (!object_read(reader, "/environment", &json))
    return false;
  if (!environment_parse(json, &reader->release->environment, reader->error))
    return error_pointer_prefix(reader->error, "/environment");
  again = environment_to_json(&reader->release->environment);
  if (!json_equal(again, json))
    return error_at(reader->error, "/environment",
                    "a member of the environment is null; a release leaves out what is unknown");
  return true;
}

/* Elements of a list that is sorted by canonical text, each there once. */
static bool is_after(struct reader *reader, const char *former, size_t former_size, const char *text, size_t size,
                     const char *pointer) {
  int order = memcmp(former, text, former_size < size ? former_size : size);
  if (order < 0 || (order == 0 && former_size < size))
    return true;
  return error_at(reader->error, pointer, "%s; take the bytes as the server made them",
                  order == 0 && former_size == size ? "it is there twice" : "it is not in the canonical order");
}

/* Kernels have configs in common: their space's, or those of one decorator. What was read once is not read again. */
static bool values_read(struct reader *reader, const char *pointer, struct release_config *config) {
  char at[JSON_POINTER_SIZE];
  struct scan ahead = reader->scan;
  struct known_config *known = NULL;
  if (scan_span(&ahead, &config->text, &config->text_size)) {
    known = &reader->known[text_hash(config->text, config->text_size) % KNOWN_CONFIGS];
    if (known->text && known->size == config->text_size && memcmp(known->text, config->text, known->size) == 0) {
      config->values = json_incref(known->values);
      reader->scan = ahead;
      return true;
    }
  }
  if (!flat_object_read(reader, json_pointer_member(at, sizeof at, pointer, "values"), &config->values))
    return false;
  if (known)
    *known = (struct known_config){config->text, config->text_size, config->values};
  return true;
}

static bool config_read(struct reader *reader, const char *pointer, struct release_config *config) {
  int64_t ordinal = 0;
  char at[JSON_POINTER_SIZE];
  struct scan *scan = &reader->scan;
  config->has_ordinal = scan_literal(scan, "{\"ordinal\":");
  if (config->has_ordinal) {
    if (!scan_count(scan, INT64_MAX, &ordinal))
      return scan_refuse(scan, json_pointer_member(at, sizeof at, pointer, "ordinal"), "a number from 0",
                         reader->error);
    config->ordinal = (uint64_t)ordinal;
    if (!expect(reader, ",\"space\":", pointer) ||
        !digest_read(reader, json_pointer_member(at, sizeof at, pointer, "space"), &config->space) ||
        !expect(reader, ",\"values\":", pointer))
      return false;
  } else if (!expect(reader, "{\"values\":", pointer)) {
    return false;
  }
  return values_read(reader, pointer, config) && expect(reader, "}", pointer);
}

static bool configs_read(struct reader *reader, const char *kernel_at, struct release_kernel *kernel) {
  char at[JSON_POINTER_SIZE], in[JSON_POINTER_SIZE];
  size_t capacity = 0, former_size = 0;
  const char *former = NULL;
  json_pointer_member(in, sizeof in, kernel_at, "configs");
  for (bool goes_on = true; goes_on;) {
    const char *begin = reader->scan.at;
    json_pointer_index(at, sizeof at, in, kernel->n_configs);
    GROW(kernel->configs, kernel->n_configs, capacity);
    struct release_config *config = &kernel->configs[kernel->n_configs++];
    *config = (struct release_config){0};
    if (!config_read(reader, at, config))
      return false;
    size_t size = (size_t)(reader->scan.at - begin);
    if ((former && !is_after(reader, former, former_size, begin, size, at)) ||
        !array_goes_on(reader, ']', in, &goes_on))
      return false;
    former = begin;
    former_size = size;
  }
  return true;
}

static bool provenance_check(struct reader *reader, const json_t *provenance, const char *pointer) {
  static const char *const origins[] = {"tuned", "pinned", "imported"};
  struct digest ignored;
  const char *origin = json_string_value(json_object_get(provenance, "origin"));
  const json_t *build = json_object_get(provenance, "build");
  bool is_known = false;
  for (size_t i = 0; i < ARRAY_LENGTH(origins); i++)
    is_known = is_known || string_equal(origin, origins[i]);
  if (!is_known)
    return error_at(reader->error, pointer, "\"origin\" must be \"tuned\", \"pinned\" or \"imported\"");
  if (build && (!json_is_string(build) || !digest_parse(json_string_value(build), &ignored)))
    return error_at(reader->error, pointer, "\"build\" must be \"sha256:\" and 64 lower-case hexadecimal digits");
  return true;
}

static bool provenances_read(struct reader *reader, const char *kernel_at, struct release_kernel *kernel) {
  char at[JSON_POINTER_SIZE], in[JSON_POINTER_SIZE];
  size_t capacity = 0, former_size = 0;
  const char *former = NULL;
  json_pointer_member(in, sizeof in, kernel_at, "provenance");
  for (bool goes_on = true; goes_on;) {
    const char *begin = reader->scan.at;
    json_pointer_index(at, sizeof at, in, kernel->n_provenance);
    GROW(kernel->provenance, kernel->n_provenance, capacity);
    json_t **provenance = &kernel->provenance[kernel->n_provenance++];
    *provenance = NULL;
    if (!flat_object_read(reader, at, provenance))
      return false;
    size_t size = (size_t)(reader->scan.at - begin);
    if (!provenance_check(reader, *provenance, at) ||
        (former && !is_after(reader, former, former_size, begin, size, at)) ||
        !array_goes_on(reader, ']', in, &goes_on))
      return false;
    former = begin;
    former_size = size;
  }
  return true;
}

static bool key_name_add(struct reader *reader, const char *pointer, struct release_kernel *kernel) {
  if (kernel->n_key_names == KEY_MEMBERS_MAX)
    return error_at(reader->error, pointer, "a key has at most %d names", KEY_MEMBERS_MAX);
  cleanup_free char *name = text_read(reader, pointer);
  if (!name)
    return false;
  for (size_t i = 0; i < kernel->n_key_names; i++)
    if (strcmp(kernel->key_names[i], name) == 0)
      return error_at(reader->error, pointer, "\"%.64s\" stands in the key twice", name);
  kernel->key_names[kernel->n_key_names++] = TAKE(name);
  return true;
}

static bool key_names_read(struct reader *reader, const char *kernel_at, struct release_kernel *kernel) {
  char at[JSON_POINTER_SIZE], in[JSON_POINTER_SIZE];
  json_pointer_member(in, sizeof in, kernel_at, "key");
  kernel->key_names = xcalloc(KEY_MEMBERS_MAX, sizeof *kernel->key_names);
  if (scan_character(&reader->scan, ']')) /* a kernel with nothing that decides has one winner */
    return true;
  for (bool goes_on = true; goes_on;)
    if (!key_name_add(reader, json_pointer_index(at, sizeof at, in, kernel->n_key_names), kernel) ||
        !array_goes_on(reader, ']', in, &goes_on))
      return false;
  return true;
}

/* [4096,"fp16"]: as many scalars as the key has names. */
static bool winner_key_read(struct scan *scan, size_t n, struct release_winner *winner) {
  struct scalar scalar;
  winner->key = scan->at;
  if (!scan_character(scan, '['))
    return false;
  for (size_t i = 0; i < n; i++)
    if ((i && !scan_character(scan, ',')) || !scan_scalar(scan, &scalar))
      return false;
  if (!scan_character(scan, ']'))
    return false;
  winner->key_size = (size_t)(scan->at - winner->key);
  return true;
}

static bool winner_ms_read(struct scan *scan, struct release_winner *winner) {
  struct scalar scalar;
  if (!scan_character(scan, '['))
    return false;
  if (scan_character(scan, ']'))
    return true;
  do {
    const char *begin = scan->at;
    if (winner->n_ms == RELEASE_MS_MAX || !scan_number(scan, &scalar))
      return false;
    if (scalar.type != VALUE_FLOAT || !(scalar.real > 0)) {
      scan->at = begin;
      return false;
    }
    winner->ms[winner->n_ms++] = scalar.real;
  } while (scan_character(scan, ','));
  return winner->n_ms != 2 && scan_character(scan, ']');
}

/* What a winner's place takes, where it has something else. */
static const char *winner_read(struct scan *scan, const struct release_kernel *kernel, struct release_winner *winner) {
  int64_t config, provenance;
  if (!scan_character(scan, '['))
    return "'['";
  if (!winner_key_read(scan, kernel->n_key_names, winner))
    return "an array of scalars, one for each name of the key,";
  if (!scan_character(scan, ',') || !scan_count(scan, (int64_t)kernel->n_configs - 1, &config))
    return "the index of a config";
  if (!scan_character(scan, ',') || !scan_count(scan, (int64_t)kernel->n_provenance - 1, &provenance))
    return "the index of a provenance";
  if (!scan_character(scan, ',') || !winner_ms_read(scan, winner))
    return "an array of 0, 1 or 3 milliseconds (floats above 0)";
  if (!scan_character(scan, ',') || !scan_count(scan, INT64_MAX, &winner->job))
    return "the id of a job, or 0,";
  if (!scan_character(scan, ']'))
    return "']'";
  winner->config = (size_t)config;
  winner->provenance = (size_t)provenance;
  return NULL;
}

/* Pointers are made only for what is refused: there are many winners. */
static const char *winner_pointer(char *text, size_t size, const char *in, size_t index) {
  return json_pointer_index(text, size, in, index);
}

static bool winners_read(struct reader *reader, const char *kernel_at, struct release_kernel *kernel) {
  char at[JSON_POINTER_SIZE], in[JSON_POINTER_SIZE];
  size_t capacity = 0;
  json_pointer_member(in, sizeof in, kernel_at, "winners");
  for (bool goes_on = true; goes_on;) {
    GROW(kernel->winners, kernel->n_winners, capacity);
    struct release_winner *winner = &kernel->winners[kernel->n_winners];
    *winner = (struct release_winner){0};
    const char *expected = winner_read(&reader->scan, kernel, winner);
    if (expected)
      return scan_refuse(&reader->scan, winner_pointer(at, sizeof at, in, kernel->n_winners), expected, reader->error);
    int order = kernel->n_winners ? release_winner_compare(winner - 1, winner) : -1;
    if (order >= 0)
      return error_at(reader->error, winner_pointer(at, sizeof at, in, kernel->n_winners),
                      "%s for the key %.*s; take the bytes as the server made them",
                      order ? "not in the canonical order: the winner" : "there are two winners",
                      (int)(winner->key_size < 300 ? winner->key_size : 300), winner->key);
    kernel->n_winners++;
    if (!array_goes_on(reader, ']', in, &goes_on))
      return false;
  }
  reader->release->n_winners += kernel->n_winners;
  return true;
}

/* What no winner names would make two releases of the same winners. */
static bool all_is_used(struct reader *reader, const char *kernel_at, const struct release_kernel *kernel) {
  char at[JSON_POINTER_SIZE], in[JSON_POINTER_SIZE];
  cleanup_free bool *configs = xcalloc(kernel->n_configs, sizeof *configs);
  cleanup_free bool *provenance = xcalloc(kernel->n_provenance, sizeof *provenance);
  for (size_t i = 0; i < kernel->n_winners; i++) {
    configs[kernel->winners[i].config] = true;
    provenance[kernel->winners[i].provenance] = true;
  }
  for (size_t i = 0; i < kernel->n_configs; i++)
    if (!configs[i])
      return error_at(reader->error,
                      json_pointer_index(at, sizeof at, json_pointer_member(in, sizeof in, kernel_at, "configs"), i),
                      "no winner has this config; take the bytes as the server made them");
  for (size_t i = 0; i < kernel->n_provenance; i++)
    if (!provenance[i])
      return error_at(reader->error,
                      json_pointer_index(at, sizeof at, json_pointer_member(in, sizeof in, kernel_at, "provenance"), i),
                      "no winner has this provenance; take the bytes as the server made them");
  return true;
}

static bool kernel_read(struct reader *reader, const char *pointer, struct release_kernel *kernel) {
  char at[JSON_POINTER_SIZE];
  return expect(reader, "{\"configs\":[", pointer) && configs_read(reader, pointer, kernel) &&
         expect(reader, ",\"kernel\":", pointer) &&
         digest_read(reader, json_pointer_member(at, sizeof at, pointer, "kernel"), &kernel->hash) &&
         expect(reader, ",\"key\":[", pointer) && key_names_read(reader, pointer, kernel) &&
         expect(reader, ",\"name\":", pointer) &&
         (kernel->name = text_read(reader, json_pointer_member(at, sizeof at, pointer, "name"))) != NULL &&
         expect(reader, ",\"provenance\":[", pointer) && provenances_read(reader, pointer, kernel) &&
         expect(reader, ",\"winners\":[", pointer) && winners_read(reader, pointer, kernel) &&
         expect(reader, "}", pointer) && all_is_used(reader, pointer, kernel);
}

static bool kernels_read(struct reader *reader) {
  struct release *release = reader->release;
  char at[JSON_POINTER_SIZE];
  size_t capacity = 0;
  for (bool goes_on = true; goes_on;) {
    json_pointer_index(at, sizeof at, "/kernels", release->n_kernels);
    GROW(release->kernels, release->n_kernels, capacity);
    struct release_kernel *kernel = &release->kernels[release->n_kernels++];
    *kernel = (struct release_kernel){0};
    if (!kernel_read(reader, at, kernel))
      return false;
    if (release->n_kernels > 1 && release_kernel_compare(kernel - 1, kernel) >= 0)
      return error_at(
          reader->error, at,
          "kernels are not sorted by name and hash, each there once; take the bytes as the server made them");
    if (!array_goes_on(reader, ']', "/kernels", &goes_on))
      return false;
  }
  return true;
}

/* Version 1 had its winners in one list, behind the tag. */
static bool version_check(struct reader *reader) {
  const char *at = reader->scan.at;
  bool is_first = scan_literal(&reader->scan, ",\"tag\":");
  reader->scan.at = at;
  if (is_first)
    return error_at(reader->error, "/version",
                    "the release is of a version that is no longer read; publish the channel again");
  return true;
}

/* Of a cold release there is no such member. */
static void regime_read(struct reader *reader) {
  const char *at = reader->scan.at;
  if (scan_literal(&reader->scan, ",\"regime\":\"warm\""))
    reader->release->regime = REGIME_WARM;
  else
    reader->scan.at = at;
}

static bool tag_read(struct reader *reader) {
  regime_read(reader);
  return expect(reader, ",\"tag\":", "") && (reader->release->tag = text_read(reader, "/tag")) != NULL;
}

static bool release_read(struct reader *reader) {
  return expect(reader, "{\"environment\":", "") && environment_read(reader) && version_check(reader) &&
         expect(reader, ",\"kernels\":[", "") && kernels_read(reader) && tag_read(reader) &&
         expect(reader, ",\"version\":2}", "/version") &&
         (reader->scan.at == reader->scan.end || scan_refuse(&reader->scan, "", "the end", reader->error));
}

static bool size_check(size_t size, struct error *error) {
  return size <= RELEASE_SIZE_MAX ||
         error_set(error, "the release has %zu bytes; at most %zu are read", size, RELEASE_SIZE_MAX);
}

bool release_take(char **bytes, size_t size, const struct digest *digest, struct release **ret_release,
                  struct error *error) {
  if (!size_check(size, error))
    return false;
  cleanup_release struct release *release = xcalloc(1, sizeof *release);
  cleanup_free struct known_config *known = xcalloc(KNOWN_CONFIGS, sizeof *known);
  *release = (struct release){.size = size, .digest = *digest};
  struct reader reader = {{*bytes, *bytes, *bytes + size}, release, error, known};
  if (!release_read(&reader))
    return false;
  release->bytes = TAKE(*bytes);
  *ret_release = TAKE(release);
  return true;
}

bool release_parse(const char *bytes, size_t size, struct release **ret_release, struct error *error) {
  if (!size_check(size, error))
    return false;
  cleanup_free char *copy = xmalloc(size + 1);
  if (size)
    memcpy(copy, bytes, size);
  copy[size] = '\0';
  struct digest digest = digest_of(copy, size);
  return release_take(&copy, size, &digest, ret_release, error);
}
