/* The keys of one issuer: fetched by a thread of their own, kept in memory.
 *
 * They are fetched every refresh_s, and when a token names an unknown key, but with pause_s between
 * two attempts, each of which takes KEYS_FETCH_MS at most. While the issuer does not answer the old
 * keys are used, for keep_s. A key that the issuer has withdrawn is refused from the next fetch on,
 * and what was accepted is verified again.
 *
 * A request whose key is being fetched waits without a thread: it is looked up again after the
 * attempt. Memory: the issuer, borrowed, must outlive its keys. Threads: any; issuer_keys_free:
 * one, when no other uses them. */
#ifndef WAVETUNE_SERVER_OIDC_KEYS_H
#define WAVETUNE_SERVER_OIDC_KEYS_H

#include "server/oidc/jwt.h"
#include "server/oidc/rules.h"

#define KEYS_FETCH_MS 5000
#define KEYS_WAITERS_MAX 256 /* of an issuer; further requests are answered 503 at once */

struct auth;
struct issuer_keys;
struct request;

/* `look_up` is called with each waiting request after an attempt; from then on it is not waiting.
 * `forget` is called with `auth` when a key was withdrawn. */
struct issuer_keys_calls {
  void (*look_up)(struct request *request);
  void (*forget)(struct auth *auth);
  struct auth *auth;
};
must_check bool issuer_keys_new(const struct oidc_issuer *issuer,
                                const struct issuer_keys_calls *calls,
                                struct issuer_keys **ret_keys, struct error *error);
/* Ends the thread; what waits is looked up again. */
void issuer_keys_free(struct issuer_keys *keys);

/* Verifies the signature. KEYS_REFUSED: *error is ERROR_UNAUTHENTICATED, or ERROR_UNAVAILABLE when
 * the keys cannot be fetched now. KEYS_WAIT: the request waits, and no longer belongs to the
 * caller. */
enum keys_answer { KEYS_VALID, KEYS_REFUSED, KEYS_WAIT };
enum keys_answer issuer_keys_verify(struct issuer_keys *keys, const struct jwt *jwt,
                                    struct request *request, struct error *error);

#endif
