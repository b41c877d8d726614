/* Lists as tables, JSON or CSV. Memory and threads: output.h. */
#include "common/program/output.h"

#include "common/program/terminal.h"

enum output output_of(const struct options *options) {
  static const char *const names[] = {[OUTPUT_TABLE] = "table",
                                      [OUTPUT_WIDE] = "wide",
                                      [OUTPUT_JSON] = "json",
                                      [OUTPUT_CSV] = "csv",
                                      [OUTPUT_MARKDOWN] = "markdown"};
  const char *name = option_text(options, "output");
  if (!name)
    return option_flag(options, "json") ? OUTPUT_JSON : OUTPUT_TABLE;

  for (size_t i = 0; i < ARRAY_LENGTH(names); i++)
    if (string_equal(names[i], name))
      return (enum output)i;
  cli_refuse(EXIT_USAGE,
             "--output \"%.20s\" is unknown: it must be table, wide, json, csv or markdown", name);
}

static const char *member_of(const struct cli_column *column) {
  return column->member ? column->member : column->heading;
}

/* The text of a row's column; the caller's. */
static char *text_of(const json_t *row, const struct cli_column *column) {
  const json_t *value = json_object_get(row, member_of(column));
  return column->format ? column->format(value) : cli_format(value);
}

static void print_table(const json_t *rows, const struct cli_column *columns, size_t n_columns,
                        bool is_wide, FILE *out) {
  cleanup_free struct table_column *headings = xcalloc(n_columns, sizeof *headings);
  cleanup_free const struct cli_column **shown = xcalloc(n_columns, sizeof(struct cli_column *));
  size_t n_shown = 0;

  for (size_t i = 0; i < n_columns; i++)
    if (is_wide || !columns[i].is_wide) {
      headings[n_shown] = (struct table_column){columns[i].heading, columns[i].is_number};
      shown[n_shown++] = &columns[i];
    }

  cleanup_table struct table *table = table_new(headings, n_shown);
  json_elements (rows, index, row)
    for (size_t i = 0; i < n_shown; i++) {
      cleanup_free char *text = text_of(row, shown[i]);
      table_cell(table, "%s", text);
    }

  table_print(table, out);
}

/* A cell of CSV, in quotes where it needs them. */
static void print_csv_cell(const char *text, FILE *out) {
  if (!strpbrk(text, ",\"")) {
    fputs(text, out);
    return;
  }

  fputc('"', out);
  for (; *text; text++) {
    if (*text == '"')
      fputc('"', out);
    fputc(*text, out);
  }
  fputc('"', out);
}

static void print_csv(const json_t *rows, const struct cli_column *columns, size_t n_columns,
                      FILE *out) {

  for (size_t i = 0; i < n_columns; i++) {
    fputs(i ? "," : "", out);
    print_csv_cell(member_of(&columns[i]), out);
  }
  fputc('\n', out);

  json_elements (rows, index, row) {
    for (size_t i = 0; i < n_columns; i++) {
      cleanup_free char *text = cli_format(json_object_get(row, member_of(&columns[i])));
      text_make_printable(text);
      fputs(i ? "," : "", out);
      print_csv_cell(text, out);
    }
    fputc('\n', out);
  }
}

/* A cell between quotes of code, in which neither names nor "@" mean anything. */
static void print_markdown_cell(const char *text, bool is_number, FILE *out) {
  bool is_code = *text && !is_number;
  fputs(is_code ? " `" : " ", out);
  for (; *text; text++) {
    if (*text == '|')
      fputc('\\', out);
    fputc(*text == '`' ? '\'' : *text, out);
  }
  fputs(is_code ? "` |" : " |", out);
}

static void print_markdown(const json_t *rows, const struct cli_column *columns, size_t n_columns,
                           FILE *out) {

  fputc('|', out);
  for (size_t i = 0; i < n_columns; i++)
    if (!columns[i].is_wide)
      fprintf(out, " %s |", columns[i].heading);
  fputs("\n|", out);
  for (size_t i = 0; i < n_columns; i++)
    if (!columns[i].is_wide)
      fputs(columns[i].is_number ? "---:|" : "---|", out);
  fputc('\n', out);

  json_elements (rows, index, row) {
    fputc('|', out);
    for (size_t i = 0; i < n_columns; i++) {
      if (columns[i].is_wide)
        continue;
      cleanup_free char *text = text_of(row, &columns[i]);
      text_make_printable(text);
      print_markdown_cell(text, columns[i].is_number, out);
    }
    fputc('\n', out);
  }
}

void output_rows_of(enum output output, const json_t *rows, const struct cli_column *columns,
                    size_t n_columns, FILE *out) {
  switch (output) {
  case OUTPUT_TABLE:
  case OUTPUT_WIDE:
    print_table(rows, columns, n_columns, output == OUTPUT_WIDE, out);
    break;
  case OUTPUT_JSON:
    json_dumpf(rows, out, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    fputc('\n', out);
    break;
  case OUTPUT_CSV:
    print_csv(rows, columns, n_columns, out);
    break;
  case OUTPUT_MARKDOWN:
    print_markdown(rows, columns, n_columns, out);
    break;
  }
}

int output_list_of(const struct options *options, const char *path,
                   const struct cli_column *columns, size_t n_columns) {
  enum output output = output_of(options);
  cleanup_http_client struct http_client *client = cli_connect(options);
  cleanup_json json_t *items = cli_list(client, path);
  output_rows_of(output, items, columns, n_columns, stdout);
  return EXIT_OK;
}
