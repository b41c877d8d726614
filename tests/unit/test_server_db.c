/* What of the database's connection can be tested without one: parameters, arrays, and a database
 * that is away. */
#include "server/db/db_record.h"

#include <criterion/criterion.h>

static struct error error;

Test(db, an_array_quotes_what_sql_would_misread) {
  struct db_array array;
  db_array_init(&array);
  db_array_text(&array, "plain");
  db_array_text(&array, "a\"b\\c,{}");
  db_array_text(&array, "");
  db_array_text(&array, NULL);
  db_array_text(&array, "NULL");
  db_array_integer(&array, INT64_MIN);
  cr_expect_str_eq(db_array_finish(&array),
                   "{\"plain\",\"a\\\"b\\\\c,{}\",\"\",NULL,\"NULL\",\"-9223372036854775808\"}");
  cr_expect_str_eq(db_array_finish(&array), array.text);
  free(array.text);
}

Test(db, an_empty_array_is_an_array) {
  struct db_array array;
  db_array_init(&array);
  cr_expect_str_eq(db_array_finish(&array), "{}");
  free(array.text);
}

Test(db, parameters_keep_their_order_and_formats) {
  struct db_parameters parameters = {0};
  bind_integer(&parameters, "a", -5);
  bind_text(&parameters, "b", NULL);
  bind_parameter(&parameters, parameter_bytes("c", "\0\1", 2));
  cr_assert_eq(parameters.n, 3);
  cr_expect_str_eq(parameters.all[0].value, "-5");
  cr_expect_null(parameters.all[1].value);
  cr_expect(parameters.all[2].is_binary);
  cr_expect_eq(parameters.all[2].size, 2);
}

struct inner {
  int64_t count;
};
struct outer {
  char *name;
  struct inner inner;
};
static const struct field inner_fields[] = {
    {"count", FIELD_INTEGER, offsetof(struct inner, count), .column = "inner_count"},
};
static const struct record inner_record = RECORD(NULL, struct inner, inner_fields);
static const struct field outer_fields[] = {
    {"name", FIELD_TEXT, offsetof(struct outer, name)},
    {"inner", FIELD_RECORD, offsetof(struct outer, inner), .of = &inner_record},
};
static const struct record outer_record = RECORD(NULL, struct outer, outer_fields);

Test(db, the_fields_of_a_record_in_a_record_are_bound_like_its_own) {
  struct outer outers[] = {{(char *)"a", {7}}, {(char *)"b", {FIELD_NONE}}};
  cleanup_parameters struct db_parameters one = {0}, all = {0};

  bind_record(&one, &outer_record, &outers[0]);
  cr_assert_eq(one.n, 2);
  cr_expect_str_eq(one.all[1].name, "inner_count");
  cr_expect_str_eq(one.all[1].value, "7");

  bind_records(&all, &outer_record, outers, 2);
  cr_assert_eq(all.n, 2);
  cr_expect_str_eq(all.all[0].value, "{\"a\",\"b\"}");
  cr_expect_str_eq(all.all[1].value, "{\"7\",NULL}");
}

Test(db, a_run_without_a_database_fails_and_the_next_one_at_once) {
  static const struct statement one = {"one", "SELECT 1"};
  struct db *db = db_new("host=/nowhere dbname=none", "test");
  cr_expect_not(db_run(db, &one, NULL, NULL, &error));
  cr_expect_eq(error.kind, ERROR_UNAVAILABLE);
  cr_expect(strstr(error.message, "away"));
  cr_expect_not(strchr(error.message, '\n'));
  cr_expect_not(db_begin(db, &error));
  cr_expect(strstr(error.message, "last attempt"));
  cr_expect_not(db_run_script(db, "SELECT 1", &error));
  db_rollback(db);
  db_free(db);
}

static uint64_t seen_failures;
static void statistic_see(void *context, const char *statement,
                          const uint64_t values[DB_STATISTICS]) {
  if (strcmp(statement, context) == 0)
    seen_failures += values[DB_FAILURES];
}

Test(db, failures_are_counted_by_the_statements_name) {
  static const struct statement counted = {"counted", "SELECT 1"};
  struct db *db = db_new("host=/nowhere", "test");
  for (int i = 0; i < 3; i++)
    cr_expect_not(db_run(db, &counted, NULL, NULL, &error));
  db_statistics_visit(statistic_see, (void *)"counted");
  cr_expect_eq(seen_failures, 3);
  db_free(db);
}
