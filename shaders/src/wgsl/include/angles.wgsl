// Sine and cosine of any angle. WGSL specifies neither beyond half a turn.

// The fractional bits of 1 / (2 pi).
const TURNS = array<u32, 7>(
    0x28be60dbu, 0x9391054au, 0x7f09d5f4u, 0x7d4d3770u, 0x36d8a566u, 0x4f10e410u, 0x7f9458eau,
);

// A large angle without its whole turns, after Payne and Hanek: only the fractional bits of the product of its 24 bits
// with 1 / (2 pi) matter.
fn far_angle(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    let exponent = i32((bits >> 23u) & 0xffu) - 150;
    if exponent > 104 {
        // Infinite, or NaN.
        return bitcast<f32>(bits | 0x7fc00000u);
    }
    let mantissa = (bits & 0x7fffffu) | 0x800000u;
    // Bits of 1 / (2 pi), from the first whose product with the angle is not whole turns.
    let left = u32(max(exponent, 0));
    let word = left / 32u;
    let shift = left % 32u;
    var turns = TURNS;
    var high = turns[word] << shift;
    var low = turns[word + 1u] << shift;
    if shift > 0u {
        high |= turns[word + 1u] >> (32u - shift);
        low |= turns[word + 2u] >> (32u - shift);
    }
    let right = u32(clamp(-exponent, 0, 31));
    if right > 0u {
        low = (low >> right) | (high << (32u - right));
        high >>= right;
    }
    let below = ((mantissa >> 12u) * (low >> 12u) >> 8u) + ((mantissa & 0xfffu) * (low >> 12u) >> 20u);
    // Signed, so that the angle is within half a turn.
    let angle = f32(bitcast<i32>(mantissa * high + below)) * 1.4629181e-9;
    return select(angle, -angle, (bits >> 31u) == 1u);
}

// Magnitude up to which whole turns are subtracted with 2 pi in two parts, which is precise enough.
const NEAR = 10000.0;

fn one_turn(v: T) -> T {
    let turns = round(v * 0.15915494);
    let near = (v - turns * 6.28125) - turns * 0.0019353072;
#if VEC4
    if all(abs(v) <= T(NEAR)) {
        return near;
    }
    let far = T(far_angle(v.x), far_angle(v.y), far_angle(v.z), far_angle(v.w));
    return select(far, near, abs(v) <= T(NEAR));
#else
    if abs(v) <= NEAR {
        return near;
    }
    return far_angle(v);
#endif
}

fn op_cos(v: T, a: f32, b: f32) -> T {
    return cos(one_turn(v));
}

fn op_sin(v: T, a: f32, b: f32) -> T {
    return sin(one_turn(v));
}
