/* Overrides: lasting pins and bans of configs, with a reason, which every release obeys.
 *
 * An override names a kernel (by hash, or by name: all of that name), perhaps a key, a partial
 * environment, a tag; what it leaves out is any. A pin states all values of the config to release;
 * a ban the values that a config must have together to be banned.
 *
 * Order. A ban is stronger than a pin, whatever either names: a config that a ban names is not
 * released as a winner, as what is served, or by any pin. Of several pins for one (kernel, key)
 * the most specific one counts: a hash before a name, then a stated key before any, then more
 * members of the environment, then a stated tag, then the newer one. A pin of the request itself
 * is stronger than all of these. A pin whose config is in no space of the key's jobs is skipped
 * with the reason, and the key is planned without it.
 *
 * Memory: overrides own what they point to. Threads: any; pure. */
#ifndef WAVETUNE_SERVER_RELEASE_OVERRIDE_RULES_H
#define WAVETUNE_SERVER_RELEASE_OVERRIDE_RULES_H

#include "common/node/environment.h"
#include "common/record/record.h"

enum override_kind { OVERRIDE_PIN, OVERRIDE_BAN };
extern const char *const override_kind_names[]; /* by value, ended by NULL */

struct override {
  int64_t id;
  enum override_kind kind;
  char *kernel; /* hash or name */
  json_t *key;  /* NULL: any */
  struct environment environment;
  char *tag; /* NULL: any */
  json_t *config;
  char *reason, *until, *made_by;
  bool unknown;   /* of a request: it may name what the server does not know */
  char *key_text; /* canonical; NULL: any */
};
/* The body of POST /v1/overrides. */
extern const struct record override_request_record;
void override_release(struct override *override);
#define cleanup_override __attribute__((cleanup(override_release)))

/* Reads a body and checks it; *ret_until_us is 0, or when it ends, and *ret_last_ms 0, or how long
 * it lasts from now. */
must_check bool override_parse(const json_t *json, struct override *ret, int64_t *ret_until_us,
                               int64_t *ret_last_ms, struct error *error);

/* Those that concern a release, the most specific first. */
struct overrides {
  size_t n;
  struct override *all;
};
void overrides_release(struct overrides *overrides);
#define cleanup_overrides __attribute__((cleanup(overrides_release)))

/* Keeps those that concern the environment and tag, and sorts them. */
void overrides_select(struct overrides *overrides, const struct environment *environment,
                      const char *tag);

/* Whether it names the kernel, by its hash or by its name, which may be NULL. */
must_check bool override_names(const struct override *it, const char *hash, const char *name);

/* The next override of a kind after `last` (NULL: the first) that concerns the kernel and key; of
 * bans only one that names the config. NULL: none. `overrides` may be NULL. */
must_check const struct override *override_next(const struct overrides *overrides,
                                                enum override_kind kind,
                                                const struct override *last,
                                                const struct digest *kernel, const char *name,
                                                const char *key_text, const json_t *config);

/* "override 3 of alice: REASON"; the caller's. */
must_check char *override_text(const struct override *rule);

#endif
