    let first_pixel = (group.z * p.row + group.y) * {{BLOCK_PIXELS}}u;
    let first_channel = group.x * {{BLOCK_CHANNELS}}u;
    // What this invocation copies: one vector of terms of every LOADED_PIXELS-th pixel, and one channel of every
    // LOADED_TERMS-th vector of terms. Surplus pixels and channels are copies of the last ones, which nothing stores.
    let row = local / {{DEPTH}}u;
    let column = local % {{BLOCK_CHANNELS}}u;
    let channel = min(first_channel + column, p.out_c - 1u);
#for v in 0..PIXEL_LOADS
    let pixel_of_{{v}} = min(first_pixel + row + {{v * LOADED_PIXELS}}u, p.out_pixels - 1u);
#if INTEGERS
    let zero_{{v}} = V(zero_of(row_of(pixel_of_{{v}})));
#else
    let zero_{{v}} = V();
#endif
#if POINTWISE
    let at_{{v}} = pixel_of_{{v}} * p.in_pixel;
#else
    let window_{{v}} = window(pixel_of_{{v}});
#endif
#endfor
    // From the uniform block itself: barriers must be in uniform control flow, and a private variable is not uniform.
    let terms = uniforms.kernel_h * uniforms.kernel_w * uniforms.group_v;
    // The vectors of terms that this invocation copies next.
    var input_term = local % {{DEPTH}}u;
    var term = local / {{BLOCK_CHANNELS}}u;
#if !POINTWISE
    var tap = tap_of(input_term);
#endif
#for v in 0..PIXEL_LOADS
#if POINTWISE
    var pixel_{{v}} = select(V(), load(at_{{v}}, min(input_term, terms - 1u)) - zero_{{v}}, input_term < terms);
#else
    var pixel_{{v}} = input_of(window_{{v}}, tap, zero_{{v}});
#endif
#endfor
#for v in 0..FILTER_LOADS
    var filter_{{v}} = filter_of(term + {{v * LOADED_TERMS}}u, terms, channel);
#endfor
