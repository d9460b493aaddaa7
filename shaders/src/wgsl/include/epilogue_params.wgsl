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
#endif
