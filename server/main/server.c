/* Starts and stops the coordinator: daemon, workers, housekeeper. */
#include "server/main/start.h"

#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "common/base/lock.h"
#include "common/base/log.h"
#include "server/agent/agents.h"
#include "server/blob/blobs.h"
#include "server/blob/collect.h"
#include "server/cache/fetches.h"
#include "server/capture/captures.h"
#include "server/channel/channels.h"
#include "server/choice/choices.h"
#include "server/choice/documents.h"
#include "server/db/migrate.h"
#include "server/demand/demand.h"
#include "server/fleet/fleet.h"
#include "server/gauges.h"
#include "server/health/health.h"
#include "server/http/http.h"
#include "server/http/rates.h"
#include "server/http/tokens.h"
#include "server/lease/leasing.h"
#include "server/lease/shares.h"
#include "server/measure/grants.h"
#include "server/oidc/oidc.h"
#include "server/policy/policy.h"
#include "server/remote/remote.h"

#define HOUSEKEEP_EVERY_MS 250
#define READY_EVERY_MS 1000
#define NOT_READY_EVERY_MS 60000
/* Deadline of the check, for a database that hangs. */
#define READY_CHECK_MS 5000
/* A server is not ready when PostgreSQL has not answered it for this long. The housekeeper's check
 * runs a query every second, so an idle server has recent answers too. */
#define READY_STALE_MS 10000
/* How long running requests may take to end when the server stops; and all threads. An attempt to
 * connect cannot be interrupted, and takes 5 s for each address and longer to resolve a name. */
#define STOP_GRACE_S 3
#define STOP_S 8
#define FILES_EVERY_MS 1000
#define BLOB_CACHE_BYTES_MAX (128 * (size_t)MIB)
#define NOT_READY_SIZE 256

/* OBJECT(type, name, how it is made): the objects of the subjects, which start empty. The header of
 * the subject declares server_NAME(), so an object is reached only from where tests/includes.py
 * allows that header. */
/* clang-format off */
#define OBJECTS(OBJECT) \
  OBJECT(gauges, gauges, gauges_new()) \
  OBJECT(fetches, fetches, fetches_new()) \
  OBJECT(http, http, http_new(options, fetches_of_cached, server->fetches)) \
  OBJECT(oidc, oidc, oidc_new(server_auth(server))) \
  OBJECT(agent_table, agents, agent_table_new()) \
  OBJECT(blob_cache, blobs, blob_cache_new(BLOB_CACHE_BYTES_MAX)) \
  OBJECT(documents, documents, documents_new()) \
  OBJECT(token_rates, counters_rates, token_rates_new(COUNTERS_POSTS_PER_MINUTE)) \
  OBJECT(token_rates, capture_rates, token_rates_new(CAPTURE_POSTS_PER_MINUTE)) \
  OBJECT(token_rates, demand_rates, token_rates_new(DEMAND_POSTS_PER_MINUTE)) \
  OBJECT(fleet, fleet, fleet_new()) \
  OBJECT(leasing, leasing, leasing_new())
/* clang-format on */

struct worker_thread {
  struct worker worker;
  pthread_t thread;
};

#define SERVER_MAGIC 0x53525631u
struct server {
  uint32_t magic;
  struct server_options options;
#define X(type, name, make) struct type *name;
  OBJECTS(X)
#undef X
  struct trusted_keys publisher_keys;
  int n_threads;                 /* that were started */
  struct worker_thread *threads; /* the workers' and up to four more (threads_start) */
  pthread_mutex_t stop_lock;
  pthread_cond_t stop_signal;
  bool is_stopping;
  /* The housekeeper's: */
  struct migrations *migrations;
  bool is_migrated;               /* by this process, with options.migrate */
  int64_t migrate_at_ms;          /* the next attempt, at the earliest */
  pthread_mutex_t reason_lock;    /* for not_ready, which other threads read */
  char not_ready[NOT_READY_SIZE]; /* the reason that was logged last */
  int64_t not_ready_logged_ms;
  atomic_bool is_ready;         /* at its last check */
  atomic_bool has_lease_secret; /* written once */
  uint8_t lease_secret[SERVER_SECRET_SIZE];
};

#define X(type, name, make)                                                                        \
  struct type *server_##name(const struct server *server) { return server->name; }
OBJECTS(X)
#undef X

static void reason_set(struct server *server, const char *why_not) {
  HOLD(&server->reason_lock);
  snprintf(server->not_ready, sizeof server->not_ready, "%.*s", NOT_READY_SIZE - 1, why_not);
}

/* Logs why the server is not ready, at once and every minute. The reason may contain the database's
 * address, so only operators get it. */
static void ready_set(struct server *server, const char *why_not) {
  bool was_ready = atomic_exchange(&server->is_ready, why_not == NULL);
  int64_t now_ms = clock_monotonic_ms();
  if (!why_not) {
    if (!was_ready)
      log_info("server: ready");
    reason_set(server, "");
    return;
  }

  if (strncmp(server->not_ready, why_not, NOT_READY_SIZE - 1) == 0 &&
      now_ms - server->not_ready_logged_ms < NOT_READY_EVERY_MS)
    return;

  reason_set(server, why_not);
  server->not_ready_logged_ms = now_ms;
  log_warning("server: not ready: %s", why_not);
}

bool server_is_ready(const struct server *server) {
  return atomic_load(&server->is_ready) && clock_monotonic_ms() - db_answered_ms() < READY_STALE_MS;
}

char *server_not_ready_reason(struct server *server) {
  pthread_mutex_lock(&server->reason_lock);
  char *reason = xstrdup(server->not_ready);
  pthread_mutex_unlock(&server->reason_lock);
  if (*reason)
    return reason;

  free(reason); /* the check itself waits */
  return xasprintf("the database has not answered for %lld s",
                   (long long)(clock_monotonic_ms() - db_answered_ms()) / 1000);
}

/* Applies missing migrations once, for `serve --migrate`. When one fails, it is tried again after
 * NOT_READY_EVERY_MS, because it may run for minutes before it fails. */
static bool missing_apply(struct worker *worker, struct error *error) {
  struct server *server = worker->server;
  int applied;
  if (!server->options.migrate || server->is_migrated)
    return true;
  if (clock_monotonic_ms() < server->migrate_at_ms)
    return error_set(error, "%s", server->not_ready);

  server->is_migrated = migrate(worker->db, server->migrations, &applied, error);
  if (!server->is_migrated && error->kind != ERROR_UNAVAILABLE && error->kind != ERROR_DEADLINE)
    server->migrate_at_ms = clock_monotonic_ms() + NOT_READY_EVERY_MS;
  return server->is_migrated;
}

static bool version_read(struct worker *worker, int64_t *ret_version, struct error *error) {
  db_set_deadline(worker->db, clock_monotonic_ms() + READY_CHECK_MS);
  bool is_good = migrate_version(worker->db, ret_version, error);
  db_set_deadline(worker->db, 0);
  return is_good;
}

static void ready_check(struct worker *worker) {
  struct server *server = worker->server;
  struct error error;
  int64_t version, known = migrations_version(server->migrations);
  bool is_ready = version_read(worker, &version, &error) && missing_apply(worker, &error) &&
                  version_read(worker, &version, &error);
  if (is_ready && version != known)
    is_ready = error_set(&error,
                         version < known
                             ? "the database has schema version %lld, this program needs %lld: run "
                               "\"wavetune-server migrate\""
                             : "the database has schema version %lld, this program knows %lld: "
                               "install the newer wavetune-server",
                         (long long)version, (long long)known);

  is_ready = is_ready && (atomic_load(&server->has_lease_secret) ||
                          tokens_secret(worker->db, server->lease_secret, &error));
  if (is_ready)
    atomic_store(&server->has_lease_secret, true);
  ready_set(server, is_ready ? NULL : error.message);
}

bool server_pause(struct server *server, int64_t ms) {
  struct timespec until = time_in(ms);
  int reason = 0;
  HOLD(&server->stop_lock);
  while (ms && !server->is_stopping && reason != ETIMEDOUT)
    reason = pthread_cond_timedwait(&server->stop_signal, &server->stop_lock, &until);
  return !server->is_stopping;
}

static void *housekeep_main(void *context) {
  static const struct {
    void (*run)(struct worker *worker);
    int64_t every_ms; /* 0: the duty decides when it is due */
    /* Or, where a failure is logged and what takes long rests (due_again_ms): */
    bool (*attempt)(struct worker *worker, struct error *error);
    const char *what;
    int64_t rest, most_ms;
  } duties[] = {{tokens_housekeep, 2000},
                {channels_housekeep, 0},
                {agents_look_up, 0},
                {agents_housekeep, 1000},
                {NULL, LEASES_EXPIRE_MS, leases_expire_all, "leases"},
                {NULL, 500, lease_fronts_survey, "leases", 20, 60000},
                {NULL, 5000, leases_sweep, "leases", 20, 60000},
                {NULL, 5000, leases_count, "leases", 20, 60000},
                {NULL, 60000, leases_cancel_all_ended, "leases"},
                {NULL, 1000, shares_refresh, "shares", 50, 60000},
                {demand_housekeep, 10000},
                {fetches_housekeep, 0},
                {remote_housekeep, 60000},
                {captures_housekeep, 60000},
                {health_housekeep, 5000},
                {fleet_housekeep, 0},
                {files_housekeep, 0}};
  int64_t due_ms[ARRAY_LENGTH(duties)] = {0};
  struct worker *worker = context;
  struct server *server = worker->server;
  int64_t ready_at_ms = 0, files_at_ms = 0;
  bool is_stopping = false;
  MAGIC_CHECK(worker, WORKER_MAGIC);
  while (!is_stopping) {
    int64_t now_ms = clock_monotonic_ms();
    if (now_ms >= files_at_ms) {
      http_reload_changed(server->http);
      files_at_ms = now_ms + FILES_EVERY_MS;
    }
    if (now_ms >= ready_at_ms) {
      ready_check(worker);
      ready_at_ms = now_ms + READY_EVERY_MS;
    }
    /* The tables exist only after the first migration. */
    for (size_t i = 0; server->is_ready && i < ARRAY_LENGTH(duties); i++) {
      struct error error;
      int64_t began_ms = clock_monotonic_ms();
      if (began_ms < due_ms[i])
        continue;
      if (duties[i].run)
        duties[i].run(worker);
      else if (!duties[i].attempt(worker, &error))
        log_warning("%s: %s", duties[i].what, error.message);
      due_ms[i] = due_again_ms(began_ms, duties[i].every_ms, duties[i].rest, duties[i].most_ms);
      /* When the database hangs, each duty would wait for its own deadline. */
      if (!db_is_connected(worker->db)) {
        ready_at_ms = 0;
        break;
      }
    }

    is_stopping = !server_pause(server, HOUSEKEEP_EVERY_MS);
  }

  if (server->is_ready)
    fetches_write(worker);
  return NULL;
}

/* The workers, the threads that collect (with --keep-days), prepare choices and follow the policy,
 * and, last, the housekeeper. */
static bool threads_start(struct server *server, struct error *error) {
  void *(*const others[])(void *) = {collect_main, prepare_main, policy_main, housekeep_main};
  int n_workers = server->options.workers, first = server->options.keep_days ? 0 : 1,
      n = n_workers + (int)ARRAY_LENGTH(others) - first;
  server->threads = xcalloc((size_t)n, sizeof *server->threads);
  while (server->n_threads < n) {
    struct worker_thread *thread = &server->threads[server->n_threads];
    void *(*run)(void *) =
        server->n_threads < n_workers ? work_main : others[server->n_threads - n_workers + first];
    thread->worker = (struct worker){.magic = WORKER_MAGIC,
                                     .server = server,
                                     .db = db_new(server->options.database, "wavetune-server")};
    db_set_run_ms(thread->worker.db, server->options.database_timeout_ms);
    leasing_attach(server->leasing, thread->worker.db);
    int reason = pthread_create(&thread->thread, NULL, run, &thread->worker);
    if (reason) {
      leasing_detach(thread->worker.db);
      db_free(thread->worker.db);
      return error_set(error, "cannot start a thread: %s", strerror(reason));
    }
    server->n_threads++;
  }

  return true;
}

static struct server *server_new(const struct server_options *options) {
  struct server *server = xcalloc(1, sizeof *server);
  server->magic = SERVER_MAGIC;
  server->options = *options;
#define X(type, name, make) server->name = make;
  OBJECTS(X)
#undef X

  pthread_mutex_init(&server->stop_lock, NULL);
  pthread_mutex_init(&server->reason_lock, NULL);
  condition_init(&server->stop_signal);
  return server;
}

/* Reads the files and rules that the options name. */
static bool files_read(struct server *server, struct error *error) {
  const struct server_options *options = &server->options;
  for (size_t i = 0; i < options->n_publisher_keys; i++)
    if (!trusted_keys_add(&server->publisher_keys, options->publisher_keys[i], error))
      return error_prefix(error, "--publisher-key: ");
  if (options->oidc && !oidc_read(server->oidc, options->oidc, error))
    return error_prefix(error, "--oidc: ");
  return remote_shares_check(options, error);
}

bool server_start(const struct server_options *options, struct server **ret_server,
                  struct error *error) {
  cleanup_migrations struct migrations *migrations = NULL;
  if (!migrations_load(&migrations, error))
    return false;

  json_object_seed(0); /* before threads make objects at the same time */
  /* Fixed, because else it grows to 32 MiB, and freed bodies of that size would be kept. */
  mallopt(M_MMAP_THRESHOLD, 1 * MIB);
  struct server *server = server_new(options);
  server->migrations = TAKE(migrations);

  if (!files_read(server, error) || !http_start(server, error) || !threads_start(server, error)) {
    server_stop(server);
    return false;
  }

  if (!http_has_tls(server->http) && !string_starts(options->listen, "127.") &&
      !string_equal(options->listen, "::1"))
    log_warning(
        "server: listening on %s: tokens travel unencrypted unless clients connect through a proxy "
        "with TLS; --tls-certificate encrypts them",
        options->listen);

  *ret_server = server;
  return true;
}

/* The order matters: libmicrohttpd aborts the process when it is stopped with a suspended
 * connection. After http_quiesce requests are suspended only until they are refused; the running
 * ones are answered by the workers that are joined. */
void server_stop(struct server *server) {
  MAGIC_CHECK(server, SERVER_MAGIC);
  http_quiesce(server->http);
  pthread_mutex_lock(&server->stop_lock);
  server->is_stopping = true;
  pthread_cond_broadcast(&server->stop_signal);
  pthread_mutex_unlock(&server->stop_lock);

  struct timespec until, end;
  clock_gettime(CLOCK_REALTIME, &until);
  end = until;
  until.tv_sec += STOP_GRACE_S;
  end.tv_sec += STOP_S;
  for (int i = 0; i < server->n_threads; i++) {
    struct worker_thread *thread = &server->threads[i];
    if (pthread_timedjoin_np(thread->thread, NULL, &until)) {
      /* Running statements fail: of all threads, for one may wait for another (documents_begin). */
      for (int other = i; other < server->n_threads; other++)
        db_stop(server->threads[other].worker.db);
      if (pthread_timedjoin_np(thread->thread, NULL, &end)) {
        log_warning("server: a thread still connects to the database; the process ends without it");
        _exit(0); /* all that was acknowledged is in the database */
      }
    }
    leasing_detach(thread->worker.db);
    db_free(thread->worker.db);
  }

  struct error error;
  (void)!oidc_read(server->oidc, NULL, &error); /* requests that wait for keys are refused */
  http_stop(server->http);

#define X(type, name, make) type##_free(server->name);
  OBJECTS(X)
#undef X
  pthread_mutex_destroy(&server->stop_lock);
  pthread_mutex_destroy(&server->reason_lock);
  pthread_cond_destroy(&server->stop_signal);
  trusted_keys_release(&server->publisher_keys);
  migrations_free(server->migrations);
  free(server->threads);
  server->magic = 0;
  free(server);
}

void server_reload(struct server *server) {
  const char *oidc = server->options.oidc;
  bool has_tls = http_reload(server->http);
  struct error error;
  if (oidc && oidc_read(server->oidc, oidc, &error)) {
    log_info("server: read --oidc %s again", oidc);
  } else if (oidc) {
    log_error("server: --oidc stays as it was: %s", error.message);
  } else if (!has_tls) {
    log_info("server: SIGHUP: there are no files of --tls-certificate, --tls-key, "
             "--tls-client-ca or --oidc to read again");
  }
}

const struct server_options *server_options(const struct server *server) {
  return &server->options;
}
const struct trusted_keys *server_publisher_keys(const struct server *server) {
  return &server->publisher_keys;
}
const uint8_t *server_lease_secret(const struct server *server) {
  return atomic_load(&server->has_lease_secret) ? server->lease_secret : NULL;
}
