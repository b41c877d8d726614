/* wavetune kernel check FILE: a code object's notes, occupancy and instructions; a TTGIR module or
 * lines of one; what llvm-objdump -d printed. */
#include <inttypes.h>

#include "common/base/file.h"
#include "common/base/names.h"
#include "common/code/disassemble.h"
#include "common/code/occupancy.h"
#include "common/program/table.h"
#include "inspect/check.h"
#include "inspect/isa_review.h"
#include "inspect/ttgir_review.h"

#define CODE_BYTES_MAX ((size_t)256 << 20)
#define TEXT_LOOKED_AT 4096 /* bytes in which a file that is no text has a zero byte */
#define SOURCE_LIMITS "limits of the arch, and what the code was compiled for"

static const json_t *kernel_notes(const struct code_object *object, const char *name) {
  size_t i;
  const json_t *notes;
  json_array_foreach (json_object_get(object->notes, "amdhsa.kernels"), i, notes) {
    if (string_equal(cli_member(notes, ".name"), name))
      return notes;
  }
  return NULL;
}

static char *value_text(const json_t *value) {
  cleanup_free char *text =
      json_is_string(value) ? xstrdup(json_string_value(value)) : json_canonical(value);
  return name_plain(text, strlen(text));
}

/* ".offset 8 .size 8 .value_kind global_buffer": each argument a row, its rarer members in the last
 * column. */
static void note_arguments_print(const json_t *arguments) {
  static const struct table_column columns[] = {
      {"  .args", false}, {".offset", true}, {".size", true}, {".value_kind", false}, {"", false}};
  cleanup_table struct table *table = table_new(columns, ARRAY_LENGTH(columns));
  size_t i;
  const json_t *argument;
  json_array_foreach (arguments, i, argument) {
    cleanup_free char *others = xstrdup("");
    const char *name;
    json_t *value;
    json_object_foreach ((json_t *)argument, name, value) {
      if (string_equal(name, ".offset") || string_equal(name, ".size") ||
          string_equal(name, ".value_kind"))
        continue;
      cleanup_free char *text = value_text(value);
      char *longer = xasprintf("%s%s%s: %s", others, others[0] ? ", " : "", name, text);
      free(others);
      others = longer;
    }
    table_cell(table, "  %zu", i);
    table_cell(table, "%" JSON_INTEGER_FORMAT,
               json_integer_value(json_object_get(argument, ".offset")));
    table_cell(table, "%" JSON_INTEGER_FORMAT,
               json_integer_value(json_object_get(argument, ".size")));
    table_cell(table, "%s", cli_member(argument, ".value_kind"));
    table_cell(table, "%s", others);
  }
  if (json_array_size(arguments))
    table_print(table, stdout);
}

/* Every member by its name in the note, as llvm-readelf --notes does. */
static void notes_print(const json_t *notes) {
  const char *name;
  json_t *value;
  json_object_foreach ((json_t *)notes, name, value) {
    if (string_equal(name, ".args"))
      continue;
    cleanup_free char *text = value_text(value), *plain = name_plain(name, strlen(name));
    printf("  %s: %*s%s\n", plain, strlen(plain) < 28 ? (int)(28 - strlen(plain)) : 0, "", text);
  }
  note_arguments_print(json_object_get(notes, ".args"));
}

/* A cubin has no such note: what was read of it, by wavetune's names. */
static void resources_print(const struct code_kernel *kernel) {
  cleanup_json json_t *resources = code_resources_to_json(&kernel->resources);
  const char *name;
  json_t *value;
  json_object_foreach (resources, name, value)
    printf("  %-28s  %" JSON_INTEGER_FORMAT "\n", name, json_integer_value(value));
  for (size_t i = 0; i < kernel->n_arguments; i++)
    printf("  parameter %zu: %" PRId64 " bytes at %" PRId64 "\n", i, kernel->arguments[i].size,
           kernel->arguments[i].offset);
}

static json_t *arguments_to_json(const struct code_kernel *kernel) {
  json_t *array = json_array();
  for (size_t i = 0; i < kernel->n_arguments; i++) {
    const struct code_argument *argument = &kernel->arguments[i];
    cleanup_free char *kind = name_plain(argument->kind, strlen(argument->kind));
    json_t *item =
        json_pack("{s:I, s:I, s:s, s:b}", "offset", (json_int_t)argument->offset, "size",
                  (json_int_t)argument->size, "kind", kind, "hidden", argument->is_hidden);
    ALWAYS(item && json_array_append_new(array, item) == 0);
  }
  return array;
}

/* The workgroup to look at: --warps, else the largest that the code was compiled for. False when
 * neither is known. */
static bool workgroup_of(const struct check *check, const struct code_resources *resources,
                         const struct gpu_target *target, struct workgroup *ret) {
  int64_t warps = option_integer(check->options, "warps");
  ret->threads = warps ? warps * target->warp_size : resources->workgroup_max;
  ret->registers = resources->vgprs;
  ret->lds_bytes = option_integer(check->options, "shared") +
                   (resources->lds_bytes > 0 ? resources->lds_bytes : 0);
  return ret->threads > 0;
}

/* "4 waves per EU, …" into the answer or onto the screen; what cannot run becomes a finding. */
static void occupancy_check(const struct check *check, const struct code_object *object,
                            const struct code_resources *resources, json_t *answer,
                            struct review_findings *findings) {
  const struct gpu_target *target = gpu_target_find(object->target);
  struct workgroup workgroup;
  struct error error;
  if (!target || !workgroup_of(check, resources, target, &workgroup)) {
    if (!check->as_json)
      printf("  occupancy: %s\n",
             target ? "the code does not say for how many threads it is; give --warps"
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
    ALWAYS(json_object_set_new(answer, "occupancy",
                               json_pack("{s:I, s:I, s:f, s:s}", "threads",
                                         (json_int_t)workgroup.threads, "workgroups_per_cu",
                                         (json_int_t)occupancy.workgroups_per_cu, "waves_per_eu",
                                         occupancy.waves_per_eu, "limit", limit)) == 0);
  else
    printf("  occupancy: %g waves per EU (%" PRId64 " workgroups of %" PRId64
           " threads per CU), limited by %s\n",
           occupancy.waves_per_eu, occupancy.workgroups_per_cu, workgroup.threads, limit);
}

static void kernel_check(struct check *check, const char *path, const struct code_object *object,
                         const struct code_kernel *kernel, const struct isa_review *review,
                         const char *why_no_review) {
  struct review_findings findings = {0};
  cleanup_free char *name = name_plain(kernel->name, strlen(kernel->name));
  json_t *answer =
      json_pack("{s:s, s:s, s:s, s:s, s:i, s:s, s:o, s:o}", "place", path, "what", "code object",
                "target", object->target, "target_full", object->target_full, "version",
                object->version, "kernel", name, "resources",
                code_resources_to_json(&kernel->resources), "arguments", arguments_to_json(kernel));
  ALWAYS(answer != NULL);
  const json_t *notes = kernel_notes(object, kernel->name);
  ALWAYS(json_object_set_new(answer, "notes", notes ? json_incref((json_t *)notes) : json_null()) ==
         0);
  const struct isa_function *function = review ? isa_review_function(review, kernel->name) : NULL;
  if (!check->as_json) {
    printf("kernel %s\n", name);
    if (notes)
      notes_print(notes);
    else
      resources_print(kernel);
  }
  occupancy_check(check, object, &kernel->resources, answer, &findings);
  if (!check->as_json && function)
    isa_function_print(function, stdout);
  else if (!check->as_json)
    printf("  instructions: not reviewed: %s\n",
           review ? "the disassembly does not have this kernel" : why_no_review);
  else
    ALWAYS(json_object_set_new(answer, "instructions",
                               function ? isa_function_to_json(function) : json_null()) == 0);
  check_finish(check, answer, &findings);
  review_findings_release(&findings);
}

static void code_check(struct check *check, const char *path, const void *bytes, size_t size) {
  cleanup_code_object struct code_object *object = NULL;
  cleanup_isa_review struct isa_review *review = NULL;
  cleanup_free char *text = NULL;
  struct error error = {0};
  if (!code_object_parse(bytes, size, &object, &error)) {
    check_refuse(check, path, "code object", &error);
    return;
  }
  if (!check->as_json)
    printf("%s: %s for %s\n", path,
           object->kind == CODE_OBJECT_AMDGPU ? "AMDGPU code object" : "CUDA cubin",
           object->target_full);
  if (object->notes && !check->as_json) {
    cleanup_free char *version = value_text(json_object_get(object->notes, "amdhsa.version"));
    printf("amdhsa.target: %s\namdhsa.version: %s\n", object->target_full, version);
  }
  if (object->n_kernels == 0) {
    error_set(&error, "the code object has no kernel");
    check_refuse(check, path, "code object", &error);
    return;
  }
  if (object->kind == CODE_OBJECT_CUDA)
    error_set(&error, "only AMD's instructions are");
  else if (disassemble(bytes, size, &text, &error))
    (void)!isa_review_make(text, object, &review, &error);
  for (size_t i = 0; i < object->n_kernels; i++)
    kernel_check(check, path, object, &object->kernels[i], review, error.message);
}

static void ttgir_check(struct check *check, const char *path, const char *text, size_t size) {
  cleanup_ttgir_review struct ttgir_review *review = NULL;
  struct error error;
  if (!ttgir_review_make(text, size, &review, &error)) {
    check_refuse(check, path, "ttgir", &error);
    return;
  }
  if (check->as_json) {
    json_t *answer = json_pack("{s:s, s:s, s:b, s:o}", "place", path, "what", "ttgir", "refused", 0,
                               "review", ttgir_review_to_json(review));
    ALWAYS(answer && json_array_append_new(check->answers, answer) == 0);
    return;
  }
  printf("%s: TTGIR\n", path);
  ttgir_review_print(review, stdout);
}

/* A disassembly from a file: no notes and no occupancy, only what its instructions tell. */
static void disassembly_check(struct check *check, const char *path,
                              const struct isa_review *review) {
  if (!check->as_json)
    printf("%s: disassembly\n", path);
  for (size_t i = 0; i < review->n; i++) {
    const struct isa_function *function = &review->functions[i];
    if (check->as_json) {
      json_t *answer =
          json_pack("{s:s, s:s, s:s, s:b, s:o}", "place", path, "what", "disassembly", "kernel",
                    function->name, "refused", 0, "instructions", isa_function_to_json(function));
      ALWAYS(answer && json_array_append_new(check->answers, answer) == 0);
    } else {
      printf("kernel %s\n", function->name);
      isa_function_print(function, stdout);
    }
  }
}

static void text_check(struct check *check, const char *path, const char *text, size_t size) {
  cleanup_isa_review struct isa_review *review = NULL;
  struct error error;
  if (ttgir_is(text, size)) {
    ttgir_check(check, path, text, size);
  } else if (isa_review_make(text, NULL, &review, &error)) {
    disassembly_check(check, path, review);
  } else {
    error_set(&error, "it is none of what is read here: an ELF file (a code object or a cubin), a "
                      "TTGIR module (`module "
                      "attributes {…}`), lines of one (ttg.convert_layout and the like over "
                      "tensors with layouts), or a "
                      "disassembly of AMD's instructions (what llvm-objdump -d prints)");
    check_refuse(check, path, "file", &error);
  }
}

bool check_file(struct check *check, const char *path, struct error *error) {
  cleanup_free char *bytes = NULL;
  size_t size;
  if (!file_read(path, CODE_BYTES_MAX, &bytes, &size, error))
    return false;
  bool is_text = size && !memchr(bytes, '\0', size < TEXT_LOOKED_AT ? size : TEXT_LOOKED_AT);
  if (is_text && !code_object_is(bytes, size))
    text_check(check, path, bytes, size);
  else
    code_check(check, path, bytes, size);
  return true;
}
