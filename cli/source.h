/* What fetch and export give to renderers: the formats and the image's identity that the options
 * name, and the manifests, builds and blobs that a release names by digest, from the server.
 *
 * Each of those is verified against its digest on arrival and kept in memory, so that it is
 * downloaded once. What the server does not have (404) is left out by the renderer; any other
 * failure ends the source: later calls fail with the same error at once, and http_source_check
 * reports it (a renderer may treat a failure as something that it can leave out).
 *
 * Memory: a source owns what it returns, until http_source_free. Threads: one. */
#ifndef WAVETUNE_CLI_SOURCE_H
#define WAVETUNE_CLI_SOURCE_H

#include "cli/cli.h"
#include "common/cache/format.h"

/* clang-format off */
#define OPTION_IDENTITY \
  {.name = "identity", .type = OPTION_TEXT, .argument = "FILE", \
   .help = "the image's tools, as `python3 -m wavetune identity` describes them; default: " \
            "/etc/wavetune/identity.json"}
/* clang-format on */

/* The formats that --format names, each once; by default json alone. The array is the caller's. */
must_check const struct cache_format **formats_of_option(const struct options *options,
                                                         size_t *ret_n);

/* Reads --identity FILE, else /etc/wavetune/identity.json if it exists; else NULL. */
must_check struct identity *identity_of_option(const struct options *options);

/* [{"name", "key", "reason"}]: the winners that a rendering leaves out. */
must_check json_t *skipped_to_json(const struct cache_files *files);

struct http_source;

/* `client` is borrowed. No request begins after deadline_ms of the monotonic clock (0: no
 * deadline). */
must_check struct http_source *http_source_new(struct http_client *client, int64_t deadline_ms);
void http_source_free(struct http_source *source);
DEFINE_CLEANUP(struct http_source *, cleanup_http_source_free, http_source_free)
#define cleanup_http_source cleanup_by(cleanup_http_source_free)

const struct cache_source *http_source_interface(struct http_source *source);

/* False: the source has failed, with ERROR_TAMPERED or a request's error. */
must_check bool http_source_check(const struct http_source *source, struct error *error);

int64_t http_source_waited_ns(const struct http_source *source); /* for all answers together */

#endif
