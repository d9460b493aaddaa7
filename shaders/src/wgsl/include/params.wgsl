// The uniform block, and the copy that kernels work with. Loading it as a whole before anything else matters
// on software devices: behind a branch, every field would be loaded once per invocation.
@group(0) @binding({{UNIFORM}}) var<uniform> uniforms: Params;
var<private> p: Params;
