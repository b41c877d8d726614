/* Decisions about channels: whether a move or another signature changes an entry.
 *
 * Memory: a request owns what it points to. Threads: pure functions, but for
 * channel_put, channel_may_be_moved and channel_promote, which belong to a database worker. */
#ifndef WAVETUNE_SERVER_CHANNEL_CHANNELS_H
#define WAVETUNE_SERVER_CHANNEL_CHANNELS_H

#include "common/cache/signatures.h"
#include "server/cache/entries.h"
#include "server/http/request.h"

/* The publishers' public keys (--publisher-key); none: an entry needs no signature. Read-only. */
struct trusted_keys;
const struct trusted_keys *server_publisher_keys(const struct server *server);
/* Drops cached answers after another server moved a channel. The housekeeper's. */
void channels_housekeep(struct worker *worker);

/* If-Match (a list of strong tags, or *) and If-None-Match (only *), either NULL. Refuses what
 * cannot be understood: ignoring a precondition would move a channel that another client just
 * moved. */
must_check bool channel_precondition_check(const char *if_match, const char *if_none_match,
                                           struct error *error);

/* The body of PUT /v1/channels/{name}. */
struct channel_move {
  struct digest release;
  int64_t counter;   /* of the new entry; 0: the next one */
  int64_t expires_s; /* 0: never */
  struct channel_signatures signatures;
};
extern const struct record channel_move_record;
must_check bool channel_move_parse(const json_t *json, struct channel_move *ret,
                                   struct error *error);

enum channel_decision {
  CHANNEL_KEEP,   /* the entry is already as requested: a repeated request, whose precondition does
                     not matter (RFC 9110, 13.1.1) */
  CHANNEL_MOVE,   /* from exactly this state */
  CHANNEL_REFUSE, /* the precondition or the counter does not hold */
};
/* `entry` is the present one; it is not read when the state's counter is 0. The entry is as
 * requested when it has the move's release, expiry and at least its signatures, and its counter if
 * the move states one. */
must_check enum channel_decision channel_decide(const struct channel_state *state,
                                                const struct channel_entry *entry,
                                                const struct channel_move *wanted,
                                                const char *if_match, const char *if_none_match);

/* The headers If-Match and If-None-Match; NULL: not there. */
struct channel_condition {
  const char *if_match, *if_none_match;
};
/* Moves a channel as a request asks, and answers it. */
struct worker;
must_check bool channel_put(struct worker *worker, struct request *request, const char *name,
                            const struct channel_move *move,
                            const struct channel_condition *condition, struct error *error);
/* Whether the request's token may move a channel: a publisher's token lists its channels, an
 * admin's need not. */
must_check bool channel_may_be_moved(struct worker *worker, struct request *request,
                                     const char *channel, struct error *error);
/* Moves a channel, unsigned, from the entry with this entity tag (with quotes; NULL: from none).
 * *ret_moved: whether it had that. */
struct author;
must_check bool channel_promote(struct worker *worker, const char *name,
                                const struct digest *release, const char *etag,
                                const struct author *author, bool *ret_moved, struct error *error);

/* The body of POST /v1/channels/{name}/signatures. */
struct channel_signing {
  struct environment environment;
  char *tag;
  enum regime regime;
  int64_t counter;
  struct channel_signature signature;
};
extern const struct record channel_signing_record;
must_check bool channel_signing_parse(const json_t *json, struct channel_signing *ret,
                                      struct error *error);
void channel_signing_release(struct channel_signing *signing);
#define cleanup_channel_signing __attribute__((cleanup(channel_signing_release)))

enum signing_decision {
  SIGNING_KEEP, /* the entry has this signature */
  SIGNING_ADD,
  SIGNING_STALE, /* the entry has another counter */
  SIGNING_FULL,  /* it has CHANNEL_SIGNATURES_MAX others */
};
must_check enum signing_decision channel_signing_decide(const struct channel_entry *entry,
                                                        const struct channel_signing *signing);

#endif
