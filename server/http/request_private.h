/* What http/ knows of a request and its connection beyond request.h.
 *
 * A connection lives as long as its socket and remembers who its last token was, so that a
 * keep-alive client is hashed once. A request lives from its headers to NOTIFY_COMPLETED, the one
 * place that frees it. Answers from memory need no request at all. */
#ifndef WAVETUNE_SERVER_HTTP_REQUEST_PRIVATE_H
#define WAVETUNE_SERVER_HTTP_REQUEST_PRIVATE_H

#include <arpa/inet.h>
#include <microhttpd.h>

#include "common/program/request_id.h"
#include "server/http/park.h"
#include "server/http/router.h"
#include "server/http/uri.h"

#define CONNECTION_MAGIC 0x434f4e31u
#define CONNECTION_TARGET_SIZE 512
#define CONNECTION_AUTHORIZATION_SIZE 288
#define REQUEST_HEADERS_MAX 6
#define METHOD_SIZE 16 /* what is longer is none that there is, and cut */

/* What the headers say, from one walk over them. Texts are libmicrohttpd's, as long as the
 * request. */
struct head {
  const char *authorization, *if_none_match, *request_id;
  const char *forwarded_for;      /* the last X-Forwarded-For: what the nearest proxy added */
  const char *client_certificate; /* X-Client-Cert, for what it is worth: see client.h */
  int n_authorization, n_client_certificate, n_host, n_length, n_request_id;
  bool is_chunked, has_bad_coding, has_bad_length;
  bool is_forwarded_http; /* X-Forwarded-Proto: http */
  uint64_t length;
};

struct connection {
  uint32_t magic;
  struct server *server;
  struct MHD_Connection *mhd;
  int fd;
  struct request_private *request; /* NULL between requests and for answers from memory */
  struct head head;
  bool is_proxy;                          /* a trusted one */
  struct client_certificate *certificate; /* the one that was checked last; NULL: none was */
  /* The access handler is called with the headers, with each piece of the body, and at the end. An
   * answer to the first call makes libmicrohttpd close the connection, so that a request without a
   * body is begun by the last call. */
  bool is_read; /* its headers were looked at */
  bool is_begun;
  int64_t began_ns;                 /* its headers were there */
  char request_id[REQUEST_ID_SIZE]; /* of the request that it has or had last */
  char method[METHOD_SIZE];
  /* The request target as it was sent; `target_long` where it does not fit. */
  size_t target_size;
  char target[CONNECTION_TARGET_SIZE];
  char *target_long;
  /* Whose token came last: true as long as the generation of the tokens is the same. */
  uint64_t auth_generation;
  unsigned auth_roles;
  int64_t auth_expires_ms;
  char auth_name[65];
  int64_t auth_id;
  char auth_agent[33];
  size_t authorization_size;
  char authorization[CONNECTION_AUTHORIZATION_SIZE];
};

enum request_state {
  REQUEST_BEGUN,       /* its headers are being looked at; event thread */
  REQUEST_AUTHORISING, /* suspended; a worker looks its token up */
  REQUEST_AUTHORISED,  /* resumed with its role; event thread */
  REQUEST_READING,     /* its body arrives; event thread */
  REQUEST_SWALLOWING,  /* refused; its small body is read and forgotten, then it is answered; event
                          thread */
  REQUEST_QUEUED,      /* suspended, in the queue */
  REQUEST_RUNNING,     /* a worker's or, for ROUTE_MEMORY, the event thread's */
  REQUEST_PARKED,      /* suspended, in the park */
  REQUEST_ANSWERED,    /* has a response for the event thread to send */
};

struct request_private {
  struct request request;
  struct connection *connection;
  const struct route *route; /* NULL while unknown */
  enum request_state state;
  bool is_suspended;
  struct uri uri;
  struct digest token;      /* of the Authorization header, where it is being looked up */
  uint64_t auth_generation; /* of the tokens when its own was live; 0: look again before it is run
                               anew */
  int64_t auth_expires_ms;  /* of its token; 0: never */
  bool has_length, is_chunked;
  uint64_t body_declared; /* Content-Length */
  size_t body_capacity, swallowed;
  int64_t complete_ns;             /* its body was there; 0: it was refused before */
  int64_t parked_ns, parked_at_ns; /* in the park, all in all and since; 0: it is not */
  int64_t answered_ns;
  unsigned status;
  uint64_t bytes;                /* of the answer's body */
  struct MHD_Response *response; /* owned until it was handed over */
  size_t n_headers;
  struct {
    char *name, *value;
  } headers[REQUEST_HEADERS_MAX];
  struct author author; /* once it was asked for */
  char *author_roles;
  char author_peer[INET6_ADDRSTRLEN];
  uint64_t memory_generation; /* of the channels when this run began */
  /* Links of the queue and the park. */
  uint64_t number;              /* of its place in the FIFO */
  struct request_private *next; /* of the FIFO */
  struct park_item park;
};

static inline struct request_private *request_private_of(const struct request *request) {
  MAGIC_CHECK(request, REQUEST_MAGIC);
  return request->private_;
}

/* Gives the request its response (taken over) and lets the event thread send it. */
void request_finish(struct request_private *request, unsigned status,
                    struct MHD_Response *response);

/* For NOTIFY_COMPLETED only. */
void request_free(struct request_private *request);

/* Requests that the current thread's handler has answered or parked so far; see dispatch. */
extern _Thread_local uint64_t requests_settled;

#endif
