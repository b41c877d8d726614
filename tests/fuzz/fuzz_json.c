/* Any bytes as JSON: what is read has a canonical text that reads back to an equal value and is its
 * own canonical text. */
#include "common/base/json.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  struct error error;
  cleanup_json json_t *value = NULL, *again = NULL;

  if (!json_parse((const char *)bytes, size, &value, &error)) {
    check_refusal(&error);
    return 0;
  }

  cleanup_free char *canonical = json_canonical(value);
  ALWAYS(json_parse(canonical, strlen(canonical), &again, &error));
  ALWAYS(json_equal(value, again));
  cleanup_free char *twice = json_canonical(again);
  ALWAYS(strcmp(canonical, twice) == 0);
  return 0;
}
