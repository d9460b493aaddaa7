// Single precision that rounds after every operation, as it is on CPUs.

// The value. Compilers cannot know that p.nothing is 0, and so can neither fuse the product that a value is with what
// follows, nor put sums in another order.
fn opaque(v: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(v) ^ p.nothing);
}

// An integer as the nearest float.
fn nearest_float(v: i32) -> f32 {
    return f32(v >> 12u) * 4096.0 + f32(v & 0xfff);
}

// To the nearest whole number, halves away from zero.
fn nearest_whole(v: f32) -> f32 {
    let size = abs(v);
    let whole = floor(size);
    let rounded = whole + select(0.0, 1.0, size - whole >= 0.5);
    return select(rounded, -rounded, v < 0.0);
}

// 1 / v for a positive normal v, correctly rounded. The nearest 24-bit number to 2^47 / m, for the fraction's 24 bits m, is
// near what devices divide; what it leaves tells the rest, and fits 32 bits.
fn reciprocal(v: f32) -> f32 {
    let bits = bitcast<u32>(v);
    let m = (bits & 0x7fffffu) | 0x800000u;
    if m == 0x800000u {
        return bitcast<f32>((254u - (bits >> 23u)) << 23u);
    }
    var q = u32(140737488355328.0 / f32(m));
    for (var step = 0u; step < 4u; step++) {
        let left = bitcast<i32>(0u - q * m);
        if 2 * left > i32(m) {
            q += 1u;
        } else if 2 * left < -i32(m) {
            q -= 1u;
        }
    }
    return bitcast<f32>(((253u - (bits >> 23u)) << 23u) + (q - 0x800000u));
}
