// Runs a model several times without waiting, and cancels one run, with Delegraph's own C API: async_model MODEL
//
//     c++ async_model.cpp $(pkg-config --cflags --libs delegraph)
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "delegraph.h"

namespace {

/// Throws the message of an error.
void check(dg_status status) {
    if (status != DG_OK) throw std::runtime_error(std::string(dg_status_name(status)) + ": " + dg_last_error());
}

template <typename T, dg_status (*Delete)(T*)>
struct Deleter {
    void operator()(T* object) const { Delete(object); }
};

using Model = std::unique_ptr<dg_model, Deleter<dg_model, dg_model_delete>>;
using Interpreter = std::unique_ptr<dg_interpreter, Deleter<dg_interpreter, dg_interpreter_delete>>;
using Invocation = std::unique_ptr<dg_invocation, Deleter<dg_invocation, dg_invocation_delete>>;

Model load(const char* path) {
    dg_model* model = nullptr;
    check(dg_model_load(path, &model));
    return Model(model);
}

Interpreter create(const Model& model) {
    dg_interpreter* interpreter = nullptr;
    check(dg_interpreter_create(model.get(), nullptr, &interpreter));
    check(dg_interpreter_prepare(interpreter));
    return Interpreter(interpreter);
}

/// Counts runs that ended, in a thread of the library.
void count(void* ended, dg_status status, const char* message) {
    if (status != DG_OK) std::fprintf(stderr, "a run failed: %s\n", message);
    ++*static_cast<std::atomic<int>*>(ended);
}

int run(const char* path) {
    Model model = load(path);
    std::atomic<int> ended{0};
    // Interpreters of one model run at the same time.
    std::vector<Interpreter> interpreters;
    std::vector<Invocation> invocations;
    for (int i = 0; i < 3; i++) {
        interpreters.push_back(create(model));
        dg_invocation* invocation = nullptr;
        check(dg_interpreter_start(interpreters.back().get(), count, &ended, &invocation));
        invocations.emplace_back(invocation);
    }
    for (const Invocation& invocation : invocations) check(dg_invocation_wait(invocation.get(), DG_FOREVER));
    // A wait ends when the function has returned, so that `ended` may go.
    std::printf("%d runs ended\n", ended.load());

    // A run that is cancelled ends with a status of its own, unless it was faster.
    dg_invocation* last = nullptr;
    check(dg_interpreter_start(interpreters[0].get(), nullptr, nullptr, &last));
    Invocation invocation(last);
    check(dg_invocation_cancel(last));
    dg_status status = dg_invocation_wait(last, DG_FOREVER);
    std::printf("cancelled run: %s\n", dg_status_name(status));
    if (status != DG_CANCELLED && status != DG_OK) return 1;

    // Errors have a type and a message.
    dg_model* none = nullptr;
    status = dg_model_from_bytes("not a model", 11, &none);
    std::printf("%s: %s\n", dg_status_name(status), dg_last_error());
    return status == DG_INVALID_MODEL && none == nullptr ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 2) {
        std::fprintf(stderr, "usage: async_model MODEL\n");
        return 2;
    }
    try {
        return run(argv[1]);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
