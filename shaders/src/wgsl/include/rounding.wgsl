// More of TFLite's fixed-point arithmetic, in addition to fixed_multiply.

// The 64-bit product, the high half first.
fn long_product(a: u32, b: u32) -> vec2<u32> {
    let low = (a & 0xffffu) * (b & 0xffffu);
    let middle = (a >> 16u) * (b & 0xffffu) + (low >> 16u);
    let other = (a & 0xffffu) * (b >> 16u) + (middle & 0xffffu);
    let high = (a >> 16u) * (b >> 16u) + (middle >> 16u) + (other >> 16u);
    return vec2<u32>(high, (other << 16u) | (low & 0xffffu));
}

// The high half of twice the product, rounded to nearest, halves upwards.
fn high_product(a: i32, b: i32) -> i32 {
    let negative = (a < 0) != (b < 0);
    let size = long_product(bitcast<u32>(abs(a)), bitcast<u32>(abs(b)));
    let low = size.y + select(0x40000000u, 0x3fffffffu, negative);
    let high = size.x + select(0u, 1u, low < size.y);
    let doubled = bitcast<i32>((high << 1u) | (low >> 31u));
    return select(doubled, -doubled, negative);
}

// x / 2^exponent, rounded to nearest, halves away from zero: 0 beyond an exponent of 31.
fn shift_right(x: i32, exponent: i32) -> i32 {
    let by = u32(clamp(exponent, 0, 31));
    let mask = bitcast<i32>((1u << by) - 1u);
    let half = (mask >> 1u) + select(0, 1, x < 0);
    return select((x >> by) + select(0, 1, (x & mask) > half), 0, exponent > 31);
}

// x * 2^by, saturated to 32 bits, for by from 1 to 30.
fn saturating_shift(x: i32, by: u32) -> i32 {
    let most = 2147483647 >> by;
    return select(select(x << by, 2147483647, x > most), -2147483647 - 1, x < -1 - most);
}
