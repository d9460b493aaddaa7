// Stores four channels of a pixel, without those outside of the output.
fn store(pixel: u32, channel: u32, sums_of: array<S, 4>) {
    if pixel >= p.out_pixels || channel >= p.out_c {
        return;
    }
    let at = pixel * p.out_c + channel;
#if !INTEGERS
    let bias = bias_of(channel / 4u);
#endif
#if WIDTH == 4
#if INTEGERS
    let v = T(
#for c in 0..4
        result(sums_of[{{c}}], channel + {{c}}u, pixel),
#endfor
    );
#else
    let v = T(sums_of[0], sums_of[1], sums_of[2], sums_of[3]) + bias;
#endif
    output[at / 4u] = finish(v, at / 4u, channel / 4u);
#else
#for c in 0..4
    if channel + {{c}}u < p.out_c {
#if INTEGERS
        output[at + {{c}}u] = finish(result(sums_of[{{c}}], channel + {{c}}u, pixel), at + {{c}}u, channel + {{c}}u);
#else
        output[at + {{c}}u] = finish(sums_of[{{c}}] + bias[{{c}}], at + {{c}}u, channel + {{c}}u);
#endif
    }
#endfor
#endif
}
