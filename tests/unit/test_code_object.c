/* AMDGPU code objects: the same values as LLVM's reader prints; damaged files are refused with a
 * sentence. */
#include "tests/unit/code_object_fixture.h"

#include <elf.h>
#include <msgpack.h>
#include <unistd.h>

static struct code_file matmul(void) {
  return code_file_read(SOURCE_FOLDER "/tests/data/codeobjects/matmul_gfx942.hsaco");
}

/* Kernels with different resources: plain, with LDS, with accumulation registers, with hidden
 * arguments, with spills. */
static const char several_kernels[] =
    "#define KERNEL extern \"C\" __attribute__((global, amdgpu_flat_work_group_size(64, 256))) "
    "void\n"
    "KERNEL plain(float *y, const float *x, char c, double f, short n) { if (n) *y = *x * (float)f "
    "+ c; }\n"
    "KERNEL with_lds(int *p) { static __attribute__((shared)) int s[300]; s[*p] = 1; *p = s[p[1]]; "
    "}\n"
    "KERNEL with_agprs(int *p) { asm volatile(\"\" ::: \"v99\", \"a9\"); *p = 1; }\n"
    "KERNEL with_hidden(int *p) { *p = __builtin_amdgcn_workgroup_size_x(); }\n"
    "KERNEL __attribute__((amdgpu_waves_per_eu(8, 8))) spills(volatile int *p) {\n"
    "  int a[200];\n"
    "  _Pragma(\"unroll\") for (int i = 0; i < 200; i++) a[i] = p[i];\n"
    "  _Pragma(\"unroll\") for (int i = 0; i < 200; i++) p[400 - i] = a[i]; }\n"
    "KERNEL __attribute__((amdgpu_flat_work_group_size(1, 1024))) nothing() {}\n";

static struct code_file compiled(const char *arch) {
  char path[] = "/tmp/wavetune-code-XXXXXX";
  close(mkstemp(path));
  free(compile_hip(several_kernels, arch, path));
  struct code_file file = code_file_read(path);
  cleanup_free char *source = xasprintf("%s.hip", path);
  unlink(source);
  unlink(path);
  return file;
}

static const struct code_kernel *kernel_named(const struct code_object *object, const char *name) {
  const struct code_kernel *kernel = NULL;
  struct error error;
  cr_assert(code_object_kernel(object, name, &kernel, &error), "%s", error.message);
  return kernel;
}

/* Reading */

Test(code_object, has_the_resources_of_a_triton_kernel) {
  cleanup_code_object struct code_object *object = code_file_parse(matmul());
  cr_assert_eq(object->kind, CODE_OBJECT_AMDGPU);
  cr_assert_str_eq(object->target, "gfx942");
  cr_assert_str_eq(object->target_full, "amdgcn-amd-amdhsa--gfx942");
  cr_assert_eq(object->version, 5);
  cr_assert_eq(object->n_kernels, 1u);
  cr_assert_str_eq(object->kernels[0].name, "matmul_kernel");
  struct code_resources expected = {.vgprs = 72,
                                    .agprs = 16,
                                    .sgprs = 27,
                                    .lds_bytes = 0,
                                    .scratch_bytes = 0,
                                    .kernarg_bytes = 64,
                                    .wavefront_size = 64,
                                    .workgroup_max = 256};
  cr_assert_eq(memcmp(&object->kernels[0].resources, &expected, sizeof expected), 0);
}

Test(code_object, lists_the_arguments_of_a_triton_kernel) {
  static const int64_t offsets[] = {0, 8, 16, 24, 28, 32, 36, 40, 44, 48, 56};
  cleanup_code_object struct code_object *object = code_file_parse(matmul());
  const struct code_kernel *kernel = &object->kernels[0];
  cr_assert_eq(kernel->n_arguments, ARRAY_LENGTH(offsets));
  for (size_t i = 0; i < kernel->n_arguments; i++) {
    bool is_scalar = i >= 3 && i < 9;
    cr_expect_eq(kernel->arguments[i].offset, offsets[i]);
    cr_expect_eq(kernel->arguments[i].size, is_scalar ? 4 : 8);
    cr_expect_str_eq(kernel->arguments[i].kind, is_scalar ? "by_value" : "global_buffer");
    cr_expect_not(kernel->arguments[i].is_hidden);
  }
}

/* The value of ".NAME:" in a block of llvm-readelf's YAML; -1 when it is not there. */
static int64_t printed_number(const char *block, const char *name) {
  cleanup_free char *label = xasprintf("%s:", name);
  const char *found = strstr(block, label);
  return found ? strtoll(found + strlen(label), NULL, 10) : -1;
}

/* Cuts the block into pieces. */
static void expect_printed_arguments(const struct code_kernel *kernel, char *block) {
  char *argument = strstr(block, ".args:");
  size_t n = 0;
  *strstr(block, ".group_segment_fixed_size:") = '\0';
  /* Each begins with "- " in a line of its own, its members in alphabetical order. */
  for (argument = argument ? strstr(argument, "\n      - ") : NULL; argument; n++) {
    char *next = strstr(argument + 1, "\n      - ");
    if (next)
      *next++ = '\0';
    cr_assert_lt(n, kernel->n_arguments);
    cleanup_free char *kind = xasprintf(".value_kind:     %s", kernel->arguments[n].kind);
    cr_expect_not_null(strstr(argument, kind), "%s has no %s", argument, kind);
    cr_expect_eq(kernel->arguments[n].offset, printed_number(argument, ".offset"));
    cr_expect_eq(kernel->arguments[n].size, printed_number(argument, ".size"));
    cr_expect_eq(kernel->arguments[n].is_hidden, strstr(argument, "hidden_") != NULL);
    argument = next;
  }
  cr_expect_eq(n, kernel->n_arguments);
}

/* Compares every member with the output of llvm-readelf for the same file. */
static void expect_as_readelf_prints(struct code_file file) {
  cleanup_free char *readelf = need_program("llvm-readelf-19");
  char path[] = "/tmp/wavetune-code-XXXXXX";
  close(mkstemp(path));
  struct error error;
  cr_assert(file_write_atomically(path, file.bytes, file.size, 0600, &error));
  cleanup_free char *text = run_program((char *const[]){readelf, (char *)"--notes", path, NULL});
  unlink(path);
  cleanup_code_object struct code_object *object = code_file_parse(file);
  cleanup_free char *target = xasprintf("amdhsa.target:   %s\n", object->target_full);
  cleanup_free char *quoted = xasprintf("amdhsa.target:   '%s'\n", object->target_full);
  cr_expect(strstr(text, target) || strstr(text, quoted), "%s", target);
  *strstr(text, "amdhsa.target:") = '\0';
  char *block = strstr(text, "\n  - .");
  for (size_t i = 0; i < object->n_kernels; i++) {
    cr_assert_not_null(block);
    char *next = strstr(block + 1, "\n  - .");
    if (next)
      *next++ = '\0';
    const struct code_resources *resources = &object->kernels[i].resources;
    cleanup_free char *name = xasprintf("\n    .name:           %s\n", object->kernels[i].name);
    cr_expect_not_null(strstr(block, name), "%s", name);
    cr_expect_eq(resources->vgprs, printed_number(block, ".vgpr_count"));
    cr_expect_eq(resources->agprs, printed_number(block, ".agpr_count"));
    cr_expect_eq(resources->sgprs, printed_number(block, ".sgpr_count"));
    cr_expect_eq(resources->vgpr_spills, printed_number(block, ".vgpr_spill_count"));
    cr_expect_eq(resources->sgpr_spills, printed_number(block, ".sgpr_spill_count"));
    cr_expect_eq(resources->lds_bytes, printed_number(block, ".group_segment_fixed_size"));
    cr_expect_eq(resources->scratch_bytes, printed_number(block, ".private_segment_fixed_size"));
    cr_expect_eq(resources->kernarg_bytes, printed_number(block, ".kernarg_segment_size"));
    cr_expect_eq(resources->wavefront_size, printed_number(block, ".wavefront_size"));
    cr_expect_eq(resources->workgroup_max, printed_number(block, ".max_flat_workgroup_size"));
    expect_printed_arguments(&object->kernels[i], block);
    block = next;
  }
  cr_assert_null(block, "readelf prints more kernels: %s", block);
}

Test(code_object, a_triton_kernel_is_as_readelf_prints_it) { expect_as_readelf_prints(matmul()); }

Test(code_object, kernels_for_gfx90a_are_as_readelf_prints_them) {
  expect_as_readelf_prints(compiled("gfx90a"));
}

Test(code_object, kernels_for_gfx942_are_as_readelf_prints_them) {
  expect_as_readelf_prints(compiled("gfx942"));
}

Test(code_object, a_target_with_features_is_named_without_them) {
  cleanup_code_object struct code_object *object =
      code_file_parse(compiled("gfx942:sramecc+:xnack-"));
  cr_assert_str_eq(object->target, "gfx942");
  cr_assert_str_eq(object->target_full, "amdgcn-amd-amdhsa--gfx942:sramecc+:xnack-");
}

Test(code_object, the_vgprs_of_gfx942_hold_its_accumulation_registers) {
  cleanup_code_object struct code_object *object = code_file_parse(compiled("gfx942"));
  const struct code_resources *resources = &kernel_named(object, "with_agprs")->resources;
  cr_assert_eq(resources->agprs, 10);
  cr_assert_eq(resources->vgprs, 100 + 10);
}

Test(code_object, spills_are_counted) {
  cleanup_code_object struct code_object *object = code_file_parse(compiled("gfx942"));
  const struct code_resources *resources = &kernel_named(object, "spills")->resources;
  cr_assert_gt(resources->vgpr_spills, 0);
  cr_assert_gt(resources->scratch_bytes, 0);
  cr_assert_eq(code_resources_spills(resources), resources->vgpr_spills + resources->sgpr_spills);
  cr_assert_eq(code_resources_spills(&kernel_named(object, "plain")->resources), 0);
}

Test(code_object, arguments_that_the_runtime_fills_are_hidden) {
  cleanup_code_object struct code_object *object = code_file_parse(compiled("gfx942"));
  const struct code_kernel *kernel = kernel_named(object, "with_hidden");
  cr_assert_gt(kernel->n_arguments, 1u);
  cr_assert_not(kernel->arguments[0].is_hidden);
  for (size_t i = 1; i < kernel->n_arguments; i++)
    cr_expect(kernel->arguments[i].is_hidden);
}

/* Damage */

Test(code_object, a_damaged_triton_kernel_is_refused_without_a_crash) {
  code_file_torture(matmul());
}

Test(code_object, damaged_compiled_kernels_are_refused_without_a_crash) {
  code_file_torture(compiled("gfx90a"));
}

/* Valid metadata of one kernel, which tests change. */
static const char whole[] =
    "{\"amdhsa.kernels\": [{\".name\": \"k\", \".vgpr_count\": 8, \".agpr_count\": 0, "
    "\".sgpr_count\": 10,"
    " \".group_segment_fixed_size\": 0, \".private_segment_fixed_size\": 0, "
    "\".kernarg_segment_size\": 12,"
    " \".wavefront_size\": 64, \".max_flat_workgroup_size\": 256, \".args\": ["
    "{\".offset\": 8, \".size\": 4, \".value_kind\": \"by_value\"},"
    " {\".offset\": 0, \".size\": 8, \".value_kind\": \"global_buffer\"}]}],"
    " \"amdhsa.target\": \"amdgcn-amd-amdhsa--gfx942\", \"amdhsa.version\": [1, 2]}";

/* Packs JSON as msgpack. The '#' at the end of a name is left out: so a map can have a name twice.
 */
static void pack_json(msgpack_packer *packer, const json_t *value) {
  const char *name;
  json_t *member;
  size_t index;
  switch (json_typeof(value)) {
  case JSON_OBJECT:
    msgpack_pack_map(packer, json_object_size(value));
    json_object_foreach ((json_t *)value, name, member) {
      msgpack_pack_str_with_body(packer, name, strcspn(name, "#"));
      pack_json(packer, member);
    }
    return;
  case JSON_ARRAY:
    msgpack_pack_array(packer, json_array_size(value));
    json_array_foreach (value, index, member)
      pack_json(packer, member);
    return;
  case JSON_STRING:
    msgpack_pack_str_with_body(packer, json_string_value(value), json_string_length(value));
    return;
  case JSON_INTEGER:
    msgpack_pack_int64(packer, json_integer_value(value));
    return;
  case JSON_REAL:
    msgpack_pack_double(packer, json_real_value(value));
    return;
  case JSON_TRUE:
    msgpack_pack_true(packer);
    return;
  case JSON_FALSE:
    msgpack_pack_false(packer);
    return;
  case JSON_NULL:
    msgpack_pack_nil(packer);
    return;
  }
}

struct elf_parts {
  Elf64_Ehdr header;
  Elf64_Phdr segment;
  Elf64_Nhdr note;
  char owner[8];
} __attribute__((packed));

static struct elf_parts elf_parts_of(size_t size) {
  struct elf_parts parts = {
      .header = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT, 64, 3},
                 .e_type = ET_DYN,
                 .e_machine = EM_AMDGPU,
                 .e_version = EV_CURRENT,
                 .e_phoff = offsetof(struct elf_parts, segment),
                 .e_flags = 0x54c,
                 .e_ehsize = sizeof(Elf64_Ehdr),
                 .e_phentsize = sizeof(Elf64_Phdr),
                 .e_phnum = 1,
                 .e_shentsize = sizeof(Elf64_Shdr)},
      .segment = {.p_type = PT_NOTE,
                  .p_offset = offsetof(struct elf_parts, note),
                  .p_filesz = sizeof(Elf64_Nhdr) + 8 + size,
                  .p_align = 4},
      .note = {.n_namesz = 7, .n_descsz = (uint32_t)size, .n_type = 32},
      .owner = "AMDGPU",
  };
  return parts;
}

/* A code object of a header and the note only. */
static struct code_file with_note(const void *bytes, size_t size) {
  struct code_file file = {.bytes = xcalloc(1, sizeof(struct elf_parts) + size + 4)};
  size_t padded = (size + 3) / 4 * 4;
  struct elf_parts parts = elf_parts_of(size);
  parts.segment.p_filesz += padded - size;
  memcpy(file.bytes, &parts, sizeof parts);
  memcpy(file.bytes + sizeof parts, bytes, size);
  file.size = sizeof parts + padded;
  return file;
}

/* `whole` with the first `old` of its text replaced by `new`. */
static struct code_file with_metadata(const char *old, const char *new) {
  const char *found = strstr(whole, old);
  cr_assert_not_null(found, "no %s", old);
  cleanup_free char *text =
      xasprintf("%.*s%s%s", (int)(found - whole), whole, new, found + strlen(old));
  cleanup_json json_t *json = NULL;
  struct error error;
  cr_assert(json_parse(text, strlen(text), &json, &error), "%s in %s", error.message, text);
  msgpack_sbuffer buffer;
  msgpack_packer packer;
  msgpack_sbuffer_init(&buffer);
  msgpack_packer_init(&packer, &buffer, msgpack_sbuffer_write);
  pack_json(&packer, json);
  struct code_file file = with_note(buffer.data, buffer.size);
  msgpack_sbuffer_destroy(&buffer);
  return file;
}

Test(code_object, metadata_alone_is_enough) {
  cleanup_code_object struct code_object *object = code_file_parse(with_metadata("k", "k"));
  cr_assert_str_eq(object->kernels[0].name, "k");
  cr_assert_eq(object->kernels[0].resources.vgpr_spills, CODE_UNKNOWN);
}

Test(code_object, arguments_are_put_in_the_order_of_their_offsets) {
  cleanup_code_object struct code_object *object = code_file_parse(with_metadata("k", "k"));
  cr_assert_eq(object->kernels[0].arguments[0].offset, 0);
  cr_assert_eq(object->kernels[0].arguments[1].offset, 8);
}

Test(code_object, metadata_that_is_wrong_is_refused_with_its_place) {
  static const struct {
    const char *old, *new, *words;
  } wrong[] = {
      {"\".sgpr_count\"", "\".vgpr_count#\"", "\".vgpr_count\" occurs twice at /amdhsa.kernels/0"},
      {"\"amdhsa.version\"", "\"amdhsa.target#\"", "\"amdhsa.target\" occurs twice"},
      {"\".size\": 4", "\".offset#\": 4", "\".offset\" occurs twice at /amdhsa.kernels/0/.args/0"},
      {"\".vgpr_count\": 8,", "", "\".vgpr_count\" is missing at /amdhsa.kernels/0/.vgpr_count"},
      {"\".name\": \"k\",", "", "\".name\" is missing at /amdhsa.kernels/0/.name"},
      {"\".name\": \"k\"", "\".name\": \"\"", "1 to 4096 bytes of UTF-8 text at /amdhsa.kernels/0"},
      {"\".name\": \"k\"", "\".name\": 1",
       "must be a string, not an integer at /amdhsa.kernels/0/.name"},
      {"\".vgpr_count\": 8", "\".vgpr_count\": \"8\"", "must be an integer"},
      {"\".vgpr_count\": 8", "\".vgpr_count\": -8",
       "is -8; it must be 0 to 1024 at /amdhsa.kernels/0/.vgpr_count"},
      {"\".vgpr_count\": 8", "\".vgpr_count\": 1025", "is 1025; it must be 0 to 1024"},
      {"\".agpr_count\": 0", "\".agpr_count\": null", "must be an integer"},
      {"\".group_segment_fixed_size\": 0", "\".group_segment_fixed_size\": 4294967296",
       "must be 0 to 4294967295"},
      {"\".wavefront_size\": 64", "\".wavefront_size\": 48", "has 48 lanes, it can have 32 or 64"},
      {"\".args\": [",
       "\".args\": [{\".offset\": 4, \".size\": 8, \".value_kind\": \"by_value\"}, ",
       "two arguments share the byte 4 of the kernel's arguments at /amdhsa.kernels/0/.args"},
      {"\".offset\": 8", "\".offset\": 9", "the last argument ends at byte 13 of 12"},
      {"\".value_kind\": \"by_value\"", "\".value_kind\": \"By value\"",
       "\"By value\" is no kind of argument"},
      {"\".value_kind\": \"by_value\"", "\".value_kind\": \"\"", "\"\" is no kind of argument"},
      {"\".args\": [", "\".args\": [7, ", "must be a map at /amdhsa.kernels/0/.args/0"},
      {"\".args\": [", "\".args\": 7, \"more\": [",
       "must be an array, not an integer at /amdhsa.kernels/0/.args"},
      {"\"amdhsa.kernels\": [", "\"amdhsa.kernels\": 7, \"more\": [",
       "must be an array, not an integer at /amdhsa.kernels"},
      {"\"amdhsa.kernels\": [", "\"amdhsa.kernels\": [[], ", "must be a map at /amdhsa.kernels/0"},
      {"\"amdhsa.target\"", "\"target\"",
       "the metadata of the code object: member \"amdhsa.target\" is missing"},
      {"gfx942", "gfx90a", "states gfx90a, the ELF header states gfx942 at /amdhsa.target"},
      {"--gfx942", "--", "must be like \"amdgcn-amd-amdhsa--gfx942\""},
      {"amdgcn-amd-amdhsa--gfx942", "amdgpu9.42-amd-amdhsa-gfx942",
       "is \"amdgpu9.42-amd-amdhsa-gfx942\""},
      {"amdgcn-amd-amdhsa--gfx942", "amdgcn9-amd-amdhsa--gfx942", "must be like"},
      {"amdgcn-amd-amdhsa--gfx942", "amdgpu9.42-amd-mesa3d--gfx942", "must be like"},
      {"amdgcn-amd-amdhsa--gfx942", "x86_64-linux", "is \"x86_64-linux\" at /amdhsa.target"},
      {"gfx942", "gfx942 ", "must be like"},
  };
  for (size_t i = 0; i < ARRAY_LENGTH(wrong); i++)
    code_file_refused(with_metadata(wrong[i].old, wrong[i].new), wrong[i].words);
}

Test(code_object, two_kernels_of_one_name_are_refused) {
  const char *kernel = strstr(whole, "{\".name\""), *end = strstr(whole, "], \"amdhsa.target\"");
  cleanup_free char *both = xasprintf("\"amdhsa.kernels\": [%.*s, ", (int)(end - kernel), kernel);
  code_file_refused(with_metadata("\"amdhsa.kernels\": [", both), "two kernels of the name \"k\"");
}

Test(code_object, more_members_than_a_kernel_has_are_refused) {
  cleanup_free char *members = xstrdup("");
  for (int i = 0; i < 65; i++) {
    char *longer = xasprintf("\"m%d\": 1, %s", i, members);
    free(members);
    members = longer;
  }
  cleanup_free char *root = xasprintf("%s\"amdhsa.version\"", members);
  code_file_refused(with_metadata("\"amdhsa.version\"", root), "members, at most 64 are read");
}

Test(code_object, more_arguments_than_a_kernel_has_are_refused) {
  char *list = NULL;
  size_t size;
  FILE *out = open_memstream(&list, &size);
  fputs("\".args\": [", out);
  for (int i = 0; i <= CODE_ARGUMENTS_MAX; i++)
    fputs("{}, ", out);
  fclose(out);
  code_file_refused(with_metadata("\".args\": [", list), "arguments, at most 1024 are read");
  free(list);
}

Test(code_object, more_kernels_than_there_can_be_are_refused) {
  char *list = NULL;
  size_t size;
  FILE *out = open_memstream(&list, &size);
  fputs("\"amdhsa.kernels\": [", out);
  for (int i = 0; i < CODE_KERNELS_MAX; i++)
    fprintf(out,
            "{\".name\": \"k%d\", \".vgpr_count\": 8, \".sgpr_count\": 10, "
            "\".group_segment_fixed_size\": 0, "
            "\".private_segment_fixed_size\": 0, \".kernarg_segment_size\": 0, "
            "\".wavefront_size\": 64, "
            "\".max_flat_workgroup_size\": 256}, ",
            i);
  fclose(out);
  code_file_refused(with_metadata("\"amdhsa.kernels\": [", list), "more than 4096 kernels");
  free(list);
}

Test(code_object, counts_larger_than_the_note_allocate_nothing) {
  static const char array[] = "\xdd\xff\xff\xff\xff", map[] = "\xdf\xff\xff\xff\xff",
                    text[] = "\xdb\xff\xff\xff\xff";
  static const char nested[] = "\x92\xdd\x00\x00\x00\x04\x01\x01";
  code_file_refused(with_note(array, 5), "it is cut off, or no msgpack");
  code_file_refused(with_note(map, 5), "it is cut off, or no msgpack");
  code_file_refused(with_note(text, 5), "it is cut off, or no msgpack");
  code_file_refused(with_note(nested, 8), "it is cut off, or no msgpack");
  code_file_refused(with_note("\xcf", 1), "it is cut off, or no msgpack");
  code_file_refused(with_note("\xdd\x00", 2), "it is cut off, or no msgpack");
  code_file_refused(with_note("", 0), "it is cut off, or no msgpack");
}

Test(code_object, types_that_metadata_never_contains_are_refused) {
  code_file_refused(with_note("\xc1", 1), "it is cut off, or no msgpack");
  code_file_refused(with_note("\xc7\x00\x00", 3), "it is cut off, or no msgpack");
}

Test(code_object, bytes_behind_the_metadata_are_refused) {
  code_file_refused(with_note("\x80\x80", 2), "it is cut off, or no msgpack");
}

Test(code_object, metadata_that_is_nested_too_deep_is_refused) {
  char deep[65];
  memset(deep, 0x91, sizeof deep - 1);
  deep[64] = 1;
  code_file_refused(with_note(deep, sizeof deep), "more than 32 levels");
}

Test(code_object, metadata_that_is_no_map_is_refused) {
  code_file_refused(with_note("\x01", 1), "must be a map");
}

Test(code_object, a_member_whose_name_is_no_text_is_refused) {
  code_file_refused(with_note("\x81\x01\x01", 3), "the name of member 0 is no text");
}

Test(code_object, a_note_larger_than_metadata_is_refused) {
  size_t size = ((size_t)16 << 20) + 4;
  cleanup_free char *zeros = xcalloc(1, size);
  code_file_refused(with_note(zeros, size), "has more than 16777216 bytes of notes");
}

/* The header, which the parts begin with, changed by `change`. */
static struct code_file with_header(void (*change)(struct elf_parts *parts)) {
  struct code_file file = with_metadata("k", "k");
  change((struct elf_parts *)file.bytes);
  return file;
}

static void other_note(struct elf_parts *parts) { parts->note.n_type = 31; }
static void relocatable(struct elf_parts *parts) { parts->header.e_type = ET_REL; }
static void version_3(struct elf_parts *parts) { parts->header.e_ident[EI_ABIVERSION] = 1; }
static void linux_abi(struct elf_parts *parts) { parts->header.e_ident[EI_OSABI] = ELFOSABI_LINUX; }
static void other_machine(struct elf_parts *parts) { parts->header.e_machine = EM_X86_64; }
static void segment_behind_the_end(struct elf_parts *parts) { parts->segment.p_filesz += 1; }
static void segment_that_wraps(struct elf_parts *parts) {
  parts->segment.p_offset = UINT64_MAX - 8;
}
static void table_behind_the_end(struct elf_parts *parts) { parts->header.e_phnum = 1000; }
static void sections_behind_the_end(struct elf_parts *parts) { parts->header.e_shoff = 1 << 20; }
static void unknown_machine(struct elf_parts *parts) { parts->header.e_flags = 0x7ff; }

Test(code_object, an_elf_file_that_is_no_code_object_is_refused) {
  code_file_refused(with_header(other_note), "has no NT_AMDGPU_METADATA note");
  code_file_refused(with_header(relocatable),
                    "is not linked (ELF type 1): link it with ld.lld -shared");
  code_file_refused(with_header(version_3),
                    "ABI 64 of version 3, known are amdhsa's versions 4 to 6");
  code_file_refused(with_header(linux_abi), "has ABI 3 of version 5");
  code_file_refused(with_header(other_machine),
                    "an ELF file of machine 62, neither AMDGPU (224) nor CUDA (190)");
}

Test(code_object, parts_beyond_the_end_of_the_file_are_refused) {
  code_file_refused(with_header(segment_behind_the_end), "is damaged or cut off: segment 0 takes");
  code_file_refused(with_header(segment_that_wraps), "is damaged or cut off: segment 0 takes");
  code_file_refused(with_header(table_behind_the_end), "is damaged or cut off");
  code_file_refused(with_header(sections_behind_the_end), "is damaged or cut off");
}

Test(code_object, overlapping_note_segments_have_one_limit) {
  size_t n = 1000, size = sizeof(Elf64_Ehdr) + n * sizeof(Elf64_Phdr) + ((size_t)1 << 20);
  struct elf_parts parts = elf_parts_of(0);
  struct code_file file = {xcalloc(1, size), size};
  parts.header.e_phnum = (Elf64_Half)n;
  parts.segment.p_offset = sizeof(Elf64_Ehdr) + n * sizeof(Elf64_Phdr);
  parts.segment.p_filesz = (size_t)1 << 20;
  memcpy(file.bytes, &parts.header, sizeof parts.header);
  for (size_t i = 0; i < n; i++)
    memcpy(file.bytes + sizeof parts.header + i * sizeof parts.segment, &parts.segment,
           sizeof parts.segment);
  code_file_refused(file, "has more than 16777216 bytes of notes");
}

Test(code_object, the_target_of_an_unknown_machine_is_that_of_the_metadata) {
  cleanup_code_object struct code_object *object = code_file_parse(with_header(unknown_machine));
  cr_assert_str_eq(object->target, "gfx942");
}

Test(code_object, two_metadata_notes_are_refused) {
  struct code_file file = with_metadata("k", "k");
  struct elf_parts *parts = (struct elf_parts *)file.bytes;
  size_t note = file.size - offsetof(struct elf_parts, note);
  struct code_file twice = {xmalloc(file.size + note), file.size + note};
  parts->segment.p_filesz += note;
  memcpy(twice.bytes, file.bytes, file.size);
  memcpy(twice.bytes + file.size, file.bytes + offsetof(struct elf_parts, note), note);
  free(file.bytes);
  code_file_refused(twice, "two metadata notes");
}

Test(code_object, other_common_formats_are_named) {
  static const struct {
    const char *bytes, *words;
  } others[] = {
      {"", "it is empty"},
      {"__CLANG_OFFLOAD_BUNDLE__", "compile with --no-gpu-bundle-output, or unbundle it"},
      {"CCOB", "a compressed clang offload bundle"},
      {"BC\xc0\xde", "LLVM bitcode"},
      {"\x50\xed\x55\xba", "a CUDA fat binary"},
      {"#!/bin/sh", "does not begin as an ELF file does"},
  };
  for (size_t i = 0; i < ARRAY_LENGTH(others); i++)
    code_file_refused((struct code_file){xstrdup(others[i].bytes), strlen(others[i].bytes)},
                      others[i].words);
}

Test(code_object, is_recognised_by_its_first_bytes) {
  struct code_file file = with_metadata("k", "k");
  cr_assert(code_object_is(file.bytes, file.size));
  cr_assert_not(code_object_is(file.bytes, 19));
  cr_assert_not(code_object_is("#!/bin/sh and some more", 23));
  free(file.bytes);
}

/* Kernels by name */

Test(code_object, the_only_kernel_needs_no_name) {
  cleanup_code_object struct code_object *object = code_file_parse(with_metadata("k", "k"));
  cr_assert_str_eq(kernel_named(object, NULL)->name, "k");
}

static void assert_no_kernel(const struct code_object *object, const char *name,
                             const char *words) {
  const struct code_kernel *kernel = NULL;
  struct error error;
  cr_assert_not(code_object_kernel(object, name, &kernel, &error));
  cr_assert_not_null(strstr(error.message, words), "%s", error.message);
}

Test(code_object, a_missing_kernel_is_an_error_that_lists_the_kernels) {
  struct code_kernel kernels[20];
  struct code_object object = {.n_kernels = 2, .kernels = kernels};
  for (size_t i = 0; i < 20; i++)
    kernels[i] = (struct code_kernel){.name = (char *)(i % 2 ? "odd" : "even")};
  assert_no_kernel(&object, "missing", "has no kernel \"missing\", it has: even, odd");
  assert_no_kernel(&object, NULL, "has 2 kernels, name one of them: even, odd");
  object.n_kernels = 20;
  assert_no_kernel(&object, NULL, "odd, …");
  object.n_kernels = 0;
  assert_no_kernel(&object, NULL, "has no kernel");
}

/* Resources as JSON */

Test(code_object, resources_are_written_as_json_and_read_again) {
  struct code_resources resources = code_resources_unknown, again;
  struct error error;
  resources.vgprs = 112;
  resources.lds_bytes = 0;
  cleanup_json json_t *json = code_resources_to_json(&resources);
  cr_assert_eq(json_object_size(json), 2u);
  cr_assert(code_resources_from_json(json, &again, &error));
  cr_assert_eq(memcmp(&resources, &again, sizeof again), 0);
}

Test(code_object, invalid_resources_are_refused) {
  static const char *const wrong[] = {"[]", "{\"vgpr\": 1}", "{\"vgprs\": -1}",
                                      "{\"vgprs\": \"1\"}"};
  for (size_t i = 0; i < ARRAY_LENGTH(wrong); i++) {
    cleanup_json json_t *json = json_loads(wrong[i], 0, NULL);
    struct code_resources resources;
    struct error error;
    cr_expect_not(code_resources_from_json(json, &resources, &error), "%s", wrong[i]);
  }
}

Test(code_object, scratch_counts_as_a_spill_where_spills_are_unknown) {
  struct code_resources resources = code_resources_unknown;
  cr_assert_eq(code_resources_spills(&resources), 0);
  resources.scratch_bytes = 16;
  cr_assert_eq(code_resources_spills(&resources), 1);
  resources.vgpr_spills = 3;
  cr_assert_eq(code_resources_spills(&resources), 3);
  resources.sgpr_spills = 4;
  cr_assert_eq(code_resources_spills(&resources), 7);
}
