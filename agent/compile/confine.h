/* `wavetune-agent confine`: runs one program in the sandbox of compilers, for the builder of
 * captured kernels (python/wavetune/_captured/confined.py), which executes other people's text.
 *
 *   confine MEMORY TASKS SECONDS FOLDER READABLE… -- PROGRAM ARGUMENT…
 * The program may write below FOLDER alone, where it starts, and read below READABLE. MEMORY limits
 * the bytes of each process, TASKS the number of processes and threads of the user, SECONDS the
 * time of all. When the program or this process ends, all that it started is killed. Its output
 * goes to stderr, its status is this program's: 128 and the number of a signal, CONFINE_EXIT_LATE
 * when the time was over, CONFINE_EXIT_MACHINE when it cannot be confined here.
 *
 * Root's processes have no limit of their number: started by root, the program has a user id that
 * nothing else has, and the one capability to read what root may.
 *
 * Memory: freed when the process ends. Threads: one; it is a program's main function. */
#ifndef WAVETUNE_AGENT_COMPILE_CONFINE_H
#define WAVETUNE_AGENT_COMPILE_CONFINE_H

#define CONFINE_EXIT_MACHINE 75
#define CONFINE_EXIT_LATE 124

int confine_main(int argc, char **argv);

#endif
