/* 8-bit floats: a sign, an exponent, and 2 or 3 bits of mantissa.
 *
 *                    bias   largest   infinity   NaN
 *   float8_e4m3fn       7       448   none       0x7f, 0xff
 *   float8_e5m2        15    57,344   0x7c       above 0x7c (with either sign)
 *   float8_e4m3fnuz     8       240   none       0x80: there is no -0
 *   float8_e5m2fnuz    16    57,344   none       0x80
 *   float8e4b15        15      1.75   none       none; 0x7f is 1.875, which Triton never writes
 *
 * The first two are of the Open Compute Project ("OCP 8-bit Floating Point Specification", 2023),
 * the next two of AMD's and Graphcore's (Noune et al., "8-bit Numerical Formats for Deep Neural
 * Networks", 2022), the last is Triton's own (triton/language/extra/cuda/utils.py).
 * Threads: pure functions. */
#ifndef WAVETUNE_AGENT_MEASURE_FLOAT8_H
#define WAVETUNE_AGENT_MEASURE_FLOAT8_H

#include "common/kernel/kernel.h"

bool dtype_is_float8(enum dtype dtype);

/* The largest finite value. */
double float8_largest(enum dtype dtype);
/* All integers below 2^bits are values of the type. */
int float8_integer_bits(enum dtype dtype);

double float8_decode(enum dtype dtype, uint8_t code);

/* Rounds to nearest, ties to even. What is larger than the largest value becomes that value, as
 * GPUs and Triton convert (torch makes NaN of it, or of float8_e5m2 infinity); infinity stays what
 * it is in float8_e5m2. NaN becomes 0x7f or 0x80, and in float8e4b15 the largest value. */
uint8_t float8_encode(enum dtype dtype, double value);

/* Whether two codes are of finite neighbours with one sign: codes count upwards. */
bool float8_is_next(enum dtype dtype, uint8_t a, uint8_t b);

/* Decodes `n` finite values. As fast as memory. */
void float8_widen(enum dtype dtype, const uint8_t *from, int64_t n, float *to);

/* Whether one of `n` codes is NaN or infinite; is NaN or `code`. As fast as memory. */
bool float8_any_not_finite(enum dtype dtype, const uint8_t *codes, int64_t n);
bool float8_any_nan_or(enum dtype dtype, const uint8_t *codes, int64_t n, uint8_t code);

#endif
