/* One step of a Mamba-2 layer's state space:
 *   state = state * exp(A * dt) + B * dt * x;  out = sum over n of state * C + D * x
 * with dt = softplus(dt + bias). A sequence has the state of its index; that of index 0 stays. */
#include <math.h>
#include <stdint.h>
#include <string.h>

static double widen(uint16_t bfloat16) {
  uint32_t bits = (uint32_t)bfloat16 << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}
static double widen_state_16(const uint16_t *state, int64_t i) { return widen(state[i]); }
static double widen_state_32(const float *state, int64_t i) { return state[i]; }

#define ARGUMENTS(type)                                                                            \
  int64_t index, type *state, const uint16_t *x, const uint16_t *dt, const uint16_t *dt_bias,      \
      const float *A, const uint16_t *B, const uint16_t *C, const uint16_t *D, uint16_t *out,      \
      const int32_t *source, const int32_t *target, int64_t null_block_id, int64_t N,              \
      int64_t nheads, int64_t dim, int64_t dstate, int64_t ratio, int64_t state_batch,             \
      int64_t state_head, int64_t state_dim, int64_t state_dstate, int64_t x_batch,                \
      int64_t x_head, int64_t x_dim, int64_t dt_batch, int64_t dt_head, int64_t dt_dim,            \
      int64_t bias_head, int64_t bias_dim, int64_t A_head, int64_t A_dim, int64_t A_dstate,        \
      int64_t B_batch, int64_t B_group, int64_t B_dstate, int64_t C_batch, int64_t C_group,        \
      int64_t C_dstate, int64_t D_head, int64_t D_dim, int64_t z_batch, int64_t z_head,            \
      int64_t z_dim, int64_t out_batch, int64_t out_head, int64_t out_dim, int64_t source_batch,   \
      int64_t source_T, int64_t target_batch, int64_t target_T
#define UNUSED                                                                                     \
  (void)out, (void)target, (void)state_dim, (void)state_dstate, (void)dt_dim, (void)bias_dim,      \
      (void)A_dim, (void)A_dstate, (void)C, (void)C_batch, (void)C_group, (void)C_dstate, (void)D, \
      (void)D_head, (void)D_dim, (void)z_batch, (void)z_head, (void)z_dim, (void)out_batch,        \
      (void)out_head, (void)out_dim, (void)source_T, (void)target_batch, (void)target_T, (void)N,  \
      (void)nheads, (void)dim, (void)dstate, (void)null_block_id, (void)state_batch,               \
      (void)state_head, (void)source_batch, (void)source

/* dt, decay, x and B of a sequence's head and row. */
#define STEP                                                                                       \
  double step =                                                                                    \
      widen(dt[sequence * dt_batch + head * dt_head]) + widen(dt_bias[head * bias_head]);          \
  step = step <= 20 ? log1p(exp(step)) : step;                                                     \
  double decay = exp(A[head * A_head] * step),                                                     \
         value = widen(x[sequence * x_batch + head * x_head + row * x_dim]);                       \
  const uint16_t *b = B + sequence * B_batch + head / ratio * B_group

#define DEFINE_REFERENCES(type, widen_state, of_state, of_out)                                     \
  double of_state(ARGUMENTS(type));                                                                \
  double of_state(ARGUMENTS(type)) {                                                               \
    UNUSED;                                                                                        \
    int64_t n = index % dstate, row = index / dstate % dim, head = index / dstate / dim % nheads;  \
    int64_t slot = index / dstate / dim / nheads, sequence = 0;                                    \
    while (sequence < N && source[sequence * source_batch] != slot)                                \
      sequence++;                                                                                  \
    if (sequence == N || slot == null_block_id)                                                    \
      return widen_state(state, index);                                                            \
    STEP;                                                                                          \
    return widen_state(state, index) * decay + widen(b[n * B_dstate]) * step * value;              \
  }                                                                                                \
  double of_out(ARGUMENTS(type));                                                                  \
  double of_out(ARGUMENTS(type)) {                                                                 \
    UNUSED;                                                                                        \
    int64_t row = index % dim, head = index / dim % nheads, sequence = index / dim / nheads;       \
    int64_t slot = source[sequence * source_batch];                                                \
    int64_t at = slot * state_batch + head * state_head + row * state_dim;                         \
    const uint16_t *c = C + sequence * C_batch + head / ratio * C_group;                           \
    STEP;                                                                                          \
    double sum = 0;                                                                                \
    for (int64_t n = 0; n < dstate; n++)                                                           \
      sum += (widen_state(state, at + n * state_dstate) * decay +                                  \
              widen(b[n * B_dstate]) * step * value) *                                             \
             widen(c[n * C_dstate]);                                                               \
    return sum + value * widen(D[head * D_head]);                                                  \
  }

DEFINE_REFERENCES(uint16_t, widen_state_16, state_at, out_at)
DEFINE_REFERENCES(float, widen_state_32, state_float32_at, out_float32_at)
