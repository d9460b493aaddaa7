    in_h: i32,
    in_w: i32,
    // Elements of a pixel of the input, or vectors of four where channels come in fours.
    in_pixel: u32,
    // Input channels of a group, and vectors of four of them.
    group_c: u32,
    group_v: u32,
    // Pixels of all output images.
    out_pixels: u32,
    out_h: u32,
    out_w: u32,
    out_c: u32,
    // Output channels of a group.
    group_out: u32,
    kernel_h: u32,
    kernel_w: u32,
    stride_h: i32,
    stride_w: i32,
    dilation_h: i32,
    dilation_w: i32,
    // Rows above and columns left of the image.
    pad_h: i32,
    pad_w: i32,
    // Offset of the bias in weights.
    bias: u32,
    // Workgroups along the pixels in one row of the dispatch.
    row: u32,
