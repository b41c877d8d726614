/* Correctness of one config. Memory: none kept. Threads: one. */
#include "agent/measure/check.h"

#include <math.h>

#include "agent/measure/element.h"
#include "agent/measure/team.h"

#define INPUT_CHUNK ((size_t)8 << 20)
#define SCAN_BLOCK 8192 /* elements that are looked at closely when one of them is suspect */
#define SCAN_ELEMENTS (64 * SCAN_BLOCK) /* of a thread at once */

/* `times`: how many tolerances it may be off. */
static bool is_right(const struct kernel *kernel, enum dtype dtype, double value, double reference,
                     double times) {
  if (isnan(reference) || isnan(value))
    return isnan(reference) && isnan(value);
  uint64_t rounded;
  element_set(dtype, &rounded, 0, reference);
  if (value == reference || value == element_get(dtype, &rounded, 0))
    return true;
  if (isinf(reference) || isinf(value))
    return false;
  return fabs(value - reference) <=
         times * (kernel->reference.atol + kernel->reference.rtol * fabs(reference));
}

static bool samples_check(const struct problem *problem, size_t i, struct error *error) {
  const struct argument *argument = &problem->kernel->arguments[i];
  const struct operand *operand = &problem->operands[i];
  const struct expectation *expected = &operand->expected;
  size_t n_wrong = 0, first = 0;
  for (size_t k = 0; k < expected->n; k++) {
    double value = element_get(argument->dtype, operand->written, expected->indices[k]);
    if (!is_right(problem->kernel, argument->dtype, value, expected->values[k], 1) &&
        n_wrong++ == 0)
      first = k;
  }
  if (n_wrong == 0)
    return true;
  double reference = expected->values[first];
  return error_set(
      error,
      "%s[%lld] is %.9g, the reference has %.9g (allowed difference %.3g); %zu of %zu compared "
      "differ",
      argument->name, (long long)expected->indices[first],
      element_get(argument->dtype, operand->written, expected->indices[first]), reference,
      problem->kernel->reference.atol + problem->kernel->reference.rtol * fabs(reference), n_wrong,
      expected->n);
}

/* The blocks of an output in which an element may be NaN or not written. */
struct scan {
  enum dtype dtype;
  const void *bytes;
  int64_t elements;
  bool *is_suspect; /* of each block */
  size_t n_blocks;
};

static void scan_release(struct scan *scan) { free(scan->is_suspect); }
#define cleanup_scan __attribute__((cleanup(scan_release)))

static int64_t block_size(const struct scan *scan, size_t block) {
  int64_t left = scan->elements - (int64_t)block * SCAN_BLOCK;
  return left < SCAN_BLOCK ? left : SCAN_BLOCK;
}

static void blocks_scan(void *context, size_t item) {
  struct scan *scan = context;
  size_t per_item = SCAN_ELEMENTS / SCAN_BLOCK, end = (item + 1) * per_item;
  for (size_t b = item * per_item; b < end && b < scan->n_blocks; b++)
    scan->is_suspect[b] = elements_are_suspect(scan->dtype, scan->bytes, (int64_t)b * SCAN_BLOCK,
                                               block_size(scan, b));
}

static void output_scan(const struct problem *problem, size_t i, struct scan *ret_scan) {
  const struct operand *operand = &problem->operands[i];
  size_t n_blocks = (size_t)((operand->elements + SCAN_BLOCK - 1) / SCAN_BLOCK);
  struct scan scan = {problem->kernel->arguments[i].dtype, operand->written, operand->elements,
                      xcalloc(n_blocks, sizeof *scan.is_suspect), n_blocks};
  size_t items = (size_t)((operand->elements + SCAN_ELEMENTS - 1) / SCAN_ELEMENTS);
  team_run(items > 1 ? team_size() : 1, items, blocks_scan, &scan);
  *ret_scan = scan;
}

/* An output that is held against the first one, piece by piece. */
struct holding {
  const struct kernel *kernel;
  enum dtype dtype;
  const struct operand *operand;
  int64_t *far; /* of each piece: the first element that is far; -1: none */
};

/* The first element of a piece that is far, from `from` on. */
static int64_t far_find(const struct holding *holding, size_t piece, int64_t from) {
  const struct operand *operand = holding->operand;
  int64_t end = (int64_t)(piece + 1) * SCAN_ELEMENTS;
  end = end < operand->elements ? end : operand->elements;
  return elements_far(holding->dtype, operand->first, operand->written, from, end - from,
                      CHECK_FAR * holding->kernel->reference.atol,
                      CHECK_FAR * holding->kernel->reference.rtol);
}

static void piece_hold(void *context, size_t piece) {
  const struct holding *holding = context;
  holding->far[piece] = far_find(holding, piece, (int64_t)piece * SCAN_ELEMENTS);
}

/* Asks the reference whose element k is wrong; false: the new one's. */
static bool far_ask(struct problem *problem, const struct holding *holding, size_t i, int64_t k,
                    struct error *error) {
  const char *name = problem->kernel->arguments[i].name;
  double reference = reference_element(problem->reference, i, k, problem->host_arguments);
  double value = element_get(holding->dtype, holding->operand->written, k);
  double first = element_get(holding->dtype, holding->operand->first, k);
  double allowed = CHECK_FAR * (problem->kernel->reference.atol +
                                problem->kernel->reference.rtol * fabs(reference));
  if (!is_right(problem->kernel, holding->dtype, value, reference, CHECK_FAR))
    return error_set(error,
                     "%s[%lld] is %.9g, the reference has %.9g and the baseline %.9g (allowed "
                     "difference %.3g, as it "
                     "is not among the samples)",
                     name, (long long)k, value, reference, first, allowed);
  if (!is_right(problem->kernel, holding->dtype, first, reference, CHECK_FAR))
    error_set(&problem->baseline_wrong,
              "%s[%lld] is %.9g, the reference has %.9g (allowed difference %.3g, as it is not "
              "among the samples); mend "
              "the kernel, or choose another default",
              name, (long long)k, first, reference, allowed);
  return true;
}

/* Holds all elements of output i against those of the first one. */
static bool first_hold(struct problem *problem, size_t i, struct error *error) {
  const struct operand *operand = &problem->operands[i];
  size_t pieces = (size_t)((operand->elements + SCAN_ELEMENTS - 1) / SCAN_ELEMENTS);
  cleanup_free int64_t *far = xcalloc(pieces + 1, sizeof *far);
  struct holding holding = {problem->kernel, problem->kernel->arguments[i].dtype, operand, far};
  team_run(pieces > 1 ? team_size() : 1, pieces, piece_hold, &holding);
  size_t n_asked = 0, n_far = pieces;
  /* One of each piece in turn, so that many of one piece that are right do not hide another that is
   * wrong. */
  for (size_t turn = 0; n_far > 0; turn++) {
    n_far = 0;
    for (size_t piece = 0; piece < pieces; piece++) {
      if (turn > 0 && n_asked >= CHECK_FAR_ASKED)
        return true;
      if (turn > 0 && far[piece] >= 0)
        far[piece] = far_find(&holding, piece, far[piece] + 1);
      if (far[piece] < 0)
        continue;
      n_far++;
      n_asked++;
      if (!far_ask(problem, &holding, i, far[piece], error))
        return false;
    }
  }
  return true;
}

static bool nans_check(struct problem *problem, size_t i, const struct scan *scan,
                       struct error *error) {
  const struct argument *argument = &problem->kernel->arguments[i];
  const struct operand *operand = &problem->operands[i];
  size_t n_asked = 0;
  for (size_t b = 0; b < scan->n_blocks; b++) {
    int64_t first = (int64_t)b * SCAN_BLOCK, end = first + block_size(scan, b);
    for (int64_t k = first; scan->is_suspect[b] && k < end && n_asked < CHECK_NANS_MAX; k++) {
      if (!isnan(element_get(argument->dtype, operand->written, k)))
        continue;
      n_asked++;
      double reference = reference_element(problem->reference, i, k, problem->host_arguments);
      if (!isnan(reference))
        return error_set(error, "%s[%lld] is NaN, the reference has %.9g", argument->name,
                         (long long)k, reference);
    }
  }
  return true;
}

static bool has_mark(const struct problem *problem, size_t i, const struct scan *scan) {
  const struct operand *operand = &problem->operands[i];
  for (size_t b = 0; b < scan->n_blocks; b++) {
    int64_t first = (int64_t)b * SCAN_BLOCK, end = first + block_size(scan, b);
    for (int64_t k = first; scan->is_suspect[b] && k < end; k++)
      if (element_is_marked(scan->dtype, operand->written, k, 0))
        return true;
  }
  return false;
}

static bool launch(struct problem *problem, struct candidate *candidate, int mark,
                   struct error *error) {
  const struct device_ops *ops = problem->device->ops;
  struct device_launch given = candidate_launch(candidate);
  if (!problem_reset(problem, mark, error)) {
    problem_ask_device(problem, false);
    return false;
  }
  if (ops->launch(problem->device, &given, error) && ops->synchronize(problem->device, error))
    return true;
  problem_ask_device(problem, true);
  return false;
}

static bool download(struct problem *problem, void *bytes, const struct operand *operand,
                     struct error *error) {
  if (problem->device->ops->download(problem->device, bytes, operand->checked->address,
                                     operand->bytes, error))
    return true;
  problem_ask_device(problem, true);
  return false;
}

/* Looks at all buffers even after a failure: each call restores the canaries. What else was written
 * outside of them nobody knows, so that nothing more is measured in this process. */
static bool canaries_check(struct problem *problem, struct error *error) {
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

static bool is_output(const struct problem *problem, size_t i) {
  return problem->operands[i].written != NULL;
}

static bool is_verified(const struct operand *operand) {
  for (size_t k = 0; k < operand->n_verified; k++)
    if (fingerprint_equal(operand->left, operand->verified[k]))
      return true;
  return false;
}

/* Looks whether an output is one that passed before. One that is not is downloaded. */
static bool output_take(struct problem *problem, struct operand *operand, struct error *error) {
  struct device *device = problem->device;
  operand->is_new = operand->is_known = false;
  if (device->has_fingerprint) {
    if (!device->ops->fingerprint(device, operand->checked->address, operand->bytes, &operand->left,
                                  error)) {
      problem_ask_device(problem, true);
      return false;
    }
    operand->is_known = is_verified(operand);
    return operand->is_known || download(problem, operand->written, operand, error);
  }
  if (!download(problem, operand->written, operand, error))
    return false;
  operand->left = bytes_fingerprint(operand->written, operand->bytes);
  operand->is_known = is_verified(operand);
  return true;
}

/* Runs the config once more on outputs with the other mark: an element of output i that held the
 * first mark and holds the second was never written. */
static enum outcome unwritten_confirm(struct problem *problem, struct candidate *candidate,
                                      size_t i, const struct scan *scan, struct error *error) {
  const struct operand *operand = &problem->operands[i];
  const struct argument *argument = &problem->kernel->arguments[i];
  const struct device_ops *ops = problem->device->ops;
  void *again = ops->host_buffer_new(problem->device, operand->bytes);
  int64_t n_found = 0, first = 0;
  enum outcome outcome = OUTCOME_CORRECT;
  if (!launch(problem, candidate, 1, error) || !download(problem, again, operand, error))
    outcome = OUTCOME_RUNTIME;
  else if (!canaries_check(problem, error))
    outcome = OUTCOME_CORRECTNESS;
  for (size_t b = scan->n_blocks; outcome == OUTCOME_CORRECT && b > 0; b--)
    if (scan->is_suspect[b - 1])
      n_found += elements_unwritten(scan->dtype, operand->written, again,
                                    (int64_t)(b - 1) * SCAN_BLOCK, block_size(scan, b - 1), &first);
  ops->host_buffer_free(problem->device, again);
  if (n_found) {
    error_set(error, "%s[%lld] was not written; %lld of its %lld elements were not", argument->name,
              (long long)first, (long long)n_found, (long long)operand->elements);
    outcome = OUTCOME_CORRECTNESS;
  }
  return outcome;
}

/* Looks at output i completely. */
static enum outcome output_check(struct problem *problem, struct candidate *candidate, size_t i,
                                 struct error *error) {
  struct operand *operand = &problem->operands[i];
  const struct argument *argument = &problem->kernel->arguments[i];
  cleanup_scan struct scan scan = {0};
  output_scan(problem, i, &scan);
  bool is_marked = argument->access == ACCESS_WRITE && has_mark(problem, i, &scan);
  enum outcome outcome =
      is_marked ? unwritten_confirm(problem, candidate, i, &scan, error) : OUTCOME_CORRECT;
  if (outcome != OUTCOME_CORRECT)
    return outcome;
  if (!samples_check(problem, i, error) ||
      (dtype_is_floating(argument->dtype) && !nans_check(problem, i, &scan, error)) ||
      (operand->first && !first_hold(problem, i, error)))
    return OUTCOME_CORRECTNESS;
  operand->is_new = !is_marked;
  return OUTCOME_CORRECT;
}

static void first_keep(struct problem *problem, struct operand *operand) {
  if (operand->first || (int64_t)operand->expected.n == operand->elements)
    return;
  operand->first = operand->written;
  operand->written = problem->device->ops->host_buffer_new(problem->device, operand->bytes);
}

/* Keeps what the outputs of a config that is right look like, for the configs to come; all of the
 * first ones. */
static void outputs_keep(struct problem *problem) {
  for (size_t i = 0; i < problem->kernel->n_arguments; i++) {
    struct operand *operand = &problem->operands[i];
    if (is_output(problem, i) && !operand->is_known)
      first_keep(problem, operand);
    if (operand->is_new && operand->n_verified < VERIFIED_MAX)
      operand->verified[operand->n_verified++] = operand->left;
  }
}

/* Runs a config on marked outputs and looks at what it wrote, but not at its inputs. All outputs
 * are taken before one is looked at completely, which may run the config again. */
static enum outcome outputs_check(struct problem *problem, struct candidate *candidate,
                                  struct error *error) {
  enum outcome outcome = OUTCOME_CORRECT;
  if (!launch(problem, candidate, 0, error))
    return OUTCOME_RUNTIME;
  if (!canaries_check(problem, error))
    return OUTCOME_CORRECTNESS;
  for (size_t i = 0; i < problem->kernel->n_arguments; i++)
    if (is_output(problem, i) && !output_take(problem, &problem->operands[i], error))
      return OUTCOME_RUNTIME;
  for (size_t i = 0; i < problem->kernel->n_arguments && outcome == OUTCOME_CORRECT; i++)
    if (is_output(problem, i) && !problem->operands[i].is_known)
      outcome = output_check(problem, candidate, i, error);
  if (outcome == OUTCOME_CORRECT)
    outputs_keep(problem);
  return outcome;
}

/* Compares an input with what was given, and restores what differs. */
static bool input_compare(struct problem *problem, const struct operand *operand, void *chunk,
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

static bool input_look(struct problem *problem, const struct operand *operand, void *chunk,
                       bool *changed, struct error *error) {
  struct device *device = problem->device;
  struct fingerprint now;
  if (!device->has_fingerprint)
    return input_compare(problem, operand, chunk, changed, error);
  return device->ops->fingerprint(device, operand->checked->address, operand->bytes, &now, error) &&
         (fingerprint_equal(now, operand->filled) ||
          input_compare(problem, operand, chunk, changed, error));
}

/* Looks at all that is only to be read. *ret_changed is the first argument that was changed;
 * n_arguments: none was. What was verified since the last look may have been made of changed
 * inputs. */
static bool inputs_look(struct problem *problem, size_t *ret_changed, struct error *error) {
  const struct device_ops *ops = problem->device->ops;
  size_t n = problem->kernel->n_arguments, first = n;
  void *chunk = ops->host_buffer_new(problem->device, INPUT_CHUNK);
  bool looked = true;
  for (size_t i = 0; i < n && looked; i++) {
    bool changed = false;
    if (problem->operands[i].checked && problem->kernel->arguments[i].access == ACCESS_READ)
      looked = input_look(problem, &problem->operands[i], chunk, &changed, error);
    first = changed && first == n ? i : first;
  }
  ops->host_buffer_free(problem->device, chunk);
  for (size_t i = 0; i < n && looked; i++) {
    struct operand *operand = &problem->operands[i];
    if (first < n)
      operand->n_verified = operand->n_settled;
    if (first < n && !operand->is_first_settled && operand->first)
      ops->host_buffer_free(problem->device, TAKE(operand->first));
    operand->is_first_settled = operand->first != NULL;
    operand->n_settled = operand->n_verified;
  }
  *ret_changed = first;
  return looked;
}

static void candidate_blame(const struct problem *problem, struct candidate *candidate,
                            size_t argument) {
  candidate->outcome = OUTCOME_CORRECTNESS;
  error_set(&candidate->error, "argument \"%s\": it is only to be read, and its data were changed",
            problem->kernel->arguments[argument].name);
}

/* Inputs were changed by one of several: each runs again, and is looked at. Where one spoils the
 * problem, those after it have no verdict: nobody speaks of one that is not known to be wrong. */
static bool unsettled_recheck(struct problem *problem, struct error *error) {
  size_t n = problem->n_unsettled, none = problem->kernel->n_arguments, changed;
  for (size_t i = 0; i < n; i++) {
    struct candidate *candidate = problem->unsettled[i];
    candidate->outcome = OUTCOME_CORRECT;
    if (problem->is_spoiled)
      continue;
    candidate->outcome = outputs_check(problem, candidate, &candidate->error);
    if (problem->is_spoiled)
      continue;
    if (!inputs_look(problem, &changed, error))
      return false;
    if (changed != none)
      candidate_blame(problem, candidate, changed);
  }
  return true;
}

bool problem_inputs_check(struct problem *problem, struct error *error) {
  size_t changed;
  if (problem->n_ran == 0)
    return true;
  bool looked = inputs_look(problem, &changed, error);
  if (looked && changed != problem->kernel->n_arguments) {
    if (problem->n_ran == 1 && problem->n_unsettled == 1)
      candidate_blame(problem, problem->unsettled[0], changed);
    else
      looked = unsettled_recheck(problem, error);
  }
  problem->n_unsettled = problem->n_ran = 0;
  if (looked)
    return true;
  problem_ask_device(problem, true);
  /* Nobody knows what the inputs hold now, nor whose doing that is. */
  problem->is_lost |= !problem->is_spoiled;
  problem->is_spoiled = true;
  return false;
}

enum outcome candidate_check(struct problem *problem, struct candidate *candidate,
                             struct error *error) {
  bool is_first = !problem->has_checked;
  candidate->outcome = outputs_check(problem, candidate, &candidate->error);
  problem->has_checked = true;
  problem->n_ran++;
  if (candidate->outcome != OUTCOME_RUNTIME && !problem->is_spoiled) {
    problem->unsettled[problem->n_unsettled++] = candidate;
    bool is_due =
        is_first || candidate->outcome != OUTCOME_CORRECT || problem->n_ran >= CHECK_INPUTS_EVERY;
    if (is_due && !problem_inputs_check(problem, &candidate->error))
      candidate->outcome = OUTCOME_RUNTIME;
  }
  if (candidate->outcome != OUTCOME_CORRECT)
    *error = candidate->error;
  return candidate->outcome;
}
