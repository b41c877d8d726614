/* CUDA cubins. NVIDIA does not document the format: it was found by comparing files of CUDA 12 (ABI
 * version 7) and 13 (8) with what cuobjdump (-elf, --dump-resource-usage) and ptxas -v print about
 * them. LLVM's BinaryFormat/ELF.h has the flags. */
#include "common/base/error.h"
#include "common/code/code_object_parse.h"

#define ABI_CUDA_12 7
#define ABI_CUDA_13 8
/* in st_other: STO_CUDA_ENTRY, set for kernels, not for functions that kernels call */
#define SYMBOL_IS_ENTRY 0x10
#define SECTIONS_MAX 65536
/* From sm_90 on, where this section exists, .nv.shared.NAME begins with the bytes that the system
 * takes of each block. */
#define RESERVED_SECTION ".nv.shared.reserved.0"
#define RESERVED_BYTES 1024

/* An entry of .nv.info: a format byte, an attribute byte, and a 16-bit value, which in format SIZED
 * is the number of bytes that follow. */
#define FORMAT_SIZED 4
enum attribute {
  ATTRIBUTE_MAX_THREADS = 0x05,      /* u32 x, y, z */
  ATTRIBUTE_REQUIRED_THREADS = 0x10, /* the same: .reqntid */
  ATTRIBUTE_FRAME_SIZE = 0x11,       /* u32 symbol, bytes */
  ATTRIBUTE_PARAMETER =
      0x17, /* u32 index, u16 ordinal, offset; u32 whose bits from 18 are the size */
  ATTRIBUTE_PARAMETERS_SIZE = 0x19, /* value: bytes of all parameters */
  ATTRIBUTE_REGISTERS = 0x2f,       /* u32 symbol, count */
  ATTRIBUTE_PARAMETER_LARGE = 0x45, /* as PARAMETER, then u16 size, flags */
};

struct cubin {
  const struct elf_image *image;
  struct code_object *object;
  size_t n_sections, names_section;
  int *kernel_of_section; /* of a .text section: the kernel in it, or -1 */
  Elf_Data *symbols;
};

static uint32_t number_at(struct bytes_view view, size_t offset, size_t size) {
  uint32_t number = 0;
  for (size_t i = size; i-- > 0;)
    number = number << 8 | (unsigned char)view.bytes[offset + i];
  return number;
}

/* A number that is stated twice must be the same. */
static bool set_once(int64_t *field, int64_t value, const struct code_kernel *kernel,
                     const char *what, struct error *error) {
  if (*field != CODE_UNKNOWN && *field != value)
    return error_set(error, "kernel %s claims %lld and %lld %s", NAME_CUT(kernel->name),
                     (long long)*field, (long long)value, what);
  *field = value;
  return true;
}

static bool get_section(const struct cubin *cubin, size_t index, GElf_Shdr *ret,
                        const char **ret_name, struct error *error) {
  const char *name = NULL;
  if (gelf_getshdr(elf_getscn(cubin->image->elf, index), ret))
    name = elf_strptr(cubin->image->elf, cubin->names_section, ret->sh_name);
  if (!name)
    return error_set(error, "the cubin is damaged: section %zu has no name", index);
  *ret_name = name;
  return true;
}

/* The kernel whose .text section this is, NULL when it is none. */
static struct code_kernel *kernel_in(const struct cubin *cubin, size_t section) {
  int kernel = section < cubin->n_sections ? cubin->kernel_of_section[section] : -1;
  return kernel < 0 ? NULL : &cubin->object->kernels[kernel];
}

static bool read_entry_symbol(struct cubin *cubin, const GElf_Sym *symbol, const GElf_Shdr *table,
                              struct error *error) {
  const char *name = elf_strptr(cubin->image->elf, table->sh_link, symbol->st_name), *section_name;
  GElf_Shdr section;
  struct code_kernel *kernel;
  if (!name || symbol->st_shndx >= cubin->n_sections)
    return error_set(error,
                     "the cubin is damaged: the symbol of a kernel has no name or no section");
  if (!get_section(cubin, symbol->st_shndx, &section, &section_name, error))
    return false;
  if (!string_starts(section_name, ".text.") ||
      !string_equal(section_name + strlen(".text."), name) || kernel_in(cubin, symbol->st_shndx)) {
    return error_set(error, "the cubin is damaged: kernel \"%s\" has no separate .text section",
                     NAME_CUT(name));
  }

  if (!code_object_add_kernel(cubin->object, name, strlen(name), &kernel, error))
    return false;

  cubin->kernel_of_section[symbol->st_shndx] = (int)cubin->object->n_kernels - 1;
  kernel->resources.wavefront_size = 32;
  kernel->resources.lds_bytes = 0;

  /* Until CUDA 12 the section's header has the registers too, in the top byte. */
  if (cubin->image->header.e_ident[EI_ABIVERSION] == ABI_CUDA_12 && section.sh_info >> 24)
    kernel->resources.vgprs = section.sh_info >> 24;
  return true;
}

/* Finds the symbol table and the kernels in it. */
static bool read_kernels(struct cubin *cubin, struct error *error) {
  for (size_t i = 1; i < cubin->n_sections; i++) {
    GElf_Shdr section;
    const char *name;
    if (!get_section(cubin, i, &section, &name, error))
      return false;
    if (section.sh_type != SHT_SYMTAB)
      continue;
    if (cubin->symbols)
      return error_set(error, "the cubin has two symbol tables");

    cubin->symbols = elf_getdata(elf_getscn(cubin->image->elf, i), NULL);
    if (!cubin->symbols)
      return error_set(error, "the cubin is damaged: its symbol table: %s", elf_errmsg(-1));

    GElf_Sym symbol;
    for (int j = 0; gelf_getsym(cubin->symbols, j, &symbol); j++)
      if (GELF_ST_TYPE(symbol.st_info) == STT_FUNC && symbol.st_other & SYMBOL_IS_ENTRY &&
          !read_entry_symbol(cubin, &symbol, &section, error))
        return false;
  }

  return cubin->symbols || error_set(error, "the cubin is damaged: it has no symbol table");
}

static bool refuse_size(unsigned attribute, size_t size, struct error *error) {
  return error_set(error, "the cubin is damaged: attribute 0x%02x of %zu bytes", attribute, size);
}

/* Reads an attribute of the section .nv.info.NAME of a kernel. */
static bool read_kernel_attribute(struct code_kernel *kernel, unsigned attribute, uint32_t value,
                                  struct bytes_view bytes, struct error *error) {
  struct code_resources *resources = &kernel->resources;
  if (attribute == ATTRIBUTE_PARAMETERS_SIZE)
    return set_once(&resources->kernarg_bytes, value, kernel, "bytes of arguments", error);

  bool is_parameter = attribute == ATTRIBUTE_PARAMETER || attribute == ATTRIBUTE_PARAMETER_LARGE;
  if (!is_parameter && attribute != ATTRIBUTE_MAX_THREADS &&
      attribute != ATTRIBUTE_REQUIRED_THREADS)
    return true;
  if (bytes.size != 12)
    return refuse_size(attribute, bytes.size, error);

  if (is_parameter) {
    if (kernel->n_arguments >= CODE_ARGUMENTS_MAX)
      return error_set(error, "a kernel has more than %d parameters", CODE_ARGUMENTS_MAX);
    kernel->arguments =
        xreallocarray(kernel->arguments, kernel->n_arguments + 1, sizeof *kernel->arguments);
    kernel->arguments[kernel->n_arguments++] = (struct code_argument){
        .offset = number_at(bytes, 6, 2),
        .size = attribute == ATTRIBUTE_PARAMETER ? number_at(bytes, 8, 4) >> 18
                                                 : number_at(bytes, 8, 2),
        .kind = xstrdup("parameter")};
    return true;
  }

  int64_t threads = 1;
  for (size_t i = 0; i < 12; i += 4) {
    uint32_t count = number_at(bytes, i, 4);
    if (count < 1 || count > 1024)
      return error_set(error, "the cubin is damaged: a block of %u threads in one dimension",
                       count);
    threads *= count;
  }

  return set_once(&resources->workgroup_max, threads, kernel, "threads a block", error);
}

/* Reads an attribute of the section .nv.info, which states the resources of each function. */
static bool read_common_attribute(const struct cubin *cubin, unsigned attribute,
                                  struct bytes_view bytes, struct error *error) {
  if (attribute != ATTRIBUTE_FRAME_SIZE && attribute != ATTRIBUTE_REGISTERS)
    return true;
  if (bytes.size != 8)
    return refuse_size(attribute, bytes.size, error);

  GElf_Sym symbol;
  uint32_t index = number_at(bytes, 0, 4), value = number_at(bytes, 4, 4);
  bool is_entry = index <= INT32_MAX && gelf_getsym(cubin->symbols, (int)index, &symbol) &&
                  symbol.st_other & SYMBOL_IS_ENTRY;
  struct code_kernel *kernel = is_entry ? kernel_in(cubin, symbol.st_shndx) : NULL;
  if (!kernel)
    return true; /* a function that kernels call */

  if (attribute == ATTRIBUTE_FRAME_SIZE)
    return set_once(&kernel->resources.scratch_bytes, value, kernel, "bytes of stack", error);
  if (value > 255)
    return error_set(error, "the cubin is damaged: a kernel of %u registers", value);
  return set_once(&kernel->resources.vgprs, value, kernel, "registers", error);
}

/* Reads the attributes in a section: of `kernel`, or of all functions when it is NULL. */
static bool read_attributes(const struct cubin *cubin, struct code_kernel *kernel,
                            struct bytes_view section, struct error *error) {
  for (size_t at = 0; at < section.size;) {
    if (section.size - at < 4)
      return error_set(error, "the cubin is damaged: an attribute is cut off");
    unsigned format = (unsigned char)section.bytes[at],
             attribute = (unsigned char)section.bytes[at + 1];
    uint32_t value = number_at(section, at + 2, 2);
    at += 4;

    struct bytes_view bytes = {section.bytes + at, format == FORMAT_SIZED ? value : 0};
    if (bytes.size > section.size - at)
      return error_set(error, "the cubin is damaged: attribute 0x%02x is cut off", attribute);
    if (!(kernel ? read_kernel_attribute(kernel, attribute, value, bytes, error)
                 : read_common_attribute(cubin, attribute, bytes, error)))
      return false;
    at += bytes.size;
  }

  return true;
}

/* Reads the attributes and the sizes of shared memory of the kernels. Each section names the .text
 * section to which it belongs. */
static bool read_sections(const struct cubin *cubin, struct error *error) {
  bool has_reserved = false;
  size_t left = cubin->image->size; /* no compiler makes attributes that are longer than the file */
  for (size_t i = 1; i < cubin->n_sections; i++) {
    GElf_Shdr section;
    const char *name;
    if (!get_section(cubin, i, &section, &name, error))
      return false;

    struct code_kernel *kernel = kernel_in(cubin, section.sh_info);
    if (string_equal(name, RESERVED_SECTION)) {
      has_reserved = true;
    } else if (string_starts(name, ".nv.info") && section.sh_type != SHT_NOBITS) {
      struct bytes_view bytes = {cubin->image->bytes + section.sh_offset, section.sh_size};
      bool is_common = name[strlen(".nv.info")] == '\0';
      if (bytes.size > left)
        return error_set(error, "the cubin is damaged: its attributes are longer than the file");
      left -= bytes.size;
      if ((is_common || kernel) && !read_attributes(cubin, is_common ? NULL : kernel, bytes, error))
        return false;
    } else if (string_starts(name, ".nv.shared.") && kernel) {
      if (section.sh_size > INT32_MAX || kernel->resources.lds_bytes > 0)
        return error_set(error,
                         "the cubin is damaged: a kernel with two sections of shared memory, or "
                         "one of %llu bytes",
                         (unsigned long long)section.sh_size);
      kernel->resources.lds_bytes = (int64_t)section.sh_size;
    }
  }

  for (size_t i = 0; i < cubin->object->n_kernels; i++) {
    struct code_kernel *kernel = &cubin->object->kernels[i];
    struct code_resources *resources = &kernel->resources;
    const char *cut = NAME_CUT(kernel->name);
    if (resources->vgprs == CODE_UNKNOWN)
      return error_set(error, "the cubin does not state how many registers kernel %s has", cut);
    if (resources->kernarg_bytes == CODE_UNKNOWN)
      resources->kernarg_bytes = 0;
    if (has_reserved)
      resources->lds_bytes =
          resources->lds_bytes > RESERVED_BYTES ? resources->lds_bytes - RESERVED_BYTES : 0;
    if (!code_kernel_order_arguments(kernel, error))
      return error_prefix(error, "kernel %s: ", cut);
  }

  return true;
}

bool cuda_parse(const struct elf_image *image, struct code_object *object, struct error *error) {
  struct cubin cubin = {.image = image, .object = object};
  int version = image->header.e_ident[EI_ABIVERSION];
  if (version != ABI_CUDA_12 && version != ABI_CUDA_13)
    return error_set(error, "the cubin has ABI version %d, known are %d (CUDA 12) and %d (CUDA 13)",
                     version, ABI_CUDA_12, ABI_CUDA_13);
  if (image->header.e_type != ET_EXEC)
    return error_set(
        error,
        "the cubin is not linked (ELF type %d): compile it without -rdc, or link it with nvlink",
        image->header.e_type);

  /* EF_CUDA_SM: the low byte until CUDA 12, the second one from 13 on. */
  unsigned sm =
      version == ABI_CUDA_12 ? image->header.e_flags & 0xff : image->header.e_flags >> 8 & 0xff;
  object->target = xasprintf("sm_%u", sm);
  object->target_full = xstrdup(object->target);

  if (elf_getshdrnum(image->elf, &cubin.n_sections) != 0 ||
      elf_getshdrstrndx(image->elf, &cubin.names_section) != 0)
    return error_set(error, "the cubin is damaged: %s", elf_errmsg(-1));
  if (cubin.n_sections > SECTIONS_MAX)
    return error_set(error, "the cubin has %zu sections, at most %d are read", cubin.n_sections,
                     SECTIONS_MAX);

  cleanup_free int *kernel_of_section = xcalloc(cubin.n_sections, sizeof *kernel_of_section);
  for (size_t i = 0; i < cubin.n_sections; i++)
    kernel_of_section[i] = -1;
  cubin.kernel_of_section = kernel_of_section;
  return read_kernels(&cubin, error) && read_sections(&cubin, error);
}
