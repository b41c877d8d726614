/* What ROCdebug-agent prints of a fault, and the environment of a worker under it. The text has the
 * form that its user guide shows; no GPU printed it. */
#include <criterion/criterion.h>
#include <unistd.h>

#include "agent/lease/fault.h"

Test(debug_agent, a_fault_is_summarised_in_one_sentence) {
  static const char printed[] =
      "Queue error (HSA_STATUS_ERROR_EXCEPTION: An operation resulted in a hardware exception.)\n\n"
      "--------------------------------------------------------\n"
      "wave_1: pc=0x7fd4f100d0e8 (stopped, reason: MEMORY_VIOLATION)\n\n"
      "system registers:\n"
      "            m0: 00000000        status: 00012461\n"
      "Disassembly for function copy_kernel:\n"
      "    code object: file:///tmp/17.co\n"
      "wave_2: pc=0x7fd4f100d0f0 (stopped, reason: MEMORY_VIOLATION)\n"
      "wave_3: pc=0x7fd4f100d0f0 (running)\n";
  cleanup_free char *summary = debug_agent_summary(printed);
  cr_expect_str_eq(
      summary,
      "2 waves stopped by MEMORY_VIOLATION, the first at pc 0x7fd4f100d0e8 in copy_kernel; queue "
      "error HSA_STATUS_ERROR_EXCEPTION: An operation resulted in a hardware exception.");
}

Test(debug_agent, the_function_is_that_of_the_wave_that_stopped) {
  cleanup_free char *summary =
      debug_agent_summary("wave_1: pc=0x10 (running)\nDisassembly for function fine:\n"
                          "wave_2: pc=0x20 (stopped, reason: TRAP)\n"
                          "Disassembly for function broken:\n"
                          "wave_3: pc=0x10 (running)\nDisassembly for function fine:\n");
  cleanup_free char *unknown =
      debug_agent_summary("wave_2: pc=0x20 (stopped, reason: TRAP)\nwave_3: pc=0x10 (running)\n"
                          "Disassembly for function fine:\n");
  cr_expect_str_eq(summary, "1 wave stopped by TRAP, the first at pc 0x20 in broken");
  cr_expect_str_eq(unknown, "1 wave stopped by TRAP, the first at pc 0x20");
}

Test(debug_agent, a_summary_of_a_wave_alone_or_a_queue_alone) {
  cleanup_free char *wave =
      debug_agent_summary("wave_7: pc=0x10 (stopped, reason: ILLEGAL_INSTRUCTION)\n");
  cleanup_free char *queue = debug_agent_summary("Queue error (HSA_STATUS_ERROR_MEMORY_FAULT)");
  cr_expect_str_eq(wave, "1 wave stopped by ILLEGAL_INSTRUCTION, the first at pc 0x10");
  cr_expect_str_eq(queue, "queue error HSA_STATUS_ERROR_MEMORY_FAULT");
}

Test(debug_agent, a_text_without_a_fault_has_no_summary) {
  cr_expect_null(debug_agent_summary(""));
  cr_expect_null(debug_agent_summary("wave_1: pc=0x10 (running)\nwave_\nQueue error ("));
}

Test(debug_agent, lines_that_are_cut_off_are_read_as_far_as_they_go) {
  cleanup_free char *summary = debug_agent_summary("wave_1: (stopped, reason: ");
  cr_expect_str_eq(summary, "1 wave stopped by , the first at pc unknown");
}

Test(debug_agent, the_environment_names_library_and_folder) {
  char **environment = debug_agent_environment("/lib/agent.so", "/tmp/fault");
  cr_expect_str_eq(environment[0], "HSA_TOOLS_LIB=/lib/agent.so");
  cr_expect_str_eq(environment[1], "HSA_ENABLE_DEBUG=1");
  cr_expect_str_eq(environment[2],
                   "ROCM_DEBUG_AGENT_OPTIONS=--all --output=/tmp/fault/debug-agent.txt "
                   "--save-code-objects=/tmp/fault");
  cr_expect_str_eq(environment[4], "HSA_DISABLE_FRAGMENT_ALLOCATOR=1");
  size_t n = 0;
  for (; environment[n]; n++)
    free(environment[n]);
  cr_expect_eq(n, 6);
  free(environment);
}

Test(debug_agent, a_variable_names_another_library) {
  cleanup_free char *library = NULL, *missing = NULL;
  setenv("WAVETUNE_DEBUG_AGENT", "/proc/self/exe", 1);
  cr_expect(debug_agent_find(&library));
  cr_expect_str_eq(library, "/proc/self/exe");
  setenv("WAVETUNE_DEBUG_AGENT", "/nonexistent", 1);
  cr_expect_not(debug_agent_find(&missing));
}
