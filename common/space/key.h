/* A key: the ordered names and values that one tuning decision depends on, e.g. {"M": 4096, "N":
 * 4096}.
 *
 * The order is the kernel's; identity is the digest of the canonical JSON object, which does not
 * depend on it. Memory: a key owns its names and strings. Threads: read-only after key_parse. */
#ifndef WAVETUNE_COMMON_SPACE_KEY_H
#define WAVETUNE_COMMON_SPACE_KEY_H

#include "common/space/expr.h"

#define KEY_MEMBERS_MAX 64 /* dejavu keys of attention kernels have 39 */

struct key {
  size_t n;
  char **names;
  struct value *values; /* strings owned by the key */
};

/* From a JSON object whose members must be exactly `names`, each None, bool, int, float or string.
 * With `names` NULL, any members are accepted, in the object's order. Errors have pointers relative
 * to the object. */
must_check bool key_parse(const json_t *json, const char *const *names, size_t n_names,
                          struct key *ret_key, struct error *error);

/* From the command line: "M=4096,N=4096,dtype=fp16". Ints, floats (1e-5), True/False/None as Python
 * or JSON (true/false/null) writes them, else a string; a string that looks like something else is
 * quoted: dtype='1', flag='true', part='1..4'. Members in the order of `names` whatever the order
 * in the text. A text that names several keys, as key_list_add reads it, is refused. */
must_check bool key_parse_text(const char *text, const char *const *names, size_t n_names,
                               struct key *ret_key, struct error *error);

void key_release(struct key *key);
#define cleanup_key cleanup_by(key_release)

must_check json_t *key_to_json(const struct key *key); /* members in the key's order */
/* JSON with the members in the key's order, values canonical. Texts are owned by the caller. */
must_check char *key_to_text(const struct key *key);
must_check char *key_format(const struct key *key); /* "M=4096, N=4096": for people */
/* key_format as one word of a shell's command line: in double quotes, or in single ones where a
 * shell would expand anything inside double ones. */
must_check char *key_format_shell(const struct key *key);
struct digest key_digest(const struct key *key);
must_check bool key_scope_add(const struct key *key, struct scope *scope, struct error *error);

/* Lists of keys */

#define KEY_TEXT_MAX 10000
#define KEY_LIST_MAX 100000

/* Keys for work, in the order in which they were named, each once; starts as {0}. */
struct key_list {
  size_t n; /* at most KEY_LIST_MAX */
  struct key *keys;
  json_t *seen; /* their digests */
};

void key_list_release(struct key_list *list);
#define cleanup_key_list cleanup_by(key_list_release)

/* Adds the keys of a JSON object or of a text as key_parse_text reads it, where a member may have
 * several values: a range, M=1..4096*2 (1, 2, 4 … 4096) or M=64..1024+64, or a list of values and
 * ranges, M=1,2,4,N=64. What has no "=" belongs to the member before it: a shell leaves commas
 * alone, and "|" not. The keys are all combinations, at most KEY_TEXT_MAX; the last member's
 * values change fastest. */
must_check bool key_list_add(struct key_list *list, const char *text, const char *const *names,
                             size_t n_names, struct error *error);
must_check bool key_list_add_json(struct key_list *list, const json_t *json,
                                  const char *const *names, size_t n_names, struct error *error);

must_check json_t *key_list_to_json(const struct key_list *list); /* an array of objects */

/* Adds the keys of a file ("-": standard input), a text of key_list_add on each line; `#` begins a
 * comment. Errors name the file and the line; a file without keys is one. */
must_check bool key_list_read(struct key_list *list, const char *path, const char *const *names,
                              size_t n_names, struct error *error);

#endif
