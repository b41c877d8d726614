/* The tokens in memory: SHA-256 of a token to who it is, and which digests are known to be
 * nobody's.
 *
 * The database is the truth; the housekeeper replaces the whole table when it changed, a worker
 * adds one that another server made. Every change is a new generation, which is all that a
 * keep-alive connection has to compare. Memory: owns its entries. Threads: any. */
#ifndef WAVETUNE_SERVER_HTTP_AUTH_H
#define WAVETUNE_SERVER_HTTP_AUTH_H

#include "common/base/digest.h"
#include "server/http/route.h"

#define TOKEN_NAME_SIZE 65
#define TOKEN_AGENT_SIZE 33

struct auth_token {
  struct digest digest;
  int64_t id;       /* in the database */
  int64_t replaces; /* id of the token that ends once this one was used; 0: none */
  unsigned roles;
  int64_t expires_ms; /* since 1970; 0: never */
  bool is_expired; /* by the database's clock, when it was read; none such is put into the table */
  char name[TOKEN_NAME_SIZE];
  char agent[TOKEN_AGENT_SIZE]; /* the agent that it acts as, and no other; "": it is bound to
                                   none */
};

/* By this machine's clock: also while the database, which says so too, is away. */
bool auth_has_expired(int64_t expires_ms);

struct auth;
must_check struct auth *auth_new(void);
void auth_free(struct auth *auth);

enum auth_answer {
  AUTH_KNOWN,
  AUTH_NOBODY,  /* looked up a moment ago and not found */
  AUTH_EXPIRED, /* looked up a moment ago and found past its time */
  AUTH_ASK,     /* the database must be asked */
  AUTH_BUSY,    /* it would have to be, but too many unknown tokens came just now */
};
enum auth_answer auth_find(struct auth *auth, const struct digest *digest,
                           struct auth_token *ret_token);

void auth_add_nobody(struct auth *auth, const struct digest *digest, bool is_expired);

/* Puts what the database answered into the table: more tokens, or all there are. `since`:
 * auth_answers before it was asked. False, and nothing done: another answer came since then, so
 * this may be the older one; ask again. */
must_check bool auth_add(struct auth *auth, const struct auth_token *tokens, size_t n,
                         uint64_t since);
must_check bool auth_replace(struct auth *auth, const struct auth_token *tokens, size_t n,
                             uint64_t since);
/* Grows with every answer that is put in; also with one that all is as before, which is no new
 * generation. */
uint64_t auth_answers(struct auth *auth);
uint64_t auth_generation(struct auth *auth);
/* Whether the token is neither revoked nor past its time. Looks at all of them. */
bool auth_is_live(struct auth *auth, int64_t id);

/* A token that replaces another was used; what the housekeeper takes, to let the other one end. A
 * token may be noted again. */
#define AUTH_USED_MAX 1024
void auth_note_use(struct auth *auth, int64_t id);
size_t auth_take_used(struct auth *auth, int64_t ret_ids[AUTH_USED_MAX]);

#endif
