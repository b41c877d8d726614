/* What a release makes of agreement (common/verdict/agreement.h) and of bans: which winners a
 * request's class leaves out, which config takes a winner's place, and which were found to disagree
 * later.
 *
 * Memory: arguments are borrowed. Threads: pure functions, any thread. */
#ifndef WAVETUNE_SERVER_RELEASE_RELEASE_AGREEMENT_H
#define WAVETUNE_SERVER_RELEASE_RELEASE_AGREEMENT_H

#include "server/release/release_make.h"

/* All candidates of one (kernel, key). */
struct release_group {
  const struct release_candidate *all;
  size_t n;
};

/* The job that finished after that time and found the config to disagree, or NULL. */
must_check const struct release_candidate *
release_contradiction(const struct release_group *group, int64_t after_us, const json_t *config);

/* Whether a config has the class that the request requires. One that disagrees never has. */
must_check bool release_facts_satisfy(const struct release_request *request,
                                      const struct agreement_facts *facts);

/* The ban that names the config for the candidate's kernel and key, or NULL. */
must_check const struct override *release_ban_of(const struct release_request *request,
                                                 const struct release_candidate *candidate,
                                                 const json_t *config);

/* Puts the best config of the equivalence set that has the required class and is not banned in the
 * place of a winner that lacks it or is banned, if there is one. */
void release_candidate_substitute(const struct release_request *request,
                                  struct release_candidate *candidate);

/* Sets the time: milliseconds with 9 significant digits, as in verdicts (a quotient would have 17);
 * none for 0. */
void release_candidate_set_time(struct release_candidate *candidate, double time_us);

#endif
