/* Builds against what their objects really are: each way to be wrong, over the kernels of a
 * committed cubin. */
#include <criterion/criterion.h>

#include "common/base/file.h"
#include "inspect/build_review.h"

/* The cubin's kernel on_stack takes a pointer, 8 bytes and 1 byte; it has 30 registers and 256
 * bytes of stack. */
#define CUBIN SOURCE_FOLDER "/tests/data/codeobjects/resources_sm_90.cubin"
#define TEXT "module attributes {}"

static bool blob_give(void *context, const struct digest *digest, char **ret_bytes,
                      size_t *ret_size, struct error *error) {
  struct digest text = digest_of(TEXT, strlen(TEXT));
  char digest_text[DIGEST_TEXT_SIZE];
  (void)context;
  if (digest_equal(digest, &text)) {
    *ret_bytes = xstrdup(TEXT);
    *ret_size = strlen(TEXT);
    return true;
  }
  if (digest->bytes[0] == 0xaa)
    return error_set(error, "there is no blob %s", digest_format(digest, digest_text));
  if (digest->bytes[0] == 0xbb) {
    *ret_bytes = xstrdup("damaged");
    *ret_size = 7;
    return true;
  }
  return file_read(CUBIN, 1 << 20, ret_bytes, ret_size, error);
}

static char *cubin_digest(char text[DIGEST_TEXT_SIZE]) {
  cleanup_free char *bytes = NULL;
  size_t size;
  struct error error;
  cr_assert(file_read(CUBIN, 1 << 20, &bytes, &size, &error), "%s", error.message);
  struct digest digest = digest_of(bytes, size);
  return digest_format(&digest, text);
}

#define AA "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define BB "sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
#define METADATA "\"name\": \"on_stack\", \"num_warps\": 4, \"shared\": 0"
#define SIGNATURE "\"a\": \"*fp32\", \"n\": \"i64\", \"flag\": \"i1\""

/* A build with one object. NULL: what is right. */
struct made {
  const char *signature, *constexprs, *digest, *metadata, *arch;
};

static char *build_text(struct made made) {
  char digest[DIGEST_TEXT_SIZE];
  cubin_digest(digest);
  return xasprintf(
      "{\"kernel\": \"%s\", \"toolchain\": {\"triton\": \"3.6.0\"}, \"arch\": \"%s\", "
      "\"warp_size\": 32, \"variants\": "
      "[{\"signature\": {%s}, \"constexprs\": {%s}, \"objects\": [{\"config\": {\"B\": 64}, "
      "\"digest\": \"%s\", "
      "\"metadata\": {%s}}], \"failed\": [{\"config\": {\"B\": 1}, \"error\": \"no\"}]}]}",
      AA, made.arch ? made.arch : "sm_90", made.signature ? made.signature : SIGNATURE,
      made.constexprs ? made.constexprs : "", made.digest ? made.digest : digest,
      made.metadata ? made.metadata : METADATA);
}

static struct build_review *review_of_text(const char *text, const struct kernel *kernel) {
  cleanup_json json_t *json = NULL;
  struct build_review *review = NULL;
  struct blob_reader reader = {blob_give, NULL};
  struct error error;
  cr_assert(json_parse(text, strlen(text), &json, &error), "%s: %s", error.message, text);
  cr_assert(build_review_make(json, kernel, &reader, &review, &error), "%s", error.message);
  return review;
}

static struct build_review *review_of(struct made made, const struct kernel *kernel) {
  cleanup_free char *text = build_text(made);
  return review_of_text(text, kernel);
}

static void assert_refused(struct made made, const struct kernel *kernel, const char *words) {
  cleanup_build_review struct build_review *review = review_of(made, kernel);
  cr_assert_geq(review_count(&review->findings, REVIEW_REFUSED), 1u, "%s", words);
  cr_assert(strstr(review->findings.items[0].sentence, words), "%s",
            review->findings.items[0].sentence);
}

static struct kernel *kernel_with(const char *arguments) {
  cleanup_free char *text =
      xasprintf("{\"name\": \"k\", \"language\": \"triton\", \"entry\": \"k\", \"sources\": "
                "[{\"path\": \"k.py\", \"digest\": "
                "\"%s\"}], \"key\": [\"n\"], \"launch\": {\"grid\": [1]}, \"arguments\": [%s]}",
                AA, arguments);
  cleanup_json json_t *json = NULL;
  struct kernel *kernel = NULL;
  struct error error;
  cr_assert(json_parse(text, strlen(text), &json, &error) && kernel_parse(json, &kernel, &error),
            "%s", error.message);
  return kernel;
}
#define BUFFER                                                                                     \
  "{\"name\": \"a\", \"dtype\": \"float32\", \"shape\": [\"n\"], \"access\": \"write\"}"
#define SCALAR "{\"name\": \"n\", \"dtype\": \"int64\", \"value\": \"n\"}"
#define FLAG "{\"name\": \"flag\", \"dtype\": \"bool\", \"value\": \"n > 1\"}"

Test(build_review, of_a_whole_build_refuses_nothing) {
  cleanup_kernel struct kernel *kernel = kernel_with(BUFFER "," SCALAR "," FLAG);
  cleanup_build_review struct build_review *review = review_of((struct made){0}, kernel);
  cr_assert_eq(review_count(&review->findings, REVIEW_REFUSED), 0u);
  cr_assert_eq(review->n_objects, 1u);
  cr_assert_eq(review->n_distinct, 1u);
  cr_assert_eq(review->n_failed, 1u);
  cr_assert_eq(review->resources[0].vgprs, 30);
  cr_assert_str_eq(review->triton, "3.6.0");
  const json_t *object = json_array_get(review->objects, 0);
  cr_assert_float_eq(json_real_value(json_object_get(object, "waves_per_eu")), 16, 1e-9);
  cr_assert(json_is_null(json_object_get(object, "refused")));
}

Test(build_review, reports_which_objects_spill) {
  cleanup_build_review struct build_review *review = review_of((struct made){0}, NULL);
  cr_assert_eq(review->n_spilling, 1u);
  cr_assert_str_eq(review->findings.items[0].sentence,
                   "1 of 1 objects spill registers: they are measured last");
}

Test(build_review, an_object_that_is_absent_damaged_or_other_code_is_refused) {
  assert_refused((struct made){.digest = AA}, NULL,
                 "the object of variant 0, B=64: there is no blob sha256:aa");
  assert_refused((struct made){.digest = BB}, NULL,
                 "B=64: its bytes are damaged: their digest is sha256:");
  assert_refused((struct made){.digest = "none"}, NULL, "digest");
  assert_refused((struct made){.arch = "gfx942:sramecc+"}, NULL,
                 "it is code for sm_90, the build is for gfx942:sramecc+");
  char text[DIGEST_TEXT_SIZE];
  struct digest digest = digest_of(TEXT, strlen(TEXT));
  assert_refused((struct made){.digest = digest_format(&digest, text)}, NULL, "B=64: ");
}

Test(build_review, an_object_without_its_kernel_or_with_wrong_metadata_is_refused) {
  assert_refused((struct made){.metadata = "\"name\": \"other\", \"num_warps\": 4"}, NULL, "other");
  assert_refused((struct made){.metadata = "\"num_warps\": 4"}, NULL, "its metadata: ");
  assert_refused((struct made){.metadata = METADATA ", \"global_scratch_size\": 8"}, NULL,
                 "requires scratch memory");
}

Test(build_review, an_object_that_cannot_run_is_refused) {
  assert_refused((struct made){.metadata = "\"name\": \"on_stack\", \"num_warps\": 64"}, NULL,
                 "it needs 2048 threads");
  assert_refused(
      (struct made){.metadata = "\"name\": \"on_stack\", \"num_warps\": 4, \"shared\": 300000"},
      NULL, "it needs 300000 bytes of shared memory");
  assert_refused((struct made){.metadata = "\"name\": \"reversed\", \"num_warps\": 16"}, NULL,
                 "it is launched with 512 threads and was compiled for at most 256");
}

Test(build_review, arguments_are_counted_without_a_manifest) {
  assert_refused((struct made){.signature = "\"a\": \"*fp32\", \"n\": \"i64\""}, NULL,
                 "its code takes 3 arguments, the signature and scratch are 2");
  assert_refused((struct made){.metadata = METADATA ", \"scratch\": 2"}, NULL, "are 5");
}

Test(build_review, arguments_are_compared_in_the_manifests_order) {
  cleanup_kernel struct kernel *kernel = kernel_with(BUFFER "," SCALAR "," FLAG);
  cleanup_kernel struct kernel *swapped = kernel_with(BUFFER "," FLAG "," SCALAR);
  assert_refused((struct made){.signature = "\"a\": \"*fp32\", \"n\": \"i32\", \"flag\": \"i1\""},
                 kernel, "argument \"n\" takes 8 bytes in its code and 4 by the signature");
  assert_refused((struct made){0}, swapped,
                 "argument \"flag\" takes 8 bytes in its code and 1 by the signature");
  assert_refused(
      (struct made){.signature = "\"a\": \"*fp32\", \"n\": \"tensordesc\", \"flag\": \"i1\""},
      kernel, "argument \"n\" has a type whose size is not known: tensordesc");
}

Test(build_review, scratch_pointers_follow_the_arguments) {
  cleanup_kernel struct kernel *kernel = kernel_with(BUFFER);
  assert_refused(
      (struct made){.signature = "\"a\": \"*fp32\"", .metadata = METADATA ", \"scratch\": 2"},
      kernel, "argument \"scratch\" takes 1 bytes in its code and 8 by the signature");
}

Test(build_review, an_argument_is_passed_or_compiled_in) {
  cleanup_kernel struct kernel *kernel = kernel_with(BUFFER "," SCALAR "," FLAG);
  cleanup_kernel struct kernel *fewer = kernel_with(BUFFER "," FLAG);
  cleanup_kernel struct kernel *half = kernel_with(
      "{\"name\": \"a\", \"dtype\": \"float16\", \"shape\": [\"n\"], \"access\": \"write\"}," SCALAR
      "," FLAG);
  struct made without_n = {.signature = "\"a\": \"*fp32\", \"flag\": \"i1\""};
  assert_refused(
      without_n, kernel,
      "variant 0: the manifest's argument \"n\" is neither in the signature nor compiled in");
  without_n.constexprs = "\"n\": 1";
  assert_refused(without_n, kernel, "its code takes 3 arguments, the signature and scratch are 2");
  assert_refused((struct made){0}, fewer,
                 "variant 0: the signature passes 3 arguments, of which the manifest has 2");
  cleanup_kernel struct kernel *narrow =
      kernel_with(BUFFER ", {\"name\": \"n\", \"dtype\": \"int32\", \"value\": \"n\"}," FLAG);
  assert_refused((struct made){0}, narrow,
                 "variant 0: argument \"n\" is int32 in the manifest and i64 in the signature");
  assert_refused((struct made){0}, half,
                 "variant 0: argument \"a\" is a buffer of float16 in the manifest and *fp32 in "
                 "the signature");
}

Test(build_review, texts_beside_the_code_are_there_and_whole) {
  char text[DIGEST_TEXT_SIZE];
  struct digest digest = digest_of(TEXT, strlen(TEXT));
  digest_format(&digest, text);
  cleanup_free char *good =
      xasprintf(METADATA ", \"files\": {\"ttgir\": \"%s\", \"again\": \"%s\"}", text, text);
  cleanup_build_review struct build_review *review =
      review_of((struct made){.metadata = good}, NULL);
  cr_assert_eq(review->n_files, 1u);
  cr_assert_eq(review_count(&review->findings, REVIEW_REFUSED), 0u);
  assert_refused((struct made){.metadata = METADATA ", \"files\": {\"ttgir\": \"" AA "\"}"}, NULL,
                 "file \"ttgir\" of B=64: there is no blob");
  assert_refused((struct made){.metadata = METADATA ", \"files\": {\"ttgir\": \"" BB "\"}"}, NULL,
                 "damaged");
  assert_refused((struct made){.metadata = METADATA ", \"files\": {\"ttgir\": 7}"}, NULL,
                 "its digest is not one");
}

Test(build_review, many_refused_objects_are_listed_in_part) {
  cleanup_free char *objects = xstrdup("");
  for (int i = 0; i < 25; i++) {
    char *longer = xasprintf("%s%s{\"config\": {\"B\": %d}, \"digest\": \"" AA "\"}", objects,
                             i ? "," : "", i);
    free(objects);
    objects = longer;
  }
  cleanup_free char *text = xasprintf(
      "{\"arch\": \"gfx942\", \"warp_size\": 64, \"variants\": [{\"objects\": [%s]}]}", objects);
  cleanup_build_review struct build_review *review = review_of_text(text, NULL);
  cr_assert_eq(review->n_refused, 25u);
  cr_assert_eq(review->n_distinct, 1u);
  cr_assert_eq(review->findings.n, 21u);
  cr_assert_str_eq(review->findings.items[20].sentence, "5 more objects are refused");
}

Test(build_review, a_build_without_objects_is_refused) {
  cleanup_build_review struct build_review *review = review_of_text(
      "{\"arch\": \"sm_90\", \"warp_size\": 32, \"variants\": [{\"objects\": []}]}", NULL);
  cr_assert_eq(review->findings.n, 1u);
  cr_assert_eq(review->findings.items[0].severity, REVIEW_REFUSED);
  cr_assert_str_eq(review->findings.items[0].sentence, "it has no objects");
}

Test(build_review, control_characters_of_a_build_are_replaced) {
  cleanup_build_review struct build_review *review = review_of_text(
      "{\"arch\": \"sm_\\u001b[2J\", \"warp_size\": 32, \"variants\": [{\"objects\": [{\"config\": "
      "{\"\\u001b[2J\\u009b\\u00e9\": 1}}]}]}",
      NULL);
  cr_assert_str_eq(review->arch, "sm_?[2J");
  cr_assert_str_eq(review->findings.items[0].sentence,
                   "the object of variant 0, ?[2J??\u00e9=1: member \"digest\" is missing");
}

Test(build_review, what_is_no_build_is_an_error) {
  static const struct {
    const char *text, *words;
  } cases[] = {
      {"[]", "must be an object"},
      {"{}", "arch"},
      {"{\"arch\": \"gfx942\", \"warp_size\": 0, \"variants\": []}", "warp_size"},
      {"{\"arch\": \"gfx942\", \"warp_size\": 64}", "variants"},
      {"{\"arch\": \"gfx942\", \"warp_size\": 64, \"variants\": [], \"toolchain\": {\"triton\": "
       "3}}",
       "triton"},
  };
  for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
    cleanup_json json_t *json = NULL;
    struct build_review *review = NULL;
    struct blob_reader reader = {blob_give, NULL};
    struct error error;
    cr_assert(json_parse(cases[i].text, strlen(cases[i].text), &json, &error));
    cr_assert_not(build_review_make(json, NULL, &reader, &review, &error), "%s", cases[i].text);
    cr_assert(strstr(error.message, cases[i].words), "%s: %s", cases[i].text, error.message);
  }
}
