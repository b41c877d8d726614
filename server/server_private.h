/* The members of struct server, for server/, server/http and the modules whose objects it owns; and
 * its HTTP daemon. */
#ifndef WAVETUNE_SERVER_SERVER_PRIVATE_H
#define WAVETUNE_SERVER_SERVER_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "common/cache/signing_key.h"
#include "server/http/client.h"
#include "server/http/queue.h"
#include "server/server.h"

#define SERVER_MAGIC 0x53525631u
#define NOT_READY_SIZE 256

struct agent_table;
struct auth;
struct blob_cache;
struct bodies;
struct connections;
struct daemon;
struct documents;
struct fetches;
struct fleet;
struct flights;
struct migrations;
struct leasing;
struct oidc;
struct request_rates;
struct response_cache;
struct sign_in;
struct tls;
struct token_rates;
struct worker_thread {
  struct worker worker;
  pthread_t thread;
};

struct server {
  uint32_t magic;
  struct server_options options; /* its texts are the server's own */
  struct queue *queue;
  struct auth *auth;
  struct response_cache *response_cache;
  struct flights *flights;
  struct blob_cache *blobs;
  struct fetches *fetches;
  /* Of the POSTs of demand, evidence (and of evidence with counters alone), captures. */
  struct token_rates *demand_rates, *evidence_rates, *counters_rates, *capture_rates;
  struct request_rates *request_rates;
  struct bodies *bodies;
  struct documents *documents, *agreed; /* of releases; of what containers agree on */
  struct agent_table *agents;
  struct fleet *fleet;
  struct leasing *leasing;
  atomic_size_t n_live_agents; /* those of all servers, as last read from the database */
  struct trusted_keys publisher_keys;
  size_t n_remote_shares;
  char **remote_shares; /* TOKEN/IMAGE */
  struct networks trusted_proxies;
  struct sign_in *sign_in; /* NULL: no proxy signs users in */
  pthread_rwlock_t oidc_lock;
  struct oidc *oidc; /* NULL: there is no --oidc; under oidc_lock */
  struct tls *tls;   /* NULL: neither a certificate nor authorities of client certificates */
  struct daemon *daemon;
  struct connections *connections;
  char *openapi;                     /* the document's text */
  struct page *page;                 /* the web page's files */
  atomic_size_t n_open, n_suspended; /* requests begun and not completed; of these, suspended */
  int n_threads;                     /* that were started */
  struct worker_thread *threads;     /* the workers' and up to four more (threads_start) */
  pthread_mutex_t stop_lock;
  pthread_cond_t stop_signal;
  bool is_stopping;
  int64_t started_ms;
  struct migrations *migrations;
  /* The housekeeper's: */
  bool is_migrated;               /* by this process, with options.migrate */
  int64_t migrate_at_ms;          /* the next attempt, at the earliest */
  pthread_mutex_t reason_lock;    /* for not_ready, which other threads read */
  char not_ready[NOT_READY_SIZE]; /* the reason that was logged last */
  int64_t not_ready_logged_ms;
  pthread_mutex_t health_lock; /* for the next three */
  struct database_health health;
  struct lease_counts lease_counts;
  char *fleet_metrics;          /* NULL: not read yet */
  int64_t fleet_metrics_ms;     /* when it was read, by clock_monotonic_ms */
  atomic_bool is_ready;         /* at the last check by the housekeeper */
  atomic_bool has_lease_secret; /* written once, by the housekeeper */
  uint8_t lease_secret[SERVER_SECRET_SIZE];
};

/* libmicrohttpd's daemon: its socket, its threads, its limits. Threads: the one that starts and
 * stops the server. */
must_check bool daemon_start(struct server *server, struct daemon **ret_daemon,
                             struct error *error);
int daemon_port(const struct daemon *daemon);
/* Accepts no new connections; the open ones stay. */
void daemon_quiesce(struct daemon *daemon);
/* Ends all connections and the threads. No connection may be suspended: libmicrohttpd aborts the
 * process otherwise. */
void daemon_stop(struct daemon *daemon);

/* The main function of a database worker's thread: takes a struct worker_thread. */
void *work_main(void *worker_thread);
/* Why it is not ready; the caller's. Threads: any. */
must_check char *server_not_ready_reason(struct server *server);
struct database_health server_database_health(struct server *server); /* Threads: any. */
struct lease_counts server_lease_counts(struct server *server);       /* Threads: any. */
/* "" if they were read longer ago, or the server is not ready: others may know better. The
 * caller's. Threads: any. */
must_check char *server_fleet_metrics(struct server *server, int64_t known_ms);
/* Waits; false: the server stops. Threads: any. */
must_check bool server_pause(struct server *server, int64_t ms);

#endif
