/* random_program.h - the text of a random edge program */
#ifndef DFGNN_TESTS_RANDOM_PROGRAM_H
#define DFGNN_TESTS_RANDOM_PROGRAM_H

#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { RANDOM_VALUES = 24 };

/* Values so far: their shapes are [H,D] with each axis there or 1. */
typedef struct random_program {
  char text[8192];
  size_t used;
  uint64_t state;
  int count;
  int heads[RANDOM_VALUES], features[RANDOM_VALUES]; /* is the axis there? */
  int node[RANDOM_VALUES];                           /* of dst: 1 */
} random_program;

static inline int random_below(random_program *p, int n) {
  p->state = p->state * 6364136223846793005u + 1442695040888963407u;
  return (int)((p->state >> 33) % (uint64_t)n);
}

#define RANDOM_PRINT(p, ...)                                                   \
  ((p)->used += (size_t)snprintf((p)->text + (p)->used,                        \
                                 sizeof(p)->text - (p)->used, __VA_ARGS__))

static inline int random_add(random_program *p, int heads, int features,
                             int node) {
  p->heads[p->count] = heads;
  p->features[p->count] = features;
  p->node[p->count] = node;
  return p->count++;
}

static inline void random_inputs(random_program *p, int h, int d) {
  static const char *const places[] = {"dst", "src",   "edge",
                                       "src", "param", "rel"};
  for (int i = 0; i < 6; i++) {
    int heads = random_below(p, 3) > 0, features = random_below(p, 3) > 0;
    RANDOM_PRINT(p, "%s v%d[%d,%d]\n", places[i], i, heads ? h : 1,
                 features ? d : 1);
    random_add(p, heads, features, i == 0 || i == 4);
  }
}

static inline void random_statement(random_program *p, int h, int d) {
  static const char *const unary[] = {"tanh(v%d)",     "sigmoid(v%d)",
                                      "relu(v%d)",     "leaky_relu(v%d, 0.3)",
                                      "sin(v%d)",      "exp(tanh(v%d))",
                                      "softplus(v%d)", "square(v%d)",
                                      "abs(v%d)",      "sqrt(square(v%d) + 1)"};
  static const char *const binary[] = {
      "v%d + v%d",     "v%d * v%d",           "v%d - v%d",
      "max(v%d, v%d)", "atan2(v%d, v%d + 2)", "where(v%d < v%d, 0.5, 2)"};
  static const char *const over[] = {
      "sum_in(v%d)",  "mean_in(v%d)",     "max_in(v%d)",  "softmax_in(v%d)",
      "sum_out(v%d)", "softmax_out(v%d)", "sum_rel(v%d)", "max_rel(v%d)"};
  int n = p->count, a = random_below(p, n), b = random_below(p, n);
  int heads = p->heads[a], features = p->features[a], node = p->node[a];
  RANDOM_PRINT(p, "v%d = ", n);
  switch (random_below(p, 7)) {
  case 0:
    RANDOM_PRINT(p, unary[random_below(p, 10)], a);
    break;
  case 1:
  case 2:
    RANDOM_PRINT(p, binary[random_below(p, 6)], a, b);
    heads |= p->heads[b];
    features |= p->features[b];
    node &= p->node[b];
    break;
  case 3:
    RANDOM_PRINT(p, random_below(p, 2) ? "sum(v%d) * 0.3" : "amax(v%d)", a);
    features = 0;
    break;
  case 4: {
    int which = random_below(p, 8);
    RANDOM_PRINT(p, over[which], a);
    node = which < 3;
    break;
  }
  case 5: /* other axes, by way of a slice and a cat */
    if (features && random_below(p, 2)) {
      RANDOM_PRINT(p, "cat(v%d[2:], v%d[:2])", a, a);
    } else if (features && heads && random_below(p, 2)) {
      RANDOM_PRINT(p, "transpose(square(transpose(v%d, -1, -2)), -2, -1)", a);
    } else if (features) {
      RANDOM_PRINT(p, "v%d[0, :] + 0.1", a);
      heads = 0;
    } else if (heads) {
      RANDOM_PRINT(p, "sum(v%d, -2)", a);
      heads = 0;
    } else {
      RANDOM_PRINT(p, "expand(v%d, [%d,%d])", a, h, d);
      heads = features = 1;
    }
    break;
  default: /* the softmax of a score, and a sum that it weights */
    RANDOM_PRINT(p, "sum_in(softmax_in(v%d) * v%d)", a, b);
    heads |= p->heads[b];
    features |= p->features[b];
    node = 1;
  }
  RANDOM_PRINT(p, "\n");
  random_add(p, heads, features, node);
}

/* A program of some ten statements, with outputs of nodes and of all. */
static inline void random_text(random_program *p, uint64_t seed) {
  *p = (random_program){.state = seed * 0x9e3779b97f4a7c15u + 1};
  int h = 1 + random_below(p, 4), d = 3 + random_below(p, 14);
  random_inputs(p, h, d);
  int statements = 4 + random_below(p, 8);
  for (int i = 0; i < statements; i++)
    random_statement(p, h, d);
  RANDOM_PRINT(p,
               "return a = sum_in(v%d), b = sum_out(v%d * v%d), "
               "c = sum_all(v%d), d = v%d * v1, e = sum_rel(v%d)\n",
               p->count - 1, p->count - 2, p->count - 3, p->count - 1,
               p->count - 3, p->count - 1);
}

#endif
