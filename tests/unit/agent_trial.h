/* An agent that has only what its requests to a server need, and a server that answers by a script.
 *
 * Each test makes one trial and releases it. */
#ifndef WAVETUNE_TESTS_AGENT_TRIAL_H
#define WAVETUNE_TESTS_AGENT_TRIAL_H

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <sys/socket.h>

#include "agent/run/keeper.h"
#include "agent/run/poster.h"
#include "common/base/file.h"
#include "common/base/log.h"

#define REQUESTS_MAX 16

struct scripted {
  int status;
  const char *body;
};

/* A server that answers by a script, one connection a request; when the script is at its end, with
 * 200. */
struct fake_server {
  int fd;
  pthread_t thread;
  const struct scripted *script;
  size_t n_script;
  size_t n;
  _Atomic size_t n_answered;
  char *lines[REQUESTS_MAX];    /* "POST /v1/…" */
  json_t *bodies[REQUESTS_MAX]; /* NULL: it had none */
};

/* Reads one request; false at the end of the connection. */
static inline bool request_read(struct fake_server *server, int fd) {
  cleanup_free char *text = xcalloc(1, 1 << 20);
  size_t size = 0;
  char *body = NULL, *length = NULL;
  while (!body || (length && (size_t)(text + size - body) < strtoull(length + 16, NULL, 10))) {
    ssize_t n = recv(fd, text + size, (1 << 20) - 1 - size, 0);
    if (n <= 0)
      return false;
    size += (size_t)n;
    body = strstr(text, "\r\n\r\n");
    body = body ? body + 4 : NULL;
    length = strstr(text, "Content-Length: ");
  }
  struct error error;
  server->lines[server->n] = xstrndup(text, strcspn(text, "\r") - strlen(" HTTP/1.1"));
  if (length)
    cr_assert(json_parse(body, strlen(body), &server->bodies[server->n], &error), "%s",
              error.message);
  server->n++;
  return true;
}

static inline void *fake_server_run(void *context) {
  struct fake_server *server = context;
  for (;;) {
    cleanup_fd int fd = accept(server->fd, NULL, NULL);
    if (fd < 0)
      return NULL;
    if (server->n == REQUESTS_MAX || !request_read(server, fd))
      continue;
    struct scripted answer = {200, "{\"accepted\": 0, \"known\": 0, \"state\": \"held\"}"};
    if (server->n <= server->n_script)
      answer = server->script[server->n - 1];
    cleanup_free char *text =
        xasprintf("HTTP/1.1 %d X\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n%s",
                  answer.status, strlen(answer.body), answer.body);
    cr_assert(fd_write_all(fd, text, strlen(text)));
    server->n_answered++;
  }
}

struct trial {
  struct agent agent;
  struct fake_server server;
};

static inline void trial_init(struct trial *trial, const struct scripted *script, size_t n_script) {
  static char folder[64];
  struct error error;
  setenv("WAVETUNE_LOG", "error", 0);
  memset(trial, 0, sizeof *trial);
  strcpy(folder, "/tmp/wavetune-test-XXXXXX");
  cr_assert_not_null(mkdtemp(folder));
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof address;
  trial->server = (struct fake_server){
      .fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), .script = script, .n_script = n_script};
  cr_assert_eq(bind(trial->server.fd, (struct sockaddr *)&address, size), 0);
  cr_assert_eq(listen(trial->server.fd, 8), 0);
  cr_assert_eq(getsockname(trial->server.fd, (struct sockaddr *)&address, &size), 0);
  pthread_create(&trial->server.thread, NULL, fake_server_run, &trial->server);

  pthread_condattr_t monotonic;
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  trial->agent = (struct agent){.magic = AGENT_MAGIC, .state = folder, .held = held_table_new()};
  pthread_mutex_init(&trial->agent.mutex, NULL);
  pthread_cond_init(&trial->agent.changed, &monotonic);
  cleanup_free char *url = xasprintf("http://127.0.0.1:%d", ntohs(address.sin_port));
  cr_assert(http_client_new(url, "t", false, 5000, &trial->agent.poster_client, &error), "%s",
            error.message);
  cr_assert(http_client_new(url, "t", false, 5000, &trial->agent.keeper_client, &error), "%s",
            error.message);
  cr_assert(spool_open(folder, SPOOL_SHORTEN_AT_DEFAULT, &trial->agent.spool, &error), "%s",
            error.message);
}

static inline void trial_release(struct trial *trial) {
  struct error error;
  shutdown(trial->server.fd, SHUT_RDWR);
  pthread_join(trial->server.thread, NULL);
  close(trial->server.fd);
  for (size_t i = 0; i < trial->server.n; i++) {
    free(trial->server.lines[i]);
    json_decref(trial->server.bodies[i]);
  }
  http_client_free(trial->agent.poster_client);
  http_client_free(trial->agent.keeper_client);
  spool_close(trial->agent.spool);
  held_table_free(trial->agent.held);
  cr_expect(folder_remove(trial->agent.state, &error));
}

#endif
