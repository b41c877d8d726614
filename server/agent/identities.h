/* What a token may enrol, which token an agent belongs to when it does, and the tokens that agents have alone.
 *
 * Memory: results are the caller's where a release function says so. Threads: a db's own. */
#ifndef WAVETUNE_SERVER_AGENT_IDENTITIES_H
#define WAVETUNE_SERVER_AGENT_IDENTITIES_H

#include "common/base/json.h"
#include "server/db/db.h"
#include "server/token/token_store.h"

#define IDENTITY_NAME_SIZE 65

/* What a token of the role enrol admits. `environment` is JSON, NULL: any. */
struct enrolment_terms {
  bool is_live; /* the token is there, neither revoked nor expired */
  int64_t uses_left;
  char *name; /* of the token */
  char *agent_name;
  json_t *environment;
};
void enrolment_terms_release(struct enrolment_terms *terms);
#define cleanup_enrolment_terms __attribute__((cleanup(enrolment_terms_release)))
/* All in the caller's transaction. Locks the token, so that its uses are counted one after the other. */
must_check bool enrolment_terms_lock(struct db *db, int64_t token, struct enrolment_terms *ret, struct error *error);
must_check bool enrolment_use(struct db *db, int64_t token, struct error *error);
/* The agent that the token enrolled with this boot nonce, or NULL; the caller's. */
must_check bool enrolment_known(struct db *db, int64_t token, const char *boot, char **ret_agent, struct error *error);

/* An agent as it is before it enrols; locked. */
struct agent_before {
  bool is_known, is_live;
  char *name, *machine, *last_seen; /* machine: "" where it never said */
  bool has_owner, owner_is_live;
  bool is_of_certificate; /* the owner stands for a client certificate, and nothing else enrols as the agent */
  int64_t owner;
  struct enrolment_terms terms; /* of the owner, where that is of the role enrol: terms.name is set then */
  char owner_name[IDENTITY_NAME_SIZE];
};
void agent_before_release(struct agent_before *before);
#define cleanup_agent_before __attribute__((cleanup(agent_before_release)))
must_check bool agent_before_lock(struct db *db, const char *agent, int64_t live_ms, struct agent_before *ret,
                                  struct error *error);

/* Notes that an enrolment of its id from another machine was refused. */
must_check bool agent_note_refused(struct db *db, const char *agent, const char *machine, const char *name,
                                   struct error *error);

/* Makes a token of this agent alone; in the caller's transaction. `replaces`: the token that it asks with, which goes on
 * until the new one was used; those that were made before and never used end. 0: all that it has end. life_ms 0: it does
 * not expire. */
must_check bool agent_token_make(struct db *db, const char *agent, int64_t replaces, int64_t life_ms,
                                 const struct author *author, char ret_token[TOKEN_TEXT_SIZE], struct error *error);
/* How long until a token should be replaced: a third of its life before it ends. -1: it does not end. */
must_check bool agent_token_rotate_in(struct db *db, int64_t token, int64_t *ret_ms, struct error *error);

#endif
