/* Runs a fuzz target over every file of the given folders: the corpus and the inputs that once
 * broke the target. */
#include <dirent.h>
#include <errno.h>

#include "common/base/file.h"
#include "tests/fuzz/fuzz.h"

int main(int argc, char **argv) {
  size_t inputs = 0;
  for (int i = 1; i < argc; i++) {
    DIR *folder = opendir(argv[i]);
    if (!folder && errno == ENOENT)
      continue;
    ALWAYS(folder != NULL);
    for (struct dirent *entry; (entry = readdir(folder));) {
      if (entry->d_name[0] == '.')
        continue;
      cleanup_free char *path = xasprintf("%s/%s", argv[i], entry->d_name);
      cleanup_free char *text = NULL;
      size_t size;
      struct error error;
      if (!file_read(path, 1 << 24, &text, &size, &error)) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
      }
      /* A copy of the exact size, so that a sanitizer detects a read of one byte too many. */
      cleanup_free uint8_t *exact = xmemdup(text, size);
      LLVMFuzzerTestOneInput(exact, size);
      inputs++;
    }
    closedir(folder);
  }

  printf("%zu inputs replayed\n", inputs);
  return inputs ? 0 : 1;
}
