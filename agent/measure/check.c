/* Correctness of one config. */
#include "agent/measure/check.h"

#include <math.h>

#include "agent/measure/agreement.h"
#include "agent/measure/checked_run.h"

#define INPUT_CHUNK ((size_t)8 << 20)

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

static bool samples_check(const struct problem *problem, const struct operand *operand,
                          struct error *error) {
  const struct expectation *expected = &operand->expected;
  size_t n_wrong = 0, first = 0;

  for (size_t k = 0; k < expected->n; k++) {
    double value = operand_value(operand, operand->written, expected->indices[k]);
    if (!is_right(problem, operand->argument->dtype, value, expected->values[k], 1) &&
        n_wrong++ == 0)
      first = k;
  }

  return n_wrong == 0 ||
         error_set(error,
                   "%s[%lld] is %.9g, the reference has %.9g (allowed difference %.3g); %zu of %zu "
                   "compared differ",
                   operand->argument->name, (long long)expected->indices[first],
                   operand_value(operand, operand->written, expected->indices[first]),
                   expected->values[first], allowed_difference(problem, expected->values[first], 1),
                   n_wrong, expected->n);
}

/* The blocks of an output in which an element may be NaN or not written. */
struct scan {
  const struct operand *operand;
  bool *is_suspect; /* of each block */
};

static int64_t block_size(const struct operand *operand, int64_t first) {
  return operand->elements - first < SCAN_BLOCK ? operand->elements - first : SCAN_BLOCK;
}

static void piece_scan(void *context, size_t piece) {
  struct scan *scan = context;
  const struct operand *operand = scan->operand;
  int64_t first = (int64_t)piece * SCAN_ELEMENTS, end = first + SCAN_ELEMENTS;
  for (; first < end && first < operand->elements; first += SCAN_BLOCK)
    scan->is_suspect[first / SCAN_BLOCK] = elements_are_suspect(
        operand->argument->dtype, operand->written, first, block_size(operand, first));
}

/* The first element from `k` on in a suspect block; the number of elements: there is none. */
static int64_t suspect_next(const struct scan *scan, int64_t k) {
  int64_t elements = scan->operand->elements;
  while (k < elements && !scan->is_suspect[k / SCAN_BLOCK])
    k += SCAN_BLOCK - k % SCAN_BLOCK;
  return k < elements ? k : elements;
}

static bool nans_check(struct problem *problem, const struct scan *scan, struct error *error) {
  const struct operand *operand = scan->operand;
  size_t n_computed = 0;
  for (int64_t k = suspect_next(scan, 0); k < operand->elements && n_computed < CHECK_NANS_MAX;
       k = suspect_next(scan, k + 1)) {
    if (!isnan(operand_value(operand, operand->written, k)))
      continue;
    n_computed++;
    double reference = reference_element(problem->reference, operand->index, k);
    if (!isnan(reference))
      return error_set(error, "%s[%lld] is NaN, the reference has %.9g", operand->argument->name,
                       (long long)k, reference);
  }

  return true;
}

/* A search for elements of an output that are far from those of the first one. */
struct far_search {
  const struct kernel *kernel;
  const struct operand *operand;
  int64_t *far; /* of each piece: the first element that is far; -1: none */
};

/* The first element of a piece that is far, from `from` on. */
static int64_t far_find(const struct far_search *search, size_t piece, int64_t from) {
  const struct operand *operand = search->operand;
  int64_t end = (int64_t)(piece + 1) * SCAN_ELEMENTS;
  end = end < operand->elements ? end : operand->elements;
  return elements_far(operand->argument->dtype, operand->first, operand->written, from, end - from,
                      CHECK_FAR * search->kernel->reference.atol,
                      CHECK_FAR * search->kernel->reference.rtol);
}

static void piece_search(void *context, size_t piece) {
  const struct far_search *search = context;
  search->far[piece] = far_find(search, piece, (int64_t)piece * SCAN_ELEMENTS);
}

/* Computes the reference of element k, where the new output and the first one differ. False: the
 * new one is wrong. */
static bool far_settle(struct problem *problem, const struct operand *operand, int64_t k,
                       struct error *error) {
  const struct argument *argument = operand->argument;
  double reference = reference_element(problem->reference, operand->index, k);
  double value = operand_value(operand, operand->written, k);
  double first = operand_value(operand, operand->first, k);
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

/* Compares all elements of an output with those of the first one. */
static bool first_compare(struct problem *problem, const struct operand *operand,
                          struct error *error) {
  size_t pieces = pieces_of(operand->elements);
  cleanup_free int64_t *far = xcalloc(pieces + 1, sizeof *far);
  struct far_search search = {problem->kernel, operand, far};
  team_run_pieces(operand->elements, piece_search, &search);

  /* One element of each piece in turn, so that many in one piece that are right do not hide a wrong
   * one in another. */
  size_t n_computed = 0, n_far = pieces;

  for (size_t turn = 0; n_far > 0; turn++) {
    n_far = 0;
    for (size_t piece = 0; piece < pieces; piece++) {
      if (turn > 0 && n_computed >= CHECK_FAR_MAX)
        return true;
      if (turn > 0 && far[piece] >= 0)
        far[piece] = far_find(&search, piece, far[piece] + 1);
      if (far[piece] < 0)
        continue;
      n_far++;
      n_computed++;
      if (!far_settle(problem, operand, far[piece], error))
        return false;
    }
  }

  return true;
}

/* Sets is_known: whether this output has passed before. If not, it is downloaded. */
static bool output_take(struct problem *problem, struct operand *operand, struct error *error) {
  operand->is_new = operand->is_known = false;
  if (!output_fingerprint(problem, operand, error))
    return false;
  for (size_t k = 0; k < operand->n_verified && !operand->is_known; k++)
    operand->is_known = fingerprint_equal(operand->left, operand->verified[k]);
  return operand->is_known || output_fetch(problem, operand, error);
}

/* Runs the config once more on outputs with the other mark: an element that held the first mark and
 * holds the second was never written. */
static enum outcome unwritten_confirm(struct problem *problem, struct loaded_config *loaded,
                                      const struct scan *scan, struct error *error) {
  const struct operand *operand = scan->operand;
  const struct device_ops *ops = problem->device->ops;
  void *again = ops->host_buffer_new(problem->device, operand->bytes);
  int64_t n_found = 0, first = 0;
  enum outcome outcome = checked_run(problem, loaded, 1, error);
  if (outcome == OUTCOME_CORRECT && !output_download(problem, operand, again, error))
    outcome = OUTCOME_RUNTIME;

  /* From the last block to the first: `first` ends as the first of all. */
  for (int64_t b = (operand->elements - 1) / SCAN_BLOCK; outcome == OUTCOME_CORRECT && b >= 0; b--)
    if (scan->is_suspect[b])
      n_found += elements_unwritten(operand->argument->dtype, operand->written, again,
                                    b * SCAN_BLOCK, block_size(operand, b * SCAN_BLOCK), &first);
  ops->host_buffer_free(problem->device, again);
  if (n_found) {
    error_set(error, "%s[%lld] was not written; %lld of its %lld elements were not",
              operand->argument->name, (long long)first, (long long)n_found,
              (long long)operand->elements);
    outcome = OUTCOME_CORRECTNESS;
  }

  return outcome;
}

/* Checks an output completely. */
static enum outcome output_check(struct problem *problem, struct loaded_config *loaded,
                                 struct operand *operand, struct error *error) {
  const struct argument *argument = operand->argument;
  cleanup_free bool *is_suspect =
      xcalloc((size_t)(operand->elements / SCAN_BLOCK) + 1, sizeof *is_suspect);
  struct scan scan = {operand, is_suspect};
  team_run_pieces(operand->elements, piece_scan, &scan);

  bool is_marked = false;
  if (argument->access == ACCESS_WRITE)
    for (int64_t k = suspect_next(&scan, 0); k < operand->elements && !is_marked;
         k = suspect_next(&scan, k + 1))
      is_marked = element_is_marked(argument->dtype, operand->written, k, 0);
  enum outcome outcome =
      is_marked ? unwritten_confirm(problem, loaded, &scan, error) : OUTCOME_CORRECT;
  if (outcome != OUTCOME_CORRECT)
    return outcome;

  if (!samples_check(problem, operand, error) ||
      (dtype_is_floating(argument->dtype) && !nans_check(problem, &scan, error)) ||
      (operand->first && !first_compare(problem, operand, error)))
    return OUTCOME_CORRECTNESS;

  operand->is_new = !is_marked;
  return OUTCOME_CORRECT;
}

/* Runs a config on marked outputs and checks what it wrote. All outputs are taken before one is
 * checked completely, which may run the config again. */
static enum outcome reference_check(struct problem *problem, struct loaded_config *loaded,
                                    struct error *error) {
  enum outcome outcome = checked_run(problem, loaded, 0, error);
  outputs_foreach (problem, operand)
    if (outcome == OUTCOME_CORRECT && !output_take(problem, operand, error))
      outcome = OUTCOME_RUNTIME;
  outputs_foreach (problem, operand)
    if (outcome == OUTCOME_CORRECT && !operand->is_known)
      outcome = output_check(problem, loaded, operand, error);
  if (outcome != OUTCOME_CORRECT)
    return outcome;

  /* Later configs are compared with the outputs of this one: with the fingerprints, and with all
   * elements of the first output, unless all of them are samples. */
  outputs_foreach (problem, operand) {
    if (!operand->is_known && !operand->first &&
        (int64_t)operand->expected.n != operand->elements) {
      operand->first = operand->written;
      operand->written = problem->device->ops->host_buffer_new(problem->device, operand->bytes);
    }
    if (operand->is_new && operand->n_verified < VERIFIED_MAX)
      operand->verified[operand->n_verified++] = operand->left;
  }
  return OUTCOME_CORRECT;
}

/* The outcome of a config, whose inputs are not checked. */
static enum outcome outputs_check(struct problem *problem, struct loaded_config *loaded,
                                  struct error *error) {
  enum outcome outcome = problem->n_sets ? agreement_check(problem, loaded, error)
                                         : reference_check(problem, loaded, error);
  if (outcome == OUTCOME_RUNTIME)
    problem_check_device(problem, true);
  return outcome;
}

/* Compares an input with what was given, and restores what differs. */
static bool input_restore(struct device *device, const struct operand *operand, void *chunk,
                          bool *changed, struct error *error) {
  for (size_t at = 0; at < operand->bytes; at += INPUT_CHUNK) {
    size_t size = operand->bytes - at < INPUT_CHUNK ? operand->bytes - at : INPUT_CHUNK;
    char *address = (char *)operand->checked->address + at, *given = (char *)operand->given + at;
    if (!device->ops->download(device, chunk, address, size, error))
      return false;
    if (bytes_equal(chunk, given, size))
      continue;
    *changed = true;
    if (!device->ops->upload(device, address, given, size, error))
      return false;
  }

  return true;
}

/* Checks all arguments that are only to be read. *ret_changed is the first one that was changed;
 * NULL: none was. */
static bool inputs_compare(struct problem *problem, const struct operand **ret_changed,
                           struct error *error) {
  struct device *device = problem->device;
  const struct operand *first = NULL;
  void *chunk = device->ops->host_buffer_new(device, INPUT_CHUNK);
  bool is_compared = true;

  operands_foreach (problem, operand) {
    struct fingerprint now;
    bool changed = false, is_same = false;
    if (!is_compared || !operand->checked || operand->argument->access != ACCESS_READ)
      continue;
    if (device->has_fingerprint) {
      is_compared =
          device->ops->fingerprint(device, operand->checked->address, operand->bytes, &now, error);
      is_same = is_compared && fingerprint_equal(now, operand->filled);
    }
    if (is_compared && !is_same)
      is_compared = input_restore(device, operand, chunk, &changed, error);
    if (changed && !first)
      first = operand;
  }

  device->ops->host_buffer_free(device, chunk);
  if (!is_compared)
    return false;

  operands_foreach (problem, operand) {
    /* Outputs since the last check may come from changed inputs: they are not verified. */
    if (first) {
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
static void config_fail(struct loaded_config *loaded, const struct operand *changed) {
  loaded->outcome = OUTCOME_CORRECTNESS;
  error_set(&loaded->error, "argument \"%s\": it is only to be read, and its data were changed",
            changed->argument->name);
}

/* One of several configs changed inputs: each runs again, and the inputs are checked after it.
 * Where one spoils the problem, those after it stay correct: a config is reported only after it has
 * failed a check. */
static bool unsettled_recheck(struct problem *problem, struct error *error) {
  const struct operand *changed;
  array_foreach (at, problem->unsettled, problem->n_unsettled) {
    struct loaded_config *loaded = *at;
    loaded->outcome = OUTCOME_CORRECT;
    if (problem->is_spoiled)
      continue;
    loaded->outcome = outputs_check(problem, loaded, &loaded->error);
    if (problem->is_spoiled)
      continue;
    if (!inputs_compare(problem, &changed, error))
      return false;
    if (changed)
      config_fail(loaded, changed);
  }

  return true;
}

bool problem_inputs_check(struct problem *problem, struct error *error) {
  const struct operand *changed;
  if (problem->n_ran == 0)
    return true;

  bool is_compared = inputs_compare(problem, &changed, error);
  if (is_compared && changed) {
    if (problem->n_ran == 1 && problem->n_unsettled == 1)
      config_fail(problem->unsettled[0], changed);
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
