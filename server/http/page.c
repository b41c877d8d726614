/* Serves the web page (page.h). Its policy lets a browser run only these files: no inline script or
 * style, no request to another host, no frame around it. So text that a stranger wrote (a tag, the
 * name of a node) can neither run nor carry the token away. */
#include "server/http/page.h"

#include "common/base/digest.h"
#include "common/base/gzip.h"
#include "server/http/http_private.h"
#include "server/http/request.h"
#include "server/http/request_private.h"

#define POLICY                                                                                     \
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "  \
  "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

#define ETAG_DIGITS 16

enum page_form { PLAIN, GZIP, PAGE_FORMS };

struct page_file {
  const char *name, *type;
  struct {
    const char *bytes;
    size_t size;
    char etag[ETAG_DIGITS + 1];
  } forms[PAGE_FORMS];
  char *compressed;
};

struct page {
  size_t n;
  struct page_file files[];
};

static const char *type_of(const char *name) {
  static const struct {
    const char *end, *type;
  } types[] = {{".html", "text/html; charset=utf-8"},
               {".css", "text/css; charset=utf-8"},
               {".js", "text/javascript; charset=utf-8"},
               {".svg", "image/svg+xml"}};
  const char *end = strrchr(name, '.');
  for (size_t i = 0; i < ARRAY_LENGTH(types); i++)
    if (string_equal(end, types[i].end))
      return types[i].type;
  die("the page has a file %s, whose type is not known", name);
}

struct page *page_new(void) {
  size_t n = 0;
  while (page_sources[n].name)
    n++;

  struct page *page = xcalloc(1, sizeof *page + n * sizeof *page->files);
  page->n = n;
  for (size_t i = 0; i < n; i++) {
    struct page_file *file = &page->files[i];
    const char *text = page_sources[i].text;
    size_t size = strlen(text), compressed_size;
    file->name = page_sources[i].name;
    file->type = type_of(file->name);
    file->compressed = gzip_compress(text, size, &compressed_size);
    file->forms[PLAIN].bytes = text;
    file->forms[PLAIN].size = size;
    file->forms[GZIP].bytes = file->compressed;
    file->forms[GZIP].size = compressed_size;

    for (int form = 0; form < PAGE_FORMS; form++) {
      char digest_text[DIGEST_TEXT_SIZE];
      struct digest digest = digest_of(file->forms[form].bytes, file->forms[form].size);
      const char *digits = strchr(digest_format(&digest, digest_text), ':') + 1;
      snprintf(file->forms[form].etag, sizeof file->forms[form].etag, "%.*s", ETAG_DIGITS, digits);
    }
  }

  return page;
}

void page_free(struct page *page) {
  for (size_t i = 0; page && i < page->n; i++)
    free(page->files[i].compressed);
  free(page);
}

static void file_answer(struct request *request, const char *name) {
  const struct page *page = server_http(request->server)->page;
  const struct page_file *file = NULL;
  for (size_t i = 0; i < page->n && !file; i++)
    if (string_equal(page->files[i].name, name))
      file = &page->files[i];
  if (!file) {
    answer_refusal(request, ERROR_MISSING, "", "the web page has no file \"%.40s\"", name);
    return;
  }

  const char *accepted = request_header(request, MHD_HTTP_HEADER_ACCEPT_ENCODING),
             *known = request_header(request, MHD_HTTP_HEADER_IF_NONE_MATCH);
  enum page_form form = header_accepts(accepted, "gzip") ? GZIP : PLAIN;
  bool is_known = known && header_etag_listed(known, file->forms[form].etag);
  size_t size = is_known ? 0 : file->forms[form].size;

  struct MHD_Response *response = MHD_create_response_from_buffer(
      size, (char *)(uintptr_t)file->forms[form].bytes, MHD_RESPMEM_PERSISTENT);
  ALWAYS(response != NULL);
  response_entity_headers(response, file->forms[form].etag, false);
  response_header(response, MHD_HTTP_HEADER_VARY, MHD_HTTP_HEADER_ACCEPT_ENCODING);
  if (!is_known) {
    response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, file->type);
    if (form == GZIP)
      response_header(response, MHD_HTTP_HEADER_CONTENT_ENCODING, "gzip");
  }

  response_header(response, "Content-Security-Policy", POLICY);
  response_header(response, "Referrer-Policy", "no-referrer");
  response_header(response, "Cross-Origin-Opener-Policy", "same-origin");
  response_header(response, "Cross-Origin-Resource-Policy", "same-origin");
  request_finish(request, is_known ? MHD_HTTP_NOT_MODIFIED : MHD_HTTP_OK, response, size);
}

void route_page_get(struct server *server, struct request *request) {
  (void)server;
  file_answer(request, "index.html");
}

void route_page_file(struct server *server, struct request *request) {
  (void)server;
  file_answer(request, request->segments[0]);
}
