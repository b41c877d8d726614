/* Instructions of AMD GPUs by their names.
 *
 * Memory: see isa_decode.h. Threads: any. */
#include "common/code/isa_decode.h"

const int64_t isa_width_bytes[ISA_WIDTHS] = {1, 2, 4, 8, 12, 16};

static size_t line_length(const char *line) { return strcspn(line, "\n"); }

static bool has_prefix(const struct isa_instruction *instruction, const char *prefix) {
  size_t length = strlen(prefix);
  return instruction->name_length >= length && memcmp(instruction->name, prefix, length) == 0;
}

static bool token_is(const char *token, size_t length, const char *word) {
  return strlen(word) == length && memcmp(token, word, length) == 0;
}

/* "dwordx4", "ushort", "b128", "u8": what one access of a lane moves. */
static bool token_width(const char *token, size_t length, enum isa_width *ret) {
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
  for (size_t i = 0; i < ARRAY_LENGTH(words); i++) {
    if (token_is(token, length, words[i].word)) {
      *ret = words[i].width;
      return true;
    }
  }
  return false;
}

/* The width that a memory instruction's name states, and what else its parts say. */
static bool name_width(struct isa_instruction *instruction, size_t at) {
  bool found = false;
  while (at < instruction->name_length) {
    const char *token = instruction->name + at;
    const char *end = memchr(token, '_', instruction->name_length - at);
    size_t length = end ? (size_t)(end - token) : instruction->name_length - at;
    if (token_is(token, length, "lds"))
      instruction->is_to_lds = true;
    if (token_is(token, length, "2addr"))
      instruction->accesses = 2;
    found = found || token_width(token, length, &instruction->width);
    at += length + 1;
  }
  return found;
}

static void classify_memory(struct isa_instruction *instruction) {
  static const struct {
    const char *prefix;
    enum isa_class class;
    int accesses;
  } families[] = {
      {"global_load_", ISA_GLOBAL_LOAD, 1},   {"buffer_load_", ISA_GLOBAL_LOAD, 1},
      {"flat_load_", ISA_GLOBAL_LOAD, 1},     {"global_store_", ISA_GLOBAL_STORE, 1},
      {"buffer_store_", ISA_GLOBAL_STORE, 1}, {"flat_store_", ISA_GLOBAL_STORE, 1},
      {"scratch_load_", ISA_SCRATCH_LOAD, 1}, {"scratch_store_", ISA_SCRATCH_STORE, 1},
      {"ds_read_", ISA_LDS_READ, 1},          {"ds_load_", ISA_LDS_READ, 1},
      {"ds_read2_", ISA_LDS_READ, 2},         {"ds_read2st64_", ISA_LDS_READ, 2},
      {"ds_write_", ISA_LDS_WRITE, 1},        {"ds_store_", ISA_LDS_WRITE, 1},
      {"ds_write2_", ISA_LDS_WRITE, 2},       {"ds_write2st64_", ISA_LDS_WRITE, 2},
  };
  for (size_t i = 0; i < ARRAY_LENGTH(families); i++) {
    if (!has_prefix(instruction, families[i].prefix))
      continue;
    instruction->accesses = families[i].accesses;
    if (name_width(instruction, strlen(families[i].prefix)))
      instruction->class = families[i].class;
    instruction->is_flat = has_prefix(instruction, "flat_");
    return;
  }
}

static void classify_others(struct isa_instruction *instruction) {
  static const struct {
    const char *prefix;
    enum isa_class class;
  } families[] = {
      {"global_atomic_", ISA_ATOMIC}, {"buffer_atomic_", ISA_ATOMIC}, {"flat_atomic_", ISA_ATOMIC},
      {"v_mfma_", ISA_MATRIX},        {"v_smfmac_", ISA_MATRIX},      {"v_wmma_", ISA_MATRIX},
      {"v_swmmac_", ISA_MATRIX},      {"v_accvgpr_", ISA_ACCVGPR},    {"s_waitcnt", ISA_WAIT},
      {"s_wait_", ISA_WAIT},          {"s_barrier_wait", ISA_OTHER},  {"s_barrier", ISA_BARRIER},
  };
  for (size_t i = 0; i < ARRAY_LENGTH(families); i++) {
    if (has_prefix(instruction, families[i].prefix)) {
      instruction->class = families[i].class;
      return;
    }
  }
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

/* Branches state how many dwords to go from behind them, as an unsigned 16-bit number. */
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
  size_t length = line_length(line);
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
  classify_memory(&instruction);
  if (instruction.class == ISA_OTHER)
    classify_others(&instruction);
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
  size_t length = line_length(line);
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
