// i / d for i < 2^31, 0 < d < 2^31. Devices divide integers slowly: the quotient is estimated in floats, refined by
// its remainder (which may be negative), and finally corrected by one.
fn divide(i: u32, d: u32) -> u32 {
    let estimate = i32(f32(i) / f32(d));
    let left = i32(i) - estimate * i32(d);
    let q = estimate + i32(floor(f32(left) / f32(d)));
    let r = i32(i) - q * i32(d);
    return u32(q + select(0, 1, r >= i32(d)) - select(0, 1, r < 0));
}
