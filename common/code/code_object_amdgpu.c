/* AMDGPU code objects: the target from the ELF header's flags and the NT_AMDGPU_METADATA note
 * (msgpack), as LLVM's "User Guide for AMDGPU Backend" describes both ("ELF Header", "Code Object
 * V3 to V5 Metadata"). */
#include <msgpack.h>

#include "common/base/error.h"
#include "common/code/code_object_parse.h"

#define OSABI_AMDGPU_HSA 64                 /* ELFOSABI_AMDGPU_HSA */
#define NOTE_METADATA 32                    /* NT_AMDGPU_METADATA */
#define NOTE_BYTES_MAX ((size_t)16 << 20)   /* of all note segments: the metadata and little else */
#define MEMBERS_MAX 64                      /* of a map: a kernel has about 25 */
#define NUMBER_MAX (((int64_t)1 << 32) - 1) /* the largest number in a kernel descriptor */
#define TARGET_SYSTEM "-amd-amdhsa-"        /* before the environment, which may be empty */

/* e_flags & 0xff (EF_AMDGPU_MACH) of common targets. With other numbers only the note is used. */
static const struct {
  unsigned mach;
  const char *name;
} machs[] = {
    {0x2c, "gfx900"},  {0x2f, "gfx906"},  {0x30, "gfx908"},  {0x32, "gfx90c"},  {0x3f, "gfx90a"},
    {0x40, "gfx940"},  {0x4b, "gfx941"},  {0x4c, "gfx942"},  {0x4f, "gfx950"},  {0x36, "gfx1030"},
    {0x41, "gfx1100"}, {0x46, "gfx1101"}, {0x47, "gfx1102"}, {0x48, "gfx1200"}, {0x4e, "gfx1201"},
};

/* Finds the bytes of the metadata note by the program headers, as a loader does. An error if there
 * are two. */
static bool find_metadata(const struct elf_image *image, struct bytes_view *ret,
                          struct error *error) {
  struct bytes_view found = {0};
  size_t left = NOTE_BYTES_MAX; /* segments may overlap: the sum is bounded, not only each */
  for (int i = 0; i < image->header.e_phnum; i++) {
    GElf_Phdr segment;
    if (!gelf_getphdr(image->elf, i, &segment) || segment.p_type != PT_NOTE ||
        segment.p_filesz == 0)
      continue;
    if (segment.p_filesz > left)
      return error_set(error, "the code object has more than %zu bytes of notes", NOTE_BYTES_MAX);
    left -= segment.p_filesz;

    Elf_Data *data =
        elf_getdata_rawchunk(image->elf, (int64_t)segment.p_offset, segment.p_filesz, ELF_T_NHDR);
    GElf_Nhdr note;
    size_t offset = 0, name_offset, text_offset, next;
    while (data && (next = gelf_getnote(data, offset, &note, &name_offset, &text_offset)) > 0) {
      offset = next;
      if (note.n_type != NOTE_METADATA || note.n_namesz != 7 ||
          memcmp((char *)data->d_buf + name_offset, "AMDGPU", 7) != 0)
        continue;
      if (found.bytes)
        return error_set(error, "the code object has two metadata notes");
      found = (struct bytes_view){(char *)data->d_buf + text_offset, note.n_descsz};
    }
  }

  if (!found.bytes)
    return error_set(error, "the code object has no NT_AMDGPU_METADATA note: it is damaged or was "
                            "not compiled for amdhsa");

  *ret = found;
  return true;
}

/* The size of the msgpack object at at[0] without the objects within it, and the number of those.
 * False when its header is cut off or metadata never contains its type. */
static bool object_extent(const unsigned char *at, uint64_t left, uint64_t *ret_bytes,
                          uint64_t *ret_members) {
  unsigned char type = at[0];
  unsigned width = 0; /* of the count that follows the type */
  uint64_t count = 0, bytes = 0, members = 0;
  switch (type) {
  case 0x00 ... 0x7f:
  case 0xe0 ... 0xff:
  case 0xc0:
  case 0xc2 ... 0xc3:
    break; /* small integers, nil, false, true */
  case 0x80 ... 0x8f:
    members = 2 * (type & 0x0fu);
    break;
  case 0x90 ... 0x9f:
    members = type & 0x0f;
    break;
  case 0xa0 ... 0xbf:
    bytes = type & 0x1f;
    break;
  case 0xcc ... 0xcf:
  case 0xd0 ... 0xd3:
    bytes = 1u << (type & 3);
    break; /* integers */
  case 0xd9 ... 0xdb:
    width = 1u << (type - 0xd9);
    break; /* text */
  case 0xdc ... 0xdd:
    width = 2u << (type - 0xdc);
    break; /* arrays */
  case 0xde ... 0xdf:
    width = 2u << (type - 0xde);
    break; /* maps */
  default:
    return false;
  }

  if (width >= left)
    return false;

  for (unsigned i = 1; i <= width; i++)
    count = count << 8 | at[i];
  if (width && type <= 0xdb)
    bytes = count;
  else if (width)
    members = type <= 0xdd ? count : 2 * count;
  *ret_bytes = 1 + width + bytes;
  *ret_members = members;
  return true;
}

/* Whether the bytes are one object in which no array or map states more members than bytes follow.
 * msgpack-c allocates memory for that number of members before it reads the first one, so that a
 * few bytes could make it allocate 200 GB. */
static bool counts_are_sane(struct bytes_view view) {
  const unsigned char *at = (const unsigned char *)view.bytes;
  uint64_t left = view.size, wanted = 1;
  while (wanted > 0) {
    uint64_t bytes, members;
    if (wanted > left || !object_extent(at, left, &bytes, &members) || bytes > left)
      return false;
    at += bytes;
    left -= bytes;
    wanted += members - 1;
  }
  return left == 0;
}

/* Copies a value of the note, at most as deep as msgpack-c reads (32). A map that names a member
 * twice, or by anything but a text, is an error; a text that is not UTF-8 becomes null. Pointers
 * are made only for errors, because a note can have millions of values. */
static bool note_to_json(const msgpack_object *value, json_t **ret, struct error *error) {
  char at[JSON_POINTER_SIZE];
  cleanup_json json_t *json = NULL;
  json_t *item = NULL;

  switch (value->type) {
  case MSGPACK_OBJECT_BOOLEAN:
    json = json_boolean(value->via.boolean);
    break;
  case MSGPACK_OBJECT_POSITIVE_INTEGER:
    json = json_integer(value->via.u64 < INT64_MAX ? (json_int_t)value->via.u64 : INT64_MAX);
    break;
  case MSGPACK_OBJECT_NEGATIVE_INTEGER:
    json = json_integer(value->via.i64);
    break;
  case MSGPACK_OBJECT_STR:
    json = json_stringn(value->via.str.ptr, value->via.str.size);
    break;
  case MSGPACK_OBJECT_ARRAY:
    json = json_array();
    for (uint32_t i = 0; i < value->via.array.size; i++) {
      if (!note_to_json(&value->via.array.ptr[i], &item, error))
        return error_pointer_prefix(error, json_pointer_index(at, sizeof at, "", i));
      json_push(json, item);
    }
    break;
  case MSGPACK_OBJECT_MAP:
    if (value->via.map.size > MEMBERS_MAX)
      return error_set(error, "has %u members, at most %d are read", value->via.map.size,
                       MEMBERS_MAX);
    json = json_object();
    for (uint32_t i = 0; i < value->via.map.size; i++) {
      const msgpack_object_kv *member = &value->via.map.ptr[i];
      if (member->key.type != MSGPACK_OBJECT_STR)
        return error_set(error, "the name of member %u is no text", i);

      cleanup_free char *name = name_plain(member->key.via.str.ptr, member->key.via.str.size);
      if (json_object_get(json, name))
        return error_set(error, "the member \"%.60s\" occurs twice", name);
      if (!note_to_json(&member->val, &item, error))
        return error_pointer_prefix(error, json_pointer_member(at, sizeof at, "", name));
      json_put(json, name, item);
    }
    break;
  default:
    break;
  }

  *ret = json ? TAKE(json) : json_null();
  return true;
}

/* The numbers of a kernel. */
static const struct {
  const char *name;
  size_t offset;
  int64_t max;
  enum json_presence presence;
} kernel_numbers[] = {
    {".vgpr_count", offsetof(struct code_resources, vgprs), 1024, JSON_REQUIRED},
    {".agpr_count", offsetof(struct code_resources, agprs), 1024, JSON_NOT_NULL},
    {".sgpr_count", offsetof(struct code_resources, sgprs), 1024, JSON_REQUIRED},
    {".vgpr_spill_count", offsetof(struct code_resources, vgpr_spills), NUMBER_MAX, JSON_NOT_NULL},
    {".sgpr_spill_count", offsetof(struct code_resources, sgpr_spills), NUMBER_MAX, JSON_NOT_NULL},
    {".group_segment_fixed_size", offsetof(struct code_resources, lds_bytes), NUMBER_MAX,
     JSON_REQUIRED},
    {".private_segment_fixed_size", offsetof(struct code_resources, scratch_bytes), NUMBER_MAX,
     JSON_REQUIRED},
    {".kernarg_segment_size", offsetof(struct code_resources, kernarg_bytes), NUMBER_MAX,
     JSON_REQUIRED},
    {".wavefront_size", offsetof(struct code_resources, wavefront_size), 64, JSON_REQUIRED},
    {".max_flat_workgroup_size", offsetof(struct code_resources, workgroup_max), 1 << 16,
     JSON_REQUIRED},
};

static bool read_arguments(const json_t *list, const char *pointer, struct code_kernel *kernel,
                           struct error *error) {
  if (json_array_size(list) > CODE_ARGUMENTS_MAX)
    return error_at(error, pointer, "has %zu arguments, at most %d are read", json_array_size(list),
                    CODE_ARGUMENTS_MAX);

  kernel->arguments = xcalloc(json_array_size(list), sizeof *kernel->arguments);
  json_elements (list, i, item) {
    struct code_argument argument = {0};
    const char *kind = NULL;
    const char *at = POINTER_INDEX(pointer, i);

    if (!json_is_object(item))
      return error_at(error, at, "must be a map");
    if (!json_get_integer(item, at, ".offset", JSON_REQUIRED, 0, NUMBER_MAX, &argument.offset,
                          error) ||
        !json_get_integer(item, at, ".size", JSON_REQUIRED, 0, NUMBER_MAX, &argument.size, error) ||
        !json_get_string(item, at, ".value_kind", JSON_REQUIRED, &kind, error))
      return false;

    const char *text = NAME_CUT(kind);
    if (text[0] == '\0' || strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_") != strlen(text))
      return error_at(error, at, "\"%s\" is no kind of argument", text);
    argument.kind = xstrdup(text);
    argument.is_hidden = string_starts(text, "hidden_");
    kernel->arguments[kernel->n_arguments++] = argument;
  }

  return code_kernel_order_arguments(kernel, error) || error_pointer_prefix(error, pointer);
}

static bool read_kernel(const json_t *json, const char *pointer, struct code_object *object,
                        struct error *error) {
  const json_t *name = json_object_get(json, ".name");
  struct code_kernel *kernel;
  const char *text = NULL;
  json_t *arguments = NULL;
  if (!json_is_object(json))
    return error_at(error, pointer, "must be a map");

  if (!json_get_string(json, pointer, ".name", JSON_REQUIRED, &text, error))
    return false;
  if (!code_object_add_kernel(object, text, json_string_length(name), &kernel, error))
    return error_pointer_prefix(error, pointer);

  for (size_t i = 0; i < ARRAY_LENGTH(kernel_numbers); i++) {
    int64_t *number = (int64_t *)((char *)&kernel->resources + kernel_numbers[i].offset);
    if (!json_get_integer(json, pointer, kernel_numbers[i].name, kernel_numbers[i].presence, 0,
                          kernel_numbers[i].max, number, error))
      return false;
  }

  if (kernel->resources.wavefront_size != 32 && kernel->resources.wavefront_size != 64)
    return error_at(error, pointer, "the wavefront has %lld lanes, it can have 32 or 64",
                    (long long)kernel->resources.wavefront_size);
  if (!json_get_array(json, pointer, ".args", JSON_NOT_NULL, &arguments, error))
    return false;

  return !arguments || read_arguments(arguments, POINTER_MEMBER(pointer, ".args"), kernel, error);
}

/* The target id in "amdgcn-amd-amdhsa--gfx942:sramecc+:xnack-", or, as the LLVM of Triton 3.9
 * writes it, in "amdgpu9.42-amd-amdhsa-unknown-gfx942": what follows the triple. NULL: there is
 * none. */
static const char *target_id_find(const char *full) {
  size_t length = strcspn(full, "-"); /* of the architecture */
  bool is_amdgpu = string_starts(full, "amdgcn-") || string_starts(full, "amdgpu");
  if (!is_amdgpu || !string_starts(full + length, TARGET_SYSTEM))
    return NULL;

  const char *environment_end = strchr(full + length + strlen(TARGET_SYSTEM), '-');
  return environment_end ? environment_end + 1 : NULL;
}

/* The target id without its features, which must agree with the ELF header. */
static bool read_target(const struct elf_image *image, const char *text, struct code_object *object,
                        struct error *error) {
  const char *full = NAME_CUT(text);
  const char *id = target_id_find(full);
  size_t length = id ? strcspn(id, ":") : 0;
  if (length == 0 || strspn(full, "abcdefghijklmnopqrstuvwxyz0123456789-_:+.") != strlen(full))
    return error_at(error, "/amdhsa.target",
                    "must be like \"amdgcn-amd-amdhsa--gfx942\", is \"%s\"", full);

  cleanup_free char *target = xstrndup(id, length);
  for (size_t i = 0; i < ARRAY_LENGTH(machs); i++)
    if (machs[i].mach == (image->header.e_flags & 0xff) && !string_equal(machs[i].name, target))
      return error_at(error, "/amdhsa.target", "states %s, the ELF header states %s", target,
                      machs[i].name);

  object->target = TAKE(target);
  object->target_full = xstrdup(full);
  return true;
}

static bool read_metadata(const struct elf_image *image, const msgpack_object *root,
                          struct code_object *object, struct error *error) {
  const char *target = NULL;
  json_t *kernels = NULL;
  if (!note_to_json(root, &object->notes, error))
    return false;
  if (!json_is_object(object->notes))
    return error_set(error, "must be a map");
  if (!json_get_string(object->notes, "", "amdhsa.target", JSON_REQUIRED, &target, error) ||
      !read_target(image, target, object, error) ||
      !json_get_array(object->notes, "", "amdhsa.kernels", JSON_NOT_NULL, &kernels, error))
    return false;

  json_elements (kernels, i, kernel) {
    if (!read_kernel(kernel, POINTER_INDEX("/amdhsa.kernels", i), object, error))
      return false;
  }

  return true;
}

bool amdgpu_parse(const struct elf_image *image, struct code_object *object, struct error *error) {
  /* EI_ABIVERSION is 1 for code object version 3, 2 for 4, …; 3 had no target in its metadata. */
  int version = image->header.e_ident[EI_ABIVERSION] + 2;
  if (image->header.e_ident[EI_OSABI] != OSABI_AMDGPU_HSA || version < 4 || version > 6)
    return error_set(error,
                     "the code object has ABI %d of version %d, known are amdhsa's versions 4 to "
                     "6: compile with -mcode-object-version=5",
                     image->header.e_ident[EI_OSABI], version);
  if (image->header.e_type != ET_DYN)
    return error_set(error,
                     "the code object is not linked (ELF type %d): link it with ld.lld -shared",
                     image->header.e_type);

  struct bytes_view note;
  if (!find_metadata(image, &note, error))
    return false;
  if (!counts_are_sane(note))
    return error_set(error,
                     "the metadata of the code object is damaged: it is cut off, or no msgpack");

  object->version = version;
  msgpack_unpacked unpacked;
  msgpack_unpacked_init(&unpacked);
  size_t end = 0;
  bool is_read =
      msgpack_unpack_next(&unpacked, note.bytes, note.size, &end) == MSGPACK_UNPACK_SUCCESS;
  if (!is_read)
    error_set(error, "the metadata of the code object is damaged: msgpack of more than 32 levels");
  else
    is_read = read_metadata(image, &unpacked.data, object, error) ||
              error_prefix(error, "the metadata of the code object: ");
  msgpack_unpacked_destroy(&unpacked);
  return is_read;
}
