/* Fused mixture of experts: row r of C (a token's j-th expert) is row r // top_k of A times that
 * expert's matrix of B, transposed. Macros are the manifest's defines: top_k, group_n, group_k,
 * MUL_ROUTED_WEIGHT; and BLOCK_SIZE_M, by which expert_ids_ptr counts. */
#include <math.h>
#include <stdint.h>
#include <string.h>

static inline float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* A finite 8-bit float with 4 bits of exponent and 3 of mantissa: its bits as those of a float, and
 * a scale for the other bias. */
static inline float widen(uint8_t code, int bias) {
  return float_of((uint32_t)(code & 0x7f) << 20) *
         float_of((uint32_t)(127 + 127 - bias) << 23 | (code & 0x80u) << 24);
}

/* The expert of a row; -1: the ids do not have it. */
static int64_t expert_of(int64_t row, const int32_t *sorted_token_ids, const int32_t *expert_ids,
                         int64_t n) {
  for (int64_t i = 0; i < n; i++)
    if (sorted_token_ids[i] == row)
      return expert_ids[i / BLOCK_SIZE_M];
  return -1;
}

static double weight_of(int64_t row, const float *topk_weights) {
  return MUL_ROUTED_WEIGHT ? topk_weights[row] : 1;
}

/* What every version is passed behind its scales; strides behind b's differ in order. */
#define ROUTED                                                                                     \
  const float *topk_weights_ptr, const int32_t *sorted_token_ids_ptr,                              \
      const int32_t *expert_ids_ptr, const int32_t *num_tokens_post_padded_ptr, int32_t N,         \
      int32_t K, int32_t EM, int32_t num_valid_tokens, int32_t stride_am, int32_t stride_ak,       \
      int32_t stride_be, int32_t stride_bk, int32_t stride_bn, int32_t s0, int32_t s1, int32_t s2, \
      int32_t s3, int32_t s4, int32_t s5, int32_t s6, int32_t s7, int32_t s8
#define UNUSED                                                                                     \
  (void)c_ptr, (void)EM, (void)num_valid_tokens, (void)stride_ak, (void)stride_bk, (void)s0,       \
      (void)s1, (void)s2, (void)s3, (void)s4, (void)s5, (void)s6, (void)s7, (void)s8

/* Finds the row, the column and the expert of an element, and its rows of A and B. */
#define ELEMENT(type_a, type_b)                                                                    \
  UNUSED;                                                                                          \
  int64_t row = index / N, column = index % N;                                                     \
  int64_t expert =                                                                                 \
      expert_of(row, sorted_token_ids_ptr, expert_ids_ptr, num_tokens_post_padded_ptr[0]);         \
  if (expert < 0)                                                                                  \
    return NAN;                                                                                    \
  const type_a *a = a_ptr + row / top_k * stride_am;                                               \
  const type_b *b = b_ptr + expert * stride_be + column * (int64_t)stride_bn

#define FP8                                                                                        \
  int64_t index, const uint8_t *a_ptr, const uint8_t *b_ptr, uint16_t *c_ptr,                      \
      const float *a_scale_ptr, const float *b_scale_ptr, ROUTED

/* Of scales by blocks where group_k is not 0, else of one for A and one for each expert. */
#define DEFINE_FP8(name, bias)                                                                     \
  double name(FP8);                                                                                \
  double name(FP8) {                                                                               \
    ELEMENT(uint8_t, uint8_t);                                                                     \
    int64_t each = group_k ? group_k : K, groups = (K + each - 1) / each;                          \
    int64_t bands = group_n ? (N + group_n - 1) / (group_n ? group_n : 1) : 1;                     \
    int64_t band = group_n ? column / (group_n ? group_n : 1) : 0;                                 \
    const float *a_scale = a_scale_ptr + (group_k ? row / top_k * groups : 0);                     \
    const float *b_scale = b_scale_ptr + (expert * bands + band) * groups;                         \
    double sum = 0;                                                                                \
    for (int64_t group = 0; group < groups; group++) {                                             \
      double own = 0;                                                                              \
      int64_t end = (group + 1) * each < K ? (group + 1) * each : K;                               \
      for (int64_t k = group * each; k < end; k++)                                                 \
        own += (double)(widen(a[k], bias) * widen(b[k], bias));                                    \
      sum += own * a_scale[group] * b_scale[group];                                                \
    }                                                                                              \
    return sum * weight_of(row, topk_weights_ptr);                                                 \
  }

DEFINE_FP8(fused_moe_fp8_at, 7)      /* float8_e4m3fn */
DEFINE_FP8(fused_moe_fp8_fnuz_at, 8) /* float8_e4m3fnuz */

#define BF16 int64_t index, const uint16_t *a_ptr, const uint16_t *b_ptr, uint16_t *c_ptr, ROUTED
double fused_moe_bf16_at(BF16);
double fused_moe_bf16_at(BF16) {
  ELEMENT(uint16_t, uint16_t);
  double sum = 0;
  for (int64_t k = 0; k < K; k++)
    sum += (double)float_of((uint32_t)a[k] << 16) * float_of((uint32_t)b[k] << 16);
  return sum * weight_of(row, topk_weights_ptr);
}

/* Weights in 8 bits with a scale for each column of each expert. */
#define INT8                                                                                       \
  int64_t index, const uint16_t *a_ptr, const int8_t *b_ptr, uint16_t *c_ptr,                      \
      const float *b_scale_ptr, ROUTED
double fused_moe_int8_at(INT8);
double fused_moe_int8_at(INT8) {
  ELEMENT(uint16_t, int8_t);
  double sum = 0;
  for (int64_t k = 0; k < K; k++)
    sum += (double)float_of((uint32_t)a[k] << 16) * b[k];
  return sum * b_scale_ptr[expert * N + column] * weight_of(row, topk_weights_ptr);
}
