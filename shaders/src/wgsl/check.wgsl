// The first element of each workgroup's range that does not meet a condition: one plus its position, and its bits.

struct Params {
    count: u32,
    // Elements of an invocation.
    items: u32,
    // Number of bounds in use.
    period: u32,
    // An element is invalid if its bits in `mask` equal `other`.
    mask: u32,
    other: u32,
    // Lowest and highest value.
    bounds: array<vec4<i32>, {{BOUNDS}}>,
}

@group(0) @binding(0) var<storage, read> values: array<u32>;
@group(0) @binding(1) var<storage, read_write> output: array<vec2<u32>>;
@group(0) @binding({{UNIFORM}}) var<uniform> uniforms: Params;

var<workgroup> first: atomic<u32>;

@compute @workgroup_size({{WORKGROUP}})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    if local == 0u {
        atomicStore(&first, 0xffffffffu);
    }
    workgroupBarrier();
    let start = group.x * {{WORKGROUP}}u * uniforms.items + local;
    for (var item = 0u; item < uniforms.items; item++) {
        let i = start + item * {{WORKGROUP}}u;
        if i >= uniforms.count {
            break;
        }
        let value = values[i];
#if WITHIN
        let bounds = uniforms.bounds[i % uniforms.period];
        let invalid = bitcast<i32>(value) < bounds.x || bitcast<i32>(value) > bounds.y;
#else
        let invalid = (value & uniforms.mask) == uniforms.other;
#endif
        if invalid {
            atomicMin(&first, i);
            break;
        }
    }
    workgroupBarrier();
    if local == 0u {
        let at = atomicLoad(&first);
        if at < uniforms.count {
            output[group.x] = vec2<u32>(at + 1u, values[at]);
        } else {
            output[group.x] = vec2<u32>();
        }
    }
}
