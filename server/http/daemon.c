/* Starts and stops libmicrohttpd. The socket is opened here, so that errors name its address. */
#include <errno.h>
#include <netdb.h>
#include <stdarg.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "common/base/log.h"
#include "server/http/request_private.h"
#include "server/http/tls.h"
#include "server/server_private.h"

#define CONNECTIONS_WANTED 16384
#define DESCRIPTORS_RESERVED 256 /* for the database, logs, epoll */
#define IDLE_TIMEOUT_S 75        /* of a keep-alive connection; suspended ones do not time out */
#define BACKLOG 4096
/* A connection's memory for headers and its read buffer. libmicrohttpd clears it after every
 * request, and each of 10,000 waiting connections has it. */
#define CONNECTION_BYTES (16 * KIB)

struct daemon {
  struct MHD_Daemon *mhd;
  int listen_fd;
  bool is_quiescent;
  int port;
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

/* Raises the limit of descriptors as far as wanted and possible; returns how many connections fit.
 */
static unsigned connections_max(void) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
    return 1024 - DESCRIPTORS_RESERVED;

  rlim_t wanted = CONNECTIONS_WANTED + DESCRIPTORS_RESERVED;
  if (limit.rlim_cur < wanted) {
    limit.rlim_cur =
        limit.rlim_max == RLIM_INFINITY || limit.rlim_max > wanted ? wanted : limit.rlim_max;
    (void)!setrlimit(RLIMIT_NOFILE, &limit);
    (void)!getrlimit(RLIMIT_NOFILE, &limit);
  }

  rlim_t most = limit.rlim_cur > DESCRIPTORS_RESERVED * 2 ? limit.rlim_cur - DESCRIPTORS_RESERVED
                                                          : limit.rlim_cur / 2;
  if (most < CONNECTIONS_WANTED)
    log_warning("http: only %llu connections fit into this process's limit of open files; raise it "
                "(ulimit -n, LimitNOFILE=) to %llu for thousands of agents",
                (unsigned long long)most, (unsigned long long)wanted);

  return most < CONNECTIONS_WANTED ? (unsigned)most : CONNECTIONS_WANTED;
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

bool daemon_start(struct server *server, struct daemon **ret_daemon, struct error *error) {
  struct daemon *daemon = xcalloc(1, sizeof *daemon);
  const struct server_options *options = &server->options;
  if (!socket_open(options->listen, options->port, &daemon->listen_fd, &daemon->port, error)) {
    free(daemon);
    return false;
  }

  /* libmicrohttpd logs a warning for a pool of one thread. */
  struct MHD_OptionItem pool[] = {
      {options->event_threads > 1 ? MHD_OPTION_THREAD_POOL_SIZE : MHD_OPTION_END,
       options->event_threads, NULL},
      {MHD_OPTION_END, 0, NULL}};
  struct MHD_OptionItem tls[] = {
      {MHD_OPTION_HTTPS_PRIORITIES, 0, (char *)(uintptr_t)TLS_PRIORITIES},
      {MHD_OPTION_HTTPS_CERT_CALLBACK2, 0, (void *)(uintptr_t)tls_retrieve},
      {MHD_OPTION_END, 0, NULL}};
  bool has_tls = server_has_tls(server);
  if (!has_tls)
    tls[0] = tls[2];
  MHD_set_panic_func(library_panic, NULL);
  daemon->mhd = MHD_start_daemon(
      MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG |
          (has_tls ? MHD_USE_TLS : 0),
      0, NULL, NULL, dispatch_access, server, MHD_OPTION_EXTERNAL_LOGGER, library_log, NULL,
      MHD_OPTION_LISTEN_SOCKET, daemon->listen_fd, MHD_OPTION_ARRAY, pool, MHD_OPTION_ARRAY, tls,
      MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_BYTES,
      MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_TIMEOUT_S, MHD_OPTION_CONNECTION_LIMIT,
      connections_max(), MHD_OPTION_NOTIFY_CONNECTION, dispatch_connection, server,
      MHD_OPTION_NOTIFY_COMPLETED, dispatch_completed, server, MHD_OPTION_URI_LOG_CALLBACK,
      dispatch_target, server, MHD_OPTION_END);
  if (!daemon->mhd) {
    close(daemon->listen_fd);
    free(daemon);
    return error_set(error, "cannot start the HTTP server: %s", strerror(errno));
  }

  *ret_daemon = daemon;
  return true;
}

int daemon_port(const struct daemon *daemon) { return daemon->port; }

void daemon_quiesce(struct daemon *daemon) {
  daemon->is_quiescent = MHD_quiesce_daemon(daemon->mhd) != MHD_INVALID_SOCKET;
}

void daemon_stop(struct daemon *daemon) {
  MHD_stop_daemon(daemon->mhd);
  /* libmicrohttpd closes the socket that it was given unless it was made quiescent. */
  if (daemon->is_quiescent)
    close(daemon->listen_fd);
  free(daemon);
}
