#include "lib/decided.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/key.h"
#include "select/select.h"

enum { SLOTS = 1024, PROBES = 4 };

struct dfgnn_decided {
  struct {
    uint64_t key; /* 0: empty */
    dfgnn_choice choice;
  } slot[SLOTS];
  unsigned next; /* which of a key's places is overwritten next */
};

static uint64_t not_zero(uint64_t key) { return key ? key : 1; }

/* Rounds a count to `shares` parts of an octave. */
static uint64_t fold_count(uint64_t h, int64_t count, int shares) {
  return dfgnn__fold(h, (uint64_t)floor(log2((double)count + 1) * shares + .5));
}

uint64_t dfgnn__decided_by_shape(const dfgnn_query *query, uint64_t problem) {
  const dfgnn_matrix *m = query->setting.matrix;
  const int family = query->family && *query->family;
  const int shares = family ? 1 : 4; /* a family says that graphs are alike */
  uint64_t h = dfgnn__fold(problem, (uint64_t)m->offsets64);
  h = fold_count(h, m->destinations, shares);
  h = fold_count(h, m->sources, shares);
  h = fold_count(h, m->edges, shares);
  h = fold_count(h, query->setting.signature->graphs, 1);
  return not_zero(dfgnn__fold_text(h, family ? query->family : ""));
}

uint64_t dfgnn__decided_by_signature(const dfgnn_query *query,
                                     uint64_t problem) {
  const dfgnn_setting *s = &query->setting;
  double feature[DFGNN_FEATURES];
  dfgnn__features(feature, s->signature, s->problem->heads, s->problem->dim,
                  dfgnn_dtype_size(s->problem->dtype), s->device);
  uint64_t h = dfgnn__fold(problem + 1, (uint64_t)s->matrix->offsets64);
  h = dfgnn__quantised(h, feature);
  return not_zero(dfgnn__fold_text(h, query->family ? query->family : ""));
}

uint64_t dfgnn__decided_compiled(const dfgnn_query *query, uint64_t problem,
                                 const dfgnn_variant *variant) {
  uint64_t h =
      dfgnn__fold(problem + 2, (uint64_t)query->setting.matrix->offsets64);
  return not_zero(dfgnn__fold(h, (uint64_t)dfgnn__variant_index(variant)));
}

int dfgnn__decided_find(dfgnn_choice *choice, dfgnn_context *ctx,
                        uint64_t key) {
  int found = 0;
  pthread_mutex_lock(&ctx->lock);
  for (uint64_t k = 0; ctx->decided && k < PROBES && !found; k++)
    if (ctx->decided->slot[(key + k) % SLOTS].key == key) {
      if (choice)
        *choice = ctx->decided->slot[(key + k) % SLOTS].choice;
      found = 1;
    }
  pthread_mutex_unlock(&ctx->lock);
  return found;
}

void dfgnn__decided_keep(dfgnn_context *ctx, uint64_t key,
                         const dfgnn_choice *choice) {
  pthread_mutex_lock(&ctx->lock);
  if (!ctx->decided)
    ctx->decided = calloc(1, sizeof *ctx->decided);
  struct dfgnn_decided *d = ctx->decided;
  if (d) { /* without memory, nothing is remembered */
    uint64_t at = (key + d->next++ % PROBES) % SLOTS;
    for (uint64_t k = 0; k < PROBES; k++) {
      const uint64_t there = d->slot[(key + k) % SLOTS].key;
      if (there == key || !there) {
        at = (key + k) % SLOTS;
        break;
      }
    }
    d->slot[at].key = key;
    d->slot[at].choice = *choice;
  }
  pthread_mutex_unlock(&ctx->lock);
}

void dfgnn__decided_forget(dfgnn_context *ctx) {
  free(ctx->decided);
  ctx->decided = NULL;
}
