/* The table of tokens: known and unknown ones, updates, and how many look-ups reach the database.
 */
#include "server/http/tokens.h"

#include <criterion/criterion.h>

static struct auth *auth;
static struct auth_token found;

static void setup(void) { auth = auth_new(); }
static void teardown(void) { auth_free(auth); }

TestSuite(auth, .init = setup, .fini = teardown);

static struct auth_token token(const char *secret, enum token_role role, const char *name) {
  struct auth_token made = {.digest = digest_of(secret, strlen(secret)), .roles = role};
  snprintf(made.name, sizeof made.name, "%s", name);
  return made;
}

static void replace(const struct auth_token *tokens, size_t n) {
  cr_assert(auth_replace(auth, tokens, n, auth_answers(auth)));
}

static enum auth_answer find(const char *secret) {
  struct digest digest = digest_of(secret, strlen(secret));
  return auth_find(auth, &digest, &found);
}

Test(auth, a_token_is_found_with_its_role_and_name) {
  struct auth_token tokens[] = {token("a", TOKEN_READER, "ci"), token("b", TOKEN_ADMIN, "root")};
  replace(tokens, 2);
  cr_assert_eq(find("b"), AUTH_KNOWN);
  cr_expect_eq(found.roles, TOKEN_ADMIN);
  cr_expect_str_eq(found.name, "root");
}

Test(auth, a_replaced_table_has_only_the_new_tokens) {
  struct auth_token tokens[] = {token("a", TOKEN_READER, "ci"), token("b", TOKEN_ADMIN, "root")};
  replace(tokens, 2);
  replace(tokens, 1);
  cr_expect_eq(find("a"), AUTH_KNOWN);
  cr_expect_eq(find("b"), AUTH_LOOK_UP);
  replace(NULL, 0);
  cr_expect_eq(find("a"), AUTH_LOOK_UP);
}

Test(auth, a_name_is_unknown_only_after_the_whole_table_was_read) {
  struct auth_token ci = token("a", TOKEN_READER, "ci");
  cr_expect_eq(auth_find_name(auth, "ci", &found), AUTH_LOOK_UP);
  cr_assert(auth_add(auth, &ci, 1, auth_answers(auth)));
  cr_expect_eq(auth_find_name(auth, "ci", &found), AUTH_KNOWN);
  cr_expect_eq(auth_find_name(auth, "root", &found), AUTH_LOOK_UP);
  replace(&ci, 1);
  cr_expect_eq(auth_find_name(auth, "root", &found), AUTH_UNKNOWN);
}

Test(auth, a_change_makes_a_new_generation_and_the_same_table_does_not) {
  struct auth_token tokens[] = {token("a", TOKEN_READER, "ci"), token("b", TOKEN_ADMIN, "root")};
  struct auth_token turned[] = {tokens[1], tokens[0]};
  replace(tokens, 2);
  uint64_t generation = auth_generation(auth);
  replace(turned, 2);
  cr_expect_eq(auth_generation(auth), generation);
  turned[0].roles = TOKEN_READER;
  replace(turned, 2);
  cr_expect_neq(auth_generation(auth), generation);
}

Test(auth, an_expired_token_is_refused_without_the_database) {
  struct auth_token past = token("a", TOKEN_AGENT, "node"),
                    later = token("b", TOKEN_AGENT, "other");
  past.id = 7;
  later.id = 8;
  past.expires_ms = 1;
  later.expires_ms = INT64_MAX;
  struct auth_token both[] = {past, later};
  replace(both, 2);
  cr_expect_eq(find("a"), AUTH_EXPIRED);
  cr_expect_not(auth_is_live(auth, 7));
  cr_expect_eq(find("b"), AUTH_KNOWN);
  cr_expect(auth_is_live(auth, 8));
}

Test(auth, a_changed_expiry_makes_a_new_generation) {
  struct auth_token node = token("a", TOKEN_AGENT, "node");
  replace(&node, 1);
  uint64_t generation = auth_generation(auth);
  node.expires_ms = INT64_MAX;
  replace(&node, 1);
  cr_expect_neq(auth_generation(auth), generation);
}

Test(auth, an_added_token_is_found_at_once) {
  struct auth_token more = token("c", TOKEN_AGENT, "node");
  uint64_t generation = auth_generation(auth);
  cr_assert(auth_add(auth, &more, 1, auth_answers(auth)));
  cr_assert(auth_add(auth, &more, 1, auth_answers(auth)));
  cr_expect_eq(find("c"), AUTH_KNOWN);
  cr_expect_neq(auth_generation(auth), generation);
}

Test(auth, an_outdated_answer_of_the_database_changes_nothing) {
  struct auth_token revoked = token("a", TOKEN_READER, "ci"),
                    fresh = token("b", TOKEN_AGENT, "node");
  uint64_t since = auth_answers(auth);
  cr_assert(auth_add(auth, &fresh, 1, since));
  cr_expect_not(auth_replace(auth, &revoked, 1, since), "queried before the new one was made");
  cr_expect_eq(find("b"), AUTH_KNOWN);
  cr_expect_not(auth_add(auth, &revoked, 1, since), "queried before the old one was revoked");
  cr_expect_eq(find("a"), AUTH_LOOK_UP);
}

Test(auth, a_token_revoked_during_its_look_up_is_not_added) {
  struct auth_token revoked = token("a", TOKEN_READER, "ci");
  uint64_t since = auth_answers(auth), generation = auth_generation(auth);
  cr_assert(auth_replace(auth, NULL, 0, since), "queried after it was revoked");
  cr_expect_eq(auth_generation(auth), generation);
  cr_expect_not(auth_add(auth, &revoked, 1, since), "queried before");
  cr_expect_eq(find("a"), AUTH_LOOK_UP);
}

Test(auth, a_token_that_was_not_found_is_unknown_for_a_while) {
  struct digest digest = digest_of("x", 1);
  cr_expect_eq(find("x"), AUTH_LOOK_UP);
  auth_add_unknown(auth, &digest, false);
  cr_expect_eq(find("x"), AUTH_UNKNOWN);
  cr_expect_eq(find("y"), AUTH_LOOK_UP);
}

Test(auth, a_token_that_was_found_expired_counts_as_expired_for_a_while) {
  struct digest digest = digest_of("x", 1);
  auth_add_unknown(auth, &digest, true);
  cr_expect_eq(find("x"), AUTH_EXPIRED);
}

Test(auth, a_token_is_live_by_id_as_long_as_it_is_in_the_table) {
  struct auth_token node = token("a", TOKEN_AGENT, "node");
  node.id = 7;
  replace(&node, 1);
  cr_expect(auth_is_live(auth, 7));
  cr_expect_not(auth_is_live(auth, 8));
  replace(NULL, 0);
  cr_expect_not(auth_is_live(auth, 7));
}

Test(auth, uses_are_noted_once_until_they_are_taken) {
  int64_t ids[AUTH_USED_MAX];
  auth_note_use(auth, 7);
  auth_note_use(auth, 8);
  auth_note_use(auth, 7);
  cr_assert_eq(auth_take_used(auth, ids), 2);
  cr_expect_eq(ids[0], 7);
  cr_expect_eq(ids[1], 8);
  cr_expect_eq(auth_take_used(auth, ids), 0);
  for (int64_t id = 1; id <= 2 * AUTH_USED_MAX; id++)
    auth_note_use(auth, id);
  cr_expect_eq(auth_take_used(auth, ids), AUTH_USED_MAX);
}

Test(auth, many_unknown_tokens_are_not_all_looked_up_in_the_database) {
  char secret[16];
  int n_looked_up = 0;
  for (int i = 0; i < 5000; i++) {
    snprintf(secret, sizeof secret, "%d", i);
    n_looked_up += find(secret) == AUTH_LOOK_UP;
  }
  cr_expect_geq(n_looked_up, 100);
  cr_expect_lt(n_looked_up, 4000);
}

Test(auth, a_providers_token_has_the_roles_of_its_identity_and_its_own_end) {
  struct auth_token identity = token("identity", TOKEN_SUBMITTER, "github:o/r@main");
  struct digest jwt = digest_of("jwt", 3), other = digest_of("other", 5);
  int64_t soon_ms = 4102444800000;
  identity.expires_ms = soon_ms + 1000;
  replace(&identity, 1);
  auth_add_session(auth, &jwt, &identity.digest, soon_ms, 0);
  auth_add_session(auth, &other, &identity.digest, 1000, 0);

  cr_assert_eq(find("jwt"), AUTH_KNOWN);
  cr_expect_str_eq(found.name, "github:o/r@main");
  cr_expect_eq(found.roles, TOKEN_SUBMITTER);
  cr_expect_eq(found.expires_ms, soon_ms);
  cr_expect_eq(find("other"), AUTH_EXPIRED);
}

Test(auth, a_providers_token_is_looked_up_again_when_its_identity_or_its_session_is_gone) {
  struct auth_token identity = token("identity", TOKEN_SUBMITTER, "github:o/r@main");
  struct digest jwt = digest_of("jwt", 3);
  replace(&identity, 1);
  auth_add_session(auth, &jwt, &identity.digest, 4102444800000, 0);
  replace(NULL, 0);
  cr_expect_eq(find("jwt"), AUTH_LOOK_UP);
  replace(&identity, 1);
  cr_expect_eq(find("jwt"), AUTH_KNOWN);
  uint64_t generation = auth_generation(auth), since = auth_sessions_forgotten(auth);
  auth_forget_sessions(auth);
  cr_expect_eq(find("jwt"), AUTH_LOOK_UP);
  cr_expect_neq(auth_generation(auth), generation, "connections ask again");
  auth_add_session(auth, &jwt, &identity.digest, 4102444800000, since);
  cr_expect_eq(find("jwt"), AUTH_LOOK_UP, "it was verified by what is forgotten");
}

Test(auth, an_identity_ends_with_the_last_of_its_tokens) {
  struct auth_token identity = token("identity", TOKEN_SUBMITTER, "github:o/r@main");
  identity.id = 7;
  identity.expires_ms = 1000;
  replace(&identity, 1);
  cr_expect_not(auth_is_live(auth, 7));
  identity.expires_ms = 4102444800000;
  cr_assert(auth_add(auth, &identity, 1, auth_answers(auth)));
  cr_expect(auth_is_live(auth, 7));
}
