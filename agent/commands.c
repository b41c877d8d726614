/* How commands end. */
#include "agent/commands.h"

#include "common/base/log.h"

int command_failed(const char *command, enum exit_code code, const struct error *error) {
  bool has_pointer = error->pointer[0] != '\0';
  if (log_format_now() == LOG_FORMAT_JSON) {
    log_error("agent: %s: %s pointer=%s", command, error->message,
              has_pointer ? error->pointer : NULL);
    return code;
  }
  fprintf(stderr, "wavetune-agent %s: %s%s%s%s\n", command, error->message,
          has_pointer ? " (at " : "", error->pointer, has_pointer ? ")" : "");
  return code;
}
