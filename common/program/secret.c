/* Secrets in the environment, in arguments and in memory. Memory and threads: see the header. */
#include "common/program/secret.h"

#include <sys/prctl.h>

/* The memory is written by the kernel before main() runs, and is writable. */
static void text_overwrite(const char *text) { memset((char *)(uintptr_t)text, 'x', strlen(text)); }

char *environment_take(const char *name) {
  const char *value = getenv(name);
  char *taken = value ? xstrdup(value) : NULL;
  size_t length = strlen(name);
  for (size_t i = 0; environ[i]; i++) { /* a name may be there twice */
    if (strncmp(environ[i], name, length) == 0 && environ[i][length] == '=')
      text_overwrite(environ[i] + length + 1);
  }
  unsetenv(name);
  return taken;
}

void argument_hide(const char *text) { text_overwrite(text); }

void process_hide(void) {
  const char *dumpable = getenv("WAVETUNE_DUMPABLE");
  if (!string_equal(dumpable, "1"))
    prctl(PR_SET_DUMPABLE, 0);
}
