/* Compiled code for programs, by the folders of Triton's cache: what builds hold is for all; what
 * containers wrote is untrusted.
 *
 *   GET, PUT /v1/remote/triton/{folder}/group/{file}   what Triton keeps of one compiled kernel
 *   GET, PUT /v1/remote/triton/{folder}/{file}         one file (NAME.autotune.json)
 *
 * A group is one body: a line of JSON, [["add.hsaco", 5800], …], then the bytes of these files in
 * that order.
 *
 * The name of a folder is a hash of the source, the options and the compiler, and the server cannot
 * check that what a container writes there is what that source compiles to. So it is kept apart by
 * the token and the image that the container states, for REMOTE_DAYS after it was used last, and
 * served to no other; and to these only where the operator opened that namespace (--remote-share
 * TOKEN/IMAGE). Native code for the host (.so) is never taken.
 *
 * Memory: what a handler makes lives as long as it runs. Threads: database workers; the parser is
 * pure. */
#ifndef WAVETUNE_SERVER_REMOTE_REMOTE_H
#define WAVETUNE_SERVER_REMOTE_REMOTE_H

#include "common/base/json.h"

#define REMOTE_FILES_MAX 64
#define REMOTE_NAME_MAX 200
#define REMOTE_IMAGE_MAX 200
#define REMOTE_DAYS 30

/* Whether a name may be that of a file in Triton's cache which a container may write. */
must_check bool remote_name_check(const char *name, struct error *error);

/* Whether the bytes are a group: names that may be written, each once, and as many bytes as they
 * state. */
must_check bool remote_group_check(const char *bytes, size_t size, struct error *error);

/* Whether "TOKEN/IMAGE", one of the operator's, names this token and image. */
bool remote_share_is(const char *share, const char *token, const char *image);

#endif
