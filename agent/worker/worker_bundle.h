/* How a worker gets objects: as bytes in sealed memory, whose file descriptor is sent with the
 * request. A path would not suffice, because a confined process cannot open the agent's files. Once
 * the memory is sealed nothing can change it; after that the digest of each object in it is
 * compared with the digest from when it was compiled. A worker cannot change the objects of another
 * worker.
 *
 * Threads: any. */
#ifndef WAVETUNE_AGENT_WORKER_WORKER_BUNDLE_H
#define WAVETUNE_AGENT_WORKER_WORKER_BUNDLE_H

#include "common/base/json.h"

/* For the supervisor: removes "objects", {"path": "sha256:…"}, from a request, reads them and
 * adds "bundle", {"path": [offset, size]}. False when one cannot be read or has other bytes:
 * then the request must not be sent. *ret_fd, the caller's, is -1 where it names no objects. */
must_check bool bundle_pack(json_t *request, int *ret_fd, struct error *error);

/* For the worker: objects that were copied out of a bundle, as files of this process alone
 * ("/proc/self/fd/9"), until bundle_places_release. */
struct bundle_places {
  size_t n;
  int *fds;
};

/* The path under which the object `path` of the request can be read; owned by the caller. False
 * when the bundle lacks it: the path itself is never read. */
must_check bool bundle_place(struct bundle_places *places, const json_t *bundle, int bundle_fd,
                             const char *path, char **ret_path, struct error *error);
void bundle_places_release(struct bundle_places *places);

/* Sends text, with file descriptors attached to its first byte, without waiting. Returns what
 * send(2) returns. */
must_check ssize_t descriptors_send(int socket, const void *text, size_t size, const int *fds,
                                    size_t n_fds);

/* Like recv(2); received file descriptors are appended to `fds`, which has *n of at most `max`;
 * further ones are closed. */
must_check ssize_t descriptors_receive(int socket, void *text, size_t size, int *fds, size_t max,
                                       size_t *n);

#endif
