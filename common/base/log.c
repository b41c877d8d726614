/* Log lines on stderr: made from a printf format and its arguments in buffers of a fixed size, by
 * whole characters, and written with one write(2). */
#include "common/base/log.h"

#include <errno.h>
#include <math.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <time.h>

#include "common/base/error.h"

#define MESSAGE_SIZE 2048
#define MEMBERS_SIZE 1800
#define MEMBER_TEXT_MAX 512 /* bytes of one field's text, with its escapes */
#define NUMBER_SIZE 352     /* of the longest number that printf writes: %f of the largest double */
#define NAME_MAX 32         /* of a program or a component */
#define TAIL_SIZE 24        /* ,"truncated":true} and a newline */
#define SPEC_SIZE 24
#define REQUEST_SIZE 65
#define NAME_CHARACTERS "abcdefghijklmnopqrstuvwxyz_"

struct buffer {
  char *bytes;
  size_t used, size;
  bool is_cut;
};

/* Appends all bytes, or none and sets is_cut; after that, none. */
static void put(struct buffer *to, const char *bytes, size_t n) {
  to->is_cut = to->is_cut || to->used > to->size || n > to->size - to->used;
  if (to->is_cut)
    return;
  memcpy(to->bytes + to->used, bytes, n);
  to->used += n;
}

static void put_text(struct buffer *to, const char *text) { put(to, text, strlen(text)); }

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

/* Appends the inside of a JSON string, or text with '?' for each invalid byte and a blank for each
 * control character. */
static void put_safe(struct buffer *to, const char *text, size_t length, bool is_json) {
  for (size_t i = 0, size; i < length && !to->is_cut; i += size ? size : 1) {
    const char *at = text + i;
    size = utf8_character_size(at, length - i);

    if (!size)
      put_text(to, is_json ? "\xef\xbf\xbd" : "?"); /* U+FFFD */
    else if (is_json && utf8_is_control(at, size))
      put_escape(to, at, size);
    else if (utf8_is_control(at, size))
      put_text(to, " ");
    else if (is_json && (*at == '"' || *at == '\\'))
      put(to, (char[]){'\\', *at}, 2);
    else
      put(to, at, size);
  }
}

/* Appends as much as fits, by whole characters. */
static void put_cut(struct buffer *to, const char *text, size_t length) {
  size_t n = utf8_cut(text, length, to->used < to->size ? to->size - to->used : 0);
  put(to, text, n);
  to->is_cut = to->is_cut || n < length;
}

struct arguments {
  va_list list;
};

/* A conversion's argument as text. Of a number, `number` is what printf wrote and `json` its JSON.
 */
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
/* Reads the conversion at `at` (a "%") and its argument; returns the text behind it. */
static const char *value_read(struct value *value, const char *at, struct arguments *arguments) {
  char spec[SPEC_SIZE]; /* flags, width and precision, with the argument in place of "*" */
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
  bool is_wide = *at == 'l' || *at == 'z' || *at == 'j' || *at == 't';
  at += strspn(at, "hlzjt");

  char conversion = *at++;
  value->kind = VALUE_TEXT;
  value->text = value->number;
  switch (conversion) {
  case 's': {
    const char *precision = strchr(spec, '.'), *text = va_arg(arguments->list, const char *);
    value->kind = text ? VALUE_TEXT : VALUE_ABSENT;
    value->text = text ? text : "";
    value->length = strnlen(value->text, precision ? strtoul(precision + 1, NULL, 10) : SIZE_MAX);
    return at;
  }
  case 'c':
    snprintf(value->number, NUMBER_SIZE, "%c", va_arg(arguments->list, int));
    break;
  case 'p':
    snprintf(value->number, NUMBER_SIZE, "%p", va_arg(arguments->list, void *));
    break;
  case 'f':
  case 'e':
  case 'g': {
    /* What printf writes without flags and width is JSON, unless it is not finite. */
    double number = va_arg(arguments->list, double);
    bool is_bare = n == 1 || spec[1] == '.';
    snprintf(spec + n, SPEC_SIZE - n, "%c", conversion);
    value->kind = VALUE_NUMBER;
    snprintf(value->number, NUMBER_SIZE, spec, number);
    if (isfinite(number))
      snprintf(value->json, NUMBER_SIZE, is_bare ? spec : "%.17g", number);
    else
      snprintf(value->json, NUMBER_SIZE, "null");
    break;
  }
  default: {
    bool is_signed = conversion == 'd' || conversion == 'i';
    bool is_hexadecimal = conversion == 'x' || conversion == 'X';
    ALWAYS(is_signed || is_hexadecimal || conversion == 'u');
    long long number = is_wide     ? va_arg(arguments->list, long long)
                       : is_signed ? va_arg(arguments->list, int)
                                   : (long long)va_arg(arguments->list, unsigned int);
    snprintf(spec + n, SPEC_SIZE - n, "ll%c", conversion);
    value->kind = is_hexadecimal ? VALUE_TEXT : VALUE_NUMBER;
    snprintf(value->number, NUMBER_SIZE, spec, number);
    snprintf(value->json, NUMBER_SIZE, is_signed ? "%lld" : "%llu", number);
  }
  }

  value->length = strlen(value->number);
  return at;
}
#pragma GCC diagnostic pop

struct record {
  struct buffer message, members;
  size_t begin, end; /* of the message without the fields before and after its words */
  bool has_words;
};

/* Adds text that is no field. Blanks, and colons before the first word, change neither begin nor
 * end. */
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

static void field_to_message(struct buffer *message, const char *name, size_t name_size,
                             const struct value *value) {
  bool is_bare = value->length > 0;
  for (size_t i = 0, size; is_bare && value->kind == VALUE_TEXT && i < value->length; i += size) {
    const char *at = value->text + i;
    size = utf8_character_size(at, value->length - i);
    is_bare = size && !utf8_is_control(at, size) && !strchr(" \"\\=", *at);
  }

  put(message, name, name_size);
  put_text(message, is_bare ? "=" : "=\"");
  if (is_bare) {
    put_cut(message, value->text, value->length);
  } else {
    put_safe(message, value->text, value->length, true);
    put_text(message, "\"");
  }
}

/* Programs differ in how they read an object that has a member twice. */
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

static void field_to_members(struct buffer *members, const char *name, size_t name_size,
                             const struct value *value) {
  /* Many programs read the numbers of JSON as doubles, which have fewer bits than an id. */
  bool is_id = string_starts(name, "job=") || string_starts(name, "lease=");
  bool is_number = value->kind == VALUE_NUMBER && !is_id, was_cut = members->is_cut;
  size_t before = members->used;
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
    put_safe(members, value->text, value->length, true);
    was_cut = was_cut || members->is_cut;
    members->is_cut = false;
    members->size = MEMBERS_SIZE;
    put_text(members, "\"");
  }

  if (members->is_cut)
    members->used = before;
  members->is_cut = members->is_cut || was_cut;
}

/* Adds words and fields to the message and, for JSON, fields to the members. */
static void format_walk(struct record *record, const char *format, bool is_json,
                        struct arguments *arguments) {
  struct value value;
  bool may_begin = true; /* whether a field may begin here */

  for (const char *at = format; *at;) {
    size_t name_size = may_begin ? strspn(at, NAME_CHARACTERS) : 0;
    const char *behind = at + name_size;
    if (name_size && behind[0] == '=' && behind[1] == '%' && behind[2] != '%') {
      const char *name = at;
      at = value_read(&value, behind + 1, arguments);
      if (value.kind == VALUE_ABSENT) {
        at += *at == ' ';
        continue;
      }

      field_to_message(&record->message, name, name_size, &value);
      if (is_json)
        field_to_members(&record->members, name, name_size, &value);
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

static void json_compose(struct buffer *line, const struct log_head *head, const char *component,
                         size_t component_size, const struct record *record) {
  const struct {
    const char *name, *text;
    size_t most;
  } members[] = {{"time", head->time, LOG_LINE_SIZE},
                 {"level", head->level, LOG_LINE_SIZE},
                 {"program", head->program, NAME_MAX},
                 {"component", component_size ? component : NULL, component_size},
                 {"request", head->request, LOG_LINE_SIZE},
                 {"message", record->message.bytes + record->begin, record->end - record->begin}};
  const char *separator = "{\"";

  put_text(line, head->prefix);
  for (size_t i = 0; i < ARRAY_LENGTH(members); i++) {
    bool is_message = i + 1 == ARRAY_LENGTH(members);
    size_t most = members[i].most;
    if (!members[i].text)
      continue;

    put_text(line, separator);
    put_text(line, members[i].name);
    put_text(line, "\":\"");
    /* Leaves space for the fields and the end of the line. */
    if (is_message)
      line->size -= record->members.used + TAIL_SIZE;
    put_safe(line, members[i].text, is_message ? most : strnlen(members[i].text, most), true);
    if (!is_message)
      put_text(line, "\"");
    separator = ",\"";
  }

  bool is_cut = line->is_cut || record->message.is_cut || record->members.is_cut;
  line->size += record->members.used + TAIL_SIZE;
  line->is_cut = false;
  put_text(line, "\"");
  put(line, record->members.bytes, record->members.used);
  put_text(line, is_cut ? ",\"truncated\":true}" : "}");
}

static void text_compose(struct buffer *line, const struct log_head *head, const char *component,
                         size_t component_size, const struct buffer *message) {
  const char *const parts[] = {head->time, " ", head->level, " "};
  put_text(line, head->prefix);
  for (size_t i = 0; head->time && i < ARRAY_LENGTH(parts); i++)
    put_text(line, parts[i]);
  if (component_size)
    put(line, component, component_size + 2);

  size_t tail = head->request ? strlen(head->request) + sizeof " request=" : 1;
  line->size -= tail;
  put_safe(line, message->bytes, message->used, false);
  line->size += tail;
  line->is_cut = false;
  if (head->request) {
    put_text(line, " request=");
    put_safe(line, head->request, strlen(head->request), false);
  }
}

size_t log_line_write(char line[LOG_LINE_SIZE], const struct log_head *head, const char *format,
                      va_list list) {
  bool is_json = head->format == LOG_FORMAT_JSON;
  char message[MESSAGE_SIZE], members[MEMBERS_SIZE];
  struct record record = {.message = {.bytes = message, .size = sizeof message},
                          .members = {.bytes = members, .size = sizeof members}};
  struct buffer out = {.bytes = line, .size = is_json ? LOG_LINE_SIZE : MESSAGE_SIZE};

  /* "component: " */
  size_t size = strspn(format, NAME_CHARACTERS);
  bool has_component = size && size <= NAME_MAX && format[size] == ':' && format[size + 1] == ' ';
  size_t component_size = has_component ? size : 0;

  struct arguments arguments;
  va_copy(arguments.list, list);
  format_walk(&record, has_component ? format + size + 2 : format, is_json, &arguments);
  va_end(arguments.list);

  if (is_json)
    json_compose(&out, head, format, component_size, &record);
  else
    text_compose(&out, head, format, component_size, &record.message);
  line[out.used++] = '\n';
  return out.used;
}

static const char *const level_names[] = {"error", "warning", "info", "debug"};
static const int syslog_priorities[] = {3, 4, 6, 7}; /* syslog(3), as sd-daemon(3) prefixes lines */
static atomic_int current_level = -1, current_format = LOG_FORMAT_TEXT;
static const char *_Atomic current_program;
static _Thread_local char current_request[REQUEST_SIZE];

static int log_level_now(void) {
  int level = atomic_load(&current_level);
  if (level >= 0)
    return level;

  const char *name = getenv("WAVETUNE_LOG");
  level = LOG_LEVEL_INFO;
  for (size_t i = 0; i < ARRAY_LENGTH(level_names); i++)
    if (string_equal(name, level_names[i]))
      level = (int)i;
  atomic_store(&current_level, level);
  return level;
}

void log_set_format(enum log_format format, const char *program) {
  atomic_store(&current_program, program);
  atomic_store(&current_format, (int)format);
}

enum log_format log_format_now(void) { return (enum log_format)atomic_load(&current_format); }

bool log_format_parse(const char *name, enum log_format *ret_format) {
  bool is_json = string_equal(name, "json");
  if (!is_json && !string_equal(name, "text"))
    return false;
  *ret_format = is_json ? LOG_FORMAT_JSON : LOG_FORMAT_TEXT;
  return true;
}

void log_set_request(const char *request) {
  snprintf(current_request, sizeof current_request, "%s", request ? request : "");
}

/* A process with another stderr inherits the variable, too, so it is compared (systemd.exec(5)). */
static bool stderr_is_journal(void) {
  const char *stream = getenv("JOURNAL_STREAM");
  struct stat status;
  char name[64];

  if (!stream || fstat(STDERR_FILENO, &status) < 0)
    return false;
  snprintf(name, sizeof name, "%ju:%ju", (uintmax_t)status.st_dev, (uintmax_t)status.st_ino);
  return string_equal(stream, name);
}

void log_write(enum log_level level, const char *format, ...) {
  if ((int)level > log_level_now())
    return;

  int saved_errno = errno;
  struct timespec now;
  struct tm utc;
  char seconds[24], date[40], prefix[4] = "";
  clock_gettime(CLOCK_REALTIME, &now);
  gmtime_r(&now.tv_sec, &utc);
  strftime(seconds, sizeof seconds, "%Y-%m-%dT%H:%M:%S", &utc);
  snprintf(date, sizeof date, "%s.%03ldZ", seconds, now.tv_nsec / 1000000);

  bool is_journal = stderr_is_journal();
  struct log_head head = {.format = log_format_now(),
                          .prefix = prefix,
                          .time = date,
                          .level = level_names[level],
                          .program = atomic_load(&current_program),
                          .request = current_request[0] ? current_request : NULL};
  if (is_journal)
    snprintf(prefix, sizeof prefix, "<%d>", syslog_priorities[level]);
  if (is_journal && head.format == LOG_FORMAT_TEXT)
    head.time = NULL;

  char line[LOG_LINE_SIZE];
  va_list arguments;
  va_start(arguments, format);
  size_t size = log_line_write(line, &head, format, arguments);
  va_end(arguments);
  (void)!write(STDERR_FILENO, line, size);
  errno = saved_errno;
}
