/* Arguments of a kernel: their types, shapes, fills and, for outputs, who computes them for the
 * check.
 *
 * Memory: an argument owns its texts. Threads: any; read-only after kernel_parse. */
#include "common/kernel/kernel_parse.h"

#define ELEMENTS_MAX ((int64_t)1 << 40)
#define EXACT_INTEGER_MAX ((int64_t)1 << 53) /* beyond it a double skips integers */

static const char *const dtype_names[] = {
#define X(name, enumerator, size, c_type) name,
    DTYPES(X) NULL
#undef X
};
static const struct {
  size_t size;
  const char *c_type;
} dtypes[] = {
#define X(name, enumerator, size, c_type) {size, c_type},
    DTYPES(X)
#undef X
};

const char *dtype_name(enum dtype dtype) { return dtype_names[dtype]; }
const char *dtype_c_type(enum dtype dtype) { return dtypes[dtype].c_type; }
size_t dtype_size(enum dtype dtype) { return dtypes[dtype].size; }

bool dtype_parse(const char *name, enum dtype *ret_dtype) {
  for (size_t i = 0; i < ARRAY_LENGTH(dtypes); i++)
    if (string_equal(name, dtype_names[i])) {
      *ret_dtype = (enum dtype)i;
      return true;
    }
  return false;
}

static bool dtype_is_float(enum dtype dtype) {
  return dtype == DTYPE_FLOAT16 || dtype == DTYPE_BFLOAT16 || dtype == DTYPE_FLOAT32 ||
         dtype == DTYPE_FLOAT64;
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

static bool fill_name_read(const char *name, struct fill *fill, struct error *error) {
  static const struct {
    const char *name;
    enum fill_kind kind;
  } fills[] = {{"normal", FILL_NORMAL},
               {"uniform", FILL_UNIFORM},
               {"zeros", FILL_ZEROS},
               {"index", FILL_INDEX}};
  for (size_t i = 0; i < ARRAY_LENGTH(fills); i++)
    if (string_equal(name, fills[i].name)) {
      *fill = (struct fill){fills[i].kind, true, 0, 1};
      return true;
    }
  return error_set(
      error,
      "fill \"%.40s\" is not known; use \"normal\", \"uniform\", \"zeros\", \"index\", "
      "{\"uniform\": [low, high]} or {\"integers\": [low, high]}",
      name);
}

static bool fill_range_read(const json_t *json, struct fill *fill, struct error *error) {
  void *only = json_object_iter((json_t *)json);
  const char *kind = only ? json_object_iter_key(only) : NULL;
  bool is_uniform = string_equal(kind, "uniform");
  if (json_object_size(json) != 1 || (!is_uniform && !string_equal(kind, "integers")))
    return error_set(error,
                     "a fill must be {\"uniform\": [low, high]} or {\"integers\": [low, high]}");

  char at[JSON_POINTER_SIZE];
  json_pointer_member(at, sizeof at, "", kind);
  const json_t *range = json_object_iter_value(only);
  const json_t *low = json_array_get(range, 0), *high = json_array_get(range, 1);
  if (json_array_size(range) != 2 || !json_is_number(low) || !json_is_number(high))
    return error_at(error, at, "\"%s\" must be an array of two numbers, the lowest and the highest",
                    kind);
  *fill = (struct fill){is_uniform ? FILL_UNIFORM : FILL_INTEGERS, true, json_number_value(low),
                        json_number_value(high)};
  if (is_uniform)
    return fill->low < fill->high ||
           error_at(error, at, "the low end of \"uniform\" must be less than the high end");
  return (json_is_integer(low) && json_is_integer(high) &&
          json_integer_value(low) <= json_integer_value(high) &&
          json_integer_value(low) >= -EXACT_INTEGER_MAX &&
          json_integer_value(high) <= EXACT_INTEGER_MAX) ||
         error_at(error, at,
                  "\"integers\" must be two integers from -2^53 to 2^53, the low end first");
}

static bool fill_read(const json_t *value, void *to, struct error *error) {
  if (json_is_string(value))
    return fill_name_read(json_string_value(value), to, error);
  return json_is_object(value) ? fill_range_read(value, to, error)
                               : error_set(error, "\"fill\" must be a string or an object");
}

static const struct field_custom fill_custom = {
    .schema =
        "{\"anyOf\": [{\"type\": \"string\", \"enum\": [\"normal\", \"uniform\", \"zeros\", "
        "\"index\"]},"
        " {\"type\": \"object\", \"minProperties\": 1, \"maxProperties\": 1, "
        "\"additionalProperties\": false,"
        " \"properties\": {\"uniform\": {\"type\": \"array\", \"items\": {\"type\": \"number\"}},"
        " \"integers\": {\"type\": \"array\", \"items\": {\"type\": \"integer\"}}}}]}",
    .read = fill_read,
};

static const char *const access_names[] = {"read", "write", "readwrite", NULL};

#define AT(member) offsetof(struct argument, member)
static const struct field argument_fields[] = {
    {"name", FIELD_TEXT, AT(name), FIELD_REQUIRED, .check = identifier_check},
    {"dtype", FIELD_ENUM, AT(dtype), FIELD_REQUIRED, .names = dtype_names},
    {"shape", FIELD_TEXTS, AT(n_dimensions), FIELD_NOT_NULL | FIELD_OR_INTEGER, .least = 1,
     .most = KERNEL_DIMENSIONS_MAX, .check = expression_check, .about = "of a buffer: its extents"},
    {"access", FIELD_ENUM, AT(access), FIELD_NOT_NULL, .names = access_names,
     .about = "of a buffer"},
    {"fill", FIELD_CUSTOM, AT(fill), FIELD_NOT_NULL | FIELD_REQUEST, .custom = &fill_custom,
     .about = "of a buffer that is read"},
    {"value", FIELD_TEXT, AT(value), FIELD_NOT_NULL | FIELD_OR_INTEGER, .check = expression_check,
     .about = "of a scalar: an expression"},
};
const struct record argument_record = RECORD(NULL, struct argument, argument_fields);

static bool fill_fits(const struct argument *argument, struct error *error) {
  const struct fill *fill = &argument->fill;
  if ((fill->kind == FILL_NORMAL || fill->kind == FILL_UNIFORM) && !dtype_is_float(argument->dtype))
    return error_at(
        error, "/fill",
        "a buffer of %s needs a fill of \"zeros\", \"index\" or {\"integers\": [low, high]}",
        dtype_name(argument->dtype));

  int64_t min, max;
  dtype_integer_range(argument->dtype, &min, &max);
  return fill->kind != FILL_INTEGERS || (fill->low >= (double)min && fill->high <= (double)max) ||
         error_at(error, "/fill/integers", "\"integers\" of %s must be from %lld to %lld",
                  dtype_name(argument->dtype), (long long)min, (long long)max);
}

static bool scalar_settle(struct argument *argument, struct error *error) {
  if (!argument->value)
    return error_set(error, "an argument needs a \"shape\" (a buffer) or a \"value\" (a scalar)");
  if ((int)argument->access >= 0)
    return error_at(error, "/access",
                    "a scalar has no \"access\"; give it a \"shape\" to make it a buffer");
  argument->access = ACCESS_READ;
  return !argument->fill.is_stated ||
         error_at(error, "/fill",
                  "a scalar has no \"fill\"; give it a \"shape\" to make it a buffer");
}

static bool buffer_settle(struct argument *argument, struct error *error) {
  if (argument->value)
    return error_at(error, "/value",
                    "a buffer has no \"value\"; take out its \"shape\" to make it a scalar");
  if ((int)argument->access < 0)
    return member_is_missing("/access", error);
  if (argument->access != ACCESS_WRITE)
    return fill_fits(argument, error);
  argument->fill.kind = FILL_ZEROS;
  return !argument->fill.is_stated ||
         error_at(error, "/fill", "a buffer that is only written has no fill");
}

static struct argument *argument_find(const struct kernel *kernel, const char *name) {
  for (size_t i = 0; i < kernel->n_arguments; i++) {
    if (string_equal(kernel->arguments[i].name, name))
      return &kernel->arguments[i];
  }
  return NULL;
}

bool kernel_settle_arguments(struct kernel *kernel, struct error *error) {
  char at[JSON_POINTER_SIZE];
  for (size_t i = 0; i < kernel->n_arguments; i++) {
    struct argument *argument = &kernel->arguments[i];
    argument->is_buffer = argument->shape != NULL;
    if (!(argument->is_buffer ? buffer_settle(argument, error) : scalar_settle(argument, error)))
      return error_pointer_prefix(error, json_pointer_index(at, sizeof at, "/arguments", i));
  }

  size_t twice = text_repeated(kernel->arguments, kernel->n_arguments, sizeof *kernel->arguments);
  if (twice == kernel->n_arguments)
    return true;
  error_at(error, "/name", "two arguments are named \"%s\"", kernel->arguments[twice].name);
  return error_pointer_prefix(error, json_pointer_index(at, sizeof at, "/arguments", twice));
}

bool kernel_settle_outputs(struct kernel *kernel, struct error *error) {
  for (size_t i = 0; i < kernel->reference.n_outputs; i++) {
    const struct output *output = &kernel->reference.outputs[i];
    struct argument *argument = argument_find(kernel, output->argument);
    char at[JSON_POINTER_SIZE];
    if (!argument || !argument->is_buffer || argument->access == ACCESS_READ)
      return error_at(error,
                      json_pointer_member(at, sizeof at, "/reference/outputs", output->argument),
                      "\"%.64s\" is not a buffer that the kernel writes", output->argument);
    argument->reference_entry = output->entry;
  }
  return true;
}

bool argument_elements(const struct argument *argument, const struct scope *scope,
                       int64_t *ret_elements, struct error *error) {
  ALWAYS(argument->is_buffer);
  int64_t elements = 1;
  for (size_t i = 0; i < argument->n_dimensions; i++) {
    int64_t extent;
    if (!expr_int_in_scope(argument->shape[i], scope, 1, ELEMENTS_MAX, &extent, error))
      return error_prefix(error, "extent %zu of argument \"%s\", %.80s: ", i, argument->name,
                          argument->shape[i]);
    if (extent > ELEMENTS_MAX / elements)
      return error_set(error, "argument \"%s\" would have more than 2^40 elements", argument->name);
    elements *= extent;
  }
  *ret_elements = elements;
  return true;
}
