/* The id of a lease as an agent sees it: "17.MAC" for an agent with a token of its own, "17" for
 * any other.
 *
 * The MAC is the first 16 bytes of HMAC-SHA256(secret, "17|epoch|agent"), base64url: only whom the
 * lease was granted at that epoch knows it, and a server tells that without its database. Agents of
 * before take decimal ids only, and a token that many agents share tells none of them apart: such
 * ids are plain, and the database knows the token that they were granted to. Memory: plain values.
 * Threads: pure functions. */
#ifndef WAVETUNE_SERVER_LEASE_LEASE_ID_H
#define WAVETUNE_SERVER_LEASE_LEASE_ID_H

#include "common/base/base.h"

#define LEASE_SECRET_SIZE 32
#define LEASE_ID_SIZE 48 /* 19 digits, ".", 22 characters and a NUL fit */

/* `agent`: the one that the token is bound to; "": none. Returns text. */
char *lease_id_format(const uint8_t secret[LEASE_SECRET_SIZE], int64_t lease, int64_t epoch,
                      const char *agent, char text[LEASE_ID_SIZE]);

enum lease_id_answer {
  LEASE_ID_GRANTED,  /* to this agent at this epoch */
  LEASE_ID_PLAIN,    /* a decimal id of an agent without a token of its own: ask the database */
  LEASE_ID_ANOTHERS, /* not granted to this agent at this epoch, as far as can be known */
  LEASE_ID_NONE,     /* no id at all */
};
/* Sets *ret_lease unless the answer is LEASE_ID_NONE. In constant time for ids of one length. */
enum lease_id_answer lease_id_check(const uint8_t secret[LEASE_SECRET_SIZE], const char *text,
                                    int64_t epoch, const char *agent, int64_t *ret_lease);

#endif
