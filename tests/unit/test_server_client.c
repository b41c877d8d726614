/* Trusted networks, forwarded addresses, and certificates in headers. */
#include "server/http/client.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>

#include "server/http/tls.h"

static struct error error;

static struct networks parsed(const char *first, const char *second) {
  const char *texts[] = {first, second};
  struct networks networks;
  cr_assert(networks_parse(texts, second ? 2 : 1, &networks, &error), "%s", error.message);
  return networks;
}

static bool has(const struct networks *networks, const char *text) {
  struct sockaddr_in four = {.sin_family = AF_INET};
  struct sockaddr_in6 six = {.sin6_family = AF_INET6};
  if (inet_pton(AF_INET, text, &four.sin_addr) == 1)
    return networks_have(networks, (const struct sockaddr *)&four);
  cr_assert_eq(inet_pton(AF_INET6, text, &six.sin6_addr), 1);
  return networks_have(networks, (const struct sockaddr *)&six);
}

Test(forwarded, networks_have_the_addresses_with_the_same_first_bits) {
  struct networks networks = parsed("192.0.2.64/26", "2001:db8::/33");
  static const struct {
    const char *address;
    bool is_in;
  } cases[] = {
      {"192.0.2.64", true},       {"192.0.2.127", true},       {"192.0.2.63", false},
      {"192.0.2.128", false},     {"::ffff:192.0.2.65", true}, {"::ffff:192.0.2.1", false},
      {"2001:db8:7fff::1", true}, {"2001:db8:8000::1", false}, {"2001:db9::1", false},
      {"c000:0240::1", false},
  };
  for (size_t i = 0; i < ARRAY_LENGTH(cases); i++)
    cr_expect_eq(has(&networks, cases[i].address), cases[i].is_in, "%s", cases[i].address);
  networks_release(&networks);
}

Test(forwarded, an_address_is_a_network_of_itself_and_0_bits_mean_all_of_its_family) {
  struct networks one = parsed("192.0.2.7", "::1"), all = parsed("0.0.0.0/0", NULL);
  cr_expect(has(&one, "192.0.2.7") && has(&one, "::1"));
  cr_expect_not(has(&one, "192.0.2.6") || has(&one, "::2"));
  cr_expect(has(&all, "203.0.113.1") && !has(&all, "2001:db8::1"));
  networks_release(&one);
  networks_release(&all);
}

Test(forwarded, a_malformed_network_is_refused) {
  static const char *const texts[] = {
      "",      "localhost",    "192.0.2.7/", "192.0.2.7/33",  "192.0.2.7/-1", "::/129",
      "1.2.3", "192.0.2.7/8 ", "/8",         "192.0.2.7/0x8", "192.0.2.7/+8"};
  for (size_t i = 0; i < ARRAY_LENGTH(texts); i++) {
    struct networks networks;
    cr_expect_not(networks_parse(&texts[i], 1, &networks, &error), "%s", texts[i]);
    cr_expect(strchr(error.message, ';') || strstr(error.message, "bits"), "%s", error.message);
  }
}

Test(forwarded, the_client_is_the_last_address_that_is_not_a_proxys) {
  struct networks trusted = parsed("10.0.0.0/8", "::1");
  static const struct {
    const char *value, *client;
  } cases[] = {
      {"192.0.2.7", "192.0.2.7"},
      {"203.0.113.1, 192.0.2.7", "192.0.2.7"},
      {"203.0.113.1,192.0.2.7,10.1.2.3 , ::1", "192.0.2.7"},
      {"10.0.0.9, 10.0.0.8", "10.0.0.9"}, /* a proxy's own request */
      {"2001:db8::5", "2001:db8::5"},
      {"::ffff:192.0.2.7", "192.0.2.7"},
      {"192.0.2.7, unknown", NULL},
      {"192.0.2.7, unknown, 10.0.0.8", "10.0.0.8"},
      {"", NULL},
      {" , ", NULL},
      {"0123456789012345678901234567890123456789012345678901234567890", NULL},
  };
  for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
    char text[ADDRESS_SIZE] = "";
    bool is_found = forwarded_address(&trusted, cases[i].value, text);
    cr_expect_eq(is_found, cases[i].client != NULL, "%s", cases[i].value);
    cr_expect_str_eq(text, cases[i].client ? cases[i].client : "", "%s", cases[i].value);
  }
  networks_release(&trusted);
}

Test(forwarded, certificates_come_percent_encoded_or_in_base64) {
  static const char *const good[] = {
      "AQIDBA==", "-----BEGIN%20CERTIFICATE-----%0AAQIDBA%3d%3D%0A-----END%20CERTIFICATE-----%0A"};
  for (size_t i = 0; i < ARRAY_LENGTH(good); i++) {
    uint8_t *der;
    size_t size;
    cr_assert(forwarded_certificate(good[i], &der, &size), "%s", good[i]);
    cr_expect(size == 4 && memcmp(der, "\1\2\3\4", 4) == 0, "%s", good[i]);
    free(der);
  }
  static const char *const bad[] = {
      "",
      "@",
      "-----BEGIN%20CERTIFICATE-----",
      "-----BEGIN%2",
      "-----BEGIN%zz",
      "-----BEGIN%20PRIVATE%20KEY-----%0AAQIDBA%3D%3D%0A-----END%20PRIVATE%20KEY-----%0A",
  };
  for (size_t i = 0; i < ARRAY_LENGTH(bad); i++) {
    uint8_t *der = NULL;
    size_t size;
    cr_expect_not(forwarded_certificate(bad[i], &der, &size), "%s", bad[i]);
    free(der);
  }
}

Test(forwarded, each_name_of_a_certificate_has_its_own_digest) {
  struct digest a = tls_name_digest("DNS:node.example"), b = tls_name_digest("DNS:Node.EXAMPLE");
  struct digest uri = tls_name_digest("URI:a"), other = tls_name_digest("URI:A"), token;
  token = digest_of("URI:a", 5);
  cr_expect(digest_equal(&a, &b), "DNS names have no upper and lower case");
  cr_expect_not(digest_equal(&uri, &other), "URIs have");
  cr_expect_not(digest_equal(&uri, &token), "a token with the text of the name is another one");
}

static bool are_one_group(const char *one, const char *other) {
  const char *texts[] = {one, other};
  uint8_t groups[2][16];
  for (size_t i = 0; i < 2; i++) {
    struct sockaddr_in four = {.sin_family = AF_INET};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6};
    bool is_four = inet_pton(AF_INET, texts[i], &four.sin_addr) == 1;
    cr_assert(is_four || inet_pton(AF_INET6, texts[i], &six.sin6_addr) == 1);
    address_group(is_four ? (const struct sockaddr *)&four : (const struct sockaddr *)&six,
                  groups[i]);
  }
  return memcmp(groups[0], groups[1], sizeof groups[0]) == 0;
}

Test(address_group, is_an_address_of_ipv4_or_a_network_of_ipv6) {
  cr_expect(are_one_group("192.0.2.1", "::ffff:192.0.2.1"));
  cr_expect(!are_one_group("192.0.2.1", "192.0.2.2"));
  cr_expect(!are_one_group("::ffff:192.0.2.1", "::ffff:192.0.2.2"));
  cr_expect(are_one_group("2001:db8:0:1::1", "2001:db8:0:1:ffff:ffff:ffff:ffff"));
  cr_expect(!are_one_group("2001:db8:0:1::1", "2001:db8:0:2::1"));
  cr_expect(!are_one_group("2001:db8:0:1::1", "192.0.2.1"));
}
