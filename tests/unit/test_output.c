/* Lists as tables, JSON and CSV: which columns, and values that a spreadsheet must not misread. */
#include "common/program/output.h"

#include <criterion/criterion.h>

static char *doubled(const json_t *value) {
  return xasprintf("%lld", 2 * (long long)json_integer_value(value));
}

static const struct cli_column columns[] = {
    {"job", "job", true, doubled},
    {"name", "name"},
    {"its key", "key", .is_wide = true},
};

static char *rows_text(enum output output, const char *json) {
  char *text = NULL;
  size_t size = 0;
  cleanup_json json_t *rows = json_loads(json, 0, NULL);
  FILE *out = open_memstream(&text, &size);
  output_rows_of(output, rows, columns, ARRAY_LENGTH(columns), out);
  fclose(out);
  return text;
}

static void expect(enum output output, const char *json, const char *wanted) {
  cleanup_free char *text = rows_text(output, json);
  cr_expect_str_eq(text, wanted);
}

#define ROWS "[{\"job\": 7, \"name\": \"add\", \"key\": {\"M\": 4, \"N\": 2}, \"more\": null}]"

Test(output, a_table_has_no_wide_columns) {
  expect(OUTPUT_TABLE, ROWS,
         "job  name\n"
         " 14  add\n");
}

Test(output, a_wide_table_has_all_columns) {
  expect(OUTPUT_WIDE, ROWS,
         "job  name  its key\n"
         " 14  add   {\"M\":4,\"N\":2}\n");
}

Test(output, csv_has_all_columns_by_their_members_and_plain_values) {
  expect(OUTPUT_CSV, ROWS,
         "job,name,key\n"
         "7,add,\"{\"\"M\"\":4,\"\"N\"\":2}\"\n");
}

Test(output, csv_quotes_and_keeps_each_row_on_one_line) {
  expect(OUTPUT_CSV, "[{\"job\": 1, \"name\": \"a\\nb, \\\"c\\\"\\u001b[2J\"}]",
         "job,name,key\n"
         "1,\"a?b, \"\"c\"\"?[2J\",\n");
}

Test(output, json_has_all_members_of_the_rows) {
  cleanup_free char *text = rows_text(OUTPUT_JSON, ROWS);
  cleanup_json json_t *printed = json_loads(text, 0, NULL), *rows = json_loads(ROWS, 0, NULL);
  cr_expect(json_equal(printed, rows));
}

Test(output, an_empty_list_is_its_headings) {
  expect(OUTPUT_TABLE, "[]", "job  name\n");
  expect(OUTPUT_CSV, "[]", "job,name,key\n");
  expect(OUTPUT_JSON, "[]", "[]\n");
}
