/* The review of a TTGIR module, or of a part of one, line by line.
 *
 * Memory: see ttgir_review.h. Threads: any. */
#include "inspect/ttgir_review.h"

#include <inttypes.h>

#include "common/base/names.h"

#define NESTING_MAX 256
/* of an alias, which many lines name: what is longer tells nothing */
#define LAYOUT_BYTES_MAX 4096

/* in LDS, that are known by name at one place; more count as if they had none */
#define LDS_VALUES_MAX 256

/* How often a kernel's tensors pass through LDS: what is written there and read from there again is
 * one trip.
 *
 * A read belongs to the write whose value it names. Where the text does not tell (a buffer that a
 * loop passes on to its next iteration, a transposed view), writes and reads of the same place,
 * inside or outside of loops, are taken for the two halves of as many trips as there are of the
 * more frequent half. */
struct trips {
  size_t n;
  struct lds_value {
    struct span name; /* "%12", borrowed from the text */
    int nesting;      /* of the braces that it is known in */
    bool is_in_loop, is_read;
  } values[LDS_VALUES_MAX];
  int64_t whole[2], writes[2], reads[2]; /* [0]: outside of loops, [1]: in loops */
};

static void value_end(struct trips *trips, const struct lds_value *value) {
  (value->is_read ? trips->whole : trips->writes)[value->is_in_loop]++;
}

static void trips_write(struct trips *trips, struct span name, int nesting, bool is_in_loop) {
  struct lds_value value = {name, nesting, is_in_loop, false};
  if (name.length && trips->n < LDS_VALUES_MAX)
    trips->values[trips->n++] = value;
  else
    value_end(trips, &value);
}

static void trips_read(struct trips *trips, struct span name, bool is_in_loop) {
  for (size_t i = trips->n; name.length && i > 0; i--) {
    struct lds_value *value = &trips->values[i - 1];
    if (!span_equal(value->name, name))
      continue;
    value->is_read = true;
    return;
  }
  trips->reads[is_in_loop]++;
}

/* The names of what is nested deeper than this are no longer known. */
static void trips_leave(struct trips *trips, int nesting) {
  while (trips->n && trips->values[trips->n - 1].nesting > nesting)
    value_end(trips, &trips->values[--trips->n]);
}

/* At the end of the text. */
static void trips_count(struct trips *trips, int64_t *ret_outside, int64_t *ret_in_loops) {
  int64_t counts[2];
  trips_leave(trips, -1);
  for (int i = 0; i < 2; i++)
    counts[i] =
        trips->whole[i] + (trips->writes[i] > trips->reads[i] ? trips->writes[i] : trips->reads[i]);
  *ret_outside = counts[0];
  *ret_in_loops = counts[1];
}

/* What is read of one line. */
struct line {
  struct span text;      /* without " loc(…)" and spaces at either end */
  struct span operation; /* without its dialect: "convert_layout"; {NULL, 0}: none */
  struct span result;    /* "%12"; {NULL, 0}: none */
  size_t number;
};

struct walk {
  struct ttgir_review *review;
  struct ttgir_layouts layouts;
  bool loops[NESTING_MAX]; /* the braces around: whether each is a loop's body */
  int nesting, loop_depth;
  bool is_part; /* no module: braces may be missing */
  struct trips trips;
  int64_t dot_results; /* results of matrix instructions that pass through LDS outside of loops */
  int64_t narrow_loads, loads_of_known_width, narrowest; /* in loops */
  int64_t filled_allocs;                                 /* local_alloc with a value, in loops */
};

static bool span_has(struct span span, const char *text) {
  return memmem(span.text, span.length, text, strlen(text)) != NULL;
}

static bool span_is(struct span span, const char *text) {
  return span.length == strlen(text) && memcmp(span.text, text, span.length) == 0;
}

static char *span_copy(struct span span) { return name_plain(span.text, span.length); }

/* Behind the first `text` in it; {NULL, 0} when it is not there. */
static struct span span_behind(struct span span, const char *text) {
  const char *found = memmem(span.text, span.length, text, strlen(text));
  if (!found)
    return (struct span){0};
  found += strlen(text);
  return (struct span){found, span.length - (size_t)(found - span.text)};
}

static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r'; }

static struct span span_trim(struct span span) {
  while (span.length && is_space(span.text[0]))
    span.text++, span.length--;
  while (span.length && is_space(span.text[span.length - 1]))
    span.length--;
  return span;
}

/* "%x = ttg.convert_layout %y …", `"tt.reduce"(%x)`, "tt.return": the operation's name behind its
 * dialect. */
static struct span operation_of(struct span text) {
  if (text.length && text.text[0] == '%') {
    text = span_behind(text, " = ");
    if (!text.text)
      return text;
  }
  if (text.length && text.text[0] == '"')
    text.text++, text.length--;
  size_t length = 0, begin = 0;
  while (length < text.length && (text.text[length] == '_' || text.text[length] == '.' ||
                                  (text.text[length] >= 'a' && text.text[length] <= 'z') ||
                                  (text.text[length] >= '0' && text.text[length] <= '9'))) {
    if (text.text[length++] == '.')
      begin = length;
  }
  return begin ? (struct span){text.text + begin, length - begin} : (struct span){0};
}

/* "%12": the value's name that a text begins with. */
static struct span name_at(struct span text) {
  size_t length = 0;
  while (length < text.length &&
         (text.text[length] == '%' || text.text[length] == '_' || text.text[length] == '#' ||
          (text.text[length] >= '0' && text.text[length] <= '9') ||
          (text.text[length] >= 'a' && text.text[length] <= 'z') ||
          (text.text[length] >= 'A' && text.text[length] <= 'Z')))
    length++;
  return text.length && text.text[0] == '%' ? (struct span){text.text, length} : (struct span){0};
}

/* The `i`th value, from 0, that an operation is given; {NULL, 0}: none. */
static struct span operand_of(struct line line, size_t i) {
  const char *end = line.text.text + line.text.length,
             *at = line.operation.text + line.operation.length;
  for (; at < end && *at != ':'; at++) {
    if (*at == '%' && i-- == 0)
      return name_at((struct span){at, (size_t)(end - at)});
  }
  return (struct span){0};
}

static struct line line_of(const char *text, size_t length, size_t number) {
  struct line line = {.text = span_trim((struct span){text, length}), .number = number};
  /* What the line says ends where its place in the source begins; a place in the middle (an
   * argument's) stays. */
  const char *location = NULL;
  for (size_t i = 0; i + 5 <= line.text.length; i++) {
    if (memcmp(line.text.text + i, " loc(", 5) == 0)
      location = line.text.text + i;
  }
  if (location && line.text.text[line.text.length - 1] == ')')
    line.text = span_trim((struct span){line.text.text, (size_t)(location - line.text.text)});
  line.operation = operation_of(line.text);
  if (line.operation.text && line.text.text[0] == '%')
    line.result = name_at(line.text);
  return line;
}

/* "ttg.num-warps" = 4 : i32; or the same without quotes and of the older dialect. */
static void attribute_read(struct span text, const char *name, int64_t *ret) {
  cleanup_free char *quoted = xasprintf(".%s\" = ", name), *plain = xasprintf(".%s = ", name);
  struct span value = span_behind(text, quoted);
  if (!value.text)
    value = span_behind(text, plain);
  int64_t number = 0;
  size_t digits = 0;
  while (digits < value.length && digits < 15 && value.text[digits] >= '0' &&
         value.text[digits] <= '9')
    number = number * 10 + (value.text[digits++] - '0');
  if (digits)
    *ret = number;
}

static void module_read(struct ttgir_review *review, struct span text) {
  attribute_read(text, "num-warps", &review->num_warps);
  attribute_read(text, "num-ctas", &review->num_ctas);
  attribute_read(text, "threads-per-warp", &review->threads_per_warp);
  attribute_read(text, "shared", &review->shared);
  struct span target = span_behind(text, "target = \"");
  const char *end = target.text ? memchr(target.text, '"', target.length) : NULL;
  if (end && !review->target)
    review->target = span_copy((struct span){target.text, (size_t)(end - target.text)});
}

/* "#blocked = #ttg.blocked<{…}>"; places in the source ("#loc = loc(…)") are no layouts. */
static void alias_read(struct walk *walk, struct line line) {
  struct span text = span_behind(line.text, " = ");
  if (!text.text || !text.length || text.length > LAYOUT_BYTES_MAX || text.text[0] != '#' ||
      walk->layouts.n == TTGIR_LAYOUTS_MAX)
    return;
  struct span name = {line.text.text, (size_t)(text.text - 3 - line.text.text)};
  walk->layouts.names[walk->layouts.n] = name;
  walk->layouts.texts[walk->layouts.n++] = text;
  struct span kind = ttgir_layout_kind(&walk->layouts, name);
  if (!kind.text)
    return;
  struct span shown = {kind.text, text.length - (size_t)(kind.text - text.text)};
  struct ttgir_review *review = walk->review;
  review->layouts[review->n_layouts++] = (struct ttgir_layout){span_copy(name), span_copy(shown)};
}

/* A brace closes at a line's begin and opens at its end. */
static bool braces_close(struct walk *walk, struct line line, struct error *error) {
  if (!line.text.length || line.text.text[0] != '}')
    return true;
  if (walk->nesting == 0)
    return walk->is_part ||
           error_set(error, "line %zu of the module closes a brace that was not opened",
                     line.number);
  walk->loop_depth -= walk->loops[--walk->nesting];
  trips_leave(&walk->trips, walk->nesting);
  return true;
}

static bool braces_open(struct walk *walk, struct line line, struct error *error) {
  if (!line.text.length || line.text.text[line.text.length - 1] != '{')
    return true;
  if (walk->nesting == NESTING_MAX)
    return error_set(error, "line %zu of the module nests deeper than %d", line.number,
                     NESTING_MAX);
  /* `} do {`: the second part of a while loop. */
  bool is_loop = span_has(line.text, "scf.for ") || span_has(line.text, "scf.while ") ||
                 span_is(line.text, "} do {");
  walk->loops[walk->nesting++] = is_loop;
  walk->loop_depth += is_loop;
  return true;
}

static void convert_read(struct walk *walk, struct line line) {
  struct ttgir_tensor from, to;
  const char *end;
  if (!ttgir_tensor_parse(line.text, &from, &end))
    return;
  struct span rest = {end, line.text.length - (size_t)(end - line.text.text)};
  if (!ttgir_tensor_parse(rest, &to, &end) || !from.encoding.text || !to.encoding.text)
    return;
  const char *why;
  struct ttgir_review *review = walk->review;
  enum ttgir_conversion conversion =
      ttgir_conversion_decide(&walk->layouts, &from, &to, review->num_warps, &why);
  review->all.conversions[conversion]++;
  review->in_loops.conversions[conversion] += walk->loop_depth > 0;
  bool leaves_registers = conversion == TTGIR_LDS || conversion == TTGIR_TO_LDS;
  walk->dot_results +=
      leaves_registers && !walk->loop_depth && ttgir_layout_is_mfma(&walk->layouts, from.encoding);
  if (conversion == TTGIR_TO_LDS)
    trips_write(&walk->trips, line.result, walk->nesting, walk->loop_depth > 0);
  else if (conversion == TTGIR_FROM_LDS)
    trips_read(&walk->trips, operand_of(line, 0), walk->loop_depth > 0);
  if (review->n_converts < TTGIR_CONVERSIONS_MAX)
    review->converts[review->n_converts++] = (struct ttgir_convert){
        line.number, walk->loop_depth, conversion, span_copy(from.encoding), span_copy(to.encoding),
        why};
}

/* "amd_mfma version 3, 16x16x16": how the result's layout says the dot is done. */
static char *dot_kind(const struct walk *walk, struct span encoding) {
  struct span kind = ttgir_layout_kind(&walk->layouts, encoding),
              layout = ttgir_layout_resolve(&walk->layouts, encoding);
  if (!kind.text)
    return xstrdup("not told");
  char *text = span_copy(kind);
  struct span version = ttgir_layout_member(layout, "version");
  if (!version.text)
    version = ttgir_layout_member(layout, "versionMajor");
  int64_t shape[TTGIR_DIMENSIONS_MAX];
  size_t n = 0;
  if (version.text && version.length < 20) {
    char *longer = xasprintf("%s version %.*s", text, (int)version.length, version.text);
    free(text);
    text = longer;
  }
  if (ttgir_integers(ttgir_layout_member(layout, "instrShape"), shape, TTGIR_DIMENSIONS_MAX, &n)) {
    for (size_t i = 0; i < n; i++) {
      char *longer = xasprintf("%s%s%" PRId64, text, i ? "x" : ", ", shape[i]);
      free(text);
      text = longer;
    }
  }
  return text;
}

static void dot_read(struct walk *walk, struct line line) {
  /* The result's type is the last one. */
  struct ttgir_tensor tensor = {0};
  const char *end = line.text.text;
  while (ttgir_tensor_parse((struct span){end, line.text.length - (size_t)(end - line.text.text)},
                            &tensor, &end))
    continue;
  cleanup_free char *kind = dot_kind(walk, tensor.encoding);
  struct ttgir_review *review = walk->review;
  struct ttgir_dot *dot = NULL;
  for (size_t i = 0; i < review->n_dots && !dot; i++)
    dot = string_equal(review->dots[i].kind, kind) ? &review->dots[i] : NULL;
  if (!dot && review->n_dots < TTGIR_DOTS_MAX) {
    dot = &review->dots[review->n_dots++];
    dot->kind = TAKE(kind);
  }
  if (dot) {
    dot->count++;
    dot->count_in_loops += walk->loop_depth > 0;
  }
}

/* How many bytes next to each other a thread loads at once, in loops. */
static void load_read(struct walk *walk, struct line line) {
  struct ttgir_tensor tensor;
  const char *end;
  if (!walk->loop_depth || !ttgir_tensor_parse(line.text, &tensor, &end))
    return;
  int64_t bytes = ttgir_contiguous_bytes(&walk->layouts, &tensor);
  if (!bytes)
    return;
  walk->loads_of_known_width++;
  if (bytes < 16) {
    walk->narrow_loads++;
    walk->narrowest = walk->narrowest && walk->narrowest < bytes ? walk->narrowest : bytes;
  }
}

static void operation_read(struct walk *walk, struct line line) {
  struct ttgir_review *review = walk->review;
#define X(member, name, heading)                                                                   \
  if (span_is(line.operation, name)) {                                                             \
    review->all.member++;                                                                          \
    review->in_loops.member += walk->loop_depth > 0;                                               \
  }
  TTGIR_COUNTS(X)
#undef X
  bool is_in_loop = walk->loop_depth > 0;
  if (span_is(line.operation, "local_load"))
    trips_read(&walk->trips, operand_of(line, 0), is_in_loop);
  else if (span_is(line.operation, "local_store"))
    trips_write(&walk->trips, operand_of(line, 1), walk->nesting, is_in_loop);
  else if (span_is(line.operation, "local_alloc") && operand_of(line, 0).text)
    trips_write(&walk->trips, line.result, walk->nesting, is_in_loop);
  else if (span_is(line.operation, "async_copy_global_to_local") ||
           span_is(line.operation, "buffer_load_to_local"))
    trips_write(&walk->trips, (struct span){0}, walk->nesting, is_in_loop);

  if (span_is(line.operation, "convert_layout"))
    convert_read(walk, line);
  else if (span_is(line.operation, "dot") || span_is(line.operation, "dot_scaled") ||
           span_is(line.operation, "warp_group_dot"))
    dot_read(walk, line);
  else if (span_is(line.operation, "load") || span_is(line.operation, "buffer_load"))
    load_read(walk, line);
  else if (span_is(line.operation, "local_alloc") && walk->loop_depth &&
           span_has(line.text, "local_alloc %"))
    walk->filled_allocs++;
}

static bool is_module(struct span line) {
  return span_has(line, "module attributes {") || span_is(line, "module {");
}

/* An operation of Triton's dialects over a tensor with a layout. */
static bool is_of_dialect(struct line line) {
  static const char *const dialects[] = {"tt.", "ttg.", "triton_gpu.", "ttng.", "amdg.", "amdgpu."};
  if (!line.operation.text || !span_has(line.text, "tensor<") || !span_has(line.text, ", #"))
    return false;
  for (size_t i = 0; i < ARRAY_LENGTH(dialects); i++) {
    size_t length = strlen(dialects[i]);
    if ((size_t)(line.operation.text - line.text.text) < length)
      continue;
    const char *begin = line.operation.text - length;
    if (memcmp(begin, dialects[i], length) == 0 &&
        (begin == line.text.text || begin[-1] == ' ' || begin[-1] == '"'))
      return true;
  }
  return false;
}

/* The next line of what is left at *at. */
static struct line line_next(const char **at, const char *end, size_t number) {
  const char *begin = *at, *newline = memchr(begin, '\n', (size_t)(end - begin));
  *at = newline ? newline + 1 : end;
  return line_of(begin, (size_t)((newline ? newline : end) - begin), number);
}

/* Whether there is a module, and whether there is an operation of the dialect. */
static void text_scan(const char *text, size_t size, bool *ret_has_module,
                      bool *ret_has_operation) {
  const char *at = text, *end = text + size;
  *ret_has_module = *ret_has_operation = false;
  while (at < end && !*ret_has_module) {
    struct line line = line_next(&at, end, 0);
    *ret_has_module = is_module(line.text);
    *ret_has_operation = *ret_has_operation || is_of_dialect(line);
  }
}

bool ttgir_is(const char *text, size_t size) {
  bool has_module, has_operation;
  text_scan(text, size < TTGIR_SIZE_MAX ? size : TTGIR_SIZE_MAX, &has_module, &has_operation);
  return has_module || has_operation;
}

static bool text_walk(struct walk *walk, const char *text, size_t size, struct error *error) {
  size_t number = 0;
  for (const char *at = text; at < text + size;) {
    struct line line = line_next(&at, text + size, ++number);
    if (is_module(line.text))
      module_read(walk->review, line.text);
    if (line.text.length && line.text.text[0] == '#')
      alias_read(walk, line);
    if (!braces_close(walk, line, error))
      return false;
    if (line.operation.text)
      operation_read(walk, line);
    if (!braces_open(walk, line, error))
      return false;
  }
  return walk->nesting == 0 || walk->is_part ||
         error_set(error, "the module ends inside %d braces: it is cut off", walk->nesting);
}

static void find_conversions(const struct walk *walk) {
  struct ttgir_review *review = walk->review;
  struct review_findings *findings = &review->findings;
  const int64_t *in_loops = review->in_loops.conversions, *all = review->all.conversions;
  if (in_loops[TTGIR_LDS])
    review_find(
        findings, REVIEW_WARNING, SOURCE_AMD_IR,
        "%" PRId64
        " conversions of layouts in loops pass through LDS: each writes a tensor there, waits and "
        "reads it again",
        in_loops[TTGIR_LDS]);
  if (in_loops[TTGIR_MAY])
    review_find(findings, REVIEW_HINT, SOURCE_AMD_IR,
                "%" PRId64 " conversions of layouts in loops may pass through LDS",
                in_loops[TTGIR_MAY]);
  int64_t outside = all[TTGIR_LDS] - in_loops[TTGIR_LDS];
  if (outside)
    review_find(findings, REVIEW_HINT, SOURCE_AMD_GUIDE,
                "%" PRId64 " conversions of layouts outside of loops pass through LDS", outside);
  if (walk->dot_results)
    review_find(
        findings, REVIEW_HINT, SOURCE_AMD_GUIDE,
        "%" PRId64
        " results of matrix instructions pass through LDS outside of loops; one before the last "
        "store is what OPTIMIZE_EPILOGUE takes away",
        walk->dot_results);
}

static void find_dots(struct ttgir_review *review) {
  for (size_t i = 0; i < review->n_dots; i++) {
    const struct ttgir_dot *dot = &review->dots[i];
    if (string_equal(dot->kind, "blocked"))
      review_find(
          &review->findings, REVIEW_WARNING, SOURCE_AMD_IR,
          "%" PRId64
          " dots are done by plain multiply-adds, not by matrix instructions: their types or their "
          "shape (at least 16 in each dimension) have none",
          dot->count);
    else if (string_starts(dot->kind, "amd_mfma") && strstr(dot->kind, ", 32x32"))
      review_find(&review->findings, REVIEW_HINT, SOURCE_AMD_GUIDE,
                  "dots use 32x32 instructions (%s); for a GEMM matrix_instr_nonkdim 16 is faster "
                  "on MI300X, for two "
                  "fused ones 32 may be",
                  dot->kind);
  }
}

static void find_all(const struct walk *walk) {
  struct ttgir_review *review = walk->review;
  find_conversions(walk);
  find_dots(review);
  if (walk->narrow_loads)
    review_find(&review->findings, REVIEW_WARNING, SOURCE_AMD_IR,
                "%" PRId64 " of %" PRId64
                " global loads in loops whose layout is told give a thread less than 16 bytes "
                "next to each other (the least: %" PRId64
                "): the compiler does not know of contiguity or alignment, or "
                "the tile is too small for its threads",
                walk->narrow_loads, walk->loads_of_known_width, walk->narrowest);
  if (review->in_loops.transposes)
    review_find(&review->findings, REVIEW_HINT, SOURCE_AMD_IR,
                "%" PRId64
                " transposes in loops: data lies in memory in another order than it is used in",
                review->in_loops.transposes);
  if (walk->filled_allocs)
    review_find(
        &review->findings, REVIEW_HINT, SOURCE_AMD_IR,
        "%" PRId64
        " tensors are put into LDS and read in the same iteration: this loop is not pipelined "
        "(num_stages)",
        walk->filled_allocs);
}

bool ttgir_review_make(const char *text, size_t size, struct ttgir_review **ret_review,
                       struct error *error) {
  if (size > TTGIR_SIZE_MAX)
    return error_set(error, "the module has %zu bytes; at most %zu are read", size, TTGIR_SIZE_MAX);
  cleanup_ttgir_review struct ttgir_review *review = xcalloc(1, sizeof *review);
  review->num_warps = review->num_ctas = review->threads_per_warp = review->shared = TTGIR_UNKNOWN;
  review->layouts = xcalloc(TTGIR_LAYOUTS_MAX, sizeof *review->layouts);
  review->converts = xcalloc(TTGIR_CONVERSIONS_MAX, sizeof *review->converts);
  review->dots = xcalloc(TTGIR_DOTS_MAX, sizeof *review->dots);
  cleanup_free struct walk *walk = xcalloc(1, sizeof *walk);
  walk->review = review;
  bool has_module, has_operation;
  text_scan(text, size, &has_module, &has_operation);
  walk->is_part = !has_module && has_operation;
  if (!text_walk(walk, text, size, error))
    return false;
  if (!walk->is_part && (!has_module || (review->num_warps == TTGIR_UNKNOWN && !review->n_layouts)))
    return error_set(
        error, "the text is no module of Triton's GPU dialect (what asm[\"ttgir\"] of a compiled "
               "kernel is), "
               "nor lines of one (operations as ttg.convert_layout, over tensors with layouts)");
  int64_t outside;
  trips_count(&walk->trips, &outside, &review->in_loops.lds_trips);
  review->in_loops.lds_trips += review->in_loops.conversions[TTGIR_LDS];
  review->all.lds_trips = review->in_loops.lds_trips + outside +
                          review->all.conversions[TTGIR_LDS] -
                          review->in_loops.conversions[TTGIR_LDS];
  find_all(walk);
  *ret_review = TAKE(review);
  return true;
}

void ttgir_review_free(struct ttgir_review *review) {
  for (size_t i = 0; i < review->n_layouts; i++) {
    free(review->layouts[i].name);
    free(review->layouts[i].text);
  }
  for (size_t i = 0; i < review->n_converts; i++) {
    free(review->converts[i].from);
    free(review->converts[i].to);
  }
  for (size_t i = 0; i < review->n_dots; i++)
    free(review->dots[i].kind);
  free(review->layouts);
  free(review->converts);
  free(review->dots);
  free(review->target);
  review_findings_release(&review->findings);
  free(review);
}

static json_t *counts_to_json(const struct ttgir_counts *counts) {
  json_t *json = json_object(), *conversions = json_object();
#define X(member, name, heading)                                                                   \
  ALWAYS(json_object_set_new(json, #member, json_integer(counts->member)) == 0);
  TTGIR_COUNTS(X)
#undef X
  ALWAYS(json_object_set_new(json, "lds_trips", json_integer(counts->lds_trips)) == 0);
  for (int i = 0; i < TTGIR_CONVERSIONS; i++)
    ALWAYS(json_object_set_new(conversions, ttgir_conversion_name((enum ttgir_conversion)i),
                               json_integer(counts->conversions[i])) == 0);
  ALWAYS(json_object_set_new(json, "conversions", conversions) == 0);
  return json;
}

static json_t *known(int64_t number) {
  return number == TTGIR_UNKNOWN ? json_null() : json_integer(number);
}

json_t *ttgir_review_to_json(const struct ttgir_review *review) {
  json_t *layouts = json_object(), *converts = json_array(), *dots = json_array();
  for (size_t i = 0; i < review->n_layouts; i++)
    ALWAYS(json_object_set_new(layouts, review->layouts[i].name,
                               json_string(review->layouts[i].text)) == 0);
  for (size_t i = 0; i < review->n_converts; i++) {
    const struct ttgir_convert *convert = &review->converts[i];
    json_t *item =
        json_pack("{s:I, s:i, s:s, s:s, s:s, s:s}", "line", (json_int_t)convert->line, "loop_depth",
                  convert->loop_depth, "from", convert->from, "to", convert->to, "passes",
                  ttgir_conversion_name(convert->conversion), "why", convert->why);
    ALWAYS(item && json_array_append_new(converts, item) == 0);
  }
  for (size_t i = 0; i < review->n_dots; i++) {
    const struct ttgir_dot *dot = &review->dots[i];
    json_t *item = json_pack("{s:s, s:I, s:I}", "kind", dot->kind, "count", (json_int_t)dot->count,
                             "in_loops", (json_int_t)dot->count_in_loops);
    ALWAYS(item && json_array_append_new(dots, item) == 0);
  }
  json_t *json = json_pack("{s:s?, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "target",
                           review->target, "num_warps", known(review->num_warps), "num_ctas",
                           known(review->num_ctas), "threads_per_warp",
                           known(review->threads_per_warp), "shared", known(review->shared),
                           "layouts", layouts, "all", counts_to_json(&review->all), "in_loops",
                           counts_to_json(&review->in_loops), "conversions", converts, "dots", dots,
                           "findings", review_findings_to_json(&review->findings));
  ALWAYS(json != NULL);
  return json;
}

static void attribute_print(const char *name, int64_t number, FILE *out) {
  if (number == TTGIR_UNKNOWN)
    fprintf(out, "  %-16s not stated\n", name);
  else
    fprintf(out, "  %-16s %" PRId64 "\n", name, number);
}

void ttgir_review_print(const struct ttgir_review *review, FILE *out) {
  fprintf(out, "  %-16s %s\n", "target", review->target ? review->target : "not stated");
  attribute_print("num-warps", review->num_warps, out);
  attribute_print("num-ctas", review->num_ctas, out);
  attribute_print("threads-per-warp", review->threads_per_warp, out);
  attribute_print("shared", review->shared, out);
  for (size_t i = 0; i < review->n_layouts; i++)
    fprintf(out, "  %-16s %s\n", review->layouts[i].name, review->layouts[i].text);
  const int64_t *all = review->all.conversions, *in_loops = review->in_loops.conversions;
  fprintf(out, "  trips through LDS (in loops): %" PRId64 " (%" PRId64 ")\n", review->all.lds_trips,
          review->in_loops.lds_trips);
  static const char *const headings[] = {"registers only", "may be", "through LDS", "to LDS",
                                         "from LDS"};
  static const enum ttgir_conversion order[] = {TTGIR_LDS, TTGIR_TO_LDS, TTGIR_FROM_LDS, TTGIR_MAY,
                                                TTGIR_REGISTERS};
  const char *separator = "  conversions of layouts (in loops): ";
  for (size_t i = 0; i < ARRAY_LENGTH(order); i++) {
    bool is_half = order[i] == TTGIR_TO_LDS || order[i] == TTGIR_FROM_LDS;
    if (is_half && !all[order[i]])
      continue;
    fprintf(out, "%s%s %" PRId64 " (%" PRId64 ")", separator, headings[order[i]], all[order[i]],
            in_loops[order[i]]);
    separator = ", ";
  }
  fputc('\n', out);
  for (size_t i = 0; i < review->n_converts; i++) {
    const struct ttgir_convert *convert = &review->converts[i];
    fprintf(out, "    line %zu%s: %s -> %s: %s, %s\n", convert->line,
            convert->loop_depth ? ", in a loop" : "", convert->from, convert->to,
            ttgir_conversion_name(convert->conversion), convert->why);
  }
  for (size_t i = 0; i < review->n_dots; i++)
    fprintf(out, "  dots             %s × %" PRId64 " (in loops %" PRId64 ")\n",
            review->dots[i].kind, review->dots[i].count, review->dots[i].count_in_loops);
  separator = "";
  fputs("  operations (in loops): ", out);
#define X(member, name, heading)                                                                   \
  if (review->all.member) {                                                                        \
    fprintf(out, "%s" heading " %" PRId64 " (%" PRId64 ")", separator, review->all.member,         \
            review->in_loops.member);                                                              \
    separator = ", ";                                                                              \
  }
  TTGIR_COUNTS(X)
#undef X
  fputc('\n', out);
  review_findings_print(&review->findings, out);
}
