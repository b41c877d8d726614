/* 8-bit floats: every code of each type, compared with its value by the definition. */
#include <criterion/criterion.h>
#include <math.h>

#include "agent/measure/element.h"
#include "agent/measure/float8.h"

static const struct definition {
  enum dtype dtype;
  int mantissa, bias;
  double largest;
  int n_nan; /* of the codes */
  bool has_infinity;
} definitions[] = {
    {DTYPE_FLOAT8_E4M3FN, 3, 7, 448, 2, false},   {DTYPE_FLOAT8_E5M2, 2, 15, 57344, 6, true},
    {DTYPE_FLOAT8_E4M3FNUZ, 3, 8, 240, 1, false}, {DTYPE_FLOAT8_E5M2FNUZ, 2, 16, 57344, 1, false},
    {DTYPE_FLOAT8_E4B15, 3, 15, 1.75, 0, false},
};

/* Sign, exponent and mantissa as digits, without tricks with bits. */
static double value_of(const struct definition *of, int code) {
  int scale = 1 << of->mantissa;
  int mantissa = code % scale, exponent = code % 128 / scale;
  double sign = code < 128 ? 1 : -1;
  bool is_finite_only = !of->has_infinity; /* one NaN with each sign, or -0 */
  if (is_finite_only && of->n_nan == 2 && code % 128 == 127)
    return NAN;
  if (is_finite_only && of->n_nan == 1 && code == 128)
    return NAN;
  if (of->has_infinity && exponent == 31)
    return mantissa ? NAN : sign * INFINITY;
  if (exponent == 0)
    return sign * mantissa / scale * pow(2, 1 - of->bias);
  return sign * (1 + (double)mantissa / scale) * pow(2, exponent - of->bias);
}

Test(float8, every_code_has_the_value_of_its_definition) {
  for (size_t i = 0; i < ARRAY_LENGTH(definitions); i++) {
    const struct definition *of = &definitions[i];
    double largest = 0;
    int n_nan = 0;
    for (int code = 0; code < 256; code++) {
      uint8_t byte = (uint8_t)code;
      double expected = value_of(of, code), value = element_get(of->dtype, &byte, 0);
      n_nan += isnan(value);
      cr_expect(isnan(expected) ? isnan(value)
                                : value == expected && signbit(value) == signbit(expected),
                "%s 0x%02x is %g, not %g", dtype_name(of->dtype), code, value, expected);
      if (isfinite(value) && !(of->dtype == DTYPE_FLOAT8_E4B15 && code % 128 == 127))
        largest = fmax(largest, value);
    }
    cr_expect_eq(n_nan, of->n_nan, "%s", dtype_name(of->dtype));
    cr_expect_eq(largest, of->largest, "%s", dtype_name(of->dtype));
    cr_expect_eq(float8_largest(of->dtype), of->largest, "%s", dtype_name(of->dtype));
  }
}

static uint8_t code_of(enum dtype dtype, double value) {
  uint8_t code = 0x33;
  element_set(dtype, &code, 0, value);
  return code;
}

Test(float8, a_value_gets_its_own_code) {
  for (size_t i = 0; i < ARRAY_LENGTH(definitions); i++) {
    const struct definition *of = &definitions[i];
    for (int code = 0; code < 256; code++) {
      double value = value_of(of, code);
      if (!isnan(value) && !(of->dtype == DTYPE_FLOAT8_E4B15 && code % 128 == 127))
        cr_expect_eq(code_of(of->dtype, value), code, "%s %g", dtype_name(of->dtype), value);
    }
  }
}

/* Between two neighbours: the nearer one, and in the middle the one with an even code. */
Test(float8, values_between_two_codes_go_to_the_nearer_and_halves_to_the_even_one) {
  for (size_t i = 0; i < ARRAY_LENGTH(definitions); i++) {
    const struct definition *of = &definitions[i];
    for (int code = 0; value_of(of, code) < of->largest; code++) {
      double low = value_of(of, code), high = value_of(of, code + 1), middle = (low + high) / 2;
      const char *name = dtype_name(of->dtype);
      cr_expect_eq(code_of(of->dtype, middle), code + code % 2, "%s %g", name, middle);
      cr_expect_eq(code_of(of->dtype, nextafter(middle, 0)), code, "%s %g", name, middle);
      cr_expect_eq(code_of(of->dtype, nextafter(middle, HUGE_VAL)), code + 1, "%s %g", name,
                   middle);
      cr_expect_eq(code_of(of->dtype, -high), 128 + code + 1, "%s %g", name, -high);
    }
  }
}

Test(float8, what_is_too_large_becomes_the_largest_value) {
  for (size_t i = 0; i < ARRAY_LENGTH(definitions); i++) {
    const struct definition *of = &definitions[i];
    uint8_t byte = code_of(of->dtype, 1e300);
    cr_expect_eq(element_get(of->dtype, &byte, 0), of->largest, "%s", dtype_name(of->dtype));
    byte = code_of(of->dtype, -of->largest * 1.01);
    cr_expect_eq(element_get(of->dtype, &byte, 0), -of->largest, "%s", dtype_name(of->dtype));
    byte = code_of(of->dtype, -INFINITY);
    cr_expect_eq(element_get(of->dtype, &byte, 0), of->has_infinity ? -INFINITY : -of->largest);
  }
}

Test(float8, nan_and_the_smallest_values) {
  for (size_t i = 0; i < ARRAY_LENGTH(definitions); i++) {
    const struct definition *of = &definitions[i];
    uint8_t byte = code_of(of->dtype, NAN);
    cr_expect(of->n_nan ? isnan(element_get(of->dtype, &byte, 0))
                        : element_get(of->dtype, &byte, 0) == of->largest);
    cr_expect_eq(code_of(of->dtype, 1e-300), 0);
    cr_expect_eq(code_of(of->dtype, -0x1p-1074), of->n_nan == 1 ? 0 : 0x80, "%s",
                 dtype_name(of->dtype));
  }
}

Test(float8, a_mark_or_a_nan_is_suspect_and_no_other_code_is) {
  for (size_t i = 0; i < ARRAY_LENGTH(definitions); i++) {
    enum { N = 100 };
    enum dtype dtype = definitions[i].dtype;
    for (int code = 0; code < 256; code++) {
      uint8_t codes[N] = {0};
      codes[77] = (uint8_t)code;
      cr_expect_eq(elements_are_suspect(dtype, codes, 0, N),
                   code == 0x5a || isnan(element_get(dtype, codes, 77)), "%s 0x%02x",
                   dtype_name(dtype), code);
    }
  }
}

/* Blocks are compared with and without a branch: both ways must agree. */
Test(float8, every_two_codes_are_compared_by_their_values) {
  for (size_t i = 0; i < ARRAY_LENGTH(definitions); i++) {
    enum dtype dtype = definitions[i].dtype;
    for (int a = 0; a < 256; a++) {
      for (int b = 0; b < 256; b++) {
        uint8_t left = (uint8_t)a, right = (uint8_t)b;
        double x = element_get(dtype, &left, 0), y = element_get(dtype, &right, 0);
        bool is_far = isnan(x) || isnan(y)   ? isnan(x) != isnan(y)
                      : isinf(x) || isinf(y) ? x != y
                                             : fabs(x - y) > 0.5 + 0.25 * fabs(x);
        cr_assert_eq(elements_far(dtype, &left, &right, 0, 1, 0.5, 0.25), is_far ? 0 : -1,
                     "%s 0x%02x 0x%02x", dtype_name(dtype), a, b);
      }
    }
  }
}
