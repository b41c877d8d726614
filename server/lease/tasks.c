/* Tasks in tables of their own. */
#include <pthread.h>

#include "server/db/db_record.h"
#include "server/lease/lease_kind.h"
#include "server/lease/tasks.sql.h"

#define PLACEHOLDER "{table}"

static struct statement of_table(const struct statement *template, const char *table) {
  struct statement made = {.name = xasprintf("%s_%s", template->name, table)};
  size_t size;
  FILE *out = open_memstream((char **)&made.sql, &size);
  ALWAYS(out != NULL);

  const char *sql = template->sql, *at;
  while ((at = strstr(sql, PLACEHOLDER))) {
    fprintf(out, "%.*s%s", (int)(at - sql), sql, table);
    sql = at + strlen(PLACEHOLDER);
  }

  fputs(sql, out);
  ALWAYS(fclose(out) == 0);
  return made;
}

static void tables_make(void) {
  for (size_t i = 0; lease_kinds[i]; i++) {
    const struct lease_kind *kind = lease_kinds[i];
    if (kind->table)
      *kind->statements =
          (struct lease_table){.claim = of_table(&sql_tasks_claim, kind->table),
                               .renew = of_table(&sql_tasks_renew, kind->table),
                               .held = of_table(&sql_tasks_held, kind->table),
                               .end = of_table(&sql_tasks_end, kind->table),
                               .expired = of_table(&sql_tasks_expired, kind->table)};
  }
}

const struct lease_table *lease_table_of(const struct lease_kind *kind) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, tables_make);
  return kind->table ? kind->statements : NULL;
}

bool lease_claim(struct db *db, const struct lease_kind *kind, const int64_t *tasks, size_t n,
                 const char *holder, int64_t lease_ms, struct db_rows **ret_rows,
                 struct error *error) {
  *ret_rows = db_query(db, &lease_table_of(kind)->claim, error, BIND_ALL("task", tasks, n),
                       BIND("holder", holder), BIND("lease_ms", lease_ms));
  return *ret_rows != NULL;
}

bool lease_lock_held(struct db *db, const struct lease_kind *kind, const struct lease_hold *holds,
                     size_t n, bool *ret_held, struct error *error) {
  cleanup_rows struct db_rows *rows = NULL;
  cleanup_parameters struct db_parameters parameters = {0};
  bind_lease_holds(&parameters, holds, n);
  if (!db_run(db, &lease_table_of(kind)->held, &parameters, &rows, error))
    return false;

  memset(ret_held, 0, n * sizeof *ret_held);
  for (int row = 0; row < db_count(rows); row++)
    ret_held[db_get_integer(rows, row, "n") - 1] = true;
  return true;
}

bool lease_end(struct db *db, const struct lease_kind *kind, const int64_t *tasks, size_t n,
               struct error *error) {
  return db_execute(db, &lease_table_of(kind)->end, error, BIND_ALL("task", tasks, n));
}
