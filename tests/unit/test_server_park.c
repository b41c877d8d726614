/* The park: wake-ups by key and by time, none lost between reading the database and parking. */
#include "server/http/queue.h"

#include <criterion/criterion.h>

#define MANY 10000

static struct park *park;
static struct park_item items[MANY];

static void setup(void) { park = park_new(); }

static void teardown(void) {
  while (park_take_any(park))
    ;
  park_free(park);
}

static size_t number_of(const struct park_item *item) { return (size_t)(item - items); }

TestSuite(park, .init = setup, .fini = teardown);

Test(park, items_of_a_key_are_taken_in_the_order_they_were_added) {
  for (size_t i = 0; i < 4; i++)
    park_add(park, &items[i], i % 2 ? "odd" : "even", 1000, 2000);
  cr_expect_eq(number_of(park_take(park, "odd")), 1);
  cr_expect_eq(number_of(park_take(park, "even")), 0);
  cr_expect_eq(number_of(park_take(park, "even")), 2);
  cr_expect_null(park_take(park, "even"));
  cr_expect_eq(park->n, 1);
}

Test(park, an_item_is_due_at_its_time_and_not_before) {
  park_add(park, &items[0], "a", 1000, 1500);
  cr_expect_null(park_take_due(park, 1000));
  cr_expect_null(park_take_due(park, 1480));
  cr_expect_eq(park_take_due(park, 1520), &items[0]);
  cr_expect_null(park_take_due(park, 1600));
}

Test(park, an_item_due_now_or_in_the_past_is_taken_at_the_next_tick) {
  park_add(park, &items[0], "a", 1000, 1000);
  park_add(park, &items[1], "a", 1000, 10);
  cr_expect_not_null(park_take_due(park, 1016));
  cr_expect_not_null(park_take_due(park, 1016));
}

Test(park, an_item_due_after_one_turn_of_the_wheel_is_taken_in_time) {
  int64_t turn_ms = PARK_SLOTS * PARK_TICK_MS, due_ms = 1000 + 5 * turn_ms + 7;
  park_add(park, &items[0], "a", 1000, due_ms);
  for (int64_t now_ms = 1000; now_ms < due_ms; now_ms += 50)
    cr_assert_null(park_take_due(park, now_ms), "due at %lld, taken at %lld", (long long)due_ms,
                   (long long)now_ms);
  cr_expect_eq(park_take_due(park, due_ms + PARK_TICK_MS), &items[0]);
}

Test(park, a_pause_longer_than_the_wheel_makes_all_due_at_once) {
  for (size_t i = 0; i < 100; i++)
    park_add(park, &items[i], "a", 1000, 1000 + (int64_t)i * 1000);
  size_t n = 0;
  while (park_take_due(park, 1000000))
    n++;
  cr_expect_eq(n, 100);
}

Test(park, ten_thousand_items_of_several_keys_are_each_taken_once) {
  static bool seen[MANY];
  char key[32];
  for (size_t i = 0; i < MANY; i++) {
    snprintf(key, sizeof key, "environment %zu", i % 37);
    park_add(park, &items[i], key, 5000, 5000 + (int64_t)(i * 7919 % 60000));
  }
  for (size_t i = 0; i < 37; i++) {
    snprintf(key, sizeof key, "environment %zu", i);
    for (int woken = 0; woken < 10; woken++)
      seen[number_of(park_take(park, key))] = true;
  }
  for (int64_t now_ms = 5000; park->n; now_ms += 20)
    for (struct park_item *item; (item = park_take_due(park, now_ms));) {
      cr_assert_not(seen[number_of(item)], "item %zu came twice", number_of(item));
      seen[number_of(item)] = true;
    }
  for (size_t i = 0; i < MANY; i++)
    cr_assert(seen[i], "item %zu was lost", i);
}

Test(park, a_wake_up_since_a_generation_is_noted_for_its_key) {
  uint64_t before = park->generation;
  cr_expect_not(park_was_woken(park, "a", before));
  park_note_wake(park, "a");
  cr_expect(park_was_woken(park, "a", before));
  cr_expect_not(park_was_woken(park, "b", before));
  cr_expect_not(park_was_woken(park, "a", park->generation));
}

Test(park, an_item_taken_by_key_is_no_longer_due) {
  park_add(park, &items[0], "a", 1000, 1100);
  park_add(park, &items[1], "a", 1000, 1100);
  cr_expect_eq(park_take(park, "a"), &items[0]);
  cr_expect_eq(park_take_due(park, 2000), &items[1]);
  cr_expect_null(park_take_due(park, 3000));
  cr_expect_null(park_take(park, "a"));
}

/* Polls every 1000 ms until 9000. */
static void add_polling(size_t i, int64_t due_ms) {
  items[i] = (struct park_item){.deadline_ms = 9000, .poll_ms = 1000};
  park_add(park, &items[i], "a", 1000, due_ms);
}

Test(park, polls_of_an_idle_key_are_put_off) {
  add_polling(0, 1500);
  add_polling(1, 2500);
  park_mark_idle(&items[1], 2000);
  cr_expect_null(park_take_due(park, 1600), "put off to 2600");
  cr_expect_null(park_take_due(park, 2450));
  cr_expect_eq(park_take_due(park, 2550), &items[1]);
  cr_expect_null(park_take_due(park, 2550));
  cr_expect_eq(park_take_due(park, 2700), &items[0]);
}

Test(park, a_wake_up_ends_only_its_own_keys_idleness) {
  add_polling(0, 1500);
  add_polling(1, 1500);
  park_mark_idle(&items[1], 2000);
  park_note_wake(park, "b");
  cr_expect_null(park_take_due(park, 1600));
  park_mark_idle(&items[1], 3000);
  park_note_wake(park, "a");
  cr_expect_not_null(park_take_due(park, 2700));
  cr_expect_not_null(park_take_due(park, 2700));
}

Test(park, a_deadline_is_kept_whatever_is_idle) {
  items[0] = (struct park_item){.deadline_ms = 2000, .poll_ms = 1000};
  park_add(park, &items[0], "a", 1000, 1500);
  park_mark_idle(&items[0], 60000);
  cr_expect_null(park_take_due(park, 1600));
  cr_expect_eq(park_take_due(park, 2016), &items[0]);
}

Test(park, polls_are_put_off_also_when_they_come_faster_than_the_wheel_turns) {
  items[0] = (struct park_item){.deadline_ms = 2000, .poll_ms = 1};
  park_add(park, &items[0], "a", 1000, 1001);
  park_mark_idle(&items[0], 60000);
  for (int64_t now_ms = 1000; now_ms < 2000; now_ms++)
    cr_assert_null(park_take_due(park, now_ms));
  cr_expect_eq(park_take_due(park, 2016), &items[0]);
}
