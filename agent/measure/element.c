/* Elements by dtype, and teams of short-lived threads over numbered items. */
#include "agent/measure/element.h"

#include <float.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>

#include "agent/measure/float8.h"

bool dtype_is_floating(enum dtype dtype) { return dtype >= DTYPE_FLOAT16; }

static void bfloat16_widen(const uint16_t *from, int64_t n, float *to) {
  for (int64_t i = 0; i < n; i++) {
    uint32_t bits = (uint32_t)from[i] << 16;
    memcpy(&to[i], &bits, sizeof bits);
  }
}

/* The integers: X(dtype, type in C, the least and the largest double inside of its range). */
#define INTEGERS(X)                                                                                \
  X(UINT8, uint8_t, 0, UINT8_MAX)                                                                  \
  X(INT8, int8_t, INT8_MIN, INT8_MAX)                                                              \
  X(INT16, int16_t, INT16_MIN, INT16_MAX)                                                          \
  X(UINT16, uint16_t, 0, UINT16_MAX)                                                               \
  X(INT32, int32_t, INT32_MIN, INT32_MAX)                                                          \
  X(UINT32, uint32_t, 0, UINT32_MAX)                                                               \
  X(INT64, int64_t, -0x1p63, 0x1p63 - 1024)                                                        \
  X(UINT64, uint64_t, 0, 0x1p64 - 2048)

double element_get(enum dtype dtype, const void *bytes, int64_t index) {
  switch (dtype) {
  case DTYPE_BOOL:
    return ((const uint8_t *)bytes)[index];

#define X(id, type, least, most)                                                                   \
  case DTYPE_##id:                                                                                 \
    return (double)((const type *)bytes)[index];
    INTEGERS(X)
#undef X

  case DTYPE_FLOAT16:
    return (double)((const _Float16 *)bytes)[index];

  case DTYPE_BFLOAT16: {
    float value;
    bfloat16_widen((const uint16_t *)bytes + index, 1, &value);
    return (double)value;
  }

  case DTYPE_FLOAT32:
    return (double)((const float *)bytes)[index];

  case DTYPE_FLOAT64:
    return ((const double *)bytes)[index];

  case DTYPE_FLOAT8_E4M3FN:
  case DTYPE_FLOAT8_E5M2:
  case DTYPE_FLOAT8_E4M3FNUZ:
  case DTYPE_FLOAT8_E5M2FNUZ:
  case DTYPE_FLOAT8_E4B15:
    return float8_decode(dtype, ((const uint8_t *)bytes)[index]);
  }
  die("element_get: dtype %d", dtype);
}

static double clamp(double value, double low, double high) {
  double rounded = nearbyint(value);
  return rounded < low ? low : rounded > high ? high : rounded;
}

void element_set(enum dtype dtype, void *bytes, int64_t index, double value) {
  switch (dtype) {
  case DTYPE_BOOL:
    ((uint8_t *)bytes)[index] = value != 0;
    return;

#define X(id, type, least, most)                                                                   \
  case DTYPE_##id:                                                                                 \
    ((type *)bytes)[index] = (type)clamp(value, least, most);                                      \
    return;
    INTEGERS(X)
#undef X

  case DTYPE_FLOAT16:
    ((_Float16 *)bytes)[index] = (_Float16)value;
    return;

  case DTYPE_BFLOAT16: {
    /* To nearest, ties to even, by way of float: some values are rounded twice, which does not
     * matter for inputs. */
    float narrow = (float)value;
    uint32_t wide;
    memcpy(&wide, &narrow, sizeof wide);
    wide = isnan(value) ? wide | 0x400000 : wide + 0x7fff + (wide >> 16 & 1);
    ((uint16_t *)bytes)[index] = (uint16_t)(wide >> 16);
    return;
  }

  case DTYPE_FLOAT32:
    ((float *)bytes)[index] = (float)value;
    return;

  case DTYPE_FLOAT64:
    ((double *)bytes)[index] = value;
    return;

  case DTYPE_FLOAT8_E4M3FN:
  case DTYPE_FLOAT8_E5M2:
  case DTYPE_FLOAT8_E4M3FNUZ:
  case DTYPE_FLOAT8_E5M2FNUZ:
  case DTYPE_FLOAT8_E4B15:
    ((uint8_t *)bytes)[index] = float8_encode(dtype, value);
    return;
  }
  die("element_set: dtype %d", dtype);
}

/* Quiet NaNs with a payload; the second differs so that a kernel that writes the first on purpose
 * is not blamed. */
uint32_t element_mark(enum dtype dtype, int mark) {
  switch (dtype) {
  case DTYPE_FLOAT16:
    return mark ? 0x7ea57ea5 : 0x7e5a7e5a;

  case DTYPE_BFLOAT16:
    return mark ? 0x7fe57fe5 : 0x7fda7fda;

  case DTYPE_FLOAT32:
    return mark ? 0x7fca5a5a : 0x7fc5a5a5;

  case DTYPE_FLOAT64: /* both halves of it */
    return mark ? 0x7ff8a5a5 : 0x7ff85a5a;

  default: /* also of 8-bit floats, which have one NaN or none that arithmetic does not make */
    return mark ? 0xa5a5a5a5 : 0x5a5a5a5a;
  }
}

/* The mark as a 64-bit number, whose low bytes are an element. */
static uint64_t mark_of(enum dtype dtype, int mark) {
  uint64_t word = element_mark(dtype, mark);
  return word << 32 | word;
}

bool element_is_marked(enum dtype dtype, const void *bytes, int64_t index, int mark) {
  uint64_t expected = mark_of(dtype, mark); /* its first bytes: machines here are little-endian */
  return memcmp((const char *)bytes + (size_t)index * dtype_size(dtype), &expected,
                dtype_size(dtype)) == 0;
}

/* No branch in the loops, so that compilers vectorise them. */
#define DEFINE_ANY(name, type, condition)                                                          \
  static bool name(const type *values, int64_t n, type bound) {                                    \
    type found = 0;                                                                                \
    for (int64_t i = 0; i < n; i++)                                                                \
      found |= (condition);                                                                        \
    return found != 0;                                                                             \
  }
DEFINE_ANY(any_above_16, int16_t, (values[i] & INT16_MAX) > bound)
DEFINE_ANY(any_above_32, int32_t, (values[i] & INT32_MAX) > bound)
DEFINE_ANY(any_all_of_64, uint64_t, (values[i] & bound) == bound)
DEFINE_ANY(any_equal_8, uint8_t, values[i] == bound)
DEFINE_ANY(any_equal_16, uint16_t, values[i] == bound)
DEFINE_ANY(any_equal_32, uint32_t, values[i] == bound)
DEFINE_ANY(any_equal_64, uint64_t, values[i] == bound)

bool elements_are_suspect(enum dtype dtype, const void *bytes, int64_t first, int64_t n) {
  const void *from = (const char *)bytes + (size_t)first * dtype_size(dtype);
  uint64_t mark = mark_of(dtype, 0);
  switch (dtype) {
  case DTYPE_FLOAT16:
    return any_above_16(from, n, 0x7c00); /* an infinity's bits: NaNs are above */
  case DTYPE_BFLOAT16:
    return any_above_16(from, n, 0x7f80);

  case DTYPE_FLOAT32:
    return any_above_32(from, n, 0x7f800000);

  case DTYPE_FLOAT64:
    return any_all_of_64(from, n, 0x7ff0000000000000);

  default:
    break;
  }
  if (dtype_is_float8(dtype))
    return float8_any_nan_or(dtype, from, n, (uint8_t)mark);

  switch (dtype_size(dtype)) {
  case 1:
    return any_equal_8(from, n, (uint8_t)mark);

  case 2:
    return any_equal_16(from, n, (uint16_t)mark);

  case 4:
    return any_equal_32(from, n, (uint32_t)mark);

  default:
    return any_equal_64(from, n, mark);
  }
}

#define DEFINE_UNWRITTEN(name, type)                                                               \
  static int64_t name(const type *values, const type *again, int64_t begin, int64_t end,           \
                      type mark, type other, int64_t *ret_first) {                                 \
    int64_t n = 0;                                                                                 \
    for (int64_t i = end - 1; i >= begin; i--) {                                                   \
      if (values[i] == mark && again[i] == other) {                                                \
        n++;                                                                                       \
        *ret_first = i;                                                                            \
      }                                                                                            \
    }                                                                                              \
    return n;                                                                                      \
  }
DEFINE_UNWRITTEN(unwritten_8, uint8_t)
DEFINE_UNWRITTEN(unwritten_16, uint16_t)
DEFINE_UNWRITTEN(unwritten_32, uint32_t)
DEFINE_UNWRITTEN(unwritten_64, uint64_t)

int64_t elements_unwritten(enum dtype dtype, const void *bytes, const void *again, int64_t first,
                           int64_t n, int64_t *ret_first) {
  uint64_t mark = mark_of(dtype, 0), other = mark_of(dtype, 1);
  switch (dtype_size(dtype)) {
  case 1:
    return unwritten_8(bytes, again, first, first + n, (uint8_t)mark, (uint8_t)other, ret_first);

  case 2:
    return unwritten_16(bytes, again, first, first + n, (uint16_t)mark, (uint16_t)other, ret_first);

  case 4:
    return unwritten_32(bytes, again, first, first + n, (uint32_t)mark, (uint32_t)other, ret_first);

  default:
    return unwritten_64(bytes, again, first, first + n, mark, other, ret_first);
  }
}

#define NEAR_BLOCK 1024 /* elements */

/* No branch: a block without a far element is compared at memory's speed. NaN and infinity are
 * far. */
#define DEFINE_NEAR(name, type, magnitude, largest)                                                \
  static bool name(const type *a, const type *b, int64_t n, type atol, type rtol) {                \
    int found = 0;                                                                                 \
    for (int64_t i = 0; i < n; i++) {                                                              \
      type difference = magnitude(a[i] - b[i]);                                                    \
      int is_near = difference <= atol + rtol * magnitude(a[i]),                                   \
          is_finite = difference <= (largest);                                                     \
      found |= !(is_near & is_finite);                                                             \
    }                                                                                              \
    return !found;                                                                                 \
  }
DEFINE_NEAR(floats_are_near, float, fabsf, FLT_MAX)
DEFINE_NEAR(doubles_are_near, double, fabs, DBL_MAX)

/* Finite ones: the exponent is the upper bits' in both formats, with another bias. */
static void float16_widen(const uint16_t *from, int64_t n, float *to) {
  for (int64_t i = 0; i < n; i++) {
    uint32_t bits = (uint32_t)(from[i] & 0x7fff) << 13;
    float magnitude;
    memcpy(&magnitude, &bits, sizeof magnitude);
    to[i] = magnitude * (from[i] & 0x8000 ? -0x1p112f : 0x1p112f);
  }
}

/* Floats of at most 32 bits as float; false: one of them is NaN or infinite, or it is another type.
 */
static bool block_widen(enum dtype dtype, const void *from, int64_t n, float *to) {
  switch (dtype) {
  case DTYPE_FLOAT16:
    if (any_above_16(from, n, 0x7bff))
      return false;
    float16_widen(from, n, to);
    return true;

  case DTYPE_BFLOAT16:
    if (any_above_16(from, n, 0x7f7f))
      return false;
    bfloat16_widen(from, n, to);
    return true;

  case DTYPE_FLOAT32:
    if (any_above_32(from, n, 0x7f7fffff))
      return false;
    memcpy(to, from, (size_t)n * sizeof *to);
    return true;

  default:
    if (!dtype_is_float8(dtype) || float8_any_not_finite(dtype, from, n))
      return false;
    float8_widen(dtype, from, n, to);
    return true;
  }
}

static bool block_is_near(enum dtype dtype, const void *a, const void *b, int64_t n, double atol,
                          double rtol) {
  float wide_a[NEAR_BLOCK], wide_b[NEAR_BLOCK];
  if (memcmp(a, b, (size_t)n * dtype_size(dtype)) == 0)
    return true;
  if (dtype == DTYPE_FLOAT64)
    return doubles_are_near(a, b, n, atol, rtol);
  return block_widen(dtype, a, n, wide_a) && block_widen(dtype, b, n, wide_b) &&
         floats_are_near(wide_a, wide_b, n, (float)atol, (float)rtol);
}

/* Several sums, so that compilers may vectorise the loop without reordering one. */
static double squares_add(const float *values, int64_t n) {
  double sums[8] = {0};
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (int k = 0; k < 8; k++)
      sums[k] += (double)values[i + k] * (double)values[i + k];
  for (; i < n; i++)
    sums[0] += (double)values[i] * (double)values[i];
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

double elements_square_sum(enum dtype dtype, const void *bytes, int64_t first, int64_t n,
                           int64_t *ret_finite) {
  float wide[NEAR_BLOCK];
  double sum = 0;
  *ret_finite = 0;
  for (int64_t at = first, block; at < first + n; at += block) {
    block = first + n - at < NEAR_BLOCK ? first + n - at : NEAR_BLOCK;
    if (block_widen(dtype, (const char *)bytes + (size_t)at * dtype_size(dtype), block, wide)) {
      sum += squares_add(wide, block);
      *ret_finite += block;
      continue;
    }

    for (int64_t i = at; i < at + block; i++) {
      double value = element_get(dtype, bytes, i);
      if (isfinite(value)) {
        sum += value * value;
        ++*ret_finite;
      }
    }
  }

  return sum;
}

int64_t elements_far(enum dtype dtype, const void *a, const void *b, int64_t first, int64_t n,
                     double atol, double rtol) {
  size_t size = dtype_size(dtype);
  for (int64_t at = first, block; at < first + n; at += block) {
    block = first + n - at < NEAR_BLOCK ? first + n - at : NEAR_BLOCK;
    size_t offset = (size_t)at * size;
    if (block_is_near(dtype, (const char *)a + offset, (const char *)b + offset, block, atol, rtol))
      continue;

    for (int64_t i = at; i < at + block; i++) {
      double left = element_get(dtype, a, i), right = element_get(dtype, b, i);
      bool is_far = isnan(left) || isnan(right)   ? isnan(left) != isnan(right)
                    : isinf(left) || isinf(right) ? left != right
                                                  : fabs(left - right) > atol + rtol * fabs(left);
      if (is_far)
        return i;
    }
  }

  return -1;
}

#define PIECE ((size_t)1 << 20)

struct team {
  atomic_size_t next;
  size_t n;
  void (*work)(void *context, size_t item);
  void *context;
};

unsigned team_size(void) {
  long cpus = sysconf(_SC_NPROCESSORS_ONLN);
  unsigned quarter = cpus > 4 ? (unsigned)(cpus / 4) : 1;
  return quarter < 4 ? quarter : 4;
}

static void *member_run(void *context) {
  struct team *team = context;
  for (size_t item; (item = atomic_fetch_add(&team->next, 1)) < team->n;)
    team->work(team->context, item);
  return NULL;
}

/* If a thread cannot be started, the others do its part of the work. */
void team_run(unsigned threads, size_t n, void (*work)(void *context, size_t item), void *context) {
  struct team team = {.n = n, .work = work, .context = context};
  pthread_t members[TEAM_MAX];
  unsigned n_members = 0;
  while (n_members + 1 < threads && n_members + 1 < n && n_members + 1 < TEAM_MAX &&
         pthread_create(&members[n_members], NULL, member_run, &team) == 0)
    n_members++;
  member_run(&team);
  for (unsigned i = 0; i < n_members; i++)
    pthread_join(members[i], NULL);
}

size_t pieces_of(int64_t elements) {
  return (size_t)((elements + SCAN_ELEMENTS - 1) / SCAN_ELEMENTS);
}

void team_run_pieces(int64_t elements, void (*work)(void *context, size_t piece), void *context) {
  size_t n = pieces_of(elements);
  team_run(n > 1 ? team_size() : 1, n, work, context);
}

/* One or two buffers in pieces. */
struct pieces {
  const char *a, *b;
  size_t size;
  atomic_bool differs;
  atomic_ullong sum, product; /* of the fingerprint of `a` */
};

static void pieces_run(struct pieces *pieces, void (*work)(void *pieces, size_t piece)) {
  size_t n = (pieces->size + PIECE - 1) / PIECE;
  /* Starting threads takes as long as comparing a piece or two. */
  team_run(n < 4 ? 1 : team_size(), n, work, pieces);
}

static void piece_compare(void *context, size_t piece) {
  struct pieces *pieces = context;
  size_t at = piece * PIECE, size = pieces->size - at < PIECE ? pieces->size - at : PIECE;
  if (!atomic_load_explicit(&pieces->differs, memory_order_relaxed) &&
      memcmp(pieces->a + at, pieces->b + at, size) != 0)
    atomic_store(&pieces->differs, true);
}

bool bytes_equal(const void *a, const void *b, size_t size) {
  struct pieces pieces = {.a = a, .b = b, .size = size};
  pieces_run(&pieces, piece_compare);
  return !atomic_load(&pieces.differs);
}

static void piece_fingerprint(void *context, size_t piece) {
  struct pieces *pieces = context;
  size_t at = piece * PIECE, size = pieces->size - at < PIECE ? pieces->size - at : PIECE;
  struct fingerprint part = fingerprint_part(pieces->a + at, size, at / sizeof(uint64_t));
  atomic_fetch_add(&pieces->sum, part.sum);
  atomic_fetch_add(&pieces->product, part.product);
}

struct fingerprint bytes_fingerprint(const void *bytes, size_t size) {
  struct pieces pieces = {.a = bytes, .size = size};
  pieces_run(&pieces, piece_fingerprint);
  return (struct fingerprint){atomic_load(&pieces.sum), atomic_load(&pieces.product)};
}
