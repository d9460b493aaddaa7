    // Offset of the element `r` among the combined elements.
    var at = base;
    var left = r;
#for d in 0..REDUCED
#if d < REDUCED - 1
    let turn_{{d}} = divide(left, p.reduced_extent_{{d}});
#else
    let turn_{{d}} = 0u;
#endif
    at += (left - turn_{{d}} * p.reduced_extent_{{d}}) * p.reduced_stride_{{d}};
    left = turn_{{d}};
#endfor
