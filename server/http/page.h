/* The web page: the files of web/, which are compiled into the program, as event threads send them.
 *
 * They have no data: the page reads that from the API, with the token that a person signed in with.
 * Memory: a page owns the compressed texts; the texts are static. Threads: any. */
#ifndef WAVETUNE_SERVER_HTTP_PAGE_H
#define WAVETUNE_SERVER_HTTP_PAGE_H

#include "common/base/base.h"

struct embedded_file {
  const char *name, *text;
};
extern const struct embedded_file page_sources[]; /* a name of NULL ends it */

struct page;
must_check struct page *page_new(void);
void page_free(struct page *page);

#endif
