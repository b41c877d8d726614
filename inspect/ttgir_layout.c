/* Layouts as bits of lane and warp: parsing and comparing them. The text is untrusted: every number
 * is bounded before it is used. */
#include "inspect/ttgir_layout.h"

#define BITS_MAX 12
#define NESTING_MAX 8

/* What each bit of the lane's and of the warp's number adds to an element's index, for each
 * dimension. */
enum level { LANE, WARP, LEVELS };
struct distribution {
  struct bits {
    size_t n;
    int64_t adds[BITS_MAX][TTGIR_DIMENSIONS_MAX];
  } bits[LEVELS];
};

bool span_equal(struct span a, struct span b) {
  return a.length == b.length && memcmp(a.text, b.text, a.length) == 0;
}

bool span_is(struct span span, const char *text) {
  return span.length == strlen(text) && memcmp(span.text, text, span.length) == 0;
}

size_t span_run(struct span span, const char *characters) {
  size_t n = 0;
  while (n < span.length && span.text[n] && strchr(characters, span.text[n]))
    n++;
  return n;
}

struct span span_after(struct span span, const char *text) {
  size_t length = strlen(text);
  const char *found = span.length ? memmem(span.text, span.length, text, length) : NULL;
  return found ? span_skip(span, (size_t)(found - span.text) + length) : (struct span){0};
}

bool span_take_number(struct span *span, int64_t *ret) {
  size_t digits = span_run(*span, DIGITS);
  *ret = 0;
  for (size_t i = 0; i < digits && i < 15; i++, *span = span_skip(*span, 1))
    *ret = *ret * 10 + (span->text[0] - '0');
  return digits > 0;
}

/* What follows the prefix where the text begins with it, else none. */
static struct span span_without(struct span span, const char *prefix) {
  size_t length = strlen(prefix);
  return span.length >= length && memcmp(span.text, prefix, length) == 0 ? span_skip(span, length)
                                                                         : (struct span){0};
}

/* A value up to a comma or closing bracket, without those inside the value's brackets. */
static struct span value_at(struct span text) {
  int depth = 0;
  for (size_t i = 0; i < text.length; i++) {
    char c = text.text[i];
    if (c && strchr("[{<(", c))
      depth++;
    else if ((c && strchr("]}>)", c) && depth-- == 0) || (c == ',' && depth == 0))
      return (struct span){text.text, i};
  }
  return text;
}

struct span ttgir_layout_kind(struct span text) {
  static const char *const dialects[] = {"#ttg.", "#triton_gpu.", "#ttng."};
  for (size_t i = 0; i < ARRAY_LENGTH(dialects); i++) {
    struct span kind = span_without(text, dialects[i]);
    if (kind.text)
      return (struct span){kind.text, span_run(kind, LOWER_CASE "_")};
  }

  static const char *const aliases[] = {"blocked", "linear", "shared", "mma", "mfma"};
  struct span name = span_without(text, "#"), number = name;
  name.length = span_run(name, LOWER_CASE "_");
  number = span_skip(number, name.length);
  for (size_t i = 0; span_run(number, DIGITS) == number.length && i < ARRAY_LENGTH(aliases); i++)
    if (span_is(name, aliases[i]))
      return name;

  return (struct span){0};
}

/* The text that an encoding is an alias of, or its own. */
static struct span layout_of(const struct ttgir_layouts *layouts, struct span encoding) {
  for (size_t i = 0; encoding.text && i < layouts->n; i++)
    if (span_equal(layouts->names[i], encoding))
      return layouts->texts[i];
  return encoding;
}

struct span ttgir_layout_member(struct span layout, const char *name) {
  size_t length = strlen(name);
  int depth = 0;
  for (size_t i = 0; i + length + 3 < layout.length; i++) {
    const char *at = layout.text + i;
    depth += (*at == '{') - (*at == '}');
    if (depth == 1 && i > 0 && (at[-1] == '{' || at[-1] == ' ') && memcmp(at, name, length) == 0 &&
        memcmp(at + length, " = ", 3) == 0)
      return value_at(span_skip(layout, i + length + 3));
  }
  return (struct span){0};
}

bool ttgir_integers(struct span list, int64_t *values, size_t max, size_t *ret_n) {
  size_t n = 0;
  if (list.length < 2 || list.text[0] != '[' || list.text[list.length - 1] != ']')
    return false;

  struct span rest = {list.text + 1, list.length - 2};
  while (rest.length) {
    if (n == max || !span_take_number(&rest, &values[n++]))
      return false;
    struct span next = span_without(rest, ", ");
    if (rest.length && !next.text)
      return false;
    rest = next;
  }

  *ret_n = n;
  return true;
}

bool ttgir_tensor_take(const struct ttgir_layouts *layouts, struct span *text,
                       struct ttgir_tensor *ret) {
  struct span rest = span_after(*text, "tensor<"), element = value_at(rest), shape = element;
  struct ttgir_tensor tensor = {0};
  int64_t extent, bits;
  if (!rest.text)
    return false;

  rest = span_skip(rest, shape.length);
  while (span_take_number(&shape, &extent) && shape.length && shape.text[0] == 'x') {
    if (tensor.n_dimensions == TTGIR_DIMENSIONS_MAX || extent < 1)
      return false;
    tensor.shape[tensor.n_dimensions++] = extent;
    element = shape = span_skip(shape, 1);
  }

  struct span pointed = span_without(element, "!tt.ptr<");
  element = pointed.text ? pointed : element;
  size_t letters = span_run(element, LOWER_CASE);
  element = span_skip(element, letters);
  if (letters && span_take_number(&element, &bits) && bits <= 128)
    tensor.element_bytes = bits < 8 ? 1 : bits / 8;

  if (rest.length && rest.text[0] == ',') {
    rest = span_skip(rest, 1);
    rest = span_skip(rest, rest.length && rest.text[0] == ' ');
    tensor.encoding = value_at(rest);
    tensor.layout = layout_of(layouts, tensor.encoding);
    tensor.kind = ttgir_layout_kind(tensor.layout);
    rest = span_skip(rest, tensor.encoding.length);
  }

  *ret = tensor;
  *text = rest;
  return true;
}

int64_t ttgir_contiguous_bytes(const struct ttgir_tensor *tensor) {
  int64_t each[TTGIR_DIMENSIONS_MAX], order[TTGIR_DIMENSIONS_MAX];
  size_t n = 0, n_order = 0;
  if (!span_is(tensor->kind, "blocked") ||
      !ttgir_integers(ttgir_layout_member(tensor->layout, "sizePerThread"), each,
                      TTGIR_DIMENSIONS_MAX, &n) ||
      !ttgir_integers(ttgir_layout_member(tensor->layout, "order"), order, TTGIR_DIMENSIONS_MAX,
                      &n_order) ||
      n_order != n || n != tensor->n_dimensions || !n || order[0] >= (int64_t)n)
    return 0;

  int64_t extent = tensor->shape[order[0]],
          elements = each[order[0]] < extent ? each[order[0]] : extent;
  return elements > 1 << 20 ? 0 : elements * tensor->element_bytes;
}

static bool blocked_distribution(struct span layout, const int64_t *shape, size_t n,
                                 struct distribution *ret) {
  static const char *const names[] = {"sizePerThread", "threadsPerWarp", "warpsPerCTA", "order"};
  int64_t lists[4][TTGIR_DIMENSIONS_MAX], *unit = lists[0], *order = lists[3];
  for (size_t i = 0; i < 4; i++) {
    size_t length = 0;
    if (!ttgir_integers(ttgir_layout_member(layout, names[i]), lists[i], TTGIR_DIMENSIONS_MAX,
                        &length) ||
        length != n)
      return false;
    for (size_t d = 0; d < n; d++)
      if (i < 3 ? lists[i][d] < 1 || lists[i][d] > 1 << 20 : lists[i][d] >= (int64_t)n)
        return false;
  }

  /* Counts are powers of two; the dimension that `order` names first varies fastest. */
  for (int level = LANE; level < LEVELS; level++) {
    struct bits *bits = &ret->bits[level];
    const int64_t *counts = lists[1 + level];
    for (size_t i = 0; i < n; i++) {
      int64_t d = order[i];
      for (int64_t step = 1; step < counts[d]; step *= 2) {
        if (bits->n == BITS_MAX)
          return false;
        bits->adds[bits->n++][d] = unit[d] * step < shape[d] ? unit[d] * step : 0;
      }
    }
    for (size_t d = 0; d < n; d++)
      unit[d] *= counts[d];
  }

  return true;
}

/* lane = [[0, 1], [0, 2]], warp = … */
static bool linear_distribution(struct span layout, const int64_t *shape, size_t n,
                                struct distribution *ret) {
  static const char *const names[LEVELS] = {"lane", "warp"};
  for (int level = LANE; level < LEVELS; level++) {
    struct bits *bits = &ret->bits[level];
    struct span list = ttgir_layout_member(layout, names[level]);
    if (list.length < 2)
      return false;
    list = span_skip(list, 1);
    while (list.length && list.text[0] == '[') {
      struct span basis = value_at(list);
      int64_t *adds = bits->adds[bits->n];
      size_t n_values = 0;
      if (bits->n++ == BITS_MAX || !ttgir_integers(basis, adds, TTGIR_DIMENSIONS_MAX, &n_values) ||
          n_values != n)
        return false;

      for (size_t d = 0; d < n; d++)
        adds[d] = adds[d] < shape[d] ? adds[d] : 0;
      list = span_skip(list, basis.length);
      list = span_skip(list, list.length > 0);
      list = span_skip(list, list.length && list.text[0] == ' ');
    }
  }

  return true;
}

/* Fills *ret, which is zero; false when the layout's text does not suffice. */
static bool distribution_of(const struct ttgir_layouts *layouts, struct span layout,
                            const int64_t *shape, size_t n, int nesting, struct distribution *ret) {
  struct span kind = ttgir_layout_kind(layout);
  if (nesting > NESTING_MAX)
    return false;
  if (span_is(kind, "blocked"))
    return blocked_distribution(layout, shape, n, ret);
  if (span_is(kind, "linear"))
    return linear_distribution(layout, shape, n, ret);
  if (!span_is(kind, "slice") || n + 1 > TTGIR_DIMENSIONS_MAX)
    return false;

  /* A slice is its parent over a shape with one more dimension, of extent 1. */
  struct span dimension_text = ttgir_layout_member(layout, "dim"),
              parent = layout_of(layouts, ttgir_layout_member(layout, "parent"));
  int64_t dimension, wider[TTGIR_DIMENSIONS_MAX];
  if (!span_take_number(&dimension_text, &dimension) || dimension > (int64_t)n)
    return false;

  for (size_t d = 0; d <= n; d++)
    wider[d] = d == (size_t)dimension ? 1 : shape[d - (d > (size_t)dimension)];
  if (!distribution_of(layouts, parent, wider, n + 1, nesting + 1, ret))
    return false;

  for (int level = LANE; level < LEVELS; level++) {
    for (size_t i = 0; i < ret->bits[level].n; i++) {
      int64_t *adds = ret->bits[level].adds[i];
      for (size_t d = (size_t)dimension; d < n; d++)
        adds[d] = adds[d + 1];
      adds[n] = 0;
    }
  }

  return true;
}

const char *ttgir_conversion_name(enum ttgir_conversion conversion) {
  static const char *const names[] = {"registers", "may", "lds", "to_lds", "from_lds"};
  return names[conversion];
}

enum agreement { AGREE, DIFFER, UNSURE /* elements that several threads hold */ };

static enum agreement bits_compare(const struct bits *a, const struct bits *b) {
  static const int64_t zero[TTGIR_DIMENSIONS_MAX];
  enum agreement agreement = a->n == b->n ? AGREE : UNSURE;
  for (size_t i = 0; i < a->n && i < b->n; i++) {
    const int64_t *x = a->adds[i], *y = b->adds[i];
    if (memcmp(x, y, sizeof zero) == 0)
      continue;
    if (memcmp(x, zero, sizeof zero) != 0 && memcmp(y, zero, sizeof zero) != 0)
      return DIFFER;
    agreement = UNSURE;
  }
  return agreement;
}

enum ttgir_conversion ttgir_conversion_decide(const struct ttgir_layouts *layouts,
                                              const struct ttgir_tensor *from,
                                              const struct ttgir_tensor *to, int64_t num_warps,
                                              const char **ret_why) {
  *ret_why = "the text does not show how these layouts are distributed over threads";
  if (!from->kind.text || !to->kind.text)
    return TTGIR_MAY;
  if (span_equal(from->layout, to->layout)) {
    *ret_why = "both layouts are the same";
    return TTGIR_REGISTERS;
  }
  bool from_lds = span_after(from->kind, "shared").text != NULL,
       to_lds = span_after(to->kind, "shared").text != NULL;
  if (from_lds != to_lds) {
    *ret_why = to_lds ? "it is put into LDS" : "it is read from LDS";
    return to_lds ? TTGIR_TO_LDS : TTGIR_FROM_LDS;
  }

  struct distribution a = {0}, b = {0};
  if (from->n_dimensions == to->n_dimensions &&
      distribution_of(layouts, from->layout, from->shape, from->n_dimensions, 0, &a) &&
      distribution_of(layouts, to->layout, to->shape, to->n_dimensions, 0, &b)) {
    enum agreement warps = bits_compare(&a.bits[WARP], &b.bits[WARP]),
                   lanes = bits_compare(&a.bits[LANE], &b.bits[LANE]);
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

  struct span parent = ttgir_layout_member(to->layout, "parent");
  if (span_is(to->kind, "dot_op") && parent.text &&
      span_equal(layout_of(layouts, parent), from->layout)) {
    *ret_why = "the result of one dot becomes the operand of another: in registers where the "
               "instructions' layouts fit";
    return TTGIR_MAY;
  }
  if (!span_equal(from->kind, to->kind) && !span_is(from->kind, "slice") &&
      !span_is(to->kind, "slice") && num_warps != 1) {
    *ret_why = "the layouts are of different kinds";
    return TTGIR_LDS;
  }

  return TTGIR_MAY;
}
