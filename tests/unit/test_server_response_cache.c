/* Cached responses: which roles get them, 304, removal and eviction. */
#include "server/http/response_cache.h"

#include <criterion/criterion.h>

static struct response_cache *cache;
static unsigned sent_status;
static size_t sent_size;

static size_t n_fetched;
static const struct fetch stable = {
    .kind = FETCH_ENTRY, .rule = CACHE_RULE_MINOR, .channel = "stable"};

static void fetched_note(void *context, const struct fetch *fetch, int64_t token_id,
                         const char *token_name) {
  cr_assert(context == &n_fetched && fetch->kind == stable.kind && fetch->rule == stable.rule);
  cr_assert_str_eq(fetch->channel, stable.channel);
  cr_assert(token_id == 7 && string_equal(token_name, "seven"));
  n_fetched++;
}

static void setup(void) { cache = response_cache_new(1 << 20, fetched_note, &n_fetched); }
static void teardown(void) { response_cache_free(cache); }

TestSuite(response_cache, .init = setup, .fini = teardown);

static void add(const char *target, enum response_kind kind, size_t size, uint64_t generation) {
  struct cacheable answer = {ROUTE_cache_get,  kind, "application/json", "tag", NULL,
                             xcalloc(1, size), size};
  response_cache_add(cache, target, strlen(target), &answer, generation);
}

static void send_note(void *context, const struct cached_answer *answer) {
  (void)context;
  cr_assert_not_null(answer->response);
  cr_assert_eq(MHD_add_response_header(answer->response, "X-Request-Id", "mine"), MHD_YES);
  cr_expect_eq(answer->route, ROUTE_cache_get);
  sent_status = answer->status;
  sent_size = answer->size;
  MHD_destroy_response(answer->response);
}

static enum cache_result ask(const char *target, enum token_role role, const char *if_none_match) {
  sent_status = 0;
  const struct cache_query query = {target, strlen(target), role, if_none_match};
  return response_cache_answer(cache, &query, send_note, NULL);
}

Test(response_cache, a_cached_answer_is_for_the_roles_of_its_route) {
  add("/v1/cache?gpu=a", RESPONSE_OF_CHANNELS, 100, 0);
  cr_expect_eq(ask("/v1/cache?gpu=a", TOKEN_READER, NULL), CACHE_ANSWERED);
  cr_expect_eq(sent_status, 200);
  cr_expect_eq(ask("/v1/cache?gpu=a", TOKEN_AGENT, NULL), CACHE_FORBIDDEN);
  cr_expect_eq(ask("/v1/cache?gpu=a", TOKEN_ANYONE, NULL), CACHE_FORBIDDEN);
  cr_expect_eq(sent_status, 0);
}

Test(response_cache, an_unknown_target_is_absent_whatever_its_length) {
  add("/v1/cache?gpu=abcdefgh", RESPONSE_OF_CHANNELS, 100, 0);
  cr_expect_eq(ask("/v1/cache?gpu=abcdefgi", TOKEN_ADMIN, NULL), CACHE_ABSENT);
  cr_expect_eq(ask("/v1/cache?gpu=abcdefg", TOKEN_ADMIN, NULL), CACHE_ABSENT);
  cr_expect_eq(ask("", TOKEN_ADMIN, NULL), CACHE_ABSENT);
}

Test(response_cache, a_client_that_has_the_entity_gets_304) {
  add("/a", RESPONSE_IMMUTABLE, 100, 0);
  cr_expect_eq(ask("/a", TOKEN_READER, "\"old\", \"tag\""), CACHE_ANSWERED);
  cr_expect_eq(sent_status, 304);
  cr_expect_eq(sent_size, (size_t)0);
  cr_expect_eq(ask("/a", TOKEN_READER, "\"old\""), CACHE_ANSWERED);
  cr_expect_eq(sent_status, 200);
  cr_expect_eq(sent_size, (size_t)100);
}

Test(response_cache, each_request_that_gets_a_release_is_noted_also_when_it_has_it) {
  struct cacheable answer = {.route = ROUTE_cache_get,
                             .kind = RESPONSE_OF_CHANNELS,
                             .content_type = "text/plain",
                             .etag = "tag",
                             .body = xstrdup("x"),
                             .size = 1,
                             .fetch = &stable};
  response_cache_add(cache, "/a", 2, &answer, 0);
  add("/b", RESPONSE_IMMUTABLE, 100, 0);
  const struct cache_query full = {"/a", 2, TOKEN_READER, NULL, 7, "seven"},
                           has_it = {"/a", 2, TOKEN_READER, "\"tag\"", 7, "seven"},
                           may_not = {"/a", 2, TOKEN_AGENT, NULL, 8, "eight"},
                           other = {"/b", 2, TOKEN_READER, NULL, 8, "eight"};
  cr_expect_eq(response_cache_answer(cache, &full, send_note, NULL), CACHE_ANSWERED);
  cr_expect_eq(response_cache_answer(cache, &has_it, send_note, NULL), CACHE_ANSWERED);
  cr_expect_eq(response_cache_answer(cache, &may_not, send_note, NULL), CACHE_FORBIDDEN);
  cr_expect_eq(response_cache_answer(cache, &other, send_note, NULL), CACHE_ANSWERED);
  cr_expect_eq(n_fetched, (size_t)2);
}

Test(response_cache, forgetting_the_channels_keeps_immutable_answers) {
  add("/channel", RESPONSE_OF_CHANNELS, 100, 0);
  add("/immutable", RESPONSE_IMMUTABLE, 100, 0);
  response_cache_forget(cache);
  cr_expect_eq(ask("/channel", TOKEN_READER, NULL), CACHE_ABSENT);
  cr_expect_eq(ask("/immutable", TOKEN_READER, NULL), CACHE_ANSWERED);
}

Test(response_cache, an_answer_of_a_token_is_for_it_alone) {
  struct cacheable answer = {
      ROUTE_cache_get, RESPONSE_OF_TOKEN, "text/plain", "tag", "shared", xstrdup("x"), 1, 7};
  response_cache_add(cache, "/a", 2, &answer, 0);
  const struct cache_query own = {"/a", 2, TOKEN_READER, NULL, 7},
                           other = {"/a", 2, TOKEN_ADMIN, NULL, 8};
  cr_expect_eq(response_cache_answer(cache, &own, send_note, NULL), CACHE_ANSWERED);
  cr_expect_eq(response_cache_answer(cache, &other, send_note, NULL), CACHE_ABSENT);
  response_cache_forget(cache);
  cr_expect_eq(response_cache_answer(cache, &own, send_note, NULL), CACHE_ABSENT);
}

Test(response_cache, an_answer_made_before_a_channel_moved_is_not_kept) {
  uint64_t before = response_cache_generation(cache);
  response_cache_forget(cache);
  add("/channel", RESPONSE_OF_CHANNELS, 100, before);
  add("/immutable", RESPONSE_IMMUTABLE, 100, before);
  cr_expect_eq(ask("/channel", TOKEN_READER, NULL), CACHE_ABSENT);
  cr_expect_eq(ask("/immutable", TOKEN_READER, NULL), CACHE_ANSWERED);
}

Test(response_cache, adding_a_target_again_replaces_its_answer) {
  add("/a", RESPONSE_IMMUTABLE, 100, 0);
  struct cacheable other = {
      ROUTE_cache_get, RESPONSE_IMMUTABLE, "text/plain", "new", "exact", xstrdup("x"), 1};
  response_cache_add(cache, "/a", 2, &other, 0);
  cr_expect_eq(ask("/a", TOKEN_READER, "\"new\""), CACHE_ANSWERED);
  cr_expect_eq(sent_status, 304);
}

Test(response_cache, it_stays_within_its_bytes) {
  char target[32];
  size_t there = 0;
  for (int i = 0; i < 40; i++) {
    snprintf(target, sizeof target, "/%d", i);
    add(target, RESPONSE_IMMUTABLE, 100000, 0);
  }
  for (int i = 0; i < 40; i++) {
    snprintf(target, sizeof target, "/%d", i);
    there += ask(target, TOKEN_READER, NULL) == CACHE_ANSWERED;
  }
  cr_expect_geq(there, 5);
  cr_expect_leq(there, 10);
}

Test(response_cache, an_answer_of_over_half_its_bytes_is_not_kept) {
  add("/small", RESPONSE_IMMUTABLE, 100, 0);
  add("/huge", RESPONSE_IMMUTABLE, 600000, 0);
  cr_expect_eq(ask("/huge", TOKEN_READER, NULL), CACHE_ABSENT);
  cr_expect_eq(ask("/small", TOKEN_READER, NULL), CACHE_ANSWERED);
}
