#if !POINTWISE
// Top left corner of an output pixel's window, and its image.
fn window(pixel: u32) -> vec3<i32> {
    let row = divide(pixel, p.out_w);
    let n = divide(row, p.out_h);
    let x = i32(pixel - row * p.out_w);
    let y = i32(row - n * p.out_h);
    return vec3(x * p.stride_w - p.pad_w, y * p.stride_h - p.pad_h, i32(n));
}
#endif
