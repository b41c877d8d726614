/* Inputs a unit in the last place away. */
#include "agent/measure/nudge.h"

#include <math.h>

#include "agent/measure/element.h"
#include "common/base/numbers.h"

#define TF32_UNIT (1u << 13) /* float32 has 23 bits behind the point, tf32 10 */

void elements_nudge(enum dtype dtype, bool is_tf32, void *bytes, int64_t elements) {
  size_t size = dtype_size(dtype);
  struct rng rng = rng_seeded(1);
  uint64_t bits = 0, unit = dtype == DTYPE_FLOAT32 && is_tf32 ? TF32_UNIT : 1;
  for (int64_t k = 0; k < elements; k++, bits >>= 1) {
    if (k % 64 == 0)
      bits = rng_next(&rng);
    if (!(bits & 1) || !isfinite(element_get(dtype, bytes, k)))
      continue;
    uint64_t word = 0; /* little-endian, as all machines here are */
    memcpy(&word, (char *)bytes + (size_t)k * size, size);
    word ^= unit;
    memcpy((char *)bytes + (size_t)k * size, &word, size);
  }
}

/* A buffer with the nudged data of another. */
static bool buffer_nudged(struct problem *problem, const struct operand *operand, size_t set,
                          struct device_buffer **ret_buffer, struct error *error) {
  struct device *device = problem->device;
  const struct device_ops *ops = device->ops;
  void *bytes = ops->host_buffer_new(device, operand->bytes);
  struct device_buffer *buffer = NULL;
  bool is_made = ops->download(device, bytes, operand->sets[set]->address, operand->bytes, error) &&
                 ops->buffer_new(device, operand->bytes, &buffer, error);
  if (is_made) {
    elements_nudge(operand->argument->dtype, problem->kernel->is_tf32, bytes, operand->elements);
    is_made = ops->upload(device, buffer->address, bytes, operand->bytes, error);
  }
  if (!is_made && buffer)
    ops->buffer_free(device, TAKE(buffer));
  ops->host_buffer_free(device, bytes);
  *ret_buffer = buffer;
  return is_made;
}

bool inputs_nudge(struct problem *problem, size_t set, struct nudge *ret_nudge,
                  struct error *error) {
  *ret_nudge = (struct nudge){0};
  operands_foreach (problem, operand) {
    struct device_buffer *buffer;
    if (!operand->sets[set] || !argument_varies(operand->argument) ||
        !dtype_is_floating(operand->argument->dtype))
      continue;
    if (!buffer_nudged(problem, operand, set, &buffer, error)) {
      inputs_unnudge(problem, set, ret_nudge);
      return false;
    }
    ret_nudge->replaced[operand->index] = operand->sets[set];
    operand->sets[set] = buffer;
    ret_nudge->n++;
  }
  return true;
}

void inputs_unnudge(struct problem *problem, size_t set, struct nudge *nudge) {
  operands_foreach (problem, operand) {
    if (!nudge->replaced[operand->index])
      continue;
    problem->device->ops->buffer_free(problem->device, operand->sets[set]);
    operand->sets[set] = TAKE(nudge->replaced[operand->index]);
  }
}
