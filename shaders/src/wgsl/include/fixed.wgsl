// x * m * 2^(shift - 31) for m in 2^30..2^31, rounded after the product and after the shift as in TFLite's
// kernels; halves of the latter upwards or away from zero.
fn fixed_multiply(x: i32, m: i32, shift: i32, up: bool) -> i32 {
    let left = x << u32(max(shift, 0));
    let a = bitcast<u32>(abs(left));
    let b = bitcast<u32>(m);
    // The 64-bit product.
    let low = (a & 0xffffu) * (b & 0xffffu);
    let middle = (a >> 16u) * (b & 0xffffu) + (low >> 16u);
    let other = (a & 0xffffu) * (b >> 16u) + (middle & 0xffffu);
    let high = (a >> 16u) * (b >> 16u) + (middle >> 16u) + (other >> 16u);
    let bottom = (other << 16u) | (low & 0xffffu);
    let rounded = bottom + select(0x40000000u, 0x3fffffffu, left < 0);
    let top = high + select(0u, 1u, rounded < bottom);
    let size = bitcast<i32>((top << 1u) | (rounded >> 31u));
    let product = select(size, -size, left < 0);
    let right = u32(max(-shift, 0));
    let mask = bitcast<i32>((1u << right) - 1u);
    let half = (mask >> 1u) + select(0, 1, product < 0 && !up);
    return (product >> right) + select(0, 1, (product & mask) > half);
}
