/* Untrusted spaces and keys: {"space": …, "key": …}. An accepted space is parsed again from its
 * JSON, every config has its ordinal, and enumeration, counting and deciding one point alone agree.
 */
#include "common/space/space.h"
#include "tests/fuzz/fuzz.h"

#define STEPS 3000
#define POINTS 64

static void check_ordinal(const struct space *space, uint64_t ordinal) {
  cleanup_json json_t *config = space_config_to_json(space, ordinal);
  cleanup_free char *text = space_config_format(space, ordinal);
  struct error error;
  uint64_t back;
  ALWAYS(text[0] != '\0');
  ALWAYS(space_config_from_json(space, config, &back, &error) && back == ordinal);
}

static void check_points(const struct space *space, const struct space_facts *facts) {
  cleanup_space_iterator struct space_iterator *iterator = NULL;
  cleanup_config_ranges struct config_ranges ranges = {0}, back = {0};
  struct error error = {0};

  if (!space_iterator_new(space, facts, STEPS, &iterator, &error)) {
    check_refusal(&error);
    return;
  }

  uint64_t found = 0, ordinal, last = 0, count;
  bool is_valid;
  enum space_step step;
  while ((step = space_iterator_next(iterator, &ordinal, &error)) == SPACE_POINT) {
    ALWAYS(ordinal < space->raw_count && (found == 0 || ordinal > last));
    last = ordinal;
    config_ranges_add(&ranges, ordinal);
    if (++found <= POINTS) {
      check_ordinal(space, ordinal);
      ALWAYS(space_is_valid(space, facts, ordinal, &is_valid, &error) && is_valid);
    }
    if (space->is_list && found > STEPS)
      return;
  }

  if (step == SPACE_ERROR)
    check_refusal(&error);
  else
    ALWAYS(space_count(space, facts, STEPS, found, &count, &error) && count == found);
  cleanup_json json_t *json = config_ranges_to_json(&ranges);
  ALWAYS(config_ranges_from_json(json, &back, &error) && config_ranges_count(&back) == found);
}

static void check_key(const struct key *key) {
  cleanup_key struct key again = {0};
  cleanup_json json_t *json = key_to_json(key);
  cleanup_free char *text = key_format(key);
  struct error error;

  ALWAYS(key_parse(json, NULL, 0, &again, &error) && text);
  struct digest digest = key_digest(key), digest_again = key_digest(&again);
  ALWAYS(digest_equal(&digest, &digest_again));
  for (size_t i = 0; i < key->n; i++)
    if (!expr_can_name(key->names[i]))
      return; /* the command line has no quotes for names */

  cleanup_key struct key back = {0};
  ALWAYS(key_parse_text(text, NULL, 0, &back, &error));
  digest_again = key_digest(&back);
  ALWAYS(digest_equal(&digest, &digest_again));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  cleanup_json json_t *input = NULL;
  cleanup_space struct space *space = NULL, *again = NULL;
  cleanup_key struct key key = {0};
  struct error error = {0};

  if (!json_parse((const char *)bytes, size, &input, &error) || !json_is_object(input))
    return 0;
  const json_t *key_json = json_object_get(input, "key"),
               *space_json = json_object_get(input, "space");
  bool has_key = key_json && key_parse(key_json, NULL, 0, &key, &error);
  if (has_key)
    check_key(&key);
  if (!space_json)
    return 0;
  if (!space_parse(space_json, &space, &error)) {
    check_refusal(&error);
    return 0;
  }

  ALWAYS(space_parse(space->json, &again, &error) && digest_equal(&space->digest, &again->digest));
  check_ordinal(space, 0);
  check_ordinal(space, space->raw_count - 1);
  check_points(space,
               &(struct space_facts){has_key ? &key : NULL, "AMD Instinct MI300X", "gfx942"});
  return 0;
}
