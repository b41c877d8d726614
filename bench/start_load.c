/* Containers that start at the same time: opens CONTAINERS connections at once, requests the paths
 * one after the other on each, as `wavetune fetch` does, and reads every byte of the answers. The
 * bytes are counted and dropped, so that the server and the network are measured rather than the
 * work of the containers.
 *
 *   start_load HOST PORT TOKEN|"" CONTAINERS PATH…
 *
 * Prints {"ms": [time from the start to the last byte, sorted], "bytes": n, "failed": n}. Memory:
 * ends with the process. Threads: one, with epoll. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "common/base/json.h"
#include "common/base/numbers.h"

#define HEAD_MAX 8192
#define READ_MAX (256 << 10)

struct container {
  int fd;
  size_t n_asked;      /* paths */
  char head[HEAD_MAX]; /* of the answer that is being read */
  size_t head_size;
  size_t left; /* bytes of its body that are still to be read */
  bool in_body;
  double ms; /* from the start to its last byte; 0: not yet */
};

struct load {
  struct sockaddr_in address;
  const char *host, *token;
  char *const *paths;
  size_t n_paths, n_open, n_failed;
  uint64_t bytes;
  int epoll;
  int64_t begin_ns;
};

static void container_end(struct load *load, struct container *container, bool failed) {
  close(container->fd);
  load->n_open--;
  load->n_failed += failed;
  if (!failed)
    container->ms = (double)(clock_monotonic_ns() - load->begin_ns) / 1e6;
}

/* Requests the next path. False: there is none, or sending failed. */
static bool container_ask(struct load *load, struct container *container) {
  if (container->n_asked == load->n_paths)
    return false;
  cleanup_free char *authorization =
      *load->token ? xasprintf("Authorization: Bearer %s\r\n", load->token) : xstrdup("");
  cleanup_free char *request =
      xasprintf("GET %s HTTP/1.1\r\nHost: %s\r\n%s\r\n", load->paths[container->n_asked++],
                load->host, authorization);
  container->head_size = 0;
  container->in_body = false;
  return send(container->fd, request, strlen(request), MSG_NOSIGNAL) == (ssize_t)strlen(request);
}

/* Takes the bytes that were read. False: this is not a valid answer. */
static bool container_take(struct container *container, const char *bytes, size_t size) {
  if (!container->in_body) {
    size_t taken =
        size < HEAD_MAX - 1 - container->head_size ? size : HEAD_MAX - 1 - container->head_size;
    memcpy(container->head + container->head_size, bytes, taken);
    container->head_size += taken;
    container->head[container->head_size] = '\0';
    char *end = strstr(container->head, "\r\n\r\n");
    if (!end)
      return container->head_size < HEAD_MAX - 1;
    char *length = strcasestr(container->head, "\r\ncontent-length:");
    if (!string_starts(container->head, "HTTP/1.1 200 ") || !length || length > end)
      return false;
    container->left = strtoull(length + strlen("\r\ncontent-length:"), NULL, 10);
    container->in_body = true;
    size_t head = (size_t)(end + 4 - container->head), before = container->head_size - taken;
    bytes += head - before;
    size -= head - before;
  }

  if (size > container->left)
    return false;

  container->left -= size;
  return true;
}

static void container_read(struct load *load, struct container *container) {
  static char bytes[READ_MAX];
  ssize_t got = recv(container->fd, bytes, sizeof bytes, MSG_DONTWAIT);
  if (got < 0 && errno == EAGAIN)
    return;
  if (got <= 0 || !container_take(container, bytes, (size_t)got)) {
    container_end(load, container, true);
    return;
  }
  load->bytes += (uint64_t)got;
  if (container->in_body && container->left == 0 && !container_ask(load, container))
    container_end(load, container, container->n_asked < load->n_paths);
}

static void container_start(struct load *load, struct container *container) {
  int on = 1;
  container->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  ALWAYS(container->fd >= 0);
  setsockopt(container->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  load->n_open++;
  struct epoll_event event = {.events = EPOLLOUT, .data.ptr = container};
  ALWAYS(epoll_ctl(load->epoll, EPOLL_CTL_ADD, container->fd, &event) == 0);
  if (connect(container->fd, (const struct sockaddr *)&load->address, sizeof load->address) < 0 &&
      errno != EINPROGRESS)
    container_end(load, container, true);
}

static void container_connected(struct load *load, struct container *container) {
  int reason = 0;
  socklen_t size = sizeof reason;
  struct epoll_event event = {.events = EPOLLIN, .data.ptr = container};
  getsockopt(container->fd, SOL_SOCKET, SO_ERROR, &reason, &size);
  ALWAYS(epoll_ctl(load->epoll, EPOLL_CTL_MOD, container->fd, &event) == 0);
  if (reason || !container_ask(load, container))
    container_end(load, container, true);
}

int main(int argc, char **argv) {
  if (argc < 6)
    die("usage: start_load HOST PORT TOKEN CONTAINERS PATH…");

  size_t n = strtoul(argv[4], NULL, 10);
  struct load load = {
      .host = argv[1], .token = argv[3], .paths = argv + 5, .n_paths = (size_t)argc - 5};
  load.address = (struct sockaddr_in){.sin_family = AF_INET,
                                      .sin_port = htons((uint16_t)strtoul(argv[2], NULL, 10))};
  struct rlimit files;
  ALWAYS(inet_pton(AF_INET, argv[1], &load.address.sin_addr) == 1 &&
         getrlimit(RLIMIT_NOFILE, &files) == 0);
  files.rlim_cur = files.rlim_max;
  ALWAYS(setrlimit(RLIMIT_NOFILE, &files) == 0);
  load.epoll = epoll_create1(0);
  struct container *containers = xcalloc(n, sizeof *containers);
  load.begin_ns = clock_monotonic_ns();
  for (size_t i = 0; i < n; i++)
    container_start(&load, &containers[i]);
  while (load.n_open) {
    struct epoll_event events[256];
    int ready = epoll_wait(load.epoll, events, ARRAY_LENGTH(events), 60000);
    if (ready <= 0)
      die("%zu of %zu containers received nothing for a minute", load.n_open, n);
    for (int i = 0; i < ready; i++) {
      struct container *container = events[i].data.ptr;
      if (container->n_asked == 0)
        container_connected(&load, container);
      else
        container_read(&load, container);
    }
  }

  cleanup_free double *ms = xcalloc(n, sizeof *ms);
  size_t n_done = 0;
  for (size_t i = 0; i < n; i++)
    if (containers[i].ms > 0)
      ms[n_done++] = containers[i].ms;
  qsort(ms, n_done, sizeof *ms, compare_doubles);
  cleanup_json json_t *answer =
      json_pack("{s:o, s:I, s:I}", "ms", json_numbers(ms, n_done), "bytes", (json_int_t)load.bytes,
                "failed", (json_int_t)load.n_failed);
  cleanup_free char *text = json_canonical(answer);
  puts(text);
  free(containers);
  return 0;
}
