/* Types of elements, and fills read strictly. */
#include "common/kernel/fill.h"

#include <math.h>

#include "common/space/expr.h"

const char *const dtype_names[] = {
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

#define SKEW_MAX 8
#define EXACT_INTEGER_MAX ((int64_t)1 << 53) /* doubles above it skip integers */

/* The integers that a buffer of each type can be filled with. */
static const struct {
  int64_t min, max;
} integer_ranges[] = {
    [DTYPE_BOOL] = {0, 1},
    [DTYPE_INT8] = {INT8_MIN, INT8_MAX},
    [DTYPE_UINT8] = {0, UINT8_MAX},
    [DTYPE_INT16] = {INT16_MIN, INT16_MAX},
    [DTYPE_UINT16] = {0, UINT16_MAX},
    [DTYPE_INT32] = {INT32_MIN, INT32_MAX},
    [DTYPE_UINT32] = {0, UINT32_MAX},
    [DTYPE_INT64] = {-EXACT_INTEGER_MAX, EXACT_INTEGER_MAX},
    [DTYPE_UINT64] = {0, EXACT_INTEGER_MAX},
    [DTYPE_FLOAT16] = {-EXACT_INTEGER_MAX, EXACT_INTEGER_MAX},
    [DTYPE_BFLOAT16] = {-EXACT_INTEGER_MAX, EXACT_INTEGER_MAX},
    [DTYPE_FLOAT32] = {-EXACT_INTEGER_MAX, EXACT_INTEGER_MAX},
    [DTYPE_FLOAT64] = {-EXACT_INTEGER_MAX, EXACT_INTEGER_MAX},
    [DTYPE_FLOAT8_E4M3FN] = {-448, 448},
    [DTYPE_FLOAT8_E5M2] = {-57344, 57344},
    [DTYPE_FLOAT8_E4M3FNUZ] = {-240, 240},
    [DTYPE_FLOAT8_E5M2FNUZ] = {-57344, 57344},
    [DTYPE_FLOAT8_E4B15] = {-1, 1},
};

static const struct {
  const char *name;
  enum fill_kind kind;
} words[] = {{"normal", FILL_NORMAL},
             {"uniform", FILL_UNIFORM},
             {"zeros", FILL_ZEROS},
             {"index", FILL_INDEX}};

/* Fills that are objects of one member, by what its value is. */
enum shape { SHAPE_RANGE, SHAPE_PAIR, SHAPE_COUNT, SHAPE_NUMBER, SHAPE_ROUTED, SHAPE_DIGEST };
static const struct object {
  const char *name;
  enum fill_kind kind;
  enum shape shape;
} objects[] = {
    {"uniform", FILL_UNIFORM, SHAPE_RANGE},         {"integers", FILL_INTEGERS, SHAPE_RANGE},
    {"sorted", FILL_SORTED, SHAPE_RANGE},           {"ramp", FILL_RAMP, SHAPE_PAIR},
    {"permutation", FILL_PERMUTATION, SHAPE_COUNT}, {"constant", FILL_CONSTANT, SHAPE_NUMBER},
    {"routed", FILL_ROUTED, SHAPE_ROUTED},          {"blob", FILL_BLOB, SHAPE_DIGEST}};

static bool is_exact_integer(const json_t *json) {
  return json_is_integer(json) && json_integer_value(json) >= -EXACT_INTEGER_MAX &&
         json_integer_value(json) <= EXACT_INTEGER_MAX;
}

static bool range_read(const json_t *range, const struct object *object, struct fill *fill,
                       struct error *error) {
  const json_t *low = json_array_get(range, 0), *high = json_array_get(range, 1);
  bool is_pair = object->shape == SHAPE_PAIR;
  if (json_array_size(range) != 2 || !json_is_number(low) || !json_is_number(high))
    return error_set(error, "\"%s\" must be an array of two numbers, %s", object->name,
                     is_pair ? "the first and the step" : "the lowest and the highest");

  fill->low = json_number_value(low);
  fill->high = json_number_value(high);
  if (is_pair)
    return true;
  if (object->kind == FILL_UNIFORM)
    return fill->low < fill->high ||
           error_set(error, "the low end of \"uniform\" must be less than the high end");
  return (is_exact_integer(low) && is_exact_integer(high) && fill->low <= fill->high) ||
         error_set(error, "\"%s\" must be two integers from -2^53 to 2^53, the low end first",
                   object->name);
}

static bool expression_check(const char *text, struct error *error) {
  cleanup_expr struct expr *expr = NULL;
  return expr_parse(text, &expr, error);
}

static const char *const what_names[] = {
    [ROUTED_TOKENS] = "tokens", [ROUTED_EXPERTS] = "experts", [ROUTED_COUNT] = "count", NULL};
#define EXPRESSION(member, flags)                                                                  \
  RECORD_FIELD(TEXT, struct routed, member, FIELD_OR_INTEGER | (flags), .check = expression_check)
PRIVATE_RECORD(routed, struct routed,
               RECORD_FIELD(ENUM, struct routed, what, FIELD_REQUIRED, .names = what_names),
               EXPRESSION(tokens, FIELD_REQUIRED), EXPRESSION(top_k, FIELD_REQUIRED),
               EXPRESSION(experts, FIELD_REQUIRED), EXPRESSION(block, FIELD_REQUIRED),
               EXPRESSION(by_row, FIELD_NOT_NULL),
               RECORD_FIELD(NUMBER, struct routed, skew, FIELD_NOT_NULL, .most_number = SKEW_MAX));

static bool routed_read(const json_t *value, struct routed *ret_routed, struct error *error) {
  struct routed routed;
  record_init(&routed_record, &routed);
  if (!record_read(&routed_record, value, "", &routed, error)) {
    record_release(&routed_record, &routed);
    return false;
  }
  routed.skew = isnan(routed.skew) ? 0 : routed.skew;
  *ret_routed = routed;
  return true;
}

static void fill_release(void *at) { record_release(&routed_record, &((struct fill *)at)->routed); }

static bool object_read(const json_t *value, const struct object *object, struct fill *fill,
                        struct error *error) {
  switch (object->shape) {
  case SHAPE_RANGE:
  case SHAPE_PAIR:
    return range_read(value, object, fill, error);

  case SHAPE_COUNT:
    fill->low = json_number_value(value);
    return (is_exact_integer(value) && fill->low >= 1) ||
           error_set(error, "\"%s\" must be an integer of at least 1", object->name);

  case SHAPE_NUMBER:
    fill->low = json_is_boolean(value) ? json_is_true(value) : json_number_value(value);
    return json_is_number(value) || json_is_boolean(value) ||
           error_set(error, "\"%s\" must be a number, true or false", object->name);

  case SHAPE_ROUTED:
    return routed_read(value, &fill->routed, error);

  case SHAPE_DIGEST:
    return (json_is_string(value) && digest_parse(json_string_value(value), &fill->blob)) ||
           error_set(error, "\"%s\" must be \"sha256:\" and 64 hexadecimal digits", object->name);
  }
  die("fill: shape %d", object->shape);
}

static bool fill_read(const json_t *value, void *to, struct error *error) {
  struct fill *fill = to;
  if (json_is_string(value)) {
    for (size_t i = 0; i < ARRAY_LENGTH(words); i++) {
      if (string_equal(json_string_value(value), words[i].name)) {
        *fill = (struct fill){.kind = words[i].kind, .is_stated = true, .high = 1};
        return true;
      }
    }
    return error_set(error,
                     "fill \"%.40s\" is not known; use \"normal\", \"uniform\", \"zeros\", "
                     "\"index\", {\"uniform\": [low, high]} or {\"integers\": [low, high]}",
                     json_string_value(value));
  }

  if (!json_is_object(value))
    return error_set(error, "\"fill\" must be a string or an object");

  void *only = json_object_iter((json_t *)value);
  for (size_t i = 0; i < ARRAY_LENGTH(objects) && json_object_size(value) == 1; i++) {
    if (!string_equal(json_object_iter_key(only), objects[i].name))
      continue;
    struct fill found = {.kind = objects[i].kind, .is_stated = true};
    if (!object_read(json_object_iter_value(only), &objects[i], &found, error))
      return error_pointer_prefix(error, POINTER_MEMBER("", objects[i].name));
    *fill = found;
    return true;
  }

  return error_set(error,
                   "a fill must be {\"uniform\": [low, high]}, {\"integers\": [low, high]}, "
                   "{\"sorted\": [low, high]}, {\"ramp\": [start, step]}, {\"permutation\": n}, "
                   "{\"constant\": value} or {\"routed\": {…}}");
}

#define ARRAY_OF(type) "{\"type\": \"array\", \"items\": {\"type\": \"" type "\"}}"
#define NUMBERS ARRAY_OF("number")
#define INTEGERS ARRAY_OF("integer")
#define NAMES "\"normal\", \"uniform\", \"zeros\", \"index\""
/* clang-format off */
const struct field_custom fill_custom = {
    .schema = "{\"anyOf\": [{\"type\": \"string\", \"enum\": [" NAMES "]}, "
              "{\"type\": \"object\", \"minProperties\": 1, \"maxProperties\": 1, "
              "\"additionalProperties\": false, \"properties\": {"
              "\"uniform\": " NUMBERS ", \"integers\": " INTEGERS ", \"sorted\": " INTEGERS ", "
              "\"ramp\": " NUMBERS ", \"permutation\": {\"type\": \"integer\"}, "
              "\"constant\": {\"type\": [\"number\", \"boolean\"]}, "
              "\"routed\": {\"type\": \"object\"}}}]}",
    .read = fill_read,
    .release = fill_release,
};
/* clang-format on */

bool dtype_holds(enum dtype dtype, int64_t value) {
  int bits = 8 * (int)dtype_size(dtype);
  int64_t min = INT64_MIN, max = INT64_MAX;
  switch (dtype) {
  case DTYPE_FLOAT16:
  case DTYPE_BFLOAT16:
  case DTYPE_FLOAT32:
  case DTYPE_FLOAT64:
    max = (int64_t)1 << 53;
    min = -max;
    break;

  case DTYPE_BOOL:
    bits = 1; /* fall through */
  case DTYPE_UINT8:
  case DTYPE_UINT16:
  case DTYPE_UINT32:
    max = ((int64_t)1 << bits) - 1; /* fall through */
  case DTYPE_UINT64:
    min = 0;
    break;

  case DTYPE_INT64:
    break;

  case DTYPE_FLOAT8_E4M3FN:
  case DTYPE_FLOAT8_E5M2:
  case DTYPE_FLOAT8_E4M3FNUZ:
  case DTYPE_FLOAT8_E5M2FNUZ:
  case DTYPE_FLOAT8_E4B15:
    max = integer_ranges[dtype].max;
    min = -max;
    break;

  default:
    max = ((int64_t)1 << (bits - 1)) - 1;
    min = -max - 1;
  }
  return value >= min && value <= max;
}

static bool is_whole(double number) {
  return number == floor(number) && fabs(number) <= (double)EXACT_INTEGER_MAX;
}

bool fill_fits(const struct fill *fill, enum dtype dtype, struct error *error) {
  const char *type = dtype_name(dtype), *name = NULL;
  bool is_float = dtype >= DTYPE_FLOAT16, fits = true;
  double min = (double)integer_ranges[dtype].min, max = (double)integer_ranges[dtype].max;
  for (size_t i = 0; i < ARRAY_LENGTH(objects); i++)
    name = objects[i].kind == fill->kind ? objects[i].name : name;

  switch (fill->kind) {
  case FILL_NORMAL:
  case FILL_UNIFORM:
    return is_float ||
           error_at(error, "/fill",
                    "a buffer of %s needs a fill of \"zeros\", \"index\" or {\"integers\": [low, "
                    "high]}",
                    type);

  case FILL_INTEGERS:
  case FILL_SORTED:
    fits = fill->low >= min && fill->high <= max;
    break;

  case FILL_PERMUTATION:
    fits = fill->low - 1 <= max;
    break;

  case FILL_RAMP:
    fits = is_float ||
           (is_whole(fill->low) && is_whole(fill->high) && fill->low >= min && fill->low <= max);
    break;

  case FILL_CONSTANT:
    fits = is_float || (is_whole(fill->low) && fill->low >= min && fill->low <= max);
    break;

  case FILL_ROUTED:
    return dtype == DTYPE_INT32 || dtype == DTYPE_INT64 ||
           error_at(error, "/fill/routed", "a buffer of %s cannot hold routed tokens: use int32",
                    type);

  case FILL_ZEROS:
  case FILL_INDEX:
  case FILL_BLOB:
    break;
  }

  const char *at = POINTER_MEMBER("/fill", name ? name : "");
  return fits || error_at(error, at, "\"%s\" of %s must be integers from %.0f to %.0f", name, type,
                          min, max);
}
