/* Configs and keys of the autotuners, Triton's and triton-dejavu's.
 *
 * Memory: results are the caller's. Threads: pure functions. */
#ifndef WAVETUNE_COMMON_CACHE_AUTOTUNER_H
#define WAVETUNE_COMMON_CACHE_AUTOTUNER_H

#include "common/builds/function_record.h"
#include "common/kernel/kernel.h"

/* str(triton.Config): "BLOCK: 256, waves_per_eu: 0, num_warps: 4, num_ctas: 1, num_stages: 2,
 * maxnreg: None". The keyword arguments of the kernel come first, in their own order, then the
 * fields that Config has in that version of Triton. As an object it has these members in this
 * order; a value is None, a bool, an int or a float when str() of that is exactly the text, else a
 * string.
 */
#define CONFIG_TEXT_MEMBERS_MAX 256

/* Refuses a part that is not "name: value" and a name that occurs twice. */
must_check bool config_text_parse(const char *text, json_t **ret_config, struct error *error);

/* The text of a flat object, in the object's order. */
must_check char *config_text_format(const json_t *config);

/* The names of a config's members; a new reference. */
must_check json_t *config_names(const json_t *config);

/* Whether Config has a field `name` in this version of Triton ("3.3.1", "3.2.0+git1234"; NULL: the
 * newest), and its default. */
bool config_field(const char *name, const char *triton, struct value *ret_default);

/* Two configs have the same text exactly when they mean the same in this version of Triton:
 * canonical JSON, values as text, without fields at their defaults. */
must_check char *config_text_normal(const json_t *config, const char *triton);

/* The key of an autotuner over the key of a wavetune kernel: the values of the decorator's `key`,
 * then the dtypes of the arguments that have one. */
struct tuning_key {
  size_t n;
  struct tuning_key_part {
    struct expr *expr; /* over the members of the kernel's key; NULL: `member` is used */
    size_t member;     /* the index of a member, whose value may be a float */
    const char *name;  /* in the decorator's `key`; borrowed from the record */
  } *parts;
  size_t n_dtypes;
  char **dtypes;
};

/* `kernel`: the manifest, or NULL. An image that knows the kernel only by its hash or name
 * records neither dtypes nor which member an argument's value is: the manifest has both. */
must_check bool tuning_key_bind(const struct function_record *record, const struct kernel *kernel,
                                const char *const *key_names, size_t n_key_names,
                                struct tuning_key *ret, struct error *error);
void tuning_key_release(struct tuning_key *key);

/* Element `index` (below n + n_dtypes) of the autotuner's key, for these values of the kernel's
 * key. A string is borrowed from `key` or from `values`. */
must_check bool tuning_key_value(const struct tuning_key *key, size_t index,
                                 const struct value *values, struct value *ret,
                                 struct error *error);
/* Appends all elements of the autotuner's key to the array, each as Python's repr writes it. */
must_check bool tuning_key_texts(const struct tuning_key *key, const struct value *values,
                                 json_t *ret, struct error *error);

#endif
