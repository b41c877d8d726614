/* How objects come to a worker: not by path, for a confined process opens no files of the agent's,
 * but as the bytes of all of a request in one sealed piece of memory, whose file descriptor travels
 * with the request. Once it is sealed, and nothing can change it any more, each object in it must
 * have the digest that it had when it was compiled. What one worker does to the objects that it
 * got, another one never sees.
 *
 * Memory: as said below. Threads: any. */
#ifndef WAVETUNE_AGENT_WORKER_WORKER_BUNDLE_H
#define WAVETUNE_AGENT_WORKER_WORKER_BUNDLE_H

#include "common/base/json.h"

/* The supervisor's side: takes "objects", {"path": "sha256:…"}, out of a request, reads them and
 * adds "bundle",
 * {"path": [offset, size]}. False when one cannot be read or has other bytes: none may be loaded
 * then. *ret_fd, the caller's, is -1 where the request names none. */
must_check bool bundle_pack(json_t *request, int *ret_fd, struct error *error);

/* The worker's side. Objects taken out of a bundle are files of this process alone,
 * "/proc/self/fd/9", until bundle_places_release. */
struct bundle_places {
  size_t n, capacity;
  int *fds;
};

/* The path under which the object `path` of the request can be read; owned by the caller. False
 * when it is not in the bundle: nothing is read where it lies. */
must_check bool bundle_place(struct bundle_places *places, const json_t *request, int bundle_fd,
                             const char *path, char **ret_path, struct error *error);
void bundle_places_release(struct bundle_places *places);

/* Sends text, and with its first byte file descriptors, without waiting; returns as send(2). */
must_check ssize_t descriptors_send(int socket, const void *text, size_t size, const int *fds,
                                    size_t n_fds);

/* As recv(2), and takes the file descriptors that come: at most `max` are kept in `fds`, where *n
 * are already. */
must_check ssize_t descriptors_receive(int socket, void *text, size_t size, int *fds, size_t max,
                                       size_t *n);

#endif
