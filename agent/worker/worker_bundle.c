/* Bundles of objects in sealed memory, and file descriptors over sockets. Memory and threads: see the header. */
#include "agent/worker/worker_bundle.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>

#include "common/base/file.h"

#define OBJECT_BYTES_MAX ((size_t)256 << 20)
#define SEALS (F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL)
#define DESCRIPTORS_AT_ONCE 4

struct packing {
  json_t *bundle; /* what was packed */
  int fd;
  size_t used;
};

static bool object_pack(struct packing *packing, const json_t *named, struct error *error) {
  const char *path = json_string_value(named);
  cleanup_free char *bytes = NULL;
  struct error ignored;
  size_t size;
  if (!path || json_object_get(packing->bundle, path) || !file_read(path, OBJECT_BYTES_MAX, &bytes, &size, &ignored))
    return true;
  if (packing->fd < 0)
    packing->fd = memfd_create("wavetune-objects", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (packing->fd < 0 || !fd_write_all(packing->fd, bytes, size))
    return error_set(error, "cannot hand objects to a worker: %s", strerror(errno));
  ALWAYS(json_object_set_new(packing->bundle, path, json_pack("[I, I]", (json_int_t)packing->used, (json_int_t)size)) ==
         0);
  packing->used += size;
  return true;
}

static bool objects_pack(struct packing *packing, const json_t *request, struct error *error) {
  static const char *const members[] = {"instruction_flush", "fingerprint", "reference_object"};
  const json_t *configs = json_object_get(request, "configs");
  for (size_t i = 0; i < ARRAY_LENGTH(members); i++) {
    if (!object_pack(packing, json_object_get(request, members[i]), error))
      return false;
  }
  for (size_t i = 0; i < json_array_size(configs); i++) {
    if (!object_pack(packing, json_object_get(json_array_get(configs, i), "object"), error))
      return false;
  }
  return object_pack(packing, json_object_get(json_object_get(request, "baseline"), "object"), error);
}

bool bundle_pack(json_t *request, int *ret_fd, struct error *error) {
  cleanup_json json_t *bundle = json_object();
  struct packing packing = {.bundle = bundle, .fd = -1};
  bool is_packed = objects_pack(&packing, request, error);
  cleanup_fd int fd = packing.fd;
  if (!is_packed)
    return false;
  if (fd >= 0 && fcntl(fd, F_ADD_SEALS, SEALS) < 0)
    return error_set(error, "cannot seal objects for a worker: %s", strerror(errno));
  if (fd >= 0)
    ALWAYS(json_object_set(request, "bundle", bundle) == 0);
  *ret_fd = fd;
  fd = -1;
  return true;
}

static char *place_path(int fd) { return xasprintf("/proc/self/fd/%d", fd); }

char *bundle_place(struct bundle_places *places, const json_t *request, int bundle_fd, const char *path) {
  const json_t *entry = json_object_get(json_object_get(request, "bundle"), path);
  off_t at = json_integer_value(json_array_get(entry, 0)), end = at + json_integer_value(json_array_get(entry, 1));
  if (!entry)
    return xstrdup(path);
  int fd = memfd_create("wavetune-object", MFD_CLOEXEC);
  if (fd < 0)
    return xstrdup(path);
  while (at < end && sendfile(fd, bundle_fd, &at, (size_t)(end - at)) > 0)
    continue;
  GROW(places->fds, places->n, places->capacity);
  places->fds[places->n++] = fd;
  return place_path(fd);
}

/* An object that cannot be unloaded (it may say so itself) keeps its name: the next one of that name would be taken for
 * it. */
static bool is_loaded(const char *path) {
  void *object = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
  if (object)
    dlclose(object);
  return object != NULL;
}

void bundle_places_release(struct bundle_places *places) {
  for (size_t i = 0; i < places->n; i++) {
    cleanup_free char *path = place_path(places->fds[i]);
    if (!is_loaded(path))
      close(places->fds[i]);
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
    control.header =
        (struct cmsghdr){.cmsg_len = CMSG_LEN(n_fds * sizeof *fds), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(&control.header), fds, n_fds * sizeof *fds);
  }
  return sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

ssize_t descriptors_receive(int socket, void *text, size_t size, int *fds, size_t max, size_t *n) {
  struct iovec part = {text, size};
  union control control;
  struct msghdr message = {
      .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
  ssize_t received = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  if (received < 0)
    return received;
  for (struct cmsghdr *header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header)) {
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
