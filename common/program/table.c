/* Tables of text. A table owns its cells; one thread. */
#include "common/program/table.h"

#include <stdarg.h>

struct table {
  const struct table_column *columns;
  size_t n_columns;
  size_t n_cells, capacity;
  char **cells;
};

struct table *table_new(const struct table_column *columns, size_t n_columns) {
  struct table *table = xcalloc(1, sizeof *table);
  *table = (struct table){.columns = columns, .n_columns = n_columns};
  return table;
}

void table_free(struct table *table) {
  for (size_t i = 0; i < table->n_cells; i++)
    free(table->cells[i]);
  free(table->cells);
  free(table);
}

/* Bytes of the UTF-8 sequence at `text`, 0 when it is none; *ret_point is its code point. */
static size_t sequence_length(const char *text, uint32_t *ret_point) {
  const unsigned char *bytes = (const unsigned char *)text;
  size_t length = bytes[0] < 0x80         ? 1
                  : (bytes[0] >> 5) == 6  ? 2
                  : (bytes[0] >> 4) == 14 ? 3
                  : (bytes[0] >> 3) == 30 ? 4
                                          : 0;
  static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  static const unsigned char first_mask[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
  uint32_t point = bytes[0] & first_mask[length];
  for (size_t i = 1; i < length; i++) {
    if ((bytes[i] & 0xc0) != 0x80)
      return 0;
    point = point << 6 | (bytes[i] & 0x3f);
  }
  *ret_point = point;
  bool is_valid =
      length && point >= least[length] && point <= 0x10ffff && (point < 0xd800 || point > 0xdfff);
  return is_valid ? length : 0;
}

static bool is_control(uint32_t point) { return point < 0x20 || (point >= 0x7f && point < 0xa0); }

static bool is_combining(uint32_t point) {
  return (point >= 0x300 && point < 0x370) || point == 0x200d;
}

/* Replaces in place what a terminal must not get. A sequence becomes one '?' and is closed up. */
static void make_printable(char *text) {
  char *to = text;
  for (const char *from = text; *from;) {
    uint32_t point;
    size_t length = sequence_length(from, &point);
    if (length && !is_control(point)) {
      memmove(to, from, length);
      to += length;
    } else {
      *to++ = '?';
    }
    from += length ? length : 1;
  }
  *to = '\0';
}

static size_t text_width(const char *text) {
  size_t width = 0;
  while (*text) {
    uint32_t point = 0;
    size_t length = sequence_length(text, &point);
    width += !is_combining(point);
    text += length ? length : 1;
  }
  return width;
}

void table_cell(struct table *table, const char *format, ...) {
  char *text = NULL;
  va_list arguments;
  va_start(arguments, format);
  int length = vasprintf(&text, format, arguments);
  va_end(arguments);
  ALWAYS(length >= 0);
  make_printable(text);
  GROW(table->cells, table->n_cells, table->capacity);
  table->cells[table->n_cells++] = text;
}

static void print_spaces(FILE *out, size_t n) { fprintf(out, "%*s", (int)n, ""); }

/* `cells` is a row; NULL prints the headings. */
static void print_row(const struct table *table, char *const *cells, const size_t *widths,
                      FILE *out) {
  size_t pending =
      0; /* spaces are written when something follows them, so that no line ends in one */
  for (size_t i = 0; i < table->n_columns; i++) {
    const char *text = cells ? cells[i] : table->columns[i].heading;
    size_t padding = widths[i] - text_width(text);
    if (table->columns[i].is_number)
      pending += padding;
    if (*text) {
      print_spaces(out, pending);
      fputs(text, out);
      pending = 0;
    }
    if (!table->columns[i].is_number)
      pending += padding;
    pending += 2;
  }
  fputc('\n', out);
}

void table_print(const struct table *table, FILE *out) {
  ALWAYS(table->n_cells % table->n_columns == 0);
  cleanup_free size_t *widths = xcalloc(table->n_columns, sizeof *widths);
  for (size_t i = 0; i < table->n_columns; i++)
    widths[i] = text_width(table->columns[i].heading);
  for (size_t i = 0; i < table->n_cells; i++) {
    size_t width = text_width(table->cells[i]);
    if (width > widths[i % table->n_columns])
      widths[i % table->n_columns] = width;
  }
  print_row(table, NULL, widths, out);
  for (size_t i = 0; i < table->n_cells; i += table->n_columns)
    print_row(table, table->cells + i, widths, out);
}
