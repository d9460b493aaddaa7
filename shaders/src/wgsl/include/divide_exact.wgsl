// Correctly rounded quotients and roots of floats: the device's result is near, and the remainder, which has 32 bits,
// corrects it.

// a / b for a positive normal b and an a that is 0 or normal, where the quotient is 0 or normal as well.
fn quotient(a: f32, b: f32) -> f32 {
    let bits = bitcast<vec2<u32>>(vec2(abs(a), b));
    if bits.x < 0x800000u {
        return 0.0;
    }
    let m = (bits & vec2(0x7fffffu)) | vec2(0x800000u);
    let less = select(0u, 1u, m.x < m.y);
    let by = 23u + less;
    var q = u32(f32(m.x) / f32(m.y) * f32(1u << by));
    for (var step = 0u; step < 4u; step++) {
        let left = bitcast<i32>((m.x << by) - q * m.y);
        if 2 * left > bitcast<i32>(m.y) {
            q += 1u;
        } else if 2 * left < -bitcast<i32>(m.y) {
            q -= 1u;
        }
    }
    let size = bitcast<f32>((((bits.x >> 23u) + 126u - less - (bits.y >> 23u)) << 23u) + q);
    return select(size, -size, a < 0.0);
}

// The square root of a positive normal v.
fn root(v: f32) -> f32 {
    let bits = bitcast<u32>(v);
    let odd = 1u - ((bits >> 23u) & 1u);
    let m = (bits & 0x7fffffu) | 0x800000u;
    var r = u32(sqrt(f32(m) * f32(1u << (23u + odd))));
    for (var step = 0u; step < 4u; step++) {
        let left = bitcast<i32>((m << (23u + odd)) - r * r);
        if left > bitcast<i32>(r) {
            r += 1u;
        } else if left <= -bitcast<i32>(r) {
            r -= 1u;
        }
    }
    return bitcast<f32>(((((bits >> 23u) - odd - 1u) / 2u + 63u) << 23u) + r);
}
