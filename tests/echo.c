/* The kind echo, in the table of kinds. */
#include "tests/echo.h"

#include "common/base/log.h"
#include "server/capture/captures.h"
#include "server/measure/grants.h"
#include "tests/echo.sql.h"

static bool note(struct db *db, const char *what, int64_t task, struct error *error) {
  cleanup_parameters struct db_parameters parameters = {0};
  bind_text(&parameters, "what", what);
  bind_integer(&parameters, "task", task);
  return db_run(db, &sql_echo_note, &parameters, NULL, error);
}

static bool echo_answer(struct db *db, void *context, struct error *error) {
  struct echo_answer *answer = context;
  if (!lease_lock_held(db, &echo_kind, &answer->hold, 1, &answer->is_taken, error))
    return false;
  if (!answer->is_taken)
    return true;

  cleanup_parameters struct db_parameters parameters = {0};
  bind_text(&parameters, "answer", answer->text);
  bind_integer(&parameters, "task", answer->hold.task);
  return db_run(db, &sql_echo_store, &parameters, NULL, error) &&
         lease_end(db, &echo_kind, &answer->hold.task, 1, error);
}

static void echo_settle(struct worker *worker, void *context) {
  const struct echo_answer *answer = context;
  struct error error;
  if (answer->is_taken && !note(worker->db, "settled", answer->hold.task, &error))
    log_warning("echo: %s", error.message);
}

static bool echo_lost(struct worker *worker, const struct db_rows *gone, struct error *error) {
  for (int row = 0; row < db_count(gone); row++)
    if (!note(worker->db, "lost", db_get_integer(gone, row, "id"), error))
      return false;
  return true;
}

static void echo_settle_lost(struct worker *worker, const struct db_rows *gone) {
  struct error error;
  for (int row = 0; row < db_count(gone); row++)
    if (!note(worker->db, "loss settled", db_get_integer(gone, row, "id"), &error))
      log_warning("echo: %s", error.message);
}

static struct lease_table statements;
const struct lease_kind echo_kind = {
    .name = "echo",
    .table = "echoes",
    .statements = &statements,
    .answer = echo_answer,
    .settle = echo_settle,
    .lost = echo_lost,
    .settle_lost = echo_settle_lost,
};

/* In place of server/task/kinds.c. */
const struct lease_kind *const lease_kinds[] = {&measure_kind, &build_kind, &echo_kind, NULL};
