/* Moving channels: what publish, promote, rollback, sign and proposals share. The server is not
 * trusted: releases are parsed and hashed, and the entry that is signed is composed here, from the
 * release that was checked and the next counter. Where a function cannot go on it ends the program,
 * as cli_refuse does.
 *
 * Memory: results are the caller's. Threads: one. */
#ifndef WAVETUNE_CLI_CHANNEL_H
#define WAVETUNE_CLI_CHANNEL_H

#include "cli/cli.h"
#include "common/cache/release.h"
#include "common/cache/signatures.h"

/* clang-format off */
#define OPTION_SIGN_KEY \
  CLI_LIST("sign-key", "FILE", "a private key that signs the channel's entry; default: the files " \
           "that $WAVETUNE_SIGN_KEYS lists, separated by ':'")
#define OPTION_EXPIRES \
  CLI_TEXT("expires", "TIME", "when deployments stop accepting the entry: 7d, 36h or " \
           "2026-12-24T00:00:00Z; default: never")
#define OPTION_FOLLOW \
  CLI_TEXT("follow", "COUNTER", "the counter that you signed last (0: none); only the next " \
           "counter is signed")
/* The error of a command that only signs. */
#define NO_SIGN_KEY "no key to sign with: give --sign-key FILE, or set WAVETUNE_SIGN_KEYS"
/* clang-format on */

/* The keys that sign, and their files. */
struct signers {
  size_t n;
  struct signing_key all[CHANNEL_SIGNATURES_MAX];
  char *paths[CHANNEL_SIGNATURES_MAX];
  int64_t followed; /* --follow, the counter that was signed last; -1: not given */
};
/* Reads OPTION_SIGN_KEY; no key is no error. The caller releases *ret in any case. */
void signers_of_keys(const struct options *options, struct signers *ret);
/* Reads OPTION_SIGN_KEY and OPTION_FOLLOW. */
void signers_of_option(const struct options *options, struct signers *ret);
void signers_release(struct signers *signers);
#define cleanup_signers cleanup_by(signers_release)

/* Reads OPTION_EXPIRES, in seconds since 1970; 0: not given. */
must_check int64_t expires_of_option(const struct options *options);

/* Reads --trusted-key. */
void trusted_of_option(const struct options *options, struct trusted_keys *ret);

/* Parses bytes of the server, which must be a release with this digest. */
must_check struct release *release_check(const char *bytes, size_t size, const char *digest_text);

/* Downloads a release and checks it; refusals begin with `what`. */
must_check struct release *release_get(struct http_client *client, const char *digest_text,
                                       const char *what);

/* Reads a release from a file. */
must_check struct release *release_of_file(const char *path, const char *what);

/* Gets which tokens fetched a release, the last fetch first (fetches.c). */
must_check json_t *release_fetches(struct http_client *client, const char *digest);

/* The path of a channel's entry for an environment, tag and regime, with `below` ("" or
 * "/entries") after it. */
must_check char *channel_path(const char *channel, const char *below, const json_t *environment,
                              const char *tag, const char *regime);
/* channel_path for the environment, tag and regime of a command's options. */
must_check char *channel_path_of_options(const struct options *options, const char *channel);

/* The present entry of a channel. */
struct channel_present {
  json_t *json; /* as the server sent it, with "etag"; NULL: the channel has no entry */
  struct channel_entry entry;
};
void channel_present_release(struct channel_present *present);
#define cleanup_present cleanup_by(channel_present_release)

/* Gets the entry for the environment and tag of a command's options; refuses when there is none. */
void channel_present_of_options(struct http_client *client, const struct options *options,
                                const char *channel, struct channel_present *ret);

/* Whether at least one of the keys signed the entry in its present form. */
must_check bool entry_is_signed_by(const struct channel_entry *entry,
                                   const struct signing_key *keys, size_t n);

/* Whether an entry's counter is the one after --follow, where that is given; with `or_last`, the
 * counter of --follow is accepted too. */
must_check bool entry_follows(const struct channel_entry *entry, const struct signers *signers,
                              bool or_last, struct error *error);

/* Signs the entry, and prints it and the keys on stderr. */
must_check bool entry_sign(struct channel_entry *entry, const struct signers *signers,
                           struct error *error);

struct channel_change {
  const char *channel;
  const struct release *release; /* checked */
  const struct signers *signers; /* none: the entry is not signed */
  int64_t expires_s;
  const char *if_match, *if_none_match; /* move only from this entity tag, or only if there is no
                                           entry ("*"); NULL: any */
  bool as_json; /* prints the entry of another request that moved the channel first, as JSON */
};
/* Points a channel at a release. Returns the entry with "etag" beside its members: what --if-match
 * takes next. */
must_check json_t *channel_change(struct http_client *client, const struct channel_change *change);

/* Reads the options of a command that moves a channel. */
void channel_change_of_options(const struct options *options, struct signers *signers,
                               struct channel_change *change);
/* Moves a channel and prints its new entry. Returns EXIT_OK. */
must_check int channel_change_and_print(struct http_client *client,
                                        const struct channel_change *change);

/* Renders the choices of a release from files that are verified by their digests, and signs them
 * with every key. A failure is only a warning: the channel's entry is signed anyway, and programs
 * then take no compiled code from the release. */
void choices_sign_all(struct http_client *client, const struct release *release,
                      const struct signers *signers);

#endif
