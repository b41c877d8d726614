/* Agreement of configs with the default one. */
#include "agent/measure/agreement.h"

#include <math.h>

#include "agent/measure/check.h"
#include "agent/measure/element.h"
#include "agent/measure/expected.h"
#include "agent/measure/nudge.h"
#include "agent/measure/outputs.h"
#include "agent/measure/partial.h"
#include "common/kernel/kernel_case.h"

#define NOISE_TIMES 4
#define SENSITIVITY_MOST 0.05 /* of rms: with more, results that are wrong would pass */
#define LARGE_SET (AGREEMENT_SETS - 1)
#define FLOAT8_SHARE 1000 /* one in so many may be the next value */

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
  for (size_t i = 0; i < kernel->n_arguments; i++) {
    const struct argument *other = &kernel->arguments[i];
    bool is_coarser = other->is_buffer && dtype_is_floating(other->dtype) &&
                      dtype_size(other->dtype) == 2 && dtype_size(dtype) > 2 &&
                      dtype_is_floating(dtype);
    struct tolerance coarser = tolerance_of_type(other->dtype, false);
    if (is_coarser && coarser.rtol > tolerance.rtol)
      tolerance = coarser;
  }
  return tolerance;
}

bool agreement_varies(const struct argument *argument) {
  enum fill_kind kind = argument->fill.kind;
  return argument_has_buffer(argument) && argument->access != ACCESS_WRITE &&
         (kind == FILL_NORMAL || kind == FILL_UNIFORM || kind == FILL_INTEGERS ||
          kind == FILL_SORTED || kind == FILL_PERMUTATION);
}

/* Whether the set is of large inputs. A kernel whose inputs a builder scaled down has none: larger
 * ones would be of a scale with which the builder saw it diverge. */
static bool is_large(const struct kernel *kernel, size_t set) {
  return set == LARGE_SET && !kernel->is_scaled_down;
}

bool agreement_sets_new(struct problem *problem, size_t index, uint64_t seed, struct error *error) {
  const struct argument *argument = &problem->kernel->arguments[index];
  struct device *device = problem->device;
  const struct device_ops *ops = device->ops;
  struct operand *operand = &problem->operands[index];
  if (problem->n_sets < 2 || !agreement_varies(argument))
    return true;

  void *bytes = ops->host_buffer_new(device, operand->bytes);
  bool is_made = true;
  for (size_t set = 0; set < problem->n_sets && is_made; set++) {
    struct argument of_set = *argument;
    if (is_large(problem->kernel, set))
      of_set.fill.scale = AGREEMENT_LARGE;
    if (set)
      inputs_fill(&of_set, index, operand->elements, seed + set * 0x9e3779b97f4a7c15u, bytes);
    is_made = ops->buffer_new(device, operand->bytes, &operand->sets[set], error) &&
              ops->upload(device, operand->sets[set]->address, set ? bytes : operand->given,
                          operand->bytes, error);
  }
  ops->host_buffer_free(device, bytes);
  return is_made || error_prefix(error, "argument \"%s\": ", argument->name);
}

/* Makes the set the one that launches read; problem_reset restores what they change from it. */
static bool set_place(struct problem *problem, size_t set, struct error *error) {
  const struct device_ops *ops = problem->device->ops;
  for (size_t i = 0; i < problem->kernel->n_arguments && set != problem->set; i++) {
    struct operand *operand = &problem->operands[i];
    if (operand->sets[set] && problem->kernel->arguments[i].access == ACCESS_READ &&
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

static bool is_output(const struct problem *problem, size_t i) {
  return problem->operands[i].written != NULL;
}

/* How an error names the set of inputs. */
static const char *set_words(const struct problem *problem) {
  static const char *const words[AGREEMENT_SETS] = {"", ", with a second set of inputs",
                                                    ", with a third set of inputs"};
  return is_large(problem->kernel, problem->set) ? ", with inputs of large magnitude"
                                                 : words[problem->set];
}

/* Gets what a config left in output i: *ret_is_same where it is what the default left, else its
 * bytes are in `written`. */
static bool output_take(struct problem *problem, size_t i, bool *ret_is_same, struct error *error) {
  struct operand *operand = &problem->operands[i];
  struct device *device = problem->device;
  const struct agreed *agreed = &operand->agreed[problem->set];
  *ret_is_same = false;
  if (device->has_fingerprint) {
    if (!check_device_result(problem,
                             device->ops->fingerprint(device, operand->checked->address,
                                                      operand->bytes, &operand->left, error)))
      return false;
    *ret_is_same = fingerprint_equal(operand->left, agreed->left);
    return *ret_is_same || check_download(problem, operand->written, operand, error);
  }

  if (!check_download(problem, operand->written, operand, error))
    return false;
  *ret_is_same = bytes_equal(operand->written, agreed->bytes, operand->bytes);
  return true;
}

static enum outcome launch(struct problem *problem, struct loaded_config *loaded,
                           struct error *error) {
  if (!check_launch(problem, loaded, 0, error))
    return OUTCOME_RUNTIME;
  return check_canaries(problem, error) ? OUTCOME_CORRECT : OUTCOME_CORRECTNESS;
}

/* Keeps output i of the default, which was just run. */
static bool default_keep(struct problem *problem, size_t i, struct error *error) {
  struct operand *operand = &problem->operands[i];
  struct device *device = problem->device;
  const struct device_ops *ops = device->ops;
  struct agreed *agreed = &operand->agreed[problem->set];
  const void *address = operand->checked->address;
  if (!device->has_fingerprint) {
    agreed->bytes = ops->host_buffer_new(device, operand->bytes);
    return check_download(problem, agreed->bytes, operand, error);
  }

  return check_device_result(
      problem, ops->fingerprint(device, address, operand->bytes, &agreed->left, error) &&
                   ops->buffer_new(device, operand->bytes, &agreed->kept, error) &&
                   ops->copy(device, agreed->kept->address, address, operand->bytes, error));
}

/* Gets what the default left in output i with a set of inputs to the host. */
static bool default_fetch(struct problem *problem, size_t i, size_t set, struct error *error) {
  struct operand *operand = &problem->operands[i];
  struct device *device = problem->device;
  struct agreed *agreed = &operand->agreed[set];
  if (agreed->bytes)
    return true;
  agreed->bytes = device->ops->host_buffer_new(device, operand->bytes);
  return check_device_result(
      problem,
      device->ops->download(device, agreed->bytes, agreed->kept->address, operand->bytes, error));
}

/* What output i held before the launches of a set, on the host; NULL: the device refused. */
static void *initial_fetch(struct problem *problem, size_t i, size_t set, struct error *error) {
  const struct device_ops *ops = problem->device->ops;
  const struct operand *operand = &problem->operands[i];
  const struct device_buffer *from = operand->sets[set] ? operand->sets[set] : operand->pristine;
  void *bytes = ops->host_buffer_new(problem->device, operand->bytes);
  if (check_device_result(
          problem, ops->download(problem->device, bytes, from->address, operand->bytes, error)))
    return bytes;
  ops->host_buffer_free(problem->device, bytes);
  return NULL;
}

/* The same, with its root mean square, of what it wrote, and the number of finite elements. */
static bool default_sum(struct problem *problem, size_t i, size_t set, struct error *error) {
  struct operand *operand = &problem->operands[i];
  struct agreed *agreed = &operand->agreed[set];
  struct partial partial = {.argument = &problem->kernel->arguments[i],
                            .elements = operand->elements};
  if (agreed->n_finite) /* 0: not summed yet, or nothing is finite */
    return true;
  if (!default_fetch(problem, i, set, error))
    return false;
  agreed->rms = output_rms(problem->kernel->arguments[i].dtype, agreed->bytes, operand->elements,
                           &agreed->n_finite);
  if (!operand->pristine) /* it is only written */
    return true;
  void *before = initial_fetch(problem, i, set, error);
  if (!before)
    return false;
  partial.before = before;
  partial.expected = agreed->bytes;
  double rms = partial_rms(&partial);
  problem->device->ops->host_buffer_free(problem->device, before);
  agreed->rms = rms > 0 ? rms : agreed->rms;
  return true;
}

/* How much output i of the second run differs from the first. */
static enum outcome noise_measure(struct problem *problem, size_t i, struct error *error) {
  struct operand *operand = &problem->operands[i];
  struct agreed *agreed = &operand->agreed[problem->set];
  const struct argument *argument = &problem->kernel->arguments[i];
  bool is_same;
  if (!output_take(problem, i, &is_same, error))
    return OUTCOME_RUNTIME;
  if (is_same)
    return OUTCOME_CORRECT;
  if (!default_fetch(problem, i, problem->set, error))
    return OUTCOME_RUNTIME;

  struct comparison comparison = {argument->dtype, operand->elements, agreed->bytes,
                                  .bytes = operand->written};
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
            argument->name, (long long)far, element_get(argument->dtype, agreed->bytes, far),
            element_get(argument->dtype, operand->written, far), set_words(problem));
  return OUTCOME_CORRECTNESS;
}

/* The interpreter's values of output i, which are of the first set; NULL: there are none. */
static const struct expected_buffer *expected_of(const struct problem *problem,
                                                 const struct loaded_config *loaded, size_t i) {
  return loaded->expected && problem->set == 0 ? expected_find(loaded->expected, i) : NULL;
}

/* Whether the config draws random numbers of its own for output i. */
static bool is_drawn(const struct loaded_config *loaded, size_t i) {
  return loaded->expected && loaded->expected->config && expected_find(loaded->expected, i);
}

static bool output_is_expected(const struct problem *problem, struct loaded_config *loaded,
                               size_t i, const void *bytes, struct error *error) {
  bool agrees = expected_agrees(problem->kernel, expected_of(problem, loaded, i), bytes,
                                noise_allowed(&problem->operands[i].agreed[0]), error);
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
    if (!expected_of(problem, loaded, i))
      continue;
    if (!default_fetch(problem, i, 0, error))
      return OUTCOME_RUNTIME;
    if (!output_is_expected(problem, loaded, i, problem->operands[i].agreed[0].bytes, error))
      return OUTCOME_CORRECTNESS;
  }
  return OUTCOME_CORRECT;
}

/* How much output i differs, which the default wrote with nudged inputs. */
static bool output_sensitivity(struct problem *problem, size_t i, struct error *error) {
  struct operand *operand = &problem->operands[i];
  struct agreed *agreed = &operand->agreed[problem->set];
  if (!default_sum(problem, i, problem->set, error) ||
      !check_download(problem, operand->written, operand, error))
    return false;
  struct comparison comparison = {problem->kernel->arguments[i].dtype, operand->elements,
                                  agreed->bytes, .bytes = operand->written};
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
    return check_device_result(problem, false);
  if (!nudge.n)
    return true;

  problem->set = AGREEMENT_SETS; /* none is in place */
  bool is_run = check_device_result(problem, set_place(problem, set, error)) &&
                launch(problem, of_default, error) == OUTCOME_CORRECT;
  for (size_t i = 0; i < problem->kernel->n_arguments && is_run; i++) {
    if (!is_output(problem, i))
      continue;
    is_run = output_sensitivity(problem, i, error);
    const struct agreed *agreed = &problem->operands[i].agreed[set];
    *ret_more |= agreed->sensitivity > agreed->noise;
  }

  inputs_unnudge(problem, set, &nudge);
  problem->set = AGREEMENT_SETS;
  return check_device_result(problem, set_place(problem, set, error)) && is_run;
}

/* Runs the default twice on the set that is in place, and keeps what it wrote. */
static enum outcome default_run(struct problem *problem, struct loaded_config *loaded,
                                struct error *error) {
  size_t n = problem->kernel->n_arguments;
  bool is_more;
  enum outcome outcome = launch(problem, loaded, error);
  for (size_t i = 0; i < n && outcome == OUTCOME_CORRECT; i++)
    if (is_output(problem, i) && !default_keep(problem, i, error))
      outcome = OUTCOME_RUNTIME;
  if (outcome == OUTCOME_CORRECT)
    outcome = launch(problem, loaded, error);
  for (size_t i = 0; i < n && outcome == OUTCOME_CORRECT; i++)
    if (is_output(problem, i))
      outcome = noise_measure(problem, i, error);
  if (outcome == OUTCOME_CORRECT)
    outcome = default_expect(problem, loaded, error);
  if (outcome != OUTCOME_CORRECTNESS || loaded->interpreted != AGREEMENT_DISAGREES)
    return outcome;

  struct error refused;
  if (!sensitivity_measure(problem, loaded, &is_more, &refused)) {
    *error = refused;
    return OUTCOME_RUNTIME;
  }
  loaded->interpreted = AGREEMENT_NONE;
  return default_expect(problem, loaded, error);
}

static struct tolerance tolerance_of_output(const struct problem *problem, size_t i) {
  const struct agreed *agreed = &problem->operands[i].agreed[problem->set];
  struct tolerance tolerance = tolerance_of(problem->kernel, problem->kernel->arguments[i].dtype);
  tolerance.atol = tolerance.atol * agreed->rms + noise_allowed(agreed);
  return tolerance;
}

/* Compares output i, whose bytes are in `written`, with the default's. */
static bool output_agrees(const struct problem *problem, size_t i, struct error *error) {
  const struct operand *operand = &problem->operands[i];
  const struct agreed *agreed = &operand->agreed[problem->set];
  const struct argument *argument = &problem->kernel->arguments[i];
  enum dtype dtype = argument->dtype;
  struct tolerance tolerance = tolerance_of_output(problem, i);
  struct compared compared = outputs_compare(
      &(struct comparison){dtype, operand->elements, agreed->bytes, operand->written, tolerance});
  int64_t far = compared.far, n_next = compared.count;
  if (far >= 0) {
    double expected = element_get(dtype, agreed->bytes, far);
    int64_t n_others = operand->elements - agreed->n_finite;
    error_set(error, "%s[%lld] is %.9g, the default config has %.9g (allowed difference %.3g)%s",
              argument->name, (long long)far, element_get(dtype, operand->written, far), expected,
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
                   (long long)n_next, (long long)operand->elements, argument->name,
                   set_words(problem));
}

/* Sets loaded->is_summed where output i is of partial sums in another layout than the default's,
 * and the same sums. */
static bool sums_compare(struct problem *problem, struct loaded_config *loaded, size_t i,
                         bool *ret_agree, struct error *error) {
  const struct operand *operand = &problem->operands[i];
  const struct argument *argument = &problem->kernel->arguments[i];
  const uint32_t *grid = loaded->plan.geometry.grid, *own = problem->default_geometry.grid;
  *ret_agree = false;
  bool is_launched = grid[0] > 0; /* a call of language c has no grid */
  if (!argument->row ||
      (is_launched && memcmp(grid, own, sizeof problem->default_geometry.grid) == 0))
    return true;

  void *before = initial_fetch(problem, i, problem->set, error);
  if (!before)
    return false;
  const struct agreed *agreed = &operand->agreed[problem->set];
  struct partial partial = {argument, operand->elements, before, agreed->bytes, operand->written};
  struct tolerance tolerance = tolerance_of(problem->kernel, argument->dtype);
  if (partial_layouts_differ(&partial))
    *ret_agree = partial_sums_agree(&partial, tolerance, noise_allowed(agreed));
  problem->device->ops->host_buffer_free(problem->device, before);
  loaded->is_summed |= *ret_agree;
  return true;
}

/* Whether the random numbers in output i are of the distribution of the default's. */
static bool drawn_agrees(const struct problem *problem, struct loaded_config *loaded, size_t i,
                         struct error *error) {
  const struct operand *operand = &problem->operands[i];
  const struct argument *argument = &problem->kernel->arguments[i];
  loaded->is_drawn = true;
  return outputs_are_alike(&(struct comparison){.dtype = argument->dtype,
                                                .elements = operand->elements,
                                                .expected = operand->agreed[problem->set].bytes,
                                                .bytes = operand->written}) ||
         error_set(error,
                   "what is drawn in %s has another distribution than with the default config%s",
                   argument->name, set_words(problem));
}

/* Sets *ret: output i of the default overflows with these inputs, not in the same places twice, or
 * with large ones at all. Then where it is NaN or infinite may depend on the order of operations.
 */
static bool overflow_find(struct problem *problem, size_t i, bool *ret, struct error *error) {
  const struct agreed *agreed = problem->operands[i].agreed;
  *ret = agreed[problem->set].is_overflown;
  if (*ret || !is_large(problem->kernel, problem->set))
    return true;
  if (!default_sum(problem, i, LARGE_SET, error) || !default_sum(problem, i, 0, error))
    return false;
  *ret = agreed[LARGE_SET].n_finite < agreed[0].n_finite;
  return true;
}

/* Compares output i of a config that is not what the default left. */
static enum outcome output_check(struct problem *problem, struct loaded_config *loaded, size_t i,
                                 struct error *error) {
  bool is_overflown;
  if (!overflow_find(problem, i, &is_overflown, error) ||
      !default_sum(problem, i, problem->set, error))
    return OUTCOME_RUNTIME;
  if (is_overflown)
    return OUTCOME_CORRECT;

  struct error unlike;
  bool agrees = is_drawn(loaded, i) ? drawn_agrees(problem, loaded, i, &unlike)
                                    : output_agrees(problem, i, &unlike),
       is_summed = false;
  if (!agrees && !is_drawn(loaded, i) && !sums_compare(problem, loaded, i, &is_summed, error))
    return OUTCOME_RUNTIME;
  /* The interpreter's values are of the default's layout. */
  bool is_expected = is_summed || !expected_of(problem, loaded, i) ||
                     output_is_expected(problem, loaded, i, problem->operands[i].written, error);
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
  enum outcome outcome = launch(problem, loaded, error);
  for (size_t i = 0; i < problem->kernel->n_arguments && outcome == OUTCOME_CORRECT; i++) {
    bool is_same;
    if (!is_output(problem, i))
      continue;
    if (!output_take(problem, i, &is_same, error))
      return OUTCOME_RUNTIME;
    if (!is_same)
      outcome = output_check(problem, loaded, i, error);
    else if (expected_of(problem, loaded, i) && loaded->interpreted == AGREEMENT_NONE)
      loaded->interpreted = AGREEMENT_AGREES; /* as the default does, or nothing would run */
  }
  return outcome;
}

/* The same, and again where outputs differ and rounding may be the reason: how much that changes is
 * measured only then, as it takes a run more. */
static enum outcome set_check(struct problem *problem, struct loaded_config *loaded,
                              struct error *error) {
  enum agreement agreement = loaded->agreement, interpreted = loaded->interpreted;
  enum outcome outcome = set_run(problem, loaded, error);
  bool differs = loaded->agreement == AGREEMENT_DISAGREES ||
                 (loaded->interpreted == AGREEMENT_DISAGREES && outcome != OUTCOME_CORRECT);
  bool is_more;
  struct error refused;
  if (!differs || problem->is_nudged[problem->set] || !problem->of_default)
    return outcome;
  if (!sensitivity_measure(problem, problem->of_default, &is_more, &refused)) {
    *error = refused;
    return OUTCOME_RUNTIME;
  }
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
    if (!check_device_result(problem, set_place(problem, set, error)))
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
  if (!problem->is_spoiled && !check_device_result(problem, set_place(problem, 0, &ignored)))
    problem->is_spoiled = true; /* the inputs are not known any more */
  return outcome;
}
