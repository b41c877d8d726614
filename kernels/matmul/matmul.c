/* c = a * b of row-major matrices, in blocks that fit a cache and tiles that fit the registers.
 *
 * Blocks of BLOCK_M x BLOCK_K of a and BLOCK_K x BLOCK_N of b; in them, tiles of MICRO_M x MICRO_N
 * of c are summed in registers. PACK: blocks of b, or of both, are copied tile by tile into the
 * order in which they are read (`none`: read where they lie). Tiles at the edge are summed in full
 * when packed, with zeros, and one by one when not. */
#include <stdint.h>

#define none 0
#define b 1
#define ab 2
enum { PACKS_B = PACK >= b, PACKS_A = PACK == ab };
#undef none
#undef b
#undef ab

#define WIDTH 8
#define VECTORS (MICRO_N / WIDTH)
typedef float vector __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));

static inline int64_t least(int64_t x, int64_t y) { return x < y ? x : y; }

/* A tile of c from `depth` columns of a and rows of b; element (i, p) of a is at a[i * a_row + p *
 * a_column]. The sums are added to what c holds unless `first`; only rows x columns of them are
 * stored. */
static inline __attribute__((always_inline)) void
tile_sum(float *restrict c, int64_t c_row, const float *a, int64_t a_row, int64_t a_column,
         const float *b, int64_t b_row, int64_t depth, int first, int64_t rows, int64_t columns) {
  vector sums[MICRO_M][VECTORS];
  for (int i = 0; i < MICRO_M; i++)
    for (int j = 0; j < VECTORS; j++)
      sums[i][j] = (vector){0};
  for (int64_t p = 0; p < depth; p++) {
    vector right[VECTORS];
    for (int j = 0; j < VECTORS; j++)
      right[j] = *(const vector *)(b + p * b_row + j * WIDTH);
    for (int i = 0; i < MICRO_M; i++) {
      float left = a[i * a_row + p * a_column];
      for (int j = 0; j < VECTORS; j++)
        sums[i][j] += right[j] * left;
    }
  }
  if (rows == MICRO_M && columns == MICRO_N) {
    for (int i = 0; i < MICRO_M; i++)
      for (int j = 0; j < VECTORS; j++) {
        vector *to = (vector *)(c + i * c_row + j * WIDTH);
        if (!first)
          sums[i][j] += *to;
        *to = sums[i][j];
      }
    return;
  }
  /* By way of memory: sums that are indexed by a variable would not stay in registers. */
  float tile[MICRO_M * MICRO_N];
  for (int i = 0; i < MICRO_M; i++)
    for (int j = 0; j < VECTORS; j++)
      *(vector *)(tile + i * MICRO_N + j * WIDTH) = sums[i][j];
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < columns; j++)
      c[i * c_row + j] = first ? tile[i * MICRO_N + j] : c[i * c_row + j] + tile[i * MICRO_N + j];
}

/* A tile at the edge, where neither a nor b may be read beyond their ends. */
static void edge_sum(float *restrict c, int64_t c_row, const float *a, int64_t a_row,
                     int64_t a_column, const float *b, int64_t b_row, int64_t depth, int first,
                     int64_t rows, int64_t columns) {
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < columns; j++) {
      float sum = first ? 0 : c[i * c_row + j];
      for (int64_t p = 0; p < depth; p++)
        sum += a[i * a_row + p * a_column] * b[p * b_row + j];
      c[i * c_row + j] = sum;
    }
}

/* Tiles of MICRO_M rows one after the other, each column by column; rows that are missing are
 * zeros. */
static void pack_a(float *restrict to, const float *a, int64_t k, int64_t rows, int64_t depth) {
  for (int64_t i = 0; i < rows; i += MICRO_M)
    for (int64_t p = 0; p < depth; p++)
      for (int64_t r = 0; r < MICRO_M; r++)
        *to++ = i + r < rows ? a[(i + r) * k + p] : 0;
}

/* Tiles of MICRO_N columns one after the other, each row by row; columns that are missing are
 * zeros. */
static void pack_b(float *restrict to, const float *b, int64_t n, int64_t depth, int64_t columns) {
  for (int64_t j = 0; j < columns; j += MICRO_N)
    for (int64_t p = 0; p < depth; p++, to += MICRO_N) {
      const float *from = b + p * n + j;
      if (j + MICRO_N <= columns) {
        __builtin_memcpy(to, from, MICRO_N * sizeof(float));
        continue;
      }
      __builtin_memset(to, 0, MICRO_N * sizeof(float));
      for (int64_t s = 0; s < columns - j; s++)
        to[s] = from[s];
    }
}

void matmul(float *restrict c, const float *restrict a, const float *restrict b, int64_t m,
            int64_t n, int64_t k) {
  static float packed_a[(BLOCK_M + MICRO_M) * BLOCK_K] __attribute__((aligned(64)));
  static float packed_b[(BLOCK_N + MICRO_N) * BLOCK_K] __attribute__((aligned(64)));
  for (int64_t column = 0; column < n; column += BLOCK_N)
    for (int64_t p = 0; p < k; p += BLOCK_K) {
      const int64_t columns = least(BLOCK_N, n - column), depth = least(BLOCK_K, k - p);
      if (PACKS_B)
        pack_b(packed_b, b + p * n + column, n, depth, columns);
      for (int64_t row = 0; row < m; row += BLOCK_M) {
        const int64_t rows = least(BLOCK_M, m - row);
        if (PACKS_A)
          pack_a(packed_a, a + row * k + p, k, rows, depth);
        for (int64_t j = 0; j < columns; j += MICRO_N)
          for (int64_t i = 0; i < rows; i += MICRO_M) {
            const float *left = PACKS_A ? packed_a + i * depth : a + (row + i) * k + p;
            const float *right = PACKS_B ? packed_b + j * depth : b + p * n + column + j;
            const int64_t left_row = PACKS_A ? 1 : k, left_column = PACKS_A ? MICRO_M : 1;
            const int64_t right_row = PACKS_B ? MICRO_N : n;
            const int64_t tile_rows = least(MICRO_M, rows - i),
                          tile_columns = least(MICRO_N, columns - j);
            float *to = c + (row + i) * n + column + j;
            if ((PACKS_A || tile_rows == MICRO_M) && (PACKS_B || tile_columns == MICRO_N))
              tile_sum(to, n, left, left_row, left_column, right, right_row, depth, p == 0,
                       tile_rows, tile_columns);
            else
              edge_sum(to, n, left, left_row, left_column, right, right_row, depth, p == 0,
                       tile_rows, tile_columns);
          }
      }
    }
}
