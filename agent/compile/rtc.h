/* `wavetune-agent rtc`: one process that loads a runtime compiler's library, queries or uses it
 * once, and ends. The library is another vendor's code that reads a stranger's text: if it crashes,
 * hangs or is taken over, only this confined process is affected.
 *
 *   rtc find SYMBOLS LIBRARY…  prints the path of the first library that loads, and its identity
 *   rtc compile SYMBOLS LIBRARY SOURCES TEXT OBJECT FILE… -- OPTION…
 * The names of the library's functions begin with SYMBOLS: "hiprtc" or "nvrtc". The text may
 * include the files of the folder SOURCES under their names there. Messages go to stderr, for the
 * log of the compile.
 *
 * Memory: freed when the process ends. Threads: one; it is a program's main function. */
#ifndef WAVETUNE_AGENT_COMPILE_RTC_H
#define WAVETUNE_AGENT_COMPILE_RTC_H

#include "common/base/base.h"

/* Exit status of a failure that is this machine's and not the source's. */
#define RTC_EXIT_MACHINE 75

no_return void rtc_main(int argc, char **argv);

#endif
