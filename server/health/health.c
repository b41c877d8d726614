/* Two statements, one after the other. Memory and threads: health.h. */
#include "server/health/health.h"

#include <inttypes.h>

#include "common/base/log.h"
#include "server/db/db_record.h"
#include "server/gauges.h"
#include "server/health/health.sql.h"

/* A session that is idle for this long is named. */
#define NAMED_S 10

static const char *const tables[] = {
#define X(table) #table,
    HOT_TABLES(X)
#undef X
};

/* Ends a session. Why that failed is logged: the role may lack the right. */
static void session_end(struct worker *worker, const struct idle_session *session) {
  struct error error;
  cleanup_rows struct db_rows *rows =
      db_query(worker->db, &sql_health_end_session, &error, BIND("pid", session->pid),
               BIND("idle_ms", server_options(worker->server)->end_idle_s * 1000));
  if (!rows)
    log_warning("database: cannot end session pid=%" PRId64 " application=%s idle_s=%.0f: %s "
                "(grant pg_signal_backend to the server's role)",
                session->pid, session->application, session->idle_s, error.message);
  else if (db_count(rows) && db_get_bool(rows, 0, "is_ended"))
    log_warning("database: ended session pid=%" PRId64 " application=%s role=%s idle_s=%.0f, which "
                "was idle in a transaction",
                session->pid, session->application, session->role, session->idle_s);
}

static bool sessions_read(struct worker *worker, struct database_health *health,
                          struct error *error) {
  int64_t end_idle_s = server_options(worker->server)->end_idle_s;
  cleanup_rows struct db_rows *rows =
      db_query(worker->db, &sql_health_sessions, error, BIND("limit", IDLE_SESSIONS_MAX));
  if (!rows)
    return false;

  for (int row = 0; row < db_count(rows); row++) {
    struct idle_session session = {.pid = db_get_integer(rows, row, "pid"),
                                   .idle_s = db_get_double(rows, row, "idle_s")};
    snprintf(session.application, sizeof session.application, "%s",
             db_get(rows, row, "application_name"));
    snprintf(session.role, sizeof session.role, "%s", db_get(rows, row, "role"));
    if (session.idle_s > health->longest_idle_s)
      health->longest_idle_s = session.idle_s;
    if (end_idle_s && session.idle_s >= (double)end_idle_s)
      session_end(worker, &session);
    else if (session.idle_s >= NAMED_S)
      health->sessions[health->n_sessions++] = session;
  }

  static int64_t logged_pid; /* the housekeeper's: each session is logged once */
  const struct idle_session *longest = &health->sessions[0];
  if (health->n_sessions && longest->pid != logged_pid) {
    logged_pid = longest->pid;
    log_warning("database: session pid=%" PRId64 " application=%s role=%s idle_s=%.0f is idle in a "
                "transaction, so PostgreSQL cannot remove dead rows",
                longest->pid, longest->application, longest->role, longest->idle_s);
  }
  return true;
}

static bool effects_read(struct db *db, struct database_health *health, struct error *error) {
  cleanup_rows struct db_rows *dead = NULL, *age = NULL;
  if (!(dead = db_query(db, &sql_health_dead_rows, error,
                        parameter_texts("tables", tables, HOT_TABLE_COUNT))) ||
      !(age = db_query(db, &sql_health_xmin_age, error)))
    return false;

  for (int row = 0; row < db_count(dead); row++)
    for (size_t i = 0; i < HOT_TABLE_COUNT; i++)
      if (string_equal(db_get(dead, row, "relname"), tables[i]))
        health->dead_rows[i] = db_get_integer(dead, row, "n_dead_tup");
  health->xmin_age = db_get_integer(age, 0, "age");
  return true;
}

void health_housekeep(struct worker *worker) {
  struct database_health health = {0};
  struct error error;
  if (!sessions_read(worker, &health, &error) || !effects_read(worker->db, &health, &error)) {
    log_warning("database: %s", error.message);
    return;
  }
  struct gauges *gauges = gauges_take(worker->server);
  gauges->health = health;
  gauges_give(gauges);
}
