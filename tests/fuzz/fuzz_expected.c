/* Expected values, which a builder made: the elements of what is accepted are within their buffers,
 * and a comparison of a whole buffer with them reads nothing else. */
#include "agent/measure/expected.h"
#include "common/kernel/kernel_case.h"
#include "tests/fuzz/fuzz.h"

#define ELEMENTS 64

static const char manifest[] =
    "{\"name\": \"a/b\", \"language\": \"triton\", \"entry\": \"f\", \"cases\": \"build\", "
    "\"sources\": [{\"path\": \"f.py\", \"digest\": "
    "\"sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"}], "
    "\"key\": [\"n\"], \"arguments\": ["
    "{\"name\": \"y\", \"dtype\": \"bfloat16\", \"kind\": \"buffer\"}, "
    "{\"name\": \"z\", \"dtype\": \"float8_e5m2\", \"kind\": \"buffer\"}, "
    "{\"name\": \"i\", \"dtype\": \"int64\", \"kind\": \"buffer\"}]}";
static const char of_key[] =
    "{\"arguments\": {\"y\": {\"elements\": 64, \"access\": \"readwrite\"}, "
    "\"z\": {\"elements\": 64, \"access\": \"readwrite\"}, "
    "\"i\": {\"elements\": 64, \"access\": \"readwrite\", \"fill\": \"zeros\"}}}";

static struct kernel *kernel_new(void) {
  json_t *json, *of;
  struct kernel *captured, *kernel;
  struct error error;
  ALWAYS(json_parse(manifest, strlen(manifest), &json, &error) &&
         json_parse(of_key, strlen(of_key), &of, &error) && kernel_parse(json, &captured, &error) &&
         kernel_of_case(captured, of, &kernel, &error));
  kernel_free(captured);
  json_decref(json);
  json_decref(of);
  return kernel;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  static struct kernel *kernel;
  cleanup_expected struct expected *expected = NULL;
  struct error error = {0};
  if (!kernel)
    kernel = kernel_new();
  if (!expected_parse(bytes, size, kernel, &expected, &error)) {
    check_refusal(&error);
    return 0;
  }

  for (size_t k = 0; k < expected->n; k++) {
    const struct expected_values *values = &expected->all[k];
    ALWAYS(expected_of_config(expected, values->config) == values);
    for (size_t i = 0; i < values->n; i++) {
      const struct expected_buffer *buffer = &values->buffers[i];
      cleanup_free void *output =
          xcalloc(ELEMENTS, dtype_size(kernel->arguments[buffer->argument].dtype));
      ALWAYS(buffer->argument < kernel->n_arguments && expected_find(values, buffer->argument));
      if (!expected_agrees(kernel, buffer, output, 0, &error))
        check_refusal(&error);
    }
  }
  return 0;
}
