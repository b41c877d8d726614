/* Cases, read strictly: a copy of the captured kernel gets their numbers. */
#include "common/kernel/kernel_case.h"

#include <inttypes.h>
#include <math.h>

/* One argument of a case. */
struct passed {
  int64_t elements, before, after, row;
  enum { PASSED_READ, PASSED_READWRITE } access;
  struct fill fill;
  char *alias;
  json_t *value;
};

static const char *const access_names[] = {"read", "readwrite", NULL};
PRIVATE_RECORD(passed, struct passed,
               RECORD_FIELD(INTEGER, struct passed, elements, FIELD_NOT_NULL, .least = 1,
                            .most = ELEMENTS_MAX),
               RECORD_FIELD(INTEGER, struct passed, before, FIELD_NOT_NULL, .most = ELEMENTS_MAX),
               RECORD_FIELD(INTEGER, struct passed, after, FIELD_NOT_NULL, .most = ELEMENTS_MAX),
               RECORD_FIELD(INTEGER, struct passed, row, FIELD_NOT_NULL, .least = 1,
                            .most = ELEMENTS_MAX),
               RECORD_FIELD(ENUM, struct passed, access, FIELD_NOT_NULL, .names = access_names),
               RECORD_FIELD(CUSTOM, struct passed, fill, FIELD_NOT_NULL | FIELD_REQUEST,
                            .custom = &fill_custom),
               RECORD_FIELD(TEXT, struct passed, alias, FIELD_NOT_NULL),
               RECORD_FIELD(JSON, struct passed, value, FIELD_NOT_NULL));

struct member {
  char *name;
  struct passed passed;
};
PRIVATE_RECORD(member, struct member, RECORD_FIELD(TEXT, struct member, name),
               RECORD_FIELD(RECORD, struct member, passed, .of = &passed_record));

struct kernel_case {
  RECORD_ARRAY(struct member, n_arguments, arguments);
  enum { PRECISION_TF32 } precision;
  double scale;
};
static const char *const precision_names[] = {"tf32", NULL};
PRIVATE_RECORD(case, struct kernel_case,
               RECORD_FIELD_AS("arguments", MAP, struct kernel_case, n_arguments, FIELD_REQUIRED,
                               .most = KERNEL_ARGUMENTS_MAX, .of = &member_record),
               RECORD_FIELD(ENUM, struct kernel_case, precision, FIELD_NOT_NULL,
                            .names = precision_names),
               RECORD_FIELD(NUMBER, struct kernel_case, scale, FIELD_NOT_NULL,
                            .least_number = CASE_SCALE_MIN, .most_number = 1));

static void case_release(struct kernel_case *of) { record_release(&case_record, of); }

static struct argument *argument_find(const struct kernel *kernel, const char *name) {
  for (size_t i = 0; i < kernel->n_arguments; i++)
    if (string_equal(kernel->arguments[i].name, name))
      return &kernel->arguments[i];
  return NULL;
}

static bool buffer_take(struct argument *argument, const struct passed *passed,
                        struct error *error) {
  if (passed->value)
    return error_at(error, "/value", "it is a buffer, and so has no value");
  if (passed->elements == FIELD_NONE)
    return error_at(error, "/elements", "a buffer must state its number of elements");
  if ((int)passed->access < 0)
    return error_at(error, "/access", "a buffer must state its access");
  if (passed->fill.kind == FILL_ROUTED)
    return error_at(
        error, "/fill/routed",
        "a case cannot state how tokens are routed: give the bytes that were passed as a blob");
  argument->access = passed->access == PASSED_READ ? ACCESS_READ : ACCESS_READWRITE;
  argument->fill = passed->fill;
  bool is_computed = argument->reference_entry != NULL;
  argument->before = passed->before == FIELD_NONE || is_computed ? 0 : passed->before;
  argument->after = passed->after == FIELD_NONE || is_computed ? 0 : passed->after;
  argument->row = passed->row == FIELD_NONE ? 0 : passed->row;
  if (argument->row && (passed->alias || passed->elements % argument->row))
    return error_at(error, "/row", "only a buffer of its own has rows, and no part of one");
  if (passed->after != FIELD_NONE && passed->alias)
    return error_at(error, "/after", "the buffer is another argument's, which states its end");
  argument->n_dimensions = 1;
  argument->shape = xcalloc(1, sizeof *argument->shape);
  argument->shape[0] = xasprintf("%" PRId64, argument->before + passed->elements + argument->after);
  bool has_fill = !passed->alias || passed->fill.is_stated;
  return !has_fill || fill_fits(&argument->fill, argument->dtype, error);
}

static bool scalar_take(struct argument *argument, const struct passed *passed,
                        struct error *error) {
  static const struct {
    const char *name;
    double value;
  } words[] = {{"inf", INFINITY}, {"-inf", -INFINITY}, {"nan", NAN}};
  const json_t *value = passed->value;
  const char *word = json_string_value(value);
  bool is_float = argument->dtype >= DTYPE_FLOAT16;
  if (passed->elements != FIELD_NONE || passed->before != FIELD_NONE ||
      passed->after != FIELD_NONE || passed->row != FIELD_NONE || (int)passed->access >= 0 ||
      passed->fill.is_stated || passed->alias)
    return error_set(error, "it is a scalar, which has a value and nothing else");
  if (!value)
    return error_at(error, "/value", "a scalar must state its value");

  if (json_is_boolean(value))
    argument->literal = value_int(json_is_true(value));
  else if (json_is_integer(value))
    argument->literal = value_int(json_integer_value(value));
  else if (json_is_real(value) && is_float)
    argument->literal = value_float(json_real_value(value));
  for (size_t i = 0; i < ARRAY_LENGTH(words) && is_float; i++)
    if (string_equal(word, words[i].name))
      argument->literal = value_float(words[i].value);

  const struct value *literal = &argument->literal;
  return (literal->type == VALUE_INT && dtype_holds(argument->dtype, literal->integer)) ||
         literal->type == VALUE_FLOAT ||
         error_at(error, "/value", "it is no value of %s", dtype_name(argument->dtype));
}

/* Removes the arguments that the case does not pass. */
static void arguments_keep(struct kernel *kernel, const bool *is_passed) {
  size_t kept = 0;
  for (size_t i = 0; i < kernel->n_arguments; i++) {
    struct argument *argument = &kernel->arguments[i];
    if (is_passed[i]) {
      kernel->arguments[kept++] = *argument;
      continue;
    }
    free(argument->name);
  }
  kernel->n_arguments = kept;
}

/* Finds the argument of an alias, and settles how the buffer is accessed. */
static bool alias_settle(struct kernel *kernel, const char *name, const char *alias,
                         struct error *error) {
  struct argument *argument = argument_find(kernel, name), *owner = argument_find(kernel, alias);
  int64_t size = 0, owner_size = 0;
  if (!owner || !owner->is_buffer || owner == argument)
    return error_at(error, "/alias", "\"%.64s\" is no other buffer that the case passes", alias);
  if (argument->reference_entry)
    return error_at(error, "/alias",
                    "the reference computes \"%s\", so the other one must be the alias",
                    argument->name);

  const struct fill *fill = &argument->fill, *owner_fill = &owner->fill;
  bool is_same_fill = fill->kind == owner_fill->kind && fill->low == owner_fill->low &&
                      fill->high == owner_fill->high &&
                      digest_equal(&fill->blob, &owner_fill->blob);
  if (fill->is_stated && !is_same_fill)
    return error_at(error, "/fill", "\"%s\" is the same buffer and has another fill", owner->name);

  size = strtoll(argument->shape[0], NULL, 10) * (int64_t)dtype_size(argument->dtype);
  owner_size = strtoll(owner->shape[0], NULL, 10) * (int64_t)dtype_size(owner->dtype);
  if (size > owner_size)
    return error_at(error, "/alias",
                    "\"%s\" has %" PRId64 " bytes and \"%s\" %" PRId64
                    ": the smaller one must be the alias",
                    argument->name, size, owner->name, owner_size);

  argument->alias = owner;
  if (argument->access == ACCESS_READWRITE)
    owner->access = ACCESS_READWRITE;
  return true;
}

static bool aliases_settle(struct kernel *kernel, const struct kernel_case *of,
                           struct error *error) {
  for (size_t i = 0; i < of->n_arguments; i++) {
    const char *name = of->arguments[i].name, *alias = of->arguments[i].passed.alias;
    if (alias && !alias_settle(kernel, name, alias, error))
      return error_pointer_prefix(error, POINTER_MEMBER("/arguments", name));
  }

  for (size_t i = 0; i < kernel->n_arguments; i++) {
    const struct argument *argument = &kernel->arguments[i];
    if (!argument->alias || !argument->alias->alias)
      continue;
    error_at(error, "/alias", "\"%s\" is an alias itself", argument->alias->name);
    return error_pointer_prefix(error, POINTER_MEMBER("/arguments", argument->name));
  }
  return true;
}

bool kernel_of_case(const struct kernel *kernel, const json_t *json, struct kernel **ret_kernel,
                    struct error *error) {
  cleanup_kernel struct kernel *made = NULL;
  cleanup_by(case_release) struct kernel_case of;
  cleanup_json json_t *copy = json_deep_copy(json); /* JSON fields share its parts */
  bool is_passed[KERNEL_ARGUMENTS_MAX] = {false};
  ALWAYS(kernel->is_captured);
  record_init(&case_record, &of);
  if (!record_read(&case_record, copy, "", &of, error) || !kernel_parse(kernel->json, &made, error))
    return false;

  for (size_t i = 0; i < of.n_arguments; i++) {
    const struct passed *passed = &of.arguments[i].passed;
    const char *name = of.arguments[i].name;
    struct argument *argument = argument_find(made, name);
    bool is_good = argument
                       ? (argument->is_buffer ? buffer_take : scalar_take)(argument, passed, error)
                       : error_set(error, "kernel \"%s\" has no such argument", kernel->name);
    if (!is_good)
      return error_pointer_prefix(error, POINTER_MEMBER("/arguments", name));
    is_passed[argument - made->arguments] = true;
  }

  arguments_keep(made, is_passed);
  if (!aliases_settle(made, &of, error))
    return false;

  for (size_t i = 0; i < made->n_arguments && !isnan(of.scale); i++)
    if (made->arguments[i].is_buffer && made->arguments[i].fill.kind == FILL_NORMAL)
      made->arguments[i].fill.scale = of.scale;
  made->is_captured = false;
  made->is_scaled_down = of.scale < 1;
  made->is_tf32 = of.precision == PRECISION_TF32;
  *ret_kernel = TAKE(made);
  return true;
}

const struct digest *argument_blob(const struct argument *argument) {
  bool has_blob = argument_has_buffer(argument) && argument->fill.kind == FILL_BLOB;
  return has_blob ? &argument->fill.blob : NULL;
}

bool argument_blob_check(const struct argument *argument, size_t size, struct error *error) {
  int64_t elements = strtoll(argument->shape[0], NULL, 10) - argument->before - argument->after;
  size_t expected = (size_t)elements * dtype_size(argument->dtype);
  return size == expected || error_set(error, "argument \"%s\" has %zu bytes and its blob %zu",
                                       argument->name, expected, size);
}
