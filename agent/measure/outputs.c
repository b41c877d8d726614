/* Two contents of an output compared by a team, in pieces of SCAN_ELEMENTS. */
#include "agent/measure/outputs.h"

#include <math.h>

#include "agent/measure/element.h"
#include "agent/measure/float8.h"

struct pieces {
  const struct comparison *of;
  int64_t *far;    /* of each piece: the first element that is far; -1: none */
  double *sums;    /* of each piece: of squares, or the largest difference */
  int64_t *counts; /* of each piece: the finite elements, or those that are the next value */
};

static int64_t piece_end(const struct pieces *pieces, size_t piece) {
  int64_t end = (int64_t)(piece + 1) * SCAN_ELEMENTS;
  return end < pieces->of->elements ? end : pieces->of->elements;
}

static void piece_square(void *context, size_t piece) {
  const struct pieces *pieces = context;
  int64_t first = (int64_t)piece * SCAN_ELEMENTS;
  pieces->sums[piece] =
      elements_square_sum(pieces->of->dtype, pieces->of->expected, first,
                          piece_end(pieces, piece) - first, &pieces->counts[piece]);
}

/* The largest difference between finite elements. Others must be the same: else the piece is far.
 */
static void piece_differ(void *context, size_t piece) {
  const struct pieces *pieces = context;
  pieces->far[piece] = -1;
  for (int64_t k = (int64_t)piece * SCAN_ELEMENTS; k < piece_end(pieces, piece); k++) {
    double a = element_get(pieces->of->dtype, pieces->of->bytes, k),
           b = element_get(pieces->of->dtype, pieces->of->expected, k);
    bool is_same = a == b || (isnan(a) && isnan(b));
    if (!is_same && (!isfinite(a) || !isfinite(b)) && pieces->far[piece] < 0)
      pieces->far[piece] = k;
    if (isfinite(a) && isfinite(b) && fabs(a - b) > pieces->sums[piece])
      pieces->sums[piece] = fabs(a - b);
  }
}

/* Elements of 8-bit floats, of which few may be the next value. */
static void piece_compare_float8(const struct pieces *pieces, size_t piece) {
  const uint8_t *bytes = pieces->of->bytes, *expected = pieces->of->expected;
  for (int64_t k = (int64_t)piece * SCAN_ELEMENTS;
       k < piece_end(pieces, piece) && pieces->far[piece] < 0; k++) {
    if (bytes[k] == expected[k])
      continue;
    double a = element_get(pieces->of->dtype, bytes, k),
           b = element_get(pieces->of->dtype, expected, k);
    if (a == b || (isnan(a) && isnan(b)) || fabs(a - b) <= pieces->of->tolerance.atol)
      continue;
    bool is_next = float8_is_next(pieces->of->dtype, bytes[k], expected[k]);
    pieces->counts[piece] += is_next;
    if (!is_next)
      pieces->far[piece] = k;
  }
}

static void piece_compare(void *context, size_t piece) {
  const struct pieces *pieces = context;
  int64_t from = (int64_t)piece * SCAN_ELEMENTS, n = piece_end(pieces, piece) - from;
  pieces->far[piece] = -1;
  if (dtype_is_float8(pieces->of->dtype)) {
    piece_compare_float8(pieces, piece);
    return;
  }

  pieces->far[piece] =
      elements_far(pieces->of->dtype, pieces->of->expected, pieces->of->bytes, from, n,
                   pieces->of->tolerance.atol, pieces->of->tolerance.rtol);
  /* Doubles do not tell all integers apart. */
  size_t size = dtype_size(pieces->of->dtype);
  for (int64_t k = from; pieces->far[piece] < 0 && pieces->of->tolerance.atol == 0 &&
                         !dtype_is_floating(pieces->of->dtype) && k < from + n;
       k++)
    if (memcmp((const char *)pieces->of->bytes + (size_t)k * size,
               (const char *)pieces->of->expected + (size_t)k * size, size) != 0)
      pieces->far[piece] = k;
}

static struct compared pieces_run(const struct comparison *comparison,
                                  void (*work)(void *context, size_t piece), double *ret_sum) {
  size_t n = pieces_of(comparison->elements);
  cleanup_free int64_t *far = xcalloc(n + 1, sizeof *far);
  cleanup_free double *sums = xcalloc(n + 1, sizeof *sums);
  cleanup_free int64_t *counts = xcalloc(n + 1, sizeof *counts);
  struct pieces pieces = {comparison, far, sums, counts};
  team_run_pieces(comparison->elements, work, &pieces);

  struct compared compared = {.far = -1};
  *ret_sum = 0;
  for (size_t i = 0; i < n; i++) {
    *ret_sum += sums[i];
    compared.largest = fmax(compared.largest, sums[i]);
    compared.count += counts[i];
    if (compared.far < 0 && far[i] >= 0)
      compared.far = far[i];
  }
  return compared;
}

double output_rms(enum dtype dtype, const void *bytes, int64_t elements, int64_t *ret_finite) {
  struct comparison comparison = {.dtype = dtype, .elements = elements, .expected = bytes};
  double sum;
  *ret_finite = pieces_run(&comparison, piece_square, &sum).count;
  return *ret_finite ? sqrt(sum / (double)*ret_finite) : 0;
}

struct compared outputs_differ(const struct comparison *comparison) {
  double sum;
  return pieces_run(comparison, piece_differ, &sum);
}

struct compared outputs_compare(const struct comparison *comparison) {
  double sum;
  return pieces_run(comparison, piece_compare, &sum);
}

/* Sums over the counted elements of an output: [0] whether it is not finite, else [1] the value,
 * [2] its square; and the squares of these. */
enum { MOMENTS = 3 };
struct moments {
  int64_t n;
  double sums[MOMENTS], squares[MOMENTS];
};

static struct moments moments_of(enum dtype dtype, const void *bytes, int64_t elements) {
  struct moments moments = {0};
  int64_t step = elements / OUTPUTS_DRAWN_MAX + 1;
  for (int64_t k = 0; k < elements; k += step, moments.n++) {
    double value = element_get(dtype, bytes, k);
    bool is_finite = isfinite(value);
    const double own[MOMENTS] = {!is_finite, is_finite ? value : 0, is_finite ? value * value : 0};
    for (size_t i = 0; i < MOMENTS; i++) {
      moments.sums[i] += own[i];
      moments.squares[i] += own[i] * own[i];
    }
  }
  return moments;
}

bool outputs_are_alike(const struct comparison *comparison) {
  const struct moments both[] = {
      moments_of(comparison->dtype, comparison->expected, comparison->elements),
      moments_of(comparison->dtype, comparison->bytes, comparison->elements)};
  for (size_t i = 0; i < MOMENTS; i++) {
    double means[2], variance = 0;
    for (size_t k = 0; k < 2; k++) {
      double n = (double)both[k].n;
      means[k] = both[k].sums[i] / n;
      variance += fmax(both[k].squares[i] / n - means[k] * means[k], 0) / n;
    }
    if (!(fabs(means[0] - means[1]) <= OUTPUTS_ERRORS * sqrt(variance))) /* NaN is not */
      return false;
  }
  return true;
}
