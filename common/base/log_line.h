/* One line of the log, as text or as a JSON object, from a printf format and its arguments. Pure.
 *
 * The format is the structure: "lease: granted lease=%lld agent=%s" is the component `lease`, the
 * message `granted` and the fields `lease` and `agent`. Only what stands in the format makes a
 * component or a field, never a value. A field is a name of [a-z_] at the format's begin or behind
 * a blank, then "=" and one conversion; a field whose text is NULL is left out. Conversions: d i u
 * x X c s p f e g with h, l, j, z or t; a width counts for numbers only.
 *
 * Text: the format as printf writes it. A field's text with blanks, quotes or characters that drive
 * terminals is quoted as in JSON; elsewhere such characters become blanks, and bytes that are no
 * UTF-8 become '?'.
 * JSON: {"time", "level", "program", "component", "request", "message", …fields…}, strict UTF-8
 * (what is none becomes U+FFFD), numbers for numbers, strings for texts and for the ids of jobs and
 * leases, which are strings in the API. Fields at the begin and at the end of a message are members
 * only. A line that does not fit has "truncated": true, and is a JSON object all the same.
 *
 * Memory: none is allocated. Threads: any. */
#ifndef WAVETUNE_COMMON_BASE_LOG_LINE_H
#define WAVETUNE_COMMON_BASE_LOG_LINE_H

#include <stdarg.h>

#include "common/base/base.h"

enum log_format { LOG_FORMAT_TEXT, LOG_FORMAT_JSON };

/* With its newline: what one write(2) to a pipe does not tear (PIPE_BUF). */
#define LOG_LINE_SIZE 4096

struct log_head {
  enum log_format format;
  const char *prefix;  /* goes before everything: sd-daemon's "<6>"; "": none */
  const char *time;    /* RFC 3339; NULL: left out of text, where the journal has it */
  const char *level;   /* "info" */
  const char *program; /* in JSON; NULL: left out */
  const char *request; /* the id of the request that the line belongs to, or NULL */
};

/* Writes the line with its newline, without a NUL; returns its size, at most LOG_LINE_SIZE. */
must_check size_t log_line_write(char line[LOG_LINE_SIZE], const struct log_head *head,
                                 const char *format, va_list arguments) printf_like(3, 0);

#endif
