/* The review of a disassembly: instructions counted by loop, and what the counts mean.
 *
 * Loops are natural loops: a head that dominates all of it, and at least one way back to the head.
 * A cycle that is entered at several places is not one; compilers do not make such cycles on
 * purpose. */
#include "inspect/isa_review.h"

#include <inttypes.h>

#include "common/base/error.h"

#define NONE (-1)
#define STEPS_MAX 50000000 /* over all walks of one function */

/* One function while its lines are read. */
struct reading {
  struct isa_instruction *instructions;
  size_t n;
  uint64_t start;
};

static void reading_release(struct reading *reading) { free(reading->instructions); }

struct block {
  size_t first;      /* the index of its first instruction */
  int successors[2]; /* blocks, or NONE */
  int order;         /* its place in reverse postorder; NONE: not reached */
};

/* A block's place is its index in reverse postorder. Edge 2 * P + i leads from the block at place P
 * to its successor i. */
struct flow {
  size_t n_blocks, n; /* n: blocks that are reached from the first one */
  struct block *blocks;
  int *order;              /* of each place: its block */
  int *first_in, *next_in; /* edges into each place, as a list; NONE ends it */
  int *dominators;         /* of each place: the place of its immediate dominator */
  int64_t steps;
};

static void flow_release(struct flow *flow) {
  free(flow->blocks);
  free(flow->order);
  free(flow->first_in);
  free(flow->next_in);
  free(flow->dominators);
}

static int compare_addresses(const void *a, const void *b) {
  const struct isa_instruction *x = a, *y = b;
  return (x->address > y->address) - (x->address < y->address);
}

/* The index of the instruction that a branch or jump leads to; n where there is none. */
static size_t target_of(const struct reading *reading, const struct isa_instruction *instruction) {
  struct isa_instruction wanted = {.address = instruction->target};
  const struct isa_instruction *found = NULL;
  if (instruction->flow == ISA_BRANCH || instruction->flow == ISA_JUMP)
    found = bsearch(&wanted, reading->instructions, reading->n, sizeof wanted, compare_addresses);
  return found ? (size_t)(found - reading->instructions) : reading->n;
}

/* Blocks begin at targets of branches and after each instruction that may not be followed by the
 * next one. Returns the block of each instruction. */
static int *blocks_make(struct flow *flow, const struct reading *reading) {
  size_t n = reading->n;
  cleanup_free bool *leads = xcalloc(n + 1, sizeof *leads);
  leads[0] = true;
  for (size_t i = 0; i < n; i++) {
    leads[i + 1] |= reading->instructions[i].flow != ISA_NEXT;
    leads[target_of(reading, &reading->instructions[i])] = true;
  }
  leads[n] = true;

  int *block_of = xcalloc(n, sizeof *block_of);
  for (size_t i = 0; i < n; i++) {
    flow->n_blocks += leads[i];
    block_of[i] = (int)flow->n_blocks - 1;
  }

  flow->blocks = xcalloc(flow->n_blocks, sizeof *flow->blocks);
  for (size_t i = 0; i < n; i++) {
    const struct isa_instruction *instruction = &reading->instructions[i];
    struct block *block = &flow->blocks[block_of[i]];
    if (leads[i])
      *block = (struct block){.first = i, .successors = {NONE, NONE}, .order = NONE};
    if (!leads[i + 1])
      continue;
    if (i + 1 < n && (instruction->flow == ISA_NEXT || instruction->flow == ISA_BRANCH))
      block->successors[0] = block_of[i + 1];
    size_t target = target_of(reading, instruction);
    if (target < n)
      block->successors[1] = block_of[target];
  }

  return block_of;
}

/* Numbers the blocks in reverse postorder of a walk from the first one, and lists the edges. */
static void order_make(struct flow *flow) {
  cleanup_free int *stack = xcalloc(flow->n_blocks, sizeof *stack);
  cleanup_free int *postorder = xcalloc(flow->n_blocks, sizeof *postorder);
  cleanup_free uint8_t *next = xcalloc(flow->n_blocks, sizeof *next); /* successor to look at */
  struct block *blocks = flow->blocks;
  size_t depth = 1;
  blocks[0].order = 0;

  while (depth) {
    int block = stack[depth - 1];
    if (next[block] == 2) {
      postorder[flow->n++] = block;
      depth--;
      continue;
    }
    int successor = blocks[block].successors[next[block]++];
    if (successor != NONE && blocks[successor].order == NONE) {
      blocks[successor].order = 0;
      stack[depth++] = successor;
    }
  }

  flow->order = xcalloc(flow->n, sizeof *flow->order);
  flow->first_in = xcalloc(flow->n, sizeof *flow->first_in);
  flow->next_in = xcalloc(2 * flow->n, sizeof *flow->next_in);
  for (size_t i = 0; i < flow->n; i++) {
    flow->order[i] = postorder[flow->n - 1 - i];
    flow->first_in[i] = NONE;
    blocks[flow->order[i]].order = (int)i;
  }

  for (int edge = 0; edge < 2 * (int)flow->n; edge++) {
    int successor = blocks[flow->order[edge / 2]].successors[edge % 2];
    if (successor == NONE)
      continue;
    int place = blocks[successor].order;
    flow->next_in[edge] = flow->first_in[place];
    flow->first_in[place] = edge;
  }
}

/* The nearest place that dominates both. */
static int common_dominator(struct flow *flow, int a, int b) {
  while (a != b && flow->steps++ < STEPS_MAX)
    if (a > b)
      a = flow->dominators[a];
    else
      b = flow->dominators[b];
  return a;
}

/* Cooper, Harvey, Kennedy: "A simple, fast dominance algorithm". */
static void dominators_make(struct flow *flow) {
  flow->dominators = xcalloc(flow->n, sizeof *flow->dominators);
  for (size_t i = 1; i < flow->n; i++)
    flow->dominators[i] = NONE;

  for (bool changed = true; changed && flow->steps < STEPS_MAX;) {
    changed = false;
    for (size_t i = 1; i < flow->n; i++) {
      int dominator = NONE;
      for (int edge = flow->first_in[i]; edge != NONE; edge = flow->next_in[edge]) {
        flow->steps++;
        if (flow->dominators[edge / 2] != NONE)
          dominator = dominator == NONE ? edge / 2 : common_dominator(flow, edge / 2, dominator);
      }
      changed = changed || flow->dominators[i] != dominator;
      flow->dominators[i] = dominator;
    }
  }
}

/* Fills the loops of the function; *ret_loop_of: the innermost loop of each instruction, or
 * NONE. */
static bool loops_find(const struct reading *reading, struct isa_function *function,
                       int **ret_loop_of, struct error *error) {
  cleanup_by(flow_release) struct flow flow = {0};
  cleanup_free int *loop_of = blocks_make(&flow, reading);
  order_make(&flow);
  dominators_make(&flow);

  struct loop {
    int head, parent;
  };
  cleanup_free struct loop *loops = xcalloc(flow.n, sizeof *loops);
  cleanup_free int *loop_at = xcalloc(flow.n, sizeof *loop_at); /* of each place */
  cleanup_free int *stack = xcalloc(4 * flow.n + 4, sizeof *stack);
  for (size_t i = 0; i < flow.n; i++)
    loop_at[i] = NONE;

  /* From the last place to the first: the heads of inner loops come later than those of outer
   * ones, so that a loop comes after those inside it. */
  for (int head = (int)flow.n - 1; head >= 0; head--) {
    size_t depth = 0;
    for (int edge = flow.first_in[head]; edge != NONE; edge = flow.next_in[edge])
      if (edge / 2 >= head && common_dominator(&flow, head, edge / 2) == head)
        stack[depth++] = edge / 2;
    if (!depth)
      continue;
    int loop = (int)function->n_loops++;
    loops[loop] = (struct loop){head, NONE};
    loop_at[head] = loop;

    /* The body is found backwards from the ways back; an inner loop is skipped as a whole. */
    while (depth && flow.steps++ < STEPS_MAX) {
      int place = stack[--depth], inner = loop_at[place];
      if (inner == NONE) {
        loop_at[place] = loop;
      } else {
        while (loops[inner].parent != NONE && flow.steps++ < STEPS_MAX)
          inner = loops[inner].parent;
        if (inner == loop)
          continue;
        loops[inner].parent = loop;
        place = loops[inner].head;
      }
      for (int edge = flow.first_in[place]; edge != NONE; edge = flow.next_in[edge])
        stack[depth++] = edge / 2;
    }
  }

  if (flow.steps >= STEPS_MAX)
    return error_set(error,
                     "the branches of these %zu instructions are too complex to find their loops",
                     reading->n);

  function->loops = xcalloc(function->n_loops, sizeof *function->loops);
  for (size_t i = function->n_loops; i-- > 0;) {
    const struct block *block = &flow.blocks[flow.order[loops[i].head]];
    function->loops[i] = (struct isa_loop){
        .at = reading->instructions[block->first].address - reading->start,
        .depth = loops[i].parent == NONE ? 1 : function->loops[loops[i].parent].depth + 1};
  }

  for (size_t i = 0; i < reading->n; i++) {
    int place = flow.blocks[loop_of[i]].order;
    loop_of[i] = place == NONE ? NONE : loop_at[place];
  }

  *ret_loop_of = TAKE(loop_of);
  return true;
}

/* Counts */

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

/* The number of accesses that move less than `bytes_below` per lane. */
static int64_t sum_below(const int64_t widths[ISA_WIDTHS], int64_t bytes_below) {
  int64_t total = 0;
  for (int i = 0; i < ISA_WIDTHS; i++)
    total += isa_width_bytes[i] < bytes_below ? widths[i] : 0;
  return total;
}

static int64_t sum_all(const int64_t widths[ISA_WIDTHS]) { return sum_below(widths, INT64_MAX); }

static int64_t memory_accesses(const struct isa_counts *counts) {
  return sum_all(counts->global_loads) + sum_all(counts->global_stores) +
         sum_all(counts->lds_reads) + sum_all(counts->lds_writes) + counts->atomics;
}

static void matrix_count(struct isa_function *function, const struct isa_instruction *instruction,
                         bool is_in_loop) {
  size_t i = 0, length = instruction->name_length;
  while (i < function->n_matrix &&
         (strlen(function->matrix[i].name) != length ||
          memcmp(function->matrix[i].name, instruction->name, length) != 0))
    i++;
  if (i == ISA_MATRIX_KINDS_MAX)
    return;
  if (i == function->n_matrix) {
    function->n_matrix++;
    function->matrix[i].name = xstrndup(instruction->name, length);
  }

  function->matrix[i].count++;
  function->matrix[i].count_in_loops += is_in_loop;
}

static int compare_loops(const void *a, const void *b) {
  const struct isa_loop *first = a, *second = b;
  return (first->at > second->at) - (first->at < second->at);
}

/* "16 × 2, 4 × 8": bytes × times, of what is narrower than `bytes_below`. */
static char *widths_format(const int64_t widths[ISA_WIDTHS], int64_t bytes_below) {
  char *text = xstrdup("");
  for (int i = ISA_WIDTHS - 1; i >= 0; i--)
    if (widths[i] && isa_width_bytes[i] < bytes_below)
      text_append(&text, "%s%" PRId64 " × %" PRId64, text[0] ? ", " : "", isa_width_bytes[i],
                  widths[i]);
  return text;
}

/* Adds a finding when some of `widths` are narrower than `bytes_wanted`. */
static void find_narrow(struct review_findings *findings, enum review_severity severity,
                        const char *where, const int64_t widths[ISA_WIDTHS], int64_t bytes_wanted,
                        const char *what, const char *advice) {
  int64_t narrow = sum_below(widths, bytes_wanted);
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
              "(divisible by 16), and give each thread 16 bytes of it");
  find_narrow(findings, severity, where, counts->lds_reads, 8, "LDS reads",
              "b128 or b64 is expected: the order in LDS is not the order in which the operand is "
              "read; store it transposed, or try kpack 2");
  find_narrow(findings, REVIEW_HINT, where, counts->lds_writes, 8, "LDS writes",
              "b128 or b64 is expected");

  if (counts->scratch_loads + counts->scratch_stores)
    review_find(findings, REVIEW_WARNING, SOURCE_AMD_ISA,
                "%s: %" PRId64 " loads from and %" PRId64
                " stores to scratch, which is memory: fewer registers must be live (smaller tiles, "
                "more warps, no waves_per_eu)",
                where, counts->scratch_loads, counts->scratch_stores);

  if (counts->waits_for_loads && sum_all(counts->global_loads))
    review_find(findings, REVIEW_HINT, SOURCE_AMD_ISA,
                "%s: %" PRId64 " of %" PRId64
                " waits are for all global loads in flight (vmcnt(0)); with more stages some loads "
                "would stay in flight",
                where, counts->waits_for_loads, counts->waits);
  if (counts->accvgpr_moves)
    review_find(findings, loop->is_hot ? REVIEW_WARNING : REVIEW_HINT, SOURCE_AMD_ISA,
                "%s: %" PRId64 " moves between VGPRs and AGPRs: registers are scarce, or the "
                "accumulator is converted in the loop",
                where, counts->accvgpr_moves);
  if (counts->flat)
    review_find(findings, REVIEW_HINT, SOURCE_AMD_ISA,
                "%s: %" PRId64 " flat accesses, which wait for LDS and global memory alike: the "
                "compiler does not know that their pointers are global",
                where, counts->flat);
}

static void review_function(struct isa_function *function, const struct code_resources *resources) {
  struct review_findings *findings = &function->findings;
  for (size_t i = 0; i < function->n_loops; i++)
    review_loop(findings, &function->loops[i]);
  find_narrow(findings, REVIEW_HINT, "the kernel", function->counts.global_stores, 8,
              "global stores",
              "a conversion of the layout through LDS before them would make them wider (no "
              "OPTIMIZE_EPILOGUE)");

  for (size_t i = 0; i < function->n_matrix; i++)
    if (string_starts(function->matrix[i].name, "v_mfma_") &&
        strstr(function->matrix[i].name, "_32x32x"))
      review_find(findings, REVIEW_HINT, SOURCE_AMD_GUIDE,
                  "%s is used; for a GEMM the 16x16 instructions are faster on MI300X "
                  "(matrix_instr_nonkdim 16); for two fused GEMMs 32x32 may be",
                  function->matrix[i].name);

  if (!resources)
    return;
  if (code_resources_spills(resources) > 0 && resources->vgpr_spills != CODE_UNKNOWN)
    review_find(findings, REVIEW_WARNING, SOURCE_AMD_GUIDE,
                "%" PRId64 " VGPRs and %" PRId64 " SGPRs are spilled: fewer registers must be live "
                "(smaller tiles, more warps, no waves_per_eu)",
                resources->vgpr_spills, resources->sgpr_spills);
  else if (resources->scratch_bytes > 0)
    review_find(findings, REVIEW_HINT, SOURCE_AMD_GUIDE,
                "%" PRId64 " bytes of scratch a lane and no spills: an array is indexed by a value "
                "that is not known at compile time",
                resources->scratch_bytes);
}

static bool function_make(struct isa_function *function, const struct reading *reading,
                          const struct code_object *object, struct error *error) {
  cleanup_free int *loop_of = NULL;
  if (!loops_find(reading, function, &loop_of, error))
    return error_prefix(error, "%s: ", function->name);

  function->matrix = xcalloc(ISA_MATRIX_KINDS_MAX, sizeof *function->matrix);
  for (size_t i = 0; i < reading->n; i++) {
    const struct isa_instruction *instruction = &reading->instructions[i];
    count(&function->counts, instruction);
    if (loop_of[i] != NONE)
      count(&function->loops[loop_of[i]].counts, instruction);
    if (instruction->class == ISA_MATRIX)
      matrix_count(function, instruction, loop_of[i] != NONE);
  }

  /* The hot loop has the most matrix instructions, else the most accesses (isa_review.h). */
  qsort(function->loops, function->n_loops, sizeof *function->loops, compare_loops);
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

  const struct code_resources *resources = NULL;
  for (size_t i = 0; object && i < object->n_kernels && !resources; i++)
    if (string_equal(object->kernels[i].name, function->name))
      resources = &object->kernels[i].resources;

  review_function(function, resources);
  return true;
}

bool isa_review_make(const char *text, const struct code_object *object,
                     struct isa_review **ret_review, struct error *error) {
  cleanup_isa_review struct isa_review *review = xcalloc(1, sizeof *review);
  cleanup_by(reading_release) struct reading reading = {0};
  size_t instructions = 0, length = 0;
  const char *name = NULL; /* of the function that is read; what comes before it does not count */
  for (const char *line = text;;) {
    const char *label = NULL;
    size_t label_length = 0;
    uint64_t address = 0;
    struct isa_instruction instruction;
    if (!*line || isa_decode_label(line, &label, &label_length, &address)) {
      if (name && reading.n) {
        struct isa_function *function = APPEND(review->functions, review->n);
        *function = (struct isa_function){.name = name_plain(name, length)};
        if (!function_make(function, &reading, object, error))
          return false;
      }
      if (!*line)
        break;

      instructions = name ? instructions : 0;
      name = label;
      length = label_length;
      reading.start = address;
      reading.n = 0;
    } else if (isa_decode(line, &instruction)) {
      if (++instructions > ISA_INSTRUCTIONS_MAX)
        return error_set(error, "the disassembly has more than %d instructions",
                         ISA_INSTRUCTIONS_MAX);
      if (reading.n && instruction.address <= reading.instructions[reading.n - 1].address)
        return error_set(error, "the disassembly's addresses do not rise at %" PRIx64,
                         instruction.address);
      *APPEND(reading.instructions, reading.n) = instruction;
    }

    line += strcspn(line, "\n");
    line += *line == '\n';
  }

  if (!review->n)
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
  for (size_t i = 0; i < review->n; i++)
    if (string_equal(review->functions[i].name, name))
      return &review->functions[i];
  return NULL;
}

/* Members that are one number: X(member, heading) */
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

/* Members that are one number for each width. */
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
      json_put(json, name, json_integer(widths[i]));
  }
  return json;
}

static json_t *counts_to_json(const struct isa_counts *counts) {
  json_t *json = json_object();
#define X(member, heading) json_put(json, #member, json_integer(counts->member));
  PLAIN_COUNTS(X)
#undef X
#define X(member, heading) json_put(json, #member, widths_to_json(counts->member));
  WIDTH_COUNTS(X)
#undef X
  return json;
}

json_t *isa_function_to_json(const struct isa_function *function) {
  json_t *json = counts_to_json(&function->counts), *loops = json_array(), *matrix = json_object();
  for (size_t i = 0; i < function->n_matrix; i++)
    json_put(matrix, function->matrix[i].name,
             json_pack("{s:I, s:I}", "count", (json_int_t)function->matrix[i].count, "in_loops",
                       (json_int_t)function->matrix[i].count_in_loops));

  for (size_t i = 0; i < function->n_loops; i++) {
    const struct isa_loop *loop = &function->loops[i];
    json_t *item = counts_to_json(&loop->counts);
    json_put(item, "at", json_integer((json_int_t)loop->at));
    json_put(item, "depth", json_integer(loop->depth));
    json_put(item, "hot", json_boolean(loop->is_hot));
    json_push(loops, item);
  }

  json_put(json, "matrix_instructions", matrix);
  json_put(json, "loops", loops);
  json_put(json, "findings", review_findings_to_json(&function->findings));
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
