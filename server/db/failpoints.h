/* Places around statements and commits at which a test makes the server fail: tests/faults. Only in
 * debug builds (WAVETUNE_FAILPOINTS); in others failpoint_choose is an empty function.
 *
 * $WAVETUNE_FAILPOINTS names a file. It is read again whenever it changed, so that a test controls
 * a running server; while it is missing or empty nothing happens. Its first line is `seed N`, which
 * starts the random numbers; each further line is a rule, of which the first that matches applies:
 *
 *   PLACE STATEMENT ACTION PER_MILLION [MS]      before_statement leases_grant sleep 20000 500
 *
 * STATEMENT is a statement's name or *, PER_MILLION the chance. A file that cannot be parsed ends
 * the process.
 *
 * Memory: the rules are kept until the process ends. Threads: any. */
#ifndef WAVETUNE_SERVER_DB_FAILPOINTS_H
#define WAVETUNE_SERVER_DB_FAILPOINTS_H

#include "common/base/base.h"

/* After a statement outside of a transaction, and after a commit, its effects are stored. */
#define FAILPOINT_PLACES(X)                                                                        \
  X(BEFORE_STATEMENT, "before_statement")                                                          \
  X(AFTER_STATEMENT, "after_statement")                                                            \
  X(BEFORE_COMMIT, "before_commit") X(AFTER_COMMIT, "after_commit")
#define X(id, name) FAILPOINT_##id,
enum failpoint_place { FAILPOINT_PLACES(X) FAILPOINT_PLACE_COUNT };
#undef X

#define FAILPOINT_ACTIONS(X)                                                                       \
  X(SLEEP, "sleep") /* for MS */                                                                   \
  X(DROP, "drop")   /* the connection to the database is lost */                                   \
  X(ABORT, "abort") /* the process aborts */
#define X(id, name) FAILPOINT_##id,
enum failpoint_action { FAILPOINT_ACTIONS(X) FAILPOINT_NONE };
#undef X

struct failpoint {
  enum failpoint_action action;
  int64_t ms;
};

#ifdef WAVETUNE_FAILPOINTS
/* Whether to fail here, and how; logs it. The caller acts. */
struct failpoint failpoint_choose(enum failpoint_place place, const char *statement);
/* Sleeps or aborts; does nothing for another action. */
void failpoint_act(const struct failpoint *failpoint);
#else
static inline struct failpoint failpoint_choose(enum failpoint_place place, const char *statement) {
  (void)place;
  (void)statement;
  return (struct failpoint){FAILPOINT_NONE, 0};
}
static inline void failpoint_act(const struct failpoint *failpoint) { (void)failpoint; }
#endif

#endif
