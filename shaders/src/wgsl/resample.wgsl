// Reads a map at positions between its pixels. Positions outside of it are zero.

struct Params {
    count: u32,
    items: u32,
    // Channels, columns and rows (of all maps).
#for d in 0..RANK
    extent_{{d}}: u32,
    step_{{d}}: u32,
#endfor
    // Rows of one output map.
    out_h: u32,
    in_h: i32,
    in_w: i32,
    // Added to a position before the transform, and subtracted after it.
    center: f32,
}

@group(0) @binding(0) var<storage, read> input: array<f32>;
// MATRIX: the rows of a 4x4 matrix from positions in the output to positions in the map; else a position [x, y] for
// every pixel.
@group(0) @binding(1) var<storage, read> positions: array<f32>;
@group(0) @binding(2) var<storage, read_write> output: array<f32>;
#include "params"

#include "divide"

fn value(image: i32, y: i32, x: i32, c: u32) -> f32 {
    let inside = (y >= 0) & (x >= 0) & (y < p.in_h) & (x < p.in_w);
    let pixel = (image * p.in_h + clamp(y, 0, p.in_h - 1)) * p.in_w + clamp(x, 0, p.in_w - 1);
    return select(0.0, input[u32(pixel) * p.extent_0 + c], inside);
}

@compute @workgroup_size({{WORKGROUP}})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    p = uniforms;
#include "walk"
        let size = vec2(f32(p.in_w), f32(p.in_h));
#if MATRIX
        let image = 0;
        let to = vec2(f32(digit_1), f32(digit_2)) + p.center;
        let at = vec2(
            positions[0] * to.x + positions[1] * to.y + positions[3],
            positions[4] * to.x + positions[5] * to.y + positions[7],
        ) - p.center;
        let inside = all(at >= vec2(0.0)) & all(at <= size - 1.0);
#else
        let image = i32(divide(digit_2, p.out_h));
        let pixel = (digit_2 * p.extent_1 + digit_1) * 2u;
        let at = vec2(positions[pixel], positions[pixel + 1u]);
        let inside = all(at > vec2(-1.0)) & all(at < size);
#endif
        // Distant positions would exceed an integer.
        let near = clamp(at, vec2(-1.0), size);
        let corner = floor(near);
        let part = near - corner;
        let x = i32(corner.x);
        let y = i32(corner.y);
        let above = (1.0 - part.x) * value(image, y, x, digit_0) + part.x * value(image, y, x + 1, digit_0);
        let below = (1.0 - part.x) * value(image, y + 1, x, digit_0) + part.x * value(image, y + 1, x + 1, digit_0);
        output[i] = select(0.0, (1.0 - part.y) * above + part.y * below, inside);
#include "walk_on"
}
