#include "server/lease/identity.h"

#include <criterion/criterion.h>

#define AGENT "0123456789abcdef0123456789abcdef"
#define OTHER "fedcba9876543210fedcba9876543210"

static const uint8_t secret[SERVER_SECRET_SIZE] = "an example of thirty-two bytes..";
static const uint8_t another_secret[SERVER_SECRET_SIZE] = "another example of 32 bytes.....";
static char text[LEASE_ID_SIZE];
static int64_t lease;

Test(lease_id, has_the_number_of_the_lease_and_a_standard_hmac) {
  /* printf '17|3|0123…' | openssl dgst -sha256 -mac HMAC -macopt key:'an example of thirty-two
   * bytes..' */
  cr_expect_str_eq(lease_id_format(secret, "", 17, 3, AGENT, text), "17.ZxRJKBw0HktcVqxMdFiJdw");
  cr_expect_eq(lease_id_check(secret, text, 3, AGENT, &lease), LEASE_ID_GRANTED);
  cr_expect_eq(lease, 17);
}

Test(lease_id, is_valid_only_for_its_agent_epoch_and_database) {
  lease_id_format(secret, "", 17, 3, AGENT, text);
  cr_expect_eq(lease_id_check(secret, text, 3, OTHER, &lease), LEASE_ID_FOREIGN);
  cr_expect_eq(lease_id_check(secret, text, 4, AGENT, &lease), LEASE_ID_FOREIGN);
  cr_expect_eq(lease_id_check(another_secret, text, 3, AGENT, &lease), LEASE_ID_FOREIGN);
  text[0] = '2';
  cr_expect_eq(lease_id_check(secret, text, 3, AGENT, &lease), LEASE_ID_FOREIGN);
}

Test(lease_id, is_refused_when_it_is_changed_or_cut_short) {
  lease_id_format(secret, "", 17, 3, AGENT, text);
  for (char *end = text + strlen(text) - 1; *end != '.'; end--) {
    char last = *end;
    *end = last == 'A' ? 'B' : 'A';
    cr_expect_eq(lease_id_check(secret, text, 3, AGENT, &lease), LEASE_ID_FOREIGN);
    *end = '\0';
    cr_expect_eq(lease_id_check(secret, text, 3, AGENT, &lease), LEASE_ID_FOREIGN);
  }
}

Test(lease_id, is_plain_only_for_agents_without_their_own_token) {
  cr_expect_str_eq(lease_id_format(secret, "", 17, 3, "", text), "17");
  cr_expect_eq(lease_id_check(secret, "17", 3, "", &lease), LEASE_ID_PLAIN);
  cr_expect_eq(lease_id_check(secret, "17", 3, AGENT, &lease), LEASE_ID_FOREIGN);
  lease_id_format(secret, "", 17, 3, AGENT, text);
  cr_expect_eq(lease_id_check(secret, text, 3, "", &lease), LEASE_ID_FOREIGN);
}

Test(lease_id, begins_with_a_decimal_number) {
  const char *const wrong[] = {"",   ".", "x", "-1", "+1", " 1", "1x", "1e3", "9223372036854775808",
                               "1,2"};
  for (size_t i = 0; i < ARRAY_LENGTH(wrong); i++)
    cr_expect_eq(lease_id_check(secret, wrong[i], 3, AGENT, &lease), LEASE_ID_NONE, "%s", wrong[i]);
  cr_expect_str_eq(lease_id_format(secret, "", INT64_MAX, INT64_MAX, "", text),
                   "9223372036854775807");
  lease_id_format(secret, "", INT64_MAX, INT64_MAX, AGENT, text);
  cr_expect_eq(lease_id_check(secret, text, INT64_MAX, AGENT, &lease), LEASE_ID_GRANTED);
}

Test(lease_id, has_its_kind_in_the_mac_too) {
  cr_expect(string_starts(lease_id_format(secret, "echo-", 17, 3, AGENT, text), "echo-17."));
  cr_expect_eq(lease_id_check(secret, text, 3, AGENT, &lease), LEASE_ID_GRANTED);
  cr_expect_eq(lease, 17);
  cr_expect_eq(lease_id_check(secret, text + strlen("echo-"), 3, AGENT, &lease), LEASE_ID_FOREIGN);
  text[0] = 'x';
  cr_expect_eq(lease_id_check(secret, text, 3, AGENT, &lease), LEASE_ID_FOREIGN);
  cr_expect_eq(lease_id_check(secret, "echo-x", 3, AGENT, &lease), LEASE_ID_NONE);
}
