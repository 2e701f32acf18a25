/* xla_call.c - what custom calls of operators and of edge programs share:
 * attributes, the device, the matrix, memory */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dfgnn_xla.h"
#include "lib/base/error.h"
#include "lib/context.h"
#include "lib/xla_call.h"

enum { MOST_GPUS = 64 };

/* ---- attributes --------------------------------------------------------- */

static const void *attribute(const dfgnn_xla *c, const char *name, int kind) {
  const xla_attributes *all = &c->frame->attributes;
  for (int64_t i = 0; i < all->count; i++)
    if (all->kinds[i] == kind && all->names[i]->length == strlen(name) &&
        !memcmp(all->names[i]->start, name, strlen(name)))
      return all->values[i];
  return NULL;
}

dfgnn_status dfgnn__xla_text(char **text, const dfgnn_xla *c,
                             const char *name) {
  const xla_text *found = attribute(c, name, XLA_ATTRIBUTE_STRING);
  *text = NULL;
  if (!found)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "XLA call: the attribute %s must be a text", name);
  if (!(*text = malloc(found->length + 1)))
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  memcpy(*text, found->start, found->length);
  (*text)[found->length] = 0;
  return DFGNN_OK;
}

dfgnn_status dfgnn__xla_word(char word[DFGNN_XLA_WORD], const dfgnn_xla *c,
                             const char *name) {
  const xla_text *found = attribute(c, name, XLA_ATTRIBUTE_STRING);
  if (!found || found->length >= DFGNN_XLA_WORD)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "XLA call: the attribute %s must be a text of less than "
                       "%d characters",
                       name, DFGNN_XLA_WORD);
  memcpy(word, found->start, found->length);
  word[found->length] = 0;
  return DFGNN_OK;
}

dfgnn_status dfgnn__xla_integer(int64_t *value, const dfgnn_xla *c,
                                const char *name) {
  const xla_scalar *found = attribute(c, name, XLA_ATTRIBUTE_SCALAR);
  if (!found || found->type != XLA_S64)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "XLA call: the attribute %s must be an int64", name);
  memcpy(value, found->value, sizeof *value);
  return DFGNN_OK;
}

/* ---- devices ---------------------------------------------------------------
 */

static pthread_mutex_t contexts_lock = PTHREAD_MUTEX_INITIALIZER;
static dfgnn_context *contexts[1 + MOST_GPUS]; /* the CPU's, then GPUs' */

dfgnn_status dfgnn_xla_context(dfgnn_context **ctx, int on_gpu, int ordinal) {
  char device[32] = "cpu";
  dfgnn_options options = DFGNN_OPTIONS_INIT;
  dfgnn_status status = DFGNN_OK;
  const int place = on_gpu ? 1 + ordinal : 0;
  if (ordinal < 0 || ordinal >= MOST_GPUS)
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                       "XLA call: device %d, expected 0 .. %d", ordinal,
                       MOST_GPUS - 1);
  if (on_gpu)
    snprintf(device, sizeof device, "cuda:%d", ordinal);
  options.device = device;
  pthread_mutex_lock(&contexts_lock);
  if (!contexts[place])
    status = dfgnn_context_create(&contexts[place], &options);
  *ctx = contexts[place];
  pthread_mutex_unlock(&contexts_lock);
  return status;
}

static dfgnn_status refused(const dfgnn_xla *c, xla_error *error,
                            const char *attempt) {
  xla_error_message_arguments words = {.struct_size = sizeof words,
                                       .error = error};
  xla_error_destroy_arguments arguments = {.struct_size = sizeof arguments,
                                           .error = error};
  c->frame->api->error_message(&words);
  dfgnn_status status =
      dfgnn__fail(DFGNN_ERROR_DEVICE, "XLA call: XLA refused to %s: %s",
                  attempt, words.message ? words.message : "no reason given");
  c->frame->api->error_destroy(&arguments);
  return status;
}

static dfgnn_status find_device(dfgnn_xla *c) {
  const xla_frame *frame = c->frame;
  xla_stream_arguments stream = {.struct_size = sizeof stream,
                                 .execution = frame->execution};
  xla_ordinal_arguments device = {.struct_size = sizeof device,
                                  .execution = frame->execution};
  xla_error *error;
  if (!c->on_gpu)
    return dfgnn_xla_context(&c->ctx, 0, 0);
  if (frame->api->struct_size <
      offsetof(xla_api, ordinal_get) + sizeof frame->api->ordinal_get)
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                       "XLA call: this XLA does not tell on which GPU a call "
                       "runs; a newer jax does");
  if ((error = frame->api->stream_get(&stream)))
    return refused(c, error, "tell the stream");
  if ((error = frame->api->ordinal_get(&device)))
    return refused(c, error, "tell the number of the device");
  c->stream = stream.stream;
  return dfgnn_xla_context(&c->ctx, 1, device.ordinal);
}

/* ---- buffers ---------------------------------------------------------------
 */

dfgnn_status dfgnn__xla_each(const dfgnn_xla *c, const char *attribute_name,
                             const xla_buffers *buffers, int64_t first,
                             dfgnn_xla_taker *take, void *taker) {
  char *names, *rest, *name;
  int64_t i = 0;
  dfgnn_status status = dfgnn__xla_text(&names, c, attribute_name);
  rest = names;
  while (!status && (name = strsep(&rest, ",")) && *name) {
    if (i >= first && i < buffers->count)
      status = take(taker, name, buffers->buffers[i]);
    i++;
  }
  if (!status && i != buffers->count)
    status = dfgnn__fail(
        DFGNN_ERROR_INVALID, "XLA call: %s names %lld buffers of %lld",
        attribute_name, (long long)i, (long long)buffers->count);
  free(names);
  return status;
}

/* Copies memory of the call's device to the host, which waits for it. */
static dfgnn_status read_back(void *value, const dfgnn_xla *c, const void *data,
                              size_t bytes) {
  if (!c->on_gpu) {
    memcpy(value, data, bytes);
    return DFGNN_OK;
  }
  DFGNN_TRY(c->ctx->backend->synchronize(c->ctx->device, c->stream));
  return c->ctx->backend->copy(c->ctx->device, value, data, bytes);
}

/* The number of edges is the last offset, which the host has to know. */
static dfgnn_status count_edges(dfgnn_xla *c, const xla_buffer *offsets) {
  const int wide = offsets->type == XLA_S64;
  const void *last = (const char *)offsets->data +
                     (size_t)c->csr.destinations * (wide ? 8 : 4);
  union {
    int32_t narrow;
    int64_t wide;
  } value = {0};
  dfgnn_status status = read_back(
      &value, c, last, wide ? sizeof value.wide : sizeof value.narrow);
  c->csr.edges = wide ? value.wide : value.narrow;
  return status;
}

static dfgnn_status take_matrix(dfgnn_xla *c) {
  const xla_buffers *arguments = &c->frame->arguments;
  int64_t trusted = 0;
  if (arguments->count < 2)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "XLA call: %lld arguments, expected offsets and indices "
                       "first",
                       (long long)arguments->count);
  const xla_buffer *offsets = arguments->buffers[0],
                   *indices = arguments->buffers[1];
  for (int i = 0; i < 2; i++)
    if (arguments->buffers[i]->rank != 1 ||
        (arguments->buffers[i]->type != XLA_S32 &&
         arguments->buffers[i]->type != XLA_S64))
      return dfgnn__fail(DFGNN_ERROR_INVALID,
                         "XLA call: %s must be a vector of int32 or int64",
                         i ? "indices" : "offsets");
  if (offsets->dims[0] < 1)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "XLA call: offsets must have one element more than "
                       "there are destinations");
  c->csr.destinations = offsets->dims[0] - 1;
  c->csr.offsets = offsets->data;
  c->csr.indices = indices->data;
  c->csr.offset_type =
      offsets->type == XLA_S64 ? DFGNN_INDEX_I64 : DFGNN_INDEX_I32;
  c->csr.index_type =
      indices->type == XLA_S64 ? DFGNN_INDEX_I64 : DFGNN_INDEX_I32;
  c->csr.on_device = 1;
  DFGNN_TRY(dfgnn__xla_integer(&c->csr.sources, c, "sources"));
  DFGNN_TRY(dfgnn__xla_integer(&trusted, c, "trusted"));
  c->csr.trusted = trusted != 0;
  DFGNN_TRY(count_edges(c, offsets));
  if (c->csr.edges < 0 || c->csr.edges > indices->dims[0])
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "XLA call: offsets end at %lld, expected 0 .. %lld, "
                       "the number of indices",
                       (long long)c->csr.edges, (long long)indices->dims[0]);
  return DFGNN_OK;
}

dfgnn_status dfgnn__xla_open(dfgnn_xla *c) {
  DFGNN_TRY(find_device(c));
  return take_matrix(c);
}

/* ---- memory ----------------------------------------------------------------
 */

/* XLA's allocator takes no request of a larger alignment; a workspace wants
 * more (dfgnn_plan_workspace). */
enum { XLA_ALIGNMENT = 16, GPU_ALIGNMENT = 256, CPU_ALIGNMENT = 64 };

static void *aligned_up(void *data) {
  const uintptr_t mask = GPU_ALIGNMENT - 1;
  return (void *)(((uintptr_t)data + mask) & ~mask);
}

static dfgnn_status in_room_of_gpu(const dfgnn_xla *c, size_t bytes,
                                   dfgnn_xla_work *work, const void *subject) {
  const xla_api *api = c->frame->api;
  xla_allocate_arguments take = {.struct_size = sizeof take,
                                 .execution = c->frame->execution,
                                 .size = bytes + GPU_ALIGNMENT - XLA_ALIGNMENT,
                                 .alignment = XLA_ALIGNMENT};
  xla_error *error = api->memory_allocate(&take);
  if (error)
    return refused(c, error, "allocate memory");
  dfgnn_status status = work(subject, aligned_up(take.data), c->stream);
  /* The memory is freed in the order of the stream. */
  xla_free_arguments give = {.struct_size = sizeof give,
                             .execution = c->frame->execution,
                             .size = take.size,
                             .data = take.data};
  error = api->memory_free(&give);
  if (!error)
    return status;
  dfgnn_status kept = refused(c, error, "free memory");
  return status ? status : kept;
}

dfgnn_status dfgnn__xla_in_room(const dfgnn_xla *c, size_t bytes,
                                dfgnn_xla_work *work, const void *subject) {
  void *workspace = NULL;
  if (bytes && c->on_gpu)
    return in_room_of_gpu(c, bytes, work, subject);
  if (bytes && !(workspace = aligned_alloc(CPU_ALIGNMENT,
                                           (bytes + CPU_ALIGNMENT - 1) /
                                               CPU_ALIGNMENT * CPU_ALIGNMENT)))
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  dfgnn_status status = work(subject, workspace, c->stream);
  free(workspace);
  return status;
}
