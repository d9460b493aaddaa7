// Quantization of rows of floats, with the scales of the rows.

struct Params {
    // Elements, or vectors of four.
    count: u32,
    items: u32,
#for d in 0..RANK
    extent_{{d}}: u32,
    step_{{d}}: u32,
#endfor
    low: i32,
    // Padding.
    nothing: u32,
}

#if VEC4
alias F = vec4<f32>;
alias N = vec4<i32>;
alias U = vec4<u32>;
#else
alias F = f32;
alias N = i32;
alias U = u32;
#endif

@group(0) @binding(0) var<storage, read> input: array<F>;
@group(0) @binding(1) var<storage, read> rows: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> output: array<N>;
#include "params"

#include "divide"

@compute @workgroup_size({{WORKGROUP}})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    p = uniforms;
#include "walk"
        let row = rows[digit_1];
        // Rounded before the next operation, which compilers could fuse with the product.
        let product = bitcast<F>(bitcast<U>(input[i] * row.z) ^ U(p.nothing));
        let steps = clamp(product, F(-300.0), F(300.0));
        // Halves are rounded away from zero.
        let whole = floor(abs(steps));
        let nearest = sign(steps) * (whole + select(F(0.0), F(1.0), abs(steps) - whole >= F(0.5))) + row.y;
        output[i] = N(clamp(nearest, F(f32(p.low)), F(127.0)));
#include "walk_on"
}
