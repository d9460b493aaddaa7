// The uniform block, and the copy that kernels read. Software devices benefit from loading it as a whole before anything
// else: after a branch, every field would be loaded once per invocation.
@group(0) @binding({{UNIFORM}}) var<uniform> uniforms: Params;
var<private> p: Params;
