/* What is noted of fetches until it is stored: by which token, what, how often, and no more than
 * FETCHES_MAX. */
#include "server/cache/fetches.h"

#include <criterion/criterion.h>

static struct fetches *fetches;

static void setup(void) { fetches = fetches_new(); }
static void teardown(void) { fetches_free(fetches); }

TestSuite(fetches, .init = setup, .fini = teardown);

static struct fetch entry_of(const char *release, const char *channel) {
  struct fetch fetch = {.kind = FETCH_ENTRY, .release = digest_of(release, strlen(release))};
  snprintf(fetch.channel, sizeof fetch.channel, "%s", channel);
  return fetch;
}

Test(fetches, requests_are_counted_by_token_and_by_what_they_were_answered_with) {
  const struct fetch a = entry_of("a", "stable");
  struct fetch others[5] = {entry_of("b", "stable"), entry_of("a", "test"), a, a,
                            entry_of("a", "")};
  others[2].rule = CACHE_RULE_MINOR;
  others[3].kind = FETCH_CHOICES;
  for (int i = 0; i < 3; i++)
    fetches_of_cached(fetches, &a, 1, "one");
  fetches_of_cached(fetches, &a, 2, "two");
  fetches_of_cached(fetches, &a, 1, "one:alice");
  for (size_t i = 0; i < ARRAY_LENGTH(others); i++)
    fetches_of_cached(fetches, &others[i], 1, "one");

  struct fetch_batch *batch = fetches_take(fetches);
  cr_assert(batch && batch->n == 8);
  const struct noted_fetch *first = &batch->all[0], *by_digest = &batch->all[7];
  cr_expect(first->requests == 3 && first->fetched_by_id == 1 && first->kind == FETCH_ENTRY);
  cr_expect_str_eq(first->fetched_by, "one");
  cr_expect_str_eq(first->channel, "stable");
  cr_expect(first->first_ms <= first->last_ms && digest_equal(&first->release, &a.release));
  for (size_t i = 1; i < batch->n; i++)
    cr_expect_eq(batch->all[i].requests, 1, "%zu", i);
  cr_expect(!by_digest->channel && (int)by_digest->rule == -1);
  fetch_batch_free(batch);
  cr_expect_null(fetches_take(fetches));
}

Test(fetches, a_release_that_was_made_has_no_token) {
  struct digest release = digest_of("a", 1);
  fetches_made(fetches, &release);
  fetches_made(fetches, &release);
  struct fetch_batch *batch = fetches_take(fetches);
  cr_assert(batch && batch->n == 1);
  const struct noted_fetch *made = &batch->all[0];
  cr_expect(made->kind == FETCH_NONE && !made->fetched_by && made->requests == 0);
  fetch_batch_free(batch);
}

Test(fetches, what_could_not_be_stored_is_added_to_what_came_meanwhile) {
  const struct fetch a = entry_of("a", "stable"), b = entry_of("b", "stable");
  for (int i = 0; i < 2; i++)
    fetches_of_cached(fetches, &a, 1, "one");
  fetches_of_cached(fetches, &b, 1, "one");
  struct fetch_batch *failed = fetches_take(fetches);
  failed->all[0].first_ms -= 1000;
  fetches_of_cached(fetches, &a, 1, "one");
  fetches_return(fetches, failed);

  struct fetch_batch *batch = fetches_take(fetches);
  cr_assert(batch && batch->n == 2);
  cr_expect(batch->all[0].requests == 3 && batch->all[1].requests == 1);
  cr_expect_eq(batch->all[0].first_ms, failed->all[0].first_ms, "the earlier one");
  cr_expect_geq(batch->all[0].last_ms, failed->all[0].last_ms);
  fetch_batch_free(failed);
  fetch_batch_free(batch);
}

Test(fetches, those_beyond_the_limit_are_counted_as_left_out) {
  const struct fetch a = entry_of("a", "stable");
  for (int i = 0; i < FETCHES_MAX + 5; i++)
    fetches_of_cached(fetches, &a, i, "one");
  fetches_of_cached(fetches, &a, 0, "one");
  struct fetch_batch *batch = fetches_take(fetches);
  cr_assert(batch->n == FETCHES_MAX && batch->left_out == 5);
  cr_expect_eq(batch->all[0].requests, 2, "known ones are counted still");
  fetch_batch_free(batch);
}
