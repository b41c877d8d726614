/* Keys: from JSON, from the command line, and what identifies them. */
#include <criterion/criterion.h>

#include "common/space/key.h"

static const char *const names[] = {"M", "N", "dtype"};

static bool from_json(const char *text, const char *const *wanted, size_t n, struct key *key,
                      struct error *error) {
  cleanup_json json_t *json = NULL;
  cr_assert(json_parse(text, strlen(text), &json, error), "%s", error->message);
  return key_parse(json, wanted, n, key, error);
}

static void expect_format(const char *text, const char *const *wanted, size_t n,
                          const char *formatted) {
  cleanup_key struct key key = {0};
  struct error error = {0};
  cr_assert(key_parse_text(text, wanted, n, &key, &error), "%s: %s", text, error.message);
  cleanup_free char *found = key_format(&key);
  cr_expect_str_eq(found, formatted);
}

static void expect_json_refused(const char *text, const char *pointer, const char *message) {
  cleanup_key struct key key = {0};
  struct error error = {0};
  cr_assert_not(from_json(text, names, 3, &key, &error), "%s", text);
  cr_expect_str_eq(error.pointer, pointer);
  cr_expect_not_null(strstr(error.message, message), "%s", error.message);
}

static void expect_text_refused(const char *text, const char *message) {
  cleanup_key struct key key = {0};
  struct error error = {0};
  cr_assert_not(key_parse_text(text, names, 3, &key, &error), "%s", text);
  cr_expect_not_null(strstr(error.message, message), "%s", error.message);
}

Test(key, has_its_members_in_the_order_of_the_kernel) {
  cleanup_key struct key key = {0};
  struct error error;
  cr_assert(from_json("{\"dtype\": \"fp16\", \"N\": 2, \"M\": 1}", names, 3, &key, &error), "%s",
            error.message);
  cleanup_free char *text = key_format(&key);
  cr_expect_str_eq(text, "M=1, N=2, dtype=fp16");
  cleanup_json json_t *json = key_to_json(&key);
  cleanup_free char *dumped = json_dumps(json, 0);
  cr_expect_str_eq(dumped, "{\"M\": 1, \"N\": 2, \"dtype\": \"fp16\"}");
}

Test(key, takes_the_order_of_the_object_when_no_names_are_given) {
  cleanup_key struct key key = {0};
  struct error error;
  cr_assert(from_json("{\"b\": null, \"a\": true, \"c\": 0.5}", NULL, 0, &key, &error), "%s",
            error.message);
  cleanup_free char *text = key_format(&key);
  cr_expect_str_eq(text, "b=None, a=True, c=0.5");
}

Test(key, is_identified_by_its_members_whatever_their_order) {
  static const char *const swapped[] = {"N", "dtype", "M"};
  cleanup_key struct key a = {0}, b = {0}, c = {0};
  struct error error;
  cr_assert(key_parse_text("M=1,N=2,dtype=x", names, 3, &a, &error));
  cr_assert(key_parse_text("M=1,N=2,dtype=x", swapped, 3, &b, &error));
  cr_assert(key_parse_text("M=1,N=2,dtype=y", names, 3, &c, &error));
  struct digest digest_a = key_digest(&a), digest_b = key_digest(&b), digest_c = key_digest(&c);
  cr_expect(digest_equal(&digest_a, &digest_b));
  cr_expect_not(digest_equal(&digest_a, &digest_c));
}

Test(key, has_the_digest_of_its_canonical_json) {
  cleanup_key struct key key = {0};
  struct error error;
  cr_assert(key_parse_text("N=2,M=1.5", NULL, 0, &key, &error));
  struct digest found = key_digest(&key), wanted = digest_of("{\"M\":1.5,\"N\":2}", 15);
  cr_expect(digest_equal(&found, &wanted));
}

Test(key, refuses_other_members) {
  expect_json_refused("[1]", "", "the key must be an object of names and values");
  expect_json_refused("{\"M\": 1, \"N\": 2}", "/dtype", "the key lacks its member \"dtype\"");
  expect_json_refused("{\"M\": 1, \"N\": 2, \"dtype\": 1, \"K\": 1}", "/K",
                      "the key has no member \"K\"; known: M, N, dtype");
  expect_json_refused("{\"M\": 1, \"N\": 2, \"Dtype\": 1}", "/Dtype",
                      "the key has no member \"Dtype\"; did you mean \"dtype\"?");
  expect_json_refused("{\"M\": 1, \"N\": [], \"dtype\": 1}", "/N",
                      "a value must be null, a boolean, a number or a string, not an array");
}

Test(key, reports_a_wrong_name_before_a_wrong_value) {
  expect_json_refused("{\"M\": 1, \"N\": [], \"dtype\": 1, \"K\": []}", "/K",
                      "the key has no member \"K\"");
  expect_json_refused("{\"dtype\": [], \"N\": 1}", "/M", "the key lacks its member \"M\"");
}

Test(key, refuses_an_empty_name_and_too_many_members) {
  cleanup_key struct key key = {0};
  struct error error;
  cr_expect_not(from_json("{\"\": 1}", NULL, 0, &key, &error));
  cr_expect_not_null(strstr(error.message, "a member of the key has an empty name"), "%s",
                     error.message);
  cleanup_json json_t *large = json_object();
  char text[1024] = "", name[16];
  for (int i = 0; i <= KEY_MEMBERS_MAX; i++) {
    snprintf(name, sizeof name, "n%d", i);
    json_object_set_new(large, name, json_integer(i));
    snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s=1", i ? "," : "", name);
  }
  cr_expect_not(key_parse(large, NULL, 0, &key, &error));
  cr_expect_not_null(strstr(error.message, "the key has more than 64 members"), "%s",
                     error.message);
  cr_expect_not(key_parse_text(text, NULL, 0, &key, &error));
  cr_expect_not_null(strstr(error.message, "the key has more than 64 members"), "%s",
                     error.message);
}

Test(key, is_read_from_the_command_line) {
  expect_format("M=4096,N=-1,dtype=fp16", names, 3, "M=4096, N=-1, dtype=fp16");
  expect_format(" dtype = fp16 , N=2,M=1 ", names, 3, "M=1, N=2, dtype=fp16");
  expect_format("", NULL, 0, "");
  expect_format("a=None,b=True,c=False,d=none", NULL, 0, "a=None, b=True, c=False, d=none");
  expect_format("a=true,b=false,c=null,d='true',e=TRUE", NULL, 0,
                "a=True, b=False, c=None, d='true', e=TRUE");
  expect_format("a=1e-5,b=.5,c=2.,d=+7,e=-0,f=1e16", NULL, 0,
                "a=1e-05, b=0.5, c=2.0, d=7, e=0, f=1e+16");
  expect_format("a=e5,b=-,c=1e,d=1.2.3,e=inf,f=nan,g=0x10,h=.", NULL, 0,
                "a=e5, b=-, c=1e, d=1.2.3, e=inf, f=nan, g=0x10, h=.");
  expect_format("a='1',b=\"None\",c='',d='x,y',e='a b'", NULL, 0,
                "a='1', b='None', c='', d='x,y', e=a b");
  expect_format("a=x=y", NULL, 0, "a=x=y");
}

Test(key, text_for_people_reads_back_equal) {
  static const char *const json = "{\"a\": \"99999999999999999999\", \"b\": \"1e999\", \"c\": \" "
                                  "x\", \"d\": \"x \", \"e\": \"it's\", \"f\": "
                                  "\"\\\\n\","
                                  " \"g\": \"é\", \"h\": 1e300, \"i\": -9223372036854775808, "
                                  "\"j\": \"-5\", \"k\": \"\\u0001\", \"l\": \"\\tx\"}";
  cleanup_key struct key key = {0}, back = {0};
  struct error error;
  cr_assert(from_json(json, NULL, 0, &key, &error), "%s", error.message);
  cleanup_free char *text = key_format(&key);
  cr_assert(key_parse_text(text, NULL, 0, &back, &error), "%s: %s", text, error.message);
  struct digest before = key_digest(&key), after = key_digest(&back);
  cr_expect(digest_equal(&before, &after), "%s", text);
}

static void expect_shell(const char *text, const char *word) {
  cleanup_key struct key key = {0};
  struct error error = {0};
  cr_assert(key_parse_text(text, NULL, 0, &key, &error), "%s: %s", text, error.message);
  cleanup_free char *found = key_format_shell(&key);
  cr_expect_str_eq(found, word);
}

Test(key, for_a_shell_is_one_word) {
  expect_shell("M=1,N=2", "\"M=1, N=2\"");
  expect_shell("a='1,2'", "\"a='1,2'\"");
  expect_shell("a=$HOME", "'a=$HOME'");
  expect_shell("a=\"it's\",b='`'", "'a=\"it'\\''s\", b=`'");
}

Test(key, refuses_a_text_that_is_not_one) {
  expect_text_refused("M", "expected NAME=VALUE at \"M\"");
  expect_text_refused("M=1,=2", "expected NAME=VALUE at \"\"");
  expect_text_refused("M=1,", "expected NAME=VALUE after the last comma");
  expect_text_refused("M=", "M: the value is missing");
  expect_text_refused("M=,N=1", "M: the value is missing");
  expect_text_refused("M=1,M=2", "the key has \"M\" twice");
  expect_text_refused("M='x", "M: the string has no closing '");
  expect_text_refused("M='x'y", "M: text follows the closing quote");
  expect_text_refused("M=9223372036854775808", "M: 9223372036854775808 does not fit in 64 bits");
  expect_text_refused("M=1e999", "M: 1e999 is too large for a float");
  expect_text_refused("M=1,N=1", "the key lacks its member \"dtype\"");
  expect_text_refused("M=1,N=1,dtyp=x", "the key has no member \"dtyp\"; did you mean \"dtype\"?");
  expect_text_refused("M=\xff", "the key is not UTF-8");
}

Test(key, lends_its_members_to_a_scope) {
  cleanup_key struct key key = {0};
  struct scope scope = {0};
  struct error error;
  int64_t integer;
  cr_assert(key_parse_text("M=6,N=7", NULL, 0, &key, &error) &&
            key_scope_add(&key, &scope, &error));
  cr_assert(expr_int_in_scope("M * N", &scope, 0, 99, &integer, &error));
  cr_expect_eq(integer, 42);
}

Test(key, is_refused_by_a_full_scope) {
  static struct scope scope;
  static char texts[256][8];
  cleanup_key struct key key = {0};
  struct error error;
  for (size_t i = 0; i < 256; i++) {
    snprintf(texts[i], sizeof texts[i], "n%zu", i);
    cr_assert(scope_add(&scope, texts[i], value_int(1), &error));
  }
  cr_assert(key_parse_text("M=6", NULL, 0, &key, &error));
  cr_expect_not(key_scope_add(&key, &scope, &error));
}
