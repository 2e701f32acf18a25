/* edge_mlp_text.c - a form of MLPs as a text of words "key=value"
 *
 * A store keeps these texts, and strangers send stores: reading one trusts
 * nothing in it. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/error.h"
#include "lib/edge_mlp.h"

static const char *const activations[] = {
    "none",       "relu", "silu",    "gelu",     "gelu-tanh", "elu",
    "leaky-relu", "tanh", "sigmoid", "softplus", NULL};
static const char *const norms[] = {"none", "layer", "rms", NULL};
static const char *const reductions[] = {"none", "sum", "mean",
                                         "max",  "min", NULL};
static const char *const sides[] = {"none", "dst", "src", "both", NULL};
static const char *const gradients[] = {"edge", "parts", "parameters",
                                        "factors", NULL};
static const char *const flags[] = {"0", "1", NULL};

enum { GRADIENTS = 4 };

_Static_assert(sizeof activations / sizeof *activations ==
                       DFGNN_ACTIVATION_COUNT + 1 &&
                   sizeof norms / sizeof *norms == DFGNN_NORM_COUNT + 1 &&
                   sizeof reductions / sizeof *reductions ==
                       DFGNN_REDUCE_COUNT + 1,
               "enumerations and their names differ in number");

/* ---- values of a form, one for each key ---------------------------------- */

typedef struct words {
  int64_t edge, width[DFGNN_MLP_LAYERS];
  int layers;
  int activation, last, gate, norm, residual, reduce, reduce_src, parts, bias,
      affine, factor, out, kept;
  int grads; /* a bit for each of `gradients` */
} words;

static const words usual = {.reduce = DFGNN_REDUCE_SUM,
                            .parts = 3,
                            .bias = 1,
                            .affine = 1,
                            .out = 1,
                            .grads = (1 << GRADIENTS) - 1};

/* The keys whose value is one of a list of names. */
static const struct key {
  const char *name;
  size_t offset;
  const char *const *names;
} keys[] = {
    {"activation", offsetof(words, activation), activations},
    {"last", offsetof(words, last), activations},
    {"gate", offsetof(words, gate), flags},
    {"norm", offsetof(words, norm), norms},
    {"residual", offsetof(words, residual), flags},
    {"reduce", offsetof(words, reduce), reductions},
    {"reduce-src", offsetof(words, reduce_src), reductions},
    {"parts", offsetof(words, parts), sides},
    {"bias", offsetof(words, bias), flags},
    {"affine", offsetof(words, affine), flags},
    {"factor", offsetof(words, factor), sides},
    {"out", offsetof(words, out), flags},
    {"kept", offsetof(words, kept), flags},
};
enum { KEYS = sizeof keys / sizeof *keys, EDGE = KEYS, WIDTH, GRADS };

/* The number of a key; -1: there is none of this name. */
static int key_number(const char *name) {
  static const char *const others[] = {"edge", "width", "grads"};
  for (int k = 0; k < KEYS; k++)
    if (!strcmp(keys[k].name, name))
      return k;
  for (int k = EDGE; k <= GRADS; k++)
    if (!strcmp(others[k - EDGE], name))
      return k;
  return -1;
}

static int *value_of(words *w, const struct key *key) {
  return (int *)((char *)w + key->offset);
}

static int has(const dfgnn_mlp_form *f, unsigned bit) {
  return (f->has & bit) != 0;
}

/* Is a gradient not wanted that there might be? */
static int leaves_out_gradients(const dfgnn_mlp_form *f) {
  dfgnn_mlp_form all = *f;
  all.has |= DFGNN_MLP_GRAD_EDGE | DFGNN_MLP_GRAD_PARTS |
             DFGNN_MLP_GRAD_PARAMETERS | DFGNN_MLP_GRAD_FACTORS;
  dfgnn__mlp_form_settle(&all);
  return all.has != f->has;
}

/* What a settled form rules out has its usual value. */
static words words_of(const dfgnn_mlp_form *f) {
  const dfgnn_edge_mlp *mlp = &f->mlp;
  words w = usual;
  w.edge = mlp->edge_dim;
  w.layers = mlp->layers;
  memcpy(w.width, mlp->width, sizeof w.width);
  w.activation = (int)mlp->activation;
  w.last = (int)mlp->last;
  w.gate = mlp->gate;
  w.norm = (int)mlp->norm;
  w.residual = mlp->residual;
  w.reduce = (int)mlp->reduce_dst;
  w.reduce_src = (int)mlp->reduce_src;
  w.parts = has(f, DFGNN_MLP_DST_PART) + 2 * has(f, DFGNN_MLP_SRC_PART);
  w.bias = has(f, DFGNN_MLP_BIAS);
  w.affine = mlp->norm == DFGNN_NORM_NONE || has(f, DFGNN_MLP_AFFINE);
  w.factor = has(f, DFGNN_MLP_DST_FACTOR) + 2 * has(f, DFGNN_MLP_SRC_FACTOR);
  w.out = has(f, DFGNN_MLP_EDGE_OUT);
  w.kept = has(f, DFGNN_MLP_KEPT);
  if (leaves_out_gradients(f))
    for (int i = 0; i < GRADIENTS; i++)
      if (!has(f, DFGNN_MLP_GRAD_EDGE << i))
        w.grads &= ~(1 << i);
  return w;
}

static unsigned bit_if(int holds, unsigned bit) { return holds ? bit : 0; }

static void set_form(dfgnn_mlp_form *f, const words *w) {
  dfgnn_edge_mlp *mlp = &f->mlp;
  mlp->struct_size = sizeof *mlp;
  mlp->edge_dim = w->edge;
  mlp->layers = w->layers;
  memcpy(mlp->width, w->width, sizeof w->width);
  mlp->activation = (dfgnn_activation)w->activation;
  mlp->last = (dfgnn_activation)w->last;
  mlp->gate = w->gate;
  mlp->norm = (dfgnn_norm)w->norm;
  mlp->residual = w->residual;
  mlp->reduce_dst = (dfgnn_reduce)w->reduce;
  mlp->reduce_src = (dfgnn_reduce)w->reduce_src;
  f->has = bit_if(w->parts & 1, DFGNN_MLP_DST_PART) |
           bit_if(w->parts & 2, DFGNN_MLP_SRC_PART) |
           bit_if(w->bias, DFGNN_MLP_BIAS) |
           bit_if(w->affine, DFGNN_MLP_AFFINE) |
           bit_if(w->factor & 1, DFGNN_MLP_DST_FACTOR) |
           bit_if(w->factor & 2, DFGNN_MLP_SRC_FACTOR) |
           bit_if(w->out, DFGNN_MLP_EDGE_OUT) | bit_if(w->kept, DFGNN_MLP_KEPT);
  for (int i = 0; i < GRADIENTS; i++)
    f->has |= bit_if(w->grads >> i & 1, DFGNN_MLP_GRAD_EDGE << i);
  dfgnn__mlp_form_settle(f);
}

/* ---- printing ------------------------------------------------------------ */

static void __attribute__((format(printf, 2, 3)))
append(char *text, const char *format, ...) {
  const size_t length = strlen(text);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text + length, DFGNN_MLP_TEXT - length, format, arguments);
  va_end(arguments);
}

void dfgnn__edge_mlp_print(char text[DFGNN_MLP_TEXT],
                           const dfgnn_mlp_form *form) {
  words w = words_of(form), by_default = usual;
  *text = 0;
  append(text, "edge=%lld,width=", (long long)w.edge);
  for (int l = 0; l < w.layers; l++)
    append(text, "%s%lld", l ? "x" : "", (long long)w.width[l]);
  for (const struct key *k = keys; k < keys + KEYS; k++)
    if (*value_of(&w, k) != *value_of(&by_default, k))
      append(text, ",%s=%s", k->name, k->names[*value_of(&w, k)]);
  if (w.grads == usual.grads)
    return;
  append(text, ",grads=%s", w.grads ? "" : "none");
  for (int i = 0, some = 0; i < GRADIENTS; i++)
    if (w.grads >> i & 1)
      append(text, "%s%s", some++ ? "+" : "", gradients[i]);
}

/* ---- reading ------------------------------------------------------------- */

typedef struct word {
  char key[24], value[48];
} word;

static dfgnn_status wrong(const word *w, const char *expected) {
  return dfgnn__fail(DFGNN_ERROR_FORMAT, "MLP: %s is '%s', expected %s", w->key,
                     w->value, expected);
}

/* A name of the list at `value`, up to `end`; -1: none. */
static int name_at(const char *const *names, const char *value, size_t length) {
  for (int i = 0; names[i]; i++)
    if (strlen(names[i]) == length && !strncmp(names[i], value, length))
      return i;
  return -1;
}

static dfgnn_status read_name(int *to, const word *w,
                              const char *const *names) {
  char list[128] = "";
  *to = name_at(names, w->value, strlen(w->value));
  if (*to >= 0)
    return DFGNN_OK;
  for (int i = 0; names[i]; i++)
    snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s",
             i ? ", " : "one of ", names[i]);
  return wrong(w, list);
}

/* Reads a number of 0 to DFGNN_MLP_WIDTH; returns what follows it, NULL if
 * there is none. */
static const char *read_number(int64_t *to, const char *from) {
  char *end;
  if (*from < '0' || *from > '9')
    return NULL;
  errno = 0;
  *to = strtoll(from, &end, 10);
  return errno || *to > DFGNN_MLP_WIDTH ? NULL : end;
}

static dfgnn_status read_widths(words *to, const word *w) {
  const char *at = w->value;
  for (to->layers = 0; to->layers < DFGNN_MLP_LAYERS; at++) {
    at = read_number(&to->width[to->layers], at);
    if (!at || !to->width[to->layers++] || (*at && *at != 'x'))
      break;
    if (!*at)
      return DFGNN_OK;
  }
  return wrong(w, "1 to 4 numbers of 1 to 4096 with x between them");
}

static dfgnn_status read_gradients(words *to, const word *w) {
  to->grads = 0;
  for (const char *at = w->value; strcmp(w->value, "none");) {
    const size_t length = strcspn(at, "+");
    const int found = name_at(gradients, at, length);
    if (found < 0)
      return wrong(w, "none, or edge, parts, parameters and factors with + "
                      "between them");
    to->grads |= 1 << found;
    if (!at[length])
      break;
    at += length + 1;
  }
  return DFGNN_OK;
}

/* Reads a word whose key was not among those seen, a bit each. */
static dfgnn_status read_word(words *to, unsigned *seen, const word *w) {
  const int number = key_number(w->key);
  const char *end;
  if (number < 0)
    return dfgnn__fail(DFGNN_ERROR_FORMAT,
                       "MLP: there is no '%s', expected edge, width, "
                       "activation, last, gate, norm, residual, reduce, "
                       "reduce-src, parts, bias, affine, factor, out, kept or "
                       "grads",
                       w->key);
  if (*seen & 1u << number)
    return dfgnn__fail(DFGNN_ERROR_FORMAT,
                       "MLP: %s=%s is the second '%s', expected one", w->key,
                       w->value, w->key);
  *seen |= 1u << number;
  switch (number) {
  case EDGE:
    end = read_number(&to->edge, w->value);
    return end && !*end ? DFGNN_OK : wrong(w, "a number of 0 to 4096");
  case WIDTH:
    return read_widths(to, w);
  case GRADS:
    return read_gradients(to, w);
  default:
    return read_name(value_of(to, &keys[number]), w, keys[number].names);
  }
}

/* Takes the word before the next comma; returns what follows, NULL if it is no
 * word. */
static const char *take_word(word *w, const char *text) {
  const size_t length = strcspn(text, ","), key = strcspn(text, "=,");
  if (key == length || key >= sizeof w->key ||
      length - key - 1 >= sizeof w->value)
    return NULL;
  snprintf(w->key, sizeof w->key, "%.*s", (int)key, text);
  snprintf(w->value, sizeof w->value, "%.*s", (int)(length - key - 1),
           text + key + 1);
  return text + length + (text[length] == ',');
}

dfgnn_status dfgnn__edge_mlp_read(dfgnn_mlp_form *form, const char *text) {
  words w = usual;
  unsigned seen = 0;
  w.edge = -1;
  dfgnn_status status = DFGNN_OK;
  for (const char *at = text; !status && *at;) {
    word next;
    const char *rest = take_word(&next, at);
    if (!rest)
      return dfgnn__fail(DFGNN_ERROR_FORMAT,
                         "MLP: found '%.40s', expected words key=value with "
                         "commas between them",
                         at);
    status = read_word(&w, &seen, &next);
    at = rest;
  }
  if (!status && (w.edge < 0 || !w.layers))
    status = dfgnn__fail(DFGNN_ERROR_FORMAT,
                         "MLP: '%.40s' has no %s, expected one like "
                         "\"edge=128,width=128x128,activation=silu\"",
                         text, w.edge < 0 ? "edge" : "width");
  if (status)
    return status;
  set_form(form, &w);
  return dfgnn__edge_mlp_check(&form->mlp);
}
