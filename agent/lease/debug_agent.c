/* Finding ROCdebug-agent and reading its words. Memory and threads: see the header. */
#include "agent/lease/debug_agent.h"

#define REASON_MAX 64
#define FUNCTION_MAX 100
#define ERROR_MAX 160

bool debug_agent_find(char **ret_library) {
  static const char *const places[] = {
      "/opt/rocm/lib/librocm-debug-agent.so.2",
      "/opt/rocm/lib64/librocm-debug-agent.so.2",
      "/usr/lib/x86_64-linux-gnu/librocm-debug-agent.so.2",
  };
  const char *given = getenv("WAVETUNE_DEBUG_AGENT");
  if (given && *given) {
    *ret_library = xstrdup(given);
    return access(given, R_OK) == 0;
  }
  for (size_t i = 0; i < ARRAY_LENGTH(places); i++) {
    if (access(places[i], R_OK) == 0) {
      *ret_library = xstrdup(places[i]);
      return true;
    }
  }
  return false;
}

char **debug_agent_environment(const char *library, const char *folder) {
  char **environment = xcalloc(7, sizeof *environment);
  environment[0] = xasprintf("HSA_TOOLS_LIB=%s", library);
  environment[1] = xstrdup("HSA_ENABLE_DEBUG=1");
  environment[2] =
      xasprintf("ROCM_DEBUG_AGENT_OPTIONS=--all --output=%s/debug-agent.txt --save-code-objects=%s",
                folder, folder);
  /* What was compiled before must not stand in for what is loaded now. */
  environment[3] = xstrdup("AMD_COMGR_CACHE=0");
  /* An allocation is not a part of a larger one, in which a write behind its end would stay unseen.
   * Its companion in AMD's guide, PYTORCH_NO_HIP_MEMORY_CACHING, does the same for PyTorch's
   * allocator, which no worker has. */
  environment[4] = xstrdup("HSA_DISABLE_FRAGMENT_ALLOCATOR=1");
  environment[5] = xasprintf("WAVETUNE_WORKER_WRITES=%s", folder);
  return environment;
}

/* What follows `before` in the text, up to a character of `ends`; NULL when it is not there. */
static char *text_after(const char *text, const char *before, const char *ends, size_t length_max) {
  const char *at = strstr(text, before);
  if (!at)
    return NULL;
  at += strlen(before);
  size_t length = strcspn(at, ends);
  return length ? xstrndup(at, length < length_max ? length : length_max) : NULL;
}

char *debug_agent_summary(const char *text) {
  static const char stopped[] = "(stopped, reason: ";
  cleanup_free char *queue = text_after(text, "Queue error (", ")\n", ERROR_MAX);
  cleanup_free char *function = NULL, *reason = NULL, *pc = NULL;
  size_t n_faulted = 0;
  for (const char *line = text; line; line = strchr(line, '\n'), line = line ? line + 1 : NULL) {
    size_t length = strcspn(line, "\n");
    const char *found =
        string_starts(line, "wave_") ? memmem(line, length, stopped, strlen(stopped)) : NULL;
    if (!found)
      continue;
    n_faulted++;
    if (!reason) {
      size_t reason_length = strcspn(found + strlen(stopped), ")\n");
      reason = xstrndup(found + strlen(stopped),
                        reason_length < REASON_MAX ? reason_length : REASON_MAX);
      pc = text_after(line, "pc=", " \n", REASON_MAX);
      /* Up to the next wave: with --all, waves that run have disassemblies too. */
      const char *next = strstr(line, "\nwave_");
      cleanup_free char *wave = next ? xstrndup(line, (size_t)(next - line)) : xstrdup(line);
      function = text_after(wave, "Disassembly for function ", ":\n", FUNCTION_MAX);
    }
  }
  if (!queue && !n_faulted)
    return NULL;
  if (!n_faulted)
    return xasprintf("queue error %s", queue);
  return xasprintf("%zu wave%s stopped by %s, the first at pc %s%s%s%s%s", n_faulted,
                   n_faulted > 1 ? "s" : "", reason, pc ? pc : "unknown", function ? " in " : "",
                   function ? function : "", queue ? "; queue error " : "", queue ? queue : "");
}
