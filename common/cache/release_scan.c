/* Reading canonical JSON in place. Memory: points into the text. Threads: any.
 *
 * A release holds some 200,000 numbers, and writing each again to see whether its text is the canonical one would cost
 * more than all the rest. Decimals of up to 15 digits need no such proof, and those of 16 and 17 get one in integers. */
#include "common/cache/release_scan.h"

#include <math.h>

bool scan_refuse(const struct scan *scan, const char *pointer, const char *expected, struct error *error) {
  return error_at(error, pointer,
                  "the release is not canonical at byte %zu: %s was expected there; take the bytes as the server made "
                  "them",
                  (size_t)(scan->at - scan->begin), expected);
}

bool scan_literal(struct scan *scan, const char *literal) {
  const char *at = scan->at;
  while (*literal && *at == *literal) { /* the NUL at the end is in no literal */
    at++;
    literal++;
  }
  if (*literal)
    return false;
  scan->at = at;
  return true;
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* Of text that jansson reads: whether json_canonical writes it so. */
static bool text_is_canonical(const char *text, size_t size) {
  cleanup_json json_t *json = NULL;
  struct error ignored;
  if (!json_parse(text, size, &json, &ignored))
    return false;
  cleanup_free char *canonical = json_canonical(json);
  return strlen(canonical) == size && memcmp(canonical, text, size) == 0;
}

bool scan_string(struct scan *scan, struct scalar *ret) {
  const char *at = scan->at;
  bool is_plain = true, is_ascii = true;
  if (*at != '"')
    return false;
  for (at++; *at != '"'; at++) {
    unsigned char c = (unsigned char)*at;
    if (c < 0x20) /* also the end */
      return false;
    is_ascii = is_ascii && c < 0x80;
    if (c == '\\') {
      is_plain = false;
      if (*++at == '\0')
        return false;
    }
  }
  size_t size = (size_t)(at + 1 - scan->at);
  if (!(is_plain && is_ascii) && !text_is_canonical(scan->at, size))
    return false;
  ret->type = VALUE_STRING;
  ret->text = scan->at + 1;
  ret->size = size - 2;
  ret->is_plain = is_plain;
  scan->at = at + 1;
  return true;
}

char *scalar_text(const struct scalar *scalar) {
  if (scalar->is_plain)
    return xstrndup(scalar->text, scalar->size);
  cleanup_json json_t *json = NULL;
  struct error ignored;
  ALWAYS(json_parse(scalar->text - 1, scalar->size + 2, &json, &ignored)); /* with its quotes; it was scanned */
  return xstrdup(json_string_value(json));
}

json_t *scalar_to_json(const struct scalar *scalar) {
  switch (scalar->type) {
  case VALUE_NONE:
    return json_null();
  case VALUE_BOOL:
    return json_boolean(scalar->boolean);
  case VALUE_INT:
    return json_integer(scalar->integer);
  case VALUE_FLOAT:
    return json_real(scalar->real);
  case VALUE_STRING:
    break;
  }
  cleanup_free char *text = scalar->is_plain ? NULL : scalar_text(scalar);
  return text ? json_string(text) : json_stringn_nocheck(scalar->text, scalar->size);
}

/* A decimal as it is written plainly: digits without a sign, of which `decimals` stand behind the point. */
struct decimal {
  uint64_t digits;
  int n_digits; /* from the first that is not 0; what stands there as ".0" is none */
  int decimals;
};

#define DIGITS_EXACT 15 /* two decimals of so many digits are never one double: DBL_DIG */
#define DIGITS_MAX 17
#define DECIMALS_MAX 20 /* 10^20 * 2^53 and 10^17 * 2^66 fit in 128 bits */
#define DECIMAL_EXPONENT_MIN (-66)

typedef unsigned __int128 wide;

static wide power_of_ten(int exponent) {
  wide power = 1;
  for (int i = 0; i < exponent; i++)
    power *= 10;
  return power;
}

/* Whether the decimal, which reads as `number`, is the shortest that does and, of those, the nearest to it; false also
 * where that cannot be told here. Everything is compared in units of 2^exponent / 10^decimals. */
static bool decimal_is_shortest(const struct decimal *decimal, double number) {
  int exponent;
  double fraction = frexp(number, &exponent);
  uint64_t mantissa = (uint64_t)ldexp(fraction, 53);
  exponent -= 53;
  if (exponent >= 0 || exponent < DECIMAL_EXPONENT_MIN || decimal->decimals > DECIMALS_MAX ||
      mantissa == (uint64_t)1 << 52) /* the next double below is nearer */
    return false;
  wide power = power_of_ten(decimal->decimals), unit = (wide)1 << -exponent;
  wide exact = mantissa * power, written = decimal->digits * unit;
  wide off = written > exact ? written - exact : exact - written;
  unsigned last = (unsigned)(decimal->digits % 10);
  if (last == 0 || 2 * off >= unit) /* a digit less, or another one is nearer */
    return false;
  wide below = (decimal->digits - last) * unit, above = (decimal->digits - last + 10) * unit;
  /* Half the distance of two doubles is power / 2: neither decimal of a digit less reads as the number. */
  return 2 * (exact - below) > power && 2 * (above - exact) > power;
}

/* Of a plain decimal with a point: reads it when it is known to be canonical, else *ret_is_known is false. */
static double decimal_read(const struct decimal *decimal, const char *text, bool *ret_is_known) {
  static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9, 1e10,
                                  1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20};
  *ret_is_known = false;
  if (decimal->digits == 0 || decimal->n_digits > DIGITS_MAX || decimal->decimals > DECIMALS_MAX)
    return 0;
  if (decimal->n_digits <= DIGITS_EXACT) {
    *ret_is_known = true; /* both are exact, so their quotient is the nearest double */
    return (double)decimal->digits / powers[decimal->decimals];
  }
  double number = strtod(text, NULL); /* ends at what follows the digits */
  *ret_is_known = decimal_is_shortest(decimal, number);
  return number;
}

/* Digits up to what is no digit, after those in *digits. More than 19 wrap around, and whoever counts them sees it. */
static const char *digits_read(const char *at, uint64_t *digits) {
  uint64_t number = *digits;
  for (; is_digit(*at); at++)
    number = number * 10 + (uint64_t)(*at - '0');
  *digits = number;
  return at;
}

/* Any real number: by writing it again. */
static bool real_scan(struct scan *scan, struct scalar *ret) {
  size_t size = strspn(scan->at, "+-.0123456789e");
  if (size >= FLOAT_TEXT_SIZE || !text_is_canonical(scan->at, size))
    return false;
  ret->type = VALUE_FLOAT;
  ret->real = strtod(scan->at, NULL);
  scan->at += size;
  return true;
}

static bool integer_scan(struct scan *scan, const char *first, const char *end, uint64_t magnitude,
                         struct scalar *ret) {
  bool is_negative = first > scan->at;
  if (end - first > 19 || magnitude > (uint64_t)INT64_MAX + is_negative || (is_negative && magnitude == 0))
    return false;
  ret->type = VALUE_INT;
  ret->integer = (int64_t)(is_negative ? -magnitude : magnitude);
  scan->at = end;
  return true;
}

/* From the point on. *ret_end is behind the last digit. */
static bool decimals_scan(const char *first, const char *point, uint64_t whole, struct decimal *ret,
                          const char **ret_end) {
  const char *begin = point + 1, *from = first;
  *ret = (struct decimal){.digits = whole};
  if (*begin == '0' && !is_digit(begin[1])) { /* "4096.0" has no digit behind the point */
    *ret_end = begin + 1;
    ret->n_digits = (int)(point - first > 99 ? 99 : point - first);
    return true;
  }
  const char *end = *ret_end = digits_read(begin, &ret->digits);
  if (end == begin || end[-1] == '0' || end - first > 99)
    return false; /* "0.50" */
  ret->decimals = (int)(end - begin);
  ret->n_digits = (int)(point - first) + ret->decimals;
  if (*first == '0')
    for (ret->n_digits--, from = begin; *from == '0'; from++)
      ret->n_digits--;
  return true;
}

bool scan_number(struct scan *scan, struct scalar *ret) {
  uint64_t whole = 0;
  const char *first = scan->at + (*scan->at == '-'), *at = digits_read(first, &whole);
  if (at == first || (*first == '0' && at > first + 1))
    return false;
  if (*at == 'e')
    return real_scan(scan, ret);
  if (*at != '.')
    return integer_scan(scan, first, at, whole, ret);
  struct decimal decimal;
  bool is_known = false;
  double number = 0;
  if (decimals_scan(first, at, whole, &decimal, &at) && *at != 'e' &&
      decimal.decimals - decimal.n_digits < 4) /* below 1e-4 an exponent is written */
    number = decimal_read(&decimal, first, &is_known);
  if (!is_known)
    return real_scan(scan, ret);
  ret->type = VALUE_FLOAT;
  ret->real = first > scan->at ? -number : number;
  scan->at = at;
  return true;
}

bool scan_count(struct scan *scan, int64_t max, int64_t *ret) {
  uint64_t number = 0;
  const char *first = scan->at, *at = digits_read(first, &number);
  if (at == first || at - first > 19 || (*first == '0' && at > first + 1) || *at == '.' || *at == 'e' || max < 0 ||
      number > (uint64_t)max)
    return false;
  *ret = (int64_t)number;
  scan->at = at;
  return true;
}

bool scan_scalar(struct scan *scan, struct scalar *ret) {
  switch (*scan->at) {
  case '"':
    return scan_string(scan, ret);
  case 'n':
    ret->type = VALUE_NONE;
    return scan_literal(scan, "null");
  case 't':
  case 'f':
    ret->type = VALUE_BOOL;
    ret->boolean = *scan->at == 't';
    return scan_literal(scan, ret->boolean ? "true" : "false");
  default:
    return scan_number(scan, ret);
  }
}

bool scan_span(struct scan *scan, const char **ret_text, size_t *ret_size) {
  const char *at = scan->at;
  size_t depth = 0;
  if (*at != '{' && *at != '[')
    return false;
  do {
    if (*at == '\0')
      return false;
    if (*at == '"') {
      for (at++; *at != '"'; at++)
        if (*at == '\0' || (*at == '\\' && *++at == '\0'))
          return false;
    } else if (*at == '{' || *at == '[') {
      depth++;
    } else if (*at == '}' || *at == ']') {
      depth--;
    }
    at++;
  } while (depth > 0);
  *ret_text = scan->at;
  *ret_size = (size_t)(at - scan->at);
  scan->at = at;
  return true;
}
