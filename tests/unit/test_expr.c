/* Expressions: CPython's results, and refusals that say where and what to do. */
#include <criterion/criterion.h>

#include "common/base/file.h"
#include "common/space/expr.h"

static const char *const names[] = {"M",  "N",    "zero", "three", "largest", "least", "yes",
                                    "no", "none", "text", "empty", "gpu",     "scale"};
static const struct value slots[] = {
    {VALUE_INT, {.integer = 64}},
    {VALUE_INT, {.integer = -7}},
    {VALUE_INT, {.integer = 0}},
    {VALUE_INT, {.integer = 3}},
    {VALUE_INT, {.integer = INT64_MAX}},
    {VALUE_INT, {.integer = INT64_MIN}},
    {VALUE_BOOL, {.boolean = true}},
    {VALUE_BOOL, {.boolean = false}},
    {VALUE_NONE},
    {VALUE_STRING, {.string = "abc"}},
    {VALUE_STRING, {.string = ""}},
    {VALUE_STRING, {.string = "AMD Instinct MI300X"}},
    {VALUE_FLOAT, {.real = 0.5}},
};

/* The repr of the value, "error", or "no column" for an error that does not say where. */
static char *result(const char *text, struct error *error) {
  cleanup_expr struct expr *expr = NULL;
  struct value value;
  if (expr_parse(text, &expr, error) && expr_bind(expr, names, ARRAY_LENGTH(names), error) &&
      expr_eval(expr, slots, &value, error))
    return value_format(value, true);
  return xstrdup(string_starts(error->message, "column ") ? "error" : "no column");
}

static void expect(const char *text, const char *wanted) {
  struct error error = {0};
  cleanup_free char *found = result(text, &error);
  cr_expect_str_eq(found, wanted, "%s: expected %s, found %s %s", text, wanted, found,
                   error.message);
}

static void expect_error(const char *text, const char *wanted) {
  struct error error = {0};
  cleanup_free char *found = result(text, &error);
  cr_expect_not_null(strstr(error.message, wanted), "%s: expected the error\n  %s\nfound %s\n  %s",
                     text, wanted, found, error.message);
}

Test(expr, gives_what_cpython_gives) {
  cleanup_free char *table = NULL;
  size_t size, cases = 0;
  struct error error;
  cr_assert(file_read(SOURCE_FOLDER "/tests/data/expressions.tsv", 1 << 20, &table, &size, &error),
            "%s", error.message);
  char *rest = table;
  for (char *line; (line = strsep(&rest, "\n")) && *line; cases++) {
    char *wanted = strchr(line, '\t');
    cr_assert(wanted, "no tab in %s", line);
    *wanted++ = '\0';
    expect(line, wanted);
  }
  cr_assert_gt(cases, 900);
}

Test(expr, reads_the_lambda_forms_of_triton_dejavu) {
  expect("lambda kwarg: kwarg['M'] >= kwarg['N']", "True");
  expect("lambda kwarg: kwarg[\"M\"] * 2", "128");
  expect("lambda kwarg: kwarg.get('M') // three", "21");
  expect("lambda config: config.kwargs['M'] + config.three", "67");
  expect("lambda c: c.kwargs.get('M')", "64");
  expect("lambda M: M.N", "-7");
  expect("lambda c : (c.M if c.yes else c.N)", "64");
}

Test(expr, names_the_lambda_argument_kwargs_when_it_is_a_parameter) {
  static const char *const own[] = {"kwargs", "get"};
  struct value values[] = {value_int(5), value_int(6)}, value;
  struct error error;
  cleanup_expr struct expr *expr = NULL;
  cr_assert(expr_parse("lambda c: c.kwargs * c.get", &expr, &error), "%s", error.message);
  cr_assert(expr_bind(expr, own, 2, &error) && expr_eval(expr, values, &value, &error), "%s",
            error.message);
  cr_expect_eq(value.integer, 30);
}

Test(expr, refuses_other_lambdas) {
  expect_error("lambda: 1", "column 7: expected the one argument of the lambda, found :");
  expect_error("lambda a, b: 1",
               "column 9: expected ':' after the one argument of the lambda, found ,");
  expect_error("1 + (lambda c: c.M)", "column 6: a lambda can only be the whole expression");
  expect_error(
      "lambda c: c > 1",
      "column 13: expected a member of the lambda's argument, as in c['X'] or c.X, found >");
  expect_error("lambda c: c.1", "column 12: expressions have no floats");
  expect_error("lambda c: c.(M)", "column 13: expected the name of a member, found (");
  expect_error("lambda c: c[M]", "column 13: expected the name of a parameter in quotes, found M");
  expect_error("lambda c: c['M'", "column 16: expected ']', found the end");
  expect_error("lambda c: c.get('M', 1)",
               "column 20: expected ')' (get takes no default here), found ,");
  expect_error("lambda c: c.kwargs.M",
               "column 20: kwargs is read as kwargs['X'] or kwargs.get('X')");
  expect_error("M['N']", "column 2: only the argument of a lambda has members");
}

Test(expr, an_operation_that_fails_names_column_and_operands) {
  expect_error("1 + M // zero", "column 7: division by zero");
  expect_error("M % zero", "column 3: modulo by zero");
  expect_error("ceil_div(M, zero)", "column 1: division by zero");
  expect_error("largest + 1", "column 9: 9223372036854775807 + 1 does not fit in 64 bits");
  expect_error("0 - least", "column 3: 0 - -9223372036854775808 does not fit in 64 bits");
  expect_error("ceil_div(least, -1)",
               "column 1: ceil_div(-9223372036854775808, -1) does not fit in 64 bits");
  expect_error("abs(least)", "column 1: abs of -9223372036854775808 does not fit in 64 bits");
  expect_error("-least", "column 1: - of -9223372036854775808 does not fit in 64 bits");
  expect_error("2 ** N", "column 3: 2 ** -7 would be a float: the exponent is negative");
  expect_error("2 ** M", "column 3: 2 ** 64 does not fit in 64 bits");
  expect_error("M < text", "column 3: < cannot order an integer and a string");
  expect_error("none <= M", "column 6: <= cannot order None and an integer");
  expect_error("yes > none", "column 5: > cannot order a bool and None");
  expect_error("text >= M", "column 6: >= cannot order a string and an integer");
  expect_error("min(M, text)", "column 1: min cannot order a string and an integer");
  expect_error("max(text, M)", "column 1: max cannot order an integer and a string");
  expect_error("text + text", "column 6: + takes integers, not a string and a string");
  expect_error("text * 2", "column 6: * takes integers, not a string and an integer");
  expect_error("text % 2", "column 6: % takes integers, not a string and an integer");
  expect_error("+text", "column 1: + takes an integer, not a string");
  expect_error("log2(zero)", "column 1: log2(0): the argument must be at least 1");
  expect_error("next_pow2(-7)", "column 1: next_pow2(-7): the argument must be at least 1");
  expect_error("next_pow2(largest)",
               "column 1: next_pow2(9223372036854775807) does not fit in 64 bits");
  expect_error(
      "1 in M",
      "column 3: the right side of in must be a tuple, a list or a string, not an integer");
  expect_error("1 in text", "column 3: only a string can be in a string, not an integer");
  expect_error("1 + scale", "column 5: \"scale\" is a float, which expressions cannot read");
}

Test(expr, a_syntax_error_names_column_and_remedy) {
  expect_error("", "column 1: expected a value, found the end");
  expect_error("(1 + 2", "column 7: expected ')', found the end");
  expect_error("M three", "column 3: expected an operator or the end, found three");
  expect_error("1 if 2", "column 7: expected else, found the end");
  expect_error("1 not 2", "column 7: expected in (after not), found 2");
  expect_error("M / 2", "column 3: '/' would make a float");
  expect_error("M = 2", "column 3: '=' assigns");
  expect_error("M & 1", "column 3: '&' is not an operator here");
  expect_error("M ? 1", "column 3: unexpected character '?'");
  expect_error("M + é", "column 5: unexpected byte 0xc3 outside of a string");
  expect_error("'é' = 1", "column 5: '=' assigns");
  expect_error("M * 1.5", "column 5: expressions have no floats");
  expect_error("1__0",
               "column 1: not an integer: write decimal or 0x digits, with single _ between them");
  expect_error("012", "column 1: a decimal integer has no leading zeros");
  expect_error("1 + 9223372036854775808", "column 5: the integer does not fit in 64 bits");
  expect_error("99999999999999999999", "column 1: the integer does not fit in 64 bits");
  expect_error("-9223372036854775808 ** 1", "column 2: the integer does not fit in 64 bits");
  expect_error("'abc", "column 1: the string has no closing '");
  expect_error("\"a\nb\"", "column 1: the string has no closing \"");
  expect_error("'\\u0041'", "column 1: the string holds an unknown escape");
  expect_error("(1, 2)", "column 1: a tuple or list is allowed on the right of in only");
  expect_error("()", "column 1: a tuple or list is allowed on the right of in only");
  expect_error("1, 2", "column 2: a tuple or list is allowed on the right of in only");
  expect_error("1 == [1]", "column 6: a tuple or list is allowed on the right of in only");
  expect_error("1 in (1, 2) == yes",
               "column 6: a tuple or list is allowed on the right of in only");
  expect_error("1 in (1, 2", "column 11: expected ',' or ')', found the end");
  expect_error("1 in [1 2]", "column 9: expected ',' or ']', found 2");
  expect_error("abs(1, 2)", "column 8: abs takes at most 1 argument");
  expect_error("ceil_div(1)", "column 11: ceil_div takes 2 arguments, found 1");
  expect_error("min()", "column 5: min takes at least 1 argument, found 0");
  expect_error("abs(1 2)", "column 7: expected ',' or ')', found 2");
  expect_error("max(1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17)",
               "column 44: max takes at most 16 arguments");
}

Test(expr, suggests_the_nearest_name) {
  expect_error("M + thre", "column 5: unknown name \"thre\"; did you mean \"three\"?");
  expect_error("Largest", "column 1: unknown name \"Largest\"; did you mean \"largest\"?");
  expect_error(
      "MAXIMUM(1)",
      "column 1: unknown function \"MAXIMUM\"; known: min, max, abs, ceil_div, next_pow2, log2");
  expect_error("ceildiv(1, 2)",
               "column 1: unknown function \"ceildiv\"; did you mean \"ceil_div\"?");
  expect_error(
      "quite_another",
      "column 1: unknown name \"quite_another\"; known: M, N, zero, three, largest, least, …");
  expect_error("lambda c: c['BLOCK']",
               "column 13: unknown name \"BLOCK\"; known: M, N, zero, three, largest, least, …");
}

Test(expr, cuts_a_long_name_in_a_message_between_characters) {
  expect_error("lambda c: c['ééééééééééééééééééééééééééééééééééé']",
               "column 13: unknown name \"éééééééééééééééééééééééééééééé...\"; "
               "known: M, N, zero, three, largest, least, …");
}

Test(expr, refuses_what_is_too_long_too_deep_or_not_utf8) {
  struct error error;
  struct expr *expr;
  cleanup_free char *spaces = xcalloc(1, EXPR_TEXT_MAX + 2);
  memset(spaces, ' ', EXPR_TEXT_MAX + 1);
  spaces[0] = '1';
  cr_expect_not(expr_parse(spaces, &expr, &error));
  cr_expect_not_null(strstr(error.message, "the expression is longer than 4096 bytes"), "%s",
                     error.message);
  spaces[EXPR_TEXT_MAX] = '\0';
  cr_assert(expr_parse(spaces, &expr, &error));
  expr_free(expr);
  cr_expect_not(expr_parse("'\xff'", &expr, &error));
  cr_expect_not_null(strstr(error.message, "the expression is not UTF-8"), "%s", error.message);
}

/* `before` n times, 1, `after` n times. */
static bool nests(const char *before, const char *after, size_t n, struct error *error) {
  char *text = NULL;
  size_t size;
  FILE *out = open_memstream(&text, &size);
  for (size_t i = 0; i < n; i++)
    fputs(before, out);
  fputs("1", out);
  for (size_t i = 0; i < n; i++)
    fputs(after, out);
  fclose(out);
  cleanup_free char *owned = text;
  cleanup_expr struct expr *expr = NULL;
  struct value value;
  return expr_parse(owned, &expr, error) && expr_eval(expr, NULL, &value, error);
}

Test(expr, nests_to_64_levels_in_every_way_and_no_deeper) {
  static const char *const ways[][2] = {
      {"(", ")"},
      {"-", ""},
      {"not ", ""},
      {"1 ** ", ""},
      {"min(1, ", ")"},
      {"1 in [", "]"},
      {"1 in (2, ", ")"},
      {"1 if 0 else ", ""},
      {"1 < 1 + 1 * 1 ** (", ")"},
      {"1 if 1 < 1 + 1 * 1 ** min(1, ", ") else 1"},
  };
  for (size_t i = 0; i < ARRAY_LENGTH(ways); i++) {
    struct error error = {0};
    cr_expect(nests(ways[i][0], ways[i][1], 31, &error), "%s: %s", ways[i][0], error.message);
    cr_expect_not(nests(ways[i][0], ways[i][1], 65, &error), "%s", ways[i][0]);
    cr_expect(strstr(error.message, ": the expression nests deeper than 64 levels"), "%s: %s",
              ways[i][0], error.message);
  }
}

Test(expr, can_be_bound_again_after_a_refusal) {
  cleanup_expr struct expr *expr = NULL;
  struct error error;
  struct value value, values[] = {value_int(1), value_int(20), value_int(300)};
  static const char *const first[] = {"a", "b"}, *const second[] = {"x", "b", "a"},
                           *const lacking[] = {"a"};
  cr_assert(expr_parse("a - b", &expr, &error));
  cr_assert(expr_bind(expr, first, 2, &error));
  cr_assert(expr_eval(expr, values, &value, &error));
  cr_expect_eq(value.integer, -19);
  cr_expect_not(expr_bind(expr, lacking, 1, &error));
  cr_assert(expr_bind(expr, second, 3, &error));
  cr_assert(expr_eval(expr, values, &value, &error));
  cr_expect_eq(value.integer, 280);
}

Test(expr, lists_the_slots_that_it_reads) {
  cleanup_expr struct expr *expr = NULL;
  struct error error;
  cr_assert(expr_parse("three in (M, zero) or M", &expr, &error));
  cr_assert(expr_bind(expr, names, ARRAY_LENGTH(names), &error));
  for (size_t i = 0; i < 300; i++)
    cr_expect_eq(expr_reads(expr, i), i == 0 || i == 2 || i == 3, "%zu", i);
  cr_expect_eq(expr_last_slot(expr), 3);
}

Test(expr, reads_no_slot_when_it_is_constant) {
  cleanup_expr struct expr *expr = NULL;
  struct error error;
  cr_assert(expr_parse("1 + 1", &expr, &error));
  cr_assert(expr_bind(expr, names, ARRAY_LENGTH(names), &error));
  cr_expect_eq(expr_last_slot(expr), -1);
}

Test(expr, can_name_identifiers_that_are_no_words_of_the_language) {
  static const char *const yes[] = {"M", "_", "num_warps", "Lambda", "min", "a1"};
  static const char *const no[] = {"",   "1a", "a-b",  "a b",    "é",    "and",  "or",   "not",
                                   "in", "if", "else", "lambda", "None", "True", "False"};
  for (size_t i = 0; i < ARRAY_LENGTH(yes); i++)
    cr_expect(expr_can_name(yes[i]), "%s", yes[i]);
  for (size_t i = 0; i < ARRAY_LENGTH(no); i++)
    cr_expect_not(expr_can_name(no[i]), "%s", no[i]);
}

Test(expr, gives_an_integer_within_bounds_or_an_error) {
  struct scope scope = {0};
  struct error error;
  int64_t integer = 0;
  cr_assert(scope_add(&scope, "M", value_int(100), &error));
  cr_assert(scope_add(&scope, "dtype", value_string("fp16"), &error));
  cr_assert(expr_int_in_scope("ceil_div(M, 64)", &scope, 1, 2, &integer, &error));
  cr_expect_eq(integer, 2);
  cr_expect_not(expr_int_in_scope("M", &scope, 1, 99, &integer, &error));
  cr_expect_not_null(strstr(error.message, "the expression gives 100"), "%s", error.message);
  cr_expect_not(expr_int_in_scope("M > 1", &scope, 0, 99, &integer, &error));
  cr_expect_not_null(strstr(error.message, "the expression gives a bool"), "%s", error.message);
  cr_expect_not(expr_int_in_scope("dtype", &scope, 0, 99, &integer, &error));
  cr_expect_not_null(strstr(error.message, "the expression gives a string"), "%s", error.message);
  cr_expect_not(expr_int_in_scope("M // 0", &scope, 0, 99, &integer, &error));
  cr_expect_not(expr_int_in_scope("K", &scope, 0, 99, &integer, &error));
  cr_expect_eq(integer, 2, "ret is written on success only");
}

Test(scope, keeps_the_later_of_two_values_of_one_name) {
  struct scope scope = {0};
  struct error error;
  int64_t integer;
  cr_assert(scope_add(&scope, "M", value_int(1), &error) &&
            scope_add(&scope, "M", value_int(2), &error));
  cr_expect_eq(scope.n, 1);
  cr_assert(expr_int_in_scope("M", &scope, 0, 9, &integer, &error));
  cr_expect_eq(integer, 2);
}

Test(scope, refuses_more_than_256_names) {
  static struct scope scope;
  static char texts[257][8];
  struct error error;
  for (size_t i = 0; i < 257; i++) {
    snprintf(texts[i], sizeof texts[i], "n%zu", i);
    cr_assert_eq(scope_add(&scope, texts[i], value_int(1), &error), i < 256);
  }
  cr_expect_not_null(
      strstr(error.message, "no room for \"n256\": expressions read at most 256 names"), "%s",
      error.message);
  int64_t integer;
  cr_expect(expr_int_in_scope("n255", &scope, 0, 9, &integer, &error));
}
