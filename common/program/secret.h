/* Keeping what a program knows (a token) from other processes of its user, which could read it in
 * /proc/PID/environ, in /proc/PID/cmdline or in the program's memory.
 *
 * Memory: environment_take's text is the caller's. Threads: before others are started. */
#ifndef WAVETUNE_COMMON_PROGRAM_SECRET_H
#define WAVETUNE_COMMON_PROGRAM_SECRET_H

#include "common/base/base.h"

/* Takes a variable out of the environment and returns a copy of its value; NULL when it is not set.
 * Its bytes are overwritten: /proc/PID/environ shows the memory that the program was started with,
 * whatever unsetenv did. */
must_check char *environment_take(const char *name);

/* Overwrites the bytes of an argument of main(), which every user reads in /proc/PID/cmdline. */
void argument_hide(const char *text);

/* Lets no other process of the same user attach to this one, nor open its environ, mem, maps and fd
 * in /proc; the owner of those is root then. Core dumps are off, too. Children are hidden until
 * they run another program. $WAVETUNE_DUMPABLE set to 1 prevents it, for debuggers. */
void process_hide(void);

#endif
