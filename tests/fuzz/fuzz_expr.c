/* Untrusted expressions: what parses and binds gives the same value twice, whatever is in the slots
 * that it does not read, and a value that parses as an expression; the sentence of a refusal is
 * UTF-8. */
#include "common/space/expr.h"
#include "tests/fuzz/fuzz.h"

static const char *const names[] = {"M",   "N",    "K",    "largest", "least",
                                    "yes", "none", "text", "empty",   "scale"};
static const struct value slots[] = {
    {VALUE_INT, {.integer = 64}},
    {VALUE_INT, {.integer = -7}},
    {VALUE_INT, {.integer = 0}},
    {VALUE_INT, {.integer = INT64_MAX}},
    {VALUE_INT, {.integer = INT64_MIN}},
    {VALUE_BOOL, {.boolean = true}},
    {VALUE_NONE},
    {VALUE_STRING, {.string = "abc"}},
    {VALUE_STRING, {.string = ""}},
    {VALUE_FLOAT, {.real = 0.5}},
};

static void check_value(struct value value) {
  cleanup_free char *text = value_format(value, true);
  cleanup_expr struct expr *expr = NULL;
  struct error error;
  struct value back;
  if (strlen(text) > EXPR_TEXT_MAX) /* escapes made it longer than an expression may be */
    return;
  ALWAYS(expr_parse(text, &expr, &error) && expr_eval(expr, NULL, &back, &error) &&
         value_equal(value, back));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  cleanup_free char *text = xstrndup((const char *)bytes, size);
  cleanup_expr struct expr *expr = NULL;
  struct error error = {0};

  if (!expr_parse(text, &expr, &error) || !expr_bind(expr, names, ARRAY_LENGTH(names), &error)) {
    check_refusal(&error);
    return 0;
  }

  struct value value, again, only_read[ARRAY_LENGTH(slots)];
  for (size_t i = 0; i < ARRAY_LENGTH(slots); i++)
    only_read[i] = expr_reads(expr, i) ? slots[i] : value_float(-1);
  bool evaluates = expr_eval(expr, slots, &value, &error);
  ALWAYS(expr_eval(expr, only_read, &again, &error) == evaluates);
  if (!evaluates) {
    check_refusal(&error);
    return 0;
  }

  ALWAYS(value_equal(value, again) && value.type != VALUE_FLOAT);
  check_value(value);
  return 0;
}
