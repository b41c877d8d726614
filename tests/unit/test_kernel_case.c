/* Captured kernels, and what a case makes of them: every refusal with its pointer. */
#include "common/kernel/kernel_case.h"

#include <math.h>

#include "tests/unit/kernel_fixture.h"

static const char manifest[] =
    "{\"name\": \"captured/scan\", \"language\": \"triton\", \"entry\": \"scan\", \"cases\": "
    "\"build\", \"sources\": [{\"path\": \"scan.py\", \"digest\": \"" DIGEST_A "\"}],"
    " \"key\": [\"n\"], \"arguments\": ["
    "  {\"name\": \"x\", \"dtype\": \"float8_e4m3fnuz\", \"kind\": \"buffer\"},"
    "  {\"name\": \"lengths\", \"dtype\": \"int32\", \"kind\": \"buffer\"},"
    "  {\"name\": \"n\", \"dtype\": \"int32\", \"kind\": \"scalar\"},"
    "  {\"name\": \"scale\", \"dtype\": \"float32\", \"kind\": \"scalar\"},"
    "  {\"name\": \"y\", \"dtype\": \"uint8\", \"kind\": \"buffer\"}]}";

static bool make(const char *text, struct kernel **ret, struct error *error) {
  cleanup_kernel struct kernel *kernel = kernel_of(manifest);
  cleanup_json json_t *json = json_of(text);
  *error = (struct error){0};
  return kernel_of_case(kernel, json, ret, error);
}

static struct kernel *made_of(const char *text) {
  struct kernel *kernel = NULL;
  struct error error;
  cr_assert(make(text, &kernel, &error), "%s: %s", error.pointer, error.message);
  return kernel;
}

static const struct argument *argument_of(const struct kernel *kernel, const char *name) {
  for (size_t i = 0; i < kernel->n_arguments; i++)
    if (string_equal(kernel->arguments[i].name, name))
      return &kernel->arguments[i];
  return NULL;
}

#define CASE                                                                                       \
  "{\"arguments\": {\"x\": {\"elements\": 4096, \"access\": \"read\"}, "                           \
  "\"lengths\": {\"elements\": 5, \"access\": \"read\", \"fill\": {\"sorted\": [0, 64]}}, "        \
  "\"n\": {\"value\": 7}, \"scale\": {\"value\": 0.088}, "                                         \
  "\"y\": {\"elements\": 64, \"access\": \"readwrite\", \"fill\": \"zeros\"}}}"

Test(kernel_case, a_captured_kernel_is_read) {
  cleanup_kernel struct kernel *kernel = kernel_of(manifest);
  cr_expect(kernel->is_captured);
  cr_expect(kernel->arguments[0].is_buffer && !kernel->arguments[2].is_buffer);
  cr_expect_eq(kernel->arguments[0].dtype, DTYPE_FLOAT8_E4M3FNUZ);
}

Test(kernel_case, numbers_take_the_place_of_expressions) {
  cleanup_kernel struct kernel *captured = kernel_of(manifest), *kernel = made_of(CASE);
  const struct argument *x = argument_of(kernel, "x"), *lengths = argument_of(kernel, "lengths");
  struct scope scope = {0};
  struct error error;
  int64_t elements;
  cr_expect_not(kernel->is_captured || kernel->is_tf32 || kernel->is_scaled_down);
  cr_expect_eq(x->fill.scale, 0);
  cr_expect(digest_equal(&kernel->hash, &captured->hash), "it is the same kernel");
  cr_assert(argument_elements(x, &scope, &elements, &error));
  cr_expect_eq(elements, 4096);
  cr_expect(x->access == ACCESS_READ && x->fill.kind == FILL_NORMAL);
  cr_expect(lengths->fill.kind == FILL_SORTED && lengths->fill.high == 64);
  cr_expect_eq(argument_of(kernel, "y")->access, ACCESS_READWRITE);
  const struct value n = argument_of(kernel, "n")->literal,
                     scale = argument_of(kernel, "scale")->literal;
  cr_expect(n.type == VALUE_INT && n.integer == 7);
  cr_expect(scale.type == VALUE_FLOAT && scale.real == 0.088);
}

Test(kernel_case, the_captured_kernel_alone_has_no_extents) {
  cleanup_kernel struct kernel *kernel = kernel_of(manifest);
  struct scope scope = {0};
  struct error error;
  int64_t elements;
  cr_expect_not(argument_elements(&kernel->arguments[0], &scope, &elements, &error));
  cr_expect(strstr(error.message, "a build's case states"), "%s", error.message);
}

Test(kernel_case, an_argument_that_is_not_passed_is_left_out) {
  cleanup_kernel struct kernel *kernel =
      made_of("{\"arguments\": {\"y\": {\"elements\": 4, \"access\": \"readwrite\", \"fill\": "
              "\"zeros\"}}}");
  cr_assert_eq(kernel->n_arguments, 1);
  cr_expect_str_eq(kernel->arguments[0].name, "y");
}

Test(kernel_case, may_say_that_dots_are_rounded) {
  cleanup_kernel struct kernel *kernel = made_of("{\"arguments\": {}, \"precision\": \"tf32\"}");
  cr_expect(kernel->is_tf32);
}

Test(kernel_case, may_scale_its_normal_deviates) {
  cleanup_kernel struct kernel
      *kernel = made_of("{\"arguments\": {\"x\": {\"elements\": 4, \"access\": \"read\"}, "
                        "\"y\": {\"elements\": 4, \"access\": \"read\", \"fill\": \"zeros\"}, "
                        "\"scale\": {\"value\": 2}}, \"scale\": 0.0625}"),
      *plain = made_of("{\"arguments\": {\"x\": {\"elements\": 4, \"access\": "
                       "\"read\"}}, \"scale\": 1}");
  cr_expect_eq(argument_of(kernel, "x")->fill.scale, 0.0625);
  cr_expect_eq(argument_of(kernel, "y")->fill.scale, 0);
  cr_expect(kernel->is_scaled_down);
  cr_expect_not(plain->is_scaled_down);
}

Test(kernel_case, an_alias_shares_the_buffer_and_its_access) {
  cleanup_kernel struct kernel *kernel =
      made_of("{\"arguments\": {\"x\": {\"elements\": 4, \"access\": \"read\"}, \"y\": "
              "{\"elements\": 4, \"access\": \"readwrite\", \"alias\": \"x\"}}}");
  struct kernel *stated = made_of(
      "{\"arguments\": {\"x\": {\"elements\": 4, \"access\": \"read\", \"fill\": \"zeros\"}, "
      "\"y\": {\"elements\": 4, \"access\": \"read\", \"alias\": \"x\", \"fill\": \"zeros\"}}}");
  kernel_free(stated);
  cr_expect_eq(kernel->arguments[0].access, ACCESS_READWRITE, "the buffer is written");
  cr_expect_eq(argument_owner(kernel, 1), 0);
  cr_expect_eq(argument_owner(kernel, 0), 0);
  cr_expect(argument_has_buffer(&kernel->arguments[0]));
  cr_expect_not(argument_has_buffer(&kernel->arguments[1]));
}

Test(kernel_case, a_view_is_passed_from_within_its_storage) {
  cleanup_kernel struct kernel *kernel = made_of(
      "{\"arguments\": {\"lengths\": {\"elements\": 5, \"before\": 3, \"after\": 2, "
      "\"access\": \"read\", "
      "\"fill\": {\"blob\": \"" DIGEST_A "\"}}, "
      "\"x\": {\"elements\": 4, \"before\": 96, \"access\": \"read\", \"alias\": \"y\"}, "
      "\"y\": {\"elements\": 64, \"after\": 36, \"access\": \"readwrite\", \"fill\": \"zeros\"}}}");
  const struct argument *lengths = argument_of(kernel, "lengths");
  struct scope scope = {0};
  struct error error;
  int64_t elements;
  cr_assert(argument_elements(lengths, &scope, &elements, &error));
  cr_expect_eq(elements, 10);
  cr_expect_eq(argument_offset(lengths), 12);
  cr_expect_eq(argument_offset(argument_of(kernel, "x")), 96);
  cr_expect(argument_blob_check(lengths, 20, &error), "the bytes are the view's");
}

Test(kernel_case, bytes_must_have_the_size_of_their_buffer) {
  cleanup_kernel struct kernel *kernel =
      made_of("{\"arguments\": {\"lengths\": {\"elements\": 5, \"access\": \"read\", \"fill\": "
              "{\"blob\": \"" DIGEST_A "\"}}, \"x\": {\"elements\": 4, \"access\": \"read\"}}}");
  const struct argument *lengths = argument_of(kernel, "lengths");
  char text[DIGEST_TEXT_SIZE];
  struct error error;
  cr_assert_not_null(argument_blob(lengths));
  cr_expect_str_eq(digest_format(argument_blob(lengths), text), DIGEST_A);
  cr_expect_null(argument_blob(argument_of(kernel, "x")));
  cr_expect(argument_blob_check(lengths, 20, &error));
  cr_expect_not(argument_blob_check(lengths, 19, &error));
  cr_expect(strstr(error.message, "20 bytes and its blob 19"), "%s", error.message);
}

Test(kernel_case, a_float_may_be_infinite_or_whole) {
  static const struct {
    const char *text;
    double value;
  } values[] = {{"\"-inf\"", -INFINITY}, {"\"inf\"", INFINITY}, {"\"nan\"", NAN}, {"-1.5", -1.5}};
  for (size_t i = 0; i < ARRAY_LENGTH(values); i++) {
    cleanup_free char *text =
        xasprintf("{\"arguments\": {\"scale\": {\"value\": %s}}}", values[i].text);
    cleanup_kernel struct kernel *kernel = made_of(text);
    double value = kernel->arguments[0].literal.real;
    cr_expect(isnan(values[i].value) ? isnan(value) : value == values[i].value, "%g", value);
  }
  cleanup_kernel struct kernel *whole = made_of("{\"arguments\": {\"scale\": {\"value\": true}}}");
  cr_expect(whole->arguments[0].literal.type == VALUE_INT &&
            whole->arguments[0].literal.integer == 1);
}

Test(kernel_case, wrong_cases_are_refused) {
  static const struct {
    const char *arguments, *pointer, *message;
  } refusals[] = {
      {"\"z\": {\"value\": 1}", "/arguments/z", "no such argument"},
      {"\"x\": 1", "/arguments/x", "an object"},
      {"\"x\": {\"access\": \"read\"}", "/arguments/x/elements", "number of elements"},
      {"\"x\": {\"elements\": 0, \"access\": \"read\"}", "/arguments/x/elements", "1 to"},
      {"\"x\": {\"elements\": 4}", "/arguments/x/access", "its access"},
      {"\"x\": {\"elements\": 4, \"access\": \"write\"}", "/arguments/x/access", "read"},
      {"\"x\": {\"elements\": 4, \"access\": \"read\", \"value\": 1}", "/arguments/x/value",
       "no value"},
      {"\"x\": {\"elements\": 4, \"access\": \"read\", \"grid\": 1}", "/arguments/x/grid", "grid"},
      {"\"lengths\": {\"elements\": 4, \"access\": \"read\"}", "/arguments/lengths/fill",
       "needs a fill"},
      {"\"lengths\": {\"elements\": 4, \"access\": \"read\", \"fill\": {\"constant\": 0.5}}",
       "/arguments/lengths/fill/constant", "integers from"},
      {"\"lengths\": {\"elements\": 4, \"access\": \"read\", \"fill\": {\"routed\": {\"what\": "
       "\"count\", \"tokens\": 1, \"top_k\": 1, \"experts\": 1, \"block\": 1}}}",
       "/arguments/lengths/fill/routed", "give the bytes that were passed"},
      {"\"n\": {\"elements\": 4}", "/arguments/n", "nothing else"},
      {"\"n\": {}", "/arguments/n/value", "must state its value"},
      {"\"n\": {\"value\": 0.5}", "/arguments/n/value", "no value of int32"},
      {"\"n\": {\"value\": 2147483648}", "/arguments/n/value", "no value of int32"},
      {"\"n\": {\"value\": \"inf\"}", "/arguments/n/value", "no value of int32"},
      {"\"scale\": {\"value\": \"1\"}", "/arguments/scale/value", "no value of float32"},
      {"\"x\": {\"elements\": 4, \"access\": \"read\", \"alias\": \"y\"}", "/arguments/x/alias",
       "no other buffer"},
      {"\"x\": {\"elements\": 4, \"access\": \"read\", \"alias\": \"x\"}", "/arguments/x/alias",
       "no other buffer"},
      {"\"x\": {\"elements\": 4, \"access\": \"read\", \"alias\": \"n\"}, \"n\": {\"value\": 1}",
       "/arguments/x/alias", "no other buffer"},
      {"\"x\": {\"elements\": 4, \"access\": \"read\", \"fill\": \"index\", \"alias\": \"y\"}, "
       "\"y\": {\"elements\": 4, \"access\": \"read\", \"fill\": \"zeros\"}",
       "/arguments/x/fill", "has another fill"},
      {"\"x\": {\"elements\": 4, \"access\": \"read\", \"before\": 1, \"alias\": \"y\"}, "
       "\"y\": {\"elements\": 4, \"access\": \"read\", \"fill\": \"zeros\"}",
       "/arguments/x/alias", "smaller one"},
      {"\"x\": {\"elements\": 4, \"access\": \"read\", \"after\": 1, \"alias\": \"y\"}, "
       "\"y\": {\"elements\": 9, \"access\": \"read\", \"fill\": \"zeros\"}",
       "/arguments/x/after", "states its end"},
      {"\"x\": {\"elements\": 4, \"access\": \"read\", \"before\": -1}", "/arguments/x/before", ""},
      {"\"n\": {\"value\": 4, \"before\": 1}", "/arguments/n", "a value and nothing else"},
      {"\"x\": {\"elements\": 5, \"access\": \"readwrite\", \"row\": 2}", "/arguments/x/row",
       "no part of one"},
      {"\"x\": {\"elements\": 5, \"access\": \"read\", \"alias\": \"y\"}, "
       "\"y\": {\"elements\": 4, \"access\": \"read\", \"fill\": \"zeros\"}",
       "/arguments/x/alias", "smaller one"},
      {"\"x\": {\"elements\": 4, \"access\": \"read\", \"alias\": \"y\"}, "
       "\"y\": {\"elements\": 4, \"access\": \"read\", \"alias\": \"x\"}",
       "/arguments/x/alias", "an alias itself"},
  };
  for (size_t i = 0; i < ARRAY_LENGTH(refusals); i++) {
    cleanup_free char *text = xasprintf("{\"arguments\": {%s}}", refusals[i].arguments);
    struct kernel *kernel = NULL;
    struct error error;
    cr_assert_not(make(text, &kernel, &error), "%s was taken", text);
    cr_expect_str_eq(error.pointer, refusals[i].pointer, "%s: %s, %s", text, error.pointer,
                     error.message);
    cr_expect(strstr(error.message, refusals[i].message), "%s: %s", text, error.message);
  }

  struct kernel *kernel = NULL;
  struct error error;
  cr_expect_not(make("{}", &kernel, &error));
  cr_expect_not(make("{\"arguments\": {}, \"grid\": [1]}", &kernel, &error));
  cr_expect_not(make("{\"arguments\": {}, \"precision\": \"fp8\"}", &kernel, &error));
  cr_expect_str_eq(error.pointer, "/precision");
  static const char *const scales[] = {"0", "1e-9", "1.5", "-0.5", "true", "null"};
  for (size_t i = 0; i < ARRAY_LENGTH(scales); i++) {
    cleanup_free char *text = xasprintf("{\"arguments\": {}, \"scale\": %s}", scales[i]);
    cr_expect_not(make(text, &kernel, &error), "%s was taken", text);
    cr_expect_str_eq(error.pointer, "/scale");
  }
}

Test(kernel_case, a_reference_does_not_make_another_kernel_of_a_captured_one) {
  cleanup_json json_t *json = json_of(manifest);
  cleanup_kernel struct kernel *without = kernel_of(manifest);
  json_object_set_new(json, "reference",
                      json_pack("{s:{s:s, s:s}, s:{s:s}, s:f}", "source", "path", "r.c", "digest",
                                DIGEST_A, "outputs", "y", "y_at", "rtol", 0.5));
  cleanup_kernel struct kernel *with = kernel_of_json(json);
  cr_expect_str_eq(with->reference.source.path, "r.c");
  cr_expect(digest_equal(&with->hash, &without->hash));
}

Test(kernel_case, an_output_of_the_reference_is_no_alias) {
  cleanup_json json_t *json = json_of(manifest);
  cleanup_json json_t *reference =
      json_of("{\"source\": {\"path\": \"r.c\", \"digest\": \"" DIGEST_A
              "\"}, \"outputs\": {\"y\": \"y_at\"}}");
  json_object_set(json, "reference", reference);
  cleanup_kernel struct kernel *kernel = kernel_of_json(json), *made = NULL;
  cleanup_json json_t *of_case =
      json_of("{\"arguments\": {\"x\": {\"elements\": 4, \"access\": \"read\"}, \"y\": "
              "{\"elements\": 4, \"access\": \"readwrite\", \"alias\": \"x\"}}}");
  struct error error;
  cr_expect_not(kernel_of_case(kernel, of_case, &made, &error));
  cr_expect_str_eq(error.pointer, "/arguments/y/alias");
}

Test(kernel_case, wrong_captured_manifests_are_refused) {
  static const struct {
    const char *old, *new, *pointer;
  } refusals[] = {
      {"\"triton\"", "\"hip\"", "/cases"},
      {"\"build\"", "\"other\"", "/cases"},
      {", \"kind\": \"scalar\"}", "}", "/arguments/2/kind"},
      {"\"kind\": \"scalar\"}", "\"kind\": \"scalar\", \"value\": 1}", "/arguments/2/value"},
      {"\"kind\": \"buffer\"}", "\"kind\": \"buffer\", \"shape\": [1]}", "/arguments/0/shape"},
      {"\"kind\": \"buffer\"}", "\"kind\": \"buffer\", \"access\": \"read\"}",
       "/arguments/0/access"},
      {"\"kind\": \"buffer\"}", "\"kind\": \"buffer\", \"fill\": \"zeros\"}", "/arguments/0/fill"},
      {"\"kind\": \"buffer\"}", "\"kind\": \"buffer\", \"segments\": \"B\"}",
       "/arguments/0/segments"},
      {"\"key\":", "\"launch\": {\"grid\": [1]}, \"key\":", "/launch"},
      {"\"key\":", "\"defines\": {\"A\": 1}, \"key\":", "/defines"},
      {"\"cases\": \"build\",", "", "/arguments/0/kind"},
  };
  for (size_t i = 0; i < ARRAY_LENGTH(refusals); i++) {
    const char *found = strstr(manifest, refusals[i].old);
    cr_assert_not_null(found);
    cleanup_free char *text = xasprintf("%.*s%s%s", (int)(found - manifest), manifest,
                                        refusals[i].new, found + strlen(refusals[i].old));
    cleanup_json json_t *json = json_of(text);
    struct kernel *kernel = NULL;
    struct error error;
    cr_assert_not(kernel_parse(json, &kernel, &error), "%s was taken", text);
    cr_expect_str_eq(error.pointer, refusals[i].pointer, "%s: %s", error.pointer, error.message);
  }
}
