/* A record with a field of every type, for tests of records: in JSON (tests/unit/test_record.c) and
 * in SQL (tests/records.c). Memory and threads: as common/record/record.h says. */
#ifndef WAVETUNE_TESTS_EVERY_TYPE_H
#define WAVETUNE_TESTS_EVERY_TYPE_H

#include "common/record/record.h"
#include "common/space/space.h"

struct part {
  int64_t x;
  char *label;
};
static const struct field part_fields[] = {
    {"x", FIELD_INTEGER, offsetof(struct part, x), FIELD_REQUIRED, .least = 1, .most = 9},
    {"label", FIELD_TEXT, offsetof(struct part, label), FIELD_OMITTED},
};
static const struct record part_record = RECORD(NULL, struct part, part_fields);

enum every_color { COLOR_RED, COLOR_GREEN };
static const char *const every_colors[] = {"red", "green", NULL};

struct every {
  bool flag;
  int64_t count, id;
  double number;
  char *text, *at;
  enum every_color color;
  struct digest digest;
  json_t *json;
  struct numbers numbers;
  struct texts texts;
  struct config_ranges ranges;
  struct part part;
  struct records parts;
};
static const struct field every_fields[] = {
    {"flag", FIELD_BOOL, offsetof(struct every, flag), 0},
    {"count", FIELD_INTEGER, offsetof(struct every, count), FIELD_NOT_NULL, .least = -5,
     .most = 1000},
    {"id", FIELD_ID, offsetof(struct every, id), 0, .column = "its_id"},
    {"number", FIELD_NUMBER, offsetof(struct every, number), 0, .least_number = 0.5,
     .most_number = 1e6},
    {"text", FIELD_TEXT, offsetof(struct every, text), 0, .least = 1, .most = 40},
    {"at", FIELD_TIME, offsetof(struct every, at), 0},
    {"color", FIELD_ENUM, offsetof(struct every, color), 0, .names = every_colors},
    {"digest", FIELD_DIGEST, offsetof(struct every, digest), 0},
    {"json", FIELD_JSON, offsetof(struct every, json), FIELD_OMITTED, .most = 100},
    {"numbers", FIELD_NUMBERS, offsetof(struct every, numbers), 0, .most = 4, .least_number = -1,
     .most_number = 1e3},
    {"texts", FIELD_TEXTS, offsetof(struct every, texts), 0, .most = 3},
    {"ranges", FIELD_RANGES, offsetof(struct every, ranges), 0},
    {"part", FIELD_RECORD, offsetof(struct every, part), FIELD_NO_COLUMN, .of = &part_record},
    {"parts", FIELD_RECORDS, offsetof(struct every, parts), FIELD_NO_COLUMN, .least = 1, .most = 2,
     .of = &part_record},
};
static const struct record every_record = RECORD("Every", struct every, every_fields);

/* Nothing of it is absent, and its texts are what SQL and JSON must quote. */
#define EVERY_JSON                                                                                 \
  "{\"flag\": true, \"count\": -5, \"id\": \"9007199254740993\", \"number\": 2.5,"                 \
  " \"text\": \"a\\\"b\\\\c,{'\\u00e9}\", \"at\": \"2026-01-31T12:00:00.250Z\", \"color\": "       \
  "\"green\","                                                                                     \
  " \"digest\": \"sha256:00000000000000000000000000000000000000000000000000000000000000ff\","      \
  " \"json\": {\"z\": [1, null], \"a\": \"\\\"\"}, \"numbers\": [-1.0, 0.5, 203.125],"             \
  " \"texts\": [\"\", \"NULL\", \"a,\\\"b\\\\\"], \"ranges\": [[0, 48], [50, 22]],"                \
  " \"part\": {\"x\": 3, \"label\": \"l\"}, \"parts\": [{\"x\": 1}, {\"x\": 9, \"label\": \"\"}]}"

#endif
