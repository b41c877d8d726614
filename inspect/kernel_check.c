/* wavetune kernel check: what compiled code needs of a GPU and how it uses it, whether a kernel
 * folder holds together, whether a build is whole; with the guides' advice, without a server and
 * without a GPU. */
#include <inttypes.h>
#include <sys/stat.h>

#include "common/base/file.h"
#include "inspect/build_review.h"
#include "inspect/check.h"
#include "inspect/knob_hints.h"

#define BLOB_BYTES_MAX ((size_t)64 << 20)

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

void check_refuse(struct check *check, const char *place, const char *what,
                  const struct error *why) {
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

/* --kind, else what the kernel's name and flops suggest; *ret_is_guess tells which. */
static bool check_kind(const struct check *check, const struct kernel *kernel,
                       enum kernel_kind *ret, bool *ret_is_guess, struct error *error) {
  const char *name = option_text(check->options, "kind");
  *ret_is_guess = !name;
  if (!name) {
    *ret = kernel_kind_guess(kernel);
    return true;
  }
  return kernel_kind_parse(name, ret) ||
         error_set(error, "--kind is gemm, fused, indirect or elementwise, not \"%s\"", name);
}

/* A kernel folder, "DIR" or "DIR:VERSION" */

/* A key whose members have no values: enough to see that every expression reads names that there
 * are. */
static struct key key_without_values(const struct kernel *kernel) {
  struct key key = {.n = kernel->n_key_names,
                    .names = xcalloc(kernel->n_key_names, sizeof *key.names),
                    .values = xcalloc(kernel->n_key_names, sizeof *key.values)};
  for (size_t i = 0; i < key.n; i++) {
    key.names[i] = xstrdup(kernel->key_names[i]);
    key.values[i] = value_none();
  }
  return key;
}

static bool place_exists(const char *place) {
  struct stat status;
  const char *colon = strrchr(place, ':');
  cleanup_free char *folder = colon ? xstrndup(place, (size_t)(colon - place)) : xstrdup(place);
  return stat(place, &status) == 0 || stat(folder, &status) == 0;
}

/* How many configs hold, and whether the default does. */
static void configs_check(const struct check *check, const struct kernel_folder *folder,
                          const struct key *key, json_t *answer, struct review_findings *findings) {
  struct space_facts facts = {.key = key,
                              .gpu_name = option_text(check->options, "gpu-name"),
                              .arch = option_text(check->options, "arch")};
  const struct space *space = folder->space;
  uint64_t count;
  struct error error;
  bool holds = true;
  if (!space_count(space, &facts, SPACE_STEP_LIMIT_DEFAULT, UINT64_MAX, &count, &error) ||
      (space->has_default && !space_holds(space, &facts, space->default_ordinal, &holds, &error))) {
    review_find(findings, REVIEW_REFUSED, "the space's conditions", "%s", error.message);
    return;
  }
  cleanup_free char *key_text = key_format(key);
  if (count == 0)
    review_find(findings, REVIEW_REFUSED, "the space's conditions", "no config holds for %s",
                key_text);
  else if (!holds)
    review_find(findings, REVIEW_WARNING, "the space's conditions",
                "the default config does not hold for %s: another one becomes the baseline",
                key_text);
  ALWAYS(json_object_set_new(answer, "configs", json_integer((json_int_t)count)) == 0);
  if (!check->as_json)
    printf("  %" PRIu64 " of %" PRIu64 " configs hold for %s on %s\n", count, space->raw_count,
           key_text, facts.arch);
}

static bool hints_check(const struct check *check, const struct kernel_folder *folder,
                        const struct key *key, json_t *answer, struct review_findings *findings,
                        struct error *error) {
  struct knob_question question = {
      .folder = folder,
      .key = key,
      .arch = option_text(check->options, "arch"),
      .gpu_name = option_text(check->options, "gpu-name"),
      .triton = triton_version_number(option_text(check->options, "triton"))};
  bool is_guess;
  struct error unheld;
  if (option_text(check->options, "triton") && !question.triton)
    return error_set(error, "--triton is a version like 3.6.0, not \"%s\"",
                     option_text(check->options, "triton"));
  if (!check_kind(check, folder->kernel, &question.kind, &is_guess, error))
    return false;
  ALWAYS(json_object_set_new(answer, "kind", json_string(kernel_kind_name(question.kind))) == 0);
  if (!check->as_json)
    printf("  kind: %s%s\n", kernel_kind_name(question.kind),
           is_guess ? " (guessed from name and flops)" : "");
  /* Conditions that cannot be evaluated were said by configs_check. */
  (void)!knob_hints_find(&question, findings, &unheld);
  return true;
}

static bool folder_report(struct check *check, const struct kernel_folder *folder,
                          const char *place, const struct key *key, struct error *error) {
  char hash[DIGEST_TEXT_SIZE];
  const struct kernel *kernel = folder->kernel;
  digest_format(&kernel->hash, hash);
  struct review_findings findings = {0};
  json_t *answer = json_pack("{s:s, s:s, s:s, s:s, s:s, s:I}", "place", place, "what", "kernel",
                             "name", kernel->name, "language", language_name(kernel->language),
                             "kernel", hash, "raw", (json_int_t)folder->space->raw_count);
  if (!check->as_json)
    printf("%s: kernel %s in %s, %s\n", place, kernel->name, language_name(kernel->language), hash);
  if (key)
    configs_check(check, folder, key, answer, &findings);
  else if (!check->as_json)
    printf("  %" PRIu64 " configs before conditions; --key tells how many hold\n",
           folder->space->raw_count);
  bool done = hints_check(check, folder, key, answer, &findings, error);
  check_finish(check, answer, &findings);
  review_findings_release(&findings);
  return done;
}

static bool check_folder(struct check *check, const char *place, struct error *error) {
  cleanup_kernel_folder struct kernel_folder *folder = NULL;
  cleanup_key struct key key = {0};
  const char *key_text = option_text(check->options, "key");
  struct error why;
  if (!place_exists(place))
    return error_set(error, "there is no %s", place);
  if (!kernel_folder_load(place, &folder, &why)) {
    check_refuse(check, place, "kernel", &why);
    return true;
  }
  const struct kernel *kernel = folder->kernel;
  if (!key_text)
    key = key_without_values(kernel);
  else if (!key_parse_text(key_text, (const char *const *)kernel->key_names, kernel->n_key_names,
                           &key, error))
    return error_prefix(error, "--key %s: ", key_text);
  if (!kernel_accepts(kernel, &key, folder->space, &why)) {
    check_refuse(check, place, "kernel", &why);
    return true;
  }
  return folder_report(check, folder, place, key_text || !key.n ? &key : NULL, error);
}

/* A build: the folder that pack writes */

static bool object_read(void *context, const struct digest *digest, char **ret_bytes,
                        size_t *ret_size, struct error *error) {
  char text[DIGEST_TEXT_SIZE];
  cleanup_free char *path = xasprintf("%s/objects/%s", (const char *)context,
                                      strchr(digest_format(digest, text), ':') + 1);
  return file_read(path, BLOB_BYTES_MAX, ret_bytes, ret_size, error);
}

static int64_t shared_of(const json_t *object) {
  const json_t *shared = json_object_get(object, "shared");
  return json_is_integer(shared) ? json_integer_value(shared) : CODE_UNKNOWN;
}

/* "vgprs 32 to 128": the least and the most over the objects, where any is known. `shared` is what
 * a launch adds to lds_bytes, and with Triton all of the LDS. */
#define RANGES(X)                                                                                  \
  X(vgprs) X(agprs) X(sgprs) X(vgpr_spills) X(sgpr_spills) X(lds_bytes) X(scratch_bytes)
static void ranges_print(const struct build_review *review) {
#define RANGE(name, value)                                                                         \
  {                                                                                                \
    int64_t low = INT64_MAX, high = CODE_UNKNOWN;                                                  \
    for (size_t i = 0; i < review->n_objects; i++) {                                               \
      int64_t number = (value);                                                                    \
      if (number != CODE_UNKNOWN && number < low)                                                  \
        low = number;                                                                              \
      if (number > high)                                                                           \
        high = number;                                                                             \
    }                                                                                              \
    if (high != CODE_UNKNOWN)                                                                      \
      printf("  %-14s %" PRId64 " to %" PRId64 "\n", name, low, high);                             \
  }
#define X(member) RANGE(#member, review->resources[i].member)
  RANGES(X)
#undef X
  RANGE("shared", shared_of(json_array_get(review->objects, i)))
#undef RANGE
}

/* Those of objects that were compiled without waves_per_eu: the others were made to fit a number of
 * waves. */
static struct code_resources *free_resources(const struct build_review *review, size_t *ret_n) {
  struct code_resources *resources = xcalloc(review->n_objects, sizeof *resources);
  for (size_t i = 0; i < review->n_objects; i++) {
    const json_t *config = json_object_get(json_array_get(review->objects, i), "config");
    if (json_integer_value(json_object_get(config, "waves_per_eu")) == 0)
      resources[(*ret_n)++] = review->resources[i];
  }
  return resources;
}

/* What the kernel's space says, with the objects' resources and the build's own Triton and arch. */
static bool hints_add(const struct check *check, const struct kernel_folder *folder,
                      struct build_review *review, struct error *error) {
  cleanup_key struct key key = {0};
  const char *key_text = option_text(check->options, "key");
  const struct kernel *kernel = folder->kernel;
  size_t n = 0;
  cleanup_free struct code_resources *resources = free_resources(review, &n);
  struct knob_question question = {.folder = folder,
                                   .arch = review->arch,
                                   .gpu_name = option_text(check->options, "gpu-name"),
                                   .triton = triton_version_number(review->triton),
                                   .resources = resources,
                                   .n_resources = n};
  bool is_guess;
  struct error unheld;
  if (key_text && !key_parse_text(key_text, (const char *const *)kernel->key_names,
                                  kernel->n_key_names, &key, error))
    return error_prefix(error, "--key %s: ", key_text);
  if (!check_kind(check, kernel, &question.kind, &is_guess, error))
    return false;
  question.key = key_text ? &key : NULL;
  if (!knob_hints_find(&question, &review->findings, &unheld))
    review_find(&review->findings, REVIEW_REFUSED, "the space's conditions", "%s", unheld.message);
  return true;
}

static void report(struct check *check, const char *path, const struct build_review *review,
                   const json_t *json) {
  struct digest digest = json_digest(json);
  char text[DIGEST_TEXT_SIZE];
  digest_format(&digest, text);
  if (!check->as_json) {
    printf("%s: build %s for %s, Triton %s\n", path, text, review->arch,
           review->triton ? review->triton : "not stated");
    printf(
        "  %zu objects (%zu distinct) in %zu variants, %zu configs failed to compile, %zu texts\n",
        review->n_objects, review->n_distinct, review->n_variants, review->n_failed,
        review->n_files);
    ranges_print(review);
  }
  json_t *answer =
      json_pack("{s:s, s:s, s:s, s:s, s:s?, s:I, s:I, s:I, s:O}", "place", path, "what", "build",
                "build", text, "arch", review->arch, "triton", review->triton, "variants",
                (json_int_t)review->n_variants, "failed", (json_int_t)review->n_failed, "spilling",
                (json_int_t)review->n_spilling, "objects", review->objects);
  ALWAYS(answer != NULL);
  check_finish(check, answer, &review->findings);
}

static bool check_build(struct check *check, const char *path, struct error *error) {
  cleanup_kernel_folder struct kernel_folder *folder = NULL;
  cleanup_build struct build *build = NULL;
  cleanup_build_review struct build_review *review = NULL;
  cleanup_json json_t *json = NULL;
  const char *kernel_place = option_text(check->options, "kernel");
  cleanup_free char *file = xasprintf("%s/build.json", path);
  cleanup_free char *context = xstrdup(path);
  struct blob_reader reader = {object_read, context};
  struct error why;
  if (kernel_place && !kernel_folder_load(kernel_place, &folder, error))
    return false;
  if (!json_parse_file(file, BUILD_SIZE_MAX, &json, &why) ||
      (folder && !build_parse(json, folder->kernel, &build, &why)) ||
      !build_review_make(json, folder ? folder->kernel : NULL, &reader, &review, &why)) {
    check_refuse(check, path, "build", &why);
    return true;
  }
  if (folder && !hints_add(check, folder, review, error))
    return false;
  report(check, path, review, json);
  return true;
}

/* The command */

static bool is_file(const char *path) {
  struct stat status;
  return stat(path, &status) == 0 && S_ISREG(status.st_mode);
}

static bool place_check(struct check *check, const char *place, struct error *error) {
  cleanup_free char *build = xasprintf("%s/build.json", place);
  if (check->as_json && !json_can_hold(place))
    return error_set(error,
                     "%s: JSON cannot hold a name that is no UTF-8; rename it, or leave --json out",
                     place);
  if (is_file(place))
    return check_file(check, place, error);
  return is_file(build) ? check_build(check, place, error) : check_folder(check, place, error);
}

static int command_kernel_check(struct options *options) {
  char *const *places;
  struct error error;
  size_t n = options_arguments(options, &places);
  if (n == 0) {
    error_set(&error,
              "name a code object, a .ttgir file, a kernel folder or the folder of a build");
    return cli_fail(EXIT_USAGE, &error);
  }
  cleanup_json json_t *answers = json_array();
  struct check check = {
      .options = options, .as_json = option_flag(options, "json"), .answers = answers};
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
    {.name = "gpu-name",
     .type = OPTION_TEXT,
     .argument = "NAME",
     .help = "gpu_name for conditions",
     .flag_only = true},
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
    .description = "A code object: what its notes say of each kernel, the occupancy, and a review "
                   "of its instructions.\n"
                   "A disassembly (llvm-objdump -d): the review of its instructions.\n"
                   "TTGIR, a module or lines of one: trips through LDS, conversions of layouts, "
                   "transposes, dots.\n"
                   "A kernel folder: whether manifest and space hold together, and what AMD's "
                   "guide says of its values.\n"
                   "A build: whether every object is whole, takes its arguments, and can run.\n"
                   "Exits with 1 when something is refused.",
    .options = check_options,
    .n_options = ARRAY_LENGTH(check_options),
    .run = command_kernel_check,
};
