/* libmicrohttpd's callbacks. A connection is its event thread's; a request is handed to the queue
 * when it is complete and comes back with its response. See request_private.h. */
#include "server/http/dispatch.h"

#include <strings.h>

#include "common/base/log.h"
#include "server/counters.h"
#include "server/http/client.h"
#include "server/http/header.h"
#include "server/http/response.h"
#include "server/http/response_memory.h"
#include "server/http/routes.h"
#include "server/http/tokens.h"
#include "server/http/traffic.h"
#include "server/server_private.h"

/* A refused body of at most so many bytes is read and forgotten, so that the client reads the
 * answer and keeps its connection; a larger one is answered at once and the connection closed. */
#define SWALLOW_MAX (64 * KIB)
#define BODY_FIRST_CAPACITY (16 * KIB)

void dispatch_connection(void *server, struct MHD_Connection *mhd, void **socket_context,
                         enum MHD_ConnectionNotificationCode code) {
  if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
    struct connection *connection = *socket_context;
    MAGIC_CHECK(connection, CONNECTION_MAGIC);
    ALWAYS(connection->request == NULL);
    connection->magic = 0;
    free(connection->target_long);
    free(connection->certificate);
    free(connection);
    *socket_context = NULL;
    return;
  }
  struct connection *connection = xmalloc(sizeof *connection);
  memset(connection, 0, offsetof(struct connection, target));
  connection->target_long = NULL;
  connection->authorization_size = 0;
  connection->auth_generation = 0;
  connection->magic = CONNECTION_MAGIC;
  connection->server = server;
  connection->mhd = mhd;
  connection->fd = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
  client_connected(connection);
  *socket_context = connection;
}

/* The query is parsed here, by uri_parse. libmicrohttpd parses it too, into the connection's
 * memory, and when some 250 arguments have filled that, it neither answers nor closes: so it is
 * shown one argument, in its own buffer. */
static void arguments_hide(const char *target) {
  char *query = strchr((char *)target, '?');
  for (char *c = query ? query + 1 : NULL; c && *c; c++)
    if (*c == '&' || *c == '?' || *c == '=')
      *c = '.';
}

void *dispatch_target(void *server, const char *target, struct MHD_Connection *mhd) {
  (void)server;
  struct connection *connection =
      MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
  MAGIC_CHECK(connection, CONNECTION_MAGIC);
  connection->target_size = strlen(target);
  connection->is_read = connection->is_begun = false;
  if (connection->target_size < sizeof connection->target)
    memcpy(connection->target, target, connection->target_size + 1);
  else
    connection->target_long = xmemdup(target, connection->target_size + 1);
  arguments_hide(target);
  return connection;
}

void request_free(struct request_private *request) {
  ALWAYS(request->state != REQUEST_QUEUED && request->state != REQUEST_PARKED &&
         request->state != REQUEST_AUTHORISING);
  atomic_fetch_sub(&request->request.server->n_open, 1);
  uri_release(&request->uri);
  json_decref(request->request.json);
  free(request->request.body);
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

void dispatch_completed(void *server, struct MHD_Connection *mhd, void **context,
                        enum MHD_RequestTerminationCode code) {
  (void)server, (void)mhd, (void)code;
  struct connection *connection = *context;
  if (!connection)
    return;
  MAGIC_CHECK(connection, CONNECTION_MAGIC);
  if (connection->request)
    request_free(TAKE(connection->request));
  free(TAKE(connection->target_long));
}

static struct request_private *request_new(struct connection *connection) {
  struct request_private *request = xcalloc(1, sizeof *request);
  request->request.magic = REQUEST_MAGIC;
  request->request.server = connection->server;
  request->request.private_ = request;
  request->request.arrived_ms = connection->began_ns / 1000000;
  request->request.id = connection->request_id;
  request->connection = connection;
  connection->request = request;
  atomic_fetch_add(&connection->server->n_open, 1);
  return request;
}

static enum MHD_Result header_note(void *context, enum MHD_ValueKind kind, const char *name,
                                   const char *value) {
  struct head *head = context;
  (void)kind;
  if (!value)
    return MHD_YES;
  switch (name[0] | 0x20) {
  case 'a':
    if (strcasecmp(name, MHD_HTTP_HEADER_AUTHORIZATION) == 0) {
      head->authorization = value;
      head->n_authorization++;
    }
    break;
  case 'c':
    if (strcasecmp(name, MHD_HTTP_HEADER_CONTENT_LENGTH) == 0) {
      head->n_length++;
      head->has_bad_length |= !header_size(value, &head->length);
    }
    break;
  case 'h':
    head->n_host += strcasecmp(name, MHD_HTTP_HEADER_HOST) == 0;
    break;
  case 'i':
    if (strcasecmp(name, MHD_HTTP_HEADER_IF_NONE_MATCH) == 0)
      head->if_none_match = value;
    break;
  case 't':
    if (strcasecmp(name, MHD_HTTP_HEADER_TRANSFER_ENCODING) == 0) {
      head->has_bad_coding |= head->is_chunked || strcasecmp(value, "chunked") != 0;
      head->is_chunked = true;
    }
    break;
  case 'x':
    if (strcasecmp(name, "X-Client-Cert") == 0) {
      head->client_certificate = value;
      head->n_client_certificate++;
    } else if (strcasecmp(name, "X-Forwarded-For") == 0) {
      head->forwarded_for = value;
    } else if (strcasecmp(name, "X-Forwarded-Proto") == 0) {
      head->is_forwarded_http = strcasecmp(value, "http") == 0;
    } else if (strcasecmp(name, REQUEST_ID_HEADER) == 0) {
      head->request_id = value;
      head->n_request_id++;
    }
    break;
  default:
    break;
  }
  return MHD_YES;
}

static bool head_has_body(const struct head *head) {
  return head->length || head->is_chunked || head->has_bad_length;
}

/* What makes two programs on the way read one stream of bytes as different requests is refused (RFC
 * 9112, 6 and 11.2). */
static const char *head_wrong(const struct head *head) {
  if (head->n_host > 1)
    return "the header Host stands twice";
  if (head->n_authorization > 1)
    return "the header Authorization stands twice";
  if (head->n_client_certificate > 1)
    return "the header X-Client-Cert stands twice";
  if (head->n_length > 1)
    return "the header Content-Length stands twice";
  if (head->has_bad_length)
    return "the header Content-Length is not a decimal number";
  if (head->has_bad_coding)
    return "the only Transfer-Encoding there is here is \"chunked\"";
  if (head->is_chunked && head->n_length)
    return "Content-Length and Transfer-Encoding exclude each other";
  return NULL;
}

/* What a request shows: a token or, where there is none, a certificate, or neither. */
struct credentials {
  const char *authorization;
  const struct client_certificate *certificate;
  enum auth_answer answer;
  struct digest digest; /* of the token or the certificate that must be looked up: AUTH_ASK */
  struct error refusal; /* of the certificate; "": it is not refused */
};

static void connection_is_of(struct connection *connection, const struct auth_token *token) {
  if (token->replaces)
    auth_note_use(connection->server->auth, token->id);
  connection->auth_roles = token->roles;
  connection->auth_expires_ms = token->expires_ms;
  memcpy(connection->auth_name, token->name, sizeof token->name);
  connection->auth_id = token->id;
  memcpy(connection->auth_agent, token->agent, sizeof token->agent);
}

/* Whose certificate it is. It is not remembered: the next request of a proxy's connection is
 * somebody else's. */
static enum auth_answer authorise_certificate(struct connection *connection,
                                              const struct digest *digest) {
  struct auth_token token;
  connection->auth_generation = 0;
  enum auth_answer answer = auth_find(connection->server->auth, digest, &token);
  if (answer != AUTH_KNOWN)
    return answer;
  if (!tokens_agent_of_certificate(connection->server, digest, token.agent))
    return AUTH_ASK; /* the worker answers that the server is starting */
  connection_is_of(connection, &token);
  return AUTH_KNOWN;
}

/* Whose token it is: from what the connection remembers, else from the table. Without a header:
 * AUTH_KNOWN, anyone. */
static enum auth_answer authorise(struct connection *connection, const char *authorization,
                                  struct digest *ret_digest) {
  struct auth *auth = connection->server->auth;
  uint64_t generation = auth_generation(auth);
  size_t size = authorization ? strlen(authorization) : 0;
  if (connection->auth_generation == generation && connection->authorization_size == size &&
      !auth_has_expired(connection->auth_expires_ms) &&
      memcmp(connection->authorization, authorization ? authorization : "", size) == 0)
    return AUTH_KNOWN;
  struct auth_token token = {.roles = TOKEN_ANYONE};
  if (authorization) {
    const char *bearer = header_bearer(authorization);
    if (!bearer)
      return AUTH_NOBODY;
    *ret_digest = digest_of(bearer, strlen(bearer));
    enum auth_answer answer = auth_find(auth, ret_digest, &token);
    if (answer != AUTH_KNOWN)
      return answer;
  }
  connection_is_of(connection, &token);
  connection->authorization_size = size;
  connection->auth_generation = size < sizeof connection->authorization ? generation : 0;
  if (size && size < sizeof connection->authorization)
    memcpy(connection->authorization, authorization, size);
  return AUTH_KNOWN;
}

/* The proxy is there so that this does not happen; once is enough to say it. */
static void unencrypted_note(const struct connection *connection, const struct head *head) {
  static atomic_bool is_said;
  if (connection->is_proxy && head->is_forwarded_http && head->authorization &&
      !atomic_exchange(&is_said, true))
    log_warning("http: a client sent its token to the trusted proxy over http:// "
                "(X-Forwarded-Proto): let the proxy take "
                "https:// only");
}

/* A token is taken where there is one. A certificate must be good in any case. */
static void credentials_read(struct connection *connection, const struct head *head,
                             struct credentials *ret) {
  *ret = (struct credentials){.authorization = head->authorization};
  unencrypted_note(connection, head);
  if (!client_certificate(connection, head, &ret->certificate, &ret->refusal)) {
    ret->answer = AUTH_NOBODY;
  } else if (ret->certificate && !head->authorization) {
    ret->digest = ret->certificate->digest;
    ret->answer = authorise_certificate(connection, &ret->digest);
  } else {
    ret->answer = authorise(connection, head->authorization, &ret->digest);
  }
}

static enum MHD_Result send_response(struct request_private *request) {
  struct MHD_Response *response = TAKE(request->response);
  const struct connection *connection = request->connection;
  int64_t from_ns = request->complete_ns ? request->complete_ns : connection->began_ns;
  struct traffic_answer answer = {.route = request->route,
                                  .method = connection->method,
                                  .status = request->status,
                                  .bytes = request->request.is_head ? 0 : request->bytes,
                                  .work_ns = request->answered_ns - from_ns - request->parked_ns,
                                  .waited_ns = request->parked_ns,
                                  .token_name = request->request.token_name,
                                  .connection = connection};
  traffic_note(request->request.server, &answer);
  enum MHD_Result result = MHD_queue_response(request->connection->mhd, request->status, response);
  MHD_destroy_response(response);
  return result;
}

/* The request has its refusal. */
static enum MHD_Result refuse(struct request_private *request, bool may_swallow) {
  if (may_swallow && !request->is_chunked && request->body_declared &&
      request->body_declared <= SWALLOW_MAX) {
    request->state = REQUEST_SWALLOWING;
    return MHD_YES;
  }
  return send_response(request);
}

static enum MHD_Result body_complete(struct request_private *request);

static enum MHD_Result hand_over(struct request_private *request, bool for_token) {
  struct server *server = request->request.server;
  request->is_suspended = true;
  atomic_fetch_add(&server->n_suspended, 1);
  MHD_suspend_connection(request->connection->mhd);
  enum queue_answer answer = queue_add(server->queue, request, for_token);
  if (answer == QUEUE_FULL) {
    counter_add(COUNTER_queue_shed, 1);
    request_problem(&request->request, MHD_HTTP_SERVICE_UNAVAILABLE, "",
                    "too many requests wait for the database; try again");
  } else if (answer == QUEUE_STOPPING) {
    request_problem(&request->request, MHD_HTTP_SERVICE_UNAVAILABLE, "",
                    "the server is stopping; try again");
  }
  return MHD_YES;
}

/* With --require-enrolment agents have tokens of their own: whether a server takes one that is
 * bound to this agent. */
static bool token_is_enough(const struct server *server, unsigned roles, const char *token_agent) {
  return roles != TOKEN_AGENT || *token_agent || !server_options(server)->require_enrolment;
}

/* The same for a request whose route is known, which may be for agents only; false: it is
 * answered. */
static bool token_suffices(struct request *request) {
  const struct route *route = route_of(request->route);
  bool is_for_agents = route->roles == MAY_WORK || route->roles == MAY_ENROL;
  if (!server_options(request->server)->require_enrolment || *request->token_agent ||
      request->roles == TOKEN_ENROL || (request->roles != TOKEN_AGENT && !is_for_agents))
    return true;
  request_problem(request, 403, "",
                  "this server takes agents with tokens of their own only, and \"%s\" is no "
                  "agent's: make a token with "
                  "\"wavetune token make NAME --role enrol\" and start the agent with it",
                  request->token_name);
  return false;
}

/* The role is known: may it, and does the body, as announced, fit? */
static enum MHD_Result begin_body(struct request_private *request) {
  const struct route *route = request->route;
  if (!roles_may(request->request.roles, route->roles)) {
    cleanup_free char *needed = roles_text(route->roles, " or "),
                      *held = roles_text(request->request.roles, ",");
    traffic_note_refusal(TRAFFIC_REFUSED_ROLE);
    request_problem(&request->request, MHD_HTTP_FORBIDDEN, "",
                    "%s %s needs the role %s; the token \"%s\" has the role %s", route->method,
                    route->path, needed, request->request.token_name, held);
    return refuse(request, true);
  }
  if (!token_suffices(&request->request)) {
    traffic_note_refusal(TRAFFIC_REFUSED_IDENTITY);
    return refuse(request, true);
  }
  if (route->body_max == 0 && (request->body_declared || request->is_chunked)) {
    request_problem(&request->request, MHD_HTTP_CONTENT_TOO_LARGE, "", "%s %s takes no body",
                    route->method, route->path);
    return refuse(request, true);
  }
  if (route->body_max && !request->has_length && !request->is_chunked) {
    request_problem(&request->request, MHD_HTTP_LENGTH_REQUIRED, "",
                    "%s %s needs a body with a Content-Length", route->method, route->path);
    return refuse(request, true);
  }
  if (request->body_declared > route->body_max) {
    request_problem(&request->request, MHD_HTTP_CONTENT_TOO_LARGE, "",
                    "the body has %llu bytes; the limit is %zu",
                    (unsigned long long)request->body_declared, route->body_max);
    return refuse(request, true);
  }
  request->state = REQUEST_READING;
  return head_has_body(&request->connection->head) ? MHD_YES : body_complete(request);
}

static enum MHD_Result unauthorised(struct request_private *request, enum traffic_refusal refusal,
                                    const char *why) {
  traffic_note_refusal(refusal);
  client_note_refused(&request->request, why);
  request_problem(&request->request, MHD_HTTP_UNAUTHORIZED, "", "%s", why);
  return refuse(request, true);
}

static enum MHD_Result begin_route(struct request_private *request,
                                   const struct credentials *credentials) {
  if (request->route->roles == TOKEN_ANYONE)
    return begin_body(request);
  if (*credentials->refusal.message)
    return unauthorised(request, TRAFFIC_REFUSED_UNKNOWN, credentials->refusal.message);
  if (!credentials->authorization && !credentials->certificate)
    return unauthorised(request, TRAFFIC_REFUSED_MISSING,
                        "a token is needed: send \"Authorization: Bearer TOKEN\"");
  request->request.is_by_certificate = !credentials->authorization;
  switch (credentials->answer) {
  case AUTH_KNOWN:
    request->request.roles = request->connection->auth_roles;
    request->auth_generation = request->connection->auth_generation;
    request->auth_expires_ms = request->connection->auth_expires_ms;
    memcpy(request->request.token_name, request->connection->auth_name,
           sizeof request->request.token_name);
    request->request.token_id = request->connection->auth_id;
    memcpy(request->request.token_agent, request->connection->auth_agent,
           sizeof request->request.token_agent);
    return begin_body(request);
  case AUTH_ASK:
    request->token = credentials->digest;
    return hand_over(request, true);
  case AUTH_BUSY:
    request_problem(&request->request, MHD_HTTP_SERVICE_UNAVAILABLE, "",
                    "too many unknown tokens are being tried; try again");
    return refuse(request, true);
  default:
    tokens_answer_unknown(request, credentials->answer == AUTH_EXPIRED);
    return refuse(request, true);
  }
}

static enum MHD_Result begin(struct connection *connection, const char *method,
                             const struct head *head, const struct credentials *credentials) {
  struct request_private *request = request_new(connection);
  struct error error;
  char allow[ROUTE_ALLOW_SIZE];
  const char *wrong = head_wrong(head);
  request->has_length = head->n_length > 0;
  request->body_declared = head->length;
  request->is_chunked = head->is_chunked;
  request->request.is_head = strcmp(method, "HEAD") == 0;
  if (wrong) {
    request_add_header(&request->request, MHD_HTTP_HEADER_CONNECTION, "close");
    request_problem(&request->request, MHD_HTTP_BAD_REQUEST, "", "%s", wrong);
    return refuse(request, false);
  }
  if (!uri_parse(connection->target_long ? connection->target_long : connection->target,
                 &request->uri, &error)) {
    request_problem_extra(&request->request, MHD_HTTP_BAD_REQUEST, &error, NULL);
    return refuse(request, true);
  }
  switch (route_find(method, &request->uri, &request->route, request->request.segments, allow)) {
  case ROUTE_NO_PATH:
    request_problem(&request->request, MHD_HTTP_NOT_FOUND, "",
                    "there is no such route; GET /openapi.json lists them");
    return refuse(request, true);
  case ROUTE_NO_METHOD:
    request_add_header(&request->request, MHD_HTTP_HEADER_ALLOW, allow);
    request_problem(&request->request, MHD_HTTP_METHOD_NOT_ALLOWED, "",
                    "the method %.16s is not allowed here; %s is", method, allow);
    return refuse(request, true);
  default:
    request->request.route = request->route->id;
    return begin_route(request, credentials);
  }
}

static void send_remembered(void *context, const struct remembered_answer *remembered) {
  struct connection *connection = context;
  struct traffic_answer answer = {.route = route_of(remembered->route),
                                  .method = connection->method,
                                  .status = remembered->status,
                                  .bytes = connection->method[0] == 'H' ? 0 : remembered->size,
                                  .work_ns = clock_monotonic_ns() - connection->began_ns,
                                  .token_name = connection->auth_name,
                                  .connection = connection};
  MAGIC_CHECK(connection, CONNECTION_MAGIC);
  traffic_note(connection->server, &answer);
  response_header(remembered->response, REQUEST_ID_HEADER, connection->request_id);
  MHD_queue_response(connection->mhd, remembered->status, remembered->response);
}

static enum MHD_Result begin_connection(struct connection *connection, const char *method) {
  const struct head *head = &connection->head;
  struct credentials credentials;
  struct server *server = connection->server;
  credentials_read(connection, head, &credentials);
  bool is_plain = (strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0) &&
                  !head_has_body(head) && !head_wrong(head) && !connection->target_long;
  connection->is_begun = true;
  if (is_plain && credentials.answer == AUTH_KNOWN &&
      token_is_enough(server, connection->auth_roles, connection->auth_agent) &&
      response_memory_answer(server->memory, connection->target, connection->target_size,
                             connection->auth_roles, head->if_none_match, send_remembered,
                             connection) == MEMORY_ANSWERED) {
    counter_add(COUNTER_requests, 1);
    counter_add(COUNTER_responses_memory, 1);
    return MHD_YES;
  }
  return begin(connection, method, head, &credentials);
}

static void body_append(struct request_private *request, const char *bytes, size_t size) {
  struct request *public = &request->request;
  if (public->body_size + size + 1 > request->body_capacity) {
    size_t capacity = request->body_capacity ? request->body_capacity * 2 : BODY_FIRST_CAPACITY;
    while (capacity < public->body_size + size + 1)
      capacity *= 2;
    /* What was announced is the most that can come. */
    if (request->has_length && capacity > request->body_declared + 1)
      capacity = request->body_declared + 1;
    public->body = xreallocarray(public->body, capacity, 1);
    request->body_capacity = capacity;
  }
  memcpy(public->body + public->body_size, bytes, size);
  public->body_size += size;
  public->body[public->body_size] = '\0';
}

static enum MHD_Result body_arrives(struct request_private *request, const char *bytes,
                                    size_t *size) {
  size_t n = *size;
  *size = 0;
  if (request->state == REQUEST_READING &&
      n <= request->route->body_max - request->request.body_size) {
    body_append(request, bytes, n);
    return MHD_YES;
  }
  if (request->state == REQUEST_READING) {
    request_problem(&request->request, MHD_HTTP_CONTENT_TOO_LARGE, "",
                    "the body has more than %zu bytes", request->route->body_max);
    request->state = REQUEST_SWALLOWING;
  }
  request->swallowed += n;
  return request->swallowed > SWALLOW_MAX ? MHD_NO : MHD_YES;
}

bool request_parse_body(struct request_private *request) {
  struct error error;
  if (!request->route->is_json || request->request.json)
    return true;
  if (json_parse(request->request.body ? request->request.body : "", request->request.body_size,
                 &request->request.json, &error))
    return true;
  request_problem_extra(&request->request, MHD_HTTP_BAD_REQUEST, &error, NULL);
  return false;
}

static void run_in_memory(struct request_private *request) {
#define HANDLE_ROUTE_DATABASE(id)
#define HANDLE_ROUTE_MEMORY(id)                                                                    \
  case ROUTE_##id:                                                                                 \
    route_##id(request->request.server, &request->request);                                        \
    break;
#define X(id, method, path, role, place, ...) HANDLE_##place(id)
  switch (request->route->id) {
    ROUTES(X)
  default:
    die("%s does not run in memory", request->route->name);
  }
#undef X
}

static enum MHD_Result body_complete(struct request_private *request) {
  request->complete_ns = clock_monotonic_ns();
  if (request->route->place != ROUTE_MEMORY)
    return hand_over(request, false);
  request->state = REQUEST_RUNNING;
  if (request_parse_body(request))
    run_in_memory(request);
  ALWAYS(request->state == REQUEST_ANSWERED);
  return send_response(request);
}

static void head_read(struct connection *connection, const char *method) {
  struct head *head = &connection->head;
  connection->is_read = true;
  connection->began_ns = clock_monotonic_ns();
  *head = (struct head){0};
  MHD_get_connection_values(connection->mhd, MHD_HEADER_KIND, header_note, head);

  size_t length = strnlen(method, METHOD_SIZE - 1);
  memcpy(connection->method, method, length);
  connection->method[length] = '\0';
  if (head->n_request_id == 1 && request_id_is_good(head->request_id))
    memcpy(connection->request_id, head->request_id, strlen(head->request_id) + 1);
  else
    request_id_make(connection->request_id);
  log_set_request(connection->request_id);
}

static enum MHD_Result access_go_on(struct connection *connection, const char *method,
                                    const char *upload_data, size_t *upload_data_size) {
  if (!connection->is_read) {
    head_read(connection, method);
    return head_has_body(&connection->head) ? begin_connection(connection, method) : MHD_YES;
  }
  if (!connection->is_begun)
    return begin_connection(connection, method);
  struct request_private *request = connection->request;
  MAGIC_CHECK(&request->request, REQUEST_MAGIC);
  request->is_suspended = false;
  switch (request->state) {
  case REQUEST_AUTHORISED:
    return begin_body(request);
  case REQUEST_ANSWERED:
    /* A refused token's body, if it has one, was not read yet. */
    return request->route->body_max && !request->request.body_size ? refuse(request, true)
                                                                   : send_response(request);
  case REQUEST_READING:
  case REQUEST_SWALLOWING:
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
  (void)server, (void)mhd, (void)url, (void)version;
  struct connection *connection = *context;
  MAGIC_CHECK(connection, CONNECTION_MAGIC);
  if (connection->is_read)
    log_set_request(connection->request_id);
  enum MHD_Result result = access_go_on(connection, method, upload_data, upload_data_size);
  log_set_request(NULL);
  return result;
}
