/* Runs a model with Delegraph's own C API, and shows what runs its nodes: run_model MODEL [DELEGATE]
 *
 *     cc run_model.c $(pkg-config --cflags --libs delegraph)
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "delegraph.h"

static void check(dg_status status, const char* what) {
    if (status != DG_OK) {
        fprintf(stderr, "%s: %s: %s\n", what, dg_status_name(status), dg_last_error());
        exit(1);
    }
}

/* Fills an input with a pattern of its bytes. */
static void fill(dg_interpreter* interpreter, size_t input) {
    void* data = NULL;
    size_t bytes = 0, i;
    check(dg_interpreter_input_data(interpreter, input, &data, &bytes), "input");
    memset(data, 0, bytes);
    for (i = 0; i + 4 <= bytes; i += 4) ((unsigned char*)data)[i] = (unsigned char)(i % 5);
}

/* Prints the runner of each node, and the reasons of delegates that rejected it. */
static void report(dg_interpreter* interpreter) {
    dg_report all;
    size_t node, i;
    check(dg_interpreter_report(interpreter, &all), "report");
    printf("%zu nodes: %zu on the CPU, %zu on %zu delegates, %zu folded; arena %zu bytes\n", all.nodes, all.cpu_nodes,
           all.delegated_nodes, all.delegates, all.folded_nodes, all.arena_bytes);
    for (node = 0; node < all.nodes; node++) {
        dg_node line;
        char* op = NULL;
        check(dg_interpreter_node(interpreter, node, &line, &op), "node");
        for (i = 0; i < line.rejections; i++) {
            char *delegate = NULL, *reason = NULL;
            check(dg_interpreter_rejection(interpreter, node, i, &delegate, &reason), "rejection");
            printf("  node %zu, %s: %s: %s\n", node, op, delegate, reason);
            dg_text_free(delegate);
            dg_text_free(reason);
        }
        dg_text_free(op);
    }
}

int main(int argc, char** argv) {
    dg_model* model = NULL;
    dg_options* options = NULL;
    dg_interpreter* interpreter = NULL;
    dg_tensor_info info;
    size_t inputs, outputs, i;
    char* json = NULL;

    if (argc < 2) {
        fprintf(stderr, "usage: run_model MODEL [DELEGATE]\n");
        return 2;
    }
    printf("Delegraph %s\n", dg_version());
    check(dg_model_load(argv[1], &model), argv[1]);
    check(dg_options_create(&options), "options");
    check(dg_options_set_threads(options, 2), "threads");
    check(dg_options_set_max_memory(options, (uint64_t)1 << 30), "memory");
    check(dg_options_set_time_limit(options, 60ull * 1000 * 1000 * 1000), "time");
    check(dg_options_add_delegate(options, argc > 2 ? argv[2] : "cpu"), "delegate");
    check(dg_interpreter_create(model, options, &interpreter), "interpreter");
    check(dg_interpreter_prepare(interpreter), "prepare");
    report(interpreter);

    check(dg_interpreter_count(interpreter, DG_INPUT, &inputs), "inputs");
    check(dg_interpreter_count(interpreter, DG_OUTPUT, &outputs), "outputs");
    for (i = 0; i < inputs; i++) fill(interpreter, i);
    check(dg_interpreter_set_profiling(interpreter, 1), "profiling");
    check(dg_interpreter_invoke(interpreter), "invoke");
    check(dg_interpreter_profile(interpreter, &json), "profile");
    printf("profile of %zu characters\n", strlen(json));
    dg_text_free(json);

    for (i = 0; i < outputs; i++) {
        const void* data = NULL;
        size_t bytes = 0, at;
        char* name = NULL;
        check(dg_interpreter_tensor(interpreter, DG_OUTPUT, i, &info), "output");
        check(dg_interpreter_name(interpreter, DG_OUTPUT, i, &name), "name");
        check(dg_interpreter_output_data(interpreter, i, &data, &bytes), "data");
        printf("output %zu, %s: %zu bytes, rank %zu:", i, name, bytes, info.rank);
        if (info.type == DG_FLOAT32) {
            for (at = 0; at < bytes / 4 && at < 10; at++) printf(" %.4f", (double)((const float*)data)[at]);
        }
        printf("\n");
        dg_text_free(name);
    }

    /* A handle that was deleted is an error, and not a crash. */
    check(dg_interpreter_delete(interpreter), "delete");
    if (dg_interpreter_invoke(interpreter) != DG_INVALID_HANDLE) return 1;
    check(dg_options_delete(options), "delete");
    check(dg_model_delete(model), "delete");
    return 0;
}
