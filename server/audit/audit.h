/* The audit table: which token wrote what.
 *
 * Each write adds its row in its own transaction, so that a failed write leaves no row. Leases,
 * renewals, results, heartbeats, reports of demand and counters, and compiled code of containers
 * add none: their own tables have the agent or the token. Memory: rows borrow their texts. Threads:
 * the db's. */
#ifndef WAVETUNE_SERVER_AUDIT_AUDIT_H
#define WAVETUNE_SERVER_AUDIT_AUDIT_H

#include "common/base/json.h"
#include "server/db/db.h"

#define AUDIT_ACTIONS(ACTION)                                                                      \
  ACTION(PUT_BLOB, "put-blob")                                                                     \
  ACTION(REGISTER, "register")                                                                     \
  ACTION(PUT_BUILD, "put-build")                                                                   \
  ACTION(REMOVE_BUILD, "remove-build")                                                             \
  ACTION(SUBMIT, "submit")                                                                         \
  ACTION(REVALIDATE, "revalidate")                                                                 \
  ACTION(RAISE, "raise")                                                                           \
  ACTION(CANCEL, "cancel")                                                                         \
  ACTION(RETRY, "retry")                                                                           \
  ACTION(ENROL, "enrol")                                                                           \
  ACTION(REPLACE_TOKEN, "replace-token")                                                           \
  ACTION(DRAIN, "drain")                                                                           \
  ACTION(RESUME, "resume")                                                                         \
  ACTION(REMOVE_AGENT, "remove-agent")                                                             \
  ACTION(RELEASE, "release")                                                                       \
  ACTION(OVERRIDE, "override")                                                                     \
  ACTION(END_OVERRIDE, "end-override")                                                             \
  ACTION(MOVE, "move")                                                                             \
  ACTION(SIGN, "sign")                                                                             \
  ACTION(SIGN_CODE, "sign-code")                                                                   \
  ACTION(IMPORT, "import")                                                                         \
  ACTION(PUT_IMAGE, "put-image")                                                                   \
  ACTION(DECLARE, "declare")                                                                       \
  ACTION(WITHDRAW, "withdraw")                                                                     \
  ACTION(REMOVE_CAPTURE, "remove-capture")                                                         \
  ACTION(SET_POLICY, "set-policy")                                                                 \
  ACTION(REMOVE_POLICY, "remove-policy")                                                           \
  ACTION(PROPOSE, "propose")                                                                       \
  ACTION(REPLACE, "replace")                                                                       \
  ACTION(REJECT, "reject")                                                                         \
  ACTION(POISON, "poison")                                                                         \
  ACTION(RELEASE_POISON, "release-poison")                                                         \
  ACTION(SET_SHARE, "set-share")                                                                   \
  ACTION(COLLECT, "collect")                                                                       \
  ACTION(ACCEPT_TOKEN, "accept-token")                                                             \
  ACTION(MAKE_TOKEN, "make-token")                                                                 \
  ACTION(REVOKE_TOKEN, "revoke-token")

enum audit_action {
#define X(id, name) AUDIT_##id,
  AUDIT_ACTIONS(X)
#undef X
      AUDIT_ACTION_COUNT
};

/* One row. `detail` is an object without secrets; NULL: {}. */
struct audit_row {
  const struct author *author;
  enum audit_action action;
  const char *object;
  const json_t *detail;
};
/* In the caller's transaction. */
must_check bool audit_add(struct db *db, const struct audit_row *rows, size_t n,
                          struct error *error);
/* One row; `detail` is taken over. */
must_check bool audit_note(struct db *db, const struct author *author, enum audit_action action,
                           const char *object, json_t *detail, struct error *error);
must_check bool audit_note_digest(struct db *db, const struct author *author,
                                  enum audit_action action, const struct digest *object,
                                  json_t *detail, struct error *error);

/* What DELETE of a row by the id in its path does. */
struct worker;
struct request;
struct removal {
  const char *what, *list;           /* "override"; the path that lists all */
  const struct statement *statement; /* removes :id; returns `detail`, for the audit row */
  enum audit_action action;
};
/* Removes the row, with its audit row, forgets the cached answers of channels, and answers 204, or
 * fails when there is none. */
must_check bool answer_removal(struct worker *worker, struct request *request,
                               const struct removal *removal, struct error *error);

#endif
