/* Why a GPU kernel killed its worker. After a memory fault the config is run once more, alone, in a
 * worker under ROCdebug-agent: a library that the ROCm runtime loads and that prints the state of
 * every wavefront when a kernel faults. It also prints the wave's pc and which of the code
 * objects that it saved was loaded there; a disassembler of this machine reads that object.
 *
 * The agent itself shows instructions from the pc on, and those before it only of code that was
 * compiled with debug information. The faulting instruction is before the pc: when a memory
 * fault is reported, the wave has already continued.
 *
 * Output and variables: ROCm documentation, "ROCR Debug Agent user guide", and its sources. Memory:
 * texts are the caller's. Threads: any. */
#ifndef WAVETUNE_AGENT_LEASE_FAULT_H
#define WAVETUNE_AGENT_LEASE_FAULT_H

#include "agent/lease/lease_execution.h"

/* how many instructions of the function are kept: before the pc, and from the pc on */
#define FAULT_CODE_BEFORE 32
#define FAULT_CODE_AFTER 8

/* Finds the library on this machine, or at $WAVETUNE_DEBUG_AGENT; false: it is not installed. */
must_check bool debug_agent_find(char **ret_library);

/* The variables of a worker under the library, as "NAME=VALUE" strings, NULL-terminated: the output
 * goes to FOLDER/debug-agent.txt, and the loaded code objects are saved in FOLDER. The caller owns
 * each string and the array. */
must_check char **debug_agent_environment(const char *library, const char *folder);

/* Summarises the library's output in one sentence: the error of the queue; how many waves stopped,
 * why and where. NULL: the output has none of these. */
must_check char *debug_agent_summary(const char *text);

/* Cuts a window out of a disassembly: `ret_window` has a line for each instruction, with an arrow
 * at the address; `ret_sentence` names that instruction and the last one before it that accesses
 * memory. */
must_check bool fault_code_window(const char *disassembly, uint64_t address, char **ret_window,
                                  char **ret_sentence, struct error *error);

/* Disassembles the code object in `folder` that `printed` names for the first wave that stopped,
 * and writes the window to FOLDER/disassembly.txt. Returns the sentence, or one on why there is
 * none. */
must_check char *fault_code_keep(const char *printed, const char *folder);

/* A sentence on why the config killed its worker, from one more run of it alone; NULL where the
 * library is not installed or does not apply. Owned by the caller. */
must_check char *fault_rerun(struct execution *execution, struct lease_config *config);

#endif
