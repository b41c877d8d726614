/* Sets of configs as ranges of ordinals. */
#include "common/base/config_ranges.h"

void config_ranges_add(struct config_ranges *ranges, uint64_t ordinal) {
  if (ranges->n > 0) {
    struct config_range *last = &ranges->ranges[ranges->n - 1];
    ALWAYS(ordinal >= last->first + last->count);
    if (ordinal == last->first + last->count) {
      last->count++;
      return;
    }
  }

  GROW(ranges->ranges, ranges->n, ranges->capacity);
  ranges->ranges[ranges->n++] = (struct config_range){ordinal, 1};
}

uint64_t config_ranges_count(const struct config_ranges *ranges) {
  uint64_t count = 0;
  for (size_t i = 0; i < ranges->n; i++)
    count += ranges->ranges[i].count;
  return count;
}

bool config_ranges_contain(const struct config_ranges *ranges, uint64_t ordinal) {
  size_t low = 0, high = ranges->n;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (ranges->ranges[middle].first <= ordinal)
      low = middle + 1;
    else
      high = middle;
  }
  return low > 0 && ordinal - ranges->ranges[low - 1].first < ranges->ranges[low - 1].count;
}

json_t *config_ranges_to_json(const struct config_ranges *ranges) {
  json_t *json = json_array();
  for (size_t i = 0; i < ranges->n; i++)
    json_push(json, json_pack("[I, I]", (json_int_t)ranges->ranges[i].first,
                              (json_int_t)ranges->ranges[i].count));
  return json;
}

bool config_ranges_from_json(const json_t *json, struct config_ranges *ret_ranges,
                             struct error *error) {
  if (!json_is_array(json))
    return error_set(error, "configs must be an array of ranges [first, count]");

  cleanup_config_ranges struct config_ranges ranges = {0};
  uint64_t least = 0;
  json_elements (json, index, pair) {
    const json_t *first = json_array_get(pair, 0), *count = json_array_get(pair, 1);
    json_int_t from = json_integer_value(first), n = json_integer_value(count);
    const char *at = POINTER_INDEX("", index);

    if (json_array_size(pair) != 2 || !json_is_integer(first) || !json_is_integer(count))
      return error_at(error, at, "a range of configs must be [first, count], two integers");
    if (from < 0 || n < 1 || n > INT64_MAX - from)
      return error_at(error, at,
                      "a range of configs must have at least one ordinal, all below 2**63 - 1");
    if ((uint64_t)from < least)
      return error_at(
          error, at,
          "ranges of configs must be in ascending order with gaps; this one begins before %llu",
          (unsigned long long)least);

    GROW(ranges.ranges, ranges.n, ranges.capacity);
    ranges.ranges[ranges.n++] = (struct config_range){(uint64_t)from, (uint64_t)n};
    least = (uint64_t)(from + n) + 1;
  }

  *ret_ranges = ranges;
  ranges = (struct config_ranges){0};
  return true;
}

void config_ranges_release(struct config_ranges *ranges) {
  free(ranges->ranges);
  *ranges = (struct config_ranges){0};
}
