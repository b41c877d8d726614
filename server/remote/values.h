/* What the autotuners of Inductor and Helion found: small JSON documents, which their readers make
 * configs of. A document is refused unless each member is one that these programs write, because
 * they pass members that they do not know on to the compiler.
 *
 * Threads: any; the parsers are pure. */
#ifndef WAVETUNE_SERVER_REMOTE_VALUES_H
#define WAVETUNE_SERVER_REMOTE_VALUES_H

#include "common/base/json.h"

#define REMOTE_MEMBERS_MAX 64
#define REMOTE_MEMBER_NAME_MAX 64
#define REMOTE_TEXT_MAX 128 /* bytes of a string in a config */
#define REMOTE_NEWEST_MAX 100

/* {"XBLOCK": 256, "num_warps": 4, "num_stages": 1, "configs_hash": "64 hex digits",
 *  "found_by_coordesc": false, "time_taken_ms": 12, "triton_cache_hash": "…"}: members of a config,
 * then what Inductor writes with each. */
must_check bool remote_inductor_check(const json_t *json, struct error *error);

/* The content of a .best_config file: {"config": "JSON of an object", "key": {"type", "fields"},
 * "flat_config", "backend_cache_key"}. */
must_check bool remote_helion_check(const json_t *json, struct error *error);

/* Whether the text is a SHA-256 in 64 lower-case hex digits, as both name their values. */
bool remote_key_is_valid(const char *text);

#endif
