/* A load of agents for benchmarks: N keep-alive connections that lease and complete as fast as the server answers. Each
 * connection takes a lease, posts one made-up measurement for every config of it with `done`, and takes the next.
 *
 *   lease_load HOST PORT TOKEN AGENT CONNECTIONS SECONDS
 *
 * Prints one line: cycles (lease + complete) and measurements, per second, and the latency of a lease request.
 * Threads: one, with epoll. Memory: everything ends with the process. */
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "common/space.h"

#define ANSWER_MAX (1 << 20)
#define LATENCIES_MAX 4000000

enum waiting_for { LEASE, RESULTS };

struct connection {
  int fd;
  enum waiting_for waiting_for;
  char *answer;
  size_t used;
  int64_t asked_ns;
  uint64_t number; /* of the lease request, for its nonce */
};

struct load {
  const char *token, *agent;
  uint64_t cycles, measurements, empty, failed;
  double *latencies_us;
  size_t n_latencies;
};

static void send_request(struct load *load, struct connection *connection, const char *path, const char *body) {
  cleanup_free char *request = xasprintf("POST %s HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer %s\r\n"
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

static void ask_lease(struct load *load, struct connection *connection) {
  cleanup_free char *body = xasprintf("{\"agent\":\"%s\",\"device\":\"cpu0\",\"nonce\":\"%d-%" PRIu64 "\",\"wait\":1}",
                                      load->agent, connection->fd, connection->number++);
  connection->waiting_for = LEASE;
  send_request(load, connection, "/v1/leases", body);
}

/* One measurement for every config of the lease, in one post. */
static void post_results(struct load *load, struct connection *connection, const json_t *lease) {
  char *body = NULL;
  size_t size = 0;
  FILE *out = open_memstream(&body, &size);
  int64_t seq = 1;
  size_t index;
  json_t *range;
  fprintf(out, "{\"epoch\":%" JSON_INTEGER_FORMAT ",\"done\":true,\"measurements\":[",
          json_integer_value(json_object_get(lease, "epoch")));
  json_array_foreach (json_object_get(lease, "configs"), index, range) {
    int64_t first = json_integer_value(json_array_get(range, 0)), count = json_integer_value(json_array_get(range, 1));
    for (int64_t i = 0; i < count; i++, seq++)
      fprintf(out,
              "%s{\"seq\":%" PRId64 ",\"config\":%" PRId64 ",\"process\":%" JSON_INTEGER_FORMAT
              ",\"round\":%" JSON_INTEGER_FORMAT ",\"outcome\":\"correct\",\"timer\":\"bench\",\"samples_us\":[%" PRId64
              ".5,100.25,100.125],\"baseline_us\":[100.5,100.25,100.125],\"device_us\":300}",
              seq > 1 ? "," : "", seq, first + i, json_integer_value(json_object_get(lease, "process")),
              json_integer_value(json_object_get(lease, "round")), 100 + (first + i) % 50);
  }
  fputs("]}", out);
  ALWAYS(fclose(out) == 0);
  cleanup_free char *owned = body;
  cleanup_free char *path = xasprintf("/v1/leases/%s/results", json_string_value(json_object_get(lease, "lease")));
  load->measurements += (uint64_t)(seq - 1);
  connection->waiting_for = RESULTS;
  send_request(load, connection, path, owned);
}

/* Handles a whole answer: `body` of `size` bytes. */
static void answered(struct load *load, struct connection *connection, int status, const char *body, size_t size) {
  if (connection->waiting_for == RESULTS) {
    load->cycles += status == 200;
    load->failed += status != 200;
    ask_lease(load, connection);
    return;
  }
  if (load->n_latencies < LATENCIES_MAX && status == 200)
    load->latencies_us[load->n_latencies++] = (double)(clock_monotonic_ns() - connection->asked_ns) * 1e-3;
  if (status != 200) {
    load->empty += status == 204;
    load->failed += status != 204;
    ask_lease(load, connection);
    return;
  }
  cleanup_json json_t *lease = json_loadb(body, size, 0, NULL);
  ALWAYS(lease != NULL);
  post_results(load, connection, lease);
}

static void readable(struct load *load, struct connection *connection) {
  ssize_t n = recv(connection->fd, connection->answer + connection->used, ANSWER_MAX - connection->used - 1, 0);
  if (n <= 0)
    die("the server closed a connection: %s", n ? strerror(errno) : "end");
  connection->used += (size_t)n;
  connection->answer[connection->used] = '\0';
  char *end = strstr(connection->answer, "\r\n\r\n");
  if (!end)
    return;
  char *length_header = strcasestr(connection->answer, "\r\ncontent-length:");
  size_t length = length_header && length_header < end ? strtoul(length_header + 17, NULL, 10) : 0;
  size_t head = (size_t)(end + 4 - connection->answer);
  ALWAYS(head + length < ANSWER_MAX);
  if (connection->used < head + length)
    return;
  answered(load, connection, atoi(connection->answer + 9), end + 4, length);
}

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

int main(int argc, char **argv) {
  if (argc != 7) {
    fprintf(stderr, "usage: lease_load HOST PORT TOKEN AGENT CONNECTIONS SECONDS\n");
    return 2;
  }
  struct load load = {.token = argv[3], .agent = argv[4], .latencies_us = xcalloc(LATENCIES_MAX, sizeof(double))};
  int n = atoi(argv[5]), epoll = epoll_create1(0);
  double seconds = atof(argv[6]);
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[2]))};
  ALWAYS(inet_pton(AF_INET, argv[1], &address.sin_addr) == 1 && epoll >= 0 && n > 0);
  struct connection *connections = xcalloc((size_t)n, sizeof *connections);
  for (int i = 0; i < n; i++) {
    int on = 1;
    connections[i] = (struct connection){.fd = socket(AF_INET, SOCK_STREAM, 0), .answer = xmalloc(ANSWER_MAX)};
    if (connect(connections[i].fd, (struct sockaddr *)&address, sizeof address) < 0)
      die("connect: %s", strerror(errno));
    setsockopt(connections[i].fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = &connections[i]};
    ALWAYS(epoll_ctl(epoll, EPOLL_CTL_ADD, connections[i].fd, &event) == 0);
    ask_lease(&load, &connections[i]);
  }
  int64_t began = clock_monotonic_ns();
  while (clock_monotonic_ns() - began < (int64_t)(seconds * 1e9)) {
    struct epoll_event events[64];
    int ready = epoll_wait(epoll, events, 64, 100);
    for (int i = 0; i < ready; i++)
      readable(&load, events[i].data.ptr);
  }
  double elapsed = (double)(clock_monotonic_ns() - began) * 1e-9;
  qsort(load.latencies_us, load.n_latencies, sizeof(double), compare);
  double p50 = load.n_latencies ? load.latencies_us[load.n_latencies / 2] : 0;
  double p99 = load.n_latencies ? load.latencies_us[load.n_latencies * 99 / 100] : 0;
  printf("{\"connections\": %d, \"seconds\": %.3f, \"cycles_per_s\": %.1f, \"measurements_per_s\": %.1f, \"cycles\": "
         "%" PRIu64 ", \"measurements\": %" PRIu64 ", \"empty\": %" PRIu64 ", \"failed\": %" PRIu64
         ", \"lease_p50_us\": %.0f, \"lease_p99_us\": %.0f}\n",
         n, elapsed, (double)load.cycles / elapsed, (double)load.measurements / elapsed, load.cycles, load.measurements,
         load.empty, load.failed, p50, p99);
  return load.failed ? 1 : 0;
}
