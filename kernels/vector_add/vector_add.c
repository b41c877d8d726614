/* sum = a + b.
 *
 * VECTOR elements an operation (1: as the compiler likes), UNROLL of them a step, STREAMS parts of
 * the array walked side by side, prefetched PREFETCH elements ahead (0: by the hardware alone),
 * stored past the caches when NONTEMPORAL. */
#include <stdint.h>
#if NONTEMPORAL && defined(__AVX__)
#include <immintrin.h>
#endif

#if VECTOR > 1
typedef float vector __attribute__((vector_size(4 * VECTOR), aligned(4), may_alias));

static inline void store(float *to, vector value) {
#if NONTEMPORAL && defined(__AVX__) && VECTOR == 8
  _mm256_stream_ps(to, (__m256)value);
#elif NONTEMPORAL && defined(__AVX__) && VECTOR == 4
  _mm_stream_ps(to, (__m128)value);
#else
  *(vector *)to = value;
#endif
}

static inline void step(float *sum, const float *a, const float *b) {
#if PREFETCH
  __builtin_prefetch(a + PREFETCH);
  __builtin_prefetch(b + PREFETCH);
#endif
  for (int u = 0; u < UNROLL; u++)
    store(sum + u * VECTOR, *(const vector *)(a + u * VECTOR) + *(const vector *)(b + u * VECTOR));
}
#else
static inline void step(float *sum, const float *a, const float *b) { *sum = *a + *b; }
#endif

void vector_add(float *restrict sum, const float *restrict a, const float *restrict b, int64_t n) {
  const int64_t width = VECTOR * UNROLL;
  /* Parts start at multiples of 32 elements, so that what is stored past the caches stays
   * aligned. */
  const int64_t part = n / STREAMS / 32 * 32;
  int64_t i = 0;
  for (; i + width <= part; i += width)
    for (int s = 0; s < STREAMS; s++)
      step(sum + s * part + i, a + s * part + i, b + s * part + i);
  for (int s = 0; s < STREAMS; s++) {
    int64_t end = s + 1 < STREAMS ? (s + 1) * part : n;
    for (int64_t k = s * part + i; k < end; k++)
      sum[k] = a[k] + b[k];
  }
#if NONTEMPORAL && defined(__AVX__)
  _mm_sfence();
#endif
}
