/* A hash of keys with a list each, and a wheel of times. Everything under the caller's lock. */
#include "server/http/park.h"

struct park_key {
  uint64_t hash; /* stands for the name; a collision is harmless: it wakes a request that then finds
                    no work */
  struct park_key *next;
  struct park_list items;
  int64_t idle_until_ms;
};

static uint64_t key_hash(const char *key) {
  uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a, http://www.isthe.com/chongo/tech/comp/fnv/ */
  for (; *key; key++)
    hash = (hash ^ (unsigned char)*key) * 0x100000001b3u;
  return hash ^ hash >> 32;
}

struct park *park_new(void) { return xcalloc(1, sizeof(struct park)); }

void park_free(struct park *park) {
  ALWAYS(park->n == 0);
  free(park);
}

static struct park_key *key_find(const struct park *park, uint64_t hash) {
  struct park_key *key = park->buckets[hash % PARK_BUCKETS];
  while (key && key->hash != hash)
    key = key->next;
  return key;
}

static struct park_key *key_ensure(struct park *park, uint64_t hash) {
  struct park_key *key = key_find(park, hash);
  if (!key) {
    key = xcalloc(1, sizeof *key);
    key->hash = hash;
    key->next = park->buckets[hash % PARK_BUCKETS];
    park->buckets[hash % PARK_BUCKETS] = key;
  }
  return key;
}

static void key_drop(struct park *park, struct park_key *key) {
  struct park_key **at = &park->buckets[key->hash % PARK_BUCKETS];
  while (*at != key)
    at = &(*at)->next;
  *at = key->next;
  free(key);
}

static int64_t tick_of(int64_t ms) { return (ms + PARK_TICK_MS - 1) / PARK_TICK_MS; }

static void wheel_add(struct park *park, struct park_item *item) {
  int64_t tick = tick_of(item->due_ms);
  if (tick < park->tick)
    tick = park->tick;
  if (tick >= park->tick + PARK_SLOTS)
    tick = park->tick + PARK_SLOTS - 1;
  item->slot = (size_t)tick % PARK_SLOTS;
  struct park_list *slot = &park->slots[item->slot];
  item->slot_next = NULL;
  item->slot_previous = slot->last;
  *(slot->last ? &slot->last->slot_next : &slot->first) = item;
  slot->last = item;
}

static void wheel_remove(struct park *park, struct park_item *item) {
  struct park_list *slot = &park->slots[item->slot];
  *(item->slot_previous ? &item->slot_previous->slot_next : &slot->first) = item->slot_next;
  *(item->slot_next ? &item->slot_next->slot_previous : &slot->last) = item->slot_previous;
}

void park_add(struct park *park, struct park_item *item, const char *key, int64_t now_ms,
              int64_t due_ms) {
  ALWAYS(item->key == NULL);
  if (park->n++ == 0)
    park->tick = now_ms / PARK_TICK_MS;
  item->due_ms = due_ms;
  item->key = key_ensure(park, key_hash(key));
  struct park_list *items = &item->key->items;
  item->key_next = NULL;
  item->key_previous = items->last;
  *(items->last ? &items->last->key_next : &items->first) = item;
  items->last = item;
  wheel_add(park, item);
}

void park_remove(struct park *park, struct park_item *item) {
  struct park_list *items = &item->key->items;
  *(item->key_previous ? &item->key_previous->key_next : &items->first) = item->key_next;
  *(item->key_next ? &item->key_next->key_previous : &items->last) = item->key_previous;
  wheel_remove(park, item);
  if (!items->first)
    key_drop(park, item->key);
  item->key = NULL;
  park->n--;
}

struct park_item *park_take(struct park *park, const char *key) {
  struct park_key *found = key_find(park, key_hash(key));
  struct park_item *item = found ? found->items.first : NULL;
  if (item)
    park_remove(park, item);
  return item;
}

static bool is_put_off(const struct park_item *item, int64_t now_ms) {
  return item->due_ms < item->deadline_ms && now_ms < item->key->idle_until_ms;
}

struct park_item *park_take_due(struct park *park, int64_t now_ms) {
  int64_t now_tick = now_ms / PARK_TICK_MS;
  while (park->n && park->tick <= now_tick) {
    struct park_item *item = park->slots[(size_t)park->tick % PARK_SLOTS].first;
    if (!item) {
      park->tick++;
    } else if (tick_of(item->due_ms) <= now_tick && is_put_off(item, now_ms)) {
      int64_t later_ms = now_ms + (item->poll_ms > PARK_TICK_MS ? item->poll_ms : PARK_TICK_MS);
      wheel_remove(park, item);
      item->due_ms = later_ms < item->deadline_ms ? later_ms : item->deadline_ms;
      wheel_add(park, item);
    } else if (tick_of(item->due_ms) <= now_tick) {
      park_remove(park, item);
      return item;
    } else {
      wheel_remove(park, item); /* another round */
      wheel_add(park, item);
    }
  }
  return NULL;
}

struct park_item *park_take_any(struct park *park) {
  for (size_t i = 0; park->n && i < PARK_SLOTS; i++) {
    struct park_item *item = park->slots[i].first;
    if (item) {
      park_remove(park, item);
      return item;
    }
  }
  return NULL;
}

void park_mark_idle(struct park_item *item, int64_t until_ms) {
  item->key->idle_until_ms = until_ms;
}

void park_note_wake(struct park *park, const char *key) {
  struct park_key *found = key_find(park, key_hash(key));
  if (found)
    found->idle_until_ms = 0;
  park->wakes[key_hash(key) % PARK_WAKES] = ++park->generation;
}

bool park_was_woken(const struct park *park, const char *key, uint64_t since_generation) {
  return park->wakes[key_hash(key) % PARK_WAKES] > since_generation;
}
