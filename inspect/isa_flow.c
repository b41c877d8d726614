/* Blocks, dominators (Cooper, Harvey, Kennedy: "A simple, fast dominance algorithm") and natural
 * loops.
 *
 * Blocks are numbered by address, and once more in reverse postorder of a walk from the first one;
 * what the walk does not reach belongs to no loop. Memory: see isa_flow.h. Threads: any. */
#include "inspect/isa_flow.h"

#define NONE (-1)
#define STEPS_MAX 50000000 /* over all walks of one function */

struct block {
  size_t first;      /* instruction */
  int successors[2]; /* blocks, or NONE */
  int order;         /* in reverse postorder, or NONE: not reached */
};

struct graph {
  size_t n_blocks;
  struct block *blocks;
  size_t n_order;
  int *order;           /* blocks in reverse postorder */
  int *dominators;      /* of each place in the order: the place of its immediate dominator */
  size_t *before_first; /* of each place: where its predecessors begin in `before`; one more at the
                           end */
  int *before;          /* places in the order */
  int64_t steps;
};

static void graph_release(struct graph *graph) {
  free(graph->blocks);
  free(graph->order);
  free(graph->dominators);
  free(graph->before_first);
  free(graph->before);
}

/* The instruction at `address`, or n. */
static size_t instruction_at(const struct isa_instruction *instructions, size_t n,
                             uint64_t address) {
  size_t low = 0, high = n;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (instructions[middle].address < address)
      low = middle + 1;
    else
      high = middle;
  }
  return low < n && instructions[low].address == address ? low : n;
}

static bool goes_elsewhere(const struct isa_instruction *instruction) {
  return instruction->flow == ISA_BRANCH || instruction->flow == ISA_JUMP;
}

/* Blocks begin at targets of branches and behind what does not simply go on. *ret_block_of: of each
 * instruction. */
static void blocks_make(struct graph *graph, const struct isa_instruction *instructions, size_t n,
                        int **ret_block_of) {
  cleanup_free bool *leads = xcalloc(n, sizeof *leads);
  leads[0] = true;
  for (size_t i = 0; i < n; i++) {
    if (instructions[i].flow != ISA_NEXT && i + 1 < n)
      leads[i + 1] = true;
    size_t target = goes_elsewhere(&instructions[i])
                        ? instruction_at(instructions, n, instructions[i].target)
                        : n;
    if (target < n)
      leads[target] = true;
  }
  int *block_of = xcalloc(n, sizeof *block_of);
  for (size_t i = 0; i < n; i++) {
    graph->n_blocks += leads[i];
    block_of[i] = (int)graph->n_blocks - 1;
  }
  graph->blocks = xcalloc(graph->n_blocks, sizeof *graph->blocks);
  for (size_t i = 0; i < n; i++) {
    struct block *block = &graph->blocks[block_of[i]];
    if (leads[i])
      *block = (struct block){.first = i, .successors = {NONE, NONE}, .order = NONE};
    bool is_last = i + 1 == n || leads[i + 1];
    if (!is_last)
      continue;
    if (i + 1 < n && (instructions[i].flow == ISA_NEXT || instructions[i].flow == ISA_BRANCH))
      block->successors[0] = block_of[i + 1];
    size_t target = goes_elsewhere(&instructions[i])
                        ? instruction_at(instructions, n, instructions[i].target)
                        : n;
    if (target < n)
      block->successors[1] = block_of[target];
  }
  *ret_block_of = block_of;
}

/* Depth-first from block 0 with a stack of our own: a block is numbered when all behind it are. */
static void order_make(struct graph *graph) {
  cleanup_free int *stack = xcalloc(graph->n_blocks + 1, sizeof *stack);
  cleanup_free uint8_t *next = xcalloc(graph->n_blocks, sizeof *next); /* successor to look at */
  cleanup_free bool *seen = xcalloc(graph->n_blocks, sizeof *seen);
  graph->order = xcalloc(graph->n_blocks, sizeof *graph->order);
  size_t depth = 0, n = 0;
  stack[depth++] = 0;
  seen[0] = true;
  while (depth) {
    int block = stack[depth - 1];
    if (next[block] == 2) {
      graph->order[n++] = block;
      depth--;
      continue;
    }
    int successor = graph->blocks[block].successors[next[block]++];
    if (successor != NONE && !seen[successor]) {
      seen[successor] = true;
      stack[depth++] = successor;
    }
  }
  for (size_t i = 0; i < n / 2; i++) {
    int other = graph->order[i];
    graph->order[i] = graph->order[n - 1 - i];
    graph->order[n - 1 - i] = other;
  }
  for (size_t i = 0; i < n; i++)
    graph->blocks[graph->order[i]].order = (int)i;
  graph->n_order = n;
}

static void predecessors_make(struct graph *graph) {
  graph->before_first = xcalloc(graph->n_order + 1, sizeof *graph->before_first);
  graph->before = xcalloc(2 * graph->n_order, sizeof *graph->before);
  cleanup_free size_t *filled = xcalloc(graph->n_order, sizeof *filled);
  for (int pass = 0; pass < 2; pass++) {
    for (size_t i = 0; i < graph->n_order; i++) {
      for (int j = 0; j < 2; j++) {
        int successor = graph->blocks[graph->order[i]].successors[j];
        if (successor == NONE)
          continue;
        int place = graph->blocks[successor].order;
        if (pass == 0)
          graph->before_first[place + 1]++;
        else
          graph->before[graph->before_first[place] + filled[place]++] = (int)i;
      }
    }
    for (size_t i = 0; pass == 0 && i < graph->n_order; i++)
      graph->before_first[i + 1] += graph->before_first[i];
  }
}

/* The nearest place that dominates both. */
static int intersect(struct graph *graph, int a, int b) {
  while (a != b && graph->steps < STEPS_MAX) {
    while (a > b && graph->steps++ < STEPS_MAX)
      a = graph->dominators[a];
    while (b > a && graph->steps++ < STEPS_MAX)
      b = graph->dominators[b];
  }
  return a;
}

static void dominators_make(struct graph *graph) {
  graph->dominators = xcalloc(graph->n_order, sizeof *graph->dominators);
  for (size_t i = 1; i < graph->n_order; i++)
    graph->dominators[i] = NONE;
  for (bool changed = true; changed && graph->steps < STEPS_MAX;) {
    changed = false;
    for (size_t i = 1; i < graph->n_order; i++) {
      int dominator = NONE;
      for (size_t j = graph->before_first[i]; j < graph->before_first[i + 1]; j++) {
        graph->steps++;
        int before = graph->before[j];
        if (graph->dominators[before] != NONE)
          dominator = dominator == NONE ? before : intersect(graph, before, dominator);
      }
      changed = changed || graph->dominators[i] != dominator;
      graph->dominators[i] = dominator;
    }
  }
}

static bool dominates(struct graph *graph, int a, int b) {
  while (b > a && graph->steps++ < STEPS_MAX)
    b = graph->dominators[b];
  return a == b;
}

/* The outermost loop found so far around `loop`. */
static int outermost(struct graph *graph, const struct isa_flow_loops *loops, int loop) {
  while (loops->loops[loop].parent != ISA_NO_LOOP && graph->steps++ < STEPS_MAX)
    loop = loops->loops[loop].parent;
  return loop;
}

/* What flows into the loop's ways back, without its head: walked from behind. Loops inside were
 * found before and are taken whole. `heads` of loops, `loop_of` of places. */
static void body_take(struct graph *graph, struct isa_flow_loops *loops, const int *heads,
                      int *loop_of, int loop, int *stack, size_t depth) {
  while (depth && graph->steps < STEPS_MAX) {
    int place = stack[--depth], from = place;
    graph->steps++;
    if (loop_of[place] == ISA_NO_LOOP) {
      loop_of[place] = loop;
    } else {
      int inner = outermost(graph, loops, loop_of[place]);
      if (inner == loop)
        continue;
      loops->loops[inner].parent = loop;
      from = heads[inner];
    }
    for (size_t j = graph->before_first[from]; j < graph->before_first[from + 1]; j++)
      stack[depth++] = graph->before[j];
  }
}

/* Inner heads come later in the order than outer ones, so the places are walked from the last. */
static void loops_make(struct graph *graph, const struct isa_instruction *instructions,
                       int *loop_of, struct isa_flow_loops *loops) {
  size_t capacity = 0, heads_capacity = 0;
  cleanup_free int *heads = NULL;
  cleanup_free int *stack = xcalloc(4 * graph->n_order + 4, sizeof *stack);
  for (int head = (int)graph->n_order - 1; head >= 0; head--) {
    size_t depth = 0;
    for (size_t j = graph->before_first[head]; j < graph->before_first[head + 1]; j++) {
      if (graph->before[j] >= head && dominates(graph, head, graph->before[j]))
        stack[depth++] = graph->before[j];
    }
    if (!depth)
      continue;
    GROW(loops->loops, loops->n, capacity);
    GROW(heads, loops->n, heads_capacity);
    int loop = (int)loops->n;
    heads[loops->n] = head;
    loops->loops[loops->n++] = (struct isa_flow_loop){
        .head = instructions[graph->blocks[graph->order[head]].first].address,
        .parent = ISA_NO_LOOP};
    if (loop_of[head] == ISA_NO_LOOP)
      loop_of[head] = loop;
    body_take(graph, loops, heads, loop_of, loop, stack, depth);
  }
}

bool isa_flow_find(const struct isa_instruction *instructions, size_t n, struct isa_flow_loops *ret,
                   struct error *error) {
  *ret = (struct isa_flow_loops){0};
  if (!n)
    return true;
  __attribute__((cleanup(graph_release))) struct graph graph = {0};
  cleanup_isa_flow struct isa_flow_loops loops = {0};
  cleanup_free int *block_of = NULL;
  blocks_make(&graph, instructions, n, &block_of);
  order_make(&graph);
  predecessors_make(&graph);
  dominators_make(&graph);
  cleanup_free int *loop_of = xcalloc(graph.n_order, sizeof *loop_of);
  for (size_t i = 0; i < graph.n_order; i++)
    loop_of[i] = ISA_NO_LOOP;
  loops_make(&graph, instructions, loop_of, &loops);
  if (graph.steps >= STEPS_MAX)
    return error_set(
        error, "the branches of these %zu instructions are too tangled to find their loops", n);
  for (size_t i = loops.n; i-- > 0;)
    loops.loops[i].depth =
        loops.loops[i].parent == ISA_NO_LOOP ? 1 : loops.loops[loops.loops[i].parent].depth + 1;
  loops.loop_of = xcalloc(n, sizeof *loops.loop_of);
  for (size_t i = 0; i < n; i++) {
    int place = graph.blocks[block_of[i]].order;
    loops.loop_of[i] = place == NONE ? ISA_NO_LOOP : loop_of[place];
  }
  *ret = loops;
  loops = (struct isa_flow_loops){0};
  return true;
}

void isa_flow_release(struct isa_flow_loops *loops) {
  free(loops->loops);
  free(loops->loop_of);
}
