/* Input data and elements by dtype. */
#include <criterion/criterion.h>
#include <math.h>

#include "agent/measure/element.h"
#include "agent/measure/reference.h"

static struct argument argument_of(enum dtype dtype, enum fill_kind fill, double low, double high) {
  return (struct argument){.dtype = dtype,
                           .is_buffer = true,
                           .fill = {.kind = fill, .is_stated = true, .low = low, .high = high}};
}

Test(inputs, the_same_seed_gives_the_same_bytes) {
  struct argument argument = argument_of(DTYPE_FLOAT32, FILL_NORMAL, 0, 1);
  float first[1001], second[1001];
  inputs_fill(&argument, 2, 1001, 7, first);
  inputs_fill(&argument, 2, 1001, 7, second);
  cr_expect_eq(memcmp(first, second, sizeof first), 0);
}

Test(inputs, another_seed_gives_other_bytes) {
  struct argument argument = argument_of(DTYPE_FLOAT32, FILL_NORMAL, 0, 1);
  float first[100], second[100];
  inputs_fill(&argument, 2, 100, 7, first);
  inputs_fill(&argument, 2, 100, 8, second);
  cr_expect_neq(memcmp(first, second, sizeof first), 0);
}

Test(inputs, two_arguments_get_different_data) {
  struct argument argument = argument_of(DTYPE_FLOAT32, FILL_NORMAL, 0, 1);
  float first[100], second[100];
  inputs_fill(&argument, 0, 100, 7, first);
  inputs_fill(&argument, 1, 100, 7, second);
  cr_expect_neq(memcmp(first, second, sizeof first), 0);
}

Test(inputs, more_than_a_period_repeats_what_was_drawn) {
  enum { MORE = 1000 };
  struct argument argument = argument_of(DTYPE_INT8, FILL_INTEGERS, -100, 100);
  cleanup_free char *bytes = xmalloc(INPUTS_PERIOD + MORE);
  inputs_fill(&argument, 0, INPUTS_PERIOD + MORE, 7, bytes);
  cr_expect_eq(memcmp(bytes, bytes + INPUTS_PERIOD, MORE), 0);
  cr_expect_neq(memcmp(bytes, bytes + (1 << 24), MORE), 0,
                "rows of a power of two of elements must differ");
}

Test(inputs, deviates_have_the_scale_of_the_fill) {
  enum { N = 3 * INPUTS_BLOCK / 2 };
  static float plain[N], scaled[N];
  struct argument argument = argument_of(DTYPE_FLOAT32, FILL_NORMAL, 0, 1);
  inputs_fill(&argument, 2, N, 7, plain);
  argument.fill.scale = 1.0 / 16;
  inputs_fill(&argument, 2, N, 7, scaled);
  for (int i = 0; i < N; i++)
    cr_assert_eq(scaled[i], plain[i] / 16);
}

static void expect_normal(enum dtype dtype) {
  enum { N = 200000 }; /* some blocks */
  static double bytes[N];
  struct argument argument = argument_of(dtype, FILL_NORMAL, 0, 1);
  inputs_fill(&argument, 0, N, 1, bytes);
  double sum = 0, squares = 0;
  for (int i = 0; i < N; i++) {
    double value = element_get(dtype, bytes, i);
    sum += value;
    squares += value * value;
  }
  cr_expect_float_eq(sum / N, 0, 0.03, "%s", dtype_name(dtype));
  cr_expect_float_eq(squares / N, 1, 0.05, "%s", dtype_name(dtype));
}

Test(inputs, normal_has_mean_0_and_deviation_1) {
  expect_normal(DTYPE_FLOAT16);
  expect_normal(DTYPE_BFLOAT16);
  expect_normal(DTYPE_FLOAT32);
  expect_normal(DTYPE_FLOAT64);
}

Test(inputs, uniform_stays_in_its_range_and_fills_it) {
  double values[10000], least = INFINITY, most = -INFINITY;
  struct argument argument = argument_of(DTYPE_FLOAT64, FILL_UNIFORM, -2, 3);
  inputs_fill(&argument, 0, 10000, 1, values);
  for (int i = 0; i < 10000; i++) {
    least = fmin(least, values[i]);
    most = fmax(most, values[i]);
  }
  cr_expect(least >= -2 && least < -1.99);
  cr_expect(most < 3 && most > 2.99);
}

Test(inputs, integers_include_both_ends) {
  int8_t values[1000];
  bool seen[5] = {false};
  struct argument argument = argument_of(DTYPE_INT8, FILL_INTEGERS, -2, 2);
  inputs_fill(&argument, 0, 1000, 1, values);
  for (int i = 0; i < 1000; i++) {
    cr_assert(values[i] >= -2 && values[i] <= 2);
    seen[values[i] + 2] = true;
  }
  for (int i = 0; i < 5; i++)
    cr_expect(seen[i], "%d", i - 2);
}

Test(inputs, zeros_are_zeros) {
  uint32_t values[100];
  memset(values, 0xff, sizeof values);
  struct argument argument = argument_of(DTYPE_UINT32, FILL_ZEROS, 0, 0);
  inputs_fill(&argument, 0, 100, 1, values);
  for (int i = 0; i < 100; i++)
    cr_expect_eq(values[i], 0);
}

Test(inputs, index_counts_as_far_as_the_type_can) {
  int8_t bytes[200];
  struct argument small = argument_of(DTYPE_INT8, FILL_INDEX, 0, 0);
  inputs_fill(&small, 0, 200, 1, bytes);
  cr_expect_eq(bytes[127], 127);
  cr_expect_eq(bytes[128], 0);
  static uint16_t halves[3000];
  struct argument half = argument_of(DTYPE_FLOAT16, FILL_INDEX, 0, 0);
  inputs_fill(&half, 0, 3000, 1, halves);
  cr_expect_eq(element_get(DTYPE_FLOAT16, halves, 2047), 2047);
  cr_expect_eq(element_get(DTYPE_FLOAT16, halves, 2048), 0);
  uint8_t tiny[40];
  struct argument eight = argument_of(DTYPE_FLOAT8_E4M3FN, FILL_INDEX, 0, 0);
  inputs_fill(&eight, 0, 40, 1, tiny);
  cr_expect_eq(element_get(DTYPE_FLOAT8_E4M3FN, tiny, 15), 15);
  cr_expect_eq(element_get(DTYPE_FLOAT8_E4M3FN, tiny, 16), 0);
  struct argument least = argument_of(DTYPE_FLOAT8_E4B15, FILL_INDEX, 0, 0);
  inputs_fill(&least, 0, 40, 1, tiny);
  cr_expect_eq(element_get(DTYPE_FLOAT8_E4B15, tiny, 39), 1);
  cr_expect_eq(element_get(DTYPE_FLOAT8_E4B15, tiny, 38), 0, "it has no 2");
  int64_t wide[3];
  struct argument large = argument_of(DTYPE_INT64, FILL_INDEX, 0, 0);
  inputs_fill(&large, 0, 3, 1, wide);
  cr_expect_eq(wide[2], 2);
}

/* The first and the last element, whether they never fall, and how often each value occurs. */
Test(inputs, sorted_rises_from_the_low_end_to_the_high_end) {
  enum { N = 200000 };
  static int32_t values[N];
  struct argument argument = argument_of(DTYPE_INT32, FILL_SORTED, -7, 1000);
  inputs_fill(&argument, 0, N, 1, values);
  cr_expect_eq(values[0], -7);
  cr_expect_eq(values[N - 1], 1000);
  for (int i = 1; i < N; i++)
    cr_assert_leq(values[i - 1], values[i], "%d", i);
  int32_t few[4], again[4];
  inputs_fill(&argument, 0, 4, 1, few);
  inputs_fill(&argument, 0, 4, 2, again);
  cr_expect_neq(memcmp(few, again, sizeof few), 0, "the others are random");
  inputs_fill(&argument, 0, 1, 1, few);
  cr_expect_eq(few[0], -7);
}

Test(inputs, a_ramp_goes_by_its_step_as_far_as_the_type_holds) {
  enum { N = 70000 };
  static int64_t values[N];
  struct argument argument = argument_of(DTYPE_INT64, FILL_RAMP, 5, -3);
  inputs_fill(&argument, 0, N, 1, values);
  for (int i = 0; i < N; i++)
    cr_assert_eq(values[i], 5 - 3 * i);
  int8_t small[100];
  argument = argument_of(DTYPE_INT8, FILL_RAMP, 0, 2);
  inputs_fill(&argument, 0, 100, 1, small);
  cr_expect_eq(small[63], 126);
  cr_expect_eq(small[64], 127);
  float floats[3];
  argument = argument_of(DTYPE_FLOAT32, FILL_RAMP, 0.5, 0.25);
  inputs_fill(&argument, 0, 3, 1, floats);
  cr_expect_eq(floats[2], 1);
}

/* Whether the values from `first` on are 0 to n - 1, each once. */
static void expect_permutation(const int32_t *values, int first, int n) {
  cleanup_free bool *seen = xcalloc((size_t)n, sizeof *seen);
  for (int i = 0; i < n; i++) {
    int value = values[first + i];
    cr_assert(value >= 0 && value < n && !seen[value], "%d of %d at %d", value, n, first + i);
    seen[value] = true;
  }
}

Test(inputs, a_permutation_has_each_number_once) {
  static const int lengths[] = {1, 2, 3, 4, 5, 64, 100, 65537, 200001};
  static int32_t values[2 * 200001], others[200001];
  for (size_t k = 0; k < ARRAY_LENGTH(lengths); k++) {
    int n = lengths[k];
    struct argument argument = argument_of(DTYPE_INT32, FILL_PERMUTATION, n, 0);
    inputs_fill(&argument, 0, 2 * n, 7, values);
    expect_permutation(values, 0, n);
    expect_permutation(values, n, n);
    inputs_fill(&argument, 0, n, 8, others);
    expect_permutation(others, 0, n);
    if (n < 64)
      continue;
    size_t size = (size_t)n * sizeof *values;
    cr_expect_neq(memcmp(values, others, size), 0, "another seed, another permutation");
    cr_expect_neq(memcmp(values, values + n, size), 0, "the second is another one");
    int in_place = 0;
    for (int i = 0; i < n; i++)
      in_place += values[i] == i;
    cr_expect_lt(in_place, 10, "%d of %d", in_place, n);
  }
}

Test(inputs, a_constant_and_bytes_are_taken_as_they_are) {
  float ones[70];
  struct argument argument = argument_of(DTYPE_FLOAT32, FILL_CONSTANT, 1.5, 0);
  inputs_fill(&argument, 0, 70, 1, ones);
  cr_expect(ones[0] == 1.5f && ones[69] == 1.5f);
  static uint16_t given[100000], taken[100000];
  for (int i = 0; i < 100000; i++)
    given[i] = (uint16_t)(i * 7);
  argument = argument_of(DTYPE_UINT16, FILL_BLOB, 0, 0);
  argument.fill.bytes = (const char *)given;
  inputs_fill(&argument, 0, 100000, 1, taken);
  cr_expect_eq(memcmp(given, taken, sizeof given), 0);
}

/* The bytes of every fill are those of every machine and version. */
Test(inputs, the_bytes_of_a_seed_never_change) {
  static const struct {
    enum fill_kind kind;
    double low, high;
    int32_t expected[5];
  } fills[] = {{FILL_INTEGERS, 0, 999, {823, 980, 232, 839, 329}},
               {FILL_SORTED, 0, 999, {0, 396, 446, 767, 999}},
               {FILL_PERMUTATION, 5, 0, {3, 2, 4, 0, 1}}};
  for (size_t i = 0; i < ARRAY_LENGTH(fills); i++) {
    int32_t values[5];
    struct argument argument = argument_of(DTYPE_INT32, fills[i].kind, fills[i].low, fills[i].high);
    inputs_fill(&argument, 1, 5, 3, values);
    cr_expect_eq(memcmp(values, fills[i].expected, sizeof values), 0, "%d: {%d, %d, %d, %d, %d}",
                 (int)fills[i].kind, values[0], values[1], values[2], values[3], values[4]);
  }
}

Test(element, every_dtype_reads_back_what_it_can_hold) {
  static const enum dtype all[] = {
#define X(name, enumerator, size, c_type) enumerator,
      DTYPES(X)
#undef X
  };
  for (size_t i = 0; i < ARRAY_LENGTH(all); i++) {
    uint64_t bytes[4] = {0};
    element_set(all[i], bytes, 1, 1);
    cr_expect_eq(element_get(all[i], bytes, 1), 1, "%s", dtype_name(all[i]));
    cr_expect_eq(element_get(all[i], bytes, 0), 0, "%s: the neighbour was written",
                 dtype_name(all[i]));
    cr_expect_eq(element_get(all[i], bytes, 2), 0, "%s: the neighbour was written",
                 dtype_name(all[i]));
  }
}

static double rounded(enum dtype dtype, double value) {
  uint64_t bytes = 0;
  element_set(dtype, &bytes, 0, value);
  return element_get(dtype, &bytes, 0);
}

Test(element, what_does_not_fit_is_rounded_or_saturates) {
  cr_expect_eq(rounded(DTYPE_INT8, 1000), 127);
  cr_expect_eq(rounded(DTYPE_INT8, -1000), -128);
  cr_expect_eq(rounded(DTYPE_UINT16, -1), 0);
  cr_expect_eq(rounded(DTYPE_INT32, 2.6), 3);
  cr_expect_eq(rounded(DTYPE_INT64, 1e300), 0x1p63 - 1024);
  cr_expect_eq(rounded(DTYPE_UINT64, 1e300), 0x1p64 - 2048);
  cr_expect_eq(rounded(DTYPE_BFLOAT16, 1 + 0x1p-9), 1, "halfway goes to even");
  cr_expect_eq(rounded(DTYPE_BFLOAT16, 1 + 3 * 0x1p-9), 1 + 0x1p-7);
  cr_expect_eq(rounded(DTYPE_FLOAT16, 1e6), INFINITY);
  cr_expect(isnan(rounded(DTYPE_BFLOAT16, NAN)));
}

Test(element, a_mark_is_seen_until_the_element_is_written) {
  static const enum dtype all[] = {
#define X(name, enumerator, size, c_type) enumerator,
      DTYPES(X)
#undef X
  };
  for (size_t i = 0; i < ARRAY_LENGTH(all); i++) {
    for (int mark = 0; mark < 2; mark++) {
      uint64_t bytes[4];
      for (int k = 0; k < 8; k++)
        ((uint32_t *)bytes)[k] = element_mark(all[i], mark);
      for (int k = 0; k < 4; k++)
        cr_expect(element_is_marked(all[i], bytes, k, mark), "%s", dtype_name(all[i]));
      cr_expect_not(element_is_marked(all[i], bytes, 0, !mark), "%s", dtype_name(all[i]));
      bool has_nan_of_its_own = dtype_is_floating(all[i]) && dtype_size(all[i]) > 1;
      cr_expect(!has_nan_of_its_own || isnan(element_get(all[i], bytes, 0)));
      element_set(all[i], bytes, 2, 1);
      cr_expect_not(element_is_marked(all[i], bytes, 2, mark), "%s", dtype_name(all[i]));
      cr_expect(element_is_marked(all[i], bytes, 3, mark), "%s", dtype_name(all[i]));
    }
  }
}

Test(element, an_element_that_may_not_be_written_makes_all_suspect) {
  static const enum dtype all[] = {
#define X(name, enumerator, size, c_type) enumerator,
      DTYPES(X)
#undef X
  };
  for (size_t i = 0; i < ARRAY_LENGTH(all); i++) {
    enum { ELEMENTS = 100 };
    uint64_t bytes[ELEMENTS], again[ELEMENTS];
    int64_t first = -1;
    for (int k = 0; k < ELEMENTS; k++) {
      element_set(all[i], bytes, k, k % 2 ? -1 : 1);
      element_set(all[i], again, k, k % 2 ? -1 : 1);
    }
    cr_expect_not(elements_are_suspect(all[i], bytes, 0, ELEMENTS), "%s", dtype_name(all[i]));
    size_t size = dtype_size(all[i]);
    for (size_t at = 70 * size; at < 71 * size; at++) {
      uint32_t marks[2] = {element_mark(all[i], 0), element_mark(all[i], 1)};
      ((uint8_t *)bytes)[at] = ((uint8_t *)&marks[0])[at % 4];
      ((uint8_t *)again)[at] = ((uint8_t *)&marks[1])[at % 4];
    }
    cr_expect(elements_are_suspect(all[i], bytes, 0, ELEMENTS), "%s", dtype_name(all[i]));
    cr_expect(elements_are_suspect(all[i], bytes, 70, 1), "%s", dtype_name(all[i]));
    cr_expect_not(elements_are_suspect(all[i], bytes, 71, ELEMENTS - 71), "%s", dtype_name(all[i]));
    cr_expect_eq(elements_unwritten(all[i], bytes, again, 0, ELEMENTS, &first), 1, "%s",
                 dtype_name(all[i]));
    cr_expect_eq(first, 70, "%s", dtype_name(all[i]));
    cr_expect_eq(elements_unwritten(all[i], bytes, bytes, 0, ELEMENTS, &first), 0, "%s",
                 dtype_name(all[i]));
  }
}
