/* Correctness of one config. Memory: none kept. Threads: one. */
#include "agent/measure/check.h"

#include <math.h>

#include "agent/measure/element.h"

#define INPUT_CHUNK ((size_t)1 << 20)

static bool is_right(const struct kernel *kernel, enum dtype dtype, double value, double reference) {
  if (isnan(reference) || isnan(value))
    return isnan(reference) && isnan(value);
  uint64_t rounded;
  element_set(dtype, &rounded, 0, reference);
  if (value == reference || value == element_get(dtype, &rounded, 0))
    return true;
  if (isinf(reference) || isinf(value))
    return false;
  return fabs(value - reference) <= kernel->atol + kernel->rtol * fabs(reference);
}

static bool samples_check(const struct problem *problem, size_t i, struct error *error) {
  const struct argument *argument = &problem->kernel->arguments[i];
  const struct operand *operand = &problem->operands[i];
  const struct expectation *expected = &operand->expected;
  size_t n_wrong = 0, first = 0;
  for (size_t k = 0; k < expected->n; k++) {
    double value = element_get(argument->dtype, operand->written, expected->indices[k]);
    if (!is_right(problem->kernel, argument->dtype, value, expected->values[k]) && n_wrong++ == 0)
      first = k;
  }
  if (n_wrong == 0)
    return true;
  double reference = expected->values[first];
  return error_set(error,
                   "%s[%lld] is %.9g, the reference has %.9g (allowed difference %.3g); %zu of %zu compared differ",
                   argument->name, (long long)expected->indices[first],
                   element_get(argument->dtype, operand->written, expected->indices[first]), reference,
                   problem->kernel->atol + problem->kernel->rtol * fabs(reference), n_wrong, expected->n);
}

static bool nans_check(struct problem *problem, size_t i, struct error *error) {
  const struct argument *argument = &problem->kernel->arguments[i];
  const struct operand *operand = &problem->operands[i];
  size_t n_asked = 0;
  for (int64_t k = 0; k < operand->elements && n_asked < CHECK_NANS_MAX; k++) {
    if (!isnan(element_get(argument->dtype, operand->written, k)))
      continue;
    n_asked++;
    double reference = reference_element(problem->reference, i, k, problem->host_arguments);
    if (!isnan(reference))
      return error_set(error, "%s[%lld] is NaN, the reference has %.9g", argument->name, (long long)k, reference);
  }
  return true;
}

static bool launch_and_download(struct problem *problem, struct candidate *candidate, struct error *error) {
  const struct device_ops *ops = problem->device->ops;
  struct device_launch launch = candidate_launch(candidate);
  if (!ops->launch(problem->device, &launch, error) || !ops->synchronize(problem->device, error)) {
    problem_ask_device(problem, true);
    return false;
  }
  for (size_t i = 0; i < problem->kernel->n_arguments; i++) {
    struct operand *operand = &problem->operands[i];
    if (!operand->written ||
        ops->download(problem->device, operand->written, operand->checked->address, operand->bytes, error))
      continue;
    problem_ask_device(problem, true);
    return false;
  }
  return true;
}

/* Looks at all buffers even after a failure: each call restores the canaries. What else was written outside of them
 * nobody knows, so that nothing more is measured in this process. */
static bool canaries_check(struct problem *problem, struct error *error) {
  bool intact = true;
  for (size_t i = 0; i < problem->kernel->n_arguments; i++) {
    struct error found;
    if (!problem->operands[i].checked ||
        problem->device->ops->buffer_intact(problem->device, problem->operands[i].checked, &found))
      continue;
    problem->is_spoiled = true;
    if (intact)
      intact = error_set(error, "argument \"%s\": %s", problem->kernel->arguments[i].name, found.message);
  }
  return intact;
}

/* Inputs must be as they were given: the next config, and the user, read them too. */
static bool inputs_check(struct problem *problem, struct error *error) {
  const struct device_ops *ops = problem->device->ops;
  cleanup_free char *chunk = xmalloc(INPUT_CHUNK);
  bool unchanged = true;
  for (size_t i = 0; i < problem->kernel->n_arguments; i++) {
    const struct operand *operand = &problem->operands[i];
    if (!operand->checked || problem->kernel->arguments[i].access != ACCESS_READ)
      continue;
    for (size_t at = 0; at < operand->bytes; at += INPUT_CHUNK) {
      size_t size = operand->bytes - at < INPUT_CHUNK ? operand->bytes - at : INPUT_CHUNK;
      char *address = (char *)operand->checked->address + at, *given = (char *)operand->given + at;
      struct error ignored;
      if (!ops->download(problem->device, chunk, address, size, unchanged ? error : &ignored))
        return false;
      if (memcmp(chunk, given, size) == 0)
        continue;
      if (unchanged)
        unchanged = error_set(error, "argument \"%s\": it is only to be read, and its data were changed",
                              problem->kernel->arguments[i].name);
      if (!ops->upload(problem->device, address, given, size, &ignored))
        return false;
    }
  }
  return unchanged;
}

static bool is_written_output(const struct problem *problem, size_t i) {
  return problem->kernel->arguments[i].reference_entry && problem->kernel->arguments[i].access == ACCESS_WRITE;
}

/* One bit an element of each output that still holds its mark; NULL for an output that was written completely. */
struct unwritten {
  uint8_t *bits[KERNEL_ARGUMENTS_MAX];
  bool any;
};

static void unwritten_release(struct unwritten *unwritten) {
  for (size_t i = 0; i < KERNEL_ARGUMENTS_MAX; i++)
    free(unwritten->bits[i]);
}

static void unwritten_find(const struct problem *problem, struct unwritten *unwritten) {
  for (size_t i = 0; i < problem->kernel->n_arguments; i++) {
    const struct operand *operand = &problem->operands[i];
    for (int64_t k = 0; is_written_output(problem, i) && k < operand->elements; k++) {
      if (!element_is_marked(problem->kernel->arguments[i].dtype, operand->written, k, 0))
        continue;
      if (!unwritten->bits[i])
        unwritten->bits[i] = xcalloc((size_t)operand->elements / 8 + 1, 1);
      unwritten->bits[i][k / 8] |= (uint8_t)(1 << k % 8);
      unwritten->any = true;
    }
  }
}

/* After a run with the other mark: an element that held the first mark and holds the second was never written. */
static bool unwritten_confirm(const struct problem *problem, const struct unwritten *unwritten, struct error *error) {
  for (size_t i = 0; i < problem->kernel->n_arguments; i++) {
    const struct operand *operand = &problem->operands[i];
    const struct argument *argument = &problem->kernel->arguments[i];
    int64_t n_found = 0, first = 0;
    for (int64_t k = 0; unwritten->bits[i] && k < operand->elements; k++)
      if ((unwritten->bits[i][k / 8] >> k % 8 & 1) && element_is_marked(argument->dtype, operand->written, k, 1) &&
          n_found++ == 0)
        first = k;
    if (n_found)
      return error_set(error, "%s[%lld] was not written; %lld of its %lld elements were not", argument->name,
                       (long long)first, (long long)n_found, (long long)operand->elements);
  }
  return true;
}

enum outcome candidate_check(struct problem *problem, struct candidate *candidate, struct error *error) {
  if (!problem_reset(problem, 0, error)) {
    problem_ask_device(problem, false);
    return OUTCOME_RUNTIME;
  }
  if (!launch_and_download(problem, candidate, error))
    return OUTCOME_RUNTIME;
  if (!canaries_check(problem, error) || !inputs_check(problem, error))
    return OUTCOME_CORRECTNESS;
  if (!problem->reference)
    return OUTCOME_CORRECT;
  __attribute__((cleanup(unwritten_release))) struct unwritten unwritten = {0};
  unwritten_find(problem, &unwritten);
  if (unwritten.any) {
    if (!problem_reset(problem, 1, error) || !launch_and_download(problem, candidate, error))
      return OUTCOME_RUNTIME;
    if (!canaries_check(problem, error) || !unwritten_confirm(problem, &unwritten, error))
      return OUTCOME_CORRECTNESS;
  }
  for (size_t i = 0; i < problem->kernel->n_arguments; i++) {
    const struct argument *argument = &problem->kernel->arguments[i];
    if (argument->reference_entry &&
        (!samples_check(problem, i, error) || (dtype_is_floating(argument->dtype) && !nans_check(problem, i, error))))
      return OUTCOME_CORRECTNESS;
  }
  return OUTCOME_CORRECT;
}
