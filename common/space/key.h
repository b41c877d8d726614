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
 * quoted: dtype='1', flag='true'. Members in the order of `names` whatever the order in the
 * text. */
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

#endif
