/* What the parts of `wavetune fetch` share: fetch.c sends requests, renders and reports,
 * fetch_verify.c decides what is trusted, fetch_folder.c manages the folder.
 *
 *   TO/<64 hex digits>/      one folder for each release: release.json, entry.json (the channel
 *                            entry that named it) and a folder for each format; parts appear whole,
 *                            by rename
 *   TO/current               a symbolic link to one of them, swapped by rename
 *   TO/.fetch.json           the last request ("question"), its entity tag, and the highest counter
 *                            seen of each channel entry
 *   TO/.lock                 locked by the fetch that runs
 *
 * A container's start is never delayed for longer than the budget and never loses the cache that it
 * had. Folders that were replaced are kept for an hour, for processes that still read them, and the
 * last one for longer.
 *
 * Memory: struct fetch owns what it points to, except what comes from the options.
 * Threads: one. */
#ifndef WAVETUNE_CLI_FETCH_H
#define WAVETUNE_CLI_FETCH_H

#include "cli/source.h"
#include "common/cache/release.h"
#include "common/cache/signatures.h"
#include "common/regime/regime.h"

#define RELEASE_NAME_LENGTH 64
#define RELEASE_NAME_SIZE (RELEASE_NAME_LENGTH + 1)

/* The cache that the folder has when the fetch begins. */
struct kept {
  bool is_there;                /* current is a folder */
  char name[RELEASE_NAME_SIZE]; /* of its release; "": current is not a link that a fetch made */
  bool is_trusted;              /* no signature is required, or a trusted key signed it */
  bool has_entry;
  struct channel_entry entry; /* that named it when it was installed */
  json_t *entry_json;
};

enum fetch_work { WORK_DOWNLOAD, WORK_VERIFY, WORK_READ, WORK_RENDER, WORK_WRITE, WORK_N };

struct fetch {
  /* From the options */
  const char *to, *channel, *tag;
  enum regime regime;
  enum cache_rule match;
  int64_t deadline_ms;
  struct http_client *client;
  struct trusted_keys keys;
  struct identity *identity; /* or NULL */
  size_t n_formats;
  const struct cache_format **formats;
  struct environment requested; /* completed from the node and the image */
  char *question; /* the path with its query; an old entity tag is valid for it alone */
  /* The folder */
  char *absolute; /* the real path of TO */
  int disk;       /* TO, opened before anything new is written: syncfs reports what failed since
                     then; -1: not open yet */
  json_t *state;  /* .fetch.json, an object */
  struct kept kept;
  /* The result */
  json_t **renderings; /* of each format, of the release that current names in the end: the object
                          in FORMAT/.wavetune.json, {"files", "identity", "reason"?, "root",
                          "skipped", "variables", "version"}, or NULL: none there */
  json_t *entry;       /* the channel entry that was verified, as the server sent it */
  bool is_fresh;       /* something was written */
  bool is_unpublished; /* the server has no entry for what was requested */
  int64_t took_ns[WORK_N];
};

/* fetch_verify.c: a failed check is an error of the kind ERROR_TAMPERED, ERROR_REPLAYED,
 * ERROR_EXPIRED or ERROR_UNTRUSTED; what cannot be read is ERROR_INVALID. */

/* Whether an answer's entry may be installed: signed by a trusted key if there are any, for what
 * was requested, not expired, not older than the newest entry seen. */
must_check bool entry_verify(struct fetch *fetch, const json_t *json, struct channel_entry *ret,
                             struct error *error);

/* Whether an entry has not expired. The only check whose result changes with time, so that it is
 * repeated for a kept entry. */
must_check bool entry_is_current(const struct channel_entry *entry, struct error *error);

/* Records the entry's counter in the state. */
void entry_note(struct fetch *fetch, const struct channel_entry *entry);

/* Whether a trusted key signed the entry, or no signature is required. */
must_check bool entry_is_signed(const struct fetch *fetch, const struct channel_entry *entry,
                                struct error *error);

/* Whether the bytes have the digest that the entry names. */
must_check bool bytes_verify(struct fetch *fetch, const struct channel_entry *entry,
                             const char *bytes, size_t size, struct error *error);

/* Reads verified bytes as a release, which must have the entry's environment, tag and regime. Where
 * *ret_release is set it has taken *bytes, which then is NULL, and it is the caller's even when
 * false is returned. */
must_check bool release_verify(struct fetch *fetch, const struct channel_entry *entry, char **bytes,
                               size_t size, struct release **ret_release, struct error *error);

/* fetch_folder.c */

/* Makes the folder, takes its lock, reads what it has and removes what killed fetches left. */
must_check bool folder_open(struct fetch *fetch, int *ret_lock, struct error *error);

void kept_release(struct kept *kept);

/* Whether the release has a folder here. A link or a file in its place was not made by a fetch: it
 * is not read as a release and not written through, but replaced. */
must_check bool folder_has_release(const struct fetch *fetch, const char *name);

/* Reads release.json of a release's folder; false unless its digest is the folder's name.
 * *ret_bytes is the caller's. */
must_check bool folder_release_read(const struct fetch *fetch, const char *name, char **ret_bytes,
                                    size_t *ret_size);

/* Makes the folder in which a release is assembled, for folder_publish to move into place. The path
 * is the caller's. */
must_check bool folder_stage(struct fetch *fetch, const char *name, char **ret_staging,
                             struct error *error);

/* Moves what is in `staging` and the entry into the release's folder, points current at it and
 * writes the state. */
must_check bool folder_publish(struct fetch *fetch, const char *name, const char *staging,
                               struct error *error);

/* Removes what failed and killed fetches left. After the deadline it leaves that to a later
 * fetch. */
void folder_tidy(const struct fetch *fetch);

/* Removes releases that were replaced long ago. */
void folder_prune(const struct fetch *fetch);

#endif
