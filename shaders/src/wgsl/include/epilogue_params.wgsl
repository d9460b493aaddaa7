    act_a: f32,
    act_b: f32,
    after_a: f32,
    after_b: f32,
#if INTEGERS
    input_zero: i32,
    weight_zero: i32,
    result_zero: i32,
    low: i32,
    high: i32,
    // Output pixels of one row of the input.
    row_pixels: u32,
    // Pixel and channel from which on halves are rounded away from zero in all channels.
    tail_pixel: u32,
    tail_channel: u32,
    // Steps in depth of a block of a sum.
    block: u32,
#endif
