/* wavetune kernel check: what compiled code needs of a GPU and how it uses it, whether a kernel
 * folder is consistent, and whether a build is complete; with advice from AMD's guides, and without
 * a server or a GPU.
 *
 * What prevents a check (a file that cannot be read, a wrong option) is an error: exit code 2. An
 * error in the subject itself is a finding: exit code 1. */
#include <inttypes.h>
#include <sys/stat.h>

#include "common/base/error.h"
#include "common/base/file.h"
#include "common/builds/function_record.h"
#include "common/code/disassemble.h"
#include "common/code/gpu_target.h"
#include "common/program/cli.h"
#include "common/program/terminal.h"
#include "inspect/build_review.h"
#include "inspect/isa_review.h"
#include "inspect/knob_hints.h"
#include "inspect/ttgir_review.h"

#define ARCH_DEFAULT "gfx942" /* of a kernel folder */
#define CODE_BYTES_MAX ((size_t)256 << 20)
#define BLOB_BYTES_MAX ((size_t)64 << 20)
#define TEXT_LOOKED_AT                                                                             \
  4096 /* a file with a zero byte in its first TEXT_LOOKED_AT bytes is not text */
#define SOURCE_LIMITS "limits of the arch, and what the code was compiled for"
#define SOURCE_CONDITIONS "the space's conditions"

struct check {
  const struct options *options;
  bool as_json;
  bool is_refused;
  json_t *answers; /* with --json: one object for each subject */
};

/* Prints the findings or, with --json, makes `answer` with them one of the answers. Takes `answer`
 * and releases the findings. */
static void check_finish(struct check *check, json_t *answer, struct review_findings *findings) {
  bool is_refused = review_count(findings, REVIEW_REFUSED) > 0;
  check->is_refused |= is_refused;
  if (check->as_json) {
    json_put(answer, "findings", review_findings_to_json(findings));
    json_put(answer, "refused", json_boolean(is_refused));
    json_push(check->answers, answer);
  } else {
    review_findings_print(findings, stdout);
    json_decref(answer);
  }
  review_findings_release(findings);
}

/* Reports a subject that is not a valid `what`. Returns true, because it was checked. */
static bool check_refuse(struct check *check, const char *place, const char *what,
                         const struct error *why) {
  struct review_findings findings = {0};
  cleanup_free char *at = why->pointer[0] ? xasprintf(" (at %s)", why->pointer) : xstrdup("");
  review_find(&findings, REVIEW_REFUSED, what, "%s%s", why->message, at);
  if (!check->as_json)
    printf("%s\n", place);
  check_finish(check, json_pack("{s:s, s:s}", "place", place, "what", what), &findings);
  return true;
}

/* Code objects */

static char *value_text(const json_t *value) {
  cleanup_free char *text =
      json_is_string(value) ? xstrdup(json_string_value(value)) : json_canonical(value);
  return name_plain(text, strlen(text));
}

/* Prints every member under its name in the note, as llvm-readelf --notes does, and each argument
 * as a row, with its rarer members in the last column. */
static void notes_print(const json_t *notes) {
  static const struct table_column columns[] = {
      {"  .args", false}, {".offset", true}, {".size", true}, {".value_kind", false}, {"", false}};
  const json_t *arguments = json_object_get(notes, ".args");

  json_members (notes, name, value) {
    if (value == arguments)
      continue;
    cleanup_free char *text = value_text(value), *plain = name_plain(name, strlen(name));
    printf("  %s: %*s%s\n", plain, strlen(plain) < 28 ? (int)(28 - strlen(plain)) : 0, "", text);
  }

  cleanup_table struct table *table = table_new(columns, ARRAY_LENGTH(columns));
  json_elements (arguments, i, argument) {
    cleanup_free char *others = xstrdup("");
    json_members (argument, name, value) {
      cleanup_free char *text = value_text(value);
      if (!string_equal(name, ".offset") && !string_equal(name, ".size") &&
          !string_equal(name, ".value_kind"))
        text_append(&others, "%s%s: %s", others[0] ? ", " : "", name, text);
    }
    table_cell(table, "  %zu", i);
    table_cell(table, "%lld", cli_integer(argument, ".offset"));
    table_cell(table, "%lld", cli_integer(argument, ".size"));
    table_cell(table, "%s", cli_member(argument, ".value_kind"));
    table_cell(table, "%s", others);
  }

  if (json_array_size(arguments))
    table_print(table, stdout);
}

/* A cubin has no such note: prints the resources that were read, by wavetune's names. */
static void resources_print(const struct code_kernel *kernel) {
  cleanup_json json_t *resources = code_resources_to_json(&kernel->resources);
  json_members (resources, name, value)
    printf("  %-28s  %lld\n", name, json_integer_value(value));
  for (size_t i = 0; i < kernel->n_arguments; i++)
    printf("  parameter %zu: %" PRId64 " bytes at %" PRId64 "\n", i, kernel->arguments[i].size,
           kernel->arguments[i].offset);
}

/* Prints the occupancy of a workgroup of --warps, else of the largest that the code was compiled
 * for. One that cannot run becomes a finding. */
static void occupancy_check(const struct check *check, const struct code_object *object,
                            const struct code_resources *resources, json_t *answer,
                            struct review_findings *findings) {
  const struct gpu_target *target = gpu_target_find(object->target);
  int64_t warps = option_integer(check->options, "warps");
  struct workgroup workgroup = {.threads = warps && target ? warps * target->warp_size
                                                           : resources->workgroup_max,
                                .registers = resources->vgprs,
                                .lds_bytes = option_integer(check->options, "shared") +
                                             (resources->lds_bytes > 0 ? resources->lds_bytes : 0)};
  struct error error;
  if (!target || workgroup.threads <= 0) {
    if (!check->as_json)
      printf("  occupancy: %s\n",
             target ? "the code does not state its number of threads; give --warps"
                    : "the limits of this target are not known");
    return;
  }

  if (resources->workgroup_max != CODE_UNKNOWN && workgroup.threads > resources->workgroup_max) {
    review_find(findings, REVIEW_REFUSED, SOURCE_LIMITS,
                "it was compiled for at most %" PRId64 " threads, not for %" PRId64,
                resources->workgroup_max, workgroup.threads);
    return;
  }

  if (!workgroup_fits(target, &workgroup, &error)) {
    review_find(findings, REVIEW_REFUSED, SOURCE_LIMITS, "it %s", error.message);
    return;
  }

  struct occupancy occupancy = occupancy_of(target, &workgroup);
  const char *limit = occupancy_limit_name(occupancy.limit);
  if (check->as_json)
    json_put(answer, "occupancy",
             json_pack("{s:I, s:I, s:f, s:s}", "threads", (json_int_t)workgroup.threads,
                       "workgroups_per_cu", (json_int_t)occupancy.workgroups_per_cu, "waves_per_eu",
                       occupancy.waves_per_eu, "limit", limit));
  else
    printf("  occupancy: %g waves per EU (%" PRId64 " workgroups of %" PRId64
           " threads per CU), limited by %s\n",
           occupancy.waves_per_eu, occupancy.workgroups_per_cu, workgroup.threads, limit);
}

static void code_kernel_check(struct check *check, const char *place,
                              const struct code_object *object, const struct code_kernel *kernel,
                              const struct isa_review *review, const char *why_no_review) {
  struct review_findings findings = {0};
  cleanup_free char *name = name_plain(kernel->name, strlen(kernel->name));
  json_t *arguments = json_array(), *notes = NULL, *candidate;
  size_t i;

  for (i = 0; i < kernel->n_arguments; i++) {
    const struct code_argument *argument = &kernel->arguments[i];
    cleanup_free char *kind = name_plain(argument->kind, strlen(argument->kind));
    json_push(arguments,
              json_pack("{s:I, s:I, s:s, s:b}", "offset", (json_int_t)argument->offset, "size",
                        (json_int_t)argument->size, "kind", kind, "hidden", argument->is_hidden));
  }

  json_array_foreach (json_object_get(object->notes, "amdhsa.kernels"), i, candidate) {
    if (!notes && string_equal(cli_member(candidate, ".name"), kernel->name))
      notes = candidate;
  }

  json_t *answer =
      json_pack("{s:s, s:s, s:s, s:s, s:i, s:s, s:o, s:o, s:O?}", "place", place, "what",
                "code object", "target", object->target, "target_full", object->target_full,
                "version", object->version, "kernel", name, "resources",
                code_resources_to_json(&kernel->resources), "arguments", arguments, "notes", notes);
  ALWAYS(answer != NULL);

  if (!check->as_json) {
    printf("kernel %s\n", name);
    if (notes)
      notes_print(notes);
    else
      resources_print(kernel);
  }

  occupancy_check(check, object, &kernel->resources, answer, &findings);
  const struct isa_function *function = review ? isa_review_function(review, kernel->name) : NULL;
  if (check->as_json)
    json_put(answer, "instructions", function ? isa_function_to_json(function) : json_null());
  else if (function)
    isa_function_print(function, stdout);
  else
    printf("  instructions: not reviewed: %s\n",
           review ? "the disassembly does not have this kernel" : why_no_review);
  check_finish(check, answer, &findings);
}

static bool code_check(struct check *check, const char *place, const void *bytes, size_t size) {
  cleanup_code_object struct code_object *object = NULL;
  cleanup_isa_review struct isa_review *review = NULL;
  cleanup_free char *text = NULL;
  struct error error = {0};
  if (!code_object_parse(bytes, size, &object, &error))
    return check_refuse(check, place, "code object", &error);
  if (!check->as_json)
    printf("%s: %s for %s\n", place,
           object->kind == CODE_OBJECT_AMDGPU ? "AMDGPU code object" : "CUDA cubin",
           object->target_full);
  if (object->notes && !check->as_json) {
    const json_t *stated = json_object_get(object->notes, "amdhsa.version");
    cleanup_free char *version = stated ? value_text(stated) : xstrdup("not stated");
    printf("amdhsa.target: %s\namdhsa.version: %s\n", object->target_full, version);
  }

  if (object->n_kernels == 0) {
    error_set(&error, "the code object has no kernel");
    return check_refuse(check, place, "code object", &error);
  }

  if (object->kind == CODE_OBJECT_CUDA)
    error_set(&error, "only AMD's instructions are reviewed");
  else if (disassemble(bytes, size, &text, &error))
    (void)!isa_review_make(text, object, &review, &error);
  for (size_t i = 0; i < object->n_kernels; i++)
    code_kernel_check(check, place, object, &object->kernels[i], review, error.message);

  return true;
}

/* TTGIR, or a disassembly without notes: only the review. */
static bool text_check(struct check *check, const char *place, const char *text, size_t size) {
  cleanup_ttgir_review struct ttgir_review *ttgir = NULL;
  cleanup_isa_review struct isa_review *review = NULL;
  struct error error;
  bool is_ttgir = ttgir_is(text, size);
  if (is_ttgir && !ttgir_review_make(text, size, &ttgir, &error))
    return check_refuse(check, place, "ttgir", &error);
  if (!is_ttgir && !isa_review_make(text, NULL, &review, &error)) {
    error_set(
        &error,
        "it is not of a kind that is reviewed: an ELF file (a code object or a cubin), a TTGIR "
        "module (`module attributes {…}`), lines of one (ttg.convert_layout and the like over "
        "tensors "
        "with layouts), or a disassembly of AMD's instructions (what llvm-objdump -d prints)");
    return check_refuse(check, place, "file", &error);
  }

  if (!check->as_json)
    printf("%s: %s\n", place, ttgir ? "TTGIR" : "disassembly");
  if (ttgir && !check->as_json)
    ttgir_review_print(ttgir, stdout);
  else if (ttgir)
    json_push(check->answers, json_pack("{s:s, s:s, s:b, s:o}", "place", place, "what", "ttgir",
                                        "refused", 0, "review", ttgir_review_to_json(ttgir)));

  for (size_t i = 0; review && i < review->n; i++) {
    const struct isa_function *function = &review->functions[i];
    if (check->as_json) {
      json_push(check->answers, json_pack("{s:s, s:s, s:s, s:b, s:o}", "place", place, "what",
                                          "disassembly", "kernel", function->name, "refused", 0,
                                          "instructions", isa_function_to_json(function)));
    } else {
      printf("kernel %s\n", function->name);
      isa_function_print(function, stdout);
    }
  }

  return true;
}

/* Kernel folders, "DIR" or "DIR:VERSION" */

/* --kind, else a guess from the kernel's name and flops. */
static bool kind_option(const struct check *check, const struct kernel *kernel,
                        enum kernel_kind *ret, struct error *error) {
  const char *name = option_text(check->options, "kind");
  if (!name)
    *ret = kernel_kind_guess(kernel);
  return !name || kernel_kind_parse(name, ret) ||
         error_set(error, "--kind is gemm, fused, indirect or elementwise, not \"%s\"", name);
}

/* Adds the keys of --key. */
static bool key_option(const struct check *check, const struct kernel *kernel, struct key_list *ret,
                       struct error *error) {
  const char *text = option_text(check->options, "key");
  return !text || key_list_add(ret, text, KEY_NAMES(kernel), error) ||
         error_prefix(error, "--key %s: ", text);
}

/* How many configs are valid, which `answer` gets, and whether the default is. */
static void configs_check(const struct check *check, const struct space *space,
                          const struct key *key, json_t *answer, struct review_findings *findings) {
  struct space_facts facts = {.key = key,
                              .gpu_name = option_text(check->options, "gpu-name"),
                              .arch = option_text(check->options, "arch")};
  uint64_t count;
  struct error error;
  bool is_default_valid = true;
  if (!space_count(space, &facts, SPACE_STEP_LIMIT_DEFAULT, UINT64_MAX, &count, &error) ||
      (space->has_default &&
       !space_is_valid(space, &facts, space->default_ordinal, &is_default_valid, &error))) {
    review_find(findings, REVIEW_REFUSED, SOURCE_CONDITIONS, "%s", error.message);
    return;
  }

  cleanup_free char *key_text = key_format(key);
  if (count == 0)
    review_find(findings, REVIEW_REFUSED, SOURCE_CONDITIONS, "no config is valid for %s", key_text);
  else if (!is_default_valid)
    review_find(findings, REVIEW_WARNING, SOURCE_CONDITIONS,
                "the default config is not valid for %s: another one becomes the baseline",
                key_text);

  json_put(answer, "configs", json_integer((json_int_t)count));
  if (!check->as_json)
    printf("  %" PRIu64 " of %" PRIu64 " configs are valid for %s on %s\n", count, space->raw_count,
           key_text, facts.arch);
}

static bool folder_check(struct check *check, const char *place, struct error *error) {
  cleanup_kernel_folder struct kernel_folder *folder = NULL;
  cleanup_key_list struct key_list keys = {0};
  cleanup_key struct key unknown = {0};
  const struct options *options = check->options;
  const char *colon = strrchr(place, ':'), *triton = option_text(options, "triton");
  cleanup_free char *directory = xstrndup(place, colon ? (size_t)(colon - place) : strlen(place));
  struct stat status;
  struct error why;
  if (stat(place, &status) != 0 && stat(directory, &status) != 0)
    return error_set(error, "there is no %s", place);
  if (!kernel_folder_describe(place, &folder, &why))
    return check_refuse(check, place, "kernel", &why);
  if (!kernel_folder_take_space(folder, option_text(options, "space"), error))
    return false;

  const struct kernel *kernel = folder->kernel;
  if (!key_option(check, kernel, &keys, error) ||
      (!keys.n && !kernel->n_key_names && !key_list_add(&keys, "", NULL, 0, error)))
    return false;

  if (!keys.n) { /* names are enough to bind every expression */
    unknown.n = kernel->n_key_names;
    unknown.names = xcalloc(unknown.n, sizeof *unknown.names);
    unknown.values = xcalloc(unknown.n, sizeof *unknown.values);
    for (size_t i = 0; i < unknown.n; i++) {
      unknown.names[i] = xstrdup(kernel->key_names[i]);
      unknown.values[i] = value_none();
    }
  }

  if (!kernel_accepts(kernel, keys.n ? keys.keys : &unknown, folder->space, &why))
    return check_refuse(check, place, "kernel", &why);

  struct knob_question question = {.folder = folder,
                                   .key = keys.n == 1 ? keys.keys : NULL,
                                   .arch = option_text(options, "arch"),
                                   .gpu_name = option_text(options, "gpu-name"),
                                   .triton = triton_version_number(triton)};
  if (triton && !question.triton)
    return error_set(error, "--triton is a version like 3.6.0, not \"%s\"", triton);
  if (!kind_option(check, kernel, &question.kind, error))
    return false;

  struct review_findings findings = {0};
  const char *hash = folder->module ? NULL : DIGEST_TEXT(&kernel->hash);
  json_t *answer =
      json_pack("{s:s, s:s, s:s, s:s, s:s*, s:s*, s:I}", "place", place, "what", "kernel", "name",
                kernel->name, "language", language_name(kernel->language), "kernel", hash, "module",
                folder->module, "raw", (json_int_t)folder->space->raw_count);
  if (!check->as_json && hash)
    printf("%s: kernel %s in %s, %s\n", place, kernel->name, language_name(kernel->language), hash);
  else if (!check->as_json)
    printf("%s: entry %s for %s of %s; `python3 -m wavetune pack %s --package-root SITE-PACKAGES "
           "--kernel FOLDER --key … --output BUILD` makes its kernel\n",
           place, kernel->name, kernel->entry, folder->module, place);
  cleanup_json json_t *counts = json_array();
  array_foreach (key, keys.keys, keys.n) {
    json_t *of_key = json_pack("{s:o}", "key", key_to_json(key));
    configs_check(check, folder->space, key, keys.n == 1 ? answer : of_key, &findings);
    json_push(counts, of_key);
  }
  if (keys.n > 1)
    json_object_set(answer, "keys", counts);
  if (!keys.n && !check->as_json)
    printf("  %" PRIu64 " configs before conditions; give --key to count the valid ones\n",
           folder->space->raw_count);
  const char *kind = kernel_kind_name(question.kind);
  json_put(answer, "kind", json_string(kind));
  if (!check->as_json)
    printf("  kind: %s%s\n", kind,
           option_text(options, "kind") ? "" : " (guessed from name and flops)");

  /* configs_check has reported conditions that cannot be evaluated. */
  (void)!knob_hints_find(&question, &findings, &why);
  check_finish(check, answer, &findings);
  return true;
}

/* Builds: the folder that pack writes */

static bool object_read(void *context, const struct digest *digest, char **ret_bytes,
                        size_t *ret_size, struct error *error) {
  cleanup_free char *path =
      xasprintf("%s/objects/%s", (const char *)context, strchr(DIGEST_TEXT(digest), ':') + 1);
  return file_read(path, BLOB_BYTES_MAX, ret_bytes, ret_size, error);
}

/* Prints "vgprs 32 to 128": the least and the greatest number of the objects, where any is known.
 * "shared" is what a launch adds to lds_bytes, and with Triton all of the LDS. */
static void ranges_print(const struct build_review *review) {
  static const char *const names[] = {"vgprs",       "agprs",     "sgprs",         "vgpr_spills",
                                      "sgpr_spills", "lds_bytes", "scratch_bytes", "shared"};
  for (size_t i = 0; i < ARRAY_LENGTH(names); i++) {
    json_int_t low = INT64_MAX, high = CODE_UNKNOWN;
    json_elements (review->objects, j, object) {
      const json_t *number = json_object_get(json_object_get(object, "resources"), names[i]);
      number = number ? number : json_object_get(object, names[i]);
      if (!json_is_integer(number))
        continue;
      low = json_integer_value(number) < low ? json_integer_value(number) : low;
      high = json_integer_value(number) > high ? json_integer_value(number) : high;
    }

    if (high != CODE_UNKNOWN)
      printf("  %-14s %lld to %lld\n", names[i], low, high);
  }
}

/* Adds the findings of the knob rules on the kernel's space, with the objects' resources and the
 * build's Triton and arch. */
static bool build_hints(const struct check *check, const struct kernel_folder *folder,
                        struct build_review *review, struct error *error) {
  cleanup_key_list struct key_list keys = {0};
  cleanup_free struct code_resources *resources = xcalloc(review->n_objects, sizeof *resources);
  struct knob_question question = {.folder = folder,
                                   .arch = review->arch,
                                   .gpu_name = option_text(check->options, "gpu-name"),
                                   .triton = triton_version_number(review->triton),
                                   .resources = resources};
  struct error why;
  if (!key_option(check, folder->kernel, &keys, error) ||
      !kind_option(check, folder->kernel, &question.kind, error))
    return false;

  question.key = keys.n == 1 ? keys.keys : NULL;

  /* Without objects that were compiled with waves_per_eu: they were made to fit a number of waves.
   */
  for (size_t i = 0; i < review->n_objects; i++) {
    const json_t *config = json_object_get(json_array_get(review->objects, i), "config");
    if (cli_integer(config, "waves_per_eu") == 0)
      resources[question.n_resources++] = review->resources[i];
  }

  if (!knob_hints_find(&question, &review->findings, &why))
    review_find(&review->findings, REVIEW_REFUSED, SOURCE_CONDITIONS, "%s", why.message);
  return true;
}

static bool build_check(struct check *check, const char *place, const char *file,
                        struct error *error) {
  cleanup_kernel_folder struct kernel_folder *folder = NULL;
  cleanup_build struct build *build = NULL;
  cleanup_build_review struct build_review *review = NULL;
  cleanup_json json_t *json = NULL;
  const char *kernel_place = option_text(check->options, "kernel");
  cleanup_free char *context = xstrdup(place);
  struct blob_reader reader = {object_read, context};
  struct error why;
  if (kernel_place &&
      (!kernel_folder_load(kernel_place, &folder, error) ||
       !kernel_folder_take_space(folder, option_text(check->options, "space"), error)))
    return false;
  if (!json_parse_file(file, BUILD_SIZE_MAX, &json, &why) ||
      (folder && !build_parse(json, folder->kernel, &build, &why)) ||
      !build_review_make(json, folder ? folder->kernel : NULL, &reader, &review, &why))
    return check_refuse(check, place, "build", &why);
  if (folder && !build_hints(check, folder, review, error))
    return false;

  struct digest digest = json_digest(json);
  const char *text = DIGEST_TEXT(&digest);
  if (!check->as_json) {
    printf("%s: build %s for %s, Triton %s\n", place, text, review->arch,
           review->triton ? review->triton : "not stated");
    printf(
        "  %zu objects (%zu distinct) in %zu variants, %zu configs failed to compile, %zu texts\n",
        review->n_objects, review->n_distinct, review->n_variants, review->n_failed,
        review->n_files);
    ranges_print(review);
  }

  json_t *answer =
      json_pack("{s:s, s:s, s:s, s:s, s:s?, s:I, s:I, s:I, s:O}", "place", place, "what", "build",
                "build", text, "arch", review->arch, "triton", review->triton, "variants",
                (json_int_t)review->n_variants, "failed", (json_int_t)review->n_failed, "spilling",
                (json_int_t)review->n_spilling, "objects", review->objects);
  ALWAYS(answer != NULL);
  check_finish(check, answer, &review->findings);

  return true;
}

/* The command */

static bool is_file(const char *path) {
  struct stat status;
  return stat(path, &status) == 0 && S_ISREG(status.st_mode);
}

static bool place_check(struct check *check, const char *place, struct error *error) {
  cleanup_free char *build = xasprintf("%s/build.json", place), *bytes = NULL;
  size_t size;
  if (check->as_json && !json_can_hold(place))
    return error_set(error,
                     "%s: JSON cannot hold a name that is no UTF-8; rename it, or leave --json out",
                     place);
  if (!is_file(place))
    return is_file(build) ? build_check(check, place, build, error)
                          : folder_check(check, place, error);
  if (!file_read(place, CODE_BYTES_MAX, &bytes, &size, error))
    return false;

  bool is_text = size && !memchr(bytes, '\0', size < TEXT_LOOKED_AT ? size : TEXT_LOOKED_AT);
  return is_text && !code_object_is(bytes, size) ? text_check(check, place, bytes, size)
                                                 : code_check(check, place, bytes, size);
}

static int command_kernel_check(struct options *options) {
  char *const *places;
  struct error error;
  size_t n = options_arguments(options, &places);
  cleanup_json json_t *answers = json_array();
  struct check check = {
      .options = options, .as_json = option_flag(options, "json"), .answers = answers};
  if (n == 0)
    cli_refuse(EXIT_USAGE,
               "name a code object, a .ttgir file, a kernel folder or the folder of a build");

  for (size_t i = 0; i < n; i++) {
    if (i && !check.as_json)
      putchar('\n');
    if (!place_check(&check, places[i], &error))
      cli_fail(EXIT_USAGE, &error);
  }

  if (check.as_json)
    cli_print_json(answers);
  return check.is_refused ? EXIT_FAILED : EXIT_OK;
}

static const struct option_spec check_options[] = {
    CLI_INTEGER("warps", "N", "0", 0, 1024,
                "waves of a workgroup, for a code object's occupancy (default: as compiled)"),
    CLI_INTEGER("shared", "BYTES", "0", 0, INT32_MAX,
                "LDS that a launch adds (Triton's `shared`), for a code object's occupancy"),
    CLI_TEXT(
        "key", "NAME=VALUE,…|JSON",
        "for a kernel folder: a key, or several, to count the valid configs of each; hints are "
        "of the key if it is one"),
    OPTION_SPACE,
    CLI_TEXT("arch", "ARCH", "the GPU that a kernel folder's space is for",
             .default_text = ARCH_DEFAULT),
    CLI_TEXT("gpu-name", "NAME", "the GPU's name, for conditions that read gpu_name"),
    CLI_TEXT("triton", "VERSION", "the Triton that compiles a kernel folder, e.g. 3.6.0"),
    CLI_TEXT("kind", "KIND", "gemm, fused, indirect or elementwise (guessed from name and flops)"),
    CLI_TEXT("kernel", "DIR[:VERSION]",
             "the kernel folder of a build: arguments are compared, its space gets hints"),
    OPTION_JSON,
};

CLI_COMMAND(kernel_check, "kernel check", "FILE|DIR[:VERSION]|BUILD_FOLDER…", check_options,
            "check code objects, kernel folders and builds, with advice",
            .description =
                "A code object: the notes of each kernel, the occupancy, and a review of its "
                "instructions.\n"
                "A disassembly (llvm-objdump -d): the review of its instructions.\n"
                "TTGIR, a module or lines of one: trips through LDS, conversions of layouts, "
                "transposes, dots.\n"
                "A kernel folder: whether manifest and space are consistent, and AMD's advice "
                "on its values.\n"
                "A build: whether every object is complete, takes its arguments, and can run.\n"
                "Exits with 1 when something is refused.");
