/* Channels: entity tags, and what a PUT does to the row it finds.
 *
 * Memory: plain values. Threads: pure functions. */
#ifndef WAVETUNE_SERVER_CORE_CHANNELS_H
#define WAVETUNE_SERVER_CORE_CHANNELS_H

#include "common/cache/channel_entry.h"

/* What a (channel, environment, tag) points at; counter 0: no entry yet. */
struct channel_state {
  int64_t counter;
  struct digest release;
};

/* The entity tag of that state, without quotes: "4-" and the release's 64 hex digits. */
#define CHANNEL_ETAG_SIZE (20 + 1 + 2 * DIGEST_SIZE + 1)
char *channel_etag(const struct channel_state *state, char text[CHANNEL_ETAG_SIZE]);

/* If-Match (a list of strong tags, or *) and If-None-Match (only *), either NULL. Refuses what cannot be understood: a
 * precondition that is ignored would move a channel that somebody else just moved. */
must_check bool channel_precondition_check(const char *if_match, const char *if_none_match, struct error *error);

enum channel_decision {
  CHANNEL_KEEP,   /* it points there already: a repeated request, whatever its precondition (RFC 9110, 13.1.1) */
  CHANNEL_MOVE,   /* from exactly this state */
  CHANNEL_REFUSE, /* the precondition does not hold: 412 */
};
must_check enum channel_decision channel_decide(const struct channel_state *state, const struct digest *wanted,
                                                const char *if_match, const char *if_none_match);

#endif
