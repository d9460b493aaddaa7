// Products in double precision, with the integers of include/fixed_wide.wgsl.

// The product of two unsigned 64-bit integers.
fn double_words(a: vec2<u32>, b: vec2<u32>) -> vec4<u32> {
    let low = wide_product(a.x, b.x);
    let first = wide_product(a.x, b.y);
    let second = wide_product(a.y, b.x);
    let high = wide_product(a.y, b.y);
    let one = wide_add(vec2(low.y, 0u), vec2(first.x, 0u));
    let one_on = wide_add(one, vec2(second.x, 0u));
    let two = wide_add(vec2(one_on.y, 0u), vec2(first.y, 0u));
    let two_on = wide_add(wide_add(two, vec2(second.y, 0u)), high);
    return vec4(low.x, one_on.x, two_on);
}

fn double_word(p: vec4<u32>, i: u32) -> u32 {
    return select(0u, p[min(i, 3u)], i < 4u);
}

// Adds 2^n, for n in 0..127.
fn double_add_bit(p: vec4<u32>, n: u32) -> vec4<u32> {
    let bit = 1u << (n & 31u);
    let word = n / 32u;
    var sum = p;
    var carry = 0u;
    for (var i = 0u; i < 4u; i++) {
        let add = select(0u, bit, i == word) + carry;
        sum[i] = p[i] + add;
        // A carry leaves the bit's word or a later one: it never meets the bit.
        carry = select(0u, 1u, sum[i] < add);
    }
    return sum;
}

// x * m * 2^-right for a 53-bit m and |x| up to 2^53, as doubles compute it: the product rounded to 53 bits, to even,
// then to an integer, halves away from zero; clamped to 31 bits. `right` is from 1 to 127.
fn fixed_double(x: vec2<u32>, m: vec2<u32>, right: u32) -> i32 {
    let p = double_words(wide_abs(x), m);
    let lead = select(
        select(select(firstLeadingBit(p.x), 32u + firstLeadingBit(p.y), p.y > 0u), 64u + firstLeadingBit(p.z), p.z > 0u),
        96u + firstLeadingBit(p.w),
        p.w > 0u,
    );
    // Rounding twice matters only just below a half, which has few bits and is even: there, half a unit in the last
    // of the 53 places takes part in the rounding to an integer.
    var sum = double_add_bit(p, right - 1u);
    if any(p > vec4(0u)) && lead >= 53u {
        sum = double_add_bit(sum, lead - 53u);
    }
    let word = right / 32u;
    let m_bits = right & 31u;
    let below = 32u - max(m_bits, 1u);
    let next = double_word(sum, word + 1u);
    let low = (double_word(sum, word) >> m_bits) | select(next << below, 0u, m_bits == 0u);
    let after = double_word(sum, word + 2u) | double_word(sum, word + 3u);
    let size = select(min(low, 0x7fffffffu), 0x7fffffffu, (next >> m_bits) > 0u || after > 0u);
    return select(bitcast<i32>(size), -bitcast<i32>(size), (x.y >> 31u) == 1u);
}
