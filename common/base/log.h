/* Log lines on stderr, one write(2) a line, as text or as JSON:
 *
 *   2026-11-21T06:40:04.123Z info lease: granted lease=17 agent=5c1f request=d1zz-8r3c-81qd-7m2e
 *   {"time":"2026-11-21T06:40:04.123Z","level":"info","program":"wavetune-server",
 *    "component":"lease","request":"d1zz-8r3c-81qd-7m2e","message":"granted","lease":"17",
 *    "agent":"5c1f"}
 *
 * The format states the structure: "lease: granted lease=%lld agent=%s" is the component `lease`,
 * the message `granted` and the fields `lease` and `agent`. Only the format makes components and
 * fields, never a value. A field is a name of [a-z_] at the start of the format or after a blank,
 * then "=" and one conversion; a field whose text is NULL is left out. Conversions: d i u x X c s p
 * f e g with h, l, j, z or t; a width applies to numbers only.
 *
 * Text: the format as printf writes it. A field's text with blanks, quotes or control characters is
 * quoted as in JSON; outside of fields control characters become blanks. Bytes that are not UTF-8
 * become '?'.
 * JSON: {"time", "level", "program", "component", "request", "message", …fields…}, strict UTF-8
 * (other bytes become U+FFFD), numbers for numbers, strings for texts and for the ids of jobs and
 * leases, which are strings in the API. Fields before and after the words of a message are members
 * only. A line that does not fit is cut to a JSON object with "truncated": true.
 *
 * Levels: error (a person must act), warning, info (what happened to jobs, leases, agents), debug.
 * The first line sets the level, from WAVETUNE_LOG (a level's name; default info). Where stderr is
 * the journal ($JOURNAL_STREAM names it) the sd-daemon level prefix is written, and the time is
 * left out of text. Never log a token.
 *
 * Memory: none is allocated. Threads: any. */
#ifndef WAVETUNE_COMMON_BASE_LOG_H
#define WAVETUNE_COMMON_BASE_LOG_H

#include <stdarg.h>

#include "common/base/base.h"

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARNING, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

enum log_format { LOG_FORMAT_TEXT, LOG_FORMAT_JSON };

/* `program` is borrowed until the process ends. The format is text until this is called. */
void log_set_format(enum log_format format, const char *program);
enum log_format log_format_now(void);
bool log_format_parse(const char *name, enum log_format *ret_format); /* "text", "json" */

/* The id of the request that this thread's lines belong to from now on, copied (at most 64 bytes);
 * NULL or "": none. */
void log_set_request(const char *request);

void log_write(enum log_level level, const char *format, ...) printf_like(2, 3);

#define log_error(...) log_write(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_write(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_info(...) log_write(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_write(LOG_LEVEL_DEBUG, __VA_ARGS__)

/* The longest line, with its newline: PIPE_BUF, the most that a write(2) to a pipe writes
 * atomically. */
#define LOG_LINE_SIZE 4096

struct log_head {
  enum log_format format;
  const char *prefix;  /* before everything: sd-daemon's "<6>"; "": none */
  const char *time;    /* RFC 3339; NULL: left out of text, because the journal has it */
  const char *level;   /* "info" */
  const char *program; /* in JSON; NULL: left out */
  const char *request; /* the id of the request that the line belongs to, or NULL */
};

/* Writes the line with its newline, without a NUL; returns its size, at most LOG_LINE_SIZE. */
must_check size_t log_line_write(char line[LOG_LINE_SIZE], const struct log_head *head,
                                 const char *format, va_list arguments) printf_like(3, 0);

#endif
