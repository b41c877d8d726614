/* CUDA cubins, compiled from tests/data/codeobjects/resources.cu. The expected numbers are those of
 * cuobjdump --dump-resource-usage and ptxas -v for the same files. */
#include "tests/unit/code_object_fixture.h"

#include <elf.h>

#define DATA SOURCE_FOLDER "/tests/data/codeobjects/"

static struct code_file sm_80(void) { return code_file_read(DATA "resources_sm_80.cubin"); }
static struct code_file sm_90(void) { return code_file_read(DATA "resources_sm_90.cubin"); }

/* What a kernel needs; the arguments' sizes in order, 0 behind the last. */
struct expectation {
  const char *name;
  int64_t registers, shared, stack, arguments, threads;
  int64_t sizes[5];
};

static void expect_kernels(const struct code_object *object, const struct expectation *expected) {
  cr_assert_eq(object->n_kernels, 4u);
  for (size_t i = 0; i < 4; i++) {
    const struct code_kernel *kernel = NULL;
    struct error error;
    cr_assert(code_object_kernel(object, expected[i].name, &kernel, &error), "%s", error.message);
    struct code_resources resources = code_resources_unknown;
    resources.vgprs = expected[i].registers;
    resources.lds_bytes = expected[i].shared;
    resources.scratch_bytes = expected[i].stack;
    resources.kernarg_bytes = expected[i].arguments;
    resources.workgroup_max = expected[i].threads;
    resources.wavefront_size = 32;
    cr_expect_eq(memcmp(&kernel->resources, &resources, sizeof resources), 0, "%s",
                 expected[i].name);
    size_t n = 0;
    for (int64_t offset = 0; expected[i].sizes[n]; n++) {
      cr_assert_lt(n, kernel->n_arguments);
      cr_expect_eq(kernel->arguments[n].offset, offset);
      cr_expect_eq(kernel->arguments[n].size, expected[i].sizes[n]);
      cr_expect_str_eq(kernel->arguments[n].kind, "parameter");
      cr_expect_not(kernel->arguments[n].is_hidden);
      offset += expected[i].sizes[n];
    }
    cr_expect_eq(n, kernel->n_arguments);
  }
}

Test(code_object_cuda, of_cuda_12_has_the_resources_of_each_kernel) {
  cleanup_code_object struct code_object *object = code_file_parse(sm_80());
  cr_assert_eq(object->kind, CODE_OBJECT_CUDA);
  cr_assert_str_eq(object->target, "sm_80");
  cr_assert_str_eq(object->target_full, "sm_80");
  expect_kernels(object, (struct expectation[]){
                             {"scale", 10, 0, 0, 24, CODE_UNKNOWN, {8, 8, 4, 4}},
                             {"reversed", 12, 1024, 0, 16, 256, {8, 8}},
                             {"on_stack", 30, 0, 256, 17, CODE_UNKNOWN, {8, 8, 1}},
                             {"dynamic", 12, 0, 0, 4808, CODE_UNKNOWN, {4800, 8}},
                         });
}

Test(code_object_cuda, of_cuda_13_has_the_resources_of_each_kernel) {
  cleanup_code_object struct code_object *object = code_file_parse(sm_90());
  cr_assert_str_eq(object->target, "sm_90");
  expect_kernels(object, (struct expectation[]){
                             {"scale", 10, 0, 0, 24, CODE_UNKNOWN, {8, 8, 4, 4}},
                             {"reversed", 14, 1024, 0, 16, 256, {8, 8}},
                             {"on_stack", 30, 0, 256, 17, CODE_UNKNOWN, {8, 8, 1}},
                             {"dynamic", 12, 0, 0, 4808, CODE_UNKNOWN, {4800, 8}},
                         });
}

Test(code_object_cuda, a_stack_counts_as_a_spill) {
  cleanup_code_object struct code_object *object = code_file_parse(sm_90());
  const struct code_kernel *kernel = NULL;
  struct error error;
  cr_assert(code_object_kernel(object, "on_stack", &kernel, &error));
  cr_assert_eq(code_resources_spills(&kernel->resources), 1);
}

Test(code_object_cuda, a_damaged_file_of_cuda_12_is_refused_without_a_crash) {
  code_file_torture(sm_80());
}

Test(code_object_cuda, a_damaged_file_of_cuda_13_is_refused_without_a_crash) {
  code_file_torture(sm_90());
}

/* The first place of `n` bytes in the file. */
static char *find(struct code_file file, const char *bytes, size_t n) {
  char *found = memmem(file.bytes, file.size, bytes, n);
  cr_assert_not_null(found);
  return found;
}

/* The entry of an attribute, of format SIZED with `size` bytes. */
static char *attribute(struct code_file file, char code, char size) {
  return find(file, (char[]){4, code, size, 0}, 4);
}

static Elf64_Ehdr *header(struct code_file file) { return (Elf64_Ehdr *)file.bytes; }

static Elf64_Shdr *section(struct code_file file, const char *name) {
  Elf64_Shdr *sections = (Elf64_Shdr *)(file.bytes + header(file)->e_shoff);
  const char *names = file.bytes + sections[header(file)->e_shstrndx].sh_offset;
  for (size_t i = 0; i < header(file)->e_shnum; i++) {
    if (string_equal(names + sections[i].sh_name, name))
      return &sections[i];
  }
  die("no section %s", name);
}

/* The first symbol of a kernel. */
static Elf64_Sym *entry_symbol(struct code_file file) {
  const Elf64_Shdr *table = section(file, ".symtab");
  Elf64_Sym *symbol = (Elf64_Sym *)(file.bytes + table->sh_offset);
  while (!(symbol->st_other & 0x10))
    symbol++;
  return symbol;
}

Test(code_object_cuda, other_versions_of_the_format_are_refused) {
  struct code_file file = sm_90();
  header(file)->e_ident[EI_ABIVERSION] = 9;
  code_file_refused(file, "has ABI version 9, known are 7 (CUDA 12) and 8 (CUDA 13)");
}

Test(code_object_cuda, one_that_is_not_linked_is_refused) {
  struct code_file file = sm_90();
  header(file)->e_type = ET_REL;
  code_file_refused(file, "is not linked (ELF type 1)");
}

Test(code_object_cuda, two_numbers_of_registers_are_refused) {
  struct code_file file = sm_80();
  attribute(file, 0x2f, 8)[8]++;
  code_file_refused(file, "kernel scale claims 10 and 11 registers");
}

Test(code_object_cuda, a_kernel_of_more_registers_than_a_thread_has_is_refused) {
  struct code_file file = sm_90();
  attribute(file, 0x2f, 8)[9] = 1;
  code_file_refused(file, "a kernel of 266 registers");
}

Test(code_object_cuda, a_kernel_without_a_number_of_registers_is_refused) {
  struct code_file file = sm_90();
  attribute(file, 0x2f, 8)[1] = 0x7f;
  code_file_refused(file, "does not state how many registers kernel scale has");
}

Test(code_object_cuda, attributes_of_a_wrong_size_are_refused) {
  struct code_file registers = sm_90(), parameter = sm_90(), threads = sm_90();
  /* Makes the end of an attribute another attribute, with a value of 4 bytes only. */
  memcpy(attribute(registers, 0x2f, 8), (char[]){4, 0x2f, 4, 0, 0, 0, 0, 0, 1, 1, 0, 0}, 12);
  code_file_refused(registers, "attribute 0x2f of 4 bytes");
  attribute(parameter, 0x37, 4)[1] = 0x17;
  code_file_refused(parameter, "attribute 0x17 of 4 bytes");
  attribute(threads, 0x37, 4)[1] = 0x05;
  code_file_refused(threads, "attribute 0x05 of 4 bytes");
}

Test(code_object_cuda, attributes_that_are_cut_off_are_refused) {
  struct code_file body = sm_90(), head = sm_90();
  section(body, ".nv.info.scale")->sh_size = 6;
  code_file_refused(body, "attribute 0x37 is cut off");
  section(head, ".nv.info.scale")->sh_size = 3;
  code_file_refused(head, "an attribute is cut off");
}

Test(code_object_cuda, a_block_of_no_or_too_many_threads_is_refused) {
  struct code_file none = sm_90(), many = sm_90();
  attribute(none, 0x05, 12)[8] = 0;
  code_file_refused(none, "a block of 0 threads in one dimension");
  attribute(many, 0x05, 12)[10] = 1;
  code_file_refused(many, "a block of 65537 threads in one dimension");
}

Test(code_object_cuda, arguments_that_overlap_are_refused) {
  struct code_file file = sm_90();
  /* The second of two pointers: index 0, ordinal 1, offset 8. */
  find(file, (char[]){4, 0x17, 12, 0, 0, 0, 0, 0, 1, 0, 8, 0}, 12)[10] = 4;
  code_file_refused(file, "two arguments share the byte 4 of the kernel's arguments");
}

Test(code_object_cuda, arguments_outside_of_their_segment_are_refused) {
  struct code_file file = sm_90();
  find(file, (char[]){3, 0x19, 0x18, 0}, 4)[2] = 0x14;
  code_file_refused(file, "kernel scale: the last argument ends at byte 24 of 20");
}

Test(code_object_cuda, a_kernel_without_its_section_is_refused) {
  struct code_file renamed = sm_90(), elsewhere = sm_90(), nowhere = sm_90(), unnamed = sm_90();
  entry_symbol(renamed)->st_name++;
  code_file_refused(renamed, "kernel \"ynamic\" has no separate .text section");
  entry_symbol(elsewhere)->st_shndx = 1;
  code_file_refused(elsewhere, "kernel \"dynamic\" has no separate .text section");
  entry_symbol(nowhere)->st_shndx = 1000;
  code_file_refused(nowhere, "the symbol of a kernel has no name or no section");
  entry_symbol(unnamed)->st_name = 1 << 20;
  code_file_refused(unnamed, "the symbol of a kernel has no name or no section");
}

Test(code_object_cuda, two_kernels_in_one_section_are_refused) {
  struct code_file file = sm_90();
  Elf64_Sym *first = entry_symbol(file), *second = first + 1;
  *second = *first;
  code_file_refused(file, "kernel \"dynamic\" has no separate .text section");
}

Test(code_object_cuda, two_kernels_of_one_name_are_refused) {
  struct code_file file = sm_90();
  Elf64_Sym *first = entry_symbol(file), *second = first + 1;
  section(file, ".text.on_stack")->sh_name = section(file, ".text.dynamic")->sh_name;
  second->st_name = first->st_name;
  code_file_refused(file, "two kernels of the name \"dynamic\"");
}

Test(code_object_cuda, two_symbol_tables_are_refused) {
  struct code_file none = sm_90(), two = sm_90(), broken = sm_90();
  section(none, ".symtab")->sh_type = SHT_PROGBITS;
  code_file_refused(none, "it has no symbol table");
  *section(two, ".debug_frame") = *section(two, ".symtab");
  code_file_refused(two, "has two symbol tables");
  section(broken, ".symtab")->sh_size -= 1;
  code_file_refused(broken, "is damaged");
}

Test(code_object_cuda, a_missing_table_of_names_is_refused) {
  struct code_file file = sm_90();
  header(file)->e_shoff = header(file)->e_shnum = 0;
  header(file)->e_shstrndx = SHN_XINDEX;
  code_file_refused(file, "the cubin is damaged");
}

Test(code_object_cuda, more_sections_than_a_cubin_has_are_refused) {
  struct code_file file = sm_90();
  size_t n = 65537, begin = (file.size + 7) / 8 * 8;
  struct code_file larger = {xcalloc(1, begin + n * sizeof(Elf64_Shdr)),
                             begin + n * sizeof(Elf64_Shdr)};
  memcpy(larger.bytes, file.bytes, file.size);
  free(file.bytes);
  /* A number of sections that is too large for the header is in the first section. */
  ((Elf64_Shdr *)(larger.bytes + begin))->sh_size = n;
  header(larger)->e_shoff = begin;
  header(larger)->e_shnum = 0;
  header(larger)->e_shstrndx = SHN_XINDEX;
  code_file_refused(larger, "has 65537 sections, at most 65536 are read");
}

Test(code_object_cuda, a_section_without_a_name_is_refused) {
  struct code_file file = sm_90();
  section(file, ".debug_frame")->sh_name = 1 << 20;
  code_file_refused(file, "section 4 has no name");
}

Test(code_object_cuda, attributes_longer_than_the_file_are_refused) {
  struct code_file file = sm_90();
  /* Appends sections, each of which states that all former bytes are attributes. */
  size_t n_old = header(file)->e_shnum, n = n_old + 2, begin = (file.size + 7) / 8 * 8;
  size_t size = begin + n * sizeof(Elf64_Shdr) + 2 * file.size;
  struct code_file larger = {xcalloc(1, size), size};
  memcpy(larger.bytes, file.bytes, file.size);
  Elf64_Shdr *sections = (Elf64_Shdr *)(larger.bytes + begin);
  memcpy(sections, larger.bytes + header(larger)->e_shoff, n_old * sizeof *sections);
  for (size_t i = n_old; i < n; i++) {
    sections[i] = *section(larger, ".nv.info");
    sections[i].sh_offset = begin + n * sizeof *sections;
    sections[i].sh_size = (size - sections[i].sh_offset) / 4 * 4;
  }
  header(larger)->e_shoff = begin;
  header(larger)->e_shnum = (Elf64_Half)n;
  free(file.bytes);
  code_file_refused(larger, "its attributes are longer than the file");
}

Test(code_object_cuda, an_unterminated_or_compressed_table_of_names_is_refused) {
  struct code_file endless = sm_90(), compressed = sm_90();
  const Elf64_Shdr *names = section(endless, ".shstrtab");
  endless.bytes[names->sh_offset + names->sh_size - 1] = 'x';
  code_file_refused(endless, "is no table of names");
  section(compressed, ".strtab")->sh_flags |= SHF_COMPRESSED;
  code_file_refused(compressed, "is no table of names");
}

Test(code_object_cuda, duplicate_or_too_large_shared_memory_is_refused) {
  struct code_file twice = sm_90(), large = sm_90();
  *section(twice, ".nv.shared.scale") = *section(twice, ".nv.shared.reversed");
  code_file_refused(twice, "a kernel with two sections of shared memory");
  section(large, ".nv.shared.scale")->sh_size = 1ull << 40;
  code_file_refused(large, "or one of 1099511627776 bytes");
}

Test(code_object_cuda, more_parameters_than_a_kernel_has_are_refused) {
  struct code_file file = sm_90();
  /* Appends attributes of the kernel, all parameters. */
  static const char parameter[16] = {4, 0x17, 12};
  size_t n = CODE_ARGUMENTS_MAX + 1;
  struct code_file larger = {xcalloc(1, file.size + n * sizeof parameter),
                             file.size + n * sizeof parameter};
  memcpy(larger.bytes, file.bytes, file.size);
  for (size_t at = file.size; at < larger.size; at += sizeof parameter)
    memcpy(larger.bytes + at, parameter, sizeof parameter);
  section(larger, ".nv.info.scale")->sh_offset = file.size;
  section(larger, ".nv.info.scale")->sh_size = n * sizeof parameter;
  free(file.bytes);
  code_file_refused(larger, "a kernel has more than 1024 parameters");
}
