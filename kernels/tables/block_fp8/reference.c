/* C = (A * As) @ (B * Bs)^T: each row of A has a scale for each group_k columns, B one for each
 * block of group_n rows and group_k columns. */
#include <stdint.h>
#include <string.h>

/* A finite 8-bit float with 4 bits of exponent and 3 of mantissa: its bits as those of a float, and
 * a scale for the other bias. */
static inline float widen(uint8_t code, int bias) {
  uint32_t bits = (uint32_t)(code & 0x7f) << 20;
  uint32_t scale_bits = (uint32_t)(127 + 127 - bias) << 23 | (code & 0x80u) << 24;
  float magnitude, scale;
  memcpy(&magnitude, &bits, sizeof magnitude);
  memcpy(&scale, &scale_bits, sizeof scale);
  return magnitude * scale;
}

/* Products of two such floats are exact in a float, and a group's sum nearly so in a double. */
static double dot(const uint8_t *a, int64_t stride_a, const uint8_t *b, int64_t stride_b, int64_t n,
                  int bias) {
  double sum = 0;
  for (int64_t k = 0; k < n; k++)
    sum += (double)(widen(a[k * stride_a], bias) * widen(b[k * stride_b], bias));
  return sum;
}

#define ARGUMENTS                                                                                  \
  int64_t index, const uint8_t *A, const uint8_t *B, uint16_t *C, const float *As,                 \
      const float *Bs, int64_t M, int64_t N, int64_t K, int64_t group_n, int64_t group_k,          \
      int64_t stride_am, int64_t stride_ak, int64_t stride_bk, int64_t stride_bn,                  \
      int64_t stride_cm, int64_t stride_cn, int64_t stride_As_m, int64_t stride_As_k,              \
      int64_t stride_Bs_k, int64_t stride_Bs_n

#define DEFINE_REFERENCE(name, bias)                                                               \
  double name(ARGUMENTS);                                                                          \
  double name(ARGUMENTS) {                                                                         \
    (void)C, (void)M, (void)stride_cm, (void)stride_cn;                                            \
    int64_t row = index / N, column = index % N;                                                   \
    const uint8_t *a = A + row * stride_am, *b = B + column * stride_bn;                           \
    double sum = 0;                                                                                \
    for (int64_t k = 0, group = 0; k < K; k += group_k, group++) {                                 \
      double scale = (double)As[row * stride_As_m + group * stride_As_k] *                         \
                     Bs[column / group_n * stride_Bs_n + group * stride_Bs_k];                     \
      sum += scale * dot(a + k * stride_ak, stride_ak, b + k * stride_bk, stride_bk,               \
                         K - k < group_k ? K - k : group_k, bias);                                 \
    }                                                                                              \
    return sum;                                                                                    \
  }

DEFINE_REFERENCE(block_fp8_at, 7)      /* float8_e4m3fn */
DEFINE_REFERENCE(block_fp8_fnuz_at, 8) /* float8_e4m3fnuz */
