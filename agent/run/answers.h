/* What a server's answers to an agent say. A server may be broken, or another program: what is read
 * here is of the right types and inside of its ranges, and all else is refused with a sentence.
 *
 * The JSON may be NULL or no object. What was read is the caller's to release. Threads: pure
 * functions. */
#ifndef WAVETUNE_AGENT_RUN_ANSWERS_H
#define WAVETUNE_AGENT_RUN_ANSWERS_H

#include "common/enrolment/enrolment.h"

/* What times are missing have their defaults; what failed holds nothing. */
must_check bool enrolled_read(const json_t *json, struct enrolled *ret, struct error *error);
must_check bool rotated_read(const json_t *json, struct rotated *ret, struct error *error);
must_check bool beaten_read(const json_t *json, struct beaten *ret, struct error *error);
void enrolled_release(struct enrolled *enrolled);
void rotated_release(struct rotated *rotated);
#define cleanup_enrolled __attribute__((cleanup(enrolled_release)))
#define cleanup_rotated __attribute__((cleanup(rotated_release)))

/* To POST /v1/leases/ID/renew. */
struct renewed {
  int64_t expires_in_ms;
  bool is_limited;              /* the server says which configs are still the lease's */
  struct config_ranges configs; /* where it does; the caller's to release */
};
must_check bool renewed_read(const json_t *json, struct renewed *ret, struct error *error);

#endif
