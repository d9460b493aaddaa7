// Products of pairs of matrices. An invocation makes a register tile of PIXELS rows times WIDTH columns of
// one product; eight invocations side by side (x) share the rows.
//
// SHARED: those eight are a subgroup. Each loads what another row needs, and broadcasts hand it round.

struct Params {
    rows: u32,
    columns: u32,
    depth: u32,
    // Strides in elements of the buffers (vectors of four where it says so): along rows or columns, along
    // the depth.
    a_row: u32,
    a_depth: u32,
    b_column: u32,
    b_depth: u32,
    // Products in all, by their dimensions from the innermost out.
#for d in 0..RANK
    extent_{{d}}: u32,
    a_stride_{{d}}: u32,
    b_stride_{{d}}: u32,
#endfor
    act_a: f32,
    act_b: f32,
}

alias V = vec4<f32>;
#if A_VEC4
alias A = vec4<f32>;
#else
alias A = f32;
#endif
#if B_ROWS || B_COLUMNS
alias B = vec4<f32>;
#else
alias B = f32;
#endif
#if WIDTH == 1
alias T = f32;
#else
alias T = vec{{WIDTH}}<f32>;
#endif

@group(0) @binding(0) var<storage, read> a: array<A>;
@group(0) @binding(1) var<storage, read> b: array<B>;
@group(0) @binding(2) var<storage, read_write> output: array<T>;
#include "params"

#include "math"

// Four steps in depth from the k-th on.
fn load_a(at: u32, k: u32) -> V {
#if A_VEC4
    return a[at + k / 4u];
#else
    let left = p.depth - k;
    let first = at + k * p.a_depth;
    var v = V(a[first], 0.0, 0.0, 0.0);
    if left > 1u { v.y = a[first + p.a_depth]; }
    if left > 2u { v.z = a[first + 2u * p.a_depth]; }
    if left > 3u { v.w = a[first + 3u * p.a_depth]; }
    return v;
#endif
}

#if !B_ROWS
fn load_b(at: u32, k: u32) -> V {
#if B_COLUMNS
    return b[at + k / 4u];
#else
    let left = p.depth - k;
    let first = at + k * p.b_depth;
    var v = V(b[first], 0.0, 0.0, 0.0);
    if left > 1u { v.y = b[first + p.b_depth]; }
    if left > 2u { v.z = b[first + 2u * p.b_depth]; }
    if left > 3u { v.w = b[first + 3u * p.b_depth]; }
    return v;
#endif
}
#endif

#if SPLIT
var<workgroup> parts: array<f32, {{8 * ROWS * WIDTH}}>;
#endif

fn finish(v: T) -> T {
    return {{ACTIVATION}};
}

@compute @workgroup_size(8, {{ROWS}})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_id) local: vec3<u32>,
#if SHARED
    @builtin(subgroup_invocation_id) lane: u32,
#endif
) {
    p = uniforms;
    let column = (group.x * 8u + local.x) * {{WIDTH}}u;
#if SPLIT
    let first = group.y * {{PIXELS}}u;
#else
    let first = (group.y * {{ROWS}}u + local.y) * {{PIXELS}}u;
#endif
    // The last tiles stick out: their surplus reads what is there and writes nothing.
    let own = min(column, p.columns - {{WIDTH}}u);
    var rest = group.z;
    var a_base = 0u;
    var b_base = 0u;
#for d in 0..RANK
    a_base += rest % p.extent_{{d}} * p.a_stride_{{d}};
    b_base += rest % p.extent_{{d}} * p.b_stride_{{d}};
    rest /= p.extent_{{d}};
#endfor
#if SHARED
#for v in 0..PIXELS / 8
    let at_{{v}} = a_base + min(first + {{v * 8}}u + lane, p.rows - 1u) * p.a_row;
#endfor
#else
#for v in 0..PIXELS
    let at_{{v}} = a_base + min(first + {{v}}u, p.rows - 1u) * p.a_row;
#endfor
#endif
#for c in 0..WIDTH
#for i in 0..PIXELS
    var sum_{{i}}_{{c}} = 0.0;
#endfor
#endfor
#if SPLIT
    for (var k = local.y * 4u; k < p.depth; k += {{4 * ROWS}}u) {
#else
    for (var k = 0u; k < p.depth; k += 4u) {
#endif
#if B_ROWS
        // A vector of four columns per step in depth; the last may go beyond the depth.
#for j in 0..4
        let row_{{j}} = b[b_base + min(k + {{j}}u, p.depth - 1u) * p.b_depth + own / 4u];
#endfor
#for c in 0..4
        let w_{{c}} = V(row_0[{{c}}], row_1[{{c}}], row_2[{{c}}], row_3[{{c}}]);
#endfor
#else
#for c in 0..WIDTH
        let w_{{c}} = load_b(b_base + (own + {{c}}u) * p.b_column, k);
#endfor
#endif
#if SHARED
#for v in 0..PIXELS / 8
        let mine_{{v}} = load_a(at_{{v}}, k);
#for i in 0..8
        let v_{{v * 8 + i}} = subgroupBroadcast(mine_{{v}}, {{i}}u);
#endfor
#endfor
#else
#for i in 0..PIXELS
        let v_{{i}} = load_a(at_{{i}}, k);
#endfor
#endif
#for i in 0..PIXELS
#for c in 0..WIDTH
        sum_{{i}}_{{c}} += dot(v_{{i}}, w_{{c}});
#endfor
#endfor
    }
#include "split_tile"
    if column >= p.columns {
        return;
    }
#for i in 0..PIXELS
    if first + {{i}}u < p.rows {
        let at = (group.z * p.rows + first + {{i}}u) * p.columns + column;
#if WIDTH == 1
        output[at] = finish(sum_{{i}}_0);
#else
#if WIDTH == 2
        output[at / 2u] = finish(T(sum_{{i}}_0, sum_{{i}}_1));
#else
        output[at / 4u] = finish(T(sum_{{i}}_0, sum_{{i}}_1, sum_{{i}}_2, sum_{{i}}_3));
#endif
#endif
    }
#endfor
}
