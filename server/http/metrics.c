/* Writes the metrics: counters, gauges, and the database's work by statement. Any thread. */
#include "server/http/metrics.h"

#include <inttypes.h>

#include "server/counters.h"
#include "server/db/db.h"
#include "server/http/traffic.h"
#include "server/server_private.h"

static void head_write(FILE *out, const char *name, const char *type, const char *help) {
  fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void gauge_write(FILE *out, const char *name, const char *help, double value) {
  head_write(out, name, "gauge", help);
  fprintf(out, "%s %.17g\n", name, value);
}

/* One pass per family: Prometheus wants the samples of a family together. */
struct statement_family {
  FILE *out;
  const char *name;
  int column; /* runs, rows, nanoseconds, failures */
};

static void statement_write(void *context, const char *statement, uint64_t runs, uint64_t rows,
                            uint64_t nanoseconds, uint64_t failures) {
  const struct statement_family *family = context;
  const double values[] = {(double)runs, (double)rows, (double)nanoseconds / 1e9, (double)failures};
  fprintf(family->out, "%s{statement=\"%s\"} %.17g\n", family->name, statement,
          values[family->column]);
}

static void statements_write(FILE *out) {
  static const char *const families[][2] = {
      {"wavetune_db_runs_total", "Runs of a statement"},
      {"wavetune_db_rows_total", "Rows that a statement returned"},
      {"wavetune_db_seconds_total", "Time that a statement took, with its round trip"},
      {"wavetune_db_failures_total", "Runs of a statement that failed"},
  };
  for (int i = 0; i < (int)ARRAY_LENGTH(families); i++) {
    struct statement_family family = {out, families[i][0], i};
    head_write(out, families[i][0], "counter", families[i][1]);
    db_statistics_visit(statement_write, &family);
  }
}

char *metrics_text(struct server *server, size_t *ret_size) {
  char *text = NULL;
  FILE *out = open_memstream(&text, ret_size);
  ALWAYS(out != NULL);
  struct queue_state state = queue_state(server->queue);
  for (int i = 0; i < COUNTER_COUNT; i++) {
    head_write(out, counter_name((enum counter)i), "counter", counter_help((enum counter)i));
    fprintf(out, "%s %" PRIu64 "\n", counter_name((enum counter)i), counter_read((enum counter)i));
  }
  traffic_write(out);
  gauge_write(out, "wavetune_queue_length", "Requests that wait for a database worker",
              (double)state.queued);
  gauge_write(out, "wavetune_parked", "Requests that wait for something to happen (long polls)",
              (double)state.parked);
  gauge_write(out, "wavetune_suspended", "Requests that the event threads wait for",
              (double)server->n_suspended);
  gauge_write(out, "wavetune_http_open", "Requests that are being read or answered",
              (double)server->n_open);
  gauge_write(out, "wavetune_agents", "Live agents of all servers, as the database knows them",
              (double)server->n_live_agents);
  gauge_write(out, "wavetune_ready", "1 when the database answers and is migrated",
              server_is_ready(server));
  gauge_write(out, "wavetune_uptime_seconds", "Since this process started to serve",
              (double)(clock_monotonic_ms() - server->started_ms) / 1e3);
  statements_write(out);
  ALWAYS(fclose(out) == 0);
  return text;
}
