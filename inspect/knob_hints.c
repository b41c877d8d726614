/* The table of knob rules, and its evaluation over a space. */
#include "inspect/knob_hints.h"

#include <ctype.h>
#include <inttypes.h>
#include <strings.h>

#include "common/code/gpu_target.h"

#define SOURCE_TRITON_OPTIONS "Triton's AMD back end, HIPOptions"
#define SOURCE_TRITON_LANGUAGE "Triton's language, tl.arange"
#define VALUES_MAX 256 /* of one parameter that are looked at */

/* The facts that `when` may read. */
static const char *const fact_names[] = {"value",     "kind",   "triton",     "arch",    "is_amd",
                                         "warp_size", "arange", "atomic_add", "language"};
enum {
  FACT_VALUE,
  FACT_KIND,
  FACT_TRITON,
  FACT_ARCH,
  FACT_IS_AMD,
  FACT_WARP_SIZE,
  FACT_ARANGE,
  FACT_ATOMIC_ADD,
  FACT_LANGUAGE,
  N_FACTS
};

enum rule_scope {
  RULE_EACH,    /* a finding for the values for which `when` is true */
  RULE_MISSING, /* a finding when `when` is true, and `wanted` for no value */
  RULE_ABSENT,  /* a finding when `when` is true and the space has no such parameter */
};

struct rule {
  const char *parameter; /* "*": every one */
  enum rule_scope scope;
  enum review_severity severity;
  const char *when, *wanted;
  const char *sentence, *source;
};

#define OLD_TRITON "is_amd and 0 < triton < 302"
#define TRITON_ON_AMD "language == 'triton' and is_amd"
#define NEW_TRITON "is_amd and (triton == 0 or triton >= 302)"

static const struct rule rules[] = {
    {"num_stages", RULE_EACH, REVIEW_REFUSED, "is_amd and triton >= 302 and value == 0", NULL,
     "Triton refuses it since 3.2, where 2 means what 0 meant before", SOURCE_AMD_GUIDE},
    {"num_stages", RULE_EACH, REVIEW_HINT, "is_amd and triton == 0 and value == 0", NULL,
     "Triton refuses it since 3.2, where 2 means what 0 meant before", SOURCE_AMD_GUIDE},
    {"num_stages", RULE_EACH, REVIEW_REFUSED, "value < 0", NULL,
     "a number of stages cannot be negative", SOURCE_TRITON_OPTIONS},
    {"num_stages", RULE_MISSING, REVIEW_HINT, OLD_TRITON " and kind == 'gemm'", "value == 0",
     "before Triton 3.2, 0 is recommended for a kernel with one GEMM", SOURCE_AMD_GUIDE},
    {"num_stages", RULE_MISSING, REVIEW_HINT, NEW_TRITON " and kind == 'gemm'", "value == 2",
     "since Triton 3.2, 2 is recommended for a kernel with one GEMM", SOURCE_AMD_GUIDE},
    {"num_stages", RULE_MISSING, REVIEW_HINT, "is_amd and kind == 'fused'", "value == 1",
     "1 is recommended for compute-bound kernels with two fused GEMMs", SOURCE_AMD_GUIDE},
    {"num_stages", RULE_MISSING, REVIEW_HINT, NEW_TRITON " and kind == 'indirect'", "value == 3",
     "3 is recommended for loads whose addresses are loaded, so that both loads are ahead of their "
     "use",
     SOURCE_AMD_GUIDE},
    {"num_stages", RULE_ABSENT, REVIEW_HINT, TRITON_ON_AMD " and kind == 'fused'", NULL,
     "1 is recommended for compute-bound kernels with two fused GEMMs; the space does not have it",
     SOURCE_AMD_GUIDE},
    {"num_stages", RULE_ABSENT, REVIEW_HINT,
     TRITON_ON_AMD " and (triton == 0 or triton >= 302) and kind == 'indirect'", NULL,
     "3 is recommended for loads whose addresses are loaded; the space does not have it",
     SOURCE_AMD_GUIDE},
    {"num_warps", RULE_EACH, REVIEW_REFUSED,
     "language == 'triton' and (value < 1 or next_pow2(value) != value)", NULL,
     "num_warps must be a power of two", SOURCE_TRITON_OPTIONS},
    {"num_warps", RULE_EACH, REVIEW_REFUSED, "value * warp_size > 1024", NULL,
     "a workgroup has at most 1024 threads (16 waves of 64, 32 of 32)", SOURCE_TRITON_OPTIONS},
    {"num_ctas", RULE_EACH, REVIEW_REFUSED,
     "'gfx9' in arch and (triton == 0 or triton >= 306) and value > 1", NULL,
     "gfx9 has no clusters of workgroups, and Triton refuses it since 3.6", SOURCE_TRITON_OPTIONS},
    {"num_ctas", RULE_EACH, REVIEW_HINT, "'gfx9' in arch and 0 < triton < 306 and value > 1", NULL,
     "gfx9 has no clusters of workgroups", SOURCE_TRITON_OPTIONS},
    {"waves_per_eu", RULE_EACH, REVIEW_HINT, "is_amd and value > 8", NULL,
     "an EU holds at most 8 waves", SOURCE_AMD_GUIDE},
    {"matrix_instr_nonkdim", RULE_EACH, REVIEW_HINT, "value not in (0, 4, 16, 32)", NULL,
     "there are matrix instructions of 16x16 and 32x32 (and 4x4), 0 leaves the choice to Triton",
     SOURCE_TRITON_OPTIONS},
    {"matrix_instr_nonkdim", RULE_MISSING, REVIEW_HINT, "is_amd and kind == 'gemm'", "value == 16",
     "for a GEMM 16x16 instructions are faster on MI300X than 32x32", SOURCE_AMD_GUIDE},
    {"matrix_instr_nonkdim", RULE_MISSING, REVIEW_HINT, "is_amd and kind == 'fused'", "value == 32",
     "for two fused GEMMs 32x32 instructions may be faster", SOURCE_AMD_GUIDE},
    {"matrix_instr_nonkdim", RULE_ABSENT, REVIEW_HINT, TRITON_ON_AMD " and kind == 'gemm'", NULL,
     "role \"option\", value 16: for a GEMM 16x16 instructions are faster on MI300X than 32x32",
     SOURCE_AMD_GUIDE},
    {"matrix_instr_nonkdim", RULE_ABSENT, REVIEW_HINT, TRITON_ON_AMD " and kind == 'fused'", NULL,
     "role \"option\", value 32: for two fused GEMMs 32x32 instructions may be faster",
     SOURCE_AMD_GUIDE},
    {"kpack", RULE_EACH, REVIEW_HINT, "value not in (1, 2)", NULL, "kpack must be 1 or 2",
     SOURCE_TRITON_OPTIONS},
    {"kpack", RULE_EACH, REVIEW_REFUSED, "arch == 'gfx950' and triton == 304 and value != 1", NULL,
     "Triton 3.4 takes only 1 on gfx950", SOURCE_TRITON_OPTIONS},
    {"kpack", RULE_EACH, REVIEW_HINT,
     "arch == 'gfx950' and (triton == 303 or triton > 304) and value != 1", NULL,
     "Triton changes it to 1 on gfx950: these configs are measured twice", SOURCE_TRITON_OPTIONS},
    {"kpack", RULE_MISSING, REVIEW_HINT, "is_amd and arch != 'gfx950' and kind == 'gemm'",
     "value == 2", "for a GEMM 2 makes reads from LDS wider", SOURCE_AMD_GUIDE},
    {"kpack", RULE_ABSENT, REVIEW_HINT, TRITON_ON_AMD " and arch != 'gfx950' and kind == 'gemm'",
     NULL, "role \"option\", value 2: for a GEMM it makes reads from LDS wider", SOURCE_AMD_GUIDE},
    {"OPTIMIZE_EPILOGUE", RULE_ABSENT, REVIEW_HINT,
     TRITON_ON_AMD " and kind == 'gemm' and triton < 306 and not atomic_add", NULL,
     "role \"env\", value 1: removes the last conversion of the result's layout, which is better "
     "for most GEMMs",
     SOURCE_AMD_GUIDE},
    {"OPTIMIZE_EPILOGUE", RULE_EACH, REVIEW_WARNING, "atomic_add and value not in (0, '0', '')",
     NULL, "not for a kernel that ends in atomic_add", SOURCE_AMD_GUIDE},
    {"OPTIMIZE_EPILOGUE", RULE_EACH, REVIEW_HINT, "triton >= 306 and value not in (0, '0', '')",
     NULL, "Triton 3.6 does not read it and always runs the pass: these configs are measured twice",
     "Triton 3.6.0, compiler.py of its AMD back end"},
    {"*", RULE_EACH, REVIEW_REFUSED, "arange and (value < 1 or next_pow2(value) != value)", NULL,
     "tl.arange over it accepts only powers of two", SOURCE_TRITON_LANGUAGE},
};

/* Kinds. */

static const char *const kind_names[] = {
#define X(enumerator, name) name,
    KERNEL_KINDS(X)
#undef X
};

const char *kernel_kind_name(enum kernel_kind kind) { return kind_names[kind]; }

bool kernel_kind_parse(const char *name, enum kernel_kind *ret) {
  for (size_t i = 0; i < ARRAY_LENGTH(kind_names); i++) {
    if (string_equal(name, kind_names[i])) {
      *ret = (enum kernel_kind)i;
      return true;
    }
  }
  return false;
}

enum kernel_kind kernel_kind_guess(const struct kernel *kernel) {
  static const struct {
    const char *word;
    enum kernel_kind kind;
  } words[] = {
      {"paged", KIND_INDIRECT},  {"gather", KIND_INDIRECT}, {"embedding", KIND_INDIRECT},
      {"attention", KIND_FUSED}, {"attn", KIND_FUSED},      {"flash", KIND_FUSED},
      {"matmul", KIND_GEMM},     {"gemm", KIND_GEMM},
  };
  for (size_t i = 0; i < ARRAY_LENGTH(words); i++)
    if (strcasestr(kernel->name, words[i].word))
      return words[i].kind;

  /* 2 * M * N * K */
  cleanup_expr struct expr *flops = NULL;
  struct error error;
  size_t read = 0;
  bool is_bound = kernel->flops && expr_parse(kernel->flops, &flops, &error) &&
                  expr_bind(flops, KEY_NAMES(kernel), &error);
  for (size_t i = 0; is_bound && i < kernel->n_key_names; i++)
    read += expr_reads(flops, i);

  return read >= 3 ? KIND_GEMM : KIND_ELEMENTWISE;
}

static bool source_has(const struct kernel_folder *folder, const char *word) {
  const struct kernel *kernel = folder->kernel;
  for (size_t i = 0; i < folder->n_files; i++) {
    const struct kernel_file *file = &folder->files[i];
    for (size_t j = 0; j < kernel->n_sources; j++)
      if (string_equal(kernel->sources[j].path, file->path) &&
          memmem(file->bytes, file->size, word, strlen(word)))
        return true;
  }
  return false;
}

/* Whether the source has tl.arange(…, NAME). */
static bool source_has_arange_over(const struct kernel_folder *folder, const char *name) {
  for (size_t i = 0; i < folder->n_files; i++) {
    const char *at = folder->files[i].bytes, *end = at + folder->files[i].size;
    while ((at = memmem(at, (size_t)(end - at), "tl.arange(", 10))) {
      at += 10;
      const char *close = memchr(at, ')', (size_t)(end - at));
      const char *comma = close ? memrchr(at, ',', (size_t)(close - at)) : NULL;
      if (!comma)
        continue;
      const char *argument = comma + 1;
      while (argument < close && isspace((unsigned char)*argument))
        argument++;
      if ((size_t)(close - argument) == strlen(name) && memcmp(argument, name, strlen(name)) == 0)
        return true;
    }
  }

  return false;
}

/* The distinct values of a parameter that some config has. Strings are borrowed from the space. */
struct values {
  size_t n;
  struct value values[VALUES_MAX];
};

static void values_add(struct values *values, struct value value) {
  for (size_t i = 0; i < values->n; i++)
    if (value_equal(values->values[i], value))
      return;
  if (values->n < VALUES_MAX)
    values->values[values->n++] = value;
}

/* Computes a config's workgroup from the manifest's expressions. An expression that reads facts of
 * a device is left out. */
struct geometry {
  const struct gpu_target *target; /* NULL: not known */
  size_t n_names;
  const char *names[KEY_MEMBERS_MAX + SPACE_PARAMETERS_MAX + 3];
  struct value slots[KEY_MEMBERS_MAX + SPACE_PARAMETERS_MAX + 3];
  struct value *config;    /* in slots: the values of the parameters */
  struct value *num_warps; /* in slots; NULL: none */
  size_t n_exprs;
  struct expr *exprs[4]; /* shared bytes, then the extents of a block; NULL: left out */
  uint64_t too_large;
  char *first; /* the first config that is too large, and why */
};

static void geometry_release(struct geometry *geometry) {
  for (size_t i = 0; i < geometry->n_exprs; i++)
    if (geometry->exprs[i])
      expr_free(geometry->exprs[i]);
  free(geometry->first);
}

static struct value *name_add(struct geometry *geometry, const char *name, struct value value) {
  geometry->names[geometry->n_names] = name;
  geometry->slots[geometry->n_names] = value;
  return &geometry->slots[geometry->n_names++];
}

static void expr_add(struct geometry *geometry, const char *text) {
  cleanup_expr struct expr *expr = NULL;
  struct error error;
  bool is_bound = text && expr_parse(text, &expr, &error) &&
                  expr_bind(expr, geometry->names, geometry->n_names, &error);
  geometry->exprs[geometry->n_exprs++] = is_bound ? TAKE(expr) : NULL;
}

static void geometry_make(const struct knob_question *question, struct geometry *geometry) {
  const struct kernel *kernel = question->folder->kernel;
  const struct space *space = question->folder->space;
  const char *arch = question->arch ? question->arch : "";
  geometry->target = gpu_target_find(arch);
  for (size_t i = 0; question->key && i < question->key->n; i++)
    name_add(geometry, question->key->names[i], question->key->values[i]);
  name_add(geometry, "arch", value_string(arch));
  name_add(geometry, "gpu_name", value_string(question->gpu_name ? question->gpu_name : ""));

  /* Of the archs that are not in the table, only AMD's gfx9 have waves of 64 lanes. */
  int64_t lanes = string_starts(arch, "gfx9") ? 64 : 32;
  geometry->config =
      1 + name_add(geometry, "warp_size",
                   value_int(geometry->target ? geometry->target->warp_size : lanes));

  for (size_t i = 0; i < space->n_parameters; i++) {
    struct value *slot = name_add(geometry, space->parameters[i].name, value_none());
    if (kernel->language == LANGUAGE_TRITON && string_equal(space->parameters[i].name, "num_warps"))
      geometry->num_warps = slot;
  }

  expr_add(geometry, kernel->launch.shared_bytes);
  for (size_t i = 0; i < kernel->launch.n_block; i++)
    expr_add(geometry, kernel->launch.block[i]);
}

/* Whether the config whose values are in the slots fits a compute unit, as far as the manifest
 * shows. */
static bool geometry_fits(const struct geometry *geometry, struct error *error) {
  const int64_t threads_max = 1 << 20; /* so that products do not overflow */
  struct workgroup workgroup = {.threads = 1};
  struct error ignored;
  bool has_block = false;

  for (size_t i = 0; i < geometry->n_exprs; i++) {
    int64_t number;
    has_block |= i && geometry->exprs[i];
    if (!geometry->exprs[i] ||
        !expr_eval_int(geometry->exprs[i], geometry->slots, i > 0, INT64_MAX, &number, &ignored))
      continue;
    if (i)
      workgroup.threads *= number < threads_max ? number : threads_max;
    else
      workgroup.lds_bytes = number;
  }

  const struct value *warps = geometry->num_warps;
  if (!has_block && warps && warps->type == VALUE_INT && warps->integer >= 1)
    workgroup.threads =
        (warps->integer < threads_max ? warps->integer : threads_max) * geometry->target->warp_size;

  return workgroup_fits(geometry->target, &workgroup, error);
}

/* Walks the valid configs and collects their values and the configs that do not fit. *ret_walked is
 * false when there are too many configs. */
static bool configs_walk(const struct knob_question *question, struct geometry *geometry,
                         struct values *values, bool *ret_walked, struct error *error) {
  const struct space *space = question->folder->space;
  struct space_facts facts = {
      .key = question->key, .gpu_name = question->gpu_name, .arch = question->arch};
  cleanup_space_iterator struct space_iterator *iterator = NULL;
  if (!space_iterator_new(space, &facts, SPACE_STEP_LIMIT_DEFAULT, &iterator, error))
    return false;

  uint64_t ordinal, n = 0;
  enum space_step step;
  while ((step = space_iterator_next(iterator, &ordinal, error)) == SPACE_POINT &&
         ++n <= KNOB_POINTS_MAX) {
    struct error why;
    ALWAYS(space_config(space, ordinal, geometry->config));
    for (size_t i = 0; i < space->n_parameters; i++)
      values_add(&values[i], geometry->config[i]);
    if (geometry->target && !geometry_fits(geometry, &why) && geometry->too_large++ == 0) {
      cleanup_free char *text = space_config_format(space, ordinal);
      geometry->first = xasprintf("%s: %s", text, why.message);
    }
  }

  *ret_walked = n <= KNOB_POINTS_MAX;
  return step != SPACE_ERROR;
}

/* Rules. */

static bool rule_applies(const char *when, const struct value facts[N_FACTS]) {
  cleanup_expr struct expr *expr = NULL;
  struct error error;
  struct value result;
  if (!expr_parse(when, &expr, &error) || !expr_bind(expr, fact_names, N_FACTS, &error))
    die("knob rule \"%s\": %s", when, error.message);
  /* A value of another type than the rule expects (a string, None) is an error: then the rule does
   * not apply. */
  return expr_eval(expr, facts, &result, &error) && value_is_true(result);
}

static void rule_run(const struct rule *rule, const struct knob_question *question,
                     const struct values *values, struct value facts[N_FACTS],
                     struct review_findings *findings) {
  const struct kernel_folder *folder = question->folder;
  bool is_absent = true;
  for (size_t i = 0; i < folder->space->n_parameters; i++) {
    const char *name = folder->space->parameters[i].name;
    /* Kernels in hip and c have options as macros, in capitals. */
    if (strcasecmp(rule->parameter, name) != 0 && !string_equal(rule->parameter, "*"))
      continue;
    is_absent = false;
    facts[FACT_VALUE] = value_none();
    facts[FACT_ARANGE] = value_bool(folder->kernel->language == LANGUAGE_TRITON &&
                                    source_has_arange_over(folder, name));

    bool is_missing = rule->scope == RULE_MISSING && rule_applies(rule->when, facts);
    cleanup_free char *list = xstrdup("");
    for (size_t j = 0; j < values[i].n; j++) {
      facts[FACT_VALUE] = values[i].values[j];
      if (is_missing && rule_applies(rule->wanted, facts))
        is_missing = false;
      if (rule->scope != RULE_EACH || !rule_applies(rule->when, facts))
        continue;
      cleanup_free char *text = value_format(facts[FACT_VALUE], true);
      text_append(&list, "%s%s", list[0] ? ", " : "", text);
    }
    if (list[0])
      review_find(findings, rule->severity, rule->source, "%s = %s: %s", name, list,
                  rule->sentence);
    if (is_missing)
      review_find(findings, rule->severity, rule->source, "%s: %s; the space does not have it",
                  name, rule->sentence);
  }

  facts[FACT_VALUE] = value_none();
  facts[FACT_ARANGE] = value_bool(false);
  if (is_absent && rule->scope == RULE_ABSENT && rule_applies(rule->when, facts))
    review_find(findings, rule->severity, rule->source, "%s: %s", rule->parameter, rule->sentence);
}

/* waves_per_eu makes the compiler save registers until that number of waves fits, which is useful
 * only where the code has a few registers too many. */
static void find_boundaries(const struct knob_question *question, const struct gpu_target *target,
                            const char *parameter, struct review_findings *findings) {
  size_t near = 0, known = 0;
  int64_t nearest = INT64_MAX, nearest_registers = 0, nearest_waves = 0;
  for (size_t i = 0; i < question->n_resources; i++) {
    int64_t registers = question->resources[i].vgprs;
    struct error ignored;
    struct workgroup wave = {.threads = target->warp_size, .registers = registers};
    if (registers <= 0 || !workgroup_fits(target, &wave, &ignored))
      continue;
    known++;

    int64_t waves = occupancy_of(target, &wave).waves_per_eu_by_registers + 1;
    if (waves > target->waves_per_eu_max)
      continue;
    int64_t boundary =
        target->registers_per_eu / waves / target->register_granule * target->register_granule;
    int64_t above = registers - boundary;
    near += above <= OCCUPANCY_REGISTERS_NEAR;

    if (above < nearest) {
      nearest = above;
      nearest_registers = registers;
      nearest_waves = waves;
    }
  }

  if (near)
    review_find(findings, REVIEW_HINT, SOURCE_AMD_GUIDE,
                "%s is useful for %zu of %zu objects, which are at most %d VGPRs above a boundary "
                "of occupancy (the nearest one has %" PRId64 " VGPRs, %" PRId64
                " above the %" PRId64 " at which %" PRId64 " waves fit an EU)",
                parameter, near, known, OCCUPANCY_REGISTERS_NEAR, nearest_registers, nearest,
                nearest_registers - nearest, nearest_waves);
  else if (known)
    review_find(findings, REVIEW_HINT, SOURCE_AMD_GUIDE,
                "%s: none of %zu objects is at most %d VGPRs above a boundary of occupancy, so "
                "that values above 0 cause spills or have no effect",
                parameter, known, OCCUPANCY_REGISTERS_NEAR);
  else
    review_find(findings, REVIEW_HINT, SOURCE_AMD_GUIDE,
                "%s: useful only where registers limit the occupancy and are a few above a "
                "boundary; check a build to see its objects' registers",
                parameter);
}

bool knob_hints_find(const struct knob_question *question, struct review_findings *findings,
                     struct error *error) {
  const struct kernel_folder *folder = question->folder;
  const struct space *space = folder->space;
  cleanup_by(geometry_release) struct geometry geometry = {0};
  cleanup_free struct values *values = xcalloc(space->n_parameters, sizeof *values);
  bool walked = false;
  geometry_make(question, &geometry);
  if ((question->key || !folder->kernel->n_key_names) &&
      !configs_walk(question, &geometry, values, &walked, error))
    return false;

  for (size_t p = 0; !walked && p < space->n_parameters; p++) {
    for (size_t i = 0; i < space->parameters[p].n_values; i++)
      values_add(&values[p], space->parameters[p].values[i]);
    for (uint64_t i = 0; space->is_list && i < space->raw_count; i++)
      values_add(&values[p], space->list[i * space->n_parameters + p]);
  }

  const char *arch = question->arch ? question->arch : "";
  bool is_amd = geometry.target ? geometry.target->is_amd : string_starts(arch, "gfx");
  struct value facts[N_FACTS] = {
      [FACT_KIND] = value_string(kernel_kind_name(question->kind)),
      [FACT_TRITON] = value_int(question->triton),
      [FACT_ARCH] = value_string(arch),
      [FACT_IS_AMD] = value_bool(is_amd),
      [FACT_WARP_SIZE] = geometry.config[-1],
      [FACT_ATOMIC_ADD] = value_bool(source_has(folder, "atomic_add")),
      [FACT_LANGUAGE] = value_string(language_name(folder->kernel->language)),
  };

  for (size_t i = 0; i < ARRAY_LENGTH(rules); i++)
    rule_run(&rules[i], question, values, facts, findings);
  for (size_t i = 0; is_amd && geometry.target && i < space->n_parameters; i++) {
    const char *name = space->parameters[i].name;
    bool is_set = false;
    for (size_t j = 0; j < values[i].n; j++)
      is_set |= values[i].values[j].type == VALUE_INT && values[i].values[j].integer > 0;
    if (is_set && strcasecmp(name, "waves_per_eu") == 0)
      find_boundaries(question, geometry.target, name, findings);
  }

  if (geometry.too_large)
    review_find(findings, REVIEW_REFUSED, "limits of the arch",
                "%" PRIu64 " configs cannot run; the first: %s", geometry.too_large,
                geometry.first);

  return true;
}
