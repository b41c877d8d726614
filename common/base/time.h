/* Times and durations as people and JSON write them.
 *
 * Memory: nothing is kept. Threads: any. */
#ifndef WAVETUNE_COMMON_BASE_TIME_H
#define WAVETUNE_COMMON_BASE_TIME_H

#include "common/base/base.h"

/* Microseconds since 1970 of a time of RFC 3339, "2026-11-21T07:05:00.25Z" or with an offset.
 * False: the text is no such time, or the time is before 1970 or a leap second. Digits after the
 * sixth of the fraction are cut off. */
must_check bool time_parse(const char *text, int64_t *ret_us);

/* The form of a time in signed documents: "YYYY-MM-DDTHH:MM:SSZ", from 1970 to 9999. */
#define TIME_TEXT_SIZE 21
must_check bool time_text_parse(const char *text, int64_t *ret_s);
char *time_text_format(int64_t s, char text[TIME_TEXT_SIZE]); /* returns text */
/* The text in memory of the block that has the expression. */
#define TIME_TEXT(s) time_text_format((s), (char[TIME_TEXT_SIZE]){0})

/* "90s", "30m", "12h" or "7d" as milliseconds, 0 or more. False: the text is no such duration, or
 * the duration is longer than 100 years. */
#define DURATION_MS_MAX (INT64_C(36500) * 24 * 3600 * 1000)
must_check bool duration_parse(const char *text, int64_t *ret_ms);

/* How long something lasts, for people: "45 s", "14 min", "3.2 h", "2.5 days". Returns text. */
#define SPAN_TEXT_SIZE 32
char *span_format(double seconds, char text[SPAN_TEXT_SIZE]);
#define SPAN_TEXT(seconds) span_format((seconds), (char[SPAN_TEXT_SIZE]){0})

#endif
