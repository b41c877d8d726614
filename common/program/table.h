/* A table of text for people: columns as wide as their widest cell, numbers on the right.
 *
 * Cells are UTF-8; what is not, and control characters (a name from elsewhere must not drive a
 * terminal), become '?'. Widths count code points, combining marks as none. Memory: a table owns
 * its cells; headings are borrowed. Threads: one. */
#ifndef WAVETUNE_COMMON_PROGRAM_TABLE_H
#define WAVETUNE_COMMON_PROGRAM_TABLE_H

#include "common/base/base.h"

struct table_column {
  const char *heading;
  bool is_number; /* aligned on the right */
};

struct table;
must_check struct table *table_new(const struct table_column *columns, size_t n_columns);
void table_free(struct table *table);
DEFINE_CLEANUP(struct table *, cleanup_table_free, table_free)
#define cleanup_table __attribute__((cleanup(cleanup_table_free)))

/* Fills the next cell, row by row. */
void table_cell(struct table *table, const char *format, ...) printf_like(2, 3);

/* Prints the headings and the rows, each a line without spaces at its end. Aborts when the last row
 * is not full. */
void table_print(const struct table *table, FILE *out);

#endif
