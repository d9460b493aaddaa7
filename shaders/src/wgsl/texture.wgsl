// Reads an image, or a part of it, as a tensor, interpolated between the centers of its pixels, with black outside of it.

struct Params {
    // Factors of colours, and the offsets added afterwards.
    scale: vec4<f32>,
    offset: vec4<f32>,
    // Corner and size of the tensor's region of the image, whose sides are 1 long.
    left: f32,
    top: f32,
    across: f32,
    down: f32,
    // Extents of the tensor.
    width: u32,
    height: u32,
}

@group(0) @binding(0) var picture: texture_2d<f32>;
@group(0) @binding(1) var<storage, read_write> output: array<f32>;
@group(0) @binding({{UNIFORM}}) var<uniform> p: Params;

// The border extends half a pixel outwards.
fn pixel(at: vec2<i32>, last: vec2<i32>) -> vec4<f32> {
    return textureLoad(picture, clamp(at, vec2(0), last), 0);
}

@compute @workgroup_size({{SIDE}}, {{SIDE}})
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x >= p.width || id.y >= p.height {
        return;
    }
    let size = vec2<i32>(textureDimensions(picture));
    let part = (vec2<f32>(id.xy) + 0.5) / vec2(f32(p.width), f32(p.height));
    let at = vec2(p.left, p.top) + part * vec2(p.across, p.down);
    let inside = all(at >= vec2(0.0)) && all(at <= vec2(1.0));
    let position = clamp(at, vec2(0.0), vec2(1.0)) * vec2<f32>(size) - 0.5;
    let corner = vec2<i32>(floor(position));
    let between = position - floor(position);
    let above = mix(pixel(corner, size - 1), pixel(corner + vec2(1, 0), size - 1), between.x);
    let below = mix(pixel(corner + vec2(0, 1), size - 1), pixel(corner + vec2(1, 1), size - 1), between.x);
    let colour = select(vec4(0.0), mix(above, below, between.y), inside);
    let i = (id.y * p.width + id.x) * {{CHANNELS}}u;
#if CHANNELS == 1
    // Brightness by ITU-R BT.601.
    output[i] = dot(colour.rgb, vec3(0.299, 0.587, 0.114)) * p.scale[0] + p.offset[0];
#else
#for c in 0..CHANNELS
    output[i + {{c}}u] = colour[{{c}}] * p.scale[{{c}}] + p.offset[{{c}}];
#endfor
#endif
}
