/* str(triton.Config): "BLOCK: 256, waves_per_eu: 0, num_warps: 4, num_ctas: 1, num_stages: 2,
 * maxnreg: None". The keyword arguments of the kernel come first, in their own order, then the
 * fields that Config has in that version of Triton.
 *
 * As an object it has these members in this order; a value is None, a bool, an int or a float when
 * str() of that is exactly the text, else a string.
 *
 * Memory: results are the caller's. Threads: pure functions. */
#ifndef WAVETUNE_COMMON_CACHE_CONFIG_TEXT_H
#define WAVETUNE_COMMON_CACHE_CONFIG_TEXT_H

#include "common/space/value.h"

#define CONFIG_TEXT_MEMBERS_MAX 256

/* Refuses what str(Config) does not print, or prints so that it cannot be read back: a part that is
 * not "name: value", a name twice. */
must_check bool config_text_parse(const char *text, json_t **ret_config, struct error *error);

/* The text of a flat object, in the object's order. */
must_check char *config_text_format(const json_t *config);

/* Whether Config has a field `name` in this version of Triton ("3.3.1", "3.2.0+git1234"; NULL: the
 * newest), and its default. */
bool config_field(const char *name, const char *triton, struct value *ret_default);

/* What two configs have in common exactly when they mean the same there: canonical, values as text,
 * without fields at their defaults. */
must_check char *config_text_normal(const json_t *config, const char *triton);

#endif
