/* Tokens routed to experts. */
#include <criterion/criterion.h>

#include "agent/measure/routing.h"

struct routed_case {
  int64_t tokens, top_k, experts, block;
  bool by_row;
  double skew;
};
static const struct routed_case cases[] = {
    {1, 1, 1, 16, false, 0},   {1, 8, 8, 16, false, 0},      {3, 2, 8, 64, false, 0},
    {512, 2, 8, 16, false, 0}, {512, 8, 256, 128, false, 1}, {4096, 8, 256, 64, false, 8},
    {4, 8, 256, 16, true, 0},  {7, 4, 5, 1, false, 2},       {100, 64, 64, 4, false, 3},
};

/* The three arguments of one routing, with room for the most. */
struct arguments {
  int64_t n, n_blocks; /* of the elements */
  int32_t *ids, *experts, count;
};

static struct arguments arguments_of(const struct routed_case *of, uint64_t seed) {
  int64_t rows = of->tokens * of->top_k;
  struct arguments arguments = {.n = rows * of->block, .n_blocks = rows + 3};
  struct routing routing = {.tokens = of->tokens,
                            .top_k = of->top_k,
                            .experts = of->experts,
                            .block = of->block,
                            .by_row = of->by_row,
                            .skew = of->skew};
  arguments.ids = xcalloc((size_t)arguments.n, sizeof(int32_t));
  arguments.experts = xcalloc((size_t)arguments.n_blocks, sizeof(int32_t));
  routing.what = ROUTED_TOKENS;
  routing_fill(&routing, DTYPE_INT32, arguments.n, seed, arguments.ids);
  routing.what = ROUTED_EXPERTS;
  routing_fill(&routing, DTYPE_INT32, arguments.n_blocks, seed, arguments.experts);
  routing.what = ROUTED_COUNT;
  routing_fill(&routing, DTYPE_INT32, 1, seed, &arguments.count);
  return arguments;
}

static void arguments_release(struct arguments *arguments) {
  free(arguments->ids);
  free(arguments->experts);
}

Test(routing, each_row_occurs_once_and_the_rest_is_padding) {
  list_foreach (of, cases) {
    int64_t rows = of->tokens * of->top_k, n_found = 0;
    struct arguments found = arguments_of(of, 7);
    cleanup_free int64_t *times = xcalloc((size_t)rows, sizeof *times);
    cr_assert(found.count % of->block == 0 && found.count >= rows && found.count <= found.n);
    for (int64_t i = 0; i < found.n; i++) {
      cr_assert(found.ids[i] >= 0 && found.ids[i] <= rows);
      if (found.ids[i] == rows)
        continue;
      times[found.ids[i]]++;
      n_found++;
      cr_assert(i < found.count, "an id is behind the count");
    }
    cr_expect_eq(n_found, rows);
    for (int64_t row = 0; row < rows; row++)
      cr_assert_eq(times[row], 1);
    arguments_release(&found);
  }
}

Test(routing, blocks_are_of_one_expert_and_rows_rise_within_it) {
  list_foreach (of, cases) {
    int64_t rows = of->tokens * of->top_k;
    struct arguments found = arguments_of(of, 7);
    for (int64_t b = 0; b < found.n_blocks; b++) {
      bool is_used = b < found.count / of->block;
      int32_t expert = found.experts[b], before = b ? found.experts[b - 1] : 0;
      cr_assert(is_used ? expert >= 0 && expert < of->experts : expert == -1);
      cr_assert(!is_used || of->by_row || expert >= before, "experts are in order");
      if (!is_used)
        continue;
      const int32_t *ids = found.ids + b * of->block;
      cr_assert_lt(ids[0], rows, "no block is empty");
      bool is_same = b > 0 && expert == before && !of->by_row;
      cr_assert(!is_same || (ids[-1] < ids[0] && ids[-1] < rows), "only the last is padded");
      for (int64_t i = 1; i < of->block; i++)
        cr_assert(ids[i] > ids[i - 1] || (ids[i] == rows && ids[i - 1] == rows));
    }
    arguments_release(&found);
  }
}

Test(routing, a_token_goes_to_different_experts) {
  list_foreach (of, cases) {
    struct arguments found = arguments_of(of, 7);
    size_t n = (size_t)(of->tokens * of->experts);
    cleanup_free bool *goes = xcalloc(n, sizeof *goes);
    for (int64_t i = 0; i < found.count; i++) {
      int64_t token = found.ids[i] / of->top_k;
      if (token == of->tokens)
        continue;
      bool *to = &goes[token * of->experts + found.experts[i / of->block]];
      cr_assert_not(*to);
      *to = true;
    }
    arguments_release(&found);
  }
}

Test(routing, rows_have_blocks_of_their_own_in_order) {
  struct arguments found = arguments_of(&cases[6], 7);
  for (int64_t row = 0; row < 32; row++)
    cr_expect_eq(found.ids[row * 16], row);
  cr_expect_eq(found.count, 32 * 16);
  arguments_release(&found);
}

/* How many rows the busiest expert has. */
static int64_t largest_share(double skew, uint64_t seed, int32_t *ret_expert) {
  struct routed_case of = {4096, 2, 64, 1, false, skew};
  struct arguments found = arguments_of(&of, seed);
  int64_t rows[64] = {0}, largest = 0;
  for (int64_t i = 0; i < found.count; i++)
    if (++rows[found.experts[i]] > largest) {
      largest = rows[found.experts[i]];
      *ret_expert = found.experts[i];
    }
  arguments_release(&found);
  return largest;
}

Test(routing, is_uniform_or_skewed_and_another_with_each_seed) {
  int32_t experts[8], n_others = 0;
  for (uint64_t seed = 0; seed < 8; seed++) {
    int64_t plain = largest_share(0, seed, &experts[seed]);
    cr_expect(plain > 128 && plain < 200, "%lld of 8192 rows, 128 on average", (long long)plain);
    int64_t skewed = largest_share(2, seed, &experts[seed]);
    cr_expect(skewed > 3500 && skewed <= 4096, "nearly every token's: %lld", (long long)skewed);
    n_others += experts[seed] != experts[0];
  }
  cr_expect_gt(n_others, 0);

  struct arguments one = arguments_of(&cases[4], 7), same = arguments_of(&cases[4], 7),
                   other = arguments_of(&cases[4], 8);
  size_t bytes = (size_t)one.n * sizeof(int32_t);
  cr_expect_eq(memcmp(one.ids, same.ids, bytes), 0);
  cr_expect_neq(memcmp(one.ids, other.ids, bytes), 0);
  arguments_release(&one);
  arguments_release(&same);
  arguments_release(&other);
}
