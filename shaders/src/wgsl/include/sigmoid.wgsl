// tanh and the logistic function of 16-bit numbers with a given number of integer bits, in TFLite's fixed point.
// Results are fractions of 15 bits. Requires include/rounding.wgsl.

// The product of two fractions, rounded to nearest and saturated.
fn fraction_product(a: i32, b: i32) -> i32 {
    let product = a * b;
    return min((product + select(1 - 16384, 16384, product >= 0)) / 32768, 32767);
}

// exp(x) for x in -1/4..0: a Taylor polynomial around -1/8.
fn exp_near_zero(at: i32) -> i32 {
    let x = at + 4096;
    let x2 = fraction_product(x, x);
    let x4 = fraction_product(x2, x2);
    let x3 = fraction_product(x2, x);
    let high = shift_right(fraction_product(shift_right(x4, 2) + x3, 10923) + x2, 1);
    return min(28918 + fraction_product(28918, x + high), 32767);
}

// exp(x) for x up to 0, with this number of integer bits.
fn exp_of_negative(x: i32, whole: u32) -> i32 {
    if x == 0 {
        return 32767;
    }
    let quarter = 1u << (13u - whole);
    let part = (x & (bitcast<i32>(quarter) - 1)) - bitcast<i32>(quarter);
    let quarters = bitcast<u32>(part - x) / quarter;
    var result = exp_near_zero(part << whole);
    // exp of -1/4, -1/2, -1, -2 and so on: one factor for each bit.
    var factors = array<i32, 9>(25520, 19875, 12055, 4435, 600, 11, 0, 0, 0);
    for (var i = 0u; i < min(whole + 2u, 7u); i++) {
        if ((quarters >> i) & 1u) == 1u {
            result = fraction_product(result, factors[i]);
        }
    }
    return result;
}

// 2 / (1 + e) for the fraction e, with 13 fractional bits: three steps of Newton's method.
fn twice_over_one_plus(e: i32) -> i32 {
    let d = (e + 32768) / 2;
    var x = 23130 + fraction_product(d, -15420);
    for (var step = 0u; step < 3u; step++) {
        let error = 8192 - fraction_product(d, x);
        x += clamp(fraction_product(x, error) * 4, -32768, 32767);
    }
    return x;
}

fn fixed_tanh(x: i32, whole: u32) -> i32 {
    // x is doubled by reinterpreting it with one more integer bit.
    let e = exp_of_negative(-abs(x), whole + 1u);
    let size = clamp((twice_over_one_plus(e) - 8192) * 4, -32768, 32767);
    return select(select(size, -size, x < 0), 0, x == 0);
}

fn fixed_logistic(x: i32, whole: u32) -> i32 {
    let positive = clamp(twice_over_one_plus(exp_of_negative(-abs(x), whole)) * 2, -32768, 32767);
    return select(select(32767 - positive, positive, x > 0), 16384, x == 0);
}
