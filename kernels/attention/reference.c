/* Element `index` of the output: one number of one query's weighted sum of values, in double
 * precision. */
#include <math.h>
#include <stdint.h>

static double score(const _Float16 *query, const _Float16 *key, int64_t head_dim) {
  double sum = 0;
  for (int64_t d = 0; d < head_dim; d++)
    sum += (double)query[d] * (double)key[d];
  return sum / sqrt((double)head_dim);
}

double attention_at(int64_t index, _Float16 *o, const _Float16 *q, const _Float16 *k,
                    const _Float16 *v, int64_t heads, int64_t sequence, int64_t head_dim) {
  (void)o, (void)heads;
  const int64_t first = index / (sequence * head_dim) * sequence * head_dim,
                column = index % head_dim;
  const _Float16 *query = q + index / head_dim * head_dim;
  double maximum = -INFINITY, sum = 0, output = 0;
  for (int64_t i = 0; i < sequence; i++) {
    double now = score(query, k + first + i * head_dim, head_dim), risen = fmax(maximum, now);
    double weight = exp(now - risen), fade = exp(maximum - risen);
    sum = sum * fade + weight;
    output = output * fade + weight * (double)v[first + i * head_dim + column];
    maximum = risen;
  }
  return output / sum;
}
