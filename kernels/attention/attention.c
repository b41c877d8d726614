/* Attention of each head, BLOCK_Q queries at a time: their scores with BLOCK_K keys, the
 * exponentials of these, the sum of values so weighted, scaled down when a query's maximum rises
 * (FlashAttention; Dao, 2022).
 *
 * HEAD_DIM is the key's head_dim. Halves become floats once for each block; UNROLL queries share a
 * load of a key. */
#include <math.h>
#include <stdint.h>

static inline int64_t least(int64_t x, int64_t y) { return x < y ? x : y; }

static void to_floats(float *restrict to, const _Float16 *restrict from, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    to[i] = (float)from[i];
}

struct block {
  float queries[BLOCK_Q][HEAD_DIM], keys[BLOCK_K][HEAD_DIM], values[BLOCK_K][HEAD_DIM];
  float scores[BLOCK_Q][BLOCK_K], outputs[BLOCK_Q][HEAD_DIM];
  float maxima[BLOCK_Q], sums[BLOCK_Q];
};

/* Rows beyond the last query hold what an earlier block left: they are computed and not stored. */
static void scores_compute(struct block *b, int64_t n_keys) {
  const float scale = 1 / sqrtf(HEAD_DIM);
  for (int i = 0; i < BLOCK_Q; i += UNROLL)
    for (int64_t j = 0; j < n_keys; j++)
      for (int u = 0; u < UNROLL; u++) {
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int d = 0; d < HEAD_DIM; d++)
          sum += b->queries[i + u][d] * b->keys[j][d];
        b->scores[i + u][j] = sum * scale;
      }
}

static void weights_compute(struct block *b, int i, int64_t n_keys) {
  float maximum = b->maxima[i], sum = 0;
  for (int64_t j = 0; j < n_keys; j++)
    maximum = b->scores[i][j] > maximum ? b->scores[i][j] : maximum;
  for (int64_t j = 0; j < n_keys; j++)
    sum += b->scores[i][j] = expf(b->scores[i][j] - maximum);
  const float fade = expf(b->maxima[i] - maximum);
  b->maxima[i] = maximum;
  b->sums[i] = b->sums[i] * fade + sum;
  for (int d = 0; d < HEAD_DIM; d++)
    b->outputs[i][d] *= fade;
}

static void outputs_add(struct block *b, int64_t n_keys) {
  for (int i = 0; i < BLOCK_Q; i += UNROLL)
    for (int64_t j = 0; j < n_keys; j++)
      for (int u = 0; u < UNROLL; u++) {
        const float weight = b->scores[i + u][j];
#pragma omp simd
        for (int d = 0; d < HEAD_DIM; d++)
          b->outputs[i + u][d] += weight * b->values[j][d];
      }
}

void attention(_Float16 *restrict o, const _Float16 *restrict q, const _Float16 *restrict k,
               const _Float16 *restrict v, int64_t heads, int64_t sequence, int64_t head_dim) {
  static struct block b;
  (void)head_dim;
  for (int64_t head = 0; head < heads; head++)
    for (int64_t row = 0; row < sequence; row += BLOCK_Q) {
      const int64_t first = head * sequence * HEAD_DIM, n_queries = least(BLOCK_Q, sequence - row);
      to_floats(b.queries[0], q + first + row * HEAD_DIM, n_queries * HEAD_DIM);
      for (int i = 0; i < BLOCK_Q; i++) {
        b.maxima[i] = -INFINITY, b.sums[i] = 0;
        for (int d = 0; d < HEAD_DIM; d++)
          b.outputs[i][d] = 0;
      }
      for (int64_t start = 0; start < sequence; start += BLOCK_K) {
        const int64_t n_keys = least(BLOCK_K, sequence - start), from = first + start * HEAD_DIM;
        to_floats(b.keys[0], k + from, n_keys * HEAD_DIM);
        to_floats(b.values[0], v + from, n_keys * HEAD_DIM);
        scores_compute(&b, n_keys);
        for (int i = 0; i < BLOCK_Q; i++)
          weights_compute(&b, i, n_keys);
        outputs_add(&b, n_keys);
      }
      for (int64_t i = 0; i < n_queries; i++)
        for (int d = 0; d < HEAD_DIM; d++)
          o[first + (row + i) * HEAD_DIM + d] = (_Float16)(b.outputs[i][d] / b.sums[i]);
    }
}
