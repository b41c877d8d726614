/* Connections, requests and responses inside server/http.
 *
 * A connection lives as long as its socket and keeps its last token, so that a keep-alive client's
 * token is hashed once. A request lives from its headers to NOTIFY_COMPLETED, which frees it. An
 * answer from the cache needs no request.
 *
 * Threads: a connection belongs to its event thread, a request to its owner (request.h). */
#ifndef WAVETUNE_SERVER_HTTP_REQUEST_PRIVATE_H
#define WAVETUNE_SERVER_HTTP_REQUEST_PRIVATE_H

#include <arpa/inet.h>
#include <microhttpd.h>
#include <pthread.h>

#include "common/program/error_codes.h"
#include "server/http/connections.h"
#include "server/http/deadlines.h"
#include "server/http/limits.h"
#include "server/http/queue.h"
#include "server/http/router.h"
#include "server/http/tokens.h"

/* A thread that serves connections, with its own libmicrohttpd daemon (daemon.c). It lives longer
 * than its connections. */
#define EVENT_THREAD_MAGIC 0x45565431u
struct event_thread {
  uint32_t magic;
  struct server *server;
  struct daemon *daemon;
  struct MHD_Daemon *mhd;
  pthread_t thread;
  int wake_fd; /* an eventfd */
  /* Its own: */
  int64_t now_ms; /* clock_monotonic_ms when its turn began */
  struct deadlines deadlines, held;
};
/* Makes it take a turn: after a connection was resumed. Threads: any. */
void event_thread_wake(struct event_thread *thread);

#define CONNECTION_MAGIC 0x434f4e31u
#define CONNECTION_AUTHORIZATION_SIZE 288
#define REQUEST_HEADERS_MAX 6
#define METHOD_SIZE 16 /* a longer method is cut; no route has one */

/* HEADER(id, name): the headers that the dispatcher reads. */
#define KNOWN_HEADERS(HEADER)                                                                      \
  HEADER(AUTHORIZATION, MHD_HTTP_HEADER_AUTHORIZATION)                                             \
  HEADER(CLIENT_CERTIFICATE, "X-Client-Cert")                                                      \
  HEADER(FETCH_SITE, "Sec-Fetch-Site")                                                             \
  HEADER(FORWARDED_FOR, "X-Forwarded-For")                                                         \
  HEADER(FORWARDED_GROUPS, NULL) /* the name that serve --sign-in-groups-header has */             \
  HEADER(FORWARDED_PROTO, "X-Forwarded-Proto")                                                     \
  HEADER(FORWARDED_USER, NULL) /* --sign-in-user-header */                                         \
  HEADER(HOST, MHD_HTTP_HEADER_HOST)                                                               \
  HEADER(IF_NONE_MATCH, MHD_HTTP_HEADER_IF_NONE_MATCH)                                             \
  HEADER(LENGTH, MHD_HTTP_HEADER_CONTENT_LENGTH)                                                   \
  HEADER(ORIGIN, "Origin")                                                                         \
  HEADER(PAGE, "X-Wavetune")                                                                       \
  HEADER(PROXY_SECRET, "X-Wavetune-Proxy")                                                         \
  HEADER(REQUEST_ID, REQUEST_ID_HEADER)                                                            \
  HEADER(TRANSFER_ENCODING, MHD_HTTP_HEADER_TRANSFER_ENCODING)

enum known_header {
#define X(id, name) HEADER_##id,
  KNOWN_HEADERS(X)
#undef X
      HEADER_COUNT
};

struct connection {
  uint32_t magic;
  struct server *server;
  struct http *http; /* the server's */
  struct event_thread *event_thread;
  struct MHD_Connection *mhd;
  int fd;
  struct request_private *request; /* NULL between requests and for cached answers */
  /* The headers of the present request: how often each occurs, and its last value, borrowed from
   * libmicrohttpd. */
  int n_headers[HEADER_COUNT];
  const char *headers[HEADER_COUNT];
  bool is_chunked, has_bad_length;
  uint64_t length; /* Content-Length */
  bool is_proxy;   /* the peer is a trusted proxy */
  /* Of connections.c: */
  TAILQ_ENTRY(connection) in_strangers, in_peer;
  enum connection_class class; /* changed by its event thread alone */
  bool has_peer, is_ended;     /* under the lock of the connections */
  uint8_t peer[16];            /* its address, or the first 64 bits of it */
  /* Of deadlines.c: */
  TAILQ_ENTRY(connection) with_deadline; /* or with those that are held, which have none */
  int64_t deadline_ms;                   /* 0: none */
  int64_t held_until_ms;
  enum connection_end deadline_reason;
  int64_t body_began_ms;
  uint64_t body_arrived;
  struct client_certificate *certificate; /* the last one that was checked; NULL: none */
  /* The access handler is called with the headers, with each piece of the body, and at the end. An
   * answer in the first call makes libmicrohttpd close the connection, so a request without a body
   * begins in the last call. */
  bool is_read; /* the request's headers were read */
  bool is_begun;
  int64_t began_ns;                 /* when its headers were read */
  char request_id[REQUEST_ID_SIZE]; /* of the present or the last request */
  char method[METHOD_SIZE];
  char *target; /* the request target as it was sent */
  size_t target_size;
  const char *target_at;  /* in libmicrohttpd's buffer */
  const char *head_fault; /* of the present request; NULL: none (head.h) */
  /* The last token, valid while the generation of the tokens is the same (0: not valid), and the
   * Authorization header that it came in. */
  uint64_t auth_generation;
  struct auth_token token;
  size_t authorization_size;
  char authorization[CONNECTION_AUTHORIZATION_SIZE];
};

enum request_state {
  REQUEST_BEGUN,       /* its headers are being checked; event thread */
  REQUEST_AUTHORISING, /* suspended; a worker looks its token up */
  REQUEST_AUTHORISED,  /* resumed with its role; event thread */
  REQUEST_READING,     /* its body arrives; event thread */
  REQUEST_DISCARDING,  /* refused; its small body is read and dropped; event thread */
  REQUEST_QUEUED,      /* suspended, in the queue */
  REQUEST_RUNNING,     /* its handler runs, on a worker or an event thread */
  REQUEST_PARKED,      /* suspended, in the park */
  REQUEST_ANSWERED,    /* has a response for the event thread to send */
};

struct request_private {
  struct request request;
  struct connection *connection;
  const struct route *route; /* NULL while unknown */
  enum request_state state;
  bool is_suspended;
  bool is_beyond_rate; /* its refusal will be held (deadlines.h) */
  struct uri uri;
  struct digest token; /* of the token or certificate that is looked up */
  /* The tokens' generation when this one was found; 0: it is checked before the request runs
   * again. */
  uint64_t auth_generation;
  int64_t auth_expires_ms;    /* of its token; 0: never */
  int64_t session_expires_ms; /* of a provider's token, whose identity is looked up; 0: none */
  bool has_length, is_chunked;
  uint64_t body_declared; /* Content-Length */
  size_t body_capacity, discarded;
  size_t body_counted, json_counted; /* taken of the budget (bodies.h) */
  int64_t complete_ns;               /* when its body was read; 0: it was refused before */
  int64_t parked_ns;                 /* time in the park in total */
  int64_t parked_at_ns;              /* when it was parked; 0: it is not */
  int64_t answered_ns;
  unsigned status;
  uint64_t bytes;                /* of the answer's body */
  struct MHD_Response *response; /* owned until it is queued */
  size_t n_headers;
  struct {
    char *name, *value;
  } headers[REQUEST_HEADERS_MAX];
  struct author author; /* made by request_author */
  char *author_roles;
  char author_peer[INET6_ADDRSTRLEN];
  uint64_t cache_generation; /* of the response cache when this run began */
  uint64_t flight;           /* that it waits for, or waited for; 0: none (flights.h) */
  /* Links of the queue and the park. */
  uint64_t number; /* grows with each request that is added to the queue */
  STAILQ_ENTRY(request_private) next;
  struct park_item park;
};

static inline struct request_private *request_private_of(const struct request *request) {
  MAGIC_CHECK(request, REQUEST_MAGIC);
  return request->private_;
}

/* libmicrohttpd's callbacks (dispatch.c); none blocks. */
void dispatch_connection(void *event_thread, struct MHD_Connection *mhd, void **socket_context,
                         enum MHD_ConnectionNotificationCode code);
void *dispatch_target(void *server, const char *target, struct MHD_Connection *mhd);
enum MHD_Result dispatch_access(void *server, struct MHD_Connection *mhd, const char *url,
                                const char *method, const char *version, const char *upload_data,
                                size_t *upload_data_size, void **connection);
void dispatch_completed(void *server, struct MHD_Connection *mhd, void **connection,
                        enum MHD_RequestTerminationCode code);

/* Copies the members of the token that handlers read into the request. */
void request_set_token(struct request_private *request, const struct auth_token *token);

/* Parses the body of a JSON route, once. When it is not JSON, or would take too much memory,
 * answers and returns false. */
must_check bool request_body_parse(struct request_private *request);
/* Runs the route's handler. `worker` is NULL on an event thread. */
void request_handle(struct worker *worker, struct request *request);

/* Gives the request its response (taken over), whose body has `size` bytes, and lets the event
 * thread send it. Unlike for the request_answer… functions, a header may be in the response. */
void request_finish(struct request *request, int status, struct MHD_Response *response,
                    size_t size);

/* Takes `bytes` more of the budget of bodies for this request and adds them to *counted. False: it
 * was answered 503 or 429. */
must_check bool request_take_memory(struct request_private *request, size_t bytes, size_t *counted);

/* Resumes the connection of a request, if it is suspended: its event thread continues. */
void request_resume(struct request_private *request);

/* How many requests this thread has answered or parked: one for each run of a handler. */
extern _Thread_local uint64_t requests_settled;

/* Responses as libmicrohttpd's objects. Any thread. */
must_check struct MHD_Response *response_empty(void);
void response_header(struct MHD_Response *response, const char *name, const char *value);
/* ETag and Cache-Control. */
void response_entity_headers(struct MHD_Response *response, const char *etag, bool immutable);
const char *status_title(int status);

/* Problem documents with a status that no kind of error has (400, 405, 413, …). Handlers use
 * answer_refusal, where the kind of error decides the status. `extra` (may be NULL, taken over)
 * holds extension members. */
void request_problem(struct request *request, int status, const char *format, ...)
    printf_like(3, 4);
void request_problem_extra(struct request *request, int status, const struct error *error,
                           json_t *extra);

/* Limits events to `per_second` on average and `burst` at once. All members are 0 at first. The
 * caller holds a lock. */
struct rate {
  double left;
  int64_t at_ms; /* of the last event; 0: none */
};
static inline bool rate_take(struct rate *rate, int64_t now_ms, double per_second, double burst) {
  double gained = (double)(now_ms - rate->at_ms) * per_second / 1000;
  rate->left = rate->at_ms && rate->left + gained < burst ? rate->left + gained : burst;
  rate->at_ms = now_ms;

  bool may = rate->left >= 1;
  rate->left -= may;
  return may;
}

/* Counts an answer that is about to be sent, and logs it (--log-requests) with the id of
 * log_set_request. Any thread. */
struct answer_note {
  const struct route *route; /* NULL: no route matched */
  unsigned status;
  uint64_t bytes;  /* of the answer's body */
  int64_t work_ns; /* from the whole request to its answer, without waiting in the park */
  int64_t waited_ns;
  const char *token_name; /* "": without a token */
  const struct connection *connection;
};
void metrics_note_answer(const struct answer_note *note);

/* Counts what was refused because of a limit of tokens. Any thread. */
void metrics_note_limit(enum limit limit);
/* Counts a connection that the server closed. Any thread. */
void metrics_note_end(enum connection_end reason);

#endif
