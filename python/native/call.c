/* The calls that every step of the Python package makes, without ctypes.
 *
 *   call(form, plan, types, workspace, stream, tensors) -> dfgnn_status, or -1
 *
 * fills in dfgnn_args with the memory of tensors, whose types and layouts it
 * checks, and runs a plan.
 *
 * form holds a call_form, its links, its fields and the dfgnn_args that all
 * calls share, as python/dfgnn/_library.py packs them; types has the dtype of
 * each field, or None. A tensor, its workspace too, is whatever has .dtype,
 * .is_contiguous(), .stride() and .data_ptr(), so nothing here depends on a
 * version of torch; a number is an address, None is NULL.  -1 says that a
 * tensor does not lie as the library reads it: nothing ran, and the caller has
 * to make another.
 *
 *   graph(library, context, edge_index, edges, is_wide, sources, destinations,
 *         loops, stream) -> (graph,), or a dfgnn_status
 *   plan(library, context, graph, problem) -> (plan, workspace), or a status
 *   destroy(library, graph, plans, stream)
 *
 * make graphs of the edge lists of batches, whose checks are deferred, and
 * their plans.  library is a call_library, graphs, plans and memory are
 * addresses, and problem holds a dfgnn_problem.
 *
 * Of Python it uses the stable ABI of 3.10, so that one file serves them all.
 */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030A0000
#include <Python.h>

#include <dfgnn.h>
#include <string.h>

typedef struct call_form {
  dfgnn_status (*execute)(const dfgnn_plan *plan, const dfgnn_args *args,
                          void *workspace, void *stream);
  uint64_t args_size;
  uint64_t link_count;
  uint64_t field_count;
} call_form;

/* A pointer in the args to what lies behind dfgnn_args: the tensors of an MLP
 * or of an edge program. */
typedef struct call_link {
  uint64_t offset, to;
} call_link;

typedef struct call_field {
  int32_t offset;  /* of its pointer in the args */
  int32_t strides; /* of its dfgnn_strides; -1 if it has to be dense */
  int64_t begin;   /* how many bytes into the tensor's memory it points */
} call_field;

enum { CALL_OTHERWISE = -1, CALL_RAISED = -2, CALL_PLACED = 0 };
/* a program has at most 192 tensors */
enum { MOST_ARGS = 16384, MOST_AXES = 3 };

static PyObject *name_dtype, *name_is_contiguous, *name_stride, *name_data_ptr;

static PyObject *method(PyObject *tensor, PyObject *name) {
  return PyObject_CallMethodObjArgs(tensor, name, NULL);
}

/* Where the memory of a tensor, a number or None begins. */
static int address(void **memory, PyObject *given) {
  PyObject *number = given;

  *memory = NULL;
  if (given == Py_None)
    return CALL_PLACED;
  if (PyLong_Check(given))
    Py_IncRef(number);
  else if (!(number = method(given, name_data_ptr)))
    return CALL_RAISED;
  *memory = PyLong_AsVoidPtr(number);
  Py_DecRef(number);
  return !*memory && PyErr_Occurred() ? CALL_RAISED : CALL_PLACED;
}

static int has_type(PyObject *tensor, PyObject *type) {
  PyObject *found;

  if (type == Py_None)
    return CALL_PLACED;
  if (!(found = PyObject_GetAttr(tensor, name_dtype)))
    return CALL_RAISED;
  Py_DecRef(found);
  return found == type ? CALL_PLACED : CALL_OTHERWISE;
}

/* Writes the strides of a tensor whose features lie side by side. */
static int place_strides(char *args, PyObject *tensor) {
  int64_t strides[MOST_AXES] = {0};
  int result = CALL_RAISED;
  Py_ssize_t axes, axis;
  PyObject *found = method(tensor, name_stride);

  if (!found || (axes = PyTuple_Size(found)) < 0)
    goto out;
  result = CALL_OTHERWISE;
  if (axes < 1 || axes > MOST_AXES)
    goto out;
  for (axis = 0; axis < axes; axis++) {
    strides[axis] = PyLong_AsLongLong(PyTuple_GetItem(found, axis));
    if (strides[axis] == -1 && PyErr_Occurred()) {
      result = CALL_RAISED;
      goto out;
    }
  }
  if (strides[axes - 1] == 1) {
    memcpy(args, strides, sizeof strides);
    result = CALL_PLACED;
  }
out:
  Py_DecRef(found);
  return result;
}

static int is_dense(PyObject *tensor) {
  PyObject *found = method(tensor, name_is_contiguous);
  int dense = found ? PyObject_IsTrue(found) : -1;

  Py_DecRef(found);
  return dense;
}

static int place(char *args, const call_field *field, PyObject *type,
                 PyObject *tensor) {
  void *memory;
  int status = CALL_PLACED, dense;

  if (tensor == Py_None)
    return CALL_PLACED;
  if (!PyLong_Check(tensor)) {
    if ((status = has_type(tensor, type)))
      return status;
    if ((dense = is_dense(tensor)) < 0)
      return CALL_RAISED;
    if (!dense && field->strides < 0)
      return CALL_OTHERWISE;
    if (!dense && (status = place_strides(args + field->strides, tensor)))
      return status;
  }
  if ((status = address(&memory, tensor)))
    return status;
  if (!PyLong_Check(tensor))
    memory = (char *)memory + field->begin;
  memcpy(args + field->offset, &memory, sizeof memory);
  return CALL_PLACED;
}

/* Whether a form is as long as it says, and its links and fields lie in the
 * args. */
static int sound(const call_form *form, const call_link *links,
                 const call_field *fields, uint64_t bytes) {
  const uint64_t most = form->args_size;
  uint64_t i;

  if (most < sizeof(dfgnn_args) || most > MOST_ARGS ||
      form->link_count > MOST_ARGS || form->field_count > MOST_ARGS ||
      bytes != sizeof *form + form->link_count * sizeof *links +
                   form->field_count * sizeof *fields + most)
    return 0;
  for (i = 0; i < form->link_count; i++)
    if (links[i].offset > sizeof(dfgnn_args) - sizeof(void *) ||
        links[i].to < sizeof(dfgnn_args) || links[i].to >= most)
      return 0;
  for (i = 0; i < form->field_count; i++)
    if (fields[i].offset < 0 || fields[i].offset + sizeof(void *) > most ||
        (fields[i].strides >= 0 &&
         fields[i].strides + sizeof(dfgnn_strides) > most))
      return 0;
  return 1;
}

static PyObject *refused(PyObject *const *given, Py_ssize_t count) {
  if (count != 6)
    return PyErr_Format(PyExc_TypeError,
                        "call takes form, plan, types, workspace, stream and "
                        "tensors, got %zd arguments",
                        count);
  if (!PyTuple_Check(given[2]) || !PyList_Check(given[5]))
    return PyErr_Format(PyExc_TypeError,
                        "types must be a tuple and tensors a list");
  return PyErr_Format(PyExc_ValueError,
                      "form is not one of dfgnn, or there are more tensors "
                      "than fields");
}

static PyObject *call(PyObject *module, PyObject *const *given,
                      Py_ssize_t count) {
  _Alignas(8) char args[MOST_ARGS];
  char *bytes;
  Py_ssize_t size, tensors, i;
  void *plan, *workspace, *stream, *behind;
  call_form form;
  int status;

  (void)module;
  if (count != 6 || !PyTuple_Check(given[2]) || !PyList_Check(given[5]))
    return refused(given, count);
  if (PyBytes_AsStringAndSize(given[0], &bytes, &size))
    return NULL;
  tensors = PyList_Size(given[5]);
  if ((size_t)size < sizeof form)
    return refused(given, count);
  memcpy(&form, bytes, sizeof form);
  const call_link *links =
      (const call_link *)(const void *)(bytes + sizeof form);
  const call_field *fields =
      (const call_field *)(const void *)(links + form.link_count);
  if (!sound(&form, links, fields, (uint64_t)size) ||
      (uint64_t)tensors > form.field_count || PyTuple_Size(given[2]) < tensors)
    return refused(given, count);
  memcpy(args, fields + form.field_count, form.args_size);
  for (i = 0; i < (Py_ssize_t)form.link_count; i++) {
    behind = args + links[i].to;
    memcpy(args + links[i].offset, &behind, sizeof behind);
  }
  for (i = 0; i < tensors; i++) {
    status = place(args, fields + i, PyTuple_GetItem(given[2], i),
                   PyList_GetItem(given[5], i));
    if (status)
      return status == CALL_RAISED ? NULL : PyLong_FromLong(status);
  }
  if (address(&plan, given[1]) || address(&workspace, given[3]) ||
      address(&stream, given[4]))
    return NULL;
  Py_BEGIN_ALLOW_THREADS status =
      form.execute(plan, (const dfgnn_args *)args, workspace, stream);
  Py_END_ALLOW_THREADS return PyLong_FromLong(status);
}

/* ---- graphs of batches ----------------------------------------------------
 */

/* The functions of the library, as _library.py packs them. */
typedef struct call_library {
  dfgnn_status (*graph_create)(dfgnn_graph **graph, dfgnn_context *ctx,
                               const dfgnn_coo *coo, void *stream);
  void (*graph_destroy)(dfgnn_graph *graph, void *stream);
  dfgnn_status (*plan_create)(dfgnn_plan **plan, dfgnn_context *ctx,
                              dfgnn_graph *graph, const dfgnn_problem *problem);
  size_t (*plan_workspace)(const dfgnn_plan *plan);
  void (*plan_destroy)(dfgnn_plan *plan);
} call_library;

/* Copies bytes; raises unless they are so many. */
static int take_bytes(void *to, size_t size, const char *from,
                      Py_ssize_t length) {
  if ((size_t)length == size) {
    memcpy(to, from, size);
    return CALL_PLACED;
  }
  PyErr_Format(PyExc_ValueError, "%zd bytes were given, expected %zu", length,
               size);
  return CALL_RAISED;
}

/* address() as a converter of PyArg_ParseTuple(). */
static int to_address(PyObject *given, void *memory) {
  return address(memory, given) == CALL_PLACED;
}

static PyObject *graph(PyObject *module, PyObject *given) {
  call_library library;
  dfgnn_coo coo = DFGNN_COO_INIT;
  dfgnn_graph *made = NULL;
  void *ctx, *memory, *stream;
  const char *functions;
  Py_ssize_t size;
  long long edges, sources, destinations;
  int wide, loops, status;

  (void)module;
  if (!PyArg_ParseTuple(given, "y#O&O&LpLLpO&", &functions, &size, to_address,
                        &ctx, to_address, &memory, &edges, &wide, &sources,
                        &destinations, &loops, to_address, &stream) ||
      take_bytes(&library, sizeof library, functions, size))
    return NULL;
  coo.edges = edges;
  coo.sources = sources;
  coo.destinations = destinations;
  coo.self_loops = loops;
  coo.source = memory;
  coo.destination = (char *)memory + edges * (wide ? 8 : 4);
  coo.index_type = wide ? DFGNN_INDEX_I64 : DFGNN_INDEX_I32;
  coo.on_device = 1;
  Py_BEGIN_ALLOW_THREADS status =
      library.graph_create(&made, ctx, &coo, stream);
  Py_END_ALLOW_THREADS return status
      ? PyLong_FromLong(status)
      : Py_BuildValue("(N)", PyLong_FromVoidPtr(made));
}

static PyObject *plan(PyObject *module, PyObject *given) {
  call_library library;
  dfgnn_problem problem;
  dfgnn_plan *made = NULL;
  void *ctx, *of;
  const char *functions, *wanted;
  Py_ssize_t size, wanted_size;
  size_t workspace = 0;
  int status;

  (void)module;
  if (!PyArg_ParseTuple(given, "y#O&O&y#", &functions, &size, to_address, &ctx,
                        to_address, &of, &wanted, &wanted_size) ||
      take_bytes(&library, sizeof library, functions, size) ||
      take_bytes(&problem, sizeof problem, wanted, wanted_size))
    return NULL;
  Py_BEGIN_ALLOW_THREADS status = library.plan_create(&made, ctx, of, &problem);
  if (!status)
    workspace = library.plan_workspace(made);
  Py_END_ALLOW_THREADS return status
      ? PyLong_FromLong(status)
      : Py_BuildValue("(Nn)", PyLong_FromVoidPtr(made), (Py_ssize_t)workspace);
}

static PyObject *destroy(PyObject *module, PyObject *given) {
  call_library library;
  void *old, *one, *stream;
  PyObject *plans;
  const char *functions;
  Py_ssize_t size, i;

  (void)module;
  if (!PyArg_ParseTuple(given, "y#O&O!O&", &functions, &size, to_address, &old,
                        &PyList_Type, &plans, to_address, &stream) ||
      take_bytes(&library, sizeof library, functions, size))
    return NULL;
  for (i = 0; i < PyList_Size(plans); i++) {
    if (address(&one, PyList_GetItem(plans, i)))
      return NULL;
    library.plan_destroy(one);
  }
  Py_BEGIN_ALLOW_THREADS library.graph_destroy(old, stream);
  Py_END_ALLOW_THREADS return PyLong_FromLong(DFGNN_OK);
}

static PyMethodDef methods[] = {
    {"call", (PyCFunction)(void (*)(void))call, METH_FASTCALL,
     "call(form, plan, types, workspace, stream, tensors) -> status, or -1"},
    {"graph", graph, METH_VARARGS,
     "graph(library, context, edge_index, edges, is_wide, sources, "
     "destinations, loops, stream) -> (graph,), or a status"},
    {"plan", plan, METH_VARARGS,
     "plan(library, context, graph, problem) -> (plan, workspace), or a "
     "status"},
    {"destroy", destroy, METH_VARARGS,
     "destroy(library, graph, plans, stream)"},
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    "dfgnn_call",
    "Calls of libdfgnn: tensors in, a status out.",
    -1,
    methods,
    NULL,
    NULL,
    NULL,
    NULL};

PyMODINIT_FUNC PyInit_dfgnn_call(void) {
  if (!(name_dtype = PyUnicode_InternFromString("dtype")) ||
      !(name_is_contiguous = PyUnicode_InternFromString("is_contiguous")) ||
      !(name_stride = PyUnicode_InternFromString("stride")) ||
      !(name_data_ptr = PyUnicode_InternFromString("data_ptr")))
    return NULL;
  return PyModule_Create(&module);
}
