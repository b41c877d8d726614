/* Runs of configs on the checked copies. */
#include "agent/measure/checked_run.h"

enum outcome checked_run(struct problem *problem, struct loaded_config *loaded, int mark,
                         struct error *error) {
  struct device *device = problem->device;
  struct device_launch launch = config_launch(loaded);
  enum outcome outcome = OUTCOME_CORRECT;
  if (!problem_reset(problem, mark, error)) {
    problem_check_device(problem, false);
    return OUTCOME_RUNTIME;
  }
  if (!device->ops->launch(device, &launch, error) || !device->ops->synchronize(device, error))
    return OUTCOME_RUNTIME;

  operands_foreach (problem, operand) {
    struct error found;
    if (!operand->checked || device->ops->buffer_intact(device, operand->checked, &found))
      continue;
    problem->is_spoiled = true;
    if (outcome == OUTCOME_CORRECT)
      error_set(error, "argument \"%s\": %s", operand->argument->name, found.message);
    outcome = OUTCOME_CORRECTNESS;
  }

  return outcome;
}

bool output_download(struct problem *problem, const struct operand *operand, void *bytes,
                     struct error *error) {
  struct device *device = problem->device;
  return device->ops->download(device, bytes, operand->checked->address, operand->bytes, error);
}

bool output_fingerprint(struct problem *problem, struct operand *operand, struct error *error) {
  struct device *device = problem->device;
  if (device->has_fingerprint)
    return device->ops->fingerprint(device, operand->checked->address, operand->bytes,
                                    &operand->left, error);
  if (!output_download(problem, operand, operand->written, error))
    return false;
  operand->left = bytes_fingerprint(operand->written, operand->bytes);
  return true;
}

bool output_fetch(struct problem *problem, struct operand *operand, struct error *error) {
  return !problem->device->has_fingerprint ||
         output_download(problem, operand, operand->written, error);
}
