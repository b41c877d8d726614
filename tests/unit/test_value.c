/* Values: equality, Python's text, and back. */
#include <criterion/criterion.h>

#include "common/space/expr.h"

static void expect_text(struct value value, const char *plain, const char *quoted) {
  cleanup_free char *as_plain = value_format(value, false);
  cleanup_free char *as_quoted = value_format(value, true);
  cr_expect_str_eq(as_plain, plain);
  cr_expect_str_eq(as_quoted, quoted);
}

Test(value, is_written_as_python_writes_it) {
  expect_text(value_none(), "None", "None");
  expect_text(value_bool(true), "True", "True");
  expect_text(value_bool(false), "False", "False");
  expect_text(value_int(INT64_MIN), "-9223372036854775808", "-9223372036854775808");
  expect_text(value_float(1e-5), "1e-05", "1e-05");
  expect_text(value_float(2), "2.0", "2.0");
  expect_text(value_string("fp16"), "fp16", "'fp16'");
  expect_text(value_string("it's"), "it's", "\"it's\"");
  expect_text(value_string("it's \"so\""), "it's \"so\"", "'it\\'s \"so\"'");
  expect_text(value_string("a\\b\n\r\t\x01\x7f"), "a\\b\n\r\t\x01\x7f",
              "'a\\\\b\\n\\r\\t\\x01\\x7f'");
  expect_text(value_string("é"), "é", "'é'");
}

Test(value, quoted_text_reads_back_as_an_expression) {
  char text[256];
  for (int i = 0; i < 255; i++) /* every ASCII character, twice over */
    text[i] = (char)(1 + i % 127);
  text[255] = '\0';
  cleanup_free char *quoted = value_format(value_string(text), true);
  cleanup_expr struct expr *expr = NULL;
  struct error error;
  struct value value;
  cr_assert(expr_parse(quoted, &expr, &error) && expr_eval(expr, NULL, &value, &error), "%s",
            error.message);
  cr_expect_str_eq(value.string, text);
}

Test(value, equals_what_has_its_type_and_content) {
  const struct value values[] = {
      value_none(),   value_bool(false), value_bool(true), value_int(0),      value_int(1),
      value_float(0), value_float(1),    value_string(""), value_string("1"), value_string("None"),
  };
  for (size_t i = 0; i < ARRAY_LENGTH(values); i++)
    for (size_t j = 0; j < ARRAY_LENGTH(values); j++)
      cr_expect_eq(value_equal(values[i], values[j]), i == j, "%zu %zu", i, j);
}

Test(value, survives_json) {
  const struct value values[] = {value_none(), value_bool(true), value_int(-5), value_float(0.1),
                                 value_string("é\n")};
  for (size_t i = 0; i < ARRAY_LENGTH(values); i++) {
    cleanup_json json_t *json = value_to_json(values[i]);
    struct value back;
    struct error error;
    cr_assert(value_from_json(json, &back, &error));
    cr_expect(value_equal(values[i], back), "%zu", i);
  }
}

Test(value, is_no_array_or_object) {
  struct value value;
  struct error error;
  cleanup_json json_t *array = json_array(), *object = json_object();
  cr_expect_not(value_from_json(array, &value, &error));
  cr_expect_not_null(
      strstr(error.message, "a value must be null, a boolean, a number or a string, not an array"),
      "%s", error.message);
  cr_expect_not(value_from_json(object, &value, &error));
  cr_expect_not_null(
      strstr(error.message, "a value must be null, a boolean, a number or a string, not an object"),
      "%s", error.message);
}

Test(value, is_true_as_in_python) {
  cr_expect(value_is_true(value_int(-1)) && value_is_true(value_bool(true)) &&
            value_is_true(value_string("0")) && value_is_true(value_float(0.5)));
  cr_expect_not(value_is_true(value_int(0)) || value_is_true(value_bool(false)) ||
                value_is_true(value_string("")) || value_is_true(value_float(0)) ||
                value_is_true(value_none()));
}
