/* Expected values of a build: read, and every refusal. */
#include "common/builds/expected.h"

#include <criterion/criterion.h>

#include "common/kernel/kernel_case.h"

#define DIGEST_A "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

static const char manifest[] =
    "{\"name\": \"captured/scan\", \"language\": \"triton\", \"entry\": \"scan\", \"cases\": "
    "\"build\", \"sources\": [{\"path\": \"scan.py\", \"digest\": \"" DIGEST_A "\"}],"
    " \"key\": [\"n\"], \"arguments\": ["
    "  {\"name\": \"x\", \"dtype\": \"float32\", \"kind\": \"buffer\"},"
    "  {\"name\": \"again\", \"dtype\": \"float32\", \"kind\": \"buffer\"},"
    "  {\"name\": \"n\", \"dtype\": \"int32\", \"kind\": \"scalar\"},"
    "  {\"name\": \"y\", \"dtype\": \"bfloat16\", \"kind\": \"buffer\"}]}";
static const char of_key[] =
    "{\"arguments\": {\"x\": {\"elements\": 64, \"access\": \"read\"}, "
    "\"again\": {\"elements\": 8, \"access\": \"readwrite\"}, \"n\": {\"value\": 7}, "
    "\"y\": {\"elements\": 64, \"access\": \"readwrite\", \"fill\": \"zeros\"}}}";

static struct kernel *kernel_new(void) {
  cleanup_json json_t *json = NULL, *of = NULL;
  cleanup_kernel struct kernel *captured = NULL;
  struct kernel *kernel;
  struct error error;
  cr_assert(json_parse(manifest, strlen(manifest), &json, &error));
  cr_assert(json_parse(of_key, strlen(of_key), &of, &error));
  cr_assert(kernel_parse(json, &captured, &error), "%s", error.message);
  cr_assert(kernel_of_case(captured, of, &kernel, &error), "%s", error.message);
  return kernel;
}

#define HEAD(buffers)                                                                              \
  "{\"version\": 1, \"seed\": 5, \"grid\": [2, 1, 1], \"programs\": [[0, 0, 0], [1, 0, 0]], "      \
  "\"buffers\": [" buffers "]}"
#define Y "{\"argument\": \"y\", \"dtype\": \"bfloat16\", \"runs\": 2, \"values\": 3}"
#define HEADS(version, configs)                                                                    \
  "{\"version\": " version ", \"seed\": 5, \"grid\": [2, 1, 1], \"programs\": [[0, 0, 0]], "       \
  "\"configs\": [" configs "]}"
#define CONFIG(block, buffers) "{\"config\": {\"B\": " block "}, \"buffers\": [" buffers "]}"
static const int64_t runs[] = {4, 2, 63, 1};
static const uint16_t values[] = {0x3f80, 0x4000, 0x4040};

struct blob {
  char bytes[2048];
  size_t size;
};
static void append(struct blob *blob, const void *bytes, size_t size) {
  memcpy(blob->bytes + blob->size, bytes, size);
  blob->size += size;
}

static struct blob blob_of(const char *head, const int64_t *of_runs) {
  struct blob blob = {.size = 0};
  append(&blob, head, strlen(head));
  append(&blob, "\n", 1);
  append(&blob, of_runs, sizeof runs);
  append(&blob, values, sizeof values);
  return blob;
}

static void expect_refused(const struct blob *blob, const char *words) {
  cleanup_kernel struct kernel *kernel = kernel_new();
  struct expected *expected = NULL;
  struct error error = {0};
  cleanup_free char *copy = xmemdup(blob->bytes, blob->size + !blob->size);
  cr_expect_not(expected_parse(copy, blob->size, kernel, &expected, &error), "%s", words);
  cr_expect(strstr(error.message, words), "%s", error.message);
}

Test(expected, is_read) {
  cleanup_kernel struct kernel *kernel = kernel_new();
  struct blob blob = blob_of(HEAD(Y), runs);
  cleanup_expected struct expected *expected = NULL;
  struct error error;
  cr_assert(expected_parse(blob.bytes, blob.size, kernel, &expected, &error), "%s", error.message);
  cr_expect_eq(expected->seed, 5);
  const struct expected_values *of_all = expected_of_config(expected, NULL);
  cr_assert(of_all);
  const struct expected_buffer *buffer = expected_find(of_all, 3);
  cr_assert(buffer && !expected_find(of_all, 0));
  cr_expect_eq(buffer->n_runs, 2);
  cr_expect_eq(buffer->runs[1].start, 63);
  cr_expect_eq(memcmp(buffer->values, values, sizeof values), 0);
}

Test(expected, configs_of_kernels_that_draw_have_their_own) {
  cleanup_kernel struct kernel *kernel = kernel_new();
  struct blob blob = blob_of(HEADS("2", CONFIG("1", Y) ", " CONFIG("2", Y)), runs);
  cleanup_expected struct expected *expected = NULL;
  struct error error;
  append(&blob, runs, sizeof runs);
  append(&blob, (const uint16_t[]){1, 2, 3}, sizeof values);
  cr_assert(expected_parse(blob.bytes, blob.size, kernel, &expected, &error), "%s", error.message);
  for (json_int_t block = 1; block <= 3; block++) {
    cleanup_json json_t *config = json_pack("{s:I}", "B", block);
    const struct expected_values *own = expected_of_config(expected, config);
    if (block == 3) {
      cr_expect_null(own);
      continue;
    }
    cr_assert(own && expected_find(own, 3));
    cr_expect_eq(*(const uint16_t *)expected_find(own, 3)->values, block == 1 ? 0x3f80 : 1);
  }
}

Test(expected, runs_rise_within_the_buffer_and_have_all_values) {
  static const int64_t wrong[][4] = {{4, 2, 5, 1},  {4, 2, 64, 1},        {4, 2, 63, 2},
                                     {4, 0, 63, 3}, {-1, 2, 63, 1},       {4, 2, 63, INT64_MAX},
                                     {4, 1, 63, 1}, {4, INT64_MAX, 5, 1}, {4, 3, 63, 1}};
  for (size_t i = 0; i < ARRAY_LENGTH(wrong); i++) {
    struct blob blob = blob_of(HEAD(Y), wrong[i]);
    expect_refused(&blob,
                   i == 6 || i == 8 ? "the runs have other than its 3 values" : "\"y\": run ");
  }
}

Test(expected, what_is_wrong_with_the_head_is_refused) {
  static const struct {
    const char *head, *words;
  } wrong[] = {
      {"{", "expected values: "},
      {"{\"version\": 3}", "expected values: "},
      {HEADS("1", CONFIG("1", Y)), "version 1 has"},
      {HEADS("2", ""), "version 1 has"},
      {HEADS("2", CONFIG("1", Y) ", " CONFIG("1", Y)), "config 1 occurs twice"},
      {HEAD("{\"argument\": \"z\", \"dtype\": \"bfloat16\", \"runs\": 2, \"values\": 3}"),
       "\"z\": it is no buffer that the case writes"},
      {HEAD("{\"argument\": \"x\", \"dtype\": \"float32\", \"runs\": 2, \"values\": 3}"),
       "\"x\": it is no buffer that the case writes"},
      {HEAD("{\"argument\": \"n\", \"dtype\": \"int32\", \"runs\": 2, \"values\": 3}"),
       "\"n\": it is no buffer that the case writes"},
      {HEAD("{\"argument\": \"y\", \"dtype\": \"float32\", \"runs\": 2, \"values\": 3}"),
       "\"y\": it has values of float32 and is of bfloat16"},
      {HEAD("{\"argument\": \"y\", \"dtype\": \"bfloat16\", \"runs\": 9, \"values\": 3}"),
       "it ends before its last value"},
      {HEAD(Y ", " Y), "it ends before its last value"},
      {HEAD(""), "version 1 has"},
      {"{\"version\": 1, \"seed\": 5, \"grid\": [2, 1, 1], \"programs\": [[2, 0, 0]], "
       "\"buffers\": []}",
       "it must name 1 to 64 programs of the grid"},
  };
  for (size_t i = 0; i < ARRAY_LENGTH(wrong); i++) {
    struct blob blob = blob_of(wrong[i].head, runs);
    expect_refused(&blob, wrong[i].words);
  }
}

/* Each is compared with all before it. */
Test(expected, more_configs_than_a_builder_interprets_are_refused) {
  cleanup_kernel struct kernel *kernel = kernel_new();
  cleanup_json json_t *configs = json_array();
  for (json_int_t i = 0; i <= EXPECTED_CONFIGS_MAX; i++)
    json_push(configs, json_pack("{s:{s:I}, s:[]}", "config", "B", i, "buffers"));
  cleanup_free char *list = json_canonical(configs),
                    *head = xasprintf("{\"version\": 2, \"seed\": 5, \"grid\": [1, 1, 1], "
                                      "\"programs\": [[0, 0, 0]], \"configs\": %s}\n",
                                      list);
  cleanup_expected struct expected *expected = NULL;
  struct error error;
  cr_assert(!expected_parse(head, strlen(head), kernel, &expected, &error));
  cr_expect(strstr(error.message, "at most 1024"), "%s", error.message);
}

Test(expected, a_blob_ends_with_its_last_value) {
  struct blob blob = blob_of(HEAD(Y), runs);
  append(&blob, "x", 1);
  expect_refused(&blob, "1 bytes follow its last value");
  for (blob.size -= 2; blob.size > 0; blob.size--)
    expect_refused(&blob, "expected values: ");
}

Test(expected, a_buffer_occurs_once) {
  struct blob blob = blob_of(HEAD(Y ", " Y), runs);
  append(&blob, runs, sizeof runs);
  append(&blob, values, sizeof values);
  expect_refused(&blob, "\"y\" occurs twice");
}
