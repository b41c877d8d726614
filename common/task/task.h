/* What a server leases is a task: a holder works at it until it answers, hands it back, or lets its
 * lease expire. This header has what all kinds of tasks share: their names, and the envelope in
 * which one is granted. What an agent states that it can run belongs here, too.
 *
 *   measure  measure configs of a job on a device (common/lease/lease_grant.h); for agents
 *   build    compile captured launches (server/capture/captures.h); for builders
 *
 * Memory: names are static; a grant that was read owns its members (record_release). Threads: pure
 * functions. */
#ifndef WAVETUNE_COMMON_TASK_TASK_H
#define WAVETUNE_COMMON_TASK_TASK_H

#include "common/record/record.h"

#define TASK_KINDS(X) X(MEASURE, "measure") X(BUILD, "build")

#define X(id, name) TASK_##id,
enum task_kind { TASK_KINDS(X) TASK_KIND_COUNT };
#undef X
const char *task_kind_name(enum task_kind kind);
/* The kind of that name; NULL, of older servers: TASK_MEASURE. TASK_KIND_COUNT: not known here. */
must_check enum task_kind task_kind_parse(const char *name);

#define TASK_LEASE_MS_MAX (24 * 3600 * 1000) /* until a lease expires, and between its renewals */
#define TASK_ID_LENGTH_MAX 64

/* The envelope of a granted task. It is read before the rest, so that a task that cannot be
 * executed can be handed back. */
struct task_grant {
  char *lease; /* its id in the API's paths */
  int64_t epoch;
  char *kind; /* task_kind_parse */
  int64_t expires_in_ms, renew_every_ms;
};
extern const struct record task_grant_record;

/* Whether the id fits in a path. */
must_check bool task_id_check(const char *id, struct error *error);

/* The fields of the envelope in the record of a whole grant, `object`, of which it is `member`. */
#define TASK_GRANT_FIELDS(object, member)                                                          \
  RECORD_FIELD_AS("lease", TEXT, object, member.lease, FIELD_REQUIRED | FIELD_ANSWER,              \
                  .check = task_id_check),                                                         \
      RECORD_FIELD_AS("epoch", INTEGER, object, member.epoch, FIELD_REQUIRED | FIELD_ANSWER,       \
                      .least = 0, .most = INT64_MAX),                                              \
      RECORD_FIELD_AS("kind", TEXT, object, member.kind, FIELD_NO_COLUMN | FIELD_ANSWER,           \
                      .about = "of the task: measure"),                                            \
      RECORD_FIELD_AS("expires_in_ms", INTEGER, object, member.expires_in_ms,                      \
                      FIELD_REQUIRED | FIELD_ANSWER, .least = 1, .most = TASK_LEASE_MS_MAX),       \
      RECORD_FIELD_AS("renew_every_ms", INTEGER, object, member.renew_every_ms,                    \
                      FIELD_REQUIRED | FIELD_NO_COLUMN | FIELD_ANSWER, .least = 1,                 \
                      .most = TASK_LEASE_MS_MAX)

#endif
