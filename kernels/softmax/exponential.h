/* exp(x) for x <= 0 and vectors of it, in plain C that the compiler turns into vector instructions.
 *
 * exp(x) = 2^n * exp(r) with n the integer next to x / ln 2 and |r| <= ln 2 / 2; exp(r) is a Taylor
 * polynomial of degree DEGREE (5: within 3e-6 relative, 6: 2e-7, which is what float rounding
 * allows). Below -87 the result is 2^-126 and not a subnormal. LANES floats make a vector, one is a
 * plain float. */
#include <stdint.h>

static inline float float_max(float a, float b) { return a > b ? a : b; }

#if LANES > 1
typedef float vector __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t mask __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
#define LANE(vectors, i) ((vectors)[i])

static inline vector vector_of(float value) { return (vector){0} + value; }

static inline vector vector_max(vector a, vector b) {
  mask chosen = a > b;
  return (vector)((chosen & (mask)a) | (~chosen & (mask)b));
}

static inline mask bits_of(vector a) { return (mask)a; }
static inline vector vector_of_bits(mask bits) { return (vector)bits; }
#else
/* Plain floats, which the compiler may turn into vectors of its own. */
typedef float vector;
typedef int32_t mask;
#define LANE(vectors, i) (vectors)

static inline vector vector_of(float value) { return value; }
static inline vector vector_max(vector a, vector b) { return float_max(a, b); }

static inline mask bits_of(vector a) {
  mask bits;
  __builtin_memcpy(&bits, &a, sizeof bits);
  return bits;
}

static inline vector vector_of_bits(mask bits) {
  vector a;
  __builtin_memcpy(&a, &bits, sizeof a);
  return a;
}
#endif

static inline float lanes_max(vector a) {
  float result = LANE(a, 0);
  for (int i = 1; i < LANES; i++)
    result = float_max(result, LANE(a, i));
  return result;
}

static inline float lanes_sum(vector a) {
  float result = LANE(a, 0);
  for (int i = 1; i < LANES; i++)
    result += LANE(a, i);
  return result;
}

#define LOG2_E 1.44269504f
#define LN2_HIGH 0.693359375f
#define LN2_LOW -2.12194440e-4f
#define ROUND 12582912.0f /* 1.5 * 2^23: adding it leaves an integer in the low bits */

static inline vector vector_exp(vector x) {
  x = vector_max(x, vector_of(-87.0f));
  vector shifted = x * LOG2_E + ROUND;
  vector n = shifted - ROUND;
  vector r = x - n * LN2_HIGH;
  r = r - n * LN2_LOW;
#if DEGREE >= 6
  vector p = r * (1.0f / 720) + 1.0f / 120;
#else
  vector p = vector_of(1.0f / 120);
#endif
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  return vector_of_bits(bits_of(p) + (bits_of(shifted) << 23));
}
