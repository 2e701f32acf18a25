/* dfgnn-tune.c - measures variants, and shows, explains and moves measurements
 */
#include "tools/tune.h"

static const tool_section sections[] = {
    {"EXAMPLES",
     "Tune two operators at two widths for a graph, and see what a program "
     "will run:\n"
     "    dfgnn-tune run cora.mtx --op gt,gat --dim 32,64\n"
     "    dfgnn-tune explain cora.mtx --dim 64\n"
     "\n"
     "Tune a folder overnight into a store of its own, resuming each night:\n"
     "    dfgnn-tune run graphs/ --store graphs.db --time-limit 8h\n"
     "\n"
     "Collect what several machines measured:\n"
     "    dfgnn-tune merge all.db node1.db node2.db\n"
     "\n"
     "See it all in a browser:\n"
     "    python -m dfgnn.report -o report.html\n"
     "\n"
     "Publish it for a cluster, signed:\n"
     "    dfgnn-tune sign --generate-key site\n"
     "    dfgnn-tune publish site.db --store all.db\n"
     "    dfgnn-tune sign site.db --key site.key\n"
     "    dfgnn-tune verify site.db --key site.pub\n"},
    {NULL, NULL}};

static const tool_command *const commands[] = {
#define LISTED(name) &tune_##name,
    TUNE_COMMANDS(LISTED)
#undef LISTED
        NULL};

static const tool_program program = {
    "dfgnn-tune", "tune fused attention kernels for graphs and this machine",
    "Which kernel computes an attention layer fastest depends on the graph, "
    "the width of the features and the device. dfgnn-tune measures the "
    "variants of libdfgnn and keeps the measurements in a store, by which "
    "every program that links the library chooses its kernels.\n"
    "\n"
    "A GRAPH is a file (Matrix Market, SciPy CSR .npz, METIS, SNAP or OGB "
    "edge list), a directory of such files, a quoted glob, or the "
    "specification of a generator such as sbm-pattern:batch=256,seed=1; see "
    "dfgnn-graph(1).",
    commands, sections};

TOOL_MAIN(tune)(int argc, char **argv) {
  return tool_main(&program, argc, argv);
}
