// Vectors of four pixels, and of four channels, each of one term. The indices that do not depend on the invocation are
// constants, and bounds checks do not apply to them.
var<workgroup> pixels: array<array<array<V, {{ROWS}}>, {{OWN_PIXELS}}>, {{4 * DEPTH}}>;
var<workgroup> channels: array<array<array<V, {{COLUMNS}}>, {{OWN_CHANNELS}}>, {{4 * DEPTH}}>;
