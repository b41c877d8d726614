/* c = (a * a_scale) @ (b * b_scale): a scale for each row and 128 columns of a, and for each block
 * of 128 x 128 elements of b. */
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

#define GROUP 128
#define ARGUMENTS                                                                                  \
  int64_t index, const uint8_t *a, const uint8_t *b, uint16_t *c, const float *a_scale,            \
      const float *b_scale, int64_t M, int64_t N, int64_t K, int64_t stride_am, int64_t stride_ak, \
      int64_t stride_bk, int64_t stride_bn, int64_t stride_ck, int64_t stride_cm,                  \
      int64_t stride_cn, int64_t stride_ascale_m, int64_t stride_ascale_k,                         \
      int64_t stride_bscale_k, int64_t stride_bscale_n

#define DEFINE_REFERENCE(name, bias)                                                               \
  double name(ARGUMENTS);                                                                          \
  double name(ARGUMENTS) {                                                                         \
    (void)c, (void)M, (void)stride_ck, (void)stride_cm, (void)stride_cn;                           \
    int64_t row = index / N, column = index % N;                                                   \
    double sum = 0;                                                                                \
    for (int64_t k = 0; k < K; k++)                                                                \
      sum += (double)(widen(a[row * stride_am + k * stride_ak], bias) *                            \
                      widen(b[k * stride_bk + column * stride_bn], bias)) *                        \
             a_scale[row * stride_ascale_m + k / GROUP * stride_ascale_k] *                        \
             b_scale[k / GROUP * stride_bscale_k + column / GROUP * stride_bscale_n];              \
    return sum;                                                                                    \
  }

DEFINE_REFERENCE(aiter_gemm_at, 7)      /* float8_e4m3fn */
DEFINE_REFERENCE(aiter_gemm_fnuz_at, 8) /* float8_e4m3fnuz */
