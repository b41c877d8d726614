/* Makes and checks ids of requests. A generator for each thread; no allocation. */
#include "common/program/request_id.h"

#include <sys/random.h>
#include <time.h>

#include "common/base/rng.h"

#define CHARACTERS 16
#define GROUP 4
#define RANDOM_BITS 38

bool request_id_is_good(const char *text) {
  size_t length = strnlen(text, REQUEST_ID_SIZE);
  for (size_t i = 0; i < length; i++) {
    char c = text[i], lower = (char)(c | 0x20);
    if (!(lower >= 'a' && lower <= 'z') && !(c >= '0' && c <= ':') && c != '.' && c != '_' &&
        c != '-')
      return false;
  }
  return length > 0 && length < REQUEST_ID_SIZE && !string_starts(text, "wt_");
}

static uint64_t random_bits(void) {
  static _Thread_local struct rng rng;
  static _Thread_local bool is_seeded;
  if (!is_seeded) {
    ALWAYS(getrandom(&rng.state, sizeof rng.state, 0) == (ssize_t)sizeof rng.state);
    is_seeded = true;
  }
  return rng_next(&rng) >> (64 - RANDOM_BITS);
}

void request_id_make(char text[REQUEST_ID_SIZE]) {
  static const char digits[] = "0123456789abcdefghjkmnpqrstvwxyz";
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  uint64_t now_ms = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
  unsigned __int128 bits = (unsigned __int128)now_ms << RANDOM_BITS | random_bits();
  char *at = text;
  for (int i = CHARACTERS - 1; i >= 0; i--) {
    *at++ = digits[(unsigned)(bits >> (5 * i)) & 31];
    if (i && i % GROUP == 0)
      *at++ = '-';
  }
  *at = '\0';
}
