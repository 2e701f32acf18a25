/* parse.c - the text of a program
 *
 *   text       statement { (newline | ";") statement }       # comments
 *   statement  place item { "," item }          dst q[H,D], x
 *            | name "=" value
 *            | "return" result { "," result }   the last value, without one
 *   result     name [ "=" value ] [ "as" place shape ]
 *   shape      "[" size { "," size } "]"        at most three
 *   size       [ number "*" ] name | number, added or subtracted
 *   value      comparisons, + -, * /, -, **, as in Python; name(...);
 *              value[begin:end, ...] of the last axes
 * Newlines inside brackets, and after a comma of a list, count for nothing. */
#include "kernels/program/parse.h"

#include <stdlib.h>

#include "lib/base/locale.h"

/* ---- statements ---------------------------------------------------------- */

/* A comma, after which the list may go on in the next line. */
static int more(parser *p) {
  if (dfgnn__parse_failed(p) || !dfgnn__parse_accept(p, ","))
    return 0;
  while (p->next.kind == LINE)
    dfgnn__parse_advance(p);
  return 1;
}

static void declare(parser *p, dfgnn_place place) {
  dfgnn__parse_advance(p);
  do {
    token name = dfgnn__parse_name(p, "the name of an input");
    dfgnn_port port = {.place = place};
    memcpy(port.name, name.text, sizeof port.name);
    port.rank = dfgnn__parse_shape(p, port.shape, 1);
    if (dfgnn__parse_failed(p))
      return;
    int32_t node = dfgnn__dag_input(p->dag, &port);
    dfgnn__parse_tell(p, &name);
    dfgnn__parse_define(p, &name, node);
  } while (more(p));
}

static void spread_output(parser *p, dfgnn_port *port, const token *at) {
  dfgnn_place place = port->place;
  int declared = dfgnn__token_place(&p->next);
  dfgnn_size shape[DFGNN_DAG_AXES];
  if (declared < 0) {
    dfgnn__parse_fail(p, &p->next,
                      "found %s, expected param, dst, src, edge or rel",
                      dfgnn__token_text(&p->next));
    return;
  }
  dfgnn__parse_advance(p);
  port->rank = dfgnn__parse_shape(p, shape, 1);
  if (dfgnn__parse_failed(p))
    return;
  if (dfgnn__place_join(place, declared) != declared)
    dfgnn__parse_fail(p, at, "\"%s\" is a value of %s, which %s does not hold",
                      port->name, dfgnn__place_name(place),
                      dfgnn__place_name(declared));
  dfgnn__make_expand(p->dag, port->node, shape);
  dfgnn__parse_tell(p, at);
  port->place = (dfgnn_place)declared;
  memcpy(port->shape, shape, sizeof port->shape);
}

static void results(parser *p) {
  dfgnn__parse_advance(p);
  do {
    token name = dfgnn__parse_name(p, "the name of a result");
    int32_t node = 0;
    if (dfgnn__parse_accept(p, "=")) {
      node = dfgnn__parse_value(p);
    } else if (!dfgnn__parse_failed(p)) {
      const variable *v = dfgnn__parse_find(p, name.text);
      if (!v)
        dfgnn__parse_fail(p, &name,
                          "\"%s\" has no value: expected NAME or NAME = VALUE",
                          name.text);
      node = v ? v->node : 0;
    }
    if (dfgnn__parse_failed(p))
      return;
    dfgnn_port port = dfgnn__dag_port(p->dag, name.text, 0, node);
    if (dfgnn__parse_sees(p, NAME, "as")) {
      dfgnn__parse_advance(p);
      spread_output(p, &port, &name);
    }
    dfgnn__dag_output(p->dag, &port);
    dfgnn__parse_tell(p, &name);
  } while (more(p));
  p->returned = 1;
}

static void assign(parser *p) {
  token name = dfgnn__parse_name(p, "a declaration, a value or return");
  if (dfgnn__parse_find(p, name.text))
    dfgnn__parse_fail(p, &name,
                      "\"%s\" has a value already; give this one another name",
                      name.text);
  dfgnn__parse_expect(p, "=", "after the name of a value");
  int32_t node = dfgnn__parse_value(p);
  dfgnn__parse_define(p, &name, node);
}

static void statement(parser *p) {
  int place = dfgnn__token_place(&p->next);
  if (p->returned)
    dfgnn__parse_fail(p, &p->next,
                      "found %s after return, expected the end of the text",
                      dfgnn__token_text(&p->next));
  else if (place >= 0)
    declare(p, (dfgnn_place)place);
  else if (dfgnn__parse_sees(p, NAME, "return"))
    results(p);
  else
    assign(p);
  if (!dfgnn__parse_failed(p) && p->next.kind != LINE && p->next.kind != END)
    dfgnn__parse_fail(p, &p->next,
                      "found %s, expected the end of the statement",
                      dfgnn__token_text(&p->next));
}

/* Without return the last value is the result. */
static void finish(parser *p) {
  if (dfgnn__parse_failed(p) || p->returned)
    return;
  if (p->count == p->dag->input_count) {
    dfgnn__parse_fail(p, &p->next, "the program has no value to return");
    return;
  }
  const variable *last = &p->variables[p->count - 1];
  dfgnn_port port = dfgnn__dag_port(p->dag, last->name, 0, last->node);
  dfgnn__dag_output(p->dag, &port);
}

/* ---- the whole ----------------------------------------------------------- */

static dfgnn_status parse(dfgnn_dag **dag, const char *text, int as_written) {
  if (strnlen(text, DFGNN_DAG_TEXT + 1) > DFGNN_DAG_TEXT)
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                       "the text of a program has more than %d bytes",
                       DFGNN_DAG_TEXT);
  parser p = {.dag = dfgnn__dag_new(), .here = text, .line = 1, .column = 1};
  if (!p.dag)
    return DFGNN_ERROR_MEMORY;
  p.dag->as_written = as_written;
  const locale_t before = dfgnn__locale_begin();
  dfgnn__parse_advance(&p);
  while (!dfgnn__parse_failed(&p) && p.next.kind != END) {
    if (p.next.kind != LINE)
      statement(&p);
    else
      dfgnn__parse_advance(&p);
  }
  finish(&p);
  dfgnn__locale_end(before);
  dfgnn_status status = p.dag->status;
  if (!status && !(*dag = dfgnn__dag_finish(p.dag)))
    status = DFGNN_ERROR_MEMORY;
  dfgnn__dag_free(p.dag);
  free(p.variables);
  return status;
}

dfgnn_status dfgnn__dag_parse(dfgnn_dag **dag, const char *text) {
  return parse(dag, text, 0);
}

dfgnn_status dfgnn__dag_parse_as_written(dfgnn_dag **dag, const char *text) {
  return parse(dag, text, 1);
}
