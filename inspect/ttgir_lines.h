/* TTGIR that was wrapped, as guides and terminals print it: an operation for each line again.
 *
 * Memory: the joined text is the caller's. Threads: pure functions. */
#ifndef WAVETUNE_INSPECT_TTGIR_LINES_H
#define WAVETUNE_INSPECT_TTGIR_LINES_H

#include "inspect/ttgir_layout.h"

/* Whether a line without spaces at either end begins an operation, a block, an alias or a comment,
 * or closes a region. */
bool ttgir_line_begins(struct span line);

/* The text with each line that continues an operation joined to it, by a space. As many empty lines
 * come after the operation, so that the numbers of lines stay. */
must_check char *ttgir_lines_join(const char *text, size_t size);

#endif
