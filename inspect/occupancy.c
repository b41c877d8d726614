/* wavetune occupancy: how many workgroups of a kernel a compute unit holds at once, what limits
 * them, and how many registers fewer would allow more waves; from numbers or from a code object. */
#include <inttypes.h>

#include "common/base/error.h"
#include "common/base/file.h"
#include "common/code/gpu_target.h"
#include "common/program/cli.h"
#include "inspect/findings.h"

#define CODE_BYTES_MAX ((size_t)256 << 20)

/* The two vendors' words for the same things. */
struct words {
  const char *waves, *workgroups, *unit, *eu, *lds;
};
static const struct words amd_words = {"waves", "workgroups", "CU", "EU", "LDS"};
static const struct words nvidia_words = {"warps", "blocks", "multiprocessor", "quarter",
                                          "shared memory"};

/* The workgroup whose occupancy is computed. */
struct subject {
  const struct gpu_target *target;
  struct workgroup workgroup;
  struct code_object *object;       /* NULL: from numbers */
  const struct code_kernel *kernel; /* of object */
  bool is_threads_compiled_for;     /* its threads are the most that the code was compiled for */
};

static void subject_release(struct subject *subject) {
  if (subject->object)
    code_object_free(subject->object);
}

static bool find_target(const char *arch, const struct gpu_target **ret, struct error *error) {
  *ret = gpu_target_find(arch);
  if (*ret)
    return true;
  size_t n;
  const struct gpu_target *targets = gpu_targets(&n);
  cleanup_free char *list = xstrdup("");
  for (size_t i = 0; i < n; i++)
    text_append(&list, "%s%s", i ? ", " : "", targets[i].arch);
  return error_set(error, "the limits of \"%s\" are not known; known are %s", arch, list);
}

static bool subject_load(const struct options *options, struct subject *ret, struct error *error) {
  char *const *arguments;
  size_t n = options_arguments(options, &arguments), size;
  const char *arch = option_text(options, "arch"), *kernel = option_text(options, "kernel");
  int64_t vgprs = option_integer(options, "vgprs"), lds_bytes = option_integer(options, "lds"),
          shared = option_integer(options, "shared"), warps = option_integer(options, "warps"),
          threads = option_integer(options, "threads");
  if (n > 1)
    return error_set(error, "name one code object");
  if (n && (arch || vgprs || lds_bytes))
    return error_set(error, "a code object states --arch, --vgprs and --lds itself; --shared adds "
                            "what the launch requests");
  if (!n && (kernel || shared))
    return error_set(error, "--kernel and --shared belong to a code object, and none is named");
  if (!n && !arch)
    return error_set(
        error, "name a code object, or give --arch with --vgprs, --lds and --warps or --threads");

  ret->workgroup = (struct workgroup){.registers = vgprs, .lds_bytes = lds_bytes};
  if (n) {
    cleanup_free char *bytes = NULL;
    if (!file_read(arguments[0], CODE_BYTES_MAX, &bytes, &size, error))
      return false;
    if (!code_object_parse(bytes, size, &ret->object, error) ||
        !code_object_kernel(ret->object, kernel, &ret->kernel, error) ||
        !find_target(ret->object->target, &ret->target, error))
      return error_prefix(error, "%s: ", arguments[0]);
    ret->workgroup.registers = ret->kernel->resources.vgprs;
    ret->workgroup.lds_bytes = ret->kernel->resources.lds_bytes + shared;
  } else if (!find_target(arch, &ret->target, error)) {
    return false;
  }

  if (threads && warps)
    return error_set(error, "give --threads or --warps, not both");

  ret->workgroup.threads = threads ? threads : warps * ret->target->warp_size;
  if (ret->workgroup.threads)
    return true;
  if (!n)
    return error_set(error, "give the size of a workgroup: --warps or --threads");

  ret->is_threads_compiled_for = true;
  ret->workgroup.threads = ret->kernel->resources.workgroup_max;
  return ret->workgroup.threads != CODE_UNKNOWN ||
         error_set(
             error,
             "%s does not state for how many threads %s was compiled; give --warps or --threads",
             arguments[0], ret->kernel->name);
}

static int64_t waves_of(const struct subject *subject) {
  return (subject->workgroup.threads + subject->target->warp_size - 1) / subject->target->warp_size;
}

static void advise(const struct subject *subject, const struct occupancy *occupancy,
                   int64_t more_registers, struct review_findings *findings) {
  const struct gpu_target *target = subject->target;
  struct workgroup workgroup = subject->workgroup;
  int64_t registers = workgroup.registers, fewer = registers - more_registers;
  if (target->is_amd && more_registers) {
    workgroup.registers = more_registers;
    int64_t waves = occupancy_of(target, &workgroup).waves_per_eu_by_registers;
    if (fewer <= OCCUPANCY_REGISTERS_NEAR)
      review_find(findings, REVIEW_HINT, SOURCE_AMD_GUIDE,
                  "waves_per_eu=%" PRId64 " is worth a try: %" PRId64 " registers are only %" PRId64
                  " above the boundary",
                  waves, registers, fewer);
    else
      review_find(findings, REVIEW_HINT, SOURCE_AMD_GUIDE,
                  "waves_per_eu=%" PRId64
                  " does not help: it is for code a few registers above a boundary, and %" PRId64
                  " are %" PRId64 " above; the compiler would spill",
                  waves, registers, fewer);
  }

  int64_t granule = target->lds_granule_bytes,
          blocks = (workgroup.lds_bytes + granule - 1) / granule;
  if (target->is_amd && blocks > 0) {
    int64_t fitting = target->lds_bytes_per_cu / (blocks * granule);
    if (fitting < occupancy->workgroups_per_cu)
      review_find(findings, REVIEW_HINT, "LLVM, AMDGPU user guide: LDS_SIZE of COMPUTE_PGM_RSRC2",
                  "LDS is allocated in blocks of %" PRId64
                  " bytes, which AMD's rule does not count: with them a compute unit holds %" PRId64
                  " workgroups",
                  granule, fitting);
  }

  if (target->is_amd && occupancy->limit == OCCUPANCY_LIMIT_LDS)
    review_find(findings, REVIEW_HINT, SOURCE_AMD_GUIDE,
                "waves_per_eu does not help: LDS limits the occupancy, not registers");

  const struct code_resources *resources =
      subject->kernel ? &subject->kernel->resources : &code_resources_unknown;
  if (resources->vgpr_spills > 0 || resources->sgpr_spills > 0)
    review_find(findings, REVIEW_WARNING, SOURCE_AMD_ISA,
                "%" PRId64
                " registers are spilled; more waves with fewer registers will spill more",
                code_resources_spills(resources));
  else if (resources->scratch_bytes > 0)
    review_find(
        findings, REVIEW_WARNING,
        target->is_amd ? SOURCE_AMD_ISA : "CUDA C++ Programming Guide: local memory",
        "%" PRId64
        " bytes per thread are in memory: spilled registers, or arrays with computed indexes",
        resources->scratch_bytes);
}

static json_t *subject_to_json(const struct subject *subject) {
  json_t *json =
      json_pack("{s:s, s:{s:I, s:I, s:I}}", "arch", subject->target->arch, "workgroup", "threads",
                (json_int_t)subject->workgroup.threads, "waves", (json_int_t)waves_of(subject),
                "lds_bytes", (json_int_t)subject->workgroup.lds_bytes);
  if (subject->workgroup.registers > 0)
    json_put(json_object_get(json, "workgroup"), "vgprs",
             json_integer(subject->workgroup.registers));
  if (subject->kernel) {
    json_put(json, "kernel", json_string(subject->kernel->name));
    json_put(json, "resources", code_resources_to_json(&subject->kernel->resources));
  }

  return json;
}

static void print_json(const struct subject *subject, const struct occupancy *occupancy,
                       int64_t more_registers, const struct review_findings *findings) {
  cleanup_json json_t *json = subject_to_json(subject);

  json_object_update_new(
      json, json_pack("{s:b, s:f, s:I, s:I, s:o, s:s, s:o, s:o}", "fits", 1, "waves_per_eu",
                      occupancy->waves_per_eu, "workgroups_per_cu",
                      (json_int_t)occupancy->workgroups_per_cu, "waves_per_eu_by_registers",
                      (json_int_t)occupancy->waves_per_eu_by_registers, "workgroups_by_lds",
                      occupancy->workgroups_by_lds == INT64_MAX
                          ? json_null()
                          : json_integer(occupancy->workgroups_by_lds),
                      "limit", occupancy_limit_name(occupancy->limit), "vgprs_for_more",
                      more_registers ? json_integer(more_registers) : json_null(), "advice",
                      review_findings_to_json(findings)));
  cli_print_json(json);
}

static const struct words *words_of(const struct subject *subject) {
  return subject->target->is_amd ? &amd_words : &nvidia_words;
}

static void print_subject(const struct subject *subject) {
  const struct workgroup *workgroup = &subject->workgroup;
  const struct words *words = words_of(subject);
  if (subject->kernel) {
    cleanup_free char *name = name_plain(subject->kernel->name, strlen(subject->kernel->name));
    printf("%s, %s\n", name, subject->target->arch);
  } else {
    printf("%s\n", subject->target->arch);
  }

  printf("  %" PRId64 " threads (%" PRId64 " %s)%s, ", workgroup->threads, waves_of(subject),
         words->waves, subject->is_threads_compiled_for ? ", the most it was compiled for" : "");
  if (workgroup->registers > 0)
    printf("%" PRId64 " registers, ", workgroup->registers);
  printf("%" PRId64 " bytes of %s\n", workgroup->lds_bytes, words->lds);
}

static void print_text(const struct subject *subject, const struct occupancy *occupancy,
                       int64_t more_registers, const struct review_findings *findings) {
  const struct words *words = words_of(subject);
  print_subject(subject);
  printf("  %" PRId64 " %s per %s, %g of %" PRId64 " %s per %s\n", occupancy->workgroups_per_cu,
         words->workgroups, words->unit, occupancy->waves_per_eu, subject->target->waves_per_eu_max,
         words->waves, words->eu);

  switch (occupancy->limit) {
  case OCCUPANCY_LIMIT_WAVES:
    printf("  limited by the slots for %s and %s, not by registers or %s\n", words->waves,
           words->workgroups, words->lds);
    break;
  case OCCUPANCY_LIMIT_REGISTERS:
    printf("  limited by registers: those of %" PRId64 " %s per %s fit\n",
           occupancy->waves_per_eu_by_registers, words->waves, words->eu);
    break;
  case OCCUPANCY_LIMIT_LDS:
    printf("  limited by %s: a %s has %" PRId64 " bytes\n", words->lds, words->unit,
           subject->target->lds_bytes_per_cu);
    break;
  }

  if (more_registers) {
    struct workgroup smaller = subject->workgroup;
    smaller.registers = more_registers;
    printf("  with %" PRId64 " registers, %" PRId64 " fewer: %g %s per %s\n", more_registers,
           subject->workgroup.registers - more_registers,
           occupancy_of(subject->target, &smaller).waves_per_eu, words->waves, words->eu);
  }

  review_findings_print(findings, stdout);
}

static int command_occupancy(struct options *options) {
  cleanup_by(subject_release) struct subject subject = {0};
  bool as_json = option_flag(options, "json");
  struct error error;
  if (!subject_load(options, &subject, &error))
    cli_fail(EXIT_USAGE, &error);
  if (!workgroup_fits(subject.target, &subject.workgroup, &error)) {
    cleanup_json json_t *json = subject_to_json(&subject);
    json_put(json, "fits", json_false());
    json_put(json, "reason", json_string(error.message));
    if (as_json) {
      cli_print_json(json);
    } else {
      print_subject(&subject);
      printf("  cannot run: the workgroup %s\n", error.message);
    }
    return EXIT_FAILED;
  }

  /* The most registers with which more waves fit; 0: fewer registers do not help. */
  struct occupancy occupancy = occupancy_of(subject.target, &subject.workgroup);
  struct workgroup smaller = subject.workgroup;
  while (--smaller.registers > 0 &&
         occupancy_of(subject.target, &smaller).waves_per_eu <= occupancy.waves_per_eu)
    continue;
  int64_t more_registers = smaller.registers > 0 ? smaller.registers : 0;
  struct review_findings findings = {0};
  advise(&subject, &occupancy, more_registers, &findings);
  (as_json ? print_json : print_text)(&subject, &occupancy, more_registers, &findings);
  review_findings_release(&findings);

  return EXIT_OK;
}

static const struct option_spec occupancy_options[] = {
    CLI_TEXT("arch", "ARCH", "gfx90a, gfx942, gfx950, sm_80 or sm_90"),
    CLI_INTEGER("vgprs", "N", "0", 0, 1024,
                "registers per thread, AGPRs included (0: they do not limit)"),
    CLI_INTEGER("lds", "BYTES", "0", 0, INT32_MAX, "LDS or shared memory per workgroup"),
    CLI_INTEGER("warps", "N", "0", 0, 1024, "waves per workgroup (num_warps)"),
    CLI_INTEGER("threads", "N", "0", 0, 65536, "threads per workgroup, instead of --warps"),
    CLI_TEXT("kernel", "NAME", "the kernel of FILE, where there are several"),
    CLI_INTEGER("shared", "BYTES", "0", 0, INT32_MAX,
                "LDS that the launch adds to that of FILE (Triton's \"shared\")"),
    OPTION_JSON,
};

CLI_COMMAND(occupancy, "occupancy", "[FILE]", occupancy_options,
            "print how many workgroups of a kernel a compute unit holds, and what limits them",
            .description =
                "FILE is an AMDGPU code object (.hsaco, .co) or a CUDA cubin; its registers, "
                "LDS and size of a workgroup are read from it. Without one, --arch, --vgprs, "
                "--lds and --warps state them.\n"
                "AMD GPUs follow the rule of AMD's guide with the compiler's allocation unit of "
                "8 registers, NVIDIA GPUs CUDA's occupancy calculator. Exits with 1 when the "
                "workgroup cannot run at all.");
