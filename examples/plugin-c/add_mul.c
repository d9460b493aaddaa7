/* A delegate in C: ADD and MUL of float32 tensors of one shape, without fused activations.
 *
 *   cc -shared -fPIC -O2 -I delegate-api/include -o libadd_mul.so examples/plugin-c/add_mul.c
 *   delegraph explain MODEL --delegate plugin:./libadd_mul.so
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "delegraph_plugin.h"

enum { ADD = 0, MUL = 18 }; /* Codes of the format's builtin operators. */
enum { FLOAT32 = 0 };

typedef struct { const DelegraphHost *host; } Delegate;

/* A tensor of a partition: an input, an output, or memory of the kernel's own. */
typedef struct { size_t tensor, elements; float *constant; const float *now; } Value;
typedef struct { int multiply; size_t a, b, out; } Step;
typedef struct {
    const DelegraphHost *host;
    size_t inputs, outputs, nodes, value_count;
    const size_t *output_tensors;
    size_t *output_values;
    Value *values; /* Inputs first. */
    Step *steps;
} Kernel;

static int32_t fail(DelegraphError *error, int32_t status, const char *message) {
    size_t length = strlen(message);
    error->len = length < error->capacity ? length : error->capacity;
    memcpy(error->message, message, error->len);
    return status;
}

static int32_t create(const DelegraphHost *host, const DelegraphOption *options, size_t count, void **out,
                      DelegraphError *error) {
    if (count > 0) {
        char message[256];
        snprintf(message, sizeof message, "the option \"%.100s\" is not known; it takes none", options[0].key);
        return fail(error, DELEGRAPH_BAD_OPTION, message);
    }
    if (host->size < sizeof(DelegraphHost)) return fail(error, DELEGRAPH_UNSUPPORTED, "the application is too old");
    Delegate *delegate = malloc(sizeof *delegate);
    if (!delegate) return DELEGRAPH_OUT_OF_MEMORY;
    delegate->host = host;
    *out = delegate;
    return DELEGRAPH_OK;
}

static void destroy(void *delegate) { free(delegate); }
static const char *name(void *delegate) { return (void)delegate, "add_mul"; }

static const DelegraphOpVersion *versions(void *delegate, size_t *count) {
    static const DelegraphOpVersion all[] = {{ADD, 1, NULL}, {MUL, 1, NULL}};
    (void)delegate;
    *count = sizeof all / sizeof *all;
    return all;
}

static size_t elements(const DelegraphTensor *tensor) {
    size_t product = 1;
    for (size_t i = 0; i < tensor->rank; i++) product *= tensor->dims[i];
    return product;
}

static int same_shape(const DelegraphTensor *a, const DelegraphTensor *b) {
    return a->rank == b->rank && (a->rank == 0 || memcmp(a->dims, b->dims, a->rank * sizeof *a->dims) == 0);
}

/* Claims the node, or rejects it with a reason. */
static int32_t look_at(const DelegraphHost *host, DelegraphContext context, size_t node) {
    DelegraphRejection reason = {.size = sizeof reason, .kind = DELEGRAPH_REJECT_PARAM};
    int64_t activation = 0;
    DelegraphTensor first = {.size = sizeof first};
    if (host->may_claim(context, node) != DELEGRAPH_OK) return host->claim(context, &node, 1, 0); /* The host adds the reason. */
    host->param_i64(context, node, "fused_activation_function", &activation);
    const char *text = activation == 0 ? NULL : "a fused activation";
    for (size_t i = 0; i < 2 && !text; i++) {
        DelegraphTensor tensor = {.size = sizeof tensor};
        int32_t status = host->tensor(context, (size_t)host->node_input(context, node, i), &tensor);
        if (status != DELEGRAPH_OK) return status;
        if (tensor.element_type != FLOAT32) {
            reason.kind = DELEGRAPH_REJECT_TYPE;
            reason.value = tensor.element_type;
            text = i == 0 ? "input 0" : "input 1";
        } else if (i == 0) {
            first = tensor;
        } else if (!same_shape(&first, &tensor)) {
            text = "operands of two shapes";
        }
    }
    if (!text) return host->claim(context, &node, 1, 0);
    reason.text = (DelegraphText){text, strlen(text)};
    return host->reject(context, node, &reason);
}

static int32_t prepare(void *self, DelegraphContext context, DelegraphError *error) {
    const DelegraphHost *host = ((Delegate *)self)->host;
    DelegraphGraph graph = {.size = sizeof graph};
    (void)error; /* The host adds the message to its own errors. */
    int32_t status = host->graph(context, &graph);
    for (size_t node = 0; node < graph.nodes && status == DELEGRAPH_OK; node++) status = look_at(host, context, node);
    return status;
}

static void destroy_kernel(void *self) {
    Kernel *kernel = self;
    for (size_t i = 0; i < kernel->value_count; i++) free(kernel->values[i].constant);
    free(kernel->values), free(kernel->steps), free(kernel->output_values), free(kernel);
}

/* The index of a tensor's value; constants are copied, since they are valid until `end_prepare` only. */
static size_t place(Kernel *kernel, DelegraphContext context, int64_t tensor) {
    for (size_t i = 0; i < kernel->value_count; i++)
        if (kernel->values[i].tensor == (size_t)tensor) return i;
    DelegraphTensor info = {.size = sizeof info};
    kernel->host->tensor(context, (size_t)tensor, &info);
    Value value = {.tensor = (size_t)tensor, .elements = elements(&info)};
    if (info.data && (value.constant = malloc(info.data_len))) memcpy(value.constant, info.data, info.data_len);
    kernel->values[kernel->value_count] = value;
    return kernel->value_count++;
}

static int32_t create_kernel(void *self, DelegraphContext context, uint64_t claim, const DelegraphPartition *partition,
                             void **out, DelegraphError *error) {
    const DelegraphHost *host = ((Delegate *)self)->host;
    Kernel *kernel = calloc(1, sizeof *kernel);
    (void)claim, (void)error;
    if (!kernel) return DELEGRAPH_OUT_OF_MEMORY;
    *out = kernel; /* The application destroys it, also where the rest fails. */
    kernel->host = host;
    kernel->inputs = partition->input_count, kernel->outputs = partition->output_count;
    kernel->values = calloc(partition->input_count + 3 * partition->node_count, sizeof(Value));
    kernel->steps = calloc(partition->node_count, sizeof(Step));
    kernel->output_values = calloc(partition->output_count, sizeof(size_t));
    if (!kernel->values || !kernel->steps || !kernel->output_values) return DELEGRAPH_OUT_OF_MEMORY;
    for (size_t i = 0; i < partition->input_count; i++) place(kernel, context, (int64_t)partition->inputs[i]);
    for (size_t i = 0; i < partition->node_count; i++) {
        size_t node = partition->nodes[i];
        DelegraphNode info = {.size = sizeof info};
        host->node(context, node, &info);
        Step step = {.multiply = info.op == MUL};
        step.a = place(kernel, context, host->node_input(context, node, 0));
        step.b = place(kernel, context, host->node_input(context, node, 1));
        step.out = place(kernel, context, host->node_output(context, node, 0));
        kernel->steps[kernel->nodes++] = step;
    }
    for (size_t i = 0; i < partition->output_count; i++)
        kernel->output_values[i] = place(kernel, context, (int64_t)partition->outputs[i]);
    return DELEGRAPH_OK;
}

/* A temporary for each step's result; those that are outputs are not used. */
static int32_t prepare_kernel(void *self, DelegraphContext context, const DelegraphKernelCall *call,
                              DelegraphError *error) {
    Kernel *kernel = self;
    (void)call, (void)error;
    for (size_t i = 0; i < kernel->nodes; i++)
        if (kernel->host->temporary(context, kernel->values[kernel->steps[i].out].elements * sizeof(float)) < 0)
            return DELEGRAPH_FAILED;
    return DELEGRAPH_OK;
}

static int32_t invoke_kernel(void *self, DelegraphContext context, const DelegraphKernelCall *call,
                             DelegraphError *error) {
    Kernel *kernel = self;
    (void)context;
    for (size_t i = 0; i < kernel->value_count; i++) kernel->values[i].now = kernel->values[i].constant;
    for (size_t i = 0; i < kernel->nodes; i++)
        kernel->values[kernel->steps[i].out].now = call->temporaries[i]->data;
    for (size_t i = 0; i < kernel->inputs; i++) {
        if (call->inputs[i]->data_len != kernel->values[i].elements * sizeof(float))
            return fail(error, DELEGRAPH_FAILED, "an input's size does not match its shape");
        kernel->values[i].now = call->inputs[i]->data;
    }
    for (size_t i = 0; i < kernel->outputs; i++)
        kernel->values[kernel->output_values[i]].now = call->outputs[i]->data;
    for (size_t i = 0; i < kernel->nodes; i++) {
        Step step = kernel->steps[i];
        const float *a = kernel->values[step.a].now, *b = kernel->values[step.b].now;
        float *out = (float *)kernel->values[step.out].now;
        if (!a || !b || !out) return fail(error, DELEGRAPH_FAILED, "an operand is not there");
        for (size_t k = 0; k < kernel->values[step.out].elements; k++) out[k] = step.multiply ? a[k] * b[k] : a[k] + b[k];
    }
    return DELEGRAPH_OK;
}

DELEGRAPH_EXPORT const DelegraphPlugin *delegraph_delegate_plugin(void) {
    static const DelegraphPlugin plugin = {
        .abi_version = DELEGRAPH_ABI_VERSION,
        .size = sizeof plugin,
        .create = create,
        .destroy = destroy,
        .name = name,
        .versions = versions,
        .prepare = prepare,
        .create_kernel = create_kernel,
        .destroy_kernel = destroy_kernel,
        .prepare_kernel = prepare_kernel,
        .invoke_kernel = invoke_kernel,
    };
    return &plugin;
}
