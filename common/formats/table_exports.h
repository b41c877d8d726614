/* How a kernel's "exports" map its key and its configs to the rows of another program's tables
 * (tables.h). "exports" has for each member of a kind, under the kind's name, what it is for a key:
 *   a number      the name of a member of the key, an expression over it, or a positive integer
 *   a text        the name of a member of the key, whose value is a text or None, else the text
 *   a block shape the name of a member, whose value is the text "[128,128]" or None, else two
 *                 integers
 *   a flag        the name of a member, an expression, or a boolean (absent: false)
 *   a bound       as a number M, for the row "M_LEQ_M"; or a member whose value is the row's name
 * and "config": for members of the table the name of the config's, or a constant integer; members
 * of configs that are not named keep their names. "prefer" is an expression over the key: of two
 * winners for one row, the one for which it holds is written. "switches" are the environment
 * variables under which the program reads the table, with their value or null (not set, or 0).
 *
 * Memory: a mapping borrows the kernel; rows, keys and configs are the caller's. Threads: pure. */
#ifndef WAVETUNE_COMMON_FORMATS_TABLE_EXPORTS_H
#define WAVETUNE_COMMON_FORMATS_TABLE_EXPORTS_H

#include "common/formats/tables.h"
#include "common/kernel/kernel.h"

struct table_mapping {
  const struct table_kind *kind;
  const struct kernel *kernel;
  struct table_source {
    const char *member; /* of the key; else */
    struct expr *expr;  /* over the key; else */
    json_t *constant;
  } sources[TABLE_MEMBERS_MAX];
  json_t *config, *switches; /* objects, borrowed from the kernel, or NULL */
  struct expr *prefer;       /* over the key, or NULL */
};

/* Whether the kernel states how it maps to tables of this kind. */
bool table_is_exported(const struct table_kind *kind, const struct kernel *kernel);

/* The error says which member of the kernel's exports is wrong. *ret is zeroed before, and is
 * released by the caller in any case. */
must_check bool table_mapping_read(const struct table_kind *kind, const struct kernel *kernel,
                                   struct table_mapping *ret, struct error *error);
void table_mapping_release(struct table_mapping *mapping);
#define cleanup_table_mapping cleanup_by(table_mapping_release)

/* The row for the values of a key; a new reference. */
must_check bool table_row_of_key(const struct table_mapping *mapping, const struct value *values,
                                 json_t **ret, struct error *error);
/* The key of the kernel for a row; a new reference. The table must agree with what the exports
 * state; expressions cannot be inverted. */
must_check bool table_key_of_row(const struct table_mapping *mapping, const json_t *row,
                                 json_t **ret, struct error *error);

/* A config under the names of the table, or back under its own; a new reference. */
must_check bool table_config_map(const struct table_mapping *mapping, const json_t *config,
                                 bool to_table, json_t **ret, struct error *error);

bool table_is_positive(const json_t *json);
/* "[128,128]" or "[128, 128]"; false for anything else, and for NULL. */
bool table_block_shape(const char *text, long long ret[2]);

#endif
