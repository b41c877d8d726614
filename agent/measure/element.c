/* Elements by dtype. Memory: none. Threads: any. */
#include "agent/measure/element.h"

#include <math.h>

/* Quiet NaNs with a payload; the second differs so that a kernel that writes the first on purpose is not blamed. */
static const uint16_t float16_marks[] = {0x7e5a, 0x7ea5}, bfloat16_marks[] = {0x7fda, 0x7fe5};
static const uint32_t float32_marks[] = {0x7fc5a5a5, 0x7fca5a5a};
static const uint64_t float64_marks[] = {0x7ff85a5a5a5a5a5a, 0x7ff8a5a5a5a5a5a5};
static const uint8_t byte_marks[] = {0x5a, 0xa5};

bool dtype_is_floating(enum dtype dtype) {
  return dtype == DTYPE_FLOAT16 || dtype == DTYPE_BFLOAT16 || dtype == DTYPE_FLOAT32 || dtype == DTYPE_FLOAT64;
}

static float bfloat16_get(uint16_t bits) {
  uint32_t wide = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &wide, sizeof value);
  return value;
}

/* To nearest, ties to even. By way of float: what was halfway for a double is rounded twice, which inputs can bear. */
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

void elements_mark(enum dtype dtype, void *bytes, int64_t elements, int mark) {
  if (dtype == DTYPE_FLOAT64) {
    for (int64_t i = 0; i < elements; i++)
      memcpy((uint64_t *)bytes + i, &float64_marks[mark], sizeof(uint64_t));
  } else if (dtype == DTYPE_FLOAT32) {
    for (int64_t i = 0; i < elements; i++)
      memcpy((uint32_t *)bytes + i, &float32_marks[mark], sizeof(uint32_t));
  } else if (dtype_is_floating(dtype)) {
    uint16_t bits = dtype == DTYPE_FLOAT16 ? float16_marks[mark] : bfloat16_marks[mark];
    for (int64_t i = 0; i < elements; i++)
      memcpy((uint16_t *)bytes + i, &bits, sizeof bits);
  } else {
    memset(bytes, byte_marks[mark], (size_t)elements * dtype_size(dtype));
  }
}

bool element_is_marked(enum dtype dtype, const void *bytes, int64_t index, int mark) {
  size_t size = dtype_size(dtype);
  const unsigned char *element = (const unsigned char *)bytes + (size_t)index * size;
  if (dtype == DTYPE_FLOAT64)
    return memcmp(element, &float64_marks[mark], size) == 0;
  if (dtype == DTYPE_FLOAT32)
    return memcmp(element, &float32_marks[mark], size) == 0;
  if (dtype_is_floating(dtype))
    return memcmp(element, dtype == DTYPE_FLOAT16 ? &float16_marks[mark] : &bfloat16_marks[mark], size) == 0;
  for (size_t i = 0; i < size; i++)
    if (element[i] != byte_marks[mark])
      return false;
  return true;
}
