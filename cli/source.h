/* What a release names by digest, brought from the server for renderers: manifests, builds and
 * blobs.
 *
 * Each is verified against its digest as it arrives and kept in memory, so that a renderer may ask
 * again for free. What the server does not have (404) is the renderer's to skip; any other failure
 * ends the source: later calls fail with the same error at once, and http_source_is_whole tells it
 * (a renderer may take a failure for something that it can do without).
 *
 * Memory: what it gives out is its own, until http_source_free. Threads: one. */
#ifndef WAVETUNE_CLI_SOURCE_H
#define WAVETUNE_CLI_SOURCE_H

#include "cli/cli.h"
#include "common/cache/format.h"

struct http_source;

/* `client` is borrowed; nothing is asked for after deadline_ms of the monotonic clock, 0: no
 * deadline. */
must_check struct http_source *http_source_new(struct http_client *client, int64_t deadline_ms);
void http_source_free(struct http_source *source);
DEFINE_CLEANUP(struct http_source *, cleanup_http_source_free, http_source_free)
#define cleanup_http_source __attribute__((cleanup(cleanup_http_source_free)))

const struct cache_source *http_source_interface(struct http_source *source);

/* False: it failed, with an error of the kind ERROR_TAMPERED or of those of http_send. */
must_check bool http_source_is_whole(const struct http_source *source, struct error *error);

int64_t http_source_waited_ns(const struct http_source *source); /* for answers, in all */

#endif
