/* How a worker gets objects: not by path, because a confined process opens no files of the agent's,
 * but as bytes in one piece of sealed memory, whose file descriptor is sent with the request. After
 * it is sealed, when nothing can change it any more, each object in it must have the digest that it
 * had when it was compiled. A worker cannot change what another worker gets.
 *
 * Memory: see each. Threads: any. */
#ifndef WAVETUNE_AGENT_WORKER_WORKER_BUNDLE_H
#define WAVETUNE_AGENT_WORKER_WORKER_BUNDLE_H

#include "common/base/json.h"

/* The supervisor's side: removes "objects", {"path": "sha256:…"}, from a request, reads them and
 * adds "bundle", {"path": [offset, size]}. False when one cannot be read or has other bytes: then
 * none may be loaded. *ret_fd, the caller's, is -1 where the request names none. */
must_check bool bundle_pack(json_t *request, int *ret_fd, struct error *error);

/* The worker's side: objects that were taken out of a bundle, as files of this process alone
 * ("/proc/self/fd/9"), until bundle_places_release. */
struct bundle_places {
  size_t n, capacity;
  int *fds;
};

/* The path under which the object `path` of the request can be read; owned by the caller. False
 * when it is not in the bundle: the path itself is never read. */
must_check bool bundle_place(struct bundle_places *places, const json_t *bundle, int bundle_fd,
                             const char *path, char **ret_path, struct error *error);
void bundle_places_release(struct bundle_places *places);

/* Sends text, and with its first byte file descriptors, without waiting; returns as send(2). */
must_check ssize_t descriptors_send(int socket, const void *text, size_t size, const int *fds,
                                    size_t n_fds);

/* As recv(2), and receives file descriptors: at most `max` are kept in `fds`, which has *n
 * already. */
must_check ssize_t descriptors_receive(int socket, void *text, size_t size, int *fds, size_t max,
                                       size_t *n);

#endif
