/* Elements by dtype. Memory: none. Threads: any. */
#include "agent/measure/element.h"

#include <float.h>
#include <math.h>

bool dtype_is_floating(enum dtype dtype) {
  return dtype == DTYPE_FLOAT16 || dtype == DTYPE_BFLOAT16 || dtype == DTYPE_FLOAT32 ||
         dtype == DTYPE_FLOAT64;
}

static float bfloat16_get(uint16_t bits) {
  uint32_t wide = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &wide, sizeof value);
  return value;
}

/* To nearest, ties to even. By way of float: what was halfway for a double is rounded twice, which
 * inputs can bear. */
static uint16_t bfloat16_of(float value) {
  uint32_t wide;
  memcpy(&wide, &value, sizeof wide);
  if (isnan(value))
    return (uint16_t)(wide >> 16 | 0x40);
  return (uint16_t)((wide + 0x7fff + (wide >> 16 & 1)) >> 16);
}

double element_get(enum dtype dtype, const void *bytes, int64_t index) {
  switch (dtype) {
  case DTYPE_BOOL:
  case DTYPE_UINT8:
    return ((const uint8_t *)bytes)[index];
  case DTYPE_INT8:
    return ((const int8_t *)bytes)[index];
  case DTYPE_INT16:
    return ((const int16_t *)bytes)[index];
  case DTYPE_UINT16:
    return ((const uint16_t *)bytes)[index];
  case DTYPE_INT32:
    return ((const int32_t *)bytes)[index];
  case DTYPE_UINT32:
    return ((const uint32_t *)bytes)[index];
  case DTYPE_INT64:
    return (double)((const int64_t *)bytes)[index];
  case DTYPE_UINT64:
    return (double)((const uint64_t *)bytes)[index];
  case DTYPE_FLOAT16:
    return (double)((const _Float16 *)bytes)[index];
  case DTYPE_BFLOAT16:
    return (double)bfloat16_get(((const uint16_t *)bytes)[index]);
  case DTYPE_FLOAT32:
    return (double)((const float *)bytes)[index];
  case DTYPE_FLOAT64:
    return ((const double *)bytes)[index];
  }
  die("element_get: dtype %d", dtype);
}

static double clamp(double value, double low, double high) {
  double rounded = nearbyint(value);
  return rounded < low ? low : rounded > high ? high : rounded;
}

void element_set(enum dtype dtype, void *bytes, int64_t index, double value) {
  switch (dtype) {
  case DTYPE_BOOL:
    ((uint8_t *)bytes)[index] = value != 0;
    return;
  case DTYPE_UINT8:
    ((uint8_t *)bytes)[index] = (uint8_t)clamp(value, 0, UINT8_MAX);
    return;
  case DTYPE_INT8:
    ((int8_t *)bytes)[index] = (int8_t)clamp(value, INT8_MIN, INT8_MAX);
    return;
  case DTYPE_INT16:
    ((int16_t *)bytes)[index] = (int16_t)clamp(value, INT16_MIN, INT16_MAX);
    return;
  case DTYPE_UINT16:
    ((uint16_t *)bytes)[index] = (uint16_t)clamp(value, 0, UINT16_MAX);
    return;
  case DTYPE_INT32:
    ((int32_t *)bytes)[index] = (int32_t)clamp(value, INT32_MIN, INT32_MAX);
    return;
  case DTYPE_UINT32:
    ((uint32_t *)bytes)[index] = (uint32_t)clamp(value, 0, UINT32_MAX);
    return;
  case DTYPE_INT64: /* the nearest doubles inside of the type's range */
    ((int64_t *)bytes)[index] = (int64_t)clamp(value, -0x1p63, 0x1p63 - 1024);
    return;
  case DTYPE_UINT64:
    ((uint64_t *)bytes)[index] = (uint64_t)clamp(value, 0, 0x1p64 - 2048);
    return;
  case DTYPE_FLOAT16:
    ((_Float16 *)bytes)[index] = (_Float16)value;
    return;
  case DTYPE_BFLOAT16:
    ((uint16_t *)bytes)[index] = bfloat16_of((float)value);
    return;
  case DTYPE_FLOAT32:
    ((float *)bytes)[index] = (float)value;
    return;
  case DTYPE_FLOAT64:
    ((double *)bytes)[index] = value;
    return;
  }
  die("element_set: dtype %d", dtype);
}

/* Quiet NaNs with a payload; the second differs so that a kernel that writes the first on purpose
 * is not blamed. */
uint32_t element_mark(enum dtype dtype, int mark) {
  switch (dtype) {
  case DTYPE_FLOAT16:
    return mark ? 0x7ea57ea5 : 0x7e5a7e5a;
  case DTYPE_BFLOAT16:
    return mark ? 0x7fe57fe5 : 0x7fda7fda;
  case DTYPE_FLOAT32:
    return mark ? 0x7fca5a5a : 0x7fc5a5a5;
  case DTYPE_FLOAT64: /* both halves of it */
    return mark ? 0x7ff8a5a5 : 0x7ff85a5a;
  default:
    return mark ? 0xa5a5a5a5 : 0x5a5a5a5a;
  }
}

/* The same as a number of the element's size. */
static uint64_t mark_of(enum dtype dtype, int mark) {
  uint64_t word = element_mark(dtype, mark);
  return word << 32 | word;
}

bool element_is_marked(enum dtype dtype, const void *bytes, int64_t index, int mark) {
  uint64_t expected = mark_of(dtype, mark); /* its first bytes: machines here are little-endian */
  return memcmp((const char *)bytes + (size_t)index * dtype_size(dtype), &expected,
                dtype_size(dtype)) == 0;
}

/* No branch in the loops, so that compilers vectorise them. */
#define DEFINE_ANY(name, type, condition)                                                          \
  static bool name(const type *values, int64_t n, type bound) {                                    \
    type found = 0;                                                                                \
    for (int64_t i = 0; i < n; i++)                                                                \
      found |= (condition);                                                                        \
    return found != 0;                                                                             \
  }
DEFINE_ANY(any_above_16, int16_t, (values[i] & INT16_MAX) > bound)
DEFINE_ANY(any_above_32, int32_t, (values[i] & INT32_MAX) > bound)
DEFINE_ANY(any_all_of_64, uint64_t, (values[i] & bound) == bound)
DEFINE_ANY(any_equal_8, uint8_t, values[i] == bound)
DEFINE_ANY(any_equal_16, uint16_t, values[i] == bound)
DEFINE_ANY(any_equal_32, uint32_t, values[i] == bound)
DEFINE_ANY(any_equal_64, uint64_t, values[i] == bound)

bool elements_are_suspect(enum dtype dtype, const void *bytes, int64_t first, int64_t n) {
  const void *from = (const char *)bytes + (size_t)first * dtype_size(dtype);
  uint64_t mark = mark_of(dtype, 0);
  switch (dtype) {
  case DTYPE_FLOAT16:
    return any_above_16(from, n, 0x7c00); /* an infinity's bits: NaNs are above */
  case DTYPE_BFLOAT16:
    return any_above_16(from, n, 0x7f80);
  case DTYPE_FLOAT32:
    return any_above_32(from, n, 0x7f800000);
  case DTYPE_FLOAT64:
    return any_all_of_64(from, n, 0x7ff0000000000000);
  case DTYPE_BOOL:
  case DTYPE_UINT8:
  case DTYPE_INT8:
    return any_equal_8(from, n, (uint8_t)mark);
  case DTYPE_INT16:
  case DTYPE_UINT16:
    return any_equal_16(from, n, (uint16_t)mark);
  case DTYPE_INT32:
  case DTYPE_UINT32:
    return any_equal_32(from, n, (uint32_t)mark);
  case DTYPE_INT64:
  case DTYPE_UINT64:
    return any_equal_64(from, n, mark);
  }
  die("elements_are_suspect: dtype %d", dtype);
}

#define DEFINE_UNWRITTEN(name, type)                                                               \
  static int64_t name(const type *values, const type *again, int64_t begin, int64_t end,           \
                      type mark, type other, int64_t *ret_first) {                                 \
    int64_t n = 0;                                                                                 \
    for (int64_t i = end - 1; i >= begin; i--) {                                                   \
      if (values[i] == mark && again[i] == other) {                                                \
        n++;                                                                                       \
        *ret_first = i;                                                                            \
      }                                                                                            \
    }                                                                                              \
    return n;                                                                                      \
  }
DEFINE_UNWRITTEN(unwritten_8, uint8_t)
DEFINE_UNWRITTEN(unwritten_16, uint16_t)
DEFINE_UNWRITTEN(unwritten_32, uint32_t)
DEFINE_UNWRITTEN(unwritten_64, uint64_t)

int64_t elements_unwritten(enum dtype dtype, const void *bytes, const void *again, int64_t first,
                           int64_t n, int64_t *ret_first) {
  uint64_t mark = mark_of(dtype, 0), other = mark_of(dtype, 1);
  switch (dtype_size(dtype)) {
  case 1:
    return unwritten_8(bytes, again, first, first + n, (uint8_t)mark, (uint8_t)other, ret_first);
  case 2:
    return unwritten_16(bytes, again, first, first + n, (uint16_t)mark, (uint16_t)other, ret_first);
  case 4:
    return unwritten_32(bytes, again, first, first + n, (uint32_t)mark, (uint32_t)other, ret_first);
  default:
    return unwritten_64(bytes, again, first, first + n, mark, other, ret_first);
  }
}

#define NEAR_BLOCK 1024 /* elements */

/* No branch: a block of which none is far is passed over at memory's speed. NaN and infinity are
 * far. */
#define DEFINE_NEAR(name, type, magnitude, largest)                                                \
  static bool name(const type *a, const type *b, int64_t n, type atol, type rtol) {                \
    int found = 0;                                                                                 \
    for (int64_t i = 0; i < n; i++) {                                                              \
      type difference = magnitude(a[i] - b[i]);                                                    \
      int is_near = difference <= atol + rtol * magnitude(a[i]),                                   \
          is_finite = difference <= (largest);                                                     \
      found |= !(is_near & is_finite);                                                             \
    }                                                                                              \
    return !found;                                                                                 \
  }
DEFINE_NEAR(floats_are_near, float, fabsf, FLT_MAX)
DEFINE_NEAR(doubles_are_near, double, fabs, DBL_MAX)

/* Finite ones: the exponent is the upper bits' in both formats, with another bias. */
static void float16_widen(const uint16_t *from, int64_t n, float *to) {
  for (int64_t i = 0; i < n; i++) {
    uint32_t bits = (uint32_t)(from[i] & 0x7fff) << 13;
    float magnitude;
    memcpy(&magnitude, &bits, sizeof magnitude);
    to[i] = magnitude * (from[i] & 0x8000 ? -0x1p112f : 0x1p112f);
  }
}

static void bfloat16_widen(const uint16_t *from, int64_t n, float *to) {
  for (int64_t i = 0; i < n; i++) {
    uint32_t bits = (uint32_t)from[i] << 16;
    memcpy(&to[i], &bits, sizeof bits);
  }
}

static bool halves_are_near(enum dtype dtype, const void *a, const void *b, int64_t n, float atol,
                            float rtol) {
  float wide_a[NEAR_BLOCK], wide_b[NEAR_BLOCK];
  if (dtype == DTYPE_FLOAT16 && (any_above_16(a, n, 0x7bff) || any_above_16(b, n, 0x7bff)))
    return false;
  void (*widen)(const uint16_t *, int64_t, float *) =
      dtype == DTYPE_FLOAT16 ? float16_widen : bfloat16_widen;
  widen(a, n, wide_a);
  widen(b, n, wide_b);
  return floats_are_near(wide_a, wide_b, n, atol, rtol);
}

static bool block_is_near(enum dtype dtype, const void *a, const void *b, int64_t n, double atol,
                          double rtol) {
  if (memcmp(a, b, (size_t)n * dtype_size(dtype)) == 0)
    return true;
  switch (dtype) {
  case DTYPE_FLOAT16:
  case DTYPE_BFLOAT16:
    return halves_are_near(dtype, a, b, n, (float)atol, (float)rtol);
  case DTYPE_FLOAT32:
    return floats_are_near(a, b, n, (float)atol, (float)rtol);
  case DTYPE_FLOAT64:
    return doubles_are_near(a, b, n, atol, rtol);
  default:
    return false;
  }
}

static bool is_far(enum dtype dtype, const void *a, const void *b, int64_t i, double atol,
                   double rtol) {
  double left = element_get(dtype, a, i), right = element_get(dtype, b, i);
  if (isnan(left) || isnan(right))
    return isnan(left) != isnan(right);
  if (isinf(left) || isinf(right))
    return left != right;
  return fabs(left - right) > atol + rtol * fabs(left);
}

int64_t elements_far(enum dtype dtype, const void *a, const void *b, int64_t first, int64_t n,
                     double atol, double rtol) {
  size_t size = dtype_size(dtype);
  for (int64_t at = first, block; at < first + n; at += block) {
    block = first + n - at < NEAR_BLOCK ? first + n - at : NEAR_BLOCK;
    size_t offset = (size_t)at * size;
    if (block_is_near(dtype, (const char *)a + offset, (const char *)b + offset, block, atol, rtol))
      continue;
    for (int64_t i = at; i < at + block; i++)
      if (is_far(dtype, a, b, i, atol, rtol))
        return i;
  }
  return -1;
}
