/* Running amd-smi and rocm-smi, and telling from their words why a limit was not set.
 *
 * Neither's exit status can be trusted for that: rocm-smi ends with 0 where it was refused, amd-smi
 * does by version. Memory and threads: see the header. */
#include "agent/node/smi.h"

#include <strings.h>

#include "common/program/command.h"

#define SMI_MS 30000
#define OUTPUT_MAX ((size_t)64 << 10)
#define SAID_MAX 300

struct smi smi_find(void) {
  static const char *const programs[] = {"amd-smi", "rocm-smi"};
  struct smi smi = {0};
  struct error error;
  for (size_t i = 0; i < ARRAY_LENGTH(programs); i++) {
    smi.is_for_each = i == 0;
    if (program_find(programs[i], &smi.path, &error))
      return smi;
  }
  for (size_t i = 0; i < ARRAY_LENGTH(programs); i++) {
    smi = (struct smi){xasprintf("/opt/rocm/bin/%s", programs[i]), i == 0};
    if (access(smi.path, X_OK) == 0)
      return smi;
    free(smi.path);
  }
  return (struct smi){0};
}

void smi_release(struct smi *smi) { free(smi->path); }

/* What it printed, as one line: without frames of "=" and empty lines. */
static char *said(const char *output) {
  char *line = xcalloc(SAID_MAX + 1, 1);
  size_t length = 0;
  for (const char *at = output; *at && length < SAID_MAX;) {
    at += strspn(at, " \t\r\n");
    size_t n = strcspn(at, "\r\n");
    if (n && at[0] != '=') {
      int written =
          snprintf(line + length, SAID_MAX + 1 - length, "%s%.*s", length ? "; " : "", (int)n, at);
      length = length + (size_t)written < SAID_MAX ? length + (size_t)written : SAID_MAX;
    }
    at += n;
  }
  return line;
}

static enum smi_answer smi_run(const struct smi *smi, char *const *arguments, struct error *error) {
  char *const environment[] = {
      (char[]){"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
      (char[]){"LC_ALL=C"}, NULL};
  struct command command = {.arguments = arguments,
                            .environment = environment,
                            .timeout_ms = SMI_MS,
                            .cpu_seconds_max = 60,
                            .memory_bytes_max = (uint64_t)4 << 30,
                            .file_bytes_max = (uint64_t)1 << 20,
                            .output_max = OUTPUT_MAX,
                            .stop_fd = -1};
  struct command_result result;
  if (!command_run(&command, &result, error))
    return SMI_FAILED;
  cleanup_free char *output = result.output, *words = said(output);
  /* amd-smi: AMDSMI_STATUS_NOT_SUPPORTED; rocm-smi: "…, Not supported on the given system". */
  bool is_unsupported =
      strcasestr(output, "NOT_SUPPORTED") || strcasestr(output, "not supported on the");
  if (result.succeeded && !is_unsupported)
    return SMI_DONE;
  error_set(error, "`%s %s` %s: %s", smi->path, arguments[1],
            result.timed_out ? "did not end within 30 s"
            : is_unsupported ? "says"
                             : "failed",
            words[0] ? words : "it said nothing");
  return is_unsupported ? SMI_UNSUPPORTED : SMI_FAILED;
}

enum smi_answer smi_limit_set(const struct smi *smi, const char *pci_address, int clock_mhz,
                              struct error *error) {
  cleanup_free char *clock = xasprintf("%d", clock_mhz), *address = xstrdup(pci_address);
  char *const for_each[] = {
      smi->path, (char[]){"set"}, (char[]){"--gpu"}, address, (char[]){"--perf-determinism"}, clock,
      NULL};
  char *const for_all[] = {smi->path, (char[]){"--setperfdeterminism"}, clock, NULL};
  return smi_run(smi, smi->is_for_each ? for_each : for_all, error);
}

enum smi_answer smi_limit_lift(const struct smi *smi, const char *pci_address,
                               struct error *error) {
  cleanup_free char *address = xstrdup(pci_address);
  char *const for_each[] = {
      smi->path, (char[]){"reset"}, (char[]){"--gpu"}, address, (char[]){"--perf-determinism"},
      NULL};
  char *const for_all[] = {smi->path, (char[]){"--resetperfdeterminism"}, NULL};
  return smi_run(smi, smi->is_for_each ? for_each : for_all, error);
}
