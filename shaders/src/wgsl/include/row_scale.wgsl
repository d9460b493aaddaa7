// The scale with which floats are quantized to 8-bit integers, as CPUs compute it: in single precision, except the zero
// point, which is computed in double precision. Requires include/exact.wgsl, divide_exact.wgsl and, for zero
// points, fixed_wide.wgsl.

#if ASYMMETRIC
// Whether a is larger, for unsigned values.
fn wide_above(a: vec2<u32>, b: vec2<u32>) -> bool {
    return a.y > b.y || (a.y == b.y && a.x > b.x);
}

// 255 * end / range, subtracted from -128 where `low`, else from 127, and rounded to an integer. Only halves need care:
// they are rounded away from zero, unless double precision is slightly off, as for `range / 255`.
fn steps_to_zero(end: f32, range: f32, low: bool) -> u32 {
    let bits = bitcast<vec2<u32>>(vec2(end, range));
    let by = (bits.y >> 23u) - (bits.x >> 23u);
    if bits.x < 0x800000u || by > 9u {
        return 0u;
    }
    let m = (bits & vec2(0x7fffffu)) | vec2(0x800000u);
    // Twice the number, and its remainder.
    let dividend = wide_product(m.x, 510u);
    let divisor = wide_left(vec2(m.y, 0u), by);
    var twice = u32(510.0 * (end / range));
    var left = wide_add(dividend, wide_negate(wide_scale(divisor, twice)));
    for (var step = 0u; step < 2u; step++) {
        if (left.y >> 31u) == 1u {
            twice -= 1u;
            left = wide_add(left, divisor);
        } else if !wide_above(divisor, left) {
            twice += 1u;
            left = wide_add(left, wide_negate(divisor));
        }
    }
    let whole = twice / 2u;
    if (twice & 1u) == 0u {
        return whole;
    }
    if any(left != vec2(0u)) {
        return whole + 1u;
    }
    // A half. `range / 255` has 53 bits: its error is this number of 255ths of the last bit.
    let places = select(36u, 37u, m.y < 16711680u);
    let over = m.y % 255u * select(16u, 32u, places == 37u) % 255u;
    let off = select(over, 255u - over, over > 127u);
    let lead = firstLeadingBit(twice);
    // Whether the quotient is rounded to its neighbour,
    let more = wide_left(vec2(m.y, 0u), places);
    let exact = wide_add(more, select(wide_negate(vec2(off, 0u)), vec2(off, 0u), over > 127u));
    let moves = off > 0u && wide_above(wide_left(vec2(twice * off, 0u), 53u - lead), exact);
    // and whether the difference preserves that.
    let rest = select(253u - 2u * min(whole, 126u), 255u - twice, low);
    let shown = moves && (lead >= firstLeadingBit(max(rest, 1u)));
    let up = over <= 127u;
    let away = select(whole > 126u, false, low);
    return whole + select(0u, 1u, select(away, up, shown));
}
#endif

// Scale, zero point and reciprocal of the scale, for floats from `low` to `high`, with zero in between.
fn row_scale(low: f32, high: f32) -> vec4<f32> {
#if ASYMMETRIC
    if low == high {
        return vec4(1.0, 0.0, 0.0, 0.0);
    }
    let range = opaque(high - low);
    let scale = quotient(range, 255.0);
    // The zero point is computed from the end that is nearer to zero, which loses less precision.
    let from_low = opaque(255.0 * opaque(high + low)) > range;
    let steps = f32(steps_to_zero(select(high, -low, from_low), range, from_low));
    return vec4(scale, select(127.0 - steps, -128.0 + steps, from_low), reciprocal(scale), 0.0);
#else
    let range = max(high, -low);
    if range == 0.0 {
        return vec4(1.0, 0.0, 0.0, 0.0);
    }
    return vec4(quotient(range, 127.0), 0.0, quotient(127.0, range), 0.0);
#endif
}

// The number of scales by which a float is above the zero point.
fn row_step(v: f32, row: vec4<f32>) -> f32 {
    let steps = nearest_whole(clamp(opaque(v * row.z), -300.0, 300.0));
#if ASYMMETRIC
    return clamp(steps + row.y, -128.0, 127.0) - row.y;
#else
    return clamp(steps, -127.0, 127.0);
#endif
}
