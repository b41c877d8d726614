/* What objects of captured kernels are passed and what is filled before launches: what is read,
 * what a case must have for it, and what compiled code must take. */
#include <criterion/criterion.h>

#include "common/builds/build.h"
#include "common/kernel/kernel_case.h"

struct stated {
  struct launch_arguments arguments;
  struct launch_fills fills;
};
static const struct field fields[] = {
    RECORD_FIELD(CUSTOM, struct stated, arguments, FIELD_OMITTED | FIELD_ARRAY,
                 .custom = &launch_arguments_custom),
    RECORD_FIELD(CUSTOM, struct stated, fills, FIELD_OMITTED | FIELD_ARRAY,
                 .custom = &launch_fills_custom),
};
static const struct record record = RECORD(NULL, struct stated, fields);

static void stated_release(struct stated *stated) { record_release(&record, stated); }
#define cleanup_stated __attribute__((cleanup(stated_release)))

static json_t *json_of(const char *text) {
  json_t *json = NULL;
  struct error error;
  cr_assert(json_parse(text, strlen(text), &json, &error), "%s in %s", error.message, text);
  return json;
}

static struct stated stated_of(const char *text) {
  cleanup_json json_t *json = json_of(text);
  struct stated stated = {0};
  struct error error = {0};
  cr_assert(record_read(&record, json, "", &stated, &error), "%s: %s", error.pointer,
            error.message);
  return stated;
}

#define MAP(base, members) "{\"tensormap\": {\"base\": \"" base "\", \"type\": 6, " members "}}"
#define PLAIN "\"swizzle\": 3, \"fill\": 0"

Test(launch_arguments, what_is_read_is_written_again) {
  static const char text[] =
      "{\"arguments\": [\"q\", {\"i1\": 1}, {\"i32\": -2147483648}, {\"i64\": "
      "9007199254740993}, " MAP(
          "q",
          "\"shape\": [2.0, 3.0, 8.0], \"strides\": [64.0, 16.0], "
          "\"box\": [1.0, 1.0, 8.0], " PLAIN) "], \"fills\": [[\"q\", 4, 4294967295], [\"q\", 8, "
                                              "0]]}";
  cleanup_stated struct stated stated = stated_of(text);
  cleanup_json json_t *written = record_write(&record, &stated), *expected = json_of(text);
  cr_expect(json_equal(written, expected));
  cr_expect_eq(launch_arguments_tensormap(&stated.arguments), 4);

  cleanup_stated struct stated none = stated_of("{}"), empty = stated_of("{\"arguments\": []}");
  cr_expect_null(none.arguments.all);
  cr_expect_not_null(empty.arguments.all, "nothing is passed");
  cr_expect_eq(launch_arguments_tensormap(&empty.arguments), 0);
}

Test(launch_arguments, wrong_ones_are_refused_in_a_sentence) {
#define SHAPE "\"shape\": [4, 8], \"strides\": [16], "
#define BOX "\"box\": [4, 8], "
#define MAPPED(members) "{\"arguments\": [" MAP("q", members) "]}"
#define AT_MAP "/arguments/0/tensormap"
  static const struct {
    const char *text, *pointer, *message;
  } refusals[] = {
      {"{\"arguments\": [7]}", "/arguments/0", "an argument is the name of one of the manifest"},
      {"{\"arguments\": [\"q\", {}]}", "/arguments/1", "exactly one of"},
      {"{\"arguments\": [{\"i32\": 1, \"i64\": 1}]}", "/arguments/0", "exactly one of"},
      {"{\"arguments\": [{\"i1\": 2}]}", "/arguments/0/i1", "it must be 0 to 1"},
      {"{\"arguments\": [{\"i32\": 2147483648}]}", "/arguments/0/i32", "2147483647"},
      {"{\"arguments\": [{\"i64\": 0.5}]}", "/arguments/0/i64", "integer"},
      {"{\"arguments\": [{\"f32\": 0.5}]}", "/arguments/0/f32", "f32"},
      {"{\"arguments\": [{\"tensormap\": {}}]}", AT_MAP "/base", "missing"},
      {MAPPED(SHAPE PLAIN), AT_MAP "/box", "missing"},
      {MAPPED(SHAPE BOX "\"swizzle\": 16, \"fill\": 0"), AT_MAP "/swizzle", "15"},
      {MAPPED(SHAPE "\"box\": [4, 257], " PLAIN), AT_MAP "/box/1", "from 1 to 256"},
      {MAPPED(SHAPE "\"box\": [8], " PLAIN), AT_MAP, "a tensor map of 2 dimensions must have 1"},
      {MAPPED("\"shape\": [4, 8], \"strides\": [16, 2], " BOX PLAIN), AT_MAP, "must have 1"},
      {MAPPED("\"shape\": [4, 8.5], \"strides\": [16], " BOX PLAIN), AT_MAP, "integers"},
      {MAPPED("\"shape\": [0, 8], \"strides\": [16], " BOX PLAIN), AT_MAP "/shape/0", "from 1"},
      {MAPPED("\"shape\": [1, 1, 1, 1, 1, 1], \"strides\": [16], " BOX PLAIN), AT_MAP "/shape",
       "at most 5"},
      {"{\"fills\": [\"q\"]}", "/fills/0", "a fill is [\"ARGUMENT\", BYTES, WORD]"},
      {"{\"fills\": [[\"q\", 4, 0], [\"q\", 4]]}", "/fills/1", "a fill is"},
      {"{\"fills\": [[\"q\", 0, 0]]}", "/fills/0", "a positive multiple of 4"},
      {"{\"fills\": [[\"q\", 6, 0]]}", "/fills/0", "a positive multiple of 4"},
      {"{\"fills\": [[\"q\", 4, -1]]}", "/fills/0", "from 0 to 2^32 - 1"},
      {"{\"fills\": [[\"q\", 4, 4294967296]]}", "/fills/0", "from 0 to 2^32 - 1"},
      {"{\"fills\": [[\"q\", 4, 0.5]]}", "/fills/0", "a fill is"},
      {"{\"fills\": [[4, 4, 0]]}", "/fills/0", "a fill is"},
  };
  for (size_t i = 0; i < ARRAY_LENGTH(refusals); i++) {
    cleanup_json json_t *json = json_of(refusals[i].text);
    struct stated stated = {0};
    struct error error = {0};
    cr_assert_not(record_read(&record, json, "", &stated, &error), "%s", refusals[i].text);
    cr_expect_str_eq(error.pointer, refusals[i].pointer, "%s: %s", error.pointer, error.message);
    cr_expect(strstr(error.message, refusals[i].message), "%s", error.message);
    record_release(&record, &stated);
  }
}

/* q has 4 × 8 elements of float16 with one before and two after them; r is a view of its storage
 * from the third on; k is only read. */
static struct kernel *kernel_with_case(void) {
  cleanup_json json_t *manifest =
      json_of("{\"name\": \"captured/f\", \"language\": \"triton\", \"entry\": \"f\", \"cases\": "
              "\"build\", \"sources\": [{\"path\": \"f.py\", \"digest\": "
              "\"sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"}], "
              "\"key\": [\"n\"], \"arguments\": ["
              "{\"name\": \"q\", \"dtype\": \"float16\", \"kind\": \"buffer\"},"
              "{\"name\": \"r\", \"dtype\": \"float16\", \"kind\": \"buffer\"},"
              "{\"name\": \"k\", \"dtype\": \"float32\", \"kind\": \"buffer\"},"
              "{\"name\": \"n\", \"dtype\": \"int32\", \"kind\": \"scalar\"},"
              "{\"name\": \"m\", \"dtype\": \"int64\", \"kind\": \"scalar\"}]}");
  cleanup_json json_t *of_key = json_of(
      "{\"arguments\": {\"q\": {\"elements\": 32, \"before\": 1, \"after\": 2, \"access\": "
      "\"readwrite\"}, \"r\": {\"elements\": 8, \"before\": 2, \"access\": \"readwrite\", "
      "\"alias\": \"q\"}, \"k\": {\"elements\": 8, \"access\": \"read\"}, \"n\": {\"value\": 4}, "
      "\"m\": {\"value\": 5}}}");
  cleanup_kernel struct kernel *captured = NULL;
  struct kernel *kernel;
  struct error error = {0};
  cr_assert(kernel_parse(manifest, &captured, &error), "%s", error.message);
  cr_assert(kernel_of_case(captured, of_key, &kernel, &error), "%s: %s", error.pointer,
            error.message);
  return kernel;
}

static bool agrees(const char *text, struct error *error) {
  cleanup_kernel struct kernel *kernel = kernel_with_case();
  cleanup_stated struct stated stated = stated_of(text);
  const struct scope none = {0};
  *error = (struct error){0};
  return launch_arguments_agree(kernel, &stated.arguments, &none, error) &&
         launch_fills_agree(kernel, &stated.fills, &none, error);
}

/* r's storage is q's 35 elements, of which it is passed those from the third on: 66 bytes. */
Test(launch_arguments, what_a_case_has_is_taken) {
  static const char *const texts[] = {
      "{\"arguments\": [\"q\", \"n\", {\"i64\": 7}]}",
      "{\"fills\": [[\"r\", 64, 0]]}",
      "{\"arguments\": [" MAP("k", "\"shape\": [2, 8], \"strides\": [16], " BOX PLAIN) "]}",
      "{\"arguments\": [" MAP("q", "\"shape\": [34], \"strides\": [], \"box\": [8], " PLAIN) "]}",
  };
  for (size_t i = 0; i < ARRAY_LENGTH(texts); i++) {
    struct error error;
    cr_expect(agrees(texts[i], &error), "%s: %s", texts[i], error.message);
  }
}

Test(launch_arguments, what_a_case_does_not_have_is_refused_in_a_sentence) {
  static const struct {
    const char *text, *pointer, *message;
  } refusals[] = {
      {"{\"arguments\": [\"q\", \"z\"]}", "/1", "takes an argument \"z\""},
      {"{\"arguments\": [" MAP("z", SHAPE BOX PLAIN) "]}", "/0", "its base \"z\" is no buffer"},
      {"{\"arguments\": [" MAP("n", SHAPE BOX PLAIN) "]}", "/0", "its base \"n\" is no buffer"},
      {"{\"arguments\": [" MAP("k", "\"shape\": [3, 8], \"strides\": [16], " BOX PLAIN) "]}", "/0",
       "the tensor map spans 48 bytes of \"k\", which has 32"},
      {"{\"arguments\": [" MAP("q", "\"shape\": [35], \"strides\": [], \"box\": [8], " PLAIN) "]}",
       "/0", "spans 70 bytes of \"q\", which has 68"},
      {"{\"fills\": [[\"z\", 4, 0]]}", "/0", "\"z\" is no buffer that the kernel is passed"},
      {"{\"fills\": [[\"n\", 4, 0]]}", "/0", "\"n\" is no buffer that the kernel is passed"},
      {"{\"fills\": [[\"k\", 4, 0]]}", "/0", "argument \"k\" is only read, and so is not filled"},
      {"{\"fills\": [[\"r\", 4, 0], [\"r\", 68, 0]]}", "/1",
       "68 bytes of argument \"r\" are filled, which has 66 from where it points"},
      {"{\"fills\": [[\"q\", 4, 0]]}", "/0", "begins at byte 2 of its storage"},
  };
  for (size_t i = 0; i < ARRAY_LENGTH(refusals); i++) {
    struct error error;
    cr_assert_not(agrees(refusals[i].text, &error), "%s", refusals[i].text);
    cr_expect_str_eq(error.pointer, refusals[i].pointer, "%s: %s", error.pointer, error.message);
    cr_expect(strstr(error.message, refusals[i].message), "%s", error.message);
  }
}

static char parameter[] = "parameter"; /* as CUDA's code states every one */

/* Code for sm_90 that takes an int32, a tensor map, an int32, an int64 and a pointer. Its first
 * parameter is at 0x210 in a bank of memory, where the map is at a multiple of 64: it is 48 bytes
 * behind the first (ptxas 12.8). */
static struct code_argument parameters[] = {
    {0, 4, parameter, false},   {48, 128, parameter, false}, {176, 4, parameter, false},
    {184, 8, parameter, false}, {192, 8, parameter, false},
};

#define SIGNATURE_OF(type)                                                                         \
  "{\"signature\": {\"q\": \"tensordesc<fp16[4, 8]>\", \"r\": \"*fp16\", \"k\": \"*fp32\", "       \
  "\"n\": \"i32\", \"m\": \"" type "\"}}"

static bool code_agrees(const char *signature, const char *arguments,
                        const struct code_argument *taken, size_t n, struct error *error) {
  cleanup_kernel struct kernel *kernel = kernel_with_case();
  cleanup_json json_t *variant = json_of(signature);
  cleanup_free char *text = xasprintf(
      "{\"metadata\": {\"name\": \"f\", \"num_warps\": 4, \"scratch\": 1}, \"arguments\": %s}",
      arguments);
  cleanup_json json_t *object = json_of(text);
  cleanup_build_launch struct build_launch launch = {0};
  struct code_kernel code = {.resources = code_resources_unknown,
                             .n_arguments = n,
                             .arguments = (struct code_argument *)taken};
  cr_assert(build_signature_agrees(kernel, variant, error), "%s", error->message);
  cr_assert(build_launch_read(object, 32, &launch, error), "%s", error->message);
  return build_code_agrees(kernel, variant, &launch, &code, error);
}

#define CODE_MAP MAP("q", SHAPE BOX PLAIN)

Test(launch_arguments, code_must_take_what_an_object_states) {
  static const struct {
    const char *arguments, *message; /* NULL: it is taken */
  } cases[] = {
      {"[\"n\", " CODE_MAP ", {\"i32\": 8}, {\"i64\": 16}]", NULL},
      {"[\"n\", " CODE_MAP ", {\"i32\": 8}, \"q\"]", NULL},
      {"[\"n\", " CODE_MAP ", {\"i32\": 8}]", "takes 5 arguments, the object's and scratch are 4"},
      {"[\"n\", " CODE_MAP ", {\"i64\": 8}, {\"i64\": 16}]",
       "argument \"/arguments/2\" takes 4 bytes in its code and 8"},
      {"[\"n\", \"q\", {\"i32\": 8}, {\"i64\": 16}]",
       "argument \"q\" takes 128 bytes in its code and 8"},
      {"[\"n\", " CODE_MAP ", {\"i32\": 8}, \"z\"]",
       "argument \"z\" is passed and is not in the signature"},
      {"null", "takes 5 arguments, the signature and scratch are 6"},
  };
  for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
    struct error error = {0};
    bool is_taken = code_agrees(SIGNATURE_OF("i64"), cases[i].arguments, parameters,
                                ARRAY_LENGTH(parameters), &error);
    cr_expect_eq(is_taken, cases[i].message == NULL, "%s: %s", cases[i].arguments, error.message);
    cr_expect(!cases[i].message || strstr(error.message, cases[i].message), "%s", error.message);
  }
}

Test(launch_arguments, a_tensor_map_that_is_not_the_next_parameter_is_found) {
  struct code_argument beyond[ARRAY_LENGTH(parameters)];
  struct error error = {0};
  memcpy(beyond, parameters, sizeof beyond);
  for (size_t i = 1; i < ARRAY_LENGTH(beyond); i++)
    beyond[i].offset += 64;
  cr_expect_not(code_agrees(SIGNATURE_OF("i64"),
                            "[\"n\", " CODE_MAP ", {\"i32\": 8}, {\"i64\": 16}]", beyond,
                            ARRAY_LENGTH(beyond), &error));
  cr_expect(
      strstr(error.message, "argument \"/arguments/1\" is at byte 112 of its code's arguments"),
      "%s", error.message);
}

/* Of a tensor map a signature does not state what it is encoded from. */
Test(launch_arguments, a_signature_passes_no_tensor_map) {
  struct error error = {0};
  cr_expect_not(code_agrees(SIGNATURE_OF("nvTmaDesc"),
                            "[\"n\", \"m\", {\"i32\": 8}, {\"i64\": 16}]", parameters,
                            ARRAY_LENGTH(parameters), &error));
  cr_expect(strstr(error.message, "argument \"m\" has a type whose size is not known: nvTmaDesc"),
            "%s", error.message);
}

/* Nothing but `arguments` states how a descriptor is passed. */
Test(launch_arguments, a_descriptor_is_passed_only_by_objects_that_state_how) {
  static const struct code_argument taken[] = {
      {0, 8, parameter, false},  {8, 8, parameter, false},  {16, 8, parameter, false},
      {24, 4, parameter, false}, {32, 8, parameter, false}, {40, 8, parameter, false},
  };
  struct error error = {0};
  cr_expect_not(code_agrees(SIGNATURE_OF("i64"), "null", taken, ARRAY_LENGTH(taken), &error));
  cr_expect(strstr(error.message, "argument \"q\" has a type whose size is not known: tensordesc<"),
            "%s", error.message);
}

Test(launch_arguments, a_descriptor_is_a_buffer_of_the_manifest) {
  cleanup_kernel struct kernel *kernel = kernel_with_case();
  cleanup_json json_t *variant =
      json_of("{\"signature\": {\"q\": \"*fp16\", \"r\": \"*fp16\", \"k\": \"*fp32\", \"n\": "
              "\"tensordesc<i32[4]>\", \"m\": \"i64\"}}");
  struct error error = {0};
  cr_expect_not(build_signature_agrees(kernel, variant, &error));
  cr_expect(strstr(error.message, "argument \"n\" is int32 in the manifest and tensordesc<"), "%s",
            error.message);
}
