/* Finds the tools of LLVM and CUDA and runs them confined; classifies instructions of AMD GPUs by
 * their names. */
#include "common/code/disassemble.h"

#include <glob.h>
#include <sys/wait.h>

#include "common/base/file.h"
#include "common/program/command.h"

#define TOOLS_MAX 32
#define ELF_MACHINE_AT 18
#define ELF_MACHINE_CUDA 190

/* Paths of programs to try, in order. */
struct tools {
  size_t n;
  char *paths[TOOLS_MAX];
};

static void tools_release(struct tools *tools) {
  for (size_t i = 0; i < tools->n; i++)
    free(tools->paths[i]);
}

/* Takes ownership of `path`. Adds it if it is a program and new. */
static void tools_take(struct tools *tools, char *path) {
  bool is_new = tools->n < TOOLS_MAX && access(path, X_OK) == 0;
  for (size_t i = 0; is_new && i < tools->n; i++)
    is_new = !string_equal(tools->paths[i], path);
  if (is_new)
    tools->paths[tools->n++] = path;
  else
    free(path);
}

/* Adds a program of $PATH or, where the name has a '/', each file that matches. */
static void tools_add(struct tools *tools, const char *name) {
  glob_t found = {0};
  char *path = NULL;
  struct error ignored;
  if (!strchr(name, '/')) {
    if (program_find(name, &path, &ignored))
      tools_take(tools, path);
    return;
  }

  if (glob(name, 0, NULL, &found) == 0)
    for (size_t i = 0; i < found.gl_pathc; i++)
      tools_take(tools, xstrdup(found.gl_pathv[i]));

  globfree(&found);
}

static bool find_tools(bool is_cuda, struct tools *ret_tools, struct error *error) {
  static const char *const cuda_programs[] = {"nvdisasm", "cuobjdump"};
  const char *variable = is_cuda ? "WAVETUNE_NVDISASM" : "WAVETUNE_OBJDUMP";
  const char *chosen = getenv(variable), *environment = getenv("VIRTUAL_ENV");
  if (chosen && *chosen) {
    tools_take(ret_tools, xstrdup(chosen));
    return ret_tools->n == 1 ||
           error_set(error, "%s names %s, which is no program", variable, chosen);
  }

  for (int version = 30; !is_cuda && version >= 19; version--) {
    cleanup_free char *program = xasprintf("llvm-objdump-%d", version);
    tools_add(ret_tools, program);
  }

  if (!is_cuda) {
    tools_add(ret_tools, "llvm-objdump");
    tools_add(ret_tools, "/opt/rocm/llvm/bin/llvm-objdump");
  }

  for (size_t i = 0; is_cuda && i < ARRAY_LENGTH(cuda_programs); i++) {
    const char *program = cuda_programs[i];
    cleanup_free char *in_environment =
        xasprintf("%s/lib/python3*/site-packages/triton/backends/nvidia/bin/%s",
                  environment && *environment ? environment : "/usr/local", program);
    cleanup_free char *in_toolkit = xasprintf("/usr/local/cuda/bin/%s", program);
    cleanup_free char *in_system =
        xasprintf("/usr/local/lib/python3*/*-packages/triton/backends/nvidia/bin/%s", program);
    tools_add(ret_tools, program);
    tools_add(ret_tools, in_environment);
    tools_add(ret_tools, in_toolkit);
    tools_add(ret_tools, in_system);
  }

  if (ret_tools->n)
    return true;
  return is_cuda
             ? error_set(error,
                         "there is no disassembler for CUDA code; install nvdisasm (of the CUDA "
                         "toolkit, or of a Triton package) or name it in WAVETUNE_NVDISASM")
             : error_set(error,
                         "there is no disassembler for AMD GPU code; install llvm-objdump 19 or "
                         "later (Debian: apt install llvm-19) or name it in WAVETUNE_OBJDUMP");
}

/* Runs one tool over the file. */
static bool tool_run(const char *tool, bool is_cuda, const char *folder, char *file,
                     char **ret_text, struct error *error) {
  const char *const readable[] = {"/usr",      "/lib", "/lib64", "/opt/rocm", "/etc/ld.so.cache",
                                  "/dev/null", tool,   folder,   NULL};
  const char *const writable[] = {NULL};
  cleanup_sandbox struct sandbox *sandbox = NULL;
  if (!sandbox_new(&(struct sandbox_rules){readable, writable}, &sandbox, error))
    return false;

  const char *name = strrchr(tool, '/') ? strrchr(tool, '/') + 1 : tool;
  char disassemble_all[] = "-d", no_headers[] = "-c", sass[] = "-sass";
  char *how = !is_cuda ? disassemble_all : string_starts(name, "cuobjdump") ? sass : no_headers;
  cleanup_free char *program = xstrdup(tool);
  char locale[] = "LC_ALL=C";
  char *const environment[] = {locale, NULL};
  char *const arguments[] = {program, how, file, NULL};

  struct command command = {.arguments = arguments,
                            .environment = environment,
                            .folder = folder,
                            .timeout_ms = 60000,
                            .cpu_seconds_max = 60,
                            .memory_bytes_max = (uint64_t)8 << 30,
                            .file_bytes_max = (uint64_t)1 << 20,
                            .output_max = DISASSEMBLY_MAX,
                            .sandbox = sandbox,
                            .stop_fd = -1};

  struct command_result result;
  if (!command_run(&command, &result, error))
    return false;

  cleanup_free char *output = result.output;
  if (strlen(output) == DISASSEMBLY_MAX)
    return error_set(error, "the disassembly is longer than %zu bytes", DISASSEMBLY_MAX);
  if (!result.succeeded) {
    bool exited = WIFEXITED(result.status);
    char *line = output + strspn(output, " \t\r\n"); /* the first non-empty line */
    line[strcspn(line, "\r\n")] = '\0';
    return error_set(error, "%s %s %d: %.300s", tool,
                     exited ? "exited with" : "was killed (its limit is 60 s) by signal",
                     exited ? WEXITSTATUS(result.status) : WTERMSIG(result.status),
                     *line ? line : "it printed nothing");
  }

  *ret_text = TAKE(output);
  return true;
}

bool disassemble(const void *bytes, size_t size, char **ret_text, struct error *error) {
  if (!code_object_is(bytes, size))
    return error_set(
        error, "these %zu bytes are no compiled GPU code, so they cannot be disassembled", size);

  bool is_cuda = ((const uint8_t *)bytes)[ELF_MACHINE_AT] == ELF_MACHINE_CUDA;
  cleanup_by(tools_release) struct tools tools = {0};
  if (!find_tools(is_cuda, &tools, error))
    return false;

  cleanup_free char *folder = NULL;
  if (!folder_make_temporary(&folder, error))
    return error_prefix(error, "disassembling: ");

  cleanup_free char *file = xasprintf("%s/code", folder);
  bool done = false;
  if (file_write_atomically(file, bytes, size, 0600, error))
    for (size_t i = 0; i < tools.n && !done; i++)
      done = tool_run(tools.paths[i], is_cuda, folder, file, ret_text, error);

  struct error ignored; /* a folder that cannot be removed does not change the result */
  (void)!folder_remove(folder, &ignored);
  return done;
}

const int64_t isa_width_bytes[ISA_WIDTHS] = {1, 2, 4, 8, 12, 16};

static bool has_prefix(const struct isa_instruction *instruction, const char *prefix) {
  size_t length = strlen(prefix);
  return instruction->name_length >= length && memcmp(instruction->name, prefix, length) == 0;
}

static bool token_is(const char *token, size_t length, const char *word) {
  return strlen(word) == length && memcmp(token, word, length) == 0;
}

/* Reads the parts of a memory instruction's name from `at` on. Returns whether one of them states
 * the width of an access. */
static bool name_width(struct isa_instruction *instruction, size_t at) {
  static const struct {
    const char *word;
    enum isa_width width;
  } words[] = {
      {"ubyte", ISA_1},    {"sbyte", ISA_1},    {"byte", ISA_1},  {"ushort", ISA_2},
      {"sshort", ISA_2},   {"short", ISA_2},    {"dword", ISA_4}, {"dwordx2", ISA_8},
      {"dwordx3", ISA_12}, {"dwordx4", ISA_16}, {"b8", ISA_1},    {"u8", ISA_1},
      {"i8", ISA_1},       {"b16", ISA_2},      {"u16", ISA_2},   {"i16", ISA_2},
      {"b32", ISA_4},      {"b64", ISA_8},      {"b96", ISA_12},  {"b128", ISA_16},
  };
  bool is_found = false;

  while (at < instruction->name_length) {
    const char *token = instruction->name + at;
    const char *end = memchr(token, '_', instruction->name_length - at);
    size_t length = end ? (size_t)(end - token) : instruction->name_length - at;
    if (token_is(token, length, "lds"))
      instruction->is_to_lds = true;
    if (token_is(token, length, "2addr"))
      instruction->accesses = 2;

    for (size_t i = 0; !is_found && i < ARRAY_LENGTH(words); i++) {
      if (token_is(token, length, words[i].word)) {
        instruction->width = words[i].width;
        is_found = true;
      }
    }
    at += length + 1;
  }

  return is_found;
}

static void classify(struct isa_instruction *instruction) {
  static const struct {
    const char *prefix;
    enum isa_class class;
    int accesses; /* of the width that the name states; 0: it states none */
  } families[] = {
      {"global_load_", ISA_GLOBAL_LOAD, 1},
      {"buffer_load_", ISA_GLOBAL_LOAD, 1},
      {"flat_load_", ISA_GLOBAL_LOAD, 1},
      {"global_store_", ISA_GLOBAL_STORE, 1},
      {"buffer_store_", ISA_GLOBAL_STORE, 1},
      {"flat_store_", ISA_GLOBAL_STORE, 1},
      {"scratch_load_", ISA_SCRATCH_LOAD, 1},
      {"scratch_store_", ISA_SCRATCH_STORE, 1},
      {"ds_read_", ISA_LDS_READ, 1},
      {"ds_load_", ISA_LDS_READ, 1},
      {"ds_read2_", ISA_LDS_READ, 2},
      {"ds_read2st64_", ISA_LDS_READ, 2},
      {"ds_write_", ISA_LDS_WRITE, 1},
      {"ds_store_", ISA_LDS_WRITE, 1},
      {"ds_write2_", ISA_LDS_WRITE, 2},
      {"ds_write2st64_", ISA_LDS_WRITE, 2},
      {"global_atomic_", ISA_ATOMIC, 0},
      {"buffer_atomic_", ISA_ATOMIC, 0},
      {"flat_atomic_", ISA_ATOMIC, 0},
      {"v_mfma_", ISA_MATRIX, 0},
      {"v_smfmac_", ISA_MATRIX, 0},
      {"v_wmma_", ISA_MATRIX, 0},
      {"v_swmmac_", ISA_MATRIX, 0},
      {"v_accvgpr_", ISA_ACCVGPR, 0},
      {"s_waitcnt", ISA_WAIT, 0},
      {"s_wait_", ISA_WAIT, 0},
      {"s_barrier_wait", ISA_OTHER, 0},
      {"s_barrier", ISA_BARRIER, 0},
  };

  size_t i = 0;
  while (i < ARRAY_LENGTH(families) && !has_prefix(instruction, families[i].prefix))
    i++;
  if (i == ARRAY_LENGTH(families))
    return;

  bool is_classified = true;
  if (families[i].accesses) {
    instruction->accesses = families[i].accesses;
    instruction->is_flat = has_prefix(instruction, "flat_");
    is_classified = name_width(instruction, strlen(families[i].prefix));
  }

  if (is_classified)
    instruction->class = families[i].class;
}

static bool operands_have(const char *operands, size_t length, const char *word) {
  return memmem(operands, length, word, strlen(word)) != NULL;
}

/* gfx9 to gfx11: s_waitcnt vmcnt(0) lgkmcnt(1); gfx12: s_wait_loadcnt_dscnt 0x0. */
static void classify_wait(struct isa_instruction *instruction, const char *operands,
                          size_t length) {
  if (has_prefix(instruction, "s_wait_")) {
    bool is_zero = operands_have(operands, length, "0x0");
    instruction->waits_for_loads = is_zero && has_prefix(instruction, "s_wait_loadcnt");
    instruction->waits_for_lds = is_zero && (has_prefix(instruction, "s_wait_dscnt") ||
                                             has_prefix(instruction, "s_wait_loadcnt_dscnt"));
    return;
  }
  instruction->waits_for_loads = operands_have(operands, length, "vmcnt(0)");
  instruction->waits_for_lds = operands_have(operands, length, "lgkmcnt(0)");
}

/* The operand of a branch is the distance in dwords from the next instruction, as an unsigned
 * 16-bit number. */
static void classify_flow(struct isa_instruction *instruction, const char *operands) {
  if (has_prefix(instruction, "s_endpgm") || has_prefix(instruction, "s_setpc_b64")) {
    instruction->flow = ISA_END;
    return;
  }

  bool is_jump = token_is(instruction->name, instruction->name_length, "s_branch");
  if (!is_jump && !has_prefix(instruction, "s_cbranch_"))
    return;

  char *end = NULL;
  long distance = strtol(operands, &end, 10);
  if (end == operands || distance < INT16_MIN || distance > UINT16_MAX) {
    instruction->flow = is_jump ? ISA_END : ISA_NEXT;
    return;
  }

  instruction->flow = is_jump ? ISA_JUMP : ISA_BRANCH;
  instruction->target = instruction->address + 4 + (uint64_t)((int64_t)(int16_t)distance * 4);
}

bool isa_decode(const char *line, struct isa_instruction *ret) {
  size_t length = strcspn(line, "\n");
  const char *comment = memmem(line, length, "//", 2);
  if (line[0] != '\t' || !comment)
    return false;

  struct isa_instruction instruction = {.name = line + 1, .accesses = 1};
  instruction.name_length = strspn(instruction.name, "abcdefghijklmnopqrstuvwxyz0123456789_");

  char *end = NULL;
  instruction.address = strtoull(comment + 2, &end, 16);
  if (!instruction.name_length || end == comment + 2 || *end != ':')
    return false;

  const char *operands = instruction.name + instruction.name_length;
  size_t operands_length = (size_t)(comment - operands);

  classify(&instruction);
  if (instruction.class == ISA_WAIT)
    classify_wait(&instruction, operands, operands_length);
  if (instruction.class == ISA_GLOBAL_LOAD && operands_have(operands, operands_length, " lds"))
    instruction.is_to_lds = true;
  classify_flow(&instruction, operands);
  *ret = instruction;
  return true;
}

bool isa_decode_label(const char *line, const char **ret_name, size_t *ret_length,
                      uint64_t *ret_address) {
  char *end = NULL;
  size_t length = strcspn(line, "\n");
  if (!strchr("0123456789abcdef", line[0]) || !line[0])
    return false;

  uint64_t address = strtoull(line, &end, 16);
  if (end + 4 > line + length || end[0] != ' ' || end[1] != '<' ||
      memcmp(line + length - 2, ">:", 2) != 0)
    return false;

  *ret_name = end + 2;
  *ret_length = (size_t)(line + length - 2 - (end + 2));
  *ret_address = address;
  return true;
}
