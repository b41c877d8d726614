/* Lines of logs: whatever they are, what is kept is JSON with bounded names and positive numbers.
 */
#include "cli/demand_log.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  cleanup_demand_log struct demand_log log = demand_log_new();
  const char *at = (const char *)bytes, *end = at + size;
  while (at < end) {
    const char *newline = memchr(at, '\n', (size_t)(end - at));
    size_t length = (size_t)((newline ? newline : end) - at);
    demand_log_line(&log, at, length);
    at += length + (newline != NULL);
  }

  json_elements (log.misses, i, miss) {
    const json_t *members = json_object_get(miss, "members");
    ALWAYS(json_integer_value(json_object_get(miss, "misses")) > 0);
    ALWAYS(json_text(miss, "table") && json_text(miss, "file") && json_text(miss, "device"));
    ALWAYS(json_object_size(members) > 0);
    json_members (members, name, value)
      ALWAYS(*name && (!json_is_integer(value) || json_integer_value(value) > 0));
  }
  return 0;
}
