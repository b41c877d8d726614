/* Why a GPU kernel killed its worker. After a memory fault the config is run once more, alone, in a
 * worker under ROCdebug-agent: a library that the ROCm runtime loads and that prints what every
 * wavefront was doing when a kernel faulted. It also prints the wave's pc and which of the code
 * objects that it saved was loaded there; a disassembler of this machine reads that object.
 *
 * The agent itself shows instructions from the pc on, and those before it only of code that was
 * compiled with debug information. The faulting instruction is before it: a memory fault is
 * reported when the wave has gone on.
 *
 * Output and variables: ROCm documentation, "ROCR Debug Agent user guide", and its sources. Memory:
 * texts are the caller's. Threads: any. */
#ifndef WAVETUNE_AGENT_LEASE_FAULT_H
#define WAVETUNE_AGENT_LEASE_FAULT_H

#include "common/base/error.h"

/* instructions of the function that are kept, before the pc and from it on */
#define FAULT_CODE_BEFORE 32
#define FAULT_CODE_AFTER 8

/* The library on this machine ($WAVETUNE_DEBUG_AGENT names another), or false: not installed. */
must_check bool debug_agent_find(char **ret_library);

/* "NAME=VALUE" strings, NULL-terminated, for a worker under it: the output goes to
 * FOLDER/debug-agent.txt and the code objects that were loaded beside it. Each string and the array
 * are the caller's. */
must_check char **debug_agent_environment(const char *library, const char *folder);

/* One sentence on its output: the error of the queue, the waves that stopped and why, where. NULL:
 * the output has none of these. */
must_check char *debug_agent_summary(const char *text);

/* From a disassembly: `ret_window` has a line an instruction, an arrow at the address;
 * `ret_sentence` names the instruction there and the last one before it that accesses memory. */
must_check bool fault_code_window(const char *disassembly, uint64_t address, char **ret_window,
                                  char **ret_sentence, struct error *error);

/* Disassembles the code object in `folder` that `printed` names for the first wave that stopped,
 * and keeps the window there as disassembly.txt: a sentence on it, or on why there is none. */
must_check char *fault_code_keep(const char *printed, const char *folder);

#endif
