/* Releases: sealing winners into canonical bytes, reading them back strictly, and telling two releases apart.
 *
 * Memory: a release owns its winners; what was parsed keeps its keys and configs alive by reference.
 * Threads: any, one to a release until it is sealed or parsed. */
#include "common/release.h"

/* Winners with the canonical text of their keys, which takes part in every comparison. */
struct entry {
  const struct release_winner *winner;
  const char *key; /* in ordered.keys */
};

struct ordered {
  struct entry *entries; /* by (name, kernel, key) */
  char *keys;
};

static void ordered_release(struct ordered *ordered) {
  free(ordered->entries);
  free(ordered->keys);
}

static int by_kernel_and_key(const void *a, const void *b) {
  const struct entry *left = a, *right = b;
  int order = memcmp(left->winner->kernel.bytes, right->winner->kernel.bytes, DIGEST_SIZE);
  return order ? order : strcmp(left->key, right->key);
}

static int by_name_kernel_and_key(const void *a, const void *b) {
  const struct entry *left = a, *right = b;
  int order = strcmp(left->winner->name, right->winner->name);
  return order ? order : by_kernel_and_key(a, b);
}

/* The entries in the order of the winners. */
static struct ordered entries_make(const struct release *release) {
  struct ordered ordered = {.entries = xcalloc(release->n_winners, sizeof *ordered.entries)};
  size_t size = 0;
  FILE *out = open_memstream(&ordered.keys, &size);
  ALWAYS(out != NULL);
  for (size_t i = 0; i < release->n_winners; i++) {
    json_canonical_write(out, release->winners[i].key);
    putc_unlocked('\0', out);
  }
  ALWAYS(fclose(out) == 0);
  const char *key = ordered.keys;
  for (size_t i = 0; i < release->n_winners; i++) {
    ordered.entries[i] = (struct entry){&release->winners[i], key};
    key += strlen(key) + 1;
  }
  return ordered;
}

static bool entries_are_distinct(const struct entry *entries, size_t n, struct error *error) {
  cleanup_free struct entry *sorted = xmemdup(entries, n * sizeof *entries);
  qsort(sorted, n, sizeof *sorted, by_kernel_and_key);
  for (size_t i = 1; i < n; i++)
    if (by_kernel_and_key(&sorted[i - 1], &sorted[i]) == 0)
      return error_at(error, "/winners", "two winners for kernel %.100s and key %.300s: a release has one for each key",
                      sorted[i].winner->name, sorted[i].key);
  return true;
}

static void winner_write(FILE *out, const struct release_winner *winner) {
  char digest[DIGEST_TEXT_SIZE];
  fputs_unlocked("{\"config\":", out);
  json_canonical_write(out, winner->config);
  fputs_unlocked(",\"kernel\":\"", out);
  fputs_unlocked(digest_format(&winner->kernel, digest), out);
  fputs_unlocked("\",\"key\":", out);
  json_canonical_write(out, winner->key);
  fputs_unlocked(",\"name\":", out);
  json_canonical_write_string(out, winner->name);
  fprintf(out, ",\"ordinal\":%llu,\"space\":\"", (unsigned long long)winner->ordinal);
  fputs_unlocked(digest_format(&winner->space, digest), out);
  fputs_unlocked("\"}", out);
}

static char *bytes_write(const struct release *release, size_t *ret_size) {
  char *bytes = NULL;
  cleanup_json json_t *environment = environment_to_json(&release->environment);
  FILE *out = open_memstream(&bytes, ret_size);
  ALWAYS(out != NULL);
  fputs_unlocked("{\"environment\":", out);
  json_canonical_write(out, environment);
  fputs_unlocked(",\"tag\":", out);
  json_canonical_write_string(out, release->tag);
  fputs_unlocked(",\"version\":1,\"winners\":[", out);
  for (size_t i = 0; i < release->n_winners; i++) {
    if (i)
      putc_unlocked(',', out);
    winner_write(out, &release->winners[i]);
  }
  fputs_unlocked("]}", out);
  ALWAYS(fclose(out) == 0);
  return bytes;
}

bool release_seal(struct release *release, char **ret_bytes, size_t *ret_size, struct error *error) {
  size_t n = release->n_winners;
  __attribute__((cleanup(ordered_release))) struct ordered ordered = entries_make(release);
  if (!entries_are_distinct(ordered.entries, n, error))
    return false;
  qsort(ordered.entries, n, sizeof *ordered.entries, by_name_kernel_and_key);
  struct release_winner *sorted = xcalloc(n, sizeof *sorted);
  for (size_t i = 0; i < n; i++)
    sorted[i] = *ordered.entries[i].winner;
  free(release->winners);
  release->winners = sorted;
  *ret_bytes = bytes_write(release, ret_size);
  release->digest = digest_of(*ret_bytes, *ret_size);
  return true;
}

/* Keys and configs are flat: names with None, bool, int, float or string. */
static bool scalars_check(const json_t *object, const char *pointer, const char *member_name, struct error *error) {
  const char *name;
  json_t *value;
  json_object_foreach ((json_t *)object, name, value) {
    if (json_is_object(value) || json_is_array(value)) {
      char in[JSON_POINTER_SIZE], at[JSON_POINTER_SIZE];
      json_pointer_member(in, sizeof in, pointer, member_name);
      return error_at(error, json_pointer_member(at, sizeof at, in, name),
                      "\"%.64s\" must be null, a boolean, a number or a string", name);
    }
  }
  return true;
}

static bool text_read(const json_t *object, const char *pointer, const char *name, char **ret, struct error *error) {
  const char *text;
  if (!json_get_string(object, pointer, name, JSON_REQUIRED, &text, error))
    return false;
  if (!*text) {
    char at[JSON_POINTER_SIZE];
    return error_at(error, json_pointer_member(at, sizeof at, pointer, name), "\"%s\" is empty", name);
  }
  *ret = xstrdup(text);
  return true;
}

static bool winner_read(const json_t *json, size_t index, struct release_winner *winner, struct error *error) {
  static const char *const names[] = {"config", "kernel", "key", "name", "ordinal", "space", NULL};
  char at[JSON_POINTER_SIZE];
  json_t *key, *config;
  int64_t ordinal;
  json_pointer_index(at, sizeof at, "/winners", index);
  if (!json_only_members(json, at, names, error) || !text_read(json, at, "name", &winner->name, error) ||
      !json_get_digest(json, at, "kernel", JSON_REQUIRED, &winner->kernel, error) ||
      !json_get_object(json, at, "key", JSON_REQUIRED, &key, error) || !scalars_check(key, at, "key", error) ||
      !json_get_object(json, at, "config", JSON_REQUIRED, &config, error) ||
      !scalars_check(config, at, "config", error) ||
      !json_get_integer(json, at, "ordinal", JSON_REQUIRED, 0, INT64_MAX, &ordinal, error) ||
      !json_get_digest(json, at, "space", JSON_REQUIRED, &winner->space, error))
    return false;
  winner->key = json_incref(key);
  winner->config = json_incref(config);
  winner->ordinal = (uint64_t)ordinal;
  return true;
}

static bool environment_read(const json_t *json, struct environment *ret, struct error *error) {
  cleanup_json json_t *again = NULL;
  if (!environment_parse(json, ret, error))
    return error_pointer_prefix(error, "/environment");
  again = environment_to_json(ret);
  if (!json_equal(again, json))
    return error_at(error, "/environment", "a member of the environment is null; a release leaves out what is unknown");
  return true;
}

static bool members_read(const json_t *json, struct release *release, struct error *error) {
  static const char *const names[] = {"environment", "tag", "version", "winners", NULL};
  json_t *environment, *winners;
  int64_t version;
  if (!json_only_members(json, "", names, error) ||
      !json_get_integer(json, "", "version", JSON_REQUIRED, 1, 1, &version, error) ||
      !json_get_object(json, "", "environment", JSON_REQUIRED, &environment, error) ||
      !environment_read(environment, &release->environment, error) ||
      !text_read(json, "", "tag", &release->tag, error) ||
      !json_get_array(json, "", "winners", JSON_REQUIRED, &winners, error))
    return false;
  size_t n = json_array_size(winners);
  release->winners = xcalloc(n, sizeof *release->winners);
  for (; release->n_winners < n; release->n_winners++)
    if (!winner_read(json_array_get(winners, release->n_winners), release->n_winners,
                     &release->winners[release->n_winners], error)) {
      release->n_winners++; /* what was read of it is freed with the release */
      return false;
    }
  return true;
}

static bool winners_are_sorted(const struct entry *entries, size_t n, struct error *error) {
  for (size_t i = 1; i < n; i++)
    if (by_name_kernel_and_key(&entries[i - 1], &entries[i]) > 0) {
      char at[JSON_POINTER_SIZE];
      return error_at(error, json_pointer_index(at, sizeof at, "/winners", i),
                      "winners are not sorted by name, kernel and key; take the bytes as the server made them");
    }
  return true;
}

static bool bytes_are_canonical(const json_t *json, const char *bytes, size_t size, struct error *error) {
  cleanup_free char *canonical = json_canonical(json);
  if (strlen(canonical) == size && memcmp(canonical, bytes, size) == 0)
    return true;
  size_t at = 0;
  while (at < size && canonical[at] && canonical[at] == bytes[at])
    at++;
  return error_set(error, "the release is not canonical JSON from byte %zu on; take the bytes as the server made them",
                   at);
}

bool release_parse(const char *bytes, size_t size, struct release **ret_release, struct error *error) {
  cleanup_json json_t *json = NULL;
  cleanup_release struct release *release = xcalloc(1, sizeof *release);
  if (!json_parse(bytes, size, &json, error) || !members_read(json, release, error) ||
      !bytes_are_canonical(json, bytes, size, error))
    return false;
  __attribute__((cleanup(ordered_release))) struct ordered ordered = entries_make(release);
  if (!winners_are_sorted(ordered.entries, release->n_winners, error) ||
      !entries_are_distinct(ordered.entries, release->n_winners, error))
    return false;
  release->digest = digest_of(bytes, size);
  *ret_release = TAKE(release);
  return true;
}

void release_free(struct release *release) {
  if (!release)
    return;
  environment_release(&release->environment);
  free(release->tag);
  for (size_t i = 0; i < release->n_winners; i++) {
    struct release_winner *winner = &release->winners[i];
    free(winner->name);
    json_decref(winner->key);
    json_decref(winner->config);
  }
  free(release->winners);
  free(release);
}

static json_t *winner_named(const struct release_winner *winner) {
  json_t *object = json_object();
  ALWAYS(json_object_set_new(object, "name", json_string(winner->name)) == 0);
  ALWAYS(json_object_set_new(object, "kernel", json_digest_text(&winner->kernel)) == 0);
  ALWAYS(json_object_set(object, "key", winner->key) == 0);
  return object;
}

static json_t *winner_with_config(const struct release_winner *winner) {
  json_t *object = winner_named(winner);
  ALWAYS(json_object_set(object, "config", winner->config) == 0);
  return object;
}

static json_t *winner_change(const struct release_winner *from, const struct release_winner *to) {
  json_t *object = winner_named(to);
  ALWAYS(json_object_set(object, "from", from->config) == 0);
  ALWAYS(json_object_set(object, "to", to->config) == 0);
  return object;
}

json_t *release_diff(const struct release *from, const struct release *to) {
  __attribute__((cleanup(ordered_release))) struct ordered before = entries_make(from), after = entries_make(to);
  json_t *added = json_array(), *removed = json_array(), *changed = json_array();
  json_int_t same = 0;
  size_t i = 0, j = 0;
  while (i < from->n_winners || j < to->n_winners) {
    int order = i == from->n_winners ? 1
                : j == to->n_winners ? -1
                                     : by_name_kernel_and_key(&before.entries[i], &after.entries[j]);
    if (order < 0) {
      json_array_append_new(removed, winner_with_config(before.entries[i++].winner));
    } else if (order > 0) {
      json_array_append_new(added, winner_with_config(after.entries[j++].winner));
    } else {
      const struct release_winner *old = before.entries[i++].winner, *new = after.entries[j++].winner;
      if (json_equal(old->config, new->config))
        same++;
      else
        json_array_append_new(changed, winner_change(old, new));
    }
  }
  json_t *diff = json_object();
  json_object_set_new(diff, "added", added);
  json_object_set_new(diff, "removed", removed);
  json_object_set_new(diff, "changed", changed);
  json_object_set_new(diff, "same", json_integer(same));
  return diff;
}
