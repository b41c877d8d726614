/* 8-bit floats by their tables of constants. */
#include "agent/measure/float8.h"

#include <math.h>

/* The codes that are not finite: those that with the bits of `mask` are one of `n` from `first` on;
 * of these the first `n_infinite` are infinities. */
static const struct format {
  int mantissa, bias;
  uint8_t largest, nan;
  uint8_t mask, first, n, n_infinite;
  bool has_negative_zero;
} formats[] = {
    [DTYPE_FLOAT8_E4M3FN] = {3, 7, 0x7e, 0x7f, 0x7f, 0x7f, 1, 0, true},
    [DTYPE_FLOAT8_E5M2] = {2, 15, 0x7b, 0x7f, 0x7f, 0x7c, 4, 1, true},
    [DTYPE_FLOAT8_E4M3FNUZ] = {3, 8, 0x7f, 0x80, 0xff, 0x80, 1, 0, false},
    [DTYPE_FLOAT8_E5M2FNUZ] = {2, 16, 0x7f, 0x80, 0xff, 0x80, 1, 0, false},
    [DTYPE_FLOAT8_E4B15] = {3, 15, 0x7e, 0x7e, 0x7f, 0x7f, 0, 0, true},
};

bool dtype_is_float8(enum dtype dtype) { return dtype >= DTYPE_FLOAT8_E4M3FN; }

int float8_integer_bits(enum dtype dtype) {
  return dtype == DTYPE_FLOAT8_E4B15 ? 1 : formats[dtype].mantissa + 1;
}

/* A finite value: the bits of a float with the same mantissa have another bias. */
static float widen(const struct format *format, uint8_t code) {
  uint32_t bits = (uint32_t)(code & 0x7f) << (23 - format->mantissa);
  uint32_t scale_bits = (uint32_t)(127 + 127 - format->bias) << 23 | (code & 0x80u) << 24;
  float magnitude, scale;
  memcpy(&magnitude, &bits, sizeof magnitude);
  memcpy(&scale, &scale_bits, sizeof scale);
  return magnitude * scale;
}

void float8_widen(enum dtype dtype, const uint8_t *from, int64_t n, float *to) {
  const struct format format = formats[dtype];
  for (int64_t i = 0; i < n; i++)
    to[i] = widen(&format, from[i]);
}

double float8_largest(enum dtype dtype) {
  return (double)widen(&formats[dtype], formats[dtype].largest);
}

double float8_decode(enum dtype dtype, uint8_t code) {
  const struct format *format = &formats[dtype];
  uint8_t special = (uint8_t)((code & format->mask) - format->first);
  if (special >= format->n)
    return (double)widen(format, code);
  if (special >= format->n_infinite)
    return NAN;
  return code & 0x80 ? -INFINITY : INFINITY;
}

bool float8_is_next(enum dtype dtype, uint8_t a, uint8_t b) {
  return isfinite(float8_decode(dtype, a)) && isfinite(float8_decode(dtype, b)) &&
         (a & 0x80) == (b & 0x80) && abs(a - b) == 1;
}

uint8_t float8_encode(enum dtype dtype, double value) {
  const struct format *format = &formats[dtype];
  uint8_t sign = signbit(value) ? 0x80 : 0;
  double magnitude = fabs(value);
  if (isnan(value))
    return format->nan;
  if (isinf(value))
    return sign | (format->n_infinite ? format->first : format->largest);

  /* The distance of the values around it: that of the denormals at least. */
  int exponent = magnitude > 0 ? ilogb(magnitude) : 1 - format->bias;
  exponent = exponent > 1 - format->bias ? exponent : 1 - format->bias;
  double steps = nearbyint(ldexp(magnitude, format->mantissa - exponent));

  /* 2^mantissa steps are the implicit bit; twice as many are the next exponent's first value. */
  int code = (exponent + format->bias - 1) * (1 << format->mantissa) + (int)steps;
  code = code < format->largest ? code : format->largest;
  return code == 0 && !format->has_negative_zero ? 0 : sign | (uint8_t)code;
}

/* No branch in the loops, so that compilers vectorise them. */
static bool any_special(const uint8_t *codes, int64_t n, uint8_t mask, uint8_t first,
                        uint8_t n_special, uint8_t code) {
  uint8_t found = 0;
  for (int64_t i = 0; i < n; i++)
    found |= ((uint8_t)((codes[i] & mask) - first) < n_special) | (codes[i] == code);
  return found != 0;
}

bool float8_any_not_finite(enum dtype dtype, const uint8_t *codes, int64_t n) {
  const struct format *format = &formats[dtype];
  /* `nan` is one of the special codes wherever there are any. */
  return format->n && any_special(codes, n, format->mask, format->first, format->n, format->nan);
}

bool float8_any_nan_or(enum dtype dtype, const uint8_t *codes, int64_t n, uint8_t code) {
  const struct format *format = &formats[dtype];
  return any_special(codes, n, format->mask, (uint8_t)(format->first + format->n_infinite),
                     (uint8_t)(format->n - format->n_infinite), code);
}
