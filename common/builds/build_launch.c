/* How a build's objects are launched, checked against the kernel's manifest and the compiled code.
 */
#include <inttypes.h>

#include "common/builds/build.h"

#define WARPS_MAX 1024
#define CLUSTERS_MAX 16
#define DESCRIPTOR "tensordesc<" /* how Triton's type of a tensor descriptor begins */

static const struct {
  const char *type;
  enum dtype dtype;
} types[] = {{"i1", DTYPE_BOOL},
             {"u1", DTYPE_BOOL},
             {"i8", DTYPE_INT8},
             {"u8", DTYPE_UINT8},
             {"i16", DTYPE_INT16},
             {"u16", DTYPE_UINT16},
             {"i32", DTYPE_INT32},
             {"u32", DTYPE_UINT32},
             {"i64", DTYPE_INT64},
             {"u64", DTYPE_UINT64},
             {"fp16", DTYPE_FLOAT16},
             {"bf16", DTYPE_BFLOAT16},
             {"fp32", DTYPE_FLOAT32},
             {"f32", DTYPE_FLOAT32},
             {"fp64", DTYPE_FLOAT64},
             {"fp8e4nv", DTYPE_FLOAT8_E4M3FN},
             {"fp8e5", DTYPE_FLOAT8_E5M2},
             {"fp8e4b8", DTYPE_FLOAT8_E4M3FNUZ},
             {"fp8e5b16", DTYPE_FLOAT8_E5M2FNUZ},
             {"fp8e4b15", DTYPE_FLOAT8_E4B15}};

PRIVATE_RECORD(passed, struct build_launch,
               RECORD_FIELD(CUSTOM, struct build_launch, arguments, FIELD_ARRAY,
                            .most = LAUNCH_ARGUMENTS_MAX, .custom = &launch_arguments_custom),
               RECORD_FIELD(CUSTOM, struct build_launch, fills, FIELD_ARRAY,
                            .most = LAUNCH_FILLS_MAX, .custom = &launch_fills_custom));

void build_launch_release(struct build_launch *launch) { record_release(&passed_record, launch); }

bool build_launch_read(const json_t *object, int64_t warp_size, struct build_launch *ret,
                       struct error *error) {
  const json_t *metadata = json_object_get(object, "metadata");
  cleanup_build_launch struct build_launch launch = {.warp_size = warp_size, .clusters = 1};
  const json_t *grid = json_object_get(object, "grid");
  int64_t global_bytes = 0, profile_bytes = 0;
  launch.has_grid = grid != NULL;
  for (size_t i = 0; i < 3 && grid; i++)
    launch.grid[i] = json_integer_value(json_array_get(grid, i));

  if (!json_get_string(metadata, "", "name", JSON_REQUIRED, &launch.name, error) ||
      !json_get_integer(metadata, "", "num_warps", JSON_REQUIRED, 1, WARPS_MAX, &launch.warps,
                        error) ||
      !json_get_integer(metadata, "", "warp_size", JSON_OPTIONAL, 1, BUILD_WARP_SIZE_MAX,
                        &launch.warp_size, error) ||
      !json_get_integer(metadata, "", "shared", JSON_OPTIONAL, 0, INT32_MAX, &launch.shared_bytes,
                        error) ||
      !json_get_integer(metadata, "", "scratch", JSON_OPTIONAL, 0, BUILD_SCRATCH_MAX,
                        &launch.n_scratch, error) ||
      !json_get_integer(metadata, "", "num_ctas", JSON_OPTIONAL, 1, CLUSTERS_MAX, &launch.clusters,
                        error) ||
      !json_get_bool(metadata, "", "launch_cooperative_grid", JSON_OPTIONAL, &launch.is_cooperative,
                     error) ||
      !json_get_integer(metadata, "", "global_scratch_size", JSON_OPTIONAL, 0, INT64_MAX,
                        &global_bytes, error) ||
      !json_get_integer(metadata, "", "profile_scratch_size", JSON_OPTIONAL, 0, INT64_MAX,
                        &profile_bytes, error))
    return error_prefix(error, "its metadata: ");
  if (global_bytes || profile_bytes)
    return error_set(error,
                     "it requires scratch memory in every launch, which agents do not provide");
  if (!record_read_answer(&passed_record, object, "", &launch, error))
    return false;

  *ret = launch;
  launch = (struct build_launch){0};
  return true;
}

bool build_type_parse(const char *type, enum dtype *ret_dtype) {
  for (size_t i = 0; i < ARRAY_LENGTH(types); i++) {
    if (string_equal(type, types[i].type)) {
      *ret_dtype = types[i].dtype;
      return true;
    }
  }
  return false;
}

static bool dtype_is_integer(enum dtype dtype) {
  return dtype >= DTYPE_INT8 && dtype <= DTYPE_UINT64;
}

static bool type_fits(const char *type, const struct argument *argument) {
  enum dtype dtype;
  if (string_starts(type, DESCRIPTOR))
    return argument->is_buffer;
  if ((type[0] == '*') != argument->is_buffer)
    return false;

  type += type[0] == '*';
  type += argument->is_buffer && type[0] == 'k'; /* a pointer to what is only read */
  if (!build_type_parse(type, &dtype))
    return true; /* what is newer: the manifest has another name for its storage */
  if (dtype >= DTYPE_FLOAT8_E4M3FN && dtype_size(argument->dtype) == 1)
    return true; /* 8-bit floats were bytes in manifests before they had names */
  return argument->dtype == dtype ||
         (!argument->is_buffer && dtype_is_integer(argument->dtype) && dtype_is_integer(dtype) &&
          dtype_size(dtype) <= dtype_size(argument->dtype));
}

bool build_signature_agrees(const struct kernel *kernel, const json_t *variant,
                            struct error *error) {
  const json_t *signature = json_object_get(variant, "signature"),
               *constexprs = json_object_get(variant, "constexprs");
  size_t passed = 0;

  for (size_t i = 0; i < kernel->n_arguments; i++) {
    const struct argument *argument = &kernel->arguments[i];
    const json_t *type = json_object_get(signature, argument->name);
    if (!type && json_object_get(constexprs, argument->name))
      continue;
    if (!json_is_string(type))
      return error_set(error,
                       "the manifest's argument \"%s\" is neither in the signature nor compiled in",
                       argument->name);
    if (!type_fits(json_string_value(type), argument))
      return error_set(error, "argument \"%s\" is %s%s in the manifest and %.60s in the signature",
                       argument->name, argument->is_buffer ? "a buffer of " : "",
                       dtype_name(argument->dtype), json_string_value(type));
    passed++;
  }

  return passed == json_object_size(signature) ||
         error_set(error, "the signature passes %zu arguments, of which the manifest has %zu",
                   json_object_size(signature), passed);
}

bool build_code_is_for(const struct code_object *code, const char *arch, struct error *error) {
  size_t length = strcspn(arch, ":");
  return (strlen(code->target) == length && strncmp(code->target, arch, length) == 0) ||
         error_set(error, "it is code for %s, the build is for %s", code->target, arch);
}

/* The next argument from *at on that a launch passes; NULL: the rest are passed by the runtime. */
static const struct code_argument *argument_next(const struct code_kernel *code, size_t *at) {
  while (*at < code->n_arguments && code->arguments[*at].is_hidden)
    ++*at;
  return *at < code->n_arguments ? &code->arguments[(*at)++] : NULL;
}

/* Only an object's own arguments have this type, by its address: a signature that has it does not
 * state how it is encoded. */
static const char tensormap_type[] = "a tensor map";

/* One argument, at the next multiple of its size. A tensor map's address is a multiple of its
 * alignment, and offsets count from the first parameter, which is at none: so it is at the next
 * multiple of another number. A bool has had two sizes (Triton 3.5 changed it). */
static bool argument_agrees(const struct code_argument *argument, const char *name,
                            const char *type, int64_t *offset, struct error *error) {
  bool is_pointer = type[0] == '*',
       is_wide_bool = argument->size == 4 && (string_equal(type, "i1") || string_equal(type, "u1")),
       is_buffer = string_equal(argument->kind, "global_buffer"), is_map = type == tensormap_type;
  enum dtype dtype;
  int64_t size = is_pointer                       ? 8
                 : is_map                         ? TENSORMAP_BYTES
                 : build_type_parse(type, &dtype) ? (int64_t)dtype_size(dtype)
                                                  : 0;

  if (size == 0)
    return error_set(error, "argument \"%s\" has a type whose size is not known: %.60s", name,
                     type);
  if (argument->size != size && !is_wide_bool)
    return error_set(error,
                     "argument \"%s\" takes %" PRId64 " bytes in its code and %" PRId64
                     " by the signature",
                     name, argument->size, size);

  /* AMD's metadata distinguish pointers from values, NVIDIA's do not. */
  if ((is_buffer || string_equal(argument->kind, "by_value")) && is_buffer != is_pointer)
    return error_set(error, "argument \"%s\" is %s in its code and %.60s in the signature", name,
                     is_pointer ? "a value" : "a pointer", type);

  int64_t alignment = is_map ? TENSORMAP_ALIGNMENT : argument->size;
  bool is_next = argument->offset >= *offset && argument->offset < *offset + alignment;
  *offset =
      is_map && is_next ? argument->offset : (*offset + alignment - 1) / alignment * alignment;
  if (argument->offset != *offset)
    return error_set(error,
                     "argument \"%s\" is at byte %" PRId64
                     " of its code's arguments and by the signature at %" PRId64,
                     name, argument->offset, *offset);

  *offset += argument->size;
  return true;
}

/* The type of an argument that the launch states; NULL: it is one of the manifest that the
 * signature does not have. A descriptor that is passed by its name is a pointer. */
static const char *stated_type(const struct launch_argument *argument, const json_t *signature) {
  const char *type = json_text(signature, argument->name);
  if (argument->name)
    return type && string_starts(type, DESCRIPTOR) ? "*i8" : type;
  return argument->map.base            ? tensormap_type
         : argument->i1 != FIELD_NONE  ? "i1"
         : argument->i32 != FIELD_NONE ? "i32"
                                       : "i64";
}

/* The same as build_code_agrees, of the arguments that the launch states. */
static bool stated_agree(const struct launch_arguments *arguments, const json_t *signature,
                         const struct code_kernel *code, size_t *at, int64_t *offset,
                         struct error *error) {
  for (size_t i = 0; i < arguments->n; i++) {
    const struct launch_argument *argument = &arguments->all[i];
    const char *type = stated_type(argument, signature);
    cleanup_free char *name =
        argument->name ? xstrdup(argument->name) : xasprintf("/arguments/%zu", i);
    if (!type)
      return error_set(error, "argument \"%s\" is passed and is not in the signature", name);
    const struct code_argument *taken = argument_next(code, at);
    ALWAYS(taken != NULL); /* as many are taken as are passed */
    if (!argument_agrees(taken, name, type, offset, error))
      return false;
  }
  return true;
}

bool build_code_agrees(const struct kernel *kernel, const json_t *variant,
                       const struct build_launch *launch, const struct code_kernel *code,
                       struct error *error) {
  const json_t *signature = json_object_get(variant, "signature");
  const struct launch_arguments *arguments = &launch->arguments;
  size_t at = 0, taken = 0,
         n = (arguments->all ? arguments->n : json_object_size(signature)) +
             (size_t)launch->n_scratch;
  int64_t offset = 0, wavefront = code->resources.wavefront_size;
  if (wavefront != CODE_UNKNOWN && wavefront != launch->warp_size)
    return error_set(error,
                     "its code runs in wavefronts of %" PRId64 " lanes, the build states %" PRId64,
                     wavefront, launch->warp_size);

  while (argument_next(code, &at))
    taken++;
  if (taken != n)
    return error_set(error, "its code takes %zu arguments, the %s and scratch are %zu", taken,
                     arguments->all ? "object's" : "signature", n);

  at = 0;
  if (kernel && arguments->all && !stated_agree(arguments, signature, code, &at, &offset, error))
    return false;
  for (size_t i = 0; kernel && !arguments->all && i < kernel->n_arguments; i++) {
    const char *name = kernel->arguments[i].name, *type = json_text(signature, name);
    if (type && !argument_agrees(argument_next(code, &at), name, type, &offset, error))
      return false;
  }

  for (int64_t i = 0; kernel && i < launch->n_scratch; i++)
    if (!argument_agrees(argument_next(code, &at), "scratch", "*i8", &offset, error))
      return false;

  return true;
}
