/* Runs handlers: on the database workers, and on event threads those that need no database.
 *
 * Memory: a request is its runner's until it is answered or parked (request.h). */
#include <inttypes.h>
#include <malloc.h>

#include "common/base/log.h"
#include "common/cache/text.h"
#include "server/counters.h"
#include "server/db/db.h"
#include "server/http/bodies.h"
#include "server/http/flights.h"
#include "server/http/http_private.h"
#include "server/http/request.h"
#include "server/http/request_private.h"
#include "server/http/response_cache.h"

/* After a body of more bytes, freed memory is given back to the system. The allocator keeps it for
 * the values of another such body, which may never come. */
#define TRIM_BYTES (1 * MIB)

bool request_body_parse(struct request_private *request) {
  struct request *view = &request->request;
  struct error error;
  if (!request->route->is_json || view->json)
    return true;

  const char *text = view->body ? view->body : "";
  size_t most = request->route->body_max * JSON_FACTOR,
         of_token = bodies_most_of_token(server_http(view->server)->bodies);
  most = most < of_token ? most : of_token;
  struct json_extent extent = json_measure(text, view->body_size, most);
  if (extent.memory > most && extent.depth <= JSON_DEPTH_MAX) {
    counter_add(COUNTER_bodies_refused, 1);
    request_problem(
        view, MHD_HTTP_CONTENT_TOO_LARGE,
        "the values of this body would take more than %zu MiB of memory (at most half of "
        "serve --bodies-mib): send it in parts",
        most / MIB);
    return false;
  }
  if (extent.depth <= JSON_DEPTH_MAX && extent.memory > JSON_UNCOUNTED &&
      !request_take_memory(request, extent.memory, &request->json_counted))
    return false;

  if (json_parse(text, view->body_size, &view->json, &error))
    return true;
  request_problem_extra(view, MHD_HTTP_BAD_REQUEST, &error, NULL);
  return false;
}

void request_handle(struct worker *worker, struct request *request) {
  ALWAYS((worker != NULL) == (route_of(request->route)->place == ROUTE_DATABASE));

  bool ok = true;
  struct error error = {0};
  switch (request->route) {
#define RUN_ROUTE_EVENT_THREAD(id) route_##id(request->server, request)
#define RUN_ROUTE_DATABASE(id)                                                                     \
  ok = query_check(request, &error) && route_##id(worker, request, &error)
#define RUN_ROUTE_ANSWERING(id) route_##id(worker, request)
#define X(id, method, path, role, place, ...)                                                      \
  case ROUTE_##id:                                                                                 \
    RUN_##place(id);                                                                               \
    break;
    ROUTES(X)
#undef X
  default:
    die("no route %d", (int)request->route);
  }
  if (!ok)
    answer_failure(request, &error);
}

/* Whether the token of a request that was parked is still live. */
static bool is_still_allowed(struct request_private *request) {
  struct auth *auth = server_http(request->request.server)->auth;
  uint64_t generation = auth_generation(auth);
  if (request->auth_generation == generation)
    return !auth_has_expired(request->auth_expires_ms);
  request->auth_generation = generation;
  return auth_is_live(auth, request->request.token_id);
}

/* Handles a request whose answer may be cached. Of several at the same time one makes the answer;
 * the others are parked until it is cached. */
static void handle_cached(struct worker *worker, struct request_private *taken) {
  const struct connection *connection = taken->connection;
  struct server *server = worker->server;
  struct request *request = &taken->request;
  /* By token, because an answer may be for one token only. A collision is harmless: a request
   * waits for another answer before it makes its own. */
  uint64_t key = text_hash(connection->target, connection->target_size) ^
                 (uint64_t)request->token_id * 0x9e3779b97f4a7c15u;
  char name[32];
  snprintf(name, sizeof name, "answer %016" PRIx64, key);

  bool is_first = taken->flight == 0;
  enum flight flight = request->deadline_passed
                           ? FLIGHT_ALONE
                           : flights_begin(server_http(server)->flights, key, &taken->flight);
  if (flight == FLIGHT_WAITS) {
    counter_add(COUNTER_flights_waited, is_first);
    request_park(worker, request, name, true,
                 taken->complete_ns / 1000000 + server_options(server)->database_timeout_ms);
    return;
  }

  /* Only a request that makes an answer counts: of a thousand that start together, a few. */
  if (!request_answer_from_cache(request) && request_may_run(request))
    request_handle(worker, request);
  if (flight == FLIGHT_LEADS) {
    flights_end(server_http(server)->flights, key);
    queue_wake(server_http(server)->queue, name, SIZE_MAX);
  }
}

/* When the time of a request began: when its headers were read, or its body if it has one; again
 * when it was parked. */
static int64_t began_ms(const struct request_private *request) {
  if (request->request.is_parked_before)
    return clock_monotonic_ms();
  bool had_body = request->complete_ns && (request->body_declared || request->is_chunked);
  return had_body ? request->complete_ns / 1000000 : request->request.arrived_ms;
}

/* A request has --database-timeout-ms, of which it may spend half in the queue. True: it waited for
 * longer, and was refused. */
static bool is_refused_late(struct request_private *request, int64_t timeout_ms) {
  int64_t waited_ms = clock_monotonic_ms() - began_ms(request);
  if (waited_ms <= timeout_ms / 2)
    return false;

  counter_add(COUNTER_queue_late, 1);
  request_problem(&request->request, MHD_HTTP_SERVICE_UNAVAILABLE,
                  "no database worker was free for %lld ms; try again", (long long)waited_ms);
  return true;
}

/* Runs the handler of a request, unless it waited for too long, or its client has left or its token
 * has ended while the request was parked. */
static void run(struct worker *worker, struct request_private *taken) {
  struct request *request = &taken->request;
  int64_t timeout_ms = server_options(worker->server)->database_timeout_ms;
  db_set_deadline(worker->db, began_ms(taken) + timeout_ms);
  if (is_refused_late(taken, timeout_ms))
    return;

  taken->cache_generation = response_cache_generation(server_http(worker->server)->response_cache);
  if (request->is_parked_before && !request_client_is_there(request)) {
    request_problem(request, MHD_HTTP_REQUEST_TIMEOUT, "the client has left");
    return;
  }

  if (request->is_parked_before && !is_still_allowed(taken)) {
    bool has_expired = auth_has_expired(taken->auth_expires_ms);
    metrics_note_refusal(has_expired ? REFUSED_EXPIRED : REFUSED_UNKNOWN);
    request_problem(request, MHD_HTTP_UNAUTHORIZED, "the token was revoked, or has expired");
    return;
  }

  bool is_large = request->body_size > TRIM_BYTES;
  if (!request_body_parse(taken)) {
    if (is_large)
      malloc_trim(0);
    return;
  }

  /* Once the request is answered, the event thread may free it. */
  const struct route *route = taken->route;
  uint64_t settled = requests_settled;
  log_set_request(request->id);
  if (route->is_cached)
    handle_cached(worker, taken);
  else
    request_handle(worker, request);
  log_set_request(NULL);
  if (is_large)
    malloc_trim(0);
  if (requests_settled - settled != 1)
    die("%s answered its request %llu times", route->name,
        (unsigned long long)(requests_settled - settled));
}

/* Looks up the tokens of requests, by the earliest of their deadlines. */
static void look_up(struct worker *worker, struct request_private *taken[], size_t n) {
  int64_t timeout_ms = server_options(worker->server)->database_timeout_ms, first_ms = INT64_MAX;
  size_t n_kept = 0;
  for (size_t i = 0; i < n; i++) {
    struct request_private *request = taken[i]; /* freed once it is refused */
    int64_t from_ms = began_ms(request);
    if (is_refused_late(request, timeout_ms))
      continue;
    taken[n_kept++] = request;
    first_ms = from_ms < first_ms ? from_ms : first_ms;
  }

  if (!n_kept)
    return;
  db_set_deadline(worker->db, first_ms + timeout_ms);
  tokens_look_up(worker, taken, n_kept);
}

void *work_main(void *context) {
  struct worker *worker = context;
  struct request_private *taken[QUEUE_TOKENS_MAX];
  size_t n;
  bool for_tokens;

  MAGIC_CHECK(worker, WORKER_MAGIC);
  while ((n = queue_take(server_http(worker->server)->queue, taken, &for_tokens,
                         &worker->wake_generation))) {
    if (for_tokens)
      look_up(worker, taken, n);
    else
      run(worker, taken[0]);
  }

  return NULL;
}
