/* The review of TTGIR: a module of ours that is kept, small texts for each decision, and what
 * Triton makes today. */
#include <criterion/criterion.h>

#include "common/base/file.h"
#include "inspect/ttgir_review.h"

static struct ttgir_review *review_of(const char *text) {
  struct ttgir_review *review = NULL;
  struct error error;
  cr_assert(ttgir_review_make(text, strlen(text), &review, &error), "%s", error.message);
  return review;
}

static bool finds(const struct ttgir_review *review, enum review_severity severity,
                  const char *words) {
  for (size_t i = 0; i < review->findings.n; i++) {
    if (review->findings.items[i].severity == severity &&
        strstr(review->findings.items[i].sentence, words))
      return true;
  }
  return false;
}

/* A module with these layouts and, in a loop, these operations. */
static struct ttgir_review *review_of_loop(const char *layouts, int num_warps,
                                           const char *operations) {
  cleanup_free char *text =
      xasprintf("%s\nmodule attributes {\"ttg.num-ctas\" = 1 : i32, \"ttg.num-warps\" = %d : i32, "
                "ttg.shared = 4096 : "
                "i32, ttg.target = \"hip:gfx942\", \"ttg.threads-per-warp\" = 64 : i32} {\n"
                "  tt.func public @f() {\n    scf.for %%i = %%a to %%b step %%c  : i32 {\n%s\n    "
                "}\n    tt.return\n  }\n}\n",
                layouts, num_warps, operations);
  return review_of(text);
}

#define BLOCKED                                                                                    \
  "#a = #ttg.blocked<{sizePerThread = [1, 4], threadsPerWarp = [4, 16], warpsPerCTA = [4, 1], "    \
  "order = [1, 0]}>\n"
#define MMA                                                                                        \
  "#m = #ttg.amd_mfma<{version = 3, warpsPerCTA = [2, 2], instrShape = [32, 32, 8], isTransposed " \
  "= true}>\n"

/* How a conversion between two layouts passes, for four warps. */
static enum ttgir_conversion conversion_of(const char *layouts, const char *from, const char *to) {
  cleanup_free char *operation = xasprintf("      %%y = ttg.convert_layout %%x : tensor<64x64xf32, "
                                           "%s> -> tensor<64x64xf32, %s> loc(#loc1)",
                                           from, to);
  cleanup_ttgir_review struct ttgir_review *review = review_of_loop(layouts, 4, operation);
  cr_assert_eq(review->n_converts, 1u);
  cr_assert_eq(review->converts[0].loop_depth, 1);
  return review->converts[0].conversion;
}

Test(ttgir_review, reads_what_the_module_states) {
  cleanup_ttgir_review struct ttgir_review *review =
      review_of_loop(BLOCKED MMA "#loc = loc(\"x.py\":1:0)\n", 8, "");
  cr_assert_eq(review->num_warps, 8);
  cr_assert_eq(review->num_ctas, 1);
  cr_assert_eq(review->threads_per_warp, 64);
  cr_assert_eq(review->shared, 4096);
  cr_assert_str_eq(review->target, "hip:gfx942");
  cr_assert_eq(review->n_layouts, 2u);
  cr_assert_str_eq(review->layouts[1].name, "#m");
  cr_assert_str_eq(review->layouts[1].text, "amd_mfma<{version = 3, warpsPerCTA = [2, 2], "
                                            "instrShape = [32, 32, 8], isTransposed = true}>");
}

Test(ttgir_review, reads_the_older_dialect) {
  cleanup_ttgir_review struct ttgir_review *review = review_of(
      "#b = #triton_gpu.blocked<{sizePerThread = [1], threadsPerWarp = [64], warpsPerCTA = [4], "
      "order = [0]}>\n"
      "module attributes {\"triton_gpu.num-warps\" = 4 : i32, triton_gpu.shared = 64 : i32} {\n"
      "  %y = triton_gpu.convert_layout %x : tensor<64xf32, #b> -> tensor<64xf32, #b>\n}\n");
  cr_assert_eq(review->num_warps, 4);
  cr_assert_eq(review->shared, 64);
  cr_assert_eq(review->threads_per_warp, TTGIR_UNKNOWN);
  cr_assert_eq(review->all.conversions[TTGIR_REGISTERS], 1);
}

Test(ttgir_review, a_conversion_in_which_warps_exchange_elements_passes_through_lds) {
  cr_assert_eq(
      conversion_of(
          BLOCKED
          "#b = #ttg.blocked<{sizePerThread = [4, 1], threadsPerWarp = [16, 4], warpsPerCTA = [1, "
          "4], order = [0, 1]}>\n",
          "#a", "#b"),
      TTGIR_LDS);
}

Test(ttgir_review, a_conversion_between_kinds_of_layouts_passes_through_lds) {
  cr_assert_eq(conversion_of(BLOCKED MMA, "#m", "#a"), TTGIR_LDS);
  cr_assert_eq(
      conversion_of(BLOCKED MMA, "#a", "#ttg.dot_op<{opIdx = 0, parent = #m, kWidth = 4}>"),
      TTGIR_LDS);
}

Test(ttgir_review, a_conversion_in_which_threads_keep_their_elements_moves_registers) {
  /* The same threads hold the same elements: the tensor is as large as the layout, only the
   * registers' order differs. */
  cr_assert_eq(conversion_of("#a = #ttg.blocked<{sizePerThread = [16, 4], threadsPerWarp = [4, "
                             "16], warpsPerCTA = [1, 1], "
                             "order = [1, 0]}>\n"
                             "#b = #ttg.linear<{register = [[1, 0], [2, 0], [0, 1], [0, 2]], lane "
                             "= [[0, 4], [0, 8], [0, 16], "
                             "[0, 32], [16, 0], [32, 0]], warp = [], block = []}>\n",
                             "#a", "#b"),
               TTGIR_REGISTERS);
  cr_assert_eq(
      conversion_of(
          BLOCKED
          "#b = #ttg.blocked<{sizePerThread = [1, 4], threadsPerWarp = [4, 16], warpsPerCTA = [4, "
          "1], order = [1, 0]}>\n",
          "#a", "#b"),
      TTGIR_REGISTERS);
}

Test(ttgir_review, a_conversion_inside_a_warp_may_pass_through_lds) {
  cr_assert_eq(conversion_of("#a = #ttg.blocked<{sizePerThread = [1, 1], threadsPerWarp = [4, 16], "
                             "warpsPerCTA = [4, 1], order "
                             "= [1, 0]}>\n"
                             "#b = #ttg.blocked<{sizePerThread = [1, 1], threadsPerWarp = [4, 16], "
                             "warpsPerCTA = [4, 1], order "
                             "= [0, 1]}>\n",
                             "#a", "#b"),
               TTGIR_MAY);
}

Test(ttgir_review, an_undecided_conversion_may_pass_through_lds) {
  /* The result of a dot as an operand; slices of MFMA layouts; copies in several threads; one warp;
   * no layout at all. */
  cr_assert_eq(conversion_of(MMA, "#m", "#ttg.dot_op<{opIdx = 0, parent = #m, kWidth = 4}>"),
               TTGIR_MAY);
  cr_assert_eq(conversion_of(BLOCKED MMA, "#ttg.slice<{dim = 0, parent = #m}>", "#a"), TTGIR_MAY);
  cr_assert_eq(conversion_of(BLOCKED "#b = #ttg.blocked<{sizePerThread = [1, 4], threadsPerWarp = "
                                     "[4, 16], warpsPerCTA = [4, 1], "
                                     "order = [0, 1]}>\n",
                             "#ttg.slice<{dim = 2, parent = #ttg.blocked<{sizePerThread = [1, 1, "
                             "1], threadsPerWarp = [4, 4, "
                             "4], warpsPerCTA = [4, 1, 1], order = [2, 1, 0]}>}>",
                             "#a"),
               TTGIR_MAY);
  cr_assert_eq(conversion_of(BLOCKED, "#a", "#unknown"), TTGIR_MAY);
  cleanup_ttgir_review struct ttgir_review *review = review_of_loop(
      BLOCKED MMA, 1,
      "      %y = ttg.convert_layout %x : tensor<64x64xf32, #m> -> tensor<64x64xf32, #a>");
  cr_assert_eq(review->converts[0].conversion, TTGIR_MAY);
}

Test(ttgir_review, a_layout_of_many_bytes_is_ignored) {
  /* Every line that names it would read it again. */
  cleanup_free char *spaces = xmalloc(5000);
  memset(spaces, ' ', 5000);
  cleanup_free char *layouts = xasprintf(BLOCKED MMA "#l = #ttg.amd_mfma<{%.5000s}>\n", spaces);
  cr_assert_eq(conversion_of(layouts, "#a", "#m"), TTGIR_LDS);
  cr_assert_eq(conversion_of(layouts, "#a", "#l"), TTGIR_MAY);
}

Test(ttgir_review, a_damaged_layout_is_ignored) {
  static const char *const damaged[] = {
      "#a = #ttg.blocked<{sizePerThread = [1, 4], threadsPerWarp = [4, 16]}>\n",
      "#a = #ttg.blocked<{sizePerThread = [1], threadsPerWarp = [4, 16], warpsPerCTA = [4, 1], "
      "order = [1, 0]}>\n",
      "#a = #ttg.blocked<{sizePerThread = [0, 4], threadsPerWarp = [4, 16], warpsPerCTA = [4, 1], "
      "order = [1, 0]}>\n",
      "#a = #ttg.blocked<{sizePerThread = [1, 4], threadsPerWarp = [4, 16], warpsPerCTA = [4, 1], "
      "order = [1, 2]}>\n",
      "#a = #ttg.blocked<{sizePerThread = [1, 4], threadsPerWarp = [4, 1048576], warpsPerCTA = [4, "
      "1], order = [1, "
      "0]}>\n",
      "#a = #ttg.blocked<{sizePerThread = [1, 99999999], threadsPerWarp = [4, 16], warpsPerCTA = "
      "[4, 1], order = [1, "
      "0]}>\n",
      "#a = #ttg.linear<{register = [], lane = [[0]], warp = [], block = []}>\n",
      "#a = #ttg.linear<{register = [], lane = 3, warp = []}>\n",
      "#a = #ttg.slice<{dim = 9, parent = #b}>\n",
      "#a = #ttg.slice<{parent = #b}>\n",
      "#a = #ttg.slice<{dim = 0, parent = #a}>\n",
  };
  for (size_t i = 0; i < ARRAY_LENGTH(damaged); i++) {
    cleanup_free char *layouts =
        xasprintf("%s#b = #ttg.blocked<{sizePerThread = [4, 1], threadsPerWarp = [16, 4], "
                  "warpsPerCTA = [1, 4], order = [0, 1]}>\n"
                  "#c = #ttg.slice<{dim = 1, parent = #m}>\n",
                  damaged[i]);
    cr_assert_eq(conversion_of(layouts, "#a", "#c"), TTGIR_MAY, "%s", damaged[i]);
  }
}

Test(ttgir_review, counts_operations_inside_and_outside_of_loops) {
  cleanup_ttgir_review struct ttgir_review *review = review_of(
      "module attributes {\"ttg.num-warps\" = 4 : i32} {\n"
      "  %a = tt.trans %x {order = array<i32: 1, 0>} : tensor<4x4xf32> -> tensor<4x4xf32> "
      "loc(#loc1)\n"
      "  %r = scf.while (%i = %c) : (i32) -> i32 {\n"
      "    %b = tt.trans %x {order = array<i32: 1, 0>} : tensor<4x4xf32> -> tensor<4x4xf32>\n"
      "  } do {\n"
      "    scf.if %c {\n"
      "      %m = ttg.memdesc_trans %y {order = array<i32: 1, 0>} : x -> y\n"
      "      ttg.local_store %a, %y : tensor<4x4xf32> -> x\n"
      "    } else {\n"
      "      %z = \"tt.reduce\"(%y) <{axis = 1 : i32}> ({\n      ^bb0(%p: f32 loc(#loc1), %q: f32 "
      "loc(#loc1)):\n"
      "        tt.reduce.return %p : f32\n      }) : (tensor<4xf32>) -> f32 loc(#loc)\n"
      "    }\n"
      "  } loc(#loc2)\n"
      "  %d = ttg.local_load %m : x -> y\n"
      "}\n");
  cr_assert_eq(review->all.transposes, 2);
  cr_assert_eq(review->in_loops.transposes, 1);
  cr_assert_eq(review->in_loops.view_transposes, 1);
  cr_assert_eq(review->in_loops.local_stores, 1);
  cr_assert_eq(review->in_loops.reductions, 1);
  cr_assert_eq(review->all.local_loads, 1);
  cr_assert_eq(review->in_loops.local_loads, 0);
}

Test(ttgir_review, warns_of_conversions_through_lds_in_loops) {
  cleanup_ttgir_review struct ttgir_review *review = review_of_loop(
      BLOCKED MMA, 4,
      "      %y = ttg.convert_layout %x : tensor<64x64xf32, #m> -> tensor<64x64xf32, #a>\n"
      "      %z = ttg.convert_layout %x : tensor<64x64xf32, #m> -> tensor<64x64xf32, "
      "#ttg.dot_op<{opIdx "
      "= 0, parent = #m}>>");
  cr_assert(finds(review, REVIEW_WARNING, "1 conversions of layouts in loops pass through LDS"));
  cr_assert(finds(review, REVIEW_HINT, "1 conversions of layouts in loops may pass through LDS"));
}

/* Two operands of a dot on their way from global memory, as Tritons before 3.0 print it. */
#define OPERANDS_THROUGH_LDS                                                                       \
  "%%10 = tt.load %%8 : tensor<128x64x!tt.ptr<f16>, #blocked>\n"                                   \
  "%%11 = tt.load %%9 : tensor<64x128x!tt.ptr<f16>, #blocked1>\n"                                  \
  "%%12 = triton_gpu.convert_layout %%10 : (tensor<128x64xf16, #blocked>) -> tensor<128x64xf16, "  \
  "#shared>\n"                                                                                     \
  "%%13 = triton_gpu.convert_layout %%12 : (tensor<128x64xf16, #shared>) -> tensor<128x64xf16, "   \
  "#triton_gpu.dot_op<{opIdx = 0, parent = #mfma, kWidth = 8}>>\n"                                 \
  "%%14 = triton_gpu.convert_layout %%11 : (tensor<64x128xf16, #blocked1>) -> tensor<64x128xf16, " \
  "#shared1>\n"                                                                                    \
  "%%15 = triton_gpu.convert_layout %%14 : (tensor<64x128xf16, #shared1>) -> tensor<64x128xf16, "  \
  "#triton_gpu.dot_op<{opIdx = 1, parent = #mfma, kWidth = 8}>>\n"                                 \
  "%%16 = tt.dot %%13, %%15, %%7 : tensor<128x64xf16, #triton_gpu.dot_op<{opIdx = 0, parent = "    \
  "#mfma, kWidth = 8}>> * "                                                                        \
  "tensor<64x128xf16, #triton_gpu.dot_op<{opIdx = 1, parent = #mfma, kWidth = 8}>> -> "            \
  "tensor<128x128xf32, #mfma>\n"

#define ALIASES                                                                                    \
  "#blocked = #triton_gpu.blocked<{sizePerThread = [1, 8], threadsPerWarp = [8, 8], warpsPerCTA "  \
  "= [4, 1], order = "                                                                             \
  "[1, 0]}>\n"                                                                                     \
  "#blocked1 = #triton_gpu.blocked<{sizePerThread = [8, 1], threadsPerWarp = [8, 8], warpsPerCTA " \
  "= [1, 4], order = "                                                                             \
  "[0, 1]}>\n"                                                                                     \
  "#mfma = #triton_gpu.mfma<{versionMajor = 3, versionMinor = 0, warpsPerCTA = [2, 2], "           \
  "instrShape = [16, 16], "                                                                        \
  "isTransposed = true}>\n"                                                                        \
  "#shared = #triton_gpu.shared<{vec = 8, perPhase = 1, maxPhase = 8, order = [1, 0]}>\n"          \
  "#shared1 = #triton_gpu.shared<{vec = 8, perPhase = 1, maxPhase = 8, order = [0, 1]}>\n"

Test(ttgir_review, wrapped_operations_are_whole_ones_with_their_lines) {
  static const char text[] =
      "%190 = tt.load %186, %189, %cst_0 {cache = 1 : i32, evict = 1 : i32, isVolatile =\n"
      "  false} : tensor<128x64xf16, #blocked> loc(#loc159)\n"
      "\n"
      "%191 = triton_gpu.local_alloc %190 : (tensor<128x64xf16, #blocked>) ->\n"
      "!tt.memdesc<128x64xf16, #shared,\n"
      "#triton_gpu.shared_memory> loc(#loc160)\n"
      "%192:2 = scf.for %i = %c0 to %n step %c1 iter_args(%a = %191,\n"
      "    %b = %c0) -> (i32,\n    i32) {\n"
      "  %193 = triton_gpu.local_load %191 : !tt.memdesc<128x64xf16, #shared, "
      "#triton_gpu.shared_memory>\n"
      "    -> tensor<128x64xf16, #mma> loc(#loc161)\n"
      "  %194 = triton_gpu.convert_layout\n    %193 : tensor<128x64xf16, #mma> -> "
      "tensor<128x64xf16,\n"
      "    #blocked>\n"
      "  scf.yield %194 :\n    i32\n"
      "} {tt.num_stages =\n 2 : i32}\n";
  cleanup_ttgir_review struct ttgir_review *review = review_of(text);
  cr_expect_eq(review->all.loads, 1);
  cr_expect_eq(review->all.local_allocs, 1);
  cr_expect_eq(review->in_loops.local_loads, 1);
  cr_expect_geq(review->all.lds_trips, 1);
  cr_assert_eq(review->n_converts, 1u);
  cr_expect_eq(review->converts[0].line, 12u);
  cr_expect_eq(review->converts[0].loop_depth, 1);
}

Test(ttgir_review, a_store_to_lds_and_the_load_from_it_are_one_trip) {
  cleanup_free char *lines = xasprintf(OPERANDS_THROUGH_LDS);
  cleanup_ttgir_review struct ttgir_review *review = review_of_loop(ALIASES, 4, lines);
  cr_expect_eq(review->all.lds_trips, 2);
  cr_expect_eq(review->in_loops.lds_trips, 2);
  cr_expect_eq(review->in_loops.conversions[TTGIR_LDS], 0);
  cr_expect_eq(review->in_loops.conversions[TTGIR_TO_LDS], 2);
  cr_expect_eq(review->in_loops.conversions[TTGIR_FROM_LDS], 2);
  cr_expect_not(finds(review, REVIEW_WARNING, "pass through LDS"));
  cr_expect_not(finds(review, REVIEW_HINT, "OPTIMIZE_EPILOGUE"));
}

Test(ttgir_review, later_tritons_name_the_halves_of_a_trip) {
  cleanup_ttgir_review struct ttgir_review *review = review_of_loop(
      BLOCKED MMA
      "#s = #ttg.swizzled_shared<{vec = 4, perPhase = 1, maxPhase = 16, order = [1, 0]}>\n",
      4,
      "      %a = ttg.local_alloc %x : (tensor<64x64xf16, #a>) -> !ttg.memdesc<64x64xf16, #s, "
      "#ttg.shared_memory>\n"
      "      %b = ttg.local_load %a : !ttg.memdesc<64x64xf16, #s, #ttg.shared_memory> -> "
      "tensor<64x64xf16, #m>\n"
      "      %c = ttg.local_load %a : !ttg.memdesc<64x64xf16, #s, #ttg.shared_memory> -> "
      "tensor<64x64xf16, #m>");
  cr_expect_eq(review->in_loops.lds_trips, 1); /* read twice */
}

/* Buffers that go round a loop: two writes before it, and in it two writes and the reads of what
 * the round before wrote. */
Test(ttgir_review, halves_that_no_name_joins_are_as_many_trips_as_the_more_frequent_half) {
  cleanup_ttgir_review struct ttgir_review *review = review_of(
      BLOCKED "module attributes {\"ttg.num-warps\" = 4 : i32} {\n  tt.func @f() {\n"
              "    %p = ttg.local_alloc : () -> !ttg.memdesc<2x64x64xf16>\n"
              "    %q = ttg.memdesc_index %p[%zero] : x -> y\n"
              "    ttg.local_store %v, %q : tensor<64x64xf16, #a> -> y\n"
              "    %r = scf.for %i = %a to %b step %c iter_args(%s = %q) -> (y) : i32 {\n"
              "      %w = ttg.local_load %s : y -> tensor<64x64xf16, #a>\n"
              "      %t = ttg.memdesc_index %p[%i] : x -> y\n"
              "      ttg.local_store %v, %t : tensor<64x64xf16, #a> -> y\n"
              "    }\n"
              "    %z = ttg.local_load %r : y -> tensor<64x64xf16, #a>\n    tt.return\n  }\n}\n");
  cr_expect_eq(review->in_loops.lds_trips, 1);
  cr_expect_eq(review->all.lds_trips, 2);
}

/* The same name in the next region is another value. */
Test(ttgir_review, a_name_is_known_inside_of_its_braces_only) {
  cleanup_ttgir_review struct ttgir_review *review = review_of(
      BLOCKED "module attributes {\"ttg.num-warps\" = 4 : i32} {\n"
              "  scf.if %c {\n    %1 = ttg.local_alloc %0 : (tensor<64xf16, #a>) -> y\n  }\n"
              "  scf.if %d {\n    %2 = ttg.local_load %1 : y -> tensor<64xf16, #a>\n"
              "    %3 = ttg.local_load %1 : y -> tensor<64xf16, #a>\n  }\n}\n");
  cr_expect_eq(review->all.lds_trips, 2);
}

Test(ttgir_review, what_optimize_epilogue_removes_begins_at_the_result_of_a_dot) {
  static const char layouts[] =
      BLOCKED MMA "#s = #ttg.swizzled_shared<{order = [1, 0]}>\n"
                  "#b = #ttg.blocked<{sizePerThread = [4, 1], threadsPerWarp = [16, 4], "
                  "warpsPerCTA = [1, 4], order = [0, 1]}>\n";
  static const struct {
    const char *from, *to;
    bool is_hinted;
  } cases[] = {{"#m", "#a", true}, {"#m", "#s", true}, {"#a", "#b", false}};
  for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
    cleanup_free char *text =
        xasprintf("%smodule attributes {\"ttg.num-warps\" = 4 : i32} {\n"
                  "  %%y = ttg.convert_layout %%x : tensor<64x64xf32, %s> -> tensor<64x64xf32, "
                  "%s>\n}\n",
                  layouts, cases[i].from, cases[i].to);
    cleanup_ttgir_review struct ttgir_review *review = review_of(text);
    cr_expect_eq(finds(review, REVIEW_HINT, "OPTIMIZE_EPILOGUE"), cases[i].is_hinted, "%s",
                 cases[i].from);
    cr_expect_eq(review->all.lds_trips, 1);
  }
}

/* As a guide prints it: no module, no layouts, a brace that was opened before. */
Test(ttgir_review, lines_of_a_module_are_read_without_it) {
  cleanup_free char *lines =
      xasprintf("scf.for %%i = %%a to %%b step %%c  : i32 {\n" OPERANDS_THROUGH_LDS "}\n...\n}\n");
  cleanup_ttgir_review struct ttgir_review *review = review_of(lines);
  cr_expect_eq(review->num_warps, TTGIR_UNKNOWN);
  cr_expect_eq(review->in_loops.lds_trips, 2);
  cr_expect_eq(review->in_loops.dots, 1);
  cr_expect_str_eq(review->dots[0].kind, "mfma");

  /* Cut off inside the loop; and names that show no kind. */
  cleanup_ttgir_review struct ttgir_review *begun =
      review_of("scf.for %i = %a to %b step %c : i32 {\n  %1 = ttg.convert_layout %0 : "
                "tensor<64x64xf32, #mma> -> "
                "tensor<64x64xf32, "
                "#blocked>\n  %2 = ttg.convert_layout %1 : tensor<64x64xf32, #blocked> -> "
                "tensor<64x64xf32, #blocked1>\n"
                "  %3 = ttg.convert_layout %2 : tensor<64x64xf32, #mine> -> tensor<64x64xf32, "
                "#blocked_not>\n");
  cr_expect_eq(begun->in_loops.conversions[TTGIR_LDS], 1);
  cr_expect_eq(begun->in_loops.conversions[TTGIR_MAY], 2);
}

Test(ttgir_review, reports_how_dots_are_computed) {
  cleanup_ttgir_review struct ttgir_review *review =
      review_of_loop(BLOCKED MMA, 4,
                     "      %c = tt.dot %a, %b, %c : tensor<64x64xf16, #x> * tensor<64x64xf16, #x> "
                     "-> tensor<64x64xf32, #m>\n"
                     "      %d = tt.dot %a, %b, %c : tensor<64x64xf32, #x> * tensor<64x64xf32, #x> "
                     "-> tensor<64x64xf32, #a>\n"
                     "      %e = tt.dot %a, %b, %c : tensor<64x64xf32, #x> * tensor<64x64xf32, #x> "
                     "-> tensor<64x64xf32, #a>");
  cr_assert_eq(review->n_dots, 2u);
  cr_assert_str_eq(review->dots[0].kind, "amd_mfma version 3, 32x32x8");
  cr_assert_eq(review->dots[1].count_in_loops, 2);
  cr_assert(finds(review, REVIEW_WARNING, "2 dots use plain multiply-adds"));
  cr_assert(finds(review, REVIEW_HINT, "dots use 32x32 instructions"));
}

Test(ttgir_review, warns_of_loads_that_give_a_thread_few_bytes) {
  cleanup_ttgir_review struct ttgir_review *review =
      review_of_loop(BLOCKED, 4,
                     "      %x = tt.load %p : tensor<64x64x!tt.ptr<f32>, #a>\n"
                     "      %y = tt.load %p : tensor<64x64x!tt.ptr<f16>, #a>\n"
                     "      %z = amdg.buffer_load %p[%o] : tensor<64x2xf32, #a>\n"
                     "      %w = amdg.buffer_load %p[%o] : tensor<64x64xf8E4M3FNUZ, #a>");
  cr_assert(finds(review, REVIEW_WARNING, "3 of 4 global loads in loops"));
  cr_assert(finds(review, REVIEW_WARNING, "(the least: 4)"));
}

Test(ttgir_review, refuses_what_is_no_module_or_cut_off) {
  static const struct {
    const char *text, *words;
  } cases[] = {
      {"", "neither a module"},
      {"module {\n}\n", "neither a module"},
      {"#include <stdio.h>\nint main(void) {\n}\n", "neither a module"},
      {"%y = tt.trans %x : tensor<4x4xf32> -> tensor<4x4xf32>\n",
       "nor lines of one"}, /* TTIR: no layouts */
      {"module attributes {\"ttg.num-warps\" = 4 : i32} {\n  tt.func @f() {\n",
       "ends inside 2 braces"},
      {"}\nmodule attributes {\"ttg.num-warps\" = 4 : i32} {\n}\n", "line 1 of the module closes"},
      {"false} : tensor<64xf32, #b>\n%y = ttg.local_alloc %x : (tensor<64xf32, #b>) "
       "->\n!ttg.memdesc\n",
       "line 1, \"false} : tensor<64xf32, #b>\", does not begin an operation"},
      {"%y = ttg.local_alloc %x : (tensor<64xf32, #b>) ->\n  !ttg.memdesc\n\n  and a word\n",
       "line 4, \"and a word\", does not begin"},
      {"module attributes {\"ttg.num-warps\" = 4 : i32} {\n  and a word\n}\n", "line 2, \"and a"},
  };
  for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
    struct ttgir_review *review = NULL;
    struct error error;
    cr_assert(!ttgir_review_make(cases[i].text, strlen(cases[i].text), &review, &error), "%s",
              cases[i].text);
    cr_assert(strstr(error.message, cases[i].words), "%s: %s", cases[i].text, error.message);
  }
}

Test(ttgir_review, refuses_what_is_too_deep_or_too_long) {
  struct ttgir_review *review = NULL;
  struct error error;
  cleanup_free char *deep = xcalloc(1, 9 * 300 + 1);
  for (size_t i = 0; i < 300; i++)
    memcpy(deep + 9 * i, "module {\n", 9);
  cr_assert(!ttgir_review_make(deep, strlen(deep), &review, &error));
  cr_assert(strstr(error.message, "nests deeper than 256"), "%s", error.message);
  cr_assert(!ttgir_review_make(deep, TTGIR_SIZE_MAX + 1, &review, &error));
  cr_assert(strstr(error.message, "at most 16777216 are read"), "%s", error.message);
}

Test(ttgir_review, of_a_kept_module_is_the_same_as_json_and_as_lines) {
  cleanup_free char *text = NULL, *printed = NULL;
  size_t size, printed_size;
  struct error error;
  cr_assert(file_read(SOURCE_FOLDER "/tests/data/ttgir/transposed_sum.ttgir", 1 << 20, &text, &size,
                      &error),
            "%s", error.message);
  cleanup_ttgir_review struct ttgir_review *review = review_of(text);
  cr_assert_eq(review->in_loops.transposes, 1);
  cr_assert_eq(review->in_loops.reductions, 1);
  cr_assert_eq(review->all.conversions[TTGIR_LDS], 1);
  cr_assert_eq(review->in_loops.conversions[TTGIR_LDS], 0);
  cr_assert(
      finds(review, REVIEW_HINT, "1 conversions of layouts outside of loops pass through LDS"));
  cr_assert(finds(review, REVIEW_HINT, "1 transposes in loops"));
  cr_assert_eq(review_count(&review->findings, REVIEW_WARNING), 0u);
  cleanup_json json_t *json = ttgir_review_to_json(review);
  cleanup_free char *canonical = json_canonical(json);
  cr_assert(strstr(canonical, "{\"from\":\"#blocked\",\"line\":43,\"loop_depth\":0,\"passes\":"
                              "\"lds\",\"to\":\"#blocked1\","
                              "\"why\":\"elements change from warp to warp\"}"),
            "%s", canonical);
  cr_assert(strstr(canonical, "\"shared\":null"), "%s", canonical);
  FILE *out = open_memstream(&printed, &printed_size);
  ttgir_review_print(review, out);
  fclose(out);
  cr_assert(strstr(printed, "conversions of layouts (in loops): through LDS 1 (0), may be 0 (0), "
                            "registers only 0 (0)\n"),
            "%s", printed);
  cr_assert(strstr(printed, "  trips through LDS (in loops): "), "%s", printed);
  cr_assert(strstr(printed,
                   "    line 43: #blocked -> #blocked1: lds, elements change from warp to warp\n"),
            "%s", printed);
  cr_assert(strstr(printed, "  shared           not stated\n"), "%s", printed);
}

/* What the Triton of the test's Python makes of tests/data/ttgir/kernels.py; NULL where there is
 * none. */
static struct ttgir_review *review_of_triton(const char *kernel, int num_stages) {
  const char *python = SOURCE_FOLDER "/build/python/bin/python";
  if (access(python, X_OK) != 0)
    return NULL;
  cleanup_free char *command = xasprintf(
      "TRITON_CACHE_DIR=$(mktemp -d) sh -c '\"%s\" %s/tests/data/ttgir/kernels.py %s %d; rm -r "
      "\"$TRITON_CACHE_DIR\"'",
      python, SOURCE_FOLDER, kernel, num_stages);
  FILE *pipe = popen(command, "r");
  cr_assert_not_null(pipe);
  cleanup_free char *text = xcalloc(1, 1 << 20);
  size_t size = fread(text, 1, (1 << 20) - 1, pipe);
  cr_assert_eq(pclose(pipe), 0, "%s", command);
  struct ttgir_review *review = NULL;
  struct error error;
  cr_assert(ttgir_review_make(text, size, &review, &error), "%s", error.message);
  return review;
}
#define REVIEW_TRITON(kernel, num_stages)                                                          \
  cleanup_ttgir_review struct ttgir_review *review = review_of_triton(kernel, num_stages);         \
  if (!review)                                                                                     \
  cr_skip_test("there is no Triton in build/python; tests/python-env.sh installs it")

Test(ttgir_review, sees_the_pipelined_loop_of_a_matmul_of_triton) {
  REVIEW_TRITON("matmul", 2);
  cr_assert_eq(review->num_warps, 4);
  cr_assert_eq(review->threads_per_warp, 64);
  cr_assert_eq(review->in_loops.local_loads, 2);
  cr_assert_eq(review->in_loops.dots, 1);
  cr_assert_str_eq(review->dots[0].kind, "amd_mfma version 3, 16x16x16");
  cr_assert(!finds(review, REVIEW_HINT, "not pipelined"));
}

Test(ttgir_review, sees_that_a_matmul_of_one_stage_is_not_pipelined) {
  REVIEW_TRITON("matmul", 1);
  cr_assert_eq(review->in_loops.local_allocs, 2);
  cr_assert(
      finds(review, REVIEW_HINT, "2 tensors are put into LDS and read in the same iteration"));
}

Test(ttgir_review, sees_the_result_of_one_dot_become_the_operand_of_another) {
  REVIEW_TRITON("chained", 1);
  cr_assert_eq(review->in_loops.dots, 2);
  cr_assert_eq(review->in_loops.conversions[TTGIR_MAY], 1);
}

Test(ttgir_review, sees_strided_loads) {
  REVIEW_TRITON("strided", 1);
  cr_assert(finds(review, REVIEW_WARNING,
                  "1 of 1 global loads in loops with a known layout give a thread less than 16"));
}
