/* Untrusted texts that reviews read: a disassembly, or TTGIR. What is accepted can be
 * printed, and its JSON is valid. */
#include "inspect/isa_review.h"
#include "inspect/ttgir_review.h"
#include "tests/fuzz/fuzz.h"

static void check_json(json_t *json) {
  cleanup_json json_t *owned = json;
  cleanup_free char *text = json_canonical(owned);
  cleanup_json json_t *again = NULL;
  struct error error;
  ALWAYS(json_parse(text, strlen(text), &again, &error));
}

static void check_isa(const char *text, FILE *out) {
  cleanup_isa_review struct isa_review *review = NULL;
  struct error error;

  if (!isa_review_make(text, NULL, &review, &error))
    return;
  for (size_t i = 0; i < review->n; i++) {
    const struct isa_function *function = &review->functions[i];
    int64_t in_loops = 0;
    for (size_t j = 0; j < function->n_loops; j++)
      in_loops += function->loops[j].counts.instructions;
    ALWAYS(in_loops <= function->counts.instructions);
    check_json(isa_function_to_json(function));
    isa_function_print(function, out);
  }
}

static void check_ttgir(const char *text, size_t size, FILE *out) {
  cleanup_ttgir_review struct ttgir_review *review = NULL;
  struct error error;

  if (!ttgir_review_make(text, size, &review, &error))
    return;
  for (int i = 0; i < TTGIR_CONVERSIONS; i++)
    ALWAYS(review->in_loops.conversions[i] <= review->all.conversions[i]);
  ALWAYS(review->in_loops.lds_trips <= review->all.lds_trips);
  ALWAYS(ttgir_is(text, size));
  check_json(ttgir_review_to_json(review));
  ttgir_review_print(review, out);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  cleanup_free char *text = xstrndup((const char *)bytes, size);
  cleanup_file FILE *out = fopen("/dev/null", "w");
  ALWAYS(out != NULL);
  check_isa(text, out);
  /* Not the NUL-terminated copy: the TTGIR review must not read past the end of its text. */
  check_ttgir((const char *)bytes, size, out);
  return 0;
}
