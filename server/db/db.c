/* Statements on PostgreSQL by libpq: sent in pipelines, prepared when first used on a connection.
 *
 * The only session state in PostgreSQL is prepared statements, and settings that are given when the
 * connection is made, so that a transaction pooler (PgBouncer >= 1.21) may be in between. Memory: a
 * db owns its connection; rows are the caller's. Threads: a db belongs to one. */
#include "server/db/db.h"

#include <inttypes.h>
#include <libpq-fe.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

#include "common/base/lock.h"
#include "common/base/log.h"
#include "server/db/failpoints.h"
#include "server/db/rows.h"
#include "server/db/statement.h"

/* The pause after a failed attempt to connect, in which requests fail fast. */
#define CONNECT_PAUSE_MS 250
/* PostgreSQL ends long statements and idle transactions, because they hold back vacuum. JIT takes a
 * hundred times as long as these statements run. Plans are kept from the first run on, because
 * planning takes as long as running; enable_seqscan=off keeps a plan that was made for a small
 * table usable when it has grown. */
static const char server_options_format[] =
    "-c statement_timeout=%lld -c idle_in_transaction_session_timeout=30000 -c jit=off -c "
    "enable_seqscan=off -c plan_cache_mode=force_generic_plan";
/* How long an attempt to connect to an address may take. libpq's least is 2 s, also where the
 * deadline comes sooner. */
#define CONNECT_S_MAX 5
#define CONNECT_S_MIN 2
/* How often a run that waits for PostgreSQL checks whether the program stops. */
#define STOP_CHECK_MS 100
/* How long ROLLBACK may take, even when the deadline of the work has passed. */
#define ROLLBACK_MS 2000
/* Statements whose answers are not read yet: BEGIN, those of db_send, and db_run's or COMMIT. */
#define SENT_MAX 8
/* The class of SQLSTATEs of missing resources: the disk is full, memory ran out. */
#define SQLSTATE_SHORTAGE "53"
/* Different counters in one transaction. */
#define AT_COMMIT_MAX 8

static atomic_int_fast64_t answered_ms;

static struct {
  pthread_mutex_t lock;
  char text[DB_SHORTAGE_SIZE];
  int64_t at_ms;
} shortage = {.lock = PTHREAD_MUTEX_INITIALIZER};

struct db {
  PGconn *connection; /* NULL: none */
  char *conninfo, *application_name;
  bool in_transaction;
  bool must_begin; /* BEGIN is sent with the transaction's first statement */
  struct sent {
    const struct statement *statement;
    int64_t rows; /* that it must touch; DB_ANY_ROWS: any number */
  } sent[SENT_MAX];
  size_t n_sent;
  struct at_commit {
    void (*done)(struct db *db, int what, uint64_t n);
    int what;
    uint64_t n;
  } at_commit[AT_COMMIT_MAX];
  size_t n_at_commit;
  void *context;
  bool is_without_options; /* a pooler refused them */
  int64_t connected_since_ms, failed_at_ms;
  int64_t run_ms, work_until_ms; /* work_until_ms 0: there is only the deadline of each run */
  int64_t run_until_ms;          /* deadline of the present run */
  bool is_late;                  /* the present run passed its deadline */
  bool must_close;               /* at the end of the transaction, which has a stale statement */
  atomic_bool is_stopped;
  bool prepared[STATEMENTS_MAX]; /* on this connection, by slot */
};

static const struct statement statement_begin = {"begin", "BEGIN"};
static const struct statement statement_commit = {"commit", "COMMIT"};

struct db *db_new(const char *conninfo, const char *application_name) {
  struct db *db = xcalloc(1, sizeof *db);
  db->conninfo = xstrdup(conninfo);
  db->application_name = xstrdup(application_name);
  db->failed_at_ms = -CONNECT_PAUSE_MS;
  db->run_ms = DB_RUN_MS;
  return db;
}

int64_t db_set_run_ms(struct db *db, int64_t run_ms) {
  int64_t before_ms = db->run_ms;
  db->run_ms = run_ms;
  return before_ms;
}

void db_set_deadline(struct db *db, int64_t until_ms) { db->work_until_ms = until_ms; }
bool db_is_connected(const struct db *db) { return db->connection != NULL; }
bool db_is_in_transaction(const struct db *db) { return db->in_transaction; }
int64_t db_answered_ms(void) { return atomic_load(&answered_ms); }
int64_t db_shortage(char ret_text[DB_SHORTAGE_SIZE]) {
  HOLD(&shortage.lock);
  memcpy(ret_text, shortage.text, DB_SHORTAGE_SIZE);
  return shortage.at_ms;
}

static void shortage_note(const struct error *error) {
  HOLD(&shortage.lock);
  snprintf(shortage.text, sizeof shortage.text, "%.*s", DB_SHORTAGE_SIZE - 1, error->message);
  shortage.at_ms = clock_monotonic_ms();
}

void db_stop(struct db *db) { atomic_store(&db->is_stopped, true); }

static void connection_close(struct db *db) {
  db->must_close = false;
  db->n_sent = 0;
  PQfinish(db->connection);
  db->connection = NULL;
}

void db_free(struct db *db) {
  if (!db)
    return;
  connection_close(db);
  free(db->conninfo);
  free(db->application_name);
  free(db);
}

/* An error is one sentence; libpq's messages are several lines with a final newline. */
static bool failure_set(enum error_kind kind, const char *what, const char *message,
                        struct error *error) {
  cleanup_free char *line = xstrdup(message ? message : "");
  size_t length = strlen(line);
  while (length && (line[length - 1] == '\n' || line[length - 1] == ' '))
    line[--length] = '\0';
  for (char *c = line; (c = strchr(c, '\n'));)
    *c = ' ';
  return error_of(error, kind, "%s: %s", what, line);
}

static bool away_set(enum error_kind kind, const char *why, struct error *error) {
  return failure_set(kind, "the database is away", why, error);
}

static void notice_log(void *context, const char *message) {
  (void)context;
  log_debug("database: %s", message);
}

static void connection_try(struct db *db) {
  cleanup_free char *options =
      xasprintf(server_options_format, (long long)(db->run_ms - db->run_ms / 10));

  /* `dbname` may be a connection string: it overrides the keywords before it, and those after it
   * override the string. */
  const char *keywords[] = {"connect_timeout",
                            "keepalives_idle",
                            "tcp_user_timeout",
                            "client_encoding",
                            "dbname",
                            "fallback_application_name",
                            db->is_without_options ? NULL : "options",
                            NULL};
  char timeout_s[24];
  int64_t left_s = (db->run_until_ms - clock_monotonic_ms()) / 1000;
  snprintf(timeout_s, sizeof timeout_s, "%" PRId64,
           left_s < CONNECT_S_MIN   ? CONNECT_S_MIN
           : left_s > CONNECT_S_MAX ? CONNECT_S_MAX
                                    : left_s);
  const char *values[] = {timeout_s, "10", "20000", "UTF8", db->conninfo, db->application_name,
                          options,   NULL};
  connection_close(db);
  db->connection = PQconnectdbParams(keywords, values, 1);
}

/* Connects when there is no good connection. */
static bool connection_ensure(struct db *db, struct error *error) {
  if (atomic_load(&db->is_stopped))
    return failure_set(ERROR_UNAVAILABLE, "the database is not used", "this program stops", error);
  if (db->in_transaction)
    return db->connection ||
           away_set(ERROR_UNAVAILABLE, "the connection was lost in a transaction", error);

  /* On an idle connection PostgreSQL sends only its end or, rarely, a changed setting. This check
   * saves the request that would fail. */
  struct pollfd socket = {.fd = PQsocket(db->connection), .events = POLLIN};
  if (db->connection && poll(&socket, 1, 0) == 0)
    return true;

  connection_close(db);
  if (clock_monotonic_ms() - db->failed_at_ms < CONNECT_PAUSE_MS)
    return away_set(ERROR_UNAVAILABLE, "the last attempt to connect failed", error);

  connection_try(db);
  if (PQstatus(db->connection) != CONNECTION_OK && !db->is_without_options &&
      strstr(PQerrorMessage(db->connection), "unsupported startup parameter")) {
    db->is_without_options = true;
    connection_try(db);
  }

  if (PQstatus(db->connection) != CONNECTION_OK) {
    away_set(ERROR_UNAVAILABLE, PQerrorMessage(db->connection), error);
    connection_close(db);
    db->failed_at_ms = clock_monotonic_ms();
    return false;
  }

  PQsetNoticeProcessor(db->connection, notice_log, NULL);
  PQsetnonblocking(db->connection, 1);
  memset(db->prepared, 0, sizeof db->prepared);
  db->connected_since_ms = clock_monotonic_ms();
  return true;
}

static enum error_kind kind_of_state(const char *sqlstate) {
  static const struct {
    const char *prefix;
    enum error_kind kind;
  } table[] = {
      {"23505", ERROR_UNIQUE},      {"23503", ERROR_REFERENCE},  {"40", ERROR_CONTENTION},
      {"55P03", ERROR_CONTENTION},  {"26000", ERROR_CONTENTION}, {"0A000", ERROR_CONTENTION},
      {"08", ERROR_UNAVAILABLE},    {"57", ERROR_UNAVAILABLE},   {"53", ERROR_UNAVAILABLE},
      {"25006", ERROR_UNAVAILABLE}, /* read-only: a standby, until it is promoted or clients connect
                                       to the primary */
      {"25P03", ERROR_UNAVAILABLE},
  };

  for (size_t i = 0; sqlstate && i < ARRAY_LENGTH(table); i++)
    if (string_starts(sqlstate, table[i].prefix))
      return table[i].kind;

  return ERROR_INTERNAL;
}

/* Sets the error of a result (NULL: too late, out of memory or no connection) and closes a
 * connection that is lost. */
static bool result_failure(struct db *db, const char *what, const PGresult *result,
                           struct error *error) {
  if (db->is_late) {
    connection_close(db);
    return away_set(
        ERROR_DEADLINE,
        atomic_load(&db->is_stopped) ? "this program stops" : "it did not answer in time", error);
  }

  if (PQstatus(db->connection) != CONNECTION_OK) {
    away_set(ERROR_UNAVAILABLE, PQerrorMessage(db->connection), error);
    connection_close(db);
    return false;
  }

  const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
  failure_set(kind_of_state(state), what,
              result ? PQresultErrorMessage(result) : PQerrorMessage(db->connection), error);
  if (state && string_starts(state, SQLSTATE_SHORTAGE))
    shortage_note(error);
  return false;
}

static bool result_is_good(const PGresult *result) {
  ExecStatusType status = PQresultStatus(result);
  return status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;
}

static void run_start(struct db *db) {
  db->is_late = false;
  db->run_until_ms = clock_monotonic_ms() + db->run_ms;
  if (db->work_until_ms && db->work_until_ms < db->run_until_ms)
    db->run_until_ms = db->work_until_ms;
}

/* Sends libpq's output and reads until it has a result, or finds that the connection is lost.
 * False: too late. */
static bool answer_wait(struct db *db) {
  for (;;) {
    int unsent = PQflush(db->connection);
    if (unsent < 0 || (!unsent && !PQisBusy(db->connection)))
      return true;

    int64_t left_ms = db->run_until_ms - clock_monotonic_ms();
    if (left_ms <= 0 || atomic_load(&db->is_stopped))
      return false;
    struct pollfd socket = {.fd = PQsocket(db->connection),
                            .events = unsent ? POLLIN | POLLOUT : POLLIN};
    (void)poll(&socket, 1, (int)(left_ms < STOP_CHECK_MS ? left_ms : STOP_CHECK_MS));
    if (socket.revents & ~POLLOUT && !PQconsumeInput(db->connection))
      return true;
  }
}

/* The last result of the statement or script that was sent; NULL: sending failed, or it is too late
 * (is_late). */
static PGresult *answer_take(struct db *db, int was_sent) {
  PGresult *result = NULL;
  while (was_sent) {
    if (!answer_wait(db)) {
      db->is_late = true;
      PQclear(result);
      return NULL;
    }
    PGresult *next = PQgetResult(db->connection);
    if (!next)
      break;
    PQclear(result);
    result = next;
  }

  if (result && PQstatus(db->connection) == CONNECTION_OK)
    atomic_store(&answered_ms, clock_monotonic_ms());
  return result;
}

static PGresult *script_run(struct db *db, const char *sql) {
  return answer_take(db, PQsendQuery(db->connection, sql));
}

static bool statement_send(struct db *db, const struct statement *statement,
                           const struct db_parameters *parameters) {
  struct bound bound;
  statement_bind(statement, parameters, &bound);
  return PQsendQueryPrepared(db->connection, statement->name, bound.n, bound.values, bound.lengths,
                             bound.formats, 0);
}

/* The statement must be prepared again: PostgreSQL does not have it (a pooler's other connection),
 * or its tables changed. */
static bool is_stale(const PGresult *result) {
  const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
  return string_equal(state, "26000") ||
         (string_equal(state, "0A000") && strstr(PQresultErrorMessage(result), "cached plan"));
}

/* BEGIN and the statements of db_send are sent together with the next statement of db_run, which
 * saves waiting for PostgreSQL (libpq's pipeline). */
static void sent_add(struct db *db, const struct statement *statement, int64_t rows) {
  ALWAYS(db->n_sent < SENT_MAX);
  db->sent[db->n_sent++] = (struct sent){statement, rows};
}

static bool plain_send(struct db *db, const struct statement *statement) {
  if (!PQsendQueryParams(db->connection, statement->sql, 0, NULL, NULL, NULL, NULL, 0))
    return false;
  sent_add(db, statement, DB_ANY_ROWS);
  return true;
}

static bool pipeline_begin(struct db *db) {
  if (PQpipelineStatus(db->connection) == PQ_PIPELINE_OFF && !PQenterPipelineMode(db->connection))
    return false;
  if (!db->must_begin)
    return true;
  db->must_begin = false;
  return plain_send(db, &statement_begin);
}

/* Reads the answers to all sent statements; *ret_result (ret_result may be NULL) is the last one,
 * the caller's. False: a statement failed, and those after it were not run. */
static bool sent_finish(struct db *db, PGresult **ret_result, struct error *error) {
  PGresult *last = NULL;
  const struct statement *stale = NULL;
  size_t n = db->n_sent;
  int64_t began_ns = clock_monotonic_ns();
  bool is_good = PQpipelineSync(db->connection) || result_failure(db, "sync", NULL, error);
  if (!is_good) /* without the sync PostgreSQL sends no answers to read */
    connection_close(db);

  for (size_t i = 0; i < n && db->connection; i++) {
    const struct sent sent = db->sent[i];
    PQclear(last);
    last = answer_take(db, 1);
    bool is_failure = !result_is_good(last);
    bool is_begin = sent.statement == &statement_begin; /* its answer comes with the next one's */
    bool is_rerun = is_stale(last) && !db->in_transaction; /* by db_run, which counts it then */
    if (PQresultStatus(last) != PGRES_PIPELINE_ABORTED && !is_rerun)
      statement_count(sent.statement, is_begin ? clock_monotonic_ns() : began_ns,
                      is_failure ? 0 : (uint64_t)PQntuples(last), is_failure);
    if (!is_begin)
      began_ns = clock_monotonic_ns();
    ALWAYS(is_failure || sent.rows == DB_ANY_ROWS ||
           strtoll(PQcmdTuples(last), NULL, 10) == sent.rows);
    if (!is_failure || !is_good)
      continue;

    is_good = false;
    if (is_stale(last)) {
      stale = sent.statement;
      db->prepared[statement_slot(stale)] = false;
    }
    result_failure(db, sent.statement->name, last, error);
  }

  db->n_sent = 0;

  /* The answer to the sync; nothing comes after it. An error in its place is of the commit of a
   * statement outside of a transaction, or of a connection that PostgreSQL ends. */
  if (db->connection) {
    db->is_late = !answer_wait(db);
    PGresult *synced = db->is_late ? NULL : PQgetResult(db->connection);
    if (PQresultStatus(synced) != PGRES_PIPELINE_SYNC || !PQexitPipelineMode(db->connection)) {
      if (is_good)
        is_good = result_failure(db, "sync", synced, error);
      connection_close(db);
    }
    PQclear(synced);
  }

  if (stale && db->connection && !db->in_transaction) {
    cleanup_free char *deallocate = xasprintf("DEALLOCATE %s", stale->name);
    PQclear(script_run(db, deallocate));
  } else if (stale && db->connection) {
    db->must_close = true; /* a failed transaction cannot deallocate */
  }

  if (is_good && ret_result)
    *ret_result = TAKE(last);
  PQclear(last);
  return is_good;
}

/* A place where a test makes this program fail. What was sent is done first, so that a failure is
 * between two statements. */
static bool failpoint_pass(struct db *db, enum failpoint_place place, const char *statement,
                           struct error *error) {
  struct failpoint failpoint = failpoint_choose(place, statement);
  if (failpoint.action == FAILPOINT_NONE)
    return true;
  if (db->n_sent && !sent_finish(db, NULL, error))
    return false;

  failpoint_act(&failpoint);
  if (failpoint.action != FAILPOINT_DROP)
    return true;
  connection_close(db);
  return away_set(ERROR_UNAVAILABLE, "a failpoint dropped the connection", error);
}

/* Sends the statement, prepared, without reading its answer. */
static bool queue(struct db *db, const struct statement *statement,
                  const struct db_parameters *parameters, int64_t rows, struct error *error) {
  bool *is_prepared = &db->prepared[statement_slot(statement)];
  run_start(db);
  bool is_good = connection_ensure(db, error) &&
                 failpoint_pass(db, FAILPOINT_BEFORE_STATEMENT, statement->name, error);
  /* Two entries stay free, for BEGIN and COMMIT. A statement is prepared outside of the pipeline.
   */
  if (is_good && db->n_sent && (!*is_prepared || db->n_sent >= SENT_MAX - 2))
    is_good = sent_finish(db, NULL, error);
  if (is_good && !*is_prepared) {
    const char *sql = statement_text(statement, parameters);
    PGresult *result =
        answer_take(db, PQsendPrepare(db->connection, statement->name, sql, 0, NULL));
    is_good = *is_prepared =
        result_is_good(result) || result_failure(db, statement->name, result, error);
    PQclear(result);
  }

  if (is_good && !(pipeline_begin(db) && statement_send(db, statement, parameters))) {
    is_good = result_failure(db, statement->name, NULL, error);
    connection_close(db); /* the state of its pipeline is unknown */
  }

  if (is_good)
    sent_add(db, statement, rows);
  else
    statement_count(statement, clock_monotonic_ns(), 0, true);

  return is_good;
}

bool db_send(struct db *db, const struct statement *statement,
             const struct db_parameters *parameters, int64_t rows, struct error *error) {
  ALWAYS(db->in_transaction);
  /* With the flush PostgreSQL answers when this statement is done, so that each has its own
   * time. */
  return queue(db, statement, parameters, rows, error) &&
         (PQsendFlushRequest(db->connection) || result_failure(db, statement->name, NULL, error));
}

bool db_run(struct db *db, const struct statement *statement,
            const struct db_parameters *parameters, struct db_rows **ret_rows,
            struct error *error) {
  PGresult *result = NULL;
  for (bool is_again = false;; is_again = true) {
    if (!queue(db, statement, parameters, DB_ANY_ROWS, error))
      return false;
    if (sent_finish(db, &result, error))
      break;
    bool was_stale = db->connection && !db->prepared[statement_slot(statement)];
    if (is_again || db->in_transaction || !was_stale)
      return false;
  }

  if (!failpoint_pass(db, FAILPOINT_AFTER_STATEMENT, statement->name, error)) {
    PQclear(result);
    return false;
  }

  if (ret_rows) {
    *ret_rows = xmalloc(sizeof **ret_rows);
    (*ret_rows)->result = result;
  } else {
    PQclear(result);
  }

  return true;
}

/* Ends the pipeline before a script, which needs the simple protocol. */
static bool waiting_finish(struct db *db, struct error *error) {
  if (db->must_begin && !pipeline_begin(db))
    return result_failure(db, statement_begin.name, NULL, error);
  return db->n_sent == 0 || sent_finish(db, NULL, error);
}

bool db_run_script(struct db *db, const char *sql, struct error *error) {
  run_start(db);
  if (!connection_ensure(db, error) || !waiting_finish(db, error))
    return false;

  PGresult *result = script_run(db, sql);
  bool is_good = result_is_good(result);
  if (!is_good)
    result_failure(db, "script", result, error);
  PQclear(result);
  return is_good;
}

bool db_begin(struct db *db, struct error *error) {
  ALWAYS(!db->in_transaction);
  run_start(db);
  db->n_at_commit = 0;
  db->in_transaction = db->must_begin = connection_ensure(db, error);
  return db->in_transaction;
}

bool db_begin_now(struct db *db, struct error *error) {
  if (!db_begin(db, error))
    return false;
  if (waiting_finish(db, error))
    return true;
  db_rollback(db);
  return false;
}

void db_set_context(struct db *db, void *context) { db->context = context; }
void *db_context(const struct db *db) { return db->context; }

void db_at_commit(struct db *db, void (*done)(struct db *db, int what, uint64_t n), int what,
                  uint64_t n) {
  ALWAYS(db->in_transaction);
  for (size_t i = 0; i < db->n_at_commit; i++)
    if (db->at_commit[i].done == done && db->at_commit[i].what == what) {
      db->at_commit[i].n += n;
      return;
    }
  ALWAYS(db->n_at_commit < AT_COMMIT_MAX);
  db->at_commit[db->n_at_commit++] = (struct at_commit){done, what, n};
}

bool db_commit(struct db *db, struct error *error) {
  ALWAYS(db->in_transaction);
  bool is_good = true;
  if (!db->must_begin) { /* something was run */
    PGresult *result = NULL;
    run_start(db);
    is_good = connection_ensure(db, error) &&
              failpoint_pass(db, FAILPOINT_BEFORE_COMMIT, "commit", error) &&
              ((pipeline_begin(db) && plain_send(db, &statement_commit)) ||
               result_failure(db, "commit", NULL, error)) &&
              sent_finish(db, &result, error);
    /* COMMIT of a transaction that a failed statement aborted succeeds, as a rollback. */
    if (is_good && strcmp(PQcmdStatus(result), "COMMIT") != 0)
      is_good =
          failure_set(ERROR_INTERNAL, "commit", "a statement of the transaction had failed", error);
    PQclear(result);
    is_good = is_good && failpoint_pass(db, FAILPOINT_AFTER_COMMIT, "commit", error);
  }

  if (!is_good) {
    db_rollback(db);
    return false;
  }

  db->in_transaction = db->must_begin = false;
  for (size_t i = 0; i < db->n_at_commit; i++)
    db->at_commit[i].done(db, db->at_commit[i].what, db->at_commit[i].n);
  return true;
}

void db_rollback(struct db *db) {
  struct error error;
  if (db->connection && db->n_sent && !sent_finish(db, NULL, &error))
    log_debug("database: %s", error.message);
  if (db->connection && PQpipelineStatus(db->connection) != PQ_PIPELINE_OFF)
    connection_close(db);
  if (db->connection && PQtransactionStatus(db->connection) != PQTRANS_IDLE) {
    run_start(db);
    db->run_until_ms = clock_monotonic_ms() + ROLLBACK_MS;
    PGresult *result = script_run(db, "ROLLBACK");
    bool is_good = result_is_good(result);
    PQclear(result);
    if (!is_good)
      connection_close(db);
  }

  db->in_transaction = db->must_begin = false;
  if (db->must_close)
    connection_close(db);
}

bool db_end(struct db *db, bool is_good, struct error *error) {
  if (is_good)
    return db_commit(db, error);
  db_rollback(db);
  return false;
}

bool db_transaction(struct db *db, int attempts, db_work *run, void *context, struct error *error) {
  for (;; attempts--) {
    if (db_begin(db, error) && db_end(db, run(db, context, error), error))
      return true;
    bool is_conflict = error->kind == ERROR_CONTENTION || error->kind == ERROR_UNIQUE ||
                       error->kind == ERROR_REFERENCE;
    if (!is_conflict || attempts <= 1)
      return false;
  }
}

int64_t db_connected_since_ms(const struct db *db) { return db->connected_since_ms; }
