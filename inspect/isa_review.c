/* The review of a disassembly: instructions counted by loop, and what the counts mean.
 *
 * Memory: see isa_review.h. Threads: any. */
#include "inspect/isa_review.h"

#include <inttypes.h>

#include "common/base/names.h"
#include "inspect/isa_flow.h"

/* One function while its lines are read. */
struct reading {
  struct isa_instruction *instructions;
  size_t n, capacity;
  uint64_t start;
};

static void count(struct isa_counts *counts, const struct isa_instruction *instruction) {
  counts->instructions++;
  counts->flat += instruction->is_flat;
  counts->to_lds += instruction->is_to_lds;
  counts->waits_for_loads += instruction->waits_for_loads;
  counts->waits_for_lds += instruction->waits_for_lds;
  int64_t *const plain[] = {[ISA_ATOMIC] = &counts->atomics,
                            [ISA_SCRATCH_LOAD] = &counts->scratch_loads,
                            [ISA_SCRATCH_STORE] = &counts->scratch_stores,
                            [ISA_MATRIX] = &counts->matrix,
                            [ISA_ACCVGPR] = &counts->accvgpr_moves,
                            [ISA_WAIT] = &counts->waits,
                            [ISA_BARRIER] = &counts->barriers,
                            [ISA_GLOBAL_LOAD] = &counts->global_loads[instruction->width],
                            [ISA_GLOBAL_STORE] = &counts->global_stores[instruction->width],
                            [ISA_LDS_READ] = &counts->lds_reads[instruction->width],
                            [ISA_LDS_WRITE] = &counts->lds_writes[instruction->width]};
  if (instruction->class != ISA_OTHER)
    *plain[instruction->class] += instruction->accesses;
}

static int64_t sum(const int64_t widths[ISA_WIDTHS], int64_t bytes_min, int64_t bytes_max) {
  int64_t total = 0;
  for (int i = 0; i < ISA_WIDTHS; i++) {
    if (isa_width_bytes[i] >= bytes_min && isa_width_bytes[i] <= bytes_max)
      total += widths[i];
  }
  return total;
}

static int64_t sum_all(const int64_t widths[ISA_WIDTHS]) { return sum(widths, 0, INT64_MAX); }

static int64_t memory_accesses(const struct isa_counts *counts) {
  return sum_all(counts->global_loads) + sum_all(counts->global_stores) +
         sum_all(counts->lds_reads) + sum_all(counts->lds_writes) + counts->atomics;
}

static void matrix_count(struct isa_function *function, const struct isa_instruction *instruction,
                         bool is_in_loop) {
  struct isa_matrix *matrix = NULL;
  for (size_t i = 0; i < function->n_matrix && !matrix; i++) {
    if (strlen(function->matrix[i].name) == instruction->name_length &&
        memcmp(function->matrix[i].name, instruction->name, instruction->name_length) == 0)
      matrix = &function->matrix[i];
  }
  if (!matrix && function->n_matrix < ISA_MATRIX_KINDS_MAX) {
    if (!function->matrix)
      function->matrix = xcalloc(ISA_MATRIX_KINDS_MAX, sizeof *function->matrix);
    matrix = &function->matrix[function->n_matrix++];
    matrix->name = xstrndup(instruction->name, instruction->name_length);
  }
  if (matrix) {
    matrix->count++;
    matrix->count_in_loops += is_in_loop;
  }
}

static int compare_loops(const void *a, const void *b) {
  const struct isa_loop *first = a, *second = b;
  return (first->at > second->at) - (first->at < second->at);
}

/* The hot loop does the most of what the kernel is for. */
static void choose_hot(struct isa_function *function) {
  struct isa_loop *hot = NULL;
  for (size_t i = 0; i < function->n_loops; i++) {
    struct isa_loop *loop = &function->loops[i];
    int64_t matrix = loop->counts.matrix, accesses = memory_accesses(&loop->counts);
    if (matrix + accesses > 0 &&
        (!hot || matrix > hot->counts.matrix ||
         (matrix == hot->counts.matrix && accesses > memory_accesses(&hot->counts))))
      hot = loop;
  }
  if (hot)
    hot->is_hot = true;
}

/* "16 × 2, 4 × 8": bytes × times, of what is narrower than `bytes_below`. */
static char *widths_format(const int64_t widths[ISA_WIDTHS], int64_t bytes_below) {
  char *text = xstrdup("");
  for (int i = ISA_WIDTHS - 1; i >= 0; i--) {
    if (!widths[i] || isa_width_bytes[i] >= bytes_below)
      continue;
    char *longer = xasprintf("%s%s%" PRId64 " × %" PRId64, text, text[0] ? ", " : "",
                             isa_width_bytes[i], widths[i]);
    free(text);
    text = longer;
  }
  return text;
}

/* Says that some of `widths` are narrower than `bytes_wanted`, where they are. */
static void find_narrow(struct review_findings *findings, enum review_severity severity,
                        const char *where, const int64_t widths[ISA_WIDTHS], int64_t bytes_wanted,
                        const char *what, const char *advice) {
  int64_t narrow = sum(widths, 0, bytes_wanted - 1);
  if (!narrow)
    return;
  cleanup_free char *list = widths_format(widths, bytes_wanted);
  review_find(findings, severity, SOURCE_AMD_ISA,
              "%s: %" PRId64 " of %" PRId64 " %s move less than %" PRId64
              " bytes a lane (bytes × times: %s); %s",
              where, narrow, sum_all(widths), what, bytes_wanted, list, advice);
}

static void review_loop(struct review_findings *findings, const struct isa_loop *loop) {
  const struct isa_counts *counts = &loop->counts;
  enum review_severity severity = loop->is_hot ? REVIEW_WARNING : REVIEW_HINT;
  cleanup_free char *where =
      xasprintf("%s at +0x%" PRIx64, loop->is_hot ? "the hot loop" : "the loop", loop->at);
  find_narrow(findings, severity, where, counts->global_loads, 16, "global loads",
              "dwordx4 is expected: make the fastest dimension contiguous and its alignment known "
              "(divisible by 16), "
              "and give each thread 16 bytes of it");
  find_narrow(findings, severity, where, counts->lds_reads, 8, "LDS reads",
              "b128 or b64 is expected: the order in LDS is not the order in which the operand is "
              "read; store it "
              "transposed, or try kpack 2");
  find_narrow(findings, REVIEW_HINT, where, counts->lds_writes, 8, "LDS writes",
              "b128 or b64 is expected");
  if (counts->scratch_loads + counts->scratch_stores)
    review_find(findings, REVIEW_WARNING, SOURCE_AMD_ISA,
                "%s: %" PRId64 " loads from and %" PRId64
                " stores to scratch, which is memory: fewer registers must be "
                "live (smaller tiles, more warps, no waves_per_eu)",
                where, counts->scratch_loads, counts->scratch_stores);
  if (counts->waits_for_loads && sum_all(counts->global_loads))
    review_find(findings, REVIEW_HINT, SOURCE_AMD_ISA,
                "%s: %" PRId64 " of %" PRId64
                " waits are a full stop for every global load in flight (vmcnt(0)); with "
                "more stages some would stay in flight",
                where, counts->waits_for_loads, counts->waits);
  if (counts->accvgpr_moves)
    review_find(
        findings, loop->is_hot ? REVIEW_WARNING : REVIEW_HINT, SOURCE_AMD_ISA,
        "%s: %" PRId64
        " moves between VGPRs and AGPRs: registers are short, or the accumulator is converted in "
        "the loop",
        where, counts->accvgpr_moves);
  if (counts->flat)
    review_find(
        findings, REVIEW_HINT, SOURCE_AMD_ISA,
        "%s: %" PRId64
        " flat accesses, which wait for LDS and global memory alike: the compiler does not know "
        "that these pointers are global",
        where, counts->flat);
}

static void review_resources(struct review_findings *findings,
                             const struct code_resources *resources) {
  int64_t spills = code_resources_spills(resources);
  if (spills > 0 && resources->vgpr_spills != CODE_UNKNOWN)
    review_find(findings, REVIEW_WARNING, SOURCE_AMD_GUIDE,
                "%" PRId64 " VGPRs and %" PRId64
                " SGPRs are spilled: fewer registers must be live (smaller tiles, more "
                "warps, no waves_per_eu)",
                resources->vgpr_spills, resources->sgpr_spills);
  else if (resources->scratch_bytes > 0)
    review_find(findings, REVIEW_HINT, SOURCE_AMD_GUIDE,
                "%" PRId64 " bytes of scratch a lane and no spills: an array is indexed by what is "
                "not known when it is "
                "compiled",
                resources->scratch_bytes);
}

static void review_function(struct isa_function *function, const struct code_resources *resources) {
  struct review_findings *findings = &function->findings;
  for (size_t i = 0; i < function->n_loops; i++)
    review_loop(findings, &function->loops[i]);
  find_narrow(
      findings, REVIEW_HINT, "the kernel", function->counts.global_stores, 8, "global stores",
      "a last conversion of the layout through LDS would make them wider (no OPTIMIZE_EPILOGUE)");
  for (size_t i = 0; i < function->n_matrix; i++) {
    if (string_starts(function->matrix[i].name, "v_mfma_") &&
        strstr(function->matrix[i].name, "_32x32x"))
      review_find(findings, REVIEW_HINT, SOURCE_AMD_GUIDE,
                  "%s is used; for a GEMM the 16x16 instructions are faster on MI300X "
                  "(matrix_instr_nonkdim 16), for two "
                  "fused ones 32x32 may be",
                  function->matrix[i].name);
  }
  if (resources)
    review_resources(findings, resources);
}

static bool function_make(struct isa_function *function, const struct reading *reading,
                          const struct code_resources *resources, struct error *error) {
  cleanup_isa_flow struct isa_flow_loops flow = {0};
  if (!isa_flow_find(reading->instructions, reading->n, &flow, error))
    return error_prefix(error, "%s: ", function->name);
  function->n_loops = flow.n;
  function->loops = xcalloc(flow.n, sizeof *function->loops);
  for (size_t i = 0; i < flow.n; i++)
    function->loops[i] =
        (struct isa_loop){.at = flow.loops[i].head - reading->start, .depth = flow.loops[i].depth};
  for (size_t i = 0; i < reading->n; i++) {
    const struct isa_instruction *instruction = &reading->instructions[i];
    int loop = flow.loop_of[i];
    count(&function->counts, instruction);
    if (loop != ISA_NO_LOOP)
      count(&function->loops[loop].counts, instruction);
    if (instruction->class == ISA_MATRIX)
      matrix_count(function, instruction, loop != ISA_NO_LOOP);
  }
  if (function->n_loops)
    qsort(function->loops, function->n_loops, sizeof *function->loops, compare_loops);
  choose_hot(function);
  review_function(function, resources);
  return true;
}

static const struct code_resources *resources_of(const struct code_object *object,
                                                 const char *name) {
  for (size_t i = 0; object && i < object->n_kernels; i++) {
    if (string_equal(object->kernels[i].name, name))
      return &object->kernels[i].resources;
  }
  return NULL;
}

static void reading_release(struct reading *reading) { free(reading->instructions); }

/* The lines from behind a label to the next one. */
static bool read_function(const char **line, struct reading *reading, size_t *instructions,
                          struct error *error) {
  const char *name;
  size_t length;
  uint64_t address;
  reading->n = 0;
  while (**line && !isa_decode_label(*line, &name, &length, &address)) {
    struct isa_instruction instruction;
    if (isa_decode(*line, &instruction)) {
      if (++*instructions > ISA_INSTRUCTIONS_MAX)
        return error_set(error, "the disassembly has more than %d instructions",
                         ISA_INSTRUCTIONS_MAX);
      if (reading->n && instruction.address <= reading->instructions[reading->n - 1].address)
        return error_set(error, "the disassembly's addresses do not rise at %" PRIx64,
                         instruction.address);
      GROW(reading->instructions, reading->n, reading->capacity);
      reading->instructions[reading->n++] = instruction;
    }
    *line += strcspn(*line, "\n");
    *line += **line == '\n';
  }
  return true;
}

bool isa_review_make(const char *text, const struct code_object *object,
                     struct isa_review **ret_review, struct error *error) {
  cleanup_isa_review struct isa_review *review = xcalloc(1, sizeof *review);
  __attribute__((cleanup(reading_release))) struct reading reading = {0};
  size_t capacity = 0, instructions = 0;
  const char *line = text;
  if (!read_function(&line, &reading, &instructions, error))
    return false;
  instructions = 0;
  while (*line) {
    const char *name = NULL;
    size_t length = 0;
    ALWAYS(isa_decode_label(line, &name, &length, &reading.start));
    line += strcspn(line, "\n");
    line += *line == '\n';
    if (!read_function(&line, &reading, &instructions, error))
      return false;
    if (!reading.n)
      continue;
    GROW(review->functions, review->n, capacity);
    struct isa_function *function = &review->functions[review->n++];
    *function = (struct isa_function){.name = name_plain(name, length)};
    if (!function_make(function, &reading, resources_of(object, function->name), error))
      return false;
  }
  if (!instructions)
    return error_set(
        error,
        "the text has no instructions of a named function, as `llvm-objdump -d` prints them");
  *ret_review = TAKE(review);
  return true;
}

void isa_review_free(struct isa_review *review) {
  for (size_t i = 0; i < review->n; i++) {
    struct isa_function *function = &review->functions[i];
    for (size_t j = 0; j < function->n_matrix; j++)
      free(function->matrix[j].name);
    free(function->matrix);
    free(function->loops);
    free(function->name);
    review_findings_release(&function->findings);
  }
  free(review->functions);
  free(review);
}

const struct isa_function *isa_review_function(const struct isa_review *review, const char *name) {
  for (size_t i = 0; i < review->n; i++) {
    if (string_equal(review->functions[i].name, name))
      return &review->functions[i];
  }
  return NULL;
}

/* What is counted plainly: X(member, heading) */
#define PLAIN_COUNTS(X)                                                                            \
  X(instructions, "instructions")                                                                  \
  X(matrix, "matrix instructions")                                                                 \
  X(flat, "flat accesses")                                                                         \
  X(to_lds, "loads into LDS")                                                                      \
  X(atomics, "atomics")                                                                            \
  X(scratch_loads, "scratch loads")                                                                \
  X(scratch_stores, "scratch stores")                                                              \
  X(accvgpr_moves, "AGPR moves")                                                                   \
  X(waits, "waits")                                                                                \
  X(waits_for_loads, "vmcnt(0)")                                                                   \
  X(waits_for_lds, "lgkmcnt(0)")                                                                   \
  X(barriers, "barriers")

/* What is counted by width. */
#define WIDTH_COUNTS(X)                                                                            \
  X(global_loads, "global loads")                                                                  \
  X(global_stores, "global stores")                                                                \
  X(lds_reads, "LDS reads")                                                                        \
  X(lds_writes, "LDS writes")

/* {"16": 2, "4": 8}: bytes a lane and how often. */
static json_t *widths_to_json(const int64_t widths[ISA_WIDTHS]) {
  json_t *json = json_object();
  for (int i = 0; i < ISA_WIDTHS; i++) {
    char name[8];
    snprintf(name, sizeof name, "%" PRId64, isa_width_bytes[i]);
    if (widths[i])
      ALWAYS(json_object_set_new(json, name, json_integer(widths[i])) == 0);
  }
  return json;
}

static json_t *counts_to_json(const struct isa_counts *counts) {
  json_t *json = json_object();
#define X(member, heading)                                                                         \
  ALWAYS(json_object_set_new(json, #member, json_integer(counts->member)) == 0);
  PLAIN_COUNTS(X)
#undef X
#define X(member, heading)                                                                         \
  ALWAYS(json_object_set_new(json, #member, widths_to_json(counts->member)) == 0);
  WIDTH_COUNTS(X)
#undef X
  return json;
}

json_t *isa_function_to_json(const struct isa_function *function) {
  json_t *loops = json_array(), *matrix = json_object();
  for (size_t i = 0; i < function->n_loops; i++) {
    const struct isa_loop *loop = &function->loops[i];
    json_t *item = counts_to_json(&loop->counts);
    ALWAYS(json_object_set_new(item, "at", json_integer((json_int_t)loop->at)) == 0 &&
           json_object_set_new(item, "depth", json_integer(loop->depth)) == 0 &&
           json_object_set_new(item, "hot", json_boolean(loop->is_hot)) == 0 &&
           json_array_append_new(loops, item) == 0);
  }
  for (size_t i = 0; i < function->n_matrix; i++) {
    json_t *item = json_pack("{s:I, s:I}", "count", (json_int_t)function->matrix[i].count,
                             "in_loops", (json_int_t)function->matrix[i].count_in_loops);
    ALWAYS(item && json_object_set_new(matrix, function->matrix[i].name, item) == 0);
  }
  json_t *json = counts_to_json(&function->counts);
  ALWAYS(json_object_set_new(json, "matrix_instructions", matrix) == 0 &&
         json_object_set_new(json, "loops", loops) == 0 &&
         json_object_set_new(json, "findings", review_findings_to_json(&function->findings)) == 0);
  return json;
}

static void counts_print(const struct isa_counts *counts, FILE *out) {
#define X(member, heading)                                                                         \
  if (counts->member)                                                                              \
    fprintf(out, "%s%" PRId64 " " heading, separator, counts->member), separator = ", ";
  const char *separator = "";
  PLAIN_COUNTS(X)
#undef X
#define X(member, heading)                                                                         \
  if (sum_all(counts->member)) {                                                                   \
    cleanup_free char *list = widths_format(counts->member, INT64_MAX);                            \
    fprintf(out, "\n    %-14s %s", heading, list);                                                 \
  }
  WIDTH_COUNTS(X)
#undef X
  fputc('\n', out);
}

void isa_function_print(const struct isa_function *function, FILE *out) {
  fputs("  instructions (accesses in bytes a lane × times)\n", out);
  for (size_t i = 0; i < function->n_loops; i++) {
    const struct isa_loop *loop = &function->loops[i];
    fprintf(out, "  loop at +0x%" PRIx64 "%s, depth %d: ", loop->at, loop->is_hot ? " (hot)" : "",
            loop->depth);
    counts_print(&loop->counts, out);
  }
  fprintf(out, "  %s: ", function->n_loops ? "all" : "no loop");
  counts_print(&function->counts, out);
  for (size_t i = 0; i < function->n_matrix; i++)
    fprintf(out, "    %s × %" PRId64 ", in loops %" PRId64 "\n", function->matrix[i].name,
            function->matrix[i].count, function->matrix[i].count_in_loops);
  review_findings_print(&function->findings, out);
}
