/* Compiled GPU code: finding its kind, checking that the file is complete, and functions for both
 * kinds. */
#include "common/code/code_object.h"

#include "common/base/error.h"
#include "common/code/code_object_parse.h"

/* Limits the numbers of a file, so that sums cannot overflow; gpu_target.c has the limits of GPUs.
 */
#define RESOURCE_MAX ((int64_t)1 << 40)
#define NAME_MAX_BYTES 4096

#define RESOURCES(X)                                                                               \
  X(vgprs)                                                                                         \
  X(agprs)                                                                                         \
  X(sgprs)                                                                                         \
  X(vgpr_spills)                                                                                   \
  X(sgpr_spills)                                                                                   \
  X(lds_bytes)                                                                                     \
  X(scratch_bytes)                                                                                 \
  X(kernarg_bytes)                                                                                 \
  X(wavefront_size)                                                                                \
  X(workgroup_max)

const struct code_resources code_resources_unknown = {
#define X(member) .member = CODE_UNKNOWN,
    RESOURCES(X)
#undef X
};

int64_t code_resources_spills(const struct code_resources *resources) {
  if (resources->vgpr_spills == CODE_UNKNOWN && resources->sgpr_spills == CODE_UNKNOWN)
    return resources->scratch_bytes > 0;
  return (resources->vgpr_spills == CODE_UNKNOWN ? 0 : resources->vgpr_spills) +
         (resources->sgpr_spills == CODE_UNKNOWN ? 0 : resources->sgpr_spills);
}

json_t *code_resources_to_json(const struct code_resources *resources) {
  json_t *json = json_object();
#define X(member)                                                                                  \
  if (resources->member != CODE_UNKNOWN)                                                           \
    json_put(json, #member, json_integer(resources->member));
  RESOURCES(X)
#undef X
  return json;
}

bool code_resources_from_json(const json_t *json, struct code_resources *ret, struct error *error) {
#define X(member) #member,
  static const char *const names[] = {RESOURCES(X) NULL};
#undef X
  struct code_resources resources = code_resources_unknown;
  if (!json_only_members(json, "", names, error))
    return false;
#define X(member)                                                                                  \
  if (!json_get_integer(json, "", #member, JSON_OPTIONAL, 0, RESOURCE_MAX, &resources.member,      \
                        error))                                                                    \
    return false;

  RESOURCES(X)
#undef X
  *ret = resources;
  return true;
}

bool code_object_is(const void *bytes, size_t size) {
  const unsigned char *header = bytes;
  if (size < 20 || memcmp(header, ELFMAG, SELFMAG) != 0 || header[EI_CLASS] != ELFCLASS64 ||
      header[EI_DATA] != ELFDATA2LSB)
    return false;
  int machine = header[18] | header[19] << 8;
  return machine == EM_AMDGPU || machine == EM_CUDA;
}

/* Refuses bytes of another format; the error names common ones. */
static bool refuse_other_format(const char *bytes, size_t size, struct error *error) {
  static const struct {
    const char *magic, *what;
  } formats[] = {
      {"__CLANG_OFFLOAD_BUNDLE__",
       "a clang offload bundle: compile with --no-gpu-bundle-output, or unbundle it"},
      {"CCOB",
       "a compressed clang offload bundle: compile with --no-gpu-bundle-output, or unbundle it"},
      {"\x50\xed\x55\xba",
       "a CUDA fat binary: compile to a cubin (nvcc -cubin), or extract it with cuobjdump"},
      {"BC\xc0\xde", "LLVM bitcode: compile it to a code object"},
  };
  if (size == 0)
    return error_set(error, "not a code object: it is empty");

  for (size_t i = 0; i < ARRAY_LENGTH(formats); i++) {
    size_t length = strlen(formats[i].magic);
    if (size >= length && memcmp(bytes, formats[i].magic, length) == 0)
      return error_set(error, "not a code object but %s", formats[i].what);
  }

  if (size < 20 || memcmp(bytes, ELFMAG, SELFMAG) != 0)
    return error_set(error, "not a code object: it does not begin as an ELF file does");
  return error_set(error,
                   "not a code object: an ELF file of machine %d, neither AMDGPU (%d) nor CUDA "
                   "(%d), 64-bit and little-endian",
                   (unsigned char)bytes[18] | (unsigned char)bytes[19] << 8, EM_AMDGPU, EM_CUDA);
}

static bool refuse_damaged(struct error *error) {
  return error_set(error, "the code object is damaged or cut off: %s", elf_errmsg(-1));
}

static bool check_part(const struct elf_image *image, const char *what, size_t index,
                       uint64_t offset, uint64_t size, struct error *error) {
  if (offset > image->size || size > image->size - offset)
    return error_set(
        error,
        "the code object is damaged or cut off: %s %zu takes %llu bytes at %llu, the file has %zu",
        what, index, (unsigned long long)size, (unsigned long long)offset, image->size);
  return true;
}

/* Whether every table, segment and section is within the file; not every loader checks that. */
static bool check_whole(const struct elf_image *image, struct error *error) {
  const GElf_Ehdr *header = &image->header;
  size_t n_segments, n_sections;
  if (elf_getphdrnum(image->elf, &n_segments) != 0 || elf_getshdrnum(image->elf, &n_sections) != 0)
    return refuse_damaged(error);

  /* With the numbers of the header: libelf counts only the entries that the file contains. */
  if (!check_part(image, "table", 0, header->e_phoff,
                  (uint64_t)header->e_phnum * header->e_phentsize, error) ||
      !check_part(image, "table", 1, header->e_shoff,
                  (uint64_t)header->e_shnum * header->e_shentsize, error))
    return false;

  for (size_t i = 0; i < n_segments; i++) {
    GElf_Phdr segment;
    if (!gelf_getphdr(image->elf, (int)i, &segment))
      return refuse_damaged(error);
    if (!check_part(image, "segment", i, segment.p_offset, segment.p_filesz, error))
      return false;
  }

  for (size_t i = 1; i < n_sections; i++) {
    GElf_Shdr section;
    if (!gelf_getshdr(elf_getscn(image->elf, i), &section))
      return refuse_damaged(error);
    if (section.sh_type != SHT_NOBITS &&
        !check_part(image, "section", i, section.sh_offset, section.sh_size, error))
      return false;
    /* libelf searches for the end of each name from the end of its table, and decompresses a
     * compressed table. */
    if (section.sh_type == SHT_STRTAB && section.sh_size &&
        (section.sh_flags & SHF_COMPRESSED ||
         image->bytes[section.sh_offset + section.sh_size - 1]))
      return error_set(
          error, "the code object is damaged or cut off: section %zu is no table of names", i);
  }

  return true;
}

static void close_elf(Elf **elf) {
  if (*elf)
    elf_end(*elf);
}

bool code_object_parse(const void *bytes, size_t size, struct code_object **ret_object,
                       struct error *error) {
  if (!code_object_is(bytes, size))
    return refuse_other_format(bytes, size, error);

  ALWAYS(elf_version(EV_CURRENT) == EV_CURRENT);

  /* A copy, because libelf needs bytes that it may write to and that are aligned. */
  cleanup_free char *copy = xmemdup(bytes, size);
  cleanup_by(close_elf) Elf *elf = elf_memory(copy, size);
  struct elf_image image = {.elf = elf, .bytes = copy, .size = size};
  if (!elf || elf_kind(elf) != ELF_K_ELF || !gelf_getehdr(elf, &image.header))
    return refuse_damaged(error);
  if (!check_whole(&image, error))
    return false;

  bool is_amdgpu = image.header.e_machine == EM_AMDGPU;
  cleanup_code_object struct code_object *object = xcalloc(1, sizeof *object);
  object->kind = is_amdgpu ? CODE_OBJECT_AMDGPU : CODE_OBJECT_CUDA;
  if (!(is_amdgpu ? amdgpu_parse(&image, object, error) : cuda_parse(&image, object, error)))
    return false;

  *ret_object = TAKE(object);
  return true;
}

void code_object_free(struct code_object *object) {
  for (size_t i = 0; i < object->n_kernels; i++) {
    struct code_kernel *kernel = &object->kernels[i];
    for (size_t j = 0; j < kernel->n_arguments; j++)
      free(kernel->arguments[j].kind);
    free(kernel->arguments);
    free(kernel->name);
  }

  free(object->kernels);
  free(object->target);
  free(object->target_full);
  json_decref(object->notes);
  free(object);
}

bool code_object_add_kernel(struct code_object *object, const char *name, size_t length,
                            struct code_kernel **ret_kernel, struct error *error) {
  cleanup_json json_t *text = length <= NAME_MAX_BYTES ? json_stringn(name, length) : NULL;
  if (length == 0 || !text || memchr(name, '\0', length))
    return error_set(error, "the name of a kernel must be 1 to %d bytes of UTF-8 text",
                     NAME_MAX_BYTES);

  if (object->n_kernels >= CODE_KERNELS_MAX)
    return error_set(error, "the code object has more than %d kernels", CODE_KERNELS_MAX);

  for (size_t i = 0; i < object->n_kernels; i++) {
    if (string_equal(object->kernels[i].name, json_string_value(text))) {
      return error_set(error, "the code object has two kernels of the name \"%s\"",
                       NAME_CUT_OF(name, length));
    }
  }

  object->kernels = xreallocarray(object->kernels, object->n_kernels + 1, sizeof *object->kernels);
  struct code_kernel *kernel = &object->kernels[object->n_kernels++];
  *kernel = (struct code_kernel){.name = xstrdup(json_string_value(text)),
                                 .resources = code_resources_unknown};
  *ret_kernel = kernel;
  return true;
}

static int compare_offsets(const void *a, const void *b) {
  const struct code_argument *left = a, *right = b;
  return (left->offset > right->offset) - (left->offset < right->offset);
}

bool code_kernel_order_arguments(struct code_kernel *kernel, struct error *error) {
  int64_t end = 0;
  if (kernel->n_arguments)
    qsort(kernel->arguments, kernel->n_arguments, sizeof *kernel->arguments, compare_offsets);
  for (size_t i = 0; i < kernel->n_arguments; i++) {
    const struct code_argument *argument = &kernel->arguments[i];
    if (argument->offset < end)
      return error_set(error, "two arguments share the byte %lld of the kernel's arguments",
                       (long long)argument->offset);
    end = argument->offset + argument->size;
  }

  if (end > kernel->resources.kernarg_bytes)
    return error_set(error, "the last argument ends at byte %lld of %lld", (long long)end,
                     (long long)kernel->resources.kernarg_bytes);
  return true;
}

bool code_object_kernel(const struct code_object *object, const char *name,
                        const struct code_kernel **ret_kernel, struct error *error) {
  cleanup_json json_t *names = json_array();
  for (size_t i = 0; i < object->n_kernels; i++) {
    if (name ? string_equal(object->kernels[i].name, name) : object->n_kernels == 1) {
      *ret_kernel = &object->kernels[i];
      return true;
    }
    if (i < 16)
      json_push(names, json_string(object->kernels[i].name));
  }

  if (object->n_kernels == 0)
    return error_set(error, "the code object has no kernel");

  /* error_set cuts a list that is too long. */
  cleanup_free char *list = json_texts_join(names, ", ");
  const char *more = object->n_kernels > 16 ? ", …" : "";
  if (!name)
    return error_set(error, "the code object has %zu kernels, name one of them: %s%s",
                     object->n_kernels, list, more);

  return error_set(error, "the code object has no kernel \"%s\", it has: %s%s", NAME_CUT(name),
                   list, more);
}
