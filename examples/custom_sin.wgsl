// y = sin(x), accurate for every finite x whose fraction of a turn a float can represent.
//
// WGSL guarantees the accuracy of sin within ±π only. So x is reduced to ±π/4 first: the nearest multiple of π/2 is
// subtracted in three parts, each of few enough bits that the products are exact.

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;

const TWO_OVER_PI: f32 = 0.63661977236758134;
const PI_HALVES = vec3f(1.5703125, 4.837512969970703125e-4, 7.54978995489188216e-8);

fn sine(x: f32) -> f32 {
    let turns = round(x * TWO_OVER_PI);
    let r = ((x - turns * PI_HALVES.x) - turns * PI_HALVES.y) - turns * PI_HALVES.z;
    let s = r * r;
    // Taylor polynomials, accurate to one or two bits up to π/4.
    let sin_r = r + r * s * (-1.0 / 6.0 + s * (1.0 / 120.0 + s * (-1.0 / 5040.0 + s / 362880.0)));
    let cos_r = 1.0 + s * (-0.5 + s * (1.0 / 24.0 + s * (-1.0 / 720.0 + s / 40320.0)));
    let quarter = i32(turns) & 3;
    let value = select(sin_r, cos_r, (quarter & 1) == 1);
    return select(value, -value, quarter >= 2);
}

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let i = (group.y * groups.x + group.x) * 64u + local;
    if i < arrayLength(&y) {
        y[i] = sine(x[i]);
    }
}
