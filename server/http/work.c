/* The database workers: take what waits, run its handler, see that everything was answered. Each
 * owns its connection. */
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

static void handle(struct worker *worker, enum route_id id, struct request *request) {
#define HANDLE_ROUTE_MEMORY(id)
#define HANDLE_ROUTE_DATABASE(id)                                                                  \
  case ROUTE_##id:                                                                                 \
    route_##id(worker, request);                                                                   \
    break;
#define X(id, method, path, role, place, ...) HANDLE_##place(id)
  switch (id) {
    ROUTES(X)
  default:
    die("%s does not run on a worker", route_of(id)->name);
  }
#undef X
}

/* A token may have been revoked, or its time may have come, while its request was parked: it gets
 * no work any more. */
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
    request_problem(&request->request, MHD_HTTP_UNAUTHORIZED, "",
                    "the token was revoked, or has expired");
    return false;
  }
  request->memory_generation = memory_generation;
  return request_parse_body(request);
}

static void run(struct worker *worker, struct request_private *taken) {
  struct request *request = &taken->request;
  if (!is_worth_running(taken, response_memory_generation(worker->server->memory)))
    return;

  const char *name =
      route_of(request->route)->name; /* answered, the request is the event thread's */
  uint64_t settled = requests_settled;
  log_set_request(request->id);
  handle(worker, request->route, request);
  log_set_request(NULL);
  if (requests_settled - settled != 1)
    die("%s answered its request %llu times", name,
        (unsigned long long)(requests_settled - settled));
}

void *work_main(void *context) {
  struct worker_thread *thread = context;
  struct worker *worker = &thread->worker;
  struct request_private *taken[QUEUE_TOKENS_MAX];
  size_t n;
  bool for_tokens;
  MAGIC_CHECK(worker->server, SERVER_MAGIC);
  while ((n = queue_take(worker->server->queue, taken, &for_tokens, &worker->wake_generation))) {
    db_set_deadline(worker->db, clock_monotonic_ms() + worker->server->options.database_timeout_ms);
    if (for_tokens)
      tokens_look_up(worker, taken, n);
    else
      run(worker, taken[0]);
  }
  return NULL;
}
