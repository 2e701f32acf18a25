/* decided.h - choices that were made before, for graphs like the one at hand
 *
 * A sampler makes a new graph each step, and all of them alike: the choice for
 * one serves the others, without a search.  A graph is known by its shape
 * as long as its signature is still on the device, then by its signature; both
 * are rounded, so that graphs that differ little have one key.  A context
 * forgets the choices when its decisions are loaded anew. */
#ifndef DFGNN_LIB_DECIDED_H
#define DFGNN_LIB_DECIDED_H

#include "lib/context.h"

/* The keys of a choice; no key is 0. */
uint64_t dfgnn__decided_by_shape(const dfgnn_query *query, uint64_t problem);
uint64_t dfgnn__decided_by_signature(const dfgnn_query *query,
                                     uint64_t problem);
/* The key of the fact that all programs of a variant were compiled. */
uint64_t dfgnn__decided_compiled(const dfgnn_query *query, uint64_t problem,
                                 const dfgnn_variant *variant);

/* Is there a choice of this key?  choice may be NULL. */
int dfgnn__decided_find(dfgnn_choice *choice, dfgnn_context *ctx, uint64_t key);
/* Keeps a choice, in the place of an older one if there are many. */
void dfgnn__decided_keep(dfgnn_context *ctx, uint64_t key,
                         const dfgnn_choice *choice);
/* The caller holds ctx->lock, or nobody else has the context. */
void dfgnn__decided_forget(dfgnn_context *ctx);

#endif
