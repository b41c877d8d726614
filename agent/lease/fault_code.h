/* The instructions around the place where a wave stopped: ROCdebug-agent prints the wave's pc and
 * which of the code objects that it saved was loaded there, and a disassembler of this machine
 * reads that object.
 *
 * The agent itself shows instructions from the pc on, and those before it only of code that was
 * compiled with debug information. What faulted lies before it: a memory fault is reported when the
 * wave has gone on. Memory: texts are the caller's. Threads: any. */
#ifndef WAVETUNE_AGENT_LEASE_FAULT_CODE_H
#define WAVETUNE_AGENT_LEASE_FAULT_CODE_H

#include "common/base/error.h"

/* instructions of the function that are kept, before the pc and from it on */
#define FAULT_CODE_BEFORE 32
#define FAULT_CODE_AFTER 8

/* Where a wave stopped, from what the agent printed. */
struct fault_place {
  char *file;       /* as which the agent saves the code object, in its folder */
  uint64_t address; /* of the pc, as the code object counts */
};
/* Of the first wave that stopped for a reason. */
must_check bool fault_place_find(const char *printed, struct fault_place *ret_place,
                                 struct error *error);

/* From a disassembly: `ret_window` has a line an instruction, an arrow at the place; `ret_sentence`
 * says what is there and which access to memory is the last one before it in the text. */
must_check bool fault_code_window(const char *disassembly, uint64_t address, char **ret_window,
                                  char **ret_sentence, struct error *error);

/* Disassembles what is in `folder`, where `printed` was kept too, and keeps the window there as
 * disassembly.txt: a sentence on it, or on why there is none. */
must_check char *fault_code_keep(const char *printed, const char *folder);

#endif
