/* Compiled code that containers write: names, groups, and the operator's namespaces. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "common/base/error.h"
#include "server/remote/remote.h"

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
