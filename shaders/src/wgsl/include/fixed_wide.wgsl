// 64-bit integers in two's complement: the low word, then the high one. All operations wrap.

fn wide_of(x: i32) -> vec2<u32> {
    return vec2(bitcast<u32>(x), bitcast<u32>(x >> 31u));
}

fn wide_add(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let low = a.x + b.x;
    return vec2(low, a.y + b.y + select(0u, 1u, low < a.x));
}

fn wide_negate(a: vec2<u32>) -> vec2<u32> {
    return wide_add(~a, vec2(1u, 0u));
}

// The magnitude, unsigned.
fn wide_abs(a: vec2<u32>) -> vec2<u32> {
    return select(a, wide_negate(a), vec2((a.y >> 31u) == 1u));
}

// The product of two unsigned words.
fn wide_product(a: u32, b: u32) -> vec2<u32> {
    let low = (a & 0xffffu) * (b & 0xffffu);
    let middle = (a >> 16u) * (b & 0xffffu) + (low >> 16u);
    let other = (a & 0xffffu) * (b >> 16u) + (middle & 0xffffu);
    return vec2((other << 16u) | (low & 0xffffu), (a >> 16u) * (b >> 16u) + (middle >> 16u) + (other >> 16u));
}

// The product with an unsigned word.
fn wide_scale(a: vec2<u32>, b: u32) -> vec2<u32> {
    let low = wide_product(a.x, b);
    return vec2(low.x, low.y + a.y * b);
}

// a * 2^n for n in 0..63.
fn wide_left(a: vec2<u32>, n: u32) -> vec2<u32> {
    let m = n & 31u;
    let carried = select(a.x >> (32u - max(m, 1u)), 0u, m == 0u);
    return select(vec2(a.x << m, (a.y << m) | carried), vec2(0u, a.x << m), n > 31u);
}

// a / 2^n for n in 0..63, rounded down, for signed a.
fn wide_right(a: vec2<u32>, n: u32) -> vec2<u32> {
    let m = n & 31u;
    let top = bitcast<i32>(a.y);
    let high = bitcast<u32>(top >> m);
    let carried = select(a.y << (32u - max(m, 1u)), 0u, m == 0u);
    return select(vec2((a.x >> m) | carried, high), vec2(high, bitcast<u32>(top >> 31u)), n > 31u);
}

// x * m * 2^-right for a 15-bit m, rounded once, halves upwards: the low word of the result. `right` is from -31
// to 63.
fn fixed_wide(x: vec2<u32>, m: u32, right: i32) -> i32 {
    let product = wide_scale(x, m);
    if right <= 0 {
        return bitcast<i32>(product.x << u32(-right));
    }
    let half = wide_left(vec2(1u, 0u), u32(right) - 1u);
    return bitcast<i32>(wide_right(wide_add(product, half), u32(right)).x);
}
