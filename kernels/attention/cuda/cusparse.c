/* cusparse.c - cuSPARSE behind the unfused baseline */
#include "kernels/attention/cuda/cusparse.h"

#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "kernels/common/cusparse.h"
#include "lib/base/error.h"

enum { QUERY, KEY, VALUE, OUT, DENSE };
enum { SLOTS = 2 }; /* host threads that can launch at the same time */

/* A handle belongs to one call at a time, and only while it is launched. */
typedef struct slot {
  atomic_flag busy;
  void *handle, *scores;
  void *dense[DENSE];
  int64_t leading[DENSE];
} slot;

struct dfgnn_cusparse_state {
  const dfgnn_cusparse *api;
  int64_t rows[DENSE], dim;
  slot slots[SLOTS];
};

static dfgnn_status fail(const dfgnn_cusparse *api, int error,
                         const char *call) {
  return dfgnn__fail(DFGNN_ERROR_DEVICE, "%s: %s", call, api->error(error));
}

#define GO(api, call)                                                          \
  do {                                                                         \
    int error_ = (call);                                                       \
    if (error_ != CUSPARSE_OK) {                                               \
      status = fail(api, error_, #call);                                       \
      goto out;                                                                \
    }                                                                          \
  } while (0)

const char *dfgnn__cusparse_refusal(const dfgnn_setting *setting) {
  const dfgnn_problem *p = setting->problem;
  if (p->dtype != DFGNN_F32)
    return "cuSPARSE serves f32 only";
  if (p->layout != DFGNN_LAYOUT_NHD && p->heads > 1 && p->dim > 1)
    return "cuSPARSE needs layout nhd";
  if (p->dim % 4)
    return "cuSPARSE needs rows of whole 16-byte words";
  if ((double)setting->matrix->edges >
      (double)setting->matrix->destinations * (double)setting->matrix->sources)
    return "cuSPARSE does not take more edges than pairs of nodes";
  if (setting->matrix->offsets64)
    return "cuSPARSE needs offsets of the indices' width";
  if (!dfgnn__cusparse())
    return "libcusparse was not found (DFGNN_CUSPARSE names it)";
  return NULL;
}

/* cuSPARSE loads 16-byte words whatever the stride. */
static int serves(const dfgnn_operand *x) {
  return x->feature == 1 && x->node % 4 == 0 && x->head % 4 == 0 &&
         (uintptr_t)x->data % 16 == 0;
}

int dfgnn__cusparse_serves_scores(const dfgnn_passes *passes) {
  return serves(&passes->query) && serves(&passes->key);
}

int dfgnn__cusparse_serves_gather(const dfgnn_passes *passes) {
  return serves(&passes->value) && serves(&passes->out);
}

static void close_slot(const dfgnn_cusparse *api, slot *s) {
  for (int i = 0; i < DENSE; i++)
    if (s->dense[i])
      api->destroy_dense(s->dense[i]);
  if (s->scores)
    api->destroy_csr(s->scores);
  if (s->handle)
    api->destroy(s->handle);
}

void dfgnn__cusparse_close(dfgnn_cusparse_state *state) {
  if (!state)
    return;
  for (int i = 0; i < SLOTS; i++)
    close_slot(state->api, &state->slots[i]);
  free(state);
}

/* Points a dense matrix at an operand; makes it anew if its stride changed. */
static dfgnn_status bind(dfgnn_cusparse_state *state, slot *s, int which,
                         const void *data, int64_t leading) {
  const dfgnn_cusparse *api = state->api;
  dfgnn_status status = DFGNN_OK;
  if (s->dense[which] && s->leading[which] == leading) {
    GO(api, api->set_dense(s->dense[which], (void *)data));
    return DFGNN_OK;
  }
  if (s->dense[which])
    api->destroy_dense(s->dense[which]);
  s->dense[which] = NULL;
  s->leading[which] = leading;
  GO(api, api->create_dense(&s->dense[which], state->rows[which], state->dim,
                            leading, (void *)data, CUSPARSE_F32,
                            CUSPARSE_ROW_MAJOR));
out:
  return status;
}

/* The descriptors need pointers that are not NULL; calls set the real ones. */
static dfgnn_status open_slot(dfgnn_cusparse_state *state, slot *s,
                              const dfgnn_setting *setting) {
  const dfgnn_cusparse *api = state->api;
  const dfgnn_matrix *m = setting->matrix;
  const int64_t leading = setting->problem->heads * setting->problem->dim;
  void *some = (void *)m->offsets;
  dfgnn_status status = DFGNN_OK;
  GO(api, api->create(&s->handle));
  GO(api, api->create_csr(&s->scores, m->destinations, m->sources, m->edges,
                          some, (void *)m->indices, some, CUSPARSE_I32,
                          CUSPARSE_I32, 0, CUSPARSE_F32));
  for (int i = 0; !status && i < DENSE; i++)
    status = bind(state, s, i, some, leading);
out:
  return status;
}

static dfgnn_status open_state(dfgnn_cusparse_state **state,
                               const dfgnn_setting *setting, int slots) {
  const dfgnn_matrix *m = setting->matrix;
  dfgnn_cusparse_state *s = calloc(1, sizeof *s);
  dfgnn_status status = DFGNN_OK;
  if (!s)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  s->api = dfgnn__cusparse();
  s->dim = setting->problem->dim;
  s->rows[QUERY] = s->rows[OUT] = m->destinations;
  s->rows[KEY] = s->rows[VALUE] = m->sources;
  for (int i = 0; !status && i < slots; i++)
    status = open_slot(s, &s->slots[i], setting);
  if (status)
    dfgnn__cusparse_close(s);
  else
    *state = s;
  return status;
}

dfgnn_status dfgnn__cusparse_open(dfgnn_cusparse_state **state,
                                  const dfgnn_setting *setting) {
  return open_state(state, setting, SLOTS);
}

size_t dfgnn__cusparse_buffer(const dfgnn_setting *setting) {
  const float one = 1, zero = 0;
  dfgnn_cusparse_state *state = NULL;
  dfgnn_status status = DFGNN_OK;
  size_t product = 0, sampled = 0;
  if (open_state(&state, setting, 1))
    return 0;
  const dfgnn_cusparse *api = state->api;
  slot *s = &state->slots[0];
  GO(api, api->sddmm_bytes(s->handle, CUSPARSE_PLAIN, CUSPARSE_TRANSPOSED, &one,
                           s->dense[QUERY], s->dense[KEY], &zero, s->scores,
                           CUSPARSE_F32, CUSPARSE_SDDMM_ALG, &sampled));
  GO(api, api->spmm_bytes(s->handle, CUSPARSE_PLAIN, CUSPARSE_PLAIN, &one,
                          s->scores, s->dense[VALUE], &zero, s->dense[OUT],
                          CUSPARSE_F32, CUSPARSE_SPMM_ALG3, &product));
out:
  (void)status;
  dfgnn__cusparse_close(state);
  return product > sampled ? product : sampled;
}

static slot *take(dfgnn_cusparse_state *state) {
  for (;;) {
    for (int i = 0; i < SLOTS; i++)
      if (!atomic_flag_test_and_set_explicit(&state->slots[i].busy,
                                             memory_order_acquire))
        return &state->slots[i];
    sched_yield();
  }
}

static void give(slot *s) {
  atomic_flag_clear_explicit(&s->busy, memory_order_release);
}

static const float *head_of(const dfgnn_operand *x, int head) {
  return (const float *)x->data + head * x->head;
}

static float *plane(const dfgnn_passes *p, int head) {
  return (float *)p->scores + head * p->edges;
}

dfgnn_status dfgnn__cusparse_scores(dfgnn_cusparse_state *state,
                                    const dfgnn_passes *p, void *buffer,
                                    void *stream) {
  const dfgnn_cusparse *api = state->api;
  const float scale = (float)(p->scale * M_LOG2E), zero = 0;
  dfgnn_status status = DFGNN_OK;
  slot *s = take(state);
  GO(api, api->set_stream(s->handle, stream));
  for (int h = 0; h < p->heads; h++) {
    status = bind(state, s, QUERY, head_of(&p->query, h), p->query.node);
    if (!status)
      status = bind(state, s, KEY, head_of(&p->key, h), p->key.node);
    if (status)
      goto out;
    GO(api, api->set_values(s->scores, plane(p, h)));
    GO(api, api->sddmm(s->handle, CUSPARSE_PLAIN, CUSPARSE_TRANSPOSED, &scale,
                       s->dense[QUERY], s->dense[KEY], &zero, s->scores,
                       CUSPARSE_F32, CUSPARSE_SDDMM_ALG, buffer));
  }
out:
  give(s);
  return status;
}

dfgnn_status dfgnn__cusparse_gather(dfgnn_cusparse_state *state,
                                    const dfgnn_passes *p, void *buffer,
                                    void *stream) {
  const dfgnn_cusparse *api = state->api;
  const float one = 1, zero = 0;
  dfgnn_status status = DFGNN_OK;
  slot *s = take(state);
  GO(api, api->set_stream(s->handle, stream));
  for (int h = 0; h < p->heads; h++) {
    status = bind(state, s, VALUE, head_of(&p->value, h), p->value.node);
    if (!status)
      status = bind(state, s, OUT, head_of(&p->out, h), p->out.node);
    if (status)
      goto out;
    GO(api, api->set_values(s->scores, plane(p, h)));
    GO(api, api->spmm(s->handle, CUSPARSE_PLAIN, CUSPARSE_PLAIN, &one,
                      s->scores, s->dense[VALUE], &zero, s->dense[OUT],
                      CUSPARSE_F32, CUSPARSE_SPMM_ALG3, buffer));
  }
out:
  give(s);
  return status;
}
