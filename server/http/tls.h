/* The server's own TLS: its certificate and key, the authorities of its clients, and reading them
 * again while it serves.
 *
 * The three files are read together: new ones replace the old ones only when they fit together.
 * Memory: a struct tls owns what it read; handshakes get copies, so that a change does not end one.
 * Threads: any, but tls_new and tls_free. */
#ifndef WAVETUNE_SERVER_HTTP_TLS_H
#define WAVETUNE_SERVER_HTTP_TLS_H

#include <gnutls/abstract.h>

#include "common/base/digest.h"

/* What GnuTLS may negotiate: TLS 1.2 with forward secrecy, or newer. */
#define TLS_PRIORITIES "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2:-RSA"

struct tls_files {
  const char *certificate; /* PEM, the server's first, then its issuers; NULL: plain HTTP */
  const char *key;         /* PEM, not encrypted; NULL as `certificate` is */
  const char *
      client_ca; /* PEM, whose certificates clients may show; NULL: clients are not asked for any */
};

struct tls;
/* Reads the files; an error says which one is wrong and what to do. NULL is returned where there
 * are none. */
must_check bool tls_new(const struct tls_files *files, struct tls **ret_tls, struct error *error);
void tls_free(struct tls *tls);

/* Reads the files again and uses what is new for connections from now on. What is wrong with them
 * is logged, and the old ones stay. */
void tls_reload(struct tls *tls);
/* The same, when the files have changed since they were read last and then stayed as they are from
 * one call to the next: for a housekeeper that calls it every second. */
void tls_reload_changed(struct tls *tls);

bool tls_serves(const struct tls *tls);       /* it has a certificate: the server speaks https:// */
bool tls_asks_clients(const struct tls *tls); /* it has authorities of clients */

/* Gives a handshake the certificate and the key. GnuTLS's callback has no context, so it uses the
 * one struct tls that has a certificate. */
gnutls_certificate_retrieve_function3 tls_retrieve;

/* The name in a client's certificate: "URI:…" of the first URI among its alternative names, else
 * "DNS:…" of the first DNS name, else "CN:…" of its subject. */
#define TLS_NAME_SIZE 256
/* Whether text is such a name: the prefix and 1 to 250 printable ASCII characters. */
bool tls_name_is_good(const char *text);
/* The digest that stands for a token's in the table of tokens. No token has the same one, because
 * the hashed text has blanks. Upper and lower case of a DNS name are the same. */
struct digest tls_name_digest(const char *name);

/* The name of the client whose certificates, its own first, are `chain` (DER). False: they are no
 * certificates, not for clients, past their time, from no authority of client_ca, or have no name.
 * Issuers between it and the authority may be in the chain or in client_ca. */
must_check bool tls_client_name(struct tls *tls, const gnutls_datum_t *chain, unsigned n,
                                char ret_name[TLS_NAME_SIZE], struct error *error);

#endif
