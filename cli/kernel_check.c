/* wavetune kernel check: what compiled code needs of a GPU and how it uses it, whether a kernel folder holds together,
 * whether a build is whole; with the guides' advice, without a server and without a GPU. */
#include <sys/stat.h>

#include "cli/check.h"

void check_finish(struct check *check, json_t *answer, const struct review_findings *findings) {
  bool is_refused = review_count(findings, REVIEW_REFUSED) > 0;
  check->is_refused = check->is_refused || is_refused;
  if (check->as_json) {
    ALWAYS(json_object_set_new(answer, "findings", review_findings_to_json(findings)) == 0);
    ALWAYS(json_object_set_new(answer, "refused", json_boolean(is_refused)) == 0);
    ALWAYS(json_array_append(check->answers, answer) == 0);
  } else {
    review_findings_print(findings, stdout);
  }
  json_decref(answer);
}

void check_refuse(struct check *check, const char *place, const char *what, const struct error *why) {
  struct review_findings findings = {0};
  if (why->pointer[0])
    review_find(&findings, REVIEW_REFUSED, what, "%s (at %s)", why->message, why->pointer);
  else
    review_find(&findings, REVIEW_REFUSED, what, "%s", why->message);
  if (!check->as_json)
    printf("%s\n", place);
  check_finish(check, json_pack("{s:s, s:s}", "place", place, "what", what), &findings);
  review_findings_release(&findings);
}

bool check_kind(const struct check *check, const struct kernel *kernel, enum kernel_kind *ret, bool *ret_is_guess,
                struct error *error) {
  const char *name = option_text(check->options, "kind");
  *ret_is_guess = !name;
  if (!name) {
    *ret = kernel_kind_guess(kernel);
    return true;
  }
  return kernel_kind_parse(name, ret) ||
         error_set(error, "--kind is gemm, fused, indirect or elementwise, not \"%s\"", name);
}

static bool is_file(const char *path) {
  struct stat status;
  return stat(path, &status) == 0 && S_ISREG(status.st_mode);
}

static bool place_check(struct check *check, const char *place, struct error *error) {
  cleanup_free char *build = xasprintf("%s/build.json", place);
  if (check->as_json && !json_can_hold(place))
    return error_set(error, "%s: JSON cannot hold a name that is no UTF-8; rename it, or leave --json out", place);
  if (is_file(place))
    return check_file(check, place, error);
  return is_file(build) ? check_build(check, place, error) : check_folder(check, place, error);
}

static int command_kernel_check(struct options *options) {
  char *const *places;
  struct error error;
  size_t n = options_arguments(options, &places);
  if (n == 0) {
    error_set(&error, "name a code object, a .ttgir file, a kernel folder or the folder of a build");
    return cli_fail(EXIT_USAGE, &error);
  }
  cleanup_json json_t *answers = json_array();
  struct check check = {.options = options, .as_json = option_flag(options, "json"), .answers = answers};
  for (size_t i = 0; i < n; i++) {
    if (i && !check.as_json)
      putchar('\n');
    if (!place_check(&check, places[i], &error))
      return cli_fail(EXIT_USAGE, &error);
  }
  if (check.as_json)
    cli_print_json(answers);
  return check.is_refused ? EXIT_FAILED : EXIT_OK;
}

static const struct option_spec check_options[] = {
    {.name = "warps",
     .type = OPTION_INTEGER,
     .argument = "N",
     .default_text = "0",
     .max = 1024,
     .help = "waves of a workgroup, for a code object's occupancy (those it was compiled for)",
     .flag_only = true},
    {.name = "shared",
     .type = OPTION_INTEGER,
     .argument = "BYTES",
     .default_text = "0",
     .max = INT32_MAX,
     .help = "LDS that a launch adds (Triton's `shared`), for a code object's occupancy",
     .flag_only = true},
    {.name = "key",
     .type = OPTION_TEXT,
     .argument = "NAME=VALUE,…",
     .help = "a key, for a kernel folder: which configs hold and fit",
     .flag_only = true},
    {.name = "arch",
     .type = OPTION_TEXT,
     .argument = "ARCH",
     .default_text = CHECK_ARCH_DEFAULT,
     .help = "what a kernel folder's space is for",
     .flag_only = true},
    {.name = "gpu-name", .type = OPTION_TEXT, .argument = "NAME", .help = "gpu_name for conditions", .flag_only = true},
    {.name = "triton",
     .type = OPTION_TEXT,
     .argument = "VERSION",
     .help = "the Triton that compiles a kernel folder, e.g. 3.6.0",
     .flag_only = true},
    {.name = "kind",
     .type = OPTION_TEXT,
     .argument = "KIND",
     .help = "gemm, fused, indirect or elementwise (guessed from name and flops)",
     .flag_only = true},
    {.name = "kernel",
     .type = OPTION_TEXT,
     .argument = "DIR[:VERSION]",
     .help = "the kernel folder of a build: arguments are compared, its space gets hints",
     .flag_only = true},
    OPTION_JSON,
};

const struct command_spec spec_kernel_check = {
    .name = "kernel check",
    .arguments = "FILE|DIR[:VERSION]|BUILD_FOLDER…",
    .summary = "check code objects, kernel folders and builds, with advice",
    .description =
        "A code object: what its notes say of each kernel, the occupancy, and a review of its instructions.\n"
        "A disassembly (llvm-objdump -d): the review of its instructions.\n"
        "TTGIR, a module or lines of one: trips through LDS, conversions of layouts, transposes, dots.\n"
        "A kernel folder: whether manifest and space hold together, and what AMD's guide says of its values.\n"
        "A build: whether every object is whole, takes its arguments, and can run.\n"
        "Exits with 1 when something is refused.",
    .options = check_options,
    .n_options = ARRAY_LENGTH(check_options),
    .run = command_kernel_check,
};
