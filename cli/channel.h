/* Moving channels: what publish, promote, rollback and sign share. What the server says is not
 * taken on trust: releases are parsed and hashed, and what is signed is composed here, of the
 * release that was checked and one count more.
 *
 * Memory: results are the caller's. Threads: one. */
#ifndef WAVETUNE_CLI_CHANNEL_H
#define WAVETUNE_CLI_CHANNEL_H

#include "cli/cli.h"
#include "common/cache/channel_entry.h"
#include "common/cache/release.h"

/* clang-format off */
#define OPTION_SIGN_KEY \
  {.name = "sign-key", .type = OPTION_LIST, .argument = "FILE", .flag_only = true, \
   .help = "private key that signs the channel's entry; default: the files in " \
            "$WAVETUNE_SIGN_KEYS, with ':' between"}
#define OPTION_EXPIRES \
  {.name = "expires", .type = OPTION_TEXT, .argument = "TIME", .flag_only = true, \
   .help = "when deployments stop to believe the entry: 7d, 36h or 2026-12-24T00:00:00Z; " \
            "default: never"}
#define OPTION_FOLLOW \
  {.name = "follow", .type = OPTION_TEXT, .argument = "COUNTER", .flag_only = true, \
   .help = "the counter that you signed last, 0 for none: another one than the next is not signed"}
/* clang-format on */

/* The keys that sign, and their files. */
struct signers {
  size_t n;
  struct signing_key all[CHANNEL_SIGNATURES_MAX];
  char *paths[CHANNEL_SIGNATURES_MAX];
  int64_t followed; /* the counter that was signed last, as who signs states it; -1: not stated */
};
/* From OPTION_SIGN_KEY; no key is success. */
must_check bool signers_of_keys(const struct options *options, struct signers *ret,
                                struct error *error);
/* From that and OPTION_FOLLOW. */
must_check bool signers_of_option(const struct options *options, struct signers *ret,
                                  struct error *error);
void signers_release(struct signers *signers);
#define cleanup_signers __attribute__((cleanup(signers_release)))

/* From OPTION_EXPIRES, 0 where not given. */
must_check bool expires_of_option(const struct options *options, int64_t *ret_s,
                                  struct error *error);

/* Demands that bytes are a release with this digest. */
must_check bool release_check(const char *bytes, size_t size, const char *digest_text,
                              struct release **ret_release, struct error *error);

/* Downloads a release and checks it; refusals begin with `what`. Returns an exit code. */
must_check int release_get(struct http_client *client, const char *digest_text, const char *what,
                           struct release **ret_release);

/* What a channel has now. */
struct channel_present {
  bool exists;
  json_t *json; /* as the server sent it, with "etag" */
  char *etag;
  struct channel_entry entry;
};
void channel_present_release(struct channel_present *present);
#define cleanup_present __attribute__((cleanup(channel_present_release)))

/* Of the environment and tag of a command's options; refused where there is none. Returns an exit
 * code. */
must_check int channel_present_of_options(struct http_client *client, const struct options *options,
                                          const char *channel, struct channel_present *ret);

/* Whether one of the signers signed the entry as it is. */
must_check bool entry_is_signed_by_any(const struct channel_entry *entry,
                                       const struct signers *signers);

/* Whether an entry's counter is one more than what was signed last, where that is stated. */
must_check bool entry_follows(const struct channel_entry *entry, const struct signers *signers,
                              struct error *error);
/* The same of an entry that is there: what was signed last is as good. */
must_check bool entry_is_last_or_next(const struct channel_entry *entry,
                                      const struct signers *signers, struct error *error);

/* Signs and says on stderr what is signed and by whom. */
must_check bool entry_sign(struct channel_entry *entry, const struct signers *signers,
                           struct error *error);

struct channel_change {
  const char *channel;
  const struct release *release; /* checked */
  const struct signers *signers; /* none: the entry is not signed */
  int64_t expires_s;
  const char *if_match, *if_none_match; /* where the channel must be; both NULL: anywhere */
  bool as_json; /* on a lost race the present entry is printed as a document */
};
/* Points a channel at a release. *ret_entry is the entry with "etag" beside its members: what
 * --if-match takes next. Returns an exit code. */
must_check int channel_change(struct http_client *client, const struct channel_change *change,
                              json_t **ret_entry);

#endif
