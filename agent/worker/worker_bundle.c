/* Bundles of objects, and file descriptors over sockets. */
#include "agent/worker/worker_bundle.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>

#include "common/base/digest.h"
#include "common/base/file.h"

#define OBJECT_BYTES_MAX ((size_t)256 << 20)
#define SEALS (F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL)
#define DESCRIPTORS_AT_ONCE 4

/* Whether the sealed memory has the objects that were compiled. This detects a change of a file,
 * and of the memory before it was sealed. */
static bool objects_check(int fd, size_t size, const json_t *bundle, json_t *objects,
                          struct error *error) {
  /* Private: before Linux 6.7 sealed memory cannot be mapped shared. */
  char *bytes = size ? mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;
  bool is_right = true;
  const char *path;
  json_t *expected;
  if (bytes == MAP_FAILED)
    return error_set(error, "cannot check objects for a worker: %s", strerror(errno));

  json_object_foreach (objects, path, expected) {
    const json_t *entry = json_object_get(bundle, path);
    size_t at = (size_t)json_integer_value(json_array_get(entry, 0)),
           n = (size_t)json_integer_value(json_array_get(entry, 1));
    struct digest digest = digest_of(bytes + at, n), compiled;
    is_right =
        digest_parse(json_string_value(expected), &compiled) && digest_equal(&digest, &compiled);
    if (!is_right) {
      error_set(error,
                "%s is not loaded: its bytes are not those that were compiled; it is compiled anew "
                "next time",
                path);
      break;
    }
  }

  if (size)
    munmap(bytes, size);
  return is_right;
}

bool bundle_pack(json_t *request, int *ret_fd, struct error *error) {
  cleanup_json json_t *objects = json_incref(json_object_get(request, "objects")),
                      *bundle = json_object();
  const char *path;
  json_t *digest;

  json_int_t size = 0;
  json_object_del(request, "objects");
  *ret_fd = -1;
  if (!json_object_size(objects))
    return true;

  cleanup_fd int fd = memfd_create("wavetune-objects", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0)
    return error_set(error, "cannot hand objects to a worker: %s", strerror(errno));

  json_object_foreach (objects, path, digest) {
    cleanup_free char *bytes = NULL;
    size_t n;
    if (!file_read(path, OBJECT_BYTES_MAX, &bytes, &n, error))
      return false;
    if (!fd_write_all(fd, bytes, n))
      return error_set(error, "cannot hand objects to a worker: %s", strerror(errno));
    json_put(bundle, path, json_pack("[I, I]", size, (json_int_t)n));
    size += (json_int_t)n;
  }

  if (fcntl(fd, F_ADD_SEALS, SEALS) < 0)
    return error_set(error, "cannot seal objects for a worker: %s", strerror(errno));
  if (!objects_check(fd, (size_t)size, bundle, objects, error))
    return false;

  ALWAYS(json_object_set(request, "bundle", bundle) == 0);
  *ret_fd = fd;
  fd = -1;
  return true;
}

static char *place_path(int fd) { return xasprintf("/proc/self/fd/%d", fd); }

bool bundle_place(struct bundle_places *places, const json_t *bundle, int bundle_fd,
                  const char *path, char **ret_path, struct error *error) {
  const json_t *entry = json_object_get(bundle, path);
  off_t at = json_integer_value(json_array_get(entry, 0)),
        end = at + json_integer_value(json_array_get(entry, 1));
  if (!entry)
    return error_set(error, "the object %s did not come with the request", path);

  int fd = memfd_create("wavetune-object", MFD_CLOEXEC);
  if (fd < 0)
    return error_set(error, "cannot keep the object %s: %s", path, strerror(errno));

  while (at < end && sendfile(fd, bundle_fd, &at, (size_t)(end - at)) > 0)
    continue;
  *APPEND(places->fds, places->n) = fd;
  *ret_path = place_path(fd);
  return true;
}

void bundle_places_release(struct bundle_places *places) {
  array_foreach (fd, places->fds, places->n) {
    cleanup_free char *path = place_path(*fd);
    void *loaded = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    /* The file of an object that cannot be unloaded stays open, so that its name is not used again:
     * the loader would return the old object for a new one of the same name. */
    if (loaded)
      dlclose(loaded);
    else
      close(*fd);
  }

  free(places->fds);
  *places = (struct bundle_places){0};
}

union control {
  struct cmsghdr header;
  char bytes[CMSG_SPACE(DESCRIPTORS_AT_ONCE * sizeof(int))];
};

ssize_t descriptors_send(int socket, const void *text, size_t size, const int *fds, size_t n_fds) {
  struct iovec part = {(void *)(uintptr_t)text, size};
  union control control = {0};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
  ALWAYS(n_fds <= DESCRIPTORS_AT_ONCE);
  if (n_fds) {
    message.msg_control = control.bytes;
    message.msg_controllen = CMSG_SPACE(n_fds * sizeof *fds);
    control.header = (struct cmsghdr){.cmsg_len = CMSG_LEN(n_fds * sizeof *fds),
                                      .cmsg_level = SOL_SOCKET,
                                      .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(&control.header), fds, n_fds * sizeof *fds);
  }

  return sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

ssize_t descriptors_receive(int socket, void *text, size_t size, int *fds, size_t max, size_t *n) {
  struct iovec part = {text, size};
  union control control;
  struct msghdr message = {.msg_iov = &part,
                           .msg_iovlen = 1,
                           .msg_control = control.bytes,
                           .msg_controllen = sizeof control.bytes};
  ssize_t received = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  if (received < 0)
    return received;

  for (struct cmsghdr *header = CMSG_FIRSTHDR(&message); header;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
      continue;
    size_t n_came = (header->cmsg_len - CMSG_LEN(0)) / sizeof *fds;
    for (size_t i = 0; i < n_came; i++) {
      int fd;
      memcpy(&fd, CMSG_DATA(header) + i * sizeof fd, sizeof fd);
      if (*n < max)
        fds[(*n)++] = fd;
      else
        close(fd);
    }
  }

  return received;
}
