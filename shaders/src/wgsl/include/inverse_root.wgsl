// Requires include/rounding.wgsl.

// 1 / sqrt(v) for v above 0, as a factor and its shift: five steps of Newton's method, with 3 integer bits; a product of
// two has 6 of them, of three 9.
fn inverse_root(v: i32) -> vec2<i32> {
    if v <= 1 {
        return vec2<i32>(2147483647, 0);
    }
    var x = v;
    var right = 11;
    while x >= (1 << 29u) {
        x /= 4;
        right += 1;
    }
    // Shifted left by pairs of bits until it is within 2^27..2^29.
    let pairs = (i32(countLeadingZeros(x)) - 1) / 2 - 1;
    right -= pairs;
    x = x << u32(2 * pairs);
    let half = shift_right(x >> 1u, 1);
    var y = 1 << 28u;
    for (var step = 0u; step < 5u; step++) {
        let cube = saturating_shift(high_product(high_product(y, y), y), 6u);
        y = saturating_shift(high_product(402653184, y) - high_product(half, cube), 3u);
    }
    let root = high_product(y, 1518500250);
    return vec2<i32>(root << u32(max(-right, 0)), -max(right, 0));
}
