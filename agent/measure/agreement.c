/* Agreement of configs with the default one. */
#include "agent/measure/agreement.h"

#include <math.h>

#include "agent/measure/checked_run.h"
#include "agent/measure/expected.h"
#include "agent/measure/nudge.h"
#include "agent/measure/outputs.h"
#include "agent/measure/partial.h"

#define NOISE_TIMES 4
#define SENSITIVITY_MOST 0.05   /* of rms: with more, results that are wrong would pass */
#define SET_NONE AGREEMENT_SETS /* no set is in place */
#define FLOAT8_SHARE 1000       /* one in so many may be the next value */

/* atol: of the output's rms. */
static struct tolerance tolerance_of_type(enum dtype dtype, bool is_tf32) {
  switch (dtype) {
  case DTYPE_BFLOAT16:
    return (struct tolerance){1.6e-2, 1.6e-2};

  case DTYPE_FLOAT16:
    return (struct tolerance){4e-3, 1e-3};

  case DTYPE_FLOAT32:
    return is_tf32 ? (struct tolerance){1e-3, 1e-3} : (struct tolerance){1e-5, 1e-5};

  case DTYPE_FLOAT64:
    return (struct tolerance){1e-10, 1e-10};

  default:
    return (struct tolerance){0, 0};
  }
}

static struct tolerance tolerance_of(const struct kernel *kernel, enum dtype dtype) {
  struct tolerance tolerance = tolerance_of_type(dtype, kernel->is_tf32);
  array_foreach (other, kernel->arguments, kernel->n_arguments) {
    bool is_coarser = other->is_buffer && dtype_is_floating(other->dtype) &&
                      dtype_size(other->dtype) == 2 && dtype_size(dtype) > 2 &&
                      dtype_is_floating(dtype);
    struct tolerance coarser = tolerance_of_type(other->dtype, false);
    if (is_coarser && coarser.rtol > tolerance.rtol)
      tolerance = coarser;
  }
  return tolerance;
}

/* Makes the set the one that launches read; problem_reset restores what they change from it. */
static bool set_place(struct problem *problem, size_t set, struct error *error) {
  const struct device_ops *ops = problem->device->ops;
  for (size_t i = 0; i < problem->kernel->n_arguments && set != problem->set; i++) {
    const struct operand *operand = &problem->operands[i];
    if (operand->sets[set] && operand->argument->access == ACCESS_READ &&
        !ops->copy(problem->device, operand->checked->address, operand->sets[set]->address,
                   operand->bytes, error))
      return false;
  }
  problem->set = set;
  return true;
}

/* What is allowed of an output beside the tolerance of its type. */
static double noise_allowed(const struct agreed *agreed) {
  return NOISE_TIMES * fmax(agreed->noise, agreed->sensitivity);
}

/* What the default wrote in an output with the set that is in place. */
static struct agreed *agreed_of(const struct problem *problem, struct operand *operand) {
  return &operand->agreed[problem->set];
}

/* How an error names the set of inputs. */
static const char *set_words(const struct problem *problem) {
  static const char *const words[AGREEMENT_SETS] = {"", ", with a second set of inputs",
                                                    ", with a third set of inputs"};
  return set_is_large(problem->kernel, problem->set) ? ", with inputs of large magnitude"
                                                     : words[problem->set];
}

/* Takes an output of a config: *ret_is_same where it is what the default left, else its bytes are
 * in `written`. */
static bool output_take(struct problem *problem, struct operand *operand, bool *ret_is_same,
                        struct error *error) {
  if (!output_fingerprint(problem, operand, error))
    return false;
  *ret_is_same = fingerprint_equal(operand->left, agreed_of(problem, operand)->left);
  return *ret_is_same || output_fetch(problem, operand, error);
}

/* Keeps an output of the default, which was just run. */
static bool default_keep(struct problem *problem, struct operand *operand, struct error *error) {
  struct device *device = problem->device;
  const struct device_ops *ops = device->ops;
  struct agreed *agreed = agreed_of(problem, operand);
  if (!output_fingerprint(problem, operand, error))
    return false;

  agreed->left = operand->left;
  if (device->has_fingerprint)
    return ops->buffer_new(device, operand->bytes, &agreed->kept, error) &&
           ops->copy(device, agreed->kept->address, operand->checked->address, operand->bytes,
                     error);
  agreed->bytes = operand->written;
  operand->written = ops->host_buffer_new(device, operand->bytes);
  return true;
}

/* Gets what the default left in an output with a set of inputs to the host. */
static bool default_fetch(struct problem *problem, struct agreed *agreed, size_t bytes,
                          struct error *error) {
  struct device *device = problem->device;
  if (agreed->bytes)
    return true;
  agreed->bytes = device->ops->host_buffer_new(device, bytes);
  return device->ops->download(device, agreed->bytes, agreed->kept->address, bytes, error);
}

/* What an output held before the launches of a set, on the host; NULL: the device refused. */
static void *initial_fetch(struct problem *problem, const struct operand *operand, size_t set,
                           struct error *error) {
  const struct device_ops *ops = problem->device->ops;
  const struct device_buffer *from = operand->sets[set] ? operand->sets[set] : operand->pristine;
  void *bytes = ops->host_buffer_new(problem->device, operand->bytes);
  if (ops->download(problem->device, bytes, from->address, operand->bytes, error))
    return bytes;
  ops->host_buffer_free(problem->device, bytes);
  return NULL;
}

/* Gets what the default left in an output, with its root mean square, of what it wrote, and the
 * number of finite elements. */
static bool default_sum(struct problem *problem, struct operand *operand, size_t set,
                        struct error *error) {
  struct agreed *agreed = &operand->agreed[set];
  if (agreed->n_finite) /* 0: not summed yet, or nothing is finite */
    return true;
  if (!default_fetch(problem, agreed, operand->bytes, error))
    return false;
  agreed->rms =
      output_rms(operand->argument->dtype, agreed->bytes, operand->elements, &agreed->n_finite);
  if (!operand->pristine) /* it is only written */
    return true;
  void *before = initial_fetch(problem, operand, set, error);
  if (!before)
    return false;
  double rms = partial_rms(&(struct partial){.argument = operand->argument,
                                             .elements = operand->elements,
                                             .before = before,
                                             .expected = agreed->bytes});
  problem->device->ops->host_buffer_free(problem->device, before);
  agreed->rms = rms > 0 ? rms : agreed->rms;
  return true;
}

/* An output of a run, beside the default's with the set that is in place. */
static struct comparison comparison_of(const struct problem *problem, struct operand *operand) {
  return (struct comparison){.dtype = operand->argument->dtype,
                             .elements = operand->elements,
                             .expected = agreed_of(problem, operand)->bytes,
                             .bytes = operand->written};
}

/* How much an output of the second run differs from the first. */
static enum outcome noise_measure(struct problem *problem, struct operand *operand,
                                  struct error *error) {
  struct agreed *agreed = agreed_of(problem, operand);
  bool is_same;
  if (!output_take(problem, operand, &is_same, error))
    return OUTCOME_RUNTIME;
  if (is_same)
    return OUTCOME_CORRECT;
  if (!default_fetch(problem, agreed, operand->bytes, error))
    return OUTCOME_RUNTIME;

  struct comparison comparison = comparison_of(problem, operand);
  struct compared compared = outputs_differ(&comparison);
  int64_t far = compared.far;
  agreed->noise = compared.largest;
  problem->is_noisy = true;
  agreed->is_overflown = far >= 0 && problem->set > 0;
  if (far < 0 || agreed->is_overflown)
    return OUTCOME_CORRECT;
  error_set(error,
            "%s[%lld] is %.9g in one run of the default config and %.9g in the next%s: nothing can "
            "be compared with it",
            operand->argument->name, (long long)far, operand_value(operand, agreed->bytes, far),
            operand_value(operand, operand->written, far), set_words(problem));
  return OUTCOME_CORRECTNESS;
}

/* The interpreter's values of output i, which are of the first set; NULL: there are none. */
static const struct expected_buffer *expected_of(const struct problem *problem,
                                                 const struct loaded_config *loaded, size_t i) {
  return loaded->expected && problem->set == 0 ? expected_find(loaded->expected, i) : NULL;
}

static bool output_is_expected(const struct problem *problem, struct loaded_config *loaded,
                               const struct operand *operand, const void *bytes,
                               struct error *error) {
  bool agrees = expected_agrees(problem->kernel, expected_of(problem, loaded, operand->index),
                                bytes, noise_allowed(&operand->agreed[0]), error);
  if (!agrees)
    loaded->interpreted = AGREEMENT_DISAGREES;
  else if (loaded->interpreted == AGREEMENT_NONE)
    loaded->interpreted = AGREEMENT_AGREES;
  return agrees;
}

/* Compares the default's outputs with the interpreter's values. */
static enum outcome default_expect(struct problem *problem, struct loaded_config *loaded,
                                   struct error *error) {
  for (size_t i = 0; i < problem->kernel->n_arguments; i++) {
    struct operand *operand = &problem->operands[i];
    if (!expected_of(problem, loaded, i))
      continue;
    if (!default_fetch(problem, &operand->agreed[0], operand->bytes, error))
      return OUTCOME_RUNTIME;
    if (!output_is_expected(problem, loaded, operand, operand->agreed[0].bytes, error))
      return OUTCOME_CORRECTNESS;
  }
  return OUTCOME_CORRECT;
}

/* How much an output differs, which the default wrote with nudged inputs. */
static bool output_sensitivity(struct problem *problem, struct operand *operand,
                               struct error *error) {
  struct agreed *agreed = agreed_of(problem, operand);
  if (!default_sum(problem, operand, problem->set, error) ||
      !output_download(problem, operand, operand->written, error))
    return false;
  struct comparison comparison = comparison_of(problem, operand);
  agreed->sensitivity = fmin(outputs_differ(&comparison).largest, SENSITIVITY_MOST * agreed->rms);
  return true;
}

/* Runs the default on inputs near those of the set that is in place. `more`: the tolerance of an
 * output has become larger. */
static bool sensitivity_measure(struct problem *problem, struct loaded_config *of_default,
                                bool *ret_more, struct error *error) {
  size_t set = problem->set;
  struct nudge nudge;
  *ret_more = false;
  problem->is_nudged[set] = true;
  if (!inputs_nudge(problem, set, &nudge, error))
    return false;
  if (!nudge.n)
    return true;

  problem->set = SET_NONE;
  bool is_run = set_place(problem, set, error) &&
                checked_run(problem, of_default, 0, error) == OUTCOME_CORRECT;
  outputs_foreach (problem, operand) {
    is_run = is_run && output_sensitivity(problem, operand, error);
    *ret_more |= is_run && operand->agreed[set].sensitivity > operand->agreed[set].noise;
  }

  inputs_unnudge(problem, set, &nudge);
  problem->set = SET_NONE;
  return set_place(problem, set, error) && is_run;
}

/* Runs the default twice on the set that is in place, and keeps what it wrote. */
static enum outcome default_run(struct problem *problem, struct loaded_config *loaded,
                                struct error *error) {
  bool is_more;
  enum outcome outcome = checked_run(problem, loaded, 0, error);
  outputs_foreach (problem, operand)
    if (outcome == OUTCOME_CORRECT && !default_keep(problem, operand, error))
      outcome = OUTCOME_RUNTIME;
  if (outcome == OUTCOME_CORRECT)
    outcome = checked_run(problem, loaded, 0, error);
  outputs_foreach (problem, operand)
    if (outcome == OUTCOME_CORRECT)
      outcome = noise_measure(problem, operand, error);
  if (outcome == OUTCOME_CORRECT)
    outcome = default_expect(problem, loaded, error);
  if (outcome != OUTCOME_CORRECTNESS || loaded->interpreted != AGREEMENT_DISAGREES)
    return outcome;

  if (!sensitivity_measure(problem, loaded, &is_more, error))
    return OUTCOME_RUNTIME;
  loaded->interpreted = AGREEMENT_NONE;
  return default_expect(problem, loaded, error);
}

/* Compares an output, whose bytes are in `written`, with the default's. */
static bool output_agrees(const struct problem *problem, struct operand *operand,
                          struct error *error) {
  const struct agreed *agreed = agreed_of(problem, operand);
  struct comparison comparison = comparison_of(problem, operand);
  struct tolerance tolerance = tolerance_of(problem->kernel, comparison.dtype);
  tolerance.atol = tolerance.atol * agreed->rms + noise_allowed(agreed);
  comparison.tolerance = tolerance;
  struct compared compared = outputs_compare(&comparison);
  int64_t far = compared.far, n_next = compared.count;
  if (far >= 0) {
    double expected = operand_value(operand, agreed->bytes, far);
    int64_t n_others = operand->elements - agreed->n_finite;
    error_set(error, "%s[%lld] is %.9g, the default config has %.9g (allowed difference %.3g)%s",
              operand->argument->name, (long long)far,
              operand_value(operand, operand->written, far), expected,
              tolerance.atol + tolerance.rtol * fabs(expected), set_words(problem));
    if (n_others > 0)
      error_append(error, "; %lld of its elements are not finite, so perhaps it overflows",
                   (long long)n_others);
    return false;
  }

  return n_next <= operand->elements / FLOAT8_SHARE ||
         error_set(error,
                   "%lld of the %lld elements of %s are not those of the default config but the "
                   "next value%s",
                   (long long)n_next, (long long)operand->elements, operand->argument->name,
                   set_words(problem));
}

/* Sets loaded->is_summed where an output is of partial sums in another layout than the default's,
 * and the same sums. */
static bool sums_compare(struct problem *problem, struct loaded_config *loaded,
                         struct operand *operand, bool *ret_agree, struct error *error) {
  const struct argument *argument = operand->argument;
  const uint32_t *grid = loaded->plan.geometry.grid, *own = problem->default_geometry.grid;
  *ret_agree = false;
  bool is_launched = grid[0] > 0; /* a call of language c has no grid */
  if (!argument->row ||
      (is_launched && memcmp(grid, own, sizeof problem->default_geometry.grid) == 0))
    return true;

  void *before = initial_fetch(problem, operand, problem->set, error);
  if (!before)
    return false;
  const struct agreed *agreed = agreed_of(problem, operand);
  struct partial partial = {argument, operand->elements, before, agreed->bytes, operand->written};
  struct tolerance tolerance = tolerance_of(problem->kernel, argument->dtype);
  if (partial_layouts_differ(&partial))
    *ret_agree = partial_sums_agree(&partial, tolerance, noise_allowed(agreed));
  problem->device->ops->host_buffer_free(problem->device, before);
  loaded->is_summed |= *ret_agree;
  return true;
}

/* Sets *ret: an output of the default overflows with these inputs, not in the same places twice, or
 * with large ones at all. Then where it is NaN or infinite may depend on the order of operations.
 */
static bool overflow_find(struct problem *problem, struct operand *operand, bool *ret,
                          struct error *error) {
  const struct agreed *first = &operand->agreed[0], *agreed = agreed_of(problem, operand);
  bool is_large = set_is_large(problem->kernel, problem->set);
  if (is_large && !agreed->is_overflown &&
      (!default_sum(problem, operand, problem->set, error) ||
       !default_sum(problem, operand, 0, error)))
    return false;
  *ret = agreed->is_overflown || (is_large && agreed->n_finite < first->n_finite);
  return true;
}

/* Compares an output of a config that is not what the default left. */
static enum outcome output_check(struct problem *problem, struct loaded_config *loaded,
                                 struct operand *operand, struct error *error) {
  bool is_overflown, is_summed = false;
  if (!overflow_find(problem, operand, &is_overflown, error) ||
      !default_sum(problem, operand, problem->set, error))
    return OUTCOME_RUNTIME;
  if (is_overflown)
    return OUTCOME_CORRECT;

  struct error unlike;
  bool draws = loaded->expected && loaded->expected->config && /* random numbers of its own */
               expected_find(loaded->expected, operand->index);
  struct comparison comparison = comparison_of(problem, operand);
  loaded->is_drawn |= draws;
  bool agrees = !draws ? output_agrees(problem, operand, &unlike)
                       : outputs_are_alike(&comparison) ||
                             error_set(&unlike,
                                       "what is drawn in %s has another distribution than with the "
                                       "default config%s",
                                       operand->argument->name, set_words(problem));
  if (!agrees && !draws && !sums_compare(problem, loaded, operand, &is_summed, error))
    return OUTCOME_RUNTIME;
  /* The interpreter's values are of the default's layout. */
  bool is_expected = is_summed || !expected_of(problem, loaded, operand->index) ||
                     output_is_expected(problem, loaded, operand, operand->written, error);
  if (loaded->agreement == AGREEMENT_BITWISE)
    loaded->agreement = AGREEMENT_AGREES;
  if (!agrees && !is_summed) {
    *error = unlike;
    loaded->agreement = AGREEMENT_DISAGREES;
    return OUTCOME_CORRECTNESS;
  }
  return is_expected ? OUTCOME_CORRECT : OUTCOME_CORRECTNESS;
}

/* Runs a config on the set that is in place, and compares its outputs. */
static enum outcome set_run(struct problem *problem, struct loaded_config *loaded,
                            struct error *error) {
  enum outcome outcome = checked_run(problem, loaded, 0, error);
  outputs_foreach (problem, operand) {
    bool is_same;
    if (outcome != OUTCOME_CORRECT)
      return outcome;
    if (!output_take(problem, operand, &is_same, error))
      return OUTCOME_RUNTIME;
    if (!is_same)
      outcome = output_check(problem, loaded, operand, error);
    else if (expected_of(problem, loaded, operand->index) && loaded->interpreted == AGREEMENT_NONE)
      loaded->interpreted = AGREEMENT_AGREES; /* as the default does, or nothing would run */
  }
  return outcome;
}

/* Runs a config on the set that is in place, and once more where outputs differ and rounding may be
 * the reason: how much that changes is measured only then, as it takes a run more. */
static enum outcome set_check(struct problem *problem, struct loaded_config *loaded,
                              struct error *error) {
  enum agreement agreement = loaded->agreement, interpreted = loaded->interpreted;
  enum outcome outcome = set_run(problem, loaded, error);
  bool differs = loaded->agreement == AGREEMENT_DISAGREES ||
                 (loaded->interpreted == AGREEMENT_DISAGREES && outcome != OUTCOME_CORRECT);
  bool is_more;
  if (!differs || problem->is_nudged[problem->set] || !problem->of_default)
    return outcome;
  if (!sensitivity_measure(problem, problem->of_default, &is_more, error))
    return OUTCOME_RUNTIME;
  if (!is_more)
    return outcome;

  loaded->agreement = agreement;
  loaded->interpreted = interpreted;
  return set_run(problem, loaded, error);
}

/* The first set is the last, since the inputs that a config changed are looked for in it. */
enum outcome agreement_check(struct problem *problem, struct loaded_config *loaded,
                             struct error *error) {
  enum outcome outcome = OUTCOME_CORRECT;
  struct error ignored;
  loaded->agreement = AGREEMENT_BITWISE;
  loaded->interpreted = AGREEMENT_NONE;
  loaded->is_summed = loaded->is_drawn = false;
  for (size_t set = problem->n_sets; set-- > 0 && outcome == OUTCOME_CORRECT;) {
    if (!set_place(problem, set, error))
      outcome = OUTCOME_RUNTIME;
    else
      outcome = problem->has_default ? set_check(problem, loaded, error)
                                     : default_run(problem, loaded, error);
  }

  if (!problem->has_default && outcome == OUTCOME_CORRECT) {
    problem->has_default = true;
    problem->default_geometry = loaded->plan.geometry;
    problem->of_default = loaded;
  }
  if (outcome != OUTCOME_CORRECT && loaded->agreement != AGREEMENT_DISAGREES)
    loaded->agreement = AGREEMENT_NONE;
  if (outcome == OUTCOME_RUNTIME)
    loaded->interpreted = AGREEMENT_NONE;
  if (!problem->is_spoiled && !set_place(problem, 0, &ignored))
    problem->is_spoiled = true; /* the inputs are not known any more */
  return outcome;
}
