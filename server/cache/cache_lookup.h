/* Which environment some stated members mean, among those there are: an environment that equals
 * them, else the only one that they fit. Nothing looser: a cache of another environment is never
 * served in place of the right one.
 *
 * Memory: environments are borrowed. Threads: pure functions. */
#ifndef WAVETUNE_SERVER_CACHE_CACHE_LOOKUP_H
#define WAVETUNE_SERVER_CACHE_CACHE_LOOKUP_H

#include "common/node/environment.h"

/* The members as texts of a query; get gives one by name, or NULL. */
must_check bool environment_from_texts(const char *(*get)(const void *context, const char *name),
                                       const void *context, struct environment *ret,
                                       struct error *error);

enum cache_match { CACHE_MATCH_ONE, CACHE_MATCH_NONE, CACHE_MATCH_SEVERAL };

/* *ret_index is set for CACHE_MATCH_ONE. */
must_check enum cache_match cache_lookup(const struct environment *asked,
                                         const struct environment *const *there, size_t n,
                                         size_t *ret_index);

/* Those that fit, as a JSON array; a new reference. */
must_check json_t *cache_fitting(const struct environment *asked,
                                 const struct environment *const *there, size_t n);

/* For CACHE_MATCH_NONE: {"environment": {…}, "differences": {"gpu": {"asked": …, "there": …}}} of
 * the environment that differs in the fewest members, then in the fewest of the hardware; json null
 * when there is none. A new reference; *ret_sentence (the caller's) is the same for a person: "the
 * nearest is …, which differs in gpu (asked …, there …)". */
must_check json_t *cache_nearest(const struct environment *asked,
                                 const struct environment *const *there, size_t n,
                                 char **ret_sentence);

#endif
