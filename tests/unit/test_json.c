/* Strict JSON in, canonical JSON out. */
#include "common/base/json.h"

#include <criterion/criterion.h>
#include <math.h>
#include <signal.h>

#include "common/base/file.h"

static struct error error;

static json_t *parsed(const char *text) {
  json_t *value = NULL;
  cr_assert(json_parse(text, strlen(text), &value, &error), "%s: %s", text, error.message);
  return value;
}

static void expect_canonical(const char *text, const char *wanted) {
  cleanup_json json_t *value = parsed(text);
  cleanup_free char *canonical = json_canonical(value);
  cr_expect_str_eq(canonical, wanted);
}

static void expect_refused(const char *text, size_t size) {
  json_t *value = NULL;
  cr_expect_not(json_parse(text, size, &value, &error), "%s was read", text ? text : "nothing");
  cr_expect_null(value);
}

Test(json, a_text_that_is_not_one_value_is_refused) {
  static const char *const wrong[] = {
      "",         "{",   "{} {}",   "nul",    "{\"a\":1,}", "[1 2]",       "'a'",  "{a:1}",
      "\"\xff\"", "NaN", "1e400",   "\"\t\"", "01",         "\"\\ud800\"", "[1]x", "+1",
      "// c",     "\"a", "{\"a\"}", "[",      "1.",         "\"\\x\""};
  for (size_t i = 0; i < ARRAY_LENGTH(wrong); i++)
    expect_refused(wrong[i], strlen(wrong[i]));
}

Test(json, an_integer_beyond_64_bits_is_refused) {
  expect_refused("9223372036854775808", 19);
  expect_canonical("9223372036854775807", "9223372036854775807");
}

Test(json, a_duplicate_member_is_refused) {
  expect_refused("{\"a\":1,\"a\":1}", 13);
  cr_expect_neq(strstr(error.message, "duplicate"), NULL, "%s", error.message);
}

Test(json, a_nul_is_refused_in_text_and_in_escapes) {
  expect_refused("\"a\0b\"", 5);
  expect_refused("\"a\\u0000b\"", 10);
  expect_refused("{\"a\\u0000b\":1}", 14);
  expect_refused("1\0 and more", 11);
  cr_expect_not_null(strstr(error.message, "not a JSON document: a NUL at byte 1"), "%s",
                     error.message);
}

Test(json, bytes_after_the_size_are_not_read) {
  cleanup_json json_t *value = NULL;
  cr_assert(json_parse("12345", 2, &value, &error));
  cr_expect_eq(json_integer_value(value), 12);
}

Test(json, an_error_states_line_and_column) {
  expect_refused("{\n  \"a\": x}", 11);
  cr_expect_neq(strstr(error.message, "line 2"), NULL, "%s", error.message);
}

static char *nested(int levels) {
  char *text = xcalloc(2 * (size_t)levels + 1, 1);
  memset(text, '[', (size_t)levels);
  memset(text + levels, ']', (size_t)levels);
  return text;
}

Test(json, nested_arrays_have_a_limit) {
  cleanup_free char *most = nested(JSON_DEPTH_MAX), *more = nested(JSON_DEPTH_MAX + 1),
                    *far_more = nested(100000);
  expect_canonical(most, most);
  expect_refused(more, strlen(more));
  cr_expect_neq(strstr(error.message, "deeper than 32"), NULL, "%s", error.message);
  expect_refused(far_more, strlen(far_more));
}

Test(json, nested_objects_have_a_limit) {
  cleanup_free char *text = xstrdup("1");
  for (int i = 0; i <= JSON_DEPTH_MAX; i++) {
    char *outer = xasprintf("{\"a\":%s}", text);
    free(text);
    text = outer;
  }
  expect_refused(text, strlen(text));
}

Test(json, canonical_members_are_sorted_by_their_bytes) {
  expect_canonical("{\"b\":1, \"a\":2, \"B\":3, \"\":4, \"é\":5, \"ab\":6}",
                   "{\"\":4,\"B\":3,\"a\":2,\"ab\":6,\"b\":1,\"é\":5}");
}

Test(json, canonical_objects_may_be_large) {
  cleanup_json json_t *object = json_object();
  for (int i = 99; i >= 0; i--) {
    char name[16];
    snprintf(name, sizeof name, "m%02d", i);
    json_object_set_new(object, name, json_integer(i));
  }
  cleanup_free char *canonical = json_canonical(object);
  cr_expect(string_starts(canonical, "{\"m00\":0,\"m01\":1,"));
  cr_expect_str_eq(canonical + strlen(canonical) - 19, ",\"m98\":98,\"m99\":99}");
}

Test(json, canonical_text_has_no_white_space) {
  expect_canonical(" [ 1 , true , false , null , { \"a\" : [ ] , \"b\" : { } } ] ",
                   "[1,true,false,null,{\"a\":[],\"b\":{}}]");
}

Test(json, canonical_strings_escape_only_necessary_characters) {
  expect_canonical("\"\\u00e9 \\/ \\\" \\\\ \\n \\t \\u001f \\u007f\"",
                   "\"é / \\\" \\\\ \\u000a \\u0009 \\u001f \x7f\"");
}

Test(json, equal_values_have_equal_digests) {
  cleanup_json json_t *a = parsed("{\"a\":1,\"b\":[1.50]}"),
                      *b = parsed("{ \"b\":[15e-1], \"a\":1 }");
  struct digest of_a = json_digest(a), of_b = json_digest(b),
                of_text = digest_of("{\"a\":1,\"b\":[1.5]}", 17);
  cr_expect(digest_equal(&of_a, &of_b));
  cr_expect(digest_equal(&of_a, &of_text));
}

Test(json, integers_and_floats_have_different_texts) {
  cleanup_json json_t *a = parsed("1"), *b = parsed("1.0");
  struct digest of_a = json_digest(a), of_b = json_digest(b);
  cr_expect_not(digest_equal(&of_a, &of_b));
}

Test(json, a_stream_gets_the_canonical_text) {
  cleanup_free char *text = NULL;
  size_t size;
  cleanup_json json_t *value = parsed("{\"b\":1,\"a\":2}");
  FILE *out = open_memstream(&text, &size);
  json_canonical_write(out, value);
  json_canonical_write_string(out, "\"");
  fclose(out);
  cr_expect_str_eq(text, "{\"a\":2,\"b\":1}\"\\\"\"");
}

Test(json, floats_are_written_as_python_writes_them) {
  static const struct {
    double number;
    const char *wanted;
  } cases[] = {
      {0.1, "0.1"},
      {0.0, "0.0"},
      {-0.0, "-0.0"},
      {2.0, "2.0"},
      {1.0 / 3, "0.3333333333333333"},
      {0.0001, "0.0001"},
      {0.00001, "1e-05"},
      {1.5e-7, "1.5e-07"},
      {1e15, "1000000000000000.0"},
      {9007199254740992.0, "9007199254740992.0"},
      {9999999999999998.0, "9999999999999998.0"},
      {1e16, "1e+16"},
      {123456789.125, "123456789.125"},
      {1.7976931348623157e308, "1.7976931348623157e+308"},
      {5e-324, "5e-324"},
      {2.2250738585072014e-308, "2.2250738585072014e-308"},
      {0.1 + 0.2, "0.30000000000000004"},
      {100.0, "100.0"},
      {-1e-10, "-1e-10"},
      /* powers of two whose nearest 16 digits do not read back, but whose next ones up do */
      {0x1p-1017, "7.120236347223045e-307"},
      {-0x1p-1017, "-7.120236347223045e-307"}};
  for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
    char text[FLOAT_TEXT_SIZE];
    cr_expect_eq(strtod(float_format(cases[i].number, text), NULL), cases[i].number);
    cr_expect_str_eq(text, cases[i].wanted);
  }
}

Test(json, a_float_that_is_not_finite_aborts, .signal = SIGABRT) {
  char text[FLOAT_TEXT_SIZE];
  float_format(INFINITY, text);
}

Test(json, a_file_is_read_and_named_in_errors) {
  char path[] = "/tmp/wavetune-test-XXXXXX";
  cleanup_fd int fd = mkstemp(path);
  cleanup_json json_t *value = NULL;
  cr_assert(fd_write_all(fd, "[1,\n]", 5));
  cr_expect_not(json_parse_file(path, 5, &value, &error));
  cr_expect(string_starts(error.message, path), "%s", error.message);
  cr_expect_neq(strstr(error.message, "line 2"), NULL);
  cr_assert_eq(pwrite(fd, "    ", 4, 0), 4);
  cr_assert_eq(pwrite(fd, "[", 1, 0), 1);
  cr_expect(json_parse_file(path, 5, &value, &error));
  cr_expect_not(json_parse_file(path, 4, &value, &error), "the limit is not held");
  unlink(path);
}

/* Getters, on {"o":{},"a":[],"s":"x","i":7,"n":1.5,"b":true,"d":DIGEST,"z":null}. */
#define DIGEST "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
static json_t *object;

static void object_make(void) {
  object = parsed("{\"o\":{},\"a\":[],\"s\":\"x\",\"i\":7,\"n\":1.5,\"b\":true,\"d\":\"" DIGEST
                  "\",\"z\":null}");
}
static void object_drop(void) { json_decref(object); }
TestSuite(json_get, .init = object_make, .fini = object_drop);

Test(json_get, members_of_the_right_type_are_read) {
  json_t *member = NULL;
  const char *text = NULL;
  int64_t integer = 0;
  double number = 0;
  bool boolean = false;
  struct digest digest, nothing = digest_of("", 0);
  cr_expect(json_get_object(object, "", "o", JSON_REQUIRED, &member, &error) &&
            json_is_object(member));
  cr_expect(json_get_array(object, "", "a", JSON_REQUIRED, &member, &error) &&
            json_is_array(member));
  cr_expect(json_get_string(object, "", "s", JSON_REQUIRED, &text, &error) &&
            string_equal(text, "x"));
  cr_expect(json_get_integer(object, "", "i", JSON_REQUIRED, 7, 7, &integer, &error) &&
            integer == 7);
  cr_expect(json_get_number(object, "", "n", JSON_REQUIRED, &number, &error) && number == 1.5);
  cr_expect(json_get_number(object, "", "i", JSON_REQUIRED, &number, &error) && number == 7);
  cr_expect(json_get_bool(object, "", "b", JSON_REQUIRED, &boolean, &error) && boolean);
  cr_expect(json_get_digest(object, "", "d", JSON_REQUIRED, &digest, &error) &&
            digest_equal(&digest, &nothing));
}

#define EXPECT_WRONG_TYPE(call, what)                                                              \
  do {                                                                                             \
    error = (struct error){0};                                                                     \
    cr_expect_not(call);                                                                           \
    cr_expect_neq(strstr(error.message, what), NULL, "%s", error.message);                         \
    cr_expect(string_starts(error.pointer, "/at/"), "%s", error.pointer);                          \
  } while (0)

Test(json_get, members_of_another_type_are_refused_with_both_types_and_a_pointer) {
  json_t *member;
  const char *text;
  int64_t integer;
  double number;
  bool boolean;
  struct digest digest;
  EXPECT_WRONG_TYPE(json_get_object(object, "/at", "a", JSON_OPTIONAL, &member, &error),
                    "an object, not an array");
  EXPECT_WRONG_TYPE(json_get_array(object, "/at", "o", JSON_OPTIONAL, &member, &error),
                    "an array, not an object");
  EXPECT_WRONG_TYPE(json_get_string(object, "/at", "i", JSON_OPTIONAL, &text, &error),
                    "a string, not an integer");
  EXPECT_WRONG_TYPE(json_get_integer(object, "/at", "n", JSON_OPTIONAL, 0, 9, &integer, &error),
                    "an integer, not a number");
  EXPECT_WRONG_TYPE(json_get_number(object, "/at", "s", JSON_OPTIONAL, &number, &error),
                    "a number, not a string");
  EXPECT_WRONG_TYPE(json_get_bool(object, "/at", "i", JSON_OPTIONAL, &boolean, &error),
                    "a boolean, not an integer");
  EXPECT_WRONG_TYPE(json_get_digest(object, "/at", "b", JSON_OPTIONAL, &digest, &error),
                    "a string, not a boolean");
  EXPECT_WRONG_TYPE(json_get_digest(object, "/at", "s", JSON_OPTIONAL, &digest, &error),
                    "64 lower-case hexadecimal");
}

Test(json_get, a_required_member_must_exist_and_not_be_null) {
  json_t *member;
  cr_expect_not(json_get_object(object, "/at", "absent", JSON_REQUIRED, &member, &error));
  cr_expect_not_null(strstr(error.message, "member \"absent\" is missing"), "%s", error.message);
  cr_expect_str_eq(error.pointer, "/at/absent");
  cr_expect_not(json_get_object(object, "/at", "z", JSON_REQUIRED, &member, &error));
  cr_expect_str_eq(error.pointer, "/at/z");
}

Test(json_get, an_absent_or_null_optional_member_keeps_the_default) {
  static const char *const names[] = {"absent", "z"};
  for (size_t i = 0; i < ARRAY_LENGTH(names); i++) {
    json_t *member = object;
    const char *text = "default";
    int64_t integer = 5;
    double number = 2.5;
    bool boolean = true;
    struct digest before = digest_of("x", 1), digest = before;
    cr_expect(json_get_object(object, "", names[i], JSON_OPTIONAL, &member, &error) &&
              member == object);
    cr_expect(json_get_array(object, "", names[i], JSON_OPTIONAL, &member, &error) &&
              member == object);
    cr_expect(json_get_string(object, "", names[i], JSON_OPTIONAL, &text, &error) &&
              string_equal(text, "default"));
    cr_expect(json_get_integer(object, "", names[i], JSON_OPTIONAL, 0, 9, &integer, &error) &&
              integer == 5);
    cr_expect(json_get_number(object, "", names[i], JSON_OPTIONAL, &number, &error) &&
              number == 2.5);
    cr_expect(json_get_bool(object, "", names[i], JSON_OPTIONAL, &boolean, &error) && boolean);
    cr_expect(json_get_digest(object, "", names[i], JSON_OPTIONAL, &digest, &error) &&
              digest_equal(&digest, &before));
  }
}

Test(json_get, an_integer_outside_its_range_is_refused_with_the_range) {
  int64_t integer = 1;
  cr_expect_not(json_get_integer(object, "", "i", JSON_REQUIRED, 8, 9, &integer, &error));
  cr_expect_not_null(strstr(error.message, "\"i\" is 7"), "%s", error.message);
  cr_expect_str_eq(error.pointer, "/i");
  cr_expect_not(json_get_integer(object, "", "i", JSON_REQUIRED, 0, 6, &integer, &error));
  cr_expect_eq(integer, 1);
}

Test(json_get, unknown_members_are_refused) {
  static const char *const all[] = {"o", "a", "s", "i", "n", "b", "d", "z", NULL}, *const few[] = {
                                                                                       "o", NULL};
  cr_expect(json_only_members(object, "", all, &error));
  cr_expect_not(json_only_members(object, "/at", few, &error));
  cr_expect_not_null(strstr(error.message, "unknown member \"a\""), "%s", error.message);
  cr_expect_str_eq(error.pointer, "/at/a");
}

Test(json_get, only_objects_have_members) {
  static const char *const names[] = {NULL};
  cleanup_json json_t *array = parsed("[]");
  cr_expect_not(json_only_members(array, "/at", names, &error));
  cr_expect_not_null(strstr(error.message, "must be an object, not an array"), "%s", error.message);
  cr_expect_str_eq(error.pointer, "/at");
}

Test(json_get, pointers_are_escaped) {
  char at[JSON_POINTER_SIZE];
  cr_expect_str_eq(json_pointer_member(at, sizeof at, "/key", "a/b~c"), "/key/a~1b~0c");
  cr_expect_str_eq(json_pointer_index(at, sizeof at, "/winners", 17), "/winners/17");
}

Test(json_get, pointers_are_cut_to_their_size) {
  char at[8];
  cr_expect_str_eq(json_pointer_member(at, sizeof at, "/a", "////"), "/a/~1");
  cr_expect_lt(strlen(json_pointer_member(at, sizeof at, "/longer than eight", "name")), sizeof at);
  cr_expect_lt(strlen(json_pointer_index(at, sizeof at, "/winners", 123456)), sizeof at);
}

Test(json_get, a_digest_becomes_its_text) {
  struct digest nothing = digest_of("", 0);
  cleanup_json json_t *text = json_digest_text(&nothing);
  cr_expect_str_eq(json_string_value(text), DIGEST);
}

Test(json, an_empty_text_is_refused) {
  expect_refused(NULL, 0);
  cr_expect_not_null(strstr(error.message, "not a JSON document: it is empty"), "%s",
                     error.message);
}
