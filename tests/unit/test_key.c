/* Keys: from JSON, from the command line, and what identifies them. */
#include <criterion/criterion.h>

#include "common/base/file.h"
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
  static const char *const json =
      "{\"a\": \"99999999999999999999\", \"b\": \"1e999\", \"c\": \" "
      "x\", \"d\": \"x \", \"e\": \"it's\", \"f\": "
      "\"\\\\n\","
      " \"g\": \"é\", \"h\": 1e300, \"i\": -9223372036854775808, "
      "\"j\": \"-5\", \"k\": \"\\u0001\", \"l\": \"\\tx\", \"m\": \"1..4\"}";
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

/* The keys that a text names, each as key_format writes it, with "; " between them. */
static char *listed(const char *text, const char *const *wanted, size_t n) {
  cleanup_key_list struct key_list list = {0};
  struct error error = {0};
  char *all = xstrdup("");
  cr_assert(key_list_add(&list, text, wanted, n, &error), "%s: %s", text, error.message);
  array_foreach (key, list.keys, list.n) {
    cleanup_free char *one = key_format(key);
    text_append(&all, "%s%s", *all ? "; " : "", one);
  }
  return all;
}

static void expect_list(const char *text, const char *expected) {
  cleanup_free char *found = listed(text, NULL, 0);
  cr_expect_str_eq(found, expected, "%s: %s", text, found);
}

Test(keys, of_ranges_are_all_their_values) {
  expect_list("M=1..16*2", "M=1; M=2; M=4; M=8; M=16");
  expect_list("M=3..30*3", "M=3; M=9; M=27");
  expect_list("M=64..256+64", "M=64; M=128; M=192; M=256");
  expect_list("M=-1..1", "M=-1; M=0; M=1");
  expect_list("M=5..5*2", "M=5");
  expect_list("M=9223372036854775806..9223372036854775807",
              "M=9223372036854775806; M=9223372036854775807");
}

Test(keys, of_lists_are_each_value_once) {
  expect_list("M=1,2,4", "M=1; M=2; M=4");
  expect_list("M=16, 1..4 ,3", "M=16; M=1; M=2; M=3; M=4");
  expect_list("t=a,'b,c','1..4',1.5", "t=a; t='b,c'; t='1..4'; t=1.5");
  expect_list("{\"M\": 4, \"N\": 2}", "M=4, N=2");
}

Test(keys, of_several_members_are_all_combinations_in_the_order_of_the_kernel) {
  cleanup_free char *found = listed("dtype=a,b,M=1..2,N=7", names, 3);
  cr_expect_str_eq(found, "M=1, N=7, dtype=a; M=2, N=7, dtype=a; "
                          "M=1, N=7, dtype=b; M=2, N=7, dtype=b");
}

Test(keys, are_kept_once_over_texts) {
  cleanup_key_list struct key_list list = {0};
  struct error error;
  cr_assert(key_list_add(&list, "M=1..4", NULL, 0, &error) &&
            key_list_add(&list, "M=3..6", NULL, 0, &error));
  cr_expect_eq(list.n, 6);
}

static void expect_list_refused(const char *text, const char *message) {
  cleanup_key_list struct key_list list = {0};
  struct error error = {0};
  cr_assert_not(key_list_add(&list, text, NULL, 0, &error), "%s", text);
  cr_expect_not_null(strstr(error.message, message), "%s: %s", text, error.message);
}

Test(keys, of_a_text_that_is_no_range_are_refused) {
  expect_list_refused("M=1..", "M: \"1..\" is not a range like 1..4096*2");
  expect_list_refused("M=1..x", "is not a range");
  expect_list_refused("M=1..4*", "is not a range");
  expect_list_refused("M=1..4-2", "quote it to make it a string");
  expect_list_refused("M=1..99999999999999999999", "is not a range");
  expect_list_refused("M=4..1", "the range 4..1 is empty: it runs upwards");
  expect_list_refused("M=0..4*2", "the range 0..4*2 does not end");
  expect_list_refused("M=1..4*1", "does not end");
  expect_list_refused("M=1..4+0", "does not end");
  expect_list_refused("M=1,2,", "expected NAME=VALUE after the last comma");
  expect_list_refused("M=1,,2", "M: the value is missing");
}

Test(keys, of_one_text_are_bounded) {
  expect_list_refused("M=1..10001", "more than 10000 values");
  expect_list_refused("M=1..200,N=1..200", "name 40000 keys, and at most 10000");
  cleanup_free char *found = listed("M=1..10000", NULL, 0);
  cr_expect(string_ends(found, "M=10000"));
}

Test(keys, a_single_key_is_not_a_list) {
  expect_text_refused("M=1..2,N=1,dtype=x", "it names 2 keys, and one is wanted here");
}

static bool file_listed(const char *text, struct key_list *list, struct error *error) {
  char path[] = "/tmp/wavetune-keys-XXXXXX";
  cleanup_fd int fd = mkstemp(path);
  cr_assert(fd >= 0 && fd_write_all(fd, text, strlen(text)));
  bool ok = key_list_read(list, path, NULL, 0, error);
  cr_assert_eq(unlink(path), 0);
  return ok;
}

Test(keys, of_a_file_are_texts_and_objects_with_comments) {
  cleanup_key_list struct key_list list = {0};
  struct error error = {0};
  cr_assert(
      file_listed("# of a model\n\nM=1..2 # two\r\n{\"t\": \"a\\\"#\"}  \nt='#'\n", &list, &error),
      "%s", error.message);
  cr_assert_eq(list.n, 4);
  cleanup_free char *third = key_format(&list.keys[2]), *fourth = key_format(&list.keys[3]);
  cr_expect_str_eq(third, "t='a\"#'");
  cr_expect_str_eq(fourth, "t=#");
}

Test(keys, of_a_file_are_refused_with_its_line) {
  cleanup_key_list struct key_list list = {0};
  struct error error = {0};
  cr_expect_not(file_listed("M=1\nM\n", &list, &error));
  cr_expect_not_null(strstr(error.message, ":2: expected NAME=VALUE"), "%s", error.message);
  cr_expect_not(file_listed("# nothing\n", &list, &error));
  cr_expect_not_null(strstr(error.message, "has no key"), "%s", error.message);
  cr_expect_not(key_list_read(&list, "/dev/null/none", NULL, 0, &error));
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
