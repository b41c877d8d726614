/* How commands end. */
#include "agent/commands.h"

int command_failed(const char *command, enum exit_code code, const struct error *error) {
  bool has_pointer = error->pointer[0] != '\0';
  fprintf(stderr, "wavetune-agent %s: %s%s%s%s\n", command, error->message, has_pointer ? " (at " : "", error->pointer,
          has_pointer ? ")" : "");
  return code;
}
