/* Searches of untrusted spaces, with any results: {"space": …, "strategy": 0 to 2, "seed": 1,
 * "trials": 100, "likely": [17], "ratios": [0.9, null]}; ratios are reported in turn, null is
 * INFINITY. Every requested config is valid and is requested once, and a search whose results are
 * reported in the opposite order requests the same. */
#include <math.h>

#include "common/search/search.h"
#include "tests/fuzz/fuzz.h"

#define TRIALS 300
#define LIKELY 80
#define WORK 20000

struct input {
  struct space *space;
  struct search_options options;
  uint64_t likely[LIKELY];
  const json_t *ratios;
};

static int64_t integer_of(const json_t *object, const char *name) {
  return json_integer_value(json_object_get(object, name));
}

static double ratio_of(const struct input *input, size_t trial) {
  size_t n = json_array_size(input->ratios);
  const json_t *ratio = n ? json_array_get(input->ratios, trial % n) : NULL;
  return json_is_number(ratio) ? json_number_value(ratio) : INFINITY;
}

static bool check_batch(const struct input *input, const uint64_t *batch, size_t n, uint64_t *asked,
                        size_t n_asked) {
  struct error error;
  ALWAYS(n <= SEARCH_BATCH_MAX && n_asked + n <= input->options.trials);
  for (size_t i = 0; i < n; i++) {
    bool is_valid;
    ALWAYS(space_is_valid(input->space, NULL, batch[i], &is_valid, &error) && is_valid);
    for (size_t before = 0; before < n_asked + i; before++)
      ALWAYS(asked[before] != batch[i]);
    asked[n_asked + i] = batch[i];
  }

  return n > 0;
}

static void search_twice(const struct input *input) {
  cleanup_search struct search *one = NULL, *other = NULL;
  struct error error = {0}, again = {0};

  if (!search_new(input->space, NULL, &input->options, &one, &error)) {
    check_refusal(&error);
    ALWAYS(!search_new(input->space, NULL, &input->options, &other, &again));
    ALWAYS(strcmp(error.message, again.message) == 0);
    return;
  }

  ALWAYS(search_new(input->space, NULL, &input->options, &other, &again));
  uint64_t batch[SEARCH_BATCH_MAX], same[SEARCH_BATCH_MAX], asked[TRIALS];
  size_t n_asked = 0;
  for (;;) {
    size_t n = search_ask(one, batch);
    ALWAYS(search_ask(other, same) == n && memcmp(batch, same, n * sizeof *batch) == 0);
    if (!check_batch(input, batch, n, asked, n_asked))
      return;
    for (size_t i = 0; i < n; i++) {
      search_tell(one, batch[i], ratio_of(input, n_asked + i));
      search_tell(other, batch[n - 1 - i], ratio_of(input, n_asked + n - 1 - i));
    }
    n_asked += n;
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  cleanup_json json_t *json = NULL;
  cleanup_space struct space *space = NULL;
  struct error error = {0};

  if (!json_parse((const char *)bytes, size, &json, &error) || !json_is_object(json) ||
      !space_parse(json_object_get(json, "space"), &space, &error))
    return 0;

  struct input input = {.space = space, .ratios = json_object_get(json, "ratios")};
  const json_t *likely = json_object_get(json, "likely");
  while (input.options.n_likely < LIKELY && input.options.n_likely < json_array_size(likely)) {
    input.likely[input.options.n_likely] =
        (uint64_t)json_integer_value(json_array_get(likely, input.options.n_likely));
    input.options.n_likely++;
  }

  input.options.strategy =
      (enum search_strategy)((uint64_t)integer_of(json, "strategy") % SEARCH_STRATEGY_COUNT);
  input.options.seed = (uint64_t)integer_of(json, "seed");
  input.options.trials = 1 + (uint64_t)integer_of(json, "trials") % TRIALS;
  input.options.likely = input.likely;
  input.options.work_limit = WORK;
  search_twice(&input);
  return 0;
}
