/* The server's TLS: its certificate, its key and the authorities of client certificates, which are
 * read again while it serves.
 *
 * New files replace the old ones only when all three are valid and match. Memory: a struct tls owns
 * its objects; handshakes get copies, so that a change does not end one. Threads: any; tls_new and
 * tls_free: the one that starts and stops the server. */
#ifndef WAVETUNE_SERVER_HTTP_TLS_H
#define WAVETUNE_SERVER_HTTP_TLS_H

#include <gnutls/abstract.h>

#include "common/base/digest.h"

/* What GnuTLS may negotiate: TLS 1.2 with forward secrecy, or newer. */
#define TLS_PRIORITIES "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2:-RSA"

struct tls_files {
  const char *certificate; /* PEM, the server's first, then its issuers'; NULL: plain HTTP */
  const char *key;         /* PEM, not encrypted; NULL when `certificate` is */
  const char *client_ca; /* PEM, the authorities of client certificates; NULL: none are requested */
};

struct tls;
/* Reads the files; *ret_tls is NULL when there are none. The error names the wrong file and the
 * remedy. */
must_check bool tls_new(const struct tls_files *files, struct tls **ret_tls, struct error *error);
void tls_free(struct tls *tls);

/* Reads the files again, for new connections. When one of them is wrong, logs why and keeps using
 * the old ones. */
void tls_reload(struct tls *tls);
/* The same, when the files have changed since they were read and are the same as in the last call.
 * The housekeeper calls it every second. */
void tls_reload_changed(struct tls *tls);

bool tls_serves(const struct tls *tls);       /* it has a certificate: the server serves https:// */
bool tls_asks_clients(const struct tls *tls); /* it requests client certificates */

/* Gives a handshake the certificate and the key. GnuTLS's callback has no context, so it uses the
 * one struct tls that has a certificate. */
gnutls_certificate_retrieve_function3 tls_retrieve;

/* The name in a client's certificate: "URI:…" of the first URI among its alternative names, else
 * "DNS:…" of the first DNS name, else "CN:…" of its subject. */
#define TLS_NAME_SIZE 256
/* Whether text is such a name: the prefix and 1 to 250 printable ASCII characters. */
bool tls_name_is_good(const char *text);
/* The key of a certificate in the table of tokens. No token has the same digest, because the hashed
 * text has spaces. The case of a DNS name does not matter. */
struct digest tls_name_digest(const char *name);

/* The name in the first certificate of `chain` (DER), a client's. False: it is malformed, expired,
 * not for clients, not signed by an authority of client_ca, or has no name. Intermediate issuers
 * may be in the chain or in client_ca. */
must_check bool tls_client_name(struct tls *tls, const gnutls_datum_t *chain, unsigned n,
                                char ret_name[TLS_NAME_SIZE], struct error *error);

#endif
