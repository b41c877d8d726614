/* The overrides (server/release/override_rules.h) of autotuned functions, for which containers
 * agree on configs.
 *
 * An override concerns a function when it names the function, by its closure or its name in the
 * program, or a kernel of which a build was packed from the function. The key of an override is one
 * of a kernel's: the build tells which key of the autotuner that is. Where no build does, a ban
 * holds for all keys of the function, because a banned config must not be served, and a pin for
 * none.
 *
 * Memory: rules own what they hold; the overrides of a function borrow from them. Threads: loading
 * belongs to the db's thread; the rest is pure. */
#ifndef WAVETUNE_SERVER_CHOICE_FUNCTION_OVERRIDES_H
#define WAVETUNE_SERVER_CHOICE_FUNCTION_OVERRIDES_H

#include "common/cache/autotuner.h"
#include "server/db/db.h"
#include "server/release/override_rules.h"

/* A kernel that an override names, and the function that a build of it was packed from. */
struct function_kernel {
  struct function_record record;
  char hash[DIGEST_TEXT_SIZE];
  char *name;
  struct kernel *manifest;
  struct tuning_key key; /* of the record; read only where has_key */
  bool has_key;          /* otherwise the build does not tell the autotuner's key */
};
struct function_rules {
  struct overrides overrides; /* of an environment and tag */
  size_t n_kernels;
  struct function_kernel *kernels;
};
must_check bool function_rules_load(struct db *db, const struct environment *environment,
                                    const char *tag, struct function_rules *ret,
                                    struct error *error);
void function_rules_release(struct function_rules *rules);
#define cleanup_function_rules __attribute__((cleanup(function_rules_release)))

/* Those that concern a function, in their order, for override_next with the function's closure as
 * the kernel and an autotuner's key, canonical, as the key. `closure`: its text, which must live as
 * long. */
void function_overrides_init(struct overrides *ret, const struct function_rules *rules,
                             const char *closure, const char *name);
void function_overrides_release(struct overrides *overrides);

#endif
