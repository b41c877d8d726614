/* The names of folders in Triton's cache.
 *
 * Memory: none. Threads: any. */
#include "common/builds/triton_folder.h"

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

char *triton_folder_format(const struct digest *digest, char text[TRITON_FOLDER_LENGTH + 1]) {
  for (size_t i = 0; i < TRITON_FOLDER_LENGTH; i++) {
    size_t bit = i * 5;
    unsigned high = digest->bytes[bit / 8],
             low = bit / 8 + 1 < DIGEST_SIZE ? digest->bytes[bit / 8 + 1] : 0;
    text[i] = digits[((high << 8 | low) >> (11 - bit % 8)) & 31];
  }
  text[TRITON_FOLDER_LENGTH] = '\0';
  return text;
}

bool triton_folder_is_valid(const char *text, size_t length) {
  for (size_t i = 0; i < length; i++) {
    if (!text[i] || !strchr(digits, text[i]))
      return false;
  }
  return length == TRITON_FOLDER_LENGTH;
}
