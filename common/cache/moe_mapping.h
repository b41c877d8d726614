/* How a kernel's key and configs are those of mixture-of-experts tables: its "exports", read. Private to these formats.
 *
 * Memory: a mapping owns its expressions and borrows the rest from the kernel. Threads: pure functions. */
#ifndef WAVETUNE_COMMON_CACHE_MOE_MAPPING_H
#define WAVETUNE_COMMON_CACHE_MOE_MAPPING_H

#include "common/cache/moe_table.h"

enum moe_source_kind { MOE_ABSENT, MOE_MEMBER, MOE_EXPRESSION, MOE_NUMBER, MOE_TEXT, MOE_PAIR };

/* Where a number, a text or a flag of a table comes from. */
struct moe_source {
  enum moe_source_kind kind;
  size_t member;      /* of the key */
  struct expr *expr;  /* over the key */
  int64_t numbers[2]; /* one of MOE_NUMBER (flags: 0 or 1), two of MOE_PAIR */
  const char *text;
};

struct moe_mapping {
  const struct kernel *kernel;
  struct moe_source e, n, m, dtype, block_shape, per_channel_quant, down;
  const json_t *config; /* object, or NULL */
};
void moe_mapping_release(struct moe_mapping *mapping);
#define cleanup_moe_mapping __attribute__((cleanup(moe_mapping_release)))

/* The sentence says which member of the kernel's exports is wrong. */
must_check bool moe_mapping_read(const struct moe_dialect *dialect, const struct kernel *kernel,
                                 struct moe_mapping *ret, struct error *error);

/* Which table (without its device) and which M the values of a key are of. */
must_check bool moe_mapping_name(const struct moe_mapping *mapping, const struct value *values, struct moe_name *ret,
                                 int64_t *ret_m, struct error *error);

/* A config as it stands in the table, in the usual order; a new reference. */
must_check bool moe_mapping_config(const struct moe_mapping *mapping, const json_t *config, json_t **ret,
                                   struct error *error);

/* The way back: the key and the config that a table's entry is for the kernel; new references. What the exports say outright
 * must be what the table says; expressions have no way back. */
must_check bool moe_mapping_key_back(const struct moe_mapping *mapping, const struct moe_name *name, int64_t m,
                                     json_t **ret, struct error *error);
must_check bool moe_mapping_config_back(const struct moe_mapping *mapping, const json_t *config, json_t **ret,
                                        struct error *error);

#endif
