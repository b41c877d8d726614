/* Walks over a format once: literal words and values into the message, fields into the message and,
 * for JSON, into members. Everything goes into buffers of a fixed size, by whole characters. No
 * allocation; any thread. */
#include "common/base/log_line.h"

#include <math.h>

#include "common/base/error.h"

#define MESSAGE_SIZE 2048
#define MEMBERS_SIZE 1800
#define MEMBER_TEXT_MAX 512 /* bytes of one field's text, with its escapes */
#define NUMBER_SIZE 352     /* the longest of printf: %f of the largest double */
#define NAME_MAX 32         /* of a program or a component */
#define TAIL_SIZE 24        /* ,"truncated":true} and a newline */
#define SPEC_SIZE 24

struct buffer {
  char *bytes;
  size_t used, size;
  bool is_cut;
};

/* As a whole or not at all; what comes after something that did not fit is left out too. */
static void put(struct buffer *to, const char *bytes, size_t n) {
  to->is_cut = to->is_cut || to->used > to->size || n > to->size - to->used;
  if (to->is_cut)
    return;
  memcpy(to->bytes + to->used, bytes, n);
  to->used += n;
}

static void put_text(struct buffer *to, const char *text) { put(to, text, strlen(text)); }

/* Characters that drive terminals (C0, DEL, C1), and two that some readers take for the end of a
 * line. */
static bool is_control(const char *at, size_t size) {
  const unsigned char *c = (const unsigned char *)at;
  bool is_c1 = size == 2 && c[0] == 0xc2 && c[1] < 0xa0;
  bool is_separator = size == 3 && c[0] == 0xe2 && c[1] == 0x80 && (c[2] == 0xa8 || c[2] == 0xa9);
  return c[0] < 0x20 || c[0] == 0x7f || is_c1 || is_separator;
}

static void put_escape(struct buffer *to, const char *at, size_t size) {
  static const char letters[] = "\b\f\n\r\t", names[] = "bfnrt";
  const unsigned char *c = (const unsigned char *)at;
  const char *letter = *at ? strchr(letters, *at) : NULL;
  char escape[8];
  if (letter)
    snprintf(escape, sizeof escape, "\\%c", names[letter - letters]);
  else
    snprintf(escape, sizeof escape, "\\u%04x",
             size == 1   ? c[0]
             : size == 2 ? c[1]
                         : 0x2000u | (c[2] & 0x3fu));
  put_text(to, escape);
}

/* The inside of a JSON string. */
static void put_json(struct buffer *to, const char *text, size_t length) {
  for (size_t i = 0, size; i < length && !to->is_cut; i += size ? size : 1) {
    size = utf8_character_size(text + i, length - i);
    if (!size)
      put_text(to, "\xef\xbf\xbd"); /* U+FFFD */
    else if (is_control(text + i, size))
      put_escape(to, text + i, size);
    else if (text[i] == '"' || text[i] == '\\')
      put(to, (char[]){'\\', text[i]}, 2);
    else
      put(to, text + i, size);
  }
}

static void put_plain(struct buffer *to, const char *text, size_t length) {
  for (size_t i = 0, size; i < length && !to->is_cut; i += size ? size : 1) {
    size = utf8_character_size(text + i, length - i);
    if (!size)
      put_text(to, "?");
    else if (is_control(text + i, size))
      put_text(to, " ");
    else
      put(to, text + i, size);
  }
}

/* As much as fits, without half a character. */
static void put_cut(struct buffer *to, const char *text, size_t length) {
  size_t room = to->used < to->size ? to->size - to->used : 0, n = length < room ? length : room;
  while (n && n < length && ((unsigned char)text[n] & 0xc0) == 0x80)
    n--;
  put(to, text, n);
  to->is_cut = to->is_cut || n < length;
}

struct arguments {
  va_list list;
};

/* One conversion with its argument. Numbers are in `number` as printf wrote them, and in `json` as
 * JSON has them. */
struct value {
  enum { VALUE_TEXT, VALUE_NUMBER, VALUE_ABSENT } kind;
  const char *text;
  size_t length;
  char number[NUMBER_SIZE], json[NUMBER_SIZE];
};

_Static_assert(sizeof(long long) == sizeof(long) && sizeof(long) == sizeof(size_t),
               "one argument for ll, l, j, z, t");

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
static void integer_read(struct value *value, const char *spec, char conversion,
                         const char *modifier, struct arguments *arguments) {
  char wide[SPEC_SIZE + 4];
  bool is_signed = conversion == 'd' || conversion == 'i';
  bool is_wide =
      modifier[0] == 'l' || modifier[0] == 'z' || modifier[0] == 'j' || modifier[0] == 't';
  snprintf(wide, sizeof wide, "%sll%c", spec, conversion);
  value->kind = conversion == 'x' || conversion == 'X' ? VALUE_TEXT : VALUE_NUMBER;
  if (is_signed) {
    long long number = is_wide ? va_arg(arguments->list, long long) : va_arg(arguments->list, int);
    snprintf(value->number, sizeof value->number, wide, number);
    snprintf(value->json, sizeof value->json, "%lld", number);
  } else {
    unsigned long long number = is_wide ? va_arg(arguments->list, unsigned long long)
                                        : va_arg(arguments->list, unsigned int);
    snprintf(value->number, sizeof value->number, wide, number);
    snprintf(value->json, sizeof value->json, "%llu", number);
  }
}

/* What printf writes without flags and width is JSON, but for what is not finite. */
static void real_read(struct value *value, const char *spec, char conversion,
                      struct arguments *arguments) {
  char whole[SPEC_SIZE + 2];
  double number = va_arg(arguments->list, double);
  snprintf(whole, sizeof whole, "%s%c", spec, conversion);
  value->kind = VALUE_NUMBER;
  snprintf(value->number, sizeof value->number, whole, number);
  bool is_bare = spec[1] == '.' || spec[1] == '\0';
  snprintf(value->json, sizeof value->json, isfinite(number) ? is_bare ? whole : "%.17g" : "null",
           number);
}
#pragma GCC diagnostic pop

static void text_read(struct value *value, const char *spec, struct arguments *arguments) {
  const char *precision = strchr(spec, '.'), *text = va_arg(arguments->list, const char *);
  size_t most = precision ? strtoul(precision + 1, NULL, 10) : SIZE_MAX;
  value->kind = text ? VALUE_TEXT : VALUE_ABSENT;
  value->text = text ? text : "";
  value->length = strnlen(value->text, most);
}

/* Copies flags, width and precision to `spec`, "*" as the number that it stands for. */
static const char *spec_read(const char *at, char spec[SPEC_SIZE], struct arguments *arguments) {
  size_t n = 0;
  spec[n++] = *at++;
  for (; *at && strchr("-+ #0123456789.*", *at); at++) {
    if (*at == '*')
      n += (size_t)snprintf(spec + n, SPEC_SIZE - n, "%d", va_arg(arguments->list, int) & 0xfff);
    else
      spec[n++] = *at;
    ALWAYS(n < SPEC_SIZE - 5);
  }
  spec[n] = '\0';
  return at;
}

/* Takes the conversion at `at` (a "%") and its argument; returns what follows it. */
static const char *value_read(struct value *value, const char *at, struct arguments *arguments) {
  char spec[SPEC_SIZE];
  at = spec_read(at, spec, arguments);
  const char *modifier = at;
  at += strspn(at, "hlzjt");
  char conversion = *at;
  value->text = value->number;
  switch (conversion) {
  case 's':
    text_read(value, spec, arguments);
    return at + 1;
  case 'c':
    value->kind = VALUE_TEXT;
    snprintf(value->number, sizeof value->number, "%c", va_arg(arguments->list, int));
    break;
  case 'p':
    value->kind = VALUE_TEXT;
    snprintf(value->number, sizeof value->number, "%p", va_arg(arguments->list, void *));
    break;
  case 'f':
  case 'e':
  case 'g':
    real_read(value, spec, conversion, arguments);
    break;
  default:
    ALWAYS(conversion && strchr("diuxX", conversion));
    integer_read(value, spec, conversion, modifier, arguments);
  }
  value->length = strlen(value->number);
  return at + 1;
}

struct record {
  struct buffer message, members;
  size_t begin, end; /* of the message without the fields before and behind it */
  bool has_words;
};

/* Words that are no field. Blanks and colons between fields make none. */
static void words_add(struct record *record, const char *text, size_t length, bool is_literal) {
  size_t at = record->message.used;
  put_cut(&record->message, text, length);
  bool is_joint = is_literal && (*text == ' ' || (*text == ':' && !record->has_words));
  if (is_joint || length == 0)
    return;
  if (!record->has_words)
    record->begin = at;
  record->has_words = true;
  record->end = record->message.used;
}

static bool text_is_bare(const struct value *value) {
  for (size_t i = 0, size; i < value->length; i += size) {
    size = utf8_character_size(value->text + i, value->length - i);
    if (!size || is_control(value->text + i, size) || strchr(" \"\\=", value->text[i]))
      return false;
  }
  return value->length > 0;
}

static void field_to_message(struct record *record, const char *name, size_t name_size,
                             const struct value *value) {
  bool is_bare = value->kind == VALUE_NUMBER || text_is_bare(value);
  put(&record->message, name, name_size);
  put_text(&record->message, is_bare ? "=" : "=\"");
  if (is_bare)
    put_cut(&record->message, value->text, value->length);
  else
    put_json(&record->message, value->text, value->length);
  put_text(&record->message, is_bare ? "" : "\"");
}

/* An object with the same member twice is read differently by different programs. */
static bool name_is_free(const struct buffer *members, const char *name, size_t size) {
  static const char *const reserved[] = {"time",    "level",   "program",  "component",
                                         "request", "message", "truncated"};
  char member[NAME_MAX + 4];
  for (size_t i = 0; i < ARRAY_LENGTH(reserved); i++)
    if (strlen(reserved[i]) == size && memcmp(reserved[i], name, size) == 0)
      return false;
  int length = snprintf(member, sizeof member, "\"%.*s\":", (int)size, name);
  return size <= NAME_MAX &&
         !(members->used && memmem(members->bytes, members->used, member, (size_t)length));
}

/* Lease ids use more bits than a double has, which many readers of JSON make of a number. */
static bool name_is_id(const char *name, size_t size) {
  return (size == 3 && memcmp(name, "job", 3) == 0) || (size == 5 && memcmp(name, "lease", 5) == 0);
}

static void field_to_members(struct record *record, const char *name, size_t name_size,
                             const struct value *value) {
  struct buffer *members = &record->members;
  size_t before = members->used;
  bool was_cut = members->is_cut,
       is_number = value->kind == VALUE_NUMBER && !name_is_id(name, name_size);
  if (!name_is_free(members, name, name_size))
    return;
  members->is_cut = false; /* a later field may be shorter */
  put_text(members, ",\"");
  put(members, name, name_size);
  put_text(members, is_number ? "\":" : "\":\"");
  if (is_number) {
    put_text(members, value->json);
  } else if (!members->is_cut) {
    size_t most = members->used + MEMBER_TEXT_MAX;
    members->size = most < MEMBERS_SIZE ? most : MEMBERS_SIZE - 1;
    put_json(members, value->text, value->length);
    was_cut = was_cut || members->is_cut;
    members->is_cut = false;
    members->size = MEMBERS_SIZE;
    put_text(members, "\"");
  }
  if (members->is_cut)
    members->used = before;
  members->is_cut = members->is_cut || was_cut;
}

/* The length of "name=" at `at` when a conversion follows it, else 0. */
static size_t field_name(const char *at) {
  size_t length = strspn(at, "abcdefghijklmnopqrstuvwxyz_");
  return length && at[length] == '=' && at[length + 1] == '%' && at[length + 2] != '%' ? length : 0;
}

static void format_walk(struct record *record, const char *format, bool is_json,
                        struct arguments *arguments) {
  struct value value;
  bool may_begin = true; /* a field, here */
  for (const char *at = format; *at;) {
    size_t name_size = may_begin ? field_name(at) : 0;
    if (name_size) {
      const char *name = at;
      at = value_read(&value, at + name_size + 1, arguments);
      if (value.kind == VALUE_ABSENT) {
        at += *at == ' ';
        continue;
      }
      field_to_message(record, name, name_size, &value);
      if (is_json)
        field_to_members(record, name, name_size, &value);
      may_begin = false;
    } else if (at[0] == '%' && at[1] != '%') {
      at = value_read(&value, at, arguments);
      words_add(record, value.text, value.length, false);
      may_begin = false;
    } else {
      words_add(record, at, 1, true);
      may_begin = *at == ' ';
      at += 1 + (at[0] == '%');
    }
  }
}

/* The length of the format's "component", which ": " follows; 0: it has none. */
static size_t component_length(const char *format) {
  size_t length = strspn(format, "abcdefghijklmnopqrstuvwxyz_");
  return length && length <= NAME_MAX && format[length] == ':' && format[length + 1] == ' ' ? length
                                                                                            : 0;
}

static void member_add(struct buffer *line, const char *name, const char *text, size_t length) {
  put_text(line, line->bytes[line->used - 1] == '{' ? "\"" : ",\"");
  put_text(line, name);
  put_text(line, "\":\"");
  put_json(line, text, length);
  put_text(line, "\"");
}

static void json_compose(struct buffer *line, const struct log_head *head, const char *component,
                         size_t component_size, const struct record *record) {
  put_text(line, head->prefix);
  put_text(line, "{");
  if (head->time)
    member_add(line, "time", head->time, strlen(head->time));
  member_add(line, "level", head->level, strlen(head->level));
  if (head->program)
    member_add(line, "program", head->program, strnlen(head->program, NAME_MAX));
  if (component_size)
    member_add(line, "component", component, component_size);
  if (head->request)
    member_add(line, "request", head->request, strlen(head->request));

  /* The message has the room that fields and the end leave. */
  put_text(line, ",\"message\":\"");
  line->size -= record->members.used + TAIL_SIZE;
  put_json(line, record->message.bytes + record->begin, record->end - record->begin);
  bool is_cut = line->is_cut || record->message.is_cut || record->members.is_cut;
  line->size += record->members.used + TAIL_SIZE;
  line->is_cut = false;
  put_text(line, "\"");
  put(line, record->members.bytes, record->members.used);
  put_text(line, is_cut ? ",\"truncated\":true}" : "}");
}

static void text_compose(struct buffer *line, const struct log_head *head, const char *component,
                         size_t component_size, const struct record *record) {
  put_text(line, head->prefix);
  if (head->time) {
    put_text(line, head->time);
    put_text(line, " ");
    put_text(line, head->level);
    put_text(line, " ");
  }
  if (component_size)
    put(line, component, component_size + 2);
  size_t tail = head->request ? strlen(head->request) + sizeof " request=" : 1;
  line->size -= tail;
  put_plain(line, record->message.bytes, record->message.used);
  line->size += tail;
  line->is_cut = false;
  if (head->request) {
    put_text(line, " request=");
    put_plain(line, head->request, strlen(head->request));
  }
}

size_t log_line_write(char line[LOG_LINE_SIZE], const struct log_head *head, const char *format,
                      va_list list) {
  bool is_json = head->format == LOG_FORMAT_JSON;
  char message[MESSAGE_SIZE], members[MEMBERS_SIZE];
  struct record record = {.message = {.bytes = message, .size = sizeof message},
                          .members = {.bytes = members, .size = sizeof members}};
  struct buffer out = {.bytes = line, .size = is_json ? LOG_LINE_SIZE : MESSAGE_SIZE};
  struct arguments arguments;
  size_t component_size = component_length(format);
  va_copy(arguments.list, list);
  format_walk(&record, component_size ? format + component_size + 2 : format, is_json, &arguments);
  va_end(arguments.list);

  if (is_json)
    json_compose(&out, head, format, component_size, &record);
  else
    text_compose(&out, head, format, component_size, &record);
  line[out.used++] = '\n';
  return out.used;
}
