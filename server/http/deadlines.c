/* A list of the connections with a deadline for each event thread, and one of those that are held,
 * the first to end first. Memory and threads: deadlines.h. */
#include "server/http/deadlines.h"

#include "server/http/connections.h"
#include "server/http/http_private.h"
#include "server/http/request_private.h"

int64_t body_deadline_ms(int64_t began_ms, uint64_t bytes, int64_t timeout_ms, int64_t per_second) {
  uint64_t rate = (uint64_t)per_second;
  return began_ms + timeout_ms + (int64_t)(bytes / rate * 1000 + bytes % rate * 1000 / rate);
}

static void set(struct connection *connection, int64_t at_ms, enum connection_end reason) {
  if (!connection->deadline_ms)
    TAILQ_INSERT_TAIL(&connection->event_thread->deadlines, connection, with_deadline);
  connection->deadline_ms = at_ms;
  connection->deadline_reason = reason;
}

void deadline_none(struct connection *connection) {
  if (connection->deadline_ms)
    TAILQ_REMOVE(&connection->event_thread->deadlines, connection, with_deadline);
  connection->deadline_ms = 0;
}

void deadline_connected(struct connection *connection) {
  set(connection,
      connection->event_thread->now_ms + server_options(connection->server)->head_timeout_ms,
      END_HEAD);
}

void deadline_head(struct connection *connection) {
  int64_t at_ms =
      connection->event_thread->now_ms + server_options(connection->server)->head_timeout_ms;
  if (!connection->deadline_ms || at_ms < connection->deadline_ms)
    set(connection, at_ms, END_HEAD);
}

void deadline_completed(struct connection *connection) {
  set(connection,
      connection->event_thread->now_ms + IDLE_TIMEOUT_S * 1000 +
          server_options(connection->server)->head_timeout_ms,
      END_HEAD);
}

static void body_set(struct connection *connection) {
  const struct server_options *options = server_options(connection->server);
  set(connection,
      body_deadline_ms(connection->body_began_ms, connection->body_arrived,
                       options->body_timeout_ms, options->body_rate),
      END_BODY);
}

void deadline_body(struct connection *connection) {
  connection->body_began_ms = connection->event_thread->now_ms;
  connection->body_arrived = 0;
  body_set(connection);
}

void deadline_body_arrived(struct connection *connection, size_t bytes) {
  connection->body_arrived += bytes;
  body_set(connection);
}

void deadline_answer(struct connection *connection, uint64_t bytes) {
  const struct server_options *options = server_options(connection->server);
  set(connection,
      body_deadline_ms(connection->event_thread->now_ms, bytes, options->body_timeout_ms,
                       options->body_rate),
      END_ANSWER);
}

void deadline_hold(struct connection *connection) {
  deadline_none(connection);
  connection->held_until_ms = connection->event_thread->now_ms + HOLD_MS;
  TAILQ_INSERT_TAIL(&connection->event_thread->held, connection, with_deadline);
}

int64_t deadlines_release(struct event_thread *thread, int64_t now_ms) {
  struct connection *connection;
  while ((connection = TAILQ_FIRST(&thread->held)) && connection->held_until_ms <= now_ms) {
    TAILQ_REMOVE(&thread->held, connection, with_deadline);
    request_resume(connection->request);
  }
  return connection ? connection->held_until_ms - now_ms : -1;
}

void deadlines_enforce(struct event_thread *thread) {
  struct connection *connection, *next;
  for (connection = TAILQ_FIRST(&thread->deadlines); connection; connection = next) {
    next = TAILQ_NEXT(connection, with_deadline);
    if (connection->deadline_ms > thread->now_ms)
      continue;
    deadline_none(connection);
    connection_end(connection->http->connections, connection, connection->deadline_reason);
  }
}
