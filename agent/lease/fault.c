/* Runs a config that killed its worker once more under ROCdebug-agent, and reads its output and the
 * code objects that it saved. */
#include "agent/lease/fault.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <sys/stat.h>

#include "common/base/file.h"
#include "common/base/log.h"
#include "common/code/disassemble.h"

/* of an executor: a space may be full of configs that fault, for one reason */
#define RERUNS_MAX 8
#define PRINTED_MAX ((size_t)16 << 20)
#define FILES_MAX 1024 /* that a rerun may leave */
#define OBJECT_MAX ((size_t)256 << 20)
#define URI_MAX 1024
#define INSTRUCTION_MAX 160 /* characters in the sentence */
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

  list_foreach (place, places) {
    if (access(*place, R_OK) == 0) {
      *ret_library = xstrdup(*place);
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

  /* Code that was compiled before must not be taken for what is loaded now. */
  environment[3] = xstrdup("AMD_COMGR_CACHE=0");

  /* No allocation is a part of a larger one, in which a write behind its end causes no fault. Its
   * companion in AMD's guide, PYTORCH_NO_HIP_MEMORY_CACHING, does the same for PyTorch's
   * allocator, which no worker has. */
  environment[4] = xstrdup("HSA_DISABLE_FRAGMENT_ALLOCATOR=1");
  environment[5] = xasprintf("WAVETUNE_WORKER_WRITES=%s", folder);

  return environment;
}

/* The text behind `before` in the first `size` bytes; NULL: `before` is not in them. */
static const char *behind(const char *text, size_t size, const char *before) {
  const char *at = memmem(text, size, before, strlen(before));
  return at ? at + strlen(before) : NULL;
}

/* A copy of the text behind `before`, up to a character of `ends`; NULL: there is none, or it is
 * empty. */
static char *word_behind(const char *text, size_t size, const char *before, const char *ends,
                         size_t length_max) {
  const char *at = behind(text, size, before);
  size_t length = at ? strcspn(at, ends) : 0;
  return length ? xstrndup(at, length < length_max ? length : length_max) : NULL;
}

static const char *line_next(const char *line) {
  const char *end = strchr(line, '\n');
  return end ? end + 1 : NULL;
}

/* The line of the first wave from `line` on that stopped; NULL: none. */
static const char *wave_stopped(const char *line) {
  while (line &&
         !(string_starts(line, "wave_") && behind(line, strcspn(line, "\n"), "(stopped, reason: ")))
    line = line_next(line);
  return line;
}

/* The size of a wave's lines, up to the next wave. With --all, running waves are printed too. */
static size_t wave_size(const char *wave) {
  const char *next = strstr(wave, "\nwave_");
  return next ? (size_t)(next - wave) : strlen(wave);
}

char *debug_agent_summary(const char *text) {
  cleanup_free char *queue = word_behind(text, strlen(text), "Queue error (", ")\n", ERROR_MAX);
  const char *first = wave_stopped(text);
  size_t n_stopped = 0;

  for (const char *wave = first; wave; wave = wave_stopped(line_next(wave)))
    n_stopped++;
  if (!first)
    return queue ? xasprintf("queue error %s", queue) : NULL;

  size_t size = wave_size(first);
  cleanup_free char *reason = word_behind(first, size, "(stopped, reason: ", ")\n", REASON_MAX),
                    *pc = word_behind(first, size, "pc=", " \n", REASON_MAX),
                    *function =
                        word_behind(first, size, "Disassembly for function ", ":\n", FUNCTION_MAX);
  return xasprintf("%zu wave%s stopped by %s, the first at pc %s%s%s%s%s", n_stopped,
                   n_stopped > 1 ? "s" : "", reason ? reason : "", pc ? pc : "unknown",
                   function ? " in " : "", function ? function : "", queue ? "; queue error " : "",
                   queue ? queue : "");
}

/* "0x7fd4f100d0e8", of which some versions print the 0x twice. */
static bool take_address(const char *text, uint64_t *ret) {
  while (string_starts(text, "0x"))
    text += 2;
  char *end;
  errno = 0;
  *ret = strtoull(text, &end, 16);
  return end != text && errno == 0;
}

/* Finds where the first wave stopped: *ret_file, the caller's, is the file of the saved code
 * object, *ret_address the pc's address in it. */
static bool fault_place_find(const char *printed, char **ret_file, uint64_t *ret_address,
                             struct error *error) {
  const char *wave = wave_stopped(printed), *pc = NULL;
  uint64_t at, base;
  while (wave && !(pc = behind(wave, strcspn(wave, "\n"), "pc=")))
    wave = wave_stopped(line_next(wave));
  if (!pc || !take_address(pc, &at))
    return error_set(error, "the debug agent names no stopped wave with its pc");

  size_t size = wave_size(wave);
  const char *uri = behind(wave, size, "    code object: "),
             *loaded = behind(wave, size, "    loaded at: [");
  size_t uri_length = uri ? strcspn(uri, "\n") : 0;
  if (!uri_length || uri_length > URI_MAX || !loaded || !take_address(loaded, &base) || base > at)
    return error_set(error, "the debug agent does not say which code object pc 0x%" PRIx64 " is in",
                     at);

  char *file = *ret_file = xstrndup(uri, uri_length);
  for (char *c = file; *c; c++)
    *c = strchr(":/#?&=", *c) ? '_' : *c;
  *ret_address = at - base;
  return true;
}

/* "global_store_dword v[0:1], v2, off", without the comment after it. */
static char *instruction_text(const struct isa_instruction *instruction) {
  size_t length = strcspn(instruction->name, "\n");
  const char *comment = memmem(instruction->name, length, "//", 2);
  length = comment ? (size_t)(comment - instruction->name) : length;
  while (length && (instruction->name[length - 1] == ' ' || instruction->name[length - 1] == '\t'))
    length--;
  return name_plain(instruction->name, length < INSTRUCTION_MAX ? length : INSTRUCTION_MAX);
}

bool fault_code_window(const char *disassembly, uint64_t address, char **ret_window,
                       char **ret_sentence, struct error *error) {
  /* `passed` is a ring of the last instructions; `access` may be older than these. */
  struct isa_instruction passed[FAULT_CODE_BEFORE], instruction, access = {0};
  size_t n = 0, length = 0;
  const char *function = NULL, *label, *line = disassembly;
  uint64_t begin = 0, label_address;

  for (; line; line = line_next(line)) {
    if (isa_decode_label(line, &label, &length, &label_address)) {
      function = label;
      begin = label_address;
      n = 0;
      access.name = NULL;
    } else if (isa_decode(line, &instruction)) {
      if (instruction.address == address)
        break;
      passed[n++ % FAULT_CODE_BEFORE] = instruction;
      if (instruction.class == ISA_GLOBAL_LOAD || instruction.class == ISA_GLOBAL_STORE ||
          instruction.class == ISA_ATOMIC || instruction.class == ISA_SCRATCH_LOAD ||
          instruction.class == ISA_SCRATCH_STORE)
        access = instruction;
    }
  }

  if (!line || !function)
    return error_set(error, "its disassembly has no instruction at 0x%" PRIx64, address);

  cleanup_free char *name = name_plain(function, strcspn(function, ">\n")),
                    *here = instruction_text(&instruction);
  char *window = NULL;
  size_t size;
  FILE *out = open_memstream(&window, &size);
  ALWAYS(out != NULL);
  fprintf(out, "%s:\n", name);

  for (size_t i = n > FAULT_CODE_BEFORE ? n - FAULT_CODE_BEFORE : 0; i < n; i++) {
    cleanup_free char *text = instruction_text(&passed[i % FAULT_CODE_BEFORE]);
    fprintf(out, "    +0x%-6" PRIx64 " %s\n", passed[i % FAULT_CODE_BEFORE].address - begin, text);
  }

  size_t n_after = 0;
  for (; line && n_after < FAULT_CODE_AFTER &&
         !isa_decode_label(line, &label, &length, &label_address);
       line = line_next(line)) {
    struct isa_instruction next;
    if (!isa_decode(line, &next))
      continue;
    cleanup_free char *text = instruction_text(&next);
    fprintf(out, "%s+0x%-6" PRIx64 " %s\n", n_after++ ? "    " : " => ", next.address - begin,
            text);
  }

  fclose(out);

  cleanup_free char *accessed = access.name ? instruction_text(&access) : NULL;
  *ret_sentence =
      accessed ? xasprintf("it had reached `%s` (%s+0x%" PRIx64 "), after `%s` (+0x%" PRIx64 ")",
                           here, name, address - begin, accessed, access.address - begin)
               : xasprintf("it had reached `%s` (%s+0x%" PRIx64 "), after no access to memory",
                           here, name, address - begin);
  *ret_window = window;
  return true;
}

char *fault_code_keep(const char *printed, const char *folder) {
  cleanup_free char *file = NULL, *bytes = NULL, *text = NULL, *window = NULL, *sentence = NULL;
  uint64_t address;
  size_t size;
  struct error error;
  if (!fault_place_find(printed, &file, &address, &error))
    return xasprintf("not disassembled: %s", error.message);

  cleanup_free char *path = xasprintf("%s/%s", folder, file),
                    *kept = xasprintf("%s/disassembly.txt", folder);
  return file_read(path, OBJECT_MAX, &bytes, &size, &error) &&
                 disassemble(bytes, size, &text, &error) &&
                 fault_code_window(text, address, &window, &sentence, &error) &&
                 file_write_atomically(kept, window, strlen(window), 0600, &error)
             ? TAKE(sentence)
             : xasprintf("not disassembled: %s", error.message);
}

/* Runs the config until the worker dies or answers. False: the request could not be sent. */
static bool config_run(struct execution *execution, struct lease_config *config,
                       struct worker_client *worker, int reference, struct error *error) {
  struct worker_end end;
  cleanup_json json_t *open = open_request(execution), *opened = NULL;
  if (!worker_request_with(worker, open, reference, error))
    return false;
  if (worker_next(worker, execution_stopped, execution, NULL, &opened, &end) != WORKER_ANSWER ||
      !json_is_true(json_object_get(opened, "opened")))
    return true;

  static const struct race_terms once = {.rounds_min = 1, .rounds_max = 1};
  struct race_batch alone = {.configs = &config, .n = 1, .terms = &once, .is_serial = true};
  cleanup_json json_t *measure = measure_request(&alone, 0, 0);
  if (!worker_request_with(worker, measure, -1, error))
    return false;

  for (bool goes_on = true; goes_on;) {
    cleanup_json json_t *answer = NULL;
    goes_on =
        worker_next(worker, execution_stopped, execution, NULL, &answer, &end) == WORKER_ANSWER &&
        !json_is_true(json_object_get(answer, "done"));
  }
  return true;
}

/* Moves the files that another user wrote in `from` to `folder`, except links and large files. */
static bool files_take(const char *from, const char *folder, struct error *error) {
  struct dirent *entry;
  if (lchown(from, geteuid(), getegid()) < 0) /* no other user can change it now */
    return error_set(error, "cannot take over %s: %s", from, strerror(errno));

  DIR *entries = opendir(from);
  for (int n = 0; entries && n < FILES_MAX && (entry = readdir(entries)); n++) {
    cleanup_free char *path = xasprintf("%s/%s", from, entry->d_name), *bytes = NULL;
    cleanup_free char *kept = xasprintf("%s/%s", folder, entry->d_name);
    struct error reason;
    struct stat status;
    size_t size;
    if (lstat(path, &status) < 0 || !S_ISREG(status.st_mode))
      continue;
    if (!file_read(path, PRINTED_MAX, &bytes, &size, &reason) ||
        !file_write_unsynced(kept, bytes, size, 0600, &reason))
      log_warning("lease: a file of the debug agent is lost: %s", reason.message);
  }

  if (entries)
    closedir(entries);
  return folder_remove(from, error);
}

/* Runs the config; the debug agent's files are in `folder` afterwards. A worker of another user
 * writes to a folder that it owns. */
static bool rerun_into(struct execution *execution, struct lease_config *config,
                       const char *library, const char *folder, struct error *error) {
  struct executor *executor = execution->executor;
  const struct custody *custody = spawner_custody(executor->spawner);
  struct worker_client *worker, *reference = NULL;
  cleanup_free char *theirs = NULL;
  cleanup_fd int socket = -1;
  if (custody->has_user && !folder_make_temporary(&theirs, error))
    return false;
  if (theirs && !custody_give(custody, theirs, error)) {
    struct error left;
    if (!folder_remove(theirs, &left))
      log_warning("lease: %s", left.message);
    return false;
  }

  char **environment = debug_agent_environment(library, theirs ? theirs : folder);
  bool started =
      worker_start_under(executor->spawner, environment, executor->limits, &worker, error);
  for (size_t i = 0; environment[i]; i++)
    free(environment[i]);
  free(environment);

  bool ran = started && reference_start(execution, &reference, &socket, error) &&
             config_run(execution, config, worker, socket, error);
  if (started)
    worker_free(worker);
  DISCARD(reference, worker_abandon);

  struct error ignored;
  bool is_taken = !theirs || files_take(theirs, folder, ran ? error : &ignored);
  return ran && is_taken;
}

char *fault_rerun(struct execution *execution, struct lease_config *config) {
  struct executor *executor = execution->executor;
  char hash[DIGEST_TEXT_SIZE];
  cleanup_free char *library = NULL, *printed = NULL;
  struct error error;
  size_t size;
  if (!executor->faults || executor->n_reruns >= RERUNS_MAX || !debug_agent_find(&library))
    return NULL;

  executor->n_reruns++;
  digest_format(&execution->lease->kernel->hash, hash);
  cleanup_free char *folder = xasprintf("%s/%.12s-%llu", executor->faults, hash + strlen("sha256:"),
                                        (unsigned long long)config->ordinal);
  if (!folder_remove(folder, &error) || !folder_make(folder, 0700, &error))
    return xasprintf("no folder for the debug agent: %s", error.message);
  if (!rerun_into(execution, config, library, folder, &error))
    return xstrdup(error.message);

  cleanup_free char *path = xasprintf("%s/debug-agent.txt", folder);
  cleanup_free char *summary =
      file_read(path, PRINTED_MAX, &printed, &size, &error) ? debug_agent_summary(printed) : NULL;
  if (!summary)
    return xasprintf("the debug agent reported no fault (%s)", folder);

  cleanup_free char *code = fault_code_keep(printed, folder);
  return xasprintf("%s; %s (%s)", summary, code, folder);
}
