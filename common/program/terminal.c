/* Tables of text, and the progress bar. */
#include "common/program/terminal.h"

#include <stdarg.h>
#include <sys/ioctl.h>

#include "common/base/error.h"

#define BAR_WIDTH 24
#define DRAW_EVERY_MS 100
#define COLUMNS_DEFAULT 80

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

/* The code point of the character of `length` bytes at `text`. */
static uint32_t code_point(const char *text, size_t length) {
  uint32_t point = (unsigned char)text[0] & (length == 1 ? 0x7f : 0xff >> (length + 1));
  for (size_t i = 1; i < length; i++)
    point = point << 6 | ((unsigned char)text[i] & 0x3f);
  return point;
}

void text_make_printable(char *text) {
  char *to = text;
  for (const char *from = text; *from;) {
    size_t length = utf8_character_size(from, SIZE_MAX);
    uint32_t point = length ? code_point(from, length) : 0;
    if (point < 0x20 || (point >= 0x7f && point < 0xa0)) {
      *to++ = '?';
    } else {
      memmove(to, from, length);
      to += length;
    }
    from += length ? length : 1;
  }

  *to = '\0';
}

/* The width of printable text in columns. */
static size_t text_width(const char *text) {
  size_t width = 0;
  for (size_t length; *text; text += length) {
    length = utf8_character_size(text, SIZE_MAX);
    uint32_t point = code_point(text, length);
    bool is_combining = (point >= 0x300 && point < 0x370) || point == 0x200d;
    width += !is_combining;
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
  text_make_printable(text);
  GROW(table->cells, table->n_cells, table->capacity);
  table->cells[table->n_cells++] = text;
}

/* Prints a row, or the headings if `cells` is NULL. */
static void print_row(const struct table *table, char *const *cells, const size_t *widths,
                      FILE *out) {
  size_t pending = 0; /* spaces that are written when text follows: no line ends with a space */
  for (size_t i = 0; i < table->n_columns; i++) {
    const char *text = cells ? cells[i] : table->columns[i].heading;
    size_t padding = widths[i] - text_width(text);
    bool is_number = table->columns[i].is_number;
    if (*text) {
      fprintf(out, "%*s%s", (int)(pending + (is_number ? padding : 0)), "", text);
      pending = is_number ? 0 : padding;
    } else {
      pending += padding;
    }
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

struct progress progress_start(FILE *out, const char *what, uint64_t total) {
  const char *terminal = getenv("TERM");
  bool is_watched = isatty(fileno(out)) && !string_equal(terminal, "dumb");
  int64_t now_ms = clock_monotonic_ms();
  return (struct progress){
      .out = is_watched ? out : NULL,
      .what = what,
      .total = total,
      .started_ms = now_ms,
      .drawn_ms = now_ms - DRAW_EVERY_MS,
  };
}

/* The width of the terminal: a line that wraps could not be overwritten. */
static size_t terminal_columns(FILE *out) {
  struct winsize size;
  bool is_known = ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return is_known ? size.ws_col : COLUMNS_DEFAULT;
}

static char *line_make(const struct progress *progress, uint64_t done, const char *note) {
  int64_t seconds = (clock_monotonic_ms() - progress->started_ms) / 1000;
  const char *gap = note[0] ? "  " : "";
  if (!progress->total)
    return xasprintf("%s  %llu  %lld s%s%s", progress->what, (unsigned long long)done,
                     (long long)seconds, gap, note);

  uint64_t shown = done < progress->total ? done : progress->total;
  double share = (double)shown / (double)progress->total;
  size_t filled = (size_t)(share * BAR_WIDTH);

  char bar[BAR_WIDTH + 1];
  memset(bar, '#', filled);
  memset(bar + filled, '.', BAR_WIDTH - filled);
  bar[BAR_WIDTH] = '\0';

  return xasprintf("%s [%s] %llu/%llu  %lld s%s%s", progress->what, bar, (unsigned long long)shown,
                   (unsigned long long)progress->total, (long long)seconds, gap, note);
}

void progress_show(struct progress *progress, uint64_t done, const char *note) {
  int64_t now_ms = clock_monotonic_ms();
  bool is_last = progress->total && done >= progress->total;
  if (!progress->out || (!is_last && now_ms - progress->drawn_ms < DRAW_EVERY_MS))
    return;

  progress->drawn_ms = now_ms;
  cleanup_free char *line = line_make(progress, done, note);
  fprintf(progress->out, "\r%.*s\x1b[K", (int)terminal_columns(progress->out) - 1, line);
  fflush(progress->out);
}

void progress_end(struct progress *progress) {
  if (!progress->out)
    return;
  fputs("\r\x1b[K", progress->out);
  fflush(progress->out);
}
