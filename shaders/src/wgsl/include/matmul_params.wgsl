    rows: u32,
    columns: u32,
    depth: u32,
    // Strides in elements of the buffers, or vectors of four: along rows or columns, and along
    // the depth.
    a_row: u32,
    a_depth: u32,
    b_column: u32,
    b_depth: u32,
    // Number of products, by their dimensions from the innermost out.
#for d in 0..RANK
    extent_{{d}}: u32,
    a_stride_{{d}}: u32,
    b_stride_{{d}}: u32,
#endfor
    act_a: f32,
    act_b: f32,
#if FIXED
    zero_a: i32,
    zero_b: i32,
    multiplier: i32,
    shift: i32,
    up: i32,
    zero: i32,
    low: i32,
    high: i32,
    // Depth of a block of a sum.
    block: u32,
#endif
