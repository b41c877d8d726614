/* Compiled code for programs, by the folders of Triton's cache: code of the builds of a release,
 * and code that containers wrote, which is not trusted. And what the autotuners of Inductor and
 * Helion found (values.h).
 *
 *   GET, PUT /v1/remote/triton/{folder}/group/{file}   the files of one compiled kernel
 *   GET, PUT /v1/remote/triton/{folder}/{file}         one file (NAME.autotune.json)
 *   GET, PUT /v1/remote/inductor/{key}                 a config; the key is a hash, as below
 *   GET, PUT /v1/remote/helion/{key}                   a .best_config file
 *   GET      /v1/remote/helion?newest=N                an array of the last N
 *
 * A group is one body: a line of JSON, [["add.hsaco", 5800], …], then the bytes of these files in
 * that order.
 *
 * The name of a folder is a hash of the source, the options and the compiler. The server cannot
 * check that code was compiled from that source, neither a build's nor a container's. So a read
 * gets a build's files only when it names the release whose choices state them (release=DIGEST),
 * which GET /v1/choices gave the program: that of its channel, or the one that it pins. A
 * container's code is stored by the token and by the image that the container states, until
 * REMOTE_DAYS after its last use, and served only to containers with the same token and image, and
 * only if the operator opened that namespace (--remote-share TOKEN/IMAGE). Native code for the host
 * (.so) is never accepted.
 *
 * The file REMOTE_LIST is no code: it lists what a program needed at its start
 * (python/wavetune/_runtime/start.py), in a folder named by a hash of its command line. A later one
 * replaces it, and it is not cached. The server does not read it.
 *
 * A config is shared by the same rule: it is checked to be one, but not to be a good one. The
 * container states the hardware, because keys of Inductor do not have the GPU's model.
 *
 * Memory: what a handler makes lives as long as it runs. Threads: database workers; the parser is
 * pure. */
#ifndef WAVETUNE_SERVER_REMOTE_REMOTE_H
#define WAVETUNE_SERVER_REMOTE_REMOTE_H

#include "common/base/json.h"
#include "server/server.h"

#define REMOTE_FILES_MAX 64
#define REMOTE_HEAD_MAX 32768 /* bytes of a group's first line */
#define REMOTE_NAME_MAX 200
#define REMOTE_LIST "start.json"
#define REMOTE_LIST_MAX (256 << 10)
#define REMOTE_IMAGE_MAX 200
#define REMOTE_DAYS 30
#define REMOTE_BODY_MAX                                                                            \
  ((size_t)64 << 20) /* of an answer; a larger group of a build is not served */
/* How much a stored file counts in addition to its size, so that --remote-mib limits small files
 * too. */
#define REMOTE_FILE_COST 4096
#define REMOTE_AT_ONCE 100 /* files that are removed in one statement, of at most 16 MiB each */

/* Whether a container may write a file of this name into Triton's cache. */
must_check bool remote_name_check(const char *name, struct error *error);

/* Whether the bytes are a group: names that may be written, each once, and as many bytes as the
 * first line states. */
must_check bool remote_group_check(const char *bytes, size_t size, struct error *error);

must_check bool remote_shares_check(const struct server_options *options, struct error *error);
/* Whether `share`, TOKEN/IMAGE of --remote-share, names this token and image. */
bool remote_share_is(const char *share, const char *token, const char *image);

/* Removes compiled code that is no longer used. The housekeeper's. */
void remote_housekeep(struct worker *worker);

#endif
