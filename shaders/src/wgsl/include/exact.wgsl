// Single precision that rounds after every operation, as CPUs do.

// The value. Compilers do not know that p.nothing is 0, so they can neither fuse a product with the operation that
// follows, nor reorder sums.
fn opaque(v: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(v) ^ p.nothing);
}

// An integer as the nearest float.
fn nearest_float(v: i32) -> f32 {
    return f32(v >> 12u) * 4096.0 + f32(v & 0xfff);
}

// Rounds to the nearest integer, halves away from zero.
fn nearest_whole(v: f32) -> f32 {
    let size = abs(v);
    let whole = floor(size);
    let rounded = whole + select(0.0, 1.0, size - whole >= 0.5);
    return select(rounded, -rounded, v < 0.0);
}

// 1 / v for a positive normal v, correctly rounded. The 24-bit number nearest to 2^47 / m, for the 24 bits m of the
// fraction, is near the device's quotient; the remainder, which has 32 bits, corrects it.
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
