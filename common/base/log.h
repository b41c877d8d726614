/* Log lines on stderr, one write(2) a line, as text or as JSON (log_line.h says what of a format
 * becomes what):
 *
 *   2026-11-21T06:40:04.123Z info lease: granted lease=17 agent=5c1f request=d1zz-8r3c-81qd-7m2e
 *   {"time":"2026-11-21T06:40:04.123Z","level":"info","program":"wavetune-server",
 *    "component":"lease","request":"d1zz-8r3c-81qd-7m2e","message":"granted","lease":"17",
 *    "agent":"5c1f"}
 *
 * Levels: error (someone must act), warning, info (what happened to jobs, leases, agents), debug.
 * The level comes from WAVETUNE_LOG (a level's name; default info) or log_set_level(). Where stderr
 * is the journal ($JOURNAL_STREAM names it) the sd-daemon level prefix is written, and the time is
 * left out of text. Never log a token.
 * Threads: any. */
#ifndef WAVETUNE_COMMON_BASE_LOG_H
#define WAVETUNE_COMMON_BASE_LOG_H

#include "common/base/log_line.h"

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARNING, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

void log_set_level(enum log_level level);
bool log_level_parse(const char *name, enum log_level *ret_level);

/* `program` is borrowed for as long as the process lives. Before it is called: text. */
void log_set_format(enum log_format format, const char *program);
enum log_format log_format_now(void);
bool log_format_parse(const char *name, enum log_format *ret_format); /* "text", "json" */

/* The request that this thread's lines belong to from now on, its id copied (at most 64 bytes);
 * NULL: none. */
#define LOG_REQUEST_SIZE 65
void log_set_request(const char *request);
/* For who sets it for a while: the one that there is, "" for none. */
void log_get_request(char ret_request[LOG_REQUEST_SIZE]);

void log_write(enum log_level level, const char *format, ...) printf_like(2, 3);

#define log_error(...) log_write(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_write(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_info(...) log_write(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_write(LOG_LEVEL_DEBUG, __VA_ARGS__)

#endif
