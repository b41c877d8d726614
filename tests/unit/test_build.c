/* Builds: what is read, every refusal with its pointer, and the choice of a variant by a key. */
#include <criterion/criterion.h>

#include "common/builds/build.h"

#define DIGEST_A "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define DIGEST_B "sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"

#define DIGEST_C "sha256:cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc"

#define FOLDER "LJRKDJI2OBMAZKYNPTGZ7GWDEXQ2H6345JVO4N5ZD6MLTWYCLTIQ"

static const char manifest_format[] =
    "{\"name\": \"add\", \"language\": \"%s\", \"entry\": \"add\","
    " \"sources\": [{\"path\": \"add.src\", \"digest\": \"" DIGEST_A
    "\"}], \"key\": [\"n\", \"dtype\"],"
    " \"arguments\": [{\"name\": \"y\", \"dtype\": \"float32\", \"shape\": [\"n\"], \"access\": "
    "\"write\"}], %s}";

static const char variants[] =
    "[{\"when\": \"n % 16 == 0\", \"signature\": {\"y\": \"*fp32\"}, \"constexprs\": {\"EVEN\": "
    "true},"
    "  \"objects\": [{\"config\": {\"BLOCK\": 64}, \"digest\": \"" DIGEST_B "\","
    "                 \"metadata\": {\"shared\": 0, \"files\": {\"ttgir\": \"" DIGEST_C "\"}}},"
    "                {\"config\": {\"BLOCK\": 128}, \"digest\": \"" DIGEST_A "\"}],"
    "  \"failed\": [{\"config\": {\"BLOCK\": 256}, \"error\": \"out of LDS\"}]},"
    " {\"when\": \"dtype == 'fp16'\", \"objects\": [{\"config\": {\"BLOCK\": 64}, \"digest\": "
    "\"" DIGEST_A "\"}]}]";

static json_t *json_of(const char *text) {
  json_t *json = NULL;
  struct error error;
  cr_assert(json_parse(text, strlen(text), &json, &error), "%s in %s", error.message, text);
  return json;
}

static struct kernel *kernel_in(const char *language, const char *more) {
  cleanup_free char *text = xasprintf(manifest_format, language, more);
  cleanup_json json_t *json = json_of(text);
  struct kernel *kernel = NULL;
  struct error error;
  cr_assert(kernel_parse(json, &kernel, &error), "%s: %s", error.pointer, error.message);
  return kernel;
}

static struct kernel *triton_kernel(void) {
  return kernel_in("triton", "\"launch\": {\"grid\": [\"n\"]}");
}

static json_t *build_json(const struct kernel *kernel) {
  char text[DIGEST_TEXT_SIZE];
  return json_pack("{s:s, s:{s:s, s:s}, s:s, s:i, s:o}", "kernel",
                   digest_format(&kernel->hash, text), "toolchain", "triton", "3.6.0", "torch",
                   "2.9.0", "arch", "gfx942", "warp_size", 64, "variants", json_of(variants));
}

static struct build *build_of(const json_t *json, const struct kernel *kernel) {
  struct build *build = NULL;
  struct error error;
  cr_assert(build_parse(json, kernel, &build, &error), "%s: %s", error.pointer, error.message);
  return build;
}

/* The build with the text `old` of its canonical JSON replaced by `new`. */
static json_t *build_with(const struct kernel *kernel, const char *old, const char *new) {
  cleanup_json json_t *json = build_json(kernel);
  cleanup_free char *text = json_canonical(json);
  char *found = strstr(text, old);
  cr_assert_not_null(found, "no %s in %s", old, text);
  cleanup_free char *changed =
      xasprintf("%.*s%s%s", (int)(found - text), text, new, found + strlen(old));
  return json_of(changed);
}

Test(build, is_read_whole) {
  cleanup_kernel struct kernel *kernel = triton_kernel();
  cleanup_json json_t *json = build_json(kernel);
  cleanup_build struct build *build = build_of(json, kernel);
  cr_assert(digest_equal(&build->kernel, &kernel->hash));
  cr_assert_str_eq(build->triton, "3.6.0");
  cr_assert_str_eq(build->torch, "2.9.0");
  cr_assert_null(build->rocm);
  cr_assert_str_eq(build->arch, "gfx942");
  cr_assert_eq(build->n_variants, 2u);
}

Test(build, names_every_object_and_file_once) {
  cleanup_kernel struct kernel *kernel = triton_kernel();
  cleanup_json json_t *json = build_json(kernel);
  cleanup_build struct build *build = build_of(json, kernel);
  char text[DIGEST_TEXT_SIZE];
  cr_assert_eq(build->n_objects, 3u);
  cr_assert_str_eq(digest_format(&build->objects[0], text), DIGEST_A);
  cr_assert_str_eq(digest_format(&build->objects[1], text), DIGEST_B);
  cr_assert_str_eq(digest_format(&build->objects[2], text), DIGEST_C);
}

Test(build, digest_depends_on_content_and_not_on_order_of_members) {
  cleanup_kernel struct kernel *kernel = triton_kernel();
  cleanup_json json_t *json = build_json(kernel), *reordered = json_object(),
                      *other = build_with(kernel, "\"torch\":\"2.9.0\"", "\"torch\":\"2.9.1\"");
  static const char *const members[] = {"variants", "arch", "kernel", "warp_size", "toolchain"};
  for (size_t i = 0; i < ARRAY_LENGTH(members); i++)
    json_object_set(reordered, members[i], json_object_get(json, members[i]));
  cleanup_build struct build *first = build_of(json, kernel), *second = build_of(reordered, kernel),
                             *third = build_of(other, kernel);
  cr_assert(digest_equal(&first->digest, &second->digest));
  cr_assert_not(digest_equal(&first->digest, &third->digest));
}

/* The variant chosen for a key. */
static bool variant_of(const struct build *build, const char *key_text, size_t *ret,
                       struct error *error) {
  cleanup_json json_t *json = json_of(key_text);
  cleanup_key struct key key = {0};
  cr_assert(key_parse(json, NULL, 0, &key, error));
  return build_variant(build, &key, ret, error);
}

Test(build, the_first_variant_that_holds_is_used) {
  cleanup_kernel struct kernel *kernel = triton_kernel();
  cleanup_json json_t *json = build_json(kernel);
  cleanup_build struct build *build = build_of(json, kernel);
  struct error error;
  size_t index = 9;
  cr_assert(variant_of(build, "{\"n\": 32, \"dtype\": \"fp16\"}", &index, &error));
  cr_assert_eq(index, 0u);
  cr_assert(variant_of(build, "{\"n\": 33, \"dtype\": \"fp16\"}", &index, &error));
  cr_assert_eq(index, 1u);
}

Test(build, a_variant_without_when_holds_always) {
  cleanup_kernel struct kernel *kernel = triton_kernel();
  cleanup_json json_t *json = build_with(kernel, ",\"when\":\"dtype == 'fp16'\"", "");
  cleanup_build struct build *build = build_of(json, kernel);
  struct error error;
  size_t index = 9;
  cr_assert(variant_of(build, "{\"n\": 33, \"dtype\": \"fp32\"}", &index, &error));
  cr_assert_eq(index, 1u);
}

Test(build, a_key_that_no_variant_holds_for_is_refused_with_what_to_pack) {
  cleanup_kernel struct kernel *kernel = triton_kernel();
  cleanup_json json_t *json = build_json(kernel);
  cleanup_build struct build *build = build_of(json, kernel);
  struct error error;
  size_t index = 9;
  cr_assert_not(variant_of(build, "{\"n\": 33, \"dtype\": \"fp32\"}", &index, &error));
  cr_assert_eq(index, 9u);
  cr_assert_str_eq(error.pointer, "/key");
  cr_assert(
      strstr(error.message, "gfx942") && strstr(error.message, "n=33") &&
          strstr(error.message,
                 "python3 -m wavetune pack DIR --arch gfx942 --key \"n=33, dtype=fp32\" --output"),
      "%s", error.message);
}

Test(build, a_when_that_cannot_be_evaluated_is_an_error) {
  cleanup_kernel struct kernel *kernel = triton_kernel();
  cleanup_json json_t *json = build_json(kernel);
  cleanup_build struct build *build = build_of(json, kernel);
  struct error error;
  size_t index;
  cr_assert_not(variant_of(build, "{\"n\": \"text\", \"dtype\": \"fp32\"}", &index, &error));
  cr_assert(strstr(error.message, "variant 0"), "%s", error.message);
}

Test(build, a_key_of_another_kernel_is_refused) {
  cleanup_kernel struct kernel *kernel = triton_kernel();
  cleanup_json json_t *json = build_json(kernel);
  cleanup_build struct build *build = build_of(json, kernel);
  struct error error;
  size_t index;
  cr_assert_not(variant_of(build, "{\"n\": 33}", &index, &error));
  cr_assert_str_eq(error.pointer, "/key");
}

Test(build, wrong_builds_are_refused) {
  static const struct {
    const char *old, *new, *pointer, *message;
  } cases[] = {
      {"\"arch\":\"gfx942\"", "\"more\":1", "/more", "unknown member"},
      {"\"arch\":\"gfx942\",", "", "/arch", "missing"},
      {"gfx942", "", "/arch", "at least 1"},
      {"gfx942", "gfx\\n942", "/arch", "control"},
      {"\"warp_size\":64", "\"warp_size\":0", "/warp_size", "1 to 1024"},
      {",\"warp_size\":64", "", "/warp_size", "missing"},
      {"\"kernel\":\"sha256:", "\"kernel\":\"sha255:", "/kernel", "64 lower-case"},
      {"\"triton\":\"3.6.0\"", "\"rocm\":\"6.4\"", "/toolchain/triton", "missing"},
      {"\"torch\":\"2.9.0\"", "\"llvm\":\"19\"", "/toolchain/llvm", "unknown member"},
      {"\"torch\":\"2.9.0\"", "\"torch\":2", "/toolchain/torch", "a string"},
      {"\"n % 16 == 0\"", "16", "/variants/0/when", "a string"},
      {"\"variants\":", "\"variant\":", "/variant", "unknown member"},
      {"n % 16 == 0", "n % 16 ==", "/variants/0/when", "column"},
      {"n % 16 == 0", "m % 16 == 0", "/variants/0/when", "m"},
      {"\"when\":\"n % 16 == 0\"", "\"if\":1", "/variants/0/if", "unknown member"},
      {",\"when\":\"n % 16 == 0\"", "", "/variants/0", "must be the last one"},
      {"{\"EVEN\":true}", "1", "/variants/0/constexprs", "an object"},
      {"{\"y\":\"*fp32\"}", "[]", "/variants/0/signature", "an object"},
      {"\"metadata\":{", "\"metadata\":0,\"also\":{", "/variants/0/objects/0/also",
       "unknown member"},
      {"\"shared\":0}", "\"shared\":0},\"more\":0", "/variants/0/objects/0/more", "unknown member"},
      {"{\"ttgir\":\"" DIGEST_C "\"}", "1", "/variants/0/objects/0/metadata/files", "an object"},
      {DIGEST_C, "cc", "/variants/0/objects/0/metadata/files/ttgir", "64 lower-case"},
      {"{\"BLOCK\":128}", "{\"BLOCK\":64}", "/variants/0/objects/1/config", "twice"},
      {"{\"BLOCK\":256}", "{\"BLOCK\":64}", "/variants/0/failed/0/config", "twice"},
      {"{\"BLOCK\":256}", "256", "/variants/0/failed/0/config", "an object"},
      {"\"out of LDS\"", "\"out\\nof LDS\"", "/variants/0/failed/0/error", "one line"},
      {"\"out of LDS\"", "\"\"", "/variants/0/failed/0/error", "one line"},
      {"\"out of LDS\"", "1", "/variants/0/failed/0/error", "a string"},
      {"\"error\":\"out of LDS\"", "\"why\":1", "/variants/0/failed/0/why", "unknown member"},
      {",\"error\":\"out of LDS\"", "", "/variants/0/failed/0/error", "missing"},
      {"{\"BLOCK\":128}", "{\"BLOCK\":[64]}", "/variants/0/objects/1/config/BLOCK", "a number"},
      {"{\"BLOCK\":128}", "64", "/variants/0/objects/1/config", "an object"},
      {"\"config\":{\"BLOCK\":128}", "\"code\":1", "/variants/0/objects/1/code", "unknown member"},
      {"\"digest\":\"sha256:b", "\"digest\":\"b", "/variants/0/objects/0/digest", "64 lower-case"},
      {"\"config\":{\"BLOCK\":128},\"digest\":\"" DIGEST_A "\"", "\"config\":{\"BLOCK\":128}",
       "/variants/0/objects/1/digest", "missing"},
      {"[{\"config\":{\"BLOCK\":64},\"digest\":\"" DIGEST_A "\"}]", "[]", "/variants/1/objects",
       "at least one"},
  };
  cleanup_kernel struct kernel *kernel = triton_kernel();
  for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
    cleanup_json json_t *json = build_with(kernel, cases[i].old, cases[i].new);
    struct build *build = NULL;
    struct error error = {0};
    cr_assert_not(build_parse(json, kernel, &build, &error), "%s was taken", cases[i].new);
    cr_assert_str_eq(error.pointer, cases[i].pointer, "%s: pointer %s: %s", cases[i].new,
                     error.pointer, error.message);
    cr_assert(strstr(error.message, cases[i].message), "no \"%s\" in: %s", cases[i].message,
              error.message);
  }
}

#define CACHE(members) "\"shared\":0,\"cache\":{" members "}"

/* The build with "cache" of its first object, and a record. */
static json_t *build_with_cache(const struct kernel *kernel) {
  json_t *json =
      build_with(kernel, "\"shared\":0",
                 CACHE("\"folder\":\"" FOLDER "\",\"files\":{\"add.json\":\"" DIGEST_A
                       "\",\"add.hsaco\":\"sha256:"
                       "dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd\"}"));
  json_t *record = json_of("{\"name\": \"add\", \"function\": {\"name\": \"add_kernel\"}}");
  ALWAYS(json_object_set_new(json, "record", record) == 0);
  return json;
}

/* Captured kernels */

static struct kernel *captured_kernel(void) {
  cleanup_json json_t *json = json_of(
      "{\"name\": \"captured/add\", \"language\": \"triton\", \"entry\": \"add\", \"cases\": "
      "\"build\", \"sources\": [{\"path\": \"add.py\", \"digest\": \"" DIGEST_A
      "\"}], \"key\": [\"n\", \"dtype\"], \"arguments\": [{\"name\": \"y\", \"dtype\": "
      "\"int32\", \"kind\": \"buffer\"}, {\"name\": \"n\", \"dtype\": \"int32\", "
      "\"kind\": \"scalar\"}]}");
  struct kernel *kernel = NULL;
  struct error error;
  cr_assert(kernel_parse(json, &kernel, &error), "%s: %s", error.pointer, error.message);
  return kernel;
}

#define DIGEST_D "sha256:dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd"
#define ALSO                                                                                       \
  "{\"signature\": {\"y\": \"*i32\"}, \"objects\": [{\"config\": {\"BLOCK\": 64}, \"digest\": "    \
  "\"" DIGEST_D "\", \"metadata\": {\"cache\": {\"folder\": \"" FOLDER                             \
  "\", \"files\": {\"add.json\": \"" DIGEST_C "\"}}}}]}"
#define CAPTURED_OBJECTS                                                                           \
  "\"signature\": {\"y\": \"*i32\"}, \"objects\": [{\"config\": {\"BLOCK\": 64}, \"digest\": "     \
  "\"" DIGEST_B "\", \"grid\": [4, 1, 1], \"metadata\": {\"name\": \"add\", \"num_warps\": 4}}]"
#define CAPTURED_VARIANT(key, fill)                                                                \
  "{\"key\": " key ", \"case\": {\"arguments\": {\"y\": {\"elements\": 8, \"access\": "            \
  "\"readwrite\", \"fill\": " fill "}}}, " CAPTURED_OBJECTS "}"
#define CAPTURED_VARIANTS                                                                          \
  "[" CAPTURED_VARIANT(                                                                            \
      "{\"n\": 1, \"dtype\": \"a\"}",                                                              \
      "{\"blob\": \"" DIGEST_C                                                                     \
      "\"}") ", " CAPTURED_VARIANT("{\"n\": 1.0, \"dtype\": \"a\"}",                               \
                                   "\"zeros\"") ", " CAPTURED_VARIANT("{\"n\": true, \"dtype\": "  \
                                                                      "null}",                     \
                                                                      "{\"ramp\": [0, 2]}") "]"

static json_t *captured_build(const struct kernel *kernel, const char *of) {
  json_t *json = build_json(kernel);
  json_object_set_new(json, "variants", json_of(of));
  return json;
}

Test(build, of_a_captured_kernel_is_chosen_by_the_exact_key) {
  static const char *const keys[] = {"{\"n\": 1, \"dtype\": \"a\"}",
                                     "{\"n\": 1.0, \"dtype\": \"a\"}",
                                     "{\"n\": true, \"dtype\": null}"};
  cleanup_kernel struct kernel *kernel = captured_kernel();
  cleanup_json json_t *json = captured_build(kernel, CAPTURED_VARIANTS);
  cleanup_build struct build *build = build_of(json, kernel), *head = NULL;
  cleanup_json json_t *head_json = build_head(build);
  struct error error;
  size_t index;
  cr_assert(build_parse_head(head_json, &build->digest, kernel, &head, &error), "%s",
            error.message);
  cr_expect_null(json_object_get(json_array_get(head->variants, 0), "case"));
  for (size_t i = 0; i < ARRAY_LENGTH(keys); i++) {
    cr_assert(variant_of(build, keys[i], &index, &error), "%s", error.message);
    cr_expect_eq(index, i, "%s", keys[i]);
    cr_assert(variant_of(head, keys[i], &index, &error), "%s", error.message);
    cr_expect_eq(index, i, "%s", keys[i]);
  }
  cr_expect_not(variant_of(head, "{\"n\": 2, \"dtype\": \"a\"}", &index, &error));
  cr_expect_str_eq(error.pointer, "/key");
  cr_expect(strstr(error.message, "it was captured: have the program run"), "%s", error.message);
}

Test(build, of_a_captured_kernel_names_the_contents_of_buffers) {
  cleanup_kernel struct kernel *kernel = captured_kernel();
  cleanup_json json_t *json = captured_build(kernel, CAPTURED_VARIANTS);
  cleanup_build struct build *build = build_of(json, kernel);
  char text[DIGEST_TEXT_SIZE];
  cr_assert_eq(build->n_objects, 2);
  cr_expect_str_eq(digest_format(&build->objects[1], text), DIGEST_C);
}

Test(build, of_a_captured_kernel_has_code_of_other_specialisations_of_its_key) {
  cleanup_kernel struct kernel *kernel = captured_kernel();
  cleanup_json json_t *json = captured_build(kernel, CAPTURED_VARIANTS);
  json_t *own = json_array_get(json_object_get(json, "variants"), 0);
  json_put(own, "also", json_of("[" ALSO "]"));
  cleanup_build struct build *build = build_of(json, kernel), *head = NULL;
  cleanup_json json_t *config = json_deep_copy(json_object_get(
                          json_array_get(json_object_get(own, "objects"), 0), "config")),
                      *head_json = build_head(build);
  struct error error;
  const json_t *further = build_specialisation(build, 0, 1);
  cr_assert_not_null(further);
  cr_expect_str_eq(json_string_value(json_object_get(build_cache(further, config), "folder")),
                   FOLDER);
  cr_expect_null(build_specialisation(build, 0, 2));
  cr_expect_null(build_specialisation(build, 1, 1));
  size_t n = 0;
  for (size_t i = 0; i < build->n_objects; i++) {
    char text[DIGEST_TEXT_SIZE];
    digest_format(&build->objects[i], text);
    n += string_equal(text, DIGEST_C) || string_equal(text, DIGEST_D);
  }
  cr_expect_eq(n, 2u, "its code and files are blobs of the build");
  cr_assert(build_parse_head(head_json, &build->digest, kernel, &head, &error), "%s",
            error.message);
}

Test(build, wrong_specialisations_are_refused) {
  static const struct {
    const char *also, *pointer, *message;
  } cases[] = {
      {"5", "/variants/0/also", "array"},
      {"[{\"objects\": []}]", "/variants/0/also/0/signature", "missing"},
      {"[{\"signature\": {}, \"objects\": []}]", "/variants/0/also/0/objects", "at least one"},
      {"[{\"signature\": {}, \"objects\": [{\"config\": {}, \"digest\": \"" DIGEST_C
       "\", \"grid\": [1, 1, 1]}]}]",
       "/variants/0/also/0/objects", "no grid"},
      {"[{\"signature\": {}, \"objects\": [{\"config\": {}, \"digest\": \"" DIGEST_C
       "\", \"fills\": []}]}]",
       "/variants/0/also/0/objects", "no grid, arguments and fills"},
      {"[{\"signature\": {}, \"objects\": [{\"config\": {}, \"digest\": \"" DIGEST_C
       "\"}, {\"config\": {}, \"digest\": \"" DIGEST_C "\"}]}]",
       "/variants/0/also/0/objects/1/config", "twice"},
      {"[{\"signature\": {}, \"objects\": [{\"config\": {}, \"digest\": \"" DIGEST_C
       "\", \"metadata\": {\"cache\": {}}}]}]",
       "/variants/0/also/0/objects/0/metadata/cache/folder", "missing"},
      {"[{\"signature\": {}, \"case\": {}}]", "/variants/0/also/0/case", "unknown member"},
  };
  cleanup_kernel struct kernel *kernel = captured_kernel();
  for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
    cleanup_json json_t *json = captured_build(kernel, CAPTURED_VARIANTS);
    struct build *build;
    struct error error = {0};
    json_put(json_array_get(json_object_get(json, "variants"), 0), "also", json_of(cases[i].also));
    cr_assert_not(build_parse(json, kernel, &build, &error), "%s was taken", cases[i].also);
    cr_expect_str_eq(error.pointer, cases[i].pointer, "%s: %s", error.pointer, error.message);
    cr_expect(strstr(error.message, cases[i].message), "%s", error.message);
  }

  cleanup_json json_t *many = captured_build(kernel, CAPTURED_VARIANTS), *also = json_array();
  struct build *build;
  struct error error;
  for (size_t i = 0; i <= BUILD_ALSO_MAX; i++)
    json_push(also, json_of(ALSO));
  json_put(json_array_get(json_object_get(many, "variants"), 0), "also", json_incref(also));
  cr_assert_not(build_parse(many, kernel, &build, &error));
  cr_expect_str_eq(error.pointer, "/variants/0/also", "%s", error.message);
}

Test(build, of_a_captured_kernel_names_expected_values_or_why_there_are_none) {
  cleanup_kernel struct kernel *kernel = captured_kernel();
  cleanup_json json_t *json = captured_build(kernel, CAPTURED_VARIANTS);
  json_t *all = json_object_get(json, "variants");
  json_object_set_new(json_array_get(all, 1), "expected", json_string(DIGEST_A));
  json_object_set_new(json_array_get(all, 2), "not_interpreted", json_string("it has atomics"));
  cleanup_build struct build *build = build_of(json, kernel);
  char text[DIGEST_TEXT_SIZE];
  cr_assert_eq(build->n_objects, 3);
  cr_expect_str_eq(digest_format(&build->objects[0], text), DIGEST_A);
}

Test(build, of_a_captured_kernel_states_where_an_object_is_launched) {
  cleanup_kernel struct kernel *kernel = captured_kernel();
  cleanup_json json_t *json = captured_build(kernel, CAPTURED_VARIANTS);
  const json_t *variant = json_array_get(json_object_get(json, "variants"), 0),
               *object = json_array_get(json_object_get(variant, "objects"), 0);
  cleanup_build_launch struct build_launch launch = {0};
  struct error error;
  cr_assert(build_launch_read(object, 64, &launch, &error), "%s", error.message);
  cr_expect(launch.has_grid && launch.grid[0] == 4 && launch.grid[1] == 1 && launch.grid[2] == 1);
  cr_expect_null(launch.arguments.all);
  cr_expect_eq(launch.fills.n, 0);
}

#define PASSED_VARIANT(members)                                                                    \
  "[{\"key\": {\"n\": 1, \"dtype\": 1}, \"case\": {\"arguments\": {\"y\": {\"elements\": 8, "      \
  "\"access\": \"readwrite\", \"fill\": \"zeros\"}}}, \"objects\": [{\"config\": {}, \"digest\": " \
  "\"" DIGEST_A                                                                                    \
  "\", \"grid\": [1, 1, 1], \"metadata\": {\"name\": \"add\", \"num_warps\": 4}, " members "}]}]"
#define PASSED_MAP                                                                                 \
  "\"arguments\": [\"y\", {\"tensormap\": {\"base\": \"y\", \"type\": 3, \"shape\": [8], "         \
  "\"strides\": [], \"box\": [8], \"swizzle\": 0, \"fill\": 0}}]"

Test(build, of_a_captured_kernel_states_what_an_object_is_passed_and_what_is_filled) {
  cleanup_kernel struct kernel *kernel = captured_kernel();
  cleanup_json json_t *json =
      captured_build(kernel, PASSED_VARIANT(PASSED_MAP ", \"fills\": [[\"y\", 32, 7]]"));
  json_object_set_new(json, "arch", json_string("sm_90"));
  cleanup_build struct build *build = build_of(json, kernel);
  const json_t *object =
      json_array_get(json_object_get(json_array_get(build->variants, 0), "objects"), 0);
  cleanup_build_launch struct build_launch launch = {0};
  struct error error;
  cr_assert(build_launch_read(object, 32, &launch, &error), "%s", error.message);
  cr_assert(launch.arguments.n == 2 && launch.fills.n == 1);
  cr_expect_str_eq(launch.arguments.all[1].map.base, "y");
  cr_expect(launch.fills.all[0].bytes == 32 && launch.fills.all[0].word == 7);
}

Test(build, objects_that_pass_or_fill_what_the_kernel_does_not_have_are_refused) {
  static const struct {
    const char *members, *pointer, *message;
  } refusals[] = {
      {"\"fills\": [[\"y\", 32, 0], [\"y\", 36, 0]]", "/variants/0/objects/0/fills/1",
       "36 bytes of argument \"y\" are filled, which has 32"},
      {"\"fills\": [[\"y\", 2, 0]]", "/variants/0/objects/0/fills/0", "a fill is"},
      {"\"arguments\": [\"y\", \"z\"]", "/variants/0/objects/0/arguments/1", "\"z\""},
      {"\"arguments\": [{\"i8\": 1}]", "/variants/0/objects/0/arguments/0/i8", "i8"},
      {PASSED_MAP, "/variants/0/objects/0/arguments/1", "gfx942 has no tensor maps"},
  };
  cleanup_kernel struct kernel *kernel = captured_kernel();
  for (size_t i = 0; i < ARRAY_LENGTH(refusals); i++) {
    cleanup_free char *text = xasprintf(PASSED_VARIANT("%s"), refusals[i].members);
    cleanup_json json_t *json = captured_build(kernel, text);
    struct build *build;
    struct error error = {0};
    cr_assert_not(build_parse(json, kernel, &build, &error), "%s", text);
    cr_expect_str_eq(error.pointer, refusals[i].pointer, "%s", error.message);
    cr_expect(strstr(error.message, refusals[i].message), "%s", error.message);
  }
}

Test(build, wrong_builds_of_captured_kernels_are_refused) {
  static const struct {
    const char *variant, *pointer, *message;
  } refusals[] = {
      {"{" CAPTURED_OBJECTS "}", "/variants/0/key", "must state its key"},
      {"{\"when\": \"n == 1\", " CAPTURED_OBJECTS "}", "/variants/0/when", "in its place"},
      {"{\"key\": {\"n\": 1}, " CAPTURED_OBJECTS "}", "/variants/0/key/dtype", "lacks"},
      {"{\"key\": {\"n\": 1, \"dtype\": 1}, " CAPTURED_OBJECTS "}", "/variants/0/case",
       "what is passed"},
      {"{\"key\": {\"n\": 1, \"dtype\": 1}, \"case\": {\"arguments\": {\"z\": "
       "{}}}, " CAPTURED_OBJECTS "}",
       "/variants/0/case/arguments/z", "no such argument"},
      {"{\"key\": {\"n\": 1, \"dtype\": 1}, \"case\": {\"arguments\": {}}, \"objects\": "
       "[{\"config\": "
       "{}, \"digest\": \"" DIGEST_A "\"}]}",
       "/variants/0/objects/0/grid", "must have a grid"},
      {"{\"key\": {\"n\": 1, \"dtype\": 1}, \"case\": {\"arguments\": {}}, \"objects\": "
       "[{\"config\": "
       "{}, \"digest\": \"" DIGEST_A "\", \"grid\": [1, 1]}]}",
       "/variants/0/objects/0/grid", "must have a grid"},
      {"{\"key\": {\"n\": 1, \"dtype\": 1}, \"case\": {\"arguments\": {}}, \"objects\": "
       "[{\"config\": "
       "{}, \"digest\": \"" DIGEST_A "\", \"grid\": [1, -1, 1]}]}",
       "/variants/0/objects/0/grid", "from 0"},
      {CAPTURED_VARIANT("{\"n\": 1, \"dtype\": 1}",
                        "\"zeros\"") ", " CAPTURED_VARIANT("{\"dtype\": 1, \"n\": 1}", "\"zeros\""),
       "/variants/1", "the same key"},
      {"{\"expected\": \"sha256:1\", \"key\": {\"n\": 1, \"dtype\": 1}, \"case\": {\"arguments\": "
       "{}}, " CAPTURED_OBJECTS "}",
       "/variants/0/expected", "64 hexadecimal digits"},
      {"{\"not_interpreted\": \"a\\nb\", \"key\": {\"n\": 1, \"dtype\": 1}, \"case\": "
       "{\"arguments\": {}}, " CAPTURED_OBJECTS "}",
       "/variants/0/not_interpreted", "must be one line"},
  };
  cleanup_kernel struct kernel *kernel = captured_kernel();
  for (size_t i = 0; i < ARRAY_LENGTH(refusals); i++) {
    cleanup_free char *text = xasprintf("[%s]", refusals[i].variant);
    cleanup_json json_t *json = captured_build(kernel, text);
    struct build *build;
    struct error error = {0};
    cr_assert_not(build_parse(json, kernel, &build, &error), "%s", text);
    cr_expect_str_eq(error.pointer, refusals[i].pointer, "%s", error.message);
    cr_expect(strstr(error.message, refusals[i].message), "%s", error.message);
  }
}

Test(build, only_captured_kernels_have_cases_and_grids) {
  cleanup_kernel struct kernel *kernel = triton_kernel();
  struct build *build;
  struct error error;
  cleanup_json json_t *keyed =
      build_with(kernel, "\"when\":\"dtype == 'fp16'\"", "\"key\":{\"n\":1,\"dtype\":1}");
  cr_expect_not(build_parse(keyed, kernel, &build, &error));
  cr_expect_str_eq(error.pointer, "/variants/1");
  cleanup_json json_t *gridded = build_with(kernel, "\"config\":{\"BLOCK\":128},",
                                            "\"config\":{\"BLOCK\":128},\"grid\":[1,1,1],");
  cr_expect_not(build_parse(gridded, kernel, &build, &error));
  cr_expect_str_eq(error.pointer, "/variants/0/objects/1/grid");
  cleanup_json json_t *filled = build_with(kernel, "\"config\":{\"BLOCK\":128},",
                                           "\"config\":{\"BLOCK\":128},\"fills\":[[\"y\",4,0]],");
  cr_expect_not(build_parse(filled, kernel, &build, &error));
  cr_expect_str_eq(error.pointer, "/variants/0/objects/1/fills");
}

Test(build, a_type_of_triton_is_a_dtype_of_manifests) {
  static const struct {
    const char *type, *dtype;
  } types[] = {{"u1", "bool"},
               {"u64", "uint64"},
               {"bf16", "bfloat16"},
               {"fp8e4nv", "float8_e4m3fn"},
               {"fp8e5", "float8_e5m2"},
               {"fp8e4b8", "float8_e4m3fnuz"},
               {"fp8e5b16", "float8_e5m2fnuz"},
               {"fp8e4b15", "float8e4b15"}};
  enum dtype dtype;
  for (size_t i = 0; i < ARRAY_LENGTH(types); i++) {
    cr_assert(build_type_parse(types[i].type, &dtype), "%s", types[i].type);
    cr_expect_str_eq(dtype_name(dtype), types[i].dtype);
  }
  cr_expect_not(build_type_parse("void", &dtype));
}

/* Whether a signature with the type fits a buffer `y` of the dtype. */
static bool signature_fits(const char *dtype, const char *type) {
  cleanup_free char *text = xasprintf(manifest_format, "triton", "\"launch\": {\"grid\": [1]}");
  cleanup_json json_t *manifest = json_of(text);
  cleanup_json json_t *variant = json_pack("{s:{s:s}}", "signature", "y", type);
  cleanup_kernel struct kernel *kernel = NULL;
  struct error error;
  json_t *argument = json_array_get(json_object_get(manifest, "arguments"), 0);
  json_object_set_new(argument, "dtype", json_string(dtype));
  cr_assert(kernel_parse(manifest, &kernel, &error), "%s", error.message);
  return build_signature_agrees(kernel, variant, &error);
}

Test(build, an_8_bit_float_has_its_own_dtype_or_is_a_byte) {
  cr_expect(signature_fits("float8_e4m3fn", "*fp8e4nv"));
  cr_expect(signature_fits("float8_e4m3fnuz", "*kfp8e4b8"));
  cr_expect(signature_fits("uint8", "*fp8e5"), "as manifests had to state it before");
  cr_expect_not(signature_fits("float16", "*fp8e5"));
  cr_expect_not(signature_fits("float8_e5m2", "*u8"));
}

Test(build, knows_what_triton_would_look_for_in_its_cache) {
  cleanup_kernel struct kernel *kernel = triton_kernel();
  cleanup_json json_t *json = build_with_cache(kernel),
                      *config = json_of("{\"num_warps\": 4, \"BLOCK\": 64}"),
                      *without = json_of("{\"BLOCK\": 128}"), *unknown = json_of("{\"BLOCK\": 32}");
  cleanup_build struct build *build = build_of(json, kernel);
  const json_t *own = build_specialisation(build, 0, 0), *cache = build_cache(own, config);
  cr_assert_not_null(cache);
  cr_assert_str_eq(json_string_value(json_object_get(cache, "folder")), FOLDER);
  cr_assert_null(build_cache(own, without));
  cr_assert_null(build_cache(own, unknown));
  cr_assert_null(build_specialisation(build, 0, 1));
  cr_assert_null(build_specialisation(build, 2, 0));
  cr_assert_eq(build->n_objects, 4u, "the files of a cache are blobs as others are");
}

Test(build, keeps_its_record_and_its_head_does_not) {
  cleanup_kernel struct kernel *kernel = triton_kernel();
  cleanup_json json_t *json = build_with_cache(kernel);
  cleanup_build struct build *build = build_of(json, kernel), *head = NULL;
  cleanup_json json_t *head_json = build_head(build);
  struct error error;
  cr_assert_str_eq(json_string_value(json_object_get(build->record, "name")), "add");
  cr_assert(build_parse_head(head_json, &build->digest, kernel, &head, &error), "%s",
            error.message);
  cr_assert_null(head->record);
  ALWAYS(json_object_set_new(json, "record", json_null()) == 0);
  cleanup_build struct build *without = build_of(json, kernel);
  cr_assert_null(without->record);
}

Test(build, whose_cache_or_record_is_wrong_is_refused) {
  static const struct {
    const char *metadata, *at, *message;
  } cases[] = {
      {"\"cache\":1", "", "an object"},
      {CACHE("\"folder\":\"" FOLDER "\""), "/files", "missing"},
      {CACHE("\"files\":{}"), "/folder", "missing"},
      {CACHE("\"more\":1"), "/more", "unknown member"},
      {CACHE("\"folder\":\"../../etc\",\"files\":{}"), "/folder", "52 characters of base32"},
      {CACHE("\"folder\":\"ljRKDJI2OBMAZKYNPTGZ7GWDEXQ2H6345JVO4N5ZD6MLTWYCLTIQ\",\"files\":{}"),
       "/folder", "base32"},
      {CACHE("\"folder\":\"" FOLDER "\",\"files\":{}"), "/files", "here are 0"},
      {CACHE("\"folder\":\"" FOLDER "\",\"files\":{\"a.json\":\"" DIGEST_A
             "\",\"b.json\":\"" DIGEST_A "\"}"),
       "/files", "here are 2"},
      {CACHE("\"folder\":\"" FOLDER "\",\"files\":{\"../a.json\":\"" DIGEST_A "\"}"),
       "/files/..~1a.json", "without '/'"},
      {CACHE("\"folder\":\"" FOLDER "\",\"files\":{\"..\":\"" DIGEST_A "\"}"), "/files/..",
       "without '/'"},
      {CACHE("\"folder\":\"" FOLDER "\",\"files\":{\"__grp__a.json\":\"" DIGEST_A "\"}"),
       "/files/__grp__a.json", "does not begin with"},
      {CACHE("\"folder\":\"" FOLDER "\",\"files\":{\"a\\nb\":\"" DIGEST_A "\"}"), "/files/a\nb",
       "control characters"},
      {CACHE("\"folder\":\"" FOLDER "\",\"files\":{\"a.json\":1}"), "/files/a.json", "a string"},
  };
  cleanup_kernel struct kernel *kernel = triton_kernel();
  struct build *build = NULL;
  struct error error = {0};
  for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
    cleanup_json json_t *json = build_with(kernel, "\"shared\":0", cases[i].metadata);
    cleanup_free char *pointer = xasprintf("/variants/0/objects/0/metadata/cache%s", cases[i].at);
    cr_assert_not(build_parse(json, kernel, &build, &error), "%s was taken", cases[i].metadata);
    cr_assert_str_eq(error.pointer, pointer, "pointer %s: %s", error.pointer, error.message);
    cr_assert(strstr(error.message, cases[i].message), "no \"%s\" in: %s", cases[i].message,
              error.message);
  }
  cleanup_json json_t *json = build_json(kernel);
  ALWAYS(json_object_set_new(json, "record", json_of("{\"name\": \"add\", \"function\": {}}")) ==
         0);
  cr_assert_not(build_parse(json, kernel, &build, &error));
  cr_assert_str_eq(error.pointer, "/record/function/name");
  ALWAYS(json_object_set_new(json, "record", json_integer(1)) == 0);
  cr_assert_not(build_parse(json, kernel, &build, &error));
  cr_assert_str_eq(error.pointer, "/record");
}

Test(build, whose_cache_has_too_many_files_is_refused) {
  cleanup_kernel struct kernel *kernel = triton_kernel();
  cleanup_json json_t *json = build_with_cache(kernel);
  json_t *object = json_array_get(
      json_object_get(json_array_get(json_object_get(json, "variants"), 0), "objects"), 0);
  json_t *files =
      json_object_get(json_object_get(json_object_get(object, "metadata"), "cache"), "files");
  for (int i = 0; i < 64; i++) {
    cleanup_free char *name = xasprintf("add.%d", i);
    ALWAYS(json_object_set_new(files, name, json_string(DIGEST_A)) == 0);
  }
  struct build *build = NULL;
  struct error error = {0};
  cr_assert_not(build_parse(json, kernel, &build, &error));
  cr_assert(strstr(error.message, "at most 64"), "%s", error.message);
}

Test(build, the_number_of_variants_and_objects_is_limited) {
  cleanup_kernel struct kernel *kernel = triton_kernel();
  cleanup_json json_t *json = build_json(kernel), *variant = json_object(), *objects = json_array();
  struct build *build;
  struct error error;
  json_object_del(json, "variants");
  cr_assert_not(build_parse(json, kernel, &build, &error));
  cr_assert_str_eq(error.pointer, "/variants");
  json_object_set_new(json, "variants", json_array());
  cr_assert_not(build_parse(json, kernel, &build, &error));
  cr_assert_str_eq(error.pointer, "/variants");
  for (int i = 0; i <= BUILD_OBJECTS_MAX; i++)
    json_array_append_new(objects, json_null());
  json_object_set(variant, "objects", objects);
  json_array_append(json_object_get(json, "variants"), variant);
  cr_assert_not(build_parse(json, kernel, &build, &error));
  cr_assert(strstr(error.message, "at most 65536 objects"), "%s", error.message);
  json_array_clear(objects);
  for (int i = 0; i < BUILD_VARIANTS_MAX; i++)
    json_array_append(json_object_get(json, "variants"), variant);
  cr_assert_not(build_parse(json, kernel, &build, &error));
  cr_assert(strstr(error.message, "1 to 256 variants"), "%s", error.message);
}

Test(build, of_another_kernel_is_refused) {
  cleanup_kernel struct kernel *kernel = triton_kernel(),
                               *other = kernel_in("triton", "\"launch\": {\"grid\": [\"n + 1\"]}");
  cleanup_json json_t *json = build_json(kernel);
  struct build *build;
  struct error error;
  cr_assert_not(build_parse(json, other, &build, &error));
  cr_assert_str_eq(error.pointer, "/kernel");
}

Test(build, of_a_kernel_that_agents_compile_is_refused) {
  cleanup_kernel struct kernel *c =
      kernel_in("c", "\"reference\": {\"source\": {\"path\": \"r.c\", \"digest\": \"" DIGEST_A
                     "\"}, \"outputs\": {\"y\": \"f\"}}");
  cleanup_kernel struct kernel *hip =
      kernel_in("hip", "\"launch\": {\"grid\": [1], \"block\": [64]}");
  const struct kernel *kernels[] = {c, hip};
  for (size_t i = 0; i < ARRAY_LENGTH(kernels); i++) {
    cleanup_json json_t *json = build_json(kernels[i]);
    struct build *build;
    struct error error;
    cr_assert_not(build_parse(json, kernels[i], &build, &error));
    cr_assert(strstr(error.message, "takes no builds"), "%s", error.message);
  }
}

Test(build, its_head_chooses_as_it_does) {
  cleanup_kernel struct kernel *kernel = triton_kernel();
  cleanup_json json_t *json = build_json(kernel);
  cleanup_build struct build *build = build_of(json, kernel), *head = NULL;
  cleanup_json json_t *head_json = build_head(build);
  struct error error;
  size_t index;
  cr_assert(build_parse_head(head_json, &build->digest, kernel, &head, &error), "%s",
            error.message);
  cr_expect(digest_equal(&head->digest, &build->digest));
  cr_expect_str_eq(head->triton, "3.6.0");
  cr_expect_str_eq(head->torch, "2.9.0");
  cr_expect_str_eq(head->arch, "gfx942");
  cr_expect_eq(head->n_objects, 0);
  cr_assert(variant_of(head, "{\"n\": 33, \"dtype\": \"fp16\"}", &index, &error), "%s",
            error.message);
  cr_expect_eq(index, 1u);
  cr_expect_not(variant_of(head, "{\"n\": 33, \"dtype\": \"fp32\"}", &index, &error));
}

Test(build, the_head_of_a_build_without_conditions_holds_always) {
  cleanup_kernel struct kernel *kernel = triton_kernel();
  cleanup_json json_t *json = build_with(kernel, ",\"when\":\"dtype == 'fp16'\"", "");
  cleanup_build struct build *build = build_of(json, kernel), *head = NULL;
  cleanup_json json_t *head_json = build_head(build);
  struct error error;
  size_t index;
  cr_assert(build_parse_head(head_json, &build->digest, kernel, &head, &error), "%s",
            error.message);
  cr_assert(variant_of(head, "{\"n\": 33, \"dtype\": \"fp32\"}", &index, &error));
  cr_expect_eq(index, 1u);
}

Test(build, of_some_hundred_configs_and_variants_is_read) {
  cleanup_kernel struct kernel *kernel = triton_kernel();
  cleanup_json json_t *json = build_json(kernel);
  json_t *made = json_array();
  for (int v = 0; v < 32; v++) {
    cleanup_free char *when = xasprintf("n %% 64 == %d", v);
    json_t *objects = json_array();
    for (int i = 0; i < 200; i++)
      json_array_append_new(objects,
                            json_pack("{s:{s:i}, s:s}", "config", "BLOCK", i, "digest", DIGEST_A));
    json_array_append_new(made, json_pack("{s:s, s:o}", "when", when, "objects", objects));
  }
  json_object_set_new(json, "variants", made);
  cleanup_build struct build *build = build_of(json, kernel);
  cr_expect_eq(build->n_variants, 32u);
  cr_expect_eq(build->n_objects, 1u);
}
