// Resizing of images, bilinear or to the nearest pixel. COMPUTED: positions are computed from the sizes; else read from a table.

struct Params {
    // Elements of a row of the output, or vectors of four.
    count: u32,
    items: u32,
    // Channels (or vectors of four) and columns.
#for d in 0..RANK
    extent_{{d}}: u32,
    step_{{d}}: u32,
#endfor
    in_h: i32,
    in_w: i32,
    out_h: u32,
    // Input pixels per output pixel.
    scale_h: f32,
    scale_w: f32,
    // Added to an output coordinate before scaling, and subtracted from an input coordinate after it.
    half: f32,
    // Padding.
    nothing: u32,
}

#if VEC4
alias T = vec4<{{ELEMENT}}>;
alias F = vec4<f32>;
#else
alias T = {{ELEMENT}};
alias F = f32;
#endif

@group(0) @binding(0) var<storage, read> input: array<T>;
#if COMPUTED
@group(0) @binding(1) var<storage, read_write> output: array<T>;
#else
@group(0) @binding(1) var<storage, read> taps: array<u32>;
@group(0) @binding(2) var<storage, read_write> output: array<T>;
#endif
#include "params"

#include "divide"

#if WIDE
#if VEC4
fn vec_of(v: u32) -> vec4<u32> {
    return vec4<u32>(v);
}
#else
fn vec_of(v: u32) -> u32 {
    return v;
}
#endif
#endif

#if !COMPUTED && !NEAREST && !FIXED
#include "exact"

// The function `opaque` for each element of F.
fn opaque_each(v: F) -> F {
#if VEC4
    return bitcast<F>(bitcast<vec4<u32>>(v) ^ vec4<u32>(p.nothing));
#else
    return opaque(v);
#endif
}

fn added(sum: F, v: T, a: f32, b: f32) -> F {
    return opaque_each(sum + opaque_each(F(v) * opaque(a * b)));
}
#endif

@compute @workgroup_size({{WORKGROUP}})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    p = uniforms;
    let channels = i32(p.extent_0);
    let row = p.in_w * channels;
    let image = i32(group.z) * p.in_h * row;
    let out_row = (group.z * p.out_h + group.y) * p.count;
#if COMPUTED
    let y = (f32(group.y) + p.half) * p.scale_h - p.half;
    let y0 = max(i32(floor(y)), 0);
    let down = y - f32(y0);
    let top = image + y0 * row;
    let bottom = image + min(i32(ceil(y)), p.in_h - 1) * row;
#else
    let top = image + i32(taps[3u * group.y]) * row;
    let bottom = image + i32(taps[3u * group.y + 1u]) * row;
    let beyond_top = taps[3u * group.y + 2u];
#endif
#include "walk"
        let channel = i32(digit_0);
#if COMPUTED
        let x = (f32(digit_1) + p.half) * p.scale_w - p.half;
        let x0 = max(i32(floor(x)), 0);
        let along = x - f32(x0);
        let left = x0 * channels + channel;
        let right = min(i32(ceil(x)), p.in_w - 1) * channels + channel;
        let above = input[top + left] * (1.0 - along) + input[top + right] * along;
        let below = input[bottom + left] * (1.0 - along) + input[bottom + right] * along;
        output[out_row + i] = above * (1.0 - down) + below * down;
#else
        let column = 3u * (p.out_h + digit_1);
        let left = i32(taps[column]) * channels + channel;
#if NEAREST
        output[out_row + i] = input[top + left];
#else
        let right = i32(taps[column + 1u]) * channels + channel;
#if FIXED
        let down = bitcast<i32>(beyond_top);
        let along = bitcast<i32>(taps[column + 2u]);
#if WIDE
        // Sums of the upper and of the lower bytes.
        let a = input[top + left];
        let b = input[top + right];
        let c = input[bottom + left];
        let d = input[bottom + right];
        let above = (1024 - down) * (1024 - along);
        let beside = (1024 - down) * along;
        let below = down * (1024 - along);
        let across = down * along;
        let byte = T(255);
        let low = (a & byte) * above + (b & byte) * beside + (c & byte) * below + (d & byte) * across;
        let shift = vec_of(8u);
        let high = (a >> shift) * above + (b >> shift) * beside + (c >> shift) * below + (d >> shift) * across
            + (low >> shift);
        let rest = low & byte;
        // The magnitude without its lowest byte, which does not affect rounding.
        let positive = (high > T(0)) | ((high == T(0)) & (rest > T(0)));
        let size = select(-high - select(T(0), T(1), rest > T(0)), high, positive);
        let rounded = (size + T(2048)) >> vec_of(12u);
        output[out_row + i] = select(-rounded, rounded, positive);
#else
        let sum = input[top + left] * ((1024 - down) * (1024 - along)) + input[bottom + left] * (down * (1024 - along))
            + input[top + right] * ((1024 - down) * along) + input[bottom + right] * (down * along);
        let half = select(T(-524288), T(524288), sum > T(0));
        output[out_row + i] = (sum + half) / 1048576;
#endif
#else
        let down = bitcast<f32>(beyond_top);
        let along = bitcast<f32>(taps[column + 2u]);
        let up = opaque(1.0 - down);
        let back = opaque(1.0 - along);
        var sum = added(F(0.0), input[top + left], up, back);
        sum = added(sum, input[top + right], up, along);
        sum = added(sum, input[bottom + left], down, back);
        sum = added(sum, input[bottom + right], down, along);
        // Rounded by adding a half and truncating.
        output[out_row + i] = T(clamp(sum + 0.5, F(0.0), F(255.0)));
#endif
#endif
#endif
#include "walk_on"
}
