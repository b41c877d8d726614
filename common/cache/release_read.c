/* Reading a release: one pass over its bytes, where they stand.
 *
 * A DOM is no way to do it: to make values of 50,000 winners takes jansson ten times as long as all
 * of this. So the places and the punctuation, which are the same in every release, are followed
 * here, and winners are read in place. Objects (environment, configs, provenance) and strings that
 * are not plain ASCII are jansson's.
 *
 * Whoever knows the digest needs to know no more than that what was hashed is what is read: all
 * text is JSON as jansson reads it, without white space between the parts of a winner, each member
 * once, all members known. Whoever signs a release, or gets it from a file, has each part written
 * again by json_canonical too, and compared.
 *
 * Memory: the release owns its bytes and what it points to. Threads: any. */
#include "common/cache/release.h"

#include <math.h>

#include "common/cache/text.h"

#define KNOWN_CONFIGS 4096

/* Scanning. The text ends with a NUL, which is not part of it and which no scan passes. What
 * returns false leaves `at` where it was wrong. */

struct scan {
  const char *begin, *at, *end; /* *end is NUL */
};

/* A scalar as it stands in the text: the member of its type is set. */
struct scalar {
  enum value_type type;
  bool boolean;
  int64_t integer;
  double real;
  const char *text; /* of a string: what stands between the quotes */
  size_t size;
  bool has_escapes;
};

static bool scan_refuse(const struct scan *scan, const char *pointer, const char *expected,
                        struct error *error) {
  return error_at(error, pointer,
                  "the release is not canonical at byte %zu: %s was expected there; take the bytes "
                  "as the server made "
                  "them",
                  (size_t)(scan->at - scan->begin), expected);
}

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
    if (c < 0x20) /* also the end */
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
  ret->type = VALUE_STRING;
  ret->text = scan->at + 1;
  ret->size = (size_t)(at - scan->at) - 2;
  ret->has_escapes = has_escapes;
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

/* Digits from `at` on; *ret_number is right up to 19 of them. */
static const char *digits_scan(const char *at, uint64_t *ret_number) {
  uint64_t number = 0;
  for (; *at >= '0' && *at <= '9'; at++)
    number = number * 10 + (uint64_t)(*at - '0');
  *ret_number = number;
  return at;
}

/* By JSON's grammar: an integer of 64 bits, or a finite real. */
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
    ret->type = VALUE_FLOAT;
    ret->real = strtod(scan->at, NULL);
    if (!isfinite(ret->real))
      return false;
  } else {
    if (n_digits > 19 || magnitude > (uint64_t)INT64_MAX + is_negative)
      return false;
    ret->type = VALUE_INT;
    ret->integer = (int64_t)(is_negative ? -magnitude : magnitude);
  }
  scan->at = at;
  return true;
}

/* An integer, 0 to max. */
static bool scan_count(struct scan *scan, int64_t max, int64_t *ret) {
  struct scalar scalar;
  const char *begin = scan->at;
  if (*begin != '-' && scan_number(scan, &scalar) && scalar.type == VALUE_INT &&
      scalar.integer <= max) {
    *ret = scalar.integer;
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
    ret->type = VALUE_NONE;
    return scan_literal(scan, "null");
  case 't':
  case 'f':
    ret->type = VALUE_BOOL;
    ret->boolean = *scan->at == 't';
    return scan_literal(scan, ret->boolean ? "true" : "false");
  default:
    return scan_number(scan, ret);
  }
}

/* The object that begins here, by the brackets alone. */
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
  bool is_strict;             /* every text must be as json_canonical writes it */
};

static bool expect(struct reader *reader, const char *literal, const char *pointer) {
  char expected[64];
  if (scan_literal(&reader->scan, literal))
    return true;
  snprintf(expected, sizeof expected, "'%s'", literal);
  return scan_refuse(&reader->scan, pointer, expected, reader->error);
}

/* ',' goes on, `close` ends the array. */
static bool array_goes_on(struct reader *reader, char close, const char *pointer,
                          bool *ret_goes_on) {
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

/* Whether a part of the text, which is JSON, is written as json_canonical writes it; true of all
 * where that is not asked. `json` is what it reads as, or NULL. */
static bool text_is_canonical(struct reader *reader, const char *text, size_t size,
                              const json_t *json, const char *pointer) {
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
  return scan_refuse(&reader->scan, pointer, "another text of the same meaning", reader->error);
}

/* NULL, with a sentence, for anything else and for an empty one. */
static char *text_read(struct reader *reader, const char *pointer) {
  struct scalar scalar;
  const char *begin = reader->scan.at;
  if (!scan_string(&reader->scan, &scalar)) {
    scan_refuse(&reader->scan, pointer, "a string", reader->error);
    return NULL;
  }
  if (scalar.size == 0) {
    error_at(reader->error, pointer, "the text is empty; a release names what it holds");
    return NULL;
  }
  if (!text_is_canonical(reader, begin, scalar.size + 2, NULL, pointer))
    return NULL;
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
  return scan_refuse(&reader->scan, pointer,
                     "\"sha256:\" and 64 lower-case hexadecimal digits in quotes", reader->error);
}

static bool object_read(struct reader *reader, const char *pointer, json_t **ret) {
  cleanup_json json_t *json = NULL;
  const char *text;
  size_t size;
  if (!scan_object(&reader->scan, &text, &size))
    return scan_refuse(&reader->scan, pointer, "an object", reader->error);
  if (!json_parse(text, size, &json, reader->error)) {
    error_prefix(reader->error, "the object at byte %zu: ", (size_t)(text - reader->scan.begin));
    return error_pointer_prefix(reader->error, pointer);
  }
  if (!text_is_canonical(reader, text, size, json, pointer))
    return false;
  *ret = TAKE(json);
  return true;
}

static bool flat_object_read(struct reader *reader, const char *pointer, json_t **ret) {
  cleanup_json json_t *json = NULL;
  const char *name;
  json_t *value;
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
static bool is_after(struct reader *reader, const char *former, size_t former_size,
                     const char *text, size_t size, const char *pointer) {
  int order = memcmp(former, text, former_size < size ? former_size : size);
  if (order < 0 || (order == 0 && former_size < size))
    return true;
  return error_at(reader->error, pointer, "%s; take the bytes as the server made them",
                  order == 0 && former_size == size ? "it is there twice"
                                                    : "it is not in the canonical order");
}

/* Kernels have configs in common: their space's, or those of one decorator. What was read once is
 * not read again. */
static bool values_read(struct reader *reader, const char *pointer, struct release_config *config) {
  char at[JSON_POINTER_SIZE];
  struct scan ahead = reader->scan;
  struct known_config *known = NULL;
  if (scan_object(&ahead, &config->text, &config->text_size)) {
    known = &reader->known[text_hash(config->text, config->text_size) % KNOWN_CONFIGS];
    if (known->text && known->size == config->text_size &&
        memcmp(known->text, config->text, known->size) == 0) {
      config->values = json_incref(known->values);
      reader->scan = ahead;
      return true;
    }
  }
  if (!flat_object_read(reader, json_pointer_member(at, sizeof at, pointer, "values"),
                        &config->values))
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
      return scan_refuse(scan, json_pointer_member(at, sizeof at, pointer, "ordinal"),
                         "a number from 0", reader->error);
    config->ordinal = (uint64_t)ordinal;
    if (!expect(reader, ",\"space\":", pointer) ||
        !digest_read(reader, json_pointer_member(at, sizeof at, pointer, "space"),
                     &config->space) ||
        !expect(reader, ",\"values\":", pointer))
      return false;
  } else if (!expect(reader, "{\"values\":", pointer)) {
    return false;
  }
  return values_read(reader, pointer, config) && expect(reader, "}", pointer);
}

static bool configs_read(struct reader *reader, const char *kernel_at,
                         struct release_kernel *kernel) {
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
    return error_at(reader->error, pointer,
                    "\"origin\" must be \"tuned\", \"pinned\" or \"imported\"");
  if (build && (!json_is_string(build) || !digest_parse(json_string_value(build), &ignored)))
    return error_at(reader->error, pointer,
                    "\"build\" must be \"sha256:\" and 64 lower-case hexadecimal digits");
  return true;
}

static bool provenances_read(struct reader *reader, const char *kernel_at,
                             struct release_kernel *kernel) {
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

static bool key_name_add(struct reader *reader, const char *pointer,
                         struct release_kernel *kernel) {
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

static bool key_names_read(struct reader *reader, const char *kernel_at,
                           struct release_kernel *kernel) {
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
static const char *winner_read(struct scan *scan, const struct release_kernel *kernel,
                               struct release_winner *winner) {
  int64_t config, provenance;
  if (!scan_character(scan, '['))
    return "'['";
  if (!winner_key_read(scan, kernel->n_key_names, winner))
    return "an array of scalars, one for each name of the key,";
  if (!scan_character(scan, ',') || !scan_count(scan, (int64_t)kernel->n_configs - 1, &config))
    return "the index of a config";
  if (!scan_character(scan, ',') ||
      !scan_count(scan, (int64_t)kernel->n_provenance - 1, &provenance))
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
static bool winners_read(struct reader *reader, const char *kernel_at,
                         struct release_kernel *kernel) {
  char at[JSON_POINTER_SIZE], in[JSON_POINTER_SIZE];
  size_t capacity = 0;
  json_pointer_member(in, sizeof in, kernel_at, "winners");
  for (bool goes_on = true; goes_on;) {
    size_t index = kernel->n_winners;
    GROW(kernel->winners, index, capacity);
    struct release_winner *winner = &kernel->winners[index];
    *winner = (struct release_winner){0};

    const char *begin = reader->scan.at, *expected = winner_read(&reader->scan, kernel, winner);
    if (expected)
      return scan_refuse(&reader->scan, json_pointer_index(at, sizeof at, in, index), expected,
                         reader->error);
    if (reader->is_strict && !text_is_canonical(reader, begin, (size_t)(reader->scan.at - begin),
                                                NULL, json_pointer_index(at, sizeof at, in, index)))
      return false;

    int order = index ? release_winner_compare(winner - 1, winner) : -1;
    if (order >= 0)
      return error_at(reader->error, json_pointer_index(at, sizeof at, in, index),
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

/* What no winner names would make two releases of the same winners. `array` and `one`: how it is
 * called. */
static bool all_are_used(struct reader *reader, const char *kernel_at, const bool *used, size_t n,
                         const char *array, const char *one) {
  char at[JSON_POINTER_SIZE], in[JSON_POINTER_SIZE];
  for (size_t i = 0; i < n; i++)
    if (!used[i])
      return error_at(reader->error,
                      json_pointer_index(at, sizeof at,
                                         json_pointer_member(in, sizeof in, kernel_at, array), i),
                      "no winner has this %s; take the bytes as the server made them", one);
  return true;
}

static bool kernel_is_used(struct reader *reader, const char *kernel_at,
                           const struct release_kernel *kernel) {
  cleanup_free bool *configs = xcalloc(kernel->n_configs, sizeof *configs);
  cleanup_free bool *provenance = xcalloc(kernel->n_provenance, sizeof *provenance);
  for (size_t i = 0; i < kernel->n_winners; i++) {
    configs[kernel->winners[i].config] = true;
    provenance[kernel->winners[i].provenance] = true;
  }
  return all_are_used(reader, kernel_at, configs, kernel->n_configs, "configs", "config") &&
         all_are_used(reader, kernel_at, provenance, kernel->n_provenance, "provenance",
                      "provenance");
}

static bool kernel_read(struct reader *reader, const char *pointer, struct release_kernel *kernel) {
  char at[JSON_POINTER_SIZE];
  return expect(reader, "{\"configs\":[", pointer) && configs_read(reader, pointer, kernel) &&
         expect(reader, ",\"kernel\":", pointer) &&
         digest_read(reader, json_pointer_member(at, sizeof at, pointer, "kernel"),
                     &kernel->hash) &&
         expect(reader, ",\"key\":[", pointer) && key_names_read(reader, pointer, kernel) &&
         expect(reader, ",\"name\":", pointer) &&
         (kernel->name = text_read(reader, json_pointer_member(at, sizeof at, pointer, "name"))) !=
             NULL &&
         expect(reader, ",\"provenance\":[", pointer) &&
         provenances_read(reader, pointer, kernel) && expect(reader, ",\"winners\":[", pointer) &&
         winners_read(reader, pointer, kernel) && expect(reader, "}", pointer) &&
         kernel_is_used(reader, pointer, kernel);
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
      return error_at(reader->error, at,
                      "kernels are not sorted by name and hash, each there once; take the bytes as "
                      "the server made them");
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
    return error_at(
        reader->error, "/version",
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
  return expect(reader, ",\"tag\":", "") &&
         (reader->release->tag = text_read(reader, "/tag")) != NULL;
}

static bool release_read(struct reader *reader) {
  return expect(reader, "{\"environment\":", "") && environment_read(reader) &&
         version_check(reader) && expect(reader, ",\"kernels\":[", "") && kernels_read(reader) &&
         tag_read(reader) && expect(reader, ",\"version\":2}", "/version") &&
         (reader->scan.at == reader->scan.end ||
          scan_refuse(&reader->scan, "", "the end", reader->error));
}

static bool bytes_take(char **bytes, size_t size, const struct digest *digest, bool is_strict,
                       struct release **ret_release, struct error *error) {
  cleanup_release struct release *release = xcalloc(1, sizeof *release);
  cleanup_free struct known_config *known = xcalloc(KNOWN_CONFIGS, sizeof *known);
  *release = (struct release){.size = size, .digest = *digest};
  struct reader reader = {{*bytes, *bytes, *bytes + size}, release, error, known, is_strict};
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

/* Keys, which stay text until somebody wants their values */

static struct value value_of(const struct scalar *scalar) {
  switch (scalar->type) {
  case VALUE_NONE:
    return value_none();
  case VALUE_BOOL:
    return value_bool(scalar->boolean);
  case VALUE_INT:
    return value_int(scalar->integer);
  case VALUE_FLOAT:
    return value_float(scalar->real);
  case VALUE_STRING:
    return value_string(scalar_text(scalar));
  }
  die("value_of: type %d", (int)scalar->type);
}

void release_key_values(const struct release_kernel *kernel, const struct release_winner *winner,
                        struct value *ret_values) {
  struct scan scan = {winner->key, winner->key, winner->key + winner->key_size};
  for (size_t i = 0; i < kernel->n_key_names; i++) {
    struct scalar scalar;
    scan.at++; /* '[' or ',' */
    ALWAYS(scan_scalar(&scan, &scalar));
    ret_values[i] = value_of(&scalar);
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
    ALWAYS(json_object_set_new(object, kernel->key_names[i], value_to_json(values[i])) == 0);
  release_key_values_release(kernel, values);
  return object;
}
