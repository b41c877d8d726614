/* An agent as it enrols: the body of POST /v1/agents, read and checked; what its token admits; and
 * what is stored of it.
 *
 * Memory: an enrolment and what is read of the database own what they point to. Threads: reading
 * any; functions that take a db, its own, in the caller's transaction. */
#ifndef WAVETUNE_SERVER_AGENT_ENROLMENT_H
#define WAVETUNE_SERVER_AGENT_ENROLMENT_H

#include "common/enrolment/enrolment.h"
#include "server/token/tokens.h"

must_check bool enrolment_parse(const json_t *json, struct enrolment *ret, struct error *error);
void enrolment_release(struct enrolment *enrolment);
#define cleanup_enrolment __attribute__((cleanup(enrolment_release)))
static inline const struct enrolment_device *enrolment_device(const struct enrolment *enrolment,
                                                              size_t i) {
  return (const struct enrolment_device *)enrolment->devices.all + i;
}

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
/* Locks the token. */
must_check bool enrolment_terms_lock(struct db *db, int64_t token, struct enrolment_terms *ret,
                                     struct error *error);
must_check bool enrolment_use(struct db *db, int64_t token, struct error *error);
/* The agent that the token enrolled with this boot nonce, or NULL; the caller's. */
must_check bool enrolment_known(struct db *db, int64_t token, const char *boot, char **ret_agent,
                                struct error *error);

/* An agent as it is before it enrols; locked. All 0 where it is not known. */
struct agent_before {
  bool is_known, is_live;
  char *name, *machine, *last_seen; /* machine: NULL where it never said */
  int64_t owner;                    /* the token that it belongs to; 0: none */
  bool owner_is_enrol;    /* it has a token of its own, which it enrolled for with the owner */
  bool is_of_certificate; /* the owner represents a client certificate: no other token enrols as the
                             agent */
  struct enrolment_terms terms; /* of the owner; without terms where that is not of the role
                                   enrol */
};
void agent_before_release(struct agent_before *before);
#define cleanup_agent_before __attribute__((cleanup(agent_before_release)))
must_check bool agent_before_lock(struct db *db, const char *agent, int64_t live_ms,
                                  struct agent_before *ret, struct error *error);

/* Stores the agent with exactly these devices. token 0: it belongs to the token that it did before,
 * or to none. *ret_boot_before is what it was enrolled with before, "" for a new one; the
 * caller's. */
must_check bool agent_enrol(struct db *db, const char *agent, const struct enrolment *enrolment,
                            int64_t token, char **ret_boot_before, struct error *error);

/* Notes that an enrolment of its id from another machine was refused. */
must_check bool agent_note_refused(struct db *db, const char *agent, const char *machine,
                                   const char *name, struct error *error);

/* Makes a token of this agent alone. `replaces`: the token that it asks with, which goes on until
 * the new one was used; those that were made before and never used end. 0: all that it has end.
 * life_ms 0: it does not expire. */
must_check bool agent_token_make(struct db *db, const char *agent, int64_t replaces,
                                 int64_t life_ms, const struct author *author,
                                 char ret_token[TOKEN_TEXT_SIZE], struct error *error);
/* How long until a token should be replaced: a third of its life before it ends. -1: it does not
 * end. */
must_check bool agent_token_rotate_in(struct db *db, int64_t token, int64_t *ret_ms,
                                      struct error *error);

#endif
