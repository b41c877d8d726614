/* What launches are passed and what is filled before them: read strictly, written, and compared
 * with a kernel. */
#include "common/builds/launch_arguments.h"

#include <inttypes.h>
#include <math.h>

#include "common/kernel/kernel_case.h"

/* Limits of cuda.h's cuTensorMapEncodeTiled, which has finer ones. */
#define MAP_EXTENT_MAX 0x1p32
#define MAP_STRIDE_MAX 0x1p40
#define MAP_BOX_MAX 256
#define MAP_ENUM_MAX 15

PRIVATE_RECORD(
    tensormap, struct tensormap, RECORD_FIELD(TEXT, struct tensormap, base, FIELD_REQUIRED),
    RECORD_FIELD(INTEGER, struct tensormap, type, FIELD_REQUIRED, .most = MAP_ENUM_MAX),
    RECORD_FIELD(NUMBERS, struct tensormap, shape, FIELD_REQUIRED, .least = 1,
                 .most = TENSORMAP_RANK_MAX, .least_number = 1, .most_number = MAP_EXTENT_MAX),
    RECORD_FIELD(NUMBERS, struct tensormap, strides, FIELD_REQUIRED, .most = TENSORMAP_RANK_MAX - 1,
                 .least_number = 1, .most_number = MAP_STRIDE_MAX),
    RECORD_FIELD(NUMBERS, struct tensormap, box, FIELD_REQUIRED, .least = 1,
                 .most = TENSORMAP_RANK_MAX, .least_number = 1, .most_number = MAP_BOX_MAX),
    RECORD_FIELD(INTEGER, struct tensormap, swizzle, FIELD_REQUIRED, .most = MAP_ENUM_MAX),
    RECORD_FIELD(INTEGER, struct tensormap, fill, FIELD_REQUIRED, .most = MAP_ENUM_MAX));

PRIVATE_RECORD(argument, struct launch_argument,
               RECORD_FIELD(TEXT, struct launch_argument, name, FIELD_NO_JSON),
               RECORD_FIELD(INTEGER, struct launch_argument, i1, FIELD_OMITTED, .most = 1),
               RECORD_FIELD(INTEGER, struct launch_argument, i32, FIELD_OMITTED, .least = INT32_MIN,
                            .most = INT32_MAX),
               RECORD_FIELD(INTEGER, struct launch_argument, i64, FIELD_OMITTED),
               RECORD_FIELD_AS("tensormap", RECORD, struct launch_argument, map, FIELD_OMITTED,
                               .of = &tensormap_record));

static bool are_integers(const struct numbers *numbers) {
  for (size_t i = 0; i < numbers->n; i++)
    if (numbers->all[i] != floor(numbers->all[i]))
      return false;
  return true;
}

static bool tensormap_check(const struct tensormap *map, struct error *error) {
  if (map->strides.n + 1 != map->shape.n || map->box.n != map->shape.n)
    return error_set(error,
                     "a tensor map of %zu dimensions must have %zu \"strides\" and %zu in \"box\"",
                     map->shape.n, map->shape.n - 1, map->shape.n);
  return (are_integers(&map->shape) && are_integers(&map->strides) && are_integers(&map->box)) ||
         error_set(error, "\"shape\", \"strides\" and \"box\" must hold integers");
}

struct launch_argument launch_argument_named(const char *name) {
  struct launch_argument argument;
  record_init(&argument_record, &argument);
  argument.name = xstrdup(name);
  return argument;
}

static bool argument_read(const json_t *value, struct launch_argument *argument,
                          struct error *error) {
  if (json_is_string(value)) {
    *argument = launch_argument_named(json_string_value(value));
    return true;
  }
  if (!json_is_object(value))
    return error_set(error,
                     "an argument is the name of one of the manifest, {\"i1\", \"i32\" or "
                     "\"i64\": a value} or {\"tensormap\": {…}}, not %s",
                     json_type_name(value));
  if (!record_read(&argument_record, value, "", argument, error))
    return false;

  int n = (argument->i1 != FIELD_NONE) + (argument->i32 != FIELD_NONE) +
          (argument->i64 != FIELD_NONE) + (argument->map.base != NULL);
  if (n != 1)
    return error_set(
        error, "an argument has exactly one of \"i1\", \"i32\", \"i64\" and \"tensormap\", not %d",
        n);
  return !argument->map.base || tensormap_check(&argument->map, error) ||
         error_pointer_prefix(error, "/tensormap");
}

void launch_arguments_release(struct launch_arguments *arguments) {
  for (size_t i = 0; i < arguments->n; i++)
    record_release(&argument_record, &arguments->all[i]);
  free(arguments->all);
  *arguments = (struct launch_arguments){0};
}

static bool arguments_read(const json_t *value, void *to, struct error *error) {
  struct launch_arguments *arguments = to;
  size_t n = json_array_size(value);
  arguments->all = xcalloc(n + 1, sizeof *arguments->all);
  for (size_t i = 0; i < n; i++) {
    struct launch_argument *argument = &arguments->all[arguments->n++];
    record_init(&argument_record, argument);
    if (argument_read(json_array_get(value, i), argument, error))
      continue;
    launch_arguments_release(arguments);
    return error_pointer_prefix(error, POINTER_INDEX("", i));
  }
  return true;
}

static json_t *arguments_write(const void *at) {
  const struct launch_arguments *arguments = at;
  json_t *array = json_array();
  for (size_t i = 0; i < arguments->n; i++) {
    const struct launch_argument *argument = &arguments->all[i];
    json_push(array, argument->name ? json_string(argument->name)
                                    : record_write(&argument_record, argument));
  }
  return array;
}

static bool arguments_are_absent(const void *at) {
  return !((const struct launch_arguments *)at)->all;
}
static void arguments_release(void *at) { launch_arguments_release(at); }

const struct field_custom launch_arguments_custom = {.is_absent = arguments_are_absent,
                                                     .read = arguments_read,
                                                     .write = arguments_write,
                                                     .release = arguments_release};

static bool fill_read(const json_t *value, struct launch_fill *fill, struct error *error) {
  const json_t *name = json_array_get(value, 0), *bytes = json_array_get(value, 1),
               *word = json_array_get(value, 2);
  int64_t size = json_integer_value(bytes), pattern = json_integer_value(word);
  if (json_array_size(value) != 3 || !json_is_string(name) || size < 1 || size % 4 ||
      !json_is_integer(word) || pattern < 0 || pattern > UINT32_MAX)
    return error_set(error, "a fill is [\"ARGUMENT\", BYTES, WORD]: a positive multiple of 4, and "
                            "an integer from 0 to 2^32 - 1");
  *fill = (struct launch_fill){xstrdup(json_string_value(name)), size, (uint32_t)pattern};
  return true;
}

void launch_fills_release(struct launch_fills *fills) {
  for (size_t i = 0; i < fills->n; i++)
    free(fills->all[i].argument);
  free(fills->all);
  *fills = (struct launch_fills){0};
}

static bool fills_read(const json_t *value, void *to, struct error *error) {
  struct launch_fills *fills = to;
  size_t n = json_array_size(value);
  fills->all = xcalloc(n + 1, sizeof *fills->all);
  for (; fills->n < n; fills->n++) {
    if (fill_read(json_array_get(value, fills->n), &fills->all[fills->n], error))
      continue;
    const char *at = POINTER_INDEX("", fills->n);
    launch_fills_release(fills);
    return error_pointer_prefix(error, at);
  }
  return true;
}

static json_t *fills_write(const void *at) {
  const struct launch_fills *fills = at;
  json_t *array = json_array();
  for (size_t i = 0; i < fills->n; i++) {
    const struct launch_fill *fill = &fills->all[i];
    json_push(array, json_pack("[s, I, I]", fill->argument, (json_int_t)fill->bytes,
                               (json_int_t)fill->word));
  }
  return array;
}

static bool fills_are_absent(const void *at) { return !((const struct launch_fills *)at)->all; }
static void fills_release(void *at) { launch_fills_release(at); }

const struct field_custom launch_fills_custom = {.is_absent = fills_are_absent,
                                                 .read = fills_read,
                                                 .write = fills_write,
                                                 .release = fills_release};

size_t launch_arguments_tensormap(const struct launch_arguments *arguments) {
  size_t i = 0;
  while (i < arguments->n && !arguments->all[i].map.base)
    i++;
  return i;
}

size_t launch_argument_index(const struct kernel *kernel, const char *name) {
  size_t i = 0;
  while (i < kernel->n_arguments && !string_equal(kernel->arguments[i].name, name))
    i++;
  return i;
}

/* How many bytes of the storage are behind where a buffer argument points. */
static bool storage_behind(const struct kernel *kernel, size_t index, const struct scope *scope,
                           int64_t *ret_bytes, struct error *error) {
  const struct argument *owner = &kernel->arguments[argument_owner(kernel, index)];
  int64_t elements;
  if (!argument_elements(owner, scope, &elements, error))
    return false;
  *ret_bytes = elements * (int64_t)dtype_size(owner->dtype) -
               (int64_t)argument_offset(&kernel->arguments[index]);
  return true;
}

/* The number of bytes from the first element of a tensor map to the end of its last. */
static double tensormap_bytes(const struct tensormap *map) {
  /* Of CUtensorMapDataType: unsigned and signed integers, floats, then 4 and 6 bits. */
  static const int bits[MAP_ENUM_MAX + 1] = {8,  16, 32, 32, 64, 64, 16, 32,
                                             64, 16, 32, 32, 32, 4,  4,  6};
  size_t last = map->shape.n - 1;
  double bytes = ceil(map->shape.all[last] * bits[map->type] / 8);
  for (size_t i = 0; i < last; i++)
    bytes += (map->shape.all[i] - 1) * map->strides.all[i];
  return bytes;
}

static bool tensormap_agrees(const struct kernel *kernel, const struct tensormap *map,
                             const struct scope *scope, struct error *error) {
  size_t index = launch_argument_index(kernel, map->base);
  int64_t bytes;
  if (index == kernel->n_arguments || !kernel->arguments[index].is_buffer)
    return error_set(error, "its base \"%.64s\" is no buffer that the kernel is passed", map->base);
  if (!storage_behind(kernel, index, scope, &bytes, error))
    return false;
  return tensormap_bytes(map) <= (double)bytes ||
         error_set(error,
                   "the tensor map spans %.0f bytes of \"%s\", which has %" PRId64
                   " from where it points",
                   tensormap_bytes(map), map->base, bytes);
}

bool launch_arguments_agree(const struct kernel *kernel, const struct launch_arguments *arguments,
                            const struct scope *scope, struct error *error) {
  for (size_t i = 0; i < arguments->n; i++) {
    const struct launch_argument *argument = &arguments->all[i];
    const char *at = POINTER_INDEX("", i);
    if (argument->name && launch_argument_index(kernel, argument->name) == kernel->n_arguments)
      return error_at(error, at,
                      "the object takes an argument \"%.40s\", which the manifest of %s does not "
                      "have; pack it again",
                      argument->name, kernel->name);
    if (argument->map.base && !tensormap_agrees(kernel, &argument->map, scope, error))
      return error_pointer_prefix(error, at);
  }
  return true;
}

static bool fill_agrees(const struct kernel *kernel, const struct launch_fill *fill,
                        const struct scope *scope, struct error *error) {
  size_t index = launch_argument_index(kernel, fill->argument);
  int64_t bytes;
  if (index == kernel->n_arguments || !kernel->arguments[index].is_buffer)
    return error_set(error,
                     "\"%.64s\" is no buffer that the kernel is passed, and so is not filled",
                     fill->argument);
  const struct argument *argument = &kernel->arguments[index];
  if (argument->access == ACCESS_READ)
    return error_set(error, "argument \"%s\" is only read, and so is not filled", argument->name);
  if (!storage_behind(kernel, index, scope, &bytes, error))
    return false;
  if (fill->bytes > bytes)
    return error_set(error,
                     "%" PRId64 " bytes of argument \"%s\" are filled, which has %" PRId64
                     " from where it points",
                     fill->bytes, argument->name, bytes);
  return argument_offset(argument) % sizeof fill->word == 0 ||
         error_set(error,
                   "argument \"%s\" begins at byte %zu of its storage: only what begins at a "
                   "multiple of 4 can be filled",
                   argument->name, argument_offset(argument));
}

bool launch_fills_agree(const struct kernel *kernel, const struct launch_fills *fills,
                        const struct scope *scope, struct error *error) {
  for (size_t i = 0; i < fills->n; i++)
    if (!fill_agrees(kernel, &fills->all[i], scope, error))
      return error_pointer_prefix(error, POINTER_INDEX("", i));
  return true;
}
