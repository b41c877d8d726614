/* Reports of recorded launches are read strictly as far as the server uses them, and kept whole. */
#include "server/capture/captures.h"

#include <criterion/criterion.h>

#define CLOSURE "sha256:00000000000000000000000000000000000000000000000000000000000000aa"
#define FUNCTION                                                                                   \
  "{\"version\": 1, \"closure\": \"" CLOSURE "\", \"name\": \"a.b:f\", \"parts\": [], \"x\": 1}"
#define LAUNCH(key, values, environment)                                                           \
  "{\"version\": 1, \"closure\": \"" CLOSURE "\", \"key\": " key ", \"key_names\": [\"M\", "       \
  "\"N\"], \"key_values\": " values ", \"environment\": " environment                              \
  ", \"triton\": \"3.6.0\", \"arguments\": []}"
#define SPECIALISED(specialisation)                                                                \
  "{\"specialisation\": " specialisation ", \"version\": 1, \"closure\": \"" CLOSURE               \
  "\", \"key\": [\"1\", \"2\"], \"key_names\": [], \"key_values\": [], \"environment\": "          \
  "{\"arch\": \"gfx942\", \"rocm\": \"6.4.1\"}, \"triton\": \"3.6.0\"}"
#define GOOD LAUNCH("[\"1\", \"2\"]", "[1, 2]", "{\"arch\": \"gfx942\", \"rocm\": \"6.4.1\"}")

static bool parse(const char *text, struct capture_report *ret, json_t **ret_json,
                  struct error *error) {
  *ret_json = json_loads(text, 0, NULL);
  cr_assert(*ret_json, "%s", text);
  return capture_report_parse(*ret_json, ret, error);
}

static void refused(const char *text, const char *pointer, const char *part) {
  struct error error = {0};
  cleanup_capture_report struct capture_report report = {0};
  cleanup_json json_t *json = NULL;
  cr_assert(!parse(text, &report, &json, &error), "%s", text);
  cr_assert_str_eq(error.pointer, pointer, "%s: %s", text, error.message);
  cr_assert(strstr(error.message, part), "%s: %s", text, error.message);
}

Test(captures, a_report_has_functions_and_launches_and_keeps_the_documents) {
  struct error error = {0};
  cleanup_capture_report struct capture_report report = {0};
  cleanup_json json_t *json = NULL;
  cr_assert(
      parse("{\"functions\": [" FUNCTION "], \"launches\": [" GOOD "]}", &report, &json, &error),
      "%s", error.message);
  cr_assert(report.n_functions == 1 && report.n_launches == 1);
  cr_assert_str_eq(report.functions[0].name, "a.b:f");
  cr_assert(strstr(report.functions[0].document, "\"x\":1"), "members that are not read are kept");
  cr_assert_str_eq(report.launches[0].arch, "gfx942");
  cr_assert_str_eq(report.launches[0].key, "{\"M\":1,\"N\":2}");
}

Test(captures, a_dtype_in_a_key_is_its_name_and_what_is_no_scalar_its_text) {
  struct error error = {0};
  cleanup_capture_report struct capture_report report = {0};
  cleanup_json json_t *json = NULL;
  cr_assert(parse("{\"launches\": [" LAUNCH("[]", "[{\"dtype\": \"float32\"}, [1]]", "{}") "]}",
                  &report, &json, &error),
            "%s", error.message);
  cr_assert_str_eq(report.launches[0].key, "{\"M\":\"float32\",\"N\":\"[1]\"}");
}

Test(captures, a_launch_is_another_one_by_key_environment_image_and_specialisation) {
  static const char *const others[] = {
      GOOD, LAUNCH("[\"1\", \"3\"]", "[1, 3]", "{\"arch\": \"gfx942\", \"rocm\": \"6.4.1\"}"),
      LAUNCH("[\"1\", \"2\"]", "[1, 2]", "{\"arch\": \"gfx950\", \"rocm\": \"6.4.1\"}"),
      SPECIALISED("\"1\""), SPECIALISED("\"2\"")};
  struct digest digests[ARRAY_LENGTH(others)];
  for (size_t i = 0; i < ARRAY_LENGTH(others); i++) {
    struct error error = {0};
    cleanup_capture_report struct capture_report report = {0};
    cleanup_json json_t *json = NULL;
    cleanup_free char *text = xasprintf("{\"launches\": [%s]}", others[i]);
    cr_assert(parse(text, &report, &json, &error), "%s", error.message);
    digests[i] = report.launches[0].digest;
    for (size_t j = 0; j < i; j++)
      cr_assert(!digest_equal(&digests[i], &digests[j]), "%zu %zu", i, j);
  }
}

Test(captures, what_is_wrong_is_named_by_its_place) {
  refused("[]", "", "object");
  refused("{\"functions\": 3}", "/functions", "array");
  refused("{\"other\": []}", "/other", "other");
  refused("{\"functions\": [3]}", "/functions/0", "object");
  refused("{\"functions\": [{\"version\": 2}]}", "/functions/0/version", "1");
  refused("{\"functions\": [{\"version\": 1, \"closure\": \"x\"}]}", "/functions/0/closure",
          "sha256");
  refused("{\"functions\": [{\"version\": 1, \"closure\": \"" CLOSURE
          "\", \"name\": \"a\\nb\", \"parts\": []}]}",
          "/functions/0/name", "control character");
  refused("{\"launches\": [" LAUNCH("[]", "[1]", "{}") "]}", "/launches/0/key_values",
          "1 values for 2 names");
  refused("{\"launches\": [" LAUNCH("[]", "[1, 2]", "{\"arch\": 3}") "]}",
          "/launches/0/environment/arch", "string");
}

Test(captures, a_report_is_bounded) {
  cleanup_json json_t *json = json_pack("{s:[]}", "functions");
  struct error error = {0};
  cleanup_capture_report struct capture_report report = {0};
  for (int i = 0; i <= CAPTURE_FUNCTIONS_MAX; i++)
    json_push(json_object_get(json, "functions"), json_loads(FUNCTION, 0, NULL));
  cr_assert(!capture_report_parse(json, &report, &error));
  cr_assert_str_eq(error.pointer, "/functions");

  cleanup_free char *long_text = xcalloc(CAPTURE_FUNCTION_BYTES + 1, 1);
  memset(long_text, 'x', CAPTURE_FUNCTION_BYTES);
  cleanup_json json_t *large = json_pack("{s:[o]}", "functions", json_loads(FUNCTION, 0, NULL));
  json_put(json_array_get(json_object_get(large, "functions"), 0), "text", json_string(long_text));
  cr_assert(!capture_report_parse(large, &report, &error));
  cr_assert(strstr(error.message, "bytes"), "%s", error.message);
}
