/* Values of the rows that a statement returned, by column names. Memory and threads: db.h. */
#include "server/db/rows.h"

void db_rows_free(struct db_rows *rows) {
  if (!rows)
    return;
  PQclear(rows->result);
  free(rows);
}

int db_count(const struct db_rows *rows) { return PQntuples(rows->result); }

int64_t db_affected(const struct db_rows *rows) {
  return strtoll(PQcmdTuples(rows->result), NULL, 10);
}

/* Unlike PQfnumber, compares names exactly and allocates nothing. */
static int column_find(const struct db_rows *rows, const char *column) {
  int n = PQnfields(rows->result);
  for (int i = 0; i < n; i++)
    if (strcmp(PQfname(rows->result, i), column) == 0)
      return i;
  die("no column \"%s\" in a result", column);
}

bool db_is_null(const struct db_rows *rows, int row, const char *column) {
  return PQgetisnull(rows->result, row, column_find(rows, column));
}

const char *db_get(const struct db_rows *rows, int row, const char *column) {
  return PQgetvalue(rows->result, row, column_find(rows, column));
}

int64_t db_get_integer(const struct db_rows *rows, int row, const char *column) {
  return strtoll(db_get(rows, row, column), NULL, 10);
}

double db_get_double(const struct db_rows *rows, int row, const char *column) {
  return strtod(db_get(rows, row, column), NULL);
}

bool db_get_bool(const struct db_rows *rows, int row, const char *column) {
  return db_get(rows, row, column)[0] == 't';
}

uint8_t *db_get_bytes(const struct db_rows *rows, int row, const char *column, size_t *ret_size) {
  size_t size = 0;
  unsigned char *decoded = PQunescapeBytea((const unsigned char *)db_get(rows, row, column), &size);
  if (!decoded)
    die("out of memory for a bytea");
  uint8_t *bytes = xmemdup(decoded, size);
  PQfreemem(decoded);
  *ret_size = size;
  return bytes;
}
