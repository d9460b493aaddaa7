#if !POINTWISE
// Row, column and vector of channels of a vector of terms.
fn tap_of(term: u32) -> vec3<u32> {
    let tap = divide(term, p.group_v);
    let row = divide(tap, p.kernel_w);
    return vec3(row, tap - row * p.kernel_w, term - tap * p.group_v);
}

// The input of a vector of terms; zeros outside of the image and after the last terms.
fn input_of(window: vec3<i32>, tap: vec3<u32>, zero: V) -> V {
    let x = window.x + i32(tap.y) * p.dilation_w;
    let y = window.y + i32(tap.x) * p.dilation_h;
    let read = load(pixel_at(x, y, window.z), tap.z) - zero;
    return select(V(), read, inside(x, y) & (tap.x < p.kernel_h));
}
#endif

// The weights of four terms; zeros after the last ones.
fn filter_of(term: u32, terms: u32, channel: u32) -> V {
    let at = min(term, terms - 1u) * p.out_c + channel;
#if INTEGERS
    return select(V(), expand(at), term < terms);
#else
    return select(V(), weight(at), term < terms);
#endif
}
