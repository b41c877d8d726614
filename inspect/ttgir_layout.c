/* Layouts as bits of lane and warp: parsing and comparing them.
 *
 * Memory: see ttgir_layout.h. Threads: any. Text from anybody: every number is bounded before it is
 * used. */
#include "inspect/ttgir_layout.h"

#define BITS_MAX 12
#define NESTING_MAX 8

/* What each bit of a number adds to the element's index, for each dimension. */
struct bits {
  size_t n;
  int64_t adds[BITS_MAX][TTGIR_DIMENSIONS_MAX];
};

struct distribution {
  size_t n_dimensions;
  struct bits lane, warp;
};

bool span_equal(struct span a, struct span b) {
  return a.length == b.length && memcmp(a.text, b.text, a.length) == 0;
}

static bool span_is(struct span span, const char *text) {
  return span.length == strlen(text) && memcmp(span.text, text, span.length) == 0;
}

static bool span_starts(struct span span, const char *prefix) {
  return span.length >= strlen(prefix) && memcmp(span.text, prefix, strlen(prefix)) == 0;
}

struct span ttgir_layout_resolve(const struct ttgir_layouts *layouts, struct span encoding) {
  for (size_t i = 0; encoding.text && i < layouts->n; i++) {
    if (span_equal(layouts->names[i], encoding))
      return layouts->texts[i];
  }
  return encoding;
}

static struct span letters_of(const char *text, size_t size) {
  size_t length = 0;
  while (length < size && (text[length] == '_' || (text[length] >= 'a' && text[length] <= 'z')))
    length++;
  return (struct span){text, length};
}

struct span ttgir_layout_kind(const struct ttgir_layouts *layouts, struct span encoding) {
  struct span text = ttgir_layout_resolve(layouts, encoding);
  static const char *const dialects[] = {"#ttg.", "#triton_gpu.", "#ttng."};
  for (size_t i = 0; text.text && i < ARRAY_LENGTH(dialects); i++) {
    size_t length = strlen(dialects[i]);
    if (span_starts(text, dialects[i]))
      return letters_of(text.text + length, text.length - length);
  }
  if (!text.length || text.text[0] != '#')
    return (struct span){0};
  static const char *const aliases[] = {"blocked", "linear", "shared", "mma", "mfma"};
  struct span name = letters_of(text.text + 1, text.length - 1);
  size_t digits = name.length + 1;
  while (digits < text.length && text.text[digits] >= '0' && text.text[digits] <= '9')
    digits++;
  for (size_t i = 0; digits == text.length && i < ARRAY_LENGTH(aliases); i++) {
    if (span_is(name, aliases[i]))
      return name;
  }
  return (struct span){0};
}

bool ttgir_layout_is_shared(const struct ttgir_layouts *layouts, struct span encoding) {
  struct span kind = ttgir_layout_kind(layouts, encoding);
  return kind.text && memmem(kind.text, kind.length, "shared", 6);
}

bool ttgir_layout_is_mfma(const struct ttgir_layouts *layouts, struct span encoding) {
  struct span kind = ttgir_layout_kind(layouts, encoding);
  return kind.text && (span_is(kind, "amd_mfma") || span_is(kind, "mfma") || span_is(kind, "mma"));
}

/* How long a value is: up to a comma or closing bracket that is not inside brackets of its own. */
static size_t value_length(const char *text, size_t length) {
  int depth = 0;
  for (size_t i = 0; i < length; i++) {
    if (strchr("[{<(", text[i]) && text[i])
      depth++;
    else if (strchr("]}>)", text[i]) && text[i] && depth-- == 0)
      return i;
    else if (text[i] == ',' && depth == 0)
      return i;
  }
  return length;
}

struct span ttgir_layout_member(struct span layout, const char *name) {
  size_t name_length = strlen(name);
  int depth = 0;
  for (size_t i = 0; i + name_length + 3 < layout.length; i++) {
    char c = layout.text[i];
    depth += c == '{' ? 1 : c == '}' ? -1 : 0;
    bool begins = i > 0 && (layout.text[i - 1] == '{' || layout.text[i - 1] == ' ');
    if (depth == 1 && begins && memcmp(layout.text + i, name, name_length) == 0 &&
        memcmp(layout.text + i + name_length, " = ", 3) == 0) {
      const char *value = layout.text + i + name_length + 3;
      return (struct span){value,
                           value_length(value, layout.length - (size_t)(value - layout.text))};
    }
  }
  return (struct span){0};
}

/* A number of at most 15 digits; *at goes behind it. */
static bool take_number(struct span text, size_t *at, int64_t *ret) {
  int64_t number = 0;
  size_t digits = 0;
  while (*at < text.length && text.text[*at] >= '0' && text.text[*at] <= '9' && digits < 15) {
    number = number * 10 + (text.text[*at] - '0');
    digits++, (*at)++;
  }
  *ret = number;
  return digits > 0;
}

bool ttgir_integers(struct span list, int64_t *values, size_t max, size_t *ret_n) {
  size_t n = 0, at = 1;
  if (!list.text || list.length < 2 || list.text[0] != '[' || list.text[list.length - 1] != ']')
    return false;
  while (at < list.length - 1) {
    if (n == max || !take_number(list, &at, &values[n]))
      return false;
    n++;
    if (list.text[at] == ',' && list.text[at + 1] == ' ')
      at += 2;
    else if (at != list.length - 1)
      return false;
  }
  *ret_n = n;
  return true;
}

static int64_t element_bytes_of(struct span type) {
  size_t at = 0;
  int64_t number;
  if (span_starts(type, "!tt.ptr<")) {
    type.text += 8;
    type.length -= 8;
  }
  while (at < type.length && type.text[at] >= 'a' && type.text[at] <= 'z')
    at++;
  if (!at || !take_number(type, &at, &number) || number > 128)
    return 0;
  return number < 8 ? 1 : number / 8;
}

bool ttgir_tensor_parse(struct span text, struct ttgir_tensor *ret, const char **ret_end) {
  const char *begin = memmem(text.text, text.length, "tensor<", 7);
  if (!begin)
    return false;
  struct span type = {begin + 7, text.length - (size_t)(begin + 7 - text.text)};
  size_t shape_and_element = value_length(type.text, type.length);
  struct ttgir_tensor tensor = {0};
  struct span shape = {type.text, shape_and_element};
  size_t at = 0, start = 0;
  int64_t extent;
  while (take_number(shape, &at, &extent) && at < shape.length && shape.text[at] == 'x') {
    if (tensor.n_dimensions == TTGIR_DIMENSIONS_MAX || extent < 1)
      return false;
    tensor.shape[tensor.n_dimensions++] = extent;
    start = ++at;
  }
  tensor.element_bytes = element_bytes_of((struct span){shape.text + start, shape.length - start});
  const char *end = type.text + shape_and_element;
  if (end < type.text + type.length && *end == ',') {
    const char *encoding = end + 1;
    encoding += encoding < type.text + type.length && *encoding == ' ';
    tensor.encoding = (struct span){
        encoding, value_length(encoding, type.length - (size_t)(encoding - type.text))};
    end = encoding + tensor.encoding.length;
  }
  *ret = tensor;
  *ret_end = end;
  return true;
}

/* The dimensions that `counts` threads (a power of two in each) are laid over, the fastest one
 * first. */
static bool bits_of_blocked(const int64_t *counts, const int64_t *unit, const int64_t *order,
                            size_t n, const int64_t *shape, struct bits *bits) {
  for (size_t i = 0; i < n; i++) {
    int64_t d = order[i];
    for (int64_t step = 1; step < counts[d]; step *= 2) {
      if (bits->n == BITS_MAX)
        return false;
      int64_t add = unit[d] * step;
      bits->adds[bits->n++][d] = add < shape[d] ? add : 0;
    }
  }
  return true;
}

static bool blocked_distribution(struct span layout, const int64_t *shape, size_t n,
                                 struct distribution *ret) {
  static const char *const names[] = {"sizePerThread", "threadsPerWarp", "warpsPerCTA", "order"};
  int64_t lists[4][TTGIR_DIMENSIONS_MAX], warp_unit[TTGIR_DIMENSIONS_MAX];
  for (size_t i = 0; i < 4; i++) {
    size_t length = 0;
    if (!ttgir_integers(ttgir_layout_member(layout, names[i]), lists[i], TTGIR_DIMENSIONS_MAX,
                        &length) ||
        length != n)
      return false;
    for (size_t d = 0; d < n; d++) {
      if (i < 3 ? lists[i][d] < 1 || lists[i][d] > 1 << 20 : lists[i][d] >= (int64_t)n)
        return false;
    }
  }
  for (size_t d = 0; d < n; d++)
    warp_unit[d] = lists[0][d] * lists[1][d];
  *ret = (struct distribution){.n_dimensions = n};
  return bits_of_blocked(lists[1], lists[0], lists[3], n, shape, &ret->lane) &&
         bits_of_blocked(lists[2], warp_unit, lists[3], n, shape, &ret->warp);
}

/* "[[0, 1], [0, 2]]" */
static bool linear_bits(struct span list, size_t n, const int64_t *shape, struct bits *bits) {
  size_t at = 1;
  if (!list.text || list.length < 2)
    return false;
  while (at < list.length && list.text[at] == '[') {
    size_t length = value_length(list.text + at, list.length - at), n_values = 0;
    if (bits->n == BITS_MAX ||
        !ttgir_integers((struct span){list.text + at, length}, bits->adds[bits->n],
                        TTGIR_DIMENSIONS_MAX, &n_values) ||
        n_values != n)
      return false;
    for (size_t d = 0; d < n; d++)
      bits->adds[bits->n][d] = bits->adds[bits->n][d] < shape[d] ? bits->adds[bits->n][d] : 0;
    bits->n++;
    at += length + 1;
    at += at < list.length && list.text[at] == ' ';
  }
  return true;
}

static void bits_drop(struct bits *bits, size_t n_dimensions, size_t dimension) {
  for (size_t i = 0; i < bits->n; i++) {
    for (size_t d = dimension; d + 1 < n_dimensions; d++)
      bits->adds[i][d] = bits->adds[i][d + 1];
    bits->adds[i][n_dimensions - 1] = 0;
  }
}

static bool distribution_of(const struct ttgir_layouts *layouts, struct span encoding,
                            const int64_t *shape, size_t n, int nesting, struct distribution *ret) {
  struct span kind = ttgir_layout_kind(layouts, encoding),
              layout = ttgir_layout_resolve(layouts, encoding);
  if (!kind.text || nesting > NESTING_MAX)
    return false;
  if (span_is(kind, "blocked"))
    return blocked_distribution(layout, shape, n, ret);
  if (span_is(kind, "linear")) {
    *ret = (struct distribution){.n_dimensions = n};
    return linear_bits(ttgir_layout_member(layout, "lane"), n, shape, &ret->lane) &&
           linear_bits(ttgir_layout_member(layout, "warp"), n, shape, &ret->warp);
  }
  if (!span_is(kind, "slice") || n + 1 > TTGIR_DIMENSIONS_MAX)
    return false;
  /* A slice is its parent over a shape with one more dimension, of extent 1. */
  struct span dimension_text = ttgir_layout_member(layout, "dim");
  int64_t dimension, wider[TTGIR_DIMENSIONS_MAX];
  size_t at = 0;
  if (!dimension_text.text || !take_number(dimension_text, &at, &dimension) ||
      dimension > (int64_t)n)
    return false;
  for (size_t d = 0; d <= n; d++)
    wider[d] = d == (size_t)dimension ? 1 : shape[d - (d > (size_t)dimension)];
  if (!distribution_of(layouts, ttgir_layout_member(layout, "parent"), wider, n + 1, nesting + 1,
                       ret))
    return false;
  bits_drop(&ret->lane, n + 1, (size_t)dimension);
  bits_drop(&ret->warp, n + 1, (size_t)dimension);
  ret->n_dimensions = n;
  return true;
}

int64_t ttgir_contiguous_bytes(const struct ttgir_layouts *layouts,
                               const struct ttgir_tensor *tensor) {
  struct span layout = ttgir_layout_resolve(layouts, tensor->encoding),
              kind = ttgir_layout_kind(layouts, tensor->encoding);
  int64_t each[TTGIR_DIMENSIONS_MAX], order[TTGIR_DIMENSIONS_MAX];
  size_t n = 0, n_order = 0;
  if (!kind.text || !span_is(kind, "blocked") ||
      !ttgir_integers(ttgir_layout_member(layout, "sizePerThread"), each, TTGIR_DIMENSIONS_MAX,
                      &n) ||
      !ttgir_integers(ttgir_layout_member(layout, "order"), order, TTGIR_DIMENSIONS_MAX,
                      &n_order) ||
      n_order != n || n != tensor->n_dimensions || !n || order[0] >= (int64_t)n)
    return 0;
  int64_t extent = tensor->shape[order[0]],
          elements = each[order[0]] < extent ? each[order[0]] : extent;
  return elements > 1 << 20 ? 0 : elements * tensor->element_bytes;
}

const char *ttgir_conversion_name(enum ttgir_conversion conversion) {
  static const char *const names[] = {"registers", "may", "lds", "to_lds", "from_lds"};
  return names[conversion];
}

enum agreement { AGREE, DIFFER, UNSURE /* elements that several threads hold */ };

static enum agreement bits_compare(const struct bits *a, const struct bits *b,
                                   size_t n_dimensions) {
  enum agreement agreement = a->n == b->n ? AGREE : UNSURE;
  for (size_t i = 0; i < a->n && i < b->n; i++) {
    bool is_equal = true, a_is_zero = true, b_is_zero = true;
    for (size_t d = 0; d < n_dimensions; d++) {
      is_equal = is_equal && a->adds[i][d] == b->adds[i][d];
      a_is_zero = a_is_zero && a->adds[i][d] == 0;
      b_is_zero = b_is_zero && b->adds[i][d] == 0;
    }
    if (is_equal)
      continue;
    if (!a_is_zero && !b_is_zero)
      return DIFFER;
    agreement = UNSURE;
  }
  return agreement;
}

static bool is_operand_of(const struct ttgir_layouts *layouts, struct span operand,
                          struct span of) {
  struct span kind = ttgir_layout_kind(layouts, operand);
  if (!kind.text || !span_is(kind, "dot_op"))
    return false;
  struct span parent = ttgir_layout_member(ttgir_layout_resolve(layouts, operand), "parent");
  return parent.text &&
         span_equal(ttgir_layout_resolve(layouts, parent), ttgir_layout_resolve(layouts, of));
}

enum ttgir_conversion ttgir_conversion_decide(const struct ttgir_layouts *layouts,
                                              const struct ttgir_tensor *from,
                                              const struct ttgir_tensor *to, int64_t num_warps,
                                              const char **ret_why) {
  struct span from_kind = ttgir_layout_kind(layouts, from->encoding),
              to_kind = ttgir_layout_kind(layouts, to->encoding);
  struct distribution a, b;
  *ret_why = "the text does not tell how these layouts are laid over threads";
  if (!from_kind.text || !to_kind.text)
    return TTGIR_MAY;
  if (span_equal(ttgir_layout_resolve(layouts, from->encoding),
                 ttgir_layout_resolve(layouts, to->encoding))) {
    *ret_why = "both layouts are the same";
    return TTGIR_REGISTERS;
  }
  bool from_lds = ttgir_layout_is_shared(layouts, from->encoding),
       to_lds = ttgir_layout_is_shared(layouts, to->encoding);
  if (from_lds != to_lds) {
    *ret_why = to_lds ? "it is put into LDS" : "it is read from LDS";
    return to_lds ? TTGIR_TO_LDS : TTGIR_FROM_LDS;
  }
  if (distribution_of(layouts, from->encoding, from->shape, from->n_dimensions, 0, &a) &&
      distribution_of(layouts, to->encoding, to->shape, to->n_dimensions, 0, &b) &&
      a.n_dimensions == b.n_dimensions) {
    enum agreement warps = bits_compare(&a.warp, &b.warp, a.n_dimensions),
                   lanes = bits_compare(&a.lane, &b.lane, a.n_dimensions);
    if (warps == DIFFER) {
      *ret_why = "elements change from warp to warp";
      return TTGIR_LDS;
    }
    *ret_why = warps == AGREE && lanes == AGREE ? "every thread keeps its elements"
               : warps == AGREE && lanes == DIFFER
                   ? "elements change lanes inside a warp: by shuffles, or through LDS"
                   : "several threads hold the same elements";
    return warps == AGREE && lanes == AGREE ? TTGIR_REGISTERS : TTGIR_MAY;
  }
  if (is_operand_of(layouts, to->encoding, from->encoding)) {
    *ret_why = "the result of one dot becomes the operand of another: in registers where the "
               "instructions' layouts fit";
    return TTGIR_MAY;
  }
  if (!span_equal(from_kind, to_kind) && !span_is(from_kind, "slice") &&
      !span_is(to_kind, "slice") && num_warps != 1) {
    *ret_why = "the layouts are of different kinds";
    return TTGIR_LDS;
  }
  return TTGIR_MAY;
}
