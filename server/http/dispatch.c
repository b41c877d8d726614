/* libmicrohttpd's callbacks on the event threads.
 *
 * An event thread reads a request, authorises it, and answers it or adds it to the queue. A worker
 * (work.c) runs its handler, and the event thread sends the response. */
#include <stdatomic.h>

#include "common/base/log.h"
#include "server/counters.h"
#include "server/http/bodies.h"
#include "server/http/client.h"
#include "server/http/credentials.h"
#include "server/http/headers.h"
#include "server/http/http_private.h"
#include "server/http/request.h"
#include "server/http/request_private.h"
#include "server/http/response_cache.h"
#include "server/http/sign_in.h"

/* The largest body of a refused request that is read and dropped, so that the client reads the
 * answer and keeps its connection. With a larger one the connection is closed after the answer. */
#define DISCARD_MAX (64 * KIB)
#define BODY_FIRST_CAPACITY (16 * KIB)

void dispatch_connection(void *event_thread, struct MHD_Connection *mhd, void **socket_context,
                         enum MHD_ConnectionNotificationCode code) {
  struct connection *connection = *socket_context;
  if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
    MAGIC_CHECK(connection, CONNECTION_MAGIC);
    ALWAYS(connection->request == NULL);
    deadline_none(connection);
    connections_remove(connection->http->connections, connection);
    connection->magic = 0;
    free(connection->target);
    free(connection->certificate);
    free(connection);
    *socket_context = NULL;
    return;
  }

  connection = *socket_context = xcalloc(1, sizeof *connection);
  connection->magic = CONNECTION_MAGIC;
  connection->event_thread = event_thread;
  MAGIC_CHECK(connection->event_thread, EVENT_THREAD_MAGIC);
  connection->server = connection->event_thread->server;
  connection->http = server_http(connection->server);
  connection->mhd = mhd;
  connection->fd = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
  client_connected(connection);
  deadline_connected(connection);

  uint8_t peer[16];
  connections_add(connection->http->connections, connection,
                  client_peer(connection, peer) ? peer : NULL);
}

void *dispatch_target(void *server, const char *target, struct MHD_Connection *mhd) {
  (void)server;
  struct connection *connection =
      MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
  MAGIC_CHECK(connection, CONNECTION_MAGIC);
  connection->target_size = strlen(target);
  free(connection->target);
  connection->target = xstrdup(target);
  connection->target_at = target;
  connection->is_read = connection->is_begun = false;
  deadline_head(connection);

  /* The query is parsed by uri_parse. libmicrohttpd parses it too, into the connection's memory,
   * and when some 250 arguments have filled that, it neither answers nor closes. So the query in
   * its buffer is made one argument. */
  char *query = strchr((char *)target, '?');
  for (char *c = query ? query + 1 : NULL; c && *c; c++)
    if (*c == '&' || *c == '?' || *c == '=')
      *c = '.';

  return connection;
}

void dispatch_completed(void *server, struct MHD_Connection *mhd, void **context,
                        enum MHD_RequestTerminationCode code) {
  (void)server, (void)mhd, (void)code;
  struct connection *connection = *context;
  if (!connection)
    return;

  MAGIC_CHECK(connection, CONNECTION_MAGIC);
  deadline_completed(connection);
  free(TAKE(connection->target));
  struct request_private *request = TAKE(connection->request);
  if (!request)
    return;

  ALWAYS(request->state != REQUEST_QUEUED && request->state != REQUEST_PARKED &&
         request->state != REQUEST_AUTHORISING);
  atomic_fetch_sub(&server_http(request->request.server)->n_open, 1);
  uri_release(&request->uri);
  json_decref(request->request.json);
  json_decref(request->request.extra);
  free(request->request.body);
  bodies_give(server_http(request->request.server)->bodies, request->request.token_id,
              request->body_counted + request->json_counted);
  free(request->author_roles);
  if (request->response)
    MHD_destroy_response(request->response);
  for (size_t i = 0; i < request->n_headers; i++) {
    free(request->headers[i].name);
    free(request->headers[i].value);
  }

  request->request.magic = 0;
  free(request);
}

static bool has_body(const struct connection *connection) {
  return connection->length || connection->is_chunked || connection->has_bad_length;
}

/* After a request whose token has these roles; TOKEN_ANYONE: it was refused for its token. */
static void class_set(struct connection *connection, unsigned roles) {
  enum connection_class class = !roles ? CLASS_STRANGER
                                : roles & (TOKEN_AGENT | TOKEN_OPERATOR | TOKEN_ADMIN)
                                    ? CLASS_FLEET
                                    : CLASS_CLIENT;
  connections_set_class(connection->http->connections, connection, class);
}

static void suspend(struct request_private *request) {
  request->is_suspended = true;
  atomic_fetch_add(&server_http(request->request.server)->n_suspended, 1);
  MHD_suspend_connection(request->connection->mhd);
}

static enum MHD_Result send_response(struct request_private *request) {
  if (request->is_beyond_rate) {
    request->is_beyond_rate = false;
    suspend(request);
    deadline_hold(request->connection);
    return MHD_YES;
  }

  struct MHD_Response *response = TAKE(request->response);
  struct connection *connection = request->connection;
  int64_t from_ns = request->complete_ns ? request->complete_ns : connection->began_ns;

  metrics_note_answer(
      &(struct answer_note){.route = request->route,
                            .status = request->status,
                            .bytes = request->bytes,
                            .work_ns = request->answered_ns - from_ns - request->parked_ns,
                            .waited_ns = request->parked_ns,
                            .token_name = request->request.token_name,
                            .connection = connection});
  if (request->status == MHD_HTTP_UNAUTHORIZED)
    class_set(connection, TOKEN_ANYONE);
  deadline_answer(connection, request->bytes);
  enum MHD_Result result = MHD_queue_response(connection->mhd, request->status, response);
  MHD_destroy_response(response);
  return result;
}

/* Sends the refusal of a request. A small body is read first. */
static enum MHD_Result refused(struct request_private *request) {
  if (!request->is_chunked && request->body_declared && request->body_declared <= DISCARD_MAX) {
    request->state = REQUEST_DISCARDING;
    deadline_body(request->connection);
    return MHD_YES;
  }
  return send_response(request);
}

/* Suspends the request and adds it to the queue; a full queue refuses it. */
static enum MHD_Result hand_over(struct request_private *request, bool for_token) {
  struct server *server = request->request.server;
  suspend(request);
  deadline_none(request->connection);
  enum queue_answer answer = queue_add(server_http(server)->queue, request, for_token);
  if (answer == QUEUE_ADDED)
    return MHD_YES;

  counter_add(COUNTER_queue_shed, answer == QUEUE_FULL);
  request_problem(&request->request, MHD_HTTP_SERVICE_UNAVAILABLE, "%s",
                  answer == QUEUE_FULL ? "too many requests wait for the database; try again"
                                       : "the server is stopping; try again");
  return MHD_YES;
}

static enum MHD_Result body_complete(struct request_private *request) {
  request->complete_ns = clock_monotonic_ns();
  if (request->route->place != ROUTE_EVENT_THREAD)
    return hand_over(request, false);
  request->state = REQUEST_RUNNING;
  if (request_body_parse(request))
    request_handle(NULL, &request->request);
  ALWAYS(request->state == REQUEST_ANSWERED);
  return send_response(request);
}

/* Checks that the request's roles may call its route, and the announced size of its body. */
static enum MHD_Result begin_body(struct request_private *request) {
  const struct route *route = request->route;
  struct request *view = &request->request;
  if (view->roles)
    class_set(request->connection, view->roles);
  if (!roles_may(view->roles, route->roles)) {
    cleanup_free char *needed = roles_text(route->roles, " or "),
                      *held = roles_text(view->roles, ",");
    metrics_note_refusal(REFUSED_ROLE);
    request_problem(view, MHD_HTTP_FORBIDDEN,
                    "%s %s needs the role %s; the token \"%s\" has the role %s", route->method,
                    route->path, needed, view->token_name, held);
    return refused(request);
  }

  /* With --require-enrolment, agents and callers of routes for agents need a token that is bound to
   * an agent. */
  bool is_for_agents = route->roles == MAY_WORK || route->roles == MAY_ENROL;
  if (server_options(view->server)->require_enrolment && !*view->token_agent &&
      view->roles != TOKEN_ENROL && (view->roles == TOKEN_AGENT || is_for_agents)) {
    metrics_note_refusal(REFUSED_IDENTITY);
    request_problem(view, MHD_HTTP_FORBIDDEN,
                    "this server accepts only agents with their own tokens, and \"%s\" is not "
                    "bound to an agent: make a token with \"wavetune token make NAME --role "
                    "enrol\" and start the agent with it",
                    view->token_name);
    return refused(request);
  }

  /* Where answers are cached, the worker counts those that are not. */
  if (route->place == ROUTE_DATABASE && !route->is_cached && !request_may_run(view))
    return refused(request);

  if (route->body_max == 0 && (request->body_declared || request->is_chunked)) {
    request_problem(view, MHD_HTTP_CONTENT_TOO_LARGE, "%s %s takes no body", route->method,
                    route->path);
    return refused(request);
  }

  if (route->body_max && !request->has_length && !request->is_chunked) {
    request_problem(view, MHD_HTTP_LENGTH_REQUIRED, "%s %s needs a body with a Content-Length",
                    route->method, route->path);
    return refused(request);
  }

  if (request->body_declared > route->body_max) {
    request_problem(view, MHD_HTTP_CONTENT_TOO_LARGE, "the body has %llu bytes; the limit is %zu",
                    (unsigned long long)request->body_declared, route->body_max);
    return refused(request);
  }

  if (request->body_declared > BODY_UNCOUNTED &&
      !request_take_memory(request, request->body_declared, &request->body_counted))
    return refused(request);

  request->state = REQUEST_READING;
  if (!has_body(request->connection))
    return body_complete(request);
  deadline_body(request->connection);
  return MHD_YES;
}

void request_set_token(struct request_private *request, const struct auth_token *token) {
  struct request *view = &request->request;
  request->auth_expires_ms = token->expires_ms;
  view->roles = token->roles;
  view->token_id = token->id;
  memcpy(view->token_name, token->name, sizeof token->name);
  memcpy(view->token_agent, token->agent, sizeof token->agent);
}

static enum MHD_Result authorise_route(struct request_private *request,
                                       const struct credentials *credentials) {
  const struct connection *connection = request->connection;
  bool has_token = connection->headers[HEADER_AUTHORIZATION] != NULL;
  bool is_bad = *credentials->refusal.message, is_by_proxy = credentials->is_by_proxy;
  struct error error;
  if (request->route->roles == TOKEN_ANYONE) {
    /* Operators get more from /readyz, if their token is known without the database. */
    if (credentials->answer == AUTH_KNOWN && roles_may(connection->token.roles, MAY_OPERATE))
      request_set_token(request, &connection->token);
    return begin_body(request);
  }
  if (is_bad && credentials->refusal.kind == ERROR_UNAVAILABLE) {
    request_problem(&request->request, MHD_HTTP_SERVICE_UNAVAILABLE, "%s",
                    credentials->refusal.message);
    return refused(request);
  }
  if (is_bad || (!has_token && !is_by_proxy && !credentials->certificate)) {
    const char *why = is_bad ? credentials->refusal.message
                             : "a token is needed: send \"Authorization: Bearer TOKEN\"";
    metrics_note_refusal(is_bad ? REFUSED_UNKNOWN : REFUSED_MISSING);
    client_note_refused(&request->request, why);
    request_problem(&request->request, MHD_HTTP_UNAUTHORIZED, "%s", why);
    return refused(request);
  }

  if (is_by_proxy && strcmp(request->route->method, "GET") != 0 &&
      !sign_in_may_write(connection, &error)) {
    metrics_note_refusal(REFUSED_ROLE);
    request_problem(&request->request, MHD_HTTP_FORBIDDEN, "%s", error.message);
    return refused(request);
  }

  request->request.is_by_certificate = !has_token && !is_by_proxy;
  switch (credentials->answer) {
  case AUTH_KNOWN:
    request->auth_generation = connection->auth_generation;
    request_set_token(request, &connection->token);
    return begin_body(request);
  case AUTH_LOOK_UP:
    request->token = credentials->digest;
    return hand_over(request, true);
  case AUTH_BUSY:
    metrics_note_refusal(REFUSED_BUSY);
    request_problem(&request->request, MHD_HTTP_SERVICE_UNAVAILABLE,
                    "too many unknown tokens are being tried; try again");
    return refused(request);
  default:
    tokens_answer_unknown(request, credentials->answer == AUTH_EXPIRED);
    return refused(request);
  }
}

static void send_cached(void *context, const struct cached_answer *cached) {
  struct connection *connection = context;
  MAGIC_CHECK(connection, CONNECTION_MAGIC);
  metrics_note_answer(&(struct answer_note){.route = route_of(cached->route),
                                            .status = cached->status,
                                            .bytes = cached->size,
                                            .work_ns = clock_monotonic_ns() - connection->began_ns,
                                            .token_name = connection->token.name,
                                            .connection = connection});
  deadline_answer(connection, cached->size);
  response_header(cached->response, REQUEST_ID_HEADER, connection->request_id);
  MHD_queue_response(connection->mhd, cached->status, cached->response);
  MHD_destroy_response(cached->response);
}

/* Sends the cached answer, if there is one that the token may read. */
static bool answer_cached(struct connection *connection, const struct credentials *credentials) {
  const struct server *server = connection->server;
  const struct auth_token *token = &connection->token;
  const struct cache_query query = {.target = connection->target,
                                    .target_size = connection->target_size,
                                    .roles = token->roles,
                                    .if_none_match = connection->headers[HEADER_IF_NONE_MATCH],
                                    .token_id = token->id,
                                    .token_name = token->name,
                                    .is_of_page = connection->headers[HEADER_PAGE] != NULL};
  bool is_get = strcmp(connection->method, "GET") == 0 || strcmp(connection->method, "HEAD") == 0;
  if (!is_get || has_body(connection) || credentials->answer != AUTH_KNOWN ||
      (server_options(server)->require_enrolment && token->roles == TOKEN_AGENT &&
       !*token->agent) ||
      response_cache_answer(server_http(server)->response_cache, &query, send_cached, connection) !=
          CACHE_ANSWERED)
    return false;

  class_set(connection, token->roles);
  counter_add(COUNTER_requests, 1);
  counter_add(COUNTER_responses_cached, 1);
  return true;
}

static enum MHD_Result begin(struct connection *connection) {
  struct credentials credentials;
  struct error error;
  connection->is_begun = true;
  credentials_read(connection, &credentials);
  bool is_good = headers_check(connection, &error);
  if (is_good && answer_cached(connection, &credentials))
    return MHD_YES;

  struct request_private *request = xcalloc(1, sizeof *request);
  struct request *view = &request->request;
  *view = (struct request){.magic = REQUEST_MAGIC,
                           .server = connection->server,
                           .private_ = request,
                           .arrived_ms = connection->began_ns / 1000000,
                           .id = connection->request_id,
                           .is_head = strcmp(connection->method, "HEAD") == 0};
  request->connection = connection;
  connection->request = request;
  atomic_fetch_add(&connection->http->n_open, 1);

  if (!is_good) { /* where the body ends is unknown, so the connection is closed */
    request_add_header(view, MHD_HTTP_HEADER_CONNECTION, "close");
    request_problem_extra(view, MHD_HTTP_BAD_REQUEST, &error, NULL);
    return send_response(request);
  }

  request->has_length = connection->n_headers[HEADER_LENGTH] > 0;
  request->body_declared = connection->length;
  request->is_chunked = connection->is_chunked;

  char allow[ROUTE_ALLOW_SIZE];
  if (!uri_parse(connection->target, &request->uri, &error)) {
    request_problem_extra(view, MHD_HTTP_BAD_REQUEST, &error, NULL);
    return refused(request);
  }

  switch (route_find(connection->method, &request->uri, &request->route, view->segments, allow)) {
  case ROUTE_NO_PATH:
    request_problem(view, MHD_HTTP_NOT_FOUND,
                    "there is no such route; GET /openapi.json lists them");
    return refused(request);
  case ROUTE_NO_METHOD:
    request_add_header(view, MHD_HTTP_HEADER_ALLOW, allow);
    request_problem(view, MHD_HTTP_METHOD_NOT_ALLOWED, "the method %s is not allowed here; %s is",
                    connection->method, allow);
    return refused(request);
  default:
    view->route = request->route->id;
    return authorise_route(request, &credentials);
  }
}

static enum MHD_Result body_arrives(struct request_private *request, const char *bytes,
                                    size_t *size) {
  struct request *view = &request->request;
  size_t n = *size;
  *size = 0;
  deadline_body_arrived(request->connection, n);
  if (request->state == REQUEST_READING && n > request->route->body_max - view->body_size) {
    request_problem(view, MHD_HTTP_CONTENT_TOO_LARGE, "the body has more than %zu bytes",
                    request->route->body_max);
    request->state = REQUEST_DISCARDING;
  }

  if (request->state == REQUEST_DISCARDING) {
    request->discarded += n;
    return request->discarded > DISCARD_MAX ? MHD_NO : MHD_YES;
  }

  if (view->body_size + n + 1 > request->body_capacity) {
    size_t capacity = request->body_capacity ? request->body_capacity * 2 : BODY_FIRST_CAPACITY;
    while (capacity < view->body_size + n + 1)
      capacity *= 2;
    /* The body is at most as long as Content-Length. */
    if (request->has_length && capacity > request->body_declared + 1)
      capacity = request->body_declared + 1;
    if (!request->has_length && capacity > BODY_UNCOUNTED &&
        !request_take_memory(request, capacity - request->body_counted, &request->body_counted)) {
      request->state = REQUEST_DISCARDING;
      return MHD_YES;
    }
    view->body = xreallocarray(view->body, capacity, 1);
    request->body_capacity = capacity;
  }

  memcpy(view->body + view->body_size, bytes, n);
  view->body_size += n;
  view->body[view->body_size] = '\0';
  return MHD_YES;
}

static enum MHD_Result access_continue(struct connection *connection, const char *method,
                                       const char *version, const char *upload_data,
                                       size_t *upload_data_size) {
  if (!connection->is_read) {
    headers_read(connection, method, version);
    return has_body(connection) ? begin(connection) : MHD_YES;
  }
  if (!connection->is_begun)
    return begin(connection);

  struct request_private *request = connection->request;
  MAGIC_CHECK(&request->request, REQUEST_MAGIC);
  request->is_suspended = false;
  switch (request->state) {
  case REQUEST_AUTHORISED:
    return begin_body(request);
  case REQUEST_ANSWERED:
    /* When the token was refused, the body is still to be read. */
    return request->route->body_max && !request->request.body_size ? refused(request)
                                                                   : send_response(request);
  case REQUEST_READING:
  case REQUEST_DISCARDING:
    if (*upload_data_size)
      return body_arrives(request, upload_data, upload_data_size);
    return request->state == REQUEST_READING ? body_complete(request) : send_response(request);
  default:
    die("the connection of a request in state %d was resumed", (int)request->state);
  }
}

enum MHD_Result dispatch_access(void *server, struct MHD_Connection *mhd, const char *url,
                                const char *method, const char *version, const char *upload_data,
                                size_t *upload_data_size, void **context) {
  (void)server, (void)mhd, (void)url;
  struct connection *connection = *context;
  MAGIC_CHECK(connection, CONNECTION_MAGIC);
  if (connection->is_read)
    log_set_request(connection->request_id);
  enum MHD_Result result =
      access_continue(connection, method, version, upload_data, upload_data_size);
  log_set_request(NULL);
  return result;
}
