/* A lease's objects from a build: folders as `pack` writes them, with code for gfx942 that clang
 * makes here. */
#include "agent/lease/builds.h"

#include <criterion/criterion.h>
#include <sys/stat.h>

#include "common/base/file.h"
#include "common/program/command.h"

#define ARCH "gfx942"
/* Two arguments and n; n is compiled in where it is 1. Two scratch pointers follow, as since
 * Triton 3.5. */
#define CODE                                                                                       \
  "kernel void f(global float *y, global const float *x, int n, global void *g, global void *p) "  \
  "{\n"                                                                                            \
  "  local float shared[64]; int i = __builtin_amdgcn_workitem_id_x(); shared[i] = x[i];\n"        \
  "  if (i < n) y[i] = shared[63 - i]; }\n"

struct packed {
  char *folder; /* build.json and objects/ in it, and "cache" */
  struct kernel *kernel;
  struct key key;
  struct space *space;
  json_t *build;
  struct digest code; /* of the object */
  size_t n_read;      /* blobs that were requested */
};

static json_t *json_of(const char *text) {
  struct error error = {0};
  json_t *json = NULL;
  cr_assert(json_parse(text, strlen(text), &json, &error), "%s", error.message);
  return json;
}

static void file_write(const char *folder, const char *name, const void *bytes, size_t size) {
  struct error error = {0};
  cleanup_free char *path = xasprintf("%s/%s", folder, name);
  cr_assert(file_write_atomically(path, bytes, size, 0600, &error), "%s", error.message);
}

/* Compiles CODE; skips the test where that cannot be done. */
static void code_compile(const char *folder, char **ret_bytes, size_t *ret_size) {
  struct error error = {0};
  struct command_result result;
  cleanup_free char *clang = NULL, *object = xasprintf("%s/f.co", folder);
  static const char *const environment[] = {"PATH=/usr/bin:/bin", NULL};
  if (!program_find("clang-19", &clang, &error))
    cr_skip("no code for " ARCH " can be made: %s", error.message);
  file_write(folder, "f.cl", CODE, strlen(CODE));
  const char *const arguments[] = {clang,
                                   "-x",
                                   "cl",
                                   "-cl-std=CL2.0",
                                   "--target=amdgcn-amd-amdhsa",
                                   "-mcpu=" ARCH,
                                   "-nogpulib",
                                   "-O2",
                                   "-o",
                                   object,
                                   "f.cl",
                                   NULL};
  struct command command = {.arguments = (char *const *)arguments,
                            .environment = (char *const *)environment,
                            .folder = folder,
                            .timeout_ms = 60000,
                            .cpu_seconds_max = 60,
                            .memory_bytes_max = (uint64_t)8 << 30,
                            .file_bytes_max = (uint64_t)1 << 30,
                            .output_max = 4096,
                            .stop_fd = -1};
  cr_assert(command_run(&command, &result, &error), "%s", error.message);
  if (!result.succeeded)
    cr_skip("clang-19 makes no code for " ARCH ": %s", result.output);
  free(result.output);
  cr_assert(file_read(object, (size_t)1 << 20, ret_bytes, ret_size, &error), "%s", error.message);
}

#define METADATA                                                                                   \
  "{\"name\": \"f\", \"shared\": 4096, \"num_warps\": 4, \"warp_size\": 64, \"num_ctas\": 1, "     \
  "\"launch_cooperative_grid\": false, \"scratch\": 2, \"global_scratch_size\": 0, "               \
  "\"profile_scratch_size\": 0}"

/* A build of two variants; the variant for n == 1 has no argument n. The config of BLOCK 64 has its
 * members in another order, 128 failed, 256 is absent. */
static struct packed packed_new(const char *metadata) {
  struct packed packed = {0};
  struct error error = {0};
  char folder[] = "/tmp/wavetune-test-XXXXXX", digest[DIGEST_TEXT_SIZE];
  cleanup_free char *bytes = NULL;
  size_t size;
  cr_assert_not_null(mkdtemp(folder));
  packed.folder = xstrdup(folder);
  code_compile(folder, &bytes, &size);
  packed.code = digest_of(bytes, size);
  cleanup_free char *objects = xasprintf("%s/objects", folder);
  cr_assert(folder_make(objects, 0700, &error));
  file_write(objects, digest_format(&packed.code, digest) + strlen("sha256:"), bytes, size);
  cleanup_json json_t *manifest = json_pack(
      "{s:s, s:s, s:s, s:[{s:s, s:s}], s:[s], s:o, s:{s:[s]}}", "name", "test", "language",
      "triton", "entry", "f", "sources", "path", "f.py", "digest", digest, "key", "n", "arguments",
      json_of("[{\"name\": \"y\", \"dtype\": \"float32\", \"shape\": [64], \"access\": \"write\"},"
              "{\"name\": \"x\", \"dtype\": \"float32\", \"shape\": [64], \"access\": \"read\"},"
              "{\"name\": \"n\", \"dtype\": \"int32\", \"value\": \"n\"}]"),
      "launch", "grid", "ceil_div(n, BLOCK)");
  cr_assert(kernel_parse(manifest, &packed.kernel, &error), "%s", error.message);
  cleanup_json json_t *key = json_of("{\"n\": 64}");
  cr_assert(key_parse(key, NULL, 0, &packed.key, &error));
  cleanup_json json_t *space =
      json_of("{\"parameters\": {\"BLOCK\": [64, 128, 256], \"num_warps\": [4]}, "
              "\"roles\": {\"num_warps\": \"option\"}}");
  cr_assert(space_parse(space, &packed.space, &error), "%s", error.message);
  packed.build = json_pack(
      "{s:o, s:{s:s}, s:s, s:i, s:[{s:s, s:o, s:o, s:[{s:o, s:s, s:o}]}, {s:o, s:{}, s:[{s:o, s:s, "
      "s:o}], s:[{s:o, "
      "s:s}]}]}",
      "kernel", json_digest_text(&packed.kernel->hash), "toolchain", "triton", "3.6.0", "arch",
      ARCH, "warp_size", 64, "variants", "when", "n == 1", "signature",
      json_of("{\"y\": \"*fp32\", \"x\": \"*fp32\"}"), "constexprs", json_of("{\"n\": 1}"),
      "objects", "config", json_of("{\"BLOCK\": 64, \"num_warps\": 4}"), "digest", digest,
      "metadata", json_of(metadata), "signature",
      json_of("{\"y\": \"*fp32\", \"x\": \"*fp32\", \"n\": \"i32\"}"), "constexprs", "objects",
      "config", json_of("{\"num_warps\": 4, \"BLOCK\": 64}"), "digest", digest, "metadata",
      json_of(metadata), "failed", "config", json_of("{\"BLOCK\": 128, \"num_warps\": 4}"), "error",
      "out of LDS");
  cr_assert_not_null(packed.build);
  cleanup_free char *text = json_canonical(packed.build);
  file_write(folder, "build.json", text, strlen(text));
  return packed;
}

static void packed_free(struct packed *packed) {
  struct error error = {0};
  kernel_free(packed->kernel);
  key_release(&packed->key);
  space_free(packed->space);
  json_decref(packed->build);
  cr_expect(folder_remove(packed->folder, &error), "%s", error.message);
  free(packed->folder);
}

static bool blob_read(void *context, const struct source *source, char **ret_bytes,
                      size_t *ret_size, struct error *error) {
  struct packed *packed = context;
  packed->n_read++;
  return build_folder_blob(packed->folder, source, ret_bytes, ret_size, error);
}

/* Prepares all configs of the space for n, on a device of `arch`. */
static bool prepare(struct packed *packed, const char *arch, int64_t n,
                    struct build_objects **ret_objects, struct error *error) {
  static const uint64_t configs[] = {2, 0, 1, 0};
  cleanup_free char *cache = xasprintf("%s/cache", packed->folder);
  struct build_request request = {packed->kernel, &packed->key,          packed->space, "a GPU",
                                  arch,           ARRAY_LENGTH(configs), configs};
  struct source_reader reader = {blob_read, packed};
  packed->key.values[0] = value_int(n);
  return build_objects_prepare(cache, packed->build, &request, &reader, ret_objects, error);
}

static struct build_objects *prepared(struct packed *packed, int64_t n) {
  struct build_objects *objects = NULL;
  struct error error = {0};
  cr_assert(prepare(packed, ARCH, n, &objects, &error), "%s", error.message);
  return objects;
}

static void expect_refused(struct packed *packed, const char *arch, int64_t n,
                           const char *message) {
  struct build_objects *objects;
  struct error error = {0};
  cr_expect_not(prepare(packed, arch, n, &objects, &error));
  cr_expect_not_null(strstr(error.message, message), "%s", error.message);
}

Test(builds, an_object_is_stored_with_its_launch) {
  struct packed packed = packed_new(METADATA);
  struct build_objects *objects = prepared(&packed, 64);
  const struct lease_object *object = build_objects_find(objects, 0);
  struct error error = {0};
  char *bytes;
  size_t size;
  cr_assert(object->is_ok, "%s", object->detail);
  cr_assert(file_read(object->path, (size_t)1 << 20, &bytes, &size, &error), "%s", error.message);
  struct digest digest = digest_of(bytes, size);
  cr_expect(digest_equal(&digest, &packed.code));
  free(bytes);
  const struct launch_spec *launch = &object->launch;
  cr_expect_str_eq(launch->entry, "f");
  cr_expect_eq(launch->threads, 256);
  cr_expect_eq(launch->shared_bytes, 4096);
  cr_expect_eq(launch->n_scratch, 2);
  cr_expect_eq(launch->cluster, 1);
  cr_expect_not(launch->cooperative);
  cr_expect_eq(launch->arguments.n, 3);
  cr_expect_eq(launch->resources.lds_bytes, 256);
  cr_expect_gt(launch->resources.vgprs, 0);
  build_objects_free(objects);
  packed_free(&packed);
}

Test(builds, failed_and_absent_configs_have_a_reason) {
  struct packed packed = packed_new(METADATA);
  struct build_objects *objects = prepared(&packed, 64);
  const struct lease_object *failed = build_objects_find(objects, 1),
                            *absent = build_objects_find(objects, 2);
  cr_expect_not(failed->is_ok);
  cr_expect_eq(failed->outcome, OUTCOME_COMPILE);
  cr_expect_str_eq(failed->detail, "out of LDS");
  cr_expect_eq(absent->outcome, OUTCOME_COMPILE);
  cr_expect_not_null(
      strstr(absent->detail, "the build has no object of {\"BLOCK\":256,\"num_warps\":4}"), "%s",
      absent->detail);
  build_objects_free(objects);
  packed_free(&packed);
}

Test(builds, a_blob_is_fetched_once) {
  struct packed packed = packed_new(METADATA);
  build_objects_free(prepared(&packed, 64));
  build_objects_free(prepared(&packed, 64));
  cr_expect_eq(packed.n_read, 1);
  packed_free(&packed);
}

static struct build_objects *objects_of_key(struct packed *packed, struct build_code *code,
                                            int64_t n) {
  static const uint64_t configs[] = {0};
  struct build_request request = {packed->kernel, &packed->key, packed->space, "a GPU", ARCH, 1,
                                  configs};
  struct build_objects *objects = NULL;
  struct error error = {0};
  packed->key.values[0] = value_int(n);
  cr_assert(build_code_objects(code, &request, &objects, &error), "%s", error.message);
  return objects;
}

Test(builds, keys_of_one_variant_share_their_code) {
  struct packed packed = packed_new(METADATA);
  struct source_reader reader = {blob_read, &packed};
  struct error error = {0};
  cleanup_free char *cache = xasprintf("%s/cache", packed.folder);
  struct build_code *code = NULL;
  cr_assert(build_code_new(cache, packed.build, packed.kernel, ARCH, &reader, &code, &error), "%s",
            error.message);
  struct build_objects *first = objects_of_key(&packed, code, 64);
  cr_assert(folder_remove(cache, &error));
  struct build_objects *second = objects_of_key(&packed, code, 128);
  cr_expect_eq(packed.n_read, 1);
  cr_expect(build_objects_find(second, 0)->is_ok);
  cr_expect_str_eq(build_objects_find(second, 0)->path, build_objects_find(first, 0)->path);
  build_objects_free(first);
  cr_expect_str_eq(build_objects_find(second, 0)->launch.arguments.all[2].name, "n",
                   "it is the second key's own");
  build_objects_free(second);
  build_code_free(code);
  packed_free(&packed);
}

Test(builds, a_blob_that_was_damaged_on_the_disk_is_fetched_again) {
  struct packed packed = packed_new(METADATA);
  struct build_objects *objects = prepared(&packed, 64);
  cr_assert_eq(truncate(build_objects_find(objects, 0)->path, 100), 0);
  build_objects_free(objects);
  objects = prepared(&packed, 64);
  cr_expect(build_objects_find(objects, 0)->is_ok);
  cr_expect_eq(packed.n_read, 2);
  build_objects_free(objects);
  packed_free(&packed);
}

/* The code takes n: the launch would not pass the arguments that were compiled. */
Test(builds, code_that_takes_other_arguments_than_are_passed_is_not_used) {
  struct packed packed = packed_new(METADATA);
  struct build_objects *objects = prepared(&packed, 1);
  const struct lease_object *object = build_objects_find(objects, 0);
  cr_expect_not(object->is_ok);
  cr_expect_not_null(
      strstr(object->detail, "its code takes 5 arguments, the signature and scratch are 4"), "%s",
      object->detail);
  build_objects_free(objects);
  packed_free(&packed);
}

/* Sets the arguments that the variant for all keys but 1 states. */
static void arguments_set(struct packed *packed, const char *signature, const char *constexprs) {
  json_t *variant = json_array_get(json_object_get(packed->build, "variants"), 1);
  json_object_set_new(variant, "signature", json_of(signature));
  json_object_set_new(variant, "constexprs", json_of(constexprs));
}

static void expect_unusable(struct packed *packed, int64_t n, const char *detail) {
  struct build_objects *objects = prepared(packed, n);
  const struct lease_object *object = build_objects_find(objects, 0);
  cr_assert_not(object->is_ok, "%s", detail);
  cr_expect_eq(object->outcome, OUTCOME_COMPILE);
  cr_expect_not_null(strstr(object->detail, detail), "%s", object->detail);
  build_objects_free(objects);
}

Test(builds, code_that_takes_an_argument_of_another_size_is_not_used) {
  struct packed packed = packed_new(METADATA);
  packed.kernel->arguments[2].dtype = DTYPE_INT64;
  arguments_set(&packed, "{\"y\": \"*fp32\", \"x\": \"*fp32\", \"n\": \"i64\"}", "{}");
  expect_unusable(&packed, 64, "argument \"n\" takes 4 bytes in its code and 8 by the signature");
  packed_free(&packed);
}

/* x is eight bytes in either case. */
Test(builds, code_that_takes_a_pointer_where_a_value_is_passed_is_not_used) {
  struct packed packed = packed_new(METADATA);
  struct argument *x = &packed.kernel->arguments[1];
  x->is_buffer = false;
  x->dtype = DTYPE_INT64;
  arguments_set(&packed, "{\"y\": \"*fp32\", \"x\": \"i64\", \"n\": \"i32\"}", "{}");
  expect_unusable(&packed, 64, "argument \"x\" is a pointer in its code and i64 in the signature");
  x->is_buffer = true;
  x->dtype = DTYPE_FLOAT32;
  packed_free(&packed);
}

Test(builds, code_for_another_arch_than_its_build_is_not_used) {
  struct packed packed = packed_new(METADATA);
  struct build_objects *objects;
  struct error error = {0};
  json_object_set_new(packed.build, "arch", json_string("gfx90a"));
  cr_assert(prepare(&packed, "gfx90a", 64, &objects, &error), "%s", error.message);
  const struct lease_object *object = build_objects_find(objects, 0);
  cr_expect_not(object->is_ok);
  cr_expect_not_null(strstr(object->detail, "it is code for gfx942, the build is for gfx90a"), "%s",
                     object->detail);
  build_objects_free(objects);
  packed_free(&packed);
}

Test(builds, threads_are_counted_in_the_wavefronts_of_the_code) {
  struct packed packed =
      packed_new("{\"name\": \"f\", \"num_warps\": 4, \"warp_size\": 32, \"scratch\": 2}");
  expect_unusable(&packed, 64, "its code runs in wavefronts of 64 lanes, the build states 32");
  packed_free(&packed);
}

/* The variant's `when` need not exclude it. */
Test(builds, a_value_other_than_the_compiled_one_is_refused) {
  struct packed packed = packed_new(METADATA);
  json_t *variant = json_array_get(json_object_get(packed.build, "variants"), 0);
  json_object_set_new(variant, "when", json_string("n <= 2"));
  expect_unusable(&packed, 2, "its code was compiled with \"n\" being 1, which is 2 here");
  packed_free(&packed);
}

Test(builds, a_value_that_the_code_takes_in_too_few_bits_is_refused) {
  struct packed packed = packed_new(METADATA);
  packed.kernel->arguments[2].dtype = DTYPE_INT64;
  expect_unusable(&packed, INT64_C(1) << 31,
                  "its code takes \"n\" as i32, which cannot hold 2147483648");
  build_objects_free(prepared(&packed, INT32_MAX));
  packed_free(&packed);
}

Test(builds, a_config_fails_when_its_scalar_cannot_be_computed) {
  struct packed packed = packed_new(METADATA);
  packed.kernel->arguments[2].dtype = DTYPE_INT64;
  free(packed.kernel->arguments[2].value);
  packed.kernel->arguments[2].value = xstrdup("n // (BLOCK - 64)");
  expect_unusable(&packed, 64, "argument \"n\": ");
  packed_free(&packed);
}

Test(builds, the_most_memory_in_metadata_fits_in_a_request) {
  struct packed packed =
      packed_new("{\"name\": \"f\", \"num_warps\": 4, \"shared\": 2147483647, \"scratch\": 2}");
  struct build_objects *objects = prepared(&packed, 64);
  const struct lease_object *object = build_objects_find(objects, 0);
  struct launch_spec back;
  struct error error = {0};
  cr_assert(object->is_ok, "%s", object->detail);
  cleanup_json json_t *json = launch_spec_to_json(&object->launch);
  cr_assert(launch_spec_from_json(json, &back, &error), "%s", error.message);
  launch_spec_release(&back);
  build_objects_free(objects);
  packed_free(&packed);
}

Test(builds, code_may_take_an_integer_in_32_bits_that_the_manifest_has_in_64) {
  struct packed packed = packed_new(METADATA);
  packed.kernel->arguments[2].dtype = DTYPE_INT64;
  struct build_objects *objects = prepared(&packed, 64);
  cr_expect(build_objects_find(objects, 0)->is_ok);
  build_objects_free(objects);
  packed_free(&packed);
}

Test(builds, an_object_that_cannot_be_launched_has_the_outcome_compile) {
  static const struct {
    const char *metadata, *detail;
  } cases[] = {
      {"{\"name\": \"g\", \"num_warps\": 4, \"scratch\": 2}",
       "the build's object cannot be used: "},
      {"{\"num_warps\": 4}", "\"name\""},
      {"{\"name\": \"f\"}", "\"num_warps\""},
      {"{\"name\": \"f\", \"num_warps\": 4, \"scratch\": 2, \"global_scratch_size\": 64}",
       "scratch memory"},
      {"{\"name\": \"f\", \"num_warps\": 4, \"scratch\": 2, \"profile_scratch_size\": 64}",
       "scratch memory"},
  };
  for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
    struct packed packed = packed_new(cases[i].metadata);
    struct build_objects *objects = prepared(&packed, 64);
    const struct lease_object *object = build_objects_find(objects, 0);
    cr_expect_not(object->is_ok);
    cr_expect_eq(object->outcome, OUTCOME_COMPILE);
    cr_expect_not_null(strstr(object->detail, cases[i].detail), "%s", object->detail);
    build_objects_free(objects);
    packed_free(&packed);
  }
}

Test(builds, a_build_for_another_arch_is_refused) {
  struct packed packed = packed_new(METADATA);
  expect_refused(&packed, "gfx90a", 64, "the build is for gfx942 and this device is gfx90a");
  packed_free(&packed);
}

Test(builds, a_key_that_no_variant_covers_is_refused) {
  struct packed packed = packed_new(METADATA);
  json_object_set_new(json_array_get(json_object_get(packed.build, "variants"), 1), "when",
                      json_string("n == 2"));
  expect_refused(&packed, ARCH, 64, "no variant of the build for gfx942 covers this key");
  packed_free(&packed);
}

Test(builds, a_build_of_another_kernel_is_refused) {
  struct packed packed = packed_new(METADATA);
  json_object_set_new(packed.build, "kernel", json_digest_text(&packed.code));
  expect_refused(&packed, ARCH, 64, "for another kernel");
  packed_free(&packed);
}

Test(builds, a_variant_with_other_arguments_than_the_manifest_is_refused) {
  struct packed packed = packed_new(METADATA);
  json_t *variant = json_array_get(json_object_get(packed.build, "variants"), 1);
  json_object_set_new(json_object_get(variant, "signature"), "z", json_string("*fp32"));
  expect_refused(&packed, ARCH, 64,
                 "the signature passes 4 arguments, of which the manifest has 3");
  json_object_del(json_object_get(variant, "signature"), "x");
  expect_refused(&packed, ARCH, 64, "argument \"x\" is neither in the signature nor compiled in");
  packed_free(&packed);
}

Test(builds, a_blob_that_cannot_be_read_is_an_error) {
  struct packed packed = packed_new(METADATA);
  char digest[DIGEST_TEXT_SIZE];
  cleanup_free char *path = xasprintf("%s/objects/%s", packed.folder,
                                      digest_format(&packed.code, digest) + strlen("sha256:"));
  file_write(packed.folder, "other", "other", 5);
  cr_assert_eq(unlink(path), 0);
  expect_refused(&packed, ARCH, 64, path);
  cleanup_free char *other = xasprintf("%s/other", packed.folder);
  cr_assert_eq(rename(other, path), 0);
  expect_refused(&packed, ARCH, 64, "is not the blob sha256:");
  packed_free(&packed);
}

Test(builds, a_folder_that_pack_wrote_is_read) {
  struct packed packed = packed_new(METADATA);
  struct error error = {0};
  json_t *build;
  cr_assert(build_folder_read(packed.folder, &build, &error), "%s", error.message);
  cr_expect(json_equal(build, packed.build));
  json_decref(build);
  cr_expect_not(build_folder_read("/nowhere", &build, &error));
  cr_expect_not_null(strstr(error.message, "/nowhere/build.json"), "%s", error.message);
  packed_free(&packed);
}

/* A captured kernel, whose case for n 64 passes what the code of `packed` takes. `constexprs` are
 * compiled in. */
static struct packed captured_new(const char *arguments, const char *constexprs) {
  struct packed packed = packed_new(METADATA);
  struct error error = {0};
  char digest[DIGEST_TEXT_SIZE];
  digest_format(&packed.code, digest);
  cleanup_json json_t *manifest =
      json_pack("{s:s, s:s, s:s, s:s, s:[{s:s, s:s}], s:[s], s:o}", "name", "captured/test",
                "language", "triton", "entry", "f", "cases", "build", "sources", "path", "f.py",
                "digest", digest, "key", "n", "arguments",
                json_of("[{\"name\": \"y\", \"dtype\": \"float32\", \"kind\": \"buffer\"},"
                        "{\"name\": \"x\", \"dtype\": \"float32\", \"kind\": \"buffer\"},"
                        "{\"name\": \"n\", \"dtype\": \"int32\", \"kind\": \"scalar\"},"
                        "{\"name\": \"scale\", \"dtype\": \"float32\", \"kind\": \"scalar\"}]"));
  kernel_free(packed.kernel);
  cr_assert(kernel_parse(manifest, &packed.kernel, &error), "%s", error.message);
  json_decref(packed.build);
  packed.build = json_pack(
      "{s:o, s:{s:s}, s:s, s:i, s:[{s:{s:i}, s:{s:o}, s:o, s:o, s:[{s:o, s:s, s:o, s:[i, i, "
      "i]}]}]}",
      "kernel", json_digest_text(&packed.kernel->hash), "toolchain", "triton", "3.6.0", "arch",
      ARCH, "warp_size", 64, "variants", "key", "n", 64, "case", "arguments", json_of(arguments),
      "signature", json_of("{\"y\": \"*fp32\", \"x\": \"*fp32\", \"n\": \"i32\"}"), "constexprs",
      json_of(constexprs), "objects", "config", json_of("{\"BLOCK\": 64, \"num_warps\": 4}"),
      "digest", digest, "metadata", json_of(METADATA), "grid", 7, 2, 1);
  cr_assert_not_null(packed.build);
  return packed;
}

#define Y "\"y\": {\"elements\": 64, \"access\": \"readwrite\", \"fill\": \"zeros\"}, "
#define X "\"x\": {\"elements\": 64, \"access\": \"read\"}, "
#define NUMBER "\"n\": {\"value\": 64}"

Test(builds, an_object_of_a_captured_kernel_has_its_grid_and_its_case) {
  struct packed packed = captured_new("{" Y X NUMBER "}", "{\"scale\": null}");
  struct build_objects *objects = prepared(&packed, 64);
  const struct lease_object *object = build_objects_find(objects, 0);
  cr_assert(object->is_ok, "%s", object->detail);
  cr_assert_eq(object->launch.grid.n, 3);
  cr_expect(object->launch.grid.all[0] == 7 && object->launch.grid.all[1] == 2);
  cr_expect_eq(object->launch.arguments.n, 3);
  cr_expect_not_null(json_object_get(objects->of_key, "arguments"));
  cr_expect_eq(objects->n_blobs, 0);
  build_objects_free(objects);
  expect_refused(&packed, ARCH, 65, "no case of the build for gfx942 is of this key");
  packed_free(&packed);
}

Test(builds, the_bytes_of_a_case_are_fetched) {
  struct error error = {0};
  char contents[256] = {1}, digest[DIGEST_TEXT_SIZE], missing[DIGEST_TEXT_SIZE];
  struct digest of_contents = digest_of(contents, sizeof contents), of_none = digest_of("", 0);
  digest_format(&of_contents, digest);
  digest_format(&of_none, missing);
  cleanup_free char *arguments = xasprintf(
      "{" Y "\"x\": {\"elements\": 64, \"access\": \"read\", \"fill\": {\"blob\": \"%s\"}}, " NUMBER
      "}",
      digest);
  struct packed packed = captured_new(arguments, "{\"scale\": null}");
  cleanup_free char *folder = xasprintf("%s/objects", packed.folder);
  expect_refused(&packed, ARCH, 64, digest + strlen("sha256:"));
  file_write(folder, digest + strlen("sha256:"), contents, sizeof contents);
  struct build_objects *objects = prepared(&packed, 64);
  char *bytes;
  size_t size;
  cr_assert_eq(objects->n_blobs, 1);
  cr_expect(digest_equal(&objects->blobs[0].digest, &of_contents));
  cr_assert(file_read(objects->blobs[0].path, 1024, &bytes, &size, &error), "%s", error.message);
  cr_expect(size == sizeof contents && memcmp(bytes, contents, size) == 0);
  free(bytes);
  build_objects_free(objects);
  packed_free(&packed);

  cleanup_free char *wrong = xasprintf(
      "{" Y "\"x\": {\"elements\": 64, \"access\": \"read\", \"fill\": {\"blob\": \"%s\"}}, " NUMBER
      "}",
      missing);
  packed = captured_new(wrong, "{\"scale\": null}");
  cleanup_free char *other = xasprintf("%s/objects", packed.folder);
  file_write(other, missing + strlen("sha256:"), "", 0);
  expect_refused(&packed, ARCH, 64, "argument \"x\" has 256 bytes and its blob 0");
  packed_free(&packed);
}

Test(builds, expected_values_are_fetched) {
  char digest[DIGEST_TEXT_SIZE];
  struct digest of_values = digest_of("values", 6);
  digest_format(&of_values, digest);
  struct packed packed = captured_new("{" Y X NUMBER "}", "{\"scale\": null}");
  cleanup_free char *folder = xasprintf("%s/objects", packed.folder);
  json_object_set_new(json_array_get(json_object_get(packed.build, "variants"), 0), "expected",
                      json_string(digest));
  expect_refused(&packed, ARCH, 64, digest + strlen("sha256:"));
  file_write(folder, digest + strlen("sha256:"), "values", 6);
  struct build_objects *objects = prepared(&packed, 64);
  cr_expect(digest_equal(&objects->expected.digest, &of_values));
  cr_expect_eq(access(objects->expected.path, R_OK), 0);
  build_objects_free(objects);
  packed_free(&packed);
}

Test(builds, a_case_passes_what_the_signature_takes) {
  struct packed packed = captured_new("{" Y NUMBER "}", "{\"scale\": null}");
  expect_refused(&packed, ARCH, 64,
                 "the signature passes 3 arguments, of which the manifest has 2");
  packed_free(&packed);
}

Test(builds, a_float_other_than_the_compiled_one_is_refused) {
  struct packed packed =
      captured_new("{" Y X NUMBER ", \"scale\": {\"value\": 0.25}}", "{\"scale\": 0.5}");
  expect_unusable(&packed, 64,
                  "its code was compiled with \"scale\" being 0.5, which is 0.25 here");
  packed_free(&packed);
  packed = captured_new("{" Y X NUMBER ", \"scale\": {\"value\": 1}}", "{\"scale\": 1.0}");
  struct build_objects *objects = prepared(&packed, 64);
  cr_expect(build_objects_find(objects, 0)->is_ok, "%s", build_objects_find(objects, 0)->detail);
  build_objects_free(objects);
  packed_free(&packed);
}
