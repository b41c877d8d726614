/* The instructions around a fault: in a code object that clang-19 compiles for gfx942, with output
 * that was written after the sources of ROCdebug-agent. No GPU faulted. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/lease/fault.h"
#include "common/base/file.h"
#include "common/code/disassemble.h"
#include "common/program/command.h"

#define BASE 0x7fd4f1000000u
#define OBJECT_FILE "memory___4711_offset_0x7fd400001000_size_9000"

static char folder[64];

static void folder_begin(void) {
  strcpy(folder, "/tmp/wavetune-test-XXXXXX");
  cr_assert_not_null(mkdtemp(folder));
}

static void folder_end(void) {
  struct error error;
  cr_assert(folder_remove(folder, &error), "%s", error.message);
}
TestSuite(fault_code, .init = folder_begin, .fini = folder_end);

/* What the agent prints of a wave that stopped at `pc`, after a wave that did not. */
static char *printed_of(uint64_t pc) {
  return xasprintf(
      "--------------------------------------------------------\n"
      "wave_1: pc=0x10 (kernel_code_entry=0x7fd4f1001900 <copy>) (running)\n\n"
      "system registers:\n            m0: 00000000\n\n"
      "Disassembly for function other:\n    code object: file:///other.co\n    loaded at: "
      "[0x0-0x20]\n"
      "    0x10 <+0>:    s_nop 0\n\nEnd of disassembly.\n\n"
      "--------------------------------------------------------\n"
      "wave_2: pc=0x%" PRIx64 " (kernel_code_entry=0x7fd4f1001900 <copy>) (stopped, reason: "
      "MEMORY_VIOLATION)\n\n"
      "Disassembly for function copy:\n"
      "    code object: memory://4711#offset=0x7fd400001000&size=9000\n"
      "    loaded at: [0x0x%" PRIx64 "-0x0x%" PRIx64 "]\n => 0x%" PRIx64 " <+32>:    s_endpgm\n\n"
      "End of disassembly.\n",
      pc, (uint64_t)BASE, (uint64_t)BASE + 0x4000, pc);
}

/* Compiles a kernel into the folder, as the agent would save it; its disassembly, or NULL where the
 * tools are not here. */
static char *object_save(void) {
  struct error error;
  cleanup_free char *clang = NULL, *bytes = NULL;
  char *text = NULL;
  size_t size;
  if (!program_find("clang-19", &clang, &error))
    return NULL;
  cleanup_free char *source = xasprintf("%s/copy.hip", folder),
                    *object = xasprintf("%s/" OBJECT_FILE, folder);
  static const char kernel[] =
      "extern \"C\" __attribute__((global)) void copy(const float *x, float *y) {\n"
      "  unsigned i = __builtin_amdgcn_workitem_id_x();\n"
      "  y[i] = x[i];\n}\n";
  cr_assert(file_write_atomically(source, kernel, strlen(kernel), 0600, &error), "%s",
            error.message);
  cleanup_free char *command = xasprintf("%s -x hip --cuda-device-only --offload-arch=gfx942 "
                                         "-nogpulib -nogpuinc -O2 --no-gpu-bundle-output "
                                         "-fuse-cuid=none %s -o '%s'",
                                         clang, source, object);
  cr_assert_eq(system(command), 0, "%s", command);
  cr_assert(file_read(object, 1 << 24, &bytes, &size, &error), "%s", error.message);
  return disassemble(bytes, size, &text, &error) ? text : NULL;
}

/* Where the instruction with this name is in a disassembly. */
static uint64_t address_of(const char *text, const char *name) {
  struct isa_instruction instruction;
  for (const char *line = text; line; line = strchr(line, '\n'), line = line ? line + 1 : NULL) {
    if (isa_decode(line, &instruction) && strncmp(instruction.name, name, strlen(name)) == 0)
      return instruction.address;
  }
  die("no %s", name);
}

Test(fault_code, the_saved_object_is_disassembled_around_the_pc) {
  cleanup_free char *text = object_save();
  if (!text)
    cr_skip_test("clang-19 or llvm-objdump-19 is not here");
  cleanup_free char *printed = printed_of(BASE + address_of(text, "s_endpgm"));
  cleanup_free char *sentence = fault_code_keep(printed, folder);
  cr_expect(strstr(sentence, "it had reached `s_endpgm` (copy+0x"), "%s", sentence);
  cr_expect(strstr(sentence, "), after `global_store_dword v"), "%s", sentence);

  struct error error;
  size_t size;
  cleanup_free char *window = NULL, *path = xasprintf("%s/disassembly.txt", folder);
  cr_assert(file_read(path, 1 << 16, &window, &size, &error), "%s", error.message);
  cr_expect(string_starts(window, "copy:\n    +0x0 "), "%s", window);
  cr_expect(strstr(window, "global_load_dword v"), "%s", window);
  const char *arrow = strstr(window, " => +0x");
  cr_assert_not_null(arrow, "%s", window);
  cr_expect(strstr(arrow, " s_endpgm\n"), "%s", window);
  cr_expect_null(strstr(window, "//"), "%s", window);
}

Test(fault_code, a_missing_disassembler_is_reported) {
  cleanup_free char *text = object_save();
  if (!text)
    cr_skip_test("clang-19 or llvm-objdump-19 is not here");
  if (access("/opt/rocm/llvm/bin/llvm-objdump", X_OK) == 0)
    cr_skip_test("ROCm is installed here");
  cleanup_free char *printed = printed_of(BASE + address_of(text, "s_endpgm"));
  setenv("PATH", "/nonexistent", 1);
  cleanup_free char *sentence = fault_code_keep(printed, folder);
  cr_expect(string_starts(sentence,
                          "not disassembled: there is no disassembler for AMD GPU code; install "),
            "%s", sentence);
}

Test(fault_code, missing_parts_of_the_output_are_reported) {
  static const struct {
    const char *printed, *said;
  } cases[] = {
      {"", "not disassembled: the debug agent names no stopped wave"},
      {"wave_1: pc= (stopped, reason: TRAP)\n", "names no stopped wave"},
      {"wave_1: pc=0x40 (stopped, reason: TRAP)\n", "does not say which code object pc 0x40 is in"},
      {"wave_1: pc=0x40 (stopped, reason: TRAP)\nwave_2: pc=0x40 (running)\n    code object: "
       "file:///a\n"
       "    loaded at: [0x0-0x80]\n",
       "does not say which code object"},
      {"wave_1: pc=0x40 (stopped, reason: TRAP)\n    code object: file:///a\n    loaded at: "
       "[0x80-0x90]\n",
       "does not say which code object"},
      {"wave_1: pc=0x40 (stopped, reason: TRAP)\n    code object: file:///../../etc/passwd\n    "
       "loaded at: "
       "[0x0-0x90]\n",
       "file____.._.._etc_passwd"},
      {"wave_1: pc=0x40 (stopped, reason: TRAP)\n    code object: ..\n    loaded at: [0x0-0x90]\n",
       "not disassembled"},
  };
  for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
    cleanup_free char *sentence = fault_code_keep(cases[i].printed, folder);
    cr_expect(strstr(sentence, cases[i].said), "%zu: %s", i, sentence);
  }
}

#define LINE(address, instruction) "\t" instruction "    // " address ": BF800000\n"

Test(fault_code, a_window_stays_in_its_function_and_is_bounded) {
  char text[8192] =
      "0000000000000000 <before>:\n" LINE("000000000000", "global_load_dword v0, v[1:2], off");
  strcat(text, "0000000000000100 <f>:\n");
  for (int i = 0; i < 60; i++)
    sprintf(text + strlen(text), "\ts_nop %d    // %012X: BF800000\n", i, 0x100 + 4 * i);
  strcat(text, "0000000000000200 <after>:\n" LINE("000000000200", "s_endpgm"));
  cleanup_free char *window = NULL, *sentence = NULL;
  struct error error = {0};
  cr_assert(fault_code_window(text, 0x100 + 4 * 55, &window, &sentence, &error), "%s",
            error.message);
  cr_expect_str_eq(sentence, "it had reached `s_nop 55` (f+0xdc), after no access to memory");
  cr_expect(string_starts(window, "f:\n    +0x5c     s_nop 23\n"), "%s", window);
  cr_expect(strstr(window, " => +0xdc     s_nop 55\n    +0xe0     s_nop 56\n"), "%s", window);
  cr_expect_null(strstr(window, "s_endpgm"), "%s", window);

  cleanup_free char *none = NULL, *nothing = NULL;
  cr_expect_not(fault_code_window(text, 0x102, &none, &nothing, &error));
  cr_expect(strstr(error.message, "has no instruction at 0x102"), "%s", error.message);
}
