/* Records: messages between programs, and rows of the database, each described once by a table of
 * fields.
 *
 * The table of a record is used to read its JSON strictly (errors have a JSON Pointer), to write
 * it, and to make its schema in /openapi.json and, in the server, the parameters and columns of its
 * statements (server/db/db_record.h). The value of a record is a plain struct; a field states where
 * in it a member is, the name in JSON and SQL, and the values that it may have.
 *
 *   struct point { int64_t x; char *label; bool is_hidden; };
 *   #define RECORD_OF struct point
 *   static const struct field point_fields[] = {
 *       MEMBER(INTEGER, x, FIELD_REQUIRED, .least = 0, .most = 100),
 *       MEMBER(TEXT, label, .most = 64),
 *       MEMBER_AS("hidden", BOOL, is_hidden),
 *   };
 *   #undef RECORD_OF
 *   const struct record point_record = RECORD("Point", struct point, point_fields);
 *
 * Every type has a value that means "absent": what JSON leaves out or has as null, and what is NULL
 * in SQL.
 *
 * Memory: an object that was read owns what its fields point to; record_release frees it. An object
 * that is only written may borrow that, and is not released. Tables are static. Threads: any, one
 * at a time for each object. */
#ifndef WAVETUNE_COMMON_RECORD_RECORD_H
#define WAVETUNE_COMMON_RECORD_RECORD_H

#include <stddef.h>

#include "common/base/config_ranges.h"
#include "common/base/json.h"

/* clang-format off */
enum field_type {
  /*                in C                  absent       in JSON                  in SQL */
  FIELD_BOOL,    /* bool                  false        a boolean                boolean */
  FIELD_INTEGER, /* int64_t               FIELD_NONE   an integer               bigint, integer */
  FIELD_ID,      /* int64_t               FIELD_NONE   a decimal in a string    bigint */
  FIELD_NUMBER,  /* double                NaN          a number                 double precision,
                                                                                real */
  FIELD_TEXT,    /* char *, const or not  NULL         a string                 text, or any type
                                                                                as text */
  FIELD_TIME,    /* char *                NULL         RFC 3339, UTC,           rfc3339(
                                                       milliseconds             timestamptz) */
  FIELD_ENUM,    /* an enum, from 0       -1           one of .names            text, or an enum
                                                                                type */
  FIELD_DIGEST,  /* struct digest         all zeros *  "sha256:…"               bytea of 32 bytes */
  FIELD_JSON,    /* json_t *              NULL         any value (see .schema)  json, or its text */
  FIELD_CUSTOM,  /* the value of .custom  .is_absent   what .custom reads       json, or its text */
  FIELD_NUMBERS, /* struct numbers        .all NULL    an array of numbers      real[], double
                                                                                precision[] */
  FIELD_TEXTS,   /* struct texts          .all NULL    an array of strings      text[] */
  FIELD_RANGES,  /* struct config_ranges  never        [[first, count], …]      int8multirange
                                          (empty) */
  FIELD_RECORD,  /* the struct of .of     all absent   an object                the columns of its
                                                                                fields */
  FIELD_RECORDS, /* struct records        .all NULL    an array of objects      - */
  FIELD_MAP,     /* struct records        .all NULL    an object (see .of)      - */
  /* * A required digest is never absent: clients may send one of zeros. */
};
/* clang-format on */

#define FIELD_NONE INT64_MIN

struct numbers {
  size_t n;
  double *all;
};
struct texts {
  size_t n;
  char **all;
};
struct records {
  size_t n;
  void *all; /* n structs of .of */
};

/* Declares the members `count` and `all` of a struct, an array for FIELD_TEXTS, FIELD_RECORDS or
 * FIELD_MAP. The field is that of the member `count`: RECORD_FIELD_AS("all", TEXTS, …, count). */
#define RECORD_ARRAY(type, count, all)                                                             \
  union {                                                                                          \
    struct records count##_records;                                                                \
    struct {                                                                                       \
      size_t count;                                                                                \
      type *all;                                                                                   \
    };                                                                                             \
  }

/* A type of fields that is not in the list above: how it is read from JSON and written. */
struct field_custom {
  const char *schema;
  bool (*is_absent)(const void *at); /* NULL: never */
  /* Fills `to`, which is absent and stays so on failure. Pointers of errors are relative to the
   * value. */
  bool (*read)(const json_t *value, void *to, struct error *error);
  json_t *(*write)(const void *at); /* a new reference */
  void (*release)(void *at);        /* NULL: it owns nothing */
};

/* Flags of a field. Without flags it may be absent or null in JSON, is written as null when absent,
 * and has a column. */
enum field_flags {
  FIELD_REQUIRED = 1 << 0,  /* JSON must have it */
  FIELD_NOT_NULL = 1 << 1,  /* JSON may leave it out; null is refused */
  FIELD_OMITTED = 1 << 2,   /* left out of JSON when absent, rather than null; a bool when false */
  FIELD_NO_COLUMN = 1 << 3, /* SQL does not have it */
  FIELD_NO_JSON = 1 << 4,   /* JSON does not have it */
  FIELD_ANSWER = 1 << 5,    /* written only: reading refuses the member */
  FIELD_REQUEST = 1 << 6,   /* read only: never written */
  FIELD_STATED = 1 << 7,    /* JSON must have it, perhaps as null */
  FIELD_LINE = 1 << 8,      /* a text without control characters */
  FIELD_OR_INTEGER =
      1 << 9,             /* a text, or each of texts: an integer is read as its decimal digits */
  FIELD_OBJECT = 1 << 10, /* JSON: an object */
  FIELD_ARRAY = 1 << 11,  /* JSON: an array */
  FIELD_ZERO_NULL = 1 << 12, /* an integer: bound as null where it is 0 */
};

struct field {
  const char *name; /* the JSON member; the parameter :name and the column too, unless .column is
                       set */
  enum field_type type;
  size_t offset;
  unsigned flags;
  const char *column;
  /* Limits of an integer, of the bytes of a text or of a JSON value's canonical text, of the
   * elements of a list or FIELD_ARRAY, and of the members of a map. Both 0: none. */
  int64_t least, most;
  /* Limits of a number, and of each of numbers. Both 0: none; HUGE_VAL: no upper bound. */
  double least_number, most_number;
  const char *const *names; /* of an enum, by value, ended by NULL */
  const char *sql_type;     /* of an enum or a text whose column is not text: that type */
  /* Of records. Of a map, the record of a member: a text, which is its name, and its value. */
  const struct record *of;
  const struct field_custom *custom; /* of FIELD_CUSTOM */
  const char *schema; /* JSON: replaces the type's schema; FIELD_ARRAY: of each element */
  const char *about;  /* its description in /openapi.json */
  /* Checks a text, each of texts, and the name of a map's member. Pointers of errors are relative
   * to it. */
  bool (*check)(const char *text, struct error *error);
};

struct record {
  const char *name; /* of its schema in /openapi.json; NULL: written where it is used */
  const struct field *fields;
  size_t n, size; /* of the fields; of the struct in bytes */
  unsigned flags; /* that all fields have: FIELD_ANSWER or none */
};

/* A row of a table: the field for the member `member` of the struct `object`, which has that name
 * in JSON and SQL, too. `type` is a field_type without FIELD_. The flags and further members of
 * struct field, by name, may follow. */
#define RECORD_FIELD(type, object, member, ...)                                                    \
  {#member, FIELD_##type, offsetof(object, member), __VA_ARGS__}

/* The same with another name in JSON and SQL. */
#define RECORD_FIELD_AS(name, type, object, member, ...)                                           \
  {name, FIELD_##type, offsetof(object, member), __VA_ARGS__}

/* Such rows for several members of one type: RECORD_FIELDS(INTEGER, struct point, x, y). */
#define RECORD_FIELDS(type, object, ...) RECORD_SCAN_3_(RECORD_NEXT_(type, object, __VA_ARGS__))
/* The macro that takes one member names itself again only when the result is scanned again. */
#define RECORD_NEXT_(type, object, member, ...)                                                    \
  RECORD_FIELD(type, object, member)                                                               \
  __VA_OPT__(, RECORD_AGAIN_ RECORD_PARENTHESES_(type, object, __VA_ARGS__))
#define RECORD_AGAIN_() RECORD_NEXT_
#define RECORD_PARENTHESES_ ()
#define RECORD_SCAN_3_(...) RECORD_SCAN_2_(RECORD_SCAN_2_(RECORD_SCAN_2_(__VA_ARGS__)))
#define RECORD_SCAN_2_(...) RECORD_SCAN_1_(RECORD_SCAN_1_(RECORD_SCAN_1_(__VA_ARGS__)))
#define RECORD_SCAN_1_(...) __VA_ARGS__
/* The same for the struct RECORD_OF, which the file defines around each table. */
#define MEMBER(type, member, ...) RECORD_FIELD(type, RECORD_OF, member, __VA_ARGS__)
#define MEMBER_AS(name, type, member, ...)                                                         \
  RECORD_FIELD_AS(name, type, RECORD_OF, member, __VA_ARGS__)

/* `name` as in struct record, the struct that it describes, and the table. */
#define RECORD(name, type, fields) {name, fields, ARRAY_LENGTH(fields), sizeof(type), 0}
/* The same for RECORD_OF and with the flag FIELD_ANSWER in all fields. */
#define ANSWER(name, fields) {name, fields, ARRAY_LENGTH(fields), sizeof(RECORD_OF), FIELD_ANSWER}

/* Defines ID_fields and ID_record of a file: a record without a name, and its fields. */
#define PRIVATE_RECORD(id, type, ...)                                                              \
  static const struct field id##_fields[] = {__VA_ARGS__};                                         \
  static const struct record id##_record = RECORD(NULL, type, id##_fields)

/* For .schema: the schema of that name in /openapi.json. */
#define SCHEMA(name) "{\"$ref\": \"#/components/schemas/" name "\"}"

/* All fields absent. */
void record_init(const struct record *record, void *object);
/* Frees what the fields own and makes them absent. */
void record_release(const struct record *record, void *object);

/* Reads a JSON object into `object`, which was initialised. A field that is absent in JSON stays as
 * it is, so that the caller may set defaults before. On failure the object has some of the fields:
 * release it. */
must_check bool record_read(const struct record *record, const json_t *json, const char *pointer,
                            void *object, struct error *error);

/* Reads an answer that this version or a later one wrote: also reads fields with FIELD_ANSWER, and
 * ignores unknown members. */
must_check bool record_read_answer(const struct record *record, const json_t *json,
                                   const char *pointer, void *object, struct error *error);

/* Returns a new reference; the members have the order of the fields. */
must_check json_t *record_write(const struct record *record, const void *object);

/* The JSON schema of the record; a new reference. */
must_check json_t *record_schema(const struct record *record);

/* For server/db, which writes records to SQL. `at` points to the field in an object. */
bool field_is_absent(const struct field *field, const void *at);
static inline void *field_at(const struct field *field, const void *object) {
  return (char *)(uintptr_t)object + field->offset;
}
static inline const char *field_column(const struct field *field) {
  return field->column ? field->column : field->name;
}
bool digest_is_none(const struct digest *digest);

#endif
