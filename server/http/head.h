/* Whether the head of a request is what libmicrohttpd shows of it.
 *
 * libmicrohttpd 0.9 shows a field with a blank before its colon under another name, joins a folded
 * line to the name of its field, and ends texts at a NUL. A proxy may read such a head in another
 * way, and see another request in the bytes that follow (RFC 9112, 5.1, 5.2, 11.2). So each byte of
 * the head must belong to the request line or to a field. Threads: the connection's event
 * thread. */
#ifndef WAVETUNE_SERVER_HTTP_HEAD_H
#define WAVETUNE_SERVER_HTTP_HEAD_H

#include <microhttpd.h>

#include "common/base/base.h"

/* `target` is the request target where libmicrohttpd stores it, of `target_size` bytes when it was
 * read; method and version are those of the access handler's first call. */
struct head {
  const char *method, *target, *version;
  size_t target_size;
};
/* NULL, or a sentence that says what is wrong with it; static. */
const char *head_fault(struct MHD_Connection *mhd, const struct head *head);

/* Whether it is a token of RFC 9110, 5.6.2. */
must_check bool field_name_is_valid(const char *name);

#endif
