/* The key of an autotuner (Triton's, triton-dejavu's) over the key of a wavetune kernel: the values
 * of the decorator's `key`, then the dtypes of the arguments that have one.
 *
 * Memory: a tuning key owns everything. Threads: read-only after tuning_key_bind. */
#ifndef WAVETUNE_COMMON_CACHE_TUNING_KEY_H
#define WAVETUNE_COMMON_CACHE_TUNING_KEY_H

#include "common/builds/function_record.h"
#include "common/kernel/kernel.h"

/* Where a value comes from: a member of the kernel's key, or an expression over the members. */
struct tuning_key_part {
  struct expr *expr; /* NULL: the member, which may be a float */
  size_t member;
};

struct tuning_key {
  size_t n;
  struct tuning_key_part *parts;
  size_t n_dtypes;
  char **dtypes;
};

/* `kernel`: the manifest, or NULL. An image that knows the kernel by its hash or name only records
 * neither dtypes nor which member an argument's value is: the manifest has both. */
must_check bool tuning_key_bind(const struct function_record *record, const struct kernel *kernel,
                                const char *const *key_names, size_t n_key_names,
                                struct tuning_key *ret, struct error *error);
void tuning_key_release(struct tuning_key *key);

#endif
