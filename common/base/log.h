/* Log lines on stderr: `2026-11-21T06:40:04.123Z info lease: granted lease=… agent=…`, one write(2) a line.
 *
 * Levels: error (someone must act), warning, info (what happened to jobs, leases, agents), debug. The level comes from
 * WAVETUNE_LOG (a level's name; default info) or log_set_level(). Under journald ($JOURNAL_STREAM) the time is left
 * out and the sd-daemon level prefix is written. Never log a token.
 * Threads: any. */
#ifndef WAVETUNE_COMMON_BASE_LOG_H
#define WAVETUNE_COMMON_BASE_LOG_H

#include "common/base/base.h"

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARNING, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

void log_set_level(enum log_level level);
bool log_level_parse(const char *name, enum log_level *ret_level);
void log_write(enum log_level level, const char *format, ...) printf_like(2, 3);

#define log_error(...) log_write(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_write(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_info(...) log_write(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_write(LOG_LEVEL_DEBUG, __VA_ARGS__)

#endif
