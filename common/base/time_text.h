/* Times as texts, in UTC.
 *
 * Memory: plain values. Threads: pure functions. */
#ifndef WAVETUNE_COMMON_BASE_TIME_TEXT_H
#define WAVETUNE_COMMON_BASE_TIME_TEXT_H

#include "common/base/error.h"

/* "2026-11-21T07:05:00.25Z" or with an offset, strictly RFC 3339 from 1970 on, as microseconds since then. */
must_check bool time_parse(const char *text, int64_t *ret_us, struct error *error);

/* Only "YYYY-MM-DDTHH:MM:SSZ" and back: one text for each second, as what is signed needs. From 1970 to 9999. */
#define TIME_TEXT_SIZE 21
must_check bool time_text_parse(const char *text, int64_t *ret_s);
char *time_text_format(int64_t s, char text[TIME_TEXT_SIZE]);

#endif
