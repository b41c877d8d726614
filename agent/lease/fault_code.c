/* From ROCdebug-agent's words and the code objects that it saved to a few lines of assembly. What
 * it prints and how it names files: "ROCR Debug Agent user guide" and its sources.
 *
 * Memory and threads: see the header. */
#include "agent/lease/fault_code.h"

#include <errno.h>
#include <inttypes.h>

#include "common/base/file.h"
#include "common/base/names.h"
#include "common/code/disassemble.h"
#include "common/code/isa_decode.h"

#define OBJECT_MAX ((size_t)256 << 20)
#define URI_MAX 1024
#define TEXT_MAX 160 /* of an instruction in the sentence */

/* What follows `before` within `size` bytes; NULL: not there. */
static const char *behind(const char *text, size_t size, const char *before) {
  const char *at = memmem(text, size, before, strlen(before));
  return at ? at + strlen(before) : NULL;
}

static const char *line_next(const char *line) {
  const char *end = strchr(line, '\n');
  return end ? end + 1 : NULL;
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

bool fault_place_find(const char *printed, struct fault_place *ret_place, struct error *error) {
  const char *wave = printed, *pc = NULL, *uri = NULL, *loaded = NULL;
  uint64_t at, base;
  for (; wave; wave = line_next(wave)) {
    size_t length = strcspn(wave, "\n");
    pc = string_starts(wave, "wave_") && behind(wave, length, "(stopped, reason: ")
             ? behind(wave, length, "pc=")
             : NULL;
    if (pc)
      break;
  }
  if (!pc || !take_address(pc, &at))
    return error_set(error, "the debug agent names no wave that stopped and its pc");

  /* Until the next wave begins. */
  for (const char *line = line_next(wave); line && !string_starts(line, "wave_");
       line = line_next(line)) {
    size_t length = strcspn(line, "\n");
    uri = uri ? uri : behind(line, length, "    code object: ");
    loaded = loaded ? loaded : behind(line, length, "    loaded at: [");
  }
  size_t uri_length = uri ? strcspn(uri, "\n") : 0;
  if (!uri_length || uri_length > URI_MAX || !loaded || !take_address(loaded, &base) || base > at)
    return error_set(error, "the debug agent does not say which code object pc 0x%" PRIx64 " is in",
                     at);

  char *file = xstrndup(uri, uri_length);
  for (char *c = file; *c; c++)
    *c = strchr(":/#?&=", *c) ? '_' : *c;
  *ret_place = (struct fault_place){file, at - base};
  return true;
}

static bool is_access(const struct isa_instruction *instruction) {
  switch (instruction->class) {
  case ISA_GLOBAL_LOAD:
  case ISA_GLOBAL_STORE:
  case ISA_ATOMIC:
  case ISA_SCRATCH_LOAD:
  case ISA_SCRATCH_STORE:
    return true;
  default:
    return false;
  }
}

/* "global_store_dword v[0:1], v2, off", without what follows as a comment. */
static char *instruction_text(const struct isa_instruction *instruction) {
  size_t length = strcspn(instruction->name, "\n");
  const char *comment = memmem(instruction->name, length, "//", 2);
  length = comment ? (size_t)(comment - instruction->name) : length;
  while (length && (instruction->name[length - 1] == ' ' || instruction->name[length - 1] == '\t'))
    length--;
  return name_plain(instruction->name, length < TEXT_MAX ? length : TEXT_MAX);
}

bool fault_code_window(const char *disassembly, uint64_t address, char **ret_window,
                       char **ret_sentence, struct error *error) {
  /* The last instructions that were passed, in a ring; an access that is longer ago is kept beside
   * it. */
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
      access = is_access(&instruction) ? instruction : access;
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
      accessed ? xasprintf("it had come to `%s` (%s+0x%" PRIx64 "), behind `%s` (+0x%" PRIx64 ")",
                           here, name, address - begin, accessed, access.address - begin)
               : xasprintf("it had come to `%s` (%s+0x%" PRIx64 "), behind no access to memory",
                           here, name, address - begin);
  *ret_window = window;
  return true;
}

static bool window_keep(const char *printed, const char *folder, char **ret_sentence,
                        struct error *error) {
  struct fault_place place;
  size_t size;
  if (!fault_place_find(printed, &place, error))
    return false;
  cleanup_free char *file = place.file, *path = xasprintf("%s/%s", folder, file), *bytes = NULL,
                    *text = NULL;
  cleanup_free char *window = NULL, *sentence = NULL,
                    *kept = xasprintf("%s/disassembly.txt", folder);
  if (!file_read(path, OBJECT_MAX, &bytes, &size, error) ||
      !disassemble(bytes, size, &text, error) ||
      !fault_code_window(text, place.address, &window, &sentence, error) ||
      !file_write_atomically(kept, window, strlen(window), 0600, error))
    return false;
  *ret_sentence = TAKE(sentence);
  return true;
}

char *fault_code_keep(const char *printed, const char *folder) {
  char *sentence;
  struct error error;
  return window_keep(printed, folder, &sentence, &error)
             ? sentence
             : xasprintf("not disassembled: %s", error.message);
}
