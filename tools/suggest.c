/* suggest.c - names that are near a misspelt one */
#include "tools/suggest.h"

#include <stdio.h>
#include <string.h>

enum { LONGEST = 32 };

static int least(int a, int b) { return a < b ? a : b; }

/* The letters to insert, leave out, change or swap that make one word of the
 * other: the optimal string alignment distance. */
static int distance_of(const char *a, const char *b) {
  int m = (int)strlen(a), n = (int)strlen(b);
  int d[LONGEST + 1][LONGEST + 1];
  if (m > LONGEST || n > LONGEST)
    return LONGEST;
  for (int i = 0; i <= m; i++)
    for (int j = 0; j <= n; j++) {
      if (!i || !j) {
        d[i][j] = i + j;
        continue;
      }
      int same = a[i - 1] == b[j - 1];
      d[i][j] =
          least(least(d[i - 1][j], d[i][j - 1]) + 1, d[i - 1][j - 1] + !same);
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = least(d[i][j], d[i - 2][j - 2] + 1);
    }
  return d[m][n];
}

const char *tool_suggest(char *text, size_t size, const char *word,
                         const char *before, const char *const *names) {
  const char *nearest = NULL;
  /* one mistake in three letters is a slip, more is another word */
  int best = (int)strlen(word) / 3 + 1;
  for (; *names; names++) {
    int distance = distance_of(word, *names);
    if (distance < best || (distance == best && !nearest && best == 1)) {
      best = distance;
      nearest = *names;
    }
  }
  *text = 0;
  if (nearest)
    snprintf(text, size, "; did you mean %s%s?", before, nearest);
  return text;
}
