/* Reads JSON strictly and writes it canonically, with jansson.
 *
 * Reading is strict: one value, no duplicate members, no NUL in strings, bounded size and depth.
 * Every error of a member has a JSON Pointer. The getters take the pointer of the object ("" for
 * the document) and the name of the member. Writing is canonical: members sorted by their UTF-8
 * bytes, no white space, integers in decimal, floats as Python's repr writes them (shortest text
 * that reads back equal), so that equal values have equal bytes and equal digests.
 *
 * Memory: getters return borrowed references into the object. Threads: any, one thread to a
 * value. */
#ifndef WAVETUNE_COMMON_BASE_JSON_H
#define WAVETUNE_COMMON_BASE_JSON_H

#include <jansson.h>

#include "common/base/digest.h"

#define JSON_DEPTH_MAX 32

static inline void cleanup_json_decref(json_t **value) { json_decref(*value); }
#define cleanup_json __attribute__((cleanup(cleanup_json_decref)))

/* What parsing a text takes, estimated without parsing it: bytes of memory, and nested arrays and
 * objects. For a text that is not JSON it means nothing. Stops where the memory exceeds `most`. */
struct json_extent {
  size_t memory;
  int depth;
};
struct json_extent json_measure(const char *text, size_t size, size_t most);

/* Parses `size` bytes as one JSON value of at most JSON_DEPTH_MAX nested arrays and objects. */
must_check bool json_parse(const char *text, size_t size, json_t **ret_value, struct error *error);

/* Reads and parses a file of at most `size_max` bytes; the error names the file and line. */
must_check bool json_parse_file(const char *path, size_t size_max, json_t **ret_value,
                                struct error *error);

/* The canonical text, NUL-terminated, owned by the caller. Aborts on a non-finite float (the parser
 * makes none). */
must_check char *json_canonical(const json_t *value);

/* The same, written to a stream that no other thread uses; the caller checks ferror(out). For large
 * texts that are made in pieces. */
void json_canonical_write(FILE *out, const json_t *value);
void json_canonical_write_string(FILE *out, const char *text); /* quoted and escaped */

/* Digest of the canonical text. */
struct digest json_digest(const json_t *value);

/* Writes a double as Python's repr does ("0.1", "1e-05", "1e+16", "2.0"). Returns text. */
#define FLOAT_TEXT_SIZE 40
char *float_format(double number, char text[FLOAT_TEXT_SIZE]);

/* What the getters do where the member is absent or null. */
enum json_presence {
  JSON_REQUIRED, /* absent or null is an error */
  JSON_OPTIONAL, /* absent or null is success and leaves *ret as it was: set the default first */
  JSON_NOT_NULL, /* absent is success and leaves *ret as it was; null is an error */
};

#define JSON_TYPE(type) (1u << (type)) /* JSON_OBJECT, … */
struct json_wanted {
  enum json_presence presence;
  unsigned types;   /* JSON_TYPE(…) | … */
  const char *name; /* of the types, for errors: "an object" */
};

must_check bool json_get(const json_t *object, const char *pointer, const char *name,
                         struct json_wanted wanted, json_t **ret, struct error *error);
must_check bool json_get_object(const json_t *object, const char *pointer, const char *name,
                                enum json_presence presence, json_t **ret, struct error *error);
must_check bool json_get_array(const json_t *object, const char *pointer, const char *name,
                               enum json_presence presence, json_t **ret, struct error *error);
must_check bool json_get_string(const json_t *object, const char *pointer, const char *name,
                                enum json_presence presence, const char **ret, struct error *error);
must_check bool json_get_integer(const json_t *object, const char *pointer, const char *name,
                                 enum json_presence presence, int64_t min, int64_t max,
                                 int64_t *ret, struct error *error);
must_check bool json_get_number(const json_t *object, const char *pointer, const char *name,
                                enum json_presence presence, double *ret, struct error *error);
must_check bool json_get_bool(const json_t *object, const char *pointer, const char *name,
                              enum json_presence presence, bool *ret, struct error *error);
must_check bool json_get_digest(const json_t *object, const char *pointer, const char *name,
                                enum json_presence presence, struct digest *ret,
                                struct error *error);

/* "an object", "a string", …: for messages. */
const char *json_type_name(const json_t *value);

/* Whether `value` is an object and `names` (NULL-terminated) contains the names of all its members.
 */
must_check bool json_only_members(const json_t *value, const char *pointer,
                                  const char *const *names, struct error *error);

/* Whether the text is UTF-8, as JSON must be and names of files need not be. */
must_check bool json_can_hold(const char *text);

/* Writes pointer + "/" + name (escaped by RFC 6901) to text, cut to size. Returns text. */
char *json_pointer_member(char *text, size_t size, const char *pointer, const char *name);
char *json_pointer_index(char *text, size_t size, const char *pointer, size_t index);
#define JSON_POINTER_SIZE 192

/* Add a value and take ownership of it. Abort when it is NULL: out of memory, or not UTF-8. */
static inline void json_put(json_t *object, const char *name, json_t *value) {
  ALWAYS(json_object_set_new(object, name, value) == 0);
}
static inline void json_push(json_t *array, json_t *value) {
  ALWAYS(json_array_append_new(array, value) == 0);
}

/* The text of a member; NULL: the object, which may be NULL, has no such text. */
static inline const char *json_text(const json_t *object, const char *name) {
  return json_string_value(json_object_get(object, name));
}

/* New references; the text copies: json_put(object, "id", json_digest_text(&digest)). */
must_check json_t *json_digest_text(const struct digest *digest);
must_check json_t *json_numbers(const double *numbers, size_t n);
/* The strings of an array with a separator between them; "" for another value. Owned by the
 * caller. */
must_check char *json_texts_join(const json_t *texts, const char *separator);

#endif
