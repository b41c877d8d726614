/* The table of regimes with one more, for programs that only tests run. */
#define REGIMES_OF_TEST(X) X(TEPID, "tepid", true, false, DIRECT)
#include "common/regime/regime.c" /* NOLINT(bugprone-suspicious-include) */
