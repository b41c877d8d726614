/* Programs that start at the same time, each with the requests that one of them was seen to make:
 * a start opens a connection, sends each request and reads every byte of its replies before it
 * sends the next. The bytes are counted and dropped, so that the server and the network are
 * measured rather than the work of the programs. Starts have addresses of their own, 127.1.X.Y.
 *
 *   start_load HOST PORT http|https|redis STARTS AT_ONCE < REQUESTS
 *
 * REQUESTS: for each a line "BYTES REPLIES", and its bytes; "0 0" opens another connection. Replies
 * are HTTP answers with status 200, or RESP values: none missing, no error but to CLIENT commands.
 * With https each connection makes a full TLS handshake, as programs that start have no session to
 * resume; the server's certificate is not checked. Prints {"ms": [time from a start's begin to its
 * last byte, sorted], "seconds": of all, "bytes": n, "failed": n, "tls": version and cipher, or
 * null}. Memory: ends with the process. Threads: one, with epoll. */
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "common/base/json.h"
#include "common/base/numbers.h"

#define HEAD_MAX 8192
#define READ_MAX (256 << 10)
#define REQUESTS_MAX 4096
#define ADDRESS_LOWEST 0x7f010001u /* 127.1.0.1 */

struct wanted {
  char *bytes; /* NULL: another connection */
  size_t size;
  int64_t replies;
  bool may_fail;
};

struct start {
  int fd;
  SSL *ssl;            /* NULL: without TLS, or not connected */
  bool is_connected;   /* the socket */
  bool is_open;        /* requests can be sent */
  size_t next;         /* request */
  char head[HEAD_MAX]; /* of an HTTP answer, or a line of RESP */
  size_t head_size;
  size_t left;     /* bytes of a body or string that are still to be read */
  int64_t replies; /* that are still to come */
  int64_t begin_ns;
  double ms; /* from its begin to its last byte; 0: not yet */
};

struct load {
  struct sockaddr_in address;
  bool is_redis;
  SSL_CTX *tls;  /* NULL: without */
  char *session; /* TLS version and cipher of the first connection */
  struct wanted requests[REQUESTS_MAX];
  size_t n_requests, n_open, n_failed;
  uint64_t bytes;
  int epoll;
};

static bool start_connect(struct load *load, struct start *start, size_t i) {
  int on = 1;
  struct sockaddr_in own = {.sin_family = AF_INET,
                            .sin_addr.s_addr = htonl(ADDRESS_LOWEST + (uint32_t)i)};
  start->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  start->is_connected = start->is_open = false;
  ALWAYS(start->fd >= 0);
  setsockopt(start->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  setsockopt(start->fd, SOL_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
  ALWAYS(bind(start->fd, (struct sockaddr *)&own, sizeof own) == 0);
  struct epoll_event event = {.events = EPOLLOUT, .data.u64 = i};
  ALWAYS(epoll_ctl(load->epoll, EPOLL_CTL_ADD, start->fd, &event) == 0);
  return connect(start->fd, (const struct sockaddr *)&load->address, sizeof load->address) == 0 ||
         errno == EINPROGRESS;
}

static void start_close(struct start *start) {
  SSL_free(start->ssl);
  start->ssl = NULL;
  close(start->fd);
}

static void start_end(struct load *load, struct start *start, bool failed) {
  start_close(start);
  load->n_open--;
  load->n_failed += failed;
  if (!failed)
    start->ms = (double)(clock_monotonic_ns() - start->begin_ns) / 1e6;
}

static void start_begin(struct load *load, struct start *start, size_t i) {
  load->n_open++;
  start->begin_ns = clock_monotonic_ns();
  if (!start_connect(load, start, i))
    start_end(load, start, true);
}

/* As send and recv do; -1 with EAGAIN: later. */
static ssize_t start_send(struct start *start, const char *bytes, size_t size) {
  return start->ssl ? SSL_write(start->ssl, bytes, (int)size)
                    : send(start->fd, bytes, size, MSG_NOSIGNAL);
}

static ssize_t start_receive(struct start *start, char *bytes, size_t size) {
  if (!start->ssl)
    return recv(start->fd, bytes, size, MSG_DONTWAIT);
  int got = SSL_read(start->ssl, bytes, (int)size);
  if (got <= 0)
    errno = SSL_get_error(start->ssl, got) == SSL_ERROR_WANT_READ ? EAGAIN : EPROTO;
  return got > 0 ? got : -1;
}

/* Sends the next request, or ends the start after the last one. */
static void start_ask(struct load *load, struct start *start, size_t i) {
  if (start->next == load->n_requests) {
    start_end(load, start, false);
    return;
  }

  const struct wanted *wanted = &load->requests[start->next++];
  start->head_size = 0;
  start->replies = wanted->replies;
  if (!wanted->bytes) {
    start_close(start);
    if (!start_connect(load, start, i))
      start_end(load, start, true);
  } else if (start_send(start, wanted->bytes, wanted->size) != (ssize_t)wanted->size) {
    start_end(load, start, true);
  }
}

/* Whether this is the head of a valid answer; *ret_size: of its body. */
static bool answer_is_valid(const char *head, size_t *ret_size) {
  const char *length = strcasestr(head, "\r\ncontent-length:");
  if (!string_starts(head, "HTTP/1.1 200 ") || !length)
    return false;
  *ret_size = strtoull(length + strlen("\r\ncontent-length:"), NULL, 10);
  return true;
}

/* Takes a line of RESP. False: it says that something failed or is missing. */
static bool line_take(struct start *start, bool may_fail) {
  int64_t n = strtoll(start->head + 1, NULL, 10);
  switch (start->head[0]) {
  case '$':
    start->left = n >= 0 ? (size_t)n + strlen("\r\n") : 0;
    return n >= 0;
  case '*':
    start->replies += n;
    return n >= 0;
  case '%':
    start->replies += 2 * n;
    return n >= 0;
  case '+':
  case ':':
    return true;
  default:
    return start->head[0] == '-' && may_fail;
  }
}

/* Takes the bytes that were read. False: these are not the replies that are wanted. */
static bool start_take(const struct load *load, struct start *start, const char *bytes,
                       size_t size) {
  const char *end = load->is_redis ? "\r\n" : "\r\n\r\n";
  while (size) {
    if (start->left) {
      size_t taken = size < start->left ? size : start->left;
      start->left -= taken;
      bytes += taken;
      size -= taken;
      continue;
    }

    if (start->replies == 0 || start->head_size == HEAD_MAX - 1)
      return false;
    start->head[start->head_size++] = *bytes++;
    start->head[start->head_size] = '\0';
    size--;
    if (start->head_size < strlen(end) ||
        strcmp(start->head + start->head_size - strlen(end), end) != 0)
      continue;
    start->head_size = 0;
    start->replies--;
    if (!(load->is_redis ? line_take(start, load->requests[start->next - 1].may_fail)
                         : answer_is_valid(start->head, &start->left)))
      return false;
  }
  return true;
}

static void start_read(struct load *load, struct start *start, size_t i) {
  static char bytes[READ_MAX];
  ssize_t got = start_receive(start, bytes, sizeof bytes);
  if (got < 0 && errno == EAGAIN)
    return;
  if (got <= 0 || !start_take(load, start, bytes, (size_t)got)) {
    start_end(load, start, true);
    return;
  }
  load->bytes += (uint64_t)got;
  if (start->replies == 0 && start->left == 0)
    start_ask(load, start, i);
}

/* Goes on with the handshake, or asks when there is none or it is done. */
static void start_open(struct load *load, struct start *start, size_t i) {
  int done = start->ssl ? SSL_do_handshake(start->ssl) : 1;
  int reason = done == 1 ? SSL_ERROR_NONE : SSL_get_error(start->ssl, done);
  struct epoll_event event = {.events = reason == SSL_ERROR_WANT_WRITE ? EPOLLOUT : EPOLLIN,
                              .data.u64 = i};
  ALWAYS(epoll_ctl(load->epoll, EPOLL_CTL_MOD, start->fd, &event) == 0);
  if (reason == SSL_ERROR_WANT_READ || reason == SSL_ERROR_WANT_WRITE)
    return;
  if (reason != SSL_ERROR_NONE) {
    start_end(load, start, true);
    return;
  }

  start->is_open = true;
  if (start->ssl && !load->session)
    load->session = xasprintf("%s %s", SSL_get_version(start->ssl), SSL_get_cipher(start->ssl));
  start_ask(load, start, i);
}

static void start_connected(struct load *load, struct start *start, size_t i) {
  int reason = 0;
  socklen_t size = sizeof reason;
  getsockopt(start->fd, SOL_SOCKET, SO_ERROR, &reason, &size);
  start->is_connected = true;
  if (reason) {
    start_end(load, start, true);
    return;
  }

  if (load->tls) {
    start->ssl = SSL_new(load->tls);
    ALWAYS(start->ssl && SSL_set_fd(start->ssl, start->fd) == 1);
    SSL_set_connect_state(start->ssl);
  }
  start_open(load, start, i);
}

static void requests_read(struct load *load) {
  size_t size;
  int64_t replies;
  while (scanf("%zu %" SCNd64 "%*1[\n]", &size, &replies) == 2) {
    struct wanted *wanted = &load->requests[load->n_requests++];
    ALWAYS(load->n_requests < REQUESTS_MAX && size < READ_MAX);
    *wanted = (struct wanted){.size = size, .replies = replies};
    if (size) {
      wanted->bytes = xcalloc(size + 1, 1);
      ALWAYS(fread(wanted->bytes, 1, size, stdin) == size);
      wanted->may_fail = strstr(wanted->bytes, "\r\nCLIENT\r\n") != NULL;
    }
  }
  if (load->n_requests == 0 || !feof(stdin))
    die("the requests cannot be read");
}

/* Runs all starts, at most at_once at a time. */
static void load_run(struct load *load, struct start *starts, size_t n, size_t at_once) {
  size_t n_begun = 0;
  while (n_begun < n || load->n_open) {
    for (; n_begun < n && load->n_open < at_once; n_begun++)
      start_begin(load, &starts[n_begun], n_begun);
    struct epoll_event events[256];
    int ready = epoll_wait(load->epoll, events, ARRAY_LENGTH(events), 60000);
    if (ready <= 0)
      die("%zu starts received nothing for a minute", load->n_open);
    for (int i = 0; i < ready; i++) {
      size_t number = events[i].data.u64;
      struct start *start = &starts[number];
      if (start->is_open)
        start_read(load, start, number);
      else if (start->is_connected)
        start_open(load, start, number);
      else
        start_connected(load, start, number);
    }
  }
}

static void result_print(const struct load *load, const struct start *starts, size_t n,
                         double seconds) {
  cleanup_free double *ms = xcalloc(n, sizeof *ms);
  size_t n_done = 0;
  for (size_t i = 0; i < n; i++)
    if (starts[i].ms > 0)
      ms[n_done++] = starts[i].ms;
  qsort(ms, n_done, sizeof *ms, compare_doubles);
  cleanup_json json_t *answer = json_pack(
      "{s:o, s:f, s:I, s:I, s:s?}", "ms", json_numbers(ms, n_done), "seconds", seconds, "bytes",
      (json_int_t)load->bytes, "failed", (json_int_t)load->n_failed, "tls", load->session);
  cleanup_free char *text = json_canonical(answer);
  puts(text);
}

int main(int argc, char **argv) {
  if (argc != 6)
    die("usage: start_load HOST PORT http|https|redis STARTS AT_ONCE < REQUESTS");

  size_t n = strtoul(argv[4], NULL, 10), at_once = strtoul(argv[5], NULL, 10);
  static struct load load;
  load.is_redis = strcmp(argv[3], "redis") == 0;
  load.address = (struct sockaddr_in){.sin_family = AF_INET,
                                      .sin_port = htons((uint16_t)strtoul(argv[2], NULL, 10))};
  requests_read(&load);

  signal(SIGPIPE, SIG_IGN); /* OpenSSL writes without MSG_NOSIGNAL */
  if (strcmp(argv[3], "https") == 0)
    ALWAYS((load.tls = SSL_CTX_new(TLS_client_method())) != NULL);

  struct rlimit files;
  ALWAYS(inet_pton(AF_INET, argv[1], &load.address.sin_addr) == 1 &&
         getrlimit(RLIMIT_NOFILE, &files) == 0);
  files.rlim_cur = files.rlim_max;
  ALWAYS(setrlimit(RLIMIT_NOFILE, &files) == 0);
  load.epoll = epoll_create1(0);
  struct start *starts = xcalloc(n, sizeof *starts);
  int64_t begin_ns = clock_monotonic_ns();
  load_run(&load, starts, n, at_once);
  result_print(&load, starts, n, (double)(clock_monotonic_ns() - begin_ns) / 1e9);
  return 0;
}
