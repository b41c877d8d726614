/* Buffers, rotation and scalars of a kernel with a key on a device. */
#include "agent/measure/problem.h"

#include "agent/measure/element.h"
#include "common/base/log.h"
#include "common/kernel/kernel_case.h"

#define CACHE_LINE 64
#define PAGE 4096
#define LARGE_SET (AGREEMENT_SETS - 1)

static struct space_facts facts_of(const struct problem *problem) {
  return (struct space_facts){problem->key, problem->device->gpu_name, problem->device->arch};
}

/* Copies of small operands are close together, so that they fill the cache and not only its sets at
 * page starts. */
static size_t stride_of(size_t bytes) {
  size_t unit = bytes < PAGE ? CACHE_LINE : PAGE;
  return (bytes + unit - 1) / unit * unit;
}

/* What the config with the smallest segment is passed. */
static size_t bytes_passed(const struct operand *operand) {
  size_t least = operand->bytes;
  array_foreach (segment, operand->segments.all, operand->segments.n) {
    size_t bytes = (size_t)segment->elements * dtype_size(operand->argument->dtype);
    least = bytes < least ? bytes : least;
  }
  return least;
}

/* Chooses how calls find no operand in a cache where `taken` bytes of the device's memory are used
 * already, and returns how many more it takes. */
static size_t rotation_choose(struct problem *problem, const struct problem_setup *setup,
                              size_t taken) {
  const struct regime_facts *regime = regime_facts(setup->regime);
  struct device_rotation *rotation = &problem->rotation;
  size_t memory = problem->device->memory_bytes, displacement = problem->device->displacement_bytes,
         total = 0, touched = 0; /* of a copy, and of that by any config */

  operands_foreach (problem, operand) {
    total += stride_of(operand->bytes);
    touched += stride_of(bytes_passed(operand));
  }
  rotation->n_copies = 1;
  rotation->flush_instructions = regime->flushes && setup->instruction_flush != NULL;
  if (!regime->rotates || !total)
    return 0;

  size_t needed = (displacement + touched - 1) / touched;
  needed = needed < 2 ? 2 : needed;
  bool has_room = !memory || (taken < memory && needed <= (memory - taken) / total);
  rotation->displace = !has_room || needed > setup->rotation_bytes_max / total;
  rotation->n_copies = rotation->displace ? 1 : needed;
  return rotation->displace ? displacement : needed * total;
}

/* Half of the memory is left for what else it is needed for. 0: how much there is, is not known. */
static bool fits(size_t needed, size_t memory) { return !memory || needed <= memory / 2; }

/* Computes the operands' sizes, and refuses what does not fit in memory before any buffer is made:
 * the process would be killed, and the baseline blamed. Buffers are made once and shared by all
 * configs. */
static bool operands_size(struct problem *problem, const struct problem_setup *setup,
                          struct error *error) {
  const struct space_facts facts = facts_of(problem);
  /* In all, and how much more with all sets. */
  size_t on_device = 0, on_host = 0, sets_on_device = 0, sets_on_host = 0;
  size_t memory = problem->device->memory_bytes, host_memory = cpu_memory_available();
  operands_foreach (problem, operand) {
    const struct argument *argument = operand->argument;
    const char *text;
    if (!argument_has_buffer(argument))
      continue;
    if (!segments_find(argument, setup->space, &facts, &operand->segments, &text, error))
      return false;
    operand->elements = operand->segments.elements;
    operand->bytes = (size_t)operand->elements * dtype_size(argument->dtype);
    /* On the device: the checked one and what it is restored from. On the host: given, written, or
     * both; the first that was written. */
    size_t n = argument->access == ACCESS_READWRITE ? 2 : 1;
    on_device += n * operand->bytes;
    on_host += (n + (argument->reference_entry && problem->reference)) * operand->bytes;
    if (!problem->n_sets)
      continue;
    if (argument_varies(argument))
      sets_on_device += AGREEMENT_SETS * operand->bytes;
    if (argument->access != ACCESS_READ) {
      size_t kept = problem->device->has_fingerprint ? operand->bytes : 0;
      on_device += kept;
      sets_on_device += (AGREEMENT_SETS - 1) * kept;
      on_host += 2 * operand->bytes;
      sets_on_host += (AGREEMENT_SETS - 1) * operand->bytes;
    }
  }

  bool is_host = problem->kernel->language == LANGUAGE_C; /* runs in the host's memory */
  bool has_room = is_host ? fits(on_device + on_host + sets_on_device + sets_on_host, memory)
                          : fits(on_device + sets_on_device, memory) &&
                                fits(on_host + sets_on_host, host_memory);
  if (problem->n_sets && has_room) {
    problem->n_sets = AGREEMENT_SETS;
    on_device += sets_on_device;
    on_host += sets_on_host;
  }

  if (is_host)
    on_device += on_host;
  on_device += rotation_choose(problem, setup, on_device);
  return memory_suffices(is_host ? "memory" : "the device's memory", on_device, memory, error) &&
         (is_host || memory_suffices("the host's memory", on_host, host_memory, error));
}

bool argument_varies(const struct argument *argument) {
  enum fill_kind kind = argument->fill.kind;
  return argument_has_buffer(argument) && argument->access != ACCESS_WRITE &&
         (kind == FILL_NORMAL || kind == FILL_UNIFORM || kind == FILL_INTEGERS ||
          kind == FILL_SORTED || kind == FILL_PERMUTATION || kind == FILL_ROUTED);
}

bool set_is_large(const struct kernel *kernel, size_t set) {
  return set == LARGE_SET && !kernel->is_scaled_down;
}

/* Fills a host buffer of an operand. Bytes between segments are 0. */
static void operand_fill(const struct operand *operand, const struct argument *argument,
                         uint64_t seed, char *bytes) {
  if (operand->segments.n > 1)
    memset(bytes, 0, operand->bytes);
  array_foreach (segment, operand->segments.all, operand->segments.n)
    segment_fill(argument, operand->index, segment, seed, bytes + segment->offset);
}

/* Makes and fills the data of all sets of an operand; `given` holds the first set's. */
static bool sets_new(struct problem *problem, struct operand *operand, uint64_t seed,
                     struct error *error) {
  struct device *device = problem->device;
  const struct device_ops *ops = device->ops;
  if (problem->n_sets < 2 || !argument_varies(operand->argument))
    return true;

  void *bytes = ops->host_buffer_new(device, operand->bytes);
  bool is_made = true;
  for (size_t set = 0; set < problem->n_sets && is_made; set++) {
    struct argument of_set = *operand->argument;
    if (set_is_large(problem->kernel, set))
      of_set.fill.scale = AGREEMENT_LARGE;
    if (set)
      operand_fill(operand, &of_set, seed + set * 0x9e3779b97f4a7c15u, bytes);
    is_made = ops->buffer_new(device, operand->bytes, &operand->sets[set], error) &&
              ops->upload(device, operand->sets[set]->address, set ? bytes : operand->given,
                          operand->bytes, error);
  }
  ops->host_buffer_free(device, bytes);
  return is_made || error_prefix(error, "argument \"%s\": ", operand->argument->name);
}

static bool operand_new(struct problem *problem, struct operand *operand, uint64_t seed,
                        struct error *error) {
  const struct argument *argument = operand->argument;
  struct device *device = problem->device;
  const struct device_ops *ops = device->ops;
  if (!ops->buffer_new(device, operand->bytes, &operand->checked, error))
    return error_prefix(error, "argument \"%s\": ", argument->name);

  void *address = operand->checked->address;
  if (problem->n_sets ? argument->access != ACCESS_READ
                      : argument->reference_entry && problem->reference)
    operand->written = ops->host_buffer_new(device, operand->bytes);
  if (argument->access == ACCESS_WRITE)
    return true;

  operand->given = ops->host_buffer_new(device, operand->bytes);
  operand_fill(operand, argument, problem->expected ? problem->expected->seed : seed,
               operand->given);
  if (!ops->upload(device, address, operand->given, operand->bytes, error) ||
      !sets_new(problem, operand, seed, error))
    return false;
  if (argument->access == ACCESS_READ)
    return !device->has_fingerprint ||
           ops->fingerprint(device, address, operand->bytes, &operand->filled, error);

  return ops->buffer_new(device, operand->bytes, &operand->pristine, error) &&
         ops->copy(device, operand->pristine->address, address, operand->bytes, error);
}

/* Doubles the number of copies in each step: small operands have a hundred thousand of them. */
static bool copies_new(struct problem *problem, struct operand *operand, size_t n_copies,
                       struct error *error) {
  const struct device_ops *ops = problem->device->ops;
  size_t stride = stride_of(operand->bytes);
  if (!ops->buffer_new(problem->device, stride * n_copies, &operand->copies, error))
    return false;

  /* Outputs too: their pages must be mapped before they are timed. */
  char *copies = operand->copies->address;
  if (!ops->copy(problem->device, copies, operand->checked->address, operand->bytes, error))
    return false;

  for (size_t done = 1, n; done < n_copies; done += n) {
    n = done < n_copies - done ? done : n_copies - done;
    if (!ops->copy(problem->device, copies + done * stride, copies, n * stride, error))
      return false;
  }
  return true;
}

static bool rotation_new(struct problem *problem, struct error *error) {
  struct device_rotation *rotation = &problem->rotation;
  operands_foreach (problem, operand)
    if (operand->checked && rotation->n_copies > 1 &&
        !copies_new(problem, operand, rotation->n_copies, error))
      return error_prefix(error, "cold copies of argument \"%s\": ", operand->argument->name);

  for (size_t i = 0; i < problem->kernel->n_arguments; i++) {
    const struct argument *argument = &problem->kernel->arguments[i];
    const struct operand *owner = &problem->operands[argument_owner(problem->kernel, i)];
    if (!argument->is_buffer)
      continue;
    for (size_t k = 0; k < owner->segments.n; k++)
      *APPEND(rotation->operands, rotation->n_operands) = (struct device_operand){
          .pointer = &problem->operands[i].passed[k],
          .base = owner->copies ? owner->copies->address : owner->checked->address,
          .offset = argument_offset(argument) + owner->segments.all[k].offset,
          .stride = stride_of(owner->bytes),
          .size = owner->bytes,
          .pristine = owner->pristine && !argument->alias ? owner->pristine->address : NULL,
      };
  }

  return true;
}

/* Fills `scope` for the config, and the scalars from it. */
static bool scalars_evaluate(const struct problem *problem, uint64_t config, struct scope *scope,
                             uint64_t *scalars, struct error *error) {
  struct space_facts facts = facts_of(problem);
  if (!facts_scope_add(&facts, scope, error) ||
      !space_scope_add(problem->space, config, scope, error))
    return false;

  for (size_t i = 0; i < problem->kernel->n_arguments; i++)
    if (!problem->kernel->arguments[i].is_buffer &&
        !scalar_store(&problem->kernel->arguments[i], scope, &scalars[i], error))
      return false;
  return true;
}

bool problem_new(const struct problem_setup *setup, struct problem **ret_problem,
                 struct error *error) {
  struct device *device = setup->device;
  const struct kernel *kernel = setup->kernel;
  cleanup_problem struct problem *problem = xcalloc(1, sizeof *problem);
  *problem = (struct problem){.device = device,
                              .kernel = kernel,
                              .key = setup->key,
                              .space = setup->space,
                              .reference = setup->reference,
                              .expected = setup->reference ? NULL : setup->expected,
                              .n_sets = setup->reference ? 0 : 1};
  const struct regime_facts *regime = regime_facts(setup->regime);
  const char *flush = regime->flushes ? setup->instruction_flush : NULL;
  if (!device_launches(device->ops, regime->launch))
    return error_set(error, "the back end %s cannot launch calls as the regime %s does",
                     device->ops->backend, regime->name);
  if (flush && !device->ops->instruction_flush_set)
    return error_set(error,
                     "the back end %s cannot flush instruction caches; leave "
                     "\"instruction_flush\" out",
                     device->ops->backend);
  if (flush && !device->ops->instruction_flush_set(device, flush, error))
    return false;

  struct error reason; /* a device that refuses the fingerprint works without it */
  if (setup->fingerprint && device->ops->fingerprint_set &&
      !device->ops->fingerprint_set(device, setup->fingerprint, &reason))
    log_warning("device: outputs are copied to the host to be compared: %s", reason.message);

  struct scope baseline_scope = {0};
  for (size_t i = 0; i < kernel->n_arguments; i++)
    problem->operands[i] = (struct operand){.argument = &kernel->arguments[i], .index = i};
  if (!operands_size(problem, setup, error))
    return false;
  operands_foreach (problem, operand)
    operand->passed = xcalloc(operand->segments.n + 1, sizeof *operand->passed);

  operands_foreach (problem, operand)
    if (argument_has_buffer(operand->argument) &&
        !operand_new(problem, operand, setup->seed, error))
      return false;
  uint64_t scalars[KERNEL_ARGUMENTS_MAX]; /* the baseline's, which must have values */
  if (!scalars_evaluate(problem, setup->baseline, &baseline_scope, scalars, error) ||
      !rotation_new(problem, error))
    return false;

  int64_t start = clock_monotonic_ns();
  if (setup->reference && !reference_prepare(setup->reference,
                                             &(struct reference_setup){.kernel = kernel,
                                                                       .space = setup->space,
                                                                       .facts = facts_of(problem),
                                                                       .config = setup->baseline,
                                                                       .seed = setup->seed},
                                             error))
    return false;
  operands_foreach (problem, operand)
    if (setup->reference && operand->argument->reference_entry)
      expectation_compute(setup->reference, operand->index, operand->elements,
                          kernel->reference.samples, setup->seed, &operand->expected);
  problem->reference_ns = clock_monotonic_ns() - start;
  *ret_problem = TAKE(problem);
  return true;
}

void problem_free(struct problem *problem) {
  const struct device_ops *ops = problem->device->ops;
  operands_foreach (problem, operand) {
    struct device_buffer *buffers[] = {operand->checked, operand->pristine, operand->copies};
    void *host_buffers[] = {operand->given, operand->written, operand->first};
    for (size_t k = 0; k < 3; k++) {
      if (buffers[k])
        ops->buffer_free(problem->device, buffers[k]);
      if (host_buffers[k])
        ops->host_buffer_free(problem->device, host_buffers[k]);
    }
    for (size_t k = 0; k < AGREEMENT_SETS; k++) {
      if (operand->sets[k])
        ops->buffer_free(problem->device, operand->sets[k]);
      if (operand->agreed[k].kept)
        ops->buffer_free(problem->device, operand->agreed[k].kept);
      if (operand->agreed[k].bytes)
        ops->host_buffer_free(problem->device, operand->agreed[k].bytes);
    }
    expectation_release(&operand->expected);
    segments_release(&operand->segments);
    free(operand->passed);
  }

  DISCARD(problem->reference, reference_free);
  free(problem->rotation.operands);
  free(problem);
}

/* Reverses the dimensions, which CUDA's driver takes innermost first. */
static struct device_tensormap tensormap_make(const struct tensormap *stated, void **base,
                                              void *encoded) {
  struct device_tensormap map = {.base = base,
                                 .type = (int)stated->type,
                                 .swizzle = (int)stated->swizzle,
                                 .fill = (int)stated->fill,
                                 .rank = (uint32_t)stated->shape.n,
                                 .encoded = encoded};
  for (size_t i = 0; i < map.rank; i++) {
    size_t from = map.rank - 1 - i;
    map.shape[i] = (uint64_t)stated->shape.all[from];
    map.box[i] = (uint32_t)stated->box.all[from];
    if (i)
      map.strides[i - 1] = (uint64_t)stated->strides.all[from];
  }
  return map;
}

/* The storage of a buffer argument's address; a scalar's is the config's own. */
static void **address_of(struct problem *problem, const struct loaded_config *loaded,
                         size_t argument) {
  struct operand *operand = &problem->operands[argument];
  return &operand->passed[segment_of(operand->argument, &operand->segments, problem->space,
                                     loaded->config)];
}

/* Points the config's arguments to their storage, and makes what precedes a call. */
static void launch_make(struct problem *problem, const struct launch_spec *spec,
                        struct loaded_config *loaded) {
  const struct launch_plan *plan = &loaded->plan;
  const struct launch_arguments *stated = &spec->arguments;
  array_foreach (argument, stated->all, stated->n)
    loaded->n_tensormaps += argument->map.base != NULL;
  if (loaded->n_tensormaps) {
    size_t bytes = loaded->n_tensormaps * TENSORMAP_BYTES;
    loaded->tensormaps = xcalloc(loaded->n_tensormaps, sizeof *loaded->tensormaps);
    loaded->encoded = aligned_alloc(TENSORMAP_ALIGNMENT, bytes);
    ALWAYS(loaded->encoded != NULL);
  }

  size_t n_maps = 0;
  for (size_t i = 0; i < plan->n_arguments; i++) {
    const struct launch_argument *argument = stated->all ? &stated->all[i] : NULL;
    size_t k = plan->arguments[i];
    if (argument && argument->map.base) {
      void *encoded = loaded->encoded + n_maps * TENSORMAP_BYTES;
      loaded->tensormaps[n_maps++] =
          tensormap_make(&argument->map, address_of(problem, loaded, k), encoded);
      loaded->arguments[i] = encoded;
    } else if (argument && !argument->name) {
      int64_t value = argument->i1 != FIELD_NONE    ? argument->i1
                      : argument->i32 != FIELD_NONE ? argument->i32
                                                    : argument->i64;
      loaded->values[i] = (uint64_t)value;
      loaded->arguments[i] = &loaded->values[i];
    } else {
      loaded->arguments[i] = problem->kernel->arguments[k].is_buffer
                                 ? (void *)address_of(problem, loaded, k)
                                 : (void *)&loaded->scalars[k];
    }
  }
  for (size_t i = 0; i < plan->n_scratch; i++)
    loaded->arguments[plan->n_arguments + i] = (void *)&loaded->scratch;

  loaded->n_fills = spec->fills.n;
  for (size_t i = 0; i < loaded->n_fills; i++)
    loaded->fills[i] =
        (struct device_fill){address_of(problem, loaded, plan->fills[i]),
                             (size_t)spec->fills.all[i].bytes, spec->fills.all[i].word};
}

enum outcome config_load(struct problem *problem, uint64_t config, const char *object,
                         const struct launch_spec *spec, struct loaded_config **ret_loaded,
                         struct error *error) {
  struct scope scope = {0};
  cleanup_free struct loaded_config *loaded = xcalloc(1, sizeof *loaded);
  struct launch_plan *plan = &loaded->plan;
  loaded->config = config;
  if (!scalars_evaluate(problem, config, &scope, loaded->scalars, error))
    return OUTCOME_RUNTIME;

  enum outcome outcome =
      launch_plan_make(problem->device, problem->kernel, spec, &scope, plan, error);
  if (outcome != OUTCOME_CORRECT)
    return outcome;

  if (launch_arguments_tensormap(&spec->arguments) < spec->arguments.n &&
      !problem->device->ops->has_tensormaps) {
    error_set(error, "its code takes a tensor map, which the back end %s does not have",
              problem->device->ops->backend);
    return OUTCOME_RUNTIME;
  }

  cleanup_json json_t *values = space_config_to_json(problem->space, config);
  if (problem->expected)
    loaded->expected = expected_of_config(problem->expected, values);
  const char *entry = spec->entry ? spec->entry : problem->kernel->entry;
  if (!problem->device->ops->module_load(problem->device, object, entry, &loaded->module, error)) {
    problem_check_device(problem, false);
    return OUTCOME_RUNTIME;
  }

  launch_make(problem, spec, loaded);
  *ret_loaded = TAKE(loaded);
  return OUTCOME_CORRECT;
}

void config_unload(struct problem *problem, struct loaded_config *loaded) {
  size_t n = 0;
  array_foreach (kept, problem->unsettled, problem->n_unsettled)
    if (*kept != loaded)
      problem->unsettled[n++] = *kept;
  problem->n_unsettled = n;
  if (problem->of_default == loaded)
    problem->of_default = NULL;
  problem->device->ops->module_unload(problem->device, loaded->module);
  free(loaded->tensormaps);
  free(loaded->encoded);
  free(loaded);
}

struct device_launch config_launch(struct loaded_config *loaded) {
  return (struct device_launch){.module = loaded->module,
                                .geometry = loaded->plan.geometry,
                                .arguments = loaded->arguments,
                                .n_fills = loaded->n_fills,
                                .fills = loaded->fills,
                                .n_tensormaps = loaded->n_tensormaps,
                                .tensormaps = loaded->tensormaps};
}

void problem_check_device(struct problem *problem, bool was_launched) {
  struct error ignored;
  if (problem->is_spoiled || problem->device->ops->sentinel(problem->device, &ignored))
    return;
  problem->is_spoiled = true;
  problem->is_lost = !was_launched;
}

bool problem_reset(struct problem *problem, int mark, struct error *error) {
  struct device *device = problem->device;
  operands_foreach (problem, operand) {
    const struct argument *argument = operand->argument;
    if (!argument->is_buffer)
      continue;
    const struct operand *owner =
        &problem->operands[argument_owner(problem->kernel, operand->index)];
    char *to = owner->checked->address;
    bool ok = true;
    for (size_t i = 0; i < owner->segments.n; i++)
      operand->passed[i] = to + argument_offset(argument) + owner->segments.all[i].offset;
    if (argument->alias)
      continue;
    if (argument->access == ACCESS_WRITE)
      ok =
          device->ops->fill(device, to, element_mark(argument->dtype, mark), operand->bytes, error);
    else if (argument->access == ACCESS_READWRITE)
      ok = device->ops->copy(
          device, to,
          (operand->sets[problem->set] ? operand->sets[problem->set] : operand->pristine)->address,
          operand->bytes, error);
    if (!ok)
      return false;
  }

  return true;
}
