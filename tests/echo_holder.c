/* What the holder of tasks of the kind echo does, for tests/system/test_tasks.py:
 *
 *   echo_holder CONNINFO claim HOLDER MOST           prints "ID EPOCH TEXT" of each task
 *   echo_holder CONNINFO renew TASK EPOCH            prints whether it is held: 1 or 0
 *   echo_holder CONNINFO answer TASK EPOCH TEXT      prints whether it was taken: 1 or 0
 *
 * Memory: freed at the end of the process. Threads: one. */
#include "server/db/db_record.h"
#include "tests/echo.h"
#include "tests/echo.sql.h"

#define LEASE_MS 600000

static bool tasks_claim(struct db *db, const char *holder, int64_t most, struct error *error) {
  cleanup_rows struct db_rows *chosen = NULL, *claimed = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_integer(&parameters, "most", most);
  if (!db_run(db, &sql_echo_choose, &parameters, &chosen, error))
    return false;

  int n = db_count(chosen);
  cleanup_free int64_t *tasks = xcalloc((size_t)n + 1, sizeof *tasks);
  for (int row = 0; row < n; row++)
    tasks[row] = db_get_integer(chosen, row, "id");
  if (!lease_claim(db, &echo_kind, tasks, (size_t)n, holder, LEASE_MS, &claimed, error))
    return false;

  for (int row = 0; row < db_count(claimed); row++)
    for (int at = 0; at < n; at++)
      if (tasks[at] == db_get_integer(claimed, row, "id"))
        printf("%s %s %s\n", db_get(claimed, row, "id"), db_get(claimed, row, "epoch"),
               db_get(chosen, at, "text"));
  return true;
}

int main(int n, char **arguments) {
  struct error error;
  ALWAYS(n >= 5);
  struct db *db = db_new(arguments[1], "echo");
  struct worker worker = {.db = db};
  struct lease_hold hold = {atoll(arguments[3]), atoll(arguments[4])};
  bool ok;
  if (string_equal(arguments[2], "claim")) {
    ok = db_begin(db, &error) &&
         db_end(db, tasks_claim(db, arguments[3], atoll(arguments[4]), &error), &error);
  } else if (string_equal(arguments[2], "renew")) {
    cleanup_rows struct db_rows *rows = NULL;
    ok = lease_renew(db, &echo_kind, &hold, 1, LEASE_MS, NULL, &rows, &error);
    printf("%d\n", ok && db_count(rows) == 1);
  } else {
    ALWAYS(n == 6);
    struct echo_answer answer = {.hold = hold, .text = arguments[5]};
    ok = lease_answer(&worker, &echo_kind, &answer, &error);
    printf("%d\n", answer.is_taken);
  }

  if (!ok)
    fprintf(stderr, "%s\n", error.message);
  db_free(db);
  return ok ? 0 : 1;
}
