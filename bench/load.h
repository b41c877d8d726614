/* Shared by the load programs: keep-alive connections with one request in flight each, lease
 * requests, made-up results, statistics of latencies.
 *
 * Threads: one, with epoll. Memory: freed with the process. */
#ifndef WAVETUNE_BENCH_LOAD_H
#define WAVETUNE_BENCH_LOAD_H

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "common/base/json.h"
#include "common/base/numbers.h"

#define ANSWER_FIRST_BYTES 4096
#define ANSWER_MAX (1 << 20)

struct load {
  const char *token;
  struct sockaddr_in address;
  int epoll;
  char **agents;
  size_t n_agents;
};

struct connection {
  int fd;
  size_t index;
  char *answer; /* grows */
  size_t used, capacity;
  uint64_t n_asked; /* lease requests, for the nonce */
  int64_t asked_ns; /* when the request in flight was sent, or was due */
};

struct answer {
  int status;
  const char *body; /* of the connection, until its next request */
  size_t size;
};

static inline struct load load_new(const char *host, const char *port, const char *token,
                                   const char *agents_path) {
  struct load load = {.token = token, .epoll = epoll_create1(0)};
  load.address = (struct sockaddr_in){.sin_family = AF_INET,
                                      .sin_port = htons((uint16_t)strtoul(port, NULL, 10))};
  if (inet_pton(AF_INET, host, &load.address.sin_addr) != 1)
    die("\"%s\" is no numeric address", host);
  struct rlimit files;
  ALWAYS(load.epoll >= 0 && getrlimit(RLIMIT_NOFILE, &files) == 0);
  files.rlim_cur = files.rlim_max;
  ALWAYS(setrlimit(RLIMIT_NOFILE, &files) == 0);
  cleanup_file FILE *in = fopen(agents_path, "r");
  if (!in)
    die("%s: %s", agents_path, strerror(errno));
  char line[128];
  size_t capacity = 0;
  while (fgets(line, sizeof line, in)) {
    GROW(load.agents, load.n_agents, capacity);
    load.agents[load.n_agents++] = xstrndup(line, strcspn(line, "\n"));
  }
  if (load.n_agents == 0)
    die("%s names no agent", agents_path);
  return load;
}

/* `connection` must not be moved: the events of load->epoll point to it. */
static inline void connection_open(const struct load *load, struct connection *connection,
                                   size_t index) {
  int on = 1;
  *connection = (struct connection){.fd = socket(AF_INET, SOCK_STREAM, 0),
                                    .index = index,
                                    .answer = xmalloc(ANSWER_FIRST_BYTES),
                                    .capacity = ANSWER_FIRST_BYTES};
  if (connection->fd < 0 ||
      connect(connection->fd, (const struct sockaddr *)&load->address, sizeof load->address) < 0)
    die("connection %zu: %s", index, strerror(errno));
  setsockopt(connection->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};
  ALWAYS(epoll_ctl(load->epoll, EPOLL_CTL_ADD, connection->fd, &event) == 0);
}

static inline void request_send(const struct load *load, struct connection *connection,
                                const char *path, const char *body) {
  cleanup_free char *request =
      xasprintf("POST %s HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer %s\r\n"
                "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
                path, load->token, strlen(body), body);
  size_t length = strlen(request);
  for (size_t sent = 0; sent < length;) {
    ssize_t n = send(connection->fd, request + sent, length - sent, MSG_NOSIGNAL);
    if (n < 0)
      die("send: %s", strerror(errno));
    sent += (size_t)n;
  }
  connection->used = 0;
  connection->asked_ns = clock_monotonic_ns();
}

static inline void lease_ask(const struct load *load, struct connection *connection,
                             int wait_seconds) {
  cleanup_free char *body = xasprintf(
      "{\"agent\":\"%s\",\"device\":\"cpu0\",\"nonce\":\"%d-%zu-%" PRIu64 "\",\"wait\":%d}",
      load->agents[connection->index % load->n_agents], getpid(), connection->index,
      connection->n_asked++, wait_seconds);
  request_send(load, connection, "/v1/leases", body);
}

/* One made-up measurement of three samples for every config of the lease, in one post that ends it;
 * returns their number. */
static inline uint64_t results_post(const struct load *load, struct connection *connection,
                                    const json_t *lease) {
  char *body = NULL;
  size_t size = 0;
  FILE *out = open_memstream(&body, &size);
  int64_t seq = 1;
  size_t index;
  json_t *range;
  ALWAYS(out != NULL);
  fprintf(out, "{\"epoch\":%" JSON_INTEGER_FORMAT ",\"done\":true,\"measurements\":[",
          json_integer_value(json_object_get(lease, "epoch")));
  json_array_foreach (json_object_get(lease, "configs"), index, range) {
    int64_t first = json_integer_value(json_array_get(range, 0)),
            count = json_integer_value(json_array_get(range, 1));
    for (int64_t i = 0; i < count; i++, seq++)
      fprintf(out,
              "%s{\"seq\":%" PRId64 ",\"config\":%" PRId64 ",\"process\":%" JSON_INTEGER_FORMAT
              ",\"round\":%" JSON_INTEGER_FORMAT
              ",\"outcome\":\"correct\",\"timer\":\"bench\",\"samples_us\":[%" PRId64
              ".5,100.25,100.125],\"baseline_us\":[100.5,100.25,100.125],\"device_us\":300}",
              seq > 1 ? "," : "", seq, first + i,
              json_integer_value(json_object_get(lease, "process")),
              json_integer_value(json_object_get(lease, "round")), 100 + (first + i) % 50);
  }
  fputs("]}", out);
  ALWAYS(fclose(out) == 0);
  cleanup_free char *owned = body;
  cleanup_free char *path =
      xasprintf("/v1/leases/%s/results", json_string_value(json_object_get(lease, "lease")));
  request_send(load, connection, path, owned);
  return (uint64_t)(seq - 1);
}

/* Reads what has arrived; true when the answer is complete. */
static inline bool answer_read(struct connection *connection, struct answer *ret) {
  if (connection->used + 1 == connection->capacity) {
    connection->capacity *= 2;
    ALWAYS(connection->capacity <= ANSWER_MAX);
    connection->answer = xreallocarray(connection->answer, connection->capacity, 1);
  }

  ssize_t n = recv(connection->fd, connection->answer + connection->used,
                   connection->capacity - connection->used - 1, 0);
  if (n <= 0)
    die("the server closed connection %zu: %s", connection->index, n ? strerror(errno) : "end");

  connection->used += (size_t)n;
  connection->answer[connection->used] = '\0';
  const char *end = strstr(connection->answer, "\r\n\r\n");
  if (!end)
    return false;
  const char *length = strcasestr(connection->answer, "\r\ncontent-length:");
  *ret = (struct answer){.status = (int)strtol(connection->answer + strlen("HTTP/1.1 "), NULL, 10),
                         .body = end + 4,
                         .size = length && length < end
                                     ? strtoul(length + strlen("\r\ncontent-length:"), NULL, 10)
                                     : 0};
  return connection->used >= (size_t)(ret->body - connection->answer) + ret->size;
}

/* The members of a lease that come before the job and after the space. An agent parses the manifest
 * and the space once for each job; parsing them here for every lease would measure this program. */
static inline json_t *lease_parse(const struct answer *answer) {
  static const char job[] = ",\"job\":", configs[] = ",\"configs\":";
  const char *head_end = memmem(answer->body, answer->size, job, strlen(job)), *tail = NULL;
  for (const char *at = answer->body;
       (at = memmem(at, answer->size - (size_t)(at - answer->body), configs, strlen(configs)));
       at++)
    tail = at;
  if (!head_end || !tail)
    die("this is no lease: %.200s", answer->body);

  cleanup_free char *text = xasprintf("%.*s%.*s", (int)(head_end - answer->body), answer->body,
                                      (int)(answer->size - (size_t)(tail - answer->body)), tail);
  json_t *lease = json_loads(text, 0, NULL);
  if (!lease)
    die("this is no lease: %s", text);
  return lease;
}

struct latencies {
  double *us;
  size_t n, capacity;
};

static inline void latency_add(struct latencies *latencies, int64_t since_ns) {
  GROW(latencies->us, latencies->n, latencies->capacity);
  latencies->us[latencies->n++] = (double)(clock_monotonic_ns() - since_ns) * 1e-3;
}

static inline void latencies_sort(struct latencies *latencies) {
  if (latencies->n)
    qsort(latencies->us, latencies->n, sizeof *latencies->us, compare_doubles);
}

/* Of sorted latencies; 0 when there are none. */
static inline double latencies_percentile(const struct latencies *latencies, double percentile) {
  if (!latencies->n)
    return 0;
  size_t at = (size_t)((double)latencies->n * percentile / 100);
  return latencies->us[at < latencies->n ? at : latencies->n - 1];
}

#endif
