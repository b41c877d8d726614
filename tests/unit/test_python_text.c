/* Texts as CPython writes them. The wanted texts were printed once by Python 3.11: repr(value),
 * json.dumps(value, indent=4) and json.dumps(value) of the values beside them. */
#include "common/cache/text.h"

#include <criterion/criterion.h>

static struct error error;

Test(python_text, strings_are_quoted_as_repr_quotes_them) {
  static const char *const pairs[][2] = {
      {"", "''"},
      {"abc", "'abc'"},
      {"it's", "\"it's\""},
      {"say \"x\"", "'say \"x\"'"},
      {"both ' and \"", "'both \\' and \"'"},
      {"back\\slash", "'back\\\\slash'"},
      {"tab\tnew\nret\r", "'tab\\tnew\\nret\\r'"},
      {"\001\037\177", "'\\x01\\x1f\\x7f'"},
      {"a, b", "'a, b'"},
      {"('x',)", "\"('x',)\""},
  };
  for (size_t i = 0; i < ARRAY_LENGTH(pairs); i++) {
    cleanup_free char *text = NULL;
    struct value string = value_string(pairs[i][0]);
    cr_assert(python_tuple_repr(&string, 1, &text, &error));
    cleanup_free char *expected = xasprintf("(%s,)", pairs[i][1]);
    cr_expect_str_eq(text, expected);
  }
}

Test(python_text, what_python_versions_print_differently_has_no_repr) {
  char *text = NULL;
  struct value string = value_string("\xc2\xa0");
  cr_expect_not(python_tuple_repr(&string, 1, &text, &error));
  cr_expect_null(text);
  cr_expect_neq(strstr(error.message, "outside ASCII"), NULL, "%s", error.message);
}

Test(python_text, tuples_are_printed_as_repr_prints_them) {
  static const char *const pairs[][2] = {
      {"[]", "()"},
      {"[1]", "(1,)"},
      {"[\"a\"]", "('a',)"},
      {"[1, \"a\"]", "(1, 'a')"},
      {"[true, null, 0.5]", "(True, None, 0.5)"},
      {"[0.1, 1e-05, 1e+16, 1e+22, -0.0, 123456789.0, 5e-324, 1.7976931348623157e+308]",
       "(0.1, 1e-05, 1e+16, 1e+22, -0.0, 123456789.0, 5e-324, 1.7976931348623157e+308)"},
      {"[-9223372036854775808, 9223372036854775807]",
       "(-9223372036854775808, 9223372036854775807)"},
      {"[3.0, 2.5e-10, 1000000000000000.0, 1.2345678901234568e+17]",
       "(3.0, 2.5e-10, 1000000000000000.0, 1.2345678901234568e+17)"},
  };
  for (size_t i = 0; i < ARRAY_LENGTH(pairs); i++) {
    cleanup_json json_t *array = json_loads(pairs[i][0], 0, NULL);
    struct value values[16];
    size_t n = json_array_size(array);
    for (size_t j = 0; j < n; j++)
      cr_assert(value_from_json(json_array_get(array, j), &values[j], &error));
    cleanup_free char *text = NULL;
    cr_assert(python_tuple_repr(values, n, &text, &error));
    cr_expect_str_eq(text, pairs[i][1]);
  }
  struct value outside = value_string("\xc3\xa4");
  char *none = NULL;
  cr_expect_not(python_tuple_repr(&outside, 1, &none, &error));
}

Test(python_text, documents_are_written_as_json_dump_writes_them) {
  static const char *const triples[][3] = {
      {"{\"a\": [], \"b\": {}, \"c\": [1, 2.0, {\"d\": null}], \"e\": true, \"f\": "
       "\"\\u00e4\\u20ac\\ud83d\\ude00\\u007f\\u0001\\b\\f\\n\\r\\t\\\"\\\\/\"}",
       "{\n    \"a\": [],\n    \"b\": {},\n    \"c\": [\n        1,\n        2.0,\n        {\n     "
       "       \"d\": null\n"
       "        }\n    ],\n    \"e\": true,\n    \"f\": "
       "\"\\u00e4\\u20ac\\ud83d\\ude00\\u007f\\u0001\\b\\f\\n\\r\\t\\\"\\\\/\"\n}",
       "{\"a\": [], \"b\": {}, \"c\": [1, 2.0, {\"d\": null}], \"e\": true, \"f\": "
       "\"\\u00e4\\u20ac\\ud83d\\ude00\\u007f\\u0001\\b\\f\\n\\r\\t\\\"\\\\/\"}"},
      {"[]", "[]", "[]"},
      {"{}", "{}", "{}"},
      {"[[], {}]", "[\n    [],\n    {}\n]", "[[], {}]"},
      {"\"x\"", "\"x\"", "\"x\""},
      {"1e-07", "1e-07", "1e-07"},
  };
  for (size_t i = 0; i < ARRAY_LENGTH(triples); i++) {
    cleanup_json json_t *json = json_loads(triples[i][0], JSON_DECODE_ANY, NULL);
    size_t size;
    cleanup_free char *indented = python_json(json, 4, &size), *plain = python_json(json, 0, &size);
    cr_expect_str_eq(indented, triples[i][1]);
    cr_expect_str_eq(plain, triples[i][2]);
  }
}

Test(python_text, a_text_has_the_type_whose_str_it_is) {
  static const struct {
    const char *text;
    enum value_type type;
  } texts[] = {
      {"None", VALUE_NONE},
      {"True", VALUE_BOOL},
      {"False", VALUE_BOOL},
      {"0", VALUE_INT},
      {"-12", VALUE_INT},
      {"9223372036854775807", VALUE_INT},
      {"-9223372036854775808", VALUE_INT},
      {"0.5", VALUE_FLOAT},
      {"-0.0", VALUE_FLOAT},
      {"1e-05", VALUE_FLOAT},
      {"1e+16", VALUE_FLOAT},
      {"5e-324", VALUE_FLOAT},
      {"", VALUE_STRING},
      {"none", VALUE_STRING},
      {"-", VALUE_STRING},
      {"-0", VALUE_STRING},
      {"007", VALUE_STRING},
      {"+5", VALUE_STRING},
      {" 5", VALUE_STRING},
      {"0x10", VALUE_STRING},
      {"9223372036854775808", VALUE_STRING},
      {"0.50", VALUE_STRING},
      {"1e5", VALUE_STRING},
      {"1e400", VALUE_STRING},
      {"inf", VALUE_STRING},
      {"nan", VALUE_STRING},
      {"1.", VALUE_STRING},
      {"0.1000000000000000055511151231257827021181583404541015625", VALUE_STRING},
  };
  for (size_t i = 0; i < ARRAY_LENGTH(texts); i++) {
    struct value value = python_value(texts[i].text);
    cleanup_free char *back = value_format(value, false);
    cr_expect_eq(value.type, texts[i].type, "%s", texts[i].text);
    cr_expect_str_eq(back, texts[i].text);
  }
}

Test(python_text, tuples_of_strings_are_read_back) {
  cleanup_strings struct strings elements = {0}, one = {0}, none = {0};
  cr_assert(python_string_tuple_parse("('16', \"it's\", 'a\\\\b\\x01', '\xc3\xa4')", 4, &elements,
                                      &error),
            "%s", error.message);
  cr_assert_eq(elements.n, (size_t)4);
  cr_expect_str_eq(elements.all[1], "it's");
  cr_expect_str_eq(elements.all[2], "a\\b\001");
  cr_expect_str_eq(elements.all[3], "\xc3\xa4");
  cr_assert(python_string_tuple_parse("('x',)", 4, &one, &error));
  cr_expect_eq(one.n, (size_t)1);
  cr_assert(python_string_tuple_parse("()", 4, &none, &error));
  cr_expect_eq(none.n, (size_t)0);
}

Test(python_text, more_elements_than_allowed_are_refused) {
  cleanup_strings struct strings elements = {0};
  cr_expect_not(python_string_tuple_parse("('1', '2', '3')", 2, &elements, &error));
  cr_expect_neq(strstr(error.message, "one element too many"), NULL, "%s", error.message);
}
