/* The listening socket, and the event threads, each with a libmicrohttpd daemon of its own.
 *
 * The threads are ours because those of libmicrohttpd 0.9.75 stall: when epoll_wait returns as many
 * events as the array holds (128), its loop waits again before it processes them, and if no further
 * event comes, until an idle connection times out. MHD_run never waits. */
#include <errno.h>
#include <limits.h>
#include <netdb.h>
#include <poll.h>
#include <stdarg.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "common/base/log.h"
#include "server/counters.h"
#include "server/http/http_private.h"
#include "server/http/request_private.h"
#include "server/http/tls.h"

#define DESCRIPTORS_RESERVED 256 /* for the database, logs, epoll */
#define BACKLOG 4096
/* Connections that were closed and whose descriptors are open until their thread's next turn. */
#define CONNECTIONS_ENDING 128
#define SLOW_TURN_NS 1000000000 /* all connections of the thread waited so long */
/* A connection's memory for headers and its read buffer. libmicrohttpd clears it after every
 * request, and each of 10,000 waiting connections has it. */
#define CONNECTION_BYTES (16 * KIB)

struct daemon {
  int listen_fd, port;
  atomic_bool is_quiescent, is_stopping;
  int n;
  struct event_thread threads[];
};

static bool socket_open(const char *address, int port, int *ret_fd, int *ret_port,
                        struct error *error) {
  struct addrinfo hints = {.ai_flags = AI_PASSIVE | AI_NUMERICHOST | AI_NUMERICSERV,
                           .ai_socktype = SOCK_STREAM};
  struct addrinfo *info;
  char service[8];
  snprintf(service, sizeof service, "%d", port);
  int reason = getaddrinfo(address, service, &hints, &info);
  if (reason)
    return error_set(
        error,
        "cannot listen on \"%.100s\": %s; give a numeric address such as 127.0.0.1 or ::", address,
        gai_strerror(reason));

  cleanup_fd int fd = socket(info->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  struct sockaddr_storage bound = {0};
  socklen_t bound_size = sizeof bound;
  int one = 1;
  bool is_good = fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0 &&
                 bind(fd, info->ai_addr, info->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0 &&
                 getsockname(fd, (struct sockaddr *)&bound, &bound_size) == 0;

  reason = errno;
  freeaddrinfo(info);
  if (!is_good)
    return error_set(error, "cannot listen on %.100s port %d: %s", address, port, strerror(reason));

  if (getnameinfo((struct sockaddr *)&bound, bound_size, NULL, 0, service, sizeof service,
                  NI_NUMERICSERV) == 0)
    *ret_port = (int)strtol(service, NULL, 10);

  *ret_fd = fd;
  fd = -1;
  return true;
}

/* Raises the limit of descriptors as far as `most` connections need and possible; returns how many
 * connections fit. */
static unsigned connections_max(unsigned most) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
    return most < 1024 - DESCRIPTORS_RESERVED ? most : 1024 - DESCRIPTORS_RESERVED;

  rlim_t wanted = most + DESCRIPTORS_RESERVED;
  if (limit.rlim_cur < wanted) {
    limit.rlim_cur =
        limit.rlim_max == RLIM_INFINITY || limit.rlim_max > wanted ? wanted : limit.rlim_max;
    (void)!setrlimit(RLIMIT_NOFILE, &limit);
    (void)!getrlimit(RLIMIT_NOFILE, &limit);
  }

  rlim_t fit = limit.rlim_cur > DESCRIPTORS_RESERVED * 2 ? limit.rlim_cur - DESCRIPTORS_RESERVED
                                                         : limit.rlim_cur / 2;
  if (fit < most)
    log_warning("http: only %llu connections fit into this process's limit of open files; raise it "
                "(ulimit -n, LimitNOFILE=) to %llu for thousands of agents",
                (unsigned long long)fit, (unsigned long long)wanted);

  return fit < most ? (unsigned)fit : most;
}

static printf_like(2, 0) void library_log(void *context, const char *format, va_list arguments) {
  char line[512];
  (void)context;
  vsnprintf(line, sizeof line, format, arguments);
  log_debug("http: %s", line);
}

static no_return void library_panic(void *context, const char *file, unsigned line,
                                    const char *reason) {
  (void)context;
  die("libmicrohttpd %s:%u: %s", file, line, reason ? reason : "");
}

void event_thread_wake(struct event_thread *thread) { eventfd_write(thread->wake_fd, 1); }

/* One turn of libmicrohttpd: it reads and writes what the sockets allow, and calls dispatch.c. */
static void turn(struct MHD_Daemon *mhd) {
  int64_t began_ns = clock_monotonic_ns();
  MHD_run(mhd);

  int64_t took_ns = clock_monotonic_ns() - began_ns;
  if (took_ns < SLOW_TURN_NS)
    return;
  counter_add(COUNTER_slow_turns, 1);
  log_warning("http: an event thread was busy for %.1f s, and its connections waited; is the "
              "machine overloaded?",
              (double)took_ns / 1e9);
}

static void *event_main(void *context) {
  struct event_thread *thread = context;
  struct daemon *daemon = thread->daemon;
  MAGIC_CHECK(thread, EVENT_THREAD_MAGIC);
  const union MHD_DaemonInfo *epoll = MHD_get_daemon_info(thread->mhd, MHD_DAEMON_INFO_EPOLL_FD);
  ALWAYS(epoll != NULL);
  struct pollfd ready[] = {{.fd = epoll->epoll_fd, .events = POLLIN},
                           {.fd = thread->wake_fd, .events = POLLIN}};
  bool is_quiescent = false;
  int64_t enforce_ms = 0;

  while (!atomic_load(&daemon->is_stopping)) {
    MHD_UNSIGNED_LONG_LONG wait_ms;
    bool has_limit = MHD_get_timeout(thread->mhd, &wait_ms) == MHD_YES;
    int limit_ms = !has_limit ? -1 : wait_ms < INT_MAX ? (int)wait_ms : INT_MAX;
    if (!TAILQ_EMPTY(&thread->deadlines) && (limit_ms < 0 || limit_ms > DEADLINE_EVERY_MS))
      limit_ms = DEADLINE_EVERY_MS;
    int64_t held_ms = deadlines_release(thread, clock_monotonic_ms());
    if (held_ms >= 0 && (limit_ms < 0 || limit_ms > held_ms))
      limit_ms = (int)held_ms;
    poll(ready, ARRAY_LENGTH(ready), limit_ms);

    thread->now_ms = clock_monotonic_ms();
    if (thread->now_ms >= enforce_ms) {
      deadlines_enforce(thread);
      enforce_ms = thread->now_ms + DEADLINE_EVERY_MS;
    }

    eventfd_t wakes;
    eventfd_read(thread->wake_fd, &wakes); /* before the turn that does what it asks for */
    if (atomic_load(&daemon->is_quiescent) && !is_quiescent) {
      MHD_quiesce_daemon(thread->mhd);
      is_quiescent = true;
    }
    turn(thread->mhd);
  }

  (void)deadlines_release(thread, INT64_MAX);
  /* Otherwise libmicrohttpd would close the socket, which other threads use. */
  if (!is_quiescent)
    MHD_quiesce_daemon(thread->mhd);
  MHD_stop_daemon(thread->mhd);
  return NULL;
}

static struct MHD_Daemon *mhd_start(struct event_thread *thread, int listen_fd,
                                    unsigned connections) {
  struct server *server = thread->server;
  struct MHD_OptionItem tls[] = {
      {MHD_OPTION_HTTPS_PRIORITIES, 0, (char *)(uintptr_t)TLS_PRIORITIES},
      {MHD_OPTION_HTTPS_CERT_CALLBACK2, 0, (void *)(uintptr_t)tls_retrieve},
      {MHD_OPTION_END, 0, NULL}};
  bool has_tls = http_has_tls(server_http(server));
  if (!has_tls)
    tls[0] = tls[2];
  /* SIGPIPE is ignored (main.c). */
  return MHD_start_daemon(
      MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG | (has_tls ? MHD_USE_TLS : 0), 0,
      NULL, NULL, dispatch_access, server, MHD_OPTION_EXTERNAL_LOGGER, library_log, NULL,
      MHD_OPTION_LISTEN_SOCKET, listen_fd, MHD_OPTION_ARRAY, tls, MHD_OPTION_SIGPIPE_HANDLED_BY_APP,
      1, MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
      (size_t)CONNECTION_BYTES, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_TIMEOUT_S,
      MHD_OPTION_CONNECTION_LIMIT, connections + CONNECTIONS_ENDING, MHD_OPTION_NOTIFY_CONNECTION,
      dispatch_connection, thread, MHD_OPTION_NOTIFY_COMPLETED, dispatch_completed, server,
      MHD_OPTION_URI_LOG_CALLBACK, dispatch_target, server, MHD_OPTION_END);
}

static bool event_thread_start(struct daemon *daemon, struct server *server, unsigned connections,
                               struct error *error) {
  struct event_thread *thread = &daemon->threads[daemon->n];
  *thread = (struct event_thread){.magic = EVENT_THREAD_MAGIC, .server = server, .daemon = daemon};
  TAILQ_INIT(&thread->deadlines);
  TAILQ_INIT(&thread->held);
  thread->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (thread->wake_fd < 0)
    return error_set(error, "cannot start the HTTP server: %s", strerror(errno));

  thread->mhd = mhd_start(thread, daemon->listen_fd, connections);
  int reason = thread->mhd ? pthread_create(&thread->thread, NULL, event_main, thread) : errno;
  if (!reason) {
    daemon->n++;
    return true;
  }

  if (thread->mhd) {
    MHD_quiesce_daemon(thread->mhd);
    MHD_stop_daemon(thread->mhd);
  }
  close(thread->wake_fd);
  return error_set(error, "cannot start the HTTP server: %s", strerror(reason));
}

bool daemon_start(struct server *server, struct daemon **ret_daemon, struct error *error) {
  const struct server_options *options = server_options(server);
  size_t n = (size_t)options->event_threads;
  struct daemon *daemon = xcalloc(1, sizeof *daemon + n * sizeof *daemon->threads);
  if (!socket_open(options->listen, options->port, &daemon->listen_fd, &daemon->port, error)) {
    free(daemon);
    return false;
  }

  MHD_set_panic_func(library_panic, NULL);
  unsigned connections = connections_max((unsigned)options->connections);
  server_http(server)->connections =
      connections_new(connections, (size_t)options->connections_per_address);
  for (size_t i = 0; i < n; i++)
    if (!event_thread_start(daemon, server, connections, error)) {
      daemon_stop(daemon);
      return false;
    }

  *ret_daemon = daemon;
  return true;
}

int daemon_port(const struct daemon *daemon) { return daemon->port; }

static void threads_wake(struct daemon *daemon) {
  for (int i = 0; i < daemon->n; i++)
    event_thread_wake(&daemon->threads[i]);
}

void daemon_quiesce(struct daemon *daemon) {
  atomic_store(&daemon->is_quiescent, true);
  threads_wake(daemon);
}

void daemon_stop(struct daemon *daemon) {
  atomic_store(&daemon->is_stopping, true);
  threads_wake(daemon);
  for (int i = 0; i < daemon->n; i++) {
    pthread_join(daemon->threads[i].thread, NULL);
    close(daemon->threads[i].wake_fd);
  }
  close(daemon->listen_fd);
  free(daemon);
}
