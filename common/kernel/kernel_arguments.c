/* Arguments of a kernel: their types, shapes, fills and, for outputs, who computes them for the check.
 *
 * Memory: an argument owns its texts. Threads: any; read-only after kernel_parse. */
#include <math.h>

#include "common/kernel/kernel_parse.h"

#define ELEMENTS_MAX ((int64_t)1 << 40)
#define EXACT_INTEGER_MAX ((int64_t)1 << 53) /* beyond it a double skips integers */

static const struct {
  const char *name;
  size_t size;
  const char *c_type;
} dtypes[] = {
#define X(name, enumerator, size, c_type) {name, size, c_type},
    DTYPES(X)
#undef X
};

const char *dtype_name(enum dtype dtype) { return dtypes[dtype].name; }
const char *dtype_c_type(enum dtype dtype) { return dtypes[dtype].c_type; }
size_t dtype_size(enum dtype dtype) { return dtypes[dtype].size; }

bool dtype_parse(const char *name, enum dtype *ret_dtype) {
  for (size_t i = 0; i < ARRAY_LENGTH(dtypes); i++) {
    if (string_equal(name, dtypes[i].name)) {
      *ret_dtype = (enum dtype)i;
      return true;
    }
  }
  return false;
}

static bool dtype_is_float(enum dtype dtype) {
  return dtype == DTYPE_FLOAT16 || dtype == DTYPE_BFLOAT16 || dtype == DTYPE_FLOAT32 || dtype == DTYPE_FLOAT64;
}

/* The integers that a buffer of this type can be filled with. */
static void dtype_integer_range(enum dtype dtype, int64_t *min, int64_t *max) {
  *min = -EXACT_INTEGER_MAX;
  *max = EXACT_INTEGER_MAX;
  switch (dtype) {
  case DTYPE_BOOL:
    *min = 0;
    *max = 1;
    break;
  case DTYPE_INT8:
  case DTYPE_INT16:
  case DTYPE_INT32:
    *max = ((int64_t)1 << (8 * dtype_size(dtype) - 1)) - 1;
    *min = -*max - 1;
    break;
  case DTYPE_UINT8:
  case DTYPE_UINT16:
  case DTYPE_UINT32:
    *min = 0;
    *max = ((int64_t)1 << (8 * dtype_size(dtype))) - 1;
    break;
  case DTYPE_UINT64:
    *min = 0;
    break;
  case DTYPE_INT64:
  case DTYPE_FLOAT16:
  case DTYPE_BFLOAT16:
  case DTYPE_FLOAT32:
  case DTYPE_FLOAT64:
    break;
  }
}

static bool parse_fill_name(struct argument *argument, const char *name, const char *pointer, struct error *error) {
  static const struct {
    const char *name;
    enum fill_kind kind;
  } fills[] = {{"normal", FILL_NORMAL}, {"uniform", FILL_UNIFORM}, {"zeros", FILL_ZEROS}, {"index", FILL_INDEX}};
  for (size_t i = 0; i < ARRAY_LENGTH(fills); i++) {
    if (!string_equal(name, fills[i].name))
      continue;
    argument->fill = fills[i].kind;
    argument->fill_low = 0;
    argument->fill_high = 1;
    return true;
  }
  return error_at(error, pointer,
                  "fill \"%.40s\" is not known; use \"normal\", \"uniform\", \"zeros\", \"index\", "
                  "{\"uniform\": [low, high]} or {\"integers\": [low, high]}",
                  name);
}

static bool parse_fill_range(struct argument *argument, const json_t *fill, const char *pointer, struct error *error) {
  const char *kind = NULL;
  json_t *range = NULL, *member;
  const char *name;
  json_object_foreach ((json_t *)fill, name, member) {
    kind = name;
    range = member;
  }
  bool is_uniform = string_equal(kind, "uniform");
  if (json_object_size(fill) != 1 || (!is_uniform && !string_equal(kind, "integers")))
    return error_at(error, pointer, "a fill must be {\"uniform\": [low, high]} or {\"integers\": [low, high]}");
  char at[JSON_POINTER_SIZE];
  json_pointer_member(at, sizeof at, pointer, kind);
  const json_t *low = json_array_get(range, 0), *high = json_array_get(range, 1);
  if (json_array_size(range) != 2 || !json_is_number(low) || !json_is_number(high))
    return error_at(error, at, "\"%s\" must be an array of two numbers, the lowest and the highest", kind);
  argument->fill_low = json_number_value(low);
  argument->fill_high = json_number_value(high);
  if (is_uniform) {
    argument->fill = FILL_UNIFORM;
    return argument->fill_low < argument->fill_high ||
           error_at(error, at, "the low end of \"uniform\" must be less than the high end");
  }
  argument->fill = FILL_INTEGERS;
  int64_t min, max;
  dtype_integer_range(argument->dtype, &min, &max);
  if (!json_is_integer(low) || !json_is_integer(high) || json_integer_value(low) > json_integer_value(high) ||
      json_integer_value(low) < min || json_integer_value(high) > max)
    return error_at(error, at, "\"integers\" of %s must be two integers from %lld to %lld, the low end first",
                    dtype_name(argument->dtype), (long long)min, (long long)max);
  return true;
}

static bool parse_fill(struct argument *argument, const json_t *json, const char *pointer, struct error *error) {
  const json_t *fill = json_object_get(json, "fill");
  char at[JSON_POINTER_SIZE];
  json_pointer_member(at, sizeof at, pointer, "fill");
  if (argument->access == ACCESS_WRITE) {
    argument->fill = FILL_ZEROS;
    return !fill || error_at(error, at, "a buffer that is only written has no fill");
  }
  bool parsed;
  if (!fill)
    parsed = parse_fill_name(argument, "normal", at, error);
  else if (json_is_string(fill))
    parsed = parse_fill_name(argument, json_string_value(fill), at, error);
  else if (json_is_object(fill))
    parsed = parse_fill_range(argument, fill, at, error);
  else
    return error_at(error, at, "\"fill\" must be a string or an object");
  if (!parsed)
    return false;
  bool needs_float = argument->fill == FILL_NORMAL || argument->fill == FILL_UNIFORM;
  if (needs_float && !dtype_is_float(argument->dtype))
    return error_at(error, at, "a buffer of %s needs a fill of \"zeros\", \"index\" or {\"integers\": [low, high]}",
                    dtype_name(argument->dtype));
  return true;
}

static bool parse_access(struct argument *argument, const json_t *json, const char *pointer, struct error *error) {
  const char *access = NULL;
  if (!json_get_string(json, pointer, "access", JSON_REQUIRED, &access, error))
    return false;
  if (string_equal(access, "read")) {
    argument->access = ACCESS_READ;
  } else if (string_equal(access, "write")) {
    argument->access = ACCESS_WRITE;
  } else if (string_equal(access, "readwrite")) {
    argument->access = ACCESS_READWRITE;
  } else {
    char at[JSON_POINTER_SIZE];
    return error_at(error, json_pointer_member(at, sizeof at, pointer, "access"),
                    "\"access\" must be \"read\", \"write\" or \"readwrite\", not \"%.40s\"", access);
  }
  return true;
}

static bool parse_buffer(struct argument *argument, const json_t *json, const char *pointer, struct error *error) {
  static const char *const members[] = {"name", "dtype", "shape", "access", "fill", NULL};
  json_t *shape = NULL;
  if (!json_only_members(json, pointer, members, error) ||
      !json_get_array(json, pointer, "shape", JSON_REQUIRED, &shape, error))
    return false;
  char at[JSON_POINTER_SIZE];
  json_pointer_member(at, sizeof at, pointer, "shape");
  if (json_array_size(shape) < 1 || json_array_size(shape) > KERNEL_DIMENSIONS_MAX)
    return error_at(error, at, "\"shape\" must have 1 to %d extents", KERNEL_DIMENSIONS_MAX);
  argument->is_buffer = true;
  size_t i;
  json_t *extent;
  json_array_foreach (shape, i, extent) {
    char extent_at[JSON_POINTER_SIZE];
    if (!expression_take(extent, json_pointer_index(extent_at, sizeof extent_at, at, i), &argument->shape[i], error))
      return false;
    argument->n_dimensions = i + 1;
  }
  return parse_access(argument, json, pointer, error) && parse_fill(argument, json, pointer, error);
}

static bool parse_scalar(struct argument *argument, const json_t *json, const char *pointer, struct error *error) {
  static const char *const members[] = {"name", "dtype", "value", NULL};
  if (!json_object_get(json, "value"))
    return error_at(error, pointer, "an argument needs a \"shape\" (a buffer) or a \"value\" (a scalar)");
  return json_only_members(json, pointer, members, error) &&
         expression_take_member(json, pointer, "value", &argument->value, error);
}

static bool parse_argument(struct argument *argument, const json_t *json, const char *pointer, struct error *error) {
  char at[JSON_POINTER_SIZE];
  const char *name = NULL, *dtype = NULL;
  if (!json_is_object(json))
    return error_at(error, pointer, "an argument must be an object");
  if (!json_get_string(json, pointer, "name", JSON_REQUIRED, &name, error) ||
      !json_get_string(json, pointer, "dtype", JSON_REQUIRED, &dtype, error))
    return false;
  if (!identifier_is_valid(name))
    return error_at(error, json_pointer_member(at, sizeof at, pointer, "name"),
                    "the name of an argument must be a C identifier, not \"%.40s\"", name);
  argument->name = xstrdup(name);
  if (!dtype_parse(dtype, &argument->dtype))
    return error_at(error, json_pointer_member(at, sizeof at, pointer, "dtype"),
                    "dtype \"%.40s\" is not known; use bool, int8 to int64, uint8 to uint64, float16, bfloat16, "
                    "float32 or float64",
                    dtype);
  return json_object_get(json, "shape") ? parse_buffer(argument, json, pointer, error)
                                        : parse_scalar(argument, json, pointer, error);
}

static struct argument *argument_find(const struct kernel *kernel, size_t n, const char *name) {
  for (size_t i = 0; i < n; i++) {
    if (string_equal(kernel->arguments[i].name, name))
      return &kernel->arguments[i];
  }
  return NULL;
}

bool kernel_parse_arguments(struct kernel *kernel, const json_t *manifest, struct error *error) {
  json_t *array = NULL, *json;
  if (!json_get_array(manifest, "", "arguments", JSON_REQUIRED, &array, error))
    return false;
  if (json_array_size(array) > KERNEL_ARGUMENTS_MAX)
    return error_at(error, "/arguments", "a kernel has at most %d arguments", KERNEL_ARGUMENTS_MAX);
  kernel->n_arguments = json_array_size(array);
  kernel->arguments = xcalloc(kernel->n_arguments, sizeof *kernel->arguments);
  size_t i;
  json_array_foreach (array, i, json) {
    char at[JSON_POINTER_SIZE], name_at[JSON_POINTER_SIZE];
    json_pointer_index(at, sizeof at, "/arguments", i);
    if (!parse_argument(&kernel->arguments[i], json, at, error))
      return false;
    if (argument_find(kernel, i, kernel->arguments[i].name))
      return error_at(error, json_pointer_member(name_at, sizeof name_at, at, "name"), "two arguments are named \"%s\"",
                      kernel->arguments[i].name);
  }
  return true;
}

bool kernel_parse_outputs(struct kernel *kernel, const json_t *outputs, struct error *error) {
  const char *name;
  json_t *entry;
  json_object_foreach ((json_t *)outputs, name, entry) {
    char at[JSON_POINTER_SIZE];
    json_pointer_member(at, sizeof at, "/reference/outputs", name);
    struct argument *argument = argument_find(kernel, kernel->n_arguments, name);
    if (!argument || !argument->is_buffer || argument->access == ACCESS_READ)
      return error_at(error, at, "\"%.64s\" is not a buffer that the kernel writes", name);
    if (!json_is_string(entry) || !identifier_is_valid(json_string_value(entry)))
      return error_at(error, at, "the function that computes \"%.64s\" must be a C identifier", name);
    argument->reference_entry = xstrdup(json_string_value(entry));
  }
  return true;
}

void argument_release(struct argument *argument) {
  free(argument->name);
  for (size_t i = 0; i < argument->n_dimensions; i++)
    free(argument->shape[i]);
  free(argument->value);
  free(argument->reference_entry);
}

bool argument_elements(const struct argument *argument, const struct scope *scope, int64_t *ret_elements,
                       struct error *error) {
  ALWAYS(argument->is_buffer);
  int64_t elements = 1;
  for (size_t i = 0; i < argument->n_dimensions; i++) {
    int64_t extent;
    if (!expr_int_in_scope(argument->shape[i], scope, 1, ELEMENTS_MAX, &extent, error))
      return error_prefix(error, "extent %zu of argument \"%s\", %.80s: ", i, argument->name, argument->shape[i]);
    if (extent > ELEMENTS_MAX / elements)
      return error_set(error, "argument \"%s\" would have more than 2^40 elements", argument->name);
    elements *= extent;
  }
  *ret_elements = elements;
  return true;
}
