/* Correctness of one config. */
#include <math.h>

#include "agent/measure/agreement.h"
#include "agent/measure/check.h"
#include "agent/measure/element.h"

#define INPUT_CHUNK ((size_t)8 << 20)

bool check_device_result(struct problem *problem, bool ok) {
  if (!ok)
    problem_check_device(problem, true);
  return ok;
}

static double allowed_difference(const struct problem *problem, double reference, double times) {
  return times *
         (problem->kernel->reference.atol + problem->kernel->reference.rtol * fabs(reference));
}

/* `times`: how many tolerances the value may be off. */
static bool is_right(const struct problem *problem, enum dtype dtype, double value,
                     double reference, double times) {
  uint64_t rounded;
  if (isnan(reference) || isnan(value))
    return isnan(reference) && isnan(value);
  element_set(dtype, &rounded, 0, reference);
  if (value == reference || value == element_get(dtype, &rounded, 0))
    return true;
  return !isinf(reference) && !isinf(value) &&
         fabs(value - reference) <= allowed_difference(problem, reference, times);
}

static bool samples_check(const struct problem *problem, size_t i, struct error *error) {
  const struct argument *argument = &problem->kernel->arguments[i];
  const struct operand *operand = &problem->operands[i];
  const struct expectation *expected = &operand->expected;
  size_t n_wrong = 0, first = 0;

  for (size_t k = 0; k < expected->n; k++) {
    double value = element_get(argument->dtype, operand->written, expected->indices[k]);
    if (!is_right(problem, argument->dtype, value, expected->values[k], 1) && n_wrong++ == 0)
      first = k;
  }

  return n_wrong == 0 ||
         error_set(error,
                   "%s[%lld] is %.9g, the reference has %.9g (allowed difference %.3g); %zu of %zu "
                   "compared differ",
                   argument->name, (long long)expected->indices[first],
                   element_get(argument->dtype, operand->written, expected->indices[first]),
                   expected->values[first], allowed_difference(problem, expected->values[first], 1),
                   n_wrong, expected->n);
}

/* The blocks of an output in which an element may be NaN or not written. */
struct scan {
  enum dtype dtype;
  const void *bytes;
  int64_t elements;
  bool *is_suspect; /* of each block */
};

static int64_t block_size(const struct scan *scan, int64_t first) {
  return scan->elements - first < SCAN_BLOCK ? scan->elements - first : SCAN_BLOCK;
}

static void blocks_scan(void *context, size_t item) {
  struct scan *scan = context;
  int64_t first = (int64_t)item * SCAN_ELEMENTS, end = first + SCAN_ELEMENTS;
  for (; first < end && first < scan->elements; first += SCAN_BLOCK)
    scan->is_suspect[first / SCAN_BLOCK] =
        elements_are_suspect(scan->dtype, scan->bytes, first, block_size(scan, first));
}

/* The first element from `k` on in a suspect block; scan->elements: there is none. */
static int64_t suspect_next(const struct scan *scan, int64_t k) {
  while (k < scan->elements && !scan->is_suspect[k / SCAN_BLOCK])
    k += SCAN_BLOCK - k % SCAN_BLOCK;
  return k < scan->elements ? k : scan->elements;
}

static bool nans_check(struct problem *problem, size_t i, const struct scan *scan,
                       struct error *error) {
  size_t n_computed = 0;
  for (int64_t k = suspect_next(scan, 0); k < scan->elements && n_computed < CHECK_NANS_MAX;
       k = suspect_next(scan, k + 1)) {
    if (!isnan(element_get(scan->dtype, scan->bytes, k)))
      continue;
    n_computed++;
    double reference = reference_element(problem->reference, i, k, problem->host_arguments);
    if (!isnan(reference))
      return error_set(error, "%s[%lld] is NaN, the reference has %.9g",
                       problem->kernel->arguments[i].name, (long long)k, reference);
  }

  return true;
}

/* An output that is compared with the first one, piece by piece. */
struct comparison {
  const struct problem *problem;
  enum dtype dtype;
  const struct operand *operand;
  int64_t *far; /* of each piece: the first element that is far; -1: none */
};

/* The first element of a piece that is far, from `from` on. */
static int64_t far_find(const struct comparison *comparison, size_t piece, int64_t from) {
  const struct operand *operand = comparison->operand;
  const struct kernel *kernel = comparison->problem->kernel;
  int64_t end = (int64_t)(piece + 1) * SCAN_ELEMENTS;
  end = end < operand->elements ? end : operand->elements;
  return elements_far(comparison->dtype, operand->first, operand->written, from, end - from,
                      CHECK_FAR * kernel->reference.atol, CHECK_FAR * kernel->reference.rtol);
}

static void piece_compare(void *context, size_t piece) {
  const struct comparison *comparison = context;
  comparison->far[piece] = far_find(comparison, piece, (int64_t)piece * SCAN_ELEMENTS);
}

/* Computes the reference of element k, where the new output and the first one differ. False: the
 * new one is wrong. */
static bool far_settle(struct problem *problem, size_t i, int64_t k, struct error *error) {
  const struct argument *argument = &problem->kernel->arguments[i];
  const struct operand *operand = &problem->operands[i];
  double reference = reference_element(problem->reference, i, k, problem->host_arguments);
  double value = element_get(argument->dtype, operand->written, k);
  double first = element_get(argument->dtype, operand->first, k);
  double allowed = allowed_difference(problem, reference, CHECK_FAR);

  if (!is_right(problem, argument->dtype, value, reference, CHECK_FAR))
    return error_set(error,
                     "%s[%lld] is %.9g, the reference has %.9g and the baseline %.9g (allowed "
                     "difference %.3g, as it is not among the samples)",
                     argument->name, (long long)k, value, reference, first, allowed);
  if (!is_right(problem, argument->dtype, first, reference, CHECK_FAR))
    error_set(&problem->baseline_wrong,
              "%s[%lld] is %.9g, the reference has %.9g (allowed difference %.3g, as it is not "
              "among the samples); mend the kernel, or choose another default",
              argument->name, (long long)k, first, reference, allowed);
  return true;
}

/* Compares all elements of output i with those of the first one. */
static bool first_compare(struct problem *problem, size_t i, struct error *error) {
  const struct operand *operand = &problem->operands[i];
  size_t pieces = (size_t)((operand->elements + SCAN_ELEMENTS - 1) / SCAN_ELEMENTS);
  cleanup_free int64_t *far = xcalloc(pieces + 1, sizeof *far);
  struct comparison comparison = {problem, problem->kernel->arguments[i].dtype, operand, far};
  team_run(pieces > 1 ? team_size() : 1, pieces, piece_compare, &comparison);

  /* One element of each piece in turn, so that many in one piece that are right do not hide a wrong
   * one in another. */
  size_t n_computed = 0, n_far = pieces;

  for (size_t turn = 0; n_far > 0; turn++) {
    n_far = 0;
    for (size_t piece = 0; piece < pieces; piece++) {
      if (turn > 0 && n_computed >= CHECK_FAR_MAX)
        return true;
      if (turn > 0 && far[piece] >= 0)
        far[piece] = far_find(&comparison, piece, far[piece] + 1);
      if (far[piece] < 0)
        continue;
      n_far++;
      n_computed++;
      if (!far_settle(problem, i, far[piece], error))
        return false;
    }
  }

  return true;
}

bool check_launch(struct problem *problem, struct loaded_config *loaded, int mark,
                  struct error *error) {
  const struct device_ops *ops = problem->device->ops;
  struct device_launch given = config_launch(loaded);
  if (!problem_reset(problem, mark, error)) {
    problem_check_device(problem, false);
    return false;
  }
  return check_device_result(problem, ops->launch(problem->device, &given, error) &&
                                          ops->synchronize(problem->device, error));
}

bool check_download(struct problem *problem, void *bytes, const struct operand *operand,
                    struct error *error) {
  return check_device_result(problem, problem->device->ops->download(problem->device, bytes,
                                                                     operand->checked->address,
                                                                     operand->bytes, error));
}

bool check_canaries(struct problem *problem, struct error *error) {
  bool intact = true;
  for (size_t i = 0; i < problem->kernel->n_arguments; i++) {
    struct error found;
    if (!problem->operands[i].checked ||
        problem->device->ops->buffer_intact(problem->device, problem->operands[i].checked, &found))
      continue;
    problem->is_spoiled = true;
    if (intact)
      intact = error_set(error, "argument \"%s\": %s", problem->kernel->arguments[i].name,
                         found.message);
  }

  return intact;
}

/* Sets is_known: whether this output has passed before. If not, it is downloaded. */
static bool output_take(struct problem *problem, struct operand *operand, struct error *error) {
  struct device *device = problem->device;
  bool has_fingerprint = device->has_fingerprint;
  operand->is_new = operand->is_known = false;
  if (has_fingerprint) {
    if (!check_device_result(problem,
                             device->ops->fingerprint(device, operand->checked->address,
                                                      operand->bytes, &operand->left, error)))
      return false;
  } else if (!check_download(problem, operand->written, operand, error)) {
    return false;
  } else {
    operand->left = bytes_fingerprint(operand->written, operand->bytes);
  }

  for (size_t k = 0; k < operand->n_verified && !operand->is_known; k++)
    operand->is_known = fingerprint_equal(operand->left, operand->verified[k]);
  return operand->is_known || !has_fingerprint ||
         check_download(problem, operand->written, operand, error);
}

/* Runs the config once more on outputs with the other mark: an element of output i that held the
 * first mark and holds the second was never written. */
static enum outcome unwritten_confirm(struct problem *problem, struct loaded_config *loaded,
                                      size_t i, const struct scan *scan, struct error *error) {
  const struct operand *operand = &problem->operands[i];
  const struct device_ops *ops = problem->device->ops;
  void *again = ops->host_buffer_new(problem->device, operand->bytes);
  int64_t n_found = 0, first = 0;
  enum outcome outcome = OUTCOME_CORRECT;
  if (!check_launch(problem, loaded, 1, error) || !check_download(problem, again, operand, error))
    outcome = OUTCOME_RUNTIME;
  else if (!check_canaries(problem, error))
    outcome = OUTCOME_CORRECTNESS;

  /* From the last block to the first: `first` ends as the first of all. */
  for (int64_t b = (scan->elements - 1) / SCAN_BLOCK; outcome == OUTCOME_CORRECT && b >= 0; b--)
    if (scan->is_suspect[b])
      n_found += elements_unwritten(scan->dtype, operand->written, again, b * SCAN_BLOCK,
                                    block_size(scan, b * SCAN_BLOCK), &first);
  ops->host_buffer_free(problem->device, again);
  if (n_found) {
    error_set(error, "%s[%lld] was not written; %lld of its %lld elements were not",
              problem->kernel->arguments[i].name, (long long)first, (long long)n_found,
              (long long)operand->elements);
    outcome = OUTCOME_CORRECTNESS;
  }

  return outcome;
}

/* Checks output i completely. */
static enum outcome output_check(struct problem *problem, struct loaded_config *loaded, size_t i,
                                 struct error *error) {
  struct operand *operand = &problem->operands[i];
  const struct argument *argument = &problem->kernel->arguments[i];
  size_t items = (size_t)((operand->elements + SCAN_ELEMENTS - 1) / SCAN_ELEMENTS);
  cleanup_free bool *is_suspect =
      xcalloc((size_t)(operand->elements / SCAN_BLOCK) + 1, sizeof *is_suspect);
  struct scan scan = {argument->dtype, operand->written, operand->elements, is_suspect};
  team_run(items > 1 ? team_size() : 1, items, blocks_scan, &scan);

  bool is_marked = false;
  if (argument->access == ACCESS_WRITE)
    for (int64_t k = suspect_next(&scan, 0); k < scan.elements && !is_marked;
         k = suspect_next(&scan, k + 1))
      is_marked = element_is_marked(scan.dtype, scan.bytes, k, 0);
  enum outcome outcome =
      is_marked ? unwritten_confirm(problem, loaded, i, &scan, error) : OUTCOME_CORRECT;
  if (outcome != OUTCOME_CORRECT)
    return outcome;

  if (!samples_check(problem, i, error) ||
      (dtype_is_floating(argument->dtype) && !nans_check(problem, i, &scan, error)) ||
      (operand->first && !first_compare(problem, i, error)))
    return OUTCOME_CORRECTNESS;

  operand->is_new = !is_marked;
  return OUTCOME_CORRECT;
}

/* Runs a config on marked outputs and checks what it wrote, but not its inputs. All outputs are
 * taken before one is checked completely, which may run the config again. */
static enum outcome outputs_check(struct problem *problem, struct loaded_config *loaded,
                                  struct error *error) {
  size_t n = problem->kernel->n_arguments;
  enum outcome outcome = OUTCOME_CORRECT;
  if (problem->n_sets)
    return agreement_check(problem, loaded, error);
  if (!check_launch(problem, loaded, 0, error))
    return OUTCOME_RUNTIME;
  if (!check_canaries(problem, error))
    return OUTCOME_CORRECTNESS;

  for (size_t i = 0; i < n; i++)
    if (problem->operands[i].written && !output_take(problem, &problem->operands[i], error))
      return OUTCOME_RUNTIME;
  for (size_t i = 0; i < n && outcome == OUTCOME_CORRECT; i++)
    if (problem->operands[i].written && !problem->operands[i].is_known)
      outcome = output_check(problem, loaded, i, error);

  /* Later configs are compared with the outputs of this one: with the fingerprints, and with all
   * elements of the first output, unless all of them are samples. */
  for (size_t i = 0; i < n && outcome == OUTCOME_CORRECT; i++) {
    struct operand *operand = &problem->operands[i];
    if (operand->written && !operand->is_known && !operand->first &&
        (int64_t)operand->expected.n != operand->elements) {
      operand->first = operand->written;
      operand->written = problem->device->ops->host_buffer_new(problem->device, operand->bytes);
    }
    if (operand->is_new && operand->n_verified < VERIFIED_MAX)
      operand->verified[operand->n_verified++] = operand->left;
  }
  return outcome;
}

/* Compares an input with what was given, and restores what differs. */
static bool input_restore(struct problem *problem, const struct operand *operand, void *chunk,
                          bool *changed, struct error *error) {
  const struct device_ops *ops = problem->device->ops;
  for (size_t at = 0; at < operand->bytes; at += INPUT_CHUNK) {
    size_t size = operand->bytes - at < INPUT_CHUNK ? operand->bytes - at : INPUT_CHUNK;
    char *address = (char *)operand->checked->address + at, *given = (char *)operand->given + at;
    if (!ops->download(problem->device, chunk, address, size, error))
      return false;
    if (bytes_equal(chunk, given, size))
      continue;
    *changed = true;
    if (!ops->upload(problem->device, address, given, size, error))
      return false;
  }

  return true;
}

/* Checks all arguments that are only to be read. *ret_changed is the first one that was changed;
 * n_arguments: none was. */
static bool inputs_compare(struct problem *problem, size_t *ret_changed, struct error *error) {
  struct device *device = problem->device;
  size_t n = problem->kernel->n_arguments, first = n;
  void *chunk = device->ops->host_buffer_new(device, INPUT_CHUNK);
  bool is_compared = true;

  for (size_t i = 0; i < n && is_compared; i++) {
    const struct operand *operand = &problem->operands[i];
    struct fingerprint now;
    bool changed = false, is_same = false;
    if (!operand->checked || problem->kernel->arguments[i].access != ACCESS_READ)
      continue;
    if (device->has_fingerprint) {
      is_compared =
          device->ops->fingerprint(device, operand->checked->address, operand->bytes, &now, error);
      is_same = is_compared && fingerprint_equal(now, operand->filled);
    }
    if (is_compared && !is_same)
      is_compared = input_restore(problem, operand, chunk, &changed, error);
    if (changed && first == n)
      first = i;
  }

  device->ops->host_buffer_free(device, chunk);
  if (!is_compared)
    return false;

  for (size_t i = 0; i < n; i++) {
    struct operand *operand = &problem->operands[i];
    /* Outputs since the last check may come from changed inputs: they are not verified. */
    if (first < n) {
      operand->n_verified = operand->n_settled;
      if (operand->first && !operand->is_first_settled)
        device->ops->host_buffer_free(device, TAKE(operand->first));
    }
    operand->is_first_settled = operand->first != NULL;
    operand->n_settled = operand->n_verified;
  }

  *ret_changed = first;
  return true;
}

/* Sets the outcome of a config that changed an input. */
static void config_fail(const struct problem *problem, struct loaded_config *loaded,
                        size_t argument) {
  loaded->outcome = OUTCOME_CORRECTNESS;
  error_set(&loaded->error, "argument \"%s\": it is only to be read, and its data were changed",
            problem->kernel->arguments[argument].name);
}

/* One of several configs changed inputs: each runs again, and the inputs are checked after it.
 * Where one spoils the problem, those after it stay correct: a config is reported only after it has
 * failed a check. */
static bool unsettled_recheck(struct problem *problem, struct error *error) {
  size_t changed;
  for (size_t i = 0; i < problem->n_unsettled; i++) {
    struct loaded_config *loaded = problem->unsettled[i];
    loaded->outcome = OUTCOME_CORRECT;
    if (problem->is_spoiled)
      continue;
    loaded->outcome = outputs_check(problem, loaded, &loaded->error);
    if (problem->is_spoiled)
      continue;
    if (!inputs_compare(problem, &changed, error))
      return false;
    if (changed != problem->kernel->n_arguments)
      config_fail(problem, loaded, changed);
  }

  return true;
}

bool problem_inputs_check(struct problem *problem, struct error *error) {
  size_t changed;
  if (problem->n_ran == 0)
    return true;

  bool is_compared = inputs_compare(problem, &changed, error);
  if (is_compared && changed != problem->kernel->n_arguments) {
    if (problem->n_ran == 1 && problem->n_unsettled == 1)
      config_fail(problem, problem->unsettled[0], changed);
    else
      is_compared = unsettled_recheck(problem, error);
  }

  problem->n_unsettled = problem->n_ran = 0;
  if (is_compared)
    return true;

  /* The inputs' data are not known any more, nor which config changed them. */
  problem_check_device(problem, true);
  problem->is_lost |= !problem->is_spoiled;
  problem->is_spoiled = true;
  return false;
}

enum outcome config_check(struct problem *problem, struct loaded_config *loaded,
                          struct error *error) {
  bool is_first = !problem->has_checked;
  loaded->outcome = outputs_check(problem, loaded, &loaded->error);
  problem->has_checked = true;
  problem->n_ran++;
  if (loaded->outcome != OUTCOME_RUNTIME && !problem->is_spoiled) {
    problem->unsettled[problem->n_unsettled++] = loaded;
    /* The next check of agreement would overwrite changed inputs with another set. */
    bool is_due = is_first || loaded->outcome != OUTCOME_CORRECT || problem->n_sets > 1 ||
                  problem->n_ran >= CHECK_INPUTS_EVERY;
    if (is_due && !problem_inputs_check(problem, &loaded->error))
      loaded->outcome = OUTCOME_RUNTIME;
  }

  if (loaded->outcome != OUTCOME_CORRECT)
    *error = loaded->error;
  return loaded->outcome;
}
