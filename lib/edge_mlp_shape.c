/* edge_mlp_shape.c - the shapes of MLPs that the process has met, and problems
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/descriptor.h"
#include "lib/base/error.h"
#include "lib/edge_mlp.h"
#include "lib/handle.h"

enum {
  CHAINS = 256,
  MOST = 1 << 14,        /* shapes of a process */
  MOST_STORED = MOST / 2 /* with more, those of stores are passed over, so that
                          * calls find room whatever a store holds */
};

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static struct dfgnn_mlp_shape *chains[CHAINS];
static int count;

/* Aligned as device memory is; nothing reads from this address. */
static char *const nowhere = (char *)0x10000;

/* ---- shapes -------------------------------------------------------------- */

static uint64_t hash_of(const void *data, size_t bytes) {
  const unsigned char *byte = data;
  uint64_t hash = 14695981039346656037u; /* FNV-1a */
  for (size_t i = 0; i < bytes; i++)
    hash = (hash ^ byte[i]) * 1099511628211u;
  return hash;
}

static unsigned chain_of(const dfgnn_mlp_form *form) {
  const uint64_t hash = hash_of(form, sizeof *form);
  return (unsigned)(hash ^ hash >> 32) % CHAINS;
}

static struct dfgnn_mlp_shape *find(const dfgnn_mlp_form *form,
                                    unsigned chain) {
  struct dfgnn_mlp_shape *s = chains[chain];
  while (s && memcmp(&s->form, form, sizeof *form))
    s = s->next;
  return s;
}

/* The job of a form, with tensors that are nowhere. */
static void stand_in(dfgnn_mlp_job *job, const dfgnn_mlp_form *form) {
  *job = (dfgnn_mlp_job){.mlp = form->mlp, .pass = form->pass};
  job->args.struct_size = sizeof job->args;
  for (const dfgnn_mlp_tensor *t = dfgnn__mlp_tensors; t->name; t++)
    if (dfgnn__mlp_tensor_used(t, form))
      *dfgnn__mlp_tensor_slot(t, &job->args) = nowhere;
}

static struct dfgnn_mlp_shape *add(const dfgnn_mlp_form *form, unsigned chain,
                                   int most) {
  struct dfgnn_mlp_shape *s = count < most ? calloc(1, sizeof *s) : NULL;
  if (!s)
    return NULL;
  s->kind = DFGNN_HANDLE_MLP_SHAPE;
  memcpy(&s->form, form, sizeof *form);
  stand_in(&s->job, form);
  dfgnn__edge_mlp_print(s->text, form);
  snprintf(s->name, sizeof s->name, "%016llx",
           (unsigned long long)hash_of(s->text, strlen(s->text)));
  s->next = chains[chain];
  chains[chain] = s;
  count++;
  return s;
}

static dfgnn_status know(const struct dfgnn_mlp_shape **shape,
                         const dfgnn_mlp_form *form, int most) {
  const unsigned chain = chain_of(form);
  pthread_rwlock_rdlock(&lock);
  *shape = find(form, chain);
  pthread_rwlock_unlock(&lock);
  if (*shape)
    return DFGNN_OK;
  pthread_rwlock_wrlock(&lock);
  *shape = find(form, chain); /* another thread may have been faster */
  if (!*shape)
    *shape = add(form, chain, most);
  pthread_rwlock_unlock(&lock);
  return *shape ? DFGNN_OK
                : dfgnn__fail(DFGNN_ERROR_MEMORY,
                              "no memory for a shape of MLPs, or the process "
                              "has %d",
                              most);
}

dfgnn_status dfgnn__edge_mlp_known(const struct dfgnn_mlp_shape **shape,
                                   const dfgnn_mlp_form *form) {
  return know(shape, form, MOST);
}

static dfgnn_status form_of_text(dfgnn_mlp_form *form, const char *text,
                                 dfgnn_dtype dtype, dfgnn_math math,
                                 dfgnn_pass pass) {
  memset(form, 0, sizeof *form);
  form->mlp.dtype = dtype;
  form->mlp.math = math;
  form->pass = pass;
  return dfgnn__edge_mlp_read(form, text);
}

dfgnn_status dfgnn__edge_mlp_stored(const struct dfgnn_mlp_shape **shape,
                                    const char *hash, const char *text,
                                    const dfgnn_problem *problem) {
  const struct dfgnn_mlp_shape *found = NULL;
  dfgnn_mlp_form form;
  *shape = NULL;
  if (!hash || !text)
    return dfgnn__fail(DFGNN_ERROR_FORMAT, "an edge_mlp without %s",
                       text ? "its hash, 'program'"
                            : "'program_text', the text of the MLP");
  dfgnn_status status =
      form_of_text(&form, text, problem->dtype, problem->math, problem->pass);
  if (!status)
    status = know(&found, &form, MOST_STORED);
  if (!status && strcmp(found->name, hash))
    status = dfgnn__fail(DFGNN_ERROR_FORMAT,
                         "the hash of MLP \"%s\" is %s, expected %s", text,
                         hash, found->name);
  *shape = status ? NULL : found;
  return status;
}

/* ---- problems ------------------------------------------------------------ */

static int64_t widest(const dfgnn_edge_mlp *mlp) {
  int64_t most = mlp->edge_dim;
  for (int l = 0; l < mlp->layers; l++)
    most = mlp->width[l] > most ? mlp->width[l] : most;
  return most;
}

dfgnn_status dfgnn__edge_mlp_complete(dfgnn_problem *complete,
                                      const dfgnn_problem *problem) {
  const struct dfgnn_mlp_shape *shape = problem->mlp;
  if (!dfgnn__is(shape, DFGNN_HANDLE_MLP_SHAPE))
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "problem.mlp is %s, expected what "
                       "dfgnn_edge_mlp_problem or dfgnn_edge_mlp_parse gave",
                       shape ? "no shape of an MLP" : "NULL");
  complete->mlp = shape;
  complete->pass = shape->form.pass;
  complete->dtype = shape->form.mlp.dtype;
  complete->math = shape->form.mlp.math;
  complete->layout = DFGNN_LAYOUT_NHD;
  complete->heads = 1;
  complete->dim = widest(&shape->form.mlp);
  return DFGNN_OK;
}

/* Writes the problem of a form to a caller's struct. */
static dfgnn_status give(dfgnn_problem *problem, const dfgnn_mlp_form *form) {
  static const dfgnn_descriptor_kind kind =
      DFGNN_DESCRIPTOR("problem", dfgnn_problem, "DFGNN_PROBLEM_INIT");
  dfgnn_problem full = DFGNN_PROBLEM_INIT;
  dfgnn_status status = dfgnn__can_give(problem, &kind);
  full.op = DFGNN_OP_MLP;
  if (!status)
    status = dfgnn__edge_mlp_known(&full.mlp, form);
  if (!status)
    status = dfgnn__edge_mlp_complete(&full, &full);
  if (!status)
    dfgnn__give(problem, &full, &kind);
  return status;
}

dfgnn_status dfgnn_edge_mlp_problem(dfgnn_problem *problem,
                                    const dfgnn_edge_mlp *mlp,
                                    const dfgnn_edge_mlp_args *args,
                                    dfgnn_pass pass) {
  dfgnn_mlp_job job;
  dfgnn_mlp_form form;
  dfgnn_status status = dfgnn__edge_mlp_take(&job, mlp, args, pass);
  if (status)
    return status;
  dfgnn__mlp_form_of(&form, &job);
  return give(problem, &form);
}

dfgnn_status dfgnn_edge_mlp_parse(dfgnn_problem *problem, const char *text,
                                  dfgnn_dtype dtype, dfgnn_math math,
                                  dfgnn_pass pass) {
  dfgnn_mlp_form form;
  if (!text)
    return dfgnn__fail(DFGNN_ERROR_INVALID, "text is NULL");
  if (pass != DFGNN_PASS_FORWARD && pass != DFGNN_PASS_BACKWARD)
    return dfgnn__fail(DFGNN_ERROR_INVALID, "pass is %d", (int)pass);
  dfgnn_status status = form_of_text(&form, text, dtype, math, pass);
  return status ? status : give(problem, &form);
}

const char *dfgnn_edge_mlp_text(const dfgnn_problem *problem) {
  return problem && problem->op == DFGNN_OP_MLP &&
                 dfgnn__is(problem->mlp, DFGNN_HANDLE_MLP_SHAPE)
             ? problem->mlp->text
             : NULL;
}

const dfgnn_mlp_job *dfgnn__edge_mlp_job(const dfgnn_problem *problem) {
  return problem->op == DFGNN_OP_MLP && problem->mlp ? &problem->mlp->job
                                                     : NULL;
}

double dfgnn__edge_mlp_bytes(const dfgnn_problem *problem, int64_t destinations,
                             int64_t sources, int64_t edges) {
  const int64_t rows[] = {[DFGNN_MLP_ROWS_ONE] = 1,
                          [DFGNN_MLP_ROWS_DST] = destinations,
                          [DFGNN_MLP_ROWS_SRC] = sources,
                          [DFGNN_MLP_ROWS_EDGE] = edges};
  const dfgnn_mlp_form *form = &problem->mlp->form;
  double bytes = 0;
  for (const dfgnn_mlp_tensor *t = dfgnn__mlp_tensors; t->name; t++)
    if (dfgnn__mlp_tensor_used(t, form))
      bytes += (double)dfgnn__mlp_tensor_bytes(t, form, rows[t->rows]);
  return bytes;
}

double dfgnn__edge_mlp_gathered(const dfgnn_problem *problem) {
  const dfgnn_mlp_form *form = &problem->mlp->form;
  double bytes = 0;
  for (const dfgnn_mlp_tensor *t = dfgnn__mlp_tensors; t->name; t++)
    if (t->rows == DFGNN_MLP_ROWS_SRC && dfgnn__mlp_tensor_used(t, form) &&
        dfgnn__mlp_tensor_read(t, form))
      bytes += (double)dfgnn__mlp_tensor_bytes(t, form, 1);
  return bytes;
}
