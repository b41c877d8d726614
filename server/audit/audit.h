/* The record of what was written, and by whom.
 *
 * Each write that a person or a program asks for adds its row in the transaction that writes, so
 * that a write that fails leaves none. Left out is what has the agent and the token in its own row:
 * leases, renewals, results, heartbeats, and reports of demand. Memory: rows borrow their texts.
 * Threads: the connection's. */
#ifndef WAVETUNE_SERVER_AUDIT_AUDIT_H
#define WAVETUNE_SERVER_AUDIT_AUDIT_H

#include "common/base/json.h"
#include "server/db/author.h"

#define AUDIT_ACTIONS(ACTION)                                                                      \
  ACTION(PUT_BLOB, "put-blob")                                                                     \
  ACTION(REGISTER, "register")                                                                     \
  ACTION(PUT_BUILD, "put-build")                                                                   \
  ACTION(SUBMIT, "submit")                                                                         \
  ACTION(REVALIDATE, "revalidate")                                                                 \
  ACTION(RAISE, "raise")                                                                           \
  ACTION(CANCEL, "cancel")                                                                         \
  ACTION(ENROL, "enrol")                                                                           \
  ACTION(REPLACE_TOKEN, "replace-token")                                                           \
  ACTION(DRAIN, "drain")                                                                           \
  ACTION(RESUME, "resume")                                                                         \
  ACTION(RELEASE, "release")                                                                       \
  ACTION(MOVE, "move")                                                                             \
  ACTION(SIGN, "sign")                                                                             \
  ACTION(SIGN_CODE, "sign-code")                                                                   \
  ACTION(IMPORT, "import")                                                                         \
  ACTION(PUT_IMAGE, "put-image")                                                                   \
  ACTION(DECLARE, "declare")                                                                       \
  ACTION(WITHDRAW, "withdraw")                                                                     \
  ACTION(COLLECT, "collect")                                                                       \
  ACTION(MAKE_TOKEN, "make-token")                                                                 \
  ACTION(REVOKE_TOKEN, "revoke-token")

enum audit_action {
#define X(id, name) AUDIT_##id,
  AUDIT_ACTIONS(X)
#undef X
      AUDIT_ACTION_COUNT
};
const char *audit_action_name(enum audit_action action);
must_check bool audit_action_parse(const char *name, enum audit_action *ret_action);

/* What one row says. `detail` is an object without secrets; NULL: {}. */
struct audit_row {
  const struct author *author;
  enum audit_action action;
  const char *object;
  const json_t *detail;
};
/* All in the caller's transaction. */
must_check bool audit_add(struct db *db, const struct audit_row *rows, size_t n,
                          struct error *error);
/* One row; `detail` is taken over. */
must_check bool audit_note(struct db *db, const struct author *author, enum audit_action action,
                           const char *object, json_t *detail, struct error *error);
must_check bool audit_note_digest(struct db *db, const struct author *author,
                                  enum audit_action action, const struct digest *object,
                                  json_t *detail, struct error *error);

struct audit_filter {
  const char *token, *action, *object; /* NULL: any */
  int64_t since_us;                    /* since 1970; 0: from the first on */
  int64_t last_ms;                     /* or so long ago; 0: any */
  int64_t before;                      /* ids below; INT64_MAX: from the newest */
  int64_t limit;
};
/* Newest first; *ret_next 0: there are no more. */
must_check bool audit_list(struct db *db, const struct audit_filter *filter, json_t **ret_items,
                           int64_t *ret_next, struct error *error);

#endif
