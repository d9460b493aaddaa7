// Products of pairs of matrices. An invocation computes a register tile of PIXELS rows by WIDTH columns of
// one product; eight neighbouring invocations (x) share the rows.
//
// SHARED: those eight are a subgroup. Each loads values for another row, and broadcasts distribute them.
//
// FIXED: operands and result are integers. SUMS: 0: sums are accumulated in floats; 1: in floats block by block, and the
// blocks in integers.

struct Params {
#include "matmul_params"
}

#if FIXED
alias E = i32;
#else
alias E = f32;
#endif
#if SUMS == 0
alias S = f32;
#else
alias S = i32;
#endif

alias V = vec4<f32>;
#if A_VEC4
alias A = vec4<E>;
alias FA = V;
#else
alias A = E;
alias FA = f32;
#endif
#if B_ROWS || B_COLUMNS
alias B = vec4<E>;
alias FB = V;
#else
alias B = E;
alias FB = f32;
#endif
#if WIDTH == 1
alias T = E;
#else
alias T = vec{{WIDTH}}<E>;
#endif

@group(0) @binding(0) var<storage, read> a: array<A>;
@group(0) @binding(1) var<storage, read> b: array<B>;
#if BIAS
@group(0) @binding(2) var<storage, read> bias: array<i32>;
#endif
@group(0) @binding({{2 + BIAS}}) var<storage, read_write> output: array<T>;
#include "params"

#if FIXED
#include "fixed"

fn result(sum: S, column: u32) -> i32 {
#if BIAS
    let biased = i32(sum) + bias[column];
#else
    let biased = i32(sum);
#endif
    return clamp(fixed_multiply(biased, p.multiplier, p.shift, p.up == 1) + p.zero, p.low, p.high);
}
#else
#include "math"

fn result(sum: S, column: u32) -> f32 {
    return sum;
}
#endif

// The value minus its zero point.
fn a_of(i: u32) -> FA {
#if FIXED
    return FA(a[i] - A(p.zero_a));
#else
    return a[i];
#endif
}

fn b_of(i: u32) -> FB {
#if FIXED
    return FB(b[i] - B(p.zero_b));
#else
    return b[i];
#endif
}

// Four steps in depth, from step k on.
fn load_a(at: u32, k: u32) -> V {
#if A_VEC4
    return a_of(at + k / 4u);
#else
    let left = p.depth - k;
    let first = at + k * p.a_depth;
    var v = V(a_of(first), 0.0, 0.0, 0.0);
    if left > 1u { v.y = a_of(first + p.a_depth); }
    if left > 2u { v.z = a_of(first + 2u * p.a_depth); }
    if left > 3u { v.w = a_of(first + 3u * p.a_depth); }
    return v;
#endif
}

#if !B_ROWS
fn load_b(at: u32, k: u32) -> V {
#if B_COLUMNS
    return b_of(at + k / 4u);
#else
    let left = p.depth - k;
    let first = at + k * p.b_depth;
    var v = V(b_of(first), 0.0, 0.0, 0.0);
    if left > 1u { v.y = b_of(first + p.b_depth); }
    if left > 2u { v.z = b_of(first + 2u * p.b_depth); }
    if left > 3u { v.w = b_of(first + 3u * p.b_depth); }
    return v;
#endif
}
#endif

#if SPLIT
var<workgroup> parts: array<S, {{LANES * ROWS * WIDTH}}>;
#endif

fn finish(v: T) -> T {
#if FIXED
    return v;
#else
    return {{ACTIVATION}};
#endif
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
    let column = (group.x * {{LANES}}u + local.x) * {{WIDTH}}u;
#if SPLIT
    let first = group.y * {{PIXELS}}u;
#else
    let first = (group.y * {{ROWS}}u + local.y) * {{PIXELS}}u;
#endif
    // The last tiles exceed the output: their surplus reads elements inside and writes nothing.
    let own = min(column, p.columns - {{WIDTH}}u);
#include "matmul_batch"
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
    var sum_{{i}}_{{c}} = S();
#endfor
#endfor
#if SUMS == 1
    for (var block = 0u; block < p.depth; block += p.block) {
    let end = min(block + p.block, p.depth);
#for c in 0..WIDTH
#for i in 0..PIXELS
    var part_{{i}}_{{c}} = 0.0;
#endfor
#endfor
#else
    let block = 0u;
    let end = p.depth;
#endif
#if SPLIT
    for (var k = block + local.y * 4u; k < end; k += {{4 * ROWS}}u) {
#else
    for (var k = block; k < end; k += 4u) {
#endif
#if B_ROWS
        // A vector of four columns per step in depth; the last step may exceed the depth.
#for j in 0..4
        let row_{{j}} = b_of(b_base + min(k + {{j}}u, p.depth - 1u) * p.b_depth + own / 4u);
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
#if SUMS == 1
        part_{{i}}_{{c}} += dot(v_{{i}}, w_{{c}});
#else
        sum_{{i}}_{{c}} += dot(v_{{i}}, w_{{c}});
#endif
#endfor
#endfor
    }
#if SUMS == 1
#for c in 0..WIDTH
#for i in 0..PIXELS
    sum_{{i}}_{{c}} += i32(part_{{i}}_{{c}});
#endfor
#endfor
    }
#endif
#include "split_tile"
    if column >= p.columns {
        return;
    }
#if ROLLED && FIXED
    // Unrolled, results take most of the time of compilation on software devices.
    var sums = array<array<S, {{WIDTH}}>, {{PIXELS}}>(
#for i in 0..PIXELS
        array<S, {{WIDTH}}>(
#for c in 0..WIDTH
            sum_{{i}}_{{c}},
#endfor
        ),
#endfor
    );
    for (var i = 0u; i < {{PIXELS}}u; i++) {
        let row = first + i;
#for c in 0..WIDTH
        let sum_{{c}} = sums[i][{{c}}];
#endfor
#include "matmul_row"
    }
#else
#for i in 0..PIXELS
    {
        let row = first + {{i}}u;
#for c in 0..WIDTH
        let sum_{{c}} = sum_{{i}}_{{c}};
#endfor
#include "matmul_row"
    }
#endfor
#endif
}
