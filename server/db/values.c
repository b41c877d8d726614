/* Digests and sets of configs as SQL texts. Memory and threads: as the header says. */
#include "server/db/values.h"

#include <inttypes.h>

#include <errno.h>

char *digest_bytea(const struct digest *digest, char text[BYTEA_TEXT_SIZE]) {
  static const char digits[] = "0123456789abcdef";
  char *out = text;
  *out++ = '\\';
  *out++ = 'x';
  for (size_t i = 0; i < DIGEST_SIZE; i++) {
    *out++ = digits[digest->bytes[i] >> 4];
    *out++ = digits[digest->bytes[i] & 15];
  }
  *out = 0;
  return text;
}

void db_array_digest(struct db_array *array, const struct digest *digest) {
  char text[BYTEA_TEXT_SIZE];
  db_array_text(array, digest_bytea(digest, text));
}

struct digest db_get_digest(const struct db_rows *rows, int row, const char *column) {
  struct digest digest;
  size_t size;
  cleanup_free uint8_t *bytes = db_get_bytes(rows, row, column, &size);
  ALWAYS(size == sizeof digest.bytes);
  memcpy(digest.bytes, bytes, sizeof digest.bytes);
  return digest;
}

json_t *db_get_json(const struct db_rows *rows, int row, const char *column) {
  if (db_is_null(rows, row, column))
    return json_null();
  const char *text = db_get(rows, row, column);
  json_t *value = json_loads(text, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
  ALWAYS(value != NULL);
  return value;
}

char *multirange_format(const struct config_ranges *ranges) {
  char *text = NULL;
  size_t size;
  FILE *out = open_memstream(&text, &size);
  ALWAYS(out != NULL);
  fputc('{', out);
  for (size_t i = 0; i < ranges->n; i++)
    fprintf(out, "%s[%" PRIu64 ",%" PRIu64 ")", i ? "," : "", ranges->ranges[i].first,
            ranges->ranges[i].first + ranges->ranges[i].count);
  fputc('}', out);
  ALWAYS(fclose(out) == 0);
  return text;
}

static uint64_t bound_parse(const char **text, char before) {
  ALWAYS(**text == before);
  char *end;
  errno = 0;
  uint64_t bound = strtoull(*text + 1, &end, 10);
  ALWAYS(errno == 0 && end != *text + 1);
  *text = end;
  return bound;
}

struct config_ranges multirange_parse(const char *text) {
  struct config_ranges ranges = {0};
  ALWAYS(*text == '{');
  for (text++; *text != '}'; text += *text == ',') {
    struct config_range range;
    range.first = bound_parse(&text, '[');
    range.count = bound_parse(&text, ',') - range.first;
    ALWAYS(*text++ == ')');
    GROW(ranges.ranges, ranges.n, ranges.capacity);
    ranges.ranges[ranges.n++] = range;
  }
  return ranges;
}

size_t ordinals_parse(const char *text, uint64_t *ret, size_t most) {
  size_t n = 0;
  while ((*text == '{' || *text == ',') && text[1] != '}' && n < most) {
    char *end;
    ret[n++] = strtoull(text + 1, &end, 10);
    ALWAYS(end != text + 1);
    text = end;
  }
  return n;
}

struct budget db_get_budget(const struct db_rows *rows, int row) {
  return (struct budget){.total_us = db_get_integer(rows, row, "budget_us"),
                         .spent_us = db_get_integer(rows, row, "spent_us"),
                         .opening_us = db_get_integer(rows, row, "opening_us"),
                         .openings = db_get_integer(rows, row, "openings"),
                         .measured = db_get_integer(rows, row, "measured"),
                         .final_us = db_get_integer(rows, row, "final_us"),
                         .final_processes = db_get_integer(rows, row, "final_processes")};
}
