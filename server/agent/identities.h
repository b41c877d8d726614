/* Who is who: which token an agent and a lease belong to, what a token may enrol, and the secret of the leases' ids.
 *
 * A token may be bound to one agent; then it acts as that agent alone, and nothing else acts as it. An agent that a token
 * without such a bond enrolled is that token's until the token is revoked or expires.
 * Memory: results are the caller's where a release function says so. Threads: a db's own. */
#ifndef WAVETUNE_SERVER_AGENT_IDENTITIES_H
#define WAVETUNE_SERVER_AGENT_IDENTITIES_H

#include "common/base/json.h"
#include "server/db/db.h"
#include "server/lease/lease_id.h"
#include "server/token/token_store.h"

#define IDENTITY_NAME_SIZE 65

/* The secret of this database: made when there is none, the same for all servers. */
must_check bool identities_secret(struct db *db, uint8_t ret_secret[LEASE_SECRET_SIZE], struct error *error);

/* A token that is bound to no agent asks to act as an agent, or for a lease by its plain id. */
struct claim {
  int64_t token;
  bool is_admin;     /* acts as any agent that has no token of its own */
  const char *agent; /* of identities_check_agents */
  int64_t lease, epoch;
  /* Out: */
  bool is_anothers;
  bool is_unclaimed;              /* the agent is known and no token's yet */
  bool is_stale;                  /* the lease has been granted again since that epoch */
  bool owner_is_agent;            /* is_anothers: the agent has a token of its own */
  char owner[IDENTITY_NAME_SIZE]; /* is_anothers: the name of the token whose it is */
};
/* What is not known is nobody else's. */
must_check bool identities_check_agents(struct db *db, struct claim *claims, size_t n, struct error *error);
must_check bool identities_check_leases(struct db *db, struct claim *claims, size_t n, struct error *error);
/* The agent belongs to the token from now on, if it belongs to none. */
must_check bool identities_claim(struct db *db, const char *agent, int64_t token, struct error *error);

/* The epoch of a lease that is held by the agent ("": by one that the token was granted it for); 0: it is not. */
must_check bool identities_held_epoch(struct db *db, int64_t lease, const char *agent, int64_t token,
                                      int64_t *ret_epoch, struct error *error);

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
