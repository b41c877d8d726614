/* The option -o of commands that list: one list as a table, a wide table, JSON, CSV or
 * Markdown.
 *
 * A list is an array of objects, its rows, and a table of columns (struct cli_column), each of
 * which shows one member of the rows. Columns that are `is_wide` are left out of the plain table.
 * CSV is RFC 4180 with lines that end in "\n": all columns, headed by the members' names, with the
 * values as they are in JSON, not as the table formats them; a control character is '?', so that
 * each row is one line. Markdown has the columns of the plain table, as in a comment on GitHub.
 *
 * Memory: nothing is kept. Threads: one. */
#ifndef WAVETUNE_COMMON_PROGRAM_OUTPUT_H
#define WAVETUNE_COMMON_PROGRAM_OUTPUT_H

#include "common/program/cli.h"

/* clang-format off */
#define OPTION_OUTPUT \
  {.name = "output", .letter = 'o', .type = OPTION_TEXT, .argument = "FORMAT", .flag_only = true, \
   .help = \
   "how the list is printed: table, wide (with more columns), json, csv or markdown; -o for short"}
/* clang-format on */

enum output { OUTPUT_TABLE, OUTPUT_WIDE, OUTPUT_JSON, OUTPUT_CSV, OUTPUT_MARKDOWN };

/* What -o asks for; without it, --json is -o json, and a table is the default. Ends the program
 * where the format is unknown. */
must_check enum output output_of(const struct options *options);

/* Prints the rows. As JSON they are printed as they are, with all members. */
#define output_rows(output, rows, columns, out)                                                    \
  output_rows_of((output), (rows), (columns), ARRAY_LENGTH(columns), (out))
void output_rows_of(enum output output, const json_t *rows, const struct cli_column *columns,
                    size_t n_columns, FILE *out);

/* A whole listing command, as cli_print_list is, with -o. */
#define output_list(options, path, columns)                                                        \
  output_list_of((options), (path), (columns), ARRAY_LENGTH(columns))
must_check int output_list_of(const struct options *options, const char *path,
                              const struct cli_column *columns, size_t n_columns);

#endif
