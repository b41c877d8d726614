/* Counters, relaxed and without a lock; those of programs, with one; the log of requests; and the
 * routes /metrics, /healthz, /readyz and /openapi.json. */
#include <inttypes.h>
#include <stdatomic.h>

#include "common/base/lock.h"
#include "common/base/log.h"
#include "common/verdict/verdict.h"
#include "server/counters.h"
#include "server/db/db.h"
#include "server/gauges.h"
#include "server/http/bodies.h"
#include "server/http/client.h"
#include "server/http/histogram.h"
#include "server/http/http_private.h"
#include "server/http/request.h"
#include "server/http/request_private.h"

/* Limits of --log-requests errors, so that an outage of the database or the network does not fill a
 * disk. */
#define SLOW_NS 1000000000LL
#define LINES_PER_SECOND 20
#define LINES_BURST 100
#define KNOWN_MS 180000 /* after which what was read from the database is too old to be shown */
#define SHORTAGE_SHOWN_MS 60000 /* how long /readyz warns of a full disk after it was reported */

/* Each counter has its own cache line, so that threads do not slow each other down. */
static struct {
  _Alignas(64) atomic_uint_fast64_t value;
} counters[COUNTER_COUNT];

/* The statuses that this server answers, the frequent ones first; any other one counts as 0. */
static const unsigned short statuses[] = {200, 304, 201, 204, 202, 206, 400, 401, 403, 404, 405,
                                          408, 409, 411, 412, 413, 416, 422, 429, 500, 503, 0};

static struct {
  _Alignas(64) atomic_uint_fast64_t answers[ARRAY_LENGTH(statuses)];
  struct histogram work;
} routes[ROUTE_COUNT + 1]; /* the last: requests without a route */

static atomic_uint_fast64_t refusals[TOKEN_REFUSAL_COUNT], ends[CONNECTION_END_COUNT],
    limited[LIMIT_COUNT];

static void count(atomic_uint_fast64_t *counter, uint64_t n) {
  atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

void counter_add(enum counter counter, uint64_t n) { count(&counters[counter].value, n); }

void metrics_note_refusal(enum token_refusal refusal) { count(&refusals[refusal], 1); }
void metrics_note_limit(enum limit limit) { count(&limited[limit], 1); }
void metrics_note_end(enum connection_end reason) { count(&ends[reason], 1); }

static struct {
  pthread_mutex_t lock;
  size_t n;
  struct {
    char tag[PROGRAM_TAG_MAX + 1];
    double values[PROGRAM_COUNTER_COUNT];
  } tags[PROGRAM_TAGS_MAX];
} programs = {PTHREAD_MUTEX_INITIALIZER, 2, {{.tag = ""}, {.tag = "default"}}};

/* Returns programs.n when there is none. Under the lock. */
static size_t program_tag_find(const char *tag) {
  size_t i = 0;
  while (i < programs.n && strcmp(programs.tags[i].tag, tag) != 0)
    i++;
  return i;
}

bool program_tag_is_counted(const char *tag) {
  HOLD(&programs.lock);
  return program_tag_find(tag) < programs.n;
}

void program_counters_add(const char *tag, const double counts[PROGRAM_COUNTER_COUNT]) {
  HOLD(&programs.lock);
  size_t at = program_tag_find(tag);
  if (at == programs.n && (programs.n == PROGRAM_TAGS_MAX || strlen(tag) > PROGRAM_TAG_MAX))
    at = 0;
  if (at == programs.n)
    snprintf(programs.tags[programs.n++].tag, PROGRAM_TAG_MAX + 1, "%s", tag);
  for (size_t i = 0; i < PROGRAM_COUNTER_COUNT; i++)
    programs.tags[at].values[i] += counts[i];
}

bool request_log_parse(const char *name, enum request_log *ret_log) {
  static const char *const names[] = {
      [REQUEST_LOG_OFF] = "off", [REQUEST_LOG_ERRORS] = "errors", [REQUEST_LOG_ALL] = "all"};
  size_t log;
  if (!name_find(names, ARRAY_LENGTH(names), name, &log))
    return false;
  *ret_log = (enum request_log)log;
  return true;
}

/* Whether --log-requests errors may write one more line; if so, *ret_left_out is how many were left
 * out since the line before. */
static bool line_take(uint64_t *ret_left_out) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  static struct rate rate;
  static uint64_t left_out;

  HOLD(&lock);
  bool may = rate_take(&rate, clock_monotonic_ms(), LINES_PER_SECOND, LINES_BURST);
  left_out += !may;
  *ret_left_out = may ? left_out : 0;
  left_out = may ? 0 : left_out;
  return may;
}

void metrics_note_answer(const struct answer_note *note) {
  const struct connection *connection = note->connection;
  const struct server *server = connection->server;
  size_t route = note->route ? (size_t)note->route->id : ROUTE_COUNT, status = 0;
  while (statuses[status] && statuses[status] != note->status)
    status++;
  count(&routes[route].answers[status], 1);
  histogram_add(&routes[route].work, note->work_ns);

  enum request_log log = server_options(server)->log_requests;
  uint64_t left_out = 0;
  if (log == REQUEST_LOG_OFF)
    return;
  if (log == REQUEST_LOG_ERRORS) {
    /* Not logged: the 503s of a server that stops, and those for a load balancer's probes of a
     * server that is not ready. */
    bool is_expected =
        note->status == MHD_HTTP_SERVICE_UNAVAILABLE &&
        (route == ROUTE_readyz_get || queue_state(server_http(server)->queue).is_stopping);
    if (is_expected || (note->status < 500 && note->work_ns < SLOW_NS))
      return;
    if (!line_take(&left_out)) {
      counter_add(COUNTER_request_lines_left_out, 1);
      return;
    }
  }

  char peer[ADDRESS_SIZE];
  bool is_head = strcmp(connection->method, "HEAD") == 0;
  log_write(note->status >= 500 ? LOG_LEVEL_WARNING : LOG_LEVEL_INFO,
            "http: request method=%s path=%s status=%u ms=%.3f waited_ms=%lld bytes=%llu token=%s "
            "peer=%s",
            connection->method, note->route ? note->route->path : NULL, note->status,
            (double)note->work_ns / 1e6, (long long)(note->waited_ns / 1000000),
            is_head ? 0 : (unsigned long long)note->bytes,
            note->token_name[0] ? note->token_name : NULL, connection_address(connection, peer));
  if (left_out)
    log_warning("http: lines of requests left out before this one n=%llu",
                (unsigned long long)left_out);
}

static void head_write(FILE *out, const char *name, const char *type, const char *help) {
  fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* A counter with one label. */
static void labelled_write(FILE *out, const char *name, const char *help, const char *label,
                           const char *const *values, atomic_uint_fast64_t *counts, size_t n) {
  head_write(out, name, "counter", help);
  for (size_t i = 0; i < n; i++)
    fprintf(out, "%s{%s=\"%s\"} %" PRIu64 "\n", name, label, values[i], atomic_load(&counts[i]));
}

static const char *route_name(size_t route) {
  return route < ROUTE_COUNT ? route_of((enum route_id)route)->name : "none";
}

static void answers_write(FILE *out) {
  static const char answers[] = "wavetune_http_answers_total",
                    seconds[] = "wavetune_http_work_seconds";
  head_write(out, answers, "counter",
             "Answers by route (none: no route matched) and status (0: another one)");
  for (size_t route = 0; route <= ROUTE_COUNT; route++)
    for (size_t i = 0; i < ARRAY_LENGTH(statuses); i++) {
      uint64_t n = atomic_load(&routes[route].answers[i]);
      if (n)
        fprintf(out, "%s{route=\"%s\",status=\"%u\"} %" PRIu64 "\n", answers, route_name(route),
                statuses[i], n);
    }

  head_write(out, seconds, "histogram",
             "Time from the end of a request to its answer, without waiting in a long poll, by "
             "route (none: no route matched)");
  for (size_t route = 0; route <= ROUTE_COUNT; route++)
    histogram_write(out, seconds, "route", route_name(route), &routes[route].work);
}

void metrics_label_write(FILE *out, const char *value) {
  fputc('"', out);
  for (; *value; value++) {
    if (*value == '"' || *value == '\\')
      fputc('\\', out);
    if (*value == '\n')
      fputs("\\n", out);
    else
      fputc(*value, out);
  }
  fputc('"', out);
}

static void programs_write(FILE *out) {
  static const struct {
    const char *name, *help;
  } descriptions[] = {
#define X(id, name_, help_) {name_, help_},
      PROGRAM_COUNTERS(X)
#undef X
  };
  HOLD(&programs.lock);
  for (size_t i = 0; i < PROGRAM_COUNTER_COUNT; i++) {
    head_write(out, descriptions[i].name, "counter", descriptions[i].help);
    for (size_t tag = 0; tag < programs.n; tag++) {
      fprintf(out, "%s{tag=", descriptions[i].name);
      metrics_label_write(out, programs.tags[tag].tag);
      fprintf(out, "} %.17g\n", programs.tags[tag].values[i]);
    }
  }
}

/* Leases of the whole database. While they are not known, there is no line, so that the last
 * figures of a server that lost its database do not hide those of others. */
static void leases_write(FILE *out, const struct lease_counts *counts, bool is_ready) {
  static const char leases[] = "wavetune_leases", oldest[] = "wavetune_leases_oldest_seconds";
  bool is_known = is_ready && counts->read_ms && clock_monotonic_ms() - counts->read_ms < KNOWN_MS;

  head_write(
      out, leases, "gauge",
      "Open and held leases of jobs that have not ended, as each server last counted them: max "
      "over servers");
  if (is_known)
    fprintf(out, "%s{state=\"open\"} %" PRId64 "\n%s{state=\"held\"} %" PRId64 "\n", leases,
            counts->open, leases, counts->held);

  head_write(out, oldest, "gauge",
             "Age of the oldest of these leases; held: since it was granted, open: since its job "
             "began the stage; 0: there is none: max over servers");
  if (is_known)
    fprintf(out, "%s{state=\"open\"} %.3f\n%s{state=\"held\"} %.3f\n", oldest,
            counts->oldest_open_s, oldest, counts->oldest_held_s);
}

struct statement_family {
  FILE *out;
  const char *name, *help;
  int column; /* DB_RUNS, … */
};

static void statement_write(void *context, const char *statement,
                            const uint64_t values[DB_STATISTICS]) {
  const struct statement_family *family = context;
  double value = (double)values[family->column];
  fprintf(family->out, "%s{statement=\"%s\"} %.17g\n", family->name, statement,
          family->column == DB_NANOSECONDS ? value / 1e9 : value);
}

static void counters_write(FILE *out) {
  static const struct {
    const char *name, *help;
  } descriptions[] = {
#define X(id, name_, help_) {name_, help_},
      COUNTERS(X)
#undef X
  };
  static const char *const refusal_names[] = {
#define X(id, reason) reason,
      TOKEN_REFUSALS(X)
#undef X
  };
  static const char *const end_names[] = {
#define X(id, name) name,
      CONNECTION_ENDS(X)
#undef X
  };
  static const char *const limit_names[] = {
#define X(id, option, ...) option,
      LIMITS(X)
#undef X
  };
  for (int i = 0; i < COUNTER_COUNT; i++) {
    head_write(out, descriptions[i].name, "counter", descriptions[i].help);
    fprintf(out, "%s %" PRIu64 "\n", descriptions[i].name, atomic_load(&counters[i].value));
  }

  answers_write(out);
  labelled_write(out, "wavetune_tokens_refused_total",
                 "Requests refused for their token, by reason", "reason", refusal_names, refusals,
                 TOKEN_REFUSAL_COUNT);
  labelled_write(out, "wavetune_http_connections_closed_total",
                 "Connections that the server closed before their client did, by reason", "reason",
                 end_names, ends, CONNECTION_END_COUNT);
  labelled_write(out, "wavetune_limits_refused_total",
                 "Requests refused because of a limit of their token, by option", "limit",
                 limit_names, limited, LIMIT_COUNT);

  programs_write(out);
}

static void connections_write(FILE *out, struct server *server) {
  static const char *const class_names[] = {
#define X(id, name) name,
      CONNECTION_CLASSES(X)
#undef X
  };
  size_t n[CONNECTION_CLASS_COUNT];
  connections_count(server_http(server)->connections, n);
  head_write(out, "wavetune_http_connections", "gauge",
             "Open connections, by whose token was on them last: stranger (none), client, fleet "
             "(agents, operators, admins)");
  for (size_t i = 0; i < CONNECTION_CLASS_COUNT; i++)
    fprintf(out, "wavetune_http_connections{class=\"%s\"} %zu\n", class_names[i], n[i]);
}

static void gauges_write(FILE *out, struct server *server, const struct gauges *now,
                         bool is_ready) {
  struct http *http = server_http(server);
  struct queue_state state = queue_state(http->queue);
  const struct database_health *health = &now->health;
  const struct {
    const char *name, *help;
    double value;
  } gauges[] = {
      {"wavetune_queue_length", "Requests that wait for a database worker", (double)state.queued},
      {"wavetune_parked", "Requests that wait for an event (long polls)", (double)state.parked},
      {"wavetune_suspended", "Requests that are queued, parked or run by a database worker",
       (double)http->n_suspended},
      {"wavetune_bodies_bytes", "Memory that the larger bodies of open requests take",
       (double)bodies_used(http->bodies)},
      {"wavetune_http_open", "Requests that are being read or answered", (double)http->n_open},
      {"wavetune_agents",
       "Live agents of the database, as each server last read it: max over servers",
       (double)now->n_agents},
      {"wavetune_ready", "1 when the database answers and is migrated", is_ready},
      {"wavetune_uptime_seconds", "Time since this process started to serve",
       (double)(clock_monotonic_ms() - http->started_ms) / 1e3},
      {"wavetune_database_idle_transaction_seconds",
       "How long another program's session has been idle in a transaction that keeps vacuum from "
       "removing dead rows: max over servers",
       health->longest_idle_s},
      {"wavetune_database_xmin_age",
       "Transactions since the oldest one that keeps vacuum from removing dead rows: max over "
       "servers",
       (double)health->xmin_age},
  };
  for (size_t i = 0; i < ARRAY_LENGTH(gauges); i++) {
    head_write(out, gauges[i].name, "gauge", gauges[i].help);
    fprintf(out, "%s %.17g\n", gauges[i].name, gauges[i].value);
  }
}

static void dead_rows_write(FILE *out, const struct database_health *health) {
  static const char dead_rows[] = "wavetune_database_dead_rows";
  static const char *const tables[] = {
#define X(table) #table,
      HOT_TABLES(X)
#undef X
  };
  head_write(out, dead_rows, "gauge",
             "Rows that vacuum has not yet removed, by table, as PostgreSQL estimates it: max over "
             "servers");
  for (size_t i = 0; i < HOT_TABLE_COUNT; i++)
    fprintf(out, "%s{table=\"%s\"} %" PRId64 "\n", dead_rows, tables[i], health->dead_rows[i]);
}

/* One pass for each family: Prometheus wants the samples of a family together. */
static void statements_write(FILE *out) {
  struct statement_family families[] = {
      {out, "wavetune_db_runs_total", "Runs of a statement", DB_RUNS},
      {out, "wavetune_db_rows_total", "Rows that a statement returned", DB_ROWS},
      {out, "wavetune_db_seconds_total", "Time that a statement took, with its round trip",
       DB_NANOSECONDS},
      {out, "wavetune_db_failures_total", "Runs of a statement that failed", DB_FAILURES},
  };
  for (size_t i = 0; i < ARRAY_LENGTH(families); i++) {
    head_write(out, families[i].name, "counter", families[i].help);
    db_statistics_visit(statement_write, &families[i]);
  }
}

void route_metrics_get(struct server *server, struct request *request) {
  char *text = NULL;
  size_t size;
  FILE *out = open_memstream(&text, &size);
  ALWAYS(out != NULL);
  bool is_ready = server_is_ready(server);
  struct gauges *now = gauges_take(server);
  counters_write(out);
  connections_write(out, server);
  gauges_write(out, server, now, is_ready);
  dead_rows_write(out, &now->health);
  leases_write(out, &now->leases, is_ready);

  /* While they are not known, others may know better. */
  if (is_ready && now->fleet && clock_monotonic_ms() - now->fleet_ms < KNOWN_MS)
    fputs(now->fleet, out);
  gauges_give(now);
  statements_write(out);
  ALWAYS(fclose(out) == 0);
  request_answer_text(request, MHD_HTTP_OK, "text/plain; version=0.0.4; charset=utf-8", text, size);
}

void route_healthz_get(struct server *server, struct request *request) {
  (void)server;
  request_answer_json(request, MHD_HTTP_OK,
                      json_pack("{s:s, s:s}", "status", "ok", "version", WAVETUNE_VERSION));
}

/* What is wrong although the server is ready; NULL: nothing. */
static json_t *warnings_make(struct server *server) {
  struct gauges *gauges = gauges_take(server);
  struct database_health health = gauges->health;
  gauges_give(gauges);
  char shortage[DB_SHORTAGE_SIZE];
  int64_t short_ms = db_shortage(shortage);
  bool is_short = short_ms && clock_monotonic_ms() - short_ms < SHORTAGE_SHOWN_MS;
  if (!health.n_sessions && !is_short)
    return NULL;

  json_t *warnings = json_array();
  if (is_short)
    json_push(warnings, json_sprintf("PostgreSQL lacks a resource: %s", shortage));
  for (size_t i = 0; i < health.n_sessions; i++) {
    const struct idle_session *session = &health.sessions[i];
    cleanup_free char *text = xasprintf(
        "the database session with pid %" PRId64 " (application \"%s\", role %s) has "
        "been idle in a transaction for %.0f s, so PostgreSQL cannot remove dead rows and "
        "becomes slow: end it, or start the server with --end-idle-transactions",
        session->pid, session->application, session->role, session->idle_s);
    json_push(warnings, json_string(text));
  }
  return warnings;
}

void route_readyz_get(struct server *server, struct request *request) {
  if (server_is_ready(server)) {
    json_t *warnings = roles_may(request->roles, MAY_OPERATE) ? warnings_make(server) : NULL;
    request_answer_json(request, MHD_HTTP_OK,
                        json_pack("{s:s, s:o*}", "status", "ready", "warnings", warnings));
  } else if (roles_may(request->roles, MAY_OPERATE)) {
    cleanup_free char *reason = server_not_ready_reason(server);
    request_problem(request, MHD_HTTP_SERVICE_UNAVAILABLE, "not ready: %s", reason);
  } else { /* others do not learn the database's address */
    request_problem(request, MHD_HTTP_SERVICE_UNAVAILABLE,
                    "not ready; the server's log has the reason");
  }
}

void route_openapi_get(struct server *server, struct request *request) {
  request_answer_text(request, MHD_HTTP_OK, "application/json",
                      xstrdup(server_http(server)->openapi), strlen(server_http(server)->openapi));
}
