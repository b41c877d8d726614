/* What space.c and space_enumerate.c share. */
#ifndef WAVETUNE_COMMON_SPACE_CODE_H
#define WAVETUNE_COMMON_SPACE_CODE_H

#include "common/space.h"

/* The names that conditions read beside parameters and key members. */
#define SPACE_FACTS 2
extern const char *const space_fact_names[SPACE_FACTS];

/* Adds where a condition stands: "condition N, …" and /conditions/N. Returns false. */
bool condition_error(struct error *error, size_t index);

#endif
