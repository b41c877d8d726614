/* Counters of answers, relaxed and without a lock, and the log of requests. Static; any thread. */
#include "server/http/traffic.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>

#include "common/base/log.h"
#include "server/counters.h"
#include "server/http/client.h"
#include "server/server_private.h"

/* With --log-requests errors: an outage of the database, or of a thousand agents' network, must not
 * fill a disk. */
#define SLOW_NS 1000000000LL
#define LINES_PER_SECOND 20
#define LINES_BURST 100

/* Those that this server answers, the frequent ones first; what is not listed counts as 0. */
static const unsigned short statuses[] = {200, 304, 201, 204, 202, 206, 400, 401, 403, 404, 405,
                                          408, 409, 411, 412, 413, 416, 422, 429, 500, 503, 0};
static const int64_t bounds_ns[] = {1000000,   5000000,    25000000, 100000000,
                                    500000000, 2500000000, INT64_MAX};
static const char *const bound_names[] = {"0.001", "0.005", "0.025", "0.1", "0.5", "2.5", "+Inf"};

static struct {
  _Alignas(64) atomic_uint_fast64_t answers[ARRAY_LENGTH(statuses)];
  atomic_uint_fast64_t in_bound[ARRAY_LENGTH(bounds_ns)];
  atomic_uint_fast64_t work_ns;
} routes[ROUTE_COUNT + 1]; /* the last: what is no route */

static const char *const refusal_names[] = {
    [TRAFFIC_REFUSED_MISSING] = "missing",   [TRAFFIC_REFUSED_UNKNOWN] = "unknown",
    [TRAFFIC_REFUSED_EXPIRED] = "expired",   [TRAFFIC_REFUSED_ROLE] = "role",
    [TRAFFIC_REFUSED_IDENTITY] = "identity",
};
static atomic_uint_fast64_t refusals[TRAFFIC_REFUSALS];

static void count(atomic_uint_fast64_t *counter, uint64_t n) {
  atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

void traffic_note_refusal(enum traffic_refusal refusal) { count(&refusals[refusal], 1); }

bool request_log_parse(const char *name, enum request_log *ret_log) {
  static const char *const names[] = {
      [REQUEST_LOG_OFF] = "off", [REQUEST_LOG_ERRORS] = "errors", [REQUEST_LOG_ALL] = "all"};
  for (size_t i = 0; i < ARRAY_LENGTH(names); i++)
    if (strcmp(names[i], name) == 0) {
      *ret_log = (enum request_log)i;
      return true;
    }
  return false;
}

/* A server that ends answers 503 to all that wait, and one that is not ready says just that to each
 * probe of a balancer. */
static bool is_error(const struct server *server, const struct traffic_answer *answer) {
  bool is_probe = answer->route && answer->route->id == ROUTE_readyz_get;
  if (answer->status == MHD_HTTP_SERVICE_UNAVAILABLE &&
      (is_probe || queue_state(server->queue).is_stopping))
    return false;
  return answer->status >= 500 || answer->work_ns >= SLOW_NS;
}

/* Whether there may be one more line, and how many there were not since the last one. */
static bool line_take(uint64_t *ret_left_out) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  static int64_t at_ms;
  static double lines = LINES_BURST;
  static uint64_t left_out;
  int64_t now_ms = clock_monotonic_ms();
  pthread_mutex_lock(&lock);
  lines += at_ms ? (double)(now_ms - at_ms) * LINES_PER_SECOND / 1000 : 0;
  lines = lines < LINES_BURST ? lines : LINES_BURST;
  at_ms = now_ms;
  bool may = lines >= 1;
  lines -= may;
  left_out += !may;
  *ret_left_out = may ? left_out : 0;
  left_out = may ? 0 : left_out;
  pthread_mutex_unlock(&lock);
  return may;
}

static void line_write(const struct traffic_answer *answer) {
  char peer[ADDRESS_SIZE];
  log_write(answer->status >= 500 ? LOG_LEVEL_WARNING : LOG_LEVEL_INFO,
            "http: request method=%s path=%s status=%u ms=%.3f waited_ms=%lld bytes=%llu token=%s "
            "peer=%s",
            answer->method, answer->route ? answer->route->path : NULL, answer->status,
            (double)answer->work_ns / 1e6, (long long)(answer->waited_ns / 1000000),
            (unsigned long long)answer->bytes, answer->token_name[0] ? answer->token_name : NULL,
            connection_address(answer->connection, peer));
}

void traffic_note(const struct server *server, const struct traffic_answer *answer) {
  size_t route = answer->route ? (size_t)answer->route->id : ROUTE_COUNT, status = 0, bound = 0;
  while (statuses[status] && statuses[status] != answer->status)
    status++;
  while (answer->work_ns > bounds_ns[bound])
    bound++;
  count(&routes[route].answers[status], 1);
  count(&routes[route].in_bound[bound], 1);
  count(&routes[route].work_ns, (uint64_t)answer->work_ns);

  enum request_log log = server->options.log_requests;
  if (log == REQUEST_LOG_ALL) {
    line_write(answer);
  } else if (log == REQUEST_LOG_ERRORS && is_error(server, answer)) {
    uint64_t left_out;
    if (!line_take(&left_out))
      counter_add(COUNTER_request_lines_left_out, 1);
    else
      line_write(answer);
    if (left_out)
      log_warning("http: lines of requests left out before this one n=%llu",
                  (unsigned long long)left_out);
  }
}

static const char *route_name(size_t route) {
  return route < ROUTE_COUNT ? route_of((enum route_id)route)->name : "none";
}

static void answers_write(FILE *out) {
  static const char name[] = "wavetune_http_answers_total";
  fprintf(out,
          "# HELP %s Answers by route (none: no such path) and status (0: another one)\n# TYPE %s "
          "counter\n",
          name, name);
  for (size_t route = 0; route <= ROUTE_COUNT; route++)
    for (size_t i = 0; i < ARRAY_LENGTH(statuses); i++) {
      uint64_t n = atomic_load(&routes[route].answers[i]);
      if (n)
        fprintf(out, "%s{route=\"%s\",status=\"%u\"} %" PRIu64 "\n", name, route_name(route),
                statuses[i], n);
    }
}

/* Routes that were never asked for are left out: a histogram is nine lines. */
static void histograms_write(FILE *out) {
  static const char name[] = "wavetune_http_work_seconds";
  fprintf(out,
          "# HELP %s From a whole request to its answer, without what it waited in a long poll\n"
          "# TYPE %s histogram\n",
          name, name);
  for (size_t route = 0; route <= ROUTE_COUNT; route++) {
    uint64_t n = 0, in_bound[ARRAY_LENGTH(bounds_ns)];
    for (size_t i = 0; i < ARRAY_LENGTH(bounds_ns); i++)
      in_bound[i] = n += atomic_load(&routes[route].in_bound[i]);
    for (size_t i = 0; n && i < ARRAY_LENGTH(bounds_ns); i++)
      fprintf(out, "%s_bucket{route=\"%s\",le=\"%s\"} %" PRIu64 "\n", name, route_name(route),
              bound_names[i], in_bound[i]);
    if (n)
      fprintf(out, "%s_sum{route=\"%s\"} %.9g\n%s_count{route=\"%s\"} %" PRIu64 "\n", name,
              route_name(route), (double)atomic_load(&routes[route].work_ns) / 1e9, name,
              route_name(route), n);
  }
}

void traffic_write(FILE *out) {
  static const char name[] = "wavetune_tokens_refused_total";
  answers_write(out);
  histograms_write(out);
  fprintf(out, "# HELP %s Requests refused for their token, by reason\n# TYPE %s counter\n", name,
          name);
  for (size_t i = 0; i < TRAFFIC_REFUSALS; i++)
    fprintf(out, "%s{reason=\"%s\"} %" PRIu64 "\n", name, refusal_names[i],
            atomic_load(&refusals[i]));
}
