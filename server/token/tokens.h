/* Requests for new tokens, and the table of tokens, which has only the SHA-256 of each.
 *
 * Memory: a parsed request owns its members; lists are the caller's. Threads: any; functions with a
 * db, its thread. */
#ifndef WAVETUNE_SERVER_TOKEN_TOKENS_H
#define WAVETUNE_SERVER_TOKEN_TOKENS_H

#include "common/record/record.h"
#include "server/db/db.h"

#define TOKEN_TEXT_SIZE 68 /* "wt_", 64 hex digits, NUL */
#define TOKEN_USES_MAX 1000000

/* 1 to 64 of [A-Za-z0-9._-]. */
bool token_name_is_good(const char *name);

/* A token to be made: the body of POST /v1/tokens, which `wavetune-server token make` builds from
 * its options, and members that the server adds. Absent members are as in common/record/record.h.
 */
struct token_request {
  const char *name;
  const char *role;       /* names of the database's enum, separated by commas */
  const char *expires;    /* "7d" or a time */
  int64_t uses;           /* of the role enrol: how many agents it may enrol */
  const char *agent_name; /* of the role enrol: a pattern for their names; NULL: any */
  json_t *environment;    /* of the role enrol: members that each of their devices has; NULL: any */
  const char *certificate; /* the name of the client certificate to use instead; NULL: a token */
  struct texts channels;   /* of a publisher: patterns for their names */
  /* Not in JSON: */
  int64_t expires_in_ms; /* FIELD_NONE: never */
  const char *agent;     /* the only agent that it may act as; NULL: it is not bound */
  int64_t replaces;      /* the token that ends after this one is first used; FIELD_NONE: none */
};
/* Whether tokens with these roles may have, and have, these channels; the error's pointer begins
 * with /channels. */
must_check bool token_channels_check(const struct texts *channels, unsigned roles,
                                     struct error *error);
/* All absent. */
void token_request_init(struct token_request *request);
/* For one that was parsed. */
void token_request_release(struct token_request *request);
#define cleanup_token_request __attribute__((cleanup(token_request_release)))
/* Release `ret` after a failure too. */
must_check bool token_request_parse(const json_t *json, struct token_request *ret,
                                    struct error *error);
extern const struct record token_request_record;

/* Makes a random token and stores its digest; with a certificate, stores the digest of its name and
 * sets ret_token to "". Fails with ERROR_CONFLICT when a live token has the name or the
 * certificate. tokens_make does it in its own transaction, with a row of the audit table;
 * tokens_insert in the caller's, without one. */
must_check bool tokens_make(struct db *db, const struct token_request *request,
                            const struct author *author, char ret_token[TOKEN_TEXT_SIZE],
                            struct error *error);
must_check bool tokens_insert(struct db *db, const struct token_request *request,
                              const struct author *author, char ret_token[TOKEN_TEXT_SIZE],
                              struct error *error);

/* Fails with ERROR_MISSING when no live token has the name, and, unless `may_be_last_admin`, with
 * ERROR_CONFLICT when no other live token has the role admin. */
must_check bool tokens_revoke(struct db *db, const char *name, bool may_be_last_admin,
                              const struct author *author, struct error *error);

/* Whether the publisher's token may move the channel. *ret_patterns: the patterns of the channels
 * that it may move, separated by commas; the caller's. */
must_check bool token_moves_channel(struct db *db, int64_t token, const char *channel,
                                    bool *ret_may, char **ret_patterns, struct error *error);

/* All tokens by id, as an array of the items of GET /v1/tokens; a new reference. */
must_check bool tokens_list(struct db *db, json_t **ret_items, struct error *error);

#endif
