/* What clients send that fuzz_server_bodies does not read: a line with the name of a parser or of a
 * record of /openapi.json, then its bytes. Each is refused with a sentence and a pointer, or what
 * was read has the ranges that the server relies on; a record that was read and written again is
 * read as the same, where it may be read again. */
#include <math.h>

#include "common/base/time.h"
#include "server/cache/cache_rules.h"
#include "server/demand/demand.h"
#include "server/http/client.h"
#include "server/lease/identity.h"
#include "server/records.h"
#include "server/release/release_make.h"
#include "server/remote/remote.h"
#include "server/remote/values.h"
#include "server/token/tokens.h"
#include "tests/fuzz/fuzz.h"

static void check_token(const json_t *json) {
  cleanup_token_request struct token_request request;
  struct error error = {0};
  if (!token_request_parse(json, &request, &error)) {
    check_refusal(&error);
    return;
  }
  ALWAYS(token_name_is_good(request.name) && request.role[0]);
  ALWAYS(request.expires_in_ms == FIELD_NONE ||
         (request.expires_in_ms > 0 && request.expires_in_ms <= DURATION_MS_MAX));
  ALWAYS((request.uses == FIELD_NONE) == !string_equal(request.role, "enrol"));
}

static void check_release(const json_t *json) {
  cleanup_release_request struct release_request request = {0};
  struct error error = {0};
  if (!release_request_parse(json, &request, &error)) {
    check_refusal(&error);
    return;
  }

  ALWAYS(request.tag[0] && strlen(request.tag) <= RELEASE_TAG_MAX);
  ALWAYS(request.kernel_texts.n <= RELEASE_KERNELS_MAX && request.pins.n <= RELEASE_PINS_MAX);
  const struct release_pin *pins = request.pins.all;
  for (size_t i = 1; i < request.pins.n; i++) {
    int order = memcmp(&pins[i - 1].place.kernel, &pins[i].place.kernel, sizeof pins->place.kernel);
    ALWAYS(order < 0 ||
           (order == 0 && strcmp(pins[i - 1].place.key_text, pins[i].place.key_text) < 0));
  }
}

static void check_demand(const json_t *json) {
  cleanup_demand_report struct demand_report report = {0};
  struct error error = {0};
  if (!demand_report_parse(json, &report, &error)) {
    check_refusal(&error);
    return;
  }

  ALWAYS(report.items.n <= DEMAND_ITEMS_MAX);
  const struct demand_item *items = report.items.all;
  for (size_t i = 0; i < report.items.n; i++) {
    ALWAYS(items[i].hits >= 0 && items[i].hits <= DEMAND_COUNT_MAX);
    ALWAYS(items[i].misses >= 0 && items[i].misses <= DEMAND_COUNT_MAX);
    ALWAYS(isnan(items[i].tuning_ms) ||
           (items[i].tuning_ms >= DEMAND_MS_MIN && items[i].tuning_ms <= DEMAND_MS_MAX));
    ALWAYS(isnan(items[i].kernel_ms) ||
           (items[i].kernel_ms >= DEMAND_MS_MIN && items[i].kernel_ms <= DEMAND_MS_MAX));
  }
}

static void check_compatibility(const json_t *json) {
  cleanup_compatibility struct compatibility read = {0}, again = {0};
  struct error error = {0};
  if (!compatibility_parse(json, &read, &error)) {
    check_refusal(&error);
    return;
  }
  cleanup_json json_t *written = record_write(&compatibility_request_record, &read);
  ALWAYS(compatibility_parse(written, &again, &error));
}

/* The bytes of a group behind its first line are its files, whole. */
static void check_group(const char *bytes, size_t size) {
  struct error error = {0};
  if (!remote_group_check(bytes, size, &error)) {
    check_refusal(&error);
    return;
  }

  const char *end = memchr(bytes, '\n', size);
  cleanup_json json_t *head = NULL;
  const json_t *entry;
  size_t i, total = 0;
  ALWAYS(end && json_parse(bytes, (size_t)(end - bytes), &head, &error));
  json_array_foreach (head, i, entry) {
    const char *name = json_string_value(json_array_get(entry, 0));
    ALWAYS(name[0] && name[0] != '.' && !strchr(name, '/') && !string_ends(name, ".so"));
    total += (size_t)json_integer_value(json_array_get(entry, 1));
  }
  ALWAYS(total == size - (size_t)(end + 1 - bytes));
}

/* Ids of leases, addresses and certificates in headers, and short texts of queries and options. */
static void check_text(const char *bytes, size_t size) {
  static const uint8_t secret[SERVER_SECRET_SIZE] = {7};
  cleanup_free char *text = xstrndup(bytes, size);
  char granted[LEASE_ID_SIZE];
  int64_t lease = 0;
  enum lease_id_answer answer = lease_id_check(secret, text, 3, "ab12", &lease);
  if (answer != LEASE_ID_NONE)
    ALWAYS(lease >= 0);
  if (answer == LEASE_ID_GRANTED)
    ALWAYS(string_equal(text, lease_id_format(secret, "", lease, 3, "ab12", granted)));

  struct networks networks = {0};
  struct error error = {0};
  const char *network = text;
  if (networks_parse(&network, 1, &networks, &error))
    ALWAYS(networks.n == 1 && networks.all[0].bits <= 128);
  else
    check_refusal(&error);
  networks_release(&networks);

  static const char *const local = "127.0.0.0/8";
  char address[ADDRESS_SIZE] = "";
  ALWAYS(networks_parse(&local, 1, &networks, &error));
  if (forwarded_address(&networks, text, address))
    ALWAYS(address[0]);
  networks_release(&networks);

  uint8_t *der = NULL;
  size_t der_size;
  if (forwarded_certificate(text, &der, &der_size))
    ALWAYS(der_size > 0);
  free(der);
  remote_key_is_valid(text);
  remote_share_is(text, "token", "image");
  if (remote_name_check(text, &error))
    ALWAYS(!strchr(text, '/') && text[0] != '.');
}

static void check_record(const struct record *record, const json_t *json) {
  cleanup_free void *read = xcalloc(1, record->size), *again = xcalloc(1, record->size);
  struct error error = {0};
  record_init(record, read);
  record_init(record, again);
  if (record_read(record, json, "", read, &error)) {
    cleanup_json json_t *written = record_write(record, read);
    /* A member that a request may leave out but not have as null is written as null. */
    if (record_read_answer(record, written, "", again, &error)) {
      cleanup_json json_t *twice = record_write(record, again);
      ALWAYS(json_equal(written, twice));
    } else {
      check_refusal(&error);
    }
  } else {
    check_refusal(&error);
  }

  record_release(record, read);
  record_release(record, again);
}

static const struct {
  const char *name;
  void (*check_json)(const json_t *json);
  void (*check_bytes)(const char *bytes, size_t size);
} parsers[] = {
    {.name = "token", .check_json = check_token},
    {.name = "release", .check_json = check_release},
    {.name = "demand", .check_json = check_demand},
    {.name = "compatibility", .check_json = check_compatibility},
    {.name = "group", .check_bytes = check_group},
    {.name = "text", .check_bytes = check_text},
};

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  const char *at = (const char *)bytes, *end = at + size;
  cleanup_free char *name = line_next(&at, end), *rest = xmemdup(at, (size_t)(end - at));
  size_t rest_size = (size_t)(end - at);
  cleanup_json json_t *json = NULL;
  struct error error;
  bool is_json = json_parse(rest, rest_size, &json, &error);

  for (size_t i = 0; i < ARRAY_LENGTH(parsers); i++)
    if (string_equal(parsers[i].name, name)) {
      if (parsers[i].check_bytes)
        parsers[i].check_bytes(rest, rest_size);
      else if (is_json)
        parsers[i].check_json(json);
    }

  for (const struct server_record *each = server_records; is_json && each->record; each++)
    if (each->record->name && string_equal(each->record->name, name))
      check_record(each->record, json);
  return 0;
}
