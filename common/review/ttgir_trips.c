/* Pairing writes to LDS with reads from it. Memory and threads: see the header. */
#include "common/review/ttgir_trips.h"

static void value_end(struct ttgir_trips *trips, const struct ttgir_value *value) {
  (value->is_read ? trips->whole : trips->writes)[value->is_in_loop]++;
}

void ttgir_trips_write(struct ttgir_trips *trips, struct span name, int nesting, bool is_in_loop) {
  struct ttgir_value value = {name, nesting, is_in_loop, false};
  if (name.length && trips->n < TTGIR_VALUES_MAX)
    trips->values[trips->n++] = value;
  else
    value_end(trips, &value);
}

void ttgir_trips_read(struct ttgir_trips *trips, struct span name, bool is_in_loop) {
  for (size_t i = trips->n; name.length && i > 0; i--) {
    struct ttgir_value *value = &trips->values[i - 1];
    if (!span_equal(value->name, name))
      continue;
    value->is_read = true;
    return;
  }
  trips->reads[is_in_loop]++;
}

void ttgir_trips_leave(struct ttgir_trips *trips, int nesting) {
  while (trips->n && trips->values[trips->n - 1].nesting > nesting)
    value_end(trips, &trips->values[--trips->n]);
}

void ttgir_trips_count(struct ttgir_trips *trips, int64_t *ret_outside, int64_t *ret_in_loops) {
  int64_t counts[2];
  ttgir_trips_leave(trips, -1);
  for (int i = 0; i < 2; i++)
    counts[i] = trips->whole[i] + (trips->writes[i] > trips->reads[i] ? trips->writes[i] : trips->reads[i]);
  *ret_outside = counts[0];
  *ret_in_loops = counts[1];
}
