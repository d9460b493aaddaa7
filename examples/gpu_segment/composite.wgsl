// The photo where the mask is 1, an evening sky where it is 0.

struct Params {
    // The size of the mask, in pixels.
    width: u32,
    height: u32,
    // The region of the photo that the mask covers, as fractions of the photo's sides: left and upper edge, width,
    // height.
    left: f32,
    top: f32,
    across: f32,
    down: f32,
}

@group(0) @binding(0) var photo: texture_2d<f32>;
@group(0) @binding(1) var<storage, read> mask: array<f32>;
@group(0) @binding(2) var picture: texture_storage_2d<rgba8unorm, write>;
@group(0) @binding(3) var<uniform> p: Params;

fn mask_at(at: vec2<i32>) -> f32 {
    let pixel = clamp(at, vec2(0), vec2(i32(p.width), i32(p.height)) - 1);
    return mask[u32(pixel.y) * p.width + u32(pixel.x)];
}

// Interpolates between the mask's pixels, whose centers are at halves.
fn smooth_mask(at: vec2<f32>) -> f32 {
    let corner = vec2<i32>(floor(at - 0.5));
    let between = fract(at - 0.5);
    let above = mix(mask_at(corner), mask_at(corner + vec2(1, 0)), between.x);
    let below = mix(mask_at(corner + vec2(0, 1)), mask_at(corner + vec2(1, 1)), between.x);
    return mix(above, below, between.y);
}

// A gradient from top to bottom with a glow low on the right.
fn sky(at: vec2<f32>) -> vec3<f32> {
    let blue = vec3(24.0, 32.0, 92.0) / 255.0;
    let orange = vec3(250.0, 150.0, 110.0) / 255.0;
    let yellow = vec3(255.0, 226.0, 150.0) / 255.0;
    let away = at - vec2(0.8, 0.75);
    return mix(mix(blue, orange, at.y), yellow, exp(-8.0 * dot(away, away)));
}

@compute @workgroup_size(8, 8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let size = textureDimensions(photo);
    if any(id.xy >= size) {
        return;
    }
    let at = (vec2<f32>(id.xy) + 0.5) / vec2<f32>(size);
    let in_mask = (at - vec2(p.left, p.top)) / vec2(p.across, p.down) * vec2(f32(p.width), f32(p.height));
    // Without the mask's wide, faint edge, where the old background would be visible.
    let person = smoothstep(0.4, 0.9, smooth_mask(in_mask));
    let front = textureLoad(photo, id.xy, 0).rgb;
    textureStore(picture, id.xy, vec4(mix(sky(at), front, person), 1.0));
}
