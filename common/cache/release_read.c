/* Reading a release: one pass over its bytes, in place.
 *
 * A tree of JSON values is too slow: jansson takes ten times as long for 50,000 winners as this
 * whole reader. So the punctuation and the order of members, which are the same in every release,
 * are followed here, and winners are read in place. Objects (environment, configs, provenance) and
 * strings that are not plain ASCII are parsed by jansson.
 *
 * A reader that knows the digest needs only the assurance that what was hashed is what is read: all
 * text is JSON as jansson reads it, without white space between the parts of a winner, each member
 * once, all members known. For a release that is to be signed, or comes from a file, each part is
 * also compared with what json_canonical writes.
 *
 * Memory: the release owns its bytes and what it points to. Threads: any. */
#include "common/cache/release.h"

#include <math.h>

#include "common/cache/text.h"

#define KNOWN_CONFIGS 4096

/* Scanning. The text ends with a NUL, which is not part of it and which no scan passes. After a
 * failure `at` is where the text is wrong. */

struct scan {
  const char *begin, *at, *end; /* *end is NUL */
};

struct scalar {
  struct value value; /* of a string only the type is set */
  const char *text;   /* of a string: what is between the quotes */
  size_t size;
  bool has_escapes;
};

static bool scan_character(struct scan *scan, char character) {
  if (*scan->at != character)
    return false;
  scan->at++;
  return true;
}

/* Takes exactly `literal`. */
static bool scan_literal(struct scan *scan, const char *literal) {
  const char *at = scan->at;
  while (*literal && *at == *literal) { /* the NUL at the end is in no literal */
    at++;
    literal++;
  }
  if (*literal)
    return false;
  scan->at = at;
  return true;
}

static bool scan_string(struct scan *scan, struct scalar *ret) {
  const char *at = scan->at;
  bool has_escapes = false, is_ascii = true;

  if (*at != '"')
    return false;
  for (at++; *at != '"'; at++) {
    unsigned char c = (unsigned char)*at;
    if (c < 0x20) /* also the NUL at the end */
      return false;
    is_ascii = is_ascii && c < 0x80;
    if (c == '\\') {
      has_escapes = true;
      if (*++at == '\0')
        return false;
    }
  }

  at++;

  if (has_escapes || !is_ascii) {
    cleanup_json json_t *json = NULL;
    struct error ignored;
    if (!json_parse(scan->at, (size_t)(at - scan->at), &json, &ignored))
      return false;
  }

  *ret = (struct scalar){
      {.type = VALUE_STRING}, scan->at + 1, (size_t)(at - scan->at) - 2, has_escapes};
  scan->at = at;
  return true;
}

static char *scalar_text(const struct scalar *scalar) {
  if (!scalar->has_escapes)
    return xstrndup(scalar->text, scalar->size);
  cleanup_json json_t *json = NULL;
  struct error ignored;
  ALWAYS(json_parse(scalar->text - 1, scalar->size + 2, &json,
                    &ignored)); /* with its quotes; it was scanned */
  return xstrdup(json_string_value(json));
}

/* The end of the digits at `at`; *ret_number is correct for up to 19 of them. */
static const char *digits_scan(const char *at, uint64_t *ret_number) {
  uint64_t number = 0;
  for (; *at >= '0' && *at <= '9'; at++)
    number = number * 10 + (uint64_t)(*at - '0');
  *ret_number = number;
  return at;
}

/* An integer of 64 bits, or a finite real, by JSON's grammar. */
static bool scan_number(struct scan *scan, struct scalar *ret) {
  uint64_t magnitude, ignored;
  bool is_negative = *scan->at == '-', is_real = false;
  const char *first = scan->at + is_negative, *at = digits_scan(first, &magnitude), *begin;
  ptrdiff_t n_digits = at - first;
  if (n_digits == 0 || (*first == '0' && n_digits > 1))
    return false;

  if (*at == '.') {
    is_real = true;
    begin = at + 1;
    at = digits_scan(begin, &ignored);
    if (at == begin)
      return false;
  }

  if (*at == 'e' || *at == 'E') {
    is_real = true;
    begin = at + 1 + (at[1] == '+' || at[1] == '-');
    at = digits_scan(begin, &ignored);
    if (at == begin)
      return false;
  }

  if (is_real) {
    ret->value = value_float(strtod(scan->at, NULL));
    if (!isfinite(ret->value.real))
      return false;
  } else {
    if (n_digits > 19 || magnitude > (uint64_t)INT64_MAX + is_negative)
      return false;
    ret->value = value_int((int64_t)(is_negative ? -magnitude : magnitude));
  }

  scan->at = at;
  return true;
}

/* An integer, 0 to max. */
static bool scan_count(struct scan *scan, int64_t max, int64_t *ret) {
  struct scalar scalar;
  const char *begin = scan->at;
  if (*begin != '-' && scan_number(scan, &scalar) && scalar.value.type == VALUE_INT &&
      scalar.value.integer <= max) {
    *ret = scalar.value.integer;
    return true;
  }
  scan->at = begin;
  return false;
}

static bool scan_scalar(struct scan *scan, struct scalar *ret) {
  switch (*scan->at) {
  case '"':
    return scan_string(scan, ret);
  case 'n':
    ret->value = value_none();
    return scan_literal(scan, "null");
  case 't':
  case 'f':
    ret->value = value_bool(*scan->at == 't');
    return scan_literal(scan, ret->value.boolean ? "true" : "false");
  default:
    return scan_number(scan, ret);
  }
}

/* Scans the object that begins here by counting brackets; its content is not checked. */
static bool scan_object(struct scan *scan, const char **ret_text, size_t *ret_size) {
  const char *at = scan->at;
  size_t depth = 0;

  if (*at != '{')
    return false;
  do {
    if (*at == '\0')
      return false;
    if (*at == '"') {
      for (at++; *at != '"'; at++)
        if (*at == '\0' || (*at == '\\' && *++at == '\0'))
          return false;
    } else if (*at == '{' || *at == '[') {
      depth++;
    } else if (*at == '}' || *at == ']') {
      depth--;
    }
    at++;
  } while (depth > 0);

  *ret_text = scan->at;
  *ret_size = (size_t)(at - scan->at);
  scan->at = at;
  return true;
}

/* Reading */

struct reader {
  struct scan scan;
  struct release *release;
  struct error *error;
  bool is_strict; /* every text must be as json_canonical writes it */
  /* Configs that were read before, by the hash of their text; of one hash the last. */
  struct known_config {
    const char *text; /* NULL: none */
    size_t size;
    json_t *values; /* borrowed from the release */
  } *known;
  /* The current place. place() makes its JSON Pointer only when there is an error. */
  bool in_kernel; /* the last of the release */
  const char *array;
  size_t index; /* NO_INDEX: the array itself */
  const char *member;
  char pointer[JSON_POINTER_SIZE];
};
#define NO_INDEX SIZE_MAX

static const char *place(struct reader *reader) {
  char index[32] = "";
  if (reader->array && reader->index != NO_INDEX)
    snprintf(index, sizeof index, "/%zu", reader->index);
  cleanup_free char *kernel =
      reader->in_kernel ? xasprintf("/kernels/%zu", reader->release->n_kernels - 1) : xstrdup("");
  snprintf(reader->pointer, sizeof reader->pointer, "%s%s%s%s%s%s", kernel,
           reader->array ? "/" : "", reader->array ? reader->array : "", index,
           reader->member ? "/" : "", reader->member ? reader->member : "");
  return reader->pointer;
}

static bool refuse(struct reader *reader, const char *expected) {
  return error_at(reader->error, place(reader),
                  "the release is not canonical at byte %zu: %s was expected there; take the bytes "
                  "as the server made them",
                  (size_t)(reader->scan.at - reader->scan.begin), expected);
}

static bool expect(struct reader *reader, const char *literal) {
  char expected[64];
  if (scan_literal(&reader->scan, literal))
    return true;
  snprintf(expected, sizeof expected, "'%s'", literal);
  return refuse(reader, expected);
}

/* Whether a part of the text, which is JSON, is written as json_canonical writes it; true where
 * that is not demanded. `json` is what it reads as, or NULL. */
static bool text_is_canonical(struct reader *reader, const char *text, size_t size,
                              const json_t *json) {
  cleanup_json json_t *parsed = NULL;
  struct error ignored;

  if (!reader->is_strict)
    return true;
  if (!json) {
    ALWAYS(json_parse(text, size, &parsed, &ignored)); /* it was scanned */
    json = parsed;
  }

  cleanup_free char *canonical = json_canonical(json);
  size_t at = 0;
  while (at < size && canonical[at] && canonical[at] == text[at])
    at++;
  if (at == size && !canonical[at])
    return true;
  reader->scan.at = text + at;
  return refuse(reader, "another text of the same meaning");
}

static bool text_read(struct reader *reader, char **ret) {
  struct scalar scalar;
  const char *begin = reader->scan.at;

  if (!scan_string(&reader->scan, &scalar))
    return refuse(reader, "a string");
  if (scalar.size == 0)
    return error_at(reader->error, place(reader), "a text of a release must not be empty");
  if (!text_is_canonical(reader, begin, scalar.size + 2, NULL))
    return false;
  *ret = scalar_text(&scalar);
  return true;
}

static bool digest_read(struct reader *reader, const char *member, struct digest *ret) {
  struct scalar scalar;
  const char *begin = reader->scan.at;

  reader->member = member;
  if (scan_string(&reader->scan, &scalar)) {
    cleanup_free char *text = xstrndup(scalar.text, scalar.size);
    if (digest_parse(text, ret)) {
      reader->member = NULL;
      return true;
    }
  }

  reader->scan.at = begin;
  return refuse(reader, "\"sha256:\" and 64 lower-case hexadecimal digits in quotes");
}

static bool object_read(struct reader *reader, bool is_flat, json_t **ret) {
  cleanup_json json_t *json = NULL;
  const char *text;
  size_t size;
  if (!scan_object(&reader->scan, &text, &size))
    return refuse(reader, "an object");
  if (!json_parse(text, size, &json, reader->error)) {
    error_prefix(reader->error, "the object at byte %zu: ", (size_t)(text - reader->scan.begin));
    return error_pointer_prefix(reader->error, place(reader));
  }

  if (!text_is_canonical(reader, text, size, json))
    return false;

  json_members (json, name, value) {
    char at[JSON_POINTER_SIZE];
    if (is_flat && (json_is_object(value) || json_is_array(value)))
      return error_at(reader->error, json_pointer_member(at, sizeof at, place(reader), name),
                      "\"%.64s\" must be null, a boolean, a number or a string", name);
  }

  *ret = TAKE(json);
  return true;
}

/* Reads an array of a kernel whose '[' was read. With is_sorted, the texts of its elements must
 * ascend. */
static bool array_read(struct reader *reader, const char *name, struct release_kernel *kernel,
                       bool (*element_read)(struct reader *, struct release_kernel *),
                       bool is_sorted) {
  struct slice before = {"", 0};
  reader->array = name;

  for (reader->index = 0;; reader->index++) {
    const char *begin = reader->scan.at;
    if (!element_read(reader, kernel))
      return false;
    if (is_sorted) {
      size_t size = (size_t)(reader->scan.at - begin);
      int order = memcmp(before.bytes, begin, before.size < size ? before.size : size);
      if (order > 0 || (order == 0 && before.size >= size))
        return error_at(reader->error, place(reader), "%s; take the bytes as the server made them",
                        order == 0 && before.size == size ? "it occurs twice"
                                                          : "it is not in the canonical order");
      before = (struct slice){begin, size};
    }
    if (!scan_character(&reader->scan, ','))
      break;
  }

  reader->index = NO_INDEX;
  if (!scan_character(&reader->scan, ']'))
    return refuse(reader, "',' or ']'");

  reader->array = NULL;
  return true;
}

static bool config_read(struct reader *reader, struct release_kernel *kernel) {
  struct scan *scan = &reader->scan;
  struct release_config *config = APPEND(kernel->configs, kernel->n_configs);
  int64_t ordinal = 0;

  config->has_ordinal = scan_literal(scan, "{\"ordinal\":");
  if (config->has_ordinal) {
    reader->member = "ordinal";
    if (!scan_count(scan, INT64_MAX, &ordinal))
      return refuse(reader, "a number from 0");
    reader->member = NULL;
    config->ordinal = (uint64_t)ordinal;
    if (!expect(reader, ",\"space\":") || !digest_read(reader, "space", &config->space) ||
        !expect(reader, ",\"values\":"))
      return false;
  } else if (!expect(reader, "{\"values\":")) {
    return false;
  }

  /* Kernels have configs in common: their space's, or those of one decorator. A config that was
   * read once is not read again. */
  struct scan ahead = *scan;
  struct known_config *known = NULL;
  if (scan_object(&ahead, &config->text, &config->text_size)) {
    known = &reader->known[text_hash(config->text, config->text_size) % KNOWN_CONFIGS];
    if (known->text && known->size == config->text_size &&
        memcmp(known->text, config->text, known->size) == 0) {
      config->values = json_incref(known->values);
      *scan = ahead;
      return expect(reader, "}");
    }
  }

  reader->member = "values";
  if (!object_read(reader, true, &config->values))
    return false;

  reader->member = NULL;
  *known = (struct known_config){config->text, config->text_size, config->values};
  return expect(reader, "}");
}

static bool provenance_read(struct reader *reader, struct release_kernel *kernel) {
  static const char *const origins[] = {"tuned", "pinned", "imported", NULL};
  json_t **provenance = APPEND(kernel->provenance, kernel->n_provenance);
  struct digest ignored;
  size_t i = 0;

  if (!object_read(reader, true, provenance))
    return false;
  const char *origin = json_text(*provenance, "origin");
  const json_t *build = json_object_get(*provenance, "build");
  while (origins[i] && !string_equal(origin, origins[i]))
    i++;

  if (!origins[i])
    return error_at(reader->error, place(reader),
                    "\"origin\" must be \"tuned\", \"pinned\" or \"imported\"");
  if (build && (!json_is_string(build) || !digest_parse(json_string_value(build), &ignored)))
    return error_at(reader->error, place(reader),
                    "\"build\" must be \"sha256:\" and 64 lower-case hexadecimal digits");
  return true;
}

static bool key_name_read(struct reader *reader, struct release_kernel *kernel) {
  if (kernel->n_key_names == KEY_MEMBERS_MAX)
    return error_at(reader->error, place(reader), "a key has at most %d names", KEY_MEMBERS_MAX);
  char **name = APPEND(kernel->key_names, kernel->n_key_names);
  if (!text_read(reader, name))
    return false;
  for (size_t i = 0; i + 1 < kernel->n_key_names; i++)
    if (string_equal(kernel->key_names[i], *name))
      return error_at(reader->error, place(reader), "\"%.64s\" is in the key twice", *name);
  return true;
}

/* Fills a winner; returns what was expected where the text has something else, or NULL. */
static const char *winner_scan(struct scan *scan, const struct release_kernel *kernel,
                               struct release_winner *winner) {
  static const char key[] = "an array of scalars, one for each name of the key,",
                    ms[] = "an array of 0, 1 or 3 milliseconds (floats above 0)";
  int64_t config, provenance;
  struct scalar scalar;
  if (!scan_character(scan, '['))
    return "'['";

  winner->key = scan->at; /* [4096,"fp16"] */
  if (!scan_character(scan, '['))
    return key;

  for (size_t i = 0; i < kernel->n_key_names; i++)
    if ((i && !scan_character(scan, ',')) || !scan_scalar(scan, &scalar))
      return key;
  if (!scan_character(scan, ']'))
    return key;
  winner->key_size = (size_t)(scan->at - winner->key);

  if (!scan_character(scan, ',') || !scan_count(scan, (int64_t)kernel->n_configs - 1, &config))
    return "the index of a config";
  if (!scan_character(scan, ',') ||
      !scan_count(scan, (int64_t)kernel->n_provenance - 1, &provenance))
    return "the index of a provenance";
  winner->config = (size_t)config;
  winner->provenance = (size_t)provenance;

  if (!scan_literal(scan, ",["))
    return ms;

  while (*scan->at != ']') {
    if (winner->n_ms == RELEASE_MS_MAX || (winner->n_ms && !scan_character(scan, ',')))
      return ms;
    const char *begin = scan->at;
    if (!scan_number(scan, &scalar))
      return ms;
    if (scalar.value.type != VALUE_FLOAT || !(scalar.value.real > 0)) {
      scan->at = begin;
      return ms;
    }
    winner->ms[winner->n_ms++] = scalar.value.real;
  }

  if (winner->n_ms == 2)
    return ms;
  scan->at++;

  if (!scan_character(scan, ',') || !scan_count(scan, INT64_MAX, &winner->job))
    return "the id of a job, or 0,";
  return scan_character(scan, ']') ? NULL : "']'";
}

static bool winner_read(struct reader *reader, struct release_kernel *kernel) {
  struct release_winner *winner = APPEND(kernel->winners, kernel->n_winners);
  const char *begin = reader->scan.at, *expected = winner_scan(&reader->scan, kernel, winner);

  if (expected)
    return refuse(reader, expected);
  if (!text_is_canonical(reader, begin, (size_t)(reader->scan.at - begin), NULL))
    return false;

  int order = kernel->n_winners > 1 ? release_winner_compare(winner - 1, winner) : -1;
  return order < 0 ||
         error_at(reader->error, place(reader),
                  "%s for the key %.*s; take the bytes as the server made them",
                  order ? "not in the canonical order: the winner" : "there are two winners",
                  (int)(winner->key_size < 300 ? winner->key_size : 300), winner->key);
}

/* Refuses an element that no winner uses: with it, the same winners would have two releases. */
static bool all_are_used(struct reader *reader, const struct release_kernel *kernel, bool configs) {
  size_t n = configs ? kernel->n_configs : kernel->n_provenance;
  cleanup_free bool *used = xcalloc(n, sizeof *used);
  for (size_t i = 0; i < kernel->n_winners; i++)
    used[configs ? kernel->winners[i].config : kernel->winners[i].provenance] = true;
  reader->array = configs ? "configs" : "provenance";

  for (reader->index = 0; reader->index < n; reader->index++)
    if (!used[reader->index])
      return error_at(reader->error, place(reader),
                      "no winner has this %s; take the bytes as the server made them",
                      configs ? "config" : "provenance");

  reader->array = NULL;
  return true;
}

static bool kernel_read(struct reader *reader) {
  struct release *release = reader->release;
  struct release_kernel *kernel = APPEND(release->kernels, release->n_kernels);

  reader->in_kernel = true;
  if (!expect(reader, "{\"configs\":[") ||
      !array_read(reader, "configs", kernel, config_read, true) ||
      !expect(reader, ",\"kernel\":") || !digest_read(reader, "kernel", &kernel->hash) ||
      !expect(reader, ",\"key\":["))
    return false;

  /* A kernel with an empty key has one winner. */
  if (!scan_character(&reader->scan, ']') &&
      !array_read(reader, "key", kernel, key_name_read, false))
    return false;
  if (!expect(reader, ",\"name\":"))
    return false;
  reader->member = "name";
  if (!text_read(reader, &kernel->name))
    return false;
  reader->member = NULL;
  if (!expect(reader, ",\"provenance\":[") ||
      !array_read(reader, "provenance", kernel, provenance_read, true) ||
      !expect(reader, ",\"winners\":[") ||
      !array_read(reader, "winners", kernel, winner_read, false) || !expect(reader, "}") ||
      !all_are_used(reader, kernel, true) || !all_are_used(reader, kernel, false))
    return false;

  release->n_winners += kernel->n_winners;
  if (release->n_kernels > 1 && release_kernel_compare(kernel - 1, kernel) >= 0)
    return error_at(reader->error, place(reader),
                    "kernels must be sorted by name and hash, and occur once; take the bytes as "
                    "the server made them");

  reader->in_kernel = false;
  return true;
}

static bool release_read(struct reader *reader) {
  struct release *release = reader->release;
  struct scan *scan = &reader->scan;
  cleanup_json json_t *json = NULL, *again = NULL;

  if (!expect(reader, "{\"environment\":"))
    return false;
  reader->member = "environment";
  if (!object_read(reader, false, &json))
    return false;
  if (!environment_parse(json, &release->environment, reader->error))
    return error_pointer_prefix(reader->error, "/environment");
  again = environment_to_json(&release->environment);
  if (!json_equal(again, json))
    return error_at(reader->error, "/environment",
                    "a member of the environment is null; a release leaves out what is unknown");

  /* Version 1 had its winners in one list, after the tag. */
  if (string_starts(scan->at, ",\"tag\":"))
    return error_at(
        reader->error, "/version",
        "the release is of a version that is no longer read; publish the channel again");
  reader->member = NULL;
  if (!expect(reader, ",\"kernels\":["))
    return false;

  do {
    if (!kernel_read(reader))
      return false;
  } while (scan_character(scan, ','));

  reader->member = "kernels";
  if (!scan_character(scan, ']'))
    return refuse(reader, "',' or ']'");

  reader->member = NULL;
  if (scan_literal(scan, ",\"regime\":")) { /* not of the implied one */
    cleanup_free char *regime = NULL;
    reader->member = "regime";
    if (!text_read(reader, &regime))
      return false;
    if (!regime_parse(regime, &release->regime, reader->error))
      return error_pointer_prefix(reader->error, "/regime");
    if (!regime_member(release->regime))
      return error_at(reader->error, "/regime", "a %s release does not state its regime", regime);
    reader->member = NULL;
  }
  if (!expect(reader, ",\"tag\":"))
    return false;
  reader->member = "tag";
  if (!text_read(reader, &release->tag))
    return false;
  reader->member = "version";
  if (!expect(reader, ",\"version\":2}"))
    return false;

  reader->member = NULL;
  return scan->at == scan->end || refuse(reader, "the end");
}

static bool bytes_take(char **bytes, size_t size, const struct digest *digest, bool is_strict,
                       struct release **ret_release, struct error *error) {
  cleanup_release struct release *release = xcalloc(1, sizeof *release);
  cleanup_free struct known_config *known = xcalloc(KNOWN_CONFIGS, sizeof *known);
  struct reader reader = {.scan = {*bytes, *bytes, *bytes + size},
                          .release = release,
                          .error = error,
                          .is_strict = is_strict,
                          .known = known};

  release->size = size;
  release->digest = *digest;
  if (!release_read(&reader))
    return false;
  release->bytes = TAKE(*bytes);

  *ret_release = TAKE(release);
  return true;
}

static bool size_check(size_t size, struct error *error) {
  return size <= RELEASE_SIZE_MAX ||
         error_set(error, "the release has %zu bytes; at most %zu are read", size,
                   RELEASE_SIZE_MAX);
}

bool release_take(char **bytes, size_t size, const struct digest *digest,
                  struct release **ret_release, struct error *error) {
  return size_check(size, error) && bytes_take(bytes, size, digest, false, ret_release, error);
}

bool release_parse(const char *bytes, size_t size, struct release **ret_release,
                   struct error *error) {
  if (!size_check(size, error))
    return false;
  cleanup_free char *copy = xmalloc(size + 1);
  if (size)
    memcpy(copy, bytes, size);
  copy[size] = '\0';
  struct digest digest = digest_of(copy, size);
  return bytes_take(&copy, size, &digest, true, ret_release, error);
}

/* Keys, which stay text until their values are needed */

void release_key_values(const struct release_kernel *kernel, const struct release_winner *winner,
                        struct value *ret_values) {
  struct scan scan = {winner->key, winner->key, winner->key + winner->key_size};
  for (size_t i = 0; i < kernel->n_key_names; i++) {
    struct scalar scalar;
    scan.at++; /* '[' or ',' */
    ALWAYS(scan_scalar(&scan, &scalar));
    ret_values[i] =
        scalar.value.type == VALUE_STRING ? value_string(scalar_text(&scalar)) : scalar.value;
  }
}

void release_key_values_release(const struct release_kernel *kernel, struct value *values) {
  for (size_t i = 0; i < kernel->n_key_names; i++)
    if (values[i].type == VALUE_STRING)
      free((char *)values[i].string);
}

json_t *release_key_object(const struct release_kernel *kernel,
                           const struct release_winner *winner) {
  struct value values[KEY_MEMBERS_MAX];
  json_t *object = json_object();
  release_key_values(kernel, winner, values);
  for (size_t i = 0; i < kernel->n_key_names; i++)
    json_put(object, kernel->key_names[i], value_to_json(values[i]));
  release_key_values_release(kernel, values);
  return object;
}
