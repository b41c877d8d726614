/* Disassembly: the tool that is run, its confinement, and its errors. */
#include <criterion/criterion.h>

#include "common/base/file.h"
#include "common/code/disassemble.h"
#include "common/program/sandbox.h"

/* The part of an ELF header that disassemble checks before it runs a tool. */
static void elf_header(uint8_t bytes[64], uint16_t machine) {
  memset(bytes, 0, 64);
  memcpy(bytes,
         "\x7f"
         "ELF\x02\x01\x01",
         7);
  bytes[18] = (uint8_t)machine;
}
#define MACHINE_AMDGPU 224
#define MACHINE_CUDA 190

/* A folder with a program that runs `script`. */
struct tool {
  char folder[40];
  char *path;
};

static void tool_add(struct tool *tool, const char *name, const char *script) {
  struct error error;
  free(tool->path);
  tool->path = xasprintf("%s/%s", tool->folder, name);
  cleanup_free char *text = xasprintf("#!/bin/sh\n%s\n", script);
  cleanup_free char *parent = xstrndup(tool->path, (size_t)(strrchr(tool->path, '/') - tool->path));
  cr_assert(folder_make(parent, 0755, &error), "%s", error.message);
  cr_assert(file_write_atomically(tool->path, text, strlen(text), 0755, &error), "%s",
            error.message);
}

static struct tool tool_make(const char *name, const char *script) {
  struct tool tool = {.folder = "/tmp/wavetune-test-asm-XXXXXX"};
  cr_assert_not_null(mkdtemp(tool.folder));
  tool_add(&tool, name, script);
  return tool;
}

static void tool_release(struct tool *tool) {
  struct error error;
  cr_assert(folder_remove(tool->folder, &error), "%s", error.message);
  free(tool->path);
}
#define cleanup_tool __attribute__((cleanup(tool_release)))

static char *disassembly_of(uint16_t machine) {
  uint8_t bytes[64];
  char *text = NULL;
  struct error error;
  elf_header(bytes, machine);
  cr_assert(disassemble(bytes, sizeof bytes, &text, &error), "%s", error.message);
  return text;
}

static void assert_refusal(uint16_t machine, const char *said) {
  uint8_t bytes[64];
  char *text = NULL;
  struct error error;
  elf_header(bytes, machine);
  cr_assert(!disassemble(bytes, sizeof bytes, &text, &error));
  cr_assert(strstr(error.message, said), "%s", error.message);
}

Test(disassemble, refuses_other_files_than_code_objects) {
  char *text = NULL;
  struct error error;
  cr_assert(!disassemble("#!/bin/sh", 9, &text, &error));
  cr_assert(strstr(error.message, "no compiled GPU code"), "%s", error.message);
  cr_assert(!disassemble("", 0, &text, &error));
}

Test(disassemble, runs_the_tool_that_the_variable_names_on_a_copy_of_the_bytes) {
  cleanup_tool struct tool tool = tool_make("any", "echo \"asked $1\"; od -An -tx1 -N4 \"$2\"");
  setenv("WAVETUNE_OBJDUMP", tool.path, 1);
  cleanup_free char *text = disassembly_of(MACHINE_AMDGPU);
  cr_assert_str_eq(text, "asked -d\n 7f 45 4c 46\n");
}

Test(disassemble, gives_the_tool_no_environment_and_no_socket) {
  cleanup_tool struct tool tool =
      tool_make("any", "env | grep -v ^PWD= | grep -v ^_= | grep -v ^SHLVL=");
  setenv("WAVETUNE_OBJDUMP", tool.path, 1);
  setenv("WAVETUNE_TOKEN", "wt_secret", 1);
  cleanup_free char *text = disassembly_of(MACHINE_AMDGPU);
  cr_assert_str_eq(text, "LC_ALL=C\n");
}

Test(disassemble, lets_the_tool_read_only_the_code) {
  if (!sandbox_confines_files())
    cr_skip_test("this kernel does not confine files: %s", sandbox_kind());
  cleanup_tool struct tool tool = tool_make(
      "any", "cat /etc/passwd; echo x >\"$2\" || echo no write; test -r \"$2\" && echo read");
  setenv("WAVETUNE_OBJDUMP", tool.path, 1);
  cleanup_free char *text = disassembly_of(MACHINE_AMDGPU);
  cr_assert_null(strstr(text, "root:"), "%s", text);
  cr_assert(strstr(text, "no write\nread\n"), "%s", text);
}

Test(disassemble, removes_its_folder) {
  cleanup_tool struct tool tool = tool_make("any", "pwd");
  setenv("WAVETUNE_OBJDUMP", tool.path, 1);
  cleanup_free char *text = disassembly_of(MACHINE_AMDGPU);
  text[strcspn(text, "\n")] = '\0';
  cr_assert(strstr(text, "/wavetune-"), "%s", text);
  cr_assert_eq(access(text, F_OK), -1);
}

Test(disassemble, tries_the_newest_llvm_first_and_the_next_one_when_it_fails) {
  cleanup_tool struct tool tool = tool_make("llvm-objdump-19", "echo nineteen");
  tool_add(&tool, "llvm-objdump-21", "echo twenty-one");
  tool_add(&tool, "llvm-objdump", "echo plain");
  unsetenv("WAVETUNE_OBJDUMP");
  setenv("PATH", tool.folder, 1);
  cleanup_free char *newest = disassembly_of(MACHINE_AMDGPU);
  cr_assert_str_eq(newest, "twenty-one\n");
  tool_add(&tool, "llvm-objdump-21", "echo cannot >&2; exit 1");
  cleanup_free char *next = disassembly_of(MACHINE_AMDGPU);
  cr_assert_str_eq(next, "nineteen\n");
}

Test(disassemble, reads_cuda_code_with_the_tool_of_a_triton_package) {
  cleanup_tool struct tool tool = tool_make(
      "lib/python3.99/site-packages/triton/backends/nvidia/bin/nvdisasm", "echo \"nvdisasm $1\"");
  unsetenv("WAVETUNE_NVDISASM");
  setenv("PATH", "/nonexistent", 1);
  setenv("VIRTUAL_ENV", tool.folder, 1);
  cleanup_free char *text = disassembly_of(MACHINE_CUDA);
  cr_assert_str_eq(text, "nvdisasm -c\n");
}

Test(disassemble, runs_cuobjdump_with_sass) {
  cleanup_tool struct tool tool = tool_make("cuobjdump", "echo \"cuobjdump $1\"");
  setenv("WAVETUNE_NVDISASM", tool.path, 1);
  cleanup_free char *text = disassembly_of(MACHINE_CUDA);
  cr_assert_str_eq(text, "cuobjdump -sass\n");
}

Test(disassemble, a_failed_tools_output_is_in_the_error) {
  cleanup_tool struct tool tool = tool_make("any", "echo; echo 'not a code object'; exit 3");
  setenv("WAVETUNE_OBJDUMP", tool.path, 1);
  assert_refusal(MACHINE_AMDGPU, "exited with 3: not a code object");
  tool_add(&tool, "any", "kill -9 $$");
  assert_refusal(MACHINE_AMDGPU, "by signal 9: it printed nothing");
}

Test(disassemble, refuses_a_text_over_the_limit) {
  cleanup_tool struct tool tool = tool_make("any", "yes | head -c 70000000");
  setenv("WAVETUNE_OBJDUMP", tool.path, 1);
  assert_refusal(MACHINE_AMDGPU, "longer than 67108864 bytes");
}

Test(disassemble, states_what_to_install_without_a_tool) {
  if (access("/opt/rocm/llvm/bin/llvm-objdump", X_OK) == 0 ||
      access("/usr/local/cuda/bin/nvdisasm", X_OK) == 0 ||
      access("/usr/local/cuda/bin/cuobjdump", X_OK) == 0)
    cr_skip_test("there is a tool outside of $PATH");
  setenv("PATH", "/nonexistent", 1);
  unsetenv("VIRTUAL_ENV");
  unsetenv("WAVETUNE_OBJDUMP");
  unsetenv("WAVETUNE_NVDISASM");
  assert_refusal(MACHINE_AMDGPU, "install llvm-objdump 19 or later");
  assert_refusal(MACHINE_CUDA, "install nvdisasm");
}

Test(disassemble, refuses_a_variable_that_names_no_program) {
  setenv("WAVETUNE_OBJDUMP", "/nonexistent", 1);
  assert_refusal(MACHINE_AMDGPU, "WAVETUNE_OBJDUMP names /nonexistent, which is no program");
}

Test(disassemble, needs_a_folder_for_the_copy) {
  cleanup_tool struct tool tool = tool_make("any", "echo");
  setenv("WAVETUNE_OBJDUMP", tool.path, 1);
  setenv("TMPDIR", "/nonexistent", 1);
  assert_refusal(MACHINE_AMDGPU, "set TMPDIR");
}

Test(disassemble, reads_a_real_cubin_where_triton_is_installed) {
  if (access(SOURCE_FOLDER "/build/python/bin/python", X_OK) != 0)
    cr_skip_test("there is no Triton in build/python; tests/python-env.sh installs it");
  cleanup_free char *bytes = NULL, *text = NULL;
  size_t size;
  struct error error;
  unsetenv("WAVETUNE_NVDISASM");
  setenv("VIRTUAL_ENV", SOURCE_FOLDER "/build/python", 1);
  cr_assert(file_read(SOURCE_FOLDER "/tests/data/codeobjects/resources_sm_90.cubin", 1 << 20,
                      &bytes, &size, &error));
  cr_assert(disassemble(bytes, size, &text, &error), "%s", error.message);
  cr_assert(strstr(text, "EXIT") && strstr(text, "reversed"), "%.500s", text);
}
