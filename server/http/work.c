/* The database workers: take what waits, run its handler, see that everything was answered. Each owns its connection. */
#include "common/base/log.h"
#include "server/counters.h"
#include "server/db/db.h"
#include "server/http/dispatch.h"
#include "server/http/response.h"
#include "server/http/response_memory.h"
#include "server/http/routes.h"
#include "server/http/tokens.h"
#include "server/http/traffic.h"
#include "server/server_private.h"

static void handle(struct worker *worker, enum route_id id, struct request **requests, size_t n) {
#define HANDLE_ROUTE_MEMORY(id)
#define HANDLE_ROUTE_DATABASE(id)                                                                                      \
  case ROUTE_##id:                                                                                                     \
    route_##id(worker, requests[0]);                                                                                   \
    break;
#define HANDLE_ROUTE_BATCH(id)                                                                                         \
  case ROUTE_##id:                                                                                                     \
    route_##id(worker, requests, n);                                                                                   \
    break;
#define X(id, method, path, role, place, ...) HANDLE_##place(id)
  switch (id) {
    ROUTES(X)
  default:
    die("%s does not run on a worker", route_of(id)->name);
  }
#undef X
}

/* A token may have been revoked, or its time may have come, while its request was parked: it gets no work any more. */
static bool is_still_allowed(struct request_private *request) {
  struct auth *auth = request->request.server->auth;
  uint64_t generation = auth_generation(auth);
  if (request->auth_generation == generation)
    return !auth_has_expired(request->auth_expires_ms);
  request->auth_generation = generation;
  return auth_is_live(auth, request->request.token_id);
}

/* A client that left while it was parked is let go; a body that is no JSON is answered. */
static bool is_worth_running(struct request_private *request, uint64_t memory_generation) {
  if (request->request.is_parked_before && !request_client_is_there(&request->request)) {
    request_problem(&request->request, MHD_HTTP_REQUEST_TIMEOUT, "", "the client has left");
    return false;
  }
  if (request->request.is_parked_before && !is_still_allowed(request)) {
    bool has_expired = auth_has_expired(request->auth_expires_ms);
    traffic_note_refusal(has_expired ? TRAFFIC_REFUSED_EXPIRED : TRAFFIC_REFUSED_UNKNOWN);
    request_problem(&request->request, MHD_HTTP_UNAUTHORIZED, "", "the token was revoked, or has expired");
    return false;
  }
  request->memory_generation = memory_generation;
  return request_parse_body(request);
}

static void run(struct worker *worker, enum route_id id, struct request_private *taken[], size_t n) {
  struct request *requests[ROUTE_BATCH_MAX];
  size_t n_worth = 0;
  uint64_t generation = response_memory_generation(worker->server->memory);
  for (size_t i = 0; i < n; i++)
    if (is_worth_running(taken[i], generation))
      requests[n_worth++] = &taken[i]->request;
  if (!n_worth)
    return;
  if (route_of(id)->batch > 1) {
    counter_add(COUNTER_batches, 1);
    counter_add(COUNTER_batched_requests, n_worth);
  }
  uint64_t settled = requests_settled;
  /* Of a batch the handler knows which line is whose. */
  log_set_request(n_worth == 1 ? requests[0]->id : NULL);
  handle(worker, id, requests, n_worth);
  log_set_request(NULL);
  if (requests_settled - settled != n_worth)
    die("%s answered %llu of %zu requests", route_of(id)->name, (unsigned long long)(requests_settled - settled),
        n_worth);
}

void *work_main(void *context) {
  struct worker_thread *thread = context;
  struct worker *worker = &thread->worker;
  struct request_private *taken[ROUTE_BATCH_MAX];
  size_t n;
  int kind;
  MAGIC_CHECK(worker->server, SERVER_MAGIC);
  while ((n = queue_take(worker->server->queue, taken, &kind, &worker->wake_generation))) {
    db_set_deadline(worker->db, clock_monotonic_ms() + worker->server->options.database_timeout_ms);
    if (kind == QUEUE_KIND_TOKEN)
      tokens_look_up(worker, taken, n);
    else
      run(worker, (enum route_id)kind, taken, n);
    queue_done(worker->server->queue, kind);
  }
  return NULL;
}
