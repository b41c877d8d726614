/* What a server's answers to an agent say. A server may be broken, or another program: what is read here is of the right
 * types and inside of its ranges, and all else is refused with a sentence.
 *
 * Texts are borrowed from the JSON, which may be NULL or no object. Threads: pure functions. */
#ifndef WAVETUNE_AGENT_RUN_ANSWERS_H
#define WAVETUNE_AGENT_RUN_ANSWERS_H

#include "common/space/space.h"

#define HEARTBEAT_MS_DEFAULT 5000

/* To POST /v1/agents. */
struct enrolled {
  const char *agent;    /* its id: 1 to 64 lower-case hexadecimal digits */
  const char *token;    /* its own from now on; NULL: it goes on with the one that it has */
  int64_t rotate_in_ms; /* when that one is to be replaced; -1: never */
  int64_t heartbeat_every_ms;
  int64_t reclaimed; /* leases of an earlier run that were taken back */
};
must_check bool enrolled_read(const json_t *json, struct enrolled *ret, struct error *error);

/* To POST /v1/agents/ID/token. */
struct rotated {
  const char *token;
  int64_t rotate_in_ms; /* as above */
};
must_check bool rotated_read(const json_t *json, struct rotated *ret, struct error *error);

/* To POST /v1/agents/ID/heartbeat. */
struct beaten {
  bool is_draining;
  int64_t heartbeat_every_ms;
};
must_check bool beaten_read(const json_t *json, struct beaten *ret, struct error *error);

/* To POST /v1/leases/ID/renew. */
struct renewed {
  int64_t expires_in_ms;
  bool is_limited;              /* the server says which configs are still the lease's */
  struct config_ranges configs; /* where it does; the caller's to release */
};
must_check bool renewed_read(const json_t *json, struct renewed *ret, struct error *error);

/* Whether a token can be sent and kept in a line: 1 to 256 of A-Z, a-z, 0-9, "_" and "-". NULL is none. */
must_check bool token_is_plain(const char *token);

#endif
