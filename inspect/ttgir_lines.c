/* Joining the lines of TTGIR. */
#include "inspect/ttgir_lines.h"

#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define NAME LETTERS "0123456789_$.-"
#define SPACES " \t\r"

static struct span trimmed(struct span line) {
  line = span_skip(line, span_run(line, SPACES));
  while (line.length && strchr(SPACES, line.text[line.length - 1]))
    line.length--;
  return line;
}

static bool starts(struct span line, const char *text) {
  size_t length = strlen(text);
  return line.length >= length && memcmp(line.text, text, length) == 0;
}

/* "%a = ", "%a:2, %b = ", "#name = " and "!name = ". */
static bool begins_definition(struct span line) {
  for (;;) {
    line = span_skip(line, 1);
    line = span_skip(line, span_run(line, NAME "#:"));
    line = span_skip(line, span_run(line, SPACES));
    if (!starts(line, ","))
      break;
    line = span_skip(line, 1);
    line = span_skip(line, span_run(line, SPACES));
    if (!starts(line, "%"))
      return false;
  }
  return starts(line, "=");
}

bool ttgir_line_begins(struct span line) {
  if (line.length == 0)
    return false;

  switch (line.text[0]) {
  case '%':
  case '#':
  case '!':
    return begins_definition(line);
  case '}':
  case '^':
    return true;
  case '/':
    return starts(line, "//");
  case '"': { /* "tt.reduce"(%x) */
    struct span name = span_skip(line, 1);
    return starts(span_skip(name, span_run(name, NAME)), "\"(");
  }
  default:
    break;
  }

  /* A name after its dialect, which is no attribute: tt.divisibility = 16. */
  struct span after = span_skip(line, span_run(line, NAME));
  struct span name = {line.text, line.length - after.length};
  bool is_operation = span_is(name, "module") || span_is(name, "return") ||
                      (name.length && strchr(LETTERS, name.text[0]) && span_after(name, ".").text);
  return is_operation && (after.length == 0 || strchr(" (<{", after.text[0])) &&
         !starts(trimmed(after), "=");
}

/* An operation that may go on in the next line. */
struct open_line {
  int depth;     /* of brackets */
  bool is_there; /* the line before was not empty */
  bool is_open;  /* more must follow */
  bool is_region;
};

static void line_scan(struct span line, struct open_line *open) {
  bool is_text = false;
  for (size_t i = 0; i < line.length; i++) {
    char c = line.text[i];
    if (c == '"' && (i == 0 || line.text[i - 1] != '\\'))
      is_text = !is_text;
    else if (is_text || !c || (c == '>' && i > 0 && line.text[i - 1] == '-'))
      continue;
    else if (strchr("([{<", c))
      open->depth++;
    else if (strchr(")]}>", c) && open->depth > 0)
      open->depth--;
  }

  char last = line.text[line.length - 1];
  open->is_there = true;
  open->is_region = last == '{';
  open->depth = open->is_region ? 0 : open->depth;
  open->is_open = open->depth > 0 || last == ',' || last == '=' ||
                  (line.length > 1 && last == '>' && line.text[line.length - 2] == '-');
}

/* After a line that opens a region only the rest of an attribute can continue it. */
static bool line_continues(struct span line, const struct open_line *open) {
  if (!open->is_there || open->is_open)
    return open->is_there;
  return !ttgir_line_begins(line) && (!open->is_region || memchr(line.text, '}', line.length));
}

char *ttgir_lines_join(const char *text, size_t size) {
  char *joined = xmalloc(2 * size + 1), *out = joined;
  struct span rest = {text, size};
  struct open_line open = {0};
  size_t n_joined = 0;
  bool has_line = false;
  while (rest.length) {
    const char *newline = memchr(rest.text, '\n', rest.length);
    struct span line = {rest.text, newline ? (size_t)(newline - rest.text) : rest.length};
    rest = span_skip(rest, line.length + (newline != NULL));
    line = trimmed(line);
    if (line.length && line_continues(line, &open)) {
      *out++ = ' ';
      n_joined++;
    } else {
      for (; n_joined; n_joined--)
        *out++ = '\n';
      if (has_line)
        *out++ = '\n';
      open = (struct open_line){0};
    }
    for (size_t i = 0; i < line.length; i++)
      *out++ = line.text[i] ? line.text[i] : '?'; /* the joined text ends at its first NUL */
    if (line.length)
      line_scan(line, &open);
    has_line = true;
  }
  *out = '\0';
  return joined;
}
