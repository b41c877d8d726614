/* Tables of text: alignment, UTF-8, and what must not reach a terminal. */
#include "common/program/terminal.h"

#include <criterion/criterion.h>

static const struct table_column columns[] = {{"config", false}, {"µs", true}, {"note", false}};

static char *table_text(const struct table *table) {
  char *text = NULL;
  size_t size = 0;
  FILE *out = open_memstream(&text, &size);
  table_print(table, out);
  fclose(out);
  return text;
}

static void expect(const struct table *table, const char *wanted) {
  cleanup_free char *text = table_text(table);
  cr_expect_str_eq(text, wanted);
}

Test(table, aligns_text_left_and_numbers_right) {
  cleanup_table struct table *table = table_new(columns, 3);
  table_cell(table, "B=64");
  table_cell(table, "%.1f", 7.25);
  table_cell(table, "x");
  table_cell(table, "B=1024");
  table_cell(table, "%.1f", 123.0);
  table_cell(table, "longer");
  expect(table, "config     µs  note\n"
                "B=64      7.2  x\n"
                "B=1024  123.0  longer\n");
}

Test(table, ends_no_line_in_a_space) {
  cleanup_table struct table *table = table_new(columns, 3);
  table_cell(table, "B=64");
  table_cell(table, "1");
  table_cell(table, "%s", "");
  table_cell(table, "C");
  table_cell(table, "%s", "");
  table_cell(table, "%s", "");
  expect(table, "config  µs  note\n"
                "B=64     1\n"
                "C\n");
}

Test(table, counts_code_points_and_not_bytes) {
  cleanup_table struct table *table = table_new(columns, 3);
  table_cell(table, "größe e\u0301");
  table_cell(table, "1");
  table_cell(table, "ok");
  expect(table, "config   µs  note\n"
                "größe e\u0301   1  ok\n");
}

Test(table, replaces_control_characters_and_broken_utf8) {
  cleanup_table struct table *table = table_new(columns, 1);
  table_cell(table, "a\x1b[2Jb");
  table_cell(table, "\xc3(");
  table_cell(table, "\xc0\xaf\xed\xa0\x80");
  table_cell(table, "c\xc2\x85"
                    "d");
  cleanup_free char *text = table_text(table);
  cr_expect_null(strpbrk(text, "\x1b\xc3\xc0\xed"));
  cr_expect_not_null(strstr(text, "a?[2Jb\n?(\n"));
  cr_expect_not_null(strstr(text, "c?d\n"));
}

Test(table, prints_only_the_headings_when_it_is_empty) {
  cleanup_table struct table *table = table_new(columns, 3);
  expect(table, "config  µs  note\n");
}
