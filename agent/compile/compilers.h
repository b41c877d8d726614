/* The compilers of this machine, each looked for when it is first needed.
 *
 * Memory: owns the compilers. Threads: any, after compilers_new. */
#ifndef WAVETUNE_AGENT_COMPILE_COMPILERS_H
#define WAVETUNE_AGENT_COMPILE_COMPILERS_H

#include "agent/compile/compiler.h"

struct compilers;

/* False without a C compiler: references need one, whatever the kernels are written in. */
must_check bool compilers_new(struct compilers **ret_compilers, struct error *error);
void compilers_free(struct compilers *compilers);

/* The compiler of a request. False when this machine has none: the error says what to install. What
 * was not found is not looked for again. */
must_check bool compilers_find(struct compilers *compilers, const struct compile_request *request,
                               const struct compiler **ret_compiler, struct error *error);

#endif
