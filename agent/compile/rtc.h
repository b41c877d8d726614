/* `wavetune-agent rtc`: one process that loads a runtime compiler's library, asks or uses it once,
 * and ends. The library is other people's code that reads a stranger's text: it may crash, hang or
 * look around, and here it may.
 *
 *   rtc find SYMBOLS LIBRARY…  prints the path of the first library that loads, and its identity
 *   rtc compile SYMBOLS LIBRARY SOURCES TEXT OBJECT FILE… -- OPTION…
 * SYMBOLS is what its functions' names begin with: "hiprtc" or "nvrtc". The files of the folder
 * SOURCES are what the text may include, under their names there.
 *
 * Memory: none kept. Threads: one; it is a program's main function. */
#ifndef WAVETUNE_AGENT_COMPILE_RTC_H
#define WAVETUNE_AGENT_COMPILE_RTC_H

#include "common/base/base.h"

/* Exit status when it is this machine's fault and not the source's. */
#define RTC_EXIT_MACHINE 75

no_return void rtc_main(int argc, char **argv);

#endif
