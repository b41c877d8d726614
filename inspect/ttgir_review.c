/* The review of a TTGIR module, or of a part of one, line by line. */
#include "inspect/ttgir_review.h"

#include "inspect/ttgir_lines.h"

#include <inttypes.h>

#include "common/base/error.h"

#define NESTING_MAX 256
#define LAYOUT_BYTES_MAX 4096 /* of an alias, which many lines name; a longer one is left out */
#define LDS_VALUES_MAX 256    /* whose names are known at one place; others count as unnamed */

/* How often a kernel's tensors pass through LDS: a write and the reads of what it wrote are one
 * trip.
 *
 * A read belongs to the write whose value it names. Where the text does not show it (a buffer that
 * a loop passes on to its next iteration, a transposed view), writes and reads of the same place,
 * inside or outside of loops, are taken for the two halves of as many trips as there are of the
 * more frequent half. */
struct trips {
  size_t n;
  struct lds_value {
    struct span name; /* "%12", borrowed from the text */
    int nesting;      /* of the braces in which the name is known */
    bool is_in_loop, is_read;
  } values[LDS_VALUES_MAX];
  int64_t whole[2], writes[2], reads[2]; /* [0]: outside of loops, [1]: in loops */
};

/* One line of the text. */
struct line {
  struct span text;      /* without " loc(…)" and spaces at either end */
  struct span operation; /* without its dialect: "convert_layout" */
  struct span result;    /* "%12" */
  size_t number;
};

struct walk {
  struct ttgir_review *review;
  struct ttgir_layouts layouts;
  bool loops[NESTING_MAX]; /* of each open brace: whether it is a loop's */
  int nesting, loop_depth;
  bool is_part; /* of a module: braces may be missing */
  struct trips trips;
  int64_t dot_results; /* results of matrix instructions that pass through LDS outside of loops */
  int64_t narrow_loads, loads_of_known_width, narrowest; /* in loops */
  int64_t filled_allocs;                                 /* local_alloc with a value, in loops */
};

/* An unnamed value counts at once, a named one at the end of its scope. */
static void lds_write(struct walk *walk, struct span name) {
  struct trips *trips = &walk->trips;
  if (name.length && trips->n < LDS_VALUES_MAX)
    trips->values[trips->n++] =
        (struct lds_value){name, walk->nesting, walk->loop_depth > 0, false};
  else
    trips->writes[walk->loop_depth > 0]++;
}

static void lds_read(struct walk *walk, struct span name) {
  struct trips *trips = &walk->trips;
  for (size_t i = trips->n; name.length && i-- > 0;) {
    if (span_equal(trips->values[i].name, name)) {
      trips->values[i].is_read = true;
      return;
    }
  }
  trips->reads[walk->loop_depth > 0]++;
}

/* Ends the scopes that are nested deeper than `nesting`. */
static void trips_leave(struct trips *trips, int nesting) {
  while (trips->n && trips->values[trips->n - 1].nesting > nesting) {
    const struct lds_value *value = &trips->values[--trips->n];
    (value->is_read ? trips->whole : trips->writes)[value->is_in_loop]++;
  }
}

static bool span_has(struct span span, const char *text) {
  return span_after(span, text).text != NULL;
}

static char *span_copy(struct span span) { return name_plain(span.text, span.length); }

static struct span span_trim(struct span span) {
  span = span_skip(span, span_run(span, " \t\r"));
  while (span.length && span_run(span_skip(span, span.length - 1), " \t\r"))
    span.length--;
  return span;
}

/* "%12": the value's name that a text begins with. */
static struct span name_at(struct span text) {
  if (text.length && text.text[0] == '%')
    return (struct span){text.text,
                         span_run(text, "%_#" DIGITS LOWER_CASE "ABCDEFGHIJKLMNOPQRSTUVWXYZ")};
  return (struct span){0};
}

/* The `i`th operand of an operation, from 0. */
static struct span operand_of(struct line line, size_t i) {
  const char *end = line.text.text + line.text.length,
             *at = line.operation.text + line.operation.length;
  for (; at < end && *at != ':'; at++)
    if (*at == '%' && i-- == 0)
      return name_at((struct span){at, (size_t)(end - at)});
  return (struct span){0};
}

/* Takes the next line of what is left. */
static struct line line_take(struct span *rest, size_t number) {
  const char *newline = memchr(rest->text, '\n', rest->length);
  struct span text = {rest->text, newline ? (size_t)(newline - rest->text) : rest->length};
  *rest = span_skip(*rest, text.length + (newline != NULL));

  /* The location in the source, which ends the line, is cut off; one in the middle (an argument's)
   * stays. */
  text = span_trim(text);
  struct span location = {0};
  for (struct span next = text; (next = span_after(next, " loc(")).text;)
    location = next;
  if (location.text && text.text[text.length - 1] == ')')
    text = span_trim((struct span){text.text, (size_t)(location.text - 5 - text.text)});
  struct line line = {.text = text, .number = number};

  /* "%x = ttg.convert_layout %y …", `"tt.reduce"(%x)`, "tt.return": a name after its dialect. */
  bool has_result = text.length && text.text[0] == '%';
  struct span operation = has_result ? span_after(text, " = ") : text;
  if (operation.length && operation.text[0] == '"')
    operation = span_skip(operation, 1);
  operation.length = span_run(operation, "_." LOWER_CASE DIGITS);
  for (struct span next = operation; (next = span_after(next, ".")).text;)
    line.operation = next;
  if (line.operation.text && has_result)
    line.result = name_at(text);

  return line;
}

/* Attributes of a module: "ttg.num-warps" = 4 : i32, also without quotes and in the older
 * dialect. */
static const struct {
  const char *name, *member;
  size_t offset;
} attributes[] = {
    {"num-warps", "num_warps", offsetof(struct ttgir_review, num_warps)},
    {"num-ctas", "num_ctas", offsetof(struct ttgir_review, num_ctas)},
    {"threads-per-warp", "threads_per_warp", offsetof(struct ttgir_review, threads_per_warp)},
    {"shared", "shared", offsetof(struct ttgir_review, shared)},
};

static int64_t *attribute_at(const struct ttgir_review *review, size_t i) {
  return (int64_t *)((char *)(uintptr_t)review + attributes[i].offset);
}

static void module_read(struct ttgir_review *review, struct span text) {
  for (size_t i = 0; i < ARRAY_LENGTH(attributes); i++) {
    cleanup_free char *quoted = xasprintf(".%s\" = ", attributes[i].name),
                      *plain = xasprintf(".%s = ", attributes[i].name);
    struct span value = span_after(text, quoted);
    value = value.text ? value : span_after(text, plain);
    int64_t number;
    if (span_take_number(&value, &number))
      *attribute_at(review, i) = number;
  }

  struct span target = span_after(text, "target = \""), after = span_after(target, "\"");
  if (after.text && !review->target)
    review->target = span_copy((struct span){target.text, (size_t)(after.text - 1 - target.text)});
}

/* "#blocked = #ttg.blocked<{…}>"; places in the source ("#loc = loc(…)") are not layouts. */
static void alias_read(struct walk *walk, struct line line) {
  struct ttgir_layouts *layouts = &walk->layouts;
  struct ttgir_review *review = walk->review;
  struct span text = span_after(line.text, " = ");
  if (!text.length || text.length > LAYOUT_BYTES_MAX || text.text[0] != '#' ||
      layouts->n == TTGIR_LAYOUTS_MAX)
    return;

  struct span name = {line.text.text, (size_t)(text.text - 3 - line.text.text)};
  layouts->names[layouts->n] = name;
  layouts->texts[layouts->n++] = text;

  struct span kind = ttgir_layout_kind(text);
  if (kind.text)
    review->layouts[review->n_layouts++] = (struct ttgir_layout){
        span_copy(name), span_copy(span_skip(text, (size_t)(kind.text - text.text)))};
}

static void convert_read(struct walk *walk, struct line line) {
  struct ttgir_review *review = walk->review;
  struct ttgir_tensor from, to;
  struct span rest = line.text;
  if (!ttgir_tensor_take(&walk->layouts, &rest, &from) ||
      !ttgir_tensor_take(&walk->layouts, &rest, &to) || !from.encoding.text || !to.encoding.text)
    return;

  const char *why;
  enum ttgir_conversion conversion =
      ttgir_conversion_decide(&walk->layouts, &from, &to, review->num_warps, &why);
  review->all.conversions[conversion]++;
  review->in_loops.conversions[conversion] += walk->loop_depth > 0;

  bool is_of_dot =
      span_is(from.kind, "amd_mfma") || span_is(from.kind, "mfma") || span_is(from.kind, "mma");
  walk->dot_results +=
      is_of_dot && !walk->loop_depth && (conversion == TTGIR_LDS || conversion == TTGIR_TO_LDS);
  if (conversion == TTGIR_TO_LDS)
    lds_write(walk, line.result);
  else if (conversion == TTGIR_FROM_LDS)
    lds_read(walk, operand_of(line, 0));
  if (review->n_converts < TTGIR_CONVERSIONS_MAX)
    review->converts[review->n_converts++] = (struct ttgir_convert){
        line.number, walk->loop_depth, conversion, span_copy(from.encoding), span_copy(to.encoding),
        why};
}

/* "amd_mfma version 3, 16x16x16": how the dot is computed, from the result's layout. */
static char *dot_kind(const struct ttgir_tensor *tensor) {
  if (!tensor->kind.text)
    return xstrdup("not stated");

  char *text = span_copy(tensor->kind);
  struct span version = ttgir_layout_member(tensor->layout, "version");
  if (!version.text)
    version = ttgir_layout_member(tensor->layout, "versionMajor");
  if (version.text && version.length < 20)
    text_append(&text, " version %.*s", (int)version.length, version.text);

  int64_t shape[TTGIR_DIMENSIONS_MAX];
  size_t n = 0;
  if (ttgir_integers(ttgir_layout_member(tensor->layout, "instrShape"), shape, TTGIR_DIMENSIONS_MAX,
                     &n)) {
    for (size_t i = 0; i < n; i++)
      text_append(&text, "%s%" PRId64, i ? "x" : ", ", shape[i]);
  }

  return text;
}

static void dot_read(struct walk *walk, struct line line) {
  struct ttgir_review *review = walk->review;
  struct ttgir_tensor tensor = {0}; /* of the result, which comes last */
  for (struct span rest = line.text; ttgir_tensor_take(&walk->layouts, &rest, &tensor);)
    continue;
  cleanup_free char *kind = dot_kind(&tensor);

  size_t i = 0;
  while (i < review->n_dots && !string_equal(review->dots[i].kind, kind))
    i++;
  if (i == TTGIR_DOTS_MAX)
    return;
  if (i == review->n_dots)
    review->dots[review->n_dots++].kind = TAKE(kind);
  review->dots[i].count++;
  review->dots[i].count_in_loops += walk->loop_depth > 0;
}

/* Counts loads in loops by the contiguous bytes that a thread loads at once. */
static void load_read(struct walk *walk, struct line line) {
  struct ttgir_tensor tensor;
  if (!walk->loop_depth || !ttgir_tensor_take(&walk->layouts, &line.text, &tensor))
    return;
  int64_t bytes = ttgir_contiguous_bytes(&tensor);
  if (!bytes)
    return;
  walk->loads_of_known_width++;
  if (bytes < 16) {
    walk->narrow_loads++;
    walk->narrowest = walk->narrowest && walk->narrowest < bytes ? walk->narrowest : bytes;
  }
}

static void operation_read(struct walk *walk, struct line line) {
  struct span operation = line.operation;

#define X(member, name, heading)                                                                   \
  if (span_is(operation, name)) {                                                                  \
    walk->review->all.member++;                                                                    \
    walk->review->in_loops.member += walk->loop_depth > 0;                                         \
  }

  TTGIR_COUNTS(X)
#undef X
  if (span_is(operation, "convert_layout")) {
    convert_read(walk, line);
  } else if (span_is(operation, "dot") || span_is(operation, "dot_scaled") ||
             span_is(operation, "warp_group_dot")) {
    dot_read(walk, line);
  } else if (span_is(operation, "load") || span_is(operation, "buffer_load")) {
    load_read(walk, line);
  } else if (span_is(operation, "local_load")) {
    lds_read(walk, operand_of(line, 0));
  } else if (span_is(operation, "local_store")) {
    lds_write(walk, operand_of(line, 1));
  } else if (span_is(operation, "local_alloc") && operand_of(line, 0).text) {
    lds_write(walk, line.result);
    walk->filled_allocs += walk->loop_depth && span_has(line.text, "local_alloc %");
  } else if (span_is(operation, "async_copy_global_to_local") ||
             span_is(operation, "buffer_load_to_local")) {
    lds_write(walk, (struct span){0});
  }
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

/* Whether there is a module, or else an operation of the dialect. */
static enum { NO_TTGIR, A_PART, A_MODULE } text_kind(struct span rest) {
  bool has_operation = false;
  while (rest.length) {
    struct line line = line_take(&rest, 0);
    if (is_module(line.text))
      return A_MODULE;
    has_operation = has_operation || is_of_dialect(line);
  }
  return has_operation ? A_PART : NO_TTGIR;
}

bool ttgir_is(const char *text, size_t size) {
  cleanup_free char *joined = ttgir_lines_join(text, size < TTGIR_SIZE_MAX ? size : TTGIR_SIZE_MAX);
  return text_kind((struct span){joined, strlen(joined)}) != NO_TTGIR;
}

static bool text_walk(struct walk *walk, struct span rest, struct error *error) {
  for (size_t number = 1; rest.length; number++) {
    struct line line = line_take(&rest, number);
    char first = line.text.length ? line.text.text[0] : '\0',
         last = line.text.length ? line.text.text[line.text.length - 1] : '\0';
    if (line.text.length && !ttgir_line_begins(line.text) &&
        span_run(line.text, ". ") < line.text.length)
      return error_set(error,
                       "line %zu, \"%.*s\", does not begin an operation, nor does it continue one: "
                       "give whole operations, as Triton prints them",
                       number, (int)(line.text.length < 60 ? line.text.length : 60),
                       line.text.text);
    if (is_module(line.text))
      module_read(walk->review, line.text);
    if (first == '#')
      alias_read(walk, line);

    /* A brace closes at a line's start and opens at its end. */
    if (first == '}' && walk->nesting > 0) {
      walk->loop_depth -= walk->loops[--walk->nesting];
      trips_leave(&walk->trips, walk->nesting);
    } else if (first == '}' && !walk->is_part) {
      return error_set(error, "line %zu of the module closes a brace that was not opened", number);
    }
    if (line.operation.text)
      operation_read(walk, line);
    if (last == '{') {
      if (walk->nesting == NESTING_MAX)
        return error_set(error, "line %zu of the module nests deeper than %d", number, NESTING_MAX);
      /* `} do {`: the second part of a while loop. */
      bool is_loop = span_has(line.text, "scf.for ") || span_has(line.text, "scf.while ") ||
                     span_is(line.text, "} do {");
      walk->loops[walk->nesting++] = is_loop;
      walk->loop_depth += is_loop;
    }
  }

  return walk->nesting == 0 || walk->is_part ||
         error_set(error, "the module ends inside %d braces: it is cut off", walk->nesting);
}

static void find_all(const struct walk *walk) {
  struct ttgir_review *review = walk->review;
  struct review_findings *findings = &review->findings;
  const int64_t *in_loops = review->in_loops.conversions, *all = review->all.conversions;
  if (in_loops[TTGIR_LDS])
    review_find(findings, REVIEW_WARNING, SOURCE_AMD_IR,
                "%" PRId64 " conversions of layouts in loops pass through LDS: each writes a "
                "tensor there, waits and reads it again",
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
    review_find(findings, REVIEW_HINT, SOURCE_AMD_GUIDE,
                "%" PRId64 " results of matrix instructions pass through LDS outside of loops; "
                "OPTIMIZE_EPILOGUE removes the one before the last store",
                walk->dot_results);

  for (size_t i = 0; i < review->n_dots; i++) {
    const struct ttgir_dot *dot = &review->dots[i];
    if (string_equal(dot->kind, "blocked"))
      review_find(findings, REVIEW_WARNING, SOURCE_AMD_IR,
                  "%" PRId64 " dots use plain multiply-adds, not matrix instructions: "
                  "their types or their shape (at least 16 in each dimension) have none",
                  dot->count);
    else if (string_starts(dot->kind, "amd_mfma") && strstr(dot->kind, ", 32x32"))
      review_find(findings, REVIEW_HINT, SOURCE_AMD_GUIDE,
                  "dots use 32x32 instructions (%s); for a GEMM matrix_instr_nonkdim 16 is faster "
                  "on MI300X, for two fused GEMMs 32 may be",
                  dot->kind);
  }

  if (walk->narrow_loads)
    review_find(findings, REVIEW_WARNING, SOURCE_AMD_IR,
                "%" PRId64 " of %" PRId64
                " global loads in loops with a known layout give a thread less than 16 bytes next "
                "to each other (the least: %" PRId64
                "): the compiler does not know of contiguity or alignment, or the tile is too "
                "small for its threads",
                walk->narrow_loads, walk->loads_of_known_width, walk->narrowest);
  if (review->in_loops.transposes)
    review_find(findings, REVIEW_HINT, SOURCE_AMD_IR,
                "%" PRId64
                " transposes in loops: data is stored in another order than it is used in",
                review->in_loops.transposes);
  if (walk->filled_allocs)
    review_find(findings, REVIEW_HINT, SOURCE_AMD_IR,
                "%" PRId64 " tensors are put into LDS and read in the same iteration: this loop is "
                "not pipelined (num_stages)",
                walk->filled_allocs);
}

bool ttgir_review_make(const char *text, size_t size, struct ttgir_review **ret_review,
                       struct error *error) {
  if (size > TTGIR_SIZE_MAX)
    return error_set(error, "the module has %zu bytes; at most %zu are read", size, TTGIR_SIZE_MAX);

  cleanup_ttgir_review struct ttgir_review *review = xcalloc(1, sizeof *review);
  for (size_t i = 0; i < ARRAY_LENGTH(attributes); i++)
    *attribute_at(review, i) = TTGIR_UNKNOWN;
  cleanup_free struct walk *walk = xcalloc(1, sizeof *walk);
  walk->review = review;

  cleanup_free char *joined = ttgir_lines_join(text, size);
  const struct span all = {joined, strlen(joined)};
  int kind = text_kind(all);
  walk->is_part = kind == A_PART;
  if (kind != NO_TTGIR && !text_walk(walk, all, error))
    return false;
  if (kind == NO_TTGIR ||
      (kind == A_MODULE && review->num_warps == TTGIR_UNKNOWN && !review->n_layouts))
    return error_set(
        error, "the text is neither a module of Triton's GPU dialect (asm[\"ttgir\"] of a compiled "
               "kernel) nor lines of one (operations such as ttg.convert_layout over tensors with "
               "layouts)");

  struct trips *trips = &walk->trips;
  trips_leave(trips, -1);
  for (int i = 0; i < 2; i++)
    (i ? &review->in_loops : &review->all)->lds_trips =
        trips->whole[i] + (trips->writes[i] > trips->reads[i] ? trips->writes[i] : trips->reads[i]);
  review->all.lds_trips += review->in_loops.lds_trips + review->all.conversions[TTGIR_LDS];
  review->in_loops.lds_trips += review->in_loops.conversions[TTGIR_LDS];
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
  free(review->target);
  review_findings_release(&review->findings);
  free(review);
}

static json_t *counts_to_json(const struct ttgir_counts *counts) {
  json_t *json = json_object(), *conversions = json_object();
#define X(member, name, heading) json_put(json, #member, json_integer(counts->member));
  TTGIR_COUNTS(X)
#undef X
  json_put(json, "lds_trips", json_integer(counts->lds_trips));
  for (int i = 0; i < TTGIR_CONVERSIONS; i++)
    json_put(conversions, ttgir_conversion_name((enum ttgir_conversion)i),
             json_integer(counts->conversions[i]));
  json_put(json, "conversions", conversions);
  return json;
}

json_t *ttgir_review_to_json(const struct ttgir_review *review) {
  json_t *layouts = json_object(), *converts = json_array(), *dots = json_array();
  for (size_t i = 0; i < review->n_layouts; i++)
    json_put(layouts, review->layouts[i].name, json_string(review->layouts[i].text));
  for (size_t i = 0; i < review->n_converts; i++) {
    const struct ttgir_convert *convert = &review->converts[i];
    json_push(converts,
              json_pack("{s:I, s:i, s:s, s:s, s:s, s:s}", "line", (json_int_t)convert->line,
                        "loop_depth", convert->loop_depth, "from", convert->from, "to", convert->to,
                        "passes", ttgir_conversion_name(convert->conversion), "why", convert->why));
  }

  for (size_t i = 0; i < review->n_dots; i++) {
    const struct ttgir_dot *dot = &review->dots[i];
    json_push(dots, json_pack("{s:s, s:I, s:I}", "kind", dot->kind, "count", (json_int_t)dot->count,
                              "in_loops", (json_int_t)dot->count_in_loops));
  }

  json_t *json = json_pack("{s:s?}", "target", review->target);
  for (size_t j = 0; j < ARRAY_LENGTH(attributes); j++) {
    int64_t number = *attribute_at(review, j);
    json_put(json, attributes[j].member,
             number == TTGIR_UNKNOWN ? json_null() : json_integer(number));
  }

  json_put(json, "layouts", layouts);
  json_put(json, "all", counts_to_json(&review->all));
  json_put(json, "in_loops", counts_to_json(&review->in_loops));
  json_put(json, "conversions", converts);
  json_put(json, "dots", dots);
  json_put(json, "findings", review_findings_to_json(&review->findings));

  return json;
}

void ttgir_review_print(const struct ttgir_review *review, FILE *out) {
  fprintf(out, "  %-16s %s\n", "target", review->target ? review->target : "not stated");
  for (size_t i = 0; i < ARRAY_LENGTH(attributes); i++) {
    int64_t number = *attribute_at(review, i);
    if (number == TTGIR_UNKNOWN)
      fprintf(out, "  %-16s not stated\n", attributes[i].name);
    else
      fprintf(out, "  %-16s %" PRId64 "\n", attributes[i].name, number);
  }

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
