/* Seeded fills. Memory: none. Threads: any. */
#include "agent/measure/inputs.h"

#include <math.h>

#include "agent/measure/element.h"
#include "agent/measure/team.h"
#include "common/base/rng.h"

/* Box and Muller, "A note on the generation of random normal deviates", 1958: two deviates from two
 * uniforms. */
static void normal_fill(enum dtype dtype, struct rng *rng, int64_t elements, void *bytes) {
  for (int64_t i = 0; i < elements; i += 2) {
    double radius = sqrt(-2 * log(1 - rng_unit(rng))), angle = 2 * M_PI * rng_unit(rng);
    element_set(dtype, bytes, i, radius * cos(angle));
    if (i + 1 < elements)
      element_set(dtype, bytes, i + 1, radius * sin(angle));
  }
}

/* As many numbers as the type can tell from their neighbours: 0, 1, 2, … below it. */
static int64_t index_modulus(enum dtype dtype) {
  int bits = 53;
  if (dtype == DTYPE_BOOL)
    bits = 1;
  else if (dtype == DTYPE_BFLOAT16)
    bits = 8;
  else if (dtype == DTYPE_FLOAT16)
    bits = 11;
  else if (dtype == DTYPE_FLOAT32)
    bits = 24;
  else if (dtype_size(dtype) < 8)
    bits = 8 * (int)dtype_size(dtype) -
           (dtype == DTYPE_INT8 || dtype == DTYPE_INT16 || dtype == DTYPE_INT32);
  return (int64_t)1 << bits;
}

/* What is filled, block by block. */
struct filling {
  const struct argument *argument;
  uint64_t seed;
  int64_t elements;
  char *bytes;
};

/* Picks for each of `n` elements one of the first block's. */
#define DEFINE_PICK(name, type)                                                                    \
  static void name(struct rng *rng, const type *block, int64_t n, type *elements) {                \
    for (int64_t i = 0; i < n; i += 4) {                                                           \
      uint64_t bits = rng_next(rng);                                                               \
      for (int64_t k = 0; k < 4 && i + k < n; k++)                                                 \
        elements[i + k] = block[bits >> 16 * k & (INPUTS_BLOCK - 1)];                              \
    }                                                                                              \
  }
_Static_assert(INPUTS_BLOCK == 1 << 16, "a pick takes 16 bits");
DEFINE_PICK(pick_8, uint8_t)
DEFINE_PICK(pick_16, uint16_t)
DEFINE_PICK(pick_32, uint32_t)
DEFINE_PICK(pick_64, uint64_t)

static void normal_pick(enum dtype dtype, struct rng *rng, const char *block, int64_t n,
                        char *elements) {
  switch (dtype_size(dtype)) {
  case 1:
    pick_8(rng, (const uint8_t *)block, n, (uint8_t *)elements);
    return;
  case 2:
    pick_16(rng, (const uint16_t *)block, n, (uint16_t *)elements);
    return;
  case 4:
    pick_32(rng, (const uint32_t *)block, n, (uint32_t *)elements);
    return;
  default:
    pick_64(rng, (const uint64_t *)block, n, (uint64_t *)elements);
  }
}

static void block_draw(const struct filling *filling, struct rng *rng, int64_t first, int64_t n) {
  const struct argument *argument = filling->argument;
  enum dtype dtype = argument->dtype;
  double low = argument->fill.low, high = argument->fill.high;
  char *elements = filling->bytes + (size_t)first * dtype_size(dtype);
  if (argument->fill.kind == FILL_NORMAL && first == 0)
    normal_fill(dtype, rng, n, elements);
  else if (argument->fill.kind == FILL_NORMAL)
    normal_pick(dtype, rng, filling->bytes, n, elements);
  for (int64_t i = 0; argument->fill.kind == FILL_UNIFORM && i < n; i++)
    element_set(dtype, elements, i, low + (high - low) * rng_unit(rng));
  for (int64_t i = 0; argument->fill.kind == FILL_INTEGERS && i < n; i++)
    element_set(dtype, elements, i, low + (double)rng_below(rng, (uint64_t)(high - low) + 1));
  int64_t modulus = index_modulus(dtype);
  for (int64_t i = 0; argument->fill.kind == FILL_INDEX && i < n; i++)
    element_set(dtype, elements, i, (double)((first + i) % modulus));
}

static void block_fill(void *context, size_t block) {
  const struct filling *filling = context;
  int64_t first = (int64_t)block * INPUTS_BLOCK, left = filling->elements - first;
  struct rng rng = rng_seeded(filling->seed + block * 0xd1342543de82ef95u);
  block_draw(filling, &rng, first, left < INPUTS_BLOCK ? left : INPUTS_BLOCK);
}

static void later_block_fill(void *context, size_t block) { block_fill(context, block + 1); }

/* Repeats the first `period` bytes up to `size`. */
static void bytes_repeat(char *bytes, size_t period, size_t size) {
  for (size_t at = period; at < size; at += period)
    memcpy(bytes + at, bytes, size - at < period ? size - at : period);
}

void inputs_fill(const struct argument *argument, size_t argument_index, int64_t elements,
                 uint64_t seed, void *bytes) {
  size_t element = dtype_size(argument->dtype);
  if (argument->fill.kind == FILL_ZEROS || elements == 0) {
    memset(bytes, 0, (size_t)elements * element);
    return;
  }
  bool repeats = argument->fill.kind != FILL_INDEX && elements > INPUTS_PERIOD;
  struct rng mixed = rng_seeded(seed ^ (0xa0761d6478bd642fu * (argument_index + 1)));
  struct filling filling = {argument, rng_next(&mixed), repeats ? INPUTS_PERIOD : elements, bytes};
  size_t blocks = (size_t)((filling.elements + INPUTS_BLOCK - 1) / INPUTS_BLOCK);
  block_fill(&filling, 0);
  if (blocks > 1)
    team_run(team_size(), blocks - 1, later_block_fill, &filling);
  if (repeats)
    bytes_repeat(bytes, (size_t)INPUTS_PERIOD * element, (size_t)elements * element);
}
