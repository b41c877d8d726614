/* The table of tokens. Of a token only its SHA-256 is stored.
 *
 * Memory: plain values; lists are the caller's. Threads: the connection's. */
#ifndef WAVETUNE_SERVER_TOKEN_TOKEN_STORE_H
#define WAVETUNE_SERVER_TOKEN_TOKEN_STORE_H

#include "common/base/json.h"
#include "server/audit/audit.h"

#define TOKEN_TEXT_SIZE 68 /* "wt_", 64 hex digits, NUL */

/* SQL: whether the token of an alias is neither revoked nor past its time. */
#define SQL_TOKEN_IS_LIVE(t) "(" t ".revoked_at IS NULL AND (" t ".expires_at IS NULL OR " t ".expires_at > now()))"

struct token_terms {
  const char *name;
  const char *role;        /* names of the database's enum, with commas between */
  int64_t expires_in_ms;   /* 0: never */
  int64_t uses;            /* agents that one of the role enrol may enrol; 0: of another role */
  const char *agent_name;  /* a pattern for their names; NULL: any */
  char *environment;       /* JSON of what each of their devices has; NULL: any; owned by who made the terms */
  const char *agent;       /* whose it is alone; NULL: of nobody in particular */
  const json_t *channels;  /* of a publisher: an array of patterns for their names; else NULL; borrowed */
  const char *certificate; /* the name of the client certificate that stands for it; NULL: a token is made */
  const struct digest *certificate_digest; /* of that name: what is stored in the place of a token's; NULL: none */
  int64_t replaces;                        /* the token that ends soon after this one was first used; 0: none */
};

/* Makes a random token and stores its digest: *ret_is_new is false when a live token has the name. With
 * terms->certificate no token is made (ret_token is ""), and *ret_is_new is false too when another live one has it. The first in a
 * transaction of its own, the second in the caller's, who notes it. */
must_check bool tokens_make(struct db *db, const struct token_terms *terms, const struct author *author,
                            char ret_token[TOKEN_TEXT_SIZE], bool *ret_is_new, struct error *error);
must_check bool tokens_insert(struct db *db, const struct token_terms *terms, const struct author *author,
                              char ret_token[TOKEN_TEXT_SIZE], bool *ret_is_new, struct error *error);

enum token_revocation {
  TOKEN_REVOKED,
  TOKEN_UNKNOWN,    /* no live token has the name */
  TOKEN_LAST_ADMIN, /* nothing was done: no other live token has the role admin */
};
must_check bool tokens_revoke(struct db *db, const char *name, bool may_be_last_admin, const struct author *author,
                              enum token_revocation *ret, struct error *error);

/* Whether the publisher's token may move the channel. *ret_patterns: those that it may, with commas between; the
 * caller's. */
must_check bool token_moves_channel(struct db *db, int64_t token, const char *channel, bool *ret_may,
                                    char **ret_patterns, struct error *error);

/* Items of GET /v1/tokens from id `after` on, by id; *ret_next is null or the last item's id as a string. */
must_check bool tokens_list(struct db *db, int64_t after, int64_t limit, json_t **ret_items, json_t **ret_next,
                            struct error *error);

/* 1 to 64 of [A-Za-z0-9._-]. */
bool token_name_is_good(const char *name);

#endif
