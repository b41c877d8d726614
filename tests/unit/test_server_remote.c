/* What containers write: names and groups of compiled code, configs that autotuners found, and the
 * operator's namespaces. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "common/base/error.h"
#include "server/remote/remote.h"
#include "server/remote/values.h"

static void check_group(const char *group, const char *word) {
  struct error error = {0};
  bool is_good = remote_group_check(group, strlen(group), &error);
  cr_expect(word ? !is_good && strstr(error.message, word) : is_good, "%s: %s", group,
            error.message);
}

Test(remote, a_group_has_as_many_bytes_as_it_states) {
  check_group("[[\"a.hsaco\",3],[\"a.json\",0]]\nabc", NULL);
  check_group("[[\"a.hsaco\",3]]\nab", "3 bytes, and 2 follow");
  check_group("[[\"a.hsaco\",3]]\nabcd", "3 bytes, and 4 follow");
  check_group("[[\"a.hsaco\",3]]", "begins with a line");
  check_group("", "begins with a line");
  check_group("[]\n", "begins with a line");
  check_group("{}\n", "begins with a line");
  check_group("[[\"a.hsaco\"]]\n", "file 1 of the group");
  check_group("[[\"a.hsaco\",-1]]\n", "file 1 of the group");
  check_group("[[1,0]]\n", "file 1 of the group");
  check_group("[[\"a\",0],[\"a\",0]]\n", "twice");
  check_group("[[\"a\",9007199254740993]]\n", "file 1 of the group");
  cleanup_free char *long_head = xasprintf("[[\"a\",%*d]]\n", REMOTE_HEAD_MAX, 0);
  check_group(long_head, "begins with a line");
}

Test(remote, a_name_cannot_leave_its_folder_or_be_code_for_the_host) {
  static const char *const wrong[] = {
      "", ".", "..", ".hidden", "a/b", "/a", "a.so", "hip_utils.cpython-311-x86_64-linux-gnu.so"};
  struct error error;
  for (size_t i = 0; i < ARRAY_LENGTH(wrong); i++)
    cr_expect(!remote_name_check(wrong[i], &error), "%s", wrong[i]);
  char longest[REMOTE_NAME_MAX + 2];
  memset(longest, 'a', sizeof longest - 1);
  longest[sizeof longest - 1] = '\0';
  cr_expect(!remote_name_check(longest, &error));
  longest[REMOTE_NAME_MAX] = '\0';
  cr_expect(remote_name_check(longest, &error) && remote_name_check("__grp__a.json", &error));
  check_group("[[\"../a\",0]]\n", "../a");
  check_group("[[\"a.so\",0]]\n", "native code");
}

Test(remote, a_namespace_is_one_token_and_one_image) {
  cr_expect(remote_share_is("fleet/sha256:ab", "fleet", "sha256:ab"));
  cr_expect(remote_share_is("fleet/", "fleet", ""));
  cr_expect(remote_share_is("fleet/a/b", "fleet", "a/b"));
  cr_expect(!remote_share_is("fleet/sha256:ab", "flee", "sha256:ab"));
  cr_expect(!remote_share_is("fleet/sha256:ab", "fleet2", "sha256:ab"));
  cr_expect(!remote_share_is("fleet/sha256:ab", "fleet", "sha256:a"));
  cr_expect(!remote_share_is("fleet", "fleet", ""));
}

typedef bool value_check(const json_t *json, struct error *error);

/* Whether the check refuses the JSON at `pointer`; NULL: it accepts it. */
static void check_value(value_check *check, const char *text, const char *pointer) {
  cleanup_json json_t *json = NULL;
  struct error error = {0};
  cr_assert(json_parse(text, strlen(text), &json, &error), "%s: %s", text, error.message);
  bool is_good = check(json, &error);
  cr_expect(pointer ? !is_good && string_equal(error.pointer, pointer) : is_good, "%s: %s at %s",
            text, error.message, error.pointer);
}

#define HASH "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define INDUCTOR(members)                                                                          \
  "{\"num_warps\":4,\"num_stages\":1,\"configs_hash\":\"" HASH "\"" members "}"

Test(remote, a_config_of_inductor_has_only_scalars_that_a_compiler_takes) {
  value_check *check = remote_inductor_check;
  check_value(check, INDUCTOR(""), NULL);
  check_value(check,
              INDUCTOR(",\"XBLOCK\":256,\"found_by_coordesc\":false,\"triton_cache_hash\":null,"
                       "\"ACC_TYPE\":\"tl.float32\""),
              NULL);
  check_value(check, "[]", "");
  check_value(check, "{}", "/num_warps");
  check_value(check, INDUCTOR(",\"XBLOCK\":1.5"), "/XBLOCK");
  check_value(check, INDUCTOR(",\"XBLOCK\":[1]"), "/XBLOCK");
  check_value(check, INDUCTOR(",\"XBLOCK\":{}"), "/XBLOCK");
  check_value(check, INDUCTOR(",\"XBLOCK\":4294967296"), "/XBLOCK");
  check_value(check, INDUCTOR(",\"XBLOCK\":\"a b\""), "/XBLOCK");
  check_value(check, INDUCTOR(",\"pre_hook\":null"), "/pre_hook");
  check_value(check, INDUCTOR(",\"ir_override\":\"x\""), "/ir_override");
  check_value(check, INDUCTOR(",\"extra_options\":1"), "/extra_options");
  check_value(check, INDUCTOR(",\"1x\":1"), "/1x");
  check_value(check, INDUCTOR(",\"\":1"), "/");
  check_value(check, "{\"num_warps\":0}", "/num_warps");
  check_value(check, "{\"num_warps\":4,\"num_stages\":1,\"configs_hash\":\"x\"}", "/configs_hash");

  cleanup_json json_t *many = json_object();
  for (int i = 0; i <= REMOTE_MEMBERS_MAX; i++) {
    char name[8];
    snprintf(name, sizeof name, "A%d", i);
    json_put(many, name, json_integer(1));
  }
  cleanup_free char *text = json_canonical(many);
  check_value(check, text, "");
}

#define HELION(config, more)                                                                       \
  "{\"config\":\"" config "\",\"key\":{\"type\":\"T\",\"fields\":{\"hardware\":\"G\"}}" more "}"

Test(remote, a_file_of_helion_has_a_config_in_a_string_and_no_path) {
  value_check *check = remote_helion_check;
  check_value(check,
              HELION("{\\\"block_sizes\\\":[[64,null],2],\\\"pid_type\\\":\\\"flat\\\"}",
                     ",\"flat_config\":\"[1,[true,\\\"a\\\"]]\",\"backend_cache_key\":\"x\""),
              NULL);
  check_value(check, HELION("{}", ",\"flat_config\":[1,2]"), NULL);
  check_value(check, HELION("{}", ",\"flat_config\":null"), NULL);
  check_value(check, "[]", "");
  check_value(check, HELION("{}", ",\"more\":1"), "/more");
  check_value(check, HELION("{", ""), "/config");
  check_value(check, HELION("[]", ""), "/config");
  check_value(check, HELION("{\\\"a\\\":[[[[1]]]]}", ""), "/config/a/0/0/0");
  check_value(check, HELION("{\\\"a\\\":{}}", ""), "/config/a");
  check_value(check, HELION("{\\\"advanced_controls_file\\\":\\\"x\\\"}", ""),
              "/config/advanced_controls_file");
  check_value(check, HELION("{\\\"a\\\":\\\"/etc/x\\\"}", ""), "/config/a");
  check_value(check, HELION("{}", ",\"flat_config\":\"{}\""), "/flat_config");
  check_value(check, HELION("{}", ",\"flat_config\":\"x\""), "/flat_config");
  check_value(check, HELION("{}", ",\"flat_config\":[{}]"), "/flat_config/0");
  check_value(check, HELION("{}", ",\"backend_cache_key\":1"), "/backend_cache_key");
  check_value(check, "{\"config\":{}}", "/config");
  check_value(check, "{\"config\":\"{}\"}", "/key");
  check_value(check, "{\"config\":\"{}\",\"key\":{\"type\":\"T\",\"fields\":{\"a\":1}}}",
              "/key/fields");
}

Test(remote, a_key_is_a_hash) {
  cr_expect(remote_key_is_valid(HASH));
  cr_expect(!remote_key_is_valid(""));
  cr_expect(!remote_key_is_valid(HASH "0"));
  cr_expect(
      !remote_key_is_valid("0123456789ABCDEF0123456789abcdef0123456789abcdef0123456789abcdef"));
}
