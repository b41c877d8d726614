#include "agent/run/claim.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "common/base/log.h"

/* What identifies the device on this machine, whatever its number in this process; NULL: nothing
 * does. The caller's. */
static char *claim_name(const struct device_seen *device) {
  const json_t *facts = json_object_get(device->json, "facts");
  json_int_t gpu_id = json_integer_value(json_object_get(facts, "gpu_id")); /* of each partition */
  const char *pci = json_text(facts, "pci"), *partition = device->environment.partition;

  if (string_equal(device->backend, "cpu"))
    return xstrdup("cpu");
  if (gpu_id)
    return xasprintf("%s gpu %lld", device->backend, (long long)gpu_id);
  return pci && !*partition ? xasprintf("%s %s", device->backend, pci) : NULL;
}

bool device_claim(const struct device_seen *device, int *ret_fd, struct error *error) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  cleanup_free char *name = claim_name(device);
  *ret_fd = -1;
  if (!name)
    return true;

  /* The first byte is 0: the name is in no folder. */
  int length =
      snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "wavetune-agent %.80s", name);
  socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
  cleanup_fd int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd >= 0 && bind(fd, (const struct sockaddr *)&address, size) == 0) {
    *ret_fd = fd;
    fd = -1;
    return true;
  }

  if (errno == EADDRINUSE)
    return error_set(
        error,
        "another agent of this machine works on %s: end it (`pgrep -af wavetune-agent` "
        "finds it), name another device with --device, or give both --share-device, "
        "which lets them disturb each other's measurements",
        device->name);
  log_warning("device: cannot find out whether another agent works on %s: %s", device->name,
              strerror(errno));
  return true;
}
