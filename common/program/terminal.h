/* Output on terminals: tables of text, and a progress bar.
 *
 * A table's columns are as wide as their widest cell; numbers are aligned on the right. Cells are
 * UTF-8; invalid bytes and control characters (which could come from a server) become '?'. Widths
 * count code points without combining marks.
 *
 * A progress bar is one line on stderr that is drawn again and again. Nothing is written to a pipe
 * or a file.
 *
 * Memory: a table owns its cells and borrows its columns, a progress borrows `what`. Threads: one.
 */
#ifndef WAVETUNE_COMMON_PROGRAM_TERMINAL_H
#define WAVETUNE_COMMON_PROGRAM_TERMINAL_H

#include "common/base/base.h"

/* Replaces each invalid byte and each control character by '?', because terminals execute some. */
void text_make_printable(char *text);

struct table_column {
  const char *heading;
  bool is_number; /* aligned on the right */
};

struct table;
must_check struct table *table_new(const struct table_column *columns, size_t n_columns);
void table_free(struct table *table);
DEFINE_CLEANUP(struct table *, cleanup_table_free, table_free)
#define cleanup_table cleanup_by(cleanup_table_free)

/* Fills the next cell, row by row. */
void table_cell(struct table *table, const char *format, ...) printf_like(2, 3);

/* Prints the headings and the rows, each a line without spaces at its end. Aborts when the last row
 * is not full. */
void table_print(const struct table *table, FILE *out);

struct progress {
  FILE *out; /* NULL: nothing is drawn */
  const char *what;
  uint64_t total;
  int64_t started_ms, drawn_ms;
};

/* `total` 0: not known. */
struct progress progress_start(FILE *out, const char *what, uint64_t total);

/* Shows the share `done` of the total, and `note` ("" or for example "best 123.4 us"). Draws at
 * most ten times a second. */
void progress_show(struct progress *progress, uint64_t done, const char *note);

/* Clears the line, so that the next output begins on an empty one. */
void progress_end(struct progress *progress);

#endif
